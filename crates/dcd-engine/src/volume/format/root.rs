//! Roots: from where on the journal counts, which pages belong together, how the members are. Two
//! places, written in turn; the valid one of the newer checkpoint counts.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::label::DiskTag;
use super::page_map::{self, PageCopy};
use crate::buffer::Buffer;
use crate::error::FormatError;
use crate::format::checksum::crc32c_with_hole;
use crate::format::layout::{FieldLayout, layout_of};
use crate::format::preamble::{CHECKSUM_OFFSET, Preamble};
use crate::format::{COUNTER_END, COUNTER_OF_MEMBERS_END};
use crate::units::Uuid;
use crate::volume::config::{MEMBERS_MAX, SETS_MAX};

/// "dcdVROOT" in ASCII, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"dcdVROOT");
/// The version that this program writes and reads.
pub const VERSION: u32 = 4;
/// Size of a root.
pub const ROOT_BYTES: usize = 4096;
const WHAT: &str = "the root of the volume";
const PREAMBLE: Preamble = Preamble { what: WHAT, magic: MAGIC, version: VERSION };

/// How a member is, as the metadata has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// It holds all that belongs there.
    UpToDate,
    /// It was not there, or did not take a write: what it holds of redundant sets is old.
    Stale,
    /// What belongs there is being written: of sets before `set` all is there, of `set` the stripes
    /// before `stripe`.
    Rebuilding {
        /// The set that is being written.
        set: u8,
        /// Stripes before this one are there.
        stripe: u64,
    },
}

impl MemberState {
    pub(super) fn encode(self) -> (u8, u8, u64) {
        match self {
            MemberState::UpToDate => (1, 0, 0),
            MemberState::Stale => (2, 0, 0),
            MemberState::Rebuilding { set, stripe } => (3, set, stripe),
        }
    }

    pub(super) fn decode(code: u8, set: u8, stripe: u64) -> Option<MemberState> {
        match code {
            1 if set == 0 && stripe == 0 => Some(MemberState::UpToDate),
            2 if set == 0 && stripe == 0 => Some(MemberState::Stale),
            3 if usize::from(set) <= SETS_MAX => Some(MemberState::Rebuilding { set, stripe }),
            _ => None,
        }
    }
}

const GOES_ON: u32 = 1;
const PUT_OFF: u32 = 2;

/// Bytes of bits for what members have missed.
pub const MISSED_BYTES: usize = 2048;

/// What members have missed that are away: a bit for each region of the redundant sets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissedBits {
    /// Members of which all is marked that they have missed, a bit for each; at least one.
    pub members: u32,
    /// Bytes of each member that a region has.
    pub region_bytes: u64,
    /// `MISSED_BYTES` of them.
    pub bits: Vec<u8>,
}

/// Scrubs of the volume: the last, and one that has not come to its end. Times are seconds since
/// 1970.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ScrubRecord {
    /// The next is due so long behind this as was set; 0: nobody knew the time yet.
    pub since: u64,
    /// When the last one ended that has read everything; 0: there was none.
    pub ended: u64,
    /// Lines that were not as they should have been when it read them.
    pub found: u64,
    /// One that has not read everything yet.
    pub unfinished: Option<UnfinishedScrub>,
}

/// A scrub that goes on where it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnfinishedScrub {
    /// When it began; 0: nobody knew the time.
    pub began: u64,
    /// Sets before this one are read ...
    pub set: u8,
    /// ... and of this one the stripes before this one.
    pub stripe: u64,
    /// Lines that were not as they should have been.
    pub found: u64,
    /// Somebody has stopped it: it does not go on before the next is due.
    pub is_put_off: bool,
}

