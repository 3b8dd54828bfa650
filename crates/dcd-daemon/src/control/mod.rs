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
//! {"resize":...}          see [`dcd_protocol::resize`]
//! {"legs":...}            see [`crate::control::legs`]
//! {"nvram":...}           see `control/nvram.rs`
//! {"volume":...}          see [`crate::control::volumes`]
//! {"store":...}           see [`crate::control::stores`]
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

pub(crate) mod answers;
pub mod client;
mod detach;
pub(crate) mod legs;
mod long_jobs;
mod nvram;
pub(crate) mod places;
pub mod recording;
mod resize;
pub mod sequences;
pub mod settings;
mod shared;
mod stores;
mod volume_growth;
pub mod volumes;

use std::io::{self, BufRead, BufReader};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dcd_client::server::Until;
use dcd_engine::Operation;
use dcd_engine::units::LbaRange;
use dcd_protocol::LegCommand;
use dcd_protocol::store::StoreCommand;
use dcd_protocol::{
    Code, Command, DetachAsked, LINE_BYTES_MAX, NvramCommand, Request, ResizeAsked,
    SequenceCommand, VolumeCommand, WantedSettings, read_line,
};
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};

use crate::control::answers::{
    answer, failure, no_report, run_with_signs_of_life, success, write_line,
};
use crate::control::detach::{cancel_detach, detach};
use crate::control::long_jobs::{Long, with_progress};
use crate::control::places::{Place, PlaceKind, Places};
use crate::control::sequences::RangesBudget;
use crate::control::settings::SharedSettings;
use crate::control::shared::Shared;
use crate::event_loop::submitter::{StopKind, Submitter};
use crate::frontend::nbd::listen::UnixSocket;
use crate::metrics;
use crate::process::accept::next_client;
use crate::report::status_report::DaemonFacts;

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
        settings: Option<SharedSettings>,
    ) -> io::Result<ControlServer> {
        listener.set_nonblocking(true)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let shared = Arc::new(Shared {
            submitter,
            facts,
            settings,
            clients: AtomicUsize::new(0),
            ranges: RangesBudget::default(),
            under_way: Mutex::default(),
            resizing: Mutex::default(),
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
    /// Something about the legs of the cache-disk.
    Legs(LegCommand),
    /// Something about the memory in front of the log.
    Nvram(NvramCommand),
    /// Something about the object store below.
    Store(StoreCommand),
    /// Another size of the log.
    Resize(ResizeAsked),
    /// Settings are to be listed, or changed.
    Set(WantedSettings),
    /// Something else; this is the answer.
    Refused(Value),
    /// So long a line that nothing behind it is read; this is the last answer.
    TooLong(Value),
}

const COMMANDS_HINT: &str = "send {\"command\":\"status\"}; there are ping, status, metrics, flush, drain, detach, \
     cancel, cancel-drain, cancel-detach, record, shutdown, {\"sequence\":\"list\"}, {\"volume\":\"status\"}, {\"legs\":\"status\"}, {\"nvram\":\"remove\"}, {\"store\":{\"snapshot\":{\"name\":\"a\"}}}, {\"resize\":{}}, {\"set\":{}}";

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
            Ok(Request { legs: Some(legs), .. }) => Asked::Legs(legs),
            Ok(Request { nvram: Some(command), .. }) => Asked::Nvram(command),
            Ok(Request { store: Some(command), .. }) => Asked::Store(command),
            Ok(Request { resize: Some(asked), .. }) => Asked::Resize(asked),
            Ok(Request { set: Some(wanted), .. }) => Asked::Set(wanted),
            Ok(Request { command: None, .. }) => Asked::Refused(failure(
                Code::BadRequest,
                "expected a command, found something else: missing field `command`",
                COMMANDS_HINT,
            )),
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
        told!(Debug, "asked", "dcd: control: {}", asked.word());
        let answered = match asked {
            Asked::Command(command) => run_command(&mut reader, shared, command, &mut listed),
            Asked::Detach(asked) => detach(&mut reader, shared, asked, &mut listed),
            Asked::Sequence(command) => {
                sequences::run(&mut reader, &shared.submitter, &shared.ranges, command)
            }
            Asked::Volume(command) => {
                volumes::run(stream, &shared.submitter, &shared.facts, command)
            }
            Asked::Legs(command) => legs::run(stream, &shared.submitter, &shared.facts, command),
            Asked::Nvram(command) => nvram::run(&mut reader, shared, command, &mut listed),
            Asked::Store(command) => stores::run(stream, shared, command),
            Asked::Resize(asked) => resize::run(&mut reader, shared, asked, &mut listed),
            Asked::Set(wanted) => {
                Ok(settings::run(shared.settings.as_ref(), &shared.submitter, &wanted))
            }
            Asked::Refused(answer) | Asked::TooLong(answer) => Ok(answer),
        }
        .and_then(|answer| write_line(stream, &answer));
        shared.clients.fetch_sub(1, Ordering::AcqRel);
        place.end();
        answered?;
    }
}

impl Asked {
    fn word(&self) -> String {
        match self {
            Asked::Command(command) => format!("{command:?}").to_lowercase(),
            Asked::Detach(_) => "detach".into(),
            Asked::Sequence(_) => "sequence".into(),
            Asked::Volume(_) => "volume".into(),
            Asked::Legs(_) => "cache-disk".into(),
            Asked::Nvram(_) => "nvram".into(),
            Asked::Store(_) => "store".into(),
            Asked::Resize(_) => "resize".into(),
            Asked::Set(_) => "set".into(),
            Asked::Refused(_) | Asked::TooLong(_) => "what cannot be asked".into(),
        }
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
        Command::CancelDetach => cancel_detach(shared),
        Command::Record => {
            recording::run(reader, submitter)?;
            success()
        }
        Command::Shutdown => with_progress(reader, shared, Long::Shutdown, listed, |done| {
            submitter.stop(StopKind::Shutdown, done);
        })?,
    })
}
