//! The other end of the control socket, for the command.

use std::borrow::Cow;
use std::io::{self, BufReader};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dcd_client::error::{SILENT_HINT, STRANGER_HINT};
use dcd_client::plain::plain;
use dcd_client::server::{PATIENCE, Until, connect_patiently, stranger, write_patiently};
use dcd_engine::units::Uuid;
use dcd_protocol::legs::{LegCommand, LegReport, WitnessReport};
use dcd_protocol::sequences::RANGES_PER_LINE;
use dcd_protocol::settings::SettingsAnswer;
use dcd_protocol::store::StoreCommand;
use dcd_protocol::{
    Code, Command, DetachAsked, Failure, NvramCommand, Progress, Request, ResizeAsked, ResizeDone,
    SequenceCommand, VolumeCommand, WantedSettings, read_line,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::control::recording::RecordedBatch;
use crate::device::device_file::DeviceFile;
use crate::device::device_spec::DeviceSpec;
use crate::device::identity::{DiskIdentity, same_disks};
use crate::pair::book::PairBook;
use crate::pair::leg_share::LegOf;
use crate::process::descriptors::send_descriptors;
use crate::process::signals::Signals;
use crate::report::lost::LostReport;
use crate::report::status_report::StatusReport;
use crate::report::stuck::StuckReport;

/// Answers may be long: a volume tells of each member and extent.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The lines of a sequence are a few bytes each.
const SEQUENCE_BYTES_MAX: usize = 64 << 20;
/// Longest error or hint that is shown.
const WORDS_MAX: usize = 4096;
/// Largest numbers of a report that are believed: 64 PiB, two years of nanoseconds; and of seconds,
/// microseconds, shares.
const NUMBER_MAX: u64 = 1 << 56;
const FLOAT_MAX: f64 = 1e15;
/// What is moved and to be moved is not more than this, in lines of 4 KiB: 4 EiB.
const PROGRESS_LINES_MAX: u64 = 1 << 50;

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
    /// It is there and says nothing.
    #[error("the daemon at {} says nothing for {} s", path.display(), patience.as_secs())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// So long.
        patience: Duration,
    },
    /// Somebody else has made the socket.
    #[error("the server at {} belongs to user {uid}, whose word counts for nothing here", path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// The user.
        uid: u32,
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
        /// What kind of a refusal it is, if it says that.
        code: Option<Code>,
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
                _ => "is the daemon running, and was it started with this --control socket? `dcd list` shows the caches of this machine".into(),
            }),
            ControlError::Broken { .. } => Some(
                "it has ended, or was killed: see its messages; `dcd list` tells how its cache is, and what to do".into(),
            ),
            ControlError::Silent { .. } => Some(SILENT_HINT.into()),
            ControlError::Stranger { .. } => Some(STRANGER_HINT.into()),
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

/// Whether nobody's cache, but this one, needs a disk that is to become a part of it. Who hands it
/// over looks: the daemon gets what is open, which does not tell what file or device it is.
fn check_no_cache(disk: &DeviceFile, own: Option<Uuid>) -> Result<(), ControlError> {
    PairBook::check_no_cache(disk, own).map_err(|problem| ControlError::Refused {
        code: None,
        error: problem.to_string(),
        hint: Some(problem.hint_for_a_part()),
    })
}

#[derive(Deserialize)]
struct Answer {
    ok: Option<bool>,
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
    patience: Duration,
}

impl ControlClient {
    /// Connects to a control socket.
    pub fn connect(path: &Path) -> Result<ControlClient, ControlError> {
        ControlClient::connect_within(path, PATIENCE)
    }

