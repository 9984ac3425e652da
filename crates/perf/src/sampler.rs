//! Events for threads or CPUs, and the rings they share.

use crate::cover::Cover;
use crate::record::{self, Parts, Record};
use crate::sys::{self, Attr, Event, Ring};
use std::collections::BTreeSet;
use std::fmt;
use std::io;

/// The highest rate that is offered, in ticks per second of CPU time.
pub const HIGHEST_RATE: u32 = 10_000;

/// What to sample, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Ticks per second of CPU time, 1 to [`HIGHEST_RATE`].
    pub rate: u32,
    /// Sample threads that are created later.
    pub inherit: bool,
    /// Sample processes forked later too (with `inherit`).
    pub forks: bool,
    /// End with the program that runs now.
    pub remove_on_exec: bool,
    /// Begin when the process next executes a program.
    pub enable_on_exec: bool,
    /// Tell of threads that are created and end.
    pub threads: bool,
    /// Sample the kernel's work for the threads too.
    pub kernel: bool,
    /// Add the return addresses that the kernel finds by frame pointers, at most so many.
    pub chain: Option<u16>,
    /// Add registers and so many bytes of the stack (a multiple of 8), for unwinding.
    pub stack: Option<u32>,
}

impl Options {
    /// Program counters only, of all threads, those created later too.
    pub fn new(rate: u32) -> Self {
        Self {
            rate,
            inherit: true,
            forks: false,
            remove_on_exec: false,
            enable_on_exec: false,
            threads: false,
            kernel: false,
            chain: None,
            stack: None,
        }
    }

    /// Bytes of the longest sample.
    fn sample_size(&self) -> usize {
        let chain = self.chain.map_or(0, |most| 8 * (usize::from(most) + 4));
        40 + chain + self.stack.map_or(0, |bytes| bytes as usize + 160)
    }

    fn parts(&self) -> Parts {
        Parts { chain: self.chain.is_some(), stack: self.stack.is_some() }
    }

    fn attr(&self) -> Attr {
        const SOFTWARE: u32 = 1;
        const CPU_CLOCK: u64 = 0;
        // PERF_SAMPLE_IP, TID, TIME, ID; CALLCHAIN; REGS_USER, STACK_USER.
        let mut sample_type = 1 | 1 << 1 | 1 << 2 | 1 << 6;
        if self.chain.is_some() {
            sample_type |= 1 << 5;
        }
        if self.stack.is_some() {
            sample_type |= 1 << 12 | 1 << 13;
        }
        let bit = |number: u32, on: bool| u64::from(on) << number;
        let flags = bit(0, self.enable_on_exec) // disabled until then
            | bit(1, self.inherit)
            | bit(5, !self.kernel) // exclude_kernel
            | bit(6, true) // exclude_hv
            | bit(12, self.enable_on_exec)
            | bit(13, self.threads)
            | bit(14, true) // watermark: wake-ups by bytes, so hardly any
            | bit(21, true) // exclude_callchain_kernel
            | bit(35, self.inherit && !self.forks)
            | bit(36, self.remove_on_exec);
        Attr {
            kind: SOFTWARE,
            size: size_of::<Attr>() as u32,
            config: CPU_CLOCK,
            sample_period: 1_000_000_000 / u64::from(self.rate.clamp(1, HIGHEST_RATE)),
            sample_type,
            flags,
            wakeup: u32::MAX / 2,
            sample_regs_user: if self.stack.is_some() { record::REGISTERS } else { 0 },
            sample_stack_user: self.stack.unwrap_or(0) & !7,
            sample_max_stack: self.chain.unwrap_or(0),
            ..Attr::default()
        }
    }
}

/// Why there is no sampler.
#[derive(Debug)]
pub enum Error {
    /// More events would be needed than files may be open: threads, CPUs, and that limit.
    TooMany {
        /// Threads to sample.
        threads: usize,
        /// CPUs they may run on.
        cpus: usize,
        /// The limit on open files.
        limit: usize,
    },
    /// None of the threads exists (any more).
    NoThreads,
    /// The rate is 0 or above [`HIGHEST_RATE`].
    Rate(u32),
    /// The kernel refused the event.
    Open(io::Error),
    /// The kernel refused the ring.
    Map(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::TooMany { threads, cpus, limit } => write!(
                f,
                "{threads} threads on {cpus} CPUs need {} events, and only {limit} files may be open (ulimit -n)",
                threads * cpus
            ),
            Self::NoThreads => write!(f, "there is no thread to sample"),
            Self::Rate(rate) => write!(f, "{rate} ticks per second: use 1 to {HIGHEST_RATE}"),
            Self::Open(error) => {
                write!(f, "perf_event_open: {error} (see kernel.perf_event_paranoid, and seccomp in containers)")
            }
            Self::Map(error) => write!(f, "mapping a perf ring: {error} (see kernel.perf_event_mlock_kb)"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(error) | Self::Map(error) => Some(error),
            _ => None,
        }
    }
}

