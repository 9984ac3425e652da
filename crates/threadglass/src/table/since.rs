//! One reading of an object, and differences: every reader has its own beginning.

use super::scale::Scale;
use super::stats::{stats, sync_kind};
use crate::RemoteAddr;
use crate::model::{SyncKind, SyncStats};
use table::counts::{ExtraView, Record};

/// One object that the agent knows, as it was read.
#[derive(Clone, Debug)]
pub struct Tracked {
    /// Where it is.
    pub address: RemoteAddr,
    /// What it is.
    pub kind: SyncKind,
    /// As the agent counts: what is derived from its numbers cannot be subtracted.
    record: Record,
    extra: Option<Box<ExtraView>>,
    scale: Scale,
}

impl Tracked {
    pub(super) fn new(record: Record, extra: Option<ExtraView>, scale: Scale) -> Self {
        let (address, kind) = (RemoteAddr(record.key.address()), sync_kind(record.kind));
        Self { address, kind, record, extra: extra.map(Box::new), scale }
    }

    /// Tells it from others that were at this address before.
    pub fn generation(&self) -> u64 {
        self.record.key.generation()
    }

    /// What was counted.
    pub fn stats(&self) -> SyncStats {
        stats(&self.record, self.extra.as_deref(), &self.scale)
    }

    /// Waits that have ended. The agent counts those for conditions and semaphores as they begin, but notes how long one
    /// took only at its end.
    #[cfg(feature = "agent")]
    pub(crate) fn ended_waits(&self, stats: &SyncStats) -> u64 {
        match (self.kind, &self.extra) {
            (SyncKind::Cond | SyncKind::Semaphore, Some(extra)) => {
                extra.histogram.iter().map(|count| u64::from(*count)).sum()
            }
            _ => stats.waits().0,
        }
    }

    /// What was counted after `start`, an earlier reading of the same place; `None` if that is nothing.
    pub fn since(self, start: Option<&Self>) -> Option<Self> {
        let Some(start) = start.filter(|start| start.record.key == self.record.key) else { return Some(self) };
        if start.record == self.record && start.extra == self.extra {
            return None;
        }
        let extra = match (self.extra, &start.extra) {
            (Some(now), Some(start)) => Some(Box::new(now.since(start))),
            (now, _) => now,
        };
        Some(Self { record: self.record.since(&start.record), extra, ..self })
    }
}
