//! The library has no command line: what it says names no flag and no command of a tool. A face does that, by remedies.

use std::path::{Path, PathBuf};

/// What may be said: a thread's name, which is no advice, how container engines are asked for a capability, and how tools of
/// others are called.
const ALLOWED: [&str; 4] =
    ["tglass-suspend", "--cap-add=SYS_PTRACE", "spy dump --pid PID", "jhsdb jstack --exe EXE --core CORE"];

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let all = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    all.filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

/// The string literals of a source, without those in comments and in the tests at its end.
fn literals(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '/', '\'', 'r']) {
        rest = &rest[at..];
        let skip = match rest.as_bytes() {
            [b'/', b'/', ..] => rest.find('\n').unwrap_or(rest.len()),
            [b'\'', b'\\', ..] => 2 + rest[2..].find('\'').unwrap() + 1,
            [b'\'', b'"', b'\'', ..] => 3,
            [b'r', b'"' | b'#', ..] if raw_end(rest).is_some() => {
                let (from, to, end) = raw_end(rest).unwrap();
                found.push(rest[from..to].to_owned());
                end
            }
            [b'"', ..] => {
                let mut escaped = false;
                let ends = |c: char| {
                    let was = escaped;
                    escaped = c == '\\' && !was;
                    c == '"' && !was
                };
                let end = 1 + rest[1..].find(ends).unwrap();
                found.push(rest[1..end].to_owned());
                end + 1
            }
            _ => 1,
        };
        rest = &rest[skip..];
    }
    found
}

/// Where the text of a raw string begins and ends, and where the literal does.
fn raw_end(rest: &str) -> Option<(usize, usize, usize)> {
    let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
    let from = 1 + hashes + 1;
    if rest.as_bytes().get(from - 1) != Some(&b'"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let to = from + rest[from..].find(&end)?;
    Some((from, to, to + end.len()))
}

fn names_a_tool(literal: &str) -> bool {
    let text = ALLOWED.iter().fold(literal.to_owned(), |text, allowed| text.replace(allowed, ""));
    let is_flag = |at: usize| text[at + 2..].starts_with(|c: char| c.is_ascii_lowercase());
    text.contains("tglass") || text.match_indices("--").any(|(at, _)| is_flag(at))
}

#[test]
fn no_text_names_a_flag_or_a_command() {
    let all = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let mut seen = 0;
    let mut bad = Vec::new();
    for path in all.iter().filter(|path| !path.to_string_lossy().ends_with("_tests.rs")) {
        let literals = literals(&std::fs::read_to_string(path).unwrap());
        seen += literals.len();
        bad.extend(literals.into_iter().filter(|text| names_a_tool(text)).map(|text| format!("{path:?}: {text}")));
    }
    assert!(seen > 1000, "only {seen} literals were found");
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn literals_are_told_from_comments_and_tests() {
    let source = "// \"--no\"\nlet c = '\"'; f(\"a\\\"--b\", '\\'', r#\"c\"--d\"#); for r in x {}\n#[cfg(test)]\nmod tests { \"--e\" }";
    assert_eq!(literals(source), ["a\\\"--b", "c\"--d"]);
    assert!(names_a_tool("see `tglass why`") && names_a_tool("(--force)") && !names_a_tool("a -- b, threadglass"));
}
