//! Which cell a program counter belongs to: the arithmetic of profil(2), exact for every scale.

use std::ops::Range;

/// A scale of one: each byte of code has one byte of histogram, so a 16-bit cell stands for two bytes of code.
pub const ONE: u32 = 0x1_0000;

/// The largest count of a 16-bit cell: the tick that would exceed it ends profiling.
pub const LARGEST: u16 = 32_767;

/// The region of code that a histogram stands for, and how finely.
///
/// `scale` is a fixed-point number, 65,536 being one: the bytes of histogram for each byte of code. Two bytes
/// of histogram are one cell, so a cell stands for 131,072 / `scale` bytes of code: 2 at [`ONE`], 8 at 0x4000,
/// 65,536 at 2. Scales above [`ONE`] give several cells to two bytes, of which those that no byte maps to stay
/// empty. A scale of 0 or 1 means that profiling is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// First address of the region.
    pub offset: u64,
    /// Bytes of histogram for each byte of code, in 65,536ths.
    pub scale: u32,
    /// Number of 16-bit cells.
    pub cells: u64,
}

impl Layout {
    /// The layout of a buffer of `bytes` bytes. An odd last byte holds no cell.
    pub fn of_buffer(bytes: u64, offset: u64, scale: u32) -> Self {
        Self { offset, scale, cells: bytes / 2 }
    }

    /// The finest layout with at most `cells` cells that covers `region`, with a whole power of two of bytes in
    /// each (tools that read histograms like that).
    pub fn covering(region: Range<u64>, cells: u64) -> Self {
        let length = region.end.saturating_sub(region.start);
        let mut scale = ONE;
        while scale > 2 && Self::needed(length, scale) > cells {
            scale /= 2;
        }
        Self { offset: region.start, scale, cells: Self::needed(length, scale).min(cells) }
    }

    fn needed(length: u64, scale: u32) -> u64 {
        let cells = (u128::from(length) * u128::from(scale)).div_ceil(u128::from(2 * ONE));
        u64::try_from(cells).unwrap_or(u64::MAX)
    }

    /// Whether ticks can be counted at all.
    pub fn is_on(&self) -> bool {
        self.scale >= 2 && self.cells > 0
    }

    /// The cell of a program counter; `None` outside the region.
    ///
    /// ```
    /// use perf::histogram::Layout;
    /// let layout = Layout::of_buffer(1000, 0x40_0000, 0x4000);
    /// assert_eq!(layout.cell(0x40_0017), Some(2));
    /// assert_eq!(layout.cell(0x3f_ffff), None);
    /// ```
    pub fn cell(&self, pc: u64) -> Option<u64> {
        if self.scale < 2 {
            return None;
        }
        let distance = pc.checked_sub(self.offset)?;
        let byte = (u128::from(distance) * u128::from(self.scale)) >> 16;
        let cell = u64::try_from(byte / 2).ok()?;
        (cell < self.cells).then_some(cell)
    }

    /// The addresses that map to a cell; empty where none does, or beyond the last cell.
    pub fn addresses(&self, cell: u64) -> Range<u64> {
        if self.scale < 2 || cell >= self.cells {
            return self.offset..self.offset;
        }
        let first = |cell: u64| {
            let distance = (u128::from(cell) * u128::from(2 * ONE)).div_ceil(u128::from(self.scale));
            let address = u128::from(self.offset).saturating_add(distance);
            u64::try_from(address).unwrap_or(u64::MAX)
        };
        first(cell)..first(cell + 1)
    }

    /// All addresses of the region.
    pub fn region(&self) -> Range<u64> {
        match self.cells.checked_sub(1) {
            Some(last) if self.scale >= 2 => self.offset..self.addresses(last).end,
            _ => self.offset..self.offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cell(distance: u64, scale: u32) -> Option<u64> {
        Layout { offset: 0x1000, scale, cells: u64::MAX }.cell(0x1000 + distance)
    }

    #[test]
    fn bytes_for_each_cell() {
        for (scale, bytes) in [(0x1_0000, 2), (0x8000, 4), (0x4000, 8), (0x2000, 16), (0x1000, 32), (2, 65_536)] {
            for index in [0, 1, 2, 1000] {
                assert_eq!(cell(index * bytes, scale), Some(index), "{scale:#x}");
                assert_eq!(cell(index * bytes + bytes - 1, scale), Some(index), "{scale:#x}");
            }
        }
        // Just over two: the cells drift against the bytes, by one in 65,536.
        assert_eq!((cell(2, 0xffff), cell(3, 0xffff)), (Some(0), Some(1)));
        assert_eq!((cell(65_536, 0xffff), cell(65_538, 0xffff)), (Some(32_767), Some(32_768)));
        // Odd distances are not halved before they are scaled.
        assert_eq!(cell(3, 0xc000), Some(1));
        // Above one: every other cell stays empty.
        assert_eq!((cell(1, 0x2_0000), cell(2, 0x2_0000)), (Some(1), Some(2)));
        assert_eq!((cell(0, 0), cell(0, 1)), (None, None));
    }

    #[test]
    fn the_ends_of_a_region() {
        let layout = Layout::of_buffer(7, 0x1000, 0x1_0000);
        assert_eq!(layout.cells, 3);
        assert_eq!(layout.region(), 0x1000..0x1006);
        assert_eq!((layout.cell(0xfff), layout.cell(0x1005), layout.cell(0x1006)), (None, Some(2), None));
        assert!(!Layout::of_buffer(1, 0, 0x1_0000).is_on());
        let all = Layout { offset: 0, scale: u32::MAX, cells: u64::MAX };
        assert_eq!(all.cell(u64::MAX), None);
        // Regions that reach the end of the address space stop there.
        let last = Layout { offset: u64::MAX - 10, scale: 2, cells: u64::MAX };
        assert_eq!((last.cell(u64::MAX), last.addresses(0)), (Some(0), u64::MAX - 10..u64::MAX));
    }

    #[test]
    fn covers_a_region_with_few_cells() {
        let fine = Layout::covering(0x1000..0x2000, 1 << 20);
        assert_eq!((fine.scale, fine.cells), (ONE, 0x800));
        let coarse = Layout::covering(0x1000..0x2001, 0x400);
        assert_eq!((coarse.scale, coarse.cells), (0x4000, 0x201));
        assert!(coarse.region().end >= 0x2001);
    }

    proptest! {
        #[test]
        fn cell_and_addresses_agree(offset: u64, distance in 0u64..1 << 40, scale in 2u32.., cells: u64) {
            let layout = Layout { offset, scale, cells };
            let pc = offset.saturating_add(distance);
            if let Some(cell) = layout.cell(pc) {
                prop_assert!(cell < cells);
                let addresses = layout.addresses(cell);
                prop_assert!(addresses.contains(&pc) || addresses.end == u64::MAX);
            }
        }

        #[test]
        fn is_the_kernels_way_of_computing(distance in 0u64..1 << 47, scale in 2u32..=0xffff) {
            // Solaris multiplies in two parts, to stay within 64 bits.
            let scale64 = u64::from(scale);
            let byte = (distance >> 16) * scale64 + (((distance & 0xffff) * scale64) >> 16);
            prop_assert_eq!(Layout { offset: 0, scale, cells: u64::MAX }.cell(distance), Some(byte / 2));
        }
    }
}
