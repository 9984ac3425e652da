//! The functions that stand in the C library's place: each is one jump through one of two pointers.
//!
//! One leads to the C library's function, for while tracking is off, the other to ours. Before the agent is set up
//! the first leads to a stub that looks the C library's function up.

use crate::memory::HEADER;
use crate::{barrier, elf, mutex, rwlock, sem, spin, waits};
use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::*};
use table::Header;

/// The function of the C library at an address, as a function of those arguments.
macro_rules! function_at {
    ($address:expr, $a:ty) => {{
        let call: unsafe extern "C" fn($a) -> core::ffi::c_int = $crate::functions::function_at!(@ $address);
        // SAFETY: the arguments are the program's, which has promised them to the C library.
        move |a: $a| unsafe { call(a) }
    }};
    ($address:expr, $a:ty, $b:ty) => {{
        let call: unsafe extern "C" fn($a, $b) -> core::ffi::c_int = $crate::functions::function_at!(@ $address);
        // SAFETY: as above.
        move |a: $a, b: $b| unsafe { call(a, b) }
    }};
    ($address:expr, $a:ty, $b:ty, $c:ty) => {{
        let call: unsafe extern "C" fn($a, $b, $c) -> core::ffi::c_int = $crate::functions::function_at!(@ $address);
        // SAFETY: as above.
        move |a: $a, b: $b, c: $c| unsafe { call(a, b, c) }
    }};
    (@ $address:expr) => {
        // SAFETY: found under a name whose arguments the C standard or POSIX defines.
        unsafe { core::mem::transmute::<*const (), _>($address) }
    };
}
pub(crate) use function_at;

/// The C library's function of that name: as a function of those arguments, or as an address.
macro_rules! real {
    ($name:ident($($argument:ty),+)) => {
        $crate::functions::function_at!(
            core::ptr::with_exposed_provenance::<()>($crate::functions::real!($name)), $($argument),+
        )
    };
    ($name:ident) => {
        $crate::functions::REALS[$crate::functions::at::$name].load(core::sync::atomic::Ordering::Relaxed)
    };
}
pub(crate) use real;

/// The same function where the thread may wait in it. It is called from one place of its own, by an instruction that names
/// it: so whoever looks at the stack from outside can tell for what the thread waits.
macro_rules! waiting {
    ($name:ident($($argument:ty),+)) => {
        $crate::functions::function_at!($crate::functions::through::$name as *const (), $($argument),+)
    };
    ($name:ident) => {
        ($crate::functions::through::$name as *const ()).expose_provenance()
    };
}
pub(crate) use waiting;

/// Where a function that is tracked finds the address it was called from: behind its last argument.
macro_rules! tracked {
    ($target:path) => { $target as *const () };
    ($target:path, $register:literal) => {{
        #[unsafe(naked)]
        unsafe extern "C" fn entered() {
            core::arch::naked_asm!(".cfi_startproc", concat!("mov ", $register, ", [rsp]"), "jmp {target}", ".cfi_endproc", target = sym $target)
        }
        entered as *const ()
    }};
}

pub(crate) use tracked;

