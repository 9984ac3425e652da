//! Comparing a snapshot with what the fixture's threads said of themselves.

use crate::{Value, address, task_state};

/// How a fixture is looked at, which decides what can be compared.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Whether its functions have names.
    pub symbols: bool,
    /// Whether it lives in a pid namespace, so that it knows its threads by other numbers than we.
    pub inner: bool,
}

impl View {
    /// A program with symbols, beside us.
    pub const PLAIN: Self = Self { symbols: true, inner: false };
}

/// What differs between the fixture's truth and a snapshot of it; empty when they agree.
///
/// A list, not a panic: a look that came too early (the program was still on its way to sleep) can
/// be repeated, and one that stays wrong is shown with all its faults at once.
pub fn differences(truth: &Value, snapshot: &Value, view: View) -> Vec<String> {
    let (told, seen) = (crate::threads(truth), crate::threads(snapshot));
    let mut faults = Vec::new();
    if told.len() != seen.len() {
        faults.push(format!("{} threads exist, {} were seen", told.len(), seen.len()));
    }
    for truth in told {
        let role = truth["role"].as_str().unwrap_or_default();
        match seen.iter().filter(|thread| thread["id"] == truth["id"]).collect::<Vec<_>>()[..] {
            [thread] => one_thread(role, truth, thread, view, &mut faults),
            [] => faults.push(format!("{role}: {} was not seen", truth["id"])),
            _ => faults.push(format!("{role}: {} was seen twice", truth["id"])),
        }
    }
    for gap in snapshot["gaps"].as_array().into_iter().flatten() {
        faults.push(format!("a gap where nothing is missing: {gap}"));
    }
    faults
}

fn one_thread(role: &str, truth: &Value, thread: &Value, view: View, faults: &mut Vec<String>) {
    let mut differ = |what: &str, told: &Value, seen: &Value| {
        if told != seen {
            faults.push(format!("{role}: {what} is {told}, seen as {seen}"));
        }
    };
    differ("lwp", &truth["lwp"], &thread[if view.inner { "inner_lwp" } else { "lwp" }]);
    for name in ["state", "stack", "detached"] {
        differ(name, &truth[name], &thread[name]);
    }
    let flags = if truth["detached"] == true { 0x40 } else { 0 };
    differ("user_flags", &flags.into(), &thread["user_flags"]);
    differ("exiting", &false.into(), &thread["exiting"]);
    differ("type", &"user".into(), &thread["type"]);
    // The main thread was not started by a function of the program's.
    let has_start = truth["start"] != "(nil)";
    let start = if has_start { &truth["start"] } else { &Value::Null };
    differ("start", start, &thread["start"]);
    if view.symbols {
        let function = if has_start { &truth["start_function"] } else { &Value::Null };
        differ("start_function", function, &thread["start_function"]);
    }
    if truth["lwp"].is_null() {
        for name in ["lwp", "name", "pc", "sp", "syscall"] {
            differ(name, &Value::Null, &thread[name]);
        }
        return;
    }
    for name in ["name", "policy", "priority", "nice", "signal_mask", "pending"] {
        differ(name, &truth[name], &thread[name]);
    }
    if truth["state"] == "sleep" {
        differ("system call", &truth["call"], &thread["syscall"]["name"]);
        let (base, size) = (address(&truth["stack"]["base"]), truth["stack"]["size"].as_u64().unwrap_or(0));
        match &thread["sp"] {
            Value::Null => faults.push(format!("{role}: sleeps, but its stack pointer was not seen")),
            sp if (base - size..base).contains(&address(sp)) => {}
            sp => faults.push(format!("{role}: {sp} is not in its stack, {size} bytes below {base:#x}")),
        }
    }
}

/// The name of the file mapped where a sleeping thread's program counter points, by our own reading
/// of `maps`; checks on the way that the counter is the kernel's.
pub fn file_at_pc(pid: i32, thread: &Value) -> String {
    let pc = address(&thread["pc"]);
    let lwp = thread["lwp"].as_i64().unwrap_or(0) as i32;
    let call = task_state(pid, lwp).map(|task| task.call).unwrap_or_default();
    assert!(call.ends_with(&format!(" {pc:#x}")), "pc {pc:#x} is not what the kernel says: {call}");
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the fixture lives");
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, perms) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (from, to) = range.split_once('-').expect("a range of addresses");
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        if (number(from)..number(to)).contains(&pc) {
            assert!(perms.contains('x'), "pc {pc:#x} is not in code: {line}");
            return words.nth(3).unwrap_or_default().to_owned();
        }
    }
    panic!("pc {pc:#x} is not mapped");
}
