//! A whole conversation of a front-end with the daemon, and what the guest does meanwhile.
//!
//! ```text
//! op 0  a message: its request, how many descriptors and the kind of each, the length of its payload, the payload
//!    1  the guest writes into its memory: where (16 bits), how much, the bytes
//!    2  the guest kicks a queue
//!    3  a turn of the daemon
//!    4  the engine replies to one of the requests that it has: which, and how
//! ```
//!
//! What must hold: a message that is refused changes nothing. The engine is asked only for what
//! lies in the volume, and is asked with FUA by who does not flush (C7). Nothing is counted twice
//! or forgotten. After the front-end has gone its memory is not touched.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, mpsc};

use dcd_daemon::frontend::Submit;
use dcd_daemon::frontend::vhost_user::config::feature;
use dcd_daemon::frontend::vhost_user::device::{Device, Replies, Token, WriteCache};
use dcd_daemon::frontend::vhost_user::memory::SharedMemory;
use dcd_daemon::frontend::vhost_user::message::{DESCRIPTORS_MAX, Message, RingAddresses};
use dcd_daemon::frontend::vhost_user::session::{Answer, Session};
use dcd_engine::{Buffer, LbaRange, Operation, Reply, RequestError, RequestId};
use rustix::event::{EventfdFlags, eventfd};

use crate::input::Input;
use crate::vhost_user::{MEMORY_BYTES, check_range, volume};

/// Queues of the device: more are all alike.
const QUEUES: u16 = 3;
/// Steps of a conversation.
const STEPS_MAX: usize = 256;

type Asked = (Operation, bool, Box<dyn FnOnce(Reply) + Send>);

/// The engine's place: keeps what it is asked for.
#[derive(Default)]
struct Engine(Mutex<Vec<Asked>>);

impl Submit for Engine {
    fn submit(&self, operation: Operation, fua: bool, completion: Box<dyn FnOnce(Reply) + Send>) {
        self.0.lock().expect("one thread").push((operation, fua, completion));
    }
}

struct Conversation {
    session: Session,
    engine: Arc<Engine>,
    replies: mpsc::Receiver<(Token, Reply)>,
    memory: SharedMemory,
    memory_file: OwnedFd,
    /// The last record of requests under way that the daemon made.
    record: Option<OwnedFd>,
    /// Requests of the guest, and flushes for it, that came to their end.
    completed: usize,
}

pub(crate) fn run(input: &[u8]) {
    talk(input);
}

/// Requests that came to their end before the front-end went.
fn talk(input: &[u8]) -> usize {
    let mut program = Input(input);
    let engine = Arc::new(Engine::default());
    let (replies, received) = Replies::unwatched().expect("an eventfd");
    let device = Device::new(volume(false), QUEUES, engine.clone(), replies, true);
    let (memory, memory_file) = SharedMemory::new("fuzz", MEMORY_BYTES).expect("memory");
    let session = Session::new(device);
    let mut talk = Conversation {
        session,
        engine,
        replies: received,
        memory,
        memory_file,
        record: None,
        completed: 0,
    };
    for _ in 0..STEPS_MAX {
        if program.is_empty() {
            break;
        }
        match program.u8() % 5 {
            0 => talk.message(&mut program),
            1 => {
                let (at, len) = (program.u16(), program.u8());
                let bytes: Vec<u8> = (0..len).map(|_| program.u8()).collect();
                // What would lie behind its end is not written.
                let _ = talk.memory.write(at.into(), &bytes);
            }
            2 => {
                let queue = usize::from(program.u8()) % usize::from(QUEUES);
                let queue = &mut talk.session.device.queues[queue];
                if queue.listens() {
                    queue.heard();
                }
            }
            3 => talk.turn(),
            _ => talk.reply(&mut program),
        }
        talk.check();
    }
    let completed = talk.completed;
    talk.end();
    completed
}

/// What messages set up.
fn settings(device: &Device) -> impl PartialEq + use<> {
    let queues: Vec<(u16, Option<RingAddresses>, u16, [bool; 3])> = device
        .queues
        .iter()
        .map(|queue| {
            let flags = [queue.enabled, queue.running.is_some(), queue.is_broken];
            (queue.size, queue.addresses, queue.base, flags)
        })
        .collect();
    let memory = std::rc::Rc::as_ptr(&device.memory);
    (device.features, memory, device.write_cache, device.is_held, device.record.is_some(), queues)
}

