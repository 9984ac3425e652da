//! Writing a snapshot to a file while the screen goes on.

use super::updates::Update;
use crate::remedy;
use crate::render::json;
use anyhow::{Context, Result};
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread;
use threadglass::model::Snapshot;
use threadglass::target::Live;
use threadglass::{Pid, look};

/// Writes `shown`; where that is `None`, how the process is now.
pub fn begin(pid: Pid, shown: Option<Snapshot>, path: PathBuf, updates: Sender<Update>) -> std::io::Result<()> {
    thread::Builder::new().name("tg-save".to_owned()).spawn(move || {
        let result = save(pid, shown, &path);
        let result = result.map(|threads| (path, threads)).map_err(|error| remedy::of_error(&error));
        let _ = updates.send(Update::Saved(result));
    })?;
    Ok(())
}

fn save(pid: Pid, shown: Option<Snapshot>, path: &Path) -> Result<usize> {
    // What is there already may be the only evidence of something else.
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let file = file.with_context(|| format!("cannot write {} (choose another name)", path.display()))?;
    let written = write(pid, shown, &mut BufWriter::new(file));
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
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
