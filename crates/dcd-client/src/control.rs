//! The control socket: lines of JSON, asked and answered in order, many on the way at once.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use dcd_engine::io::VolumeError;
use serde_json::{Value, json};

use crate::error::DeviceError;
use crate::plain::plain;
use crate::server::{PATIENCE, Until, connect_patiently, has_something, stranger, write_patiently};

/// Requests on the way at once. Their answers (less than 300 bytes each) fit into the buffers of the socket, so neither
/// side waits for the other to read.
const REQUESTS_UNDER_WAY: usize = 128;
/// Longest sentence of a server that is shown.
const WORDS_MAX: usize = 1000;
/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// A connection to the control socket of `dcd serve`.
pub(crate) struct ControlConnection {
    path: PathBuf,
    reader: BufReader<UnixStream>,
    /// What came is not what was asked for any more; nothing can be asked again.
    is_broken: bool,
}

impl ControlConnection {
    pub(crate) fn connect(path: &Path) -> Result<ControlConnection, DeviceError> {
        let reader = BufReader::new(connect(path)?);
        Ok(ControlConnection { path: path.to_owned(), reader, is_broken: false })
    }

    /// On a connection that there is.
    pub(crate) fn on(stream: UnixStream) -> ControlConnection {
        let reader = BufReader::new(stream);
        ControlConnection { path: PathBuf::new(), reader, is_broken: false }
    }

    /// The daemon parts from who has asked nothing for long when it needs the place. Nothing is on the way here, so a
    /// new connection is as good.
    fn renew(&mut self) -> Result<(), DeviceError> {
        let has_ended = self.reader.buffer().is_empty() && has_something(self.reader.get_ref());
        if !self.is_broken && has_ended {
            self.reader = BufReader::new(connect(&self.path)?);
        }
        Ok(())
    }

    fn send(&mut self, text: &str) {
        if !self.is_broken {
            self.is_broken = write_patiently(self.reader.get_ref(), text.as_bytes()).is_err();
        }
    }

    /// Asks one thing. `reasons` are the errors of the volume that it can end with.
    pub(crate) fn ask(
        &mut self,
        verb: Value,
        reasons: &[VolumeError],
    ) -> Result<Value, DeviceError> {
        let asked = [(verb, reasons.to_vec())];
        self.ask_all(asked.into_iter()).pop().expect("an answer for each")
    }

    /// Asks many things; the answers are in their order, one for each.
    pub(crate) fn ask_all(
        &mut self,
        asked: impl Iterator<Item = (Value, Vec<VolumeError>)>,
    ) -> Vec<Result<Value, DeviceError>> {
        let mut answers = Vec::new();
        let mut asked = asked.peekable();
        while asked.peek().is_some() {
            let mut lines = String::new();
            let mut reasons = Vec::new();
            for (verb, its_reasons) in asked.by_ref().take(REQUESTS_UNDER_WAY) {
                lines.push_str(&json!({ "volume": verb }).to_string());
                lines.push('\n');
                reasons.push(its_reasons);
            }
            if self.renew().is_err() {
                self.is_broken = true;
            }
            self.send(&lines);
            for reasons in reasons {
                let answer = self.answer(&reasons);
                answers.push(answer);
            }
        }
        answers
    }

    /// Asks for a sign of life.
    pub(crate) fn ping(&mut self) -> Result<(), DeviceError> {
        self.send("{\"command\":\"ping\"}\n");
        self.answer(&[]).map(|_| ())
    }

    /// Brings everything to the members, and waits for that.
    pub(crate) fn drain(&mut self) -> Result<(), DeviceError> {
        self.renew()?;
        self.send("{\"command\":\"drain\"}\n");
        self.answer(&[]).map(|_| ())
    }

    /// The next answer. What takes long tells how far it is meanwhile, which is a sign of life.
    fn answer(&mut self, reasons: &[VolumeError]) -> Result<Value, DeviceError> {
        loop {
            let answer = self.line()?;
            if !answer["progress"].is_object() {
                return self.judged(answer, reasons);
            }
        }
    }

    fn line(&mut self) -> Result<Value, DeviceError> {
        if self.is_broken {
            return Err(self.broken(io::ErrorKind::BrokenPipe.into()));
        }
        let mut line = Vec::new();
        let until = Until::new(&mut self.reader, Instant::now() + PATIENCE);
        let read = until.take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line);
        if let Err(source) = read {
            return Err(self.broken(source));
        }
        if !line.ends_with(b"\n") {
            return Err(self.broken(io::ErrorKind::UnexpectedEof.into()));
        }
        serde_json::from_slice(&line).map_err(|_| self.no_answer(&line))
    }

    fn judged(&mut self, answer: Value, reasons: &[VolumeError]) -> Result<Value, DeviceError> {
        let Some(is_ok) = answer["ok"].as_bool() else {
            return Err(self.no_answer(answer.to_string().as_bytes()));
        };
        if is_ok {
            return Ok(answer);
        }
        let error = answer["error"].as_str().unwrap_or("the daemon refused").to_owned();
        // The daemon says it in the words of the engine, which are ours.
        if let Some(reason) = reasons.iter().find(|reason| error.contains(&reason.to_string())) {
            return Err(DeviceError::Volume(*reason));
        }
        let one_line = |text: &str| plain(text).chars().take(WORDS_MAX).collect();
        let hint = answer["hint"].as_str().map(one_line);
        Err(DeviceError::Refused { error: one_line(&error), hint })
    }

    fn broken(&mut self, source: io::Error) -> DeviceError {
        self.is_broken = true;
        if source.kind() == io::ErrorKind::TimedOut {
            return DeviceError::Silent { path: self.path.clone() };
        }
        DeviceError::Broken { path: self.path.clone(), source }
    }

    /// An answer that does not say what it should.
    pub(crate) fn no_answer(&mut self, line: &[u8]) -> DeviceError {
        self.is_broken = true;
        let found = String::from_utf8_lossy(line).trim_end().chars().take(80).collect();
        DeviceError::Answer { path: self.path.clone(), found }
    }
}

/// A connection to a daemon whose word counts.
pub(crate) fn connect(path: &Path) -> Result<UnixStream, DeviceError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::TimedOut => DeviceError::Silent { path: path.to_owned() },
        _ => DeviceError::Connect { path: path.to_owned(), source },
    };
    let stream = connect_patiently(path, PATIENCE).map_err(failed)?;
    match stranger(&stream, path).map_err(failed)? {
        Some(uid) => Err(DeviceError::Stranger { path: path.to_owned(), uid }),
        None => Ok(stream),
    }
}
