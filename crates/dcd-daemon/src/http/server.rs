//! One thread for all clients: it waits for all of them at once and for none of them.
//!
//! Whoever can connect may be hostile. There are at most [`CLIENTS_MAX`], one more is turned away;
//! each has [`DEADLINE`] for its request and its answer. Who watches the stream stays, but is left
//! as soon as it is [`FRAMES_MAX`] frames behind: it connects again, or has gone. So memory is
//! bounded, whatever they do. The event loop is asked once a second by [`Site::second`], and by
//! requests one at a time: this thread waits for its answer, and never it for this thread.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::control::check_peer;
use crate::http::address::{Door, Shows, Socket, is_this_machine};
use crate::http::answer::{Answer, stream_head};
use crate::http::request::{
    BODY_BYTES_MAX, HEAD_BYTES_MAX, HttpRequest, HttpStatus, Method, Parsed, parse_request,
};

/// Clients at a time.
pub const CLIENTS_MAX: usize = 160;
/// A client that has not sent its request and taken its answer by then is left.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Frames that somebody who watches may be behind.
pub const FRAMES_MAX: usize = 4;
/// What the kernel keeps for a client that does not read.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// How often all is looked at.
const SECOND: Duration = Duration::from_secs(1);
/// Between two steps of an answer that takes several: the event loop has others to serve.
const STEP_PAUSE: Duration = Duration::from_millis(2);
/// Answers that take several steps, at a time.
const JOBS_MAX: usize = 8;
/// Clients that are let in between two looks at the others.
const ACCEPTED_AT_ONCE: usize = 16;

/// An answer that takes several steps: called until there is something.
pub type Job = Box<dyn FnMut() -> Option<Answer> + Send>;

/// What a request gets.
pub enum Reply {
    /// This.
    Whole(Answer),
    /// It is being made.
    Later(Job),
    /// What happens from now on, and this before.
    Stream(Arc<[u8]>),
}

/// What is shown.
pub trait Site: Send + 'static {
    /// Answers a request. May wait for the event loop, and for nobody else.
    fn answer(&mut self, request: &HttpRequest) -> Reply;
    /// A second has passed: what those get who watch, if anybody does.
    fn second(&mut self, is_watched: bool) -> Option<Arc<[u8]>>;
}

/// The thread.
pub struct HttpServer {
    stop: Arc<OwnedFd>,
    thread: thread::JoinHandle<()>,
    page: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

impl HttpServer {
    /// Begins to serve.
    ///
    /// # Errors
    /// If the system gives no thread, or not what it takes to end one.
    pub fn start(doors: Vec<Door>, site: impl Site) -> io::Result<HttpServer> {
        for door in &doors {
            match &door.socket {
                Socket::Tcp(listener) => listener.set_nonblocking(true)?,
                Socket::Unix((listener, _)) => listener.set_nonblocking(true)?,
            }
        }
        let address_of = |shows| {
            let door = doors.iter().find(|door| door.shows() == shows);
            door.and_then(Door::tcp_address)
        };
        let (page, metrics) = (address_of(Shows::Page), address_of(Shows::Metrics));
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut serving = Serving { doors, site, clients: Vec::new(), next_second: Instant::now() };
        let thread = {
            let stop = stop.clone();
            let serve = move || while serving.turn(&stop) {};
            thread::Builder::new().name("dcd-http".into()).spawn(serve)?
        };
        Ok(HttpServer { stop, thread, page, metrics })
    }

    /// Where the page is, with the real port, if that is TCP.
    pub fn page_address(&self) -> Option<SocketAddr> {
        self.page
    }

    /// Where there are only metrics, with the real port.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Ends: takes no more clients and leaves those that are there.
    pub fn stop(self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let _ = self.thread.join();
    }

