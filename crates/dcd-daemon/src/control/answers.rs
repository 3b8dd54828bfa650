//! Answers of the control socket, in JSON.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use dcd_engine::{Operation, Reply, RequestError, RequestId, SequenceError};
use dcd_protocol::failure::{leg_hint, nvram_hint, resize_hint, volume_hint};
use dcd_protocol::{Code, Failure, Progress};
use serde_json::{Value, json};

use crate::event_loop::submitter::Submitter;
use crate::report::lost::NOT_DRAINED_HINT;

/// A request that is not answered yet is followed by a sign of life so often.
pub(super) const SIGN_OF_LIFE_INTERVAL: Duration = Duration::from_secs(2);

/// A refusal, as it is answered.
pub(crate) fn failure(code: Code, error: &str, hint: &str) -> Value {
    Failure::new(code, error, hint).to_value()
}

pub(crate) fn success() -> Value {
    json!({ "ok": true })
}

pub(crate) fn write_line(mut to: impl Write, value: &Value) -> io::Result<()> {
    // One write, so that a line is never seen in part by the other side of a broken connection.
    let mut line = value.to_string();
    line.push('\n');
    to.write_all(line.as_bytes())
}

pub(super) fn no_report() -> Value {
    failure(Code::NotRunning, "the cache does not run", "it is being opened or closed")
}

pub(crate) fn answer(result: Result<(), RequestError>) -> Value {
    let Err(reason) = result else { return success() };
    let hint = match reason {
        RequestError::Io => {
            "a disk has failed: `dcd status` says which, and dmesg why; if it is the cache-disk, stop dcd, and start it again \
             with the same disks"
        }
        RequestError::NoSpace => "the cache, or the data-disk, is full: `dcd status` says which",
        RequestError::ShuttingDown => "the daemon is ending; start it again",
        RequestError::ReadOnly => "the volume is served read-only, or its data-disk is read-only",
        RequestError::Cancelled => "ask again",
        RequestError::Lost { .. } => NOT_DRAINED_HINT,
        RequestError::Stuck { .. } => "`dcd status` says why",
        RequestError::Sequence(error) => sequence_hint(error),
        RequestError::Volume(error) => volume_hint(error),
        RequestError::Leg(error) => leg_hint(error),
        RequestError::Resize(error) => resize_hint(error),
        RequestError::NvramChange(error) => nvram_hint(error),
    };
    Failure::of(reason, hint).to_value()
}

pub(super) fn sequence_hint(error: SequenceError) -> &'static str {
    match error {
        SequenceError::NoReadArea => {
            "`dcd cache-disk resize --read-area SIZE` gives it one; `dcd status` shows a failed disk"
        }
        SequenceError::ReadAreaUnused => {
            "nothing is kept in pass-through, nor while a mode is switched: `dcd set mode=` ends it"
        }
        SequenceError::NoSuchSequence => "`dcd sequence list` shows them all",
        SequenceError::BadSequence => "was anything read from this device meanwhile?",
        SequenceError::NoRoom => {
            "`dcd sequence list` shows what takes the room: remove or unpin one, or give sequences \
             more of the read area with --sequence-share"
        }
        SequenceError::Busy => "ask again",
    }
}

/// Runs a request and waits for its answer. A client takes a daemon that says nothing for stopped:
/// it is told that somebody is there.
pub(crate) fn run_with_signs_of_life(
    stream: &UnixStream,
    submitter: &Submitter,
    operation: Operation,
) -> io::Result<Reply> {
    let (sender, receiver) = mpsc::sync_channel(1);
    submitter.submit(operation, false, move |reply| {
        let _ = sender.send(reply);
    });
    loop {
        match receiver.recv_timeout(SIGN_OF_LIFE_INTERVAL) {
            Ok(reply) => return Ok(reply),
            // The loop has no more to say.
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let result = Err(RequestError::ShuttingDown);
                return Ok(Reply { id: RequestId(0), result, buffer: None, answer: None });
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                write_line(stream, &json!({ "progress": Progress::default() }))?;
            }
        }
    }
}
