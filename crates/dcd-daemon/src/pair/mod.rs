//! A pair of disks: how it is named, what the host remembers of it, what is written on both of them
//! to know each other by, and who the members of a volume are.

pub mod book;
pub mod label_keeper;
pub mod leg_share;
pub mod legs;
pub mod members;
pub mod new_member;
pub mod nvram;
pub mod record;

use std::fmt;

use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::SUPERBLOCK_SIZE;
use dcd_engine::nvram::durable::DurableConfig;
use dcd_engine::units::Uuid;
use dcd_engine::{EngineConfig, FormatError, Superblock};

use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::device_spec::DeviceSpec;
use crate::device::network::TakeOver;
use crate::pair::book::PairBook;
use crate::process::isolation::MemoryLimit;

/// What makes a pair.
#[derive(Clone, Debug)]
pub struct PairOptions {
    /// The disk with the log, or its legs.
    pub cache_disks: CacheDisks,
    /// The disks with the data.
    pub data_disks: DataDisks,
    /// What cannot be done with a volume, if it is that; `None`: whatever there is is opened.
    pub not_for_volumes: Option<&'static str>,
    /// Settings of the engine; `one_disk` is replaced unless the user chose it.
    pub engine: EngineConfig,
    /// Whether both disks share one arm; `None`: look.
    pub one_disk: Option<bool>,
    /// Where the segment memory goes; `None`: to a directory of our own
    /// ([`crate::memory::places`]).
    pub memory_directory: Option<std::path::PathBuf>,
    /// Go on without the segment memory of the last session, if it is lost: a person has read what
    /// that means.
    pub memory_lost: bool,
    /// The memory in front of the log, if there is to be one.
    pub nvram: Option<NvramOptions>,
    /// Go on without the memory in front of the log that the last session had, if it is lost.
    pub nvram_lost: bool,
    /// Whether an object store is taken from another daemon that has a lease on it.
    pub take_over: TakeOver,
    /// Which size of the data-disk counts.
    pub size: DataDiskSize,
    /// Most memory that it may come to need, with its clients; `None`: what it takes.
    pub memory: Option<MemoryLimit>,
    /// What the host remembers of pairs.
    pub pairs: PairBook,
    /// No messages.
    pub quiet: bool,
}

/// A memory in front of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NvramOptions {
    /// A file or block device.
    pub disk: DeviceSpec,
    /// It is memory, and survives the loss of power: a person says so.
    pub survives_power: bool,
    /// Policy and thresholds.
    pub config: DurableConfig,
}

/// The disks with the log, as they were named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheDisks {
    /// One, or each leg, in any order.
    pub disks: Vec<DeviceSpec>,
    /// Blank disks that become legs.
    pub new_legs: Vec<DeviceSpec>,
    /// Legs to do without, although they may hold what the others do not.
    pub without: Vec<Uuid>,
    /// The witness of the legs.
    pub witness: Option<DeviceSpec>,
}

impl CacheDisks {
    /// One disk, or the legs, as they are.
    pub fn of(disks: Vec<DeviceSpec>) -> CacheDisks {
        CacheDisks { disks, new_legs: Vec::new(), without: Vec::new(), witness: None }
    }

    /// All of them, in the order of their legs.
    pub fn all(&self) -> impl Iterator<Item = &DeviceSpec> {
        self.disks.iter().chain(&self.new_legs)
    }
}

impl From<DeviceSpec> for CacheDisks {
    fn from(disk: DeviceSpec) -> CacheDisks {
        CacheDisks::of(vec![disk])
    }
}

impl fmt::Display for CacheDisks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, disk) in self.all().enumerate() {
            write!(f, "{}{disk}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// The disks with the data, as they were named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataDisks {
    /// One; of a volume its members, in any order.
    pub disks: Vec<DeviceSpec>,
    /// Blank disks that take the place of members that are lost, by their numbers.
    pub replacements: Vec<(u8, DeviceSpec)>,
    /// Open a volume although members are missing that held something.
    pub degraded: bool,
}

impl From<DeviceSpec> for DataDisks {
    fn from(disk: DeviceSpec) -> DataDisks {
        DataDisks { disks: vec![disk], replacements: Vec::new(), degraded: false }
    }
}

impl fmt::Display for DataDisks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, disk) in self.disks.iter().chain(replaced(self)).enumerate() {
            write!(f, "{}{disk}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// Which size of the data-disk counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DataDiskSize {
    /// That of the disk, which must be the recorded one.
    #[default]
    Same,
    /// The recorded one; the disk may be larger.
    AsRecorded,
    /// That of the disk, which may be larger than the recorded one and is recorded.
    Grown,
}

/// Disks that take the place of lost members.
pub(crate) fn replaced(disks: &DataDisks) -> impl Iterator<Item = &DeviceSpec> {
    disks.replacements.iter().map(|(_, disk)| disk)
}

/// Why there is no superblock.
#[derive(Debug, thiserror::Error)]
pub enum SuperblockError {
    /// The disk cannot be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What was read is none.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Reads both copies and takes the newer.
pub fn read_superblock(disk: &DeviceFile) -> Result<Superblock, SuperblockError> {
    let first = disk.read_at(SUPERBLOCK_OFFSETS[0], SUPERBLOCK_SIZE)?;
    let second = disk.read_at(SUPERBLOCK_OFFSETS[1], SUPERBLOCK_SIZE)?;
    Ok(Superblock::newest(first.bytes(), second.bytes())?)
}
