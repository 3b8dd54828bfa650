//! What can go wrong in the command: kinds to tell apart, the exit code of each, and a hint where
//! there is a next step.
//!
//! One line says what is wrong (`dcd: error: ...`), one more what to do (`dcd: hint: ...`).

#[cfg(feature = "lab")]
pub mod demo;
pub mod file_blocks;
mod hint;
pub mod image;
#[cfg(feature = "lab")]
pub mod lab;
mod report;

use std::path::{Path, PathBuf};

use dcd_daemon::control::client::ControlError;
use dcd_daemon::device::device_file::DeviceError;
use dcd_daemon::device::file_watch::WatchError;
use dcd_daemon::device::foreign_content::Content;
use dcd_daemon::http::token::TokenError;
use dcd_daemon::pair::book::PairProblem;
use dcd_daemon::pair::members::MemberError;
use dcd_daemon::report::lost::LostReport;
use dcd_daemon::serve::ServeError;
use dcd_daemon::units_text::format_size;
use dcd_engine::format::geometry::GeometryError;
use dcd_engine::volume::import::ImportError;
use dcd_engine::{FormatError, OpenError, RequestError, Uuid};
use dcd_protocol::Code;
use dhisfs::fuse::FuseError;

use crate::config_file::ConfigFileError;
use crate::nvram_settings::NvramSettingsError;
use crate::output::count;
use crate::settings::NbdOptionsError;
use crate::static_metadata::MetadataError;
use dcd_files::toml_values::TableFileError;
use dcd_files::volume_file::VolumeFileError;

use self::file_blocks::FileBlocksError;
#[cfg(feature = "lab")]
use self::lab::LabError;
pub use report::{know_command_line, report_command_line, report_line};

