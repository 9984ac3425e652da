//! Which processes have a file open.

use super::processes;
use crate::Pid;

/// A descriptor that leads to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenEnd {
    pub(crate) pid: Pid,
    pub(crate) number: i32,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// All descriptors, of all processes, that lead to `file` as the kernel names it, such as `pipe:[123]`.
pub(crate) fn holders_of(file: &str) -> Vec<(Pid, i32)> {
    let of_process = |pid: Pid| {
        let dir = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        dir.filter_map(move |entry| {
            let link = std::fs::read_link(entry.path()).ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            (link.as_os_str() == file).then_some((pid, number))
        })
    };
    processes().flat_map(of_process).collect()
}

/// The ends of a pipe that are open.
pub(crate) fn ends_of_pipe(file: &str) -> Vec<OpenEnd> {
    let end = |(pid, number): (Pid, i32)| {
        let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
        let access = access_in(&info)?;
        Some(OpenEnd { pid, number, reads: access != libc::O_WRONLY, writes: access != libc::O_RDONLY })
    };
    holders_of(file).into_iter().filter_map(end).collect()
}

/// How a descriptor was opened, by its `fdinfo`.
fn access_in(info: &str) -> Option<i32> {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    Some(i32::from_str_radix(flags.trim(), 8).ok()? & libc::O_ACCMODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_ends_of_a_pipe_of_ours() {
        let (reader, writer) = std::io::pipe().unwrap();
        let file = std::fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap();
        let me = Pid(std::process::id() as i32);
        let ends: Vec<OpenEnd> = ends_of_pipe(file.to_str().unwrap()).into_iter().filter(|end| end.pid == me).collect();
        let end = |number, reads| OpenEnd { pid: me, number, reads, writes: !reads };
        assert!(ends.contains(&end(reader.as_raw_fd(), true)), "{ends:?}");
        assert!(ends.contains(&end(writer.as_raw_fd(), false)), "{ends:?}");
        assert_eq!(access_in("pos:\t0\nflags:\t0100002\nmnt_id:\t9\n"), Some(libc::O_RDWR));
        assert_eq!(access_in("pos:\t0\n"), None);
    }
}
