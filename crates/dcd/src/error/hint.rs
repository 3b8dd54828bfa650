//! What to do about an error: one line, safe to follow.

use dcd_daemon::device::device_file::{missing_hint, quoted};
use dcd_daemon::units_text::format_size;
use dcd_engine::format::geometry::{GeometryError, SEGMENT_SIZE_BYTES_MIN, SEGMENTS_MIN};
use dcd_engine::volume::import::ImportError;
use dcd_engine::{FormatError, Geometry};

use super::{CommandError, is_device_failure};

impl CommandError {
    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        self.hint_of_part()
            .or_else(|| self.hint_about_words())
            .or_else(|| self.hint_about_disks())
            .or_else(|| self.hint_about_data())
    }

    /// Of an error that knows itself what to do.
    fn hint_of_part(&self) -> Option<String> {
        match self {
            CommandError::ConfigFile(error) => error.hint(),
            CommandError::VolumeFile(error) => error.hint(),
            CommandError::TableFile(error) => error.hint(),
            CommandError::FileBlocks(error) => Some(error.hint()),
            CommandError::Watch(error) => error.hint(),
            CommandError::Serve(error) => error.hint(),
            CommandError::Device(error) => error.hint(),
            CommandError::NbdOptions(error) => error.hint(),
            CommandError::Token(error) => Some(error.hint()),
            CommandError::NvramSettings(error) => Some(error.hint()),
            CommandError::File { action, source, .. } => file_hint(action, source),
            CommandError::Output { source } => Some(output_hint(source).into()),
            CommandError::Geometry(error) => geometry_hint(error),
            CommandError::Pair(problem) => Some(problem.hint("--force")),
            CommandError::Dhisfs(error) => error.hint(),
            CommandError::DhisfsMount(error) => error.hint(),
            CommandError::DhisfsRules(error) => Some(error.hint()),
            CommandError::DhisfsFsck(error) => error.hint(),
            CommandError::Control(error) => error.hint(),
            #[cfg(feature = "lab")]
            CommandError::Lab(error) => error.hint(),
            CommandError::Lost { hint, .. } => hint.clone(),
            CommandError::OfCache { error, .. } => error.hint(),
            _ => None,
        }
    }

    /// What was said, or not said.
    fn hint_about_words(&self) -> Option<String> {
        match self {
            #[cfg(feature = "s3")]
            CommandError::Store(failure) => failure.hint.clone(),
            #[cfg(feature = "s3")]
            CommandError::StoreDamage { .. } => Some(
                "restore these objects from versions of the bucket; what the log has is newer".into(),
            ),
            CommandError::OnlyForStores => {
                Some("leave them out: the data-disk has a size of its own, and its cache is named by --cache-disk".into())
            }
            CommandError::VolumeMissing { .. } => {
                Some("for example --volume raid.toml with two lines: [[set]] and level = 5; docs/volume.md".into())
            }
            CommandError::VolumeTables { .. } => Some(
                "give a larger --cache-size, or the volume smaller redundant sets, whose checksums take 1 GiB for \
                 each TiB and more, a larger `extent`, or a smaller `journal`"
                    .into(),
            ),
            CommandError::NotAMember { .. } => {
                Some("give the disks that `dcd create --volume` was given, and no others".into())
            }
            CommandError::Member(error) => error.hint(),
            CommandError::CacheDiskThere { place } => Some(format!(
                "serve the volume with it, `dcd serve --cache-disk {}`; if it is broken, --force gives it up",
                place.display()
            )),
            CommandError::Import { problem, .. } => import_hint(problem),
            CommandError::NoStaticMetadata { .. } => {
                Some("it is known of ext2, ext3, ext4 and XFS; give their device or a directory on them".into())
            }
            CommandError::InspectNothing => {
                Some("`dcd inspect --help` lists it; or give --file PATH --control SOCKET".into())
            }
            CommandError::SettingMissing(flag) => {
                let key = flag.trim_start_matches("--");
                Some(format!("give {flag}, or set `{key}` in the file of --config"))
            }
            CommandError::ModeGivenUp { is_failed: true, .. } => Some(
                "no mode helps before a restart: see dmesg, and start dcd again when the data-disk is well".into(),
            ),
            CommandError::ModeGivenUp { .. } => Some(
                "`dcd status` tells what is wrong with the disks; then set mode= and try again".into(),
            ),
            CommandError::NoLeg { .. } => Some("`dcd inspect superblock` tells what a cache is on".into()),
            CommandError::NoWitness => Some("`dcd cache-disk status` tells of it".into()),
            CommandError::LegGone { .. } => Some("`dcd cache-disk status` lists them".into()),
            CommandError::ShareOfAnotherLeg { path, .. } => Some(format!(
                "`dcd inspect leg --cache-disk {}` shows whose it is",
                path.display()
            )),
            CommandError::LegFailed { .. } => Some(
                "see dmesg for errors of the disk, then try again, or put another in its place: `dcd cache-disk replace UUID DISK`"
                    .into(),
            ),
            CommandError::ListInJson => {
                Some("leave --lost-list out: the error in JSON lists all of it; or give it a file".into())
            }
            CommandError::SetTwice { .. } => Some("leave one of them out".into()),
            CommandError::ModelOfSlowed => {
                Some("give --disk a path, or --disk model:PROFILE:FILE without --model".into())
            }
            CommandError::NoFrontend => Some("for example --nbd unix:disk.sock".into()),
            CommandError::NoUblkDevice { .. } => Some("`dcd ublk list` shows those there are".into()),
            CommandError::LoopWithoutFuse => Some("add --fuse DIRECTORY".into()),
            CommandError::Setting(_) => {
                Some("`dcd serve --help` tells what each setting takes".into())
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
            CommandError::FlagNeeds { flag, needs } => {
                Some(format!("leave {flag} out, or add {needs}"))
            }
            CommandError::OfOneCache { what, .. } if what.starts_with("--") => Some(format!(
                "leave {what} out: what is for one cache stands in its file, or on the command line that serves it alone"
            )),
            CommandError::OfOneCache { .. } => Some("serve each cache by a service of its own".into()),
            CommandError::InTwoCaches { .. } => Some("each cache needs its own: change one of the files".into()),
            CommandError::CachesFailed { .. } => {
                Some("what they said stands above; the same again serves all of them".into())
            }
            CommandError::NotRecorded { .. } => {
                Some("`dcd list` shows those that are, of this user; DCD_STATE_DIRECTORY says where others are".into())
            }
            CommandError::ForgetServed { process, .. } => {
                Some(format!("`dcd list` shows it; end it first: kill {process}, or stop its service"))
            }
            CommandError::ForgetPresent { cache_disk, data_disk, .. } => Some(format!(
                "detach it first: dcd detach --cache-disk {} --data-disk {}",
                quoted(cache_disk.as_ref()),
                data_disk.split(", ").map(|disk| quoted(disk.as_ref())).collect::<Vec<_>>().join(" --data-disk ")
            )),
            CommandError::ForgetUnread { cache_disk, .. } => Some(format!(
                "try with sudo; dcd check --cache-disk {0} says what is wrong, and dcd salvage --cache-disk {0} what it holds",
                quoted(cache_disk.as_ref())
            )),
            CommandError::NoPair { .. } => Some("usage: dcd set [--control] CACHE [KEY=VALUE]...".into()),
            CommandError::NoCacheNamed => {
                Some("usage: dcd set [--control] CACHE [KEY=VALUE]...; `dcd list` shows the caches".into())
            }
            CommandError::NoDaemons { .. } => {
                Some("no service runs; give the --control socket of a dcd that you have started by hand".into())
            }
            CommandError::NoSuchDaemon { .. } => {
                Some("is the daemon running? `dcd list` shows the caches of this machine; a daemon that was started by hand is named by its --control socket".into())
            }
            _ => None,
        }
    }

    /// What a disk holds, or is to hold.
    fn hint_about_disks(&self) -> Option<String> {
        match self {
            CommandError::NoVolume { problem: None, .. } => {
                Some("it belongs to one data-disk: `dcd inspect superblock` shows it".into())
            }
            CommandError::NoVolume { .. } => {
                Some("copy the cache-disk before anything else is done with it".into())
            }
            CommandError::Missing { what: "the cache-disk", .. } => {
                Some("`dcd create` makes a cache".into())
            }
            CommandError::Missing { path, .. } => Some(missing_hint(path)),
            CommandError::NotADisk { .. } => Some("give a disk image or a block device".into()),
            CommandError::SizeMissing { .. } => Some("for example --cache-size 256M".into()),
            CommandError::DeviceTooSmall { .. } => {
                Some("without --cache-size all of the device is used".into())
            }
            CommandError::ReadAreaSmall { .. } => {
                Some("at least 1M; 256M hold the start of a system and some programs".into())
            }
            CommandError::SharesExist { path, .. } => Some(format!(
                "for one more: --share SIZE; to be rid of one: dcd detach --cache-disk {} --data-disk ...; --force does not \
                 overwrite them",
                path.join("NAME").display()
            )),
            CommandError::IsAShare { path } => Some(format!(
                "--share SIZE makes it; one that is there goes first: dcd detach --cache-disk {} --data-disk ...",
                path.display()
            )),
            CommandError::SharedSize { .. } => {
                Some("leave it out: --share is the size of the new share".into())
            }
            CommandError::DiskOfSharesSmall { .. } => {
                Some("take a smaller share or a larger disk; of a new file --cache-size is the size of all of it".into())
            }
            CommandError::HasShare { path, data_disk } => Some(format!(
                "serve it, or detach it first: dcd detach --cache-disk {} --data-disk {}; if that is the share of another disk, which \
                 only had this name, --force makes one all the same",
                path.display(),
                data_disk.display()
            )),
            CommandError::TakeOver { source, cache_disk, store } => {
                let create = format!(
                    "dcd create --cache-disk {} --data-disk {store} --take-over",
                    cache_disk.display()
                );
                match &**source {
                    CommandError::CacheDirty { uuid, .. } => Some(format!(
                        "the store is not that of this cache, and what is only in its log is not in the store: `dcd salvage` \
                         lists it and writes it elsewhere; then `{create} --force --uuid {uuid}` gives it up; or give \
                         another cache-disk"
                    )),
                    CommandError::CacheExists { .. }
                    | CommandError::DamagedCacheExists { .. }
                    | CommandError::ForeignContent { .. } => Some(format!(
                        "give another cache-disk; if this one may be overwritten, `{create} --force` does it, and then it is \
                         served"
                    )),
                    CommandError::SizeMissing { .. } => Some(format!(
                        "make it first: {create} --cache-size 256M"
                    )),
                    other => other.hint(),
                }
            }
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
            CommandError::NoNvram { .. } => Some(
                "a memory that was stopped in order is empty and has no head; is it the right file?".into(),
            ),
            CommandError::NoLabel { .. } => Some(
                "a data-disk has one if its cache was made with --labelled; `dcd inspect superblock` tells whether".into(),
            ),
            CommandError::NoRoom { free, .. } => Some(format!(
                "give it less with --cache-size (at most {} here), or another place",
                format_size(free >> 20 << 20)
            )),
            CommandError::CreateCancelled => {
                Some("nothing is left of it; run it again".into())
            }
            CommandError::NotACache { problem, .. } => match problem {
                FormatError::Short { .. } => Some(
                    "is it the right name? A cache-disk that ends so early was cut off: bring it back as it was".into(),
                ),
                FormatError::Magic { .. } => {
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
            _ => None,
        }
    }

    /// What became of somebody's data.
    fn hint_about_data(&self) -> Option<String> {
        match self {
            CommandError::SalvageIncomplete { uncertain_bytes: 1.., .. } => Some(
                "the list tells where; compare with what the data-disk has there before you add --take-uncertain".into(),
            ),
            CommandError::SalvageIncomplete { has_unlisted: true, .. } => Some(
                "the data-disk without it is old in unknown places: check its file system, and compare with a backup".into(),
            ),
            CommandError::SalvageServed { process, .. } => Some(format!(
                "copy what you need from what it serves; or end it ({}, or its service), then try `dcd detach`, which brings home \
                 more than a salvage",
                process.map_or("`dcd list` shows it".into(), |process| format!("kill {process}"))
            )),
            CommandError::SalvageToStore { .. } => Some(
                "--to FILE writes what is found to a new file, with each block in its place, and without either it is only \
                 listed: nothing else is touched. Compare that with the disk where the store is served, and copy there what is \
                 missing, through its device. If the store is this cache's own, `dcd serve` or `dcd detach` brings its log there"
                    .into(),
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
            CommandError::NotGrown { .. } => Some(
                "nothing has changed; `dcd volume status` says how the volume is, then try again"
                    .into(),
            ),
            CommandError::WorkCutShort { lines_unreadable: 0, .. } => Some(
                "`dcd volume status` shows how the members are; if nobody has cancelled it, see dmesg for errors of the disks"
                    .into(),
            ),
            CommandError::WorkCutShort { .. } => Some(
                "nothing has changed. `dcd volume scrub` finds what is lost on RAID 1 and 5; of RAID 0 lines that cannot be read \
                 can be written again, or given up: --accept-damage"
                    .into(),
            ),
            CommandError::SpareNotLabelled { .. } => Some(
                "see dmesg for errors of the disk; `dcd volume spare remove` lets go of it".into(),
            ),
            CommandError::LinesLost { .. } => Some(
                "bring back what was there from a copy: what is written is not lost any more".into(),
            ),
            CommandError::DhisfsMended { .. } => {
                Some("files that had lost their names are in lost+found".into())
            }
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
            CommandError::StoppedUnderUsers => Some(
                "what was acknowledged is in the cache: serve it again. A file system that was mounted needs to be unmounted, \
                 checked and mounted anew: what it had not written yet is lost"
                    .into(),
            ),
            CommandError::Aborted => Some("the next `dcd serve` recovers it".into()),
            _ => None,
        }
    }
}

/// What to do when the system refuses something with a file.
fn file_hint(action: &str, error: &std::io::Error) -> Option<String> {
    use std::io::ErrorKind;
    // What is made needs only the directory that it goes to.
    let is_there_before =
        matches!(action, "read" | "look at" | "list" | "open" | "watch" | "find the blocks of");
    let hint = match error.kind() {
        ErrorKind::NotFound if is_there_before => "check the name",
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            "the directory must exist; check the name"
        }
        ErrorKind::AlreadyExists => "nothing is overwritten: choose another name",
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

/// What to do when nothing can be written to stdout.
fn output_hint(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "make room where the output goes (df), or send it elsewhere"
        }
        _ => "send the output elsewhere",
    }
}

fn geometry_hint(error: &GeometryError) -> Option<String> {
    match error {
        GeometryError::TooSmall { segment_size, needed, copy_pages, .. } => {
            let needed = format_size(needed.next_multiple_of(1 << 20));
            if *segment_size == SEGMENT_SIZE_BYTES_MIN {
                return Some(format!(
                    "give it {needed}, for example with --cache-size, or a share with --share"
                ));
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

/// What to do when a volume cannot be imported.
fn import_hint(problem: &ImportError) -> Option<String> {
    Some(match problem {
        ImportError::NoTwin | ImportError::NobodyHasIt => {
            "the tables are on the cache-disk alone: copy what can be read of it to a good disk, and serve with the copy"
                .into()
        }
        ImportError::HoldersMissing { .. } => "give one of these members, too".into(),
        ImportError::Damaged { .. } => {
            "give all members: another may have the tables as well; else only the cache-disk has them".into()
        }
        ImportError::MembersMissing { .. } => {
            "give them; without them --degraded goes on, and what only they hold cannot be read".into()
        }
        ImportError::OtherVolume { .. } | ImportError::Twice { .. } => {
            "give the members of one volume, each once".into()
        }
        ImportError::Replaced { .. } => {
            "give the disk that is this member now, or leave it out: --degraded".into()
        }
        ImportError::MemberOlder { .. } => {
            "give the disk itself; what it has missed of RAID 0 sets nobody else has".into()
        }
        ImportError::Unwritable { .. } => "see dmesg for errors of the disk, then do it again".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_small_a_cache_is_told_how_large_it_must_be() {
        let error = CommandError::from(Geometry::fit(1 << 20, 1 << 20).unwrap_err());
        let hint = error.hint().unwrap();
        assert!(hint.contains("at least 2"), "{hint}");
        let error = CommandError::from(Geometry::fit(1 << 20, SEGMENT_SIZE_BYTES_MIN).unwrap_err());
        let hint = error.hint().unwrap();
        assert!(hint.contains("2 MiB") && hint.contains("--share"), "{hint}");
        let needed = cache_size_min(SEGMENT_SIZE_BYTES_MIN, 0);
        assert!(Geometry::fit(needed, SEGMENT_SIZE_BYTES_MIN).is_ok());
        assert!(Geometry::fit(needed - 4096, SEGMENT_SIZE_BYTES_MIN).is_err());
    }
}
