//! `dcd salvage`: what a cache-disk holds that no start takes, listed, and brought to a file or to
//! the data-disk. The cache-disk is only read.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::Args;
use dcd_daemon::device::device_file::{DeviceError, DeviceFile};
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::identity::same_disks;
use dcd_daemon::device::network::store::store_facts;
use dcd_daemon::device::network::{StoreName, store_of};
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::serve::ServeError;
use dcd_daemon::serve::salvage_target::check_salvage_target;
use dcd_daemon::units_text::format_size;
use dcd_engine::units::{BLOCK_SIZE, FRAGMENTS_PER_LINE, FragmentMask, LINE_SIZE, Line};
use dcd_engine::{Buffer, Superblock};
use serde_json::{Value, json};

use crate::error::CommandError;
use crate::image::CacheImage;
use crate::image::salvage::{Base, Certainty, Salvage};
use crate::image::share_of;
use crate::output::count;
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

/// Get back what a damaged cache-disk holds.
///
/// For a cache-disk that no start takes: finds every record and block that is whole, without any
/// checkpoint if need be, and tells which of them are the newest for certain, which may be older
/// than what is lost or on the data-disk, and which are lost. Without a checkpoint none is certain.
/// Only the certain ones are written, to a new file (sparse, as large as the data-disk) or to the
/// data-disk itself; without --to and --data-disk nothing is.
/// The cache-disk is only read, and not while a daemon has it. Try `dcd serve` first: segment memory that has survived holds more
/// than the cache-disk does. Exit code 4 tells that something is uncertain or lost.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd salvage --cache-disk fast.img
  dcd salvage --cache-disk fast.img --to found.img --json > found.json
  dcd salvage --cache-disk fast.img --data-disk slow.img")]
pub struct SalvageArguments {
    /// The cache-disk.
    #[arg(long, value_name = "FILE|DEVICE")]
    pub cache_disk: DeviceSpec,
    /// The share of the cache-disk, if several caches share it: its name, or the UUID of its cache
    /// [default: that of the data-disk, or the only one].
    #[arg(long, value_name = "NAME|UUID")]
    pub share: Option<String>,
    /// Write what is found to this new file, each block at the place where the volume has it.
    #[arg(long, value_name = "FILE", conflicts_with = "data_disk")]
    pub to: Option<PathBuf>,
    /// Write what is found to the data-disk. Make a copy of it before.
    #[arg(long, value_name = "FILE|DEVICE")]
    pub data_disk: Option<DeviceSpec>,
    /// Write to the data-disk although the record of pairs of this host, or its label, says that it
    /// is another one, or has gone on since. Never to a cache-disk, or to another cache's disk.
    #[arg(long, requires = "data_disk")]
    pub trust_disks: bool,
    /// Write what is uncertain, too: the newest copy that was found, which may be older than what
    /// was lost, and than what the data-disk has.
    #[arg(long)]
    pub take_uncertain: bool,
    /// List all ranges.
    #[arg(long)]
    pub all: bool,
    /// Print JSON, with all ranges.
    #[arg(long)]
    pub json: bool,
}

/// Ranges that are listed for people without --all.
const RANGES_LISTED_MAX: usize = 20;
/// Zeroes are written in pieces of this size.
const ZEROES_BYTES_MAX: u64 = 1 << 20;

pub fn run(arguments: &SalvageArguments) -> Result<(), CommandError> {
    let data_disks: Vec<&Path> = arguments.data_disk.iter().map(DeviceSpec::path).collect();
    let cache_disk = share_of(&arguments.cache_disk, arguments.share.as_deref(), &data_disks)?;
    // What is being written to changes as it is read: nothing that is told of it would be true.
    let lock = DeviceFile::open_read_only_of_any_size(cache_disk.path());
    if let Err(DeviceError::Locked { pid, .. } | DeviceError::LockedBelow { pid, .. }) = &lock {
        let (path, process) = (cache_disk.path().to_owned(), *pid);
        return Err(CommandError::SalvageServed { path, process });
    }
    let image = CacheImage::open(cache_disk.path())?;
    let superblock = image.need_superblock()?;
    let target = Target::open(arguments, &lock, cache_disk.path(), &superblock)?;
    let mut progress = Progress::new("reading", Unit::Bytes);
    let salvage = Salvage::of(&image, &superblock, &mut |done, total| progress.update(done, total));
    progress.finish();
    let list = List::of(&salvage, superblock.data_disk.blocks);
    let written_bytes = match &target {
        Some(target) => {
            Some(target.bring(&image, &superblock, &salvage, arguments.take_uncertain)?)
        }
        None => None,
    };
    if arguments.json {
        print_json(&json_of(&salvage, &list, written_bytes))?;
    } else {
        let most = if arguments.all { usize::MAX } else { RANGES_LISTED_MAX };
        print(&describe(&salvage, &list, written_bytes, most))?;
    }
    let (uncertain, lost) = (list.blocks_of("uncertain"), list.blocks_of("lost"));
    let is_taken = arguments.take_uncertain && target.is_some();
    let listed = if is_taken { lost } else { uncertain + lost };
    match listed == 0 && !salvage.has_unlisted_loss {
        true => Ok(()),
        false => Err(CommandError::SalvageIncomplete {
            path: image.path,
            uncertain_bytes: if is_taken { 0 } else { uncertain * BLOCK_SIZE },
            lost_bytes: lost * BLOCK_SIZE,
            has_unlisted: salvage.has_unlisted_loss,
        }),
    }
}

