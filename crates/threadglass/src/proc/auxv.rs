//! `/proc/PID/auxv`.

use crate::RemoteAddr;

/// What is used of the auxiliary vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuxVector {
    /// AT_ENTRY: the executable's entry point.
    pub entry: Option<RemoteAddr>,
    /// AT_RANDOM: sixteen random bytes, which tell this process image from any other.
    pub random: Option<RemoteAddr>,
    /// AT_SYSINFO_EHDR: the kernel's own object in the process, the vDSO.
    pub vdso: Option<RemoteAddr>,
}

/// Decodes the file. A 32-bit process's vector reads as garbage numbers, so it yields nothing of use.
pub fn parse_auxv(bytes: &[u8]) -> AuxVector {
    let mut aux = AuxVector::default();
    for pair in bytes.chunks_exact(16) {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| pair[at + i]));
        let value = Some(RemoteAddr(word(8))).filter(|addr| !addr.is_null());
        match word(0) {
            0 => break,
            9 => aux.entry = value,
            25 => aux.random = value,
            33 => aux.vdso = value,
            _ => {}
        }
    }
    aux
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_vector_has_an_entry_inside_the_executable() {
        let aux = parse_auxv(&std::fs::read("/proc/self/auxv").unwrap());
        let (maps, _) = crate::proc::parse_maps(&std::fs::read("/proc/self/maps").unwrap());
        let entry = aux.entry.unwrap();
        assert!(maps.iter().any(|map| map.exec && map.contains(entry)));
        assert!(aux.random.is_some());
    }

    #[test]
    fn stops_at_the_end_mark_and_at_a_torn_pair() {
        assert_eq!(parse_auxv(&[]), AuxVector::default());
        let mut bytes = vec![0; 16];
        bytes.extend([9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parse_auxv(&bytes), AuxVector::default());
        assert_eq!(parse_auxv(&bytes[16..31]), AuxVector::default());
    }
}
