//! `dcd list`: the caches of this machine, those that are served and those that were, and the
//! segment memories: whose they are, and which nobody needs.
//!
//! Daemons are found by their processes, so those that have no control socket are there, too. What
//! is asked of them is waited for briefly: one that hangs holds nobody up.

mod caches;
mod forget;

use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use dcd_daemon::control::client::{ControlClient, ControlError, for_people};
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::shares::{Place, directory_at, parts_locked, whole_name};
use dcd_daemon::memory::files::{MemoryFate, MemoryFile, memory_files};
use dcd_daemon::memory::places::directories_to_list;
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::report::status_report::StatusReport;
use dcd_daemon::units_text::format_size;
use dcd_engine::Uuid;
use serde::Serialize;

use self::caches::{Cache, caches};
use crate::command::inspect_shares::{self, ShareReport, parts_of};
use crate::error::CommandError;
use crate::output::{Align, Colour, Paint, Table};
use crate::stdout::{print, print_json};

/// List the caches of this machine, how they are, and what to do where something is wrong.
///
/// Those that a daemon serves, and those that were served here before, by the records of this
/// machine: closed, killed, detached, or with a cache-disk that is missing. Of a cache that is not
/// served it is only known whether it may hold what its data-disk does not. Of cache-disks that
/// several caches share, all shares.
///
/// Segment memory is what outlives a killed dcd. It is NEEDED where the last session of its cache
/// ended without order: the next serve or detach brings what is in it to the disks, and it goes.
/// Stale memory holds nothing that counts, and only takes room: how to remove it is told. Changes
/// nothing, but with --forget.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd list
  dcd list --memory-directory /mnt/tmpfs --json
  dcd list --forget 53e2b7a0-1c5e-4a0d-9f3e-0b7a5a1c2d3e")]
pub struct ListArguments {
    /// Look for memory here, too. Where dcd puts it by itself, and where running daemons have
    /// theirs, is always looked at. May be given again.
    #[arg(long, value_name = "DIRECTORY")]
    pub memory_directory: Vec<PathBuf>,
    /// Forget this cache, whose cache-disk is gone for good: removes its record, and tells what that
    /// was of. What the cache held alone is given up with it. Not one that is served, or whose
    /// cache-disk is where it was and not detached. Touches no disk and no memory.
    #[arg(long, value_name = "UUID", conflicts_with = "memory_directory")]
    pub forget: Option<Uuid>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// How long a daemon is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct List {
    caches: Vec<Cache>,
    /// Cache-disks that several caches share.
    shared_disks: Vec<SharedDisk>,
    daemons: Vec<Listed>,
    memories: Vec<MemoryFile>,
}

/// A running `dcd serve`.
#[derive(Serialize)]
struct Listed {
    process: u32,
    /// The cache; null: nobody can be asked.
    cache: Option<String>,
    cache_disk: Option<String>,
    data_disk: Option<String>,
    frontends: Vec<String>,
    /// Its control socket, if it has one.
    control: Option<PathBuf>,
    /// Whether it has answered.
    answers: bool,
    /// Its segment memory.
    memory: Option<String>,
    #[serde(skip)]
    report: Option<StatusReport>,
    /// Why it cannot be asked, and what to do about it, if that is not its fault.
    #[serde(skip)]
    refusal: Option<(String, String)>,
}

pub fn run(arguments: &ListArguments) -> Result<(), CommandError> {
    let daemons: Vec<Listed> = processes().into_iter().map(listed).collect();
    if let Some(cache) = arguments.forget {
        return forget::run(cache, &daemons, arguments.json);
    }
    let mut directories = directories_to_list();
    directories.extend(arguments.memory_directory.iter().cloned());
    // Those that running daemons have elsewhere.
    let elsewhere = daemons.iter().filter_map(|daemon| daemon.memory.as_deref());
    directories.extend(elsewhere.filter_map(|path| Some(Path::new(path).parent()?.to_owned())));
    let mut memories = Vec::new();
    let mut seen = Vec::new();
    for directory in directories {
        let real = directory.canonicalize().unwrap_or(directory.clone());
        if seen.contains(&real) {
            continue;
        }
        // What was asked for must be there; what was not may be hidden from us.
        match memory_files(&real) {
            Ok(found) => memories.extend(found),
            Err(source) if arguments.memory_directory.contains(&directory) => {
                return Err(CommandError::File { action: "list", path: directory, source });
            }
            Err(_) => {}
        }
        seen.push(real);
    }
    let caches = caches(&PairBook::from_environment(false).records(), &daemons, &in_use());
    let shared_disks = shared_disks(&caches);
    let list = List { caches, shared_disks, daemons, memories };
    if arguments.json { print_json(&list) } else { print(&describe(&list, Paint::for_stdout())) }
}

