//! Where ticks go: the program's histogram, its array of samples, or a histogram of our own.

use crate::sys::vm::{self, PIECES, Pipe};
use perf::histogram::{LARGEST, Layout};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What ended profiling before it was turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A tick would have brought a count above its limit.
    Saturated,
    /// The buffer could not be read or written.
    Fault,
    /// The array of samples is full.
    Full,
    /// The clock could not be started in the child of a fork, or failed.
    Failed,
}

/// Where ticks go.
#[derive(Clone, Debug)]
pub(crate) enum Sink {
    /// profil: 16-bit cells in the program's memory.
    Cells { address: u64, layout: Layout },
    /// pcsample: program counters in the program's memory.
    Samples { address: u64, most: u64 },
    /// Cells of our own.
    Owned { layout: Layout, counts: Arc<[AtomicU32]> },
}

/// How far counting has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Samples, each of one tick or more.
    pub samples: u64,
    /// Ticks counted (or stored).
    pub ticks: u64,
    /// Ticks outside the region.
    pub outside: u64,
    pub ended: Option<Ended>,
}

/// One place in the code, and how many ticks it got.
pub(crate) type Tick = (u64, u64);

/// Access to the program's memory.
#[derive(Debug, Default)]
enum Access {
    #[default]
    Direct,
    /// Where process_vm_readv and process_vm_writev are forbidden.
    Pipe(Pipe),
    /// Where there is no way at all.
    None,
}

impl Access {
    fn read<const N: usize>(&mut self, addresses: &[u64], into: &mut [[u8; N]]) -> usize {
        match self {
            Self::Direct => match vm::read(addresses, into) {
                Ok(count) => count,
                Err(_) => {
                    *self = Pipe::new().map_or(Self::None, Self::Pipe);
                    self.read(addresses, into)
                }
            },
            Self::Pipe(pipe) => {
                let mut done = 0;
                for (address, into) in addresses.iter().zip(into) {
                    let Some(bytes) = pipe.read(*address) else { break };
                    *into = bytes;
                    done += 1;
                }
                done
            }
            Self::None => 0,
        }
    }

    fn write<const N: usize>(&mut self, addresses: &[u64], from: &[[u8; N]]) -> usize {
        match self {
            Self::Direct => match vm::write(addresses, from) {
                Ok(count) => count,
                Err(_) => {
                    *self = Pipe::new().map_or(Self::None, Self::Pipe);
                    self.write(addresses, from)
                }
            },
            Self::Pipe(pipe) => {
                addresses.iter().zip(from).take_while(|(address, bytes)| pipe.write(**address, **bytes)).count()
            }
            Self::None => 0,
        }
    }
}

/// Counts ticks into a sink.
#[derive(Debug)]
pub(crate) struct Counter {
    sink: Sink,
    access: Access,
}

impl Counter {
    pub fn new(sink: Sink) -> Self {
        Self { sink, access: Access::Direct }
    }

    /// Where they go.
    pub fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Counts ticks in their order. After an end nothing is counted.
    pub fn count(&mut self, ticks: &[Tick], progress: &mut Progress) {
        for part in ticks.chunks(PIECES) {
            if progress.ended.is_some() {
                return;
            }
            match &self.sink {
                Sink::Cells { address, layout } => {
                    let (address, layout) = (*address, *layout);
                    self.cells(address, &layout, part, progress);
                }
                Sink::Samples { address, most } => {
                    let (address, most) = (*address, *most);
                    self.samples(address, most, part, progress);
                }
                Sink::Owned { layout, counts } => owned(layout, counts, part, progress),
            }
        }
    }

    /// Reads the cells that are concerned, counts, and writes them back.
    fn cells(&mut self, address: u64, layout: &Layout, ticks: &[Tick], progress: &mut Progress) {
        let mut indexes = HashMap::new();
        let mut addresses = Vec::new();
        // Where each tick goes, as an index of `addresses`.
        let places: Vec<Option<usize>> = ticks
            .iter()
            .map(|(pc, _)| {
                let cell = layout.cell(*pc)?;
                Some(*indexes.entry(cell).or_insert_with(|| {
                    // An address beyond the last one is as bad as any other bad one.
                    let place = cell.checked_mul(2).and_then(|bytes| address.checked_add(bytes)).unwrap_or(u64::MAX);
                    addresses.push(place);
                    addresses.len() - 1
                }))
            })
            .collect();
        let mut values = vec![[0; 2]; addresses.len()];
        let readable = self.access.read(&addresses, &mut values);
        let before = *progress;
        let mut touched = 0;
        for ((_, ticks), place) in ticks.iter().zip(places) {
            let Some(place) = place else {
                progress.samples += 1;
                progress.outside += ticks;
                continue;
            };
            if place >= readable {
                progress.ended = Some(Ended::Fault);
                break;
            }
            let count = u64::from(u16::from_ne_bytes(values[place])).saturating_add(*ticks);
            match u16::try_from(count) {
                Ok(count) if count <= LARGEST => values[place] = count.to_ne_bytes(),
                _ => {
                    progress.ended = Some(Ended::Saturated);
                    break;
                }
            }
            touched = touched.max(place + 1);
            progress.samples += 1;
            progress.ticks += ticks;
        }
        // Places are numbered in the order of their first tick, so those behind `touched` have none.
        let written = self.access.write(&addresses[..touched], &values[..touched]);
        if written < touched {
            *progress = Progress { ended: Some(Ended::Fault), ..before };
        }
    }

