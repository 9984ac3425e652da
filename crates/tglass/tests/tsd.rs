//! `tglass tsd` against the keys and values that a program knows it has.

use std::collections::BTreeMap;
use testkit::{Build, Fixture, Tool, Value, Variant, has_static_libc, threads};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn agrees(variant: Variant) {
    if variant.is_static() && !has_static_libc(&format!("tsd::{variant:?}")) {
        return;
    }
    let fixture = Fixture::start(&Build::new("tsd.c").variant(variant).path(), &[]).settled();
    let truth = fixture.truth();
    let snapshot = tool().tsd(fixture.pid());
    assert_eq!(snapshot["gaps"].as_array().map(Vec::len), Some(0), "{:#}", snapshot["gaps"]);

    let told = truth["keys"].as_object().unwrap();
    let seen: BTreeMap<String, &Value> =
        snapshot["keys"].as_array().unwrap().iter().map(|key| (key["key"].to_string(), key)).collect();
    assert!(told.len() > 250 && told.contains_key("1023"), "the fixture should use the whole table");
    for (key, destructor) in told {
        let key_seen = seen.get(key).unwrap_or_else(|| panic!("key {key} is in use and was not seen"));
        let has_one = destructor[0] != "(nil)";
        assert_eq!(key_seen["destructor"], if has_one { destructor[0].clone() } else { Value::Null }, "key {key}");
        if variant.has_symbols() {
            let name = if has_one { destructor[1].clone() } else { Value::Null };
            assert_eq!(key_seen["destructor_function"], name, "key {key}");
        }
    }
    // libc and libraries may have keys of their own; this program links none that do.
    assert_eq!(seen.len(), told.len(), "keys that are not in use were seen");

    for truth in threads(truth) {
        let values: BTreeMap<String, String> = threads(&snapshot)
            .iter()
            .filter(|thread| thread["id"] == truth["id"] && thread["lwp"] == truth["lwp"])
            .flat_map(|thread| thread["values"].as_array().unwrap())
            .map(|value| (value["key"].to_string(), value["value"].as_str().unwrap().to_owned()))
            .collect();
        // A value that was set to null is not distinguishable from one that was never set in what
        // pthread_getspecific answers, so it may be left out; but nothing else may.
        let (mut told, mut seen) = (BTreeMap::new(), values);
        for (key, value) in truth["values"].as_object().unwrap() {
            match value.as_str().unwrap() {
                "(nil)" => assert!(matches!(seen.remove(key).as_deref(), None | Some("0x0")), "key {key}"),
                value => drop(told.insert(key.clone(), value.to_owned())),
            }
        }
        let differ = |a: &BTreeMap<String, String>, b: &BTreeMap<String, String>| {
            a.iter()
                .filter(|(key, value)| b.get(*key) != Some(value))
                .map(|(k, v)| format!("{k}={v}"))
                .collect::<Vec<_>>()
        };
        assert_eq!((differ(&told, &seen), differ(&seen, &told)), (vec![], vec![]), "missing and invented values");
    }
}

#[test]
fn position_independent() {
    agrees(Variant::Default);
}

#[test]
fn at_a_fixed_address() {
    agrees(Variant::NoPie);
}

#[test]
fn stripped() {
    agrees(Variant::Stripped);
}

#[test]
fn static_with_symbols() {
    agrees(Variant::Static);
}

/// Without symbols the table cannot be found: that is said, and nothing is invented.
#[test]
fn static_without_symbols() {
    if !has_static_libc("tsd::static_without_symbols") {
        return;
    }
    let path = Build::new("tsd.c").variant(Variant::StaticStripped).path();
    let fixture = Fixture::start(&path, &[]).settled();
    let answer = tool().run(&["tsd", &fixture.pid().to_string(), "--json"]);
    let line = answer.assert_refused();
    assert!(line.contains("stripped"), "says why: {line}");
}

#[test]
fn a_process_without_any_key() {
    let fixture = Fixture::new("pending.c").settled();
    let snapshot = tool().tsd(fixture.pid());
    assert_eq!((snapshot["keys"].as_array().unwrap().len(), threads(&snapshot).len()), (0, 0), "{snapshot:#}");
    assert_eq!(snapshot["gaps"].as_array().map(Vec::len), Some(0), "{snapshot:#}");
}
