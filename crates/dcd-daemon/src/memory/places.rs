//! Where segment memory lies: in directories that nobody else can write to. A name in a place that
//! all may write to, as `/dev/shm` is, can be taken by anybody as soon as it is free.
//!
//! ```text
//! BASE/UUID/dcd-UUID.segments   BASE: /run/dcd              of root, and of the user of the service, whose it is
//!                                     $XDG_RUNTIME_DIR/dcd   of another user; without the variable /run/user/UID/dcd
//!                                     /dev/shm/dcd-UID       where neither is there, or neither is in memory
//!                                     /dev/shm/dcd-UID-...   where somebody else has taken that name
//! ```
//! The superblock names the directory, so a start after a kill needs no rule to find it. Each cache
//! has a directory of its own, so that its daemon can be kept from the memory of others
//! ([`crate::process::confine`]).
//!
//! It was `/dev/shm/dcd-UUID.segments` before: what is left there is still found, and moved away at
//! once.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use dcd_engine::Uuid;
use rustix::io::Errno;

use crate::device::shares::disk_of;
use crate::memory::segment_memory::SegmentMemoryError;
use crate::process::random::random_bytes;

/// In memory on every machine, and everybody may write to it.
pub const SHARED_DIRECTORY: &str = "/dev/shm";

/// Of root and of services.
const SERVICES: &str = "/run/dcd";
/// Those of other users are in here, each below its number.
const USERS: &str = "/run/user";

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// The directories of this user below which caches have theirs, best first. They need not exist.
pub(crate) fn bases() -> Vec<PathBuf> {
    let user = user();
    let mut bases = Vec::new();
    if user == 0 || owner(Path::new(SERVICES)) == Some(user) {
        bases.push(PathBuf::from(SERVICES));
    }
    if user != 0 {
        let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let usual = Path::new(USERS).join(user.to_string());
        let ours = |directory: &PathBuf| {
            directory.is_absolute() && owner(directory) == Some(user) && !others_write(directory)
        };
        bases.extend(
            [named, Some(usual)].into_iter().flatten().filter(ours).map(|it| it.join("dcd")),
        );
    }
    bases.push(Path::new(SHARED_DIRECTORY).join(format!("dcd-{user}")));
    bases
}

/// Where a new memory of this cache may go, best first.
pub(crate) fn directories(uuid: Uuid) -> Vec<PathBuf> {
    bases().iter().map(|base| base.join(uuid.to_string())).collect()
}

/// The directories in which `dcd list` looks: of all users, as far as they may be seen.
pub fn directories_to_list() -> Vec<PathBuf> {
    let within = |directory: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
        let mut paths: Vec<PathBuf> = directories.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("dcd-"))
    };
    let mut all = bases();
    all.push(SERVICES.into());
    all.extend(within(Path::new(USERS)).into_iter().map(|user| user.join("dcd")));
    all.extend(within(Path::new(SHARED_DIRECTORY)).into_iter().filter(ours));
    let mut directories = vec![PathBuf::from(SHARED_DIRECTORY)];
    directories.extend(all.iter().flat_map(|base| within(base)));
    directories
}

/// Makes the directory of a cache, where it can be: in memory, and of nobody else. Tells its name,
/// which may be another than asked for where somebody has taken that.
pub(crate) fn make(directory: &Path) -> Result<PathBuf, SegmentMemoryError> {
    let mut made = make_once(directory);
    // The end of another cache may take the base away, behind our look at it.
    for _ in 0..3 {
        match &made {
            Err(SegmentMemoryError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                made = make_once(directory);
            }
            _ => break,
        }
    }
    made
}

fn make_once(directory: &Path) -> Result<PathBuf, SegmentMemoryError> {
    let (Some(base), Some(cache)) = (directory.parent(), directory.file_name()) else {
        return Err(SegmentMemoryError::io(directory, "make the directory of", Errno::INVAL));
    };
    let base = match make_base(base) {
        // Whoever has it cannot know the next name.
        Err(SegmentMemoryError::NotOurs { .. }) if is_in(base, SHARED_DIRECTORY) => {
            let mut name = base.as_os_str().to_owned();
            name.push(format!("-{:016x}", u64::from_ne_bytes(random_bytes().unwrap_or_default())));
            let other = PathBuf::from(name);
            make_base(&other)?;
            other
        }
        made => made.map(|()| base.to_owned())?,
    };
    let directory = base.join(cache);
    make_one(&directory)?;
    Ok(directory)
}

/// Takes the directory of a cache away, if nothing is in it. Others, which a person has named,
/// stay.
pub(crate) fn remove(directory: &Path, uuid: &str) {
    if directory.file_name().is_some_and(|name| name.to_str() == Some(uuid)) {
        let _ = fs::remove_dir(directory);
        // That of a user goes as well; `/run/dcd` has sockets, or is a service manager's.
        if let Some(base) = directory.parent().filter(|base| is_in(base, SHARED_DIRECTORY)) {
            let _ = fs::remove_dir(base);
        }
    }
}

