//! Segment memory (contract C4): the buffers of segments that are not on the cache-disk yet, in
//! memory that outlives the process. `segment_memory` is the file, `places` where it may lie,
//! `search` which one a start takes, `watch` that it stays; `fault` is for memory that others can
//! take away.

pub(crate) mod error;
pub(crate) mod fault;
pub mod files;
pub mod places;
pub mod search;
pub mod segment_memory;
pub mod watch;
