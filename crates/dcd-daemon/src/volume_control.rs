//! Requests to a volume on the control socket: what blocks are, pointers between them, and the state of its members.
//!
//! ```text
//! {"volume":"status"}                                      {"ok":true,"volume":{...}}
//! {"volume":{"set-attributes":{"ranges":[[block,blocks],...],"set":"hot,random","clear":"cold"}}}   {"ok":true}
//! {"volume":{"get-attributes":{"block":N}}}                {"ok":true,"attributes":"important","place":{...}|null}
//! {"volume":{"places":{"ranges":[[block,blocks],...]}}}    {"ok":true,"places":[{"block":N,"blocks":N,...},...]}
//! {"volume":{"allocate":{"near":N|null,"attributes":"hot"}}}   {"ok":true,"block":N}
//! {"volume":{"create-pointer":{"from":N,"to":N}}}          {"ok":true}
//! {"volume":{"delete-pointer":{"from":N,"to":N}}}          {"ok":true}
//! {"volume":"collect"}                                     {"ok":true,"freed":N}
//! {"volume":{"fail":{"member":N}}}                         {"ok":true}
//! {"volume":{"rebuild":{"member":N}}}                      {"ok":true}, at once: see the status
//! {"volume":"scrub"}                                       {"ok":true}, at once
//! {"volume":"cancel-work"}                                 {"ok":true}
//! ```
//!
//! Blocks are numbers of 512-byte blocks. Extents that lie alike are told as one place.

use dcd_engine::units::{Lba, LbaRange, MemberIndex};
use dcd_engine::volume::attributes::{AttributeChange, Attributes};
use dcd_engine::{Operation, VolumeAnswer, VolumeError, VolumeRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::control::{answer, failure};
use crate::submitter::Submitter;

/// Ranges in a line: it stays below [`LINE_BYTES_MAX`](crate::control::LINE_BYTES_MAX).
pub const RANGES_PER_LINE: usize = 1024;
/// Extents that one request may look at.
pub const PLACES_EXTENTS_MAX: u64 = 1 << 16;

/// What can be asked of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeCommand {
    /// Its [`VolumeReport`].
    Status,
    /// Change attributes of all extents that the ranges touch.
    SetAttributes {
        /// First block and number of blocks.
        ranges: Vec<(u64, u64)>,
        /// They come.
        #[serde(default, with = "attribute_words")]
        set: Attributes,
        /// They go; any of them together.
        #[serde(default, with = "attribute_mask")]
        clear: Attributes,
    },
    /// Attributes and place of an extent.
    GetAttributes {
        /// A block in it.
        block: u64,
    },
    /// Where the extents of these ranges are, as [`PlaceReport`]s.
    Places {
        /// First block and number of blocks.
        ranges: Vec<(u64, u64)>,
    },
    /// Find a block that nobody uses.
    Allocate {
        /// Close to this one, if possible.
        near: Option<u64>,
        /// What it is.
        #[serde(default, with = "attribute_words")]
        attributes: Attributes,
    },
    /// Let one block point to another.
    CreatePointer {
        /// The block that points.
        from: u64,
        /// The block that is pointed to.
        to: u64,
    },
    /// Take a pointer away.
    DeletePointer {
        /// The block that points.
        from: u64,
        /// The block that is pointed to.
        to: u64,
    },
    /// Free what cannot be reached.
    Collect,
    /// Treat a member as failed.
    Fail {
        /// Which.
        member: u8,
    },
    /// Write what belongs on a member.
    Rebuild {
        /// Which.
        member: u8,
    },
    /// Read, compare and repair all that is redundant.
    Scrub,
    /// Stop a rebuild or scrub.
    CancelWork,
}

