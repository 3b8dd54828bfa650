//! Whole caches in memory: made by the engine itself, then changed by a small program that puts
//! the checksums right again, so that the changes are believed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use dcd_engine::create::{CreateOptions, create};
use dcd_engine::format::checkpoint::{self, Checkpoint};
use dcd_engine::format::checksum::crc32c;
use dcd_engine::format::copy_page;
use dcd_engine::format::end_mark::END_MARK_BYTES;
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::record::{self, Record};
use dcd_engine::format::superblock::{self, SUPERBLOCK_SIZE};
use dcd_engine::log::control::CONTROL_SIZE;
use dcd_engine::units::CopyPageIndex;
use dcd_engine::{
    AckMode, Buffer, DataDiskInfo, Device, Engine, EngineConfig, Geometry, Input, Io, Lba,
    LbaRange, NewSequence, OpenError, Operation, Output, Phase, Reply, Request, RequestId,
    SequenceRequest, Superblock, Time,
};
use dcd_testkit::{Bytes, carry_out, settle};

use crate::decoders::{UUID, field, put_checksum};
use crate::input::Input as Program;

const LINE: usize = 4096;
/// Lines of the data-disk, 2 MiB.
pub(crate) const DATA_LINES: u64 = 512;
/// The two copies of the mark of the open record, in the first page of the segment memory.
const MARKS: [Range<usize>; 2] = [64..112, 128..176];

/// A cache at rest.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) cache_disk: Vec<u8>,
    data_disk: &'static [u8],
    pub(crate) memory: Vec<u8>,
    geometry: Geometry,
    /// Places of the record headers on the cache-disk, in the order of their numbers.
    records: Vec<usize>,
}

/// The engine's settings for every image.
pub(crate) fn config(ack: AckMode) -> EngineConfig {
    EngineConfig { ack, segment_buffers: 3, ..EngineConfig::default() }
}

fn geometry(copy_pages: u32) -> Geometry {
    let fit = |part: u64| Geometry::fit_with_copies(part * (64 << 10), 64 << 10, copy_pages).ok();
    (1..).find_map(fit).expect("a smallest cache")
}

pub(crate) fn data_disk_info() -> DataDiskInfo {
    DataDiskInfo { blocks: DATA_LINES * 8, logical_block_size: 512, physical_sector_size: 512 }
}

/// The images that are mutated; each ends in another state.
pub(crate) fn base_images() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    IMAGES.get_or_init(|| (0..BASES).map(build).collect())
}

/// How many there are.
pub(crate) const BASES: usize = 6;

/// 0: in use, records of every kind, the last one open in memory; 1: closed in order, dirty; 2: in
/// use, several segments long; 3: detached after use; 4: new; 5: in use, with a read area that
/// holds a sequence and hot blocks.
fn build(which: usize) -> Image {
    let geometry = geometry(if which == 5 { 2 } else { 0 });
    let mut cache_disk = vec![0; geometry.end() as usize + END_MARK_BYTES];
    for (offset, bytes) in create(CreateOptions {
        uuid: UUID,
        geometry,
        data_disk: data_disk_info(),
        data_disk_serial: "WD-1".to_owned(),
        volume: None,
        created_unix_seconds: 1_700_000_000,
        data_offset_bytes: 0,
        has_end_mark: true,
        has_legs: false,
    }) {
        let at = offset as usize;
        cache_disk[at..at + bytes.len()].copy_from_slice(bytes.bytes());
    }
    static EMPTY: [u8; DATA_LINES as usize * LINE] = [0; DATA_LINES as usize * LINE];
    let memory = vec![0; Engine::segment_memory_size(&geometry, &config(AckMode::Memory))];
    let image = Image { cache_disk, data_disk: &EMPTY, memory, geometry, records: Vec::new() };
    if which == 4 {
        return image.with_records();
    }

    // The first session leaves a checkpoint with live slots, zeroes and witnesses behind.
    let mut machine = Machine::open(image, config(AckMode::Durable)).expect("a new cache opens");
    let line = |n: u64| Lba(n * 8);
    for n in 0..20 {
        machine.write(line(n * 7 % DATA_LINES), 4096, n as u8);
    }
    machine.submit(Operation::WriteZeroes { range: LbaRange::new(8 * 200, 80), may_unmap: true });
    if which == 5 {
        machine.submit(Operation::Drain);
        machine.submit(Operation::Sequence(SequenceRequest::Store(Box::new(NewSequence {
            name: "start".to_owned(),
            ranges: [300, 20, 7, 140, 141, 142].map(|line| LbaRange::new(line * 8, 8)).to_vec(),
            occurrences: 0,
            is_detected: false,
        }))));
        for n in [50, 250, 450, 50] {
            machine.submit(Operation::read(LbaRange::new(n * 8, 8)));
        }
        machine.rest();
        assert_eq!(machine.engine.copy_counts().stale, 0);
        assert_eq!(machine.engine.copy_counts().valid, 9);
    }
    machine.submit(if which == 3 { Operation::Detach } else { Operation::Shutdown });
    if matches!(which, 1 | 3) {
        return machine.stop().with_records();
    }

    // The second one dies.
    let ack = if which == 0 { AckMode::Memory } else { AckMode::Durable };
    let mut machine = Machine::open(machine.stop(), config(ack)).expect("a closed cache opens");
    if which == 0 {
        machine.write(line(7), 4096, 50);
        machine.write(Lba(7 * 8 + 3), 512, 51);
        machine.write(Lba(100), 5 * 4096, 52);
        machine.submit(Operation::Discard { range: LbaRange::new(8 * 300, 16) });
        machine.write(line(400), 64 << 10, 53);
        machine.submit(Operation::Flush);
        machine.write(line(64), 1 << 20, 54); // past the log
        machine.write(line(3), 4096, 55);
        machine.submit(Operation::Flush);
        machine.write(line(4), 4096, 56); // only in memory
        machine.write(Lba(41), 1024, 57);
    } else {
        for n in 0..40 {
            machine.write(line(n * 11 % DATA_LINES), 8192, n as u8);
        }
    }
    machine.stop().with_records()
}

