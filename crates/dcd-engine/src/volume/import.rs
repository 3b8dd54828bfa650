//! A volume whose cache-disk is lost, found again by its twin ([`super::twin`]): the tables go to a
//! new cache-disk. What was in the log and had not been destaged is gone with the old one.
//!
//! ```text
//! 1. The newest of all labels says who has the twin. Its map, tables and records are read as those
//!    of a cache-disk are at a start.
//! 2. Where regions are marked, what is on the members is believed: of mirrors the one that fits an
//!    older checksum, else the first; of RAID 5 the data, and parity is computed. Members that
//!    differ are written.
//!      Crash: the same again, to the same end.
//! 3. All pages are written to the new cache-disk, then those of the map, then the root; flushed.
//! 4. Labels of a newer epoch, flushed: the old cache-disk is refused from here on, should it come
//!    back.
//!      Crash before step 5: there is no cache on the new disk, and the twin is as it was.
//! 5. The superblocks (the caller).
//! ```
//! The twin itself is not changed. The root says that it does not count any more, and the next start
//! builds another.

use super::format::area::{Region, TablePage, VolumeArea};
use super::format::header::{VOLUME_HEADER_BYTES, VolumeHeader};
use super::format::label::{LABEL_OFFSETS, MemberLabel, TwinLabel};
use super::format::page::{self, PAGE_BYTES, PageIndex};
use super::format::page_map::{self, PageCopy};
use super::format::root::{MemberState, Root, ScrubRecord};
use super::members::MemberMask;
use super::page_map::PageMap;
use super::paths::believe::Believed;
use super::{Volume, VolumeParts};
use crate::buffer::Buffer;
use crate::error::VolumeOpenError;
use crate::io::IoError;
use crate::units::{LINE_SIZE, MemberIndex, Time, Uuid};

/// The disks of an import. Members are named by what their labels say.
pub trait ImportDisks {
    /// Fills a buffer from a byte address of a member.
    fn read_member(
        &mut self,
        member: MemberIndex,
        offset: u64,
        buffer: &mut Buffer,
    ) -> Result<(), IoError>;
    /// Writes to a member.
    fn write_member(
        &mut self,
        member: MemberIndex,
        offset: u64,
        bytes: &Buffer,
    ) -> Result<(), IoError>;
    /// What was written to a member is durable.
    fn flush_member(&mut self, member: MemberIndex) -> Result<(), IoError>;
    /// Writes to the new cache-disk.
    fn write_cache_disk(&mut self, offset: u64, bytes: &Buffer) -> Result<(), IoError>;
    /// What was written to it is durable.
    fn flush_cache_disk(&mut self) -> Result<(), IoError>;
    /// So many pages of checksums were looked at, of so many.
    fn progress(&mut self, done: u64, of: u64);
}

/// Why a volume cannot be imported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImportError {
    /// No disk has a label with a twin.
    #[error("none of the disks has a label that tells of a twin of the tables")]
    NoTwin,
    /// Nobody has one that counts.
    #[error("no member had the twin of the tables when the labels were written last")]
    NobodyHasIt,
    /// Labels of different volumes.
    #[error("member {} belongs to volume {found}, and others to {expected}", member.0)]
    OtherVolume {
        /// Which.
        member: MemberIndex,
        /// Of the others.
        expected: Uuid,
        /// Its own.
        found: Uuid,
    },
    /// Two disks are the same member.
    #[error("two disks are both member {}", member.0)]
    Twice {
        /// Which.
        member: MemberIndex,
    },
    /// The disks that have it are not among those given.
    #[error("the twin of the tables is on {}, which {} not given", list(*holders), if holders.count() == 1 { "is" } else { "are" })]
    HoldersMissing {
        /// Who has it.
        holders: MemberMask,
    },
    /// It cannot be read, from nobody who has it.
    #[error("the twin of the tables on member {} cannot be used: {problem}", member.0)]
    Damaged {
        /// The last that was tried.
        member: MemberIndex,
        /// What is wrong.
        problem: VolumeOpenError,
    },
    /// Members that hold something are missing.
    #[error("{} {} missing", list(*missing), if missing.count() == 1 { "is" } else { "are" })]
    MembersMissing {
        /// Which.
        missing: MemberMask,
    },
    /// A member is a copy of an earlier time, and nobody else has what is on RAID 0 sets.
    #[error("member {} is a copy of an earlier time: its label is of epoch {label}, and it had one of epoch {known}", member.0)]
    MemberOlder {
        /// Which.
        member: MemberIndex,
        /// Its label.
        label: u64,
        /// The newest that it is known to have had.
        known: u64,
    },
    /// The disk is not the one that counts as this member.
    #[error("the disk given for member {} is not the one that counts: another has taken its place, or it was to take one", member.0)]
    Replaced {
        /// Which.
        member: MemberIndex,
    },
    /// A write or flush has failed.
    #[error("{} cannot be written: {problem}", match member { Some(member) => format!("member {}", member.0), None => "the new cache-disk".into() })]
    Unwritable {
        /// Which; `None`: the new cache-disk.
        member: Option<MemberIndex>,
        /// What is wrong.
        problem: IoError,
    },
}

