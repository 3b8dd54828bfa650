//! Proves that the byte tables of `docs/disk-format.md` are those of the code: every name, every
//! offset, every size. A table follows a line `<!-- layout: NAME -->`; a figure of the document
//! stands in a table after `<!-- constants -->`.

use std::path::Path;

use dcd_engine::format::layout::FieldLayout;
use dcd_engine::format::{
    checkpoint, copy_page, creation_mark, data_label, end_mark, geometry, leg_label, nvram, record,
    share_directory, superblock,
};
use dcd_engine::log::control::{self, CONTROL_SIZE, OpenMark};
use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE};
use dcd_engine::volume::format::{area, header, journal, label, page, page_map, root};

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/disk-format.md");
    std::fs::read_to_string(path).expect("docs/disk-format.md is there")
}

/// The cells of the first table after the line `mark`, without its head.
fn table(document: &str, mark: &str) -> Vec<Vec<String>> {
    let marks = document.lines().filter(|line| *line == mark).count();
    assert_eq!(marks, 1, "{mark} stands once in the document");
    let rows: Vec<Vec<String>> = document
        .lines()
        .skip_while(|line| *line != mark)
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
        })
        .collect();
    assert!(rows.len() > 2, "{mark} is followed by a table");
    rows[2..].to_vec()
}

/// Name, offset and size of each row.
fn fields(document: &str, mark: &str) -> Vec<(String, usize, usize)> {
    table(document, mark)
        .into_iter()
        .map(|row| {
            let number = |cell: &String| cell.parse().unwrap_or_else(|_| panic!("{mark}: {cell}"));
            (row[0].clone(), number(&row[1]), number(&row[2]))
        })
        .collect()
}

fn compare(structure: &str, size: usize, code: &[FieldLayout]) {
    let mark = format!("<!-- layout: {structure} -->");
    let code: Vec<(String, usize, usize)> =
        code.iter().map(|field| (field.name.to_owned(), field.offset, field.size)).collect();
    assert_eq!(fields(&document(), &mark), code, "{structure}");
    let mut end = 0;
    for (name, offset, size) in &code {
        assert_eq!(*offset, end, "{structure}: no gap before {name}");
        end = offset + size;
    }
    assert_eq!(end, size, "{structure}: the table reaches the end");
}

#[test]
fn leg_label() {
    compare("leg label", leg_label::LEG_LABEL_BYTES, &leg_label::layout());
}

#[test]
fn superblock() {
    compare("superblock", superblock::SUPERBLOCK_SIZE, &superblock::layout());
}

#[test]
fn end_mark() {
    compare("end mark", end_mark::END_MARK_BYTES, &end_mark::layout());
    compare("memory head", nvram::NVRAM_HEAD_BYTES, &nvram::layout());
}

#[test]
fn creation_mark() {
    compare("creation mark", superblock::SUPERBLOCK_SIZE, &creation_mark::layout());
}

#[test]
fn label_of_a_data_disk() {
    compare("data label", data_label::DATA_LABEL_BYTES, &data_label::layout());
}

#[test]
fn directory_of_shares() {
    compare("share directory", share_directory::DIRECTORY_COPY_BYTES, &share_directory::layout());
    compare("share", 256, &share_directory::share_layout());
}

#[test]
fn checkpoint_header_and_item() {
    compare("checkpoint header", checkpoint::HEADER_SIZE, &checkpoint::layout());
    compare("checkpoint item", 16, &checkpoint::item_layout());
}

#[test]
fn record_header_and_entry() {
    compare("record header", record::HEADER_SIZE, &record::layout());
    compare("record entry", 16, &record::entry_layout());
}

#[test]
fn copy_page_and_entry() {
    compare("copy page", copy_page::PAGE_SIZE, &copy_page::layout());
    compare("copy page entry", 16, &copy_page::entry_layout());
}

#[test]
fn structures_of_a_volume() {
    compare("volume header", header::VOLUME_HEADER_BYTES, &header::layout());
    compare("volume set", 56, &header::set_layout());
    compare("volume rule", 8, &header::rule_layout());
    compare("volume root", root::ROOT_BYTES, &root::layout());
    compare("volume member", 16, &root::member_layout());
    compare("volume page", page::PAGE_BYTES, &page::layout());
    compare("volume map entry", 12, &page_map::layout());
    compare("volume journal record", 4096, &journal::layout());
    compare("volume journal item", 32, &journal::item_layout());
    compare("member label", label::MEMBER_LABEL_BYTES, &label::layout());
}

