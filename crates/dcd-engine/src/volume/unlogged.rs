//! Blocks that were freed, while the discards that say so may not be durable: the journal still has
//! them as allocated.

use std::collections::BTreeMap;

use super::extents::ExtentIndex;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnloggedFree {
    /// Number of the discard.
    number: u64,
    /// Data has come down since: what it held before, or what somebody has written there since, as
    /// to a plain block.
    pub(super) has_data: bool,
}

/// All of them, by block and by discard.
#[derive(Default)]
pub(super) struct UnloggedFrees {
    by_extent: BTreeMap<ExtentIndex, UnloggedFree>,
    by_number: BTreeMap<u64, ExtentIndex>,
}

impl UnloggedFrees {
    pub(super) fn is_empty(&self) -> bool {
        self.by_extent.is_empty()
    }

    pub(super) fn contains(&self, extent: ExtentIndex) -> bool {
        self.by_extent.contains_key(&extent)
    }

    /// A block was freed with this discard.
    pub(super) fn insert(&mut self, extent: ExtentIndex, number: u64) {
        let free = UnloggedFree { number, has_data: false };
        let before = self.by_extent.insert(extent, free);
        assert!(before.is_none(), "{extent:?} is dying already");
        self.by_number.insert(number, extent);
    }

    pub(super) fn get_mut(&mut self, extent: ExtentIndex) -> Option<&mut UnloggedFree> {
        self.by_extent.get_mut(&extent)
    }

    /// The block is none of them any more.
    pub(super) fn remove(&mut self, extent: ExtentIndex) -> Option<UnloggedFree> {
        let free = self.by_extent.remove(&extent)?;
        self.by_number.remove(&free.number);
        Some(free)
    }

    /// The block that this discard frees.
    pub(super) fn find(&self, number: u64) -> Option<ExtentIndex> {
        self.by_number.get(&number).copied()
    }

    /// Takes the block of the oldest discard, if its number is lower.
    pub(super) fn pop_before(&mut self, number: u64) -> Option<(ExtentIndex, UnloggedFree)> {
        let (_, extent) =
            self.by_number.first_key_value().filter(|(oldest, _)| **oldest < number)?;
        let extent = *extent;
        Some((extent, self.remove(extent).expect("both maps have it")))
    }
}
