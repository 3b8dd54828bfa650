//! The control socket: one JSON object per line, asked and answered.
//!
//! ```text
//! {"command":"status"}    {"ok":true,"status":{...}}
//! {"command":"ping"}      {"ok":true}
//! {"command":"metrics"}   {"ok":true,"metrics":"# TYPE ..."}, see [`crate::metrics`]
//! {"command":"requests"}  {"ok":true,"requests":{...}}, of a disk without a cache
//! {"command":"flush"}     {"ok":true}
//! {"command":"drain"}     {"progress":{"done":3,"total":10}} ... {"ok":true}
//! {"command":"detach"}    the same; then the daemon ends. With "accept_lost":true although blocks are lost, but only
//!                         those that the last answer on this connection listed
//! {"command":"cancel"}    while a drain or detach of this connection is under way: ends it
//! {"command":"cancel-drain"}   {"ok":true}; ends the drains of all connections
//! {"command":"cancel-detach"}  {"ok":true}; ends the detach, whoever asked for it
//! {"command":"record"}    {"recorded":{...}} ten times a second, until the client says something: then {"ok":true}
//! {"sequence":...}        see [`crate::control::sequences`]
//! {"volume":...}          see [`crate::control::volumes`]
//! {"set":...}             see [`dcd_protocol::settings`]
//! {"command":"shutdown"}  {"ok":true} when the cache is closed; then the daemon ends
//! anything else           {"ok":false,"code":"bad-request","error":"...","hint":"..."}, see [`dcd_protocol::Failure`]
//! ```
//!
//! A detach under users is refused with {"ok":false,"users":[...],...}; with "wait":true it waits
//! until they have gone, and with "force":true it takes the disk away from them.
//!
//! A drain or detach that could not bring everything to the data-disk, because it is damaged in the
//! log, is answered {"ok":false,"lost":{"lines":3,"ranges":[[first byte,bytes],...]},...}. All else
//! is there; there was no detach.
//!
//! A drain or detach that gets nothing more to the data-disk for `drain-timeout` is answered
//! {"ok":false,"stuck":{"dirty_bytes":8192,"zero_bytes":0,"why":"...","way_out":"..."},...}.
//! Serving goes on.
//!
//! A drain or detach that was cancelled is answered {"ok":false,"cancelled":true,...}. It is
//! cancelled too when the client that asked for it closes its connection: who ends `dcd drain`
//! wants it to end. A detach for which several clients wait ends with the last of them.
//!
//! Whatever takes long is preceded by lines of progress, every two seconds at least: a client takes
//! a daemon that says nothing for 15 seconds for one that was stopped.
//!
//! The socket has mode 0600, and the kernel is asked who is at the other end: only root and our own
//! user are served. Who asks nothing gives its place up when it is needed
//! ([`crate::control::places`]), and at the latest after half a minute, or an hour if it has asked
//! something. Each client has a thread; all they do goes through a [`Submitter`], so no client can
//! hold up the event loop.

pub mod client;
pub mod lost;
pub(crate) mod places;
pub mod recording;
pub mod sequences;
pub mod settings;
pub mod status_report;
pub mod stuck;
pub mod trouble_words;
pub mod volumes;

use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use dcd_client::server::Until;
use dcd_engine::units::{LINE_SIZE, LbaRange};
use dcd_engine::{Operation, Phase, Reply, RequestError, RequestId, SequenceError};
use dcd_protocol::failure::volume_hint;

