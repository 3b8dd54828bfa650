//! Requests about sequences.
//!
//! ```text
//! {"sequence":"list"}                          {"ok":true,"sequences":[...],"serving":true,"copies":{...}}
//! {"sequence":{"store":{"name":"gimp"}}}       then {"ranges":[[block,blocks],...]} lines, then {"end":true}: {"ok":true}
//! {"sequence":{"remove":{"name":"gimp"}}}      {"ok":true}
//! {"sequence":"clear"}                         {"ok":true}; pinned ones stay
//! {"sequence":{"pin":{"name":"gimp","pinned":true}}}   {"ok":true}
//! {"sequence":{"lines":{"name":"gimp"}}}       {"ok":true,"lines":[[line,1],[line,0],...]}; 1: copied
//! {"sequence":{"translate":{"line":77}}}       {"ok":true,"translations":[...]}
//! {"sequence":"save"}                          {"ok":true} when a checkpoint lists all copies
//! {"sequence":{"serve":{"on":true}}}           {"ok":true}
//! ```

use serde::{Deserialize, Serialize};

/// Ranges in a line: it stays below [`LINE_BYTES_MAX`](crate::LINE_BYTES_MAX).
pub const RANGES_PER_LINE: usize = 1024;

/// What can be asked about sequences.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SequenceCommand {
    /// All, as [`SequenceReport`]s.
    List,
    /// Keep one; its ranges follow.
    Store {
        /// Its name.
        name: String,
    },
    /// Remove one.
    Remove {
        /// Its name.
        name: String,
    },
    /// Remove all but the pinned ones.
    Clear,
    /// Let nothing displace it, or no longer.
    Pin {
        /// Its name.
        name: String,
        /// Whether it stays.
        pinned: bool,
    },
    /// Its lines, in order.
    Lines {
        /// Its name.
        name: String,
    },
    /// The copies of a line.
    Translate {
        /// Its number, in units of 4 KiB.
        line: u64,
    },
    /// Make a checkpoint that lists all copies.
    Save,
    /// Follow sequences and read them ahead, or no longer.
    Serve {
        /// Whether.
        on: bool,
    },
}

/// A sequence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SequenceReport {
    /// Its name.
    pub name: String,
    /// Found by the detector.
    pub detected: bool,
    /// Nothing displaces it.
    pub pinned: bool,
    /// Lines of 4 KiB in it.
    pub lines: u64,
    /// Of them, those that wait to be copied.
    pub stale: u64,
    /// How often it was served; those runs that are under way count.
    pub runs: u32,
    /// Lines that reads had from it.
    pub lines_served: u64,
    /// It is not read ahead any more, because that did not pay.
    pub off: bool,
}

/// All sequences, and what they take.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SequenceList {
    /// In the order of their making.
    pub sequences: Vec<SequenceReport>,
    /// Whether they are followed and read ahead.
    pub serving: bool,
    /// Bytes of the read area.
    pub read_area_bytes: u64,
    /// Bytes of it that hold true copies, of sequences and of hot blocks.
    pub copied_bytes: u64,
}

/// A copy of a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TranslationReport {
    /// Byte address on the cache-disk.
    pub offset: u64,
    /// The sequence it belongs to; none: a hot block.
    pub sequence: Option<String>,
    /// Its place there.
    pub place: Option<u32>,
    /// Whether reads may be served from it.
    pub valid: bool,
}
