//! The disks of a cache-disk on several legs, and their labels.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use dcd_engine::format::leg_label::{LEG_LABEL_BYTES, LEG_LABEL_OFFSETS, LegLabel, Tag};
use dcd_engine::legs::choose::choose;
use dcd_engine::units::Uuid;
use dcd_engine::{Buffer, FormatError};

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

/// The newer of both copies of a leg's label. One that cannot be read is as one that is damaged.
///
/// # Errors
/// If neither can be read, or what is wrong with the label.
pub fn read_leg_label(disk: &DeviceFile) -> Result<Result<LegLabel, FormatError>, DeviceError> {
    let copies = LEG_LABEL_OFFSETS.map(|offset| disk.read_at(offset, LEG_LABEL_BYTES));
    let is_read = copies.iter().any(Result::is_ok);
    let [first, second] = copies.map(|copy| match copy {
        Err(_) if is_read => Ok(Buffer::zeroed(LEG_LABEL_BYTES)),
        copy => copy,
    });
    Ok(LegLabel::newest(first?.bytes(), second?.bytes()))
}

/// The newer of both copies of the label of a leg, of a disk that is not ours: nothing is locked.
pub fn label_at(disk: &Path) -> Option<LegLabel> {
    let file = File::open(disk).ok()?;
    let mut copies = [[0; LEG_LABEL_BYTES]; LEG_LABEL_OFFSETS.len()];
    for (copy, offset) in copies.iter_mut().zip(LEG_LABEL_OFFSETS) {
        // A copy that cannot be read stays empty, which is no label.
        let _ = file.read_exact_at(copy, offset);
    }
    LegLabel::newest(&copies[0], &copies[1]).ok()
}

/// Whether the legs among these disks can do without the others, as their labels say.
pub(crate) fn can_do_without_others(disks: &[&Path], without: &[Uuid]) -> bool {
    let labels: Vec<LegLabel> = disks.iter().filter_map(|disk| label_at(disk)).collect();
    let is_named = |leg: &&Uuid| labels.iter().any(|label| label.membership.members.contains(leg));
    let without: Vec<Uuid> = without.iter().filter(is_named).copied().collect();
    choose(&labels, &without).is_ok()
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
