//! Rebuilding a member, scrubbing, and copying a member to the disk that takes its place
//! ([`super::replace`]): every stripe once.
//!
//! ```text
//! 1. A window of stripes is taken, in order, when the journal knows that the member is not up to
//!    date: a write that is torn would be believed. While a stripe of a rebuild is in the window,
//!    changes of the stripe wait.
//! 2. The jobs of stripe.rs read the others and write what belongs on the member, or repair what a
//!    scrub finds.
//! 3. When the first of the window is done, it counts as up to date: changes write it there again.
//! 4. At the end the member gets a label of this opening, if it could not be written then.
//!      Without it the next start would take it for old. A label that is good is let alone: torn,
//!      the disk would look blank.
//! 5. From time to time, and at the end, the member is flushed and the journal is told how far it
//!    is.
//!      Crash before: it begins again where the journal says; what is there already is written once
//!      more.
//! ```
//! Stripes in which nothing was ever written cost nothing.
//!
//! A member of which is marked what it has missed ([`super::super::missed`]) gets that alone. The
//! other stripes count as there when the next of them is taken. In none of them is a change under
//! way that leaves the member out: one that began before is waited for, in its stripe, and its
//! region is marked by then.

use std::collections::{BTreeMap, BTreeSet};

use super::super::format::journal::JournalItem;
use super::super::format::root::MemberState;
use super::super::placement::RaidLevel;
use super::super::{Purpose, Volume};
use super::flush::For;
use super::grow::GrowthCutShort;
use super::job::{ChunkKey, Job, Kind, TRIES_MAX};
use super::journal::Then;
use super::replace::CutShort;
use crate::io::{Device, IoError, IoOperation, VolumeError};
use crate::units::{Duration, LINE_SIZE, MemberIndex, Time};
use crate::volume::raid::{Location, SetLine};

/// Stripes at a time, while nothing else is wanted, and else.
const WINDOW_IDLE: usize = 8;
const WINDOW_BUSY: usize = 1;
/// Stripes after which progress is recorded.
const PROGRESS_STRIPES: u64 = 4096;
/// Stripes taken behind one input: those in which nothing is placed end at once, and a large volume
/// has millions of them. Some 10 us each.
const STRIPES_AT_ONCE_MAX: usize = 64;
/// When the next are taken if nothing else happens: whoever waits has his turn between.
pub(super) const PAUSE: Duration = Duration::from_micros(1);

/// The next stripe of work that is not to go on.
const CANCELLED: (u8, u64) = (u8::MAX, 0);
/// Behind every stripe: all is there.
const WHOLE: (u8, u64) = (u8::MAX, u64::MAX);

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkKind {
    /// What belongs on a member is written there.
    Rebuild(MemberIndex),
    /// Everything is read and compared.
    Scrub,
    /// What is on a member is copied to the disk that takes its place.
    Replace(MemberIndex),
}

/// What is under way.
struct Work {
    kind: WorkKind,
    /// Only what is marked is rebuilt.
    is_of_missed: bool,
    /// The next stripe to be taken.
    next: (u8, u64),
    /// Chunks that are left of stripes in the window.
    window: BTreeMap<(u8, u64), BTreeSet<u32>>,
    stripes_done: u64,
    stripes_total: u64,
    bytes_done: u64,
    bytes_total: u64,
    lines_unreadable: u64,
    lines_not_compared: u64,
    lines_compared: u64,
    /// Of a scrub: nobody has asked for it.
    is_by_time: bool,
    /// When it began, or went on, and with what.
    began_at: Time,
    began_with_bytes: u64,
    /// Where one stopped that is not to go on.
    stopped_at: Option<(u8, u64)>,
    recorded_at: u64,
    /// What the member was told to have before the flush that is under way.
    recorded: (u8, u64),
    /// A stripe could not be written.
    has_failed: bool,
    /// Chunks that are tried again, and how often they were tried.
    tries: BTreeMap<ChunkKey, u32>,
    mismatches: u64,
    /// All stripes are done: waits for the flush.
    is_ending: bool,
    is_flushing: bool,
}

