//! The caches of this machine: those that the records of pairs tell of, and those that are served;
//! how each is, and what to do where something is wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dcd_daemon::device::device_file::quoted;
use dcd_daemon::device::shares::{Place, disk_of, share_at};
use dcd_daemon::pair::legs::label_at;
use dcd_daemon::pair::record::{PairRecord, PairState};
use dcd_daemon::report::status_report::StatusReport;
use dcd_daemon::units_text::format_size;
use dcd_engine::format::superblock::CacheState;
use serde::Serialize;

use super::{InUse, Listed};
use crate::command::probe::{Contents, read_superblock};
use crate::output::{Align, Colour, Paint, Table};

/// A cache.
#[derive(Serialize)]
pub(super) struct Cache {
    /// Its identity; null: nobody can be asked.
    pub(super) cache: Option<String>,
    pub(super) state: State,
    /// Bytes that are nowhere but in the cache, as far as somebody knows how many.
    pub(super) dirty_bytes: Option<u64>,
    /// Whether there may be some.
    pub(super) may_be_dirty: bool,
    pub(super) cache_disk: Option<String>,
    pub(super) data_disk: Option<String>,
    /// The daemon.
    pub(super) process: Option<u32>,
    pub(super) control: Option<PathBuf>,
    pub(super) frontends: Vec<String>,
    /// What is wrong, if something is.
    pub(super) problem: Option<String>,
    /// What to do about it.
    pub(super) what_to_do: Option<String>,
    /// It is nothing for this user to ask.
    #[serde(skip)]
    is_of_others: bool,
}

/// How a cache is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// A daemon has it, and answers.
    Served,
    /// A daemon has it that cannot be asked.
    Unknown,
    /// Its last session ended in order.
    Closed,
    /// Its last session ended otherwise.
    Killed,
    /// Its data-disk stands on its own.
    Detached,
    /// Its data-disk has gone on without it.
    GivenUp,
    /// Its cache-disk is not there, or is another one now.
    Missing,
}

impl State {
    fn words(self) -> &'static str {
        match self {
            State::Served => "served",
            State::Unknown => "not known",
            State::Closed => "closed",
            State::Killed => "KILLED",
            State::Detached => "detached",
            State::GivenUp => "given up",
            State::Missing => "MISSING",
        }
    }
}

/// All of them: those that are served first. `in_use`: what processes of dcd have open.
pub(super) fn caches(records: &[PairRecord], daemons: &[Listed], in_use: &[InUse]) -> Vec<Cache> {
    let mut caches: Vec<Cache> = daemons.iter().map(served).collect();
    let is_served = |uuid: &String| daemons.iter().any(|it| it.cache.as_ref() == Some(uuid));
    // Of copies of a folder with records the newest counts.
    let mut newest: BTreeMap<String, &PairRecord> = BTreeMap::new();
    for record in records {
        let known = newest.entry(record.cache.to_string()).or_insert(record);
        if known.written < record.written {
            *known = record;
        }
    }
    for (uuid, record) in newest.into_iter().filter(|(uuid, _)| !is_served(uuid)) {
        let path = &record.cache_disk.path;
        let disk = disk_of(path).canonicalize();
        // Who has another share has its disk open, too.
        let share =
            share_at(path).ok().map(|share| share.ok().map(|it| it.windows.first().offset_bytes));
        let has_it = |open: &&InUse| {
            let is_locked = |start: u64| open.parts.iter().any(|part| part.contains(&start));
            let has_part = share.is_none_or(|start| start.is_some_and(is_locked));
            disk.as_ref().is_ok_and(|disk| *disk == open.path) && has_part
        };
        let user = in_use.iter().find(has_it).map(|open| open.process);
        // It cannot be asked, and is known by what it has open.
        match caches.iter_mut().find(|it| it.process.is_some() && it.process == user) {
            Some(served) if served.cache.is_none() => served.cache = Some(uuid),
            _ => caches.extend(recorded(uuid, record, user)),
        }
    }
    caches
}

