//! The truth fixture on other versions of glibc.
//!
//! `TG_GLIBC_ROOTS` names a directory with one unpacked root each (libc6 and libgcc-s1 of a
//! distribution, as `2.31/`, `2.35/` ..). One of them with headers and start files (libc6-dev) serves
//! to build for all: the oldest, because its programs run on every newer one.

use std::path::{Path, PathBuf};
use testkit::{Build, Fixture, Tool, View, differences, eventually, skip};

const LIBRARIES: &str = "lib/x86_64-linux-gnu";

fn roots(dir: &Path) -> Vec<PathBuf> {
    let mut roots: Vec<_> = std::fs::read_dir(dir)
        .expect("TG_GLIBC_ROOTS names a directory")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join(LIBRARIES).join("libc.so.6").exists())
        .collect();
    roots.sort();
    roots
}

/// Builds `file` against the oldest root's libc, to be run by `root`'s dynamic linker.
fn build(file: &str, oldest: &Path, root: &Path) -> PathBuf {
    let (old, run) = (oldest.display(), root.join(LIBRARIES));
    let (dev, run) = (format!("{old}/usr/{LIBRARIES}"), run.display());
    Build::new(file)
        .flags(&[
            format!("--sysroot={old}"),
            format!("-B{dev}/"),
            format!("-L{dev}"),
            format!("-L{old}/{LIBRARIES}"),
            format!("-Wl,--dynamic-linker={run}/ld-linux-x86-64.so.2"),
            // The old kind of path, which also holds for what libc itself loads (libgcc_s).
            "-Wl,--disable-new-dtags".to_owned(),
            format!("-Wl,-rpath,{run}:{run}/../../usr/{LIBRARIES}"),
        ])
        .path()
}

#[test]
fn every_version_agrees_with_its_threads() {
    let test = "every_version_agrees_with_its_threads";
    let Some(dir) = std::env::var_os("TG_GLIBC_ROOTS") else {
        return skip(test, "TG_GLIBC_ROOTS does not name a directory of unpacked glibc versions");
    };
    let roots = roots(Path::new(&dir));
    let Some(oldest) = roots.iter().find(|root| root.join("usr/include/pthread.h").exists()) else {
        return skip(test, "none of TG_GLIBC_ROOTS has headers to build with (libc6-dev)");
    };
    let tool = Tool::new(env!("CARGO_BIN_EXE_tglass"));
    let mut wrong = Vec::new();
    for root in &roots {
        let version = root.file_name().unwrap().to_string_lossy().into_owned();
        let fixture = Fixture::start(&build("threads_truth.c", oldest, root), &[]).settled();
        let mut faults = Vec::new();
        eventually("the spinner should get a CPU", || {
            let snapshot = tool.threads(fixture.pid(), &[]);
            faults = differences(fixture.truth(), &snapshot, View::PLAIN);
            let seen = snapshot["target"]["libc"]["version"].as_str().unwrap_or("none").to_owned();
            if !version.starts_with(&seen) {
                faults.push(format!("version seen as {seen}"));
            }
            faults.iter().all(|fault| !fault.starts_with("spinner: state is \"active\", seen as \"run\""))
        });

        let tsd = Fixture::start(&build("tsd.c", oldest, root), &[]).settled();
        let keys = tool.tsd(tsd.pid())["keys"].as_array().unwrap().len();
        let told = tsd.truth()["keys"].as_object().unwrap().len();
        if keys != told {
            faults.push(format!("{told} keys are in use, {keys} were seen"));
        }
        let ended = Fixture::start(&build("main_exited.c", oldest, root), &[]);
        let snapshot = tool.threads(ended.pid(), &[]);
        let main = &ended.truth()["main"];
        let leader = testkit::threads(&snapshot).iter().find(|thread| thread["lwp"] == main["lwp"]);
        if leader.is_none_or(|thread| thread["id"] != main["id"] || thread["state"] != "zombie") {
            faults.push(format!("main has exited: {main}, seen as {leader:?}"));
        }
        faults.extend(lifecycle_faults(&tool, &build("lifecycle.c", oldest, root)));
        eprintln!("glibc {version}: {}", if faults.is_empty() { "agrees" } else { "differs" });
        wrong.extend(faults.into_iter().map(|fault| format!("{version}: {fault}")));
    }
    assert!(roots.len() > 1, "a matrix needs more than one version");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Who has ended, who is about to, who is detached: the part of the descriptor that changed most from
/// version to version.
fn lifecycle_faults(tool: &Tool, program: &Path) -> Vec<String> {
    let fixture = Fixture::start(program, &[]).settled();
    let snapshot = tool.threads(fixture.pid(), &[]);
    let mut faults = Vec::new();
    for (role, truth) in fixture.truth().as_object().unwrap() {
        let found: Vec<_> = testkit::threads(&snapshot).iter().filter(|thread| thread["id"] == truth["id"]).collect();
        let (state, exiting, detached) = match role.as_str() {
            "joined" | "detached_ended" => {
                if !found.is_empty() {
                    faults.push(format!("{role} is still seen: {}", found[0]));
                }
                continue;
            }
            "ended" | "ended_by_exit" => ("zombie", false, false),
            "exited" | "cancelled" => ("sleep", true, false),
            "detached" => ("sleep", false, true),
            _ => ("sleep", false, false),
        };
        let [thread] = found[..] else {
            faults.push(format!("{role} was seen {} times", found.len()));
            continue;
        };
        let seen = (&thread["state"], &thread["exiting"], &thread["detached"]);
        if seen != (&state.into(), &exiting.into(), &detached.into()) {
            faults.push(format!("{role} is {state}, exiting {exiting}, detached {detached}; seen as {seen:?}"));
        }
    }
    faults
}