/// The mark of the open record is private to the engine, so a mark with a value of its own in each
/// field is written, and looked for where the document says.
#[test]
fn mark_of_the_open_record() {
    let mark = OpenMark {
        epoch: 0x1111,
        buffer: 0x2222,
        header_slot: 0x3333,
        entries: 0x4444,
        staged: 0x7777,
        entries_checksum: 0x5555,
        checkpoint_generation: 0x6666,
    };
    let mut page = vec![0; CONTROL_SIZE];
    let count = 6; // even: the first copy
    control::write_mark(&mut page, count, &mark);
    let fields = fields(&document(), "<!-- layout: open mark -->");
    let copies = table(&document(), "<!-- control page -->");
    let copy: usize = copies[1][0].parse().expect("where copy 0 begins");
    let value = |name: &str| {
        let (_, offset, size) =
            fields.iter().find(|(known, ..)| known == name).unwrap_or_else(|| panic!("{name}"));
        let mut bytes = [0; 8];
        bytes[..*size].copy_from_slice(&page[copy + offset..copy + offset + size]);
        u64::from_le_bytes(bytes)
    };
    assert_eq!(value("count"), count);
    assert_eq!(value("epoch"), mark.epoch);
    assert_eq!(value("buffer"), mark.buffer.into());
    assert_eq!(value("header_slot"), mark.header_slot.into());
    assert_eq!(value("entries"), mark.entries.into());
    assert_eq!(value("entries_checksum"), mark.entries_checksum.into());
    assert_eq!(value("checkpoint_generation"), mark.checkpoint_generation);
    let (_, at, _) = fields.iter().find(|(name, ..)| name == "checksum").expect("a checksum");
    let checksum = dcd_engine::format::checksum::crc32c(&page[copy..copy + at]);
    assert_eq!(value("checksum"), checksum.into());
    let end = fields.iter().map(|(_, offset, size)| offset + size).max().expect("fields");
    assert!(page[copy + end..].iter().all(|byte| *byte == 0), "a mark ends where the table ends");
    control::write_mark(&mut page, count + 1, &mark);
    let second: usize = copies[2][0].parse().expect("where copy 1 begins");
    assert_eq!(page[second..second + 8], (count + 1).to_le_bytes());
}

#[test]
fn session_note() {
    let mut page = vec![0; control::CONTROL_SIZE];
    control::write_session_note(&mut page, 0x0102_0304_0506_0708, true);
    let copies = table(&document(), "<!-- control page -->");
    let at: usize = copies[3][0].parse().expect("where the note begins");
    let fields = fields(&document(), "<!-- layout: session note -->");
    let bytes = |name: &str| {
        let (_, offset, size) =
            fields.iter().find(|(known, ..)| known == name).unwrap_or_else(|| panic!("{name}"));
        page[at + offset..][..*size].to_vec()
    };
    assert_eq!(bytes("magic"), b"dcd-SESS");
    assert_eq!(bytes("epoch"), 0x0102_0304_0506_0708u64.to_le_bytes());
    assert_eq!(bytes("is_void"), 1u32.to_le_bytes());
    let checksum = dcd_engine::format::checksum::crc32c(&page[at..at + 20]);
    assert_eq!(bytes("checksum"), checksum.to_le_bytes());
    assert!(page[..at].iter().chain(&page[at + 24..]).all(|byte| *byte == 0));
}

