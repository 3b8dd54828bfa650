//! Which share of a cache-disk is meant, where only the disk was named: the one that was said, or
//! the one of the data-disk. Reads only, and locks nothing: whether the disks belong together is
//! looked at when they are open, as of any pair.

use std::path::Path;

use dcd_engine::Uuid;
use dcd_engine::format::data_label::{DATA_LABEL_BYTES, DATA_LABEL_OFFSETS, DataLabel};
use dcd_engine::format::share_directory::{Share, ShareDirectory, ShareState};
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES};

use crate::device::device_file::serial_of;
use crate::device::device_spec::DeviceSpec;
use crate::device::shares::{Place, ShareProblem, directory_at, is_no_directory, whole_name};
use crate::pair::book::PairBook;
use crate::pair::members::member_mark_in;
use crate::serve::error::ServeError;
use crate::serve::unlocked::{copies, superblock_of};

/// Puts the share that is meant in the place of each disk that has shares. A disk that has none, or
/// cannot be read, stays as it is: who opens it says what is wrong.
///
/// # Errors
/// If a share was asked for that is not there, or several may be meant.
pub fn choose_shares(
    disks: &mut [DeviceSpec],
    share: Option<&str>,
    data_disks: &[&Path],
    book: &PairBook,
) -> Result<(), ServeError> {
    for disk in disks {
        let place = Place::of(disk.path());
        if let (Some(named), Some(share)) = (&place.share, share) {
            if named == share {
                continue;
            }
            let path = disk.path().to_owned();
            return Err(ServeError::ShareTwice { path, share: share.to_owned() });
        }
        if place.share.is_some() {
            continue;
        }
        let directory = match directory_at(&place.disk) {
            Ok(Ok(directory)) => directory,
            Ok(Err(problem)) if is_no_directory(&problem) => match share {
                Some(share) => {
                    let (disk, share) = (place.disk, share.to_owned());
                    return Err(ServeError::share(ShareProblem::NotShared { disk, share }));
                }
                None => continue,
            },
            Ok(Err(problem)) => {
                return Err(ServeError::share(ShareProblem::Damaged { disk: place.disk, problem }));
            }
            Err(_) => continue,
        };
        let known = || directory.shares().iter().map(|share| share.name.clone()).collect();
        let found = match share {
            Some(share) => directory.find(share).ok_or_else(|| {
                let (disk, share) = (place.disk.clone(), share.to_owned());
                ServeError::share(ShareProblem::Unknown { disk, share, known: known() })
            })?,
            None => {
                let found = data_disks
                    .iter()
                    .find_map(|data_disk| share_of(&place.disk, &directory, data_disk, book));
                let only = match directory.shares() {
                    [only] => Some(only),
                    _ => None,
                };
                found.or(only).ok_or_else(|| ServeError::ShareUnclear {
                    disk: place.disk.clone(),
                    known: known(),
                })?
            }
        };
        *disk = disk.with_path(place.disk.join(&found.name));
    }
    Ok(())
}

/// The share of a disk that belongs to a data-disk. What the data-disk says of itself counts most,
/// then what the cache knows of it, then what this host remembers, then what it was called when
/// the share was made.
pub fn share_of<'d>(
    disk: &Path,
    directory: &'d ShareDirectory,
    data_disk: &Path,
    book: &PairBook,
) -> Option<&'d Share> {
    let of = |cache: Uuid| directory.shares().iter().find(|share| share.cache == cache);
    if let Some(cache) = cache_said_by(data_disk) {
        return of(cache);
    }
    let has_cache = |share: &&Share| share.state == ShareState::InUse;
    let serial = serial_of(data_disk);
    if !serial.is_empty() {
        let mut known = directory.shares().iter().filter(has_cache).filter(|share| {
            superblock_of(&disk.join(&share.name)).is_some_and(|it| it.data_disk_serial == serial)
        });
        if let (Some(only), None) = (known.next(), known.next()) {
            return Some(only);
        }
    }
    if let Some(share) = book.caches_of(data_disk).into_iter().find_map(of) {
        return Some(share);
    }
    let name = whole_name(data_disk);
    let mut named = directory.shares().iter().filter(|share| Path::new(&share.data_disk) == name);
    match (named.next(), named.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// The cache whose label a disk has.
fn cache_said_by(data_disk: &Path) -> Option<Uuid> {
    let [first, second] = copies::<DATA_LABEL_BYTES>(data_disk, DATA_LABEL_OFFSETS)?;
    if let Ok(label) = DataLabel::newest(&first, &second) {
        return Some(label.uuid);
    }
    let [first, second] = copies::<MEMBER_LABEL_BYTES>(data_disk, LABEL_OFFSETS)?;
    member_mark_in(&first, &second)?.cache()
}
