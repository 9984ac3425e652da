//! td_ta_thr_iter.

use crate::abi::{SigSet, Td, TdErr, ThrAgent, ThrIterF, code};
use crate::info::describe;
use crate::lists::Pass;
use crate::session::{Session, lock, look_error};
use crate::sessions::{self, Call};
use crate::tasks::TaskId;
use std::ffi::{c_int, c_uint, c_void};
use threadglass::internals::glibc::Descriptor;
use threadglass::look::TaskScope;
use threadglass::model::filter::{LOWEST_PRIORITY, ThreadFilter};
use threadglass::model::{SignalSet, ThreadState};

/// Calls back for every thread that passes the filters.
///
/// # Safety
///
/// `callback` is NULL or a function of that type; `mask` is NULL or points to a `sigset_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_thr_iter(
    ta: *const ThrAgent,
    callback: Option<ThrIterF>,
    data: *mut c_void,
    state: c_int,
    priority: c_int,
    mask: *const SigSet,
    user_flags: c_uint,
) -> c_int {
    code((|| {
        let callback = callback.ok_or(TdErr::Err)?;
        let session = sessions::enter(ta)?;
        // SAFETY: NULL or a signal set, by the caller's promise.
        let mask = unsafe { mask.as_ref() };
        let Some(filter) = filter(state, priority, mask, user_flags) else { return Ok(()) };
        let _stopped = session.stopping_for_all()?;
        if session.shows_tasks() {
            // SAFETY: the client's function.
            return unsafe { tasks(&session, &filter, callback, data) };
        }
        if !session.is_initialised()? {
            // Threads are not set up yet: one handle stands for the main thread.
            let handle = session.early_handle();
            // SAFETY: the client's function, called as its type says.
            unsafe { callback(&raw const handle, data) };
            return Ok(());
        }
        // The list is taken whole before the first callback, which may change or kill threads.
        let threads = session.inspect(|inspector| inspector.list().map_err(look_error))?;
        if threads.is_empty() {
            return Err(TdErr::NoThr);
        }
        remember_order(&session, &threads);
        let mut threads = Pass::new(&session, session.place(), threads);
        while let Some(descriptor) = threads.next()? {
            if !is_wanted(&session, &filter, &descriptor) {
                continue;
            }
            let handle = session.handle(descriptor.id);
            // SAFETY: the client's function, called as its type says. It may call us, and may throw.
            if unsafe { callback(&raw const handle, data) } != 0 {
                break;
            }
        }
        Ok(())
    })())
}

fn is_wanted(session: &Session, filter: &ThreadFilter, descriptor: &Descriptor) -> bool {
    *filter == ThreadFilter::default()
        || session.inspect(|inspector| Ok(describe(session, inspector, descriptor))).is_ok_and(|it| filter.matches(&it))
}

/// Calls back for every task that passes the filter.
///
/// # Safety
///
/// `callback` is a function of the client's.
unsafe fn tasks(session: &Call, filter: &ThreadFilter, callback: ThrIterF, data: *mut c_void) -> Td {
    let tasks = session.new_tasks(TaskScope::List)?;
    let wanted: Vec<TaskId> = tasks.all().filter(|(_, task)| filter.matches_task(task)).map(|(id, _)| id).collect();
    let mut wanted = Pass::new(session, session.place(), wanted);
    while let Some(id) = wanted.next()? {
        let handle = session.task_handle(id);
        // SAFETY: the client's function, called as its type says. It may call us, and may throw.
        if unsafe { callback(&raw const handle, data) } != 0 {
            break;
        }
    }
    Ok(())
}

/// The filter the arguments describe; `None` when no thread can pass because the state does not exist.
fn filter(state: c_int, priority: c_int, mask: Option<&SigSet>, user_flags: c_uint) -> Option<ThreadFilter> {
    const ANY_USER_FLAGS: c_uint = 0xffff_ffff;
    let state = match state {
        0 => None,
        number => Some(*ThreadState::ALL.get(usize::try_from(number - 1).ok()?)?),
    };
    Some(ThreadFilter {
        state,
        min_priority: (priority > LOWEST_PRIORITY).then_some(priority),
        signal_mask: mask.map(|set| SignalSet(set[0])),
        user_flags: (user_flags != ANY_USER_FLAGS).then_some(user_flags),
    })
}

fn remember_order(session: &Session, threads: &[Descriptor]) {
    let order = session.inspect(|inspector| match inspector.target {
        Some(target) if !target.is_namespaced() => {
            Ok(threads.iter().filter_map(|thread| inspector.lwp_of(thread)).collect())
        }
        _ => Ok(Vec::new()),
    });
    lock(&session.facts).set_order(order.unwrap_or_default());
}
