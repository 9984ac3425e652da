//! `/proc/PID/limits`: the stack limit.

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
    let line = bytes.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"Max stack size"))?;
    match words(line).next()? {
        b"unlimited" => Some(StackLimit::Unlimited),
        number => decimal(number).map(StackLimit::Bytes),
    }
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
    }
}
