//! Locks that glibc keeps for itself: of streams, of malloc's arenas, of the dynamic loader. Where they lie and what is
//! around them tells which one it is, in programs without symbols too. The offsets are the same from 2.31 to 2.42.

use super::locks::Mutex;
use crate::RemoteAddr;
use crate::memory::Memory;
use crate::model::MutexType;
use crate::proc::map_at;
use crate::runtimes::{u32_at, u64_at};
use crate::target::{Library, Target};

/// Of a stream: what its first word begins with, the next one in the list of all, its descriptor, its lock, and the bytes
/// up to there.
const MAGIC: u32 = 0xfbad;
const NEXT_STREAM: u64 = 0x68;
const DESCRIPTOR: usize = 0x70;
const LOCK: usize = 0x88;
const STREAM: usize = 0x90;
/// Where streams of files have their locks: behind them.
const LOCK_BEHIND: u64 = 0xe0;
/// Streams that a program has open at most.
const MAX_STREAMS: usize = 4096;
/// Variables of a program that has libc inside, in bytes, among which its streams are looked for.
const MAX_DATA: u64 = 1 << 20;

const STANDARD: [(&str, &str); 3] =
    [("_IO_2_1_stdin_", "stdin"), ("_IO_2_1_stdout_", "stdout"), ("_IO_2_1_stderr_", "stderr")];

/// Of an arena: its flags, its first bin, and the next one in the ring of all.
const FLAGS: usize = 4;
const BIN: usize = 112;
const NEXT_ARENA: u64 = 2160;
const ARENA: usize = 2168;
const MAX_ARENAS: usize = 4096;
/// All arenas but the main one are in heaps that are aligned to this, and begin with a pointer to the arena.
const HEAP: u64 = 64 << 20;

/// Bytes of a mutex.
const MUTEX: u64 = 40;
/// The loader's locks, one behind the other.
const OF_LOADER: [&str; 3] = [
    "the dynamic loader's lock (dlopen, dlclose, dlsym)",
    "the dynamic loader's lock of the list of libraries (dl_iterate_phdr, exceptions)",
    "the dynamic loader's lock of thread-local storage (new threads, dlopen)",
];

/// Which stream it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Standard(&'static str),
    /// By its descriptor; below 0 for one that has none.
    Of(i32),
}

/// The stream whose lock is at `lock`. `is_linked_in` says that libc is a part of the program, whose variables may have no
/// names.
pub(super) fn stream_of(target: &dyn Target, lock: RemoteAddr, is_linked_in: bool) -> Option<Stream> {
    let standard = STANDARD.iter().filter_map(|(symbol, name)| Some((target.address_of(symbol)?, *name)));
    let mut standard = standard.filter(|(file, _)| descriptor_of(target, *file, lock).is_some());
    if let Some((_, name)) = standard.next() {
        return Some(Stream::Standard(name));
    }
    let behind = lock.checked_sub(LOCK_BEHIND).and_then(|file| descriptor_of(target, file, lock));
    if let Some(descriptor) = behind.or_else(|| listed(target, lock)) {
        return Some(Stream::Of(descriptor));
    }
    is_linked_in.then(|| among_variables(target, lock)).flatten()
}

/// The descriptor of the stream at `file`, if that is one and has its lock at `lock`.
fn descriptor_of(memory: &dyn Memory, file: RemoteAddr, lock: RemoteAddr) -> Option<i32> {
    let bytes = memory.read_vec(file, STREAM).ok()?;
    let is_stream = u32_at(&bytes, 0)? >> 16 == MAGIC && u64_at(&bytes, LOCK)? == lock.0;
    is_stream.then(|| u32_at(&bytes, DESCRIPTOR)).flatten().map(|number| number as i32)
}

/// The same of a stream in the list of all.
fn listed(target: &dyn Target, lock: RemoteAddr) -> Option<i32> {
    let mut at = target.read_u64(target.address_of("_IO_list_all")?).ok()?;
    for _ in 0..MAX_STREAMS {
        if at == 0 {
            return None;
        }
        if let Some(descriptor) = descriptor_of(target, RemoteAddr(at), lock) {
            return Some(descriptor);
        }
        at = target.read_u64(RemoteAddr(at.checked_add(NEXT_STREAM)?)).ok()?;
    }
    None
}

