//! The comparisons of locks and findings accept a snapshot that says exactly what a fixture knows, and find
//! every single thing that is changed in it.

use testkit::{Build, Fixture, SyncView, Value, Variant, finding_faults, json, sync_faults};

/// What a look without a fault would say.
fn perfect(truth: &Value) -> Value {
    let mut threads: Vec<Value> = Vec::new();
    let mut objects = truth["objects"].clone();
    for object in objects.as_array_mut().unwrap() {
        let (address, kind) = (object["address"].clone(), object["kind"].clone());
        object["evidence"] = "derived".into();
        object["size"] = object["bytes"].take();
        let holders = object["holders"].as_array_mut().unwrap();
        let held_by: Vec<Value> = holders.iter().map(|holder| holder["lwp"].clone()).collect();
        for holder in holders {
            holder["evidence"] = "recorded".into();
            holder["status"] = "alive".into();
            let held = json!({"address": address, "kind": kind, "side": holder["side"]});
            match threads.iter_mut().find(|thread| thread["lwp"] == holder["lwp"]) {
                Some(thread) => thread["holds"].as_array_mut().unwrap().push(held),
                None => threads.push(json!({"lwp": holder["lwp"], "holds": [held]})),
            }
        }
        for waiter in object["waiters"].as_array_mut().unwrap() {
            waiter["evidence"] = "derived".into();
            waiter["stable"] = true.into();
            let wait = json!({"address": address, "kind": kind, "side": waiter["side"], "timed": waiter["timed"],
                "held_by": held_by});
            match threads.iter_mut().find(|thread| thread["lwp"] == waiter["lwp"]) {
                Some(thread) => thread["waits_for"] = wait,
                None => threads.push(json!({"lwp": waiter["lwp"], "holds": [], "waits_for": wait})),
            }
        }
    }
    json!({"objects": objects, "threads": threads})
}

fn start(file: &str, args: &[&str]) -> Fixture {
    Fixture::start(&Build::new(file).variant(Variant::Default).path(), args)
}

#[test]
fn objects() {
    for file in ["sync_mutexes.c", "sync_rwlocks.c", "sync_kinds.c", "sync_spin.c", "sync_cxx.cc", "sync_rust.rs"] {
        let fixture = start(file, &[]);
        let truth = fixture.truth();
        let right = perfect(truth);
        assert_eq!(sync_faults(truth, &right, SyncView::PLAIN), Vec::<String>::new(), "{file}");
        for index in 0..truth["objects"].as_array().unwrap().len() {
            let told = &truth["objects"][index];
            let wrong = |what: &str, change: &dyn Fn(&mut Value)| {
                let mut snapshot = right.clone();
                change(&mut snapshot["objects"][index]);
                let faults = sync_faults(truth, &snapshot, SyncView::PLAIN);
                assert!(!faults.is_empty(), "{file}: {} with another {what} was accepted", told["name"]);
            };
            for field in ["state", "type", "readers", "count", "arrived", "recursion", "inside", "preference"] {
                if !told[field].is_null() && told["kind"] != "futex" {
                    wrong(field, &|object| object[field] = "other".into());
                }
            }
            wrong("kind", &|object| {
                object["kind"] = "other".into();
                object["family"] = "other".into();
            });
            wrong("holder", &|object| {
                let stranger = json!({"lwp": 1, "side": null, "status": "alive", "evidence": "recorded"});
                object["holders"].as_array_mut().unwrap().push(stranger);
            });
            wrong("waiter", &|object| {
                let stranger = json!({"lwp": 1, "side": null, "timed": false, "stable": true, "evidence": "derived"});
                object["waiters"].as_array_mut().unwrap().push(stranger);
            });
            if told["waiters"].as_array().unwrap().iter().any(|waiter| waiter["spins"] != true) {
                wrong("list of waiters", &|object| object["waiters"] = json!([]));
                wrong("time limit", &|object| object["waiters"][0]["timed"] = Value::Null);
            }
            let is_recorded = told["kind"] == "mutex" && told["family"] == "pthread";
            if is_recorded && !told["holders"].as_array().unwrap().is_empty() {
                wrong("list of holders", &|object| object["holders"] = json!([]));
            }
            if told["static"] == true {
                let mut snapshot = right.clone();
                snapshot["objects"].as_array_mut().unwrap().remove(index);
                let faults = sync_faults(truth, &snapshot, SyncView::PLAIN);
                assert!(!faults.is_empty(), "{file}: {} is missing", told["name"]);
            }
        }
    }
}

#[test]
fn findings() {
    for (file, args) in [
        ("deadlocks.c", &["philosophers"][..]),
        ("deadlocks.c", &["two_cycles"]),
        ("deadlocks.c", &["self"]),
        ("deadlocks.c", &["owner_exited"]),
        ("deadlock_cxx.cc", &[]),
        ("deadlock_rust.rs", &["arc"]),
        ("deadlock_forked.c", &["own"]),
    ] {
        let fixture = start(file, args);
        let truth = fixture.truth();
        let mut right = truth.clone();
        for finding in right["findings"].as_array_mut().unwrap() {
            finding["certainty"] = finding["certainty"][0].clone();
            finding["text"] = "".into();
        }
        assert_eq!(finding_faults(truth, &right), Vec::<String>::new(), "{file} {args:?}");
        let wrong = |what: &str, change: &dyn Fn(&mut Value)| {
            let mut snapshot = right.clone();
            change(&mut snapshot["findings"]);
            assert!(!finding_faults(truth, &snapshot).is_empty(), "{file} {args:?}: {what} was accepted");
        };
        wrong("nothing", &|findings| *findings = json!([]));
        wrong("another thread", &|findings| findings[0]["threads"][0] = 1.into());
        wrong("another object", &|findings| findings[0]["objects"][0] = "0x10".into());
        wrong("somebody behind it", &|findings| findings[0]["behind"].as_array_mut().unwrap().push(1.into()));
        wrong("another certainty", &|findings| findings[0]["certainty"] = "guessed".into());
        wrong("one more", &|findings| {
            let more = json!({"kind": "deadlock", "certainty": "likely", "threads": [1, 2], "objects": ["0x1", "0x2"]});
            findings.as_array_mut().unwrap().push(more);
        });
        // A circle has no beginning, but it has a direction.
        let mut turned = right.clone();
        for field in ["threads", "objects"] {
            turned["findings"][0][field].as_array_mut().unwrap().rotate_left(1);
        }
        assert_eq!(finding_faults(truth, &turned), Vec::<String>::new());
        if truth["findings"][0]["threads"].as_array().unwrap().len() > 1 {
            wrong("the other direction", &|findings| findings[0]["threads"].as_array_mut().unwrap().reverse());
        }
    }
}
