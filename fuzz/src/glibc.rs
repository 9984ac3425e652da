//! A process of glibc 2.36 with some threads, every word of which may lie.

use crate::object::Claim;
use arbitrary::Arbitrary;
use threadglass::target::Bytes;
use threadglass::target::{Anchor, Hint};
use threadglass::{InnerTid, RemoteAddr};

const FIELDS_AT: RemoteAddr = RemoteAddr(0x50_0000);
const POINTER_AT: RemoteAddr = RemoteAddr(0x60_0000);
const RTLD_AT: RemoteAddr = RemoteAddr(0x60_1000);
const KEYS_AT: RemoteAddr = RemoteAddr(0x70_0000);
const BLOCKS_AT: RemoteAddr = RemoteAddr(0x80_0000);
const VERSION_AT: RemoteAddr = RemoteAddr(0x90_0000);
const EVENTS_AT: RemoteAddr = RemoteAddr(0xa0_0000);
const THREADS_AT: u64 = 0x7f00_0000_0000;
const THREAD_STRIDE: u64 = 0x1_0000;

/// Offsets inside the linker's structure.
const USER_LIST: u64 = 0x100;
const USED_LIST: u64 = 0x110;
const SLOTINFO: u64 = 0x120;
/// Offsets inside a descriptor.
const SELF: usize = 16;
const LIST: usize = 704;
const TID: usize = 720;
const ROBUST: u64 = 736;
const CANCEL: usize = 776;
const FIRST_BLOCK: u64 = 784;
const SPECIFIC: usize = 1296;
const JOIN: usize = 1568;
const START: usize = 1592;
const STACK: usize = 1680;
const SIZE: usize = 2304;

/// What glibc exports for debuggers: name, then bits, elements and offset, or a size alone.
const DESCRIBED: &[(&str, [u32; 3])] = &[
    ("sizeof_pthread", [SIZE as u32, 0, 0]),
    ("pthread_list", [128, 1, LIST as u32]),
    ("pthread_tid", [32, 1, TID as u32]),
    ("pthread_cancelhandling", [32, 1, CANCEL as u32]),
    ("pthread_specific", [64, 32, SPECIFIC as u32]),
    ("pthread_report_events", [8, 1, 1553]),
    ("pthread_schedpolicy", [32, 1, 1588]),
    ("pthread_schedparam_sched_priority", [32, 1, 1584]),
    ("pthread_start_routine", [64, 1, START as u32]),
    ("pthread_eventbuf", [192, 1, 1616]),
    ("pthread_eventbuf_eventmask", [64, 1, 1616]),
    ("pthread_eventbuf_eventmask_event_bits", [32, 2, 1616]),
    ("pthread_nextevent", [64, 1, 1640]),
    ("pthread_dtvp", [64, 1, 8]),
    ("list_t_next", [64, 1, 0]),
    ("list_t_prev", [64, 1, 8]),
    ("rtld_global__dl_stack_user", [128, 1, USER_LIST as u32]),
    ("rtld_global__dl_stack_used", [128, 1, USED_LIST as u32]),
    ("rtld_global__dl_tls_dtv_slotinfo_list", [64, 1, SLOTINFO as u32]),
    ("dtv_slotinfo_list_len", [64, 1, 0]),
    ("dtv_slotinfo_list_next", [64, 1, 8]),
    ("dtv_slotinfo_list_slotinfo", [128, 0, 16]),
    ("dtv_slotinfo_gen", [64, 1, 0]),
    ("dtv_slotinfo_map", [64, 1, 8]),
    ("sizeof_dtv_slotinfo", [16, 0, 0]),
    ("dtv_dtv", [128, 134_217_727, 0]),
    ("dtv_t_pointer_val", [64, 1, 0]),
    ("dtv_t_counter", [64, 1, 0]),
    ("link_map_l_tls_modid", [64, 1, 1112]),
    ("link_map_l_tls_offset", [64, 1, 1104]),
    ("td_eventbuf_t_eventnum", [32, 1, 8]),
    ("td_eventbuf_t_eventdata", [64, 1, 16]),
    ("__pthread_keys", [128, 1024, 0]),
    ("sizeof_pthread_key_struct", [16, 0, 0]),
    ("pthread_key_struct_seq", [64, 1, 0]),
    ("pthread_key_struct_destr", [64, 1, 8]),
    ("sizeof_pthread_key_data", [16, 0, 0]),
    ("pthread_key_data_seq", [64, 1, 0]),
    ("pthread_key_data_data", [64, 1, 8]),
    ("sizeof_pthread_key_data_level2", [512, 0, 0]),
    ("pthread_key_data_level2_data", [128, 32, 0]),
];

