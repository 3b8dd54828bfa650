//! Opening: from what the cache-disk has to a volume that takes I/O.
//!
//! ```text
//! 1. The newer valid root. Nothing is written before step 5.
//! 2. Its pages: the root names the top of the map, which names others, and so on. Of those with
//!    checksums only the ones that have lost lines: they are counted. The others are read when they
//!    are wanted (sums.rs).
//! 3. The journal from the tail on: changes of the tables, and lines, whose checksums are read. The
//!    cache-disk is flushed.
//!      A record that was being written when the process died may be there and not be durable.
//!      Without the flush, a power cut in step 5 could take it away when its lines are on some
//!      members and not on others, or behind step 6, where it would leave a hole before a record
//!      that is durable.
//! 4. Members: which are there, and whose label is as new as the journal says. One that is older
//!    than what the journal knows of that member is a copy of an earlier time: nothing tells what
//!    it has missed of RAID 0 sets, so it is refused.
//!    What one is marked to have missed counts if its disk is as it was left
//!    ([`super::super::missed`]); what one has missed that is not there now begins to be marked.
//!    Then the twin ([`super::twin`]) is read, and told what it lacks: above all, which lines step 5
//!    may change.
//! 5. The lines are written again, to members that count; those are flushed.
//!      Crash here: the same again.
//! 6. Members that do not count are recorded as stale, durable.
//!      Before step 8 they have an old label; behind it only the record tells.
//! 7. What a disk took along of RAID 0 sets in whose place there is a blank one, or an older copy
//!    that somebody takes all the same, is noted in the tables, durable (lost.rs).
//!      Before step 8 the disk looks blank, or old, to the next start too; behind it only the
//!      tables tell.
//! 8. Labels with the next epoch, flushed: of each member the copy that is not its newest.
//!      Crash here: one copy may be torn, and the other is whole. With one copy a torn label would
//!      look like a blank disk.
//! 9. The epoch is recorded, with the members that have its label. One that is not there now will
//!    have an old label from now on.
//!      Before step 8 it would make all members stale after a crash.
//! ```

mod examine;
mod members;
mod tables;
mod twin;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::journal::Then;
use super::sums::PageRun;
use crate::buffer::Buffer;
use crate::error::{FormatError, VolumeOpenError};
use crate::io::{Device, IoError, IoId, IoOperation};
use crate::units::{LINE_SIZE, MemberIndex};
use crate::volume::format::journal::JournalRecord;
use crate::volume::format::page::PageIndex;
use crate::volume::format::root::{ROOT_BYTES, Root};
use crate::volume::members::MemberInfo;
use crate::volume::{Purpose, Volume, VolumePhase};

/// Lines read at once.
const READ_LINES: u64 = 256;
/// Reads, or lines written again, at a time.
const IN_FLIGHT_MAX: usize = 32;

/// What an I/O of an opening is for.
#[derive(Clone, Copy, Debug)]
pub(in crate::volume) enum Step {
    Root(usize),
    Pages(PageRun),
    /// Lines of the journal from this one on.
    Ring(u64),
    RingFlush,
    Redo(MemberIndex),
    RedoFlush(MemberIndex),
    Label(MemberIndex),
    LabelFlush(MemberIndex),
    /// An I/O of the reader of a twin.
    Twin(MemberIndex, IoId),
}

/// Where an opening stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Roots,
    Pages,
    Ring,
    Sums,
    RingFlush,
    Twin,
    Redo,
    RedoFlush,
    States,
    LostLines,
    Labels,
    LabelFlush,
    Epoch,
}

/// A line that is written again: set, stripe, row, column.
type Cell = (u8, u64, u32, u32);

/// A record of the journal that counts.
struct FoundRecord {
    record: JournalRecord,
    /// Where it begins.
    line: u64,
    /// Lines that it takes, with those before it that nothing is in.
    lines: u64,
}

/// Which pages are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reads {
    /// What a start keeps.
    AsStart,
    /// All are looked at, and only those kept that a start keeps.
    All,
    /// The map, and marks.
    Map,
}

