//! What is said of snapshot files.

use super::{BOLD, DIM, FAIR, paint, safe};
use std::path::Path;
use std::time::Duration;
use threadglass::model::SnapshotFile;
use threadglass::snap::Taken;

/// What was taken, and what is missing in it.
pub fn taken(taken: &Taken, path: &Path, took: Duration) -> String {
    let (target, threads) = (&taken.target, taken.threads);
    let path = safe(&path.display().to_string());
    let count = if threads == 1 { "thread" } else { "threads" };
    let mut out = format!(
        "{}  {threads} {count}\n{}\n",
        paint(BOLD, &format!("snapshot of {} (pid {})", safe(&target.name), target.pid)),
        paint(
            DIM,
            &format!(
                "{path}: {}; the process was not stopped (0 us pause, {:.1} s)",
                size(taken.bytes.len()),
                took.as_secs_f64()
            )
        )
    );
    for (part, why, _) in &taken.missing {
        out += &format!("{} {}: {}\n", paint(FAIR, "not in it:"), part.name(), safe(why));
    }
    out += &format!("\n{} tglass why {path}\n", paint(DIM, &format!("{:<15}", "open it")));
    out
}

/// A file, and when and by what it was written.
pub fn file(file: &SnapshotFile) -> String {
    let redacted = if file.redacted { ", without memory contents" } else { "" };
    format!("{}, taken {} by {}{redacted}", safe(&file.path), utc(file.taken_at_ms), safe(&file.written_by))
}

fn size(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// A time in the calendar.
pub fn utc(ms: u64) -> String {
    let (days, second) = (ms / 86_400_000, ms / 1000 % 86_400);
    // Years that begin in March have their odd day at the end; 400 of them are always as long.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{date:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use threadglass::model::Snapshot;
    use threadglass::model::terminal::may_print;
    use threadglass::snap::{Part, Snap};

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399_999), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_735_689_599_000), "2024-12-31 23:59:59 UTC");
        assert_eq!(utc(4_107_542_400_000), "2100-03-01 00:00:00 UTC");
        assert!(!utc(u64::MAX).is_empty());
    }

    /// Numbers that differ, and are the same every time.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % sides
        }
    }

    /// Changes one or two of the values of a document, to what the type of each may be.
    fn change(value: &mut Value, dice: &mut Dice) {
        let is_hit = dice.roll(250) == 0;
        match value {
            Value::Object(members) => members.values_mut().for_each(|member| change(member, dice)),
            Value::Array(items) => {
                match items.first().cloned().filter(|_| is_hit) {
                    Some(first) if dice.roll(2) == 0 => items.extend(std::iter::repeat_n(first, 20)),
                    _ if is_hit => items.truncate(dice.roll(3) as usize),
                    _ => {}
                }
                items.iter_mut().for_each(|item| change(item, dice));
            }
            Value::Number(_) if is_hit => {
                let numbers =
                    [Value::from(0), 1.into(), (-1).into(), i32::MAX.into(), u32::MAX.into(), u64::MAX.into()];
                *value = numbers[dice.roll(6) as usize].clone();
            }
            Value::String(text) if is_hit && text.starts_with("0x") => {
                *text = ["0x0", "0xffffffffffffffff"][dice.roll(2) as usize].to_owned();
            }
            Value::String(text) if is_hit && dice.roll(4) > 0 => {
                let texts = ["", "\u{1b}]0;x\u{7}", "ä::<", "<script>", "; .."];
                *text = texts[dice.roll(5) as usize].repeat(1 + dice.roll(300) as usize);
            }
            Value::Bool(is) if is_hit => *is = !*is,
            // A member that need not be known.
            other if is_hit => *other = Value::Null,
            _ => {}
        }
    }

    /// A snapshot may say anything: whatever of it is of the right type makes a screen, and no terminal obeys it.
    #[test]
    fn any_answer_makes_a_screen() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/format-1.tgsnap");
        let snap = Snap::open(Path::new(file)).expect("a snapshot");
        let (mut dice, mut made, took) = (Dice(88172645463325252), 0, Duration::from_millis(3));
        for part in [Part::Why, Part::Report, Part::Stacks, Part::AllLocks] {
            let whole = serde_json::to_value(snap.answer(part).expect("an answer")).expect("JSON");
            for _ in 0..200 {
                let mut changed = whole.clone();
                change(&mut changed, &mut dice);
                let Ok(snapshot) = serde_json::from_value::<Snapshot>(changed) else { continue };
                made += 1;
                let width = [None, Some(0), Some(1), Some(80)][dice.roll(4) as usize];
                let screens = [
                    super::super::why::text(&snapshot, took, None, width),
                    super::super::threads::text(&snapshot, 3, took, width),
                    super::super::stacks::text(&snapshot, 3, took, width),
                    super::super::tasks::text(&snapshot, 3, took, width),
                    super::super::tasks::stacks(&snapshot, 3, took, width),
                    super::super::locks::text(&snapshot, took, width),
                ];
                for screen in screens {
                    // Colours are this tool's own; it sets no title.
                    assert!(!screen.contains("\u{1b}]") && !screen.contains('\u{7}'), "{screen}");
                    let plain = anstream::adapter::strip_str(&screen).to_string();
                    assert!(plain.chars().all(|c| c == '\n' || may_print(c)), "{plain:?}");
                }
                let page = super::super::report::page(&snapshot, &Default::default(), took);
                assert_eq!(page.is_ok(), snapshot.verdict.is_some());
            }
        }
        assert!(made > 100, "only {made} documents were of the right types");
    }

    #[test]
    fn sizes_are_told_roughly() {
        assert_eq!([0, 9_999, 10_000, 12_345_678].map(size), ["0 bytes", "9999 bytes", "10 kB", "12 MB"]);
    }
}
