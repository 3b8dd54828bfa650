//! From a place in a file to the block that holds it: the first blocks are in the inode, the others
//! in trees of one, two and three levels of blocks that list blocks. The device knows each step as
//! a pointer.

use std::collections::BTreeSet;
use std::ops::Range;

use dcd_client::{Allocation, Attributes, BlockDevice};

use crate::error::{FsResult, refuse};
use crate::file_system::FileSystem;
use crate::format::indirect::fan_out;
use crate::format::inode;
use crate::metadata::Metadata;

/// How many trees there are, each with one level more than the one before.
const TREES: usize = 3;

/// The way to a block: a slot of the inode, then places in the lists.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Path {
    slot: usize,
    steps: Vec<usize>,
}

/// Shapes of the trees of all files.
#[derive(Clone, Copy)]
struct Shape {
    slots: u64,
    fan_out: u64,
}

impl Shape {
    fn new(block_bytes: usize) -> Shape {
        Shape { slots: inode::slots(block_bytes) as u64, fan_out: fan_out(block_bytes) as u64 }
    }

    fn direct(self) -> u64 {
        self.slots - TREES as u64
    }

    /// Blocks below a list of this level; 0 is a block of the file itself.
    fn below(self, level: usize) -> u64 {
        self.fan_out.pow(level as u32)
    }

    fn blocks_max(self) -> u64 {
        self.direct() + (1..=TREES).map(|level| self.below(level)).sum::<u64>()
    }

    fn path(self, index: u64) -> Option<Path> {
        let mut rest = index;
        if rest < self.direct() {
            return Some(Path { slot: rest as usize, steps: Vec::new() });
        }
        rest -= self.direct();
        for level in 1..=TREES {
            if rest < self.below(level) {
                let steps = (0..level).rev().map(|level| {
                    let step = rest / self.below(level);
                    rest %= self.below(level);
                    step as usize
                });
                let slot = self.direct() as usize + level - 1;
                return Some(Path { slot, steps: steps.collect() });
            }
            rest -= self.below(level);
        }
        None
    }

    /// The first place in the file below a slot, and the levels below it.
    fn slot(self, slot: usize) -> (u64, usize) {
        let level = (slot as u64 + 1).saturating_sub(self.direct()) as usize;
        if level == 0 {
            return (slot as u64, 0);
        }
        (self.direct() + (1..level).map(|level| self.below(level)).sum::<u64>(), level)
    }
}

/// What has to go when a file becomes shorter.
#[derive(Default)]
struct Cut {
    /// Slots of the inode.
    slots: Vec<usize>,
    /// Lists that stay, and what of them goes.
    in_lists: Vec<(u64, Vec<usize>)>,
    /// Pointers that go.
    pointers: Vec<(u64, u64)>,
    /// How many blocks go.
    blocks: u64,
    /// Lists among them.
    lists: Vec<u64>,
}

impl<D: BlockDevice> FileSystem<D> {
    /// Largest file.
    pub(crate) fn file_bytes_max(&self) -> u64 {
        let blocks = Shape::new(self.block_bytes()).blocks_max();
        blocks.saturating_mul(self.block_bytes() as u64).min(i64::MAX as u64)
    }

    /// The block that holds a place in a file, if it is no hole.
    pub(crate) fn block_at(&mut self, file: u64, index: u64) -> FsResult<Option<u64>> {
        let Some(path) = Shape::new(self.block_bytes()).path(index) else {
            return Ok(None);
        };
        let mut block = self.inode(file)?.slots.get(path.slot).copied().unwrap_or(0);
        for step in path.steps {
            if block == 0 {
                return Ok(None);
            }
            block = self.indirect(block, file)?[step];
        }
        Ok(Some(block).filter(|block| *block != 0))
    }

    /// The blocks that hold a part of a file.
    pub(crate) fn blocks_at(
        &mut self,
        file: u64,
        indexes: Range<u64>,
    ) -> FsResult<Vec<Option<u64>>> {
        indexes.map(|index| self.block_at(file, index)).collect()
    }

    /// How many lists are missing on the way to these places.
    pub(crate) fn missing_lists(
        &mut self,
        file: u64,
        indexes: impl Iterator<Item = u64>,
    ) -> FsResult<usize> {
        let shape = Shape::new(self.block_bytes());
        let mut missing = BTreeSet::new();
        for index in indexes {
            let Some(path) = shape.path(index) else { return refuse(libc::EFBIG) };
            let mut block = self.inode(file)?.slots.get(path.slot).copied().unwrap_or(0);
            for (depth, step) in path.steps.iter().enumerate() {
                if block == 0 {
                    missing.insert((path.slot, path.steps[..depth].to_vec()));
                } else {
                    block = self.indirect(block, file)?[*step];
                }
            }
        }
        Ok(missing.len())
    }

