//! What can stand for a target, for the completion of a shell: processes with their names, core files, snapshots.

use super::process_name;
use super::target::is_snapshot;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The variable by which a shell's script asks for completions.
pub const VARIABLE: &str = "TGLASS_COMPLETE";

/// Processes, by ID and by name.
pub fn processes(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = pids(current);
    if !current.is_empty() && found.is_empty() {
        let mut names: Vec<String> = process_name::others().into_iter().map(|(_, name, _)| name).collect();
        names.sort();
        // A name that several have is refused.
        let alone = names.chunk_by(|a, b| a == b).filter(|same| same.len() == 1).map(|same| same[0].clone());
        found
            .extend(alone.filter(|name| name.as_bytes().starts_with(current.as_bytes())).map(CompletionCandidate::new));
    }
    found
}

/// Processes, by ID.
pub fn pids(current: &OsStr) -> Vec<CompletionCandidate> {
    let is_meant = |pid: &String| pid.as_bytes().starts_with(current.as_bytes());
    let others = process_name::others().into_iter().map(|(pid, name, line)| (pid.to_string(), name, line));
    let candidate = |(pid, name, line): (String, String, String)| match only_shows() {
        true => CompletionCandidate::new(format!("{pid}  ({name})")),
        false => CompletionCandidate::new(pid).help(Some(line.into())),
    };
    others.filter(|(pid, ..)| is_meant(pid)).map(candidate).collect()
}

/// Whether the shell shows the candidates and inserts nothing: bash after a second Tab, which shows no descriptions.
fn only_shows() -> bool {
    std::env::var("_CLAP_COMPLETE_COMP_TYPE").is_ok_and(|kind| kind == "63")
}

/// Processes, core files and snapshots.
pub fn targets(current: &OsStr) -> Vec<CompletionCandidate> {
    let is_meant = |path: &Path| path.is_dir() || is_snapshot(path) || is_core(path);
    let files = PathCompleter::any().filter(is_meant).complete(current);
    // The directory itself is no step towards a file.
    let files = files.into_iter().filter(|file| file.get_value() != ".");
    processes(current).into_iter().chain(files).collect()
}

/// Whether a file is an ELF file of the kind of cores.
fn is_core(path: &Path) -> bool {
    let mut head = [0; 18];
    // Opening what is no file may take for ever.
    path.metadata().is_ok_and(|about| about.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok()
        && head.starts_with(b"\x7fELF")
        && head[16..] == [4, 0]
}
