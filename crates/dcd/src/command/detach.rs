//! `dcd detach`: brings everything to the data-disk and parts it from the cache; through the dcd
//! that serves it, or here from the two disks when none does.

use std::path::{Path, PathBuf};

use clap::Args;
use dcd_daemon::control::client::ControlError;
use dcd_daemon::device::device_file::quoted;
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::network::TakeOver;
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::pair::{CacheDisks, DataDiskSize, PairOptions};
use dcd_daemon::report::lost::LostReport;
use dcd_daemon::serve::ServeError;
use dcd_daemon::serve::offline::{Ended, OfflineTask, run_offline};
use dcd_daemon::serve::share_choice::choose_shares;
use dcd_daemon::units_text::{format_size, parse_duration};
use dcd_engine::EngineConfig;
use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE};
use dcd_protocol::{Command, DetachAsked};
use serde_json::{Value, json};

use super::drain::{Moved, connect, with_progress};
use super::share_end::ShareEnd;
use super::wipe::{Wipe, disks_of_served};
use crate::daemons;
use crate::error::CommandError;
use crate::lost_list::LostList;
use crate::progress::{Progress, Unit};
use crate::settings::span;
use crate::stdout::{print_done, print_done_with};

/// Bring everything to the data-disk and part it from the cache.
///
/// Afterwards the data-disk holds what a plain disk would hold, and is used without dcd. With
/// --control the running dcd does it and ends: it goes on serving until all is moved, then
/// disconnects its clients and moves what they wrote meanwhile. Without --control it is done here
/// from the two disks.
///
/// Ctrl-C or SIGTERM cancel it, with exit code 7: the pair stays one, what was moved stays moved. A
/// running dcd goes on serving, unless it has disconnected its clients already: then it stops in
/// order. Each part may be repeated at any time, after a crash too.
///
/// A disk that is in use (mounted, open, connected to) is not taken away from its users: they are
/// named, and there is no detach (exit code 1), except with --wait or --force.
///
/// Blocks whose newest copy is damaged cannot be brought to the data-disk. Then everything else is,
/// they are listed, and there is no detach (exit code 4), except with --accept-damage.
///
/// When nothing more gets to the data-disk for --drain-timeout, because it is full or fails, there
/// is no detach (exit code 8): what is left and why is told, and the pair stays one. A running dcd
/// goes on serving.
///
/// A cache that has a share of its cache-disk gives that back.
///
/// With --wipe the cache-disk, or the share of it, is overwritten when it is detached, and not before: what was written
/// through it is on it as it was. That takes as long as writing all of it. Interrupted, also by a
/// crash, it is repeated with the two disks.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd detach sdb
  dcd detach --control /run/sdb.ctl
  dcd detach --control /run/sdb.ctl --wipe
  dcd detach --control /run/sdb.ctl --cancel
  dcd detach --cache-disk fast.img --data-disk /dev/sdb
  dcd detach --cache-disk one.img --cache-disk two.img --witness w --data-disk /dev/sdb --wipe")]
#[command(group(clap::ArgGroup::new("where").required(true).args(["cache", "control", "cache_disk"])))]
pub struct DetachArguments {
    /// The running cache: the name of its service, its UUID, the device that it serves, or its
    /// control socket.
    #[arg(value_name = "CACHE", conflicts_with_all = ["control", "cache_disk", "data_disk", "witness", "memory_directory",
          "memory_lost", "drain_timeout", "trust_disks"])]
    pub cache: Option<PathBuf>,
    /// The same.
    #[arg(long, value_name = "CACHE")]
    pub control: Option<PathBuf>,
    /// Cancel the detach under way, whoever began it.
    #[arg(long, conflicts_with = "cache_disk")]
    pub cancel: bool,
    /// The cache-disk, when no dcd is running; if it is on several disks, each of them.
    #[arg(long, value_name = "FILE|DEVICE", requires = "data_disk")]
    pub cache_disk: Vec<DeviceSpec>,
    /// The witness of a cache on several cache-disks: with it one leg in sync is enough. With --wipe
    /// its labels are overwritten, too.
    #[arg(long, value_name = "FILE|DEVICE", requires = "cache_disk", conflicts_with = "control")]
    pub witness: Option<DeviceSpec>,
    /// The share of the cache-disk, if several caches share it: its name, or the UUID of its cache
    /// [default: that of the data-disk].
    #[arg(long, value_name = "NAME|UUID", requires = "cache_disk")]
    #[arg(conflicts_with_all = ["cache", "control"])]
    pub share: Option<String>,
    /// Its data-disk.
    #[arg(long, value_name = "DISK", requires = "cache_disk", conflicts_with = "control")]
    pub data_disk: Option<DeviceSpec>,
    /// Where the memory that outlived a crash of dcd is, if not where its superblock says [default:
    /// where `dcd serve` has it].
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "control")]
    pub memory_directory: Option<PathBuf>,
    /// Detach although the memory of the last session is not found, in which writes may be that
    /// were acknowledged and not flushed: as after a power cut. Without effect where it is found.
    #[arg(long, conflicts_with = "control")]
    pub memory_lost: bool,
    /// Wait until nobody uses the disk any more.
    #[arg(long, conflicts_with_all = ["force", "cache_disk"])]
    pub wait: bool,
    /// Detach although the disk is mounted, open, or connected to: what its users have not written
    /// yet is lost.
    #[arg(long, conflicts_with = "cache_disk")]
    pub force: bool,
    /// End when nothing more gets to the data-disk for so long, or for an eighth of it when the
    /// disk says no [default: 60s]. A running dcd has a setting for it.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "control")]
    pub drain_timeout: Option<std::time::Duration>,
    /// Detach although blocks are lost, because they are damaged in the cache, or although the
    /// data-disk was changed behind the cache. What is lost is listed first; the data-disk keeps
    /// what it has there, which is older.
    #[arg(long)]
    pub accept_damage: bool,
    /// If something is lost, write what it is to this new file, before anything is given up.
    /// Nothing is overwritten; a pipe, - (standard output) and /dev/null will do.
    #[arg(long, value_name = "FILE")]
    pub lost_list: Option<PathBuf>,
    /// Go on although the record of pairs of this host says that these disks do not belong
    /// together, or one is older than the other.
    #[arg(long, conflicts_with = "control")]
    pub trust_disks: bool,
    /// Overwrite the cache-disk (all of that file or device, or of the share) when it is detached: discarded, and
    /// filled with zeroes unless the disk erases securely. A cache that is detached already is only
    /// wiped.
    #[arg(long, conflicts_with = "cancel")]
    pub wipe: bool,
}

