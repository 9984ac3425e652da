//! Plain mutexes (`PTHREAD_MUTEX_DEFAULT`, not shared, not robust), taken and released here without a call, as libc
//! would: the shortest way there is, for what programs do most. The self test of `setup.rs` has shown that libc does the
//! same with them; everything that is not plain, not free or not known goes on to `mutex.rs`.

use crate::functions::{self, at as number, tracked};
use crate::mutex::{self, Mutex, TID_OFFSET};
use crate::{clock, elf, memory, sys, tally, words};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};
use table::{Entry, Kind, words as layout};

/// Whether the self test went well.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);

/// Whether there is somebody who looks at words.
static HAS_WORDS: AtomicBool = AtomicBool::new(false);

/// Where a thread's id is in every glibc from 2.31 on that was seen. Elsewhere mutexes are not counted by words.
const USUAL_TID_OFFSET: usize = 720;

static NO: AtomicBool = AtomicBool::new(false);
/// libc's word for whether there is but one thread, or one that is always false.
static SINGLE: AtomicPtr<AtomicBool> = AtomicPtr::new((&raw const NO).cast_mut());

/// Holds in progress that are timed, by the low bits of the thread's id: a thread with none need not look up what it
/// releases. A thread that shares its place with another looks in vain now and then.
static TIMED: [Place; PLACES] = [const { Place(AtomicU32::new(0)) }; PLACES];
const PLACES: usize = 1 << 12;

/// On a cache line of its own.
#[repr(align(64))]
struct Place(AtomicU32);

/// The self test went well: plain mutexes may be taken here.
pub fn learn() {
    IS_KNOWN.store(true, Relaxed);
    // A program that refers to the word has a copy of its own, which is then the one that libc writes.
    if let Some(found) = elf::first(c"__libc_single_threaded") {
        SINGLE.store(core::ptr::with_exposed_provenance_mut(found.address), Relaxed);
    }
}

/// Puts the functions for plain mutexes in place.
pub fn choose(exact: bool) {
    if !IS_KNOWN.load(Relaxed) {
        return;
    }
    let by_word = !exact && words::has_area() && TID_OFFSET.load(Relaxed) == USUAL_TID_OFFSET;
    HAS_WORDS.store(by_word, Relaxed);
    let (lock, unlock) = match (exact, by_word) {
        (true, _) => (tracked!(lock::<true>, "rsi"), unlock::<true> as *const ()),
        (false, false) => (tracked!(lock::<false>, "rsi"), unlock::<false> as *const ()),
        (false, true) => (lock_by_word as *const (), unlock_by_word as *const ()),
    };
    functions::choose(number::pthread_mutex_lock, lock as usize);
    functions::choose(number::pthread_mutex_unlock, unlock as usize);
}

/// Whether mutexes are counted by words.
pub fn has_words() -> bool {
    HAS_WORDS.load(Relaxed)
}

/// Whether there is but one thread. libc itself forgoes atomic instructions then.
#[inline(always)]
fn is_single() -> bool {
    // SAFETY: ours or libc's, both there for ever. libc writes 0 or 1.
    unsafe { &*SINGLE.load(Relaxed) }.load(Relaxed)
}

/// Takes a plain mutex if it is free.
#[inline(always)]
pub fn take(mutex: &Mutex, tid: u32) -> bool {
    if is_single() {
        if mutex.lock.load(Relaxed) != 0 {
            return false;
        }
        mutex.lock.store(1, Relaxed);
    } else if mutex.lock.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        return false;
    }
    mutex.owner.store(tid, Relaxed);
    mutex.users.store(mutex.users.load(Relaxed).wrapping_add(1), Relaxed);
    true
}

/// Releases a plain mutex. It may be gone as soon as the word is 0. Whether somebody is to be woken.
#[inline(always)]
fn release_only(mutex: &Mutex) -> bool {
    mutex.owner.store(0, Relaxed);
    mutex.users.store(mutex.users.load(Relaxed).wrapping_sub(1), Relaxed);
    if is_single() && mutex.lock.load(Relaxed) == 1 {
        mutex.lock.store(0, Relaxed);
        return false;
    }
    mutex.lock.swap(0, Release) > 1
}

/// The same, and wakes whoever waits. The result of an unlock.
#[inline(always)]
pub fn release(mutex: &Mutex) -> c_int {
    let word = (&raw const mutex.lock).addr();
    if release_only(mutex) { wake(word) } else { 0 }
}

/// By C's conventions, since assembly ends here, too.
#[inline(never)]
extern "C" fn wake(word: usize) -> c_int {
    sys::wake_one(word);
    0
}

