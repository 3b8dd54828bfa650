//! `dcd drain`: asks a running dcd to bring everything to the data-disk.

use std::path::{Path, PathBuf};

use clap::Args;
use dcd_daemon::control::client::{ControlClient, ControlError};
use dcd_daemon::serve::ServeError;
use dcd_daemon::units_text::format_size;
use dcd_protocol::{Command, Progress as SoFar};
use serde_json::{Value, json};

use crate::daemons::{self, RunningCache};
use crate::error::CommandError;
use crate::lost_list::LostList;
use crate::progress::{Progress, Unit};
use crate::stdout::{print_done, print_done_with};

/// Bring everything acknowledged so far to the data-disk, and go on serving.
///
/// Ctrl-C, SIGTERM or the end of this command cancel it: what was moved stays moved, the rest stays
/// in the cache, serving goes on, and the exit code is 7.
///
/// When nothing more gets to the data-disk for the daemon's --drain-timeout, because it is full,
/// fails, or a member of the volume is away, the drain ends with what is left and why, and exit
/// code 8. Serving goes on, and what is left is tried again by itself.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd drain sdb
  dcd drain --control /run/sdb.ctl
  dcd drain --control /run/sdb.ctl --cancel")]
pub struct DrainArguments {
    /// Which.
    #[command(flatten)]
    pub cache: RunningCache,
    /// Cancel the drains under way, whoever began them.
    #[arg(long)]
    pub cancel: bool,
    /// If something is lost, because it is damaged in the cache, write what it is to this new file.
    /// Nothing is overwritten; a pipe, - (standard output) and /dev/null will do.
    #[arg(long, value_name = "FILE")]
    pub lost_list: Option<PathBuf>,
}

pub fn run(arguments: &DrainArguments) -> Result<(), CommandError> {
    if arguments.cancel {
        arguments.cache.connect()?.request(Command::CancelDrain, &mut |_| ())?;
        return print_done("cancelled\n");
    }
    let mut list = LostList::open(arguments.lost_list.as_deref())?;
    let mut client = connect(arguments.cache.name())?;
    let answer = with_progress("draining", |progress| client.request(Command::Drain, progress));
    if let Err(ControlError::Lost { error, hint, lost }) = answer {
        list.tell(&lost)?;
        return Err(CommandError::Lost { error, hint, lost });
    }
    let moved = moved_bytes(&answer?);
    let words = format!("drained{}\n", moved_words(moved));
    print_done_with(&words, json!({ "moved_bytes": moved }))
}

/// What was brought to the data-disk, as the daemon tells it. An older one does not.
pub fn moved_bytes(answer: &Value) -> Option<u64> {
    answer["moved_bytes"].as_u64()
}

/// `: 34 MiB moved to the data-disk`.
pub fn moved_words(moved: Option<u64>) -> String {
    moved.map_or_else(String::new, |bytes| {
        format!(": {} moved to the data-disk", format_size(bytes))
    })
}

/// A client that cancels what it has asked for when a signal comes.
pub fn connect(control: &Path) -> Result<ControlClient, CommandError> {
    let client = daemons::connect(control)?.cancel_by_signal();
    Ok(client.map_err(ServeError::system("receive signals"))?)
}

/// Asks for something that takes as long as there is dirty data, and shows how far it is.
pub fn with_progress(
    what: &'static str,
    ask: impl FnOnce(&mut dyn FnMut(SoFar)) -> Result<Value, ControlError>,
) -> Result<Value, ControlError> {
    let mut progress = Progress::new(what, Unit::Bytes);
    let answer = ask(&mut |so_far| progress.lines(so_far));
    progress.finish();
    answer
}
