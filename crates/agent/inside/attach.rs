//! The agent in a program that was running: a thread of its own patches the slots while somebody wants it, and
//! restores them when nobody does.
//!
//! Whoever wants it holds a pipe open for writing. The kernel closes that in whatever way a controller ends, also one
//! that lives in another pid namespace, of which we could not have a handle.

use crate::memory::HEADER;
use crate::{functions, got, pending, records, setup, sys};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use table::control::{Control, Mail, attached, message, step};
use table::{mode, size, state};

/// Found by its name from outside.
#[unsafe(export_name = "threadglass_control")]
pub static CONTROL: Control = Control {
    magic: table::MAGIC,
    version: table::VERSION,
    state: AtomicU32::new(attached::NO),
    tid: AtomicU32::new(0),
    fd: AtomicU32::new(0),
    patched: AtomicU32::new(0),
    missed: AtomicU32::new(0),
    times: AtomicU32::new(0),
    late: AtomicU32::new(0),
    inode: AtomicU64::new(0),
};

/// Looks that are still to be taken for objects that are being loaded.
static LOOKS: AtomicU32 = AtomicU32::new(0);
/// Milliseconds between two of them.
const BETWEEN: i32 = 2;
/// Milliseconds after which our thread sees that there are any: it cannot be woken without a descriptor of the
/// program's, or a signal.
const IDLE: i32 = 20;
/// How many are taken for one.
const LOADING: u32 = 500;
/// How many are taken after patching: a thread that was just having a slot resolved writes it over ours.
const SETTLING: u32 = 10;

/// How long the first controller may take, in milliseconds.
const PATIENCE: i32 = 5000;
/// Controllers whose processes are watched; more of them are watched by the pipe alone.
const WATCHED: usize = 8;

/// The thread's function. Its memory was made from outside, and is given back first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn threadglass_attach(mail: *mut Mail) -> *mut c_void {
    // SAFETY: as `Mail` says.
    let (wanted, objects) = unsafe {
        (*mail).thread = (&raw const CONTROL).addr() as u64;
        (*mail).state.store(step::ENTERED, Release);
        ((*mail).mode as u32, (*mail).objects as usize)
    };
    sys::name_thread(c"threadglass");
    let mut room = Room(Some(mail));
    if CONTROL.state.compare_exchange(attached::NO, attached::LEAVING, AcqRel, Relaxed).is_ok()
        || CONTROL.state.compare_exchange(attached::FAILED, attached::LEAVING, AcqRel, Relaxed).is_ok()
    {
        serve(wanted, objects, &mut room);
    }
    // Otherwise another thread serves already: whoever wanted this one finds that.
    room.give_back();
    ptr::null_mut()
}

/// The memory in which this thread began.
struct Room(Option<*mut Mail>);

impl Room {
    /// Gives it back, once the raw thread has left it.
    fn give_back(&mut self) {
        let Some(mail) = self.0.take() else { return };
        // SAFETY: as `Mail` says; nobody else in the program uses it once the raw thread has ended.
        unsafe {
            let raw: *const AtomicU32 = ptr::with_exposed_provenance((*mail).raw_tid as usize);
            for _ in 0..10_000 {
                if (*raw).load(Acquire) == 0 {
                    // At once: a page of code that stands alone is one that nobody uses.
                    let (start, size) = ((*mail).code, (*mail).code_size + (*mail).region_size);
                    sys::unmap(start as usize, size as usize);
                    return;
                }
                sys::nap(100_000);
            }
        }
    }
}

/// Whether there is a table, made now if need be.
fn is_ready(objects: usize) -> bool {
    if HEADER.state.load(Acquire) == state::NEW {
        let objects = if objects == 0 { size::OBJECTS } else { objects.clamp(size::FEWEST, size::MOST) };
        setup::set_up(objects);
    }
    HEADER.state.load(Acquire) == state::READY && records::begin()
}

fn serve(wanted: u32, objects: usize, room: &mut Room) {
    if !is_ready(objects) {
        return CONTROL.state.store(attached::FAILED, Release);
    }
    sys::own_descriptors();
    let Some((reader, writer)) = sys::pipe() else {
        return CONTROL.state.store(attached::FAILED, Release);
    };
    CONTROL.tid.store(sys::gettid(), Relaxed);
    CONTROL.fd.store(reader, Relaxed);
    CONTROL.inode.store(sys::inode(reader), Relaxed);
    CONTROL.state.store(attached::WAITING, Release);
    let mut watched = Watched { all: [sys::Poll { fd: -1, wanted: POLLIN, got: 0 }; WATCHED + 1], any: false };
    watched.all[0].fd = reader as i32;
    sys::poll(&mut watched.all[..1], PATIENCE);
    let mut is_wanted = matches!(sys::receive(reader), Some(Some([message::HELLO, ..])));
    sys::close(writer);
    // Whoever waits for us has found us by now.
    room.give_back();
    if is_wanted {
        begin(wanted);
        CONTROL.state.store(attached::YES, Release);
    }
    while is_wanted {
        let left = LOOKS.load(Acquire);
        sys::poll(&mut watched.all, if left == 0 { IDLE } else { BETWEEN });
        if left != 0 {
            look_now();
            // Whoever has asked again meanwhile gets all of its looks.
            let _ = LOOKS.compare_exchange(left, left - 1, AcqRel, Relaxed);
        }
        is_wanted = watched.handle(reader);
    }
    CONTROL.state.store(attached::LEAVING, Release);
    CONTROL.inode.store(0, Relaxed);
    end();
    sys::close(reader);
    watched.close();
    CONTROL.state.store(attached::NO, Release);
}

