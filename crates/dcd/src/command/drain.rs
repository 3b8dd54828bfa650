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
    let control = arguments.cache.name();
    let answer =
        with_progress("draining", control, |progress| client.request(Command::Drain, progress));
    if let Err(ControlError::Lost { error, hint, lost }) = answer {
        list.tell(&lost)?;
        return Err(CommandError::Lost { error, hint, lost });
    }
    let moved = Moved::of(&answer?);
    print_done_with(&format!("drained{}\n", moved.words()), moved.json())
}

/// Tells once what an object store says against it: whoever drains may wait for long.
fn tell_cause(what: &str, control: &Path, told: &mut Option<String>) {
    let Ok(report) = daemons::connect(control).map(|mut client| client.status()) else { return };
    let Some(store) = report.ok().and_then(|report| report.store) else { return };
    // In vain for good: that is the answer, and it comes at once.
    if store.is_lost() || *told == store.problem {
        return;
    }
    if let Some(problem) = &store.problem {
        let hint = store.hint.unwrap_or_default();
        eprintln!("dcd: {what} waits: {problem}\n  hint: {hint}");
    }
    *told = store.problem;
}

/// What was brought to the data-disk.
#[derive(Clone, Copy)]
pub struct Moved {
    /// Data; an older daemon does not tell.
    pub bytes: Option<u64>,
    /// What was discarded or zeroed, and is zero there now: nothing of it was moved.
    pub zeroed_bytes: u64,
}

impl Moved {
    /// As the daemon tells it.
    pub fn of(answer: &Value) -> Moved {
        let bytes = |key: &str| answer[key].as_u64();
        Moved {
            bytes: bytes("moved_bytes"),
            zeroed_bytes: bytes("zeroed_bytes").unwrap_or_default(),
        }
    }

    /// `: 34 MiB moved to the data-disk, 1 GiB zeroed`.
    pub fn words(self) -> String {
        self.bytes.map_or_else(String::new, |bytes| {
            format!(": {} moved to the data-disk{}", format_size(bytes), self.zeroed_words())
        })
    }

    /// `, 1 GiB zeroed`, if anything was.
    pub fn zeroed_words(self) -> String {
        match self.zeroed_bytes {
            0 => String::new(),
            bytes => format!(", {} zeroed", format_size(bytes)),
        }
    }

    /// What JSON has beside the sentence.
    pub fn json(self) -> Value {
        json!({ "moved_bytes": self.bytes, "zeroed_bytes": self.zeroed_bytes })
    }
}

/// A client that cancels what it has asked for when a signal comes.
pub fn connect(control: &Path) -> Result<ControlClient, CommandError> {
    let client = daemons::connect(control)?.cancel_by_signal();
    Ok(client.map_err(ServeError::system("receive signals"))?)
}

/// Asks for something that takes as long as there is dirty data, and shows how far it is.
pub fn with_progress(
    what: &'static str,
    control: &Path,
    ask: impl FnOnce(&mut dyn FnMut(SoFar)) -> Result<Value, ControlError>,
) -> Result<Value, ControlError> {
    let mut progress = Progress::new(what, Unit::Bytes);
    let mut told = None;
    let answer = ask(&mut |so_far| {
        if so_far.is_held_up {
            tell_cause(what, control, &mut told);
        }
        progress.lines(so_far);
    });
    progress.finish();
    answer
}
