//! Files that take the place of nothing: what is there may be the only copy of something. What takes
//! long to write has another name until it is whole: who is killed leaves no half under its own.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, rename, renameat_with};
use rustix::io::Errno;

use crate::error::CommandError;

/// Nothing is at that place: asked before an hour is spent on what goes there.
///
/// # Errors
/// As if it had been made there.
pub fn not_there(path: &Path) -> Result<(), CommandError> {
    match path.symlink_metadata() {
        Ok(_) => Err(is_there(path)),
        Err(_) => Ok(()),
    }
}

/// That something is at the place of a new file, in the words of the system.
pub fn is_there(path: &Path) -> CommandError {
    CommandError::file("create", path)(Errno::EXIST.into())
}

/// The name beside its own that a file or directory has until it is whole. Who finds one knows that
/// its maker was killed, and what it is called.
pub fn part_of(path: &Path) -> PathBuf {
    path.with_added_extension("part")
}

/// Makes a file or directory under the name of its part, if nothing is at its own.
///
/// # Errors
/// As if it had been made at its own name, or that the part is there: another process is at it, or
/// was killed.
pub fn make_part<T>(
    path: &Path,
    make: impl FnOnce(&Path) -> std::io::Result<T>,
) -> Result<T, CommandError> {
    not_there(path)?;
    let part = part_of(path);
    make(&part).map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => CommandError::file("create", &part)(source),
        _ => CommandError::file("create", path)(source),
    })
}

/// The same for a file, whose name does not end as only that of a directory may: that would be seen
/// at the end.
pub fn make_part_of_file(path: &Path) -> Result<std::fs::File, CommandError> {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(CommandError::file("create", path)(Errno::ISDIR.into()));
    }
    make_part(path, |part| std::fs::File::create_new(part))
}

/// It is whole: gives it its own name, unless something has come there meanwhile.
pub fn part_is_whole(path: &Path) -> Result<(), CommandError> {
    let part = part_of(path);
    let renamed = match renameat_with(CWD, &part, CWD, path, RenameFlags::NOREPLACE) {
        // Some file systems, of networks and in userspace, cannot rename so.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            not_there(path)?;
            rename(&part, path)
        }
        renamed => renamed,
    };
    renamed.map_err(|source| CommandError::file("create", path)(source.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_gets_its_name_and_takes_that_of_nothing() {
        let folder = std::env::temp_dir().join(format!("dcd-part-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("t.csv");
        let make = || make_part_of_file(&path);
        drop(make().unwrap());
        assert!(!path.exists() && folder.join("t.csv.part").exists());
        let error = make().unwrap_err().to_string();
        assert!(error.contains("t.csv.part: File exists"), "{error}");
        part_is_whole(&path).unwrap();
        assert!(path.exists() && !folder.join("t.csv.part").exists());
        assert!(make().is_err() && make_part_of_file(&folder.join("u.csv/")).is_err());
        // What has come meanwhile stays.
        std::fs::remove_file(&path).unwrap();
        drop(make().unwrap());
        std::fs::write(&path, "other").unwrap();
        assert!(part_is_whole(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "other");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
