//! Thread-specific data of all threads.

use super::collect::{Collected, collect_threads};
use crate::look::Look;
use crate::model::{Gap, KeyInfo, Remedy, SCHEMA, ThreadValues, TsdSnapshot};
use crate::runtimes::glibc::tsd;
use crate::target::{Module, Target, TargetError};

/// Values of all threads together. A thread has as many as libraries with keys have to do with it.
const MAX_VALUES: usize = 1 << 21;

/// Looks at the thread-specific data of `target`, without stopping it.
pub fn thread_data(target: &dyn Target) -> Result<TsdSnapshot, TargetError> {
    let _look = target.limits().begin();
    let look = Look::new(target);
    let symbolizer = look.symbolizer();
    let Collected { snapshot, layout, .. } = collect_threads(&look)?;
    let mut gaps = snapshot.gaps;
    let unknown = |why: String, remedy| TargetError::NoTsd { pid: target.pid(), why, remedy };
    let Some(layout) = layout else {
        // The gap that says why there is no layout says it all.
        let (why, remedy) = gaps.pop().map_or_else(Default::default, |gap| (gap.why, gap.remedy));
        return Err(unknown(why, remedy));
    };
    let key_layout = layout.keys.ok_or_else(|| {
        let is_libc = |module: &Module| target.is_in_libc(module.base);
        let (why, remedy) = match target.modules().iter().any(is_libc) {
            true => {
                ("the file of its libc, which tells where the table of keys is, is not here", Some(Remedy::GiveLibc))
            }
            false => ("the program has no symbol for the table of keys: it is static and stripped", None),
        };
        unknown(why.to_owned(), remedy)
    })?;
    let keys = tsd::keys(target, &key_layout).map_err(|error| unknown(error.to_string(), None))?;
    let mut threads = Vec::new();
    let mut left = MAX_VALUES;
    for (number, thread) in snapshot.threads.iter().enumerate() {
        let Some(id) = thread.id else { continue };
        if left == 0 || target.limits().is_over() {
            let rest = snapshot.threads.len() - number;
            let why = format!("there are more than {MAX_VALUES} values, or reading them took too long");
            gaps.push(Gap::whole(format!("thread-specific data of {rest} threads"), why));
            break;
        }
        match tsd::values(target, &layout, id, &keys) {
            Ok(values) if !values.is_empty() => {
                left = left.saturating_sub(values.len());
                threads.push(ThreadValues { id, lwp: thread.lwp, name: thread.name.clone(), values });
            }
            Ok(_) => {}
            Err(error) => match thread.lwp {
                Some(lwp) => Gap::of_thread(&mut gaps, "thread-specific data", &error.to_string(), lwp),
                None => gaps.push(Gap::whole("thread-specific data of an exited thread", error.to_string())),
            },
        }
    }
    target.check_identity()?;
    let keys = keys
        .iter()
        .map(|key| KeyInfo {
            key: key.number,
            destructor: key.destructor,
            destructor_function: key.destructor.and_then(|addr| symbolizer.function_at(addr)),
        })
        .collect();
    target.limits().report(&mut gaps);
    Ok(TsdSnapshot { schema: SCHEMA, target: snapshot.target, pause_us: 0, keys, threads, gaps })
}
