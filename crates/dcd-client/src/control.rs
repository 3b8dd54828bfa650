//! The control socket: lines of JSON, asked and answered in order, many on the way at once.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use dcd_protocol::{Command, Failure, Request, VolumeCommand, read_line};
use serde_json::Value;

use crate::error::DeviceError;
use crate::plain::plain;
use crate::server::{PATIENCE, Until, connect_patiently, has_something, stranger, write_patiently};

/// Requests on the way at once. Their answers (less than 300 bytes each) fit into the buffers of
/// the socket, so neither side waits for the other to read.
const REQUESTS_UNDER_WAY: usize = 128;
/// Longest sentence of a server that is shown.
const WORDS_MAX: usize = 1000;
/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 << 20;

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

    /// The daemon parts from who has asked nothing for long when it needs the place. Nothing is on
    /// the way here, so a new connection is as good.
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

    /// Asks one thing of the volume.
    pub(crate) fn ask(&mut self, command: VolumeCommand) -> Result<Value, DeviceError> {
        self.ask_all([command].into_iter()).pop().expect("an answer for each")
    }

    /// Asks many things; the answers are in their order, one for each.
    pub(crate) fn ask_all(
        &mut self,
        commands: impl Iterator<Item = VolumeCommand>,
    ) -> Vec<Result<Value, DeviceError>> {
        let mut answers = Vec::new();
        let mut commands = commands.peekable();
        while commands.peek().is_some() {
            let mut lines = String::new();
            let mut count = 0;
            for command in commands.by_ref().take(REQUESTS_UNDER_WAY) {
                lines.push_str(&Request::from(command).line());
                count += 1;
            }
            if self.renew().is_err() {
                self.is_broken = true;
            }
            self.send(&lines);
            answers.extend((0..count).map(|_| self.answer()));
        }
        answers
    }

    /// Asks for a sign of life.
    pub(crate) fn ping(&mut self) -> Result<(), DeviceError> {
        self.send(&Request::from(Command::Ping).line());
        self.answer().map(|_| ())
    }

    /// Brings everything to the members, and waits for that.
    pub(crate) fn drain(&mut self) -> Result<(), DeviceError> {
        self.renew()?;
        self.send(&Request::from(Command::Drain).line());
        self.answer().map(|_| ())
    }

    /// The next answer. What takes long tells how far it is meanwhile, which is a sign of life.
    fn answer(&mut self) -> Result<Value, DeviceError> {
        loop {
            let answer = self.line()?;
            if !answer["progress"].is_object() {
                return self.judged(answer);
            }
        }
    }

    fn line(&mut self) -> Result<Value, DeviceError> {
        if self.is_broken {
            return Err(self.broken(io::ErrorKind::BrokenPipe.into()));
        }
        let mut until = Until::new(&mut self.reader, Instant::now() + PATIENCE);
        let line = read_line(&mut until, ANSWER_BYTES_MAX).map_err(|source| self.broken(source))?;
        let Some(line) = line.filter(|line| line.ends_with(b"\n")) else {
            return Err(self.broken(io::ErrorKind::UnexpectedEof.into()));
        };
        serde_json::from_slice(&line).map_err(|_| self.no_answer(&line))
    }

    fn judged(&mut self, answer: Value) -> Result<Value, DeviceError> {
        let Some(is_ok) = answer["ok"].as_bool() else {
            return Err(self.no_answer(answer.to_string().as_bytes()));
        };
        if is_ok {
            return Ok(answer);
        }
        let failure = Failure::from_value(&answer);
        if let Some(reason) = failure.volume_error() {
            return Err(DeviceError::Volume(reason));
        }
        let one_line = |text: &str| plain(text).chars().take(WORDS_MAX).collect();
        let (error, hint) = (one_line(&failure.to_string()), failure.hint.as_deref().map(one_line));
        Err(DeviceError::Refused { code: failure.code, error, hint })
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
