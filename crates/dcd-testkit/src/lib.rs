//! What those who drive the engine without real disks have in common: what an I/O does to the bytes
//! of a disk ([`carry_out`]), and the loop that ends each I/O at once ([`settle`]). Who needs I/Os
//! that wait, fail, tear or lie has a machine of its own, and each has faults of its own: the tests
//! of the engine, the fuzzer, the simulator.

use dcd_engine::{
    Buffer, Engine, Input, Io, IoData, IoDone, IoOperation, LbaRange, Operation, Output, Reply,
    Time,
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

/// Carries out an I/O; `segment_memory` is that of the engine that wants it. Its buffer comes back
/// with the end.
pub fn carry_out(io: Io, segment_memory: &[u8], disk: &mut impl Bytes) -> IoDone {
    let buffer: Option<Buffer> = match io.operation {
        IoOperation::Read { offset, mut buffer } => {
            disk.read(offset, buffer.bytes_mut());
            Some(buffer)
        }
        IoOperation::Write { offset, data: IoData::Owned(buffer), fua } => {
            disk.write(offset, buffer.bytes(), fua);
            Some(buffer)
        }
        IoOperation::Write { offset, data: IoData::SegmentMemory(range), fua } => {
            disk.write(offset, &segment_memory[range], fua);
            None
        }
        IoOperation::WriteZeroes { offset, length, .. } => {
            disk.write_zeroes(offset, length);
            None
        }
        IoOperation::Flush => {
            disk.flush();
            None
        }
    };
    IoDone { id: io.id, result: Ok(()), buffer }
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
            Output::Wait { until } => return until,
        }
    }
}
