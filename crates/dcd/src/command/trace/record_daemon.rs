//! `dcd trace record --control`: what a running dcd is asked for, as it tells over its control
//! socket.
//!
//! Requests come in the order of their ends, and are written in that of their beginnings: each
//! waits here until the daemon says that all earlier ones have ended.

use std::collections::BinaryHeap;
use std::path::Path;
use std::time::{Duration, Instant};

use dcd_daemon::control::recording::RecordedBatch;
use dcd_daemon::event_loop::request_ring::{RecordedOperation, RecordedRequest};
use dcd_daemon::serve::ServeError;
use dcd_sim::trace::{Flags, Operation, Request};

use super::file::TraceFile;
use super::record::Recorded;
use crate::daemons;
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::progress::{Progress, Unit};

/// Requests that may wait for one that takes long: some 100 MB.
const WAITING_MAX: usize = 1 << 20;

/// Records for that time, or until Ctrl-C.
pub fn record(control: &Path, out: &Path, time: Duration) -> Result<Recorded, CommandError> {
    let problem = ServeError::system("receive signals");
    let mut client = daemons::connect(control)?.cancel_by_signal().map_err(problem)?;
    let mut trace = TraceFile::create(out)?;
    let mut sorted = Sorted::new(|request: &Request| trace.write(request));
    let mut progress = Progress::new("recording", Unit::Seconds);
    let (begin, mut written) = (Instant::now(), Ok(()));
    let ended = client.record(&mut |batch| {
        progress.update(begin.elapsed().as_secs(), time.as_secs());
        if written.is_ok() {
            written = sorted.add(&batch);
        }
        written.is_ok() && begin.elapsed() < time
    });
    progress.finish();
    written?;
    let recorded = sorted.finish()?;
    match ended {
        // An hour that was recorded is not thrown away because the daemon was killed.
        Err(source) if recorded.requests > 0 => {
            trace.finish()?;
            let (requests, path) = (recorded.requests, out.to_owned());
            Err(CommandError::Lab(LabError::RecordingCut { source, requests, path }))
        }
        ended => {
            ended?;
            trace.finish()?;
            Ok(recorded)
        }
    }
}

/// Writes requests in the order in which they came.
struct Sorted<W> {
    write: W,
    waiting: BinaryHeap<Waiting>,
    /// When the last one that was written came.
    written_ns: u64,
    recorded: Recorded,
}

/// The earliest is the greatest. Of those that came at the same time, which are taken together from
/// a queue, that with the lowest number.
#[derive(PartialEq, Eq)]
struct Waiting(RecordedRequest);

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        let place = |waiting: &Waiting| (waiting.0.received, waiting.0.number);
        place(other).cmp(&place(self))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<W: FnMut(&Request) -> Result<(), CommandError>> Sorted<W> {
    fn new(write: W) -> Sorted<W> {
        let recorded = Recorded { requests: 0, lost: 0 };
        Sorted { write, waiting: BinaryHeap::new(), written_ns: 0, recorded }
    }

    fn add(&mut self, batch: &RecordedBatch) -> Result<(), CommandError> {
        self.recorded.lost = self.recorded.lost.max(batch.lost);
        self.waiting.extend(batch.requests.iter().copied().map(Waiting));
        while let Some(first) = self.waiting.peek() {
            if first.0.received.0 >= batch.until_ns && self.waiting.len() <= WAITING_MAX {
                break;
            }
            self.write_first()?;
        }
        Ok(())
    }

    fn write_first(&mut self) -> Result<(), CommandError> {
        let Some(Waiting(first)) = self.waiting.pop() else { return Ok(()) };
        let received_ns = first.received.0;
        // It took so long that there was no waiting for it: better a late request than none.
        self.written_ns = self.written_ns.max(received_ns);
        let operation = match first.operation {
            RecordedOperation::Read => Operation::Read,
            RecordedOperation::Write => Operation::Write,
            RecordedOperation::WriteZeroes | RecordedOperation::Discard => Operation::Discard,
            RecordedOperation::Flush => Operation::Flush,
        };
        self.recorded.requests += 1;
        (self.write)(&Request {
            time_ns: self.written_ns,
            operation,
            device: 0,
            offset_bytes: first.offset_bytes,
            size_bytes: first.size_bytes,
            flags: if first.fua { Flags::FUA } else { Flags::default() },
            latency_ns: Some(first.answered.0 - received_ns),
            line: 0,
            column: 0,
        })
    }

    fn finish(mut self) -> Result<Recorded, CommandError> {
        while !self.waiting.is_empty() {
            self.write_first()?;
        }
        Ok(self.recorded)
    }
}

#[cfg(test)]
mod tests {
    use dcd_sim::trace::write_csv::CsvWriter;

    use super::*;

    fn batch(text: &str) -> RecordedBatch {
        RecordedBatch::parse(format!("{{\"recorded\":{text}}}").as_bytes()).unwrap()
    }

    /// ```text
    /// us    0    1    2    3    4    5
    ///       a....|....|....|....|....a          ends last, came first
    ///            b....b
    ///                 c....c
    /// ```
    #[test]
    fn requests_are_written_in_the_order_in_which_they_came() {
        let mut out = CsvWriter::new(Vec::new()).unwrap();
        let mut sorted = Sorted::new(|request: &Request| {
            out.write(request).unwrap();
            Ok(())
        });
        let first = r#"{"requests":[[1000,2000,"write",true,512,512,2],[2000,3000,"read",false,0,512,3]],"until_ns":0,"lost":0}"#;
        sorted.add(&batch(first)).unwrap();
        assert_eq!(sorted.recorded.requests, 0);
        let second = r#"{"requests":[[0,5000,"flush",false,0,0,1]],"until_ns":1500,"lost":7}"#;
        sorted.add(&batch(second)).unwrap();
        assert_eq!(sorted.recorded.requests, 2);
        let last =
            r#"{"requests":[[3000,4000,"write-zeroes",false,0,4096,4]],"until_ns":1500,"lost":7}"#;
        sorted.add(&batch(last)).unwrap();
        let recorded = sorted.finish().unwrap();
        assert_eq!((recorded.requests, recorded.lost), (4, 7));
        let wanted = "t_us,op,dev,off,len,fl,lat_us\n0,F,0,0,0,0,5\n1,W,0,512,512,2,1\n\
                      2,R,0,0,512,0,1\n3,D,0,0,4096,0,1\n";
        assert_eq!(String::from_utf8(out.finish().unwrap()).unwrap(), wanted);
    }

    /// Thirty-two reads are taken from a queue at once, again and again, and end in another order.
    #[test]
    fn what_came_at_the_same_time_stays_in_order() {
        let mut offsets = Vec::new();
        let mut sorted = Sorted::new(|request: &Request| {
            offsets.push(request.offset_bytes);
            Ok(())
        });
        for round in 0..20u64 {
            let (came, until) = (round * 1000, round * 1000);
            let ended = (0..32u64).map(|i| {
                let number = round * 32 + (i * 13 + 5) % 32;
                format!("[{came},{},\"read\",false,{},4096,{number}]", came + i, number * 4096)
            });
            let requests = ended.collect::<Vec<_>>().join(",");
            let text = format!("{{\"requests\":[{requests}],\"until_ns\":{until},\"lost\":0}}");
            sorted.add(&batch(&text)).unwrap();
        }
        sorted.finish().unwrap();
        assert!(offsets.iter().copied().eq((0..640).map(|i| i * 4096)), "{offsets:?}");
    }
}