impl Image {
    /// Whether the last process died and its memory is still there.
    pub(crate) fn forget_memory(&mut self) {
        self.memory.fill(0);
    }

    fn with_records(mut self) -> Image {
        let start = self.geometry.segments_offset as usize;
        let slots = (start..self.geometry.read_area_offset() as usize).step_by(LINE);
        let mut records: Vec<(u64, usize)> = slots
            .filter_map(|at| Some((Record::decode(&self.cache_disk[at..]).ok()?, at)))
            .map(|(record, at)| (record.header.number.0, at))
            .collect();
        records.sort_unstable();
        self.records = records.into_iter().map(|(_, at)| at).collect();
        self
    }

    /// Runs a program that changes the disk. Its first byte says what is put right afterwards:
    ///
    /// ```text
    /// bit 0   every checksum of superblocks, checkpoints, record headers and copy pages
    /// bit 1   each record repeats the checksum of the one before
    /// bit 2   entries have the checksums of their slots
    /// ```
    pub(crate) fn change_disk(&mut self, program: &mut Program) {
        let repairs = program.u8();
        let geometry = self.geometry;
        let mut places: Vec<Range<usize>> = SUPERBLOCK_OFFSETS
            .iter()
            .map(|at| *at as usize..*at as usize + SUPERBLOCK_SIZE)
            .chain(geometry.checkpoint_offsets.iter().flat_map(|at| {
                let header = *at as usize..*at as usize + LINE;
                // As much of the payload as a small checkpoint fills.
                [header.clone(), header.end..header.end + LINE]
            }))
            .collect();
        places.extend(self.records.iter().map(|at| *at..at + LINE));
        let pages = self.copy_pages();
        places.extend(pages.iter().map(|at| *at..at + LINE));
        let segments = geometry.segments_offset as usize;
        places.push(segments..self.cache_disk.len());
        change(&mut self.cache_disk, &places, program);
        if repairs & 1 == 0 {
            return;
        }
        self.repair_records(repairs);
        for place in &places[..2] {
            put_checksum(&mut self.cache_disk[place.clone()], &superblock::layout());
        }
        for at in pages {
            put_checksum(&mut self.cache_disk[at..at + LINE], &copy_page::layout());
        }
        for place in [&places[2], &places[4]] {
            self.repair_checkpoint(place.start);
            self.name_copy_pages(place.start);
        }
    }

    /// Both places of each copy page.
    fn copy_pages(&self) -> Vec<usize> {
        let places = (0..self.geometry.copy_pages)
            .flat_map(|page| [0, 1].map(|generation| (CopyPageIndex(page), generation)));
        let offset = |(page, generation)| self.geometry.copy_page_offset(page, generation) as usize;
        places.map(offset).collect()
    }

