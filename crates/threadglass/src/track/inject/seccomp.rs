//! Whether a process's seccomp filters let it do what loading the agent takes.

use super::InjectError;
use super::rescue::{Regs, at};
use crate::control::{ControlError, RegisterSet, StoppedThread};
use crate::sys::ptrace::seccomp_filter;
use crate::target::Live;
use std::time::Duration;

/// The system calls that are made, with the arguments that filters may look at. What may fail with an error and no
/// more is marked so.
const CALLS: [(u32, [u64; 6], bool); 36] = {
    const NONE: [u64; 6] = [0; 6];
    const fn plain(number: u32) -> (u32, [u64; 6], bool) {
        (number, NONE, false)
    }
    const fn spare(number: u32) -> (u32, [u64; 6], bool) {
        (number, NONE, true)
    }
    [
        (9, [0, 1 << 16, 5, 0x22, u64::MAX, 0], false), // mmap, of code
        (9, [0, 1 << 16, 5, 0x812, 3, 0], false),       // of a file
        (56, [0x2d_0f00, 0, 0, 0, 0, 0], false),        // clone, ours
        (56, [0x3d_0f00, 0, 0, 0, 0, 0], false),        // libc's
        spare(435),                                     // clone3
        plain(219),                                     // restart_syscall
        plain(10),                                      // mprotect
        plain(11),                                      // munmap
        plain(14),                                      // rt_sigprocmask
        plain(15),                                      // rt_sigreturn
        plain(60),                                      // exit
        plain(186),                                     // gettid
        plain(39),                                      // getpid
        plain(35),                                      // nanosleep
        plain(228),                                     // clock_gettime, which programs have without a call
        plain(202),                                     // futex
        plain(319),                                     // memfd_create
        plain(257),                                     // openat
        plain(0),                                       // read
        spare(17),                                      // pread64
        plain(5),                                       // fstat
        spare(262),                                     // newfstatat
        plain(3),                                       // close
        spare(12),                                      // brk
        spare(28),                                      // madvise
        (157, [15, 0, 0, 0, 0, 0], true),               // prctl, of a thread's name
        (157, [0x5356_4d41, 0, 0, 0, 0, 0], true),      // of memory's
        spare(436),                                     // close_range
        plain(293),                                     // pipe2
        plain(7),                                       // poll
        spare(273),                                     // set_robust_list
        spare(334),                                     // rseq
        spare(234),                                     // tgkill, of no signal
        spare(434),                                     // pidfd_open
        spare(310),                                     // process_vm_readv, in a forked child
        spare(311),                                     // process_vm_writev
    ]
};

/// Refuses a process whose filters cannot be read, or would not let all of it happen.
pub(super) fn check(live: &Live) -> Result<(), InjectError> {
    let pid = live.pid();
    let filters = read(live).map_err(|why| InjectError::Seccomp(pid, why))?;
    for (number, args, may_fail) in CALLS {
        let call = Call { number, args };
        let verdict =
            filters.iter().map(|filter| run(filter, &call).unwrap_or(KILL)).min_by_key(|verdict| rank(*verdict));
        let is_fine = match verdict.unwrap_or(ALLOW) & ACTION {
            ALLOW | LOG => true,
            ERRNO => may_fail,
            _ => false,
        };
        if !is_fine {
            let name = crate::model::Syscall { number: i64::from(number), args }.name();
            return Err(InjectError::Seccomp(pid, format!("{name} is not allowed")));
        }
    }
    Ok(())
}

