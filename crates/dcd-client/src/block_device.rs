//! What a device does that finds free blocks itself and knows which block points to which.

use std::ops::Range;

use dcd_block::attributes::{AttributeChange, Attributes};

use crate::error::DeviceError;

/// How large it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of a block: of an extent of the volume.
    pub block_bytes: usize,
    /// Blocks are numbered from zero to this.
    pub blocks: u64,
}

/// What is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Blocks that have room on the disks.
    pub mapped: u64,
    /// Pointers between blocks.
    pub pointers: u64,
    /// So many there can be.
    pub pointers_max: u64,
}

/// Something to read.
#[derive(Debug)]
pub struct Read<'a> {
    /// First block.
    pub block: u64,
    /// Where it goes: whole blocks, one or more.
    pub data: &'a mut [u8],
}

/// Something to write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// First block.
    pub block: u64,
    /// What: whole blocks, one or more.
    pub data: &'a [u8],
}

/// A block that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Close to this one, if possible.
    pub near: Option<u64>,
    /// What it will be.
    pub attributes: Attributes,
}

/// Whether a pointer comes or goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PointerVerb {
    /// `create_ptr`.
    Create,
    /// `delete_ptr`.
    Delete,
}

/// Something about a pointer between blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PointerChange {
    /// What becomes of it.
    pub verb: PointerVerb,
    /// The block that points.
    pub from: u64,
    /// The block that is pointed to.
    pub to: u64,
}

impl PointerChange {
    /// `from` points to `to` from now on.
    pub fn create(from: u64, to: u64) -> PointerChange {
        PointerChange { verb: PointerVerb::Create, from, to }
    }

    /// `from` does not point to `to` any more.
    pub fn delete(from: u64, to: u64) -> PointerChange {
        PointerChange { verb: PointerVerb::Delete, from, to }
    }
}

/// A device with blocks, free blocks, pointers and attributes.
///
/// Writes, allocations, pointers and attributes are durable with the next [`BlockDevice::flush`].
/// Of what comes after the last flush a crash may keep any of the writes, and of the rest
/// everything up to some moment. So a write may be kept to a block whose allocation is lost: that
/// block has room from then on, and nobody collects it. Each list may be worked on at once; it is
/// faster than one by one.
pub trait BlockDevice: Send {
    /// How large it is.
    fn geometry(&self) -> Geometry;

    /// Whether it takes no changes.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Reads. What was never written is zero.
    fn read(&mut self, reads: &mut [Read<'_>]) -> Result<(), DeviceError>;

    /// Writes; no two of the list may touch the same block.
    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), DeviceError>;

    /// Makes everything before it durable.
    fn flush(&mut self) -> Result<(), DeviceError>;

    /// `alloc_block`: a free block for each. It reads as zeroes.
    fn allocate(&mut self, wanted: &[Allocation]) -> Vec<Result<u64, DeviceError>>;

    /// `create_ptr` and `delete_ptr`, in this order; one that fails does not hinder the next.
    fn change_pointers(&mut self, changes: &[PointerChange]) -> Vec<Result<(), DeviceError>>;

    /// `set_attr`: the same change for all these blocks.
    fn set_attributes(
        &mut self,
        blocks: &[u64],
        change: AttributeChange,
    ) -> Result<(), DeviceError>;

    /// Frees these blocks, also those that were written and never allocated, which
    /// [`BlockDevice::collect`] leaves. Nobody must point to them.
    fn discard(&mut self, blocks: &[Range<u64>]) -> Result<(), DeviceError>;

    /// `get_attr`: of each of these blocks.
    fn attributes(&mut self, blocks: &[u64]) -> Result<Vec<Attributes>, DeviceError>;

    /// Frees the allocated blocks that cannot be reached from a ROOT. How many there were.
    fn collect(&mut self) -> Result<u64, DeviceError>;

    /// Runs of blocks of this range that have room on the disks, as all have that were written: in
    /// order, none touches the next.
    fn mapped(&mut self, range: Range<u64>) -> Result<Vec<Range<u64>>, DeviceError>;

    /// Waits until what was freed is free: a device may do that when it has time.
    fn settle(&mut self) -> Result<(), DeviceError>;

    /// Makes room for so many pointers, where there is less.
    fn make_pointer_room(&mut self, pointers: u64) -> Result<(), DeviceError>;

    /// What is in use.
    fn usage(&mut self) -> Result<Usage, DeviceError>;
}
