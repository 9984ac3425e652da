//! Comparing what `why` finds with what a fixture made happen.

use crate::Value;
use std::collections::BTreeSet;

/// Kinds that mean that threads hang for ever.
pub const HANGS: [&str; 5] = ["deadlock", "self_deadlock", "recursive_read", "owner_exited", "owner_is_fork_parent"];

/// Whether a finding is of a kind that means that threads hang for ever.
pub fn is_hang(finding: &Value) -> bool {
    HANGS.iter().any(|kind| finding["kind"] == *kind)
}

fn array<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map_or(&[], Vec::as_slice)
}

fn set(of: &Value, names: &[&str]) -> BTreeSet<String> {
    names.iter().flat_map(|name| array(of, name)).map(Value::to_string).collect()
}

/// A circle, from its smallest member on: who waits for what.
fn circle(finding: &Value) -> Vec<(String, String)> {
    let threads = array(finding, "threads").iter().map(Value::to_string);
    let mut pairs: Vec<_> = threads.zip(array(finding, "objects").iter().map(Value::to_string)).collect();
    let first = pairs.iter().enumerate().min_by_key(|(_, pair)| (*pair).clone()).map_or(0, |(index, _)| index);
    pairs.rotate_left(first);
    pairs
}

/// Whether the text has a word that begins or ends (after `_`) like this one.
fn says(text: &str, word: &str) -> bool {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.into_iter().any(|said| said.starts_with(word) || said.ends_with(&format!("_{word}")))
}

/// What is wrong with a finding of the right kind; `None` when it is the one.
fn mismatch(truth: &Value, finding: &Value) -> Option<String> {
    match truth["kind"].as_str() {
        Some("deadlock") => {
            let lengths = (array(finding, "threads").len(), array(finding, "objects").len());
            if lengths.0 != lengths.1 || circle(truth) != circle(finding) {
                return Some("the circle differs".to_owned());
            }
            if set(truth, &["behind"]) != set(finding, &["behind"]) {
                return Some("those behind it differ".to_owned());
            }
        }
        Some("long_chain") => {
            for field in ["threads", "objects"] {
                if truth[field] != finding[field] {
                    return Some(format!("{field} differ"));
                }
            }
        }
        _ => {
            let told = set(truth, &["threads", "behind"]);
            let seen = set(finding, &["threads", "behind"]);
            let mut allowed = set(truth, &["may"]);
            allowed.extend(told.clone());
            if !told.is_subset(&seen) || !seen.is_subset(&allowed) {
                return Some("threads differ".to_owned());
            }
            if !set(truth, &["objects"]).is_subset(&set(finding, &["objects"])) {
                return Some("objects differ".to_owned());
            }
        }
    }
    if !array(truth, "certainty").contains(&finding["certainty"]) {
        return Some(format!("it may be {}", truth["certainty"]));
    }
    let text = finding["text"].as_str().unwrap_or_default();
    let unsaid = array(truth, "words").iter().find(|word| !says(text, word.as_str().unwrap_or_default()));
    unsaid.map(|word| format!("the text should say {word}"))
}

/// What differs between the findings a fixture expects and those of a snapshot; empty when they agree.
pub fn finding_faults(truth: &Value, snapshot: &Value) -> Vec<String> {
    let mut left: Vec<&Value> = array(snapshot, "findings").iter().collect();
    let mut faults = Vec::new();
    for truth in array(truth, "findings") {
        if let Some(index) =
            left.iter().position(|finding| finding["kind"] == truth["kind"] && mismatch(truth, finding).is_none())
        {
            left.remove(index);
            continue;
        }
        let near = left.iter().find(|finding| finding["kind"] == truth["kind"]);
        match near {
            Some(near) => {
                let why = mismatch(truth, near).unwrap_or_default();
                faults.push(format!("{why}: {truth}\nseen as {near}"));
            }
            None if truth["needed"] == true => faults.push(format!("not found: {truth}\namong {left:?}")),
            None => {}
        }
    }
    // Nothing else may be called a hang, but as a mere possibility.
    for finding in left.iter().filter(|finding| is_hang(finding) && finding["certainty"] != "possible") {
        faults.push(format!("not so: {finding}"));
    }
    faults
}
