//! How a tool and the agent talk while the agent is put into a program that runs, and afterwards.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Name of the agent's exported [`Control`].
pub const CONTROL_SYMBOL: &str = "threadglass_control";
/// Name of the agent's function that a thread of its own begins with; its argument is a [`Mail`].
pub const ATTACH_SYMBOL: &str = "threadglass_attach";

/// Values of [`Control::state`].
pub mod attached {
    /// No slot is patched.
    pub const NO: u32 = 0;
    /// A thread of the agent waits for whoever wants it.
    pub const WAITING: u32 = 1;
    /// Slots are patched, and calls counted, as long as somebody holds the pipe open.
    pub const YES: u32 = 2;
    /// Slots are being restored.
    pub const LEAVING: u32 = 3;
    /// The agent could not be set up.
    pub const FAILED: u32 = 4;
    /// Slots are patched for a debugger, which calls to have them restored.
    pub const BY_HAND: u32 = 5;
}

/// What a controller writes into the pipe, in a message of [`MESSAGE`] bytes: one of these, three zeros, a number.
pub mod message {
    /// Here I am.
    pub const HELLO: u8 = b'H';
    /// And this is my pid: leave when that process has gone, even if a child of it still holds the pipe.
    pub const PID: u8 = b'P';
    /// Leave now, whoever else is there.
    pub const LEAVE: u8 = b'X';
}

/// Bytes of a message.
pub const MESSAGE: usize = 8;

/// The state of an agent that was put into a running program. It stays as long as the program does.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// [`crate::MAGIC`].
    pub magic: [u8; 8],
    /// [`crate::VERSION`].
    pub version: u32,
    /// One of [`attached`].
    pub state: AtomicU32,
    /// Id of the thread that waits for its controllers, as the program sees it.
    pub tid: AtomicU32,
    /// Its descriptor of the pipe, which is in its own table.
    pub fd: AtomicU32,
    /// Slots that are patched now.
    pub patched: AtomicU32,
    /// Slots that could not be.
    pub missed: AtomicU32,
    /// Times that it was attached.
    pub times: AtomicU32,
    /// 1 if it was loaded by a program that ran already; 0 if the program was started with it.
    pub late: AtomicU32,
    /// Inode of the pipe, by which it is told from others of its number.
    pub inode: AtomicU64,
}

/// Values of [`Mail::state`].
pub mod step {
    /// The raw thread runs.
    pub const RAW: u32 = 1;
    /// The real thread runs.
    pub const REAL: u32 = 2;
    /// There is a file in memory, and the wait for what it is to hold.
    pub const FILE: u32 = 3;
    /// It is being loaded.
    pub const LOADING: u32 = 4;
    /// The agent's function is called; what follows is told by [`super::Control`].
    pub const ENTERED: u32 = 5;
    /// From here on: it went wrong.
    pub const FAILED: u32 = 0x100;
    /// No thread could be made.
    pub const NO_THREAD: u32 = 0x101;
    /// No file in memory.
    pub const NO_FILE: u32 = 0x102;
    /// It was not loaded.
    pub const NOT_LOADED: u32 = 0x103;
    /// Nobody brought what the file is to hold, or it did not fit.
    pub const ABANDONED: u32 = 0x104;
    /// Memory could not be made writable.
    pub const NO_MEMORY: u32 = 0x105;
}

/// Values of [`Mail::go`].
pub mod go {
    /// Go on.
    pub const ON: u32 = 1;
    /// Clean up and end.
    pub const AWAY: u32 = 2;
}

