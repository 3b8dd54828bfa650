//! What can go wrong in the command: kinds to tell apart, the exit code of each, and a hint where
//! there is a next step.
//!
//! One line says what is wrong (`dcd: error: ...`), one more what to do (`dcd: hint: ...`).

use std::error::Error as _;
use std::path::{Path, PathBuf};

use dcd_client::plain::plain;
use dcd_daemon::control::client::ControlError;
use dcd_daemon::disk::device::{DeviceError, missing_hint};
use dcd_daemon::disk::device_spec::DeviceSpecError;
use dcd_daemon::disk::file_watch::WatchError;
use dcd_daemon::disk::foreign_content::Content;
use dcd_daemon::frontend::nbd::listen::ListenError;
use dcd_daemon::pair::book::PairProblem;
use dcd_daemon::serve::ServeError;
use dcd_daemon::units_text::{UnitError, format_size};
use dcd_engine::format::geometry::{GeometryError, SEGMENT_SIZE_BYTES_MIN, SEGMENTS_MIN};
use dcd_engine::{FormatError, Geometry, OpenError, RequestError, Uuid};
use dhisfs::fuse::FuseError;

#[cfg(feature = "lab")]
use crate::command::lab_error::{LabError, lab_hint};
use crate::config_file::ConfigFileError;
use crate::file_blocks::FileBlocksError;
use crate::output::{Colour, Paint, count};
use crate::settings::NbdOptionsError;
use crate::static_metadata::MetadataError;
use crate::toml_values::TableFileError;
use crate::volume_file::VolumeFileError;

/// Documented in `dcd --help`.
pub mod exit_code {
    /// A wrong setting, or something refused.
    pub const USER: u8 = 1;
    /// A bad command line.
    pub const COMMAND_LINE: u8 = 2;
    /// The reader of stdout went away.
    pub const READER_CLOSED: u8 = 3;
    /// `check` found damage; `drain` or `detach` could not bring home what is damaged.
    pub const DAMAGE: u8 = 4;
    /// `dhisfs fsck` has mended everything that was damaged. As of fsck(8).
    pub const MENDED: u8 = 1;
    /// `dhisfs fsck` cannot look at the file system. As of fsck(8).
    pub const CANNOT_CHECK: u8 = 8;
    /// A disk failed.
    pub const DEVICE: u8 = 5;
    /// Nobody answers on the control socket.
    pub const NO_DAEMON: u8 = 6;
    /// A signal, or somebody else, ended it before its end.
    pub const CANCELLED: u8 = 7;
    /// `drain` or `detach` gets nothing more to the data-disk.
    pub const STUCK: u8 = 8;
    /// A bug.
    pub const BUG: u8 = 255;
}

