//! `dcd detach --wipe`: after the detach, what the cache-disk held is overwritten
//! (`dcd_daemon::device::wipe`).
//!
//! 1. Before anything else the cache-disk is looked at: one that could not be wiped later is not
//!    detached either.
//! 2. The detach, by a daemon or here. Crash before it is durable: the pair is one, and nothing is
//!    wiped.
//! 3. The cache-disk is opened for us alone, and must say itself that this cache is detached: then
//!    nothing that was acknowledged depends on it. Crash from here on: `dcd detach --wipe` is
//!    repeated, and begins here.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dcd_daemon::device::device_file::{DeviceError, DeviceFile};
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::network::is_network;
use dcd_daemon::device::shares::disk_of;
use dcd_daemon::device::wipe::{Wiped, wipe};
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::pair::legs::{label_at, read_leg_label};
use dcd_daemon::process::signals::Signals;
use dcd_daemon::report::status_report::StatusReport;
use dcd_daemon::serve::ServeError;
use dcd_engine::format::data_label::LabelState;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::leg_label::{LEG_LABEL_BYTES, LEG_LABEL_OFFSETS, LegLabel, LegState};
use dcd_engine::format::superblock::{CacheState, SUPERBLOCK_SIZE};
use dcd_engine::legs::choose::{LegsError, Role, choose};
use dcd_engine::{Buffer, Superblock, Uuid};

use super::probe::read_label;
use crate::error::CommandError;
use crate::image::CacheImage;
use crate::progress::{Progress, Unit};
use crate::stdout::print_done;

/// How long a daemon that has answered may take to let go of its disks.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A cache-disk that is to be wiped when its cache is detached: all of its legs.
pub struct Wipe {
    paths: Vec<PathBuf>,
    /// The file of the witness, as far as somebody names it.
    witness: Option<PathBuf>,
    /// What belongs to it and is not wiped, in words.
    stays: Vec<String>,
    uuid: Uuid,
    /// It is so already.
    pub is_detached: bool,
}

impl Wipe {
    /// Of a cache that nobody serves.
    pub fn of(
        cache_disks: &[DeviceSpec],
        data_disk: &DeviceSpec,
        witness: Option<&DeviceSpec>,
    ) -> Result<Wipe, CommandError> {
        let paths: Vec<PathBuf> = cache_disks.iter().map(|disk| disk.path().to_owned()).collect();
        let labels: Vec<LegLabel> = paths.iter().filter_map(|path| label_at(path)).collect();
        let is_older = |path: &Path| label_at(path).is_some_and(|label| is_stale(&label, &labels));
        let counts = paths.iter().filter(|path| paths.len() == 1 || !is_older(path));
        let found = counts.map(|path| CacheImage::open(path)?.need_superblock());
        // Of several some may have been wiped before this was ended.
        let mut found: Vec<Result<Superblock, CommandError>> = found.collect();
        let first = found.iter().position(Result::is_ok).unwrap_or(0);
        let Some(_) = found.get(first) else {
            return Err(not_wiped(&paths[0], "no leg is in sync".into()));
        };
        let superblock = found.swap_remove(first)?;
        // A crash may have come before the label of the data-disk said so, too.
        let is_labelled = read_label(data_disk.path())
            .is_some_and(|it| it.uuid == superblock.uuid && it.state != LabelState::Detached);
        let mut all = found.iter().flatten().chain([&superblock]);
        let is_detached = all.all(|it| it.state == CacheState::Detached) && !is_labelled;
        let witness = witness.map(|it| it.path().to_owned());
        let stays = stays(&labels, witness.as_deref());
        Ok(Wipe { paths, witness, stays, uuid: superblock.uuid, is_detached })
    }

