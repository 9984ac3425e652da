//! Cores, of gcore and of the kernel, against the living process they are of.

use std::path::Path;
use testkit::{
    Build, CoreFile, Dumpable, Extent, NOBODY, Public, Tool, Value, Variant, address, any_of, as_user, ensure,
    has_static_libc, have, is_root, part, thread, threads,
};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Who writes the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Gdb,
    Kernel,
}

const WRITERS: [Writer; 2] = [Writer::Gdb, Writer::Kernel];

/// A fixture as it was seen alive, and its core.
struct Pair {
    live: Value,
    tsd: Value,
    core: CoreFile,
    pid: i32,
}

fn dump<'a>(what: impl Into<Extent<'a>>, program: &Path, args: &[&str], writer: Writer) -> Option<Pair> {
    dump_of(what, Dumpable::start(program, args), args, writer)
}

/// The part of a test that has the core of one writer.
fn by(writer: Writer) -> Extent<'static> {
    part(match writer {
        Writer::Gdb => "a core of gdb",
        Writer::Kernel => "a core of the kernel",
    })
}

/// The threads of a process, but for what a core cannot tell: the files behind their descriptors.
fn look_at_live(pid: i32) -> Value {
    let mut live = tool().threads(pid, &[]);
    for thread in live["threads"].as_array_mut().unwrap() {
        let descriptors = thread.pointer_mut("/syscall/descriptors").and_then(Value::as_array_mut);
        for descriptor in descriptors.into_iter().flatten() {
            descriptor["file"] = Value::Null;
        }
    }
    live
}

fn dump_of<'a>(what: impl Into<Extent<'a>>, mut dumpable: Dumpable, args: &[&str], writer: Writer) -> Option<Pair> {
    if !args.contains(&"leaderless") {
        dumpable.fixture = dumpable.fixture.settled();
    }
    let pid = dumpable.fixture.pid();
    let live = look_at_live(pid);
    let tsd = match tool().run(&["tsd", &pid.to_string(), "--json"]) {
        answer if answer.code == Some(0) => answer.json(),
        _ => Value::Null,
    };
    let core = match writer {
        Writer::Gdb => dumpable.gcore(what)?,
        Writer::Kernel => dumpable.kernel_core(what)?,
    };
    Some(Pair { live, tsd, core, pid })
}

/// What must be the same alive and dead; `None` in the core is allowed for `may_lack`.
fn compare_thread(live: &Value, core: &Value, writer: Writer, is_main: bool, faults: &mut Vec<String>) {
    let mut same = |field: &str, live: &Value, core: &Value| {
        if live != core {
            faults.push(format!("{}: {field} was {live}, is {core}", live_name(live, core, field)));
        }
    };
    for field in [
        "lwp",
        "inner_lwp",
        "id",
        "type",
        "detached",
        "user_flags",
        "exiting",
        "start",
        "start_function",
        "descriptor_size",
        "flags",
        "specific",
        "traced_events",
        "events",
    ] {
        same(field, &live[field], &core[field]);
    }
    let ended = live["state"] == "zombie";
    let running = live["state"] == "active" || live["state"] == "run";
    same("state", &if running { "active".into() } else { live["state"].clone() }, &core["state"]);
    same("syscall", &live["syscall"], &core["syscall"]);
    if running {
        // A live thread that runs keeps its registers to itself; in the core they are.
        assert!(address(&core["pc"]) > 0 && address(&core["sp"]) > 0, "{core:#}");
    } else {
        same("pc", &live["pc"], &core["pc"]);
        same("sp", &live["sp"], &core["sp"]);
    }
    if is_main {
        same("stack base", &live["stack"]["base"], &core["stack"]["base"]);
        assert!(core["stack"]["size"].as_u64() <= live["stack"]["size"].as_u64(), "as much as was mapped");
    } else {
        same("stack", &live["stack"], &core["stack"]);
    }
    // Lost, and never invented.
    let kept = |field: &str, kept: bool| if kept && !ended { live[field].clone() } else { Value::Null };
    let by_kernel = writer == Writer::Kernel;
    same("signal_mask", &kept("signal_mask", by_kernel), &core["signal_mask"]);
    same("pending", &kept("pending", by_kernel), &core["pending"]);
    same("name", &kept("name", by_kernel && is_main), &core["name"]);
    same("nice", &Value::Null, &core["nice"]);
    for field in ["priority", "policy"] {
        if !core[field].is_null() {
            same(field, &live[field], &core[field]);
        }
    }
    if !core["cpu"].is_null() {
        assert!(by_kernel && !is_main, "{core:#}");
    }
}

