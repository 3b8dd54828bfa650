//! `dcd drain`: asks a running dcd to bring everything to the data-disk.

use dcd_daemon::control::client::{ControlClient, ControlError};
use dcd_daemon::serve::ServeError;
use dcd_protocol::{Command, Progress as SoFar};
use serde_json::Value;
use std::path::Path;

use crate::cli::DrainArguments;
use crate::error::CommandError;
use crate::output::print;
use crate::progress::{Progress, Unit};
use crate::{daemons, lost_list};

pub fn run(arguments: &DrainArguments) -> Result<(), CommandError> {
    if arguments.cancel {
        daemons::connect(&arguments.control)?.request(Command::CancelDrain, &mut |_| ())?;
        return print("cancelled\n");
    }
    let mut client = connect(&arguments.control)?;
    let answer = with_progress("draining", |progress| client.request(Command::Drain, progress));
    if let Err(ControlError::Lost { error, hint, lost }) = answer {
        lost_list::tell(&lost, arguments.lost_list.as_deref())?;
        return Err(CommandError::Lost { error, hint });
    }
    answer?;
    print("drained\n")
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