    /// Stores program counters one after the other.
    fn samples(&mut self, address: u64, most: u64, ticks: &[Tick], progress: &mut Progress) {
        for (pc, ticks) in ticks {
            progress.samples += 1;
            for _ in 0..*ticks {
                if progress.ticks >= most {
                    break;
                }
                let place = progress.ticks.checked_mul(8).and_then(|bytes| address.checked_add(bytes));
                if self.access.write(&[place.unwrap_or(u64::MAX)], &[pc.to_ne_bytes()]) != 1 {
                    progress.ended = Some(Ended::Fault);
                    return;
                }
                progress.ticks += 1;
            }
            if progress.ticks >= most {
                progress.ended = Some(Ended::Full);
                return;
            }
        }
    }
}

fn owned(layout: &Layout, counts: &[AtomicU32], ticks: &[Tick], progress: &mut Progress) {
    for (pc, ticks) in ticks {
        progress.samples += 1;
        let cell = layout.cell(*pc).and_then(|cell| counts.get(usize::try_from(cell).ok()?));
        let Some(cell) = cell else {
            progress.outside += ticks;
            continue;
        };
        let Some(count) = u32::try_from(*ticks).ok().and_then(|ticks| cell.load(Ordering::Relaxed).checked_add(ticks))
        else {
            progress.ended = Some(Ended::Saturated);
            return;
        };
        cell.store(count, Ordering::Relaxed);
        progress.ticks += ticks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(buffer: &mut [u16], scale: u32) -> Counter {
        let layout = Layout { offset: 0x1000, scale, cells: buffer.len() as u64 };
        Counter::new(Sink::Cells { address: buffer.as_mut_ptr() as u64, layout })
    }

    fn progress(counter: &mut Counter, ticks: &[Tick]) -> Progress {
        let mut progress = Progress::default();
        counter.count(ticks, &mut progress);
        progress
    }

    #[test]
    fn counts_and_says_what_is_outside() {
        for pipe in [false, true] {
            let mut buffer = [0u16, 7, 0, 0];
            let mut counter = cells(&mut buffer, 0x1_0000);
            if pipe {
                counter.access = Access::Pipe(Pipe::new().unwrap());
            }
            let ticks = [(0x1002, 1), (0x1003, 1), (0xfff, 1), (0x1008, 2), (0x1007, 3)];
            let progress = progress(&mut counter, &ticks);
            assert_eq!((progress.samples, progress.ticks, progress.outside, progress.ended), (5, 5, 3, None));
            assert_eq!(std::hint::black_box(buffer), [0, 9, 0, 3]);
        }
    }

    #[test]
    fn the_tick_that_exceeds_the_limit_ends_it_and_is_lost() {
        let mut buffer = [32_766u16, 0];
        let mut counter = cells(&mut buffer, 0x1_0000);
        let progress = progress(&mut counter, &[(0x1000, 1), (0x1002, 1), (0x1000, 1), (0x1002, 1)]);
        assert_eq!((progress.ticks, progress.ended), (2, Some(Ended::Saturated)));
        assert_eq!(std::hint::black_box(buffer), [32_767, 1]);
        // Counts that the program left above the limit are not touched.
        let mut buffer = [65_535u16];
        let mut counter = cells(&mut buffer, 0x1_0000);
        assert_eq!(self::progress(&mut counter, &[(0x1000, 1)]).ended, Some(Ended::Saturated));
        assert_eq!(std::hint::black_box(buffer), [65_535]);
    }

    #[test]
    fn bad_addresses_end_it() {
        let layout = Layout { offset: 0, scale: 0x1_0000, cells: u64::MAX };
        for address in [8, u64::MAX, u64::MAX - 1, 1 << 47] {
            for pipe in [false, true] {
                let mut counter = Counter::new(Sink::Cells { address, layout });
                if pipe {
                    counter.access = Access::Pipe(Pipe::new().unwrap());
                }
                let progress = progress(&mut counter, &[(0, 1), (1 << 50, 1)]);
                assert_eq!((progress.ticks, progress.ended), (0, Some(Ended::Fault)), "{address:#x}");
            }
            let mut counter = Counter::new(Sink::Samples { address, most: u64::MAX });
            assert_eq!(progress(&mut counter, &[(1, 1)]).ended, Some(Ended::Fault));
        }
    }

    #[test]
    fn samples_are_stored_until_the_array_is_full() {
        let mut array = [0u64; 4];
        let mut counter = Counter::new(Sink::Samples { address: array.as_mut_ptr() as u64, most: 3 });
        let progress = progress(&mut counter, &[(5, 1), (6, 4), (7, 1)]);
        assert_eq!((progress.ticks, progress.ended), (3, Some(Ended::Full)));
        assert_eq!(std::hint::black_box(array), [5, 6, 6, 0]);
    }
}
