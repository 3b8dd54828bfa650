//! A crash: what it leaves, the recovery with further crashes in it, and the check of what is
//! there.
//!
//! ```text
//! 1. Copy both disks and decide what becomes of every write that is not durable.
//! 2. Recover. Now and then crash again after some I/Os, up to four deep.
//! 3. Read every block that is not certain (now and then all), and compare with the model.
//! 4. Now and then: cut the power again, recover, and see the same; or detach, and see the same on
//!    the data-disk alone.
//! 5. Stop in order, start a second time, and see the same.
//! ```
//! A *probe* does this with a copy, and the run goes on as if nothing had been. A *real* crash goes
//! on from what was recovered.

use std::time::Instant;

use dcd_engine::format::checksum::crc32c_with_hole;
use dcd_engine::{
    Buffer, Device, LbaRange, Limits, OpenError, Operation, Phase, RequestError, Superblock, Uuid,
};
use dcd_testkit::read_into_used;

use crate::disk::Fate;
use crate::faults::{Allowed, FaultKind, Level, Pending};
use crate::host::{Host, Start, Wreck};
use crate::model::{Shown, Violation, read_block};
use crate::options::Options;
use crate::random::Random;
use crate::run::Run;
use crate::running::NotOpen;

/// Crashes within a recovery, at most.
const DEPTH_MAX: u32 = 4;
/// Starts until a cache must open whose disks are healthy.
const STARTS_MAX: u32 = 6;
/// Blocks of one read.
const READ_BLOCKS_MAX: u64 = 256;

/// Something done to the disks while nobody looks after them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Twist {
    /// What.
    pub kind: FaultKind,
    /// To which disk.
    pub device: Device,
}

/// How to crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    /// Power cut, or death of the process.
    pub power: bool,
    /// The run goes on from what was recovered.
    pub is_real: bool,
    /// Every block is read.
    pub is_full: bool,
    /// What else happens.
    pub twist: Option<Twist>,
    /// The data-disk has so many blocks more afterwards.
    pub grows_by: u64,
}

impl Crash {
    /// Of a copy.
    pub fn probe(power: bool) -> Crash {
        Crash { power, is_real: false, is_full: false, twist: None, grows_by: 0 }
    }

    /// Of the run itself.
    pub fn real(power: bool) -> Crash {
        Crash { power, is_real: true, is_full: false, twist: None, grows_by: 0 }
    }
}

/// States of the machine to go back to, when a start is refused as it must be.
#[derive(Default)]
struct Undo {
    /// Before something was done to the disks that no start may accept.
    refused: Option<Wreck>,
    /// Before the data-disk grew.
    before_growth: Option<Wreck>,
}

/// A start of what a crash has left, and what came of it.
struct OpenedWreck {
    host: Host,
    /// The segment memory that it was given.
    memory: Option<Vec<u8>>,
    opened: Result<(), NotOpen>,
    /// A fault struck in it.
    has_struck: bool,
}

/// A recovery that came to an end.
struct Recovered {
    host: Host,
    /// Nothing but processes died.
    memory_survived: bool,
    /// The larger data-disk was taken over.
    has_grown: bool,
}

impl Run {
    /// Crashes, recovers, checks.
    pub fn crash(&mut self, crash: Crash, random: &mut Random) -> Result<(), Violation> {
        let started = Instant::now();
        let wreck = self.host.wreck(crash.power, random, &self.options);
        self.crash_to(wreck, crash, random, started)
    }