/// Why a command did not succeed. Bad command lines are clap's, with exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration file.
    #[error(transparent)]
    ConfigFile(#[from] ConfigFileError),
    /// The configuration of a volume.
    #[error(transparent)]
    VolumeFile(#[from] VolumeFileError),
    /// Rules for hints, and other files of tables.
    #[error(transparent)]
    TableFile(#[from] TableFileError),
    /// Several data-disks, and nothing that says how they belong together.
    #[error("{disks} data-disks, and no --volume that says which RAID sets are on them")]
    VolumeMissing {
        /// How many.
        disks: usize,
    },
    /// The cache-disk is too small for the tables of the volume.
    #[error(
        "the tables of the volume need {} of the cache-disk, which has {}",
        format_size(*needed), format_size(*found)
    )]
    VolumeTables {
        /// What they need.
        needed: u64,
        /// What there is.
        found: u64,
    },
    /// There is no volume.
    #[error(
        "{} has no volume{}", path.display(),
        problem.as_ref().map_or(String::new(), |problem| format!(" that can be read: {problem}"))
    )]
    NoVolume {
        /// The cache-disk.
        path: PathBuf,
        /// What is wrong with what it has.
        problem: Option<String>,
    },
    /// The metadata of a file system is not known.
    #[error("{}: {problem}", path.display())]
    NoStaticMetadata {
        /// Where it is mounted, or its device.
        path: PathBuf,
        /// Why not.
        problem: MetadataError,
    },
    /// The blocks of a file are not known.
    #[error(transparent)]
    FileBlocks(#[from] FileBlocksError),
    /// A setting that the engine does not take.
    #[error("setting {0}")]
    Setting(#[from] dcd_engine::config::ConfigError),
    /// A setting without which nothing goes.
    #[error("{0} is not set")]
    SettingMissing(&'static str),
    /// The same setting with two values.
    #[error("{key} is given twice")]
    SetTwice {
        /// Which one.
        key: String,
    },
    /// `--loop` without a file to loop over.
    #[error("--loop needs --fuse: the loop device is made over the file there")]
    LoopWithoutFuse,
    /// `--model` of a disk that has its own times.
    #[error("--model makes a plain file slow, and the disk of --disk has times or faults already")]
    ModelOfSlowed,
    /// Nobody could reach the disk.
    #[error("nothing to serve on: none of --nbd, --fuse, --ublk and --vhost-user is set")]
    NoFrontend,
    /// Settings of NBD that do not go together.
    #[error(transparent)]
    NbdOptions(#[from] NbdOptionsError),
    /// Nothing has this number.
    #[error("there is no ublk device {number}")]
    NoUblkDevice {
        /// The number.
        number: u32,
    },
    /// What was on the cache-disk is still there.
    #[error("{} is not wiped: {why}", path.display())]
    NotWiped {
        /// The cache-disk.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A signal came while a cache-disk was being wiped.
    #[error("{} is detached, but not wiped to its end: {} are left", path.display(), format_size(*left))]
    WipeCancelled {
        /// The cache-disk.
        path: PathBuf,
        /// Bytes that are not wiped.
        left: u64,
    },
    /// Data may be nowhere else; it was told which.
    #[error("{} may hold data that is nowhere else", count(*caches, "cache"))]
    CachesDirty {
        /// How many.
        caches: u64,
    },
    /// A disk that is not there.
    #[error("{what} {} does not exist", path.display())]
    Missing {
        /// Which.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
    },
    /// A new cache file needs a size.
    #[error("{} does not exist, and without --cache-size it cannot be made", path.display())]
    SizeMissing {
        /// The file.
        path: PathBuf,
    },
    /// A device cannot grow.
    #[error("{} has {} bytes, less than the {} of --cache-size", path.display(), found, asked)]
    DeviceTooSmall {
        /// The device.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// The size asked for.
        asked: u64,
    },
    /// Neither a file nor a block device.
    #[error("{} is neither a file nor a block device", path.display())]
    NotADisk {
        /// What it is.
        path: PathBuf,
    },
    /// The command that was to be recorded cannot be run.
    #[error("cannot run {command}: {source}")]
    NotRun {
        /// Its name.
        command: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It ended badly.
    #[error("{command} ended with {status}; the sequence is not stored")]
    RecordedCommand {
        /// Its name.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// Nothing was read while it ran.
    #[error("nothing was read from this device: {name} would be empty")]
    NothingRead {
        /// The sequence.
        name: String,
    },
    /// The daemon had no room for some requests.
    #[error("{lost} requests were not recorded: there was no room for them")]
    RecordingLost {
        /// So many.
        lost: u64,
    },
    /// No copy page fits into it.
    #[error("--read-area {} is too small", format_size(*found))]
    ReadAreaSmall {
        /// The size asked for.
        found: u64,
    },
    /// No geometry fits.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// There is a cache already.
    #[error("{} already holds cache {uuid}", path.display())]
    CacheExists {
        /// Where.
        path: PathBuf,
        /// Which.
        uuid: Uuid,
    },
    /// There was a cache, or there is one that cannot be read.
    #[error("{} already holds a cache: {problem}", path.display())]
    DamagedCacheExists {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        problem: FormatError,
    },
    /// There is a cache with data that is nowhere else.
    #[error(
        "{} holds cache {uuid} with data that is not on its data-disk yet ({dirty})",
        path.display()
    )]
    CacheDirty {
        /// Where.
        path: PathBuf,
        /// Which.
        uuid: Uuid,
        /// How much.
        dirty: String,
    },
    /// There is something else.
    #[error("{} {content}", path.display())]
    ForeignContent {
        /// Where.
        path: PathBuf,
        /// What is there.
        content: Content,
    },
    /// No room for a label.
    #[error("--label-head {} is no size for the head of a disk", format_size(*found))]
    LabelHead {
        /// What was asked for.
        found: u64,
    },
    /// The payload lies elsewhere.
    #[error(
        "{} has a label of {} already, and --label-head {} was asked for",
        path.display(), format_size(*found), format_size(*asked)
    )]
    OtherLabelHead {
        /// The data-disk.
        path: PathBuf,
        /// Where its payload begins.
        found: u64,
        /// Where it was to begin.
        asked: u64,
    },
    /// The disk is hardly larger than its label.
    #[error(
        "{} has {found} bytes, and its payload would begin at byte {payload_offset_bytes}",
        path.display()
    )]
    NoPayload {
        /// The data-disk.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// Where the payload would begin.
        payload_offset_bytes: u64,
    },
    /// It has a cache that may hold what is newer.
    #[error(
        "{} is the data-disk of cache {uuid}, as its label says, which may hold data that is not on it yet",
        path.display()
    )]
    LabelDirty {
        /// The data-disk.
        path: PathBuf,
        /// Its cache.
        uuid: Uuid,
    },
    /// Neither copy of a label can be read.
    #[error("{} has the label of a cache, which cannot be read: {problem}", path.display())]
    LabelDamaged {
        /// The disk.
        path: PathBuf,
        /// What is wrong.
        problem: FormatError,
    },
    /// It was not said that the disk has a label.
    #[error(
        "{} begins with the label of cache {uuid}{}",
        path.display(),
        if *is_dirty { ", which may hold data that is not on it yet" } else { "" }
    )]
    IsLabelled {
        /// The data-disk.
        path: PathBuf,
        /// Its cache.
        uuid: Uuid,
        /// That may hold what is newer.
        is_dirty: bool,
    },
    /// There is no label to show.
    #[error("{} has no label: {problem}", path.display())]
    NoLabel {
        /// The disk.
        path: PathBuf,
        /// What is there.
        problem: FormatError,
    },
    /// The host remembers something of these disks.
    #[error(transparent)]
    Pair(#[from] PairProblem),
    /// The file system of the cache-disk is too full for it.
    #[error(
        "there is no room for the cache in {}: it needs {}, and {} are free",
        path.display(), format_size(*needed), format_size(*free)
    )]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that there are.
        free: u64,
    },
    /// A signal came before a cache was made.
    #[error("stopped before the cache was made")]
    CreateCancelled,
    /// There is no cache.
    #[error("{} is not a dcd cache: {problem}", path.display())]
    NotACache {
        /// Where.
        path: PathBuf,
        /// Why not.
        problem: FormatError,
    },
    /// What is dirty cannot be told.
    #[error("no checkpoint on {} can be read, so what is dirty is not known: {problem}", path.display())]
    NoCheckpoint {
        /// Where.
        path: PathBuf,
        /// What is wrong with the first.
        problem: FormatError,
    },
    /// `inspect segment` beyond the end.
    #[error("there is no segment {index}: the cache has {segments}")]
    NoSuchSegment {
        /// The one asked for.
        index: u32,
        /// How many there are.
        segments: u32,
    },
    /// `check` found damage, and has told about it.
    #[error("found {} on {}", count(*problems, "problem"), path.display())]
    Damage {
        /// Where.
        path: PathBuf,
        /// How many.
        problems: u64,
    },
    /// `salvage` found less than all, and has told about it.
    #[error("{} on {} may be older than what was lost, {} cannot be had", format_size(*uncertain_bytes), path.display(), format_size(*lost_bytes))]
    SalvageIncomplete {
        /// Where.
        path: PathBuf,
        /// What was found and may be old.
        uncertain_bytes: u64,
        /// What was not.
        lost_bytes: u64,
    },
    /// The blocks of a volume lie on several disks.
    #[error(
        "the cache belongs to a volume of several disks, on which its blocks have no fixed place"
    )]
    SalvageOfVolume,
    /// Not the data-disk of that cache.
    #[error("{} has {found} bytes, the data-disk of this cache {expected}", path.display())]
    SalvageDiskSize {
        /// Which disk.
        path: PathBuf,
        /// Its size.
        expected: u64,
        /// The size found.
        found: u64,
    },
    /// A slot that could be read a moment ago.
    #[error("the cache-disk cannot be read any more: {error}")]
    SalvageRead {
        /// Why.
        error: crate::image::ImageError,
    },
    /// A rebuild or scrub has come to its end, and not everything is there.
    #[error("{} of the volume lost: reads of them fail until they are written", count(*lines, "line"))]
    LinesLost {
        /// Lines of 4 KiB.
        lines: u64,
    },
    /// A file system on a volume.
    #[error(transparent)]
    Dhisfs(#[from] dhisfs::FsError),
    /// It cannot be mounted.
    #[error(transparent)]
    DhisfsMount(#[from] dhisfs::fuse::FuseError),
    /// Hints by name that make no sense.
    #[error(transparent)]
    DhisfsRules(#[from] dhisfs::RulesError),
    /// `dhisfs fsck` found damage, and has told about it.
    #[error("found {} in the file system", count(*problems, "problem"))]
    DhisfsDamage {
        /// How many.
        problems: u64,
    },
    /// `dhisfs fsck --repair` found damage, and nothing is left of it.
    #[error("mended {} in the file system", count(*mended, "problem"))]
    DhisfsMended {
        /// How many.
        mended: u64,
    },
    /// `dhisfs fsck` cannot look at the file system.
    #[error("{0}")]
    DhisfsFsck(dhisfs::FsError),
    /// A disk cannot be opened, or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Serving failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Somebody used the disk.
    #[error("stopped in order while the disk was in use")]
    StoppedUnderUsers,
    /// A second signal wanted no end in order.
    #[error("stopped at once, like a crash")]
    Aborted,
    /// Blocks are lost; they have been listed.
    #[error("{error}")]
    Lost {
        /// What could not be done, and why.
        error: String,
        /// What to do.
        hint: Option<String>,
    },
    /// A signal came before the end of a detach.
    #[error(
        "the detach was cancelled: {} moved, {} stay in the cache",
        format_size(*moved),
        format_size(*left)
    )]
    DetachCancelled {
        /// Bytes that are on the data-disk now.
        moved: u64,
        /// Bytes that are not.
        left: u64,
    },
    /// A signal came before the end of a grow.
    #[error("growing was cancelled")]
    GrowCancelled,
    /// A signal came before the cache was open.
    #[error("cancelled while the cache was being opened; nothing was moved")]
    CancelledWhileOpening,
    /// Files cannot be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// Some of several were told of before.
    #[error("{failed} of {} could not be looked at or told of", count(*of as u64, "path"))]
    SomePaths {
        /// How many.
        failed: usize,
        /// Of how many.
        of: usize,
    },
    /// Neither a file nor a directory.
    #[error("{} is neither a file nor a directory", path.display())]
    NotAFile {
        /// What it is.
        path: PathBuf,
    },
    /// Nothing to look at was named.
    #[error("there is a word missing: what is to be inspected?")]
    InspectNothing,
    /// The control socket.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The reader of stdout went away.
    #[error("the reader closed the pipe")]
    ReaderClosed,
    /// Stdout cannot be written to.
    #[error("cannot write the output: {source}")]
    Output {
        /// Why.
        source: std::io::Error,
    },
    /// An operation on a file failed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {source}")]
    Random {
        /// Why.
        source: std::io::Error,
    },
    /// There is nothing to watch.
    #[error("no control sockets in {}", directory.display())]
    NoDaemons {
        /// Where services have their control sockets.
        directory: PathBuf,
    },
    /// No running dcd is meant by that.
    #[error(
        "{} is no control socket, and no dcd with one in {} has that name or serves that",
        named.display(), directory.display()
    )]
    NoSuchDaemon {
        /// What was given.
        named: PathBuf,
        /// Where services have their control sockets.
        directory: PathBuf,
    },
    /// A flag that has no meaning without another.
    #[error("{flag} is only for {needs}")]
    FlagNeeds {
        /// The flag.
        flag: &'static str,
        /// What it needs.
        needs: &'static str,
    },
    /// Of the laboratory.
    #[cfg(feature = "lab")]
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl CommandError {
    /// For `map_err`: `action` on `path` failed.
    pub fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> CommandError {
        let path = path.to_owned();
        move |source| CommandError::File { action, path, source }
    }

    /// What the process ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            CommandError::ReaderClosed => exit_code::READER_CLOSED,
            CommandError::Damage { .. }
            | CommandError::LinesLost { .. }
            | CommandError::DhisfsDamage { .. }
            | CommandError::SalvageIncomplete { .. }
            | CommandError::Lost { .. }
            | CommandError::Control(ControlError::Lost { .. })
            | CommandError::Serve(ServeError::NotDetached { .. }) => exit_code::DAMAGE,
            CommandError::Control(ControlError::Stuck { .. })
            | CommandError::Serve(ServeError::Stuck { .. }) => exit_code::STUCK,
            CommandError::DhisfsMended { .. } => exit_code::MENDED,
            CommandError::DhisfsFsck(_) => exit_code::CANNOT_CHECK,
            CommandError::Dhisfs(error)
            | CommandError::DhisfsMount(FuseError::FileSystem(error)) => exit_code_of_dhisfs(error),
            CommandError::Device(DeviceError::Io { source, .. }) if is_device_failure(source) => {
                exit_code::DEVICE
            }
            CommandError::Serve(error) if is_device_failure_of_serve(error) => exit_code::DEVICE,
            CommandError::Control(
                ControlError::Connect { .. }
                | ControlError::Broken { .. }
                | ControlError::Silent { .. }
                | ControlError::Stranger { .. },
            ) => exit_code::NO_DAEMON,
            CommandError::Control(ControlError::Cancelled { .. } | ControlError::Left { .. })
            | CommandError::CreateCancelled
            | CommandError::DetachCancelled { .. }
            | CommandError::WipeCancelled { .. }
            | CommandError::GrowCancelled
            | CommandError::CancelledWhileOpening => exit_code::CANCELLED,
            CommandError::File { source, .. } if is_device_failure(source) => exit_code::DEVICE,
            #[cfg(feature = "lab")]
            CommandError::Lab(error) => error.exit_code(),
            _ => exit_code::USER,
        }
    }

    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            CommandError::ConfigFile(error) => error.hint(),
            CommandError::VolumeFile(error) => error.hint(),
            CommandError::TableFile(error) => error.hint(),
            CommandError::FileBlocks(error) => Some(error.hint()),
            CommandError::Watch(error) => error.hint(),
            CommandError::NoVolume { problem: None, .. } => {
                Some("it belongs to one data-disk: `dcd inspect superblock` shows it".into())
            }
            CommandError::NoVolume { .. } => {
                Some("copy the cache-disk before anything else is done with it".into())
            }
            CommandError::VolumeMissing { .. } => {
                Some("for example --volume raid.toml with two lines: [[set]] and level = 5; docs/volume.md".into())
            }
            CommandError::VolumeTables { .. } => Some(
                "give a larger --cache-size, or the volume a larger `extent` or a smaller `journal`".into(),
            ),
            CommandError::NoStaticMetadata { .. } => {
                Some("it is known of ext2, ext3, ext4 and XFS; give their device or a directory on them".into())
            }
            CommandError::InspectNothing => {
                Some("`dcd inspect --help` lists it; or give --file PATH --control SOCKET".into())
            }
            CommandError::Serve(error) => error.hint(),
            CommandError::Device(error) => error.hint(),
            CommandError::SettingMissing(flag) => {
                let key = flag.trim_start_matches("--");
                Some(format!("give {flag}, or set `{key}` in the file of --config"))
            }
            CommandError::SetTwice { .. } => Some("leave one of them out".into()),
            CommandError::ModelOfSlowed => {
                Some("give --disk a path, or --disk model:PROFILE:FILE without --model".into())
            }
            CommandError::NoFrontend => Some("for example --nbd unix:disk.sock".into()),
            CommandError::NbdOptions(error) => error.hint(),
            CommandError::NoUblkDevice { .. } => Some("`dcd ublk list` shows those there are".into()),
            CommandError::Missing { what: "the cache-disk", .. } => {
                Some("`dcd create` makes a cache".into())
            }
            CommandError::Missing { path, .. } => Some(missing_hint(path)),
            CommandError::NotADisk { .. } => Some("give a disk image or a block device".into()),
            CommandError::LoopWithoutFuse => Some("add --fuse DIRECTORY".into()),
            CommandError::Setting(_) => {
                Some("`dcd serve --help` tells what each setting takes".into())
            }
            CommandError::File { source, .. } => file_hint(source),
            CommandError::SizeMissing { .. } => Some("for example --cache-size 256M".into()),
            CommandError::DeviceTooSmall { .. } => {
                Some("without --cache-size all of the device is used".into())
            }
            CommandError::NotRun { .. } => Some("give the program behind --, with its path".into()),
            CommandError::RecordedCommand { .. } => {
                Some("a start that fails reads other blocks; run it alone to see why".into())
            }
            CommandError::NothingRead { .. } => Some(
                "is the program on this device, or was it in memory already? --drop-caches empties that"
                    .into(),
            ),
            CommandError::RecordingLost { .. } => Some("record while less else is going on".into()),
            CommandError::ReadAreaSmall { .. } => {
                Some("at least 1M; 256M hold the start of a system and some programs".into())
            }
            CommandError::Geometry(error) => geometry_hint(error),
            CommandError::CacheExists { .. } => {
                Some("`dcd detach` parts it from its data-disk; --force overwrites it as it is".into())
            }
            CommandError::DamagedCacheExists { .. } => {
                Some("`dcd check` tells what is left of it; --force overwrites it".into())
            }
            CommandError::CacheDirty { uuid, .. } => Some(format!(
                "`dcd detach` brings the data home, `dcd inspect dirty` lists it; to give it up: \
                 --force --uuid {uuid}"
            )),
            CommandError::ForeignContent { .. } => {
                Some("check the name; if it may be overwritten, say --force".into())
            }
            CommandError::LabelHead { .. } => {
                Some("give 128k to 1G, a multiple of 4k; 1M is usual".into())
            }
            CommandError::OtherLabelHead { .. } => Some(
                "leave --label-head out: what the disk holds stays where it is".into(),
            ),
            CommandError::NoPayload { .. } => Some("take a larger disk".into()),
            CommandError::LabelDirty { .. } => Some(
                "detach that cache first; --force takes the disk with what it holds, and gives up what its cache holds"
                    .into(),
            ),
            CommandError::LabelDamaged { .. } => Some(
                "copy its first MiB away before anything else; --force makes a new label, and keeps what is behind it if \
                 --label-head is what it was"
                    .into(),
            ),
            CommandError::IsLabelled { is_dirty: true, .. } => Some(
                "detach that cache first; then --labelled takes the disk with what it holds".into(),
            ),
            CommandError::IsLabelled { .. } => Some(
                "--labelled takes the disk with what it holds; --force makes a volume of all of it, label included".into(),
            ),
            CommandError::NoLabel { .. } => Some(
                "a data-disk has one if its cache was made with --labelled; `dcd inspect superblock` tells whether".into(),
            ),
            CommandError::Pair(problem) => Some(problem.hint("--force")),
            CommandError::NoRoom { free, .. } => Some(format!(
                "give it less with --cache-size (at most {} here), or another place",
                format_size(free >> 20 << 20)
            )),
            CommandError::CreateCancelled => {
                Some("nothing is left of it; run it again".into())
            }
            CommandError::NotACache { problem, .. } => match problem {
                FormatError::Magic { .. } | FormatError::Short { .. } => {
                    Some("are cache-disk and data-disk swapped? `dcd create` makes a cache".into())
                }
                FormatError::Version { .. } | FormatError::Features { .. } => {
                    Some("use the dcd that made it, or a newer one".into())
                }
                _ => Some("`dcd check` tells what is left of it".into()),
            },
            CommandError::NoCheckpoint { .. } => {
                Some("copy the disk first; `dcd check` tells what is left of it".into())
            }
            CommandError::Dhisfs(error) => error.hint(),
            CommandError::DhisfsMount(error) => error.hint(),
            CommandError::DhisfsRules(error) => Some(error.hint()),
            CommandError::DhisfsFsck(error) => error.hint(),
            CommandError::SalvageIncomplete { uncertain_bytes: 1.., .. } => Some(
                "the list tells where; compare with what the data-disk has there before you add --take-uncertain".into(),
            ),
            CommandError::SalvageOfVolume => Some("--to FILE puts them where the volume has them".into()),
            CommandError::SalvageDiskSize { .. } => {
                Some("is it the right disk? --to FILE needs none".into())
            }
            CommandError::Damage { .. } => Some(
                "copy both disks before anything else; `dcd salvage` tells what can be had".into(),
            ),
            CommandError::DhisfsDamage { .. } => Some(
                "`dcd dhisfs fsck --repair` mends what it can; copy what is worth more before".into(),
            ),
            CommandError::LinesLost { .. } => Some(
                "bring back what was there from a copy: what is written is not lost any more".into(),
            ),
            CommandError::DhisfsMended { .. } => {
                Some("files that had lost their names are in lost+found".into())
            }
            CommandError::FlagNeeds { flag, needs } => {
                Some(format!("leave {flag} out, or add {needs}"))
            }
            CommandError::NoDaemons { .. } => {
                Some("no service runs; give the --control socket of a dcd that you have started by hand".into())
            }
            CommandError::NoSuchDaemon { .. } => {
                Some("give the socket of --control; is the daemon running?".into())
            }
            CommandError::Control(error) => error.hint(),
            #[cfg(feature = "lab")]
            CommandError::Lab(error) => error.hint(),
            CommandError::GrowCancelled => {
                Some("nothing is lost, and the old size or the new one counts; begin again".into())
            }
            CommandError::NotWiped { .. } => {
                Some("detach it first: `dcd check` says whether it is".into())
            }
            CommandError::WipeCancelled { .. } => {
                Some("the same again, with --cache-disk and --data-disk, begins anew".into())
            }
            CommandError::DetachCancelled { .. } | CommandError::CancelledWhileOpening => {
                Some("the pair is one as before: serve it, or detach again".into())
            }
            CommandError::Lost { hint, .. } => hint.clone(),
            CommandError::StoppedUnderUsers => Some(
                "what was acknowledged is in the cache: serve it again. A file system that was mounted needs to be unmounted, \
                 checked and mounted anew: what it had not written yet is lost"
                    .into(),
            ),
            CommandError::Aborted => Some("the next `dcd serve` recovers it".into()),
            _ => None,
        }
    }

    /// Tells it on stderr. Nothing is said of a reader that went away, nor of a stderr that did.
    pub fn report(&self) {
        if matches!(self, CommandError::ReaderClosed) {
            return;
        }
        let paint = Paint::for_stderr();
        report_line("error", Colour::Bad, &self.to_string(), paint);
        if let Some(hint) = self.hint() {
            report_line("hint", Colour::Warning, &hint, paint);
        }
    }
}

