//! Where Go's runtime keeps things in a release that is not known, as the program's debug information has it.

use super::offsets::{Channel, Deferred, G, KNOWN, Layout, M, Sudog};
use crate::symbols::{Objects, TypeQuestions, ValueType};
use crate::target::Module;
use std::sync::Arc;

/// The package, which is one unit of the debug information, and its types.
const PACKAGE: &str = "runtime";
const TYPES: [&str; 7] =
    ["runtime.g", "runtime.gobuf", "runtime.m", "runtime.sudog", "runtime.hchan", "runtime._defer", "runtime.pollDesc"];
/// No structure of the runtime is larger.
const LARGEST: u64 = 64 << 10;
/// Of a pointer, and of one that is there twice.
const POINTER: u64 = 8;

/// The layout in the debug information of `program`, which says that it is of `release`; `None` if it has none, or not all of it.
pub(super) fn layout(objects: &Objects<'_>, program: &Module, release: Option<u32>) -> Option<Layout> {
    let object = objects.at(program.base)?;
    let newest = KNOWN.iter().map(|layout| layout.release).max()?;
    object.ask_types(|types| read(types, release.unwrap_or(newest)))
}

fn read(types: &mut TypeQuestions<'_>, release: u32) -> Option<Layout> {
    let found = types.structures(PACKAGE, &TYPES);
    let all: Option<Vec<_>> = found.into_iter().map(|at| types.value_type(at?)).collect();
    let [g, saved, m, sudog, channel, deferred, polled]: [Arc<ValueType>; 7] = all?.try_into().ok()?;
    let at =
        |of: &ValueType, name: &str| Some(of.member(name)?.offset).filter(|at| *at < LARGEST).map(|at| at as usize);
    let size = |of: &ValueType| (1..=LARGEST).contains(&of.size).then_some(of.size as usize);
    // What is read without an offset lies first.
    let begins = [(&g, "stack"), (&saved, "sp"), (&sudog, "g"), (&channel, "qcount")];
    if begins.iter().any(|(of, name)| at(of, name) != Some(0)) || at(&saved, "pc") != Some(8) {
        return None;
    }
    let elem = types.value_type(sudog.member("elem")?.of)?;
    Some(Layout {
        release,
        g: G {
            size: size(&g)?,
            m: at(&g, "m")?,
            sched: at(&g, "sched")?,
            fp: at(&g, "sched")? + at(&saved, "bp")?,
            syscall_sp: at(&g, "syscallsp")?,
            syscall_pc: at(&g, "syscallpc")?,
            status: at(&g, "atomicstatus")?,
            id: at(&g, "goid")?,
            wait_since: at(&g, "waitsince")?,
            wait_reason: at(&g, "waitreason")?,
            locked_m: at(&g, "lockedm")?,
            parent: at(&g, "parentGoid"),
            made_at: at(&g, "gopc")?,
            start: at(&g, "startpc")?,
            waiting: at(&g, "waiting")?,
            labels: at(&g, "labels")?,
            deferred: at(&g, "_defer")?,
        },
        m: M { id: at(&m, "procid")? },
        sudog: Sudog {
            size: size(&sudog)?,
            next: at(&sudog, "next")?,
            prev: at(&sudog, "prev")?,
            elem: at(&sudog, "elem")?,
            is_twice: elem.size == 2 * POINTER,
            wait_link: at(&sudog, "waitlink")?,
            channel: at(&sudog, "c")?,
        },
        channel: Channel {
            capacity: at(&channel, "dataqsiz")?,
            closed: at(&channel, "closed")?,
            receivers: at(&channel, "recvq")?,
            senders: at(&channel, "sendq")?,
        },
        deferred: Deferred {
            sp: at(&deferred, "sp")?,
            function: at(&deferred, "fn")?,
            next: at(&deferred, "link")?,
            are_counted: deferred.member("openDefer").is_some(),
        },
        poll_writer: at(&polled, "wg")
            .filter(|writer| at(&polled, "rg").is_some_and(|reader| reader + 8 == *writer))?,
    })
}
