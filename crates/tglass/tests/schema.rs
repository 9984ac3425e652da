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
    let acts = |args: &[&str]| args[0] == "contend" || args.iter().any(|arg| arg.starts_with("--track"));
    let can_trace = testkit::can_trace(testkit::part("commands that inject the agent"));
    for args in documents.into_iter().filter(|args| can_trace || !acts(args)) {
        let answer = tool().run(&[args, &["--json"]].concat());
        assert!(matches!(answer.code, Some(0 | 1)), "{args:?}: {}", answer.stderr);
        let document = answer.json();
        let schema = schema(&[args[0]]);
        let types = Types::of(&schema);
        let is_described = |document: &Value| {
            let each = schema["anyOf"].as_array().expect("documents").iter();
            each.map(|one| types.fault(one, document, ""))
                .find(Option::is_none)
                .unwrap_or_else(|| types.fault(&schema["anyOf"][0], document, ""))
        };
        assert_eq!(is_described(&document), None, "{args:?}");
        let mut renamed = document.clone();
        renamed["scheme"] = renamed["schema"].take();
        assert_ne!(is_described(&renamed), None, "a schema that accepts everything: {args:?}");
    }
}

/// A member of a type: the name of its definition, and its own.
type Member = (String, String);

struct Types<'a> {
    definitions: &'a serde_json::Map<String, Value>,
}

impl<'a> Types<'a> {
    fn of(schema: &'a Value) -> Self {
        Self { definitions: schema["$defs"].as_object().expect("definitions") }
    }

    /// What is wrong with `value`, seen as `node`: a member that is missing or that nobody described, or another type.
    fn fault(&self, node: &'a Value, value: &Value, at: &str) -> Option<String> {
        if let Some(name) = node["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
            return self.fault(&self.definitions[name], value, at);
        }
        let bad = |what: &str| Some(format!("{at}: {what}: {value}"));
        let choice = node["anyOf"].as_array().or(node["oneOf"].as_array());
        if let (Some(choice), false) = (choice, node["properties"].is_object()) {
            let faults: Vec<_> = choice.iter().map(|one| self.fault(one, value, at)).collect();
            return if faults.contains(&None) { None } else { faults.into_iter().flatten().next() };
        }
        let types: Vec<&str> = match &node["type"] {
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let is_type = |name: &&str| match *name {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            _ => value.is_null(),
        };
        if !types.is_empty() && !types.iter().any(is_type) {
            return bad("not of its type");
        }
        let is_word = |words: &Value| words.as_array().is_none_or(|words| words.contains(value));
        if !is_word(&node["enum"]) || !(node["const"].is_null() || node["const"] == *value) {
            return bad("not one of its words");
        }
        match value {
            Value::Array(items) => items
                .iter()
                .enumerate()
                .find_map(|(index, item)| self.fault(node.get("items")?, item, &format!("{at}[{index}]"))),
            Value::Object(members) if types.contains(&"object") => {
                let mut described = Vec::new();
                self.objects(node, "", &mut described);
                let missing = node["required"].as_array().into_iter().flatten();
                let missing = missing.filter_map(Value::as_str).find(|name| !members.contains_key(*name));
                missing.map(|name| format!("{at}: lacks {name}")).or_else(|| {
                    members.iter().find_map(|(name, member)| {
                        let nodes = described.iter().filter_map(|(_, all)| all.get(name));
                        let faults: Vec<_> =
                            nodes.map(|node| self.fault(node, member, &format!("{at}.{name}"))).collect();
                        match faults.first() {
                            None => Some(format!("{at}: {name} is not described")),
                            _ if faults.contains(&None) => None,
                            Some(fault) => fault.clone(),
                        }
                    })
                })
            }
            _ => None,
        }
    }

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

fn page(name: &str) -> String {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The words that a string may be, anywhere in `node`.
fn words<'a>(node: &'a Value, found: &mut BTreeSet<&'a str>) {
    match node {
        Value::Object(members) => {
            let choice = members.get("enum").and_then(Value::as_array).into_iter().flatten();
            found.extend(choice.chain(members.get("const")).filter_map(Value::as_str));
            members.values().for_each(|member| words(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| words(item, found)),
        _ => {}
    }
}

#[test]
fn every_word_is_documented() {
    let schema = schema(&[]);
    let mut all = BTreeSet::new();
    words(&schema, &mut all);
    assert!(all.len() > 100, "the words are not found any more: {all:?}");
    let page = page("json.md");
    let described = page.split("## Reserved").next().unwrap_or_default();
    // Every other fence is an example.
    let prose = described.split("```").step_by(2);
    let quoted: BTreeSet<&str> = prose.flat_map(|text| text.split('`').skip(1).step_by(2)).collect();
    let missing: Vec<&&str> = all.difference(&quoted).collect();
    assert!(missing.is_empty(), "docs/json.md lacks the words {missing:?}");
}

#[test]
fn every_member_is_documented_and_no_other() {
    let (page, statistics) = (page("json.md"), page("track.md"));
    let schema = schema(&[]);
    let types = Types::of(&schema);
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
