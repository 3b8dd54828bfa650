//! `dcd nvram`: the memory in front of the log of a running dcd comes, goes, or is replaced.

use clap::{Args, Subcommand};
use dcd_client::plain::plain;
use dcd_daemon::control::client::{ControlClient, ControlError};
use dcd_daemon::device::device_file::DeviceFile;
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::network::check_handed_over;
use dcd_daemon::report::nvram::NvramReport;
use dcd_daemon::serve::ServeError;
use dcd_daemon::units_text::format_size;
use serde_json::json;

use crate::command::drain;
use crate::command::running::Of;
use crate::command::status_panel::nvram_words;
use crate::daemons;
use crate::error::CommandError;
use crate::nvram_settings::SurvivesArgument;
use crate::output::Paint;
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

/// The memory in front of the log of a running dcd.
///
/// Small writes are done in it, before the log: see `dcd serve --nvram`. It comes and goes, and is
/// replaced, while dcd serves: what it holds goes to the log before. One that fails goes by itself.
#[derive(Args, Debug)]
pub struct NvramArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Show the memory, and how it is.
    Status(Of),
    /// Have a blank memory come to be in front of the log, while dcd serves.
    ///
    /// Policy and thresholds are those of the memory that dcd was started with (--nvram-policy and
    /// so on), or what they are without being set. The next start has to be told of it: --nvram, or
    /// `nvram` in the file of a service. Ctrl-C cancels it as long as it is not in use; the exit
    /// code is 7.
    #[command(after_help = "\
Examples:
  dcd nvram add /dev/nvme1n1p2 --control /run/sdb.ctl
  dcd nvram add /dev/shm/front.img --nvram-survives power --control /run/sdb.ctl")]
    Add {
        #[command(flatten)]
        memory: Memory,
        #[command(flatten)]
        of: Of,
    },
    /// Put a blank memory, larger or smaller, in the place of the one that is there.
    ///
    /// What the old one holds goes to the log; then changes go to the log, until the new one is
    /// there. A new one that is not blank, or cannot be read, is refused before. To make a file
    /// larger: `dcd nvram remove`, `truncate`, `dcd nvram add`.
    #[command(after_help = "\
Example:
  dcd nvram replace /dev/nvme2n1p2 --control /run/sdb.ctl")]
    Replace {
        #[command(flatten)]
        memory: Memory,
        #[command(flatten)]
        of: Of,
    },
    /// Do without the memory: when this is answered it may be unplugged.
    ///
    /// What it holds goes to the log. The next start has to do without it: leave --nvram out.
    /// Ctrl-C cancels it; the exit code is 7. With damaged blocks in it, it stays: those are
    /// nowhere else.
    #[command(after_help = "\
Example:
  dcd nvram remove --control /run/sdb.ctl")]
    Remove {
        #[command(flatten)]
        of: Of,
    },
}

#[derive(Args, Debug)]
struct Memory {
    /// The memory: a device, or a file, which is there, blank and not in use; on persistent memory
    /// (DAX), or in memory with --nvram-survives.
    #[arg(value_name = "FILE|DEVICE")]
    memory: DeviceSpec,
    /// What a file in memory survives: a person says so, and a battery has to keep it.
    #[arg(long = "nvram-survives", value_name = "WHAT")]
    survives: Option<SurvivesArgument>,
}

pub fn run(arguments: &NvramArguments) -> Result<(), CommandError> {
    match &arguments.what {
        What::Status(of) => {
            let status = daemons::connect(&of.control)?.status()?;
            let (nvram, failed) = (status.nvram, status.failed_nvram);
            match (of.json, nvram) {
                (true, nvram) => print_json(&json!({ "nvram": nvram, "failed": failed })),
                (false, Some(nvram)) => print(&lines(&nvram)),
                (false, None) => print(&match failed {
                    None => "no memory is in front of the log\n".into(),
                    Some(failed) => format!(
                        "no memory is in front of the log: {} has failed, and has gone\nThe next start has to do without it: leave --nvram out\n",
                        plain(&failed)
                    ),
                }),
            }
        }
        What::Add { memory, of } => come(memory, of, false),
        What::Replace { memory, of } => come(memory, of, true),
        What::Remove { of } => {
            let mut client = drain::connect(&of.control)?;
            let mut progress = Progress::new("emptying", Unit::Bytes);
            let removed = client.remove_nvram(&mut |so_far| progress.lines(so_far));
            progress.finish();
            removed?;
            match of.json {
                true => print_json(&json!({ "removed": true })),
                false => print(
                    "removed: what it held is in the log, and it may be unplugged\nThe next start has to do without it: leave --nvram out\n",
                ),
            }
        }
    }
}

fn come(memory: &Memory, of: &Of, replaces: bool) -> Result<(), CommandError> {
    let Memory { memory, survives } = memory;
    check_handed_over(memory.path()).map_err(ServeError::device("memory"))?;
    let mut client = drain::connect(&of.control)?;
    let opened = DeviceFile::open(memory.path()).map_err(ServeError::device("memory"))?;
    let spec = memory.absolute();
    let mut progress = Progress::new("emptying", Unit::Bytes);
    let survives_power = survives.is_some();
    let added = client.add_nvram(&spec, opened, survives_power, replaces, &mut |so_far| {
        progress.lines(so_far);
    });
    progress.finish();
    if replaces && matches!(added, Err(ControlError::Refused { .. })) {
        note_what_is_left(&mut client);
    }
    added?;
    let nvram = client.status()?.nvram;
    match of.json {
        true => print_json(&json!({ "nvram": nvram })),
        false => {
            let survives = if survives_power { " --nvram-survives power" } else { "" };
            let what = nvram.map(|nvram| lines(&nvram)).unwrap_or_default();
            print(&format!("{what}The next start has to be given it: --nvram {spec}{survives}\n"))
        }
    }
}

/// Behind a refusal: the old one may have gone.
fn note_what_is_left(client: &mut ControlClient) {
    if client.status().is_ok_and(|status| status.nvram.is_none()) {
        eprintln!("dcd: no memory is in front of the log now: changes go to the log");
    }
}

fn lines(nvram: &NvramReport) -> String {
    format!(
        "in front of the log: {}\nmemory {}, room for {}\n",
        nvram_words(nvram, Paint::for_stdout()),
        plain(&nvram.id),
        format_size(nvram.capacity_bytes)
    )
}
