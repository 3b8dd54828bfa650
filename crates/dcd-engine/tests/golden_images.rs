//! Golden images: the bytes of format version 2, kept in `images/v2/`. Proves that today's code
//! still reads them as what they were, still writes the same bytes, and still opens the cache that
//! they make together.
//!
//! An image is text: a row of 16 bytes with its offset, rows of zeroes left out. They are never
//! changed; a new format version gets a folder of its own. Written once with
//!
//! ```text
//! cargo test --locked -p dcd-engine --test golden_images -- --ignored write
//! ```
//!
//! ```text
//! checkpoint   segment 2: line 123 in part (slot 33), line 7 (slot 34)
//!              lines 100..150 zero, line 9 poisoned in part, the log goes on at segment 3, slot 0
//! record 1001  line 200, fragments 1 and 2
//! record 1002  line 200, fragment 2 again; lines 120..130 zero; line 7 bypassed; segments 8 and 9 announced;
//!              line 300: its request is not finished, so it does not count
//! ```
//!
//! Another cache has a read area: its superblock, its checkpoint, and a page of a sequence. A third
//! has a volume: one of each of its structures.

use std::fmt::Write as _;
use std::path::PathBuf;

use dcd_engine::format::checkpoint::{Checkpoint, CopyPageRef, LiveSlot, LogPosition, Witness};
use dcd_engine::format::checksum::crc32c;
use dcd_engine::format::copy_page::{CopyEntry, CopyPage, CopyState, SequenceLabel};
use dcd_engine::format::creation_mark::CreationMark;
use dcd_engine::format::data_label::{DataLabel, LabelState};
use dcd_engine::format::end_mark;
use dcd_engine::format::leg_label::{LegLabel, Tag};
use dcd_engine::format::nvram::{
    COMMIT_OFFSETS, NVRAM_HEAD_OFFSETS, NvramHead, NvramIdentity, NvramLayout, SlotHeader,
    commit_word,
};
use dcd_engine::format::record::{Entry, Record, RecordHeader};
use dcd_engine::format::share_directory::{NewShare, ShareDirectory, ShareState};
use dcd_engine::format::superblock::{CacheState, MemoryIdentity, Resized};
use dcd_engine::nvram::durable::NvramPicture;
use dcd_engine::units::{
    CopyPageIndex, CopySlot, FragmentMask, Line, MemberIndex, RecordNumber, SegmentIndex,
    SegmentSerial, SequenceId, SlotIndex,
};
use dcd_engine::volume::attributes::Attributes;
use dcd_engine::volume::config::{SetConfig, VolumeConfig};
use dcd_engine::volume::format::header::VolumeHeader;
use dcd_engine::volume::format::journal::{self, JournalItem, JournalRecord};
use dcd_engine::volume::format::label::{DiskTag, MemberLabel, Standing, TwinLabel};
use dcd_engine::volume::format::page::{self, PageIndex};
use dcd_engine::volume::format::page_map::{self, PageCopy};
use dcd_engine::volume::format::root::{
    MISSED_BYTES, MemberState, MissedBits, Root, ScrubRecord, UnfinishedScrub,
};
use dcd_engine::volume::members::MemberMask;
use dcd_engine::volume::placement::{DeviceClass, Placement, PlacementRule, RaidLevel};
use dcd_engine::volume::raid::SetLine;
use dcd_engine::zero_ranges::ZeroRange;
use dcd_engine::{
    Buffer, DataDiskInfo, Device, Engine, EngineConfig, Geometry, Input, Io, LbaRange, Operation,
    Phase, Reply, Request, RequestId, Superblock, Time, Uuid,
};
use dcd_testkit::{carry_out, settle};

const UUID: Uuid = Uuid(*b"golden dcd image");
const EPOCH: u64 = 7;
const FIRST_RECORD: RecordNumber = RecordNumber(1001);
const SERIAL: SegmentSerial = SegmentSerial(41);
const SEGMENT: SegmentIndex = SegmentIndex(3);
const PREVIOUS_CHECKSUM: u32 = 0x1122_3344;
const CHECKPOINT_GENERATION: u64 = 12;

// ---- what the images hold -------------------------------------------------------------------

fn geometry() -> Geometry {
    Geometry::fit(4 << 20, 64 << 10).expect("4 MiB are enough")
}

fn superblock() -> Superblock {
    Superblock {
        uuid: UUID,
        generation: EPOCH,
        state: CacheState::Open,
        geometry: geometry(),
        data_disk: DataDiskInfo {
            blocks: 4096,
            logical_block_size: 512,
            physical_sector_size: 4096,
        },
        data_disk_serial: "WD-WX12345678".into(),
        volume_bytes: 0,
        volume_moved_to: 0,
        data_offset_bytes: 0,
        data_label_epoch: 0,
        has_end_mark: false,
        has_legs: false,
        resized: None,
        nvram: None,
        memory: None,
        created_unix_seconds: 1_750_000_000,
    }
}

fn checkpoint() -> Checkpoint {
    let live = |line, mask, slot, checksum| LiveSlot {
        line: Line(line),
        mask: FragmentMask(mask),
        slot: SlotIndex(slot),
        checksum,
    };
    Checkpoint {
        uuid: UUID,
        generation: CHECKPOINT_GENERATION,
        epoch: EPOCH,
        position: LogPosition {
            segment: SEGMENT,
            serial: SERIAL,
            slot_in_segment: 0,
            next_record: FIRST_RECORD,
            previous_checksum: PREVIOUS_CHECKSUM,
        },
        order: 0,
        free: vec![SegmentIndex(5), SegmentIndex(1)],
        filled: vec![(SegmentIndex(2), SegmentSerial(40))],
        live: vec![live(123, 0x3c, 33, 0xabcd_ef01), live(7, 0xff, 34, 0x0203_0405)],
        zeroes: vec![ZeroRange { line: Line(100), lines: 50, may_unmap: false }],
        poisoned: vec![(Line(9), FragmentMask(0x81))],
        witnesses: vec![Witness { line: Line(1), checksum: crc32c(&[0; 4096]) }],
        copy_pages: Vec::new(),
    }
}

