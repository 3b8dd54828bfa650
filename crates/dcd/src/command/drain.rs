//! `dcd drain`: asks a running dcd to bring everything to the data-disk.

use std::path::Path;

use dcd_daemon::control::Command;
use dcd_daemon::serve::ServeError;

use crate::cli::DrainArguments;
use crate::daemons;
use crate::error::CommandError;
use crate::output::print;
use crate::progress::{Progress, Unit};

pub fn run(arguments: &DrainArguments) -> Result<(), CommandError> {
    if arguments.cancel {
        daemons::connect(&arguments.control)?.request(Command::CancelDrain, &mut |_| ())?;
        return print("cancelled\n");
    }
    ask_with_progress(&arguments.control, Command::Drain, "draining")?;
    print("drained\n")
}

/// Asks for something that takes as long as there is dirty data, and cancels it when a signal comes.
pub fn ask_with_progress(
    control: &Path,
    command: Command,
    what: &'static str,
) -> Result<(), CommandError> {
    let client = daemons::connect(control)?.cancel_by_signal();
    let mut client = client.map_err(ServeError::system("receive signals"))?;
    let mut progress = Progress::new(what, Unit::Bytes);
    let answer = client.request(command, &mut |so_far| progress.lines(so_far));
    progress.finish();
    answer?;
    Ok(())
}