fn list(members: MemberMask) -> String {
    let numbers: Vec<String> = members.members().map(|member| member.0.to_string()).collect();
    format!("member{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(" and "))
}

/// What an import has found and done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ImportReport {
    /// Regions whose checksums were not known ...
    pub regions_believed: u64,
    /// ... of so many.
    pub regions: u64,
    /// Lines in them that something is placed on: what was on the members was believed.
    pub lines_believed: u64,
    /// Lines of members that were written, because mirrors or parity differed.
    pub lines_mended: u64,
    /// Lines that nothing tells any more.
    pub lines_lost: u64,
    /// Extents that have a place.
    pub extents_mapped: u64,
}

/// A volume that was found on its members.
pub struct FoundVolume {
    /// What it is made of.
    pub header: VolumeHeader,
    /// From whom the twin was read.
    pub holder: MemberIndex,
    /// Members that were given, and are not copies of an earlier time.
    pub present: MemberMask,
    labels: Vec<MemberLabel>,
    twin: TwinLabel,
    volume: Volume,
}

/// Step 1. `labels`: the newest label of each disk at hand. `degraded`: members may be missing.
///
/// # Errors
/// If there is no twin that can be read, or members do not fit or are missing.
pub fn find(
    labels: &[MemberLabel],
    degraded: bool,
    disks: &mut dyn ImportDisks,
) -> Result<FoundVolume, ImportError> {
    let first = labels.first().ok_or(ImportError::NoTwin)?;
    let mut given = MemberMask::default();
    for label in labels {
        let (member, expected, found) = (label.member, first.uuid, label.uuid);
        if found != expected {
            return Err(ImportError::OtherVolume { member, expected, found });
        }
        if given.has(member) {
            return Err(ImportError::Twice { member });
        }
        given = given.with(MemberMask::of(member));
    }
    let twins = labels.iter().filter_map(|label| label.twin);
    let twin = twins.max_by_key(|twin| twin.generation).ok_or(ImportError::NoTwin)?;
    if twin.holders.is_none() {
        return Err(ImportError::NobodyHasIt);
    }
    let mut problem = ImportError::HoldersMissing { holders: twin.holders };
    let newest_epoch = labels.iter().map(|label| label.epoch).max().unwrap_or(0);
    let mut best: Option<FoundVolume> = None;
    for label in labels.iter().filter(|label| twin.holders.has(label.member)) {
        let member = label.member;
        // The disk in a holder's place may be a copy of an earlier time. Its label tells: those that
        // are being written are one apart.
        let generation = label.twin.map_or(0, |twin| twin.generation);
        if generation + 1 < twin.generation || label.epoch + 1 < newest_epoch {
            problem = ImportError::MemberOlder { member, label: label.epoch, known: newest_epoch };
            continue;
        }
        match read_twin(first.uuid, member, twin.offset, disks) {
            Ok((header, volume)) => {
                let labels = labels.to_vec();
                let present = given;
                let found = FoundVolume { header, holder: member, present, labels, twin, volume };
                // Of two that count, one may lack what was on its way when all ended.
                if best.as_ref().is_none_or(|best| best.age() < found.age()) {
                    best = Some(found);
                }
            }
            Err(error) => problem = ImportError::Damaged { member, problem: error },
        }
    }
    best.ok_or(problem)?.with_members(degraded)
}

