//! Files of a file system and what is said of them in their extended attributes.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dcd_engine::volume::attributes::Attributes;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::error::CommandError;
use crate::hint_rules::parse_attributes;

/// Where a hint is kept.
const NAME: &str = "user.dcd.hint";
/// Longest hint that is read: all names together are shorter.
const HINT_BYTES_MAX: usize = 256;

/// What is said of an open file; what is no hint says nothing.
pub fn read_hint(file: &File) -> Option<Attributes> {
    let mut bytes = [0; HINT_BYTES_MAX];
    let length = rustix::fs::fgetxattr(file, NAME, &mut bytes[..]).ok()?;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    // Programs that write strings like C keep the zero byte.
    parse_attributes(text.trim_end_matches(['\0', '\n'])).ok()
}

/// Keeps it with the file. A file system without such attributes keeps nothing.
pub fn write_hint(path: &Path, file: &File, attributes: Attributes) -> Result<(), CommandError> {
    let text = attributes.to_string();
    let result = match attributes.is_empty() {
        true => rustix::fs::fremovexattr(file, NAME),
        false => rustix::fs::fsetxattr(file, NAME, text.as_bytes(), XattrFlags::empty()),
    };
    match result {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(CommandError::file("keep the hint of", path)(errno.into())),
    }
}

/// Calls `each` with everything below a directory that is on the same file system, and whether it
/// is a directory. Links are not followed. What has gone meanwhile, or may not be read, is passed
/// over.
pub fn each(
    directory: &Path,
    device: u64,
    each: &mut dyn FnMut(&Path, bool) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.dev() != device || !(metadata.is_dir() || metadata.is_file()) {
                continue;
            }
            let path = entry.path();
            match each(&path, metadata.is_dir()) {
                Err(error) if is_gone(&error) => continue,
                result => result?,
            }
            if metadata.is_dir() {
                waiting.push(path);
            }
        }
    }
    Ok(())
}

/// Whether it is only that somebody else has removed, replaced or locked a file away.
pub fn is_gone(error: &CommandError) -> bool {
    const ELOOP: i32 = 40;
    let CommandError::File { source, .. } = error else { return false };
    matches!(source.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied)
        || source.raw_os_error() == Some(ELOOP)
}