fn live_name(live: &Value, core: &Value, field: &str) -> String {
    format!("{field} of {} / {}", live["lwp"], core["lwp"])
}

fn compare(pair: &Pair, core: &Value, writer: Writer) {
    let mut faults = Vec::new();
    let (live, dead) = (threads(&pair.live), threads(core));
    if live.len() != dead.len() {
        faults.push(format!("{} threads lived, {} are in the core", live.len(), dead.len()));
    }
    for (live, dead) in live.iter().zip(dead) {
        let mut of_this = Vec::new();
        compare_thread(live, dead, writer, live["lwp"] == pair.pid, &mut of_this);
        faults.extend(of_this.into_iter().map(|fault| format!("{} ({}): {fault}", live["lwp"], live["name"])));
    }
    for field in ["pid", "exe", "uid", "libc"] {
        if pair.live["target"][field] != core["target"][field] {
            faults.push(format!("{field} was {}, is {}", pair.live["target"][field], core["target"][field]));
        }
    }
    assert!(faults.is_empty(), "{writer:?}:\n{}\n{:#}", faults.join("\n"), core["gaps"]);
    // One gap tells what a core never has. What else was not seen alive was not seen dead either.
    let gaps = |look: &Value| look["gaps"].as_array().map_or(0, Vec::len);
    assert_eq!(gaps(core), gaps(&pair.live) + 1, "{:#}", core["gaps"]);
    let info = &core["target"]["core"];
    match writer {
        Writer::Kernel => {
            assert_eq!((&info["writer"], &info["signal"]), (&"kernel".into(), &"SIGQUIT".into()), "{info:#}");
            assert_eq!(info["sender"], std::process::id(), "{info:#}");
        }
        Writer::Gdb => assert_eq!((&info["writer"], &info["signal"]), (&"debugger".into(), &Value::Null), "{info:#}"),
    }
}

fn same_threads(test: &str, file: &str, variant: Variant, args: &[&str]) {
    if variant.is_static() && !has_static_libc(test) {
        return;
    }
    let program = Build::new(file).variant(variant).path();
    for writer in WRITERS {
        let Some(pair) = dump(by(writer), &program, args, writer) else { continue };
        compare(&pair, &tool().look("threads", &pair.core.name(), &[]), writer);
    }
}

fn same_tsd(variant: Variant) {
    if variant.is_static() && !has_static_libc(part("a static program")) {
        return;
    }
    let program = Build::new("tsd.c").variant(variant).path();
    for writer in WRITERS {
        let Some(pair) = dump(by(writer), &program, &[], writer) else { continue };
        let core = tool().look("tsd", &pair.core.name(), &[]);
        assert_eq!(pair.tsd["keys"], core["keys"], "{writer:?}");
        assert!(core["keys"].as_array().is_some_and(|keys| keys.len() > 250));
        let values = |look: &Value| -> Vec<Value> {
            threads(look)
                .iter()
                .map(|thread| Value::from(vec![thread["id"].clone(), thread["lwp"].clone(), thread["values"].clone()]))
                .collect()
        };
        assert_eq!(values(&pair.tsd), values(&core), "{writer:?}");
        assert_eq!(values(&core).len(), 4);
    }
}

#[test]
fn position_independent() {
    same_threads("cores::position_independent", "threads_truth.c", Variant::Default, &[]);
}

#[test]
fn at_a_fixed_address() {
    same_threads("cores::at_a_fixed_address", "threads_truth.c", Variant::NoPie, &[]);
}

#[test]
fn stripped() {
    same_threads("cores::stripped", "threads_truth.c", Variant::Stripped, &[]);
}

#[test]
fn static_with_symbols() {
    same_threads("cores::static_with_symbols", "threads_truth.c", Variant::Static, &[]);
}

