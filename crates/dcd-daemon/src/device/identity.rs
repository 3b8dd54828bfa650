//! Which bytes a disk really is. One disk has many names: links, bind mounts, a loop device over a
//! file, a partition of that, a file on an overlay, a mapped device. A [`DiskIdentity`] follows a
//! name to the bottom and keeps every object on the way with the range of its bytes; two names that
//! share bytes anywhere are one disk.
//!
//! ```text
//! /dev/loop3p1 -> partition: bytes 1 MiB.. of /dev/loop3 -> offset: bytes of disk.img
//!                                        disk.img on an overlay -> upper/disk.img
//! ```
//!
//! A device that the device mapper or md makes out of others is followed, too, but not where on
//! them its bytes are: two such devices on one disk are kept apart by whoever made them (LVM), and
//! all others that share a disk with one are the same.
//!
//! It is the one answer of this program to that question: pairs and members are compared by it,
//! locks are taken on what it finds (`claim.rs`), and the record of pairs knows disks by it. What
//! cannot be seen is written in docs/operations.md: disks of other machines, network block devices,
//! other name spaces.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dcd_engine::format::share_directory::{Window, Windows};
use rustix::fs::FileType;

use crate::device::device_file::whole_disk;
use crate::device::loop_device::{self, LoopBacking};
use crate::device::mounts::{Mount, mount_of, mounts};
use crate::device::network::is_network;
use crate::device::shares::{Place, directory_at};

/// Layers that are followed; a file system on a file on a file system does not go on for ever.
const DEPTH_MAX: usize = 32;

/// What holds bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Object {
    /// A file, by the number of its file system and its own.
    File {
        /// Device number of the file system, as `stat` tells it.
        device: u64,
        /// Its inode.
        inode: u64,
    },
    /// A block device, by its number.
    Disk(u64),
}

/// Bytes of an object that a disk consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Whose bytes.
    pub object: Object,
    /// Which. Of a whole file they end nowhere: it may grow.
    pub bytes: Range<u64>,
    /// A name of it.
    pub path: PathBuf,
    /// How it was come to.
    pub step: Step,
    /// Its bytes are somewhere in these, as the device mapper or md has spread them.
    pub is_spread: bool,
}

/// How one layer lies on the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The disk itself.
    Top,
    /// The kernel sees to it that both are not used at once: a partition, what is mapped.
    Kernel,
    /// A loop device, or an overlay: nobody sees to it.
    Unguarded,
}

/// A disk, with everything that it lies on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskIdentity {
    /// From the disk itself down.
    pub pieces: Vec<Piece>,
}

