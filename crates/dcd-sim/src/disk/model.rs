//! A disk that runs on virtual time: requests are submitted at a moment, and are done at another.
//!
//! ```text
//! submit(now, request)        the request waits, or is served at once
//! next_event()                when something will be done, if nothing else is submitted
//! advance(now, &mut done)     what has been done up to now
//! ```
//!
//! `now` never goes back. The same profile, seed and requests give the same times.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{Lba, Time};

use super::drive::Drive;
use super::geometry::{Destination, Geometry};
use super::price::{PriceProfile, Traffic};
use super::profile::{FieldProblem, Profile};
use super::queue::{Candidate, QueuePolicy};
use super::shingled::Shingles;
use super::simple::SimpleDevice;
use super::store::{Store, StoreFacts};
use crate::random::Random;

/// What a request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskOperation {
    /// Data from the disk.
    Read,
    /// Data to the disk.
    Write,
    /// That everything written so far is safe.
    Flush,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskRequest {
    /// The caller's.
    pub id: u64,
    /// What it wants.
    pub operation: DiskOperation,
    /// Where it begins; a drive rounds outwards to its sectors.
    pub offset_bytes: u64,
    /// How much; of no account for a flush.
    pub size_bytes: u64,
}

impl DiskRequest {
    /// Whether something of so many bytes can have it.
    ///
    /// # Errors
    /// When it reaches beyond the end, or is about nothing.
    pub fn check_within(&self, capacity_bytes: u64) -> Result<(), DiskRequestError> {
        let DiskRequest { offset_bytes, size_bytes, operation, .. } = *self;
        if operation == DiskOperation::Flush {
            return Ok(());
        }
        if size_bytes == 0 {
            return Err(DiskRequestError::Empty { offset_bytes });
        }
        match offset_bytes.checked_add(size_bytes) {
            Some(end) if end <= capacity_bytes => Ok(()),
            _ => Err(DiskRequestError::BeyondEnd { offset_bytes, size_bytes, capacity_bytes }),
        }
    }
}

/// A request that is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskDone {
    /// The caller's.
    pub id: u64,
    /// When it came.
    pub submitted: Time,
    /// When the disk began to serve it.
    pub started: Time,
    /// When it was done.
    pub completed: Time,
}

/// A request that the disk cannot have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DiskRequestError {
    /// It ends behind the disk.
    #[error(
        "{size_bytes} bytes at {offset_bytes} reach beyond the disk, which has {capacity_bytes}"
    )]
    BeyondEnd {
        /// Where it begins.
        offset_bytes: u64,
        /// How much.
        size_bytes: u64,
        /// What there is.
        capacity_bytes: u64,
    },
    /// A drive with shingles, managed by the host, takes a write at another place only.
    #[error(
        "a write at {offset_bytes} is not where the last in its zone ended, nor at its beginning, or goes over its end: zones \
         would take one at {pointer_bytes}"
    )]
    NotInOrder {
        /// Where it begins.
        offset_bytes: u64,
        /// Where it would have to: in the next zone, if it goes over the end of its own.
        pointer_bytes: u64,
    },
    /// It is about nothing.
    #[error("a request for no bytes at {offset_bytes}")]
    Empty {
        /// Where it would begin.
        offset_bytes: u64,
    },
}

/// A disk.
#[derive(Clone, Debug)]
pub struct DiskModel {
    device: Device,
    capacity_bytes: u64,
    now_ns: u64,
    /// Done at the first number; the second keeps the order of equals.
    running: BinaryHeap<Reverse<(u64, u64, DoneKey)>>,
    started_count: u64,
    traffic: Traffic,
    price: Option<PriceProfile>,
    endurance_tbw: Option<f64>,
}

/// A [`DiskDone`] with an order.
type DoneKey = (u64, u64, u64);

#[derive(Clone, Debug)]
enum Device {
    Drive(Box<QueuedDrive>),
    Simple(Box<SimpleDevice>),
    Store(Box<Store>),
}

/// A drive and who waits for it.
#[derive(Clone, Debug)]
struct QueuedDrive {
    drive: Drive,
    shingles: Option<Shingles>,
    /// Sectors before those that are shown.
    hidden_sectors: u64,
    policy: QueuePolicy,
    depth: usize,
    age_max_ns: u64,
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
    candidates: Vec<Candidate>,
    /// Blocks whose access time was asked for of late, at [`recent_slot`]: who compares groups asks
    /// for the same ones again and again.
    recent: RefCell<Vec<Option<(Lba, Destination)>>>,
}

/// Blocks whose places are remembered.
const RECENT_BLOCKS: usize = 1024;

