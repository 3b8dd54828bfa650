//! A disk without a cache, behind the same boundary as the engine: each request becomes one I/O of
//! the data-disk. It serves `dcd slow-disk`, and shows what the cache is measured against.

use std::collections::{BTreeMap, VecDeque};

use dcd_engine::io::{LegError, NvramChangeError, ResizeError};
use dcd_engine::stats::Status;
use dcd_engine::units::LbaRange;
use dcd_engine::{
    Buffer, DataDiskInfo, Device, Input, Io, IoData, IoDone, IoId, IoOperation, Operation, Output,
    Phase, Reply, Request, RequestError, RequestId, SequenceError, Time, VolumeError,
};

use crate::event_loop::core::Core;
use crate::event_loop::request_counts::RequestCounts;

/// What becomes of a request when its I/O has ended.
struct UnderWay {
    request: RequestId,
    /// It is done only after a flush (FUA of operations that have none of their own).
    then_flush: bool,
}

/// Requests straight to the data-disk.
pub struct PassThrough {
    data_disk: DataDiskInfo,
    phase: Phase,
    under_way: BTreeMap<IoId, UnderWay>,
    next_io: u64,
    outputs: VecDeque<Output>,
    /// The request to stop, which waits until nothing is under way.
    closing: Option<RequestId>,
    counts: RequestCounts,
}

impl PassThrough {
    /// A disk that runs at once.
    pub fn new(data_disk: DataDiskInfo) -> PassThrough {
        PassThrough {
            data_disk,
            phase: Phase::Running,
            under_way: BTreeMap::new(),
            next_io: 0,
            outputs: VecDeque::new(),
            closing: None,
            counts: RequestCounts::default(),
        }
    }

    fn request(&mut self, request: Request) {
        let Request { id, operation, fua } = request;
        self.counts.count(&operation);
        if self.closing.is_some() || self.phase == Phase::Closed {
            let buffer = match operation {
                Operation::Write { data, .. } => Some(data),
                _ => None,
            };
            return self.reply(id, Err(RequestError::ShuttingDown), buffer);
        }
        let zero = |range: LbaRange, may_unmap| IoOperation::WriteZeroes {
            offset: range.start.byte(),
            length: range.bytes(),
            may_unmap,
        };
        match operation {
            Operation::Read { range, mut buffer } => {
                buffer.set_any(range.bytes() as usize);
                self.io(id, IoOperation::Read { offset: range.start.byte(), buffer }, false);
            }
            Operation::Write { start, data } => {
                let data = IoData::Owned(data);
                self.io(id, IoOperation::Write { offset: start.byte(), data, fua }, false);
            }
            Operation::WriteZeroes { range, may_unmap } => self.io(id, zero(range, may_unmap), fua),
            Operation::Discard { range } => self.io(id, zero(range, true), fua),
            // What was acknowledged is on the data-disk already; only its flush is missing.
            Operation::Flush | Operation::Drain => self.io(id, IoOperation::Flush, false),
            // A flush ends soon, and a disk without a cache has nothing else to cancel.
            Operation::CancelDrain { .. }
            | Operation::CancelDetach
            | Operation::CancelResize { .. }
            | Operation::CancelNvramChange { .. } => self.reply(id, Ok(()), None),
            Operation::Resize { .. } | Operation::ResizeReadArea { .. } => {
                self.reply(id, Err(ResizeError::NotLogging.into()), None);
            }
            Operation::Sequence(_) => {
                self.reply(id, Err(SequenceError::NoReadArea.into()), None);
            }
            Operation::RemoveNvram => {
                self.reply(id, Err(NvramChangeError::NoMemory.into()), None);
            }
            Operation::Volume(_) => self.reply(id, Err(VolumeError::NoVolume.into()), None),
            Operation::FillLeg { .. } | Operation::TakeOutLeg { .. } => {
                self.reply(id, Err(LegError::NoLegs.into()), None);
            }
            Operation::Detach | Operation::DetachAccepting { .. } | Operation::Shutdown => {
                self.closing = Some(id);
                self.close_when_idle();
            }
        }
    }

    fn io(&mut self, request: RequestId, operation: IoOperation, then_flush: bool) {
        let id = IoId(self.next_io);
        self.next_io += 1;
        self.under_way.insert(id, UnderWay { request, then_flush });
        self.outputs.push_back(Output::Io(Io { id, device: Device::DataDisk, operation }));
    }

    fn io_done(&mut self, done: IoDone) {
        let UnderWay { request, then_flush } =
            self.under_way.remove(&done.id).expect("each I/O ends once");
        if self.closing == Some(request) {
            self.phase = Phase::Closed;
            return self.reply(request, done.result.map_err(RequestError::from), None);
        }
        if then_flush && done.result.is_ok() {
            return self.io(request, IoOperation::Flush, false);
        }
        self.reply(request, done.result.map_err(RequestError::from), done.buffer);
        self.close_when_idle();
    }

    /// The last flush, when nothing is under way any more.
    fn close_when_idle(&mut self) {
        if let Some(request) = self.closing
            && self.under_way.is_empty()
        {
            self.io(request, IoOperation::Flush, false);
        }
    }

    fn reply(&mut self, id: RequestId, result: Result<(), RequestError>, buffer: Option<Buffer>) {
        self.outputs.push_back(Output::Reply(Reply { id, result, buffer, answer: None }));
    }
}

