//! Requests to a volume: what blocks are, pointers between them, and the state of its members.
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
//! {"volume":{"set-pointers":{"pointers":N}}}              {"ok":true}, when there is room for so many
//! {"volume":{"fail":{"member":N}}}                         {"ok":true}
//! {"volume":{"rebuild":{"member":N}}}                      {"ok":true}, at once: see the status
//! {"volume":{"replace":{"member":N,"disk":"/dev/sdf"}}}    {"ok":true,"send":"descriptors"}, then {"ok":true}: see the status
//! {"volume":{"add-spare":{"disk":"/dev/sdf"}}}             {"ok":true,"send":"descriptors"}, then {"ok":true}: see the status
//! {"volume":{"remove-spare":{"disk":"/dev/sdf"}}}          {"ok":true}, at once: see the status
//! {"volume":{"grow":{"set":N|null,"bytes":N|null}}}        {"ok":true}, at once: see the status
//! {"volume":"scrub"}                                       {"ok":true}, at once
//! {"volume":"resume-scrub"}                                {"ok":true}, at once
//! {"volume":"cancel-work"}                                 {"ok":true}
//! ```
//!
//! Blocks are numbers of 512-byte blocks. Extents that lie alike are told as one place.

use dcd_block::attributes::Attributes;
use serde::{Deserialize, Serialize};

/// Ranges in a line: it stays below [`LINE_BYTES_MAX`](crate::LINE_BYTES_MAX).
pub const RANGES_PER_LINE: usize = 1024;
/// Extents that one request may look at.
pub const PLACES_EXTENTS_MAX: u64 = 1 << 16;

/// What can be asked of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeCommand {
    /// Its report, as `"volume"`.
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
    /// Make room for more pointers.
    SetPointers {
        /// So many.
        pointers: u32,
    },
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
    /// Have a disk take the place of a member. The disk is open, and its descriptors follow when the
    /// daemon asks for them.
    Replace {
        /// Which.
        member: u8,
        /// How the disk is named.
        disk: String,
        /// What cannot be had from anywhere counts as lost.
        #[serde(default)]
        accept_damage: bool,
    },
    /// Have a disk become a spare. The disk is open, and its descriptors follow when the daemon asks
    /// for them.
    AddSpare {
        /// How it is named.
        disk: String,
    },
    /// Have a spare become none.
    RemoveSpare {
        /// How it was named.
        disk: String,
    },
    /// Have the volume grow on what its disks have now.
    Grow {
        /// This set; none: the one that lies last on its members.
        set: Option<u8>,
        /// Size that users are to see; none: all that the sets hold.
        bytes: Option<u64>,
    },
    /// Read, compare and repair all that is redundant.
    Scrub,
    /// The same, from where one has stopped that has not come to its end.
    ResumeScrub,
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

/// The same where some of them contradict each other: they are not said of a block together.
mod attribute_mask {
    use super::Attributes;
    use serde::{Deserialize, Deserializer, de};

    pub use super::attribute_words::serialize;

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Attributes, D::Error> {
        crate::failure::mask_of(&String::deserialize(from)?).map_err(de::Error::custom)
    }
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
