//! `dcd hint watch`: keeps the hints of a file system's files true.
//!
//! ```text
//! start, and every --rescan:  all files below PATH
//! event (fanotify):           the file
//!    -> wait, and again while some of its blocks are not chosen yet
//!    -> what is said of it: own attribute, first rule, nearest directory
//!    -> its blocks (FIEMAP), their attributes now, the difference to the volume
//! ```
//!
//! A file system chooses the blocks of a file when it writes it back, and dcd has them in its log
//! first. So a hint that comes some seconds later is in time for the volume.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dcd_daemon::device::file_watch::{FileWatch, WatchEvent};
use dcd_daemon::process::signals::Signals;
use dcd_daemon::serve::ServeError;
use dcd_engine::volume::attributes::Attributes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::apply::{Manner, apply};
use super::{VolumeArguments, metadata, tree};
use crate::error::CommandError;
use crate::file_blocks::{FileSystemStart, blocks_of, device_file_system_start, open};
use crate::hint_rules::{self, HintRules};
use crate::output::count;
use crate::ready_line::ReadyLine;
use crate::stdout::print_done_with;
use crate::volume_client::VolumeClient;

/// A file is left alone so long after it was closed: it may be written again at once.
const SETTLE: Duration = Duration::from_millis(200);
/// Longest wait between two looks at a file whose blocks are not chosen.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Files that wait; more are left to the next time through all of them.
const WAITING_MAX: usize = 1 << 20;

/// What is asked for.
pub struct Options<'a> {
    pub root: &'a Path,
    pub rules: Option<&'a Path>,
    pub sync: bool,
    pub rescan: Duration,
    pub metadata: bool,
    pub verbose: bool,
    pub volume: &'a VolumeArguments,
}

/// When a file is to be looked at, and how long it waited before.
#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    wait: Duration,
}

struct Watch<'a> {
    options: &'a Options<'a>,
    root: PathBuf,
    rules: HintRules,
    volume: VolumeClient,
    start: FileSystemStart,
    waiting: BTreeMap<PathBuf, Due>,
    files: u64,
    extents: u64,
}

pub fn run(options: &Options<'_>) -> Result<(), CommandError> {
    let rules = options.rules.map(hint_rules::read).transpose()?.unwrap_or_default();
    let root = options.root.canonicalize().map_err(CommandError::file("look at", options.root))?;
    let volume = VolumeClient::connect(&options.volume.control)?;
    let start = device_file_system_start(&root, volume.report.volume_bytes, options.volume.offset)?;
    // Before the first time through: what changes meanwhile is told afterwards.
    let events = FileWatch::open(&root)?;
    let signals = Signals::install().map_err(ServeError::system("receive signals"))?;
    let waiting = BTreeMap::new();
    let mut watch = Watch { options, root, rules, volume, start, waiting, files: 0, extents: 0 };
    let told = watch.tell_metadata()?;
    watch.scan()?;
    let mut line = ReadyLine::in_words(&format!(
        "ready {}: {}, {}{told}, begins at byte {} ({})",
        watch.root.display(),
        count(watch.rules.count() as u64, "rule"),
        count(watch.files, "file"),
        watch.start.offset_bytes,
        watch.start.way
    ));
    line.field("directory", watch.root.display().to_string());
    line.field("rules", watch.rules.count());
    line.field("files", watch.files);
    line.field("offset_bytes", watch.start.offset_bytes);
    line.field("found", watch.start.way.to_string());
    line.print()?;
    let mut rescan_at = Instant::now() + options.rescan;
    while signals.take().is_none() {
        watch.take_events(&events)?;
        watch.do_due()?;
        if Instant::now() >= rescan_at {
            watch.scan()?;
            rescan_at = Instant::now() + options.rescan;
        }
        watch.wait(&events, &signals, rescan_at);
    }
    let (files, extents) = (count(watch.files, "file"), count(watch.extents, "extent"));
    let words = format!("looked at {files}, changed {extents}\n");
    let about = json!({ "files": watch.files, "extents_changed": watch.extents });
    // Whoever wanted only the first line is not told of the end.
    let _ = print_done_with(&words, about);
    Ok(())
}

