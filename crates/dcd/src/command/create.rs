//! `dcd create`: makes an empty cache that belongs to a data-disk, or to the members of a volume.
//!
//! Everything is checked before the first byte is written, and the superblocks are written last, so
//! a failure or crash leaves either a whole new cache or none. What may be overwritten,
//! [`refuse_to_destroy`] says; room that was taken in vain is given back (`create_room.rs`).

use std::cell::Cell;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use dcd_daemon::device::device_file::{DeviceError, DeviceFile};
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::foreign_content::{Content, READ_WHOLE_BYTES, look};
use dcd_daemon::device::network::TakeOver;
use dcd_daemon::device::network::is_network;
use dcd_daemon::device::shares::{Place, ShareProblem, directory_of, disk_of, is_no_directory};
use dcd_daemon::device::wipe::zero_part;
use dcd_daemon::disk::drive::check_drive;
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::pair::legs::{new_leg_uuid, new_tag, new_witness, write_leg_label};
use dcd_daemon::pair::members::content;
use dcd_daemon::process::random::random_bytes;
use dcd_daemon::process::signals::Signals;
use dcd_daemon::serve::ServeError;
use dcd_daemon::serve::own_disks::{check_witness, is_one_file};
use dcd_daemon::units_text::{format_size, parse_size};
use dcd_engine::create::{CreateOptions, create};
use dcd_engine::format::creation_mark::CreationMark;
use dcd_engine::format::end_mark::END_MARK_BYTES;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::leg_label::{LEGS_MAX, LegLabel};
use dcd_engine::format::share_directory::{DIRECTORY_COPY_BYTES, DIRECTORY_OFFSETS, ShareState};
use dcd_engine::format::superblock::{CacheState, SUPERBLOCK_SIZE};
use dcd_engine::units::LINE_SIZE;
use dcd_engine::{Buffer, FormatError, Geometry, Superblock, Uuid};
use serde_json::{Value, json};

use super::create_import::ImportOf;
use super::create_room::Room;
use super::create_share::{NewShares, SharedDisk};
use super::create_target::{Target, refuse_taken};
use crate::error::CommandError;
use crate::image::dirty::Dirty;
use crate::image::{CacheImage, ImageError};
use crate::progress::{Progress, Unit};
use crate::settings::{TakeOverArgument, parse_lease};
use crate::stdout::{print, print_json};

/// Make a cache for a disk, or for several disks as one volume.
///
/// Writes an empty log to the cache-disk and notes there which data-disk it belongs to. The
/// data-disk is looked at and not changed, but for a label with --labelled. A cache-disk is
/// overwritten if it is zero, or holds a cache that is detached; one that holds anything else is
/// refused. With --volume several data-disks become the members of RAID sets: what they held is
/// lost, so one that holds anything is refused too.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd create --cache-disk fast.img --cache-size 256M --data-disk slow.img
  dcd create --cache-disk /dev/nvme0n1p4 --data-disk /dev/sdb
  dcd create --cache-disk /dev/nvme0n1p4 --cache-disk /dev/nvme1n1p4 --data-disk /dev/sdb
  dcd create --cache-disk /dev/nvme0n1p4 --share 20G --data-disk /dev/sdb
  dcd create --cache-disk fast.img --data-disk slow.img --force
  dcd create --cache-disk /dev/nvme0n1p4 --data-disk /dev/sdb --labelled
  dcd create --cache-disk /dev/nvme0n1p4 --data-disk nbd://storage/vol --labelled
  dcd create --cache-disk /dev/nvme0n1p4 --data-disk /dev/sdb --data-disk /dev/sdc --data-disk /dev/sdd --volume raid.toml")]
