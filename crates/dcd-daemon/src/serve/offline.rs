//! Running a cache without frontends, for as long as one request takes: `dcd detach` while no
//! daemon runs. A SIGINT or SIGTERM ends it in order before its time, a second one at once.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use dcd_engine::stats::RecoveryReport;
use dcd_engine::units::LbaRange;
use dcd_engine::{Operation, Phase, RequestError, TieredEngine, Uuid};

use crate::event_loop::EventLoop;
use crate::event_loop::core::Core;
use crate::event_loop::submitter::{Completion, DrainTicket};
use crate::pair::PairOptions;
use crate::process::signals::Signals;
use crate::report::lost::LostReport;
use crate::report::stuck::StuckReport;
use crate::serve::error::ServeError;
use crate::serve::open_pair::{Pair, open_pair, wait_until_running};
use crate::serve::opening::OpeningTeller;
use dcd_protocol::Progress;

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// What to do with the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfflineTask {
    /// Bring everything to the data-disk, and let it stand on its own.
    Detach,
    /// Bring everything to the data-disk that can be read, and close the cache; the pair stays one.
    Drain,
    /// Close the cache again.
    Nothing,
}

impl OfflineTask {
    /// In the words of a message.
    fn operation(self) -> &'static str {
        match self {
            OfflineTask::Detach => "detach",
            OfflineTask::Drain => "drain",
            OfflineTask::Nothing => "shut down in order",
        }
    }
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All was done.
    Done,
    /// A signal came first. The cache was closed in order, and the pair is one.
    Cancelled,
    /// A second signal came. As after a crash.
    AtOnce,
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct OfflineReport {
    /// The cache.
    pub uuid: Uuid,
    /// How opening went; `None` if it was interrupted.
    pub recovery: Option<RecoveryReport>,
    /// How it ended.
    pub ended: Ended,
    /// Lines of 4 KiB that were brought to the data-disk.
    pub lines_moved: u64,
    /// Lines that were discarded or zeroed, and are zero there now: nothing of them was moved.
    pub lines_zeroed: u64,
    /// Lines that are still in the log only.
    pub lines_left: u64,
    /// The cache-disk failed meanwhile, with nothing on it that is not on the data-disk: it could
    /// not be marked.
    pub is_unmarked: bool,
    /// Where the payload of the data-disk begins, if that has a label; else 0.
    pub payload_offset_bytes: u64,
    /// Its size.
    pub payload_bytes: u64,
}

/// Opens a pair, does one thing, closes it. Interrupted at any point it can be begun again.
///
/// If something is lost a detach asks `give_up`, and does not take place if the answer is no.
///
/// It runs on the calling thread, where signals are blocked meanwhile.
pub fn run_offline(
    options: &PairOptions,
    task: OfflineTask,
    progress: &mut dyn FnMut(Progress),
    give_up: &mut dyn FnMut(&LostReport) -> bool,
) -> Result<OfflineReport, ServeError> {
    let signals = Rc::new(Signals::install_all().map_err(ServeError::system("receive signals"))?);
    let Pair { mut event_loop, superblock, mut record, away, given_for_members, .. } =
        open_pair(options, Some(signals))?;
    let mut report = OfflineReport {
        uuid: superblock.uuid,
        recovery: None,
        ended: Ended::Cancelled,
        lines_moved: 0,
        lines_zeroed: 0,
        lines_left: 0,
        is_unmarked: false,
        payload_offset_bytes: superblock.data_offset_bytes,
        payload_bytes: superblock.data_disk.bytes(),
    };
    let teller = OpeningTeller::new(None, None, options.quiet);
    if !wait_until_running(&mut event_loop, &away, &given_for_members, teller)? {
        event_loop.close();
        return Ok(report);
    }
    record.opened(event_loop.core().superblock().generation);
    report.recovery = Some(event_loop.core().status().recovery);
    let at_first = Left::of(&event_loop);
    let total = at_first.all();

    let mut steps = match task {
        OfflineTask::Detach => VecDeque::from([Step::Drain, Step::Detach(Vec::new())]),
        OfflineTask::Drain => VecDeque::from([Step::Drain, Step::Shutdown]),
        OfflineTask::Nothing => VecDeque::from([Step::Shutdown]),
    };
    let mut lost = None;
    let mut stuck = None;
    report.ended = Ended::Done;
    let mut left = at_first;
    report.lines_left = total;
    let mut result = Ok(());
    while let Some(step) = steps.pop_front() {
        let ended = run_step(&step, &mut event_loop, total, &mut report, &mut left, progress)?;
        let Some(answer) = ended else { return Ok(report) };
        result = answer;
        if let Err(RequestError::Lost { lines }) = result
            && step == Step::Drain
        {
            let ranges = event_loop.core().lost();
            let accepts = task == OfflineTask::Drain || give_up(&LostReport::of(lines, &ranges));
            steps = match task {
                OfflineTask::Detach if accepts => VecDeque::from([Step::Detach(ranges)]),
                _ => VecDeque::from([Step::Shutdown]),
            };
            lost = (!accepts).then_some(lines);
            result = Ok(());
        } else if let Err(RequestError::Stuck { lines, zero_lines }) = result {
            // Found by the drain, it ends with a shutdown; found by the detach, it has been one.
            if step == Step::Drain {
                steps = VecDeque::from([Step::Shutdown]);
            }
            stuck = Some(StuckReport::of(
                lines,
                zero_lines,
                Some(event_loop.core()),
                event_loop.store_report().as_ref(),
            ));
            result = Ok(());
        } else if result == Err(RequestError::Cancelled) {
            // Begun with a drain, it ends with a shutdown.
            if step == Step::Drain {
                steps = VecDeque::from([Step::Shutdown]);
            }
            result = Ok(());
        } else if result.is_ok() && step != Step::Shutdown {
            // All was moved, however late somebody wished that it were not.
            (report.ended, report.lines_left) = (Ended::Done, 0);
            left = Left::default();
        }
        if result.is_err() {
            break;
        }
    }
    report.lines_moved = at_first.lines.saturating_sub(left.lines);
    report.lines_zeroed = at_first.zero_lines.saturating_sub(left.zero_lines);
    // What the log holds then, the memory holds no more.
    let is_closed = *event_loop.phase() == Phase::Closed;
    let is_detach = task == OfflineTask::Detach;
    let is_detached = is_detach && report.ended == Ended::Done && result.is_ok() && lost.is_none();
    if is_detached {
        event_loop.label_without_cache();
    }
    let (engine, _) = event_loop.close();
    report.is_unmarked = engine.cache_disk_failure().is_some();
    if is_closed && result.is_ok() && !report.is_unmarked {
        record.closed(engine.superblock(), engine.holds_newer_data());
    } else if is_detached && report.is_unmarked {
        record.detached_without_cache();
    }
    if let (Ok(()), Some(report)) = (&result, stuck) {
        let operation = if is_detach { "detached" } else { "brought home" };
        return Err(ServeError::Stuck { operation, report });
    }
    match (result, lost) {
        (Err(RequestError::Lost { lines }), _) | (Ok(()), Some(lines)) => {
            return Err(ServeError::NotDetached { lines });
        }
        (result, _) => {
            let operation = task.operation();
            // Its modes are those of a daemon.
            let past_the_log = false;
            result.map_err(|source| ServeError::Stop { operation, source, past_the_log })?
        }
    }
    Ok(report)
}

