//! What takes long: a drain, a detach, the end. Its client is told how far it is, and may cancel
//! it.

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE, LbaRange};
use dcd_engine::{Phase, RequestError};
use dcd_protocol::{Code, Command, Progress, Request};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};

use crate::control::answers::{answer, failure, write_line};
use crate::control::shared::{Shared, UnderWay};
use crate::device::network::store_report::StoreReport;
use crate::event_loop::submitter::{DrainTicket, Snapshot};
use crate::report::lost::{LostReport, NOT_DETACHED_HINT, NOT_DRAINED_HINT};
use crate::report::stuck::StuckReport;
use crate::units_text::format_size;

/// How often progress is told.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

pub(super) type Done = Box<dyn FnOnce(dcd_engine::Reply) + Send>;

/// What takes long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Long {
    Drain(DrainTicket),
    /// The first part of a detach.
    Detaching(DrainTicket),
    Detach,
    Shutdown,
    /// Another size of the log.
    Resize(DrainTicket),
    /// Another memory in front of it, or none.
    Nvram(DrainTicket),
}

impl Long {
    fn begin(self, under_way: &mut UnderWay) {
        match self {
            Long::Drain(ticket) => under_way.drains.push(ticket),
            Long::Detaching(ticket) => under_way.detaching.push(ticket),
            Long::Detach => under_way.detaches += 1,
            Long::Shutdown | Long::Resize(_) | Long::Nvram(_) => {}
        }
    }

    fn end(self, shared: &Shared) {
        let mut under_way = shared.under_way();
        match self {
            Long::Drain(ticket) => under_way.drains.retain(|known| *known != ticket),
            Long::Detaching(ticket) => under_way.detaching.retain(|known| *known != ticket),
            Long::Detach => under_way.detaches -= 1,
            Long::Shutdown | Long::Resize(_) | Long::Nvram(_) => {}
        }
    }

    /// This client wants it no more. An end in order is not taken back.
    fn cancel(self, shared: &Shared) {
        match self {
            Long::Drain(ticket) | Long::Detaching(ticket) => shared.submitter.cancel_drain(ticket),
            Long::Resize(ticket) => shared.submitter.cancel_resize(ticket),
            Long::Nvram(ticket) => shared.submitter.cancel_nvram_change(ticket),
            Long::Detach if shared.under_way().detaches == 1 => shared.submitter.cancel_detach(),
            Long::Detach | Long::Shutdown => {}
        }
    }

    fn word(self) -> &'static str {
        match self {
            Long::Drain(_) => "drain",
            // The part before it is a drain, too.
            Long::Detaching(_) | Long::Detach => "detach",
            Long::Shutdown => "stop",
            Long::Resize(_) => "change of the size",
            Long::Nvram(_) => "change of the memory in front of the log",
        }
    }

    /// What to say when it was cancelled.
    fn cancelled(self, shared: &Shared) -> Value {
        let what = match self {
            Long::Drain(_) => "drain",
            Long::Detaching(_) | Long::Detach | Long::Shutdown => "detach",
            Long::Resize(_) => return resize_cancelled(),
            Long::Nvram(_) => return nvram_cancelled(),
        };
        let left = shared.submitter.status().map(|status| status.dirty_lines);
        let (left, hint) = match left {
            Some(lines) => (
                format!("{} stay in the cache", format_size(lines * LINE_SIZE)),
                format!("serving goes on; begin again with `dcd {what}`"),
            ),
            None => (
                "the rest stays in the cache".into(),
                "the daemon ends and the pair stays one: serve it again, or detach it offline"
                    .into(),
            ),
        };
        let mut value =
            failure(Code::Cancelled, &format!("the {what} was cancelled: {left}"), &hint);
        value["cancelled"] = true.into();
        value
    }
}

fn resize_cancelled() -> Value {
    let error =
        "the change of the size was cancelled: log and read area have the sizes that they had";
    let hint = "serving goes on; begin again with `dcd cache-disk resize`";
    let mut value = failure(Code::Cancelled, error, hint);
    value["cancelled"] = true.into();
    value
}

/// What is damaged in it is nowhere else.
const NOT_TAKEN_OUT_HINT: &str = "write these blocks anew, and try again; `dcd drain --lost-list FILE` lists them, and \
     `dcd detach --accept-damage` gives them up";