/// The standard stream among the variables around `lock` that points to it.
fn among_variables(target: &dyn Target, lock: RemoteAddr) -> Option<Stream> {
    let maps = target.maps();
    let own = map_at(maps, lock)?;
    // What has a value at the start is in front of what has none, where the mapping is of a file.
    let before = maps.iter().find(|map| map.end == own.start && map.write);
    for map in [Some(own), before].into_iter().flatten() {
        let size = map.end.0.saturating_sub(map.start.0).min(MAX_DATA);
        let Ok(bytes) = target.read_vec(map.start, size as usize) else { continue };
        let words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).enumerate();
        for (index, _) in words.filter(|(_, word)| *word == lock.0) {
            let file = (map.start.0 + 8 * index as u64).checked_sub(LOCK as u64)?;
            let descriptor = descriptor_of(target, RemoteAddr(file), lock).and_then(|it| usize::try_from(it).ok());
            if let Some((_, name)) = descriptor.and_then(|number| STANDARD.get(number)) {
                return Some(Stream::Standard(name));
            }
        }
    }
    None
}

/// Whether an arena of malloc is at `address`: they stand in a ring.
pub(super) fn is_arena(memory: &dyn Memory, address: RemoteAddr) -> bool {
    let Ok(bytes) = memory.read_vec(address, ARENA) else { return false };
    let is_like_one = u32_at(&bytes, FLAGS).is_some_and(|flags| flags < 8) && u64_at(&bytes, BIN) != Some(0);
    let mut at = u64_at(&bytes, NEXT_ARENA as usize).unwrap_or(0);
    for _ in 0..MAX_ARENAS {
        if at == address.0 || !is_like_one {
            return is_like_one;
        }
        let next = at.checked_add(NEXT_ARENA).and_then(|next| memory.read_u64(RemoteAddr(next)).ok());
        let Some(next) = next else { return false };
        at = next;
    }
    false
}

/// What people call a lock inside of libc. `entry` is the function of libc that wants it.
pub(super) fn name_of(target: &dyn Target, lock: RemoteAddr, entry: Option<&str>) -> Option<String> {
    match stream_of(target, lock, true) {
        Some(Stream::Standard(name)) => return Some(format!("the lock of {name}")),
        Some(Stream::Of(number @ 0..)) => {
            let file = target.descriptor_file(number).map_or_else(String::new, |file| format!(" ({file})"));
            return Some(format!("the lock of the stream of descriptor {number}{file}"));
        }
        Some(Stream::Of(_)) => return Some("the lock of a stream without a descriptor".to_owned()),
        None => {}
    }
    if is_arena(target, lock) {
        let is_in_heap = target.read_u64(RemoteAddr(lock.0 & !(HEAP - 1))).is_ok_and(|arena| arena == lock.0);
        return Some(match is_in_heap {
            true => format!("the lock of malloc's arena {lock}"),
            false => "the lock of malloc's main arena".to_owned(),
        });
    }
    let entry = entry?.trim_start_matches("_IO_").trim_start_matches('_');
    Some(format!("the lock inside {entry}"))
}

/// What people call a mutex of the dynamic loader.
pub(super) fn name_in_loader(target: &dyn Target, lock: RemoteAddr) -> Option<String> {
    target.module_at(lock).filter(|module| module.library() == Library::Loader)?;
    let is_recursive = |mutex: Mutex| mutex.is_plausible() && mutex.mutex_type() == MutexType::Recursive;
    let is_before = |count: &u64| {
        let at = lock.checked_sub(count * MUTEX);
        at.and_then(|at| Mutex::read(target, at)).is_some_and(is_recursive)
    };
    let before = (1..=OF_LOADER.len() as u64).take_while(is_before).count();
    Some(OF_LOADER.get(before).copied().unwrap_or("the dynamic loader's lock").to_owned())
}