fn read_twin(
    uuid: Uuid,
    member: MemberIndex,
    offset: u64,
    disks: &mut dyn ImportDisks,
) -> Result<(VolumeHeader, Volume), VolumeOpenError> {
    let mut header = Err(VolumeOpenError::Unreadable { what: "the header" });
    for copy in 0..2 {
        let mut bytes = Buffer::zeroed(VOLUME_HEADER_BYTES);
        if disks.read_member(member, offset + copy * LINE_SIZE, &mut bytes).is_err() {
            continue;
        }
        match VolumeHeader::decode(bytes.bytes()) {
            Ok(found) if found.uuid == uuid => {
                header = Ok(found);
                break;
            }
            Ok(_) => header = Err(VolumeOpenError::Header),
            Err(error) => header = Err(VolumeOpenError::Format(error)),
        }
    }
    let header = header?;
    if header.config.twin_offset_bytes() != Some(offset) {
        return Err(VolumeOpenError::Header);
    }
    let parts = VolumeParts {
        members: vec![None; header.config.members],
        header: header.clone(),
        others: Vec::new(),
        degraded: true,
    };
    let mut volume = Volume::open(Time::ZERO, parts, offset)?;
    volume.read_as_twin();
    volume.read_tables(&mut |offset, buffer| disks.read_member(member, offset, buffer))?;
    Ok((header, volume))
}

impl FoundVolume {
    /// Newer ones have greater ones.
    fn age(&self) -> (u64, u64, u64) {
        let volume = &self.volume;
        (volume.epoch, volume.journal.next_sequence(), volume.checkpoint.number())
    }

    fn with_members(mut self, degraded: bool) -> Result<FoundVolume, ImportError> {
        let members = self.volume.members.len();
        if let Some(label) = self.labels.iter().find(|label| usize::from(label.member.0) >= members)
        {
            let member = label.member;
            return Err(ImportError::Damaged { member, problem: VolumeOpenError::Header });
        }
        for label in std::mem::take(&mut self.labels) {
            let (member, epoch) = (label.member, label.epoch);
            if !self.volume.is_disk_of(member, &label) {
                if !label.standing.is_spare() {
                    return Err(ImportError::Replaced { member });
                }
                // A spare that had got all, and was not the member yet when all ended.
                self.present = self.present.without(MemberMask::of(member));
                continue;
            }
            self.labels.push(label);
            let known = self.volume.members.get(member).label_epoch;
            if epoch >= known {
                continue;
            }
            let is_stale = self.volume.members.get(member).state == MemberState::Stale;
            if self.volume.has_raid0_on(member) {
                return Err(ImportError::MemberOlder { member, label: epoch, known });
            }
            // The others have what it missed. It is brought up to date at the next start.
            self.present = self.present.without(MemberMask::of(member));
            if !is_stale {
                self.volume.members.get_mut(member).state = MemberState::Stale;
            }
        }
        let mut missing = MemberMask::default();
        for member in (0..members as u8).map(MemberIndex) {
            let is_present = self.present.has(member);
            let found = self.volume.members.get_mut(member);
            found.is_present = is_present;
            if let MemberState::Rebuilding { set, stripe } = found.state {
                found.rebuilt = (set, stripe);
            }
            if !is_present && found.state == MemberState::UpToDate {
                missing = missing.with(MemberMask::of(member));
            }
        }
        match missing.is_none() || degraded {
            true => Ok(self),
            false => Err(ImportError::MembersMissing { missing }),
        }
    }

    /// Bytes of the area that the tables take on the new cache-disk.
    pub fn area_bytes(&self) -> u64 {
        self.volume.area.bytes()
    }

    /// Regions whose checksums are not known, and how many there are.
    pub fn regions(&self) -> (u64, u64) {
        (self.volume.region_marks.marked(), self.volume.region_marks.regions())
    }

    /// Bytes of lines, parity too, that a region has the checksums of.
    pub fn region_bytes(&self) -> u64 {
        let pages = u64::from(self.header.config.twin_region_pages);
        pages * super::format::area::CHECKSUMS_PER_PAGE * LINE_SIZE
    }

    /// Extents that have a place.
    pub fn extents_mapped(&self) -> u64 {
        self.volume.extents.extents_mapped()
    }

    /// Steps 2 to 4. The first bytes of the cache ([`crate::create`]) must have been written, but for
    /// the superblocks.
    ///
    /// # Errors
    /// If something cannot be written. Nothing is a cache then, and it can be done again.
    pub fn write(
        mut self,
        area_offset: u64,
        disks: &mut dyn ImportDisks,
    ) -> Result<ImportReport, ImportError> {
        let area = VolumeArea::of(&self.header, area_offset).expect("as that of the twin");
        let added = self.volume.area.pointer_pages_added();
        let area = match added {
            0 => area,
            added => area.with_more_pointers(added).expect("the twin has them"),
        };
        let mut pages = NewPages { map: PageMap::new(area.pages()), area, uuid: self.header.uuid };
        let believed = self.write_checksums(&mut pages, disks)?;
        self.write_tables(&mut pages, disks)?;
        self.write_root(&pages, disks)?;
        self.write_labels(disks)?;
        Ok(ImportReport {
            regions_believed: believed.regions,
            regions: self.volume.region_marks.regions(),
            lines_believed: believed.lines,
            lines_mended: believed.mended,
            lines_lost: believed.lost,
            extents_mapped: self.extents_mapped(),
        })
    }