    /// Of the cache that a daemon serves, which knows its disks by names of its own.
    pub fn of_served(status: &StatusReport) -> Result<Wipe, CommandError> {
        let there = there(status);
        let mut paths = Vec::new();
        for leg in status.legs.iter().filter(|leg| leg.state != "taken-out") {
            let Some(path) = leg.disk.as_ref().map(|disk| as_seen(&there, disk)) else { continue };
            // One that has failed may be gone, and one that is being filled is nothing yet.
            match CacheImage::open(&path).and_then(|image| image.need_superblock()) {
                Err(error) if !leg.is_in_sync() => {
                    eprintln!("dcd: {} will not be wiped: {error}", path.display());
                }
                _ => paths.push(path),
            }
        }
        if status.legs.is_empty() {
            paths = disks_of_served(status);
        }
        let mut served = None;
        for path in &paths {
            let superblock = CacheImage::open(path)?.need_superblock()?;
            if superblock.uuid.to_string() != status.uuid {
                return Err(not_wiped(
                    path,
                    format!("it has cache {}, and {} is served", superblock.uuid, status.uuid),
                ));
            }
            served = Some(superblock.uuid);
            if is_network(path) {
                continue;
            }
            let disk = disk_of(path);
            File::options().write(true).open(&disk).map_err(CommandError::file("open", &disk))?;
        }
        let Some(uuid) = served else {
            return Err(not_wiped(&there, "the daemon names no leg that can be wiped".into()));
        };
        let witness = status.leg_witness.as_ref().and_then(|witness| witness.file.as_ref());
        let witness = witness.map(|file| there.join(file));
        Ok(Wipe { paths, witness, stays: Vec::new(), uuid, is_detached: false })
    }

    /// Wipes them, if they are detached.
    pub fn run(&self) -> Result<(), CommandError> {
        let opened = self.paths.iter().map(|path| open(path));
        let disks: Vec<DeviceFile> = opened.collect::<Result<_, _>>()?;
        // From the disks themselves, now that nobody else writes to them.
        let disks = in_order(self.uuid, disks.iter())?;
        overwrite(disks.into_iter())?;
        self.wipe_witness()?;
        self.stays.iter().for_each(|what| eprintln!("dcd: {what}"));
        // The cache is no more, also if its end was not recorded.
        PairBook::from_environment(false).forget(self.uuid);
        Ok(())
    }

    /// The labels of the witness, if they are still those of this cache. It holds nothing else.
    fn wipe_witness(&self) -> Result<(), CommandError> {
        let Some(path) = &self.witness else { return Ok(()) };
        let is_ours =
            |label: LegLabel| label.cache == self.uuid && label.state == LegState::Witness;
        if !label_at(path).is_some_and(is_ours) {
            eprintln!("dcd: {} is not the witness of this cache: left as it is", path.display());
            return Ok(());
        }
        let file = open(path)?;
        for offset in LEG_LABEL_OFFSETS {
            file.write_at(offset, &Buffer::zeroed(LEG_LABEL_BYTES))?;
        }
        print_done(&format!("wiped: the witness {} holds zeroes\n", path.display()))
    }
}

/// A disk as a daemon with this working directory names it.
fn as_seen(there: &Path, disk: &str) -> PathBuf {
    if is_network(Path::new(disk)) { disk.into() } else { there.join(disk) }
}

/// Overwrites disks on which nothing depends.
pub fn overwrite<'d>(disks: impl Iterator<Item = &'d DeviceFile>) -> Result<(), CommandError> {
    let signals = Signals::install().map_err(ServeError::system("receive signals"))?;
    for disk in disks {
        let mut progress = Progress::new("wiping", Unit::Bytes);
        let wiped = wipe(disk, &mut |done, total| {
            progress.update(done, total);
            signals.take().is_none()
        });
        progress.finish();
        match wiped? {
            Wiped::All => print_done(&format!("wiped: {} holds zeroes\n", disk.path().display()))?,
            Wiped::UpTo(done) => {
                return Err(CommandError::WipeCancelled {
                    path: disk.path().to_owned(),
                    left: disk.size_bytes.saturating_sub(done),
                });
            }
        }
    }
    Ok(())
}

