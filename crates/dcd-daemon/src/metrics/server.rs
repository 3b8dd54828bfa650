//! `--metrics ADDRESS:PORT`: metrics over plain HTTP, `GET /metrics`, for Prometheus and the like.
//!
//! Whoever can connect may read, and may be hostile. Each client has [`DEADLINE`] for everything,
//! its request at most [`REQUEST_BYTES_MAX`] bytes, and there are at most [`CLIENTS_MAX`] at a
//! time; one more is turned away. The event loop is asked at most once in [`EXPORT_AGE_MAX`],
//! however many ask here. There is one request for each connection, and no header is looked at.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::event_loop::submitter::Submitter;
use crate::metrics::export;
use crate::metrics::open_metrics::CONTENT_TYPE;
use crate::process::accept::next_client;
use crate::report::status_report::{DaemonFacts, StatusReport};

/// Longest head of a request.
pub const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Clients at a time.
pub const CLIENTS_MAX: usize = 8;
/// A client that has not sent its request and taken its answer by then is left.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// An export is shown so long.
const EXPORT_AGE_MAX: Duration = Duration::from_millis(200);

/// What a client's bytes ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpRequest {
    /// The metrics; without their text if `head` is set.
    Metrics {
        /// `HEAD`, not `GET`.
        head: bool,
    },
    /// Something else; the answer has this status.
    Refused(HttpStatus),
    /// The request is not whole yet.
    Unfinished,
}

/// Status of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpStatus {
    /// Not a request.
    BadRequest,
    /// Another path.
    NotFound,
    /// Neither `GET` nor `HEAD`.
    MethodNotAllowed,
    /// The head is too long.
    TooLarge,
    /// Too many clients, or the cache is being opened or closed.
    Unavailable,
}

impl HttpStatus {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            HttpStatus::BadRequest => ("400 Bad Request", "send: GET /metrics HTTP/1.1\n"),
            HttpStatus::NotFound => ("404 Not Found", "there is only /metrics\n"),
            HttpStatus::MethodNotAllowed => ("405 Method Not Allowed", "there is only GET\n"),
            HttpStatus::TooLarge => ("431 Request Header Fields Too Large", "too long\n"),
            HttpStatus::Unavailable => ("503 Service Unavailable", "ask again\n"),
        }
    }
}

/// What the bytes received so far ask for.
pub fn parse_request(bytes: &[u8]) -> HttpRequest {
    let is_whole = bytes.windows(4).any(|four| four == b"\r\n\r\n")
        || bytes.windows(2).any(|two| two == b"\n\n");
    if !is_whole {
        return match bytes.len() < REQUEST_BYTES_MAX {
            true => HttpRequest::Unfinished,
            false => HttpRequest::Refused(HttpStatus::TooLarge),
        };
    }
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return HttpRequest::Refused(HttpStatus::BadRequest);
    };
    if !version.starts_with(b"HTTP/1.") {
        return HttpRequest::Refused(HttpStatus::BadRequest);
    }
    let head = match method {
        b"GET" => false,
        b"HEAD" => true,
        _ => return HttpRequest::Refused(HttpStatus::MethodNotAllowed),
    };
    match target.split(|byte| *byte == b'?').next() {
        Some(b"/metrics") => HttpRequest::Metrics { head },
        _ => HttpRequest::Refused(HttpStatus::NotFound),
    }
}

/// What the threads share.
struct Shared {
    submitter: Submitter,
    facts: Arc<DaemonFacts>,
    clients: AtomicUsize,
    last: Mutex<Option<(Instant, Arc<str>)>>,
}

impl Shared {
    /// The export, at most [`EXPORT_AGE_MAX`] old. Others wait meanwhile: they want the same.
    fn export(&self) -> Option<Arc<str>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, text)) = &*last
            && made.elapsed() < EXPORT_AGE_MAX
        {
            return Some(text.clone());
        }
        let facts = self.facts.clone();
        let report = self.submitter.ask(move |snapshot| StatusReport::of(&facts, snapshot));
        let text: Arc<str> = export(&report.flatten()?).into();
        *last = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

/// The address and its thread.
pub struct MetricsServer {
    stop: Arc<OwnedFd>,
    thread: thread::JoinHandle<()>,
    address: SocketAddr,
}

impl MetricsServer {
    /// Begins to serve.
    pub fn start(
        listener: TcpListener,
        submitter: Submitter,
        facts: Arc<DaemonFacts>,
    ) -> io::Result<MetricsServer> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let clients = AtomicUsize::new(0);
        let shared = Arc::new(Shared { submitter, facts, clients, last: Mutex::default() });
        let thread = {
            let stop = stop.clone();
            let serve = move || accept_clients(&listener, &stop, &shared);
            thread::Builder::new().name("dcd-metrics".into()).spawn(serve)?
        };
        Ok(MetricsServer { stop, thread, address })
    }

    /// Where it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more clients. Those that are being served have copies of all they need.
    pub fn stop(self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let _ = self.thread.join();
    }
}

