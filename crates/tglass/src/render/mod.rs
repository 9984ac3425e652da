//! Text for people. Every function takes the model and gives a string, so tests need no terminal.

pub mod contend;
pub mod doctor;
pub mod flame;
mod gaps;
pub mod locks;
pub mod pprof;
pub mod profil;
pub mod set;
pub mod stacks;
pub mod stats;
mod sync;
mod table;
mod target;
pub mod threads;
pub mod tsd;
pub mod why;

use anstyle::{AnsiColor, Style};

/// For the one fact of a screen that matters most.
pub const BOLD: Style = Style::new().bold();
/// For headings and what matters less.
pub const DIM: Style = Style::new().dimmed();
/// Works.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Works in part.
pub const FAIR: Style = AnsiColor::Yellow.on_default();
/// Does not work.
pub const BAD: Style = AnsiColor::Red.on_default();

/// `text` in `style`.
pub fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Text of a target's own making, safe for a terminal: control characters are written out.
pub fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Besides C0 and C1, those that reorder or hide what stands beside them.
            c if c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}') =>
            {
                out.extend(c.escape_default());
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_cannot_drive_the_terminal() {
        assert_eq!(super::safe("a\x1b[31mb\n\u{202e}c\u{9b}"), "a\\u{1b}[31mb\\n\\u{202e}c\\u{9b}");
        assert_eq!(super::safe("naïve 名前"), "naïve 名前");
    }
}
