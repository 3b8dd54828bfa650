//! Which blocks of the volume a file has, when its file system lies on the device that dcd serves.
//!
//! ```text
//! file --FIEMAP--> bytes of the device of its file system
//!      + start of the partition, + offset of the loop device   (sysfs, downwards until neither is left)
//!      = bytes of the volume
//! ```
//!
//! The kernel cannot say whether the device below is the one of a certain dcd, so its size is compared. A wrong answer
//! makes wrong hints, which may cost time and nothing else.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dcd_daemon::fiemap::file_extents;
use dcd_daemon::units_text::format_size;
use dcd_engine::units::BLOCK_SIZE;

use crate::error::CommandError;
use crate::output::count;

/// Magic numbers of file systems whose FIEMAP tells bytes of their device: ext2 to ext4, XFS, F2FS.
const FILE_SYSTEMS: [u64; 3] = [0xef53, 0x5846_5342, 0xf2f5_2010];
const FUSE_MAGIC: u64 = 0x6573_5546;
/// Devices on devices: more are a circle.
const LAYERS_MAX: usize = 8;

/// Why the blocks of a file are not known.
#[derive(Debug, thiserror::Error)]
pub enum FileBlocksError {
    /// A file system whose addresses are its own.
    #[error("{}: only ext2, ext3, ext4, XFS and F2FS tell where their files lie", path.display())]
    FileSystem {
        /// The file.
        path: PathBuf,
    },
    /// The device below is not the one of this dcd.
    #[error(
        "{}: its file system is not on the device of this dcd: {found}", path.display()
    )]
    OtherDevice {
        /// The file.
        path: PathBuf,
        /// What it is on.
        found: String,
    },
}

impl FileBlocksError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            FileBlocksError::FileSystem { .. } => {
                "use one of these, or tell the attributes of blocks on the control socket".into()
            }
            FileBlocksError::OtherDevice { .. } => {
                "is it the right --control? --offset BYTES says where on the volume the file system begins".into()
            }
        }
    }
}

/// Where a file system begins on the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSystemStart {
    /// Device number of the file system.
    pub device: u64,
    /// Bytes from the beginning of the volume.
    pub offset_bytes: u64,
    /// How that was found, for people.
    pub way: String,
}

/// What a file takes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileBlocks {
    /// First block of the volume and number of blocks, in the order of the file.
    pub ranges: Vec<(u64, u64)>,
    /// Some of it has no blocks yet: they are chosen when it is written back.
    pub is_delayed: bool,
}

/// The blocks of an open file, or directory, of this file system.
pub fn blocks_of(
    path: &Path,
    file: &File,
    start: &FileSystemStart,
    sync: bool,
) -> Result<FileBlocks, CommandError> {
    let extents =
        file_extents(file, sync).map_err(CommandError::file("find the blocks of", path))?;
    let mut blocks = FileBlocks::default();
    for extent in extents {
        blocks.is_delayed |= extent.is_delayed;
        let Some(first) = extent.physical.checked_add(start.offset_bytes) else { continue };
        if !extent.is_mapped || extent.length == 0 {
            continue;
        }
        let (from, to) =
            (first / BLOCK_SIZE, first.saturating_add(extent.length).div_ceil(BLOCK_SIZE));
        match blocks.ranges.last_mut() {
            Some((last, length)) if *last + *length == from => *length += to - from,
            _ => blocks.ranges.push((from, to - from)),
        }
    }
    Ok(blocks)
}

/// Opens a file or directory to find its blocks. What is neither is not opened: `None`.
pub fn open(path: &Path) -> Result<Option<File>, CommandError> {
    const NOFOLLOW_NONBLOCK: i32 = 0o400_000 | 0o4000;
    let failed = |action| CommandError::file(action, path);
    let metadata = std::fs::symlink_metadata(path).map_err(failed("look at"))?;
    if !metadata.is_file() && !metadata.is_dir() {
        return Ok(None);
    }
    let opened = File::options().read(true).custom_flags(NOFOLLOW_NONBLOCK).open(path);
    opened.map(Some).map_err(failed("open"))
}

/// Finds where the file system of `path` begins on a volume of this size. `offset` is what the user says of it.
pub fn file_system_start(
    path: &Path,
    volume_bytes: u64,
    offset: Option<u64>,
) -> Result<FileSystemStart, CommandError> {
    let metadata = std::fs::metadata(path).map_err(CommandError::file("look at", path))?;
    let device = metadata.dev();
    let kind = rustix::fs::statfs(path)
        .map_err(|errno| CommandError::file("look at", path)(errno.into()))?
        .f_type as u64;
    if !FILE_SYSTEMS.contains(&kind) {
        return Err(FileBlocksError::FileSystem { path: path.to_owned() }.into());
    }
    device_start(path, device, volume_bytes, offset)
}

/// The same for the file system on a device.
pub fn device_start(
    path: &Path,
    device: u64,
    volume_bytes: u64,
    offset: Option<u64>,
) -> Result<FileSystemStart, CommandError> {
    if let Some(offset_bytes) = offset {
        let way = "as given with --offset".into();
        return Ok(FileSystemStart { device, offset_bytes, way });
    }
    let (offset_bytes, way) = Devices { sysfs: Path::new("/sys") }
        .start_on_volume(device, volume_bytes)
        .map_err(|found| FileBlocksError::OtherDevice { path: path.to_owned(), found })?;
    Ok(FileSystemStart { device, offset_bytes, way })
}

/// Block devices, as sysfs tells of them.
struct Devices<'a> {
    sysfs: &'a Path,
}

