//! The log alone: where what is appended goes, and from when on it is durable.

use super::*;
use crate::buffer::Buffer;

/// A log of 64 KiB segments, each with 16 slots: a record header and 15 lines.
fn log() -> Log {
    log_with(4 << 20, 64 << 10, 4, 100)
}

/// A log with so many segment buffers and, at most, so many free segments.
fn log_with(size: u64, segment_size: u64, buffers: usize, free: usize) -> Log {
    let geometry = Geometry::fit(size, segment_size).unwrap();
    let memory = Buffer::zeroed(CONTROL_SIZE + buffers * segment_size as usize);
    let mut log = Log::new(Uuid([1; 16]), geometry, Box::new(memory));
    let reusable = log.segments.reusable(free);
    log.segments.make_free(&reusable);
    log.start(1, SegmentSerial(1), RecordNumber(1), 0);
    log
}

/// Appends lines full of the line's number, as one request. Tells their slots.
fn append(log: &mut Log, lines: Range<u64>) -> Vec<SlotIndex> {
    let slots = append_unfinished(log, lines);
    log.end_request();
    slots
}

fn append_unfinished(log: &mut Log, lines: Range<u64>) -> Vec<SlotIndex> {
    let one = |line| log.append_data(Line(line), FragmentMask::FULL, &[line as u8; 4096]).0;
    lines.map(one).collect()
}

/// Seals, and writes all there is to write.
fn write(log: &mut Log) {
    log.seal();
    while let Some(write) = log.next_write() {
        log.record_written(write.number);
    }
}

#[test]
fn a_request_that_spans_records_is_marked_unfinished() {
    let mut log = log();
    for line in 0..20 {
        log.append_data(Line(line), FragmentMask::FULL, &[line as u8; 4096]);
    }
    log.end_request();
    log.seal();
    // 64 KiB segments: a header and 15 slots, then a header and 5.
    let first = log.next_write().unwrap();
    let record = record::Record::decode(&log.memory()[first.memory]).unwrap();
    assert_eq!((record.data_slots(), record.header.unfinished), (15, 15));
    let second = log.next_write().unwrap();
    let record = record::Record::decode(&log.memory()[second.memory]).unwrap();
    assert_eq!((record.data_slots(), record.header.unfinished), (5, 0));
    log.check_invariants();
}

/// Written before the record that announces it is durable, a segment would be damage to a start
/// that does not find the record.
#[test]
fn what_is_announced_is_free_when_its_record_is_durable() {
    let mut log = log_with(4 << 20, 64 << 10, 4, 4);
    append(&mut log, 0..1);
    let first: Vec<SegmentIndex> = log.segments.announceable().take(2).collect();
    log.announce(&first);
    let record = log.newest_announcement();
    assert_eq!(log.announced().collect::<Vec<_>>(), first);
    let free = log.segments.free().clone();
    write(&mut log);
    // The next one says more, and is written before the first is durable.
    append(&mut log, 1..2);
    let second: Vec<SegmentIndex> = log.segments.announceable().take(1).collect();
    log.announce(&second);
    write(&mut log);
    assert_eq!(*log.segments.free(), free, "written is not durable");
    assert!(log.announced().eq(first.iter().chain(&second).copied()));
    log.make_durable(record);
    assert!(log.segments.free().iter().eq(free.iter().chain(&first)));
    assert!(log.announced().eq(second.iter().copied()));
    log.make_durable(log.newest_announcement());
    assert!(log.segments.free().iter().eq(free.iter().chain(&first).chain(&second)));
    log.check_invariants();
}

#[test]
fn buffers_are_kept_until_durable() {
    let mut log = log();
    for line in 0..15 {
        log.append_data(Line(line), FragmentMask::FULL, &[1; 4096]);
    }
    log.end_request();
    log.seal();
    let write = log.next_write().unwrap();
    assert_eq!(log.buffers_in_use(), 1);
    log.record_written(write.number);
    assert_eq!(log.written_record(), write.number);
    assert_eq!(log.buffers_in_use(), 1, "written is not durable");
    log.make_durable(write.number);
    assert_eq!(log.buffers_in_use(), 0);
    assert_eq!(log.segments.counts().dirty, 1);
}

