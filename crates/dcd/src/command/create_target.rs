//! What a new cache is for: one data-disk, which is not changed or gets a label, or the members of
//! a volume, which get labels.

use std::path::Path;

use dcd_daemon::device::device_file::{DeviceError, DeviceFile};
use dcd_daemon::device::identity::same_disks;
use dcd_daemon::device::network::store::{bind_store, create_store, store_facts};
use dcd_daemon::device::network::{NetworkProblem, StoreFailure, TakeOver, store_of};
use dcd_daemon::device::shares::Place;
use dcd_daemon::pair::book::{PairBook, PairProblem};
use dcd_daemon::serve::ServeError;
use dcd_daemon::units_text::format_size;
use dcd_engine::format::superblock::DATA_DISK_BLOCKS_MAX;
use dcd_engine::units::MemberIndex;
use dcd_engine::volume::Volume;
use dcd_engine::volume::config::{LABEL_BYTES, VolumeConfig};
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::format::header::VolumeHeader;
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MemberLabel};
use dcd_engine::{Buffer, DataDiskInfo, OpenError, Uuid};
use serde_json::{Value, json};

use super::create::{Stop, list_given_up, look_at};
use super::create_import::Imported;
use super::create_label::{LabelledDisk, refuse_label};
use crate::command::create::CreateArguments;
use crate::error::CommandError;
use crate::settings::TakeOverArgument;
use dcd_files::volume_file::{self, VolumeFile};

/// The data-disks, open and locked. Nothing has been written to them.
pub enum Target {
    /// One, as it is.
    Disk(Box<DeviceFile>),
    /// One with a label (`create_label.rs`).
    Labelled(Box<LabelledDisk>),
    /// Members of a volume.
    Volume(Box<NewVolume>),
    /// Members of a volume that is there (`create_import.rs`).
    Imported(Box<Imported>),
}

/// A volume that is to be made.
pub struct NewVolume {
    file: VolumeFile,
    config: VolumeConfig,
    members: Vec<DeviceFile>,
}

impl Target {
    /// Opens the data-disks and checks that they can be what is asked for.
    pub fn open(arguments: &CreateArguments, stop: &Stop) -> Result<Target, CommandError> {
        let paths: Vec<&Path> = arguments.data_disk.iter().map(|disk| disk.path()).collect();
        let cache_disks = arguments.cache_disk.iter().map(|disk| disk.path());
        let all: Vec<&Path> = cache_disks.chain(paths.iter().copied()).collect();
        if let Some((first, second, shared)) = same_disks(&all) {
            let (first, second) = (first.to_owned(), second.to_owned());
            return Err(ServeError::SameDisk { first, second, shared }.into());
        }
        // A typo is found before any disk is looked at.
        let file = arguments.volume.as_deref().map(volume_file::read).transpose()?;
        if file.is_none() && arguments.import.is_none() && paths.len() > 1 {
            return Err(CommandError::VolumeMissing { disks: paths.len() });
        }
        find_store(arguments)?;
        let mut disks = Vec::new();
        for path in paths {
            if !Place::of(path).exists() {
                let path = path.to_owned();
                return Err(CommandError::Missing { what: "the data-disk", path });
            }
            disks.push(DeviceFile::open(path).map_err(ServeError::device("data-disk"))?);
        }
        if let Some(how) = arguments.import {
            let imported = Imported::find(disks, how, arguments.force)?;
            return Ok(Target::Imported(Box::new(imported)));
        }
        let target = match file {
            None if arguments.labelled => {
                let disk = LabelledDisk::of(disks.remove(0), arguments, stop)?;
                Target::Labelled(Box::new(disk))
            }
            None => {
                let disk = disks.remove(0);
                refuse_label(&disk, arguments)?;
                Target::Disk(Box::new(disk))
            }
            Some(file) => {
                disks.iter().try_for_each(|disk| refuse_content(disk, arguments, stop))?;
                let sizes: Vec<u64> = disks.iter().map(|disk| disk.size_bytes).collect();
                let config = file.plan(&sizes)?;
                Target::Volume(Box::new(NewVolume { file, config, members: disks }))
            }
        };
        let blocks = target.info().blocks;
        if blocks > DATA_DISK_BLOCKS_MAX {
            let error = OpenError::DataDiskTooLarge { most: DATA_DISK_BLOCKS_MAX, found: blocks };
            return Err(ServeError::Open(error).into());
        }
        Ok(target)
    }