/// Tells of a bad command line in the same form: clap would take several lines.
pub fn report_command_line(error: &clap::Error) {
    let paint = Paint::for_stderr();
    let (text, hint) = command_line_words(error);
    report_line("error", Colour::Bad, &text, paint);
    report_line("hint", Colour::Warning, &hint, paint);
}

const HELP_HINT: &str = "`dcd --help` lists what can be done";

#[cfg(feature = "lab")]
fn lab_hint_of(error: &clap::Error, _: &str) -> Option<String> {
    error.source().and_then(lab_hint)
}

#[cfg(not(feature = "lab"))]
fn lab_hint_of(_: &clap::Error, wrong: &str) -> Option<String> {
    crate::laboratory::hint(wrong)
}

fn source_of<E: std::error::Error + 'static>(error: &clap::Error) -> Option<&E> {
    error.source()?.downcast_ref()
}

/// What is wrong with a command line, and what to do.
fn command_line_words(error: &clap::Error) -> (String, String) {
    let text = error.render().to_string();
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let text = "there is a word missing: what is to be done?";
        return (text.into(), HELP_HINT.into());
    }
    // A blank line ends what is wrong; "tip: " begins what may help; "Usage: " the rest.
    let wrong = text.split("\n\n").next().unwrap_or(&text);
    let wrong: Vec<&str> = wrong.lines().map(str::trim).collect();
    let wrong = wrong.join(" ");
    let wrong = wrong.strip_prefix("error: ").unwrap_or(&wrong).to_owned();
    let units = source_of::<UnitError>(error);
    let devices = source_of::<DeviceSpecError>(error);
    let listen = source_of::<ListenError>(error);
    let is_number = |text: &str| text.starts_with(|character: char| character.is_ascii_digit());
    if wrong.strip_prefix("unexpected argument '-").is_some_and(is_number) {
        return (wrong, "no number is negative here".into());
    }
    let units_hint = "sizes are written like 4k, 16M, 1G, times like 50us, 8ms, 1s";
    let hint = units
        .map(|units| units.hint().unwrap_or_else(|| units_hint.into()))
        .or(devices.map(DeviceSpecError::hint))
        .or(listen.and_then(ListenError::hint))
        .or_else(|| lab_hint_of(error, &wrong))
        .or_else(|| text.lines().find_map(|line| Some(line.trim().strip_prefix("tip: ")?.into())))
        .or_else(|| {
            let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "))?;
            Some(if usage == "dcd <COMMAND>" {
                HELP_HINT.into()
            } else {
                format!("usage: {usage}")
            })
        })
        .unwrap_or_else(|| HELP_HINT.into());
    (wrong, hint)
}

