//! A memory in front of the log: a file on persistent memory (DAX), or in memory that somebody says
//! survives, or a block device or a file on a disk, which is written and flushed.
//!
//! Of what cannot be read of a device the rest is used: heads, commit words and headers are there
//! twice, and a block without its bytes is a damaged block.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use dcd_engine::format::nvram::{CHUNK_BYTES, NvramLayout};
use dcd_engine::nvram::durable::{
    DurableConfig, DurableNvram, MediumPersist, NvramMedium, NvramOpenError, NvramStart,
};
use dcd_engine::nvram::{NvramConfig, NvramPolicyKind};
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{Buffer, SegmentMemory, Time, Uuid};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::device_spec::DeviceSpec;
use crate::device::network::is_network;
use crate::memory::segment_memory::{Mapping, SharedSegmentMemory};
use crate::pair::NvramOptions;
use crate::process::random::random_bytes;
use crate::process::shell::quoted;
use crate::units_text::format_size;

/// tmpfs, ramfs, hugetlbfs: what is in a file there is in memory (linux/magic.h).
const FILE_SYSTEMS_IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
/// Read at once when a device is loaded.
const LOAD_BYTES: usize = 1 << 20;
/// More sectors than this are not done without: the device is not there, rather than damaged.
const UNREADABLE_SECTORS_MAX: usize = 4096;
/// What stands for bytes that cannot be read: no head, commit word or header is like that.
const UNREADABLE: u8 = 0xff;

/// What a start without the memory is told.
pub(crate) const NVRAM_MISSING_HINT: &str = "start `dcd serve` with --nvram and that memory, and stop it in order: then nothing is left in it; if it \
     is gone for good, --nvram-lost goes on without what only it held";

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
    /// The file or device.
    #[error("memory: {0}")]
    Device(#[from] DeviceError),
    /// The system.
    #[error("cannot {operation}: {source}")]
    System {
        /// What.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Not with this.
    #[error("--nvram is not possible with {what} yet")]
    NotYet {
        /// What.
        what: &'static str,
    },
}

impl NvramError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            NvramError::Device(error) => error.hint(),
            NvramError::System { .. } => Some(
                "is there room where it lies, and may it be mapped? Or give another one".into(),
            ),
            other => Some(nvram_hint(other)),
        }
    }

    fn system(operation: &'static str) -> impl FnOnce(io::Error) -> NvramError {
        move |source| NvramError::System { operation, source }
    }
}

fn nvram_hint(error: &NvramError) -> String {
    let (path, source) = match error {
        NvramError::Open { path, source } => (path, source),
        NvramError::NotDeclared { .. } => {
            return "what is acknowledged there is gone with the power, so a flush would be a lie: \
                    give a device or a file on a disk; or say --nvram-survives power, if a battery keeps this memory"
                .into();
        }
        NvramError::NotMemory { .. } => return "leave --nvram-survives out".into(),
        NvramError::NotYet { .. } => return "serve it without --nvram".into(),
        NvramError::Device(_) | NvramError::System { .. } => return String::new(),
    };
    match source {
        NvramOpenError::Size { .. } => {
            "give it another size (truncate -s 64M FILE), at most 64 GiB; only while it is empty, behind a \
             stop in order"
                .into()
        }
        NvramOpenError::TooSmallForWrites { slots, .. } => format!(
            "lower --nvram-bypass, to {} at most with this memory; or, behind a stop in order, give a larger one",
            format_size(slots / 4 * BLOCK_SIZE / 4096 * 4096)
        ),
        NvramOpenError::Resized { expected, found } if found > expected => format!(
            "copy it, and give it the size that it had: truncate -s {expected} {}; a device, {expected} bytes of it",
            quoted(path)
        ),
        NvramOpenError::Resized { expected, .. } => format!(
            "give it as it was, with {expected} bytes; if the rest is gone for good, --nvram-lost goes on without what \
             only it held"
        ),
        NvramOpenError::Unnamed { .. } => {
            "is this the cache-disk as it was last? An older copy of it does not know what was written since: give the one that \
             was used with this memory. If that is gone for good, --nvram-lost goes on without what only the memory held"
                .into()
        }
        NvramOpenError::Foreign { .. } => {
            "give the memory of this cache; the other one holds what is nowhere else, unless its cache was \
             stopped in order (which wipes it)"
                .into()
        }
        NvramOpenError::NotEmpty { expected: Some(expected), .. } => format!(
            "do not wipe it: the cache-disk names the memory {}, which this may be, with both heads damaged; copy it first. \
             Give the right file or device; if it is gone for good, --nvram-lost with another, empty one goes on without what \
             only it held",
            expected.id
        ),
        NvramOpenError::NotEmpty { expected: None, .. } => {
            "is it the right file or device? What may be overwritten is wiped first: `wipefs -a`, `blkdiscard -z`, or a \
             new file of zeroes"
                .into()
        }
        NvramOpenError::Damaged { .. } | NvramOpenError::NoCommitWord => {
            "copy it first; `dcd inspect nvram` shows what is readable; --nvram-lost goes on without what only it held, and makes \
             it empty"
                .into()
        }
        NvramOpenError::BeyondVolume { .. } => {
            "give the data-disk with the size that it had, and stop in order; --nvram-lost goes on without what only the memory \
             held, and makes it empty"
                .into()
        }
        NvramOpenError::Stale { .. } => {
            "give the memory, and the cache-disk, as they were last; --nvram-lost goes on without what only the \
             memory held"
                .into()
        }
        NvramOpenError::Lost { .. }
        | NvramOpenError::Other { .. }
        | NvramOpenError::Missing { .. } => NVRAM_MISSING_HINT.into(),
    }
}

