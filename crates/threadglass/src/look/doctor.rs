//! What can be seen from here, and the exact fix for what cannot.

use crate::Pid;
use crate::model::{Check, CheckVerdict, Doctor, Libc, Provenance, Remedy, SCHEMA};
use crate::target::{
    CAP_CHECKPOINT_RESTORE, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE, Live, TargetError, has_capability, yama_scope,
};

/// Checks this machine and user, and what can be seen of process `pid`.
pub fn check(pid: Option<Pid>) -> Result<Doctor, TargetError> {
    let target = pid.map(check_target).transpose()?;
    Ok(Doctor { schema: SCHEMA, host: check_host(), target })
}

fn check_host() -> Vec<Check> {
    let root = nix::unistd::Uid::effective().is_root();
    let ptrace = has_capability(CAP_SYS_PTRACE);
    let files = match has_capability(CAP_SYS_ADMIN) || has_capability(CAP_CHECKPOINT_RESTORE) {
        true => Check::ok("mapped files", "deleted and replaced libraries can be opened (map_files)"),
        false => limited(
            "mapped files",
            "libraries are opened by path and compared by build ID; a deleted library shows only exported names",
            "run as root, or with CAP_CHECKPOINT_RESTORE",
        ),
    };
    vec![kernel(), user(root, ptrace), yama(ptrace), files, perf()]
}

fn limited(subject: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
    Check::bad(subject, CheckVerdict::Limited, detail, fix)
}

fn check_target(pid: Pid) -> Result<Vec<Check>, TargetError> {
    let live = Live::open(pid)?;
    let name = String::from_utf8_lossy(&live.leader_stat().comm).into_owned();
    let user = live.leader_status().uid().unwrap_or(0);
    let mut checks = vec![Check::ok("process", format!("{name} (pid {pid}) exists, user {user}"))];
    checks.push(match live.denial() {
        None => Check::ok("memory", "readable: thread IDs, stacks and thread-specific data can be seen"),
        Some(denial) => Check::bad(
            "memory",
            CheckVerdict::No,
            "not readable: only names, states and CPU times can be seen",
            denial.to_string(),
        ),
    });
    let snapshot = super::look(&live, super::Scope::Threads, super::Names::None)?;
    checks.push(match snapshot.target.libc {
        Libc::Glibc { version, layout: Provenance::Described } => Check::ok(
            "libc",
            format!("glibc {}, which describes itself", version.as_deref().unwrap_or("of unknown version")),
        ),
        Libc::Glibc { layout: Provenance::Structural, .. } => limited(
            "libc",
            "glibc in a program without symbols: threads are found, thread-specific data is not",
            "keep the program's symbols (do not strip it)",
        ),
        Libc::Musl => Check::ok("libc", "musl: threads and locks are found by their shape"),
        Libc::Other { name } => limited(
            "libc",
            format!("{}: only what the kernel knows is shown", name.as_deref().unwrap_or("not glibc")),
            "nothing to do: thread IDs and locks need glibc or musl",
        ),
        Libc::Unread => {
            Check::bad("libc", CheckVerdict::No, "unknown, because memory cannot be read", "see memory above")
        }
    });
    let gaps: Vec<_> = snapshot.gaps.iter().map(|gap| gap.what.as_str()).collect();
    let missing = if gaps.is_empty() { String::new() } else { format!("; not seen: {}", gaps.join("; ")) };
    checks.push(Check::ok("threads", format!("{} seen{missing}", snapshot.threads.len())));
    if let Some(tracer) = snapshot.target.tracer {
        let fix = "detach the debugger to act on the process";
        let check = limited("debugger", format!("traced by {tracer}: looking works"), fix);
        checks.push(Check { remedy: Some(Remedy::DetachDebugger), ..check });
    }
    if snapshot.target.in_pid_namespace {
        checks.push(Check::ok("container", "has its own PID namespace; its IDs are translated"));
    }
    if live.leader_status().seccomp != 0 {
        checks.push(Check::ok("seccomp", "the process filters its system calls; looking is not affected"));
    }
    Ok(checks)
}

fn kernel() -> Check {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Check::ok("kernel", format!("Linux {}", release.trim()))
}

fn user(root: bool, ptrace: bool) -> Check {
    let subject = "processes of other users";
    match (root, ptrace) {
        (_, true) => Check::ok(subject, "can be looked into (CAP_SYS_PTRACE)"),
        (true, false) => limited(
            subject,
            "root without CAP_SYS_PTRACE, as in a container with default settings",
            "start the container with --cap-add=SYS_PTRACE",
        ),
        (false, false) => limited(
            subject,
            "only names, states and CPU times; your own processes are not affected",
            format!("run as root, or `sudo setcap cap_sys_ptrace+ep` on the {} binary", own_name()),
        ),
    }
}

fn own_name() -> String {
    std::fs::read_to_string("/proc/self/comm").unwrap_or_default().trim_end().to_owned()
}

fn yama(ptrace: bool) -> Check {
    let subject = "own processes";
    match yama_scope() {
        None | Some(0) => Check::ok(subject, "can be looked into (Yama does not forbid it)"),
        Some(3) => {
            let why = "kernel.yama.ptrace_scope is 3: forbidden until the next boot";
            Check::bad(subject, CheckVerdict::No, why, "boot without that setting")
        }
        Some(scope) if ptrace => Check::ok(
            subject,
            format!("can be looked into (kernel.yama.ptrace_scope is {scope}, CAP_SYS_PTRACE overrides)"),
        ),
        Some(scope) => limited(
            subject,
            format!("kernel.yama.ptrace_scope is {scope}: only children of {} can be looked into", own_name()),
            "sudo sysctl kernel.yama.ptrace_scope=0, or run as root",
        ),
    }
}

fn perf() -> Check {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let paranoid = paranoid.and_then(|text| text.trim().parse::<i32>().ok());
    let allowed = has_capability(CAP_PERFMON) || has_capability(CAP_SYS_ADMIN);
    let subject = "profiling";
    match paranoid {
        Some(level) if level <= 2 || allowed => {
            Check::ok(subject, format!("user code can be sampled (kernel.perf_event_paranoid is {level})"))
        }
        Some(level) => {
            let why = format!("kernel.perf_event_paranoid is {level}: perf events are denied");
            limited(subject, why, "sudo sysctl kernel.perf_event_paranoid=2")
        }
        None => limited(subject, "this kernel has no perf events", "use a kernel with CONFIG_PERF_EVENTS"),
    }
}
