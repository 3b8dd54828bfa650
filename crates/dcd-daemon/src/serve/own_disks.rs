//! What a cache is made of must be apart: before anything is opened or locked, so that a disk that
//! was named twice is told as that, and not as one that somebody else has. `tests/legs.rs` names
//! some twice.

use std::path::{Path, PathBuf};

use crate::device::identity::same_disks;
use crate::serve::error::ServeError;

/// Refuses a witness that is a disk of its own cache, under whatever name.
///
/// # Errors
/// If it is one of them.
pub fn check_witness<'p>(
    witness: &Path,
    disks: impl IntoIterator<Item = &'p Path>,
) -> Result<(), ServeError> {
    let is_it = |disk: &&Path| is_one_file(disk, witness) || same_disks(&[disk, witness]).is_some();
    match disks.into_iter().find(is_it) {
        Some(disk) => {
            Err(ServeError::WitnessIsOwn { path: witness.to_owned(), disk: disk.to_owned() })
        }
        None => Ok(()),
    }
}

/// Whether two names lead to one file, also if it is not there yet.
pub fn is_one_file(first: &Path, second: &Path) -> bool {
    let whole = |path: &Path| -> PathBuf {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return path.to_owned();
        };
        let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let there = here.canonicalize().map(|directory| directory.join(name));
        path.canonicalize().or(there).unwrap_or_else(|_| path.to_owned())
    };
    whole(first) == whole(second)
}
