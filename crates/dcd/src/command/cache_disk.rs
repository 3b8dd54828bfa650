//! `dcd cache-disk`: the size of the log, and the legs of a cache-disk that is on several disks, of
//! a running dcd.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use dcd_client::plain::plain;
use dcd_daemon::control::client::{ControlClient, ControlError};
use dcd_daemon::device::device_file::DeviceFile;
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::network::check_handed_over;
use dcd_daemon::device::shares::{Place, whole_name};
use dcd_daemon::pair::leg_share::LegShare;
use dcd_daemon::pair::legs::{NewLegError, new_witness};
use dcd_daemon::serve::ServeError;
use dcd_daemon::serve::own_disks::check_witness;
use dcd_daemon::units_text::{format_size, parse_size};
use dcd_engine::io::LegError;
use dcd_engine::units::Uuid;
use dcd_protocol::{LegCommand, LegReport, ResizeAsked, ResizeDone, WitnessReport};
use serde_json::json;

use crate::command::drain;
use crate::command::running::Of;
use crate::command::share_end::give_back_leg;
use crate::command::wipe::{disks_of_served, there};
use crate::daemons;
use crate::error::CommandError;
use crate::output::{Align, Paint, Table};
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

/// The legs of a cache-disk that is on several disks, and the size of the log.
///
/// Each leg holds all of the log, so that one of them may fail: dcd goes on with the others, and
/// says so. `dcd create` with several --cache-disk makes such a cache, and `dcd serve --new-leg
/// DISK` makes one of a cache on one disk.
#[derive(Args, Debug)]
pub struct CacheDiskArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// List the legs, and how they are.
    Status(Of),
    /// Make a blank disk one more leg, while dcd serves.
    ///
    /// It needs the size that `dcd cache-disk status` tells. A disk that was a leg of this cache,
    /// and has missed what the others have, is taken as well. DISK/NAME makes the share NAME on a
    /// disk that several caches share, or on a blank one, in the size that is needed. Waits until it is filled; Ctrl-C ends
    /// only the waiting. The next start has to be told of it: one more --cache-disk, or in the file
    /// of a service in the list cache-disk.
    #[command(after_help = "\
Example:
  dcd cache-disk add /dev/nvme2n1p4 --control /run/sdb.ctl
  dcd cache-disk add /dev/nvme2n1p4/sdb --control /run/sdb.ctl")]
    Add {
        /// The disk: a block device or a file, not in use; or a share of one.
        #[arg(value_name = "DISK")]
        disk: DeviceSpec,
        #[command(flatten)]
        of: Of,
        /// Do not wait until it is filled.
        #[arg(long)]
        no_wait: bool,
    },
    /// Put a blank disk in the place of a leg: add it, wait until it is filled, take the leg out.
    ///
    /// If it is ended before that, both are legs. Until the new one is filled all legs that were in
    /// sync stay so. DISK/NAME is a share, as for `add`; the room of a leg that is one is given back.
    #[command(after_help = "\
Example:
  dcd cache-disk replace 0b5c9e8a-3f1d-4c62-9a77-5d2e8f0146b3 /dev/nvme2n1p4 --control /run/sdb.ctl")]
    Replace {
        /// The leg, as `dcd cache-disk status` names it.
        #[arg(value_name = "UUID")]
        leg: Uuid,
        /// The disk: a block device or a file, not in use; or a share of one.
        #[arg(value_name = "DISK")]
        disk: DeviceSpec,
        #[command(flatten)]
        of: Of,
    },
    /// Make a blank file or device the witness of the legs, while dcd serves.
    ///
    /// A few KiB on a third disk that say who counts, so that a start with one leg of two needs
    /// nobody. It needs at least 72 KiB; a file that is not there is made. The next start has to be
    /// told of it: --witness, or `witness` in the file of a service.
    #[command(after_help = "\
Example:
  dcd cache-disk add-witness /srv/sdb.witness --control /run/sdb.ctl")]
    AddWitness {
        /// The file or device, on another disk than the legs.
        #[arg(value_name = "FILE|DEVICE")]
        file: DeviceSpec,
        #[command(flatten)]
        of: Of,
    },
    /// Do without the witness from now on: a start needs all legs in sync again.
    #[command(after_help = "\
