//! A name that fits several things: nothing is chosen, all of them are listed.

use std::fmt;

/// How many are listed.
const LISTED: usize = 10;

/// What fits, with what to do about it.
#[derive(Debug)]
pub struct Several {
    /// What is the matter, in one line.
    what: String,
    /// What fits, each in one line.
    candidates: Vec<String>,
}

impl Several {
    /// Of `candidates`, of which `what` is said.
    pub fn new(what: String, candidates: Vec<String>) -> Self {
        Self { what, candidates }
    }

    /// The lines below the first one.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.candidates.iter().take(LISTED).cloned().collect();
        if let Some(more @ 1..) = self.candidates.len().checked_sub(LISTED) {
            lines.push(format!(".. and {more} more"));
        }
        lines
    }
}

impl fmt::Display for Several {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.what)
    }
}

impl std::error::Error for Several {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_are_listed_and_the_rest_counted() {
        let lines = |count: usize| Several::new(String::new(), vec!["x".to_owned(); count]).lines();
        assert_eq!(lines(10), vec!["x"; 10]);
        assert_eq!(lines(13).len(), 11);
        assert_eq!(lines(13).last().map(String::as_str), Some(".. and 3 more"));
    }
}
