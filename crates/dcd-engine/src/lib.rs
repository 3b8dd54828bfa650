//! The disk-caching disk as a deterministic state machine: no I/O, no clock, no threads, no
//! randomness. A driver (the daemon, the simulator, the crash fuzzer) runs it:
//!
//! ```ignore
//! engine.handle_input(now, input);
//! loop {
//!     match engine.poll_output() {
//!         Output::Io(io) => devices.start(io),
//!         Output::Reply(reply) => frontend.reply(reply),
//!         Output::Wait { until } => break timer.set(until),
//!     }
//! }
//! ```
//!
//! The four paths are in [`engine`]: `write`, `read`, `destage`, `recover`; each file reads from
//! top to bottom. What they work on stands beside: [`log`], [`mod@format`].
//!
//! [`nvram`] is another, smaller state machine for a tier above it: non-volatile memory that is overwritten in place.

pub mod buffer;
pub mod buffer_pool;
pub mod config;
pub mod copies;
pub mod engine;
pub mod error;
pub mod format;
pub mod io;
pub mod line_hash;
pub mod log;
mod memory_wanted;
pub mod nvram;
pub mod patience;
#[cfg(feature = "seeded-bugs")]
pub mod seeded_bugs;
#[cfg(not(feature = "seeded-bugs"))]
mod seeded_bugs;
pub mod stats;
pub mod units;
pub mod volume;

pub use buffer::{Buffer, SegmentMemory};
pub use config::{AckMode, DataDiskInfo, DestagePolicyKind, EngineConfig, Limits};
pub use engine::{Engine, MemoryUse, Phase};
pub use error::{FormatError, OpenError};
pub use format::superblock::MemoryIdentity;
pub use format::{Geometry, Superblock};
pub use io::{
    Device, Input, Io, IoData, IoDone, IoError, IoId, IoOperation, NewSequence, Operation, Output,
    Reply, Request, RequestError, RequestId, SequenceError, SequenceRequest, VolumeAnswer,
    VolumeError, VolumeRequest,
};
pub use memory_wanted::MemoryWanted;
pub use units::{Duration, Lba, LbaRange, Time, Uuid};
