//! How fast the same work could be at best: the bound of the paper's section 4.2.2.
//!
//! The slow disk's own run says how many writes of each size it was given. A cache can at best put
//! their bytes into writes of a segment each; reads and the processor it cannot make faster:
//!
//! ```text
//! S     = time of the writes one by one / time of the same bytes in segments
//! bound = 1 / ((1 - w) + w / S)      w: the part of the run in which the disk was writing
//! ```
//!
//! What is left beside the writes is taken as reads and processor, as in the paper, but it is more:
//! the time lost between two slow requests is in it too. A cache spares some of that, so the bound
//! can be beaten. [`Bound::ceiling`] allows for nothing but the reads, and cannot be reached; it is
//! beaten only where reads are spared.
//!
//! The paper adds up `S` from its size classes as the sum of share x speed-up. A sum of times is a
//! harmonic mean, `1 / S = sum of share / speed-up`: that is computed here. It is lower where sizes
//! differ, so the share that dcd must reach is harder to reach.

use dcd_daemon::event_loop::request_counts::{CLASSES, RequestCounts, class_bytes};
use serde::Serialize;

/// The bound of one phase, and what it was made of.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bound {
    /// Seconds of the run on the slow disk alone.
    pub raw_seconds: f64,
    /// Seconds of those in which the disk was writing.
    pub write_seconds: f64,
    /// Writes of a segment each that would hold the same bytes.
    pub segment_writes: u64,
    /// Seconds they would take on the same disk.
    pub segment_seconds: f64,
    /// The rest: reads and processor.
    pub other_seconds: f64,
    /// `write_seconds / segment_seconds`.
    pub write_speed_up: f64,
    /// The same as the paper would add it up from its size classes.
    pub write_speed_up_of_the_paper: f64,
    /// At most so many times faster.
    pub bound: f64,
    /// The same if nothing but reads and segments took time.
    pub ceiling: f64,
    /// The writes by size.
    pub classes: Vec<SizeClass>,
}

/// How slow the slow disk is, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Seconds {
    /// A read.
    pub read: f64,
    /// A write.
    pub write: f64,
}

/// Writes of about one size.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SizeClass {
    /// Largest size.
    pub size_bytes_max: u64,
    /// How many.
    pub writes: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Share of all writes, 0 to 1.
    pub share: f64,
    /// How much faster in segments.
    pub speed_up: f64,
}

impl Bound {
    /// The bound of a run of `raw_seconds` in which the slow disk was given `counts`, if a read
    /// and a write take the seconds of `each`, whatever their size.
    pub fn of(
        raw_seconds: f64,
        counts: &RequestCounts,
        each: Seconds,
        segment_bytes: u64,
    ) -> Bound {
        let classes: Vec<SizeClass> =
            (0..CLASSES).filter_map(|class| SizeClass::of(class, counts, segment_bytes)).collect();
        // Zeroes are told to the disk in one request of any length, with dcd as without.
        let write_seconds = (counts.writes as f64 * each.write).min(raw_seconds);
        let segment_writes = counts.write_bytes.div_ceil(segment_bytes);
        let segment_seconds = (segment_writes as f64 * each.write).min(write_seconds);
        let other_seconds = raw_seconds - write_seconds;
        let read_seconds = (counts.reads as f64 * each.read).min(other_seconds);
        Bound {
            raw_seconds,
            write_seconds,
            segment_writes,
            segment_seconds,
            other_seconds,
            write_speed_up: ratio(write_seconds, segment_seconds),
            write_speed_up_of_the_paper: classes.iter().map(|c| c.share * c.speed_up).sum(),
            bound: ratio(raw_seconds, other_seconds + segment_seconds),
            ceiling: ratio(raw_seconds, read_seconds + segment_seconds),
            classes,
        }
    }
}

impl SizeClass {
    fn of(class: usize, counts: &RequestCounts, segment_bytes: u64) -> Option<SizeClass> {
        let (writes, bytes) = (counts.writes_by_size[class], counts.write_bytes_by_size[class]);
        if writes == 0 {
            return None;
        }
        Some(SizeClass {
            size_bytes_max: class_bytes(class),
            writes,
            bytes,
            share: writes as f64 / counts.writes as f64,
            // A disk with the same time for each write: so many of these go into a segment.
            speed_up: ratio(segment_bytes as f64 * writes as f64, bytes as f64),
        })
    }
}

/// `part / whole`; 1 if there is nothing on either side.
pub fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_engine::{Buffer, Lba, Operation};

    const SLOW: Seconds = Seconds { read: 0.008, write: 0.008 };

    #[test]
    fn writes_go_into_segments_and_the_rest_stays() {
        let mut counts = RequestCounts::default();
        for _ in 0..512 {
            let data = Buffer::zeroed(4096);
            counts.count(&Operation::Write { start: Lba(0), data });
        }
        // 512 writes of 4 KiB are 2 MiB: two segments. 5.12 s of writing, 1 s of other things.
        let bound = Bound::of(6.12, &counts, Seconds { read: 0.01, write: 0.01 }, 1 << 20);
        assert_eq!((bound.segment_writes, bound.classes.len()), (2, 1));
        assert!((bound.write_speed_up - 256.0).abs() < 1e-6);
        assert!((bound.write_speed_up_of_the_paper - 256.0).abs() < 1e-6);
        assert!((bound.bound - 6.12 / 1.02).abs() < 1e-6, "{bound:?}");
        assert!((bound.ceiling - 6.12 / 0.02).abs() < 1e-6, "{bound:?}");
    }

    #[test]
    fn a_mean_of_speeds_is_more_than_the_speed_of_all() {
        let mut counts = RequestCounts::default();
        for bytes in [1024, 512 << 10] {
            let data = Buffer::zeroed(bytes);
            counts.count(&Operation::Write { start: Lba(0), data });
        }
        let bound = Bound::of(1.0, &counts, SLOW, 1 << 20);
        assert!(bound.write_speed_up <= 2.0 && bound.write_speed_up_of_the_paper > 500.0);
    }

    #[test]
    fn nothing_written_is_nothing_gained() {
        let bound = Bound::of(3.0, &RequestCounts::default(), SLOW, 1 << 20);
        assert_eq!((bound.bound, bound.write_speed_up), (1.0, 1.0));
    }
}