/// The entries of the two records. Checksums of slots are over the whole 4 KiB.
fn entries() -> [Vec<Entry>; 2] {
    let data = |line, mask, slot: [u8; 4096]| Entry::Data {
        line: Line(line),
        mask: FragmentMask(mask),
        checksum: crc32c(&slot),
    };
    [
        vec![data(200, 0b110, slot(512, &pattern(1, 1024)))],
        vec![
            data(200, 0b100, slot(1024, &pattern(2, 512))),
            Entry::Zero { line: Line(120), lines: 10, may_unmap: false },
            Entry::Bypass { range: LbaRange::new(56, 8) },
            Entry::Announce { first: SegmentIndex(8), count: 2 },
            data(300, 0b1, slot(0, &pattern(3, 512))),
        ],
    ]
}

fn slot(at: usize, bytes: &[u8]) -> [u8; 4096] {
    let mut slot = [0; 4096];
    slot[at..at + bytes.len()].copy_from_slice(bytes);
    slot
}

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}

fn geometry_with_read_area() -> Geometry {
    Geometry::fit_with_copies(8 << 20, 64 << 10, 2).expect("8 MiB are enough")
}

fn superblock_with_read_area() -> Superblock {
    let (geometry, state) = (geometry_with_read_area(), CacheState::Closed);
    Superblock { geometry, state, generation: EPOCH + 1, ..superblock() }
}

/// Of a labelled data-disk, with an end mark and a segment memory.
fn superblock_of_session() -> Superblock {
    Superblock {
        data_offset_bytes: 1 << 20,
        has_end_mark: true,
        has_legs: false,
        memory: Some(MemoryIdentity {
            boot_id: *b"this boot of 16.",
            memory_id: *b"golden memory 16",
            place: "/dev/shm".into(),
            max_delay_milliseconds: 0,
        }),
        ..superblock()
    }
}

/// Of a labelled data-disk whose cache was used before.
fn superblock_labelled() -> Superblock {
    Superblock {
        state: CacheState::Closed,
        data_label_epoch: 6,
        memory: None,
        ..superblock_of_session()
    }
}

/// Of a log that has grown twice and shrunk into its second annex, in the session that did so.
fn superblock_resized() -> Superblock {
    let made = Superblock { has_end_mark: true, ..superblock() };
    let on = |superblock: Superblock, bytes: u64| Superblock {
        geometry: superblock.geometry_on(bytes).expect("it fits"),
        ..superblock
    };
    Superblock {
        generation: EPOCH + 3,
        resized: Some(Resized {
            session_epoch: EPOCH,
            checkpoint_generation: CHECKPOINT_GENERATION,
        }),
        ..on(on(on(made, 9 << 20), 17 << 20), 13 << 20)
    }
}

/// The label beside it, while that superblock is written.
fn superblock_on_legs() -> Superblock {
    Superblock { has_legs: true, ..superblock() }
}

/// Of the second leg, which joined the first not long ago, while two regions are written.
fn leg_label() -> LegLabel {
    let legs = [Uuid(*b"first golden leg"), Uuid(*b"other golden leg")];
    let alone = LegLabel::of_new(UUID, &legs[..1], 0, Tag(0x0102_0304_0506_0708));
    LegLabel {
        leg: legs[1],
        number: 12,
        membership: alone.membership.next(Tag(0xf1f2_f3f4_f5f6_f7f8), legs.to_vec(), None),
        marks: vec![0, 3],
        ..alone
    }
}

/// Of the witness of both, later.
fn leg_label_of_witness() -> LegLabel {
    let label = LegLabel { number: 13, ..leg_label() };
    label.with_witness(Uuid(*b"a golden witness")).of_witness()
}

fn data_label() -> DataLabel {
    DataLabel {
        uuid: UUID,
        writing: 11,
        epoch: 5,
        epoch_max: 6,
        state: LabelState::Dirty,
        payload_offset_bytes: 1 << 20,
        payload_bytes: 4096 * 512,
    }
}

/// Of a disk of 64 MiB with three shares, of which one was given back.
fn share_directory() -> ShareDirectory {
    let mut directory = ShareDirectory::new(Uuid(*b"golden directory"), 64 << 20);
    directory.generation = 7;
    let names = [("sdb", *b"first golden one"), ("gone", *b"second is gone.."), ("db.1", UUID.0)];
    for (index, (name, cache)) in names.into_iter().enumerate() {
        let new = NewShare {
            name: name.into(),
            cache: Uuid(cache),
            size_bytes: (index as u64 + 2) << 20,
            data_disk: format!("/dev/disk/by-id/{name}"),
        };
        directory.allocate(new).expect("there is room");
    }
    directory.set_state(Uuid(names[0].1), ShareState::InUse).expect("it is there");
    directory.give_back(Uuid(names[1].1)).expect("it is there");
    directory.set_state(UUID, ShareState::Leaving).expect("it is there");
    directory
}