impl DiskIdentity {
    /// Follows a path: a regular file or block device, or a share of one. What is something else has
    /// no bytes of its own.
    pub fn of(path: &Path) -> io::Result<DiskIdentity> {
        let place = Place::of(path);
        if let Some(share) = &place.share {
            let disk = DiskIdentity::of(&place.disk)?;
            let directory = directory_at(&place.disk)?.ok();
            let windows = directory.and_then(|it| it.find(share).map(|it| it.windows.clone()));
            // Of one that is not known it may be anything.
            return Ok(windows.map_or(disk.clone(), |it| disk.within(&it)));
        }
        let stat = rustix::fs::stat(path)?;
        let mut found = Search { system: System::new(), pieces: Vec::new() };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                found.file(path, 0..u64::MAX, Step::Top, false);
            }
            FileType::BlockDevice => {
                found.disk(stat.st_rdev, path.to_owned(), 0..u64::MAX, Step::Top, false);
            }
            _ => {}
        }
        Ok(DiskIdentity { pieces: found.pieces })
    }

    /// The same of parts of it. The first comes last, so that what is at the bottom stays the same
    /// when there are more.
    pub(crate) fn within(&self, windows: &Windows) -> DiskIdentity {
        let others = windows.further().iter().rev().copied();
        let parts = others.chain([windows.first()]);
        DiskIdentity { pieces: parts.flat_map(|part| self.pieces_within(part)).collect() }
    }

    /// The pieces of which a part of it consists.
    pub(crate) fn pieces_within(&self, part: Window) -> impl Iterator<Item = Piece> {
        let bytes = part.offset_bytes..part.end();
        self.pieces.iter().map(move |piece| {
            // Where on them its bytes are is not known, of all or of a part.
            if piece.is_spread {
                return piece.clone();
            }
            let (within, end) = (moved(&bytes, piece.bytes.start), piece.bytes.end);
            Piece { bytes: within.start.min(end)..within.end.min(end), ..piece.clone() }
        })
    }

    /// Follows a block device by its number.
    pub(crate) fn of_disk(number: u64) -> DiskIdentity {
        let mut found = Search { system: System::new(), pieces: Vec::new() };
        let path = found.system.node(number);
        found.disk(number, path, 0..u64::MAX, Step::Top, false);
        DiskIdentity { pieces: found.pieces }
    }

    /// What both have bytes of, the highest of it.
    pub fn shared_with(&self, other: &DiskIdentity) -> Option<&Piece> {
        self.pieces.iter().find(|ours| other.pieces.iter().any(|theirs| share_bytes(ours, theirs)))
    }

    /// Whether one of both is the other, under whatever names: all of it, and not a part.
    pub fn is_same(&self, other: &DiskIdentity) -> bool {
        let is_share = |it: &DiskIdentity| it.pieces.first().is_some_and(|it| it.bytes.start > 0);
        if is_share(self) || is_share(other) {
            // Where it ends may have changed since; no two begin at the same byte.
            let begin = |it: &DiskIdentity| it.bottom().map(|it| (it.object, it.bytes.start));
            return begin(self) == begin(other);
        }
        let is_whole_of = |upper: &DiskIdentity, lower: &DiskIdentity| {
            let Some(top) = lower.pieces.first() else { return false };
            // A loop device ends where its file ended when it was made, in whole sectors.
            let end = match top.object {
                Object::File { .. } => fs::metadata(&top.path).map_or(0, |it| it.len() / 512 * 512),
                Object::Disk(_) => top.bytes.end,
            };
            upper.pieces.iter().any(|piece| {
                piece.object == top.object
                    && !piece.is_spread
                    && piece.bytes.start == 0
                    && piece.bytes.end >= end
            })
        };
        is_whole_of(self, other) || is_whole_of(other, self)
    }

    /// Whether its bytes are those of `disk`, or some of them: another name, a part, or what lies
    /// on it. Not what `disk` itself lies on, unless that is all of it.
    pub fn is_of(&self, disk: &DiskIdentity) -> bool {
        let Some(top) = self.pieces.first() else { return false };
        let mut below = disk.pieces.iter().filter(|piece| piece.step != Step::Top);
        let is_below = below.any(|piece| piece.object == top.object);
        self.shared_with(disk).is_some() && (!is_below || self.is_same(disk))
    }

    /// Whether this block device is one of its layers.
    pub(crate) fn lies_on(&self, number: u64) -> bool {
        self.pieces.iter().any(|piece| piece.object == Object::Disk(number))
    }

    /// The last layer that is known.
    pub fn bottom(&self) -> Option<&Piece> {
        self.pieces.last()
    }
}

/// Two that somebody has spread over one disk are kept apart by that somebody.
fn share_bytes(first: &Piece, second: &Piece) -> bool {
    first.object == second.object
        && !(first.is_spread && second.is_spread)
        && first.bytes.start.max(second.bytes.start) < first.bytes.end.min(second.bytes.end)
}