/// A root in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root {
    /// Which cache.
    pub uuid: Uuid,
    /// Counts the checkpoints.
    pub checkpoint: u64,
    /// The first record of the journal that counts ...
    pub tail_sequence: u64,
    /// ... and the line of the journal where it begins.
    pub tail_line: u64,
    /// Counts the openings.
    pub epoch: u64,
    /// The top of the map of all pages; `None`: no page was ever written.
    pub map: Option<PageCopy>,
    /// What records of the journal before this one say of lost lines that were found does not
    /// count: they were lost again.
    pub lost_since_record: u64,
    /// Pages of pointers behind all others, which the header does not know of.
    pub pointer_pages_added: u32,
    /// Twins of the tables of an older generation do not count.
    pub twin_since: u64,
    /// The members, in order.
    pub members: Vec<MemberState>,
    /// Epoch of the newest label of each; 0: not known.
    pub label_epochs: Vec<u64>,
    /// The disk of each.
    pub disks: Vec<DiskTag>,
    /// What they have missed; `None`: of none it is known.
    pub missed: Option<MissedBits>,
    /// Scrubs.
    pub scrub: ScrubRecord,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct MemberOnDisk {
    pub(crate) state: u8,
    pub(crate) set: u8,
    pub(crate) reserved: [u8; 6],
    pub(crate) stripe: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RootOnDisk {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) checksum: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) checkpoint: U64,
    pub(crate) tail_sequence: U64,
    pub(crate) tail_line: U64,
    pub(crate) epoch: U64,
    pub(crate) map_checksum: U32,
    pub(crate) members: U32,
    pub(crate) map: U64,
    pub(crate) lost_since_record: U64,
    pub(crate) member: [MemberOnDisk; MEMBERS_MAX],
    pub(crate) label_epoch: [U64; MEMBERS_MAX],
    pub(crate) pointer_pages_added: U32,
    pub(crate) twin_since: U64,
    pub(crate) disk_tag: [U64; MEMBERS_MAX],
    pub(crate) missed_members: U32,
    pub(crate) missed_region_bytes: U64,
    pub(crate) missed: [u8; MISSED_BYTES],
    pub(crate) scrub_since: U64,
    pub(crate) scrub_ended: U64,
    pub(crate) scrub_found: U64,
    pub(crate) scrub_state: U32,
    pub(crate) scrub_set: U32,
    pub(crate) scrub_began: U64,
    pub(crate) scrub_stripe: U64,
    pub(crate) scrub_found_so_far: U64,
    pub(crate) unused: [u8; 856],
}

const _: () = assert!(size_of::<RootOnDisk>() == ROOT_BYTES);
const _: () = assert!(std::mem::offset_of!(RootOnDisk, checksum) == CHECKSUM_OFFSET);

/// Every field of a root, in order: what `docs/disk-format.md` says in words.
pub fn layout() -> Vec<FieldLayout> {
    layout_of!(RootOnDisk {
        magic,
        version,
        checksum,
        uuid,
        checkpoint,
        tail_sequence,
        tail_line,
        epoch,
        map_checksum,
        members,
        map,
        lost_since_record,
        member,
        label_epoch,
        pointer_pages_added,
        twin_since,
        disk_tag,
        missed_members,
        missed_region_bytes,
        missed,
        scrub_since,
        scrub_ended,
        scrub_found,
        scrub_state,
        scrub_set,
        scrub_began,
        scrub_stripe,
        scrub_found_so_far,
        unused,
    })
}

/// The same of a member in it.
pub fn member_layout() -> Vec<FieldLayout> {
    layout_of!(MemberOnDisk { state, set, reserved, stripe })
}

impl RootOnDisk {
    fn scrub(&self) -> Result<ScrubRecord, FormatError> {
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        let (state, set) = (self.scrub_state.get(), self.scrub_set.get());
        let (began, stripe) = (self.scrub_began.get(), self.scrub_stripe.get());
        let found = self.scrub_found_so_far.get();
        let unfinished = match state {
            // None is zeroes.
            0 if (set, began, stripe, found) == (0, 0, 0, 0) => None,
            GOES_ON | PUT_OFF if set as usize <= SETS_MAX => Some(UnfinishedScrub {
                began,
                set: set as u8,
                stripe,
                found,
                is_put_off: state == PUT_OFF,
            }),
            _ => return Err(field("scrub_state", state.into())),
        };
        let (since, ended) = (self.scrub_since.get(), self.scrub_ended.get());
        Ok(ScrubRecord { since, ended, found: self.scrub_found.get(), unfinished })
    }
}

