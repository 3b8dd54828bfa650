//! Bytes on the cache-disk; the only place that knows offsets. `docs/disk-format.md` is the same in
//! words, and a test compares the two.
//!
//! ```text
//! 0          superblock, copy 0
//! 4 KiB      label of the leg, copy 0, if there are several
//! 64 KiB     superblock, copy 1
//! 68 KiB     label of the leg, copy 1
//! 128 KiB    checkpoint area 0, checkpoint area 1
//! ...        segments, each filled with records
//!            behind everything else, the end mark
//! ```

pub mod checkpoint;
pub(crate) mod checkpoint_reader;
pub mod copy_page;
pub mod creation_mark;
pub mod data_label;
pub mod end_mark;
pub mod geometry;
pub mod layout;
pub mod leg_label;
pub mod nvram;
pub(crate) mod preamble;
pub mod record;
pub mod share_directory;
pub mod superblock;
pub mod windows;

/// Generations, epochs, serials and record numbers stay below this: a thousand million a second
/// would take 146 years. What is larger was forged, and could overflow when it is counted on.
pub(crate) const COUNTER_END: u64 = 1 << 62;
/// The same for what is counted on from what members say: one of them could make it end for all.
pub(crate) const COUNTER_OF_MEMBERS_END: u64 = COUNTER_END / 2;

pub use dcd_block::checksum;
pub use geometry::Geometry;
pub use superblock::Superblock;
