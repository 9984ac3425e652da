//! Walking thread lists that loop, lead nowhere, or change under the walk.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::{HashMap, HashSet};
use threadglass::internals::glibc::{DescriptorReader, Layout, walk};
use threadglass_fuzz::glibc::Program;

fuzz_target!(|program: Program| {
    let target = program.assemble();
    let Ok(layout) = Layout::discover(&target.memory, &target.memory, &target.hints) else { return };
    let reader = DescriptorReader::new(&layout);
    let read = reader.read_all(&target.memory, &target.threads);
    let tids = reader.read_tids(&target.memory, &target.threads);
    assert_eq!((read.len(), tids.len()), (target.threads.len(), target.threads.len()));
    // Read in a batch or alone, a descriptor is the same.
    for ((base, thread), tid) in target.threads.iter().zip(&read).zip(&tids) {
        assert_eq!(*thread, reader.read(&target.memory, *base).ok().flatten());
        assert!(thread.is_none() || thread.as_ref().map(|thread| thread.tid) == *tid);
    }

    let heads = layout.heads_now(&target.memory).unwrap_or_default();
    let nodes: Vec<_> = target.threads.iter().map(|base| base.offset(layout.list)).collect();
    let known: HashMap<_, _> = read.iter().flatten().map(|thread| (thread.id.0, thread.clone())).collect();
    let mut walks = Vec::new();
    for starts in [&heads, &nodes] {
        for known in [&HashMap::new(), &known] {
            let found = walk(&target.memory, &reader, starts, known);
            let distinct: HashSet<_> = found.threads.iter().map(|thread| thread.id).collect();
            assert_eq!(distinct.len(), found.threads.len(), "a thread was found twice");
            walks.push(found);
        }
    }
    // What is known already is not read again, and makes no difference while nothing changes.
    for pair in walks.chunks_exact(2) {
        assert_eq!(pair[0].threads, pair[1].threads);
        assert_eq!(pair[0].broken, pair[1].broken);
    }
});
