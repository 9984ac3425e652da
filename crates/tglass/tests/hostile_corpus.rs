//! Processes and cores that are written to harm whoever looks: every look at them ends soon, in little memory, and
//! says what it has left out.

mod hostile_cores;

use hostile_cores::HostileCore;
use serde_json::Value;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use table::decode::HEADER_SIZE;
use table::{Header, Key, Kind, MAGIC, UNIT, VERSION, size, state};
use testkit::{Answer, Build, Fixture, Variant};

/// Seconds of CPU time for one look. What decodes is built with optimisation for tests, too; what prints is not.
const CPU: u64 = if cfg!(debug_assertions) { 20 } else { 10 };
/// Kilobytes of memory for one look.
const MEMORY: u64 = 1 << 20;

/// Everything that looks.
const LOOKS: [&[&str]; 5] = [&["why"], &["threads"], &["threads", "--stacks"], &["locks", "--all"], &["tsd"]];

/// Runs the tool where the kernel ends it if it takes more than it may.
fn look(target: &str, verb: &[&str], json: bool) -> Answer {
    let limits = format!("ulimit -c 0; ulimit -t {CPU} && ulimit -d {MEMORY} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limits, env!("CARGO_BIN_EXE_tglass")]).args(verb).arg(target);
    if json {
        command.arg("--json");
    }
    Answer::of(command)
}

/// Looks in all ways, by turns as text and as JSON, which cost the same but for the writing. `told` says for each way what
/// a gap must say, or nothing where the look has no need to leave anything out.
fn looks(target: &str, told: [&str; 5]) {
    for (number, (verb, told)) in LOOKS.iter().zip(told).enumerate() {
        let json = number % 2 == 0;
        let answer = look(target, verb, json);
        assert!(matches!(answer.code, Some(0..=2)), "{verb:?}: {:?} {}", answer.code, answer.stderr);
        assert!(!answer.stderr.contains("panicked"), "{verb:?}: {}", answer.stderr);
        if answer.code == Some(2) {
            assert!(*verb == ["tsd"] && told.is_empty(), "{verb:?}: {}", answer.stderr);
            continue;
        }
        let says = |text: &str| text.contains(told);
        let is_told = match json {
            true => answer.json()["gaps"].as_array().is_some_and(|gaps| gaps.iter().any(|gap| tells(gap, &says))),
            false => says(&answer.text()),
        };
        assert!(told.is_empty() || is_told, "{verb:?}, {json}: no word of {told}:\n{:.4000}", answer.text());
    }
}

fn tells(gap: &Value, says: &dyn Fn(&str) -> bool) -> bool {
    ["what", "why"].iter().any(|part| gap[*part].as_str().is_some_and(says))
}

fn live(file: &str, args: &[&str], told: [&str; 5]) {
    let fixture = Fixture::start(&Build::new(file).variant(Variant::Default).path(), args);
    looks(&fixture.pid().to_string(), told);
}

fn core(core: &HostileCore, told: [&str; 5]) {
    looks(&core.path(), told);
}

/// The time for a look is up.
const LATE: &str = "the look used its 6 s of CPU time";

#[test]
fn unwind_rules_that_take_long_everywhere() {
    live("hostile_unwind.c", &["slow", "100"], [LATE, LATE, LATE, LATE, ""]);
}

#[test]
fn an_unwind_rule_without_an_end() {
    let told = "one of its entries is too long";
    live("hostile_unwind.c", &["long", "8"], [told, told, told, told, ""]);
}

#[test]
fn very_many_unwind_tables() {
    let told = "already read the tables of too many files";
    live("hostile_unwind.c", &["many", "16"], [told, told, told, told, ""]);
}

#[test]
fn an_unwind_table_without_an_index() {
    live("hostile_unwind.c", &["bare", "4"], ["no index", "no index", "no index", "no index", ""]);
}

#[test]
fn robust_lists_without_an_end() {
    live("hostile_lists.c", &["robust", "200"], ["", "", "", "robust mutexes", ""]);
}

#[test]
fn very_many_mappings_and_objects() {
    live("hostile_lists.c", &["maps", "50"], [""; 5]);
}

#[test]
fn very_many_values_of_keys() {
    live("hostile_lists.c", &["keys", "2500"], ["", "", "", "", "thread-specific data of"]);
}

#[test]
fn a_list_of_threads_without_an_end() {
    let told = "list of threads has more than";
    live("hostile_lists.c", &["nodes", "4"], [told; 5]);
}

/// Each wait that leaves the process asks who of all processes is at its other end.
#[test]
fn very_many_waits_that_leave_the_process() {
    live("hostile_waits.c", &["flock", "1500"], [""; 5]);
    live("hostile_waits.c", &["recv", "1500"], [""; 5]);
}

#[test]
fn cores_with_more_threads_than_any() {
    let told = "the first 131072 are kept";
    core(&hostile_cores::threads(200_000), [told, told, told, told, ""]);
}

#[test]
fn cores_with_endless_lists_of_files() {
    let told = "the list of mapped files";
    core(&hostile_cores::file_list(500_000), [told, told, told, told, ""]);
}

#[test]
fn cores_with_long_names_everywhere() {
    let told = "files of some mappings";
    core(&hostile_cores::long_names(200_000), [told, told, told, told, ""]);
}

#[test]
fn cores_in_pieces_of_one_byte() {
    core(&hostile_cores::pieces(600_000, 20_000), [""; 5]);
}

#[test]
fn cores_with_names_that_do_not_end() {
    core(&hostile_cores::symbols(500), [""; 5]);
}

/// Where the areas of the agent's table are.
const ENTRIES: u64 = 0x1000_0000_0000;
const OBJECTS: u64 = 0x2000_0000_0000;
const INDEX: u64 = 0x3000_0000_0000;
/// Objects that differ from one another; the table has them again and again.
const DISTINCT: u64 = 1 << 20;

/// A table that is as large as one can be, of mutexes that nobody has.
fn agents_table(dir: &Path) -> (PathBuf, String) {
    let mut header = vec![0; HEADER_SIZE];
    header[..8].copy_from_slice(&MAGIC);
    let units = size::units(size::MOST) as u64;
    let numbers = [
        (offset_of!(Header, version), VERSION),
        (offset_of!(Header, header_size), HEADER_SIZE as u32),
        (offset_of!(Header, entry_size), UNIT as u32),
        (offset_of!(Header, extra_size), size_of::<table::Extra>() as u32),
        (offset_of!(Header, state), state::READY),
    ];
    for (at, number) in numbers {
        header[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    let words = [
        (offset_of!(Header, index), INDEX),
        (offset_of!(Header, index_slots), 1024),
        (offset_of!(Header, entries), ENTRIES),
        (offset_of!(Header, units), u64::MAX),
        (offset_of!(Header, next_unit), u64::MAX),
        (offset_of!(Header, extras), ENTRIES),
        (offset_of!(Header, extra_room), u64::MAX),
        (offset_of!(Header, next_extra), u64::MAX),
    ];
    for (at, word) in words {
        header[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let (mut entries, mut objects) = (Vec::new(), Vec::new());
    for number in 0..DISTINCT {
        let mut entry = [0; UNIT];
        entry[..8].copy_from_slice(&Key::new(OBJECTS + number * 64, Kind::Mutex).0.to_le_bytes());
        entry[8..12].copy_from_slice(&(number as u32).to_le_bytes());
        entries.extend(entry);
        // Locked, by somebody else each time.
        let mut mutex = [0; 64];
        mutex[0] = 1;
        mutex[8..12].copy_from_slice(&(100_000 + number as u32).to_le_bytes());
        mutex[12] = 1;
        objects.extend(mutex);
    }
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let path = write("header", &header);
    let (entries, objects) = (write("entries", &entries), write("objects", &objects));
    let index = write("index", &vec![1; 4096]);
    let times = units.div_ceil(DISTINCT);
    let areas = format!(
        "{} {ENTRIES:x} {times} {} {OBJECTS:x} 1 {} {INDEX:x} 1",
        entries.display(),
        objects.display(),
        index.display()
    );
    (path, areas)
}

#[test]
fn an_agents_table_as_large_as_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let (header, areas) = agents_table(dir.path());
    let agent = Build::new("hostile_threadglass-agent.c").variant(Variant::Library).path();
    let mut command = Command::new(Build::new("many.c").variant(Variant::Default).path());
    command.arg("4").env("LD_PRELOAD", agent).env("HOSTILE_HEADER", header).env("HOSTILE_AREAS", areas);
    let fixture = Fixture::command(command);
    looks(&fixture.pid().to_string(), ["", "", "", "entries of the agent's table", ""]);
    // What counts for a while reads the table again and again.
    for json in [false, true] {
        let answer = look(&fixture.pid().to_string(), &["contend", "-d", "200ms"], json);
        assert!(matches!(answer.code, Some(0 | 2)), "{answer:?}");
    }
}
