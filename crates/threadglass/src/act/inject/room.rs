//! What the raw thread finds in its memory: the stub, the mail, a descriptor of zeros, a stack, and room for the agent.

use super::code::LibcCode;
use crate::RemoteAddr;
use crate::arch::stub::stub;
use crate::elf::Image;
use crate::memory::Memory;
use crate::runtimes::glibc::Layout;
use crate::target::{Live, Target};
use std::mem::offset_of;
use table::control::{KEYS, MAIL_SIZE, Mail};

const PAGE: u64 = 4096;
const STACK: u64 = 128 << 10;
/// What the loader keeps free for objects that are loaded later, many times over.
const TLS_SPARE: u64 = 64 << 10;
/// More thread-local data than any program has.
const TLS_MOST: u64 = 64 << 20;
/// Bytes of a descriptor, many times over.
const DESCRIPTOR: u64 = 16 << 10;

/// The shape of that memory.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// All of it.
    pub(super) size: u64,
    /// Where the thread pointer is, from the start.
    pub(super) tcb: u64,
    /// Where its stack begins, from the start.
    stack: u64,
    /// Where the agent's bytes are put, from the start, and how many they are.
    payload: (u64, u64),
    slots: u64,
    /// What thread-local data begin as: so far below the thread pointer, and bytes.
    data: Vec<(u64, Vec<u8>)>,
}

/// What is the same for all threads of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SharedWords {
    /// Two secrets of the process: against overwritten stacks and pointers.
    pub(super) guards: [u64; 2],
    /// How often the loader has changed the thread-local data.
    pub(super) generation: u64,
}

/// What the agent is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgentRequest {
    pub(super) mode: u32,
    pub(super) objects: u64,
    /// The agent's function, if it is loaded already.
    pub(super) attach: Option<RemoteAddr>,
}

impl Room {
    /// Large enough for the thread-local data of all objects, with what those begin as: the allocator's, above all.
    /// `payload` bytes are to be brought later.
    pub(super) fn new(live: &Live, layout: &Layout, payload: usize) -> Self {
        let fixed = layout.tls.map(|tls| tls.fixed(live)).unwrap_or_default();
        let images: Vec<_> = live.modules().iter().filter_map(|module| Image::load(live, module.base).ok()).collect();
        let mut data = Vec::new();
        let mut below = 0;
        for (bias, distance) in fixed.into_iter().filter(|(_, distance)| *distance < TLS_MOST) {
            below = below.max(distance);
            let image = images.iter().find(|image| image.bias() == bias).and_then(Image::tls_image);
            let Some((from, size)) = image.filter(|(_, size)| *size <= distance) else { continue };
            let mut bytes = vec![0; size as usize];
            if live.read_exact(from, &mut bytes).is_ok() && bytes.iter().any(|byte| *byte != 0) {
                data.push((distance, bytes));
            }
        }
        let below = (below + TLS_SPARE).next_multiple_of(PAGE);
        let slots = live.modules().len() as u64 + 64;
        let tables = (MAIL_SIZE as u64).next_multiple_of(64) + 16 * (slots + 1);
        let tcb = PAGE + tables.next_multiple_of(PAGE) + below;
        let stack = tcb + DESCRIPTOR + STACK;
        let payload = payload as u64;
        Self { size: (stack + payload).next_multiple_of(PAGE), tcb, stack, payload: (stack, payload), slots, data }
    }

    /// Where the mail is.
    pub(super) fn mail(start: RemoteAddr) -> RemoteAddr {
        start.offset(PAGE)
    }

    /// Where the number is by which one injection is told from another.
    pub(super) fn nonce(start: RemoteAddr) -> RemoteAddr {
        Self::mail(start).offset(offset_of!(Mail, nonce) as u64)
    }

    /// The stack pointer that the raw thread begins with: the return behind its system call finds the stub there.
    pub(super) fn entry(&self, start: RemoteAddr) -> RemoteAddr {
        start.offset(self.stack - 8)
    }

    /// Where the agent's bytes go.
    pub(super) fn payload(&self, start: RemoteAddr) -> RemoteAddr {
        start.offset(self.payload.0)
    }

