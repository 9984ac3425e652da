//! `/proc/kallsyms`: the kernel's functions.

/// A function of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelFunction {
    pub(crate) start: u64,
    pub(crate) name: String,
    /// The module it is in; `None` for the kernel itself.
    pub(crate) module: Option<String>,
}

/// The function that holds each of `addrs`. Without the right to know addresses all are 0 in the file, and nothing is
/// found.
pub(crate) fn kernel_functions(text: &[u8], addrs: &[u64]) -> Vec<Option<KernelFunction>> {
    // First address, and the line that has it.
    let mut starts: Vec<(u64, &[u8])> = text.split(|byte| *byte == b'\n').filter_map(function_start).collect();
    // Of several names at one address the first is the plainest.
    starts.sort_by_key(|(start, _)| *start);
    let at = |addr: &u64| {
        let behind = starts.partition_point(|(start, _)| start <= addr);
        let (start, _) = starts[..behind].last()?;
        let first = starts.partition_point(|(other, _)| other < start);
        decode(starts[first].1)
    };
    addrs.iter().map(at).collect()
}

/// The address in a line that names code.
fn function_start(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut words = line.split(|byte| *byte == b' ');
    let start = u64::from_str_radix(std::str::from_utf8(words.next()?).ok()?, 16).ok()?;
    let is_code = matches!(words.next()?, b"t" | b"T" | b"w" | b"W");
    (is_code && start != 0).then_some((start, line))
}

/// `ADDRESS KIND NAME`, and `\t[MODULE]` behind the name of one in a module.
fn decode(line: &[u8]) -> Option<KernelFunction> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let start = u64::from_str_radix(words.next()?, 16).ok()?;
    let name = words.nth(1)?.to_owned();
    Some(KernelFunction { start, name, module: words.next().map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"ffffffff81000000 T _stext\nffffffff81000000 T first\nffffffff81000100 t second\n\
        ffffffff81000180 D data\nffffffffc0000000 t in_module\t[nf_tables]\n0000000000000000 T hidden\nrubbish\n";

    #[test]
    fn functions_of_the_kernel_and_its_modules() {
        let found = kernel_functions(TEXT, &[0xffff_ffff_8100_00ff, 0xffff_ffff_8100_0190, 0xffff_ffff_c000_0010, 5]);
        let told: Vec<_> = found
            .iter()
            .map(|it| it.as_ref().map(|it| (it.start & 0xfff, it.name.as_str(), it.module.as_deref())))
            .collect();
        let expected = [
            Some((0, "_stext", None)),
            Some((0x100, "second", None)),
            Some((0, "in_module", Some("[nf_tables]"))),
            None,
        ];
        assert_eq!(told, expected);
    }

    proptest! {
        #[test]
        fn any_bytes(text: Vec<u8>, addrs: Vec<u64>) {
            prop_assert_eq!(kernel_functions(&text, &addrs).len(), addrs.len());
        }
    }
}