    fn write_checksums(
        &mut self,
        pages: &mut NewPages,
        disks: &mut dyn ImportDisks,
    ) -> Result<Believed, ImportError> {
        let mut believed = Believed::default();
        let regions = self.volume.region_marks.regions();
        // One that cannot be read counts as marked, and so do those that share stripes with it.
        for region in (0..regions as u32).map(Region) {
            if !self.volume.region_marks.has(region) && !self.load(region, disks) {
                self.volume.region_marks.mark(region);
            }
            self.drop_sums(region);
        }
        for region in (0..regions as u32).map(Region) {
            disks.progress(u64::from(region.0), regions);
            if self.volume.region_marks.has(region) {
                believed.regions += 1;
                self.load_around(region, disks);
                self.volume.believe(region, disks, &mut believed)?;
            } else {
                self.load(region, disks);
            }
            for page in self.volume.area.pages_of_region(region).map(PageIndex) {
                let (set, first) = self.volume.place_of_sums(page);
                if self.volume.checksums.is_in_memory(set, first) {
                    let has_lost = self.volume.checksums.has_lost(set, first);
                    let content = self.volume.checksums.page(set, first);
                    pages.write(page, &content, has_lost, disks)?;
                }
            }
            self.drop_sums_around(region);
        }
        disks.progress(regions, regions);
        for member in self.present.members() {
            let flushed = disks.flush_member(member);
            flushed.map_err(|problem| ImportError::Unwritable { member: Some(member), problem })?;
        }
        Ok(believed)
    }

    /// Whether all pages of a region are in memory that were ever written.
    fn load(&mut self, region: Region, disks: &mut dyn ImportDisks) -> bool {
        let mut are_there = true;
        for page in self.volume.area.pages_of_region(region).map(PageIndex) {
            let (set, first) = self.volume.place_of_sums(page);
            let copy = self.volume.checkpoint.map.get(page);
            let Some(copy) = copy.filter(|_| !self.volume.checksums.is_in_memory(set, first))
            else {
                continue;
            };
            let offset = self.volume.area.page_offset(page, copy.second);
            let mut bytes = Buffer::zeroed(PAGE_BYTES);
            let is_read = disks.read_member(self.holder, offset, &mut bytes).is_ok();
            let content = page::decode_copy(bytes.bytes(), self.header.uuid, page, copy);
            match content {
                Ok(content) if is_read => self.volume.checksums.load_page(set, first, content),
                _ => are_there = false,
            }
        }
        are_there
    }

    /// With the pages of the stripes that it shares with its neighbours.
    fn load_around(&mut self, region: Region, disks: &mut dyn ImportDisks) {
        for region in self.volume.regions_around(region) {
            self.load(region, disks);
        }
    }

    fn drop_sums_around(&mut self, region: Region) {
        for region in self.volume.regions_around(region) {
            self.drop_sums(region);
        }
    }

    /// But for those that tell of lost lines, which are counted, and what records have changed.
    fn drop_sums(&mut self, region: Region) {
        for page in self.volume.area.pages_of_region(region).map(PageIndex) {
            let (set, first) = self.volume.place_of_sums(page);
            if !self.volume.checksums.has_lost(set, first) && !self.volume.checkpoint.needs(page) {
                self.volume.checksums.drop_page(set, first);
            }
        }
    }

    /// Step 3, but for checksums and the map.
    fn write_tables(
        &mut self,
        pages: &mut NewPages,
        disks: &mut dyn ImportDisks,
    ) -> Result<(), ImportError> {
        let sums = pages.area.all_checksum_pages();
        for page in (0..pages.area.pages() as u32).rev().map(PageIndex) {
            if sums.contains(&page.0) {
                continue;
            }
            let volume = &self.volume;
            let is_used =
                volume.checkpoint.map.get(page).is_some() || volume.checkpoint.needs(page);
            match pages.area.content(page) {
                TablePage::Map => pages.write_map_page(page, disks)?,
                TablePage::Marks(_) | TablePage::Checksums { .. } => {}
                _ if is_used => pages.write(page, &volume.page_content(page), false, disks)?,
                _ => {}
            }
        }
        // Records of a former cache of this name, on a disk that is used once more.
        let (begin, lines) = (pages.area.journal_offset(), pages.area.journal_lines());
        let mut line = 0;
        while line < lines {
            let count = (lines - line).min(256);
            let zeroes = Buffer::zeroed((count * LINE_SIZE) as usize);
            write_cache_disk(disks, begin + line * LINE_SIZE, &zeroes)?;
            line += count;
        }
        flush_cache_disk(disks)
    }

