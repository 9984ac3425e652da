//! Process statistics: how many threads run, want to run and exist, on average.

use crate::abi::{TaStats, Td, TdErr, ThrAgent, code};
use crate::session::{Session, lock};
use crate::sessions;
use std::ffi::c_int;
use threadglass::internals::glibc::requested_concurrency;
use threadglass::look::TaskScope;
use threadglass::measure::stats::{Averages, Sampler, SamplerError};
use threadglass::target::Service;

/// The statistics of a session.
#[derive(Default)]
pub(crate) enum Statistics {
    /// Never on, or reset while off.
    #[default]
    None,
    /// On: a thread of ours keeps them. It reads `/proc` alone, and goes when this does.
    On(Sampler),
    /// Off: as they were.
    Frozen(Averages),
}

impl Statistics {
    fn averages(&self) -> Td<Averages> {
        match self {
            Self::None => Ok(Averages::default()),
            // Not in a process that was forked from the one that switched them on.
            Self::On(sampler) => sampler.averages().ok_or(TdErr::Err),
            Self::Frozen(averages) => Ok(*averages),
        }
    }
}

impl Session {
    /// Ends the thread that keeps statistics.
    pub(crate) fn end_statistics(&self) {
        let statistics = std::mem::take(&mut *lock(&self.statistics));
        drop(statistics);
    }

    /// What the program asked for: by pthread_setconcurrency, or of the runtime of its tasks. 0 where that cannot be read.
    fn requested_concurrency(&self) -> i32 {
        if self.shows_tasks() {
            let asked = self.recent_tasks(TaskScope::List).ok().and_then(|tasks| tasks.concurrency());
            return asked.and_then(|number| i32::try_from(number).ok()).unwrap_or(0);
        }
        let level = match self.client().map(Service::new) {
            Some(target) => requested_concurrency(&target, &target),
            None => self.live().and_then(|live| requested_concurrency(&*live, &*live)),
        };
        level.unwrap_or(0)
    }
}

fn start_error(error: SamplerError) -> TdErr {
    match error {
        SamplerError::Ended => TdErr::DbErr,
        SamplerError::NoCounters => TdErr::NoCapab,
        SamplerError::System(_) => TdErr::Err,
    }
}

/// Switches process statistics. On, also while on, begins anew.
///
/// # Safety
///
/// `ta` may be anything: it is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_enable_stats(ta: *const ThrAgent, on: c_int) -> c_int {
    code((|| {
        let session = sessions::enter(ta)?;
        let live = session.live().ok_or(TdErr::NoCapab)?;
        if on != 0 {
            let sampler = match session.shows_tasks() && session.client().is_none() {
                true => Sampler::start_with_tasks(&live),
                // Memory is read through the client's routines alone, which a thread of ours must not call.
                false => Sampler::start(&live),
            };
            let sampler = sampler.map_err(start_error)?;
            let old = std::mem::replace(&mut *lock(&session.statistics), Statistics::On(sampler));
            drop(old);
            return Ok(());
        }
        let mut statistics = lock(&session.statistics);
        if let Statistics::On(_) = &*statistics {
            let averages = statistics.averages()?;
            let old = std::mem::replace(&mut *statistics, Statistics::Frozen(averages));
            // Its thread is waited for, but not with the lock.
            drop(statistics);
            drop(old);
        }
        Ok(())
    })())
}

/// Begins the averages anew.
///
/// # Safety
///
/// `ta` may be anything: it is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_reset_stats(ta: *const ThrAgent) -> c_int {
    code((|| {
        let session = sessions::enter(ta)?;
        session.live().ok_or(TdErr::NoCapab)?;
        let mut statistics = lock(&session.statistics);
        match &*statistics {
            Statistics::On(sampler) => sampler.reset().ok_or(TdErr::Err)?,
            Statistics::None | Statistics::Frozen(_) => *statistics = Statistics::None,
        }
        Ok(())
    })())
}

/// Process statistics.
///
/// # Safety
///
/// `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn td_ta_get_stats(ta: *const ThrAgent, out: *mut TaStats) -> c_int {
    code((|| {
        if out.is_null() {
            return Err(TdErr::Err);
        }
        let session = sessions::enter(ta)?;
        session.live().ok_or(TdErr::NoCapab)?;
        // No routine of the client's runs while this is locked.
        let averages = lock(&session.statistics).averages()?.fractions();
        let nthreads = session.count_threads()?;
        let r_concurrency = session.requested_concurrency();
        let stats = TaStats {
            nthreads,
            r_concurrency,
            nrunnable_num: averages.nrunnable,
            nrunnable_den: averages.den,
            a_concurrency_num: averages.a_concurrency,
            a_concurrency_den: averages.den,
            nlwps_num: averages.nlwps,
            nlwps_den: averages.den,
            nidle_num: averages.nidle,
            nidle_den: averages.den,
        };
        // SAFETY: not NULL, so writable by the caller's promise.
        unsafe { out.write(stats) };
        Ok(())
    })())
}
