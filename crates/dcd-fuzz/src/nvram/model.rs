//! What reads may show: for each block the versions since the last that was acknowledged.

use std::collections::BTreeMap;

use dcd_engine::RequestError;
use dcd_engine::units::{BLOCK_SIZE, LbaRange};

use super::below::{Version, version_of};

/// A change, in the order in which they were asked for; of those that overlap, later ones win.
#[derive(Clone, Copy)]
struct Change {
    range: LbaRange,
    /// What it leaves: itself, or zeroes.
    leaves: Version,
}

#[derive(Clone, Default)]
struct Block {
    /// The last change that was acknowledged, or what a start found; with what it left.
    acknowledged: (u64, Version),
    /// Later ones, and those before that ended otherwise.
    later: Vec<(u64, Version)>,
    is_damaged: bool,
}

#[derive(Default)]
pub(super) struct Model {
    blocks: Vec<Block>,
    changes: BTreeMap<u64, Change>,
    damaged_max: u64,
}

impl Model {
    pub(super) fn of_blocks(blocks: usize) -> Model {
        Model { blocks: vec![Block::default(); blocks], ..Model::default() }
    }

    pub(super) fn begin(&mut self, number: u64, range: LbaRange, has_data: bool) {
        let leaves = if has_data { number } else { 0 };
        self.changes.insert(number, Change { range, leaves });
        for block in range.start.0..range.end() {
            self.blocks[block as usize].later.push((number, leaves));
        }
    }

    pub(super) fn ended(&mut self, number: u64, is_ok: bool) {
        let Some(change) = self.changes.get(&number) else { return };
        if !is_ok {
            // It may be there or not.
            return;
        }
        let Change { range, leaves } = *change;
        self.changes.remove(&number);
        for block in range.start.0..range.end() {
            let block = &mut self.blocks[block as usize];
            if number > block.acknowledged.0 {
                block.acknowledged = (number, leaves);
                block.later.retain(|(later, _)| *later > number);
            }
            block.is_damaged = false;
        }
    }

    /// The last change of a block that was acknowledged.
    pub(super) fn acknowledged(&self, block: u64) -> u64 {
        self.blocks[block as usize].acknowledged.0
    }

    pub(super) fn all_acknowledged(&self) -> Vec<u64> {
        self.blocks.iter().map(|block| block.acknowledged.0).collect()
    }

    /// A block may hold what `oldest` left, or anything later.
    pub(super) fn check_block(
        &self,
        block: u64,
        oldest: u64,
        found: Version,
    ) -> Result<(), String> {
        let known = &self.blocks[block as usize];
        let (number, leaves) = known.acknowledged;
        let is_later = known.later.iter().any(|(later, left)| *later >= oldest && *left == found);
        // What has been overwritten meanwhile is not known any more; its number tells.
        let is_between = found >= oldest && found < number && found > 0;
        // A zero that came between: rare, and taken.
        let is_zero_between = found == 0 && number > oldest;
        if leaves == found || is_later || is_between || is_zero_between {
            return Ok(());
        }
        Err(format!(
            "block {block} is {found}, where {oldest} was acknowledged; then {number}, {:?}",
            known.later
        ))
    }

    pub(super) fn check_read(
        &self,
        range: LbaRange,
        oldest: &[u64],
        bytes: &[u8],
    ) -> Result<(), String> {
        let blocks = (range.start.0..range.end()).zip(oldest);
        for ((block, oldest), bytes) in blocks.zip(bytes.chunks_exact(BLOCK_SIZE as usize)) {
            let found = version_of(block, bytes).map_err(|error| format!("read: {error}"))?;
            self.check_block(block, *oldest, found).map_err(|error| format!("read: {error}"))?;
        }
        Ok(())
    }

    pub(super) fn is_damaged(&self, range: LbaRange) -> bool {
        (range.start.0..range.end()).any(|block| self.blocks[block as usize].is_damaged)
    }

    pub(super) fn check_error(
        range: LbaRange,
        meets_damage: bool,
        error: RequestError,
    ) -> Result<(), String> {
        match error {
            RequestError::ShuttingDown => Ok(()),
            _ if meets_damage => Ok(()),
            _ => Err(format!("a read of {range:?} ends with {error}, and nothing is damaged")),
        }
    }

    /// So many blocks of one logical block.
    pub(super) fn some_may_be_damaged(&mut self, blocks: u64) {
        self.damaged_max += blocks;
    }

    /// What was damaged is given up: it is this from now on.
    pub(super) fn give_up(&mut self, block: u64, version: Version) {
        let known = &mut self.blocks[block as usize];
        known.acknowledged.1 = version;
        known.later.clear();
        known.is_damaged = false;
    }

    /// The same, or it is not given up: the next start shows which.
    pub(super) fn may_be_given_up(&mut self, block: u64, version: Version) {
        let known = &mut self.blocks[block as usize];
        known.later.push((known.acknowledged.0, version));
    }

    /// A start has found this; `None`: damaged.
    pub(super) fn restarted(&mut self, found: &[Option<Version>]) -> Result<(), String> {
        let mut damaged = 0;
        for (block, version) in (0..).zip(found) {
            let known = &mut self.blocks[block as usize];
            match version {
                Some(version) => {
                    let oldest = known.acknowledged.0;
                    self.check_block(block, oldest, *version)
                        .map_err(|error| format!("after a crash {error}"))?;
                }
                None => damaged += u64::from(!known.is_damaged),
            }
        }
        if damaged > self.damaged_max {
            return Err(format!("{damaged} blocks are damaged, by {} rot", self.damaged_max));
        }
        // A rot that nobody has seen by now may be seen later.
        self.damaged_max -= damaged;
        for (number, change) in std::mem::take(&mut self.changes) {
            if change.leaves == 0 {
                continue;
            }
            let blocks = change.range.start.0..change.range.end();
            let shown = |block: &u64| found[*block as usize] == Some(number);
            // Older than this change: it is not there. (Zeroes may be of a later change.)
            let hidden = |block: &u64| {
                let is_newest = self.blocks[*block as usize].acknowledged.0 < number;
                is_newest && found[*block as usize].is_some_and(|found| found > 0 && found < number)
                    || is_newest
                        && found[*block as usize] == Some(0)
                        && self.blocks[*block as usize].later.iter().all(|(it, _)| *it <= number)
            };
            if let (Some(shown), Some(hidden)) =
                (blocks.clone().find(shown), blocks.clone().find(hidden))
            {
                return Err(format!("half of {number} is there: block {shown}, not {hidden}"));
            }
        }
        for (block, version) in self.blocks.iter_mut().zip(found) {
            block.is_damaged = version.is_none();
            if let Some(version) = version {
                let number = block.acknowledged.0;
                let is_old = block.acknowledged.1 == *version;
                let newest = block.later.iter().rev().find(|(_, left)| left == version);
                let number = match newest {
                    Some((newest, _)) if !is_old => *newest,
                    _ => number,
                };
                block.acknowledged = (number, *version);
            }
            block.later.clear();
        }
        Ok(())
    }
}