#[test]
fn room_is_never_promised_that_is_not_there() {
    let mut log = log();
    // Four buffers of 15 data slots, two of them for requests; free segments are no limit here.
    assert!(log.has_room(30, Appender::Request));
    assert!(!log.has_room(31, Appender::Request));
    assert!(log.has_room(60, Appender::Engine));
    assert!(!log.has_room(61, Appender::Engine));
    for line in 0..60 {
        log.append_data(Line(line), FragmentMask::FULL, &[1; 4096]);
    }
    assert!(!log.has_room(1, Appender::Request));
}

// ---- places -----------------------------------------------------------------------------------

#[test]
fn segment_memory_is_a_control_page_and_buffers() {
    let log = log();
    assert_eq!(log.memory().len(), 4096 + 4 * 65_536);
    assert_eq!(log.memory_offset(BufferIndex(0), 0), 4096);
    assert_eq!(log.memory_offset(BufferIndex(2), 3), 4096 + 2 * 65_536 + 3 * 4096);
    let for_requests = |buffers| {
        let log = log_with(4 << 20, 64 << 10, buffers, 100);
        (log.buffer_count(), log.buffers_for_requests())
    };
    assert_eq!([3, 4, 9].map(for_requests), [(3, 2), (4, 2), (9, 4)]);
}

/// Every 249 slots spend one on a header.
#[test]
fn headers_take_their_part_of_a_segment() {
    let within = [0, 1, 2, 16, 249, 250, 251, 498, 499, 1024].map(data_slots_within);
    assert_eq!(within, [0, 0, 1, 15, 248, 248, 249, 496, 496, 4 * 248 + 27]);
}

/// ```text
/// slot        0  1 ... 13  14 15     0
/// segment 0   H  A ... A   H  B      .     B fits beside its header, C does not
/// segment 1   .                      H C
/// ```
#[test]
fn a_segment_is_filled_to_its_last_slot() {
    let mut log = log();
    let first = append(&mut log, 0..13);
    assert_eq!((first[0], first[12]), (SlotIndex(1), SlotIndex(13)));
    log.seal();
    assert_eq!(append(&mut log, 13..14), [SlotIndex(15)]);
    assert_eq!(log.used_slots(BufferIndex(0)), 16);
    assert_eq!(append(&mut log, 14..15), [SlotIndex(17)]);
    // One slot is left of segment 1: no record begins there.
    append(&mut log, 15..28);
    log.seal();
    assert_eq!(log.used_slots(BufferIndex(1)), 15);
    assert_eq!(append(&mut log, 28..29), [SlotIndex(33)]);
    assert_eq!(log.slot_in_memory(SlotIndex(33)), Some(&[28; 4096][..]));
    assert_eq!(log.slot_in_memory(SlotIndex(49)), None, "segment 3 is in no buffer");
    log.check_invariants();
}

#[test]
fn a_record_has_at_most_so_many_entries() {
    let mut log = log();
    for line in 0..ENTRIES_MAX as u64 {
        log.append_entry(&Entry::Zero { line: Line(line), lines: 1, may_unmap: false });
    }
    assert_eq!((log.newest_record(), log.sealed_record()), (RecordNumber(1), RecordNumber(0)));
    log.append_entry(&Entry::Zero { line: Line(999), lines: 1, may_unmap: false });
    assert_eq!((log.newest_record(), log.sealed_record()), (RecordNumber(2), RecordNumber(1)));
    let write = log.next_write().unwrap();
    let record = record::Record::decode(&log.memory()[write.memory]).unwrap();
    let last = Entry::Zero { line: Line(ENTRIES_MAX as u64 - 1), lines: 1, may_unmap: false };
    assert_eq!((record.entries.len(), record.entries[ENTRIES_MAX - 1]), (ENTRIES_MAX, last));
}

