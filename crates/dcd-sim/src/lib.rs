//! Runs the dcd engine on virtual time, without real devices.

pub mod advise;
pub mod analysis;
pub mod bound;
pub mod crowd;
pub mod disk;
pub mod distribution;
pub mod engine_bench;
pub mod figures;
pub mod fit;
pub mod memory_devices;
pub mod new_cache;
pub mod pace;
pub mod plot;
pub mod random;
pub mod replay;
pub mod scale;
pub mod sequence_pictures;
pub mod sequence_runs;
pub mod sweep;
pub mod target;
pub mod trace;
pub mod validate;
pub mod workload;
