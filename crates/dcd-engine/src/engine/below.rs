//! What is below the cache: one data-disk, or a volume of several. The paths of the cache ask here,
//! and get the answers of one disk where there is no volume, so that none of them asks first which
//! it is.

use std::ops::Range;

use crate::patience::Patience;
use crate::units::{LbaRange, Line, Time};
use crate::volume::away::LogShare;
use crate::volume::{Volume, VolumePhase};

/// The data-disk, or the data-disks.
pub(super) enum Below {
    OneDisk,
    Volume(Box<Volume>),
}

impl Below {
    pub(super) fn is_volume(&self) -> bool {
        matches!(self, Below::Volume(_))
    }

    pub(super) fn volume(&self) -> Option<&Volume> {
        match self {
            Below::OneDisk => None,
            Below::Volume(volume) => Some(volume),
        }
    }

    pub(super) fn volume_mut(&mut self) -> Option<&mut Volume> {
        match self {
            Below::OneDisk => None,
            Below::Volume(volume) => Some(volume),
        }
    }

    /// What happens comes from outside.
    pub(super) fn input_came(&mut self) {
        if let Below::Volume(volume) = self {
            volume.input_came();
        }
    }

    pub(super) fn set_patience(&mut self, patience: Patience) {
        if let Below::Volume(volume) = self {
            volume.set_patience(patience);
        }
    }

    /// A volume reads all its tables first, and has limits of its own for its members.
    pub(super) fn is_opening(&self) -> bool {
        self.volume().is_some_and(|volume| *volume.phase() == VolumePhase::Opening)
    }

    pub(super) fn wake_up(&self) -> Option<Time> {
        self.volume()?.next_wake_up()
    }

    /// So many I/Os can be carried out at once.
    pub(super) fn arms(&self) -> u64 {
        self.volume().map_or(1, |volume| volume.config().members as u64)
    }

    /// Lines around one that are best written with it.
    pub(super) fn lines_that_share_parity(&self, line: Line) -> Range<Line> {
        let alone = line..Line(line.0 + 1);
        self.volume().map_or(alone, |volume| volume.lines_that_share_parity(line))
    }

    /// Lines around one that are written in less time with it than later.
    pub(super) fn lines_that_share_seeks(&self, line: Line) -> Range<Line> {
        let alone = line..Line(line.0 + 1);
        self.volume().map_or(alone, |volume| volume.lines_that_share_seeks(line))
    }

    /// Selective caching (DHIS section 3.3.2).
    pub(super) fn is_selective(&self) -> bool {
        self.volume().is_some_and(|volume| volume.config().selective_caching)
    }

    /// The same: what the volume says is worth a place in the log, also when it is large.
    pub(super) fn is_cache_candidate(&self, range: LbaRange) -> bool {
        self.is_selective()
            && self
                .volume()
                .is_some_and(|volume| volume.has_candidate(range.start.byte(), range.bytes()))
    }

    /// Members that are away, a bit for each; `None` until that is known.
    pub(super) fn away(&self) -> Option<u32> {
        self.volume().filter(|volume| volume.is_open()).map(Volume::away)
    }

    /// Whether a line cannot be written while members are away.
    pub(super) fn is_stuck(&mut self, line: Line) -> bool {
        self.volume_mut().is_some_and(|volume| volume.is_stuck(line))
    }

    /// The first of these lines that can be zeroed although members are away; `None`: none can.
    pub(super) fn zeroes_that_can_be_written(&self, line: Line, lines: u64) -> Option<(Line, u64)> {
        match self {
            Below::Volume(volume) if volume.away() != 0 => {
                volume.zeroes_that_can_be_written(line, lines)
            }
            _ => Some((line, lines)),
        }
    }

    pub(super) fn note_log_share(&mut self, share: LogShare) {
        if let Below::Volume(volume) = self {
            volume.note_log_share(share);
        }
    }

    /// Whether requests or frees have changed tables that are not durable.
    pub(super) fn has_changes_for_journal(&self) -> bool {
        self.volume()
            .is_some_and(|volume| volume.has_unlogged_frees() || volume.has_changes_of_requests())
    }

    /// A discard of blocks that the volume has freed could not be carried out.
    pub(super) fn discard_failed(&mut self, number: u64) {
        self.volume_mut().expect("it has freed blocks").discard_failed(number);
    }

    /// Begins to write the labels of the end; false: one disk has none.
    pub(super) fn begin_close(&mut self) -> bool {
        let Below::Volume(volume) = self else { return false };
        volume.close();
        true
    }
}
