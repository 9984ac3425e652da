//! bpf(2), as far as an iterator over the threads of one process needs it, and the kernel's
//! description of its types.
//!
//! Three commands, each of which answers with a descriptor that the kernel itself marks
//! close-on-exec. Nothing is pinned: when the last descriptor closes, the program is unloaded.

use nix::errno::Errno;
use nix::sys::statfs::{SYSFS_MAGIC, fstatfs};
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

const PROG_LOAD: u32 = 5;
const LINK_CREATE: u32 = 28;
const ITER_CREATE: u32 = 33;
const PROG_TYPE_TRACING: u32 = 26;
const TRACE_ITER: u32 = 28;

/// The program's licence, as the kernel asks for it: the helpers that it calls are open only to programs
/// that may be used under the GPL, and this one may be used under the MIT licence as well.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// One instruction, in the kernel's form.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BpfInsn {
    pub(crate) code: u8,
    /// Destination register in the low half, source register in the high one.
    pub(crate) regs: u8,
    /// Offset of a memory access or a jump.
    pub(crate) off: i16,
    pub(crate) imm: i32,
}

/// `union bpf_attr` for PROG_LOAD, up to the last field that is used: the kernel takes what is
/// behind it as zero.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_and_flags: [u64; 3],
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    debug_info: [u32; 9],
    attach_btf_id: u32,
}

/// The same for LINK_CREATE of an iterator.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    iter_info: u64,
    iter_info_len: u32,
    padding: u32,
}

/// `union bpf_iter_link_info`, the member for tasks.
#[repr(C)]
#[derive(Default)]
struct TaskLinkInfo {
    tid: u32,
    pid: u32,
    pid_fd: u32,
    padding: u32,
}

/// The same for ITER_CREATE.
#[repr(C)]
struct IterCreate {
    link_fd: u32,
    flags: u32,
}

/// Loads a program that runs for each object of the iterator whose kernel function has the type
/// number `attach_btf_id`.
pub(crate) fn load_iterator(insns: &[BpfInsn], attach_btf_id: u32) -> Result<OwnedFd, Errno> {
    let attr = ProgLoad {
        prog_type: PROG_TYPE_TRACING,
        insn_cnt: u32::try_from(insns.len()).map_err(|_| Errno::E2BIG)?,
        insns: insns.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        prog_name: *b"threadglass\0\0\0\0\0",
        expected_attach_type: TRACE_ITER,
        attach_btf_id,
        ..ProgLoad::default()
    };
    // SAFETY: `insns` is borrowed for the whole call and of the length given, `LICENSE` ends in a NUL;
    // the kernel copies them.
    unsafe { call(PROG_LOAD, &attr) }
}

/// Binds a loaded iterator to the threads of process `tgid`, a number in our pid namespace. Kernels
/// before 6.1, whose iterators know no processes, refuse.
pub(crate) fn attach_to_process(program: &OwnedFd, tgid: u32) -> Result<OwnedFd, Errno> {
    attach(program, &TaskLinkInfo { pid: tgid, ..TaskLinkInfo::default() })
}

/// The same for all threads of our pid namespace.
pub(crate) fn attach_to_all(program: &OwnedFd) -> Result<OwnedFd, Errno> {
    attach(program, &TaskLinkInfo::default())
}

/// The same for the one thread `tid`.
pub(crate) fn attach_to_thread(program: &OwnedFd, tid: u32) -> Result<OwnedFd, Errno> {
    attach(program, &TaskLinkInfo { tid, ..TaskLinkInfo::default() })
}

fn attach(program: &OwnedFd, info: &TaskLinkInfo) -> Result<OwnedFd, Errno> {
    let attr = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        attach_type: TRACE_ITER,
        iter_info: std::ptr::from_ref(info) as u64,
        iter_info_len: size_of::<TaskLinkInfo>() as u32,
        ..LinkCreate::default()
    };
    // SAFETY: `info` outlives the call and has the length given; the kernel copies it.
    unsafe { call(LINK_CREATE, &attr) }
}

