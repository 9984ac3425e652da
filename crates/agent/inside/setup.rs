//! Setting the agent up, as the program starts.

use crate::memory::{self, HEADER};
use crate::mutex::{self, Mutex};
use crate::sys::HUGE;
use crate::{attach, clock, elf, functions, lease, objects, plain, stacks, sys, tally, waits, words};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicU32, Ordering::*};
use table::size::{self, FEWEST, MOST, OBJECTS};
use table::{Extra, Library, UNIT, mode, state};

/// Variable of the environment with what is wanted: words with commas between them.
const VARIABLE: &[u8] = b"THREADGLASS_AGENT=";

/// A table for fewer objects than this has no words.
const WITH_WORDS: usize = 1 << 16;

#[used]
#[unsafe(link_section = ".init_array")]
static START: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

unsafe extern "C" fn start(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: as the loader calls constructors: an array of strings, ended by NULL.
    let (wanted, is_on, objects) = unsafe { options(environment) };
    functions::publish();
    HEADER.pid.store(sys::getpid(), Relaxed);
    if functions::find_all() != 0 {
        HEADER.state.store(state::REFUSED, Release);
        return;
    }
    // SAFETY: all functions were found.
    unsafe { learn() };
    // SAFETY: as the C library's `pthread_atfork` calls it.
    unsafe { watch_forks() };
    // In a program that was running nobody calls us before slots are patched: `attach.rs` goes on.
    let is_late = elf::is_late();
    attach::CONTROL.late.store(u32::from(is_late), Relaxed);
    objects::find();
    if !is_late && set_up(objects) {
        count(wanted, is_on);
    }
}

/// Makes the table; `false` if that cannot be.
pub fn set_up(objects: usize) -> bool {
    let is_done = begin(objects);
    HEADER.state.store(if is_done { state::READY } else { state::REFUSED }, Release);
    is_done
}

/// Begins to count, or waits for a time when that is wanted.
pub fn count(wanted: u32, is_on: bool) {
    tally::set_exact(wanted == mode::EXACT);
    plain::choose(wanted == mode::EXACT);
    HEADER.wanted.store(wanted, Relaxed);
    HEADER.enabled_at.store(clock::now(), Relaxed);
    HEADER.mode.store(if is_on { wanted } else { mode::OFF }, Release);
    if is_on {
        functions::switch_on();
    }
}

/// The mode, whether it is to be on from the beginning, and how many objects there is to be room for.
unsafe fn options(mut environment: *const *const c_char) -> (u32, bool, usize) {
    let (mut wanted, mut is_on, mut objects) = (mode::SAMPLED, true, OBJECTS);
    // SAFETY: by the caller's promise.
    while let Some(variable) = unsafe { environment.as_ref() }.filter(|variable| !variable.is_null()) {
        // SAFETY: a string of the environment.
        let text = unsafe { CStr::from_ptr(*variable) }.to_bytes();
        for word in text.strip_prefix(VARIABLE).unwrap_or_default().split(|byte| *byte == b',') {
            match word {
                b"off" => is_on = false,
                b"exact" => wanted = mode::EXACT,
                _ => {
                    let digits = word.strip_prefix(b"size=").unwrap_or_default();
                    if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
                        let number = digits.iter().fold(0_usize, |number, digit| {
                            number.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
                        });
                        objects = number.clamp(FEWEST, MOST);
                    }
                }
            }
        }
        // SAFETY: there is a NULL at the end.
        environment = unsafe { environment.add(1) };
    }
    (wanted, is_on, objects)
}

/// Makes the table; a smaller one if there is no room.
fn begin(mut objects: usize) -> bool {
    clock::start();
    while objects >= FEWEST {
        let (units, slots, extras) = (size::units(objects), size::slots(objects), size::extras(objects));
        // Who wants a small table may have reasons to want no large area either (`mlockall`).
        let words = if objects >= WITH_WORDS { table::words::AREA } else { 0 };
        let stacks = size::STACKS * size_of::<table::WaitStack>();
        let sizes = [slots * 4, units * UNIT, extras * size_of::<Extra>(), words, stacks];
        let sizes = sizes.map(|bytes| bytes.next_multiple_of(HUGE));
        let total = sizes.iter().sum::<usize>();
        if let Some(start) = sys::map(total + HUGE) {
            let entries = start.next_multiple_of(HUGE);
            let (index, extra) = (entries + sizes[1], entries + sizes[1] + sizes[0]);
            if !sys::wipe_on_fork(entries, total) {
                return false;
            }
            // Few objects shall cost little memory, many of them few misses: the first entries are on small pages
            // until they are all in use.
            sys::huge_pages(entries + HUGE, sizes[1] - HUGE);
            sys::name(entries, total, c"threadglass-table");
            memory::begin((index, slots), (entries, units), (extra, extras));
            stacks::begin(extra + sizes[2] + sizes[3]);
            if words != 0 {
                words::begin(extra + sizes[2]);
            }
            return true;
        }
        objects /= 2;
    }
    false
}