/// Whether two files or disks lie on the same disk, as far as the layers below them are known: with
/// it, both are gone. Files of one file system without a disk are on one, too.
pub(crate) fn is_on_one_disk(first: &Path, second: &Path) -> bool {
    let disks = |path: &Path| {
        let pieces = DiskIdentity::of(path).map_or(Vec::new(), |found| found.pieces);
        let number = |piece: &Piece| match piece.object {
            Object::File { device, .. } => whole_disk(device),
            Object::Disk(number) => whole_disk(number),
        };
        pieces.iter().map(number).collect::<Vec<u64>>()
    };
    let theirs = disks(second);
    disks(first).iter().any(|disk| theirs.contains(disk))
}

/// Two of the disks that are named, if they share bytes, and what they share.
pub fn same_disks<'p>(paths: &[&'p Path]) -> Option<(&'p Path, &'p Path, PathBuf)> {
    // Network disks have no bytes on this machine.
    let is_same = |at: &usize| is_network(paths[*at]) && paths[..*at].contains(&paths[*at]);
    if let Some(path) = (0..paths.len()).find(is_same).map(|at| paths[at]) {
        return Some((path, path, path.to_owned()));
    }
    // What is not there shares nothing; opening it says so.
    let known = paths.iter().filter_map(|path| Some((*path, DiskIdentity::of(path).ok()?)));
    let known: Vec<(&Path, DiskIdentity)> = known.collect();
    for (index, (second, identity)) in known.iter().enumerate() {
        for (first, earlier) in &known[..index] {
            if let Some(piece) = identity.shared_with(earlier) {
                return Some((*first, *second, piece.path.clone()));
            }
        }
    }
    None
}

/// Following from layer to layer.
struct Search {
    system: System,
    pieces: Vec<Piece>,
}

impl Search {
    fn push(&mut self, piece: Piece) -> bool {
        let is_new = self.pieces.len() < DEPTH_MAX && !self.pieces.contains(&piece);
        if is_new {
            self.pieces.push(piece);
        }
        is_new
    }

    fn file(&mut self, path: &Path, bytes: Range<u64>, step: Step, is_spread: bool) {
        let Ok(stat) = rustix::fs::stat(path) else { return };
        let object = Object::File { device: stat.st_dev, inode: stat.st_ino };
        // An absolute name, which still leads there when it is told or recorded.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let piece = Piece { object, bytes: bytes.clone(), path: path.clone(), step, is_spread };
        if self.push(piece)
            && let Some(below) = self.system.below_overlay(&path)
        {
            self.file(&below, bytes, Step::Unguarded, is_spread);
        }
    }

    fn disk(&mut self, number: u64, path: PathBuf, bytes: Range<u64>, step: Step, is_spread: bool) {
        let bytes = match self.system.disk_bytes(number) {
            Some(size) if bytes.end > size => bytes.start.min(size)..size,
            _ => bytes,
        };
        let object = Object::Disk(number);
        if !self.push(Piece { object, bytes: bytes.clone(), path, step, is_spread }) {
            return;
        }
        if let Some((whole, start)) = self.system.partition_of(number) {
            let within = moved(&bytes, start);
            let path = self.system.node(whole);
            return self.disk(whole, path, within, Step::Kernel, is_spread);
        }
        if let Some(backing) = self.system.loop_backing(number) {
            let mut within = moved(&bytes, backing.offset);
            if backing.size_limit > 0 {
                within.end = within.end.min(backing.offset.saturating_add(backing.size_limit));
            }
            return match backing.rdevice {
                0 => self.backing_file(&backing, within, is_spread),
                disk => {
                    let path = self.system.node(disk);
                    self.disk(disk, path, within, Step::Unguarded, is_spread);
                }
            };
        }
        for below in self.system.spread_over(number) {
            let path = self.system.node(below);
            self.disk(below, path, 0..u64::MAX, Step::Kernel, true);
        }
    }

    /// The kernel knows the file even where no name of it can be seen from here.
    fn backing_file(&mut self, backing: &LoopBacking, bytes: Range<u64>, is_spread: bool) {
        let path = &backing.path;
        let found = rustix::fs::stat(path);
        if found.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (backing.device, backing.inode)) {
            return self.file(path, bytes, Step::Unguarded, is_spread);
        }
        let object = Object::File { device: backing.device, inode: backing.inode };
        let path = path.clone();
        self.push(Piece { object, bytes, path, step: Step::Unguarded, is_spread });
    }
}

