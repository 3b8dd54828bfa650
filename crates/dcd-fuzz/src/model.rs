//! What reads may return: while running, and after a crash (contract C1, C2, C3, C4, C9, C14).
//!
//! Every change has a number, and every 512-byte block it writes carries it, so a block tells which
//! change it shows. Changes that overlap are never under way together, so each block has one
//! history. After a crash the blocks tell which changes survived (*seen*) and which did not (a block
//! of theirs shows something older: *lost*). That is a prefix of the history if and only if
//!
//! - no change that had to survive is lost;
//! - no change is both seen and lost (it would be torn);
//! - no change is lost that was acknowledged before a seen one was submitted.
//!
//! Of the latter two nothing is promised while dcd runs without its cache-disk.

use dcd_engine::units::BLOCK_SIZE;

/// Number of a change; 0 is what was there before all.
pub type ChangeNumber = u64;

/// A change of the device.
#[derive(Clone, Debug)]
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
    /// When it was acknowledged, if it was.
    pub acknowledged_at: Option<u64>,
    /// It was acknowledged as durable by itself (FUA).
    pub is_durable: bool,
    /// It failed: it may show or not, in part.
    pub failed: bool,
}

/// The model.
pub struct Model {
    /// Content before the changes below.
    base: Vec<ChangeNumber>,
    /// Changes since, by number.
    changes: Vec<(ChangeNumber, Change)>,
    next: ChangeNumber,
    /// Numbers up to here may not be lost if they were acknowledged: by a flush, or for good.
    clock: u64,
    /// Changes acknowledged before this moment are durable.
    durable_before: u64,
    /// Until the next crash, changes go to a plain disk: a power cut keeps of those that are not
    /// durable what it likes (C23).
    pub is_plain: bool,
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub String);

