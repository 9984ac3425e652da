//! Who could wake threads of a process from outside, while none of its own threads runs.

use super::Live;
use crate::sys::address_space::is_shared;
use crate::target::{KernelFacts, OutsideWaker, Target};
use crate::{Lwp, Pid};

/// How the kernel names a ring of requests, as a descriptor and as a mapping.
const RING: &str = "anon_inode:[io_uring]";
/// Children and descriptors that are looked at.
const MOST: usize = 1 << 16;

impl Live {
    /// Others that could; `None` where that cannot be found out.
    pub(super) fn find_wakers(&self) -> Option<Vec<OutsideWaker>> {
        let mut wakers = Vec::new();
        for child in self.children()? {
            if is_shared(Lwp(self.pid.0), Lwp(child.0))? {
                wakers.push(OutsideWaker::Process(child));
            }
        }
        if self.has_ring()? {
            wakers.push(OutsideWaker::Ring);
        }
        Some(wakers)
    }

    /// Its children: nobody else gets to work in its memory without being a thread of it.
    fn children(&self) -> Option<Vec<Pid>> {
        let mut reader = self.reader();
        let mut children = Vec::new();
        for lwp in self.lwps().ok()? {
            let list = String::from_utf8_lossy(reader.read(lwp, "children").ok()?);
            children.extend(list.split_whitespace().filter_map(|number| number.parse().ok().map(Pid)));
            if children.len() > MOST {
                return None;
            }
        }
        Some(children)
    }

    /// Whether it has a ring of requests, one of which may wake threads when another one is done.
    fn has_ring(&self) -> Option<bool> {
        if self.maps().iter().any(|map| map.name.ends_with(RING.as_bytes())) {
            return Some(true);
        }
        let descriptors = std::fs::read_dir(format!("/proc/{}/task/{}/fd", self.pid, self.witness)).ok()?;
        for (index, descriptor) in descriptors.flatten().enumerate() {
            // The link is read, not followed.
            if std::fs::read_link(descriptor.path()).is_ok_and(|to| to.as_os_str() == RING) {
                return Some(true);
            }
            if index == MOST {
                return None;
            }
        }
        Some(false)
    }
}
