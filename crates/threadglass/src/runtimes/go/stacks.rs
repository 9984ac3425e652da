//! Stacks of goroutines at rest. Every frame has a known size, so a stack is a walk from one return address to the
//! next. It ends at the function that Go puts under all others; a stack that does not was read while it changed.

use super::functions::{Functions, SourceFrame};
use super::goroutines::Goroutine;
use crate::RemoteAddr;
use crate::by_number::ByWords;
use crate::memory::{Memory, Slot, u64_at};
use crate::model::{Evidence, Frame, SharedFrames};

/// Frames that are followed; Go's own traces show a hundred.
const MAX_FRAMES: u32 = 1024;
/// How much of a stack is read: as much as most use, then what few need.
const READ: [usize; 4] = [512, 4 << 10, 64 << 10, 1 << 20];
/// Bytes of stacks that are read at one time.
const BATCH: usize = 1 << 20;

/// Different frames that are kept: programs that are not made to keep the tool busy have some thousands.
const MAX_NODES: usize = 2 << 20;

/// Functions whose caller did not call them: it was interrupted.
const INTERRUPTS: [&str; 3] = ["runtime.asyncPreempt", "runtime.sigpanic", "runtime.debugCallV2"];

/// A stack among all that were seen, the same number for equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StackId(u32);

/// One frame, below those that it was called from.
struct Node {
    /// The frame that this one called; none of the innermost.
    inner: u32,
    pc: u64,
    depth: u32,
    facts: Option<FrameFacts>,
}

/// What is needed to go on from a frame.
#[derive(Clone, Copy)]
struct FrameFacts {
    size: u64,
    is_outermost: bool,
    is_interrupt: bool,
}

/// What came of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walked {
    Whole(StackId),
    /// Deeper than is followed.
    Deep(StackId),
    /// Its bytes do not belong together, or have no end.
    Torn,
    /// More of it is needed.
    Short,
}

/// All stacks of a program, each frame once.
pub(super) struct Stacks<'m> {
    memory: &'m dyn Memory,
    functions: &'m Functions<'m>,
    module: Option<String>,
    /// Whether they are of goroutines at rest.
    at_rest: bool,
    nodes: Vec<Node>,
    outer: ByWords<(u32, u64), u32>,
    shown: ByWords<StackId, SharedFrames>,
}

const ROOT: u32 = 0;

impl<'m> Stacks<'m> {
    pub(super) fn new(memory: &'m dyn Memory, functions: &'m Functions<'m>, module: Option<String>) -> Self {
        let root = Node { inner: ROOT, pc: 0, depth: 0, facts: None };
        Self {
            memory,
            functions,
            module,
            at_rest: true,
            nodes: vec![root],
            outer: ByWords::default(),
            shown: ByWords::default(),
        }
    }

    /// The same of goroutines that were interrupted wherever they were.
    pub(super) fn of_running(memory: &'m dyn Memory, functions: &'m Functions<'m>, module: Option<String>) -> Self {
        Self { at_rest: false, ..Self::new(memory, functions, module) }
    }

    /// Walks the stacks of `goroutines`, which are at rest.
    pub(super) fn walk(&mut self, goroutines: &[Goroutine]) -> Vec<Walked> {
        let mut walked = vec![Walked::Short; goroutines.len()];
        for size in READ {
            let wanted: Vec<usize> = (0..walked.len()).filter(|index| walked[*index] == Walked::Short).collect();
            for part in wanted.chunks(BATCH / size) {
                self.walk_part(goroutines, part, size, &mut walked);
            }
        }
        walked.iter_mut().filter(|walked| **walked == Walked::Short).for_each(|walked| *walked = Walked::Torn);
        walked
    }

    fn walk_part(&mut self, goroutines: &[Goroutine], part: &[usize], size: usize, walked: &mut [Walked]) {
        let mut buffer = vec![0; part.len() * size];
        let mut slots: Vec<Slot<'_>> = part
            .iter()
            .zip(buffer.chunks_mut(size))
            .map(|(index, bytes)| {
                let goroutine = &goroutines[*index];
                let length = goroutine.high.saturating_sub(goroutine.sp).min(size as u64) as usize;
                Slot::new(RemoteAddr(goroutine.sp), &mut bytes[..length])
            })
            .collect();
        self.memory.read_many(&mut slots);
        for (index, slot) in part.iter().zip(&slots) {
            let bytes = &slot.buf[..slot.outcome.unwrap_or(0)];
            walked[*index] = self.walk_bytes(&goroutines[*index], bytes);
        }
    }

