//! The record of pairs that a host keeps, below `/var/lib/dcd`: what a cache and its data-disk were
//! when they were last used together. With it a disk is refused that nothing on it tells from the
//! right one (contract C28):
//!
//! - an older copy of the cache-disk, put back over a pair that has gone on since,
//! - another data-disk than the cache's, of the same size,
//! - a data-disk that was written to while the cache held what is newer than it,
//! - a data-disk whose cache holds what is newer, for another cache; and a cache-disk in use, or a
//!   member of a volume, as a data-disk,
//! - a cache whose data-disk went on without it.
//!
//! The record says "at least this generation", never more than what is durable on the cache-disk:
//!
//! ```text
//! opening  1. Disks are compared with the record; nothing was written.
//!          2. The engine has written its superblock: open, generation g.
//!               Crash here: the record speaks of an older generation, which any newer one fulfils.
//!          3. The record: open, at least g; on a data-disk that is a file, an attribute says the
//!             same.
//!               Only now anything is acknowledged. Crash from here on: both are right.
//! closing  4. The superblock: closed or detached, generation g + 1.
//!               Crash here: the record says open, at least g. Its cache fulfils that. For another
//!               cache the superblock is looked at, which says that nothing is dirty any more.
//!          5. Both disks are flushed, so that the time of their last write is what it will be;
//!             then the record.
//! ```
//!
//! It is advice. A host that has none, or has lost it, refuses nothing because of that; one that
//! cannot be written is told once and does no harm. `--trust-disks` goes on against it, and what is
//! then found is what it says from there on.
//!
//! Who puts back both disks has a pair as it once was, and has to say so: nothing tells that from
//! an older cache-disk alone beside a data-disk that somebody has touched.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dcd_engine::format::data_label::LabelState;
use dcd_engine::format::leg_label::LegState;
use dcd_engine::format::nvram::{NVRAM_HEAD_BYTES, NVRAM_HEAD_OFFSETS, NvramHead};
use dcd_engine::format::superblock::CacheState;
use dcd_engine::{Superblock, Uuid};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, XattrFlags};

use crate::device::device_file::{DeviceFile, quoted};
use crate::device::identity::{Object, Piece};
use crate::device::shares::{DiskReader, disk_of, holds_shares, whole_name};
use crate::pair::label_keeper::read_data_label;
use crate::pair::legs::read_leg_label;
use crate::pair::members::{MemberMark, member_mark};
use crate::pair::read_superblock;
use crate::pair::record::{
    DiskKey, DiskState, Match, PairRecord, PairState, SLOT_BYTES, file_name, is_record,
};

/// Records that are read; a host with more has lost sight of them.
const RECORDS_MAX: usize = 4096;
/// Names the directory, or nothing: then no record is kept.
pub const DIRECTORY_VARIABLE: &str = "DCD_STATE_DIRECTORY";
const DIRECTORY_DEFAULT: &str = "/var/lib/dcd";
/// What a data-disk that is a file says of its cache.
const ATTRIBUTE: &str = "user.dcd.pair";
const ATTRIBUTE_BYTES_MAX: usize = 256;

/// Why disks do not belong together, as far as the host remembers.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PairProblem {
    /// The cache-disk was put back.
    #[error(
        "the cache-disk {} is an older copy: it has generation {found}, and the pair has gone on to {expected} at least",
        path.display()
    )]
    OlderCache {
        /// The cache-disk.
        path: PathBuf,
        /// Its generation.
        found: u64,
        /// What is recorded.
        expected: u64,
    },
    /// The data-disk is another one.
    #[error("{} is not the data-disk of this cache: that is {}", path.display(), Known(expected))]
    OtherDataDisk {
        /// The disk given.
        path: PathBuf,
        /// The name recorded.
        expected: PathBuf,
    },
    /// Somebody else has written to the data-disk.
    #[error(
        "the data-disk {} was written to since this cache, which holds newer data for it, was closed",
        path.display()
    )]
    ChangedBehind {
        /// The data-disk.
        path: PathBuf,
    },
    /// It has a cache that holds what is newer.
    #[error(
        "{} belongs to cache {cache}{}, which may hold data that is not on it yet{}",
        path.display(), Place(place), if *is_missing { ", and is not there any more" } else { "" }
    )]
    HasCache {
        /// The data-disk.
        path: PathBuf,
        /// Its cache.
        cache: Uuid,
        /// Where that was.
        place: PathBuf,
        /// Something else is there now, or nothing.
        is_missing: bool,
    },
    /// It is a cache-disk itself.
    #[error("{} is the cache-disk of cache {cache}, which is not detached", path.display())]
    IsCacheDisk {
        /// The disk.
        path: PathBuf,
        /// The cache on it.
        cache: Uuid,
    },
    /// Its bytes are those of shares.
    #[error("{} is a cache-disk that several caches share", path.display())]
    IsShared {
        /// The disk.
        path: PathBuf,
    },
    /// It is the memory in front of a log, not ended in order, or a witness.
    #[error("{} is the {role} of cache {cache}", path.display())]
    IsPart {
        /// The disk.
        path: PathBuf,
        /// Memory or witness.
        role: &'static str,
        /// Its cache.
        cache: Uuid,
    },
    /// It is a part of a volume.
    #[error("{} {mark}", path.display())]
    IsMember {
        /// The disk.
        path: PathBuf,
        /// Of which.
        mark: MemberMark,
    },
    /// It begins with a label.
    #[error("{} has the label of cache {cache}, which is not detached", path.display())]
    IsLabelled {
        /// The disk.
        path: PathBuf,
        /// Its cache.
        cache: Uuid,
    },
    /// Its data-disk has gone on without it.
    #[error(
        "cache {cache} on {} was given up, and its data-disk {} went on without it",
        path.display(), data_disk.display()
    )]
    GivenUp {
        /// The cache-disk.
        path: PathBuf,
        /// The cache.
        cache: Uuid,
        /// Its data-disk, as it is named now.
        data_disk: PathBuf,
    },
}