/// Learns where a thread's id is, and whether libc treats plain mutexes as we would.
unsafe fn learn() {
    // SAFETY: the descriptor is three numbers of 32 bits: bits of the field, how many, where.
    let descriptor = elf::next(c"_thread_db_pthread_tid")
        .map(|found| unsafe { core::ptr::with_exposed_provenance::<[u32; 3]>(found.address).read() });
    if let Some([32, 1, offset]) = descriptor
        && (64..8192).contains(&offset)
        && offset % 4 == 0
        // SAFETY: inside the thread's descriptor, which is several times as large.
        && unsafe { mutex::tid_at(offset as usize) } == sys::gettid()
    {
        mutex::TID_OFFSET.store(offset as usize, Relaxed);
    }
    // Cleanup handlers of the old sort: exported for programs that were built long ago.
    let address = |name| elf::next(name).map(|found| found.address);
    waits::begin(address(c"_pthread_cleanup_push"), address(c"_pthread_cleanup_pop"));
    let is_inline = mutex::TID_OFFSET.load(Relaxed) != 0 && is_libc(c"pthread_mutex_lock") && self_test();
    if is_inline {
        plain::learn();
    }
    HEADER.inline.store(u32::from(is_inline), Relaxed);
}

/// Whether a function is libc's own, and not that of another library which stands in its place.
fn is_libc(name: &CStr) -> bool {
    // SAFETY: paths of the loader's list.
    let library = elf::next(name).map(|found| Library::of(unsafe { elf::file_name(found.object) }));
    matches!(library, Some(Library::Libc | Library::PlainLibc | Library::Threads))
}

#[repr(C)]
struct Room {
    mutex: Mutex,
    rest: [u32; 5],
}

/// Takes and releases a mutex by libc's functions and by our own in turn: each must accept what the other did.
fn self_test() -> bool {
    let word = || AtomicU32::new(0);
    let room =
        Room { mutex: Mutex { lock: word(), count: word(), owner: word(), users: word(), kind: word() }, rest: [0; 5] };
    let address = (&raw const room).cast_mut().cast::<c_void>();
    let words = || {
        let mutex = &room.mutex;
        // SAFETY: on this stack; the C library may write there, so it is read as it is.
        let rest = unsafe { (&raw const room.rest).read_volatile() };
        let load = |word: &AtomicU32| word.load(Relaxed);
        ([&mutex.lock, &mutex.count, &mutex.owner, &mutex.users, &mutex.kind].map(load), rest)
    };
    let tid = mutex::tid();
    let free = ([0; 5], [0; 5]);
    let taken = ([1, 0, tid, 1, 0], [0; 5]);
    let lock = functions::real!(pthread_mutex_lock(*mut c_void));
    let try_lock = functions::real!(pthread_mutex_trylock(*mut c_void));
    let unlock = functions::real!(pthread_mutex_unlock(*mut c_void));
    lock(address) == 0
        && words() == taken
        && !plain::take(&room.mutex, tid)
        && unlock(address) == 0
        && words() == free
        && plain::take(&room.mutex, tid)
        && words() == taken
        && try_lock(address) == mutex::EBUSY
        && unlock(address) == 0
        && words() == free
        && lock(address) == 0
        && {
            plain::release(&room.mutex);
            words() == free
        }
        && try_lock(address) == 0
        && words() == taken
        && {
            plain::release(&room.mutex);
            words() == free
        }
}

/// A child counts its own: the kernel has emptied the table for it.
unsafe fn watch_forks() {
    type Handler = Option<unsafe extern "C" fn()>;
    let Some(found) = elf::next(c"__register_atfork") else { return };
    // SAFETY: its arguments, as the C library's own `pthread_atfork` has them.
    let register: unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int =
        unsafe { transmute(found.address) };
    // SAFETY: the handler stays: this library is never unloaded.
    unsafe { register(None, None, Some(in_child), core::ptr::null_mut()) };
}

unsafe extern "C" fn in_child() {
    HEADER.pid.store(sys::getpid(), Relaxed);
    for counter in [&HEADER.drops, &HEADER.extra_drops, &HEADER.threads_created] {
        counter.store(0, Relaxed);
    }
    attach::in_child();
    lease::in_child();
}