    /// The same; a daemon that says nothing for `patience` is given up, now and later.
    pub fn connect_within(path: &Path, patience: Duration) -> Result<ControlClient, ControlError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::TimedOut => ControlError::Silent { path: path.to_owned(), patience },
            _ => ControlError::Connect { path: path.to_owned(), source },
        };
        let stream = connect_patiently(path, patience).map_err(failed)?;
        if let Some(uid) = stranger(&stream, path).map_err(failed)? {
            return Err(ControlError::Stranger { path: path.to_owned(), uid });
        }
        Ok(ControlClient::on(stream, path, patience))
    }

    /// On a connection that there is, to a server whose word counts.
    pub fn on(stream: UnixStream, path: &Path, patience: Duration) -> ControlClient {
        let reader = BufReader::new(stream);
        ControlClient { path: path.to_owned(), reader, signals: None, patience }
    }

    /// From now on a SIGINT or SIGTERM cancels the drain, detach or resize that is asked for, and the
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
        self.answer(progress, ANSWER_BYTES_MAX)
    }

    /// Asks for a detach on these terms.
    pub fn detach(
        &mut self,
        asked: DetachAsked,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Value, ControlError> {
        match self.write(&Request::from(asked).line()) {
            // As in [`ControlClient::ask`].
            Err(ControlError::Broken { source, .. })
                if source.kind() == io::ErrorKind::BrokenPipe => {}
            sent => sent?,
        }
        self.answer(progress, ANSWER_BYTES_MAX)
    }

    /// The answer. Each line before it is a sign of life: what takes long is not limited, silence
    /// is.
    fn answer(
        &mut self,
        progress: &mut dyn FnMut(Progress),
        bytes_max: usize,
    ) -> Result<Value, ControlError> {
        let mut is_cancelling = false;
        loop {
            while self.is_interrupted()? {
                if is_cancelling {
                    return Err(ControlError::Left { path: self.path.clone() });
                }
                is_cancelling = true;
                self.send(Command::Cancel)?;
            }
            let line = self.line(bytes_max)?;
            let parsed: Result<Value, _> = serde_json::from_slice(&line);
            let Ok(value) = parsed else { return Err(self.no_answer(&line)) };
            let Ok(answer) = Answer::deserialize(&value) else {
                return Err(self.no_answer(&line));
            };
            match answer {
                Answer { progress: Some(so_far), ok: None, .. } => progress(believable(so_far)),
                Answer { ok: Some(true), .. } => return Ok(value),
                Answer { ok: Some(false), cancelled, lost, stuck, .. } => {
                    let Said { code, error, hint } = said(&value);
                    return Err(match (lost, stuck) {
                        (Some(lost), _) => ControlError::Lost { error, hint, lost },
                        (None, Some(_)) => ControlError::Stuck { error, hint },
                        (None, None) if cancelled => ControlError::Cancelled { error, hint },
                        (None, None) => ControlError::Refused { code, error, hint },
                    });
                }
                _ => return Err(self.no_answer(&line)),
            }
        }
    }

    /// Asks something about sequences. `ranges` go with [`SequenceCommand::Store`], as first block
    /// and number of blocks.
    pub fn sequence(
        &mut self,
        command: &SequenceCommand,
        ranges: &[(u64, u64)],
    ) -> Result<Value, ControlError> {
        let mut text = Request::from(command.clone()).line();
        if matches!(command, SequenceCommand::Store { .. }) {
            for ranges in ranges.chunks(RANGES_PER_LINE) {
                text.push_str(&json!({ "ranges": ranges }).to_string());
                text.push('\n');
            }
            text.push_str("{\"end\":true}\n");
        }
        self.write(&text)?;
        self.answer(&mut |_| {}, SEQUENCE_BYTES_MAX)
    }

    /// Asks something of the volume.
    pub fn volume(&mut self, command: &VolumeCommand) -> Result<Value, ControlError> {
        self.write(&Request::from(command.clone()).line())?;
        self.answer(&mut |_| {}, ANSWER_BYTES_MAX)
    }

    /// Changes the snapshots of the object store below.
    ///
    /// # Errors
    /// What the daemon says against it, or that it does not answer.
    pub fn store(&mut self, command: StoreCommand) -> Result<(), ControlError> {
        self.write(&Request::from(command).line())?;
        self.answer(&mut |_| {}, ANSWER_BYTES_MAX).map(|_| ())
    }

    /// Sets what is wanted, or only lists settings.
    pub fn set(&mut self, wanted: WantedSettings) -> Result<SettingsAnswer, ControlError> {
        self.write(&Request::from(wanted).line())?;
        let answer = self.answer(&mut |_| {}, ANSWER_BYTES_MAX)?;
        SettingsAnswer::deserialize(&answer)
            .map_err(|_| self.no_answer(answer.to_string().as_bytes()))
    }

    /// Gives the log another size; `progress` is told how far it is.
    ///
    /// # Errors
    /// What the daemon says against it, or that it does not answer.
    pub fn resize(
        &mut self,
        asked: ResizeAsked,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<ResizeDone, ControlError> {
        self.write_asked(&Request::from(asked).line())?;
        let answer = self.answer(progress, ANSWER_BYTES_MAX)?;
        ResizeDone::deserialize(&answer).map_err(|_| self.no_answer(answer.to_string().as_bytes()))
    }

    /// The legs of the cache-disk.
    ///
    /// # Errors
    /// If there are none, or the daemon does not answer.
    pub fn legs(&mut self) -> Result<Vec<LegReport>, ControlError> {
        let answer = self.ask_legs(LegCommand::Status)?;
        Vec::deserialize(&answer["legs"]).map_err(|_| self.no_answer(answer.to_string().as_bytes()))
    }

    /// The witness of the legs, if they have one.
    ///
    /// # Errors
    /// If there are no legs, or the daemon does not answer.
    pub fn leg_witness(&mut self) -> Result<Option<WitnessReport>, ControlError> {
        let answer = self.ask_legs(LegCommand::Status)?;
        Option::deserialize(&answer["witness"])
            .map_err(|_| self.no_answer(answer.to_string().as_bytes()))
    }

    /// Hands a file over that is to become the witness; its name. As [`Self::add_leg`].
    ///
    /// # Errors
    /// As there.
    pub fn add_witness(
        &mut self,
        spec: &DeviceSpec,
        file: DeviceFile,
    ) -> Result<Uuid, ControlError> {
        self.give_leg(LegCommand::AddWitness { file: spec.to_string() }, file)
    }

    /// Hands a disk over that is to become a leg; the name of that leg. The disk is open and
    /// locked, and stays so for the daemon.
    ///
    /// # Errors
    /// What the daemon says against it, or that it does not answer.
    pub fn add_leg(&mut self, spec: &DeviceSpec, disk: DeviceFile) -> Result<Uuid, ControlError> {
        self.give_leg(LegCommand::Add { disk: spec.to_string() }, disk)
    }

    /// What a further leg of the cache is for, and needs.
    ///
    /// # Errors
    /// If it has no legs, or the daemon does not answer.
    pub fn leg_of(&mut self) -> Result<LegOf, ControlError> {
        let bytes = self.legs()?.iter().map(|leg| leg.total_bytes).max().unwrap_or(0);
        let StatusReport { uuid, data_disk, .. } = self.status()?;
        match uuid.parse() {
            Ok(cache) => Ok(LegOf { cache, bytes, data_disk }),
            Err(_) => Err(self.no_answer(uuid.as_bytes())),
        }
    }

    fn give_leg(&mut self, command: LegCommand, disk: DeviceFile) -> Result<Uuid, ControlError> {
        check_no_cache(&disk, None)?;
        self.check_not_served(disk.path())?;
        self.ask_legs(command)?;
        self.hand_over(disk)?;
        let answer = self.answer(&mut |_| {}, ANSWER_BYTES_MAX)?;
        match answer["leg"].as_str().and_then(|leg| leg.parse().ok()) {
            Some(leg) => Ok(leg),
            None => Err(self.no_answer(answer.to_string().as_bytes())),
        }
    }

    /// Hands a disk over that is to take the place of a member. The disk is open and locked, and
    /// stays so for the daemon.
    ///
    /// # Errors
    /// What the daemon says against it, or that it does not answer.
    pub fn replace_member(
        &mut self,
        member: u8,
        spec: &DeviceSpec,
        disk: DeviceFile,
        accept_damage: bool,
    ) -> Result<(), ControlError> {
        check_no_cache(&disk, self.status()?.uuid.parse().ok())?;
        self.check_not_served(disk.path())?;
        let disk_name = spec.to_string();
        self.volume(&VolumeCommand::Replace { member, disk: disk_name, accept_damage })?;
        self.hand_over(disk)?;
        self.answer(&mut |_| {}, ANSWER_BYTES_MAX).map(|_| ())
    }

    /// Hands a disk over that is to become a spare: as [`ControlClient::replace_member`].
    ///
    /// # Errors
    /// What the daemon says against it, or that it does not answer.
    pub fn add_spare(&mut self, spec: &DeviceSpec, disk: DeviceFile) -> Result<(), ControlError> {
        check_no_cache(&disk, self.status()?.uuid.parse().ok())?;
        self.check_not_served(disk.path())?;
        self.volume(&VolumeCommand::AddSpare { disk: spec.to_string() })?;
        self.hand_over(disk)?;
        self.answer(&mut |_| {}, ANSWER_BYTES_MAX).map(|_| ())
    }

    /// Hands a memory over that is to come to be in front of the log, and waits until changes go
    /// into it. It is open and locked, and stays so for the daemon. `replaces`: the one that is
    /// there goes before.
    ///
    /// # Errors
    /// What the daemon says against it, or that it does not answer.
    pub fn add_nvram(
        &mut self,
        spec: &DeviceSpec,
        memory: DeviceFile,
        survives_power: bool,
        replaces: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), ControlError> {
        check_no_cache(&memory, None)?;
        self.check_not_served(memory.path())?;
        let memory_name = spec.to_string();
        let add = NvramCommand::Add { memory: memory_name, survives_power, replaces };
        self.write_asked(&Request::from(add).line())?;
        self.answer(&mut |_| {}, ANSWER_BYTES_MAX)?;
        self.hand_over(memory)?;
        self.answer(progress, ANSWER_BYTES_MAX).map(|_| ())
    }

    /// Does without the memory in front of the log, and waits until nothing names it.
    ///
    /// # Errors
    /// What the daemon says against it, or that it does not answer.
    pub fn remove_nvram(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), ControlError> {
        self.write_asked(&Request::from(NvramCommand::Remove).line())?;
        self.answer(progress, ANSWER_BYTES_MAX).map(|_| ())
    }

    /// What the daemon serves is no part of it: it would wait for itself.
    fn check_not_served(&mut self, path: &Path) -> Result<(), ControlError> {
        let served = self.status()?.frontends;
        let identity = DiskIdentity::of(path).ok();
        let lies_on = |place: &Path| {
            let number =
                std::fs::metadata(place).ok().filter(|it| it.file_type().is_block_device());
            let is_below =
                |it: &DiskIdentity| number.is_some_and(|number| it.lies_on(number.rdev()));
            same_disks(&[path, place]).is_some() || identity.as_ref().is_some_and(is_below)
        };
        match served.iter().map(Path::new).find(|place| place.is_absolute() && lies_on(place)) {
            None => Ok(()),
            Some(place) => Err(ControlError::Refused {
                code: None,
                error: format!(
                    "{} lies on {}, which this dcd serves",
                    path.display(),
                    place.display()
                ),
                hint: Some("give a disk or file that lies on something else".into()),
            }),
        }
    }

    fn hand_over(&mut self, disk: DeviceFile) -> Result<(), ControlError> {
        let sent = send_descriptors(self.reader.get_ref(), b"d", &disk.descriptors());
        disk.close_for_another();
        sent.map_err(|source| self.broken(source.into()))
    }

    /// Something about legs, and the answer.
    ///
    /// # Errors
    /// What the daemon says against it, or that it does not answer.
    pub fn ask_legs(&mut self, command: LegCommand) -> Result<Value, ControlError> {
        self.write_asked(&Request::from(command).line())?;
        self.answer(&mut |_| {}, ANSWER_BYTES_MAX)
    }

    fn ask(&mut self, command: Command) -> Result<(), ControlError> {
        let sent = self.send(command);
        self.or_read_on(sent)
    }

    fn write_asked(&mut self, line: &str) -> Result<(), ControlError> {
        let written = self.write(line);
        self.or_read_on(written)
    }

    fn or_read_on(&self, sent: Result<(), ControlError>) -> Result<(), ControlError> {
        match sent {
            // It hung up: what it said before, that it has too many clients for example, is read as
            // the answer.
            Err(ControlError::Broken { source, .. })
                if source.kind() == io::ErrorKind::BrokenPipe =>
            {
                Ok(())
            }
            sent => sent,
        }
    }

    fn send(&mut self, command: Command) -> Result<(), ControlError> {
        self.write(&Request::from(command).line())
    }

    fn write(&mut self, text: &str) -> Result<(), ControlError> {
        write_patiently(self.reader.get_ref(), text.as_bytes())
            .map_err(|source| self.broken(source))
    }

    /// Waits until there is something to read, or a signal, if they are received here. Whether it
    /// is a signal.
    fn is_interrupted(&self) -> Result<bool, ControlError> {
        let Some(signals) = &self.signals else { return Ok(false) };
        if self.reader.buffer().is_empty() {
            let stream = self.reader.get_ref();
            let mut events =
                [PollFd::new(stream, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            let patience = Timespec {
                tv_sec: self.patience.as_secs() as i64,
                tv_nsec: self.patience.subsec_nanos().into(),
            };
            if poll(&mut events, Some(&patience)) == Ok(0) {
                return Err(self.broken(io::ErrorKind::TimedOut.into()));
            }
        }
        Ok(signals.take().is_some())
    }

    /// Records requests; `take` is given each batch, and says whether to go on. A signal, where
    /// they are received here, ends it too; a second one does not wait for the daemon.
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
            if self.is_interrupted()? {
                if was_interrupted {
                    return Err(ControlError::Left { path: self.path.clone() });
                }
                was_interrupted = true;
                stop(self);
                continue;
            }
            let line = self.line(ANSWER_BYTES_MAX)?;
            if let Some(batch) = RecordedBatch::parse(&line) {
                if !take(batch) {
                    stop(self);
                }
                continue;
            }
            let parsed: Result<Value, _> = serde_json::from_slice(&line);
            let Ok(value) = parsed else { return Err(self.no_answer(&line)) };
            return match value["ok"].as_bool() {
                Some(true) => Ok(()),
                Some(false) => {
                    let Said { code, error, hint } = said(&value);
                    Err(ControlError::Refused { code, error, hint })
                }
                None => Err(self.no_answer(&line)),
            };
        }
    }

    fn line(&mut self, bytes_max: usize) -> Result<Vec<u8>, ControlError> {
        let mut until = Until::new(&mut self.reader, Instant::now() + self.patience);
        read_line(&mut until, bytes_max)
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
        if source.kind() == io::ErrorKind::TimedOut {
            return ControlError::Silent { path: self.path.clone(), patience: self.patience };
        }
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

/// What a daemon says of a refusal, in lines that are no longer than one.
struct Said {
    code: Option<Code>,
    error: String,
    hint: Option<String>,
}

fn said(answer: &Value) -> Said {
    let failure = Failure::from_value(answer);
    let one_line = |text: &str| plain(text).chars().take(WORDS_MAX).collect();
    let (error, hint) = (one_line(&failure.to_string()), failure.hint.as_deref().map(one_line));
    Said { code: failure.code, error, hint }
}

/// A report as it may be shown to people: nothing in its texts is obeyed by a terminal, and no
/// number in it is more than can be, so that it can be reckoned with.
pub fn for_people<T: Serialize + DeserializeOwned + Clone>(report: &T) -> T {
    let mut value = json!(report);
    make_believable(&mut value);
    // It has the same form as before.
    T::deserialize(value).unwrap_or_else(|_| report.clone())
}

fn make_believable(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(shown) = plain(text) {
                *text = shown;
            }
        }
        Value::Number(number) if number.is_f64() => {
            let kept = number.as_f64().unwrap_or(0.0).clamp(-FLOAT_MAX, FLOAT_MAX);
            *value = json!(kept);
        }
        Value::Number(number) if number.as_u64().is_some_and(|it| it > NUMBER_MAX) => {
            *value = json!(NUMBER_MAX);
        }
        Value::Array(all) => all.iter_mut().for_each(make_believable),
        Value::Object(fields) => fields.values_mut().for_each(make_believable),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// No more than can be.
fn believable(said: Progress) -> Progress {
    let total = said.total.min(PROGRESS_LINES_MAX);
    Progress { done: said.done.min(total), total, is_held_up: said.is_held_up }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Write};

    use super::*;

    #[test]
    fn half_a_line_is_the_end_of_the_daemon() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        theirs.write_all(b"{\"recorded\":{\"requests\":[[1,2,").unwrap();
        let mut client = ControlClient::on(ours, "ctl".as_ref(), PATIENCE);
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
        let mut client = ControlClient::on(ours, "ctl".as_ref(), PATIENCE);
        let refused = client.record(&mut |_| true).unwrap_err();
        assert!(
            matches!(&refused, ControlError::Refused { error, .. } if error == "too many clients")
        );
        // It says nothing more.
        let broken = client.request(Command::Status, &mut |_| {}).unwrap_err();
        assert!(matches!(broken, ControlError::Broken { .. }), "{broken}");
    }

    /// Whatever a daemon says, it ends here with an answer or an error, in its time, and what is
    /// told is believable.
    #[test]
    fn lies_and_silence_end_in_errors() {
        let patience = Duration::from_millis(200);
        let ask = |said: &'static [u8], stays: bool| {
            let (mut theirs, ours) = UnixStream::pair().unwrap();
            let mut client = ControlClient::on(ours, "ctl".as_ref(), patience);
            let says = std::thread::spawn(move || {
                let _ = theirs.write_all(said);
                if stays {
                    // Until the client has gone: what it has asked for lies here.
                    let mut asked = BufReader::new(theirs);
                    while asked.fill_buf().is_ok_and(|some| !some.is_empty()) {
                        let count = asked.buffer().len();
                        asked.consume(count);
                    }
                }
            });
            let mut told = Vec::new();
            let answer = client.request(Command::Drain, &mut |so_far| told.push(so_far));
            drop(client);
            says.join().unwrap();
            (answer, told)
        };
        let most = concat!(
            r#"{"progress":{"done":18446744073709551615,"total":18446744073709551615}}"#,
            "\n",
            r#"{"progress":{"done":7,"total":5}}"#,
            "\n{\"ok\":true}\n",
        );
        let (answer, told) = ask(most.as_bytes(), true);
        assert!(answer.is_ok());
        let lines = |done, total| Progress { done, total, is_held_up: false };
        assert_eq!(told, [lines(1 << 50, 1 << 50), lines(5, 5)]);
        let (answer, _) = ask(b"", true);
        assert!(matches!(answer, Err(ControlError::Silent { .. })));
        let (answer, _) = ask(b"{\"progress\":{\"done\":1,\"total\":5}}\n{\"ok\":", true);
        assert!(matches!(answer, Err(ControlError::Silent { .. })));
        let (answer, _) = ask(b"[[[[{}]]]]\n", true);
        assert!(matches!(answer, Err(ControlError::Answer { .. })));
        let (answer, _) = ask(b"{\"progress\":{\"done\":-1,\"total\":1e99}}\n", true);
        assert!(matches!(answer, Err(ControlError::Answer { .. })));
        let (answer, _) = ask(b"", false);
        assert!(matches!(answer, Err(ControlError::Broken { .. })));
    }

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let mut client = ControlClient::on(ours, "ctl".as_ref(), PATIENCE);
        let says = std::thread::spawn(move || while theirs.write_all(&[b'['; 1 << 16]).is_ok() {});
        let broken = client.request(Command::Status, &mut |_| {}).unwrap_err();
        assert!(matches!(broken, ControlError::Broken { .. }), "{broken}");
        drop(client);
        says.join().unwrap();
    }
}
