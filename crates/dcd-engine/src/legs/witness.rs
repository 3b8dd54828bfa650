//! The witness: a small file or device that has a say about who counts, and holds nothing else. It
//! gets the labels of memberships, never marks or data, is never read from here, and no request
//! waits for it but while a leg is written out.
//!
//! A start believes one leg alone if the witness, as that leg, has the newest membership
//! ([`choose`](super::choose)). So a membership counts only if each such pair would see it:
//!
//! 1. While the witness votes, it gets the first label of a membership before any leg does, and the
//!    second with them. Crash between them: it says more than anybody was answered for.
//! 2. It is done without behind a membership that does not name it, on *all* legs that it could be
//!    believed with ([`Legs::witness_knows`]). Crash before: one of them may still start with it,
//!    and has all that anybody was answered for.
//! 3. If it and one of those legs fail before either is done without, nobody can be told of that
//!    any more: the cache-disk has failed, as with the last leg.
//!
//! It is looked after: while it votes its label is written again now and then, in turn to each copy;
//! when it has failed, a block that means nothing is, until it takes that.

use std::collections::BTreeSet;

use super::choose::WitnessRole;
use super::{Legs, LegsOutput, LegsPhase};
use crate::buffer::Buffer;
use crate::format::leg_label::{LegLabel, LegState, Membership};
use crate::io::{Device, Io, IoData, IoDone, IoError, IoId, IoOperation, IoOwner, LegError};
use crate::units::{Duration, LINE_SIZE, Time, Uuid};

/// How often it is looked after.
pub const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Where a witness that has failed is tried: between both copies of its label.
const PROBE_OFFSET: u64 = 8 << 10;

/// What a driver gives with the legs, if they have a witness.
#[derive(Clone, Debug)]
pub struct WitnessParts {
    /// Its name.
    pub uuid: Uuid,
    /// Of its label; 0: it has none.
    pub number: u64,
    /// What a start does with it.
    pub role: WitnessRole,
    /// How often it is looked after.
    pub look_every: Duration,
}

impl WitnessParts {
    /// One with this label.
    pub fn new(label: &LegLabel, role: WitnessRole) -> WitnessParts {
        WitnessParts { uuid: label.leg, number: label.number, role, look_every: LOOK_EVERY }
    }

    /// A blank one with this name.
    pub fn blank(uuid: Uuid) -> WitnessParts {
        WitnessParts { uuid, number: 0, role: WitnessRole::Behind, look_every: LOOK_EVERY }
    }
}

/// What a witness is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WitnessStanding {
    /// It has a say.
    Votes,
    /// It gets the label that gives it one.
    Joining,
    /// It has failed; it is taken in again when it answers.
    Failed(IoError),
    /// Somebody wants to do without it; it is there.
    LeftOut,
    /// Somebody has taken it out.
    TakenOut,
}

/// A picture of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WitnessStatus {
    /// Its name.
    pub uuid: Uuid,
    /// What it is; `None`: it is not there.
    pub standing: Option<WitnessStanding>,
    /// Whether its disk is needed no more.
    pub is_free: bool,
    /// A start may believe one leg alone on its word.
    pub has_word: bool,
    /// A leg is being written out: it takes the word of this one.
    pub is_needed: bool,
    /// I/Os that failed.
    pub errors: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Of the labels that are being written.
    Label,
    /// The same label again.
    Again,
    Probe,
}

struct Asked {
    id: IoId,
    step: Step,
    started: Time,
}

pub(super) struct Witness {
    uuid: Uuid,
    standing: WitnessStanding,
    /// Of its last label: one in turn to each copy.
    number: u64,
    asked: Option<Asked>,
    /// I/Os that are waited for no more. One of them may still land.
    late: BTreeSet<IoId>,
    look_every: Duration,
    /// When it is looked after next.
    due: Time,
    errors: u64,
}

