//! The tier of non-volatile memory over a bare disk: runs with crashes in the middle of everything,
//! on memory that tears between words and on devices that lose sectors; with blocks that rot, and
//! memories that are old, foreign or gone.
//!
//! What is asked of it: what was acknowledged is there, always (there is no weaker promise in front
//! of the log); a change is whole or not there; of two that overlap the later one wins; what is
//! read has been written to that block; a drain means what it says; every request ends, whatever
//! fails; below come whole logical blocks only; a memory is refused that is not the one, and none
//! is made empty that holds something, but if somebody says so; where nothing names it, nothing is
//! in it; one that goes while requests are served is missed by nobody, and one that comes loses
//! nothing of what was acknowledged before (`change`).

mod below;
mod change;
mod medium;
mod model;

use std::collections::BTreeMap;
use std::ops::Range;

use dcd_engine::format::nvram::{COMMIT_OFFSETS, NvramIdentity, NvramLayout};
use dcd_engine::nvram::durable::{
    DurableConfig, DurableNvram, DurableOutput, MediumPersist, NvramOpenError, NvramPicture,
    NvramStart,
};
use dcd_engine::nvram::{HotZoneSize, NvramConfig, NvramPolicyKind, Urgent};
use dcd_engine::units::{BLOCK_SIZE, Duration, LbaRange, Time, Uuid};
use dcd_engine::{Buffer, Operation, Reply, Request, RequestError, RequestId};

use crate::random::Random;
use below::{Below, data_of, version_of};
use change::Changing;
use medium::Survivor;
use model::Model;

const BLOCKS: u64 = 304;
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
    /// Times that what is below took nothing any more.
    pub broken: u64,
    /// Ends at which damaged blocks were given up.
    pub given_up: u64,
    /// Memories that came while requests were served, and were used.
    pub came: u64,
    /// That went.
    pub went: u64,
    /// Of them, because they had failed.
    pub went_failed: u64,
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
        self.broken += other.broken;
        self.given_up += other.given_up;
        self.came += other.came;
        self.went += other.went;
        self.went_failed += other.went_failed;
    }
}

/// A persist of a device under way.
struct Persist {
    /// Sectors that are not written yet, with what they are to hold.
    sectors: Vec<(usize, Vec<u8>)>,
}

enum Asked {
    Change,
    Read {
        range: LbaRange,
        oldest: Vec<u64>,
        meets_damage: bool,
    },
    Drain {
        acknowledged: Vec<u64>,
    },
    /// Giving up these blocks.
    End {
        accepted: Vec<LbaRange>,
    },
    /// That the memory goes, or one comes.
    Goes,
    Comes,
    /// Of a block, without a memory, not made durable.
    WeakChange,
    Other,
}

