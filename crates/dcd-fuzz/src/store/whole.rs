//! The engine ships windows into a store, under load, and everything dies.
//!
//! - What is read, and what is there behind a power cut of the machine, is as for any data-disk
//!   ([`crate::model`]).
//! - Whatever the store has alone is the end of a window, which is a point of the order of changes
//!   ([`crate::order`]), and no earlier than the last one that was told to be ended: looked at at any
//!   change of the store, by throwing the cache-disk away and taking the store over.
//! - A flush that is answered with `ack remote` is in it, with all that was acknowledged before.
//! - Behind a take-over the machine that had the store ends no window and answers no such flush.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dcd_engine::format::checksum::crc32c;
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{AckMode, Buffer, DestagePolicyKind, Lba, LbaRange, Operation, Reply, RequestId};
use dcd_protocol::store::Claim;
use dcd_store::model::{Expected, Host, Image, Report, image_of, judged, on_this_thread};
use dcd_testkit::read_into_used;
use tokio::time::Instant;

use super::machine::{Machine, News, open, superblock_of};
use crate::disk::{Fate, FaultyDisk, Pages};
use crate::faults::Allowed;
use crate::model::{ChangeNumber, Model, Shown, fill_block, read_block};
use crate::options::Options;
use crate::order::{KeptImage, Order};
use crate::random::Random;
use crate::run::new_pair;

const BLOCKS: u64 = 1024;
/// Machines that have the store one after the other.
const LIVES: u64 = 4;
/// How long whoever was shut out goes on.
const ZOMBIE_TIME: Duration = Duration::from_secs(30);

/// What is asked of the engine.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Read { start: u64, submitted: u64 },
    Change { number: ChangeNumber, fua: bool },
    Flush { submitted: u64 },
    RemoteFlush { submitted: u64, in_order: u64 },
}

/// The run of this seed.
///
/// # Errors
/// What was seen that must not be.
pub fn run(seed: u64) -> Result<Report, String> {
    judged(|| {
        let mut ended = None;
        on_this_thread(async { ended = Some(live(seed).await) });
        let (mut report, host) = ended.expect("it ran");
        host.check_points(&mut report);
        report
    })
}

fn digest(line: &[u8]) -> u64 {
    match line.iter().all(|byte| *byte == 0) {
        true => 0,
        false => u64::from(crc32c(line)) | 1 << 32,
    }
}

fn bytes_of(image: &Pages) -> Vec<u8> {
    let mut bytes = vec![0; image.len()];
    image.read(0, &mut bytes);
    bytes
}

struct World {
    host: Host,
    random: Random,
    options: Options,
    cache: String,
    model: Model,
    order: Order,
    asked: BTreeMap<RequestId, Asked>,
    /// What the store may have alone: the last window that was told to be ended, and those in doubt.
    windows: Vec<(u64, Arc<Image>, Pages)>,
    report: Report,
}

impl World {
    fn set_trouble(&mut self) {
        let trouble = self.random.pick(&[0, 40, 12]);
        self.host.server.trouble.store(trouble, Ordering::Relaxed);
    }

    fn expect(&self) {
        let images = self.windows.iter().map(|(_, image, _)| image.clone()).collect();
        self.host.server.expect(Expected { images, digest });
    }

    fn window_is_asked_for(&mut self, window: u64, image: Pages) {
        self.report.windows += 1;
        let shown = Arc::new(image_of(&bytes_of(&image), digest));
        // It may have been asked for before, and be of a later moment now.
        self.windows.push((window, shown, image.clone()));
        self.expect();
        self.compare(window, image);
    }

    fn compare(&mut self, window: u64, image: Pages) {
        let kept = KeptImage { window, image, is_durable: true };
        let compared = self.order.compare(&kept, BLOCKS, &Allowed::default());
        compared.unwrap_or_else(|violation| panic!("{violation}"));
    }

    fn window_is_kept(&mut self, window: u64, is_kept: bool) {
        if !is_kept {
            return;
        }
        let (last, ..) = self.windows.last().expect("it was asked for");
        assert_eq!(*last, window, "the one that was asked for");
        self.windows.drain(..self.windows.len() - 1);
        self.expect();
    }

