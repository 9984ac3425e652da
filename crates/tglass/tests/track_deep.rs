//! Objects that a tracked program loads so that they look for functions among their own first (`RTLD_DEEPBIND`), and
//! the loader's own functions with the agent in front of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Answer, Build, Fixture, GlibcRoots, Tool, Value, Variant, address, eventually};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// The directory in which the program is, and everything else that was built: a path that the program has.
const RUNPATH: &str = "-Wl,--enable-new-dtags,-rpath,$ORIGIN";
const RPATH: &str = "-Wl,--disable-new-dtags,-rpath,$ORIGIN";

fn program(paths: &[&str]) -> PathBuf {
    Build::new("track_deep.c").variant(Variant::Default).flags(&["-rdynamic"]).flags(paths).path()
}

/// Every way of linking that makes slots differ.
const STYLES: [(&str, &[&str]); 3] = [
    ("lazy", &["-Wl,-z,lazy", "-Wl,-z,norelro"]),
    ("now", &["-Wl,-z,now", "-Wl,-z,relro"]),
    ("no-plt", &["-fno-plt", "-Wl,-z,relro"]),
];

/// The object, and the one that it needs.
fn plugin(style: &[&str]) -> PathBuf {
    let needed = Build::new("inject_plugin.c").variant(Variant::Library).flags(style).path();
    plugin_with(style, &[&needed])
}

fn plugin_with(style: &[&str], needed: &[&Path]) -> PathBuf {
    let needs: Vec<_> = needed.iter().map(|path| format!("-Wl,--no-as-needed,{}", path.display())).collect();
    Build::new("track_deep_plugin.c").variant(Variant::Library).flags(style).flags(&needs).path()
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8")
}

fn run(options: &[&str], program: &Path, args: &[&str]) -> Command {
    let mut command = tool().command(&[&["run"], options, &["--"]].concat());
    command.arg(program).args(args);
    command
}

/// Acquisitions of a lock that were counted.
fn lock_count(fixture: &Fixture, name: &str) -> Value {
    let snapshot = tool().look("locks", &fixture.pid().to_string(), &["--all"]);
    let at = address(&fixture.truth()[name]);
    let objects = snapshot["objects"].as_array().expect("objects");
    let found = objects.iter().find(|object| address(&object["address"]) == at);
    found.map_or(Value::Null, |object| object["stats"]["lock"].clone())
}

fn is_counted(what: &str, command: Command) {
    let fixture = Fixture::command(command).settled();
    for name in ["own", "needed"] {
        assert_eq!(lock_count(&fixture, name), fixture.truth()["lock"], "{what}: {name}");
    }
}

#[test]
fn an_object_that_prefers_its_own_is_counted() {
    for (style, flags) in STYLES {
        let plugin = plugin(flags);
        let (path, name) = (plugin.to_str().expect("a path in UTF-8"), file_name(&plugin));
        for words in ["now,deep", "lazy,deep", "lazy,deep,again", "now", "lazy"] {
            let what = format!("{style} {words}");
            is_counted(&format!("{what} by its path"), run(&[], &program(&[]), &[path, words, "123"]));
            // The loader looks at who asks.
            for paths in [RUNPATH, RPATH] {
                is_counted(
                    &format!("{what} by its name, {paths}"),
                    run(&[], &program(&[paths]), &[name, words, "123"]),
                );
            }
        }
    }
}

/// No `dlsym` is called: the object's constructor tells the program what it has.
#[test]
fn an_object_that_registers_itself_is_counted() {
    for (style, flags) in STYLES {
        let plugin = plugin(flags);
        let (path, name) = (plugin.to_str().expect("a path in UTF-8"), file_name(&plugin));
        for words in ["now,deep,told", "lazy,deep,told"] {
            is_counted(&format!("{style} {words} by its path"), run(&[], &program(&[]), &[path, words, "99"]));
            is_counted(&format!("{style} {words} and a path"), run(&[], &program(&[RUNPATH]), &[path, words, "99"]));
            // A name that the loader searches for in the same places, whoever asks.
            let mut command = run(&[], &program(&[]), &[name, words, "99"]);
            command.env("LD_LIBRARY_PATH", plugin.parent().expect("a directory"));
            is_counted(&format!("{style} {words} by its name"), command);
        }
    }
}

/// Loaded by a library that is set up before the agent is.
#[test]
fn an_object_that_came_before_the_agent_was_ready_is_counted() {
    let library = Build::new("track_deep_early.c").variant(Variant::Library).path();
    let program = program(&[&format!("-Wl,--no-as-needed,{}", library.display())]);
    for (style, flags) in STYLES {
        let plugin = plugin(flags);
        let mut command = run(&[], &program, &[plugin.to_str().expect("a path in UTF-8"), "now", "31"]);
        command.env("EARLY", &plugin);
        is_counted(style, command);
    }
}