impl Root {
    /// The bytes of the root.
    ///
    /// # Panics
    /// If it has too many members, or not so many bits as it has to have.
    pub fn encode(&self) -> Buffer {
        assert!(self.members.len() <= MEMBERS_MAX);
        assert_eq!(self.members.len(), self.label_epochs.len());
        assert_eq!(self.members.len(), self.disks.len());
        let mut disk = RootOnDisk::new_zeroed();
        disk.magic = MAGIC.into();
        disk.version = VERSION.into();
        disk.uuid = self.uuid.0;
        disk.checkpoint = self.checkpoint.into();
        disk.tail_sequence = self.tail_sequence.into();
        disk.tail_line = self.tail_line.into();
        disk.epoch = self.epoch.into();
        let (map, map_checksum) = page_map::pack(self.map);
        disk.map = map.into();
        disk.map_checksum = map_checksum.into();
        disk.lost_since_record = self.lost_since_record.into();
        disk.members = (self.members.len() as u32).into();
        disk.twin_since = self.twin_since.into();
        disk.pointer_pages_added = self.pointer_pages_added.into();
        for (on_disk, member) in disk.member.iter_mut().zip(&self.members) {
            let (state, set, stripe) = member.encode();
            on_disk.state = state;
            on_disk.set = set;
            on_disk.stripe = stripe.into();
        }
        for (on_disk, epoch) in disk.label_epoch.iter_mut().zip(&self.label_epochs) {
            *on_disk = (*epoch).into();
        }
        for (on_disk, tag) in disk.disk_tag.iter_mut().zip(&self.disks) {
            *on_disk = tag.0.into();
        }
        if let Some(missed) = &self.missed {
            disk.missed_members = missed.members.into();
            disk.missed_region_bytes = missed.region_bytes.into();
            disk.missed.copy_from_slice(&missed.bits);
        }
        disk.scrub_since = self.scrub.since.into();
        disk.scrub_ended = self.scrub.ended.into();
        disk.scrub_found = self.scrub.found.into();
        if let Some(scrub) = &self.scrub.unfinished {
            disk.scrub_state = if scrub.is_put_off { PUT_OFF } else { GOES_ON }.into();
            disk.scrub_set = u32::from(scrub.set).into();
            disk.scrub_began = scrub.began.into();
            disk.scrub_stripe = scrub.stripe.into();
            disk.scrub_found_so_far = scrub.found.into();
        }
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        Buffer::copy_of(disk.as_bytes())
    }

