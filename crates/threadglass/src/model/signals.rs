//! Sets of signals, as the kernel counts them.

use std::fmt;

/// A set of signals: bit `n - 1` stands for signal `n`, as in `/proc/PID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(schemars::JsonSchema))]
pub struct SignalSet(#[cfg_attr(feature = "serde", schemars(with = "Vec<String>"))] pub u64);

/// The first 31, without `SIG`.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// glibc keeps 32 and 33 for itself, so its SIGRTMIN is 34.
const RTMIN: u32 = 34;

/// Name of a signal number (1 to 64).
pub fn signal_name(number: u32) -> String {
    match number {
        1..=31 => format!("SIG{}", NAMES[number as usize - 1]),
        RTMIN => "SIGRTMIN".to_owned(),
        35..=64 => format!("SIGRTMIN+{}", number - RTMIN),
        _ => format!("SIG{number}"),
    }
}

/// Number of a signal given by name (`SIGUSR1`, `USR1`, `SIGRTMIN+2`, `SIG33`) or number.
pub fn signal_number(text: &str) -> Option<u32> {
    let upper = text.trim().to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = if let Ok(number) = bare.parse::<u32>() {
        number
    } else if let Some(rest) = bare.strip_prefix("RTMIN") {
        match rest {
            "" => RTMIN,
            plus => RTMIN + plus.strip_prefix('+')?.parse::<u32>().ok().filter(|n| *n <= 30)?,
        }
    } else {
        NAMES.iter().position(|name| *name == bare)? as u32 + 1
    };
    (1..=64).contains(&number).then_some(number)
}

impl SignalSet {
    /// The signals in the set, lowest first.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (1..=64).filter(move |n| self.0 >> (n - 1) & 1 == 1)
    }

    /// Whether no signal is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<u32> for SignalSet {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().filter(|n| (1..=64).contains(n)).fold(0, |set, n| set | 1 << (n - 1)))
    }
}

impl fmt::Display for SignalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(signal_name).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for SignalSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(signal_name))
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for SignalSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = |name: &String| signal_number(name).ok_or_else(|| serde::de::Error::custom("no such signal"));
        Vec::<String>::deserialize(deserializer)?.iter().map(number).collect()
    }
}

/// A set as a user writes it: `SIGUSR1,SIGUSR2`, `10,12`, a hexadecimal mask (`0xa00`), or `none`
/// (also the empty string) for the empty set.
impl std::str::FromStr for SignalSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.eq_ignore_ascii_case("none") {
            return Ok(Self(0));
        }
        if let Some(hex) = text.strip_prefix("0x") {
            return u64::from_str_radix(hex, 16).map(Self).map_err(|_| format!("`{text}` is not a 64-bit mask"));
        }
        text.split(',').map(|name| signal_number(name).ok_or_else(|| format!("no signal is called `{name}`"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_in_the_ways_users_write_them() {
        let both = SignalSet(0xa00);
        for text in ["SIGUSR1,SIGUSR2", "usr1,usr2", "10,12", "0xa00"] {
            assert_eq!(text.parse(), Ok(both), "{text}");
        }
        assert_eq!("none".parse(), Ok(SignalSet(0)));
        assert!("SIGNOPE".parse::<SignalSet>().is_err());
        assert!("0xzz".parse::<SignalSet>().is_err());
        assert_eq!(both.to_string(), "SIGUSR1,SIGUSR2");
    }
}
