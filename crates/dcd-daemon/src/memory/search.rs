//! Which segment memory a start takes: the one that the superblock names
//! ([`dcd_engine::MemoryWanted`]), wherever it is found; a new one if nothing of the last session
//! can be in any; and if the right one should be there and is not, none. Nothing is made or changed
//! before that is decided.
//!
//! ```text
//! looked at   1. what the service manager has kept
//!             2. its place, as the superblock has it
//!             3. the directory that was asked for, the usual ones, and `/dev/shm` of old
//! ```
//! A file of the right name with another identity is not taken, whoever put it there, and holds up
//! nothing. Where a place cannot be looked at (no right to), that is said, and the others are.
//!
//! It is taken from our own user. Root takes it from the user of the service and from the owners of
//! the disks, too; and from anybody in the place that the superblock names, if not all may write
//! there: who wrote that could write the disks. What is taken from others, and what has no name or
//! one in `/dev/shm`, is moved to where a new one would be.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dcd_engine::{MemoryIdentity, MemoryWanted, Superblock};

pub use crate::memory::error::Looked;
use crate::memory::places;
use crate::memory::segment_memory::{
    BootId, FoundMemory, MemoryId, SegmentFile, SegmentMemoryError, SharedSegmentMemory,
};
use crate::process::random::random_bytes;
use crate::process::service_manager::take_stored;

/// Longest name of a place that a superblock holds.
const PLACE_BYTES_MAX: usize = dcd_engine::format::superblock::MEMORY_PLACE_BYTES_MAX;

/// What is looked for.
pub(crate) struct MemorySearch<'a> {
    /// Of the cache.
    pub superblock: &'a Superblock,
    /// The directory that was asked for, if one was.
    pub directory: Option<&'a Path>,
    /// From whom it is taken wherever it is: [`places::trusted_owners`].
    pub owners: Vec<u32>,
    /// Size of a new one.
    pub size: usize,
    /// Whether an old one can have this size.
    pub is_possible: &'a dyn Fn(u64) -> bool,
    /// Go on without one that is lost: a person has said so.
    pub may_be_lost: bool,
    /// The cache-disk, for people.
    pub cache_disk: &'a str,
}

/// The memory, and what was noticed.
pub(crate) struct Found {
    pub file: SegmentFile,
    pub memory: SharedSegmentMemory,
    /// What the last session had is lost, and was given up: so long before its end.
    pub lost: Option<Duration>,
}

