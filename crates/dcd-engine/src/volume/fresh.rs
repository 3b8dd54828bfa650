//! Extents of RAID 0 sets whose place is not durable yet, and which of their lines were written
//! since they have it.
//!
//! Their other lines were filled up with zeroes. When a member fails to flush, those zeroes may be
//! gone, and nobody above writes them again: the log repeats only what it was told. What another
//! extent had left there must not show, so such an extent is *doubted*: lines that were not written
//! read as zeroes without being read, the next write of it writes them once more, and until then no
//! flush makes its place durable.

use std::collections::BTreeMap;

use super::extents::ExtentIndex;

struct FreshExtent {
    /// A bit for each line.
    written: Vec<u64>,
    /// Failed flushes since the lines that were not written were filled up.
    doubts: u32,
}

/// All such extents.
#[derive(Default)]
pub(super) struct Fresh {
    extents: BTreeMap<ExtentIndex, FreshExtent>,
}

impl Fresh {
    /// An extent has got a place.
    pub(super) fn insert(&mut self, extent: ExtentIndex, lines: u64) {
        let written = vec![0; lines.div_ceil(64) as usize];
        self.extents.insert(extent, FreshExtent { written, doubts: 0 });
    }

    /// Its place is durable, or it has another.
    pub(super) fn remove(&mut self, extent: ExtentIndex) {
        self.extents.remove(&extent);
    }

    /// Lines of it are being written.
    pub(super) fn write(&mut self, extent: ExtentIndex, first: u32, lines: u32) {
        let Some(fresh) = self.extents.get_mut(&extent) else { return };
        for line in first..first + lines {
            fresh.written[line as usize / 64] |= 1 << (line % 64);
        }
    }

    /// A member has failed to flush: `is_concerned` says of which extents it holds lines.
    pub(super) fn doubt(&mut self, is_concerned: impl Fn(ExtentIndex) -> bool) {
        for (_, fresh) in self.extents.iter_mut().filter(|(extent, _)| is_concerned(**extent)) {
            fresh.doubts += 1;
        }
    }

    /// Whether its place is not durable yet.
    pub(super) fn is_known(&self, extent: ExtentIndex) -> bool {
        self.extents.contains_key(&extent)
    }

    /// How often it was doubted; 0: it is not.
    pub(super) fn doubts(&self, extent: ExtentIndex) -> u32 {
        self.extents.get(&extent).map_or(0, |fresh| fresh.doubts)
    }

    /// Its lines were filled up after so many doubts.
    pub(super) fn filled_up(&mut self, extent: ExtentIndex, doubts: u32) {
        if let Some(fresh) = self.extents.get_mut(&extent)
            && fresh.doubts == doubts
        {
            fresh.doubts = 0;
        }
    }

    /// Whether a line is to be taken for zeroes, whatever is there.
    pub(super) fn counts_as_zeroes(&self, extent: ExtentIndex, line: u32) -> bool {
        let is_zero = |fresh: &FreshExtent| {
            fresh.doubts > 0 && fresh.written[line as usize / 64] & 1 << (line % 64) == 0
        };
        self.extents.get(&extent).is_some_and(is_zero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: ExtentIndex = ExtentIndex(3);

    #[test]
    fn lines_that_nobody_wrote_are_zeroes_while_an_extent_is_doubted() {
        let mut fresh = Fresh::default();
        fresh.insert(EXTENT, 130);
        fresh.write(EXTENT, 63, 2);
        assert!(!fresh.counts_as_zeroes(EXTENT, 0));
        fresh.doubt(|extent| extent == EXTENT);
        let zeroes: Vec<u32> = (0..130).filter(|l| !fresh.counts_as_zeroes(EXTENT, *l)).collect();
        assert_eq!(zeroes, [63, 64]);
        fresh.filled_up(EXTENT, fresh.doubts(EXTENT));
        assert!(!fresh.counts_as_zeroes(EXTENT, 0));
    }

    #[test]
    fn a_doubt_that_came_while_it_was_filled_up_stays() {
        let mut fresh = Fresh::default();
        fresh.insert(EXTENT, 1);
        fresh.doubt(|_| true);
        let before = fresh.doubts(EXTENT);
        fresh.doubt(|_| true);
        fresh.filled_up(EXTENT, before);
        assert_eq!(fresh.doubts(EXTENT), 2);
        fresh.remove(EXTENT);
        assert_eq!(fresh.doubts(EXTENT), 0);
    }
}
