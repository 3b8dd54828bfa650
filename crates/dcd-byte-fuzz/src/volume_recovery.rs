//! Recovery of volumes. A volume that the engine has made is changed where its tables are: headers,
//! roots, pages, the journal, labels of members. Then checksums are put right, so that the changes
//! are believed, and it is opened. As for caches without a volume (`recovery.rs`), it must run and
//! work, or say why not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use dcd_engine::create::{CreateOptions, create};
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::{self, SUPERBLOCK_SIZE};
use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::attributes::{AttributeChange, Attributes};
use dcd_engine::volume::config::{SetConfig, VolumeConfig};
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::format::header::{self, VolumeHeader};
use dcd_engine::volume::format::journal;
use dcd_engine::volume::format::label::{self, LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel};
use dcd_engine::volume::format::page::{self, PAGE_BYTES, PageIndex};
use dcd_engine::volume::format::page_map;
use dcd_engine::volume::format::root::{self, Root};
use dcd_engine::volume::members::MemberInfo;
use dcd_engine::volume::placement::{DeviceClass, Placement, RaidLevel};
use dcd_engine::volume::{Volume, VolumeParts};
use dcd_engine::{
    AckMode, Buffer, Device, Engine, EngineConfig, Geometry, Input, Io, IoDone, IoError, Lba,
    LbaRange, OpenError, Operation, Output, Phase, Reply, Request, RequestId, Superblock, Time,
    VolumeRequest,
};
use dcd_testkit::{carry_out, settle};

use crate::decoders::{UUID, put_checksum};
use crate::image::{self, Disk, change};
use crate::input::Input as Program;

const LINE: usize = LINE_SIZE as usize;
const MEMBERS: usize = 4;
/// Lines of the journal that are changed; records begin at the first.
const JOURNAL_LINES: u64 = 24;
/// Records that more than fill half of the journal, a line each at least.
const RECORDS: usize = 150;
/// Ends of the engine's way to rest.
const IOS_MAX: u32 = 200_000;

/// A volume at rest.
#[derive(Clone)]
pub(crate) struct VolumeImage {
    pub(crate) cache_disk: Vec<u8>,
    pub(crate) members: [&'static [u8]; MEMBERS],
    pub(crate) labels: Vec<Vec<u8>>,
    pub(crate) memory: Vec<u8>,
    pub(crate) area: VolumeArea,
}

fn settings() -> EngineConfig {
    EngineConfig { hot_blocks: false, ..image::config(AckMode::Durable) }
}

fn set(level: RaidLevel, copies: u32, place: u64) -> SetConfig {
    SetConfig {
        level,
        class: DeviceClass::Slow,
        members: (0..MEMBERS as u8).map(MemberIndex).collect(),
        stripe_unit_bytes: 16 << 10,
        copies,
        member_offset_bytes: (1 << 20) + place * (512 << 10),
        member_bytes: 512 << 10,
    }
}

fn volume_config(which: usize) -> VolumeConfig {
    let sets = match which {
        0 | WITH_TWIN => vec![
            set(RaidLevel::Raid1, 2, 0),
            set(RaidLevel::Raid5, 1, 1),
            set(RaidLevel::Raid0, 1, 2),
        ],
        _ => vec![set(RaidLevel::Raid5, 1, 0)],
    };
    let mut config = VolumeConfig {
        members: MEMBERS,
        temporary_bytes: if which != 1 { 256 << 10 } else { 0 },
        sets,
        extent_bytes: 16 << 10,
        logical_bytes: 0,
        selective_caching: false,
        twin_region_pages: u32::from(which == WITH_TWIN),
        migrate_bytes_per_second_max: 0,
        placement: Placement::default(),
    };
    config.logical_bytes = config.capacity_bytes() - config.temporary_bytes;
    config
}

/// The images that are mutated. 0: three sets, closed in order, all in its pages; 1: one set, in
/// use, its journal holds more.
pub(crate) fn base_images() -> &'static [VolumeImage] {
    static IMAGES: OnceLock<Vec<VolumeImage>> = OnceLock::new();
    IMAGES.get_or_init(|| (0..BASES).map(build).collect())
}

