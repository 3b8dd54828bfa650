//! `dcd probe`: what a block device is to the caches that this machine has, for udev and for
//! people. Opens disks for reading only, locks nothing, and fails at nothing: what cannot be read
//! is told on stderr and is as if it were not there. With `--all` it is the other way round:
//! `probe_all.rs`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::identity::DiskIdentity;
use dcd_daemon::device::shares::{DiskReader, Place, directory_at, is_no_directory, whole_name};
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::pair::legs::label_at;
use dcd_daemon::pair::members::{MemberMark, member_mark_in};
use dcd_daemon::serve::share_choice::choose_shares;
use dcd_engine::Superblock;
use dcd_engine::format::checkpoint;
use dcd_engine::format::data_label::{DATA_LABEL_BYTES, DATA_LABEL_OFFSETS, DataLabel, LabelState};
use dcd_engine::format::end_mark::{self, END_MARK_BYTES};
use dcd_engine::format::geometry::{
    CHECKPOINTS_OFFSET, SEGMENT_SIZE_BYTES_MAX, SUPERBLOCK_OFFSETS,
};
use dcd_engine::format::leg_label::{LegLabel, LegState};
use dcd_engine::format::nvram::{NVRAM_HEAD_BYTES, NVRAM_HEAD_OFFSETS, NvramHead};
use dcd_engine::format::superblock::{CacheState, MAGIC, SUPERBLOCK_SIZE};
use dcd_engine::legs::choose::{Choice, Role, WitnessRole, choose};
use dcd_engine::units::LINE_SIZE;
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES};
use serde_json::{Value, json};

use super::{probe_all, probe_shares};
use crate::config_file;
use crate::error::CommandError;
use crate::settings::Settings;
use crate::stdout::{print, print_json};

/// Where services have their settings, unless another place is named.
pub const CONFIGURATIONS: &str = "/etc/dcd";

/// Tell what a block device is to the caches of this machine, or whether any of these may be dirty.
///
/// A cache-disk or data-disk of a service, under whatever name (a loop device over it, a partition,
/// what is mapped on it), and whether the two are attached: then what is on the data-disk alone may
/// be old. A data-disk of no service is known by the record of pairs of this host. Of a cache-disk
/// that several caches share, all of them. Of the witness of a cache on two, whether its word
/// counts as its legs are. The memory in front of a log (--nvram), unless that was ended in order.
/// Reads only, locks nothing, and with --udev waits for no other disk: udev asks it of every disk,
/// and is told what the disks and the settings say.
///
/// With --all: whether a cache of any service may hold what its data-disk does not. It looks at the
/// settings of each, at the disks that they name, and at the daemons that run. What cannot be known
/// counts as dirty: a file that cannot be read or has a mistake, a disk that is missing, or lost
/// the beginning of its cache, a daemon that does not answer within 10 s. The exit code is 0 if all
/// are detached, and 1 if one is not, is in use or is not known. A removal of the package asks this
/// first.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd probe /dev/sdb
  dcd probe --udev /dev/sdb
  dcd probe --all --json")]
pub struct ProbeArguments {
    /// The device.
    #[arg(value_name = "DEVICE", required_unless_present = "all")]
    pub device: Option<PathBuf>,
    /// Print KEY=value lines for udev, or nothing.
    #[arg(long)]
    pub udev: bool,
    /// Tell of all caches that have settings, or are served, whether they may hold what their
    /// data-disks do not.
    #[arg(long, conflicts_with_all = ["device", "udev"])]
    pub all: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Look for settings, control sockets and mounts below this directory.
    #[arg(long, value_name = "DIRECTORY", default_value = "/", requires = "all")]
    pub root: PathBuf,
    /// Where services have their settings.
    #[arg(long, value_name = "DIRECTORY", default_value = CONFIGURATIONS)]
    pub configurations: PathBuf,
}

/// What a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    role: &'static str,
    /// Name of the service.
    name: Option<String>,
    /// Of the cache, if its disk can be read.
    uuid: Option<String>,
    /// Of a cache-disk: those that its service has.
    data_disks: Vec<PathBuf>,
    /// The log may hold what the data-disk does not.
    is_attached: bool,
    /// It says itself that it is a member of a volume.
    member: Option<MemberMark>,
    /// Of a witness: whether its word counts.
    word: Option<String>,
    /// Of a data-disk: where its cache is or was, if only the host tells.
    place: Option<PathBuf>,
}

