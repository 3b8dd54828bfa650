//! A file system on a device in memory, next to a model of what must be in it.

#![allow(dead_code)] // each test program uses its own part

use std::collections::BTreeMap;
use std::sync::Arc;

use dcd_client::{BlockDevice, Geometry, MemoryDevice};
use dhisfs::{
    AttributesChange, FileSystem, FsError, MakeOptions, MountOptions, NewFile, RenameMode, make,
};

pub const DIRECTORY: u32 = 0o040_755;
pub const FILE: u32 = 0o100_644;
pub const LINK: u32 = 0o120_777;

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

pub fn device(blocks: u64) -> MemoryDevice {
    MemoryDevice::new(Geometry { block_bytes: 4096, blocks })
}

pub fn make_options() -> MakeOptions {
    MakeOptions { journal_blocks: Some(128), force: false, uuid: [7; 16], uid: 1, gid: 2 }
}

pub fn mounted(blocks: u64) -> FileSystem<MemoryDevice> {
    let mut device = device(blocks);
    make(&mut device, &make_options()).unwrap();
    FileSystem::mount(device, MountOptions::default()).unwrap()
}

pub fn errno<T>(result: Result<T, FsError>) -> i32 {
    result.err().expect("an error").errno()
}

/// Panics with what is wrong, if something is.
pub fn check<D: BlockDevice>(fs: &mut FileSystem<D>) {
    let report = fs.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new(), "{report:?}");
}

/// What has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    Directory,
    Link(Vec<u8>),
    File(usize),
}

/// What must be there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Model {
    /// By path, without a slash in front; the root is not in here.
    pub nodes: BTreeMap<String, Node>,
    /// Contents; shared between models of different moments.
    pub files: Vec<Arc<Vec<u8>>>,
    /// How often each was changed.
    pub changes: Vec<u64>,
}

/// Something to do.
#[derive(Clone, Debug)]
pub enum Op {
    Create(String),
    MakeDirectory(String),
    Symlink(String),
    Link(String, String),
    Unlink(String),
    RemoveDirectory(String),
    Rename(String, String),
    Write(String, u64, Vec<u8>),
    Truncate(String, u64),
    Sync,
}