struct Known<'a>(&'a Path);

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_os_str().is_empty() {
            true => write!(f, "another one"),
            false => write!(f, "{}, or was when it was last used", self.0.display()),
        }
    }
}

struct Place<'a>(&'a Path);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_os_str().is_empty() {
            true => Ok(()),
            false => write!(f, " on {}", self.0.display()),
        }
    }
}

impl PairProblem {
    /// What to do about it; `flag` is how to go on all the same.
    pub fn hint(&self, flag: &str) -> String {
        match self {
            PairProblem::OlderCache { .. } => format!(
                "give the cache-disk that was in use last; if both disks were put back as they were at one moment, {flag} goes \
                 on with them, else it loses what was written since, or mixes it with what is old"
            ),
            PairProblem::OtherDataDisk { .. } => format!(
                "find the right disk; if this one has taken its place on purpose, {flag} goes on with it"
            ),
            PairProblem::ChangedBehind { .. } => format!(
                "if it was changed on purpose, {flag} goes on; what the cache holds will overwrite the changes"
            ),
            PairProblem::HasCache { is_missing, .. } => format!(
                "{}; {}{flag} gives up what it holds",
                self.detach_hint(),
                if *is_missing { "if it is gone for good, " } else { "" }
            ),
            PairProblem::IsMember { .. } => format!(
                "check the name; if the volume is needed no more, {flag} uses the disk all the same, which costs what the \
                 volume has on it"
            ),
            PairProblem::IsPart { role, .. } => format!(
                "check the name; start that cache with it, and stop or detach it, first; {flag} uses the disk all the same, \
                 which costs {}",
                if *role == MEMORY {
                    "what is in the memory, and may be nowhere else"
                } else {
                    "its word"
                }
            ),
            PairProblem::IsLabelled { .. } => {
                format!("detach that cache first; {flag} uses the disk all the same")
            }
            PairProblem::GivenUp { path, .. } => format!(
                "to see what it holds: dcd salvage --cache-disk {} --to FILE; {flag} goes on with it, and it overwrites what \
                 was written to the data-disk since",
                quoted(path)
            ),
            PairProblem::IsShared { path } => format!(
                "check the name; dcd inspect shares --cache-disk {} lists them. Once all are detached, {flag} uses the disk",
                quoted(path)
            ),
            PairProblem::IsCacheDisk { .. } => format!(
                "check the name; detach that cache first, or {flag} uses the disk all the same"
            ),
        }
    }
}

impl PairProblem {
    /// What to do about it if the disk was to be used without a cache.
    pub fn hint_without_cache(&self) -> String {
        let first = match self {
            PairProblem::IsMember { .. } => {
                "serve the volume: dcd serve --cache-disk ... --data-disk ..., with all members"
                    .into()
            }
            _ => self.detach_hint(),
        };
        format!("{first}; to look at it as it is: dcd serve --null --read-only --data-disk ...")
    }

    /// What to do about it if the disk was to become a part of another cache.
    pub(crate) fn hint_for_a_part(&self) -> String {
        let forget = match self {
            PairProblem::HasCache { cache, is_missing: true, .. } => {
                format!("; if it is gone for good: dcd list --forget {cache}")
            }
            // The data-disk itself says so, and no record that could be forgotten.
            PairProblem::HasCache { path, place, .. } if place.as_os_str().is_empty() => {
                format!("; if that is gone for good: setfattr -x {ATTRIBUTE} {}", quoted(path))
            }
            _ => String::new(),
        };
        self.detach_hint() + &forget
    }

    /// How its cache is brought home.
    fn detach_hint(&self) -> String {
        match self {
            PairProblem::HasCache { path, place, is_missing: true, .. } => format!(
                "it was on {}: find it, whatever its name is now (`dcd probe DISK` tells what a disk is), and detach it: dcd \
                 detach --cache-disk ... --data-disk {}",
                place.display(),
                quoted(path)
            ),
            PairProblem::HasCache { place, .. } if place.as_os_str().is_empty() => {
                "find its cache and detach it first".into()
            }
            PairProblem::HasCache { path, place, .. } => format!(
                "detach that first: dcd detach --cache-disk {} --data-disk {}",
                quoted(place),
                quoted(path)
            ),
            _ => "detach its cache first: dcd detach --cache-disk ... --data-disk ...".into(),
        }
    }
}

