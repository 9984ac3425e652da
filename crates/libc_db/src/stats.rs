//! Process statistics: declared, and answered with TD_NOCAPAB after the checks that hold for every call,
//! until they are implemented.

use crate::abi::{Td, TdErr, ThrAgent, code};
use crate::agents;
use std::ffi::{c_int, c_void};

fn on_agent(ta: *const ThrAgent) -> Td {
    agents::enter(ta)?;
    Err(TdErr::NoCapab)
}

/// Switches process statistics.
///
/// # Safety
///
/// `ta` may be anything: it is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_enable_stats(ta: *const ThrAgent, _on: c_int) -> c_int {
    code(on_agent(ta))
}

/// Resets process statistics.
///
/// # Safety
///
/// `ta` may be anything: it is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_reset_stats(ta: *const ThrAgent) -> c_int {
    code(on_agent(ta))
}

/// Process statistics.
///
/// # Safety
///
/// `ta` may be anything: it is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_get_stats(ta: *const ThrAgent, out: *mut c_void) -> c_int {
    code(if out.is_null() { Err(TdErr::Err) } else { on_agent(ta) })
}
