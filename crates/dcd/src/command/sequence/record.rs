//! `dcd sequence record`: what is read while a command runs, or for a time, in the order in which
//! it is asked for.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use dcd_daemon::event_loop::request_ring::{RecordedOperation, RecordedRequest};
use dcd_daemon::serve::ServeError;

use super::push;
use crate::daemons;
use crate::error::CommandError;
use crate::progress::{Progress, Unit};

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Reads that are recorded at most: some 100 MB here.
const READS_MAX: usize = 2 << 20;

/// What to record.
pub struct Record<'a> {
    pub control: &'a Path,
    pub name: &'a str,
    /// At most for so long.
    pub time: Option<Duration>,
    pub drop_caches: bool,
    /// Empty: record for the time.
    pub command: &'a [String],
}

/// The command, which does not outlive the recording of an error.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or nobody waits for it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Record<'_> {
    /// Records. The number of reads, and their ranges in blocks.
    pub fn run(&self) -> Result<(u64, Vec<(u64, u64)>), CommandError> {
        let problem = ServeError::system("receive signals");
        let client = daemons::connect(self.control)?;
        let mut client = client.cancel_by_signal().map_err(problem)?;
        if self.drop_caches {
            rustix::fs::sync();
            let path = Path::new(DROP_CACHES);
            std::fs::write(path, "3").map_err(CommandError::file("write to", path))?;
        }
        let mut reads: Vec<RecordedRequest> = Vec::new();
        let (mut child, mut failure, mut lost) = (None::<Running>, None, 0);
        let time = self.time.unwrap_or(Duration::MAX);
        let mut progress = Progress::new("recording", Unit::Seconds);
        let begin = Instant::now();
        client.record(&mut |batch| {
            // The first batch tells that the recording is on.
            if child.is_none() && !self.command.is_empty() {
                match self.spawn() {
                    Ok(running) => child = Some(running),
                    Err(error) => {
                        failure = Some(error);
                        return false;
                    }
                }
            }
            if self.time.is_some() {
                progress.update(begin.elapsed().as_secs(), time.as_secs());
            }
            lost = batch.lost;
            let is_read = |it: &&RecordedRequest| it.operation == RecordedOperation::Read;
            reads.extend(batch.requests.iter().filter(is_read));
            if begin.elapsed() >= time || reads.len() > READS_MAX {
                return false;
            }
            let Some(Running(child)) = &mut child else { return true };
            match child.try_wait() {
                Ok(None) => true,
                Ok(Some(status)) if status.success() => false,
                Ok(Some(status)) => {
                    let command = self.command[0].clone();
                    failure = Some(CommandError::RecordedCommand { command, status });
                    false
                }
                Err(source) => {
                    failure = Some(self.not_run(source));
                    false
                }
            }
        })?;
        progress.finish();
        if let Some(failure) = failure {
            return Err(failure);
        }
        if lost > 0 {
            return Err(CommandError::RecordingLost { lost });
        }
        reads.sort_by_key(|read| read.received);
        let mut ranges = Vec::new();
        for read in &reads {
            push(&mut ranges, read.offset_bytes, read.size_bytes);
        }
        if ranges.is_empty() {
            return Err(CommandError::NothingRead { name: self.name.to_owned() });
        }
        Ok((reads.len() as u64, ranges))
    }

    fn spawn(&self) -> Result<Running, CommandError> {
        let spawned = Command::new(&self.command[0]).args(&self.command[1..]).spawn();
        spawned.map(Running).map_err(|source| self.not_run(source))
    }

    fn not_run(&self, source: std::io::Error) -> CommandError {
        CommandError::NotRun { command: self.command[0].clone(), source }
    }
}
