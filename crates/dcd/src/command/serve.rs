//! `dcd serve`: joins flags and configuration file, hands over to the daemon, and tells when the
//! disk is there. Of several caches each has a daemon of its own: `serve_several.rs`.

use std::path::PathBuf;

use clap::Args;
use dcd_daemon::caretaker::CaretakerProgram;
use dcd_daemon::control::settings::SharedSettings;
use dcd_daemon::http::address::HttpAddress;
use dcd_daemon::http::token::Token;
use dcd_daemon::pair::CacheDisks;
use dcd_daemon::pair::DataDisks;
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::process::log::{self, Level};
use dcd_daemon::serve::slow_disk::SlowDiskOptions;
use dcd_daemon::serve::{Outcome, Ready, ServeError, ServeOptions, serve};
use dcd_daemon::units_text::{format_duration, format_size};
use dcd_daemon::window_hook::WindowHookOptions;
use dcd_engine::DestagePolicyKind;
use dcd_engine::config::ConfigError;
use serde_json::{Value, json};

use crate::config_file;
use crate::error::CommandError;
use crate::ready_line::ReadyLine;
use crate::running_settings::RunningSettings;
use crate::settings::{AckArgument, PolicyArgument, Settings, TakeOverArgument};

/// Serve the cached disk, in the foreground.
///
/// Recovers what a crash left, prints one line that begins with "ready", and runs until SIGTERM,
/// SIGINT or `dcd detach`; SIGUSR1 ends it, too, but leaves a ublk device to the next start. After
/// a kill -9 or a power cut the same line brings everything back. Every setting may also stand in
/// the file given with --config, under the same name; flags win.
///
/// With several --config each file is a cache that is served by a process of its own: what ends one
/// is nothing to the others. Signals are passed on to all, messages have the name of the file before
/// them, and the line that begins with "ready" comes when all are.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  dcd serve --cache-disk fast.img --data-disk slow.img --nbd unix:/run/disk.sock
  dcd serve --cache-disk fast.img --data-disk /dev/sdb --fuse /run/dcd/sdb --loop --control /run/sdb.ctl
  dcd serve --cache-disk /dev/nvme0n1p4 --data-disk /dev/sdb --ublk --control /run/sdb.ctl
  dcd serve --cache-disk /dev/nvme0n1p4 --cache-disk /dev/nvme1n1p4 --data-disk /dev/sdb --ublk
  dcd serve --cache-disk fast.img --data-disk slow:slow.img,read=8ms,write=8ms --nbd unix:disk.sock
  dcd serve --config /etc/dcd/sdb.toml --ack durable
  dcd serve --config sdb.toml --config sdc.toml
  dcd serve --null --data-disk /dev/sdb --nbd unix:/run/disk.sock --cpu 3

A configuration file:
  cache-disk = \"/dev/nvme0n1p4\"
  data-disk = \"/dev/sdb\"
  nbd = [\"unix:/run/sdb.sock\"]
  control = \"/run/sdb.ctl\"
  bypass-threshold = \"64k\"")]
pub struct ServeArguments {
    /// TOML file with settings; - is standard input. Given again: of another cache, which is
    /// served, too; what else stands on the command line is for all of them.
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// The settings.
    #[command(flatten)]
    pub settings: Settings,
    /// Serve the data-disk without any cache: each request is one of the data-disk, so that what
    /// the layers above cost can be measured. One that belongs to a cache which may hold what is
    /// newer, a cache-disk or a member of a volume is served with --read-only alone.
    #[arg(long)]
    pub null: bool,
    /// Print nothing but the ready line and errors.
    #[arg(long)]
    pub quiet: bool,
    /// Tell more: who connects, what is asked for on the control socket, what is opened.
    #[arg(long, conflicts_with = "quiet")]
    pub verbose: bool,
}

/// Shorter than what a service manager waits for.
const STOP_TIMEOUT_DEFAULT: std::time::Duration = std::time::Duration::from_secs(30);
const WINDOW_HOOK_TIMEOUT_DEFAULT: std::time::Duration = std::time::Duration::from_secs(60);

/// What is said on stderr, or to the journal.
fn begin_log(arguments: &ServeArguments) {
    log::begin();
    log::tell_up_to(match (arguments.quiet, arguments.verbose) {
        (true, _) => Level::Notice,
        (_, true) => Level::Debug,
        _ => Level::Info,
    });
}

pub fn run(arguments: ServeArguments) -> Result<(), CommandError> {
    begin_log(&arguments);
    if arguments.config.len() > 1 {
        return super::serve_several::run(&arguments);
    }
    if arguments.null {
        return super::slow_disk::serve(null_options(arguments)?);
    }
    let options = options(arguments)?;
    super::take_over::take_over(&options)?;
    // A reader that wants only the ready line, or not even that, does not end the daemon.
    let outcome = serve(options, &mut |ready| drop(ready_line(ready).print()))?;
    match outcome {
        Outcome::Aborted => Err(CommandError::Aborted),
        Outcome::ShutDownUnderUsers => Err(CommandError::StoppedUnderUsers),
        Outcome::Detached | Outcome::ShutDown | Outcome::StoppedWhileOpening => Ok(()),
    }
}

