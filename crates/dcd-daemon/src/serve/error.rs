//! Why a daemon cannot start or end, with what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use dcd_engine::error::VolumeOpenError;
use dcd_engine::io::IoError;
use dcd_engine::legs::choose::LegsError;
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{FormatError, OpenError, RequestError, Uuid};

use crate::device::device_file::{DeviceError, quoted};
use crate::device::shares::ShareProblem;
use crate::frontend::error::FrontendError;
use crate::frontend::nbd::listen::ListenError;
use crate::frontend::ublk::UblkError;
use crate::memory::segment_memory::SegmentMemoryError;
use crate::pair::book::PairProblem;
use crate::pair::label_keeper::LabelProblem;
use crate::pair::legs::NewLegError;
use crate::pair::members::MemberError;
use crate::pair::nvram::{NVRAM_MISSING_HINT, NvramError};
use crate::process::isolation::{LockMemoryError, ProcessorError};
use crate::report::lost::{LostReport, NOT_DETACHED_HINT};
use crate::report::stuck::StuckReport;
use crate::serve::legs_words::{GivenLeg, legs_hint, legs_in_words};
use crate::units_text::format_size;

/// Why a daemon cannot start or end in order.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is no detach, because it would leave stale blocks on the data-disk without a word.
    #[error("not detached: {}", LostReport { lines: *lines, ranges: Vec::new() }.words())]
    NotDetached {
        /// Lines that are lost.
        lines: u64,
    },
    /// There is no detach, because nothing more gets to the data-disk.
    #[error("not {operation}: {}", report.words())]
    Stuck {
        /// What was asked for: `detached`, `brought home`.
        operation: &'static str,
        /// What is left, and why.
        report: StuckReport,
    },
    /// A disk cannot be opened.
    #[error("{role}: {source}")]
    Device {
        /// Which disk: `cache-disk`, `data-disk` or `disk`.
        role: &'static str,
        /// Why not.
        source: DeviceError,
    },
    /// Two disks are one.
    #[error("{}", same_disk_in_words(first, second, shared))]
    SameDisk {
        /// One name.
        first: PathBuf,
        /// The other.
        second: PathBuf,
        /// What both have bytes of.
        shared: PathBuf,
    },
    /// A share was named twice, not alike.
    #[error("{} is a share, and {share} was asked for, too", path.display())]
    ShareTwice {
        /// One.
        path: PathBuf,
        /// The other.
        share: String,
    },
    /// Nothing says which share is meant.
    #[error("which share of {} is meant? It has {}", disk.display(), names_or_none(known))]
    ShareUnclear {
        /// The disk.
        disk: PathBuf,
        /// Names of the shares.
        known: Vec<String>,
    },
    /// The cache-disk holds no cache.
    #[error("the cache-disk {} holds no cache: {source}", path.display())]
    NoCache {
        /// The disk.
        path: PathBuf,
        /// What is wrong.
        source: FormatError,
    },
    /// The cache is on the disk given as the data-disk.
    #[error(
        "cache-disk and data-disk are swapped: {} holds a cache, {} does not",
        data_disk.display(),
        cache_disk.display()
    )]
    Swapped {
        /// As given.
        cache_disk: PathBuf,
        /// As given.
        data_disk: PathBuf,
    },
    /// The memory in front of the log cannot be used.
    #[error(transparent)]
    Nvram(#[from] NvramError),
    /// The host remembers the pair otherwise.
    #[error(transparent)]
    Pair(#[from] PairProblem),
    /// A disk that somebody's cache needs was to be written to without it.
    #[error("not served without its cache: {0}")]
    WithoutCache(PairProblem),
    /// A disk that is to become a memory is the data-disk of a cache.
    #[error(transparent)]
    BecomesPart(PairProblem),
    /// The label of the data-disk is not that of this cache, as it is now.
    #[error(transparent)]
    Label(#[from] LabelProblem),
    /// A disk cannot be a member of the volume.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The legs that are given make no cache-disk.
    #[error(
        "{}{}", legs_in_words(disks, error),
        away.as_ref().map_or(String::new(), |away| format!(" ({away})"))
    )]
    Legs {
        /// The disks that are there, in the order in which they were given, and the witness.
        disks: Vec<GivenLeg>,
        /// Of those that are not, what is wrong with the first.
        away: Option<Box<DeviceError>>,
        /// What is wrong.
        error: LegsError,
    },
    /// Several cache-disks were given for a cache on one.
    #[error("the cache on {} is on one cache-disk, not on several", path.display())]
    NotLegs {
        /// The first that was given.
        path: PathBuf,
    },
    /// More legs than there can be.
    #[error("a cache-disk has at most {most} legs")]
    TooManyLegs {
        /// Most that can be.
        most: usize,
    },
    /// A witness where there is nothing to be said.
    #[error("the cache-disk is one disk, and has no use for a witness")]
    WitnessOfOneDisk,
    /// The witness is a disk of its own cache.
    #[error(
        "{} cannot be the witness: {} the cache's own {}",
        path.display(),
        if path == disk { "it is" } else { "it is the same disk as" },
        if path == disk { "disk".to_owned() } else { disk.display().to_string() }
    )]
    WitnessIsOwn {
        /// The file.
        path: PathBuf,
        /// The disk of the cache.
        disk: PathBuf,
    },
    /// What was given as the witness is none.
    #[error("{} is given as the witness, and {what}", path.display())]
    NotAWitness {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A disk cannot become a leg.
    #[error(transparent)]
    NewLeg(#[from] NewLegError),
    /// A labelled data-disk knows one cache-disk.
    #[error("a cache with a labelled data-disk cannot be on several cache-disks")]
    LabelledOnLegs,
    /// Not with a volume.
    #[error("a volume cannot be {operation}: where its blocks lie only dcd knows")]
    NotForVolumes {
        /// What was asked for.
        operation: &'static str,
    },
    /// An object store where something else must be.
    #[error("{} cannot be {what}: it is an object store", path.display())]
    NotInStore {
        /// Its name.
        path: PathBuf,
        /// What it was given as.
        what: &'static str,
    },
    /// A cache without a volume has one data-disk.
    #[error("the cache has one data-disk, no volume of several")]
    OneDataDisk,
    /// What is only for volumes was asked for.
    #[error("{flag} is only for a volume of several data-disks")]
    OnlyForVolumes {
        /// The flag.
        flag: &'static str,
    },
    /// Another disk than the one the cache was created for.
    #[error(
        "{} is not the data-disk of this cache: expected serial number {expected:?}, found {found:?}",
        path.display()
    )]
    WrongDataDisk {
        /// The disk given.
        path: PathBuf,
        /// Serial number recorded.
        expected: String,
        /// Serial number of the disk given.
        found: String,
    },
    /// A disk that a salvage leaves alone.
    #[error("{} is not the data-disk of cache {expected}: it is {found}", path.display())]
    Foreign {
        /// The disk given.
        path: PathBuf,
        /// The cache whose data-disk was to be given.
        expected: Uuid,
        /// What it is.
        found: String,
    },
    /// There is nothing to bring home.
    #[error(
        "the cache on {} is detached: the data-disk {} has all that counts, and may have gone on since",
        cache_disk.display(), data_disk.display()
    )]
    SalvageDetached {
        /// The cache-disk.
        cache_disk: PathBuf,
        /// The disk given.
        data_disk: PathBuf,
    },
    /// The data-disk is larger than it was.
    #[error(
        "the data-disk {data_disk} has {found} blocks of 512 bytes, the cache belongs to one with {expected}"
    )]
    Grown {
        /// As given.
        cache_disk: String,
        /// As given.
        data_disk: String,
        /// Blocks recorded.
        expected: u64,
        /// Blocks found.
        found: u64,
    },
    /// A processor that cannot be had.
    #[error(transparent)]
    Processor(#[from] ProcessorError),
    /// Memory that cannot be locked.
    #[error(transparent)]
    LockMemory(#[from] LockMemoryError),
    /// More memory may come to be needed than is allowed.
    #[error(
        "--memory-max {} is too little: {} may come to be needed ({parts})",
        format_size(*most), format_size(*needed)
    )]
    MemoryMax {
        /// What is allowed.
        most: u64,
        /// What is needed at least.
        needed: u64,
        /// What for.
        parts: String,
    },
    /// No memory for segment buffers.
    #[error(transparent)]
    Memory(#[from] SegmentMemoryError),
    /// The engine cannot start with these disks.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Members of a volume are missing, and disks that were named are not there.
    #[error("{source}: {away}")]
    MembersAway {
        /// What is wrong with each of these disks.
        away: String,
        /// Which members.
        source: Box<OpenError>,
    },
    /// A member of a volume does not fit.
    #[error("{disk}: {source}")]
    OfMember {
        /// The disk that was given for it.
        disk: String,
        /// What is wrong with it.
        source: Box<OpenError>,
    },
    /// A frontend cannot begin, or has ended.
    #[error(transparent)]
    Frontend(#[from] FrontendError),
    /// A loop device needs the FUSE file below it.
    #[error("a loop device needs a FUSE mount below it, and none is asked for")]
    LoopWithoutFuse,
    /// What is opened would be hidden by the mount, and whoever opens it would wait for himself.
    #[error(
        "the mount at {} would hide {what} {}, which dcd needs",
        directory.display(),
        path.display()
    )]
    MountHides {
        /// Where the FUSE file is to be.
        directory: PathBuf,
        /// What is opened.
        what: &'static str,
        /// Its name.
        path: PathBuf,
    },
    /// The system refused something.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The end was not in order.
    #[error("cannot {operation}: {source}")]
    Stop {
        /// What was tried: shut down, detach.
        operation: &'static str,
        /// The engine's answer.
        source: RequestError,
        /// Changes went past the log: what no flush has covered is nowhere else.
        past_the_log: bool,
    },
}

