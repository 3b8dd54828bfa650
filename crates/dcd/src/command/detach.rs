//! `dcd detach`: brings everything to the data-disk and parts it from the cache; through the dcd
//! that serves it, or here from the two disks when none does.

use std::path::Path;

use dcd_daemon::control::client::ControlError;
use dcd_daemon::control::lost::LostReport;
use dcd_daemon::disk::device::quoted;
use dcd_daemon::disk::device_spec::DeviceSpec;
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::pair::{DataDiskSize, PairOptions};
use dcd_daemon::serve::offline::{Ended, OfflineTask, run_offline};
use dcd_daemon::units_text::format_size;
use dcd_engine::EngineConfig;
use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE};
use dcd_protocol::{Command, DetachAsked};

use super::drain::{connect, with_progress};
use super::wipe::Wipe;
use crate::cli::DetachArguments;
use crate::error::CommandError;
use crate::output::print;
use crate::progress::{Progress, Unit};
use crate::settings::span;
use crate::{daemons, lost_list};

/// How often what is lost may have become more since it was listed.
const LISTS_MAX: u32 = 5;

const DETACHED_UNMARKED: &str = "detached: the data-disk holds everything; the cache-disk has failed \
and could not be marked, so make it anew with `dcd create` before you use it again\n";

pub fn run(arguments: &DetachArguments) -> Result<(), CommandError> {
    if let Some(control) = &arguments.control {
        if arguments.cancel {
            daemons::connect(control)?.request(Command::CancelDetach, &mut |_| ())?;
            return print("cancelled\n");
        }
        return through_daemon(control, arguments);
    }
    let missing = CommandError::SettingMissing;
    let cache_disk = arguments.cache_disk.clone().ok_or(missing("--cache-disk"))?;
    let data_disk = arguments.data_disk.clone().ok_or(missing("--data-disk"))?;
    let to_wipe = arguments.wipe.then(|| Wipe::of(&cache_disk, &data_disk)).transpose()?;
    if let Some(wipe) = to_wipe.as_ref().filter(|wipe| wipe.is_detached) {
        return wipe.run();
    }
    let default = EngineConfig::default();
    let drain_timeout = span(arguments.drain_timeout, default.drain_timeout);
    let engine = EngineConfig { accept_damage: arguments.accept_damage, drain_timeout, ..default };
    engine.validate()?;
    let options = PairOptions {
        cache_disk,
        data_disks: data_disk.into(),
        not_for_volumes: Some("detached"),
        engine,
        one_disk: None,
        memory_directory: arguments.memory_directory.clone(),
        memory_lost: arguments.memory_lost,
        size: DataDiskSize::Same,
        memory: None,
        pairs: PairBook::from_environment(arguments.trust_disks),
        quiet: true,
    };
    let mut progress = Progress::new("detaching", Unit::Bytes);
    let mut untold = None;
    let mut give_up = |lost: &LostReport| {
        let told = lost_list::tell(lost, arguments.lost_list.as_deref());
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
    let report = report?;
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
    if report.is_unmarked {
        print(&format!("{DETACHED_UNMARKED}{way}"))?;
        return to_wipe.map_or(Ok(()), |wipe| wipe.run());
    }
    let moved = format_size(report.lines_moved * LINE_SIZE);
    print(&format!("detached: {} stands on its own ({moved} moved)\n{way}", options.data_disks))?;
    to_wipe.map_or(Ok(()), |wipe| wipe.run())
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
    // Asked before: afterwards nobody is there.
    let status = daemons::connect(control)?.status()?;
    let is_uncached = status.uncached.is_some();
    let to_wipe = arguments.wipe.then(|| Wipe::of_served(&status)).transpose()?;
    let disk: Result<DeviceSpec, _> = status.data_disk.parse();
    let way = disk.map_or_else(
        |_| String::new(),
        |disk| way_to_payload(disk.path(), status.data_offset_bytes, status.volume_bytes),
    );
    let mut client = connect(control)?;
    let mut asked =
        DetachAsked { wait: arguments.wait, force: arguments.force, ..DetachAsked::default() };
    let mut lists = 0;
    loop {
        let answer = with_progress("detaching", |progress| client.detach(asked, progress));
        let Err(ControlError::Lost { error, hint, lost }) = answer else {
            answer?;
            let what = if is_uncached { DETACHED_UNMARKED } else { "detached\n" };
            print(&format!("{what}{way}"))?;
            return to_wipe.map_or(Ok(()), |wipe| wipe.run());
        };
        lost_list::tell(&lost, arguments.lost_list.as_deref())?;
        lists += 1;
        // Without ranges it was found when the daemon was ending.
        if !arguments.accept_damage || lost.ranges.is_empty() || lists == LISTS_MAX {
            return Err(CommandError::Lost { error, hint });
        }
        // Only what was listed is given up.
        asked.accept_lost = true;
    }
}
