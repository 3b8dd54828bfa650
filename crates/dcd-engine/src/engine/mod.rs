//! The engine (stub while the paths are written).
use crate::buffer::SegmentMemory;
use crate::config::{DataDiskInfo, EngineConfig};
use crate::error::OpenError;
use crate::format::{Geometry, Superblock};
use crate::io::{Input, Output};
use crate::stats::Status;
use crate::units::{LbaRange, Time};

/// Where an engine stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Reads the checkpoint and the log.
    Opening,
    /// Takes requests.
    Running,
    /// Could not start; nothing was written.
    Failed(OpenError),
    /// Shut down or detached, in order; the driver may close the disks.
    Closed,
}

/// The cache.
pub struct Engine {
    memory: Box<dyn SegmentMemory>,
}

impl Engine {
    /// Bytes of segment memory that an engine with these settings needs.
    pub fn segment_memory_size(geometry: &Geometry, config: &EngineConfig) -> usize {
        4096 + config.segment_buffers as usize * geometry.segment_size_bytes as usize
    }

    /// Starts opening a cache. Errors that can be seen without reading are returned; others make
    /// the phase [`Phase::Failed`].
    pub fn open(
        _now: Time,
        _superblock: Superblock,
        _cache_disk_bytes: u64,
        _data_disk: DataDiskInfo,
        _config: EngineConfig,
        memory: Box<dyn SegmentMemory>,
    ) -> Result<Engine, OpenError> {
        Ok(Engine { memory })
    }

    /// Tells the engine what has happened.
    pub fn handle_input(&mut self, _now: Time, _input: Input) {}

    /// What the engine wants next.
    pub fn poll_output(&mut self) -> Output {
        Output::Wait { until: None }
    }

    /// Where it stands.
    pub fn phase(&self) -> &Phase {
        &Phase::Running
    }

    /// The memory that [`crate::IoData::SegmentMemory`] speaks of.
    pub fn segment_memory(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// The data-disk as it is now.
    pub fn data_disk(&self) -> DataDiskInfo {
        unreachable!()
    }

    /// Whether a range lies within the volume and is made of whole logical blocks.
    pub fn check_range(&self, _range: LbaRange) -> bool {
        true
    }

    /// Pieces of `range` in order, each with its length in blocks and whether it is known to read
    /// as zeroes (for NBD block status). At most `pieces_max`.
    pub fn block_status(&self, _range: LbaRange, _pieces_max: usize) -> Vec<(u64, bool)> {
        Vec::new()
    }

    /// A picture of the engine.
    pub fn status(&self) -> Status {
        unreachable!()
    }
}
