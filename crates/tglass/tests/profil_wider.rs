//! `tglass profil` of more than the program's own code: of the kernel's work for it, and of its children.

mod profil_common;

use profil_common::{perf, record, samples, tool};
use testkit::{Answer, Build, Fixture, NOBODY, Public, Value, Variant, any_of, as_user, ensure, have, is_root, skip};

fn spin() -> std::path::PathBuf {
    Build::new("profil_spin.c").variant(Variant::Default).path()
}

/// The processes that exist already when the recording begins, and a thread in one of them.
#[test]
fn children_that_exist_already() {
    if !perf("children_that_exist_already", &[]) {
        return;
    }
    let mut fixture = Fixture::start(&spin(), &[]);
    assert_eq!(fixture.ask("fork"), "ok");
    let profile = record(fixture.pid(), 100, &[]);
    assert_eq!(samples(&profile, "in_child"), 0, "{profile:#}");
    any_of(5, || {
        let profile = record(fixture.pid(), 200, &["--children", "-g"]);
        let [own, child] = ["seventy", "in_child"].map(|function| samples(&profile, function));
        let stacks = profile["stacks"].as_array().expect("stacks");
        let in_main = stacks.iter().filter(|stack| stack["frames"][0]["function"] == "in_child");
        assert!(in_main.clone().all(|stack| stack["frames"][1]["function"] == "main"), "{profile:#}");
        // Both run all the time.
        ensure(own > 20 && child > 20 && in_main.count() > 0, || format!("{profile:#}"))
    });
}

/// How much of the time is the kernel's is told in any case, and where it goes with `--kernel`.
#[test]
fn work_of_the_kernel() {
    let test = "work_of_the_kernel";
    if !perf(test, &[]) {
        return;
    }
    let mut fixture = Fixture::start(&spin(), &[]);
    let share = |profile: &Value| {
        let [all, kernel] = ["cpu_ms", "kernel_ms"].map(|member| profile[member].as_u64().expect("a time"));
        assert!(kernel <= all, "{profile:#}");
        kernel as f64 / all as f64
    };
    // The machine's own interrupts are counted for whoever runs.
    let idle = share(&record(fixture.pid(), 200, &[]));
    assert!(idle < 0.4, "{idle}");
    assert_eq!(fixture.ask("kernel"), "ok");
    let profile = any_of(5, || {
        let profile = record(fixture.pid(), 100, &[]);
        ensure(share(&profile) > idle + 0.2, || format!("{idle}: {profile:#}"))?;
        Ok(profile)
    });
    assert!(profile["kernel"].is_null(), "{profile:#}");
    let text = tool().run(&["profil", &fixture.pid().to_string(), "-d", "300ms"]).text();
    let line = text.lines().nth(2).unwrap_or_default();
    assert!(line.contains(" % of ") && line.ends_with(" of CPU time in the kernel, not sampled"), "{text}");

    if !perf(test, &["--kernel"]) {
        return;
    }
    any_of(5, || {
        let profile = record(fixture.pid(), 1000, &["--kernel", "-g"]);
        let kernel = profile["kernel"].as_u64().expect("samples in the kernel");
        let functions = profile["functions"].as_array().expect("functions").iter();
        let in_kernel = functions.filter(|function| function["module"] == "[kernel]");
        let counted: u64 = in_kernel.map(|function| function["samples"].as_u64().unwrap()).sum();
        assert!(counted > 0 && counted <= kernel && kernel <= profile["samples"].as_u64().unwrap(), "{profile:#}");
        let of_kernel = kernel as f64 / profile["samples"].as_f64().unwrap();
        // Both are samples: ours, and those of the kernel's own clock, of which there are a few hundred.
        ensure((of_kernel - share(&profile)).abs() < 0.1, || format!("{of_kernel}: {profile:#}"))?;
        // The program's frames are behind the kernel's.
        let stacks = profile["stacks"].as_array().expect("stacks").iter();
        let mut of_kernel = stacks.filter(|stack| stack["frames"][0]["module"] == "[kernel]");
        let is_work = |frame: &Value| frame["function"] == "have_kernel_work";
        let found = of_kernel.any(|stack| stack["frames"].as_array().unwrap().iter().any(is_work));
        ensure(found, || format!("{profile:#}"))
    });
    // A region is the program's.
    let profile = record(fixture.pid(), 100, &["--kernel", "--function", "seventy"]);
    let inside = profile["samples"].as_u64().unwrap() - profile["outside"].as_u64().unwrap();
    assert_eq!(samples(&profile, "seventy"), inside, "{profile:#}");
}

#[test]
fn a_kernel_that_may_not_be_sampled() {
    let test = "a_kernel_that_may_not_be_sampled";
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if level.trim().parse::<i32>() != Ok(2) {
        return skip(test, "needs kernel.perf_event_paranoid=2");
    }
    if !is_root(test, "to become another user") || !have(test, "setpriv") || !perf(test, &[]) {
        return;
    }
    let public = Public::new();
    let tglass = public.copy(std::path::Path::new(env!("CARGO_BIN_EXE_tglass")), "tglass");
    let mut command = as_user(NOBODY, &tglass);
    command.args(["profil", "--kernel", "--", "true"]);
    let refused = Answer::of(command);
    let line = refused.assert_refused();
    assert!(line.contains("the kernel may not be sampled") && line.contains("perf_event_paranoid is 2"), "{line}");
    let mut command = as_user(NOBODY, &tglass);
    command.args(["profil", "--", "true"]);
    assert_eq!(Answer::of(command).code, Some(0));
}
