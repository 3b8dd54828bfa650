//! `dcd inspect shares`: the directory of a cache-disk that several caches share, and what is free
//! of it. Locks nothing: a daemon may be using it.

use std::path::{Path, PathBuf};

use dcd_daemon::device::shares::{
    Place, ShareProblem, directory_at, directory_problems, is_no_directory,
};
use dcd_daemon::serve::ServeError;
use dcd_daemon::units_text::format_size;
use dcd_engine::format::share_directory::{Share, ShareDirectory, ShareState, Window};
use serde::Serialize;
use serde_json::json;

use super::check::state_name;
use super::probe::{Contents, read_superblock};
use crate::error::CommandError;
use crate::output::{Align, Paint, Table, count};
use crate::stdout::{print, print_json};

/// A share, or a part of one that has grown beside others, or a free part of the disk.
#[derive(Serialize)]
pub struct ShareReport {
    /// Its name; null: it is free.
    pub share: Option<String>,
    /// Which part of the share it is, from 1; null: it is free.
    pub part: Option<u32>,
    /// The path that names it in the place of a cache-disk.
    pub path: Option<PathBuf>,
    /// The cache in it.
    pub cache: Option<String>,
    /// `in-use`, `making`, `leaving` or `free`.
    pub state: String,
    /// Of the cache, as its superblock says: closed, open or detached.
    pub cache_state: Option<&'static str>,
    /// Where it begins.
    pub offset_bytes: u64,
    /// Its size.
    pub size_bytes: u64,
    /// What the data-disk was called when it was made.
    pub data_disk: Option<String>,
}

pub fn run(path: &Path, as_json: bool) -> Result<(), CommandError> {
    let disk = Place::of(path).disk;
    let directory = match directory_at(&disk).map_err(CommandError::file("read", &disk))? {
        Ok(directory) => directory,
        Err(problem) if is_no_directory(&problem) => {
            let share = "directory of shares".into();
            return Err(ServeError::share(ShareProblem::NotShared { disk, share }).into());
        }
        Err(problem) => {
            return Err(ServeError::share(ShareProblem::Damaged { disk, problem }).into());
        }
    };
    let parts = parts_of(&disk, &directory);
    let problems = directory_problems(&disk).map_err(CommandError::file("read", &disk))?;
    if as_json {
        let damaged = |(offset, problem): &(u64, String)| json!({ "offset_bytes": offset, "problem": problem });
        return print_json(&json!({
            "cache_disk": disk,
            "uuid": directory.uuid.to_string(),
            "generation": directory.generation,
            "disk_bytes": directory.disk_bytes,
            "free_bytes": directory.free_bytes(),
            "damaged_copies": problems.iter().map(damaged).collect::<Vec<_>>(),
            "shares": parts,
        }));
    }
    let damage: String = problems
        .iter()
        .map(|(offset, problem)| {
            format!("damaged: the copy of the directory at {offset}: {problem}; the other counts, and the next change mends it\n")
        })
        .collect();
    print(&format!(
        "{}{}: {} of {}, {} free\n{damage}",
        table(&parts).render(Paint::for_stdout()),
        disk.display(),
        count(directory.shares().len() as u64, "share"),
        format_size(directory.disk_bytes),
        format_size(directory.free_bytes()),
    ))
}

/// Shares and free parts, in the order of the disk.
pub fn parts_of(disk: &Path, directory: &ShareDirectory) -> Vec<ShareReport> {
    let free = directory.free().into_iter().map(|piece| ShareReport {
        share: None,
        part: None,
        path: None,
        cache: None,
        state: "free".into(),
        cache_state: None,
        offset_bytes: piece.offset_bytes,
        size_bytes: piece.size_bytes,
        data_disk: None,
    });
    let shares = directory.shares().iter().flat_map(|share| reports(disk, share));
    let mut parts: Vec<ShareReport> = shares.chain(free).collect();
    parts.sort_by_key(|part| part.offset_bytes);
    parts
}

fn reports(disk: &Path, share: &Share) -> Vec<ShareReport> {
    let path = disk.join(&share.name);
    let cache_state = match read_superblock(&path) {
        Contents::Cache(superblock) if share.state == ShareState::InUse => {
            Some(state_name(superblock.state))
        }
        _ => None,
    };
    let report = |(part, window): (u32, &Window)| ShareReport {
        share: Some(share.name.clone()),
        part: Some(part),
        path: Some(path.clone()),
        cache: Some(share.cache.to_string()),
        state: share.state.to_string(),
        cache_state,
        offset_bytes: window.offset_bytes,
        size_bytes: window.size_bytes,
        data_disk: Some(share.data_disk.clone()).filter(|name| !name.is_empty()),
    };
    (1..).zip(share.windows.iter()).map(report).collect()
}

/// As people read it.
pub fn table(parts: &[ShareReport]) -> Table<'static> {
    let mut table = Table::new(&[
        ("share", Align::Left),
        ("state", Align::Left),
        ("begins", Align::Right),
        ("size", Align::Right),
        ("cache", Align::Left),
        ("data-disk", Align::Left),
    ]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    for part in parts {
        let state = match part.cache_state {
            Some(state) => format!("{}, {state}", part.state),
            None => part.state.clone(),
        };
        let share = match (&part.share, part.part) {
            (Some(share), Some(part @ 2..)) => format!("{share}, part {part}"),
            (share, _) => or_dash(share),
        };
        table.row(vec![
            share,
            state,
            format_size(part.offset_bytes),
            format_size(part.size_bytes),
            or_dash(&part.cache),
            or_dash(&part.data_disk),
        ]);
    }
    table
}
