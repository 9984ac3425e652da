//! The ends of channels that tasks have, and rows of values: what else the variables of a future lead to.

use super::future::{Through, Value, Walk};
use super::types::{KnownType, Leaf, Part, TypeRef};
use crate::RemoteAddr;

/// Ends of channels that are kept of one task.
const MAX_ENDS: usize = 256;
/// Values of one row that are looked at.
const MAX_ROW: u64 = 256;
/// How channels call the number of their senders.
const COUNTS: [&str; 3] = ["tx_count", "ref_count_tx", "num_tx"];

/// An end of a channel in a variable of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChannelEnd {
    /// What all ends lead to.
    pub(super) channel: RemoteAddr,
    pub(super) sends: bool,
    /// How many senders the channel has.
    pub(super) senders: Option<u64>,
}

impl Walk<'_> {
    /// Notes what sends to a channel.
    pub(super) fn sender(&mut self, known: &KnownType, value: Value) -> Option<()> {
        if known.name().starts_with("tokio::sync::oneshot::") {
            // Who has sent has none any more.
            let channel = self.pointer(value.at.checked_add(known.member("inner")?.0.offset)?)?;
            return self.end(ChannelEnd { channel, sends: true, senders: Some(1) });
        }
        let channel = self.first_pointer(value.of, value.at)?;
        let of = self.pointee(value.of)?;
        let types = self.reader.types;
        let count = COUNTS.iter().find_map(|name| types.member_at(of, &["data", name]));
        let senders = count.and_then(|count| self.number(channel.checked_add(count)?, 8));
        self.end(ChannelEnd { channel, sends: true, senders })
    }

    /// Notes what receives from a channel that has one such end.
    pub(super) fn receiver(&mut self, known: &KnownType, leaf: Leaf, value: Value) -> Option<()> {
        let channel = match leaf {
            Leaf::Oneshot => self.pointer(value.at.checked_add(known.member("inner")?.0.offset)?)?,
            _ => self.first_pointer(value.of, value.at)?,
        };
        self.end(ChannelEnd { channel, sends: false, senders: None })
    }

    fn end(&mut self, end: ChannelEnd) -> Option<()> {
        (self.facts.ends.len() < MAX_ENDS).then(|| self.facts.ends.push(end))
    }

    /// The channel that a function of tokio was called on.
    pub(super) fn channel_of(&self, through: &Through) -> Option<RemoteAddr> {
        let (this, of) = (through.this?, through.of?);
        let known = self.reader.types.get(of)?;
        let is_end = ["mpsc::", "watch::", "broadcast::"]
            .iter()
            .any(|module| known.name().strip_prefix("tokio::sync::").is_some_and(|path| path.starts_with(module)));
        if is_end { self.first_pointer(of, this) } else { None }
    }

    /// Where the first pointer leads that is in the value at `at`.
    pub(super) fn first_pointer(&self, of: TypeRef, at: RemoteAddr) -> Option<RemoteAddr> {
        self.pointer(at.checked_add(self.reader.types.offset_of(of, Part::Pointer)?)?)
    }

    /// The values of a row: guards that a task has collected, futures that it waits for.
    pub(super) fn row(&mut self, known: &KnownType, value: Value, depth: usize) -> Option<()> {
        let types = self.reader.types;
        let of = types.element(known).filter(|of| types.matters(*of))?;
        let size = types.get(of)?.value.size;
        let (pointer, length) = match known.member("data_ptr") {
            Some((pointer, _)) => (pointer.offset, known.member("length")?.0.offset),
            None => (types.offset_of(value.of, Part::Pointer)?, known.member("len")?.0.offset),
        };
        let length = self.number(value.at.checked_add(length)?, 8)?;
        let start = self.pointer(value.at.checked_add(pointer)?).filter(|_| size > 0)?;
        for index in 0..length.min(MAX_ROW) {
            let at = start.checked_add(index.checked_mul(size)?)?;
            self.visit(Value { at, of, ..value }, depth + 1);
            // Several are polled: what follows is no single chain.
            self.part();
        }
        Some(())
    }
}
