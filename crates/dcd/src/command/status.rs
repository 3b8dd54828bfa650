//! `dcd status`: how a running dcd does, for people or as JSON.

use dcd_daemon::control::client::for_people;

use super::status_panel::panel;
use crate::cli::StatusArguments;
use crate::daemons;
use crate::error::CommandError;
use crate::output::{Paint, print, print_json};

pub fn run(arguments: &StatusArguments) -> Result<(), CommandError> {
    let report = daemons::connect(&arguments.control)?.status()?;
    if arguments.json {
        print_json(&report)
    } else {
        print(&panel(&for_people(&report), Paint::for_stdout()))
    }
}
