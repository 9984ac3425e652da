//! Which processes have a pipe or a socket open.

use super::of_all_descriptors;
use crate::Pid;
use crate::limits::Limits;
use std::collections::HashMap;

/// A descriptor that leads to a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenEnd {
    pub(crate) pid: Pid,
    pub(crate) number: i32,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// The descriptors of all processes that lead to pipes and sockets.
pub(super) struct OpenFiles {
    /// By what the kernel calls them, such as `pipe:[123]`.
    holders: HashMap<String, Vec<(Pid, i32)>>,
    pub(super) is_whole: bool,
}

impl OpenFiles {
    pub(super) fn read(limits: &Limits) -> Self {
        let (found, is_whole) = of_all_descriptors(limits, "fd", |pid, entry| {
            let link = std::fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            (link.starts_with("pipe:[") || link.starts_with("socket:[")).then_some((link, (pid, number)))
        });
        let mut holders: HashMap<String, Vec<(Pid, i32)>> = HashMap::new();
        for (file, holder) in found {
            holders.entry(file).or_default().push(holder);
        }
        Self { holders, is_whole }
    }

    pub(super) fn holders_of(&self, file: &str) -> &[(Pid, i32)] {
        self.holders.get(file).map_or(&[], Vec::as_slice)
    }

    /// The ends of a pipe that are open.
    pub(super) fn ends_of_pipe(&self, file: &str) -> Vec<OpenEnd> {
        let end = |&(pid, number): &(Pid, i32)| {
            let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
            let access = access_in(&info)?;
            Some(OpenEnd { pid, number, reads: access != libc::O_WRONLY, writes: access != libc::O_RDONLY })
        };
        self.holders_of(file).iter().filter_map(end).collect()
    }
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
        let ends = OpenFiles::read(&Limits::default()).ends_of_pipe(file.to_str().unwrap());
        let ends: Vec<OpenEnd> = ends.into_iter().filter(|end| end.pid == me).collect();
        let end = |number, reads| OpenEnd { pid: me, number, reads, writes: !reads };
        assert!(ends.contains(&end(reader.as_raw_fd(), true)), "{ends:?}");
        assert!(ends.contains(&end(writer.as_raw_fd(), false)), "{ends:?}");
        assert_eq!(access_in("pos:\t0\nflags:\t0100002\nmnt_id:\t9\n"), Some(libc::O_RDWR));
        assert_eq!(access_in("pos:\t0\n"), None);
    }
}
