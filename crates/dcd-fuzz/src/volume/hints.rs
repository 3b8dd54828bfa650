//! What attributes, allocated blocks and pointers must be, as far as someone above the device can
//! know.
//!
//! Changes of attributes are durable when they are answered; those of allocated blocks and pointers
//! with the next flush. After a crash before that nobody knows which of them are there, and the
//! rest of the run does without them.

use std::collections::{BTreeMap, BTreeSet};

use dcd_engine::volume::attributes::{AttributeChange, Attributes};

/// What is known. Extents are named by their number.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Of extents that are not here there are none; `None`: something may have changed them that
    /// nobody was told of.
    attributes: BTreeMap<u64, Option<Attributes>>,
    allocated: BTreeSet<u64>,
    roots: BTreeSet<u64>,
    pointers: BTreeSet<(u64, u64)>,
    /// When an allocated block or a pointer was changed last, if that is not durable.
    changed_at: Option<u64>,
    is_lost: bool,
}

impl Hints {
    /// Whether it is known which blocks are allocated, and which pointers there are.
    pub fn is_known(&self) -> bool {
        !self.is_lost
    }

    // ---- attributes ---------------------------------------------------------------------------

    /// The attributes of an extent, if they are known.
    pub fn attributes(&self, extent: u64) -> Option<Attributes> {
        self.attributes.get(&extent).copied().unwrap_or(Some(Attributes::NONE))
    }

    /// A change of attributes was answered.
    pub fn attributes_changed(
        &mut self,
        extents: impl Iterator<Item = u64>,
        change: AttributeChange,
    ) {
        for extent in extents {
            let attributes = self.attributes(extent).map(|known| known.changed(change));
            self.attributes.insert(extent, attributes);
        }
    }

    /// Something else may have changed the attributes of these.
    pub fn attributes_unknown(&mut self, extents: impl Iterator<Item = u64>) {
        self.attributes.extend(extents.map(|extent| (extent, None)));
    }

    // ---- blocks and pointers ------------------------------------------------------------------

    /// Blocks that were allocated, in order.
    pub fn allocated(&self) -> Vec<u64> {
        self.allocated.iter().copied().collect()
    }

    /// Whether a block was allocated.
    pub fn is_allocated(&self, extent: u64) -> bool {
        self.allocated.contains(&extent)
    }

    /// Whether a block is a root.
    pub fn is_root(&self, extent: u64) -> bool {
        self.roots.contains(&extent)
    }

    /// Pointers, in order.
    pub fn pointers(&self) -> Vec<(u64, u64)> {
        self.pointers.iter().copied().collect()
    }

    /// Whether this pointer is there.
    pub fn points(&self, from: u64, to: u64) -> bool {
        self.pointers.contains(&(from, to))
    }

    /// A block was allocated.
    pub fn allocate(&mut self, extent: u64, attributes: Attributes, now: u64) {
        self.changed_at = Some(now);
        self.allocated.insert(extent);
        if attributes.contains(Attributes::ROOT) {
            self.roots.insert(extent);
        }
        // Durable with the next flush only.
        self.attributes.insert(extent, None);
    }

    /// A pointer was made.
    pub fn point(&mut self, from: u64, to: u64, now: u64) {
        self.changed_at = Some(now);
        self.pointers.insert((from, to));
        self.attributes_unknown([from, to].into_iter());
    }

    /// A pointer was deleted. The blocks that were freed with it.
    pub fn unpoint(&mut self, from: u64, to: u64, now: u64) -> Vec<u64> {
        self.changed_at = Some(now);
        self.pointers.remove(&(from, to));
        let mut freed = Vec::new();
        let mut to_look_at = vec![to];
        while let Some(block) = to_look_at.pop() {
            let is_pointed_to = self.pointers.iter().any(|pointer| pointer.1 == block);
            if !is_pointed_to && self.allocated.contains(&block) {
                freed.push(block);
                to_look_at.extend(self.forget(block));
            }
        }
        freed
    }

