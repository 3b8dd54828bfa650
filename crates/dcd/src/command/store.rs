//! `dcd store`: an object store without its cache, and its snapshots with and without.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, Subcommand};
use dcd_daemon::control::client::ControlClient;
use dcd_daemon::device::network::{StoreFailure, StoreName};
use dcd_daemon::units_text::{format_duration, format_size};
use dcd_protocol::Command;
use dcd_protocol::store::{SnapshotName, StoreCommand, StoreFacts};
use serde_json::json;

use crate::daemons;
use crate::error::CommandError;
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_done, print_done_with, print_json};

/// Tell what an object store is, copy what is in it, look at all of it, keep snapshots, make clones.
///
/// Endpoint and credentials come from the environment: AWS_ENDPOINT_URL, AWS_REGION,
/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd store info s3://bucket/vol
  dcd store copy s3://bucket/vol --to vol.img
  dcd store check s3://bucket/vol
  dcd store snapshot add s3://bucket/vol before-upgrade
  dcd store copy s3://bucket/vol --snapshot before-upgrade --to vol.img
  dcd store clone s3://bucket/vol s3://bucket/trial --snapshot before-upgrade")]
pub struct StoreArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Size, owner, last window, snapshots, and how much of it is in use.
    Info {
        /// s3://BUCKET/PREFIX
        #[arg(value_name = "STORE")]
        store: StoreName,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write the disk as it was at the end of the last window, or at a snapshot, to a new file.
    Copy {
        /// s3://BUCKET/PREFIX
        #[arg(value_name = "STORE")]
        store: StoreName,
        /// The file; it must not be there yet.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// As of this snapshot.
        #[arg(long, value_name = "NAME")]
        snapshot: Option<SnapshotName>,
    },
    /// Read all that is in use, and compare it with its checksums and the map with its counts.
    Check {
        /// s3://BUCKET/PREFIX
        #[arg(value_name = "STORE")]
        store: StoreName,
        /// All that is in use by this snapshot.
        #[arg(long, value_name = "NAME")]
        snapshot: Option<SnapshotName>,
    },
    /// Make a new store with the same disk in it, as of the end of the last window or a snapshot.
    ///
    /// Afterwards nothing connects the two. In one bucket the server copies the objects, and they do
    /// not come through this machine. The clone belongs to nobody: `dcd create --data-disk` takes it.
    Clone {
        /// s3://BUCKET/PREFIX
        #[arg(value_name = "STORE")]
        store: StoreName,
        /// The new one: a prefix where nothing is.
        #[arg(value_name = "NEW-STORE")]
        to: StoreName,
        /// As of this snapshot: the choice for a store that is served.
        #[arg(long, value_name = "NAME")]
        snapshot: Option<SnapshotName>,
    },
    /// Keep the disk as it is, until that is removed.
    #[command(subcommand)]
    Snapshot(SnapshotVerb),
}

