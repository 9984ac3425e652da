//! The heap of our own process.

/// Keeps memory that is given back for what is needed next: a look at very much takes and gives back large pieces, and every page of
/// one that is taken anew costs a page fault. For tools that look and end.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        // More is refused.
        const MOST: libc::c_int = 32 << 20;
        const ALL: libc::c_int = 1 << 30;
        for (what, size) in [(libc::M_MMAP_THRESHOLD, MOST), (libc::M_TRIM_THRESHOLD, ALL), (libc::M_TOP_PAD, MOST)] {
            // SAFETY: numbers for the allocator, which checks them and has none of our memory yet, or keeps what it has.
            unsafe { libc::mallopt(what, size) };
        }
    }
}