    /// What to write, and where, if the memory is at `start`, `size` bytes long.
    pub(super) fn fill(
        &self,
        (start, size): (RemoteAddr, u64),
        layout: &Layout,
        code: &LibcCode,
        shared: SharedWords,
        request: AgentRequest,
    ) -> Vec<(RemoteAddr, Vec<u8>)> {
        let mail_at = Self::mail(start);
        let tcb = start.offset(self.tcb);
        let table = mail_at.offset((MAIL_SIZE as u64).next_multiple_of(64));
        let mut mail = vec![0; MAIL_SIZE];
        let mut put = |at: usize, value: u64| mail[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(offset_of!(Mail, region), mail_at.0);
        put(offset_of!(Mail, region_size), size - PAGE);
        put(offset_of!(Mail, code), start.0);
        put(offset_of!(Mail, code_size), PAGE);
        put(offset_of!(Mail, syscall_ret), code.syscall_ret.0);
        put(offset_of!(Mail, raw_tid), tcb.0 + layout.tid);
        code.in_mail.into_iter().for_each(|(at, value)| put(at, value));
        put(offset_of!(Mail, attach), request.attach.map_or(0, |at| at.0));
        // All but the two that the C library sends to itself: others wait until they have been handled.
        put(offset_of!(Mail, mask), !(1 << 31 | 1 << 32));
        // Two seconds, and not much more: a nap is never much longer than it should be.
        put(offset_of!(Mail, nap) + 8, 500_000);
        put(offset_of!(Mail, naps), 4_000);
        put(offset_of!(Mail, payload), self.payload(start).0);
        put(offset_of!(Mail, payload_size), self.payload.1);
        put(offset_of!(Mail, nonce), nonce());
        put(offset_of!(Mail, mode), u64::from(request.mode));
        put(offset_of!(Mail, objects), request.objects);
        // In a descriptor the first values lie before the pointers to blocks of more.
        put(offset_of!(Mail, values), (tcb.0 + layout.specific).wrapping_sub(16 * u64::from(KEYS)));
        let mut text = |at: usize, text: &str| mail[at..at + text.len()].copy_from_slice(text.as_bytes());
        text(offset_of!(Mail, name), table::control::ATTACH_SYMBOL);
        text(offset_of!(Mail, file_name), crate::table::FILE_NAME);
        // The table of thread-local blocks: its length, its age, and for each object that it has none yet.
        let blocks = [self.slots - 1, 0, shared.generation, 0].into_iter();
        let blocks = blocks.chain((1..self.slots).flat_map(|_| [u64::MAX, 0]));
        mail.resize(MAIL_SIZE.next_multiple_of(64), 0);
        mail.extend(bytes_of(blocks));
        // The head of the descriptor is part of the ABI: here, that there is more than one thread.
        let [stack_guard, pointer_guard] = shared.guards;
        let head = [tcb.0, table.offset(16).0, tcb.0, 1, 0, stack_guard, pointer_guard];
        // The place in the list of threads is a list of one.
        let node = tcb.offset(layout.list);
        let mut parts = vec![
            (start, stub().to_vec()),
            (mail_at, mail),
            (tcb, bytes_of(head)),
            (node, bytes_of([node.0; 2])),
            (self.entry(start), bytes_of([start.0])),
        ];
        let data = self.data.iter().filter_map(|(below, bytes)| Some((tcb.checked_sub(*below)?, bytes.clone())));
        parts.extend(data);
        parts
    }
}

fn bytes_of(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// A number that no other injection has.
fn nonce() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// What a thread shares with all others, from its descriptor.
pub(super) fn shared(memory: &dyn Memory, thread_pointer: RemoteAddr) -> Option<SharedWords> {
    let guards = [0x28, 0x30].map(|at| memory.read_u64(thread_pointer.offset(at)));
    let table = memory.read_addr(thread_pointer.offset(8)).ok()?;
    let generation = memory.read_u64(table).ok()?;
    Some(SharedWords { guards: [guards[0].ok()?, guards[1].ok()?], generation })
}
