//! Nothing that a target, its files or a name of a file says reaches a terminal as a command, or unseen: in no text, no JSON
//! and no file of ours.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;
use testkit::{Answer, Build, Fixture, Public, Tool, Value, Variant, eventually, have, serde_json, skip, thread};
use unicode_width::UnicodeWidthStr;

/// Controls of seven and eight bits, a delete, marks of direction, no width, a separator and a tag; not all of it is UTF-8.
const EVIL: &[u8] =
    b"e\x1b[2J\x7f\xc2\x9b\xd8\x9c\xe2\x80\xae\xe2\x81\xa9\xe2\x80\x8b\xe2\x80\xa9\xf3\xa0\x80\x81\xff\n";

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Not by the tool's own idea of what is harmless: of what the fixtures here make us print, only these are.
fn assert_harmless(text: &str) {
    for c in text.chars() {
        let harmless = matches!(c, '\n' | ' '..='~' | '\u{fffd}' | '·');
        assert!(harmless, "{c:?} reaches the terminal: {text:?}");
    }
}

/// What a fixture said of its threads: their ids and names.
fn names(fixture: &Fixture) -> Vec<(i64, String)> {
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    let truth = fixture.truth().as_object().unwrap().iter();
    truth
        .map(|(lwp, hex)| (lwp.parse().unwrap(), String::from_utf8_lossy(&bytes(hex.as_str().unwrap())).into_owned()))
        .collect()
}

#[test]
fn names_of_threads() {
    let fixture = Fixture::new("names.c").settled();
    let pid = fixture.pid().to_string();
    for verb in ["threads", "tsd", "doctor", "why", "locks"] {
        for options in [&[][..], &["--json"]] {
            let answer = tool().run(&[&[verb, &pid], options].concat());
            assert_eq!(answer.code, Some(0), "{verb}: {}", answer.stderr);
            assert_harmless(&answer.text());
        }
    }
    for options in [&["--stacks"][..], &["--stacks", "--json"]] {
        let answer = tool().run(&[&["threads", &pid], options].concat());
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        assert_harmless(&answer.text());
    }
    // Programs still get the names as they are.
    let snapshot = tool().threads(fixture.pid(), &[]);
    for (lwp, name) in names(&fixture) {
        assert_eq!(thread(&snapshot, lwp)["name"], *name);
    }
}

#[test]
fn names_in_statistics() {
    let fixture = Fixture::new("names.c").settled();
    let pid = fixture.pid().to_string();
    for options in [&[][..], &["--json"], &["--json", "--count", "2"], &["--count", "2"]] {
        let answer = tool().run(&[&["stats", &pid, "--interval", "50ms"], options].concat());
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        assert_harmless(&answer.text());
        if options.contains(&"2") && options.contains(&"--json") {
            let lines: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            for (lwp, name) in names(&fixture) {
                assert_eq!(thread(&lines[1], lwp)["name"], *name);
            }
        }
    }
}

/// The program's file has a name that would drive a terminal, and so has everything that is named after it.
#[test]
fn names_of_programs_in_profiles() {
    let public = Public::new();
    let program = public.copy(&Build::new("profil_spin.c").variant(Variant::Default).path(), OsStr::from_bytes(EVIL));
    let fixture = Fixture::start(&program, &[]);
    let pid = fixture.pid().to_string();
    let files = ["folded", "svg", "pprof", "text", "json"].map(|name| public.writable().join(name));
    let [folded, svg, pprof, text, json] = files.each_ref().map(|path| path.to_str().unwrap());
    let profile = ["profil", &pid, "--duration", "300ms"];
    let answer = tool().run(&profile);
    if answer.stderr.contains("perf events are not permitted") {
        return skip("names_of_programs_in_profiles", answer.stderr.trim());
    }
    // The program may get no CPU in so short a time, and then there is no name.
    let written = |options: &[&str], paths: &[&str]| {
        eventually("the program should be in its profile", || {
            let answer = tool().run(&[&profile[..], options].concat());
            assert_eq!(answer.code, Some(0), "{}", answer.stderr);
            assert_harmless(&answer.text());
            let texts: Vec<_> = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
            texts.iter().for_each(|text| assert_harmless(text));
            texts.iter().all(|text| text.contains("[2J"))
        });
    };
    written(&["--folded", folded, "--svg", svg, "--pprof", pprof], &[folded, svg]);
    written(&["--json"], &[]);
    written(&["--output", text], &[text]);
    written(&["--json", "--output", json], &[json]);
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(pprof).unwrap()).read_to_end(&mut plain).unwrap();
    assert!(!plain.windows(4).any(|bytes| bytes == b"\x1b[2J"), "pprof prints names as they are");
}

/// A command's profile goes to standard error.
#[test]
fn names_of_commands_in_profiles() {
    let public = Public::new();
    let program = public.copy("/bin/true".as_ref(), OsStr::from_bytes(EVIL));
    for options in [&["profil"][..], &["profil", "--json"]] {
        let mut command = tool().command(options);
        command.arg("--").arg(&program);
        let answer = Answer::of(command);
        if answer.stderr.contains("perf events are not permitted") {
            return skip("names_of_commands_in_profiles", answer.stderr.trim());
        }
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        assert!(answer.stderr.contains("[2J"), "{}", answer.stderr);
        assert_harmless(&answer.stderr);
    }
}

