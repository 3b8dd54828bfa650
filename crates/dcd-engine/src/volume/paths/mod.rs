//! What a volume does, a file for each path.

pub(super) mod checkpoint;
pub(super) mod flush;
mod fragmented;
pub(super) mod journal;
pub(super) mod migrate;
pub(super) mod open;
mod plan;
pub(super) mod read;
pub(super) mod repair;
mod requests;
pub(super) mod stripe;
pub(super) mod write;
