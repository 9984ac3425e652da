//! Which fields of the kernel's structures are read, in which order, and where they lie.

use super::btf::{Btf, TypeId, TypeKind};
use crate::arch::KERNEL_REGISTERS;

/// Defines the fields of a record, and lists those that are read from the thread's own structure: the member, and its
/// size in bytes. The others are filled in another way.
macro_rules! fields {
    ($($(#[$about:meta])* $list:ident { $($(#[$doc:meta])* $field:ident $([$($path:literal),+] $size:literal)?;)+ })+) => {
        /// The fields of a record, in the order in which they lie in it: one word each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Field {
            $($($(#[$doc])* $field,)+)+
        }

        $($(#[$about])* const $list: &[FieldSpec] = &[$($((Field::$field, &[$($path),+], $size),)?)+];)+
    };
}

/// A field, the member of a structure that is read into it, and the size of that member in bytes.
type FieldSpec = (Field, &'static [&'static str], u32);

fields! {
    /// At first what tells whether the thread stayed off the CPUs: [`super::record`] has the proof.
    BEFORE {
        StateBefore ["__state"] 4;
        OnCpuBefore ["on_cpu"] 4;
        OnQueueBefore ["on_rq"] 4;
        VoluntaryBefore ["nvcsw"] 8;
        InvoluntaryBefore ["nivcsw"] 8;
        Tid ["pid"] 4;
        Tgid ["tgid"] 4;
        Name ["comm"] 16;
        NameEnd;
        Priority ["prio"] 4;
        StaticPriority ["static_prio"] 4;
        RtPriority ["rt_priority"] 4;
        Policy ["policy"] 4;
        Blocked ["blocked", "sig"] 8;
        Pending ["pending", "signal", "sig"] 8;
        UserTime ["utime"] 8;
        SystemTime ["stime"] 8;
        Runtime ["se", "sum_exec_runtime"] 8;
        LastRun ["se", "exec_start"] 8;
        Cpu ["thread_info", "cpu"] 4;
        ShownUserTime ["prev_cputime", "utime"] 8;
        ShownSystemTime ["prev_cputime", "stime"] 8;
        RobustList;
        Ptrace ["ptrace"] 4;
        ParentTid;
        ThreadStatus ["thread_info", "status"] 4;
        /// From here to the program counter: the registers, in the order of [`KERNEL_REGISTERS`].
        CallNumber;
        Arg0;
        Arg1;
        Arg2;
        Arg3;
        Arg4;
        Arg5;
        StackPointer;
        ProgramCounter;
    }
    /// The second reading. The CPU comes first and the counters behind it: the proof needs this order.
    AFTER {
        OnCpuAfter ["on_cpu"] 4;
        VoluntaryAfter ["nvcsw"] 8;
        InvoluntaryAfter ["nivcsw"] 8;
        StateAfter ["__state"] 4;
        OnQueueAfter ["on_rq"] 4;
        ExitState ["exit_state"] 4;
    }
}

/// Words in a record.
pub(super) const WORDS: usize = Field::ExitState as usize + 1;
/// Bytes in a record. The program builds it on its stack, which has 512.
pub(super) const RECORD: usize = 8 * WORDS;
const _: () = assert!(RECORD <= 512);

/// One load of four or eight bytes into a word of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) word: usize,
    pub(super) offset: i16,
    pub(super) is_wide: bool,
}

/// Where everything lies in this kernel.
#[derive(Debug)]
pub(super) struct FieldOffsets {
    /// Type number of the iterator's function.
    pub(super) function: u32,
    /// The stream to write to, in the first argument.
    pub(super) seq: i16,
    /// Pointers, which the program reads in another way.
    pub(super) robust_list: i16,
    pub(super) parent: i16,
    pub(super) tid: i16,
    pub(super) before: Vec<Load>,
    pub(super) registers: Vec<Load>,
    pub(super) after: Vec<Load>,
}

impl FieldOffsets {
    /// From the kernel's description of itself. `None` when anything is missing or of another size
    /// than this version knows: then the threads are read from `/proc`.
    pub(super) fn find(btf: &[u8]) -> Option<Self> {
        let (btf, [function, registers]) =
            Btf::parse(btf, [(TypeKind::Function, "bpf_iter_task"), (TypeKind::Struct, "pt_regs")])?;
        let (meta, task) = (btf.parameter(function, 0)?, btf.parameter(function, 1)?);
        let is_right = btf.is_struct(meta, "bpf_iter_meta") && btf.is_struct(task, "task_struct");
        (is_right && btf.points_to(task, "parent", task)).then_some(())?;
        let pointer = |root, name| place(&btf, root, &[name], 8);
        let register = |(word, name)| Some(Load { word, offset: pointer(registers, name)?, is_wide: true });
        let call_number = Field::CallNumber as usize;
        Some(Self {
            function: function.0,
            seq: pointer(meta, "seq")?,
            robust_list: pointer(task, "robust_list")?,
            parent: pointer(task, "parent")?,
            tid: place(&btf, task, &["pid"], 4)?,
            before: loads(&btf, task, BEFORE)?,
            registers: (call_number..).zip(KERNEL_REGISTERS).map(register).collect::<Option<_>>()?,
            after: loads(&btf, task, AFTER)?,
        })
    }
}

/// Offset of a member of exactly `size` bytes, aligned, and within reach of an instruction.
pub(super) fn place(btf: &Btf<'_>, root: TypeId, path: &[&str], size: u32) -> Option<i16> {
    let member = btf.member(root, path).filter(|member| member.size == size)?;
    let aligned = member.offset % size.min(8) == 0;
    let end = member.offset.checked_add(size)?;
    i16::try_from(end).ok().filter(|_| aligned)?;
    i16::try_from(member.offset).ok()
}

fn loads(btf: &Btf<'_>, root: TypeId, wanted: &[FieldSpec]) -> Option<Vec<Load>> {
    let mut loads = Vec::new();
    for (word, path, size) in wanted {
        let offset = place(btf, root, path, *size)?;
        let words = size.div_ceil(8) as u8;
        loads.extend((0..words).map(|i| Load {
            word: usize::from(*word as u8 + i),
            offset: offset + 8 * i16::from(i),
            is_wide: *size >= 8,
        }));
    }
    Some(loads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use proptest::test_runner::TestRunner;

    #[test]
    fn every_word_is_filled_once() {
        let all = [BEFORE, AFTER].concat();
        let mut filled: Vec<_> =
            all.iter().flat_map(|(word, _, size)| (0..size.div_ceil(8) as u8).map(|i| *word as u8 + i)).collect();
        filled.extend((Field::CallNumber as u8..).take(KERNEL_REGISTERS.len()));
        // By instructions of their own.
        filled.extend([Field::RobustList as u8, Field::ParentTid as u8]);
        filled.sort_unstable();
        assert_eq!(filled, (0..WORDS as u8).collect::<Vec<_>>());
    }

    #[test]
    fn corrupted_descriptions_are_refused_or_read_but_never_panic() {
        let Ok(good) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            return testkit::skip(
                "corrupted_descriptions_are_refused_or_read_but_never_panic",
                "needs a kernel with BTF",
            );
        };
        // The parser itself has more damage done to it in its own tests; this is the real thing.
        let damage = (vec((any::<Index>(), any::<u8>()), 1..40), option::weighted(0.2, any::<Index>()));
        let spoiled = TestRunner::new(ProptestConfig::with_cases(50)).run(&damage, |(damage, cut)| {
            let mut bytes = good.clone();
            damage.iter().for_each(|(at, byte)| bytes[at.index(good.len())] = *byte);
            bytes.truncate(cut.map_or(good.len(), |cut| cut.index(good.len())));
            let _ = FieldOffsets::find(&bytes);
            Ok(())
        });
        spoiled.unwrap();
    }
}