    /// Reads a root. Every byte may be anything.
    pub fn decode(bytes: &[u8], uuid: Uuid) -> Result<Root, FormatError> {
        let (disk, _) = PREAMBLE.verify::<RootOnDisk>(bytes)?;
        if disk.uuid != uuid.0 {
            return Err(FormatError::Uuid { what: WHAT, expected: uuid, found: Uuid(disk.uuid) });
        }
        let field = |field, found| FormatError::Field { what: WHAT, field, found };
        // The next checkpoint has a greater number; a twin may have any.
        if disk.checkpoint.get() >= COUNTER_OF_MEMBERS_END {
            return Err(field("checkpoint", disk.checkpoint.get()));
        }
        for (name, counter) in [
            ("tail_sequence", disk.tail_sequence.get()),
            ("epoch", disk.epoch.get()),
            ("lost_since_record", disk.lost_since_record.get()),
            ("twin_since", disk.twin_since.get()),
            ("scrub_since", disk.scrub_since.get()),
            ("scrub_ended", disk.scrub_ended.get()),
            ("scrub_began", disk.scrub_began.get()),
            ("scrub_stripe", disk.scrub_stripe.get()),
        ] {
            if counter >= COUNTER_END {
                return Err(field(name, counter));
            }
        }
        let map = page_map::unpack(disk.map.get(), disk.map_checksum.get());
        if map.is_some_and(|map| map.checkpoint > disk.checkpoint.get()) {
            return Err(field("map", disk.map.get()));
        }
        // None is zeroes.
        if map.is_none() && (disk.map.get(), disk.map_checksum.get()) != (0, 0) {
            return Err(field("map", disk.map.get()));
        }
        let count = disk.members.get() as usize;
        if count > MEMBERS_MAX {
            return Err(field("members", count as u64));
        }
        let members = disk.member[..count]
            .iter()
            .map(|member| {
                MemberState::decode(member.state, member.set, member.stripe.get())
                    .ok_or_else(|| field("member", member.state.into()))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let label_epochs: Vec<u64> = disk.label_epoch[..count].iter().map(|e| e.get()).collect();
        if let Some(epoch) = label_epochs.iter().find(|epoch| **epoch > disk.epoch.get()) {
            return Err(field("label_epoch", *epoch));
        }
        let disks = disk.disk_tag[..count].iter().map(|tag| DiskTag(tag.get())).collect();
        let missed = MissedBits {
            members: disk.missed_members.get(),
            region_bytes: disk.missed_region_bytes.get(),
            bits: disk.missed.to_vec(),
        };
        let missed_members = u64::from(missed.members);
        if missed_members >> count != 0 {
            return Err(field("missed_members", missed_members));
        }
        // Of nobody is zeroes.
        let says_something = missed.region_bytes != 0 || missed.bits.iter().any(|bits| *bits != 0);
        if missed_members == 0 && says_something {
            return Err(field("missed_members", 0));
        }
        let missed = (missed_members != 0).then_some(missed);
        Ok(Root {
            uuid,
            pointer_pages_added: disk.pointer_pages_added.get(),
            twin_since: disk.twin_since.get(),
            checkpoint: disk.checkpoint.get(),
            tail_sequence: disk.tail_sequence.get(),
            tail_line: disk.tail_line.get(),
            epoch: disk.epoch.get(),
            map,
            lost_since_record: disk.lost_since_record.get(),
            members,
            label_epochs,
            disks,
            missed,
            scrub: disk.scrub()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back() {
        let uuid = Uuid([7; 16]);
        let root = Root {
            pointer_pages_added: 3,
            uuid,
            checkpoint: 9,
            tail_sequence: 100,
            tail_line: 17,
            epoch: 3,
            map: Some(PageCopy { checkpoint: 9, second: true, has_lost: false, checksum: 5 }),
            lost_since_record: 98,
            twin_since: 7,
            members: vec![
                MemberState::UpToDate,
                MemberState::Stale,
                MemberState::Rebuilding { set: 1, stripe: 77 },
            ],
            label_epochs: vec![3, 0, 2],
            disks: vec![DiskTag(0), DiskTag(7), DiskTag(u64::MAX)],
            missed: Some(MissedBits {
                members: 0b110,
                region_bytes: 1 << 20,
                bits: (0..MISSED_BYTES).map(|at| at as u8).collect(),
            }),
            scrub: ScrubRecord {
                since: 12,
                ended: 11,
                found: u64::MAX,
                unfinished: Some(UnfinishedScrub {
                    began: 13,
                    set: SETS_MAX as u8,
                    stripe: 5,
                    found: 2,
                    is_put_off: true,
                }),
            },
        };
        assert_eq!(Root::decode(root.encode().bytes(), uuid), Ok(root.clone()));
        assert!(Root::decode(root.encode().bytes(), Uuid([8; 16])).is_err());
        let mut bytes = root.encode();
        let (disk, _) = RootOnDisk::mut_from_prefix(bytes.bytes_mut()).unwrap();
        disk.member[0].state = 9;
        disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
        assert!(matches!(Root::decode(bytes.bytes(), uuid), Err(FormatError::Field { .. })));
        let last = Root { checkpoint: COUNTER_OF_MEMBERS_END, ..root.clone() };
        let last = Root::decode(last.encode().bytes(), uuid);
        assert!(matches!(last, Err(FormatError::Field { field: "checkpoint", .. })));
        // And no page.
        let map = root.map.map(|map| PageCopy { checkpoint: 10, ..map });
        let ahead = Root::decode(Root { map, ..root.clone() }.encode().bytes(), uuid);
        assert!(matches!(ahead, Err(FormatError::Field { field: "map", .. })));
        let missed = |members| {
            let missed = root.missed.clone().map(|missed| MissedBits { members, ..missed });
            Root::decode(Root { missed, ..root.clone() }.encode().bytes(), uuid)
        };
        for members in [0, 0b1000] {
            assert!(matches!(
                missed(members),
                Err(FormatError::Field { field: "missed_members", .. })
            ));
        }
        assert!(Root::decode(Root { missed: None, ..root.clone() }.encode().bytes(), uuid).is_ok());
        for (state, set) in [(0, 1), (3, 1), (1, 9)] {
            let mut bytes = root.encode();
            let (disk, _) = RootOnDisk::mut_from_prefix(bytes.bytes_mut()).unwrap();
            (disk.scrub_state, disk.scrub_set) = (state.into(), set.into());
            disk.checksum = crc32c_with_hole(disk.as_bytes(), CHECKSUM_OFFSET).into();
            let found = Root::decode(bytes.bytes(), uuid);
            assert!(matches!(found, Err(FormatError::Field { field: "scrub_state", .. })));
        }
        // No label is newer than the newest epoch.
        let ahead = Root { label_epochs: vec![3, 4, 0], ..root };
        let ahead = Root::decode(ahead.encode().bytes(), uuid);
        assert!(matches!(ahead, Err(FormatError::Field { field: "label_epoch", found: 4, .. })));
    }
}