/// A cache-disk that several caches share.
#[derive(Serialize)]
struct SharedDisk {
    cache_disk: PathBuf,
    disk_bytes: u64,
    free_bytes: u64,
    shares: Vec<ShareReport>,
}

/// Those of which one of these caches has a share.
fn shared_disks(caches: &[Cache]) -> Vec<SharedDisk> {
    let mut disks: Vec<PathBuf> = Vec::new();
    // Those of daemons are named as these see them.
    for cache in caches {
        let there = cache.process.map(|process| PathBuf::from(format!("/proc/{process}/cwd")));
        let there = there.and_then(|there| fs::read_link(there).ok()).unwrap_or_default();
        for named in cache.cache_disk.iter().flat_map(|named| named.split(", ")) {
            let spec = named.parse::<DeviceSpec>();
            let path = there.join(spec.as_ref().map_or(Path::new(named), |spec| spec.path()));
            let place = Place::of(&path);
            let disk = whole_name(&place.disk);
            if place.share.is_some() && !disks.contains(&disk) {
                disks.push(disk);
            }
        }
    }
    let shared = |disk: PathBuf| {
        let directory = directory_at(&disk).ok()?.ok()?;
        Some(SharedDisk {
            shares: parts_of(&disk, &directory),
            disk_bytes: directory.disk_bytes,
            free_bytes: directory.free_bytes(),
            cache_disk: disk,
        })
    };
    disks.into_iter().filter_map(shared).collect()
}

fn describe(list: &List, paint: Paint) -> String {
    let mut text = String::new();
    if list.caches.is_empty() && list.memories.is_empty() {
        return "there is no cache here, and none has left memory behind\n".into();
    }
    if !list.caches.is_empty() {
        text += &caches::describe(&list.caches, paint);
    }
    for disk in &list.shared_disks {
        let title = format!(
            "shares of {}: {} free of {}",
            disk.cache_disk.display(),
            format_size(disk.free_bytes),
            format_size(disk.disk_bytes)
        );
        text += &format!("\n{}\n", paint.paint(Colour::Title, &title));
        text += &inspect_shares::table(&disk.shares).render(paint);
    }
    if !list.memories.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        let mut table = Table::new(&[
            ("memory", Align::Left),
            ("takes", Align::Right),
            ("cache-disk", Align::Left),
            ("state", Align::Left),
            ("why", Align::Left),
        ]);
        for memory in &list.memories {
            let cache_disk = match memory.cache_disk.as_str() {
                "" => "-",
                name => name,
            };
            table.row(vec![
                memory.path.display().to_string(),
                format_size(memory.bytes),
                cache_disk.to_owned(),
                fate_name(memory.fate).to_owned(),
                memory.why.clone(),
            ]);
        }
        text += &table.render(paint);
    }
    let stale = list.memories.iter().filter(|memory| memory.fate == MemoryFate::Stale);
    let stale: Vec<String> =
        stale.map(|memory| format!("rm {}\n", memory.path.display())).collect();
    if !stale.is_empty() {
        let title = "stale memory is in nobody's use and holds nothing that counts; to remove it:";
        text += &format!("\n{}\n{}", paint.paint(Colour::Title, title), stale.concat());
    }
    text
}

fn fate_name(fate: MemoryFate) -> &'static str {
    match fate {
        MemoryFate::InUse => "in use",
        MemoryFate::Needed => "NEEDED",
        MemoryFate::PerhapsNeeded => "perhaps needed",
        MemoryFate::Stale => "stale",
    }
}

/// A process that serves, and its words.
struct Process {
    id: u32,
    words: Vec<String>,
}

/// A file or device that a process of dcd has open.
struct InUse {
    process: u32,
    path: PathBuf,
    /// The parts of it that it has locked for itself.
    parts: Vec<Range<u64>>,
}

/// Files and devices that other processes of dcd have open, as far as that can be seen.
fn in_use() -> Vec<InUse> {
    let mut in_use = Vec::new();
    for process in all_processes().filter(|process| process.id != std::process::id()) {
        let open = fs::read_dir(format!("/proc/{}/fd", process.id)).into_iter().flatten();
        for entry in open.flatten() {
            let Ok(path) = fs::read_link(entry.path()) else { continue };
            let info = format!("/proc/{}/fdinfo/{}", process.id, entry.file_name().display());
            let parts = parts_locked(&fs::read_to_string(info).unwrap_or_default(), None);
            in_use.push(InUse { process: process.id, path, parts });
        }
    }
    in_use
}