/// One line on stderr, whatever line ends and commands for terminals a path or an error may
/// contain.
pub fn report_line(kind: &str, colour: Colour, text: &str, paint: Paint) {
    use std::io::Write;
    let text = plain(text);
    let _ = writeln!(std::io::stderr(), "dcd: {}: {text}", paint.paint(colour, kind));
}

/// What to do when the system refuses something with a file.
fn file_hint(error: &std::io::Error) -> Option<String> {
    use std::io::ErrorKind;
    let hint = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            "the directory must exist; check the name"
        }
        ErrorKind::AlreadyExists => "nothing is overwritten: choose another name, or remove it",
        ErrorKind::PermissionDenied => "run as root, or give your user the right",
        ErrorKind::ReadOnlyFilesystem => "its file system is mounted read-only",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "make room (df), or choose a smaller size or another place"
        }
        _ if is_device_failure(error) => {
            "the disk has errors (see dmesg); copy it before trying again"
        }
        _ => return None,
    };
    Some(hint.into())
}

/// Whether the disk is at fault rather than the user.
fn is_device_failure(error: &std::io::Error) -> bool {
    const EIO: i32 = 5;
    const ENXIO: i32 = 6;
    const ENODEV: i32 = 19;
    matches!(error.raw_os_error(), Some(EIO | ENXIO | ENODEV))
}