/// How far a rebuild or scrub is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkStatus {
    /// Which of them.
    pub kind: WorkKind,
    /// A member gets what it has missed while it was away, and no more.
    pub is_of_missed: bool,
    /// Stripes that are done ...
    pub stripes_done: u64,
    /// ... of these.
    pub stripes_total: u64,
    /// The same in bytes of the members that are read or written ...
    pub bytes_done: u64,
    /// ... of these.
    pub bytes_total: u64,
    /// Lines that were not what they should have been.
    pub mismatches: u64,
    /// Lines that nobody could read: for them a member was not replaced.
    pub lines_unreadable: u64,
    /// Lines that a scrub has passed by, because their checksums cannot be read.
    pub lines_not_compared: u64,
    /// A scrub that nobody has asked for.
    pub is_by_time: bool,
    /// Of `bytes_done`, since it began or went on.
    pub bytes_per_second: u64,
    /// It has come, or comes, to its end before all is done.
    pub is_cut_short: bool,
    /// Why, of a disk that was to take the place of a member.
    pub cut_short: Option<CutShort>,
}

/// A rebuild or scrub, if one is under way.
#[derive(Default)]
pub(in crate::volume) struct Repair {
    work: Option<Work>,
    /// Stripes, and sets, that were looked at since the last input.
    taken: usize,
    /// To be rebuilt as soon as that can be.
    next: BTreeSet<MemberIndex>,
    /// The last that has ended.
    pub(in crate::volume) last: Option<WorkStatus>,
}

impl Repair {
    /// The next stripes may be taken.
    pub(in crate::volume) fn input_came(&mut self) {
        self.taken = 0;
    }

    /// When the next stripes may be taken, if as many as may be were.
    pub(in crate::volume) fn wake_up(&self, now: Time) -> Option<Time> {
        let has_paused = self.work.is_some() && self.taken >= STRIPES_AT_ONCE_MAX;
        has_paused.then(|| now.after(PAUSE))
    }

    /// Whether a stripe is being rebuilt.
    pub(in crate::volume) fn is_at(&self, set: u8, stripe: u64) -> bool {
        self.work.as_ref().is_some_and(|work| {
            matches!(work.kind, WorkKind::Rebuild(_)) && work.window.contains_key(&(set, stripe))
        })
    }

    /// A member is to be rebuilt when nothing else is under way.
    pub(super) fn rebuild_next(&mut self, member: MemberIndex) {
        self.next.insert(member);
    }

    /// Whether anything is under way.
    pub(in crate::volume) fn is_under_way(&self) -> bool {
        self.work.is_some()
    }

    /// Whether one is that somebody has asked for, or that is of a member.
    pub(super) fn is_under_way_by_hand(&self) -> bool {
        self.is_under_way() && !self.is_scrub_by_time()
    }

    /// The scrub that was begun: who wants it, and what was found before.
    pub(super) fn is_scrub(&mut self, is_by_time: bool, found: u64) {
        if let Some(work) = &mut self.work {
            (work.is_by_time, work.mismatches) = (is_by_time, found);
        }
    }

    /// Whether a scrub is under way that nobody has asked for.
    pub(super) fn is_scrub_by_time(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.is_by_time)
    }

    /// Where a scrub is, and what it has found.
    pub(super) fn scrub_place(&self) -> Option<((u8, u64), u64)> {
        let work = self.work.as_ref().filter(|work| work.kind == WorkKind::Scrub)?;
        Some((work.place(), work.mismatches))
    }

    /// A scrub that nobody has asked for is under way no more: where it was, what it has found, and
    /// whether somebody had stopped it.
    pub(super) fn drop_scrub_by_time(&mut self) -> Option<((u8, u64), u64, bool)> {
        let (place, found) = self.scrub_place().filter(|_| self.is_scrub_by_time())?;
        let work = self.work.take()?;
        Some((place, found, work.next == CANCELLED && !work.has_failed))
    }

    /// Whether a scrub waits until it may take the next stripe.
    pub(super) fn waits_for_time(&self) -> bool {
        let is_waiting = |work: &Work| !work.is_ending && work.window.is_empty();
        self.is_scrub_by_time() && self.work.as_ref().is_some_and(is_waiting)
    }

    /// Whether somebody is to be rebuilt.
    pub(super) fn is_anything_next(&self) -> bool {
        !self.next.is_empty()
    }

    /// Whether something is being copied to another disk.
    pub(super) fn is_copying(&self) -> bool {
        self.work.as_ref().is_some_and(|work| matches!(work.kind, WorkKind::Replace(_)))
    }

    /// Whether all of it is there.
    pub(super) fn is_copied(&self) -> bool {
        self.work
            .as_ref()
            .is_some_and(|work| work.is_ending && work.window.is_empty() && work.next != CANCELLED)
    }
}

