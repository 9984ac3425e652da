//! What `/proc/PID/stat` says of job control.

use super::{decimal, signed, words};

/// A process as its terminal and its shell see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its process group.
    pub group: i32,
    /// Its session: the pid of the leader.
    pub session: i32,
    /// Major and minor number of its terminal, if it has one.
    pub terminal: Option<(u32, u32)>,
    /// The process group that has the foreground of that terminal.
    pub foreground: i32,
    /// When it was started, in clock ticks since the machine was.
    pub start_time: u64,
    /// The signal that has stopped it, where this kernel tells that.
    pub stopped_by: Option<u32>,
}

/// Decodes one `stat` line.
pub(crate) fn parse_job(bytes: &[u8]) -> Option<Job> {
    let close = bytes.iter().rposition(|b| *b == b')')?;
    // Numbers as in proc(5): field 3 is the first after the name.
    let fields: Vec<&[u8]> = words(bytes.get(close + 1..)?).collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let small = |number: usize| i32::try_from(signed(field(number)?)?).ok();
    let stopped_by = || u32::try_from(signed(field(52)?)?).ok().filter(|signal| (1..=64).contains(signal));
    Some(Job {
        group: small(5)?,
        session: small(6)?,
        terminal: device(small(7)? as u32),
        foreground: small(8)?,
        start_time: decimal(field(22)?)?,
        stopped_by: if field(3) == Some(b"T") { stopped_by() } else { None },
    })
}

/// The numbers of a device as the kernel packs them.
fn device(packed: u32) -> Option<(u32, u32)> {
    (packed != 0).then_some((packed >> 8 & 0xfff, packed & 0xff | packed >> 12 & 0xfff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_background_job_that_wanted_to_read() {
        let line =
            b"17710 (py (x) 3) T 17709 17710 17709 34816 17709 4194368 199 0 0 0 0 0 0 0 20 0 1 0 99615 17039360 2462 \
            18446744073709551615 1 2 3 0 0 0 0 16781312 2 1 0 0 17 0 0 0 0 0 0 1 2 3 4 5 6 7 21\n";
        let job = parse_job(line).unwrap();
        assert_eq!((job.group, job.session, job.foreground), (17710, 17709, 17709));
        assert_eq!((job.terminal, job.stopped_by, job.start_time), (Some((136, 0)), Some(21), 99615));
        assert_eq!(parse_job(b"1 (x) S 1 1"), None);
    }

    #[test]
    fn numbers_of_devices() {
        assert_eq!(device(0), None);
        assert_eq!(device(34816), Some((136, 0)));
        assert_eq!(device(136 << 8 | 7 | 1 << 20), Some((136, 263)));
    }

    #[test]
    fn agrees_with_the_system_on_this_process() {
        let job = parse_job(&std::fs::read("/proc/self/stat").unwrap()).unwrap();
        assert_eq!(job.group, nix::unistd::getpgrp().as_raw());
        assert_eq!(job.session, nix::unistd::getsid(None).unwrap().as_raw());
        assert_eq!(job.stopped_by, None);
    }
}