/// A store takes only windows of a cache that has its lease, and pieces of a log are none: whoever
/// serves it would have them under its feet.
fn refused_store(store: &StoreName, superblock: &Superblock) -> CommandError {
    let (store_words, own) = (store.to_string(), superblock.uuid.to_string());
    let why = match store_facts(store) {
        Err(failure) => format!("and it cannot be asked whose it is: {failure}"),
        Ok(facts) => {
            let on_host = facts.host.map_or_else(String::new, |host| format!(" on {host}"));
            let is_served = facts.lease_left_seconds.is_some();
            match facts.cache {
                Some(cache) if cache == own => "which belongs to this cache".to_owned(),
                Some(cache) if is_served => {
                    format!("which belongs to cache {cache}, and a dcd serves it{on_host}")
                }
                Some(cache) => format!("which belongs to cache {cache}"),
                None => "which belongs to no cache".to_owned(),
            }
        }
    };
    CommandError::SalvageToStore { store: store_words, why }
}

/// Where what was found goes.
enum Target {
    File(File, PathBuf),
    Disk(Box<DeviceFile>),
}

impl Target {
    fn open(
        arguments: &SalvageArguments,
        lock: &Result<DeviceFile, DeviceError>,
        cache_disk: &Path,
        superblock: &Superblock,
    ) -> Result<Option<Target>, CommandError> {
        if let Some(path) = &arguments.to {
            // Never onto anything: what is there may be all that is left of it.
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
            let file = file.map_err(CommandError::file("make", path))?;
            let size = superblock.data_disk.bytes();
            file.set_len(size).map_err(CommandError::file("size", path))?;
            return Ok(Some(Target::File(file, path.clone())));
        }
        let Some(spec) = &arguments.data_disk else { return Ok(None) };
        if superblock.volume_bytes > 0 {
            return Err(CommandError::SalvageOfVolume);
        }
        let data_disk = spec.path();
        if let Some(store) = store_of(data_disk) {
            return Err(refused_store(&store, superblock));
        }
        if let Some((first, second, shared)) = same_disks(&[cache_disk, data_disk]) {
            let (first, second) = (first.to_owned(), second.to_owned());
            return Err(ServeError::SameDisk { first, second, shared }.into());
        }
        let cache_disk = match lock {
            Ok(lock) => lock,
            // Who only reads does without a lock. Tried again for the error.
            Err(_) => &DeviceFile::open_read_only_of_any_size(cache_disk)
                .map_err(ServeError::device("cache-disk"))?,
        };
        let disk = DeviceFile::open(data_disk).map_err(ServeError::device("data-disk"))?;
        let expected = superblock.data_disk.bytes() + superblock.data_offset_bytes;
        if disk.size_bytes != expected {
            let (path, found) = (spec.path().to_owned(), disk.size_bytes);
            return Err(CommandError::SalvageDiskSize { path, expected, found });
        }
        let pairs = PairBook::from_environment(arguments.trust_disks);
        check_salvage_target(superblock, cache_disk, &disk, &pairs)?;
        Ok(Some(Target::Disk(Box::new(disk))))
    }

    /// The line at `offset`, or the part of it that is within `end`.
    fn read(&self, offset: u64, length: usize) -> Result<Buffer, CommandError> {
        match self {
            // A new file holds nothing but what was written to it here.
            Target::File(file, path) => {
                let mut buffer = Buffer::zeroed(length);
                let bytes = buffer.bytes_mut();
                file.read_exact_at(bytes, offset).map_err(CommandError::file("read", path))?;
                Ok(buffer)
            }
            Target::Disk(disk) => Ok(disk.read_at(offset, length)?),
        }
    }

