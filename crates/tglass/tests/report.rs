//! The file that `tglass report` writes: what is in it, and what a browser makes of it.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::{Build, Dumpable, Fixture, Go, Tool, Variant, have, part};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Writes a report of `target`; the file's text.
fn report(target: &str, file: &Path) -> String {
    let answer = tool().run(&["report", target, "-o", file.to_str().unwrap()]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    assert_eq!(answer.text(), "", "the file is the answer");
    std::fs::read_to_string(file).unwrap()
}

/// The snapshot that a report carries.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("data");
    let (packed, _) = rest.split_once("</script>").expect("its end");
    let letter = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("{other} in base64"),
    };
    let mut bytes = Vec::new();
    for four in packed.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = four.iter().fold(0_u32, |bits, byte| bits << 6 | u32::from(letter(*byte))) << (6 * (4 - four.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("packed text");
    serde_json::from_str(&text).expect("JSON")
}

/// What a browser makes of a page: its elements after the scripts have run, and what it complains of.
fn in_browser(file: &Path) -> (String, String) {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"])
        .args(["--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", home.path().display()))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .output()
        .expect("the browser runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let complaints = text(output.stderr).lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n");
    (text(output.stdout), complaints)
}

#[test]
fn a_deadlock() {
    let fixture = Fixture::start(&Build::new("deadlocks.c").variant(Variant::Default).path(), &["abba"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    let page = report(&fixture.pid().to_string(), &file);
    assert!(page.contains("<b>DEADLOCK</b>"), "{}", &page[..4000.min(page.len())]);
    assert!(page.contains("default-src 'none'"), "no policy");
    let namespace = "http://www.w3.org/2000/svg";
    assert_eq!(page.matches("://").count(), page.matches(namespace).count(), "something is loaded from elsewhere");
    let data = data(&page);
    assert_eq!(data["schema"], "threadglass/1");
    let threads = data["threads"].as_array().unwrap();
    assert!(threads.iter().all(|thread| !thread["frames"].as_array().unwrap().is_empty()), "a thread without a stack");
    if !have(part("a_deadlock"), "chromium") {
        return;
    }
    let (shown, complaints) = in_browser(&file);
    assert_eq!(complaints, "");
    assert!(shown.contains("data-shown=\"yes\""), "{shown}");
    for thread in threads {
        assert!(shown.contains(&format!("<tr id=\"t{}\"", thread["lwp"])), "{thread:#}");
    }
    for object in data["objects"].as_array().unwrap() {
        assert!(shown.contains(&format!("<tr id=\"o{}\"", object["address"].as_str().unwrap())), "{object:#}");
    }
    // Two threads and two locks, each of which leads to the next.
    assert_eq!(shown.matches("class=\"node thread circle\"").count(), 2);
    assert_eq!(shown.matches("class=\"node lock circle\"").count(), 2);
    assert_eq!(shown.matches("edge recorded circle").count() + shown.matches("edge derived circle").count(), 4);
}

/// Names are the target's: they are shown, and never obeyed.
#[test]
fn names_that_are_markup() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("<img src=x onerror=alert(1)>");
    std::fs::copy(Build::new("deadlocks.c").variant(Variant::Default).path(), &program).unwrap();
    let fixture = Fixture::start(&program, &["abba"]);
    let file = dir.path().join("report.html");
    let page = report(&fixture.pid().to_string(), &file);
    assert!(!page.contains("<img"), "markup of a name is in the page");
    let name = data(&page)["target"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with('<'), "{name}");
    if !have(part("names_that_are_markup"), "chromium") {
        return;
    }
    let (shown, complaints) = in_browser(&file);
    assert_eq!(complaints, "");
    assert!(shown.contains("data-shown=\"yes\""), "{shown}");
    assert!(shown.contains("&lt;img src=x onerror"), "the name is not shown");
    assert!(!shown.contains("<img"), "the name was obeyed");
}

/// What goroutines wait for is in their table.
#[test]
fn goroutines() {
    for go in Go::all("goroutines") {
        let fixture = Fixture::start(&go.build("go_waits", &["CGO_ENABLED=0"]), &[]);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("report.html");
        let page = report(&fixture.pid().to_string(), &file);
        let data = data(&page);
        let tasks = data["tasks"].as_array().unwrap();
        assert!(tasks.len() > 5, "{tasks:#?}");
        if !have(part("goroutines"), "chromium") {
            return;
        }
        let (shown, complaints) = in_browser(&file);
        assert_eq!(complaints, "");
        let waiting: Vec<_> = tasks.iter().filter(|task| task["wait"].is_object()).collect();
        assert!(!waiting.is_empty(), "{tasks:#?}");
        for task in waiting {
            let (_, row) = shown.split_once(&format!("<tr id=\"k{}\"", task["id"])).expect("its row");
            let (row, _) = row.split_once("</tr>").expect("its end");
            let reason = task["wait"]["reason"].as_str().unwrap().replace('&', "&amp;").replace('<', "&lt;");
            assert!(row.contains(&reason.replace('>', "&gt;")), "{row} without {reason}");
        }
    }
}

#[test]
fn a_core() {
    let dumpable = Dumpable::start(&Build::new("deadlocks.c").variant(Variant::Default).path(), &["abba"]);
    let Some(core) = dumpable.gcore(part("a_core")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = report(&core.name(), &dir.path().join("report.html"));
    assert!(page.contains("<b>DEADLOCK</b>") && page.contains("core of"), "{}", &page[..4000.min(page.len())]);
}

#[test]
fn a_file_that_cannot_be_written() {
    let fixture = Fixture::start(&Build::new("deadlocks.c").variant(Variant::Default).path(), &["abba"]);
    let answer = tool().run(&["report", &fixture.pid().to_string(), "-o", "/nonexistent/report.html"]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.starts_with("tglass: cannot write /nonexistent/report.html"), "{}", answer.stderr);
}
