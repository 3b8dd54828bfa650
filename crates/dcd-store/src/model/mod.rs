//! The model of a store, for tests and for `dcd fuzz --store`: this crate's own code against a server
//! that answers late, twice, wrongly or not at all ([`server`]), with processes that end at any of
//! their requests, on simulated time.
//!
//! - [`run`]: the disk in a store under a load of its own ([`world`]): flushes, windows, collection,
//!   snapshots, clones, take-overs, writers that are gone and do not know it.
//! - [`Host`]: the same for whoever puts an engine and a cache-disk before it (`dcd-fuzz`).
//! - [`take_over`]: at the changes of the store that either makes, the cache-disk is thrown away.
//!
//! All that is random follows from the seed: also what SlateDB draws, and what time it is.
//! What goes wrong is a panic, or an error that names what was seen.

mod host;
mod random;
mod server;
mod take_over;
#[cfg(test)]
mod tests;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dcd_protocol::store::Claim;
use object_store::path::Path;

pub use host::Host;
pub use server::{Clock, Connection, Server, Troubles};
pub use take_over::{Expected, Image, image_of};
pub use world::run;
#[cfg(test)]
pub(crate) use {
    random::Random,
    tests::{new_store, on_simulated_time},
    world::{content, write_of},
};

use crate::objects::Bucket;
use crate::simulated::Simulated;

/// What a thread that runs this needs.
pub const STACK_BYTES: usize = crate::keeper::STACK_BYTES;
/// Where the store is.
const PREFIX: &str = "a/b";

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Runs.
    pub runs: u64,
    /// Requests of the load.
    pub steps: u64,
    /// Processes that had the store open.
    pub openings: u64,
    /// Those that ended at one of their requests.
    pub deaths: u64,
    /// Times that the cache was lost and another one took the store over, and the run went on.
    pub take_overs: u64,
    /// Windows that ended.
    pub windows: u64,
    /// Flushes that were answered with all before them in the store.
    pub remote_flushes: u64,
    /// Moments at which the cache-disk was thrown away, the store taken over and compared.
    pub crash_points: u64,
    /// Of these, those where the take-over was cut off, and made again.
    pub cut_off: u64,
    /// What went wrong.
    pub troubles: Troubles,
}

impl Report {
    /// Adds another.
    pub fn add(&mut self, other: &Report) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.openings += other.openings;
        self.deaths += other.deaths;
        self.take_overs += other.take_overs;
        self.windows += other.windows;
        self.remote_flushes += other.remote_flushes;
        self.crash_points += other.crash_points;
        self.cut_off += other.cut_off;
        self.troubles.requests += other.troubles.requests;
        self.troubles.nothing += other.troubles.nothing;
        self.troubles.unanswered += other.troubles.unanswered;
        self.troubles.late += other.troubles.late;
        self.troubles.twice += other.troubles.twice;
        self.troubles.half_written += other.troubles.half_written;
        self.troubles.old_listings += other.troubles.old_listings;
        self.troubles.other_objects += other.troubles.other_objects;
    }
}

/// Time and random numbers of all that use a server.
#[derive(Clone)]
pub struct Simulation {
    of_server: Clock,
    seed: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Simulation {
    /// Those of this server.
    pub fn new(server: &Server, seed: u64) -> Simulation {
        let seeds = AtomicU64::new(seed);
        let seed = Arc::new(move || random::mixed(seeds.fetch_add(1, Ordering::Relaxed)));
        Simulation { of_server: server.clock.clone(), seed }
    }

    /// The store of this prefix, as a process sees it on a machine whose clock is ahead by so much.
    pub(crate) fn bucket(&self, prefix: &str, process: &Connection, ahead_millis: i64) -> Bucket {
        let clock = Arc::new(self.of_server.ahead(ahead_millis));
        let store = Arc::new(process.clone());
        let mut bucket = Bucket::of("test".into(), Path::from(prefix), store);
        bucket.simulated = Some(Simulated { clock, seed: self.seed.clone() });
        bucket
    }
}

pub(crate) fn claim_of(cache: &str) -> Claim {
    Claim {
        cache: cache.into(),
        had: None,
        next: format!("of {cache}"),
        place: "here".into(),
        generation: 1,
        trusts_disks: false,
        is_now: false,
        host: None,
    }
}

/// On simulated time, which goes on when nobody does anything.
pub fn on_this_thread(what: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(what);
    runtime.shutdown_background();
}

/// What it panicked with, if it did.
pub fn judged<T>(what: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(what)).map_err(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
        words.unwrap_or_else(|| "it panicked".into())
    })
}