    /// What is there alone, now that nobody can write.
    async fn look_alone(&mut self) {
        let trouble = self.host.server.quiet();
        let alone = self.host.alone().await.unwrap_or_else(|why| panic!("alone: {why}"));
        self.host.server.trouble_again(trouble);
        let found = image_of(&alone, digest);
        let index = self.windows.iter().rposition(|(_, image, _)| **image == found);
        let index = index.unwrap_or_else(|| {
            let expected: Vec<_> = self.windows.iter().map(|(window, ..)| window).collect();
            panic!("the store alone is none of the windows {expected:?}: {found:?}")
        });
        self.windows = vec![self.windows.swap_remove(index)];
        self.expect();
    }

    /// What comes of the machine.
    fn hear(&mut self, machine: &mut Machine) {
        while let Some(news) = machine.news() {
            match news {
                News::Reply(reply) => self.answered(reply),
                News::Window(window, image) => self.window_is_asked_for(window, image),
                News::Kept(window, is_kept) => self.window_is_kept(window, is_kept),
                News::Reopened => {
                    self.report.openings += 1;
                    self.report.deaths += 1;
                    self.dies_some_day(machine);
                }
                News::Lost => panic!("the store was lost, and nobody has taken it"),
            }
        }
    }

    fn dies_some_day(&mut self, machine: &Machine) {
        if self.random.one_in(2) {
            machine.worker.connection.ends_in(1 + self.random.below(150));
        }
    }

    fn answered(&mut self, reply: Reply) {
        let asked = self.asked.remove(&reply.id).expect("a reply to something");
        if let Err(error) = reply.result {
            // The store may not be there for long enough.
            if let Asked::Change { number, .. } = asked {
                self.model.acknowledge(number, false);
                self.order.acknowledge(number, false);
                panic!("a change failed: {error}");
            }
            return;
        }
        match asked {
            Asked::Read { start, submitted } => {
                let buffer = reply.buffer.expect("a read brings data");
                let read =
                    self.model.check_read(start, buffer.bytes(), submitted, &Allowed::default());
                read.unwrap_or_else(|violation| panic!("{violation}"));
            }
            Asked::Change { number, fua } => {
                self.model.acknowledge(number, true);
                self.order.acknowledge(number, true);
                if fua || self.options.ack == AckMode::Durable {
                    self.model.durable_change(number);
                }
            }
            Asked::Flush { submitted } => self.model.flushed(submitted),
            Asked::RemoteFlush { submitted, in_order } => {
                self.report.remote_flushes += 1;
                self.model.flushed(submitted);
                self.order.flushed(in_order);
                // What the store has for certain has it.
                let (window, _, image) = self.windows[0].clone();
                self.compare(window, image);
            }
        }
    }

    fn remote_flush(&mut self) -> (Asked, Operation) {
        let (submitted, in_order) = (self.model.tick(), self.order.tick());
        (Asked::RemoteFlush { submitted, in_order }, Operation::Drain)
    }

    fn ask(&mut self, machine: &mut Machine) {
        self.report.steps += 1;
        let start = self.random.below(BLOCKS);
        let most = self.random.pick(&[1, 8, 8, 16, 64]);
        let blocks = (1 + self.random.below(most)).min(BLOCKS - start);
        let (start, blocks) = match self.random.one_in(2) {
            true => (start / 8 * 8, blocks.next_multiple_of(8)),
            false => (start, blocks),
        };
        let range = LbaRange::new(start, blocks);
        let fua = self.random.one_in(16);
        let kind = self.random.below(20);
        if kind < 12 && self.model.overlaps_open(start, blocks) {
            return;
        }
        let (asked, operation) = match kind {
            0..12 => {
                let is_zero = kind >= 10;
                let is_atomic = is_zero || blocks + 8 <= self.options.atomic_blocks_max();
                let number = self.model.submit(start, blocks, is_zero, is_atomic);
                self.order.submit(number, start, blocks, is_zero, is_atomic);
                let mut data = Buffer::zeroed(range.bytes() as usize);
                let filled = data.bytes_mut().chunks_exact_mut(BLOCK_SIZE as usize).zip(start..);
                filled.for_each(|(block, at)| fill_block(block, number, at));
                let operation = match kind {
                    10 => Operation::Discard { range },
                    11 => Operation::WriteZeroes { range, may_unmap: false },
                    _ => Operation::Write { start: Lba(start), data },
                };
                (Asked::Change { number, fua }, operation)
            }
            12..16 => {
                let submitted = self.model.tick();
                (Asked::Read { start, submitted }, read_into_used(range))
            }
            16..18 => (Asked::Flush { submitted: self.model.tick() }, Operation::Flush),
            _ => self.remote_flush(),
        };
        let is_change = matches!(asked, Asked::Change { .. });
        // Known before it can be answered.
        self.asked.insert(RequestId(machine.running.next_request), asked);
        machine.ask(operation, fua && is_change);
        self.hear(machine);
    }

