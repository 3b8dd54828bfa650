//! `dcd man`: the manual pages, one for the whole and one for each verb.

use std::path::PathBuf;

use clap::Args;

use crate::command::cli;
use crate::error::CommandError;
use crate::output::count;
use crate::stdout::print_done;

/// Write the manual pages into a directory.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd man /usr/share/man/man1")]
pub struct ManArguments {
    /// The directory; it must be there.
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

pub fn run(arguments: &ManArguments) -> Result<(), CommandError> {
    let directory = &arguments.directory;
    let failed = |source| CommandError::File {
        action: "write manual pages to",
        path: directory.clone(),
        source,
    };
    clap_mangen::generate_to(cli::command(), directory).map_err(failed)?;
    let pages = std::fs::read_dir(directory).map_err(failed)?;
    let is_ours = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("dcd") && name.ends_with(".1")
    };
    let pages = pages.filter_map(Result::ok).filter(is_ours).count() as u64;
    print_done(&format!("{} in {}\n", count(pages, "manual page"), directory.display()))
}