fn exit_code_of_dhisfs(error: &dhisfs::FsError) -> u8 {
    use dcd_client::DeviceError::{Broken, Connect, Io, Silent, Stranger};
    match error {
        dhisfs::FsError::Damaged { .. } => exit_code::DAMAGE,
        dhisfs::FsError::Device(
            Connect { .. } | Broken { .. } | Silent { .. } | Stranger { .. },
        ) => exit_code::NO_DAEMON,
        dhisfs::FsError::Device(Io { .. }) => exit_code::DEVICE,
        _ => exit_code::USER,
    }
}

fn is_device_failure_of_serve(error: &ServeError) -> bool {
    match error {
        ServeError::Device { source: DeviceError::Io { source, .. }, .. } => {
            is_device_failure(source)
        }
        ServeError::Open(OpenError::Io { .. }) => true,
        ServeError::Open(OpenError::Checkpoint { first, second }) => {
            let unreadable = |error: &FormatError| matches!(error, FormatError::Unreadable { .. });
            unreadable(first) || unreadable(second)
        }
        ServeError::Stop { source: RequestError::Io, .. } => true,
        _ => false,
    }
}

fn geometry_hint(error: &GeometryError) -> Option<String> {
    match error {
        GeometryError::TooSmall { segment_size, needed, copy_pages, .. } => {
            let needed = format_size(needed.next_multiple_of(1 << 20));
            if *segment_size == SEGMENT_SIZE_BYTES_MIN {
                return Some(format!("give it {needed}, for example with --cache-size"));
            }
            let least = cache_size_min(SEGMENT_SIZE_BYTES_MIN, *copy_pages);
            let least = format_size(least.next_multiple_of(1 << 20));
            Some(format!("give it {needed}, or with --segment-size 64k at least {least}"))
        }
        GeometryError::TooLarge { most, .. } => {
            Some(format!("--cache-size {} is the largest", format_size(*most)))
        }
        GeometryError::SegmentSize { .. } => Some("for example --segment-size 1M".into()),
    }
}

