//! The cache-disk on several disks, its *legs*: all hold the same bytes at the same places, so that
//! one of them may fail.
//!
//! A state machine below the engine's own, as a volume is: what the cache and the volume send to
//! [`Device::CacheDisk`] comes here, and what goes on to [`Device::Leg`] comes from here. What they
//! call durable is durable on every leg that counts.
//!
//! ```text
//! write  1. Its regions are marked in the labels of all legs, durable (`marks`).
//!           Crash: nothing was written there.
//!        2. It goes to each leg in sync, and to one that is being filled.
//!           Crash: the legs differ there, and a start copies the region from one to the others.
//!        3. All have it: it is done.
//!        4. One has failed: that leg counts no more (`out`). A membership without it is durable on
//!           the others, and only then anything is called done that it lacks.
//!           Crash before: nobody was told. Crash after: a start does not believe it.
//! read   From the leg that answers soonest; if that fails, from another, and what it could not
//!        read is written there again (`mend`).
//! flush  Of all.
//! ```
//!
//! Who counts is in the labels ([`crate::format::leg_label`]), and whom a start believes in
//! [`choose`]. Several disks that fail one after the other are a matter of time; that of the last
//! leg is the engine's (contracts C22 and C23), as with one disk. A [`witness`] makes a start with
//! one leg of two one that needs nobody.

pub mod choose;
mod copying;
mod fill;
mod kept;
mod labels;
mod marks;
mod opening;
mod out;
mod read;
pub mod status;
#[cfg(test)]
mod tests;
pub mod witness;

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use self::choose::{Choice, Role};
use self::kept::KeptTags;
use self::labels::{LabelWrite, Tags};
use self::marks::Marks;
use self::status::LegCounters;
use self::witness::{Witness, WitnessParts};
use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::format::leg_label::{self, MARKS_MAX, Membership};
use crate::io::{Device, Io, IoData, IoDone, IoError, IoId, IoOperation, IoOwner};
use crate::patience::Patience;
use crate::units::{Duration, LegIndex, Time, Uuid};

/// What a driver gives to open a cache-disk on several legs.
#[derive(Clone, Debug)]
pub struct LegsParts {
    /// Whom it believes. The places of its legs are those of [`Device::Leg`].
    pub choice: Choice,
    /// Of each leg.
    pub uuids: Vec<Uuid>,
    /// Random: names of memberships come from it.
    pub seed: u64,
    /// Most regions that a label marks: as many as a write touches at least, and not more than
    /// [`MARKS_MAX`].
    pub marks_max: usize,
    /// The witness, if one was given.
    pub witness: Option<WitnessParts>,
}

impl LegsParts {
    /// What is chosen of legs with these labels.
    pub fn new(choice: Choice, uuids: Vec<Uuid>, seed: u64) -> LegsParts {
        LegsParts { choice, uuids, seed, marks_max: MARKS_MAX, witness: None }
    }
}

/// Some of the legs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct LegSet(u32);

impl LegSet {
    fn contains(self, leg: LegIndex) -> bool {
        self.0 & 1 << leg.0 != 0
    }

    fn insert(&mut self, leg: LegIndex) {
        self.0 |= 1 << leg.0;
    }

    fn remove(&mut self, leg: LegIndex) {
        self.0 &= !(1 << leg.0);
    }

    fn and(self, other: LegSet) -> LegSet {
        LegSet(self.0 & other.0)
    }

    fn or(self, other: LegSet) -> LegSet {
        LegSet(self.0 | other.0)
    }

