//! Pages in place of the lists: the keys, and what could not be seen.

use super::BOLD_STYLE;
use super::list::put;
use super::state::ProcessState;
use crate::render::why::{heading, headword};
use crate::render::{fit, safe};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use threadglass::model::Gap;

const OF_PROCESS: [(&str, &str); 22] = [
    ("arrows, PgUp, Home", "go through the list"),
    ("Tab, 1 2 3", "threads, locks, tasks"),
    ("Enter, x", "stack of the selected thread; who holds and wants a lock"),
    ("w", "waits of the selected row, or more rows"),
    ("/", "filter: rows that contain a text; Esc clears it"),
    ("< >", "sort by another column (* marks it)"),
    ("r", "sort the other way round"),
    ("v", "what is wrong, in whole sentences"),
    ("g", "what could not be seen, and why"),
    ("space", "freeze the screen, and go on"),
    ("s", "save a snapshot, as `tglass snap` does (or JSON: NAME.json)"),
    ("m", "give the mouse back to the terminal, or take it"),
    ("Esc", "back: filter, then all processes"),
    ("Ctrl-Z", "stop; `fg` goes on"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("CPU% RUNQ%", "time on a CPU, and waiting for one: counted by the kernel"),
    ("LCK% SLP%", "time waiting for a lock (inferred from samples), other sleep"),
    ("! before an LWP", "a member of a hang"),
    ("mutex m < 4711", "waits for mutex m, which thread 4711 holds"),
    ("WAITED, WAITS", "where locks are counted (tglass run, contend): since then"),
    ("mouse", "click a row, a heading, a tab; the wheel scrolls"),
];

const OF_MACHINE: [(&str, &str); 9] = [
    ("arrows, PgUp, Home", "go through the list"),
    ("Enter", "look at the selected process"),
    ("p", "look at a process by its PID"),
    ("/", "filter: rows that contain a text; Esc clears it"),
    ("< >, r", "sort by another column; the other way round"),
    ("x", "all that is said of the selected process"),
    ("space", "freeze the screen, and go on"),
    ("m", "give the mouse back to the terminal, or take it"),
    ("q, Ctrl-C", "quit"),
];

pub fn keys(area: Rect, buffer: &mut Buffer, of_process: bool) {
    let keys: &[(&str, &str)] = if of_process { &OF_PROCESS } else { &OF_MACHINE };
    put(buffer, (area.x, area.y), area.width, "Keys of tglass top (any key goes back)", BOLD_STYLE);
    for ((key, does), y) in keys.iter().zip(area.y + 2..area.bottom()) {
        put(buffer, (area.x + 1, y), 18, key, BOLD_STYLE);
        put(buffer, (area.x + 20, y), area.width.saturating_sub(20), does, Style::new());
    }
}

/// What is wrong, in whole sentences.
pub fn why(area: Rect, buffer: &mut Buffer, process: &ProcessState) {
    let hangs = process.hangs();
    let mut text = String::new();
    for finding in &hangs {
        let behind = match finding.behind.len() {
            0 => String::new(),
            1 => "; 1 more thread waits behind".to_owned(),
            number => format!("; {number} more threads wait behind"),
        };
        text += &format!("{} ({})\n", heading(finding.kind), finding.certainty.word());
        text += &format!("{}{behind}\n\n", safe(&finding.text));
    }
    if let Some(verdict) = process.verdict() {
        text += &format!("{}\n{}\n", headword(verdict.kind).0, safe(&verdict.text));
        if let Some(way_out) = &verdict.way_out {
            text += &format!("way out: {}\n", safe(way_out));
        }
    }
    let title = if text.is_empty() {
        "Nothing is known to be wrong yet (any key goes back)"
    } else {
        "Why (any key goes back)"
    };
    page(area, buffer, title, text);
}

/// What could not be seen, in whole sentences.
pub fn gaps(area: Rect, buffer: &mut Buffer, gaps: &[&Gap]) {
    let title =
        if gaps.is_empty() { "Everything was seen (any key goes back)" } else { "Not seen (any key goes back)" };
    let gaps: Vec<Gap> = gaps.iter().map(|gap| (*gap).clone()).collect();
    page(area, buffer, title, crate::render::gaps::text(&gaps));
}

fn page(area: Rect, buffer: &mut Buffer, title: &str, text: String) {
    put(buffer, (area.x, area.y), area.width, title, BOLD_STYLE);
    let text = fit::wrapped(text, Some(usize::from(area.width.saturating_sub(1)).max(1)));
    let text = anstream::adapter::strip_str(&text).to_string();
    for (line, y) in text.trim_start().lines().zip(area.y + 2..area.bottom()) {
        put(buffer, (area.x + 1, y), area.width.saturating_sub(1), line, Style::new());
    }
}