pub fn run(arguments: &ProbeArguments) -> Result<(), CommandError> {
    // Without a device, all are asked for: the command line has seen to that.
    let Some(device) = &arguments.device else { return probe_all::run(arguments) };
    let names = names_of(device, arguments.udev);
    if let Some(shared) = probe_shares::SharedDisk::of(&names, &arguments.configurations) {
        return match (arguments.udev, arguments.json) {
            (true, _) => print(&shared.properties()),
            (_, true) => print_json(&shared.json(device)),
            _ => print(&shared.words(device)),
        };
    }
    let found = probe(&names, &arguments.configurations);
    // udev is not to wait for another disk, and asks before there is a record to read.
    let found = found.or_else(|| if arguments.udev { None } else { remembered(device) });
    if arguments.json && !arguments.udev {
        return print_json(&json(device, found.as_ref()));
    }
    print(&match (found, arguments.udev) {
        (Some(found), true) => properties(&found),
        (Some(found), false) => words(device, &found),
        (None, true) => String::new(),
        (None, false) => {
            let is_there = device.symlink_metadata().is_ok();
            let why = if is_there { "" } else { ": it is not there" };
            format!("{}: no disk of a cache{why}\n", device.display())
        }
    })
}

/// A data-disk that says nothing of itself, of a cache that is no service: the host remembers it.
fn remembered(disk: &Path) -> Option<Found> {
    let (cache, place) = PairBook::from_environment(false).cache_needed_by(disk)?;
    Some(Found {
        role: "data-disk",
        name: None,
        uuid: Some(cache.to_string()),
        data_disks: Vec::new(),
        is_attached: true,
        member: None,
        word: None,
        place: Some(place),
    })
}

/// The same as in words. Of what is no disk of a cache the role is null.
fn json(device: &Path, found: Option<&Found>) -> Value {
    let name = |path: &Path| path.display().to_string();
    let device = name(device);
    let Some(found) = found else { return json!({ "device": device, "role": null }) };
    json!({
        "device": device,
        "role": found.role,
        "service": found.name,
        "cache": found.uuid,
        "data_disks": found.data_disks.iter().map(|disk| name(disk)).collect::<Vec<_>>(),
        "attached": found.is_attached,
        "member_of_volume": found.member.is_some(),
        "witness": found.word,
    })
}

/// All names of a device. While udev looks at it, its links are only in the environment.
fn names_of(device: &Path, udev: bool) -> Vec<PathBuf> {
    let mut names = vec![device.to_owned()];
    names.extend(device.canonicalize());
    if udev && let Ok(links) = std::env::var("DEVLINKS") {
        names.extend(links.split(' ').filter(|link| !link.is_empty()).map(PathBuf::from));
    }
    names
}

/// The cache-disks of a service, with the share of each that is meant. A share that is gone was given
/// back, which is for whoever reads it to find out.
pub(super) fn cache_disks_of(settings: &Settings, at: impl Fn(&Path) -> PathBuf) -> Vec<PathBuf> {
    let mut disks: Vec<DeviceSpec> =
        settings.cache_disk.iter().map(|disk| disk.with_path(at(disk.path()))).collect();
    let data_disks: Vec<PathBuf> = settings.data_disk.iter().map(|it| at(it.path())).collect();
    let data_disks: Vec<&Path> = data_disks.iter().map(PathBuf::as_path).collect();
    let book = PairBook::from_environment(false);
    let is_found = choose_shares(&mut disks, settings.share.as_deref(), &data_disks, &book).is_ok();
    let path = |disk: &DeviceSpec| match (&settings.share, Place::of(disk.path()).share) {
        (Some(share), None) if !is_found => disk.path().join(share),
        _ => disk.path().to_owned(),
    };
    disks.iter().map(path).collect()
}