impl Witness {
    pub(super) fn new(now: Time, parts: WitnessParts) -> Witness {
        let WitnessParts { uuid, number, role, look_every } = parts;
        let standing = match role {
            WitnessRole::Votes => WitnessStanding::Votes,
            WitnessRole::Behind => WitnessStanding::Joining,
            WitnessRole::LeftOut => WitnessStanding::LeftOut,
        };
        let due = now.after(look_every);
        let (asked, late, errors) = (None, BTreeSet::new(), 0);
        Witness { uuid, standing, number, asked, late, look_every, due, errors }
    }

    fn votes(&self) -> bool {
        matches!(self.standing, WitnessStanding::Votes | WitnessStanding::Joining)
    }

    fn is_idle(&self) -> bool {
        self.asked.is_none() && self.late.is_empty()
    }
}

impl Legs {
    /// How the witness is, if there is one, or was one when the others were left.
    pub(crate) fn witness(&self) -> Option<WitnessStatus> {
        let witness = self.witness.as_ref();
        let uuid = witness.map(|witness| witness.uuid).or(self.witness_missing)?;
        let is_out = |it: &Witness| it.standing == WitnessStanding::TakenOut && it.is_idle();
        Some(WitnessStatus {
            uuid,
            standing: witness.map(|witness| witness.standing),
            is_free: witness.is_some_and(is_out),
            has_word: !self.witness_knows.is_empty(),
            is_needed: self.knows_one_that_is_out(),
            errors: witness.map_or(0, |witness| witness.errors),
        })
    }

    /// Whether the next membership is to name one. Another one is told of nothing before the one
    /// before is done without.
    pub(super) fn witness_to_name(&self) -> Option<Uuid> {
        let witness = self.witness.as_ref().filter(|witness| witness.votes())?;
        let is_free = self.membership.witness.is_none() && self.witness_knows.is_empty();
        // What is known then is known to this one: nobody else is named.
        let being_written = self.label_write.as_ref().and_then(|write| write.witness_named());
        let is_it = [self.membership.witness, being_written].contains(&Some(witness.uuid));
        (is_it || is_free).then_some(witness.uuid)
    }

    /// Whether the labels have to say something else of the witness.
    pub(super) fn witness_is_due(&self) -> bool {
        let named = self.witness_to_name();
        named != self.membership.witness || named.is_none() && !self.witness_knows.is_empty()
    }

    /// Whether it is writing a label that is none of those under way.
    pub(super) fn witness_is_looked_after(&self) -> bool {
        let asked = self.witness.as_ref().and_then(|witness| witness.asked.as_ref());
        asked.is_some_and(|asked| asked.step == Step::Again)
    }

    /// A membership with this witness is about to be written to it.
    pub(super) fn witness_may_know(&mut self, members: &[Uuid]) {
        for member in members {
            if !self.witness_knows.contains(member) {
                self.witness_knows.push(*member);
            }
        }
    }

    /// The membership is durable on the legs that count; `has_it`: on the witness, too.
    pub(super) fn witness_knows_now(&mut self, has_it: bool) {
        let members = &self.membership.members;
        if has_it {
            self.witness_knows.clone_from(members);
            if let Some(witness) = self.witness.as_mut().filter(|witness| witness.votes()) {
                witness.standing = WitnessStanding::Votes;
                witness.due = self.patience.clock().after(witness.look_every);
            }
        } else if self.membership.witness.is_none()
            && self.witness_knows.iter().all(|leg| members.contains(leg) && self.leg_counts(*leg))
        {
            // Rule 2.
            self.witness_knows.clear();
        }
    }

    pub(super) fn leg_counts(&self, leg: Uuid) -> bool {
        self.legs.iter().any(|known| known.uuid == leg && known.counts())
    }

    /// Whether a leg that counts no more may be believed on its word.
    fn knows_one_that_is_out(&self) -> bool {
        self.witness_knows.iter().any(|leg| !self.leg_counts(*leg))
    }