#[test]
fn static_without_symbols() {
    same_threads("cores::static_without_symbols", "threads_truth.c", Variant::StaticStripped, &[]);
}

#[test]
fn every_station_of_a_life() {
    same_threads("cores::every_station_of_a_life", "lifecycle.c", Variant::Default, &["raw"]);
}

#[test]
fn main_has_exited() {
    same_threads("cores::main_has_exited", "main_exited.c", Variant::Default, &["leaderless"]);
}

#[test]
fn thread_specific_data() {
    for variant in [Variant::Default, Variant::NoPie, Variant::Stripped, Variant::Static] {
        same_tsd(variant);
    }
}

/// The priorities that the fixture's threads have set are recorded by libc, so a core has them.
#[test]
fn priorities_that_libc_recorded() {
    let program = Build::new("threads_truth.c").variant(Variant::Default).path();
    let Some(pair) = dump("cores::priorities", &program, &[], Writer::Gdb) else { return };
    let core = tool().look("threads", &pair.core.name(), &[]);
    for (live, dead) in threads(&pair.live).iter().zip(threads(&core)).filter(|(live, _)| live["state"] != "zombie") {
        assert_eq!((&live["priority"], &live["policy"]), (&dead["priority"], &dead["policy"]), "{}", live["name"]);
    }
}

/// The gaps of a look, as text.
fn gaps(look: &Value) -> String {
    look["gaps"].to_string()
}

#[test]
fn the_program_has_moved() {
    let public = Public::new();
    let built = Build::new("threads_truth.c").variant(Variant::Default).path();
    let program = public.copy(&built, "program");
    for writer in WRITERS {
        let Some(pair) = dump(by(writer), &program, &[], writer) else { continue };
        let (core, moved) = (pair.core.name(), public.path().join("moved"));
        std::fs::rename(&program, &moved).unwrap();

        let without = tool().look("threads", &core, &[]);
        assert!(gaps(&without).contains("program") && gaps(&without).contains("--exe"), "{}", gaps(&without));
        let named = threads(&without)
            .iter()
            .filter(|thread| thread["start_function"].as_str().is_some_and(|name| name.ends_with("_start")));
        assert_eq!(named.count(), 0, "no name without the file");
        assert_eq!(threads(&without).len(), threads(&pair.live).len(), "but all threads");

        let with = tool().look("threads", &core, &["--exe", &moved.to_string_lossy()]);
        compare(&pair, &with, writer);

        // Another program under the old name, and another one given.
        let other = Build::new("pending.c").variant(Variant::Default).path();
        std::fs::copy(&other, &program).unwrap();
        for options in [vec![], vec!["--exe".to_owned(), other.to_string_lossy().into_owned()]] {
            let options: Vec<_> = options.iter().map(String::as_str).collect();
            let wrong = tool().look("threads", &core, &options);
            assert!(
                gaps(&wrong).contains("is not the file that the process had: its build ID differs"),
                "{}",
                gaps(&wrong)
            );
            assert_eq!(threads(&wrong).len(), threads(&pair.live).len());
            for thread in threads(&wrong) {
                let name = thread["start_function"].as_str().unwrap_or_default();
                assert!(!name.ends_with("_start"), "a name from the wrong file: {name}");
            }
        }
        std::fs::rename(&moved, &program).unwrap();
    }
}

