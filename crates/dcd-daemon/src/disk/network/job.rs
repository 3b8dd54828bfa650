//! An I/O on its way to a server: its bytes, and into which requests it is split.

use std::ops::Range;
use std::sync::LazyLock;

use dcd_engine::{Buffer, IoError, Time};
use dcd_protocol::nbd::wire::{command, command_flag};

/// Zeroes are written from one shared piece of this size, where a server cannot make them.
const ZEROES_BYTES: usize = 1 << 20;
/// Most bytes that a server is to zero in one request: it answers nothing else meanwhile, perhaps.
const ZERO_REQUEST_BYTES_MAX: u64 = 64 << 20;

static ZEROES: LazyLock<Buffer> = LazyLock::new(|| Buffer::zeroed(ZEROES_BYTES));

/// What is wanted.
pub(super) enum Work {
    Read(Buffer),
    /// `is_ours`: a copy, which nobody wants back.
    Write {
        data: Buffer,
        is_ours: bool,
        fua: bool,
    },
    Zeroes {
        length: u64,
        may_unmap: bool,
        /// The server cannot: they are written.
        in_writing: bool,
    },
    Flush,
}

/// See the module.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) offset: u64,
    pub(super) started: Time,
    /// Requests that are not answered; 0: it waits for a connection.
    pub(super) requests_left: u32,
    pub(super) error: Option<IoError>,
    /// Of a write that is durable when it ends, on a server without FUA: it has ended, and is being
    /// flushed.
    pub(super) is_flushing: bool,
    /// Of a flush: what it covers, as the session counts.
    pub(super) covers: u64,
}

/// One request of it.
pub(super) struct Part {
    pub(super) command: u16,
    pub(super) flags: u16,
    /// Bytes of the job.
    pub(super) bytes: Range<u64>,
    /// Those of its data that are sent along.
    pub(super) data: Option<Range<usize>>,
}

impl Job {
    pub(super) fn new(work: Work, offset: u64, started: Time) -> Job {
        Job { work, offset, started, requests_left: 0, error: None, is_flushing: false, covers: 0 }
    }

    pub(super) fn length(&self) -> u64 {
        match &self.work {
            Work::Read(buffer) => buffer.len() as u64,
            Work::Write { data, .. } => data.len() as u64,
            Work::Zeroes { length, .. } => *length,
            Work::Flush => 0,
        }
    }

    /// What is sent of it.
    pub(super) fn data(&self) -> &[u8] {
        match &self.work {
            Work::Write { data, .. } => data.bytes(),
            Work::Zeroes { .. } => ZEROES.bytes(),
            Work::Read(_) | Work::Flush => &[],
        }
    }

    /// The requests that it takes, each at most as long as the server takes them.
    pub(super) fn parts(&self, payload_max: u64, has_fua: bool) -> Vec<Part> {
        let fua = |fua: bool| if fua && has_fua { command_flag::FUA } else { 0 };
        let (command, flags, most) = match &self.work {
            Work::Flush => {
                return vec![Part { command: command::FLUSH, flags: 0, bytes: 0..0, data: None }];
            }
            Work::Read(_) => (command::READ, 0, payload_max),
            Work::Write { fua: wanted, .. } => (command::WRITE, fua(*wanted), payload_max),
            Work::Zeroes { in_writing: true, .. } => {
                (command::WRITE, 0, payload_max.min(ZEROES_BYTES as u64))
            }
            Work::Zeroes { may_unmap, .. } => {
                let flags = if *may_unmap { 0 } else { command_flag::NO_HOLE };
                (command::WRITE_ZEROES, flags, ZERO_REQUEST_BYTES_MAX)
            }
        };
        let length = self.length();
        let starts = (0..length).step_by(most as usize);
        let part = |start: u64| {
            let bytes = start..length.min(start + most);
            let data = match (&self.work, command) {
                (Work::Write { .. }, _) => Some(bytes.start as usize..bytes.end as usize),
                (_, command::WRITE) => Some(0..(bytes.end - bytes.start) as usize),
                _ => None,
            };
            Part { command, flags, bytes, data }
        };
        starts.map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(work: Work, payload_max: u64) -> Vec<(u16, Range<u64>, Option<Range<usize>>)> {
        let parts = Job::new(work, 0, Time::ZERO).parts(payload_max, true);
        parts.into_iter().map(|part| (part.command, part.bytes, part.data)).collect()
    }

    #[test]
    fn requests_are_no_longer_than_the_server_takes_them() {
        let write = Work::Write { data: Buffer::zeroed(10240), is_ours: false, fua: true };
        assert_eq!(
            ranges(write, 4096),
            [
                (command::WRITE, 0..4096, Some(0..4096)),
                (command::WRITE, 4096..8192, Some(4096..8192)),
                (command::WRITE, 8192..10240, Some(8192..10240)),
            ]
        );
        let read = ranges(Work::Read(Buffer::zeroed(4096)), 4096);
        assert_eq!(read, [(command::READ, 0..4096, None)]);
        let zeroes = |in_writing| Work::Zeroes { length: 3 << 20, may_unmap: true, in_writing };
        assert_eq!(ranges(zeroes(false), 4096), [(command::WRITE_ZEROES, 0..3 << 20, None)]);
        let written = ranges(zeroes(true), 32 << 20);
        assert_eq!(written.len(), 3);
        assert_eq!(written[2], (command::WRITE, 2 << 20..3 << 20, Some(0..1 << 20)));
    }
}