Example:
  dcd cache-disk remove-witness --control /run/sdb.ctl")]
    RemoveWitness {
        #[command(flatten)]
        of: Of,
    },
    /// Fill a leg that has failed, or was left out at the start, and use it again.
    ///
    /// It must answer again. One that was taken out comes back with `dcd cache-disk add`. Waits
    /// until it is filled; Ctrl-C ends only the waiting.
    #[command(after_help = "\
Example:
  dcd cache-disk fill 0b5c9e8a-3f1d-4c62-9a77-5d2e8f0146b3 --control /run/sdb.ctl")]
    Fill {
        /// The leg, as `dcd cache-disk status` names it.
        #[arg(value_name = "UUID")]
        leg: Uuid,
        #[command(flatten)]
        of: Of,
        /// Do not wait until it is filled.
        #[arg(long)]
        no_wait: bool,
    },
    /// Give the log another size, while dcd serves: up to SIZE, or to the end of the cache-disk.
    ///
    /// To grow it, make the cache-disk larger first (all legs, if there are several): the file with
    /// `truncate`, a logical volume with `lvextend`. Nothing that is there moves. To shrink it, what
    /// is in its last segments goes to the data-disk before; then the cache-disk may be cut to the
    /// size that is told.
    ///
    /// With --read-area the read area gets another size instead, and the log the rest of what the
    /// cache was made with: what is copied stays. The log empties what it gives up, annexes that it
    /// has grown by too; a resize behind it gives it the rest of the cache-disk again. Sequences
    /// that were recorded or pinned are not given up.
    ///
    /// A share of a cache-disk takes what it needs of the free room of the disk, wherever that lies,
    /// and gives back what it needs no more. So room moves from one cache to another: make the one
    /// smaller, then the other larger.
    ///
    /// Ctrl-C, SIGTERM or the end of this command cancel it: the log has the size that it had, and
    /// the exit code is 7. When nothing more gets to the data-disk for the daemon's --drain-timeout,
    /// it ends likewise, with exit code 8.
    #[command(after_help = "\
Examples:
  lvextend -L 200G vg/cache && dcd cache-disk resize --control /run/sdb.ctl
  dcd cache-disk resize 100G --control /run/sdb.ctl && lvreduce -L 100G vg/cache
  dcd cache-disk resize 10G --control /run/sdb.ctl && dcd cache-disk resize 30G --control /run/sdc.ctl
  dcd cache-disk resize --read-area 20G --control /run/sdb.ctl")]
    Resize {
        /// Bytes of the cache-disk that may be used, from its beginning: 100G, for example; of a
        /// share, its size. Without it all that there are; for a share all that are free, too.
        #[arg(value_name = "SIZE", value_parser = parse_size)]
        size: Option<u64>,
        /// Bytes of the cache-disk that the read area may take: 20G, for example, or 0 for none.
        #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "size")]
        read_area: Option<u64>,
        #[command(flatten)]
        of: Of,
    },
    /// Do without a leg from now on: when this is answered the disk may be unplugged.
    ///
    /// dcd lets go of it, as soon as it has answered what it was asked. The room of a share is given
    /// back to its disk.
    #[command(
        visible_alias = "remove",
        after_help = "\
Example:
  dcd cache-disk take-out 0b5c9e8a-3f1d-4c62-9a77-5d2e8f0146b3 --control /run/sdb.ctl"
    )]
    TakeOut {
        /// The leg, as `dcd cache-disk status` names it.
        #[arg(value_name = "UUID")]
        leg: Uuid,
        #[command(flatten)]
        of: Of,
    },
}

/// Removes a file that was made to become a witness, and was refused: a refusal changes nothing.
/// Only while it is blank, and locked as whoever uses it would lock it.
fn remove_made_witness(path: &Path) {
    if let Ok(_locked) = new_witness(path) {
        // One that stays is in nobody's way, and the refusal is what counts.
        let _ = std::fs::remove_file(path);
    }
}

/// How often it is looked how far a fill is.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

