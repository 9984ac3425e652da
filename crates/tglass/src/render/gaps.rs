//! What could not be seen: printed below every screen, never left out.

use super::{FAIR, paint, safe};
use threadglass::model::Gap;

/// How many threads of one gap are named.
const NAMED: usize = 8;

/// The gaps as lines; nothing when there are none.
pub fn text(gaps: &[Gap]) -> String {
    let mut out = String::new();
    for gap in gaps {
        let whose = match gap.lwps.len() {
            0 => String::new(),
            count => {
                let named: Vec<_> = gap.lwps.iter().take(NAMED).map(ToString::to_string).collect();
                let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
                format!(" of {}{more}", named.join(", "))
            }
        };
        out += &format!("{} {}{whose}: {}\n", paint(FAIR, "not seen:"), safe(&gap.what), safe(&gap.why));
    }
    if !out.is_empty() {
        out.insert(0, '\n');
    }
    out
}