    /// Puts a block at a place of a file that is a hole. `lists` are blocks for lists that may be
    /// missing.
    pub(crate) fn attach(
        &mut self,
        file: u64,
        index: u64,
        block: u64,
        lists: &mut Vec<u64>,
    ) -> FsResult<()> {
        let Some(path) = Shape::new(self.block_bytes()).path(index) else {
            return refuse(libc::EFBIG);
        };
        let fan_out = fan_out(self.block_bytes());
        let (mut from, mut added) = (file, 1);
        let mut place = self.inode(file)?.slots.get(path.slot).copied().unwrap_or(0);
        // Each list that is missing is made below the one before.
        for (depth, step) in path.steps.iter().enumerate() {
            if place == 0 {
                // There are as many as are missing, unless a damaged list is in two places.
                let Some(list) = lists.pop() else { return refuse(libc::EIO) };
                self.insert_metadata(list, file, Metadata::Indirect(vec![0; fan_out]));
                self.set_place(file, from, path.place(depth), list)?;
                added += 1;
                place = list;
            }
            from = place;
            place = self.indirect(from, file)?[*step];
        }
        if place != 0 {
            return refuse(libc::EIO);
        }
        self.set_place(file, from, path.place(path.steps.len()), block)?;
        let inode = self.change_inode(file)?;
        inode.blocks = inode.blocks.saturating_add(added);
        Ok(())
    }

    /// Lets the inode, or a list, point to a block.
    fn set_place(&mut self, file: u64, from: u64, place: usize, block: u64) -> FsResult<()> {
        if from == file {
            self.change_inode(file)?.slots[place] = block;
        } else {
            self.change_indirect(from, file)?[place] = block;
        }
        self.pointers.create(from, block);
        Ok(())
    }

    /// Takes a single block, which is there, out of a file.
    pub(crate) fn detach(&mut self, file: u64, index: u64) -> FsResult<()> {
        let Some(path) = Shape::new(self.block_bytes()).path(index) else {
            return refuse(libc::EFBIG);
        };
        let (mut from, mut place) = (file, path.slot);
        let mut block = self.inode(file)?.slots.get(path.slot).copied().unwrap_or(0);
        for step in path.steps {
            (from, place) = (block, step);
            block = self.indirect(from, file)?[step];
        }
        if from == file {
            self.change_inode(file)?.slots[place] = 0;
        } else {
            self.change_indirect(from, file)?[place] = 0;
        }
        self.pointers.delete(from, block);
        let inode = self.change_inode(file)?;
        inode.blocks = inode.blocks.saturating_sub(1);
        self.forget(block);
        Ok(())
    }

    /// Takes everything from this place on out of a file.
    pub(crate) fn cut(&mut self, file: u64, from_index: u64) -> FsResult<()> {
        let shape = Shape::new(self.block_bytes());
        let slots = self.inode(file)?.slots.clone();
        let mut cut = Cut::default();
        // All that must be read is read first.
        for (slot, block) in slots.iter().enumerate().filter(|(_, block)| **block != 0) {
            let (first, level) = shape.slot(slot);
            if first >= from_index {
                cut.slots.push(slot);
                cut.pointers.push((file, *block));
                if from_index > 0 {
                    self.count_below(file, *block, level, &mut cut)?;
                }
            } else if level > 0 {
                self.cut_list(file, *block, level, first, from_index, shape, &mut cut)?;
            }
        }
        if cut.pointers.is_empty() {
            return Ok(());
        }
        for (from, to) in &cut.pointers {
            self.pointers.delete(*from, *to);
        }
        for (list, places) in cut.in_lists {
            let entries = self.change_indirect(list, file)?;
            places.into_iter().for_each(|place| entries[place] = 0);
        }
        let inode = self.change_inode(file)?;
        cut.slots.into_iter().for_each(|slot| inode.slots[slot] = 0);
        inode.blocks = if from_index == 0 { 0 } else { inode.blocks.saturating_sub(cut.blocks) };
        if from_index == 0 {
            // Not counted one by one: all that is here and belongs to it, but itself.
            cut.lists = self.metadata.owned_by(file);
            cut.lists.retain(|block| *block != file);
        }
        for block in cut.lists.into_iter().chain(cut.pointers.into_iter().map(|(_, to)| to)) {
            self.forget(block);
        }
        Ok(())
    }

