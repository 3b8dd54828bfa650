//! `dcd completions`: a completion script for a shell.

use clap::Args;

use crate::command::cli;
use crate::error::CommandError;
use crate::stdout::print;

/// Print a completion script for a shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd completions bash > /usr/share/bash-completion/completions/dcd")]
pub struct CompletionsArguments {
    /// Which shell.
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

pub fn run(arguments: &CompletionsArguments) -> Result<(), CommandError> {
    // Made in memory first: the generator panics when its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut cli::command(), "dcd", &mut script);
    print(&String::from_utf8_lossy(&script))
}