fn probe(names: &[PathBuf], configurations: &Path) -> Option<Found> {
    let is_named =
        |disk: &Path| names.iter().any(|name| name == disk) || names.contains(&whole_name(disk));
    // A loop device over the same file, a partition of the disk, what is mapped on it: what is seen
    // there is as old.
    let device = DiskIdentity::of(names.first()?).ok();
    let is_of = |disk: &Path| match (&device, DiskIdentity::of(disk)) {
        (Some(device), Ok(disk)) => device.is_of(&disk),
        _ => false,
    };
    let is_it = |disk: &Path| is_named(disk) || is_of(disk);
    for (name, settings) in services(configurations) {
        let cache_disks = cache_disks_of(&settings, Path::to_owned);
        let cache_disks = cache_disks.iter().map(PathBuf::as_path);
        let Some(cache_disk) =
            cache_disks.clone().find(|disk| is_it(disk)).or(cache_disks.clone().next())
        else {
            continue;
        };
        let witness = settings.witness.as_ref().map(DeviceSpec::path);
        if witness.is_some_and(is_it) {
            let legs: Vec<LegLabel> = cache_disks.filter_map(label_at).collect();
            return Some(of_witness(Some(name), label_at(names.first()?), &legs));
        }
        let role = match () {
            () if is_it(cache_disk) => "cache-disk",
            () if settings.data_disk.iter().any(|disk| is_it(disk.path())) => "data-disk",
            () => continue,
        };
        // Of the cache-disk itself, the name that is there already.
        let there: Vec<&Path> = cache_disks
            .map(|disk| names.first().filter(|_| is_named(disk)).map_or(disk, PathBuf::as_path))
            .collect();
        let contents = read_cache(&there, witness);
        let data_disks = settings.data_disk.iter().map(|disk| disk.path().to_owned());
        return Some(Found {
            role,
            name: Some(name),
            uuid: contents.superblock().map(|superblock| superblock.uuid.to_string()),
            data_disks: data_disks.filter(|_| role == "cache-disk").collect(),
            is_attached: contents.may_be_newer(),
            member: None,
            word: None,
            place: None,
        });
    }
    if let Some(label) = read_label(names.first()?) {
        return Some(Found {
            role: "data-disk",
            name: None,
            uuid: Some(label.uuid.to_string()),
            data_disks: Vec::new(),
            is_attached: label.state != LabelState::Detached,
            member: None,
            word: None,
            place: None,
        });
    }
    if let Some(mark) = read_member_mark(names.first()?) {
        return Some(Found {
            role: "data-disk",
            name: None,
            uuid: mark.cache().map(|cache| cache.to_string()),
            data_disks: Vec::new(),
            // Where the blocks of a volume lie only its cache knows.
            is_attached: true,
            member: Some(mark),
            word: None,
            place: None,
        });
    }
    let disk = names.first()?;
    if let Some(label) = label_at(disk).filter(|label| label.state == LegState::Witness) {
        return Some(of_witness(None, Some(label), &[]));
    }
    if let Some(head) = memory_head(disk) {
        return Some(Found {
            role: "memory",
            name: None,
            uuid: Some(head.cache.to_string()),
            data_disks: Vec::new(),
            // An end in order takes the mark away.
            is_attached: true,
            member: None,
            word: None,
            place: None,
        });
    }
    let contents = read_superblock(disk);
    let superblock = contents.superblock()?;
    Some(Found {
        role: "cache-disk",
        name: None,
        uuid: Some(superblock.uuid.to_string()),
        data_disks: Vec::new(),
        is_attached: read_cache(&[disk], None).may_be_newer(),
        member: None,
        word: None,
        place: None,
    })
}

/// The head of a memory in front of a log, unless that was ended in order.
fn memory_head(disk: &Path) -> Option<NvramHead> {
    let disk = DiskReader::open(disk).ok()?;
    let mut copies = [[0; NVRAM_HEAD_BYTES]; NVRAM_HEAD_OFFSETS.len()];
    for (copy, offset) in copies.iter_mut().zip(NVRAM_HEAD_OFFSETS) {
        // A copy that cannot be read stays empty, which is no head.
        let _ = disk.read_exact_at(copy, offset);
    }
    NvramHead::newest(copies.each_ref().map(|copy| &copy[..])).ok()
}

/// A witness, by its label and those of its legs.
fn of_witness(name: Option<String>, label: Option<LegLabel>, legs: &[LegLabel]) -> Found {
    let cache = label.as_ref().map(|label| label.cache);
    Found {
        role: "witness",
        name,
        uuid: cache.map(|cache| cache.to_string()),
        data_disks: Vec::new(),
        // It holds no data.
        is_attached: false,
        member: None,
        word: Some(word_of_witness(label.as_ref(), legs)),
        place: None,
    }
}

/// Whether its word counts, as its legs are now.
fn word_of_witness(label: Option<&LegLabel>, legs: &[LegLabel]) -> String {
    let Some(label) = label else {
        return "it has no label that can be read, so no word: see `dcd check`".into();
    };
    if legs.is_empty() {
        return "it holds no data; whether its word counts only the labels of its legs tell".into();
    }
    match choose(legs, Some(label), &[]) {
        Ok(Choice { witness: Some(WitnessRole::Votes), .. }) => {
            "its word counts: one leg in sync starts with it".into()
        }
        Ok(_) => "it is older than its legs: it has no word before a start with these".into(),
        Err(error) => format!("a start refuses: {error}"),
    }
}

