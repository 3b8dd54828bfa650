//! Caches that share a cache-disk, in tests: made, started, written to and compared.

use std::sync::atomic::{AtomicBool, Ordering};

use super::model::{Mix, difference};
use super::nbd::Client;
use super::random::Random;
use super::{Daemon, Site, Value, seed};

/// Bytes of a data-disk.
pub const VOLUME: u64 = 4 << 20;
pub const MIB: u64 = 1 << 20;
pub const FLAGS: &str = "--quiet --idle-max 20ms --memory-directory .";

/// Makes a share of so many MiB.
pub fn make(site: &Site, disk: &str, data: &str, mib: u64) {
    site.folder.disk(data, VOLUME);
    site.dcd(&format!(
        "create --cache-disk {disk} --share {mib}M --segment-size 64k --data-disk {data}"
    ))
    .ok();
}

/// Starts the cache that has the share of a data-disk.
pub fn start(site: &Site, disk: &str, data: &str) -> Daemon {
    site.start_line(&format!(
        "serve --cache-disk {disk} --data-disk {data} --nbd unix:{data}.nbd --control {data}.ctl {FLAGS}"
    ))
    .ready()
}

/// What is free of a disk, and what a share has, in MiB, and in how many parts.
pub fn room(site: &Site, disk: &str, share: &str) -> (u64, u64, usize) {
    let told = site.dcd(&format!("inspect shares --cache-disk {disk} --json")).ok();
    let told: Value = serde_json::from_str(&told).unwrap();
    let parts = told["shares"].as_array().unwrap();
    let sizes: Vec<u64> = parts
        .iter()
        .filter(|part| part["share"] == share)
        .map(|part| part["size_bytes"].as_u64().unwrap() / MIB)
        .collect();
    (told["free_bytes"].as_u64().unwrap() / MIB, sizes.iter().sum(), sizes.len())
}

/// What a client has written to a disk.
pub struct Load {
    pub data: String,
    random: Random,
    pub volume: Vec<u8>,
}

impl Load {
    pub fn new(data: &str, salt: u64) -> Load {
        let random = Random::new(seed() ^ salt);
        Load { data: data.into(), random, volume: vec![0; VOLUME as usize] }
    }

    /// Nothing of it may fail. Runs until it is told to end, and has done so much at least.
    pub fn run(&mut self, site: &Site, ops_min: usize, is_over: &AtomicBool) {
        let mix =
            Mix { volume: VOLUME, sectors_max: 64, flush_every: 9, fua_every: 7, zero_every: 12 };
        let mut client = Client::connect(&site.path(&format!("{}.nbd", self.data)));
        let mut ops = 0;
        while ops < ops_min || !is_over.load(Ordering::Relaxed) {
            let op = mix.op(&mut self.random);
            client.do_op(&op).unwrap_or_else(|error| panic!("{}: {op:?}: {error:?}", self.data));
            op.apply(&mut self.volume);
            ops += 1;
        }
        client.flush().unwrap();
    }

    pub fn run_some(&mut self, site: &Site, ops: usize) {
        self.run(site, ops, &AtomicBool::new(true));
    }

    pub fn compare(&self, site: &Site, daemon: &Daemon) {
        let path = site.path(&format!("{}.nbd", self.data));
        let found = Client::connect(&path).read_all().unwrap();
        assert_eq!(difference(&found, &self.volume), None, "{}: {}", self.data, daemon.log());
    }
}

/// Runs all loads while `work` is done.
pub fn beside<T>(site: &Site, loads: &mut [Load], work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let running: Vec<_> =
            loads.iter_mut().map(|load| scope.spawn(move || load.run(site, 20, is_over))).collect();
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        running.into_iter().for_each(|load| load.join().unwrap());
        done
    })
}
