//! What reads may return: while running, and after a crash (contract C1, C2, C3, C4, C9, C14).
//!
//! Every change has a number, and every 512-byte block it writes carries it, so a block tells which
//! change it shows. Changes that overlap may be under way together; then their order is known by
//! the block, and only as far as someone outside could know it: a change was done before another if
//! it was answered before the other was submitted, or if a read has shown them in that order.
//!
//! After a crash the blocks tell which changes survived (*seen*) and which did not (a block
//! of theirs shows something older: *lost*). That is a prefix of the history if and only if
//!
//! - no change that had to survive is lost;
//! - no change is both seen and lost (it would be torn), unless it may be;
//! - no change is lost that was acknowledged before a seen one was submitted.
//!
//! Of the latter two nothing is promised while dcd runs without its cache-disk (C23).
//!
//! Only blocks that changed since the model last settled have versions: a check looks at those, and
//! at as many others as its caller reads.

use dcd_engine::units::BLOCK_SIZE;

use crate::faults::{Allowed, Level};

/// Number of a change; 0 is what was there before all.
pub type ChangeNumber = u64;

/// What [`crate::disk::faulty`] leaves in a physical sector that was torn begins like this change.
const TORN: ChangeNumber = u64::from_ne_bytes([crate::disk::faulty::TORN_BYTE; 8]);

/// A change of the device.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// First block and number of blocks.
    pub start: u64,
    /// See `start`.
    pub blocks: u64,
    /// It writes zeroes instead of its number.
    pub is_zero: bool,
    /// All or nothing across a crash.
    pub is_atomic: bool,
    /// When it was submitted.
    pub submitted: u64,
    /// When it was acknowledged, or failed.
    pub answered_at: Option<u64>,
    /// It was acknowledged as durable by itself (FUA).
    pub is_durable: bool,
    /// It failed: it may show or not, in part.
    pub failed: bool,
}

impl Change {
    fn acknowledged_at(&self) -> Option<u64> {
        self.answered_at.filter(|_| !self.failed)
    }
}

/// A change in the history of one block.
#[derive(Clone, Copy)]
struct Version {
    /// Position in `changes`.
    change: u32,
    /// What was answered before this moment was done before it.
    after: u64,
    /// What is submitted behind this moment is done after it.
    before: u64,
}

/// What a block reads as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// The content that this change wrote.
    Change(ChangeNumber),
    /// Nothing: an error.
    Error,
    /// What no change wrote there: begins like this change of that block.
    Garbage(ChangeNumber, u64),
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub String);

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a check found that is no violation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Notes {
    /// Blocks that failed to read where an error is allowed.
    pub errors: u64,
    /// Blocks that showed what the contract openly does not promise to prevent.
    pub uncovered: u64,
}

/// The model.
#[derive(Clone)]
pub struct Model {
    /// Content before the changes below.
    base: Vec<ChangeNumber>,
    /// Changes that touched the block, in the order of their submission.
    versions: Vec<Vec<Version>>,
    /// Blocks with versions.
    touched: Vec<u64>,
    /// Changes since the model settled.
    changes: Vec<Change>,
    /// Number of `changes[0]`.
    first: ChangeNumber,
    /// Positions of changes that are not answered.
    open: Vec<u32>,
    /// First block and number of blocks of every change ever.
    ever: Vec<(u64, u64)>,
    clock: u64,
    /// Changes acknowledged before this moment are durable.
    durable_before: u64,
    /// Until the next crash, changes go to a plain disk: a power cut keeps of those that are not
    /// durable what it likes, and tears them as it likes (C23).
    pub is_plain: bool,
}

impl Model {
    /// A device of zeroes.
    pub fn new(blocks: u64) -> Model {
        Model {
            base: vec![0; blocks as usize],
            versions: vec![Vec::new(); blocks as usize],
            touched: Vec::new(),
            changes: Vec::new(),
            first: 1,
            open: Vec::new(),
            ever: vec![(0, 0)],
            clock: 0,
            durable_before: 0,
            is_plain: false,
        }
    }

