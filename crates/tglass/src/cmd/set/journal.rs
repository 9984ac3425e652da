//! What was written to a process, kept before it is written.

use crate::render::json;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use threadglass::act::set_state::Sharers;
use threadglass::act::{Access, own_dir};
use threadglass::model::{Family, SetPlan as Plan};
use threadglass::target::Live;

const SCHEMA: &str = "threadglass/set/1";
/// The families that can be set, as they are written down.
const PTHREAD: &str = "pthread";
const RUST: &str = "rust_std";
/// An object takes less than a hundred bytes.
const MAX_FILE: u64 = 64 << 10;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    pub schema: String,
    pub written_at_ms: u64,
    pub pid: i32,
    /// Clock ticks after boot at which the process was started; with `boot_id` it tells it from a later one
    /// with the same pid.
    pub start_time: u64,
    pub boot_id: String,
    pub address: String,
    pub kind: String,
    pub family: String,
    pub value: i32,
    /// The object's bytes before and after, in hexadecimal.
    pub old: String,
    pub new: String,
    /// Threads that were to be woken.
    pub woken: Vec<i32>,
    /// Whether the change is known to have been made completely.
    pub done: bool,
    pub undone_at_ms: Option<u64>,
}

impl Journal {
    /// Of a change that is about to be made.
    pub fn of(live: &Live, plan: &Plan, sharers: &Sharers) -> Self {
        let elsewhere = sharers.waiters.iter().filter(|_| plan.wakes).map(|(_, lwp)| lwp);
        Self {
            schema: SCHEMA.to_owned(),
            written_at_ms: now_ms(),
            pid: live.pid().0,
            start_time: live.leader_stat().start_time,
            boot_id: boot_id(),
            address: plan.address.to_string(),
            kind: plan.kind.word().to_owned(),
            family: if plan.family == Family::RustStd { RUST } else { PTHREAD }.to_owned(),
            value: plan.value,
            old: hex(&plan.before),
            new: hex(&plan.after()),
            woken: plan.kick.iter().chain(elsewhere).map(|lwp| lwp.0).collect(),
            done: false,
            undone_at_ms: None,
        }
    }

    /// The same, made.
    pub fn finished(&self) -> Self {
        Self { done: true, ..self.clone() }
    }

    /// The same, undone.
    pub fn undone(&self) -> Self {
        Self { undone_at_ms: Some(now_ms()), ..self.clone() }
    }

    /// Whose the object is.
    pub fn family(&self) -> Option<Family> {
        match self.family.as_str() {
            PTHREAD => Some(Family::Pthread),
            RUST => Some(Family::RustStd),
            _ => None,
        }
    }

    /// Whether the process `live` is the one that was changed.
    pub fn is_of(&self, live: &Live) -> bool {
        self.boot_id == boot_id() && self.pid == live.pid().0 && self.start_time == live.leader_stat().start_time
    }

    /// Writes it to a new file, which is on the disk when this returns.
    pub fn create(&self) -> Result<PathBuf> {
        let dir = directory()?;
        let cannot = || format!("cannot write a journal to {}, so nothing was changed", dir.display());
        let mut at = self.written_at_ms;
        loop {
            let path = dir.join(format!("{}-{}-{at}.json", self.pid, self.start_time));
            match self.write(&path, OpenOptions::new().write(true).create_new(true)) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => at += 1,
                result => {
                    result.and_then(|()| File::open(&dir)?.sync_all()).with_context(cannot)?;
                    return Ok(path);
                }
            }
        }
    }

    /// Replaces the file at `path`, in one step.
    pub fn rewrite(&self, path: &Path) -> Result<()> {
        let cannot = || format!("cannot update the journal {} (the change itself was made)", path.display());
        let partial = path.with_extension("json.new");
        // A new file, never one that a link of that name leads to: the user may keep journals where others can write.
        let _ = std::fs::remove_file(&partial);
        self.write(&partial, OpenOptions::new().write(true).create_new(true)).with_context(cannot)?;
        std::fs::rename(&partial, path).with_context(cannot)
    }

    fn write(&self, path: &Path, options: &mut OpenOptions) -> std::io::Result<()> {
        let mut file = options.mode(0o600).open(path)?;
        let mut text = Vec::new();
        json::pretty(&mut text, self)?;
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_all()
    }

    /// Reads one.
    pub fn read(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot read the journal {}", path.display());
        const NONBLOCK: i32 = 0o4000;
        let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path).with_context(cannot)?;
        let about = file.metadata().with_context(cannot)?;
        if !about.is_file() || about.len() > MAX_FILE {
            bail!("{} is not a journal of `tglass set`: it is too large, or not a regular file", path.display());
        }
        let mut text = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut text).with_context(cannot)?;
        let journal: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not a journal of `tglass set`", path.display()))?;
        if journal.schema != SCHEMA {
            bail!("{} has the schema {}, not {SCHEMA}", path.display(), journal.schema);
        }
        Ok(journal)
    }

    /// The newest of `live` that has not been undone.
    pub fn newest(live: &Live) -> Result<(PathBuf, Self)> {
        let dir = directory()?;
        let prefix = format!("{}-{}-", live.pid(), live.leader_stat().start_time);
        let mut found: Vec<(PathBuf, Self)> = std::fs::read_dir(&dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(&prefix) && name.ends_with(".json")
            })
            .filter_map(|path| Self::read(&path).ok().map(|journal| (path, journal)))
            .filter(|(_, journal)| journal.is_of(live) && journal.undone_at_ms.is_none())
            .collect();
        found.sort_by_key(|(path, journal)| (journal.written_at_ms, path.clone()));
        found.pop().with_context(|| {
            format!("nothing to undo: {} has no journal of a change to process {}", dir.display(), live.pid())
        })
    }
}

/// Where journals are kept: what they say is written to processes, so nobody else may write them. The variables may be
/// those of another user, who then became root.
fn directory() -> Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let state = state.context("no directory for the journal, so nothing was changed (set HOME or XDG_STATE_HOME)")?;
    own_dir(&state.join("threadglass"), Access::Private)
        .context("no directory for the journal, so nothing was changed (set XDG_STATE_HOME to a directory that only you can write)")
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of such a text.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_as_text() {
        assert_eq!(unhex(&hex(&[0, 255, 16])), Some(vec![0, 255, 16]));
        for bad in ["0", "zz", "é"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
