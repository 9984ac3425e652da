//! Process statistics through C.

mod common;

use common::{Source, run};
use std::path::PathBuf;
use testkit::{Build, Dumpable};

fn client() -> PathBuf {
    Source::new("stats.c").with_libc_db().build()
}

#[test]
fn averages_of_a_process() {
    run(&client(), &[]);
}

#[test]
fn a_core_has_none() {
    let process = Dumpable::start(&Build::new("stats.c").path(), &["1", "1", "0", "0"]);
    if let Some(core) = process.gcore("a_core_has_none") {
        run(&client(), &[&core.name()]);
    }
}