    /// Recovers from a wreck, and checks.
    pub fn crash_to(
        &mut self,
        mut wreck: Wreck,
        crash: Crash,
        random: &mut Random,
        started: Instant,
    ) -> Result<(), Violation> {
        self.note_uncached();
        let pending = match crash.is_real {
            true => std::mem::take(&mut self.host.pending),
            false => Pending::default(),
        };
        let mut allowed = self.host.allowed.clone();
        let mut undo = None;
        if let Some(twist) = crash.twist {
            undo = self.twist(twist, &mut wreck, &mut allowed, random);
        }
        let before_growth = (crash.grows_by > 0).then(|| wreck.clone());
        let size = wreck.data_disk.len() + crash.grows_by as usize * 512;
        wreck.data_disk.resize(size);
        let start = Start { grow: crash.grows_by > 0, ..Start::default() };
        let crashed = Instant::now();
        let undo = Undo { refused: undo, before_growth };
        let recovered = self.recover(wreck, start, undo, pending, allowed, random)?;
        let opened = Instant::now();
        self.report.times.crash += crashed - started;
        self.report.times.recover += opened - crashed;
        let Some(Recovered { mut host, memory_survived, has_grown }) = recovered else {
            self.is_over |= crash.is_real;
            return Ok(());
        };
        if self.options.copy_pages > 0 {
            self.report.copies.started(host.engine());
        }
        if has_grown {
            self.options.data_blocks += crash.grows_by;
            self.model.grow(self.options.data_blocks);
            let blocks = self.options.data_blocks;
            self.order.iter_mut().for_each(|order| order.grow(blocks));
            self.older.clear();
        }
        let is_full = crash.is_full || random.one_in(if crash.is_real { 4 } else { 40 });
        let blocks = self.blocks_to_check(is_full, random);
        let shown = host.read_blocks(&blocks, &self.options, random)?;
        let notes = self.model.check_after_crash(&shown, memory_survived, &host.allowed)?;
        self.report.note(notes);
        if is_full {
            host.check_block_status(&shown, &self.options, random)?;
        }
        if crash.is_real {
            for (block, shown) in &shown {
                if !matches!(shown, Shown::Change(_)) {
                    host.allowed.taint(*block, 1);
                }
            }
            self.model.adopt(&shown);
            self.order.iter_mut().for_each(|order| order.crashed(&shown));
            // Taken by the starts, and while that was read: all is in there.
            host.kept_images.clear();
            self.forget_requests();
            for (kind, count) in &self.host.struck_by_kind {
                *host.struck_by_kind.entry(*kind).or_default() += count;
            }
            host.running.is_traced = self.host.running.is_traced;
            if let Some(engine) = self.host.running.engine.as_ref() {
                self.report.copies.ended(engine);
            }
            self.host = host;
            if self.older.len() < 4 {
                self.older.push(self.host.images());
            }
            // The run goes on from here; a copy of it is stopped.
            if let Some(copy) = self.copy_of_host(random)? {
                self.stop_and_start(copy, &blocks, &shown, random)?;
            }
        } else {
            self.report.copies.ended(host.engine());
            let again = match random.one_in(4) {
                true => self.check_again(host, &blocks, &shown, random)?,
                false => Some(host),
            };
            if let Some(host) = again {
                self.stop_and_start(host, &blocks, &shown, random)?;
            }
        }
        self.report.times.check += opened.elapsed();
        Ok(())
    }