/// The least that a cache with such segments needs.
fn cache_size_min(segment_size: u64, copy_pages: u32) -> u64 {
    match Geometry::fit_with_copies(SEGMENTS_MIN * segment_size, segment_size, copy_pages) {
        Err(GeometryError::TooSmall { needed, .. }) => needed,
        _ => SEGMENTS_MIN * segment_size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_small_a_cache_is_told_how_large_it_must_be() {
        let error = CommandError::from(Geometry::fit(1 << 20, 1 << 20).unwrap_err());
        let hint = error.hint().unwrap();
        assert!(hint.contains("at least 2"), "{hint}");
        let needed = cache_size_min(SEGMENT_SIZE_BYTES_MIN, 0);
        assert!(Geometry::fit(needed, SEGMENT_SIZE_BYTES_MIN).is_ok());
        assert!(Geometry::fit(needed - 4096, SEGMENT_SIZE_BYTES_MIN).is_err());
    }

    #[test]
    fn bad_command_lines_take_one_line_and_a_hint() {
        use clap::Parser;
        let words = |line: &str| {
            let error = crate::cli::Cli::try_parse_from(line.split(' ')).unwrap_err();
            command_line_words(&error)
        };
        let (text, hint) = words("dcd create --cache-disk c --cache-size 5q --data-disk d");
        assert!(text.contains("'5q'") && text.contains("--cache-size"), "{text}");
        assert!(!text.contains('\n') && !hint.is_empty());
        let (_, hint) = words("dcd serve --max-delay 5");
        assert_eq!(hint, "a duration needs a unit: 5ms or 5s");
        let (text, hint) = words("dcd create --cache-dsk c");
        assert!(text.contains("--cache-dsk") && hint.contains("--cache-disk"), "{text} {hint}");
        let (text, hint) = words("dcd create --cache-disk c");
        assert!(
            text.contains("--data-disk") && hint.starts_with("usage: dcd create"),
            "{text} {hint}"
        );
        assert!(words("dcd").1.contains("--help"));
        let (text, hint) = words("dcd advise t --disk d --endurance-tbw -1");
        assert!(text.contains("'-1'") && hint.contains("negative"), "{text} {hint}");
        assert!(words("dcd trace generate zipf,theta=0 t").1.contains("workloads.md"));
        assert!(words("dcd trace summary t --format hp").1.contains("srt-256"));
    }

    #[test]
    fn exit_codes_are_those_of_the_help_text() {
        assert_eq!(CommandError::ReaderClosed.exit_code(), 3);
        assert_eq!(CommandError::Damage { path: "x".into(), problems: 1 }.exit_code(), 4);
        let file = |code| {
            let source = std::io::Error::from_raw_os_error(code);
            CommandError::file("read", Path::new("x"))(source).exit_code()
        };
        assert_eq!((file(5), file(2)), (5, 1));
        assert_eq!(CommandError::NoFrontend.exit_code(), 1);
    }
}