use dcd_protocol::{
    Code, Command, DetachAsked, Failure, LINE_BYTES_MAX, Progress, Request, SequenceCommand,
    VolumeCommand, WantedSettings, read_line,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde_json::{Value, json};

use crate::control::lost::{LostReport, NOT_DETACHED_HINT, NOT_DRAINED_HINT};
use crate::control::places::{Place, PlaceKind, Places};
use crate::control::sequences::RangesBudget;
pub use crate::control::status_report::DaemonFacts;
use crate::control::status_report::StatusReport;
use crate::control::stuck::StuckReport;
use crate::event_loop::submitter::{DetachTerms, DrainTicket, Snapshot, StopKind, Submitter};
use crate::frontend::nbd::listen::UnixSocket;
use crate::metrics;
use crate::process::accept::next_client;
use crate::process::users::Purpose;
use crate::units_text::format_size;

/// Users that are there for longer are users.
const USER_PATIENCE: Duration = Duration::from_millis(500);
/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// A request that is not answered yet is followed by a sign of life so often.
const SIGN_OF_LIFE_INTERVAL: Duration = Duration::from_secs(2);
/// Who has never asked anything is left after this time, and who has a place for short questions.
const FIRST_PATIENCE: Duration = Duration::from_secs(30);
/// The same for whoever has asked something.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// A client with a place for short questions has so much time for each.
const SHORT_PATIENCE: Duration = Duration::from_secs(2);
/// A client that does not read its answer for so long is left.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The end waits so long for last answers to be written.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// What the threads share.
struct Shared {
    submitter: Submitter,
    facts: Arc<DaemonFacts>,
    clients: AtomicUsize,
    /// For sequences that are being sent.
    ranges: RangesBudget,
    under_way: Mutex<UnderWay>,
}

/// What may be cancelled.
#[derive(Default)]
struct UnderWay {
    drains: Vec<DrainTicket>,
    /// First parts of detaches.
    detaching: Vec<DrainTicket>,
    /// Detaches that wait until nobody uses the disk.
    waiting: usize,
    /// How often those were cancelled.
    waits_cancelled: u64,
    /// Clients that wait for a detach.
    detaches: usize,
}

impl Shared {
    /// The picture of this moment, if the cache runs.
    fn report(&self) -> Option<StatusReport> {
        let facts = self.facts.clone();
        self.submitter.ask(move |snapshot| StatusReport::of(&facts, snapshot)).flatten()
    }

    /// Each change, and what it asks of the loop, is one step: the loop hears of them in order.
    fn under_way(&self) -> std::sync::MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The control socket and its thread.
pub struct ControlServer {
    stop: Arc<OwnedFd>,
    thread: thread::JoinHandle<()>,
    shared: Arc<Shared>,
}

impl ControlServer {
    /// Begins to serve.
    pub fn start(
        (listener, file): UnixSocket,
        submitter: Submitter,
        facts: Arc<DaemonFacts>,
    ) -> io::Result<ControlServer> {
        listener.set_nonblocking(true)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let shared = Arc::new(Shared {
            submitter,
            facts,
            clients: AtomicUsize::new(0),
            ranges: RangesBudget::default(),
            under_way: Mutex::default(),
        });
        let thread = {
            let (stop, shared) = (stop.clone(), shared.clone());
            thread::Builder::new().name("dcd-control".into()).spawn(move || {
                let _file = file;
                accept_clients(&listener, &stop, &shared);
            })?
        };
        Ok(ControlServer { stop, thread, shared })
    }

    /// Takes no more clients, removes the socket, and lets last answers be written.
    pub fn stop(self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let _ = self.thread.join();
        let until = Instant::now() + STOP_PATIENCE;
        // Clients that wait for nothing are not in a command and are not counted.
        while self.shared.clients.load(Ordering::Acquire) > 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn accept_clients(listener: &UnixListener, stop: &OwnedFd, shared: &Arc<Shared>) {
    let places = Arc::new(Places::default());
    let accept = |listener: &UnixListener| listener.accept().map(|(stream, _)| stream);
    while let Some(stream) = next_client(listener, stop, accept) {
        let mut refusing = &stream;
        if let Err(refusal) = check_peer(&stream) {
            let _ = write_line(&mut refusing, &refusal);
            continue;
        }
        let place = match places.take(&stream) {
            Ok(Some(place)) => place,
            Ok(None) => {
                let hint = "wait until another has finished";
                let _ = write_line(
                    &mut refusing,
                    &failure(Code::TooManyClients, "too many clients", hint),
                );
                continue;
            }
            Err(_) => continue, // out of descriptors
        };
        let shared = shared.clone();
        // Without a thread the place is given back.
        let _ = thread::Builder::new().name("dcd-control-client".into()).spawn(move || {
            let _ = serve_client(&stream, &shared, &place);
            // Others hold the connection, too: those that look for a place.
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
}

/// Only root and our own user may command. The mode of the socket says so too, but file systems
/// exist that do not keep modes.
pub(crate) fn check_peer(stream: &UnixStream) -> Result<(), Value> {
    let allowed = match rustix::net::sockopt::socket_peercred(stream) {
        Ok(peer) => peer.uid.is_root() || peer.uid == rustix::process::geteuid(),
        Err(_) => false,
    };
    if allowed {
        return Ok(());
    }
    Err(failure(
        Code::NotAllowed,
        "only root and the daemon's own user may use this socket",
        "use sudo",
    ))
}

/// A refusal, as it is answered.
pub(crate) fn failure(code: Code, error: &str, hint: &str) -> Value {
    Failure::new(code, error, hint).to_value()
}

pub(crate) fn success() -> Value {
    json!({ "ok": true })
}

pub(crate) fn write_line(mut to: impl Write, value: &Value) -> io::Result<()> {
    // One write, so that a line is never seen in part by the other side of a broken connection.
    let mut line = value.to_string();
    line.push('\n');
    to.write_all(line.as_bytes())
}

/// What came of a client's next line.
#[derive(Debug)]
pub enum Asked {
    /// A command.
    Command(Command),
    /// [`Command::Detach`], on these terms.
    Detach(DetachAsked),
    /// Something about sequences.
    Sequence(SequenceCommand),
    /// Something about the volume and its members.
    Volume(VolumeCommand),
    /// Settings are to be listed, or changed.
    Set(WantedSettings),
    /// Something else; this is the answer.
    Refused(Value),
    /// So long a line that nothing behind it is read; this is the last answer.
    TooLong(Value),
}

const COMMANDS_HINT: &str = "send {\"command\":\"status\"}; there are ping, status, metrics, flush, drain, detach, \
     cancel, cancel-drain, cancel-detach, record, shutdown, {\"sequence\":\"list\"}, {\"volume\":\"status\"}, {\"set\":{}}";

/// Reads on to the end of a line that is not blank. `None` when the client has gone.
pub fn read_command(from: &mut impl BufRead) -> io::Result<Option<Asked>> {
    loop {
        let line = match read_line(from, LINE_BYTES_MAX) {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let hint = "a command is one line of at most 64 KiB";
                return Ok(Some(Asked::TooLong(failure(
                    Code::TooLong,
                    "the line is too long",
                    hint,
                ))));
            }
            Err(error) => return Err(error),
        };
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        return Ok(Some(match serde_json::from_slice::<Request>(&line) {
            Ok(Request { command: Some(Command::Detach), detach, .. }) => Asked::Detach(detach),
            Ok(Request { command: Some(command), .. }) => Asked::Command(command),
            Ok(Request { sequence: Some(sequence), .. }) => Asked::Sequence(sequence),
            Ok(Request { volume: Some(volume), .. }) => Asked::Volume(volume),
            Ok(Request { set: Some(wanted), .. }) => Asked::Set(wanted),
            Ok(Request { command: None, sequence: None, volume: None, set: None, .. }) => {
                Asked::Refused(failure(
                    Code::BadRequest,
                    "expected a command, found something else: missing field `command`",
                    COMMANDS_HINT,
                ))
            }
            Err(error) => Asked::Refused(failure(
                Code::BadRequest,
                &format!("expected a command, found something else: {error}"),
                COMMANDS_HINT,
            )),
        }));
    }
}

fn serve_client(stream: &UnixStream, shared: &Shared, place: &Place) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    // What is lost, as this client was told last.
    let mut listed = Vec::new();
    let mut patience = FIRST_PATIENCE;
    loop {
        if place.kind() == PlaceKind::Reserve {
            patience = SHORT_PATIENCE;
        }
        let mut until = Until::new(&mut reader, Instant::now() + patience);
        let asked = match read_command(&mut until)? {
            None => return Ok(()),
            Some(Asked::TooLong(answer)) => return write_line(stream, &answer),
            Some(asked) if place.kind() == PlaceKind::Reserve && !is_short(&asked) => {
                let hint = "wait until another has finished; `dcd status` is answered meanwhile";
                return write_line(
                    stream,
                    &failure(Code::TooManyClients, "too many clients", hint),
                );
            }
            Some(asked) => asked,
        };
        if !place.begin() {
            return Ok(());
        }
        patience = IDLE_TIMEOUT;
        shared.clients.fetch_add(1, Ordering::AcqRel);
        let answered = match asked {
            Asked::Command(command) => run_command(&mut reader, shared, command, &mut listed),
            Asked::Detach(asked) => detach(&mut reader, shared, asked, &mut listed),
            Asked::Sequence(command) => {
                sequences::run(&mut reader, &shared.submitter, &shared.ranges, command)
            }
            Asked::Volume(command) => {
                volumes::run(stream, &shared.submitter, &shared.facts, command)
            }
            Asked::Set(wanted) => {
                Ok(settings::run(shared.facts.settings.as_ref(), &shared.submitter, &wanted))
            }
            Asked::Refused(answer) | Asked::TooLong(answer) => Ok(answer),
        }
        .and_then(|answer| write_line(stream, &answer));
        shared.clients.fetch_sub(1, Ordering::AcqRel);
        place.end();
        answered?;
    }
}

/// Whether it is answered at once, whatever the disks do.
fn is_short(asked: &Asked) -> bool {
    let Asked::Command(command) = asked else { return matches!(asked, Asked::Refused(_)) };
    match command {
        Command::Ping
        | Command::Status
        | Command::Metrics
        | Command::Requests
        | Command::Cancel
        | Command::CancelDrain
        | Command::CancelDetach => true,
        Command::Flush | Command::Drain | Command::Detach | Command::Record | Command::Shutdown => {
            false
        }
    }
}

/// Runs a request and waits for its answer. A client takes a daemon that says nothing for stopped:
/// it is told that somebody is there.
pub(crate) fn run_with_signs_of_life(
    stream: &UnixStream,
    submitter: &Submitter,
    operation: Operation,
) -> io::Result<Reply> {
    let (sender, receiver) = mpsc::sync_channel(1);
    submitter.submit(operation, false, move |reply| {
        let _ = sender.send(reply);
    });
    loop {
        match receiver.recv_timeout(SIGN_OF_LIFE_INTERVAL) {
            Ok(reply) => return Ok(reply),
            // The loop has no more to say.
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let result = Err(RequestError::ShuttingDown);
                return Ok(Reply { id: RequestId(0), result, buffer: None, answer: None });
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                write_line(stream, &json!({ "progress": Progress::default() }))?;
            }
        }
    }
}

/// Runs a command; its last line is returned, lines before it are written.
fn run_command(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    command: Command,
    listed: &mut Vec<LbaRange>,
) -> io::Result<Value> {
    let submitter = &shared.submitter;
    Ok(match command {
        Command::Ping => success(),
        Command::Status => match shared.report() {
            Some(report) => json!({ "ok": true, "status": report }),
            None => no_report(),
        },
        Command::Metrics => match shared.report() {
            Some(report) => json!({ "ok": true, "metrics": metrics::export(&report) }),
            None => no_report(),
        },
        Command::Requests => {
            match submitter.ask(|snapshot| snapshot.core.request_counts()).flatten() {
                Some(counts) => json!({ "ok": true, "requests": counts }),
                None => failure(
                    Code::NotSupported,
                    "requests are not counted here",
                    "ask for the status",
                ),
            }
        }
        Command::Flush => {
            let stream = *reader.get_ref();
            answer(run_with_signs_of_life(stream, submitter, Operation::Flush)?.result)
        }
        Command::Drain => {
            let ticket = submitter.new_ticket();
            let job = Long::Drain(ticket);
            with_progress(reader, shared, job, listed, |done| submitter.drain(ticket, done))?
        }
        Command::Detach => detach(reader, shared, DetachAsked::default(), listed)?,
        Command::Cancel => failure(
            Code::NotUnderWay,
            "nothing that could be cancelled is under way on this connection",
            "cancel-drain and cancel-detach end what others have begun",
        ),
        Command::CancelDrain => {
            let under_way = shared.under_way();
            if under_way.drains.is_empty() {
                return Ok(failure(
                    Code::NotUnderWay,
                    "no drain is under way",
                    "`dcd status` shows what is dirty",
                ));
            }
            under_way.drains.iter().for_each(|ticket| submitter.cancel_drain(*ticket));
            success()
        }
        Command::CancelDetach => {
            let mut under_way = shared.under_way();
            let UnderWay { detaching, waiting, detaches, .. } = &*under_way;
            if detaching.is_empty() && *waiting == 0 && *detaches == 0 {
                return Ok(failure(
                    Code::NotUnderWay,
                    "no detach is under way",
                    "`dcd status` shows what is dirty",
                ));
            }
            detaching.iter().for_each(|ticket| submitter.cancel_drain(*ticket));
            if *detaches > 0 {
                submitter.cancel_detach();
            }
            under_way.waits_cancelled += 1;
            success()
        }
        Command::Record => {
            recording::run(reader, submitter)?;
            success()
        }
        Command::Shutdown => with_progress(reader, shared, Long::Shutdown, listed, |done| {
            submitter.stop(StopKind::Shutdown, done);
        })?,
    })
}

fn detach(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    asked: DetachAsked,
    listed: &mut Vec<LbaRange>,
) -> io::Result<Value> {
    if volumes::is_served(&shared.submitter) {
        return Ok(failure(
            Code::NotSupported,
            "a volume cannot be detached: where its blocks lie only dcd knows",
            "copy what is on it to another disk, or drain it and stop dcd",
        ));
    }
    let accepted = if asked.accept_lost { std::mem::take(listed) } else { Vec::new() };
    // They are looked for before and after what takes long. Who comes in the moment after that is
    // too late.
    if let Some(refusal) = part_from_users(reader, shared, asked)? {
        return Ok(refusal);
    }
    if shared.facts.users.must_look(Purpose::Detach) && !asked.force {
        let ticket = shared.submitter.new_ticket();
        let drain = |done| shared.submitter.drain(ticket, done);
        let drained = with_progress(reader, shared, Long::Detaching(ticket), listed, drain)?;
        let is_accepted = drained["lost"].is_object() && asked.accept_lost && {
            let (known, accepted) = (listed.clone(), accepted.clone());
            known == accepted
        };
        if drained["ok"] != true && !is_accepted {
            return Ok(drained);
        }
        if let Some(refusal) = part_from_users(reader, shared, asked)? {
            return Ok(refusal);
        }
    }
    let terms = DetachTerms { accepted };
    with_progress(reader, shared, Long::Detach, listed, |done| {
        shared.submitter.detach(terms, done);
    })
}

/// Waits for those who use the disk, or says who they are.
fn part_from_users(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    asked: DetachAsked,
) -> io::Result<Option<Value>> {
    if asked.force {
        return Ok(None);
    }
    // Who has just closed it may not have been noticed.
    let patience = Instant::now() + USER_PATIENCE;
    let mut waiting = None;
    loop {
        let users = shared.facts.users.find(Purpose::Detach, &shared.submitter);
        if users.is_empty() {
            return Ok(None);
        }
        if !asked.wait && Instant::now() < patience {
            thread::sleep(USER_PATIENCE / 5);
            continue;
        }
        if !asked.wait {
            let error = format!("not detached: in use: {}", users.words());
            let hint = "unmount and disconnect them, or wait for them with --wait; --force takes the disk away from them: what \
                they have not written yet is lost";
            let mut value = failure(Code::InUse, &error, hint);
            value["users"] = json!(users.names);
            return Ok(Some(value));
        }
        let waiting = waiting.get_or_insert_with(|| WaitForUsers::begin(shared));
        // A sign of life, by which a client that has gone is noticed.
        write_line(
            *reader.get_ref(),
            &json!({ "waits_for": users.names, "progress": Progress::default() }),
        )?;
        let says_something = says_something_within(reader, PROGRESS_INTERVAL);
        if says_something {
            // To cancel is all that can be meant.
            let _ = read_line(reader, LINE_BYTES_MAX)?;
        }
        if says_something || waiting.is_cancelled() {
            let mut value = failure(
                Code::Cancelled,
                "the detach was cancelled",
                "the disk is served as before",
            );
            value["cancelled"] = true.into();
            return Ok(Some(value));
        }
    }
}

fn says_something_within(reader: &BufReader<&UnixStream>, time: Duration) -> bool {
    let mut said = [PollFd::new(*reader.get_ref(), PollFlags::IN)];
    let time = rustix::event::Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    };
    let _ = poll(&mut said, Some(&time));
    !said[0].revents().is_empty() || !reader.buffer().is_empty()
}

/// A detach that waits for users, until it is dropped.
struct WaitForUsers<'a> {
    shared: &'a Shared,
    cancelled_before: u64,
}

impl WaitForUsers<'_> {
    fn begin(shared: &Shared) -> WaitForUsers<'_> {
        let mut under_way = shared.under_way();
        under_way.waiting += 1;
        WaitForUsers { shared, cancelled_before: under_way.waits_cancelled }
    }

    fn is_cancelled(&self) -> bool {
        self.shared.under_way().waits_cancelled > self.cancelled_before
    }
}

