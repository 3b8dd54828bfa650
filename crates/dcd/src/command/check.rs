//! `dcd check`: verifies every checksum that counts, and tells what is damaged. Writes nothing.
//!
//! What counts: both superblocks; the checkpoints (an older one may have been torn by a crash); the
//! records of the log after the newest; every slot that is live after those records. Copies in the
//! read area are compared and counted; one that is not as listed is no damage. The tables of a
//! volume are read as a start does.

use std::path::Path;

use clap::Args;
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::memory::search::{Looked, MemoryOutlook, outlook};
use dcd_daemon::report::volumes::member_state_name;
use dcd_daemon::units_text::{format_duration, format_size};
use dcd_engine::format::checkpoint::Checkpoint;
use dcd_engine::format::checkpoint::LiveSlot;
use dcd_engine::format::checksum::crc32c;
use dcd_engine::format::geometry::COPIES_PER_PAGE;
use dcd_engine::format::superblock::CacheState;
use dcd_engine::units::LINE_SIZE;
use dcd_engine::{FormatError, Superblock};
use serde::Serialize;

use super::witness_check::{self, WitnessCheck};
use crate::error::CommandError;
use crate::image::copies::CopyCheck;
use crate::image::log::{Live, Log, follow};
use crate::image::share_of;
use crate::image::{CacheImage, ImageError, newest, take_newest, volume};
use crate::output::{Colour, Paint, count};
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

/// Verify everything on a cache-disk.
///
/// Reads every superblock, checkpoint, record and block that counts and compares the checksums.
/// Writes nothing. Exit code 4 tells of damage.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd check --cache-disk fast.img
  dcd check --cache-disk /dev/nvme0n1p4 --json")]
pub struct CheckArguments {
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

/// Problems that are listed one by one for people; the rest is only counted.
const PROBLEMS_LISTED_MAX: usize = 20;

/// What `check` found.
#[derive(Serialize, Debug)]
pub struct CheckReport {
    cache_disk: String,
    uuid: String,
    state: &'static str,
    healthy: bool,
    superblocks_valid: u32,
    checkpoints_valid: u32,
    checkpoint_generation: Option<u64>,
    records: u64,
    slots_verified: u64,
    slots_damaged: u64,
    /// Copies that are as their page says.
    copies_verified: u64,
    /// Copies that are not, with those of lost pages as 248 each: their lines are read from the
    /// data-disk.
    copies_not_as_listed: u64,
    dirty_lines: u64,
    zero_lines: u64,
    poisoned_lines: u64,
    /// What the tables of a volume say.
    volume: Option<VolumeTables>,
    /// Whether everything on the cache-disk is on the data-disk too, as far as can be told.
    clean: bool,
    problems: Vec<Problem>,
    notes: Vec<String>,
}

/// The tables of a volume.
#[derive(Serialize, Debug)]
struct VolumeTables {
    /// Extents that have a place.
    extents_mapped: u64,
    pointers: u64,
    /// Records of the journal after the newest pages.
    journal_records: u64,
    /// Lines of RAID 0 sets that a disk took along which was replaced.
    raid0_lines_lost: u64,
    /// Lines of redundant sets that nothing tells any more.
    redundant_lines_lost: u64,
    /// The states of the members, in order.
    members: Vec<&'static str>,
}

/// One thing that is damaged.
#[derive(Serialize, Debug)]
struct Problem {
    what: &'static str,
    message: String,
    /// Byte address on the cache-disk.
    offset: Option<u64>,
    /// First 512-byte block of the volume that is concerned.
    block: Option<u64>,
}

pub fn run(arguments: &CheckArguments) -> Result<(), CommandError> {
    let cache_disk = share_of(&arguments.cache_disk, arguments.share.as_deref(), &[])?;
    let image = CacheImage::open(cache_disk.path())?;
    if let Some(report) = WitnessCheck::of(&image) {
        return report.tell(arguments.json);
    }
    let mut progress = Progress::new("checking", Unit::Bytes);
    let report = check(&image, &mut |done, total| progress.update(done, total));
    progress.finish();
    let report = report?;
    if arguments.json {
        print_json(&report)?;
    } else {
        print(&describe(&report, Paint::for_stdout()))?;
    }
    if report.healthy {
        return Ok(());
    }
    Err(CommandError::Damage { path: image.path, problems: report.problems.len() as u64 })
}

/// The word for a state.
pub fn state_name(state: CacheState) -> &'static str {
    match state {
        CacheState::Closed => "closed",
        CacheState::Open => "open",
        CacheState::Detached => "detached",
    }
}

