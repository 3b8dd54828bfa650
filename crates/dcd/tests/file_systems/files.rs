//! A load of files, and which of them must be there after a crash.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::harness::random::{Random, sum, sum_of_file};
use crate::harness::{Site, search_path};

/// Fsynced files and their sums; a file that is being changed is not in it. And how many names were
/// lost.
#[derive(Clone, Default)]
pub struct Files(Arc<Mutex<BTreeMap<String, u64>>>, Arc<AtomicU64>, &'static str);

#[allow(dead_code)] // each test program uses its own part
impl Files {
    /// The same files for another writer, who works in a directory below: `"second/"`.
    pub fn below(&self, directory: &'static str) -> Files {
        Files(self.0.clone(), self.1.clone(), directory)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.2)
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Files whose name was lost, where that is allowed.
    pub fn names_lost(&self) -> u64 {
        self.1.load(Ordering::SeqCst)
    }

    /// The file system is made anew.
    pub fn forget(&self) {
        self.0.lock().unwrap().clear();
    }

    /// Every fsynced file is there, byte for byte; or at least every one that is there, if names
    /// may be lost. Returns how many.
    pub fn verify(&self, work: &Path, keeps_names: bool, what: &str) -> u64 {
        let mut synced = self.0.lock().unwrap();
        synced.retain(|name, expected| {
            let path = work.join(name);
            match fs::metadata(&path) {
                Ok(_) => {
                    assert_eq!(sum_of_file(&path), *expected, "{what}: {name} was fsynced");
                    true
                }
                Err(error) if keeps_names || error.kind() != ErrorKind::NotFound => {
                    panic!("{what}: {name} was fsynced: {error}")
                }
                Err(_) => {
                    self.1.fetch_add(1, Ordering::SeqCst);
                    false
                }
            }
        });
        synced.len() as u64
    }

    /// Files of 1 byte to 100 KB in a few directories: created, written again, renamed, removed.
    /// Goes on until the disk goes away.
    pub fn write(
        &self,
        work: &Path,
        newest_tree: &Path,
        mut random: Random,
        fsyncs: &AtomicU64,
    ) -> std::io::Result<()> {
        for number in 0.. {
            let directory = work.join(format!("dir{}", random.below(5)));
            fs::create_dir_all(&directory)?;
            let name = format!("dir{}/file{}", random.below(5), random.below(60));
            let path = work.join(&name);
            fs::create_dir_all(path.parent().unwrap())?;
            self.0.lock().unwrap().remove(&self.key(&name));
            match random.below(10) {
                0 => drop(fs::remove_file(&path)),
                1 if path.exists() => {
                    let to = format!("dir0/renamed{}", random.below(30));
                    self.0.lock().unwrap().remove(&self.key(&to));
                    fs::create_dir_all(work.join("dir0"))?;
                    fs::rename(&path, work.join(&to))?;
                }
                _ => {
                    let length =
                        if random.once_in(4) { random.below(100_000) } else { random.below(9000) };
                    let bytes = random.bytes(1 + length as usize);
                    let mut file = File::create(&path)?;
                    file.write_all(&bytes)?;
                    if random.once_in(2) {
                        file.sync_all()?;
                        File::open(path.parent().unwrap())?.sync_all()?;
                        File::open(work)?.sync_all()?;
                        self.0.lock().unwrap().insert(self.key(&name), sum(&bytes));
                        fsyncs.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
            if number % 20 == 19 {
                // Old trees go, but not the one that tar writes now.
                for old in fs::read_dir(work)?.flatten() {
                    let is_tree = old.file_name().to_string_lossy().starts_with("tree");
                    if is_tree && old.path() != newest_tree && random.once_in(2) {
                        fs::remove_dir_all(old.path())?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// 200 small files in 20 directories, as a tar archive.
pub fn make_tree(site: &Site, random: &mut Random) {
    for number in 0..200 {
        let path = site.path(&format!("source/d{}/f{number}", number % 20));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let length = 1 + random.below(12_000) as usize;
        fs::write(path, random.bytes(length)).unwrap();
    }
    site.run("tar cf tree.tar source");
}

/// Starts to unpack that archive.
pub fn unpack_tree(site: &Site, tree: &PathBuf) -> Child {
    Command::new("tar")
        .args(["xf", "tree.tar", "-C"])
        .arg(tree)
        .current_dir(site.path(""))
        .env("PATH", search_path())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
