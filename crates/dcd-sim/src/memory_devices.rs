//! Disks in memory that answer at once: the engine alone, without any device.

use dcd_engine::{
    Buffer, DataDiskInfo, Device, Engine, EngineConfig, Geometry, Input, Io, IoData, IoDone,
    IoOperation, OpenError, Output, Phase, Reply, Time,
};

use crate::new_cache::write_new_cache;

/// An engine on two disks in memory, driven until it waits.
pub struct MemoryDevices {
    engine: Engine,
    cache_disk: Vec<u8>,
    data_disk: Vec<u8>,
    now: Time,
    replies: Vec<Reply>,
}

impl MemoryDevices {
    /// A new cache of `geometry` for a data-disk of `data_disk_blocks` blocks.
    pub fn new(
        geometry: Geometry,
        data_disk_blocks: u64,
        config: EngineConfig,
    ) -> Result<MemoryDevices, OpenError> {
        let info = DataDiskInfo {
            blocks: data_disk_blocks,
            logical_block_size: 512,
            physical_sector_size: 4096,
        };
        let mut cache_disk = vec![0; geometry.end() as usize];
        let superblock = write_new_cache(geometry, info, |offset, bytes| {
            cache_disk[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        });
        let memory = Buffer::zeroed(Engine::segment_memory_size(&geometry, &config));
        let engine =
            Engine::open(Time::ZERO, superblock, geometry.end(), info, config, Box::new(memory))?;
        let mut devices = MemoryDevices {
            engine,
            cache_disk,
            data_disk: vec![0; info.bytes() as usize],
            now: Time::ZERO,
            replies: Vec::new(),
        };
        devices.poll();
        match devices.engine.phase() {
            Phase::Failed(error) => Err(error.clone()),
            _ => Ok(devices),
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Gives an input at `now`, and ends every I/O that follows from it.
    pub fn input(&mut self, now: Time, input: Input) {
        self.now = self.now.max(now);
        self.engine.handle_input(self.now, input);
        self.poll();
    }

    /// The replies since the last call.
    pub fn take_replies(&mut self) -> std::vec::Drain<'_, Reply> {
        self.replies.drain(..)
    }

    fn poll(&mut self) {
        loop {
            match self.engine.poll_output() {
                Output::Io(io) => {
                    let done = self.perform(io);
                    self.engine.handle_input(self.now, Input::IoDone(done));
                }
                Output::Reply(reply) => self.replies.push(reply),
                Output::Wait { .. } => return,
            }
        }
    }

    fn perform(&mut self, io: Io) -> IoDone {
        let disk = match io.device {
            Device::CacheDisk => &mut self.cache_disk,
            Device::DataDisk => &mut self.data_disk,
            Device::Member(_) => unreachable!("there is no volume here"),
        };
        let buffer = match io.operation {
            IoOperation::Read { offset, mut buffer } => {
                let at = offset as usize;
                let length = buffer.len();
                buffer.bytes_mut().copy_from_slice(&disk[at..at + length]);
                Some(buffer)
            }
            IoOperation::Write { offset, data: IoData::Owned(buffer), .. } => {
                let at = offset as usize;
                disk[at..at + buffer.len()].copy_from_slice(buffer.bytes());
                Some(buffer)
            }
            IoOperation::Write { offset, data: IoData::SegmentMemory(range), .. } => {
                let at = offset as usize;
                disk[at..at + range.len()].copy_from_slice(&self.engine.segment_memory()[range]);
                None
            }
            IoOperation::WriteZeroes { offset, length, .. } => {
                disk[offset as usize..(offset + length) as usize].fill(0);
                None
            }
            IoOperation::Flush => None,
        };
        IoDone { id: io.id, result: Ok(()), buffer }
    }
}