#[test]
fn figures() {
    let text = |magic: u64| String::from_utf8(magic.to_le_bytes().to_vec()).expect("ASCII");
    let code = [
        ("superblock magic", text(superblock::MAGIC)),
        ("checkpoint magic", text(checkpoint::MAGIC)),
        ("record magic", text(record::MAGIC)),
        ("copy page magic", text(copy_page::MAGIC)),
        ("volume header magic", text(header::MAGIC)),
        ("volume root magic", text(root::MAGIC)),
        ("volume page magic", text(page::MAGIC)),
        ("volume journal magic", text(journal::MAGIC)),
        ("member label magic", text(label::MAGIC)),
        ("end mark magic", text(end_mark::MAGIC)),
        ("data label magic", text(data_label::MAGIC)),
        ("leg label magic", text(leg_label::MAGIC)),
        ("memory magic", text(nvram::MAGIC)),
        ("memory version", nvram::VERSION.to_string()),
        ("slots of a chunk", nvram::CHUNK_SLOTS.to_string()),
        ("size of a chunk", nvram::CHUNK_BYTES.to_string()),
        ("share directory magic", text(share_directory::MAGIC)),
        ("superblock version", superblock::VERSION.to_string()),
        ("checkpoint version", checkpoint::VERSION.to_string()),
        ("record version", record::VERSION.to_string()),
        ("copy page version", copy_page::VERSION.to_string()),
        ("volume header version", header::VERSION.to_string()),
        ("volume root version", root::VERSION.to_string()),
        ("volume page version", page::VERSION.to_string()),
        ("volume journal version", journal::VERSION.to_string()),
        ("member label version", label::VERSION.to_string()),
        ("end mark version", end_mark::VERSION.to_string()),
        ("data label version", data_label::VERSION.to_string()),
        ("leg label version", leg_label::VERSION.to_string()),
        ("leg label version with a witness", leg_label::VERSION_WITH_WITNESS.to_string()),
        ("share directory version", share_directory::VERSION.to_string()),
        (
            "share directory version with further windows",
            share_directory::VERSION_WITH_FURTHER.to_string(),
        ),
        ("share directory copy 0 at", share_directory::DIRECTORY_OFFSETS[0].to_string()),
        ("share directory copy 1 at", share_directory::DIRECTORY_OFFSETS[1].to_string()),
        ("first share at", share_directory::DIRECTORY_BYTES.to_string()),
        ("shares begin and end at multiples of", share_directory::SHARE_GRAIN_BYTES.to_string()),
        ("most shares of a disk", share_directory::SHARES_MAX.to_string()),
        ("block", BLOCK_SIZE.to_string()),
        ("cache line, slot", LINE_SIZE.to_string()),
        ("superblock copy 0 at", geometry::SUPERBLOCK_OFFSETS[0].to_string()),
        ("superblock copy 1 at", geometry::SUPERBLOCK_OFFSETS[1].to_string()),
        ("first checkpoint area at", geometry::CHECKPOINTS_OFFSET.to_string()),
        ("smallest segment", geometry::SEGMENT_SIZE_BYTES_MIN.to_string()),
        ("largest segment", geometry::SEGMENT_SIZE_BYTES_MAX.to_string()),
        ("fewest segments", geometry::SEGMENTS_MIN.to_string()),
        ("most annexes", geometry::ANNEXES_MAX.to_string()),
        ("most entries in a record", record::ENTRIES_MAX.to_string()),
        ("most zero ranges in a checkpoint", geometry::ZERO_RANGES_MAX.to_string()),
        ("most poisoned lines in a checkpoint", geometry::POISONED_LINES_MAX.to_string()),
        ("most witnesses in a checkpoint", geometry::WITNESSES_MAX.to_string()),
        ("copies in a copy page", geometry::COPIES_PER_PAGE.to_string()),
        ("longest name of a sequence", copy_page::NAME_BYTES_MAX.to_string()),
        ("feature (incompatible): read area", superblock::FEATURE_READ_AREA.to_string()),
        ("feature (incompatible): volume", superblock::FEATURE_VOLUME.to_string()),
        ("feature (incompatible): labelled data-disk", superblock::FEATURE_LABELLED.to_string()),
        ("feature (incompatible): legs", superblock::FEATURE_LEGS.to_string()),
        ("feature (incompatible): resized", superblock::FEATURE_RESIZED.to_string()),
        ("feature (compatible): end mark", superblock::FEATURE_END_MARK.to_string()),
        ("longest place of a segment memory", superblock::MEMORY_PLACE_BYTES_MAX.to_string()),
        ("data label copy 0 at", data_label::DATA_LABEL_OFFSETS[0].to_string()),
        ("data label copy 1 at", data_label::DATA_LABEL_OFFSETS[1].to_string()),
        ("smallest head of a labelled data-disk", data_label::DATA_OFFSET_BYTES_MIN.to_string()),
        ("largest head of a labelled data-disk", superblock::DATA_OFFSET_BYTES_MAX.to_string()),
        ("leg label copy 0 at", leg_label::LEG_LABEL_OFFSETS[0].to_string()),
        ("leg label copy 1 at", leg_label::LEG_LABEL_OFFSETS[1].to_string()),
        ("most legs", leg_label::LEGS_MAX.to_string()),
        ("tags before the newest in a leg label", leg_label::PAST_TAGS.to_string()),
        ("most marks in a leg label", leg_label::MARKS_MAX.to_string()),
        ("content of a volume page", page::PAGE_CONTENT_BYTES.to_string()),
        ("most items in a journal record", journal::JOURNAL_ITEMS_MAX.to_string()),
        ("most payload lines of a journal record", journal::JOURNAL_PAYLOAD_LINES_MAX.to_string()),
        ("smallest journal", area::JOURNAL_BYTES_MIN.to_string()),
        ("largest journal", area::JOURNAL_BYTES_MAX.to_string()),
    ];
    let rows: Vec<(String, String)> = table(&document(), "<!-- constants -->")
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    let code: Vec<(String, String)> =
        code.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    assert_eq!(rows, code);
}
