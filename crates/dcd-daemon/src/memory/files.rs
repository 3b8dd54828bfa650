//! Which segment memories there are on this machine, whose they are, and which nobody needs: for
//! `dcd list`. Nothing is changed.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::{CacheState, SUPERBLOCK_SIZE};
use dcd_engine::{FormatError, MemoryWanted, Superblock};
use rustix::fs::{FlockOperation, OFlags, major, minor};
use rustix::io::Errno;
use serde::Serialize;

use crate::device::shares::DiskReader;
use crate::memory::segment_memory::{BootId, MemoryHeader};

/// What becomes of a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryFate {
    /// A running dcd has it.
    InUse,
    /// The next start of its cache needs it.
    Needed,
    /// Its cache-disk cannot be asked: perhaps.
    PerhapsNeeded,
    /// Nothing in it counts: it may be removed.
    Stale,
}

/// A file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MemoryFile {
    /// Where it is.
    pub path: PathBuf,
    /// The cache, by its name.
    pub cache: String,
    /// The cache-disk, as it was named when the file was made; empty: it does not say.
    pub cache_disk: String,
    /// What it takes.
    pub bytes: u64,
    /// Whose it is.
    pub user: u32,
    /// The process that has it.
    pub process: Option<u32>,
    /// What becomes of it.
    pub fate: MemoryFate,
    /// Why.
    pub why: String,
}

/// All memories in a directory, by name. Where nothing is, or nobody may look, there are none.
pub fn memory_files(directory: &Path) -> io::Result<Vec<MemoryFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let parts = name.as_deref().and_then(|name| name.strip_prefix("dcd-")?.split_once('.'));
        // With `.new` and `.displaced`, which putting one back may leave.
        let Some((cache, _)) = parts.filter(|(_, end)| end.split('.').next() == Some("segments"))
        else {
            continue;
        };
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_file() {
            files.push(look(&path, cache, &metadata));
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn look(path: &Path, cache: &str, metadata: &fs::Metadata) -> MemoryFile {
    let mut file = MemoryFile {
        path: path.to_owned(),
        cache: cache.to_owned(),
        cache_disk: String::new(),
        bytes: metadata.blocks() * 512,
        user: metadata.uid(),
        process: holder(metadata),
        fate: MemoryFate::PerhapsNeeded,
        why: String::new(),
    };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = File::options().read(true).custom_flags(flags.bits() as i32).open(path);
    let opened = match opened {
        Ok(opened) => OwnedFd::from(opened),
        Err(error) => {
            file.why = format!("it cannot be opened: {error}");
            if file.process.is_some() {
                file.fate = MemoryFate::InUse;
            }
            return file;
        }
    };
    let header = MemoryHeader::read(&opened).ok().flatten();
    file.cache_disk =
        header.filter(MemoryHeader::is_ours).map_or(String::new(), |h| h.cache_disk());
    (file.fate, file.why) = fate(header, &opened, &file);
    file
}

fn fate(header: Option<MemoryHeader>, opened: &OwnedFd, file: &MemoryFile) -> (MemoryFate, String) {
    // A start that comes at this moment waits longer than we hold it.
    let lock = rustix::fs::flock(opened, FlockOperation::NonBlockingLockShared);
    if lock == Err(Errno::WOULDBLOCK) {
        let process =
            file.process.map_or_else(|| "a process".into(), |pid| format!("process {pid}"));
        return (MemoryFate::InUse, format!("{process} has it"));
    }
    let stale = |why: &str| (MemoryFate::Stale, why.to_owned());
    let Some(header) = header.filter(MemoryHeader::is_ours) else {
        return stale("it is no segment memory, or was emptied by a stop in order");
    };
    if !header.is_of(BootId::current()) {
        return stale("it is of an earlier boot");
    }
    if file.path.extension().is_none_or(|extension| extension != "segments") {
        return stale("it was put aside, or never got its name");
    }
    if file.cache_disk.is_empty() {
        let why = "its last dcd ended without order, and it does not say on which cache-disk";
        return (MemoryFate::PerhapsNeeded, why.into());
    }
    of_cache_disk(&header, file)
}

/// What the cache-disk says.
fn of_cache_disk(header: &MemoryHeader, file: &MemoryFile) -> (MemoryFate, String) {
    let name = &file.cache_disk;
    let perhaps = |why: String| (MemoryFate::PerhapsNeeded, why);
    let superblock = match superblock_of(Path::new(name)) {
        Ok(Ok(superblock)) => superblock,
        Ok(Err(error)) => return perhaps(format!("its cache-disk {name} holds no cache: {error}")),
        Err(error) => return perhaps(format!("its cache-disk {name} cannot be read: {error}")),
    };
    if superblock.uuid.to_string() != file.cache {
        return perhaps(format!("{name} is another cache now: {}", superblock.uuid));
    }
    let needs = match superblock.memory_wanted(BootId::current().bytes()) {
        MemoryWanted::Nothing => false,
        wanted => wanted.is(header.id()) && header.holds_writes(),
    };
    if needs {
        let why = format!("the last session of {name} ended without order: serve or detach it");
        return (MemoryFate::Needed, why);
    }
    // A superblock of before that session knows nothing of it. The one of after is on a disk that
    // may come back.
    let is_older = match superblock.state {
        CacheState::Open => header.session() >= Some(superblock.generation),
        CacheState::Closed | CacheState::Detached => header.session() > Some(superblock.generation),
    };
    if is_older && header.holds_writes() {
        return perhaps(format!(
            "{name} is an older copy of its cache-disk: the one of its session may be elsewhere"
        ));
    }
    let why = match superblock.state {
        CacheState::Open => format!("the last session of {name} had another one"),
        CacheState::Closed | CacheState::Detached => format!("{name} was closed in order"),
    };
    (MemoryFate::Stale, why)
}

/// Without locks: whoever serves it is not held up.
fn superblock_of(path: &Path) -> io::Result<Result<Superblock, FormatError>> {
    let file = DiskReader::open(path)?;
    let mut copies = [[0; SUPERBLOCK_SIZE]; 2];
    for (copy, offset) in copies.iter_mut().zip(SUPERBLOCK_OFFSETS) {
        file.read_exact_at(copy, offset)?;
    }
    Ok(Superblock::newest(&copies[0], &copies[1]))
}

/// The process that has locked a file, as the kernel tells.
fn holder(metadata: &fs::Metadata) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let device = metadata.dev();
    let id = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.ino());
    locks.lines().find_map(|line| {
        // 1: FLOCK  ADVISORY  WRITE 4711 00:1a:123 0 EOF
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&id.as_str());
        // Of another name space it has no number here.
        words.get(4).filter(|_| is_it)?.parse().ok().filter(|pid| *pid > 0)
    })
}
