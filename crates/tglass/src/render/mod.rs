//! Text for people. Every function takes the model and gives a string, so tests need no terminal.

pub mod contend;
pub mod diff;
pub mod doctor;
mod fit;
pub mod flame;
mod gaps;
pub mod json;
pub mod locks;
pub mod machine;
pub mod openmetrics;
pub mod pprof;
pub mod profil;
pub mod report;
pub mod set;
pub mod snapshot;
pub mod stacks;
pub mod stats;
mod sync;
mod table;
mod target;
pub mod tasks;
pub mod threads;
pub mod top;
pub mod tsd;
pub mod watch;
pub mod why;

use anstyle::{AnsiColor, Style};
pub use fit::cut;
pub use threadglass::model::terminal::safe;

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
