//! `tglass profil -g`: stacks of code that has no unwind table of the usual kind.

mod profil_common;

use profil_common::{perf, record};
use std::process::Command;
use testkit::{Answer, Build, Fixture, Value, Variant, have};

/// Samples whose stack begins with these functions, the innermost first, and how their second frame is known.
fn with_stack(profile: &Value, functions: &[&str]) -> (u64, Vec<String>) {
    let stacks = profile["stacks"].as_array().expect("stacks").iter();
    let begins = |stack: &&Value| {
        let frames = stack["frames"].as_array().expect("frames");
        frames.len() >= functions.len() && frames.iter().zip(functions).all(|(frame, name)| frame["function"] == *name)
    };
    let found: Vec<&Value> = stacks.filter(begins).collect();
    let evidence = found.iter().map(|stack| stack["frames"][1]["evidence"].as_str().expect("a word").to_owned());
    (found.iter().map(|stack| stack["samples"].as_u64().expect("a number")).sum(), evidence.collect())
}

const NO_TABLES: [&str; 3] = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions"];

/// Whether the program has this section.
fn has_section(program: &std::path::Path, section: &str) -> bool {
    let mut readelf = Command::new("readelf");
    readelf.args(["-W", "-S"]).arg(program);
    Answer::of(readelf).text().contains(&format!(" {section} "))
}

/// Tables for debuggers alone, and frame pointers alone: each leads to the whole stack.
#[test]
fn code_without_unwind_tables() {
    let test = "code_without_unwind_tables";
    if !perf(test, &[]) || !have(test, "readelf") {
        return;
    }
    let cases: [(&[&str], bool, &str); 3] = [
        (&["-fomit-frame-pointer"], true, "derived"),
        (&["-fomit-frame-pointer", "-gz=zlib"], true, "derived"),
        (&["-g0", "-fno-omit-frame-pointer"], false, "derived"),
    ];
    for (flags, has_table, expected) in cases {
        let program = Build::new("profil_spin.c").variant(Variant::Default).flags(&NO_TABLES).flags(flags).path();
        assert_eq!(has_section(&program, ".debug_frame"), has_table, "{flags:?}");
        let fixture = Fixture::start(&program, &[]);
        let profile = record(fixture.pid(), 150, &["-g"]);
        let (mut sum, all) = (0, profile["samples"].as_u64().unwrap());
        for function in ["seventy", "twenty", "ten"] {
            let (samples, evidence) = with_stack(&profile, &[function, "middle", "work"]);
            assert!(evidence.iter().all(|word| word == expected), "{flags:?}: {evidence:?}");
            sum += samples;
        }
        assert!(sum * 10 > all * 9, "{flags:?}: {sum} of {all}: {profile:#}");
        // Up to the start of the thread, through libc's own tables.
        let stacks = profile["stacks"].as_array().unwrap().iter().filter(|stack| stack["whole"] == true);
        let whole: u64 = stacks.map(|stack| stack["samples"].as_u64().unwrap()).sum();
        assert!(whole * 10 > all * 9, "{flags:?}: {whole} of {all}: {profile:#}");
    }
}

/// A stack from generated code through generated code to the program.
#[test]
fn generated_code_with_frame_pointers() {
    if !perf("generated_code_with_frame_pointers", &[]) {
        return;
    }
    let fixture = Fixture::start(&Build::new("profil_jit.c").path(), &["map"]);
    let profile = record(fixture.pid(), 100, &["-g"]);
    let (samples, evidence) = with_stack(&profile, &["JS:*generated loop", "the caller", "work"]);
    let all = profile["samples"].as_u64().unwrap();
    assert!(samples * 10 > all * 9 && evidence.iter().all(|word| word == "inferred"), "{profile:#}");
    let whole = profile["stacks"].as_array().unwrap().iter().filter(|stack| stack["whole"] == true).count();
    assert!(whole > 0, "{profile:#}");
}