/// What cannot be done is said of the name that was given, in one line.
#[test]
fn names_of_files_in_errors() {
    let public = Public::new();
    let missing = public.writable().join(OsStr::from_bytes(EVIL));
    let empty = public.writable().join(OsStr::from_bytes(&[EVIL, b"empty"].concat()));
    std::fs::write(&empty, "no core").unwrap();
    let dashes = std::ffi::OsString::from_vec([b"--".as_slice(), EVIL].concat());
    for path in [&missing, &empty] {
        let args: [&[&OsStr]; 7] = [
            &["why".as_ref(), path.as_ref()],
            &["stats".as_ref(), path.as_ref()],
            &["set".as_ref(), "--undo".as_ref(), path.as_ref()],
            &["run".as_ref(), "--".as_ref(), path.as_ref()],
            &["profil".as_ref(), "--".as_ref(), path.as_ref()],
            &["why".as_ref(), "1".as_ref(), "--exe".as_ref(), path.as_ref()],
            &["why".as_ref(), path.as_ref(), dashes.as_ref()],
        ];
        for args in args {
            // To a pipe no escape sequence is written; to a terminal they are, as to whoever forces it.
            let mut command = tool().command(args);
            command.env("CLICOLOR_FORCE", "1");
            let answer = Answer::of(command);
            assert_eq!(answer.code, Some(2), "{args:?}: {}", answer.stderr);
            assert_harmless(&answer.stderr);
        }
    }
}

/// What a terminal of so many columns shows, without what only changes colours.
fn on_terminal(columns: usize, args: &[&str]) -> Vec<String> {
    let mut command = Command::new("script");
    let words = format!("stty cols {columns}; exec {} {}", env!("CARGO_BIN_EXE_tglass"), args.join(" "));
    command.args(["--quiet", "--return", "--command", &words, "/dev/null"]).env_remove("NO_COLOR").env("TERM", "xterm");
    let answer = Answer::of(command);
    assert!(matches!(answer.code, Some(0 | 1)), "{args:?}: {}{}", answer.text(), answer.stderr);
    let text = answer.text().replace("\r\n", "\n");
    assert!(text.contains('\x1b'), "a terminal gets colours: {text}");
    let plain = anstream::adapter::strip_str(&text).to_string();
    plain.lines().map(str::to_owned).collect()
}

#[test]
fn lines_keep_to_the_width_of_a_terminal() {
    let test = "lines_keep_to_the_width_of_a_terminal";
    if !have(test, "script") || !have(test, "stty") {
        return;
    }
    let fixture = Fixture::new("names_data.cc").settled();
    let pid = fixture.pid().to_string();
    let commands: [&[&str]; 5] = [
        &["why", &pid, "-d", "0"],
        &["threads", &pid],
        &["threads", &pid, "--stacks"],
        &["locks", &pid],
        &["locks", &pid, "--all"],
    ];
    for args in commands {
        let piped = Answer::of(tool().command(args)).text();
        let longest = piped.lines().map(UnicodeWidthStr::width).max().unwrap_or(0);
        assert!(longest > 60, "{args:?}: {piped}");
        let lines = on_terminal(60, args);
        let too_long = lines.iter().find(|line| line.width() > 60);
        assert_eq!(too_long, None, "{args:?}");
        assert!(lines.iter().any(|line| line.ends_with("..")), "{args:?}: a cut is marked: {lines:#?}");
        // As much as there is, where there is room, and where it is asked for.
        let whole = |text: &str| text.lines().map(|line| line.trim_end().len()).max();
        for (columns, options) in [(500, &[][..]), (60, &["--wide"])] {
            let lines = on_terminal(columns, &[args, options].concat());
            let longest = lines.iter().map(|line| line.width()).max();
            // Times differ from look to look, by a few columns.
            assert!(longest.zip(whole(&piped)).is_some_and(|(a, b)| a.abs_diff(b) < 8), "{args:?}: {lines:#?}");
        }
    }
}

#[test]
fn arguments_of_templates_give_way_first() {
    let test = "arguments_of_templates_give_way_first";
    if !have(test, "script") || !have(test, "stty") {
        return;
    }
    let fixture = Fixture::new("names_data.cc").settled();
    let args = ["threads", &fixture.pid().to_string(), "--stacks"];
    let piped = tool().run(&args).text();
    let whole = piped.lines().find(|line| line.contains("Owner<")).unwrap_or_else(|| panic!("no template: {piped}"));
    let lines = on_terminal(whole.width() - 1, &args);
    let short = lines.iter().find(|line| line.contains("Owner<..>")).unwrap_or_else(|| panic!("{whole}: {lines:#?}"));
    assert!(!short.ends_with(".."), "nothing else is cut: {short}");
}