fn served(daemon: &Listed) -> Cache {
    let report = daemon.report.as_ref();
    let (problem, what_to_do) = match report {
        Some(report) => trouble_of(report, daemon.control.as_deref()).unzip(),
        None if daemon.control.is_none() => (None, None),
        None if daemon.refusal.is_some() => daemon.refusal.clone().unzip(),
        None => (
            Some("the daemon does not answer".into()),
            Some(format!("is it stopped, or does a disk hang? ps {}; dmesg", daemon.process)),
        ),
    };
    let dirty_bytes = report.map(|report| report.dirty_bytes + report.zero_bytes);
    Cache {
        cache: daemon.cache.clone(),
        state: if report.is_some() { State::Served } else { State::Unknown },
        may_be_dirty: dirty_bytes != Some(0),
        dirty_bytes,
        cache_disk: daemon.cache_disk.clone(),
        data_disk: daemon.data_disk.clone(),
        process: Some(daemon.process),
        control: daemon.control.clone(),
        frontends: daemon.frontends.clone(),
        problem,
        what_to_do,
        is_of_others: daemon.refusal.is_some(),
    }
}

/// The worst that a daemon tells of its cache, and what to do about it.
fn trouble_of(report: &StatusReport, control: Option<&Path>) -> Option<(String, String)> {
    let control = control.map_or("CTL".into(), |path| path.display().to_string());
    let status = format!("dcd status {control}");
    if report.cache_disk_failed || report.uncached.as_deref() == Some("failed") {
        let error = report.cache_disk_error.as_deref().unwrap_or("it is not used");
        return Some((format!("the cache-disk has failed: {error}"), status));
    }
    if let Some(store) = report.store.as_ref().filter(|store| store.problem.is_some()) {
        let (problem, hint) = (store.problem.clone().unwrap_or_default(), store.hint.clone());
        return Some((problem, hint.unwrap_or(status)));
    }
    if let Some(error) = &report.destage_error {
        return Some((format!("what is dirty does not get to the data-disk: {error}"), status));
    }
    if report.poisoned_lines > 0 {
        let lost = format_size(report.poisoned_lines * 4096);
        return Some((format!("{lost} are damaged"), status));
    }
    if let Some(disk) = report.network_disks.iter().find(|disk| !disk.is_connected()) {
        return Some((format!("no connection to the {}", disk.role), status));
    }
    let members = report.volume.iter().flat_map(|volume| &volume.members);
    if members.clone().any(|member| member.state != "up-to-date") {
        return Some((
            "a member of the volume is not up to date".into(),
            format!("dcd volume status --control {control}"),
        ));
    }
    if report.legs.iter().any(|leg| matches!(leg.state.as_str(), "failed" | "stale" | "filling")) {
        return Some((
            "a leg of the cache-disk is not in sync".into(),
            format!("dcd cache-disk status --control {control}"),
        ));
    }
    let witness = report.leg_witness.as_ref();
    if witness.is_some_and(|it| matches!(it.state.as_str(), "failed" | "missing" | "out")) {
        return Some((
            "the witness has no say: a start needs all legs in sync".into(),
            format!("dcd cache-disk status --control {control}"),
        ));
    }
    None
}