/// The services of this machine with their settings, by name.
pub(super) fn services(configurations: &Path) -> Vec<(String, Settings)> {
    let entries = std::fs::read_dir(configurations).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    let mut services = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|it| it == "toml")) {
        let name = file.file_stem().and_then(|name| name.to_str()).filter(|name| is_plain(name));
        match (name, config_file::read(file)) {
            (Some(name), Ok(settings)) => services.push((name.to_owned(), settings)),
            (None, _) => eprintln!("dcd: {}: no name of a service", file.display()),
            (Some(_), Err(error)) => eprintln!("dcd: {error}"),
        }
    }
    services
}

/// Names that are the same in a unit, in a rule and in a path.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    !name.is_empty() && name.chars().all(is_plain)
}

/// What is on a cache-disk.
pub(super) enum Contents {
    /// What may have been there is not known, and why not.
    Unknown(&'static str),
    /// No cache: none was made yet, or something else is there now.
    Nothing,
    Cache(Box<Superblock>),
}

impl Contents {
    pub(super) fn superblock(&self) -> Option<&Superblock> {
        match self {
            Contents::Cache(superblock) => Some(superblock),
            Contents::Unknown(_) | Contents::Nothing => None,
        }
    }

    /// Whether it may hold what the data-disk does not. Of a cache-disk that is missing nobody
    /// knows.
    pub(super) fn may_be_newer(&self) -> bool {
        match self {
            Contents::Unknown(_) => true,
            Contents::Nothing => false,
            Contents::Cache(superblock) => superblock.state != CacheState::Detached,
        }
    }
}

/// What is on a cache-disk, on one disk or on several legs, perhaps with a witness. An older leg may
/// say anything: those count that a start would believe, and where it would believe none, nobody
/// knows.
pub(super) fn read_cache(disks: &[&Path], witness: Option<&Path>) -> Contents {
    let mut found: Vec<Contents> = disks.iter().map(|disk| read_superblock(disk)).collect();
    let has_legs = |contents: &Contents| contents.superblock().is_some_and(|it| it.has_legs);
    if !found.iter().any(has_legs) {
        let worst = found.iter().position(Contents::may_be_newer).unwrap_or(0);
        return match found.is_empty() {
            true => Contents::Nothing,
            false => found.swap_remove(worst),
        };
    }
    let (labels, legs): (Vec<LegLabel>, Vec<Contents>) = disks
        .iter()
        .zip(found)
        .filter_map(|(disk, contents)| Some((label_at(disk)?, contents)))
        .unzip();
    let witness = witness.and_then(label_at);
    let Ok(choice) = choose(&labels, witness.as_ref(), &[]) else {
        return Contents::Unknown("lacks a leg, or its legs are not of one mind");
    };
    let in_sync = legs.into_iter().zip(&choice.roles).filter(|(_, role)| **role == Role::InSync);
    in_sync
        .map(|(contents, _)| contents)
        .max_by_key(|contents| contents.superblock().map(|superblock| superblock.generation))
        .unwrap_or(Contents::Nothing)
}

/// Both copies of what a disk says of itself. One that cannot be read stays empty, which is no
/// label.
fn read_copies<const BYTES: usize>(disk: &Path, offsets: [u64; 2]) -> Option<[[u8; BYTES]; 2]> {
    let disk = DiskReader::open(disk).ok()?;
    let mut copies = [[0; BYTES]; 2];
    for (copy, offset) in copies.iter_mut().zip(offsets) {
        let _ = disk.read_exact_at(copy, offset);
    }
    Some(copies)
}

pub(super) fn read_superblock(disk: &Path) -> Contents {
    const UNREADABLE: Contents = Contents::Unknown("cannot be read");
    let place = Place::of(disk);
    if place.share.is_none() {
        match directory_at(&place.disk) {
            // What is in its shares is asked for by their names.
            Ok(Ok(_)) => return Contents::Nothing,
            Ok(Err(problem)) if !is_no_directory(&problem) => {
                return Contents::Unknown("has a directory of shares that cannot be read");
            }
            _ => {}
        }
    }
    let file = match DiskReader::open(disk) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Contents::Unknown("is neither a file nor a block device");
        }
        // The disk is there, and has no such share: the cache gave it back.
        Err(error) if place.share.is_some() && error.kind() == ErrorKind::NotFound => {
            return Contents::Nothing;
        }
        Err(_) => return UNREADABLE,
    };
    let mut copies = [[0; SUPERBLOCK_SIZE]; SUPERBLOCK_OFFSETS.len()];
    let (mut is_read, mut is_short) = (true, false);
    for (copy, offset) in copies.iter_mut().zip(SUPERBLOCK_OFFSETS) {
        // A copy that cannot be read stays empty, which is no superblock.
        match file.read_exact_at(copy, offset) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => is_short = true,
            read => is_read &= read.is_ok(),
        }
    }
    let [first, second] = &copies;
    match Superblock::newest(first, second) {
        Ok(superblock) => Contents::Cache(Box::new(superblock)),
        Err(_) if !is_read => UNREADABLE,
        // Of a later version, or damaged: something is there.
        Err(_) if copies.iter().any(|copy| copy.starts_with(&MAGIC.to_le_bytes())) => {
            Contents::Unknown("holds a cache that cannot be read")
        }
        // No cache was made on so small a disk.
        Err(_) if is_short => Contents::Unknown("was cut off where its cache begins"),
        Err(_) if has_rest_of_a_cache(&file) => {
            Contents::Unknown("holds a cache that has lost its beginning")
        }
        Err(_) => Contents::Nothing,
    }
}