struct Run {
    random: Random,
    config: DurableConfig,
    persist: MediumPersist,
    /// Blocks of a logical block.
    unit_blocks: u64,
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
    changing: Changing,
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

/// With cleaning on several levels, or with what follows the load. Drawn from numbers of its own: the
/// rest of a run is as without.
fn with_levels(nvram: NvramConfig, seed: u64) -> NvramConfig {
    let mut random = Random::new(seed ^ 0x6175_746f);
    let urgent = Urgent { high_percent: 60, low_percent: 30, groups_at_once: 2 };
    NvramConfig {
        policy: match random.below(4) {
            0 => NvramPolicyKind::AgeSize,
            1 => NvramPolicyKind::Gds,
            _ => NvramPolicyKind::Auto,
        },
        is_behind_requests: random.below(2) == 0,
        urgent: (random.below(2) == 0).then_some(urgent),
        deep_idle: (random.below(3) == 0).then_some(Duration::from_millis(20)),
        wear_floor_percent: random.pick(&[0, 0, 10]),
        ..nvram
    }
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
        let unit_blocks = random.pick(&[1, 1, 8]);
        let nvram = NvramConfig {
            policy,
            high_percent,
            low_percent,
            bypass_blocks: random.pick(&[4, 8, 16]).max(unit_blocks),
            idle: Duration::from_millis(random.pick(&[0, 0, 3])),
            groups_at_once: random.pick(&[1, 4, u32::MAX]),
            hot_zone: HotZoneSize::Percent(30),
            ..NvramConfig::default()
        };
        let nvram = match seed.is_multiple_of(3) {
            true => with_levels(nvram, seed),
            false => nvram,
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
            unit_blocks,
            survivor: Survivor::of_bytes(bytes),
            partner: None,
            below: Below::of_blocks(BLOCKS as usize, unit_blocks),
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
            changing: Changing::of(seed),
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
        if self.survivor.get().has_blown() {
            return Ok(());
        }
        self.perhaps_begin_naming()
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
                    // What was overwritten, or given up, since need not get there.
                    if self.model.acknowledged(block) != oldest || self.is_being_given_up(block) {
                        continue;
                    }
                    self.model
                        .check_block(block, oldest, self.below.durable(block))
                        .map_err(|error| format!("drained, and on the disk {error}"))?;
                }
            }
            Asked::Drain { .. } | Asked::Other => {}
            Asked::Goes => self.has_gone(reply.result)?,
            Asked::Comes => self.has_come(reply.result),
            Asked::WeakChange => self.weak_ended(reply.id.0, reply.result),
            Asked::End { accepted } => {
                let is_empty = !self.tier().holds_data();
                // Or it has failed, and nothing names it.
                let is_over = is_empty || self.partner.is_none();
                if reply.result.is_ok() && is_over {
                    if is_empty && !self.is_without_memory() {
                        self.check_that_nothing_comes_back()?;
                    }
                    for range in accepted {
                        self.report.given_up += 1;
                        for block in range.start.0..range.end() {
                            self.model.give_up(block, self.below.durable(block));
                        }
                    }
                    for block in 0..BLOCKS {
                        let oldest = self.model.acknowledged(block);
                        self.model
                            .check_block(block, oldest, self.below.durable(block))
                            .map_err(|error| format!("closed, and on the disk {error}"))?;
                    }
                } else {
                    // It was wanted no more when that was given up, or not yet.
                    self.may_be_given_up(&accepted);
                }
            }
        }
        Ok(())
    }

    fn may_be_given_up(&mut self, accepted: &[LbaRange]) {
        for block in accepted.iter().flat_map(|range| range.start.0..range.end()) {
            self.model.may_be_given_up(block, self.below.durable(block));
        }
    }

    /// Somebody gives it up, and is not answered yet.
    fn is_being_given_up(&self, block: u64) -> bool {
        self.asked.values().any(|asked| match asked {
            Asked::End { accepted } => {
                accepted.iter().any(|it| it.overlaps(LbaRange::new(block, 1)))
            }
            _ => false,
        })
    }

    /// Ended with nothing in memory: whoever finds what is durable of it finds nothing in it, whether
    /// its heads are there or not.
    fn check_that_nothing_comes_back(&self) -> Result<(), String> {
        match NvramPicture::of(&self.survivor.get().stable) {
            Ok(picture) if !picture.ranges.is_empty() => {
                Err(format!("closed, and in the memory is {:?}", picture.ranges))
            }
            _ => Ok(()),
        }
    }

    fn ask(&mut self, operation: Operation, asked: Asked) -> Result<u64, String> {
        self.requests += 1;
        let id = self.requests;
        self.asked.insert(id, asked);
        // Without a memory only that is durable.
        let is_weak = matches!(self.asked[&id], Asked::WeakChange);
        let fua = self.random.one_in(4) || self.is_without_memory() && !is_weak;
        self.trace(|| format!("{id}: {operation:?}"));
        let now = self.now;
        self.tier().request(now, Request { id: RequestId(id), operation, fua });
        self.take_outputs()?;
        Ok(id)
    }

    /// What is below ends something, or a step of a persist is done.
    fn end_one(&mut self) -> Result<(), String> {
        if self.tell_name() {
            return self.take_outputs();
        }
        let now = self.now;
        let is_below = self.persisting.is_none() || self.random.one_in(2);
        if is_below && self.below.under_way() > 0 {
            let may_fail = self.may_fail;
            let (reply, end) = self.below.end_one(&mut self.random, may_fail)?;
            if let Some(operation) = end {
                let holds_data = self.tier().holds_data();
                if holds_data && !matches!(operation, Operation::Shutdown) {
                    return Err("it is detached with blocks in memory".into());
                }
                if self.random.one_in(6) || self.changing.cannot_be_told() {
                    // The superblock cannot be written any more, and names what it named.
                    self.tier().keep_heads();
                } else if !holds_data {
                    self.partner = None;
                }
            }
            self.trace(|| format!("ended below {:?} {:?}", reply.id, reply.result));
            self.one_has_ended(reply.id.0);
            self.tier().below_done(now, reply);
        } else if let Some(mut persist) = self.persisting.take() {
            let chance = if persist.sectors.is_empty() { 40 } else { 300 };
            if self.may_fail && self.random.one_in(chance) {
                self.report.failed_media += 1;
                self.trace(|| "the medium fails".into());
                let mut survivor = self.survivor.get();
                survivor.flush_fails(&mut self.random);
                drop(survivor);
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
        let breaks_at = (self.may_fail && self.random.one_in(4)).then(|| self.random.below(steps));
        for step in 0..steps {
            if breaks_at == Some(step) {
                self.report.broken += 1;
                let error = self.random.pick(&[RequestError::Io, RequestError::NoSpace]);
                self.trace(|| format!("below it breaks: {error}"));
                self.below.break_with(error);
            }
            self.report.crash_points += 1;
            if self.survivor.get().has_blown() {
                break;
            }
            self.change()?;
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
        if self.random.one_in(3) {
            self.settle()?;
        }
        if self.random.one_in(4) && !self.survivor.get().has_blown() {
            self.end()?;
        }
        Ok(())
    }

    /// Every request ends, whatever fails, if what was begun ends.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..10_000 {
            if self.asked.is_empty() || self.survivor.get().has_blown() {
                return Ok(());
            }
            if self.is_at_rest() {
                self.now = self.now.after(Duration::from_millis(500));
                let now = self.now;
                self.tier().timeout(now);
                self.take_outputs()?;
            }
            self.end_one()?;
        }
        let left: Vec<u64> = self.asked.keys().copied().collect();
        Err(format!("requests {left:?} do not end: {:?}", self.tier().status()))
    }

    fn end(&mut self) -> Result<(), String> {
        let lost = self.tier().lost();
        let (operation, accepted) = match self.random.below(4) {
            0..3 if !lost.is_empty() => (Operation::DetachAccepting { lost: lost.clone() }, lost),
            0 | 1 => (Operation::Shutdown, Vec::new()),
            _ => (Operation::Detach, Vec::new()),
        };
        let id = self.ask(operation, Asked::End { accepted })?;
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
            if self.is_at_rest() {
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
        let start = start / self.unit_blocks * self.unit_blocks;
        let blocks = (1 + self.random.below(blocks_max)).next_multiple_of(self.unit_blocks);
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
        self.name_at_crash();
        self.tier = None;
        for asked in std::mem::take(&mut self.asked).into_values() {
            // Who gave up what is damaged was not answered: it is given up by now, or not.
            let Asked::End { accepted } = asked else { continue };
            self.may_be_given_up(&accepted);
        }
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
            self.model.some_may_be_damaged(self.unit_blocks);
            self.report.rotted += 1;
        }
        drop(survivor);
        self.below.crash(&mut self.random, is_power_cut)
    }

    fn open(&mut self, cache: Uuid) -> Result<DurableNvram, NvramOpenError> {
        self.open_as(cache, self.partner, false)
    }

    fn open_as(
        &mut self,
        cache: Uuid,
        expected: Option<NvramIdentity>,
        may_be_lost: bool,
    ) -> Result<DurableNvram, NvramOpenError> {
        self.ids += 1;
        let start = NvramStart {
            cache,
            expected,
            new_id: Uuid([self.ids; 16]),
            volume_blocks: BLOCKS,
            unit_blocks: self.unit_blocks,
            may_be_lost,
        };
        let medium = Box::new(self.survivor.medium(self.persist));
        DurableNvram::open(self.now, self.config, medium, &start)
    }

    /// With a superblock that names no memory: an older copy. What holds something is refused then.
    fn try_unnamed(&mut self) -> Result<(), String> {
        let visible = self.survivor.get().visible();
        let picture = NvramPicture::of(&visible);
        let holds_something = picture.is_ok_and(|picture| !picture.ranges.is_empty());
        match self.open_as(CACHE, None, false) {
            Ok(_) if holds_something => Err("a memory with blocks would be made empty".into()),
            Ok(_) => Ok(()),
            Err(NvramOpenError::Unnamed { .. }) => {
                self.report.refused += 1;
                Ok(())
            }
            Err(error) => Err(format!("without a name it is refused as {error}")),
        }
    }

    /// What is not the memory is taken if somebody says so, and is empty then.
    fn take_as_lost(&mut self) -> Result<(), String> {
        let opened = self.open_as(CACHE, self.partner, true);
        let mut tier = opened.map_err(|error| format!("given up, and refused: {error}"))?;
        tier.begin();
        while let Some(output) = tier.poll_output() {
            let DurableOutput::Persist(ranges) = output else {
                return Err(format!("a start does not ask for {output:?}"));
            };
            let mut survivor = self.survivor.get();
            for range in ranges {
                survivor.write_sector(range.start, &tier.medium()[range]);
            }
            survivor.flush();
            drop(survivor);
            tier.persist_done(self.now, true);
        }
        match (tier.is_open(), tier.blocks()) {
            (true, 0) => Ok(()),
            state => Err(format!("given up, and open {}, with {} blocks", state.0, state.1)),
        }
    }

    /// What is not the memory is refused, and not changed.
    fn try_others(&mut self) -> Result<(), String> {
        let Some(expected) = self.partner else { return Ok(()) };
        let is = |identity: &NvramIdentity| {
            identity.id != expected.id || identity.generation < expected.generation
        };
        let older = self.older.iter().rev().find(|(identity, _)| is(identity)).cloned();
        let image = match self.random.below(4) {
            3 => return self.try_unnamed(),
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
        let given_up = if opened.is_err() { self.take_as_lost() } else { Ok(()) };
        let other = std::mem::replace(&mut self.survivor, own);
        drop(other);
        given_up?;
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
            let tier = match self.open(CACHE) {
                Err(NvramOpenError::Unnamed { .. }) if self.changing.take_old_is_left() => {
                    self.give_a_blank_one();
                    continue;
                }
                opened => opened.map_err(|error| format!("it is refused: {error}"))?,
            };
            self.tier = Some(tier);
            self.tier().begin();
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
            self.changing.take_old_is_left();
            self.is_mended = true;
            return self.check_all();
        }
    }

    /// What is there after a start: all that was acknowledged, and nothing by halves.
    fn check_all(&mut self) -> Result<(), String> {
        let mut found = Vec::new();
        for start in (0..BLOCKS).step_by(self.unit_blocks as usize) {
            self.requests += 1;
            let id = self.requests;
            let range = LbaRange::new(start, self.unit_blocks);
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
            match (reply.result, reply.buffer) {
                (Ok(()), Some(buffer)) => {
                    for (block, bytes) in (start..).zip(buffer.bytes().chunks_exact(BLOCK)) {
                        found.push(Some(version_of(block, bytes)?));
                    }
                }
                (Err(RequestError::Io), _) => {
                    found.extend(vec![None; self.unit_blocks as usize]);
                }
                other => return Err(format!("a read of block {start} ends with {:?}", other.0)),
            }
        }
        self.report.damaged += found.iter().filter(|found| found.is_none()).count() as u64;
        self.model.restarted(&found)
    }
}
