//! Comparing what the tool says of locks with what a fixture says of them: who waits, who holds, and in which circle.

use crate::{Tool, thread};
use serde_json::Value;

/// How the answers about `target` differ from `truth`.
///
/// `truth` has `waiters` (`lwp`, `kind`, `address`, and `side` and `timed` where they matter), `holders` (`address`,
/// `state`, `lwps`) and `deadlock` (LWPs, or none). A holder that is not named is a fault, unless `may_miss`; one that
/// is wrong always is.
pub fn lock_faults(tool: &Tool, target: &str, truth: &Value, may_miss: bool) -> Vec<String> {
    let seen = tool.look("locks", target, &["--all"]);
    let mut faults: Vec<String> = list(&truth["waiters"]).iter().filter_map(|told| waiter_fault(&seen, told)).collect();
    faults.extend(list(&truth["holders"]).iter().filter_map(|told| holder_fault(&seen, told, may_miss)));
    let answer = tool.run(&["why", target, "--json"]);
    let why = answer.json();
    let is_circle = |finding: &&Value| finding["kind"] == "deadlock" || finding["kind"] == "self_deadlock";
    let circles: Vec<Vec<i64>> =
        list(&why["findings"]).iter().filter(is_circle).map(|it| lwps(&it["threads"])).collect();
    let told = lwps(&truth["deadlock"]);
    if circles.iter().any(|circle| *circle != told) || circles.is_empty() && !told.is_empty() && !may_miss {
        faults.push(format!("deadlocks: {circles:?}, in truth {told:?}: {:#}", why["findings"]));
    }
    faults
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn lwps(value: &Value) -> Vec<i64> {
    let mut lwps: Vec<i64> = list(value).iter().filter_map(Value::as_i64).collect();
    lwps.sort_unstable();
    lwps
}

fn waiter_fault(seen: &Value, told: &Value) -> Option<String> {
    let wait = &thread(seen, told["lwp"].as_i64().unwrap_or(0))["waits_for"];
    let is_same = |member: &str| told[member].is_null() || told[member] == "" || wait[member] == told[member];
    let fits = ["kind", "address", "side", "timed"].into_iter().all(is_same);
    (!fits).then(|| format!("{told} waits for {wait}"))
}

fn holder_fault(seen: &Value, told: &Value, may_miss: bool) -> Option<String> {
    let Some(object) = list(&seen["objects"]).iter().find(|object| object["address"] == told["address"]) else {
        return Some(format!("{told} is not listed"));
    };
    let mut named: Vec<i64> = list(&object["holders"]).iter().filter_map(|holder| holder["lwp"].as_i64()).collect();
    named.sort_unstable();
    let right = lwps(&told["lwps"]);
    let fits = named == right || may_miss && named.iter().all(|lwp| right.contains(lwp));
    (!fits || object["state"] != told["state"]).then(|| format!("{told}: {object:#}"))
}
