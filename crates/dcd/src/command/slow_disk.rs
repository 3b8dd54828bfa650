//! `dcd slow-disk`: serves a disk without a cache.

use std::path::PathBuf;

use clap::Args;
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::frontend::nbd::listen::{NbdAddress, NbdOptions};
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::ring::busy_poll::BusyPollMax;
use dcd_daemon::serve::UblkNumber;
use dcd_daemon::serve::slow_disk::{SlowDiskOptions, slow_disk};

use crate::error::CommandError;
use crate::ready_line::ReadyLine;
use crate::settings::parse_ublk;

/// Serve a disk over NBD, FUSE, ublk or vhost-user without a cache, for comparison.
///
/// Whoever is connected may write to it. So a disk whose cache may hold what is newer is refused,
/// and so are a cache-disk that is not detached and a member of a volume.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd slow-disk --disk slow:disk.img,read=8ms,write=8ms --nbd unix:/run/slow.sock
  dcd slow-disk --disk slow:disk.img,read=8ms,write=8ms --fuse /run/slow --loop
  dcd slow-disk --model hp-97560 --disk disk.img --nbd unix:/run/slow.sock")]
#[command(group(clap::ArgGroup::new("frontend").required(true).multiple(true).args(["nbd", "fuse", "ublk", "vhost_user"])))]
pub struct SlowDiskArguments {
    /// The disk; slow:FILE,read=TIME,write=TIME makes a file as slow as you like,
    /// model:PROFILE:FILE as slow as a drive of `dcd disk list`.
    #[arg(long, value_name = "DISK")]
    pub disk: DeviceSpec,
    /// Make the file given with --disk as slow as this drive: a name of `dcd disk list`, or a TOML
    /// file.
    #[arg(long, value_name = "PROFILE")]
    pub model: Option<String>,
    /// Where to listen for NBD clients.
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Vec<NbdAddress>,
    /// Show the disk as the file `disk` in this directory.
    #[arg(long, value_name = "DIRECTORY")]
    pub fuse: Option<PathBuf>,
    /// Also attach a loop device to that file.
    #[arg(long = "loop", requires = "fuse")]
    pub loop_device: bool,
    /// Make a block device, /dev/ublkbN, with this number or the next free one.
    #[arg(long, num_args = 0..=1, default_missing_value = "any", value_name = "NUMBER", value_parser = parse_ublk)]
    pub ublk: Option<UblkNumber>,
    /// Await a virtual machine (vhost-user-blk) on this unix socket.
    #[arg(long, value_name = "SOCKET")]
    pub vhost_user: Option<PathBuf>,
    /// Count requests, and tell on this unix socket.
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Print nothing but the ready line and errors.
    #[arg(long)]
    pub quiet: bool,
}

pub fn run(arguments: &SlowDiskArguments) -> Result<(), CommandError> {
    let disk = match (&arguments.model, &arguments.disk) {
        (None, disk) => disk.clone(),
        (Some(profile), DeviceSpec::Plain(path)) => {
            DeviceSpec::Model { profile: profile.clone(), path: path.clone() }
        }
        (Some(_), _) => return Err(CommandError::ModelOfSlowed),
    };
    let options = SlowDiskOptions {
        disk,
        nbd: arguments.nbd.clone(),
        // A plain disk acknowledges as plain disks do.
        nbd_options: NbdOptions { tcp_durable: false, ..NbdOptions::default() },
        fuse: arguments.fuse.clone(),
        loop_device: arguments.loop_device,
        ublk: arguments.ublk,
        vhost_user: arguments.vhost_user.clone(),
        control: arguments.control.clone(),
        read_only: false,
        pairs: PairBook::from_environment(false),
        processor: None,
        // A disk that is slow on purpose has no use for it, and must not take time from what is
        // measured.
        busy_poll: BusyPollMax::NEVER,
        give_up_rights: true,
        quiet: arguments.quiet,
    };
    serve(options)
}

/// Serves until a signal, and prints the ready line.
pub fn serve(options: SlowDiskOptions) -> Result<(), CommandError> {
    slow_disk(options, &mut |ready| {
        let mut line = ReadyLine::new();
        line.word("size", ready.size_bytes);
        line.field("size_bytes", ready.size_bytes);
        line.nbd_and_file(&ready.nbd, ready.fuse.as_ref());
        line.devices(ready.ublk.as_ref(), ready.vhost_user.as_ref());
        // A reader that went away does not end the disk.
        drop(line.print());
    })?;
    Ok(())
}
