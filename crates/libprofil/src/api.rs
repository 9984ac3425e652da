//! Profiling from Rust: a guard that owns the histogram.

use crate::clock::{Choice, Clock};
use crate::session::{Session, Settings, StartError, Stats};
use crate::sink::Sink;
use crate::state;
use crate::sys::process;
use perf::HIGHEST_RATE;
use perf::gmon;
use perf::histogram::{Layout, ONE};
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The rate where none is asked for: what the clock of the original had.
pub const DEFAULT_RATE: u32 = 100;

/// Most cells of a histogram: 1 GiB of memory.
const MOST_CELLS: u64 = 1 << 28;

/// Why a profile could not be started.
#[derive(Debug)]
pub enum Error {
    /// The rate is 0 or above [`HIGHEST_RATE`].
    Rate(u32),
    /// The scale is 0 or 1, which means off, or there are no cells, or more than there is memory for.
    Layout(Layout),
    /// The helper thread could not be started.
    Thread(io::Error),
    /// Neither perf events nor timers are to be had.
    Clock(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "{rate} ticks per second: use 1 to {HIGHEST_RATE}"),
            Self::Layout(Layout { scale, cells, .. }) => {
                write!(f, "a histogram of {cells} cells with scale {scale:#x} cannot count")
            }
            Self::Thread(error) => write!(f, "the helper thread of the profile: {error}"),
            Self::Clock(why) => write!(f, "no clock to profile with: {why}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Thread(error) => Some(error),
            _ => None,
        }
    }
}

/// Choices for a profile. See [`Profiler::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    rate: u32,
    clock: Choice,
    offset: Option<u64>,
    scale: u32,
    cells: Option<u64>,
}

/// Where profiles begin.
///
/// ```
/// let profile = profil::Profiler::builder().rate(1000).start()?;
/// let sum = (0..1_000_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
/// let profile = profile.stop();
/// println!("{sum}: {} ticks, {} lost", profile.stats.ticks, profile.stats.lost);
/// # Ok::<_, profil::Error>(())
/// ```
#[derive(Debug)]
pub struct Profiler;

impl Profiler {
    /// A profile of the program's own code, two bytes to a cell, at [`DEFAULT_RATE`].
    pub fn builder() -> Builder {
        Builder { rate: DEFAULT_RATE, clock: Choice::Auto, offset: None, scale: ONE, cells: None }
    }
}

impl Builder {
    /// Ticks per second of CPU time, 1 to [`HIGHEST_RATE`].
    pub fn rate(mut self, rate: u32) -> Self {
        self.rate = rate;
        self
    }

    /// The clock: by default perf, or timers where that is denied.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Choice::Only(clock);
        self
    }

    /// First address of the region (by default that of the program's code).
    pub fn offset(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Bytes of histogram for each byte of code, in 65,536ths, two to a cell; see [`Layout`].
    pub fn scale(mut self, scale: u32) -> Self {
        self.scale = scale;
        self
    }

    /// Number of cells (by default as many as the program's code needs).
    pub fn cells(mut self, cells: u64) -> Self {
        self.cells = Some(cells);
        self
    }

    /// The region of these addresses, in as many cells as the scale asks for.
    pub fn region(self, region: Range<u64>) -> Self {
        let length = region.end.saturating_sub(region.start);
        let cells = (u128::from(length) * u128::from(self.scale)).div_ceil(u128::from(2 * ONE));
        self.offset(region.start).cells(u64::try_from(cells).unwrap_or(u64::MAX))
    }

    /// Starts it, in place of any profile that the process has, also of one by the C functions.
    pub fn start(self) -> Result<Profile, Error> {
        let whole = self.clone().region(process::main_program().text);
        let layout = Layout {
            offset: self.offset.or(whole.offset).unwrap_or(0),
            scale: self.scale,
            cells: self.cells.or(whole.cells).unwrap_or(0),
        };
        if !(1..=HIGHEST_RATE).contains(&self.rate) {
            return Err(Error::Rate(self.rate));
        }
        let counts = counts(&layout).ok_or(Error::Layout(layout))?;
        let settings = Settings { rate: self.rate, choice: self.clock };
        let sink = Sink::Owned { layout, counts: Arc::clone(&counts) };
        let session = state::lock().replace(settings, sink).map_err(|error| match error {
            StartError::Thread(error) => Error::Thread(error),
            StartError::Clock(refused) => Error::Clock(refused.to_string()),
        })?;
        Ok(Profile { session, layout, counts })
    }
}

