//! The memory in front of the log: forged heads, commit words, headers and blocks.
//!
//! An input is a list of changes of a small memory that holds something. Each is six bytes:
//!
//! ```text
//! kind       0 xor of a byte anywhere, 1 a header with a good checksum, 2 a commit word, 3 a head
//! place      three bytes: where, or slot and copy; the highest bit: the value is far from 0
//! value      two bytes
//! ```
//!
//! What is taken is read, compared with what `dcd inspect` would show, written to, and stopped.

use dcd_engine::format::nvram::{
    COMMIT_OFFSETS, NVRAM_HEAD_OFFSETS, NvramHead, NvramIdentity, NvramLayout, SlotHeader,
    commit_word,
};
use dcd_engine::nvram::NvramConfig;
use dcd_engine::nvram::durable::{
    DurableConfig, DurableNvram, DurableOutput, MediumPersist, MemoryMedium, NvramPicture,
    NvramStart,
};
use dcd_engine::{Buffer, LbaRange, Operation, Reply, Request, RequestId, Time, Uuid};

const CACHE: Uuid = Uuid([7; 16]);
const ID: Uuid = Uuid([9; 16]);
const SLOTS: u32 = 128;
const BLOCKS: u64 = 256;
const CHANGE_BYTES: usize = 6;
const CHANGES_MAX: usize = 200;

/// Four blocks in a memory of 128 slots.
fn memory() -> Vec<u8> {
    let layout = NvramLayout { slots: SLOTS };
    let mut bytes = vec![0; layout.bytes() as usize];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    let identity = NvramIdentity { id: ID, generation: 5 };
    let head = NvramHead { cache: CACHE, identity, slots: SLOTS };
    NVRAM_HEAD_OFFSETS.iter().for_each(|at| put(*at as usize, head.encode().bytes()));
    COMMIT_OFFSETS.iter().for_each(|at| put(*at as usize, &commit_word(ID, 4).to_le_bytes()));
    for slot in 0..4 {
        let data = [slot as u8 + 1; 512];
        let data_checksum = dcd_engine::format::checksum::crc32c(&data);
        let (sequence, block) = (u64::from(slot) + 1, u64::from(slot) * 3);
        let header = SlotHeader { sequence, block, data_checksum }.encode(ID, slot);
        [0, 1].into_iter().for_each(|copy| put(NvramLayout::header_at(slot, copy), &header));
        put(NvramLayout::slot_at(slot), &data);
    }
    bytes
}

pub(crate) fn run(input: &[u8]) {
    let mut bytes = memory();
    for change in input.chunks_exact(CHANGE_BYTES).take(CHANGES_MAX) {
        let place = u32::from_le_bytes([change[1], change[2], change[3], 0]);
        let value = u64::from(u16::from_le_bytes([change[4], change[5]]));
        let sequence = if place >> 23 == 1 { value << 32 | 0xffff_ffff } else { value };
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        match change[0] % 4 {
            0 => {
                let at = place as usize % bytes.len();
                bytes[at] ^= change[4];
            }
            1 => {
                let slot = place % SLOTS;
                let header = SlotHeader { sequence, block: value, data_checksum: place };
                let copy = (place >> 16) as usize % 2;
                put(NvramLayout::header_at(slot, copy), &header.encode(ID, slot));
            }
            2 => put(
                COMMIT_OFFSETS[place as usize % 2] as usize,
                &commit_word(ID, sequence).to_le_bytes(),
            ),
            _ => {
                let identity = NvramIdentity { id: ID, generation: value };
                let head = NvramHead { cache: CACHE, identity, slots: SLOTS + 128 * (place >> 20) };
                put(NVRAM_HEAD_OFFSETS[place as usize % 2] as usize, head.encode().bytes());
            }
        }
    }
    let picture = NvramPicture::of(&bytes);
    let nvram = NvramConfig { bypass_blocks: 8, ..NvramConfig::default() };
    let start = NvramStart {
        cache: CACHE,
        expected: Some(NvramIdentity { id: ID, generation: 5 }),
        new_id: Uuid([3; 16]),
        volume_blocks: BLOCKS,
        unit_blocks: 1,
        may_be_lost: false,
    };
    let config = DurableConfig { nvram, group_blocks: 16 };
    let medium = Box::new(MemoryMedium::new(bytes, MediumPersist::Now));
    let Ok(mut tier) = DurableNvram::open(Time::ZERO, config, medium, &start) else {
        return;
    };
    let picture = picture.expect("what a start takes can be shown");
    tier.begin();
    assert!(tier.is_open());
    let shown: u64 = picture.ranges.iter().map(|range| range.blocks).sum();
    assert_eq!(tier.blocks(), shown);
    assert_eq!(tier.status().damaged_blocks, picture.damaged.len() as u64);
    for range in picture.ranges {
        for block in range.start.0..range.end() {
            let reply = read(&mut tier, LbaRange::new(block, 1));
            let is_damaged = picture.damaged.iter().any(|lba| lba.0 == block);
            assert_eq!(reply.result.is_err(), is_damaged, "block {block} is what is shown");
        }
    }
    let range = LbaRange::new(0, BLOCKS);
    let is_damaged = !picture.damaged.is_empty();
    assert_eq!(read(&mut tier, range).result.is_err(), is_damaged, "all of it");
    let range = LbaRange::new(2, 3);
    let data = Buffer::copy_of(&[0x77; 3 * 512]);
    let written = ask(&mut tier, Operation::Write { start: range.start, data });
    assert_eq!(written.result, Ok(()));
    let found = read(&mut tier, range).buffer.expect("a read brings its buffer");
    assert!(found.bytes() == [0x77; 3 * 512], "what was written is read");
    assert_eq!(ask(&mut tier, Operation::Shutdown).result, Ok(()));
    assert_eq!(tier.blocks(), tier.status().damaged_blocks, "all that is good is below");
}