/// The same when the first share has grown behind the last.
fn share_directory_with_windows() -> ShareDirectory {
    let mut directory = share_directory();
    let windows = directory.resize(Uuid(*b"first golden one"), 9 << 20).expect("there is room");
    assert_eq!(windows.iter().count(), 2);
    directory
}

/// Of a session that acknowledges from its memory.
fn superblock_with_memory() -> Superblock {
    let mut superblock = superblock_of_session();
    superblock.memory.as_mut().expect("it has one").max_delay_milliseconds = 5000;
    superblock
}

/// Lines 500 and 20, of which the second was changed since.
fn nvram_identity() -> NvramIdentity {
    NvramIdentity { id: Uuid(*b"golden nvram 16b"), generation: 3 }
}

fn superblock_with_nvram() -> Superblock {
    Superblock { nvram: Some(nvram_identity()), ..superblock() }
}

/// Three blocks in the memory in front of the log, one of them written twice: with an older slot
/// that a crash has left, and one of a batch that was never committed.
fn nvram_memory() -> Vec<u8> {
    let id = nvram_identity().id;
    let layout = NvramLayout { slots: 128 };
    let mut bytes = vec![0; layout.bytes() as usize];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    let head = NvramHead { cache: UUID, identity: nvram_identity(), slots: 128 };
    NVRAM_HEAD_OFFSETS.iter().for_each(|at| put(*at as usize, head.encode().bytes()));
    COMMIT_OFFSETS.iter().for_each(|at| put(*at as usize, &commit_word(id, 9).to_le_bytes()));
    for (slot, sequence, block) in [(0, 7, 40), (1, 7, 41), (2, 9, 40), (3, 10, 41), (127, 8, 5)] {
        let data = pattern(sequence as u8, 512);
        let data_checksum = crc32c(&data);
        let header = SlotHeader { sequence, block, data_checksum }.encode(id, slot);
        [0, 1].into_iter().for_each(|copy| put(NvramLayout::header_at(slot, copy), &header));
        put(NvramLayout::slot_at(slot), &data);
    }
    bytes
}

fn copy_page() -> CopyPage {
    let label = SequenceLabel {
        id: SequenceId(3),
        name: "gimp".into(),
        is_pinned: true,
        is_detected: false,
        runs: 5,
        lines_served: 1234,
    };
    let copy = |line, checksum, state| Some(CopyEntry { line: Line(line), checksum, state });
    let mut entries = vec![None; 248];
    entries[0] = copy(500, crc32c(&slot(0, &pattern(4, 4096))), CopyState::Valid);
    entries[1] = copy(20, 0x1234_5678, CopyState::Stale);
    CopyPage {
        uuid: UUID,
        page: CopyPageIndex(1),
        generation: 9,
        sequence: Some((label, 0)),
        entries,
    }
}

fn checkpoint_with_read_area() -> Checkpoint {
    let (_, checksum) = copy_page().encode();
    Checkpoint {
        filled: Vec::new(),
        live: Vec::new(),
        zeroes: Vec::new(),
        poisoned: Vec::new(),
        copy_pages: vec![CopyPageRef { page: CopyPageIndex(1), generation: 9, checksum }],
        ..checkpoint()
    }
}

/// Of zeroes whose space may be freed: images before this bit have none.
fn checkpoint_with_freed_zeroes() -> Checkpoint {
    let freed = ZeroRange { line: Line(150), lines: 7, may_unmap: true };
    Checkpoint { zeroes: vec![checkpoint().zeroes[0], freed], ..checkpoint() }
}

/// With live slots in the order of their lines' hash.
fn checkpoint_in_order() -> Checkpoint {
    let mut live = checkpoint().live;
    live.reverse();
    Checkpoint { order: 0x9e37_79b9_7f4a_7c15, live, ..checkpoint() }
}

/// The same of a record.
fn record_with_freed_zeroes() -> Record {
    Record {
        header: RecordHeader {
            uuid: UUID,
            epoch: EPOCH,
            serial: SERIAL,
            segment: SEGMENT,
            slot_in_segment: 0,
            number: FIRST_RECORD,
            previous_checksum: PREVIOUS_CHECKSUM,
            durable: RecordNumber(1000),
            checkpoint_generation: CHECKPOINT_GENERATION,
            unfinished: 0,
        },
        entries: vec![
            Entry::Zero { line: Line(120), lines: 10, may_unmap: true },
            Entry::Zero { line: Line(140), lines: 10, may_unmap: false },
        ],
        checksum: 0,
    }
}

/// Both records with their slots, one behind the other. That the log writes the same:
/// `log/tests.rs`.
fn encode_records() -> Vec<u8> {
    let slots = [
        vec![slot(512, &pattern(1, 1024))],
        vec![slot(1024, &pattern(2, 512)), slot(0, &pattern(3, 512))],
    ];
    let mut bytes: Vec<u8> = Vec::new();
    let mut previous_checksum = PREVIOUS_CHECKSUM;
    for (index, (entries, slots)) in entries().into_iter().zip(slots).enumerate() {
        let header = RecordHeader {
            slot_in_segment: (bytes.len() / 4096) as u32,
            number: RecordNumber(FIRST_RECORD.0 + index as u64),
            previous_checksum,
            durable: RecordNumber(FIRST_RECORD.0 - 1),
            unfinished: index as u16,
            ..record_with_freed_zeroes().header
        };
        let encoded = Record { header, entries, checksum: 0 }.encode();
        previous_checksum = Record::decode(&encoded).expect("it was encoded").checksum;
        bytes.extend(encoded);
        bytes.extend(slots.as_flattened());
    }
    bytes
}

// ---- images as text -------------------------------------------------------------------------

fn image_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/images/v2").join(format!("{name}.hex"))
}

