//! A cache on a volume of several members: disks in memory, an engine on them, and what each block
//! should hold. I/Os end at once, but where a test holds them back.
#![allow(dead_code)] // Each test has its own needs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use dcd_engine::create::{CreateOptions, create};
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::SUPERBLOCK_SIZE;
use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::attributes::Attributes;
use dcd_engine::volume::config::{SetConfig, VolumeConfig};
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::format::header::{VOLUME_HEADER_BYTES, VolumeHeader};
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel};
use dcd_engine::volume::growth::Growth;
use dcd_engine::volume::members::MemberInfo;
use dcd_engine::volume::placement::{DeviceClass, Placement, RaidLevel};
use dcd_engine::volume::{GrowthEnd, Volume, VolumeParts};
use dcd_engine::{
    Buffer, Device, Duration, Engine, EngineConfig, Geometry, GrowRefusal, Input, Io, IoDone,
    IoError, IoOperation, Lba, LbaRange, Limits, Operation, Output, Phase, Request, RequestError,
    RequestId, Superblock, Time, Uuid, VolumeAnswer, VolumeRequest,
};
use dcd_testkit::{carry_out, ended, range_of, read_into_used};

pub const MIB: u64 = 1 << 20;
pub const UUID: Uuid = Uuid([9; 16]);
pub const CACHE_BYTES: u64 = 16 * MIB;
pub const MEMBER_BYTES: u64 = 13 * MIB;

pub type Answer = (Result<(), RequestError>, Option<Buffer>, Option<VolumeAnswer>);

/// Disks in memory, an engine on them, and what each block should hold.
pub struct Bench {
    pub engine: Option<Engine>,
    pub cache_disk: Vec<u8>,
    pub members: Vec<Option<Vec<u8>>>,
    pub failing: Vec<bool>,
    /// Flushes of these members fail.
    pub unflushable: Vec<bool>,
    /// Lines of members that cannot be read until they are written.
    pub bad: BTreeSet<(usize, u64)>,
    pub header: VolumeHeader,
    pub now: Time,
    pub next: u64,
    pub replies: BTreeMap<u64, Answer>,
    pub writes: Vec<u64>,
    /// The log is left unused from the next start on.
    pub no_log: bool,
    /// From the next start on.
    pub accept_damage: bool,
    /// From the next start on.
    pub bypass_threshold_bytes: u64,
    /// From the next start on.
    pub scrub_every: Duration,
    /// From the next start on.
    pub spare_after: Duration,
    /// From the next start on.
    pub volume_memory_bytes: u64,
    /// From the next start on.
    pub zero_ranges_max: usize,
    /// What of the cache-disk cannot be read.
    pub bad_cache: Range<u64>,
    /// Seconds since 1970, at each start.
    pub calendar: Option<u64>,
    /// Ends of I/Os of members, when they are held back.
    pub held: Option<Vec<Input>>,
    /// Whether, and what, is remembered of each moment.
    pub moments: Option<Vec<Moment>>,
    /// Whose I/Os these are.
    pub holds: Vec<Device>,
}

/// What the cache-disk and the members hold after an I/O of the cache-disk, or of a disk that takes
/// the place of a member.
pub type Moment = (Vec<u8>, Vec<Option<Vec<u8>>>);

pub fn set(level: RaidLevel, members: u8, copies: u32, place: u64, unit: u64) -> SetConfig {
    SetConfig {
        level,
        class: DeviceClass::Slow,
        members: (0..members).map(MemberIndex).collect(),
        stripe_unit_bytes: unit,
        copies,
        member_offset_bytes: MIB + place * 4 * MIB,
        member_bytes: 4 * MIB,
    }
}

pub fn config(members: u8, sets: Vec<SetConfig>, extent_bytes: u64) -> VolumeConfig {
    let mut config = VolumeConfig {
        members: members.into(),
        sets,
        extent_bytes,
        logical_bytes: 0,
        temporary_bytes: 0,
        selective_caching: false,
        twin_region_pages: 0,
        migrate_bytes_per_second_max: 0,
        placement: Placement::default(),
    };
    if config.sets.iter().any(|set| set.level == RaidLevel::Raid0) {
        config.temporary_bytes = MIB;
    }
    config.logical_bytes = config.capacity_bytes() - config.temporary_bytes;
    config.validate().unwrap();
    config
}

/// Four members with a RAID 1, a RAID 5 and a RAID 0 set.
pub fn tiered() -> VolumeConfig {
    let sets = vec![
        set(RaidLevel::Raid1, 4, 2, 0, 16 << 10),
        set(RaidLevel::Raid5, 4, 1, 1, 16 << 10),
        set(RaidLevel::Raid0, 4, 1, 2, 16 << 10),
    ];
    config(4, sets, 32 << 10)
}