/// How many there are.
pub(crate) const BASES: usize = 2;
/// And one with a twin of its tables on members 0 and 1.
const WITH_TWIN: usize = 2;

/// That one, and what it is made of.
pub(crate) fn image_with_twin() -> (VolumeImage, VolumeHeader) {
    (build(WITH_TWIN), header_of(WITH_TWIN))
}

fn header_of(which: usize) -> VolumeHeader {
    let config = volume_config(which);
    VolumeHeader { uuid: UUID, config, pointers_max: 1000, journal_bytes: 1 << 20 }
}

fn build(which: usize) -> VolumeImage {
    let geometry = Geometry::fit(2 << 20, 64 << 10).expect("it is large enough");
    let header = header_of(which);
    let area = VolumeArea::of(&header, geometry.end()).expect("it is small");
    let mut cache_disk = vec![0; (geometry.end() + area.bytes()) as usize];
    for (offset, bytes) in create(CreateOptions {
        uuid: UUID,
        geometry,
        data_disk: Volume::data_disk_info(&header.config),
        data_disk_serial: String::new(),
        created_unix_seconds: 0,
        data_offset_bytes: 0,
        has_end_mark: false,
        has_legs: false,
        volume: Some(header),
    }) {
        cache_disk[offset as usize..][..bytes.len()].copy_from_slice(bytes.bytes());
    }
    static EMPTY: [u8; 5 << 20] = [0; 5 << 20];
    let label = |member| {
        let label = MemberLabel::first(UUID, MemberIndex(member)).encode();
        let mut head = vec![0; LABEL_OFFSETS[1] as usize + MEMBER_LABEL_BYTES];
        head[..label.len()].copy_from_slice(label.bytes());
        head
    };
    let image = VolumeImage {
        cache_disk,
        members: [&EMPTY; MEMBERS],
        labels: (0..MEMBERS as u8).map(label).collect(),
        memory: vec![0; Engine::segment_memory_size(&geometry, &settings())],
        area,
    };
    let mut machine = VolumeMachine::open(image, settings(), false).expect("a new volume opens");
    for n in 0..40 {
        machine.write(n * 13 % 200, n as u8 + 1);
    }
    machine.ask(Operation::Drain);
    // Pages are written when half of the journal is full, and not before.
    let changes =
        [(Attributes::IMPORTANT, Attributes::NONE), (Attributes::NONE, Attributes::IMPORTANT)];
    for n in 0..RECORDS {
        let (set, clear) = changes[n / 16 % 2];
        let ranges = vec![LbaRange::new(n as u64 * 32 % 512, 32)];
        let change = AttributeChange { set, clear };
        machine.ask(Operation::Volume(VolumeRequest::SetAttributes { ranges, change }));
    }
    machine.ask(Operation::Shutdown);
    if which != 1 {
        return machine.stop();
    }
    let mut machine =
        VolumeMachine::open(machine.stop(), settings(), false).expect("a closed volume opens");
    for n in 0..20 {
        machine.write(n * 7 % 300, n as u8 + 100);
    }
    machine.ask(Operation::Drain);
    machine.stop()
}

