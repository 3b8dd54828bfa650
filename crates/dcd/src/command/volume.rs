//! `dcd volume`: the members and sets of a volume that a running dcd serves.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand};
use dcd_daemon::control::client::for_people;
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::process::signals::Signals;
use dcd_daemon::report::volumes::{
    GrowthReport, ScrubsReport, SpareReport, TwinReport, VolumeReport, WorkReport,
};
use dcd_daemon::serve::ServeError;
use dcd_daemon::units_text::{format_size, parse_size};
use dcd_engine::units::LINE_SIZE;
use dcd_protocol::VolumeCommand;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::create_import::{self, ImportArguments};
use crate::error::CommandError;
use crate::output::{Align, Colour, Paint, Table, count};
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_done, print_json};
use crate::volume_client::VolumeClient;

/// Where a volume is served.
#[derive(Args, Debug)]
pub struct VolumeControl {
    /// The running cache: the name of its service, its UUID, the device that it serves, or its
    /// control socket.
    #[arg(long, value_name = "CACHE")]
    pub control: PathBuf,
}

/// How often progress is asked for.
const INTERVAL_NANOS: i64 = 200_000_000;

/// Members and sets of a volume.
///
/// A volume (`dcd create --volume`) lies on several data-disks, in RAID sets. docs/volume.md tells
/// how to make and keep one.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd volume status --control /run/vol.ctl
  dcd volume fail 2 --control /run/vol.ctl
  dcd volume rebuild 2 --control /run/vol.ctl
  dcd volume replace 2 /dev/sdf --control /run/vol.ctl
  dcd volume spare add /dev/sdf --control /run/vol.ctl
  dcd volume grow --control /run/vol.ctl
  dcd volume scrub --control /run/vol.ctl --no-wait
  dcd volume import --cache-disk /dev/nvme1n1p4 --data-disk /dev/sdb --data-disk /dev/sdc --data-disk /dev/sdd")]
pub struct VolumeArguments {
    /// What to do.
    #[command(subcommand)]
    what: VolumeWhat,
}

