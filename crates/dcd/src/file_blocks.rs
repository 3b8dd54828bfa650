//! Which blocks of the volume a file has, when its file system lies on the device that dcd serves.
//!
//! ```text
//! file --FIEMAP--> bytes of the device of its file system
//!      + start of the partition, + offset of the loop device   (sysfs, downwards until neither is left)
//!      = bytes of the volume
//! ```
//!
//! The kernel cannot say whether the device below is the one of a certain dcd, so its size is
//! compared. What the user says of the beginning is compared with what sysfs says, or with what is
//! there. A dhisfs says itself which blocks of the volume a file has. A wrong answer makes wrong
//! hints, which may cost time and nothing else.

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dcd_daemon::device::fiemap::file_extents;
use dcd_daemon::units_text::format_size;
use dcd_engine::units::BLOCK_SIZE;

use crate::error::CommandError;
pub use crate::error::file_blocks::FileBlocksError;
use crate::output::count;

/// Magic numbers of file systems whose FIEMAP tells bytes of their device: ext2 to ext4, XFS, F2FS.
const FILE_SYSTEMS: [u64; 3] = [0xef53, 0x5846_5342, 0xf2f5_2010];
const FUSE_MAGIC: u64 = 0x6573_5546;
/// Devices on devices: more are a circle.
const LAYERS_MAX: usize = 8;

/// Where a file system begins on the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSystemStart {
    /// Device number of the file system.
    pub device: u64,
    /// Bytes from the beginning of the volume.
    pub offset_bytes: u64,
    /// How that was found, for people.
    pub way: String,
    /// It is a dhisfs, which tells the volume of its files itself.
    pub is_dhisfs: bool,
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
    if start.is_dhisfs {
        return blocks_in_dhisfs(file).map_err(CommandError::file("find the blocks of", path));
    }
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

/// Finds where the file system of `path` begins on a volume of this size. `offset` is what the user
/// says of it.
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
    if kind == FUSE_MAGIC && is_dhisfs(path, volume_bytes)? {
        let way = "a dhisfs is all of the volume".into();
        return Ok(FileSystemStart { device, offset_bytes: 0, way, is_dhisfs: true });
    }
    if !FILE_SYSTEMS.contains(&kind) {
        return Err(FileBlocksError::FileSystem { path: path.to_owned() }.into());
    }
    device_start(path, device, volume_bytes, offset)
}

/// The same where the file system has to be one that is on a device.
pub fn device_file_system_start(
    path: &Path,
    volume_bytes: u64,
    offset: Option<u64>,
) -> Result<FileSystemStart, CommandError> {
    let start = file_system_start(path, volume_bytes, offset)?;
    match start.is_dhisfs {
        true => Err(FileBlocksError::Dhisfs { path: path.to_owned() }.into()),
        false => Ok(start),
    }
}

/// The same for the file system on a device.
pub fn device_start(
    path: &Path,
    device: u64,
    volume_bytes: u64,
    offset: Option<u64>,
) -> Result<FileSystemStart, CommandError> {
    let devices = Devices { sysfs: Path::new("/sys") };
    let found = devices.start_on_volume(device, volume_bytes);
    let (offset_bytes, way) = match (offset, found) {
        (None, found) => {
            found.map_err(|found| FileBlocksError::OtherDevice { path: path.to_owned(), found })?
        }
        (Some(offset), found) => {
            let checked = devices.check_offset(device, volume_bytes, offset, found);
            let wrong = |found| FileBlocksError::Offset { path: path.to_owned(), offset, found };
            (offset, checked.map_err(wrong)?)
        }
    };
    Ok(FileSystemStart { device, offset_bytes, way, is_dhisfs: false })
}

/// The extended attribute in which a dhisfs tells the blocks of a file, from a place in the file
/// on.
const DHISFS_BLOCKS: &str = "user.dcd.blocks";
/// It takes no more.
const DHISFS_BLOCKS_BYTES: usize = 64 << 10;

/// Whether a file is on a dhisfs on a volume of this size.
fn is_dhisfs(path: &Path, volume_bytes: u64) -> Result<bool, CommandError> {
    let mut bytes = vec![0; DHISFS_BLOCKS_BYTES];
    let Ok(length) = rustix::fs::getxattr(path, DHISFS_BLOCKS, &mut bytes[..]) else {
        return Ok(false);
    };
    let Some(told) = DhisfsBlocks::parse(&bytes[..length]) else { return Ok(false) };
    let found = told.block_bytes.saturating_mul(told.blocks);
    match as_large("the volume of this dhisfs", found, volume_bytes) {
        Ok(()) => Ok(true),
        Err(found) => Err(FileBlocksError::OtherDevice { path: path.to_owned(), found }.into()),
    }
}

