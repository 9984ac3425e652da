//! Comparing the objects of a snapshot with what a fixture knows of its own.

use crate::{Value, address, threads};

/// How a program is looked at, which decides what has to be seen.
#[derive(Clone, Copy, Debug)]
pub struct SyncView {
    /// Whether variables have names and types, so that objects nobody waits for are known too.
    pub symbols: bool,
    /// Whether the functions that threads wait in can be told for sure. Where not, an object may be
    /// known by less evidence, or only as a word that threads wait on.
    pub functions: bool,
}

impl SyncView {
    /// A program with symbols and debug information, on a shared libc.
    pub const PLAIN: Self = Self { symbols: true, functions: true };
}

const NOTHING: &[Value] = &[];

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map_or(NOTHING, Vec::as_slice)
}

/// Whether something is more than a guess.
fn is_asserted(of: &Value) -> bool {
    of["evidence"] == "recorded" || of["evidence"] == "derived"
}

fn by_lwp<'a>(of: &'a [Value], lwp: &Value) -> Option<&'a Value> {
    of.iter().find(|one| one["lwp"] == *lwp)
}

/// Whether the object itself says who holds it.
fn records(object: &Value, holder: &Value) -> bool {
    match object["kind"].as_str() {
        Some("mutex") => object["family"] == "pthread",
        Some("rwlock") => object["family"] == "pthread" && holder["side"] == "write",
        kind => kind == Some("join"),
    }
}

/// What differs between the objects a fixture told of and a snapshot of it; empty when they agree. All
/// faults at once, because they explain each other.
pub fn sync_faults(truth: &Value, snapshot: &Value, view: SyncView) -> Vec<String> {
    let mut faults = Vec::new();
    let (told, seen) = (list(truth, "objects"), list(snapshot, "objects"));
    assert!(!told.is_empty(), "a fixture without objects");
    for truth in told {
        let name = truth["name"].as_str().unwrap_or_default();
        let begin = address(&truth["address"]);
        let place = begin..begin + truth["bytes"].as_u64().unwrap_or(1);
        let mut add = |fault: String| faults.push(format!("{name}: {fault}"));
        let here: Vec<&Value> = seen.iter().filter(|object| place.contains(&address(&object["address"]))).collect();
        let is_waited = list(truth, "waiters").iter().any(|waiter| waiter["spins"] != true);
        let right = here.iter().find(|object| object["address"] == truth["address"] && same_kind(truth, object));
        match (here.len(), right) {
            (1, Some(object)) => {
                one_object(truth, object, view, &mut add);
                the_holders(truth, object, snapshot, view, &mut add);
                the_threads(truth, &here, &mut add);
                for waiter in list(truth, "waiters").iter().filter(|waiter| waiter["spins"] != true) {
                    waits_for(truth, object, waiter, snapshot, &mut add);
                }
            }
            (0, _) if is_waited => add("was not seen, though it is waited for".to_owned()),
            (0, _) if truth["static"] == true && view.symbols => add("was not seen, though it has a name".to_owned()),
            (0, _) => {}
            // Where functions cannot be told, words of the object may stand beside it or for it.
            _ if !view.functions && here.iter().all(|object| is_word(object) || Some(object) == right) => {
                the_threads(truth, &here, &mut add);
                if let Some(object) = right {
                    the_holders(truth, object, snapshot, view, &mut add);
                }
            }
            _ => add(format!("is a {} at {begin:#x}, seen as {}", truth["kind"], short(&here))),
        }
    }
    // What is nobody's: it may be known, but not held or waited for.
    for object in seen {
        let at = address(&object["address"]);
        let is_told = told.iter().any(|truth| {
            let begin = address(&truth["address"]);
            (begin..begin + truth["bytes"].as_u64().unwrap_or(1)).contains(&at)
        });
        let busy = list(object, "holders").iter().chain(list(object, "waiters")).any(is_asserted);
        if !is_told && busy {
            faults.push(format!("an object that is none: {object}"));
        }
    }
    faults
}

fn is_word(object: &Value) -> bool {
    object["kind"] == "futex"
}

fn short(objects: &[&Value]) -> String {
    objects.iter().map(|object| format!("{} {} ", object["kind"], object["address"])).collect()
}

fn same_kind(truth: &Value, object: &Value) -> bool {
    // A word of C++'s is not told from what the library builds on it, unless somebody does better.
    truth["kind"] == object["kind"] || (truth["kind"] == "futex" && object["family"] == truth["family"])
}

