//! The programs that samples fall into: one each time that a process executes one or maps more code.

use crate::RemoteAddr;
use crate::arch::Registers;
use crate::look::Look;
use crate::model::{Evidence, Frame};
use crate::perf::Sample;
use crate::proc::map_at;
use crate::symbols::{JitFiles, JitFunction, MappedObject, Objects};
use crate::target::{Live, Module, Target};
use crate::unwind::{FrameNames, Known, Place, Space, StackWords, Walk, Walker};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Processes that were opened, kept where they are until the end of a recording, so that what is learned of
/// them can refer to them.
#[derive(Debug, Default)]
pub(super) struct OpenedProcesses(OnceCell<Box<(Live, OpenedProcesses)>>);

impl OpenedProcesses {
    pub(super) fn keep(&self, live: Live) -> &Live {
        let mut end = self;
        while let Some(node) = end.0.get() {
            end = &node.1;
        }
        &end.0.get_or_init(|| Box::new((live, Self::default()))).0
    }
}

/// One program as it was mapped at some time.
pub(super) struct ProgramImage<'a> {
    pub(super) live: &'a Live,
    names: FrameNames<'a>,
    objects: Arc<Objects<'a>>,
    space: Arc<Space<'a>>,
    known: Known,
    /// First addresses of functions that no table names, by addresses in them.
    bounds: HashMap<RemoteAddr, u64>,
    /// Files that name generated code, and the functions in them that are needed, each with its file.
    jit: JitFiles,
    jit_functions: HashMap<RemoteAddr, (JitFunction, String)>,
    /// When they are to be looked for again.
    next_jit: Instant,
    /// Objects whose names are taken care of, which must happen while the process lives.
    pinned: HashSet<RemoteAddr>,
    /// When its maps are to be compared again, and how long after that.
    next_check: Instant,
    pause: Duration,
}

/// How soon maps are compared for the first time, and how often in the long run.
const FIRST_CHECK: Duration = Duration::from_millis(5);
const LAST_CHECK: Duration = Duration::from_secs(2);
/// How often files that name generated code are looked for while there are none.
const JIT_CHECK: Duration = Duration::from_millis(100);

impl<'a> ProgramImage<'a> {
    pub(super) fn new(live: &'a Live, look: &Look<'a>) -> Self {
        Self {
            live,
            names: FrameNames::new(&look.objects, false),
            objects: look.objects.clone(),
            space: look.space.clone(),
            known: Known::default(),
            bounds: HashMap::new(),
            jit: JitFiles::default(),
            jit_functions: HashMap::new(),
            next_jit: Instant::now(),
            pinned: HashSet::new(),
            next_check: Instant::now() + FIRST_CHECK,
            pause: FIRST_CHECK,
        }
    }

    /// Whether it is time to compare the maps again.
    pub(super) fn is_check_due(&mut self) -> bool {
        let now = Instant::now();
        let due = now >= self.next_check;
        if due {
            self.pause = (self.pause * 2).min(LAST_CHECK);
            self.next_check = now + self.pause;
        }
        due
    }

    /// Whether `now` has the same objects mapped.
    pub(super) fn has_same_code(&self, now: &Live) -> bool {
        let (old, new) = (self.live.modules(), now.modules());
        let is_same = |(a, b): (&Module, &Module)| (a.base, a.end, &a.path) == (b.base, b.end, &b.path);
        old.len() == new.len() && old.iter().zip(new).all(is_same) && self.has_generated_code(now)
    }

    /// Whether all code of `now` that is in no file was mapped already.
    fn has_generated_code(&self, now: &Live) -> bool {
        let mut generated = now.maps().iter().filter(|map| map.exec && !map.is_file());
        generated.all(|map| self.space.is_code(map.start.0) && self.space.is_code(map.end.0 - 1))
    }

    /// Whether code of an object, or other code that was mapped, is at `addr`.
    pub(super) fn holds(&self, addr: u64) -> bool {
        self.space.is_code(addr)
    }

    /// Takes what names the object around `addr` later.
    pub(super) fn pin(&mut self, addr: u64) {
        self.pin_generated(addr);
        if let Some(object) = self.objects.at(RemoteAddr(addr))
            && self.pinned.insert(object.module.base)
        {
            object.pin();
            if !object.has_full_symbols() {
                // Its unwind table tells where its functions begin; it is in the process's memory.
                self.known.row(&self.space, addr);
            }
        }
    }