/// Attributes as their names.
mod attribute_words {
    use super::Attributes;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(attributes: &Attributes, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(attributes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Attributes, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// Runs a request.
pub(crate) fn run(submitter: &Submitter, command: VolumeCommand) -> Value {
    let lba = Lba;
    let request = match command {
        VolumeCommand::Status
        | VolumeCommand::GetAttributes { .. }
        | VolumeCommand::Places { .. } => {
            return answer(Err(VolumeError::NoVolume.into()));
        }
        VolumeCommand::SetAttributes { ranges, set, clear } => {
            let ranges = match ranges_of(submitter, &ranges) {
                Ok(ranges) => ranges,
                Err(refusal) => return refusal,
            };
            VolumeRequest::SetAttributes { ranges, change: AttributeChange { set, clear } }
        }
        VolumeCommand::Allocate { near, attributes } => {
            VolumeRequest::Allocate { near: near.map(lba), attributes }
        }
        VolumeCommand::CreatePointer { from, to } => {
            VolumeRequest::CreatePointer { from: lba(from), to: lba(to) }
        }
        VolumeCommand::DeletePointer { from, to } => {
            VolumeRequest::DeletePointer { from: lba(from), to: lba(to) }
        }
        VolumeCommand::Collect => VolumeRequest::Collect,
        VolumeCommand::Fail { member } => VolumeRequest::FailMember { member: MemberIndex(member) },
        VolumeCommand::Rebuild { member } => VolumeRequest::Rebuild { member: MemberIndex(member) },
        VolumeCommand::Scrub => VolumeRequest::Scrub,
        VolumeCommand::CancelWork => VolumeRequest::CancelWork,
    };
    let reply = submitter.run(Operation::Volume(request), false);
    let mut value = answer(reply.result);
    match reply.answer {
        Some(VolumeAnswer::Allocated(block)) => value["block"] = json!(block.0),
        Some(VolumeAnswer::Collected(blocks)) => value["freed"] = json!(blocks),
        None => {}
    }
    value
}

/// The ranges, if all of them lie on the volume.
fn ranges_of(submitter: &Submitter, ranges: &[(u64, u64)]) -> Result<Vec<LbaRange>, Value> {
    let blocks = submitter.ask(|snapshot| snapshot.core.data_disk().blocks).unwrap_or(0);
    let range = |(start, length): &(u64, u64)| {
        let end = start.checked_add(*length).filter(|end| *end <= blocks);
        end.map(|_| LbaRange::new(*start, *length)).ok_or_else(|| {
            failure(
                &format!("blocks {start} and {length} more do not lie on the volume"),
                &format!("it has {blocks} blocks of 512 bytes"),
            )
        })
    };
    ranges.iter().map(range).collect()
}

/// The same where some of them contradict each other: they are not said of a block together.
mod attribute_mask {
    use super::Attributes;
    use serde::{Deserialize, Deserializer, de};

    pub use super::attribute_words::serialize;

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Attributes, D::Error> {
        let words = String::deserialize(from)?;
        let mut mask = Attributes::NONE;
        for word in words.split([',', ' ']) {
            mask = mask.or(word.parse().map_err(de::Error::custom)?);
        }
        Ok(mask)
    }
}

/// A volume, for people and programs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Size that users see.
    pub volume_bytes: u64,
    /// What is placed at once.
    pub extent_bytes: u64,
    /// Extents with a place.
    pub extents_mapped: u64,
    /// Extents that are to be moved to another set.
    pub migrations_waiting: u64,
    /// Pointers between blocks.
    pub pointers: u64,
    /// Memory of all that.
    pub memory_bytes: u64,
    /// The data-disks, in order.
    pub members: Vec<MemberReport>,
    /// The RAID sets, in order.
    pub sets: Vec<SetReport>,
    /// The rebuild or scrub under way.
    pub work: Option<WorkReport>,
}

/// A data-disk of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberReport {
    /// Its number.
    pub member: u8,
    /// As it was named; none: it was not given.
    pub disk: Option<String>,
    /// `up-to-date`, `stale`, `rebuilding`, `failed`, `missing`.
    pub state: String,
    /// I/Os that failed, since the start.
    pub errors: u64,
}

/// A RAID set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetReport {
    /// Its number.
    pub set: u8,
    /// 0, 1 or 5.
    pub level: u8,
    /// The members that it lies on.
    pub members: Vec<u8>,
    /// What lies together on one of them.
    pub stripe_unit_bytes: u64,
    /// Extents that fit into it, without those for temporary data.
    pub extents: u64,
    /// Of them, in use.
    pub extents_used: u64,
    /// Extents for temporary data.
    pub temporary_extents: u64,
    /// Of them, in use.
    pub temporary_used: u64,
    /// Stripes of which something cannot be read.
    pub stripes_damaged: u64,
}

/// A rebuild or scrub.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkReport {
    /// `rebuild` or `scrub`.
    pub kind: String,
    /// The member that is rebuilt.
    pub member: Option<u8>,
    /// How far it is.
    pub done: u64,
    /// Of how much.
    pub total: u64,
    /// What did not agree.
    pub mismatches: u64,
    /// Of that, repaired.
    pub repaired: u64,
}

/// Extents one after the other that lie alike.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlaceReport {
    /// First block.
    pub block: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// RAID level; none: no place yet, it reads as zeroes or is in the log only.
    pub level: Option<u8>,
    /// Number of the set.
    pub set: Option<u8>,
    /// In the region for temporary data.
    pub temporary: bool,
    /// What it is.
    #[serde(with = "attribute_words")]
    pub attributes: Attributes,
}