fn moved(bytes: &Range<u64>, by: u64) -> Range<u64> {
    bytes.start.saturating_add(by)..bytes.end.saturating_add(by)
}

/// What the kernel tells of devices.
pub(crate) struct System {
    /// `/sys`, in a test a copy.
    root: PathBuf,
    mounts: Vec<Mount>,
}

impl System {
    pub(crate) fn new() -> System {
        System { root: "/sys".into(), mounts: mounts() }
    }

    fn directory(&self, number: u64) -> PathBuf {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        self.root.join(format!("dev/block/{major}:{minor}"))
    }

    fn number(&self, file: &Path) -> Option<u64> {
        let text = fs::read_to_string(file).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    }

    fn sectors(&self, number: u64, file: &str) -> Option<u64> {
        let text = fs::read_to_string(self.directory(number).join(file)).ok()?;
        Some(text.trim().parse::<u64>().ok()?.saturating_mul(512))
    }

    /// Its name below `/dev`.
    pub(crate) fn node(&self, number: u64) -> PathBuf {
        let text = fs::read_to_string(self.directory(number).join("uevent")).unwrap_or_default();
        let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="));
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Path::new("/dev").join(name.map_or(format!("block/{major}:{minor}"), str::to_owned))
    }

    fn disk_bytes(&self, number: u64) -> Option<u64> {
        self.sectors(number, "size").filter(|size| *size > 0)
    }

    /// The whole disk of a partition, and where it begins there.
    fn partition_of(&self, number: u64) -> Option<(u64, u64)> {
        let directory = self.directory(number);
        if !directory.join("partition").exists() {
            return None;
        }
        // What is below `dev/block` is a link into the tree, where partitions are below their disk.
        let whole = self.number(&directory.join("../dev"))?;
        Some((whole, self.sectors(number, "start")?))
    }

    /// Disks that a device is spread over by the device mapper or md.
    fn spread_over(&self, number: u64) -> Vec<u64> {
        let entries = fs::read_dir(self.directory(number).join("slaves")).into_iter().flatten();
        let mut found: Vec<u64> =
            entries.flatten().filter_map(|entry| self.number(&entry.path().join("dev"))).collect();
        found.sort_unstable();
        found
    }

    /// Loop devices that are in use.
    pub(crate) fn loop_devices(&self) -> Vec<u64> {
        let entries = fs::read_dir(self.root.join("block")).into_iter().flatten().flatten();
        let directories = entries.map(|entry| entry.path());
        let in_use = directories.filter(|directory| directory.join("loop/backing_file").exists());
        in_use.filter_map(|directory| self.number(&directory.join("dev"))).collect()
    }

    /// What is below a loop device. Files of file systems that a process or another machine gives
    /// are known by their names only: to ask for more could wait for it for ever.
    fn loop_backing(&self, number: u64) -> Option<LoopBacking> {
        let directory = self.directory(number).join("loop");
        let name = fs::read(directory.join("backing_file")).ok()?;
        let name = name.strip_suffix(b"\n").unwrap_or(&name);
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(name));
        if self.may_hang(&path) {
            return None;
        }
        let node = File::open(self.node(number));
        let asked = node.ok().filter(|node| is_disk(node, number));
        if let Some(Ok(backing)) = asked.map(|node| loop_device::backing(&node, path.clone())) {
            return Some(backing);
        }
        // Without the right to open the device there is only what everybody is told.
        let bytes = |file: &str| {
            let text = fs::read_to_string(directory.join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let stat = rustix::fs::stat(&path).ok()?;
        let is_disk = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
        Some(LoopBacking {
            path,
            device: stat.st_dev,
            inode: stat.st_ino,
            rdevice: if is_disk { stat.st_rdev } else { 0 },
            offset: bytes("offset")?,
            size_limit: bytes("sizelimit")?,
        })
    }

    fn may_hang(&self, path: &Path) -> bool {
        let kind = mount_of(&self.mounts, path).map(|mount| mount.kind.as_str());
        kind.is_some_and(|kind| {
            let others = ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "virtiofs"];
            kind.starts_with("fuse") && kind != "fuseblk" || others.contains(&kind)
        })
    }

