//! JSON for programs, which people look at too: strings hold nothing that a terminal obeys, and mean the same.

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use std::io::{Result, Write};
use threadglass::model::terminal::may_print;

/// Writes a document as people read it.
pub fn pretty(out: impl Write, value: &impl Serialize) -> Result<()> {
    Ok(value.serialize(&mut Serializer::with_formatter(out, Escaping(PrettyFormatter::new())))?)
}

/// Writes a document in one line, without its end.
pub fn compact(out: impl Write, value: &impl Serialize) -> Result<()> {
    Ok(value.serialize(&mut Serializer::with_formatter(out, Escaping(CompactFormatter)))?)
}

/// A layout of JSON in which characters that may not be printed are written as `\uXXXX`.
struct Escaping<F>(F);

impl<F: Formatter> Formatter for Escaping<F> {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| !may_print(*c)) {
            out.write_all(&rest.as_bytes()[..at])?;
            // Above the first 65,536 characters one takes two units.
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn text(write: impl Fn(&mut Vec<u8>, &Value) -> Result<()>, value: &Value) -> String {
        let mut out = Vec::new();
        write(&mut out, value).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        let value = json!({"a\u{9b}": "\x1b\x7f\u{202e}b\u{e0001}\n\"名\u{e007f}"});
        let line = text(|out, value| compact(out, value), &value);
        assert_eq!(line, "{\"a\\u009b\":\"\\u001b\\u007f\\u202eb\\udb40\\udc01\\n\\\"名\\udb40\\udc7f\"}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }

    #[test]
    fn every_character_comes_back() {
        for c in
            (0..=char::MAX as u32).filter_map(char::from_u32).step_by(7).chain("\x7f\u{85}\u{feff}\u{e0fff}".chars())
        {
            let value = json!(format!("<{c}>"));
            let line = text(|out, value| compact(out, value), &value);
            assert!(line.chars().all(may_print), "{line:?}");
            assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
        }
    }

    #[test]
    fn the_layout_is_the_usual_one() {
        let value = json!({"a": [1, {"b": []}, "c"], "d": {}, "e": null});
        assert_eq!(text(|out, value| pretty(out, value), &value), serde_json::to_string_pretty(&value).unwrap());
        assert_eq!(text(|out, value| compact(out, value), &value), serde_json::to_string(&value).unwrap());
    }
}