fn one_object(truth: &Value, object: &Value, view: SyncView, add: &mut impl FnMut(String)) {
    const FIELDS: [&str; 16] = [
        "state",
        "shared",
        "type",
        "robust",
        "protocol",
        "recursion",
        "ceiling",
        "inside",
        "preference",
        "readers",
        "writer_queued",
        "count",
        "needed",
        "arrived",
        "value",
        "family",
    ];
    for field in FIELDS {
        let (told, seen) = (&truth[field], &object[field]);
        // The truth is silent about what the object does not record.
        let is_open = is_word(truth) && (field == "state" || field == "family");
        let is_unknown = !view.functions && (seen.is_null() || seen == "unknown");
        if !told.is_null() && told != seen && !is_open && !is_unknown {
            add(format!("{field} is {told}, seen as {seen}"));
        }
    }
    if truth["ceiling"].is_null() && !object["ceiling"].is_null() {
        add(format!("has no ceiling, seen as {}", object["ceiling"]));
    }
    if !object["mutex"].is_null() && truth["mutex"] != object["mutex"] && truth["kind"] == "cond" {
        let is_silent = truth["mutex"].is_null() && truth["family"] != "pthread";
        if !is_silent {
            add(format!("its mutex is {}, seen as {}", truth["mutex"], object["mutex"]));
        }
    }
    let has_size = truth["family"] == "pthread" && truth["kind"] != "join";
    let is_unknown = !view.functions && object["size"].is_null();
    if has_size && truth["bytes"] != object["size"] && !is_unknown {
        add(format!("takes {} bytes, seen as {}", truth["bytes"], object["size"]));
    }
    // Weak: the call comes from a library that may jump to it, which leaves no trace. Without a name and
    // without a waiter, an object has nothing but its contents to be known by.
    let has_waiters = truth["waiters"].as_array().is_some_and(|waiters| !waiters.is_empty());
    let can_be_known = view.functions && truth["weak"] != true && (view.symbols || has_waiters);
    if can_be_known && truth["family"] == "pthread" && !is_asserted(object) {
        add(format!("its kind is only {}", object["evidence"]));
    }
    if view.symbols && truth["static"] == true {
        let last = truth["name"].as_str().unwrap_or_default().rsplit("::").next().unwrap_or_default().to_owned();
        if !object["name"].as_str().is_some_and(|name| name.contains(&last)) {
            add(format!("is called {}", object["name"]));
        }
    }
}

fn the_holders(truth: &Value, object: &Value, snapshot: &Value, view: SyncView, add: &mut impl FnMut(String)) {
    let (told, seen) = (list(truth, "holders"), list(object, "holders"));
    for holder in seen {
        match by_lwp(told, &holder["lwp"]) {
            Some(told) if told["side"] == holder["side"] => {}
            Some(told) => add(format!("{} holds it {}, seen as {}", holder["lwp"], told["side"], holder["side"])),
            // The one who died with it may be named, but not as a living one.
            None if holder["status"] == "gone" && holder["lwp"] == truth["gone"] => {}
            None if is_asserted(holder) => add(format!("does not have the holder {holder}")),
            // A guess, but of a thread that is there.
            None if by_lwp(threads(snapshot), &holder["lwp"]).is_none() => add(format!("guessed nobody: {holder}")),
            None => {}
        }
    }
    for told in told.iter().filter(|holder| records(truth, holder)) {
        let Some(holder) = by_lwp(seen, &told["lwp"]) else {
            add(format!("is held by {}, seen with {seen:?}", told["lwp"]));
            continue;
        };
        if view.functions && !is_asserted(holder) {
            add(format!("the holder is only {}", holder["evidence"]));
        }
        let is_other = told["status"] == "other_process";
        let status = if is_other { "other_process" } else { "alive" };
        if holder["status"] != status {
            add(format!("its holder is {status}, seen as {}", holder["status"]));
        }
        if truth["kind"] == "join" {
            // Nobody says that it holds its own end.
            continue;
        }
        if is_other {
            if holder["pid"] != told["pid"] {
                add(format!("its holder is in {}, seen in {}", told["pid"], holder["pid"]));
            }
            continue;
        }
        let holds = by_lwp(threads(snapshot), &told["lwp"]).map_or(NOTHING, |thread| list(thread, "holds"));
        if !holds.iter().any(|held| held["address"] == truth["address"] && held["side"] == told["side"]) {
            add(format!("is not among what {} holds: {holds:?}", told["lwp"]));
        }
    }
}

/// Who waits, on any of the objects that this one was seen as.
fn the_threads(truth: &Value, objects: &[&Value], add: &mut impl FnMut(String)) {
    let told = list(truth, "waiters");
    let mut found = Vec::new();
    for object in objects {
        for waiter in list(object, "waiters") {
            let Some(told) = by_lwp(told, &waiter["lwp"]) else {
                if is_asserted(waiter) {
                    add(format!("{} does not wait for it: {waiter}", waiter["lwp"]));
                }
                continue;
            };
            found.push(&told["lwp"]);
            for field in ["side", "timed"] {
                let is_unknown = object["kind"] == "futex" && field == "side";
                if told[field] != waiter[field] && !is_unknown {
                    add(format!("{field} of {} is {}, seen as {}", told["lwp"], told[field], waiter[field]));
                }
            }
            if waiter["stable"] != true && told["spins"] != true {
                add(format!("{} sleeps, and was seen to move", told["lwp"]));
            }
        }
    }
    for told in told.iter().filter(|waiter| waiter["spins"] != true) {
        match found.iter().filter(|lwp| ***lwp == told["lwp"]).count() {
            1 => {}
            0 => add(format!("{} waits for it and was not seen", told["lwp"])),
            _ => add(format!("{} was seen waiting twice", told["lwp"])),
        }
    }
}

/// The same wait, told by the thread.
fn waits_for(truth: &Value, object: &Value, waiter: &Value, snapshot: &Value, add: &mut impl FnMut(String)) {
    let Some(thread) = by_lwp(threads(snapshot), &waiter["lwp"]) else {
        return add(format!("its waiter {} is no thread", waiter["lwp"]));
    };
    let wait = &thread["waits_for"];
    let same = wait["address"] == truth["address"]
        && wait["kind"] == object["kind"]
        && ["side", "timed"].iter().all(|field| wait[field] == waiter[field]);
    if !same {
        add(format!("{} waits for it, and says {wait}", waiter["lwp"]));
    }
    for holder in list(truth, "holders").iter().filter(|holder| records(truth, holder)) {
        if !list(wait, "held_by").contains(&holder["lwp"]) {
            add(format!("{} waits for {}, and says {wait}", waiter["lwp"], holder["lwp"]));
        }
    }
}