impl Watch<'_> {
    fn tell_metadata(&mut self) -> Result<String, CommandError> {
        if !self.options.metadata {
            return Ok(String::new());
        }
        match metadata::tell(&mut self.volume, &self.root, &self.start) {
            Ok(told) => Ok(format!(", metadata of {}", told.kind)),
            // Only less is known then.
            Err(error @ (CommandError::NoStaticMetadata { .. } | CommandError::File { .. })) => {
                eprintln!("dcd: no hints for metadata: {error}");
                Ok(String::new())
            }
            Err(error) => Err(error),
        }
    }

    /// All files, now.
    fn scan(&mut self) -> Result<(), CommandError> {
        let (root, device) = (self.root.clone(), self.start.device);
        tree::each(&root, device, &mut |path, is_directory| match is_directory {
            true => Ok(()),
            false => self.look(path, SETTLE),
        })
    }

    fn take_events(&mut self, events: &FileWatch) -> Result<(), CommandError> {
        loop {
            let found = events.events().map_err(CommandError::file("watch", &self.root))?;
            if found.is_empty() {
                return Ok(());
            }
            for event in found {
                match event {
                    WatchEvent::Lost => self.scan()?,
                    WatchEvent::File { directory, name } if directory.starts_with(&self.root) => {
                        self.wait_for(directory.join(name), SETTLE);
                    }
                    WatchEvent::File { .. } => {}
                }
            }
        }
    }

    fn wait_for(&mut self, path: PathBuf, wait: Duration) {
        if self.waiting.len() < WAITING_MAX || self.waiting.contains_key(&path) {
            self.waiting.insert(path, Due { at: Instant::now() + wait, wait });
        }
    }

    fn do_due(&mut self) -> Result<(), CommandError> {
        let now = Instant::now();
        let due = self.waiting.iter().filter(|(_, due)| due.at <= now);
        let due: Vec<_> = due.map(|(path, due)| (path.clone(), due.wait)).collect();
        for (path, wait) in due {
            self.waiting.remove(&path);
            match self.look(&path, wait) {
                Err(error) if tree::is_gone(&error) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Tells the volume what a file is.
    fn look(&mut self, path: &Path, waited: Duration) -> Result<(), CommandError> {
        let Some(file) = open(path)? else { return Ok(()) };
        let metadata = file.metadata().map_err(CommandError::file("look at", path))?;
        if !metadata.is_file() || metadata.dev() != self.start.device {
            return Ok(());
        }
        let said = self.said_of(path, &file);
        let blocks = blocks_of(path, &file, &self.start, self.options.sync)?;
        let extents = apply(&mut self.volume, &blocks, said, Manner::Share)?.changed;
        self.files += 1;
        self.extents += extents;
        if self.options.verbose && extents > 0 {
            let extents = count(extents, "extent");
            // Nobody has to read it.
            eprintln!("dcd: {}: {said}, {extents}", path.display());
        }
        if blocks.is_delayed {
            self.wait_for(path.to_owned(), (waited * 2).min(WAIT_MAX));
        }
        Ok(())
    }

    /// Own attribute, first rule, nearest directory.
    fn said_of(&self, path: &Path, file: &File) -> Attributes {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        tree::read_hint(file)
            .or_else(|| self.rules.attributes(below))
            .or_else(|| {
                let directories = path.ancestors().skip(1);
                let mut below = directories.take_while(|it| it.starts_with(&self.root));
                below.find_map(|it| tree::read_hint(&File::open(it).ok()?))
            })
            .unwrap_or(Attributes::NONE)
    }

    /// Until something happens or is due.
    fn wait(&self, events: &FileWatch, signals: &Signals, rescan_at: Instant) {
        let first = self.waiting.values().map(|due| due.at).min();
        let until = first.map_or(rescan_at, |first| first.min(rescan_at));
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs().min(i32::MAX as u64) as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut waiting = [
            PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        // A signal that interrupts it is seen by the caller.
        let _ = poll(&mut waiting, Some(&left));
    }
}
