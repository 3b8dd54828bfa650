//! `dcd create`: makes an empty cache that belongs to a data-disk, or to the members of a volume.
//!
//! Everything is checked before the first byte is written, and the superblocks are written last, so
//! a failure or crash leaves either a whole new cache or none.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use dcd_daemon::device::DeviceFile;
use dcd_daemon::foreign_content::{self, recognise};
use dcd_daemon::units_text::format_size;
use dcd_engine::format::create::{CreateOptions, create};
use dcd_engine::format::end_mark::END_MARK_BYTES;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::units::LINE_SIZE;
use dcd_engine::{Buffer, FormatError, Geometry, Superblock, Uuid};
use serde_json::{Value, json};

use super::create_target::Target;
use crate::cli::CreateArguments;
use crate::error::CommandError;
use crate::image::dirty::Dirty;
use crate::image::{CacheImage, ImageError};
use crate::output::{print, print_json};
use crate::progress::{Progress, Unit};

/// A new file of at most this size is filled without being asked: it takes a second or so.
const FILL_ANYWAY_BYTES: u64 = 1 << 30;
/// Ranges that are named to people before they are lost.
const RANGES_LISTED: usize = 10;
/// Written at once by --fill.
const FILL_BYTES: usize = 4 << 20;

pub fn run(arguments: &CreateArguments) -> Result<(), CommandError> {
    let cache_disk = arguments.cache_disk.path();
    let target = Target::open(arguments)?;
    let plan = Plan::of(arguments)?;
    let segment_size =
        arguments.segment_size.unwrap_or_else(|| Geometry::default_segment_size(plan.size));
    let copy_pages = Geometry::copy_pages_in(arguments.read_area);
    if arguments.read_area > 0 && copy_pages == 0 {
        return Err(CommandError::ReadAreaSmall { found: arguments.read_area });
    }
    let uuid = random_uuid()?;
    let (volume, tables_bytes) = match target.header(uuid, plan.size)? {
        None => (None, 0),
        Some((header, bytes)) => (Some(header), bytes),
    };
    // What is too small for the mark is too small for segments, too, which says it better.
    let log_bytes = (plan.size - tables_bytes).saturating_sub(END_MARK_BYTES as u64);
    let geometry = Geometry::fit_with_copies(log_bytes, segment_size, copy_pages)?;
    let lost = match plan.is_missing {
        true => None,
        false => refuse_to_destroy(cache_disk, arguments)?,
    };
    let options = CreateOptions {
        uuid,
        geometry,
        data_disk: target.info(),
        data_disk_serial: target.serial(),
        volume,
        data_offset_bytes: 0,
        has_end_mark: true,
        // For people only; a clock before 1970 is as good as none.
        created_unix_seconds: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    };
    let written = plan.make_room(cache_disk).and_then(|()| {
        let is_small_file = plan.is_missing && plan.size <= FILL_ANYWAY_BYTES;
        if arguments.fill || is_small_file && !arguments.no_fill {
            fill(cache_disk, geometry.end() + tables_bytes + END_MARK_BYTES as u64)?;
        }
        write(cache_disk, &target, options)
    });
    if written.is_err() && plan.is_missing {
        // The file is ours alone; half a cache helps nobody. The error that counts is the first.
        let _ = fs::remove_file(cache_disk);
    }
    written?;
    if arguments.json {
        let disks = arguments.data_disk.iter().map(|disk| disk.path().display().to_string());
        let disks: Vec<String> = disks.collect();
        return print_json(&json!({
            "uuid": uuid.to_string(),
            "cache_disk": cache_disk.display().to_string(),
            "data_disk": disks[0],
            "data_disks": disks,
            "volume": target.json(),
            "segment_size_bytes": geometry.segment_size_bytes,
            "segments": geometry.segments,
            "read_area_bytes": u64::from(geometry.copy_slots()) * LINE_SIZE,
            "data_disk_blocks": target.info().blocks,
            "lost": lost.map(|lost| lost.json()),
        }));
    }
    let read_area = match geometry.copy_slots() {
        0 => String::new(),
        slots => format!(", {} for copies", format_size(u64::from(slots) * LINE_SIZE)),
    };
    print(&format!(
        "created cache {uuid} on {}: {} segments of {}{read_area}, for {}\n",
        cache_disk.display(),
        geometry.segments,
        format_size(geometry.segment_size_bytes),
        target.words(),
    ))
}

