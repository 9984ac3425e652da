//! `tglass profil`: names of code whose file has no symbols, or that is in no file.

mod profil_common;

use profil_common::{perf, record, tool};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Answer, Build, Fixture, NOBODY, Value, Variant, any_of, ensure, have, is_root, part, skip};

/// Names and samples of the functions of a module.
fn of_module(profile: &Value, module: &str) -> Vec<(String, u64)> {
    let functions = profile["functions"].as_array().expect("functions").iter();
    let of_module = functions.filter(|function| function["module"] == module);
    let name = |function: &Value| function["name"].as_str().unwrap_or("(no symbol)").to_owned();
    of_module.map(|function| (name(function), function["samples"].as_u64().expect("a number"))).collect()
}

fn objcopy(args: &[&str], dir: &Path) {
    let mut command = Command::new("objcopy");
    command.current_dir(dir).args(args);
    let answer = Answer::of(command);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
}

/// A stripped library: by the symbols of its debug file, and without that by where its functions begin.
#[test]
fn functions_of_a_stripped_library() {
    let test = "functions_of_a_stripped_library";
    if !perf(test, &[]) || !have(test, "objcopy") {
        return;
    }
    let program = Build::new("profil_library.c").variant(Variant::Default).path();
    let built = Build::new("profil_library.c").variant(Variant::Library);
    let built = built.flags(&["-DLIBRARY", "-Wl,--build-id"]).path();
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(&built, dir.path().join("whole")).unwrap();
    // Symbols alone: debug information would name them by itself.
    objcopy(&["--only-keep-debug", "--remove-section=.debug_*", "whole", "libworks.debug"], dir.path());
    objcopy(&["--strip-all", "--add-gnu-debuglink=libworks.debug", "whole", "libworks.so"], dir.path());
    let library = dir.path().join("libworks.so");
    let fixture = Fixture::start(&program, &[library.to_str().unwrap()]);
    let shares = |profile: &Value| {
        let functions = of_module(profile, "libworks.so");
        let all: u64 = functions.iter().map(|it| it.1).sum();
        let share = |index: usize| functions.get(index).map_or(0.0, |it| it.1 as f64 / all as f64);
        // Of 1000 samples, 0.06 is more than four standard deviations.
        assert!((share(0) - 0.75).abs() < 0.06 && (share(1) - 0.25).abs() < 0.06, "{profile:#}");
        [functions[0].0.clone(), functions[1].0.clone()]
    };
    assert_eq!(shares(&record(fixture.pid(), 1000, &[])), ["inner_hot", "inner_warm"]);
    // And as a region.
    let hot = record(fixture.pid(), 200, &["--function", "inner_hot"]);
    let inside = hot["samples"].as_u64().unwrap() - hot["outside"].as_u64().unwrap();
    assert_eq!(of_module(&hot, "libworks.so"), [("inner_hot".to_owned(), inside)]);

    std::fs::remove_file(dir.path().join("libworks.debug")).unwrap();
    let mut nm = Command::new("nm");
    nm.arg(dir.path().join("whole"));
    let symbols = Answer::of(nm).text();
    let place = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).expect("a symbol");
        let at = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        format!("libworks.so+{at:#x}")
    };
    let profile = record(fixture.pid(), 1000, &["-g"]);
    assert_eq!(shares(&profile), [place("inner_hot"), place("inner_warm")]);
    let stack = profile["stacks"][0]["frames"].as_array().unwrap();
    let names: Vec<_> = stack.iter().take(3).map(|frame| frame["function"].as_str().unwrap_or("-")).collect();
    assert_eq!(names, [place("inner_hot").as_str(), "library_work", "work"], "{profile:#}");
    // Also of a command, which has ended when its functions are named.
    let program = Build::new("profil_spin.c").variant(Variant::Stripped).path();
    let file = program.file_name().unwrap().to_str().unwrap().to_owned();
    any_of(5, || {
        let answer = tool().run(&["profil", "--json", "--", program.to_str().unwrap(), "4000"]);
        let profile: Value = testkit::serde_json::from_str(&answer.stderr).expect("JSON");
        let functions = of_module(&profile, &file);
        ensure(functions.iter().map(|it| it.1).sum::<u64>() > 100, || format!("{profile:#}"))?;
        assert!(functions.len() >= 3 && functions[0].0.starts_with(&format!("{file}+0x")), "{profile:#}");
        Ok(())
    });
}