impl Conversation {
    fn message(&mut self, program: &mut Input) {
        let request = program.u8();
        let count = usize::from(program.u8()) % (DESCRIPTORS_MAX + 2);
        let descriptors: Vec<OwnedFd> = (0..count).map(|_| self.descriptor(program.u8())).collect();
        let len = program.u8();
        let payload: Vec<u8> = (0..len).map(|_| program.u8()).collect();
        let Ok(message) = Message::parse(request.into(), &payload, count) else { return };
        if self.session.is_waiting() {
            // The server does not read on.
            return;
        }
        let before = settings(&self.session.device);
        match self.session.handle(message, descriptors) {
            Err(error) => {
                assert!(!error.to_string().contains('\n'));
                // One that ends the connection is found when everything is set; nothing of it is
                // used again.
                let is_as_before = before == settings(&self.session.device);
                assert!(is_as_before || error.ends_connection(), "refused, and done: {error}");
            }
            Ok(Answer::Reply(bytes, file)) => {
                assert!(bytes.len() >= 12);
                self.record = file.or(self.record.take());
            }
            Ok(Answer::Done | Answer::Later) => {}
        }
    }

    fn descriptor(&self, kind: u8) -> OwnedFd {
        let copy = |file: &OwnedFd| file.try_clone().expect("a descriptor more");
        match (kind % 4, &self.record) {
            (0, _) | (2, None) => copy(&self.memory_file),
            (1, _) => eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"),
            (2, Some(record)) => copy(record),
            _ => std::fs::File::open("/dev/null").expect("it is there").into(),
        }
    }

    /// As the server's: what waits goes on, then requests are taken.
    fn turn(&mut self) {
        let stopping = self.session.is_waiting();
        let begun = self.under_way();
        if self.session.resume().is_some() {
            assert!(stopping && !self.session.is_waiting());
        }
        let device = &mut self.session.device;
        device.take_requests();
        device.signal();
        let flushes = device.features & feature::FLUSH != 0 && device.write_cache == WriteCache::On;
        let volume = device.volume;
        for (operation, fua, _) in &self.engine.0.lock().expect("one thread")[begun..] {
            let range = match operation {
                Operation::Flush => continue,
                Operation::Read { range, .. } => {
                    check_range(*range, &volume);
                    continue;
                }
                Operation::Write { start, data } => {
                    LbaRange { start: *start, blocks: data.len() as u64 / 512 }
                }
                Operation::Discard { range } | Operation::WriteZeroes { range, .. } => *range,
                other => panic!("not a request of a guest: {other:?}"),
            };
            check_range(range, &volume);
            assert!(*fua || flushes, "acknowledged, and never durable: {operation:?}");
        }
    }

    fn under_way(&self) -> usize {
        self.engine.0.lock().expect("one thread").len()
    }

    fn reply(&mut self, program: &mut Input) {
        let (which, how) = (usize::from(program.u8()), program.u8());
        let result = match how % 4 {
            0 | 1 => Ok(()),
            2 => Err(RequestError::Io),
            _ => Err(RequestError::ShuttingDown),
        };
        let count = self.under_way();
        if count > 0 {
            self.complete(which % count, result);
        }
    }

    fn complete(&mut self, index: usize, result: Result<(), RequestError>) {
        let (operation, _, completion) = self.engine.0.lock().expect("one thread").remove(index);
        let buffer = match operation {
            Operation::Read { range, .. } => Some(Buffer::zeroed(range.bytes() as usize)),
            Operation::Write { data, .. } => Some(data),
            _ => None,
        };
        let buffer = buffer.filter(|_| result.is_ok());
        completion(Reply { id: RequestId(0), result, buffer, answer: None });
        self.completed += 1;
        while let Ok((token, reply)) = self.replies.try_recv() {
            match token {
                Token::Request(slot) => self.session.device.completed(slot, reply),
                Token::WriteThrough => self.session.device.flushed(reply.result.is_ok()),
            }
        }
    }

    fn check(&self) {
        let device = &self.session.device;
        assert_eq!(device.requests_under_way(), self.under_way());
        let of_queues: usize = device.queues.iter().map(|queue| queue.under_way).sum();
        // One more is the flush of a change to writing through.
        assert!((of_queues..=of_queues + 1).contains(&self.under_way()));
    }

    /// The front-end goes, and the engine replies to what it has.
    fn end(mut self) {
        self.session.device.abandon();
        let before = self.contents();
        while self.under_way() > 0 {
            self.complete(0, Ok(()));
        }
        assert!(before == self.contents(), "the guest has its memory for something else by now");
        assert_eq!(self.session.device.requests_under_way(), 0);
    }

    fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; MEMORY_BYTES as usize];
        assert!(self.memory.read(0, &mut bytes));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use crate::seeds::seeds;

    #[test]
    fn the_seeds_get_as_far_as_requests() {
        let completed =
            seeds("vhost_user_session").into_iter().map(|(_, bytes)| super::talk(&bytes));
        assert_eq!(completed.collect::<Vec<_>>(), [2, 1, 2, 1]);
    }
}