/// What is to become of the cache-disk.
struct Plan {
    /// There is no such file yet.
    is_missing: bool,
    /// The file must grow, to `size`.
    grow: bool,
    /// A file, whose space must be taken: a device has its own.
    reserve: bool,
    /// Bytes for the cache.
    size: u64,
}

impl Plan {
    fn of(arguments: &CreateArguments) -> Result<Plan, CommandError> {
        let path = arguments.cache_disk.path();
        let asked = arguments.cache_size;
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let size =
                    asked.ok_or_else(|| CommandError::SizeMissing { path: path.to_owned() })?;
                return Ok(Plan {
                    is_missing: true,
                    grow: true,
                    reserve: true,
                    size: whole_lines(size),
                });
            }
            Err(error) => return Err(CommandError::file("look at", path)(error)),
        };
        if metadata.is_file() {
            let size = asked.map_or(metadata.len(), whole_lines);
            return Ok(Plan {
                is_missing: false,
                grow: size > metadata.len(),
                reserve: true,
                size,
            });
        }
        if !metadata.file_type().is_block_device() {
            return Err(CommandError::NotADisk { path: path.to_owned() });
        }
        let found = CacheImage::open(path)?.length().unwrap_or(0);
        match asked {
            Some(asked) if asked > found => {
                Err(CommandError::DeviceTooSmall { path: path.to_owned(), found, asked })
            }
            _ => Ok(Plan {
                is_missing: false,
                grow: false,
                reserve: false,
                size: asked.unwrap_or(found),
            }),
        }
    }

    /// Makes the file, or makes it larger, or fills the holes of one that is there. The space is taken at once where the file system can do
    /// that: a log that finds its disk full has no good way on.
    fn make_room(&self, path: &Path) -> Result<(), CommandError> {
        if !self.reserve {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(self.is_missing).mode(0o600);
        let file = options.open(path).map_err(CommandError::file("create", path))?;
        let failed = |errno: rustix::io::Errno| {
            CommandError::file("make room for the cache in", path)(errno.into())
        };
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, self.size) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) if !self.grow => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => {
                rustix::fs::ftruncate(&file, self.size).map_err(failed)
            }
            Err(errno) => Err(failed(errno)),
        }
    }
}

/// A file of whole cache lines, so that direct I/O reaches its end.
fn whole_lines(size: u64) -> u64 {
    size.checked_next_multiple_of(LINE_SIZE).unwrap_or(size)
}

/// One would eat the other.
pub fn refuse_same_disk(cache_disk: &Path, data_disk: &Path) -> Result<(), CommandError> {
    let (Ok(first), Ok(second)) = (fs::metadata(cache_disk), fs::metadata(data_disk)) else {
        // One of them does not exist; then they are the same only if they have the same name.
        if cache_disk == data_disk {
            return Err(CommandError::Missing { what: "the data-disk", path: data_disk.into() });
        }
        return Ok(());
    };
    let same_file = (first.dev(), first.ino()) == (second.dev(), second.ino());
    let both_devices = first.file_type().is_block_device() && second.file_type().is_block_device();
    if same_file || both_devices && first.rdev() == second.rdev() {
        let (cache_disk, data_disk) = (cache_disk.to_owned(), data_disk.to_owned());
        return Err(CommandError::SameDisk { cache_disk, data_disk });
    }
    Ok(())
}

