//! Thread events: creation and death.

use crate::abi::{EventMsg, Notify, Td, TdErr, ThrAgent, ThrEvents, ThrHandle, code};
use crate::client::psaddr;
use crate::session::{Session, look_error, thread};
use crate::sessions;
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use threadglass::PthreadId;
use threadglass::internals::glibc::events::{EventError, EventLayout, EventMask, Message};
use threadglass::memory::{MemoryWrite, ReadError};

const TD_CREATE: c_int = 8;
const TD_DEATH: c_int = 9;

fn layout(session: &Session) -> Td<EventLayout> {
    // Events happen to threads.
    if session.shows_tasks() {
        return Err(TdErr::NoCapab);
    }
    session.layout()?.events.ok_or(TdErr::NoCapab)
}

/// The address that the program runs over when an event happens.
///
/// # Safety
///
/// `out` is NULL or points to a writable `td_notify_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_event_addr(ta: *const ThrAgent, event: c_int, out: *mut Notify) -> c_int {
    code((|| {
        let session = sessions::enter(ta)?;
        let events = layout(&session)?;
        let address = match event {
            TD_CREATE => events.create_function,
            TD_DEATH => events.death_function,
            _ => return Err(TdErr::NoEvent),
        };
        if out.is_null() {
            return Err(TdErr::Err);
        }
        let address = psaddr(address.ok_or(TdErr::NoCapab)?);
        // SAFETY: not NULL, so writable by the caller's promise. Kind 0 is NOTIFY_BPT.
        unsafe { out.write(Notify { kind: 0, address }) };
        Ok(())
    })())
}

/// Turns event reporting for one thread on or off.
///
/// # Safety
///
/// `th` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_event_enable(th: *const ThrHandle, on: c_int) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { on_thread(th, |events, memory, id| events.enable(memory, id, on != 0)) }
}

/// # Safety
///
/// `th` is NULL or points to a handle.
unsafe fn on_thread(
    th: *const ThrHandle,
    act: impl FnOnce(&EventLayout, &dyn MemoryWrite, PthreadId) -> Result<(), ReadError>,
) -> c_int {
    code((|| {
        // SAFETY: by the caller's promise.
        let (session, id) = unsafe { thread(th) }?;
        let events = layout(&session)?;
        let _stopped = session.stopping()?;
        session.inspect(|inspector| inspector.descriptor(id).map_err(look_error))?;
        session.writing(|memory| act(&events, memory, id).map_err(|_| TdErr::DbErr))
    })())
}

/// The mask a client gave, if all of it can happen. Fails on NULL.
///
/// # Safety
///
/// `set` is NULL or points to a `td_thr_events_t`.
unsafe fn mask(set: *const ThrEvents) -> Td<EventMask> {
    // SAFETY: by the caller's promise.
    Ok(unsafe { set.as_ref() }.ok_or(TdErr::Err)?.event_bits)
}

fn add(mask: EventMask) -> impl Fn(EventMask) -> EventMask {
    move |old| [old[0] | mask[0], old[1] | mask[1]]
}

fn remove(mask: EventMask) -> impl Fn(EventMask) -> EventMask {
    move |old| [old[0] & !mask[0], old[1] & !mask[1]]
}

/// Enables events for one thread.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `set` is NULL or points to an event set.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_set_event(th: *const ThrHandle, set: *const ThrEvents) -> c_int {
    // SAFETY: by the caller's promise.
    match unsafe { mask(set) } {
        // SAFETY: by the caller's promise.
        Ok(mask) => unsafe { on_thread(th, |events, memory, id| events.change_mask(memory, Some(id), add(mask))) },
        Err(error) => error as c_int,
    }
}

/// Disables events for one thread.
///
/// # Safety
///
/// `th` is NULL or points to a handle; `set` is NULL or points to an event set.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_clear_event(th: *const ThrHandle, set: *const ThrEvents) -> c_int {
    // SAFETY: by the caller's promise.
    match unsafe { mask(set) } {
        // SAFETY: by the caller's promise.
        Ok(mask) => unsafe { on_thread(th, |events, memory, id| events.change_mask(memory, Some(id), remove(mask))) },
        Err(error) => error as c_int,
    }
}

fn on_process(ta: *const ThrAgent, change: impl Fn(EventMask) -> EventMask) -> Td {
    let session = sessions::enter(ta)?;
    let events = layout(&session)?;
    let _stopped = session.stopping()?;
    session.writing(|memory| events.change_mask(memory, None, change).map_err(|_| TdErr::DbErr))
}

/// Enables events for the whole process.
///
/// # Safety
///
/// `set` is NULL or points to an event set.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_set_event(ta: *const ThrAgent, set: *const ThrEvents) -> c_int {
    // SAFETY: by the caller's promise.
    code(unsafe { mask(set) }.and_then(|mask| on_process(ta, add(mask))))
}

/// Disables events for the whole process.
///
/// # Safety
///
/// `set` is NULL or points to an event set.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_clear_event(ta: *const ThrAgent, set: *const ThrEvents) -> c_int {
    // SAFETY: by the caller's promise.
    code(unsafe { mask(set) }.and_then(|mask| on_process(ta, remove(mask))))
}

fn event_error(error: EventError) -> TdErr {
    match error {
        EventError::NoMessage => TdErr::NoMsg,
        EventError::Corrupt | EventError::Memory(_) => TdErr::DbErr,
    }
}

thread_local! {
    /// What the last td_ta_event_getmsg of this thread points to.
    static MESSAGE_THREAD: Cell<ThrHandle> =
        const { Cell::new(ThrHandle { th_ta_p: ptr::null_mut(), th_unique: ptr::null_mut() }) };
}

/// Takes the message of one thread.
///
/// # Safety
///
/// `th` is NULL or points to a handle, which the message will refer to; `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_thr_event_getmsg(th: *const ThrHandle, out: *mut EventMsg) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        // SAFETY: by the caller's promise.
        let (session, id) = unsafe { thread(th) }?;
        let events = layout(&session)?;
        let _stopped = session.stopping()?;
        session.inspect(|inspector| inspector.descriptor(id).map_err(look_error))?;
        let message = session.writing(|memory| events.take_from(memory, id).map_err(event_error))?;
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(message_for(message, th)) };
        Ok(())
    })())
}

/// Takes the newest message of any thread.
///
/// # Safety
///
/// `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_event_getmsg(ta: *const ThrAgent, out: *mut EventMsg) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        let session = sessions::enter(ta)?;
        let events = layout(&session)?;
        let _stopped = session.stopping()?;
        let message = session.writing(|memory| events.take_any(memory).map_err(event_error))?;
        let th = MESSAGE_THREAD.with(|handle| {
            handle.set(session.handle(message.thread));
            handle.as_ptr().cast_const()
        });
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(message_for(message, th)) };
        Ok(())
    })())
}

fn message_for(message: Message, th_p: *const ThrHandle) -> EventMsg {
    EventMsg { event: message.event as c_int, th_p, data: message.data as usize }
}