    /// Rule 3: looked at whenever the witness or a leg counts no more.
    pub(super) fn check_witness(&mut self, error: IoError) {
        // One that joins has no say in what the one before it knows.
        let votes = self.witness_to_name().is_some();
        if !votes && self.failure().is_none() && self.knows_one_that_is_out() {
            self.give_membership_up(error);
        }
    }

    /// Whether it would be needed to be without this leg, and has no word.
    pub(super) fn witness_is_needed_without(&self, leg: Uuid) -> bool {
        self.witness_to_name().is_none() && self.witness_knows.contains(&leg)
    }

    /// Whether a start may still ask it, although it is out.
    pub(crate) fn is_dropping_witness(&self) -> bool {
        self.failure().is_none() && self.witness_to_name().is_none() && self.witness_is_due()
    }

    /// A file becomes the witness. `before`: the label that it has, if it was one of this cache.
    pub(crate) fn add_witness(
        &mut self,
        parts: WitnessParts,
        before: Option<&LegLabel>,
    ) -> Result<(), LegError> {
        if self.failure().is_some() {
            return Err(LegError::NoLabels);
        }
        if self.witness.as_ref().is_some_and(|witness| witness.votes() || !witness.is_idle()) {
            return Err(LegError::WitnessInUse);
        }
        if before.is_some_and(|before| before.cache != self.cache || !self.follows(before)) {
            return Err(before.map_or(LegError::Newer, |before| self.refusal_of(before)));
        }
        self.witness_missing = None;
        self.witness = Some(Witness::new(self.patience.clock(), parts));
        Ok(())
    }

    /// The witness of this name is to be done without; `None`: it is no name of it.
    pub(crate) fn remove_witness(&mut self, name: Uuid) -> Option<Result<(), LegError>> {
        let witness = self.witness.as_ref().filter(|witness| witness.uuid == name)?;
        if witness.votes() && self.knows_one_that_is_out() {
            return Some(Err(LegError::WitnessNeeded));
        }
        self.put_witness_out(WitnessStanding::TakenOut, IoError::Gone);
        Some(Ok(()))
    }

    /// The witness of this name, which is out, is to be tried at once.
    pub(crate) fn try_witness(&mut self, name: Uuid) -> Option<Result<(), LegError>> {
        let now = self.patience.clock();
        let witness = self.witness.as_mut().filter(|witness| witness.uuid == name)?;
        Some(match witness.standing {
            WitnessStanding::Votes | WitnessStanding::Joining => Err(LegError::InUse),
            WitnessStanding::TakenOut => Err(LegError::TakenOut),
            WitnessStanding::LeftOut => {
                witness.standing = WitnessStanding::Joining;
                Ok(())
            }
            WitnessStanding::Failed(_) => {
                witness.due = now;
                Ok(())
            }
        })
    }

    pub(super) fn witness_failed(&mut self, error: IoError) {
        if self.witness.as_ref().is_some_and(Witness::votes) {
            self.put_witness_out(WitnessStanding::Failed(error), error);
        }
    }

    fn put_witness_out(&mut self, standing: WitnessStanding, error: IoError) {
        let now = self.patience.clock();
        let Some(witness) = &mut self.witness else { return };
        let (name, had_votes) = (witness.uuid, witness.standing == WitnessStanding::Votes);
        let counted = witness.votes();
        witness.standing = standing;
        witness.due = now.after(witness.look_every);
        let asked = witness.asked.take();
        witness.late.extend(asked.as_ref().map(|asked| asked.id));
        if counted {
            self.keep_tags_of(name, had_votes);
        }
        self.check_witness(error);
        if asked.is_some_and(|asked| asked.step == Step::Label) {
            self.witness_label_done(Err(error));
        }
    }

    /// Starts to write a label of those under way; whether it does.
    pub(super) fn label_witness(&mut self, membership: &Membership, is_in_force: bool) -> bool {
        let name = membership.witness;
        if !self.witness.as_ref().is_some_and(|it| it.votes() && Some(it.uuid) == name) {
            return false;
        }
        self.write_witness(Step::Label, membership.clone(), is_in_force);
        true
    }

