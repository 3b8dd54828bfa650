//! `dcd probe --all`: whether a cache of this machine's services may hold what its data-disk does
//! not. A removal of the package asks it, so it is for whatever is not known that it is dirty: a
//! file that cannot be read, a disk that is not there, a daemon that does not answer. Reads only;
//! waits for nobody longer than [`PATIENCE`].

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use dcd_daemon::control::client::{ControlClient, ControlError};
use dcd_daemon::device::network::is_network;
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::report::status_report::StatusReport;
use dcd_daemon::units_text::format_size;
use dcd_engine::Uuid;
use dcd_engine::format::data_label::LabelState;
use serde::Serialize;

use super::probe::{Contents, cache_disks_of, read_cache, read_label};
use crate::command::probe::{CONFIGURATIONS, ProbeArguments};
use crate::config_file;
use crate::error::CommandError;
use crate::stdout::{print, print_json};

/// How long everything that is asked may take, all at the same time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where services have their control sockets.
const RUNTIME: [&str; 2] = ["run/dcd", "run/dcd-late"];

/// What is known of all of them.
#[derive(Serialize)]
struct Report {
    /// Whether any is.
    dirty: bool,
    caches: Vec<Cache>,
}

/// A cache: of a configuration file, or of a daemon that runs.
#[derive(Clone, Serialize)]
struct Cache {
    /// The file, or the control socket.
    place: PathBuf,
    state: State,
    /// Anything but detached.
    dirty: bool,
    /// In words.
    why: String,
    /// What to do, if it is dirty.
    hint: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// No cache holds anything for its data-disks.
    Detached,
    /// The log may hold what the data-disk does not.
    Attached,
    /// A daemon serves it, and has nothing that its data-disk lacks; any moment it may.
    Served,
    /// A daemon serves it, and the data-disk lacks something.
    Dirty,
    /// A daemon serves it, and somebody has its device mounted or otherwise in use.
    InUse,
    /// Nobody knows.
    Unknown,
}

impl Cache {
    fn new(place: &Path, state: State, why: String, hint: String) -> Cache {
        let dirty = state != State::Detached;
        Cache { place: place.to_owned(), state, dirty, why, hint: dirty.then_some(hint) }
    }
}

pub fn run(arguments: &ProbeArguments) -> Result<(), CommandError> {
    let root = &arguments.root;
    // Below a root, that is where settings are, too, unless they were named.
    let configurations = match arguments.configurations.strip_prefix("/") {
        Ok(path) => root.join(path),
        Err(_) => arguments.configurations.clone(),
    };
    let mut wanted: Vec<(PathBuf, Question)> = Vec::new();
    let mut caches = Vec::new();
    // A machine without any service may lack its usual directories, and no others.
    let is_named = arguments.configurations != Path::new(CONFIGURATIONS);
    let mut needed: Vec<&Path> = vec![root];
    needed.extend(is_named.then_some(configurations.as_path()));
    for directory in needed {
        if let Err(error) = std::fs::read_dir(directory)
            && error.kind() == ErrorKind::NotFound
        {
            caches.push(unlisted(directory, &error));
        }
    }
    match files_in(&configurations, "toml") {
        Ok(files) => wanted.extend(files.into_iter().map(|file| (file, Question::Settings))),
        Err(error) => caches.push(unlisted(&configurations, &error)),
    }
    for directory in RUNTIME.map(|it| root.join(it)) {
        match files_in(&directory, "ctl") {
            Ok(files) => wanted.extend(files.into_iter().map(|file| (file, Question::Daemon))),
            Err(error) => caches.push(unlisted(&directory, &error)),
        }
    }
    caches.extend(ask_all(wanted, root));
    let report = Report { dirty: caches.iter().any(|cache| cache.dirty), caches };
    match arguments.json {
        true => print_json(&report)?,
        false => print(&words(&report))?,
    }
    match report.caches.iter().filter(|cache| cache.dirty).count() as u64 {
        0 => Ok(()),
        caches => Err(CommandError::CachesDirty { caches }),
    }
}

fn words(report: &Report) -> String {
    let mut text = String::new();
    for cache in &report.caches {
        text += &format!("{}: {}\n", cache.place.display(), cache.why);
        if let Some(hint) = &cache.hint {
            text += &format!("  {hint}\n");
        }
    }
    if text.is_empty() { "no cache has settings here, and none is served\n".into() } else { text }
}

/// What is asked of a path.
#[derive(Clone, Copy)]
enum Question {
    Settings,
    Daemon,
}