/// Documented in `dcd --help`.
pub mod exit_code {
    /// A wrong setting, or something refused.
    pub const USER: u8 = 1;
    /// A bad command line.
    pub const COMMAND_LINE: u8 = 2;
    /// The reader of stdout went away.
    pub const READER_CLOSED: u8 = 3;
    /// A `check` found damage; `drain` or `detach` could not bring home what is damaged.
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
    /// A disk is no leg of a cache-disk on several.
    #[error("{} is no leg of a cache-disk on several disks: {problem}", path.display())]
    NoLeg {
        /// The disk.
        path: PathBuf,
        /// What is wrong.
        problem: FormatError,
    },
    /// A leg is not among those of the cache-disk.
    #[error("leg {leg} is not there")]
    LegGone {
        /// Which.
        leg: Uuid,
    },
    /// A share is given back that is not the one that was meant.
    #[error("{} is not leg {leg} any more", path.display())]
    ShareOfAnotherLeg {
        /// The share.
        path: PathBuf,
        /// The leg that it was.
        leg: Uuid,
    },
    /// There is no witness to be done without.
    #[error("the legs have no witness that is there")]
    NoWitness,
    /// A leg could not be filled.
    #[error("leg {leg} ({disk}) is not filled: {why}")]
    LegFailed {
        /// Which.
        leg: Uuid,
        /// Its disk.
        disk: String,
        /// Why.
        why: String,
    },
    /// An object store, in the words of whoever has it open.
    #[cfg(feature = "s3")]
    #[error("{0}")]
    Store(dcd_daemon::device::network::StoreFailure),
    /// Something in an object store is not as it was written.
    #[cfg(feature = "s3")]
    #[error("{store}: {}: {}", count(problems.len() as u64, "problem"), problems.join("; "))]
    StoreDamage {
        /// Its name.
        store: String,
        /// What is wrong.
        problems: Vec<String>,
    },
    /// What an object store alone can do.
    #[error("--size, --take-over and --lease are for a data-disk in an object store")]
    OnlyForStores,
    /// No cache can be made for a store that is taken over.
    #[error("{source}")]
    TakeOver {
        /// Why not.
        source: Box<CommandError>,
        /// Where.
        cache_disk: PathBuf,
        /// Which store.
        store: String,
    },
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
    /// A disk that is to be a member of a volume is none.
    #[error("{} is no member of a volume: {problem}", path.display())]
    NotAMember {
        /// Which.
        path: PathBuf,
        /// What is wrong with its label.
        problem: FormatError,
    },
    /// A member does not fit.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A volume cannot be imported.
    #[error(
        "cannot import the volume: {}{problem}",
        disk.as_ref().map_or(String::new(), |disk| format!("{}: ", disk.display()))
    )]
    Import {
        /// The disk of the member that does not fit.
        disk: Option<PathBuf>,
        /// What is wrong.
        problem: ImportError,
    },
    /// Its own cache-disk is there.
    #[error("the cache-disk of this volume, {}, is there, and may hold what the members have not", place.display())]
    CacheDiskThere {
        /// Where.
        place: PathBuf,
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
    /// A word that sets nothing.
    #[error("expected a setting and its value, like max-delay=20ms, found {}", word.escape_debug())]
    NoPair {
        /// The word.
        word: String,
    },
    /// No record is of it.
    #[error("no record of this host is of cache {cache}")]
    NotRecorded {
        /// Which.
        cache: Uuid,
    },
    /// It is to be forgotten, and somebody has it.
    #[error("cache {cache} is not forgotten: process {process} serves it")]
    ForgetServed {
        /// Which.
        cache: Uuid,
        /// Whose it is.
        process: u32,
    },
    /// It is to be forgotten, and is there.
    #[error("cache {cache} is not forgotten: it is on {cache_disk}, and not detached")]
    ForgetPresent {
        /// Which.
        cache: Uuid,
        /// Where.
        cache_disk: String,
        /// Whose it is.
        data_disk: String,
    },
    /// It is to be forgotten, and something is there that cannot be read.
    #[error(
        "cache {cache} is not forgotten: what is on {cache_disk} cannot be read, and may be it"
    )]
    ForgetUnread {
        /// Which.
        cache: Uuid,
        /// Where.
        cache_disk: String,
    },
    /// Nothing says which cache.
    #[error("there is a word missing: which cache?")]
    NoCacheNamed,
    /// A mode that was set and is not reached.
    #[error("the mode stays {mode}: {why}")]
    ModeGivenUp {
        /// What it is.
        mode: String,
        /// What stood in the way.
        why: String,
        /// No other mode is reached before a restart.
        is_failed: bool,
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
    /// The file of `--http-token` holds none.
    #[error(transparent)]
    Token(#[from] TokenError),
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
    /// Caches share the disk.
    #[error("{} is shared by caches: {}", path.display(), names.join(", "))]
    SharesExist {
        /// The disk.
        path: PathBuf,
        /// Names of the shares.
        names: Vec<String>,
    },
    /// A share of no size.
    #[error("{} names a share of a cache-disk, and there is no --share", path.display())]
    IsAShare {
        /// The share.
        path: PathBuf,
    },
    /// The size of a disk that has its size.
    #[error("{} is shared already, with a size of {}, and --cache-size asks for another", path.display(), format_size(*found))]
    SharedSize {
        /// The disk.
        path: PathBuf,
        /// Bytes that it is shared with.
        found: u64,
    },
    /// A disk that has no room for what is asked for.
    #[error(
        "{} has {}: a directory and a share of that size need {}",
        path.display(), format_size(*found), format_size(*least)
    )]
    DiskOfSharesSmall {
        /// The disk.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// What it would need.
        least: u64,
    },
    /// A second cache for a disk.
    #[error("{} has a share already: {}", data_disk.display(), path.display())]
    HasShare {
        /// The share.
        path: PathBuf,
        /// The data-disk.
        data_disk: PathBuf,
    },
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
    /// There is no memory of dcd.
    #[error("{} is no memory of dcd: {problem}", path.display())]
    NoNvram {
        /// Where.
        path: PathBuf,
        /// What is wrong.
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
    #[error(
        "{} on {} may be older than what was lost or is on the data-disk, {} cannot be had{}",
        format_size(*uncertain_bytes),
        path.display(),
        format_size(*lost_bytes),
        if *has_unlisted { ", and more may be lost than can be listed" } else { "" }
    )]
    SalvageIncomplete {
        /// Where.
        path: PathBuf,
        /// What was found and may be old.
        uncertain_bytes: u64,
        /// What was not.
        lost_bytes: u64,
        /// No checkpoint, or no end, tells of all that there was.
        has_unlisted: bool,
    },
    /// Somebody writes to what is to be read.
    #[error(
        "{} is not salvaged: {} has it, and what is on it changes while it is read", path.display(),
        process.map_or("a running dcd".into(), |process| format!("process {process}"))
    )]
    SalvageServed {
        /// The cache-disk.
        path: PathBuf,
        /// Whose it is.
        process: Option<u32>,
    },
    /// The blocks of a volume lie on several disks.
    #[error(
        "the cache belongs to a volume of several disks, on which its blocks have no fixed place"
    )]
    SalvageOfVolume,
    /// What is salvaged does not go to an object store.
    #[error(
        "nothing is salvaged to the store {store}, {why}: a store takes only windows of the cache that has it"
    )]
    SalvageToStore {
        /// Its name.
        store: String,
        /// Whose it is.
        why: String,
    },
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
        error: image::ImageError,
    },
    /// A growth of a volume was cancelled, or could not go on.
    #[error("the volume has not grown: {}", dcd_client::plain::plain(because))]
    NotGrown {
        /// In words.
        because: String,
    },
    /// A rebuild, scrub or replacement was cancelled, or could not go on.
    #[error("the {} has not come to its end{}", dcd_client::plain::plain(kind), match (lines_unreadable, because) {
        (0, Some(because)) => format!(": {}", dcd_client::plain::plain(because)),
        (0, None) => String::new(),
        (lines, _) => format!(": {} can be read from nobody", count(*lines, "line")),
    })]
    WorkCutShort {
        /// Which of them.
        kind: String,
        /// Why, if that is known.
        because: Option<String>,
        /// Lines of 4 KiB.
        lines_unreadable: u64,
    },
    /// A disk was to become a spare.
    #[error("{disk} is no spare: it has not taken its label")]
    SpareNotLabelled {
        /// Which.
        disk: String,
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
    /// Blocks are lost; they have been listed, with `--json` here alone.
    #[error("{error}")]
    Lost {
        /// What could not be done, and why.
        error: String,
        /// What to do.
        hint: Option<String>,
        /// Which.
        lost: LostReport,
    },
    /// Two kinds of text for stdout.
    #[error("--json and a --lost-list on standard output do not go together")]
    ListInJson,
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
    #[error("no control sockets (NAME.ctl) in {}", directory.display())]
    NoDaemons {
        /// Where services have their control sockets.
        directory: PathBuf,
    },
    /// No running dcd is meant by that.
    #[error(
        "{} is no control socket, and no dcd with one (NAME.ctl) in {} has that name or serves that",
        named.display(), directory.display()
    )]
    NoSuchDaemon {
        /// What was given.
        named: PathBuf,
        /// Where services have their control sockets.
        directory: PathBuf,
    },
    /// Settings of the memory in front of the log that do not go together.
    #[error(transparent)]
    NvramSettings(#[from] NvramSettingsError),
    /// A flag that has no meaning without another.
    #[error("{flag} is only for {needs}")]
    FlagNeeds {
        /// The flag.
        flag: &'static str,
        /// What it needs.
        needs: &'static str,
    },
    /// What only one cache can have, beside several.
    #[error("{what} is for one cache, and there are {files} files of --config")]
    OfOneCache {
        /// The flag, or what else it is.
        what: &'static str,
        /// How many.
        files: usize,
    },
    /// What is wrong with one of several caches.
    #[error("{}: {error}", file.display())]
    OfCache {
        /// Its configuration file.
        file: PathBuf,
        /// What is wrong.
        error: Box<CommandError>,
    },
    /// Two caches want the same.
    #[error("{what} is in two files of --config: {} and {}", first.display(), second.display())]
    InTwoCaches {
        /// What.
        what: String,
        /// A configuration file.
        first: PathBuf,
        /// Another.
        second: PathBuf,
    },
    /// Some of several caches have failed, and the others have ended in order.
    #[error("{} of {of} caches did not end in order: {}", failed.len(), failed.join(", "))]
    CachesFailed {
        /// Which, and how.
        failed: Vec<String>,
        /// Of how many.
        of: usize,
        /// What the first ended with.
        code: u8,
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
            #[cfg(feature = "s3")]
            CommandError::StoreDamage { .. } => exit_code::DAMAGE,
            CommandError::ModeGivenUp { .. }
            | CommandError::Control(ControlError::Stuck { .. })
            | CommandError::Serve(ServeError::Stuck { .. }) => exit_code::STUCK,
            CommandError::NoPair { .. } | CommandError::NoCacheNamed => exit_code::COMMAND_LINE,
            CommandError::DhisfsMended { .. } => exit_code::MENDED,
            CommandError::DhisfsFsck(_) => exit_code::CANNOT_CHECK,
            CommandError::Dhisfs(error)
            | CommandError::DhisfsMount(FuseError::FileSystem(error)) => exit_code_of_dhisfs(error),
            CommandError::Device(DeviceError::Io { source, .. }) if is_device_failure(source) => {
                exit_code::DEVICE
            }
            CommandError::Serve(error) if is_device_failure_of_serve(error) => exit_code::DEVICE,
            CommandError::Control(ControlError::Refused { code: Some(Code::Io), .. }) => {
                exit_code::DEVICE
            }
            CommandError::Control(
                ControlError::Connect { .. }
                | ControlError::Broken { .. }
                | ControlError::Silent { .. }
                | ControlError::Stranger { .. },
            )
            | CommandError::NoSuchDaemon { .. }
            | CommandError::NoDaemons { .. } => exit_code::NO_DAEMON,
            CommandError::Control(ControlError::Cancelled { .. } | ControlError::Left { .. })
            | CommandError::CreateCancelled
            | CommandError::DetachCancelled { .. }
            | CommandError::WipeCancelled { .. }
            | CommandError::GrowCancelled
            | CommandError::CancelledWhileOpening => exit_code::CANCELLED,
            CommandError::File { source, .. } if is_device_failure(source) => exit_code::DEVICE,
            CommandError::OfCache { error, .. } => error.exit_code(),
            CommandError::CachesFailed { code, .. } => *code,
            #[cfg(feature = "lab")]
            CommandError::Lab(error) => error.exit_code(),
            _ => exit_code::USER,
        }
    }
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
        ServeError::Open(OpenError::Checkpoint { first, second, .. }) => {
            let unreadable = |error: &FormatError| matches!(error, FormatError::Unreadable { .. });
            unreadable(first) || unreadable(second)
        }
        ServeError::Stop { source: RequestError::Io, .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