    /// A moment, later than all before.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Blocks of the device.
    pub fn blocks(&self) -> u64 {
        self.base.len() as u64
    }

    /// Blocks whose content after a crash is not certain, in the order in which they were touched.
    pub fn touched(&self) -> &[u64] {
        &self.touched
    }

    // ---- what happens -------------------------------------------------------------------------

    /// A change is submitted; returns its number and what to write.
    pub fn submit(
        &mut self,
        start: u64,
        blocks: u64,
        is_zero: bool,
        is_atomic: bool,
    ) -> ChangeNumber {
        let submitted = self.tick();
        let position = self.changes.len() as u32;
        let number = self.first + u64::from(position);
        self.changes.push(Change {
            start,
            blocks,
            is_zero,
            is_atomic,
            submitted,
            answered_at: None,
            is_durable: false,
            failed: false,
        });
        self.ever.push((start, blocks));
        self.open.push(position);
        for block in start..start + blocks {
            let versions = &mut self.versions[block as usize];
            if versions.is_empty() {
                self.touched.push(block);
            }
            versions.push(Version { change: position, after: submitted, before: u64::MAX });
        }
        number
    }

    fn position(&self, number: ChangeNumber) -> Option<usize> {
        let position = number.checked_sub(self.first)? as usize;
        (position < self.changes.len()).then_some(position)
    }

    /// First block and number of blocks of a change.
    pub fn range(&self, number: ChangeNumber) -> Option<(u64, u64)> {
        self.ever.get(number as usize).copied()
    }

    /// The change was acknowledged, or failed.
    pub fn acknowledge(&mut self, number: ChangeNumber, ok: bool) {
        let now = self.tick();
        if let Some(position) = self.position(number) {
            let change = &mut self.changes[position];
            change.answered_at = Some(now);
            change.failed = !ok;
            self.open.retain(|open| *open as usize != position);
        }
    }

    /// A change with FUA was acknowledged: it and all acknowledged before its submission survive.
    pub fn durable_change(&mut self, number: ChangeNumber) {
        if let Some(position) = self.position(number) {
            let change = &mut self.changes[position];
            change.is_durable = true;
            self.durable_before = self.durable_before.max(change.submitted);
        }
    }

    /// A flush that was submitted at `submitted` was acknowledged.
    pub fn flushed(&mut self, submitted: u64) {
        self.durable_before = self.durable_before.max(submitted);
    }

    /// Everything that was acknowledged survives, even a power cut.
    pub fn all_acknowledged_survive(&mut self) {
        self.durable_before = self.clock + 1;
    }

    /// Whether any change that is not answered touches the range.
    pub fn overlaps_open(&self, start: u64, blocks: u64) -> bool {
        self.open.iter().any(|position| {
            let change = &self.changes[*position as usize];
            change.start < start + blocks && start < change.start + change.blocks
        })
    }

    /// The volume has become larger; what is behind its old end is zero.
    pub fn grow(&mut self, blocks: u64) {
        self.base.resize(blocks as usize, 0);
        self.versions.resize(blocks as usize, Vec::new());
    }

    /// Ranges of writes that are only on the data-disk and that no flush has covered: bypasses that
    /// are not acknowledged and, without a cache-disk, everything that is not durable.
    pub fn unflushed_on_data_disk(&self) -> Vec<(u64, u64)> {
        let is_open = |change: &&Change| match self.is_plain {
            true => !is_durable(change, self.durable_before),
            false => !change.is_atomic && change.acknowledged_at().is_none(),
        };
        self.changes.iter().filter(is_open).map(|change| (change.start, change.blocks)).collect()
    }

    /// Changes that are over for good need not be remembered: keeps checks fast.
    pub fn settle(&mut self) {
        let durable_before = self.durable_before;
        if !self.changes.iter().all(|change| is_durable(change, durable_before)) {
            return;
        }
        // Of blocks whose newest version nobody knows, a read may tell it later.
        let newest: Vec<_> = self.touched.iter().map(|block| self.newest(*block)).collect();
        if newest.contains(&None) {
            return;
        }
        for (block, newest) in std::mem::take(&mut self.touched).into_iter().zip(newest) {
            self.base[block as usize] = newest.expect("looked at");
            self.versions[block as usize].clear();
        }
        self.forget_changes();
    }