pub struct CreateArguments {
    /// Where the log goes: a block device, or a file (made if it is missing). Given again, each is
    /// a leg that holds all of it, so that one of them may fail; the smallest counts.
    #[arg(long, value_name = "FILE|DEVICE", required = true)]
    pub cache_disk: Vec<DeviceSpec>,
    /// Witness of a cache on several cache-disks, so that a start with one of two needs nobody: a
    /// blank device of at least 72 KiB, or a file (made if it is missing), on a third disk.
    #[arg(long, value_name = "FILE|DEVICE")]
    pub witness: Option<PathBuf>,
    /// Size of the cache; with --share, of the cache-disk. Needed for a new file; otherwise all of
    /// the file or device is used.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cache_size: Option<u64>,
    /// Share the cache-disk with other caches: this one gets so much of it, in whole MiB. A disk
    /// that holds nothing becomes one that is shared; of one that is, a free part is taken.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub share: Option<u64>,
    /// Name of the share [default: that of the data-disk].
    #[arg(long, value_name = "NAME", requires = "share")]
    pub name: Option<String>,
    /// The disk the cache is for: a block device, a file, an export of an NBD server,
    /// nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH, or an object store, s3://BUCKET/PREFIX.
    /// With --volume, each member in a --data-disk of its own; they are numbered from 0.
    #[arg(long, value_name = "DISK", required = true)]
    pub data_disk: Vec<DeviceSpec>,
    /// Make the data-disk, an object store, in this size. One of this size that is there already is
    /// taken as it is, if it belongs to no cache.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with_all = ["volume", "labelled"])]
    pub size: Option<u64>,
    /// Take the data-disk, an object store, although it belongs to another cache: that one writes
    /// to it no more, and what it has acknowledged behind its last window is not in the store. Not
    /// while a dcd has a lease on it, but with `now`.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "lapsed",
          value_name = "lapsed|now")]
    pub take_over: Option<TakeOverArgument>,
    /// How long a dcd that serves the data-disk, an object store, has it without a sign of life:
    /// 10s to 10m, in whole seconds. A shorter one lets another machine go on sooner, and is
    /// renewed more often, each third of it [default: as the store has it, 30s for a new one].
    #[arg(long, value_name = "TIME", value_parser = parse_lease)]
    pub lease: Option<u64>,
    /// Make the data-disks the members of a volume, as this TOML file says; docs/volume.md has all
    /// keys.
    #[arg(long, value_name = "FILE")]
    pub volume: Option<PathBuf>,
    /// Begin the data-disk with a label that tells whose it is and how old; the volume lies behind
    /// it, where nobody mounts it by accident. For a disk that is zero, or that has a label
    /// already: that one keeps what it holds.
    #[arg(long, conflicts_with = "volume")]
    pub labelled: bool,
    /// Room for the label: 128k to 1G, a multiple of 4k [default: 1M, or as it is].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "labelled")]
    pub label_head: Option<u64>,
    /// Size of a segment, the unit of the log: a power of two from 64k to 4M [default: 1M, less
    /// for small caches].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub segment_size: Option<u64>,
    /// How much of the cache-disk is for copies of what is read: sequences and hot blocks
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0",
          hide_default_value = true)]
    pub read_area: u64,
    /// Write zeroes over the whole cache first. Takes as long as writing that much, and makes the
    /// first round through a new file as fast as the later ones. New files of up to 1 GiB are
    /// filled anyway.
    #[arg(long)]
    pub fill: bool,
    /// Do not fill a new file, however small.
    #[arg(long, conflicts_with = "fill")]
    pub no_fill: bool,
    /// Do not take the room of a cache-disk that is a file: it takes what is written to it. To try
    /// a cache larger than the disk it lies on. When that is full the cache-disk has failed, and
    /// what is only there may be lost.
    #[arg(long, conflicts_with = "fill")]
    pub sparse: bool,
    /// Overwrite what is on the cache-disk, on members of a volume, and on a disk that gets a
    /// label; one that has a label keeps what it holds, and its cache is given up. So is any cache
    /// that may hold what is newer than the data-disk, after it was said which. Not enough for a
    /// cache with data that is not yet on its data-disk: that needs --uuid too.
    #[arg(long)]
    pub force: bool,
    /// Give up the data in this cache, which is on the cache-disk and dirty. What is lost is listed
    /// first; `dcd inspect dirty` lists all of it.
    #[arg(long, value_name = "UUID")]
    pub uuid: Option<Uuid>,
    /// Print the new cache as JSON.
    #[arg(long)]
    pub json: bool,
    /// A volume that is there (`dcd volume import`).
    #[arg(skip)]
    pub import: Option<ImportOf>,
}

/// A new file of at most this size is filled without being asked: it takes a second or so.
const FILL_ANYWAY_BYTES: u64 = 1 << 30;
/// Ranges that are named to people before they are lost.
const RANGES_LISTED: usize = 10;
/// Written at once by --fill.
const FILL_BYTES: usize = 4 << 20;

