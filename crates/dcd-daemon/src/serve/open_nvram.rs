//! Opening the memory in front of the log for a start.

use dcd_engine::nvram::durable::{DurableNvram, NvramStart};
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{DataDiskInfo, Device, Superblock, Time};

use crate::device::device_file::DeviceFile;
use crate::device::device_spec::DeviceSpec;
use crate::device::identity::same_disks;
use crate::device::network::is_network;
use crate::disk::Disk;
use crate::pair::book::PairBook;
use crate::pair::nvram::{NvramError, new_id, open};
use crate::pair::{NvramOptions, PairOptions};
use crate::serve::error::ServeError;

/// An open memory, and the disk or file that it is on.
pub(crate) struct OpenNvram {
    pub(crate) tier: DurableNvram,
    pub(crate) disk: Disk,
}

/// Opens it for this cache; nothing in it has been changed if it is refused.
pub(crate) fn open_nvram(
    options: &PairOptions,
    nvram: &NvramOptions,
    superblock: &Superblock,
    volume: DataDiskInfo,
    now: Time,
) -> Result<OpenNvram, ServeError> {
    if superblock.volume_bytes > 0 && options.engine.no_log {
        return Err(NvramError::NotYet { what: "--no-log and a volume of several disks" }.into());
    }
    if options.memory.is_some() {
        // What it takes is not counted there.
        return Err(NvramError::NotYet { what: "--memory-max" }.into());
    }
    let path = nvram.disk.path();
    if is_network(path) {
        return Err(NvramError::NotYet { what: "a network disk" }.into());
    }
    let mut paths: Vec<_> = options.cache_disks.all().map(DeviceSpec::path).collect();
    paths.extend(options.cache_disks.witness.as_ref().map(DeviceSpec::path));
    paths.extend(options.data_disks.disks.iter().map(DeviceSpec::path));
    paths.push(path);
    if let Some((first, second, shared)) = same_disks(&paths) {
        let (first, second) = (first.to_owned(), second.to_owned());
        return Err(ServeError::SameDisk { first, second, shared });
    }
    let file = DeviceFile::open(path).map_err(ServeError::device("memory"))?;
    PairBook::check_no_cache(&file, None).map_err(ServeError::BecomesPart)?;
    let start = NvramStart {
        cache: superblock.uuid,
        expected: superblock.nvram,
        new_id: new_id()?,
        volume_blocks: volume.blocks,
        unit_blocks: (u64::from(volume.logical_block_size) / BLOCK_SIZE).max(1),
        may_be_lost: options.nvram_lost,
    };
    let (tier, mapping) = open(nvram, &file, &start, now)?;
    let mut disk =
        Disk::of(Device::Nvram, &nvram.disk, file).map_err(ServeError::device("memory"))?;
    disk.set_segment_memory(mapping);
    Ok(OpenNvram { tier, disk })
}
