//! Names as their authors wrote them.
//!
//! A mangled name refers back to its own parts, so a short one may stand for gigabytes; and it may nest as deep as it
//! is long. What is longer or deeper than any real name is left as it is.

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
use std::fmt::{self, Write};

/// Mangled names beyond this are not touched. Templates make long ones, but not so long.
const MAX_MANGLED: usize = 16 << 10;
/// What a name may come to.
const MAX_PLAIN: usize = 64 << 10;
/// How deep the parts of a name may lie in one another.
const MAX_DEPTH: u32 = 96;

/// A text that takes no more than it has room for.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_PLAIN {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// A C++ or Rust name as its author wrote it; any other name unchanged.
pub fn demangle(name: &str) -> String {
    plain(name).unwrap_or_else(|| name.to_owned())
}

fn plain(name: &str) -> Option<String> {
    if name.len() > MAX_MANGLED {
        return None;
    }
    let mut text = Bounded(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return write!(text, "{rust:#}").ok().map(|()| text.0);
    }
    if !name.starts_with("_Z") {
        return None;
    }
    let symbol = Symbol::new_with_options(name, &ParseOptions::default().recursion_limit(MAX_DEPTH)).ok()?;
    symbol.structured_demangle(&mut text, &DemangleOptions::default().recursion_limit(MAX_DEPTH)).ok()?;
    Some(text.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_languages() {
        assert_eq!(demangle("_ZN3foo3barE"), "foo::bar");
        assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangle("worker"), "worker");
        assert_eq!(demangle("_Z"), "_Z");
    }

    /// A function whose parameters are each a template of the one before, twice: each doubles what is written.
    fn doubling(depth: usize) -> String {
        let number = |index: usize| match index {
            0 => "S_".to_owned(),
            _ => {
                let digit = char::from_digit(index as u32 - 1, 36).expect("few enough").to_ascii_uppercase();
                format!("S{digit}_")
            }
        };
        let mut name = "_Z1f1A".to_owned();
        let mut last = 0;
        for _ in 0..depth {
            // The template's name and the whole are remembered, one after the other.
            name += &format!("1BI{0}{0}E", number(last));
            last += 2;
        }
        name
    }

    /// The same in Rust: each argument is a pair of the one before it, which is referred to by its place.
    fn doubling_in_rust(depth: usize) -> String {
        let digit =
            |number: usize| char::from(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[number]);
        let place = |at: usize| match at - 1 {
            small @ 0..62 => format!("B{}_", digit(small)),
            large => format!("B{}{}_", digit(large / 62), digit(large % 62)),
        };
        let mut name = "INvC1a1f".to_owned();
        let mut last = name.len();
        name += "TjjE";
        for _ in 0..depth {
            let next = name.len();
            name += &format!("T{0}{0}E", place(last));
            last = next;
        }
        format!("_R{name}E")
    }

    #[test]
    fn a_short_name_that_stands_for_a_long_text_stays_as_it_is() {
        let short = doubling(3);
        assert!(demangle(&short).starts_with("f(A, B<A, A>, B<"), "{}", demangle(&short));
        let long = doubling(17);
        assert!(long.len() < 250);
        assert_eq!(demangle(&long), long);
        let (short, long) = (doubling_in_rust(2), doubling_in_rust(20));
        let pair = "(usize, usize)";
        assert_eq!(demangle(&short), format!("a::f::<{pair}, ({pair}, {pair}), (({pair}, {pair}), ({pair}, {pair}))>"));
        assert!(long.len() < 250);
        assert_eq!(demangle(&long), long);
        let nested = format!("_Z1f{}i", "P".repeat(100_000));
        assert_eq!(demangle(&nested), nested);
    }
}
