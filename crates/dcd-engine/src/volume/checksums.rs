//! Checksums of the lines of redundant sets, parity included: four bytes each, 1 GiB for each TiB
//! of a RAID 1 set's data.
//!
//! They tell rot from data, a stale mirror from a true one, and what was never written: that counts
//! as zeroes, without being read, so that a new set needs no first synchronisation.

use super::config::VolumeConfig;
use super::format::area::checksums;
use super::raid::Layout;
use crate::format::checksum::crc32c;
use crate::units::LINE_SIZE;

const NEVER: u32 = 0;
const LOST: u32 = 1;

/// What is known of a line on the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineSum {
    /// Nothing was written there; it counts as zeroes.
    Never,
    /// What was there is nowhere any more.
    Lost,
    /// What is there has this checksum.
    Sum(u32),
}

impl LineSum {
    /// Of a line.
    ///
    /// # Panics
    /// If it has not 4096 bytes.
    pub fn of(line: &[u8]) -> LineSum {
        assert_eq!(line.len() as u64, LINE_SIZE);
        // Two values mean something else; a line with one of these sums shares it with another
        // line.
        LineSum::Sum(match crc32c(line) {
            sum @ (NEVER | LOST) => sum + 2,
            sum => sum,
        })
    }

    fn pack(self) -> u32 {
        match self {
            LineSum::Never => NEVER,
            LineSum::Lost => LOST,
            LineSum::Sum(sum) => sum,
        }
    }

    fn unpack(packed: u32) -> LineSum {
        match packed {
            NEVER => LineSum::Never,
            LOST => LineSum::Lost,
            sum => LineSum::Sum(sum),
        }
    }
}

/// The checksums of all sets.
#[derive(Clone, Debug)]
pub struct Checksums {
    sets: Vec<Vec<u32>>,
    /// Lines whose checksum is [`LineSum::Lost`], parity too.
    lost: u64,
}

impl Checksums {
    /// Of a volume of which nothing is written.
    pub fn new(config: &VolumeConfig) -> Checksums {
        let sets = config.sets.iter().map(|set| vec![NEVER; checksums(set) as usize]).collect();
        Checksums { sets, lost: 0 }
    }

    /// The place of a line among those of its set. `row`: its data unit in the stripe, or behind
    /// these the parity.
    pub fn index(layout: &Layout, stripe: u64, row: u32, column: u32) -> u64 {
        let rows = u64::from(layout.rows());
        (stripe * rows + u64::from(row)) * u64::from(layout.unit_lines()) + u64::from(column)
    }

    /// What is known of a line.
    pub fn get(&self, set: u8, index: u64) -> LineSum {
        LineSum::unpack(self.sets[usize::from(set)][index as usize])
    }

    /// Changes that.
    pub fn set(&mut self, set: u8, index: u64, sum: LineSum) {
        let known = &mut self.sets[usize::from(set)][index as usize];
        self.lost -= u64::from(*known == LOST);
        *known = sum.pack();
        self.lost += u64::from(*known == LOST);
    }

    /// Lines that are nowhere any more, parity too, whether or not anything is placed there.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Up to `count` of a set from `first` on, as little-endian numbers for a page.
    pub fn page(&self, set: usize, first: u64, count: u64) -> Vec<u8> {
        let sums = &self.sets[set];
        let end = (first + count).min(sums.len() as u64);
        sums[first as usize..end as usize].iter().flat_map(|sum| sum.to_le_bytes()).collect()
    }

    /// Takes them back from a page.
    pub fn load_page(&mut self, set: usize, first: u64, content: &[u8]) {
        let sums = self.sets[set][first as usize..].iter_mut();
        for (sum, bytes) in sums.zip(content.as_chunks::<4>().0) {
            self.lost -= u64::from(*sum == LOST);
            *sum = u32::from_le_bytes(*bytes);
            self.lost += u64::from(*sum == LOST);
        }
    }

    /// Memory taken.
    pub fn memory_bytes(&self) -> u64 {
        self.sets.iter().map(|sums| sums.capacity() as u64 * 4).sum()
    }
}