pub fn raid5() -> VolumeConfig {
    config(4, vec![set(RaidLevel::Raid5, 4, 1, 0, 16 << 10)], 16 << 10)
}

impl Bench {
    pub fn new(config: VolumeConfig) -> Bench {
        Bench::with_journal(config, MIB)
    }

    pub fn with_journal(config: VolumeConfig, journal_bytes: u64) -> Bench {
        let count = config.members;
        let header = VolumeHeader { uuid: UUID, config, pointers_max: 1000, journal_bytes };
        let mut cache_disk = vec![0; CACHE_BYTES as usize];
        for (offset, bytes) in create(CreateOptions {
            uuid: UUID,
            geometry: Geometry::fit(8 * MIB, 64 << 10).unwrap(),
            data_disk: Volume::data_disk_info(&header.config),
            data_disk_serial: String::new(),
            created_unix_seconds: 0,
            data_offset_bytes: 0,
            has_end_mark: false,
            has_legs: false,
            volume: Some(header.clone()),
        }) {
            cache_disk[offset as usize..][..bytes.len()].copy_from_slice(bytes.bytes());
        }
        // Whatever was on the members before must never show.
        let of_twin = header
            .config
            .twin_offset_bytes()
            .map_or(0, |offset| offset + VolumeArea::of(&header, offset).unwrap().twin_bytes());
        let bytes = MEMBER_BYTES.max(of_twin) as usize;
        let mut members = vec![Some(vec![0xee; bytes]); count];
        for (index, member) in members.iter_mut().enumerate() {
            let label = MemberLabel::first(UUID, MemberIndex(index as u8));
            let member = member.as_mut().unwrap();
            member[..MEMBER_LABEL_BYTES].copy_from_slice(label.encode().bytes());
        }
        let mut bench = Bench {
            engine: None,
            cache_disk,
            members,
            failing: vec![false; count],
            unflushable: vec![false; count],
            bad: BTreeSet::new(),
            header,
            now: Time::ZERO,
            next: 0,
            replies: BTreeMap::new(),
            writes: vec![0; count],
            no_log: false,
            accept_damage: false,
            bypass_threshold_bytes: EngineConfig::default().bypass_threshold_bytes,
            scrub_every: Duration(0),
            spare_after: Duration(0),
            volume_memory_bytes: EngineConfig::default().volume_memory_bytes,
            zero_ranges_max: Limits::MOST.zero_ranges,
            bad_cache: 0..0,
            calendar: None,
            held: None,
            moments: None,
            holds: (0..count as u8).map(|member| Device::Member(MemberIndex(member))).collect(),
        };
        bench.open(false);
        bench
    }

    pub fn open(&mut self, degraded: bool) {
        assert_eq!(self.try_open(degraded), Phase::Running);
    }

    pub fn superblock(&self) -> Superblock {
        let copy = |place: usize| {
            &self.cache_disk[SUPERBLOCK_OFFSETS[place] as usize..][..SUPERBLOCK_SIZE]
        };
        Superblock::newest(copy(0), copy(1)).unwrap()
    }

    pub fn try_open(&mut self, degraded: bool) -> Phase {
        let superblock = self.superblock();
        // It is another when the volume has grown.
        let header = &self.cache_disk[superblock.volume_offset() as usize..];
        self.header = VolumeHeader::decode(&header[..VOLUME_HEADER_BYTES]).unwrap();
        let info = |member: &Option<Vec<u8>>| {
            let copy = |bytes: &[u8], place: usize| {
                bytes[LABEL_OFFSETS[place] as usize..][..MEMBER_LABEL_BYTES].to_vec()
            };
            member.as_ref().map(|bytes| MemberInfo {
                label: MemberLabel::newest(&copy(bytes, 0), &copy(bytes, 1)),
                bytes: bytes.len() as u64,
            })
        };
        let (members, others) = self.members.split_at(self.header.config.members);
        let members = members.iter().map(info).collect();
        let others = others.iter().map(|disk| info(disk).expect("it is there")).collect();
        let parts = VolumeParts { header: self.header.clone(), members, others, degraded };
        let config = EngineConfig {
            segment_buffers: 4,
            hot_blocks: false,
            no_log: self.no_log,
            accept_damage: self.accept_damage,
            bypass_threshold_bytes: self.bypass_threshold_bytes,
            scrub_every: self.scrub_every,
            spare_after: self.spare_after,
            volume_memory_bytes: self.volume_memory_bytes,
            limits: Limits { zero_ranges: self.zero_ranges_max, ..Limits::MOST },
            ..EngineConfig::default()
        };
        let memory = Engine::segment_memory_size(&superblock.geometry, &config);
        let engine = Engine::open_volume(
            self.now,
            superblock,
            self.cache_disk.len() as u64,
            parts,
            config,
            Box::new(Buffer::zeroed(memory)),
        )
        .unwrap();
        self.engine = Some(engine);
        if let Some(seconds) = self.calendar {
            self.engine.as_mut().unwrap().set_calendar(self.now, seconds);
        }
        self.input(Input::Timeout);
        // A large table is taken a part at a time.
        while *self.engine().phase() == Phase::Opening
            && let Some(at) = self.engine().next_wake_up()
            && at <= self.now.after(Duration::from_millis(1))
        {
            self.now = self.now.max(at);
            self.input(Input::Timeout);
        }
        self.engine.as_ref().unwrap().phase().clone()
    }

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    pub fn volume(&self) -> &Volume {
        self.engine().volume().unwrap()
    }

