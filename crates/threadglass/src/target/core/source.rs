//! Where the bytes of a core come from: a file, or memory of ours in tests.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes at offsets. Nothing is memory-mapped: a file that shrinks under a mapping would kill us by
/// SIGBUS, and reading only what is needed makes the cost independent of the file's size.
pub(super) trait ByteSource: Send + Sync {
    fn size(&self) -> u64;

    /// Reads at `offset`; fewer bytes than asked for at the end, or where the medium fails.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize;

    /// Reads all of `buf`, or says that it cannot.
    fn read_whole(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.read_at(offset, buf) == buf.len()
    }
}

impl ByteSource for File {
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |data| data.len())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = offset.checked_add(done as u64).filter(|at| i64::try_from(*at).is_ok()) else { break };
            match FileExt::read_at(self, &mut buf[done..], at) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        done
    }
}

impl ByteSource for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let there = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let n = there.len().min(buf.len());
        buf[..n].copy_from_slice(&there[..n]);
        n
    }
}