impl From<ListenError> for ServeError {
    fn from(source: ListenError) -> ServeError {
        ServeError::Frontend(source.into())
    }
}

impl From<UblkError> for ServeError {
    fn from(source: UblkError) -> ServeError {
        ServeError::Frontend(source.into())
    }
}

fn names_or_none(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Two names of one disk, and why they are one where that is not seen at once.
pub fn same_disk_in_words(first: &Path, second: &Path, shared: &Path) -> String {
    let (one, other) = (first.display(), second.display());
    if first == second {
        return format!("the same disk is given twice: {one}");
    }
    match first.canonicalize().ok() == second.canonicalize().ok() {
        true => format!("{one} and {other} are the same disk"),
        false => {
            format!("{one} and {other} are the same disk: both have bytes of {}", shared.display())
        }
    }
}

/// Of a cache-disk that ends before its superblocks do.
fn cut_off_hint(path: &Path) -> String {
    format!(
        "if a cache was ever on it, it was cut off: bring it back as it was, since it may hold data that is nowhere else; a new \
         one is made by: dcd create --cache-disk {} --cache-size 256M --data-disk ...",
        quoted(path)
    )
}

impl ServeError {
    /// For `map_err` of system calls.
    pub fn system(operation: &'static str) -> impl FnOnce(io::Error) -> ServeError {
        move |source| ServeError::System { operation, source }
    }

    /// What is wrong with a share of a cache-disk.
    pub fn share(problem: ShareProblem) -> ServeError {
        ServeError::Device { role: "cache-disk", source: problem.into() }
    }

    /// For `map_err` of opening a disk.
    pub fn device(role: &'static str) -> impl FnOnce(DeviceError) -> ServeError {
        move |source| ServeError::Device { role, source }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            ServeError::Device {
                role: "cache-disk",
                source: DeviceError::Size { path, found: 1.. },
            } => cut_off_hint(path),
            ServeError::Device {
                role: "cache-disk",
                source: DeviceError::NotFound { path, .. } | DeviceError::Size { path, .. },
            } => format!(
                "check the name; a cache is made by: dcd create --cache-disk {} --cache-size 256M \
                 --data-disk ...",
                quoted(path)
            ),
            // Another one in its place would get what the cache holds, and lack all else.
            ServeError::Device { role: "data-disk", source: DeviceError::NotFound { .. } } => {
                "check the name, and bring that disk back: no other one takes its place. `dcd list` tells where it was; what \
                 the cache holds of it shows `dcd salvage`"
                    .into()
            }
            // It is written to whoever reads.
            ServeError::Device {
                role: "cache-disk",
                source: DeviceError::ReadOnly { way, .. },
            } => format!(
                "make it writable ({way}): dcd writes to the cache-disk with --read-only, too"
            ),
            ServeError::Device { source, .. } => return source.hint(),
            ServeError::Memory(source) => return source.hint(),
            ServeError::Pair(problem) => problem.hint("--trust-disks"),
            ServeError::WithoutCache(problem) => problem.hint_without_cache(),
            ServeError::BecomesPart(problem) => problem.hint_for_a_part(),
            ServeError::Label(problem) => problem.hint(),
            ServeError::Member(source) => return source.hint(),
            ServeError::LockMemory(source) => source.hint(),
            ServeError::Processor(_) => "`nproc` and `taskset -p $$` tell which there are".into(),
            ServeError::MemoryMax { needed, .. } => format!(
                "allow at least {}; each NBD client more takes 64 MiB; fewer --segment-buffers, less --read-ahead and a \
                 smaller cache need less",
                format_size(needed.next_multiple_of(1 << 20))
            ),
            ServeError::Frontend(source) => return source.hint(),
            ServeError::Open(source) => return open_hint(source),
            ServeError::MembersAway { source, .. } | ServeError::OfMember { source, .. } => {
                return open_hint(source);
            }
            ServeError::NotForVolumes { operation: "grown" } => {
                "`dcd volume grow` uses what has been added to its members, while it is served; docs/volume.md".into()
            }
            ServeError::NotForVolumes { .. } => {
                "serve it, and copy what is on it to another disk; docs/volume.md".into()
            }
            ServeError::Legs { disks, error, .. } => return Some(legs_hint(disks, error)),
            ServeError::NotLegs { path } => format!(
                "give --cache-disk {} alone; with --new-leg DISK a blank disk becomes its second leg",
                path.display()
            ),
            ServeError::TooManyLegs { .. } => "give fewer".into(),
            ServeError::WitnessOfOneDisk => {
                "leave --witness out, or make a blank disk the second leg with --new-leg DISK".into()
            }
            ServeError::WitnessIsOwn { .. } => {
                "give a small file of its own, best on a disk that has none of the cache".into()
            }
            ServeError::NotAWitness { path, .. } => format!(
                "look at it with `dcd inspect leg --cache-disk {}`; without --witness all legs that count start, and \
                 `dcd cache-disk add-witness` then makes a blank file the witness",
                path.display()
            ),
            ServeError::NewLeg(error) => return error.hint(),
            ServeError::LabelledOnLegs => {
                "a label says which one cache-disk is newer than the disk: create the cache without --labelled".into()
            }
            ServeError::NotInStore { .. } => {
                "an object store is the one data-disk of a cache of its own: `dcd create --cache-disk DISK --data-disk \
                 s3://BUCKET/PREFIX`".into()
            }
            ServeError::OneDataDisk => {
                "give the one --data-disk that `dcd inspect superblock` tells of".into()
            }
            ServeError::OnlyForVolumes { flag } => {
                format!("leave {flag} out: this cache has one data-disk")
            }
            ServeError::ShareTwice { .. } => "name it once".into(),
            ServeError::ShareUnclear { disk, known } => match known.first() {
                Some(first) => format!("name it with --share NAME, or as --cache-disk {}", quoted(&disk.join(first))),
                None => "dcd create --share SIZE makes one".into(),
            },
            ServeError::SameDisk { .. } => {
                "give two disks, or two partitions of one: the cache needs a disk, a partition or a file of its own"
                    .into()
            }
            ServeError::NoCache { source, path } => match source {
                FormatError::Version { .. } | FormatError::Features { .. } => {
                    "use the version of dcd that wrote it, or a newer one".into()
                }
                FormatError::Short { .. } => cut_off_hint(path),
                FormatError::Magic { .. } => format!(
                    "check the name; if a cache was ever on it, do not make another one: its beginning was overwritten, and a \
                     copy, or another leg, may have it. If none ever was: dcd create --cache-disk {} --data-disk ...",
                    quoted(path)
                ),
                _ => format!(
                    "look at it with `dcd inspect`; do not use the data-disk without it, {} may \
                     hold newer data",
                    path.display()
                ),
            },
            ServeError::Swapped { cache_disk, data_disk } => format!(
                "give --cache-disk {} --data-disk {}",
                quoted(data_disk),
                quoted(cache_disk)
            ),
            ServeError::WrongDataDisk { .. } => {
                "find the right disk: lsblk -o NAME,SIZE,WWN,SERIAL; if the disk was copied to this \
                 one on purpose, detach the cache from the original first"
                    .into()
            }
            ServeError::Foreign { .. } => {
                "find the right disk: `dcd probe DISK` tells what a disk is; nothing goes to this one, whatever is said, and \
                 `dcd salvage --to FILE` needs none"
                    .into()
            }
            ServeError::SalvageDetached { .. } => {
                "nothing is missing there; `dcd salvage --to FILE` brings what the log still has to a file; --trust-disks \
                 goes on, and with --take-uncertain puts what is old over what may be newer"
                    .into()
            }
            ServeError::Grown { cache_disk, data_disk, .. } => format!(
                "if it is the right disk (lsblk) and has grown: dcd grow --cache-disk {cache_disk} \
                 --data-disk {data_disk}"
            ),
            ServeError::LoopWithoutFuse => "add --fuse DIRECTORY".into(),
            ServeError::MountHides { .. } => {
                "give --fuse a directory of its own, with nothing in it: mkdir one".into()
            }
            ServeError::System { operation: "make an io_uring", .. } => {
                "io_uring may be switched off: sysctl kernel.io_uring_disabled, or the seccomp \
                 filter of a container"
                    .into()
            }
            ServeError::Nvram(error) => return error.hint(),
            ServeError::System { .. } => return None,
            ServeError::NotDetached { .. } => NOT_DETACHED_HINT.into(),
            ServeError::Stuck { report, .. } => format!(
                "{}. The cache was closed in order, and the pair stays one; nothing goes on by itself: try again, or serve it",
                report.way_out
            ),
            ServeError::Stop { past_the_log: true, .. } => {
                "changes went past the log: what no flush had covered may be lost, and is in no cache. See dmesg; then start again \
                 with the same disks, and check what is on the data-disk (fsck) before it is used"
                    .into()
            }
            ServeError::Stop { .. } => {
                "start again with the same disks: nothing that was acknowledged is lost if they are as they were; of a \
                 cache-disk that was cut off or overwritten `dcd salvage` reads what is left"
                    .into()
            }
        })
    }
}