    fn forget_changes(&mut self) {
        self.first += self.changes.len() as u64;
        self.changes.clear();
        self.open.clear();
    }

    /// What the block shows when nothing is under way, if only one thing can be.
    fn newest(&self, block: u64) -> Option<ChangeNumber> {
        let mut candidates = self.candidates(block, self.clock);
        let first = candidates.next();
        first.filter(|first| candidates.all(|other| other == *first))
    }

    /// After a crash: what was shown is the new beginning. Blocks that could not be read keep their
    /// last version, if anybody knows it, and fail or show it until they are overwritten.
    pub fn adopt(&mut self, shown: &[(u64, Shown)]) {
        for (block, shown) in shown {
            let newest = match shown {
                Shown::Change(number) => Some(*number),
                Shown::Error | Shown::Garbage(..) => self.newest(*block),
            };
            if let Some(newest) = newest {
                self.base[*block as usize] = newest;
            }
        }
        for block in std::mem::take(&mut self.touched) {
            self.versions[block as usize].clear();
        }
        self.is_plain = false;
        self.forget_changes();
    }

    // ---- checks -------------------------------------------------------------------------------

    fn change_of(&self, version: &Version) -> &Change {
        &self.changes[version.change as usize]
    }

    fn value_of(&self, version: &Version) -> ChangeNumber {
        value(&self.changes, self.first, version.change)
    }

    /// The version was done before all that came after this moment.
    fn end_of(&self, version: &Version) -> u64 {
        self.change_of(version).answered_at.unwrap_or(u64::MAX).min(version.before)
    }

    /// What a read submitted at `submitted` may show of a block.
    fn candidates(&self, block: u64, submitted: u64) -> impl Iterator<Item = ChangeNumber> {
        let versions = &self.versions[block as usize];
        let is_done =
            move |change: &Change| change.acknowledged_at().is_some_and(|at| at <= submitted);
        // What was done before the newest of these cannot show any more; of that one, the second.
        let (mut newest, mut second, mut newest_submitted) = ((0, u32::MAX), 0, 0);
        for version in versions.iter().filter(|version| is_done(self.change_of(version))) {
            newest_submitted = newest_submitted.max(self.change_of(version).submitted);
            if version.after > newest.0 {
                second = newest.0;
                newest = (version.after, version.change);
            } else {
                second = second.max(version.after);
            }
        }
        let base = (newest.0 == 0).then_some(self.base[block as usize]);
        let shows = versions.iter().filter(move |version| {
            // One that failed may show or not, and another time again, until something comes after
            // it.
            let limit = match self.change_of(version).failed {
                true => newest_submitted,
                false if version.change == newest.1 => second,
                false => newest.0,
            };
            self.end_of(version) >= limit
        });
        base.into_iter().chain(shows.map(|version| self.value_of(version)))
    }

    /// Whether a read submitted now may show this change of a block.
    pub fn may_show(&self, block: u64, number: ChangeNumber) -> bool {
        self.candidates(block, self.clock).any(|candidate| candidate == number)
    }

    /// Whether what shows of a block may be torn: a change failed there, or a write past the log is
    /// under way, and nothing has come after it.
    fn is_undefined(&self, block: u64, submitted: u64) -> bool {
        let mut loose = self.versions[block as usize].iter().filter(|version| {
            let change = self.change_of(version);
            change.failed || !change.is_atomic && change.answered_at.is_none_or(|at| at > submitted)
        });
        let candidates = || self.candidates(block, submitted);
        loose.any(|version| candidates().any(|candidate| candidate == self.value_of(version)))
    }