#[test]
fn libraries_below_a_sysroot() {
    let public = Public::new();
    let program = public.copy(&Build::new("threads_truth.c").variant(Variant::Default).path(), "program");
    let root = tempfile::tempdir().unwrap();
    let Some(pair) = dump("cores::libraries_below_a_sysroot", &program, &[], Writer::Kernel) else { return };
    let core = pair.core.name();
    let in_root = |path: &str| root.path().join(path.trim_start_matches('/'));
    // An empty one: the files of this machine are right, and are shown to be.
    compare(&pair, &tool().look("threads", &core, &["--sysroot", &root.path().to_string_lossy()]), Writer::Kernel);
    // One that has another file under libc's name: the right one is still found, and nothing is said.
    let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc =
        libc.lines().find_map(|line| line.split_once('/').filter(|(_, path)| path.contains("libc.so"))).unwrap().1;
    std::fs::create_dir_all(in_root(libc).parent().unwrap()).unwrap();
    std::fs::copy(&program, in_root(libc)).unwrap();
    compare(&pair, &tool().look("threads", &core, &["--sysroot", &root.path().to_string_lossy()]), Writer::Kernel);
    // The program there and not at its place.
    let exe = pair.live["target"]["exe"].as_str().unwrap();
    std::fs::create_dir_all(in_root(exe).parent().unwrap()).unwrap();
    std::fs::rename(exe, in_root(exe)).unwrap();
    compare(&pair, &tool().look("threads", &core, &["--sysroot", &root.path().to_string_lossy()]), Writer::Kernel);

    let pid = std::process::id().to_string();
    let refused = tool().run(&["threads", &pid, "--sysroot", "/"]);
    assert!(refused.assert_refused().contains("core files"));
    let refused = tool().run(&["threads", &core, "--exe", "/nowhere"]);
    assert!(refused.assert_refused().contains("/nowhere"));
}

/// A program on a libc of its own, which is gone or another one by the time of the look: what is in the
/// core itself is enough for the threads, and the rest is said to be missing.
#[test]
fn libc_has_gone() {
    let public = Public::new();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = |name: &str| {
        let found = maps.lines().find_map(|line| line.split_once('/').filter(|(_, path)| path.contains(name)));
        format!("/{}", found.unwrap_or_else(|| panic!("no {name} in {maps}")).1)
    };
    let linker = public.copy(mapped("/ld-linux").as_ref(), "ld-linux-x86-64.so.2");
    let libc = public.copy(mapped("/libc.so").as_ref(), "libc.so.6");
    let flags =
        [format!("-Wl,--dynamic-linker={}", linker.display()), format!("-Wl,-rpath,{}", public.path().display())];
    let program = Build::new("threads_truth.c").flags(&flags).path();
    for writer in WRITERS {
        let Some(pair) = dump(by(writer), &program, &[], writer) else { continue };
        let core = pair.core.name();
        compare(&pair, &tool().look("threads", &core, &[]), writer);
        let away = public.path().join("away");
        std::fs::rename(&libc, &away).unwrap();
        let check = |words: &str| {
            let look = tool().look("threads", &core, &[]);
            assert!(gaps(&look).contains(words) && gaps(&look).contains("libc.so.6"), "{}", gaps(&look));
            assert_eq!(look["target"]["libc"]["layout"], "structural");
            for (live, dead) in threads(&pair.live).iter().zip(threads(&look)) {
                for field in ["id", "lwp", "start", "start_function", "stack", "syscall"] {
                    if live["lwp"] != pair.pid {
                        assert_eq!(live[field], dead[field], "{field} of {}", live["name"]);
                    }
                }
            }
            assert!(tool().run(&["tsd", &core]).assert_refused().contains("--sysroot"));
        };
        check("not found here");
        std::fs::copy(&linker, &libc).unwrap();
        check("its build ID differs");
        std::fs::remove_file(&libc).unwrap();
        // Found again below another root.
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join(libc.strip_prefix("/").unwrap());
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(&away, place).unwrap();
        compare(&pair, &tool().look("threads", &core, &["--sysroot", &root.path().to_string_lossy()]), writer);
        std::fs::rename(&away, &libc).unwrap();
    }
}

