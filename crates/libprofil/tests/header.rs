//! The header, and what the library exports.

mod common;

use common::{library_dir, root};
use std::collections::BTreeSet;
use std::process::Command;
use testkit::{Answer, have};

const BODY: &str = "
static unsigned short cells[8];
static uintptr_t samples[8];
int main(void)
{
    struct profil_info info;
    return profil(cells, sizeof cells, 0, 0) || pcsample(samples, 0) || profil_get_info(&info) || info.state != PROFIL_OFF;
}
";

#[test]
fn compiles_beside_unistd_in_c_and_cxx() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (ours, unistd) = ("#include <profil.h>\n", "#include <unistd.h>\n");
    let orders = [ours.to_owned(), format!("{ours}{unistd}"), format!("{unistd}{ours}{ours}")];
    for (compiler, ending, standard) in
        [("cc", "c", "-std=c11"), ("cc", "c", "-std=gnu11"), ("c++", "cc", "-std=c++17"), ("c++", "cc", "-std=gnu++20")]
    {
        for order in &orders {
            let (source, program) = (dir.path().join(format!("use.{ending}")), dir.path().join("use"));
            std::fs::write(&source, format!("{order}{BODY}")).expect("a new file");
            let mut command = Command::new(compiler);
            command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
            command.arg("-I").arg(root().join("include"));
            command.arg("-o").args([&program, &source]).arg("-L").arg(library_dir()).arg("-lprofil");
            command.arg(format!("-Wl,-rpath,{}", library_dir().display()));
            let answer = Answer::of(command);
            assert_eq!(answer.code, Some(0), "{standard} {order}{}", answer.stderr);
            assert_eq!(Answer::of(Command::new(&program)).code, Some(0), "{standard} {order}");
        }
    }
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(root().join("include/profil.h")).expect("the header");
    let name = |line: &str| {
        let before = line.strip_prefix("extern ")?.split_once('(')?.0;
        Some(before.rsplit([' ', '*']).next()?.to_owned())
    };
    header.lines().filter_map(name).collect()
}

#[test]
fn exports_are_the_headers_functions() {
    let test = "exports_are_the_headers_functions";
    if !have(test, "nm") || !have(test, "readelf") {
        return;
    }
    let output = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).arg(library_dir().join("libprofil.so"));
        Answer::of(command).text()
    };
    let nm = output("nm", &["-D", "--defined-only"]);
    let exported: BTreeSet<_> =
        nm.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    let declared = declared();
    assert_eq!(declared.len(), 7, "{declared:?}");
    assert_eq!(exported, declared, "exported (left) and declared (right)");
    assert!(output("readelf", &["-d"]).contains("soname: [libprofil.so]"));
}

#[test]
fn every_function_has_a_page() {
    for name in declared() {
        assert!(root().join(format!("man/man3/{name}.3")).exists(), "{name} has no man page");
    }
}
