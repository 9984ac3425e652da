//! `tglass schema` describes what `--json` prints, and docs/json.md has every member of it and no other.

use std::collections::BTreeSet;
use testkit::{Build, Fixture, Tool, Value, Variant, serde_json};

fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

fn schema(args: &[&str]) -> Value {
    let answer = tool().run(&[&["schema"], args].concat());
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    answer.json()
}

/// A schema in which what it does not name is an error.
fn strict(mut schema: Value) -> jsonschema::Validator {
    for (_, definition) in schema["$defs"].as_object_mut().expect("definitions") {
        if definition["type"] == "object" {
            definition["unevaluatedProperties"] = false.into();
        }
    }
    let documents = schema["anyOf"].as_array().expect("documents");
    if let [document] = documents.as_slice() {
        // Faults are told in detail only where there is no choice.
        schema["$ref"] = document["$ref"].clone();
        schema.as_object_mut().expect("an object").remove("anyOf");
    }
    jsonschema::validator_for(&schema).expect("a schema")
}

#[test]
fn what_is_printed_is_as_described() {
    let build = |file| Build::new(file).variant(Variant::Default).path();
    let fixture = Fixture::start(&build("deadlocks.c"), &["writers"]).settled();
    let (deadlock, tsd) = (fixture.pid().to_string(), Fixture::new("tsd.c").settled());
    let tsd_pid = tsd.pid().to_string();
    let locks = tool().look("locks", &deadlock, &[]);
    let at = locks["objects"][0]["address"].as_str().expect("a lock").to_owned();
    let documents: [&[&str]; 9] = [
        &["why", &deadlock],
        &["threads", &deadlock, "--stacks"],
        &["locks", &deadlock, "--track=100ms"],
        &["contend", &deadlock, "-d", "100ms"],
        &["tsd", &tsd_pid],
        &["stats", &deadlock, "-i", "50ms"],
        &["profil", &deadlock, "--wait", "-d", "100ms"],
        &["set", &deadlock, &at, "0"],
        &["doctor", &deadlock],
    ];
    for args in documents {
        let answer = tool().run(&[args, &["--json"]].concat());
        assert!(matches!(answer.code, Some(0 | 1)), "{args:?}: {}", answer.stderr);
        let document = answer.json();
        let validator = strict(schema(&[args[0]]));
        let faults: Vec<String> =
            validator.iter_errors(&document).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
        assert!(faults.is_empty(), "{args:?}: {faults:#?}");
        let mut renamed = document.clone();
        renamed["scheme"] = renamed["schema"].take();
        assert!(!validator.is_valid(&renamed), "a schema that accepts everything: {args:?}");
    }
}

/// A member of a type: the name of its definition, and its own.
type Member = (String, String);

struct Types<'a> {
    definitions: &'a serde_json::Map<String, Value>,
}

impl<'a> Types<'a> {
    /// All objects that `node` may be, with the definition that each is a part of.
    fn objects(&self, node: &'a Value, definition: &'a str, found: &mut Vec<(&'a str, &'a Value)>) {
        if let Some(name) = node["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
            let (name, node) = self.definitions.get_key_value(name).expect("a definition");
            return self.objects(node, name, found);
        }
        for several in ["anyOf", "oneOf", "allOf"] {
            for one in node[several].as_array().into_iter().flatten() {
                self.objects(one, definition, found);
            }
        }
        if node["items"].is_object() {
            self.objects(&node["items"], definition, found);
        }
        if node["properties"].is_object() {
            found.push((definition, &node["properties"]));
        }
    }

    fn all(&self) -> BTreeSet<Member> {
        let mut found = Vec::new();
        for (name, node) in self.definitions {
            self.objects(node, name, &mut found);
        }
        let members = found.iter().flat_map(|(definition, properties)| {
            let names = properties.as_object().into_iter().flat_map(|properties| properties.keys());
            names.map(|name| ((*definition).to_owned(), name.clone()))
        });
        members.collect()
    }

    /// The members on the way of `path`, wherever it may begin.
    fn follow(&self, path: &[&str]) -> BTreeSet<Member> {
        let mut seen = BTreeSet::new();
        for (name, node) in self.definitions {
            let (mut nodes, mut way) = (vec![(name.as_str(), node)], BTreeSet::new());
            let leads = path.iter().all(|step| {
                let mut objects = Vec::new();
                nodes.iter().for_each(|(name, node)| self.objects(node, name, &mut objects));
                nodes = objects.iter().filter_map(|(name, all)| Some((*name, all.get(step)?))).collect();
                way.extend(nodes.iter().map(|(name, _)| ((*name).to_owned(), (*step).to_owned())));
                !nodes.is_empty()
            });
            if leads {
                seen.extend(way);
            }
        }
        seen
    }
}

/// The paths in the first cells of the tables of members: `.b` after `a.c` is `a.b`.
fn documented(page: &str) -> Vec<Vec<&str>> {
    let mut paths = Vec::new();
    let mut is_members = false;
    let page = page.split("## Reserved").next().unwrap_or_default();
    for line in page.lines() {
        let Some(cell) = line.strip_prefix("| ").and_then(|line| line.split(" | ").next()) else {
            is_members &= line.starts_with('|');
            continue;
        };
        if cell.starts_with("member") {
            is_members = true;
        } else if is_members {
            let mut last: Vec<&str> = Vec::new();
            for path in cell.split('`').skip(1).step_by(2) {
                let steps = path.trim_start_matches('.').split('.').map(|step| step.trim_end_matches("[]"));
                let before = if path.starts_with('.') { last.len().saturating_sub(1) } else { 0 };
                last = last[..before].iter().copied().chain(steps).collect();
                paths.push(last.clone());
            }
        }
    }
    paths
}

#[test]
fn every_member_is_documented_and_no_other() {
    let page = |name: &str| {
        let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let (page, statistics) = (page("json.md"), page("track.md"));
    let schema = schema(&[]);
    let types = Types { definitions: schema["$defs"].as_object().expect("definitions") };
    let mut paths = documented(&page);
    paths.extend(documented(&statistics));
    assert!(paths.len() > 100, "the tables are not found any more: {paths:?}");
    let unknown: Vec<String> =
        paths.iter().filter(|path| types.follow(path).is_empty()).map(|path| path.join(".")).collect();
    assert!(unknown.is_empty(), "docs/json.md has members that do not exist: {unknown:#?}");
    let seen: BTreeSet<Member> = paths.iter().flat_map(|path| types.follow(path)).collect();
    let missing: Vec<Member> = types.all().difference(&seen).cloned().collect();
    assert!(missing.is_empty(), "docs/json.md lacks {missing:#?}");
}