#[derive(Args, Debug)]
struct Follow {
    /// Only begin it.
    #[arg(long)]
    no_wait: bool,
    /// Print JSON when it has ended.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum VolumeWhat {
    /// Show members, sets, and what is under way
    Status {
        /// Where the volume is.
        #[command(flatten)]
        control: VolumeControl,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Change what can be changed while it is served
    #[command(after_help = "\
Examples:
  dcd volume set --pointers 278528 --control /run/vol.ctl")]
    Set {
        /// Room for so many pointers, if there is less: 16 bytes each, which the journal of the
        /// volume becomes smaller by.
        #[arg(long, value_name = "N", required = true)]
        pointers: u32,
        /// Where the volume is.
        #[command(flatten)]
        control: VolumeControl,
    },
    /// Treat a member as failed from now on
    Fail {
        /// Its number.
        #[arg(value_name = "MEMBER")]
        member: u8,
        /// Where the volume is.
        #[command(flatten)]
        control: VolumeControl,
    },
    /// Write what belongs on a member that is not up to date
    ///
    /// Ctrl-C leaves it running: `dcd volume cancel` stops it, and it can be begun again.
    Rebuild {
        /// Its number.
        #[arg(value_name = "MEMBER")]
        member: u8,
        /// Where the volume is.
        #[command(flatten)]
        control: VolumeControl,
        /// Whether to wait.
        #[command(flatten)]
        follow: Follow,
    },
    /// Put a blank disk in the place of a member
    ///
    /// What the member has is copied while the volume serves, and what it cannot read comes from the
    /// others. When all is there the new disk is the member, and the old one is let go: its label
    /// says so, and no start takes it any more. Up to then nothing has changed: Ctrl-C leaves it
    /// running, `dcd volume cancel` stops it, and so does an end of dcd. A member that is not up to
    /// date, or not there, is rebuilt on the new disk.
    #[command(after_help = "\
Examples:
  dcd volume replace 2 /dev/sdf --control /run/vol.ctl
  dcd volume replace 2 /dev/sdf --control /run/vol.ctl --no-wait")]
    Replace {
        /// Its number.
        #[arg(value_name = "MEMBER")]
        member: u8,
        /// The new disk; what is on it is lost.
        #[arg(value_name = "DISK")]
        disk: DeviceSpec,
        /// Give up lines of RAID 0 that cannot be read: they fail with I/O errors until they are
        /// written again. Without it the member is not replaced then.
        #[arg(long)]
        accept_damage: bool,
        /// Where the volume is.
        #[command(flatten)]
        control: VolumeControl,
        /// Whether to wait.
        #[command(flatten)]
        follow: Follow,
    },
    /// Disks that wait for a member to fail
    ///
    /// A spare takes the place of a member that has failed for `spare-after` by itself, and is
    /// rebuilt. Its label tells what it is: give it to the next start as one more `--data-disk`.
    #[command(after_help = "\
Examples:
  dcd volume spare add /dev/sdf --control /run/vol.ctl
  dcd volume spare remove /dev/sdf --control /run/vol.ctl")]
    Spare {
        /// What to do.
        #[command(subcommand)]
        what: SpareWhat,
    },
    /// Use what has been added to the disks of the members
    ///
    /// Make the members larger first (lvextend, truncate -s), or replace them by larger disks; and
    /// the cache-disk, because its tables grow too: they are written once more behind all that is
    /// on it. The set that lies last on its members becomes larger; for another set there is a new
    /// one of the same form. Nothing is moved, clients are served meanwhile, and up to the end
    /// nothing has changed. NBD clients see the new size when they connect again, others when dcd
    /// is started again.
    #[command(after_help = "\
Examples:
  dcd volume grow --control /run/vol.ctl
  dcd volume grow --set 0 --size 12T --control /run/vol.ctl")]
    Grow {
        /// The set that is to grow [default: the one that lies last on its members].
        #[arg(long, value_name = "SET")]
        set: Option<u8>,
        /// Size that users are to see [default: all that the sets hold].
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        size: Option<u64>,
        /// Where the volume is.
        #[command(flatten)]
        control: VolumeControl,
        /// Print JSON when it has ended.
        #[arg(long)]
        json: bool,
    },
    /// Read everything that is redundant, compare, and repair
    ///
    /// It begins by itself, too, `scrub-every` after the last time, and leaves the members to others
    /// then; begun by hand it goes as fast as they let it. Ctrl-C leaves it running:
    /// `dcd volume cancel` stops it. Exit code 4: lines of the volume are lost.
    Scrub {
        /// Go on where one has stopped that has not come to its end.
        #[arg(long)]
        resume: bool,
        /// Where the volume is.
        #[command(flatten)]
        control: VolumeControl,
        /// Whether to wait.
        #[command(flatten)]
        follow: Follow,
    },
    /// Make a new cache-disk for a volume that has lost its own
    ///
    /// The volume is found by the twin of its tables, which two of its members have. What was
    /// destaged is there; what was only in the log of the old cache-disk is lost. Where the members
    /// were being written to, their content is believed: of mirrors the first, of RAID 5 the data.
    /// Nothing is served: `dcd serve` with the new cache-disk does that.
    #[command(after_help = "\
Examples:
  dcd volume import --cache-disk /dev/nvme1n1p4 --data-disk /dev/sdb --data-disk /dev/sdc --data-disk /dev/sdd
  dcd volume import --cache-disk new.img --cache-size 4G --data-disk /dev/sdb --data-disk /dev/sdc --degraded")]
    Import(ImportArguments),
    /// Stop the rebuild, replacement, scrub or growth under way
    ///
    /// A scrub goes on where it was when the next is due by itself, or with
    /// `dcd volume scrub --resume`. A growth is stopped until the superblock names the larger
    /// tables; behind that the volume has grown.
    Cancel {
        /// Where the volume is.
        #[command(flatten)]
        control: VolumeControl,
    },
}

#[derive(Subcommand, Debug)]
enum SpareWhat {
    /// Make a blank disk a spare
    Add {
        /// The disk; what is on it is lost. As large as the largest member, at least.
        #[arg(value_name = "DISK")]
        disk: DeviceSpec,
        /// Where the volume is.
        #[command(flatten)]
        control: VolumeControl,
    },
    /// Let go of a spare
    ///
    /// It is blank then, unless it takes no writes.
    Remove {
        /// The disk, as `dcd volume status` names it.
        #[arg(value_name = "DISK")]
        disk: PathBuf,
        /// Where the volume is.
        #[command(flatten)]
        control: VolumeControl,
    },
}

pub fn run(arguments: &VolumeArguments) -> Result<(), CommandError> {
    let connect = |control: &VolumeControl| VolumeClient::connect(&control.control);
    match &arguments.what {
        VolumeWhat::Status { control, json } => {
            let report = connect(control)?.report;
            match json {
                true => print_json(&report),
                false => print(&panel(&for_people(&report), Paint::for_stdout())),
            }
        }
        VolumeWhat::Import(arguments) => create_import::run(arguments),
        VolumeWhat::Set { pointers, control } => {
            let mut volume = connect(control)?;
            volume.ask(&VolumeCommand::SetPointers { pointers: *pointers })?;
            let VolumeReport { pointers_max, pointers, .. } = volume.status()?;
            print_done(&format!(
                "room for {pointers_max} pointers, of which there are {pointers}\n"
            ))
        }
        VolumeWhat::Fail { member, control } => {
            connect(control)?.ask(&VolumeCommand::Fail { member: *member })?;
            print_done(&format!("member {member} is treated as failed\n"))
        }
        VolumeWhat::Rebuild { member, control, follow } => {
            let mut volume = connect(control)?;
            let signals = signals()?;
            volume.ask(&VolumeCommand::Rebuild { member: *member })?;
            follow_work(volume, &signals, "rebuilding", follow, "")
        }
        VolumeWhat::Replace { member, disk, accept_damage, control, follow } => {
            let mut volume = connect(control)?;
            let signals = signals()?;
            volume.replace(*member, disk, *accept_damage)?;
            let then = format!(
                "Then the next start has to be given the new disk in the place of the old one: --data-disk {}\n",
                disk.absolute()
            );
            follow_work(volume, &signals, "replacing", follow, &then)
        }
        VolumeWhat::Spare { what: SpareWhat::Add { disk, control } } => {
            let mut volume = connect(control)?;
            volume.add_spare(disk)?;
            let name = disk.path().display().to_string();
            let absolute = disk.absolute().path().display().to_string();
            add_spare(volume, &absolute, &name)
        }
        VolumeWhat::Spare { what: SpareWhat::Remove { disk, control } } => {
            remove_spare(connect(control)?, disk)
        }
        VolumeWhat::Grow { set, size, control, json } => {
            grow(connect(control)?, &VolumeCommand::Grow { set: *set, bytes: *size }, *json)
        }
        VolumeWhat::Scrub { resume, control, follow } => {
            let mut volume = connect(control)?;
            let signals = signals()?;
            volume.ask(match resume {
                true => &VolumeCommand::ResumeScrub,
                false => &VolumeCommand::Scrub,
            })?;
            follow_work(volume, &signals, "scrubbing", follow, "")
        }
        VolumeWhat::Cancel { control } => {
            connect(control)?.ask(&VolumeCommand::CancelWork)?;
            print_done("cancelled\n")
        }
    }
}

fn signals() -> Result<Signals, CommandError> {
    Ok(Signals::install().map_err(ServeError::system("receive signals"))?)
}

/// Shows how far work is until it has ended or nobody wants to see it. `then`: what is to be done
/// when it has ended.
fn follow_work(
    mut volume: VolumeClient,
    signals: &Signals,
    what: &'static str,
    follow: &Follow,
    then: &str,
) -> Result<(), CommandError> {
    if follow.no_wait {
        return print_done(&format!("{what}; `dcd volume status` shows how far it is\n{then}"));
    }
    let mut progress = Progress::new(what, Unit::Bytes);
    let report = loop {
        let report = volume.status()?;
        let Some(work) = &report.work else { break report };
        progress.update(work.bytes_done, work.bytes_total);
        let mut waiting = [PollFd::new(signals, PollFlags::IN)];
        let _ = poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: INTERVAL_NANOS }));
        if signals.take().is_some() {
            progress.finish();
            return print_done(&format!("it goes on; `dcd volume cancel` stops it\n{then}"));
        }
    };
    progress.finish();
    if let Some(WorkReport { is_cut_short: true, kind, lines_unreadable, because, .. }) =
        &report.last_work
    {
        let (kind, lines_unreadable) = (kind.clone(), *lines_unreadable);
        let because = because.clone();
        return Err(CommandError::WorkCutShort { kind, because, lines_unreadable });
    }
    if follow.json {
        print_json(&report)?;
    } else {
        let found = report.last_work.as_ref().map_or(String::new(), mismatches);
        print(&format!(
            "{what} has ended{found}\n{}{then}",
            panel(&for_people(&report), Paint::for_stdout())
        ))?;
    }
    match report.lines_lost() {
        0 => Ok(()),
        lines => Err(CommandError::LinesLost { lines }),
    }
}

