//! A cache-disk on two legs: the second disk, what happens to one of them alone, and what a start
//! takes. While the other counts and can be read, nothing of it may be seen from above. In some runs
//! they have a witness, with troubles of its own.

use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::leg_label::{LEG_LABEL_OFFSETS, LegLabel, PAST_TAGS, Tag};
use dcd_engine::legs::choose::{LegsError, Role, choose};
use dcd_engine::legs::status::LegStatus;
use dcd_engine::legs::witness::WitnessStatus;
use dcd_engine::legs::{LegStanding, LegsParts};
use dcd_engine::units::{LegIndex, Uuid};
use dcd_engine::{FormatError, IoError, IoOperation, Superblock};

use crate::disk::{FaultyDisk, Pages};
use crate::model::Violation;
use crate::random::Random;

mod strike;
mod witness;

pub(crate) use self::strike::LegsOf;
use self::witness::{Believed, Witness};

/// How the legs of a run are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LegOptions {
    /// Size of a region.
    pub region_bytes: u32,
    /// Most regions that a label marks, if that is enough for the largest write.
    pub marks_max: usize,
    /// Something happens to one leg once in so many I/Os; 0: nothing does.
    pub trouble_one_in: u64,
    /// Decides what.
    pub seed: u64,
    /// Most bytes per second of a fill; 0: no limit.
    pub fill_rate: u64,
    /// They have a witness, which is looked after so often, in milliseconds.
    pub witness_look_ms: Option<u64>,
}

impl LegOptions {
    /// Options of a run.
    pub fn draw(random: &mut Random) -> LegOptions {
        LegOptions {
            region_bytes: random.pick(&[64 << 10, 64 << 10, 128 << 10, 1 << 20]) as u32,
            marks_max: random.pick(&[12, 16, 768]) as usize,
            trouble_one_in: random.pick(&[0, 20, 60, 200]),
            seed: random.bits(),
            fill_rate: 0,
            witness_look_ms: None,
        }
    }
}

/// What a label has to have marks for at once: the copies of a page are written together.
const LARGEST_WRITE_BYTES: u64 = 1 << 20;

/// A run in which legs are filled and fail for ever does nothing else.
const TROUBLES_MAX: u64 = 40;

/// What may happen to a leg.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// This I/O fails; of a write any part may have landed, of what was not flushed any part is
    /// gone.
    Fails,
    /// So do all from here on, until somebody looks after it.
    Dies(IoError),
    /// What is read here cannot be, until it is written.
    BadSector,
    /// What is read here is something else than was written.
    Rots,
}

/// What somebody does about legs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Care {
    /// One that is out is filled.
    Fill(LegIndex),
    /// One goes.
    TakeOut(LegIndex),
    /// A disk that is no leg, or no more, becomes one.
    Join(usize),
}

/// The second leg, and what is known of both.
#[derive(Clone)]
pub struct Legs {
    /// The second disk; the first is that of the machine.
    pub disk: FaultyDisk,
    pub(crate) options: LegOptions,
    random: Random,
    /// Which disk each leg of the engine is, or was.
    places: Vec<usize>,
    /// The leg that each disk is now.
    current: [Option<LegIndex>; 2],
    /// Those that counted when the machine stopped.
    pub(crate) counted: [bool; 2],
    /// Disks that are older copies of themselves, and have not been filled since.
    is_older: [bool; 2],
    /// Disks that were struck, and so many I/Os of legs later are healthy again if they still
    /// count: until then the other must answer for both.
    struck: [u64; 2],
    /// A line of one of them has rotted, and was not written since.
    rots: bool,
    /// I/Os until the next may: who has read the last rot reads again elsewhere first.
    rot_pause: u32,
    /// An image of one of them at an earlier start.
    older: Option<(usize, Pages)>,
    /// Requests about legs.
    asked: u64,
    /// The witness, in some runs.
    pub(crate) witness: Option<Witness>,
    /// What was done, by name.
    pub(crate) done: LegCounts,
}

/// What was done to legs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LegCounts {
    /// I/Os that failed, disks that died, sectors that went bad, I/Os that hung.
    pub troubles: u64,
    /// Starts without one of them, of which so many were forced.
    pub without_one: u64,
    /// See `without_one`.
    pub forced: u64,
    /// Starts with an older image of one.
    pub older: u64,
    /// Legs that a start has filled, or somebody.
    pub filled: u64,
    /// Of them, disks that became legs while the other served.
    pub joined: u64,
    /// Lines that have rotted on one.
    pub rotted: u64,
    /// I/Os of the witness that failed or hung, and so many times it has vanished.
    pub witness_troubles: u64,
    /// Starts with one leg on its word.
    pub by_witness: u64,
    /// Starts without it.
    pub without_witness: u64,
    /// Starts with an older copy of it.
    pub older_witness: u64,
    /// Times that it has become one while the legs served.
    pub witness_joined: u64,
}

