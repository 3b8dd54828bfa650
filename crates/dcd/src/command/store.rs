//! `dcd store`: an object store without its cache.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dcd_daemon::device::network::{StoreFailure, StoreName};
use dcd_daemon::units_text::format_size;
use serde_json::json;

use crate::error::CommandError;
use crate::stdout::{print, print_done, print_done_with, print_json};

/// Tell what an object store is, copy what is in it, look at all of it. Nothing in it is changed.
///
/// Endpoint and credentials come from the environment: AWS_ENDPOINT_URL, AWS_REGION,
/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd store info s3://bucket/vol
  dcd store copy s3://bucket/vol --to vol.img
  dcd store check s3://bucket/vol")]
pub struct StoreArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Size, owner, last window, and how much of it is in use.
    Info {
        /// s3://BUCKET/PREFIX
        #[arg(value_name = "STORE")]
        store: StoreName,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write the disk as it was at the end of the last window to a new file.
    Copy {
        /// s3://BUCKET/PREFIX
        #[arg(value_name = "STORE")]
        store: StoreName,
        /// The file; it must not be there yet.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Read all that is in use, and compare it with its checksums and the map with its counts.
    Check {
        /// s3://BUCKET/PREFIX
        #[arg(value_name = "STORE")]
        store: StoreName,
    },
}

pub fn run(arguments: &StoreArguments) -> Result<(), CommandError> {
    match &arguments.what {
        What::Info { store, json: as_json } => {
            let facts = dcd_store::offline::info(store).map_err(failed)?;
            if *as_json {
                return print_json(&json!(facts));
            }
            let owner = match &facts.cache {
                Some(cache) => format!("cache {cache}, epoch {}", facts.epoch),
                None => "nobody".into(),
            };
            let window = match facts.window {
                Some(window) => format!("{window}"),
                None => "none".into(),
            };
            let (live, all) = (facts.live_lines * 4096, facts.lines * 4096);
            print(&format!(
                "{store}: {}\nbelongs to: {owner}\nlast window: {window}\nin use: {} of {} in {} objects\nstaged: {}\n",
                format_size(facts.size_bytes),
                format_size(live),
                format_size(all),
                facts.objects,
                format_size(facts.staged_lines * 4096),
            ))
        }
        What::Copy { store, to } => {
            let copied = dcd_store::offline::copy(store, to).map_err(failed)?;
            let words = format!("copied {} to {}\n", format_size(copied), to.display());
            print_done_with(&words, json!({ "copied_bytes": copied }))
        }
        What::Check { store } => {
            let problems = dcd_store::offline::check(store).map_err(failed)?;
            if problems.is_empty() {
                return print_done("ok\n");
            }
            let problem = format!("{store}: {} problems: {}", problems.len(), problems.join("; "));
            let hint =
                "restore these objects from versions of the bucket; what the log has is newer";
            Err(failed(StoreFailure {
                problem,
                hint: Some(hint.into()),
                is_silence: false,
                is_lost: false,
            }))
        }
    }
}

fn failed(failure: StoreFailure) -> CommandError {
    CommandError::Store(failure)
}