pub fn run(arguments: &CacheDiskArguments) -> Result<(), CommandError> {
    match &arguments.what {
        What::Status(of) => {
            let mut client = daemons::connect(&of.control)?;
            let (legs, witness) = (client.legs()?, client.leg_witness()?);
            match of.json {
                true => print_json(&json!({ "legs": legs, "witness": witness })),
                false => {
                    let line = witness.map(|it| format!("witness {}\n", witness_words(&it)));
                    print(&(table(&legs) + &line.unwrap_or_default()))
                }
            }
        }
        What::AddWitness { file, of } => {
            let mut client = daemons::connect(&of.control)?;
            let status = client.status()?;
            let mut disks = disks_of_served(&status);
            let data_disk: Result<DeviceSpec, _> = status.data_disk.parse();
            disks.extend(data_disk.ok().map(|disk| there(&status).join(disk.path())));
            check_witness(file.path(), disks.iter().map(PathBuf::as_path))?;
            let is_made = file.path().symlink_metadata().is_err();
            let opened = new_witness(file.path()).map_err(ServeError::from)?;
            let added = client.add_witness(&file.absolute(), opened);
            if is_made && matches!(added, Err(ControlError::Refused { .. })) {
                remove_made_witness(file.path());
            }
            let name = added?;
            match of.json {
                true => print_json(&json!({ "witness": name.to_string() })),
                false => print(&format!(
                    "{name} is the witness: `dcd cache-disk status` tells when it has a say\nThe next start has to be given it: --witness {}\n",
                    file.absolute()
                )),
            }
        }
        What::RemoveWitness { of } => {
            let mut client = daemons::connect(&of.control)?;
            let Some(witness) = client.leg_witness()?.filter(|it| it.state != "missing") else {
                return Err(CommandError::NoWitness);
            };
            client.ask_legs(LegCommand::TakeOut { leg: witness.witness.clone() })?;
            match of.json {
                true => print_json(&json!({ "witness": witness.witness, "out": true })),
                false => print("the witness is taken out: a start needs all legs in sync\n"),
            }
        }
        What::Add { disk, of, no_wait } => {
            let mut client = daemons::connect(&of.control)?;
            let leg = add(&mut client, disk)?;
            if !no_wait {
                wait(&mut client, leg)?;
            }
            match (of.json, no_wait) {
                (true, _) => print_json(&json!({ "leg": leg.to_string(), "filled": !no_wait })),
                (false, true) => print(&format!(
                    "leg {leg} is being filled: `dcd cache-disk status` tells how far it is\n{}",
                    next_start(disk)
                )),
                (false, false) => {
                    print(&format!("filled: leg {leg} is in sync\n{}", next_start(disk)))
                }
            }
        }
        What::Replace { leg, disk, of } => {
            let mut client = daemons::connect(&of.control)?;
            let legs = client.legs()?;
            let is_there = |it: &LegReport| !["missing", "taken-out"].contains(&it.state.as_str());
            if !legs.iter().any(|it| it.leg == leg.to_string() && is_there(it)) {
                return Err(CommandError::LegGone { leg: *leg });
            }
            let new = add(&mut client, disk)?;
            wait(&mut client, new)?;
            let share = take_out(&mut client, *leg)?;
            match of.json {
                true => print_json(
                    &json!({ "leg": new.to_string(), "out": leg.to_string(), "share": share }),
                ),
                false => print(&format!(
                    "filled: leg {new} is in sync; leg {leg} is taken out{}\n{}",
                    share.map_or(": its disk may be unplugged".into(), |it| format!("\n{it}")),
                    next_start(disk)
                )),
            }
        }
        What::Fill { leg, of, no_wait } => {
            let mut client = daemons::connect(&of.control)?;
            client.ask_legs(LegCommand::Fill { leg: leg.to_string() })?;
            let filled = if *no_wait { None } else { Some(wait(&mut client, *leg)?) };
            match (of.json, filled) {
                (true, filled) => {
                    print_json(&json!({ "leg": leg.to_string(), "filled": filled.is_some() }))
                }
                (false, None) => {
                    print("it is being filled: `dcd cache-disk status` tells how far it is\n")
                }
                (false, Some(())) => print("filled: it is in sync\n"),
            }
        }
        What::Resize { size, read_area, of } => {
            let mut client = drain::connect(&of.control)?;
            let mut progress = Progress::new("emptying", Unit::Bytes);
            let asked = ResizeAsked { bytes: *size, read_area: *read_area };
            let done = client.resize(asked, &mut |so_far| progress.lines(so_far));
            progress.finish();
            let done = done?;
            match of.json {
                true => print_json(&json!(done)),
                false => print(&match read_area {
                    None => resized(&done),
                    Some(_) => read_area_resized(&done),
                }),
            }
        }
        What::TakeOut { leg, of } => {
            let mut client = daemons::connect(&of.control)?;
            let share = take_out(&mut client, *leg)?;
            match of.json {
                true => print_json(&json!({ "leg": leg.to_string(), "out": true, "share": share })),
                false => print(&match share {
                    None => "taken out: the disk may be unplugged\n".into(),
                    Some(share) => format!("taken out\n{share}\n"),
                }),
            }
        }
    }
}