impl LegCounts {
    pub(crate) fn add(&mut self, other: &LegCounts) {
        self.troubles += other.troubles;
        self.without_one += other.without_one;
        self.forced += other.forced;
        self.older += other.older;
        self.filled += other.filled;
        self.joined += other.joined;
        self.rotted += other.rotted;
        self.witness_troubles += other.witness_troubles;
        self.by_witness += other.by_witness;
        self.without_witness += other.without_witness;
        self.older_witness += other.older_witness;
        self.witness_joined += other.witness_joined;
    }
}

fn leg_uuid(index: usize) -> Uuid {
    Uuid([0xa0 + index as u8; 16])
}

fn counts(status: &LegStatus) -> bool {
    matches!(status.standing, Some(LegStanding::InSync | LegStanding::Joining))
}

fn label_of(disk: &FaultyDisk) -> Result<LegLabel, FormatError> {
    let copies = LEG_LABEL_OFFSETS.map(|offset| {
        let mut bytes = vec![0; 4096];
        // What cannot be read is no label.
        let _ = disk.read(offset, &mut bytes);
        bytes
    });
    LegLabel::newest(&copies[0], &copies[1])
}

impl Legs {
    /// A second disk like the first, with labels on both.
    pub fn new(options: LegOptions, cache: Uuid, first: &mut FaultyDisk) -> Legs {
        let uuids = [leg_uuid(0), leg_uuid(1)];
        let mut second = first.clone();
        let named = |label: LegLabel| match options.witness_look_ms {
            Some(_) => label.with_witness(witness::FIRST),
            None => label,
        };
        let mut witness = None;
        for (index, disk) in [first, &mut second].into_iter().enumerate() {
            let label = LegLabel {
                region_bytes: options.region_bytes,
                ..LegLabel::of_new(cache, &uuids, index, Tag(options.seed | 1))
            };
            let label = named(label);
            if label.membership.witness.is_some() {
                witness = Some(Witness::new(&label.of_witness(), options.seed));
            }
            for offset in LEG_LABEL_OFFSETS {
                disk.write(offset, label.encode().bytes(), true).expect("a new disk");
            }
        }
        Legs {
            disk: second,
            options,
            random: Random::new(options.seed),
            places: vec![0, 1],
            current: [Some(LegIndex(0)), Some(LegIndex(1))],
            counted: [true; 2],
            is_older: [false; 2],
            struck: [0; 2],
            rots: false,
            rot_pause: 0,
            older: None,
            asked: 0,
            witness,
            done: LegCounts::default(),
        }
    }

    /// Which disk a leg of the engine is.
    pub(crate) fn place(&self, leg: LegIndex) -> usize {
        self.places[usize::from(leg.0)]
    }

    /// A disk has become a leg.
    fn joined(&mut self, disk: usize, leg: LegIndex) {
        let place = usize::from(leg.0);
        self.places.resize(self.places.len().max(place + 1), disk);
        self.places[place] = disk;
        // It may have the place of one that was taken out.
        self.current.iter_mut().for_each(|current| *current = current.filter(|it| *it != leg));
        self.current[disk] = Some(leg);
        self.done.joined += 1;
    }