/// The processes that are `dcd serve`, as far as they can be seen. Not one that has several files:
/// it has started a process for each.
fn processes() -> Vec<Process> {
    let serves = |process: &Process| {
        process
            .words
            .iter()
            .skip(1)
            .find(|word| !word.starts_with('-'))
            .is_some_and(|it| it == "serve")
            && values_of(&process.words, "--config").count() <= 1
    };
    let mut found: Vec<Process> = all_processes().filter(serves).collect();
    found.sort_by_key(|process| process.id);
    found
}

/// The processes of dcd.
fn all_processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        let words: Vec<String> =
            words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let program = Path::new(words.first()?).file_name()?.to_str()?;
        (program == "dcd").then_some(Process { id, words })
    })
}

fn listed(process: Process) -> Listed {
    let control = control_of(&process);
    let (report, refusal) = match control.as_deref().map(ask) {
        Some(Ok(report)) => (Some(report), None),
        Some(Err(error)) => (None, error.as_ref().and_then(refusal_of)),
        None => (None, None),
    };
    let flag = |name| value_of(&process.words, name);
    let mut listed = Listed {
        process: process.id,
        cache: None,
        cache_disk: flag("--cache-disk"),
        data_disk: flag("--data-disk"),
        frontends: Vec::new(),
        answers: report.is_some(),
        control,
        memory: None,
        report: report.map(|report| for_people(&report)),
        refusal,
    };
    if let Some(report) = listed.report.clone() {
        listed.memory = Some(report.memory.path).filter(|path| !path.is_empty());
        listed.cache = Some(report.uuid);
        listed.cache_disk = Some(report.cache_disk);
        listed.data_disk = Some(report.data_disk);
        listed.frontends = report.frontends;
    }
    listed
}

/// Its control socket: said on its line, or in its file; of another directory than ours.
fn control_of(process: &Process) -> Option<PathBuf> {
    let at = |path: &str| match Path::new(path).is_absolute() {
        true => Some(PathBuf::from(path)),
        // Of another user it cannot be seen.
        false => Some(fs::read_link(format!("/proc/{}/cwd", process.id)).ok()?.join(path)),
    };
    if let Some(said) = value_of(&process.words, "--control") {
        return at(&said);
    }
    // Its standard input is not ours.
    let file = value_of(&process.words, "--config").filter(|file| file != "-")?;
    let settings = crate::config_file::read(&at(&file)?).ok()?;
    at(settings.control?.to_str()?)
}

/// `--name value` or `--name=value`.
fn value_of(words: &[String], name: &str) -> Option<String> {
    values_of(words, name).next()
}

fn values_of(words: &[String], name: &str) -> impl Iterator<Item = String> {
    let mut words = words.iter();
    std::iter::from_fn(move || {
        while let Some(word) = words.next() {
            match word.strip_prefix(name) {
                Some("") => return words.next().cloned(),
                Some(rest) if rest.starts_with('=') => return Some(rest[1..].to_owned()),
                _ => {}
            }
        }
        None
    })
}

/// What it says of itself, if it answers in time. Without an error it did not.
fn ask(control: &Path) -> Result<StatusReport, Option<ControlError>> {
    let (sender, answer) = mpsc::channel();
    let control = control.to_owned();
    // One that hangs ends with this program.
    std::thread::spawn(move || {
        let report = ControlClient::connect(&control).and_then(|mut client| client.status());
        let _ = sender.send(report);
    });
    match answer.recv_timeout(PATIENCE) {
        Ok(report) => report.map_err(Some),
        Err(_) => Err(None),
    }
}

/// What is wrong, and what to do, where a daemon may be healthy and not be asked by this user.
fn refusal_of(error: &ControlError) -> Option<(String, String)> {
    let problem = match error {
        ControlError::Connect { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            "the daemon belongs to another user, and its control socket cannot be opened".into()
        }
        ControlError::Stranger { .. } => error.to_string(),
        _ => return None,
    };
    Some((problem, error.hint().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_their_values_behind_them() {
        let words: Vec<String> = "dcd serve --control=a --controller b --config c"
            .split(' ')
            .map(str::to_owned)
            .collect();
        assert_eq!(value_of(&words, "--control").as_deref(), Some("a"));
        assert_eq!(value_of(&words, "--config").as_deref(), Some("c"));
        assert_eq!(value_of(&words, "--cache-disk"), None);
        let words = ["serve", "--config", "a", "--config=b"].map(str::to_owned);
        assert_eq!(values_of(&words, "--config").collect::<Vec<_>>(), ["a", "b"]);
    }
}
