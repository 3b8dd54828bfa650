//! `dcd status`: how a running dcd does, for people or as JSON.

use clap::Args;
use dcd_daemon::control::client::for_people;

use super::status_panel::panel;
use crate::daemons::RunningCache;
use crate::error::CommandError;
use crate::output::Paint;
use crate::stdout::{print, print_json};

/// Show how a running dcd does.
///
/// State, segments, dirty data, hit and overwrite rates, write amplification, and how long reads,
/// writes and flushes took.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd status sdb
  dcd status --control /run/sdb.ctl
  dcd status --control /run/sdb.ctl --json | jq .dirty_bytes")]
pub struct StatusArguments {
    /// Which.
    #[command(flatten)]
    pub cache: RunningCache,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &StatusArguments) -> Result<(), CommandError> {
    let report = arguments.cache.connect()?.status()?;
    if arguments.json {
        print_json(&report)
    } else {
        print(&panel(&for_people(&report), Paint::for_stdout()))
    }
}