/// How often what is lost may have become more since it was listed.
const LISTS_MAX: u32 = 5;

const DETACHED_UNMARKED: &str = "detached: the data-disk holds everything; the cache-disk has failed \
and could not be marked, so make it anew with `dcd create` before you use it again\n";

pub fn run(arguments: &DetachArguments) -> Result<(), CommandError> {
    if let Some(control) = arguments.cache.as_ref().or(arguments.control.as_ref()) {
        if arguments.cancel {
            daemons::connect(control)?.request(Command::CancelDetach, &mut |_| ())?;
            return print_done("cancelled\n");
        }
        return through_daemon(control, arguments);
    }
    let missing = CommandError::SettingMissing;
    arguments.cache_disk.first().ok_or(missing("--cache-disk"))?;
    let data_disk = arguments.data_disk.clone().ok_or(missing("--data-disk"))?;
    let pairs = PairBook::from_environment(arguments.trust_disks);
    let mut cache_disks = arguments.cache_disk.clone();
    choose_shares(&mut cache_disks, arguments.share.as_deref(), &[data_disk.path()], &pairs)?;
    let share_end = ShareEnd::of_specs(&cache_disks);
    if let Some(end) = share_end.as_ref().filter(|end| end.is_leaving()) {
        return end.run(arguments.wipe);
    }
    let to_wipe =
        arguments.wipe.then(|| Wipe::of(&cache_disks, &data_disk, arguments.witness.as_ref()));
    let to_wipe = to_wipe.transpose()?;
    let finish = |to_wipe: Option<Wipe>| match (&share_end, to_wipe) {
        (Some(end), to_wipe) => end.run(to_wipe.is_some()),
        (None, Some(wipe)) => wipe.run(),
        (None, None) => Ok(()),
    };
    if to_wipe.as_ref().is_some_and(|wipe| wipe.is_detached) {
        return finish(to_wipe);
    }
    let mut list = LostList::open(arguments.lost_list.as_deref())?;
    let default = EngineConfig::default();
    let drain_timeout = span(arguments.drain_timeout, default.drain_timeout);
    let engine = EngineConfig { accept_damage: arguments.accept_damage, drain_timeout, ..default };
    engine.validate()?;
    let options = PairOptions {
        cache_disks: CacheDisks {
            witness: arguments.witness.clone(),
            ..CacheDisks::of(cache_disks.clone())
        },
        data_disks: data_disk.into(),
        take_over: TakeOver::No,
        not_for_volumes: Some("detached"),
        engine,
        one_disk: None,
        memory_directory: arguments.memory_directory.clone(),
        memory_lost: arguments.memory_lost,
        nvram: None,
        nvram_lost: false,
        size: DataDiskSize::Same,
        memory: None,
        pairs,
        quiet: true,
    };
    let mut progress = Progress::new("detaching", Unit::Bytes);
    let mut untold = None;
    let mut listed = None;
    let mut give_up = |lost: &LostReport| {
        let told = list.tell(lost);
        listed = Some(lost.clone());
        let is_told = told.is_ok();
        untold = told.err();
        is_told && arguments.accept_damage
    };
    let show = &mut |so_far| progress.lines(so_far);
    let report = run_offline(&options, OfflineTask::Detach, show, &mut give_up);
    progress.finish();
    if let Some(error) = untold {
        return Err(error);
    }
    let report = match (report, &listed) {
        (Err(error @ ServeError::NotDetached { .. }), Some(lost)) => {
            let (hint, lost) = (error.hint(), lost.clone());
            return Err(CommandError::Lost { error: error.to_string(), hint, lost });
        }
        (report, _) => report?,
    };
    match report.ended {
        Ended::Done => {}
        Ended::Cancelled if report.recovery.is_none() => {
            return Err(CommandError::CancelledWhileOpening);
        }
        Ended::Cancelled => {
            return Err(CommandError::DetachCancelled {
                moved: report.lines_moved * LINE_SIZE,
                left: report.lines_left * LINE_SIZE,
            });
        }
        Ended::AtOnce => return Err(CommandError::Aborted),
    }
    let disk = options.data_disks.disks[0].path();
    let way = way_to_payload(disk, report.payload_offset_bytes, report.payload_bytes);
    let moved = Moved {
        bytes: Some(report.lines_moved * LINE_SIZE),
        zeroed_bytes: report.lines_zeroed * LINE_SIZE,
    };
    let about = about(moved, listed);
    if report.is_unmarked {
        print_done_with(&format!("{DETACHED_UNMARKED}{way}"), about)?;
        return finish(to_wipe);
    }
    let words = format!(
        "detached: {} stands on its own ({} moved{})\n{way}",
        options.data_disks,
        format_size(report.lines_moved * LINE_SIZE),
        moved.zeroed_words()
    );
    print_done_with(&words, about)?;
    finish(to_wipe)
}

