//! Arguments as users write them: process IDs, addresses, durations.

use super::WhichTarget;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use threadglass::RemoteAddr;
use threadglass::model::{SyncKind, ThreadState};

/// A state to choose by; `None` is any.
#[derive(Clone, Copy, Debug)]
pub struct StateChoice(pub(super) Option<ThreadState>);

/// The states by their words, and `any`.
pub(super) fn states() -> impl TypedValueParser<Value = StateChoice> {
    let words = ["any"].into_iter().chain(ThreadState::ALL.map(ThreadState::word));
    PossibleValuesParser::new(words)
        .map(|word| StateChoice(ThreadState::ALL.into_iter().find(|state| state.word() == word)))
}

/// The kinds of locks by their words.
pub(super) fn kinds() -> impl TypedValueParser<Value = SyncKind> {
    let parser = PossibleValuesParser::new(SyncKind::ALL.map(SyncKind::word));
    parser.map(|word| SyncKind::ALL.into_iter().find(|kind| kind.word() == word).expect("one of the words"))
}

/// A number is a process ID; anything else is the path of a core file.
pub(super) fn which_target(text: OsString) -> Result<WhichTarget, String> {
    let bytes = text.as_bytes();
    match text.to_str() {
        Some(number) if !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit) => {
            id(number).map(WhichTarget::Process)
        }
        Some("") => Err("neither a PID nor the path of a core file".to_owned()),
        _ => Ok(WhichTarget::Core(text.into())),
    }
}

pub(super) fn id(text: &str) -> Result<i32, String> {
    text.parse().ok().filter(|id| *id > 0).ok_or_else(|| "not a valid PID".to_owned())
}

pub(super) fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is not a number such as 64 or 0x40"))
}

/// A scale that turns profiling on.
pub(super) fn scale(text: &str) -> Result<u32, String> {
    match number(text)? {
        0 | 1 => Err("0 and 1 turn profiling off; use 2 to 0x10000".to_owned()),
        scale => Ok(scale),
    }
}

/// An address: hexadecimal, with or without `0x`.
pub(super) fn address(text: &str) -> Result<RemoteAddr, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let bad = || format!("`{text}` is not an address such as 0x7f12a0b4c5d0");
    u64::from_str_radix(digits, 16).map(RemoteAddr).map_err(|_| bad())
}

/// A duration as users write it: a number and `ns`, `us`, `ms`, `s` or `m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time such as 300ms, 2s or 0.5s");
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
    let (digits, unit) = text.split_at(unit_at);
    let scale = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err(bad()),
    };
    let count: f64 = digits.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(count * scale).map_err(|_| bad())
}

/// A duration over which averages mean something, and which somebody may wait for.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(10)..=Duration::from_secs(86_400);
    let time = duration(text)?;
    if range.contains(&time) { Ok(time) } else { Err(format!("`{text}` is not between 10ms and 1 day (1440m)")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_documented() {
        assert_eq!(duration("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("0.5s"), Ok(Duration::from_millis(500)));
        for bad in ["", "5", "s", "-1s", "1h2", "nans", "infs"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn intervals_are_neither_nothing_nor_for_ever() {
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["0s", "1ms", "2000m", "1", "-1s"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_pids_and_the_rest_are_files() {
        assert_eq!(which_target("4711".into()), Ok(WhichTarget::Process(4711)));
        for path in ["core", "core.4711", "./4711", "-4711", "0x10"] {
            assert_eq!(which_target(path.into()), Ok(WhichTarget::Core(path.into())));
        }
        for bad in ["", "0", "99999999999999999999"] {
            assert!(which_target(bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_are_decimal_or_hexadecimal() {
        assert_eq!(number("0x40"), Ok(0x40));
        assert_eq!(number("64"), Ok(64));
        assert!(number("forty").is_err());
    }
}
