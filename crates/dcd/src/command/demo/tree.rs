//! The source tree that is unpacked, copied and removed: as many files, directories and bytes as
//! Apache 1.3.3 had in the paper, the same in every run, as a tar archive.

use std::path::PathBuf;

use dcd_engine::format::checksum::crc32c;

/// Directories, the topmost included.
pub const DIRECTORIES: usize = 31;
/// Files.
pub const FILES: usize = 508;
/// Bytes of all files: 4.9 MiB, on average 9.9 KiB.
pub const BYTES: usize = (4.9 * 1048576.0) as usize;
/// Name of the topmost directory.
pub const TOP: &str = "tree";

const SEED: u64 = 1999;
/// A block of a tar archive.
const TAR_BLOCK: usize = 512;
/// 1 January 1999: the time of all files.
const TAR_TIME: u64 = 915_148_800;

/// A file.
pub struct TreeFile {
    /// Below the topmost directory, which is part of it.
    pub path: PathBuf,
    /// What is in it.
    pub content: Vec<u8>,
    /// CRC-32C of that.
    pub checksum: u32,
}

/// The tree.
pub struct Tree {
    /// Parents before children.
    pub directories: Vec<PathBuf>,
    /// The files, in the order of the archive.
    pub files: Vec<TreeFile>,
}

impl Tree {
    /// Makes it.
    pub fn new() -> Tree {
        let mut random = Random(SEED);
        let mut directories = vec![PathBuf::from(TOP)];
        for number in 1..DIRECTORIES {
            // A third of them lie deeper, like src/modules/standard.
            let parent = if number % 3 == 0 { random.below(number) } else { 0 };
            let name = directories[parent].join(format!("part-{number:02}"));
            directories.push(name);
        }
        let files = sizes(&mut random)
            .into_iter()
            .enumerate()
            .map(|(number, size)| {
                let directory = &directories[number * DIRECTORIES / FILES];
                let content: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
                let checksum = crc32c(&content);
                let path = directory.join(format!("file-{number:03}.c"));
                TreeFile { path, content, checksum }
            })
            .collect();
        Tree { directories, files }
    }

    /// The tree as a tar archive: each directory before its first file.
    pub fn archive(&self) -> Vec<u8> {
        let mut archive = Vec::with_capacity(BYTES + (FILES + DIRECTORIES + 2) * 2 * TAR_BLOCK);
        for directory in &self.directories {
            let name = format!("{}/", directory.display());
            archive.extend(tar_header(&name, 0o755, 0, b'5'));
            for file in self.files.iter().filter(|file| file.path.parent() == Some(directory)) {
                let name = file.path.display().to_string();
                archive.extend(tar_header(&name, 0o644, file.content.len(), b'0'));
                archive.extend(&file.content);
                archive.resize(archive.len().next_multiple_of(TAR_BLOCK), 0);
            }
        }
        archive.resize(archive.len() + 2 * TAR_BLOCK, 0);
        archive
    }
}

/// Sizes with many small and a few large among them, that are `BYTES` together.
fn sizes(random: &mut Random) -> Vec<usize> {
    // The product of four even draws is skewed as sources are.
    let weights: Vec<usize> =
        (0..FILES).map(|_| (0..4).map(|_| 4 + random.below(60)).product()).collect();
    let sum: usize = weights.iter().sum();
    let mut sizes: Vec<usize> = weights
        .iter()
        .map(|weight| (BYTES as u128 * *weight as u128 / sum as u128) as usize)
        .collect();
    // What rounding has left over.
    let rest = BYTES - sizes.iter().sum::<usize>();
    sizes[0] += rest;
    sizes
}

/// A header in the ustar form.
fn tar_header(name: &str, mode: u32, size: usize, kind: u8) -> [u8; TAR_BLOCK] {
    let mut header = [0; TAR_BLOCK];
    let mut put = |offset: usize, text: &str| {
        header[offset..offset + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, name);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, &format!("{TAR_TIME:011o}"));
    put(148, "        ");
    put(156, std::str::from_utf8(&[kind]).unwrap_or("0"));
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\u{0} ").as_bytes());
    header
}

/// Numbers that look random and are the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_as_large_as_the_papers_and_always_the_same() {
        let tree = Tree::new();
        assert_eq!((tree.directories.len(), tree.files.len()), (31, 508));
        let bytes: usize = tree.files.iter().map(|file| file.content.len()).sum();
        assert_eq!(bytes, BYTES);
        assert_eq!(crc32c(&tree.archive()), crc32c(&Tree::new().archive()));
        let parents = tree.directories.iter().skip(1).map(|one| one.parent().unwrap().to_owned());
        assert!(parents.into_iter().all(|parent| tree.directories.contains(&parent)));
    }

    #[test]
    fn tar_unpacks_the_archive() {
        use std::io::Write;
        let folder = std::env::temp_dir().join(format!("dcd-tree-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut tar = std::process::Command::new("tar")
            .args(["-x", "-C"])
            .arg(&folder)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let tree = Tree::new();
        tar.stdin.take().unwrap().write_all(&tree.archive()).unwrap();
        assert!(tar.wait().unwrap().success());
        for file in &tree.files {
            assert!(std::fs::read(folder.join(&file.path)).unwrap() == file.content);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
