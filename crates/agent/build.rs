//! Builds the agent: a shared object of its own, whose bytes the library carries.
//!
//! It has neither the standard library nor any other crate in it, so two calls of the compiler do.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from).unwrap_or_default();
    let here = var("CARGO_MANIFEST_DIR");
    let out = var("OUT_DIR");
    // Where crate table says that its source is.
    let (inside, table) = (here.join("inside"), var("DEP_THREADGLASS_TABLE_SOURCE"));
    for watched in [&inside, &table] {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    let rlib = out.join("libtable.rlib");
    compile(&table.join("lib.rs"), &rlib, &["--crate-type=rlib", "--crate-name=table"]);
    let with_table = format!("--extern=table={}", rlib.display());
    let agent = out.join("agent.so");
    compile(
        &inside.join("lib.rs"),
        &agent,
        &[
            "--crate-type=cdylib",
            "--crate-name=threadglass_agent",
            &with_table,
            "-Clto=fat",
            "-Cstrip=debuginfo",
            "-Clink-arg=-Wl,-soname,libthreadglass-agent.so",
            "-Clink-arg=-Wl,-z,nodelete",
            "-Clink-arg=-Wl,-z,now",
            // The loader's list of objects is the loader's symbol.
            "-Clink-arg=-l:ld-linux-x86-64.so.2",
        ],
    );
}

/// The kind of program that the agent goes into: one with glibc, also where the tool itself is a static program of musl.
fn goes_into(target: &str) -> String {
    target.replace("-musl", "-gnu")
}

fn compile(source: &Path, output: &Path, more: &[&str]) {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built_for = std::env::var("TARGET").unwrap_or_default();
    let target = goes_into(&built_for);
    let mut command = Command::new(rustc);
    command
        .args(["--edition=2024", "-Copt-level=3", "-Cpanic=abort", "-Ccodegen-units=1", "-Cforce-unwind-tables=yes"])
        // By them a wait finds the frame of whoever called (`stacks.rs`).
        .arg("-Cforce-frame-pointers=yes")
        .args(["-Cembed-bitcode=yes", "-Coverflow-checks=no", "-Cdebug-assertions=no"])
        .arg(format!("--target={target}"))
        .args(more)
        .arg("-o")
        .args([output, source]);
    // A linker or other tool that the user has chosen for the whole build does for this part too, unless it is one for
    // another C library.
    if let Some(linker) = std::env::var_os("RUSTC_LINKER").filter(|_| target == built_for) {
        let mut option = std::ffi::OsString::from("-Clinker=");
        option.push(linker);
        command.arg(option);
    }
    let status = command.status().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(status.success(), "the agent does not build: {command:?}");
}