fn open_hint(error: &OpenError) -> Option<String> {
    Some(match error {
        OpenError::Nvram { .. } => NVRAM_MISSING_HINT.into(),
        OpenError::NeedsLegs => "give each of its disks as a --cache-disk".into(),
        OpenError::HasNoLegs => "give its one --cache-disk".into(),
        OpenError::NeedsMembers => "give each member as a --data-disk".into(),
        OpenError::HasNoMembers => "give its one --data-disk; `dcd inspect` shows which".into(),
        OpenError::Volume(error) => return volume_hint(error),
        OpenError::Io { device, error: IoError::NoSpace, .. } => {
            format!(
                "make room where {device} lies (df; a sparse file takes room as it is written), and start again"
            )
        }
        OpenError::Io { device, .. } => {
            format!("{device} has errors (see dmesg); copy it before trying again")
        }
        OpenError::Checkpoint { is_detached: true, .. } => {
            "nothing depends on it any more: `dcd detach --wipe` goes on with a wipe that was ended, `dcd create` makes \
             another cache"
                .into()
        }
        OpenError::Checkpoint { .. } | OpenError::CheckpointLost { .. } | OpenError::Format(_) => {
            "copy both disks first; `dcd salvage` finds what the log holds without it".into()
        }
        OpenError::RecordsLost { .. } => {
            "copy both disks first; `dcd check` lists what is lost; --accept-damage starts without it"
                .into()
        }
        OpenError::DataDiskChanged { is_clean: true, .. } => {
            "if it is the right disk, --accept-damage starts all the same; the cache is empty and \
             overwrites nothing"
                .into()
        }
        OpenError::DataDiskChanged { .. } => {
            "if it is the right disk and was changed on purpose, --accept-damage starts all the \
             same; dirty blocks will overwrite the changes"
                .into()
        }
        OpenError::DataDiskSize { .. } => {
            "check that it is the right disk (lsblk); if it was shrunk, give it its old size again: \
             a cache can grow with its disk, not shrink"
                .into()
        }
        OpenError::DataDiskTooLarge { most, .. } => {
            format!("cache a partition of at most {}", format_size(most * BLOCK_SIZE))
        }
        OpenError::EndNotDrained { .. } => {
            "`dcd grow` brings it there first; see `dcd inspect dirty`".into()
        }
        OpenError::LogNotEmpty => {
            "serve it without --no-log, `dcd drain`, stop it, and try again".into()
        }
        OpenError::ReadAreaWithoutLog => {
            "--no-log is for caches that were made without --read-area".into()
        }
        OpenError::CacheDiskShort { .. } => {
            "bring back the file or partition as it was, from a copy if need be: making it longer does not \
             bring back what was cut off; `dcd salvage` reads what is left"
                .into()
        }
        OpenError::EndMark(_) => {
            "it was cut off and lengthened again, or only its front was copied; bring back the whole; \
             `dcd salvage` reads what is left, and lists what is not certain"
                .into()
        }
        OpenError::Config(_) => "see `dcd serve --help` for the settings".into(),
    })
}

