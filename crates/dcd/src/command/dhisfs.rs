//! `dcd dhisfs`: a file system on a volume that a running dcd serves.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use dcd_client::{BlockDevice, Device, DeviceError, Usage};
use dcd_daemon::process::signals::Signals;
use dcd_daemon::serve::ServeError;
use dcd_daemon::units_text::{format_size, parse_duration, parse_size};
use dhisfs::fuse::{Connections, FuseOptions, mount};
use dhisfs::{
    Exclusive, FileSystem, FsError, MakeOptions, MountOptions, Repaired, Rules, make, pointers_for,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use crate::command::create::random_uuid;
use crate::error::CommandError;
use crate::output::count;
use crate::ready_line::ReadyLine;
use crate::stdout::{print, print_done, print_json};

/// So many reads at once.
const READERS: usize = 4;
/// How often it is looked whether somebody has unmounted it.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// A file system that leaves the allocation of blocks to a volume.
///
/// dhisfs keeps files on a volume (`dcd create --volume`) that `dcd serve` serves. The volume finds
/// the blocks, is told which block points to which, and what files are: `setfattr -n user.dcd.hint
/// -v important,random FILE`, the same on a directory for what is made in it, or rules for names.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd dhisfs mkfs  --control /run/vol.ctl --nbd /run/vol.nbd
  dcd dhisfs mount --control /run/vol.ctl --nbd /run/vol.nbd /mnt
  dcd dhisfs mount --control /run/vol.ctl --nbd /run/vol.nbd --rules names.toml /mnt
  dcd dhisfs fsck  --control /run/vol.ctl --nbd /run/vol.nbd")]
pub struct DhisfsArguments {
    /// What to do.
    #[command(subcommand)]
    what: DhisfsWhat,
}

#[derive(Args, Debug)]
struct Volume {
    /// Control socket of the dcd that serves the volume.
    #[arg(long, value_name = "SOCKET")]
    control: PathBuf,
    /// Its NBD socket: that of `dcd serve --nbd unix:SOCKET`, with or without `unix:`.
    #[arg(long, value_name = "SOCKET", value_parser = PathBufValueParser::new().map(without_unix))]
    nbd: PathBuf,
}

fn without_unix(socket: PathBuf) -> PathBuf {
    match socket.to_str().and_then(|text| text.strip_prefix("unix:")) {
        Some(path) => path.into(),
        None => socket,
    }
}

#[derive(Subcommand, Debug)]
enum DhisfsWhat {
    /// Make an empty file system
    ///
    /// A volume on which blocks were allocated is refused: --force frees them all.
    #[command(after_help = "\
Examples:
  dcd dhisfs mkfs --control /run/vol.ctl --nbd /run/vol.nbd
  dcd dhisfs mkfs --control /run/vol.ctl --nbd /run/vol.nbd --journal 16M --force")]
    Mkfs {
        #[command(flatten)]
        volume: Volume,
        /// Size of the journal [default: a 32nd of the volume, at most 64M].
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        journal: Option<u64>,
        /// Free everything that was allocated on the volume.
        #[arg(long)]
        force: bool,
    },
    /// Mount it on a directory, until it is unmounted or SIGINT or SIGTERM come
    ///
    /// After a crash, of this program, of dcd or of the machine, mount it again: everything that
    /// was made durable by `fsync` is there. What was not is durable after --commit-interval.
    #[command(after_help = "\
A file with rules, of which the first that fits decides:
  [[rule]]
  match = [\"*.c\", \"*.cpp\"]
  set = \"important\"
  [[rule]]
  match = [\"*.o\", \"*.a\"]
  set = \"temporary\"

Examples:
  dcd dhisfs mount --control /run/vol.ctl --nbd /run/vol.nbd /mnt
  dcd dhisfs mount --control /run/vol.ctl --nbd /run/vol.nbd --rules names.toml --sync /mnt")]
    Mount {
        #[command(flatten)]
        volume: Volume,
        /// Where to.
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
        /// A file with hints by name.
        #[arg(long, value_name = "FILE")]
        rules: Option<PathBuf>,
        /// Take no blocks ahead. Without this a file that grows by small pieces gets up to 64 at
        /// once, if other files whose names end so became so large.
        #[arg(long)]
        no_projection: bool,
        /// Memory for blocks.
        #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
        cache: u64,
        /// Make every change durable before the program that makes it goes on.
        #[arg(long)]
        sync: bool,
        /// Make changes durable after this time at the latest.
        #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
        commit_interval: Duration,
        /// Let other users use it, too.
        #[arg(long)]
        allow_other: bool,
        /// Change nothing, as on a volume that is served read-only, where nothing else can be.
        #[arg(long)]
        read_only: bool,
    },
    /// Check it while it is not mounted
    ///
    /// The tree, the number of names of each file, that each block is used once and allocated on
    /// the volume, and that the volume knows as many pointers as there are. The journal is replayed
    /// before; nothing else is changed without --repair. Exit codes are those of fsck(8): 0 if all
    /// is well, 1 if everything was mended, 4 if something is wrong and was not, 8 if it could not
    /// be looked at.
    #[command(after_help = "\
Examples:
  dcd dhisfs fsck --control /run/vol.ctl --nbd /run/vol.nbd
  dcd dhisfs fsck --control /run/vol.ctl --nbd /run/vol.nbd --repair
  dcd dhisfs fsck --control /run/vol.ctl --nbd /run/vol.nbd --json")]
    Fsck {
        #[command(flatten)]
        volume: Volume,
        /// Mend what can be mended. Files that have lost their names get new ones in `lost+found`.
        #[arg(long)]
        repair: bool,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
}

impl Volume {
    /// More connections to it.
    fn connections(&self) -> Result<Connections<Device>, CommandError> {
        let connect = || Device::connect(&self.control, &self.nbd).map_err(failed);
        let readers = (0..READERS).map(|_| connect()).collect::<Result<_, _>>()?;
        Ok(Connections { writer: connect()?, readers })
    }

    /// The volume, and the right to be the only one who uses the file system on it.
    fn connect(&self) -> Result<(Device, Exclusive), CommandError> {
        let device = Device::connect(&self.control, &self.nbd).map_err(failed)?;
        Ok((device, Exclusive::take(&self.control)?))
    }
}

fn failed(error: DeviceError) -> CommandError {
    FsError::from(error).into()
}

pub fn run(arguments: &DhisfsArguments) -> Result<(), CommandError> {
    match &arguments.what {
        DhisfsWhat::Mkfs { volume, journal, force } => {
            let (mut device, _exclusive) = volume.connect()?;
            let geometry = device.geometry();
            let options = MakeOptions {
                journal_blocks: journal.map(|bytes| bytes / geometry.block_bytes as u64),
                force: *force,
                uuid: random_uuid()?.0,
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
            };
            let made = make(&mut device, &options)?;
            let bytes = |blocks: u64| format_size(blocks * geometry.block_bytes as u64);
            warn_of_few_pointers(&mut device)?;
            print_done(&format!(
                "made a file system of {} in blocks of {}, with a journal of {}\n",
                bytes(geometry.blocks),
                bytes(1),
                bytes(made.journal_blocks),
            ))
        }
        DhisfsWhat::Mount {
            volume,
            directory,
            rules,
            no_projection,
            cache,
            sync,
            commit_interval,
            allow_other,
            read_only,
        } => {
            let rules = rules.as_deref().map(Rules::read).transpose()?.unwrap_or_default();
            // Before there are other threads.
            let signals = Signals::install().map_err(ServeError::system("receive signals"))?;
            let cache_bytes = usize::try_from(*cache).unwrap_or(usize::MAX);
            let (device, _exclusive) = volume.connect()?;
            let read_only = *read_only || device.is_read_only();
            let project_growth = !no_projection;
            let defaults = MountOptions::default();
            let options =
                MountOptions { cache_bytes, rules, project_growth, read_only, ..defaults };
            let file_system = FileSystem::mount(device, options)?;
            let options = FuseOptions {
                allow_other: *allow_other,
                commit_interval: *commit_interval,
                synchronous: *sync,
            };
            let mounted = mount(file_system, volume.connections()?, directory, &options)?;
            let how = if read_only { ", read-only" } else { "" };
            let words = format!("mounted on {}{how}", directory.display());
            let mut line = ReadyLine::in_words(&words);
            line.field("directory", directory.display().to_string());
            line.field("read_only", read_only);
            line.print()?;
            while !mounted.has_ended() && signals.take().is_none() {
                let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], Some(&LOOK_INTERVAL));
            }
            mounted.unmount()?;
            Ok(())
        }
        DhisfsWhat::Fsck { volume, repair, json } => {
            fsck(volume, *repair, *json).map_err(|error| match error {
                CommandError::Dhisfs(error) => CommandError::DhisfsFsck(error),
                error => error,
            })
        }
    }
}

/// Each block takes a pointer: where there are fewer of these than blocks, the file system is full
/// before the volume is.
fn warn_of_few_pointers(device: &mut Device) -> Result<(), CommandError> {
    let geometry = device.geometry();
    let Usage { mapped, pointers, pointers_max } = device.usage().map_err(failed)?;
    let left = pointers_max.saturating_sub(pointers);
    if left >= geometry.blocks.saturating_sub(mapped) {
        return Ok(());
    }
    let bytes = |blocks: u64| format_size(blocks * geometry.block_bytes as u64);
    eprintln!(
        "dcd: warning: the volume has room for {pointers_max} pointers, and each block takes one: files can take about {} \
         of {}",
        bytes(left),
        bytes(geometry.blocks),
    );
    eprintln!(
        "dcd: hint: for all of it, now or later: `dcd volume set --pointers {}`",
        pointers_for(geometry.blocks)
    );
    Ok(())
}

fn fsck(volume: &Volume, repair: bool, json: bool) -> Result<(), CommandError> {
    let (device, _exclusive) = volume.connect()?;
    let options = MountOptions { make_pointer_room: repair, ..MountOptions::default() };
    let mut file_system = FileSystem::open(device, options)?;
    let Repaired { done, left } = match repair {
        true => file_system.repair()?,
        false => Repaired { left: file_system.check()?, ..Repaired::default() },
    };
    file_system.unmount()?;
    if json {
        print_json(&json!({
            "files": left.files,
            "directories": left.directories,
            "others": left.others,
            "blocks": left.blocks,
            "pointers": left.pointers,
            "mended": done,
            "problems": left.problems,
        }))?;
    } else {
        let mended = done.iter().map(|text| format!("mended: {text}\n"));
        let problems = left.problems.iter().map(|problem| format!("{problem}\n"));
        print(&format!(
            "{}{} files, {} directories, {} others, {}, {}\n",
            mended.chain(problems).collect::<String>(),
            left.files,
            left.directories,
            left.others,
            count(left.blocks, "block"),
            count(left.pointers, "pointer"),
        ))?;
    }
    match (left.problems.len(), done.len()) {
        (0, 0) => Ok(()),
        (0, mended) => Err(CommandError::DhisfsMended { mended: mended as u64 }),
        (problems, _) => Err(CommandError::DhisfsDamage { problems: problems as u64 }),
    }
}