fn recent_slot(block: Lba) -> usize {
    // The first blocks of tracks may have all low bits alike.
    (block.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % RECENT_BLOCKS
}

/// How far the platters have turned at the beginning. Seeds that follow one another are far apart;
/// 0 is where a turn begins.
fn phase_ns(seed: u64, turn_ns: u64) -> u64 {
    if seed == 0 { 0 } else { Random::new(seed).below(turn_ns) }
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    submitted_ns: u64,
    request: DiskRequest,
    /// Where it begins, if the policy may ask: that is the same each time the next one is chosen.
    to: Option<Destination>,
}

impl DiskModel {
    /// A disk of that profile. The seed gives the angle of the platters at the beginning, and
    /// whatever else is left to chance.
    ///
    /// # Errors
    /// When no disk can be like that; the problem names the field.
    pub fn new(profile: &Profile, seed: u64) -> Result<DiskModel, FieldProblem> {
        let (device, capacity_bytes) = match (&profile.mechanical, &profile.simple) {
            (Some(mechanical), None) => {
                let drive = Drive::new(mechanical, 0)?;
                let turn_ns = drive.mechanism().geometry.rotation_ns();
                let drive = Drive::new(mechanical, phase_ns(seed, turn_ns))?;
                let geometry = &drive.mechanism().geometry;
                let (sectors, sector_bytes) = (geometry.sectors(), geometry.sector_bytes());
                let shingles = mechanical.shingles.as_ref();
                let shingles =
                    shingles.map(|it| Shingles::new(it, sectors, sector_bytes)).transpose()?;
                let hidden_sectors = shingles.as_ref().map_or(0, Shingles::hidden_sectors);
                let capacity = (sectors - hidden_sectors) * u64::from(sector_bytes);
                let queued = QueuedDrive {
                    drive,
                    shingles,
                    hidden_sectors,
                    policy: mechanical.queue.policy,
                    depth: mechanical.queue.depth as usize,
                    age_max_ns: (mechanical.queue.age_max_ms * 1e6) as u64,
                    waiting: VecDeque::new(),
                    candidates: Vec::new(),
                    recent: RefCell::new(vec![None; RECENT_BLOCKS]),
                };
                (Device::Drive(Box::new(queued)), capacity)
            }
            (None, Some(simple)) => {
                let device = SimpleDevice::new(simple, seed)?;
                let capacity = device.capacity_bytes();
                (Device::Simple(Box::new(device)), capacity)
            }
            _ => {
                let message = "a profile has either [mechanical] or [simple]".to_owned();
                return Err(FieldProblem::new("title", message));
            }
        };
        Ok(DiskModel {
            device,
            capacity_bytes,
            now_ns: 0,
            running: BinaryHeap::new(),
            started_count: 0,
            traffic: Traffic::default(),
            price: profile.price,
            endurance_tbw: profile.simple.as_ref().and_then(|simple| simple.endurance_tbw),
        })
    }

    /// The same behind a log: a bucket gets objects into which what is written was packed.
    ///
    /// # Errors
    /// As [`DiskModel::new`].
    pub fn behind_log(profile: &Profile, seed: u64) -> Result<DiskModel, FieldProblem> {
        let mut model = DiskModel::new(profile, seed)?;
        if profile.is_object_store() {
            model.device = match model.device {
                Device::Simple(bucket) => Device::Store(Box::new(Store::new(*bucket))),
                other => other,
            };
        }
        Ok(model)
    }

    /// What goes to the device and comes from it: of a bucket, what is paid for.
    pub fn traffic(&self) -> Traffic {
        match &self.device {
            Device::Store(store) => store.traffic(),
            _ => self.traffic,
        }
    }

    /// What it costs.
    pub fn price(&self) -> Option<&PriceProfile> {
        self.price.as_ref()
    }

    /// How much may be written in its life, in units of 10^12 bytes.
    pub fn endurance_tbw(&self) -> Option<f64> {
        self.endurance_tbw
    }

    /// What came of a bucket behind a log.
    pub fn store(&self) -> Option<StoreFacts> {
        match &self.device {
            Device::Store(store) => Some(store.facts()),
            _ => None,
        }
    }

    /// Makes what was written visible at once, the end of a window: only a bucket behind a log
    /// takes time for that. It is done as a request of that number.
    ///
    /// # Panics
    /// As [`DiskModel::submit`].
    pub fn commit(&mut self, now: Time, id: u64) {
        assert!(now.0 >= self.now_ns, "time goes back");
        self.now_ns = now.0;
        let completed = match &mut self.device {
            Device::Store(store) => store.commit(now.0),
            _ => now.0,
        };
        self.run(id, now.0, now.0, completed);
    }

    /// Size of the disk.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Size of its sectors.
    pub fn sector_bytes(&self) -> u32 {
        match &self.device {
            Device::Drive(queued) => queued.drive.mechanism().geometry.sector_bytes(),
            Device::Simple(_) | Device::Store(_) => 512,
        }
    }

    /// Takes a request at `now`.
    ///
    /// # Errors
    /// When it reaches beyond the disk; nothing has happened then.
    ///
    /// # Panics
    /// If `now` is earlier than it was, or something should have been taken by
    /// [`DiskModel::advance`] before.
    pub fn submit(&mut self, now: Time, request: DiskRequest) -> Result<(), DiskRequestError> {
        self.check(&request)?;
        let DiskRequest { offset_bytes, size_bytes, operation, .. } = request;
        assert!(now.0 >= self.now_ns, "time goes back");
        assert!(self.next_event().is_none_or(|event| event >= now), "something was done before");
        self.now_ns = now.0;
        match operation {
            DiskOperation::Read => self.traffic.count_read(size_bytes),
            DiskOperation::Write => self.traffic.count_write(size_bytes),
            DiskOperation::Flush => {}
        }
        match &mut self.device {
            Device::Store(store) => {
                let completed = match operation {
                    DiskOperation::Read => store.read(now.0, offset_bytes, size_bytes),
                    DiskOperation::Write => store.write(now.0, offset_bytes, size_bytes),
                    DiskOperation::Flush => store.flush(now.0),
                };
                self.run(request.id, now.0, now.0, completed);
            }
            Device::Simple(device) => {
                let (started, completed) = match operation {
                    DiskOperation::Read => device.serve(now.0, size_bytes, false),
                    DiskOperation::Write => device.serve(now.0, size_bytes, true),
                    DiskOperation::Flush => (now.0, device.last_end_ns().max(now.0)),
                };
                self.run(request.id, now.0, started, completed);
            }
            Device::Drive(queued) => {
                queued.admit(&request)?;
                queued.wait(now.0, request);
                if self.running.is_empty() {
                    self.start_next(now.0);
                }
            }
        }
        Ok(())
    }

    /// Whether the disk can have a request.
    ///
    /// # Errors
    /// When it reaches beyond the disk, or is about nothing.
    pub fn check(&self, request: &DiskRequest) -> Result<(), DiskRequestError> {
        request.check_within(self.capacity_bytes)
    }

    /// When something will be done next, unless more is submitted.
    pub fn next_event(&self) -> Option<Time> {
        self.running.peek().map(|Reverse((completed, _, _))| Time(*completed))
    }

    /// Adds to `done` what has been done up to `now`, in the order in which it was.
    pub fn advance(&mut self, now: Time, done: &mut Vec<DiskDone>) {
        while let Some(Reverse((completed, _, (id, submitted, started)))) =
            self.running.peek().copied()
            && completed <= now.0
        {
            self.running.pop();
            done.push(DiskDone {
                id,
                submitted: Time(submitted),
                started: Time(started),
                completed: Time(completed),
            });
            self.start_next(completed);
        }
        self.now_ns = self.now_ns.max(now.0);
    }

    /// Serves one request alone: submits it at `now` and waits for it.
    ///
    /// # Errors
    /// As [`DiskModel::submit`].
    ///
    /// # Panics
    /// If others are being served.
    pub fn serve(&mut self, now: Time, request: DiskRequest) -> Result<DiskDone, DiskRequestError> {
        assert!(self.running.is_empty(), "others are being served");
        self.submit(now, request)?;
        let Reverse((completed, _, (id, submitted, started))) =
            self.running.pop().expect("it is being served");
        self.now_ns = completed;
        let [submitted, started, completed] = [submitted, started, completed].map(Time);
        Ok(DiskDone { id, submitted, started, completed })
    }

    /// A block below the head, or near to it. Disks without an arm say 0.
    pub fn head_block(&self) -> Lba {
        let Device::Drive(queued) = &self.device else { return Lba(0) };
        let mechanism = queued.drive.mechanism();
        let sector = mechanism.geometry.first_sector_from(mechanism.cylinder());
        let sector = sector.saturating_sub(queued.hidden_sectors);
        Lba(sector * u64::from(mechanism.geometry.sector_bytes()) / BLOCK_SIZE)
    }

    /// How long from `now` on it would take to begin a write at that block, if it came next. Disks
    /// without an arm say 0.
    ///
    /// # Panics
    /// If the disk does not have the block.
    pub fn access_ns(&self, now: Time, block: Lba) -> u64 {
        let Device::Drive(queued) = &self.device else { return 0 };
        queued.drive.access_ns(now.0, &queued.destination(block), true)
    }

    /// Whether it has an arm.
    pub fn has_arm(&self) -> bool {
        matches!(self.device, Device::Drive(_))
    }

    /// The geometry of a drive, if what is shown lies as it tells.
    pub fn geometry(&self) -> Option<&Geometry> {
        match &self.device {
            Device::Drive(queued) if queued.hidden_sectors > 0 => None,
            Device::Drive(queued) => Some(&queued.drive.mechanism().geometry),
            Device::Simple(_) | Device::Store(_) => None,
        }
    }

    /// Lets a drive begin with one of those who wait.
    fn start_next(&mut self, at_ns: u64) {
        let Device::Drive(queued) = &mut self.device else { return };
        let Some(Waiting { submitted_ns, request, .. }) = queued.take_next(at_ns) else { return };
        let completed = queued.serve(at_ns, &request);
        self.run(request.id, submitted_ns, at_ns, completed);
    }

    fn run(&mut self, id: u64, submitted: u64, started: u64, completed: u64) {
        self.started_count += 1;
        self.running.push(Reverse((completed, self.started_count, (id, submitted, started))));
    }
}

impl QueuedDrive {
    fn destination(&self, block: Lba) -> Destination {
        let recent = &mut self.recent.borrow_mut()[recent_slot(block)];
        match *recent {
            Some((known, to)) if known == block => to,
            _ => {
                let geometry = &self.drive.mechanism().geometry;
                let sector = block.byte() / u64::from(geometry.sector_bytes());
                let sector = sector + self.hidden_sectors;
                let to = geometry.destination(geometry.place(sector));
                *recent = Some((block, to));
                to
            }
        }
    }

    /// Zones that the host manages take writes in order only: of their coming, which is that of
    /// their being served then, too.
    fn admit(&mut self, request: &DiskRequest) -> Result<(), DiskRequestError> {
        let (first, count) = self.sectors(request);
        let Some(Shingles::Host(zones)) = &mut self.shingles else { return Ok(()) };
        if request.operation != DiskOperation::Write {
            return Ok(());
        }
        let sector = u64::from(self.drive.mechanism().geometry.sector_bytes());
        zones.write(first, count).map_err(|pointer| DiskRequestError::NotInOrder {
            offset_bytes: request.offset_bytes,
            pointer_bytes: pointer * sector,
        })
    }

    fn wait(&mut self, submitted_ns: u64, request: DiskRequest) {
        let has_place = request.operation != DiskOperation::Flush;
        let to = (has_place && self.policy != QueuePolicy::Fcfs).then(|| {
            let geometry = &self.drive.mechanism().geometry;
            geometry.destination(geometry.place(self.hidden_sectors + self.sectors(&request).0))
        });
        self.waiting.push_back(Waiting { submitted_ns, request, to });
    }

    fn take_next(&mut self, at_ns: u64) -> Option<Waiting> {
        // A flush waits for what came before it, and what comes after waits for the flush.
        let flush = |waiting: &Waiting| waiting.request.operation == DiskOperation::Flush;
        let free = self.waiting.iter().take(self.depth).position(flush).unwrap_or(self.depth);
        let free = free.min(self.waiting.len());
        if free <= 1 || self.policy == QueuePolicy::Fcfs {
            return self.waiting.pop_front();
        }
        self.candidates.clear();
        for Waiting { submitted_ns, request, to } in self.waiting.iter().take(free) {
            let to = to.as_ref().expect("only flushes have no place, and none is among these");
            let write = request.operation == DiskOperation::Write;
            let access_ns = if self.policy.wants_access_times() {
                self.drive.access_ns(at_ns, to, write)
            } else {
                0
            };
            let (submitted_ns, cylinder) = (*submitted_ns, to.cylinder);
            self.candidates.push(Candidate { submitted_ns, cylinder, access_ns });
        }
        let arm = self.drive.mechanism().cylinder();
        let next = self.policy.next(&self.candidates, arm, at_ns, self.age_max_ns);
        self.waiting.remove(next)
    }

    fn serve(&mut self, at_ns: u64, request: &DiskRequest) -> u64 {
        let (first, count) = self.sectors(request);
        let drive = &mut self.drive;
        match (request.operation, &mut self.shingles) {
            (DiskOperation::Read, Some(Shingles::Drive(own))) => {
                own.read(drive, at_ns, first, count)
            }
            (DiskOperation::Write, Some(Shingles::Drive(own))) => {
                own.write(drive, at_ns, first, count)
            }
            (DiskOperation::Read, _) => drive.read(at_ns, first, count),
            (DiskOperation::Write, _) => drive.write(at_ns, first, count),
            (DiskOperation::Flush, _) => drive.flush(at_ns),
        }
    }

    /// First sector and how many.
    fn sectors(&self, request: &DiskRequest) -> (u64, u64) {
        let sector = u64::from(self.drive.mechanism().geometry.sector_bytes());
        let first = request.offset_bytes / sector;
        let end = request.offset_bytes.saturating_add(request.size_bytes).div_ceil(sector);
        (first, end.saturating_sub(first))
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