impl Drop for WaitForUsers<'_> {
    fn drop(&mut self) {
        self.shared.under_way().waiting -= 1;
    }
}

fn no_report() -> Value {
    failure(Code::NotRunning, "the cache does not run", "it is being opened or closed")
}

pub(crate) fn answer(result: Result<(), RequestError>) -> Value {
    let Err(reason) = result else { return success() };
    let hint = match reason {
        RequestError::Io => "a disk has errors: see `dcd status` and dmesg",
        RequestError::NoSpace => "the cache, or the data-disk, is full: `dcd status` says which",
        RequestError::ShuttingDown => "the daemon is ending; start it again",
        RequestError::ReadOnly => "the volume is served read-only, or its data-disk is read-only",
        RequestError::Cancelled => "ask again",
        RequestError::Lost { .. } => NOT_DRAINED_HINT,
        RequestError::Stuck { .. } => "`dcd status` says why",
        RequestError::Sequence(error) => sequence_hint(error),
        RequestError::Volume(error) => volume_hint(error),
    };
    Failure::of(reason, hint).to_value()
}

fn sequence_hint(error: SequenceError) -> &'static str {
    match error {
        SequenceError::NoReadArea => {
            "`dcd create --read-area SIZE` makes a cache with one; `dcd status` shows a failed disk"
        }
        SequenceError::NoSuchSequence => "`dcd sequence list` shows them all",
        SequenceError::BadSequence => "was anything read from this device meanwhile?",
        SequenceError::NoRoom => {
            "`dcd sequence list` shows what takes the room: remove or unpin one, or give sequences \
             more of the read area with --sequence-share"
        }
        SequenceError::Busy => "ask again",
    }
}