/// What a memory is called.
const MEMORY: &str = "memory";

/// Where records are kept, and whether they count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PairBook {
    /// The directory; `None`: none are kept.
    pub directory: Option<PathBuf>,
    /// The disks are right whatever the record says.
    pub trust_disks: bool,
}

impl PairBook {
    /// Of this user: as `DCD_STATE_DIRECTORY` says, for root `/var/lib/dcd`, for others below their
    /// home.
    pub fn from_environment(trust_disks: bool) -> PairBook {
        let of = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let is_named = |path: &PathBuf| !path.as_os_str().is_empty();
        let state = match of(DIRECTORY_VARIABLE) {
            Some(directory) => Some(directory).filter(is_named),
            None if rustix::process::geteuid().is_root() => Some(DIRECTORY_DEFAULT.into()),
            // A service has one of its own.
            None => of("STATE_DIRECTORY").filter(is_named).or_else(|| {
                let home = of("HOME").filter(is_named).map(|home| home.join(".local/state"));
                Some(of("XDG_STATE_HOME").filter(is_named).or(home)?.join("dcd"))
            }),
        };
        PairBook { directory: state.map(|state| state.join("pairs")), trust_disks }
    }

    fn record(&self, cache: Uuid) -> Option<PairRecord> {
        let path = self.directory.as_ref()?.join(file_name(cache));
        let record = read_record(&path)?;
        (record.cache == cache).then_some(record)
    }

