//! `dcd volume import`: a volume whose cache-disk is lost gets a new one, by the twin of its tables
//! on its members. What was in the log and not destaged is gone with the old one.
//!
//! It is a creation ([`super::create`]) whose tables are not empty, with the UUID that the volume had.

use std::cell::Cell;
use std::path::PathBuf;

use clap::Args;
use dcd_daemon::device::device_file::{DeviceError, DeviceFile};
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::pair::book::{PairBook, PairProblem};
use dcd_daemon::pair::members::{MemberError, WhichCounts, read_label_of};
use dcd_daemon::units_text::{format_size, parse_size};
use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::format::header::VolumeHeader;
use dcd_engine::volume::format::label::{MemberLabel, Standing};
use dcd_engine::volume::import::{self, FoundVolume, ImportDisks, ImportError, ImportReport};
use dcd_engine::{Buffer, IoError, Uuid};
use serde_json::{Value, json};

use super::create::CreateArguments;
use crate::error::CommandError;
use crate::output::count;
use crate::progress::{Progress, Unit};

/// What `dcd volume import` is told.
#[derive(Args, Debug)]
pub struct ImportArguments {
    /// The new cache-disk: a block device, or a file (made if it is missing). Given again, each is
    /// a leg that holds all of it.
    #[arg(long, value_name = "FILE|DEVICE", required = true)]
    cache_disk: Vec<DeviceSpec>,
    /// Size of the cache. Needed for a new file; otherwise all of the file or device is used.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cache_size: Option<u64>,
    /// A member of the volume, in any order; each in a --data-disk of its own.
    #[arg(long, value_name = "DISK", required = true)]
    data_disk: Vec<DeviceSpec>,
    /// Size of a segment, the unit of the log: a power of two from 64k to 4M [default: 1M, less
    /// for small caches].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    segment_size: Option<u64>,
    /// How much of the cache-disk is for copies of what is read.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0",
          hide_default_value = true)]
    read_area: u64,
    /// Go on although members are missing that held something.
    #[arg(long)]
    degraded: bool,
    /// Overwrite what is on the new cache-disk; and give up the old one, although it is there and
    /// may hold what the members have not.
    #[arg(long)]
    force: bool,
    /// Print what was found and done as JSON.
    #[arg(long)]
    json: bool,
}

impl ImportArguments {
    /// The creation that it is.
    pub fn creation(&self) -> CreateArguments {
        CreateArguments {
            size: None,
            take_over: None,
            lease: None,
            witness: None,
            cache_disk: self.cache_disk.clone(),
            cache_size: self.cache_size,
            share: None,
            name: None,
            data_disk: self.data_disk.clone(),
            volume: None,
            labelled: false,
            label_head: None,
            segment_size: self.segment_size,
            read_area: self.read_area,
            fill: false,
            no_fill: false,
            sparse: false,
            force: self.force,
            uuid: None,
            json: self.json,
            import: Some(ImportOf { degraded: self.degraded }),
        }
    }
}

/// How a volume is imported.
#[derive(Clone, Copy, Debug)]
pub struct ImportOf {
    /// Members may be missing.
    pub degraded: bool,
}

/// A volume that was found on its members.
pub struct Imported {
    disks: Vec<(MemberIndex, DeviceFile)>,
    header: VolumeHeader,
    area_bytes: u64,
    holder: MemberIndex,
    /// Disks of it that were given, and are no members.
    others: Vec<(PathBuf, &'static str)>,
    found: Cell<Option<FoundVolume>>,
    report: Cell<Option<ImportReport>>,
}

impl Imported {
    /// Looks for it; nothing is written.
    pub fn find(
        disks: Vec<DeviceFile>,
        how: ImportOf,
        force: bool,
    ) -> Result<Imported, CommandError> {
        let mut labels: Vec<MemberLabel> = Vec::new();
        let mut members: Vec<(MemberIndex, DeviceFile)> = Vec::new();
        let mut others = Vec::new();
        for disk in disks {
            let path = disk.path().to_owned();
            let label = read_label_of(&disk)?;
            let label = label
                .map_err(|problem| CommandError::NotAMember { path: path.clone(), problem })?;
            if let Some(what) = no_member(label.standing) {
                others.push((path, what));
                continue;
            }
            if let Some(first) = labels.first().filter(|first| first.uuid != label.uuid) {
                let (expected, found) = (first.uuid, label.uuid);
                let error = MemberError::OtherVolume { path, expected, found };
                return Err(CommandError::Member(error));
            }
            let is_same = |it: &MemberLabel| it.member == label.member;
            if let Some(place) = labels.iter().position(is_same) {
                let (first, second) = (members[place].1.path().to_owned(), disk.path().to_owned());
                let member = label.member.0;
                let which = WhichCounts::of(Some(&labels[place]), Some(&label));
                let error = MemberError::SameMember { member, first, second, which };
                return Err(CommandError::Member(error));
            }
            labels.push(label);
            members.push((label.member, disk));
        }
        let mut all = Disks::new(&members, &[], 0);
        let found = import::find(&labels, how.degraded, &mut all);
        let found = found.map_err(|problem| all.error(problem))?;
        let header = found.header.clone();
        refuse_while_it_is_there(&members, header.uuid, force)?;
        Ok(Imported {
            area_bytes: found.area_bytes(),
            holder: found.holder,
            disks: members,
            header,
            others,
            found: Cell::new(Some(found)),
            report: Cell::new(None),
        })
    }

