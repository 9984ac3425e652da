//! Text that somebody else made, on its way to a terminal.
//!
//! Names of threads, files and functions are chosen by whoever wrote the target. A terminal obeys some characters, and shows
//! nothing at all for others, so that two names look like one. Every face asks here which ones those are: text and JSON of
//! `tglass`, and what the C library tells its client.

/// Whether `c` may be written to a terminal as it is.
///
/// Not so are controls (C0, DEL, C1), separators of lines, marks that change the direction of what follows, and all that
/// Unicode wants to be shown as nothing: without a width, fillers, tags, selectors of variations.
pub fn may_print(c: char) -> bool {
    // Nearly all text.
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    !matches!(
        c,
        '\u{80}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// `text` with all that may not be printed written out: `\n`, `\u{1b}`, `\u{202e}`.
pub fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match may_print(c) {
            true => out.push(c),
            false => out.extend(c.escape_default()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        assert_eq!(safe("a\x1b[31mb\n\u{202e}c\u{9b}\x7f"), "a\\u{1b}[31mb\\n\\u{202e}c\\u{9b}\\u{7f}");
        assert_eq!(safe("naïve 名前 \u{fffd}"), "naïve 名前 \u{fffd}");
    }

    #[test]
    fn a_name_cannot_hide_what_it_says() {
        for c in
            "\u{61c}\u{200b}\u{200d}\u{2028}\u{2060}\u{2064}\u{2069}\u{fe0f}\u{feff}\u{fff9}\u{e0001}\u{e007f}".chars()
        {
            assert_eq!(safe(&format!("a{c}b")), format!("a\\u{{{:x}}}b", c as u32));
        }
    }

    #[test]
    fn every_control_is_one() {
        for c in (0..=char::MAX as u32).filter_map(char::from_u32).filter(|c| c.is_control()) {
            assert!(!may_print(c), "{c:?}");
        }
    }
}
