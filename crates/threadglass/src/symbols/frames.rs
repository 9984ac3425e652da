//! Names, files and lines for the frames of stacks.

use super::demangle;
use crate::RemoteAddr;
use crate::elf::{FileSymbols, Image};
use crate::model::Frame;
use crate::target::{Module, Target};
use crate::unwind::Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is known of one address: the functions there, the innermost first. The last one is the function
/// that the code is really in, all before it were put into it by the compiler.
#[derive(Clone, Debug, Default)]
struct Name {
    module: Option<String>,
    functions: Vec<Function>,
    /// Where the object begins.
    base: Option<RemoteAddr>,
}

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Its first address at run time; `None` for one that was inlined.
    pub(super) start: Option<u64>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

/// Names the frames of one target's stacks.
pub(crate) struct FrameNames<'a> {
    target: &'a dyn Target,
    names: HashMap<RemoteAddr, Name>,
}

impl<'a> FrameNames<'a> {
    pub(crate) fn new(target: &'a dyn Target) -> Self {
        Self { target, names: HashMap::new() }
    }

    /// Looks all `places` up: each distinct address once, and object by object.
    pub(crate) fn look_up<'p>(&mut self, places: impl Iterator<Item = &'p Place>) {
        let addrs: BTreeSet<RemoteAddr> = places.map(Place::lookup).collect();
        let mut by_module: BTreeMap<RemoteAddr, (&Module, Vec<RemoteAddr>)> = BTreeMap::new();
        for addr in addrs {
            if let Some(module) = self.target.module_at(addr) {
                by_module.entry(module.base).or_insert_with(|| (module, Vec::new())).1.push(addr);
            }
        }
        for (base, (module, addrs)) in by_module {
            let functions = functions_at(self.target, module, &addrs);
            for (addr, functions) in addrs.into_iter().zip(functions) {
                let name = Name { module: Some(module.name()), functions, base: Some(base) };
                self.names.insert(addr, name);
            }
        }
    }

    /// The frames at `place`: one, and one more for each function that was inlined there.
    pub(crate) fn frames(&self, place: &Place) -> Vec<Frame> {
        let unnamed = Name::default();
        let name = self.names.get(&place.lookup()).unwrap_or(&unnamed);
        let frame = |function: Option<String>, start: Option<u64>| Frame {
            pc: place.pc,
            function,
            module: name.module.clone(),
            offset: start.and_then(|start| place.pc.0.checked_sub(start)),
            file: None,
            line: None,
            inlined: false,
            evidence: place.evidence,
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
                ..frame(Some(function.name.clone()), function.start)
            })
            .collect()
    }
}

/// The functions at each of `addrs`, all in `module`.
fn functions_at(target: &dyn Target, module: &Module, addrs: &[RemoteAddr]) -> Vec<Vec<Function>> {
    let mut found = vec![Vec::new(); addrs.len()];
    let Ok(mut image) = Image::load(target, module.base) else { return found };
    let bias = image.bias();
    let file = target.open_module(module);
    #[cfg(feature = "blazesym")]
    {
        let build_id = image.build_id(target);
        if let Some(lines) = super::lines::functions_at(module, file.as_ref(), build_id.as_deref(), bias, addrs) {
            found = lines;
        }
    }
    if let Some(file) = file {
        let missing: Vec<usize> = (0..addrs.len()).filter(|index| found[*index].is_empty()).collect();
        let offsets: Vec<u64> = missing.iter().map(|index| addrs[*index].0.wrapping_sub(bias)).collect();
        if !offsets.is_empty() {
            for (index, symbol) in missing.into_iter().zip(FileSymbols::new(file).functions_at(&offsets)) {
                found[index].extend(symbol.map(|symbol| plain(&symbol.name, symbol.addr.0.wrapping_add(bias))));
            }
        }
    }
    if found.iter().any(Vec::is_empty) && image.load_symbols(target).is_ok() {
        for (addr, functions) in addrs.iter().zip(&mut found).filter(|(_, functions)| functions.is_empty()) {
            functions.extend(image.function_at(*addr).map(|symbol| plain(&symbol.name, symbol.addr.0)));
        }
    }
    found
}

fn plain(name: &str, start: u64) -> Function {
    Function { name: demangle(name), start: Some(start), file: None, line: None }
}