fn resized(done: &ResizeDone) -> String {
    let size =
        |segments: u32| format_size(u64::from(segments).saturating_mul(done.segment_size_bytes));
    let (what, and) = match done.segments > done.segments_before {
        true => ("grown", ""),
        false => ("shrunk", ": it may be cut to so many"),
    };
    let share = match (done.share_bytes, &done.not_given_back) {
        (None, _) => String::new(),
        (Some(bytes), None) => format!("the share has {}\n", format_size(bytes)),
        (Some(bytes), Some(why)) => format!(
            "the share has {}: what its log has not is given back at the next start ({})\n",
            format_size(bytes),
            plain(why)
        ),
    };
    // What of it may be cut off is of no use to anybody else.
    let and = if share.is_empty() { and } else { "" };
    format!(
        "{what}: the log has {} ({} segments, {} before)\n{} bytes of the cache-disk are used{and}\n{share}",
        size(done.segments),
        done.segments,
        done.segments_before,
        done.bytes,
    )
}

fn read_area_resized(done: &ResizeDone) -> String {
    let log = |segments: u32| u64::from(segments).saturating_mul(done.segment_size_bytes);
    format!(
        "the read area has room for {} ({} before)\nthe log has {} ({} before); {} bytes of the cache-disk are used\n",
        format_size(done.read_area_bytes),
        format_size(done.read_area_bytes_before),
        format_size(log(done.segments)),
        format_size(log(done.segments_before)),
        done.bytes,
    )
}

/// Has a disk become a leg, or a share of one that is made for it; its name.
fn add(client: &mut ControlClient, disk: &DeviceSpec) -> Result<Uuid, CommandError> {
    check_handed_over(disk.path()).map_err(ServeError::device("disk"))?;
    if Place::of(disk.path()).share.is_none() {
        let opened = DeviceFile::open(disk.path()).map_err(ServeError::device("disk"))?;
        return Ok(client.add_leg(&disk.absolute(), opened)?);
    }
    let mut of = client.leg_of()?;
    let working_directory = there(&client.status()?);
    let is_it = |leg: &LegReport| {
        let spec = leg.disk.as_ref().and_then(|disk| disk.parse::<DeviceSpec>().ok());
        let path = spec.map(|spec| whole_name(&working_directory.join(spec.path())));
        leg.state != "taken-out" && path.is_some_and(|path| path == whole_name(disk.path()))
    };
    if client.legs()?.iter().any(is_it) {
        return Err(ServeError::from(NewLegError::Leg(LegError::InUse)).into());
    }
    // As a note of who it is for, which others read elsewhere.
    let data_disk = whole_name(&working_directory.join(&of.data_disk));
    of.data_disk = match data_disk.exists() {
        true => data_disk.display().to_string(),
        // The members of a volume, or a disk elsewhere.
        false => String::new(),
    };
    let (share, opened) = LegShare::take(disk.path(), &of).map_err(ServeError::from)?;
    let added = client.add_leg(&disk.absolute(), opened);
    // It is in use by now. Without an answer it may be, too.
    if !matches!(added, Err(ControlError::Refused { .. })) {
        share.into_iter().for_each(LegShare::leave_it);
    }
    Ok(added?)
}

