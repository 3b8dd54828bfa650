//! When and how fast to destage.
//!
//! *Quiet* is what the papers wait for: no request for a threshold that shrinks from one second to
//! one millisecond as the cache fills (USENIX'99, section 3.5.3). *Urgent* does not wait for quiet:
//! a full cache, the high mark, a drain. Either way foreground reads of the data-disk go first.

use super::{Engine, Phase};
use crate::units::{Duration, Time};

/// No longer apart, and requests follow one another closely.
const REQUESTS_CLOSE: Duration = Duration::from_millis(1);
/// How long after a foreground read of the data-disk another one is expected.
const READS_RECENT: Duration = Duration::from_millis(100);
/// How long the disk's cache is kept from filling with destage writes, because another may come.
const READS_EXPECTED: Duration = Duration::from_secs(1);
/// Destage writes in flight together should take no longer than this, because a foreground read
/// may have to wait for all of them; unless destaging is urgent and nobody reads.
const IN_FLIGHT_TARGET: Duration = Duration::from_millis(20);
/// Most destage writes in flight, for each data-disk: as many as a SATA drive queues.
const DEPTH_MAX: u64 = 32;

/// What the pacer remembers.
pub(super) struct Pace {
    last_request: Time,
    last_data_disk_read: Option<Time>,
    last_write_done: Time,
    /// Smoothed time that a destage write takes.
    write_service: Duration,
    /// Not before this, by the caps.
    next_write_at: Time,
    /// Between the high and the low mark.
    above_marks: bool,
    writes_since_small: u32,
    /// The threshold computed last: asked for twice behind each input, its divisions were a
    /// fortieth of all that a 4 KiB write takes.
    quiet: Quiet,
}

/// How long it must be quiet, and what that was computed from.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct QuietOf {
    segments_with_data: u32,
    segments: u32,
    longest: Duration,
    shortest: Duration,
}

#[derive(Clone, Copy)]
struct Quiet {
    of: QuietOf,
    threshold: Duration,
}

/// How full a log is. While it shrinks, segments that are to go hold something, too: then more
/// may do so than it is to have.
fn percent(segments_with_data: u32, segments: u32) -> u64 {
    (u64::from(segments_with_data) * 100 / u64::from(segments)).min(100)
}

impl QuietOf {
    /// Falls exponentially from the longest at an empty cache to the shortest at a full one.
    fn threshold(self) -> Duration {
        let (max, min) = (self.longest.0, self.shortest.0);
        let percent = percent(self.segments_with_data, self.segments);
        // Whole-number steps of one percent keep every platform at the same result.
        let mut threshold = max;
        let ratio = max / min.max(1);
        let halvings = u64::from(u64::BITS - ratio.saturating_sub(1).leading_zeros());
        let shift = halvings * percent / 100;
        let within = (halvings * percent) % 100;
        threshold >>= shift;
        threshold -= threshold * within / 200;
        Duration(threshold.clamp(min, max))
    }
}

/// Whether a destage write may start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Go {
    Now,
    At(Time),
    /// When something else ends.
    Later,
}

impl Pace {
    pub(super) fn new(now: Time) -> Pace {
        Pace {
            last_request: now,
            last_data_disk_read: None,
            last_write_done: now,
            write_service: Duration(0),
            next_write_at: Time::ZERO,
            above_marks: false,
            writes_since_small: 0,
            quiet: Quiet { of: QuietOf::default(), threshold: Duration(0) },
        }
    }

    /// A request has come.
    pub(super) fn foreground(&mut self, now: Time) {
        self.last_request = now;
    }

    /// A write has come.
    pub(super) fn write_came(&mut self, is_small: bool) {
        self.writes_since_small = match is_small {
            true => 0,
            false => self.writes_since_small.saturating_add(1),
        };
    }

    /// Writes that came since one was small.
    pub(super) fn writes_since_small(&self) -> u32 {
        self.writes_since_small
    }

    /// When the last request came.
    pub(super) fn last_request(&self) -> Time {
        self.last_request
    }

    /// A foreground read of the data-disk has ended.
    pub(super) fn data_disk_read(&mut self, now: Time) {
        self.last_data_disk_read = Some(now);
    }

    /// A destage write has ended after `service`.
    pub(super) fn write_done(&mut self, now: Time, service: Duration) {
        self.last_write_done = now;
        self.write_service = match self.write_service {
            Duration(0) => service,
            Duration(old) => Duration(old / 8 * 7 + service.0 / 8),
        };
    }
}

impl Engine {
    /// Whether requests follow one another closely, or wait for what is destaged, and none waits for
    /// what is done beside them. None comes before it is open, or behind one that ends it all.
    pub(super) fn requests_come(&self) -> bool {
        self.phase == Phase::Running
            && self.close.is_none()
            && !self.checkpoint.is_waited_for()
            && (self.now.since(self.pace.last_request) < REQUESTS_CLOSE
                || self.someone_waits_for_destaging())
    }

    /// Share of the segments that hold something, in percent.
    pub(super) fn utilisation_percent(&self) -> u64 {
        let total = self.log.segments.limit();
        let counts = self.log.segments.counts();
        percent(counts.buffered + counts.dirty, total)
    }

    /// Quiet time that starts a destage.
    pub(super) fn idle_threshold(&self) -> Duration {
        let of = self.quiet_of();
        match self.pace.quiet.of == of {
            true => self.pace.quiet.threshold,
            false => of.threshold(),
        }
    }