impl MemorySearch<'_> {
    /// Finds it, or makes a new one.
    pub(crate) fn run(&self) -> Result<Found, SegmentMemoryError> {
        self.run_in_boot(BootId::current(), || take_stored(&stored_name(self.superblock)))
    }

    fn run_in_boot(
        &self,
        boot: BootId,
        mut take_stored: impl FnMut() -> Option<OwnedFd>,
    ) -> Result<Found, SegmentMemoryError> {
        let wanted = self.superblock.memory_wanted(boot.bytes());
        let (found, looked) = self.find(&wanted, boot, &mut take_stored);
        if let Some((found, path)) = found {
            return self.adopt(found, path);
        }
        // An older program does not say what is lost without it.
        if let (MemoryWanted::Unnamed, Some((owner, looked))) =
            (wanted, looked.iter().find_map(|it| Some((it.of_user?, it))))
        {
            return Err(SegmentMemoryError::OfUser { path: (&looked.place).into(), owner });
        }
        let lost = wanted.loses().map(|delay| Duration::from_nanos(delay.0));
        if let Some(delay) = lost
            && !self.may_be_lost
        {
            return Err(SegmentMemoryError::Lost { uuid: self.superblock.uuid, looked, delay });
        }
        let (file, memory) = self.create(boot)?;
        Ok(Found { file, memory, lost })
    }

    /// A new one, in the first place that will do.
    fn create(
        &self,
        boot: BootId,
    ) -> Result<(SegmentFile, SharedSegmentMemory), SegmentMemoryError> {
        let id = new_id();
        self.in_first_place(|path| SegmentFile::create(path, self.size, boot, id, self.cache_disk))
    }

    /// Tries the directory that was asked for, and where that cannot be had because somebody else
    /// has taken the name in it, or none was asked for, our own. The first error is told.
    fn in_first_place<T>(
        &self,
        mut make: impl FnMut(PathBuf) -> Result<T, SegmentMemoryError>,
    ) -> Result<T, SegmentMemoryError> {
        let uuid = self.superblock.uuid;
        let mut first_error = None;
        if let Some(asked) = self.directory {
            match make(SegmentFile::path_of(&absolute(asked), uuid)) {
                Err(error) if places::others_write(asked) => first_error = Some(error),
                made => return made,
            }
        }
        for directory in places::directories(uuid) {
            let made = places::make(&directory).and_then(|directory| {
                let made = make(SegmentFile::path_of(&directory, uuid));
                if made.is_err() {
                    places::remove(&directory, &uuid.to_string());
                }
                made
            });
            match made {
                Ok(made) => return Ok(made),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.expect("there is a place for every user"))
    }

    /// The right one and the name that it gets, or what was found instead.
    fn find(
        &self,
        wanted: &MemoryWanted<'_>,
        boot: BootId,
        take_stored: &mut dyn FnMut() -> Option<OwnedFd>,
    ) -> (Option<(FoundMemory, PathBuf)>, Vec<Looked>) {
        let mut looked = Vec::new();
        let mut judge = |place: String, is_vouched_for: bool, found: Result<FoundMemory, _>| {
            let mut of_user = None;
            let (found, why) = match found {
                Ok(found) => match found.header {
                    Some(header) if !header.is_ours() => (None, "no segment memory".to_owned()),
                    Some(header) if !header.is_of(boot) => (None, "of another boot".to_owned()),
                    Some(header)
                        if matches!(wanted, MemoryWanted::Unnamed) && !header.holds_writes() =>
                    {
                        (None, "empty".to_owned())
                    }
                    Some(header) if wanted.is(header.id()) => {
                        let owner = found.owner();
                        if is_vouched_for || self.owners.contains(&owner) {
                            return Some(found);
                        }
                        of_user = Some(owner);
                        (None, format!("it holds writes, and is of user {owner}"))
                    }
                    Some(_) => (None, "of another session".to_owned()),
                    None => (None, "no segment memory".to_owned()),
                },
                Err(SegmentMemoryError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound =>
                {
                    (None, "nothing there".to_owned())
                }
                Err(SegmentMemoryError::Io { source, .. }) => (None, source.to_string()),
                Err(SegmentMemoryError::NotOurs { expected, found, .. }) => {
                    (None, format!("expected {expected}, found {found}"))
                }
                Err(SegmentMemoryError::OfUser { owner, .. }) => {
                    of_user = Some(owner);
                    (None, format!("of user {owner}, who alone may look at it"))
                }
                Err(error) => (None, error.to_string()),
            };
            looked.push(Looked { place, found: why, of_user });
            found
        };
        if !matches!(wanted, MemoryWanted::Nothing) {
            let paths = self.paths(wanted);
            while let Some(stored) = take_stored() {
                let found = FoundMemory::kept(stored, &paths[0]);
                if let Some(found) = judge("kept by the service manager".into(), false, found) {
                    let name = paths.iter().find(|path| found.is_at(path)).unwrap_or(&paths[0]);
                    return (Some((found, name.clone())), looked);
                }
            }
            for path in paths {
                let is_vouched_for = rustix::process::geteuid().is_root()
                    && noted_place(wanted).is_some_and(|place| path.starts_with(place))
                    && !path.parent().is_some_and(places::others_write);
                let found = FoundMemory::at(&path);
                if let Some(found) = judge(path.display().to_string(), is_vouched_for, found) {
                    return (Some((found, path)), looked);
                }
            }
        }
        (None, looked)
    }

    /// The places, each once.
    fn paths(&self, wanted: &MemoryWanted<'_>) -> Vec<PathBuf> {
        let uuid = self.superblock.uuid;
        let named = noted_place(wanted).map(Path::to_owned).into_iter();
        let all = named
            .chain(self.directory.map(absolute))
            .chain(places::directories(uuid))
            .chain([places::SHARED_DIRECTORY.into()]);
        let mut paths: Vec<PathBuf> = Vec::new();
        for path in all.map(|directory| SegmentFile::path_of(&directory, uuid)) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }

    fn adopt(&self, found: FoundMemory, path: PathBuf) -> Result<Found, SegmentMemoryError> {
        let known = found.header.map_or([0; 16], |header| header.id());
        let id = if known == [0; 16] { new_id() } else { known };
        let (mut file, memory) = found.adopt(path, id, self.is_possible)?;
        if self.is_out_of_place(&file) {
            // Without room for a second one it is used where it is.
            if let Err(error) = self.in_first_place(|path| file.move_to(path)) {
                eprintln!("dcd: the segment memory cannot be moved to a place of its own: {error}");
            }
        }
        Ok(Found { file, memory, lost: None })
    }

    /// Whether somebody else can take its name, or what it holds.
    fn is_out_of_place(&self, file: &SegmentFile) -> bool {
        let is_asked_for = self.directory.is_some_and(|asked| absolute(asked) == file.directory());
        let others_write = places::others_write(file.directory()) && !is_asked_for;
        others_write || !file.is_of_user() || !file.is_in_place()
    }
}

/// Where the superblock says that it is.
fn noted_place<'a>(wanted: &MemoryWanted<'a>) -> Option<&'a Path> {
    match wanted {
        MemoryWanted::This(memory) if !memory.place.is_empty() => Some(Path::new(&memory.place)),
        _ => None,
    }
}