    fn without(self, other: LegSet) -> LegSet {
        LegSet(self.0 & !other.0)
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn len(self) -> u32 {
        self.0.count_ones()
    }

    fn first(self) -> Option<LegIndex> {
        (!self.is_empty()).then(|| LegIndex(self.0.trailing_zeros() as u8))
    }

    fn iter(self) -> impl Iterator<Item = LegIndex> {
        (0..u32::BITS as u8).map(LegIndex).filter(move |leg| self.contains(*leg))
    }
}

impl FromIterator<LegIndex> for LegSet {
    fn from_iter<I: IntoIterator<Item = LegIndex>>(legs: I) -> LegSet {
        let mut set = LegSet::default();
        legs.into_iter().for_each(|leg| set.insert(leg));
        set
    }
}

/// What a leg is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LegStanding {
    /// It holds all that is durable.
    InSync,
    /// It holds that too; the labels do not say so yet.
    Joining,
    /// It is being filled.
    Filling,
    /// It is waiting to be filled: it holds what is older.
    Stale,
    /// It has failed.
    Failed(IoError),
    /// Somebody wants to do without it; its disk is there.
    LeftOut,
    /// Somebody has taken it out: its disk is asked for nothing more, and may be closed when it has
    /// answered. It comes back as another leg.
    TakenOut,
}

impl LegStanding {
    /// Whether it has the log in its newest size, or is none any more. One that is to be filled
    /// has superblocks of an earlier size, and needs the room of that of the others.
    pub fn has_newest_size(self) -> bool {
        matches!(self, LegStanding::InSync | LegStanding::TakenOut)
    }
}

struct Leg {
    uuid: Uuid,
    standing: LegStanding,
    /// I/Os that it has not answered.
    in_flight: u32,
    /// Of them, those that are waited for no more.
    given_up: u32,
    /// What a read takes, smoothed.
    read_time: Duration,
    counters: LegCounters,
}

impl Leg {
    fn new(uuid: Uuid, standing: LegStanding) -> Leg {
        Leg {
            uuid,
            standing,
            in_flight: 0,
            given_up: 0,
            read_time: Duration(0),
            counters: LegCounters::default(),
        }
    }

    /// Whether it takes no part any more, unless somebody says so.
    fn is_out(&self) -> bool {
        matches!(
            self.standing,
            LegStanding::Failed(_) | LegStanding::LeftOut | LegStanding::TakenOut
        )
    }

    /// Whether its disk is needed no more.
    fn is_free(&self) -> bool {
        self.standing == LegStanding::TakenOut && self.in_flight == 0
    }

    /// Whether what is called durable must be durable on it.
    fn counts(&self) -> bool {
        matches!(self.standing, LegStanding::InSync | LegStanding::Joining)
    }
}

/// What an I/O of a leg is for.
enum Purpose {
    /// A part of what is wanted of all.
    Part(UpperId),
    Label,
    /// Of the copy with this number.
    Copying(copying::Step, u64),
    OpeningFlush,
    Fill(fill::Step),
    /// To write again what it could not read: these regions.
    Mend(RangeInclusive<u32>),
}

struct LegIo {
    /// `None`: given up.
    purpose: Option<Purpose>,
    leg: LegIndex,
    is_read: bool,
    started: Time,
}

/// Names an [`Upper`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct UpperId(u64);

enum Kind {
    Read {
        offset: u64,
        length: usize,
        /// Legs that could not.
        failed: LegSet,
        /// What `mends_ended` was when they were asked; `None`: they have been asked twice.
        mends_seen: Option<u64>,
    },
    Write(RangeInclusive<u32>),
    /// What it covers, for [`Marks`].
    Flush(u64),
}

/// Who wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asker {
    /// The cache or the volume.
    Above(IoId),
    /// Marks that have no room.
    Marks,
}

