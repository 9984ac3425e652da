//! Lines that keep to the width of a terminal.
//!
//! What is shown in columns or as a list of frames is cut, and the cut is marked; sentences go on in the next line. Colours
//! take no room, and some characters take that of two.

use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Stands for what is left out.
const LEFT_OUT: &str = "..";
/// How far a sentence's next line is set in, beyond its first.
const HANG: usize = 4;
/// Fewer columns than these nobody reads.
const LEAST: usize = 20;

/// A part of a line.
enum Piece<'t> {
    /// Changes the style.
    Escape(&'t str),
    Char(char),
}

/// The parts of a line of ours: the only escape sequences in it are those of styles.
fn pieces(line: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let c = rest.chars().next()?;
        let (piece, end) = match rest.find('m').filter(|_| c == '\x1b') {
            Some(end) => (Piece::Escape(&rest[..=end]), end + 1),
            None => (Piece::Char(c), c.len_utf8()),
        };
        rest = &rest[end..];
        Some(piece)
    })
}

/// Columns that a line takes.
pub fn columns(line: &str) -> usize {
    // Nearly all of it is ASCII without colours.
    match (line.is_ascii(), line.contains('\x1b')) {
        (true, false) => line.len(),
        (false, false) => line.width(),
        (_, true) => {
            pieces(line).map(|piece| if let Piece::Char(c) = piece { c.width().unwrap_or(0) } else { 0 }).sum()
        }
    }
}

/// `line` in at most `width` columns: arguments of templates are left out first, then its end.
pub fn cut(line: &str, width: usize) -> String {
    if columns(line) <= width {
        return line.to_owned();
    }
    let short = without_template_arguments(line);
    if columns(&short) <= width {
        return short.into_owned();
    }
    let room = width.saturating_sub(LEFT_OUT.len());
    let (mut out, mut used, mut is_cut) = (String::new(), 0, false);
    for piece in pieces(&short) {
        match piece {
            // Also behind the cut: a style that was begun is ended.
            Piece::Escape(escape) => out += escape,
            Piece::Char(c) if !is_cut => {
                used += c.width().unwrap_or(0);
                if used > room {
                    is_cut = true;
                    out += LEFT_OUT;
                } else {
                    out.push(c);
                }
            }
            Piece::Char(_) => {}
        }
    }
    out
}

/// The same where there is a width.
pub fn cut_to(line: String, width: Option<usize>) -> String {
    match width {
        Some(width) => cut(&line, width.max(LEAST)),
        None => line,
    }
}

/// All lines of `text`, those that are too long broken between words.
pub fn wrapped(text: String, width: Option<usize>) -> String {
    let Some(width) = width.map(|width| width.max(LEAST)) else { return text };
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if columns(line) <= width {
            out += line;
        } else {
            wrap(&mut out, &without_template_arguments(line), width);
        }
        out.push('\n');
    }
    out
}

fn wrap(out: &mut String, line: &str, width: usize) {
    let blank = |text: &str| text.len() - text.trim_start_matches(' ').len();
    let indent = (blank(line) + HANG).min(width / 2);
    let (mut rest, mut used) = (line, 0);
    while !rest.is_empty() {
        let (blanks, after) = rest.split_at(blank(rest));
        let (word, next) = after.split_at(after.find(' ').unwrap_or(after.len()));
        let takes = columns(word);
        if used > 0 && used + blanks.len() + takes > width {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            used = indent;
        } else {
            *out += blanks;
            used += blanks.len();
        }
        let word = cut(word, width.saturating_sub(used));
        used += columns(&word);
        *out += &word;
        rest = next;
    }
}

/// `std::vector<..>::push` for `std::vector<int, std::allocator<int>>::push`.
pub fn without_template_arguments(text: &str) -> Cow<'_, str> {
    if !text.contains('<') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, list) = rest.split_at(at);
        out += before;
        match end_of_list(list).filter(|end| is_list(&out) && *end > "<..>".len() && !list[..*end].contains('\x1b')) {
            Some(end) => {
                out += "<..>";
                rest = &list[end..];
            }
            None => {
                out.push('<');
                rest = &list[1..];
            }
        }
    }
    Cow::Owned(out + rest)
}

/// Whether a `<` behind `before` begins arguments: it follows a name, or `::` as in Rust, and is no operator.
fn is_list(before: &str) -> bool {
    let name = before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
    match &before[name.len()..] {
        "" => before.ends_with("::"),
        word => word != "operator",
    }
}

/// Where the list that `text` begins with ends, behind its `>`. The one of an arrow is none.
fn end_of_list(text: &str) -> Option<usize> {
    let (mut depth, mut last) = (0_usize, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if last != '-' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
        last = c;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{BAD, BOLD, paint};

    #[test]
    fn arguments_of_templates_are_left_out() {
        for (name, short) in [
            ("std::vector<int, std::allocator<int>>::push(int)", "std::vector<..>::push(int)"),
            ("f<a>(b<c>)", "f<a>(b<c>)"),
            ("map<key, value>::at<0ul, 1ul>", "map<..>::at<..>"),
            (
                "core::ops::function::FnOnce::call_once<demo::start::{closure}, ()>",
                "core::ops::function::FnOnce::call_once<..>",
            ),
            ("Vec::<alloc::string::String>::len", "Vec::<..>::len"),
            ("<alloc::vec::Vec<demo::Job> as Drop>::drop", "<alloc::vec::Vec<..> as Drop>::drop"),
            ("operator<(left const&, right const&)", "operator<(left const&, right const&)"),
            ("operator<< <std::char_traits<char> >(x)", "operator<< <std::char_traits<..> >(x)"),
            ("call<int (*)(int)->long>(x)", "call<..>(x)"),
            ("broken<int", "broken<int"),
            ("broken>int<", "broken>int<"),
            ("<signal handler called>", "<signal handler called>"),
            ("no arguments", "no arguments"),
        ] {
            assert_eq!(without_template_arguments(name), short);
        }
    }

    #[test]
    fn a_cut_is_marked_and_keeps_to_the_width() {
        assert_eq!(cut("12345", 5), "12345");
        assert_eq!(cut("123456", 5), "123..");
        assert_eq!(cut("f<abcdefgh>()", 8), "f<..>()");
        assert_eq!(cut("名前名前", 7), "名前..");
        assert_eq!(cut("名前名前", 8), "名前名前");
        assert_eq!(cut("", 0), "");
    }

    #[test]
    fn colours_take_no_room_and_are_ended() {
        let line = format!("{} {}", paint(BOLD, "名前"), paint(BAD, "abcdef"));
        assert_eq!(columns(&line), 11);
        assert_eq!(cut(&line, 11), line);
        let short = cut(&line, 9);
        assert_eq!(columns(&short), 9);
        assert_eq!(anstream::adapter::strip_str(&short).to_string(), "名前 ab..");
        let end = BAD.render_reset().to_string();
        assert!(short.ends_with(&end), "{short:?}");
    }

    #[test]
    fn sentences_go_on_in_the_next_line() {
        let text = "not seen: the stack of 4711: it runs\n  in columns   x\n".to_owned();
        let whole = wrapped(text.clone(), None);
        assert_eq!(whole, text);
        assert_eq!(wrapped(text, Some(20)), "not seen: the stack\n    of 4711: it runs\n  in columns   x\n");
        let word = wrapped("a ".to_owned() + &"b".repeat(30), Some(20));
        assert_eq!(word, format!("a\n    {}..\n", "b".repeat(14)));
        assert!(wrapped("x".repeat(500) + " y " + &"名".repeat(90), Some(7)).lines().all(|line| columns(line) <= 20));
    }
}