macro_rules! functions {
    ($($number:literal $name:ident $target:path $(, $register:literal)?;)*) => {
        /// Numbers of the functions.
        #[allow(non_upper_case_globals)]
        // Those through which threads wait are called by name alone.
        #[allow(dead_code)]
        pub mod at { $(pub const $name: usize = $number;)* }

        pub const COUNT: usize = [$($number),*].len();
        const _: () = { let mut next = 0; $(assert!($number == next); next += 1;)* assert!(next == COUNT); };

        pub static NAMES: [&core::ffi::CStr; COUNT] = [$(
            // SAFETY: ends with the one zero that was put there.
            unsafe { core::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) }
        ),*];

        mod early {
            use core::arch::naked_asm;
            $(
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name() {
                    naked_asm!(".cfi_startproc", "push {number}", ".cfi_adjust_cfa_offset 8", "jmp {resolve}", ".cfi_endproc", number = const $number, resolve = sym super::resolving)
                }
            )*
        }

        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                jump!($number)
            }
        )*

        /// The same once more, under no name that another object's could stand in for.
        mod entry {
            $(
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name() {
                    super::jump!($number)
                }
            )*
        }

        /// Calls of the C library's functions, each from a place of its own. See `waiting`. The frame pointer is kept on the
        /// stack: whoever looks does not know the registers of a thread that waits.
        #[allow(dead_code, reason = "not every function waits")]
        pub mod through {
            use core::arch::naked_asm;
            $(
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name() {
                    naked_asm!(
                        ".cfi_startproc",
                        "push rbp",
                        ".cfi_adjust_cfa_offset 8",
                        ".cfi_rel_offset rbp, 0",
                        "call [rip + {reals} + {offset}]",
                        "pop rbp",
                        ".cfi_restore rbp",
                        ".cfi_adjust_cfa_offset -8",
                        "ret",
                        ".cfi_endproc",
                        reals = sym super::REALS,
                        offset = const 8 * $number,
                    )
                }
            )*
        }

        /// What slots of the program lead to while the agent is in a program that was running.
        static ENTRIES: [unsafe extern "C" fn(); COUNT] = [$(entry::$name),*];

        /// Where calls go.
        static SLOTS: Slots = Slots(UnsafeCell::new([$([early::$name as *const (), tracked!($target $(, $register)?)]),*]));
    };
}

/// Of each function where its calls go while tracking is off, and while it is on.
#[repr(transparent)]
struct Slots(UnsafeCell<[[*const (); 2]; COUNT]>);

// SAFETY: read by the jumps, and otherwise only through atomics.
unsafe impl Sync for Slots {}

impl Slots {
    fn get(&self, number: usize, on: bool) -> &AtomicUsize {
        // SAFETY: a number of a function. A pointer is as large and aligned as the atomic, and is only used as such.
        unsafe { AtomicUsize::from_ptr(self.0.get().cast::<usize>().add(2 * number + usize::from(on))) }
    }
}

/// Whether tracking is on, which every call looks at: 0 or 1. One byte, because it is also written from outside while the
/// program runs, and nothing tells that the kernel would write more at once.
static IS_ON: AtomicU8 = AtomicU8::new(0);

/// Jumps to where calls of function `$number` go. Of the registers it uses none has arguments.
macro_rules! jump {
    ($number:literal) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "movzx eax, byte ptr [rip + {on}]",
            "lea r11, [rip + {slots} + {offset}]",
            "jmp [r11 + 8 * rax]",
            ".cfi_endproc",
            on = sym $crate::functions::IS_ON,
            slots = sym $crate::functions::SLOTS,
            offset = const 16 * $number,
        )
    };
}
use jump;

/// The C library's functions, as far as they were found.
pub static REALS: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

