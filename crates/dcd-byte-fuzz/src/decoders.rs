//! Decoders of what lies on the cache-disk. What is accepted must come back: writing it and reading
//! that gives the same again, and the bytes differ only where the format says "ignored".
//!
//! The first byte of the input says whether the checksum is put right first: without that, no
//! mutation would ever get past it.

use dcd_engine::format::checkpoint::{self, Checkpoint, CopyPageRef};
use dcd_engine::format::checksum::{crc32c, crc32c_with_hole};
use dcd_engine::format::copy_page::{self, CopyPage, PAGE_SIZE};
use dcd_engine::format::creation_mark::{self, CreationMark};
use dcd_engine::format::data_label::{self, DATA_LABEL_BYTES, DataLabel, LabelFit};
use dcd_engine::format::layout::FieldLayout;
use dcd_engine::format::leg_label::{self, LEG_LABEL_BYTES, LegLabel, LegState, Tag};
use dcd_engine::format::record::{self, Record};
use dcd_engine::format::share_directory::{
    self, DIRECTORY_COPY_BYTES, NewShare, SHARE_GRAIN_BYTES, ShareDirectory,
};
use dcd_engine::format::superblock::{self, SUPERBLOCK_SIZE, Superblock};
use dcd_engine::legs::choose::{Role, choose};
use dcd_engine::units::CopyPageIndex;
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::format::header::{self, VolumeHeader};
use dcd_engine::volume::format::journal::{self, JournalRecord};
use dcd_engine::volume::format::label::{self, MemberLabel};
use dcd_engine::volume::format::page::{self, PageIndex};
use dcd_engine::volume::format::root::{self, Root};
use dcd_engine::{Geometry, Uuid};

/// The cache of all inputs of `checkpoint`.
pub(crate) const UUID: Uuid = Uuid([1; 16]);

/// Its geometry.
pub(crate) fn geometry() -> Geometry {
    Geometry::fit(4 << 20, 64 << 10).expect("4 MiB are enough")
}

/// Where a field lies.
pub(crate) fn field(layout: &[FieldLayout], name: &str) -> std::ops::Range<usize> {
    let found = layout.iter().find(|field| field.name == name);
    let found = found.unwrap_or_else(|| panic!("no field {name}"));
    found.offset..found.offset + found.size
}

