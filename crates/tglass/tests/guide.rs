//! The guide: what its pages show is what the commands print.
//!
//! A page names the scene of `tglass demo` that it looks at, and the PID that it shows: `<!-- demo: deadlock 18050 -->`. Each block
//! with `$ tglass ..` is a session: the commands are carried out in order, and every line below one must be in what it
//! prints, but for numbers. `..` stands for what is left out.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testkit::{Answer, Tool, any_of, ensure, have, part};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// A scene that stays until this is dropped.
struct Scene {
    demo: Child,
    pid: String,
}

impl Scene {
    fn start(name: &str) -> Self {
        let mut command = tool().command(&["demo", name, "--stay", "10m"]);
        let mut demo = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the demo");
        let mut lines = BufReader::new(demo.stdout.take().expect("its output")).lines().map_while(Result::ok);
        let pid = lines.find_map(|line| {
            let (_, rest) = line.split_once("It stays for ")?;
            Some(rest.rsplit(' ').next()?.trim_end_matches('.').to_owned())
        });
        let pid = pid.expect("the demo says its PID");
        Self { demo, pid }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.demo.kill();
        let _ = self.demo.wait();
    }
}

/// A command of a page, and what the page says that it prints.
#[derive(Debug)]
struct Shown {
    command: String,
    lines: Vec<String>,
}

/// The sessions of a page.
fn shown(page: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let (mut is_inside, mut is_session) = (false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            (is_inside, is_session) = (!is_inside, false);
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_inside) {
            is_session = true;
            all.push(Shown { command: command.to_owned(), lines: Vec::new() });
        } else if is_session {
            all.last_mut().expect("a command").lines.push(line.to_owned());
        }
    }
    all
}

/// The words of a line that are the same in every run: those with digits are numbers, addresses or times of some kind.
fn words(line: &str) -> Vec<&str> {
    let is_lasting = |word: &&str| {
        !word.contains(|c: char| c.is_ascii_digit()) && !["..", "ns", "us", "ms", "s", "%", "kB", "-"].contains(word)
    };
    line.split_whitespace().filter(is_lasting).collect()
}

/// Whether the words of a page are in a line that was printed, in that order. The pages show what is released, which has no debug
/// information; with that, the part of a variable is named, too.
fn is_in(shown: &[&str], printed: &str) -> bool {
    let mut printed = printed.split_whitespace();
    let is_same = |shown: &str, other: &str| {
        let (shown, other) = (shown.trim_end_matches([',', ':']), other.trim_end_matches([',', ':']));
        other.strip_prefix(shown).is_some_and(|rest| rest.is_empty() || shown.contains("::") && rest.starts_with('.'))
    };
    shown.iter().all(|word| printed.any(|other| is_same(word, other)))
}

fn check(page: &str, scene: &str, pid: &str, core: Option<&str>) {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page)).expect(page);
    assert!(text.contains(&format!("<!-- demo: {scene} {pid} -->")), "{page} is about another scene");
    let sessions = shown(&text);
    assert!(sessions.len() > 1, "{page}: {sessions:?}");
    let dir = tempfile::tempdir().expect("a directory");
    let scene = Scene::start(scene);
    if let Some(core) = core {
        if !have(part(page), "gcore") {
            return;
        }
        let mut gcore = Command::new("gcore");
        gcore.arg("-o").arg(dir.path().join("core")).arg(&scene.pid);
        let answer = Answer::of_long(gcore);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        let written = dir.path().join(format!("core.{}", scene.pid));
        std::fs::rename(written, dir.path().join(core)).expect("the core");
    }
    for Shown { command, lines } in sessions {
        let arguments = command.strip_prefix("tglass ").unwrap_or_else(|| panic!("{page}: {command}"));
        let arguments: Vec<&str> =
            arguments.split_whitespace().map(|word| if word == pid { scene.pid.as_str() } else { word }).collect();
        // On a busy machine a look may come between two waits.
        any_of(5, || {
            let mut tglass = tool().command(&arguments);
            tglass.current_dir(dir.path());
            let answer = Answer::of(tglass);
            ensure(matches!(answer.code, Some(0 | 1)), || format!("{page}: {command}: {}", answer.stderr))?;
            let printed = answer.text();
            for line in &lines {
                let shown = words(line.strip_suffix("..").unwrap_or(line));
                let is_there = shown.is_empty() || printed.lines().any(|printed| is_in(&shown, printed));
                ensure(is_there, || format!("{page}: {command} does not print `{line}`, but:\n{printed}"))?;
            }
            Ok(())
        });
    }
}

#[test]
fn a_hung_service() {
    check("hung-service.md", "deadlock", "18050", None);
}

#[test]
fn slow_through_locks() {
    check("slow-locks.md", "contention", "24062", None);
}

#[test]
fn a_core_file() {
    check("cores.md", "deadlock", "6275", Some("core.6275"));
}

/// Every page is in the guide, and every page that the guide names is there.
#[test]
fn the_guide_has_all_pages() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let guide = std::fs::read_to_string(docs.join("README.md")).expect("the guide");
    let entries = std::fs::read_dir(&docs).expect("the pages").flatten();
    let pages = entries.filter_map(|entry| entry.file_name().into_string().ok());
    for page in pages.filter(|page| page.ends_with(".md") && page != "README.md") {
        assert!(guide.contains(&format!("]({page})")), "the guide does not lead to {page}");
    }
    let named = guide.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    named.for_each(|page| assert!(docs.join(page).exists(), "{page} is not there"));
}

/// The commands that help names are there, and so are their options: `tglass VERB .. --option`.
#[test]
fn commands_of_the_pages_exist() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut known = std::collections::BTreeMap::new();
    for page in ["hung-service.md", "slow-locks.md", "cores.md", "containers.md", "install.md"] {
        let text = std::fs::read_to_string(docs.join(page)).expect(page);
        for call in text.split("tglass ").skip(1).filter_map(|rest| rest.split(['\n', '`', '|']).next()) {
            let mut call = call.split_whitespace();
            let Some(verb) = call.next().filter(|verb| verb.chars().all(|c| c.is_ascii_lowercase())) else { continue };
            let help = known.entry(verb.to_owned()).or_insert_with(|| tool().run(&[verb, "--help"]));
            // Other words may follow the name of the tool in a sentence.
            if help.code != Some(0) {
                continue;
            }
            let own =
                call.take_while(|word| *word != "--" && !word.contains("$(")).filter(|word| word.starts_with("--"));
            own.for_each(|option| {
                let option = option.trim_end_matches([',', ';', ')', '.']);
                assert!(help.text().contains(option), "{page}: tglass {verb} has no {option}");
            });
        }
    }
    assert!(known.values().filter(|help| help.code == Some(0)).count() > 8, "{:?}", known.keys());
}