impl Model {
    /// A device of zeroes.
    pub fn new(blocks: u64) -> Model {
        Model {
            base: vec![0; blocks as usize],
            changes: Vec::new(),
            next: 1,
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

    /// A change is submitted; returns its number and what to write.
    pub fn submit(
        &mut self,
        start: u64,
        blocks: u64,
        is_zero: bool,
        is_atomic: bool,
    ) -> (ChangeNumber, Vec<u8>) {
        let submitted = self.tick();
        let number = self.next;
        self.next += 1;
        let change = Change {
            start,
            blocks,
            is_zero,
            is_atomic,
            submitted,
            acknowledged_at: None,
            is_durable: false,
            failed: false,
        };
        self.changes.push((number, change));
        let mut bytes = vec![0; (blocks * BLOCK_SIZE) as usize];
        for (i, block) in bytes.chunks_mut(BLOCK_SIZE as usize).enumerate() {
            fill_block(block, number, start + i as u64);
        }
        (number, bytes)
    }

    /// The change was acknowledged, or failed.
    pub fn acknowledge(&mut self, number: ChangeNumber, ok: bool) {
        let now = self.tick();
        if let Some((_, change)) = self.changes.iter_mut().find(|(n, _)| *n == number) {
            change.acknowledged_at = ok.then_some(now);
            change.failed = !ok;
        }
    }

    /// A change with FUA was acknowledged: it and all acknowledged before its submission survive.
    pub fn durable_change(&mut self, number: ChangeNumber) {
        if let Some((_, change)) = self.changes.iter_mut().find(|(n, _)| *n == number) {
            change.is_durable = true;
            self.durable_before = self.durable_before.max(change.submitted);
        }
    }

    /// A flush that was submitted at `submitted` was acknowledged.
    pub fn flushed(&mut self, submitted: u64) {
        self.durable_before = self.durable_before.max(submitted);
    }

    /// Everything that was acknowledged survives (a death of the process only).
    pub fn all_acknowledged_must_survive(&mut self) {
        self.durable_before = self.clock + 1;
    }

    /// What a read submitted at `submitted` must show of a block; `None` if a change was under way
    /// there at the same time.
    pub fn expected(&self, block: u64, submitted: u64) -> Option<ChangeNumber> {
        let mut value = self.base[block as usize];
        for (number, change) in &self.changes {
            if (change.start..change.start + change.blocks).contains(&block) {
                if change.acknowledged_at.is_none_or(|at| at > submitted) {
                    return None;
                }
                value = if change.is_zero { 0 } else { *number };
            }
        }
        Some(value)
    }

    /// Whether any change that is not acknowledged touches the range.
    pub fn overlaps_unacknowledged(&self, start: u64, blocks: u64) -> bool {
        self.changes.iter().any(|(_, change)| {
            change.acknowledged_at.is_none()
                && !change.failed
                && change.start < start + blocks
                && start < change.start + change.blocks
        })
    }

    fn is_durable(&self, change: &Change) -> bool {
        change.is_durable || change.acknowledged_at.is_some_and(|at| at < self.durable_before)
    }

    /// Checks what a read of `bytes` from `start` on returned.
    pub fn check_read(&self, start: u64, bytes: &[u8], submitted: u64) -> Result<(), Violation> {
        for (i, block) in bytes.chunks(BLOCK_SIZE as usize).enumerate() {
            let address = start + i as u64;
            let found = read_block(block, address)?;
            if let Some(expected) = self.expected(address, submitted)
                && found != expected
            {
                return Err(Violation(format!(
                    "read of block {address} shows change {found}, expected {expected}"
                )));
            }
        }
        Ok(())
    }

    /// Checks the content after a crash, and takes it as the new beginning.
    pub fn check_after_crash(&mut self, content: &[u8]) -> Result<(), Violation> {
        let mut seen = vec![false; self.changes.len()];
        let mut lost = vec![false; self.changes.len()];
        let mut shown = Vec::with_capacity(self.base.len());
        // For each block, the changes that touched it, in order.
        let mut histories: Vec<Vec<usize>> = vec![Vec::new(); self.base.len()];
        for (c, (_, change)) in self.changes.iter().enumerate() {
            for block in change.start..change.start + change.blocks {
                histories[block as usize].push(c);
            }
        }
        for (i, block) in content.chunks(BLOCK_SIZE as usize).enumerate() {
            let address = i as u64;
            let found = read_block(block, address)?;
            shown.push(found);
            // The last change of this block whose value is shown counts.
            let history = &histories[i];
            let value = |c: usize| match self.changes[c].1.is_zero {
                true => 0,
                false => self.changes[c].0,
            };
            // Zeroes look alike: several positions may explain a zero. Only sure facts count.
            let matches: Vec<usize> =
                history.iter().copied().filter(|c| value(*c) == found).collect();
            let base_matches = self.base[i] == found;
            match (matches.as_slice(), base_matches) {
                ([], false) => {
                    return Err(Violation(format!(
                        "block {address} shows change {found}, which was never there"
                    )));
                }
                ([], true) => history.iter().for_each(|c| lost[*c] = true),
                ([only], false) => {
                    seen[*only] = true;
                    history.iter().filter(|c| **c > *only).for_each(|c| lost[*c] = true);
                }
                (several, _) => {
                    // At the latest the last of them; what is later is lost.
                    let last = *several.last().expect("not empty");
                    history.iter().filter(|c| **c > last).for_each(|c| lost[*c] = true);
                }
            }
        }
        let newest_seen = (0..self.changes.len())
            .filter(|c| seen[*c])
            .map(|c| self.changes[c].1.submitted)
            .max()
            .unwrap_or(0);
        for c in 0..self.changes.len() {
            let (number, change) = &self.changes[c];
            if change.failed {
                continue;
            }
            if lost[c] && self.is_durable(change) {
                return Err(Violation(format!(
                    "change {number} was durable and is lost: {change:?}"
                )));
            }
            if self.is_plain {
                continue;
            }
            if lost[c] && seen[c] && change.is_atomic {
                return Err(Violation(format!("change {number} is torn: {change:?}")));
            }
            if lost[c] && change.acknowledged_at.is_some_and(|at| at < newest_seen) {
                return Err(Violation(format!(
                    "change {number} is lost although a later one is there: {change:?}"
                )));
            }
        }
        self.base = shown;
        self.is_plain = false;
        self.changes.clear();
        Ok(())
    }

    /// Changes that are over and that later ones cover need not be remembered: keeps runs fast.
    pub fn settle(&mut self) {
        let all_durable = self.changes.iter().all(|(_, c)| self.is_durable(c));
        if !all_durable {
            return;
        }
        for (number, change) in self.changes.drain(..) {
            for block in change.start..change.start + change.blocks {
                self.base[block as usize] = if change.is_zero { 0 } else { number };
            }
        }
    }
}

fn fill_block(block: &mut [u8], number: ChangeNumber, address: u64) {
    for (i, word) in block.chunks_mut(16).enumerate() {
        word[..8].copy_from_slice(&number.to_le_bytes());
        word[8..].copy_from_slice(&(address << 8 | i as u64).to_le_bytes());
    }
}

/// The change that a block shows; an error if it is a mixture or belongs elsewhere.
fn read_block(block: &[u8], address: u64) -> Result<ChangeNumber, Violation> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let number = u64::from_le_bytes(block[..8].try_into().expect("eight bytes"));
    let mut expected = [0; BLOCK_SIZE as usize];
    fill_block(&mut expected, number, address);
    if *block == expected {
        return Ok(number);
    }
    let place = u64::from_le_bytes(block[8..16].try_into().expect("eight bytes")) >> 8;
    Err(Violation(format!(
        "block {address} is garbage: begins like change {number} of block {place}"
    )))
}
