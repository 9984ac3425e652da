//! `tglass snap`

use super::target::{Opened, WhichTarget};
use crate::cli::SnapArgs;
use crate::{remedy, render};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use threadglass::look::USUAL_TIME;
use threadglass::snap::{TakeOptions, take};

pub fn run(args: &SnapArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let Opened::Target(target) = WhichTarget::of(args.which.word())?.open(&args.files)? else {
        bail!("the target is a snapshot already (copy the file)");
    };
    let file = NewFile::create(&args.output)?;
    let options = TakeOptions { time: args.duration.unwrap_or(USUAL_TIME), redact: args.redact };
    let mut taken = take(&*target, options)?;
    file.finish(&taken.bytes)?;
    for (_, why, remedy) in &mut taken.missing {
        *why = remedy::with(std::mem::take(why), *remedy);
    }
    super::print(&render::snapshot::taken(&taken, &args.output, started.elapsed()))
}

/// A file that appears at its place when it is whole, and not before: until then it has another name in the same directory.
pub(super) struct NewFile {
    place: PathBuf,
    meanwhile: PathBuf,
    file: File,
}

impl NewFile {
    /// Only the user may read it: it tells much of a process.
    const MODE: u32 = 0o600;

    pub(super) fn create(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        // A link is followed, so that the file behind it is what is replaced.
        let place = match fs::canonicalize(path) {
            Ok(place) => {
                ensure!(place.is_file(), "{} is not a file (give the path of the file to write)", path.display());
                place
            }
            Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error).with_context(cannot),
        };
        let name = place.file_name().with_context(cannot)?.to_string_lossy().into_owned();
        let meanwhile = place.with_file_name(format!(".{name}.{}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(Self::MODE).open(&meanwhile);
        Ok(Self { file: file.with_context(cannot)?, place, meanwhile })
    }

    pub(super) fn finish(mut self, bytes: &[u8]) -> Result<()> {
        let write = self.file.write_all(bytes).and_then(|()| self.file.sync_all());
        let put = write.and_then(|()| fs::rename(&self.meanwhile, &self.place));
        put.with_context(|| format!("cannot write {}", self.place.display()))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // It is not there any more if all went well.
        let _ = fs::remove_file(&self.meanwhile);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tgsnap");
        let file = NewFile::create(&path).unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(names(dir.path()), [""; 0], "nothing stays of one that was given up");
        NewFile::create(&path).unwrap().finish(b"one").unwrap();
        let second = NewFile::create(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one", "what is there stays until then");
        second.finish(b"two").unwrap();
        assert_eq!(
            (fs::read(&path).unwrap().as_slice(), names(dir.path())),
            (&b"two"[..], vec!["a.tgsnap".to_owned()])
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, NewFile::MODE);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        NewFile::create(&link).unwrap().finish(b"three").unwrap();
        assert!(link.is_symlink() && fs::read(&path).unwrap() == b"three");
        for bad in [dir.path(), Path::new("/dev/null"), &path.join("x"), &dir.path().join("no/such")] {
            assert!(NewFile::create(bad).is_err(), "{}", bad.display());
        }
    }
}