/// Reads all filters of a thread, which is **stopped** for that: one that does not notice.
fn read(live: &Live) -> Result<Vec<Vec<[u8; 8]>>, String> {
    let find = || -> Result<_, String> {
        let snapshot = crate::threads::collect(live).map_err(|error| error.to_string())?;
        Ok(super::victim::candidates(live, &snapshot).into_iter().find(|victim| !victim.is_limited))
    };
    let mut tried = 1;
    let victim = loop {
        match find()? {
            Some(victim) => break victim,
            None if tried == super::TRIES => return Err("no thread can be asked without noticing it".to_owned()),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
        tried += 1;
    };
    let stopped = StoppedThread::stop(live.pid(), victim.lwp).map_err(|error| error.to_string())?;
    begin_anew(&stopped).map_err(|error| error.to_string())?;
    let mut filters = Vec::new();
    while filters.len() < 1024 {
        match seccomp_filter(stopped.lwp(), filters.len()) {
            Ok(Some(filter)) => filters.push(filter),
            Ok(None) => break,
            Err(errno) => return Err(format!("what it allows cannot be read here ({errno}; root can)")),
        }
    }
    Ok(filters)
}

/// Whether it may make the call by which one with a time limit goes on is not known yet: it makes the same one again. That
/// has a point in time, or is one that a thread has come to since it was seen running.
fn begin_anew(stopped: &StoppedThread) -> Result<(), ControlError> {
    const RESTART_BLOCK: u64 = -516_i64 as u64;
    let bytes = stopped.registers(RegisterSet::General)?;
    let Some(mut regs) = Regs::from_bytes(&bytes) else { return Ok(()) };
    if regs.0[at::RAX] == RESTART_BLOCK && (regs.0[at::ORIG_RAX] as i64) >= 0 {
        // What the kernel tells of all other calls: it does the rest itself.
        const RESTART: u64 = -514_i64 as u64;
        regs.0[at::RAX] = RESTART;
        stopped.set_registers(RegisterSet::General, &regs.bytes())?;
    }
    Ok(())
}

const ACTION: u32 = 0xffff_0000;
const KILL: u32 = 0;
const ERRNO: u32 = 0x0005_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;

/// The kernel takes the strictest verdict: as a signed number, the smallest.
fn rank(verdict: u32) -> i32 {
    (verdict & ACTION) as i32
}

/// A system call, as filters see it.
struct Call {
    number: u32,
    args: [u64; 6],
}

impl Call {
    fn word(&self, at: u32) -> Option<u32> {
        const X86_64: u32 = 0xc000_003e;
        Some(match at {
            0 => self.number,
            4 => X86_64,
            8 | 12 => 0,
            16..64 if at.is_multiple_of(4) => {
                let arg = self.args[(at as usize - 16) / 8];
                if at.is_multiple_of(8) { arg as u32 } else { (arg >> 32) as u32 }
            }
            _ => return None,
        })
    }
}

/// Runs a filter (classic BPF, of which seccomp allows a part); `None` if it makes no sense.
fn run(program: &[[u8; 8]], call: &Call) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; 16]);
    let mut at = 0_usize;
    // Jumps lead forwards only.
    for _ in 0..program.len() {
        let [c0, c1, jt, jf, k @ ..] = *program.get(at)?;
        let (code, k) = (u16::from_le_bytes([c0, c1]), u32::from_le_bytes(k));
        at += 1;
        let operand = if code & 8 != 0 { x } else { k };
        match code & 7 {
            0 => {
                a = match code & 0xe0 {
                    0x00 => k,
                    0x20 => call.word(k)?,
                    0x60 => *memory.get(k as usize)?,
                    0x80 => 64,
                    _ => return None,
                }
            }
            1 => {
                x = match code & 0xe0 {
                    0x00 => k,
                    0x60 => *memory.get(k as usize)?,
                    0x80 => 64,
                    _ => return None,
                }
            }
            2 => *memory.get_mut(k as usize)? = a,
            3 => *memory.get_mut(k as usize)? = x,
            4 => {
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    0x30 => a.checked_div(operand)?,
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.checked_shl(operand).unwrap_or(0),
                    0x70 => a.checked_shr(operand).unwrap_or(0),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ operand,
                    _ => return None,
                }
            }
            5 => {
                let is_taken = match code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(k as usize)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if is_taken { jt } else { jf });
            }
            6 => return Some(if code & 0x18 == 0x10 { a } else { k }),
            _ => match code & 0xf8 {
                0x00 => x = a,
                0x80 => a = x,
                _ => return None,
            },
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(code: u16, jt: u8, jf: u8, k: u32) -> [u8; 8] {
        let ([c0, c1], [k0, k1, k2, k3]) = (code.to_le_bytes(), k.to_le_bytes());
        [c0, c1, jt, jf, k0, k1, k2, k3]
    }

    #[test]
    fn filters_are_read_as_the_kernel_reads_them() {
        // As libseccomp writes them: the machine, then a list of numbers, then an argument.
        let program = [
            op(0x20, 0, 0, 4),
            op(0x15, 0, 5, 0xc000_003e),
            op(0x20, 0, 0, 0),
            op(0x15, 2, 0, 319),
            op(0x15, 0, 2, 9),
            op(0x06, 0, 0, ALLOW),
            op(0x06, 0, 0, ERRNO | 1),
            op(0x06, 0, 0, KILL),
        ];
        let verdict = |number| run(&program, &Call { number, args: [0; 6] });
        assert_eq!(verdict(9), Some(ALLOW));
        assert_eq!(verdict(319), Some(ERRNO | 1));
        assert_eq!(verdict(1), Some(KILL));
        assert_eq!(run(&[op(0x05, 0, 0, 100)], &Call { number: 0, args: [0; 6] }), None);
        assert_eq!(run(&[op(0x20, 0, 0, 3)], &Call { number: 0, args: [0; 6] }), None);
        assert_eq!(run(&[], &Call { number: 0, args: [0; 6] }), None);
        let masked = [op(0x20, 0, 0, 32), op(0x54, 0, 0, 4), op(0x16, 0, 0, 0)];
        assert_eq!(run(&masked, &Call { number: 9, args: [0, 0, 5, 0, 0, 0] }), Some(4));
        assert!(rank(KILL) < rank(ERRNO) && rank(ERRNO) < rank(ALLOW) && rank(0x8000_0000) < rank(KILL));
    }
}