impl Work {
    /// The first stripe that is not done.
    fn place(&self) -> (u8, u64) {
        let first = self.window.first_key_value().map_or(self.next, |(key, _)| *key);
        self.stopped_at.unwrap_or(first)
    }

    /// It does not go on. What is under way ends.
    fn cut_short(&mut self) {
        self.stopped_at = Some(self.place());
        self.is_ending = true;
        self.next = CANCELLED;
    }

    /// Whether a job is of what is under way: those of a scrub that was set aside end later.
    fn is_of(&self, kind: &Kind) -> bool {
        matches!(
            (self.kind, kind),
            (WorkKind::Scrub, Kind::Scrub)
                | (WorkKind::Rebuild(_), Kind::Rebuild { .. })
                | (WorkKind::Replace(_), Kind::Copy { .. })
        )
    }

    fn status(&self, now: Time) -> WorkStatus {
        let bytes = u128::from(self.bytes_done - self.began_with_bytes);
        let nanos = u128::from(now.since(self.began_at).0.max(1));
        WorkStatus {
            kind: self.kind,
            is_of_missed: self.is_of_missed,
            stripes_done: self.stripes_done,
            stripes_total: self.stripes_total,
            bytes_done: self.bytes_done,
            bytes_total: self.bytes_total,
            mismatches: self.mismatches,
            lines_unreadable: self.lines_unreadable,
            lines_not_compared: self.lines_not_compared,
            is_by_time: self.is_by_time,
            bytes_per_second: (bytes * 1_000_000_000 / nanos) as u64,
            is_cut_short: self.next == CANCELLED,
            cut_short: None,
        }
    }
}

impl Volume {
    fn is_concerned(&self, kind: WorkKind, set: usize) -> bool {
        let layout = &self.layouts[set];
        let is_redundant = layout.level() != RaidLevel::Raid0;
        match kind {
            WorkKind::Rebuild(member) => is_redundant && layout.place_of(member).is_some(),
            WorkKind::Scrub => is_redundant,
            WorkKind::Replace(member) => {
                self.is_set_copied(set) && layout.place_of(member).is_some()
            }
        }
    }

    /// Bytes of a stripe that are read or written.
    fn stripe_bytes(&self, kind: WorkKind, set: usize) -> u64 {
        let layout = &self.layouts[set];
        let units = if kind == WorkKind::Scrub { layout.places() as u64 } else { 1 };
        units * u64::from(layout.unit_lines()) * LINE_SIZE
    }

    /// All stripes before this one, and their bytes.
    fn stripes_before(&self, kind: WorkKind, (set, stripe): (u8, u64)) -> (u64, u64) {
        let of_set = |index: usize| match index < usize::from(set) {
            true => self.layouts[index].stripes(),
            false => stripe,
        };
        let sets = 0..self.layouts.len().min(usize::from(set) + 1);
        let sets = sets.filter(|set| self.is_concerned(kind, *set));
        sets.fold((0, 0), |(stripes, bytes), index| {
            let more = of_set(index);
            (stripes + more, bytes + more * self.stripe_bytes(kind, index))
        })
    }