impl VolumeImage {
    /// Runs a program that changes it. Its first byte says what is put right afterwards:
    ///
    /// ```text
    /// bit 0   every checksum of superblocks, headers, roots, pages, records of the journal and labels
    /// bit 1   the newest root and its map have the checksums of the pages that they name
    /// ```
    pub(crate) fn change(&mut self, program: &mut Program) {
        let repairs = program.u8();
        let places = self.places();
        change(&mut self.cache_disk, &places, program);
        // Labels are changed by what is left of the program behind 64 steps; mostly they are not.
        for head in &mut self.labels {
            let label = 0..MEMBER_LABEL_BYTES;
            change(head, std::slice::from_ref(&label), program);
            if repairs & 1 != 0 {
                put_checksum(&mut head[label], &label::layout());
            }
        }
        if repairs & 1 != 0 {
            for at in SUPERBLOCK_OFFSETS {
                let place = at as usize..at as usize + SUPERBLOCK_SIZE;
                put_checksum(&mut self.cache_disk[place], &superblock::layout());
            }
            for at in self.area.header_offsets() {
                put_checksum(self.line(at), &header::layout());
            }
            for page in 0..self.area.pages() as u32 {
                for second in [false, true] {
                    let at = self.area.page_offset(PageIndex(page), second);
                    if self.line(at).starts_with(&page::MAGIC.to_le_bytes()) {
                        put_checksum(self.line(at), &page::layout());
                    }
                }
            }
            for line in 0..JOURNAL_LINES {
                let at = self.area.journal_offset() + line * LINE_SIZE;
                if self.line(at).starts_with(&journal::MAGIC.to_le_bytes()) {
                    put_checksum(self.line(at), &journal::layout());
                }
            }
            for checkpoint in [0, 1] {
                put_checksum(self.line(self.area.root_offset(checkpoint)), &root::layout());
            }
        }
        if repairs & 2 != 0 {
            self.put_checksums_of_pages();
        }
    }

    fn line(&mut self, at: u64) -> &mut [u8] {
        &mut self.cache_disk[at as usize..][..LINE]
    }

    fn places(&self) -> Vec<Range<usize>> {
        let area = &self.area;
        let pages = (0..area.pages() as u32)
            .flat_map(|page| [false, true].map(|second| area.page_offset(PageIndex(page), second)));
        let journal = (0..JOURNAL_LINES).map(|line| area.journal_offset() + line * LINE_SIZE);
        area.header_offsets()
            .into_iter()
            .chain([area.root_offset(0), area.root_offset(1)])
            .chain(SUPERBLOCK_OFFSETS)
            .chain(pages)
            .chain(journal)
            .map(|at| at as usize..at as usize + LINE)
            .collect()
    }

    /// Where a page is among the places that are changed, of two the newer one.
    pub(crate) fn place_of_page(&self, page: u32) -> Option<u8> {
        let found = [false, true].map(|second| self.page_at(page, second));
        let second = found[1] > found[0];
        found[usize::from(second)]?;
        u8::try_from(6 + 2 * page as usize + usize::from(second)).ok()
    }

    /// The checkpoint of a page, if one is there.
    pub(crate) fn page_at(&self, page: u32, second: bool) -> Option<u64> {
        let at = self.area.page_offset(PageIndex(page), second) as usize;
        let bytes = &self.cache_disk[at..][..PAGE_BYTES];
        page::decode(bytes, UUID, PageIndex(page)).ok().map(|(checkpoint, _)| checkpoint)
    }

    /// From the lowest pages to the root: what names a page gets the checksum that it has.
    fn put_checksums_of_pages(&mut self) {
        let offset =
            |area: &VolumeArea, page: u32, second| area.page_offset(PageIndex(page), second);
        for page in (0..self.area.pages() as u32).rev() {
            let children = self.area.children(PageIndex(page));
            for second in [false, true].into_iter().filter(|_| !children.is_empty()) {
                let at = offset(&self.area, page, second);
                let Ok((checkpoint, content)) = page::decode(self.line(at), UUID, PageIndex(page))
                else {
                    continue;
                };
                let mut copies: Vec<_> = page_map::decode(content).collect();
                for (child, copy) in children.clone().zip(&mut copies) {
                    let Some(copy) = copy else { continue };
                    copy.checksum =
                        page::checksum_of(self.line(offset(&self.area, child, copy.second)));
                }
                let content = page_map::encode(copies.into_iter());
                let bytes = page::encode(UUID, PageIndex(page), checkpoint, &content);
                self.line(at).copy_from_slice(bytes.bytes());
            }
        }
        for place in [0, 1] {
            let at = self.area.root_offset(place);
            let Ok(mut root) = Root::decode(self.line(at), UUID) else { continue };
            if let Some(map) = &mut root.map {
                let top = offset(&self.area, 0, map.second);
                map.checksum = page::checksum_of(self.line(top));
            }
            let bytes = root.encode();
            self.line(at)[..bytes.len()].copy_from_slice(bytes.bytes());
        }
    }
}

