//! `/proc/PID/limits`: two of them.

use super::{decimal, words};

/// The soft limit of the main thread's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackLimit {
    /// Bytes.
    Bytes(u64),
    /// No limit.
    Unlimited,
    /// Not recorded: what was mapped has to do.
    AsMapped,
}

/// Finds the soft limit in a `limits` file.
pub fn parse_stack_limit(bytes: &[u8]) -> Option<StackLimit> {
    match soft(bytes, b"Max stack size")? {
        b"unlimited" => Some(StackLimit::Unlimited),
        number => decimal(number).map(StackLimit::Bytes),
    }
}

/// How long the files that it writes may become; `None` if as long as they like.
pub(crate) fn parse_file_limit(bytes: &[u8]) -> Option<u64> {
    decimal(soft(bytes, b"Max file size")?)
}

fn soft<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let line = bytes.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(name))?;
    words(line).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_and_unlimited() {
        let file = b"Limit   Soft Limit  Hard Limit  Units\nMax stack size            8388608   unlimited  bytes\n";
        assert_eq!(parse_stack_limit(file), Some(StackLimit::Bytes(8 << 20)));
        assert_eq!(parse_stack_limit(b"Max stack size unlimited unlimited bytes"), Some(StackLimit::Unlimited));
        assert_eq!(parse_stack_limit(b"Max cpu time 1 1"), None);
        assert_eq!(
            parse_file_limit(b"Max file size             4096                 unlimited            bytes"),
            Some(4096)
        );
        assert_eq!(
            parse_file_limit(b"Max file size             unlimited            unlimited            bytes"),
            None
        );
    }
}
