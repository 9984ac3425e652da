//! Arguments as users write them: process IDs, addresses, durations.

use super::{ListenAt, LockWord, TargetWord};
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

/// A word of digits is a process ID. What any other word names is found out when it is looked for.
pub(super) fn target_word(text: OsString) -> Result<TargetWord, String> {
    let bytes = text.as_bytes();
    match text.to_str() {
        Some("") => Err("neither a PID, a name nor a path".to_owned()),
        Some(number) if bytes.iter().all(u8::is_ascii_digit) => id(number).map(TargetWord::Pid),
        _ => Ok(TargetWord::Other(text)),
    }
}

pub fn id(text: &str) -> Result<i32, String> {
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

/// A part of something, above 0 and up to the whole.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number
        .filter(|number| *number >= 0.01 && *number <= 100.0)
        .ok_or_else(|| "not a percentage from 0.01 to 100".to_owned())
}

/// A number of bytes: `4096`, `64K`, `256M`, `1G`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is not a size such as 64M");
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'K')) => (&text[..at], 10),
        Some((at, 'M')) => (&text[..at], 20),
        Some((at, 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number).ok_or_else(bad)?;
    number.checked_mul(1 << shift).filter(|size| *size > 0).ok_or_else(bad)
}

/// An address to listen at. Names are not looked up: who owns a name may change.
pub(super) fn listen_at(text: &str) -> Result<ListenAt, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(ListenAt::Unix(path.into()));
    }
    let text = text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    let address = text.parse().map(ListenAt::Tcp);
    address.map_err(|_| format!("`{text}` is neither IP:PORT, such as 127.0.0.1:9911, nor unix:PATH"))
}

/// An address: hexadecimal, with or without `0x`.
pub(super) fn address(text: &str) -> Result<RemoteAddr, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let bad = || format!("`{text}` is not an address such as 0x7f12a0b4c5d0");
    // A sign is no digit.
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_hex).map(RemoteAddr).ok_or_else(bad)
}

/// A lock: its address, or the name of its variable. No name begins with a digit or a sign.
pub fn lock_word(text: &str) -> Result<LockWord, String> {
    if text.is_empty() {
        return Err("neither an address nor a name".to_owned());
    }
    if text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') {
        return address(text).map(LockWord::Address);
    }
    Ok(LockWord::Name { name: text.to_owned(), address: address(text).ok() })
}

/// The units of durations, in the order in which they are written.
const UNITS: [(&str, f64); 6] = [("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)];

/// A duration as users write it: seconds, or numbers with their units, the largest unit first.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time such as 300ms, 2s, 1.5s or 1m30s");
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let (mut rest, mut units, mut seconds) = (text, &UNITS[..], 0.0);
    loop {
        let (digits, after) = rest.split_at(rest.find(|c| !is_digit(c)).unwrap_or(rest.len()));
        let count: f64 = digits.parse().map_err(|_| bad())?;
        if after.is_empty() && rest.len() == text.len() {
            seconds = count;
            break;
        }
        let (word, next) = after.split_at(after.find(is_digit).unwrap_or(after.len()));
        let place = units.iter().position(|(unit, _)| *unit == word).ok_or_else(bad)?;
        seconds += count * units[place].1;
        (rest, units) = (next, &units[place + 1..]);
        if rest.is_empty() {
            break;
        }
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

/// A duration over which averages mean something, and which somebody may wait for.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(10)..=Duration::from_secs(86_400);
    let time = duration(text)?;
    if range.contains(&time) { Ok(time) } else { Err(format!("`{text}` is not between 10ms and 1 day (24h)")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_documented() {
        for (text, ms) in [
            ("300ms", 300),
            ("2s", 2_000),
            ("0.5s", 500),
            ("1.5s", 1_500),
            ("1", 1_000),
            ("0", 0),
            ("0.25", 250),
            ("1m30s", 90_000),
            ("1h30m", 5_400_000),
            ("1m0.5s", 60_500),
            ("1s500ms", 1_500),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in [
            "",
            "s",
            "-1s",
            "1h2",
            "1m30",
            "nans",
            "infs",
            "nan",
            "inf",
            "1e3s",
            "+1s",
            "1..5s",
            ".",
            "1s1s",
            "30s1m",
            "1 s",
            "s1",
            "1d",
            "1s ",
            "99999999999999999999999s",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn intervals_are_neither_nothing_nor_for_ever() {
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(interval("1"), Ok(Duration::from_secs(1)));
        for bad in ["0s", "0", "1ms", "2000m", "25h", "-1s"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn digits_are_pids() {
        assert_eq!(target_word("4711".into()), Ok(TargetWord::Pid(4711)));
        for word in ["core", "core.4711", "./4711", "-4711", "0x10", "4711 ", "٣"] {
            assert_eq!(target_word(word.into()), Ok(TargetWord::Other(word.into())));
        }
        for bad in ["", "0", "99999999999999999999"] {
            assert!(target_word(bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn locks_are_addresses_or_names() {
        assert_eq!(lock_word("0x10"), Ok(LockWord::Address(RemoteAddr(16))));
        assert_eq!(lock_word("7f10"), Ok(LockWord::Address(RemoteAddr(0x7f10))));
        let name = |name: &str, address| Ok(LockWord::Name { name: name.to_owned(), address });
        assert_eq!(lock_word("log_lock"), name("log_lock", None));
        assert_eq!(lock_word("Session::lock"), name("Session::lock", None));
        assert_eq!(lock_word("face"), name("face", Some(RemoteAddr(0xface))));
        for bad in ["", "0xg", "0x", "1g", "-1", "+1", "0x+1", "0x10000000000000000"] {
            assert!(lock_word(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_are_decimal_or_hexadecimal() {
        assert_eq!(number("0x40"), Ok(0x40));
        assert_eq!(number("64"), Ok(64));
        assert!(number("forty").is_err());
    }
}