/// The first byte: which image (bit 0), whether a member is missing (2), whether damage is accepted
/// (4), whether missing members are (8). Then what [`VolumeImage::change`] takes.
pub(crate) fn run(input: &[u8]) {
    let _ = open_and_work(input);
}

/// What became of the opening.
pub(crate) fn open_and_work(input: &[u8]) -> Result<(), OpenError> {
    let mut program = Program(input);
    let how = program.u8();
    let mut image = base_images()[usize::from(how & 1)].clone();
    image.change(&mut program);
    if how & 2 != 0 {
        image.labels[2].clear();
    }
    let config = EngineConfig { accept_damage: how & 4 != 0, ..settings() };
    let mut machine = match VolumeMachine::open(image, config, how & 8 != 0) {
        Ok(machine) => machine,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return Err(error);
        }
    };
    machine.engine.check_invariants();
    let blocks = machine.engine.volume().expect("it has one").config().logical_bytes / 512;
    for start in (0..blocks).step_by(256) {
        machine.ask(Operation::read(LbaRange::new(start, 256.min(blocks - start))));
    }
    for n in 0..10 {
        machine.write(n * 29 % 300, n as u8);
    }
    machine.ask(Operation::Drain);
    machine.engine.check_invariants();
    machine.ask(Operation::Shutdown);
    Ok(())
}

/// An engine on the disks of a volume; every I/O ends at once.
struct VolumeMachine {
    engine: Engine,
    image: VolumeImage,
    cache_disk: Disk,
    members: Vec<Disk>,
    now: Time,
    ios: u32,
    requests: u64,
    replies: BTreeMap<u64, Reply>,
}

impl VolumeMachine {
    fn open(
        image: VolumeImage,
        config: EngineConfig,
        degraded: bool,
    ) -> Result<VolumeMachine, OpenError> {
        let copy = |at: u64| &image.cache_disk[at as usize..][..SUPERBLOCK_SIZE];
        let [first, second] = SUPERBLOCK_OFFSETS.map(copy);
        let superblock = Superblock::newest(first, second).map_err(OpenError::Format)?;
        let [first, second] = image.area.header_offsets().map(copy);
        let header = VolumeHeader::decode(first).or_else(|_| VolumeHeader::decode(second));
        let header = header.map_err(OpenError::Format)?;
        let info = |head: &Vec<u8>| {
            let [first, second] = LABEL_OFFSETS.map(|at| head.get(at as usize..).unwrap_or(&[]));
            (!head.is_empty())
                .then(|| MemberInfo { label: MemberLabel::newest(first, second), bytes: 5 << 20 })
        };
        let members = image.labels.iter().map(info).collect();
        let size = Engine::segment_memory_size(&superblock.geometry, &config);
        let mut memory = Buffer::zeroed(size);
        if size == image.memory.len() {
            memory.bytes_mut().copy_from_slice(&image.memory);
        }
        let engine = Engine::open_volume(
            Time::ZERO,
            superblock,
            image.cache_disk.len() as u64,
            VolumeParts { header, members, others: Vec::new(), degraded },
            config,
            Box::new(memory),
        )?;
        let mut machine = VolumeMachine {
            engine,
            image,
            cache_disk: Disk::default(),
            members: (0..MEMBERS).map(|_| Disk::default()).collect(),
            now: Time::ZERO,
            ios: 0,
            requests: 0,
            replies: BTreeMap::new(),
        };
        machine.input(Input::Timeout);
        for _ in 0..1_000 {
            match machine.engine.phase() {
                Phase::Running => return Ok(machine),
                Phase::Failed(error) => return Err(error.clone()),
                _ => machine.wait(),
            }
        }
        panic!("recovery got stuck: {:?}", machine.engine.phase())
    }