/// What is wanted of the cache-disk.
struct Upper {
    asker: Asker,
    kind: Kind,
    buffer: Option<Buffer>,
    /// Legs that have not answered.
    left: u32,
    /// Of a change, legs that have done it, and legs that have not.
    done: LegSet,
    failed: LegSet,
    error: Option<IoError>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LegsPhase {
    Opening,
    Running,
    /// No leg can say who counts, so that nothing can be called done any more. What is there can be
    /// read, so that the cache can rescue it (C22).
    ReadOnly(IoError),
    /// The same, and the legs were not made alike before: what is read may change.
    Failed(IoError),
}

impl LegsPhase {
    fn error(self) -> Option<IoError> {
        match self {
            LegsPhase::Opening | LegsPhase::Running => None,
            LegsPhase::ReadOnly(error) | LegsPhase::Failed(error) => Some(error),
        }
    }
}

/// What the legs want.
pub(crate) enum LegsOutput {
    /// Start this.
    Io(Io),
    /// This I/O of the cache or of the volume has ended.
    Done(IoDone),
}

/// The legs. The engine owns them and drives them.
pub struct Legs {
    cache: Uuid,
    /// Bytes of the cache-disk in use.
    end: u64,
    region_bytes: u64,
    legs: Vec<Leg>,
    /// Legs of the membership that are not there.
    missing: Vec<Uuid>,
    witness: Option<Witness>,
    /// That of the membership, if it is not there.
    witness_missing: Option<Uuid>,
    /// Legs that a start may believe on the word of a witness, as its labels may be.
    witness_knows: Vec<Uuid>,
    phase: LegsPhase,
    /// The newest that any leg may have.
    membership: Membership,
    /// Of the last label.
    number: u64,
    tags: Tags,
    kept_tags: KeptTags,
    marks: Marks,
    label_write: Option<LabelWrite>,
    opening: Option<opening::Opening>,
    fill: Option<fill::Fill>,
    /// Regions whose copy was begun.
    copies_begun: u64,
    is_flushing_for_marks: bool,
    uppers: BTreeMap<UpperId, Upper>,
    next_upper: u64,
    ios: BTreeMap<IoId, LegIo>,
    next_io: u64,
    /// What waits for marks, for the opening, or for a region that is being copied.
    waiting: VecDeque<Io>,
    /// Whether some of that may go on.
    look_at_waiting: bool,
    /// Regions that are being written again.
    mending: Vec<RangeInclusive<u32>>,
    mends_ended: u64,
    /// Reads that no leg could answer, where one is being mended.
    reads_behind_mends: Vec<(UpperId, Buffer)>,
    /// Which leg has read what, of late; and what it read wrongly.
    recent_reads: VecDeque<read::RecentRead>,
    doubts: Vec<read::Doubt>,
    /// Done, but for the membership without a leg that lacks it.
    held: Vec<IoDone>,
    outputs: VecDeque<LegsOutput>,
    patience: Patience,
    timeout: Duration,
    /// Most bytes per second of a fill; 0: no limit.
    fill_rate: u64,
    primary: LegIndex,
}

impl Legs {
    /// So much of the cache-disk is in use from now on.
    pub(crate) fn set_end(&mut self, end_bytes: u64) {
        self.end = end_bytes;
        self.marks.extend_to(end_bytes);
    }

    /// More of the cache-disk is about to be used.
    pub(crate) fn extend_end(&mut self, end_bytes: u64) {
        self.set_end(self.end.max(end_bytes));
    }

    /// # Errors
    /// If the labels have regions that are too small for this disk.
    pub(crate) fn open(
        now: Time,
        parts: LegsParts,
        end_bytes: u64,
        timeout: Duration,
    ) -> Result<Legs, FormatError> {
        let LegsParts { choice, uuids, seed, marks_max, witness } = parts;
        let label = choice.label;
        let region_bytes = u64::from(label.region_bytes);
        let leg = |(uuid, role): (&Uuid, &Role)| match role {
            Role::InSync => Leg::new(*uuid, LegStanding::InSync),
            Role::Stale => Leg::new(*uuid, LegStanding::Stale),
            Role::LeftOut => Leg::new(*uuid, LegStanding::LeftOut),
        };
        let marks = Marks::new(region_bytes, end_bytes, marks_max.min(MARKS_MAX));
        let marks = marks.ok_or_else(|| leg_label::field("region_bytes", region_bytes))?;
        // A forged label may mark what is not there.
        let regions = label.marks.iter().copied().filter(|region| *region < marks.count());
        Ok(Legs {
            cache: label.cache,
            end: end_bytes,
            region_bytes,
            legs: uuids.iter().zip(&choice.roles).map(leg).collect(),
            missing: choice.missing,
            witness: witness.map(|parts| Witness::new(now, parts)),
            witness_missing: choice.witness_missing,
            witness_knows: choice.witness_knows,
            phase: LegsPhase::Opening,
            membership: label.membership,
            number: label.number,
            tags: Tags::new(seed),
            kept_tags: KeptTags::new(choice.stale_tags),
            opening: Some(opening::Opening::new(regions.collect())),
            marks,
            label_write: None,
            fill: None,
            copies_begun: 0,
            is_flushing_for_marks: false,
            uppers: BTreeMap::new(),
            next_upper: 0,
            ios: BTreeMap::new(),
            next_io: 0,
            waiting: VecDeque::new(),
            look_at_waiting: false,
            mending: Vec::new(),
            mends_ended: 0,
            reads_behind_mends: Vec::new(),
            recent_reads: VecDeque::new(),
            doubts: Vec::new(),
            held: Vec::new(),
            outputs: VecDeque::new(),
            patience: Patience::new(now, timeout),
            timeout,
            fill_rate: 0,
            primary: LegIndex(choice.primary as u8),
        })
    }

