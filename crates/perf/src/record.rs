//! Records of a perf ring: bytes in, values out.

/// Registers of the program at a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Frame pointer.
    pub bp: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Program counter.
    pub ip: u64,
    /// All general registers in the order of the instruction set: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub general: [u64; 16],
}

/// One tick of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Program counter.
    pub ip: u64,
    /// Process.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// When, in ns of the clock that `CLOCK_MONOTONIC` follows.
    pub time: u64,
    /// Which event it came from.
    pub id: u64,
    /// Whether `ip` is in the kernel.
    pub kernel: bool,
    /// Return addresses that the kernel found by frame pointers, if that was asked for; the first is `ip`.
    pub chain: Vec<u64>,
    /// Registers, if a copy of the stack was asked for and the program runs in 64-bit mode.
    pub registers: Option<Box<Registers>>,
    /// The stack from `registers.sp` on, as much as was asked for and there was.
    pub stack: Vec<u8>,
}

/// What a ring can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A tick.
    Sample(Sample),
    /// So many records found no room in the ring.
    Lost(u64),
    /// The kernel turned an event off for a moment because there were too many ticks.
    Throttled,
    /// A thread was created: process and thread.
    Created(i32, i32),
    /// A thread ended: process and thread.
    Ended(i32, i32),
    /// Anything else.
    Other(u32),
}

/// Which parts the samples have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The chain of return addresses.
    pub chain: bool,
    /// Registers and stack.
    pub stack: bool,
}

const HEADER: usize = 8;
const LOST: u32 = 2;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;
const KERNEL_MODE: u8 = 1;
/// `PERF_CONTEXT_MAX` and above are marks in a chain, not addresses.
const MARKS: u64 = -4095i64 as u64;

/// In which mode the CPU was (`PERF_RECORD_MISC_CPUMODE_MASK`), by the header of a record.
fn mode(bytes: &[u8]) -> u8 {
    bytes.get(4).map_or(0, |low| low & 7)
}

/// Kind and length of the record that starts with these bytes.
pub(crate) fn header(bytes: [u8; HEADER]) -> (u32, usize) {
    let [a, b, c, d, _, _, low, high] = bytes;
    (u32::from_le_bytes([a, b, c, d]), usize::from(u16::from_le_bytes([low, high])))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn pair(&mut self) -> Option<(i32, i32)> {
        let both = self.u64()?;
        Some((both as i32, (both >> 32) as i32))
    }
}

/// Decodes one whole record; `None` when it is shorter than it must be.
pub fn decode(bytes: &[u8], parts: Parts) -> Option<Record> {
    let (kind, _) = header(bytes.get(..HEADER)?.try_into().ok()?);
    let mut reader = Reader(&bytes[HEADER..]);
    Some(match kind {
        SAMPLE => Record::Sample(Sample { kernel: mode(bytes) == KERNEL_MODE, ..sample(&mut reader, parts)? }),
        LOST => {
            let _id = reader.u64()?;
            Record::Lost(reader.u64()?)
        }
        LOST_SAMPLES => Record::Lost(reader.u64()?),
        THROTTLE => Record::Throttled,
        FORK | EXIT => {
            let (pid, _) = reader.pair()?;
            let (tid, _) = reader.pair()?;
            if kind == FORK { Record::Created(pid, tid) } else { Record::Ended(pid, tid) }
        }
        other => Record::Other(other),
    })
}

/// Which registers a sample carries, in the kernel's numbering: ax, bx, cx, dx, si, di, bp, sp, ip, and r8 to r15.
pub(crate) const REGISTERS: u64 = 0x1ff | 0xff << 16;

fn registers(reader: &mut Reader) -> Option<Registers> {
    let mut word = || reader.u64();
    let [ax, bx, cx, dx, si, di, bp, sp, ip] =
        [word()?, word()?, word()?, word()?, word()?, word()?, word()?, word()?, word()?];
    let mut general = [ax, cx, dx, bx, sp, bp, si, di, 0, 0, 0, 0, 0, 0, 0, 0];
    for register in &mut general[8..] {
        *register = word()?;
    }
    Some(Registers { bp, sp, ip, general })
}