/// SIGINT, SIGTERM or SIGHUP, which end a creation in order until it begins to write.
pub struct Stop {
    signals: Signals,
    is_stopped: Cell<bool>,
}

impl Stop {
    fn listen() -> Result<Stop, CommandError> {
        let signals =
            Signals::install_with_hangup().map_err(ServeError::system("receive signals"))?;
        Ok(Stop { signals, is_stopped: Cell::new(false) })
    }

    /// Whether one has come.
    pub fn is_stopped(&self) -> bool {
        if self.signals.take().is_some() {
            self.is_stopped.set(true);
        }
        self.is_stopped.get()
    }

    fn check(&self) -> Result<(), CommandError> {
        if self.is_stopped() { Err(CommandError::CreateCancelled) } else { Ok(()) }
    }
}

pub fn run(arguments: &CreateArguments) -> Result<(), CommandError> {
    let stop = Stop::listen()?;
    let made = make(arguments, &stop, |new| tell(arguments, new));
    // Too late for one that came since: it would only make a success look like none.
    stop.is_stopped();
    made
}

/// The same in the course of a start, which tells in its own way. The new cache.
pub fn create_for_serving(arguments: &CreateArguments) -> Result<Uuid, CommandError> {
    let stop = Stop::listen()?;
    let mut made = None;
    make(arguments, &stop, |new| {
        made = Some(new.uuid);
        Ok(())
    })?;
    match (stop.is_stopped(), made) {
        (false, Some(uuid)) => Ok(uuid),
        _ => Err(CommandError::CreateCancelled),
    }
}

/// What was made.
struct New<'a> {
    places: &'a [PathBuf],
    target: &'a Target,
    uuid: Uuid,
    geometry: &'a Geometry,
    lost: &'a [Gone],
    given_up: &'a [String],
}

/// Refuses a disk in the times of a drive that is nowhere described: nobody could serve it.
fn check_models(arguments: &CreateArguments) -> Result<(), CommandError> {
    let disks = arguments.cache_disk.iter().chain(&arguments.data_disk);
    for profile in disks.filter_map(DeviceSpec::model_profile) {
        check_drive(profile).map_err(DeviceError::from)?;
    }
    Ok(())
}