    fn write(&self, offset: u64, buffer: &Buffer) -> Result<(), CommandError> {
        match self {
            Target::File(file, path) => {
                file.write_all_at(buffer.bytes(), offset).map_err(CommandError::file("write", path))
            }
            Target::Disk(disk) => Ok(disk.write_all_at(offset, buffer.bytes())?),
        }
    }

    fn flush(&self) -> Result<(), CommandError> {
        match self {
            Target::File(file, path) => file.sync_all().map_err(CommandError::file("flush", path)),
            Target::Disk(disk) => Ok(disk.flush()?),
        }
    }

    /// Writes what counts; zeroes first, which never lie over a copy. Returns how many bytes.
    fn bring(
        &self,
        image: &CacheImage,
        superblock: &Superblock,
        salvage: &Salvage,
        takes_uncertain: bool,
    ) -> Result<u64, CommandError> {
        let counts = |certainty| certainty == Certainty::Certain || takes_uncertain;
        let (end, base) = match self {
            Target::File(..) => (superblock.data_disk.bytes(), 0),
            Target::Disk(_) => (superblock.data_disk.bytes(), superblock.data_offset_bytes),
        };
        let total = salvage.pieces.len() as u64 * LINE_SIZE;
        let mut progress = Progress::new("writing", Unit::Bytes);
        let mut written_bytes = 0;
        let mut zeroes = Buffer::zeroed(ZEROES_BYTES_MAX as usize);
        for range in salvage.zeroes.iter().filter(|range| counts(range.certainty)) {
            let mut at = range.start.saturating_mul(LINE_SIZE).min(end);
            let stop = range.end.saturating_mul(LINE_SIZE).min(end);
            while at < stop {
                let length = (stop - at).min(ZEROES_BYTES_MAX);
                // A new file is zero already.
                if matches!(self, Target::Disk(_)) {
                    zeroes.resize(length as usize);
                    self.write(base + at, &zeroes)?;
                }
                (at, written_bytes) = (at + length, written_bytes + length);
            }
        }
        for (done, piece) in salvage.pieces.iter().enumerate() {
            progress.update(done as u64 * LINE_SIZE, total);
            if !counts(piece.certainty) {
                continue;
            }
            let offset = superblock.geometry.slot_offset(piece.copy.slot);
            let slot = image.read(offset, LINE_SIZE as usize);
            let slot = slot.map_err(|error| CommandError::SalvageRead { error })?;
            // Whole lines: a disk may have physical sectors of that size.
            let at = piece.copy.line.0 * LINE_SIZE;
            let length = LINE_SIZE.min(end.saturating_sub(at)) as usize;
            let mut line = self.read(base + at, length)?;
            let length = line.len();
            for run in piece.copy.mask.byte_runs() {
                let run = run.start.min(length)..run.end.min(length);
                line.bytes_mut()[run.clone()].copy_from_slice(&slot.bytes()[run.clone()]);
                written_bytes += run.len() as u64;
            }
            self.write(base + at, &line)?;
        }
        progress.finish();
        self.flush()?;
        Ok(written_bytes)
    }
}

/// A range of the volume, in blocks of 512 bytes.
struct Range {
    kind: &'static str,
    start: u64,
    end: u64,
}

/// Everything that was found, merged and in order.
struct List(Vec<Range>);

impl List {
    fn of(salvage: &Salvage, volume_blocks: u64) -> List {
        let kind = |certainty| match certainty {
            Certainty::Certain => "certain",
            Certainty::NewerMayBeLost | Certainty::MayBeDead => "uncertain",
        };
        let mut ranges = Vec::new();
        let mut fragments = |line: Line, mask: FragmentMask, kind| {
            for index in mask.indices() {
                let start = line.lba().0 + index as u64;
                ranges.push(Range { kind, start, end: start + 1 });
            }
        };
        for piece in &salvage.pieces {
            fragments(piece.copy.line, piece.copy.mask, kind(piece.certainty));
        }
        for (line, mask) in &salvage.lost {
            fragments(*line, *mask, "lost");
        }
        ranges.extend(salvage.zeroes.iter().map(|range| Range {
            kind: match range.certainty {
                Certainty::Certain => "zeroes",
                _ => "uncertain zeroes",
            },
            start: range.start.saturating_mul(FRAGMENTS_PER_LINE),
            end: range.end.saturating_mul(FRAGMENTS_PER_LINE),
        }));
        ranges.sort_by_key(|range| (range.start, range.end));
        let mut merged: Vec<Range> = Vec::new();
        for mut range in ranges {
            range.end = range.end.min(volume_blocks);
            match merged.last_mut() {
                Some(last) if last.end == range.start && last.kind == range.kind => {
                    last.end = range.end;
                }
                _ if range.start < range.end => merged.push(range),
                _ => {}
            }
        }
        List(merged)
    }

