//! `dcd flush`: asks a running dcd to make everything acknowledged durable.

use clap::Args;
use dcd_protocol::Command;

use crate::daemons::RunningCache;
use crate::error::CommandError;
use crate::stdout::print_done;

/// Make everything acknowledged so far survive a power cut.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd flush sdb
  dcd flush --control /run/sdb.ctl")]
pub struct FlushArguments {
    /// Which.
    #[command(flatten)]
    pub cache: RunningCache,
}

pub fn run(arguments: &FlushArguments) -> Result<(), CommandError> {
    arguments.cache.connect()?.request(Command::Flush, &mut |_| ())?;
    print_done("flushed\n")
}