    /// A read that was submitted at `submitted` and has just ended has shown this: so it was done
    /// last.
    fn observe(&mut self, block: u64, shown: ChangeNumber, submitted: u64) {
        if self.versions[block as usize].len() < 2 {
            return;
        }
        let now = self.tick();
        let shows = |(_, version): &(usize, &Version)| self.value_of(version) == shown;
        let mut matching = self.versions[block as usize].iter().enumerate().filter(shows);
        let (Some((index, version)), None) = (matching.next(), matching.next()) else { return };
        if self.change_of(version).failed || self.base[block as usize] == shown {
            return;
        }
        let version = &mut self.versions[block as usize][index];
        version.after = version.after.max(submitted);
        version.before = version.before.min(now);
    }

    /// Whether the change ever wrote to this block.
    fn was_ever_there(&self, block: u64, number: ChangeNumber) -> bool {
        self.ever
            .get(number as usize)
            .is_some_and(|(start, blocks)| number == 0 || (*start..start + blocks).contains(&block))
    }

    /// Checks what a read of `bytes` from `start` on returned, which has just ended.
    pub fn check_read(
        &mut self,
        start: u64,
        bytes: &[u8],
        submitted: u64,
        allowed: &Allowed,
    ) -> Result<Notes, Violation> {
        let mut notes = Notes::default();
        for (i, bytes) in bytes.chunks(BLOCK_SIZE as usize).enumerate() {
            let block = start + i as u64;
            let found = read_block(bytes, block);
            if let Shown::Change(found) = found
                && self.candidates(block, submitted).any(|candidate| candidate == found)
            {
                self.observe(block, found, submitted);
                continue;
            }
            if matches!(found, Shown::Garbage(..)) && self.is_undefined(block, submitted) {
                continue;
            }
            let is_covered = match found {
                _ if allowed.is_tainted(block) => false,
                Shown::Garbage(TORN, _) if allowed.level >= Level::Ever => false,
                Shown::Change(number) if allowed.level >= Level::Ever => {
                    !self.was_ever_there(block, number)
                }
                _ => allowed.level < Level::Anything,
            };
            if is_covered {
                return Err(Violation(format!(
                    "read of block {block} shows {}, expected one of {:?}",
                    describe(found),
                    self.candidates(block, submitted).collect::<Vec<_>>()
                )));
            }
            notes.uncovered += 1;
        }
        Ok(notes)
    }

    /// Checks what blocks show after a crash. With `memory_survived` only the process died, and
    /// all that was acknowledged must be there.
    pub fn check_after_crash(
        &self,
        shown: &[(u64, Shown)],
        memory_survived: bool,
        allowed: &Allowed,
    ) -> Result<Notes, Violation> {
        let mut notes = Notes::default();
        let mut seen = vec![false; self.changes.len()];
        let mut lost = vec![false; self.changes.len()];
        for (block, shown) in shown {
            let versions = &self.versions[*block as usize];
            let found = match shown {
                _ if allowed.is_tainted(*block) => {
                    notes.uncovered += 1;
                    continue;
                }
                Shown::Error if allowed.reads_fail => {
                    notes.errors += 1;
                    continue;
                }
                Shown::Error => return Err(Violation(format!("block {block} cannot be read"))),
                // Of a bypassed write that was not acknowledged anything may show (C9).
                Shown::Garbage(..) if self.may_be_garbage(versions) => continue,
                // A torn sector of the data-disk that the log was to repair.
                Shown::Garbage(TORN, _) if allowed.level >= Level::Ever => {
                    notes.uncovered += 1;
                    continue;
                }
                Shown::Garbage(..) if allowed.level >= Level::Anything => {
                    notes.uncovered += 1;
                    continue;
                }
                Shown::Garbage(..) => {
                    return Err(Violation(format!("block {block} shows {}", describe(*shown))));
                }
                Shown::Change(number) => *number,
            };
            if allowed.level >= Level::Ever {
                let newest = versions
                    .last()
                    .map_or(self.base[*block as usize], |version| self.value_of(version));
                if !self.was_ever_there(*block, found) && allowed.level < Level::Anything {
                    return Err(Violation(format!(
                        "block {block} shows change {found}, which was never there"
                    )));
                }
                notes.uncovered += u64::from(found != newest);
                continue;
            }
            self.judge(*block, found, &mut seen, &mut lost)?;
        }
        if allowed.level == Level::Exact {
            self.is_prefix(&seen, &lost, memory_survived)?;
        }
        Ok(notes)
    }

