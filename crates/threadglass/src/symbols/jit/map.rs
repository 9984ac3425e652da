//! `/tmp/perf-PID.map`: a line for each function, with its address and size in hexadecimal, and its name.

use super::WantedFunctions;
use crate::limits::Limits;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};

/// Bytes that are read. Programs of millions of lines write some dozens of MB.
const MAX_FILE: u64 = 256 << 20;
/// Bytes of a line: names that are longer are cut.
const MAX_LINE: u64 = 4096;
/// Lines between two looks at the clock.
const STEP: usize = 1 << 12;

pub(super) fn read(mut file: &File, wanted: &mut WantedFunctions, limits: &Limits, name: &str) {
    if file.metadata().is_ok_and(|about| about.len() > MAX_FILE) {
        limits.leave_out(format!("the end of {name}"), "the file is too large");
    }
    if file.rewind().is_ok() {
        decode(BufReader::new(file.take(MAX_FILE)), wanted, limits);
    }
}

fn decode(mut lines: impl BufRead, wanted: &mut WantedFunctions, limits: &Limits) {
    let mut line = Vec::new();
    for number in 0.. {
        line.clear();
        let got = lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        if !got.is_ok_and(|got| got > 0) || (number % STEP == 0 && limits.is_over()) {
            return;
        }
        if let Some((start, size, name)) = function(line.trim_ascii_end()) {
            wanted.put(start, size, name);
        }
    }
}

/// `START SIZE NAME`; the name may have spaces in it.
fn function(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let mut number = || {
        let digits = std::str::from_utf8(parts.next()?).ok()?;
        u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    parts.next().filter(|name| !name.is_empty()).map(|name| (start, size, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &[u8], addrs: &[u64]) -> Vec<Option<(String, u64)>> {
        let mut wanted = WantedFunctions::new(addrs);
        decode(text, &mut wanted, &Limits::default());
        wanted.found.into_iter().map(|it| it.map(|it| (it.name, it.start))).collect()
    }

    #[test]
    fn the_last_function_at_an_address() {
        let text = b"1000 20 old\n0x2000 8 JS:*hot /a b.js:1\nrubbish\n1000 10 new\n3000 0 empty\n4000 8\nffffffffffffff00 fff end\n";
        let some = |name: &str, start| Some((name.to_owned(), start));
        assert_eq!(
            names(text, &[0x2007, 0x1000, 0x1010, 0x1020, 0x2008, 0x3000, 0x4000, u64::MAX]),
            [
                some("JS:*hot /a b.js:1", 0x2000),
                some("new", 0x1000),
                some("old", 0x1000),
                None,
                None,
                None,
                None,
                some("end", u64::MAX - 255)
            ]
        );
    }

    proptest! {
        #[test]
        fn any_bytes(text: Vec<u8>, addrs: Vec<u64>) {
            prop_assert_eq!(names(&text, &addrs).len(), addrs.len());
        }
    }
}
