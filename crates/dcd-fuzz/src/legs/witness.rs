//! The witness of two legs: it fails, vanishes, hangs, comes back old, is missing at starts, goes and
//! comes while they serve; and starts with one leg on its word.
//!
//! What it says with one leg is believed, whichever that is: then all that was flushed must be there.

use dcd_engine::IoError;
use dcd_engine::format::leg_label::{LEG_LABEL_OFFSETS, LegLabel};
use dcd_engine::legs::choose::{Choice, WitnessRole, choose};
use dcd_engine::legs::witness::{WitnessParts, WitnessStanding, WitnessStatus};
use dcd_engine::units::{Duration, Uuid};

use super::{Legs, label_of};
use crate::disk::{FaultyDisk, Pages};
use crate::random::Random;

/// The name of the first.
pub(super) const FIRST: Uuid = Uuid([0xc0; 16]);
const DISK_BYTES: usize = 72 << 10;
/// A witness that fails for ever does nothing else.
const TROUBLES_MAX: u64 = 60;

/// The disk of the witness, and what is known of it.
#[derive(Clone)]
pub(crate) struct Witness {
    pub(crate) disk: FaultyDisk,
    random: Random,
    /// As the engine told last.
    status: Option<WitnessStatus>,
    /// It does not do what it is asked, or has not.
    is_struck: bool,
    /// A person has done without it and a leg: that leg may start with it (not covered).
    pub(super) is_forked: bool,
    /// Its label at this start, if it is given.
    given: Option<LegLabel>,
    /// What it was at an earlier start.
    older: Option<Pages>,
    names: u8,
}

/// Who is believed.
pub(super) enum Believed {
    /// The legs are to say so.
    Legs,
    /// The witness, with the leg on this disk.
    One(usize),
}

impl Witness {
    pub(super) fn new(label: &LegLabel, seed: u64) -> Witness {
        let mut disk = FaultyDisk::new(DISK_BYTES, 512);
        for offset in LEG_LABEL_OFFSETS {
            disk.write(offset, label.encode().bytes(), true).expect("a new disk");
        }
        Witness {
            disk,
            random: Random::new(seed ^ 0x7769_746e),
            status: None,
            is_struck: false,
            is_forked: false,
            given: None,
            older: None,
            names: FIRST.0[0],
        }
    }

    /// What the engine tells.
    pub(super) fn note(&mut self, status: Option<WitnessStatus>) {
        if status.is_none() {
            return;
        }
        self.status = status;
        if status.is_some_and(|it| it.standing == Some(WitnessStanding::Votes)) {
            self.is_forked = false;
        }
        if status.is_some_and(|it| !it.has_word) {
            self.is_struck = false;
        }
    }

    /// Whether a leg that fails now can be written out.
    pub(super) fn lets_legs_fail(&self) -> bool {
        let is_told = self.status.is_some_and(|status| !status.has_word);
        let is_it = |it: WitnessStatus| it.standing == Some(WitnessStanding::Votes);
        !self.is_struck && (is_told || self.status.is_some_and(is_it))
    }

    /// Its disk with an older image, if the legs that count can tell it by its tag: one from before
    /// all tags that they have is refused, and nothing is to be learned of that.
    fn as_it_was(
        &self,
        image: Pages,
        disks: [&FaultyDisk; 2],
        counted: [bool; 2],
    ) -> Option<FaultyDisk> {
        let mut older = self.disk.clone();
        older.restore(image);
        let tag = label_of(&older).ok()?.membership.tag;
        let mut counting = disks.into_iter().zip(counted).filter(|(_, counts)| *counts);
        let knows = |disk| label_of(disk).is_ok_and(|label| label.membership.knows(tag));
        counting.all(|(disk, _)| knows(disk)).then_some(older)
    }

    fn is_voting(&self) -> bool {
        let votes = |it: &WitnessStatus| {
            matches!(it.standing, Some(WitnessStanding::Votes | WitnessStanding::Joining))
        };
        self.status.as_ref().is_some_and(votes)
    }

    fn is_needed(&self) -> bool {
        self.status.is_some_and(|status| status.is_needed)
    }

    fn new_name(&mut self) -> Uuid {
        self.names = if self.names == 0xdf { 0xc1 } else { self.names + 1 };
        Uuid([self.names; 16])
    }
}

/// What somebody does about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WitnessCare {
    /// It goes.
    Remove(Uuid),
    /// It comes, under another name.
    Add(Uuid),
    /// It is asked whether it answers.
    Try(Uuid),
}

impl Legs {
    /// The label of the witness that is given to this start.
    pub(super) fn witness_label(&self) -> Option<&LegLabel> {
        self.witness.as_ref().and_then(|witness| witness.given.as_ref())
    }

