//! Which processes are left alone, and why: told before anything is changed.

use super::{InjectError, Options, calls, spare};
use crate::act::fits::{is_sanitizer, misfit_file};
use crate::elf::Image;
use crate::memory::Memory;
use crate::proc::{KernelState, parse_file_limit};
use crate::sys::cgroup::frozen;
use crate::sys::task::status_of;
use crate::target::{KernelFacts, Library, Live, Module, Target};
use crate::{Lwp, RemoteAddr};
use std::collections::HashSet;

/// Locked memory beyond this is a program that has locked all of it, rather than a few secrets.
const LOCKED: u64 = 1 << 20;

/// Why nothing may be put into this process.
/// Otherwise whether the C library takes it for a process with one thread.
pub(super) fn check(live: &Live, options: &Options) -> Result<bool, InjectError> {
    let force = options.force;
    let pid = live.pid();
    let misfit = |why: &str| Err(InjectError::Misfit(why.to_owned()));
    if let Some(denial) = live.denial() {
        return Err(InjectError::Denied(pid, denial.to_string()));
    }
    // A leader that has left by pthread_exit has no file any more.
    let exe = format!("/proc/{pid}/task/{}/exe", live.witness());
    if let Some(why) = misfit_file(exe.as_ref(), &live.identity().exe.unwrap_or_else(|| exe.clone())) {
        return misfit(&why);
    }
    if live.modules().iter().any(|module| module.library() == Library::Musl) {
        return misfit("the program uses musl: the agent needs glibc 2.31 or later");
    }
    // Their allocators know their own threads only.
    if live.modules().iter().any(|module| is_sanitizer(&module.name())) || has_own_threads(live) {
        return misfit(
            "the program is built with a sanitizer, or has an allocator and a pthread_create of its own: its \
             allocator must know all threads",
        );
    }
    if let Some(thaw) = frozen(pid, live.witness()) {
        return Err(InjectError::Frozen(pid, thaw));
    }
    // libc forgoes its locks while there is but one thread: another would come upon it in the middle of something.
    let is_single = match single_thread_word(live).and_then(|word| live.read_u32(word).ok()) {
        Some(word) => word as u8 != 0,
        None => live.lwps()?.len() < 2,
    };
    if is_single && !options.single {
        return Err(InjectError::Single(pid));
    }
    // Its own thread writes the file that is loaded.
    let limits = std::fs::read(format!("/proc/{pid}/limits")).unwrap_or_default();
    if let Some(limit) = parse_file_limit(&limits).filter(|limit| *limit < agent::AGENT.len() as u64) {
        return misfit(&format!(
            "process {pid} may write no file larger than {limit} bytes (RLIMIT_FSIZE), and the agent has {}",
            agent::AGENT.len()
        ));
    }
    let mut threads = Vec::new();
    for lwp in live.lwps()? {
        let Some(status) = status_of(pid, lwp) else { continue };
        if status.tracer != 0 {
            return Err(InjectError::Traced(pid, status.tracer));
        }
        if status.state == Some(KernelState::Stopped) {
            return Err(InjectError::Stopped(pid));
        }
        if status.has_shadow_stack {
            return misfit("the process has shadow stacks, which guard its return addresses");
        }
        if !force && status.locked > LOCKED {
            return Err(InjectError::Locked(pid));
        }
        if !force && status.seccomp == 1 {
            return Err(InjectError::Seccomp(pid, "it is confined to four system calls".to_owned()));
        }
        threads.push((lwp, (status.seccomp != 0).then_some((status.seccomp, status.seccomp_filters))));
    }
    if !force && let Some(left) = spare::spare(pid).filter(|left| left.bytes < spare::NEEDED) {
        let group = left.group.display().to_string();
        return Err(InjectError::NoMemory(pid, left.bytes >> 10, left.limit >> 10, group, spare::NEEDED >> 10));
    }
    if !force {
        check_filters(live, &threads)?;
    }
    Ok(is_single)
}

/// Threads whose filters are read. The rest have the filters of a thread that has as many.
const ASKED: usize = 64;

/// Refuses a process with a thread that may not do what the agent does. Its new threads have the filters of the one that is
/// stopped, which is asked once more; but what the agent counts it counts in every thread, under the filters of that one.
fn check_filters(live: &Live, threads: &[(Lwp, Option<(u32, u32)>)]) -> Result<(), InjectError> {
    let pid = live.pid();
    let mut kinds = HashSet::new();
    let mut distinct = Vec::new();
    let filtered = threads.iter().filter_map(|(lwp, kind)| Some((*lwp, (*kind)?)));
    for (number, (lwp, kind)) in filtered.enumerate() {
        if !kinds.insert(kind) && number >= ASKED {
            continue;
        }
        match live.seccomp_filters(lwp) {
            Some(filters) if distinct.contains(&filters) => {}
            Some(filters) => {
                calls::check(pid, &filters)?;
                distinct.push(filters);
            }
            None if !live.has_thread(lwp) => {}
            // They cannot be read without a stop. If all are alike, it is enough to ask the one that is stopped.
            None if threads.iter().all(|(_, other)| *other == Some(kind)) => return Ok(()),
            None => {
                let why = "its threads have different filters, which only root can read (with BPF)";
                return Err(InjectError::Seccomp(pid, why.to_owned()));
            }
        }
    }
    Ok(())
}

/// Whether the program itself stands in for libc where memory and threads are made: what is linked into it does so.
fn has_own_threads(live: &Live) -> bool {
    let program = live.modules().iter().find(|module| live.is_program(module));
    let image = program.and_then(|module| Image::with_symbols(live, module.base, live.limits()).ok());
    image.is_some_and(|image| ["pthread_create", "malloc"].iter().all(|name| image.address_of(live, name).is_some()))
}

/// Where libc keeps whether there is but one thread: in the program, if that refers to it.
fn single_thread_word(live: &Live) -> Option<RemoteAddr> {
    let mut modules: Vec<_> = live.modules().iter().collect();
    modules.sort_by_key(|module| !live.is_program(module));
    let named = modules.into_iter().filter(|module| live.is_program(module) || module.library().is_libc());
    let image = |module: &Module| Image::with_symbols(live, module.base, live.limits()).ok();
    named.take(8).find_map(|module| image(module)?.address_of(live, "__libc_single_threaded"))
}
