//! A first tier of non-volatile memory, in which writes are done as soon as they are in it, and
//! overwritten where they are (Haining 2000). Blocks leave it in groups, chosen by a policy, for
//! what lies below.
//!
//! ```text
//!   write --> memory (done) --- groups, cleaned ---> below: the log, or the data-disk
//!   large write, read of what is not in memory ----> below
//! ```
//!
//! [`Nvram`] says what is where and what has to be done; the bytes are its driver's, as are time
//! and I/O:
//!
//! ```
//! # use std::sync::Arc;
//! # use dcd_engine::nvram::{
//! #     LastAddress, Nvram, NvramConfig, NvramInput, NvramOperation, NvramOutput, NvramRequest, Regions,
//! # };
//! # use dcd_engine::{LbaRange, RequestId, Time};
//! # let mut nvram = Nvram::new(NvramConfig::default(), Arc::new(Regions::new(64)));
//! # let (id, now, head) = (RequestId(1), Time::ZERO, LastAddress::default());
//! # let (operation, range) = (NvramOperation::Write, LbaRange::new(8, 8));
//! # let input = NvramInput::Request(NvramRequest { id, operation, range });
//! # let mut below = Vec::new();
//! # let mut replies = Vec::new();
//! nvram.handle_input(now, input, &head);
//! while let Some(output) = nvram.poll_output() {
//!     match output {
//!         NvramOutput::Below(io) => below.push(io),
//!         NvramOutput::Reply(reply) => replies.push(reply),
//!     }
//! }
//! let wake_up = nvram.wake_up();
//! # assert!(replies[0].ok && replies[0].from_memory && below.is_empty() && wake_up.is_none());
//! ```
//!
//! - [`groups`]: which blocks are cleaned together, and where the head of the disk is;
//! - `directory`: the groups in memory, by age and by size;
//! - [`policy`]: which one is cleaned next;
//! - `hot_zone`: how much of the memory is for what is written again and again, found by trying
//!   sizes beside the real one (`trial`); `stack_distance`: the hit ratio by size, and its knee;
//! - [`tier`]: the paths of a write, a read and a cleaning;
//! - [`durable`]: a driver of all that with bytes, on a medium that survives.

mod bits;
pub(crate) mod directory;
pub mod durable;
pub mod groups;
pub(crate) mod hot_zone;
mod number_map;
pub mod policy;
pub(crate) mod stack_distance;
pub mod tier;
#[cfg(test)]
mod tier_tests;
pub(crate) mod trial;

pub use groups::{GroupMap, HeadPosition, LastAddress, Regions};
pub use policy::NvramPolicyKind;
pub use tier::Nvram;

use crate::io::RequestId;
use crate::units::{Duration, LbaRange, Time};

/// How the tier behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvramConfig {
    /// Its size.
    pub capacity_blocks: u64,
    /// Which group is cleaned next.
    pub policy: NvramPolicyKind,
    /// Cleaning begins when more than this part of the memory is dirty. 100: it never does; a group
    /// is cleaned when a write needs the room.
    pub high_percent: u8,
    /// Cleaning ends when no more than this part is dirty; at most [`NvramConfig::high_percent`].
    pub low_percent: u8,
    /// Larger writes go past the memory.
    pub bypass_blocks: u64,
    /// Cleaning that no write waits for begins when the disk has had no other request for so long.
    pub idle: Duration,
    /// Groups that are cleaned at once.
    pub groups_at_once: u32,
    /// How large the hot zone is, for the policy that has one.
    pub hot_zone: HotZoneSize,
    /// A write that goes past the memory waits until what it meets there has been cleaned, so that
    /// no crash shows a mixture of the two (contract C14).
    pub past_waits: bool,
}

/// How large the hot zone is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HotZoneSize {
    /// As large as is best, by trying.
    Found,
    /// This part of the memory.
    Percent(u8),
}

impl Default for NvramConfig {
    /// 512 KiB, least recently used, thresholds of the thesis (section 7.1.3).
    fn default() -> NvramConfig {
        NvramConfig {
            capacity_blocks: 1024,
            policy: NvramPolicyKind::Lru,
            high_percent: 90,
            low_percent: 20,
            // Chapter 7: writes of more than 16 KiB are efficient as they are.
            bypass_blocks: 32,
            idle: Duration(0),
            groups_at_once: u32::MAX,
            hot_zone: HotZoneSize::Found,
            past_waits: false,
        }
    }
}

/// What a request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvramOperation {
    /// The newest data.
    Read,
    /// New data.
    Write,
}

/// A request to the tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvramRequest {
    /// The driver's; may be used again after the reply.
    pub id: RequestId,
    /// What it wants.
    pub operation: NvramOperation,
    /// Of which blocks.
    pub range: LbaRange,
}

/// Number of an I/O below the tier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BelowId(pub u64);

/// Why something is done below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BelowPurpose {
    /// For this request.
    Request(RequestId),
    /// To make room.
    Cleaning,
}

/// An I/O below the tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BelowIo {
    /// To be named when it is done.
    pub id: BelowId,
    /// Read or write.
    pub operation: NvramOperation,
    /// Of which blocks.
    pub range: LbaRange,
    /// Why.
    pub purpose: BelowPurpose,
}

/// What happens to the tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvramInput {
    /// A request has come.
    Request(NvramRequest),
    /// A write has come that goes past the memory whatever its size: only with
    /// [`NvramConfig::past_waits`].
    Past(NvramRequest),
    /// An I/O below has ended; whether well.
    BelowDone(BelowId, bool),
    /// The first in line ([`Nvram::waits_for_cleaning`]) leaves it; there is no reply.
    GiveUp(RequestId),
    /// [`Nvram::wake_up`] has come.
    Timeout,
}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvramReply {
    /// The request.
    pub id: RequestId,
    /// False: an I/O below failed.
    pub ok: bool,
    /// Since when a write waited for room, if it had to.
    pub stalled_since: Option<Time>,
    /// Whether the memory alone answered it.
    pub from_memory: bool,
}

/// What the tier wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvramOutput {
    /// An I/O below. The data of a cleaning is what the memory holds when the I/O is started.
    Below(BelowIo),
    /// A request has ended. Before it is told that to anyone, the driver has the data of a write in
    /// the memory.
    Reply(NvramReply),
}

/// What has happened so far (Haining, chapter 7).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NvramCounters {
    /// Writes that went into the memory.
    pub writes: u64,
    /// Their blocks.
    pub write_blocks: u64,
    /// Blocks that were overwritten before they were on their way to the disk: it is spared so
    /// many.
    pub overwritten_blocks: u64,
    /// Writes all of whose blocks were such.
    pub overwrites: u64,
    /// Writes that had to wait for room.
    pub stalled_writes: u64,
    /// Writes that went past the memory.
    pub bypasses: u64,
    /// Reads that the memory answered.
    pub read_hits: u64,
    /// Reads that it did not.
    pub read_misses: u64,
    /// Times that cleaning began because of the high threshold.
    pub cleanings: u64,
    /// Groups that were cleaned.
    pub cleaned_groups: u64,
    /// Writes to the disk that this took.
    pub cleaning_writes: u64,
    /// Their blocks.
    pub cleaning_blocks: u64,
}