fn make(
    arguments: &CreateArguments,
    stop: &Stop,
    tell: impl FnOnce(&New<'_>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let paths: Vec<&Path> = arguments.cache_disk.iter().map(DeviceSpec::path).collect();
    let has_legs = paths.len() > 1;
    if paths.len() > LEGS_MAX {
        return Err(ServeError::TooManyLegs { most: LEGS_MAX }.into());
    }
    if arguments.witness.is_some() && !has_legs {
        return Err(ServeError::WitnessOfOneDisk.into());
    }
    if has_legs && arguments.labelled {
        return Err(ServeError::LabelledOnLegs.into());
    }
    check_models(arguments)?;
    // Files that are not there yet have nothing else to be known by.
    for (place, path) in paths.iter().enumerate() {
        if let Some(first) = paths[..place].iter().find(|it| is_one_file(it, path)) {
            let (first, second, shared) = (first.into(), path.into(), path.into());
            return Err(ServeError::SameDisk { first, second, shared }.into());
        }
    }
    if let Some(witness) = &arguments.witness {
        let data_disks = arguments.data_disk.iter().map(DeviceSpec::path);
        check_witness(witness, paths.iter().copied().chain(data_disks))?;
    }
    let book = PairBook::from_environment(false);
    let shared = match arguments.share {
        None => Vec::new(),
        Some(_) => {
            let disks = paths.iter().map(|path| SharedDisk::of(path, arguments, &book));
            disks.collect::<Result<Vec<_>, _>>()?
        }
    };
    let target = Target::open(arguments, stop)?;
    let plans = paths.iter().map(|path| match arguments.share {
        None => Plan::of(path, arguments.cache_size),
        Some(share) => Ok(Plan::of_share(share)),
    });
    let plans = plans.collect::<Result<Vec<Plan>, CommandError>>()?;
    let size = plans.iter().map(|plan| plan.size).min().unwrap_or(0);
    let segment_size =
        arguments.segment_size.unwrap_or_else(|| Geometry::default_segment_size(size));
    let copy_pages = Geometry::copy_pages_in(arguments.read_area);
    if arguments.read_area > 0 && copy_pages == 0 {
        return Err(CommandError::ReadAreaSmall { found: arguments.read_area });
    }
    let mut given_up = target.check_free(&book, arguments)?;
    let data_disks = target.disks();
    let uuid = target.uuid().map_or_else(random_uuid, Ok)?;
    let (volume, tables_bytes) = match target.header(uuid, size)? {
        None => (None, 0),
        Some((header, bytes)) => (Some(header), bytes),
    };
    // What is too small for the mark is too small for segments, too, which says it better.
    let others = tables_bytes + END_MARK_BYTES as u64;
    let geometry = Geometry::fit_with_copies(size.saturating_sub(others), segment_size, copy_pages)
        .map_err(|error| error.beside(size, others))?;
    let end = geometry.end() + others;
    // From here on nobody else can use it, so that what was looked at is what is overwritten.
    let (mut existing, mut lost) = (Vec::new(), Vec::new());
    let whole_disks = if shared.is_empty() { &paths[..] } else { &[] };
    for (path, plan) in whole_disks.iter().zip(&plans) {
        let disk = match plan.is_missing {
            true => None,
            false => Some(DeviceFile::open_of_any_size(path)?),
        };
        lost.push(match &disk {
            None => Gone::nothing(),
            Some(disk) => {
                given_up.extend(refuse_taken(&book, disk, false, arguments)?);
                refuse_to_destroy(disk, arguments, stop)?
            }
        });
        existing.push(disk);
    }
    let options = CreateOptions {
        uuid,
        geometry,
        data_disk: target.info(),
        data_disk_serial: target.serial(),
        volume,
        data_offset_bytes: target.payload_offset_bytes(),
        has_end_mark: true,
        has_legs,
        // For people only; a clock before 1970 is as good as none.
        created_unix_seconds: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    };
    stop.check()?;
    let mut new_shares = None;
    if !shared.is_empty() {
        let (shares, opened, gone) = NewShares::take(&shared, uuid, arguments, stop)?;
        new_shares = Some(shares);
        existing.extend(opened.into_iter().map(Some));
        lost.extend(gone);
    }
    let (mut rooms, mut disks) = (Vec::new(), Vec::new());
    // In a share, what was in it before may lie elsewhere.
    let own_end = |place: usize| if shared.is_empty() { lost[place].end } else { 0 };
    for (place, ((path, plan), existing)) in paths.iter().zip(&plans).zip(existing).enumerate() {
        let is_stopped = || stop.is_stopped();
        rooms.extend(match plan.is_file {
            false => None,
            true if arguments.sparse => Some(Room::lengthen(path, plan.is_missing, plan.size)?),
            true => Some(Room::take(path, plan.is_missing, plan.size, &is_stopped)?),
        });
        let disk = match existing {
            None => DeviceFile::open(path)?,
            Some(mut disk) => {
                disk.size_changed()?;
                disk
            }
        };
        // Each write is flushed before the next.
        // 1. A mark in the place of the superblocks that were here before. Crash here: a disk that
        //    is no cache, and what was on it is known to be given up. The first place is the last:
        //    until then a directory of shares, which is without any, is one.
        let old_end = own_end(place).min(disk.size_bytes / LINE_SIZE * LINE_SIZE);
        let mark = CreationMark { end: plan.size.max(old_end) }.encode();
        let [first, second] = SUPERBLOCK_OFFSETS;
        disk.write_at(second, &mark)?;
        wipe_directory_copy(&disk)?;
        disk.write_at(first, &mark)?;
        zero_behind(&disk, end, old_end, stop)?;
        let is_small_file = plan.is_missing && plan.size <= FILL_ANYWAY_BYTES;
        if arguments.fill || is_small_file && !arguments.no_fill && !arguments.sparse {
            fill(&disk, end, stop)?;
        }
        disks.push(disk);
    }
    stop.check()?;
    let witness = arguments.witness.as_deref().map(new_witness);
    let witness = witness.transpose().map_err(ServeError::from)?;
    write(
        &disks,
        witness.as_ref(),
        &target,
        options,
        TakeOverArgument::of(arguments.take_over),
        arguments.lease,
    )?;
    rooms.into_iter().for_each(Room::keep);
    let places: Vec<PathBuf> = match &new_shares {
        Some(shares) => shares.paths(),
        None => paths.iter().map(|path| path.to_path_buf()).collect(),
    };
    new_shares.map_or(Ok(()), NewShares::keep)?;
    // 5. What this host remembers of it, and no more of the cache that was here. Crash here: it
    //    remembers nothing, and learns it when the pair is served.
    let imported = target.uuid();
    lost.iter().flat_map(|lost| lost.cache).chain(imported).for_each(|cache| book.forget(cache));
    book.created(uuid, 1, &disks[0], &data_disks, arguments.json);
    drop(disks);
    tell(&New {
        places: &places,
        target: &target,
        uuid,
        geometry: &geometry,
        lost: &lost,
        given_up: &given_up,
    })
}

/// Tells of the cache that was made.
fn tell(arguments: &CreateArguments, new: &New<'_>) -> Result<(), CommandError> {
    let New { places, target, uuid, geometry, lost, given_up } = *new;
    let cache_disks: Vec<String> = places.iter().map(|it| it.display().to_string()).collect();
    let overwritten: Vec<&str> =
        lost.iter().filter_map(|gone| gone.overwritten.as_deref()).collect();
    if arguments.json {
        let disks = arguments.data_disk.iter().map(|disk| disk.path().display().to_string());
        let disks: Vec<String> = disks.collect();
        return print_json(&json!({
            "uuid": uuid.to_string(),
            "cache_disk": cache_disks[0],
            "cache_disks": cache_disks,
            "data_disk": disks[0],
            "data_disks": disks,
            "volume": target.json(),
            "share_bytes": arguments.share.map(SharedDisk::size),
            "segment_size_bytes": geometry.segment_size_bytes,
            "segments": geometry.segments,
            "read_area_bytes": u64::from(geometry.copy_slots()) * LINE_SIZE,
            "data_disk_blocks": target.info().blocks,
            "data_offset_bytes": target.payload_offset_bytes(),
            "lost": lost.iter().find_map(|gone| gone.loss.as_ref()).map(Loss::json),
            "overwritten": (!overwritten.is_empty()).then(|| overwritten.join("; ")),
            "given_up": given_up,
        }));
    }
    let read_area = match geometry.copy_slots() {
        0 => String::new(),
        slots => format!(", {} for copies", format_size(u64::from(slots) * LINE_SIZE)),
    };
    print(&format!(
        "{} cache {uuid} on {}: {} segments of {}{read_area}, for {}\n",
        if target.uuid().is_some() { "imported" } else { "created" },
        cache_disks.join(" and "),
        geometry.segments,
        format_size(geometry.segment_size_bytes),
        target.words(),
    ))
}

/// What is to become of the cache-disk.
pub struct Plan {
    /// There is no such file yet.
    pub is_missing: bool,
    /// A file, whose room must be taken: a device has its own.
    pub is_file: bool,
    /// Bytes for the cache.
    pub size: u64,
}

impl Plan {
    /// Of a share, which has its room.
    fn of_share(share: u64) -> Plan {
        Plan { is_missing: false, is_file: false, size: SharedDisk::size(share) }
    }

    /// Of all of a disk.
    pub fn of(path: &Path, asked: Option<u64>) -> Result<Plan, CommandError> {
        if Place::of(path).share.is_some() {
            return Err(CommandError::IsAShare { path: path.to_owned() });
        }
        let metadata = match fs::metadata(path) {
            _ if is_network(path) => return Plan::of_device(path, asked),
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let size =
                    asked.ok_or_else(|| CommandError::SizeMissing { path: path.to_owned() })?;
                return Ok(Plan { is_missing: true, is_file: true, size: whole_lines(size) });
            }
            Err(error) => return Err(CommandError::file("look at", path)(error)),
        };
        if metadata.is_file() {
            let size = whole_lines(asked.unwrap_or(metadata.len()));
            return Ok(Plan { is_missing: false, is_file: true, size });
        }
        if !metadata.file_type().is_block_device() {
            return Err(CommandError::NotADisk { path: path.to_owned() });
        }
        Plan::of_device(path, asked)
    }

    /// Of what has its size, and keeps it.
    fn of_device(path: &Path, asked: Option<u64>) -> Result<Plan, CommandError> {
        let found = CacheImage::open(path)?.length().unwrap_or(0);
        match asked {
            Some(asked) if asked > found => {
                Err(CommandError::DeviceTooSmall { path: path.to_owned(), found, asked })
            }
            _ => Ok(Plan { is_missing: false, is_file: false, size: asked.unwrap_or(found) }),
        }
    }
}

