//! The decoders on arbitrary bytes: whatever a target claims, they end, and do not panic. What they
//! say must also be true where the input was well formed.

use proptest::prelude::*;
use std::collections::HashMap;
use threadglass::internals::glibc::locks::{CondLayout, decode, size_of};
use threadglass::internals::glibc::{DescriptorReader, Layout, MAX_NODES, tsd, walk};
use threadglass::internals::{
    Image, SyscallFile, demangle, parse_auxv, parse_maps, parse_stack_limit, parse_stat, parse_status, parse_syscall,
};
use threadglass::memory::{Memory, Slot};
use threadglass::model::{SignalSet, SyncKind, signal_name, signal_number};
use threadglass::target::{Anchor, Bytes, Hint, SYMBOLS};
use threadglass::{InnerTid, PthreadId, RemoteAddr};

/// Where the invented libc keeps its descriptors, its list heads, and its key table.
const TABLE: u64 = 0x10_0000;
const HEADS: u64 = 0x20_0000;
const KEYS: u64 = 0x30_0000;
const THREADS: u64 = 0x40_0000;
const SIZE: u64 = 2368;

/// Offsets of glibc 2.36: bits, elements, offset.
const DESCRIBED: [(&str, [u32; 3]); 25] = [
    ("_thread_db_sizeof_pthread", [2368, 0, 0]),
    ("_thread_db_pthread_list", [128, 1, 704]),
    ("_thread_db_pthread_tid", [32, 1, 720]),
    ("_thread_db_pthread_cancelhandling", [32, 1, 776]),
    ("_thread_db_pthread_specific", [2048, 1, 1296]),
    ("_thread_db_pthread_report_events", [8, 1, 1553]),
    ("_thread_db_pthread_schedparam_sched_priority", [32, 1, 1584]),
    ("_thread_db_pthread_schedpolicy", [32, 1, 1588]),
    ("_thread_db_pthread_start_routine", [64, 1, 1592]),
    ("_thread_db_pthread_eventbuf", [192, 1, 1608]),
    ("_thread_db_pthread_eventbuf_eventmask", [64, 1, 1608]),
    ("_thread_db_pthread_nextevent", [64, 1, 1632]),
    ("_thread_db_rtld_global__dl_stack_used", [128, 1, 0]),
    ("_thread_db_rtld_global__dl_stack_user", [128, 1, 16]),
    ("_thread_db___pthread_keys", [128, 1024, 0]),
    ("_thread_db_sizeof_pthread_key_struct", [16, 0, 0]),
    ("_thread_db_pthread_key_struct_seq", [64, 1, 0]),
    ("_thread_db_pthread_key_struct_destr", [64, 1, 8]),
    ("_thread_db_sizeof_pthread_key_data", [16, 0, 0]),
    ("_thread_db_pthread_key_data_seq", [64, 1, 0]),
    ("_thread_db_pthread_key_data_data", [64, 1, 8]),
    ("_thread_db_sizeof_pthread_key_data_level2", [512, 0, 0]),
    ("_thread_db_pthread_key_data_level2_data", [128, 32, 0]),
    ("_thread_db_list_t_next", [64, 1, 0]),
    ("_thread_db_list_t_prev", [64, 1, 8]),
];