/// Flags, with the file of --config below them.
pub fn settings_of(arguments: &ServeArguments) -> Result<Settings, CommandError> {
    Ok(arguments.settings.clone().over(file_of(arguments)?))
}

fn file_of(arguments: &ServeArguments) -> Result<Settings, CommandError> {
    match arguments.config.first() {
        Some(file) => Ok(config_file::read(file)?),
        None => Ok(Settings::default()),
    }
}

fn check_frontends(settings: &Settings) -> Result<(), CommandError> {
    if settings.loop_device == Some(true) && settings.fuse.is_none() {
        return Err(CommandError::LoopWithoutFuse);
    }
    if settings.nbd.is_empty()
        && settings.fuse.is_none()
        && settings.ublk.is_none()
        && settings.vhost_user.is_none()
    {
        return Err(CommandError::NoFrontend);
    }
    Ok(())
}

/// The data-disk alone, with everything above it that a cache has.
fn null_options(arguments: ServeArguments) -> Result<SlowDiskOptions, CommandError> {
    let settings = settings_of(&arguments)?;
    if let Some(flag) = settings.needs_a_cache() {
        return Err(CommandError::FlagNeeds { flag, needs: "serving without --null" });
    }
    let disk = match settings.data_disk.len() {
        0 => return Err(CommandError::SettingMissing("--data-disk")),
        1 => settings.data_disk[0].clone(),
        _ => return Err(ServeError::OneDataDisk.into()),
    };
    check_frontends(&settings)?;
    let nbd_options = settings.nbd_options()?;
    Ok(SlowDiskOptions {
        disk,
        nbd: settings.nbd,
        nbd_options,
        fuse: settings.fuse,
        loop_device: settings.loop_device.unwrap_or(false),
        ublk: settings.ublk,
        vhost_user: settings.vhost_user,
        control: settings.control,
        read_only: settings.read_only.unwrap_or(false),
        pairs: PairBook::from_environment(false),
        processor: settings.processor,
        busy_poll: settings.busy_poll.unwrap_or_default(),
        give_up_rights: true,
        quiet: arguments.quiet,
    })
}

/// What the daemon is told. Nothing is opened, and nothing begins.
pub fn options(arguments: ServeArguments) -> Result<ServeOptions, CommandError> {
    // Standard input is not read again.
    let settings_file = arguments.config.first().filter(|file| file.as_os_str() != "-").cloned();
    let file = file_of(&arguments)?;
    let settings = arguments.settings.clone().over(file.clone());
    if settings.cache_disk.is_empty() {
        return Err(CommandError::SettingMissing("--cache-disk"));
    }
    if settings.data_disk.is_empty() {
        return Err(CommandError::SettingMissing("--data-disk"));
    }
    check_frontends(&settings)?;
    let engine = settings.engine_config();
    let remote_ack = settings.ack == Some(AckArgument::Remote);
    if remote_ack && engine.destage_policy != DestagePolicyKind::Ordered {
        return Err(
            ConfigError::new("ack", "can only be remote with destage-policy ordered").into()
        );
    }
    let one_disk = settings.one_disk();
    let nbd_options = settings.nbd_options()?;
    let nvram = settings.nvram_options()?;
    check_store(&settings)?;
    let program = std::env::current_exe().ok();
    let window_hook = window_hook_options(&settings, program.clone())?;
    let options = ServeOptions {
        cache_disks: CacheDisks {
            disks: settings.cache_disk,
            new_legs: settings.new_leg,
            without: settings.without_leg,
            witness: settings.witness,
        },
        share: settings.share,
        data_disks: DataDisks {
            disks: settings.data_disk,
            replacements: settings.replace_member,
            degraded: settings.degraded,
        },
        engine,
        one_disk,
        nbd: settings.nbd,
        nbd_options,
        fuse: settings.fuse,
        loop_device: settings.loop_device.unwrap_or(false),
        ublk: settings.ublk,
        vhost_user: settings.vhost_user,
        control: settings.control,
        metrics: settings.metrics,
        http: settings.http,
        http_token: settings.http_token.as_deref().map(Token::read).transpose()?,
        memory_directory: settings.memory_directory,
        memory_lost: settings.memory_lost,
        nvram,
        nvram_lost: settings.nvram_lost,
        processor: settings.processor,
        busy_poll: settings.busy_poll.unwrap_or_default(),
        memory_max_bytes: settings.memory_max,
        wait: settings.wait.unwrap_or(false),
        stop_timeout: settings.stop_timeout.unwrap_or(STOP_TIMEOUT_DEFAULT),
        lock_memory: settings.lock_memory.unwrap_or(false),
        give_up_rights: true,
        caretaker: program
            .map(|program| CaretakerProgram { program, arguments: vec!["caretaker".into()] }),
        window_hook,
        remote_ack,
        take_over: TakeOverArgument::of(settings.take_over),
        pairs: PairBook::from_environment(settings.trust_disks),
        settings_file: settings_file.clone(),
        settings: Some(SharedSettings::new(RunningSettings::new(
            settings_file,
            arguments.settings,
            file,
        ))),
        quiet: arguments.quiet,
    };
    options.engine.validate()?;
    Ok(options)
}