    /// The members.
    pub fn disks(&self) -> Vec<&DeviceFile> {
        self.disks.iter().map(|(_, disk)| disk).collect()
    }

    /// What it is made of, and how many bytes of a cache-disk its tables take.
    pub fn header(&self) -> (VolumeHeader, u64) {
        (self.header.clone(), self.area_bytes)
    }

    /// The UUID that it has.
    pub fn uuid(&self) -> Uuid {
        self.header.uuid
    }

    /// Writes the tables. All that a creation writes is there by then, but for the superblocks.
    pub fn write(&self, area_offset: u64, cache_disks: &[DeviceFile]) -> Result<(), CommandError> {
        let found = self.found.take().expect("it is written once");
        let mut disks = Disks::new(&self.disks, cache_disks, found.region_bytes());
        let report = found.write(area_offset, &mut disks);
        std::mem::replace(&mut disks.progress, new_progress()).finish();
        self.report.set(Some(report.map_err(|problem| disks.error(problem))?));
        Ok(())
    }

    /// What was done, for programs.
    pub fn json(&self) -> Value {
        let report = self.report.get().unwrap_or_default();
        json!({
            "bytes": self.header.config.logical_bytes,
            "extent_bytes": self.header.config.extent_bytes,
            "twin_of_member": self.holder.0,
            "extents": report.extents_mapped,
            "regions": report.regions,
            "regions_believed": report.regions_believed,
            "lines_believed": report.lines_believed,
            "lines_mended": report.lines_mended,
            "lines_lost": report.lines_lost,
            "no_members": self.others.iter().map(|(disk, what)| json!({ "disk": disk, "is": what })).collect::<Value>(),
        })
    }

    /// The same for people: the volume, and what was done.
    pub fn words(&self) -> String {
        let config = &self.header.config;
        let report = self.report.get().unwrap_or_default();
        let size = |lines: u64| format_size(lines.saturating_mul(LINE_SIZE));
        let mut text = format!(
            "a volume of {} with {} of data, by the tables on member {}",
            format_size(config.logical_bytes),
            format_size(report.extents_mapped.saturating_mul(config.extent_bytes)),
            self.holder.0,
        );
        if report.regions_believed > 0 {
            text += &format!(
                "; no checksums were known of {} of {}: {} believed as it is, {} made alike",
                report.regions_believed,
                count(report.regions, "region"),
                size(report.lines_believed),
                size(report.lines_mended),
            );
        }
        if report.lines_lost > 0 {
            text += &format!("; {} lost: reads fail until it is written", size(report.lines_lost));
        }
        for (disk, what) in &self.others {
            text += &format!("; {} is {what}, and was left as it is", disk.display());
        }
        text
    }
}

/// What a disk of the volume is whose label alone says that it is no member.
fn no_member(standing: Standing) -> Option<&'static str> {
    match standing {
        // Of the last the tables tell whether it is one.
        Standing::Member | Standing::Incoming | Standing::SpareMember => None,
        Standing::Spare | Standing::SpareIncoming => Some("a spare"),
        Standing::Released => Some("no member any more"),
    }
}