/// An opening under way.
pub(in crate::volume) struct Opening {
    infos: Vec<Option<MemberInfo>>,
    stage: Stage,
    roots: [Result<Root, FormatError>; 2],
    root_error: Option<IoError>,
    /// I/Os that have not been started.
    todo: VecDeque<(Device, IoOperation, Step)>,
    in_flight: usize,
    /// Pages that the map names and that are not being read yet.
    pages_left: Vec<PageRun>,
    /// A page that counts is not there.
    is_page_lost: bool,
    pub(super) reads: Reads,
    /// What is read is a twin, and pages of checksums that it may lack.
    pub(super) is_twin: bool,
    sums_unreadable: Vec<PageIndex>,
    /// Who may have the twin; the first is being read.
    twin_holders: VecDeque<MemberIndex>,
    twin_reader: Option<Box<Volume>>,
    records: Vec<FoundRecord>,
    ring: Vec<u8>,
    /// Lines of the journal that could not be read.
    unreadable: Vec<u64>,
    /// What belongs there: bytes of the ring from here on, or zeroes.
    redo: BTreeMap<Cell, Option<usize>>,
    /// A blank disk has come to the place of one that had lines of RAID 0 sets.
    has_lost_lines: bool,
    /// Members whose lines of RAID 0 sets are given up: blank ones, and copies of an earlier time.
    given_up: BTreeSet<MemberIndex>,
}

impl Opening {
    pub(in crate::volume) fn new(infos: Vec<Option<MemberInfo>>) -> Opening {
        let short = || {
            Err(FormatError::Short {
                what: "the root of the volume",
                expected: ROOT_BYTES,
                found: 0,
            })
        };
        Opening {
            infos,
            stage: Stage::Roots,
            roots: [short(), short()],
            root_error: None,
            todo: VecDeque::new(),
            in_flight: 0,
            pages_left: Vec::new(),
            is_page_lost: false,
            reads: Reads::AsStart,
            is_twin: false,
            sums_unreadable: Vec::new(),
            twin_holders: VecDeque::new(),
            twin_reader: None,
            records: Vec::new(),
            ring: Vec::new(),
            unreadable: Vec::new(),
            redo: BTreeMap::new(),
            has_lost_lines: false,
            given_up: BTreeSet::new(),
        }
    }
}

impl Volume {
    pub(super) fn opening(&mut self) -> &mut Opening {
        self.opening.as_mut().expect("it is being opened")
    }

    /// A disk is found to be this member.
    pub(super) fn put_member_info(&mut self, member: MemberIndex, info: MemberInfo) {
        self.opening().infos[usize::from(member.0)] = Some(info);
    }

    pub(super) fn want(&mut self, device: Device, operation: IoOperation, step: Step) {
        self.opening().todo.push_back((device, operation, step));
    }

    pub(super) fn want_read_of_cache_disk(&mut self, offset: u64, length: u64, step: Step) {
        let buffer = Buffer::zeroed(length as usize);
        self.want(Device::CacheDisk, IoOperation::Read { offset, buffer }, step);
    }

    /// Step 1.
    pub(in crate::volume) fn start_opening(&mut self) {
        for place in 0..2 {
            let offset = self.area.root_offset(place as u64);
            self.want_read_of_cache_disk(offset, ROOT_BYTES as u64, Step::Root(place));
        }
    }

    pub(in crate::volume) fn advance_opening(&mut self) {
        loop {
            while let Some(opening) = &mut self.opening
                && opening.in_flight < IN_FLIGHT_MAX
                && let Some((device, operation, step)) = opening.todo.pop_front()
            {
                opening.in_flight += 1;
                self.start_io(device, operation, Purpose::Open(step));
            }
            self.read_more_pages();
            let Some(opening) = &self.opening else { return };
            if opening.in_flight > 0 || self.phase != VolumePhase::Opening {
                return;
            }
            if let Err(error) = self.next_stage() {
                self.phase = VolumePhase::Failed(error);
                return;
            }
            // Steps 6 and 9 wait for the journal, step 7 for its pages.
            if self.opening.as_ref().is_none_or(|opening| opening.todo.is_empty()) {
                while self.advance_journal() || self.advance_twin() {}
                // The members have all that the journal speaks of.
                if self.journal.is_full() {
                    self.advance_checkpoint();
                }
                let is_quiet = self.journal.is_idle() && self.is_twin_quiet();
                if !is_quiet || !self.is_checkpoint_idle() || self.opening.is_none() {
                    return;
                }
            }
        }
    }

