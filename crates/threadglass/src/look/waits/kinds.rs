//! What kind of object threads wait for, and no more.

use super::survey::{Sleeper, Survey};
use crate::Lwp;
use crate::model::SyncKind;
use crate::runtimes::FutexWait;

impl Survey<'_> {
    /// The kind of object each of `sleepers` waits for; those that wait for no word are left out.
    pub(crate) fn kinds(&mut self, sleepers: &[Sleeper]) -> Vec<(Lwp, FutexWait, SyncKind)> {
        let _look = self.context.limits().begin();
        self.waits(sleepers).into_iter().map(|wait| (wait.lwp, wait.futex, wait.class.kind)).collect()
    }
}