/// Asks all at once, each on a thread of its own: a disk or a daemon that hangs is one that is not
/// known. Such a thread ends with this program.
fn ask_all(wanted: Vec<(PathBuf, Question)>, root: &Path) -> Vec<Cache> {
    let deadline = Instant::now() + PATIENCE;
    let asked: Vec<_> = wanted
        .into_iter()
        .map(|(path, question)| {
            let (sender, answer) = mpsc::channel();
            let (place, root) = (path.clone(), root.to_owned());
            std::thread::spawn(move || {
                let _ = sender.send(match question {
                    Question::Settings => of_settings(&place, &root),
                    Question::Daemon => of_daemon(&place, &root).into_iter().collect(),
                });
            });
            (path, answer)
        })
        .collect();
    let mut caches = Vec::new();
    for (path, answer) in asked {
        let left = deadline.saturating_duration_since(Instant::now());
        caches.extend(answer.recv_timeout(left).unwrap_or_else(|_| vec![silent(&path)]));
    }
    caches
}

fn silent(path: &Path) -> Cache {
    let why = format!("no answer within {} s, so what it holds is not known", PATIENCE.as_secs());
    let hint = "is its daemon stopped (SIGCONT goes on), or a disk that does not answer?".into();
    Cache::new(path, State::Unknown, why, hint)
}

fn unlisted(directory: &Path, error: &std::io::Error) -> Cache {
    let why = format!("cannot be listed: {error}");
    let hint = match error.kind() {
        ErrorKind::NotFound => "check the name",
        _ => "this is for root",
    };
    Cache::new(directory, State::Unknown, why, hint.into())
}

/// The files there with this extension, by name; none, if there is no such directory.
fn files_in(directory: &Path, extension: &str) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// What a configuration file says, looked up on the disks that it names; and the daemon at its own
/// control socket.
fn of_settings(file: &Path, root: &Path) -> Vec<Cache> {
    let given_up = format!("or, if that cache is given up, move {} away", file.display());
    let unknown = |why: String, hint: &str| {
        vec![Cache::new(file, State::Unknown, why, format!("{hint}; {given_up}"))]
    };
    // A pipe would be waited for.
    match std::fs::metadata(file) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return unknown("is no file, so what it names is not known".into(), "make it one"),
        Err(error) => return unknown(format!("cannot be read: {error}"), "make it readable"),
    }
    let settings = match config_file::read(file) {
        Ok(settings) => settings,
        Err(error) => {
            let why = format!("is no configuration, so what it names is not known: {error}");
            return unknown(why, "mend it");
        }
    };
    if settings.cache_disk.is_empty() {
        return unknown("names no cache-disk".into(), "name its disks");
    }
    let control = settings.control.as_deref().map(from_root);
    let mut caches: Vec<Cache> =
        control.and_then(|control| of_daemon(&control, root)).into_iter().collect();
    let cache_disks = cache_disks_of(&settings, from_root);
    let cache_disk = cache_disks.iter().map(|disk| disk.display().to_string());
    let cache_disk = cache_disk.collect::<Vec<_>>().join(", ");
    let data_disks: Vec<PathBuf> =
        settings.data_disk.iter().map(|disk| from_root(disk.path())).collect();
    let witness = settings.witness.as_ref().map(|witness| from_root(witness.path()));
    let detach: String = std::iter::once("dcd detach".to_owned())
        .chain(cache_disks.iter().map(|disk| format!(" --cache-disk {}", disk.display())))
        .chain(witness.iter().map(|witness| format!(" --witness {}", witness.display())))
        .chain(data_disks.iter().map(|disk| format!(" --data-disk {}", disk.display())))
        .collect();
    let labelled = data_disks
        .iter()
        .find(|disk| read_label(disk).is_some_and(|label| label.state != LabelState::Detached));
    let legs: Vec<&Path> = cache_disks.iter().map(PathBuf::as_path).collect();
    let (state, why) = match (read_cache(&legs, witness.as_deref()), labelled) {
        (Contents::Unknown(why), _) => (
            State::Unknown,
            format!("its cache-disk {cache_disk} {why}: what it holds is not known"),
        ),
        (contents @ Contents::Cache(_), _) if contents.may_be_newer() => {
            let disks: Vec<String> =
                data_disks.iter().map(|disk| disk.display().to_string()).collect();
            let (disks, are) = match disks.len() {
                0 => ("its data-disk".to_owned(), "is"),
                1 => (disks.concat(), "is"),
                _ => (disks.join(", "), "are"),
            };
            (
                State::Attached,
                format!("{disks} {are} attached to its cache, which may hold what is nowhere else"),
            )
        }
        (_, Some(disk)) => {
            let disk = disk.display();
            (
                State::Attached,
                format!(
                    "{disk} is attached to a cache, as its label says, that is not on {cache_disk}"
                ),
            )
        }
        (Contents::Cache(_), None) => (State::Detached, "detached".to_owned()),
        (Contents::Nothing, None) => {
            let book = PairBook::from_environment(false);
            match legs.iter().find_map(|disk| book.attached_cache(disk, &data_disks)) {
                Some(cache) => (State::Unknown, gone_words(&cache_disk, cache)),
                None => (State::Detached, "no cache was made there".to_owned()),
            }
        }
    };
    caches.push(Cache::new(file, state, why, format!("{detach}; {given_up}")));
    caches
}