    /// Begins a rebuild; where an earlier one of the same member was, if there was one.
    pub(super) fn start_rebuild(&mut self, member: MemberIndex) -> Result<(), VolumeError> {
        if usize::from(member.0) >= self.members.len() || !self.members.get(member).is_present {
            return Err(VolumeError::NoMember(member));
        }
        if self.members.get(member).state != MemberState::UpToDate {
            self.set_scrub_aside();
        }
        // A write that nobody waits for any more may still land, over what is rebuilt.
        if self.repair.work.is_some()
            || self.replacement.is_some()
            || self.members.get(member).given_up > 0
        {
            return Err(VolumeError::Busy);
        }
        let from = match self.members.get(member).state {
            MemberState::UpToDate => return Err(VolumeError::UpToDate(member)),
            MemberState::Stale => (0, 0),
            MemberState::Rebuilding { set, stripe } => (set, stripe),
        };
        let state = MemberState::Rebuilding { set: from.0, stripe: from.1 };
        let found = self.members.get_mut(member);
        found.state = state;
        found.rebuilt = from;
        self.state_changes.waiting.push_back((member, state));
        self.start_work(WorkKind::Rebuild(member), from);
        Ok(())
    }

    /// `is_resumed`: where one has stopped before, if one has.
    pub(super) fn start_scrub(&mut self, is_resumed: bool) -> Result<(), VolumeError> {
        self.set_scrub_aside();
        match self.repair.work.is_some() || self.replacement.is_some() {
            true => Err(VolumeError::Busy),
            false => {
                self.begin_scrub(is_resumed, false);
                Ok(())
            }
        }
    }

    pub(super) fn start_work(&mut self, kind: WorkKind, next: (u8, u64)) {
        let is_of_missed =
            matches!(kind, WorkKind::Rebuild(member) if self.missed.is_noted(member));
        // Of what is marked nobody knows how much it was.
        let before = if is_of_missed { (0, 0) } else { next };
        let (stripes_done, bytes_done) = self.stripes_before(kind, before);
        let (stripes_total, bytes_total) = self.stripes_before(kind, (self.layouts.len() as u8, 0));
        self.repair.work = Some(Work {
            kind,
            is_of_missed,
            next,
            window: BTreeMap::new(),
            stripes_done,
            stripes_total,
            bytes_done,
            bytes_total,
            lines_unreadable: 0,
            lines_not_compared: 0,
            lines_compared: 0,
            is_by_time: false,
            began_at: self.now,
            began_with_bytes: bytes_done,
            stopped_at: None,
            recorded_at: stripes_done,
            recorded: next,
            has_failed: false,
            tries: BTreeMap::new(),
            mismatches: 0,
            is_ending: false,
            is_flushing: false,
        });
    }

    /// Stripes that a member has to get, this one and those behind it, and their bytes.
    fn stripes_to_rebuild(&self, member: MemberIndex, next: (u8, u64)) -> (u64, u64) {
        let kind = WorkKind::Rebuild(member);
        let sets = usize::from(next.0)..self.layouts.len();
        let sets = sets.filter(|set| self.is_concerned(kind, *set));
        sets.fold((0, 0), |(stripes, bytes), set| {
            let from = if set == usize::from(next.0) { next.1 } else { 0 };
            let more = match self.missed.is_noted(member) {
                true => self.missed.stripes_marked(set as u8, from),
                false => self.layouts[set].stripes() - from,
            };
            (stripes + more, bytes + more * self.stripe_bytes(kind, set))
        })
    }

    /// What a member has to get before it is up to date, in bytes.
    pub(in crate::volume) fn bytes_to_rebuild(&self, member: MemberIndex) -> u64 {
        let found = self.members.get(member);
        match found.state {
            MemberState::UpToDate => 0,
            MemberState::Stale => self.stripes_to_rebuild(member, (0, 0)).1,
            MemberState::Rebuilding { .. } => self.stripes_to_rebuild(member, found.rebuilt).1,
        }
    }