/// What JSON has beside the sentence: also what was given up, of which nothing else tells there.
fn about(moved: Moved, lost: Option<LostReport>) -> Value {
    let mut about = moved.json();
    if let Some(lost) = lost {
        about["lost"] = json!(lost);
    }
    about
}

/// How to get at what a data-disk with a label holds, when it stands on its own.
fn way_to_payload(disk: &Path, offset: u64, bytes: u64) -> String {
    if offset == 0 {
        return String::new();
    }
    let name = quoted(disk);
    let mut text = format!(
        "what it holds begins behind its label, at byte {offset}:\n  losetup --find --show --offset {offset} --sizelimit {bytes} {name}\n"
    );
    if disk.starts_with("/dev") {
        let (start, sectors) = (offset / BLOCK_SIZE, bytes / BLOCK_SIZE);
        text += &format!("  dmsetup create payload --table '0 {sectors} linear {name} {start}'\n");
    }
    text + "a new cache takes it as it is: dcd create --labelled\n"
}

fn through_daemon(control: &Path, arguments: &DetachArguments) -> Result<(), CommandError> {
    let mut list = LostList::open(arguments.lost_list.as_deref())?;
    // Asked before: afterwards nobody is there.
    let status = daemons::connect(control)?.status()?;
    // A log that was left unused from the start on is marked.
    let is_uncached = status.uncached.is_some() && status.cache_disk_failed;
    let to_wipe = arguments.wipe.then(|| Wipe::of_served(&status)).transpose()?;
    let share_end = ShareEnd::of(&disks_of_served(&status));
    let disk: Result<DeviceSpec, _> = status.data_disk.parse();
    let way = disk.map_or_else(
        |_| String::new(),
        |disk| way_to_payload(disk.path(), status.data_offset_bytes, status.volume_bytes),
    );
    let mut client = connect(control)?;
    let mut asked =
        DetachAsked { wait: arguments.wait, force: arguments.force, ..DetachAsked::default() };
    let mut lists = 0;
    let mut listed = None;
    loop {
        let answer = with_progress("detaching", control, |progress| client.detach(asked, progress));
        let Err(ControlError::Lost { error, hint, lost }) = answer else {
            let moved = Moved::of(&answer?);
            let what = match is_uncached {
                true => DETACHED_UNMARKED.to_owned(),
                false => format!("detached{}\n", moved.words()),
            };
            print_done_with(&format!("{what}{way}"), about(moved, listed))?;
            return match (share_end, to_wipe) {
                (Some(end), to_wipe) => end.run(to_wipe.is_some()),
                (None, Some(wipe)) => wipe.run(),
                (None, None) => Ok(()),
            };
        };
        list.tell(&lost)?;
        lists += 1;
        // Without ranges it was found when the daemon was ending.
        if !arguments.accept_damage || lost.ranges.is_empty() || lists == LISTS_MAX {
            return Err(CommandError::Lost { error, hint, lost });
        }
        listed = Some(lost);
        // Only what was listed is given up.
        asked.accept_lost = true;
    }
}
