//! Which blocks are cleaned together: the tracks of a disk, or regions of fixed size.
//!
//! To write one block of a track costs a seek and half a turn; to write all of it costs a seek and
//! a turn. So what lies together is cleaned together (Haining, section 4.1).

use crate::units::{Lba, LbaRange, Time};

/// Most blocks in a group: 2 MiB.
pub const GROUP_BLOCKS_MAX: u64 = 4096;

/// Cuts the volume into groups.
pub trait GroupMap: std::fmt::Debug + Send + Sync {
    /// The group that a block lies in: at most [`GROUP_BLOCKS_MAX`] blocks, the same range for each
    /// of them.
    fn group_of(&self, block: Lba) -> LbaRange;
}

/// Groups of equal size.
#[derive(Clone, Copy, Debug)]
pub struct Regions {
    blocks: u64,
}

impl Regions {
    /// # Panics
    /// If a region has no block, or more than [`GROUP_BLOCKS_MAX`].
    pub fn new(blocks: u64) -> Regions {
        assert!((1..=GROUP_BLOCKS_MAX).contains(&blocks), "{blocks} blocks in a region");
        Regions { blocks }
    }
}

impl GroupMap for Regions {
    fn group_of(&self, block: Lba) -> LbaRange {
        LbaRange::new(block.0 / self.blocks * self.blocks, self.blocks)
    }
}

/// Where the head of the disk below is, as far as anybody knows.
pub trait HeadPosition {
    /// The block that is nearest to it.
    fn block(&self) -> Lba;

    /// How long it would take to begin a write at that block. Any unit: costs are compared.
    fn cost(&self, now: Time, block: Lba) -> u64;
}

/// The estimate of who knows nothing of the disk: the head is where the last request ended, and
/// what is far in addresses is far.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastAddress(pub Lba);

impl HeadPosition for LastAddress {
    fn block(&self) -> Lba {
        self.0
    }

    fn cost(&self, _now: Time, block: Lba) -> u64 {
        block.0.abs_diff(self.0.0)
    }
}
