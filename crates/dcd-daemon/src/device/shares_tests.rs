use std::fs;

use dcd_engine::format::share_directory::{DIRECTORY_BYTES, NewShare, SHARE_GRAIN_BYTES};

use super::*;
use crate::device::device_file::SeekTo;
use crate::device::identity::{DiskIdentity, same_disks};
use crate::device::share_room::ShareRoom;

const MIB: u64 = SHARE_GRAIN_BYTES;

/// A disk of 16 MiB with the shares `a`, 2 MiB from 1 MiB on, and `b`, 3 MiB from 3 MiB on.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("dcd-shares-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let folder = Folder(folder);
        File::create(folder.disk()).unwrap().set_len(16 * MIB).unwrap();
        make_directory(&DeviceFile::open(&folder.disk()).unwrap(), Uuid([9; 16])).unwrap();
        for (name, mib) in [("a", 2), ("b", 3)] {
            folder.make(name, mib);
            set_state(&folder.disk(), cache(name), ShareState::InUse).unwrap();
        }
        folder
    }

    fn disk(&self) -> PathBuf {
        self.0.join("disk")
    }

    fn share(&self, name: &str) -> PathBuf {
        self.disk().join(name)
    }

    fn make(&self, name: &str, mib: u64) {
        let mut change = DirectoryChange::begin(&self.disk()).unwrap();
        let data_disk = format!("/dev/{name}");
        let new =
            NewShare { name: name.into(), cache: cache(name), size_bytes: mib * MIB, data_disk };
        change.directory.allocate(new).unwrap();
        change.write().unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.disk()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cache(name: &str) -> Uuid {
    Uuid([name.as_bytes()[0]; 16])
}

fn is_locked<T>(opened: Result<T, DeviceError>) -> bool {
    matches!(opened, Err(DeviceError::Locked { .. }))
}

#[test]
fn a_path_through_a_disk_names_a_share() {
    let folder = Folder::new("paths");
    let of = |path: PathBuf| (Place::of(&path).disk, Place::of(&path).share);
    assert_eq!(of(folder.share("a")), (folder.disk(), Some("a".into())));
    assert_eq!(of(folder.disk()), (folder.disk(), None));
    for other in ["not-there", "not-there/a", "disk/a/b"] {
        let path = folder.0.join(other);
        assert_eq!(of(path.clone()), (path, None), "{other}");
    }
    assert!(Place::of(&folder.share("a")).exists() && !Place::of(&folder.share("x")).exists());
    let link = folder.0.join("link");
    std::os::unix::fs::symlink("disk", &link).unwrap();
    assert_eq!(whole_name(&link.join("a")), whole_name(&folder.disk()).join("a"));
    let by_uuid = folder.share(&cache("b").to_string());
    assert_eq!(DeviceFile::open(&by_uuid).unwrap().share().unwrap().name, "b");
}

#[test]
fn everything_stays_in_the_window() {
    let folder = Folder::new("window");
    let before = folder.bytes();
    let share = DeviceFile::open(&folder.share("a")).unwrap();
    assert_eq!(share.size_bytes, 2 * MIB);
    share.write_at(0, &Buffer::copy_of(&[1; 4096])).unwrap();
    share.write_at(2 * MIB - 4096, &Buffer::copy_of(&[2; 4096])).unwrap();
    let after = folder.bytes();
    let window = MIB as usize..3 * MIB as usize;
    assert!(after[window.start..][..4096].iter().all(|byte| *byte == 1));
    assert!(after[window.end - 4096..window.end].iter().all(|byte| *byte == 2));
    assert!(before[..window.start] == after[..window.start]);
    assert!(before[window.end..] == after[window.end..]);
    // Reads end where it ends, as at the end of a disk.
    assert_eq!(share.read_at(2 * MIB - 4096, 8192).unwrap().bytes(), [2; 4096]);
    assert_eq!(share.read_at(2 * MIB, 4096).unwrap().len(), 0);
    let reader = DiskReader::open(&folder.share("a")).unwrap();
    let mut bytes = [0; 8192];
    assert_eq!(reader.read_at(&mut bytes, 2 * MIB - 4096).unwrap(), 4096);
    assert_eq!((bytes[0], reader.read_at(&mut bytes, 2 * MIB).unwrap()), (2, 0));
    assert_eq!(reader.length(), Some(2 * MIB));
    assert_eq!(share.seek(SeekTo::Data, 4096), Ok(2 * MIB - 4096));
    assert_eq!(share.seek(SeekTo::Data, 2 * MIB), Err(Errno::NXIO));
    assert!(!share.can_give_back_space(), "what is behind it is somebody else's");
}

#[test]
fn nothing_is_written_behind_the_window_whoever_asks_for_it() {
    let folder = Folder::new("outside");
    let before = folder.bytes();
    let share = DeviceFile::open(&folder.share("a")).unwrap();
    for offset in [2 * MIB - 4096 + 512, 2 * MIB, u64::MAX - 512, u64::MAX - MIB + 1] {
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            share.write_at(offset, &Buffer::copy_of(&[7; 4096]))
        }));
        assert!(tried.is_err(), "{offset}");
    }
    assert!(folder.bytes() == before);
}

