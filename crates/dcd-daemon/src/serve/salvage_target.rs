//! Whether what is salvaged of a cache may be written to a disk: what a start asks of a data-disk,
//! asked where no engine looks deeper, and more. A start that is told to trust the disks takes a
//! wrong one with everything on it into account; a salvage only overwrites. So what is somebody
//! else's is left alone whatever is said.

use dcd_engine::format::data_label::LabelState;
use dcd_engine::format::superblock::CacheState;
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel};
use dcd_engine::{FormatError, Superblock};

use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::shares::holds_shares;
use crate::pair::book::{PairBook, PairProblem};
use crate::pair::label_keeper::{judge_label, read_data_label};
use crate::pair::{SuperblockError, read_superblock};
use crate::serve::error::ServeError;
use crate::serve::open_pair::check_serial;

/// Compares both disks, which are open and so locked. Nothing is written.
///
/// # Errors
/// If the disk is somebody else's, or, unless the disks are trusted, not the data-disk of this
/// cache as it is now.
pub fn check_salvage_target(
    superblock: &Superblock,
    cache_disk: &DeviceFile,
    data_disk: &DeviceFile,
    pairs: &PairBook,
) -> Result<(), ServeError> {
    let path = data_disk.path().to_owned();
    if let Some(found) = owner_of(superblock, data_disk, pairs)? {
        return Err(ServeError::Foreign { path, expected: superblock.uuid, found });
    }
    check_serial(superblock, data_disk)?;
    if pairs.trust_disks {
        return Ok(());
    }
    if superblock.data_offset_bytes > 0 {
        let label = read_data_label(data_disk).map_err(ServeError::device("data-disk"))?;
        judge_label(superblock, cache_disk, data_disk.path(), label)?;
    }
    pairs.check(superblock, cache_disk, &[data_disk])?;
    pairs.check_attribute(superblock, cache_disk, data_disk)?;
    if superblock.state == CacheState::Detached {
        let cache_disk = cache_disk.path().to_owned();
        return Err(ServeError::SalvageDetached { cache_disk, data_disk: path });
    }
    Ok(())
}

/// Whose disk it is, in words, if it is known to be another cache's.
fn owner_of(
    superblock: &Superblock,
    disk: &DeviceFile,
    pairs: &PairBook,
) -> Result<Option<String>, ServeError> {
    let failed = ServeError::device("data-disk");
    if holds_shares(disk).map_err(failed)? {
        return Ok(Some("a cache-disk that several caches share".into()));
    }
    let failed = ServeError::device("data-disk");
    match read_superblock(disk) {
        // That holds nothing, and may be what a disk was before.
        Ok(found) if found.state == CacheState::Detached => {}
        Ok(found) => {
            return Ok(Some(format!(
                "the cache-disk of cache {}, which is not detached",
                found.uuid
            )));
        }
        Err(SuperblockError::Format(problem)) if is_nothing(&problem) => {}
        Err(SuperblockError::Format(problem)) => {
            return Ok(Some(format!("the cache-disk of a cache that cannot be read: {problem}")));
        }
        Err(SuperblockError::Device(error)) => return Err(failed(error)),
    }
    if let Some(found) = member_in_words(disk).map_err(ServeError::device("data-disk"))? {
        return Ok(Some(found));
    }
    let is_labelled = superblock.data_offset_bytes > 0;
    match read_data_label(disk).map_err(failed)? {
        Ok(label) if is_labelled && label.uuid == superblock.uuid => {}
        Ok(label) => {
            let more = match label.state {
                LabelState::Dirty => ", which may hold data that is not on it yet",
                _ => "",
            };
            return Ok(Some(format!(
                "the data-disk of cache {}, as its label says{more}",
                label.uuid
            )));
        }
        // It may be our own: the caller judges.
        Err(problem) if is_labelled || is_nothing(&problem) => {}
        Err(problem) => {
            return Ok(Some(format!("a data-disk whose label cannot be read: {problem}")));
        }
    }
    let strict = PairBook { trust_disks: false, ..pairs.clone() };
    match strict.check_free(disk, Some(superblock.uuid), false) {
        Err(PairProblem::HasCache { cache, place, .. }) => {
            let on = match place.as_os_str().is_empty() {
                true => String::new(),
                false => format!(" on {}", place.display()),
            };
            Ok(Some(format!(
                "the data-disk of cache {cache}{on}, which may hold data that is not on it yet"
            )))
        }
        other => Ok(other.map(|()| None)?),
    }
}

fn is_nothing(problem: &FormatError) -> bool {
    matches!(problem, FormatError::Magic { .. } | FormatError::Short { .. })
}

/// A member of a volume, whole or damaged.
fn member_in_words(disk: &DeviceFile) -> Result<Option<String>, DeviceError> {
    let mut damaged = None;
    for offset in LABEL_OFFSETS {
        let bytes = disk.read_at(offset, MEMBER_LABEL_BYTES)?;
        match MemberLabel::decode(bytes.bytes()) {
            Ok(label) => {
                let (member, cache) = (label.member.0, label.uuid);
                return Ok(Some(format!("member {member} of the volume of cache {cache}")));
            }
            Err(problem) if is_nothing(&problem) => {}
            Err(problem) => damaged = Some(problem),
        }
    }
    Ok(damaged.map(|problem| format!("a member of a volume whose label cannot be read: {problem}")))
}
