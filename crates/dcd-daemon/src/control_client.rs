//! The other end of the control socket, for the command.

use std::io::{self, BufReader, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::control::{Command, DetachAsked, Progress, read_line};
use crate::lost::LostReport;
use crate::recording::RecordedBatch;
use crate::sequence_control::{RANGES_PER_LINE, SequenceCommand};
use crate::signals::Signals;
use crate::status_report::StatusReport;
use crate::stuck::StuckReport;
use crate::volume_control::VolumeCommand;

/// Answers may be long: the segment map has a letter for each segment.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Why there is no answer, or a bad one.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody is there.
    #[error("no daemon answers at {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the daemon at {} does not answer any more: {source}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What came is no answer.
    #[error("expected an answer of dcd at {}, found {found:?}", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What came, cut short.
        found: String,
    },
    /// The daemon says no.
    #[error("{error}")]
    Refused {
        /// What it says.
        error: String,
        /// What it advises.
        hint: Option<String>,
    },
    /// The drain or detach was cancelled, here or elsewhere.
    #[error("{error}")]
    Cancelled {
        /// What the daemon says.
        error: String,
        /// What it advises.
        hint: Option<String>,
    },
    /// Something is lost, and so not everything is on the data-disk.
    #[error("{error}")]
    Lost {
        /// What the daemon says.
        error: String,
        /// What it advises.
        hint: Option<String>,
        /// What is lost.
        lost: LostReport,
    },
    /// Nothing more gets to the data-disk.
    #[error("{error}")]
    Stuck {
        /// What the daemon says.
        error: String,
        /// What it advises.
        hint: Option<String>,
    },
    /// Somebody did not want to wait for the answer to a cancel.
    #[error("gone without an answer of the daemon at {}", path.display())]
    Left {
        /// The socket.
        path: PathBuf,
    },
}

impl ControlError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ControlError::Connect { path, source } => Some(match source.kind() {
                io::ErrorKind::InvalidInput => "the path of a socket has at most 107 bytes".into(),
                _ if std::fs::metadata(path).is_ok_and(|it| !it.file_type().is_socket()) => {
                    format!("{} is no socket; give that of --control", path.display())
                }
                io::ErrorKind::PermissionDenied => "use sudo, or the user of the daemon".into(),
                _ => "is the daemon running, and was it started with this --control socket?".into(),
            }),
            ControlError::Broken { .. } => Some("see the daemon's messages".into()),
            ControlError::Answer { .. } => {
                Some("is it another program's socket, or another version of dcd?".into())
            }
            ControlError::Refused { hint, .. }
            | ControlError::Cancelled { hint, .. }
            | ControlError::Stuck { hint, .. }
            | ControlError::Lost { hint, .. } => hint.clone(),
            ControlError::Left { .. } => {
                Some("the daemon cancels what you have asked for when it finds you gone".into())
            }
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    ok: Option<bool>,
    error: Option<String>,
    hint: Option<String>,
    progress: Option<Progress>,
    #[serde(default)]
    cancelled: bool,
    lost: Option<LostReport>,
    stuck: Option<StuckReport>,
}

/// A connection to a daemon.
pub struct ControlClient {
    path: PathBuf,
    reader: BufReader<UnixStream>,
    signals: Option<Signals>,
}

impl ControlClient {
    /// Connects to a control socket.
    pub fn connect(path: &Path) -> Result<ControlClient, ControlError> {
        let stream = UnixStream::connect(path)
            .map_err(|source| ControlError::Connect { path: path.to_owned(), source })?;
        let reader = BufReader::new(stream);
        Ok(ControlClient { path: path.to_owned(), reader, signals: None })
    }

    /// From now on a SIGINT or SIGTERM cancels the drain or detach that is asked for, and the
    /// answer to that is waited for. A second one does not wait.
    pub fn cancel_by_signal(mut self) -> io::Result<ControlClient> {
        self.signals = Some(Signals::install()?);
        Ok(self)
    }

