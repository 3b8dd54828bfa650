//! The simulations behind [`super::dhis`]: loads like those of the paper, on volumes of six disks
//! that are RAID 0, 1 or 5, or all three with hints.
//!
//! Below the file system: each client waits for his own requests only, and nobody thinks. What the
//! tables of a volume need is on an NVMe drive; the log is left unused where nothing is said of it.

use std::collections::BTreeMap;
use std::ops::Range;

use dcd_engine::units::MemberIndex;
use dcd_engine::volume::attributes::Attributes;
use dcd_engine::volume::config::{LABEL_BYTES, SetConfig, VolumeConfig};
use dcd_engine::volume::format::header::VolumeHeader;
use dcd_engine::volume::placement::{DeviceClass, Placement, RaidLevel};
use dcd_engine::{AckMode, Duration, EngineConfig, LbaRange};

use super::{ExperimentError, parallel};
use crate::crowd::{self, CrowdFacts};
use crate::disk::profile::Profile;
use crate::new_cache::NEW_UUID;
use crate::random::Random;
use crate::target::setup::{Hint, LogSetup, Setup, VolumeSetup};
use crate::trace::{Flags, Operation, Request};

/// "6 Maxtor SCSI disks ... 7,200 RPM" (section 5.1): the nearest that there is a profile of.
pub const PROFILE: &str = "wd400bb";
/// "6 ... disks".
const MEMBERS: u8 = 6;
/// Chosen: each set has so much of each member, the first of it in all setups at the same place.
const SET_MEMBER_BYTES: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Where metadata of the file system lie, and behind them files.
const METADATA: Range<u64> = 0..32 * MIB;
const FILES: u64 = 64 * MIB;

/// What data lie on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum On {
    /// RAID 0 alone.
    Raid0,
    /// RAID 1 alone.
    Raid1,
    /// RAID 5 alone.
    Raid5,
    /// All three, and hints say what goes where.
    Hinted,
    /// The same, and metadata go through a log on fast memory.
    HintedCached,
}

impl On {
    pub(super) const LEVELS: [On; 4] = [On::Raid0, On::Raid1, On::Raid5, On::Hinted];

    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            On::Raid0 => "RAID 0",
            On::Raid1 => "RAID 1",
            On::Raid5 => "RAID 5",
            On::Hinted => "DHIS",
            On::HintedCached => "DHIS, metadata cached",
        }
    }

    fn levels(self) -> &'static [RaidLevel] {
        match self {
            On::Raid0 => &[RaidLevel::Raid0],
            On::Raid1 => &[RaidLevel::Raid1],
            On::Raid5 => &[RaidLevel::Raid5],
            On::Hinted | On::HintedCached => {
                &[RaidLevel::Raid1, RaidLevel::Raid5, RaidLevel::Raid0]
            }
        }
    }
}

/// A load of the paper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Job {
    /// Mail and news: files of half a megabyte come, go, grow and are read (Figure 6).
    Postmark,
    /// One large file (Figure 7).
    SequentialRead,
    /// See there.
    SequentialWrite,
    /// See there.
    RandomRead,
    /// See there.
    RandomWrite,
    /// A data base with so many readers (Figure 8).
    Oltp(u64),
    /// A compiler's objects (Figures 9 and 10).
    Build,
    /// Small files on a synchronous mount (Figure 11).
    SynchronousPostmark,
}

/// The micro-benchmarks.
pub(super) const MICRO: [Job; 4] =
    [Job::SequentialRead, Job::SequentialWrite, Job::RandomRead, Job::RandomWrite];
/// Reader processes of Figure 8.
pub(super) const READERS: [u64; 4] = [25, 50, 75, 100];

/// What came of a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Until the last client was done.
    pub elapsed_s: f64,
    /// Requests a second.
    pub per_second: f64,
    /// Mean response time of them.
    pub response_ms: f64,
    /// Blocks of 512 bytes written to members.
    pub member_sectors: u64,
}

/// All simulations.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DhisRuns {
    runs: BTreeMap<(Job, On), Outcome>,
}

/// Requests of clients, and what is known of what they touch.
struct Load {
    clients: Vec<Vec<Request>>,
    written: Vec<Range<u64>>,
    hints: Vec<(Range<u64>, &'static str)>,
}

impl Load {
    fn new(clients: usize) -> Load {
        Load {
            clients: vec![Vec::new(); clients],
            written: vec![METADATA],
            hints: vec![(METADATA, "metadata")],
        }
    }

