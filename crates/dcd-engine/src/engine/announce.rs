//! Announcements: the log itself says which empty segments are filled next, so that none of them
//! waits for a checkpoint.
//!
//! ```text
//! 1. A segment is empty: its lines were overwritten by records, or destaged and flushed on the
//!    data-disk.
//! 2. It is announced, behind all those records, if a start comes through none of its records:
//!    it was filled before the newest durable checkpoint was made. And if no line was destaged from
//!    it above zeroes that the checkpoint lists: without the line a start would show those.
//!      Crash here: what was destaged is dirty again, with the same content.
//! 3. The record is durable: the segment may be filled.
//!      Crash here: a start finds the announcement in the records that it follows, drops what the
//!      checkpoint says of the segment, and knows that the log goes on there (`recover/replay.rs`).
//! ```
//! Nothing is announced
//! - while a checkpoint is under way that lists empty segments as free, or has failed and may be
//!   found all the same: two starts would find the segments in two orders;
//! - when a line was found damaged and no checkpoint lists it: the start would take it for destaged
//!   (C19);
//! - when the cache is empty: a checkpoint then makes the cache-disk clean (C23).

use super::Engine;
use crate::log::{Appender, SEGMENTS_RESERVED};
use crate::units::SegmentIndex;

/// So many are announced ahead as a part of a small log.
const AHEAD_PART: usize = 8;

impl Engine {
    pub(super) fn advance_announcing(&mut self) -> bool {
        let is_waited_for = self.someone_waits_for_destaging();
        if is_waited_for && self.log.announced().len() > 0 {
            self.want_durable(self.log.newest_announcement());
        }
        let ahead_max = match self.config.limits.announced_ahead {
            usize::MAX => usize::MAX,
            most => most.min((self.log.segments.limit() as usize / AHEAD_PART).max(2)),
        };
        let ahead = self.log.segments.free().len() + self.log.announced().len();
        let is_enough = ahead > SEGMENTS_RESERVED as usize + ahead_max / 2;
        let has_to = !is_enough || is_waited_for;
        if !has_to || !self.can_announce() || !self.log.has_room(1, Appender::Announcement) {
            return false;
        }
        let next: Vec<SegmentIndex> = self.log.segments.announceable().take(ahead_max).collect();
        self.log.announce(&next);
        true
    }

    /// Whether there are empty segments that a record may announce, as soon as there is a buffer
    /// for it.
    pub(super) fn can_announce(&self) -> bool {
        self.may_announce() && self.log.segments.announceable().next().is_some()
    }

    /// Whether a record could announce segments. If not, a checkpoint lists them.
    pub(super) fn may_announce(&self) -> bool {
        self.is_running()
            && self.close.is_none()
            && !self.health.cache_disk_failed()
            && !self.is_passing_by()
            && !self.log_again.is_wanted()
            && self.checkpoint.lets_announce()
            && !self.cache_is_empty()
            && !self.log.lacks_segments(1, Appender::Announcement)
    }
}