    /// Whether the legs are still being made alike.
    pub(crate) fn is_opening(&self) -> bool {
        self.phase == LegsPhase::Opening
    }

    /// `fill_rate`: most bytes per second of a fill; 0: no limit.
    pub(crate) fn configure(&mut self, timeout: Duration, fill_rate: u64) {
        (self.timeout, self.fill_rate) = (timeout, fill_rate);
    }

    pub(crate) fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Takes an I/O for the cache-disk.
    pub(crate) fn submit(&mut self, io: Io) {
        if let Some(io) = self.start(io) {
            self.waiting.push_back(io);
        }
    }

    /// Starts it; gives it back if it has to wait.
    fn start(&mut self, io: Io) -> Option<Io> {
        match self.phase {
            LegsPhase::Opening => return Some(io),
            LegsPhase::Failed(error) => {
                self.refuse(io, error);
                return None;
            }
            LegsPhase::ReadOnly(error) if !matches!(io.operation, IoOperation::Read { .. }) => {
                self.refuse(io, error);
                return None;
            }
            LegsPhase::Running | LegsPhase::ReadOnly(_) => {}
        }
        let Io { id, device, operation } = io;
        match operation {
            IoOperation::Read { offset, buffer } => {
                let (length, failed) = (buffer.len(), LegSet::default());
                let kind =
                    Kind::Read { offset, length, failed, mends_seen: Some(self.mends_ended) };
                let upper = self.add_upper(Asker::Above(id), kind, 0);
                self.read_from_a_leg(upper, buffer);
            }
            IoOperation::Flush => self.flush(Asker::Above(id)),
            IoOperation::Write { offset, data, fua } => {
                let length = match &data {
                    IoData::Owned(buffer) => buffer.len() as u64,
                    IoData::SegmentMemory(range) => range.len() as u64,
                };
                let regions = self.marks.regions_of(offset, length);
                if !self.may_change(&regions) {
                    let operation = IoOperation::Write { offset, data, fua };
                    return Some(Io { id, device, operation });
                }
                self.start_write(id, regions, offset, data, fua);
            }
            IoOperation::WriteZeroes { .. } => unreachable!("only data-disks are zeroed"),
        }
        None
    }

    fn flush(&mut self, asker: Asker) {
        let legs = self.legs_that_take_changes();
        let covers = self.marks.flush_begins();
        let upper = self.add_upper(asker, Kind::Flush(covers), legs.len());
        for leg in legs.iter() {
            self.start_io(leg, IoOperation::Flush, Purpose::Part(upper));
        }
    }

    fn start_write(
        &mut self,
        id: IoId,
        regions: RangeInclusive<u32>,
        offset: u64,
        data: IoData,
        fua: bool,
    ) {
        let legs = self.legs_that_take_changes();
        self.marks.write_begins(regions.clone());
        let upper = self.add_upper(Asker::Above(id), Kind::Write(regions), legs.len());
        let mut data = Some(data);
        let mut left = legs;
        while let Some(leg) = left.first() {
            left.remove(leg);
            let is_last = left.is_empty();
            let data = match &data {
                _ if is_last => data.take().expect("the last takes it"),
                Some(IoData::Owned(buffer)) => IoData::Owned(buffer.clone()),
                Some(IoData::SegmentMemory(range)) => IoData::SegmentMemory(range.clone()),
                None => unreachable!("the last takes it"),
            };
            let operation = IoOperation::Write { offset, data, fua };
            self.start_io(leg, operation, Purpose::Part(upper));
        }
    }