/// What a sampler has not delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Records that found no room: they were not read often enough.
    pub lost: u64,
    /// Times that the kernel turned an event off because there were too many ticks.
    pub throttled: u64,
}

/// Events and rings. Dropping it closes all.
#[derive(Debug)]
pub struct Sampler {
    parts: Parts,
    /// Declared before the rings: events end before the memory they write to is unmapped.
    events: Vec<(i32, Event)>,
    rings: Vec<Ring>,
    cover: Cover,
    /// Threads of other processes that may not be sampled.
    refused: usize,
    losses: Losses,
    scratch: Vec<u8>,
}

impl Sampler {
    /// Samples all threads of a process but `except`.
    ///
    /// Threads that come into being meanwhile are found, and none is counted twice: see `cover`.
    pub fn of_process(pid: i32, except: Option<i32>, options: Options) -> Result<Self, Error> {
        Self::open(options, |known| {
            let all = tasks(pid).unwrap_or_else(|_| vec![pid]);
            all.into_iter().filter(|tid| Some(*tid) != except && !known.contains(tid)).map(Wanted::required).collect()
        })
    }

    /// Samples all threads of a process and of its children, theirs, and so on, those that exist already. Threads of
    /// children that may not be sampled are left out.
    pub fn of_family(pid: i32, options: Options) -> Result<Self, Error> {
        Self::open(options, |known| {
            let threads = |of: i32| tasks(of).unwrap_or_default().into_iter().map(move |tid| (of, tid));
            let all = family(pid).into_iter().flat_map(threads).filter(|(_, tid)| !known.contains(tid));
            all.map(|(of, tid)| Wanted { tid, is_required: of == pid }).collect()
        })
    }

    /// Samples the given threads (and with `inherit` those they create).
    pub fn of_threads(tids: &[i32], options: Options) -> Result<Self, Error> {
        let unknown = |known: &BTreeSet<i32>, tid: &i32| !known.contains(tid);
        Self::open(options, |known| {
            tids.iter().copied().filter(|tid| unknown(known, tid)).map(Wanted::required).collect()
        })
    }

    /// Samples whoever runs, of any process, by one event for each CPU. Needs CAP_PERFMON or root.
    pub fn of_cpus(options: Options) -> Result<Self, Error> {
        const EVERYBODY: i32 = -1;
        let options = Options { inherit: false, remove_on_exec: false, enable_on_exec: false, ..options };
        Self::of_threads(&[EVERYBODY], options)
    }

    fn open(options: Options, mut unknown: impl FnMut(&BTreeSet<i32>) -> Vec<Wanted>) -> Result<Self, Error> {
        if !(1..=HIGHEST_RATE).contains(&options.rate) {
            return Err(Error::Rate(options.rate));
        }
        let (attr, cpus, limit) = (options.attr(), online_cpus(), sys::open_files_limit());
        let (mut events, mut leaders): (Vec<(i32, Event)>, Vec<Option<usize>>) = (Vec::new(), vec![None; cpus.len()]);
        let mut known = BTreeSet::new();
        let mut rings = Vec::new();
        let (mut rounds, mut refused) = (0, 0);
        // A thread that is created while events are opened has inherited one or not: look until nobody is new.
        while rounds < 50 {
            let new = unknown(&known);
            if new.is_empty() {
                break;
            }
            rounds += 1;
            if events.len().saturating_add(new.len().saturating_mul(cpus.len())).saturating_add(8) > limit {
                return Err(Error::TooMany { threads: known.len() + new.len(), cpus: cpus.len(), limit });
            }
            for Wanted { tid, is_required } in new {
                known.insert(tid);
                for (cpu, leader) in cpus.iter().zip(&mut leaders) {
                    let event = match Event::open(&attr, tid, *cpu) {
                        Ok(event) => event,
                        // The thread has ended, or the CPU is gone.
                        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => continue,
                        Err(error) if !is_required && is_denial(&error) => {
                            refused += 1;
                            break;
                        }
                        Err(error) => return Err(Error::Open(error)),
                    };
                    match *leader {
                        Some(leader) => event.output_to(&events[leader].1).map_err(Error::Map)?,
                        None => {
                            rings.push(ring(&event, &options).map_err(Error::Map)?);
                            *leader = Some(events.len());
                        }
                    }
                    events.push((tid, event));
                }
            }
        }
        if events.is_empty() {
            return Err(Error::NoThreads);
        }
        let mut cover = Cover::default();
        if rounds > 1 {
            let ids = events.iter().filter_map(|(tid, event)| Some((event.id().ok()?, *tid)));
            cover = Cover::new(ids);
        }
        let losses = Losses::default();
        Ok(Self { parts: options.parts(), events, rings, cover, refused, losses, scratch: Vec::new() })
    }