/// Empty cells for a layout, if it makes sense.
pub(crate) fn counts(layout: &Layout) -> Option<Arc<[AtomicU32]>> {
    if !layout.is_on() || layout.cells > MOST_CELLS {
        return None;
    }
    Some((0..layout.cells).map(|_| AtomicU32::new(0)).collect())
}

/// A profile that is being taken, of all threads of this process. Dropping it ends it.
///
/// There is one profile in a process: if another is started, this one ends and keeps its counts. In the child
/// of a fork it goes on, for the child's copy. Counts have 32 bits; the limit of 32,767 is one of the 16-bit
/// cells of [`profil()`](crate::c::profil).
#[derive(Debug)]
pub struct Profile {
    session: Arc<Session>,
    layout: Layout,
    counts: Arc<[AtomicU32]>,
}

impl Profile {
    /// The counts up to now.
    pub fn histogram(&self) -> Histogram {
        let state = state::lock();
        self.session.flush();
        drop(state);
        self.take()
    }

    fn take(&self) -> Histogram {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Histogram { layout: self.layout, counts, stats: self.session.stats() }
    }

    /// How it goes.
    pub fn stats(&self) -> Stats {
        let _state = state::lock();
        self.session.flush();
        self.session.stats()
    }

    /// Stops counting for a while. The time to the next tick of each thread is kept, so that the sum of many
    /// short stretches is as exact as one long one; with perf's clock, that is: timers begin anew, and stretches
    /// shorter than their period have no ticks.
    pub fn pause(&self) {
        let _state = state::lock();
        self.session.pause();
    }

    /// Goes on after [`Profile::pause`].
    pub fn resume(&self) {
        let _state = state::lock();
        self.session.resume();
    }

    /// Ends it and gives the counts.
    pub fn stop(self) -> Histogram {
        self.end();
        self.take()
    }

    fn end(&self) {
        let _state = state::lock();
        self.session.stop();
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        self.end();
    }
}

/// Counts of a profile.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// What the cells stand for.
    pub layout: Layout,
    /// The cells.
    pub counts: Vec<u32>,
    /// How the counts came about.
    pub stats: Stats,
}

impl Histogram {
    /// Ticks in the cells that lie wholly or in part in a range of addresses.
    pub fn ticks_in(&self, addresses: Range<u64>) -> u64 {
        let overlaps = |cell: u64| {
            let of_cell = self.layout.addresses(cell);
            of_cell.start < addresses.end && addresses.start < of_cell.end
        };
        (0..).zip(&self.counts).filter(|(cell, _)| overlaps(*cell)).map(|(_, count)| u64::from(*count)).sum()
    }

    /// Writes it for gprof: `gprof -p PROGRAM FILE`.
    pub fn write_gmon(&self, path: &Path) -> io::Result<()> {
        write_gmon(path, &self.layout, &self.counts, self.stats.rate)
    }
}

/// Writes a histogram of this program for gprof.
pub(crate) fn write_gmon(path: &Path, layout: &Layout, counts: &[u32], rate: u32) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let program = process::main_program();
    // Elsewhere than in the program, addresses are what they are: no symbol table of the program's fits them.
    let bias = if layout.offset >= program.bias { program.bias } else { 0 };
    gmon::write(&mut out, layout, counts, rate, bias)?;
    out.flush()
}