fn gone_words(cache_disk: &str, cache: Uuid) -> String {
    format!(
        "its cache-disk {cache_disk} holds no cache; cache {cache} was to be there, as this host or \
         the data-disk remembers, and may have held what is nowhere else"
    )
}

/// As a service sees it, whose working directory is the root.
fn from_root(path: &Path) -> PathBuf {
    if is_network(path) { path.to_owned() } else { Path::new("/").join(path) }
}

/// What a daemon says of itself; nothing, if none runs there.
fn of_daemon(control: &Path, root: &Path) -> Option<Cache> {
    let report = ControlClient::connect(control).and_then(|mut client| client.status());
    let detach = format!("dcd detach --control {}", control.display());
    Some(match report {
        Ok(report) => {
            let device = report.frontends.iter().find(|device| is_in_use(Path::new(device), root));
            match (device, report.dirty_bytes) {
                (Some(device), _) => {
                    let why = format!("{device} of cache {} is in use", name_of(control));
                    Cache::new(
                        control,
                        State::InUse,
                        why,
                        format!("unmount it (or swapoff), then {detach}"),
                    )
                }
                (None, 0) => {
                    let why = format!("cache {} is being served", name_of(control));
                    Cache::new(control, State::Served, why, detach)
                }
                (None, _) => {
                    Cache::new(control, State::Dirty, dirty_words(control, &report), detach)
                }
            }
        }
        // What a daemon has left that ended.
        Err(ControlError::Connect { source, .. })
            if matches!(source.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) =>
        {
            return None;
        }
        Err(error) => {
            let why = format!("what the daemon there holds is not known: {error}");
            let hint = error.hint().unwrap_or_else(|| "see the daemon's messages".into());
            Cache::new(control, State::Unknown, why, hint)
        }
    })
}

fn dirty_words(control: &Path, report: &StatusReport) -> String {
    let dirty = format_size(report.dirty_bytes);
    format!("cache {} holds data that its data-disk does not have ({dirty})", name_of(control))
}

fn name_of(control: &Path) -> String {
    control.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a file system, a swap area or another device is on this one.
fn is_in_use(device: &Path, root: &Path) -> bool {
    let used = ["proc/mounts", "proc/swaps"].into_iter().any(|table| {
        let table = std::fs::read_to_string(root.join(table)).unwrap_or_default();
        table.lines().any(|line| {
            let first = line.split([' ', '\t']).next().unwrap_or_default();
            is_it_or_partition(&first.replace("\\040", " "), &device.to_string_lossy())
        })
    });
    // Also what is mounted where we cannot see it, and devices that are made of it.
    let is_block = std::fs::metadata(device).is_ok_and(|it| it.file_type().is_block_device());
    let exclusive = rustix::fs::OFlags::EXCL | rustix::fs::OFlags::NONBLOCK;
    used || is_block
        && File::options()
            .read(true)
            .custom_flags(exclusive.bits().cast_signed())
            .open(device)
            .is_err_and(|error| error.kind() == ErrorKind::ResourceBusy)
}

/// `/dev/ublkb1` and `/dev/ublkb1p2`, but not `/dev/ublkb10`.
fn is_it_or_partition(name: &str, device: &str) -> bool {
    match name.strip_prefix(device) {
        Some("") => device.starts_with('/'),
        Some(rest) => rest.strip_prefix('p').is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
        }),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_told_from_other_devices() {
        for name in ["/dev/ublkb1", "/dev/ublkb1p1", "/dev/ublkb1p15"] {
            assert!(is_it_or_partition(name, "/dev/ublkb1"), "{name}");
        }
        for name in ["/dev/ublkb10", "/dev/ublkb1p", "/dev/ublkb1px", "/dev/sda", ""] {
            assert!(!is_it_or_partition(name, "/dev/ublkb1"), "{name}");
        }
        assert!(!is_it_or_partition("", ""));
    }

    #[test]
    fn all_but_what_is_detached_is_dirty() {
        use State::{Attached, Detached, Dirty, InUse, Served, Unknown};
        for state in [Detached, Attached, Served, Dirty, InUse, Unknown] {
            let cache = Cache::new(Path::new("x"), state, String::new(), String::new());
            assert_eq!((cache.dirty, cache.hint.is_some()), (state != Detached, state != Detached));
        }
    }
}