    /// The data-disk alone shows this, and it should be a point of the order. What it shows for
    /// certain must show from then on: not a change of which it lacks a part, because the window was
    /// cut between two parts of a write that is larger than one.
    pub fn check_window(
        &mut self,
        shown: &[(u64, Shown)],
        allowed: &Allowed,
    ) -> Result<(), Violation> {
        let mut seen = vec![false; self.changes.len()];
        let mut lost = vec![false; self.changes.len()];
        for (block, shown) in shown.iter().filter(|(block, _)| !allowed.is_tainted(*block)) {
            match shown {
                Shown::Change(number) => self.judge(*block, *number, &mut seen, &mut lost)?,
                other => {
                    return Err(Violation(format!("block {block} shows {}", describe(*other))));
                }
            }
        }
        self.is_prefix(&seen, &lost, false)?;
        for (change, (seen, lost)) in self.changes.iter_mut().zip(seen.iter().zip(&lost)) {
            change.is_durable |= *seen && !*lost;
        }
        Ok(())
    }

    /// A crash has happened, and this is what is there: what it lacks never was, and nothing is
    /// under way any more.
    pub fn crashed(&mut self, shown: &[(u64, Shown)]) {
        let now = self.tick();
        for (block, shown) in shown {
            let versions = &self.versions[*block as usize];
            let is_it = |version: &Version| *shown == Shown::Change(self.value_of(version));
            let kept = versions.iter().rposition(is_it).map_or(0, |newest| newest + 1);
            let gone: Vec<u32> = versions[kept..].iter().map(|version| version.change).collect();
            for position in gone {
                self.changes[position as usize].failed = true;
            }
        }
        for position in std::mem::take(&mut self.open) {
            let change = &mut self.changes[position as usize];
            change.failed = true;
            change.answered_at = Some(now);
        }
    }

    fn may_be_garbage(&self, versions: &[Version]) -> bool {
        versions.iter().any(|version| {
            let change = self.change_of(version);
            let is_bypass = !change.is_atomic && !change.is_zero;
            is_bypass && change.acknowledged_at().is_none()
                || self.is_plain && !is_durable(change, self.durable_before)
        })
    }

    /// Which changes a block says were seen, and which lost.
    fn judge(
        &self,
        block: u64,
        found: ChangeNumber,
        seen: &mut [bool],
        lost: &mut [bool],
    ) -> Result<(), Violation> {
        let versions = &self.versions[block as usize];
        // Zeroes look alike: several versions may explain a zero. Only sure facts count.
        let mut matching = versions.iter().filter(|version| self.value_of(version) == found);
        let base_matches = self.base[block as usize] == found;
        let first = matching.next();
        if first.is_none() && !base_matches {
            let history: Vec<ChangeNumber> = versions.iter().map(|v| self.value_of(v)).collect();
            return Err(Violation(format!(
                "block {block} shows change {found}, expected one of {history:?} or {}",
                self.base[block as usize]
            )));
        }
        let second = matching.next();
        if let (Some(only), None, false) = (first, second, base_matches) {
            seen[only.change as usize] = true;
        }
        let shown = first.into_iter().chain(second).chain(matching);
        let end = shown.map(|version| self.end_of(version)).max().unwrap_or(0);
        let later = |version: &&Version| self.value_of(version) != found && end < version.after;
        for version in versions.iter().filter(later) {
            lost[version.change as usize] = true;
        }
        Ok(())
    }

