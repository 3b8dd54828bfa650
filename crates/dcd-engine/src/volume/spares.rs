//! Spares: disks that wait for a member to fail. Who is one, and when one is used. What is written
//! to them is in `paths/spare.rs`.
//!
//! The tables know nothing of spares: a disk is one by its label alone, so there is nothing that
//! could contradict it.

use super::format::label::DiskTag;
use super::members::MemberInfo;
use crate::units::{Duration, MemberIndex, Time};

/// No volume has more.
pub const SPARES_MAX: usize = 16;
/// When one was used in vain, the next try is this much later.
const RETRY: Duration = Duration::from_secs(3600);
/// How often the label of one that waits is read: that it has died is known before it is needed.
const LOOK_INTERVAL: Duration = Duration::from_secs(3600);
/// When it is read again, at its other place, if it could not be read.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// So many times in a row, and it has failed.
const LOOKS_IN_VAIN_MAX: u32 = 3;

/// How a spare is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpareState {
    /// It is getting its label, and is none yet.
    Labelling,
    /// It waits for a member to fail.
    Ready,
    /// It is taking the place of this one.
    InUse(MemberIndex),
    /// Its label is being taken away.
    Leaving,
    /// It has not taken what was written to it, or its label is not there any more: not used before
    /// the next start.
    Failed,
}

/// What a spare is told before it is as it is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Labels { left: u32 },
    Flush,
    Idle,
}

/// A spare.
#[derive(Clone, Debug)]
pub(super) struct Spare {
    /// What the driver calls it.
    pub(super) slot: u8,
    pub(super) tag: DiskTag,
    pub(super) bytes: u64,
    pub(super) state: SpareState,
    step: Step,
    has_failed: bool,
    /// When its label was read last, or known.
    looked: Time,
    looks: usize,
    looks_in_vain: u32,
    is_looked_at: bool,
}

/// What was found where the label of a spare is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    Its,
    Unreadable,
    /// Something else.
    Other,
}

/// What comes next for a spare that has done what it was told.
pub(super) enum Next {
    Nothing,
    Flush,
    /// It has no label any more.
    Gone,
}

impl Spare {
    fn new(slot: u8, tag: DiskTag, bytes: u64, state: SpareState, now: Time) -> Spare {
        Spare {
            slot,
            tag,
            bytes,
            state,
            step: Step::Idle,
            has_failed: false,
            looked: now,
            looks: 0,
            looks_in_vain: 0,
            is_looked_at: false,
        }
    }

    /// One that gets so many labels.
    pub(super) fn labelled(slot: u8, tag: DiskTag, bytes: u64, labels: usize, now: Time) -> Spare {
        let step = Step::Labels { left: labels as u32 };
        Spare { step, ..Spare::new(slot, tag, bytes, SpareState::Labelling, now) }
    }

    /// One that a start has found.
    pub(super) fn found(slot: u8, tag: DiskTag, bytes: u64, now: Time) -> Spare {
        Spare::new(slot, tag, bytes, SpareState::Ready, now)
    }

    /// When its label is to be read again; `None` while it does not wait.
    fn look_due(&self) -> Option<Time> {
        let waits = self.state == SpareState::Ready && !self.is_looked_at;
        let interval = if self.looks_in_vain > 0 { LOOK_AGAIN } else { LOOK_INTERVAL };
        waits.then(|| self.looked.after(interval))
    }

    /// Its label was read. What it has begun meanwhile tells by itself. A path that is lost for a
    /// moment, or a disk that has to spin up, is no end of it.
    pub(super) fn looked_at(&mut self, found: Look, now: Time) {
        (self.is_looked_at, self.looked) = (false, now);
        self.looks_in_vain = if found == Look::Unreadable { self.looks_in_vain + 1 } else { 0 };
        let has_failed = found == Look::Other || self.looks_in_vain >= LOOKS_IN_VAIN_MAX;
        if self.state == SpareState::Ready && has_failed {
            self.state = SpareState::Failed;
        }
    }

    /// So many labels are to be taken away.
    pub(super) fn leaves(&mut self, labels: usize) {
        self.state = SpareState::Leaving;
        self.step = Step::Labels { left: labels as u32 };
    }

