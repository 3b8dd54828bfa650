//! Bytes on the cache-disk; the only place that knows offsets. `docs/disk-format.md` is the same in
//! words, and a test compares the two.
//!
//! ```text
//! 0          superblock, copy 0
//! 64 KiB     superblock, copy 1
//! 128 KiB    checkpoint area 0, checkpoint area 1
//! ...        segments, each filled with records
//! ```

pub mod checkpoint;
pub mod checksum;
pub mod create;
pub mod geometry;
pub mod layout;
mod preamble;
pub mod record;
pub mod superblock;

pub use geometry::Geometry;
pub use superblock::Superblock;