fn volume_hint(error: &VolumeOpenError) -> Option<String> {
    Some(match error {
        VolumeOpenError::Members { .. } => "give each member as a --data-disk".into(),
        VolumeOpenError::MembersMissing { .. } => {
            "attach them, or start without them: --degraded; with a blank disk in the place of one: --degraded --replace-member \
             NUMBER=DISK"
                .into()
        }
        VolumeOpenError::MemberShort { .. } => "is it the right disk?".into(),
        VolumeOpenError::MemberOlder { member, .. } => {
            let member = member.0;
            format!(
                "give the disk that was member {member} last; if it is gone, --accept-damage takes this one in its \
                 place: those lines then fail with I/O errors until they are written again, and `dcd volume \
                 rebuild {member}` brings what is on RAID 1 and 5"
            )
        }
        VolumeOpenError::MemberReplaced { member } => format!(
            "give the disk that is member {} now: `dcd probe DISK` tells what a disk is; where that one is lost, a \
             blank disk takes its place with --degraded --replace-member {}=DISK",
            member.0, member.0
        ),
        VolumeOpenError::CacheDiskOlder { .. } => {
            "give the cache-disk that was served last: where what lies on the members only its newest \
             tables know"
                .into()
        }
        VolumeOpenError::Unreadable { .. } | VolumeOpenError::Unwritable => {
            "see dmesg for errors of the cache-disk".into()
        }
        VolumeOpenError::PagesLost
        | VolumeOpenError::JournalDamaged { .. }
        | VolumeOpenError::Tables
        | VolumeOpenError::Header
        | VolumeOpenError::RootFields => {
            "copy the cache-disk before anything else is done with it; without these tables nobody knows what the \
             members hold"
                .into()
        }
        VolumeOpenError::Format(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_true_of_what_was_asked_for() {
        let read_only = |role| {
            let (path, why, way) = ("/srv/disk".into(), "", "chmod".to_owned());
            let hint = ServeError::device(role)(DeviceError::ReadOnly { path, why, way }).hint();
            hint.unwrap()
        };
        assert!(read_only("data-disk").contains("can be served with --read-only"));
        assert!(read_only("cache-disk").contains("writes to the cache-disk with --read-only, too"));
        let full = OpenError::Io {
            device: dcd_engine::io::Device::CacheDisk,
            offset: 0,
            error: IoError::NoSpace,
        };
        assert!(full.to_string().starts_with("the cache-disk failed at byte 0"), "{full}");
        assert!(open_hint(&full).unwrap().starts_with("make room where the cache-disk lies"));
        let stop = |past_the_log| {
            let (operation, source) = ("shut down in order", RequestError::Io);
            ServeError::Stop { operation, source, past_the_log }.hint().unwrap()
        };
        assert!(stop(false).contains("nothing that was acknowledged is lost"));
        assert!(stop(true).contains("what no flush had covered may be lost"));
    }
}
