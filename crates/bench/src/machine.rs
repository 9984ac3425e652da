//! Where the figures come from.

use crate::measure::output;
use serde::Serialize;

/// What of the machine the figures depend on.
#[derive(Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cpus: usize,
    pub kernel: String,
    pub libc: Option<String>,
    pub gdb: Option<String>,
    /// Load average of the last minute: above 0 somebody else was using the CPUs.
    pub load: String,
}

pub fn describe() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned()));
    let first_line = |command: &[&str]| {
        let command: Vec<_> = command.iter().map(Into::into).collect();
        Some(output(&command)?.lines().next()?.trim().to_owned())
    };
    Machine {
        cpu: model.unwrap_or_else(|| "unknown CPU".to_owned()),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        libc: first_line(&["getconf", "GNU_LIBC_VERSION"]),
        gdb: first_line(&["gdb", "--version"]),
        load: read("/proc/loadavg").split_whitespace().next().unwrap_or("?").to_owned(),
    }
}