    fn write_witness(&mut self, step: Step, membership: Membership, is_in_force: bool) {
        let witness = self.witness.as_mut().expect("it votes");
        witness.number += 1;
        let label = LegLabel {
            cache: self.cache,
            leg: witness.uuid,
            number: witness.number,
            state: LegState::Witness,
            membership,
            is_in_force,
            region_bytes: self.region_bytes as u32,
            marks: Vec::new(),
            witness_before: None,
        };
        self.ask_witness(step, LegLabel::offset(label.number), label.encode());
    }

    fn ask_witness(&mut self, step: Step, offset: u64, bytes: Buffer) {
        let id = IoId::of(IoOwner::Legs, self.next_io);
        self.next_io += 1;
        let started = self.patience.now();
        let witness = self.witness.as_mut().expect("it is asked");
        assert!(witness.asked.is_none(), "it is asked one thing at a time");
        witness.asked = Some(Asked { id, step, started });
        let operation = IoOperation::Write { offset, data: IoData::Owned(bytes), fua: true };
        self.outputs.push_back(LegsOutput::Io(Io { id, device: Device::Witness, operation }));
    }

    /// An I/O has ended; whether it was one of the witness.
    pub(super) fn witness_io_done(&mut self, done: &IoDone) -> bool {
        let now = self.patience.clock();
        let Some(witness) = &mut self.witness else { return false };
        if witness.late.remove(&done.id) {
            return true;
        }
        let Some(asked) = witness.asked.take_if(|asked| asked.id == done.id) else { return false };
        witness.errors += u64::from(done.result.is_err());
        witness.due = now.after(witness.look_every);
        match (asked.step, done.result) {
            (Step::Label, Ok(())) => self.witness_label_done(Ok(())),
            (Step::Label, Err(error)) => {
                self.witness_failed(error);
                self.witness_label_done(Err(error));
            }
            (Step::Again, Err(error)) => self.witness_failed(error),
            (Step::Probe, Ok(())) if matches!(witness.standing, WitnessStanding::Failed(_)) => {
                witness.standing = WitnessStanding::Joining;
            }
            (Step::Again | Step::Probe, _) => {}
        }
        true
    }

    /// Whether it may be looked after, once it is time.
    fn may_look(&self) -> bool {
        let is_quiet = self.phase == LegsPhase::Running && self.label_write.is_none();
        let Some(witness) = self.witness.as_ref().filter(|it| is_quiet && it.is_idle()) else {
            return false;
        };
        match witness.standing {
            WitnessStanding::Votes => self.membership.witness == Some(witness.uuid),
            WitnessStanding::Failed(_) => true,
            _ => false,
        }
    }

    /// Looks after it, if it is time.
    pub(super) fn look_after_witness(&mut self) -> bool {
        let now = self.patience.clock();
        if !self.may_look() {
            return false;
        }
        let Some(witness) = self.witness.as_ref().filter(|it| it.due <= now) else { return false };
        match witness.standing {
            WitnessStanding::Votes => {
                self.write_witness(Step::Again, self.membership.clone(), true)
            }
            _ => self.ask_witness(Step::Probe, PROBE_OFFSET, Buffer::zeroed(LINE_SIZE as usize)),
        }
        false
    }

    /// One that does not answer has failed (C26); one that is tried may take its time.
    pub(super) fn give_witness_up_late(&mut self) {
        let asked = self.witness.as_ref().and_then(|witness| witness.asked.as_ref());
        let is_late = asked.is_some_and(|asked| {
            asked.step != Step::Probe && self.patience.is_over(asked.started, self.timeout)
        });
        if is_late {
            if let Some(witness) = &mut self.witness {
                witness.errors += 1;
            }
            self.witness_failed(IoError::TimedOut);
        }
    }

