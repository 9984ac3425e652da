//! What tests of `tglass profil` share.
#![allow(dead_code, reason = "each file of tests uses a part")]

use testkit::{Tool, Value, any_of, ensure, skip};

pub fn tool() -> Tool {
    Tool::new(env!("CARGO_BIN_EXE_tglass"))
}

/// Whether perf events are permitted here, with these options; counts a skip when not.
pub fn perf(test: &str, options: &[&str]) -> bool {
    let answer = tool().run(&[&["profil"], options, &["--", "true"]].concat());
    let refused = answer.stderr.contains("not permitted") || answer.stderr.contains("may not be sampled");
    if refused {
        skip(test, answer.stderr.trim());
    }
    !refused
}

/// A recording with so many samples at least: the program may get no CPU for a while.
pub fn record(pid: i32, least: u64, options: &[&str]) -> Value {
    let pid = pid.to_string();
    let mut ms = 300;
    any_of(7, || {
        let time = format!("{ms}ms");
        let profile = tool().run(&[&["profil", &pid, "--json", "-d", &time], options].concat()).json();
        ms *= 2;
        ensure(profile["samples"].as_u64() >= Some(least), || format!("too few samples: {profile:#}"))?;
        Ok(profile)
    })
}

/// Samples in the functions of this name.
pub fn samples(profile: &Value, function: &str) -> u64 {
    let functions = profile["functions"].as_array().expect("functions");
    functions.iter().filter(|f| f["name"] == function).map(|f| f["samples"].as_u64().expect("a number")).sum()
}