    /// All that can be read.
    pub fn records(&self) -> Vec<PairRecord> {
        let Some(directory) = &self.directory else { return Vec::new() };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path()).filter(|path| is_record(path));
        paths.take(RECORDS_MAX).filter_map(|path| read_record(&path)).collect()
    }

    /// Step 1, of a pair. `data_disks` has one, or the members of a volume that are there.
    pub(crate) fn check(
        &self,
        superblock: &Superblock,
        cache_disk: &DeviceFile,
        data_disks: &[&DeviceFile],
    ) -> Result<(), PairProblem> {
        if self.trust_disks {
            return Ok(());
        }
        let record = self.record(superblock.uuid);
        let is_volume = superblock.volume_bytes > 0;
        if let Some(record) = &record {
            let states: Vec<DiskState> = data_disks.iter().map(|disk| state_of(disk)).collect();
            if !is_volume && let [data_disk] = states.as_slice() {
                check_data_disk(record, data_disk)?;
            }
            if record.state == PairState::GivenUp && superblock.state != CacheState::Detached {
                let path = cache_disk.path().to_owned();
                let data_disk = data_disks.first().map(|disk| disk.path().to_owned());
                let (cache, data_disk) = (superblock.uuid, data_disk.unwrap_or_default());
                return Err(PairProblem::GivenUp { path, cache, data_disk });
            }
            // Who makes a file larger changes its time: that it was written to cannot be told then.
            let recorded = superblock.data_disk.bytes() + superblock.data_offset_bytes;
            let has_grown = data_disks.iter().any(|disk| disk.size_bytes > recorded);
            // A start that was killed between a label and its superblock has changed it, too.
            let is_announced = |disk: &&DeviceFile| {
                let label = read_data_label(disk).ok().and_then(Result::ok);
                label.is_some_and(|label| label.epoch_max != superblock.data_label_epoch)
            };
            let has_label = superblock.data_offset_bytes > 0;
            let may_have_changed =
                is_volume || has_grown || has_label && data_disks.iter().any(is_announced);
            check_generation(record, superblock, cache_disk, &states, may_have_changed)?;
        }
        let knows = |disk: &DeviceFile| {
            let key = key_of(disk);
            let known = record.iter().flat_map(|record| &record.data_disks);
            known.filter_map(|known| known.key.as_ref()).any(|known| Some(known) == key.as_ref())
        };
        for disk in data_disks {
            // What a guest has made of a pair that exists is its own affair.
            let is_new = superblock.state == CacheState::Detached && !knows(disk);
            self.check_free(disk, Some(superblock.uuid), is_new)?;
        }
        Ok(())
    }

    /// Whether a disk may become a data-disk or a cache-disk: nobody's cache holds what is newer,
    /// and, if `look_inside`, it is no cache-disk itself and no member of another volume.
    pub fn check_free(
        &self,
        disk: &DeviceFile,
        own: Option<Uuid>,
        look_inside: bool,
    ) -> Result<(), PairProblem> {
        if self.trust_disks {
            return Ok(());
        }
        let path = disk.path().to_owned();
        if look_inside
            && let Ok(found) = read_superblock(disk)
            && found.state != CacheState::Detached
        {
            return Err(PairProblem::IsCacheDisk { path, cache: found.uuid });
        }
        // A directory without shares is as a cache that is detached.
        if look_inside && holds_shares(disk).unwrap_or(false) {
            return Err(PairProblem::IsShared { path });
        }
        if look_inside && let Some((role, cache)) = part_of(disk).filter(|(_, it)| Some(*it) != own)
        {
            return Err(PairProblem::IsPart { path, role, cache });
        }
        // One of its own volume is where it belongs. What cannot be read is found out by who reads.
        if look_inside
            && let Ok(Some(mark)) = member_mark(disk)
            && mark.cache().is_none_or(|cache| Some(cache) != own)
        {
            return Err(PairProblem::IsMember { path, mark });
        }
        let Some(key) = key_of(disk).filter(|_| self.directory.is_some()) else { return Ok(()) };
        let is_it =
            |known: &DiskState| known.key.as_ref().map(|it| it.compare(&key)) == Some(Match::Same);
        let records = self.records();
        let others = records.iter().filter(|record| Some(record.cache) != own);
        for record in others.clone().filter(|record| record.data_disks.iter().any(is_it)) {
            if !record.state.may_be_dirty() {
                continue;
            }
            let is_missing = match where_it_was(record) {
                Whereabouts::Detached => continue,
                Whereabouts::Elsewhere => true,
                Whereabouts::There => false,
            };
            let (cache, place) = (record.cache, record.cache_disk.path.clone());
            return Err(PairProblem::HasCache { path, cache, place, is_missing });
        }
        // Of a cache that this host knows, its record counts.
        if let Some((cache, state)) = read_attribute(disk)
            && Some(cache) != own
            && state.may_be_dirty()
            && !others.clone().any(|record| record.cache == cache)
        {
            let (place, is_missing) = (PathBuf::new(), false);
            return Err(PairProblem::HasCache { path, cache, place, is_missing });
        }
        Ok(())
    }

    /// Whether a disk on which nothing is to be seen may become a part of a cache: nobody's cache
    /// holds what is newer. A new data-disk looks blank as long as all is in its cache.
    pub(crate) fn check_no_cache(disk: &DeviceFile, own: Option<Uuid>) -> Result<(), PairProblem> {
        PairBook::from_environment(false).check_free(disk, own, false)
    }

    /// A cache of these disks that may hold what is newer than a data-disk, as the records say, or
    /// data-disks of themselves. For a cache-disk on which no cache is to be seen, and without
    /// opening a disk: a device that hangs would be waited for.
    pub fn attached_cache(&self, cache_disk: &Path, data_disks: &[PathBuf]) -> Option<Uuid> {
        self.directory.as_ref()?;
        let is_it = |known: &DiskState, disk: &Path| {
            let key = file_key(disk, None, 0, u64::MAX);
            let is_same = known.key.as_ref().zip(key.as_ref()).is_some_and(|(a, b)| a == b);
            is_same || !known.path.as_os_str().is_empty() && known.path == name_of(disk)
        };
        let records = self.records();
        let attached = records.iter().find(|record| {
            let is_here = is_it(&record.cache_disk, cache_disk);
            let has_data_disk = data_disks
                .iter()
                .any(|disk| record.data_disks.iter().any(|known| is_it(known, disk)));
            record.state.may_be_dirty()
                && (is_here
                    || has_data_disk && !matches!(where_it_was(record), Whereabouts::Detached))
        });
        if let Some(record) = attached {
            return Some(record.cache);
        }
        data_disks.iter().find_map(|disk| {
            let mut bytes = [0; ATTRIBUTE_BYTES_MAX];
            let length = rustix::fs::getxattr(disk, ATTRIBUTE, &mut bytes[..]).ok()?;
            let (cache, state) = parse_attribute(bytes.get(..length)?)?;
            // Of a cache that this host knows, its record counts.
            let is_known = records.iter().any(|record| record.cache == cache);
            (state.may_be_dirty() && !is_known).then_some(cache)
        })
    }

    /// The cache without which a data-disk may be old, and where that is or was, as the records say:
    /// one that is not detached. Only the cache-disk is opened.
    pub fn cache_needed_by(&self, data_disk: &Path) -> Option<(Uuid, PathBuf)> {
        let key = file_key(data_disk, None, 0, u64::MAX);
        let name = name_of(data_disk);
        // The name of a file may be that of another one by now; a device has its number and serial.
        let is_it = |known: &DiskState| match (&known.key, &key) {
            (Some(known @ DiskKey::File { .. }), Some(key)) => known == key,
            _ => known.path == name,
        };
        let mut records = self.records();
        records.retain(|record| {
            let is_over = matches!(record.state, PairState::Detached | PairState::GivenUp);
            !is_over && record.data_disks.iter().any(is_it)
        });
        records.sort_by_key(|record| !record.state.may_be_dirty());
        let found = records.into_iter().find(|record| match where_it_was(record) {
            Whereabouts::There => true,
            Whereabouts::Detached => false,
            Whereabouts::Elsewhere => record.state.may_be_dirty(),
        });
        found.map(|record| (record.cache, record.cache_disk.path))
    }

    /// Caches that a data-disk has, or had, as this host remembers or a file says of itself; those
    /// first that may hold something for it. Nothing is opened.
    pub fn caches_of(&self, data_disk: &Path) -> Vec<Uuid> {
        let key = file_key(data_disk, None, 0, u64::MAX);
        let name = name_of(data_disk);
        let is_it = |known: &DiskState| match (&known.key, &key) {
            (Some(known), Some(key)) => known == key,
            _ => known.path == name,
        };
        let mut records = self.records();
        records.retain(|record| record.data_disks.iter().any(is_it));
        records.sort_by_key(|record| !record.state.may_be_dirty());
        let mut caches: Vec<Uuid> = records.iter().map(|record| record.cache).collect();
        let mut bytes = [0; ATTRIBUTE_BYTES_MAX];
        if let Ok(length) = rustix::fs::getxattr(data_disk, ATTRIBUTE, &mut bytes[..]) {
            caches.extend(bytes.get(..length).and_then(parse_attribute).map(|(cache, _)| cache));
        }
        caches
    }

    /// Whether a data-disk that is a file says of itself that its cache has gone on. For who writes
    /// to it without an engine, on a host that has no record of the pair.
    pub(crate) fn check_attribute(
        &self,
        superblock: &Superblock,
        cache_disk: &DeviceFile,
        data_disk: &DeviceFile,
    ) -> Result<(), PairProblem> {
        let expected = attribute_of(data_disk).and_then(|bytes| {
            let (cache, _) = parse_attribute(&bytes)?;
            let generation = str::from_utf8(&bytes).ok()?.split(' ').nth(1)?.parse().ok()?;
            (cache == superblock.uuid).then_some(generation)
        });
        match expected.filter(|_| self.directory.is_some()) {
            Some(expected) if superblock.generation < expected => Err(PairProblem::OlderCache {
                path: cache_disk.path().to_owned(),
                found: superblock.generation,
                expected,
            }),
            _ => Ok(()),
        }
    }

    /// Whether a disk may be written to without any cache.
    pub(crate) fn check_without_cache(&self, disk: &DeviceFile) -> Result<(), PairProblem> {
        self.check_free(disk, None, true)?;
        match read_data_label(disk) {
            Ok(Ok(label)) if label.state != LabelState::Detached => {
                let (path, cache) = (disk.path().to_owned(), label.uuid);
                Err(PairProblem::IsLabelled { path, cache })
            }
            _ => Ok(()),
        }
    }

    /// Records of other caches that may hold what these disks do not: whoever goes on against them
    /// gives those caches up.
    fn to_give_up(&self, own: Uuid, disks: &[&DeviceFile]) -> Vec<(File, PairRecord)> {
        let Some(directory) = &self.directory else { return Vec::new() };
        let keys: Vec<DiskKey> = disks.iter().filter_map(|disk| key_of(disk)).collect();
        let is_one = |known: &DiskState| {
            let known = known.key.as_ref();
            known.is_some_and(|it| keys.iter().any(|key| it.compare(key) == Match::Same))
        };
        let others = self.records().into_iter().filter(|record| {
            let is_other = record.cache != own && record.state.may_be_dirty();
            is_other && record.data_disks.iter().any(is_one)
        });
        let open = |record: PairRecord| Some((open_record(directory, record.cache).ok()?, record));
        others.filter_map(open).collect()
    }

    /// Takes hold of the record of a pair, while files may still be opened.
    pub(crate) fn entry(
        &self,
        cache: Uuid,
        cache_disk: &DeviceFile,
        data_disks: &[&DeviceFile],
        quiet: bool,
    ) -> PairEntry {
        let before = self.record(cache);
        let states = |disk: &&DeviceFile| state_of(disk);
        let data_disks_now: Vec<DiskState> = data_disks.iter().map(states).collect();
        let mut earlier: Vec<DiskKey> = Vec::new();
        if let Some(before) = &before {
            let last = before.data_disks.iter().filter_map(|disk| disk.key.clone());
            for key in last.chain(before.earlier.iter().cloned()) {
                let is_current = data_disks_now.iter().any(|disk| disk.key.as_ref() == Some(&key));
                if !is_current && !earlier.contains(&key) {
                    earlier.push(key);
                }
            }
        }
        let record = PairRecord {
            written: before.map_or(0, |before| before.written),
            cache,
            generation: 0,
            state: PairState::Open,
            cache_disk: state_of(cache_disk),
            data_disks: data_disks_now,
            earlier,
        };
        let file = self.directory.as_ref().map(|directory| open_record(directory, cache));
        let file = match file.transpose() {
            Ok(file) => file,
            Err(error) => {
                if !quiet {
                    eprintln!(
                        "dcd: note: the record of pairs cannot be kept in {}: {error}; a wrong disk is then known by what is on it \
                         alone",
                        self.directory.as_deref().unwrap_or(Path::new("")).display()
                    );
                }
                None
            }
        };
        let disks: Vec<&DeviceFile> =
            std::iter::once(cache_disk).chain(data_disks.iter().copied()).collect();
        PairEntry {
            is_kept: self.directory.is_some(),
            file,
            record,
            files: disks.iter().map(|disk| bottom_file(disk)).collect(),
            to_give_up: self.to_give_up(cache, &disks),
        }
    }

    /// A new cache for these disks.
    pub fn created(
        &self,
        cache: Uuid,
        generation: u64,
        cache_disk: &DeviceFile,
        data_disks: &[&DeviceFile],
        quiet: bool,
    ) {
        let mut entry = self.entry(cache, cache_disk, data_disks, quiet);
        entry.begin(generation, PairState::Detached);
    }

    /// The cache-disk of a cache, if that is where it was, and not detached.
    pub fn cache_disk_of(&self, cache: Uuid) -> Option<PathBuf> {
        let records = self.records();
        let record = records.iter().find(|record| record.cache == cache)?;
        let is_there = matches!(where_it_was(record), Whereabouts::There);
        is_there.then(|| record.cache_disk.path.clone())
    }

    /// All records of a cache, copies as well, as a person says. Tells which files are gone.
    ///
    /// # Errors
    ///
    /// One cannot be removed.
    pub fn remove_records(&self, cache: Uuid) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
        let Some(directory) = &self.directory else { return Ok(Vec::new()) };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let of_it = |path: &PathBuf| {
            is_record(path) && read_record(path).is_some_and(|record| record.cache == cache)
        };
        let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(of_it).collect();
        for path in &paths {
            fs::remove_file(path).map_err(|source| (path.clone(), source))?;
        }
        Ok(paths)
    }

    /// A cache that is no more.
    pub fn forget(&self, cache: Uuid) {
        if let Some(directory) = &self.directory {
            let _ = fs::remove_file(directory.join(file_name(cache)));
        }
    }
}