    /// How far what is under way is. While a member gets what it has missed there may be more.
    pub(in crate::volume) fn work_status(&self) -> Option<WorkStatus> {
        let work = self.repair.work.as_ref()?;
        let status = work.status(self.now);
        let WorkKind::Rebuild(member) = work.kind else { return Some(status) };
        if !work.is_of_missed {
            return Some(status);
        }
        let (stripes, bytes) = self.stripes_to_rebuild(member, self.members.get(member).rebuilt);
        let stripes_total = work.stripes_done + stripes;
        Some(WorkStatus { stripes_total, bytes_total: work.bytes_done + bytes, ..status })
    }

    /// Goes on with what was under way, or waited for that, when the volume was closed.
    pub(in crate::volume) fn resume_rebuild(&mut self) {
        let rebuilding = self.members.iter().filter(|(_, member)| {
            member.is_present && matches!(member.state, MemberState::Rebuilding { .. })
        });
        let rebuilding: Vec<MemberIndex> = rebuilding.map(|(member, _)| member).collect();
        self.repair.next.extend(rebuilding);
        self.start_next_rebuild();
    }

    /// Stops it; a rebuild can go on later where it was.
    pub(super) fn cancel_work(&mut self) {
        self.cancel_growth(GrowthCutShort::Cancelled);
        self.repair.next.clear();
        if !self.repair.is_under_way() {
            self.scrubs.put_off(self.now);
        }
        self.cancel_repair();
    }

    fn cancel_repair(&mut self) {
        self.give_up_replacement(CutShort::Cancelled);
        if let Some(work) = &mut self.repair.work
            && !matches!(work.kind, WorkKind::Replace(_))
        {
            work.cut_short();
        }
    }

    /// Nothing more is copied.
    pub(super) fn cancel_copy(&mut self) {
        if let Some(work) = &mut self.repair.work
            && matches!(work.kind, WorkKind::Replace(_))
        {
            work.cut_short();
        }
    }

    /// A member is not to be used any more: nor rebuilt.
    pub(in crate::volume) fn repair_lost_member(&mut self, member: MemberIndex) {
        if self.repair.work.as_ref().is_some_and(|work| work.kind == WorkKind::Rebuild(member)) {
            self.cancel_repair();
        }
    }

    /// One that waits for its own late writes does not hold up the others.
    fn start_next_rebuild(&mut self) -> bool {
        let mut next = 0;
        while let Some(member) = self.repair.next.range(MemberIndex(next)..).next().copied() {
            if self.start_rebuild(member) != Err(VolumeError::Busy) {
                // Whoever wants it up to date may ask.
                return self.repair.next.remove(&member);
            }
            next = member.0 + 1;
        }
        false
    }

    pub(in crate::volume) fn advance_repair(&mut self) -> bool {
        if self.repair.work.is_none() && self.start_next_rebuild() {
            return true;
        }
        let Some(work) = &self.repair.work else { return false };
        let is_over = work.window.is_empty() && work.is_ending && !work.is_flushing;
        let is_copied = self.repair.is_copied() && self.repair.is_copying();
        if is_over && is_copied && self.replacement.is_some() {
            // The disk is no member yet.
            return false;
        }
        if is_over && self.is_twin_telling() {
            // Both would write labels to the same place.
            return false;
        }
        if is_over {
            self.end_repair();
            return true;
        }
        let is_rebuild =
            self.repair.work.as_ref().is_some_and(|work| matches!(work.kind, WorkKind::Rebuild(_)));
        if is_rebuild && !self.state_changes.is_empty() {
            return false;
        }
        let limit = self.window_limit();
        let mut moved = false;
        while self.repair.taken < STRIPES_AT_ONCE_MAX {
            let Some(work) = &mut self.repair.work else { break };
            if work.is_ending || work.window.len() >= limit {
                break;
            }
            self.repair.taken += 1;
            let (set, stripe) = work.next;
            let kind = work.kind;
            if usize::from(set) >= self.layouts.len() {
                work.is_ending = true;
                return true;
            }
            if !self.is_concerned(kind, set.into()) || stripe >= self.layout(set).stripes() {
                self.repair.work.as_mut().expect("looked at").next = (set + 1, 0);
                moved = true;
                continue;
            }
            if let Some(wanted) = self.skip_to(set, stripe) {
                let work = self.repair.work.as_mut().expect("looked at");
                if !work.window.is_empty() {
                    break;
                }
                moved = true;
                work.next = (set, wanted);
                if let WorkKind::Rebuild(member) = kind {
                    self.members.get_mut(member).rebuilt = (set, wanted);
                }
                continue;
            }
            moved = true;
            self.take_stripe(kind, set, stripe);
        }
        moved
    }