/// Where a link of the thread list leads.
#[derive(Arbitrary, Debug)]
enum Link {
    Right,
    Thread(u8),
    Head(bool),
    Near(i8),
    Any(u64),
}

#[derive(Arbitrary, Debug)]
struct Thread {
    own: Claim,
    tid: Claim,
    cancel: Claim,
    next: Link,
    prev: Link,
    robust: Claim,
    join: Claim,
    start: Claim,
    stack: [Claim; 3],
    specific: [Claim; 2],
    vector: Claim,
    /// How much of the descriptor is mapped.
    mapped: Option<u16>,
}

/// What the input decides.
#[derive(Arbitrary, Debug)]
pub struct Program {
    threads: Vec<Thread>,
    /// Whether all names and descriptors are there: a stripped program has none.
    stripped: bool,
    /// Names that are missing, and those that lead elsewhere.
    missing: Vec<u8>,
    moved: Vec<(u8, u64)>,
    /// Descriptors with other numbers: which, which word, what.
    changed: Vec<(u8, u8, Claim)>,
    pointer: Claim,
    heads: [Link; 4],
    version: [u8; 8],
    /// Sequence and destructor of the first keys.
    keys: Vec<(u8, u64)>,
    /// Values of a block that is not inside a descriptor.
    block: Vec<(u8, u64)>,
    /// The list of modules with thread-local storage, and what lies around it.
    modules: Vec<u64>,
    /// The chain of events.
    events: [Claim; 4],
}

/// An assembled target.
pub struct Assembled {
    pub memory: Bytes,
    /// What the kernel would tell of each thread.
    pub hints: Vec<Hint>,
    /// Where the descriptors are.
    pub threads: Vec<RemoteAddr>,
}

fn thread_at(index: usize) -> RemoteAddr {
    RemoteAddr(THREADS_AT + index as u64 * THREAD_STRIDE)
}

impl Program {
    /// The program in the memory of a target.
    pub fn assemble(&self) -> Assembled {
        let mut memory = Bytes::default();
        let threads: Vec<_> = self.threads.iter().take(64).collect();
        let mut hints = Vec::new();
        for (index, thread) in threads.iter().enumerate() {
            let (bytes, hint) = self.thread(thread, index, threads.len());
            memory.map(thread_at(index), bytes);
            hints.push(hint);
        }
        self.globals(&mut memory, threads.len());
        if !self.stripped {
            self.describe(&mut memory);
        }
        Assembled { memory, hints, threads: (0..threads.len()).map(thread_at).collect() }
    }

    fn thread(&self, thread: &Thread, index: usize, count: usize) -> (Vec<u8>, Hint) {
        let base = thread_at(index);
        let mut bytes = vec![0; SIZE];
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        let tid = thread.tid.or(1000 + index as u64);
        put(0, base.0);
        put(8, thread.vector.or(BLOCKS_AT.0));
        put(SELF, thread.own.or(base.0));
        put(TID, tid & 0xffff_ffff);
        put(ROBUST as usize, base.0 + ROBUST);
        put(ROBUST as usize + 8, -32i64 as u64);
        put(CANCEL, thread.cancel.or(0));
        put(SPECIFIC, thread.specific[0].or(base.0 + FIRST_BLOCK));
        put(SPECIFIC + 8, thread.specific[1].or(BLOCKS_AT.0));
        put(JOIN, thread.join.or(0));
        put(START, thread.start.or(if index == 0 { 0 } else { 0x40_1000 }));
        put(STACK, thread.stack[0].or(base.0 - 0x8000));
        put(STACK + 8, thread.stack[1].or(0x9000));
        put(STACK + 16, thread.stack[2].or(0x1000));
        // Main is alone on its list, the others follow one another on theirs.
        let node = |index: usize| thread_at(index).0 + LIST as u64;
        let (next, prev) = match index {
            0 => (RTLD_AT.0 + USER_LIST, RTLD_AT.0 + USER_LIST),
            index => (
                if index + 1 == count { RTLD_AT.0 + USED_LIST } else { node(index + 1) },
                if index == 1 { RTLD_AT.0 + USED_LIST } else { node(index - 1) },
            ),
        };
        put(LIST, link(&thread.next, next, count));
        put(LIST + 8, link(&thread.prev, prev, count));
        if let Some(mapped) = thread.mapped {
            bytes.truncate(usize::from(mapped));
        }
        let hint = Hint {
            inner: InnerTid(1000 + index as i32),
            anchor: Anchor::RobustHead(RemoteAddr(thread.robust.or(base.0 + ROBUST))),
        };
        (bytes, hint)
    }