    fn blocks_of(&self, kind: &str) -> u64 {
        let ranges = self.0.iter().filter(|range| range.kind.starts_with(kind));
        ranges.map(|range| range.end - range.start).sum()
    }
}

fn json_of(salvage: &Salvage, list: &List, written_bytes: Option<u64>) -> Value {
    let range = |range: &Range| {
        json!({
            "kind": range.kind,
            "offset": range.start * BLOCK_SIZE,
            "bytes": (range.end - range.start) * BLOCK_SIZE,
        })
    };
    let unreadable = salvage.unreadable.iter().map(|(segment, _)| segment.0);
    json!({
        "records": salvage.records,
        "records_missing": salvage.gaps.iter().map(|(first, last)| last - first + 1).sum::<u64>(),
        "segments_unreadable": unreadable.collect::<Vec<_>>(),
        "checkpoint_lost": salvage.checkpoint_lost,
        "end_mark_lost": salvage.end_mark_lost,
        "names_nvram": salvage.names_nvram,
        "began_with": began_with(salvage),
        "certain_bytes": list.blocks_of("certain") * BLOCK_SIZE,
        "uncertain_bytes": list.blocks_of("uncertain") * BLOCK_SIZE,
        "zero_bytes": list.blocks_of("zeroes") * BLOCK_SIZE,
        "has_unlisted_loss": salvage.has_unlisted_loss,
        "lost_bytes": list.blocks_of("lost") * BLOCK_SIZE,
        "written_bytes": written_bytes,
        "ranges": list.0.iter().map(range).collect::<Vec<_>>(),
    })
}

fn began_with(salvage: &Salvage) -> String {
    let mut text = match &salvage.base {
        Base::Nothing => return "no checkpoint can be read, so nothing is certain".into(),
        Base::Whole { generation } => format!("checkpoint {generation}, which is whole"),
        Base::Damaged { generation, verified, mended, unknown } => format!(
            "checkpoint {generation}, which is damaged: of its items {verified} agree with the log, \
             {mended} were recognised, {unknown} not"
        ),
    };
    if salvage.checkpoint_lost {
        text += "; a newer one is lost, so nothing is certain";
    }
    text
}

fn describe(salvage: &Salvage, list: &List, written_bytes: Option<u64>, most: usize) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text += &format!("{name:<13} {value}\n");
    line("began with", began_with(salvage));
    line("records", salvage.records.to_string());
    if !salvage.gaps.is_empty() {
        let missing = salvage.gaps.iter().map(|(first, last)| last - first + 1).sum();
        let among = match salvage.base {
            Base::Nothing => "among them and before: lost, or overwritten since",
            _ => "among them",
        };
        line("missing", format!("{} {among}", count(missing, "record")));
    }
    for (segment, error) in &salvage.unreadable {
        line("unreadable", format!("segment {}: {error}", segment.0));
    }
    if salvage.end_mark_lost {
        line(
            "cut off",
            "the end of the cache-disk is lost: what was there may have been newer".into(),
        );
    }
    if salvage.names_nvram {
        line(
            "in front",
            "a memory in front of the log may hold what is newer (`dcd inspect nvram`): `dcd serve` with it and both disks \
             loses nothing"
                .into(),
        );
    }
    for (name, kind) in
        [("certain", "certain"), ("zeroes", "zeroes"), ("uncertain", "uncertain"), ("lost", "lost")]
    {
        line(name, format_size(list.blocks_of(kind) * BLOCK_SIZE));
    }
    if let Some(bytes) = written_bytes {
        line("written", format_size(bytes));
    }
    for range in list.0.iter().take(most) {
        let size = format_size((range.end - range.start) * BLOCK_SIZE);
        text += &format!("  {size:>10} {} at byte {}\n", range.kind, range.start * BLOCK_SIZE);
    }
    if let Some(rest) = list.0.get(most..).filter(|rest| !rest.is_empty()) {
        let more = count(rest.len() as u64, "more range");
        text += &format!("  and {more}; --all or --json lists them\n");
    }
    text
}