    /// Refuses disks that a cache needs, unless asked to in so many words: what is given up then.
    pub fn check_free(
        &self,
        book: &PairBook,
        arguments: &CreateArguments,
    ) -> Result<Vec<String>, CommandError> {
        if matches!(self, Target::Imported(_)) {
            return Ok(Vec::new());
        }
        // What is on those that are overwritten was looked at, whatever it is.
        let look_inside = matches!(self, Target::Disk(_));
        let taken = |disk| refuse_taken(book, disk, look_inside, arguments).transpose();
        self.disks().into_iter().filter_map(taken).collect()
    }

    /// All of them.
    pub fn disks(&self) -> Vec<&DeviceFile> {
        match self {
            Target::Disk(disk) => vec![disk],
            Target::Labelled(labelled) => vec![&labelled.disk],
            Target::Volume(volume) => volume.members.iter().collect(),
            Target::Imported(imported) => imported.disks(),
        }
    }

    /// What the cache is told of its data-disk.
    pub fn info(&self) -> DataDiskInfo {
        match self {
            Target::Disk(disk) => disk.data_disk_info(),
            Target::Labelled(labelled) => labelled.info(),
            Target::Volume(volume) => Volume::data_disk_info(&volume.config),
            Target::Imported(imported) => Volume::data_disk_info(&imported.header().0.config),
        }
    }

    /// Serial number of the data-disk; members are known by their labels.
    pub fn serial(&self) -> String {
        match self {
            Target::Disk(disk) => disk.serial.clone(),
            Target::Labelled(labelled) => labelled.disk.serial.clone(),
            Target::Volume(_) | Target::Imported(_) => String::new(),
        }
    }

    /// Where the payload of the data-disk begins; 0 if it has no label.
    pub fn payload_offset_bytes(&self) -> u64 {
        match self {
            Target::Labelled(labelled) => labelled.payload_offset_bytes,
            Target::Disk(_) | Target::Volume(_) | Target::Imported(_) => 0,
        }
    }

    /// What stands on the cache-disk of a volume, and how many bytes of it its tables take.
    pub fn header(
        &self,
        uuid: Uuid,
        cache_disk_bytes: u64,
    ) -> Result<Option<(VolumeHeader, u64)>, CommandError> {
        let (header, area) = match self {
            Target::Volume(volume) => {
                let header = volume.file.header(uuid, volume.config.clone(), cache_disk_bytes);
                let area = VolumeArea::of(&header, 0).map(|area| area.bytes());
                (header, area)
            }
            Target::Imported(imported) => {
                let (header, bytes) = imported.header();
                (header, Some(bytes))
            }
            Target::Disk(_) | Target::Labelled(_) => return Ok(None),
        };
        let bytes = area.filter(|bytes| *bytes < cache_disk_bytes);
        let needed = area.unwrap_or(u64::MAX);
        let bytes = bytes.ok_or(CommandError::VolumeTables { needed, found: cache_disk_bytes })?;
        Ok(Some((header, bytes)))
    }

