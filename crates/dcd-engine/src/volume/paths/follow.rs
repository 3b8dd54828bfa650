//! Reading ahead along pointers.
//!
//! ```text
//! 1. An extent is read that points to others: those are likely to be read next.
//! 2. While nobody asks for anything, they are read one by one, into some MiB of memory.
//! 3. Who reads them gets them from there, and step 1 goes on from them.
//! 4. A change of an extent drops it before the change begins; one that is being read does not
//!    count then.
//! ```
//! A crash has nothing to repair. Where those who read do not go where pointers go, few are
//! followed (ahead.rs); with a member away none are, because each read may take all others.

use std::ops::Range;

use super::super::ahead::FOLLOWED_MAX;
use super::super::extents::ExtentIndex;
use super::super::{UpperId, UpperOwner, Volume};
use crate::buffer::Buffer;
use crate::io::IoError;

/// Larger extents are not read ahead: who asks meanwhile would wait for one.
const EXTENT_BYTES_MAX: u64 = 256 << 10;

impl Volume {
    /// Step 1.
    pub(in crate::volume) fn follow_pointers(&mut self, offset: u64, length: u64) {
        if self.pointers.len() == 0 || self.header.config.extent_bytes > EXTENT_BYTES_MAX {
            return;
        }
        for extent in self.extents_of(offset, length) {
            let mut outgoing = self.pointers.outgoing(extent).peekable();
            if outgoing.peek().is_none() || !self.ahead.follows() {
                continue;
            }
            for target in outgoing.take(FOLLOWED_MAX) {
                if self.extents.get(target).place.is_some() {
                    self.ahead.want(target);
                }
            }
        }
    }

    /// Step 2.
    pub(in crate::volume) fn advance_following(&mut self) -> bool {
        if self.ahead.is_idle() || !self.uppers.is_empty() || self.away() > 0 {
            return false;
        }
        let Some(extent) = self.ahead.next() else { return false };
        let is_quiet = !self.writes.is_wanted(extent) && !self.writes.is_new(extent);
        if self.extents.get(extent).place.is_none() || !is_quiet {
            return true;
        }
        self.ahead.begin(extent);
        let extent_bytes = self.header.config.extent_bytes;
        let buffer = Buffer::zeroed(extent_bytes as usize);
        let id = self.own_upper(UpperOwner::Ahead, buffer, false);
        self.read_past_memory(id, u64::from(extent.0) * extent_bytes);
        self.piece_done(id, Ok(()));
        true
    }

    pub(in crate::volume) fn read_ahead_ended(
        &mut self,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        self.counters.extents_read_ahead += u64::from(result.is_ok());
        self.ahead.end(buffer.filter(|_| result.is_ok()));
    }

    /// Step 3: whether these bytes of the volume, all in one extent, were read ahead.
    pub(super) fn read_from_memory(
        &mut self,
        upper: UpperId,
        extent: ExtentIndex,
        range: &Range<u64>,
        offset: usize,
    ) -> bool {
        let first = (range.start % self.header.config.extent_bytes) as usize;
        let length = (range.end - range.start) as usize;
        let Some(bytes) = self.ahead.read(extent, first..first + length) else { return false };
        let buffer = self.uppers.get_mut(&upper).and_then(|upper| upper.buffer.as_mut());
        buffer.expect("of a read").bytes_mut()[offset..offset + length].copy_from_slice(bytes);
        self.counters.ahead_reads += 1;
        true
    }
}