/// A file of whole cache lines, so that direct I/O reaches its end.
pub fn whole_lines(size: u64) -> u64 {
    size.checked_next_multiple_of(LINE_SIZE).unwrap_or(size)
}

/// What goes with the old content of a cache-disk.
pub struct Gone {
    /// Data of a cache that is nowhere else.
    loss: Option<Loss>,
    /// What was there, in words, if it was anything.
    overwritten: Option<String>,
    /// A cache that was there.
    cache: Option<Uuid>,
    /// Bytes from the beginning that were dcd's own.
    end: u64,
}

impl Gone {
    /// There was nothing.
    pub fn nothing() -> Gone {
        Gone { loss: None, overwritten: None, cache: None, end: 0 }
    }
}

/// Wipes the second copy of a directory of shares, so that nobody finds it in the new cache.
fn wipe_directory_copy(disk: &DeviceFile) -> Result<(), CommandError> {
    if let Ok(Ok(_)) = directory_of(disk) {
        disk.write_at(DIRECTORY_OFFSETS[1], &Buffer::zeroed(DIRECTORY_COPY_BYTES))?;
    }
    Ok(())
}

/// Overwritten is what is zero, a cache that is detached, and what an earlier creation had been
/// allowed to overwrite. Everything else belongs to somebody: only with --force, and after it was
/// said what it is.
pub fn refuse_to_destroy(
    disk: &DeviceFile,
    arguments: &CreateArguments,
    stop: &Stop,
) -> Result<Gone, CommandError> {
    let image = CacheImage::open(disk.path())?;
    let path = || -> PathBuf { image.path.clone() };
    let force = arguments.force;
    // All that is there is looked at, also what is behind the cache: who takes a disk, takes its
    // end, and wipes all of it one day.
    let end = disk.size_bytes;
    let given_up = |what: String| {
        if !arguments.json {
            eprintln!("dcd: overwriting {}: {what}", disk.path().display());
        }
        Gone { loss: None, overwritten: Some(what), cache: None, end: 0 }
    };
    match directory_of(disk)? {
        Ok(directory) => {
            let in_use = directory.shares().iter().filter(|it| it.state == ShareState::InUse);
            let names: Vec<String> = in_use.map(|share| share.name.clone()).collect();
            return match names.is_empty() {
                true => Ok(given_up("a cache-disk for shares, without any".into())),
                false => Err(CommandError::SharesExist { path: path(), names }),
            };
        }
        Err(problem) if is_no_directory(&problem) => {}
        Err(problem) => {
            return Err(ServeError::share(ShareProblem::Damaged { disk: path(), problem }).into());
        }
    }
    // What is between here and the end.
    let foreign = |start: u64| match look_at(disk, start..end.max(start), stop)? {
        None => Ok(None),
        Some(content) if force => Ok(Some(given_up(content.to_string()))),
        Some(content) => Err(CommandError::ForeignContent { path: path(), content }),
    };
    let superblock = match image.superblock() {
        Ok(superblock) => superblock,
        Err(ImageError::Read { source, .. }) => {
            return Err(CommandError::File { action: "read", path: path(), source });
        }
        Err(ImageError::Format(FormatError::Magic { .. } | FormatError::Short { .. })) => {
            let start = creation_mark(&image).map_or(0, |mark| mark.end);
            return Ok(Gone { end: start, ..foreign(start)?.unwrap_or(Gone::nothing()) });
        }
        Err(ImageError::Format(problem)) if force => {
            return Ok(given_up(format!("a damaged dcd cache ({problem})")));
        }
        Err(ImageError::Format(problem)) => {
            return Err(CommandError::DamagedCacheExists { path: path(), problem });
        }
    };
    let uuid = superblock.uuid;
    // Where its end mark is gone, somebody else may have been there since.
    let is_whole = |at: &u64| image.end_mark(&superblock, *at).is_ok();
    let own_end = superblock.end_mark_offset().filter(is_whole).map_or(0, |_| superblock.end());
    let cache = || format!("cache {uuid}");
    let Some(loss) = loss_of(&image, &superblock) else {
        // Behind the old cache there may be something else.
        let behind = foreign(superblock.end())?;
        return match behind {
            Some(gone) => Ok(Gone { cache: Some(uuid), end: own_end, ..gone }),
            None if force || superblock.state == CacheState::Detached => {
                let gone = given_up(format!("{}, which holds nothing", cache()));
                Ok(Gone { cache: Some(uuid), end: own_end, ..gone })
            }
            None => Err(CommandError::CacheExists { path: path(), uuid }),
        };
    };
    // Whoever gives it up has seen what it is, or sees it now, while it is still there.
    if arguments.uuid == Some(uuid) && force {
        if !arguments.json {
            loss.list("given up")?;
        }
        let (loss, overwritten) = (Some(loss), Some(cache()));
        return Ok(Gone { loss, overwritten, cache: Some(uuid), end: own_end });
    }
    if arguments.json {
        print_json(&json!({ "uuid": uuid.to_string(), "would_be_lost": loss.json() }))?;
    } else {
        loss.list("would be lost")?;
    }
    Err(CommandError::CacheDirty { path: path(), uuid, dirty: loss.summary() })
}