fn to_text(bytes: &[u8]) -> String {
    let mut text = format!("bytes {}\n", bytes.len());
    for (row, bytes) in bytes.chunks(16).enumerate() {
        if bytes.iter().any(|byte| *byte != 0) {
            let _ = write!(text, "{:06x}:", row * 16);
            for byte in bytes {
                let _ = write!(text, " {byte:02x}");
            }
            text.push('\n');
        }
    }
    text
}

fn read_image(name: &str) -> Vec<u8> {
    let text = std::fs::read_to_string(image_path(name)).expect("the image is there");
    let mut lines = text.lines();
    let length = lines.next().and_then(|line| line.strip_prefix("bytes ")).expect("a length");
    let mut bytes = vec![0; length.parse().expect("a number")];
    for line in lines {
        let (offset, row) = line.split_once(':').expect("an offset");
        let offset = usize::from_str_radix(offset, 16).expect("a hexadecimal offset");
        for (i, byte) in row.split_whitespace().enumerate() {
            bytes[offset + i] = u8::from_str_radix(byte, 16).expect("a hexadecimal byte");
        }
    }
    bytes
}

// ---- tests ----------------------------------------------------------------------------------

#[test]
#[ignore = "writes the images; only for a new format version"]
fn write() {
    let images = [
        ("superblock", superblock().encode().bytes().to_vec()),
        ("checkpoint", checkpoint().encode().bytes().to_vec()),
        ("records", encode_records()),
        ("checkpoint-freed", checkpoint_with_freed_zeroes().encode().bytes().to_vec()),
        ("record-freed", record_with_freed_zeroes().encode()),
        ("superblock-read-area", superblock_with_read_area().encode().bytes().to_vec()),
        ("checkpoint-order", checkpoint_in_order().encode().bytes().to_vec()),
        ("checkpoint-read-area", checkpoint_with_read_area().encode().bytes().to_vec()),
        ("copy-page", copy_page().encode().0.bytes().to_vec()),
        ("superblock-session", superblock_of_session().encode().bytes().to_vec()),
        ("superblock-labelled", superblock_labelled().encode().bytes().to_vec()),
        ("data-label", data_label().encode().bytes().to_vec()),
        ("share-directory", share_directory().encode().bytes().to_vec()),
        ("share-directory-windows", share_directory_with_windows().encode().bytes().to_vec()),
        ("superblock-legs", superblock_on_legs().encode().bytes().to_vec()),
        ("leg-label", leg_label().encode().bytes().to_vec()),
        ("leg-label-witness", leg_label_of_witness().encode().bytes().to_vec()),
        ("superblock-resized", superblock_resized().encode().bytes().to_vec()),
        ("end-mark", end_mark::encode(UUID).bytes().to_vec()),
        ("superblock-memory", superblock_with_memory().encode().bytes().to_vec()),
        ("superblock-nvram", superblock_with_nvram().encode().bytes().to_vec()),
        ("nvram", nvram_memory()),
    ];
    let images = images.into_iter().chain(volume_images());
    // A golden image does not change: those that are there stay.
    for (name, bytes) in images.filter(|(name, _)| !image_path(name).exists()) {
        std::fs::write(image_path(name), to_text(&bytes)).expect("the image is written");
    }
}

#[test]
fn the_superblock_is_read_and_written_as_ever() {
    let image = read_image("superblock");
    assert_eq!(Superblock::decode(&image), Ok(superblock()));
    assert!(superblock().encode().bytes() == image, "the same bytes");
}

/// Version 1 had no announcements: a program of then does not follow the log of one with them, and
/// none goes back.
#[test]
fn a_cache_of_version_1_is_refused_and_both_versions_are_named() {
    let image = read_image("../v1/superblock");
    let error = Superblock::decode(&image).expect_err("of version 1").to_string();
    assert!(error.contains('1') && error.contains('2') && error.contains("version"), "{error}");
}

/// Such a read area lay behind the room of the segments: the log would be taken for shorter than it
/// is.
#[test]
fn a_read_area_of_before_it_could_be_resized_is_refused() {
    let image = read_image("superblock-read-area-behind");
    assert_eq!(Superblock::decode(&image), Err(dcd_engine::FormatError::Features { unknown: 1 }));
}

#[test]
fn the_directory_of_shares_is_read_and_written_as_ever() {
    let image = read_image("share-directory");
    assert_eq!(ShareDirectory::decode(&image), Ok(share_directory()));
    assert!(share_directory().encode().bytes() == image, "the same bytes");
    let image = read_image("share-directory-windows");
    assert_eq!(ShareDirectory::decode(&image), Ok(share_directory_with_windows()));
    assert!(share_directory_with_windows().encode().bytes() == image, "the same bytes");
}

#[test]
fn the_checkpoint_is_read_and_written_as_ever() {
    let image = read_image("checkpoint");
    assert_eq!(Checkpoint::decode(&image, UUID, &geometry()), Ok(checkpoint()));
    assert!(checkpoint().encode().bytes() == image, "the same bytes");
    let (image, expected) = (read_image("checkpoint-order"), checkpoint_in_order());
    assert_eq!(Checkpoint::decode(&image, UUID, &geometry()).as_ref(), Ok(&expected));
    assert!(expected.encode().bytes() == image, "the same bytes");
}

