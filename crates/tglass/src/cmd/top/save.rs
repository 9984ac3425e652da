//! Writing what is seen to a file while the screen goes on.

use super::updates::Update;
use crate::cmd::target::SNAPSHOT;
use crate::remedy;
use crate::render::json;
use anyhow::{Context, Result, bail};
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread;
use threadglass::model::Snapshot;
use threadglass::snap::{TakeOptions, take};
use threadglass::target::Live;
use threadglass::{Pid, look};

/// Only the user may read what tells much of a process.
const MODE: u32 = 0o600;

/// Writes `shown`; where that is `None`, how the process is now: as a snapshot if the file is named like one, else as JSON.
pub fn begin(pid: Pid, shown: Option<Snapshot>, path: PathBuf, updates: Sender<Update>) -> std::io::Result<()> {
    thread::Builder::new().name("tg-save".to_owned()).spawn(move || {
        let result = save(pid, shown, &path);
        let result = result.map(|threads| (path, threads)).map_err(|error| remedy::of_error(&error));
        let _ = updates.send(Update::Saved(result));
    })?;
    Ok(())
}

fn save(pid: Pid, shown: Option<Snapshot>, path: &Path) -> Result<usize> {
    let is_snapshot = path.extension().is_some_and(|ending| ending == SNAPSHOT);
    if is_snapshot && shown.is_some() {
        bail!("what stands on the screen can be saved as JSON only (end the name in .json)");
    }
    // What is there already may be the only evidence of something else.
    let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path);
    let file = file.with_context(|| format!("cannot write {} (choose another name)", path.display()))?;
    let mut out = BufWriter::new(file);
    let written = if is_snapshot { keep(pid, &mut out) } else { write(pid, shown, &mut out) };
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

/// As `tglass snap` does.
fn keep(pid: Pid, mut out: impl Write) -> Result<usize> {
    let taken = take(&Live::open(pid)?, TakeOptions::default())?;
    out.write_all(&taken.bytes)?;
    out.flush()?;
    Ok(taken.threads)
}

fn write(pid: Pid, shown: Option<Snapshot>, mut out: impl Write) -> Result<usize> {
    let mut snapshot = match shown {
        Some(snapshot) => snapshot,
        None => look::explain_whole(&Live::open(pid)?, look::USUAL_TIME)?,
    };
    remedy::of_gaps(&mut snapshot.gaps);
    json::pretty(&mut out, &snapshot)?;
    writeln!(out)?;
    out.flush()?;
    Ok(snapshot.threads.len())
}
