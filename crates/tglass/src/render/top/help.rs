//! Pages in place of the lists: the keys, and what could not be seen.

use super::BOLD_STYLE;
use super::list::put;
use crate::render::fit;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use threadglass::model::Gap;

const OF_PROCESS: [(&str, &str); 21] = [
    ("arrows, PgUp, Home", "go through the list"),
    ("Tab, 1 2 3", "threads, locks, tasks"),
    ("Enter, x", "stack of the selected thread; who holds and wants a lock"),
    ("w", "waits of the selected row, or more rows"),
    ("/", "filter: rows that contain a text; Esc clears it"),
    ("< >", "sort by another column (* marks it)"),
    ("r", "sort the other way round"),
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

/// What could not be seen, in whole sentences.
pub fn gaps(area: Rect, buffer: &mut Buffer, gaps: &[&Gap]) {
    let title =
        if gaps.is_empty() { "Everything was seen (any key goes back)" } else { "Not seen (any key goes back)" };
    put(buffer, (area.x, area.y), area.width, title, BOLD_STYLE);
    let gaps: Vec<Gap> = gaps.iter().map(|gap| (*gap).clone()).collect();
    let text = fit::wrapped(crate::render::gaps::text(&gaps), Some(usize::from(area.width.saturating_sub(1)).max(1)));
    let text = anstream::adapter::strip_str(&text).to_string();
    for (line, y) in text.trim_start().lines().zip(area.y + 2..area.bottom()) {
        put(buffer, (area.x + 1, y), area.width.saturating_sub(1), line, Style::new());
    }
}
