//! The buffer of a drive: segments that hold one stretch of sectors each, the least recently used
//! is given up first. Reading ahead makes the newest of them longer; what is written makes others
//! shorter.

use super::profile::CacheProfile;

/// The buffer.
#[derive(Clone, Debug)]
pub struct Cache {
    profile: CacheProfile,
    /// The most recently used first.
    segments: Vec<Segment>,
}

/// A stretch of sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First sector that is there.
    pub start: u64,
    /// First sector behind.
    pub end: u64,
}

impl Cache {
    /// An empty buffer.
    pub fn new(profile: CacheProfile) -> Cache {
        Cache { profile, segments: Vec::with_capacity(profile.segments as usize) }
    }

    /// How it works.
    pub fn profile(&self) -> &CacheProfile {
        &self.profile
    }

    /// Finds the segment that has `sector`, or ends there, and makes it the first.
    pub fn use_segment(&mut self, sector: u64) -> Option<Segment> {
        let holds = |segment: &Segment| segment.start <= sector && sector < segment.end;
        let found = self
            .segments
            .iter()
            .position(holds)
            .or_else(|| self.segments.iter().position(|segment| segment.end == sector))?;
        self.segments[..=found].rotate_right(1);
        Some(self.segments[0])
    }

    /// Begins a segment at `sector`, in the place of the least recently used one.
    pub fn begin_segment(&mut self, sector: u64) {
        if self.profile.segments == 0 {
            return;
        }
        if self.segments.len() == self.profile.segments as usize {
            self.segments.pop();
        }
        self.segments.insert(0, Segment { start: sector, end: sector });
    }

    /// The first segment reaches up to `end` now; what no longer fits goes at its other end.
    pub fn extend_first(&mut self, end: u64) {
        if let Some(first) = self.segments.first_mut() {
            first.end = end;
            first.start =
                first.start.max(end.saturating_sub(u64::from(self.profile.segment_sectors)));
        }
    }

    /// Forgets what it has of `start..end`, which is being written: of each segment the part before
    /// stays.
    pub fn overwrite(&mut self, start: u64, end: u64) {
        for segment in &mut self.segments {
            if segment.start < end && start < segment.end {
                segment.end = start.max(segment.start);
            }
        }
        self.segments.retain(|segment| segment.start < segment.end);
    }
}