#[test]
fn the_log_goes_on_where_it_was() {
    let mut log = log();
    append(&mut log, 0..1);
    log.seal();
    log.start(7, SegmentSerial(5), RecordNumber(10), 77);
    assert!(control::read_marks(log.memory(), 1).is_empty(), "marks of the session before");
    assert_eq!(log.newest_serial(), SegmentSerial(4));
    assert_eq!((log.newest_record(), log.durable_record()), (RecordNumber(9), RecordNumber(9)));
}

#[test]
fn the_position_is_behind_the_last_record() {
    let mut log = log_with(4 << 20, 64 << 10, 4, 3);
    let mut free = log.segments.free().clone();
    let position = log.position(&mut free);
    // Nothing is being filled: the first free segment will be.
    assert_eq!((position.segment, position.serial), (SegmentIndex(0), SegmentSerial(1)));
    assert_eq!((position.slot_in_segment, position.next_record), (0, RecordNumber(1)));
    assert_eq!(free, [SegmentIndex(1), SegmentIndex(2)]);

    append(&mut log, 0..3);
    log.seal();
    assert_eq!(log.newest_serial(), SegmentSerial(1));
    let mut free = log.segments.free().clone();
    let position = log.position(&mut free);
    assert_eq!((position.segment, position.serial), (SegmentIndex(0), SegmentSerial(1)));
    assert_eq!((position.slot_in_segment, position.next_record), (4, RecordNumber(2)));
    assert_eq!(free, [SegmentIndex(1), SegmentIndex(2)]);

    append(&mut log, 3..40);
    log.close_segment();
    let position = log.position(&mut VecDeque::new());
    assert_eq!(position.slot_in_segment, 16, "nothing can be appended");
    assert_eq!(position.serial, SegmentSerial(4));
}

// ---- room -------------------------------------------------------------------------------------

/// A checkpoint counts on the reserve, and destaging may have to complete sectors.
#[test]
fn requests_leave_the_reserve_alone() {
    let mut log = log_with(4 << 20, 64 << 10, 8, 4);
    append(&mut log, 0..1);
    assert_eq!(log.segments.free().len(), SEGMENTS_RESERVED as usize);
    assert!(log.has_room(14, Appender::Request) && !log.has_room(15, Appender::Request));
    assert!(log.has_room(14 + 45, Appender::Engine) && !log.has_room(14 + 46, Appender::Engine));
    append(&mut log, 1..16);
    assert_eq!(log.segments.free().len(), 2);
    assert!(log.has_room(1, Appender::Announcement));
    assert!(!log.has_room(1, Appender::Request), "what is left belongs to the reserve");
    assert!(log.has_room(14 + 30, Appender::Engine) && !log.has_room(14 + 31, Appender::Engine));
}

/// ```text
/// slot  0 1   2 ... 248   249   250 ... 497   498   499 ... 511
///       H A   247 lines    H     248 lines     H     13 lines
/// ```
#[test]
fn room_is_what_is_left_without_headers_to_come() {
    let mut log = log_with(64 << 20, 2 << 20, 8, 4);
    append(&mut log, 0..1);
    assert!(log.has_room(508, Appender::Request) && !log.has_room(509, Appender::Request));
    append(&mut log, 1..509);
    assert_eq!(log.segments.free().len(), 3, "nothing was taken that was not promised");
    assert_eq!(log.used_slots(BufferIndex(0)), 512);
    // Sealed, the next line needs a header of its own.
    let mut log = log_with(64 << 20, 2 << 20, 8, 4);
    append(&mut log, 0..1);
    log.seal();
    assert!(log.has_room(507, Appender::Request) && !log.has_room(508, Appender::Request));
}

