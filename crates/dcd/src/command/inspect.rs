//! `dcd inspect`: shows what is on a cache-disk, as much as can be read. Writes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::units_text::{format_size, parse_size};
use dcd_engine::format::checkpoint::Checkpoint;
use dcd_engine::format::data_label::{DATA_LABEL_BYTES, DATA_LABEL_OFFSETS, DataLabel, LabelState};
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::leg_label::{LEG_LABEL_BYTES, LEG_LABEL_OFFSETS, LegLabel, LegState};
use dcd_engine::format::record::{Entry, RecordHeader};
use dcd_engine::units::{LINE_SIZE, SegmentIndex};
use dcd_engine::volume::placement::DeviceClass;
use dcd_engine::{Buffer, Geometry, Superblock, Uuid};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::check::state_name;
use super::{inspect_file, inspect_nvram, inspect_shares};
use crate::error::CommandError;
use crate::image::dirty::Dirty;
use crate::image::log::{Live, follow};
use crate::image::segments::{FoundRecord, read_segment};
use crate::image::volume::{area as volume_area, headers};
use crate::image::{CacheImage, ImageError, newest, share_of, take_newest};
use crate::output::{Align, Colour, Paint, Table, table_lines};
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json, print_lines};

/// Show what is on a cache-disk, or where a file lies.
///
/// Reads only, and shows as much as can be read of a damaged cache-disk. With --file, a file of a
/// file system on the device that a running dcd serves: its blocks, and on a volume the RAID levels
/// and attributes of them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd inspect superblock --cache-disk fast.img
  dcd inspect dirty --cache-disk fast.img
  dcd inspect segments --cache-disk fast.img --json
  dcd inspect segment 12 --cache-disk fast.img
  dcd inspect shares --cache-disk /dev/nvme0n1p4
  dcd inspect label --data-disk slow.img
  dcd inspect nvram --nvram /dev/shm/front.img
  dcd inspect --file /mnt/src/main.c --control /run/vol.ctl")]
#[command(args_conflicts_with_subcommands = true)]
pub struct InspectArguments {
    /// What to show.
    #[command(subcommand)]
    pub what: Option<InspectWhat>,
    /// A file on the device that dcd serves.
    #[arg(long, value_name = "PATH", requires = "control")]
    pub file: Option<PathBuf>,
    /// The running cache: the name of its service, its UUID, the device that it serves, or its
    /// control socket.
    #[arg(long, value_name = "CACHE", requires = "file")]
    pub control: Option<PathBuf>,
    /// Byte of the volume at which the file system begins, where the system does not tell.
    #[arg(long, value_name = "BYTES", value_parser = parse_size, requires = "file")]
    pub offset: Option<u64>,
    /// Print JSON.
    #[arg(long, requires = "file")]
    pub json: bool,
}

/// What `inspect` can show.
#[derive(Subcommand, Debug)]
pub enum InspectWhat {
    /// Both copies of the superblock
    Superblock(InspectDisk),
    /// Ranges that are newer in the cache than on the data-disk
    Dirty(InspectDisk),
    /// Both checkpoints
    Checkpoint(InspectDisk),
    /// One line for each segment
    Segments(InspectDisk),
    /// The records of one segment
    Segment {
        /// Number of the segment, from 0.
        #[arg(value_name = "NUMBER")]
        index: u32,
        /// Where.
        #[command(flatten)]
        disk: InspectDisk,
    },
    /// One line for each record, in the order in which they were written
    Records(InspectDisk),
    /// The directory of a cache-disk that several caches share, and what is free of it
    Shares(InspectShares),
    /// What a volume is made of: sets on its members, and what goes where
    Volume(InspectDisk),
    /// Both copies of the label of a leg: who counts, and which regions are marked
    Leg(InspectDisk),
    /// Both copies of the label of a data-disk
    Label(InspectDataDisk),
    /// The memory in front of the log: whose it is, and what it holds. Not while it is in use
    Nvram(InspectNvram),
}