impl Devices<'_> {
    fn directory(&self, number: u64) -> PathBuf {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        self.sysfs.join(format!("dev/block/{major}:{minor}"))
    }

    fn text(&self, number: u64, file: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.directory(number).join(file)).ok()?;
        Some(text.trim().to_owned())
    }

    fn number(&self, number: u64, file: &str) -> Option<u64> {
        self.text(number, file)?.parse().ok()
    }

    fn name(&self, number: u64) -> String {
        let directory = std::fs::canonicalize(self.directory(number)).ok();
        let name = directory.as_deref().and_then(Path::file_name);
        name.map_or_else(|| "an unknown device".into(), |name| name.to_string_lossy().into_owned())
    }

    /// Byte of the volume at which a device begins, and how it was found; else what it is on.
    fn start_on_volume(&self, device: u64, volume_bytes: u64) -> Result<(u64, String), String> {
        let mut number = device;
        let mut offset = 0u64;
        let mut way = Vec::new();
        for _ in 0..LAYERS_MAX {
            let name = self.name(number);
            let size = self.number(number, "size").unwrap_or(0) * BLOCK_SIZE;
            if self.text(number, "partition").is_some() {
                let start = self.number(number, "start").unwrap_or(0) * BLOCK_SIZE;
                offset = offset.saturating_add(start);
                way.push(format!("{name} begins {start} bytes behind the start of its disk"));
                let whole = self.text(number, "../dev").and_then(|text| {
                    let (major, minor) = text.split_once(':')?;
                    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
                });
                number = whole.ok_or_else(|| format!("partition {name} has no disk"))?;
                continue;
            }
            if let Some(file) = self.text(number, "loop/backing_file") {
                let start = self.number(number, "loop/offset").unwrap_or(0);
                offset = offset.saturating_add(start);
                way.push(format!("{name} begins at byte {start} of {file}"));
                let path = Path::new(&file);
                let metadata = std::fs::metadata(path).ok();
                if let Some(device) =
                    metadata.as_ref().filter(|it| it.file_type().is_block_device())
                {
                    number = device.rdev();
                    continue;
                }
                let is_fuse =
                    rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type as u64 == FUSE_MAGIC);
                if !is_fuse {
                    return Err(format!("{name} is over {file}, which is no file of dcd"));
                }
                let found = metadata.map_or(0, |metadata| metadata.len());
                return as_large(&file, found, volume_bytes).map(|()| (offset, way.join("; ")));
            }
            if self.directory(number).join("dm").exists()
                || self.directory(number).join("md").exists()
            {
                return Err(format!("{name} is made of other devices"));
            }
            as_large(&name, size, volume_bytes)?;
            way.push(format!("{name} is the volume"));
            return Ok((offset, way.join("; ")));
        }
        Err(format!("more than {} of devices on each other", count(LAYERS_MAX as u64, "layer")))
    }
}

/// Whether a device has the size of the volume; it may lack a last part of a block.
fn as_large(name: &str, found: u64, volume_bytes: u64) -> Result<(), String> {
    if found <= volume_bytes && volume_bytes - found < 4096 {
        return Ok(());
    }
    Err(format!("{name} has {} ({found} bytes), the volume {volume_bytes}", format_size(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sysfs with nbd0 (43:0) of 1 MiB, its partition (43:1) at block 64, dm-0 (253:0), and a loop device (7:0) over a
    /// plain file.
    fn sysfs() -> PathBuf {
        let root = std::env::temp_dir().join(format!("dcd-sysfs-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let write = |file: &str, text: &str| {
            let path = root.join("devices").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("nbd0/size", "2048\n");
        write("nbd0/dev", "43:0\n");
        write("nbd0/nbd0p1/partition", "1\n");
        write("nbd0/nbd0p1/start", "64\n");
        write("nbd0/nbd0p1/size", "1000\n");
        write("dm-0/dm/name", "lv\n");
        write("loop0/loop/backing_file", &format!("{}\n", root.join("devices/nbd0/dev").display()));
        write("loop0/loop/offset", "4096\n");
        let block = root.join("dev/block");
        std::fs::create_dir_all(&block).unwrap();
        for (number, name) in
            [("43:0", "nbd0"), ("43:1", "nbd0/nbd0p1"), ("253:0", "dm-0"), ("7:0", "loop0")]
        {
            let target = root.join("devices").join(name);
            std::os::unix::fs::symlink(target, block.join(number)).unwrap();
        }
        root
    }

    #[test]
    fn partitions_are_added_up_and_other_devices_refused() {
        let root = sysfs();
        let devices = Devices { sysfs: &root };
        let start =
            |major, minor, bytes| devices.start_on_volume(rustix::fs::makedev(major, minor), bytes);
        assert_eq!(start(43, 0, 1 << 20), Ok((0, "nbd0 is the volume".into())));
        let (offset, way) = start(43, 1, 1 << 20).unwrap();
        assert_eq!(offset, 64 * 512);
        assert_eq!(
            way,
            "nbd0p1 begins 32768 bytes behind the start of its disk; nbd0 is the volume"
        );
        // The volume may have some bytes more than whole blocks of the device.
        assert!(start(43, 0, (1 << 20) + 512).is_ok());
        assert!(start(43, 0, 2 << 20).unwrap_err().contains("nbd0 has 1 MiB"));
        assert_eq!(start(253, 0, 1 << 20), Err("dm-0 is made of other devices".into()));
        assert!(start(7, 0, 1 << 20).unwrap_err().contains("no file of dcd"));
        assert!(start(9, 9, 1 << 20).is_err());
        std::fs::remove_dir_all(root).unwrap();
    }
}