/// Trap 10 of the design.
#[test]
fn a_segment_that_is_being_read_is_no_room() {
    let mut log = log_with(4 << 20, 64 << 10, 8, 7);
    assert!(log.has_room(60, Appender::Request) && !log.has_room(61, Appender::Request));
    let free: Vec<SegmentIndex> = log.segments.free().iter().copied().collect();
    log.segments.add_reader(free[2]);
    assert!(log.has_room(30, Appender::Request) && !log.has_room(31, Appender::Request));
    log.segments.add_reader(free[0]);
    assert!(!log.has_room(1, Appender::Request));
}

// ---- what survives the process ----------------------------------------------------------------

#[test]
fn a_mark_tells_what_counts_of_an_open_record() {
    let mut log = log();
    append(&mut log, 0..2);
    log.seal();
    append(&mut log, 2..5);
    append(&mut log, 5..6);
    append_unfinished(&mut log, 6..7);
    let marks = control::read_marks(log.memory(), 1);
    let counted: Vec<_> = marks.iter().map(|m| (m.buffer, m.header_slot, m.entries)).collect();
    assert_eq!(counted, [(0, 3, 4), (0, 3, 3)], "the newest, and the one before");
    let at = log.memory_offset(BufferIndex(0), 3);
    let table = &log.memory()[at + ENTRIES_OFFSET..];
    assert_eq!(marks[0].entries_checksum, crc32c(&table[..4 * 16]));
    let record = record::Record::decode_open(&log.memory()[at..], 4).unwrap();
    let line_of = |entry: &Entry| match entry {
        Entry::Data { line, .. } => line.0,
        other => panic!("{other:?}"),
    };
    assert_eq!(record.entries.iter().map(line_of).collect::<Vec<_>>(), [2, 3, 4, 5]);
}

/// Memory as each death while lines are replaced would leave it: none tears what counts.
#[test]
fn a_death_while_lines_are_replaced_leaves_all_old_or_all_new() {
    let line = |number: u64, version: u8| (Line(number), vec![version; LINE_SIZE as usize]);
    let mut log = log();
    append(&mut log, 0..1);
    log.append_entry(&Entry::Zero { line: Line(50), lines: 2, may_unmap: false });
    let slots = append(&mut log, 1..5);
    assert!(!log.may_replace(5) && log.may_replace(4));
    let before = log.memory().to_vec();
    let changed = [line(2, 0xa2), line(4, 0xa4)];
    for (index, (number, bytes)) in changed.iter().enumerate() {
        let slot = slots[[1, 3][index]];
        assert_eq!(log.replaceable(slot), Some(FragmentMask::FULL));
        log.stage(*number, slot, FragmentMask::FULL, bytes);
    }
    let staged = log.memory().to_vec();
    log.end_replace();
    let after = log.memory().to_vec();
    let page = CONTROL_SIZE;
    let shown = |memory: &[u8]| {
        let mut memory = memory.to_vec();
        let marks = control::read_marks(&memory, 1);
        replace::complete(&mut memory, 64 << 10, &marks[0]);
        let mark = marks.iter().find(|mark| {
            let table = &memory[page + mark.header_slot as usize * 4096 + ENTRIES_OFFSET..];
            crc32c(&table[..mark.entries as usize * ENTRY_SIZE]) == mark.entries_checksum
        });
        let mark = mark.expect("one of them counts");
        let header = page + mark.header_slot as usize * 4096;
        let record = record::Record::decode_open(&memory[header..], mark.entries as usize).unwrap();
        let mut slot = header;
        let mut shown = Vec::new();
        for entry in &record.entries {
            let Entry::Data { line, checksum, .. } = *entry else { continue };
            slot += 4096;
            assert_eq!(crc32c(&memory[slot..slot + 4096]), checksum, "{line:?} is torn");
            shown.push((line.0, memory[slot]));
        }
        shown
    };
    let old = shown(&before);
    let new = shown(&after);
    let of = |all: &[(u64, u8)], line| all.iter().find(|it| it.0 == line).unwrap().1;
    assert_eq!([2, 4].map(|line| of(&new, line)), [0xa2, 0xa4]);
    assert_eq!([0, 1, 3].map(|line| of(&new, line)), [0, 1, 3].map(|line| of(&old, line)));
    assert_eq!(shown(&staged), old, "staged alone is nothing");
    // Step 2 is in one place of the control page, step 4 in the other.
    let newest = control::read_marks(&after, 1)[0];
    assert_eq!(newest.staged, 0);
    let places = [64..112, 128..176];
    let count = |at: usize| u64::from_le_bytes(after[at..at + 8].try_into().unwrap());
    let is_first_newer = usize::from(count(64) > count(128));
    let (last, by_mark) = (places[1 - is_first_newer].clone(), places[is_first_newer].clone());
    let mut marked = staged.clone();
    for end in by_mark.clone() {
        assert_eq!(shown(&marked), old, "the mark is torn at {end}");
        marked[end] = after[end];
    }
    assert_eq!(shown(&marked), new, "the start does step 3");
    // What step 3 writes, some of it, in any order.
    let written: Vec<usize> = (page..after.len()).filter(|at| marked[*at] != after[*at]).collect();
    assert!(written.len() > 8000, "two slots and their entries");
    for part in 0..64 {
        let mut torn = marked.clone();
        for at in written.iter().filter(|at| (**at / 61 + part) % 7 < part % 8) {
            torn[*at] = after[*at];
        }
        assert_eq!(shown(&torn), new, "part {part}");
    }
    written.iter().for_each(|at| marked[*at] = after[*at]);
    for end in last {
        assert_eq!(shown(&marked), new, "the last mark is torn at {end}");
        marked[end] = after[end];
    }
    assert!(marked == after && shown(&marked) == new);
    // It goes on as if nothing had been.
    append(&mut log, 7..8);
    assert_eq!(shown(log.memory()).iter().map(|it| it.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 7]);
    log.check_invariants();
}