    fn quiet_of(&self) -> QuietOf {
        let counts = self.log.segments.counts();
        QuietOf {
            segments_with_data: counts.buffered + counts.dirty,
            segments: self.log.segments.limit(),
            longest: self.config.idle_threshold_max,
            shortest: self.config.idle_threshold_min,
        }
    }

    /// Destaging may not wait for quiet.
    pub(super) fn destage_is_urgent(&self) -> bool {
        self.room_is_wanted()
            || self.window_is_urgent()
            || self.destage.is_draining()
            || self.destage.a_bypass_waits()
            || self.close.is_some()
    }

    /// Somebody waits for room in the log, or would soon.
    pub(super) fn room_is_wanted(&self) -> bool {
        self.pace.above_marks
            || self.mode.wants_destage()
            || self.resize.wants_destage()
            || self.someone_waits_for_destaging()
            || self.purge_waits_for_destaging()
    }

    /// Keeps the threshold at hand for this turn.
    pub(super) fn watch_quiet(&mut self) {
        let of = self.quiet_of();
        if self.pace.quiet.of != of {
            self.pace.quiet = Quiet { of, threshold: of.threshold() };
        }
    }

    /// Keeps track of the marks. They count what destaging can bring down: an empty segment waits
    /// for a checkpoint, which may not be due before the next writes.
    pub(super) fn watch_marks(&mut self) {
        let counts = self.log.segments.counts();
        let dirty = u64::from(counts.dirty + counts.buffered);
        let total = u64::from(self.log.segments.limit());
        if dirty * 100 >= u64::from(self.config.dirty_high_percent) * total {
            self.pace.above_marks = true;
        } else if dirty * 100 < u64::from(self.config.dirty_low_percent) * total {
            self.pace.above_marks = false;
        }
    }

    /// Whether destage writes go to the medium one by one. A disk with a cache takes a whole batch
    /// at once, and a read would wait for all of it to be written, in the drive's own order or by
    /// the flush.
    pub(super) fn writes_through_for_readers(&self) -> bool {
        self.readers_came_within(READS_EXPECTED)
    }

    /// Whether there was a foreground read of the data-disk not longer ago than that, which another
    /// one may follow that would have to wait for what is written.
    fn readers_came_within(&self, time: Duration) -> bool {
        !self.config.data_disk_is_store
            && self.pace.last_data_disk_read.is_some_and(|at| self.now.since(at) < time)
    }

    /// Whether reads of the data-disk are under way that would have to wait for what is written.
    fn readers_wait(&self) -> bool {
        !self.config.data_disk_is_store && self.reads.on_data_disk() > 0
    }

    /// Whether another write to the data-disk may start while `in_flight` are under way. On a
    /// volume each member has an arm, and lines of one stripe, which go together, count once.
    pub(super) fn may_destage(&self, in_flight: u32) -> Go {
        let urgent = self.destage_is_urgent();
        if !urgent {
            // Who waits for a bypass asks for nothing: that is no silence. One that has not begun
            // may wait for what is being destaged.
            if self.config.one_disk && self.has_bypasses_under_way() {
                return Go::Later;
            }
            let quiet_at = self.pace.last_request.after(self.idle_threshold());
            if self.now < quiet_at {
                return Go::At(quiet_at);
            }
        }
        if self.now < self.pace.next_write_at {
            return Go::At(self.pace.next_write_at);
        }
        // A drain that readers keep from everything would never end; nor would what a large discard
        // waits for, and changes behind it, nor a batch that a large write waits for.
        let is_full = self.someone_waits_for_destaging()
            || self.destage.a_bypass_waits()
            || self.a_drain_is_held_up()
            || self.window_is_late()
            || self.purge_waits_for_destaging();
        if self.config.one_disk && !is_full && (self.log_is_busy() || !self.reads.is_empty()) {
            return Go::Later;
        }
        // Reads go before destage writes; only a full cache makes them share.
        if self.readers_wait() && !is_full {
            return Go::Later;
        }
        if self.readers_came_within(READS_RECENT) {
            if in_flight > 0 {
                return Go::Later;
            }
            // Leaves the disk to the reader for as long as the last write held it.
            let free_at = self.pace.last_write_done.after(self.pace.write_service);
            if !is_full && self.now < free_at {
                return Go::At(free_at);
            }
        }
        // With a queue the drive chooses the order, and moves its arm less. That is for whoever
        // waits for room; who reads now and then would wait for all of it.
        let depth = match urgent && !self.readers_came_within(READS_EXPECTED) {
            true => DEPTH_MAX,
            false => IN_FLIGHT_TARGET.0 / self.pace.write_service.0.max(1),
        };
        match u64::from(in_flight) >= depth.clamp(1, DEPTH_MAX) * self.below.arms() {
            true => Go::Later,
            false => Go::Now,
        }
    }

    /// Whether the caps hold destaging back.
    pub(super) fn is_capped(&self) -> bool {
        self.now < self.pace.next_write_at
    }

    /// A destage write of so many bytes starts: the caps decide when the next may.
    pub(super) fn count_against_caps(&mut self, bytes: u64) {
        let second = Duration::from_secs(1).0;
        let by_bytes = match self.config.destage_bytes_per_second_max {
            0 => 0,
            cap => bytes.saturating_mul(second) / cap,
        };
        let by_writes = match self.config.destage_writes_per_second_max {
            0 => 0,
            cap => second / cap,
        };
        let start = self.pace.next_write_at.max(self.now);
        self.pace.next_write_at = start.after(Duration(by_bytes.max(by_writes)));
    }
}