    /// Asks, and waits for the answer, whatever it is.
    fn ask(&mut self, operation: Operation) -> Reply {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.input(Input::Request(Request { id, operation, fua: false }));
        for _ in 0..20_000 {
            if let Some(reply) = self.replies.remove(&id.0) {
                return reply;
            }
            self.wait();
        }
        panic!("no answer to {id:?}: {:?}", self.engine.status())
    }

    fn write(&mut self, line: u64, value: u8) {
        let data = Buffer::copy_of(&[value; LINE]);
        self.ask(Operation::Write { start: Lba(line * 8), data });
    }

    fn wait(&mut self) {
        let Output::Wait { until: Some(until) } = self.engine.poll_output() else {
            panic!("nothing is waited for: {:?}", self.engine.status());
        };
        self.now = self.now.max(until);
        self.input(Input::Timeout);
    }

    fn input(&mut self, input: Input) {
        let VolumeMachine { engine, image, cache_disk, members, ios, replies, .. } = self;
        let carry_out = |io: Io, memory: &[u8]| {
            *ios += 1;
            assert!(*ios <= IOS_MAX, "the engine does not come to rest: {io:?}");
            match io.device {
                Device::CacheDisk => carry_out(io, memory, &mut cache_disk.over(&image.cache_disk)),
                Device::DataDisk | Device::Leg(_) | Device::Witness | Device::Nvram => {
                    unreachable!("there are members")
                }
                Device::Member(MemberIndex(index)) => {
                    let index = usize::from(index);
                    let disk = &mut members[index].over(image.members[index]);
                    let done = carry_out(io, memory, disk);
                    match image.labels[index].is_empty() {
                        true => IoDone { result: Err(IoError::Failed), ..done },
                        false => done,
                    }
                }
            }
        };
        let reply = |reply: Reply| drop(replies.insert(reply.id.0, reply));
        settle(engine, self.now, input, carry_out, reply);
    }

    fn stop(self) -> VolumeImage {
        let VolumeMachine { engine, mut image, cache_disk, members, .. } = self;
        cache_disk.put_on(&mut image.cache_disk);
        for (index, member) in members.into_iter().enumerate() {
            // Base images are few and live as long as the process.
            let mut bytes = image.members[index].to_vec();
            bytes[..image.labels[index].len()].copy_from_slice(&image.labels[index]);
            member.put_on(&mut bytes);
            let length = image.labels[index].len();
            image.labels[index] = bytes[..length].to_vec();
            image.members[index] = bytes.leak();
        }
        image.memory.copy_from_slice(engine.segment_memory());
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::seeds;
    use dcd_engine::error::VolumeOpenError;

    /// Pages are on the images, are read by the engine, and what stands in them counts.
    #[test]
    fn pages_of_volumes_are_reached() {
        for (which, image) in base_images().iter().enumerate() {
            let pages = image.area.pages() as u32;
            let there = (0..pages).filter(|page| image.place_of_page(*page).is_some()).count();
            assert!(there >= 2, "image {which} has {there} of {pages} pages");
            open_and_work(&[which as u8]).expect("it is as the engine left it");
        }
        // A page whose checksum is wrong is missed; one with another table in it is believed, and
        // what is wrong there is seen.
        let ends: Vec<String> = seeds("volume_recovery")
            .iter()
            .filter_map(|(_, seed)| open_and_work(seed).err().map(|error| error.to_string()))
            .collect();
        let lost = OpenError::from(VolumeOpenError::PagesLost).to_string();
        let tables = OpenError::from(VolumeOpenError::Tables).to_string();
        assert!(ends.contains(&lost), "{ends:?}");
        assert!(ends.contains(&tables), "{ends:?}");
    }
}
