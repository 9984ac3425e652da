//! What the ticks of a recording come to: which program each fell into, how often, and its name in the end.

use super::flat::{self, Tick};
use super::image::{OpenedProcesses, ProgramImage, here};
use super::kernel::KernelNames;
use super::region::FoundRegion;
use super::used_time::UsedTime;
use super::{Options, ProfileError, empty, most_first, percent};
use crate::Pid;
use crate::limits::Limits;
use crate::look::{Look, Names, Scope};
use crate::measure::bounded;
use crate::model::{
    Frame, Gap, Histogram, Mapped, Profile, ProfileEnd as End, ProfileKind as Kind, ProfiledProcess as Process,
    StackShare, Stop, StopKind,
};
use crate::perf::{Sample, family};
use crate::symbols::Objects;
use crate::target::{Live, Target, TargetError};
use crate::unwind::{Place, Walk};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Code that is in no object may have been mapped meanwhile; how long a fruitless search is not repeated.
const FIRST_PATIENCE: Duration = Duration::from_millis(5);
const LAST_PATIENCE: Duration = Duration::from_secs(2);
/// Programs, and maps of them, that are kept.
const MAX_IMAGES: usize = 256;
/// Stacks and addresses that are told apart.
const MAX_DISTINCT: usize = 1 << 20;
/// Ticks count as missing when fewer than one in this many of those that the CPU time is good for were seen, once these
/// are `MANY`. The kernel's split into user mode and its own is not exact.
const MISSING: u64 = 4;
const MANY: u64 = 50;
const HIDDEN_NAMES: &str = "/proc/kallsyms has no addresses for you (kernel.kptr_restrict, CAP_SYSLOG)";
/// Objects that are taken note of as soon as a command of ours has mapped them: it may end at any time.
const EAGER: usize = 64;

/// A stack: its image, where in the kernel it ends if it does, and its places in the program.
type StackKey = (usize, Option<u64>, Vec<Place>);