    /// The file that a file of an overlay really is, where its layers can be seen from here.
    fn below_overlay(&self, path: &Path) -> Option<PathBuf> {
        let mount = mount_of(&self.mounts, path).filter(|mount| mount.kind == "overlay")?;
        let within = mount.root.join(path.strip_prefix(&mount.place).ok()?);
        let within = within.strip_prefix("/").unwrap_or(&within).to_owned();
        let layers = overlay_layers(&mount.options);
        let files = layers.iter().map(|layer| layer.join(&within));
        // The highest layer that has it counts.
        let is_file = |file: &PathBuf| fs::symlink_metadata(file).is_ok_and(|it| it.is_file());
        files.into_iter().find(is_file)
    }
}

fn is_disk(node: &File, number: u64) -> bool {
    rustix::fs::fstat(node).is_ok_and(|stat| stat.st_rdev == number)
}

/// The directories of an overlay, the highest first.
fn overlay_layers(options: &str) -> Vec<PathBuf> {
    let mut upper = Vec::new();
    let mut lower = Vec::new();
    for option in options.split(',') {
        match option.split_once('=') {
            Some(("upperdir", directory)) => upper.push(directory.into()),
            Some(("lowerdir" | "lowerdir+" | "datadir+", directories)) => {
                let directories = directories.split(':').filter(|name| !name.is_empty());
                lower.extend(directories.map(PathBuf::from));
            }
            _ => {}
        }
    }
    upper.append(&mut lower);
    upper
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path =
                std::env::temp_dir().join(format!("dcd-identity-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn links_are_the_file() {
        let folder = Folder::new("links");
        let (file, hard, soft, other) =
            (folder.0.join("f"), folder.0.join("h"), folder.0.join("s"), folder.0.join("o"));
        fs::write(&file, "x").unwrap();
        fs::write(&other, "x").unwrap();
        fs::hard_link(&file, &hard).unwrap();
        std::os::unix::fs::symlink(&file, &soft).unwrap();
        for name in [&hard, &soft] {
            assert_eq!(same_disks(&[&other, &file, name]).unwrap().0, file.as_path());
            let of = |path: &Path| DiskIdentity::of(path).unwrap();
            assert!(of(name).is_same(&of(&file)) && !of(name).is_same(&of(&other)));
        }
        assert_eq!(same_disks(&[&file, &other, &folder.0.join("missing")]), None);
        assert!(DiskIdentity::of(&folder.0).unwrap().pieces.is_empty());
    }

    /// A tree as the kernel shows it: sda with two partitions, two mapped devices on sda2, md of
    /// sdb and sdc.
    fn tree(root: &Path) -> System {
        let link = |number: &str, target: &str| {
            fs::create_dir_all(root.join("dev/block")).unwrap();
            let target = Path::new("../..").join(target);
            std::os::unix::fs::symlink(target, root.join("dev/block").join(number)).unwrap();
        };
        let device = |place: &str, number: &str, sectors: u64, start: Option<u64>| {
            let directory = root.join(place);
            fs::create_dir_all(directory.join("slaves")).unwrap();
            fs::write(directory.join("dev"), format!("{number}\n")).unwrap();
            fs::write(directory.join("size"), format!("{sectors}\n")).unwrap();
            let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
            fs::write(directory.join("uevent"), format!("MAJOR=8\nDEVNAME={name}\n")).unwrap();
            if let Some(start) = start {
                fs::write(directory.join("partition"), "1\n").unwrap();
                fs::write(directory.join("start"), format!("{start}\n")).unwrap();
            }
            link(number, place);
        };
        device("devices/sda", "8:0", 10_000, None);
        device("devices/sda/sda1", "8:1", 1000, Some(2048));
        device("devices/sda/sda2", "8:2", 1000, Some(4096));
        device("devices/sdb", "8:16", 10_000, None);
        device("devices/sdc", "8:32", 10_000, None);
        device("devices/dm-0", "253:0", 100, None);
        device("devices/dm-1", "253:1", 100, None);
        device("devices/md0", "9:0", 10_000, None);
        device("devices/md0/md0p1", "259:0", 100, Some(8));
        device("devices/md0/md0p2", "259:1", 100, Some(200));
        for (upper, lower) in
            [("dm-0", "sda/sda2"), ("dm-1", "sda/sda2"), ("md0", "sdb"), ("md0", "sdc")]
        {
            let name = lower.rsplit('/').next().unwrap();
            let place = root.join("devices").join(upper).join("slaves").join(name);
            std::os::unix::fs::symlink(root.join("devices").join(lower), place).unwrap();
        }
        System { root: root.to_owned(), mounts: Vec::new() }
    }

    #[test]
    fn partitions_and_mapped_devices_are_followed() {
        let folder = Folder::new("tree");
        drop(tree(&folder.0));
        let of = |major, minor| {
            let system = System { root: folder.0.clone(), mounts: Vec::new() };
            let mut found = Search { system, pieces: Vec::new() };
            let number = rustix::fs::makedev(major, minor);
            let path = found.system.node(number);
            found.disk(number, path, 0..u64::MAX, Step::Top, false);
            DiskIdentity { pieces: found.pieces }
        };
        let (sda, sda1, sda2) = (of(8, 0), of(8, 1), of(8, 2));
        let (sdb, md, md1, md2) = (of(8, 16), of(9, 0), of(259, 0), of(259, 1));
        let (first, second) = (of(253, 0), of(253, 1));
        let shares = |a: &DiskIdentity, b: &DiskIdentity| {
            assert_eq!(a.shared_with(b).is_some(), b.shared_with(a).is_some());
            a.shared_with(b).is_some()
        };
        assert!(shares(&sda, &sda1) && shares(&sda, &sda2) && !shares(&sda1, &sda2));
        assert!(shares(&first, &sda2) && shares(&first, &sda) && !shares(&first, &sda1));
        assert!(!shares(&first, &second) && shares(&first, &first));
        assert!(shares(&md, &sdb) && shares(&md1, &md) && shares(&md2, &sdb));
        assert!(!shares(&md1, &md2) && !shares(&md, &sda));
        assert!(sda1.is_of(&sda) && first.is_of(&sda2) && first.is_of(&sda) && md1.is_of(&md));
        assert!(!sda.is_of(&sda1) && !sda2.is_of(&first) && !md.is_of(&md1) && !sdb.is_of(&md));
        assert!(md.is_of(&sdb) && !md1.is_of(&sda) && !sda1.is_of(&sda2) && sda.is_of(&sda));
        assert!(sda.is_same(&sda) && !sda.is_same(&sda1) && !md.is_same(&sdb));
        assert_eq!(sda1.pieces[1].bytes, 2048 * 512..3048 * 512);
        assert_eq!(sda1.pieces[0].path, Path::new("/dev/sda1"));
    }

    #[test]
    fn layers_of_an_overlay_are_read() {
        let layers = overlay_layers("rw,lowerdir=/a:/b,upperdir=/u,workdir=/w");
        assert_eq!(layers, ["/u", "/a", "/b"].map(PathBuf::from));
        assert_eq!(overlay_layers("ro,lowerdir+=/a,lowerdir+=/b").len(), 2);
        assert!(overlay_layers("rw").is_empty());
    }
}