/// Parts of a line come together in one slot; what is behind an entry without data, or of a request
/// that goes on, is none.
#[test]
fn fragments_come_together_in_one_slot() {
    let mut log = log();
    let (first, _) = log.append_data(Line(9), FragmentMask(0b0011), &[1; 1024]);
    log.end_request();
    log.stage(Line(9), first, FragmentMask(0b0110), &[2; 1024]);
    log.end_replace();
    assert_eq!(log.replaceable(first), Some(FragmentMask(0b0111)));
    let slot = log.slot_in_memory(first).unwrap();
    assert_eq!([0, 512, 1024, 1536].map(|at| slot[at]), [1, 2, 2, 0]);
    assert_eq!(log.newest_record(), RecordNumber(1), "nothing was added");
    append_unfinished(&mut log, 10..11);
    assert!(!log.may_replace(1));
    log.end_request();
    assert!(log.may_replace(2) && !log.may_replace(3));
    log.append_entry(&Entry::Zero { line: Line(50), lines: 2, may_unmap: false });
    log.end_request();
    assert!(!log.may_replace(1) && log.replaceable(first).is_none());
    log.seal();
    assert!(!log.may_replace(1) && log.replaceable(first).is_none());
}

/// A line may be in the record twice, in parts: the table lists those by their fragments, and not
/// as they came.
#[test]
fn only_the_last_of_a_line_is_replaced() {
    let mut log = log();
    let (first, _) = log.append_data(Line(9), FragmentMask(0xf0), &[1; 2048]);
    log.end_request();
    let (second, _) = log.append_data(Line(9), FragmentMask(0x0f), &[2; 2048]);
    log.end_request();
    assert_eq!(log.replaceable(first), None);
    assert_eq!(log.replaceable(second), Some(FragmentMask(0x0f)));
}