    /// Runs a command and gives its answer; `progress` is told how far it is, if it is long.
    pub fn request(
        &mut self,
        command: Command,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Value, ControlError> {
        self.ask(command)?;
        self.answer(progress)
    }

    /// Asks for a detach on these terms.
    pub fn detach(
        &mut self,
        asked: DetachAsked,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Value, ControlError> {
        let mut value = json!(asked);
        value["command"] = json!(Command::Detach);
        match self.send_value(&value) {
            // As in [`ControlClient::ask`].
            Err(ControlError::Broken { source, .. })
                if source.kind() == io::ErrorKind::BrokenPipe => {}
            sent => sent?,
        }
        self.answer(progress)
    }

    fn answer(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Value, ControlError> {
        let mut is_cancelling = false;
        loop {
            while self.is_interrupted() {
                if is_cancelling {
                    return Err(ControlError::Left { path: self.path.clone() });
                }
                is_cancelling = true;
                self.send(Command::Cancel)?;
            }
            let line = self.line()?;
            let parsed: Result<Value, _> = serde_json::from_slice(&line);
            let Ok(value) = parsed else { return Err(self.no_answer(&line)) };
            let Ok(answer) = Answer::deserialize(&value) else {
                return Err(self.no_answer(&line));
            };
            match answer {
                Answer { progress: Some(so_far), ok: None, .. } => progress(so_far),
                Answer { ok: Some(true), .. } => return Ok(value),
                Answer { ok: Some(false), error, hint, cancelled, lost, stuck, .. } => {
                    let error = error.unwrap_or_else(|| "the daemon refused".to_owned());
                    if let Some(lost) = lost {
                        return Err(ControlError::Lost { error, hint, lost });
                    }
                    if stuck.is_some() {
                        return Err(ControlError::Stuck { error, hint });
                    }
                    if cancelled {
                        return Err(ControlError::Cancelled { error, hint });
                    }
                    return Err(ControlError::Refused { error, hint });
                }
                _ => return Err(self.no_answer(&line)),
            }
        }
    }

    /// Asks something about sequences. `ranges` go with [`SequenceCommand::Store`], as first block and number of
    /// blocks.
    pub fn sequence(
        &mut self,
        command: &SequenceCommand,
        ranges: &[(u64, u64)],
    ) -> Result<Value, ControlError> {
        let mut text = json!({ "sequence": command }).to_string();
        text.push('\n');
        if matches!(command, SequenceCommand::Store { .. }) {
            for ranges in ranges.chunks(RANGES_PER_LINE) {
                text.push_str(&json!({ "ranges": ranges }).to_string());
                text.push('\n');
            }
            text.push_str("{\"end\":true}\n");
        }
        let sent = self.reader.get_mut().write_all(text.as_bytes());
        sent.map_err(|source| self.broken(source))?;
        self.answer(&mut |_| {})
    }

    /// Asks something of the volume.
    pub fn volume(&mut self, command: &VolumeCommand) -> Result<Value, ControlError> {
        let mut line = json!({ "volume": command }).to_string();
        line.push('\n');
        let sent = self.reader.get_mut().write_all(line.as_bytes());
        sent.map_err(|source| self.broken(source))?;
        self.answer(&mut |_| {})
    }

    fn ask(&mut self, command: Command) -> Result<(), ControlError> {
        match self.send(command) {
            // It hung up: what it said before, that it has too many clients for example, is read as the answer.
            Err(ControlError::Broken { source, .. })
                if source.kind() == io::ErrorKind::BrokenPipe =>
            {
                Ok(())
            }
            sent => sent,
        }
    }

    fn send(&mut self, command: Command) -> Result<(), ControlError> {
        self.send_value(&json!({ "command": command }))
    }

    fn send_value(&mut self, value: &Value) -> Result<(), ControlError> {
        let mut line = value.to_string();
        line.push('\n');
        let sent = self.reader.get_mut().write_all(line.as_bytes());
        sent.map_err(|source| self.broken(source))
    }

    /// Waits until there is something to read, or a signal. Whether it is a signal.
    fn is_interrupted(&self) -> bool {
        let Some(signals) = &self.signals else { return false };
        if self.reader.buffer().is_empty() {
            let stream = self.reader.get_ref();
            let mut events =
                [PollFd::new(stream, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            let _ = poll(&mut events, None);
        }
        signals.take().is_some()
    }

    /// Records requests; `take` is given each batch, and says whether to go on. A signal, where they are received
    /// here, ends it too; a second one does not wait for the daemon.
    pub fn record(
        &mut self,
        take: &mut dyn FnMut(RecordedBatch) -> bool,
    ) -> Result<(), ControlError> {
        self.ask(Command::Record)?;
        let (mut is_stopping, mut was_interrupted) = (false, false);
        let mut stop = |client: &mut ControlClient| {
            if !is_stopping {
                is_stopping = true;
                // A daemon that ends meanwhile has said all.
                let _ = client.send(Command::Cancel);
            }
        };
        loop {
            if self.is_interrupted() {
                if was_interrupted {
                    return Err(ControlError::Left { path: self.path.clone() });
                }
                was_interrupted = true;
                stop(self);
                continue;
            }
            let line = self.line()?;
            if let Some(batch) = RecordedBatch::parse(&line) {
                if !take(batch) {
                    stop(self);
                }
                continue;
            }
            let answer = serde_json::from_slice(&line).map_err(|_| self.no_answer(&line))?;
            return match answer {
                Answer { ok: Some(true), .. } => Ok(()),
                Answer { ok: Some(false), error, hint, .. } => {
                    let error = error.unwrap_or_else(|| "the daemon refused".to_owned());
                    Err(ControlError::Refused { error, hint })
                }
                _ => Err(self.no_answer(&line)),
            };
        }
    }

    fn line(&mut self) -> Result<Vec<u8>, ControlError> {
        read_line(&mut self.reader, ANSWER_BYTES_MAX)
            .map_err(|source| self.broken(source))?
            .ok_or_else(|| self.broken(io::ErrorKind::UnexpectedEof.into()))
    }

    /// The status.
    pub fn status(&mut self) -> Result<StatusReport, ControlError> {
        let answer = self.request(Command::Status, &mut |_| {})?;
        StatusReport::deserialize(&answer["status"])
            .map_err(|_| self.no_answer(answer.to_string().as_bytes()))
    }

    /// The metrics, in the form of OpenMetrics.
    pub fn metrics(&mut self) -> Result<String, ControlError> {
        let answer = self.request(Command::Metrics, &mut |_| {})?;
        let text = answer["metrics"].as_str().map(str::to_owned);
        text.ok_or_else(|| self.no_answer(answer.to_string().as_bytes()))
    }

    fn broken(&self, source: io::Error) -> ControlError {
        ControlError::Broken { path: self.path.clone(), source }
    }

    fn no_answer(&self, line: &[u8]) -> ControlError {
        if line.starts_with(b"{") && !line.ends_with(b"\n") {
            // The daemon went while it wrote.
            return self.broken(io::ErrorKind::UnexpectedEof.into());
        }
        let text = String::from_utf8_lossy(line);
        let found = text.trim_end().chars().take(80).collect();
        ControlError::Answer { path: self.path.clone(), found }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    #[test]
    fn half_a_line_is_the_end_of_the_daemon() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        theirs.write_all(b"{\"recorded\":{\"requests\":[[1,2,").unwrap();
        let reader = BufReader::new(ours);
        let mut client = ControlClient { path: "ctl".into(), reader, signals: None };
        let hang_up = std::thread::spawn(move || {
            let mut asked = String::new();
            BufReader::new(&theirs).read_line(&mut asked).unwrap();
            asked
        });
        let broken = client.record(&mut |_| true).unwrap_err();
        assert!(matches!(broken, ControlError::Broken { .. }), "{broken}");
        assert_eq!(hang_up.join().unwrap(), "{\"command\":\"record\"}\n");
    }

    /// A daemon with too many clients says so and hangs up, maybe before it was asked anything.
    #[test]
    fn a_refusal_is_heard_though_the_daemon_has_hung_up() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        theirs.write_all(b"{\"ok\":false,\"error\":\"too many clients\"}\n").unwrap();
        drop(theirs);
        let reader = BufReader::new(ours);
        let mut client = ControlClient { path: "ctl".into(), reader, signals: None };
        let refused = client.record(&mut |_| true).unwrap_err();
        assert!(
            matches!(&refused, ControlError::Refused { error, .. } if error == "too many clients")
        );
        // It says nothing more.
        let broken = client.request(Command::Status, &mut |_| {}).unwrap_err();
        assert!(matches!(broken, ControlError::Broken { .. }), "{broken}");
    }
}