    /// It has done one thing of it, or has not.
    pub(super) fn did(&mut self, is_done: bool) -> Next {
        self.has_failed |= !is_done;
        if let Step::Labels { left } = &mut self.step
            && *left > 1
        {
            *left -= 1;
            return Next::Nothing;
        }
        if !self.has_failed && self.step != Step::Flush {
            self.step = Step::Flush;
            return Next::Flush;
        }
        self.step = Step::Idle;
        self.state = match (self.state, self.has_failed) {
            // Whoever leaves is let go, whatever it has done.
            (SpareState::Leaving, _) => return Next::Gone,
            (_, true) => SpareState::Failed,
            (_, false) => SpareState::Ready,
        };
        Next::Nothing
    }
}

/// That a spare takes the place of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpareUse {
    /// Counts them, from 1 on.
    pub number: u64,
    /// What the driver calls the spare.
    pub disk: MemberIndex,
    /// Whose place.
    pub member: MemberIndex,
    /// For how long that had failed.
    pub failed_for: Duration,
}

/// The spares of a volume.
pub(super) struct Spares {
    /// Disks of a start, until it knows what they are, with what the driver calls them.
    pub(super) others: Vec<(u8, MemberInfo)>,
    spares: Vec<Spare>,
    /// 0: never by itself.
    after: Duration,
    /// Since when each member has.
    failed_since: Vec<Option<Time>>,
    /// When a spare for it may be tried again.
    not_before: Vec<Time>,
    last_use: Option<SpareUse>,
}

impl Spares {
    pub(super) fn new(members: usize, others: Vec<MemberInfo>) -> Spares {
        let slots = members as u8..;
        Spares {
            others: slots.zip(others).collect(),
            spares: Vec::new(),
            after: Duration(0),
            failed_since: vec![None; members],
            not_before: vec![Time::ZERO; members],
            last_use: None,
        }
    }

    pub(super) fn set_after(&mut self, after: Duration) {
        self.after = after;
    }

    pub(super) fn after(&self) -> Duration {
        self.after
    }

    pub(super) fn is_full(&self) -> bool {
        self.spares.len() >= SPARES_MAX
    }