/// The cache-disk that `inspect shares` looks at.
#[derive(Args, Debug)]
pub struct InspectShares {
    /// The cache-disk.
    #[arg(long, value_name = "FILE|DEVICE")]
    pub cache_disk: DeviceSpec,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The memory that `inspect nvram` looks at.
#[derive(Args, Debug)]
pub struct InspectNvram {
    /// The memory.
    #[arg(long, value_name = "FILE|DEVICE")]
    pub nvram: DeviceSpec,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The data-disk that `inspect label` looks at.
#[derive(Args, Debug)]
pub struct InspectDataDisk {
    /// The data-disk.
    #[arg(long, value_name = "DISK")]
    pub data_disk: DeviceSpec,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Which disk `inspect` looks at.
#[derive(Args, Debug)]
pub struct InspectDisk {
    /// The cache-disk.
    #[arg(long, value_name = "FILE|DEVICE")]
    pub cache_disk: DeviceSpec,
    /// The share of the cache-disk, if several caches share it: its name, or the UUID of its cache
    /// [default: the only one].
    #[arg(long, value_name = "NAME|UUID")]
    pub share: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &InspectArguments) -> Result<(), CommandError> {
    let Some(what) = &arguments.what else {
        return match (&arguments.file, &arguments.control) {
            (Some(file), Some(control)) => {
                inspect_file::run(file, control, arguments.offset, arguments.json)
            }
            _ => Err(CommandError::InspectNothing),
        };
    };
    match what {
        InspectWhat::Superblock(disk) => superblocks(disk),
        InspectWhat::Dirty(disk) => dirty(disk),
        InspectWhat::Checkpoint(disk) => checkpoints(disk),
        InspectWhat::Segments(disk) => segments(disk),
        InspectWhat::Segment { index, disk } => segment(disk, *index),
        InspectWhat::Records(disk) => records(disk),
        InspectWhat::Volume(disk) => volume(disk),
        InspectWhat::Leg(disk) => leg(disk),
        InspectWhat::Shares(disk) => inspect_shares::run(disk.cache_disk.path(), disk.json),
        InspectWhat::Label(disk) => label(disk),
        InspectWhat::Nvram(disk) => inspect_nvram::run(disk.nvram.path(), disk.json),
    }
}

fn open(disk: &InspectDisk) -> Result<CacheImage, CommandError> {
    let cache_disk = share_of(&disk.cache_disk, disk.share.as_deref(), &[])?;
    CacheImage::open(cache_disk.path())
}

/// Prints JSON or a text, whichever is wanted.
fn show(disk: &InspectDisk, value: &Value, text: &str) -> Result<(), CommandError> {
    if disk.json { print_json(value) } else { print(text) }
}

/// `name value` lines of a JSON object, one level deep.
fn lines_of(value: &Value) -> String {
    let Value::Object(fields) = value else { return String::new() };
    let line = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) if text.is_empty() => "-".into(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        format!("  {name:<34} {value}\n")
    };
    fields.iter().map(line).collect()
}

fn superblocks(disk: &InspectDisk) -> Result<(), CommandError> {
    let image = open(disk)?;
    let copies = image.superblocks();
    if copies.iter().all(Result::is_err) {
        // Not even one: then the command fails, after showing both if something looks like one.
        image.need_superblock()?;
    }
    let counts = image.superblock().ok().map(|superblock| superblock.generation);
    let mut values = Vec::new();
    let mut text = String::new();
    let paint = Paint::for_stdout();
    for ((number, copy), offset) in copies.iter().enumerate().zip(SUPERBLOCK_OFFSETS) {
        let (value, remark) = match copy {
            Ok(superblock) => {
                let valid = Some(superblock.generation) == counts;
                (superblock_json(superblock), if valid { " (counts)" } else { "" })
            }
            Err(error) => (json!({ "error": error.to_string() }), ""),
        };
        let title = format!("superblock copy {number} at byte {offset}{remark}");
        text += &format!("{}\n{}", paint.paint(Colour::Title, &title), lines_of(&value));
        values.push(json!({
            "copy": number, "offset": offset, "counts": !remark.is_empty(), "superblock": value,
        }));
    }
    show(disk, &Value::Array(values), &text)
}

fn superblock_json(superblock: &Superblock) -> Value {
    let geometry = &superblock.geometry;
    json!({
        "uuid": superblock.uuid.to_string(),
        "generation": superblock.generation,
        "state": state_name(superblock.state),
        "segment_size_bytes": geometry.segment_size_bytes,
        "segments": geometry.segments,
        "segments_made": geometry.segments_made,
        "segments_offset": geometry.segments_offset,
        "checkpoint_offsets": geometry.checkpoint_offsets,
        "checkpoint_area_bytes": geometry.checkpoint_area_bytes,
        "data_disk_blocks": superblock.data_disk.blocks,
        "data_disk_logical_block_size": superblock.data_disk.logical_block_size,
        "data_disk_physical_sector_size": superblock.data_disk.physical_sector_size,
        "data_disk_serial": superblock.data_disk_serial,
        "created_unix_seconds": superblock.created_unix_seconds,
        "volume_bytes": superblock.volume_bytes,
        "data_offset_bytes": superblock.data_offset_bytes,
        "data_label_epoch": superblock.data_label_epoch,
        "end_mark_offset": superblock.end_mark_offset(),
        // Of a log that has grown or shrunk.
        "annexes_offset": geometry.annexes.offset,
        "annex_segments": &geometry.annexes.segments[..geometry.annexes.count()],
        "session_epoch": superblock.resized.map(|resized| resized.session_epoch),
        "checkpoint_generation_min": superblock.resized.map(|resized| resized.checkpoint_generation),
        "has_legs": superblock.has_legs,
        // The memory in front of the log, while it may hold what is nowhere else.
        "nvram_id": superblock.nvram.map(|nvram| nvram.id.to_string()),
        "nvram_generation": superblock.nvram.map(|nvram| nvram.generation),
        // Of the open session: which memory it has.
        "memory_place": superblock.memory.as_ref().map(|memory| &memory.place),
        "memory_id": superblock.memory.as_ref().map(|memory| Uuid(memory.memory_id).to_string()),
        "memory_boot_id": superblock.memory.as_ref().map(|memory| Uuid(memory.boot_id).to_string()),
        "memory_max_delay_milliseconds": superblock.memory.as_ref().map(|memory| memory.max_delay_milliseconds),
    })
}

fn leg(disk: &InspectDisk) -> Result<(), CommandError> {
    let image = open(disk)?;
    let copies = LEG_LABEL_OFFSETS
        .map(|offset| image.read(offset, LEG_LABEL_BYTES).unwrap_or_else(|_| Buffer::zeroed(0)));
    let counts = LegLabel::newest(copies[0].bytes(), copies[1].bytes());
    let counts = counts.map_err(|problem| {
        let path = image.path.clone();
        CommandError::NoLeg { path, problem }
    })?;
    let (mut values, mut text) = (Vec::new(), String::new());
    let paint = Paint::for_stdout();
    for ((number, copy), offset) in copies.iter().enumerate().zip(LEG_LABEL_OFFSETS) {
        let copy = LegLabel::decode(copy.bytes());
        let is_it = copy.as_ref() == Ok(&counts);
        let value = match copy {
            Ok(label) => json!({
                "cache": label.cache.to_string(),
                "leg": label.leg.to_string(),
                "number": label.number,
                "state": match label.state {
                    LegState::Member => "member",
                    LegState::Filling => "filling",
                    LegState::Witness => "witness",
                },
                "tag": format!("{:016x}", label.membership.tag.0),
                "tags_before": label.membership.past.len(),
                "members": label.membership.members.iter().map(Uuid::to_string).collect::<Vec<_>>(),
                "witness": label.membership.witness.map(|it| it.to_string()),
                "is_in_force": label.is_in_force,
                "region_bytes": label.region_bytes,
                "marks": label.marks,
            }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        let remark = if is_it { " (counts)" } else { "" };
        let title = format!("label of a leg, copy {number} at byte {offset}{remark}");
        text += &format!("{}\n{}", paint.paint(Colour::Title, &title), lines_of(&value));
        values.push(json!({ "copy": number, "offset": offset, "counts": is_it, "label": value }));
    }
    show(disk, &Value::Array(values), &text)
}

/// The word for a state.
pub fn label_state_name(state: LabelState) -> &'static str {
    match state {
        LabelState::Clean => "clean",
        LabelState::Dirty => "dirty",
        LabelState::Detached => "detached",
    }
}

fn label(disk: &InspectDataDisk) -> Result<(), CommandError> {
    let image = CacheImage::open(disk.data_disk.path())?;
    let copies = DATA_LABEL_OFFSETS.map(|offset| {
        let bytes = image.read(offset, DATA_LABEL_BYTES);
        bytes.unwrap_or_else(|_| Buffer::zeroed(0))
    });
    let counts = DataLabel::newest(copies[0].bytes(), copies[1].bytes());
    let counts = counts.map_err(|problem| {
        let path = image.path.clone();
        CommandError::NoLabel { path, problem }
    })?;
    let mut values = Vec::new();
    let mut text = String::new();
    let paint = Paint::for_stdout();
    for ((number, copy), offset) in copies.iter().enumerate().zip(DATA_LABEL_OFFSETS) {
        let copy = DataLabel::decode(copy.bytes());
        let is_it = copy == Ok(counts);
        let value = match copy {
            Ok(label) => json!({
                "uuid": label.uuid.to_string(),
                "writing": label.writing,
                "epoch": label.epoch,
                "epoch_max": label.epoch_max,
                "state": label_state_name(label.state),
                "payload_offset_bytes": label.payload_offset_bytes,
                "payload_bytes": label.payload_bytes,
            }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        let remark = if is_it { " (counts)" } else { "" };
        let title = format!("label copy {number} at byte {offset}{remark}");
        text += &format!("{}\n{}", paint.paint(Colour::Title, &title), lines_of(&value));
        values.push(json!({ "copy": number, "offset": offset, "counts": is_it, "label": value }));
    }
    if disk.json { print_json(&Value::Array(values)) } else { print(&text) }
}

fn volume(disk: &InspectDisk) -> Result<(), CommandError> {
    let image = open(disk)?;
    let superblock = image.need_superblock()?;
    let mut problem = None;
    let mut found = None;
    for (_, header) in headers(&image, &superblock) {
        match header {
            Ok(header) => found = found.or(Some(header)),
            Err(error) => problem = Some(error),
        }
    }
    let Some(header) = found else {
        let (path, problem) = (image.path.clone(), problem.map(|problem| problem.to_string()));
        return Err(CommandError::NoVolume { path, problem });
    };
    let config = &header.config;
    let mut sets = Table::new(&[
        ("set", Align::Right),
        ("level", Align::Left),
        ("class", Align::Left),
        ("members", Align::Left),
        ("copies", Align::Right),
        ("stripe unit", Align::Right),
        ("on each member", Align::Right),
        ("from byte", Align::Right),
        ("holds", Align::Right),
    ]);
    let mut set_values = Vec::new();
    for (index, set) in config.sets.iter().enumerate() {
        let members: Vec<u8> = set.members.iter().map(|member| member.0).collect();
        let words: Vec<String> = members.iter().map(u8::to_string).collect();
        sets.row(vec![
            index.to_string(),
            format!("RAID {}", set.level.number()),
            set.class.name().into(),
            words.join(","),
            set.copies.to_string(),
            format_size(set.stripe_unit_bytes),
            format_size(set.member_bytes),
            set.member_offset_bytes.to_string(),
            format_size(set.capacity_bytes()),
        ]);
        set_values.push(json!({
            "level": set.level.number(), "class": set.class.name(), "members": members, "copies": set.copies,
            "stripe_unit_bytes": set.stripe_unit_bytes, "member_bytes": set.member_bytes,
            "member_offset_bytes": set.member_offset_bytes, "capacity_bytes": set.capacity_bytes(),
        }));
    }
    let mut rules = Table::new(&[
        ("all of", Align::Left),
        ("none of", Align::Left),
        ("levels", Align::Left),
        ("class", Align::Left),
    ]);
    let mut rule_values = Vec::new();
    for rule in config.placement.rules() {
        let levels = rule.levels.map(|level| level.number());
        let (required, excluded) = (rule.required.to_string(), rule.excluded.to_string());
        let class = rule.class.map(DeviceClass::name);
        rule_values.push(json!({
            "all_of": required, "none_of": excluded, "levels": levels, "class": class,
        }));
        let levels = levels.map(|level| level.to_string()).join(", ");
        let class = class.unwrap_or("by what it is").into();
        rules.row(vec![required, excluded, levels, class]);
    }
    let area = volume_area(&image, &superblock, &header);
    let (journal_bytes, pointers_max) = match area {
        Some(area) => (area.journal_lines() * LINE_SIZE, area.pointer_slots()),
        None => (header.journal_bytes, header.pointers_max),
    };
    let value = json!({
        "uuid": header.uuid.to_string(),
        "members": config.members,
        "volume_bytes": config.logical_bytes,
        "extent_bytes": config.extent_bytes,
        "temporary_bytes": config.temporary_bytes,
        "selective_caching": config.selective_caching,
        "migrate_bytes_per_second_max": config.migrate_bytes_per_second_max,
        "journal_bytes": journal_bytes,
        "pointers_max": pointers_max,
        "sets": set_values,
        "placement": rule_values,
    });
    let paint = Paint::for_stdout();
    let text = format!(
        "volume {} of {}: {} members, numbered from 0, extents of {}, {} for temporary data\n{}\n{}",
        header.uuid,
        format_size(config.logical_bytes),
        config.members,
        format_size(config.extent_bytes),
        format_size(config.temporary_bytes),
        sets.render(paint),
        rules.render(paint),
    );
    show(disk, &value, &text)
}

fn dirty(disk: &InspectDisk) -> Result<(), CommandError> {
    let image = open(disk)?;
    let superblock = image.need_superblock()?;
    let mut progress = Progress::new("reading the log", Unit::Bytes);
    let dirty = Dirty::of(&image, &superblock, &mut |done, total| progress.update(done, total));
    progress.finish();
    let dirty = dirty.map_err(|error| match error {
        ImageError::Format(problem) => {
            CommandError::NoCheckpoint { path: image.path.clone(), problem }
        }
        ImageError::Read { source, .. } => {
            CommandError::File { action: "read", path: image.path.clone(), source }
        }
    })?;
    if disk.json {
        return print_json(&DirtyOf { dirty: &dirty, uuid: superblock.uuid.to_string() });
    }
    print_lines(dirty.lines(usize::MAX).chain([dirty.summary()]))
}

/// What is newer in a cache, and in which.
#[derive(Serialize)]
struct DirtyOf<'d> {
    #[serde(flatten)]
    dirty: &'d Dirty,
    uuid: String,
}

fn checkpoints(disk: &InspectDisk) -> Result<(), CommandError> {
    let image = open(disk)?;
    let superblock = image.need_superblock()?;
    let checkpoints = image.checkpoints(&superblock);
    let counts = newest(&checkpoints).map(|checkpoint| checkpoint.generation);
    let mut values = Vec::new();
    let mut text = String::new();
    let paint = Paint::for_stdout();
    for (number, checkpoint) in checkpoints.iter().enumerate() {
        let offset = superblock.geometry.checkpoint_offsets[number];
        let (value, valid) = match checkpoint {
            Ok(checkpoint) => (checkpoint_json(checkpoint), Some(checkpoint.generation) == counts),
            Err(error) => (json!({ "error": error.to_string() }), false),
        };
        let remark = if valid { " (counts)" } else { "" };
        let title = format!("checkpoint {number} at byte {offset}{remark}");
        text += &format!("{}\n{}", paint.paint(Colour::Title, &title), lines_of(&value));
        values.push(json!({
            "area": number, "offset": offset, "counts": valid, "checkpoint": value,
        }));
    }
    show(disk, &Value::Array(values), &text)
}

fn checkpoint_json(checkpoint: &Checkpoint) -> Value {
    let zero_lines: u64 = checkpoint.zeroes.iter().map(|range| range.lines).sum();
    json!({
        "generation": checkpoint.generation,
        "epoch": checkpoint.epoch,
        "segment": checkpoint.position.segment.0,
        "serial": checkpoint.position.serial.0,
        "slot_in_segment": checkpoint.position.slot_in_segment,
        "next_record": checkpoint.position.next_record.0,
        "free_segments": checkpoint.free.len(),
        "filled_segments": checkpoint.filled.len(),
        "live_slots": checkpoint.live.len(),
        "zero_ranges": checkpoint.zeroes.len(),
        "zero_lines": zero_lines,
        "poisoned_lines": checkpoint.poisoned.len(),
        "witnesses": checkpoint.witnesses.len(),
    })
}

/// What the log makes of each segment: live slots after the log was followed; and the checkpoint.
fn live_slots(
    image: &CacheImage,
    superblock: &Superblock,
) -> (BTreeMap<SegmentIndex, u32>, Option<Checkpoint>) {
    let Some(mut checkpoint) = take_newest(image.checkpoints(superblock)) else {
        return Default::default();
    };
    let mut progress = Progress::new("reading the log", Unit::Bytes);
    let log =
        follow(image, superblock, &checkpoint, &mut |done, total| progress.update(done, total));
    progress.finish();
    let live = Live::of_log(&checkpoint, &log, &superblock.geometry);
    checkpoint.live = Vec::new();
    (live.slots_by_segment(&superblock.geometry), Some(checkpoint))
}

/// What is told of a segment.
struct SegmentRow {
    index: SegmentIndex,
    at_checkpoint: &'static str,
    live_slots: u32,
    /// Of the newest filling.
    records: u32,
    serial: Option<u64>,
    /// Numbers of the first and the last record.
    numbers: Option<(u64, u64)>,
    damage: String,
}

impl SegmentRow {
    fn of(
        index: SegmentIndex,
        found: Result<Vec<FoundRecord>, ImageError>,
        live_slots: u32,
        checkpoint: Option<&Checkpoint>,
    ) -> SegmentRow {
        let at_checkpoint = match checkpoint {
            None => "unknown",
            Some(checkpoint) if checkpoint.position.segment == index => "filling",
            Some(checkpoint) if checkpoint.free.contains(&index) => "free",
            Some(_) => "in use",
        };
        let (records, damage) = match &found {
            Ok(found) => (found.as_slice(), damage_of(found)),
            Err(error) => (&[][..], error.to_string()),
        };
        let serial = records.iter().map(|found| found.record.header.serial.0).max();
        // Records of earlier lives may lie behind those of the newest.
        let newest = || records.iter().filter(|f| Some(f.record.header.serial.0) == serial);
        let first = newest().next().map(|found| found.record.header.number.0);
        let last = newest().next_back().map(|found| found.record.header.number.0);
        SegmentRow {
            index,
            at_checkpoint,
            live_slots,
            records: newest().count() as u32,
            serial,
            numbers: first.zip(last),
            damage,
        }
    }

    fn json(&self, geometry: &Geometry) -> Value {
        json!({
            "segment": self.index.0, "offset": geometry.segment_offset(self.index),
            "at_checkpoint": self.at_checkpoint, "live_slots": self.live_slots,
            "records": self.records, "serial": self.serial,
            "first_record": self.numbers.map(|(first, _)| first),
            "last_record": self.numbers.map(|(_, last)| last), "damage": self.damage,
        })
    }

    fn cells(&self, geometry: &Geometry) -> Vec<String> {
        vec![
            self.index.0.to_string(),
            geometry.segment_offset(self.index).to_string(),
            self.at_checkpoint.into(),
            self.live_slots.to_string(),
            self.records.to_string(),
            self.serial.map_or_else(|| "-".into(), |serial| serial.to_string()),
            self.numbers.map(|(first, last)| format!("{first}..{last}")).unwrap_or_default(),
            self.damage.clone(),
        ]
    }
}

fn segments(disk: &InspectDisk) -> Result<(), CommandError> {
    let image = open(disk)?;
    let superblock = image.need_superblock()?;
    let geometry = &superblock.geometry;
    let (live, checkpoint) = live_slots(&image, &superblock);
    let row = |index: SegmentIndex| {
        let found = read_segment(&image, &superblock, index);
        let live = live.get(&index).copied().unwrap_or(0);
        SegmentRow::of(index, found, live, checkpoint.as_ref())
    };
    let rows: Vec<SegmentRow> = (0..geometry.segments).map(SegmentIndex).map(row).collect();
    if disk.json {
        return print_json(&Listed(&rows, |row: &SegmentRow| row.json(geometry)));
    }
    let columns = [
        ("segment", Align::Right),
        ("offset", Align::Right),
        ("at checkpoint", Align::Left),
        ("live slots", Align::Right),
        ("records", Align::Right),
        ("serial", Align::Right),
        ("numbers", Align::Left),
        ("damage", Align::Left),
    ];
    let size = format_size(geometry.segment_size_bytes);
    let last = format!("{} segments of {size}", geometry.segments);
    let cells = |row: &SegmentRow| row.cells(geometry);
    print_lines(table_lines(&columns, &rows, cells, Paint::for_stdout()).chain([last]))
}

/// A list whose items become JSON one by one: all of it would take far more memory than what it is
/// made from.
struct Listed<'r, R, F>(&'r [R], F);

impl<R, F: Fn(&R) -> Value> Serialize for Listed<'_, R, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(&self.1))
    }
}

/// Slots whose checksum does not match, in words.
fn damage_of(records: &[FoundRecord]) -> String {
    bad_slots(records.iter().map(|found| found.bad_entries.len()).sum())
}

fn bad_slots(count: usize) -> String {
    match count {
        0 => String::new(),
        bad => format!("{bad} bad slots"),
    }
}

fn segment(disk: &InspectDisk, index: u32) -> Result<(), CommandError> {
    let image = open(disk)?;
    let superblock = image.need_superblock()?;
    let segments = superblock.geometry.segments;
    if index >= segments {
        return Err(CommandError::NoSuchSegment { index, segments });
    }
    let found = read_segment(&image, &superblock, SegmentIndex(index)).map_err(|error| {
        let path = image.path.clone();
        match error {
            ImageError::Read { source, .. } => CommandError::File { action: "read", path, source },
            ImageError::Format(problem) => CommandError::NotACache { path, problem },
        }
    })?;
    let mut values = Vec::new();
    let mut text = String::new();
    let paint = Paint::for_stdout();
    for found in &found {
        let header = &found.record.header;
        let title = format!(
            "slot {}: record {}, serial {}, epoch {}",
            header.slot_in_segment, header.number.0, header.serial.0, header.epoch
        );
        text += &format!("{}\n", paint.paint(Colour::Title, &title));
        for entry in entries_json(found, &superblock.geometry) {
            text += &entry_line(&entry);
        }
        let mut value = RecordRow::of(found).json(&superblock.geometry);
        value["entries"] = Value::Array(entries_json(found, &superblock.geometry));
        values.push(value);
    }
    if found.is_empty() {
        text = "no records\n".into();
    }
    show(disk, &json!({ "segment": index, "records": values }), &text)
}

/// What is told of a record, without its entries.
struct RecordRow {
    header: RecordHeader,
    data_slots: u32,
    entries: u32,
    bad_slots: u32,
}

impl RecordRow {
    fn of(found: &FoundRecord) -> RecordRow {
        RecordRow {
            header: found.record.header,
            data_slots: found.record.data_slots(),
            entries: found.record.entries.len() as u32,
            bad_slots: found.bad_entries.len() as u32,
        }
    }