#[test]
fn which_zeroes_may_free_their_space_is_read_and_written_as_ever() {
    let image = read_image("checkpoint-freed");
    let expected = checkpoint_with_freed_zeroes();
    assert_eq!(Checkpoint::decode(&image, UUID, &geometry()).as_ref(), Ok(&expected));
    assert!(expected.encode().bytes() == image, "the same bytes");
    let image = read_image("record-freed");
    let expected = record_with_freed_zeroes();
    assert_eq!(Record::decode(&image).expect("a record").entries, expected.entries);
    assert!(expected.encode() == image, "the same bytes");
}

#[test]
fn the_records_are_read_and_written_as_ever() {
    let image = read_image("records");
    assert!(encode_records() == image, "the same bytes");
    let first = Record::decode(&image).expect("record 1001");
    let second = Record::decode(&image[first.slots() as usize * 4096..]).expect("record 1002");
    assert_eq!([first.entries.clone(), second.entries.clone()], entries());
    for (record, number, slot, previous, unfinished) in
        [(&first, 1001, 0, PREVIOUS_CHECKSUM, 0), (&second, 1002, 2, first.checksum, 1)]
    {
        let header = &record.header;
        assert_eq!((header.uuid, header.epoch, header.serial), (UUID, EPOCH, SERIAL));
        assert_eq!((header.segment, header.slot_in_segment), (SEGMENT, slot));
        assert_eq!((header.number, header.durable), (RecordNumber(number), RecordNumber(1000)));
        assert_eq!(header.previous_checksum, previous);
        assert_eq!(header.checkpoint_generation, CHECKPOINT_GENERATION);
        assert_eq!(header.unfinished, unfinished);
    }
}

#[test]
fn what_a_read_area_adds_is_read_and_written_as_ever() {
    let image = read_image("superblock-read-area");
    assert_eq!(Superblock::decode(&image), Ok(superblock_with_read_area()));
    assert!(superblock_with_read_area().encode().bytes() == image, "the same bytes");
    let image = read_image("checkpoint-read-area");
    let checkpoint = checkpoint_with_read_area();
    let back = Checkpoint::decode(&image, UUID, &geometry_with_read_area());
    assert_eq!(back.as_ref(), Ok(&checkpoint));
    assert!(checkpoint.encode().bytes() == image, "the same bytes");
    let image = read_image("copy-page");
    assert_eq!(CopyPage::decode(&image, UUID, &checkpoint.copy_pages[0]), Ok(copy_page()));
    assert!(copy_page().encode().0.bytes() == image, "the same bytes");
}

#[test]
fn a_memory_in_front_of_the_log_is_read_and_written_as_ever() {
    let image = read_image("superblock-nvram");
    assert_eq!(Superblock::decode(&image), Ok(superblock_with_nvram()));
    assert_eq!(superblock_with_nvram().encode().bytes(), image);
    let image = read_image("nvram");
    assert!(nvram_memory() == image, "written otherwise");
    let picture = NvramPicture::of(&image).unwrap();
    let head = NvramHead { cache: UUID, identity: nvram_identity(), slots: 128 };
    assert_eq!(picture.heads, [Ok(head), Ok(head)]);
    assert_eq!(picture.commits, [Some(9); 2]);
    assert_eq!(picture.ranges, [LbaRange::new(5, 1), LbaRange::new(40, 2)]);
    assert_eq!((picture.uncommitted_slots, picture.unnamed_slots), (1, 0));
    assert!(picture.damaged.is_empty());
}

#[test]
fn what_a_session_adds_is_read_and_written_as_ever() {
    let image = read_image("superblock-session");
    assert_eq!(Superblock::decode(&image), Ok(superblock_of_session()));
    assert!(superblock_of_session().encode().bytes() == image, "the same bytes");
    let image = read_image("superblock-labelled");
    assert_eq!(Superblock::decode(&image), Ok(superblock_labelled()));
    assert!(superblock_labelled().encode().bytes() == image, "the same bytes");
    let image = read_image("data-label");
    assert_eq!(DataLabel::decode(&image), Ok(data_label()));
    assert!(data_label().encode().bytes() == image, "the same bytes");
    let image = read_image("superblock-legs");
    assert_eq!(Superblock::decode(&image), Ok(superblock_on_legs()));
    assert!(superblock_on_legs().encode().bytes() == image, "the same bytes");
    let image = read_image("leg-label");
    assert_eq!(LegLabel::decode(&image), Ok(leg_label()));
    assert!(leg_label().encode().bytes() == image, "the same bytes");
    let image = read_image("leg-label-witness");
    assert_eq!(LegLabel::decode(&image), Ok(leg_label_of_witness()));
    assert!(leg_label_of_witness().encode().bytes() == image, "the same bytes");
    let image = read_image("superblock-resized");
    assert_eq!(Superblock::decode(&image), Ok(superblock_resized()));
    assert!(superblock_resized().encode().bytes() == image, "the same bytes");
    let image = read_image("superblock-memory");
    assert_eq!(Superblock::decode(&image), Ok(superblock_with_memory()));
    assert!(superblock_with_memory().encode().bytes() == image, "the same bytes");
    let image = read_image("end-mark");
    assert_eq!(end_mark::verify(&image, UUID), Ok(()));
    assert!(end_mark::encode(UUID).bytes() == image, "the same bytes");
}

/// Two disks in memory, and an engine on them that ends each I/O at once.
struct Bench {
    engine: Engine,
    cache_disk: Vec<u8>,
    data_disk: Vec<u8>,
    answers: Vec<(bool, Option<Buffer>)>,
}