#[derive(Subcommand, Debug)]
enum SnapshotVerb {
    /// Keep the disk as it is now.
    ///
    /// Of a store that is served, all that was acknowledged so far goes there first; of one that is
    /// not, it is the end of the last window.
    Add {
        #[command(flatten)]
        which: Which,
    },
    /// Keep it no more: what only this snapshot has is deleted a minute later.
    Remove {
        #[command(flatten)]
        which: Which,
    },
    /// All of them, the oldest first.
    List {
        /// s3://BUCKET/PREFIX
        #[arg(value_name = "STORE")]
        store: StoreName,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
struct Which {
    /// s3://BUCKET/PREFIX
    #[arg(value_name = "STORE")]
    store: StoreName,
    /// The snapshot.
    #[arg(value_name = "NAME")]
    name: SnapshotName,
    /// The dcd that serves the store, if it is none of those with a control socket in /run/dcd.
    #[arg(long, value_name = "CACHE")]
    control: Option<PathBuf>,
}

impl Which {
    /// The dcd that has it open, if that is known here.
    fn served_by(&self) -> Result<Option<ControlClient>, CommandError> {
        if let Some(named) = &self.control {
            return daemons::connect(named).map(Some);
        }
        Ok(daemons::with_data_disk(Path::new(daemons::DIRECTORY), &self.store.to_string()))
    }

    /// `is_to_be_now`: what is in the log goes there first.
    /// Tells what there is to be known if nobody serves the store.
    fn change(&self, command: StoreCommand, is_to_be_now: bool) -> Result<String, CommandError> {
        let Some(mut client) = self.served_by()? else {
            let facts = dcd_store::offline::snapshots(&self.store, &command).map_err(failed)?;
            return Ok(match (is_to_be_now, facts.cache, facts.committed_unix_seconds) {
                (true, Some(cache), Some(then)) => format!(
                    ": nobody serves the store, so it is as committed {}; what cache {cache} has in its log beyond that \
                     is not in it",
                    ago(then)
                ),
                (true, ..) => String::new(),
                (false, ..) => ": its room is given back when the store is served".into(),
            });
        };
        let served = client.status()?.data_disk;
        if served != self.store.to_string() {
            return Err(failed(StoreFailure {
                problem: format!("that dcd serves {served}, not {}", self.store),
                hint: Some("give the dcd that serves the store: dcd list".into()),
                is_silence: false,
                is_lost: false,
            }));
        }
        if is_to_be_now {
            let mut progress = Progress::new("draining", Unit::Bytes);
            client.request(Command::Drain, &mut |so_far| {
                progress.lines(so_far);
            })?;
            progress.finish();
        }
        client.store(command)?;
        Ok(String::new())
    }
}

/// How long ago that was, by the clock of this machine.
fn ago(unix_seconds: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_secs(unix_seconds);
    let since = then.elapsed().unwrap_or_default();
    format!("{} ago", format_duration(Duration::from_secs(since.as_secs())))
}

fn info_words(store: &StoreName, facts: &StoreFacts) -> String {
    let owner = match &facts.cache {
        Some(cache) => format!("cache {cache}, epoch {}", facts.epoch),
        None => "nobody".into(),
    };
    let window = facts.window.map_or_else(|| "none".into(), |window| window.to_string());
    let (live, all) = (facts.live_lines * 4096, facts.lines * 4096);
    let mut words = format!(
        "{store}: {}\nbelongs to: {owner}\nlast window: {window}\nin use: {} of {} in {} objects\nstaged: {}\n",
        format_size(facts.size_bytes),
        format_size(live),
        format_size(all),
        facts.objects,
        format_size(facts.staged_lines * 4096),
    );
    let length = facts.lease_seconds.map_or_else(|| "?".into(), |it| it.to_string());
    let on_host = facts.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
    words += &match facts.lease_left_seconds {
        Some(left) => format!(
            "lease: of {length} s; a dcd has it{on_host}: {left} s left, unless it is renewed\n"
        ),
        None => format!("lease: of {length} s; nobody has it\n"),
    };
    if !facts.snapshots.is_empty() {
        let names: Vec<&str> = facts.snapshots.iter().map(|it| it.name.as_str()).collect();
        words += &format!(
            "snapshots: {}; {} objects are kept for them alone\n",
            names.join(", "),
            facts.kept_objects
        );
    }
    words
}

/// Runs what takes long and tells how many bytes are done.
fn with_progress<T>(
    what: &'static str,
    run: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<T, StoreFailure>,
) -> Result<T, CommandError> {
    let mut progress = Progress::new(what, Unit::Bytes);
    let done = run(&mut |done, total| progress.update(done, total));
    progress.finish();
    done.map_err(failed)
}

pub fn run(arguments: &StoreArguments) -> Result<(), CommandError> {
    match &arguments.what {
        What::Info { store, json: as_json } => {
            let facts = dcd_store::offline::info(store).map_err(failed)?;
            match as_json {
                true => print_json(&json!(facts)),
                false => print(&info_words(store, &facts)),
            }
        }
        What::Copy { store, to, snapshot } => {
            let copied = with_progress("copying", |told| {
                dcd_store::offline::copy(store, snapshot.as_ref(), to, told)
            })?;
            let words = format!("copied {} to {}\n", format_size(copied), to.display());
            print_done_with(&words, json!({ "copied_bytes": copied }))
        }
        What::Check { store, snapshot } => check(store, snapshot.as_ref()),
        What::Clone { store, to, snapshot } => {
            let cloned = with_progress("copying", |told| {
                dcd_store::offline::clone_to(store, snapshot.as_ref(), to, told)
            })?;
            let words = format!("{to} has the same {}\n", format_size(cloned));
            print_done_with(&words, json!({ "copied_bytes": cloned }))
        }
        What::Snapshot(SnapshotVerb::Add { which }) => {
            let more = which.change(StoreCommand::Snapshot { name: which.name.clone() }, true)?;
            print_done(&format!("{} is kept{more}\n", which.name))
        }
        What::Snapshot(SnapshotVerb::Remove { which }) => {
            let name = which.name.clone();
            let more = which.change(StoreCommand::RemoveSnapshot { name }, false)?;
            print_done(&format!("{} is removed{more}\n", which.name))
        }
        What::Snapshot(SnapshotVerb::List { store, json: as_json }) => {
            let facts = dcd_store::offline::info(store).map_err(failed)?;
            if *as_json {
                return print_json(&json!(facts.snapshots));
            }
            let rows = facts.snapshots.iter();
            let rows = rows.map(|it| format!("{}, {}\n", it.name, ago(it.taken_unix_seconds)));
            print(&rows.collect::<String>())
        }
    }
}

fn check(store: &StoreName, snapshot: Option<&SnapshotName>) -> Result<(), CommandError> {
    let problems = dcd_store::offline::check(store, snapshot).map_err(failed)?;
    if problems.is_empty() {
        return print_done("ok\n");
    }
    Err(CommandError::StoreDamage { store: store.to_string(), problems })
}

fn failed(failure: StoreFailure) -> CommandError {
    CommandError::Store(failure)
}
