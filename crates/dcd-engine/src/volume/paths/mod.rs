//! What a volume does, a file for each path.

pub(super) mod believe;
pub(super) mod checkpoint;
pub(super) mod flush;
mod follow;
mod fragmented;
pub(super) mod grow;
pub(super) mod job;
pub(super) mod journal;
pub(super) mod labels;
pub(super) mod migrate;
pub(super) mod more_pointers;
pub(super) mod open;
mod plan;
pub(super) mod read;
pub(super) mod repair;
pub(super) mod replace;
mod replicate;
pub(super) mod requests;
pub(super) mod scrub;
mod spare;
mod stripe;
pub(super) mod sums;
pub(super) mod twin;
pub(super) mod write;