    /// The checkpoint names the copy pages as they are now.
    fn name_copy_pages(&mut self, at: usize) {
        let Ok(mut checkpoint) = Checkpoint::decode(&self.cache_disk[at..], UUID, &self.geometry)
        else {
            return;
        };
        for named in &mut checkpoint.copy_pages {
            let page = self.geometry.copy_page_offset(named.page, named.generation) as usize;
            let checksum = page + field(&copy_page::layout(), "checksum").start;
            let bytes = self.cache_disk[checksum..][..4].try_into().expect("four bytes");
            named.checksum = u32::from_le_bytes(bytes);
        }
        let bytes = checkpoint.encode();
        self.cache_disk[at..at + bytes.len()].copy_from_slice(bytes.bytes());
    }

    fn repair_records(&mut self, repairs: u8) {
        let layout = record::layout();
        let (previous, checksum) =
            (field(&layout, "previous_checksum"), field(&layout, "checksum"));
        let (entries, table) = (field(&layout, "entries"), field(&layout, "table").start);
        let mut before: Option<[u8; 4]> = None;
        for at in self.records.clone() {
            let (header, data) = self.cache_disk[at..].split_at_mut(LINE);
            if repairs & 2 != 0
                && let Some(before) = before
            {
                header[previous.clone()].copy_from_slice(&before);
            }
            if repairs & 4 != 0 {
                let count = u16::from_le_bytes([header[entries.start], header[entries.start + 1]]);
                let count = usize::from(count).min(record::ENTRIES_MAX);
                let mut slots = data.chunks(LINE);
                for entry in header[table..table + count * 16].chunks_mut(16) {
                    if entry[7] == 1
                        && let Some(slot) = slots.next()
                    {
                        entry[8..12].copy_from_slice(&crc32c(slot).to_le_bytes());
                    }
                }
            }
            put_checksum(header, &layout);
            before = header[checksum.clone()].try_into().ok();
        }
    }

    fn repair_checkpoint(&mut self, at: usize) {
        let layout = checkpoint::layout();
        let (header, payload) = self.cache_disk[at..].split_at_mut(LINE);
        put_checksum(header, &layout);
        // The decoder itself says how long the payload is; if it refuses, nothing needs it.
        if let Ok(found) = Checkpoint::decode_header(header, UUID, &self.geometry)
            && let Some(payload) = payload.get(..found.payload_bytes as usize)
        {
            let place = field(&layout, "payload_checksum");
            header[place].copy_from_slice(&crc32c(payload).to_le_bytes());
            put_checksum(header, &layout);
        }
    }

    /// The same for the segment memory: bit 0 repairs the marks, bit 1 the checksums of the entries
    /// they speak of, bit 2 sealed record headers.
    pub(crate) fn change_memory(&mut self, program: &mut Program) {
        let repairs = program.u8();
        let mut headers = Vec::new();
        for at in (CONTROL_SIZE..self.memory.len()).step_by(LINE) {
            if self.memory[at..].starts_with(&record::MAGIC.to_le_bytes()) {
                headers.push((at, Record::decode(&self.memory[at..]).is_ok()));
            }
        }
        let mut places = MARKS.to_vec();
        places.push(0..CONTROL_SIZE);
        places.extend(headers.iter().map(|(at, _)| *at..at + LINE));
        places.push(CONTROL_SIZE..self.memory.len());
        change(&mut self.memory, &places, program);
        if repairs & 4 != 0 {
            for (at, _) in headers.iter().filter(|(_, is_sealed)| *is_sealed) {
                put_checksum(&mut self.memory[*at..at + LINE], &record::layout());
            }
        }
        for mark in MARKS {
            let word = |memory: &[u8], at: usize| {
                let bytes = memory[mark.start + at..][..4].try_into().expect("four bytes");
                u32::from_le_bytes(bytes) as usize
            };
            // Places as in `OpenMarkInMemory`: buffer 16, header slot 20, entries 24, their
            // checksum 28, checksum of all that 40.
            if repairs & 2 != 0 {
                let (buffer, slot) = (word(&self.memory, 16), word(&self.memory, 20));
                let segment = self.geometry.segment_size_bytes as usize;
                let at = buffer
                    .saturating_mul(segment)
                    .saturating_add(slot.saturating_mul(LINE))
                    .saturating_add(CONTROL_SIZE + field(&record::layout(), "table").start);
                let length = word(&self.memory, 24).saturating_mul(16);
                if let Some(entries) = self.memory.get(at..at.saturating_add(length)) {
                    let checksum = crc32c(entries).to_le_bytes();
                    self.memory[mark.start + 28..mark.start + 32].copy_from_slice(&checksum);
                }
            }
            if repairs & 1 != 0 {
                let checksum = crc32c(&self.memory[mark.start..mark.start + 40]).to_le_bytes();
                self.memory[mark.start + 40..mark.start + 44].copy_from_slice(&checksum);
            }
        }
    }
}

