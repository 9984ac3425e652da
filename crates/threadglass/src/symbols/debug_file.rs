//! Debug information that was split off into a file of its own.

use crate::elf::{ObjectFile, build_id_of_file};
use crate::limits::Limits;
use crate::sys::file::{open_dir, open_regular_below};
use crate::target::Module;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where distributions put them.
const ROOT: &str = "/usr/lib/debug";
/// A file's name, its end, and a sum of the file that bears it.
const MAX_LINK: u64 = 4096;

/// The separate debug file of `module`: by its build id, or by the link in `file`. Only one with the same
/// build id is taken.
pub(super) fn find_debug_file(module: &Module, file: Option<&File>, build_id: Option<&[u8]>) -> Option<File> {
    let build_id = build_id.filter(|id| id.len() > 1)?;
    let mut candidates = vec![by_build_id(build_id)];
    if let Some(name) = file.and_then(debug_link)
        && let Some(dir) = Path::new(OsStr::from_bytes(&module.path)).parent()
    {
        let below = dir.strip_prefix("/").unwrap_or(dir);
        candidates.extend([dir.join(&name), dir.join(".debug").join(&name), Path::new(ROOT).join(below).join(&name)]);
    }
    candidates
        .iter()
        .find_map(|path| open_regular(path).filter(|file| build_id_of_file(file).as_deref() == Some(build_id)))
}

fn by_build_id(build_id: &[u8]) -> PathBuf {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Path::new(ROOT).join(".build-id").join(hex(&build_id[..1])).join(format!("{}.debug", hex(&build_id[1..])))
}

/// The plain file name in `.gnu_debuglink`. One with a directory in it is not followed.
fn debug_link(file: &File) -> Option<String> {
    // Little is read, and nothing kept.
    let object = ObjectFile::open(file, &Limits::default())?;
    let section = object.section(".gnu_debuglink").filter(|section| section.size <= MAX_LINK)?;
    let bytes = object.read(section.offset, section.size)?;
    let name = std::str::from_utf8(bytes.split(|byte| *byte == 0).next()?).ok()?;
    (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
}

/// Opens what may be anything: never waits for a pipe's other end, never opens a device.
fn open_regular(path: &Path) -> Option<File> {
    open_regular_below(&open_dir(Path::new("/")).ok()?, path.as_os_str().as_bytes()).ok()
}