    fn next_stage(&mut self) -> Result<(), VolumeOpenError> {
        let stage = self.opening().stage;
        let next = match stage {
            Stage::Roots => {
                self.choose_root()?;
                Stage::Pages
            }
            Stage::Pages => {
                self.check_pages()?;
                Stage::Ring
            }
            Stage::Ring => {
                self.find_records()?;
                Stage::Sums
            }
            Stage::Sums => {
                self.replay()?;
                self.want(Device::CacheDisk, IoOperation::Flush, Step::RingFlush);
                Stage::RingFlush
            }
            Stage::RingFlush => {
                self.look_at_members()?;
                self.find_twin();
                Stage::Twin
            }
            Stage::Twin if self.is_twin_awaited() => Stage::Twin,
            Stage::Twin => {
                self.write_lines_again();
                Stage::Redo
            }
            Stage::Redo => {
                for index in self.present() {
                    self.want(Device::Member(index), IoOperation::Flush, Step::RedoFlush(index));
                }
                Stage::RedoFlush
            }
            // Step 6: what look_at_members and the steps since have found.
            Stage::RedoFlush => Stage::States,
            Stage::States if !self.state_changes.is_empty() => Stage::States,
            Stage::States => {
                if self.opening().has_lost_lines {
                    self.checkpoint_tables();
                }
                Stage::LostLines
            }
            Stage::LostLines if !self.is_checkpoint_idle() => Stage::LostLines,
            Stage::LostLines if self.has_checkpoint_failed() => {
                return Err(VolumeOpenError::Unwritable);
            }
            // Once more, for the other root: a start from the older of two would believe what is on
            // the disks, since no record says that it is lost.
            Stage::LostLines if std::mem::take(&mut self.opening().has_lost_lines) => {
                self.checkpoint_tables();
                Stage::LostLines
            }
            Stage::LostLines => {
                self.write_labels();
                Stage::Labels
            }
            Stage::Labels => {
                for index in self.present() {
                    self.want(Device::Member(index), IoOperation::Flush, Step::LabelFlush(index));
                }
                Stage::LabelFlush
            }
            Stage::LabelFlush => {
                self.epoch += 1;
                for index in self.present() {
                    let epoch = self.epoch;
                    let member = self.members.get_mut(index);
                    if !member.has_old_label {
                        member.label_epoch = epoch;
                        member.label_copy = 1 - member.label_copy;
                    }
                }
                let epoch = self.epoch_item();
                self.journal_items(vec![epoch], Then::Opened);
                Stage::Epoch
            }
            Stage::Epoch => Stage::Epoch,
        };
        self.opening().stage = next;
        Ok(())
    }

    pub(in crate::volume) fn open_io_done(
        &mut self,
        step: Step,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        self.opening().in_flight -= 1;
        match (step, result, buffer) {
            (Step::Root(place), Ok(()), Some(buffer)) => {
                let uuid = self.header.uuid;
                self.opening().roots[place] = Root::decode(buffer.bytes(), uuid);
            }
            (Step::Root(_), Err(error), _) => self.opening().root_error = Some(error),
            (Step::Pages(run), Ok(()), Some(buffer)) => self.take_pages(run, buffer.bytes()),
            (Step::Pages(_), ..) => self.opening().is_page_lost = true,
            (Step::Ring(first), Ok(()), Some(buffer)) => {
                let at = (first * LINE_SIZE) as usize;
                self.opening().ring[at..at + buffer.len()].copy_from_slice(buffer.bytes());
            }
            (Step::RingFlush, Ok(()), _) => {}
            (Step::RingFlush, Err(_), _) => {
                self.phase = VolumePhase::Failed(VolumeOpenError::Unwritable);
            }
            (Step::Ring(first), ..) => self.opening().unreadable.push(first),
            (Step::Twin(from, id), result, buffer) => self.twin_part_read(from, id, result, buffer),
            (
                Step::Redo(member)
                | Step::RedoFlush(member)
                | Step::Label(member)
                | Step::LabelFlush(member),
                Err(_),
                _,
            ) => {
                if matches!(step, Step::Label(_) | Step::LabelFlush(_)) {
                    self.members.get_mut(member).has_old_label = true;
                }
                // Where the others cannot do without it, reads will see from checksums what is not
                // there.
                let is_lost = !self.do_without(member);
                if is_lost && matches!(step, Step::Redo(_) | Step::RedoFlush(_)) {
                    self.hold_records();
                }
                if matches!(step, Step::Label(_) | Step::LabelFlush(_)) {
                    self.leave_out_if_given_up(member);
                }
            }
            (
                Step::Redo(_) | Step::RedoFlush(_) | Step::Label(_) | Step::LabelFlush(_),
                Ok(()),
                _,
            )
            | (Step::Root(_), Ok(()), None) => {}
        }
    }

    fn present(&self) -> Vec<MemberIndex> {
        self.members
            .iter()
            .filter(|(_, member)| member.is_present)
            .map(|(index, _)| index)
            .collect()
    }

    /// The epoch is durable, or the journal has failed.
    pub(super) fn opened(&mut self, result: Result<(), IoError>) {
        if result.is_err() {
            self.phase = VolumePhase::Failed(VolumeOpenError::Unwritable);
            return;
        }
        self.opening = None;
        self.phase = VolumePhase::Running;
        self.migration.look_at_all();
        self.resume_rebuild();
        self.read_sums_for_later();
        for io in std::mem::take(&mut self.early) {
            self.submit(self.now, io);
        }
    }
}