    /// Whether these regions may be written now.
    fn may_change(&mut self, regions: &RangeInclusive<u32>) -> bool {
        let is_marked = self.marks.may_write(regions.clone());
        let is_copied = self.region_being_copied().is_some_and(|it| regions.contains(&it));
        is_marked && !is_copied && !self.is_mended_now(regions)
    }

    fn refuse(&mut self, io: Io, error: IoError) {
        let buffer = match io.operation {
            IoOperation::Read { buffer, .. }
            | IoOperation::Write { data: IoData::Owned(buffer), .. } => Some(buffer),
            _ => None,
        };
        let done = IoDone { id: io.id, result: Err(error), buffer };
        self.outputs.push_back(LegsOutput::Done(done));
    }

    fn add_upper(&mut self, asker: Asker, kind: Kind, left: u32) -> UpperId {
        let upper = UpperId(self.next_upper);
        self.next_upper += 1;
        let (done, failed) = (LegSet::default(), LegSet::default());
        let value = Upper { asker, kind, buffer: None, left, done, failed, error: None };
        self.uppers.insert(upper, value);
        upper
    }

    /// Those that count, and one that is being filled.
    fn legs_that_take_changes(&self) -> LegSet {
        let takes = |(_, leg): &(LegIndex, &Leg)| {
            leg.counts() || leg.standing == LegStanding::Filling && self.filling_takes_changes()
        };
        self.indexed().filter(takes).map(|(index, _)| index).collect()
    }

    fn legs_that_count(&self) -> LegSet {
        self.indexed().filter(|(_, leg)| leg.counts()).map(|(index, _)| index).collect()
    }

    fn indexed(&self) -> impl Iterator<Item = (LegIndex, &Leg)> {
        self.legs.iter().enumerate().map(|(index, leg)| (LegIndex(index as u8), leg))
    }

    pub(crate) fn index_of(&self, leg: Uuid) -> Option<LegIndex> {
        self.indexed().find(|(_, known)| known.uuid == leg).map(|(index, _)| index)
    }

    fn leg(&self, leg: LegIndex) -> &Leg {
        &self.legs[usize::from(leg.0)]
    }

    fn leg_mut(&mut self, leg: LegIndex) -> &mut Leg {
        &mut self.legs[usize::from(leg.0)]
    }

    fn start_io(&mut self, leg: LegIndex, operation: IoOperation, purpose: Purpose) {
        let id = IoId::of(IoOwner::Legs, self.next_io);
        self.next_io += 1;
        let is_read = matches!(operation, IoOperation::Read { .. });
        let started = self.patience.now();
        self.ios.insert(id, LegIo { purpose: Some(purpose), leg, is_read, started });
        self.leg_mut(leg).in_flight += 1;
        self.outputs.push_back(LegsOutput::Io(Io { id, device: Device::Leg(leg), operation }));
    }

    /// An I/O of a leg has ended.
    pub(crate) fn io_done(&mut self, done: IoDone) {
        if self.witness_io_done(&done) {
            return;
        }
        let io = self.ios.remove(&done.id).expect("an I/O that was started");
        let waited = self.patience.waited(io.started);
        let leg = self.leg_mut(io.leg);
        leg.in_flight -= 1;
        let Some(purpose) = io.purpose else {
            leg.given_up -= 1;
            return;
        };
        if done.result.is_err() {
            leg.counters.errors += 1;
        }
        if io.is_read && done.result.is_ok() {
            leg.read_time = Duration((leg.read_time.0 * 7 + waited.0) / 8);
        }
        self.dispatch_done(purpose, io.leg, done.result, done.buffer);
    }