impl Bench {
    fn open(superblock: Superblock, cache_disk: Vec<u8>, data_disk: Vec<u8>) -> Bench {
        let config = EngineConfig::default();
        let memory = Buffer::zeroed(Engine::segment_memory_size(&superblock.geometry, &config));
        let size = cache_disk.len() as u64;
        let info = superblock.data_disk;
        let engine = Engine::open(Time::ZERO, superblock, size, info, config, Box::new(memory));
        let engine = engine.expect("the sizes fit");
        let mut bench = Bench { engine, cache_disk, data_disk, answers: Vec::new() };
        // A start goes by parts: as many as these images have at most.
        for _ in 0..20 {
            if *bench.engine.phase() == Phase::Opening {
                bench.give(Input::Timeout);
            }
        }
        assert_eq!(*bench.engine.phase(), Phase::Running);
        bench
    }

    fn give(&mut self, input: Input) {
        let Bench { engine, cache_disk, data_disk, answers } = self;
        let carry_out = |io: Io, memory: &[u8]| match io.device {
            Device::CacheDisk => carry_out(io, memory, cache_disk),
            Device::DataDisk => carry_out(io, memory, data_disk),
            Device::Member(_) | Device::Leg(_) | Device::Witness | Device::Nvram => {
                unreachable!("one of each")
            }
        };
        let reply = |reply: Reply| answers.push((reply.result.is_ok(), reply.buffer));
        settle(engine, Time::ZERO, input, carry_out, reply);
    }

    fn read(&mut self, start: u64, blocks: u64) -> Option<Vec<u8>> {
        let operation = Operation::read(LbaRange::new(start, blocks));
        self.give(Input::Request(Request { id: RequestId(1), operation, fua: false }));
        let (ok, buffer) = self.answers.pop().expect("an answer");
        ok.then(|| buffer.expect("data").bytes().to_vec())
    }
}

