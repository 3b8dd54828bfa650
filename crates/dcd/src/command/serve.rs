//! `dcd serve`: joins flags and configuration file, hands over to the daemon, and tells when the
//! disk is there.

use dcd_daemon::serve::{Outcome, Ready, ServeOptions, serve};
use dcd_daemon::units_text::{format_duration, format_size};

use crate::cli::ServeArguments;
use crate::config_file;
use crate::error::CommandError;
use crate::output::print;
use crate::settings::MEMORY_DIRECTORY_DEFAULT;

pub fn run(arguments: ServeArguments) -> Result<(), CommandError> {
    let options = options(arguments)?;
    // A reader that wants only the ready line, or not even that, does not end the daemon.
    let outcome = serve(options, &mut |ready| drop(print(&ready_line(ready))))?;
    match outcome {
        Outcome::Aborted => Err(CommandError::Aborted),
        Outcome::Detached | Outcome::ShutDown | Outcome::StoppedWhileOpening => Ok(()),
    }
}

fn options(arguments: ServeArguments) -> Result<ServeOptions, CommandError> {
    let mut settings = arguments.settings;
    if let Some(file) = &arguments.config {
        settings = settings.over(config_file::read(file)?);
    }
    let engine = settings.engine_config();
    let one_disk = settings.one_disk();
    let options = ServeOptions {
        cache_disk: settings.cache_disk.ok_or(CommandError::SettingMissing("--cache-disk"))?,
        data_disk: settings.data_disk.ok_or(CommandError::SettingMissing("--data-disk"))?,
        engine,
        one_disk,
        nbd: settings.nbd,
        fuse: settings.fuse,
        loop_device: settings.loop_device.unwrap_or(false),
        control: settings.control,
        memory_directory: settings
            .memory_directory
            .unwrap_or_else(|| MEMORY_DIRECTORY_DEFAULT.into()),
        quiet: arguments.quiet,
    };
    if options.loop_device && options.fuse.is_none() {
        return Err(CommandError::LoopWithoutFuse);
    }
    if options.nbd.is_empty() && options.fuse.is_none() {
        return Err(CommandError::NoFrontend);
    }
    options.engine.validate()?;
    Ok(options)
}

/// One line for people and scripts: `ready`, then words of the form `name=value`.
fn ready_line(ready: &Ready) -> String {
    let mut line = format!("ready uuid={} size={}", ready.uuid, ready.size_bytes);
    for address in &ready.nbd {
        line += &format!(" nbd={address}");
    }
    if let Some(fuse) = &ready.fuse {
        line += &format!(" file={}", fuse.file.display());
        if let Some(device) = &fuse.loop_device {
            line += &format!(" loop={}", device.display());
        }
    }
    if let Some(control) = &ready.control {
        line += &format!(" control={}", control.display());
    }
    let recovery = &ready.recovery;
    let took = std::time::Duration::from_nanos(recovery.duration.0);
    line += &format!(
        " opened-in={} read={} records={} from-memory={} dirty={}",
        format_duration(took),
        format_size(recovery.bytes_read).replace(' ', ""),
        recovery.records,
        recovery.records_from_memory,
        format_size(recovery.dirty_lines * dcd_engine::units::LINE_SIZE).replace(' ', ""),
    );
    if recovery.poisoned_lines > 0 {
        line += &format!(" lost-lines={}", recovery.poisoned_lines);
    }
    line + "\n"
}