/// Entries without data have no slot, and the record may be at the end of the memory.
#[test]
fn a_start_completes_what_replaces_the_last_slots_there_are() {
    let mut log = log_with(4 << 20, 64 << 10, 1, 100);
    append(&mut log, 0..11);
    log.seal();
    for line in [50, 60, 70] {
        log.append_entry(&Entry::Zero { line: Line(line), lines: 2, may_unmap: false });
    }
    let slots = append(&mut log, 20..21);
    log.stage(Line(20), slots[0], FragmentMask::FULL, &[0xee; 4096]);
    let mut memory = log.memory().to_vec();
    log.end_replace();
    let after = log.memory().to_vec();
    // All but what step 3 writes, and the mark of step 4.
    let by_mark = if log.open_marks.is_multiple_of(2) { 128..176 } else { 64..112 };
    memory[by_mark.clone()].copy_from_slice(&after[by_mark]);
    let marks = control::read_marks(&memory, 1);
    assert_eq!((marks[0].entries, marks[0].staged), (4, 1));
    replace::complete(&mut memory, 64 << 10, &marks[0]);
    assert!(memory[CONTROL_SIZE..] == after[CONTROL_SIZE..]);
}

#[test]
fn memory_counts_until_it_is_voided() {
    let mut log = log();
    log.note_session();
    assert_eq!(control::is_void(log.memory(), 1), Some(false));
    log.void_memory();
    assert_eq!(control::is_void(log.memory(), 1), Some(true));
}

// ---- durability -------------------------------------------------------------------------------

#[test]
fn records_become_durable_in_order() {
    let mut log = log();
    let slots: Vec<SlotIndex> = (0..3)
        .map(|line| {
            let slots = append(&mut log, line..line + 1);
            log.seal();
            slots[0]
        })
        .collect();
    assert_eq!(slots, [1, 3, 5].map(SlotIndex));
    let first = log.next_write_offset();
    let writes: Vec<LogWrite> = std::iter::from_fn(|| log.next_write()).collect();
    assert_eq!((first, log.next_write_offset()), (Some(writes[0].offset), None));
    let geometry = Geometry::fit(4 << 20, 64 << 10).unwrap();
    let offsets: Vec<u64> = writes.iter().map(|write| write.offset).collect();
    assert_eq!(offsets, [0, 2, 4].map(|slot| geometry.slot_offset(SlotIndex(slot))));

    log.record_written(RecordNumber(2));
    assert_eq!(log.written_record(), RecordNumber(0), "the first is not written yet");
    log.record_written(RecordNumber(1));
    assert_eq!(log.written_record(), RecordNumber(2));
    assert!(log.is_oldest_pending(RecordNumber(1)) && !log.is_oldest_pending(RecordNumber(2)));
    log.make_durable(RecordNumber(1));
    assert_eq!(log.durable_record(), RecordNumber(1));
    let durable: Vec<bool> = (1..6).map(|slot| log.is_durable(SlotIndex(slot))).collect();
    assert_eq!(durable, [true, false, false, false, false]);
    assert_eq!(log.durable_slots(SegmentIndex(0)), 2);
    log.record_written(RecordNumber(3));
    log.make_durable(RecordNumber(3));
    log.close_segment();
    assert_eq!((log.buffers_in_use(), log.durable_slots(SegmentIndex(0))), (0, 16));
    assert!(log.is_durable(slots[2]));
}

/// A request that goes through three records is durable with the last of them (C14).
///
/// ```text
/// record 1   A A B B ... B     A is a request of its own
/// record 2   B B B B ... B
/// record 3   B B C
/// ```
#[test]
fn the_beginning_of_a_request_is_durable_with_its_end() {
    let mut log = log();
    append(&mut log, 100..101);
    log.seal();
    let a = append(&mut log, 0..2);
    let b = append_unfinished(&mut log, 2..30);
    assert_eq!(log.newest_record(), RecordNumber(4));
    write_up_to(&mut log, 3);
    let of_a = |log: &Log| a.iter().map(|slot| log.is_durable(*slot)).collect::<Vec<_>>();
    assert_eq!((of_a(&log), log.durable_record()), (vec![true, true], RecordNumber(3)));
    assert!(b.iter().all(|slot| !log.is_durable(*slot)));
    log.end_request();
    write_up_to(&mut log, 3);
    assert!(b.iter().all(|slot| !log.is_durable(*slot)), "its end is only sealed");
    write_up_to(&mut log, 4);
    assert!(b.iter().all(|slot| log.is_durable(*slot)));
}