/// Checks a cache-disk. The error is for what is no cache at all.
pub fn check(
    image: &CacheImage,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CheckReport, CommandError> {
    let superblock = match image.superblock() {
        Ok(superblock) => superblock,
        Err(error) => return without_superblock(image, error),
    };
    let mut report = CheckReport::new(image, Some(&superblock));
    check_ends(&mut report, image, &superblock);
    let checkpoints = image.checkpoints(&superblock);
    report.checkpoints_valid = checkpoints.iter().flatten().count() as u32;
    let Some(checkpoint) = newest(&checkpoints) else {
        without_checkpoint(&mut report, image, &superblock, &checkpoints);
        return Ok(report.finish());
    };
    check_checkpoints(&mut report, image, &superblock, &checkpoints, checkpoint);
    let checkpoint = take_newest(checkpoints).expect("it was found");
    let log = follow(image, &superblock, &checkpoint, progress);
    report.log(&log);
    let live = Live::of_log(&checkpoint, &log, &superblock.geometry);
    report.verify_slots(image, &superblock, &live, progress);
    let copies = CopyCheck::of(image, &superblock, &checkpoint, progress);
    report.copies_verified = copies.as_listed;
    report.copies_not_as_listed =
        copies.not_as_listed + copies.pages_lost * u64::from(COPIES_PER_PAGE);
    report.dirty_lines = live.dirty_lines();
    report.zero_lines = live.zero_lines();
    report.poisoned_lines = live.poisoned_lines();
    let is_detached = superblock.state == CacheState::Detached;
    if report.poisoned_lines > 0 {
        let lines = count(report.poisoned_lines, "line");
        if is_detached {
            report.notes.push(format!("lost, and given up with the detach: {lines}"));
        } else {
            let message =
                format!("{lines} lost earlier: reads of them fail until they are written");
            report.problem("poisoned", message, None);
        }
    }
    report.verify_volume(image, &superblock, progress);
    report.notes.extend(note_of_memory(&superblock, &image.path));
    report.notes.extend(note_of_label(&superblock));
    report.notes.extend(note_of_nvram(&superblock));
    report.notes.extend(witness_check::note_of_leg(&superblock, image));
    let is_empty_log = log.records.is_empty() && live.is_clean();
    if superblock.state == CacheState::Open && is_empty_log && report.problems.is_empty() {
        let note =
            "the log is empty: a start overwrites nothing, even if the data-disk was changed";
        report.notes.push(note.into());
    }
    // What an open cache has in surviving memory cannot be seen from here.
    let is_all_here = superblock.state != CacheState::Open && superblock.nvram.is_none();
    report.clean = live.is_clean() && is_all_here;
    Ok(report.finish())
}

/// Both superblocks, and whether the disk is as long as it was.
fn check_ends(report: &mut CheckReport, image: &CacheImage, superblock: &Superblock) {
    for (number, copy) in image.superblocks().iter().enumerate() {
        match copy {
            Ok(_) => report.superblocks_valid += 1,
            // All of a superblock that is not zero fits in one sector, so no crash can tear it.
            Err(error) => report.problem("superblock", format!("copy {number}: {error}"), None),
        }
    }
    let (end, length) = (superblock.end(), image.length());
    if length.is_some_and(|length| length < end) {
        let found = length.unwrap_or(0);
        let message = format!("the cache-disk is cut off: {found} bytes, expected {end}");
        report.problem("cache-disk", message, length);
    }
    if let Some(offset) = superblock.end_mark_offset()
        && let Err(error) = image.end_mark(superblock, offset)
    {
        let message =
            format!("{error}: the cache-disk was shorter once, and what was cut off is lost");
        report.problem("cache-disk", message, Some(offset));
    }
}

/// Why there is none.
fn without_checkpoint(
    report: &mut CheckReport,
    image: &CacheImage,
    superblock: &Superblock,
    checkpoints: &[Result<Checkpoint, ImageError>],
) {
    for (number, checkpoint) in checkpoints.iter().enumerate() {
        let Err(error) = checkpoint else { continue };
        let offset = superblock.geometry.checkpoint_offsets[number];
        // Of a new cache the second area is unused, so the damage is in the first.
        if number == 0 || !is_unused(image, offset) {
            report.problem("checkpoint", format!("checkpoint {number}: {error}"), Some(offset));
        }
    }
    if superblock.state == CacheState::Detached {
        report.notes.push("the cache is detached: nothing depends on it".into());
    }
}

/// The other one, and whether this one is of the last session.
fn check_checkpoints(
    report: &mut CheckReport,
    image: &CacheImage,
    superblock: &Superblock,
    checkpoints: &[Result<Checkpoint, ImageError>],
    checkpoint: &Checkpoint,
) {
    report.checkpoint_generation = Some(checkpoint.generation);
    for (number, checkpoint) in checkpoints.iter().enumerate() {
        let Err(error) = checkpoint else { continue };
        let offset = superblock.geometry.checkpoint_offsets[number];
        if is_unused(image, offset) {
            continue;
        }
        let message = format!("checkpoint {number}: {error}");
        match superblock.state {
            CacheState::Open => {
                report.notes.push(format!("{message} (a crash may have torn it)"));
            }
            _ => report.problem("checkpoint", message, Some(offset)),
        }
    }
    // Each session begins with a checkpoint, before its superblock is written.
    if checkpoint.epoch < superblock.session_epoch_min() {
        let generation = checkpoint.generation;
        let message = format!("the newest checkpoint is lost; generation {generation} is too old");
        report.problem("checkpoint", message, None);
    }
}

/// What is to be said of the memory that outlives a dcd.
fn note_of_memory(superblock: &Superblock, cache_disk: &Path) -> Option<String> {
    match outlook(superblock, cache_disk) {
        MemoryOutlook::Nothing => None,
        MemoryOutlook::Found(path) => {
            Some(format!("a running or interrupted dcd may hold more in {}", path.display()))
        }
        MemoryOutlook::Lost(looked, delay) => {
            let looked: Vec<String> = looked.iter().map(Looked::to_string).collect();
            Some(format!(
                "the memory of the last session is not found ({}): a start will refuse, since what was acknowledged in \
                 its last {} and not flushed may be only there",
                looked.join(", "),
                format_duration(delay)
            ))
        }
    }
}

/// What is nowhere on the disks.
fn note_of_nvram(superblock: &Superblock) -> Option<String> {
    superblock.nvram.map(|nvram| {
        format!(
            "the memory {} in front of the log may hold what is newer than both disks (`dcd inspect nvram`): a start will \
             refuse without it",
            nvram.id
        )
    })
}

/// What a person needs to know who looks at the data-disk.
fn note_of_label(superblock: &Superblock) -> Option<String> {
    let offset = superblock.data_offset_bytes;
    (offset > 0).then(|| {
        format!(
            "the data-disk has a label: the volume begins at byte {offset} of it (`dcd inspect label`)"
        )
    })
}

/// Neither copy of the superblock can be used: damage, if one looks like a superblock at all.
fn without_superblock(image: &CacheImage, error: ImageError) -> Result<CheckReport, CommandError> {
    match error {
        ImageError::Format(
            problem @ (FormatError::Magic { .. }
            | FormatError::Short { .. }
            | FormatError::Version { .. }
            | FormatError::Features { .. }),
        ) => Err(CommandError::NotACache { path: image.path.clone(), problem }),
        ImageError::Read { source, .. } => {
            Err(CommandError::File { action: "read", path: image.path.clone(), source })
        }
        ImageError::Format(error) => {
            let mut report = CheckReport::new(image, None);
            report.problem("superblock", format!("no copy can be used: {error}"), None);
            Ok(report.finish())
        }
    }
}

/// Whether a checkpoint area was never written to.
fn is_unused(image: &CacheImage, offset: u64) -> bool {
    let header = image.read(offset, LINE_SIZE as usize);
    header.is_ok_and(|bytes| !bytes.is_empty() && bytes.bytes().iter().all(|byte| *byte == 0))
}

impl CheckReport {
    fn new(image: &CacheImage, superblock: Option<&Superblock>) -> CheckReport {
        CheckReport {
            cache_disk: image.path.display().to_string(),
            uuid: superblock.map(|s| s.uuid.to_string()).unwrap_or_default(),
            state: superblock.map_or("unknown", |s| state_name(s.state)),
            healthy: false,
            superblocks_valid: 0,
            checkpoints_valid: 0,
            checkpoint_generation: None,
            records: 0,
            slots_verified: 0,
            slots_damaged: 0,
            copies_verified: 0,
            copies_not_as_listed: 0,
            dirty_lines: 0,
            zero_lines: 0,
            poisoned_lines: 0,
            volume: None,
            clean: false,
            problems: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn problem(&mut self, what: &'static str, message: String, offset: Option<u64>) {
        self.problems.push(Problem { what, message, offset, block: None });
    }

    fn finish(mut self) -> CheckReport {
        self.healthy = self.problems.is_empty();
        self.clean &= self.healthy;
        self
    }

    /// What following the log showed.
    fn log(&mut self, log: &Log) {
        self.records = log.records.len() as u64;
        for (segment, error) in &log.unreadable {
            self.problem("segment", format!("segment {}: {error}", segment.0), None);
        }
        if let Some((first, records)) = log.lost {
            let records = count(records, "record");
            let message = format!("{records} from number {} on were durable and are lost", first.0);
            self.problem("record", message, None);
        }
        if let Some(generation) = log.newer_checkpoint {
            let message = format!("checkpoint generation {generation} was durable and is lost");
            self.problem("checkpoint", message, None);
        }
    }

    /// Compares the checksum of every live slot, segment by segment.
    fn verify_slots(
        &mut self,
        image: &CacheImage,
        superblock: &Superblock,
        live: &Live,
        progress: &mut dyn FnMut(u64, u64),
    ) {
        let geometry = &superblock.geometry;
        let mut slots: Vec<LiveSlot> = live.slots().collect();
        slots.sort_unstable_by_key(|slot| (slot.slot, slot.line));
        let segment_of = |slot: &LiveSlot| geometry.locate(slot.slot).0;
        let by_segment = || slots.chunk_by(|one, next| segment_of(one) == segment_of(next));
        let segment_size = geometry.segment_size_bytes;
        let total = by_segment().count() as u64 * segment_size;
        for (done, slots) in by_segment().enumerate() {
            progress(done as u64 * segment_size, total);
            let start = geometry.segment_offset(segment_of(&slots[0]));
            let bytes = image.read(start, segment_size as usize);
            for slot in slots {
                self.slots_verified += 1;
                let offset = geometry.slot_offset(slot.slot);
                let problem = match &bytes {
                    Err(error) => error.to_string(),
                    Ok(bytes) => {
                        let at = (offset - start) as usize;
                        match bytes.bytes().get(at..at + LINE_SIZE as usize) {
                            None => "beyond the end of the cache-disk".into(),
                            Some(data) if crc32c(data) == slot.checksum => continue,
                            Some(_) => "its checksum does not match".into(),
                        }
                    }
                };
                self.slots_damaged += 1;
                let block = slot.line.lba().0;
                let message = format!("the newest copy of line {}: {problem}", slot.line.0);
                let (offset, block) = (Some(offset), Some(block));
                self.problems.push(Problem { what: "slot", message, offset, block });
            }
        }
        progress(total, total);
    }

    /// Reads what a volume is made of, and its tables.
    fn verify_volume(
        &mut self,
        image: &CacheImage,
        superblock: &Superblock,
        progress: &mut dyn FnMut(u64, u64),
    ) {
        let mut header = None;
        for (offset, copy) in volume::headers(image, superblock) {
            match copy {
                Ok(copy) => header = Some(copy),
                Err(error) => self.problem("volume", error.to_string(), Some(offset)),
            }
        }
        let Some(header) = header else { return };
        let status = match volume::tables(image, superblock, header, progress) {
            Ok(status) => status,
            Err(error) => {
                let offset = Some(superblock.volume_offset());
                return self.problem("volume", error.to_string(), offset);
            }
        };
        self.volume = Some(VolumeTables {
            extents_mapped: status.extents_mapped,
            pointers: status.pointers,
            journal_records: status.counters.records_replayed,
            raid0_lines_lost: status.raid0_lines_lost,
            redundant_lines_lost: status.redundant_lines_lost,
            members: status.members.iter().map(|m| member_state_name(m.state)).collect(),
        });
        if status.raid0_lines_lost > 0 {
            let lines = count(status.raid0_lines_lost, "line");
            let message = format!(
                "{lines} on RAID 0 lost with a disk: reads of them fail until they are written"
            );
            self.problem("volume", message, None);
        }
        if status.redundant_lines_lost > 0 {
            let lines = count(status.redundant_lines_lost, "line");
            let message = format!(
                "{lines} on RAID 1 and 5 lost, on more members than they bear: reads of them fail until \
                 they are written"
            );
            self.problem("volume", message, None);
        }
        let note =
            "what is on the members was not read; dcd volume scrub checks it while they are in use";
        self.notes.push(note.into());
    }
}

/// The report in words.
fn describe(report: &CheckReport, paint: Paint) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        text += &format!("{name:<13} {value}\n");
    };
    line("cache", report.uuid.clone());
    line("state", report.state.into());
    line("superblocks", format!("{} of 2 valid", report.superblocks_valid));
    let generation = report.checkpoint_generation;
    let generation = generation.map(|g| format!("generation {g}, ")).unwrap_or_default();
    line("checkpoints", format!("{generation}{} valid", report.checkpoints_valid));
    line("records", format!("{} after the checkpoint", report.records));
    let verified = count(report.slots_verified, "slot");
    line("live data", format!("{verified} verified, {} damaged", report.slots_damaged));
    let (verified, others) = (report.copies_verified, report.copies_not_as_listed);
    if verified + others > 0 {
        let others = match others {
            0 => String::new(),
            others => {
                format!(", {} not as listed, and not believed", format_size(others * LINE_SIZE))
            }
        };
        line("copies", format!("{} verified{others}", format_size(verified * LINE_SIZE)));
    }
    let dirty = format_size(report.dirty_lines * LINE_SIZE);
    let zeroes = format_size(report.zero_lines * LINE_SIZE);
    line("dirty", format!("{dirty} of data, {zeroes} of zeroes"));
    if let Some(volume) = &report.volume {
        let (extents, pointers) =
            (count(volume.extents_mapped, "extent"), count(volume.pointers, "pointer"));
        line("volume", format!("{extents}, {pointers}; members {}", volume.members.join(", ")));
    }
    for note in &report.notes {
        text += &format!("{}: {note}\n", paint.paint(Colour::Warning, "note"));
    }
    for problem in report.problems.iter().take(PROBLEMS_LISTED_MAX) {
        let at = problem.offset.map(|offset| format!(" (at byte {offset})")).unwrap_or_default();
        text += &format!("{}: {}{at}\n", paint.paint(Colour::Bad, "damaged"), problem.message);
    }
    if let Some(more) = report.problems.len().checked_sub(PROBLEMS_LISTED_MAX).filter(|n| *n > 0) {
        text += &format!("... and {more} more; --json lists them all\n");
    }
    if report.healthy {
        text += &format!("{}\n", paint.paint(Colour::Good, "healthy"));
    }
    text
}
