//! `dcd hint`: tells a volume what the blocks of files are, on ordinary file systems.
//!
//! A hint is advice. One that is stale or wrong may cost time, or protection that was not asked
//! for, never correctness; so nothing here is atomic, and what fails for one file does not stop the
//! others.

mod apply;
mod metadata;
mod tree;
mod watch;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use dcd_daemon::units_text::{format_size, parse_duration, parse_size};
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::volume::attributes::Attributes;
use dcd_protocol::volumes::PlaceReport;
use serde_json::{Value, json};

use crate::error::CommandError;
use crate::file_blocks::{FileBlocksError, FileSystemStart, blocks_of, file_system_start, open};
use crate::hint_rules::parse_attributes;
use crate::output::{Align, Paint, Table, count};
use crate::stdout::{print, print_done, print_json};
use crate::volume_client::VolumeClient;
use apply::{Manner, Said, apply};

/// Tell a volume what the files on it are.
///
/// The device that dcd serves may carry ext4, XFS or another file system that tells where its files
/// lie. What is told of a file goes to its blocks, which dcd then keeps where that kind of data
/// belongs: important on RAID 1 or 5, temporary in a region of RAID 0, and so on. Attributes:
/// important, random, sequential, hot, cold, read-most, write-most, temporary, metadata; or none.
///
/// The attributes are kept with the file, in user.dcd.hint, so `setfattr -n user.dcd.hint -v
/// important FILE` says the same, and files in a directory inherit those of the directory while
/// `dcd hint watch` runs.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd hint set important -r /mnt/src --control /run/vol.ctl
  dcd hint get /mnt/src/main.c --control /run/vol.ctl
  dcd hint watch /mnt --rules hints.toml --control /run/vol.ctl
  dcd hint metadata /mnt --control /run/vol.ctl

Rules of `dcd hint watch`:
  [[rule]]
  match = [\"*.c\", \"*.cpp\", \"*.h\"]
  set = \"important\"
  [[rule]]
  match = [\"*.o\", \"build/**\"]
  set = \"temporary\"")]
pub struct HintArguments {
    /// What to do.
    #[command(subcommand)]
    what: HintWhat,
}

/// Where the volume is.
#[derive(Args, Debug)]
pub struct VolumeArguments {
    /// The running cache: the name of its service, its UUID, the device that it serves, or its
    /// control socket.
    #[arg(long, value_name = "CACHE")]
    pub control: PathBuf,
    /// Byte of the volume at which the file system begins, where the system does not tell: behind
    /// device-mapper, say.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub offset: Option<u64>,
}

