//! `dcd flush`: asks a running dcd to make everything acknowledged durable.

use std::path::PathBuf;

use clap::Args;
use dcd_protocol::Command;

use crate::daemons;
use crate::error::CommandError;
use crate::stdout::print;

/// Make everything acknowledged so far survive a power cut.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd flush --control /run/sdb.ctl")]
pub struct FlushArguments {
    /// Control socket of the running dcd; of a service its name, or the device that it serves.
    #[arg(long, value_name = "SOCKET|DEVICE|NAME")]
    pub control: PathBuf,
}

pub fn run(arguments: &FlushArguments) -> Result<(), CommandError> {
    daemons::connect(&arguments.control)?.request(Command::Flush, &mut |_| ())?;
    print("flushed\n")
}