    /// Counts a block and all below it, which all go.
    fn count_below(&mut self, file: u64, block: u64, level: usize, cut: &mut Cut) -> FsResult<()> {
        cut.blocks += 1;
        if level > 0 {
            cut.lists.push(block);
            let list = self.indirect(block, file)?.clone();
            for below in list.into_iter().filter(|block| *block != 0) {
                self.count_below(file, below, level - 1, cut)?;
            }
        }
        Ok(())
    }

    /// Goes through a list of which the first part stays.
    #[expect(clippy::too_many_arguments, reason = "it calls itself")]
    fn cut_list(
        &mut self,
        file: u64,
        list: u64,
        level: usize,
        first: u64,
        from_index: u64,
        shape: Shape,
        cut: &mut Cut,
    ) -> FsResult<()> {
        let entries = self.indirect(list, file)?.clone();
        let mut places = Vec::new();
        for (place, block) in entries.into_iter().enumerate().filter(|(_, block)| *block != 0) {
            let below = first + place as u64 * shape.below(level - 1);
            if below >= from_index {
                places.push(place);
                cut.pointers.push((list, block));
                self.count_below(file, block, level - 1, cut)?;
            } else if below + shape.below(level - 1) > from_index {
                self.cut_list(file, block, level - 1, below, from_index, shape, cut)?;
            }
        }
        if !places.is_empty() {
            cut.in_lists.push((list, places));
        }
        Ok(())
    }

    /// Every block of a file, in the order of the file, lists before what they list; `found` says
    /// of a list whether to look at what it lists.
    pub(crate) fn walk(
        &mut self,
        file: u64,
        found: &mut dyn FnMut(&mut Self, Walked) -> FsResult<bool>,
    ) -> FsResult<()> {
        let shape = Shape::new(self.block_bytes());
        let slots = self.inode(file)?.slots.clone();
        for (slot, block) in slots.into_iter().enumerate().filter(|(_, block)| *block != 0) {
            let (index, level) = shape.slot(slot);
            let walked = Walked { block, level, index, span: shape.below(level) };
            self.walk_below(file, walked, shape, found)?;
        }
        Ok(())
    }

    fn walk_below(
        &mut self,
        file: u64,
        walked: Walked,
        shape: Shape,
        found: &mut dyn FnMut(&mut Self, Walked) -> FsResult<bool>,
    ) -> FsResult<()> {
        let goes_on = found(self, walked)?;
        if walked.level == 0 || !goes_on {
            return Ok(());
        }
        let level = walked.level - 1;
        let list = self.indirect(walked.block, file)?.clone();
        for (place, block) in list.into_iter().enumerate().filter(|(_, block)| *block != 0) {
            let index = walked.index + place as u64 * shape.below(level);
            let walked = Walked { block, level, index, span: shape.below(level) };
            self.walk_below(file, walked, shape, found)?;
        }
        Ok(())
    }

    /// The first place in a file below a slot of its inode, and the levels below it.
    pub(crate) fn below_slot(&self, slot: usize) -> (u64, usize) {
        Shape::new(self.block_bytes()).slot(slot)
    }

    /// For how many places of a file a block of this level is.
    pub(crate) fn span_of(&self, level: usize) -> u64 {
        Shape::new(self.block_bytes()).below(level)
    }

    /// What lists of a file are allocated as.
    pub(crate) fn list_allocation(&self, file: u64, hint: Attributes) -> Allocation {
        Allocation { near: Some(file), attributes: hint.or(Attributes::METADATA) }
    }
}

impl Path {
    /// The place in the inode, or in the list, at this depth.
    fn place(&self, depth: usize) -> usize {
        if depth == 0 { self.slot } else { self.steps[depth - 1] }
    }
}

/// A block of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked {
    pub(crate) block: u64,
    /// 0 for contents, more for lists.
    pub(crate) level: usize,
    /// The first place in the file that it is for.
    pub(crate) index: u64,
    /// How many places it is for.
    pub(crate) span: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways() {
        let shape = Shape { slots: 8, fan_out: 10 };
        let path = |slot, steps: &[usize]| Some(Path { slot, steps: steps.to_vec() });
        assert_eq!(shape.path(4), path(4, &[]));
        assert_eq!(shape.path(5), path(5, &[0]));
        assert_eq!(shape.path(14), path(5, &[9]));
        assert_eq!(shape.path(15), path(6, &[0, 0]));
        assert_eq!(shape.path(114), path(6, &[9, 9]));
        assert_eq!(shape.path(115), path(7, &[0, 0, 0]));
        assert_eq!(shape.path(1114), path(7, &[9, 9, 9]));
        assert_eq!(shape.path(1115), None);
        assert_eq!(shape.blocks_max(), 1115);
        assert_eq!([4, 5, 6, 7].map(|slot| shape.slot(slot)), [(4, 0), (5, 1), (15, 2), (115, 3)]);
    }
}