    /// Writes a label to each disk that gets one, and nothing else where the beginning of another
    /// content may be.
    pub fn write_labels(
        &self,
        uuid: Uuid,
        take_over: TakeOver,
        lease_seconds: Option<u64>,
    ) -> Result<(), CommandError> {
        let volume = match self {
            Target::Disk(disk) => return bind(disk, uuid, take_over, lease_seconds),
            Target::Imported(_) => return Ok(()),
            Target::Labelled(labelled) => return labelled.write(uuid),
            Target::Volume(volume) => volume,
        };
        for (index, disk) in volume.members.iter().enumerate() {
            let mut bytes = Buffer::zeroed(LABEL_BYTES as usize);
            // Fewer than 2^8 members.
            let member = MemberIndex(index as u8);
            let label = MemberLabel::first(uuid, member).encode();
            for offset in LABEL_OFFSETS {
                let place = offset as usize..offset as usize + label.len();
                bytes.bytes_mut()[place].copy_from_slice(label.bytes());
            }
            disk.write_at(0, &bytes)?;
        }
        Ok(())
    }

    /// The tables of a volume that is there, when all else is written but the superblocks.
    pub fn write_tables(
        &self,
        area_offset: u64,
        cache_disks: &[DeviceFile],
    ) -> Result<(), CommandError> {
        match self {
            Target::Imported(imported) => imported.write(area_offset, cache_disks),
            Target::Disk(_) | Target::Labelled(_) | Target::Volume(_) => Ok(()),
        }
    }