/// What is still in the log only.
#[derive(Clone, Copy, Default)]
struct Left {
    lines: u64,
    zero_lines: u64,
}

impl Left {
    fn of(event_loop: &EventLoop<TieredEngine>) -> Left {
        let status = event_loop.core().status();
        Left { lines: status.dirty_lines, zero_lines: status.zero_lines }
    }

    fn all(self) -> u64 {
        self.lines + self.zero_lines
    }
}

/// Turns the loop until the step has its answer. A first signal cancels the step; a second ends all
/// at once, and there is no answer.
fn run_step(
    step: &Step,
    event_loop: &mut EventLoop<TieredEngine>,
    total: u64,
    report: &mut OfflineReport,
    left: &mut Left,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<Result<(), RequestError>>, ServeError> {
    let under_way = step.start(event_loop);
    loop {
        if let Ok(result) = under_way.answer.try_recv() {
            return Ok(Some(result));
        }
        event_loop
            .turn(Some(PROGRESS_INTERVAL))
            .map_err(ServeError::system("wait for the disks"))?;
        while event_loop.take_stop_request().is_some() {
            if report.ended == Ended::Cancelled {
                report.ended = Ended::AtOnce;
                return Ok(None);
            }
            report.ended = Ended::Cancelled;
            step.cancel(&under_way, event_loop);
        }
        if *event_loop.phase() == Phase::Running {
            *left = Left::of(event_loop);
            report.lines_left = left.all().min(total);
            let is_held_up = event_loop.core().obstacle().is_some();
            progress(Progress { done: total - report.lines_left, total, is_held_up });
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Step {
    Drain,
    /// Giving this up.
    Detach(Vec<LbaRange>),
    Shutdown,
}

struct StepUnderWay {
    ticket: DrainTicket,
    answer: mpsc::Receiver<Result<(), RequestError>>,
}

impl Step {
    fn start(&self, event_loop: &mut EventLoop<TieredEngine>) -> StepUnderWay {
        let (sender, answer) = mpsc::channel();
        let completion = Completion::new(move |reply| {
            let _ = sender.send(reply.result);
        });
        let ticket = event_loop.submitter().new_ticket();
        match self {
            Step::Drain => event_loop.drain(ticket, completion),
            Step::Detach(lost) if lost.is_empty() => {
                event_loop.request(Operation::Detach, completion);
            }
            Step::Detach(lost) => {
                let operation = Operation::DetachAccepting { lost: lost.clone() };
                event_loop.request(operation, completion);
            }
            Step::Shutdown => event_loop.request(Operation::Shutdown, completion),
        }
        StepUnderWay { ticket, answer }
    }

    fn cancel(&self, under_way: &StepUnderWay, event_loop: &mut EventLoop<TieredEngine>) {
        match self {
            Step::Drain => event_loop.cancel_drain(under_way.ticket),
            Step::Detach(_) => event_loop.request(Operation::CancelDetach, Completion::new(|_| ())),
            Step::Shutdown => {}
        }
    }
}