    /// Which witness is given to a start, and whether one leg with it is enough.
    pub(super) fn choose_by_witness(&mut self, first: &FaultyDisk) -> Believed {
        let disks = [first, &self.disk];
        let counted = self.counted;
        let Some(witness) = &mut self.witness else { return Believed::Legs };
        witness.is_struck = false;
        witness.disk.failing = None;
        // 1. An older one. With an older leg, it would be believed: that is not covered.
        let mut is_true = !witness.is_forked;
        if witness.random.one_in(12)
            && let Some(image) = witness.older.take()
            && let Some(older) = witness.as_it_was(image, disks, counted)
        {
            witness.disk = older;
            self.done.older_witness += 1;
            is_true = false;
            witness.is_forked = true;
        }
        if witness.older.is_none() || witness.random.one_in(4) {
            witness.older = Some(witness.disk.snapshot());
        }
        witness.given = label_of(&witness.disk).ok().filter(|_| !witness.random.one_in(5));
        let Some(given) = &witness.given else {
            self.done.without_witness += 1;
            return Believed::Legs;
        };
        // 2. Any one leg: the labels say whether that is enough.
        if !is_true || !witness.random.one_in(3) {
            return Believed::Legs;
        }
        let place = witness.random.below(2) as usize;
        // Of an older leg it may be one that has no word any more.
        if self.is_older[place] {
            return Believed::Legs;
        }
        // A leg that its own label lets start alone may have been the only one before another took
        // its place: what nobody could tell it, only the witness knows, if that has a say.
        let is_believed =
            |choice: Choice| counted[place] || choice.witness == Some(WitnessRole::Votes);
        let is_enough = label_of(disks[place])
            .is_ok_and(|label| choose(&[label], Some(given), &[]).is_ok_and(is_believed));
        if is_enough && !disks[place].has_bad() { Believed::One(place) } else { Believed::Legs }
    }

    /// The witness as the engine gets it.
    pub(super) fn witness_parts(&mut self, choice: &Choice) -> Option<WitnessParts> {
        let look_every = Duration::from_millis(self.options.witness_look_ms?);
        let witness = self.witness.as_mut()?;
        witness.status = None;
        let parts = match (&witness.given, choice.witness) {
            (Some(label), Some(role)) => WitnessParts::new(label, role),
            // A new one takes the place of one that was lost.
            _ if witness.random.one_in(4) => {
                witness.is_forked = true;
                WitnessParts::blank(witness.new_name())
            }
            _ => return None,
        };
        Some(WitnessParts { look_every, ..parts })
    }

    /// What becomes of the next I/O of the witness; `None`: nothing.
    pub(super) fn witness_fails(&mut self, status: Option<WitnessStatus>) -> Option<IoError> {
        let is_quiet = self.struck == [0; 2];
        let one_in = self.options.trouble_one_in;
        let witness = self.witness.as_mut()?;
        witness.note(status);
        if let Some(error) = witness.disk.failing {
            // It comes back, now and then.
            if !witness.is_voting() && witness.random.one_in(3) {
                witness.disk.failing = None;
                return None;
            }
            return Some(error);
        }
        let may = one_in > 0
            && witness.is_voting()
            && !witness.is_needed()
            && is_quiet
            && self.done.witness_troubles < TROUBLES_MAX
            && witness.random.one_in(6);
        if !may {
            return None;
        }
        self.done.witness_troubles += 1;
        witness.is_struck = true;
        let error = witness.random.pick(&[IoError::Failed, IoError::Gone]);
        if witness.random.one_in(2) {
            witness.disk.failing = Some(error);
        }
        Some(error)
    }

    /// Whether the next I/O of the witness hangs.
    pub(super) fn witness_hangs(&mut self, status: Option<WitnessStatus>) -> bool {
        let is_quiet = self.struck == [0; 2];
        let one_in = self.options.trouble_one_in;
        let Some(witness) = &mut self.witness else { return false };
        witness.note(status);
        let may = one_in > 0 && witness.is_voting() && !witness.is_needed() && is_quiet;
        let hangs = may && witness.random.one_in(40);
        witness.is_struck |= hangs;
        self.done.witness_troubles += u64::from(hangs);
        hangs
    }

    /// What somebody does about the witness now.
    pub(super) fn draw_witness_care(
        &mut self,
        status: Option<WitnessStatus>,
        is_asked: bool,
    ) -> Option<WitnessCare> {
        let is_quiet = self.struck == [0; 2];
        let has_trouble = self.options.trouble_one_in > 0;
        let witness = self.witness.as_mut()?;
        witness.note(status);
        if !has_trouble || !witness.random.one_in(60) {
            return None;
        }
        let standing = status.and_then(|status| status.standing);
        match (standing, status) {
            (Some(WitnessStanding::Votes), Some(status)) => {
                let may = is_quiet && !witness.is_struck && !status.is_needed;
                let goes = may && witness.random.one_in(3);
                witness.is_struck |= goes;
                goes.then_some(WitnessCare::Remove(status.uuid))
            }
            (Some(WitnessStanding::Failed(_)), Some(status)) if witness.random.one_in(2) => {
                Some(WitnessCare::Try(status.uuid))
            }
            (Some(WitnessStanding::Joining), _) => None,
            // A kernel that still has its I/Os does not let the same file be opened again.
            _ if !is_asked => {
                witness.disk.failing = None;
                Some(WitnessCare::Add(witness.new_name()))
            }
            _ => None,
        }
    }
}