/// What the first code in the program finds beside it; filled in from outside.
#[repr(C)]
#[derive(Debug)]
pub struct Mail {
    /// One of [`step`]. By the program.
    pub state: AtomicU32,
    /// What the failed call returned. By the program.
    pub error: AtomicU32,
    /// One of [`go`], or 0. From outside.
    pub go: AtomicU32,
    /// Descriptor of the file in memory. By the program.
    pub file: AtomicU32,
    /// The memory that can be written, this structure in it.
    pub region: u64,
    /// Bytes of it.
    pub region_size: u64,
    /// The page with the code, right before the region.
    pub code: u64,
    /// Bytes of it.
    pub code_size: u64,
    /// A system call followed by a return, in the C library.
    pub syscall_ret: u64,
    /// Where the raw thread's id is; the kernel clears it when the thread has ended.
    pub raw_tid: u64,
    /// `pthread_create`.
    pub create: u64,
    /// `pthread_attr_init`.
    pub attr_init: u64,
    /// `pthread_attr_setstacksize`.
    pub set_stack_size: u64,
    /// `pthread_attr_setdetachstate`.
    pub set_detach_state: u64,
    /// `dlopen`, or what libc had for itself before 2.34.
    pub open: u64,
    /// Its second argument.
    pub open_mode: u64,
    /// `dlsym`, likewise.
    pub symbol: u64,
    /// The agent's function, if the agent is there already.
    pub attach: u64,
    /// Signals that the real thread blocks.
    pub mask: u64,
    /// A nap, as `nanosleep` has it.
    pub nap: [u64; 2],
    /// How many of them to wait at most: whoever is outside answers at once, or has gone.
    pub naps: u64,
    /// Room for a `pthread_t`.
    pub thread: u64,
    /// Room for a `pthread_attr_t`.
    pub attributes: [u64; 8],
    /// Path of the file in memory.
    pub path: [u8; 40],
    /// [`ATTACH_SYMBOL`], ended by a zero.
    pub name: [u8; 24],
    /// Name of the file in memory.
    pub file_name: [u8; 24],
    /// For the agent: a mode of [`crate::mode`].
    pub mode: u64,
    /// For the agent: objects there is to be room for, or 0.
    pub objects: u64,
    /// libc's function that calls the destructors of C++'s thread-local objects, or 0.
    pub end_objects: u64,
    /// libc's keys of thread-specific data: [`KEYS`] pairs of a sequence number and a destructor.
    pub keys: u64,
    /// The raw thread's values for them: pairs of a sequence number and a value.
    pub values: u64,
    /// What the file in memory is to hold: put here from outside while the program waits in [`step::FILE`].
    pub payload: u64,
    /// Bytes of it.
    pub payload_size: u64,
    /// Tells one injection from another.
    pub nonce: u64,
}

/// Keys whose values are in a thread's descriptor itself.
pub const KEYS: u32 = 32;

/// Bytes of a [`Control`].
pub const CONTROL_SIZE: usize = size_of::<Control>();
/// Bytes of a [`Mail`].
pub const MAIL_SIZE: usize = size_of::<Mail>();

/// What a [`Control`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlView {
    /// One of [`attached`].
    pub state: u32,
    /// Id of the agent's thread.
    pub tid: u32,
    /// Its descriptor of the pipe.
    pub fd: u32,
    /// Slots that are patched.
    pub patched: u32,
    /// Slots that could not be.
    pub missed: u32,
    /// Times that it was attached.
    pub times: u32,
    /// Whether it was loaded by a program that ran already.
    pub is_late: bool,
    /// Inode of the pipe.
    pub inode: u64,
}

impl ControlView {
    /// Reads one; `None` if that is not what the bytes are.
    pub fn read(bytes: &[u8; CONTROL_SIZE]) -> Option<Self> {
        let u32_at = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let u64_at = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        macro_rules! at {
            ($get:ident, $field:ident) => {
                $get(core::mem::offset_of!(Control, $field))
            };
        }
        let is_one = bytes[..8] == crate::MAGIC && at!(u32_at, version) == crate::VERSION;
        is_one.then(|| Self {
            state: at!(u32_at, state),
            tid: at!(u32_at, tid),
            fd: at!(u32_at, fd),
            patched: at!(u32_at, patched),
            missed: at!(u32_at, missed),
            times: at!(u32_at, times),
            is_late: at!(u32_at, late) != 0,
            inode: at!(u64_at, inode),
        })
    }
}
