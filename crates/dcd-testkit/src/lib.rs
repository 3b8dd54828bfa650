//! What those who drive the engine without real disks have in common: what an I/O does to the bytes
//! of a disk ([`perform`]) and what the engine is told of it ([`ended`]), and the loop that ends
//! each I/O at once ([`settle`]). Who needs I/Os that wait, fail, tear or lie has a machine of its
//! own, and each has faults of its own: the tests of the engine, the fuzzer, the simulator.

use std::ops::Range;

use dcd_engine::{
    Buffer, Engine, Input, Io, IoData, IoDone, IoError, IoOperation, LbaRange, Operation, Output,
    Reply, Time,
};

/// A disk that holds bytes and never fails. Offsets and lengths are bytes.
pub trait Bytes {
    /// Reads as many as `to` has.
    fn read(&mut self, offset: u64, to: &mut [u8]);

    /// Writes them; with `is_durable`, past what a flush would have to bring there.
    fn write(&mut self, offset: u64, from: &[u8], is_durable: bool);

    /// Writes zeroes.
    fn write_zeroes(&mut self, offset: u64, length: u64) {
        self.write(offset, &vec![0; length as usize], false);
    }

    /// Makes durable what was written.
    fn flush(&mut self) {}
}

/// All of it is durable at once.
///
/// # Panics
/// If a range is not within it.
impl Bytes for Vec<u8> {
    fn read(&mut self, offset: u64, to: &mut [u8]) {
        to.copy_from_slice(&self[offset as usize..][..to.len()]);
    }

    fn write(&mut self, offset: u64, from: &[u8], _is_durable: bool) {
        self[offset as usize..][..from.len()].copy_from_slice(from);
    }

    fn write_zeroes(&mut self, offset: u64, length: u64) {
        self[offset as usize..][..length as usize].fill(0);
    }
}

/// A read into memory that others have used: what is not written of it shows.
pub fn read_into_used(range: LbaRange) -> Operation {
    Operation::Read { range, buffer: Buffer::copy_of(&vec![0xdb; range.bytes() as usize]) }
}

/// The bytes of its disk that an I/O is about: of a flush, none.
pub fn range_of(operation: &IoOperation) -> Range<u64> {
    let (offset, length) = match operation {
        IoOperation::Read { offset, buffer } => (*offset, buffer.len() as u64),
        IoOperation::Write { offset, data: IoData::Owned(buffer), .. } => {
            (*offset, buffer.len() as u64)
        }
        IoOperation::Write { offset, data: IoData::SegmentMemory(range), .. } => {
            (*offset, range.len() as u64)
        }
        IoOperation::WriteZeroes { offset, length, .. } => (*offset, *length),
        IoOperation::Flush => (0, 0),
    };
    offset..offset + length
}

/// The bytes of a write; `segment_memory` is that of the engine that wants it.
pub fn bytes_of<'a>(data: &'a IoData, segment_memory: &'a [u8]) -> &'a [u8] {
    match data {
        IoData::Owned(buffer) => buffer.bytes(),
        IoData::SegmentMemory(range) => &segment_memory[range.clone()],
    }
}

/// What an I/O does to the bytes of a disk.
pub fn perform(io: &mut Io, segment_memory: &[u8], disk: &mut impl Bytes) {
    match &mut io.operation {
        IoOperation::Read { offset, buffer } => disk.read(*offset, buffer.bytes_mut()),
        IoOperation::Write { offset, data, fua } => {
            disk.write(*offset, bytes_of(data, segment_memory), *fua);
        }
        IoOperation::WriteZeroes { offset, length, .. } => disk.write_zeroes(*offset, *length),
        IoOperation::Flush => disk.flush(),
    }
}

/// How an I/O ended. Its buffer goes back to the engine.
pub fn ended(io: Io, result: Result<(), IoError>) -> IoDone {
    let buffer = match io.operation {
        IoOperation::Read { buffer, .. }
        | IoOperation::Write { data: IoData::Owned(buffer), .. } => Some(buffer),
        _ => None,
    };
    IoDone { id: io.id, result, buffer }
}

/// Carries out an I/O; `segment_memory` is that of the engine that wants it.
pub fn carry_out(mut io: Io, segment_memory: &[u8], disk: &mut impl Bytes) -> IoDone {
    perform(&mut io, segment_memory, disk);
    ended(io, Ok(()))
}

/// Gives an input, and ends at once each I/O that comes of it, until the engine waits. `carry_out`
/// gets the segment memory. Tells how long it waits.
pub fn settle(
    engine: &mut Engine,
    now: Time,
    input: Input,
    mut carry_out: impl FnMut(Io, &[u8]) -> IoDone,
    mut reply: impl FnMut(Reply),
) -> Option<Time> {
    engine.handle_input(now, input);
    loop {
        match engine.poll_output() {
            Output::Io(io) => {
                let done = carry_out(io, engine.segment_memory());
                engine.handle_input(now, Input::IoDone(done));
            }
            Output::Reply(answer) => reply(answer),
            Output::KeepWindow { window } => {
                engine.handle_input(now, Input::WindowKept { window, is_kept: true });
            }
            Output::Wait { until } => return until,
        }
    }
}