/// What is sealed is written, and durable up to this record.
fn write_up_to(log: &mut Log, number: u64) {
    if log.newest_record().0 == number {
        log.seal();
    }
    while let Some(write) = log.next_write() {
        log.record_written(write.number);
    }
    log.make_durable(RecordNumber(number));
}

// ---- logged again -----------------------------------------------------------------------------

/// Two records that fill a segment fill another one again: no more room is asked for than they
/// took.
#[test]
fn what_is_logged_again_takes_as_much_room() {
    let mut log = log_with(4 << 20, 64 << 10, 3, 3);
    // A segment that is durable, but being filled.
    let mut old = append(&mut log, 0..7);
    log.seal();
    old.extend(append(&mut log, 7..14));
    write(&mut log);
    // The third free segment must be left for that: there are as many as are needed.
    append(&mut log, 14..15);
    write(&mut log);
    assert_eq!((log.segments.free().len(), log.buffers_in_use()), (1, 2));
    assert!(log.log_again().is_none(), "two buffers, and room for one");
    assert_eq!(log.sealed_record(), RecordNumber(3), "nothing has changed");
    log.make_durable(RecordNumber(2));
    assert_eq!(log.buffers_in_use(), 1);

    let moved = log.log_again().expect("one buffer for one");
    assert_eq!(moved.len(), 1);
    let (from, to) = (moved[0].from, moved[0].to);
    assert_eq!((moved[0].line, from, to), (Line(14), SlotIndex(17), SlotIndex(33)));
    assert_eq!(log.slot_in_memory(to), Some(&[14; 4096][..]));
    log.segments.drop_live(SegmentIndex(1));
    log.end_log_again();
    assert_eq!(log.buffers_in_use(), 1, "the old one was given back");
    assert_eq!(log.segments.map().get(..3), Some("deb"));
    log.check_invariants();
}

/// Nothing is changed before it is sure that all can be logged again.
#[test]
fn logging_again_needs_buffers_and_segments() {
    // One record in one segment: (buffers, segments free besides it, works)
    for (buffers, segments, works) in [(3, 0, false), (3, 1, true), (2, 1, true), (1, 1, false)] {
        let mut log = log_with(4 << 20, 64 << 10, buffers, segments + 1);
        append(&mut log, 0..3);
        write(&mut log);
        assert_eq!(log.log_again().is_some(), works, "{buffers} buffers, {segments} segments");
        assert_eq!(log.next_write().is_some(), works);
    }
}

#[test]
fn records_are_logged_again_side_by_side() {
    let mut log = log_with(4 << 20, 64 << 10, 3, 2);
    append(&mut log, 0..7);
    log.seal();
    append(&mut log, 7..14);
    write(&mut log);
    let reader = *log.segments.free().front().unwrap();
    log.segments.add_reader(reader);
    assert!(log.log_again().is_none(), "the only free segment is being read");
    log.segments.drop_reader(reader);
    let moved = log.log_again().expect("one segment for one");
    let places: Vec<_> = moved.iter().map(|slot| (slot.line.0, slot.from.0, slot.to.0)).collect();
    let expected = |line: u64| {
        let slot = line as u32 + 1 + line as u32 / 7;
        (line, slot, 16 + slot)
    };
    assert_eq!(places, (0..14).map(expected).collect::<Vec<_>>());
    for slot in &moved {
        let bytes = log.slot_in_memory(slot.to).unwrap();
        assert_eq!((bytes[0], bytes[4095]), (slot.line.0 as u8, slot.line.0 as u8));
        assert_eq!(slot.checksum, crc32c(bytes));
    }
    let numbers: Vec<u64> = std::iter::from_fn(|| log.next_write()).map(|w| w.number.0).collect();
    assert_eq!(numbers, [1, 2], "under their old numbers");
}