/// A target whose libc describes itself, with `count` threads on its list.
fn glibc(count: u64) -> Bytes {
    let mut target = Bytes::default();
    let mut table = Vec::new();
    for (name, field) in DESCRIBED {
        target.name(name, RemoteAddr(TABLE + table.len() as u64));
        table.extend(field.iter().flat_map(|word| word.to_le_bytes()));
    }
    target.map(RemoteAddr(TABLE), table);
    target.name("_rtld_global", RemoteAddr(HEADS));
    target.name("__pthread_keys", RemoteAddr(KEYS));
    target.map(RemoteAddr(KEYS), vec![0; 1024 * 16]);

    let node = |index: u64| if index == 0 { HEADS } else { THREADS + (index - 1) * SIZE + 704 };
    let mut threads = vec![0; (count * SIZE) as usize];
    for index in 1..=count {
        let base = (index - 1) * SIZE;
        let mut put = |at: u64, value: u64| {
            let at = (base + at) as usize;
            threads[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        put(0, THREADS + base);
        put(16, THREADS + base);
        put(704, node((index + 1) % (count + 1)));
        put(712, node(index - 1));
        put(720, 1000 + index);
        put(1592, 0x5000 + index);
    }
    target.map(RemoteAddr(THREADS), threads);
    let user = HEADS + 16;
    let heads = [node(1 % (count + 1)), node(count), user, user];
    target.map(RemoteAddr(HEADS), heads.iter().flat_map(|word| word.to_le_bytes()).collect());
    target
}

fn hints(count: u64) -> Vec<Hint> {
    let head = |index: u64| RemoteAddr(THREADS + index * SIZE + 736);
    (0..count)
        .map(|index| Hint { inner: InnerTid(1001 + index as i32), anchor: Anchor::RobustHead(head(index)) })
        .collect()
}

/// Overwrites words of one range.
fn spoil(target: &mut Bytes, at: u64, words: &[(prop::sample::Index, u64)]) {
    let Some(range) = target.range_mut(RemoteAddr(at)).filter(|range| range.len() >= 8) else { return };
    for (index, word) in words {
        let at = index.index(range.len() / 4 - 1) * 4;
        range[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
}

/// Words that break things: extremes, small numbers, addresses inside the invented target.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..4096,
        Just(u64::MAX),
        Just(1 << 63),
        (0u64..0x40).prop_map(|n| u64::MAX - n),
        (0u64..0x10_0000).prop_map(|n| TABLE + n),
        (0u64..20_000).prop_map(|n| THREADS + n * 8),
        prop_oneof![Just(HEADS), Just(HEADS + 16), Just(THREADS + 704)],
    ]
}

fn words(most: usize) -> impl Strategy<Value = Vec<(prop::sample::Index, u64)>> {
    prop::collection::vec((any::<prop::sample::Index>(), word()), 0..most)
}

fn heads() -> Vec<RemoteAddr> {
    vec![RemoteAddr(HEADS + 16), RemoteAddr(HEADS)]
}

fn everything(target: &Bytes, count: u64) {
    let Ok(layout) = Layout::discover(target, target, &hints(count)) else { return };
    let reader = DescriptorReader::new(&layout);
    assert!(reader.span() <= 128 << 10, "a descriptor of {} bytes", reader.span());
    let found = walk(target, &reader, &heads(), &HashMap::new());
    assert!(found.threads.len() <= MAX_NODES);
    let bases: Vec<_> = found.threads.iter().map(|thread| thread.id.0).chain([RemoteAddr(u64::MAX - 4)]).collect();
    let again = reader.read_all(target, &bases);
    assert_eq!((again.len(), reader.read_tids(target, &bases).len()), (bases.len(), bases.len()));
    for thread in again.into_iter().flatten() {
        let _ = (thread.is_detached(), thread.is_unjoined_zombie());
        if let Some((high, size, guard)) = thread.stack() {
            assert!(high.0 >= size && size.checked_add(guard).is_some());
        }
    }
    if let Some(keys) = &layout.keys {
        let keys = tsd::keys(target, keys).unwrap_or_default();
        for thread in &found.threads {
            let _ = tsd::values(target, &layout, thread.id, &keys);
        }
        let _ = tsd::values(target, &layout, PthreadId(RemoteAddr(u64::MAX)), &keys);
    }
}

#[test]
fn an_unspoiled_target_is_read_whole() {
    for count in [1, 2, 7] {
        let target = glibc(count);
        let layout = Layout::discover(&target, &target, &hints(count)).unwrap();
        let reader = DescriptorReader::new(&layout);
        let found = walk(&target, &reader, &heads(), &HashMap::new());
        assert!(found.broken.is_none(), "{:?}", found.broken);
        let tids: Vec<_> = found.threads.iter().map(|thread| thread.tid).collect();
        assert_eq!(tids, (1001..=1000 + count as i32).collect::<Vec<_>>());
        assert_eq!(layout.robust_head, Some(736));
        let starts: Vec<_> = found.threads.iter().map(|thread| thread.start_routine.unwrap().0).collect();
        assert_eq!(starts, (0x5001..=0x5000 + count).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_spoiled_list_ends(count in 0u64..20, list in words(12), table in words(3), keys in words(8), heads in words(2)) {
        let mut target = glibc(count);
        spoil(&mut target, THREADS, &list);
        spoil(&mut target, TABLE, &table);
        spoil(&mut target, KEYS, &keys);
        spoil(&mut target, HEADS, &heads);
        everything(&target, count);
    }

    #[test]
    fn symbols_that_lead_anywhere(count in 1u64..4, moved in prop::collection::vec((0..SYMBOLS.len(), word()), 0..12)) {
        let mut target = glibc(count);
        for (symbol, addr) in moved {
            target.name(SYMBOLS[symbol], RemoteAddr(addr));
        }
        everything(&target, count);
    }

    #[test]
    fn hints_that_lead_anywhere(heads in prop::collection::vec((any::<i32>(), word()), 0..12)) {
        let hints: Vec<_> =
            heads.iter().map(|(tid, at)| Hint { inner: InnerTid(*tid), anchor: Anchor::RobustHead(RemoteAddr(*at)) }).collect();
        let target = glibc(3);
        let _ = Layout::discover(&target, &target, &hints);
        // And without any symbol, where the hints are all there is.
        let mut bare = Bytes::default();
        bare.map(RemoteAddr(THREADS), vec![0x55; 8192]);
        let _ = Layout::discover(&bare, &bare, &hints);
    }

    #[test]
    fn a_descriptor_of_any_bytes(base in word(), mut bytes in prop::collection::vec(any::<u8>(), 0..2600)) {
        let target = glibc(1);
        let layout = Layout::discover(&target, &target, &hints(1)).unwrap();
        let reader = DescriptorReader::new(&layout);
        let _ = reader.decode(RemoteAddr(base), &bytes);
        // With the one thing that is asked of a descriptor.
        if bytes.len() >= 24 {
            bytes[16..24].copy_from_slice(&base.to_le_bytes());
        }
        let thread = reader.decode(RemoteAddr(base), &bytes);
        prop_assert_eq!(thread.is_some(), bytes.len() >= 780);
        if let Some((high, size, guard)) = thread.and_then(|thread| thread.stack()) {
            prop_assert!(high.0 - size - guard < base && base < high.0, "its own descriptor lies in its stack");
        }
    }

    #[test]
    fn a_key_table_of_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let target = glibc(1);
        let layout = Layout::discover(&target, &target, &hints(1)).unwrap();
        let keys = tsd::decode_keys(&layout.keys.unwrap(), &bytes);
        prop_assert!(keys.len() <= bytes.len() / 16);
        prop_assert!(keys.iter().all(|key| key.sequence % 2 == 1));
    }

    #[test]
    fn a_lock_of_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        for kind in SyncKind::ALL {
            for layout in [CondLayout::Old, CondLayout::New, CondLayout::Unknown] {
                let Some(decoded) = decode(kind, &bytes, layout) else { continue };
                prop_assert!(size_of(kind).is_some_and(|size| size <= bytes.len()));
                prop_assert!(decoded.owner_tid().is_none_or(|owner| owner.0 > 0 && decoded.state.is_held()), "{:?}", decoded);
            }
        }
    }

    #[test]
    fn an_image_of_any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 64..4096), base in word()) {
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&62u16.to_le_bytes());
        load_image(bytes, base);
    }

    #[test]
    fn an_image_with_spoiled_numbers(changes in words(6), base in prop_oneof![Just(0x7f00_0000_0000), word()]) {
        let mut image = Bytes::default();
        image.map(RemoteAddr(0), small_image());
        spoil(&mut image, 0, &changes);
        load_image(image.range_mut(RemoteAddr(0)).cloned().unwrap(), base);
    }

    #[test]
    fn files_of_proc_of_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        parse_all(&bytes);
    }

    #[test]
    fn files_of_proc_of_likely_words(text in "((Name|Tgid|TracerPid|NSpid|SigBlk|SigPnd|Uid|Seccomp|Max stack size|0x|-1|202|running|[0-9a-f]{1,17}|-|:|\\(|\\)|r-xp|/lib/x|\\\\012|18446744073709551616) ?[ \n\t]?){0,60}") {
        parse_all(text.as_bytes());
    }

    #[test]
    fn a_stat_line_gives_back_what_was_put_in(tid in 1i32.., name in prop::collection::vec(any::<u8>().prop_filter("a NUL ends a name", |b| *b != 0), 0..15), letter in "[RSDTtZXIP]", nice in -20i64..20) {
        let mut line = format!("{tid} (").into_bytes();
        line.extend(&name);
        line.extend(format!(") {letter} 1 2 3 0 -1 64 0 0 0 0 11 22 0 0 20 {nice} 5 0 777 1 2 3 4 5 6 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0\n").bytes());
        let stat = parse_stat(&line).unwrap();
        prop_assert_eq!((stat.tid, stat.comm, stat.utime, stat.stime), (tid, name, 11, 22));
        prop_assert_eq!((stat.nice, stat.start_time), (nice, 777));
        (0..line.len()).for_each(|cut| parse_all(&line[..cut]));
    }

    #[test]
    fn a_syscall_line_gives_back_what_was_put_in(number in 0i64..1000, args in any::<[u64; 6]>(), sp in any::<u64>(), pc in any::<u64>()) {
        let words: Vec<_> = args.iter().chain([&sp, &pc]).map(|word| format!("{word:#x}")).collect();
        let seen = parse_syscall(format!("{number} {}\n", words.join(" ")).as_bytes());
        prop_assert_eq!(seen, Some(SyscallFile::Inside { number, args, sp: RemoteAddr(sp), pc: RemoteAddr(pc) }));
    }

    #[test]
    fn signal_sets_are_read_as_they_are_written(bits in any::<u64>()) {
        let set = SignalSet(bits);
        prop_assert_eq!(set.to_string().parse::<SignalSet>(), Ok(set));
        prop_assert_eq!(format!("{bits:#x}").parse::<SignalSet>(), Ok(set));
        prop_assert_eq!(set.iter().collect::<SignalSet>(), set);
    }

    #[test]
    fn signals_of_any_word(text in "\\PC{0,20}", number in any::<u32>()) {
        let _ = (signal_number(&text), text.parse::<SignalSet>());
        prop_assert!(!signal_name(number).is_empty());
    }

    #[test]
    fn names_of_any_text_are_demangled_or_left(text in "(_Z|_R|_ZN|St|[0-9]{1,3}|[A-Za-z_$.]|\\PC){0,24}") {
        let _ = demangle(&text);
    }

    #[test]
    fn batched_reads_say_what_single_reads_say(slots in prop::collection::vec((word(), 0usize..64), 0..20)) {
        let target = glibc(3);
        let mut buffers: Vec<_> = slots.iter().map(|(_, len)| vec![0; *len]).collect();
        let mut batch: Vec<_> =
            slots.iter().zip(&mut buffers).map(|((at, _), buf)| Slot::new(RemoteAddr(*at), buf)).collect();
        target.read_many(&mut batch);
        for slot in batch {
            let mut alone = vec![0; slot.buf.len()];
            prop_assert_eq!(target.read_at(slot.addr, &mut alone), slot.outcome);
            prop_assert_eq!(&alone[..], &*slot.buf);
        }
    }
}