/// Waits until the volume has grown, or has not.
fn grow(mut volume: VolumeClient, command: &VolumeCommand, json: bool) -> Result<(), CommandError> {
    let before = volume.report.growth.as_ref().map_or(0, |growth| growth.number);
    volume.ask(command)?;
    let (report, growth) = loop {
        let report = volume.status()?;
        let newest = report.growth.clone().filter(|it| it.number > before && it.is_over());
        match newest {
            Some(growth) => break (report, growth),
            None => pause(),
        }
    };
    if let Some(because) = growth.because {
        return Err(CommandError::NotGrown { because });
    }
    if json {
        return print_json(&report);
    }
    let (old, new) = (format_size(growth.bytes_before), format_size(growth.bytes_wanted));
    let panel = panel(&for_people(&report), Paint::for_stdout());
    print(&format!("grown: from {old} to {new}\n{panel}"))
}

/// Waits a moment.
fn pause() {
    let mut nothing: [PollFd<'_>; 0] = [];
    let _ = poll(&mut nothing, Some(&Timespec { tv_sec: 0, tv_nsec: INTERVAL_NANOS }));
}

/// Waits until a disk that was handed over is a spare. `absolute`: as the daemon knows it.
fn add_spare(mut volume: VolumeClient, absolute: &str, name: &str) -> Result<(), CommandError> {
    loop {
        let report = volume.status()?;
        // Of several of one name that was the last to come.
        let is_it = |spare: &&SpareReport| spare.disk.as_deref() == Some(absolute);
        match report.spares.iter().rfind(is_it).map(|spare| spare.state.as_str()) {
            Some("labelling") => pause(),
            Some("failed") => {
                return Err(CommandError::SpareNotLabelled { disk: name.into() });
            }
            // One that was used at once is none any more.
            _ => break,
        }
    }
    print_done(&format!(
        "{name} is a spare. Give it to the next start as one more data-disk: --data-disk {absolute}\n"
    ))
}

fn remove_spare(mut volume: VolumeClient, disk: &Path) -> Result<(), CommandError> {
    let asked = disk.canonicalize().unwrap_or_else(|_| disk.to_owned());
    let is_it = |name: &&String| {
        let name = Path::new(name.as_str());
        name == disk || name.canonicalize().is_ok_and(|known| known == asked)
    };
    let mut names = volume.report.spares.iter().filter_map(|spare| spare.disk.as_ref());
    // What is none the daemon refuses.
    let name = names.find(is_it).cloned().unwrap_or_else(|| disk.display().to_string());
    // There may be two of one name: of a disk that was taken out and has come again.
    let of_that_name = |report: &VolumeReport| {
        report.spares.iter().filter(|spare| spare.disk.as_ref() == Some(&name)).count()
    };
    let before = of_that_name(&volume.report);
    volume.ask(&VolumeCommand::RemoveSpare { disk: name.clone() })?;
    while of_that_name(&volume.status()?) >= before.max(1) {
        pause();
    }
    print_done(&format!("{} is no spare any more; take it out of the data-disks\n", disk.display()))
}

/// `spare: /dev/sdf, 4 TiB, ready`, and when one is used.
fn spare_words(report: &VolumeReport, paint: Paint) -> String {
    let mut words = String::new();
    for spare in &report.spares {
        let place = spare.member.map_or(String::new(), |member| format!(" for member {member}"));
        let line = format!(
            "spare: {}, {}, {}{place}",
            spare.disk.as_deref().unwrap_or("-"),
            format_size(spare.size_bytes),
            spare.state
        );
        let line = match spare.state.as_str() {
            "failed" => paint.paint(Colour::Bad, &line),
            _ => line,
        };
        words += &format!("{line}\n");
    }
    words += match (report.spares.is_empty(), report.spare_after_seconds) {
        (false, 0) => "spares are not used by themselves (spare-after = 0)\n",
        _ => "",
    };
    words
}

/// A growth under way, or one that has not come to its end.
fn growth_words(growth: &GrowthReport) -> String {
    let sizes = format!(
        "from {} to {}",
        format_size(growth.bytes_before),
        format_size(growth.bytes_wanted)
    );
    let doing = match (growth.state.as_str(), &growth.because) {
        ("grown", _) => return String::new(),
        (_, Some(because)) => return format!("has not grown {sizes}: {because}\n"),
        ("emptying", _) => "changes under way are recorded",
        ("tables", _) => "its tables are copied to a larger area",
        ("superblock", _) => "the superblock is written",
        ("twin", _) => "the members get tables of the new size",
        (other, _) => other,
    };
    format!("grows {sizes}: {doing}\n")
}

fn mismatches(work: &WorkReport) -> String {
    let found = match work.mismatches {
        0 => String::new(),
        found => format!(", {} not as it should have been", count(found, "line")),
    };
    match work.lines_not_compared {
        0 => found,
        passed => {
            let passed = count(passed, "line");
            format!("{found}, {passed} not compared (their checksums cannot be read)")
        }
    }
}

/// `, 34 MiB/s, 2 h left`.
fn rate_words(work: &WorkReport) -> String {
    let left = |seconds| format!(", {} left", span_words(seconds));
    match work.bytes_per_second {
        0 => String::new(),
        rate => format!(
            ", {}/s{}",
            format_size(rate),
            work.seconds_left().map_or_else(String::new, left)
        ),
    }
}

/// Seconds since 1970.
fn today() -> u64 {
    let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    today.map_or(0, |since| since.as_secs())
}

/// `3 days`, in the largest unit of which there are two or more.
fn span_words(seconds: u64) -> String {
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")];
    let unit = units.into_iter().find(|(unit, _)| seconds >= 2 * unit);
    let (unit, name) = unit.unwrap_or((1, "second"));
    count(seconds / unit, name)
}

/// When a volume was scrubbed, and when that is due.
fn scrub_words(scrub: &ScrubsReport, today: u64) -> String {
    let mut words = match scrub.ended {
        None => "scrub: no whole one yet".into(),
        Some(ended) => {
            let found = match scrub.found {
                0 => "all was as it should be".into(),
                found => format!("{} not as they should have been", count(found, "line")),
            };
            format!(
                "scrub: the last ended {} ago, {found}",
                span_words(today.saturating_sub(ended))
            )
        }
    };
    if let Some(unfinished) = &scrub.unfinished {
        let share = unfinished.bytes_done as f64 * 100.0 / unfinished.bytes_total.max(1) as f64;
        let is = if unfinished.is_put_off { "was stopped" } else { "is" };
        words += &format!("; one {is} at {share:.1} %");
    }
    words += &match (scrub.due, scrub.waits_for_members) {
        (_, true) => "; due, and waits until all members are up to date".into(),
        (Some(due), false) if due > today => format!("; due in {}", span_words(due - today)),
        (Some(_), false) => String::new(),
        (None, false) if scrub.every_seconds == 0 => "; not by itself (scrub-every = 0)".into(),
        (None, false) => String::new(),
    };
    words + "\n"
}

/// What would be found without the cache-disk.
fn twin_words(twin: &TwinReport, paint: Paint) -> String {
    let numbers: Vec<String> = twin.holders.iter().map(u8::to_string).collect();
    let unsettled = match twin.regions_marked {
        0 => String::new(),
        marked => format!(", without checksums of {marked} of {}", count(twin.regions, "region")),
    };
    match (twin.holders.is_empty(), twin.is_whole()) {
        (true, _) if twin.is_built => "twin: being written for the first time".into(),
        (true, _) => paint.paint(Colour::Bad, "twin: no member has it; the cache-disk is needed"),
        (false, false) => {
            let what = format!("twin: on member {} alone{unsettled}", numbers.join(", "));
            paint.paint(Colour::Bad, &what)
        }
        (false, true) => format!("twin: on members {}{unsettled}", numbers.join(", ")),
    }
}

/// Members, sets and work, for people.
pub fn panel(report: &VolumeReport, paint: Paint) -> String {
    let mut members = Table::new(&[
        ("member", Align::Right),
        ("state", Align::Left),
        ("to write", Align::Right),
        ("errors", Align::Right),
        ("rotten", Align::Right),
        ("mended", Align::Right),
        ("late", Align::Right),
        ("disk", Align::Left),
    ]);
    for member in &report.members {
        members.row(vec![
            member.member.to_string(),
            match member.suspect {
                true => format!("{}, suspect", member.state),
                false => member.state.clone(),
            },
            match member.bytes_to_rebuild {
                0 => "-".into(),
                bytes => format_size(bytes),
            },
            member.errors.to_string(),
            member.lines_rotten.to_string(),
            member.lines_mended.to_string(),
            member.times_late.to_string(),
            member.disk.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    let mut sets = Table::new(&[
        ("set", Align::Right),
        ("level", Align::Left),
        ("class", Align::Left),
        ("members", Align::Left),
        ("size", Align::Right),
        ("used", Align::Right),
        ("temporary", Align::Right),
        ("used", Align::Right),
    ]);
    let size = |extents: u64| format_size(extents.saturating_mul(report.extent_bytes));
    for set in &report.sets {
        let numbers: Vec<String> = set.members.iter().map(u8::to_string).collect();
        sets.row(vec![
            set.set.to_string(),
            format!("RAID {}", set.level),
            set.class.clone(),
            numbers.join(","),
            size(set.extents),
            size(set.extents_used),
            size(set.temporary_extents),
            size(set.temporary_used),
        ]);
    }
    let waiting = match report.migrations_waiting {
        0 => String::new(),
        waiting => format!(", {} to be moved", count(waiting, "extent")),
    };
    let replicas = match report.replicas {
        0 => String::new(),
        replicas => format!(", {} of hot data on fast devices", size(replicas)),
    };
    let work = match &report.work {
        None => String::new(),
        Some(work) => {
            let member = work.member.map_or(String::new(), |member| format!(" of member {member}"));
            let share = work.done as f64 * 100.0 / work.total.max(1) as f64;
            let missed = if work.is_of_missed { " of what it has missed" } else { "" };
            format!(
                "{}{member}: {share:.1} %{missed}{}{}\n",
                work.kind,
                rate_words(work),
                mismatches(work)
            )
        }
    };
    let growth = report.growth.as_ref().map_or(String::new(), growth_words);
    let whole =
        report.members.iter().all(|member| matches!(member.state.as_str(), "up-to-date" | "late"));
    let state = match (report.has_failed, whole, report.lines_lost()) {
        (true, ..) => paint.paint(Colour::Bad, "takes no changes: its journal cannot be written"),
        (false, true, 0) => paint.paint(Colour::Good, "whole"),
        (false, true, _) => paint.paint(Colour::Bad, "with lost lines"),
        (false, false, _) => paint.paint(Colour::Bad, "degraded"),
    };
    let mut lost = String::new();
    for (lines, what) in [
        (report.raid0_lines_lost, "of RAID 0 went with a disk that was replaced"),
        (report.redundant_lines_lost, "of RAID 1 and 5 lost, on more disks than they bear"),
    ] {
        if lines > 0 {
            let what = format!("{} {what}", format_size(lines.saturating_mul(LINE_SIZE)));
            let what = paint.paint(Colour::Bad, &what);
            lost += &format!("{what}: reads fail until it is written again\n");
        }
    }
    if report.log_held_bytes > 0 {
        let (held, most) =
            (format_size(report.log_held_bytes), format_size(report.log_held_max_bytes));
        let refused = match report.changes_refused {
            0 => String::new(),
            refused => format!("; {} refused", count(refused, "change")),
        };
        let what = format!("{held} of the log wait for members, of at most {most}{refused}");
        lost += &format!("{}\n", paint.paint(Colour::Bad, &what));
    }
    if let Some(twin) = &report.twin {
        lost += &format!("{}\n", twin_words(twin, paint));
    }
    let pointers = match report.pointers {
        0 => String::new(),
        pointers => format!("; {pointers} of {} pointers", report.pointers_max),
    };
    format!(
        "volume of {}, {state}: {} placed{waiting}{replicas}{pointers}; {} of memory\n{lost}{}{}{}\n{}{work}{growth}",
        format_size(report.volume_bytes),
        size(report.extents_mapped),
        format_size(report.memory_bytes),
        scrub_words(&report.scrub, today()),
        spare_words(report, paint),
        members.render(paint),
        sets.render(paint),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growth_is_told_until_it_is_over_and_why_it_is_not() {
        let growth = |state: &str, because: Option<&str>| GrowthReport {
            number: 1,
            bytes_before: 1 << 30,
            bytes_wanted: 3 << 30,
            state: state.into(),
            because: because.map(Into::into),
        };
        assert_eq!(growth_words(&growth("grown", None)), "");
        assert_eq!(
            growth_words(&growth("tables", None)),
            "grows from 1 GiB to 3 GiB: its tables are copied to a larger area\n"
        );
        assert_eq!(
            growth_words(&growth("cut-short", Some("it was cancelled"))),
            "has not grown from 1 GiB to 3 GiB: it was cancelled\n"
        );
    }

    #[test]
    fn a_scrub_tells_what_it_has_passed_by() {
        let mut work = WorkReport { kind: "scrub".into(), ..WorkReport::default() };
        assert_eq!(mismatches(&work), "");
        work.mismatches = 1;
        assert_eq!(mismatches(&work), ", 1 line not as it should have been");
        work.lines_not_compared = 512;
        assert_eq!(
            mismatches(&work),
            ", 1 line not as it should have been, 512 lines not compared (their checksums cannot be read)"
        );
    }
}