    pub(super) fn add(&mut self, spare: Spare) {
        self.spares.push(spare);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Spare> {
        self.spares.iter()
    }

    pub(super) fn get_mut(&mut self, slot: u8) -> Option<&mut Spare> {
        self.spares.iter_mut().find(|spare| spare.slot == slot)
    }

    pub(super) fn has(&self, slot: u8) -> bool {
        self.spares.iter().any(|spare| spare.slot == slot)
    }

    /// It is none any more.
    pub(super) fn remove(&mut self, slot: u8) {
        self.spares.retain(|spare| spare.slot != slot);
    }

    /// Whether any is told something: an end waits for that.
    pub(super) fn is_any_under_way(&self) -> bool {
        self.spares.iter().any(|spare| spare.step != Step::Idle)
    }

    // ---- when one is used ---------------------------------------------------------------------

    /// How a member is now.
    pub(super) fn note(&mut self, member: MemberIndex, has_failed: bool, now: Time) {
        let since = &mut self.failed_since[usize::from(member.0)];
        match has_failed {
            true => drop(since.get_or_insert(now)),
            false => *since = None,
        }
    }

    /// The member that has failed for longest, and long enough.
    pub(super) fn wanting(&self, now: Time) -> Option<(MemberIndex, Duration)> {
        let wanting = self.wanting_at().filter(|(at, _, _)| now >= *at);
        let (_, since, member) = wanting.min_by_key(|(_, since, member)| (*since, *member))?;
        Some((member, now.since(since)))
    }

    /// When a spare may be used for each that has failed, since when it has, and which it is.
    fn wanting_at(&self) -> impl Iterator<Item = (Time, Time, MemberIndex)> {
        let failed = (0..).map(MemberIndex).zip(self.failed_since.iter().zip(&self.not_before));
        let is_on = self.after.0 > 0;
        failed.filter(move |_| is_on).filter_map(|(member, (since, not_before))| {
            let since = (*since)?;
            Some((since.after(self.after).max(*not_before), since, member))
        })
    }

    /// The next whose label is to be read now, and which look that is.
    pub(super) fn look_at_next(&mut self, now: Time) -> Option<(u8, usize)> {
        let is_due = |spare: &&mut Spare| spare.look_due().is_some_and(|due| now >= due);
        let spare = self.spares.iter_mut().find(is_due)?;
        spare.is_looked_at = true;
        spare.looks += 1;
        Some((spare.slot, spare.looks))
    }

    /// One that has room for so much: the smallest.
    pub(super) fn ready(&self, bytes: u64) -> Option<&Spare> {
        let ready = self.spares.iter().filter(|spare| spare.state == SpareState::Ready);
        ready.filter(|spare| spare.bytes >= bytes).min_by_key(|spare| (spare.bytes, spare.slot))
    }

    /// It takes the place of a member.
    pub(super) fn begins(&mut self, slot: u8, member: MemberIndex, failed_for: Duration) {
        let spare = self.get_mut(slot).expect("it was ready");
        spare.state = SpareState::InUse(member);
        let number = self.last_use.map_or(0, |last| last.number) + 1;
        self.last_use = Some(SpareUse { number, disk: MemberIndex(slot), member, failed_for });
    }

    /// It has not taken it. `has_failed`: through its own fault.
    pub(super) fn ended(&mut self, slot: u8, has_failed: bool, now: Time) {
        let Some(spare) = self.get_mut(slot) else { return };
        let used_for = spare.state;
        spare.state = if has_failed { SpareState::Failed } else { SpareState::Ready };
        if let (false, SpareState::InUse(member)) = (has_failed, used_for) {
            self.put_off(member, now);
        }
    }

    /// No spare can be used for it now. For others one can.
    pub(super) fn put_off(&mut self, member: MemberIndex, now: Time) {
        self.not_before[usize::from(member.0)] = now.after(RETRY);
    }

    /// The disk of a member is another one now.
    pub(super) fn is_replaced(&mut self, member: MemberIndex) {
        self.failed_since[usize::from(member.0)] = None;
    }

    pub(super) fn last_use(&self) -> Option<SpareUse> {
        self.last_use
    }

    /// When one may be used, or is to be looked at.
    pub(super) fn wake_up(&self, now: Time) -> Option<Time> {
        let looks = self.spares.iter().filter_map(Spare::look_due);
        let has_any = self.spares.iter().any(|spare| spare.state == SpareState::Ready);
        let uses = self.wanting_at().map(|(at, _, _)| at).filter(|_| has_any);
        looks.chain(uses).filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(minutes: u64) -> Time {
        Time(MINUTE.0 * minutes)
    }

    fn spares() -> Spares {
        let mut spares = Spares::new(3, Vec::new());
        spares.set_after(Duration(5 * MINUTE.0));
        spares.add(Spare::found(3, DiskTag(7), 100, at(0)));
        spares.add(Spare::found(4, DiskTag(8), 50, at(0)));
        spares
    }

    #[test]
    fn the_member_that_has_failed_longest_gets_the_smallest_that_does() {
        let mut spares = spares();
        spares.note(MemberIndex(2), true, at(1));
        spares.note(MemberIndex(0), true, at(2));
        spares.note(MemberIndex(2), true, at(3));
        assert_eq!(spares.wanting(at(5)), None);
        assert_eq!(spares.wake_up(at(5)), Some(at(6)));
        assert_eq!(spares.wanting(at(6)), Some((MemberIndex(2), Duration(5 * MINUTE.0))));
        // Who has come back is not counted from before.
        spares.note(MemberIndex(2), false, at(6));
        spares.note(MemberIndex(2), true, at(6));
        assert_eq!(spares.wanting(at(6)), None);
        assert_eq!(spares.wanting(at(7)).map(|(member, _)| member), Some(MemberIndex(0)));
        assert_eq!(spares.ready(10).map(|spare| spare.slot), Some(4));
        assert_eq!(spares.ready(60).map(|spare| spare.slot), Some(3));
        assert!(spares.ready(101).is_none());
        spares.set_after(Duration(0));
        assert_eq!((spares.wanting(at(50)), spares.wake_up(at(6))), (None, Some(at(60))));
    }

    #[test]
    fn one_that_failed_is_not_used_again_and_one_in_vain_is_later() {
        let mut spares = spares();
        spares.note(MemberIndex(1), true, at(0));
        spares.begins(4, MemberIndex(1), Duration(5 * MINUTE.0));
        assert_eq!(spares.ready(1).map(|spare| spare.slot), Some(3));
        spares.ended(4, true, at(6));
        assert!(spares.wanting(at(6)).is_some(), "the other one may be tried at once");
        spares.begins(3, MemberIndex(1), Duration(6 * MINUTE.0));
        assert_eq!(spares.last_use().unwrap().number, 2);
        spares.ended(3, false, at(7));
        assert_eq!(spares.wanting(at(8)), None);
        assert_eq!(spares.wake_up(at(61)), Some(at(67)));
        assert!(spares.wanting(at(67)).is_some());
        // Nobody else waits for that.
        spares.note(MemberIndex(0), true, at(1));
        assert_eq!(spares.wanting(at(8)).map(|(member, _)| member), Some(MemberIndex(0)));
        assert_eq!(spares.ready(1).map(|spare| spare.slot), Some(3));
    }

    #[test]
    fn labels_of_those_that_wait_are_read_each_hour() {
        let mut spares = spares();
        assert_eq!((spares.look_at_next(at(59)), spares.wake_up(at(0))), (None, Some(at(60))));
        assert_eq!(
            [(); 3].map(|()| spares.look_at_next(at(60))),
            [Some((3, 1)), Some((4, 1)), None]
        );
        // It is used meanwhile, and what was read of it says nothing any more.
        spares.note(MemberIndex(1), true, at(0));
        spares.begins(4, MemberIndex(1), Duration(60 * MINUTE.0));
        spares.get_mut(3).unwrap().looked_at(Look::Its, at(61));
        spares.get_mut(4).unwrap().looked_at(Look::Other, at(61));
        assert_eq!(spares.get_mut(4).unwrap().state, SpareState::InUse(MemberIndex(1)));
        assert_eq!(spares.look_at_next(at(120)), None);
        assert_eq!(spares.look_at_next(at(121)), Some((3, 2)));
        // It cannot be read for a while; then for longer.
        spares.get_mut(3).unwrap().looked_at(Look::Unreadable, at(122));
        assert_eq!(spares.look_at_next(at(123)), Some((3, 3)));
        spares.get_mut(3).unwrap().looked_at(Look::Its, at(123));
        assert_eq!(
            (spares.look_at_next(at(182)), spares.look_at_next(at(183))),
            (None, Some((3, 4)))
        );
        for minute in 183..185 {
            spares.get_mut(3).unwrap().looked_at(Look::Unreadable, at(minute));
            assert_eq!(spares.get_mut(3).unwrap().state, SpareState::Ready);
            assert!(spares.look_at_next(at(minute + 1)).is_some());
        }
        spares.get_mut(3).unwrap().looked_at(Look::Unreadable, at(185));
        assert_eq!(spares.get_mut(3).unwrap().state, SpareState::Failed);
        assert_eq!(spares.look_at_next(at(1000)), None);
    }

    #[test]
    fn a_spare_is_one_when_its_labels_are_durable() {
        let mut spare = Spare::labelled(5, DiskTag(1), 10, 2, at(0));
        assert!(matches!(spare.did(true), Next::Nothing));
        assert!(matches!(spare.did(true), Next::Flush));
        assert_eq!(spare.state, SpareState::Labelling);
        assert!(matches!(spare.did(true), Next::Nothing));
        assert_eq!(spare.state, SpareState::Ready);
        spare.leaves(2);
        assert!(matches!(spare.did(true), Next::Nothing) && matches!(spare.did(true), Next::Flush));
        assert!(matches!(spare.did(true), Next::Gone));
        let mut bad = Spare::labelled(6, DiskTag(1), 10, 2, at(0));
        assert!(matches!(bad.did(false), Next::Nothing));
        assert_eq!(bad.state, SpareState::Labelling, "another write is on its way");
        assert!(matches!(bad.did(true), Next::Nothing));
        assert_eq!(bad.state, SpareState::Failed);
    }
}