/// ```text
/// record 1   A A B B ... B   durable
/// record 2   B B C C D D ... D   logged again
/// record 3   D D                logged again
/// ```
#[test]
fn what_is_logged_again_is_as_unfinished_as_it_was() {
    let mut log = log();
    let a = append(&mut log, 0..2);
    let b = append(&mut log, 2..17);
    append(&mut log, 17..19);
    append(&mut log, 19..32);
    write_up_to(&mut log, 1);
    write(&mut log);
    assert!(log.is_durable(a[1]) && !log.is_durable(b[0]));
    let moved = log.log_again().expect("two buffers for two");
    assert!(log.is_durable(a[1]) && !log.is_durable(b[0]), "its end has moved");
    let to = |line: u64| moved.iter().find(|slot| slot.line.0 == line).unwrap().to;
    while let Some(write) = log.next_write() {
        log.record_written(write.number);
    }
    log.make_durable(RecordNumber(2));
    assert!(log.is_durable(b[0]) && log.is_durable(to(15)) && log.is_durable(to(18)));
    assert!(!log.is_durable(to(19)), "D goes on in record 3");
    log.make_durable(RecordNumber(3));
    assert!(log.is_durable(to(19)) && log.is_durable(to(31)));
}

/// What `tests/golden_images.rs` reads as records 1001 and 1002.
#[test]
fn records_are_written_as_the_golden_image_has_them() {
    let pattern = |seed: u8, length: usize| -> Vec<u8> {
        (0..length).map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed)).collect()
    };
    let geometry = Geometry::fit(4 << 20, 64 << 10).unwrap();
    let memory = Buffer::zeroed(CONTROL_SIZE + 16 * (64 << 10));
    let mut log = Log::new(Uuid(*b"golden dcd image"), geometry, Box::new(memory));
    log.segments.make_free(&[SegmentIndex(3)]);
    log.start(7, SegmentSerial(41), RecordNumber(1001), 0x1122_3344);
    log.checkpoint_generation = 12;
    log.append_data(Line(200), FragmentMask(0b110), &pattern(1, 1024));
    log.end_request();
    log.seal();
    log.append_data(Line(200), FragmentMask(0b100), &pattern(2, 512));
    log.append_entry(&Entry::Zero { line: Line(120), lines: 10, may_unmap: false });
    log.append_entry(&Entry::Bypass { range: crate::units::LbaRange::new(56, 8) });
    log.append_entry(&Entry::Announce { first: SegmentIndex(8), count: 2 });
    log.end_request();
    log.append_data(Line(300), FragmentMask(0b1), &pattern(3, 512));
    log.seal();
    let mut bytes = Vec::new();
    while let Some(write) = log.next_write() {
        assert_eq!(write.offset, geometry.segment_offset(SegmentIndex(3)) + bytes.len() as u64);
        bytes.extend_from_slice(&log.memory()[write.memory]);
    }
    assert!(bytes == golden_records(), "the same bytes");
}

/// The image: a row of text is an offset and 16 bytes, and rows of zeroes are left out.
fn golden_records() -> Vec<u8> {
    let text = include_str!("../../tests/images/v2/records.hex");
    let (length, rows) = text.split_once('\n').unwrap();
    let mut bytes = vec![0; length.strip_prefix("bytes ").unwrap().parse().unwrap()];
    for row in rows.lines() {
        let (offset, row) = row.split_once(':').unwrap();
        let offset = usize::from_str_radix(offset, 16).unwrap();
        for (index, byte) in row.split_whitespace().enumerate() {
            bytes[offset + index] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    bytes
}
