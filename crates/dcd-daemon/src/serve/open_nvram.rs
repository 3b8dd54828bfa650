//! Opening the memory in front of the log: a file in memory that somebody says survives, or a block
//! device or a file on a disk, which is written and flushed.

use std::path::PathBuf;

use dcd_engine::format::nvram::{CHUNK_BYTES, NvramLayout};
use dcd_engine::nvram::durable::{
    DurableNvram, MediumPersist, NvramMedium, NvramOpenError, NvramStart,
};
use dcd_engine::{Device, SegmentMemory, Superblock, Time, Uuid};
use rustix::fs::FallocateFlags;

use crate::device::device_file::DeviceFile;
use crate::device::device_spec::DeviceSpec;
use crate::device::identity::same_disks;
use crate::disk::Disk;
use crate::memory::segment_memory::{Mapping, SharedSegmentMemory};
use crate::pair::{NvramOptions, PairOptions};
use crate::process::random::random_bytes;
use crate::serve::error::ServeError;

/// tmpfs, ramfs, hugetlbfs: what is in a file there is in memory (linux/magic.h).
const FILE_SYSTEMS_IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
/// Read at once when a device is loaded.
const LOAD_BYTES: usize = 1 << 20;

/// Why a memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NvramError {
    /// What is in it.
    #[error("the memory {}: {source}", path.display())]
    Open {
        /// The memory.
        path: PathBuf,
        /// Why not.
        source: NvramOpenError,
    },
    /// It is in memory, and nobody has said that it survives.
    #[error(
        "the memory {} is in a file system in memory, and nothing says that it survives the loss of power",
        path.display()
    )]
    NotDeclared {
        /// The memory.
        path: PathBuf,
    },
    /// It is not in memory, and somebody has said that it survives.
    #[error(
        "the memory {} is not in a file system in memory: it is written and flushed, and --nvram-survives says nothing of it",
        path.display()
    )]
    NotMemory {
        /// The memory.
        path: PathBuf,
    },
    /// Not with this.
    #[error("--nvram is not possible with {what} yet")]
    NotYet {
        /// What.
        what: &'static str,
    },
}

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
    volume_blocks: u64,
    now: Time,
) -> Result<OpenNvram, ServeError> {
    if superblock.volume_bytes > 0 {
        return Err(NvramError::NotYet { what: "a volume of several data-disks" }.into());
    }
    if options.memory.is_some() {
        // What it takes is not counted there.
        return Err(NvramError::NotYet { what: "--memory-max" }.into());
    }
    let path = nvram.disk.path();
    let mut paths: Vec<_> = options.cache_disks.all().map(DeviceSpec::path).collect();
    paths.extend(options.data_disks.disks.iter().map(DeviceSpec::path));
    paths.push(path);
    if let Some((first, second, shared)) = same_disks(&paths) {
        let (first, second) = (first.to_owned(), second.to_owned());
        return Err(ServeError::SameDisk { first, second, shared });
    }
    let file = DeviceFile::open(path).map_err(ServeError::device("memory"))?;
    let (medium, mapping) = medium(nvram, &file)?;
    let start = NvramStart {
        cache: superblock.uuid,
        expected: superblock.nvram,
        new_id: new_id()?,
        volume_blocks,
        may_be_lost: options.nvram_lost,
    };
    let opened = DurableNvram::open(now, nvram.config, Box::new(medium), &start);
    let tier = opened.map_err(|source| NvramError::Open { path: path.to_owned(), source })?;
    let mut disk =
        Disk::of(Device::Nvram, &nvram.disk, file).map_err(ServeError::device("memory"))?;
    disk.set_segment_memory(mapping);
    Ok(OpenNvram { tier, disk })
}

fn new_id() -> Result<Uuid, ServeError> {
    let bytes: [u8; 16] = random_bytes().map_err(ServeError::system("get random numbers"))?;
    // 0 is none.
    Ok(Uuid(if bytes == [0; 16] { [1; 16] } else { bytes }))
}

fn medium(
    nvram: &NvramOptions,
    file: &DeviceFile,
) -> Result<(MappedMedium, std::sync::Arc<Mapping>), ServeError> {
    let path = nvram.disk.path();
    let in_use = NvramLayout::of_size(file.size_bytes).map(NvramLayout::bytes);
    let size = || NvramOpenError::Size { found: file.size_bytes };
    let open_error = |source| NvramError::Open { path: path.to_owned(), source };
    // Not more is mapped than is used; what is behind it is not touched.
    let bytes = in_use.filter(|bytes| *bytes + CHUNK_BYTES > file.size_bytes);
    let bytes = bytes.ok_or_else(|| open_error(size()))? as usize;
    let descriptor = file.descriptors()[0];
    let kind = rustix::fs::fstatfs(descriptor).map(|fs| fs.f_type as u64);
    let is_memory =
        !file.is_block_device && kind.is_ok_and(|kind| FILE_SYSTEMS_IN_MEMORY.contains(&kind));
    match (is_memory, nvram.survives_power) {
        (true, false) => return Err(NvramError::NotDeclared { path: path.to_owned() }.into()),
        (false, true) => return Err(NvramError::NotMemory { path: path.to_owned() }.into()),
        _ => {}
    }
    let map = |file| Mapping::of_medium(file, bytes).map_err(std::io::Error::from);
    if is_memory {
        // What is not there yet is zeroes, and nobody else may take the room.
        let room = rustix::fs::fallocate(descriptor, FallocateFlags::empty(), 0, bytes as u64);
        room.map_err(std::io::Error::from)
            .map_err(ServeError::system("reserve the room of the memory"))?;
        let mapping = map(Some(descriptor)).map_err(ServeError::system("map the memory"))?;
        let (memory, mapping) = SharedSegmentMemory::of_medium(mapping);
        return Ok((MappedMedium { memory, persist: MediumPersist::Now }, mapping));
    }
    let mapping = map(None).map_err(ServeError::system("get memory"))?;
    let (mut memory, mapping) = SharedSegmentMemory::of_medium(mapping);
    for at in (0..bytes).step_by(LOAD_BYTES) {
        let length = LOAD_BYTES.min(bytes - at);
        let read = file.read_at(at as u64, length).map_err(ServeError::device("memory"))?;
        memory.bytes_mut()[at..at + length].copy_from_slice(&read.bytes()[..length]);
    }
    let sector_bytes = file.physical_sector_size.max(file.logical_block_size) as usize;
    Ok((MappedMedium { memory, persist: MediumPersist::Io { sector_bytes } }, mapping))
}

/// A mapping of a file in memory, or memory that stands for a device.
struct MappedMedium {
    memory: SharedSegmentMemory,
    persist: MediumPersist,
}

impl NvramMedium for MappedMedium {
    fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    fn store(&mut self, at: usize, bytes: &[u8]) {
        self.memory.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn store_word(&mut self, at: usize, word: u64) {
        self.memory.store_word(at, word);
    }

    fn persist(&self) -> MediumPersist {
        self.persist
    }

    fn fence(&mut self) {
        // What dies is the process: the memory has what the processor has stored.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}