/// The steps of a program, at most 64: which place, where in it, what happens there.
pub(crate) fn change(bytes: &mut [u8], places: &[Range<usize>], program: &mut Program) {
    for _ in 0..64 {
        if program.is_empty() {
            return;
        }
        let place = places[usize::from(program.u8()) % places.len()].clone();
        let how = program.u8();
        let width = [1, 2, 4, 8][usize::from(how & 3)];
        let at = place.start + usize::from(program.u16()) % (place.len() - width + 1);
        let there = &mut bytes[at..at + width];
        let mut word = [0; 8];
        word[..width].copy_from_slice(there);
        let old = u64::from_le_bytes(word);
        let new = match how >> 2 & 7 {
            0 => program.u64(),
            1 => old.wrapping_add(1),
            2 => old.wrapping_sub(1),
            3 => old ^ 1 << (program.u8() & 63),
            4 => 0,
            5 => u64::MAX,
            6 => u64::from(program.u16()),
            // A whole place on another one: stale and repeated structures.
            _ => {
                let from = places[usize::from(program.u8()) % places.len()].clone();
                let length = from.len().min(place.len()).min(LINE);
                bytes.copy_within(from.start..from.start + length, place.start);
                continue;
            }
        };
        there.copy_from_slice(&new.to_le_bytes()[..width]);
    }
}

/// A disk whose writes lie over what it was.
#[derive(Default)]
pub(crate) struct Disk {
    written: BTreeMap<u64, Box<[u8; LINE]>>,
}

impl Disk {
    /// The disk, above what it was.
    pub(crate) fn over<'a>(&'a mut self, base: &'a [u8]) -> Over<'a> {
        Over { disk: self, base }
    }

    fn read(&self, base: &[u8], offset: u64, to: &mut [u8]) {
        to.copy_from_slice(&base[offset as usize..][..to.len()]);
        let end = offset + to.len() as u64;
        let first = offset / LINE as u64;
        for (page, bytes) in self.written.range(first..end.div_ceil(LINE as u64)) {
            let page = page * LINE as u64;
            let (from, until) = (page.max(offset), (page + LINE as u64).min(end));
            to[(from - offset) as usize..(until - offset) as usize]
                .copy_from_slice(&bytes[(from - page) as usize..(until - page) as usize]);
        }
    }

    fn write(&mut self, base: &[u8], offset: u64, mut from: &[u8]) {
        let mut at = offset;
        while !from.is_empty() {
            let within = (at % LINE as u64) as usize;
            let length = from.len().min(LINE - within);
            let page = self.written.entry(at / LINE as u64).or_insert_with(|| {
                let start = at as usize - within;
                Box::new(std::array::from_fn(|i| base.get(start + i).copied().unwrap_or(0)))
            });
            page[within..within + length].copy_from_slice(&from[..length]);
            from = &from[length..];
            at += length as u64;
        }
    }

    /// Writes what was written to `base`.
    pub(crate) fn put_on(self, base: &mut [u8]) {
        for (page, bytes) in self.written {
            base[page as usize * LINE..][..LINE].copy_from_slice(&*bytes);
        }
    }
}

/// See [`Disk::over`].
pub(crate) struct Over<'a> {
    disk: &'a mut Disk,
    base: &'a [u8],
}

impl Over<'_> {
    fn assert_within(&self, offset: u64, length: u64) {
        let end = offset.checked_add(length);
        let fits = end.is_some_and(|end| end <= self.base.len() as u64);
        assert!(fits, "{length} bytes at {offset} of {}", self.base.len());
    }
}

impl Bytes for Over<'_> {
    fn read(&mut self, offset: u64, to: &mut [u8]) {
        self.assert_within(offset, to.len() as u64);
        self.disk.read(self.base, offset, to);
    }

    fn write(&mut self, offset: u64, from: &[u8], _is_durable: bool) {
        self.assert_within(offset, from.len() as u64);
        self.disk.write(self.base, offset, from);
    }
}

/// An engine on the two disks of an image; every I/O ends at once.
pub(crate) struct Machine {
    pub(crate) engine: Engine,
    image: Image,
    cache_disk: Disk,
    data_disk: Disk,
    now: Time,
    ios: u32,
    requests: u64,
    pub(crate) replies: Vec<Reply>,
}