    fn globals(&self, memory: &mut Bytes, count: usize) {
        let first = |index: usize| thread_at(index).0 + LIST as u64;
        let (user, used) = (RTLD_AT.0 + USER_LIST, RTLD_AT.0 + USED_LIST);
        let right = match count {
            0 => [user, user, used, used],
            1 => [first(0), first(0), used, used],
            count => [first(0), first(0), first(1), first(count - 1)],
        };
        let mut rtld = vec![0; 0x200];
        for (at, (head, right)) in (USER_LIST as usize..).step_by(8).zip(self.heads.iter().zip(right)) {
            rtld[at..at + 8].copy_from_slice(&link(head, right, count).to_le_bytes());
        }
        rtld[SLOTINFO as usize..][..8].copy_from_slice(&(RTLD_AT.0 + 0x200).to_le_bytes());
        rtld.extend(self.modules.iter().flat_map(|word| word.to_le_bytes()));
        memory.map(RTLD_AT, rtld);
        memory.map(POINTER_AT, self.pointer.or(RTLD_AT.0).to_le_bytes().to_vec());
        memory.map(VERSION_AT, self.version.to_vec());
        memory.map(KEYS_AT, table(&self.keys, 1024));
        memory.map(BLOCKS_AT, table(&self.block, 32));
        memory.map(EVENTS_AT, self.events.iter().flat_map(|word| word.or(thread_at(0).0).to_le_bytes()).collect());
    }

    fn describe(&self, memory: &mut Bytes) {
        let mut words: Vec<[u32; 3]> = DESCRIBED.iter().map(|(_, words)| *words).collect();
        for (field, word, claim) in &self.changed {
            let field = usize::from(*field) % words.len();
            let word = &mut words[field][usize::from(*word) % 3];
            *word = claim.or(u64::from(*word)) as u32;
        }
        let mut names: Vec<(String, RemoteAddr)> = DESCRIBED
            .iter()
            .enumerate()
            .map(|(index, (name, _))| (format!("_thread_db_{name}"), FIELDS_AT.offset(index as u64 * 12)))
            .collect();
        names.extend(
            [
                ("__nptl_rtld_global", POINTER_AT),
                ("_rtld_global", RTLD_AT),
                ("_dl_stack_user", RTLD_AT.offset(USER_LIST)),
                ("_dl_stack_used", RTLD_AT.offset(USED_LIST)),
                ("__stack_user", RTLD_AT.offset(USER_LIST)),
                ("stack_used", RTLD_AT.offset(USED_LIST)),
                ("__pthread_keys", KEYS_AT),
                ("__nptl_version", VERSION_AT),
                ("nptl_version", VERSION_AT),
                ("__nptl_threads_events", EVENTS_AT),
                ("__nptl_last_event", EVENTS_AT.offset(8)),
            ]
            .map(|(name, addr)| (name.to_owned(), addr)),
        );
        for (which, to) in &self.moved {
            let which = usize::from(*which) % names.len();
            names[which].1 = RemoteAddr(*to);
        }
        for (index, (name, addr)) in names.iter().enumerate() {
            if !self.missing.iter().any(|missing| usize::from(*missing) == index) {
                memory.name(name, *addr);
            }
        }
        let bytes = words.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        memory.map(FIELDS_AT, bytes);
    }
}

fn link(link: &Link, right: u64, count: usize) -> u64 {
    match link {
        Link::Right => right,
        Link::Thread(index) => thread_at(usize::from(*index) % (count + 1)).0 + LIST as u64,
        Link::Head(used) => RTLD_AT.0 + if *used { USED_LIST } else { USER_LIST },
        Link::Near(by) => right.wrapping_add_signed(i64::from(*by) * 8),
        Link::Any(addr) => *addr,
    }
}

fn table(entries: &[(u8, u64)], len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len * 16];
    for (entry, (sequence, word)) in bytes.chunks_exact_mut(16).zip(entries) {
        entry[..8].copy_from_slice(&u64::from(*sequence).to_le_bytes());
        entry[8..].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