    pub(super) fn witness_wake_up(&self) -> Option<Time> {
        let witness = self.witness.as_ref()?;
        match &witness.asked {
            Some(asked) if asked.step == Step::Probe => None,
            Some(asked) => Some(self.patience.wake_up(asked.started, self.timeout)),
            None => {
                let next = self.patience.clock().after(Duration(1));
                self.may_look().then(|| witness.due.max(next))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::leg_label::Tag;
    use crate::legs::choose::choose;
    use crate::legs::{LegStanding, LegsParts};
    use crate::units::LegIndex;

    const TIMEOUT: Duration = Duration::from_secs(32);
    const VOTES: Option<WitnessStanding> = Some(WitnessStanding::Votes);
    const NAMES: [Uuid; 3] = [Uuid([1; 16]), Uuid([2; 16]), Uuid([3; 16])];

    /// Two legs and a witness, of which nothing is kept but their newest labels.
    struct Rig {
        legs: Legs,
        now: Time,
        labels: [LegLabel; 3],
        /// Asked, and not answered.
        asked: Vec<Io>,
        /// What the cache was told.
        told: Vec<Result<(), IoError>>,
    }

    fn place(device: Device) -> usize {
        match device {
            Device::Leg(leg) => usize::from(leg.0),
            _ => 2,
        }
    }

    impl Rig {
        fn new() -> Rig {
            let label = |index| {
                LegLabel::of_new(Uuid([9; 16]), &NAMES[..2], index, Tag(100)).with_witness(NAMES[2])
            };
            let labels = [label(0), label(1), label(0).of_witness()];
            let choice = choose(&labels[..2], Some(&labels[2]), &[]).unwrap();
            let mut parts = LegsParts::new(choice, NAMES[..2].to_vec(), 7);
            parts.witness = Some(WitnessParts::new(&labels[2], WitnessRole::Votes));
            let legs = Legs::open(Time::ZERO, parts, 64 << 20, TIMEOUT).unwrap();
            let (asked, told) = (Vec::new(), Vec::new());
            let mut rig = Rig { legs, now: Time::ZERO, labels, asked, told };
            rig.advance();
            rig.run();
            assert_eq!(rig.standing(), Some(WitnessStanding::Votes));
            rig
        }

        fn advance(&mut self) {
            self.legs.advance();
            while let Some(output) = self.legs.poll() {
                match output {
                    LegsOutput::Io(io) => self.asked.push(io),
                    LegsOutput::Done(done) => self.told.push(done.result),
                }
            }
        }

        /// Answers what this place is asked first.
        fn answer(&mut self, place_asked: usize, result: Result<(), IoError>) {
            let next = self.asked.iter().position(|io| place(io.device) == place_asked);
            let io = self.asked.remove(next.expect("it is asked"));
            if let (IoOperation::Write { data: IoData::Owned(bytes), .. }, Ok(())) =
                (&io.operation, result)
                && let Ok(label) = LegLabel::decode(bytes.bytes())
            {
                self.labels[place_asked] = label;
            }
            self.legs.io_done(IoDone { id: io.id, result, buffer: None });
            self.advance();
        }

        /// Answers everything.
        fn run(&mut self) {
            while let Some(io) = self.asked.first() {
                self.answer(place(io.device), Ok(()));
            }
        }

        fn write(&mut self) {
            let operation = IoOperation::Write {
                offset: 1 << 20,
                data: IoData::Owned(Buffer::zeroed(4096)),
                fua: true,
            };
            let id = IoId::of(IoOwner::Cache, self.told.len() as u64);
            self.legs.submit(Io { id, device: Device::CacheDisk, operation });
            self.advance();
        }

        fn pass(&mut self, seconds: u64) {
            for _ in 0..seconds {
                self.now = self.now.after(Duration::from_secs(1));
                let mut patience = self.legs.patience;
                patience.pass(self.now, true);
                self.legs.set_patience(patience);
                self.advance();
            }
        }

        fn places(&self) -> Vec<usize> {
            self.asked.iter().map(|io| place(io.device)).collect()
        }

        fn standing(&self) -> Option<WitnessStanding> {
            self.legs.witness().and_then(|witness| witness.standing)
        }

        /// Whether these may start, as their labels are.
        fn may_start(&self, legs: &[usize], with_witness: bool) -> bool {
            let found: Vec<LegLabel> = legs.iter().map(|leg| self.labels[*leg].clone()).collect();
            choose(&found, Some(&self.labels[2]).filter(|_| with_witness), &[]).is_ok()
        }
    }

    /// A leg that fails is written out on the witness first, and nothing is told before.
    #[test]
    fn what_a_leg_lacks_is_told_behind_the_label_of_the_witness() {
        let mut rig = Rig::new();
        rig.write();
        // Its mark; then the write itself.
        (0..2).for_each(|leg| rig.answer(leg, Ok(())));
        assert_eq!(rig.places(), [0, 1]);
        rig.answer(0, Ok(()));
        rig.answer(1, Err(IoError::Gone));
        assert_eq!((rig.places(), rig.told.len()), (vec![2], 0));
        assert!(rig.may_start(&[1], true), "nobody was told of anything");
        rig.answer(2, Ok(()));
        assert_eq!((rig.places(), rig.told.len()), (vec![0], 0));
        assert!(!rig.may_start(&[1], true) && rig.may_start(&[0], true));
        rig.answer(0, Ok(()));
        assert!(rig.may_start(&[0], false), "the witness cannot speak for the other any more");
        rig.run();
        assert_eq!(rig.told, [Ok(())]);
        assert!(!rig.may_start(&[1], true) && !rig.may_start(&[1], false));
        assert_eq!(rig.legs.legs[1].standing, LegStanding::Failed(IoError::Gone));
    }

    /// One that fails costs no request, is done without, and comes back when it answers.
    #[test]
    fn a_witness_that_fails_is_done_without_and_comes_back() {
        let mut rig = Rig::new();
        rig.pass(60);
        assert_eq!(rig.places(), [2], "it is looked after");
        rig.pass(32);
        assert_eq!(rig.standing(), Some(WitnessStanding::Failed(IoError::TimedOut)));
        // On both legs, and the late label may land.
        let late = rig.asked.remove(0);
        assert_eq!(rig.places(), [0, 1]);
        assert!(rig.may_start(&[0], true) && rig.may_start(&[1], true));
        rig.run();
        assert!(!rig.may_start(&[0], true) && !rig.may_start(&[1], true));
        assert!(rig.may_start(&[0, 1], true) && rig.may_start(&[0, 1], false));
        rig.write();
        rig.run();
        assert_eq!(rig.told, [Ok(())]);
        // It is not tried before it has ended.
        rig.pass(200);
        assert_eq!(rig.places(), Vec::<usize>::new());
        rig.legs.io_done(IoDone { id: late.id, result: Ok(()), buffer: None });
        rig.pass(1);
        assert!(matches!(rig.asked[0].operation, IoOperation::Write { offset: PROBE_OFFSET, .. }));
        rig.answer(2, Err(IoError::Failed));
        rig.pass(60);
        rig.answer(2, Ok(()));
        assert_eq!(rig.places(), [2], "its label, before those of the legs");
        rig.run();
        assert_eq!(rig.standing(), Some(WitnessStanding::Votes));
        assert!(rig.may_start(&[0], true) && rig.may_start(&[1], true));
    }

    /// It and a leg, in either order, before one of them is done without: nothing more is told.
    #[test]
    fn the_witness_and_a_leg_are_the_cache_disk() {
        for witness_first in [false, true] {
            let mut rig = Rig::new();
            rig.pass(60);
            rig.write();
            // The mark; then the write.
            (0..2).for_each(|leg| rig.answer(leg, Ok(())));
            if witness_first {
                rig.answer(2, Err(IoError::Failed));
                rig.answer(0, Ok(()));
                rig.answer(1, Err(IoError::Gone));
            } else {
                rig.answer(0, Ok(()));
                rig.answer(1, Err(IoError::Gone));
                rig.answer(2, Err(IoError::Failed));
            }
            rig.run();
            assert!(rig.told.iter().all(Result::is_err) && rig.told.len() == 1, "{:?}", rig.told);
            assert!(rig.legs.failure().is_some());
            // That is why; or a late label of the other leg says that it is done without.
            assert!(rig.may_start(&[1], true) || witness_first);
        }
    }

    /// Found by the fuzzer: a leg failed while a witness got its first label, and the cache-disk was
    /// given up, although that one could be told.
    #[test]
    fn a_leg_fails_while_a_witness_joins() {
        for is_told in [true, false] {
            let mut rig = Rig::new();
            assert_eq!(rig.legs.remove_witness(NAMES[2]), Some(Ok(())));
            rig.advance();
            rig.run();
            rig.write();
            // Its mark; then the write itself.
            (0..2).for_each(|leg| rig.answer(leg, Ok(())));
            let blank = WitnessParts::blank(Uuid([4; 16]));
            assert_eq!(rig.legs.add_witness(blank, None), Ok(()));
            rig.advance();
            assert_eq!(rig.places(), [0, 1, 2]);
            rig.answer(0, Ok(()));
            rig.answer(1, Err(IoError::Gone));
            assert!(rig.told.is_empty() && rig.legs.failure().is_none());
            if is_told {
                rig.run();
                assert_eq!((rig.told.as_slice(), rig.standing()), (&[Ok(())][..], VOTES));
                assert!(rig.may_start(&[0], true) && !rig.may_start(&[1], true));
            } else {
                // It may have the label, and be believed with the leg that has failed.
                rig.answer(2, Err(IoError::Failed));
                rig.run();
                assert!(rig.legs.failure().is_some() && rig.told[0].is_err(), "{:?}", rig.told);
            }
        }
    }

    /// Taken out, nobody is told so before no leg can start with it.
    #[test]
    fn it_is_taken_out_on_all_legs() {
        let mut rig = Rig::new();
        assert_eq!(rig.legs.remove_witness(NAMES[2]), Some(Ok(())));
        rig.advance();
        assert_eq!(rig.legs.remove(LegIndex(1)), Err(LegError::WitnessNeeded));
        rig.answer(0, Ok(()));
        assert!(!rig.legs.has_told_all());
        rig.run();
        assert!(rig.legs.has_told_all() && rig.legs.witness().unwrap().is_free);
        assert!(!rig.may_start(&[0], true) && !rig.may_start(&[1], true));
        assert_eq!(rig.legs.remove(LegIndex(1)), Ok(()));
        // Another takes its place.
        let blank = WitnessParts::blank(Uuid([4; 16]));
        assert_eq!(rig.legs.add_witness(blank.clone(), None), Ok(()));
        rig.advance();
        rig.run();
        assert_eq!(rig.standing(), Some(WitnessStanding::Votes));
        assert_eq!(rig.legs.add_witness(blank, None), Err(LegError::WitnessInUse));
    }

    /// Found by the fuzzer: a leg that was out while the witness came and went was a stranger later.
    #[test]
    fn a_leg_that_is_out_is_known_however_often_the_witness_goes() {
        let mut rig = Rig::new();
        assert_eq!(rig.legs.remove(LegIndex(1)), Ok(()));
        rig.advance();
        rig.run();
        for _ in 0..100 {
            assert_eq!(rig.legs.remove_witness(NAMES[2]), Some(Ok(())));
            rig.advance();
            rig.run();
            let parts = WitnessParts::new(&rig.labels[2], WitnessRole::Behind);
            assert_eq!(rig.legs.add_witness(parts, Some(&rig.labels[2].clone())), Ok(()));
            rig.advance();
            rig.run();
            assert_eq!(rig.standing(), VOTES);
        }
        assert!(rig.may_start(&[0, 1], true) && !rig.may_start(&[1], true));
    }
}