/// What a start would find.
pub enum MemoryOutlook {
    /// It needs nothing, or nothing that could be missed.
    Nothing,
    /// The memory of the last session, or of the one that runs.
    Found(PathBuf),
    /// It would refuse: what was found instead, and how old what is lost can be.
    Lost(Vec<Looked>, Duration),
}

/// Looks, and changes nothing.
pub fn outlook(superblock: &Superblock, cache_disk: &Path) -> MemoryOutlook {
    let boot = BootId::current();
    let wanted = superblock.memory_wanted(boot.bytes());
    let search = MemorySearch {
        superblock,
        directory: None,
        owners: places::trusted_owners(&[cache_disk]),
        size: 0,
        is_possible: &|_| false,
        may_be_lost: false,
        cache_disk: "",
    };
    match (search.find(&wanted, boot, &mut || None), wanted.loses()) {
        ((Some((_, path)), _), _) => MemoryOutlook::Found(path),
        ((None, looked), Some(delay)) => MemoryOutlook::Lost(looked, Duration::from_nanos(delay.0)),
        ((None, _), None) => MemoryOutlook::Nothing,
    }
}

/// What the superblock is to say of a memory.
pub(crate) fn identity_of(file: &SegmentFile, max_delay: Option<Duration>) -> MemoryIdentity {
    let place = file.directory().to_str().filter(|place| place.len() <= PLACE_BYTES_MAX);
    let milliseconds = max_delay.map_or(0, |delay| delay.as_nanos().div_ceil(1_000_000).max(1));
    MemoryIdentity {
        boot_id: BootId::current().bytes(),
        memory_id: file.id(),
        place: place.unwrap_or_default().to_owned(),
        max_delay_milliseconds: u32::try_from(milliseconds).unwrap_or(u32::MAX),
    }
}

fn stored_name(superblock: &Superblock) -> String {
    SegmentFile::stored_name(superblock.uuid)
}

/// As every process names it. One that does not exist is named as it was, for the error.
fn absolute(directory: &Path) -> PathBuf {
    directory.canonicalize().unwrap_or_else(|_| directory.to_owned())
}