    fn is_prefix(
        &self,
        seen: &[bool],
        lost: &[bool],
        memory_survived: bool,
    ) -> Result<(), Violation> {
        let durable_before = if memory_survived { u64::MAX } else { self.durable_before };
        let seen_at = self.changes.iter().zip(seen).filter(|(_, seen)| **seen);
        let newest_seen = seen_at.map(|(change, _)| change.submitted).max().unwrap_or(0);
        for (position, change) in self.changes.iter().enumerate() {
            if change.failed || !lost[position] {
                continue;
            }
            let number = self.first + position as u64;
            if is_durable(change, durable_before) {
                return Err(Violation(format!(
                    "change {number} had to survive and is lost: {change:?}"
                )));
            }
            if self.is_plain {
                continue;
            }
            if seen[position] && change.is_atomic {
                return Err(Violation(format!("change {number} is torn: {change:?}")));
            }
            if change.acknowledged_at().is_some_and(|at| at < newest_seen) {
                return Err(Violation(format!(
                    "change {number} is lost although a later one is there: {change:?}"
                )));
            }
        }
        Ok(())
    }
}

fn value(changes: &[Change], first: ChangeNumber, position: u32) -> ChangeNumber {
    if changes[position as usize].is_zero { 0 } else { first + u64::from(position) }
}

fn is_durable(change: &Change, durable_before: u64) -> bool {
    change.is_durable || change.acknowledged_at().is_some_and(|at| at < durable_before)
}

fn describe(shown: Shown) -> String {
    match shown {
        Shown::Change(number) => format!("change {number}"),
        Shown::Error => "an error".into(),
        Shown::Garbage(number, block) => {
            format!("garbage that begins like change {number} of block {block}")
        }
    }
}

/// The content that a change gives to a block.
pub fn fill_block(bytes: &mut [u8], number: ChangeNumber, block: u64) {
    for (i, words) in bytes.chunks_exact_mut(16).enumerate() {
        words[..8].copy_from_slice(&number.to_le_bytes());
        words[8..].copy_from_slice(&(block << 8 | i as u64).to_le_bytes());
    }
}