fn parse_all(bytes: &[u8]) {
    let (maps, bad) = parse_maps(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    assert_eq!(maps.len() + bad, lines, "every line is an entry or counted as bad");
    assert!(maps.iter().all(|map| map.start < map.end));
    if let Some(stat) = parse_stat(bytes) {
        let _ = (stat.is_boosted(), stat.is_kernel_thread(), stat.posix_priority());
    }
    let _ = (parse_status(bytes), parse_syscall(bytes), parse_auxv(bytes), parse_stack_limit(bytes));
}

fn load_image(bytes: Vec<u8>, base: u64) {
    let mut target = Bytes::default();
    target.map(RemoteAddr(base), bytes);
    let Ok(mut image) = Image::load(&target, RemoteAddr(base)) else { return };
    let _ = image.build_id(&target);
    let _ = image.load_symbols(&target);
    for at in [0, base, base.wrapping_add(0x123), u64::MAX] {
        let _ = image.function_at(&target, RemoteAddr(at));
    }
    let _ = image.address_of(&target, "work");
}

/// A shared object of 1 KiB with one symbol, `work`, at 0x123.
fn small_image() -> Vec<u8> {
    let mut bytes = vec![0u8; 1024];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    let u64s = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[3, 0, 62, 0]);
    put(32, &64u64.to_le_bytes());
    put(54, &[56, 0, 3, 0]);
    // LOAD, DYNAMIC, NOTE: type and flags, offset, address, address, sizes, alignment.
    for (index, (kind, at, size)) in [(1, 0, 1024), (2, 0x200, 0x60), (4, 0x300, 24)].into_iter().enumerate() {
        put(64 + index * 56, &u64s(&[kind, at, at, at, size, size, 8]));
    }
    // HASH, STRTAB, SYMTAB, STRSZ, end.
    put(0x200, &u64s(&[4, 0x280, 5, 0x290, 6, 0x2a0, 10, 6, 0, 0]));
    put(0x280, &[1, 0, 0, 0, 2, 0, 0, 0]);
    put(0x290, b"\0work\0");
    put(0x2a0 + 24, &[1, 0, 0, 0, 0x12, 0, 1, 0]);
    put(0x2a0 + 32, &u64s(&[0x123, 5]));
    put(0x300, &[4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 1, 2, 3, 4]);
    bytes
}

#[test]
fn the_small_image_is_read() {
    let mut target = Bytes::default();
    target.map(RemoteAddr(0x7000), small_image());
    let mut image = Image::load(&target, RemoteAddr(0x7000)).unwrap();
    image.load_symbols(&target).unwrap();
    assert_eq!(image.address_of(&target, "work"), Some(RemoteAddr(0x7123)));
    let name = |at: u64| image.function_at(&target, RemoteAddr(at)).map(|symbol| symbol.name);
    assert_eq!((name(0x7123), name(0x7127)), (Some("work".to_owned()), Some("work".to_owned())));
    assert_eq!((name(0x7122), name(0x7128)), (None, None));
    assert_eq!(image.build_id(&target), Some(vec![1, 2, 3, 4]));
}
