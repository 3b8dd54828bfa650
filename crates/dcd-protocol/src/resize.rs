//! The size of the log, and of the read area beside it.
//!
//! ```text
//! {"resize":{}}                     {"progress":{"done":3,"total":10}} ... {"ok":true,"bytes":...,"segments":...,"segments_before":...}
//! {"resize":{"bytes":17179869184}}  the same; progress counts what has to go to the data-disk
//! {"resize":{"read_area":1073741824}}  the read area is to have so many bytes, the log the rest
//! ```
//!
//! `{"command":"cancel"}` on the same connection ends it, and so does its end.

use serde::{Deserialize, Serialize};

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeAsked {
    /// Bytes of the cache-disk that may be used, or of the share of it; none: all that there are, and
    /// all that are free for a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes that the read area may take instead: 0: there is none. Then `bytes` is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_area: Option<u64>,
}

/// What has come of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ResizeDone {
    /// Bytes of the cache-disk that are used: it may be shortened to so many.
    pub bytes: u64,
    /// Segments of the log.
    pub segments: u32,
    /// Segments that it had before.
    pub segments_before: u32,
    /// Bytes of each.
    pub segment_size_bytes: u64,
    /// Bytes that the read area has room for; 0: there is none.
    #[serde(default)]
    pub read_area_bytes: u64,
    /// What it had room for before.
    #[serde(default)]
    pub read_area_bytes_before: u64,
    /// Size of the share of the cache-disk, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_bytes: Option<u64>,
    /// Why the room that is not needed any more was not given back: the next start does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_given_back: Option<String>,
}
