//! A recording of the requests that are served, over the control socket.
//!
//! ```text
//! event loop --> RequestRing --> this, on the thread of the client --> {"recorded":{...}} lines
//! ```
//!
//! Requests come in the order of their ends. `until_ns` says how far the recording is complete, so
//! that a client can bring them into the order in which they came without keeping all. Many come at
//! the same time, as far as the daemon can see: each has a number, which says in which order.

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use serde_json::json;

use dcd_protocol::{Command, Request};

use crate::control::answers::write_line;
use crate::event_loop::request_ring::{RecordedRequest, RequestRing};
use crate::event_loop::submitter::Submitter;

/// Requests that a ring holds: 10 MB, more than two seconds at 100,000 a second.
const RING_CAPACITY: usize = 1 << 18;
/// How often the ring is emptied.
const INTERVAL: Duration = Duration::from_millis(100);
/// Requests in a line.
const BATCH_REQUESTS_MAX: usize = 4096;
/// A request of another thread has its time before the event loop sees it. It does so sooner than
/// this.
const HAND_OVER_NS: u64 = 1_000_000_000;

/// A line of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordedBatch {
    /// In the order in which they were answered.
    pub requests: Vec<RecordedRequest>,
    /// All requests that came before this time of the daemon are in this batch or an earlier one;
    /// in nanoseconds, as the times of the requests.
    pub until_ns: u64,
    /// Requests that there was no room for, so far.
    pub lost: u64,
}

#[derive(Deserialize)]
struct BatchLine {
    recorded: RecordedBatch,
}

impl RecordedBatch {
    /// The batch in a line of an answer; none if it is something else.
    pub fn parse(line: &[u8]) -> Option<RecordedBatch> {
        serde_json::from_slice::<BatchLine>(line).ok().map(|line| line.recorded)
    }
}

/// Records until the client says something or goes, or the daemon ends.
pub(crate) fn run(reader: &mut BufReader<&UnixStream>, submitter: &Submitter) -> io::Result<()> {
    let ring = Arc::new(RequestRing::new(RING_CAPACITY));
    submitter.record(ring.clone());
    let result = send_until_stopped(reader, submitter, &ring);
    submitter.stop_recording(ring);
    result
}

fn send_until_stopped(
    reader: &mut BufReader<&UnixStream>,
    submitter: &Submitter,
    ring: &RequestRing,
) -> io::Result<()> {
    loop {
        let is_stopped = has_spoken(reader)?;
        // Asked before the ring is emptied: what came before it is in the ring by then.
        let until = submitter.ask(|snapshot| snapshot.recorded_until);
        let until_ns = until.map_or(u64::MAX, |until| until.0.saturating_sub(HAND_OVER_NS));
        send(reader.get_ref(), ring, until_ns)?;
        if is_stopped || until.is_none() {
            return Ok(());
        }
    }
}

/// Sends what is in the ring now: a line at least, so that the client can tell that the daemon
/// lives.
fn send(stream: &UnixStream, ring: &RequestRing, until_ns: u64) -> io::Result<()> {
    let mut left = RING_CAPACITY;
    loop {
        let requests: Vec<_> =
            std::iter::from_fn(|| ring.pop()).take(left.min(BATCH_REQUESTS_MAX)).collect();
        left -= requests.len();
        let is_last = requests.len() < BATCH_REQUESTS_MAX || left == 0;
        // Complete only with its last line.
        let until_ns = if is_last { until_ns } else { 0 };
        let batch = RecordedBatch { requests, until_ns, lost: ring.lost() };
        write_line(stream, &json!({ "recorded": batch }))?;
        if is_last {
            return Ok(());
        }
    }
}

/// Waits for [`INTERVAL`], or until the client says something. A `cancel` is its wish to end and is
/// consumed; another command is run when this one has been answered.
fn has_spoken(reader: &mut BufReader<&UnixStream>) -> io::Result<bool> {
    let until = Instant::now() + INTERVAL;
    while reader.buffer().is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        let wait = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
        let mut events = [PollFd::new(*reader.get_ref(), PollFlags::IN)];
        match poll(&mut events, Some(&wait)) {
            Ok(0) => return Ok(false),
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let said = reader.fill_buf()?;
    let Some(end) = said.iter().position(|byte| *byte == b'\n') else { return Ok(true) };
    let command = serde_json::from_slice::<Request>(&said[..end]);
    if matches!(command, Ok(Request { command: Some(Command::Cancel), .. })) {
        reader.consume(end + 1);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_is_sent_in_several_lines_and_complete_with_the_last() {
        let ring = RequestRing::new(RING_CAPACITY);
        let line = r#"[10,15,"write",true,4096,512,1]"#;
        let request: RecordedRequest = serde_json::from_str(line).unwrap();
        (0..BATCH_REQUESTS_MAX + 1).for_each(|_| ring.push(&request));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(theirs).lines();
            lines.map(|line| RecordedBatch::parse(line.unwrap().as_bytes()).unwrap()).collect()
        });
        send(&ours, &ring, 77).unwrap();
        drop(ours);
        let batches: Vec<RecordedBatch> = reader.join().unwrap();
        let facts: Vec<_> =
            batches.iter().map(|batch| (batch.requests.len(), batch.until_ns)).collect();
        assert_eq!(facts, [(BATCH_REQUESTS_MAX, 0), (1, 77)]);
        assert_eq!(batches[1].requests, [request]);
    }
}