/// The parts of a sample in the order of the kernel.
fn sample(reader: &mut Reader, parts: Parts) -> Option<Sample> {
    let ip = reader.u64()?;
    let (pid, tid) = reader.pair()?;
    let (time, id) = (reader.u64()?, reader.u64()?);
    let mut sample = Sample { ip, pid, tid, time, id, ..Sample::default() };
    if parts.chain {
        let bytes = reader.u64()?.checked_mul(8)?;
        let words = reader.take(bytes)?.chunks_exact(8);
        let words = words.filter_map(|word| word.try_into().ok().map(u64::from_le_bytes));
        sample.chain.extend(words.filter(|&address| address < MARKS));
    }
    if parts.stack {
        // The mode of the program: 0 (a kernel thread, no registers follow), 1 (32 bits), 2 (64 bits).
        let mode = reader.u64()?;
        if mode != 0 {
            let registers = registers(reader)?;
            sample.registers = (mode == 2).then(|| Box::new(registers));
        }
        let room = reader.u64()?;
        if room != 0 {
            let stack = reader.take(room)?;
            let filled = usize::try_from(reader.u64()?).ok()?;
            sample.stack.extend_from_slice(stack.get(..filled)?);
        }
    }
    Some(sample)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let size = (8 + 8 * words.len()) as u64;
        let first = u64::from(kind) | size << 48;
        std::iter::once(&first).chain(words).flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn samples_with_and_without_parts() {
        let (plain, ids) = (Parts::default(), 5 << 32 | 4);
        let bytes = record(SAMPLE, &[0x1234, ids, 99, 7]);
        assert_eq!(header(bytes[..8].try_into().unwrap()), (SAMPLE, 40));
        let expected = Sample { ip: 0x1234, pid: 4, tid: 5, time: 99, id: 7, ..Sample::default() };
        assert_eq!(decode(&bytes, plain), Some(Record::Sample(expected.clone())));
        // The mode of the CPU is in the header.
        let mut in_kernel = bytes.clone();
        in_kernel[4] = 1;
        assert_eq!(decode(&in_kernel, plain), Some(Record::Sample(Sample { kernel: true, ..expected.clone() })));

        let user = -512i64 as u64;
        let words = [0x1234, ids, 99, 7, 3, user, 0x1234, 0x99];
        let registers = [2, 0, 1, 2, 3, 4, 5, 6, 7, 0x1234, 8, 9, 10, 11, 12, 13, 14, 15];
        let words: Vec<u64> = words.into_iter().chain(registers).chain([8, 0x0807_0605_0403_0201, 4]).collect();
        let expected = Sample {
            chain: vec![0x1234, 0x99],
            registers: Some(Box::new(Registers {
                bp: 6,
                sp: 7,
                ip: 0x1234,
                general: [0, 2, 3, 1, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15],
            })),
            stack: vec![1, 2, 3, 4],
            ..expected
        };
        let all = Parts { chain: true, stack: true };
        assert_eq!(decode(&record(SAMPLE, &words), all), Some(Record::Sample(expected)));
    }

    #[test]
    fn losses_and_threads() {
        let decode = |kind, words: &[u64]| decode(&record(kind, words), Parts::default());
        assert_eq!(decode(LOST, &[7, 12]), Some(Record::Lost(12)));
        assert_eq!(decode(LOST_SAMPLES, &[3]), Some(Record::Lost(3)));
        assert_eq!(decode(THROTTLE, &[1, 2, 3]), Some(Record::Throttled));
        assert_eq!(decode(FORK, &[4, 5 | 6 << 32, 0]), Some(Record::Created(4, 5)));
        assert_eq!(decode(EXIT, &[4, 5, 0]), Some(Record::Ended(4, 5)));
        assert_eq!(decode(SAMPLE, &[1, 2]), None);
        assert_eq!(decode(1, &[]), Some(Record::Other(1)));
    }

    proptest! {
        #[test]
        fn any_bytes(mut bytes: Vec<u8>, chain: bool, stack: bool) {
            if let Some(kind) = bytes.first_mut() {
                *kind = SAMPLE as u8;
            }
            let _ = decode(&bytes, Parts { chain, stack });
        }
    }
}