const POLLIN: i16 = 1;

struct Watched {
    all: [sys::Poll; WATCHED + 1],
    any: bool,
}

impl Watched {
    /// Does what was asked for; whether anybody still wants us.
    fn handle(&mut self, reader: u32) -> bool {
        for place in &mut self.all[1..] {
            if place.fd >= 0 && place.got != 0 {
                sys::close(place.fd as u32);
                place.fd = -1;
            }
        }
        loop {
            match sys::receive(reader) {
                None => return false,
                Some(None) => break,
                Some(Some([message::LEAVE, ..])) => return false,
                Some(Some([message::PID, _, _, _, pid @ ..])) => self.watch(u32::from_le_bytes(pid)),
                Some(Some(_)) => {}
            }
        }
        !self.any || self.all[1..].iter().any(|place| place.fd >= 0)
    }

    fn watch(&mut self, pid: u32) {
        if let Some(place) = self.all[1..].iter_mut().find(|place| place.fd < 0)
            && let Some(fd) = sys::pidfd(pid)
        {
            place.fd = fd as i32;
            self.any = true;
        }
    }

    fn close(&mut self) {
        for place in self.all[1..].iter().filter(|place| place.fd >= 0) {
            sys::close(place.fd as u32);
        }
    }
}

fn begin(wanted: u32) {
    CONTROL.times.fetch_add(1, Relaxed);
    setup::count(if wanted == mode::EXACT { mode::EXACT } else { mode::SAMPLED }, true);
    LOOKS.store(SETTLING, Relaxed);
    look_now();
}

fn end() {
    LOOKS.store(0, Relaxed);
    HEADER.mode.store(mode::OFF, Release);
    pending::clear();
    let mut left = got::restore();
    // Threads that were having a slot resolved may have missed it.
    for _ in 0..3 {
        if left == 0 {
            break;
        }
        sys::nap(1_000_000);
        left = got::restore();
    }
    CONTROL.patched.store(left, Relaxed);
    functions::switch_off();
}

/// Patches what is not patched, if we are wanted.
pub fn look_now() {
    if HEADER.mode.load(Acquire) == mode::OFF {
        return;
    }
    let look = got::patch();
    // Somebody may have left meanwhile, and restored all before us.
    if HEADER.mode.load(Acquire) == mode::OFF {
        got::restore();
        return;
    }
    CONTROL.patched.store(look.patched, Relaxed);
    CONTROL.missed.store(look.missed, Relaxed);
    // Somebody has been loading since before we came.
    if look.unready != 0 {
        LOOKS.fetch_max(SETTLING, AcqRel);
    }
}

/// Whether the program was running when we came.
pub fn is_late() -> bool {
    CONTROL.late.load(Relaxed) != 0
}

/// An object is about to be loaded: our thread looks again and again for a while.
pub fn look_again() {
    LOOKS.store(LOADING, Release);
}

/// A forked child is not tracked: nobody is there to restore its slots later.
pub fn in_child() {
    got::forget_lock();
    if !matches!(CONTROL.state.load(Relaxed), attached::NO | attached::FAILED) {
        got::restore_in_child();
        pending::clear();
        functions::switch_off();
        HEADER.mode.store(mode::OFF, Relaxed);
        CONTROL.patched.store(0, Relaxed);
        CONTROL.inode.store(0, Relaxed);
        CONTROL.state.store(attached::NO, Relaxed);
    }
}

/// For a debugger, which calls this in a stopped program: counts from now on (1: one hold in 64 is timed, 2: all
/// are), or no longer (0). Nobody watches the debugger then. 0 if it is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn threadglass_track(wanted: c_int) -> c_int {
    const EBUSY: c_int = 16;
    const ENOMEM: c_int = 12;
    let (from, to) = if wanted == 0 { (attached::BY_HAND, attached::NO) } else { (attached::NO, attached::BY_HAND) };
    if CONTROL.state.load(Acquire) == to {
        return 0;
    }
    if CONTROL.state.compare_exchange(from, attached::LEAVING, AcqRel, Relaxed).is_err() {
        return EBUSY;
    }
    let is_done = is_late() && (wanted == 0 || is_ready(0));
    match (is_done, wanted) {
        (false, _) => {}
        (true, 0) => end(),
        (true, wanted) => begin(wanted as u32),
    }
    CONTROL.state.store(if is_done { to } else { from }, Release);
    if is_done { 0 } else { ENOMEM }
}