    /// Opens the files that name generated code, as long as the process can be asked where they are.
    fn pin_generated(&mut self, addr: u64) {
        if !self.jit.are_missing() || Instant::now() < self.next_jit || !self.is_generated(RemoteAddr(addr)) {
            return;
        }
        self.next_jit = Instant::now() + JIT_CHECK;
        self.jit = JitFiles::open(self.live);
    }

    /// Whether code at `addr` is in no file. Between the segments of an object there may be generated code, which is not
    /// its own.
    fn is_generated(&self, addr: RemoteAddr) -> bool {
        let Some(object) = self.objects.at(addr) else { return true };
        let image =
            Some(object).filter(|object| self.pinned.contains(&object.module.base)).and_then(MappedObject::image);
        image.is_some_and(|image| image.segment_end(addr).is_none())
    }

    /// The stack of a sample, from its registers and its copy of the stack.
    pub(super) fn walk(&mut self, sample: &mut Sample) -> Option<Walk> {
        let registers = sample.registers.as_deref().copied()?;
        let general = Registers::blocked(RemoteAddr(registers.ip), RemoteAddr(registers.sp));
        let general = general.with_frame_pointer(registers.bp);
        let mut stack = StackWords::copied(general.sp, std::mem::take(&mut sample.stack));
        Some(self.walk_words(&mut stack, general, None))
    }

    /// A stack of any origin.
    pub(super) fn walk_words(
        &mut self,
        stack: &mut StackWords<'_>,
        registers: Registers,
        start: Option<RemoteAddr>,
    ) -> Walk {
        Walker::whole(&self.space, &mut self.known, start).walk(stack, registers)
    }

    /// Looks all `places` up at once, which costs little more than one.
    pub(super) fn look_up(&mut self, places: &[Place]) {
        self.names.look_up(places);
        let generated: HashSet<u64> = places
            .iter()
            .map(|place| place.lookup())
            .filter(|addr| self.is_generated(*addr))
            .map(|addr| addr.0)
            .collect();
        let generated: Vec<u64> = generated.into_iter().collect();
        if !generated.is_empty() {
            let found = self.jit.functions_at(&generated, self.live.limits());
            let found = generated.iter().zip(found).filter_map(|(addr, found)| Some((RemoteAddr(*addr), found?)));
            self.jit_functions.extend(found);
        }
        for place in places {
            if self.names.frames(place).iter().all(|frame| frame.function.is_none())
                && let Some(row) = self.known.row(&self.space, place.lookup().0)
            {
                self.bounds.insert(place.lookup(), row.function.0);
            }
        }
    }

    /// The frames at a place that was looked up: inlined functions first. A function that no table names goes by the
    /// place where it begins in its object, code that is in no file by the name of its mapping.
    pub(super) fn frames(&self, place: &Place) -> Vec<Frame> {
        let mut frames = self.names.frames(place);
        if let (Some(start), Some(object)) = (self.bounds.get(&place.lookup()), self.objects.at(place.lookup())) {
            let name = format!("{}+{:#x}", object.module.name(), start.wrapping_sub(object.module.base.0));
            for frame in &mut frames {
                frame.function = Some(name.clone());
                frame.offset = place.pc.0.checked_sub(*start);
            }
        }
        if self.is_generated(place.lookup()) {
            let nameless = |frame| Frame { function: None, module: None, file: None, line: None, ..frame };
            frames = frames.pop().map(nameless).into_iter().collect();
        }
        if let (Some((function, file)), [frame]) = (self.jit_functions.get(&place.lookup()), &mut frames[..]) {
            frame.function = Some(function.name.clone());
            frame.offset = place.pc.0.checked_sub(function.start);
            frame.module = Some(file.clone());
        }
        for frame in frames.iter_mut().filter(|frame| frame.module.is_none()) {
            let Some(map) = map_at(self.live.maps(), place.lookup()) else { continue };
            let name = String::from_utf8_lossy(&map.name);
            frame.module = Some(if name.is_empty() { "[anonymous]".to_owned() } else { name.into_owned() });
            frame.offset = Some(place.pc.0.saturating_sub(map.start.0));
        }
        frames
    }
}

/// The place of a program counter.
pub(super) fn here(ip: u64) -> Place {
    Place { pc: RemoteAddr(ip), exact: true, signal: false, evidence: Evidence::Recorded, firm: true }
}
