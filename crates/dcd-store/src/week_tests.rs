//! How much of what is stored is in use, while a disk is written over and over for a day of
//! simulated time, with the house kept as the process of a store keeps it. `DCD_STORE_HOURS=168` is
//! a week.
//!
//! Garbage is all that is in the bucket and is no line in use: lines that were written over, tables
//! in objects, objects that are only waiting to be deleted, and the map with what it has left behind.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use object_store::ObjectStore as _;

use crate::disk::StoreDisk;
use crate::format::LINE_BYTES;
use crate::map::Access;
use crate::model::{Random, claim_of, content, new_store, on_simulated_time, write_of};
use crate::objects::Bucket;

const LINES: u64 = 8 << 10;
const WINDOW_SECONDS: u64 = 600;
/// Six times as long as really.
const HOUSE_SECONDS: u64 = 60;
const HOUR_SECONDS: u64 = 3600;
const GARBAGE_PERCENT_MAX: u64 = 30;

/// A line, the more likely the smaller its number before it is scattered: a fifth of them takes
/// 58 % of all writes.
fn skewed(random: &mut Random) -> u64 {
    let part = random.below(1 << 20) as f64 / f64::from(1 << 20);
    let hot = (part.powi(3) * LINES as f64) as u64;
    hot.wrapping_mul(0x9e37_79b1) % LINES
}

struct Week {
    disk: Arc<StoreDisk>,
    bucket: Bucket,
    random: Random,
    writes: Vec<u64>,
    written: u64,
}

impl Week {
    async fn garbage_percent(&self) -> u64 {
        let all: Vec<_> = self.bucket.store.list(None).try_collect().await.unwrap();
        let stored: u64 = all.iter().map(|it| it.size).sum();
        let facts = self.disk.facts().await;
        assert_eq!(facts.live_lines, LINES);
        (stored - LINES * LINE_BYTES as u64) * 100 / stored
    }

    async fn write(&mut self, line: u64, count: u64) {
        for line in line..line + count {
            self.written += 1;
            self.writes[line as usize] = self.written;
            self.disk.write(line, content(self.written).into()).await.unwrap();
        }
    }

    /// What comes in a window: now and then a large file, now and then much, mostly little.
    async fn window(&mut self, number: u64) {
        match self.random.below(40) {
            0 => {
                let count = 512 + self.random.below(512);
                let line = self.random.below(LINES - count);
                self.write(line, count).await;
            }
            1..=4 => {
                for _ in 0..1000 {
                    let line = skewed(&mut self.random);
                    self.write(line, 1).await;
                }
            }
            _ => {
                for _ in 0..self.random.below(80) {
                    let line = skewed(&mut self.random);
                    self.write(line, 1).await;
                }
            }
        }
        self.disk.commit(number).await.unwrap();
    }
}

async fn a_week() {
    let (_, bucket) = new_store(7, LINES, "cache").await;
    let access = Access::Write(claim_of("cache"));
    let disk = StoreDisk::open(bucket.clone(), &access).await.unwrap();
    let writes = vec![0; LINES as usize];
    let mut week = Week { disk, bucket, random: Random(7), writes, written: 0 };
    week.write(0, LINES).await;
    let hours = std::env::var("DCD_STORE_HOURS").map_or(24, |hours| hours.parse().unwrap());
    let (mut window, mut worst, mut behind) = (0, 0, 0);
    for hour in 0..hours {
        for _ in 0..HOUR_SECONDS / WINDOW_SECONDS {
            window += 1;
            week.window(window).await;
            // What it has given up waits for a minute.
            behind = behind.max(week.garbage_percent().await);
            for _ in 0..WINDOW_SECONDS / HOUSE_SECONDS {
                // A jump: what looks for news every second does that once.
                tokio::time::advance(Duration::from_secs(HOUSE_SECONDS)).await;
                while week.disk.collect().await.unwrap() {}
            }
            let percent = week.garbage_percent().await;
            worst = worst.max(percent);
            assert!(percent <= GARBAGE_PERCENT_MAX, "hour {hour}: {percent} % is garbage");
        }
        if hour % 12 == 0 {
            let percent = week.garbage_percent().await;
            println!("hour {hour}: {percent} % of what is stored is garbage, {worst} % at most");
        }
    }
    let times = week.written / LINES;
    println!("{times} times as much was written as there is, {worst} % were garbage at most");
    println!("right behind a window, of up to an eighth of the disk, {behind} %");
    assert!(times > hours / 24 && worst > 10, "little was written over");
    let bytes = week.disk.read(0, LINES as usize).await.unwrap();
    for (found, expected) in bytes.chunks(LINE_BYTES).zip(&week.writes) {
        assert_eq!(write_of(found), *expected);
    }
    assert_eq!(week.disk.check().await.unwrap(), Vec::<String>::new());
}

#[test]
fn under_a_week_of_rewriting_little_is_garbage() {
    on_simulated_time(a_week);
}