/// A memory that comes while requests are served.
pub(crate) struct NewNvram {
    pub(crate) spec: DeviceSpec,
    pub(crate) file: DeviceFile,
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) tier: DurableNvram,
}

/// What a memory does that nobody has said more of.
pub(crate) fn usual_config() -> DurableConfig {
    let nvram = NvramConfig { policy: NvramPolicyKind::Auto, ..NvramConfig::default() };
    DurableConfig { nvram, ..DurableConfig::default() }
}

/// Opens one for a cache that is being served; nothing in it has been changed.
pub(crate) fn open_new(
    spec: DeviceSpec,
    file: DeviceFile,
    survives_power: bool,
    config: DurableConfig,
    start: &NvramStart,
    now: Time,
) -> Result<NewNvram, NvramError> {
    if is_network(spec.path()) {
        return Err(NvramError::NotYet { what: "a network disk" });
    }
    let options = NvramOptions { disk: spec, survives_power, config };
    let (mut tier, mapping) = open(&options, &file, start, now)?;
    // Here, since who serves has no time for it. Nothing counts in one that is taken like this.
    tier.prepare();
    Ok(NewNvram { spec: options.disk, file, mapping, tier })
}

/// Opens one, and maps or reads it; nothing in it has been changed.
pub(crate) fn open(
    options: &NvramOptions,
    file: &DeviceFile,
    start: &NvramStart,
    now: Time,
) -> Result<(DurableNvram, Arc<Mapping>), NvramError> {
    let (medium, mapping) = medium(options, file)?;
    let opened = DurableNvram::open(now, options.config, Box::new(medium), start);
    let path = || options.disk.path().to_owned();
    let tier = opened.map_err(|source| NvramError::Open { path: path(), source })?;
    Ok((tier, mapping))
}

pub(crate) fn new_id() -> Result<Uuid, NvramError> {
    let bytes: [u8; 16] = random_bytes().map_err(NvramError::system("get random numbers"))?;
    // 0 is none.
    Ok(Uuid(if bytes == [0; 16] { [1; 16] } else { bytes }))
}

fn medium(
    nvram: &NvramOptions,
    file: &DeviceFile,
) -> Result<(MappedMedium, Arc<Mapping>), NvramError> {
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
    let cannot_map = || NvramError::system("map the memory");
    let persistent = match is_memory || file.is_block_device {
        true => None,
        false => Mapping::of_persistent_memory(descriptor, bytes)
            .map_err(|errno| cannot_map()(errno.into()))?,
    };
    match (is_memory || persistent.is_some(), nvram.survives_power) {
        (true, false) if persistent.is_none() => {
            return Err(NvramError::NotDeclared { path: path.to_owned() });
        }
        (false, true) => return Err(NvramError::NotMemory { path: path.to_owned() }),
        _ => {}
    }
    let map = |file| Mapping::of_medium(file, bytes).map_err(std::io::Error::from);
    if !file.is_block_device {
        // What is not there yet is zeroes, and nobody else may take the room.
        let room = rustix::fs::fallocate(descriptor, FallocateFlags::empty(), 0, bytes as u64);
        match room {
            // Where a disk's file system cannot, each write asks for its room.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if !is_memory => {}
            room => room
                .map_err(std::io::Error::from)
                .map_err(NvramError::system("reserve the room of the memory"))?,
        }
    }
    if let Some(mapping) = persistent {
        let (memory, mapping) = SharedSegmentMemory::of_medium(mapping);
        // What a process has stored that died before it was written back is seen here, and would
        // be gone with the power: a block that is believed now could be an older one then.
        memory.write_back(0..bytes);
        memory.written_back();
        return Ok((MappedMedium { memory, kind: MediumKind::Persistent }, mapping));
    }
    if is_memory {
        let mapping = map(Some(descriptor)).map_err(cannot_map())?;
        let (memory, mapping) = SharedSegmentMemory::of_medium(mapping);
        return Ok((MappedMedium { memory, kind: MediumKind::Declared }, mapping));
    }
    let mapping = map(None).map_err(NvramError::system("get memory"))?;
    let (mut memory, mapping) = SharedSegmentMemory::of_medium(mapping);
    let sector_bytes = file.physical_sector_size.max(file.logical_block_size) as usize;
    let read = |at: usize, length| file.read_at(at as u64, length);
    let unreadable =
        load(&mut memory.bytes_mut()[..bytes], sector_bytes, read).map_err(NvramError::from)?;
    if unreadable > 0 {
        eprintln!(
            "dcd: {unreadable} sectors of the memory {} cannot be read: what they held is read from its copy, \
             or fails until it is written",
            path.display()
        );
    }
    Ok((MappedMedium { memory, kind: MediumKind::Device { sector_bytes } }, mapping))
}

