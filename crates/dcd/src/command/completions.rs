//! `dcd completions`: a completion script for a shell.

use crate::cli::{self, CompletionsArguments};
use crate::error::CommandError;
use crate::output::print;

pub fn run(arguments: &CompletionsArguments) -> Result<(), CommandError> {
    // Made in memory first: the generator panics when its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut cli::command(), "dcd", &mut script);
    print(&String::from_utf8_lossy(&script))
}