pub fn parent_of(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

pub fn find<D: BlockDevice>(fs: &mut FileSystem<D>, path: &str) -> Result<u64, FsError> {
    let names = path.split('/').filter(|name| !name.is_empty());
    let root = fs.root();
    names.into_iter().try_fold(root, |directory, name| fs.lookup(directory, name.as_bytes()))
}

impl Model {
    pub fn random_op(&self, random: &mut Random) -> Op {
        let directories: Vec<&str> = [""]
            .into_iter()
            .chain(self.nodes.iter().filter(|it| *it.1 == Node::Directory).map(|it| it.0.as_str()))
            .collect();
        let all: Vec<&String> = self.nodes.keys().collect();
        let files: Vec<&String> =
            self.nodes.iter().filter(|it| matches!(it.1, Node::File(_))).map(|it| it.0).collect();
        let new_path = |random: &mut Random| {
            let directory = directories[random.below(directories.len())];
            // Few names, so that they meet; some long, so that directories have several blocks.
            let name = match random.below(4) {
                0 => format!("{}{}", "long".repeat(50), random.below(40)),
                _ => format!("n{}", random.below(30)),
            };
            if directory.is_empty() { name } else { format!("{directory}/{name}") }
        };
        let any = |random: &mut Random| match all.is_empty() {
            true => "nothing".to_owned(),
            false => all[random.below(all.len())].clone(),
        };
        let file = |random: &mut Random| match files.is_empty() {
            true => "nothing".to_owned(),
            false => files[random.below(files.len())].clone(),
        };
        match random.below(20) {
            0..=3 => Op::Create(new_path(random)),
            4 => Op::MakeDirectory(new_path(random)),
            5 => Op::Symlink(new_path(random)),
            6 => Op::Link(any(random), new_path(random)),
            7..=8 => Op::Unlink(any(random)),
            9 => Op::RemoveDirectory(any(random)),
            10..=11 => Op::Rename(any(random), new_path(random)),
            12 => Op::Rename(any(random), any(random)),
            13..=16 => {
                // Near the beginning, or where trees of lists begin, grow, and end.
                let around = [0, 4096, 10_000, 365 * 4096, (365 + 508) * 4096];
                let offset = around[random.below(5).min(random.below(5))] + random.below(9000);
                let length = 1 + random.below(12_000);
                let byte = random.below(255) as u8 + 1;
                Op::Write(file(random), offset as u64, vec![byte; length])
            }
            17 => {
                let around = [0, 0, 4096, 365 * 4096, (365 + 508) * 4096];
                Op::Truncate(file(random), (around[random.below(5)] + random.below(6000)) as u64)
            }
            _ => Op::Sync,
        }
    }

    /// Whether it works.
    pub fn apply(&mut self, op: &Op) -> bool {
        let is_directory = |model: &Model, path: &str| {
            path.is_empty() || model.nodes.get(path) == Some(&Node::Directory)
        };
        let is_empty = |model: &Model, path: &str| {
            let below = format!("{path}/");
            !model.nodes.keys().any(|other| other.starts_with(&below))
        };
        let can_make = |model: &Model, path: &str| {
            is_directory(model, parent_of(path).0) && !model.nodes.contains_key(path)
        };
        match op {
            Op::Create(path) => {
                if !can_make(self, path) {
                    return false;
                }
                self.nodes.insert(path.clone(), Node::File(self.files.len()));
                self.files.push(Arc::default());
                self.changes.push(0);
            }
            Op::MakeDirectory(path) | Op::Symlink(path) => {
                if !can_make(self, path) {
                    return false;
                }
                let node = match op {
                    Op::Symlink(_) => Node::Link(b"somewhere".to_vec()),
                    _ => Node::Directory,
                };
                self.nodes.insert(path.clone(), node);
            }
            Op::Link(old, new) => {
                let Some(node) = self.nodes.get(old).cloned() else { return false };
                if node == Node::Directory || !can_make(self, new) {
                    return false;
                }
                // Symbolic links with two names are files like others, which the model does not
                // know.
                if matches!(node, Node::Link(_)) {
                    return false;
                }
                self.nodes.insert(new.clone(), node);
            }
            Op::Unlink(path) => {
                match self.nodes.get(path) {
                    None | Some(Node::Directory) => return false,
                    _ => self.nodes.remove(path),
                };
            }
            Op::RemoveDirectory(path) => {
                if self.nodes.get(path) != Some(&Node::Directory) || !is_empty(self, path) {
                    return false;
                }
                self.nodes.remove(path);
            }
            Op::Rename(old, new) => {
                let Some(node) = self.nodes.get(old).cloned() else { return false };
                let moves_directory = node == Node::Directory;
                let below = format!("{old}/");
                if !is_directory(self, parent_of(new).0) || new.starts_with(&below) {
                    return false;
                }
                if old == new {
                    return true;
                }
                match self.nodes.get(new) {
                    None => {}
                    Some(other) if *other == node && matches!(node, Node::File(_)) => return true,
                    Some(Node::Directory) if !moves_directory || !is_empty(self, new) => {
                        return false;
                    }
                    Some(Node::Directory) => {}
                    Some(_) if moves_directory => return false,
                    Some(_) => {}
                }
                self.nodes.remove(old);
                self.nodes.insert(new.clone(), node);
                let moved: Vec<_> =
                    self.nodes.keys().filter(|path| path.starts_with(&below)).cloned().collect();
                for path in moved {
                    let node = self.nodes.remove(&path).unwrap();
                    self.nodes.insert(format!("{new}/{}", &path[below.len()..]), node);
                }
            }
            Op::Write(path, offset, data) => {
                let Some(Node::File(file)) = self.nodes.get(path) else { return false };
                self.changes[*file] += 1;
                let contents = Arc::make_mut(&mut self.files[*file]);
                let (start, end) = (*offset as usize, *offset as usize + data.len());
                contents.resize(contents.len().max(end), 0);
                contents[start..end].copy_from_slice(data);
            }
            Op::Truncate(path, size) => {
                let Some(Node::File(file)) = self.nodes.get(path) else { return false };
                self.changes[*file] += 1;
                Arc::make_mut(&mut self.files[*file]).resize(*size as usize, 0);
            }
            Op::Sync => {}
        }
        true
    }

    /// What is there: names and sizes, without contents.
    pub fn tree(&self) -> BTreeMap<String, Seen> {
        let links = |node: &Node| self.nodes.values().filter(|other| *other == node).count();
        let nodes = self.nodes.iter().map(|(path, node)| {
            let seen = match node {
                Node::Directory => Seen::Directory,
                Node::Link(target) => Seen::Link(target.clone()),
                Node::File(file) => Seen::File(self.files[*file].len() as u64, links(node)),
            };
            (path.clone(), seen)
        });
        nodes.collect()
    }
}

/// What can be seen of a file from outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    Directory,
    Link(Vec<u8>),
    /// Size, names.
    File(u64, usize),
}