/// A data-disk in an object store ends windows by commits of its own.
fn check_store(settings: &Settings) -> Result<(), CommandError> {
    let refuse = |key, why| Err(ConfigError::new(key, why).into());
    if !settings.is_in_store() {
        return Ok(());
    }
    if settings.window_hook.is_some() {
        return refuse(
            "window-hook",
            "is not possible with a data-disk in an object store: it keeps each window itself",
        );
    }
    match settings.destage_policy {
        None | Some(PolicyArgument::Ordered) => Ok(()),
        Some(_) => refuse("destage-policy", "must be ordered for a data-disk in an object store"),
    }
}

/// What keeps windows of ordered shipping.
fn window_hook_options(
    settings: &Settings,
    program: Option<PathBuf>,
) -> Result<Option<WindowHookOptions>, CommandError> {
    let Some(command) = &settings.window_hook else { return Ok(None) };
    let refuse = |key, why| Err(ConfigError::new(key, why).into());
    if settings.data_disk.len() > 1 {
        return refuse("window-hook", "is not possible with several data-disks");
    }
    let timeout = settings.window_hook_timeout.unwrap_or(WINDOW_HOOK_TIMEOUT_DEFAULT);
    if timeout.is_zero() {
        return refuse("window-hook-timeout", "must be longer than nothing");
    }
    let Some(keeper) = program else {
        return refuse("window-hook", "is not possible here: dcd does not find its own program");
    };
    let (command, keeper_arguments) = (command.into(), vec!["window-keeper".into()]);
    Ok(Some(WindowHookOptions { command, timeout, keeper, keeper_arguments }))
}

/// What is told once all frontends are there.
fn ready_line(ready: &Ready) -> ReadyLine {
    let mut line = ReadyLine::new();
    line.add("uuid", ready.uuid);
    line.word("size", ready.size_bytes);
    line.field("size_bytes", ready.size_bytes);
    line.nbd_and_file(&ready.nbd, ready.fuse.as_ref());
    let dead = ready.fuse.iter().flat_map(|fuse| &fuse.dead).map(|dead| {
        line.word("dead", dead.path.display());
        dead.mounts.iter().for_each(|place| line.word("dead-mount", place.display()));
        let mounts: Vec<_> = dead.mounts.iter().map(|it| it.display().to_string()).collect();
        json!({ "device": dead.path.display().to_string(), "mounts": mounts })
    });
    let dead: Vec<Value> = dead.collect();
    if !dead.is_empty() {
        line.field("dead", dead);
    }
    line.devices(ready.ublk.as_ref(), ready.vhost_user.as_ref());
    if let Some(address) = &ready.metrics {
        line.add("metrics", format_args!("http://{address}/metrics"));
    }
    match &ready.http {
        Some(HttpAddress::Tcp(address)) => line.add("http", format_args!("http://{address}/")),
        Some(HttpAddress::Unix(path)) => line.add("http", format_args!("unix:{}", path.display())),
        None => {}
    }
    if let Some(control) = &ready.control {
        line.add("control", control.display());
    }
    let recovery = &ready.recovery;
    let took = std::time::Duration::from_nanos(recovery.duration.0);
    let dirty_bytes = recovery.dirty_lines * dcd_engine::units::LINE_SIZE;
    line.word("opened-in", format_duration(took));
    line.field("opened_in_s", took.as_secs_f64());
    line.word("read", format_size(recovery.bytes_read).replace(' ', ""));
    line.field("read_bytes", recovery.bytes_read);
    line.word("records", recovery.records);
    line.field("records", recovery.records);
    line.word("from-memory", recovery.records_from_memory);
    line.field("records_from_memory", recovery.records_from_memory);
    line.word("dirty", format_size(dirty_bytes).replace(' ', ""));
    line.field("dirty_bytes", dirty_bytes);
    if !ready.degraded.is_empty() {
        let members: Vec<String> = ready.degraded.iter().map(u8::to_string).collect();
        line.word("degraded", members.join(","));
        line.field("degraded", ready.degraded.clone());
    }
    if recovery.poisoned_lines > 0 {
        line.word("lost-lines", recovery.poisoned_lines);
        line.field("lost_lines", recovery.poisoned_lines);
    }
    line
}
