//! Names, files and lines for the frames of stacks.

use crate::RemoteAddr;
use crate::elf::demangle;
use crate::elf::{FileSymbols, Image, Symbol};
use crate::limits::Limits;
use crate::model::Frame;
use crate::symbols::FunctionAt;
use crate::symbols::Lines;
use crate::target::{Module, Target};
use crate::unwind::Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;

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
pub(crate) struct Function {
    pub(crate) name: String,
    /// Its first address at run time; `None` for one that was inlined.
    pub(crate) start: Option<u64>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// Names of places, for making frames.
#[derive(Debug, Default)]
pub(crate) struct FrameNames {
    names: HashMap<RemoteAddr, Name>,
}

impl FrameNames {
    /// Whether `place` has been looked up.
    pub(crate) fn has(&self, place: &Place) -> bool {
        self.names.contains_key(&place.lookup())
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

/// Looks places up. Objects are opened when the first place in them is asked for.
pub(crate) struct Namer<'a> {
    target: &'a dyn Target,
    /// Whether lines are wanted in libc too: its debug information is large.
    libc_lines: bool,
    objects: HashMap<RemoteAddr, Option<Object>>,
    /// What was taken of objects that have not been opened yet.
    pins: HashMap<RemoteAddr, Option<Pin>>,
}

/// What an object can be named by later, when its process may have ended.
struct Pin {
    image: Image,
    file: Option<File>,
    build_id: Option<Vec<u8>>,
}

impl Pin {
    fn take(target: &dyn Target, module: &Module) -> Option<Self> {
        let mut image = Image::load(target, module.base).ok()?;
        let file = target.open_module(module);
        if file.is_none() {
            let _ = image.load_symbols_within(target, target.limits());
        }
        Some(Self { build_id: image.build_id(target), image, file })
    }
}

impl<'a> Namer<'a> {
    pub(crate) fn new(target: &'a dyn Target, libc_lines: bool) -> Self {
        Self { target, libc_lines, objects: HashMap::new(), pins: HashMap::new() }
    }

    /// Takes what is needed to name addresses of `module` later, when its process may have ended. Quick: nothing
    /// is searched.
    #[cfg(feature = "profile")]
    pub(crate) fn pin(&mut self, module: &Module) {
        if !self.objects.contains_key(&module.base) {
            let target = self.target;
            self.pins.entry(module.base).or_insert_with(|| Pin::take(target, module));
        }
    }

    /// Looks up those of `places` that are not in `names` yet: each distinct address once, and object by
    /// object.
    pub(crate) fn look_up(&mut self, places: &[Place], names: &mut FrameNames) {
        let _look = self.target.limits().begin();
        let addrs: BTreeSet<_> = places.iter().filter(|place| !names.has(place)).map(Place::lookup).collect();
        let mut by_module: BTreeMap<RemoteAddr, (&Module, Vec<RemoteAddr>)> = BTreeMap::new();
        for addr in addrs {
            match self.target.module_at(addr) {
                Some(module) => by_module.entry(module.base).or_insert_with(|| (module, Vec::new())).1.push(addr),
                None => {
                    names.names.insert(addr, Name::default());
                }
            }
        }
        let target = self.target;
        for (base, (module, addrs)) in by_module {
            let lines = self.libc_lines || !target.is_in_libc(base);
            let pins = &mut self.pins;
            let object = self.objects.entry(base).or_insert_with(|| match pins.remove(&base) {
                Some(pin) => Some(Object::open(module, pin?, lines, target.limits())),
                None => {
                    let mut pin = Pin::take(target, module)?;
                    if pin.file.is_some() {
                        let _ = pin.image.load_symbols_within(target, target.limits());
                    }
                    Some(Object::open(module, pin, lines, target.limits()))
                }
            });
            let functions =
                object.as_mut().map_or_else(|| vec![Vec::new(); addrs.len()], |object| object.functions_at(&addrs));
            for (addr, functions) in addrs.into_iter().zip(functions) {
                let name = Name { module: Some(module.name()), functions, base: Some(base) };
                names.names.insert(addr, name);
            }
        }
    }
}

/// Everything that may name the functions of one object.
struct Object {
    image: Image,
    file: Option<FileSymbols>,
    lines: Option<Lines>,
    limits: Limits,
}

impl Object {
    fn open(module: &Module, pin: Pin, lines: bool, limits: &Limits) -> Self {
        let Pin { image, file, build_id } = pin;
        Self {
            lines: lines.then(|| Lines::open(module, file.as_ref(), build_id.as_deref(), limits)).flatten(),
            image,
            file: file.map(|file| FileSymbols::new(file, limits)),
            limits: limits.clone(),
        }
    }

    /// The functions at each of `addrs`.
    fn functions_at(&mut self, addrs: &[RemoteAddr]) -> Vec<Vec<Function>> {
        let bias = self.image.bias();
        let offsets: Vec<u64> = addrs.iter().map(|addr| addr.0.wrapping_sub(bias)).collect();
        let mut described = match &mut self.lines {
            Some(lines) => lines.functions_at(&offsets),
            None => vec![Vec::new(); addrs.len()],
        };
        // What debug information has no name for, though it may know the line.
        let is_unnamed = |functions: &Vec<FunctionAt>| functions.last().is_none_or(|function| function.name.is_none());
        let unnamed: Vec<usize> = (0..addrs.len()).filter(|index| is_unnamed(&described[*index])).collect();
        let wanted: Vec<u64> = unnamed.iter().map(|index| offsets[*index]).collect();
        let symbols = match &self.file {
            Some(file) if !wanted.is_empty() => file.functions_at(&wanted),
            _ => vec![None; wanted.len()],
        };
        for (index, symbol) in unnamed.into_iter().zip(symbols) {
            if self.limits.is_over() {
                break;
            }
            let start = |symbol: &Symbol| symbol.addr.0.wrapping_sub(bias);
            let named = symbol.map(|symbol| (symbol.addr.0, symbol.name));
            let named = named.or_else(|| self.image.function_at(addrs[index]).map(|it| (start(&it), it.name)));
            let Some((start, name)) = named else { continue };
            if described[index].is_empty() {
                described[index].push(FunctionAt::default());
            }
            if let Some(outermost) = described[index].last_mut() {
                (outermost.name, outermost.start) = (Some(name), Some(start));
            }
        }
        let limits = &self.limits;
        let function = |function: FunctionAt| {
            let name = function.name?;
            Some(Function {
                name: if limits.is_over() { name } else { demangle(&name) },
                start: function.start.map(|start| start.wrapping_add(bias)),
                file: function.file,
                line: function.line,
            })
        };
        described.into_iter().map(|functions| functions.into_iter().filter_map(function).collect()).collect()
    }
}
