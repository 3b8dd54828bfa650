//! `dcd slow-disk`: serves a disk without a cache.

use dcd_daemon::disk::device_spec::DeviceSpec;
use dcd_daemon::event_loop::busy_poll::BusyPollMax;
use dcd_daemon::frontend::nbd::listen::NbdOptions;
use dcd_daemon::serve::slow_disk::{SlowDiskOptions, slow_disk};

use crate::cli::SlowDiskArguments;
use crate::error::CommandError;
use crate::output::print;

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
        processor: None,
        // A disk that is slow on purpose has no use for it, and must not take time from what is measured.
        busy_poll: BusyPollMax::NEVER,
        give_up_rights: true,
        quiet: arguments.quiet,
    };
    serve(options)
}

/// Serves until a signal, and prints the ready line.
pub fn serve(options: SlowDiskOptions) -> Result<(), CommandError> {
    slow_disk(options, &mut |ready| {
        let mut line = format!("ready size={}", ready.size_bytes);
        for address in &ready.nbd {
            line += &format!(" nbd={address}");
        }
        if let Some(fuse) = &ready.fuse {
            line += &format!(" file={}", fuse.file.display());
            if let Some(device) = &fuse.loop_device {
                line += &format!(" loop={}", device.display());
            }
        }
        if let Some(device) = &ready.ublk {
            line += &format!(" ublk={}", device.display());
        }
        if let Some(socket) = &ready.vhost_user {
            line += &format!(" vhost-user={}", socket.display());
        }
        // A reader that went away does not end the disk.
        drop(print(&(line + "\n")));
    })?;
    Ok(())
}
