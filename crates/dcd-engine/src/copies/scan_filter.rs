//! Which reads belong to a *scan*: a stream that reads on and on, as a backup or a search does. Its
//! lines are read once, so they are not worth a write to the cache-disk.
//!
//! A stream goes on with a read that begins near its end: up to [`WINDOW_BLOCKS`] behind it,
//! because the client's own cache leaves gaps, or before it, because requests that are under way at
//! once overtake each other. Only blocks beyond its farthest one count, and not those of the gap,
//! so reading a small file again and again is no scan. When it has counted more than `scan_blocks`,
//! it is one until nothing goes on with it.
//!
//! ```text
//!   a stream:    [ counted ][ counted ][ gap ][ counted ]<end
//!   goes on:                      [ counts nothing ]
//!                                             [ counts this part:    #####]
//!                                                         [ gap ][########]
//!   another one: [#####]                                                          [#####]
//! ```
//!
//! [`STREAMS`] are watched, a new one in the place of that which has least to be lost by it: one
//! that nothing goes on with, else one that nothing has gone on with yet, of those the oldest. So
//! streams that go on are found among random reads, if not too many of these come between their
//! first two reads.

use crate::units::{BLOCK_SIZE, LbaRange};

/// Streams that are watched.
pub const STREAMS: usize = 16;
/// How far from the end of a stream the next read may begin, in blocks: 128 KiB, what kernels read
/// ahead.
pub const WINDOW_BLOCKS: u64 = 128 * 1024 / BLOCK_SIZE;
/// What a stream may read before it is a scan, in blocks, if nothing else is said: 1 MiB. More than
/// most files and than what a file system reads of its own in one go; and so little that what a
/// scan brings in before it is found leaves a small queue of usual size at once.
pub const SCAN_BLOCKS_DEFAULT: u64 = (1 << 20) / BLOCK_SIZE;
/// A stream that nothing went on with while so many reads came has ended.
const READS_TO_END: u64 = 1024;

/// A stream of reads.
#[derive(Clone, Copy)]
struct Stream {
    /// First block behind the farthest one that was read.
    end: u64,
    /// Blocks that were counted.
    blocks: u64,
    /// Whether any read went on with it.
    went_on: bool,
    /// Number of its last read.
    read_number: u64,
}

/// So far away that nothing goes on with it.
const NO_STREAM: Stream = Stream { end: u64::MAX, blocks: 0, went_on: false, read_number: 0 };

/// The streams of late.
pub struct ScanFilter {
    streams: [Stream; STREAMS],
    scan_blocks: u64,
    reads: u64,
}

impl ScanFilter {
    /// A filter to which a stream of more than `scan_blocks` is a scan.
    pub fn new(scan_blocks: u64) -> ScanFilter {
        ScanFilter { streams: [NO_STREAM; STREAMS], scan_blocks, reads: 0 }
    }

    /// Takes notice of a read; whether it belongs to a scan.
    pub fn is_scan(&mut self, read: LbaRange) -> bool {
        self.reads += 1;
        let found = self.find(read);
        let index = found.unwrap_or_else(|| self.least_missed());
        let stream = &mut self.streams[index];
        if found.is_none() {
            *stream = Stream { end: read.start.0, ..NO_STREAM };
        }
        let counted = read.end().saturating_sub(stream.end.max(read.start.0));
        stream.end = stream.end.max(read.end());
        stream.blocks += counted;
        stream.went_on = found.is_some();
        stream.read_number = self.reads;
        stream.blocks > self.scan_blocks
    }

    /// The stream that `read` goes on with; of several, that whose end is nearest.
    fn find(&self, read: LbaRange) -> Option<usize> {
        let (mut nearest, mut distance_min) = (None, WINDOW_BLOCKS + 1);
        for (index, stream) in self.streams.iter().enumerate() {
            let distance = stream.end.abs_diff(read.start.0);
            if distance < distance_min {
                (nearest, distance_min) = (Some(index), distance);
            }
        }
        nearest
    }