fn read(tier: &mut DurableNvram, range: LbaRange) -> Reply {
    ask(tier, Operation::Read { range, buffer: Buffer::default() })
}

/// Asks, with a disk below that does everything at once.
fn ask(tier: &mut DurableNvram, operation: Operation) -> Reply {
    let id = RequestId(1);
    tier.request(Time::ZERO, Request { id, operation, fua: false });
    let mut replies = Vec::new();
    while let Some(output) = tier.poll_output() {
        match output {
            DurableOutput::Reply(reply) => replies.push(reply),
            DurableOutput::Persist(_) => unreachable!("memory is durable at once"),
            DurableOutput::Below(Request { id, operation, .. }) => {
                let buffer = match operation {
                    Operation::Read { range, mut buffer } => {
                        buffer.set_zeroes(range.bytes() as usize);
                        Some(buffer)
                    }
                    Operation::Write { data, .. } => Some(data),
                    _ => None,
                };
                let reply = Reply { id, result: Ok(()), buffer, answer: None };
                tier.below_done(Time::ZERO, reply);
            }
        }
    }
    assert_eq!(replies.len(), 1, "each request is answered");
    replies.remove(0)
}

/// Meaningful inputs.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let layout = NvramLayout { slots: SLOTS };
    let place = |at: usize| [(at & 255) as u8, (at >> 8 & 255) as u8, (at >> 16 & 255) as u8];
    let xor = |at: usize| [&[0][..], &place(at), &[1, 0]].concat();
    assert!(layout.bytes() < 1 << 24);
    vec![
        Vec::new(),
        // A block, a header, a commit word and a head that have rotted.
        xor(NvramLayout::slot_at(2) + 5),
        xor(NvramLayout::header_at(1, 0) + 9),
        xor(COMMIT_OFFSETS[1] as usize),
        xor(NVRAM_HEAD_OFFSETS[0] as usize + 40),
        // Both copies of a header; of a commit word.
        [xor(NvramLayout::header_at(1, 0)), xor(NvramLayout::header_at(1, 1))].concat(),
        [xor(COMMIT_OFFSETS[0] as usize), xor(COMMIT_OFFSETS[1] as usize)].concat(),
        // A newer header of a block, of a batch that was not committed; then it was.
        vec![1, 9, 0, 0, 5, 0],
        vec![1, 9, 0, 0, 5, 0, 2, 0, 0, 0, 5, 0],
        // Commits as far as nobody gets: the last that is believed, and the last that there is.
        vec![2, 0, 0, 0x80, 0xff, 0xfe],
        vec![2, 0, 0, 0x80, 0xff, 0xff, 2, 1, 0, 0x80, 0xff, 0xff],
        // A later start; an earlier one; more slots than there are.
        vec![3, 0, 0, 0, 6, 0],
        vec![3, 0, 0, 0, 4, 0, 3, 1, 0, 0, 4, 0],
        vec![3, 0, 0, 0x10, 5, 0, 3, 1, 0, 0x10, 5, 0],
    ]
}