functions! {
    0 pthread_mutex_init mutex::init;
    1 pthread_mutex_destroy mutex::destroy;
    2 pthread_mutex_lock mutex::lock, "rsi";
    3 pthread_mutex_trylock mutex::trylock, "rsi";
    4 pthread_mutex_timedlock mutex::timedlock, "rdx";
    5 pthread_mutex_clocklock mutex::clocklock, "rcx";
    6 pthread_mutex_unlock mutex::unlock;
    7 pthread_cond_init waits::cond_init;
    8 pthread_cond_destroy waits::cond_destroy;
    9 pthread_cond_wait waits::cond_wait;
    10 pthread_cond_timedwait waits::cond_timedwait;
    11 pthread_cond_clockwait waits::cond_clockwait;
    12 pthread_cond_signal waits::cond_signal;
    13 pthread_cond_broadcast waits::cond_broadcast;
    14 pthread_rwlock_init rwlock::init;
    15 pthread_rwlock_destroy rwlock::destroy;
    16 pthread_rwlock_rdlock rwlock::rdlock, "rsi";
    17 pthread_rwlock_wrlock rwlock::wrlock, "rsi";
    18 pthread_rwlock_tryrdlock rwlock::tryrdlock;
    19 pthread_rwlock_trywrlock rwlock::trywrlock, "rsi";
    20 pthread_rwlock_timedrdlock rwlock::timedrdlock, "rdx";
    21 pthread_rwlock_timedwrlock rwlock::timedwrlock, "rdx";
    22 pthread_rwlock_clockrdlock rwlock::clockrdlock, "rcx";
    23 pthread_rwlock_clockwrlock rwlock::clockwrlock, "rcx";
    24 pthread_rwlock_unlock rwlock::unlock;
    25 sem_init sem::init;
    26 sem_destroy sem::destroy;
    27 sem_wait waits::sem_wait;
    28 sem_trywait sem::trywait;
    29 sem_timedwait waits::sem_timedwait;
    30 sem_clockwait waits::sem_clockwait;
    31 sem_post sem::post;
    32 pthread_barrier_init barrier::init;
    33 pthread_barrier_destroy barrier::destroy;
    34 pthread_barrier_wait barrier::wait, "rsi";
    35 pthread_spin_init spin::init;
    36 pthread_spin_destroy spin::destroy;
    37 pthread_spin_lock spin::lock, "rsi";
    38 pthread_spin_trylock spin::trylock, "rsi";
    39 pthread_spin_unlock spin::unlock;
    40 mtx_init mutex::mtx_init;
    41 mtx_destroy mutex::mtx_destroy;
    42 mtx_lock mutex::mtx_lock, "rsi";
    43 mtx_trylock mutex::mtx_trylock, "rsi";
    44 mtx_timedlock mutex::mtx_timedlock, "rdx";
    45 mtx_unlock mutex::mtx_unlock;
    46 cnd_init waits::cnd_init;
    47 cnd_destroy waits::cnd_destroy;
    48 cnd_wait waits::cnd_wait;
    49 cnd_timedwait waits::cnd_timedwait;
    50 cnd_signal waits::cnd_signal;
    51 cnd_broadcast waits::cnd_broadcast;
    52 pthread_create create;
    53 pthread_mutex_consistent mutex::consistent;
}

/// Counts and goes on.
#[unsafe(naked)]
unsafe extern "C" fn create() {
    naked_asm!(
        ".cfi_startproc",
        "mov rax, [rip + {header}@GOTPCREL]",
        "lock inc qword ptr [rax + {created}]",
        "jmp [rip + {reals} + {offset}]",
        ".cfi_endproc",
        header = sym crate::memory::HEADER,
        created = const offset_of!(Header, threads_created),
        reals = sym REALS,
        offset = const 8 * at::pthread_create,
    )
}

/// The first call of a function before the agent is set up: its number is on the stack, above the return address.
#[unsafe(naked)]
unsafe extern "C" fn resolving() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_adjust_cfa_offset 8",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        ".cfi_adjust_cfa_offset 48",
        "mov rdi, [rsp + 48]",
        "call {resolve}",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -56",
        "jmp rax",
        ".cfi_endproc",
        resolve = sym resolve,
    )
}

/// Finds the C library's function, and lets calls go there from now on, or to ours if tracking is on.
unsafe extern "C" fn resolve(number: usize) -> usize {
    let Some(found) = elf::next(NAMES[number]) else { return missing as *const () as usize };
    REALS[number].store(found.address, Release);
    SLOTS.get(number, false).store(found.address, Release);
    found.address
}

/// What a program gets that calls a function which its C library does not have.
unsafe extern "C" fn missing() -> c_int {
    const ENOSYS: c_int = 38;
    ENOSYS
}

/// Finds all of the C library's functions; how many are missing.
pub fn find_all() -> usize {
    let mut missing = 0;
    for (number, real) in REALS.iter().enumerate() {
        // SAFETY: a number of a function.
        unsafe { resolve(number) };
        missing += usize::from(real.load(Relaxed) == 0);
    }
    missing
}

/// Tells whoever looks from outside what to write to switch tracking on and off.
pub fn publish() {
    HEADER.is_on.store((&raw const IS_ON).addr() as u64, Relaxed);
}

/// Lets `target` be ours.
pub fn choose(number: usize, target: usize) {
    SLOTS.get(number, true).store(target, Relaxed);
}

/// Lets all calls go through ours, once all of the C library's functions were found.
pub fn switch_on() {
    IS_ON.store(1, Release);
}

/// Lets all calls go to the C library.
pub fn switch_off() {
    IS_ON.store(0, Release);
}

/// Where slots of the program lead to in place of the C library's function.
pub fn entry(number: usize) -> usize {
    ENTRIES[number] as *const () as usize
}
