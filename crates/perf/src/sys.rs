//! The only `unsafe` of the crate: perf_event_open(2), its ioctls, and the ring buffer that the kernel fills.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// `struct perf_event_attr` up to its seventh version (Linux 5.13), the first with `remove_on_exec`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Attr {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup: u32,
    pub bp_type: u32,
    pub config1: u64,
    pub config2: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    pub sample_stack_user: u32,
    pub clockid: i32,
    pub sample_regs_intr: u64,
    pub aux_watermark: u32,
    pub sample_max_stack: u16,
    pub reserved_2: u16,
    pub aux_sample_size: u32,
    pub reserved_3: u32,
    pub sig_data: u64,
}

const _: () = assert!(size_of::<Attr>() == 128);

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const IOC_ENABLE: u32 = 0x2400;
const IOC_DISABLE: u32 = 0x2401;
const IOC_SET_OUTPUT: u32 = 0x2405;
const IOC_ID: u32 = 0x8008_2407;

/// One event.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    /// Opens the event for one thread (or 0 for the caller's) while it is on one CPU.
    pub fn open(attr: &Attr, tid: i32, cpu: i32) -> io::Result<Self> {
        let no_group = -1i32;
        // SAFETY: `attr` is a structure of the size it says, which the kernel only reads.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, std::ptr::from_ref(attr), tid, cpu, no_group, PERF_FLAG_FD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor; nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    fn ioctl(&self, request: u32, argument: libc::c_ulong) -> io::Result<()> {
        // The type of requests is another one in each C library; the kernel takes 32 bits.
        // SAFETY: the requests of this file take a number, or (IOC_ID) the address of a u64 that outlives the call.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request as libc::Ioctl, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Lets it run, and those inherited from it.
    pub fn enable(&self) -> io::Result<()> {
        self.ioctl(IOC_ENABLE, 0)
    }

    /// Stops it, and those inherited from it.
    pub fn disable(&self) -> io::Result<()> {
        self.ioctl(IOC_DISABLE, 0)
    }

    /// Sends its records to the ring of another event of the same CPU.
    pub fn output_to(&self, other: &Self) -> io::Result<()> {
        self.ioctl(IOC_SET_OUTPUT, other.0.as_raw_fd() as libc::c_ulong)
    }

    /// The number that its samples, and those of events inherited from it, carry.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0u64;
        self.ioctl(IOC_ID, std::ptr::from_mut(&mut id) as libc::c_ulong)?;
        Ok(id)
    }

    /// Maps a ring of `pages` (a power of two) for its records.
    pub fn ring(&self, pages: usize) -> io::Result<Ring> {
        debug_assert!(pages.is_power_of_two());
        let page = page_size();
        let len = (pages + 1) * page;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing of ours is replaced.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.0.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Ring { base, page, size: pages * page }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A ring buffer shared with the kernel: a page of control, then the records.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    page: usize,
    size: usize,
}

// SAFETY: the mapping belongs to this value alone, and every access goes through `&mut self` or an atomic.
unsafe impl Send for Ring {}

/// Places of `data_head` and `data_tail` in `struct perf_event_mmap_page`, part of the kernel's interface.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

impl Ring {
    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped as long as `self` lives, both places are aligned, and the kernel
        // accesses them as single words.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Bytes written and not yet given back: from where to where, as ever-growing positions.
    pub fn pending(&self) -> std::ops::Range<u64> {
        // Acquire: the records below `head` are complete once it is seen.
        let head = self.counter(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.counter(DATA_TAIL).load(Ordering::Relaxed);
        // The kernel never overtakes the tail by more than the size; nobody relies on that here.
        tail.max(head.saturating_sub(self.size as u64))..head
    }

    /// Copies bytes at a position, around the end where they wrap.
    pub fn copy(&self, position: u64, into: &mut [u8]) {
        let at = (position % self.size as u64) as usize;
        let count = into.len().min(self.size);
        let first = count.min(self.size - at);
        // SAFETY: both parts lie in the data pages behind the control page; the kernel does not write below
        // `head` until the tail is moved, and bytes that changed nevertheless would only be wrong bytes.
        unsafe {
            let data = self.base.as_ptr().add(self.page);
            std::ptr::copy_nonoverlapping(data.add(at), into.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, into.as_mut_ptr().add(first), count - first);
        }
    }

    /// Gives all below a position back to the kernel.
    pub fn release(&mut self, position: u64) {
        self.counter(DATA_TAIL).store(position, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly what `Event::ring` mapped, and no reference into it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size + self.page) };
    }
}

/// The size of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: no pointers are involved.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Number of CPUs that are online, for systems without sysfs.
pub(crate) fn online_cpus() -> usize {
    // SAFETY: no pointers are involved.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1).max(1)
}

/// Most descriptors that the calling process may have.
pub(crate) fn open_files_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills `limit`.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
