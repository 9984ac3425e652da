//! `gmon.out`: histograms in the form that gprof reads.

use crate::histogram::{Layout, ONE};
use std::io::{self, Write};

/// Writes a file with one histogram. gprof shows it as a flat profile (`gprof -p PROGRAM gmon.out`); there are
/// no call counts in it.
///
/// `counts` are the cells of `layout`, `rate` the ticks per second of CPU time, and `bias` how far the program
/// was moved from the addresses in its file (0 unless it is position independent): the file holds addresses
/// as the program's symbol table has them. gprof knows no cells of less than two bytes: finer ones are added up.
pub fn write(out: &mut impl Write, layout: &Layout, counts: &[u32], rate: u32, bias: u64) -> io::Result<()> {
    if layout.scale > ONE {
        let (layout, counts) = coarser(layout, counts);
        return write(out, &layout, &counts, rate, bias);
    }
    let cells = usize::try_from(layout.cells).unwrap_or(usize::MAX).min(counts.len());
    let counts = &counts[..cells];
    let bins = u32::try_from(cells).map_err(|_| io::Error::other("a histogram too large for gmon.out"))?;
    let region = Layout { cells: cells as u64, ..*layout }.region();
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "a region below the start of the program");
    let low = region.start.checked_sub(bias).ok_or_else(invalid)?;
    let high = region.end.checked_sub(bias).ok_or_else(invalid)?;

    out.write_all(b"gmon")?;
    out.write_all(&1u32.to_le_bytes())?;
    out.write_all(&[0; 12])?;
    // Cells of the file have 16 bits. Larger counts are spread over several histograms, which gprof adds up.
    let largest = counts.iter().copied().max().unwrap_or(0);
    let records = largest.div_ceil(u32::from(u16::MAX)).max(1);
    for record in 0..records {
        const HISTOGRAM: u8 = 0;
        out.write_all(&[HISTOGRAM])?;
        out.write_all(&low.to_le_bytes())?;
        out.write_all(&high.to_le_bytes())?;
        out.write_all(&bins.to_le_bytes())?;
        out.write_all(&rate.to_le_bytes())?;
        out.write_all(b"seconds\0\0\0\0\0\0\0\0s")?;
        let part = |count: &u32| count.saturating_sub(record * u32::from(u16::MAX)).min(u32::from(u16::MAX)) as u16;
        let bytes: Vec<_> = counts.iter().flat_map(|count| part(count).to_le_bytes()).collect();
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// The same counts in cells of two bytes.
fn coarser(layout: &Layout, counts: &[u32]) -> (Layout, Vec<u32>) {
    let region = layout.region();
    let cells = (region.end - region.start).div_ceil(2);
    let coarse = Layout { scale: ONE, cells, ..*layout };
    let mut sums = vec![0u32; usize::try_from(cells).unwrap_or(0)];
    for (cell, count) in (0..layout.cells).zip(counts).filter(|(_, count)| **count > 0) {
        let sum = coarse.cell(layout.addresses(cell).start).and_then(|to| sums.get_mut(usize::try_from(to).ok()?));
        if let Some(sum) = sum {
            *sum = sum.saturating_add(*count);
        }
    }
    (coarse, sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_counts_take_several_histograms() {
        let layout = Layout { offset: 0x1000, scale: 0x4000, cells: 2 };
        let mut out = Vec::new();
        write(&mut out, &layout, &[65_535 * 2 + 7, 5], 100, 0x400).unwrap();
        let record = 1 + 8 + 8 + 4 + 4 + 16 + 4;
        assert_eq!(out.len(), 20 + 3 * record);
        assert_eq!(out[21..37], [0, 0xc, 0, 0, 0, 0, 0, 0, 0x10, 0xc, 0, 0, 0, 0, 0, 0]);
        let cells = |index: usize| &out[20 + (index + 1) * record - 4..][..4];
        assert_eq!(cells(0), [255, 255, 5, 0]);
        assert_eq!(cells(1), [255, 255, 0, 0]);
        assert_eq!(cells(2), [7, 0, 0, 0]);
    }

    #[test]
    fn cells_of_less_than_two_bytes_are_added_up() {
        let fine = Layout { offset: 0x1000, scale: 4 * ONE, cells: 12 };
        // Six bytes; each has two cells, of which it fills the first.
        let counts = [1, 0, 2, 0, 4, 0, 8, 0, 16, 0, 32, 0];
        let coarse = Layout { offset: 0x1000, scale: ONE, cells: 3 };
        let (mut of_fine, mut of_coarse) = (Vec::new(), Vec::new());
        write(&mut of_fine, &fine, &counts, 100, 0).unwrap();
        write(&mut of_coarse, &coarse, &[3, 12, 48], 100, 0).unwrap();
        assert_eq!(of_fine, of_coarse);
    }

    #[test]
    fn a_region_below_the_program_is_an_error() {
        let layout = Layout { offset: 0x1000, scale: 0x4000, cells: 2 };
        assert!(write(&mut Vec::new(), &layout, &[1, 2], 100, 0x2000).is_err());
    }
}