type Done = Box<dyn FnOnce(dcd_engine::Reply) + Send>;

/// What takes long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Long {
    Drain(DrainTicket),
    /// The first part of a detach.
    Detaching(DrainTicket),
    Detach,
    Shutdown,
}

impl Long {
    fn begin(self, under_way: &mut UnderWay) {
        match self {
            Long::Drain(ticket) => under_way.drains.push(ticket),
            Long::Detaching(ticket) => under_way.detaching.push(ticket),
            Long::Detach => under_way.detaches += 1,
            Long::Shutdown => {}
        }
    }

    fn end(self, shared: &Shared) {
        let mut under_way = shared.under_way();
        match self {
            Long::Drain(ticket) => under_way.drains.retain(|known| *known != ticket),
            Long::Detaching(ticket) => under_way.detaching.retain(|known| *known != ticket),
            Long::Detach => under_way.detaches -= 1,
            Long::Shutdown => {}
        }
    }

    /// This client wants it no more. An end in order is not taken back.
    fn cancel(self, shared: &Shared) {
        match self {
            Long::Drain(ticket) | Long::Detaching(ticket) => shared.submitter.cancel_drain(ticket),
            Long::Detach if shared.under_way().detaches == 1 => shared.submitter.cancel_detach(),
            Long::Detach | Long::Shutdown => {}
        }
    }

