//! Tests that cannot run here: said, and counted.

use nix::errno::Errno;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What does not run: a whole test, by its name, or a part of one that goes on.
#[derive(Clone, Copy, Debug)]
pub enum Extent<'a> {
    /// The test does nothing but say so.
    Test(&'a str),
    /// What the test leaves out.
    Part(&'a str),
}

impl<'a> From<&'a str> for Extent<'a> {
    fn from(test: &'a str) -> Self {
        Self::Test(test)
    }
}

impl<'a> From<&'a String> for Extent<'a> {
    fn from(test: &'a String) -> Self {
        Self::Test(test)
    }
}

/// A part of the test that calls this: the rest of it runs.
pub fn part(what: &str) -> Extent<'_> {
    Extent::Part(what)
}

/// Says that a test (or a part of it) did not run, and which privilege or tool it lacked. The lines
/// are collected in the file that `TG_SKIP_LOG` names, so that a run can end with their count.
pub fn skip<'a>(what: impl Into<Extent<'a>>, reason: &str) {
    let what = what.into();
    let reason = reason.replace('\n', " ");
    let (kind, test, text) = match what {
        Extent::Test(test) => ("test", running(test), reason),
        Extent::Part(part) => ("part", running(part), format!("{part}: {reason}")),
    };
    // Past the capture of the test harness, which hides the output of tests that pass.
    let _ = writeln!(std::io::stderr(), "SKIP {test}: {text}");
    if let Some(log) = std::env::var_os("TG_SKIP_LOG") {
        let file = OpenOptions::new().create(true).append(true).open(log);
        // One write a line: several test programs append at the same time.
        let _ = file.and_then(|mut file| file.write_all(format!("{kind}\t{test}\t{text}\n").as_bytes()));
    }
}

/// The test that runs, by its program and the name that the harness gives its thread; `otherwise` where it has none.
fn running(otherwise: &str) -> String {
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or(otherwise);
    let exe = std::env::current_exe().unwrap_or_default();
    let stem = exe.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // Cargo adds a hash to the name of each test program.
    let program = stem.rsplit_once('-').map_or(stem.as_str(), |(program, _)| program);
    format!("{program}::{test}")
}

/// Programs that trace others.
const TRACERS: [&str; 4] = ["gcore", "gdb", "gdbserver", "strace"];

/// Whether a program is installed, and can do its work here; says so and counts a skip when not.
pub fn have<'a>(what: impl Into<Extent<'a>>, program: &str) -> bool {
    let what = what.into();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if !found {
        skip(what, &format!("{program} is not installed"));
    }
    found && (!TRACERS.contains(&program) || can_trace(what))
}

/// Path of a shared library of the distribution; says so and counts a skip when it is not installed.
pub fn library<'a>(what: impl Into<Extent<'a>>, name: &str) -> Option<PathBuf> {
    let path = Path::new("/usr/lib/x86_64-linux-gnu").join(name);
    let found = path.is_file().then_some(path);
    if found.is_none() {
        skip(what, &format!("{name} is not installed"));
    }
    found
}

/// Whether we are root.
pub fn root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// Whether we are root; counts a skip when not.
pub fn is_root<'a>(what: impl Into<Extent<'a>>, why: &str) -> bool {
    if !root() {
        skip(what, &format!("needs root {why}"));
    }
    root()
}

/// A right that root has, and that a container may have taken from it.
#[derive(Clone, Copy, Debug)]
pub enum Capability {
    /// To look at and change processes of other users.
    Ptrace = 19,
    /// To make namespaces, and to read seccomp filters.
    Admin = 21,
    /// To sample whole CPUs.
    Perfmon = 38,
}

impl Capability {
    /// Whether we have it.
    pub fn is_ours(self) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
        u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask >> self as u32 & 1 == 1)
    }
}

/// Whether we have a capability; counts a skip when not.
pub fn has_capability<'a>(what: impl Into<Extent<'a>>, capability: Capability, why: &str) -> bool {
    let is_ours = capability.is_ours();
    if !is_ours {
        let name = match capability {
            Capability::Ptrace => "CAP_SYS_PTRACE",
            Capability::Admin => "CAP_SYS_ADMIN",
            Capability::Perfmon => "CAP_PERFMON",
        };
        skip(what, &format!("needs {name} {why}"));
    }
    is_ours
}

/// Whether programs can be linked statically here; counts a skip when not.
pub fn has_static_libc<'a>(what: impl Into<Extent<'a>>) -> bool {
    let answer = Command::new("cc").arg("-print-file-name=libc.a").output();
    // The compiler repeats the bare name when it has no such file.
    let found = answer.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_absolute());
    if !found {
        skip(what, "no static libc (libc.a) is installed");
    }
    found
}

/// Whether rustc can build programs for musl here; counts a skip when not.
pub fn has_rust_on_musl<'a>(what: impl Into<Extent<'a>>) -> bool {
    let answer = Command::new("rustc").args(["--print", "target-libdir", "--target", RUST_ON_MUSL]).output();
    let found = answer.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir());
    if !found {
        skip(what, &format!("rustc has no standard library for {RUST_ON_MUSL} (rustup target add)"));
    }
    found
}

/// How rustc calls programs that contain musl.
pub const RUST_ON_MUSL: &str = "x86_64-unknown-linux-musl";

/// Whether `unshare` with these options (and `--fork`, for a pid namespace) makes namespaces; counts a skip, with what
/// the kernel said, when not. A container without CAP_SYS_ADMIN, or with a filter for the call, forbids it.
pub fn can_unshare<'a>(what: impl Into<Extent<'a>>, options: &[&str]) -> bool {
    let what = what.into();
    if !have(what, "unshare") {
        return false;
    }
    let answer = Command::new("unshare").args(options).arg("true").output();
    let refusal = match answer {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    skip(what, &format!("needs namespaces ({}): {refusal}", options.join(" ")));
    false
}

/// Whether one process may trace another here; counts a skip when not. A container without CAP_SYS_PTRACE on an old
/// kernel, or with a filter for the call, forbids it.
pub fn can_trace<'a>(what: impl Into<Extent<'a>>) -> bool {
    static REFUSAL: OnceLock<Option<Errno>> = OnceLock::new();
    let refusal = *REFUSAL.get_or_init(|| try_to_trace().err());
    if let Some(error) = refusal {
        skip(what, &format!("needs ptrace: {error}"));
    }
    refusal.is_none()
}

fn try_to_trace() -> nix::Result<()> {
    use nix::sys::{ptrace, signal::Signal, wait::waitpid};
    let mut child = match Command::new("sleep").arg("60").spawn() {
        Ok(child) => child,
        Err(error) => panic!("cannot start sleep: {error}"),
    };
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let traced = ptrace::seize(pid, ptrace::Options::empty());
    let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
    let _ = waitpid(pid, None);
    let _ = child.wait();
    traced
}

/// Ends the test that calls this, as skipped, where one process may not trace another: for tests that act on a process.
#[macro_export]
macro_rules! needs_ptrace {
    () => {
        if !$crate::can_trace("this test") {
            return;
        }
    };
}
