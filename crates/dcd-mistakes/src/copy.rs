//! The copy of the sources with the mistakes in them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::apply::Edited;
use crate::generate::{self, ENGINE_LIB, SWITCH_LIB};
use crate::table::Table;

/// What was done.
#[derive(Clone, Copy, Default, Debug)]
pub struct Copied {
    /// Files of the copy.
    pub files: usize,
    /// Those that were written; all others were as they are to be, and keep their times.
    pub written: usize,
    /// Files that were in the copy, and are no longer in the sources.
    pub removed: usize,
}

/// Makes or renews the copy. What has not changed is not touched, so that Cargo builds only what
/// has.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy(root: &Path, edited: &Edited, table: &Table, target: &Path) -> io::Result<Copied> {
    let mut copied = Copied::default();
    let mut kept = BTreeSet::new();
    let mut put = |path: &str, bytes: &[u8]| {
        let to = target.join(path);
        copied.files += 1;
        kept.insert(to.clone());
        if std::fs::read(&to).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        copied.written += 1;
        std::fs::create_dir_all(to.parent().expect("within the copy"))?;
        std::fs::write(&to, bytes)
    };
    let lib = |path| std::fs::read_to_string(root.join(path));
    let generated = generate::files(table, &lib(SWITCH_LIB)?, &lib(ENGINE_LIB)?);
    for path in sources(root)? {
        let name = path.strip_prefix(root).expect("it was found there").to_string_lossy();
        if generated.iter().any(|(path, _)| *path == name) {
            continue;
        }
        match edited.get(&*name) {
            Some(text) => put(&name, text.as_bytes())?,
            None => put(&name, &std::fs::read(&path)?)?,
        }
    }
    for (path, text) in &generated {
        put(path, text.as_bytes())?;
    }
    for path in files(target, &|_, _| true)? {
        if !kept.contains(&path) {
            std::fs::remove_file(&path)?;
            copied.removed += 1;
        }
    }
    Ok(copied)
}

/// The files of the workspace: not what was built, nor what is hidden. A module may be called
/// `target`, too, so a folder of Cargo is known by the mark that it puts there.
fn sources(root: &Path) -> io::Result<Vec<PathBuf>> {
    let built = root.join("target");
    files(root, &|path, name| {
        !name.starts_with('.') && path != built && !path.join("CACHEDIR.TAG").exists()
    })
}

/// All files in a folder and below, of folders and files that are wanted (path and name); in order.
fn files(folder: &Path, is_wanted: &dyn Fn(&Path, &str) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(&folder)? {
            let item = item?;
            if !is_wanted(&item.path(), &item.file_name().to_string_lossy()) {
                continue;
            }
            let kind = item.file_type()?;
            if kind.is_dir() {
                folders.push(item.path());
            } else if kind.is_file() {
                found.push(item.path());
            }
        }
    }
    found.sort();
    Ok(found)
}