    fn json(&self, geometry: &Geometry) -> Value {
        let header = &self.header;
        let slot = geometry.slot(header.segment, header.slot_in_segment);
        json!({
            "number": header.number.0,
            "epoch": header.epoch,
            "serial": header.serial.0,
            "segment": header.segment.0,
            "slot_in_segment": header.slot_in_segment,
            "offset": geometry.slot_offset(slot),
            "data_slots": self.data_slots,
            "entry_count": self.entries,
            "durable": header.durable.0,
            "checkpoint_generation": header.checkpoint_generation,
            "unfinished_entries": header.unfinished,
            "bad_slots": self.bad_slots,
        })
    }

    fn cells(&self) -> Vec<String> {
        let header = &self.header;
        vec![
            header.epoch.to_string(),
            header.number.0.to_string(),
            header.segment.0.to_string(),
            header.slot_in_segment.to_string(),
            header.serial.0.to_string(),
            self.entries.to_string(),
            self.data_slots.to_string(),
            header.durable.0.to_string(),
            bad_slots(self.bad_slots as usize),
        ]
    }
}

fn entries_json(found: &FoundRecord, geometry: &Geometry) -> Vec<Value> {
    let entries = found.entries_with_slots(geometry).enumerate();
    let value = |(number, (entry, slot)): (usize, (&Entry, _))| match *entry {
        Entry::Data { line, mask, checksum } => json!({
            "kind": "data",
            "first_block": line.lba().0,
            "fragments": format!("{mask:?}"),
            "checksum": format!("{checksum:#010x}"),
            "offset": Option::map(slot, |slot| geometry.slot_offset(slot)),
            "valid": !found.bad_entries.contains(&number),
        }),
        Entry::Zero { line, lines, may_unmap } => json!({
            "kind": "zero", "first_block": line.lba().0, "blocks": lines.saturating_mul(8),
            "may_free": may_unmap,
        }),
        Entry::Bypass { range } => json!({
            "kind": "bypass", "first_block": range.start.0, "blocks": range.blocks,
        }),
        Entry::Announce { first, count } => json!({
            "kind": "announce", "first_segment": first.0, "segments": count,
        }),
    };
    entries.map(value).collect()
}

/// An entry in one line.
fn entry_line(entry: &Value) -> String {
    let text = |name: &str| match &entry[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let kind = text("kind");
    if kind == "announce" {
        return format!(
            "  {kind} segments from {}, {} of them\n",
            text("first_segment"),
            text("segments")
        );
    }
    let block = text("first_block");
    if entry["kind"] != "data" {
        return format!("  {kind:<6} blocks from {block}, {} of them\n", text("blocks"));
    }
    let valid = if entry["valid"] == true { "" } else { "  DAMAGED" };
    let (fragments, checksum) = (text("fragments"), text("checksum"));
    format!("  {kind:<6} block {block:<12} fragments {fragments} checksum {checksum}{valid}\n")
}

fn records(disk: &InspectDisk) -> Result<(), CommandError> {
    let image = open(disk)?;
    let superblock = image.need_superblock()?;
    let geometry = &superblock.geometry;
    let mut rows: Vec<RecordRow> = Vec::new();
    let mut problems = Vec::new();
    let mut progress = Progress::new("reading segments", Unit::Bytes);
    for number in 0..geometry.segments {
        let size = geometry.segment_size_bytes;
        progress.update(u64::from(number) * size, u64::from(geometry.segments) * size);
        match read_segment(&image, &superblock, SegmentIndex(number)) {
            Ok(records) => rows.extend(records.iter().map(RecordRow::of)),
            Err(error) => problems.push(format!("segment {number}: {error}")),
        }
    }
    progress.finish();
    rows.sort_by_key(|row| (row.header.epoch, row.header.number));
    if disk.json {
        let records = Listed(&rows, |row: &RecordRow| row.json(geometry));
        return print_json(&Records { records, problems });
    }
    let columns = [
        ("epoch", Align::Right),
        ("record", Align::Right),
        ("segment", Align::Right),
        ("slot", Align::Right),
        ("serial", Align::Right),
        ("entries", Align::Right),
        ("data slots", Align::Right),
        ("durable", Align::Right),
        ("damage", Align::Left),
    ];
    let lines = table_lines(&columns, &rows, RecordRow::cells, Paint::for_stdout());
    print_lines(lines.chain(problems))
}

/// All records, and what could not be read.
#[derive(Serialize)]
struct Records<L> {
    records: L,
    problems: Vec<String>,
}