    /// A file that is there before, and what it is.
    fn file(&mut self, bytes: Range<u64>, hint: &'static str) {
        self.written.push(bytes.clone());
        self.hints.push((bytes, hint));
    }

    fn ask(&mut self, client: usize, operation: Operation, offset_bytes: u64, size_bytes: u64) {
        let flags = Flags(0);
        self.add(client, operation, flags, offset_bytes, size_bytes);
    }

    /// It is done when it is durable.
    fn write_through(&mut self, client: usize, offset_bytes: u64, size_bytes: u64) {
        self.add(client, Operation::Write, Flags::FUA, offset_bytes, size_bytes);
    }

    fn add(
        &mut self,
        client: usize,
        operation: Operation,
        flags: Flags,
        offset_bytes: u64,
        size_bytes: u64,
    ) {
        let (device, latency_ns) = (0, None);
        self.clients[client].push(Request {
            time_ns: 0,
            operation,
            device,
            offset_bytes,
            size_bytes,
            flags,
            latency_ns,
            line: 0,
            column: 0,
        });
    }

    /// A block of metadata.
    fn metadata(random: &mut Random) -> u64 {
        METADATA.start + random.below((METADATA.end - METADATA.start) / BLOCK) * BLOCK
    }
}

impl Job {
    fn load(self) -> Load {
        let random = &mut Random::new(0);
        match self {
            Job::Postmark => postmark(random),
            Job::SequentialRead | Job::SequentialWrite => self.sequential(random),
            Job::RandomRead | Job::RandomWrite => self.random(random),
            Job::Oltp(readers) => oltp(readers as usize, random),
            Job::Build => build(random),
            Job::SynchronousPostmark => synchronous_postmark(random),
        }
    }

    /// 4 KB of a file at a time, which a page cache makes one request of 640 KiB of; four are under
    /// way. The inode changes after each.
    fn sequential(self, random: &mut Random) -> Load {
        const PIECE: u64 = 640 << 10;
        const PIECES: u64 = 400;
        let mut load = Load::new(4);
        load.file(FILES..FILES + PIECE * PIECES, "important,sequential");
        for piece in 0..PIECES {
            let (client, place) = (piece as usize % 4, FILES + piece * PIECE);
            if self == Job::SequentialRead {
                load.ask(client, Operation::Read, place, PIECE);
                continue;
            }
            load.ask(client, Operation::Write, place, PIECE);
            load.ask(client, Operation::Write, Load::metadata(random), BLOCK);
        }
        load
    }