/// What a filter kept out is said to be missing; the threads and their registers are always there.
#[test]
fn filtered() {
    let program = Build::new("threads_truth.c").variant(Variant::Default).path();
    let dumped = |filter: &str| {
        let dumpable = Dumpable::start(&program, &[]).filtered(filter);
        let pair = dump_of("cores::filtered", dumpable, &[], Writer::Kernel)?;
        let look = tool().look("threads", &pair.core.name(), &[]);
        let alive = threads(&pair.live).iter().filter(|thread| !thread["lwp"].is_null());
        for live in alive.filter(|live| live["state"] == "sleep") {
            let dead = thread(&look, live["lwp"].as_i64().unwrap());
            for field in ["state", "pc", "sp", "syscall", "signal_mask", "pending"] {
                assert_eq!(live[field], dead[field], "{field} of {}", live["name"]);
            }
        }
        Some((pair, look))
    };
    // No memory but what the kernel always dumps.
    let Some((pair, look)) = dumped("0") else { return };
    assert!(gaps(&look).contains("the core lacks the memory"), "{}", gaps(&look));
    assert!(threads(&look).iter().all(|thread| thread["id"].is_null()), "{look:#}");
    tool().run(&["tsd", &pair.core.name()]).assert_refused();
    // Private memory without the headers of objects: nothing to compare a file with.
    let Some((pair, look)) = dumped("1") else { return };
    assert!(gaps(&look).contains("no build ID"), "{}", gaps(&look));
    assert_eq!(threads(&look).len(), threads(&pair.live).len());
    for (live, dead) in threads(&pair.live).iter().zip(threads(&look)) {
        assert_eq!((&live["id"], &live["start_function"]), (&dead["id"], &dead["start_function"]));
    }
}

/// A core cut at any place gives what is left of it, or one line.
#[test]
fn cut_short_anywhere() {
    let program = Build::new("many.c").variant(Variant::Default).path();
    for writer in WRITERS {
        let Some(pair) = dump(by(writer), &program, &["5"], writer) else { continue };
        let whole = std::fs::metadata(pair.core.path()).unwrap().len();
        let uncut = ["threads", "tsd"].map(|verb| tool().look(verb, &pair.core.name(), &[]));
        let count = threads(&uncut[0]).len();
        let cut = std::fs::OpenOptions::new().write(true).open(pair.core.path()).unwrap();
        let (mut partial, mut refused) = (0, 0);
        let pieces = (0..24).map(|step| whole - 1 - whole / 24 * step);
        let mut cuts: Vec<_> = pieces.chain((0..16).map(|step| 60_000 >> step)).chain([0]).collect();
        cuts.sort_unstable_by(|a, b| b.cmp(a));
        for len in cuts {
            cut.set_len(len).unwrap();
            for (verb, uncut) in ["threads", "tsd"].iter().zip(&uncut) {
                let answer = tool().run(&[verb, pair.core.name().as_str(), "--json"]);
                if answer.code != Some(0) {
                    answer.assert_refused();
                    refused += 1;
                    continue;
                }
                let look = answer.json();
                let said = gaps(&look).contains("cut short") || gaps(&look).contains("damaged");
                // The last bytes of gdb's are section headers, which nobody misses.
                assert!(said || look["threads"] == uncut["threads"], "{len} of {whole}: {}", gaps(&look));
                assert!(threads(&look).len() <= count);
                partial += usize::from(said);
            }
        }
        // gdb writes the notes last, so that nothing is left of a core of its that was cut.
        assert!(refused > 0 && (partial > 0 || writer == Writer::Gdb), "{writer:?}: {partial} {refused}");
    }
}

#[test]
fn files_that_are_no_cores() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_string_lossy().into_owned()
    };
    let elf = |class: u8, kind: u8, machine: u8| {
        let mut bytes = vec![0; 128];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        (bytes[16], bytes[18]) = (kind, machine);
        bytes
    };
    let fifo = dir.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (target, words) in [
        (file("empty", b""), "empty"),
        (file("text", b"hello, world"), "not an ELF"),
        (file("zst", b"\x28\xb5\x2f\xfd\0\0\0\0"), "zstd -d"),
        (file("lz4", b"\x04\x22\x4d\x18\0\0\0\0"), "lz4 -d"),
        (file("xz", b"\xfd7zXZ\0\0\0\0"), "xz -d"),
        (file("gz", b"\x1f\x8b\x08\0\0\0"), "gunzip"),
        (file("arm", &elf(2, 4, 183)), "aarch64"),
        (file("x86", &elf(1, 4, 3)), "32-bit"),
        (file("bare", &elf(2, 4, 62)), "no thread"),
        (file("short", b"\x7fELF\x02\x01"), "no thread"),
        (file("object", &elf(2, 1, 62)), "object file"),
        (env!("CARGO_BIN_EXE_tglass").to_owned(), "not a core"),
        (dir.path().to_string_lossy().into_owned(), "directory"),
        (fifo.to_string_lossy().into_owned(), "pipe"),
        ("/dev/null".to_owned(), "device"),
        ("/nowhere/core".to_owned(), "no such file"),
        ("core.of.nobody".to_owned(), "no such file"),
    ] {
        for verb in ["threads", "tsd"] {
            let answer = tool().run(&[verb, &target]);
            let line = answer.assert_refused();
            assert!(line.contains(words) && line.contains(&target), "{line}");
        }
    }
}

