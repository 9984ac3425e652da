//! The screen of `tglass doctor`.

use super::{BAD, BOLD, FAIR, GOOD, paint, safe};
use threadglass::model::{Check, CheckVerdict, Doctor};

/// The whole screen.
pub fn text(report: &Doctor) -> String {
    let mut out = section("This machine and user", &report.host);
    if let Some(target) = &report.target {
        out.push('\n');
        out += &section("The process", target);
    }
    out
}

fn section(title: &str, checks: &[Check]) -> String {
    let mut out = format!("{}\n", paint(BOLD, title));
    for check in checks {
        let mark = match check.verdict {
            CheckVerdict::Ok => paint(GOOD, "ok     "),
            CheckVerdict::Limited => paint(FAIR, "limited"),
            CheckVerdict::No => paint(BAD, "no     "),
        };
        out += &format!("  {mark}  {}: {}\n", check.subject, safe(&check.detail));
        if let Some(fix) = &check.fix {
            out += &format!("           fix: {}\n", safe(fix));
        }
    }
    out
}
