//! The disks of a cache-disk on several legs, and their labels.

use std::io;

use dcd_engine::FormatError;
use dcd_engine::format::leg_label::{LEG_LABEL_BYTES, LEG_LABEL_OFFSETS, LegLabel, Tag};
use dcd_engine::units::Uuid;

use crate::device::device_file::{DeviceError, DeviceFile};
use crate::disk::Disk;
use crate::process::random::random_bytes;

/// The disks below the log.
pub enum CacheSide {
    /// One.
    Disk(Box<Disk>),
    /// Several, in the order of their legs.
    Legs(Vec<Disk>),
}

impl CacheSide {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Disk> {
        match self {
            CacheSide::Disk(disk) => std::slice::from_ref(&**disk).iter(),
            CacheSide::Legs(legs) => legs.iter(),
        }
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Disk> {
        match self {
            CacheSide::Disk(disk) => std::slice::from_mut(&mut **disk).iter_mut(),
            CacheSide::Legs(legs) => legs.iter_mut(),
        }
    }
}

/// The newer of both copies of a leg's label.
///
/// # Errors
/// If the disk cannot be read, or what is wrong with the label.
pub fn read_leg_label(disk: &DeviceFile) -> Result<Result<LegLabel, FormatError>, DeviceError> {
    let first = disk.read_at(LEG_LABEL_OFFSETS[0], LEG_LABEL_BYTES)?;
    let second = disk.read_at(LEG_LABEL_OFFSETS[1], LEG_LABEL_BYTES)?;
    Ok(LegLabel::newest(first.bytes(), second.bytes()))
}

/// Writes the first label of a leg, both copies, and makes them durable.
///
/// # Errors
/// If the disk cannot be written.
pub fn write_leg_label(disk: &DeviceFile, label: &LegLabel) -> Result<(), DeviceError> {
    for offset in LEG_LABEL_OFFSETS {
        disk.write_at(offset, &label.encode())?;
    }
    Ok(())
}

/// The name of a new leg.
///
/// # Errors
/// If there are no random numbers.
pub fn new_leg_uuid() -> io::Result<Uuid> {
    random_bytes().map(Uuid)
}

/// A random tag.
///
/// # Errors
/// If there are no random numbers.
pub fn new_tag() -> io::Result<Tag> {
    random_bytes().map(|bytes| Tag(u64::from_le_bytes(bytes) | 1))
}
