//! The tier of non-volatile memory over a bare disk: runs with crashes in the middle of everything,
//! on memory that tears between words and on devices that lose sectors; with blocks that rot, and
//! memories that are old, foreign or gone.
//!
//! What is asked of it: what was acknowledged is there, always (there is no weaker promise in front
//! of the log); a change is whole or not there; of two that overlap the later one wins; what is read
//! has been written to that block; a drain means what it says; a memory is refused that is not the
//! one.

mod below;
mod medium;
mod model;

use std::collections::BTreeMap;
use std::ops::Range;

use dcd_engine::format::nvram::{COMMIT_OFFSETS, NvramIdentity, NvramLayout};
use dcd_engine::nvram::durable::{
    DurableConfig, DurableNvram, DurableOutput, MediumPersist, NvramOpenError, NvramStart,
};
use dcd_engine::nvram::{HotZoneSize, NvramConfig, NvramPolicyKind};
use dcd_engine::units::{BLOCK_SIZE, Duration, LbaRange, Time, Uuid};
use dcd_engine::{Buffer, Operation, Reply, Request, RequestError, RequestId};

use crate::random::Random;
use below::{Below, data_of, version_of};
use medium::Survivor;
use model::Model;

const BLOCKS: u64 = 300;
const BLOCK: usize = BLOCK_SIZE as usize;
const CACHE: Uuid = Uuid([7; 16]);

/// What was done.
#[derive(Clone, Copy, Default, Debug)]
pub struct NvramReport {
    /// Stores, fences, sectors, ends of requests, at which a crash could be.
    pub crash_points: u64,
    /// Crashes.
    pub crashes: u64,
    /// In the middle of a start.
    pub crashes_in_starts: u64,
    /// Ends in order.
    pub ends: u64,
    /// Requests that ended.
    pub requests: u64,
    /// Bytes that rotted.
    pub rotted: u64,
    /// Blocks that were said to be damaged.
    pub damaged: u64,
    /// Memories that were refused, and should be.
    pub refused: u64,
    /// Media that failed.
    pub failed_media: u64,
    /// Writes that had to wait for room.
    pub stalled: u64,
    /// Drains.
    pub drains: u64,
}

impl NvramReport {
    /// Adds another.
    pub fn add(&mut self, other: &NvramReport) {
        self.crash_points += other.crash_points;
        self.crashes += other.crashes;
        self.crashes_in_starts += other.crashes_in_starts;
        self.ends += other.ends;
        self.requests += other.requests;
        self.rotted += other.rotted;
        self.damaged += other.damaged;
        self.refused += other.refused;
        self.failed_media += other.failed_media;
        self.stalled += other.stalled;
        self.drains += other.drains;
    }
}

/// A persist of a device under way.
struct Persist {
    /// Sectors that are not written yet, with what they are to hold.
    sectors: Vec<(usize, Vec<u8>)>,
}

enum Asked {
    Change,
    Read { range: LbaRange, oldest: Vec<u64>, meets_damage: bool },
    Drain { acknowledged: Vec<u64> },
    End,
    Other,
}

struct Run {
    random: Random,
    config: DurableConfig,
    persist: MediumPersist,
    survivor: Survivor,
    /// What the superblock says.
    partner: Option<NvramIdentity>,
    below: Below,
    model: Model,
    tier: Option<DurableNvram>,
    persisting: Option<Persist>,
    now: Time,
    asked: BTreeMap<u64, Asked>,
    requests: u64,
    ids: u8,
    /// Images of the memory at earlier starts.
    older: Vec<(NvramIdentity, Vec<u8>)>,
    may_rot: bool,
    may_fail: bool,
    is_traced: bool,
    /// A start has gone through since the last rot.
    is_mended: bool,
    /// The header of this slot has rotted, in this copy.
    rotten_header: Option<(u32, usize)>,
    report: NvramReport,
}