/// Takes a leg out. If it is a share of a disk, gives its room back; what is to be said of that. Asked
/// again, it gives back what it did not then.
fn take_out(client: &mut ControlClient, leg: Uuid) -> Result<Option<String>, CommandError> {
    let status = client.status()?;
    let cache = client.leg_of()?.cache;
    let name = leg.to_string();
    let found = client.legs()?.into_iter().find(|it| it.leg == name);
    let is_out = found.as_ref().is_some_and(|it| it.state == "taken-out");
    let spec = found.and_then(|it| it.disk).and_then(|disk| disk.parse::<DeviceSpec>().ok());
    let path = spec.map(|spec| there(&status).join(spec.path()));
    let place = path.as_deref().map(Place::of).filter(|place| place.share.is_some());
    let given_back = |place: &Place| give_back_leg(&place.disk, cache, leg);
    if is_out && place.as_ref().is_some_and(|place| given_back(place).is_ok()) {
        return Ok(path.map(|path| format!("given back: {} is free again", path.display())));
    }
    client.ask_legs(LegCommand::TakeOut { leg: name })?;
    let (Some(path), Some(place)) = (path, place) else { return Ok(None) };
    Ok(Some(match given_back(&place) {
        Ok(()) => format!("given back: {} is free again", path.display()),
        // The leg is out, which is what was asked for; its disk may be the one that fails.
        Err(error) => format!(
            "{} keeps its room: {error}; `dcd cache-disk take-out {leg}` again gives it back",
            path.display()
        ),
    }))
}

/// What is to be done so that the next start has it.
fn next_start(disk: &DeviceSpec) -> String {
    format!("The next start has to be given it: --cache-disk {}\n", disk.absolute())
}

fn wait(client: &mut ControlClient, leg: Uuid) -> Result<(), CommandError> {
    let mut progress = Progress::new("filling", Unit::Bytes);
    loop {
        let legs = client.legs()?;
        let found = legs.into_iter().find(|it| it.leg == leg.to_string());
        let Some(found) = found else { return Err(CommandError::LegGone { leg }) };
        match found.state.as_str() {
            "in-sync" => {
                progress.finish();
                return Ok(());
            }
            "stale" | "filling" => progress.update(found.filled_bytes, found.total_bytes),
            _ => {
                progress.finish();
                let why =
                    found.error.map_or_else(|| plain(&found.state).into(), |it| plain(&it).into());
                let disk =
                    found.disk.map_or_else(|| "its disk is away".into(), |it| plain(&it).into());
                return Err(CommandError::LegFailed { leg, disk, why });
            }
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// What a leg is, in words.
pub fn words(leg: &LegReport) -> String {
    let percent = leg.filled_bytes.saturating_mul(100) / leg.total_bytes.max(1);
    match (leg.state.as_str(), &leg.error) {
        ("in-sync", _) => "in sync".into(),
        ("filling", _) => format!("being filled, {percent} %"),
        ("stale", _) => "holds what is older: to be filled".into(),
        ("failed", Some(error)) => format!("failed: {}", plain(error)),
        ("out", _) => "left out".into(),
        ("taken-out", _) => "taken out".into(),
        ("missing", _) => "not there".into(),
        (other, _) => plain(other).into(),
    }
}

/// What the witness is, in words.
pub fn witness_words(witness: &WitnessReport) -> String {
    let is = match (witness.state.as_str(), &witness.error) {
        ("votes", _) => "has a say: a start may do with one leg".into(),
        ("joining", _) => "gets its label".into(),
        ("failed", Some(error)) => {
            format!("failed: {}; a start needs all legs in sync", plain(error))
        }
        ("out", _) => "left out".into(),
        ("taken-out", _) => "taken out".into(),
        ("missing", _) => "not there: a start needs all legs in sync".into(),
        (other, _) => plain(other).to_string(),
    };
    let file = witness.file.as_deref().map_or("-".into(), |file| plain(file).to_string());
    format!("{} ({file}): {is}", plain(&witness.witness))
}

fn table(legs: &[LegReport]) -> String {
    let mut table = Table::new(&[
        ("leg", Align::Left),
        ("disk", Align::Left),
        ("state", Align::Left),
        ("errors", Align::Right),
        ("mended", Align::Right),
        ("size", Align::Right),
    ]);
    for leg in legs {
        table.row(vec![
            plain(&leg.leg).into(),
            leg.disk.as_deref().map_or("-".into(), |disk| plain(disk).into()),
            words(leg),
            leg.errors.to_string(),
            leg.mended.to_string(),
            format_size(leg.total_bytes),
        ]);
    }
    table.render(Paint::for_stdout())
}