#[inline(always)]
fn tid() -> u32 {
    // SAFETY: the offset is known where plain mutexes are taken here.
    unsafe { mutex::tid_at(TID_OFFSET.load(Relaxed)) }
}

/// A hold of this thread is timed from now on.
pub fn hold_begins(tid: u32) {
    if !tally::is_exact() {
        place(tid).fetch_add(1, Relaxed);
    }
}

/// It is over. Not below 0, for one that ends in another thread: a place that is never 0 again costs time, no more.
pub fn hold_ends(tid: u32) {
    if !tally::is_exact() {
        let _ = place(tid).fetch_update(Relaxed, Relaxed, |timed| timed.checked_sub(1));
    }
}

#[inline(always)]
fn place(tid: u32) -> &'static AtomicU32 {
    &TIMED[tid as usize % PLACES].0
}

/// `pthread_mutex_lock` of a plain mutex that is free and has a word: takes and counts it. Everything else goes on: to
/// [`lock`], or to [`taken`] if it was taken here.
///
/// Assembly, because every instruction counts here, and a compiler saves registers for what is rare. The word is looked
/// at before, so that nothing is taken that is not counted here, and so that the memory is on its way; and if there are
/// other threads once more as the holder, to whom alone it belongs.
#[unsafe(naked)]
unsafe extern "C" fn lock_by_word() {
    naked_asm!(
        ".cfi_startproc",
        "mov eax, [rdi + 16]",
        "test eax, eax",
        "jnz 7f",
        // Its row is that of its page.
        "mov rax, rdi",
        "shr rax, {row_shift}",
        "mov rdx, [rip + {area}]",
        "movzx ecx, ax",
        "cmp [rdx + 8 * rcx], rax",
        "jne 7f",
        // The word is its own.
        "mov ecx, edi",
        "and ecx, {window}",
        "shr ecx, {word_shift} - 3",
        "lea rdx, [rdx + rcx + 8 * {rows}]",
        "mov rcx, [rdx]",
        "lea esi, [rdi + rdi + 1]",
        "xor esi, ecx",
        "test esi, {tag}",
        "jnz 7f",
        // Takes it, with atomic instructions if there are other threads.
        "mov rax, [rip + {single}]",
        "cmp byte ptr [rax], 0",
        "je 3f",
        "mov eax, [rdi]",
        "test eax, eax",
        "jnz 7f",
        "mov dword ptr [rdi], 1",
        "2:",
        "mov eax, fs:[{tid}]",
        "mov [rdi + 8], eax",
        "inc dword ptr [rdi + 12]",
        // Not one whose hold is to be timed.
        "imul rsi, rcx, {mix}",
        "shr rsi, 64 - {sampled_bits}",
        "jz 4f",
        // One more, by this thread.
        "shl eax, {tag_bits}",
        "and rcx, {not_tid}",
        "movabs rsi, {one}",
        "or rax, rcx",
        "add rax, rsi",
        "mov [rdx], rax",
        "xor eax, eax",
        "ret",
        "3:",
        "mov ecx, 1",
        "xor eax, eax",
        "lock cmpxchg [rdi], ecx",
        "jne 7f",
        "mov rcx, [rdx]",
        "lea esi, [rdi + rdi + 1]",
        "xor esi, ecx",
        "test esi, {tag}",
        "jz 2b",
        "mov eax, fs:[{tid}]",
        "mov [rdi + 8], eax",
        "inc dword ptr [rdi + 12]",
        "mov rsi, [rsp]",
        "jmp {taken}",
        "4:",
        "mov rsi, [rsp]",
        "jmp {timed}",
        "7:",
        "mov rsi, [rsp]",
        "jmp {lock}",
        ".cfi_endproc",
        area = sym words::AREA,
        single = sym SINGLE,
        taken = sym taken::<false>,
        timed = sym taken::<true>,
        lock = sym lock::<false>,
        tid = const USUAL_TID_OFFSET,
        row_shift = const layout::ROW_SHIFT,
        rows = const layout::ROWS,
        window = const (layout::ROWS << layout::ROW_SHIFT) - (1 << layout::WORD_SHIFT),
        word_shift = const layout::WORD_SHIFT,
        tag_bits = const layout::TAG,
        tag = const (1 << layout::TAG) - 1,
        not_tid = const -1_i64 << layout::GENERATION | ((1 << layout::TAG) - 1),
        one = const 1_i64 << layout::COUNT,
        mix = const tally::MIX,
        sampled_bits = const tally::SAMPLED_BITS,
    )
}