/// Anyone who may read the file can look; nobody else, and that is said.
#[test]
fn as_an_ordinary_user() {
    let test = "cores::as_an_ordinary_user";
    if !is_root(test, "to become another user") || !have(test, "setpriv") {
        return;
    }
    let public = Public::new();
    let program = public.copy(&Build::new("threads_truth.c").variant(Variant::Default).path(), "program");
    let tglass = public.copy(env!("CARGO_BIN_EXE_tglass").as_ref(), "tglass");
    let Some(pair) = dump(test, &program, &[], Writer::Kernel) else { return };
    let core = public.copy(pair.core.path(), "core");
    let look = || {
        let mut command = as_user(NOBODY, &tglass);
        command.arg("threads").arg(&core).arg("--json");
        testkit::Answer::of(command)
    };
    compare(&pair, &look().json(), Writer::Kernel);
    std::os::unix::fs::chown(&core, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&core, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(look().assert_refused().contains("permission denied"));
}

#[test]
fn filters_work_on_what_a_core_has() {
    let program = Build::new("threads_truth.c").variant(Variant::Default).path();
    let test = "cores::filters_work_on_what_a_core_has";
    let Some(pair) = dump(test, &program, &[], Writer::Kernel) else { return };
    let masked = tool().look("threads", &pair.core.name(), &["--sigmask", "SIGUSR1,SIGUSR2,SIGRTMIN+3,SIGRTMIN+30"]);
    assert_eq!(threads(&masked).len(), 1, "{masked:#}");
}

/// Ended when this is dropped.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server of the distribution, dumped by gcore.
#[test]
fn memcached() {
    let test = "cores::memcached";
    if !have(test, "memcached") || !have(test, "gcore") {
        return;
    }
    let public = Public::new();
    let socket = public.writable().join("socket");
    let mut command = std::process::Command::new("memcached");
    command.arg("-s").arg(&socket).args(["-t", "4", "-m", "8"]).stdin(std::process::Stdio::null());
    if testkit::root() {
        command.args(["-u", "nobody"]);
    }
    let server = Server(command.spawn().unwrap());
    let pid = server.0.id() as i32;
    let tasks = || -> Vec<i32> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        tasks.map(|task| task.unwrap().file_name().to_string_lossy().parse().unwrap()).collect()
    };
    testkit::eventually("memcached should come to rest", || {
        let before = tasks();
        before.iter().for_each(|lwp| testkit::wait_asleep(pid, *lwp));
        socket.exists() && before.len() > 5 && tasks().len() == before.len()
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(format!("core.{pid}"));
    // Some of its threads wake now and then: of five pairs of a look and a core one has nothing between the two.
    any_of(5, || {
        let live = look_at_live(pid);
        let gcore =
            std::process::Command::new("gcore").arg("-o").arg(dir.path().join("core")).arg(pid.to_string()).output();
        if !path.exists() {
            testkit::skip(test, &format!("gcore wrote no core: {gcore:?}"));
            return Ok(());
        }
        let core = tool().look("threads", &path.to_string_lossy(), &[]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(threads(&live).len(), threads(&core).len());
        for alive in threads(&live) {
            let dead = thread(&core, alive["lwp"].as_i64().unwrap());
            assert_eq!(alive["id"], dead["id"], "{}", alive["name"]);
            for field in ["pc", "sp", "start", "start_function", "detached", "syscall", "state"] {
                let is_asleep = alive["syscall"]["name"] == "futex" || alive["syscall"]["name"] == "epoll_wait";
                ensure(!is_asleep || alive[field] == dead[field], || {
                    format!("{field} of {} was {}, is {}", alive["name"], alive[field], dead[field])
                })?;
            }
        }
        Ok(())
    });
}