#[test]
fn shares_are_used_side_by_side_and_never_beside_the_whole() {
    let folder = Folder::new("locks");
    let open = |name: &str| DeviceFile::open_share(&folder.share(name), &[ShareState::InUse], None);
    let (a, b) = (open("a").unwrap(), open("b").unwrap());
    let Err(error) = open("a") else { panic!("twice") };
    assert!(error.is_our_own(), "the kernel tells who has it: {error}");
    assert!(is_locked(open("a")) && is_locked(DeviceFile::open(&folder.disk())));
    // The directory changes meanwhile.
    folder.make("c", 1);
    drop(b);
    assert!(is_locked(DeviceFile::open(&folder.disk())));
    drop(open("b").unwrap());
    let read = DeviceFile::open_read_only_of_any_size(&folder.share("b")).unwrap();
    assert!(is_locked(open("b")), "who reads keeps writers away");
    drop((a, read));
    let whole = DeviceFile::open(&folder.disk()).unwrap();
    assert!(is_locked(open("a")) && is_locked(DirectoryChange::begin(&folder.disk())));
    drop(whole);
    let change = DirectoryChange::begin(&folder.disk()).unwrap();
    assert!(is_locked(open("a")), "nothing is looked up while it changes");
    assert!(is_locked(DirectoryChange::begin(&folder.disk())));
    let a = DeviceFile::open_share(&folder.share("a"), &[ShareState::InUse], Some(&change));
    drop(change);
    assert!(is_locked(open("a")));
    drop(a);
    drop(open("a").unwrap());
}

#[test]
fn shares_are_disks_of_their_own_and_parts_of_their_disk() {
    let folder = Folder::new("identity");
    let (disk, a, b) = (folder.disk(), folder.share("a"), folder.share("b"));
    assert_eq!(same_disks(&[&a, &b]), None);
    assert!(same_disks(&[&a, &disk]).is_some() && same_disks(&[&disk, &b]).is_some());
    assert!(same_disks(&[&a, &a]).is_some());
    let of = |path: &Path| DiskIdentity::of(path).unwrap();
    assert!(of(&a).is_same(&of(&a)) && !of(&a).is_same(&of(&b)) && !of(&a).is_same(&of(&disk)));
    assert!(of(&a).is_of(&of(&disk)) && !of(&a).is_of(&of(&b)));
    let opened = DeviceFile::open(&a).unwrap();
    assert_eq!(opened.identity, of(&a));
}