    /// What cannot be reached from a root was collected. The blocks that were freed.
    pub fn collect(&mut self, now: u64) -> Vec<u64> {
        self.changed_at = Some(now);
        let mut reached = self.roots.clone();
        loop {
            let next = self
                .pointers
                .iter()
                .filter(|(from, to)| reached.contains(from) && !reached.contains(to));
            let next: Vec<u64> = next.map(|(_, to)| *to).collect();
            if next.is_empty() {
                break;
            }
            reached.extend(next);
        }
        let freed: Vec<u64> = self.allocated.difference(&reached).copied().collect();
        for block in &freed {
            self.forget(*block);
        }
        freed
    }

    /// A block is freed, and what it pointed to.
    fn forget(&mut self, block: u64) -> Vec<u64> {
        self.allocated.remove(&block);
        self.attributes.insert(block, None);
        let pointers = std::mem::take(&mut self.pointers);
        let (gone, left) =
            pointers.into_iter().partition(|(from, to)| *from == block || *to == block);
        self.pointers = left;
        let gone: BTreeSet<(u64, u64)> = gone;
        gone.into_iter().map(|(_, to)| to).filter(|to| *to != block).collect()
    }

    // ---- crashes ------------------------------------------------------------------------------

    /// A flush that was submitted at `submitted` was acknowledged.
    pub fn flushed(&mut self, submitted: u64) {
        self.changed_at = self.changed_at.filter(|changed_at| *changed_at >= submitted);
    }

    /// A change of pointers or blocks is asked for.
    pub fn change_asked(&mut self, now: u64) {
        self.changed_at = Some(now);
    }

    /// Somebody discards an extent as if it was a block like others: it is not allocated any more
    /// as soon as the zeroes have come down through the log, and nobody knows when.
    pub fn discarded(&mut self, extent: u64) {
        if self.allocated.contains(&extent) {
            self.lose();
        }
    }

    /// The machine crashed.
    pub fn crashed(&mut self) {
        if self.changed_at.take().is_some() {
            self.lose();
        }
    }

    /// Nobody knows any more which blocks are allocated, and which pointers there are.
    pub fn lose(&mut self) {
        self.is_lost = true;
        let blocks: Vec<u64> = self.allocated.iter().copied().collect();
        self.attributes_unknown(blocks.into_iter());
        self.allocated.clear();
        self.roots.clear();
        self.pointers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_with_the_last_pointer_to_them() {
        let mut hints = Hints::default();
        for block in 0..6 {
            hints.allocate(block, Attributes::NONE, 1);
        }
        // 0 -> 1 -> 2 -> 3, 4 -> 3, 2 -> 2: a block that points to itself stays.
        for (from, to) in [(0, 1), (1, 2), (2, 3), (4, 3)] {
            hints.point(from, to, 1);
        }
        let mut other = hints.clone();
        assert_eq!(other.unpoint(0, 1, 2), [1, 2]);
        assert_eq!(other.allocated(), [0, 3, 4, 5]);
        assert_eq!(other.pointers(), [(4, 3)]);
        hints.point(2, 2, 1);
        assert_eq!(hints.unpoint(0, 1, 2), [1]);
        assert_eq!(hints.pointers(), [(2, 2), (2, 3), (4, 3)]);
    }

    #[test]
    fn cycles_are_collected() {
        let mut hints = Hints::default();
        hints.allocate(0, Attributes::ROOT, 1);
        for block in 1..5 {
            hints.allocate(block, Attributes::NONE, 1);
        }
        for (from, to) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
            hints.point(from, to, 1);
        }
        assert_eq!(hints.collect(2), [2, 3, 4]);
        assert_eq!(hints.pointers(), [(0, 1), (1, 0)]);
    }

    #[test]
    fn what_was_flushed_is_known_after_a_crash() {
        let mut hints = Hints::default();
        hints.allocate(7, Attributes::NONE, 5);
        hints.flushed(4);
        assert!(hints.changed_at.is_some());
        hints.flushed(6);
        hints.crashed();
        assert!(hints.is_known() && hints.is_allocated(7));
        assert_eq!((hints.attributes(7), hints.attributes(8)), (None, Some(Attributes::NONE)));
        hints.point(7, 7, 8);
        hints.crashed();
        assert!(!hints.is_known() && hints.allocated().is_empty());
    }
}