/// No conversation of a target needs nearly as many; an engine that goes on for ever passes it.
const IOS_MAX: u32 = 20_000;
/// Recovery of so small a cache has to do with less.
const RECOVERY_IOS_MAX: u32 = 2_000;

impl Machine {
    /// Opens the cache; the error is that of the superblock or of the engine.
    pub(crate) fn open(image: Image, config: EngineConfig) -> Result<Machine, OpenError> {
        let copy = |at: u64| &image.cache_disk[at as usize..][..SUPERBLOCK_SIZE];
        let superblock =
            Superblock::newest(copy(SUPERBLOCK_OFFSETS[0]), copy(SUPERBLOCK_OFFSETS[1]))
                .map_err(OpenError::Format)?;
        // The daemon refuses memory of another size before it comes to the engine.
        let size = Engine::segment_memory_size(&superblock.geometry, &config);
        assert!(size <= 4096 + config.segment_buffers as usize * (4 << 20));
        let mut memory = Buffer::zeroed(size);
        if size == image.memory.len() {
            memory.bytes_mut().copy_from_slice(&image.memory);
        }
        let engine = Engine::open(
            Time::ZERO,
            superblock,
            image.cache_disk.len() as u64,
            data_disk_info(),
            config,
            Box::new(memory),
        )?;
        let mut machine = Machine {
            engine,
            image,
            cache_disk: Disk::default(),
            data_disk: Disk::default(),
            now: Time::ZERO,
            ios: 0,
            requests: 0,
            replies: Vec::new(),
        };
        machine.input(Input::Timeout);
        assert!(machine.ios <= RECOVERY_IOS_MAX, "recovery took {} I/Os", machine.ios);
        match machine.engine.phase() {
            Phase::Running => Ok(machine),
            Phase::Failed(error) => Err(error.clone()),
            phase => panic!("recovery got stuck: {phase:?}"),
        }
    }

    /// The disks and the memory as they are now, as after a `kill -9`.
    pub(crate) fn stop(self) -> Image {
        let Machine { engine, mut image, cache_disk, data_disk, .. } = self;
        cache_disk.put_on(&mut image.cache_disk);
        if !data_disk.written.is_empty() {
            let mut data = image.data_disk.to_vec();
            data_disk.put_on(&mut data);
            // Base images are few and live as long as the process. Others are not stopped twice.
            image.data_disk = data.leak();
        }
        image.memory.copy_from_slice(engine.segment_memory());
        image
    }

    /// Gives a request, and goes on until the engine waits.
    pub(crate) fn submit(&mut self, operation: Operation) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        let request = Request { id, operation, fua: false };
        self.input(Input::Request(request));
        id
    }

    fn write(&mut self, start: Lba, bytes: usize, fill: u8) {
        let mut data = Buffer::zeroed(bytes);
        data.bytes_mut().fill(fill);
        self.submit(Operation::Write { start, data });
    }

    /// Lets time pass until nothing is left to do.
    fn rest(&mut self) {
        while let Output::Wait { until: Some(until) } = self.engine.poll_output() {
            self.now = self.now.max(until);
            self.input(Input::Timeout);
        }
    }

    /// Lets time pass until `id` is answered.
    pub(crate) fn wait_for(&mut self, id: RequestId) -> &Reply {
        for _ in 0..1_000 {
            if let Some(index) = self.replies.iter().position(|reply| reply.id == id) {
                return &self.replies[index];
            }
            let Output::Wait { until: Some(until) } = self.engine.poll_output() else {
                let status = self.engine.status();
                panic!("no answer to {id:?}, and nothing is waited for: {status:?}");
            };
            self.now = self.now.max(until);
            self.input(Input::Timeout);
        }
        panic!("no answer to {id:?} in a thousand steps");
    }

    fn input(&mut self, input: Input) {
        let Machine { engine, image, cache_disk, data_disk, ios, replies, .. } = self;
        let carry_out = |io: Io, memory: &[u8]| {
            *ios += 1;
            assert!(*ios <= IOS_MAX, "the engine does not come to rest: {io:?}");
            let mut disk = match io.device {
                Device::CacheDisk => cache_disk.over(&image.cache_disk),
                Device::DataDisk => data_disk.over(image.data_disk),
                Device::Member(_) | Device::Leg(_) | Device::Witness | Device::Nvram => {
                    unreachable!("one of each")
                }
            };
            carry_out(io, memory, &mut disk)
        };
        settle(engine, self.now, input, carry_out, |reply| replies.push(reply));
    }
}
