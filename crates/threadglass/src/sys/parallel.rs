//! Reading on several CPUs where it pays.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::thread;

/// Below this many items for each reader, a second one costs more than it brings.
const WORTH_A_READER: usize = 64;

/// How many CPUs we may use, eight at most. Asked once: the answer takes several files of the cgroup.
fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| thread::available_parallelism().map_or(1, NonZeroUsize::get).min(8))
}

/// `read` applied to parts of `items` side by side; results in the order of `items`.
///
/// `read` gives one result for each item. The calling thread reads a part itself, and all parts for
/// which no thread can be had.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], read: impl Fn(&[T]) -> Vec<R> + Sync) -> Vec<R> {
    let readers = match items.len() / WORTH_A_READER {
        0 | 1 => 1,
        many => many.min(cpus()),
    };
    if readers == 1 {
        return read(items);
    }
    let mut parts = items.chunks(items.len().div_ceil(readers));
    let first = parts.next().unwrap_or_default();
    let read = &read;
    thread::scope(|scope| {
        let others: Vec<_> =
            parts.map(|part| (part, thread::Builder::new().spawn_scoped(scope, move || read(part)))).collect();
        let mut all = read(first);
        all.reserve(items.len());
        for (part, handle) in others {
            match handle.ok().and_then(|handle| handle.join().ok()) {
                Some(results) => all.extend(results),
                None => all.extend(read(part)),
            }
        }
        all
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_keep_the_order_of_the_items() {
        for count in [0, 1, 63, 64, 1000, 1001] {
            let items: Vec<u32> = (0..count).collect();
            let doubled = super::in_parallel(&items, |part| part.iter().map(|n| n * 2).collect());
            assert_eq!(doubled, items.iter().map(|n| n * 2).collect::<Vec<_>>());
        }
    }
}
