//! Time and random numbers in the place of those of the machine: what uses them knows nothing of the
//! model that gives them.

use std::sync::Arc;

use slatedb_common::clock::SystemClock;

/// Those of a bucket.
#[derive(Clone)]
pub(crate) struct Simulated {
    pub(crate) clock: Arc<dyn SystemClock>,
    /// Another number for each that opens a map.
    pub(crate) seed: Arc<dyn Fn() -> u64 + Send + Sync>,
}