/// One that is not served, as it was last seen and as its cache-disk is now. `None`: it was
/// detached or given up, and its cache-disk is something else now.
///
/// `user`: the process that has its cache-disk open.
fn recorded(uuid: String, record: &PairRecord, user: Option<u32>) -> Option<Cache> {
    let cache_disk = &record.cache_disk.path;
    let data_disks: Vec<String> =
        record.data_disks.iter().map(|disk| disk.path.display().to_string()).collect();
    let contents = read_superblock(cache_disk);
    let is_over = matches!(record.state, PairState::Detached | PairState::GivenUp);
    let names: Vec<String> = record.data_disks.iter().map(|disk| quoted(&disk.path)).collect();
    let (cache, data) = (quoted(cache_disk), names.join(" --data-disk "));
    let start = format!("dcd serve --cache-disk {cache} --data-disk {data} ..., or its service");
    let detach = format!("dcd detach --cache-disk {cache} --data-disk {data}");
    let (state, problem, what_to_do) = match contents {
        _ if user.is_some() => (State::Unknown, None, None),
        Contents::Cache(superblock) if superblock.uuid == record.cache => {
            // The record is behind by one step where a stop was cut off, and a leg behind a record.
            let state = match record.state {
                PairState::Detached => CacheState::Detached,
                PairState::Closed { .. } => CacheState::Closed,
                PairState::Open | PairState::GivenUp => CacheState::Open,
            };
            let state = if superblock.has_legs { state } else { superblock.state };
            match (state, record.state) {
                (_, PairState::GivenUp) => (State::GivenUp, None, None),
                (CacheState::Detached, _) => (State::Detached, None, None),
                (CacheState::Closed, _) => (State::Closed, None, None),
                (CacheState::Open, _) => {
                    let problem = "its last session did not end in order".to_owned();
                    let has_witness =
                        || label_at(cache_disk).is_some_and(|it| it.membership.witness.is_some());
                    let legs = "start it again, or detach it, with all of its cache-disks";
                    let what = match superblock.has_legs {
                        true if has_witness() => format!("{legs}, or one of them and the witness"),
                        true => legs.into(),
                        false => format!("{start}; or {detach}"),
                    };
                    (State::Killed, Some(problem), Some(what))
                }
            }
        }
        _ if is_over => return None,
        Contents::Unknown(why) if Place::of(cache_disk).exists() => {
            let what = format!("dcd check --cache-disk {cache}; dcd salvage --help");
            (State::Missing, Some(format!("{cache} {why}")), Some(what))
        }
        _ => {
            let gone = !Place::of(cache_disk).exists();
            let problem = if gone { "is not there" } else { "holds something else now" };
            // Whether it is one of several legs is not recorded.
            let what = format!(
                "find it (`dcd probe DISK` tells what a disk is). If the cache is on several disks, the others may do without it: \
                 start it with them. Only if all are gone for good, and with them what only they held: dcd create --force with new \
                 ones for {}, or, if there is to be none, dcd list --forget {uuid}",
                data_disks.join(", ")
            );
            (State::Missing, Some(format!("{cache} {problem}")), Some(what))
        }
    };
    let may_be_dirty = match state {
        State::Detached | State::GivenUp => false,
        _ => record.state.may_be_dirty(),
    };
    Some(Cache {
        cache: Some(uuid),
        state,
        dirty_bytes: (!may_be_dirty).then_some(0),
        may_be_dirty,
        cache_disk: Some(cache_disk.display().to_string()),
        data_disk: Some(data_disks.join(", ")),
        process: user,
        control: None,
        frontends: Vec::new(),
        problem,
        what_to_do,
        is_of_others: false,
    })
}

/// The first of several disks, and how many more: a volume with spares has many, and would make
/// each line as long. `--json` has all.
fn first_of(disks: &str) -> String {
    let mut names = disks.split(", ");
    let first = names.next().unwrap_or_default();
    match names.count() {
        0 => first.to_owned(),
        more => format!("{first} +{more}"),
    }
}

/// As people read it.
pub(super) fn describe(caches: &[Cache], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("cache", Align::Left),
        ("state", Align::Left),
        ("dirty", Align::Right),
        ("cache-disk", Align::Left),
        ("data-disk", Align::Left),
        ("process", Align::Right),
        ("control", Align::Left),
        ("serves", Align::Left),
    ]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    for cache in caches {
        let control = match &cache.control {
            Some(path) if cache.state == State::Served => path.display().to_string(),
            Some(path) if cache.is_of_others => format!("{} (another user's)", path.display()),
            Some(path) => format!("{} (no answer)", path.display()),
            None => "-".into(),
        };
        let dirty = match (cache.dirty_bytes, cache.may_be_dirty) {
            (Some(bytes), _) => format_size(bytes),
            (None, true) if cache.state == State::Closed => "yes".into(),
            (None, true) => "perhaps".into(),
            (None, false) => "-".into(),
        };
        table.row(vec![
            or_dash(&cache.cache),
            cache.state.words().into(),
            dirty,
            or_dash(&cache.cache_disk),
            cache.data_disk.as_deref().map_or("-".into(), first_of),
            cache.process.map_or("-".into(), |process| process.to_string()),
            control,
            cache.frontends.join(" "),
        ]);
    }
    let mut text = table.render(paint);
    for cache in caches {
        let Some(problem) = &cache.problem else { continue };
        let name = or_dash(&cache.cache);
        text += &format!("\n{}\n", paint.paint(Colour::Bad, &format!("{name}: {problem}")));
        if let Some(what) = &cache.what_to_do {
            text += &format!("  {what}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::first_of;

    #[test]
    fn of_many_disks_the_first_is_shown() {
        assert_eq!(first_of("/dev/sdb"), "/dev/sdb");
        assert_eq!(first_of("slow:d,read=8ms"), "slow:d,read=8ms");
        assert_eq!(first_of("/dev/sdb, /dev/sdc, /dev/sdd"), "/dev/sdb +2");
    }
}