    /// Walks the stack of `goroutine`, whose innermost bytes are `bytes`.
    pub(super) fn walk_bytes(&mut self, goroutine: &Goroutine, bytes: &[u8]) -> Walked {
        let (mut node, mut pc, mut at) = (ROOT, goroutine.pc, 0_u64);
        loop {
            node = self.caller(node, pc);
            let Some(facts) = self.nodes[node as usize].facts else { return Walked::Torn };
            if facts.is_outermost {
                return Walked::Whole(StackId(node));
            }
            if self.nodes.len() >= MAX_NODES {
                return Walked::Torn;
            }
            if self.nodes[node as usize].depth >= MAX_FRAMES {
                return Walked::Deep(StackId(node));
            }
            let Some(back) = at.checked_add(facts.size) else { return Walked::Torn };
            if goroutine.sp.checked_add(back).and_then(|at| at.checked_add(8)).is_none_or(|end| end > goroutine.high) {
                return Walked::Torn;
            }
            let Some(word) = usize::try_from(back).ok().and_then(|back| u64_at(bytes, back)) else {
                return Walked::Short;
            };
            (pc, at) = (word, back + 8);
        }
    }

    /// The frame at `pc` that called the frame `inner`.
    fn caller(&mut self, inner: u32, pc: u64) -> u32 {
        if let Some(known) = self.outer.get(&(inner, pc)) {
            return *known;
        }
        let depth = self.nodes[inner as usize].depth + 1;
        let looked_up = self.place(inner, pc);
        let facts = self.functions.at(looked_up).and_then(|function| {
            let name = self.functions.name(&function);
            let is_interrupt = name.is_some_and(|name| INTERRUPTS.contains(&name.as_str()));
            let is_outermost = function.is_outermost();
            let size = self.functions.frame_size(&function, looked_up).or(is_outermost.then_some(0))?;
            Some(FrameFacts { size, is_outermost, is_interrupt })
        });
        let number = self.nodes.len() as u32;
        self.nodes.push(Node { inner, pc, depth, facts });
        self.outer.insert((inner, pc), number);
        number
    }

    /// The address by which the frame at `pc` is looked up: that of its call, unless it made none.
    fn place(&self, inner: u32, pc: u64) -> u64 {
        let is_exact = inner == ROOT || self.nodes[inner as usize].facts.is_some_and(|facts| facts.is_interrupt);
        // Below a call from C lies the beginning of a function that nothing called: the runtime put it there when it left the stack.
        if is_exact || self.functions.bounds(pc).is_some_and(|(entry, _)| entry == pc) {
            pc
        } else {
            pc.wrapping_sub(1)
        }
    }

    /// The frames of a stack, the innermost first: program counters with the addresses that they are looked up by.
    pub(super) fn places(&self, stack: StackId) -> Vec<(u64, u64)> {
        let mut places = Vec::new();
        let mut number = stack.0;
        while number != ROOT {
            let node = &self.nodes[number as usize];
            places.push((node.pc, self.place(node.inner, node.pc)));
            number = node.inner;
        }
        places.reverse();
        // A goroutine at rest has called what put it there, unless it has not begun to run.
        if let Some((pc, place)) = places.first_mut().filter(|_| self.at_rest)
            && self.functions.at(*pc).is_some_and(|function| function.entry < *pc)
        {
            *place = *pc - 1;
        }
        places
    }

    /// The same with names and lines.
    pub(super) fn frames(&mut self, stack: StackId) -> SharedFrames {
        if let Some(known) = self.shown.get(&stack) {
            return known.clone();
        }
        let places = self.places(stack);
        let frames = places.iter().enumerate().flat_map(|(number, (pc, place))| {
            let evidence = if number == 0 { Evidence::Recorded } else { Evidence::Derived };
            named(self.functions, self.module.as_deref(), *pc, *place, evidence)
        });
        let frames = SharedFrames::from(frames.collect::<Vec<Frame>>());
        self.shown.insert(stack, frames.clone());
        frames
    }
}

/// The frames of one program counter: what was put into the function there comes first.
pub(super) fn named(
    functions: &Functions<'_>,
    module: Option<&str>,
    pc: u64,
    place: u64,
    evidence: Evidence,
) -> Vec<Frame> {
    let function = functions.at(place);
    let source = function.as_ref().map(|function| functions.source(function, place)).unwrap_or_default();
    let offset = function.map(|function| pc.wrapping_sub(function.entry));
    let frame = |SourceFrame { function, file, line, inlined }| Frame {
        pc: RemoteAddr(pc),
        function: Some(function),
        module: module.map(str::to_owned),
        offset: offset.filter(|_| !inlined),
        file,
        line,
        inlined,
        evidence,
    };
    source.into_iter().map(frame).collect()
}
