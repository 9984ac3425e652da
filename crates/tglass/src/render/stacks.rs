//! The screen of `tglass threads --stacks`: equal stacks once, with the threads that have them.

use super::{BOLD, DIM, FAIR, fit, gaps, paint, safe};
use std::collections::HashMap;
use std::time::Duration;
use threadglass::RemoteAddr;
use threadglass::model::{CallSite, Evidence, Frame, Snapshot, StackEnd, Thread};

/// How many threads of one group are listed.
const LISTED: usize = 12;
/// How many different names of one group.
const NAMED: usize = 4;

/// The whole screen, in lines of at most `width` columns. `all` is the number of threads before filtering.
pub fn text(snapshot: &Snapshot, all: usize, took: Duration, width: Option<usize>) -> String {
    let mut out = super::threads::headline(snapshot, all, took);
    for group in groups(&snapshot.threads) {
        out += &heading(&group);
        out += &frames(group[0], width);
        out.push('\n');
    }
    // The last group has its own empty line.
    out.pop();
    fit::wrapped(out + &gaps::text(&snapshot.gaps), width)
}

/// Threads with the same stack, the largest group first; among equals the order of the snapshot.
fn groups(threads: &[Thread]) -> Vec<Vec<&Thread>> {
    type Key<'a> = (Vec<RemoteAddr>, Option<&'a StackEnd>, Option<&'a CallSite>);
    let mut places: HashMap<Key<'_>, usize> = HashMap::new();
    let mut groups: Vec<Vec<&Thread>> = Vec::new();
    for thread in threads.iter().filter(|thread| !thread.frames.is_empty()) {
        let pcs = thread.frames.iter().map(|frame| frame.pc).collect();
        let place = *places.entry((pcs, thread.frames_end.as_ref(), thread.call_site.as_ref())).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(thread),
            None => groups.push(vec![thread]),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// `196 threads: 4711 4712 .. (http-worker)` and what they are in.
fn heading(group: &[&Thread]) -> String {
    let count = if group.len() == 1 { "1 thread".to_owned() } else { format!("{} threads", group.len()) };
    let lwps: Vec<_> = group.iter().filter_map(|thread| thread.lwp).map(|lwp| lwp.to_string()).collect();
    let more = if lwps.len() > LISTED { " .." } else { "" };
    let mut names: Vec<&str> = group.iter().filter_map(|thread| thread.name.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    let others = if names.len() > NAMED { ", .." } else { "" };
    names.truncate(NAMED);
    let names = if names.is_empty() { String::new() } else { format!(" ({}{others})", safe(&names.join(", "))) };
    let first = group[0];
    let state = first.state.word().replace('_', " ");
    let site = match &first.call_site {
        Some(site) if site.evidence == Evidence::Inferred => format!(" in {} (inferred)", safe(&site.function)),
        Some(site) => format!(" in {}", safe(&site.function)),
        None => String::new(),
    };
    let same_state = group.iter().all(|thread| thread.state == first.state);
    let state = if same_state { format!("  {state}{site}") } else { site };
    format!(
        "{}: {}{more}{names}{}\n",
        paint(BOLD, &count),
        lwps[..lwps.len().min(LISTED)].join(" "),
        paint(DIM, &state)
    )
}

fn frames(thread: &Thread, width: Option<usize>) -> String {
    let digits = thread.frames.len().saturating_sub(1).to_string().len();
    let mut out = String::new();
    for (number, frame) in thread.frames.iter().enumerate() {
        out += &fit::cut_to(format!("  #{number:<digits$}  {}", line(frame)), width);
        out.push('\n');
    }
    match &thread.frames_end {
        Some(StackEnd::Unknown { why }) => out += &format!("  {} {}\n", paint(FAIR, "not seen further:"), safe(why)),
        Some(StackEnd::Limit) => out += &format!("  {} deeper than the limit\n", paint(FAIR, "not seen further:")),
        Some(StackEnd::Start) | None => {}
    }
    out
}

/// `function+0x10 (module) file:line`, and how far it can be trusted.
pub(super) fn line(frame: &Frame) -> String {
    let mut out = match (&frame.function, frame.offset) {
        (Some(function), Some(offset)) if offset > 0 => format!("{}+{offset:#x}", safe(function)),
        (Some(function), _) => safe(function),
        (None, Some(offset)) => format!("?? +{offset:#x}"),
        (None, None) => format!("?? {}", frame.pc),
    };
    if frame.inlined {
        out += &paint(DIM, " [inlined]");
    } else if let Some(module) = &frame.module {
        out += &paint(DIM, &format!(" ({})", safe(module)));
    }
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => out += &format!(" {}:{line}", safe(&short(file))),
        (Some(file), None) => out += &format!(" {}", safe(&short(file))),
        (None, _) => {}
    }
    if frame.evidence == Evidence::Inferred {
        out += &paint(FAIR, " [inferred]");
    }
    out
}

/// The file's own name: JSON has the whole path.
fn short(file: &str) -> String {
    file.rsplit('/').next().unwrap_or(file).to_owned()
}