    fn epoch(&self) -> u64 {
        let labels = self.labels.iter().map(|label| label.epoch);
        // The old cache-disk believes labels that are one ahead.
        labels.fold(self.volume.epoch, u64::max) + 2
    }

    fn write_root(&self, pages: &NewPages, disks: &mut dyn ImportDisks) -> Result<(), ImportError> {
        let epoch = self.epoch();
        let mut label_epochs = self.volume.members.label_epochs();
        for member in self.present.members() {
            label_epochs[usize::from(member.0)] = epoch;
        }
        let root = Root {
            uuid: self.header.uuid,
            checkpoint: 2,
            tail_sequence: 1,
            tail_line: 0,
            epoch,
            map: pages.map.get(PageIndex(0)),
            lost_since_record: 0,
            pointer_pages_added: pages.area.pointer_pages_added(),
            twin_since: self.twin.generation + 1,
            members: self.volume.members.states(),
            label_epochs,
            disks: self.volume.members.disks(),
            // Only the old cache-disk knew.
            missed: None,
            scrub: ScrubRecord::default(),
        };
        let other = Buffer::zeroed(LINE_SIZE as usize);
        write_cache_disk(disks, pages.area.root_offset(root.checkpoint + 1), &other)?;
        write_cache_disk(disks, pages.area.root_offset(root.checkpoint), &root.encode())?;
        flush_cache_disk(disks)
    }

    /// Step 4.
    fn write_labels(&self, disks: &mut dyn ImportDisks) -> Result<(), ImportError> {
        let epoch = self.epoch();
        // Holders first: an import that is done again must find one with the newest label.
        let (holders, others): (Vec<&MemberLabel>, Vec<&MemberLabel>) =
            self.labels.iter().partition(|label| self.twin.holders.has(label.member));
        for label in holders.into_iter().chain(others) {
            let member = label.member;
            if !self.present.has(member) {
                continue;
            }
            // Not over its newest.
            let offset = LABEL_OFFSETS[usize::from(1 - label.copy)];
            let new = MemberLabel { epoch, twin: Some(self.twin), ..*label };
            let written = disks.write_member(member, offset, &new.encode());
            written
                .and_then(|()| disks.flush_member(member))
                .map_err(|problem| ImportError::Unwritable { member: Some(member), problem })?;
        }
        Ok(())
    }
}

/// The pages of the new cache-disk.
struct NewPages {
    uuid: Uuid,
    area: VolumeArea,
    map: PageMap,
}

impl NewPages {
    /// The checkpoint that they belong to.
    const CHECKPOINT: u64 = 2;

    fn write(
        &mut self,
        page: PageIndex,
        content: &[u8],
        has_lost: bool,
        disks: &mut dyn ImportDisks,
    ) -> Result<(), ImportError> {
        let checkpoint = NewPages::CHECKPOINT;
        let bytes = page::encode(self.uuid, page, checkpoint, content);
        let checksum = page::checksum_of(bytes.bytes());
        self.map.set(page, Some(PageCopy { checkpoint, second: false, has_lost, checksum }));
        write_cache_disk(disks, self.area.page_offset(page, false), &bytes)
    }

    fn write_map_page(
        &mut self,
        page: PageIndex,
        disks: &mut dyn ImportDisks,
    ) -> Result<(), ImportError> {
        let children = self.area.children(page).map(PageIndex);
        let copies: Vec<Option<PageCopy>> = children.map(|child| self.map.get(child)).collect();
        if copies.iter().all(Option::is_none) {
            return Ok(());
        }
        self.write(page, &page_map::encode(copies.into_iter()), false, disks)
    }
}

fn write_cache_disk(
    disks: &mut dyn ImportDisks,
    offset: u64,
    bytes: &Buffer,
) -> Result<(), ImportError> {
    let written = disks.write_cache_disk(offset, bytes);
    written.map_err(|problem| ImportError::Unwritable { member: None, problem })
}

fn flush_cache_disk(disks: &mut dyn ImportDisks) -> Result<(), ImportError> {
    let flushed = disks.flush_cache_disk();
    flushed.map_err(|problem| ImportError::Unwritable { member: None, problem })
}