/// Not 0, and never the same twice.
fn new_id() -> MemoryId {
    // Without random numbers (a filter), the time and the process tell memories apart well enough.
    let mut id = random_bytes().unwrap_or_else(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos();
        (now << 32 | u128::from(std::process::id())).to_le_bytes()
    });
    id[0] |= 1;
    id
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use dcd_engine::format::superblock::CacheState;
    use dcd_engine::{DataDiskInfo, Geometry, MemoryUse, SegmentMemory, Uuid};

    use super::*;

    const SIZE: usize = 8192;

    /// A directory of its own, and a cache that was last used in it.
    struct Place {
        directory: PathBuf,
        superblock: Superblock,
    }

    impl Place {
        fn new(name: &str) -> Place {
            let superblock = Superblock {
                uuid: Uuid(new_id()),
                generation: 4,
                state: CacheState::Open,
                geometry: Geometry::fit(16 << 20, 128 << 10).unwrap(),
                data_disk: DataDiskInfo {
                    blocks: 4096,
                    logical_block_size: 512,
                    physical_sector_size: 4096,
                },
                data_disk_serial: String::new(),
                created_unix_seconds: 0,
                volume_bytes: 0,
                volume_moved_to: 0,
                data_offset_bytes: 0,
                data_label_epoch: 0,
                has_end_mark: false,
                has_legs: false,
                resized: None,
                nvram: None,
                memory: None,
            };
            Place::of(name, superblock)
        }

        fn of(name: &str, superblock: Superblock) -> Place {
            let name = format!("dcd-search-{name}-{}", std::process::id());
            let directory = absolute(&std::env::temp_dir()).join(name);
            let _ = fs::remove_dir_all(&directory);
            for one in ["first", "second"] {
                fs::create_dir_all(directory.join(one)).unwrap();
            }
            Place { directory, superblock }
        }

        fn path(&self, which: &str) -> PathBuf {
            SegmentFile::path_of(&self.directory.join(which), self.superblock.uuid)
        }

        fn search(
            &self,
            which: &str,
            may_be_lost: bool,
            stored: Vec<OwnedFd>,
        ) -> Result<Found, SegmentMemoryError> {
            let mut stored = stored.into_iter();
            let search = MemorySearch {
                superblock: &self.superblock,
                directory: Some(&self.directory.join(which)),
                owners: places::trusted_owners(&[]),
                size: SIZE,
                is_possible: &|size| size == SIZE as u64,
                may_be_lost,
                cache_disk: "c",
            };
            search.run_in_boot(BootId::current(), || stored.next())
        }

        /// A session in `which` that acknowledges from memory; killed.
        fn session(&mut self, which: &str) -> OwnedFd {
            self.superblock.state = CacheState::Closed;
            let Found { mut file, mut memory, lost } = self.search(which, false, vec![]).unwrap();
            assert!(!file.was_found && lost.is_none());
            memory.bytes_mut()[64] = 1;
            file.keep();
            self.superblock.state = CacheState::Open;
            self.superblock.memory = Some(identity_of(&file, Some(Duration::from_secs(5))));
            file.descriptor_to_keep().unwrap()
        }

        fn refused(&self, which: &str) -> String {
            match self.search(which, false, vec![]) {
                Err(error @ SegmentMemoryError::Lost { .. }) => error.to_string(),
                Err(error) => panic!("{error}"),
                Ok(_) => panic!("it goes on"),
            }
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    #[test]
    fn it_is_found_where_the_superblock_says_or_where_it_was_moved_to() {
        let mut place = Place::new("place");
        place.session("first");
        for which in ["first", "second"] {
            let found = place.search(which, false, vec![]).unwrap();
            assert!(found.file.was_found && found.memory.bytes()[64] == 1);
            assert_eq!(found.file.path(), place.path("first"));
        }
        fs::rename(place.path("first"), place.path("second")).unwrap();
        let found = place.search("second", false, vec![]).unwrap();
        assert_eq!(found.file.path(), place.path("second"));
    }

    #[test]
    fn a_start_that_does_not_find_it_refuses_and_makes_nothing() {
        let mut place = Place::new("lost");
        place.session("first");
        let moved = place.directory.join("moved");
        fs::rename(place.path("first"), &moved).unwrap();
        let told = place.refused("second");
        for part in ["5s", "first", "second", "/dev/shm/dcd-", "nothing there"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!place.path("first").exists() && !place.path("second").exists());
        // Another of the same name is not it: of this boot, of another, or no memory at all.
        let mut other = Place::of("other", place.superblock.clone());
        other.session("first");
        fs::copy(other.path("first"), place.path("first")).unwrap();
        assert!(place.refused("first").contains("of another session"));
        fs::write(place.path("first"), [0; SIZE]).unwrap();
        assert!(place.refused("first").contains("no segment memory"));
        fs::set_permissions(place.path("first"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(place.refused("first").contains("expected mode 600"));
        fs::remove_file(place.path("first")).unwrap();
        // A person has said so.
        let found = place.search("second", true, vec![]).unwrap();
        assert_eq!((found.lost, found.file.was_found), (Some(Duration::from_secs(5)), false));
        drop(found);
        // And where it is there, that word takes nothing away.
        fs::rename(&moved, place.path("first")).unwrap();
        let found = place.search("second", true, vec![]).unwrap();
        assert!(found.file.was_found && found.lost.is_none());
    }

    #[test]
    fn nothing_is_missed_where_nothing_can_be_lost() {
        let mut place = Place::new("nothing");
        place.session("first");
        fs::remove_file(place.path("first")).unwrap();
        let mut memory = place.superblock.memory.clone().unwrap();
        let starts = |place: &Place| {
            let found = place.search("second", false, vec![]).unwrap();
            assert!(!found.file.was_found && found.lost.is_none());
        };
        // Acknowledged when durable.
        memory.max_delay_milliseconds = 0;
        place.superblock.memory = Some(memory.clone());
        starts(&place);
        // Of another boot.
        memory.max_delay_milliseconds = 5000;
        memory.boot_id[3] ^= 1;
        place.superblock.memory = Some(memory);
        starts(&place);
        // Of an older program.
        place.superblock.memory = None;
        starts(&place);
    }

    #[test]
    fn what_an_older_program_left_is_taken_and_gets_an_identity() {
        let mut place = Place::new("older");
        place.session("first");
        place.superblock.memory = None;
        let file = fs::File::options().write(true).open(place.path("first")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; 16], 4076).unwrap();
        let found = place.search("first", false, vec![]).unwrap();
        assert!(found.file.was_found && found.file.id() != [0; 16]);
        drop(found);
        // What it had put elsewhere it finds no more than the older one did; an empty one is new.
        let found = place.search("second", false, vec![]).unwrap();
        assert!(!found.file.was_found);
        found.file.end(MemoryUse::InUse);
        assert!(!place.search("second", false, vec![]).unwrap().file.was_found);
    }

    #[test]
    fn a_foreign_descriptor_of_the_store_displaces_nothing() {
        let mut place = Place::new("store");
        let good = place.session("first");
        let again = good.try_clone().unwrap();
        let mut other = Place::of("foreign", place.superblock.clone());
        let foreign = other.session("first");
        let foreign = || foreign.try_clone().unwrap();
        // By name it is there: that one.
        let found = place.search("first", false, vec![foreign()]).unwrap();
        assert_eq!(found.file.path(), place.path("first"));
        drop(found);
        // Only the store has it, behind one that is not it; and a foreign file has its name.
        fs::remove_file(place.path("first")).unwrap();
        fs::copy(other.path("first"), place.path("first")).unwrap();
        let found = place.search("first", false, vec![foreign(), good]).unwrap();
        assert!(found.file.was_found && found.file.is_in_place());
        assert_eq!(found.memory.bytes()[64], 1);
        drop(found);
        // A start that ended early has not taken it away: it has its name again, and what was there
        // is aside.
        assert!(place.path("first").with_added_extension("displaced").exists());
        assert!(place.search("first", false, vec![again]).unwrap().file.was_found);
        fs::remove_file(place.path("first")).unwrap();
        let lost = place.search("first", false, vec![foreign()]);
        assert!(matches!(lost, Err(SegmentMemoryError::Lost { .. })));
    }
}