#[derive(Subcommand, Debug)]
enum HintWhat {
    /// Say what files are
    ///
    /// What was said before is replaced. A directory hands it on to files that are made in it; -r
    /// tells those that are there.
    Set {
        /// Names with commas, or none.
        #[arg(value_name = "ATTRIBUTES", value_parser = parse_attributes)]
        attributes: Attributes,
        /// Files and directories.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
        /// All files in directories, too.
        #[arg(short, long)]
        recursive: bool,
        /// Where the volume is.
        #[command(flatten)]
        volume: VolumeArguments,
    },
    /// Show what files are said to be, and where they lie
    Get {
        /// Files and directories.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<PathBuf>,
        /// Where the volume is.
        #[command(flatten)]
        volume: VolumeArguments,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Say what files are by their names, as they are written
    ///
    /// Goes through all files, then waits for those that are closed after writing, made or moved
    /// (needs root). A file is what its own user.dcd.hint says, else what the first rule says that
    /// fits, else what the nearest directory says. Ends with Ctrl-C.
    Watch {
        /// The directory where the file system is mounted, or one in it.
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// Rules, as TOML.
        #[arg(long, value_name = "FILE")]
        rules: Option<PathBuf>,
        /// Have each file written back at once, so that its blocks are known before dcd moves them
        /// on. Otherwise they are looked at when the file system has chosen them.
        #[arg(long)]
        sync: bool,
        /// Go through all files this often, for those that are never closed.
        #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
        rescan: Duration,
        /// Do not look for the metadata of the file system.
        #[arg(long)]
        no_metadata: bool,
        /// Tell of each file.
        #[arg(long)]
        verbose: bool,
        /// Where the volume is.
        #[command(flatten)]
        volume: VolumeArguments,
    },
    /// Find the metadata of a file system, and say that it is
    ///
    /// Superblocks, group descriptors, bitmaps, inode tables and the journal of ext2 to ext4; the
    /// headers of allocation groups and the log of XFS.
    Metadata {
        /// A directory of the mounted file system, or its device.
        #[arg(value_name = "PATH|DEVICE")]
        path: PathBuf,
        /// Where the volume is.
        #[command(flatten)]
        volume: VolumeArguments,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(arguments: &HintArguments) -> Result<(), CommandError> {
    match &arguments.what {
        HintWhat::Set { attributes, paths, recursive, volume } => {
            set(paths, *attributes, *recursive, volume)
        }
        HintWhat::Get { paths, volume, json } => get(paths, volume, *json),
        HintWhat::Watch { path, rules, sync, rescan, no_metadata, verbose, volume } => {
            watch::run(&watch::Options {
                root: path,
                rules: rules.as_deref(),
                sync: *sync,
                rescan: *rescan,
                metadata: !no_metadata,
                verbose: *verbose,
                volume,
            })
        }
        HintWhat::Metadata { path, volume, json } => metadata::run(path, volume, *json),
    }
}

/// Does the same with each path, whatever becomes of the others: what goes wrong with one is told,
/// and counts in the end.
fn each_path(
    paths: &[PathBuf],
    mut one: impl FnMut(&Path) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    if let [path] = paths {
        return one(path);
    }
    let mut failed = 0;
    for path in paths {
        if let Err(error) = one(path) {
            error.report();
            failed += 1;
        }
    }
    match failed {
        0 => Ok(()),
        failed => Err(CommandError::SomePaths { failed, of: paths.len() }),
    }
}

/// What a path leads to, which somebody has named: links are followed.
fn target(path: &Path) -> Result<PathBuf, CommandError> {
    std::fs::canonicalize(path).map_err(CommandError::file("look at", path))
}

fn set(
    paths: &[PathBuf],
    attributes: Attributes,
    recursive: bool,
    arguments: &VolumeArguments,
) -> Result<(), CommandError> {
    let mut volume = VolumeClient::connect(&arguments.control)?;
    let mut files = 0;
    let mut extents = Said::default();
    let mut is_delayed = false;
    let result = each_path(paths, |path| {
        let path = &target(path)?;
        let start = file_system_start(path, volume.report.volume_bytes, arguments.offset)?;
        let volume_bytes = volume.report.volume_bytes;
        let mut one = |path: &Path| {
            let Some(file) = open(path)? else { return Ok(()) };
            if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                return tree::write_hint(path, &file, attributes);
            }
            // Whoever says it now wants it now.
            let blocks = blocks_of(path, &file, &start, true)?;
            // A dhisfs tells the volume when it is told itself; before, so that it can be seen what
            // that changes.
            let told = match start.is_dhisfs {
                true => apply::would_change(&mut volume, &blocks, attributes)?,
                false => apply(&mut volume, &blocks, attributes, Manner::Replace)?,
            };
            if told.extents == 0 && !blocks.ranges.is_empty() {
                let path = path.to_owned();
                return Err(FileBlocksError::Elsewhere { path, volume_bytes }.into());
            }
            tree::write_hint(path, &file, attributes)?;
            files += 1;
            extents.extents += told.extents;
            extents.changed += told.changed;
            is_delayed |= blocks.is_delayed;
            Ok(())
        };
        one(path)?;
        if recursive {
            tree::each(path, start.device, &mut |path, _| one(path))?;
        }
        Ok(())
    });
    let later = if is_delayed { "; some blocks are chosen later: say it again then" } else { "" };
    if files > 0 || result.is_ok() {
        print_done(&format!(
            "{}: {attributes}, changed for {} of {}{later}\n",
            count(files, "file"),
            extents.changed,
            count(extents.extents, "extent")
        ))?;
    }
    result
}

fn get(paths: &[PathBuf], arguments: &VolumeArguments, as_json: bool) -> Result<(), CommandError> {
    let mut volume = VolumeClient::connect(&arguments.control)?;
    let mut all = Vec::new();
    let mut table = Table::new(&[
        ("file", Align::Left),
        ("said", Align::Left),
        ("level", Align::Left),
        ("size", Align::Right),
        ("attributes", Align::Left),
    ]);
    let result = each_path(paths, |named| {
        let path = &target(named)?;
        let start = file_system_start(path, volume.report.volume_bytes, arguments.offset)?;
        let file = open(path)?.ok_or_else(|| CommandError::NotAFile { path: path.to_owned() })?;
        let said = tree::read_hint(&file).map_or_else(|| "-".into(), |said| said.to_string());
        let places = places_of(&mut volume, path, &file, &start)?;
        let mut name = named.display().to_string();
        if places.is_empty() {
            table.row(vec![name.clone(), said.clone(), "-".into(), "-".into(), String::new()]);
        }
        let mut parts = Vec::new();
        for part in &places {
            parts.push(part.json());
            table.row(vec![
                std::mem::take(&mut name),
                said.clone(),
                part.level_words(),
                format_size(part.bytes),
                part.attributes.to_string(),
            ]);
        }
        all.push(json!({ "file": named.display().to_string(), "said": said, "parts": parts }));
        Ok(())
    });
    if as_json {
        print_json(&Value::Array(all))?;
    } else if !all.is_empty() {
        print(&table.render(Paint::for_stdout()))?;
    }
    result
}

/// What of a file lies alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// RAID level; none: no place yet.
    pub level: Option<u8>,
    /// Number of the set.
    pub set: Option<u8>,
    /// In the region for temporary data.
    pub temporary: bool,
    /// What it is.
    pub attributes: Attributes,
    /// How much.
    pub bytes: u64,
}

impl Part {
    /// `RAID 0, temporary`.
    pub fn level_words(&self) -> String {
        match self.level {
            None => "not placed yet".into(),
            Some(level) if self.temporary => format!("RAID {level}, temporary"),
            Some(level) => format!("RAID {level}"),
        }
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let Part { level, set, temporary, attributes, bytes } = self;
        json!({
            "level": level,
            "set": set,
            "temporary": temporary,
            "attributes": attributes.to_string(),
            "bytes": bytes,
        })
    }
}

/// How blocks lie: first block of each run, and what it is.
pub fn place_parts(
    volume: &mut VolumeClient,
    (from, length): (u64, u64),
) -> Result<Vec<(u64, Part)>, CommandError> {
    let to = from + length;
    let part = |place: PlaceReport| {
        // Places are whole extents.
        let (first, last) = (place.block.max(from), (place.block + place.blocks).min(to));
        let part = Part {
            level: place.level,
            set: place.set,
            temporary: place.temporary,
            attributes: place.attributes,
            bytes: last.saturating_sub(first) * BLOCK_SIZE,
        };
        (first, part)
    };
    Ok(volume.places(&[(from, length)])?.into_iter().map(part).collect())
}

/// How the blocks of a file lie, those that lie alike together.
fn places_of(
    volume: &mut VolumeClient,
    path: &Path,
    file: &File,
    start: &FileSystemStart,
) -> Result<Vec<Part>, CommandError> {
    let blocks = blocks_of(path, file, start, false)?;
    let mut parts: Vec<Part> = Vec::new();
    let is_anywhere = !blocks.ranges.is_empty();
    for range in blocks.ranges {
        for (_, found) in place_parts(volume, range)? {
            let alike = |part: &&mut Part| {
                (part.set, part.temporary, part.attributes)
                    == (found.set, found.temporary, found.attributes)
            };
            match parts.iter_mut().find(alike) {
                Some(part) => part.bytes += found.bytes,
                None => parts.push(found),
            }
        }
    }
    if is_anywhere && parts.is_empty() {
        let (path, volume_bytes) = (path.to_owned(), volume.report.volume_bytes);
        return Err(FileBlocksError::Elsewhere { path, volume_bytes }.into());
    }
    Ok(parts)
}
