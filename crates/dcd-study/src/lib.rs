//! What `dcd simulate`, `dcd sweep` and `dcd advise` do, without a terminal: the settings by their
//! names, and results as facts. The command line and the Python package are made of it, so both
//! give the same numbers for the same settings.
//!
//! ```text
//! load.rs        where requests come from: a trace, a made-up load, memory
//! watch.rs       who is told how far it is, and may end it
//! simulate/      one simulation
//! sweep/         a grid of them
//! advise.rs      what a log would do for a load
//! summary.rs     what a trace is like
//! disk.rs        what a disk model is like
//! traces.rs      many traces by one name
//! shard.rs       one part of many
//! error.rs       what can go wrong
//! ```

pub mod advise;
pub mod disk;
mod error;
pub mod load;
pub mod shard;
pub mod simulate;
pub mod stack_distances;
pub mod summary;
pub mod sweep;
pub mod traces;
pub mod watch;

pub use error::{StudyError, WORKLOAD_HINT};
