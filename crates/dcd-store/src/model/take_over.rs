//! The cache-disk is thrown away, at any change of the store, and another host takes the store over:
//! what it finds must be the state at the end of a window, the last one that was told to be ended or
//! one that was about to be.
//!
//! A point is a copy of what the server had at that moment; it is looked at when the run is over.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use dcd_protocol::store::TakeOver;
use object_store::memory::InMemory;
use object_store::path::Path;

use super::random::Random;
use super::server::Server;
use super::{PREFIX, Simulation, claim_of, on_this_thread};
use crate::disk::StoreDisk;
use crate::format::LINE_BYTES;
use crate::map::{Access, Map};

/// What tells lines apart; 0 is a line of zeroes, which may be left out.
pub type Image = BTreeMap<u64, u64>;

/// What whoever takes a store over must find.
#[derive(Clone, Debug)]
pub struct Expected {
    /// One of these.
    pub images: Vec<Arc<Image>>,
    /// What tells this line apart.
    pub digest: fn(&[u8]) -> u64,
}

/// See the module.
pub struct Point {
    pub(super) number: u64,
    pub(super) objects: InMemory,
    pub(super) modified: BTreeMap<Path, DateTime<Utc>>,
    pub(super) now: DateTime<Utc>,
    pub(super) expected: Arc<Expected>,
}

/// What a disk shows.
pub fn image_of(bytes: &[u8], digest: fn(&[u8]) -> u64) -> Image {
    let lines = bytes.chunks(LINE_BYTES).map(digest).zip(0..);
    lines.filter(|(digest, _)| *digest != 0).map(|(digest, line)| (line, digest)).collect()
}

/// Takes the store over at each of these points. Tells how often a take-over was cut off before.
///
/// # Panics
/// If something else is there than must be.
pub fn check(points: Vec<Point>) -> u64 {
    let mut cut_off = 0;
    for point in points {
        on_this_thread(async { cut_off += u64::from(take_over(&point).await) });
    }
    cut_off
}

async fn take_over(point: &Point) -> bool {
    let mut random = Random(point.number);
    let server = Server::of_point(point);
    let simulated = Simulation::new(&server, random.next());
    let is_cut_off = random.once_in(8);
    if is_cut_off {
        // Whoever takes it over dies of that, too, and the next one does it again.
        let first = server.connect(Some(1 + random.below(40)));
        let bucket = simulated.bucket(PREFIX, &first, 0);
        let cut_off = async {
            Map::bind(&bucket, Some("another"), TakeOver::Now).await?;
            StoreDisk::open(bucket, &Access::Write(claim_of("another"))).await
        };
        tokio::select! {
            biased;
            _ = cut_off => {}
            () = first.ended() => {}
        }
    }
    let bucket = simulated.bucket(PREFIX, &server.connect(None), 0);
    let bound = Map::bind(&bucket, Some("other"), TakeOver::Now).await;
    bound.unwrap_or_else(|why| panic!("a take-over: {why}"));
    // What it does with it then is looked at less often.
    let access = match random.once_in(4) {
        true => Access::Write(claim_of("other")),
        false => Access::Read,
    };
    let disk = StoreDisk::open(bucket, &access).await;
    let disk = disk.unwrap_or_else(|why| panic!("behind a take-over: {why}"));
    let read = disk.read(0, disk.lines as usize).await;
    let read = read.unwrap_or_else(|why| panic!("behind a take-over: {why}"));
    let Expected { images, digest } = &*point.expected;
    let found = image_of(&read, *digest);
    assert!(
        images.iter().any(|image| **image == found),
        "taken over, the store shows {found:?}, which is not among the windows {images:?}"
    );
    if random.once_in(4) {
        let problems = disk.check().await.unwrap_or_else(|why| panic!("behind a take-over: {why}"));
        assert!(problems.is_empty(), "behind a take-over: {problems:?}");
    }
    is_cut_off
}
