//! The loop of the thread that serves a virtual machine: its socket, kicks of its queues, replies
//! of the engine.
//!
//! ```text
//! turn:  wait for the socket, a kick, a reply
//!        replies -> answers in the guest's memory
//!        one message of the front-end, unless the last one waits for requests under way
//!        kicks -> chains -> requests
//!        wake the guest for what was done
//! ```
//!
//! It is a thread of its own, and not a part of the event loop, because it touches memory of
//! another process: that may have to be read from a disk, or be withheld by whoever migrates it,
//! and then only this thread waits.
//!
//! One front-end at a time is served. The next is answered when the last one's requests have left
//! the engine: else a write that it sends again could be overtaken by the same one sent before.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use dcd_engine::Reply;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::frontend::Submit;
use crate::process::bell::Bell;

use super::QUEUES_MAX;
use super::config::Volume;
use super::device::{Device, Replies, Token};
use super::error::VhostUserError;
use super::memory::{forget_lost, is_lost};
use super::message::reply_number;
use super::session::{Answer, SHARE_HINT, Session};
use super::socket::{Received, Socket};

/// How long a front-end has to be quiet before it is told that the configuration may have changed:
/// some take that for the reply to another message.
const NEWS_DELAY: Duration = Duration::from_millis(500);

/// Ends a server from another thread.
#[derive(Clone)]
pub struct StopHandle {
    bell: Arc<Bell>,
    is_asked: Arc<AtomicBool>,
    guest: Guest,
}

/// Tells whether a front-end is connected.
#[derive(Clone, Debug, Default)]
pub struct Guest(Arc<AtomicBool>);