/// Reads all of a device. How many of its sectors cannot be read.
fn load(
    memory: &mut [u8],
    sector_bytes: usize,
    read: impl Fn(usize, usize) -> Result<Buffer, DeviceError>,
) -> Result<usize, DeviceError> {
    let mut unreadable = 0;
    for (number, piece) in memory.chunks_mut(LOAD_BYTES).enumerate() {
        let start = number * LOAD_BYTES;
        match read(start, piece.len()) {
            Ok(found) => {
                piece.copy_from_slice(&found.bytes()[..piece.len()]);
                continue;
            }
            Err(error) if !is_of_a_sector(&error) => return Err(error),
            Err(_) => {}
        }
        for (sector, at) in piece.chunks_mut(sector_bytes).zip((start..).step_by(sector_bytes)) {
            match read(at, sector.len()) {
                Ok(found) => sector.copy_from_slice(&found.bytes()[..sector.len()]),
                Err(error) if is_of_a_sector(&error) && unreadable < UNREADABLE_SECTORS_MAX => {
                    unreadable += 1;
                    sector.fill(UNREADABLE);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(unreadable)
}

/// Whether other sectors may be read all the same.
fn is_of_a_sector(error: &DeviceError) -> bool {
    let DeviceError::Io { source, .. } = error else { return false };
    let errno = Errno::from_io_error(source);
    errno.is_some_and(|errno| [Errno::IO, Errno::NODATA, Errno::ILSEQ].contains(&errno))
}

/// What a store takes to survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MediumKind {
    /// Nothing: somebody says that all memory survives.
    Declared,
    /// To be written back from the processor's cache.
    Persistent,
    /// To be written and flushed.
    Device {
        /// Size of a sector.
        sector_bytes: usize,
    },
}

/// A mapping of a file in memory, or memory that stands for a device.
struct MappedMedium {
    memory: SharedSegmentMemory,
    kind: MediumKind,
}

impl MappedMedium {
    fn stored(&self, bytes: Range<usize>) {
        if self.kind == MediumKind::Persistent {
            self.memory.write_back(bytes);
        }
    }
}

impl NvramMedium for MappedMedium {
    fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    fn store(&mut self, at: usize, bytes: &[u8]) {
        let range = at..at + bytes.len();
        self.memory.bytes_mut()[range.clone()].copy_from_slice(bytes);
        self.stored(range);
    }

    fn store_word(&mut self, at: usize, word: u64) {
        self.memory.store_word(at, word);
        self.stored(at..at + 8);
    }

    fn persist(&self) -> MediumPersist {
        match self.kind {
            MediumKind::Declared | MediumKind::Persistent => MediumPersist::Now,
            MediumKind::Device { sector_bytes } => MediumPersist::Io { sector_bytes },
        }
    }

    fn fence(&mut self) {
        match self.kind {
            MediumKind::Persistent => self.memory.written_back(),
            // What dies is the process: the memory has what the processor has stored.
            MediumKind::Declared | MediumKind::Device { .. } => fence(Ordering::SeqCst),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: usize = 512;

    fn fails(errno: Errno) -> DeviceError {
        DeviceError::Io { path: "n".into(), operation: "read", source: errno.into() }
    }

    /// Sectors that fail with this, of a device that is 7 everywhere.
    fn read(bad: Vec<usize>, errno: Errno) -> impl Fn(usize, usize) -> Result<Buffer, DeviceError> {
        move |at, length| match bad.iter().any(|it| (at..at + length).contains(&(it * SECTOR))) {
            true => Err(fails(errno)),
            false => Ok(Buffer::copy_of(&vec![7; length])),
        }
    }

    #[test]
    fn what_cannot_be_read_costs_nothing_else() {
        let mut memory = vec![0; LOAD_BYTES + 8 * SECTOR];
        let bad = vec![3, 4, LOAD_BYTES / SECTOR + 7];
        let unreadable = load(&mut memory, SECTOR, read(bad.clone(), Errno::IO)).unwrap();
        assert_eq!(unreadable, 3);
        for (number, sector) in memory.chunks(SECTOR).enumerate() {
            let expected = if bad.contains(&number) { UNREADABLE } else { 7 };
            assert!(sector.iter().all(|byte| *byte == expected), "sector {number}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_not_damaged() {
        let mut memory = vec![0; LOAD_BYTES];
        assert!(load(&mut memory, SECTOR, read(vec![3], Errno::NXIO)).is_err());
        let mut memory = vec![0; 4 * LOAD_BYTES];
        let all = (0..4 * LOAD_BYTES / SECTOR).collect();
        assert!(load(&mut memory, SECTOR, read(all, Errno::IO)).is_err());
    }
}