    /// Those that are not certain, and some others, or all.
    fn blocks_to_check(&self, is_full: bool, random: &mut Random) -> Vec<u64> {
        if is_full {
            return (0..self.options.data_blocks).collect();
        }
        let mut blocks = self.model.touched().to_vec();
        for _ in 0..2 {
            let start = random.below(self.options.data_blocks) / 8 * 8;
            blocks.extend(start..(start + 8).min(self.options.data_blocks));
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The machine as it is, with another process on it.
    fn copy_of_host(&self, random: &mut Random) -> Result<Option<Host>, Violation> {
        let mut wreck = self.host.wreck_with(false, random, |_, _| Fate::Kept);
        let memory = wreck.memory.take();
        let mut copy = Host::new(wreck, false);
        copy.allowed = self.host.allowed.clone();
        copy.space = self.host.space.clone();
        match copy.open(&self.options, Start::default(), memory.as_deref(), random) {
            Ok(()) => Ok(Some(copy)),
            Err(NotOpen::Violation(violation)) => Err(violation),
            Err(_) if copy.allowed.refusal => Ok(None),
            Err(NotOpen::Refused(error)) => {
                Err(Violation(format!("opened once, and then not again: {error}")))
            }
            Err(NotOpen::Interrupted) => unreachable!("nobody asked for that"),
        }
    }

    /// A start, an orderly stop, a second start: the same is there, and every table fits.
    fn stop_and_start(
        &mut self,
        mut host: Host,
        blocks: &[u64],
        shown: &[(u64, Shown)],
        random: &mut Random,
    ) -> Result<(), Violation> {
        if !host.stop(random)? {
            return Ok(());
        }
        let wreck = host.wreck_with(true, random, |_, _| Fate::Dropped);
        let allowed = host.allowed.clone();
        drop(host);
        self.start_and_compare(wreck, allowed, Start::default(), blocks, shown, random).map(drop)
    }

    /// What was shown once stays (C9, C17).
    fn check_again(
        &mut self,
        host: Host,
        blocks: &[u64],
        shown: &[(u64, Shown)],
        random: &mut Random,
    ) -> Result<Option<Host>, Violation> {
        if random.one_in(6) && host.allowed.level == Level::Exact && !host.allowed.reads_fail {
            return detach_and_compare(host, shown, random).map(|()| None);
        }
        let wreck = host.wreck_with(true, random, |_, _| Fate::Dropped);
        let allowed = host.allowed.clone();
        drop(host);
        let start = Start { read_only: random.one_in(4), ..Start::default() };
        let host = self.start_and_compare(wreck, allowed, start, blocks, shown, random)?;
        let Some(mut host) = host else { return Ok(None) };
        if start.read_only {
            host.refuses_changes()?;
        }
        Ok(Some(host))
    }

    fn start_and_compare(
        &mut self,
        wreck: Wreck,
        allowed: Allowed,
        start: Start,
        blocks: &[u64],
        shown: &[(u64, Shown)],
        random: &mut Random,
    ) -> Result<Option<Host>, Violation> {
        let may_be_refused = allowed.refusal;
        let again =
            self.recover(wreck, start, Undo::default(), Pending::default(), allowed, random)?;
        let Some(Recovered { mut host, .. }) = again else {
            if may_be_refused {
                return Ok(None);
            }
            return Err(Violation("opened once, and then not again".into()));
        };
        let again = host.read_blocks(blocks, &self.options, random)?;
        for ((block, first), (_, second)) in shown.iter().zip(&again) {
            let is_sure = host.allowed.level == Level::Exact && !host.allowed.is_tainted(*block);
            if first != second && *first != Shown::Error && is_sure {
                let what = format!("block {block} showed {first:?} and after a restart {second:?}");
                return Err(Violation(what));
            }
        }
        Ok(Some(host))
    }

    // ---- recovery -----------------------------------------------------------------------------

    fn recover(
        &mut self,
        mut wreck: Wreck,
        mut start: Start,
        mut undo: Undo,
        mut pending: Pending,
        allowed: Allowed,
        random: &mut Random,
    ) -> Result<Option<Recovered>, Violation> {
        let mut memory_survived = wreck.memory.is_some();
        let mut depth = 0;
        let mut starts = 0;
        let mut allowed = allowed;
        loop {
            self.report.crash_points += 1;
            self.report.nested += u64::from(depth > 0);
            let attempt = self.open_wreck(wreck, &mut start, pending, allowed, depth, random);
            let OpenedWreck { mut host, memory, opened, has_struck } = attempt;
            let error = match opened {
                Ok(()) if undo.refused.is_some() => {
                    return Err(Violation("opened with a disk that is not its own".into()));
                }
                Ok(()) => {
                    let room_made = host.engine().counters().destaged_zero_ranges;
                    let is_sure = host.allowed.level == Level::Exact;
                    if room_made > 0 && is_sure && !self.options.has_wide_sessions() {
                        let what = format!("{room_made} zero ranges too many for a start");
                        return Err(Violation(what));
                    }
                    let has_grown = undo.before_growth.is_some();
                    return Ok(Some(Recovered { host, memory_survived, has_grown }));
                }
                Err(NotOpen::Violation(violation)) => return Err(violation),
                Err(NotOpen::Interrupted) => {
                    depth += 1;
                    let power = memory.is_none() || random.one_in(2);
                    memory_survived &= !power;
                    wreck = host.wreck(power, random, &self.options);
                    (allowed, pending) = (host.allowed, host.pending);
                    continue;
                }
                Err(NotOpen::Refused(error)) => error,
            };
            starts += 1;
            if matches!(error, OpenError::EndNotDrained { .. })
                && !self.options.data_blocks.is_multiple_of(8)
                && let Some(before) = undo.before_growth.take()
            {
                // The old end must be drained first: on with the old size.
                memory_survived = before.memory.is_some();
                wreck = before;
                start.grow = false;
                (allowed, pending) = (host.allowed, host.pending);
                continue;
            }
            if let Some(before) = undo.refused.take() {
                // Refused as it must be. With the right disks everything is there.
                self.report.refused += 1;
                wreck = before;
                (allowed, pending) = (host.allowed, host.pending);
                continue;
            }
            let broken = host.allowed.level > Level::Exact || host.allowed.has_tainted();
            let is_io = matches!(error, OpenError::Io { .. } | OpenError::Checkpoint { .. });
            if broken && host.allowed.refusal {
                self.report.refused += 1;
                self.accept_damage(host, memory, random)?;
                return Ok(None);
            }
            if has_struck || starts < STARTS_MAX && is_io && host.allowed.refusal {
                self.report.refused += 1;
                // Healthy disks next time, and what the memory held is still there.
                host.pending.sweep = None;
                wreck = match host.running.engine {
                    Some(_) => host.wreck(false, random, &self.options),
                    None => {
                        Wreck { memory: memory.clone(), ..host.wreck(false, random, &self.options) }
                    }
                };
                if wreck.memory.is_none() {
                    wreck.memory = memory;
                }
                if !memory_survived {
                    wreck.memory = None;
                }
                (allowed, pending) = (host.allowed, host.pending);
                continue;
            }
            if host.allowed.refusal {
                self.report.refused += 1;
                return Ok(None);
            }
            return Err(Violation(format!("does not open: {error}")));
        }
    }

    /// One start of what a crash has left.
    fn open_wreck(
        &mut self,
        mut wreck: Wreck,
        start: &mut Start,
        pending: Pending,
        allowed: Allowed,
        depth: u32,
        random: &mut Random,
    ) -> OpenedWreck {
        let memory = wreck.memory.take();
        let mut host = Host::new(wreck, self.host.running.is_traced);
        host.allowed = allowed;
        host.space = self.host.space.clone();
        let struck_before = pending.struck;
        host.pending = pending;
        let is_nested = depth < DEPTH_MAX && random.one_in(5);
        let ios_max = is_nested.then(|| random.below(50));
        start.ios_max = ios_max;
        if self.options.has_wide_sessions() && random.one_in(4) {
            start.limits = Some(Limits { zero_ranges: 64, ..self.options.limits });
        } else {
            start.limits = None;
        }
        let opened = host.open(&self.options, *start, memory.as_deref(), random);
        let has_struck = host.pending.struck > struck_before;
        if host.shows_what_is_lost {
            for (start, blocks) in self.model.unflushed_on_data_disk() {
                host.allowed.taint(start, blocks);
            }
        }
        OpenedWreck { host, memory, opened, has_struck }
    }

    /// A person has read what is lost and goes on. What is there may be old, never foreign.
    fn accept_damage(
        &mut self,
        host: Host,
        memory: Option<Vec<u8>>,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let mut allowed = host.allowed.clone();
        allowed.level = allowed.level.max(Level::Ever);
        allowed.reads_fail = true;
        let mut host = Host::new(host.wreck(false, random, &self.options), false);
        host.allowed = allowed;
        let start = Start { accept_damage: true, ..Start::default() };
        match host.open(&self.options, start, memory.as_deref(), random) {
            Err(NotOpen::Violation(violation)) => return Err(violation),
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
        let blocks = self.blocks_to_check(false, random);
        let shown = host.read_blocks(&blocks, &self.options, random)?;
        let notes = self.model.check_after_crash(&shown, false, &host.allowed)?;
        self.report.note(notes);
        Ok(())
    }

    // ---- twists -------------------------------------------------------------------------------

    /// Does something to the disks. What is returned is the state to go back to when the start is
    /// refused, as it must be.
    fn twist(
        &mut self,
        twist: Twist,
        wreck: &mut Wreck,
        allowed: &mut Allowed,
        random: &mut Random,
    ) -> Option<Wreck> {
        match twist.kind {
            FaultKind::MemoryLost => {
                wreck.memory = None;
                None
            }
            FaultKind::OlderCache => {
                let index = random.below(self.older.len() as u64) as usize;
                wreck.cache_disk.restore(self.older[index][0].clone());
                allowed.level = allowed.level.max(Level::Ever);
                allowed.refusal = true;
                allowed.reads_fail = true;
                None
            }
            FaultKind::ChangedOutside => {
                let blocks = 1 + random.below(16);
                let start = random.below(self.options.data_blocks);
                let blocks = blocks.min(self.options.data_blocks - start);
                let bytes = vec![0x77; blocks as usize * 512];
                wreck.data_disk.rot(start as usize * 512, &bytes);
                allowed.taint(start, blocks);
                allowed.refusal = true;
                None
            }
            FaultKind::Resized => {
                let before = wreck.clone();
                let disk = match twist.device {
                    Device::CacheDisk => &mut wreck.cache_disk,
                    Device::DataDisk => &mut wreck.data_disk,
                    Device::Member(_) | Device::Leg(_) | Device::Witness | Device::Nvram => {
                        unreachable!("one of each")
                    }
                };
                let length = disk.len();
                disk.resize(length - 4096);
                if twist.device == Device::CacheDisk && random.one_in(2) {
                    disk.resize(length);
                }
                Some(before)
            }
            FaultKind::Swapped => {
                let before = wreck.clone();
                self.foreign_superblock(wreck);
                Some(before)
            }
            FaultKind::ForgedMetadata => {
                forge(wreck, random);
                allowed.level = Level::Anything;
                allowed.refusal = true;
                allowed.reads_fail = true;
                allowed.no_space = true;
                allowed.bypasses_fail = true;
                None
            }
            _ => None,
        }
    }

    /// The superblocks of another cache on this log.
    fn foreign_superblock(&self, wreck: &mut Wreck) {
        for offset in [0, 64 << 10] {
            let mut bytes = vec![0; 4096];
            wreck.cache_disk.peek(offset, &mut bytes);
            if let Ok(superblock) = Superblock::decode(&bytes) {
                let foreign = Superblock { uuid: Uuid([0x77; 16]), ..superblock };
                wreck.cache_disk.rot(offset, foreign.encode().bytes());
            }
        }
    }
}

/// Changes a field of some metadata and makes its checksum right again.
fn forge(wreck: &mut Wreck, random: &mut Random) {
    const CHECKSUM_OFFSET: usize = 12;
    let pages = wreck.cache_disk.len() / 4096;
    let mut page = [0; 4096];
    let mut found = Vec::new();
    for index in 0..pages {
        wreck.cache_disk.peek(index * 4096, &mut page);
        if page.starts_with(b"dcdSUPER")
            || page.starts_with(b"dcdCHECK")
            || page.starts_with(b"dcdRECRD")
        {
            found.push(index * 4096);
        }
    }
    // Rather the rare kinds.
    let place = match random.below(3) {
        0 => found[random.below(found.len() as u64) as usize],
        _ => found[random.below(found.len().min(4) as u64) as usize],
    };
    wreck.cache_disk.peek(place, &mut page);
    for _ in 0..1 + random.below(3) {
        let at = 16 + random.below(240) as usize;
        page[at] = match random.below(3) {
            0 => random.bits() as u8,
            1 => 0xff,
            _ => page[at].wrapping_add(1),
        };
    }
    let checksum = crc32c_with_hole(&page, CHECKSUM_OFFSET);
    page[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&checksum.to_le_bytes());
    wreck.cache_disk.rot(place, &page);
}

impl Host {
    /// Stops in order; false if it fails, as it may on disks that are not healthy.
    fn stop(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let is_healthy = self.allowed.level == Level::Exact
            && !self.allowed.reads_fail
            && !self.allowed.bypasses_fail
            && !self.allowed.refusal;
        let id = self.submit(Operation::Shutdown, false);
        let mut left = 100_000;
        while *self.engine().phase() != Phase::Closed {
            left -= 1;
            if left == 0 || !self.go_on(random) {
                return match is_healthy {
                    true => Err(Violation("a shutdown does not end".into())),
                    false => Ok(false),
                };
            }
        }
        let is_done =
            self.running.replies.iter().any(|reply| reply.id == id && reply.result.is_ok());
        match is_healthy && !is_done {
            true => Err(Violation("a shutdown failed".into())),
            false => Ok(is_done),
        }
    }
}

fn detach_and_compare(
    mut host: Host,
    shown: &[(u64, Shown)],
    random: &mut Random,
) -> Result<(), Violation> {
    let id = host.submit(Operation::Detach, false);
    let mut left = 100_000;
    while *host.engine().phase() != Phase::Closed {
        left -= 1;
        if left == 0 || !host.go_on(random) {
            return Err(Violation("a detach does not end".into()));
        }
    }
    let result = host.running.replies.iter().find(|reply| reply.id == id).map(|reply| reply.result);
    if !host.engine().lost().is_empty() {
        // Not a word of success, and the pair is one.
        return match result {
            Some(Err(RequestError::Lost { .. })) => Ok(()),
            _ => Err(Violation("a detach although something is lost".into())),
        };
    }
    if result != Some(Ok(())) {
        return Err(Violation("a detach failed".into()));
    }
    host.data_disk.power_cut(random, |_| Fate::Dropped);
    let mut bytes = [0; 512];
    for (block, shown) in shown {
        host.data_disk.peek(*block as usize * 512, &mut bytes);
        let found = read_block(&bytes, *block);
        if found != *shown && !host.allowed.is_tainted(*block) {
            return Err(Violation(format!(
                "block {block} showed {shown:?}, and on the detached data-disk {found:?}"
            )));
        }
    }
    Ok(())
}

impl Host {
    /// Reads blocks (ascending) through the engine. What fails is read again in smaller parts, to
    /// find out which blocks it is.
    pub fn read_blocks(
        &mut self,
        blocks: &[u64],
        options: &Options,
        random: &mut Random,
    ) -> Result<Vec<(u64, Shown)>, Violation> {
        let mut shown = Vec::with_capacity(blocks.len());
        let mut rest = blocks;
        while let Some(first) = rest.first().copied() {
            let mut count = 1;
            while count < rest.len()
                && rest[count] == first + count as u64
                && (count as u64) < READ_BLOCKS_MAX
            {
                count += 1;
            }
            self.read_run(first, count as u64, options, random, &mut shown)?;
            rest = &rest[count..];
        }
        Ok(shown)
    }

    fn read_run(
        &mut self,
        first: u64,
        count: u64,
        options: &Options,
        random: &mut Random,
        shown: &mut Vec<(u64, Shown)>,
    ) -> Result<(), Violation> {
        let unit = u64::from(options.logical_block) / 512;
        let start = first / unit * unit;
        let end = (first + count).next_multiple_of(unit).min(options.data_blocks);
        let range = LbaRange::new(start, end - start);
        match self.read_through(range, random)? {
            Some(bytes) => {
                for block in first..first + count {
                    let at = (block - start) as usize * 512;
                    shown.push((block, read_block(&bytes.bytes()[at..at + 512], block)));
                }
            }
            None if count <= unit => {
                shown.extend((first..first + count).map(|block| (block, Shown::Error)));
            }
            None => {
                let half = (count / 2).next_multiple_of(unit).clamp(1, count - 1);
                self.read_run(first, half, options, random, shown)?;
                self.read_run(first + half, count - half, options, random, shown)?;
            }
        }
        Ok(())
    }

    /// What is known to be zeroes (NBD block status) was read as such.
    fn check_block_status(
        &self,
        shown: &[(u64, Shown)],
        options: &Options,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let (mut block, end) = (0, options.data_blocks);
        while block < end && self.allowed.level < Level::Anything {
            let pieces_max = 1 + random.below(4) as usize;
            let pieces = self.engine().block_status(LbaRange::new(block, end - block), pieces_max);
            let blocks: u64 = pieces.iter().map(|(blocks, _)| blocks).sum();
            let is_cut = pieces.len() == pieces_max;
            if blocks == 0 || block + blocks > end || block + blocks < end && !is_cut {
                return Err(Violation(format!("block status from {block} on: {pieces:?}")));
            }
            for (blocks, is_zero) in pieces {
                let piece = &shown[block as usize..(block + blocks) as usize];
                let is_wrong = |(block, shown): &&(u64, Shown)| {
                    let is_fine = matches!(shown, Shown::Change(0) | Shown::Error);
                    !is_fine && !self.allowed.is_tainted(*block)
                };
                if let Some((block, shown)) = piece.iter().filter(|_| is_zero).find(is_wrong) {
                    let what = format!("block {block} is said to be zero, and shows {shown:?}");
                    return Err(Violation(what));
                }
                block += blocks;
            }
        }
        Ok(())
    }

    /// Started read-only, it refuses whatever would change data, at once.
    fn refuses_changes(&mut self) -> Result<(), Violation> {
        let range = LbaRange::new(0, 8);
        for operation in [
            Operation::Write { start: range.start, data: Buffer::zeroed(4096) },
            Operation::WriteZeroes { range, may_unmap: false },
            Operation::Discard { range },
        ] {
            let id = self.submit(operation, false);
            let index = self.running.replies.iter().position(|reply| reply.id == id);
            let reply = index.map(|index| self.running.replies.remove(index));
            if reply.is_none_or(|reply| reply.result != Err(RequestError::ReadOnly)) {
                return Err(Violation("a change is not refused although read-only".into()));
            }
        }
        Ok(())
    }

    /// A read that ends; `None` if it fails.
    fn read_through(
        &mut self,
        range: LbaRange,
        random: &mut Random,
    ) -> Result<Option<dcd_engine::Buffer>, Violation> {
        let id = self.submit(read_into_used(range), false);
        let mut left = 100_000;
        loop {
            if let Some(index) = self.running.replies.iter().position(|reply| reply.id == id) {
                let reply = self.running.replies.remove(index);
                return match (reply.result, reply.buffer) {
                    (Ok(()), Some(buffer)) => Ok(Some(buffer)),
                    (Ok(()), None) => Err(Violation("a read without data".into())),
                    (Err(_), _) => Ok(None),
                };
            }
            left -= 1;
            if left == 0 || self.running.ios.is_empty() && !self.wake() {
                return Err(Violation("a read is never answered".into()));
            }
            self.end_one_io(random);
        }
    }
}