impl Guest {
    /// Whether one is.
    pub fn is_connected(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl StopHandle {
    /// Who is connected.
    pub fn guest(&self) -> Guest {
        self.guest.clone()
    }

    /// Requests under way are answered; then [`Server::run`] returns.
    pub fn stop(&self) {
        self.is_asked.store(true, Ordering::Release);
        self.bell.ring();
    }
}

/// A message whose answer waits.
#[derive(Clone, Copy)]
struct Asked {
    request: u32,
    needs_reply: bool,
}

/// What is told of a guest that has kicked, and of which nothing can be seen.
const NOTHING_SEEN: &str = "the guest has rung for a request, and its rings are empty as they are seen here: if it waits, it \
    does not share its memory (share=off)";

/// What keeps the guest from its disk, for who asks how it is.
#[derive(Clone, Default, Debug)]
pub struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    /// In words, as it was told last and is still so.
    pub fn words(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, words: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    fn tell(&self, text: &str, hint: &str, quiet: bool) {
        self.set(Some(text.to_owned()));
        if !quiet {
            eprintln!("dcd: vhost-user: {text}\nhint: {hint}");
        }
    }
}

struct Connection {
    socket: Socket,
    session: Session,
    asked: Asked,
    last_message: Instant,
    /// Whether somebody else has tried meanwhile.
    has_refused: bool,
    quiet: bool,
    trouble: Trouble,
    /// It has got so far that there is no trouble.
    is_well: bool,
}

impl Connection {
    /// Deals with what the front-end says; whether it has gone.
    fn hear(&mut self) -> Result<bool, VhostUserError> {
        let (header, message, descriptors) = match self.socket.receive()? {
            Received::Message { header, message, descriptors } => (header, message, descriptors),
            Received::Nothing => return Ok(false),
            Received::Closed => return Ok(true),
        };
        self.last_message = Instant::now();
        let had_reply_ack = self.session.has_reply_ack();
        let request = header.request;
        let handled = self.session.handle(message, descriptors);
        // The message that agrees on answers may ask for one already (user-mode Linux does).
        let needs_reply = header.needs_reply && (had_reply_ack || self.session.has_reply_ack());
        self.asked = Asked { request, needs_reply };
        match handled {
            Ok(answer) => self.reply(answer)?,
            Err(source) => {
                let error = VhostUserError::Refused { request, source };
                if needs_reply {
                    // It is told, and may go on without.
                    self.socket.send(&reply_number(request, 1), None)?;
                }
                if !needs_reply || error.ends_connection() {
                    return Err(error);
                }
                if !self.quiet {
                    error.tell("refused");
                }
            }
        }
        Ok(false)
    }

    fn reply(&self, answer: Answer) -> Result<(), VhostUserError> {
        let Asked { request, needs_reply } = self.asked;
        match answer {
            Answer::Reply(bytes, file) => {
                self.socket.send(&bytes, file.as_ref().map(AsFd::as_fd))?;
            }
            Answer::Done if needs_reply => self.socket.send(&reply_number(request, 0), None)?,
            Answer::Done | Answer::Later => {}
        }
        Ok(())
    }

    /// Takes requests of the queues that were kicked, or have more; goes on with what waits for
    /// requests.
    fn turn(&mut self, events: &Events) -> Result<(), VhostUserError> {
        let device = &mut self.session.device;
        let now = Instant::now();
        for index in &events.kicked {
            device.kicked(*index, now);
        }
        device.take_requests();
        device.signal();
        if !self.is_well && device.has_begun() {
            self.is_well = true;
            self.trouble.set(None);
        }
        if device.kicks_in_vain(now) {
            self.trouble.tell(NOTHING_SEEN, SHARE_HINT, self.quiet);
        }
        if let Some(answer) = self.session.resume() {
            self.reply(answer)?;
        }
        if self.session.owes_news() && self.last_message.elapsed() >= NEWS_DELAY {
            self.session.tell_news();
        }
        Ok(())
    }
}

/// Serves one front-end after the other.
pub struct Server {
    listener: UnixListener,
    volume: Volume,
    submit: Arc<dyn Submit>,
    bell: Arc<Bell>,
    replies: Replies,
    replied: mpsc::Receiver<(Token, Reply)>,
    is_stopping: Arc<AtomicBool>,
    guest: Guest,
    quiet: bool,
    trouble: Trouble,
}

/// A server on its thread, where the guest's memory stays.
struct Serving {
    server: Server,
    connection: Option<Connection>,
    /// Of the last connection, until the engine has let go of its requests.
    abandoned: Option<Device>,
}

/// What has happened.
#[derive(Default)]
struct Events {
    bell: bool,
    listener: bool,
    socket: bool,
    gone: bool,
    kicked: Vec<usize>,
}

impl Server {
    /// A server for a listening socket.
    pub fn new(
        listener: UnixListener,
        volume: Volume,
        submit: Arc<dyn Submit>,
        quiet: bool,
    ) -> std::io::Result<Server> {
        listener.set_nonblocking(true)?;
        let bell = Arc::new(Bell::new()?);
        let (replies, replied) = Replies::new(bell.clone());
        Ok(Server {
            listener,
            volume,
            submit,
            bell,
            replies,
            replied,
            is_stopping: Arc::default(),
            guest: Guest::default(),
            quiet,
            trouble: Trouble::default(),
        })
    }

    /// What is wrong with who uses it, if anything.
    pub fn trouble(&self) -> Trouble {
        self.trouble.clone()
    }

    /// What ends it.
    pub fn stop_handle(&self) -> StopHandle {
        let guest = self.guest.clone();
        StopHandle { bell: self.bell.clone(), is_asked: self.is_stopping.clone(), guest }
    }

    /// Serves until it is stopped. Never fails for what a front-end or a guest does.
    pub fn run(self) -> std::io::Result<()> {
        Serving { server: self, connection: None, abandoned: None }.run()
    }
}

impl Serving {
    fn run(mut self) -> std::io::Result<()> {
        loop {
            self.server.guest.0.store(self.connection.is_some(), Ordering::Release);
            let events = self.wait()?;
            if events.bell {
                self.server.bell.heard();
            }
            self.take_replies();
            let is_stopping = self.server.is_stopping.load(Ordering::Acquire);
            if let Some(connection) = &mut self.connection {
                connection.session.device.is_held |= is_stopping;
                let ended = if events.socket { connection.hear() } else { Ok(false) };
                let ended = ended.and_then(|ended| connection.turn(&events).map(|()| ended));
                // Whatever else has come of it.
                let ended = if is_lost() { Err(VhostUserError::MemoryLost) } else { ended };
                let is_idle = connection.session.device.requests_under_way() == 0;
                match ended {
                    Ok(is_closed) if is_closed || events.gone => self.hang_up(None),
                    Ok(_) if is_stopping && is_idle => return Ok(()),
                    Ok(_) => {}
                    Err(error) => self.hang_up(Some(&error)),
                }
            }
            self.abandoned.take_if(|device| device.requests_under_way() == 0);
            if is_stopping && self.connection.is_none() && self.abandoned.is_none() {
                return Ok(());
            }
            if events.listener && !is_stopping && self.abandoned.is_none() {
                self.accept();
            }
        }
    }

    /// Waits until something has happened.
    fn wait(&self) -> std::io::Result<Events> {
        let mut fds = vec![PollFd::new(&*self.server.bell, PollFlags::IN)];
        let mut timeout = None;
        let accepts = self.abandoned.is_none();
        if accepts {
            fds.push(PollFd::new(&self.server.listener, PollFlags::IN));
        }
        let first_of_connection = fds.len();
        let mut queues = Vec::new();
        if let Some(connection) = &self.connection {
            let session = &connection.session;
            // Even if nothing is wanted, the end of the connection is told.
            let wanted = if session.is_waiting() { PollFlags::empty() } else { PollFlags::IN };
            fds.push(PollFd::new(&connection.socket, wanted));
            for (index, queue) in session.device.queues.iter().enumerate() {
                if let Some(kick) = queue.kick.as_ref().filter(|_| queue.listens()) {
                    fds.push(PollFd::from_borrowed_fd(kick.as_fd(), PollFlags::IN));
                    queues.push(index);
                }
            }
            if session.device.has_work() {
                timeout = Some(Duration::ZERO);
            } else if session.owes_news() {
                timeout = Some(NEWS_DELAY.saturating_sub(connection.last_message.elapsed()));
            }
            if let Some(at) = session.device.looks_at_kicks_at() {
                let left = at.saturating_duration_since(Instant::now());
                timeout = Some(timeout.map_or(left, |timeout: Duration| timeout.min(left)));
            }
        }
        let timeout = timeout.map(|timeout| {
            let tv_nsec = i64::from(timeout.subsec_nanos());
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let happened = |index: usize| fds.get(index).map_or(PollFlags::empty(), PollFd::revents);
        let mut events = Events { bell: !happened(0).is_empty(), ..Events::default() };
        events.listener = accepts && !happened(1).is_empty();
        if self.connection.is_some() {
            let socket = happened(first_of_connection);
            // What was said before the end is heard first.
            events.socket = socket.contains(PollFlags::IN);
            events.gone = !events.socket
                && socket.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
            for (place, index) in queues.into_iter().enumerate() {
                if !happened(first_of_connection + 1 + place).is_empty() {
                    events.kicked.push(index);
                }
            }
        }
        Ok(events)
    }

    fn take_replies(&mut self) {
        while let Ok((token, reply)) = self.server.replied.try_recv() {
            let device = match (&mut self.connection, &mut self.abandoned) {
                (_, Some(device)) => device,
                (Some(connection), None) => &mut connection.session.device,
                (None, None) => continue,
            };
            match token {
                Token::Request(slot) => device.completed(slot, reply),
                Token::WriteThrough => device.flushed(reply.result.is_ok()),
            }
        }
    }

    fn accept(&mut self) {
        let Ok((stream, _)) = self.server.listener.accept() else { return };
        if let Some(connection) = &mut self.connection {
            // It may try again at once, and for ever; once is said.
            if !std::mem::replace(&mut connection.has_refused, true) && !self.server.quiet {
                eprintln!("dcd: vhost-user: another front-end is refused: one is served at a time");
            }
            return;
        }
        let device = Device::new(
            self.server.volume,
            QUEUES_MAX,
            self.server.submit.clone(),
            self.server.replies.clone(),
            self.server.quiet,
        );
        self.connection = Some(Connection {
            socket: Socket::new(stream),
            session: Session::new(device),
            asked: Asked { request: 0, needs_reply: false },
            last_message: Instant::now(),
            has_refused: false,
            quiet: self.server.quiet,
            trouble: self.server.trouble.clone(),
            is_well: false,
        });
    }

    /// Ends a connection.
    fn hang_up(&mut self, error: Option<&VhostUserError>) {
        let Some(connection) = self.connection.take() else { return };
        if let Some(error) = error.filter(|_| !self.server.quiet) {
            error.tell("the connection is ended");
        }
        // It is of interest until somebody gets further.
        if let Some(error) = error {
            self.server.trouble.set(Some(error.to_string()));
        }
        let mut device = connection.session.device;
        device.abandon();
        forget_lost();
        self.abandoned = Some(device);
    }
}