/// Computes the checksum that a structure carries.
pub(crate) fn put_checksum(structure: &mut [u8], layout: &[FieldLayout]) {
    let place = field(layout, "checksum");
    if structure.len() >= place.end {
        let checksum = crc32c_with_hole(structure, place.start);
        structure[place].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// The input as a structure of `size` bytes, zeroes behind its end; a short one stays short when
/// its first byte says so, for the checks of length.
fn structure(input: &[u8], size: usize, layout: &[FieldLayout]) -> Vec<u8> {
    let (how, bytes) = input.split_first().unwrap_or((&0, &[]));
    let mut bytes = bytes.to_vec();
    if how & 2 == 0 {
        bytes.resize(size, 0);
    }
    if how & 1 != 0 {
        let end = size.min(bytes.len());
        put_checksum(&mut bytes[..end], layout);
    }
    bytes
}

/// Whether two copies of a structure agree except in fields that readers ignore.
#[track_caller]
fn assert_same(found: &[u8], written: &[u8], layout: &[FieldLayout], ignored: &[&str]) {
    for field in layout.iter().filter(|field| !ignored.contains(&field.name)) {
        let place = field.offset..field.offset + field.size;
        assert_eq!(found[place.clone()], written[place], "{}", field.name);
    }
}

/// A label comes back, and whatever two of them say, a start takes legs that are in sync or says
/// why not.
fn leg_label(input: &[u8]) {
    let layout = leg_label::layout();
    let bytes = structure(input, LEG_LABEL_BYTES, &layout);
    let Ok(label) = LegLabel::decode(&bytes) else { return };
    assert_eq!(LegLabel::decode(label.encode().bytes()), Ok(label.clone()));
    // Of a witness: beside a leg that names it.
    let witness = Some(label.clone()).filter(|label| label.state == LegState::Witness);
    let label = match &witness {
        Some(_) => LegLabel { leg: label.membership.members[0], state: LegState::Member, ..label },
        None => label,
    };
    let mut other = label.clone();
    other.leg.0[0] ^= 1;
    if input.len() & 1 == 0 {
        let members = vec![label.leg, other.leg];
        other.number = other.number.saturating_sub(1);
        other.membership =
            label.membership.next(Tag(label.number | 1), members, label.membership.witness);
    }
    for found in [vec![label.clone()], vec![label.clone(), other]] {
        for without in [vec![], label.membership.members.clone()] {
            for witness in [None, witness.as_ref()] {
                if let Ok(choice) = choose(&found, witness, &without) {
                    assert!(choice.roles[choice.primary] == Role::InSync);
                }
            }
        }
    }
}

pub(crate) fn superblock(input: &[u8]) {
    creation_mark(input);
    data_label(input);
    leg_label(input);
    let layout = superblock::layout();
    let bytes = structure(input, SUPERBLOCK_SIZE, &layout);
    let Ok(decoded) = Superblock::decode(&bytes) else { return };
    let written = decoded.encode();
    assert_eq!(Superblock::decode(written.bytes()), Ok(decoded.clone()));
    let mut ignored = vec![
        "checksum",
        "features_compatible",
        "reserved",
        "reserved_after_copy_pages",
        "data_disk_serial",
        "memory_place",
        "reserved_after_memory",
        "unused",
    ];
    if decoded.memory.is_none() {
        // Nothing of a memory that is none.
        ignored.extend(["memory_boot_id", "memory_max_delay_milliseconds"]);
    }
    assert_same(&bytes, written.bytes(), &layout, &ignored);
    // The serial counts up to its first zero byte.
    let serial = decoded.data_disk_serial.as_bytes();
    assert!(bytes[field(&layout, "data_disk_serial")].starts_with(serial));
    // Two copies, whichever is newer, are judged without a panic.
    let _ = Superblock::newest(&bytes, input);
    assert_eq!(Superblock::newest(&bytes, written.bytes()), Ok(decoded));
}

/// What may stand in its place.
fn creation_mark(input: &[u8]) {
    let layout = creation_mark::layout();
    let bytes = structure(input, SUPERBLOCK_SIZE, &layout);
    let Ok(decoded) = CreationMark::decode(&bytes) else { return };
    let written = decoded.encode();
    assert_eq!(CreationMark::decode(written.bytes()), Ok(decoded));
    assert_same(&bytes, written.bytes(), &layout, &["checksum", "unused"]);
    assert!(Superblock::decode(&bytes).is_err());
}

/// What the data-disk says beside it.
fn data_label(input: &[u8]) {
    let layout = data_label::layout();
    let bytes = structure(input, DATA_LABEL_BYTES, &layout);
    let Ok(decoded) = DataLabel::decode(&bytes) else { return };
    let written = decoded.encode();
    assert_eq!(DataLabel::decode(written.bytes()), Ok(decoded));
    assert_same(&bytes, written.bytes(), &layout, &["checksum", "reserved", "unused"]);
    assert!(
        [decoded.epoch, decoded.epoch_max].map(|epoch| decoded.fit(epoch)) == [LabelFit::Same; 2]
    );
    let _ = DataLabel::newest(&bytes, input);
    assert_eq!(DataLabel::newest(&bytes, written.bytes()), Ok(decoded));
}

/// What is accepted comes back, and has room for what is free and no more: whatever is done to it
/// leaves a directory that is accepted, too.
pub(crate) fn share_directory(input: &[u8]) {
    let layout = share_directory::layout();
    let bytes = structure(input, DIRECTORY_COPY_BYTES, &layout);
    let Ok(decoded) = ShareDirectory::decode(&bytes) else { return };
    let written = decoded.encode();
    assert_eq!(ShareDirectory::decode(written.bytes()), Ok(decoded.clone()));
    assert_same(&bytes, written.bytes(), &layout, &["checksum", "reserved", "unused", "entries"]);
    let _ = ShareDirectory::newest(&bytes, input);
    assert_eq!(ShareDirectory::newest(&bytes, written.bytes()), Ok(decoded.clone()));
    let whole = |directory: &ShareDirectory| {
        assert_eq!(ShareDirectory::decode(directory.encode().bytes()).as_ref(), Ok(directory));
    };
    let mut changed = decoded.clone();
    for piece in decoded.free() {
        assert!(piece.end() <= decoded.disk_bytes && piece.size_bytes > 0);
    }
    let new = NewShare {
        name: "new".into(),
        cache: Uuid([0xa5; 16]),
        size_bytes: SHARE_GRAIN_BYTES + 1,
        data_disk: "/dev/sdz".into(),
    };
    if let Ok(window) = changed.allocate(new) {
        assert!(decoded.free().iter().any(|piece| {
            piece.offset_bytes <= window.offset_bytes && window.end() <= piece.end()
        }));
        whole(&changed);
        let _ = changed.resize(Uuid([0xa5; 16]), 1 << 40);
        whole(&changed);
        let has = changed.find("new").expect("it is there").windows.size_bytes();
        let all = has + changed.free_bytes();
        if let Ok(windows) = changed.resize(Uuid([0xa5; 16]), all) {
            assert_eq!((windows.size_bytes(), changed.free_bytes()), (all, 0));
        }
        whole(&changed);
        let least = changed.resize(Uuid([0xa5; 16]), 1).expect("it becomes smaller");
        assert_eq!(least.size_bytes(), SHARE_GRAIN_BYTES);
        whole(&changed);
        assert!(changed.give_back(Uuid([0xa5; 16])).is_ok());
        assert_eq!(changed, decoded);
    }
    let caches: Vec<Uuid> = decoded.shares().iter().map(|share| share.cache).collect();
    caches.iter().for_each(|cache| drop(changed.give_back(*cache)));
    assert!(changed.free().len() <= 1);
}

pub(crate) fn checkpoint(input: &[u8]) {
    let layout = checkpoint::layout();
    let (how, bytes) = input.split_first().unwrap_or((&0, &[]));
    let mut bytes = bytes.to_vec();
    if how & 2 == 0 {
        let length = bytes.len().next_multiple_of(4096).max(2 * checkpoint::HEADER_SIZE);
        bytes.resize(length, 0);
    }
    if how & 1 != 0 && bytes.len() >= checkpoint::HEADER_SIZE {
        let (header, payload) = bytes.split_at_mut(checkpoint::HEADER_SIZE);
        // As much of the payload as the counts ask for.
        let items: u64 = ["free", "filled", "live", "zeroes", "poisoned", "witnesses"]
            .map(|name| header[field(&layout, name)].try_into().expect("8 bytes"))
            .map(u64::from_le_bytes)
            .into_iter()
            .fold(0, u64::saturating_add);
        let length = items.saturating_mul(16).checked_next_multiple_of(4096).unwrap_or(0);
        let payload = payload.get(..length as usize).unwrap_or_default();
        header[field(&layout, "payload_checksum")].copy_from_slice(&crc32c(payload).to_le_bytes());
        header[field(&layout, "uuid")].copy_from_slice(&UUID.0);
        put_checksum(header, &layout);
    }
    let geometry = geometry();
    let header = Checkpoint::decode_header(&bytes, UUID, &geometry);
    let Ok(decoded) = Checkpoint::decode(&bytes, UUID, &geometry) else { return };
    let header = header.expect("the header of what is whole");
    let written = decoded.encode();
    assert_eq!(written.len() as u64, checkpoint::HEADER_SIZE as u64 + header.payload_bytes);
    assert!(written.len() as u64 <= geometry.checkpoint_area_bytes);
    assert_eq!(Checkpoint::decode(written.bytes(), UUID, &geometry), Ok(decoded));
    assert_same(&bytes, written.bytes(), &layout, &["checksum", "payload_checksum", "unused"]);
}

pub(crate) fn record(input: &[u8]) {
    let layout = record::layout();
    let bytes = structure(input, record::HEADER_SIZE, &layout);
    let Ok(decoded) = Record::decode(&bytes) else { return };
    assert!(decoded.slots() as usize <= 1 + record::ENTRIES_MAX);
    let written = decoded.encode();
    let again = Record::decode(&written).expect("what was written can be read");
    assert_eq!((&again.header, &again.entries), (&decoded.header, &decoded.entries));
    let ignored = ["checksum", "data_slots", "unused", "table"];
    assert_same(&bytes, &written, &layout, &ignored);
    let table = field(&layout, "table").start;
    let end = table + decoded.entries.len() * 16;
    for (found, written) in bytes[table..end].chunks(16).zip(written[table..end].chunks(16)) {
        // Only a data entry has a mask; it is ignored in the others.
        let is_data = found[7] == 1;
        assert_eq!(found[..6], written[..6]);
        assert!(!is_data || found[6] == written[6]);
        assert_eq!((found[7], &found[8..]), (written[7], &written[8..]));
    }
}

/// The page is named as it names itself: else nothing behind that would be looked at.
pub(crate) fn copy_page(input: &[u8]) {
    let layout = copy_page::layout();
    let bytes = structure(input, PAGE_SIZE, &layout);
    let mut whole = bytes.clone();
    whole.resize(PAGE_SIZE, 0);
    let number = |name: &str| {
        let mut word = [0; 8];
        let place = field(&layout, name);
        word[..place.len()].copy_from_slice(&whole[place]);
        u64::from_le_bytes(word)
    };
    let uuid = Uuid(whole[field(&layout, "uuid")].try_into().expect("16 bytes"));
    let expected = CopyPageRef {
        page: CopyPageIndex(number("page") as u32),
        generation: number("generation"),
        checksum: number("checksum") as u32,
    };
    let Ok(decoded) = CopyPage::decode(&bytes, uuid, &expected) else { return };
    let (written, checksum) = decoded.encode();
    let again = CopyPage::decode(written.bytes(), uuid, &CopyPageRef { checksum, ..expected });
    assert_eq!(again.as_ref(), Ok(&decoded));
    // The rest of a name and what is reserved are ignored; what belongs to a sequence, where there
    // is none.
    let mut ignored = vec!["checksum", "name", "unused", "table"];
    if decoded.sequence.is_none() {
        ignored.extend(["ordinal", "runs", "lines_served"]);
    }
    assert_same(&bytes, written.bytes(), &layout, &ignored);
    if let Some((label, _)) = &decoded.sequence {
        assert!(bytes[field(&layout, "name")].starts_with(label.name.as_bytes()));
    }
    let table = field(&layout, "table");
    let entries = bytes[table.clone()].chunks(16).zip(written.bytes()[table].chunks(16));
    for (found, written) in entries.filter(|(found, _)| found[7] != 0) {
        assert_eq!(found[..12], written[..12]);
    }
}

/// Structures of a volume; the second byte says which.
pub(crate) fn volume_format(input: &[u8]) {
    let (how, rest) = input.split_first().unwrap_or((&0, &[]));
    let (kind, bytes) = rest.split_first().unwrap_or((&0, &[]));
    let input = [&[*how], bytes].concat();
    let whole = |layout: &[FieldLayout]| structure(&input, 4096, layout);
    let uuid_of = |bytes: &[u8], layout: &[FieldLayout]| {
        let mut uuid = [0; 16];
        let found = bytes.get(field(layout, "uuid")).unwrap_or(&uuid[..0]).to_vec();
        uuid[..found.len()].copy_from_slice(&found);
        Uuid(uuid)
    };
    match kind % 5 {
        0 => {
            let layout = header::layout();
            let bytes = whole(&layout);
            let Ok(decoded) = VolumeHeader::decode(&bytes) else { return };
            let written = decoded.encode();
            assert_eq!(VolumeHeader::decode(written.bytes()), Ok(decoded.clone()));
            // Sets and rules behind the last are ignored.
            let ignored = ["checksum", "set", "rule", "unused"];
            assert_same(&bytes, written.bytes(), &layout, &ignored);
            if let Some(area) = VolumeArea::of(&decoded, 1 << 20) {
                assert!(area.bytes() > decoded.journal_bytes);
            }
        }
        1 => {
            let layout = root::layout();
            let bytes = whole(&layout);
            let uuid = uuid_of(&bytes, &layout);
            let Ok(decoded) = Root::decode(&bytes, uuid) else { return };
            let written = decoded.encode();
            assert_eq!(Root::decode(written.bytes(), uuid), Ok(decoded));
            assert_same(
                &bytes,
                written.bytes(),
                &layout,
                &["checksum", "member", "label_epoch", "disk_tag", "unused"],
            );
        }
        2 => {
            let layout = journal::layout();
            let bytes = whole(&layout);
            let uuid = uuid_of(&bytes, &layout);
            let Ok(decoded) = JournalRecord::decode(&bytes, uuid) else { return };
            let payload = vec![0; decoded.payload_lines as usize * 4096];
            let _ = decoded.has_payload(&payload);
            let written = journal::encode(uuid, decoded.sequence, &decoded.items, &payload);
            let again = JournalRecord::decode(written.bytes(), uuid).expect("it was written");
            assert_eq!((again.items, again.sequence), (decoded.items, decoded.sequence));
        }
        3 => {
            let layout = label::layout();
            let bytes = whole(&layout);
            let Ok(decoded) = MemberLabel::decode(&bytes) else { return };
            let written = decoded.encode();
            assert_eq!(MemberLabel::decode(written.bytes()), Ok(decoded));
            assert_same(&bytes, written.bytes(), &layout, &["checksum", "unused"]);
        }
        _ => {
            let layout = page::layout();
            let bytes = whole(&layout);
            let uuid = uuid_of(&bytes, &layout);
            let Ok((checkpoint, content)) = page::decode(&bytes, uuid, PageIndex(3)) else {
                return;
            };
            let written = page::encode(uuid, PageIndex(3), checkpoint, content);
            assert_same(&bytes, written.bytes(), &layout, &["checksum", "unused"]);
        }
    }
}
