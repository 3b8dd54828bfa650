//! No policy can do with fewer writes to the disk.
//!
//! Take any part of the load in which D different blocks are written. At its end at most C of them,
//! the capacity, are in memory: the others, D - C at least, were written to the disk within it,
//! behind their last write there. A write to the disk has blocks of one group, so it has at most as
//! many of these as the part writes blocks of that group. So there were at least as many writes as
//! there are groups in the smallest set of groups that have D - C blocks together. Parts that
//! follow each other share no write, so what they need adds up.
//!
//! That holds however the load is cut. It is cut where a part has a multiple of C blocks, in
//! several ways at once, and the most counts. Blocks that a write past the memory covers are left
//! out of their part: that may have taken them away.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use dcd_engine::nvram::GroupMap;
use dcd_engine::{Lba, LbaRange};

use super::NumberState;

/// Blocks of a part, in quarters of the capacity.
const PART_QUARTERS: [u64; 7] = [5, 6, 7, 8, 10, 16, 32];

/// Follows a load.
pub struct Lower {
    map: Arc<dyn GroupMap>,
    cuts: Vec<Cut>,
}

/// One way to cut it.
struct Cut {
    capacity_blocks: u64,
    part_blocks: u64,
    /// Different blocks of the part so far, and how many are of each group.
    blocks: HashSet<u64, NumberState>,
    groups: HashMap<u64, u64, NumberState>,
    /// Writes of the parts before.
    writes: u64,
}

impl Lower {
    /// Of a memory of so many blocks.
    pub fn new(capacity_blocks: u64, map: Arc<dyn GroupMap>) -> Lower {
        let cut = |quarters: u64| Cut {
            capacity_blocks,
            part_blocks: (capacity_blocks * quarters).div_ceil(4),
            blocks: HashSet::default(),
            groups: HashMap::default(),
            writes: 0,
        };
        Lower { map, cuts: PART_QUARTERS.map(cut).into() }
    }

    /// Blocks are written into memory.
    pub fn write(&mut self, range: LbaRange) {
        for block in range.start.0..range.end() {
            let group = self.map.group_of(Lba(block)).start.0;
            for cut in &mut self.cuts {
                if cut.blocks.insert(block) {
                    *cut.groups.entry(group).or_default() += 1;
                }
            }
        }
        for cut in &mut self.cuts {
            if cut.blocks.len() as u64 >= cut.part_blocks {
                cut.end_part();
            }
        }
    }

    /// Blocks are written past it.
    pub fn bypass(&mut self, range: LbaRange) {
        for cut in &mut self.cuts {
            let covered = |block: &u64| (range.start.0..range.end()).contains(block);
            // Whichever is less to look at.
            let found: Vec<u64> = match (cut.blocks.len() as u64) < range.blocks {
                true => cut.blocks.iter().copied().filter(covered).collect(),
                false => {
                    (range.start.0..range.end()).filter(|it| cut.blocks.contains(it)).collect()
                }
            };
            for block in found {
                cut.blocks.remove(&block);
                let group = self.map.group_of(Lba(block)).start.0;
                *cut.groups.get_mut(&group).expect("it has the block") -= 1;
            }
        }
    }

    /// As many writes as there are at least.
    pub fn finish(mut self) -> u64 {
        self.cuts.iter_mut().for_each(Cut::end_part);
        self.cuts.iter().map(|cut| cut.writes).max().unwrap_or(0)
    }
}

impl Cut {
    fn end_part(&mut self) {
        let mut left = (self.blocks.len() as u64).saturating_sub(self.capacity_blocks);
        let mut by_size: BTreeMap<u64, u64> = BTreeMap::new();
        for blocks in self.groups.values() {
            *by_size.entry(*blocks).or_default() += 1;
        }
        for (blocks, groups) in by_size.into_iter().rev().take_while(|(blocks, _)| *blocks > 0) {
            let wanted = left.div_ceil(blocks).min(groups);
            self.writes += wanted;
            left = left.saturating_sub(wanted * blocks);
        }
        self.blocks.clear();
        self.groups.clear();
    }
}