/// The old cache-disk may hold what the members have not.
fn refuse_while_it_is_there(
    members: &[(MemberIndex, DeviceFile)],
    uuid: Uuid,
    force: bool,
) -> Result<(), CommandError> {
    let book = PairBook::from_environment(false);
    if force {
        if let Some(place) = book.cache_disk_of(uuid) {
            let place = place.display();
            eprintln!("dcd: giving up the old cache-disk {place}, and what only it has");
        }
        return Ok(());
    }
    for (_, disk) in members {
        if let Err(problem @ PairProblem::HasCache { .. }) =
            book.check_free(disk, Some(uuid), false)
        {
            return Err(problem.into());
        }
    }
    match book.cache_disk_of(uuid) {
        Some(place) => Err(CommandError::CacheDiskThere { place }),
        None => Ok(()),
    }
}

fn new_progress() -> Progress {
    Progress::new("importing", Unit::Bytes)
}

/// All disks of an import.
struct Disks<'a> {
    members: &'a [(MemberIndex, DeviceFile)],
    cache_disks: &'a [DeviceFile],
    /// What is told of at a time.
    region_bytes: u64,
    progress: Progress,
    /// The last that has failed.
    failed: Option<DeviceError>,
}

impl<'a> Disks<'a> {
    fn new(
        members: &'a [(MemberIndex, DeviceFile)],
        cache_disks: &'a [DeviceFile],
        region_bytes: u64,
    ) -> Disks<'a> {
        Disks { members, cache_disks, region_bytes, progress: new_progress(), failed: None }
    }

    fn member(&self, member: MemberIndex) -> Result<&'a DeviceFile, IoError> {
        let found = self.members.iter().find(|(known, _)| *known == member);
        found.map(|(_, disk)| disk).ok_or(IoError::Gone)
    }

    fn note(&mut self, result: Result<(), DeviceError>) -> Result<(), IoError> {
        result.map_err(|error| {
            self.failed = Some(error);
            IoError::Failed
        })
    }

    fn error(&mut self, problem: ImportError) -> CommandError {
        match (problem, self.failed.take()) {
            // The system's own words tell more.
            (ImportError::Unwritable { .. }, Some(error)) => error.into(),
            (problem, _) => {
                let member = match &problem {
                    ImportError::Damaged { member, .. }
                    | ImportError::MemberOlder { member, .. }
                    | ImportError::Replaced { member }
                    | ImportError::Unwritable { member: Some(member), .. } => Some(*member),
                    _ => None,
                };
                let disk = member.and_then(|member| self.member(member).ok());
                let disk = disk.map(|disk| disk.path().to_owned());
                CommandError::Import { disk, problem }
            }
        }
    }
}

impl ImportDisks for Disks<'_> {
    fn read_member(
        &mut self,
        member: MemberIndex,
        offset: u64,
        buffer: &mut Buffer,
    ) -> Result<(), IoError> {
        let found = self.member(member)?.read_at(offset, buffer.len());
        let found = found.map_err(|_| IoError::Failed)?;
        if found.len() < buffer.len() {
            return Err(IoError::Failed);
        }
        *buffer = found;
        Ok(())
    }

    fn write_member(
        &mut self,
        member: MemberIndex,
        offset: u64,
        bytes: &Buffer,
    ) -> Result<(), IoError> {
        let written = self.member(member)?.write_all_at(offset, bytes.bytes());
        self.note(written)
    }

    fn flush_member(&mut self, member: MemberIndex) -> Result<(), IoError> {
        let flushed = self.member(member)?.flush();
        self.note(flushed)
    }

    fn write_cache_disk(&mut self, offset: u64, bytes: &Buffer) -> Result<(), IoError> {
        let mut disks = self.cache_disks.iter();
        let written = disks.try_for_each(|disk| disk.write_all_at(offset, bytes.bytes()));
        self.note(written)
    }

    fn flush_cache_disk(&mut self) -> Result<(), IoError> {
        let flushed = self.cache_disks.iter().try_for_each(DeviceFile::flush);
        self.note(flushed)
    }

    fn progress(&mut self, done: u64, of: u64) {
        let bytes = |regions: u64| regions.saturating_mul(self.region_bytes);
        self.progress.update(bytes(done), bytes(of));
    }
}

/// Imports a volume.
pub fn run(arguments: &ImportArguments) -> Result<(), CommandError> {
    super::create::run(&arguments.creation())
}