    /// Time goes on.
    async fn wait(&mut self, machine: &mut Machine, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            machine.turn(Some(until), &mut self.random).await;
            self.hear(machine);
        }
    }

    /// A start with this cache-disk, and that what is there is right.
    async fn started(&mut self, cache_disk: FaultyDisk, before: Option<&Claim>) -> Machine {
        let place = match before {
            Some(before) if self.random.one_in(2) => before.place.clone(),
            _ => self.random.bits().to_string(),
        };
        let claim = Claim {
            cache: self.cache.clone(),
            had: None,
            next: self.random.bits().to_string(),
            place,
            generation: superblock_of(&cache_disk).generation,
            trusts_disks: false,
            is_now: true,
            host: None,
        };
        self.set_trouble();
        let ahead_millis = self.random.below(8_000) as i64 - 4_000;
        self.report.openings += 1;
        let worker = open(&self.host, &claim, ahead_millis, &mut self.random).await;
        let worker = worker.unwrap_or_else(|why| panic!("a start: {why}"));
        self.look_alone().await;
        let mut machine = Machine::new(&self.host, cache_disk, claim, worker);
        machine.ahead_millis = ahead_millis;
        assert!(machine.start(&self.options, &mut self.random).await, "nobody else wants it");
        self.asked.clear();
        // What the engine does at its start, and while it is looked at, is of no window yet.
        let shown = self.read_all(&mut machine).await;
        let checked = self.model.check_after_crash(&shown, false, &Allowed::default());
        checked.unwrap_or_else(|violation| panic!("behind a power cut: {violation}"));
        self.model.adopt(&shown);
        self.order.crashed(&shown);
        self.hear(&mut machine);
        self.dies_some_day(&machine);
        machine
    }

    /// All blocks, without a look at what the machine tells besides.
    async fn read_all(&mut self, machine: &mut Machine) -> Vec<(u64, Shown)> {
        let mut shown = Vec::new();
        for start in (0..BLOCKS).step_by(128) {
            let id = machine.ask(read_into_used(LbaRange::new(start, 128)), false);
            let buffer = loop {
                let mut others = Vec::new();
                let mut found = None;
                while let Some(news) = machine.news() {
                    match news {
                        News::Reply(reply) if reply.id == id => found = Some(reply),
                        other => others.push(other),
                    }
                }
                for news in others {
                    match news {
                        News::Reply(_) => {}
                        // The first window of a start is all that it has found.
                        News::Window(window, image) => self.window_is_asked_for(window, image),
                        News::Kept(window, is_kept) => self.window_is_kept(window, is_kept),
                        News::Reopened => self.report.deaths += 1,
                        News::Lost => panic!("the store was lost, and nobody has taken it"),
                    }
                }
                match found {
                    // The store may be silent for longer than a read waits.
                    Some(reply) if reply.result.is_ok() => break reply.buffer,
                    Some(_) => {
                        self.host.server.trouble.store(0, Ordering::Relaxed);
                        return Box::pin(self.read_all(machine)).await;
                    }
                    None => machine.turn(None, &mut self.random).await,
                }
            };
            let buffer = buffer.expect("a read brings data");
            let blocks = buffer.bytes().chunks(BLOCK_SIZE as usize).zip(start..);
            shown.extend(blocks.map(|(bytes, block)| (block, read_block(bytes, block))));
        }
        shown
    }

    /// The machine is gone for good: another cache takes the store over. Whoever had it goes on.
    async fn lose_cache(&mut self, mut machine: Machine, life: u64) -> FaultyDisk {
        self.report.take_overs += 1;
        self.cache = format!("cache {life}");
        self.set_trouble();
        for attempt in 0.. {
            let is_last = attempt > 6;
            if is_last {
                self.host.server.trouble.store(0, Ordering::Relaxed);
            }
            let ends_at = (!is_last && self.random.one_in(3)).then(|| 1 + self.random.below(30));
            let process = self.host.server.connect(ends_at);
            let taken = tokio::select! {
                biased;
                taken = self.host.take_over(&process, &self.cache) => taken,
                () = process.ended() => continue,
            };
            match taken {
                Ok(()) => break,
                Err(why) => assert!(!is_last, "it is not taken over: {why}"),
            }
        }
        self.look_alone().await;
        // What the store has is what there is.
        let image = bytes_of(&self.windows[0].2);
        let blocks = image.chunks(BLOCK_SIZE as usize).zip(0..);
        let shown: Vec<_> = blocks.map(|(bytes, at)| (at, read_block(bytes, at))).collect();
        self.model.adopt(&shown);
        self.order.crashed(&shown);
        self.order.other_cache();
        // It may be told to be ended only now, if it was before that.
        let in_time = std::mem::take(&mut self.windows[0].0);
        self.asked.clear();
        // Whoever had it may be alive. Nothing of that is in the model.
        while machine.news().is_some() {}
        if self.random.one_in(2) && !machine.worker.connection.is_gone() {
            let data = Buffer::copy_of(&[0xbb; 4096]);
            machine.ask(Operation::Write { start: Lba(0), data }, false);
            let drain = machine.ask(Operation::Drain, false);
            let until = Instant::now() + ZOMBIE_TIME;
            while Instant::now() < until && !machine.is_lost {
                machine.turn(Some(until), &mut self.random).await;
                while let Some(news) = machine.news() {
                    match news {
                        News::Kept(window, true) if window != in_time => {
                            panic!("whoever was shut out has ended window {window}")
                        }
                        News::Reply(reply) if reply.id == drain && reply.result.is_ok() => {
                            panic!("whoever was shut out has answered a flush")
                        }
                        _ => {}
                    }
                }
            }
        }
        machine.worker.connection.end();
        new_pair(&self.options).cache_disk
    }
}