    /// Serves until the process ends.
    pub fn wait(self) {
        let _ = self.thread.join();
    }
}

/// A connection.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => {
                let mut stream = stream;
                stream.read(bytes)
            }
            Stream::Unix(stream) => {
                let mut stream = stream;
                stream.read(bytes)
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => {
                let mut stream = stream;
                stream.write(bytes)
            }
            Stream::Unix(stream) => {
                let mut stream = stream;
                stream.write(bytes)
            }
        }
    }

    fn end_writing(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// What a client is at.
enum State {
    /// Its request comes.
    Asking(Vec<u8>),
    /// Its answer is made.
    Waiting { job: Job, head_only: bool },
    /// Its answer leaves.
    Taking,
    /// It watches.
    Watching,
    /// It has all; what it still sends would make the kernel reset the connection.
    Leaving { bytes_taken: usize },
    /// It is left.
    Gone,
}

struct Client {
    stream: Stream,
    shows: Shows,
    /// It came in where only this machine does.
    is_tcp: bool,
    state: State,
    output: VecDeque<Arc<[u8]>>,
    /// Bytes of the first of it that are sent.
    sent: usize,
    until: Instant,
}

impl Client {
    fn events(&self) -> PollFlags {
        let writes = if self.output.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        match self.state {
            State::Asking(_) | State::Leaving { .. } | State::Watching => writes | PollFlags::IN,
            State::Taking | State::Waiting { .. } | State::Gone => writes,
        }
    }

    /// Sends what it takes now.
    fn send(&mut self) {
        while let Some(first) = self.output.front() {
            match self.stream.write(first.get(self.sent..).unwrap_or_default()) {
                Ok(0) => return self.state = State::Gone,
                Ok(written) => {
                    self.sent += written;
                    if self.sent >= first.len() {
                        self.output.pop_front();
                        self.sent = 0;
                    }
                }
                Err(error) if is_later(&error) => return,
                Err(_) => return self.state = State::Gone,
            }
        }
        if matches!(self.state, State::Taking) {
            self.stream.end_writing();
            self.state = State::Leaving { bytes_taken: 0 };
        }
    }

    /// Takes what it has sent; a request, when it is whole.
    fn receive(&mut self) -> Option<Parsed> {
        let mut part = [0; 1024];
        loop {
            let read = match self.stream.read(&mut part) {
                Ok(0) => {
                    self.state = State::Gone;
                    return None;
                }
                Ok(read) => read,
                Err(error) if is_later(&error) => return None,
                Err(_) => {
                    self.state = State::Gone;
                    return None;
                }
            };
            match &mut self.state {
                State::Asking(bytes) => {
                    bytes.extend_from_slice(&part[..read]);
                    match parse_request(bytes) {
                        Parsed::Unfinished => {}
                        whole => return Some(whole),
                    }
                }
                State::Leaving { bytes_taken } => {
                    *bytes_taken += read;
                    if *bytes_taken > HEAD_BYTES_MAX + BODY_BYTES_MAX {
                        self.state = State::Gone;
                        return None;
                    }
                }
                // Who watches has nothing to say.
                _ => {
                    self.state = State::Gone;
                    return None;
                }
            }
        }
    }

    fn answer(&mut self, answer: Answer, head_only: bool) {
        self.output.extend(answer.bytes(head_only));
        self.state = State::Taking;
        self.send();
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// What has been waited for.
#[derive(Default)]
struct Happened {
    /// Doors that are knocked at.
    doors: Vec<usize>,
    /// Clients, and what happened there.
    clients: Vec<(usize, PollFlags)>,
}

struct Serving<S> {
    doors: Vec<Door>,
    site: S,
    clients: Vec<Client>,
    next_second: Instant,
}

impl<S: Site> Serving<S> {
    /// Waits for somebody, and serves. False: it is to end.
    fn turn(&mut self, stop: &OwnedFd) -> bool {
        let Some(Happened { doors, clients }) = self.wait(stop) else { return false };
        for door in doors {
            self.accept(door);
        }
        for (index, happened) in clients {
            self.serve(index, happened);
        }
        self.step();
        let now = Instant::now();
        if now >= self.next_second {
            let is_watched = self.clients.iter().any(|it| matches!(it.state, State::Watching));
            if let Some(frame) = self.site.second(is_watched) {
                self.show(&frame);
            }
            // One that is late is not made up for.
            self.next_second = (self.next_second + SECOND).max(Instant::now());
        }
        self.clients.retain(|client| {
            let is_late = client.until < now && !matches!(client.state, State::Watching);
            !is_late && !matches!(client.state, State::Gone)
        });
        true
    }

    /// Waits until something happens, or is to be done. `None`: it is to end.
    fn wait(&self, stop: &OwnedFd) -> Option<Happened> {
        let mut waiting = vec![PollFd::new(stop, PollFlags::IN)];
        for door in &self.doors {
            waiting.push(match &door.socket {
                Socket::Tcp(listener) => PollFd::new(listener, PollFlags::IN),
                Socket::Unix((listener, _)) => PollFd::new(listener, PollFlags::IN),
            });
        }
        waiting.extend(self.clients.iter().map(|it| PollFd::new(&it.stream, it.events())));
        let has_job = self.clients.iter().any(|it| matches!(it.state, State::Waiting { .. }));
        let to_second = self.next_second.saturating_duration_since(Instant::now());
        let timeout = if has_job { to_second.min(STEP_PAUSE) } else { to_second };
        let timeout = Timespec::try_from(timeout).unwrap_or_default();
        if poll(&mut waiting, Some(&timeout)).is_err() {
            return Some(Happened::default()); // a signal
        }
        let happened: Vec<PollFlags> = waiting.iter().map(PollFd::revents).collect();
        let (stopped, others) = happened.split_first()?;
        if !stopped.is_empty() {
            return None;
        }
        let (doors, clients) = others.split_at(self.doors.len());
        let some = |of: &[PollFlags]| {
            let all = of.iter().copied().enumerate();
            all.filter(|(_, happened)| !happened.is_empty()).collect::<Vec<_>>()
        };
        let doors = some(doors).into_iter().map(|(door, _)| door).collect();
        Some(Happened { doors, clients: some(clients) })
    }

    fn accept(&mut self, door: usize) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let door = &self.doors[door];
            let accepted = match &door.socket {
                Socket::Tcp(listener) => listener.accept().and_then(|(stream, _)| {
                    stream.set_nonblocking(true)?;
                    Ok(Stream::Tcp(stream))
                }),
                Socket::Unix((listener, _)) => listener.accept().and_then(|(stream, _)| {
                    stream.set_nonblocking(true)?;
                    match check_peer(&stream) {
                        Ok(()) => Ok(Stream::Unix(stream)),
                        Err(_) => Err(io::ErrorKind::PermissionDenied.into()),
                    }
                }),
            };
            let stream = match accepted {
                Ok(stream) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // It has gone again, or there are no descriptors: then not at once again.
                Err(error) => {
                    if error.kind() != io::ErrorKind::PermissionDenied {
                        thread::sleep(STEP_PAUSE);
                    }
                    return;
                }
            };
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
            let mut client = Client {
                is_tcp: matches!(stream, Stream::Tcp(_)),
                stream,
                shows: door.shows,
                state: State::Asking(Vec::new()),
                output: VecDeque::new(),
                sent: 0,
                until: Instant::now() + DEADLINE,
            };
            if self.clients.len() >= CLIENTS_MAX {
                // It fits into the empty buffer of a new socket; nobody is waited for.
                client.answer(
                    Answer::refused(HttpStatus::Unavailable, "too many clients: ask again"),
                    false,
                );
                continue;
            }
            self.clients.push(client);
        }
    }

    fn serve(&mut self, index: usize, happened: PollFlags) {
        let jobs =
            self.clients.iter().filter(|it| matches!(it.state, State::Waiting { .. })).count();
        let client = &mut self.clients[index];
        if happened.intersects(PollFlags::ERR | PollFlags::NVAL) {
            client.state = State::Gone;
            return;
        }
        if happened.contains(PollFlags::OUT) {
            client.send();
        }
        // Who has hung up while its answer is made is left.
        if happened.contains(PollFlags::HUP) && matches!(client.state, State::Waiting { .. }) {
            client.state = State::Gone;
        }
        if !happened.intersects(PollFlags::IN | PollFlags::HUP)
            || !matches!(client.state, State::Asking(_) | State::Watching | State::Leaving { .. })
        {
            return;
        }
        let request = match client.receive() {
            None => return,
            Some(Parsed::Request(request)) => request,
            Some(Parsed::Refused(status)) => {
                let words = "send: GET / HTTP/1.1, with a short head, and a short body or none";
                return client.answer(Answer::refused(status, words), false);
            }
            Some(Parsed::Unfinished) => return,
        };
        let head_only = request.method == Method::Head;
        if let Err(refusal) = is_let_in(client.shows, client.is_tcp, &request) {
            return client.answer(refusal, head_only);
        }
        match self.site.answer(&request) {
            Reply::Whole(answer) => client.answer(answer, head_only),
            Reply::Later(_) if jobs >= JOBS_MAX => {
                let words = "too many maps are being made: ask again";
                client.answer(Answer::refused(HttpStatus::Unavailable, words), head_only);
            }
            Reply::Later(job) => client.state = State::Waiting { job, head_only },
            Reply::Stream(first) => {
                client.output.extend([stream_head(), first]);
                client.state = State::Watching;
                client.send();
            }
        }
    }

    /// One step of one answer, in turn.
    fn step(&mut self) {
        let waits = |it: &&mut Client| matches!(it.state, State::Waiting { .. });
        let Some(client) = self.clients.iter_mut().find(waits) else { return };
        let State::Waiting { job, head_only } = &mut client.state else { return };
        if let Some(answer) = job() {
            let head_only = *head_only;
            client.answer(answer, head_only);
        }
    }

    /// Shows a frame to those who watch, and leaves who has not taken the last ones.
    fn show(&mut self, frame: &Arc<[u8]>) {
        for client in self.clients.iter_mut().filter(|it| matches!(it.state, State::Watching)) {
            if client.output.len() >= FRAMES_MAX {
                client.state = State::Gone;
                continue;
            }
            client.output.push_back(frame.clone());
            client.send();
        }
    }
}

/// Whether a request may be answered that came in there.
fn is_let_in(shows: Shows, is_tcp: bool, request: &HttpRequest) -> Result<(), Answer> {
    if shows == Shows::Metrics {
        return match (request.method.changes(), request.path.as_str()) {
            (true, _) => Err(Answer::refused(HttpStatus::MethodNotAllowed, "there is only GET")),
            (false, "/metrics") => Ok(()),
            (false, _) => Err(Answer::refused(
                HttpStatus::NotFound,
                "there is only /metrics here; the page is where --http says",
            )),
        };
    }
    // A browser sends the name that it knows us by. Behind a unix socket there is a proxy, which
    // knows its own names.
    match &request.host {
        Some(host) if is_tcp && !is_this_machine(host) => Err(Answer::refused(
            HttpStatus::Misdirected,
            "this is only for localhost, 127.0.0.1 and [::1]: use one of these names",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// Says what it is asked, and shows large frames.
    struct Echo;

    impl Site for Echo {
        fn answer(&mut self, request: &HttpRequest) -> Reply {
            match request.path.as_str() {
                "/stream" => Reply::Stream(Arc::from(&b"first\n"[..])),
                "/later" => {
                    let mut steps = 0;
                    Reply::Later(Box::new(move || {
                        steps += 1;
                        (steps == 5).then(|| Answer::of("text/plain", b"done".to_vec()))
                    }))
                }
                path => Reply::Whole(Answer::of("text/plain", path.as_bytes().to_vec())),
            }
        }

        fn second(&mut self, is_watched: bool) -> Option<Arc<[u8]>> {
            is_watched.then(|| vec![b'x'; 1 << 20].into())
        }
    }

    fn started() -> (HttpServer, SocketAddr) {
        let socket = Socket::Tcp(TcpListener::bind("127.0.0.1:0").unwrap());
        let server = HttpServer::start(vec![Door { socket, shows: Shows::Page }], Echo).unwrap();
        let address = server.page_address().unwrap();
        (server, address)
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn requests_are_answered_and_strangers_are_not() {
        let (server, address) = started();
        assert!(ask(address, "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n").ends_with("\r\n\r\n/a"));
        assert!(ask(address, "GET /later HTTP/1.1\r\n\r\n").ends_with("done"));
        let head = ask(address, "HEAD /a HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 2\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        let answer = ask(address, "GET /a HTTP/1.1\r\nHost: evil.example:80\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
        assert!(!answer.to_ascii_lowercase().contains("access-control"), "{answer}");
        server.stop();
    }

    /// Somebody who watches and does not read is left; another one gets frames all the time.
    #[test]
    fn slow_clients_are_left() {
        let (server, address) = started();
        let watch = || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /stream HTTP/1.1\r\n\r\n").unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream
        };
        let (slow, mut quick) = (watch(), watch());
        let (began, mut got, mut part) = (Instant::now(), 0, [0; 1 << 16]);
        while got < 12 << 20 {
            assert!(began.elapsed() < Duration::from_secs(60), "{got}");
            got += quick.read(&mut part).unwrap();
        }
        let (mut slow, mut of_slow) = (slow, 0);
        loop {
            match slow.read(&mut part) {
                Ok(0) | Err(_) => break,
                Ok(read) => of_slow += read,
            }
        }
        assert!(of_slow < 8 << 20, "{of_slow} bytes were kept for somebody who does not read");
        server.stop();
    }
}