/// What a creation that was interrupted has left.
fn creation_mark(image: &CacheImage) -> Option<CreationMark> {
    let copies = SUPERBLOCK_OFFSETS.map(|offset| image.read(offset, SUPERBLOCK_SIZE).ok());
    copies.into_iter().flatten().find_map(|bytes| CreationMark::decode(bytes.bytes()).ok())
}

/// Looks at what is to be overwritten; may take some seconds.
pub fn look_at(
    disk: &DeviceFile,
    range: std::ops::Range<u64>,
    stop: &Stop,
) -> Result<Option<Content>, CommandError> {
    if range.is_empty() {
        return Ok(None);
    }
    let mut progress = Progress::new("looking", Unit::Bytes);
    let found = look(disk, range, &content, &mut |seen, all| {
        progress.update(seen, all);
        !stop.is_stopped()
    })?;
    progress.finish();
    stop.check()?;
    Ok(found)
}

/// What would be lost with a cache; nothing if it is certain that nothing would.
fn loss_of(image: &CacheImage, superblock: &Superblock) -> Option<Loss> {
    match Dirty::of(image, superblock, &mut |_, _| ()) {
        Ok(dirty) if dirty.is_clean() => None,
        Ok(dirty) => Some(Loss::Known(dirty)),
        Err(_) => Some(Loss::Unknown),
    }
}