/// Begins one pass; reading from the answer runs the program.
pub(crate) fn start_pass(link: &OwnedFd) -> Result<OwnedFd, Errno> {
    let attr = IterCreate { link_fd: link.as_raw_fd() as u32, flags: 0 };
    // SAFETY: this form of the attributes holds no address.
    unsafe { call(ITER_CREATE, &attr) }
}

/// # Safety
///
/// `T` is the kernel's form of the attributes of `command`, without uninitialised padding, and
/// addresses in it are good for what the command does with them. The command answers with a new
/// descriptor and writes to none of them.
unsafe fn call<T>(command: u32, attr: &T) -> Result<OwnedFd, Errno> {
    // SAFETY: `attr` is a live object of the size given; for what it leads to the caller vouches.
    let fd =
        Errno::result(unsafe { libc::syscall(crate::arch::syscall::BPF, command, attr as *const T, size_of::<T>()) })?;
    let fd = i32::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us: nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The kernel's description of its types (BTF).
#[derive(Debug)]
pub(crate) enum KernelTypes {
    /// The kernel's own memory (since 6.16): nothing is copied.
    Mapped(Mapping),
    /// A copy of it.
    Copied(Vec<u8>),
}

/// A mapping of our own.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl KernelTypes {
    /// Where the running kernel has it.
    pub(crate) fn open() -> std::io::Result<Self> {
        let mut file = File::open("/sys/kernel/btf/vmlinux")?;
        if let Some(mapping) = Mapping::of_kernel_memory(&file) {
            return Ok(Self::Mapped(mapping));
        }
        let mut copy = Vec::new();
        file.read_to_end(&mut copy)?;
        Ok(Self::Copied(copy))
    }
}

impl Deref for KernelTypes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            // SAFETY: the mapping is readable, of this length, and lives as long as `self`. Nobody
            // writes to it: it shows a part of the kernel that is read-only after booting.
            Self::Mapped(mapping) => unsafe { std::slice::from_raw_parts(mapping.start.as_ptr(), mapping.len) },
            Self::Copied(copy) => copy,
        }
    }
}

impl Mapping {
    /// Only of a file that the kernel itself provides: another could change or shrink meanwhile.
    fn of_kernel_memory(file: &File) -> Option<Self> {
        if fstatfs(file).ok()?.filesystem_type() != SYSFS_MAGIC {
            return None;
        }
        let len = usize::try_from(file.metadata().ok()?.len()).ok()?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        NonNull::new(start.cast()).map(|start| Self { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was made, whole, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_kernels_layout() {
        assert_eq!(size_of::<BpfInsn>(), 8);
        assert_eq!(std::mem::offset_of!(ProgLoad, prog_name), 48);
        assert_eq!(std::mem::offset_of!(ProgLoad, expected_attach_type), 68);
        assert_eq!(std::mem::offset_of!(ProgLoad, attach_btf_id), 108);
        assert_eq!(size_of::<ProgLoad>(), 112);
        assert_eq!(std::mem::offset_of!(LinkCreate, iter_info), 16);
        assert_eq!(size_of::<TaskLinkInfo>(), 16);
    }

    #[test]
    fn types_are_the_same_mapped_and_copied() {
        let Ok(copied) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            return testkit::skip("types_are_the_same_mapped_and_copied", "needs a kernel with BTF");
        };
        assert!(*KernelTypes::open().unwrap() == *copied);
        let regular = tempfile::tempfile().unwrap();
        regular.set_len(4096).unwrap();
        assert!(Mapping::of_kernel_memory(&regular).is_none());
    }

    #[test]
    fn a_descriptor_that_is_no_link_is_refused() {
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(start_pass(&file).is_err());
        assert!(attach_to_process(&file, 1).is_err());
    }
}
