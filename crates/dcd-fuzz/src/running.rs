//! What the machines have in common: an engine, its clock, the I/Os that it waits for and the
//! replies that it gave. What becomes of an I/O is the machine's: [`crate::host`],
//! [`crate::volume::machine`].

use std::borrow::Cow;

use dcd_engine::{
    Duration, Engine, Input, Io, IoOperation, OpenError, Operation, Output, Reply, Request,
    RequestId, Time,
};
use dcd_testkit::bytes_of;

use crate::model::Violation;
use crate::random::Random;

/// In the names of requests whose answer nobody waits for.
pub const UNHEARD: u64 = 1 << 63;

/// How a start ended that did not.
pub enum NotOpen {
    /// Refused.
    Refused(OpenError),
    /// It does what it must not.
    Violation(Violation),
    /// Cut off after so many I/Os, as was asked: a crash during recovery.
    Interrupted,
}

/// An I/O under way.
pub struct Flight {
    /// What the engine wants.
    pub io: Io,
    /// Of a flush: what it covers.
    pub flush_mark: u64,
    /// It does not end before this moment, unless nothing else is left to do.
    pub not_before: Time,
    /// Of a read: what it brings, if it was not done at its end but at its start.
    pub early: Option<Vec<u8>>,
}

impl Flight {
    /// Where it writes, and what, if it does; `memory` is that of the engine that wants it.
    pub fn written<'a>(&'a self, memory: &'a [u8], can_zero: bool) -> Option<(u64, Cow<'a, [u8]>)> {
        match &self.io.operation {
            IoOperation::Write { offset, data, .. } => {
                Some((*offset, bytes_of(data, memory).into()))
            }
            IoOperation::WriteZeroes { offset, length, .. } if can_zero => {
                Some((*offset, vec![0; *length as usize].into()))
            }
            _ => None,
        }
    }
}

/// An engine, and what goes to and fro between it and its machine.
pub struct Running {
    /// The engine; none between a crash and the next start.
    pub engine: Option<Engine>,
    /// The clock.
    pub now: Time,
    /// I/Os under way, in the order in which they were started.
    pub ios: Vec<Flight>,
    /// When the engine wants to be woken.
    pub wake_up: Option<Time>,
    /// Replies that nobody has taken yet.
    pub replies: Vec<Reply>,
    /// The window that is to be kept, and that nobody has looked at yet.
    pub asked_window: Option<u64>,
    /// Prints every input and output.
    pub is_traced: bool,
    /// Number of the next request.
    pub next_request: u64,
}

impl Running {
    /// Before the start.
    pub fn new(now: Time, is_traced: bool) -> Running {
        Running {
            engine: None,
            now,
            ios: Vec::new(),
            wake_up: None,
            replies: Vec::new(),
            asked_window: None,
            is_traced,
            next_request: 0,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("an engine runs")
    }

    /// Prints a line, if that is wanted.
    pub fn trace(&self, line: impl FnOnce() -> String) {
        if self.is_traced {
            eprintln!("{}", line());
        }
    }

    /// Gives an input. What comes of it is to be asked for.
    pub fn give(&mut self, input: Input) {
        self.trace(|| format!("{:?} {input:?}", self.now));
        let engine = self.engine.as_mut().expect("an engine runs");
        engine.handle_input(self.now, input);
        engine.check_invariants();
    }

    /// The next I/O that the engine wants; none: it waits. Replies are put aside.
    pub fn next_io(&mut self) -> Option<Io> {
        loop {
            match self.engine.as_mut().expect("an engine runs").poll_output() {
                Output::Io(io) => {
                    self.trace(|| format!("   {io:?}"));
                    return Some(io);
                }
                Output::Reply(reply) if reply.id.0 & UNHEARD != 0 => {}
                Output::Reply(reply) => {
                    self.trace(|| format!("   {reply:?}"));
                    self.replies.push(reply);
                }
                Output::KeepWindow { window } => {
                    self.trace(|| format!("   keep window {window}"));
                    assert_eq!(self.asked_window.replace(window), None, "one after the other");
                }
                Output::Wait { until } => {
                    // A driver would come back at once, and again, without end.
                    let is_later = until.is_none_or(|until| until > self.now);
                    assert!(is_later, "{until:?} is no time to wait for at {:?}", self.now);
                    self.wake_up = until;
                    return None;
                }
            }
        }
    }

    /// A request with the next number.
    pub fn request(&mut self, operation: Operation, fua: bool) -> Input {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        Input::Request(Request { id, operation, fua })
    }

    /// When the engine wants to be woken, or a slow I/O can end, if that is earlier.
    pub fn next_moment(&self) -> Option<Time> {
        let slow = self.ios.iter().map(|flight| flight.not_before);
        self.wake_up.into_iter().chain(slow).filter(|at| *at > self.now).min()
    }

    /// Whether an I/O could end now.
    pub fn has_ready_io(&self) -> bool {
        self.ios.iter().any(|flight| flight.not_before <= self.now)
    }

    /// One of the I/Os that may end now, a little later.
    pub fn take_ready(&mut self, random: &mut Random) -> Option<Flight> {
        let ready = self.ios.iter().enumerate().filter(|(_, f)| f.not_before <= self.now);
        let ready: Vec<usize> = ready.map(|(index, _)| index).collect();
        if ready.is_empty() {
            return None;
        }
        let flight = self.ios.remove(random.pick(&ready));
        self.now = self.now.after(Duration(random.below(200_000)));
        Some(flight)
    }
}