    /// What to say when it was cancelled.
    fn cancelled(self, shared: &Shared) -> Value {
        let what = if matches!(self, Long::Drain(_)) { "drain" } else { "detach" };
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

/// What to say when something is lost. The list is remembered: it may be accepted by who was told
/// of it.
fn lost(shared: &Shared, job: Long, lines: u64, listed: &mut Vec<LbaRange>) -> Value {
    let ranges = |snapshot: &Snapshot<'_>| snapshot.core.engine().map(|engine| engine.lost());
    let ranges = shared.submitter.ask(ranges).flatten();
    *listed = ranges.unwrap_or_default();
    let report = LostReport::of(lines, listed);
    let (what, hint) = match job {
        Long::Drain(_) => ("drained, but not all", NOT_DRAINED_HINT),
        Long::Detaching(_) | Long::Detach | Long::Shutdown => ("not detached", NOT_DETACHED_HINT),
    };
    let mut value = failure(Code::Lost, &format!("{what}: {}", report.words()), hint);
    value["lost"] = json!(report);
    value
}

/// What to say when nothing more gets to the data-disk.
fn stuck(shared: &Shared, job: Long, lines: u64, zero_lines: u64) -> Value {
    let asked = shared.submitter.ask(move |snapshot| {
        let serves = *snapshot.core.phase() == Phase::Running;
        (StuckReport::of(lines, zero_lines, snapshot.core.engine()), serves)
    });
    let (report, serves) =
        asked.unwrap_or_else(|| (StuckReport::of(lines, zero_lines, None), false));
    let (what, again) = match job {
        Long::Drain(_) => ("not drained", "drain"),
        Long::Detaching(_) | Long::Detach | Long::Shutdown => ("not detached", "detach"),
    };
    let goes_on = match serves {
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
fn with_progress(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    job: Long,
    listed: &mut Vec<LbaRange>,
    start: impl FnOnce(Done),
) -> io::Result<Value> {
    let result = wait_with_progress(reader, shared, job, start);
    if result.is_err() {
        job.cancel(shared);
    }
    job.end(shared);
    match result? {
        Err(RequestError::Cancelled) => Ok(job.cancelled(shared)),
        Err(RequestError::Lost { lines }) => Ok(lost(shared, job, lines, listed)),
        Err(RequestError::Stuck { lines, zero_lines }) => Ok(stuck(shared, job, lines, zero_lines)),
        result => Ok(answer(result)),
    }
}

/// An error if the client has gone.
fn wait_with_progress(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    job: Long,
    start: impl FnOnce(Done),
) -> io::Result<Result<(), RequestError>> {
    let submitter = &shared.submitter;
    let dirty = || {
        let status = submitter.status()?;
        Some((status.dirty_lines + status.zero_lines, status.obstacle.is_some()))
    };
    let mut total = dirty().map_or(0, |(left, _)| left);
    let (sender, receiver) = mpsc::sync_channel(1);
    {
        let mut under_way = shared.under_way();
        job.begin(&mut under_way);
        start(Box::new(move |reply| {
            let _ = sender.send(reply.result);
        }));
    }
    let mut listens = true;
    let mut progress = Progress { done: 0, total, is_held_up: false };
    loop {
        match receiver.recv_timeout(PROGRESS_INTERVAL) {
            Ok(result) => return Ok(result),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Ok(Err(RequestError::ShuttingDown));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if listens {
            listens = listen_to_client(reader, shared, job)?;
        }
        if let Some((left, is_held_up)) = dirty() {
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
fn listen_to_client(
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