fn accept_clients(listener: &TcpListener, stop: &OwnedFd, shared: &Arc<Shared>) {
    let accept = |listener: &TcpListener| listener.accept().map(|(stream, _)| stream);
    while let Some(stream) = next_client(listener, stop, accept) {
        if shared.clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
            shared.clients.fetch_sub(1, Ordering::AcqRel);
            // It fits into the empty buffer of a new socket, so nobody is waited for.
            let _ = stream.set_nonblocking(true);
            let _ = refuse(&stream, HttpStatus::Unavailable);
            continue;
        }
        let counted = shared.clone();
        let spawned = thread::Builder::new().name("dcd-metrics-client".into()).spawn(move || {
            let _ = serve_client(&stream, &counted);
            counted.clients.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            shared.clients.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn serve_client(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let until = Instant::now() + DEADLINE;
    stream.set_nonblocking(false)?;
    match read_request(stream, until)? {
        HttpRequest::Metrics { head } => match shared.export() {
            Some(text) => {
                answer(stream, until, "200 OK", CONTENT_TYPE, text.as_bytes(), head)?;
            }
            None => refuse(stream, HttpStatus::Unavailable)?,
        },
        HttpRequest::Refused(status) => {
            stream.set_write_timeout(Some(DEADLINE))?;
            refuse(stream, status)?;
        }
        HttpRequest::Unfinished => {}
    }
    // What is unread would make the kernel reset the connection before the answer has arrived.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut rest = [0; 1024];
    let mut taken = 0;
    while taken < REQUEST_BYTES_MAX && time_left(stream, until).is_ok() {
        match (&*stream).read(&mut rest) {
            Ok(0) | Err(_) => break,
            Ok(read) => taken += read,
        }
    }
    Ok(())
}

/// Reads until the request is whole, the client has gone, or time is over.
fn read_request(mut stream: &TcpStream, until: Instant) -> io::Result<HttpRequest> {
    let mut bytes = Vec::with_capacity(1024);
    let mut part = [0; 1024];
    loop {
        time_left(stream, until)?;
        let read = stream.read(&mut part)?;
        let Some(part) = part.get(..read).filter(|part| !part.is_empty()) else {
            return Ok(HttpRequest::Unfinished);
        };
        bytes.extend_from_slice(part);
        match parse_request(&bytes) {
            HttpRequest::Unfinished => {}
            asked => return Ok(asked),
        }
    }
}

/// Lets the next read and write take as long as there is time.
fn time_left(stream: &TcpStream, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    stream.set_write_timeout(Some(left))
}

fn refuse(mut stream: &TcpStream, status: HttpStatus) -> io::Result<()> {
    let (words, body) = status.words();
    stream.write_all(&head_of(words, "text/plain; charset=utf-8", body.len(), body))
}

fn answer(
    mut stream: &TcpStream,
    until: Instant,
    status: &str,
    content_type: &str,
    body: &[u8],
    head_only: bool,
) -> io::Result<()> {
    let mut bytes = head_of(status, content_type, body.len(), "");
    if !head_only {
        bytes.extend_from_slice(body);
    }
    let mut left = &bytes[..];
    // Not `write_all`: each write may take its time-out, and a client that reads a byte a second
    // would have us for hours.
    while !left.is_empty() {
        time_left(stream, until)?;
        match stream.write(left)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => left = left.get(written..).unwrap_or_default(),
        }
    }
    Ok(())
}

fn head_of(status: &str, content_type: &str, length: usize, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let metrics = |head| HttpRequest::Metrics { head };
        let refused = HttpRequest::Refused;
        for (text, asked) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", metrics(false)),
            ("GET /metrics?x=1 HTTP/1.0\n\n", metrics(false)),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", metrics(true)),
            ("POST /metrics HTTP/1.1\r\n\r\n", refused(HttpStatus::MethodNotAllowed)),
            ("GET / HTTP/1.1\r\n\r\n", refused(HttpStatus::NotFound)),
            ("GET /metrics\r\n\r\n", refused(HttpStatus::BadRequest)),
            ("GET /metrics HTTP/2\r\n\r\n", refused(HttpStatus::BadRequest)),
            ("GET  /metrics HTTP/1.1\r\n\r\n", refused(HttpStatus::BadRequest)),
            ("\r\n\r\n", refused(HttpStatus::BadRequest)),
            ("GET /metrics HTTP/1.1\r\nHost", HttpRequest::Unfinished),
            ("", HttpRequest::Unfinished),
        ] {
            assert_eq!(parse_request(text.as_bytes()), asked, "{text:?}");
        }
        let long = vec![b'x'; REQUEST_BYTES_MAX];
        assert_eq!(parse_request(&long), refused(HttpStatus::TooLarge));
        assert_eq!(parse_request(&long[1..]), HttpRequest::Unfinished);
    }
}