fn drawn_options(random: &mut Random) -> Options {
    Options {
        data_blocks: BLOCKS,
        policy: DestagePolicyKind::Ordered,
        ack: random.pick(&[AckMode::Memory, AckMode::Log, AckMode::Durable]),
        ship_within_ms: random.pick(&[100, 1_000, 10_000]),
        // Then the data-disk is known to be a store.
        max_delay_ms: random.pick(&[2, 2, 100]),
        bypass_bytes: 1 << 30,
        ..Options::default()
    }
}

async fn live(seed: u64) -> (Report, Host) {
    let mut random = Random::new(seed ^ 0x73_746f_7265);
    let options = drawn_options(&mut random);
    let points_each = random.pick(&[1, 2, 4]);
    let host = Host::new(random.bits(), BLOCKS * BLOCK_SIZE, "first", points_each).await;
    let nothing = Pages::new((BLOCKS * BLOCK_SIZE) as usize);
    let mut world = World {
        host: host.clone(),
        random,
        cache: "first".into(),
        model: Model::new(BLOCKS),
        order: Order::new(BLOCKS),
        asked: BTreeMap::new(),
        windows: vec![(0, Arc::new(Image::new()), nothing)],
        report: Report { runs: 1, ..Report::default() },
        options,
    };
    world.expect();
    let mut cache_disk = new_pair(&world.options).cache_disk;
    let mut before = None;
    for life in 0..LIVES {
        let mut machine = world.started(cache_disk, before.as_ref()).await;
        for _ in 0..10 + world.random.below(50) {
            world.ask(&mut machine);
            let millis = match world.random.below(12) {
                0 => 15_000,
                1..4 => 500,
                _ => 20,
            };
            let millis = 1 + world.random.below(millis);
            world.wait(&mut machine, Duration::from_millis(millis)).await;
            if world.random.one_in(20) {
                world.set_trouble();
            }
            if world.random.one_in(40) {
                let seconds = 1 + world.random.below(90);
                host.server.goes_away(Duration::from_secs(seconds));
            }
        }
        before = Some(machine.claim.clone());
        cache_disk = match world.random.one_in(3) {
            true => {
                before = None;
                world.lose_cache(machine, life).await
            }
            false => {
                // The power fails.
                machine.worker.connection.end();
                let mut cache_disk = machine.cache_disk;
                cache_disk.power_cut(&mut world.random, Fate::draw);
                cache_disk
            }
        };
    }
    host.server.trouble.store(0, Ordering::Relaxed);
    let mut machine = world.started(cache_disk, before.as_ref()).await;
    // All of it is in the store at last.
    machine.worker.connection.ends_in(u64::MAX);
    host.server.trouble.store(0, Ordering::Relaxed);
    let flushes = world.report.remote_flushes;
    let (asked, operation) = world.remote_flush();
    world.asked.insert(RequestId(machine.running.next_request), asked);
    machine.ask(operation, false);
    world.wait(&mut machine, Duration::from_secs(120)).await;
    assert!(world.report.remote_flushes > flushes, "a drain without troubles does not end");
    world.report.troubles = host.server.troubles();
    (world.report, host)
}
