//! The lines of `tglass watch`.

use super::sync::duration;
use super::{BAD, BOLD, DIM, FAIR, GOOD, paint, safe, snapshot::utc};
use anstyle::Style;
use threadglass::model::{Certainty, RestartHelps, TroubleKind, WatchEvent, WatchEventKind};

/// One event in one line.
pub fn line(event: &WatchEvent) -> String {
    let process = paint(BOLD, &format!("{} ({})", safe(&event.process.name), event.process.pid));
    let at = paint(DIM, &utc(event.at_ms));
    let (word, style) = headword(event.kind);
    match event.event {
        WatchEventKind::Found => {
            let mut more = Vec::new();
            if event.certainty != Certainty::Certain {
                more.push(event.certainty.word().to_owned());
            }
            if event.for_ms >= 1000 {
                more.push(format!("for {}", duration(event.for_ms)));
            }
            more.push(restart(event.restart_helps).to_owned());
            more.extend(event.way_out.iter().map(|way| format!("way out: {}", safe(way))));
            more.extend(event.snapshot.iter().map(|path| format!("snapshot: {}", safe(path))));
            let text = safe(event.text.trim_end_matches('.'));
            format!("{at}  {}  {process}  {text} ({})\n", paint(style.bold(), word), more.join("; "))
        }
        WatchEventKind::Dissolved => {
            let was = format!("{} for {}, and goes on", word.to_lowercase(), duration(event.for_ms));
            format!("{at}  {}  {process}  it was {was}\n", paint(GOOD.bold(), "DISSOLVED"))
        }
        WatchEventKind::Ended => {
            let was = format!("{} for {}, and has ended", word.to_lowercase(), duration(event.for_ms));
            format!("{at}  {}  {process}  it was {was}\n", paint(BOLD, "ENDED"))
        }
    }
}

fn restart(helps: RestartHelps) -> &'static str {
    match helps {
        RestartHelps::Yes => "a restart helps",
        RestartHelps::No => "a restart does not help",
        RestartHelps::Perhaps => "a restart may help",
    }
}

fn headword(kind: TroubleKind) -> (&'static str, Style) {
    match kind {
        TroubleKind::Deadlocked => ("DEADLOCKED", BAD),
        TroubleKind::NobodyLeft => ("NOBODY LEFT", BAD),
        TroubleKind::WorkersStarve => ("WORKERS STARVE", BAD),
        TroubleKind::Behind => ("BEHIND A LOCK", FAIR),
        TroubleKind::OtherService => ("WAITS FOR ANOTHER SERVICE", FAIR),
        TroubleKind::StarvedOfCpu => ("STARVED OF CPU", FAIR),
        TroubleKind::Stopped => ("STOPPED", FAIR),
        TroubleKind::Traced => ("TRACED", FAIR),
        TroubleKind::Frozen => ("FROZEN", FAIR),
        TroubleKind::Unkillable => ("IN D STATE", FAIR),
    }
}