/// Those disks of a cache that are not zero already. Each must say that the cache is detached, or be
/// a leg that one which says so knows to be older; these go first, while somebody can say it.
pub fn in_order<'d>(
    cache: Uuid,
    disks: impl Iterator<Item = &'d DeviceFile>,
) -> Result<Vec<&'d DeviceFile>, CommandError> {
    let (mut older, mut detached, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for disk in disks {
        let [first, second] = SUPERBLOCK_OFFSETS.map(|at| disk.read_at(at, SUPERBLOCK_SIZE));
        let (first, second) = (first?, second?);
        labels.extend(read_leg_label(disk)?.ok());
        match Superblock::newest(first.bytes(), second.bytes()) {
            Ok(found) if found.uuid != cache => {
                let why = format!("it has cache {}, not {cache}", found.uuid);
                return Err(not_wiped(disk.path(), why));
            }
            Ok(found) if found.state == CacheState::Detached => detached.push(disk),
            Ok(_) => older.push(disk),
            // Of several, one that was wiped before.
            Err(_) if first.bytes().iter().all(|byte| *byte == 0) => {}
            Err(error) => return Err(not_wiped(disk.path(), error.to_string())),
        }
    }
    for disk in &older {
        let is_older = !detached.is_empty()
            && read_leg_label(disk)?.is_ok_and(|label| is_stale(&label, &labels));
        if !is_older {
            return Err(not_wiped(disk.path(), "it does not say that it is detached".into()));
        }
    }
    older.extend(detached);
    Ok(older)
}

/// The cache-disks of a cache that a daemon serves: one, or all legs that it knows.
pub fn disks_of_served(status: &StatusReport) -> Vec<PathBuf> {
    let there = there(status);
    if status.legs.is_empty() {
        let named: Result<DeviceSpec, _> = status.cache_disk.parse();
        let named =
            named.map_or_else(|_| status.cache_disk.clone().into(), |it| it.path().to_owned());
        return vec![if is_network(&named) { named } else { there.join(named) }];
    }
    status
        .legs
        .iter()
        // The room of one that was taken out may be somebody else's by now.
        .filter(|leg| leg.state != "taken-out")
        .filter_map(|leg| leg.disk.as_ref())
        .map(|disk| as_seen(&there, disk))
        .collect()
}

/// The directory from which the names of a running dcd are seen.
pub fn there(status: &StatusReport) -> PathBuf {
    std::fs::read_link(format!("/proc/{}/cwd", status.pid)).unwrap_or_default()
}

/// Whether a leg holds what is older, by the labels of all.
fn is_stale(label: &LegLabel, labels: &[LegLabel]) -> bool {
    let missing = match choose(labels, None, &[]) {
        Err(LegsError::Missing { missing, .. }) => missing,
        _ => Vec::new(),
    };
    choose(labels, None, &missing).is_ok_and(|choice| {
        let mut roles = labels.iter().zip(&choice.roles);
        roles.any(|(it, role)| it.leg == label.leg && *role == Role::Stale)
    })
}

/// What belongs to these legs and is not wiped with them.
fn stays(labels: &[LegLabel], witness: Option<&Path>) -> Vec<String> {
    let newest = labels.iter().max_by_key(|label| label.number);
    let Some(membership) = newest.map(|label| &label.membership) else { return Vec::new() };
    let is_here = |leg: &&Uuid| labels.iter().any(|label| label.leg == **leg);
    let legs = membership.members.iter().filter(|leg| !is_here(leg));
    let legs = legs.map(|leg| format!("leg {leg} was not given: what is on it stays there"));
    let named = membership.witness.filter(|_| witness.is_none());
    let witness =
        named.map(|it| format!("the file of the witness {it} holds no data; it may be deleted"));
    legs.chain(witness).collect()
}

fn not_wiped(path: &Path, why: String) -> CommandError {
    CommandError::NotWiped { path: path.to_owned(), why }
}

fn open(path: &Path) -> Result<DeviceFile, CommandError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match DeviceFile::open(path) {
            Err(
                DeviceError::Locked { .. }
                | DeviceError::LockedBelow { .. }
                | DeviceError::UsedThrough { .. }
                | DeviceError::Busy { .. },
            ) if Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
            opened => return Ok(opened?),
        }
    }
}