fn make_base(base: &Path) -> Result<(), SegmentMemoryError> {
    let above = base.parent().unwrap_or(Path::new("/"));
    let kind = rustix::fs::statfs(above)
        .map_err(|errno| SegmentMemoryError::io(base, "look at", errno))?
        .f_type;
    if ![TMPFS, RAMFS].contains(&kind) {
        return Err(SegmentMemoryError::NotOurs {
            path: base.to_owned(),
            expected: "a file system in memory",
            found: format!("one of type {kind:#x}"),
        });
    }
    make_one(base)
}

/// Makes a directory, or sees that the one which is there can be trusted.
fn make_one(directory: &Path) -> Result<(), SegmentMemoryError> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            let (path, operation) = (directory.to_owned(), "make the directory of");
            return Err(SegmentMemoryError::Io { path, operation, source: error });
        }
        _ => {}
    }
    let not_ours = |expected, found| SegmentMemoryError::NotOurs {
        path: directory.to_owned(),
        expected,
        found,
    };
    let looked = fs::symlink_metadata(directory);
    let (path, operation) = (directory.to_owned(), "look at the directory of");
    let found = looked.map_err(|source| SegmentMemoryError::Io { path, operation, source })?;
    if !found.is_dir() {
        return Err(not_ours("a directory", format!("mode {:o}", found.mode())));
    }
    // Nobody but root makes a directory in /run.
    if found.uid() != user() && !(user() == 0 && directory == Path::new(SERVICES)) {
        return Err(not_ours("our user as its owner", format!("user {}", found.uid())));
    }
    if found.mode() & 0o022 != 0 {
        return Err(not_ours(
            "nobody else who writes",
            format!("mode {:o}", found.mode() & 0o7777),
        ));
    }
    Ok(())
}

/// Whether anybody may make a file in a directory.
pub(crate) fn others_write(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|found| found.mode() & 0o002 != 0)
}

/// Whose a file is. A link is its own.
pub(crate) fn owner(path: &Path) -> Option<u32> {
    fs::symlink_metadata(path).ok().map(|found| found.uid())
}

/// From whom root takes memory: itself, the user of the service, and whoever owns one of the disks.
/// Others take their own.
pub(crate) fn trusted_owners(disks: &[&Path]) -> Vec<u32> {
    let mut owners = vec![user()];
    if user() == 0 {
        let disks =
            disks.iter().filter_map(|disk| fs::metadata(disk_of(disk)).ok().map(|it| it.uid()));
        owners.extend(owner(Path::new(SERVICES)).into_iter().chain(disks));
    }
    owners
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn is_in(path: &Path, directory: &str) -> bool {
    path.parent() == Some(Path::new(directory))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_that_somebody_else_may_write_to_is_not_taken() {
        let shared = Path::new(SHARED_DIRECTORY);
        if !shared.is_dir() {
            return println!("skipped: no {SHARED_DIRECTORY}");
        }
        let base = shared.join(format!("dcd-places-{}", std::process::id()));
        let directory = base.join("cache");
        assert_eq!(make(&directory).unwrap(), directory);
        assert_eq!(fs::metadata(&base).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o700);
        // Again, as another start does.
        assert_eq!(make(&directory).unwrap(), directory);
        remove(&directory, "another");
        assert!(directory.exists());
        remove(&directory, "cache");
        assert!(!base.exists());
        // Taken by others: a directory that they may write to, a file, a link to one that is right.
        let right = shared.join(format!("dcd-places-right-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&right).unwrap();
        for kind in 0..3 {
            match kind {
                0 => {
                    fs::create_dir(&base).unwrap();
                    fs::set_permissions(&base, fs::Permissions::from_mode(0o777)).unwrap();
                }
                1 => fs::write(&base, "").unwrap(),
                _ => std::os::unix::fs::symlink(&right, &base).unwrap(),
            }
            let made = make(&directory).unwrap();
            assert!(made != directory && made.ends_with("cache"), "{made:?}");
            let other = made.parent().unwrap();
            assert!(other.to_str().unwrap().starts_with(base.to_str().unwrap()), "{other:?}");
            remove(&made, "cache");
            assert!(!other.exists());
            let _ = fs::remove_dir(&base);
            let _ = fs::remove_file(&base);
        }
        fs::remove_dir(right).unwrap();
    }

    #[test]
    fn what_is_not_in_memory_is_no_place_for_it() {
        let base = std::env::temp_dir().join(format!("dcd-places-disk-{}", std::process::id()));
        match rustix::fs::statfs(base.parent().unwrap()).unwrap().f_type {
            TMPFS | RAMFS => println!("skipped: the directory for temporary files is in memory"),
            _ => {
                let told = make(&base.join("cache")).unwrap_err().to_string();
                assert!(told.contains("in memory") && !base.exists(), "{told}");
            }
        }
    }
}