    /// The UUID that it has already.
    pub fn uuid(&self) -> Option<Uuid> {
        match self {
            Target::Imported(imported) => Some(imported.uuid()),
            Target::Disk(_) | Target::Labelled(_) | Target::Volume(_) => None,
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        if let Target::Imported(imported) = self {
            return imported.json();
        }
        let Target::Volume(volume) = self else { return Value::Null };
        let set = |set: &dcd_engine::volume::config::SetConfig| {
            json!({
                "level": set.level.number(),
                "members": set.members.iter().map(|member| member.0).collect::<Vec<_>>(),
                "copies": set.copies,
                "stripe_unit_bytes": set.stripe_unit_bytes,
                "member_offset_bytes": set.member_offset_bytes,
                "member_bytes": set.member_bytes,
                "capacity_bytes": set.capacity_bytes(),
            })
        };
        json!({
            "bytes": volume.config.logical_bytes,
            "extent_bytes": volume.config.extent_bytes,
            "temporary_bytes": volume.config.temporary_bytes,
            "twin_offset_bytes": volume.config.twin_offset_bytes(),
            "sets": volume.config.sets.iter().map(set).collect::<Vec<_>>(),
        })
    }

    /// `/dev/sdb (1 TiB)`, or the members and the size of the volume.
    pub fn words(&self) -> String {
        match self {
            Target::Disk(disk) => {
                format!("{} ({})", disk.path().display(), format_size(disk.size_bytes))
            }
            Target::Labelled(labelled) => labelled.words(),
            Target::Imported(imported) => imported.words(),
            Target::Volume(volume) => {
                let levels = volume.config.sets.iter().map(|set| set.level.number().to_string());
                format!(
                    "a volume of {} on {} disks, RAID {}",
                    format_size(volume.config.logical_bytes),
                    volume.members.len(),
                    levels.collect::<Vec<_>>().join(", "),
                )
            }
        }
    }
}

fn store_failed(path: &Path, failure: StoreFailure) -> CommandError {
    let (path, source) = (path.to_owned(), Box::new(NetworkProblem::Store(failure)));
    ServeError::device("data-disk")(DeviceError::Network { path, source }).into()
}

/// Makes the object store, if there is to be one, and refuses one that belongs to another cache.
fn find_store(arguments: &CreateArguments) -> Result<(), CommandError> {
    let stores: Vec<_> = arguments
        .data_disk
        .iter()
        .filter_map(|disk| store_of(disk.path()).map(|name| (disk.path(), name)))
        .collect();
    for disk in &arguments.cache_disk {
        if store_of(disk.path()).is_some() {
            let (path, what) = (disk.path().to_owned(), "a cache-disk");
            return Err(ServeError::NotInStore { path, what }.into());
        }
    }
    let Some((path, name)) = stores.first() else {
        let is_of_store = arguments.size.is_some() || arguments.take_over.is_some();
        return match is_of_store || arguments.lease.is_some() {
            true => Err(CommandError::OnlyForStores),
            false => Ok(()),
        };
    };
    let what = match (&arguments.volume, arguments.labelled || arguments.import.is_some()) {
        (Some(_), _) => Some("a member of a volume"),
        (None, true) => Some("a disk with a label"),
        (None, false) => None,
    };
    if let Some(what) = what {
        return Err(ServeError::NotInStore { path: path.to_path_buf(), what }.into());
    }
    let failed = |failure| store_failed(path, failure);
    let refuse = |problem, hint: &str| {
        let hint = Some(hint.to_owned());
        Err(failed(StoreFailure { problem, hint, is_silence: false, is_lost: false }))
    };
    if let Some(size) = arguments.size {
        create_store(name, size).map_err(failed)?;
    }
    let facts = store_facts(name).map_err(failed)?;
    let take_over = TakeOverArgument::of(arguments.take_over);
    match (&facts.cache, facts.lease_left_seconds) {
        (Some(cache), _) if take_over == TakeOver::No => refuse(
            format!("{name}: it belongs to cache {cache} (epoch {})", facts.epoch),
            "serve that cache; if it is lost, add --take-over: the new one begins at the end of the last window",
        ),
        (Some(cache), Some(seconds)) if take_over == TakeOver::Lapsed => refuse(
            format!(
                "{name}: it belongs to cache {cache}, and a dcd has it open: its lease ends in {seconds} s, unless it is \
                 renewed"
            ),
            "stop that dcd, or wait for the end of its lease; if its machine is lost for certain, or a person has decided \
             so, --take-over=now shuts it out at once. What it has in its log and in no window is then not in the store",
        ),
        _ => Ok(()),
    }
}

/// An object store knows whose it is.
fn bind(
    disk: &DeviceFile,
    uuid: Uuid,
    take_over: TakeOver,
    lease_seconds: Option<u64>,
) -> Result<(), CommandError> {
    let Some(name) = disk.network().and_then(|network| network.store()) else { return Ok(()) };
    bind_store(name, uuid, take_over, lease_seconds)
        .map_err(|failure| store_failed(disk.path(), failure))
}

/// Refuses a disk that somebody's cache needs. With --force it says what is given up, and so does
/// the answer.
pub fn refuse_taken(
    book: &PairBook,
    disk: &DeviceFile,
    look_inside: bool,
    arguments: &CreateArguments,
) -> Result<Option<String>, CommandError> {
    let Err(problem) = book.check_free(disk, None, look_inside) else { return Ok(None) };
    if !arguments.force {
        return Err(problem.into());
    }
    // The cache that is overwritten is told of when that is looked at.
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let place = match &problem {
        PairProblem::HasCache { place, is_missing: false, .. } => Some(place),
        _ => None,
    };
    let is_named = |place: &std::path::PathBuf| {
        arguments.cache_disk.iter().any(|disk| whole(place) == whole(disk.path()))
    };
    if place.is_some_and(is_named) {
        return Ok(None);
    }
    if !arguments.json {
        eprintln!("dcd: going on all the same, and that is given up: {problem}");
        place.map_or(Ok(()), |place| list_given_up(place))?;
    }
    Ok(Some(problem.to_string()))
}

/// Refuses a disk that holds something, unless asked in so many words, and then says what is lost.
pub fn refuse_content(
    disk: &DeviceFile,
    arguments: &CreateArguments,
    stop: &Stop,
) -> Result<(), CommandError> {
    let path = disk.path();
    match look_at(disk, 0..disk.size_bytes, stop)? {
        None => Ok(()),
        Some(content) if arguments.force => {
            if !arguments.json {
                eprintln!("dcd: overwriting {}: {content}", path.display());
            }
            Ok(())
        }
        Some(content) => Err(CommandError::ForeignContent { path: path.to_owned(), content }),
    }
}
