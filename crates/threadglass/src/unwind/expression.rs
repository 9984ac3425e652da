//! DWARF expressions in unwind rules: signal frames and realigned stacks have them.

use super::cfi::Bytes;
use crate::arch::Registers;
use gimli::{Encoding, EvaluationResult, Expression, Value};

/// No expression in unwind rules takes more steps; one that loops is given up.
const MAX_STEPS: u32 = 1_000;
const ENCODING: Encoding = Encoding { format: gimli::Format::Dwarf32, version: 4, address_size: 8 };

/// Value of the expression `code`, with `initial` on its stack. `None` when it needs something unknown.
pub(super) fn evaluate(
    code: &[u8],
    registers: &Registers,
    initial: Option<u64>,
    read: &mut dyn FnMut(u64) -> Option<u64>,
) -> Option<u64> {
    let mut evaluation = Expression(Bytes::new(code, gimli::LittleEndian)).evaluation(ENCODING);
    evaluation.set_max_iterations(MAX_STEPS);
    if let Some(value) = initial {
        evaluation.set_initial_value(value);
    }
    let mut state = evaluation.evaluate().ok()?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                evaluation.resume_with_register(Value::Generic(registers.get(register.0)?)).ok()?
            }
            EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                evaluation.resume_with_memory(Value::Generic(read(address)?)).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result() {
        [gimli::Piece { location: gimli::Location::Address { address }, .. }] => Some(*address),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RemoteAddr;

    #[test]
    fn what_signal_frames_use() {
        let registers = Registers::blocked(RemoteAddr(0x100), RemoteAddr(0x2000));
        let mut read = |addr| (addr == 0x20a0).then_some(0x7777);
        // DW_OP_breg7 160; DW_OP_deref
        assert_eq!(evaluate(&[0x77, 0xa0, 0x01, 0x06], &registers, None, &mut read), Some(0x7777));
        // The frame pointer is not known.
        assert_eq!(evaluate(&[0x76, 0x00], &registers, None, &mut read), None);
        // DW_OP_skip to itself.
        assert_eq!(evaluate(&[0x2f, 0xfd, 0xff], &registers, None, &mut read), None);
        assert_eq!(evaluate(&[], &registers, None, &mut read), None);
    }
}