    fn dispatch_done(
        &mut self,
        purpose: Purpose,
        leg: LegIndex,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        match purpose {
            Purpose::Part(upper) => self.part_done(upper, leg, result, buffer),
            Purpose::Label => self.label_done(leg, result),
            Purpose::Copying(step, number) => {
                self.copying_done(step, number, leg, result, buffer);
            }
            Purpose::OpeningFlush => self.opening_flushed(leg, result),
            Purpose::Fill(step) => self.fill_done(step, leg, result),
            Purpose::Mend(regions) => self.mended(&regions, leg, result),
        }
    }

    /// A leg has done its part, or has not.
    fn part_done(
        &mut self,
        id: UpperId,
        leg: LegIndex,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let upper = self.uppers.get(&id).expect("it has parts left");
        if let Kind::Read { .. } = upper.kind {
            return self.read_done(id, leg, result, buffer);
        }
        let upper = self.uppers.get_mut(&id).expect("looked at");
        upper.left -= 1;
        upper.buffer = upper.buffer.take().or(buffer);
        match result {
            Ok(()) => upper.done.insert(leg),
            Err(error) => {
                upper.failed.insert(leg);
                upper.error = Some(upper.error.unwrap_or(error));
            }
        }
        let is_over = upper.left == 0;
        // A leg that is gone, or being filled, has failed whatever the others do.
        if let Err(error) = result
            && (matches!(error, IoError::Gone | IoError::TimedOut) || !self.leg(leg).counts())
        {
            self.leg_failed(leg, error);
        }
        if is_over {
            self.end_change(id);
        }
    }

    /// All have answered.
    fn end_change(&mut self, id: UpperId) {
        let upper = self.uppers.remove(&id).expect("it ends once");
        let Upper { asker, kind, buffer, done, failed, error, .. } = upper;
        let counting = self.legs_that_count();
        // 1. A leg that lacks what another has counts no more. What none of them has done has
        //    failed as on one disk.
        let is_done = !done.and(counting).is_empty();
        let lacking = failed.and(counting);
        let error = error.unwrap_or(IoError::Gone);
        let result = if is_done { Ok(()) } else { Err(error) };
        match kind {
            Kind::Write(regions) => {
                self.marks.write_ended(regions);
                self.look_at_waiting = true;
            }
            Kind::Flush(covers) if is_done && lacking.is_empty() => self.marks.flushed(covers),
            Kind::Flush(_) | Kind::Read { .. } => {}
        }
        if is_done {
            lacking.iter().for_each(|leg| self.leg_failed(leg, error));
        }
        // 2. It is done behind the membership without those.
        match asker {
            Asker::Above(id) => self.held.push(IoDone { id, result, buffer }),
            Asker::Marks => self.flushed_for_marks(result),
        }
    }

    /// Lets everything go on that can.
    pub(crate) fn advance(&mut self) {
        self.give_up_late();
        loop {
            let mut moved = self.advance_opening();
            moved |= self.start_waiting();
            moved |= self.advance_fill();
            moved |= self.advance_labels();
            moved |= self.look_after_witness();
            moved |= self.release_held();
            if !moved {
                return;
            }
        }
    }

    fn start_waiting(&mut self) -> bool {
        if !std::mem::take(&mut self.look_at_waiting) || self.waiting.is_empty() {
            return false;
        }
        let before = self.waiting.len();
        self.marks.nothing_is_needed();
        for io in std::mem::take(&mut self.waiting) {
            self.submit(io);
        }
        self.waiting.len() < before
    }

    /// Tells what has ended, unless somebody would be answered while a start may still believe a
    /// leg that lacks it.
    fn release_held(&mut self) -> bool {
        if self.held.is_empty() || self.is_writing_out() {
            return false;
        }
        let failed = self.phase.error();
        for done in self.held.drain(..) {
            let result = failed.map_or(done.result, Err);
            self.outputs.push_back(LegsOutput::Done(IoDone { result, ..done }));
        }
        true
    }

    pub(crate) fn poll(&mut self) -> Option<LegsOutput> {
        self.outputs.pop_front()
    }
}