    /// Reads wait for each other; of writes a page cache has 32 under way.
    fn random(self, random: &mut Random) -> Load {
        const FILE: u64 = 256 * MIB;
        let (clients, count, operation) = match self {
            Job::RandomRead => (1, 1000, Operation::Read),
            _ => (32, 4000, Operation::Write),
        };
        let mut load = Load::new(clients);
        load.file(FILES..FILES + FILE, "important,random");
        for number in 0..count {
            let place = FILES + random.below(FILE / BLOCK) * BLOCK;
            load.ask(number % clients, operation, place, BLOCK);
        }
        load
    }
}

/// Files of 400 to 600 KB; what is read is in order, what is appended is small; metadata for each
/// file that comes or goes. Four requests are under way.
fn postmark(random: &mut Random) -> Load {
    const FILE: u64 = 512 << 10;
    const COUNT: u64 = 300;
    const PIECE: u64 = 128 << 10;
    let mut load = Load::new(4);
    load.file(FILES..FILES + COUNT * FILE, "important,random");
    for transaction in 0..400 {
        let client = transaction % 4;
        let file = FILES + random.below(COUNT) * FILE;
        let bytes = 400 * 1024 / BLOCK * BLOCK + random.below(28) * BLOCK;
        match random.below(4) {
            0 => {
                for offset in (0..bytes).step_by(PIECE as usize) {
                    load.ask(client, Operation::Read, file + offset, PIECE.min(bytes - offset));
                }
            }
            1 => load.ask(client, Operation::Write, file + bytes, 2 * BLOCK),
            2 => {
                for offset in (0..bytes).step_by(PIECE as usize) {
                    load.ask(client, Operation::Write, file + offset, PIECE.min(bytes - offset));
                }
                for _ in 0..3 {
                    load.ask(client, Operation::Write, Load::metadata(random), BLOCK);
                }
            }
            _ => {
                for _ in 0..3 {
                    load.ask(client, Operation::Write, Load::metadata(random), BLOCK);
                }
            }
        }
    }
    load
}

/// Readers and ten writers at random in ten files, and one writer of a log, each of whose writes is
/// durable before the next.
fn oltp(readers: usize, random: &mut Random) -> Load {
    const DATA: u64 = 256 * MIB;
    const LOG: u64 = 16 * MIB;
    const WRITERS: usize = 10;
    const EACH: usize = 60;
    let mut load = Load::new(readers + WRITERS + 1);
    let data = FILES..FILES + DATA;
    load.file(data.clone(), "important,read-most,random");
    load.file(data.end..data.end + LOG, "important,sequential");
    for client in 0..readers + WRITERS {
        let operation = if client < readers { Operation::Read } else { Operation::Write };
        for _ in 0..EACH {
            load.ask(client, operation, data.start + random.below(DATA / BLOCK) * BLOCK, BLOCK);
        }
    }
    for number in 0..EACH as u64 {
        load.write_through(readers + WRITERS, data.end + number * 4 * BLOCK, 4 * BLOCK);
    }
    load
}

/// Four compilers write objects of 4 to 60 KB, one block of metadata for every four of them; a
/// linker reads all, and writes one.
fn build(random: &mut Random) -> Load {
    const OBJECTS: u64 = 600;
    const PLACE: u64 = 64 << 10;
    const PROGRAM: u64 = 8 * MIB;
    let mut load = Load::new(4);
    let objects = FILES..FILES + OBJECTS * PLACE + PROGRAM;
    load.file(objects.clone(), "temporary");
    let mut reads = Vec::new();
    for number in 0..OBJECTS {
        let (client, place) = (number as usize % 4, FILES + number * PLACE);
        let bytes = (1 + random.below(4) + random.below(4) + random.below(8)) * BLOCK;
        load.ask(client, Operation::Write, place, bytes);
        reads.push((place, bytes));
        if number % 4 == 3 {
            load.ask(client, Operation::Write, Load::metadata(random), BLOCK);
        }
    }
    for (place, bytes) in reads {
        load.ask(0, Operation::Read, place, bytes);
    }
    for offset in (0..PROGRAM).step_by(MIB as usize) {
        load.ask(0, Operation::Write, objects.end - PROGRAM + offset, MIB);
    }
    load
}

/// 1,000 files of 10 to 20 KB, 2,000 operations: data and three blocks of metadata, each durable
/// before the next.
fn synchronous_postmark(random: &mut Random) -> Load {
    const FILES_COUNT: u64 = 1000;
    const PLACE: u64 = 20 << 10;
    let mut load = Load::new(1);
    load.file(FILES..FILES + FILES_COUNT * PLACE, "important,random");
    for _ in 0..2000 {
        let place = FILES + random.below(FILES_COUNT) * PLACE;
        match random.below(4) {
            0 => load.ask(0, Operation::Read, place, 4 * BLOCK),
            1 => {
                load.write_through(0, place, BLOCK);
                load.write_through(0, Load::metadata(random), BLOCK);
            }
            kind => {
                if kind == 2 {
                    load.write_through(0, place, (3 + random.below(3)) * BLOCK);
                }
                for _ in 0..3 {
                    load.write_through(0, Load::metadata(random), BLOCK);
                }
            }
        }
    }
    load
}

fn setup(on: On, load: &Load, disk: &Profile) -> Result<Setup, String> {
    let set = |(place, level): (u64, &RaidLevel)| SetConfig {
        level: *level,
        class: DeviceClass::Slow,
        members: (0..MEMBERS).map(MemberIndex).collect(),
        stripe_unit_bytes: 64 << 10,
        copies: if *level == RaidLevel::Raid1 { 2 } else { 1 },
        member_offset_bytes: LABEL_BYTES + place * SET_MEMBER_BYTES,
        member_bytes: SET_MEMBER_BYTES,
    };
    let sets: Vec<SetConfig> = (0..).zip(on.levels()).map(set).collect();
    let mut config = VolumeConfig {
        members: MEMBERS.into(),
        sets,
        extent_bytes: 64 << 10,
        logical_bytes: 0,
        temporary_bytes: 0,
        selective_caching: on == On::HintedCached,
        migrate_bytes_per_second_max: 0,
        placement: Placement::default(),
        // The paper's has none, nor has RAID of Linux.
        twin_region_pages: 0,
    };
    if on.levels().len() > 1 {
        config.temporary_bytes = SET_MEMBER_BYTES;
    }
    config.logical_bytes = config.capacity_bytes() - config.temporary_bytes;
    config.validate().map_err(|error| error.to_string())?;
    let header = VolumeHeader { uuid: NEW_UUID, config, pointers_max: 16, journal_bytes: 16 * MIB };
    let hints = load.hints.iter().filter(|_| on.levels().len() > 1).map(|(bytes, what)| {
        let attributes = what.parse::<Attributes>().map_err(|error| error.to_string())?;
        Ok(Hint { bytes: bytes.clone(), attributes })
    });
    let blocks =
        |bytes: &Range<u64>| LbaRange::new(bytes.start / 512, (bytes.end - bytes.start) / 512);
    let volume = VolumeSetup {
        header,
        members: vec![disk.clone(); usize::from(MEMBERS)],
        hints: hints.collect::<Result<_, String>>()?,
        written: load.written.iter().map(blocks).collect(),
    };
    let config = EngineConfig {
        ack: AckMode::Durable,
        no_log: on != On::HintedCached,
        ..EngineConfig::default()
    };
    let log = LogSetup {
        cache_disk: Profile::load("nvme-ssd").map_err(|error| error.to_string())?,
        cache_bytes: 256 * MIB,
        read_area_bytes: 0,
        segment_bytes: 128 << 10,
        config,
    };
    Ok(Setup { log: Some(log), volume: Some(volume), ..Setup::of(disk.clone(), 0) })
}

/// Long enough for all that is still to be written.
const REST: Duration = Duration::from_secs(600);

fn run((job, on): (Job, On), disk: &Profile) -> Result<Outcome, String> {
    let load = job.load();
    let target = setup(on, &load, disk)?.build().map_err(|error| error.to_string())?;
    let streams = load.clients.into_iter().map(Vec::into_iter).collect();
    let facts = crowd::replay(target, streams, REST).map_err(|error| error.to_string())?;
    let CrowdFacts { duration, reads, writes, rested, .. } = &facts;
    let responses = || reads.iter().chain(writes).map(|time| time.0 as f64 / 1e6);
    let (count, elapsed_s) = (responses().count() as f64, duration.0 as f64 / 1e9);
    Ok(Outcome {
        elapsed_s,
        per_second: count / elapsed_s.max(1e-9),
        response_ms: responses().sum::<f64>() / count.max(1.0),
        member_sectors: rested.disk_write_bytes / 512,
    })
}

impl DhisRuns {
    /// What came of it.
    ///
    /// # Panics
    /// If there was no such run.
    pub fn get(&self, job: Job, on: On) -> Outcome {
        self.runs[&(job, on)]
    }

    /// Simulates all that the figures need; tells `progress` how many of how many are done.
    ///
    /// # Errors
    /// If the profile cannot be read, or a simulation fails.
    pub fn run(
        jobs: usize,
        progress: impl FnMut(usize, usize) + Send,
    ) -> Result<DhisRuns, ExperimentError> {
        let disk = Profile::load(PROFILE)?;
        let on_all = |job: Job| On::LEVELS.map(|on| (job, on));
        let mut todo: Vec<(Job, On)> =
            READERS.iter().rev().flat_map(|it| on_all(Job::Oltp(*it))).collect();
        todo.extend(MICRO.into_iter().chain([Job::Postmark, Job::Build]).flat_map(on_all));
        todo.extend([On::Hinted, On::HintedCached].map(|on| (Job::SynchronousPostmark, on)));
        let outcomes = parallel::map(&todo, jobs, progress, |which| run(*which, &disk));
        let mut runs = BTreeMap::new();
        for (which, outcome) in todo.into_iter().zip(outcomes) {
            let failed = |problem| ExperimentError::Failed { what: "DHIS".into(), problem };
            runs.insert(which, outcome.map_err(failed)?);
        }
        Ok(DhisRuns { runs })
    }
}
