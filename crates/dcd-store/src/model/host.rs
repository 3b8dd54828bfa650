//! A simulated store for whoever puts an engine with its cache-disk before it.

use std::sync::Arc;

use dcd_protocol::store::{Claim, StoreFailure, TakeOver};

use super::server::{Connection, Server};
use super::take_over::check;
use super::{PREFIX, Report, Simulation, random};
use crate::disk::StoreDisk;
use crate::map::{Access, Map};

/// A store on a server of its own.
#[derive(Clone)]
pub struct Host {
    /// The server.
    pub server: Arc<Server>,
    simulated: Simulation,
}

impl Host {
    /// A new store of this size, which belongs to this cache.
    ///
    /// # Panics
    /// If that cannot be made, although nothing goes wrong yet.
    pub async fn new(seed: u64, size_bytes: u64, cache: &str, points_each: u64) -> Host {
        let server = Server::new(seed, points_each);
        let simulated = Simulation::new(&server, random::mixed(seed));
        let bucket = simulated.bucket(PREFIX, &server.connect(None), 0);
        assert!(bucket.create(size_bytes, "nonce").await.expect("a store"), "it is new");
        Map::bind(&bucket, Some(cache), TakeOver::No).await.expect("a map");
        Host { server, simulated }
    }

    /// Opens it to write, as this process.
    ///
    /// # Errors
    /// If it is not for this claim, or the server does not do what is asked.
    pub async fn open(
        &self,
        process: &Connection,
        ahead_millis: i64,
        claim: &Claim,
    ) -> Result<Arc<StoreDisk>, StoreFailure> {
        let bucket = self.simulated.bucket(PREFIX, process, ahead_millis);
        StoreDisk::open(bucket, &Access::Write(claim.clone())).await
    }

    /// Another cache takes it over.
    ///
    /// # Errors
    /// If the server does not do what is asked.
    pub async fn take_over(&self, process: &Connection, cache: &str) -> Result<(), StoreFailure> {
        let bucket = self.simulated.bucket(PREFIX, process, 0);
        Map::bind(&bucket, Some(cache), TakeOver::Now).await.map(|_| ())
    }

    /// What the store has alone. Without troubles.
    ///
    /// # Errors
    /// If something of it cannot be read.
    pub async fn alone(&self) -> Result<Vec<u8>, StoreFailure> {
        let bucket = self.simulated.bucket(PREFIX, &self.server.connect(None), 0);
        let disk = StoreDisk::open(bucket, &Access::Read).await?;
        let window = disk.window().await?;
        let mut bytes = vec![0; disk.size_bytes() as usize];
        disk.fetch(0, window.places, &mut bytes).await?;
        disk.close().await;
        Ok(bytes)
    }

    /// Takes it over at all points that there were, when the run is over.
    ///
    /// # Panics
    /// If something else is there than must be.
    pub fn check_points(&self, report: &mut Report) {
        let points = self.server.take_points();
        report.crash_points += points.len() as u64;
        report.cut_off += check(points);
    }
}