fn nvram_cancelled() -> Value {
    let error = "the change of the memory in front of the log was cancelled";
    let hint = "serving goes on; `dcd nvram status` shows what is there";
    let mut value = failure(Code::Cancelled, error, hint);
    value["cancelled"] = true.into();
    value
}

/// What to say when something is lost. The list is remembered: it may be accepted by who was told
/// of it.
pub(super) fn lost(shared: &Shared, job: Long, lines: u64, listed: &mut Vec<LbaRange>) -> Value {
    let ranges = shared.submitter.ask(|snapshot: &Snapshot<'_>| snapshot.core.lost());
    *listed = ranges.unwrap_or_default();
    let report = LostReport::of(lines, listed);
    let (what, hint) = match job {
        Long::Drain(_) => ("drained, but not all", NOT_DRAINED_HINT),
        Long::Resize(_) => ("the log has the size that it had", NOT_DRAINED_HINT),
        Long::Nvram(_) => ("the memory is not taken out", NOT_TAKEN_OUT_HINT),
        Long::Detaching(_) | Long::Detach | Long::Shutdown => ("not detached", NOT_DETACHED_HINT),
    };
    let mut value = failure(Code::Lost, &format!("{what}: {}", report.words()), hint);
    value["lost"] = json!(report);
    value
}

/// What to say when nothing more gets to the data-disk.
pub(super) fn stuck(shared: &Shared, job: Long, lines: u64, zero_lines: u64) -> Value {
    let asked = shared.submitter.ask(move |snapshot| {
        let serves = *snapshot.core.phase() == Phase::Running;
        let (engine, store) = (snapshot.core.engine(), snapshot.store.as_ref());
        let is_lost = store.is_some_and(StoreReport::is_lost);
        (StuckReport::of(lines, zero_lines, engine, store), serves, is_lost)
    });
    let (report, serves, is_lost) =
        asked.unwrap_or_else(|| (StuckReport::of(lines, zero_lines, None, None), false, false));
    let (what, again) = match job {
        Long::Drain(_) => ("not drained", "drain"),
        Long::Resize(_) => ("the log has the size that it had", "cache-disk resize"),
        Long::Nvram(_) => ("the memory is not taken out", "nvram remove"),
        Long::Detaching(_) | Long::Detach | Long::Shutdown => ("not detached", "detach"),
    };
    let goes_on = match serves {
        // Whoever is shut out must not be told to try again.
        _ if is_lost => "until then what it has can be read here".into(),
        true => format!(
            "serving goes on, and what is left is tried again by itself; then `dcd {again}` again"
        ),
        false => {
            "the daemon ends, and the pair stays one: serve it again, or detach it offline".into()
        }
    };
    let error = format!("{what}: {}", report.words());
    let mut value = failure(Code::Stuck, &error, &format!("{}; {goes_on}", report.way_out));
    value["stuck"] = json!(report);
    value
}

/// Starts something long and tells how far it is until it has ended.
pub(super) fn with_progress(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    job: Long,
    listed: &mut Vec<LbaRange>,
    start: impl FnOnce(Done),
) -> io::Result<Value> {
    let what = job.word();
    told!(Info, "job", "dcd: {what}: begun");
    let result = wait_with_progress(reader, shared, job, start);
    if result.is_err() {
        job.cancel(shared);
    }
    match &result {
        Ok((Ok(()), lines)) => {
            let moved = format_size(lines.moved * LINE_SIZE);
            told!(Info, "job", "dcd: {what}: done, {moved} moved");
        }
        Ok((Err(error), _)) => told!(Warning, "job", "dcd: {what}: ended: {error}"),
        Err(_) => told!(Info, "job", "dcd: {what}: given up, because who asked for it has gone"),
    }
    job.end(shared);
    let (result, lines) = result?;
    match result {
        Ok(()) => {
            let mut value = answer(Ok(()));
            value["moved_bytes"] = (lines.moved * LINE_SIZE).into();
            value["zeroed_bytes"] = (lines.zeroed * LINE_SIZE).into();
            Ok(value)
        }
        Err(RequestError::Cancelled) => Ok(job.cancelled(shared)),
        Err(RequestError::Lost { lines }) => Ok(lost(shared, job, lines, listed)),
        Err(RequestError::Stuck { lines, zero_lines }) => Ok(stuck(shared, job, lines, zero_lines)),
        Err(error) => Ok(answer(Err(error))),
    }
}

/// Lines that there were to move, and such as were discarded or zeroed, of which nothing is moved.
#[derive(Clone, Copy, Default)]
pub(super) struct Lines {
    moved: u64,
    zeroed: u64,
}

/// How it ended, and what there was to do. An error if the client has gone.
pub(super) fn wait_with_progress(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    job: Long,
    start: impl FnOnce(Done),
) -> io::Result<(Result<(), RequestError>, Lines)> {
    let submitter = &shared.submitter;
    let dirty = || {
        if matches!(job, Long::Nvram(_)) {
            let blocks = submitter.ask(|snapshot| snapshot.core.nvram_status().map(|it| it.blocks));
            let lines = blocks??.div_ceil(LINE_SIZE / BLOCK_SIZE);
            return Some((Lines { moved: lines, zeroed: 0 }, false));
        }
        let status = submitter.status()?;
        if matches!(job, Long::Resize(_)) {
            let left = status.resize.map_or(0, |resize| resize.lines_left);
            return Some((Lines { moved: left, zeroed: 0 }, status.obstacle.is_some()));
        }
        let left = Lines { moved: status.dirty_lines, zeroed: status.zero_lines };
        Some((left, status.obstacle.is_some()))
    };
    let mut lines = dirty().map_or(Lines::default(), |(left, _)| left);
    let mut total = lines.moved + lines.zeroed;
    let (sender, receiver) = mpsc::sync_channel(1);
    {
        let mut under_way = shared.under_way();
        job.begin(&mut under_way);
        start(Box::new(move |reply| {
            let _ = sender.send(reply.result);
        }));
    }
    let store = || submitter.ask(|snapshot: &Snapshot<'_>| snapshot.store.clone()).flatten();
    let mut is_in_vain = false;
    let mut listens = true;
    let mut progress = Progress { done: 0, total, is_held_up: false };
    loop {
        match receiver.recv_timeout(PROGRESS_INTERVAL) {
            Ok(Err(RequestError::Cancelled)) if is_in_vain => {
                let (left, _) = dirty().unwrap_or((lines, false));
                let stuck = RequestError::Stuck { lines: left.moved, zero_lines: left.zeroed };
                return Ok((Err(stuck), lines));
            }
            Ok(result) => return Ok((result, lines)),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Ok((Err(RequestError::ShuttingDown), lines));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if listens {
            listens = listen_to_client(reader, shared, job)?;
        }
        let store = store();
        // Another one has the store for good: nothing is waited for that has to get there.
        let has_to_get_there = matches!(job, Long::Drain(_) | Long::Detaching(_) | Long::Detach);
        if has_to_get_there && !is_in_vain && store.as_ref().is_some_and(StoreReport::is_lost) {
            is_in_vain = true;
            job.cancel(shared);
        }
        if let Some((left, is_held_up)) = dirty() {
            let is_held_up = is_held_up || store.is_some_and(|store| store.problem.is_some());
            lines.moved = lines.moved.max(left.moved);
            lines.zeroed = lines.zeroed.max(left.zeroed);
            let left = left.moved + left.zeroed;
            total = total.max(left);
            progress = Progress { done: total - left, total, is_held_up };
        }
        // Also where nothing is known, which is so at the end of the daemon: it is the sign that
        // somebody is there.
        write_line(*reader.get_ref(), &json!({ "progress": progress }))?;
    }
}

/// Whether the client wants to cancel. Returns whether it may still do so: not behind another
/// command, which is run when this one has been answered, nor when it has closed its direction. One
/// that has gone altogether is noticed by the next progress that is written.
pub(super) fn listen_to_client(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    job: Long,
) -> io::Result<bool> {
    if reader.buffer().is_empty() {
        let mut events = [PollFd::new(*reader.get_ref(), PollFlags::IN)];
        let nothing = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = poll(&mut events, Some(&nothing));
        if events[0].revents().is_empty() {
            return Ok(true);
        }
    }
    let said = reader.fill_buf()?;
    let Some(end) = said.iter().position(|byte| *byte == b'\n') else { return Ok(false) };
    let command = serde_json::from_slice::<Request>(&said[..end]);
    if !matches!(command, Ok(Request { command: Some(Command::Cancel), .. })) {
        return Ok(false);
    }
    reader.consume(end + 1);
    job.cancel(shared);
    Ok(true)
}
