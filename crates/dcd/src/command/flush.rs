//! `dcd flush`: asks a running dcd to make everything acknowledged durable.

use dcd_protocol::Command;

use crate::cli::FlushArguments;
use crate::daemons;
use crate::error::CommandError;
use crate::output::print;

pub fn run(arguments: &FlushArguments) -> Result<(), CommandError> {
    daemons::connect(&arguments.control)?.request(Command::Flush, &mut |_| ())?;
    print("flushed\n")
}