/// Does it; whether it works. Anything but a refusal is a panic.
pub fn run<D: BlockDevice>(fs: &mut FileSystem<D>, op: &Op) -> bool {
    let result = try_run(fs, op);
    match result {
        Ok(()) => true,
        Err(FsError::Refused(_)) => false,
        Err(error) => panic!("{op:?}: {error}"),
    }
}

pub fn try_run<D: BlockDevice>(fs: &mut FileSystem<D>, op: &Op) -> Result<(), FsError> {
    let place = |fs: &mut FileSystem<D>, path: &str| {
        let (parent, name) = parent_of(path);
        Ok::<_, FsError>((find(fs, parent)?, name.as_bytes().to_vec()))
    };
    let create = |fs: &mut FileSystem<D>, path: &str, mode: u32, target: &[u8]| {
        let (parent, name) = place(fs, path)?;
        let new = NewFile { mode, target: target.to_vec(), ..NewFile::default() };
        fs.create(parent, &name, &new).map(|_| ())
    };
    match op {
        Op::Create(path) => create(fs, path, FILE, b""),
        Op::MakeDirectory(path) => create(fs, path, DIRECTORY, b""),
        Op::Symlink(path) => create(fs, path, LINK, b"somewhere"),
        Op::Link(old, new) => {
            let file = find(fs, old)?;
            if fs.inode(file)?.is_link() {
                return Err(FsError::Refused(1));
            }
            let (parent, name) = place(fs, new)?;
            fs.link(file, parent, &name)
        }
        Op::Unlink(path) => {
            let (parent, name) = place(fs, path)?;
            fs.unlink(parent, &name)
        }
        Op::RemoveDirectory(path) => {
            let (parent, name) = place(fs, path)?;
            fs.remove_directory(parent, &name)
        }
        Op::Rename(old, new) => {
            let (from, old_name) = place(fs, old)?;
            let (to, new_name) = place(fs, new)?;
            fs.rename((from, &old_name), (to, &new_name), RenameMode::Replace)
        }
        Op::Write(path, offset, data) => {
            let file = find(fs, path)?;
            let written = fs.write(file, *offset, data)?;
            assert_eq!(written, data.len(), "there is room");
            Ok(())
        }
        Op::Truncate(path, size) => {
            let file = find(fs, path)?;
            if !fs.inode(file)?.is_file() {
                return Err(FsError::Refused(1));
            }
            let size = Some(*size);
            fs.set_attributes(file, &AttributesChange { size, ..AttributesChange::default() })
        }
        Op::Sync => fs.sync(),
    }
}

/// What is there: names and sizes, and the inodes of the files.
pub fn tree<D: BlockDevice>(
    fs: &mut FileSystem<D>,
) -> (BTreeMap<String, Seen>, BTreeMap<String, u64>) {
    let (mut seen, mut inodes) = (BTreeMap::new(), BTreeMap::new());
    let mut open = vec![(String::new(), fs.root())];
    while let Some((path, directory)) = open.pop() {
        for entry in fs.list(directory).unwrap() {
            let name = String::from_utf8(entry.name.into_vec()).unwrap();
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            let inode = fs.inode(entry.inode).unwrap();
            let what = if inode.is_directory() {
                open.push((path.clone(), entry.inode));
                Seen::Directory
            } else if inode.is_link() {
                Seen::Link(inode.target.clone())
            } else {
                inodes.insert(path.clone(), entry.inode);
                Seen::File(inode.size, inode.links as usize)
            };
            seen.insert(path, what);
        }
    }
    (seen, inodes)
}

/// Compares everything.
pub fn compare<D: BlockDevice>(fs: &mut FileSystem<D>, model: &Model) {
    let (seen, inodes) = tree(fs);
    assert_eq!(seen, model.tree());
    for (path, inode) in inodes {
        let Some(Node::File(file)) = model.nodes.get(&path) else { unreachable!("compared") };
        let expected = &model.files[*file];
        let found = fs.read(inode, 0, expected.len() + 1).unwrap();
        if found != **expected {
            let at = found.iter().zip(&**expected).position(|(a, b)| a != b);
            panic!("{path} differs at {at:?} of {} bytes", expected.len());
        }
    }
}
