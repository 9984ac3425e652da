//! Names, files and lines for the frames of stacks.

use crate::RemoteAddr;
use crate::elf::{Image, Symbol, demangle};
use crate::limits::Limits;
use crate::model::Frame;
use crate::symbols::{FunctionAt, MappedObject, Objects};
use crate::unwind::Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What is known of one address: the functions there, the innermost first. The last one is the function
/// that the code is really in, all before it were put into it by the compiler.
#[derive(Clone, Debug, Default)]
struct AddressName {
    module: Option<String>,
    /// At run-time addresses, with names demangled.
    functions: Vec<FunctionAt>,
    /// Where the object begins.
    base: Option<RemoteAddr>,
}

/// Looks places up, and makes frames of them.
#[derive(Clone)]
pub(crate) struct FrameNames<'a> {
    objects: Arc<Objects<'a>>,
    /// Whether lines are wanted in libc too: its debug information is large.
    pub(crate) libc_lines: bool,
    names: HashMap<RemoteAddr, AddressName>,
}

impl<'a> FrameNames<'a> {
    pub(crate) fn new(objects: &Arc<Objects<'a>>, libc_lines: bool) -> Self {
        Self { objects: objects.clone(), libc_lines, names: HashMap::new() }
    }

    /// Whether `place` has been looked up.
    pub(crate) fn has(&self, place: &Place) -> bool {
        self.names.contains_key(&place.lookup())
    }

    /// The frames at `place`: one, and one more for each function that was inlined there.
    pub(crate) fn frames(&self, place: &Place) -> Vec<Frame> {
        let unnamed = AddressName::default();
        let name = self.names.get(&place.lookup()).unwrap_or(&unnamed);
        let frame = |function: Option<String>, start: Option<u64>| Frame {
            pc: place.pc,
            function,
            module: name.module.clone(),
            offset: start.and_then(|start| place.pc.0.checked_sub(start)),
            evidence: place.evidence,
            ..Frame::default()
        };
        if place.signal {
            // libc names its trampoline for nobody; debuggers have made these words its name.
            return vec![frame(Some("<signal handler called>".to_owned()), None)];
        }
        let Some(last) = name.functions.len().checked_sub(1) else {
            return vec![frame(None, name.base.map(|base| base.0))];
        };
        let functions = name.functions.iter().enumerate();
        functions
            .map(|(index, function)| Frame {
                file: function.file.clone(),
                line: function.line,
                inlined: index < last,
                ..frame(function.name.clone(), function.start)
            })
            .collect()
    }

    /// Looks up those of `places` that were not looked up yet: each distinct address once, and object by object.
    pub(crate) fn look_up(&mut self, places: &[Place]) {
        let target = self.objects.target;
        let _look = target.limits().begin();
        let addrs: BTreeSet<_> = places.iter().filter(|place| !self.has(place)).map(Place::lookup).collect();
        let mut by_object: BTreeMap<RemoteAddr, (&MappedObject<'_>, Vec<RemoteAddr>)> = BTreeMap::new();
        for addr in addrs {
            match self.objects.at(addr) {
                Some(object) => by_object.entry(object.module.base).or_insert((object, Vec::new())).1.push(addr),
                None => {
                    self.names.insert(addr, AddressName::default());
                }
            }
        }
        for (base, (object, addrs)) in by_object {
            let with_lines = self.libc_lines || !target.is_in_libc(base);
            let functions = functions_at(object, &addrs, with_lines, target.limits());
            for (addr, functions) in addrs.into_iter().zip(functions) {
                let name = AddressName { module: Some(object.module.name()), functions, base: Some(base) };
                self.names.insert(addr, name);
            }
        }
    }
}

/// The functions at each of `addrs` in `object`.
fn functions_at(
    object: &MappedObject<'_>,
    addrs: &[RemoteAddr],
    with_lines: bool,
    limits: &Limits,
) -> Vec<Vec<FunctionAt>> {
    let Some(bias) = object.image().map(Image::bias) else { return vec![Vec::new(); addrs.len()] };
    let offsets: Vec<u64> = addrs.iter().map(|addr| addr.0.wrapping_sub(bias)).collect();
    let mut described = if with_lines { object.described_at(&offsets) } else { vec![Vec::new(); addrs.len()] };
    // What debug information has no name for, though it may know the line.
    let is_unnamed = |functions: &Vec<FunctionAt>| functions.last().is_none_or(|function| function.name.is_none());
    let unnamed: Vec<usize> = (0..addrs.len()).filter(|index| is_unnamed(&described[*index])).collect();
    let wanted: Vec<u64> = unnamed.iter().map(|index| offsets[*index]).collect();
    let symbols = object.functions_at(&wanted);
    for (index, symbol) in unnamed.into_iter().zip(symbols) {
        if limits.is_over() {
            break;
        }
        let start = |symbol: &Symbol| symbol.addr.0.wrapping_sub(bias);
        let named = symbol.map(|symbol| (symbol.addr.0, symbol.name));
        let named = named.or_else(|| object.exported_at(addrs[index]).map(|it| (start(&it), it.name)));
        let Some((start, name)) = named else { continue };
        if described[index].is_empty() {
            described[index].push(FunctionAt::default());
        }
        if let Some(outermost) = described[index].last_mut() {
            (outermost.name, outermost.start) = (Some(name), Some(start));
        }
    }
    for functions in &mut described {
        functions.retain(|function| function.name.is_some());
        for function in functions {
            function.name = function.name.take().map(|name| if limits.is_over() { name } else { demangle(&name) });
            function.start = function.start.map(|start| start.wrapping_add(bias));
        }
    }
    described
}