/// What a disk is for a cache that holds no log: the memory in front of it, unless that was ended
/// in order, or its witness. Of two copies one is enough.
fn part_of(disk: &DeviceFile) -> Option<(&'static str, Uuid)> {
    // A copy that cannot be read is none.
    let copies = NVRAM_HEAD_OFFSETS.map(|offset| disk.read_at(offset, NVRAM_HEAD_BYTES).ok());
    let copies = copies.each_ref().map(|copy| copy.as_ref().map_or(&[][..], |copy| copy.bytes()));
    if let Ok(head) = NvramHead::newest(copies) {
        return Some((MEMORY, head.cache));
    }
    let label = read_leg_label(disk).ok()?.ok()?;
    (label.state == LegState::Witness).then_some(("witness", label.cache))
}

fn check_data_disk(record: &PairRecord, found: &DiskState) -> Result<(), PairProblem> {
    let [expected] = record.data_disks.as_slice() else { return Ok(()) };
    let (Some(known), Some(key)) = (&expected.key, &found.key) else { return Ok(()) };
    let is_known = |known: &DiskKey| known.compare(key) != Match::Other;
    // A file that was put in the place of another is its successor, unless something is still to
    // come to that other.
    let is_successor = expected.path == found.path && !record.state.may_be_dirty();
    if is_known(known)
        || record.earlier.iter().any(|known| known.compare(key) == Match::Same)
        || is_successor
    {
        return Ok(());
    }
    Err(PairProblem::OtherDataDisk { path: found.path.clone(), expected: expected.path.clone() })
}