/// Runs this seed. `is_traced`: and prints what happens.
///
/// # Errors
/// What was seen.
pub fn run(seed: u64, is_traced: bool) -> Result<NvramReport, String> {
    let mut run = Run::new(seed);
    run.is_traced = is_traced;
    let lives = 2 + run.random.below(5);
    for _ in 0..lives {
        run.live()?;
        run.crash()?;
    }
    run.start()?;
    Ok(run.report)
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random::new(seed ^ 0x6e76_7261_6d00);
        let policy = match random.below(6) {
            0 => NvramPolicyKind::Lru,
            1 => NvramPolicyKind::Fifo,
            2 => NvramPolicyKind::Stf,
            3 => NvramPolicyKind::WeightedStf { age_max: Duration::from_millis(50) },
            4 => NvramPolicyKind::Lst,
            _ => NvramPolicyKind::Stack,
        };
        let (high_percent, low_percent) = random.pick(&[(100, 100), (90, 20), (40, 0), (20, 5)]);
        let nvram = NvramConfig {
            policy,
            high_percent,
            low_percent,
            bypass_blocks: random.pick(&[4, 8, 16]),
            idle: Duration::from_millis(random.pick(&[0, 0, 3])),
            groups_at_once: random.pick(&[1, 4, u32::MAX]),
            hot_zone: HotZoneSize::Percent(30),
            ..NvramConfig::default()
        };
        let persist = match random.below(4) {
            0 | 1 => MediumPersist::Now,
            2 => MediumPersist::Io { sector_bytes: 512 },
            _ => MediumPersist::Io { sector_bytes: 4096 },
        };
        let bytes = NvramLayout { slots: 128 }.bytes() as usize;
        Run {
            config: DurableConfig { nvram, group_blocks: random.pick(&[8, 16, 64]) },
            persist,
            survivor: Survivor::of_bytes(bytes),
            partner: None,
            below: Below::of_blocks(BLOCKS as usize),
            model: Model::of_blocks(BLOCKS as usize),
            tier: None,
            persisting: None,
            now: Time::ZERO,
            asked: BTreeMap::new(),
            requests: 0,
            ids: 0,
            older: Vec::new(),
            may_rot: random.one_in(3),
            may_fail: random.one_in(3),
            is_traced: false,
            is_mended: false,
            rotten_header: None,
            report: NvramReport::default(),
            random,
        }
    }

    // ---- the tier -----------------------------------------------------------------------------

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{}", what());
        }
    }

    fn tier(&mut self) -> &mut DurableNvram {
        self.tier.as_mut().expect("it lives")
    }

    /// Carries out what the tier wants. After a crash nobody sees it any more.
    fn take_outputs(&mut self) -> Result<(), String> {
        while let Some(output) = self.tier().poll_output() {
            if self.survivor.get().has_blown() {
                continue;
            }
            self.trace(|| match &output {
                DurableOutput::Below(request) => format!("  below {request:?}"),
                DurableOutput::Reply(reply) => {
                    format!("  reply {:?} {:?}", reply.id, reply.result)
                }
                DurableOutput::Persist(ranges) => format!("  persist {ranges:?}"),
            });
            match output {
                DurableOutput::Below(request) => self.below.start(request)?,
                DurableOutput::Reply(reply) => self.replied(reply)?,
                DurableOutput::Persist(ranges) => {
                    if self.persisting.is_some() {
                        return Err("two persists at once".into());
                    }
                    let sectors = self.sectors_of(&ranges)?;
                    self.persisting = Some(Persist { sectors });
                }
            }
        }
        Ok(())
    }

    fn sectors_of(&mut self, ranges: &[Range<usize>]) -> Result<Vec<(usize, Vec<u8>)>, String> {
        let MediumPersist::Io { sector_bytes } = self.persist else {
            return Err("memory is durable at once".into());
        };
        let medium = self.tier().medium();
        let sectors = ranges.iter().flat_map(|range| range.clone().step_by(sector_bytes));
        Ok(sectors.map(|at| (at, medium[at..at + sector_bytes].to_vec())).collect())
    }

    fn replied(&mut self, reply: Reply) -> Result<(), String> {
        self.report.requests += 1;
        let asked = self.asked.remove(&reply.id.0);
        match asked.ok_or_else(|| format!("{:?} is answered twice", reply.id))? {
            Asked::Change => self.model.ended(reply.id.0, reply.result.is_ok()),
            Asked::Read { range, oldest, meets_damage } => match reply.result {
                Ok(()) => {
                    let buffer = reply.buffer.ok_or("a read brings its buffer")?;
                    self.model.check_read(range, &oldest, buffer.bytes())?;
                }
                Err(error) => Model::check_error(range, meets_damage, error)?,
            },
            Asked::Drain { acknowledged } if reply.result.is_ok() => {
                self.report.drains += 1;
                for (block, oldest) in (0..BLOCKS).zip(acknowledged) {
                    // What was overwritten since need not get there.
                    if self.model.acknowledged(block) != oldest {
                        continue;
                    }
                    self.model
                        .check_block(block, oldest, self.below.durable(block))
                        .map_err(|error| format!("drained, and on the disk {error}"))?;
                }
            }
            Asked::Drain { .. } | Asked::Other => {}
            Asked::End => {
                if reply.result.is_ok() && self.partner.is_none() {
                    for block in 0..BLOCKS {
                        let oldest = self.model.acknowledged(block);
                        self.model
                            .check_block(block, oldest, self.below.durable(block))
                            .map_err(|error| format!("closed, and on the disk {error}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn ask(&mut self, operation: Operation, asked: Asked) -> Result<u64, String> {
        self.requests += 1;
        let id = self.requests;
        self.asked.insert(id, asked);
        let fua = self.random.one_in(4);
        self.trace(|| format!("{id}: {operation:?}"));
        let now = self.now;
        self.tier().request(now, Request { id: RequestId(id), operation, fua });
        self.take_outputs()?;
        Ok(id)
    }

    /// What is below ends something, or a step of a persist is done.
    fn end_one(&mut self) -> Result<(), String> {
        let now = self.now;
        let is_below = self.persisting.is_none() || self.random.one_in(2);
        if is_below && self.below.under_way() > 0 {
            let may_fail = self.may_fail;
            let (reply, end) = self.below.end_one(&mut self.random, may_fail)?;
            if let Some(operation) = end {
                let holds_data = self.tier().holds_data();
                if holds_data && matches!(operation, Operation::Detach) {
                    return Err("it is detached with blocks in memory".into());
                }
                if !holds_data {
                    self.partner = None;
                }
            }
            self.trace(|| format!("ended below {:?} {:?}", reply.id, reply.result));
            self.tier().below_done(now, reply);
        } else if let Some(mut persist) = self.persisting.take() {
            if self.may_fail && self.random.one_in(300) {
                self.report.failed_media += 1;
                self.trace(|| "the medium fails".into());
                self.tier().persist_done(now, false);
            } else if persist.sectors.is_empty() {
                self.survivor.get().flush();
                self.tier().persist_done(now, true);
            } else {
                let index = self.random.below(persist.sectors.len() as u64) as usize;
                let (at, bytes) = persist.sectors.swap_remove(index);
                if self.tier().medium()[at..at + bytes.len()] != bytes {
                    return Err(format!("the sector at {at} was changed while it was written"));
                }
                self.survivor.get().write_sector(at, &bytes);
                self.persisting = Some(persist);
            }
        }
        self.take_outputs()
    }

    // ---- a life -------------------------------------------------------------------------------

    fn live(&mut self) -> Result<(), String> {
        self.start()?;
        let steps = 5 + self.random.below(120);
        if self.persist == MediumPersist::Now && !self.random.one_in(5) {
            let fuse = self.random.below(20_000);
            self.survivor.get().set_fuse(Some(fuse));
        }
        let mut drain = None;
        for _ in 0..steps {
            self.report.crash_points += 1;
            if self.survivor.get().has_blown() {
                break;
            }
            match self.random.below(100) {
                0..35 => self.write(8)?,
                35..38 => self.write(40)?,
                38..42 => self.zero()?,
                42..50 => self.read()?,
                50..52 => {
                    self.ask(Operation::Flush, Asked::Other)?;
                }
                52 => {
                    let acknowledged = self.model.all_acknowledged();
                    drain = Some(self.ask(Operation::Drain, Asked::Drain { acknowledged })?);
                }
                53 => {
                    if let Some(drain) = drain.map(RequestId) {
                        self.ask(Operation::CancelDrain { drain }, Asked::Other)?;
                    }
                }
                54..58 => {
                    self.now = self.now.after(Duration::from_millis(self.random.below(700)));
                    let now = self.now;
                    self.tier().timeout(now);
                    self.take_outputs()?;
                }
                _ => self.end_one()?,
            }
        }
        self.report.stalled += self.tier().status().counters.stalled_writes;
        if self.random.one_in(4) && !self.survivor.get().has_blown() {
            self.end()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let operation = if self.random.one_in(2) { Operation::Shutdown } else { Operation::Detach };
        let id = self.ask(operation, Asked::End)?;
        if self.random.one_in(4) {
            self.ask(Operation::CancelDetach, Asked::Other)?;
        }
        let is_cut_short = self.random.one_in(4);
        let mut left = 20_000;
        while self.asked.contains_key(&id) {
            if self.survivor.get().has_blown() || is_cut_short && self.random.one_in(40) {
                return Ok(());
            }
            left -= 1;
            if left == 0 {
                return Err(format!("the end does not come: {:?}", self.tier().status()));
            }
            self.report.crash_points += 1;
            if self.below.under_way() == 0 && self.persisting.is_none() {
                self.now = self.now.after(Duration::from_millis(500));
                let now = self.now;
                self.tier().timeout(now);
                self.take_outputs()?;
            }
            self.end_one()?;
        }
        if !self.asked.is_empty() && self.below.under_way() == 0 {
            return Err(format!("{} requests were never answered", self.asked.len()));
        }
        self.report.ends += 1;
        Ok(())
    }

    fn range(&mut self, blocks_max: u64) -> LbaRange {
        // Some blocks are written again and again.
        let start = match self.random.below(3) {
            0 => self.random.below(24),
            _ => self.random.below(BLOCKS),
        };
        let blocks = 1 + self.random.below(blocks_max);
        LbaRange::new(start, blocks.min(BLOCKS - start))
    }

    fn write(&mut self, blocks_max: u64) -> Result<(), String> {
        let range = self.range(blocks_max);
        let version = self.requests + 1;
        self.model.begin(version, range, true);
        let data = data_of(range, version);
        self.ask(Operation::Write { start: range.start, data }, Asked::Change).map(|_| ())
    }

    fn zero(&mut self) -> Result<(), String> {
        let range = self.range(60);
        self.model.begin(self.requests + 1, range, false);
        let operation = match self.random.one_in(2) {
            true => Operation::Discard { range },
            false => Operation::WriteZeroes { range, may_unmap: false },
        };
        self.ask(operation, Asked::Change).map(|_| ())
    }

    fn read(&mut self) -> Result<(), String> {
        let range = self.range(24);
        let blocks = range.start.0..range.end();
        let oldest = blocks.map(|block| self.model.acknowledged(block)).collect();
        let operation = Operation::Read { range, buffer: Buffer::default() };
        // One that is written meanwhile may be read before.
        let meets_damage = self.model.is_damaged(range);
        self.ask(operation, Asked::Read { range, oldest, meets_damage }).map(|_| ())
    }

    // ---- crashes and starts -------------------------------------------------------------------

    fn crash(&mut self) -> Result<(), String> {
        self.report.crashes += 1;
        self.tier = None;
        self.asked.clear();
        self.persisting = None;
        let is_power_cut = !self.random.one_in(4);
        self.trace(|| {
            format!("crash, power {is_power_cut}, blown {}", self.survivor.get().has_blown())
        });
        let mut survivor = self.survivor.get();
        survivor.set_fuse(None);
        match is_power_cut {
            true => survivor.cut(&mut self.random),
            false => survivor.kill(),
        }
        // Once between two starts: what one of them has mended is whole again.
        let may_rot = std::mem::take(&mut self.is_mended) && self.partner.is_some();
        if self.may_rot && is_power_cut && may_rot && !self.random.one_in(3) {
            let slot = self.random.below(128) as u32;
            let at = match (self.random.below(8), self.rotten_header) {
                (0, _) => {
                    self.random.pick(&COMMIT_OFFSETS) as usize + self.random.below(8) as usize
                }
                // The other copy of the last.
                (1..4, Some((slot, copy))) => NvramLayout::header_at(slot, 1 - copy) + 8,
                (1..6, _) => {
                    let copy = self.random.below(2) as usize;
                    self.rotten_header = Some((slot, copy));
                    NvramLayout::header_at(slot, copy) + 8
                }
                _ => NvramLayout::slot_at(slot) + 100,
            };
            survivor.rot(at, 1 << self.random.below(8));
            self.model.one_may_be_damaged();
            self.report.rotted += 1;
        }
        drop(survivor);
        self.below.crash(&mut self.random, is_power_cut)
    }

    fn open(&mut self, cache: Uuid) -> Result<DurableNvram, NvramOpenError> {
        self.ids += 1;
        let start = NvramStart {
            cache,
            expected: self.partner,
            new_id: Uuid([self.ids; 16]),
            volume_blocks: BLOCKS,
            may_be_lost: false,
        };
        let medium = Box::new(self.survivor.medium(self.persist));
        DurableNvram::open(self.now, self.config, medium, &start)
    }

    /// What is not the memory is refused, and not changed.
    fn try_others(&mut self) -> Result<(), String> {
        let Some(expected) = self.partner else { return Ok(()) };
        let is = |identity: &NvramIdentity| {
            identity.id != expected.id || identity.generation < expected.generation
        };
        let older = self.older.iter().rev().find(|(identity, _)| is(identity)).cloned();
        let image = match self.random.below(3) {
            0 => vec![0; self.survivor.get().stable.len()],
            1 => match older {
                Some((_, image)) => image,
                None => return Ok(()),
            },
            _ => {
                if self.open(Uuid([8; 16])).is_ok() {
                    return Err("the memory of another cache was taken".into());
                }
                self.report.refused += 1;
                return Ok(());
            }
        };
        let other = Survivor::of_bytes(0);
        other.get().stable = image;
        let own = std::mem::replace(&mut self.survivor, other);
        let opened = self.open(CACHE);
        let other = std::mem::replace(&mut self.survivor, own);
        drop(other);
        self.report.refused += 1;
        match opened {
            Ok(_) => Err("an older memory was taken, or an empty one".into()),
            Err(error) if error.is_loss() => Ok(()),
            Err(error) => Err(format!("an older memory is refused as {error}")),
        }
    }

    /// A start, perhaps after some that were cut short; then everything is read.
    fn start(&mut self) -> Result<(), String> {
        loop {
            if self.random.one_in(4) {
                self.try_others()?;
            }
            let is_cut_short = self.random.one_in(5);
            if is_cut_short && self.persist == MediumPersist::Now {
                let fuse = self.random.below(400);
                self.survivor.get().set_fuse(Some(fuse));
            }
            let tier = self.open(CACHE).map_err(|error| format!("it is refused: {error}"))?;
            self.tier = Some(tier);
            self.take_outputs()?;
            while !self.tier().is_open() {
                self.report.crash_points += 1;
                if is_cut_short && self.random.one_in(8) || self.tier().status().has_failed {
                    break;
                }
                self.end_one()?;
            }
            let has_blown = self.survivor.get().has_blown();
            if !self.tier().is_open() || self.tier().status().has_failed || has_blown {
                self.report.crashes_in_starts += 1;
                self.crash()?;
                continue;
            }
            self.survivor.get().set_fuse(None);
            let identity = self.tier().identity();
            self.older.push((identity, self.survivor.get().stable.clone()));
            if self.older.len() > 6 {
                self.older.remove(0);
            }
            // The engine's superblock, before anything is acknowledged.
            if self.random.one_in(10) {
                self.report.crashes_in_starts += 1;
                self.crash()?;
                continue;
            }
            self.partner = Some(identity);
            self.is_mended = true;
            return self.check_all();
        }
    }

    /// What is there after a start: all that was acknowledged, and nothing by halves.
    fn check_all(&mut self) -> Result<(), String> {
        let mut found = Vec::new();
        for start in 0..BLOCKS {
            self.requests += 1;
            let id = self.requests;
            let range = LbaRange::new(start, 1);
            let operation = Operation::Read { range, buffer: Buffer::default() };
            let now = self.now;
            self.tier().request(now, Request { id: RequestId(id), operation, fua: false });
            let reply = loop {
                match self.tier().poll_output() {
                    Some(DurableOutput::Reply(reply)) => break reply,
                    Some(DurableOutput::Below(request)) => {
                        self.below.start(request)?;
                        let (reply, _) = self.below.end_one(&mut self.random, false)?;
                        self.tier().below_done(now, reply);
                    }
                    Some(DurableOutput::Persist(ranges)) => {
                        let sectors = self.sectors_of(&ranges)?;
                        let mut survivor = self.survivor.get();
                        for (at, bytes) in sectors {
                            survivor.write_sector(at, &bytes);
                        }
                        survivor.flush();
                        drop(survivor);
                        self.tier().persist_done(now, true);
                    }
                    None => return Err("a read is not answered".into()),
                }
            };
            found.push(match (reply.result, reply.buffer) {
                (Ok(()), Some(buffer)) => {
                    Some(version_of(start, &buffer.bytes()[..BLOCK]).map_err(|e| e.to_string())?)
                }
                (Err(RequestError::Io), _) => None,
                other => return Err(format!("a read of block {start} ends with {:?}", other.0)),
            });
        }
        self.report.damaged += found.iter().filter(|found| found.is_none()).count() as u64;
        self.model.restarted(&found)
    }
}