/// The samples so far, and the programs they belong to.
pub(super) struct Recorder<'a> {
    opened: &'a OpenedProcesses,
    options: &'a Options,
    pid: Pid,
    /// Whether it is a command of ours, which may end before it is looked at closely.
    eager: bool,
    process: Process,
    /// CPU time as the kernel counts it.
    used: UsedTime,
    /// Whether ticks were missing at the last look.
    missed: bool,
    images: Vec<ProgramImage<'a>>,
    /// The images of each process, the latest last.
    of_process: HashMap<i32, Vec<usize>>,
    pub(super) samples: u64,
    outside: u64,
    threads: HashSet<i32>,
    /// By image and address.
    ticks: HashMap<(usize, u64), u64>,
    /// In the kernel, by address.
    kernel_ticks: HashMap<u64, u64>,
    stacks: HashMap<StackKey, (bool, u64)>,
    unwalked: u64,
    cut: u64,
    dropped: u64,
    unknown: u64,
    region: Option<FoundRegion>,
    histogram: Option<Histogram>,
    gaps: Vec<Gap>,
    /// What all images may cost, to be named.
    limits: Limits,
    next_search: Instant,
    patience: Duration,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(opened: &'a OpenedProcesses, pid: Pid, options: &'a Options, name: &str, eager: bool) -> Self {
        Self {
            opened,
            options,
            pid,
            eager,
            process: Process { pid, name: name.to_owned(), exe: None },
            used: UsedTime::default(),
            missed: false,
            images: Vec::new(),
            of_process: HashMap::new(),
            samples: 0,
            outside: 0,
            threads: HashSet::new(),
            ticks: HashMap::new(),
            kernel_ticks: HashMap::new(),
            stacks: HashMap::new(),
            unwalked: 0,
            cut: 0,
            dropped: 0,
            unknown: 0,
            region: None,
            histogram: None,
            gaps: Vec::new(),
            limits: Limits::default(),
            next_search: Instant::now(),
            patience: FIRST_PATIENCE,
        }
    }

    /// Takes a process, or what has become of it, as an image.
    pub(super) fn add(&mut self, pid: i32, live: Live) -> Result<(), ProfileError> {
        let live = self.opened.keep(live.with_limits(&self.limits));
        let look = Look::new(live);
        let mut image = ProgramImage::new(live, &look);
        if pid == self.pid.0 {
            let identity = live.identity();
            self.process = Process { pid: self.pid, name: identity.name, exe: identity.exe };
            self.find_region(live, &look.objects)?;
        }
        if self.eager {
            let code = live.maps().iter().filter(|map| map.exec && map.is_file());
            for map in code.take(EAGER) {
                image.pin(map.start.0);
            }
        }
        self.of_process.entry(pid).or_default().push(self.images.len());
        self.images.push(image);
        Ok(())
    }

    fn find_region(&mut self, live: &Live, objects: &Objects<'_>) -> Result<(), ProfileError> {
        let wanted = self.options.region.is_some() || self.options.histogram;
        if !wanted || self.region.is_some() {
            return Ok(());
        }
        let look = self.limits.begin();
        let place = FoundRegion::find(live, objects, self.options.region.as_ref());
        self.limits.report(&mut self.gaps);
        drop(look);
        let place = match place {
            Ok(place) => place,
            // The dynamic linker of a command of ours has not come to it yet.
            Err(_) if self.eager => return Ok(()),
            Err(error) => return Err(error),
        };
        if self.options.histogram {
            self.histogram = Some(place.histogram(self.options.scale)?);
        }
        self.region = Some(place);
        Ok(())
    }

    /// The process that was asked for.
    pub(super) fn live(&self) -> Option<&'a Live> {
        let image = self.of_process.get(&self.pid.0)?.first()?;
        Some(self.images[*image].live)
    }

    /// Whether the process that was asked for is no more.
    pub(super) fn has_ended(&self) -> Option<End> {
        let images = self.of_process.get(&self.pid.0)?;
        // A command of ours may execute one program after the other; of a process the first is wanted, also when samples
        // that come late have led to the next.
        let image = if self.eager { images.last() } else { images.first() };
        match self.images[*image?].live.check_identity() {
            Ok(()) => None,
            Err(TargetError::Execed(_)) if self.options.children => None,
            Err(TargetError::Execed(_)) => Some(End::Execed),
            Err(_) => Some(End::Exited),
        }
    }

    pub(super) fn take(&mut self, samples: impl Iterator<Item = Sample>) {
        let mut looked_at = HashSet::new();
        for mut sample in samples {
            // An event for a whole CPU ticks for everybody.
            if sample.pid != self.pid.0 && !self.options.children {
                continue;
            }
            if looked_at.insert(sample.pid) {
                self.follow(sample.pid);
            }
            self.samples += 1;
            self.threads.insert(sample.tid);
            if sample.kernel {
                self.take_kernel(&mut sample);
                continue;
            }
            let image = self.image_of(sample.pid, sample.ip);
            let live = image.map(|image| self.images[image].live);
            let region = self.region.as_ref().filter(|place| live.is_some_and(|live| place.is_in(live)));
            if let (Some(histogram), Some(_)) = (&mut self.histogram, region) {
                histogram.count(sample.ip);
            }
            if self.options.region.is_some() && !region.is_some_and(|place| place.range.contains(&sample.ip)) {
                self.outside += 1;
                continue;
            }
            let Some(image) = image else {
                self.unknown += 1;
                *self.ticks.entry((usize::MAX, sample.ip)).or_default() += 1;
                continue;
            };
            self.images[image].pin(sample.ip);
            let Some(ticks) = bounded(&mut self.ticks, (image, sample.ip), MAX_DISTINCT) else {
                self.dropped += 1;
                continue;
            };
            *ticks += 1;
            if self.options.stacks {
                self.take_stack(image, None, &mut sample);
            }
        }
    }

    /// Takes a sample in the kernel: its registers and stack are those with which the program entered it.
    fn take_kernel(&mut self, sample: &mut Sample) {
        if self.options.region.is_some() {
            self.outside += 1;
            return;
        }
        let Some(ticks) = bounded(&mut self.kernel_ticks, sample.ip, MAX_DISTINCT) else {
            self.dropped += 1;
            return;
        };
        *ticks += 1;
        if self.options.stacks {
            let from = sample.registers.as_ref().map_or(0, |registers| registers.ip);
            match self.image_of(sample.pid, from) {
                Some(image) => self.take_stack(image, Some(sample.ip), sample),
                None => self.unwalked += 1,
            }
        }
    }

    fn take_stack(&mut self, image: usize, kernel: Option<u64>, sample: &mut Sample) {
        let Some(Walk { places, end }) = self.images[image].walk(sample) else {
            self.unwalked += 1;
            return;
        };
        for place in &places {
            self.images[image].pin(place.lookup().0);
        }
        let whole = end.is_whole();
        self.cut += u64::from(!whole);
        match bounded(&mut self.stacks, (image, kernel, places), MAX_DISTINCT) {
            Some(stack) => *stack = (whole, stack.1 + 1),
            None => self.unwalked += 1,
        }
    }

    /// Notices that a process is new, executes another program, or has mapped more code.
    pub(super) fn follow(&mut self, pid: i32) {
        if self.eager || pid != self.pid.0 {
            self.used.look(pid);
        }
        let latest = self.of_process.get(&pid).and_then(|all| all.last()).map(|index| &mut self.images[*index]);
        if latest.is_none_or(|image| !image.live.is_same_image() || image.is_check_due()) {
            self.reopen(pid);
        }
    }

    /// Whether its CPU time was good for many more ticks than there are: threads that live too short for a tick of
    /// their own, or clocks that ended when another program was executed. Seen at two looks in a row: a host that
    /// takes the CPU away once leaves a gap of ticks too, and the ticks after it fill the share up again.
    pub(super) fn misses_ticks(&mut self) -> bool {
        // By the time of the last look: ticks of what was used since may still be under way.
        let before = self.missed;
        self.missed = self.missing().is_some();
        self.look_at_time();
        before && self.missed
    }

    /// Says that it ticks from now on.
    pub(super) fn begin(&mut self) {
        let pids = if self.options.children { family(self.pid.0) } else { vec![self.pid.0] };
        pids.into_iter().for_each(|pid| self.used.begin(pid));
    }

    /// The CPU time of which most has no ticks, in 100ths of a second.
    fn missing(&self) -> Option<u64> {
        let used = self.used.of(self.pid.0).unwrap_or_default();
        let used = if self.options.kernel { used.user + used.kernel } else { used.user };
        let due = used.saturating_mul(u64::from(self.options.rate)) / 100;
        (due >= MANY && self.samples < due / MISSING).then_some(used)
    }

    /// Takes note of the CPU time so far.
    pub(super) fn look_at_time(&mut self) {
        self.used.look_at_all(self.pid.0);
    }

    /// Opens a process once more, if it is there and not only its remains, and its code is not what is known.
    fn reopen(&mut self, pid: i32) {
        let Ok(live) = Live::open(Pid(pid)) else { return };
        if self.images.len() >= MAX_IMAGES || live.denial().is_some() || live.maps().is_empty() {
            return;
        }
        let latest = self.of_process.get(&pid).and_then(|all| all.last());
        if latest.is_some_and(|latest| self.images[*latest].has_same_code(&live)) {
            return;
        }
        if let Err(error) = self.add(pid, live) {
            self.gaps.push(Gap::whole("the region", error.to_string()).with(error.remedy()));
        }
    }

    /// The image that an address belongs to: the latest that has code there. A child that has ended before it
    /// was looked at has most likely run the code of its parent.
    fn image_of(&mut self, pid: i32, ip: u64) -> Option<usize> {
        let find = |this: &Self, pid| {
            let mut all = this.of_process.get(&pid)?.iter().rev();
            all.find(|image| this.images[**image].holds(ip)).copied()
        };
        if let Some(found) = find(self, pid) {
            return Some(found);
        }
        let now = Instant::now();
        if now >= self.next_search {
            self.reopen(pid);
            let found = find(self, pid);
            self.patience = if found.is_some() { FIRST_PATIENCE } else { (self.patience * 2).min(LAST_PATIENCE) };
            self.next_search = now + self.patience;
            if found.is_some() {
                return found;
            }
        }
        find(self, self.pid.0).or_else(|| self.of_process.get(&pid)?.last().copied())
    }

    pub(super) fn finish(mut self, end: End, duration: Duration) -> Profile {
        let (region, histogram) = (self.region.take(), self.histogram.take());
        match (&region, &self.options.region) {
            (None, Some(_)) => self.gaps.push(Gap::whole("the region", "the program never had it")),
            (None, None) if self.options.histogram => {
                self.gaps.push(Gap::whole("the histogram", "the program ended before its code was seen"));
            }
            _ => {}
        }
        let counted = self.samples;
        let mut by_image: Vec<Vec<Place>> = vec![Vec::new(); self.images.len()];
        for (image, ip) in self.ticks.keys() {
            if let Some(places) = by_image.get_mut(*image) {
                places.push(here(*ip));
            }
        }
        for (image, _, places) in self.stacks.keys() {
            by_image[*image].extend(places);
        }
        let look = self.limits.begin();
        for (image, places) in self.images.iter_mut().zip(&by_image) {
            image.look_up(places);
        }
        self.limits.report(&mut self.gaps);
        drop(look);
        let kernel_addrs: Vec<u64> = self.kernel_ticks.keys().copied().collect();
        let kernel = KernelNames::look_up(&kernel_addrs);
        if kernel.are_hidden() {
            self.gaps.push(Gap::whole("names of the kernel's functions", HIDDEN_NAMES));
        }
        let ticks: Vec<Tick> = self.named_ticks(&kernel);
        let used = self.used.total();
        let bytes = u64::from(0x2_0000 / self.options.scale.clamp(2, 0x2_0000));
        let profile = Profile {
            samples: counted,
            outside: self.outside,
            kernel: self.options.kernel.then(|| self.kernel_ticks.values().sum()),
            cpu_ms: used.map(|used| (used.user + used.kernel) * 10),
            kernel_ms: used.map(|used| used.kernel * 10),
            threads: self.threads.len(),
            functions: flat::functions(&ticks, counted),
            ranges: flat::ranges(&ticks, counted, bytes),
            stacks: self.named_stacks(&kernel),
            mapped: mapped(&self.images),
            histogram,
            ..empty(Kind::Cpu, self.process.clone(), self.options.rate, duration, end)
        };
        self.tell_stop();
        self.tell_gaps(counted);
        Profile { gaps: self.gaps, ..profile }
    }

    fn named_ticks(&self, kernel: &KernelNames) -> Vec<Tick> {
        let ticks = self.ticks.iter().filter_map(|((image, ip), samples)| {
            let place = here(*ip);
            let frame = match self.images.get(*image) {
                Some(image) => image.frames(&place).pop()?,
                None => Frame { pc: place.pc, evidence: place.evidence, ..Frame::default() },
            };
            Some(Tick { frame, samples: *samples })
        });
        let in_kernel = self.kernel_ticks.iter().map(|(addr, samples)| (kernel.frame(*addr), *samples));
        let mut ticks: Vec<Tick> = ticks.chain(in_kernel.map(|(frame, samples)| Tick { frame, samples })).collect();
        ticks.sort_by_key(|tick| tick.frame.pc);
        ticks
    }

    fn named_stacks(&self, kernel: &KernelNames) -> Vec<StackShare> {
        let stacks = self.stacks.iter().map(|((image, in_kernel, places), (whole, samples))| StackShare {
            frames: in_kernel
                .iter()
                .map(|addr| kernel.frame(*addr))
                .chain(places.iter().flat_map(|place| self.images[*image].frames(place)))
                .collect(),
            whole: *whole,
            waits_for: Vec::new(),
            samples: *samples,
        });
        most_first(stacks.collect())
    }

    /// Says that there is nothing to sample because every thread is stopped.
    fn tell_stop(&mut self) {
        let Some(live) = self.live().filter(|_| self.samples == 0) else { return };
        let Ok(snapshot) = Look::new(live).take(Scope::Threads, Names::None) else { return };
        let stops: Vec<&Stop> = snapshot.threads.iter().filter_map(|thread| thread.stop.as_ref()).collect();
        if let Some(stop) = stops.first().filter(|_| stops.len() == snapshot.threads.len()) {
            let how = match stop.kind {
                StopKind::JobControl => "; SIGCONT continues them",
                _ => "",
            };
            let why = format!("all threads ({}) are {}{how}", stops.len(), stop.text());
            self.gaps.push(Gap::whole("CPU time", why));
        }
    }

    /// Says that threads of child processes may not be sampled.
    pub(super) fn tell_refused(&mut self, threads: usize) {
        if threads > 0 {
            let what = format!("{threads} threads of child processes");
            self.gaps
                .push(Gap::whole(what, "they may not be sampled (run as their user, as root, or with CAP_PERFMON)"));
        }
    }

    fn tell_gaps(&mut self, all: u64) {
        if let Some(used) = self.missing() {
            self.gaps.push(Gap::whole(
                format!("most of {}.{:02} s of CPU time", used / 100, used % 100),
                "threads that end before their first sample are not seen (a higher rate sees more of them), nor is a \
                 set-user-ID program that was started as another user (profile its PID, as root)",
            ));
        }
        let mut tell = |count: u64, what: &str, why: &str| {
            if count > 0 {
                let what = format!("{what} of {count} samples ({} %)", percent(count, all));
                self.gaps.push(Gap::whole(what, why));
            }
        };
        tell(self.unwalked, "stacks", "the kernel gave no registers, or there were too many different stacks");
        tell(
            self.cut,
            "outer frames",
            "the stack is deeper than the part that is copied, or its unwind information ends",
        );
        tell(self.unknown, "names", "their process had ended, or there were too many programs");
        tell(self.dropped, "names", "there were too many different addresses");
    }
}

/// The objects of all images, those of the first where they overlap.
pub(super) fn mapped(images: &[ProgramImage<'_>]) -> Vec<Mapped> {
    let mut mapped: Vec<Mapped> = Vec::new();
    for module in images.iter().flat_map(|image| image.live.modules()) {
        if mapped.iter().all(|other| module.end <= other.base || other.end <= module.base) {
            let path = String::from_utf8_lossy(&module.path).into_owned();
            mapped.push(Mapped { path, base: module.base, end: module.end });
        }
    }
    mapped.sort_by_key(|module| module.base);
    mapped
}