// The row is found by the low 16 bits of a register.
const _: () = assert!(layout::ROWS == 1 << 16);

/// `pthread_mutex_unlock` of a plain mutex, unless the hold may be one that is timed.
#[unsafe(naked)]
unsafe extern "C" fn unlock_by_word() {
    naked_asm!(
        ".cfi_startproc",
        "mov eax, [rdi + 16]",
        "test eax, eax",
        "jnz {unlock}",
        "mov eax, fs:[{tid}]",
        "lea rcx, [rip + {timed}]",
        "and eax, {places} - 1",
        "shl eax, 6",
        "mov eax, [rcx + rax]",
        "test eax, eax",
        "jnz {unlock}",
        "mov rcx, [rip + {single}]",
        "mov [rdi + 8], eax",
        "dec dword ptr [rdi + 12]",
        "cmp [rcx], al",
        "je 3f",
        "cmp dword ptr [rdi], 1",
        "jne 3f",
        "mov [rdi], eax",
        "ret",
        "3:",
        "xchg [rdi], eax",
        "cmp eax, 1",
        "ja {wake}",
        "xor eax, eax",
        "ret",
        ".cfi_endproc",
        unlock = sym unlock::<false>,
        single = sym SINGLE,
        tid = const USUAL_TID_OFFSET,
        timed = sym TIMED,
        places = const PLACES,
        wake = sym wake,
    )
}

const _: () = assert!(size_of::<Place>() == 1 << 6);

/// A plain mutex was taken, and is to be counted; its hold is to be timed, too, if its turn has come.
unsafe extern "C" fn taken<const TIMED: bool>(mutex: *mut c_void, site: usize) -> c_int {
    if let Some(entry) = memory::entry(mutex.addr(), Kind::Mutex) {
        mutex::count(entry, tid(), site, TIMED);
    }
    0
}

// What is rare is left to functions that are called last, so that the usual way saves no registers.

unsafe extern "C" fn lock<const EXACT: bool>(mutex: *mut c_void, site: usize) -> c_int {
    // SAFETY: the program's own mutex, of which only the atomic head is looked at.
    let head = unsafe { &*mutex.cast::<Mutex>() };
    // Two branches, which the processor foresees: were the entry chosen by what is read, nothing could go on before.
    if head.kind.load(Relaxed) != 0 {
        // SAFETY: the program's arguments.
        return unsafe { mutex::lock(mutex, site) };
    }
    let Some(entry) = memory::entry_at_once(mutex.addr(), Kind::Mutex) else {
        // SAFETY: the program's arguments.
        return unsafe { mutex::lock(mutex, site) };
    };
    let tid = tid();
    if !take(head, tid) {
        // SAFETY: the program's arguments.
        return unsafe { mutex::lock_taken(mutex, site) };
    }
    let body = entry.mutex();
    let number = body.lock.load(Relaxed);
    if words::has_one(entry) || !EXACT && tally::is_timed(number) {
        return count(entry, tid, site);
    }
    body.lock.store(number.wrapping_add(1), Relaxed);
    entry.last.store(tid, Relaxed);
    // Here and not by a call: of locks that many want every moment counts.
    memory::note_holder(entry, site);
    // Also without a time: a hold whose end was not seen must not become part of this one.
    body.held_since.store(if EXACT { clock::now() } else { 0 }, Relaxed);
    0
}

#[inline(never)]
fn count(entry: &'static Entry, tid: u32, site: usize) -> c_int {
    mutex::count(entry, tid, site, false);
    0
}

unsafe extern "C" fn unlock<const EXACT: bool>(mutex: *mut c_void) -> c_int {
    // SAFETY: as above.
    let head = unsafe { &*mutex.cast::<Mutex>() };
    if head.kind.load(Relaxed) != 0 {
        // SAFETY: the program's argument.
        return unsafe { mutex::unlock(mutex) };
    }
    if EXACT {
        if let Some(entry) = memory::entry_at_once(mutex.addr(), Kind::Mutex) {
            let body = entry.mutex();
            tally::released(&body.held_since, &body.hold_time, &body.holds);
        } else {
            return end_hold(mutex);
        }
    } else if place(tid()).load(Relaxed) != 0 {
        return end_hold(mutex);
    }
    release(head)
}

/// The hold may be one that is timed.
#[inline(never)]
fn end_hold(mutex: *mut c_void) -> c_int {
    // SAFETY: as above.
    let head = unsafe { &*mutex.cast::<Mutex>() };
    if let Some(entry) = memory::entry(mutex.addr(), Kind::Mutex) {
        mutex::released(head, entry);
    }
    release(head)
}