/// Loaded while the agent was off.
#[test]
fn it_is_counted_once_somebody_wants_it() {
    let plugin = plugin(STYLES[0].1);
    let path = plugin.to_str().expect("a path in UTF-8");
    let mut fixture = Fixture::command(run(&["--off"], &program(&[]), &[path, "lazy,deep", "50"])).settled();
    assert_eq!(lock_count(&fixture, "own"), Value::Null);
    let mut child = tool()
        .command(&["contend", &fixture.pid().to_string()])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the tool starts");
    eventually("it counts", || {
        assert_eq!(fixture.ask("more"), "done");
        ["own", "needed"].iter().all(|name| lock_count(&fixture, name).as_u64().is_some_and(|lock| lock >= 50))
    });
    let _ = child.kill();
    let _ = child.wait();
}

/// A library that stands in for the same functions and that the object needs is asked, as without the agent.
#[test]
fn a_stand_in_that_the_object_needs_stays_first() {
    let stand_in = Build::new("track_stand_in.c").variant(Variant::Library).path();
    for (style, flags) in STYLES {
        let needed = Build::new("inject_plugin.c").variant(Variant::Library).flags(flags).path();
        let wrapped = plugin_with(flags, &[&needed, &stand_in]);
        let path = wrapped.to_str().expect("a path in UTF-8");
        for words in ["now,deep", "lazy,deep"] {
            let args = [path, words, "50"];
            let mut plain = Command::new(program(&[]));
            plain.args(args);
            for command in [plain, run(&[], &program(&[]), &args)] {
                assert_eq!(Fixture::command(command).truth()["calls"], 100, "{style} {words}");
            }
        }
    }
}

/// Threads that load and unload at the same time, with and without a path.
#[test]
fn a_storm_of_loads_does_no_harm() {
    let plugins = STYLES.map(|(_, flags)| plugin(flags));
    let rounds = std::env::var("TG_ROUNDS").unwrap_or_else(|_| "200".to_owned());
    let paths: Vec<_> = plugins.iter().map(|path| path.to_str().expect("a path in UTF-8")).collect();
    let names: Vec<_> = plugins.iter().map(|path| file_name(path)).collect();
    for (what, names) in [("paths", paths), ("names", names)] {
        is_counted(what, run(&[], &program(&[RUNPATH]), &[&names.join(","), "storm", &rounds]));
    }
}

#[test]
fn the_loader_says_what_it_says_without_the_agent() {
    let plugin = plugin(STYLES[0].1);
    let cases = [(program(&[]), plugin.to_str().expect("UTF-8")), (program(&[RUNPATH]), file_name(&plugin))];
    for (program, name) in cases {
        let args = [name, "behaviour", "0"];
        let mut command = Command::new(&program);
        command.args(args);
        let plain = Answer::of(command);
        assert_eq!(plain.code, Some(0), "{}", plain.stderr);
        assert!(plain.text().contains("next: 2") && plain.text().contains("undefined symbol"), "{}", plain.text());
        for options in [&[][..], &["--off"]] {
            let tracked = Answer::of(run(options, &program, &args));
            assert_eq!(tracked.text(), plain.text(), "{options:?}");
            assert_eq!((tracked.code, &tracked.stderr), (plain.code, &plain.stderr), "{options:?}");
        }
    }
}

#[test]
fn every_glibc_version_counts_them() {
    let Some(roots) = GlibcRoots::find("every_glibc_version_counts_them") else { return };
    for (version, root) in roots.iter() {
        let program = roots.build_with("track_deep.c", root, &["-fPIE", "-pie", "-rdynamic"]);
        for (style, flags) in STYLES {
            let library = |file: &str, more: &[&str]| {
                roots.build_with(file, root, &[&["-fPIC", "-shared"], flags, more].concat())
            };
            let needed = library("inject_plugin.c", &[]);
            let plugin = library("track_deep_plugin.c", &[&format!("-Wl,--no-as-needed,{}", needed.display())]);
            let path = plugin.to_str().expect("a path in UTF-8");
            for words in ["now,deep", "lazy,deep", "lazy,deep,again", "now,deep,told", "lazy,deep,told"] {
                is_counted(&format!("{version} {style} {words}"), run(&[], &program, &[path, words, "77"]));
            }
            let mut command = Command::new(&program);
            let args = [path, "behaviour", "0"];
            command.args(args);
            let plain = Answer::of(command);
            assert_eq!(plain.code, Some(0), "{version}: {}", plain.stderr);
            assert_eq!(Answer::of(run(&[], &program, &args)).text(), plain.text(), "{version}");
        }
    }
}
