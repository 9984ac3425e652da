//! Asking the kernel for single mappings (PROCMAP_QUERY, Linux 6.11).
//!
//! A process with ten thousand threads has twenty thousand mappings, of which a handful matter: those of
//! files, and the one that holds the main stack.

use crate::RemoteAddr;
use crate::proc::MapEntry;
use nix::errno::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const COVERING_OR_NEXT: u64 = 0x10;
/// Of those that may be asked for: all mappings, or those of files.
pub(crate) const ANY: u64 = 0;
pub(crate) const FILE_BACKED: u64 = 0x20;
/// _IOWR('f', 17, struct procmap_query)
const PROCMAP_QUERY: u32 = 3 << 30 | (size_of::<ProcmapQuery>() as u32) << 16 | (b'f' as u32) << 8 | 17;

/// The mapping of `kind` that holds `addr`, or the next one above it; `None` when there is none.
/// `maps` is the process's open `maps` file.
pub(crate) fn query(maps: &File, addr: RemoteAddr, kind: u64) -> Result<Option<MapEntry>, Errno> {
    let mut name = vec![0u8; libc::PATH_MAX as usize];
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_flags: COVERING_OR_NEXT | kind,
        query_addr: addr.0,
        vma_name_size: name.len() as u32,
        vma_name_addr: name.as_mut_ptr() as u64,
        ..ProcmapQuery::default()
    };
    // The type of requests is another one in each C library.
    // SAFETY: `query` has the kernel's layout and says its size; the kernel writes to it, and at most
    // `vma_name_size` bytes to `name`. Both live through the call.
    match Errno::result(unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as libc::Ioctl, &raw mut query) }) {
        Ok(_) => {}
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    // The size counts the NUL at the end.
    name.truncate((query.vma_name_size as usize).saturating_sub(1));
    let flag = |bit: u64| query.vma_flags & bit != 0;
    let (name, deleted) = MapEntry::split_name(&name);
    Ok(Some(MapEntry {
        start: RemoteAddr(query.vma_start),
        end: RemoteAddr(query.vma_end),
        read: flag(1),
        write: flag(2),
        exec: flag(4),
        shared: flag(8),
        offset: query.vma_offset,
        inode: query.inode,
        name: name.to_vec(),
        deleted,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::parse_maps;

    #[test]
    fn agrees_with_the_maps_file() {
        let maps = File::open("/proc/self/maps").unwrap();
        if query(&maps, RemoteAddr(0), ANY) == Err(Errno::ENOTTY) {
            // The library reads the file then.
            return testkit::skip("agrees_with_the_maps_file", "needs PROCMAP_QUERY, of a kernel since 6.11");
        }
        let (entries, _) = parse_maps(&std::fs::read("/proc/self/maps").unwrap());
        for entry in entries.iter().filter(|entry| entry.is_file()) {
            assert_eq!(query(&maps, entry.start, FILE_BACKED), Ok(Some(entry.clone())));
        }
        assert_eq!(query(&maps, RemoteAddr(u64::MAX), FILE_BACKED), Ok(None));
    }
}
