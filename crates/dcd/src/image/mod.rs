//! A cache-disk as `check` and `inspect` see it: opened for reading only, and read as far as it
//! can be. Nothing here trusts a byte, and nothing gives up at the first that is wrong.
//!
//! [`log`] follows the log from a checkpoint as recovery does; [`segments`] looks at each segment
//! for itself; [`dirty`] tells what only the cache holds.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::shares::{DiskReader, share_at};
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::serve::ServeError;
use dcd_daemon::serve::share_choice::choose_shares;
use dcd_engine::format::checkpoint::{self, Checkpoint};
use dcd_engine::format::end_mark::{self, END_MARK_BYTES};
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::SUPERBLOCK_SIZE;
use dcd_engine::{Buffer, FormatError, Superblock};

use crate::error::CommandError;
pub use crate::error::image::ImageError;

pub mod copies;
pub mod dirty;
pub mod log;
pub mod salvage;
pub mod segments;
pub mod volume;

/// A cache-disk, open for reading.
pub struct CacheImage {
    /// Where it is.
    pub path: PathBuf,
    disk: DiskReader,
}

impl CacheImage {
    /// Opens a cache-disk. A daemon may be using it: then what is read may change meanwhile.
    pub fn open(path: &Path) -> Result<CacheImage, CommandError> {
        let failed = |source: std::io::Error| match source.kind() {
            ErrorKind::NotFound => {
                CommandError::Missing { what: "the cache-disk", path: path.to_owned() }
            }
            ErrorKind::Unsupported => CommandError::NotADisk { path: path.to_owned() },
            _ => CommandError::File { action: "open", path: path.to_owned(), source },
        };
        match DiskReader::open(path) {
            Ok(disk) => Ok(CacheImage { path: path.to_owned(), disk }),
            Err(error) => {
                // What is wrong with a share has more to it than that it is not there.
                if let Ok(Err(problem)) = share_at(path) {
                    return Err(ServeError::share(problem).into());
                }
                Err(failed(error))
            }
        }
    }

    /// Bytes from `offset` on; fewer than asked for where the disk ends.
    pub fn read(&self, offset: u64, length: usize) -> Result<Buffer, ImageError> {
        let mut buffer = Buffer::zeroed(length);
        let mut done = 0;
        while done < length {
            match self.disk.read_at(&mut buffer.bytes_mut()[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(ImageError::Read { offset, length, source }),
            }
        }
        buffer.resize(done);
        Ok(buffer)
    }

    /// Whether nothing was ever written there, as far as a file system tells: then it need not be
    /// read to know that it is zero.
    pub fn is_hole(&self, offset: u64, length: u64) -> bool {
        self.disk.is_hole(offset, length)
    }

    /// Bytes of the cache-disk, where that can be told.
    pub fn length(&self) -> Option<u64> {
        self.disk.length()
    }

    /// Both copies of the superblock.
    pub fn superblocks(&self) -> [Result<Superblock, ImageError>; 2] {
        SUPERBLOCK_OFFSETS.map(|offset| {
            let bytes = self.read(offset, SUPERBLOCK_SIZE)?;
            Ok(Superblock::decode(bytes.bytes())?)
        })
    }

    /// The superblock that counts.
    pub fn superblock(&self) -> Result<Superblock, ImageError> {
        let copies = SUPERBLOCK_OFFSETS.map(|offset| self.read(offset, SUPERBLOCK_SIZE));
        match copies {
            [Ok(first), Ok(second)] => Ok(Superblock::newest(first.bytes(), second.bytes())?),
            [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(Superblock::decode(one.bytes())?),
            [Err(error), Err(_)] => Err(error),
        }
    }

    /// The superblock that counts, or the error of a command that cannot do without.
    pub fn need_superblock(&self) -> Result<Superblock, CommandError> {
        self.superblock().map_err(|error| match error {
            ImageError::Format(problem) => {
                CommandError::NotACache { path: self.path.clone(), problem }
            }
            ImageError::Read { source, .. } => {
                CommandError::File { action: "read", path: self.path.clone(), source }
            }
        })
    }

    /// Whether the mark at the end is there.
    pub fn end_mark(&self, superblock: &Superblock, offset: u64) -> Result<(), ImageError> {
        let bytes = self.read(offset, END_MARK_BYTES)?;
        Ok(end_mark::verify(bytes.bytes(), superblock.uuid)?)
    }

    /// Both checkpoints.
    pub fn checkpoints(&self, superblock: &Superblock) -> [Result<Checkpoint, ImageError>; 2] {
        superblock.geometry.checkpoint_offsets.map(|offset| self.checkpoint(superblock, offset))
    }

    fn checkpoint(&self, superblock: &Superblock, at: u64) -> Result<Checkpoint, ImageError> {
        let (uuid, geometry) = (superblock.uuid, &superblock.geometry);
        let header = self.read(at, checkpoint::HEADER_SIZE)?;
        let header = Checkpoint::decode_header(header.bytes(), uuid, geometry)?;
        if header.generation < superblock.checkpoint_generation_min() {
            return Err(ImageError::Format(FormatError::Field {
                what: "the checkpoint",
                field: "generation",
                found: header.generation,
            }));
        }
        let length = checkpoint::HEADER_SIZE as u64 + header.payload_bytes;
        // A damaged header cannot get here, but a forged one could ask for all memory.
        let length = length.min(geometry.checkpoint_area_bytes) as usize;
        let bytes = self.read(at, length)?;
        Ok(Checkpoint::decode(bytes.bytes(), uuid, geometry)?)
    }
}

/// The share of a cache-disk that is meant; of a disk without shares, the disk.
pub fn share_of(
    cache_disk: &DeviceSpec,
    share: Option<&str>,
    data_disks: &[&Path],
) -> Result<DeviceSpec, CommandError> {
    let mut disks = [cache_disk.clone()];
    choose_shares(&mut disks, share, data_disks, &PairBook::from_environment(false))?;
    let [disk] = disks;
    Ok(disk)
}

/// The same, without the other.
pub fn take_newest(checkpoints: [Result<Checkpoint, ImageError>; 2]) -> Option<Checkpoint> {
    checkpoints.into_iter().flatten().max_by_key(|checkpoint| checkpoint.generation)
}

/// The newer of two checkpoints that can be read.
pub fn newest(checkpoints: &[Result<Checkpoint, ImageError>; 2]) -> Option<&Checkpoint> {
    checkpoints.iter().flatten().max_by_key(|checkpoint| checkpoint.generation)
}