/// Lists what goes with the cache on another disk, as far as that can be read.
pub fn list_given_up(cache_disk: &Path) -> Result<(), CommandError> {
    let Ok(image) = CacheImage::open(cache_disk) else { return Ok(()) };
    let Ok(superblock) = image.superblock() else { return Ok(()) };
    loss_of(&image, &superblock).map_or(Ok(()), |loss| loss.list("given up"))
}

/// What goes with a cache that is overwritten.
enum Loss {
    Known(Dirty),
    /// No checkpoint can be read.
    Unknown,
}

impl Loss {
    fn summary(&self) -> String {
        match self {
            Loss::Known(dirty) => dirty.summary(),
            Loss::Unknown => "how much cannot be told, no checkpoint can be read".into(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Loss::Known(dirty) => json!(dirty),
            Loss::Unknown => json!({ "ranges": null }),
        }
    }

    /// Tells it to whoever is about to decide, or has decided.
    fn list(&self, title: &str) -> Result<(), CommandError> {
        let mut text = format!("{title}: {}\n", self.summary());
        if let Loss::Known(dirty) = self {
            dirty.lines(RANGES_LISTED).for_each(|line| text += &(line + "\n"));
        }
        print(&text)
    }
}

/// Writes zeroes over what the cache before has left behind the end of the new one, so that nobody
/// takes it for somebody's one day: at least its end mark, which is the last of it.
fn zero_behind(disk: &DeviceFile, end: u64, old_end: u64, stop: &Stop) -> Result<(), CommandError> {
    let end = end.next_multiple_of(LINE_SIZE);
    let part = match old_end.saturating_sub(end) {
        0 => return Ok(()),
        left if left <= READ_WHOLE_BYTES => end..old_end,
        _ => old_end - END_MARK_BYTES as u64..old_end,
    };
    let mut progress = Progress::new("clearing", Unit::Bytes);
    zero_part(disk, part, &mut |done, all| {
        progress.update(done, all);
        !stop.is_stopped()
    })?;
    progress.finish();
    stop.check()
}

/// Writes zeroes over the whole cache behind the mark: the first write to each block of a new file
/// costs its file system a commit of its own (measured on ext4: 1.6 times the time of a later one).
fn fill(cache_disk: &DeviceFile, size: u64, stop: &Stop) -> Result<(), CommandError> {
    let mut progress = Progress::new("filling", Unit::Bytes);
    let zeroes = Buffer::zeroed(FILL_BYTES);
    let mut offset = 0;
    while offset < size {
        stop.check()?;
        progress.update(offset, size);
        // Neither copy of the mark is in it.
        let start = offset.max(SUPERBLOCK_OFFSETS[1] + SUPERBLOCK_SIZE as u64);
        offset = (offset + FILL_BYTES as u64).min(size);
        cache_disk.write_all_at(start, &zeroes.bytes()[..(offset - start) as usize])?;
    }
    progress.finish();
    Ok(())
}

fn write(
    cache_disks: &[DeviceFile],
    witness: Option<&DeviceFile>,
    target: &Target,
    options: CreateOptions,
    take_over: TakeOver,
    lease_seconds: Option<u64>,
) -> Result<(), CommandError> {
    // Each write is flushed before the next.
    // 2. Labels of members, or of the one data-disk; an object store is told whose it is. Crash
    //    here: no cache, and disks of nothing, which may be taken again; a store only with
    //    --take-over, since nobody knows that this cache is none.
    target.write_labels(options.uuid, take_over, lease_seconds)?;
    // 3. The checkpoint and the tables of a volume; on legs their labels, when all of them have
    //    that; then the superblocks. Crash before the first superblock: no cache. Crash before the
    //    last: a whole cache, of which a start writes all copies, and nothing in it to lose.
    let (uuid, has_legs) = (options.uuid, options.has_legs);
    let area_offset = options.geometry.end();
    let writes = create(options);
    let (others, superblocks) = writes.split_at(writes.len() - SUPERBLOCK_OFFSETS.len());
    let write_all = |writes: &[(u64, Buffer)]| -> Result<(), CommandError> {
        for disk in cache_disks {
            for (offset, bytes) in writes {
                disk.write_at(*offset, bytes)?;
            }
        }
        Ok(())
    };
    write_all(others)?;
    target.write_tables(area_offset, cache_disks)?;
    if has_legs {
        let problem = |source| CommandError::Random { source };
        let legs = cache_disks.iter().map(|_| new_leg_uuid()).collect::<Result<Vec<_>, _>>();
        let (legs, tag) = (legs.map_err(problem)?, new_tag().map_err(problem)?);
        let voter = witness.map(|_| new_leg_uuid()).transpose().map_err(problem)?;
        for (index, disk) in cache_disks.iter().enumerate() {
            let label = LegLabel::of_new(uuid, &legs, index, tag);
            let label = voter.into_iter().fold(label, LegLabel::with_witness);
            // It has a say from the first superblock on.
            if let Some(witness) = witness.filter(|_| index == 0) {
                write_leg_label(witness, &label.of_witness())?;
            }
            write_leg_label(disk, &label)?;
        }
    }
    write_all(superblocks)?;
    // 4. The names of new files, which their own flushes do not make durable.
    let named = cache_disks.iter().chain(witness);
    for disk in named.filter(|disk| disk.network().is_none()) {
        let path = &*disk_of(disk.path());
        let file = File::open(path).map_err(CommandError::file("open", path))?;
        file.sync_all().map_err(CommandError::file("flush", path))?;
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let opened = File::open(directory).map_err(CommandError::file("open", directory))?;
        opened.sync_all().map_err(CommandError::file("flush", directory))?;
    }
    Ok(())
}

pub fn random_uuid() -> Result<Uuid, CommandError> {
    let mut bytes: [u8; 16] = random_bytes().map_err(|source| CommandError::Random { source })?;
    // Marks of a random UUID (RFC 9562, version 4).
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_come_back() {
        let uuid = Uuid(*b"0123456789abcdef");
        assert_eq!(uuid.to_string().parse::<Uuid>().unwrap(), uuid);
        assert!("12".parse::<Uuid>().is_err());
        assert!("zz345678-1234-1234-1234-123456789abc".parse::<Uuid>().is_err());
    }
}