/// libc's own functions: its debug information is large and not read, but its symbols are.
#[test]
fn functions_of_libc_with_its_debug_file() {
    let test = "functions_of_libc_with_its_debug_file";
    if !perf(test, &[]) || !have(test, "sort") || !have(test, "readelf") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("input");
    let lines: Vec<String> = (0..400_000u64).map(|n| format!("{}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    std::fs::write(&input, lines.concat()).unwrap();
    let run = || {
        let mut command = tool().command(&["profil", "--json", "--", "sort", "--parallel=1", "-o", "/dev/null"]);
        command.arg(&input).env("LC_ALL", "C.UTF-8");
        let answer = Answer::of(command);
        testkit::serde_json::from_str::<Value>(&answer.stderr).expect("JSON")
    };
    any_of(5, || {
        let profile = run();
        let functions = of_module(&profile, "libc.so.6");
        let all: u64 = functions.iter().map(|it| it.1).sum();
        ensure(all >= 50, || format!("too few samples: {profile:#}"))?;
        let nameless = functions.iter().filter(|(name, _)| name == "(no symbol)").map(|it| it.1).sum::<u64>();
        assert!(nameless * 10 < all, "{functions:?}");
        if !has_debug_file("libc.so.6") {
            skip(test, "libc's debug file is not installed (libc6-dbg)");
            return Ok(());
        }
        assert!(functions.iter().all(|(name, _)| !name.contains('@')), "{functions:?}");
        let by_place =
            functions.iter().filter(|(name, _)| name.starts_with("libc.so.6+0x")).map(|it| it.1).sum::<u64>();
        assert!(by_place * 10 < all, "{functions:?}");
        Ok(())
    });
}

/// Whether the debug file of a library of this test is where distributions put it.
fn has_debug_file(library: &str) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own");
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.ends_with(library));
    let mut command = Command::new("readelf");
    command.args(["-n", path.expect("it is mapped")]);
    let notes = Answer::of(command).text();
    let id = notes.split_once("Build ID: ").map_or("", |it| it.1).split_whitespace().next().unwrap_or_default();
    id.len() > 2 && Path::new(&format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..])).exists()
}

/// The file in which a process names the code that it generated.
fn map_of(pid: i32) -> PathBuf {
    PathBuf::from(format!("/tmp/perf-{pid}.map"))
}

/// Whether the generated loop is named, in a recording of `fixture`.
fn is_loop_named(fixture: &Fixture) -> bool {
    let profile = record(fixture.pid(), 50, &[]);
    let named = of_module(&profile, &format!("perf-{}.map", fixture.pid()));
    let first = &profile["functions"][0];
    assert!(first["module"] == "[anonymous]" || first["name"] == "JS:*generated loop", "{profile:#}");
    named.iter().any(|(name, _)| name == "JS:*generated loop")
}

/// Generated code has the names that its process has written down, and nobody else.
#[test]
fn generated_code() {
    use std::os::unix::fs::{chown, symlink};
    let test = "generated_code";
    if !perf(test, &[]) {
        return;
    }
    let program = Build::new("profil_jit.c").path();
    let mut fixture = Fixture::start(&program, &["map"]);
    assert!(is_loop_named(&fixture));
    // Also where it lies under a name that leads to it, or that anybody may have given it.
    let (map, other) = (map_of(fixture.pid()), map_of(fixture.pid()).with_extension("other"));
    std::fs::rename(&map, &other).unwrap();
    symlink(&other, &map).unwrap();
    assert!(!is_loop_named(&fixture), "by a link");
    std::fs::remove_file(&map).unwrap();
    std::fs::rename(&other, &map).unwrap();
    assert!(is_loop_named(&fixture));
    if is_root(part("a list of another user"), "to give a file away") {
        chown(&map, Some(NOBODY), None).expect("root may give it away");
        assert!(!is_loop_named(&fixture), "of another user");
    }
    assert_eq!(fixture.ask("remove"), "ok");
    assert!(!is_loop_named(&fixture));
}

const SCRIPT: &str = "function hotFunction(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) % 65521; return s; }\n\
    console.log('ready'); const end = Date.now() + Number(process.argv[2]); let t = 0;\n\
    while (Date.now() < end) t += hotFunction(1e6); process.exitCode = t === 1 ? 1 : 0;\n";

/// Functions of node, by the list that it writes, and by the file that it maps.
#[test]
fn functions_of_node() {
    let test = "functions_of_node";
    if !perf(test, &[]) || !have(test, "node") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hot.js"), SCRIPT).unwrap();
    for (option, file) in [("--perf-basic-prof", "perf-"), ("--perf-prof", "jit-")] {
        any_of(5, || {
            let mut command = tool().command(&["profil", "--json", "--", "node", option, "hot.js", "1500"]);
            command.current_dir(dir.path());
            let answer = Answer::of(command);
            assert_eq!((answer.code, answer.text().as_str()), (Some(0), "ready\n"), "{}", answer.stderr);
            let profile: Value = testkit::serde_json::from_str(&answer.stderr).expect("JSON");
            let pid = profile["target"]["pid"].as_i64().expect("a pid") as i32;
            let _ = std::fs::remove_file(map_of(pid));
            let functions = profile["functions"].as_array().expect("functions").iter();
            let hot = functions.filter(|function| {
                let is = |member: &str, word: &str| function[member].as_str().is_some_and(|text| text.contains(word));
                is("name", "hotFunction") && is("module", file)
            });
            let hot: u64 = hot.map(|function| function["samples"].as_u64().unwrap()).sum();
            let all = profile["samples"].as_u64().unwrap();
            // Starting takes its time, too.
            ensure(hot * 5 > all * 2, || format!("{hot} of {all}: {profile:#}"))
        });
    }
}
