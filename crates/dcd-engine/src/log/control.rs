//! The first page of the segment memory: what a restarted process must know of the record that was
//! open when its predecessor died (contract C4).
//!
//! A sealed record describes itself. An open one has no checksum yet, so each time a request has
//! been appended whole, the number of entries that count and their checksum are put here, in two
//! places in turn: a death in the middle of one leaves the other, and with it all that had been
//! acknowledged.
//!
//! The *session note* names the session that the memory is of, and says if that has given up its
//! cache-disk and brought everything to the data-disk (contract C23): then what the memory holds
//! counts no more.

use std::sync::atomic::{Ordering, compiler_fence};

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::format::checksum::crc32c;
use crate::units::LINE_SIZE;

/// Size of the control page. Its last 64 bytes belong to the driver.
pub const CONTROL_SIZE: usize = LINE_SIZE as usize;
const COPY_OFFSETS: [usize; 2] = [64, 128];
const SESSION_NOTE_OFFSET: usize = 192;
/// "dcd-SESS" in ASCII.
const SESSION_MAGIC: u64 = u64::from_le_bytes(*b"dcd-SESS");

/// The open record, as far as it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenMark {
    /// The session.
    pub epoch: u64,
    /// Which segment buffer.
    pub buffer: u32,
    /// Slot of the record header in it.
    pub header_slot: u32,
    /// Entries that count.
    pub entries: u32,
    /// Entries behind them that replace some of them.
    pub staged: u32,
    /// CRC-32C of those that count, when they have been replaced.
    pub entries_checksum: u32,
    /// The newest checkpoint that was durable.
    pub checkpoint_generation: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct OpenMarkInMemory {
    count: U64,
    epoch: U64,
    buffer: U32,
    header_slot: U32,
    entries: U32,
    entries_checksum: U32,
    checkpoint_generation: U64,
    staged: U32,
    checksum: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SessionNoteInMemory {
    magic: U64,
    epoch: U64,
    is_void: U32,
    checksum: U32,
}

const SESSION_CHECKED: usize = std::mem::offset_of!(SessionNoteInMemory, checksum);

/// Puts down that this memory is of session `epoch`, and whether it still counts. A death in the
/// middle leaves no valid note.
pub fn write_session_note(page: &mut [u8], epoch: u64, is_void: bool) {
    let mut memory = SessionNoteInMemory::new_zeroed();
    memory.magic = SESSION_MAGIC.into();
    memory.epoch = epoch.into();
    memory.is_void = u32::from(is_void).into();
    memory.checksum = crc32c(&memory.as_bytes()[..SESSION_CHECKED]).into();
    page[SESSION_NOTE_OFFSET..][..size_of::<SessionNoteInMemory>()]
        .copy_from_slice(memory.as_bytes());
}

/// Whether what the memory holds of session `epoch` is void; `None` if no valid note names it.
pub(crate) fn is_void(page: &[u8], epoch: u64) -> Option<bool> {
    let note = session_note(page)?;
    (note.epoch.get() == epoch).then_some(note.is_void.get() != 0)
}

/// The session that the memory is of, which is the generation of the superblock that opened it;
/// `None`: there is no valid note.
pub fn session(page: &[u8]) -> Option<u64> {
    session_note(page).map(|note| note.epoch.get())
}

fn session_note(page: &[u8]) -> Option<SessionNoteInMemory> {
    let bytes = page.get(SESSION_NOTE_OFFSET..)?;
    let (note, _) = SessionNoteInMemory::read_from_prefix(bytes).ok()?;
    let is_valid = note.magic.get() == SESSION_MAGIC
        && note.checksum.get() == crc32c(&note.as_bytes()[..SESSION_CHECKED]);
    is_valid.then_some(note)
}

const CHECKED: usize = std::mem::offset_of!(OpenMarkInMemory, checksum);

/// Puts the mark down; `count` must grow with each call.
pub fn write_mark(page: &mut [u8], count: u64, mark: &OpenMark) {
    // What it speaks of lies in the memory before it, and what it allows behind it: stores that the
    // compiler moved across would be missing, or too early, when this process dies.
    compiler_fence(Ordering::SeqCst);
    let mut memory = OpenMarkInMemory::new_zeroed();
    memory.count = count.into();
    memory.epoch = mark.epoch.into();
    memory.buffer = mark.buffer.into();
    memory.header_slot = mark.header_slot.into();
    memory.entries = mark.entries.into();
    memory.entries_checksum = mark.entries_checksum.into();
    memory.staged = mark.staged.into();
    memory.checkpoint_generation = mark.checkpoint_generation.into();
    memory.checksum = crc32c(&memory.as_bytes()[..CHECKED]).into();
    let at = COPY_OFFSETS[(count % 2) as usize];
    page[at..at + size_of::<OpenMarkInMemory>()].copy_from_slice(memory.as_bytes());
    compiler_fence(Ordering::SeqCst);
}

/// The valid marks of session `epoch`, newest first.
pub(crate) fn read_marks(page: &[u8], epoch: u64) -> Vec<OpenMark> {
    let mut marks: Vec<(u64, OpenMark)> = COPY_OFFSETS
        .iter()
        .filter_map(|at| {
            let (memory, _) = OpenMarkInMemory::read_from_prefix(page.get(*at..)?).ok()?;
            // Zeroes are no mark: their checksum is not zero.
            let valid = memory.checksum.get() == crc32c(&memory.as_bytes()[..CHECKED])
                && memory.epoch.get() == epoch;
            valid.then_some((
                memory.count.get(),
                OpenMark {
                    epoch,
                    buffer: memory.buffer.get(),
                    header_slot: memory.header_slot.get(),
                    entries: memory.entries.get(),
                    staged: memory.staged.get(),
                    entries_checksum: memory.entries_checksum.get(),
                    checkpoint_generation: memory.checkpoint_generation.get(),
                },
            ))
        })
        .collect();
    marks.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    marks.into_iter().map(|(_, mark)| mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_note_is_of_one_session_and_counts_only_when_whole() {
        let mut page = vec![0; CONTROL_SIZE];
        assert_eq!(is_void(&page, 0), None, "an empty page says nothing");
        assert_eq!(session(&page), None);
        for void in [false, true] {
            write_session_note(&mut page, 5, void);
            assert_eq!((is_void(&page, 5), is_void(&page, 6)), (Some(void), None));
            assert_eq!(session(&page), Some(5));
            for at in SESSION_NOTE_OFFSET..SESSION_NOTE_OFFSET + 24 {
                page[at] ^= 1;
                assert_eq!(is_void(&page, 5), None, "byte {at}");
                page[at] ^= 1;
            }
        }
    }

    #[test]
    fn a_death_while_writing_leaves_the_mark_before() {
        let mut page = vec![0; CONTROL_SIZE];
        let mark = |entries| OpenMark {
            epoch: 5,
            buffer: 1,
            header_slot: 9,
            entries,
            staged: 0,
            entries_checksum: 0,
            checkpoint_generation: 0,
        };
        assert!(read_marks(&page, 5).is_empty() && read_marks(&page, 0).is_empty());
        for count in 1..6 {
            write_mark(&mut page, count, &mark(count as u32));
        }
        assert_eq!(read_marks(&page, 5), [mark(5), mark(4)]);
        page[COPY_OFFSETS[1] + 3] ^= 1; // count 5 is torn
        assert_eq!(read_marks(&page, 5), [mark(4)]);
        assert!(read_marks(&page, 6).is_empty());
    }
}
