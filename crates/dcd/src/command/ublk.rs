//! `dcd ublk`: the ublk devices of this machine, and the end of those that nobody serves.

use clap::{Args, Subcommand};
use dcd_daemon::frontend::ublk::{self, Listed, block_path};
use dcd_daemon::serve::ServeError;
use dcd_daemon::units_text::format_size;
use serde::Serialize;

use crate::error::CommandError;
use crate::stdout::{print, print_done, print_json};

/// Look at the ublk devices of this machine, and remove those that nobody serves.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd ublk list
  dcd ublk remove 3")]
pub struct UblkArguments {
    /// What to do.
    #[command(subcommand)]
    pub what: UblkVerb,
}

/// What can be done with ublk devices.
#[derive(Subcommand, Debug)]
pub enum UblkVerb {
    /// List all ublk devices, whoever made them.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a device whose server has died or left it. Requests that wait in it fail.
    ///
    /// What its users have not flushed is lost; what the cache acknowledged is not. To serve the
    /// device again instead, start the cache it belongs to: `dcd serve ... --ublk`.
    Remove {
        /// Its number: that of /dev/ublkbNUMBER.
        #[arg(value_name = "NUMBER")]
        number: u32,
    },
}

#[derive(Serialize)]
struct Row {
    number: u32,
    device: String,
    size_bytes: u64,
    /// None: it waits for a server.
    served_by: Option<i32>,
}

pub fn run(arguments: &UblkArguments) -> Result<(), CommandError> {
    match arguments.what {
        UblkVerb::List { json } => list(json),
        UblkVerb::Remove { number } => match ublk::remove(number).map_err(ServeError::from)? {
            true => print_done(&format!("removed ublk device {number}\n")),
            false => Err(CommandError::NoUblkDevice { number }),
        },
    }
}

fn list(json: bool) -> Result<(), CommandError> {
    let rows: Vec<Row> = ublk::list().map_err(ServeError::from)?.into_iter().map(row).collect();
    if json {
        return print_json(&rows);
    }
    let mut text = String::new();
    for row in rows {
        let state = match row.served_by {
            Some(pid) => format!("served by process {pid}"),
            None => "waits for a server".into(),
        };
        text += &format!("{}  {}  {state}\n", row.device, format_size(row.size_bytes));
    }
    print(&text)
}

fn row(listed: Listed) -> Row {
    Row {
        number: listed.number,
        device: block_path(listed.number).display().to_string(),
        size_bytes: listed.blocks * dcd_engine::units::BLOCK_SIZE,
        served_by: listed.served_by,
    }
}
