//! Extents that were read before anybody asked: those that what was read points to (DHIS: what a
//! program points to from a block it reads next).
//!
//! Some MiB of memory, and nothing else: what is there is what is on the members, because a change
//! drops it before it begins (`paths/follow.rs`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::extents::ExtentIndex;
use crate::buffer::Buffer;

/// Most that is held.
const HELD_BYTES_MAX: u64 = 8 << 20;
/// Of one block so many others are read ahead.
pub(super) const FOLLOWED_MAX: usize = 8;
/// Most that wait to be read.
const WANTED_MAX: usize = 64;
/// Uses and wastes of so many tell whether pointers are followed by those who read.
const JUDGED: u32 = 64;
/// Where they are not, one read in so many is followed, to see whether that has changed.
const PROBED_EACH: u32 = 16;

struct Held {
    buffer: Buffer,
    /// When it came, or was read last, by a number that grows.
    touched: u64,
    is_used: bool,
}

/// What is held, and what is to be read.
#[derive(Default)]
pub(super) struct Ahead {
    held: BTreeMap<ExtentIndex, Held>,
    by_touch: BTreeSet<(u64, ExtentIndex)>,
    held_bytes: u64,
    next_touch: u64,
    wanted: VecDeque<ExtentIndex>,
    /// The one that is being read; and whether it was changed meanwhile.
    reading: Option<(ExtentIndex, bool)>,
    used: u32,
    wasted: u32,
    passed_by: u32,
}

impl Ahead {
    /// Whether nothing is being read, nor waits to be.
    pub(super) fn is_idle(&self) -> bool {
        self.reading.is_none() && self.wanted.is_empty()
    }

    /// Whether pointers of what is read are to be followed now.
    pub(super) fn follows(&mut self) -> bool {
        if self.used + self.wasted < JUDGED / 2 || self.used * 3 >= self.wasted {
            return true;
        }
        self.passed_by += 1;
        self.passed_by.is_multiple_of(PROBED_EACH)
    }

    /// An extent is likely to be read next.
    pub(super) fn want(&mut self, extent: ExtentIndex) {
        let is_known = self.held.contains_key(&extent)
            || self.wanted.contains(&extent)
            || self.reading.is_some_and(|(reading, _)| reading == extent);
        if !is_known {
            if self.wanted.len() == WANTED_MAX {
                // The oldest has been overtaken by who asked.
                self.wanted.pop_front();
            }
            self.wanted.push_back(extent);
        }
    }

    /// The next to be read, if none is being read.
    pub(super) fn next(&mut self) -> Option<ExtentIndex> {
        match self.reading {
            Some(_) => None,
            None => self.wanted.pop_front(),
        }
    }

    /// It is being read.
    pub(super) fn begin(&mut self, extent: ExtentIndex) {
        self.reading = Some((extent, false));
    }

    /// It has been, or could not be.
    pub(super) fn end(&mut self, buffer: Option<Buffer>) {
        let (extent, is_changed) = self.reading.take().expect("one is being read");
        let Some(buffer) = buffer.filter(|_| !is_changed) else { return };
        self.held_bytes += buffer.len() as u64;
        let touched = self.touch(extent, None);
        self.held.insert(extent, Held { buffer, touched, is_used: false });
        while self.held_bytes > HELD_BYTES_MAX {
            let (_, oldest) = *self.by_touch.first().expect("what is held was touched");
            self.drop_held(oldest);
        }
    }

    fn touch(&mut self, extent: ExtentIndex, before: Option<u64>) -> u64 {
        if let Some(before) = before {
            self.by_touch.remove(&(before, extent));
        }
        self.next_touch += 1;
        self.by_touch.insert((self.next_touch, extent));
        self.next_touch
    }

    /// Bytes of an extent that were read ahead, to be copied.
    pub(super) fn read(&mut self, extent: ExtentIndex, range: Range<usize>) -> Option<&[u8]> {
        // What is asked for by now needs no reading ahead.
        self.wanted.retain(|wanted| *wanted != extent);
        let before = self.held.get(&extent)?.touched;
        let touched = self.touch(extent, Some(before));
        let held = self.held.get_mut(&extent).expect("looked at");
        held.touched = touched;
        if !std::mem::replace(&mut held.is_used, true) {
            self.used += 1;
        }
        Some(&held.buffer.bytes()[range])
    }

    /// It is changed.
    pub(super) fn changed(&mut self, extent: ExtentIndex) {
        self.drop_held(extent);
        if let Some((reading, is_changed)) = &mut self.reading {
            *is_changed |= *reading == extent;
        }
    }

    fn drop_held(&mut self, extent: ExtentIndex) {
        let Some(held) = self.held.remove(&extent) else { return };
        self.by_touch.remove(&(held.touched, extent));
        self.held_bytes -= held.buffer.len() as u64;
        self.wasted += u32::from(!held.is_used);
        if self.used + self.wasted >= JUDGED {
            (self.used, self.wasted) = (self.used / 2, self.wasted / 2);
        }
    }

    /// Memory taken.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.held_bytes
    }
}
