//! Running a cache without frontends, for as long as one request takes: `dcd detach` while no daemon
//! runs.

use std::sync::mpsc;
use std::time::Duration;

use dcd_engine::stats::RecoveryReport;
use dcd_engine::{Operation, Phase, Uuid};

use crate::control::Progress;
use crate::pair::{Pair, PairOptions, open_pair, wait_until_running};
use crate::serve_error::ServeError;
use crate::submitter::Completion;

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// What to do with the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfflineTask {
    /// Bring everything to the data-disk, and let it stand on its own.
    Detach,
    /// Bring everything to the data-disk, and close the cache; the pair stays one.
    Drain,
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct OfflineReport {
    /// The cache.
    pub uuid: Uuid,
    /// How opening went.
    pub recovery: RecoveryReport,
    /// Lines of 4 KiB that were brought to the data-disk.
    pub lines_moved: u64,
}

/// Opens a pair, does one thing, closes it. Interrupted at any point it can be begun again.
pub fn run_offline(
    options: &PairOptions,
    task: OfflineTask,
    progress: &mut dyn FnMut(Progress),
) -> Result<OfflineReport, ServeError> {
    let Pair { mut event_loop, memory, superblock, .. } = open_pair(options, None)?;
    wait_until_running(&mut event_loop)?;
    let status = event_loop.core().status();
    let recovery = status.recovery;
    let total = status.dirty_lines + status.zero_ranges;

    let steps: &[(Operation, &'static str)] = match task {
        OfflineTask::Detach => &[(Operation::Detach, "detach")],
        OfflineTask::Drain => {
            &[(Operation::Drain, "drain"), (Operation::Shutdown, "shut down in order")]
        }
    };
    let mut result = Ok(());
    for (operation, name) in steps {
        let operation = match operation {
            Operation::Detach => Operation::Detach,
            Operation::Drain => Operation::Drain,
            _ => Operation::Shutdown,
        };
        let (sender, answer) = mpsc::channel();
        let completion = Completion::new(move |reply| {
            let _ = sender.send(reply.result);
        });
        event_loop.request(operation, completion);
        result = loop {
            if let Ok(result) = answer.try_recv() {
                break result.map_err(|source| ServeError::Stop { operation: name, source });
            }
            event_loop
                .turn(Some(PROGRESS_INTERVAL))
                .map_err(ServeError::system("wait for the disks"))?;
            if *event_loop.phase() == Phase::Running {
                let status = event_loop.core().status();
                let left = (status.dirty_lines + status.zero_ranges).min(total);
                progress(Progress { done: total - left, total });
            }
        };
        if result.is_err() {
            break;
        }
    }
    let is_closed = *event_loop.phase() == Phase::Closed;
    let (engine, is_empty) = event_loop.close();
    drop(engine);
    if is_closed && is_empty && result.is_ok() {
        memory.remove();
    }
    result?;
    Ok(OfflineReport { uuid: superblock.uuid, recovery, lines_moved: total })
}
