//! The twin at a start: who has it, what it lacks.
//!
//! Only its map, its marks and its records are read: what its tables say the cache-disk knows
//! better. All that records of the journal have changed is written to it before a member is.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Opening, Reads, Step};
use crate::buffer::Buffer;
use crate::io::{Device, IoDone, IoError, IoId, IoOperation};
use crate::units::MemberIndex;
use crate::volume::format::area::VolumeArea;
use crate::volume::format::label::TwinLabel;
use crate::volume::format::root::MemberState;
use crate::volume::members::MemberMask;
use crate::volume::twin::Twin;
use crate::volume::{Volume, VolumeOutput, VolumeParts, VolumePhase};

impl Volume {
    /// Lines that were about to be changed may be either: the twin does not know their checksums.
    pub(super) fn mark_again(&mut self, set: u8, stripe: u64, row: u32, columns: Range<u32>) {
        if self.region_marks.regions() == 0 {
            return;
        }
        for page in self.sum_pages_of(set, stripe, row..row + 1, columns) {
            let region = self.area.region_of(page);
            if self.region_marks.mark(region) {
                self.checkpoint.twin_dirty.insert(self.area.page_of_mark(region));
            }
        }
    }

    /// Looks for it on the members that the newest labels name.
    pub(super) fn find_twin(&mut self) {
        let Some(offset) = self.header.config.twin_offset_bytes() else { return };
        let area = VolumeArea::of(&self.header, offset).expect("as that of the cache-disk");
        let area = match self.area.pointer_pages_added() {
            0 => area,
            added => area.with_more_pointers(added).expect("the cache-disk has them"),
        };
        let mut twin = Twin::new(area, offset);
        let since = self.twin_since;
        let opening = self.opening.as_ref().expect("it is being opened");
        let told = newest_twin(opening);
        twin.generation = told.map_or(0, |told| told.generation);
        twin.told = told.map_or(MemberMask::default(), |told| told.holders);
        let can = |(index, member): &(MemberIndex, &crate::volume::members::Member)| {
            twin.told.has(*index)
                && member.is_present
                && member.state != MemberState::Stale
                && !opening.given_up.contains(index)
                && told.is_some_and(|told| told.offset == offset && told.generation >= since)
                // What is lost with a disk that was replaced is not in it.
                && !opening.has_lost_lines
        };
        let holders: VecDeque<MemberIndex> =
            self.members.iter().filter(can).map(|(index, _)| index).collect();
        self.opening().twin_holders = holders;
        self.twin = Some(Box::new(twin));
        self.read_twin();
    }

    /// Of the next who may have it.
    fn read_twin(&mut self) {
        if self.opening().twin_holders.is_empty() {
            return self.begin_twin_anew();
        }
        let members = vec![None; self.header.config.members];
        let parts = VolumeParts {
            header: self.header.clone(),
            members,
            others: Vec::new(),
            degraded: true,
        };
        let offset = self.twin.as_ref().expect("it was looked for").offset;
        let reader = Volume::open(self.now, parts, offset);
        let mut reader = Box::new(reader.expect("as the area of the cache-disk"));
        reader.opening().reads = Reads::Map;
        reader.opening().is_twin = true;
        self.opening().twin_reader = Some(reader);
        self.go_on_reading_twin();
    }

    fn go_on_reading_twin(&mut self) {
        let now = self.now;
        let opening = self.opening();
        let holder = *opening.twin_holders.front().expect("it is read from somebody");
        let Some(reader) = &mut opening.twin_reader else { return };
        reader.advance(now);
        let mut is_read = false;
        while let Some(output) = reader.poll() {
            let VolumeOutput::Io(io) = output else { continue };
            match io.operation {
                IoOperation::Read { .. } => {
                    let step = Step::Twin(holder, io.id);
                    opening.todo.push_back((Device::Member(holder), io.operation, step));
                }
                // All is known.
                _ => is_read = true,
            }
        }
        let has_failed = matches!(reader.phase(), VolumePhase::Failed(_));
        if is_read || has_failed {
            let reader = opening.twin_reader.take().expect("looked at");
            let fits = reader.area.pointer_pages_added() == self.area.pointer_pages_added();
            match is_read && fits {
                true => self.take_twin(*reader),
                false => {
                    self.opening().twin_holders.pop_front();
                    self.read_twin();
                }
            }
        }
    }

    pub(super) fn twin_part_read(
        &mut self,
        from: MemberIndex,
        id: IoId,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let now = self.now;
        let opening = self.opening();
        // Another one is read by now, or none.
        if opening.twin_holders.front() != Some(&from) {
            return;
        }
        let Some(reader) = &mut opening.twin_reader else { return };
        reader.io_done(now, IoDone { id, result, buffer });
        self.go_on_reading_twin();
    }

    fn take_twin(&mut self, reader: Volume) {
        let holders = std::mem::take(&mut self.opening().twin_holders);
        let mask = |mask: MemberMask, member: &MemberIndex| mask.with(MemberMask::of(*member));
        let holders = holders.iter().fold(MemberMask::default(), mask);
        self.region_marks.add_all(&reader.region_marks);
        self.checkpoint.twin_dirty.extend(reader.checkpoint.twin_dirty);
        let twin = self.twin.as_mut().expect("it was looked for");
        twin.map = reader.checkpoint.map;
        twin.number = reader.checkpoint.number;
        twin.next_sequence = reader.journal.next_sequence();
        twin.tail = reader.journal.oldest();
        (twin.holders, twin.whole) = (holders, holders);
        twin.is_behind = true;
    }

    /// Whether it is being read, or lacks something.
    pub(super) fn is_twin_awaited(&self) -> bool {
        self.opening.as_ref().is_some_and(|opening| opening.twin_reader.is_some())
            || self.twin.as_ref().is_some_and(|twin| twin.is_behind)
    }
}

/// What the newest of all labels says.
fn newest_twin(opening: &Opening) -> Option<TwinLabel> {
    let labels = opening.infos.iter().flatten().filter_map(|info| info.label);
    labels.filter_map(|label| label.twin).max_by_key(|twin| twin.generation)
}