fn blocks_in_dhisfs(file: &File) -> std::io::Result<FileBlocks> {
    let mut blocks = FileBlocks::default();
    let mut next = 0;
    loop {
        let mut bytes = vec![0; DHISFS_BLOCKS_BYTES];
        let name = format!("{DHISFS_BLOCKS}.{next}");
        let length = rustix::fs::fgetxattr(file, &*name, &mut bytes[..])?;
        let told = DhisfsBlocks::parse(&bytes[..length]);
        let told = told.ok_or(std::io::ErrorKind::InvalidData)?;
        let Some((index, _, count)) = told.runs.last() else { return Ok(blocks) };
        // It comes to an end, whatever is told.
        let end = index.saturating_add(*count);
        if end <= next {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        next = end;
        let scale = told.block_bytes / BLOCK_SIZE;
        for (_, block, count) in told.runs {
            let (from, length) = (block.saturating_mul(scale), count.saturating_mul(scale));
            match blocks.ranges.last_mut() {
                Some((last, before)) if *last + *before == from => *before += length,
                _ => blocks.ranges.push((from, length)),
            }
        }
    }
}

/// What a dhisfs tells: size and number of blocks of the volume, and on a line each the place in
/// the file, the block and the number of blocks of what lies in one piece.
struct DhisfsBlocks {
    block_bytes: u64,
    blocks: u64,
    runs: Vec<(u64, u64, u64)>,
}

impl DhisfsBlocks {
    fn parse(bytes: &[u8]) -> Option<DhisfsBlocks> {
        let text = str::from_utf8(bytes).ok()?;
        let numbers = |line: &str| {
            let words = line.split(' ').map(|word| word.parse().ok());
            words.collect::<Option<Vec<u64>>>()
        };
        let (first, rest) = text.split_once('\n')?;
        let [block_bytes, blocks] = numbers(first.strip_prefix("dhisfs ")?)?[..] else {
            return None;
        };
        let runs = rest.lines().map(|line| match numbers(line)?[..] {
            [index, block, count] if count > 0 => Some((index, block, count)),
            _ => None,
        });
        let runs = runs.collect::<Option<Vec<_>>>()?;
        (block_bytes >= BLOCK_SIZE).then_some(DhisfsBlocks { block_bytes, blocks, runs })
    }
}

/// Where file systems keep what tells them from others: magic number and UUID, as byte ranges.
const IDENTITIES: [(&[u8], usize, usize); 3] = [
    // ext2 to ext4, XFS, F2FS.
    (&[0x53, 0xef], 1024 + 56, 1024 + 104),
    (b"XFSB", 0, 32),
    (&[0x10, 0x20, 0xf5, 0xf2], 1024, 1024 + 108),
];

/// What tells a file system from others, in its first bytes.
fn identity(bytes: &[u8]) -> Option<&[u8]> {
    let found = IDENTITIES.iter().find(|(magic, at, _)| bytes[*at..].starts_with(magic));
    found.map(|(_, _, uuid)| &bytes[*uuid..*uuid + 16])
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

    /// Whether a file system on a device may begin at this byte of the volume, and how that is
    /// known; else what is known instead. `known` is where it begins as far as it can be followed.
    fn check_offset(
        &self,
        device: u64,
        volume_bytes: u64,
        offset: u64,
        known: Result<(u64, String), String>,
    ) -> Result<String, String> {
        match known {
            Ok((start, way)) if start == offset => return Ok(way),
            Ok((start, way)) => return Err(format!("it begins at byte {start}: {way}")),
            Err(_) => {}
        }
        let size = self.number(device, "size").unwrap_or(0) * BLOCK_SIZE;
        if !offset.is_multiple_of(BLOCK_SIZE) {
            return Err(format!("no device begins in the middle of a block of {BLOCK_SIZE} bytes"));
        }
        if offset.checked_add(size.max(BLOCK_SIZE)).is_none_or(|end| end > volume_bytes) {
            let size = format_size(size);
            return Err(format!(
                "with {size} it would end behind the volume of {volume_bytes} bytes"
            ));
        }
        // Through device-mapper and the like nothing tells where; but what is there can be
        // compared.
        let unchecked = "as given with --offset".to_owned();
        let Some(whole) = self.volume_below(device, volume_bytes) else { return Ok(unchecked) };
        let first = |number, offset| {
            let mut bytes = [0; 4096];
            let node = File::open(self.node(number)).ok()?;
            node.read_exact_at(&mut bytes, offset).ok()?;
            Some(bytes)
        };
        let (Some(own), Some(there)) = (first(device, 0), first(whole, offset)) else {
            return Ok(unchecked);
        };
        match (identity(&own), identity(&there)) {
            (Some(own), Some(there)) if own == there => {
                Ok(format!("as given with --offset; {} has it there", self.name(whole)))
            }
            (Some(_), Some(_)) => Err("another file system begins there".into()),
            (Some(_), None) => Err("no file system begins there".into()),
            (None, _) => Ok(unchecked),
        }
    }

    /// The device of the volume, if that is all that a device lies on.
    fn volume_below(&self, device: u64, volume_bytes: u64) -> Option<u64> {
        let mut number = device;
        for _ in 0..LAYERS_MAX {
            let size = self.number(number, "size")? * BLOCK_SIZE;
            if as_large("", size, volume_bytes).is_ok() && number != device {
                return Some(number);
            }
            let slaves = std::fs::read_dir(self.directory(number).join("slaves")).ok();
            let below = slaves.and_then(|mut slaves| match (slaves.next(), slaves.next()) {
                (Some(Ok(only)), None) => std::fs::read_to_string(only.path().join("dev")).ok(),
                _ => None,
            });
            let below = below.or_else(|| self.text(number, "../dev"))?;
            let (major, minor) = below.trim().split_once(':')?;
            number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        }
        None
    }

    fn node(&self, number: u64) -> PathBuf {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        PathBuf::from(format!("/dev/block/{major}:{minor}"))
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

    /// A sysfs with nbd0 (43:0) of 1 MiB, its partition (43:1) at block 64, dm-0 (253:0), and a
    /// loop device (7:0) over a plain file.
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
        write("dm-0/size", "100\n");
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
        // What is said of it has to be so, or at least possible.
        let said = |major, minor, offset, bytes: u64| {
            let device = rustix::fs::makedev(major, minor);
            let known = devices.start_on_volume(device, bytes);
            devices.check_offset(device, bytes, offset, known)
        };
        assert!(said(43, 1, 64 * 512, 1 << 20).is_ok());
        assert!(said(43, 1, 12345, 1 << 20).unwrap_err().starts_with("it begins at byte 32768"));
        assert!(said(253, 0, 12345, 1 << 20).unwrap_err().contains("middle of a block"));
        for beyond in [1 << 20, (1 << 20) - 512 * 99, u64::MAX - 511] {
            assert!(said(253, 0, beyond, 1 << 20).unwrap_err().contains("behind the volume"));
        }
        assert_eq!(said(253, 0, 512, 1 << 20), Ok("as given with --offset".into()));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_a_dhisfs_tells() {
        let told = DhisfsBlocks::parse(b"dhisfs 4096 1000\n0 17 3\n5 30 1\n").unwrap();
        assert_eq!((told.block_bytes, told.blocks), (4096, 1000));
        assert_eq!(told.runs, [(0, 17, 3), (5, 30, 1)]);
        assert!(DhisfsBlocks::parse(b"dhisfs 4096 1000\n").unwrap().runs.is_empty());
        for bad in
            ["", "dhisfs 4096\n", "ext4 1 2\n", "dhisfs 4096 9\n1 2\n", "dhisfs 4096 9\n1 2 0\n"]
        {
            assert!(DhisfsBlocks::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn file_systems_are_told_apart() {
        let mut bytes = [0; 4096];
        assert_eq!(identity(&bytes), None);
        bytes[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        bytes[1024 + 104..1024 + 120].copy_from_slice(&[7; 16]);
        assert_eq!(identity(&bytes), Some(&[7; 16][..]));
        let mut bytes = [0; 4096];
        bytes[..4].copy_from_slice(b"XFSB");
        bytes[32..48].copy_from_slice(&[8; 16]);
        assert_eq!(identity(&bytes), Some(&[8; 16][..]));
    }
}