    /// How many stripes may be under way now.
    fn window_limit(&self) -> usize {
        let is_asked = !self.uppers.is_empty();
        if !self.repair.is_scrub_by_time() {
            return if is_asked { WINDOW_BUSY } else { WINDOW_IDLE };
        }
        match (self.scrubs.is_busy(self.now, is_asked), self.scrubs.is_paused(self.now)) {
            (false, _) => WINDOW_IDLE,
            (true, false) => WINDOW_BUSY,
            (true, true) => 0,
        }
    }

    /// Bytes that a scrub reads of what is before this stripe.
    pub(in crate::volume) fn bytes_of_scrub(&self, before: (u8, u64)) -> u64 {
        self.stripes_before(WorkKind::Scrub, before).1
    }

    /// The next stripe of a set that is to be rebuilt, or its end, if there are others before it
    /// that the member has not missed: from here on they are written there again.
    fn skip_to(&self, set: u8, stripe: u64) -> Option<u64> {
        if !self.repair.work.as_ref().is_some_and(|work| work.is_of_missed) {
            return None;
        }
        let end = self.layout(set).stripes();
        let marked = self.missed.next_marked(set, stripe).unwrap_or(end);
        let chunk = |stripe| ChunkKey { set, stripe, chunk: 0 };
        // What is under way may leave the member out, and not be marked yet.
        let held = self.jobs.holders.range(chunk(stripe)..chunk(end)).next();
        let wanted = held.map_or(marked, |(key, _)| key.stripe.min(marked));
        (wanted > stripe).then_some(wanted)
    }

    /// Whether there is anything to do for a repair that begins. A stripe that was taken because of
    /// what was under way is not marked if that changed nothing, and now all of that has ended. What
    /// is right must not be written over itself then: a power cut would tear it, and no mark says
    /// that it is to be written again.
    pub(in crate::volume) fn has_missed(&self, kind: &Kind, key: ChunkKey) -> bool {
        let is_of_missed = self.repair.work.as_ref().is_some_and(|work| work.is_of_missed);
        let is_rebuild = matches!(kind, Kind::Rebuild { .. });
        !(is_rebuild && is_of_missed) || self.missed.is_marked(key.set, key.stripe)
    }

    fn take_stripe(&mut self, kind: WorkKind, set: u8, stripe: u64) {
        let layout = self.layout(set);
        let chunks = layout.unit_lines().div_ceil(self.chunk_columns(set));
        let place = match kind {
            WorkKind::Rebuild(member) | WorkKind::Replace(member) => layout.place_of(member),
            WorkKind::Scrub => None,
        };
        let is_copied = matches!(kind, WorkKind::Replace(_));
        let work = self.repair.work.as_mut().expect("it is under way");
        work.next = (set, stripe + 1);
        if work.window.is_empty() {
            self.scrubs.took(self.now);
        }
        work.window.insert((set, stripe), (0..chunks).collect());
        for chunk in 0..chunks {
            let kind = match place {
                Some(place) if is_copied => Kind::Copy { place },
                Some(place) => Kind::Rebuild { place, is_last_try: false },
                None => Kind::Scrub,
            };
            self.want_repair(ChunkKey { set, stripe, chunk }, kind);
        }
    }

