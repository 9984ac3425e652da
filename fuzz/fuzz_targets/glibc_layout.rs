//! Learning glibc's layout from what a target exports and from its living threads, and everything
//! that then trusts it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use threadglass::PthreadId;
use threadglass::internals::glibc::{DescriptorReader, Layout};
use threadglass_fuzz::glibc::Program;

fuzz_target!(|program: Program| {
    let target = program.assemble();
    let Ok(layout) = Layout::discover(&target.memory, &target.memory, &target.hints) else { return };
    let reader = DescriptorReader::new(&layout);
    // Offsets are bounded, so no claim makes a descriptor larger than any real one by far.
    assert!(reader.span() <= 128 << 10);
    let _ = layout.heads_now(&target.memory);
    for base in &target.threads {
        if let Ok(Some(thread)) = reader.read(&target.memory, *base) {
            assert_eq!(thread.id, PthreadId(*base));
            if let Some((high, size, guard)) = thread.stack() {
                assert!(thread.id.0 < high && size <= high.0 && guard <= high.0);
            }
            let _ = (thread.is_detached(), thread.is_unjoined_zombie());
        }
        if let Some(tls) = &layout.tls {
            for module in [0, 1, 2, u64::MAX] {
                let _ = tls.block(&target.memory, PthreadId(*base), module);
            }
            let _ = tls.module_of(&target.memory, *base);
        }
    }
});
