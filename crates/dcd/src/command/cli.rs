//! The command line: verbs, flags and their help. Everything that can be checked without opening
//! a device is checked here, so a bad flag costs nothing.
//!
//! What a verb may be asked for stands beside the verb, in `command/`. `docs/cli.md` has all of it
//! in words; `tests/documents.rs` compares the two.

use std::ffi::OsString;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super as command;
use super::cache_word;

/// Width of the help text where it does not follow the terminal: in `docs/cli.md`.
pub const HELP_WIDTH: usize = 100;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

/// Documented exit codes; the numbers are in `error/mod.rs`.
const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    wrong setting, or refused; nothing was changed
  2    bad command line
  3    the reader of the output closed the pipe
  4    damage found (check, volume scrub), or lines of a volume that are lost (volume rebuild)
  5    a disk failed to read or write
  6    nobody answers on the control socket
  7    cancelled before the end (drain, detach, grow, fuzz, making a trace); nothing is lost, and it can be begun again
  8    nothing more gets to the data-disk (drain, detach, grow); nothing is lost, what is left stays in the cache
  255  a bug in dcd

Examples:
  dcd create --cache-disk fast.img --cache-size 256M --data-disk /dev/sdb
  dcd serve  --cache-disk fast.img --data-disk /dev/sdb --nbd unix:/run/sdb.sock --control /run/sdb.ctl
  dcd status --control /run/sdb.ctl

Results go to stdout, progress and errors to stderr. Sizes take units (4k, 16M, 16Mi, 16MiB; powers of 1024),
durations too (50ms, 2s). `dcd help VERB` is `dcd VERB --help`. A running cache is the first word of each verb
that needs one, or given by --control: the name of its service, its UUID, a device that it serves, or its
control socket.";

/// Disk caching disk: a small, fast, append-only log in front of a slow disk.
///
/// Small scattered writes become large sequential ones. They are acknowledged as soon as the log
/// holds them, and moved to the slow disk when that has time. What was flushed survives
/// a power cut, as long as the cache-disk does, and the slow disk stays an ordinary disk that
/// mounts without dcd once it is detached.
#[derive(Parser, Debug)]
#[command(name = "dcd", version, styles = STYLES, after_help = EXIT_CODES)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
    /// Print JSON: results, the ready line, and errors, which are one object on stderr.
    #[arg(long, global = true)]
    pub json: bool,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub enum Verb {
    Create(command::create::CreateArguments),
    Serve(Box<command::serve::ServeArguments>),
    Status(command::status::StatusArguments),
    Metrics(command::metrics::MetricsArguments),
    Top(command::top::TopArguments),
    Web(command::web::WebArguments),
    List(command::list::ListArguments),
    Set(command::set::SetArguments),
    CacheDisk(command::cache_disk::CacheDiskArguments),
    Nvram(command::nvram::NvramArguments),
    Flush(command::flush::FlushArguments),
    Drain(command::drain::DrainArguments),
    Detach(command::detach::DetachArguments),
    Grow(command::grow::GrowArguments),
    Check(command::check::CheckArguments),
    Salvage(command::salvage::SalvageArguments),
    Inspect(command::inspect::InspectArguments),
    #[cfg(feature = "lab")]
    Bench(command::bench::BenchArguments),
    #[cfg(feature = "lab")]
    Demo(command::demo::DemoArguments),
    #[cfg(feature = "lab")]
    Fuzz(command::fuzz::FuzzArguments),
    #[cfg(feature = "lab")]
    Disk(command::disk::DiskArguments),
    #[cfg(feature = "lab")]
    Trace(command::trace::arguments::TraceArguments),
    Sequence(command::sequence::SequenceArguments),
    Volume(command::volume::VolumeArguments),
    Hint(command::hint::HintArguments),
    #[cfg(feature = "lab")]
    Advise(Box<command::advise::AdviseArguments>),
    #[cfg(feature = "lab")]
    Simulate(dcd_study::simulate::SimulateArguments),
    #[cfg(feature = "lab")]
    Sweep(command::sweep::SweepArguments),
    #[cfg(feature = "lab")]
    Figures(command::figures::FiguresArguments),
    SlowDisk(command::slow_disk::SlowDiskArguments),
    Ublk(command::ublk::UblkArguments),
    Dhisfs(command::dhisfs::DhisfsArguments),
    Probe(command::probe::ProbeArguments),
    Completions(command::completions::CompletionsArguments),
    Man(command::man::ManArguments),
    HelpMarkdown(command::help_markdown::HelpMarkdownArguments),
    Caretaker(command::caretaker::CaretakerArguments),
    WindowKeeper(command::window_keeper::WindowKeeperArguments),
    #[cfg(feature = "s3")]
    Store(command::store::StoreArguments),
    #[cfg(feature = "s3")]
    StoreKeeper(command::store_keeper::StoreKeeperArguments),
}

/// The whole command line, for completions, manual pages and documents.
pub fn command() -> clap::Command {
    cache_word::with_usage(Cli::command())
}

/// Reads a command line, the program's name first.
pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let words = cache_word::with_flag(&command, words.into_iter().collect());
    let mut matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_file_are_the_flags() {
        let command = command();
        let serve = command.find_subcommand("serve").unwrap();
        let flags: Vec<_> = serve.get_arguments().filter_map(|flag| flag.get_long()).collect();
        let own = [
            "config",
            "null",
            "quiet",
            "verbose",
            "accept-damage",
            "degraded",
            "memory-lost",
            "nvram-lost",
            "replace-member",
            "new-leg",
            "without-leg",
            "trust-disks",
            "take-over",
        ];
        let flags: Vec<_> = flags.into_iter().filter(|flag| !own.contains(flag)).collect();
        assert_eq!(flags, crate::config_file::KEYS);
    }

    #[test]
    fn the_command_line_makes_sense() {
        command().debug_assert();
    }

    #[test]
    fn detach_wants_a_socket_or_two_disks() {
        let parse = |line: &str| read(line.split(' ').map(OsString::from));
        assert!(parse("dcd detach --control s").is_ok());
        assert!(parse("dcd detach --cache-disk c --data-disk d").is_ok());
        assert!(parse("dcd detach --cache-disk c").is_err());
        assert!(parse("dcd detach --control s --cache-disk c --data-disk d").is_err());
        assert!(parse("dcd detach").is_err());
    }
}