    /// Steps 2 and 3.
    pub(super) fn repair_job_ended(&mut self, job: &Job) {
        let Some(work) = self.repair.work.as_mut().filter(|work| work.is_of(&job.kind)) else {
            return;
        };
        let ChunkKey { set, stripe, chunk } = job.key;
        work.mismatches += (job.bad.len() + job.lost.len()) as u64;
        if let (Err(_), Kind::Rebuild { place, is_last_try: false }) = (job.result(), &job.kind)
            && work.next != CANCELLED
        {
            // Errors may pass; sectors that cannot be read do not.
            let tries = work.tries.entry(job.key).or_insert(0);
            *tries += 1;
            let is_last_try = *tries + 1 == TRIES_MAX;
            return self.want_repair(job.key, Kind::Rebuild { place: *place, is_last_try });
        }
        if let Kind::Copy { place } = job.kind
            && !job.unreadable.is_empty()
        {
            let tries = work.tries.entry(job.key).or_insert(0);
            *tries += 1;
            if *tries < TRIES_MAX && work.next != CANCELLED {
                return self.want_repair(job.key, Kind::Copy { place });
            }
            work.lines_unreadable += job.unreadable.len() as u64;
            if self.note_unreadable(&self.lines_unreadable(job)) {
                self.give_up_replacement(CutShort::Unreadable);
            }
        }
        let lines_of_data = job.columns.len() as u64 * u64::from(self.layout(set).data_units());
        let Some(work) = &mut self.repair.work else { return };
        // Passed by: else the rest would never be looked at.
        let is_passed = job.is_without_sums && matches!(job.kind, Kind::Scrub);
        match is_passed {
            true => {
                work.lines_not_compared += lines_of_data;
                self.counters.scrubs_not_compared += lines_of_data;
            }
            false => work.lines_compared += lines_of_data,
        }
        work.tries.remove(&job.key);
        if job.result().is_err() && matches!(job.kind, Kind::Copy { .. }) {
            self.give_up_replacement(CutShort::Unreadable);
        }
        let kind = self.repair.work.as_ref().map(|work| work.kind);
        let stripe_bytes = kind.map_or(0, |kind| self.stripe_bytes(kind, set.into()));
        let Some(work) = &mut self.repair.work else { return };
        if job.result().is_err() && !is_passed {
            work.has_failed = true;
            work.cut_short();
        }
        let Some(chunks) = work.window.get_mut(&(set, stripe)) else { return };
        chunks.remove(&chunk);
        // In order: what is before the first that is not done counts.
        while let Some(first) = work.window.first_entry()
            && first.get().is_empty()
        {
            let (set, stripe) = *first.key();
            first.remove();
            work.stripes_done += 1;
            work.bytes_done += stripe_bytes;
            if let WorkKind::Rebuild(member) = work.kind
                && !work.has_failed
            {
                self.members.get_mut(member).rebuilt = (set, stripe + 1);
            }
        }
        if work.window.is_empty() {
            self.scrubs.did(self.now);
        }
        let wants_record = matches!(work.kind, WorkKind::Rebuild(_))
            && work.stripes_done >= work.recorded_at + PROGRESS_STRIPES;
        if wants_record && !work.is_flushing {
            self.flush_rebuilt();
        }
    }

    /// Those of RAID 0 sets.
    fn lines_unreadable(&self, job: &Job) -> Vec<(u8, SetLine)> {
        let ChunkKey { set, stripe, .. } = job.key;
        let layout = self.layout(set);
        let line = |(unit, line_in_unit): &(u32, u32)| {
            (set, layout.line_of(Location { stripe, unit: *unit, line_in_unit: *line_in_unit }))
        };
        let is_raid0 = layout.level() == RaidLevel::Raid0;
        job.unreadable.iter().filter(|_| is_raid0).map(line).collect()
    }

    fn flush_rebuilt(&mut self) {
        let Some(work) = &mut self.repair.work else { return };
        let WorkKind::Rebuild(member) = work.kind else { return };
        work.is_flushing = true;
        work.recorded_at = work.stripes_done;
        let found = self.members.get_mut(member);
        work.recorded = found.rebuilt;
        let covers = found.writes;
        let purpose = Purpose::MemberFlush(For::Rebuild, covers, member);
        self.start_io(Device::Member(member), IoOperation::Flush, purpose);
    }

