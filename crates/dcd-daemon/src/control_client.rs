//! The other end of the control socket, for the command.

use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::control::{Command, Progress, read_line};
use crate::status_report::StatusReport;

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
}

impl ControlError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ControlError::Connect { source, .. } => Some(match source.kind() {
                io::ErrorKind::PermissionDenied => "use sudo, or the user of the daemon".into(),
                _ => "is the daemon running, and was it started with this --control socket?".into(),
            }),
            ControlError::Broken { .. } => Some("see the daemon's messages".into()),
            ControlError::Answer { .. } => {
                Some("is it another program's socket, or another version of dcd?".into())
            }
            ControlError::Refused { hint, .. } => hint.clone(),
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    ok: Option<bool>,
    error: Option<String>,
    hint: Option<String>,
    progress: Option<Progress>,
}

/// A connection to a daemon.
pub struct ControlClient {
    path: PathBuf,
    reader: BufReader<UnixStream>,
}

impl ControlClient {
    /// Connects to a control socket.
    pub fn connect(path: &Path) -> Result<ControlClient, ControlError> {
        let stream = UnixStream::connect(path)
            .map_err(|source| ControlError::Connect { path: path.to_owned(), source })?;
        Ok(ControlClient { path: path.to_owned(), reader: BufReader::new(stream) })
    }

    /// Runs a command and gives its answer; `progress` is told how far it is, if it is long.
    pub fn request(
        &mut self,
        command: Command,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Value, ControlError> {
        let mut line = json!({ "command": command }).to_string();
        line.push('\n');
        let sent = self.reader.get_mut().write_all(line.as_bytes());
        sent.map_err(|source| self.broken(source))?;
        loop {
            let line = read_line(&mut self.reader, ANSWER_BYTES_MAX)
                .map_err(|source| self.broken(source))?
                .ok_or_else(|| self.broken(io::ErrorKind::UnexpectedEof.into()))?;
            let parsed: Result<Value, _> = serde_json::from_slice(&line);
            let Ok(value) = parsed else { return Err(self.no_answer(&line)) };
            let Ok(answer) = Answer::deserialize(&value) else {
                return Err(self.no_answer(&line));
            };
            match answer {
                Answer { progress: Some(so_far), ok: None, .. } => progress(so_far),
                Answer { ok: Some(true), .. } => return Ok(value),
                Answer { ok: Some(false), error, hint, .. } => {
                    let error = error.unwrap_or_else(|| "the daemon refused".to_owned());
                    return Err(ControlError::Refused { error, hint });
                }
                _ => return Err(self.no_answer(&line)),
            }
        }
    }

    /// The status.
    pub fn status(&mut self) -> Result<StatusReport, ControlError> {
        let answer = self.request(Command::Status, &mut |_| {})?;
        StatusReport::deserialize(&answer["status"])
            .map_err(|_| self.no_answer(answer.to_string().as_bytes()))
    }

    fn broken(&self, source: io::Error) -> ControlError {
        ControlError::Broken { path: self.path.clone(), source }
    }

    fn no_answer(&self, line: &[u8]) -> ControlError {
        let text = String::from_utf8_lossy(line);
        let found = text.trim_end().chars().take(80).collect();
        ControlError::Answer { path: self.path.clone(), found }
    }
}
