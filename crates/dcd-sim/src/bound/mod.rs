//! How few writes to the disk a memory of that size could do with: what is left to gain for a
//! policy.
//!
//! ```text
//! lower.rs         no policy can do with fewer, whatever it knows and however long it waits
//! clairvoyant.rs   one that knows all writes to come does with so many, if time is no matter
//! ```
//!
//! The best possible lies between the two. Both know no time: a group is cleaned when a write needs
//! the room, at once, and nothing waits. What they take from [`dcd_engine::nvram`] are its rules:
//! blocks leave the memory in runs within a group, a run is a write to the disk, large writes go
//! past the memory and drop what they cover, and at the end the memory may be full.

mod clairvoyant;
mod lower;

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use clairvoyant::Clairvoyant;
use dcd_engine::LbaRange;
use dcd_engine::nvram::{GroupMap, NvramConfig};
use dcd_engine::units::BLOCK_SIZE;
use lower::Lower;
use serde::Serialize;

use crate::trace::{Operation, Request};

/// Most blocks written into memory that a bound looks at: their future is 1 GiB.
const BLOCKS_MAX: u64 = 1 << 27;

/// Hashes numbers of blocks: there are many, and nobody chooses them to do harm.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        // The high bits depend on all of the number; maps look at both ends.
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type NumberState = BuildHasherDefault<NumberHasher>;

/// A load that is too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("more than {} GiB are written into memory: too much for a bound", (BLOCKS_MAX * BLOCK_SIZE) >> 30)]
pub struct TooLong;

/// The bounds of a load, in writes to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct BoundFacts {
    /// No policy has fewer.
    pub lower_disk_writes: u64,
    /// Who knows all writes to come has so many.
    pub clairvoyant_disk_writes: u64,
    /// Those of both that went past the memory.
    pub bypasses: u64,
}

/// A write of the load.
#[derive(Clone, Copy, Debug)]
struct Written {
    range: LbaRange,
    is_bypass: bool,
}

/// Follows a load.
pub struct Bound {
    config: NvramConfig,
    lower: Lower,
    map: Arc<dyn GroupMap>,
    writes: Vec<Written>,
    blocks: u64,
    bypasses: u64,
}

impl Bound {
    /// Of a memory like that.
    pub fn new(config: &NvramConfig, map: Arc<dyn GroupMap>) -> Bound {
        Bound {
            config: *config,
            lower: Lower::new(config.capacity_blocks, map.clone()),
            map,
            writes: Vec::new(),
            blocks: 0,
            bypasses: 0,
        }
    }

    /// Notes a request, which the disk has.
    ///
    /// # Errors
    /// If there are too many.
    pub fn add(&mut self, request: &Request) -> Result<(), TooLong> {
        if request.operation != Operation::Write {
            return Ok(());
        }
        let start = request.offset_bytes / BLOCK_SIZE;
        let end = (request.offset_bytes + request.size_bytes).div_ceil(BLOCK_SIZE);
        let range = LbaRange::new(start, end - start);
        let most = self.config.bypass_blocks.min(self.config.capacity_blocks);
        let write = Written { range, is_bypass: range.blocks > most };
        if write.is_bypass {
            self.bypasses += 1;
            self.lower.bypass(range);
        } else {
            self.blocks += range.blocks;
            if self.blocks > BLOCKS_MAX {
                return Err(TooLong);
            }
            self.lower.write(range);
        }
        self.writes.push(write);
        Ok(())
    }

    /// What has come out.
    pub fn finish(self) -> BoundFacts {
        let clairvoyant = Clairvoyant::new(&self.writes, self.blocks, self.map);
        let cleanings = clairvoyant.fewest(self.config.capacity_blocks);
        BoundFacts {
            lower_disk_writes: self.lower.finish() + self.bypasses,
            clairvoyant_disk_writes: cleanings + self.bypasses,
            bypasses: self.bypasses,
        }
    }
}