/// Whether a checkpoint lies where every cache has one, or an end mark near the end of the disk,
/// where it is unless the cache has only a part of it. A wipe leaves neither.
fn has_rest_of_a_cache(file: &DiskReader) -> bool {
    let mut magic = [0; 8];
    if file.read_exact_at(&mut magic, CHECKPOINTS_OFFSET).is_ok()
        && magic == checkpoint::MAGIC.to_le_bytes()
    {
        return true;
    }
    let end = file.length().unwrap_or(0) / LINE_SIZE * LINE_SIZE;
    // Behind the mark less than a segment is left.
    let start = end.saturating_sub(SEGMENT_SIZE_BYTES_MAX + END_MARK_BYTES as u64);
    let mut bytes = vec![0; (end - start) as usize];
    let is_read = file.read_exact_at(&mut bytes, start).is_ok();
    let mut lines = bytes.chunks(LINE_SIZE as usize);
    is_read && lines.any(|line| line.starts_with(&end_mark::MAGIC.to_le_bytes()))
}

/// What a data-disk says of itself.
pub(super) fn read_label(disk: &Path) -> Option<DataLabel> {
    let [first, second] = read_copies::<DATA_LABEL_BYTES>(disk, DATA_LABEL_OFFSETS)?;
    DataLabel::newest(&first, &second).ok()
}

/// What a disk says of itself, if it is a member of a volume.
fn read_member_mark(disk: &Path) -> Option<MemberMark> {
    let [first, second] = read_copies::<MEMBER_LABEL_BYTES>(disk, LABEL_OFFSETS)?;
    member_mark_in(&first, &second)
}

fn properties(found: &Found) -> String {
    let mut text = format!("DCD_ROLE={}\n", found.role);
    if let Some(name) = &found.name {
        text += &format!("DCD_NAME={name}\n");
    }
    if let Some(uuid) = &found.uuid {
        text += &format!("DCD_UUID={uuid}\n");
    }
    // Names with spaces are left out: udev would take them for several.
    let names = found.data_disks.iter().filter_map(|disk| disk.to_str());
    let names: Vec<&str> = names.filter(|name| !name.contains(char::is_whitespace)).collect();
    if !names.is_empty() {
        text += &format!("DCD_DATA_DISKS={}\n", names.join(" "));
    }
    match found.role {
        "witness" => text,
        _ => text + &format!("DCD_ATTACHED={}\n", u8::from(found.is_attached)),
    }
}

fn words(device: &Path, found: &Found) -> String {
    if let Some(mark) = &found.member {
        let device = device.display();
        return format!("{device} {mark}, of no service: use it through dcd, with the others\n");
    }
    let of = match (&found.name, &found.uuid) {
        (Some(name), Some(uuid)) => format!("service {name}, cache {uuid}"),
        (Some(name), None) if found.word.is_some() => format!("service {name}"),
        (Some(name), None) => format!("service {name}, whose cache-disk cannot be read"),
        (None, uuid) => {
            let place = found.place.as_ref().map(|it| format!(" on {}", it.display()));
            let uuid = uuid.as_deref().unwrap_or_default();
            format!("cache {uuid}{}, of no service", place.unwrap_or_default())
        }
    };
    if let Some(word) = &found.word {
        return format!("{}: witness of {of}: {word}\n", device.display());
    }
    let state = match (found.is_attached, found.role) {
        (true, "data-disk") => ": what is on it alone may be old, use it through dcd",
        (true, _) => ": it may hold what is nowhere else",
        (false, _) => ": detached",
    };
    format!("{}: {} of {of}{state}\n", device.display(), found.role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_plain_names() {
        assert!(is_plain("sdb") && is_plain("data_1.x-y"));
        for name in ["", "a b", "a/b", "a\"b", "ä"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
