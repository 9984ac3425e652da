//! Snapshots of what was found, in a directory that does not grow without end.

use super::super::snap::NewFile;
use super::super::target::SNAPSHOT;
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use threadglass::Pid;
use threadglass::model::WatchEvent;
use threadglass::snap::{TakeOptions, take};
use threadglass::target::Live;

/// What the names of our files begin with.
const PREFIX: &str = "watch-";
/// From one snapshot of a process to the next: trouble that comes and goes does not push out all other evidence.
const BETWEEN: Duration = Duration::from_secs(60);

/// A directory of snapshots.
pub struct Keeper {
    dir: PathBuf,
    most_files: u64,
    most_bytes: u64,
    redact: bool,
    taken: HashMap<Pid, Instant>,
}

impl Keeper {
    /// The directory is made if it is not there.
    pub fn new(dir: &Path, most_files: u64, most_bytes: u64, redact: bool) -> Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("cannot make {}", dir.display()))?;
        let keeper = Self { dir: dir.to_owned(), most_files, most_bytes, redact, taken: HashMap::new() };
        keeper.remove_unfinished();
        // What cannot be written is said before anything is found.
        drop(NewFile::create(&dir.join(format!("{PREFIX}try.{SNAPSHOT}")))?);
        keeper.make_room(0)?;
        Ok(keeper)
    }

    /// Takes a snapshot of the process of `event`: where it is now. `None` if one was taken just before.
    pub fn keep(&mut self, event: &WatchEvent) -> Result<Option<PathBuf>> {
        let pid = event.process.pid;
        self.taken.retain(|_, taken| taken.elapsed() < BETWEEN);
        if self.taken.contains_key(&pid) {
            return Ok(None);
        }
        let live = Live::open(pid)?;
        ensure!(live.leader_stat().start_time == event.process.start_time, "process {pid} is another one by now");
        let taken = take(&live, TakeOptions { redact: self.redact, ..TakeOptions::default() })?;
        let size = taken.bytes.len() as u64;
        ensure!(size <= self.most_bytes, "a snapshot of {size} bytes is larger than --keep-bytes");
        let path = self.dir.join(name(event));
        let file = NewFile::create(&path)?;
        self.make_room(size)?;
        file.finish(&taken.bytes)?;
        self.taken.insert(pid, Instant::now());
        Ok(Some(path))
    }

    /// Removes the oldest of our files, until there is room for one of this size. With none to come all may stay that there may be.
    fn make_room(&self, size: u64) -> Result<()> {
        let mut files = self.files()?;
        // Names begin with the time.
        files.sort();
        let to_come = u64::from(size > 0);
        let mut bytes: u64 = files.iter().map(|(_, size)| size).sum();
        let mut count = files.len() as u64;
        for (name, length) in files {
            if count + to_come <= self.most_files && bytes + size <= self.most_bytes {
                break;
            }
            fs::remove_file(self.dir.join(&name)).with_context(|| format!("cannot remove {name}"))?;
            count -= 1;
            bytes -= length;
        }
        Ok(())
    }

    /// Our files, with their sizes. Others are left alone.
    fn files(&self) -> Result<Vec<(String, u64)>> {
        let entries = fs::read_dir(&self.dir).with_context(|| format!("cannot read {}", self.dir.display()))?;
        let ours = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_ours = name.starts_with(PREFIX) && Path::new(&name).extension().is_some_and(|it| it == SNAPSHOT);
            let about = entry.metadata().ok().filter(|about| is_ours && about.is_file())?;
            Some((name, about.len()))
        });
        Ok(ours.collect())
    }

    /// Removes what a watch has begun to write that was killed.
    fn remove_unfinished(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(pid) = name.strip_prefix('.').filter(|name| name.starts_with(PREFIX)) else { continue };
            let pid = pid.rsplit('.').next().and_then(|pid| pid.parse::<u32>().ok());
            if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// `watch-1763580000123-server-4711-deadlocked.tgsnap`
fn name(event: &WatchEvent) -> String {
    let plain = |text: &str| {
        let letters = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
        letters.take(32).collect::<String>()
    };
    let (name, kind) = (plain(&event.process.name), plain(event.kind.word()));
    format!("{PREFIX}{:015}-{name}-{}-{kind}.{SNAPSHOT}", event.at_ms, event.process.pid)
}