    /// Step 4. Not over the newest that it has: a torn one leaves that.
    fn write_rebuilt_label(&mut self, member: MemberIndex) {
        self.repair.work.as_mut().expect("it is under way").is_flushing = true;
        let label = self.label_of(member, self.epoch, self.twin_label());
        let offset = self.members.label_offset(member);
        let purpose = Purpose::RebuiltLabel(member);
        self.start_write(Device::Member(member), offset, label.encode(), false, purpose);
    }

    pub(in crate::volume) fn rebuilt_label_written(
        &mut self,
        member: MemberIndex,
        result: Result<(), IoError>,
    ) {
        self.members.get_mut(member).writes += 1;
        match result {
            Ok(()) => self.flush_rebuilt(),
            Err(_) => {
                if let Some(work) = &mut self.repair.work {
                    work.is_flushing = false;
                    work.next = CANCELLED;
                }
            }
        }
    }

    /// Whether a label is on its way to a member that was rebuilt.
    pub(super) fn is_rebuilt_label_under_way(&self) -> bool {
        let work = self.repair.work.as_ref();
        work.is_some_and(|work| match work.kind {
            WorkKind::Rebuild(member) => {
                let member = self.members.get(member);
                work.is_flushing && member.has_old_label && member.rebuilt == WHOLE
            }
            _ => false,
        })
    }

    /// Step 5.
    pub(super) fn rebuilt_flushed(&mut self, result: Result<(), IoError>) {
        let Some(work) = &mut self.repair.work else { return };
        work.is_flushing = false;
        let WorkKind::Rebuild(member) = work.kind else { return };
        let recorded = work.recorded;
        let is_whole = recorded == WHOLE;
        let found = self.members.get_mut(member);
        if result.is_err() || found.state == MemberState::Stale {
            return;
        }
        let state = match is_whole {
            true => MemberState::UpToDate,
            false => MemberState::Rebuilding { set: recorded.0, stripe: recorded.1 },
        };
        found.state = state;
        let is_noted = self.missed.is_noted(member) && !is_whole;
        let mut items = vec![JournalItem::Member { member, state, is_noted }];
        if is_whole {
            let epoch = self.epoch;
            self.counters.members_caught_up += u64::from(self.missed.is_noted(member));
            self.missed.forget(member);
            let found = self.members.get_mut(member);
            if std::mem::take(&mut found.has_old_label) {
                found.label_copy = 1 - found.label_copy;
            }
            found.label_epoch = epoch;
            items.push(self.epoch_item());
            self.counters.members_rebuilt += 1;
        }
        self.journal_items(items, Then::Progress);
    }

    fn scrub_ended(&mut self) {
        let work = self.repair.work.as_mut().expect("it is ending");
        let found = work.mismatches;
        // Where hardly anything could be compared the cache-disk is not well: all of it once more,
        // later.
        if work.lines_not_compared > work.lines_compared && work.next != CANCELLED {
            (work.stopped_at, work.next) = (Some((0, 0)), CANCELLED);
            work.has_failed = true;
        }
        if work.next != CANCELLED {
            self.scrubs.ended(self.now, found);
            self.counters.scrubs_ended += 1;
            self.counters.scrubs_found += found;
            return;
        }
        self.scrubs.set_aside(work.place(), found);
        match work.has_failed {
            true => self.scrubs.has_failed(self.now),
            false => self.scrubs.put_off(self.now),
        }
    }

    fn end_repair(&mut self) {
        let work = self.repair.work.as_mut().expect("it is ending");
        if let WorkKind::Rebuild(member) = work.kind {
            let found = self.members.get_mut(member);
            let is_good = found.state != MemberState::Stale && work.next != CANCELLED;
            if is_good && work.recorded != WHOLE {
                // Everything is there: once durable, it is up to date.
                found.rebuilt = WHOLE;
                return match found.has_old_label {
                    true => self.write_rebuilt_label(member),
                    false => self.flush_rebuilt(),
                };
            }
        }
        if work.kind == WorkKind::Scrub {
            self.scrub_ended();
        }
        self.repair.last = self.work_status();
        self.repair.work = None;
    }
}