    /// How a disk is as a leg, if it is one.
    fn status_of<'a>(&self, disk: usize, status: &'a [LegStatus]) -> Option<&'a LegStatus> {
        self.current[disk].and_then(|leg| status.get(usize::from(leg.0)))
    }

    /// The disk of a leg; `first`: the first one.
    pub(crate) fn disk_of<'a>(
        &'a mut self,
        leg: LegIndex,
        first: &'a mut FaultyDisk,
    ) -> &'a mut FaultyDisk {
        if self.place(leg) == 0 { first } else { &mut self.disk }
    }

    /// Notes which legs count, for what a start may do without.
    pub(crate) fn note(&mut self, status: &[LegStatus], witness: Option<WitnessStatus>) {
        if let Some(known) = &mut self.witness {
            known.note(witness);
        }
        if status.is_empty() {
            return;
        }
        self.counted = [0, 1].map(|disk| self.status_of(disk, status).is_some_and(counts));
        self.is_older = [0, 1].map(|disk| self.is_older[disk] && !self.counted[disk]);
    }

    /// Whether the other leg can answer for all.
    fn is_covered(&mut self, leg: LegIndex, status: &[LegStatus]) -> bool {
        for disk in 0..2 {
            let Some(status) = self.status_of(disk, status) else { continue };
            let is_used = counts(status) || status.standing == Some(LegStanding::Filling);
            self.struck[disk] = if is_used { self.struck[disk].saturating_sub(1) } else { 0 };
        }
        let other = 1 - self.place(leg);
        // One that joins has everything, but until its label says so no start knows it.
        let is_whole = self
            .status_of(other, status)
            .is_some_and(|status| status.standing == Some(LegStanding::InSync));
        let may_be_out = self.witness.as_ref().is_none_or(Witness::lets_legs_fail);
        is_whole && may_be_out && !self.rots && self.struck[other] == 0
    }

    fn other_has_bad(&self, leg: LegIndex, first: &FaultyDisk) -> bool {
        if self.place(leg) == 0 { self.disk.has_bad() } else { first.has_bad() }
    }

    /// What becomes of the next I/O of a leg.
    pub(crate) fn draw_trouble(
        &mut self,
        leg: LegIndex,
        operation: &IoOperation,
        status: &[LegStatus],
        other_has_bad: bool,
        may_rot: bool,
    ) -> Option<Trouble> {
        let one_in = self.options.trouble_one_in;
        let is_covered = self.is_covered(leg, status) && !other_has_bad;
        // Reads of slots are few, and rot costs a run nothing.
        if one_in > 0 && may_rot && is_covered && self.struck == [0; 2] && self.random.one_in(4) {
            return Some(Trouble::Rots);
        }
        let is_enough = self.done.troubles >= TROUBLES_MAX;
        if one_in == 0 || is_enough || !is_covered || !self.random.one_in(one_in) {
            return None;
        }
        self.done.troubles += 1;
        let is_read = matches!(operation, IoOperation::Read { .. });
        // With one copy unreadable and the other torn, who counts would be lost.
        let is_label = matches!(operation, IoOperation::Read { offset, .. }
            if LEG_LABEL_OFFSETS.contains(offset));
        let trouble = match self.random.below(4) {
            0 => Trouble::Dies(IoError::Gone),
            1 => Trouble::Dies(IoError::Failed),
            // With a witness one leg is alone more often, and its label must not be lost.
            2 if is_read && !is_label && self.witness.is_none() => Trouble::BadSector,
            _ => Trouble::Fails,
        };
        // It is healthy again when it was read elsewhere.
        let lasts = if is_read && trouble == Trouble::Fails { 100 } else { u64::MAX };
        let place = self.place(leg);
        if trouble != Trouble::BadSector {
            self.struck[place] = lasts;
        }
        Some(trouble)
    }

    /// Whether the next I/O of a leg hangs.
    pub(crate) fn draw_hang(
        &mut self,
        leg: LegIndex,
        status: &[LegStatus],
        other_has_bad: bool,
    ) -> bool {
        let one_in = self.options.trouble_one_in * 8;
        let is_covered = self.is_covered(leg, status) && !other_has_bad;
        let hangs = one_in > 0 && is_covered && self.random.one_in(one_in);
        if hangs {
            self.done.troubles += 1;
            let place = self.place(leg);
            self.struck[place] = u64::MAX;
        }
        hangs
    }

    /// What somebody does now: a leg is put in again, under its name or another, or one is taken
    /// out. `is_asked`: whether a leg has I/Os under way.
    fn draw_care(
        &mut self,
        status: &[LegStatus],
        first: &FaultyDisk,
        is_asked: impl Fn(LegIndex) -> bool,
    ) -> Option<Care> {
        if self.options.trouble_one_in == 0 || !self.random.one_in(40) {
            return None;
        }
        let has_bad = first.has_bad() || self.disk.has_bad() || self.rots;
        for disk in 0..2 {
            let legs = self.places.iter().enumerate().filter(|(_, place)| **place == disk);
            let is_quiet = legs.clone().all(|(leg, _)| !is_asked(LegIndex(leg as u8)));
            let standing = self.status_of(disk, status).and_then(|status| status.standing);
            // A kernel that still has its I/Os does not let the same disk be opened again.
            let care = match (self.current[disk], standing) {
                (None, _) if is_quiet => Care::Join(disk),
                (Some(_), Some(LegStanding::TakenOut)) if is_quiet => Care::Join(disk),
                (Some(leg), Some(LegStanding::Failed(_) | LegStanding::LeftOut)) => {
                    match self.random.below(3) {
                        0 if is_quiet && self.places.len() < 8 => Care::Join(disk),
                        1 => Care::TakeOut(leg),
                        _ => Care::Fill(leg),
                    }
                }
                _ => continue,
            };
            self.done.filled += u64::from(!matches!(care, Care::TakeOut(_)));
            return Some(care);
        }
        let both_count =
            [0, 1].iter().all(|disk| self.status_of(*disk, status).is_some_and(counts))
                && self.struck == [0; 2]
                && self.witness.as_ref().is_none_or(Witness::lets_legs_fail)
                && !has_bad;
        if !both_count || !self.random.one_in(20) {
            return None;
        }
        let disk = self.random.below(2) as usize;
        self.current[disk].map(Care::TakeOut)
    }

    /// What a start takes: the superblock of those in sync, and the legs.
    pub(crate) fn choose(
        &mut self,
        first: &mut FaultyDisk,
    ) -> Result<(Result<Superblock, FormatError>, LegsParts), Violation> {
        let has_trouble = self.options.trouble_one_in > 0;
        self.struck = [0; 2];
        // A start trusts the leg that it reads.
        first.heal_rotten();
        self.disk.heal_rotten();
        self.rots = false;
        if has_trouble && self.random.one_in(6) {
            self.bring_back_older(first);
        }
        // With the witness, whatever the labels say is right.
        let believed = self.choose_by_witness(first);
        let disks = [&*first, &self.disk];
        let labels = disks.map(label_of);
        // One of two copies may be torn, and the other on a bad sector: then that leg is lost.
        let readable: Vec<usize> = (0..2).filter(|place| labels[*place].is_ok()).collect();
        let label = |place: usize| labels[place].clone().expect("it is readable");
        let mut places = readable.clone();
        let mut without = Vec::new();
        if let Believed::One(place) = believed {
            places = vec![place];
            self.done.by_witness += 1;
        } else if readable.len() < 2 || has_trouble && self.random.one_in(5) {
            let given = self.random.pick(&readable.iter().map(|it| *it as u64).collect::<Vec<_>>());
            let given = given as usize;
            // An older copy that was the only one in sync cannot know that.
            let may_be_alone = !disks[given].has_bad() && self.counted[given];
            match choose(&[label(given)], self.witness_label(), &[]) {
                Ok(_) if may_be_alone => places = vec![given],
                // The other may have gone on, for all that this one knows; we know better.
                Err(LegsError::Missing { missing, .. }) if may_be_alone => {
                    places = vec![given];
                    without = missing;
                    self.done.forced += 1;
                }
                _ => {}
            }
            self.done.without_one += u64::from(places.len() == 1);
        }
        let given: Vec<LegLabel> = places.iter().map(|place| label(*place)).collect();
        let witness = self.witness_label().cloned();
        let mut choice = choose(&given, witness.as_ref(), &without);
        // From before all tags that the legs have: a person does without it.
        if let Err(LegsError::WitnessUnknown { witness: unknown, .. }) = choice {
            without.push(unknown);
            choice = choose(&given, witness.as_ref(), &without);
        }
        // The same of a leg that has not counted for so long.
        if let Err(LegsError::LegsUnknown { first: one, second: other }) = choice {
            let old = (0..2).filter(|place| self.is_long_ago(*place, first));
            let old = old.map(label).find(|label| [one, other].contains(&label.leg));
            if let Some(old) = old {
                without.push(old.leg);
                choice = choose(&given, witness.as_ref(), &without);
            }
        }
        // The witness says that a leg was to go on alone, of which an older copy is here: how far it
        // came only that one knows, and a person does without both.
        if let (Err(LegsError::NoneInSync { older, witness: Some(voter), .. }), Some(true_place)) =
            (&choice, self.true_place(disks))
            && places.contains(&true_place)
        {
            without.extend(older.iter().copied().chain([*voter]));
            choice = choose(&given, witness.as_ref(), &without);
            self.done.forced += 1;
        }
        let choice = choice.map_err(|error| {
            Violation(format!("the legs are refused: {error}; {given:?}, {witness:?}"))
        })?;
        self.done.filled += choice.roles.iter().filter(|role| **role == Role::Stale).count() as u64;
        let in_sync = choice.roles.iter().zip(&places).filter(|(role, _)| **role == Role::InSync);
        let superblock = newest_superblock(in_sync.map(|(_, place)| disks[*place]));
        let uuids = given.iter().map(|label| label.leg).collect();
        if let Some(witness) = &mut self.witness {
            witness.is_forked |= !without.is_empty();
        }
        let witness_parts = self.witness_parts(&choice);
        let mut parts = LegsParts::new(choice, uuids, self.random.bits());
        parts.witness = witness_parts;
        let at_once = LARGEST_WRITE_BYTES.div_ceil(u64::from(self.options.region_bytes)) + 1;
        parts.marks_max = self.options.marks_max.max(at_once as usize);
        self.current = [0, 1].map(|disk| {
            let leg = places.iter().position(|place| *place == disk);
            leg.map(|leg| LegIndex(leg as u8))
        });
        self.places = places;
        if self.older.is_none() || self.random.one_in(3) {
            let which = self.random.below(2) as usize;
            let image = if which == 0 { first.snapshot() } else { self.disk.snapshot() };
            self.older = Some((which, image));
        }
        Ok((superblock, parts))
    }

    /// Whether this disk does not count, and the other has changed so often since that it cannot know
    /// its tag.
    fn is_long_ago(&self, place: usize, first: &FaultyDisk) -> bool {
        let number = |place: usize| {
            let disk = if place == 0 { first } else { &self.disk };
            label_of(disk).map_or(0, |label| label.number)
        };
        self.counted[1 - place]
            && !self.counted[place]
            && number(place) + PAST_TAGS as u64 <= number(1 - place)
    }

    /// Whether a line may rot: none has, and the last is long ago.
    fn may_rot(&mut self, first: &FaultyDisk) -> bool {
        self.rot_pause = self.rot_pause.saturating_sub(1);
        if !self.rots {
            return self.rot_pause == 0;
        }
        if !first.has_rotten() && !self.disk.has_rotten() {
            self.rots = false;
            self.rot_pause = 60;
        }
        false
    }

    /// One of the legs is as it was at an earlier start; only if its label can tell.
    fn bring_back_older(&mut self, first: &mut FaultyDisk) {
        let Some((which, image)) = self.older.take() else { return };
        let other = if which == 0 { &self.disk } else { &*first };
        // The other must be the whole truth.
        if !self.counted[1 - which] || other.has_bad() {
            return;
        }
        let Ok(true_label) = label_of(other) else { return };
        let alone = choose(std::slice::from_ref(&true_label), None, &[]);
        if !matches!(alone, Ok(_) | Err(LegsError::Missing { .. })) {
            return;
        }
        let mut older = if which == 0 { first.clone() } else { self.disk.clone() };
        let length = older.len();
        older.restore(image);
        // The log may have had another size then.
        older.resize(length);
        let Ok(old_label) = label_of(&older) else { return };
        let is_same = old_label.membership.tag == true_label.membership.tag
            && old_label.number + 2 >= true_label.number;
        let was_before = true_label.membership.past.first() == Some(&old_label.membership.tag)
            && !true_label.is_in_force;
        // Under a name that it had before, it is another disk: the one that is missing is asked for.
        let now = if which == 0 { label_of(first) } else { label_of(&self.disk) };
        let has_its_name = now.is_ok_and(|now| now.leg == old_label.leg);
        if !has_its_name
            || is_same
            || was_before
            || !true_label.membership.knows(old_label.membership.tag)
        {
            return;
        }
        self.done.older += 1;
        self.counted[which] = false;
        self.is_older[which] = true;
        match which {
            0 => *first = older,
            _ => self.disk = older,
        }
    }

    /// The disk that holds everything while the other is an older copy of itself.
    fn true_place(&self, disks: [&FaultyDisk; 2]) -> Option<usize> {
        let is_true = |place: &usize| {
            self.counted[*place] && self.is_older[1 - *place] && !disks[*place].has_bad()
        };
        (0..2).find(is_true)
    }
}

/// The newest of all copies on these disks.
fn newest_superblock<'a>(
    disks: impl Iterator<Item = &'a FaultyDisk>,
) -> Result<Superblock, FormatError> {
    let mut newest: Option<Superblock> = None;
    let mut problem = None;
    for disk in disks {
        let copies = SUPERBLOCK_OFFSETS.map(|offset| {
            let mut bytes = vec![0; 4096];
            let _ = disk.read(offset, &mut bytes);
            bytes
        });
        match Superblock::newest(&copies[0], &copies[1]) {
            Ok(found) if newest.as_ref().is_none_or(|it| it.generation < found.generation) => {
                newest = Some(found);
            }
            Ok(_) => {}
            Err(error) => problem = Some(error),
        }
    }
    newest.ok_or_else(|| problem.expect("one leg is in sync"))
}