#[test]
fn the_cache_they_make_together_opens() {
    let mut cache_disk = vec![0; geometry().end() as usize];
    let mut put = |offset: u64, bytes: &[u8]| {
        cache_disk[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    };
    let superblock = Superblock::decode(&read_image("superblock")).expect("the superblock");
    put(superblock.offset(), &read_image("superblock"));
    put(geometry().checkpoint_offsets[checkpoint().area()], &read_image("checkpoint"));
    put(geometry().segment_offset(SEGMENT), &read_image("records"));
    // Zeroes, as its witness says, with something in line 7 that was written past the log.
    let mut data_disk = vec![0; superblock.data_disk.bytes() as usize];
    data_disk[7 * 4096..8 * 4096].fill(0x77);
    let mut bench = Bench::open(superblock, cache_disk, data_disk);
    let status = bench.engine.status();
    assert_eq!((status.recovery.records, status.recovery.poisoned_lines), (2, 1));
    // Line 200 alone: 123 was zeroed, 7 bypassed, and the request of 300 was not finished.
    assert_eq!((status.dirty_lines, status.zero_ranges), (1, 1));
    let line = bench.read(200 * 8, 8).expect("line 200");
    assert_eq!(line[..512], [0; 512]);
    assert_eq!(line[512..1024], pattern(1, 1024)[..512]);
    assert_eq!(line[1024..1536], pattern(2, 512));
    assert_eq!(line[1536..], [0; 2560]);
    assert_eq!(bench.read(7 * 8, 8), Some(vec![0x77; 4096]));
    assert_eq!(bench.read(123 * 8, 8), Some(vec![0; 4096]));
    assert_eq!(bench.read(300 * 8, 1), Some(vec![0; 512]));
    assert_eq!(bench.read(9 * 8, 1), None, "poisoned");
    assert_eq!(bench.read(9 * 8 + 1, 6), Some(vec![0; 3072]), "not poisoned");
}

#[test]
fn a_copy_of_the_read_area_is_served() {
    let geometry = geometry_with_read_area();
    let mut cache_disk = vec![0; geometry.end() as usize];
    let mut put = |offset: u64, bytes: &[u8]| {
        cache_disk[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    };
    let superblock = superblock_with_read_area();
    put(superblock.offset(), &read_image("superblock-read-area"));
    let area = geometry.checkpoint_offsets[checkpoint_with_read_area().area()];
    put(area, &read_image("checkpoint-read-area"));
    put(geometry.copy_page_offset(CopyPageIndex(1), 9), &read_image("copy-page"));
    put(geometry.copy_slot_offset(CopySlot(248)), &pattern(4, 4096));
    let data_disk = vec![0; superblock.data_disk.bytes() as usize];
    let mut bench = Bench::open(superblock, cache_disk, data_disk);
    let copies = bench.engine.status().copies;
    assert_eq!((copies.slots, copies.valid, copies.stale), (496, 1, 1));
    // The data-disk has zeroes there.
    assert_eq!(bench.read(500 * 8, 8), Some(pattern(4, 4096)));
    assert_eq!(bench.read(20 * 8, 8), Some(vec![0; 4096]));
}

// ---- the structures of a volume -----------------------------------------------------------------

fn volume_header() -> VolumeHeader {
    let set = |level, copies, place: u64| SetConfig {
        level,
        class: DeviceClass::Slow,
        members: vec![MemberIndex(2), MemberIndex(0), MemberIndex(1), MemberIndex(3)],
        stripe_unit_bytes: 16 << 10,
        copies,
        member_offset_bytes: (1 << 20) + place * (1 << 20),
        member_bytes: 1 << 20,
    };
    let sets =
        vec![set(RaidLevel::Raid1, 2, 0), set(RaidLevel::Raid5, 1, 1), set(RaidLevel::Raid0, 1, 2)];
    let config = VolumeConfig {
        members: 4,
        sets,
        extent_bytes: 32 << 10,
        logical_bytes: 8 << 20,
        temporary_bytes: 1 << 20,
        selective_caching: true,
        twin_region_pages: 16,
        migrate_bytes_per_second_max: 5_000_000,
        placement: Placement::default(),
    };
    VolumeHeader { uuid: UUID, config, pointers_max: 700, journal_bytes: 1 << 20 }
}

/// Sets of two classes, and a rule that names one.
fn volume_header_with_classes() -> VolumeHeader {
    let mut header = volume_header();
    header.config.sets[0].class = DeviceClass::Fast;
    let last = header.config.placement.rules().last().copied().unwrap();
    let cold = PlacementRule { required: Attributes::COLD, class: Some(DeviceClass::Slow), ..last };
    let hot = PlacementRule { required: Attributes::HOT, class: Some(DeviceClass::Fast), ..last };
    header.config.placement = Placement::new(vec![cold, hot, last]).unwrap();
    header
}

fn volume_root() -> Root {
    let members = vec![
        MemberState::UpToDate,
        MemberState::Stale,
        MemberState::Rebuilding { set: 1, stripe: 33 },
        MemberState::UpToDate,
    ];
    Root {
        pointer_pages_added: 0,
        uuid: UUID,
        checkpoint: 8,
        tail_sequence: 501,
        tail_line: 77,
        epoch: 4,
        map: Some(volume_page_copy()),
        lost_since_record: 499,
        twin_since: 3,
        label_epochs: vec![0; members.len()],
        disks: vec![DiskTag::default(); members.len()],
        missed: None,
        scrub: ScrubRecord::default(),
        members,
    }
}

fn member_label() -> MemberLabel {
    let twin = TwinLabel { offset: 4 << 20, generation: 3, holders: MemberMask(0b1001) };
    MemberLabel { epoch: 4, twin: Some(twin), ..MemberLabel::first(UUID, MemberIndex(2)) }
}

/// Of a disk that was a member.
fn member_label_released() -> MemberLabel {
    MemberLabel {
        disk: DiskTag(0x0102_0304_0506_0708),
        standing: Standing::Released,
        ..member_label()
    }
}

/// Of a spare that has got all of a member.
fn member_label_spare() -> MemberLabel {
    MemberLabel { standing: Standing::SpareMember, ..member_label_released() }
}

/// With disks that have come since.
fn volume_root_with_disks() -> Root {
    let disks = [0, 0x0102_0304_0506_0708, 0, u64::MAX].map(DiskTag).to_vec();
    Root { disks, ..volume_root_with_labels() }
}

/// With what members have missed that are away.
fn volume_root_with_missed() -> Root {
    let bits = pattern(3, MISSED_BYTES);
    let missed = Some(MissedBits { members: 0b0110, region_bytes: 64 << 10, bits });
    Root { missed, ..volume_root_with_disks() }
}

/// With a scrub that is not finished.
fn volume_root_with_scrub() -> Root {
    let unfinished = Some(UnfinishedScrub {
        began: 1_750_000_300,
        set: 1,
        stripe: 0x0102_0304_0506,
        found: 7,
        is_put_off: true,
    });
    let scrub = ScrubRecord { since: 1_750_000_200, ended: 1_750_000_100, found: 3, unfinished };
    Root { scrub, ..volume_root_with_missed() }
}

fn journal_items_with_missed() -> [JournalItem; 1] {
    [JournalItem::Member { member: MemberIndex(1), state: MemberState::Stale, is_noted: true }]
}

fn journal_items_with_disk() -> [JournalItem; 1] {
    [JournalItem::Disk { member: MemberIndex(1), disk: DiskTag(0x0102_0304_0506_0708) }]
}

/// With what programs before did not say: epochs of labels.
fn volume_root_with_labels() -> Root {
    Root { label_epochs: vec![4, 2, 4, 3], ..volume_root() }
}

fn volume_page_copy() -> PageCopy {
    PageCopy { checkpoint: 8, second: true, has_lost: false, checksum: 0x0102_0304 }
}

fn volume_map() -> [Option<PageCopy>; 3] {
    let lost = PageCopy { checkpoint: 5, second: false, has_lost: true, checksum: 7 };
    [Some(volume_page_copy()), None, Some(lost)]
}

fn journal_items_with_labels() -> [JournalItem; 2] {
    let some = [None, Some(MemberMask(0b1101))];
    some.map(|labelled| JournalItem::Epoch { epoch: 4, labelled })
}

fn journal_items_of_twin() -> [JournalItem; 2] {
    let unsure = JournalItem::Unsure { set: 1, stripe: 9, row: 3, column: 2, lines: 1 };
    [unsure, JournalItem::Marked { region: 7 }]
}

fn journal_items() -> [JournalItem; 7] {
    [
        JournalItem::Lines { set: 1, stripe: 9, row: 3, column: 2, lines: 1 },
        JournalItem::Extent { extent: 5, packed: 0x0010_0100_0000_0007 },
        JournalItem::Pointer { slot: 6, packed: 0x0000_0002_0000_0003 },
        JournalItem::Member {
            member: MemberIndex(2),
            state: volume_root().members[2],
            is_noted: false,
        },
        JournalItem::Epoch { epoch: 4, labelled: None },
        JournalItem::Lost { set: 1, stripe: 9, row: 1, column: 2, lines: 1 },
        JournalItem::Found { set: 2, first: SetLine(70), lines: 130 },
    ]
}

/// Of a volume that has grown in the session that is open.
fn superblock_of_grown_volume() -> Superblock {
    Superblock {
        generation: EPOCH + 1,
        volume_bytes: 7 << 20,
        volume_moved_to: 21 << 20,
        has_end_mark: true,
        resized: Some(Resized {
            session_epoch: EPOCH,
            checkpoint_generation: CHECKPOINT_GENERATION,
        }),
        ..superblock()
    }
}

fn volume_images() -> [(&'static str, Vec<u8>); 19] {
    let bytes = |buffer: Buffer| buffer.bytes().to_vec();
    let superblock = Superblock { volume_bytes: 5 << 20, ..superblock() };
    [
        ("superblock-volume-grown", bytes(superblock_of_grown_volume().encode())),
        ("superblock-volume", bytes(superblock.encode())),
        ("volume-header", bytes(volume_header().encode())),
        ("volume-header-with-classes", bytes(volume_header_with_classes().encode())),
        ("volume-root", bytes(volume_root().encode())),
        ("volume-page", bytes(page::encode(UUID, PageIndex(3), 8, &pattern(9, 4032)))),
        ("volume-map-page", {
            let content = page_map::encode(volume_map().into_iter());
            bytes(page::encode(UUID, PageIndex(0), 8, &content))
        }),
        ("volume-journal", bytes(journal::encode(UUID, 501, &journal_items(), &pattern(5, 4096)))),
        ("volume-journal-twin", bytes(journal::encode(UUID, 502, &journal_items_of_twin(), &[]))),
        ("member-label", bytes(member_label().encode())),
        ("volume-root-labels", bytes(volume_root_with_labels().encode())),
        (
            "volume-journal-labels",
            bytes(journal::encode(UUID, 502, &journal_items_with_labels(), &[])),
        ),
        ("member-label-released", bytes(member_label_released().encode())),
        ("member-label-spare", bytes(member_label_spare().encode())),
        ("volume-root-disks", bytes(volume_root_with_disks().encode())),
        ("volume-journal-disk", bytes(journal::encode(UUID, 502, &journal_items_with_disk(), &[]))),
        ("volume-root-missed", bytes(volume_root_with_missed().encode())),
        ("volume-root-scrub", bytes(volume_root_with_scrub().encode())),
        (
            "volume-journal-missed",
            bytes(journal::encode(UUID, 502, &journal_items_with_missed(), &[])),
        ),
    ]
}

#[test]
fn the_mark_of_a_creation_is_read_and_written_as_ever() {
    let (mark, image) = (CreationMark { end: 5 << 30 }, read_image("creation-mark"));
    assert_eq!(CreationMark::decode(&image), Ok(mark));
    assert!(mark.encode().bytes() == image, "the same bytes");
}

#[test]
fn structures_of_a_volume_are_written_as_ever() {
    for (name, bytes) in volume_images() {
        assert!(read_image(name) == bytes, "{name}: the same bytes");
    }
}

#[test]
fn structures_of_a_volume_are_read_as_ever() {
    let superblock = Superblock::decode(&read_image("superblock-volume")).unwrap();
    assert_eq!(superblock.volume_bytes, 5 << 20);
    let superblock = Superblock::decode(&read_image("superblock-volume-grown"));
    assert_eq!(superblock, Ok(superblock_of_grown_volume()));
    assert_eq!(VolumeHeader::decode(&read_image("volume-header")), Ok(volume_header()));
    assert_eq!(
        VolumeHeader::decode(&read_image("volume-header-with-classes")),
        Ok(volume_header_with_classes())
    );
    assert_eq!(Root::decode(&read_image("volume-root"), UUID), Ok(volume_root()));
    let root = Root::decode(&read_image("volume-root-labels"), UUID);
    assert_eq!(root, Ok(volume_root_with_labels()));
    let record = JournalRecord::decode(&read_image("volume-journal-labels"), UUID).unwrap();
    assert_eq!(record.items, journal_items_with_labels());
    assert_eq!(MemberLabel::decode(&read_image("member-label")), Ok(member_label()));
    let record = JournalRecord::decode(&read_image("volume-journal-twin"), UUID).unwrap();
    assert_eq!(record.items, journal_items_of_twin());
    let label = MemberLabel::decode(&read_image("member-label-released"));
    assert_eq!(label, Ok(member_label_released()));
    let label = MemberLabel::decode(&read_image("member-label-spare"));
    assert_eq!(label, Ok(member_label_spare()));
    let root = Root::decode(&read_image("volume-root-disks"), UUID);
    assert_eq!(root, Ok(volume_root_with_disks()));
    let record = JournalRecord::decode(&read_image("volume-journal-disk"), UUID).unwrap();
    assert_eq!(record.items, journal_items_with_disk());
    let root = Root::decode(&read_image("volume-root-missed"), UUID);
    assert_eq!(root, Ok(volume_root_with_missed()));
    let root = Root::decode(&read_image("volume-root-scrub"), UUID);
    assert_eq!(root, Ok(volume_root_with_scrub()));
    let record = JournalRecord::decode(&read_image("volume-journal-missed"), UUID).unwrap();
    assert_eq!(record.items, journal_items_with_missed());
    let image = read_image("volume-page");
    let (checkpoint, content) = page::decode(&image, UUID, PageIndex(3)).unwrap();
    assert_eq!((checkpoint, &content[..]), (8, &pattern(9, 4032)[..]));
    let image = read_image("volume-map-page");
    let (_, content) = page::decode(&image, UUID, PageIndex(0)).unwrap();
    assert_eq!(page_map::decode(content).take(3).collect::<Vec<_>>(), volume_map());
    let image = read_image("volume-journal");
    let record = JournalRecord::decode(&image, UUID).unwrap();
    assert_eq!((record.sequence, &record.items[..]), (501, &journal_items()[..]));
    assert!(record.has_payload(&image[4096..]));
}
