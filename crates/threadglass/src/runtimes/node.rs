//! Node.js: which of its threads only wait for work, and which wait in JavaScript.

use super::{Class, Content, Context, Nature, Runtime, SeenWait};
use crate::elf::Image;
use crate::model::{Detail, Family, SyncKind, SyncState};
use crate::target::Language;

/// Frames outside of the C library that a thread of the pools has while it waits for work, at most.
const POOL_FRAMES: usize = 5;

pub(crate) struct Node;

impl Runtime for Node {
    fn families(&self) -> &'static [Family] {
        &[Family::JavaScript, Family::Runtime]
    }

    /// Threads of its pools wait near the beginning of their stacks. JavaScript that waits (`Atomics.wait`) has much of the
    /// engine below.
    fn known_better(&self, class: &Class, seen: &SeenWait<'_>, context: &Context<'_>) -> Option<Class> {
        if !matches!(class.kind, SyncKind::Cond | SyncKind::Semaphore) {
            return None;
        }
        let node = context.language(Language::Node)?;
        seen.call.filter(|call| node.module.contains(&call.address))?;
        let frames = (seen.outside)().frames;
        if frames.is_empty() || !frames.iter().all(|frame| node.module.contains(frame)) {
            return None;
        }
        let of = |kind, family| Some(Class::new(kind, family, class.address, class.evidence));
        let is_variable = || {
            let image = Image::load(context.target, node.module.start).ok();
            image.is_some_and(|image| image.segment_end(class.address).is_some())
        };
        match (class.kind, frames.len() <= POOL_FRAMES) {
            (SyncKind::Cond, true) => of(SyncKind::Cond, Family::Runtime),
            // The thread that starts the debugger.
            (SyncKind::Semaphore, true) if is_variable() => of(SyncKind::Cond, Family::Runtime),
            (SyncKind::Cond, false) => of(SyncKind::Park, Family::JavaScript),
            _ => None,
        }
    }

    fn nature(&self, _: SyncKind, family: Family) -> Nature {
        if family == Family::Runtime { Nature::OwnWork } else { Nature::Unseen(Some("waiting in JavaScript")) }
    }

    fn decode(&self, _: &Class, bytes: &[u8], _: &Context<'_>) -> Content {
        let plain = Content::plain(bytes, None, SyncState::Waiting, Detail::None {});
        Content { shared: Some(false), ..plain }
    }
}
