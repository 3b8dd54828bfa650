//! What was before the first request of a trace: the cache is opened, a volume is told what will
//! lie where, and written to. The disks take no time for it. The engine's own clock goes on
//! meanwhile, so it is ahead of the trace's from then on ([`LogTarget::epoch`]).

use dcd_engine::volume::attributes::{AttributeChange, Attributes};
use dcd_engine::{
    Duration, EngineConfig, Input, LbaRange, Operation, Output, Phase, Request, RequestError,
    RequestId, Time, VolumeRequest,
};

use super::{LogError, LogTarget};

/// No request of a trace.
const EARLIER: RequestId = RequestId(u64::MAX - 2);
/// So much is written at once, past the log.
const PIECE_BLOCKS: u64 = 2048;
/// For so long the engine may tidy up.
const REST: Duration = Duration::from_secs(60);

impl LogTarget {
    /// It serves requests.
    ///
    /// # Errors
    /// If it does not.
    pub(super) fn opened(mut self) -> Result<LogTarget, LogError> {
        self.go_on(None, |target| *target.engine.phase() != Phase::Opening);
        match self.engine.phase() {
            Phase::Failed(error) => Err(error.clone().into()),
            _ => Ok(self),
        }
    }

    /// Gives extents of a volume attributes besides those that they have.
    ///
    /// # Errors
    /// As the engine says.
    pub fn hint(&mut self, ranges: Vec<LbaRange>, to: Attributes) -> Result<(), RequestError> {
        let change = AttributeChange { set: to, clear: Attributes::NONE };
        self.ask(Operation::Volume(VolumeRequest::SetAttributes { ranges, change }))
    }

    /// Writes something everywhere in these ranges, none of which is in the log afterwards.
    ///
    /// # Errors
    /// As the engine says.
    pub fn fill(&mut self, ranges: impl IntoIterator<Item = LbaRange>) -> Result<(), RequestError> {
        let settings = self.engine.config().clone();
        self.configure(&EngineConfig { bypass_threshold_bytes: 4096, ..settings.clone() });
        for range in ranges {
            let mut start = range.start.0;
            while start < range.end() {
                let piece = LbaRange::new(start, PIECE_BLOCKS.min(range.end() - start));
                let data = self.buffer(piece.bytes());
                self.ask(Operation::Write { start: piece.start, data })?;
                start = piece.end();
            }
        }
        self.ask(Operation::Drain)?;
        self.configure(&settings);
        self.go_on(Some(Time(self.epoch.0).after(REST)), |_| false);
        Ok(())
    }

    fn configure(&mut self, settings: &EngineConfig) {
        self.engine.configure(settings).expect("only the bypass changes");
        self.give(Input::Timeout);
    }

    /// Asks for something, and waits for the answer.
    fn ask(&mut self, operation: Operation) -> Result<(), RequestError> {
        self.answer = None;
        self.give(Input::Request(Request { id: EARLIER, operation, fua: false }));
        self.go_on(None, |target| target.answer.is_some());
        self.answer.take().expect("an engine that answers never is a bug")
    }

    /// Lets the engine go on, whose I/Os end at once, until it waits and `is_over`, or waits for
    /// nothing; to `end` by its clock, if that is given.
    fn go_on(&mut self, end: Option<Time>, is_over: impl Fn(&LogTarget) -> bool) {
        loop {
            match self.engine.poll_output() {
                Output::Io(io) => {
                    let done = self.finish(io);
                    self.give(Input::IoDone(done));
                }
                Output::Reply(reply) => {
                    self.answer = Some(reply.result);
                    self.spare.extend(reply.buffer);
                }
                Output::KeepWindow { window } => {
                    self.give(Input::WindowKept { window, is_kept: true });
                }
                Output::Wait { until } => {
                    self.wait(until);
                    let in_time = |until: &Time| end.is_none_or(|end| *until <= end);
                    let until = until.filter(in_time).filter(|_| !is_over(self));
                    let Some(until) = until else { return };
                    self.epoch = self.epoch.max(until.since(Time::ZERO));
                    self.give(Input::Timeout);
                }
            }
        }
    }
}
