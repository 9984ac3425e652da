//! Where the variables of a function are while a thread is in it.

use super::unit::Parsed;
use super::{DebugEntry, DebugInfo, EntryAt, Query, Slice};
use crate::arch::Registers;
use gimli::{
    AttributeValue, DebugLoc, DebugLocLists, EvaluationResult, Expression, LittleEndian, Location, LocationLists,
    Value, constants as dw,
};

/// Variables of one place that are kept.
const MAX_VARIABLES: usize = 256;
/// No expression takes more steps.
const MAX_STEPS: u32 = 256;
/// Entries of one list of places.
const MAX_LIST: usize = 4096;

/// Where a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariablePlace {
    /// In memory, at this address.
    Memory(u64),
    /// In no memory: its value.
    Value(u64),
}

/// A variable of a function that a thread is in.
#[derive(Clone, Debug)]
pub(crate) struct FrameVariable {
    pub(crate) name: String,
    pub(crate) of: EntryAt,
    pub(crate) place: VariablePlace,
}

impl DebugInfo {
    /// The variables whose place is known of the functions at the link-time address `pc` whose names `wants` accepts,
    /// inlined ones included. The last one of the innermost function comes first. `registers` are those of the frame,
    /// `read` gives words of memory.
    pub(in crate::symbols) fn frame_variables(
        &mut self,
        pc: u64,
        wants: &dyn Fn(&str) -> bool,
        registers: &Registers,
        read: &dyn Fn(u64) -> Option<u64>,
    ) -> Vec<FrameVariable> {
        let found = self.query().frame_variables(pc, wants, &Frame { pc, registers, read }).unwrap_or_default();
        found.into_iter().rev().flat_map(|function| function.into_iter().rev()).collect()
    }
}

/// What an expression may ask for.
struct Frame<'f> {
    pc: u64,
    registers: &'f Registers,
    read: &'f dyn Fn(u64) -> Option<u64>,
}

impl<'a> Query<'a> {
    /// The same by function, the outermost first.
    fn frame_variables(
        &mut self,
        pc: u64,
        wants: &dyn Fn(&str) -> bool,
        frame: &Frame<'_>,
    ) -> Option<Vec<Vec<FrameVariable>>> {
        let unit = self.unit_at(pc)?;
        let index = self.index(unit)?;
        let (_, function) = super::code::function_at(&index, pc)?;
        let parsed = self.unit(unit)?;
        let mut found: Vec<Vec<FrameVariable>> = Vec::new();
        // The functions around an entry: how deep each lies, and its place in `found` if it is wanted.
        let mut around: Vec<(isize, Option<usize>)> = Vec::new();
        let mut base = None;
        let mut count = 0;
        let walked = self.walk(&parsed, function, |this, depth, entry| {
            if count >= MAX_VARIABLES || this.is_exhausted() {
                return None;
            }
            around.retain(|(outer, _)| *outer < depth);
            let at = parsed.start.checked_add(entry.offset().0)?;
            match entry.tag() {
                dw::DW_TAG_formal_parameter | dw::DW_TAG_variable => {
                    let of_wanted = around.last().and_then(|(_, wanted)| *wanted);
                    if let Some(function) = of_wanted.and_then(|wanted| found.get_mut(wanted)) {
                        count += 1;
                        function.extend(this.frame_variable(&parsed, entry, at, frame, base));
                    }
                    return Some(false);
                }
                dw::DW_TAG_subprogram if depth == 0 => {
                    let place = entry.attr_value(dw::DW_AT_frame_base);
                    base = place.and_then(|place| match this.variable_place(&parsed, place, frame, None)? {
                        // A register that has the base, or an expression that gives it.
                        VariablePlace::Value(address) | VariablePlace::Memory(address) => Some(address),
                    });
                }
                _ if this.is_inner_code(&parsed, entry, pc) => {}
                _ => return Some(false),
            }
            if entry.tag() != dw::DW_TAG_lexical_block {
                let is_wanted = this.qualified_name(at).is_some_and(|name| wants(&name));
                if is_wanted {
                    found.push(Vec::new());
                }
                around.push((depth, is_wanted.then(|| found.len() - 1)));
            }
            Some(true)
        });
        walked.ok()?;
        Some(found)
    }

    fn frame_variable(
        &mut self,
        parsed: &Parsed<'a>,
        entry: &DebugEntry<'a>,
        at: EntryAt,
        frame: &Frame<'_>,
        base: Option<u64>,
    ) -> Option<FrameVariable> {
        let place = self.variable_place(parsed, entry.attr_value(dw::DW_AT_location)?, frame, base)?;
        let name = self.first_along(at, Self::attribute_name)?;
        Some(FrameVariable { name, of: self.type_of(at)?, place })
    }

    /// What the expression, or the one of a list that is in force, tells.
    fn variable_place(
        &self,
        parsed: &Parsed<'a>,
        value: AttributeValue<Slice<'a>>,
        frame: &Frame<'_>,
        base: Option<u64>,
    ) -> Option<VariablePlace> {
        if let AttributeValue::Exprloc(expression) = value {
            return evaluate(parsed, expression, frame, base);
        }
        let (old, new) = self.source.sections.locations();
        let (old, new) = (Slice::new(old, LittleEndian), Slice::new(new, LittleEndian));
        let lists = LocationLists::new(DebugLoc::from(old), DebugLocLists::from(new));
        let unit = &parsed.unit;
        let offset = match value {
            AttributeValue::LocationListsRef(offset) => offset,
            AttributeValue::DebugLocListsIndex(index) => {
                lists.get_offset(unit.encoding(), unit.loclists_base, index).ok()?
            }
            _ => return None,
        };
        let addresses = &self.dwarf.debug_addr;
        let mut list = lists.locations(offset, unit.encoding(), unit.low_pc, addresses, unit.addr_base).ok()?;
        for _ in 0..MAX_LIST {
            let entry = list.next().ok()??;
            if (entry.range.begin..entry.range.end).contains(&frame.pc) {
                return evaluate(parsed, entry.data, frame, base);
            }
        }
        None
    }
}

fn evaluate(
    parsed: &Parsed<'_>,
    expression: Expression<Slice<'_>>,
    frame: &Frame<'_>,
    base: Option<u64>,
) -> Option<VariablePlace> {
    let register = |number| frame.registers.get(number);
    let mut evaluation = expression.evaluation(parsed.unit.encoding());
    evaluation.set_max_iterations(MAX_STEPS);
    let mut state = evaluation.evaluate().ok()?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register: number, .. } => {
                evaluation.resume_with_register(Value::Generic(register(number.0)?)).ok()?
            }
            EvaluationResult::RequiresFrameBase => evaluation.resume_with_frame_base(base?).ok()?,
            EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                evaluation.resume_with_memory(Value::Generic((frame.read)(address)?)).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result() {
        [piece] if piece.size_in_bits.is_none() => match piece.location {
            Location::Address { address } => Some(VariablePlace::Memory(address)),
            Location::Register { register: number } => Some(VariablePlace::Value(register(number.0)?)),
            Location::Value { value: Value::Generic(value) | Value::U64(value) } => Some(VariablePlace::Value(value)),
            _ => None,
        },
        _ => None,
    }
}
