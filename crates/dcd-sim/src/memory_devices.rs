//! Disks in memory that answer at once: the engine alone, without any device.

use dcd_engine::{
    Buffer, DataDiskInfo, Device, Engine, EngineConfig, Geometry, Input, Io, OpenError, Phase,
    Reply, Time,
};
use dcd_testkit::{carry_out, settle};

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
        let superblock = write_new_cache(geometry, info, None, |offset, bytes| {
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
        // A start has several parts, each at its wake-up.
        let mut wake_up = Some(Time::ZERO);
        while matches!(devices.engine.phase(), Phase::Opening) {
            let now = wake_up.expect("a start that waits for no I/O has a wake-up");
            wake_up = devices.input(now, Input::Timeout);
        }
        match devices.engine.phase() {
            Phase::Failed(error) => Err(error.clone()),
            _ => Ok(devices),
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Gives an input at `now`, and ends every I/O that follows from it. Tells when the engine
    /// wants to be woken up.
    pub fn input(&mut self, now: Time, input: Input) -> Option<Time> {
        self.now = self.now.max(now);
        let MemoryDevices { engine, cache_disk, data_disk, now, replies } = self;
        let carry_out = |io: Io, memory: &[u8]| match io.device {
            Device::CacheDisk => carry_out(io, memory, cache_disk),
            Device::DataDisk => carry_out(io, memory, data_disk),
            Device::Member(_) | Device::Leg(_) | Device::Witness | Device::Nvram => {
                unreachable!("one of each")
            }
        };
        settle(engine, *now, input, carry_out, |reply| replies.push(reply))
    }

    /// The replies since the last call.
    pub fn take_replies(&mut self) -> std::vec::Drain<'_, Reply> {
        self.replies.drain(..)
    }
}