fn check_generation(
    record: &PairRecord,
    superblock: &Superblock,
    cache_disk: &DeviceFile,
    data_disks: &[DiskState],
    may_have_changed: bool,
) -> Result<(), PairProblem> {
    let before = |disk: &DiskState| {
        let known = |known: &&DiskState| known.key.is_some() && known.key == disk.key;
        record.data_disks.iter().find(known).and_then(|known| known.changed)
    };
    // `None`: that cannot be told.
    let was_changed = |disk: &DiskState| Some(before(disk)? != disk.changed?);
    if superblock.generation < record.generation && superblock.state != CacheState::Detached {
        // That the data-disk was put back with it cannot be told from somebody else's write to it.
        return Err(PairProblem::OlderCache {
            path: cache_disk.path().to_owned(),
            found: superblock.generation,
            expected: record.generation,
        });
    }
    // Whatever has become of the cache-disk: a copy of it is as good, and has a time of its own.
    if superblock.generation == record.generation
        && record.state == (PairState::Closed { is_dirty: true })
        && !may_have_changed
        && let Some(disk) = data_disks.iter().find(|disk| was_changed(disk) == Some(true))
    {
        return Err(PairProblem::ChangedBehind { path: disk.path.clone() });
    }
    Ok(())
}

/// What has become of the cache of a record that may hold what its data-disk does not.
enum Whereabouts {
    /// It was detached, and only the record does not say so.
    Detached,
    /// It is where it was, or nobody can tell.
    There,
    /// Nothing is there, or something else. A cache that is not found may have been moved, or have
    /// another name since the machine was started: that it is over only a person knows. One that
    /// dcd itself has overwritten or wiped has no record any more.
    Elsewhere,
}

