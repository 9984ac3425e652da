//! How a hijacked thread finds its way back without us: a signal frame that holds all it was.
//!
//! While its registers are ours, we may be killed. The kernel then lets the thread go, with those registers. So from
//! the first moment its stack leads, by the return behind the system call, to the C library's own
//! `rt_sigreturn`, with a frame as the kernel would have written it for a signal.

use super::general::{GeneralRegisters, Restart, at};
use super::syscall;

impl GeneralRegisters {
    /// The registers with which the thread goes on as if it had never been stopped: a system call that was
    /// interrupted begins anew, as the kernel would have it. (It does that itself only on its way out of a stop of
    /// another kind than the last one here.)
    pub(crate) fn resumed(&self) -> Self {
        let mut new = *self;
        let again = self.restart().map(|restart| match restart {
            Restart::Same => self.0[at::ORIG_RAX],
            Restart::TimeLeft => syscall::RESTART_SYSCALL as u64,
        });
        if let Some(number) = again {
            new.0[at::RAX] = number;
            // The instruction that makes the call has two bytes.
            new.0[at::RIP] = self.0[at::RIP].wrapping_sub(2);
        }
        new.0[at::ORIG_RAX] = u64::MAX;
        new
    }

    /// The same, about to make a system call at `pc`, with its stack at `sp`. `kept` is in a register that no call changes
    /// and in which a new thread finds it ([`super::stub`]).
    pub(crate) fn calling(&self, pc: u64, sp: u64, number: i64, args: [u64; 6], kept: u64) -> Self {
        const RBX: usize = 5;
        let mut new = *self;
        new.0[at::ORIG_RAX] = u64::MAX;
        new.0[at::RIP] = pc;
        new.0[at::RSP] = sp;
        new.0[at::RAX] = number as u64;
        new.0[RBX] = kept;
        for (place, value) in at::ARGUMENTS.into_iter().zip(args) {
            new.0[place] = value;
        }
        new
    }
}

/// A frame, and where it is to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Where the stack pointer must be for the return.
    pub(crate) at: u64,
    /// The bytes from there on.
    pub(crate) bytes: Vec<u8>,
}

/// Bytes of the processor's state that signal frames know best.
const LEGACY: usize = 512;

/// A frame below the stack of a thread, from which `restore` (the C library's call of `rt_sigreturn`) brings back
/// `regs`, the signal mask and the state of the floating-point unit, as ptrace tells it.
pub(crate) fn frame(regs: &GeneralRegisters, mask: u64, float: &[u8], restore: u64) -> Option<Frame> {
    const RED_ZONE: u64 = 128;
    const CS: usize = 17;
    const SS: usize = 20;
    const CONTEXT: usize = 304;
    // What the words in the frame mean: there is an extended state, and the stack segment is right.
    const FLAGS: u64 = 1 | 2 | 4;
    if float.len() < LEGACY + 64 {
        return None;
    }
    // The tiles of matrix units, which are large and hardly ever used, come last.
    const TILES: usize = 2816;
    let in_use = u64::from_le_bytes(float[LEGACY..LEGACY + 8].try_into().ok()?);
    let float = if in_use >> 18 == 0 { &float[..float.len().min(TILES)] } else { float };
    let float_at = (8 + CONTEXT).next_multiple_of(64);
    let size = float_at + float.len() + 4;
    let start = regs.0[at::RSP].checked_sub(RED_ZONE + size as u64 + 64)? & !63;
    let mut bytes = vec![0; size];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(0, restore);
    put(8, FLAGS);
    // uc_link and uc_stack stay 0: an alternative stack of no size is refused, and the old one stays.
    let r = &regs.0;
    // r8 to r15, then the others, as the kernel has them.
    let order = [9, 8, 7, 6, 3, 2, 1, 0, 14, 13, 4, 5, 12, 10, 11, 19, 16, 18];
    for (n, place) in order.into_iter().enumerate() {
        put(8 + 40 + 8 * n, r[place]);
    }
    put(8 + 40 + 144, r[CS] & 0xffff | (r[SS] & 0xffff) << 48);
    put(8 + 40 + 184, start + float_at as u64);
    put(8 + 296, mask);
    let state = &mut bytes[float_at..];
    state[..float.len()].copy_from_slice(float);
    // ptrace puts the features here that the kernel wants behind its own mark.
    let features: [u8; 8] = float[464..472].try_into().ok()?;
    let len = u32::try_from(float.len()).ok()?;
    state[464..468].copy_from_slice(&0x4650_5853_u32.to_le_bytes());
    state[468..472].copy_from_slice(&(len + 4).to_le_bytes());
    state[472..480].copy_from_slice(&features);
    state[480..484].copy_from_slice(&len.to_le_bytes());
    state[float.len()..].copy_from_slice(&0x4650_5845_u32.to_le_bytes());
    Some(Frame { at: start, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_call_begins_anew() {
        let mut regs = GeneralRegisters([0; 27]);
        regs.0[at::ORIG_RAX] = 202;
        regs.0[at::RIP] = 0x1002;
        for (rax, wanted) in [(-512_i64, Some(202)), (-514, Some(202)), (-516, Some(219)), (-4, None), (0, None)] {
            regs.0[at::RAX] = rax as u64;
            let new = regs.resumed();
            assert_eq!(new.0[at::ORIG_RAX], u64::MAX);
            assert_eq!(new.0[at::RIP], if wanted.is_some() { 0x1000 } else { 0x1002 });
            assert_eq!(new.0[at::RAX], wanted.unwrap_or(rax as u64));
        }
        // One that ran is left as it is.
        regs.0[at::ORIG_RAX] = u64::MAX;
        regs.0[at::RAX] = -512_i64 as u64;
        assert_eq!(regs.resumed(), regs);
    }

    #[test]
    fn a_frame_lies_below_the_red_zone() {
        let mut regs = GeneralRegisters([0; 27]);
        regs.0[at::RSP] = 0x10_0000;
        let made = frame(&regs, 1, &[0; 832], 7).unwrap();
        assert!(made.at + made.bytes.len() as u64 <= 0x10_0000 - 128);
        assert_eq!(made.at % 64, 0);
        regs.0[at::RSP] = 200;
        assert_eq!(frame(&regs, 1, &[0; 832], 7), None);
        assert_eq!(frame(&regs, 1, &[0; 12], 7), None);
    }
}
