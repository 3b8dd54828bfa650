//! `dcd list --forget`: the record of a cache that is no more is removed.
//!
//! A record keeps others from using a data-disk whose cache holds what is newer. So it goes only
//! where there is nothing to go back to: no daemon has the cache, and its cache-disk is gone, holds
//! something else, or is parted from its data-disk. Tested by `tests/list.rs`.

use std::path::{Path, PathBuf};

use dcd_daemon::device::shares::Place;
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::pair::record::{PairRecord, PairState};
use dcd_engine::Uuid;
use serde::Serialize;

use super::caches::{Cache, State, caches};
use super::{Listed, in_use};
use crate::command::probe::{Contents, read_superblock};
use crate::error::CommandError;
use crate::stdout::{print, print_json};

/// What was forgotten.
#[derive(Serialize)]
struct Forgotten {
    cache: String,
    cache_disk: String,
    data_disk: String,
    /// Whether it may have held what is nowhere else.
    may_be_dirty: bool,
    /// The files of its record.
    removed: Vec<PathBuf>,
}

pub(super) fn run(cache: Uuid, daemons: &[Listed], json: bool) -> Result<(), CommandError> {
    let book = PairBook::from_environment(false);
    let records = book.records();
    let name = cache.to_string();
    let known = caches(&records, daemons, &in_use());
    let listed = known.iter().find(|listed| listed.cache.as_ref() == Some(&name));
    check(cache, listed)?;
    let of_it = records.iter().filter(|record| record.cache == cache);
    let Some(record) = of_it.max_by_key(|record| record.written) else {
        return Err(CommandError::NotRecorded { cache });
    };
    let forgotten = Forgotten {
        cache: name,
        cache_disk: record.cache_disk.path.display().to_string(),
        data_disk: data_disks_of(record),
        may_be_dirty: match listed {
            Some(listed) => listed.may_be_dirty,
            None => !matches!(record.state, PairState::Detached | PairState::GivenUp),
        },
        removed: book.remove_records(cache).map_err(|(path, source)| CommandError::File {
            action: "remove",
            path,
            source,
        })?,
    };
    if json { print_json(&forgotten) } else { print(&describe(&forgotten)) }
}

/// Whether nobody needs the record any more.
fn check(cache: Uuid, listed: Option<&Cache>) -> Result<(), CommandError> {
    let Some(listed) = listed else { return Ok(()) };
    let cache_disk = listed.cache_disk.clone().unwrap_or_default();
    match (listed.process, listed.state) {
        (Some(process), _) => Err(CommandError::ForgetServed { cache, process }),
        // Something is there that cannot be read, perhaps by this user: it may well be the cache.
        (None, State::Missing)
            if Place::of(Path::new(&cache_disk)).exists()
                && matches!(read_superblock(Path::new(&cache_disk)), Contents::Unknown(_)) =>
        {
            Err(CommandError::ForgetUnread { cache, cache_disk })
        }
        (None, State::Detached | State::GivenUp | State::Missing) => Ok(()),
        (None, _) => Err(CommandError::ForgetPresent {
            cache,
            cache_disk,
            data_disk: listed.data_disk.clone().unwrap_or_default(),
        }),
    }
}

fn data_disks_of(record: &PairRecord) -> String {
    let names: Vec<String> =
        record.data_disks.iter().map(|disk| disk.path.display().to_string()).collect();
    names.join(", ")
}

fn describe(forgotten: &Forgotten) -> String {
    let Forgotten { cache, cache_disk, data_disk, may_be_dirty, removed } = forgotten;
    let mut text = format!(
        "cache {cache} is forgotten: it was on {cache_disk}, for the data-disk {data_disk}\n"
    );
    for path in removed {
        text += &format!("removed {}\n", path.display());
    }
    if *may_be_dirty {
        text += "what it may have held alone is given up: the data-disk is as old as its last destaging\n";
    }
    text
}