impl Core for PassThrough {
    fn handle_input(&mut self, _now: Time, input: Input) {
        match input {
            Input::Request(request) => self.request(request),
            Input::IoDone(done) => self.io_done(done),
            // It asks for none.
            Input::WindowKept { .. } => {}
            Input::Timeout => {}
        }
    }

    fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn next_wake_up(&self) -> Option<Time> {
        None
    }

    fn phase(&self) -> &Phase {
        &self.phase
    }

    fn data_disk(&self) -> DataDiskInfo {
        self.data_disk
    }

    fn check_range(&self, range: LbaRange) -> bool {
        let unit = u64::from(self.data_disk.logical_block_size) / dcd_engine::units::BLOCK_SIZE;
        let end = range.start.0.checked_add(range.blocks);
        end.is_some_and(|end| end <= self.data_disk.blocks)
            && range.start.0.is_multiple_of(unit)
            && range.blocks.is_multiple_of(unit)
    }

    fn block_status(&self, range: LbaRange, _pieces_max: usize) -> Vec<(u64, bool)> {
        vec![(range.blocks, false)]
    }

    fn status(&self) -> Option<Status> {
        None
    }

    fn request_counts(&self) -> Option<RequestCounts> {
        Some(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_engine::{IoError, Lba};

    fn disk() -> PassThrough {
        PassThrough::new(DataDiskInfo {
            blocks: 64,
            logical_block_size: 4096,
            physical_sector_size: 4096,
        })
    }

    fn ask(disk: &mut PassThrough, id: u64, operation: Operation, fua: bool) {
        let request = Request { id: RequestId(id), operation, fua };
        disk.handle_input(Time::ZERO, Input::Request(request));
    }

    fn next_io(disk: &mut PassThrough) -> Io {
        let Some(Output::Io(io)) = disk.next_output() else { panic!("expected an I/O") };
        io
    }

    fn done(disk: &mut PassThrough, io: Io, result: Result<(), IoError>) {
        let buffer = match io.operation {
            IoOperation::Read { buffer, .. } => Some(buffer),
            IoOperation::Write { data: IoData::Owned(buffer), .. } => Some(buffer),
            _ => None,
        };
        disk.handle_input(Time::ZERO, Input::IoDone(IoDone { id: io.id, result, buffer }));
    }

    fn next_reply(disk: &mut PassThrough) -> Reply {
        let Some(Output::Reply(reply)) = disk.next_output() else { panic!("expected a reply") };
        reply
    }

    #[test]
    fn each_request_is_one_io_and_one_reply() {
        let mut disk = disk();
        ask(&mut disk, 1, Operation::read(LbaRange::new(8, 8)), false);
        let io = next_io(&mut disk);
        assert!(
            matches!(&io.operation, IoOperation::Read { offset: 4096, buffer } if buffer.len() == 4096)
        );
        assert!(disk.next_output().is_none());
        done(&mut disk, io, Ok(()));
        let reply = next_reply(&mut disk);
        assert_eq!((reply.id, reply.result), (RequestId(1), Ok(())));
        assert_eq!(reply.buffer.unwrap().len(), 4096);

        let data = Buffer::zeroed(4096);
        ask(&mut disk, 2, Operation::Write { start: Lba(0), data }, true);
        let io = next_io(&mut disk);
        assert!(matches!(io.operation, IoOperation::Write { fua: true, .. }));
        done(&mut disk, io, Err(IoError::NoSpace));
        assert_eq!(next_reply(&mut disk).result, Err(RequestError::NoSpace));
    }

    #[test]
    fn a_discard_with_fua_is_flushed_before_its_reply() {
        let mut disk = disk();
        ask(&mut disk, 1, Operation::Discard { range: LbaRange::new(0, 8) }, true);
        let io = next_io(&mut disk);
        assert!(matches!(io.operation, IoOperation::WriteZeroes { may_unmap: true, .. }));
        done(&mut disk, io, Ok(()));
        let io = next_io(&mut disk);
        assert!(matches!(io.operation, IoOperation::Flush));
        done(&mut disk, io, Ok(()));
        assert_eq!(next_reply(&mut disk).result, Ok(()));
    }

    #[test]
    fn shutdown_waits_for_what_is_under_way() {
        let mut disk = disk();
        ask(&mut disk, 1, Operation::read(LbaRange::new(0, 8)), false);
        let read = next_io(&mut disk);
        ask(&mut disk, 2, Operation::Shutdown, false);
        ask(&mut disk, 3, Operation::Flush, false);
        assert_eq!(next_reply(&mut disk).result, Err(RequestError::ShuttingDown));
        assert!(disk.next_output().is_none());
        done(&mut disk, read, Ok(()));
        assert_eq!(next_reply(&mut disk).id, RequestId(1));
        let flush = next_io(&mut disk);
        assert_eq!(*disk.phase(), Phase::Running);
        done(&mut disk, flush, Ok(()));
        assert_eq!(next_reply(&mut disk).id, RequestId(2));
        assert_eq!(*disk.phase(), Phase::Closed);
    }

    #[test]
    fn ranges_are_checked_in_logical_blocks() {
        let disk = disk();
        assert!(disk.check_range(LbaRange::new(56, 8)));
        assert!(!disk.check_range(LbaRange::new(56, 16)));
        assert!(!disk.check_range(LbaRange::new(1, 8)));
        assert!(!disk.check_range(LbaRange::new(u64::MAX, 8)));
    }
}
