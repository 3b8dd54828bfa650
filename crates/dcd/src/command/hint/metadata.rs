//! The metadata of a file system that stays where mkfs put it, from its superblock.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use dcd_daemon::units_text::format_size;
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::volume::attributes::{AttributeChange, Attributes};
use serde_json::json;

use super::VolumeArguments;
use crate::error::CommandError;
use crate::file_blocks::{FileSystemStart, device_file_system_start, device_start};
use crate::output::count;
use crate::static_metadata::{StaticMetadata, static_metadata};
use crate::stdout::{print, print_json};
use crate::volume_client::VolumeClient;

/// What was said of it.
pub struct Told {
    /// Kind of file system.
    pub kind: &'static str,
    /// Its metadata.
    pub bytes: u64,
    /// Extents that were changed.
    pub extents: u64,
}

pub fn run(path: &Path, arguments: &VolumeArguments, as_json: bool) -> Result<(), CommandError> {
    let mut volume = VolumeClient::connect(&arguments.control)?;
    let start = start_of(path, volume.report.volume_bytes, arguments.offset)?;
    let told = tell(&mut volume, path, &start)?;
    if as_json {
        return print_json(&json!({
            "file_system": told.kind, "metadata_bytes": told.bytes, "extents_changed": told.extents,
            "offset_bytes": start.offset_bytes, "found": start.way,
        }));
    }
    print(&format!(
        "{}: {} of metadata, changed for {} ({})\n",
        told.kind,
        format_size(told.bytes),
        count(told.extents, "extent"),
        start.way
    ))
}

/// Where the file system begins that is on this device, or has this file.
fn start_of(
    path: &Path,
    volume_bytes: u64,
    offset: Option<u64>,
) -> Result<FileSystemStart, CommandError> {
    let metadata = std::fs::metadata(path).map_err(CommandError::file("look at", path))?;
    match metadata.file_type().is_block_device() {
        true => device_start(path, metadata.rdev(), volume_bytes, offset),
        false => device_file_system_start(path, volume_bytes, offset),
    }
}

/// The node of a block device.
fn device_node(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let facts = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent"));
    let facts = facts.unwrap_or_default();
    match facts.lines().find_map(|line| line.strip_prefix("DEVNAME=")) {
        Some(name) => Path::new("/dev").join(name),
        None => PathBuf::from(format!("/dev/block/{major}:{minor}")),
    }
}

/// Finds the metadata of a file system, and says that it is.
pub fn tell(
    volume: &mut VolumeClient,
    path: &Path,
    start: &FileSystemStart,
) -> Result<Told, CommandError> {
    let node = device_node(start.device);
    let device = File::open(&node).map_err(CommandError::file("open", &node))?;
    let StaticMetadata { kind, ranges } = static_metadata(&mut &device)
        .map_err(|problem| CommandError::NoStaticMetadata { path: path.to_owned(), problem })?;
    let bytes = ranges.iter().map(|range| range.end - range.start).sum();
    let blocks = ranges.into_iter().filter_map(|range| {
        let from = range.start.checked_add(start.offset_bytes)? / BLOCK_SIZE;
        let to = range.end.checked_add(start.offset_bytes)?.div_ceil(BLOCK_SIZE);
        Some((from, to - from))
    });
    let blocks: Vec<_> = blocks.collect();
    let change = AttributeChange { set: Attributes::METADATA, clear: Attributes::TEMPORARY };
    let mut changed = Vec::new();
    for place in volume.places(&blocks)? {
        if place.attributes.changed(change) != place.attributes {
            changed.push((place.block, place.blocks));
        }
    }
    volume.set_attributes(&changed, change.set, change.clear)?;
    let extent = volume.extent_blocks();
    let extents = changed.iter().map(|(_, blocks)| blocks.div_ceil(extent)).sum();
    Ok(Told { kind, bytes, extents })
}
