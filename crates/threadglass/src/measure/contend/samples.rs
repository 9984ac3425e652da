//! Locks that the agent cannot count, because they do not pass through the C library: who was seen waiting for them.

use super::open::OpenWaits;
use super::watch::{Contention, name_of};
use crate::look::{Look, Names, Scope, own_frames};
use crate::measure::bounded;
use crate::model::{Family, Frame, Sampled, Snapshot, SyncKind};
use crate::target::Target;
use crate::{RemoteAddr, runtimes};
use std::collections::HashMap;
use std::time::Instant;

/// One look in this many reads stacks.
const STACKS_EVERY: u64 = 5;
/// Objects that are remembered, and call sites of each.
const MOST: usize = 10_000;
const MOST_SITES: usize = 64;

#[derive(Default)]
struct SampledLock {
    samples: u64,
    looks: u64,
    sites: HashMap<String, u64>,
}

/// What was seen so far.
pub(super) struct Samples {
    pub(super) looks: u64,
    seen: HashMap<(RemoteAddr, SyncKind, Family), SampledLock>,
    /// What is seen of those that the agent does count.
    pub(super) open: OpenWaits,
}

impl Samples {
    pub(super) fn new(began: Instant) -> Self {
        Self { looks: 0, seen: HashMap::new(), open: OpenWaits::new(began) }
    }

    /// Looks once. Nothing is stopped. `is_unseen` says of the first look whether waits had begun before the agent could see
    /// them.
    pub(super) fn look(&mut self, target: &dyn Target, is_unseen: bool) {
        let _look = target.limits().begin();
        let look = Look::new(target);
        let Ok(mut snapshot) = look.take(Scope::Waited, Names::None) else { return };
        self.open.add(&snapshot, &look.facts(), self.looks == 0, is_unseen);
        self.looks += 1;
        // What libc has is counted, and a parked thread waits for work.
        snapshot.objects.retain(|object| {
            !runtimes::of(object.family).is_counted()
                && !matches!(object.kind, SyncKind::Park | SyncKind::Join)
                && !object.waiters.is_empty()
        });
        if self.looks % STACKS_EVERY == 1 && !snapshot.objects.is_empty() {
            let is_waiter = |lwp| snapshot.objects.iter().any(|o| o.waiters.iter().any(|w| Some(w.lwp) == lwp));
            snapshot.threads.retain(|thread| is_waiter(thread.lwp));
            look.add_stacks(&mut snapshot);
        }
        for object in &snapshot.objects {
            let key = (object.address, object.kind, object.family);
            let Some(seen) = bounded(&mut self.seen, key, MOST) else { continue };
            seen.looks += 1;
            seen.samples += object.waiters.len() as u64;
            for waiter in &object.waiters {
                let thread = snapshot.threads.iter().find(|thread| thread.lwp == Some(waiter.lwp));
                let frames = thread.map_or(&[][..], |thread| &thread.frames);
                let site = site(frames).and_then(|site| bounded(&mut seen.sites, site.to_owned(), MOST_SITES));
                if let Some(count) = site {
                    *count += 1;
                }
            }
        }
    }

    /// Those that most threads waited for, without what is counted: a wait that just begins or ends may not show
    /// whose it is.
    pub(super) fn worst(&self, counted: &Contention, names: Option<&Snapshot>, limit: usize) -> Vec<Sampled> {
        let mut all: Vec<_> = self.seen.iter().filter(|((address, ..), _)| !counted.is_counted(*address)).collect();
        all.sort_by_key(|((address, ..), seen)| (std::cmp::Reverse(seen.samples), *address));
        let sampled = all.into_iter().take(limit).map(|((address, kind, family), seen)| {
            let mut sites: Vec<_> = seen.sites.iter().map(|(site, count)| (site.clone(), *count)).collect();
            sites.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            Sampled {
                address: *address,
                kind: *kind,
                family: *family,
                name: name_of(names, *address),
                samples: seen.samples,
                looks: seen.looks,
                sites,
            }
        });
        sampled.collect()
    }
}

/// The innermost function that is the program's own: the lock's, the runtime's and the C library's are not.
fn site(frames: &[Frame]) -> Option<&str> {
    own_frames(frames).find_map(|frame| frame.function.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(module: &str, function: &str) -> Frame {
        Frame { function: Some(function.to_owned()), module: Some(module.to_owned()), ..Frame::default() }
    }

    #[test]
    fn libraries_whose_names_begin_like_libc_are_the_programs() {
        for library in ["libcrypto.so.3", "libcurl.so.4", "libcap.so.2"] {
            let frames = [frame("libc.so.6", "syscall"), frame(library, "own"), frame("server", "main")];
            assert_eq!(site(&frames), Some("own"), "{library}");
        }
    }

    #[test]
    fn runtimes_are_not() {
        let runtimes = [
            ("libpthread-2.31.so", "__lll_lock_wait"),
            ("libstdc++.so.6", "__cxa_guard_acquire"),
            ("libstd-1234.so", "std::sys::futex_wait"),
            ("libglib-2.0.so.0", "g_cond_wait"),
            ("server", "absl::Mutex::Lock()"),
        ];
        for (module, function) in runtimes {
            assert_eq!(site(&[frame(module, function), frame("server", "own")]), Some("own"), "{module}");
        }
    }
}