/// Which change a block shows.
pub fn read_block(bytes: &[u8], block: u64) -> Shown {
    let (head, _) = bytes.split_at(16);
    let number = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
    let place = u64::from_le_bytes(head[8..].try_into().expect("eight bytes")) >> 8;
    if number == 0 && place == 0 && *bytes == [0; BLOCK_SIZE as usize] {
        return Shown::Change(0);
    }
    let mut expected = [0; BLOCK_SIZE as usize];
    fill_block(&mut expected, number, block);
    if number > 0 && *bytes == expected {
        return Shown::Change(number);
    }
    Shown::Garbage(number, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact() -> Allowed {
        Allowed::default()
    }

    /// Three whole-line writes to three places, all acknowledged, the first flushed.
    fn model() -> Model {
        let mut model = Model::new(64);
        for line in 0..3 {
            let number = model.submit(line * 8, 8, false, true);
            model.acknowledge(number, true);
            if line == 0 {
                let now = model.tick();
                model.flushed(now);
            }
        }
        model
    }

    fn shows(numbers: [u64; 3]) -> Vec<(u64, Shown)> {
        (0..24).map(|b| (b, Shown::Change(numbers[b as usize / 8]))).collect()
    }

    #[test]
    fn a_prefix_is_right_and_a_hole_is_not() {
        let check = |numbers, memory| {
            model().check_after_crash(&shows(numbers), memory, &exact()).map(|_| ())
        };
        assert!(check([1, 2, 3], true).is_ok());
        assert!(check([1, 2, 0], false).is_ok());
        assert!(check([1, 0, 0], false).is_ok());
        let words = |result: Result<(), Violation>| result.unwrap_err().0;
        assert!(words(check([1, 0, 3], false)).contains("later one"));
        assert!(words(check([0, 0, 0], false)).contains("had to survive"));
        assert!(words(check([1, 2, 0], true)).contains("had to survive"));
        assert!(words(check([1, 2, 7], false)).contains("expected one of"));
    }

    #[test]
    fn torn_changes_and_errors_are_seen() {
        let mut shown = shows([1, 2, 3]);
        shown[20].1 = Shown::Change(0);
        let torn = model().check_after_crash(&shown, false, &exact());
        assert!(torn.unwrap_err().0.contains("torn"));
        shown[20].1 = Shown::Error;
        assert!(model().check_after_crash(&shown, false, &exact()).is_err());
        let allowed = Allowed { reads_fail: true, ..Allowed::default() };
        assert_eq!(model().check_after_crash(&shown, false, &allowed).unwrap().errors, 1);
    }

    fn read(model: &mut Model, number: ChangeNumber, submitted: u64) -> Result<(), Violation> {
        let mut bytes = [0; 512];
        if number > 0 {
            fill_block(&mut bytes, number, 3);
        }
        model.check_read(3, &bytes, submitted, &exact()).map(|_| ())
    }

    /// ```text
    /// change 1    |------------------|
    /// change 2       |------|               change 3 fails      |---|
    /// reads             |------|                 |----|            |----|
    /// ```
    #[test]
    fn changes_under_way_together_have_the_order_that_reads_have_shown() {
        let mut m = Model::new(8);
        let (one, two) = (m.submit(0, 8, false, true), m.submit(3, 1, false, true));
        let early = m.tick();
        m.acknowledge(two, true);
        assert!(
            read(&mut m.clone(), one, early).is_ok() && read(&mut m.clone(), two, early).is_ok()
        );
        assert!(read(&mut m.clone(), 0, early).is_ok(), "submitted before anything was answered");
        m.acknowledge(one, true);
        let late = m.tick();
        assert!(read(&mut m.clone(), 0, late).is_err());
        assert!(read(&mut m.clone(), two, late).is_ok());
        assert!(read(&mut m, one, late).is_ok());
        let later = m.tick();
        assert!(read(&mut m.clone(), one, later).is_ok());
        assert!(read(&mut m.clone(), two, later).is_err(), "1 was seen after both had ended");
        let words = |m: &Model, number| {
            let shown = [(3, Shown::Change(number))];
            m.check_after_crash(&shown, true, &exact()).map(|_| ()).map_err(|violation| violation.0)
        };
        assert!(words(&m, one).is_ok());
        assert!(words(&m, two).unwrap_err().contains("change 1 had to survive"));
        let three = m.submit(3, 1, false, true);
        m.acknowledge(three, false);
        let last = m.tick();
        for shows in [three, one, three] {
            assert!(read(&mut m, shows, last).is_ok(), "what failed may come and go");
        }
        assert!(read(&mut m, two, last).is_err());
    }

    /// Without a read, nobody knows which of two is the newer; what follows a flush is unknown too.
    #[test]
    fn what_nobody_can_know_is_not_settled() {
        let mut m = Model::new(8);
        let (one, two) = (m.submit(0, 8, false, true), m.submit(3, 1, false, true));
        m.acknowledge(one, true);
        m.acknowledge(two, true);
        m.all_acknowledged_survive();
        m.settle();
        assert_eq!(m.touched().len(), 8);
        let now = m.tick();
        assert!(read(&mut m, one, now).is_ok());
        m.settle();
        assert!(m.touched().is_empty());
        let now = m.tick();
        assert!(read(&mut m, two, now).is_err());
    }

    #[test]
    fn what_was_never_written_is_wrong_at_every_level() {
        let allowed = Allowed { level: Level::Ever, ..Allowed::default() };
        assert!(model().check_after_crash(&shows([0, 2, 0]), true, &allowed).is_ok());
        assert!(model().check_after_crash(&shows([2, 2, 0]), true, &allowed).is_err());
    }

    #[test]
    fn blocks_tell_which_change_they_show() {
        let mut bytes = [0; 512];
        assert_eq!(read_block(&bytes, 9), Shown::Change(0));
        fill_block(&mut bytes, 7, 9);
        assert_eq!(read_block(&bytes, 9), Shown::Change(7));
        assert_eq!(read_block(&bytes, 8), Shown::Garbage(7, 9));
        bytes[100] ^= 1;
        assert_eq!(read_block(&bytes, 9), Shown::Garbage(7, 9));
    }
}