fn where_it_was(record: &PairRecord) -> Whereabouts {
    match read_superblock_of_path(&record.cache_disk.path) {
        Ok(Some(found)) if found.uuid == record.cache => {
            // An older copy, of a time when it was detached, says nothing of what came then.
            match found.state == CacheState::Detached && found.generation >= record.generation {
                true => Whereabouts::Detached,
                false => Whereabouts::There,
            }
        }
        Ok(_) => Whereabouts::Elsewhere,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Whereabouts::Elsewhere,
        Err(_) => Whereabouts::There,
    }
}

/// The record of an open pair.
#[derive(Debug)]
pub(crate) struct PairEntry {
    /// There is to be a record.
    is_kept: bool,
    /// Where; `None`: there is no place for it.
    file: Option<File>,
    record: PairRecord,
    /// The cache-disk and the data-disks, where they are files.
    files: Vec<Option<OwnedFd>>,
    /// Caches that are given up as soon as this one is used.
    to_give_up: Vec<(File, PairRecord)>,
}

impl PairEntry {
    /// Step 3.
    pub(crate) fn opened(&mut self, generation: u64) {
        self.begin(generation, PairState::Open);
    }

    /// From now on this is the cache of its data-disks. Crash in between: others are still known to
    /// hold something for them, and a person has to say again that they do not count.
    fn begin(&mut self, generation: u64, state: PairState) {
        self.write(generation, state);
        for (file, mut record) in std::mem::take(&mut self.to_give_up) {
            record.state = PairState::GivenUp;
            put(&file, &mut record);
        }
    }

    /// The data-disk has all that the cache held, and stands on its own; the cache-disk has failed,
    /// and cannot be told. Should it come back, it is older.
    pub(crate) fn detached_without_cache(&mut self) {
        self.write(self.record.generation, PairState::GivenUp);
    }

    /// Step 5.
    pub(crate) fn closed(&mut self, superblock: &Superblock, is_dirty: bool) {
        let state = match superblock.state {
            CacheState::Detached => PairState::Detached,
            CacheState::Closed => PairState::Closed { is_dirty },
            CacheState::Open => PairState::Open,
        };
        self.write(superblock.generation, state);
    }

    fn write(&mut self, generation: u64, state: PairState) {
        let PairEntry { is_kept, file, record, files, .. } = self;
        if !*is_kept {
            return;
        }
        (record.generation, record.state) = (generation, state);
        let disks = std::iter::once(&mut record.cache_disk).chain(&mut record.data_disks);
        for (disk, file) in disks.zip(files.iter()) {
            disk.changed = match state {
                PairState::Open => None,
                _ => file.as_ref().and_then(last_write),
            };
        }
        // Of one that is shared by several pairs it could only speak of one.
        if let ([disk], Some(Some(data_disk))) = (record.data_disks.as_slice(), files.get(1))
            && matches!(disk.key, Some(DiskKey::File { start: 0, end: u64::MAX, .. }))
        {
            write_attribute(data_disk, record);
        }
        if let Some(file) = file {
            put(file, record);
        }
    }
}

/// Writes a record to its next slot. What cannot be written is advice that is missing.
fn put(file: &File, record: &mut PairRecord) {
    record.written += 1;
    let mut bytes = record.encode();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    let _ = file.write_all_at(&bytes, record.slot()).and_then(|()| file.sync_data());
}

/// When a file was last written to, which does not change any more when it has been flushed.
fn last_write(file: &OwnedFd) -> Option<i128> {
    rustix::fs::fsync(file).ok()?;
    let stat = rustix::fs::fstat(file).ok()?;
    Some(i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec))
}

fn open_record(directory: &Path, cache: Uuid) -> io::Result<File> {
    fs::create_dir_all(directory)?;
    let path = directory.join(file_name(cache));
    let is_new = !path.exists();
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW).open(&path)?;
    if is_new {
        // Made by root for a service that has a user of its own.
        let owner = fs::metadata(directory)?;
        let _ = std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()));
        file.set_len(2 * SLOT_BYTES as u64)?;
        // Its name, too.
        File::open(directory)?.sync_all()?;
    }
    Ok(file)
}

fn read_record(path: &Path) -> Option<PairRecord> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let mut bytes = vec![0; 2 * SLOT_BYTES];
    let mut done = 0;
    while let Ok(count @ 1..) = file.read_at(&mut bytes[done..], done as u64) {
        done += count;
    }
    PairRecord::newest(&bytes[..done]).ok()
}

/// The lowest layer that is a file.
fn bottom_piece(disk: &DeviceFile) -> Option<&Piece> {
    let is_whole_way = !disk.identity.pieces.iter().any(|piece| piece.is_spread);
    let bottom = disk.identity.bottom()?;
    (is_whole_way && matches!(bottom.object, Object::File { .. })).then_some(bottom)
}

