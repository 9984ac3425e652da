//! The file that `tglass report` writes: what is in it, and what a browser makes of it.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::{Browser, Build, Dumpable, Fixture, Go, Tool, Variant, eventually, have, part};
use threadglass::model::terminal::safe;

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
    part_of(page, "data")
}

/// One of the documents that a report carries.
fn part_of(page: &str, id: &str) -> serde_json::Value {
    let (_, rest) = page.split_once(&format!("id=\"{id}\">")).expect("data");
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

/// Letters that drive a terminal, turn the direction of writing or cannot be seen are shown as the text of other commands has them.
#[test]
fn names_that_hide_what_they_say() {
    if !have("names_that_hide_what_they_say", "chromium") {
        return;
    }
    let fixture = Fixture::start(&Build::new("names.c").variant(Variant::Default).path(), &[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    report(&fixture.pid().to_string(), &file);
    let (shown, complaints) = in_browser(&file);
    assert_eq!(complaints, "");
    for line in shown.lines() {
        assert_eq!(safe(line), line);
    }
    let letters = |hex: &str| -> Vec<u8> {
        hex.as_bytes().chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    };
    for (lwp, name) in fixture.truth().as_object().unwrap() {
        let name = safe(&String::from_utf8_lossy(&letters(name.as_str().unwrap())));
        let (_, row) = shown.split_once(&format!("<tr id=\"t{lwp}\"")).expect("its row");
        let (row, _) = row.split_once("</tr>").expect("its end");
        let cell = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        assert!(row.contains(&format!(">{cell}</td>")), "{row} without {cell}");
    }
}

/// Whichever way the members of a circle wait, it is closed in the graph.
#[test]
fn circles_are_closed() {
    if !have("circles_are_closed", "chromium") {
        return;
    }
    for (file, scene, boxes) in [
        ("outside.c", "pipes", [("thread", 1), ("process", 1)].as_slice()),
        ("deadlocks.c", "self", &[("thread", 1), ("lock", 1)]),
    ] {
        let fixture = Fixture::start(&Build::new(file).variant(Variant::Default).path(), &[scene]);
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("report.html");
        // The other process may be on its way.
        eventually("the circle should be seen", || {
            let data = data(&report(&fixture.pid().to_string(), &page));
            data["findings"].as_array().unwrap().iter().any(|finding| finding["kind"].as_str().unwrap().contains(scene))
                || data["findings"][0]["kind"] == "process_circle"
        });
        let (shown, complaints) = in_browser(&page);
        assert_eq!(complaints, "");
        for (kind, number) in boxes {
            assert_eq!(shown.matches(&format!("class=\"node {kind} circle\"")).count(), *number, "{scene}: {kind}");
        }
        let edges = ["recorded", "derived", "inferred"];
        let closed: usize = edges.iter().map(|edge| shown.matches(&format!("edge {edge} circle")).count()).sum();
        assert_eq!(closed, 2, "{scene}: {shown}");
    }
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

/// The size of a window.
const WINDOW: (u32, u32) = (1280, 900);

#[test]
fn the_page_obeys_mouse_and_keys() {
    let fixture = Fixture::start(&Build::new("deadlocks.c").variant(Variant::Default).path(), &["abba"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    let data = data(&report(&fixture.pid().to_string(), &file));
    if !have(part("the_page_obeys_mouse_and_keys"), "chromium") {
        return;
    }
    for is_dark in [false, true] {
        let mut browser = Browser::open(&file, WINDOW, is_dark);
        browser.until("document.documentElement.dataset.shown === 'yes'");
        // A thread of the circle leads to its row, which opens with the stack.
        let member = data["findings"][0]["threads"][0].as_i64().unwrap();
        browser.run(&format!(
            "[...document.querySelectorAll('.node.thread.circle')].find((it) => it.textContent.includes('({member})')).dispatchEvent(new MouseEvent('click'))"
        ));
        browser.until(&format!(
            "document.getElementById('t{member}').dataset.open === 'yes' && document.activeElement.id === 't{member}'"
        ));
        browser.until(&format!(
            "document.getElementById('t{member}').nextSibling.textContent.includes('pthread_mutex_lock')"
        ));
        // A lock, by the keyboard.
        let lock = data["findings"][0]["objects"][0].as_str().unwrap();
        browser.run(&format!("document.getElementById('o{lock}').querySelector('button').focus()"));
        browser.key("Enter", 13);
        browser.until(&format!("document.getElementById('o{lock}').dataset.open === 'yes'"));
        assert_eq!(
            browser.run(&format!("document.querySelector('#o{lock} button').getAttribute('aria-expanded')")),
            "true"
        );
        // Search and order.
        let rows = "document.querySelectorAll('#s-threads tbody tr:not(.stack)').length";
        assert_eq!(browser.run(rows), data["threads"].as_array().unwrap().len());
        browser.run(&format!(
            "(() => {{ const it = document.querySelector('#s-threads input'); it.value = '{member}'; it.dispatchEvent(new Event('input')); }})()"
        ));
        // Itself, and who waits for what it holds.
        assert_eq!(browser.run(rows), 2);
        browser.run("document.querySelectorAll('#s-threads th button')[1].click()");
        assert_eq!(browser.run("document.querySelectorAll('#s-threads th')[1].getAttribute('aria-sort')"), "ascending");
        // Whatever takes the focus has a name for who does not see it.
        let unnamed = "[...document.querySelectorAll('button, [tabindex=\"0\"], input, a')].filter((it) => !(it.textContent.trim() || it.getAttribute('aria-label'))).length";
        assert_eq!(browser.run(unnamed), 0);
        // Light and dark are not the same, and text can be told from its ground in both.
        let ground = browser.run("getComputedStyle(document.body).backgroundColor");
        assert_ne!(ground == "rgb(251, 251, 249)", is_dark, "{ground}");
        assert!(!browser.printed().is_empty());
        assert_eq!(browser.complaints, Vec::<String>::new());
    }
}

#[test]
fn contention_and_a_profile() {
    testkit::needs_ptrace!();
    let fixture = Fixture::start(&Build::new("track_contended.c").variant(Variant::Default).path(), &[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    let args = ["report", &fixture.pid().to_string(), "-o", file.to_str().unwrap(), "--contend", "1s"];
    let answer = tool().run(&args);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let page = std::fs::read_to_string(&file).unwrap();
    let contention = part_of(&page, "contention");
    let hot = &contention["locks"][0];
    assert_eq!(hot["name"], "hot", "{contention:#}");
    let buckets = hot["stats"]["contention"]["histogram"].as_array().expect("a histogram");
    let counted: u64 = buckets.iter().map(|bucket| bucket["waits"].as_u64().unwrap()).sum();
    assert!(counted > 0 && counted.abs_diff(hot["waits"].as_u64().unwrap()) <= counted / 2, "{hot:#}");
    let ends: Vec<u64> = buckets.iter().map(|bucket| bucket["up_to_ns"].as_u64().unwrap()).collect();
    assert!(ends.is_sorted() && ends.iter().any(|end| *end >= 1_000_000), "it is held for 1 ms: {hot:#}");
    let spin = Fixture::start(&Build::new("profil_spin.c").variant(Variant::Default).path(), &[]);
    let other = dir.path().join("profile.html");
    let answer = tool().run(&["report", &spin.pid().to_string(), "-o", other.to_str().unwrap(), "--profile", "1s"]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let may_sample = !answer.stderr.contains("perf events are not permitted");
    if !have(part("contention_and_a_profile"), "chromium") {
        return;
    }
    let mut browser = Browser::open(&file, WINDOW, false);
    browser.until("document.documentElement.dataset.shown === 'yes'");
    let at = hot["address"].as_str().unwrap();
    browser.run(&format!("document.getElementById('c{at}').click()"));
    assert_eq!(
        browser
            .run(&format!("document.getElementById('c{at}').nextSibling.querySelectorAll('.histogram rect').length")),
        buckets.len()
    );
    assert_eq!(browser.complaints, Vec::<String>::new());
    if !may_sample {
        return testkit::skip(part("a flame graph"), answer.stderr.trim());
    }
    let mut browser = Browser::open(&other, WINDOW, true);
    browser.until("document.documentElement.dataset.shown === 'yes'");
    let widest = "Math.max(...[...document.querySelectorAll('.flame')].slice(1).map((it) => it.querySelector('rect').width.baseVal.value))";
    let count = browser.run("document.querySelectorAll('.flame').length");
    assert!(count.as_u64().is_some_and(|count| count > 3), "{count}");
    assert!(browser.run(widest).as_f64().is_some());
    // The narrowest frame becomes as wide as all, and back.
    browser.run("[...document.querySelectorAll('.flame')].at(-1).dispatchEvent(new MouseEvent('click'))");
    assert!(browser.run(widest).as_f64().is_some_and(|wide| wide > 1100.0));
    browser.run("document.querySelector('.flame').dispatchEvent(new MouseEvent('click'))");
    assert_eq!(browser.run("document.querySelectorAll('.flame').length"), count);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// What cannot be measured is said, and the rest is written.
#[test]
fn a_measurement_that_cannot_be_made() {
    let dumpable = Dumpable::start(&Build::new("deadlocks.c").variant(Variant::Default).path(), &["abba"]);
    let Some(core) = dumpable.gcore(part("a_measurement_that_cannot_be_made")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    for option in ["--contend", "--profile"] {
        let answer = tool().run(&["report", &core.name(), "-o", file.to_str().unwrap(), option, "1s"]);
        assert_eq!(answer.code, Some(2));
        assert!(answer.stderr.contains(&format!("{option} needs a running process")), "{}", answer.stderr);
        assert!(!file.exists());
    }
}