/// A share that takes room elsewhere is one disk still, and has locked all of it.
#[test]
fn a_share_in_two_pieces_is_one_disk() {
    let folder = Folder::new("pieces");
    fs::write(folder.disk(), {
        let mut bytes = folder.bytes();
        bytes[MIB as usize..].fill(0x5a);
        bytes
    })
    .unwrap();
    let a = DeviceFile::open(&folder.share("a")).unwrap();
    let room = ShareRoom::of(&a).unwrap().unwrap();
    let mut tell = |windows: Windows| {
        a.set_windows(windows);
        true
    };
    assert_eq!(room.sizes().unwrap(), (2 * MIB, 12 * MIB));
    let error = room.take(13 * MIB, &mut tell).unwrap_err();
    assert!(error.to_string().contains("and 10485760 more are free"), "{error}");
    assert_eq!(room.take(4 * MIB - 5, &mut tell).unwrap(), 4 * MIB);
    assert_eq!((a.size_now().unwrap(), room.sizes().unwrap()), (4 * MIB, (4 * MIB, 12 * MIB)));
    assert_eq!(room.take(MIB, &mut tell).unwrap(), 4 * MIB, "it has that much");
    // Between 3 and 6 MiB is the other.
    a.write_at(2 * MIB - 4096, &Buffer::copy_of(&[7; 8192])).unwrap();
    let bytes = folder.bytes();
    let sevens: Vec<usize> = (0..bytes.len()).step_by(4096).filter(|at| bytes[*at] == 7).collect();
    assert_eq!(sevens, [3 * MIB as usize - 4096, 6 * MIB as usize]);
    assert_eq!(a.read_at(2 * MIB - 4096, 8192).unwrap().bytes(), [7; 8192]);
    assert_eq!(a.read_at(4 * MIB - 4096, 8192).unwrap().len(), 4096);
    let reader = DiskReader::open(&folder.share("a")).unwrap();
    let mut read = [0; 8192];
    assert_eq!(reader.read_at(&mut read, 2 * MIB - 4096).unwrap(), 8192);
    assert_eq!((read, reader.length()), ([7; 8192], Some(4 * MIB)));
    assert!(!reader.is_hole(0, 4 * MIB));
    assert_eq!(a.seek(SeekTo::Data, 3 * MIB), Ok(3 * MIB));
    assert_eq!(a.seek(SeekTo::Hole, 0), Ok(4 * MIB));
    // Locks of both pieces, none of the directory; and it can be opened anew.
    let locked = || {
        let info = format!("/proc/self/fdinfo/{}", a.descriptor());
        parts_locked(&fs::read_to_string(info).unwrap(), None)
    };
    assert_eq!(locked(), [MIB..3 * MIB, 6 * MIB..8 * MIB]);
    drop(DirectoryChange::begin(&folder.disk()).unwrap());
    assert!(is_locked(DeviceFile::open(&folder.share("a"))));
    // Nobody knows what of it is needed: there is no superblock.
    assert_eq!(room.give_back(0, &mut tell).unwrap(), 0);
    drop((a, room));
    let again = DeviceFile::open(&folder.share("a")).unwrap();
    assert_eq!((again.size_bytes, again.read_at(2 * MIB, 4096).unwrap().bytes()[0]), (4 * MIB, 7));
    assert!(DiskIdentity::of(&folder.share("a")).unwrap().is_same(&again.identity));
    drop(DeviceFile::open(&folder.share("b")).unwrap());
}

/// What is left over is taken, unless somebody is at it.
#[test]
fn room_that_was_left_over_is_taken() {
    let folder = Folder::new("left");
    let names = |change: &DirectoryChange| {
        let shares = change.directory.shares().iter();
        shares.map(|share| share.name.clone()).collect::<Vec<_>>().join(" ")
    };
    folder.make("c", 1);
    folder.make("d", 1);
    set_state(&folder.disk(), cache("b"), ShareState::Leaving).unwrap();
    let state = |name: &str| DeviceFile::open(&folder.share(name)).unwrap_err().to_string();
    assert!(state("c").contains("is being made") && state("b").contains("detached"));
    let at_it = DeviceFile::open_share(&folder.share("d"), &[ShareState::Making], None).unwrap();
    let mut change = DirectoryChange::begin(&folder.disk()).unwrap();
    change.drop_left_over();
    assert_eq!(names(&change), "a d");
    drop((at_it, change));
    let mut change = DirectoryChange::begin(&folder.disk()).unwrap();
    assert_eq!(names(&change), "a b c d", "it was not written");
    change.drop_left_over();
    change.write().unwrap();
    assert_eq!(names(&change), "a");
    assert_eq!(change.directory.free_bytes(), 13 * MIB);
}