/// Refuses to overwrite a cache or a file system, unless asked in so many words. What is lost by
/// that is returned.
fn refuse_to_destroy(
    path: &Path,
    arguments: &CreateArguments,
) -> Result<Option<Loss>, CommandError> {
    let image = CacheImage::open(path)?;
    let path = || -> PathBuf { image.path.clone() };
    let superblock = match image.superblock() {
        Ok(superblock) => superblock,
        Err(ImageError::Read { source, .. }) => {
            return Err(CommandError::File { action: "read", path: path(), source });
        }
        Err(ImageError::Format(FormatError::Magic { .. } | FormatError::Short { .. })) => {
            let start = image.read(0, foreign_content::LENGTH);
            let content = start.ok().and_then(|start| recognise(start.bytes()));
            return match content {
                Some(content) if !arguments.force => {
                    Err(CommandError::ForeignContent { path: path(), content })
                }
                _ => Ok(None),
            };
        }
        Err(ImageError::Format(_)) if arguments.force => return Ok(None),
        Err(ImageError::Format(problem)) => {
            return Err(CommandError::DamagedCacheExists { path: path(), problem });
        }
    };
    let uuid = superblock.uuid;
    let Some(loss) = loss_of(&image, &superblock) else {
        if !arguments.force {
            return Err(CommandError::CacheExists { path: path(), uuid });
        }
        return Ok(None);
    };
    // Whoever gives it up has seen what it is, or sees it now, while it is still there.
    if arguments.uuid == Some(uuid) && arguments.force {
        if !arguments.json {
            loss.list("given up")?;
        }
        return Ok(Some(loss));
    }
    if arguments.json {
        print_json(&json!({ "uuid": uuid.to_string(), "would_be_lost": loss.json() }))?;
    } else {
        loss.list("would be lost")?;
    }
    Err(CommandError::CacheDirty { path: path(), uuid, dirty: loss.summary() })
}

/// What would be lost with a cache; nothing if it is certain that nothing would.
fn loss_of(image: &CacheImage, superblock: &Superblock) -> Option<Loss> {
    match Dirty::of(image, superblock, &mut |_, _| ()) {
        Ok(dirty) if dirty.is_clean() => None,
        Ok(dirty) => Some(Loss::Known(dirty)),
        Err(_) => Some(Loss::Unknown),
    }
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
            Loss::Known(dirty) => dirty.json(),
            Loss::Unknown => json!({ "ranges": null }),
        }
    }

    /// Tells it to whoever is about to decide, or has decided.
    fn list(&self, title: &str) -> Result<(), CommandError> {
        let lines = match self {
            Loss::Known(dirty) => dirty.lines(RANGES_LISTED),
            Loss::Unknown => String::new(),
        };
        print(&format!("{title}: {}\n{lines}", self.summary()))
    }
}

/// Writes zeroes over the whole cache: the first write to each block of a new file costs its file
/// system a commit of its own (measured on ext4: 1.6 times the time of a later one).
fn fill(path: &Path, size: u64) -> Result<(), CommandError> {
    let cache_disk = DeviceFile::open(path)?;
    let mut progress = Progress::new("filling", Unit::Bytes);
    let zeroes = Buffer::zeroed(FILL_BYTES);
    let mut offset = 0;
    while offset < size {
        progress.update(offset, size);
        let length = (size - offset).min(FILL_BYTES as u64);
        let written = rustix::io::pwrite(&cache_disk, &zeroes.bytes()[..length as usize], offset)
            .map_err(|errno| CommandError::file("write to", path)(errno.into()))?;
        offset += written as u64;
    }
    progress.finish();
    Ok(())
}

fn write(path: &Path, target: &Target, options: CreateOptions) -> Result<(), CommandError> {
    let cache_disk = DeviceFile::open(path)?;
    // Each write is flushed before the next.
    // 1. No superblock of what was here before. Crash here: a disk that is no cache.
    for offset in SUPERBLOCK_OFFSETS {
        cache_disk.write_at(offset, &Buffer::zeroed(LINE_SIZE as usize))?;
    }
    // 2. Labels of members. Crash here: no cache, and members of nothing.
    target.write_labels(options.uuid)?;
    // 3. The checkpoint and the tables of a volume, then the superblocks. Crash before the first superblock: no cache. Crash
    //    before the second: a whole cache with one copy, and nothing in it to lose.
    for (offset, bytes) in create(options) {
        cache_disk.write_at(offset, &bytes)?;
    }
    drop(cache_disk);
    // 4. The name of a new file, which its own flush does not make durable.
    let file = File::open(path).map_err(CommandError::file("open", path))?;
    file.sync_all().map_err(CommandError::file("flush", path))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let opened = File::open(directory).map_err(CommandError::file("open", directory))?;
    opened.sync_all().map_err(CommandError::file("flush", directory))
}

pub fn random_uuid() -> Result<Uuid, CommandError> {
    let mut bytes = [0u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(CommandError::Random { source: errno.into() }),
        }
    }
    // Marks of a random UUID (RFC 9562, version 4).
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid(bytes))
}
