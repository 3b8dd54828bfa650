//! Files that take the place of nothing: what is there may be the only copy of something.

use std::path::Path;

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