/// Damage of either copy brings nothing back of which the room would be free: what a share was
/// before it was in use, or one that the newer copy may know to be in use.
#[test]
fn a_damaged_copy_frees_no_share() {
    let folder = Folder::new("damaged");
    folder.make("c", 1);
    set_state(&folder.disk(), cache("c"), ShareState::InUse).unwrap();
    folder.make("d", 1);
    let whole = folder.bytes();
    for offset in DIRECTORY_OFFSETS {
        let mut bytes = whole.clone();
        bytes[offset as usize + 40] ^= 1;
        fs::write(folder.disk(), &bytes).unwrap();
        let mut change = DirectoryChange::begin(&folder.disk()).unwrap();
        let state = |change: &DirectoryChange, name: &str| {
            change.directory.find(name).map(|share| share.state)
        };
        for name in ["a", "b", "c"] {
            assert_eq!(state(&change, name), Some(ShareState::InUse), "{name}, {offset}");
        }
        let is_known = state(&change, "d").is_some();
        change.drop_left_over();
        assert_eq!(state(&change, "d").is_some(), is_known, "what is left over stays");
        assert_eq!(directory_problems(&folder.disk()).unwrap().len(), 1);
        // The next change makes both copies well.
        change.write().unwrap();
        drop(change);
        assert_eq!(directory_problems(&folder.disk()).unwrap(), []);
        let mut change = DirectoryChange::begin(&folder.disk()).unwrap();
        change.drop_left_over();
        assert_eq!(state(&change, "d"), None);
    }
}

/// Two threads that speak for the same share: the locks of the system are one for both.
#[test]
fn one_thread_at_a_time_changes_the_directory() {
    let folder = Folder::new("threads");
    let share = DeviceFile::open(&folder.share("a")).unwrap();
    let first = DirectoryChange::begin_beside(share.directory_beside().unwrap()).unwrap();
    let beside = share.directory_beside().unwrap();
    let second = std::thread::spawn(move || {
        let mut second = DirectoryChange::begin_beside(beside).unwrap();
        second.write().unwrap();
        second.directory.generation
    });
    std::thread::sleep(Duration::from_millis(100)); // the other comes to its lock
    let mut first = first;
    first.write().unwrap();
    let generation = first.directory.generation;
    assert!(!second.is_finished());
    drop(first);
    assert_eq!(second.join().unwrap(), generation + 1);
}

/// A write of the directory that is cut off anywhere leaves it as it was before or behind it; so
/// does one of the two copies that cannot be read.
#[test]
fn a_change_that_is_cut_off_has_been_or_not() {
    let folder = Folder::new("torn");
    let read = |bytes: &[u8]| {
        read_directory(|offset, into| {
            into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
            Ok(())
        })
        .unwrap()
        .unwrap()
    };
    let mut seen = folder.bytes();
    for step in 0..6 {
        let before = read(&seen);
        match step % 3 {
            0 => folder.make("c", 1),
            // One of the two writes of `set_state`.
            1 => {
                let mut change = DirectoryChange::begin(&folder.disk()).unwrap();
                change.directory.set_state(cache("c"), ShareState::InUse).unwrap();
                change.write().unwrap();
            }
            _ => give_back(&folder.disk(), cache("c")).unwrap(),
        }
        let bytes = folder.bytes();
        let after = read(&bytes);
        assert_ne!(before, after);
        let changed: Vec<usize> = (0..bytes.len())
            .step_by(512)
            .filter(|at| bytes[*at..*at + 512] != seen[*at..*at + 512])
            .collect();
        assert!(changed.iter().all(|at| (*at as u64) < DIRECTORY_BYTES));
        for cut in 0..1usize << changed.len().min(8) {
            let mut torn = seen.clone();
            let written = changed.iter().enumerate().filter(|(index, _)| cut >> index & 1 > 0);
            for (_, at) in written {
                torn[*at..*at + 512].copy_from_slice(&bytes[*at..*at + 512]);
            }
            let found = read(&torn);
            assert!(found == before || found == after, "step {step}, cut {cut:b}");
        }
        seen = bytes;
    }
    // The disk of a cache may hold anything where a copy would be.
    let mut whole = seen;
    whole[..8].copy_from_slice(&superblock::MAGIC.to_le_bytes());
    fs::write(folder.disk(), &whole).unwrap();
    let found = directory_at(&folder.disk()).unwrap();
    assert!(found.is_err_and(|problem| is_no_directory(&problem)));
}