    /// Number of events that are open.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Number of threads of child processes that may not be sampled.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// What could not be delivered so far.
    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// Stops all events; the time to a thread's next tick is kept.
    pub fn disable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(|(_, event)| event.disable())
    }

    /// Lets all events go on.
    pub fn enable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(|(_, event)| event.enable())
    }

    /// Hands over the records that are there. Must be called often enough that the rings do not overflow: they
    /// hold at least a second at any rate where only program counters are sampled.
    pub fn drain(&mut self, mut take: impl FnMut(Record)) {
        let Self { rings, scratch, parts, losses, cover, .. } = self;
        for ring in rings {
            let pending = ring.pending();
            let mut at = pending.start;
            while at < pending.end {
                let mut header = [0; 8];
                ring.copy(at, &mut header);
                let (_, size) = record::header(header);
                if size < header.len() || at + size as u64 > pending.end {
                    // Cannot be, but must not be an endless loop.
                    losses.lost += 1;
                    break;
                }
                scratch.resize(size, 0);
                ring.copy(at, scratch);
                at += size as u64;
                match record::decode(scratch, *parts) {
                    Some(Record::Sample(sample)) if !cover.counts(sample.tid, sample.id) => {}
                    Some(record) => {
                        match record {
                            Record::Lost(count) => losses.lost += count,
                            Record::Throttled => losses.throttled += 1,
                            _ => {}
                        }
                        take(record);
                    }
                    None => losses.lost += 1,
                }
            }
            ring.release(pending.end);
        }
    }
}

/// A ring for a second and more of ticks on one CPU; smaller where the limit on locked memory asks for it.
fn ring(event: &Event, options: &Options) -> io::Result<Ring> {
    let bytes = options.sample_size().saturating_mul(options.rate as usize + 100).min(4 << 20);
    let mut pages = bytes.div_ceil(sys::page_size()).next_power_of_two();
    loop {
        match event.ring(pages) {
            Err(error) if pages > 1 && matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) => pages /= 2,
            done => return done,
        }
    }
}

/// A thread that is to be sampled.
struct Wanted {
    tid: i32,
    /// Whether there is no sampler without it.
    is_required: bool,
}

impl Wanted {
    fn required(tid: i32) -> Self {
        Self { tid, is_required: true }
    }
}

fn is_denial(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// Processes of one family that are sampled. The kernel lets no more than some ten thousand files be open.
const LARGEST_FAMILY: usize = 4096;

/// A process and all that descend from it, as far as their parents live.
pub fn family(pid: i32) -> Vec<i32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(&of) = all.get(next).filter(|_| all.len() < LARGEST_FAMILY) {
        next += 1;
        for tid in tasks(of).unwrap_or_default() {
            let children = std::fs::read_to_string(format!("/proc/{of}/task/{tid}/children")).unwrap_or_default();
            let children = children.split_whitespace().filter_map(|child| child.parse().ok());
            let new: Vec<i32> = children.filter(|child| !all.contains(child)).collect();
            all.extend(new);
        }
    }
    all.truncate(LARGEST_FAMILY);
    all
}

/// The threads of a process.
pub fn tasks(pid: i32) -> io::Result<Vec<i32>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Numbers of the CPUs that are online. One that comes later is not sampled.
pub fn online_cpus() -> Vec<i32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = parse_cpus(&text);
    if cpus.is_empty() { (0..sys::online_cpus() as i32).collect() } else { cpus }
}

/// A list like `0-3,8`.
fn parse_cpus(text: &str) -> Vec<i32> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<i32>().ok()?..=to.parse::<i32>().ok()?.min(65_535))
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_cpus("0\n"), [0]);
        assert_eq!(parse_cpus("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse_cpus(""), [0; 0]);
    }

    #[test]
    fn odd_requests_are_refused() {
        let rate = Sampler::of_threads(&[std::process::id() as i32], Options::new(0));
        assert!(matches!(rate, Err(Error::Rate(0))), "{rate:?}");
        let rate = Sampler::of_threads(&[std::process::id() as i32], Options::new(HIGHEST_RATE + 1));
        assert!(matches!(rate, Err(Error::Rate(10_001))), "{rate:?}");
        let nobody = Sampler::of_threads(&[], Options::new(100));
        assert!(matches!(nobody, Err(Error::NoThreads)), "{nobody:?}");
        let many: Vec<_> = (1..=i32::MAX).take(sys::open_files_limit().min(1 << 20)).collect();
        let many = Sampler::of_threads(&many, Options::new(100));
        assert!(matches!(many, Err(Error::TooMany { .. })), "{many:?}");
    }
}
