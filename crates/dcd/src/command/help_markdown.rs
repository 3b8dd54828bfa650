//! `dcd help-markdown`: the reference page `docs/cli.md`, made from the command line itself.
//! `tests/documents.rs` compares the two.

use clap::Args;

use crate::command::cli::{self, HELP_WIDTH};
use crate::error::CommandError;
use crate::stdout::print;

/// Print docs/cli.md.
#[derive(Args, Debug)]
#[command(hide = true)]
pub struct HelpMarkdownArguments {}

const HEAD: &str = "\
# The command line

Made by `dcd help-markdown > docs/cli.md`; change `crates/dcd/src/command/cli.rs` and `settings.rs` instead.
";

pub fn run() -> Result<(), CommandError> {
    let mut command = cli::command().term_width(HELP_WIDTH);
    command.build();
    let mut text = HEAD.to_owned();
    section(&mut command, &mut text);
    print(&text)
}

/// The help of a command, then those of its visible verbs.
fn section(command: &mut clap::Command, text: &mut String) {
    let name = command.get_bin_name().unwrap_or("dcd").to_owned();
    let help = command.clone().term_width(HELP_WIDTH).render_long_help().to_string();
    *text += &format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
    for verb in command.get_subcommands_mut() {
        if !verb.is_hide_set() && verb.get_name() != "help" {
            section(verb, text);
        }
    }
}