fn bottom_file(disk: &DeviceFile) -> Option<OwnedFd> {
    let piece = bottom_piece(disk)?;
    let flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    rustix::fs::open(&piece.path, flags, Mode::empty()).ok()
}

fn state_of(disk: &DeviceFile) -> DiskState {
    let path = name_of(disk.path());
    let changed = bottom_piece(disk).and_then(|piece| {
        let metadata = fs::metadata(&piece.path).ok()?;
        Some(i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()))
    });
    let directory = disk_of(&path).parent().and_then(directory_key);
    DiskState { key: key_of(disk), directory, changed, path }
}

/// A name that every process understands.
fn name_of(disk: &Path) -> PathBuf {
    whole_name(disk)
}

fn directory_key(directory: &Path) -> Option<DiskKey> {
    file_key(directory, None, 0, u64::MAX)
}

/// What a disk is known by.
pub fn key_of(disk: &DeviceFile) -> Option<DiskKey> {
    let identity = &disk.identity;
    if let Some(piece) = bottom_piece(disk) {
        let Object::File { inode, .. } = piece.object else { return None };
        let length = fs::metadata(&piece.path).ok()?.len();
        let is_whole = piece.bytes.start == 0 && piece.bytes.end >= length / 512 * 512;
        let end = if is_whole { u64::MAX } else { piece.bytes.end };
        return file_key(&piece.path, Some(inode), piece.bytes.start, end);
    }
    // A share of a device is known by its name, and by the cache in it.
    if disk.share().is_some() {
        return None;
    }
    if !disk.serial.is_empty() {
        return Some(DiskKey::Serial { serial: disk.serial.clone(), size: disk.size_bytes });
    }
    // A number is given again where devices come and go: of hardware that stays.
    let is_hardware = identity.pieces.iter().any(|piece| match piece.object {
        Object::Disk(number) => {
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            Path::new(&format!("/sys/dev/block/{major}:{minor}/device")).exists()
        }
        Object::File { .. } => false,
    });
    let Object::Disk(number) = identity.pieces.first()?.object else { return None };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let (boot, size) = (boot.trim().to_owned(), disk.size_bytes);
    is_hardware.then_some(DiskKey::Device { number, boot, size })
}

fn file_key(path: &Path, inode: Option<u64>, start: u64, end: u64) -> Option<DiskKey> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), wanted).ok()?;
    // A number alone may be that of a file which is no more.
    let is_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    if !is_known || inode.is_some_and(|inode| inode != found.stx_ino) {
        return None;
    }
    let born = found.stx_btime;
    let born =
        u64::try_from(born.tv_sec).ok()?.checked_mul(1_000_000_000)? + u64::from(born.tv_nsec);
    let file_system = rustix::fs::statvfs(path).ok()?.f_fsid;
    Some(DiskKey::File { file_system, inode: found.stx_ino, born, start, end })
}

/// `UUID GENERATION open`. No byte of the disk is changed.
fn write_attribute(file: &OwnedFd, record: &PairRecord) {
    let state = if record.state.may_be_dirty() { "dirty" } else { "clean" };
    let text = format!("{} {} {state}", record.cache, record.generation);
    // Many file systems have none.
    let _ = rustix::fs::fsetxattr(file, ATTRIBUTE, text.as_bytes(), XattrFlags::empty());
}

fn read_attribute(disk: &DeviceFile) -> Option<(Uuid, PairState)> {
    parse_attribute(&attribute_of(disk)?)
}

fn attribute_of(disk: &DeviceFile) -> Option<Vec<u8>> {
    let file = bottom_file(disk)?;
    let mut bytes = vec![0; ATTRIBUTE_BYTES_MAX];
    let length = rustix::fs::fgetxattr(&file, ATTRIBUTE, &mut bytes[..]).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

/// Every byte may be anything.
pub fn parse_attribute(bytes: &[u8]) -> Option<(Uuid, PairState)> {
    let words: Vec<&str> = str::from_utf8(bytes).ok()?.split(' ').collect();
    let [cache, _, state] = words.as_slice() else { return None };
    let state = match *state {
        "dirty" => PairState::Open,
        "clean" => PairState::Closed { is_dirty: false },
        _ => return None,
    };
    Some((crate::pair::record::uuid_of(cache)?, state))
}

fn read_superblock_of_path(path: &Path) -> io::Result<Option<Superblock>> {
    use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
    use dcd_engine::format::superblock::SUPERBLOCK_SIZE;
    if path.as_os_str().is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let disk = DiskReader::open(path)?;
    let mut copies = [[0; SUPERBLOCK_SIZE]; 2];
    for (copy, offset) in copies.iter_mut().zip(SUPERBLOCK_OFFSETS) {
        match disk.read_exact_at(copy, offset) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
    }
    Ok(Superblock::newest(&copies[0], &copies[1]).ok())
}
