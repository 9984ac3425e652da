//! `tglass report`: one HTML file that shows a snapshot and needs nothing else.
//!
//! The page has the verdict as text, and the snapshot as packed data that its script shows. Names of the target are hostile: in the
//! text they are escaped, the data is base64, the script puts them into the page as text only, and the page's policy forbids all
//! that is not in the file.

use super::why::{heading, headword};
use super::{json, safe, threads};
use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;
use threadglass::model::{Certainty, ContentionReport, Profile, Snapshot, VerdictKind};

const PAGE: &str = include_str!("page.html");
const CSS: &str = include_str!("page.css");
/// Its script, a file for each subject.
const JS: [&str; 5] = [
    include_str!("make.js"),
    include_str!("graph.js"),
    include_str!("table.js"),
    include_str!("flames.js"),
    include_str!("page.js"),
];

/// What was measured besides.
#[derive(Default)]
pub struct Measured {
    pub contention: Option<ContentionReport>,
    pub profile: Option<Profile>,
}

/// The whole file. The look took `took`.
pub fn page(snapshot: &Snapshot, measured: &Measured, took: Duration) -> Result<String> {
    let verdict = snapshot.verdict.as_ref().context("the look gave no verdict")?;
    let headline = threads::headline(snapshot, snapshot.threads.len(), took);
    let headline = anstream::adapter::strip_str(&headline).to_string();
    let (name, how) = headline.trim_end().split_once('\n').unwrap_or((headline.trim_end(), ""));
    // Of a hang, what the worst finding is called.
    let word = match snapshot.findings.first() {
        Some(finding)
            if matches!(verdict.kind, VerdictKind::Deadlock | VerdictKind::NobodyLeft) && finding.kind.is_hang() =>
        {
            heading(finding.kind)
        }
        _ => headword(verdict.kind).0,
    };
    let certainty = match verdict.certainty {
        Certainty::Certain => String::new(),
        certainty => format!(" ({})", certainty.word()),
    };
    let way_out = verdict.way_out.as_ref().map(|way| format!("; way out: {way}")).unwrap_or_default();
    let nonce = nonce();
    filled(|token| {
        Some(match token {
            "NONCE" => nonce.clone(),
            "VERSION" => env!("CARGO_PKG_VERSION").to_owned(),
            "TITLE" => escaped(&format!("{word}: {name}")),
            "NAME" => escaped(name),
            "HOW" => escaped(how),
            "CLASS" => class(verdict.kind).to_owned(),
            "VERDICT" => format!("<b>{word}</b>{}", escaped(&safe(&format!("{certainty} {}{way_out}", verdict.text)))),
            "CSS" => CSS.to_owned(),
            "JS" => JS.concat(),
            "HEADINGS" => snapshot.findings.iter().map(|finding| heading(finding.kind)).collect::<Vec<_>>().join("\n"),
            "DATA" => packed(snapshot).ok()?,
            "CONTENTION" => measured.contention.as_ref().map_or_else(|| Ok(String::new()), packed).ok()?,
            "PROFILE" => measured.profile.as_ref().map_or_else(|| Ok(String::new()), packed).ok()?,
            _ => return None,
        })
    })
}

/// The page with each `@TOKEN@` replaced. What replaces one is not looked through for others.
fn filled(value: impl Fn(&str) -> Option<String>) -> Result<String> {
    let mut out = String::new();
    for (index, part) in PAGE.split('@').enumerate() {
        match index % 2 {
            0 => out += part,
            _ => out += &value(part).with_context(|| format!("nothing for {part} of the page"))?,
        }
    }
    Ok(out)
}

/// How bad it is.
fn class(kind: VerdictKind) -> &'static str {
    match kind {
        VerdictKind::Deadlock | VerdictKind::NobodyLeft => "bad",
        VerdictKind::Idle | VerdictKind::Busy => "good",
        _ => "fair",
    }
}

/// A value as JSON, compressed, in letters.
fn packed(value: &impl Serialize) -> Result<String> {
    let mut pack = GzEncoder::new(Vec::new(), Compression::default());
    json::compact(&mut pack, value)?;
    Ok(BASE64_STANDARD.encode(pack.finish()?))
}

/// A number that nobody can have put into a name before the page was made.
fn nonce() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

/// Text in a page.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_nothing_that_has_no_value() {
        let mut asked = Vec::new();
        let page = filled(|token| {
            assert!(token.chars().all(|letter| letter.is_ascii_uppercase()), "{token}");
            Some(format!("@{token}@"))
        });
        asked.extend(PAGE.split('@').skip(1).step_by(2));
        assert_eq!(page.unwrap(), PAGE, "what replaces a token is not looked through");
        assert_eq!(asked.iter().filter(|token| **token == "NONCE").count(), 4);
    }

    #[test]
    fn markup_in_names_is_text() {
        assert_eq!(escaped("<script>'\"&"), "&lt;script&gt;&#39;&quot;&amp;");
    }
}