    /// The stream whose place a new one takes.
    fn least_missed(&self) -> usize {
        let (mut least, mut worth_min) = (0, u64::MAX);
        for (index, stream) in self.streams.iter().enumerate() {
            let is_alive = stream.went_on && self.reads - stream.read_number < READS_TO_END;
            // Any that is alive is worth more than any that is not.
            let worth = stream.read_number | u64::from(is_alive) << 63;
            if worth < worth_min {
                (least, worth_min) = (index, worth);
            }
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = (1 << 20) / BLOCK_SIZE;
    const LINE: u64 = 8;

    fn filter() -> ScanFilter {
        ScanFilter::new(SCAN_BLOCKS_DEFAULT)
    }

    /// Numbers that look random, below `below`.
    fn random(seed: u64, below: u64) -> impl Iterator<Item = u64> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        })
    }

    /// Reads `blocks` from `start` in pieces of `piece`; which of the pieces were of a scan.
    fn read(filter: &mut ScanFilter, start: u64, blocks: u64, piece: u64) -> Vec<bool> {
        (start..start + blocks)
            .step_by(piece as usize)
            .map(|start| filter.is_scan(LbaRange::new(start, piece)))
            .collect()
    }

    #[test]
    fn a_stream_is_a_scan_from_the_block_beyond_the_limit() {
        let scans = read(&mut filter(), 1000, 2 * MIB, LINE);
        assert_eq!(scans.iter().position(|&scan| scan), Some((MIB / LINE) as usize));
        assert!(scans[(MIB / LINE) as usize..].iter().all(|&scan| scan));
        // One large read is a scan of its own.
        assert!(filter().is_scan(LbaRange::new(0, MIB + 1)));
        assert!(!filter().is_scan(LbaRange::new(0, MIB)));
    }

    #[test]
    fn interleaved_streams_are_told_apart() {
        let mut filter = filter();
        let mut scans = vec![0; STREAMS];
        for step in 0..2 * MIB / LINE {
            for (stream, scans) in scans.iter_mut().enumerate() {
                let start = stream as u64 * 100 * MIB + step * LINE;
                *scans += u64::from(filter.is_scan(LbaRange::new(start, LINE)));
            }
        }
        assert!(scans.iter().all(|&scans| scans == MIB / LINE), "{scans:?}");
    }

    #[test]
    fn a_scan_is_found_among_random_reads() {
        let mut filter = filter();
        let mut draw = random(1, 1 << 30);
        let mut scans = 0;
        for step in 0..2 * MIB / LINE {
            scans += u64::from(filter.is_scan(LbaRange::new((1 << 31) + step * LINE, LINE)));
            for _ in 0..STREAMS - 2 {
                let start = draw.next().unwrap();
                assert!(!filter.is_scan(LbaRange::new(start, LINE)), "a random read at {start}");
            }
        }
        assert_eq!(scans, MIB / LINE);
    }

    #[test]
    fn a_stream_that_went_on_outlasts_many_random_reads() {
        let mut filter = filter();
        let mut draw = random(2, 1 << 30);
        let mut scans = 0;
        read(&mut filter, 1 << 31, 2 * LINE, LINE);
        for step in 2..2 * MIB / LINE {
            for _ in 0..10 * STREAMS {
                filter.is_scan(LbaRange::new(draw.next().unwrap(), LINE));
            }
            scans += u64::from(filter.is_scan(LbaRange::new((1 << 31) + step * LINE, LINE)));
        }
        assert_eq!(scans, MIB / LINE);
    }

    #[test]
    fn of_two_streams_within_the_window_the_nearer_one_goes_on() {
        let mut filter = filter();
        read(&mut filter, 0, MIB / 2, LINE);
        // Another one has been where the first will come by.
        read(&mut filter, MIB - 64, LINE, LINE);
        let scans = read(&mut filter, MIB / 2, MIB, LINE);
        assert_eq!(scans.iter().position(|&scan| scan), Some((MIB / 2 / LINE) as usize));
    }

    #[test]
    fn random_reads_are_no_scan() {
        // Over a large disk, and all over a region that is no larger than what a scan is from.
        for below in [1 << 32, 1 << 22, 4 * MIB, MIB] {
            let mut filter = filter();
            for start in random(below, below / LINE).take(100_000) {
                assert!(!filter.is_scan(LbaRange::new(start * LINE, LINE)), "below {below}");
            }
        }
    }

    #[test]
    fn files_read_again_and_again_are_no_scan() {
        for blocks in [LINE, 16 * LINE, MIB / 2, MIB] {
            let mut filter = filter();
            for _ in 0..100 {
                assert!(!read(&mut filter, 7 * MIB, blocks, LINE).contains(&true), "{blocks}");
            }
        }
    }

    #[test]
    fn a_scan_ends_with_a_jump() {
        let mut filter = filter();
        assert!(read(&mut filter, 0, 2 * MIB, LINE).contains(&true));
        assert!(!filter.is_scan(LbaRange::new(2 * MIB + WINDOW_BLOCKS + 1, LINE)));
        // Where it was it can be gone on with.
        assert!(filter.is_scan(LbaRange::new(2 * MIB, LINE)));
    }

    #[test]
    fn gaps_and_overtaking_do_not_break_a_scan() {
        let mut filter = filter();
        // 32 KiB are read and 32 KiB left out; of each two reads the second comes first, and so
        // alone counts.
        let starts = (0..128).map(|step| (step ^ 1) * 128);
        let scans: Vec<bool> =
            starts.map(|start| filter.is_scan(LbaRange::new(start, 64))).collect();
        assert_eq!(scans.iter().position(|&scan| scan), Some(64));
        assert!(scans[64..].iter().all(|&scan| scan));
    }

    #[test]
    fn an_ended_scan_gives_its_place_away() {
        let mut filter = filter();
        for stream in 0..STREAMS as u64 {
            assert!(read(&mut filter, stream * 100 * MIB, 2 * MIB, 64).contains(&true));
        }
        // All places are taken by scans that no longer go on, and soon have ended.
        for start in random(5, 1 << 30).take(READS_TO_END as usize) {
            filter.is_scan(LbaRange::new((1 << 33) + start, LINE));
        }
        let mut scans = 0;
        let mut draw = random(6, 1 << 30);
        for step in 0..2 * MIB / LINE {
            scans += u64::from(filter.is_scan(LbaRange::new((1 << 32) + step * LINE, LINE)));
            filter.is_scan(LbaRange::new((1 << 33) + draw.next().unwrap(), LINE));
        }
        assert_eq!(scans, MIB / LINE);
    }
}