    pub fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let engine = self.engine.as_mut().unwrap();
            engine.handle_input(self.now, input);
            loop {
                match self.engine.as_mut().unwrap().poll_output() {
                    Output::Wait { .. } => break,
                    Output::KeepWindow { .. } => unreachable!("not on a volume"),
                    Output::Reply(reply) => {
                        self.replies.insert(reply.id.0, (reply.result, reply.buffer, reply.answer));
                    }
                    Output::Io(io) => {
                        let device = io.device;
                        let done = Input::IoDone(self.perform(io));
                        let is_new = self.is_new(device) || self.volume().is_growing();
                        if let Some(moments) = &mut self.moments
                            && (device == Device::CacheDisk || is_new)
                        {
                            moments.push((self.cache_disk.clone(), self.members.clone()));
                        }
                        match &mut self.held {
                            Some(held) if self.holds.contains(&device) => held.push(done),
                            _ => inputs.insert(0, done),
                        }
                    }
                }
            }
        }
    }

    /// Whether it is a disk that takes the place of a member.
    fn is_new(&self, device: Device) -> bool {
        matches!(device, Device::Member(slot) if usize::from(slot.0) >= self.header.config.members)
    }

    pub fn perform(&mut self, io: Io) -> IoDone {
        let memory = self.engine().segment_memory().to_vec();
        let disk = match io.device {
            Device::CacheDisk => {
                let range = range_of(&io.operation);
                let is_bad = range.start < self.bad_cache.end && self.bad_cache.start < range.end;
                if is_bad && matches!(io.operation, IoOperation::Read { .. }) {
                    return ended(io, Err(IoError::Failed));
                }
                &mut self.cache_disk
            }
            Device::DataDisk | Device::Leg(_) | Device::Witness | Device::Nvram => {
                unreachable!("there are members")
            }
            Device::Member(index) => {
                let index = usize::from(index.0);
                let Range { start, end } = range_of(&io.operation);
                let is_bad = match &io.operation {
                    IoOperation::Write { .. } => {
                        self.writes[index] += end - start;
                        self.bad.retain(|(m, at)| *m != index || !(start..end).contains(at));
                        false
                    }
                    IoOperation::Read { .. } => {
                        self.bad.range((index, start)..(index, end)).next().is_some()
                    }
                    IoOperation::Flush => self.unflushable[index],
                    IoOperation::WriteZeroes { .. } => false,
                };
                match &mut self.members[index] {
                    Some(disk) if !self.failing[index] && !is_bad => disk,
                    _ => return ended(io, Err(IoError::Failed)),
                }
            }
        };
        carry_out(io, &memory, disk)
    }

    pub fn ask(&mut self, operation: Operation) -> Answer {
        self.ask_with(operation, false)
    }

    pub fn ask_with(&mut self, operation: Operation, fua: bool) -> Answer {
        let id = self.submit(operation, fua);
        for _ in 0..100_000 {
            if let Some(reply) = self.replies.remove(&id) {
                return reply;
            }
            self.pass(Duration::from_millis(20));
        }
        panic!("no answer");
    }

    pub fn allocate(&mut self, near: Option<Lba>) -> Lba {
        let request = VolumeRequest::Allocate { near, attributes: Attributes::NONE };
        match self.volume_request(request) {
            Ok(Some(VolumeAnswer::Allocated(block))) => block,
            other => panic!("{other:?}"),
        }
    }

    pub fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.input(Input::Timeout);
    }

    /// Time passes, and the engine is told of it often enough.
    pub fn pass_in_steps(&mut self, time: Duration) {
        let end = self.now.after(time);
        while self.now < end {
            self.pass(Duration::from_millis(100));
        }
    }

    pub fn start_drain(&mut self) {
        self.start(Operation::Drain);
    }

    /// Asks for something that is perhaps not answered at once.
    pub fn start(&mut self, operation: Operation) -> u64 {
        self.submit(operation, false)
    }

    fn submit(&mut self, operation: Operation, fua: bool) -> u64 {
        let id = self.next;
        self.next += 1;
        self.input(Input::Request(Request { id: RequestId(id), operation, fua }));
        id
    }

    /// The volume after a crash without a member.
    pub fn without(&self, member: usize) -> Bench {
        let mut members = self.members.clone();
        members[member] = None;
        let mut bench = Bench {
            engine: None,
            cache_disk: self.cache_disk.clone(),
            members,
            failing: self.failing.clone(),
            unflushable: self.unflushable.clone(),
            bad: self.bad.clone(),
            header: self.header.clone(),
            now: self.now,
            next: 0,
            replies: BTreeMap::new(),
            writes: self.writes.clone(),
            no_log: self.no_log,
            accept_damage: self.accept_damage,
            bypass_threshold_bytes: self.bypass_threshold_bytes,
            scrub_every: self.scrub_every,
            spare_after: self.spare_after,
            volume_memory_bytes: self.volume_memory_bytes,
            zero_ranges_max: self.zero_ranges_max,
            bad_cache: self.bad_cache.clone(),
            calendar: self.calendar,
            held: None,
            moments: None,
            holds: self.holds.clone(),
        };
        bench.open(true);
        bench
    }

    pub fn write(&mut self, line: u64, value: u8) {
        let data = Buffer::copy_of(&[value; LINE_SIZE as usize]);
        let (result, ..) = self.ask(Operation::Write { start: Lba(line * 8), data });
        assert_eq!(result, Ok(()));
    }

    pub fn try_read(&mut self, line: u64) -> Result<u8, RequestError> {
        let range = LbaRange::new(line * 8, 8);
        let (result, buffer, _) = self.ask(read_into_used(range));
        result?;
        let buffer = buffer.unwrap();
        let first = buffer.bytes()[0];
        assert!(buffer.bytes().iter().all(|byte| *byte == first), "line {line} is mixed");
        Ok(first)
    }

    pub fn read(&mut self, line: u64) -> u8 {
        self.try_read(line).unwrap_or_else(|error| panic!("line {line}: {error}"))
    }

    /// In order; the engine is done with.
    pub fn close(&mut self) {
        assert_eq!(self.ask(Operation::Shutdown).0, Ok(()));
    }

    pub fn drain(&mut self) {
        assert_eq!(self.ask(Operation::Drain).0, Ok(()));
    }

    pub fn volume_request(
        &mut self,
        request: VolumeRequest,
    ) -> Result<Option<VolumeAnswer>, RequestError> {
        let (result, _, answer) = self.ask(Operation::Volume(request));
        result.map(|()| answer)
    }

    pub fn until_idle(&mut self) {
        for _ in 0..100_000 {
            if self.volume().is_idle() {
                return;
            }
            self.pass(Duration::from_millis(20));
        }
        panic!("the volume is never idle");
    }

    pub fn lines(&self) -> u64 {
        self.volume().config().logical_bytes / LINE_SIZE
    }

    /// The disks as they are, for a volume that is to grow where it lies last.
    pub fn growth(&self) -> Growth {
        let bytes = |member: &Option<Vec<u8>>| member.as_ref().map(|bytes| bytes.len() as u64);
        let count = self.volume().config().members;
        Growth {
            set: None,
            logical_bytes: None,
            member_bytes: self.members[..count].iter().map(bytes).collect(),
            cache_disk_bytes: self.cache_disk.len() as u64,
        }
    }

    /// All disks get larger by so much; what is new on members is not zero.
    pub fn enlarge(&mut self, cache_disk: u64, members: u64) {
        self.cache_disk.resize(self.cache_disk.len() + cache_disk as usize, 0xbb);
        for member in self.members.iter_mut().flatten() {
            member.resize(member.len() + members as usize, 0xee);
        }
    }

    /// Begins to grow, and waits until that is over.
    pub fn grow(&mut self, growth: &Growth) -> Result<GrowthEnd, GrowRefusal> {
        self.engine.as_mut().unwrap().grow_volume(growth)?;
        for _ in 0..10_000 {
            self.pass(Duration::from_millis(20));
            if let Err(end) = self.volume().growth_status().unwrap().state {
                return Ok(end);
            }
        }
        panic!("it grows for ever: {:?}", self.volume().growth_status());
    }
}

/// Spread over all of it, some adjacent.
pub fn fill(bench: &mut Bench, round: u8) -> Vec<(u64, u8)> {
    let lines = bench.lines();
    let mut written = BTreeMap::new();
    for i in 0..300u64 {
        let line = (i / 3 * 7919 * 3 + i % 3) % lines;
        let value = (i as u8).wrapping_mul(31).wrapping_add(round) | 1;
        bench.write(line, value);
        written.insert(line, value);
    }
    written.into_iter().collect()
}

#[track_caller]
pub fn check(bench: &mut Bench, written: &[(u64, u8)]) {
    for (line, value) in written {
        assert_eq!(bench.read(*line), *value, "line {line}");
    }
}
