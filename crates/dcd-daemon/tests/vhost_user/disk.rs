//! A disk in memory in place of the engine, which can hold its answers back; and a server on it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use dcd_daemon::frontend::Submit;
use dcd_daemon::frontend::vhost_user::{Server, StopHandle, Trouble, Volume};
use dcd_engine::{Buffer, Operation, Reply, RequestError, RequestId, Uuid};

pub const DISK_BLOCKS: u64 = 4096;

type Completion = Box<dyn FnOnce(Reply) + Send>;

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    Read(u64),
    Write(u64, bool),
    Zeroes(u64, u64, bool),
    Flush,
}

#[derive(Default)]
pub struct State {
    pub bytes: Vec<u8>,
    pub asked: Vec<Asked>,
    held: Vec<(Operation, Completion)>,
    pub is_holding: bool,
    pub fails_with: Option<RequestError>,
}

/// The disk.
#[derive(Clone)]
pub struct Disk(pub Arc<Mutex<State>>);

impl Disk {
    pub fn new() -> Disk {
        let bytes = vec![0; DISK_BLOCKS as usize * 512];
        Disk(Arc::new(Mutex::new(State { bytes, ..State::default() })))
    }

    pub fn hold(&self, is_holding: bool) {
        self.0.lock().unwrap().is_holding = is_holding;
    }

    /// Answers what was held, in order.
    pub fn release(&self) {
        let held = std::mem::take(&mut self.0.lock().unwrap().held);
        for (operation, completion) in held {
            let reply = self.do_it(operation);
            completion(reply);
        }
    }

    pub fn held(&self) -> usize {
        self.0.lock().unwrap().held.len()
    }

    pub fn wait_until_held(&self, count: usize) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while self.held() < count {
            assert!(std::time::Instant::now() < until, "{} of {count} are held", self.held());
            std::thread::yield_now();
        }
    }

    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }

    fn do_it(&self, operation: Operation) -> Reply {
        let mut state = self.0.lock().unwrap();
        let id = RequestId(0);
        if let Some(error) = state.fails_with {
            return Reply { id, result: Err(error), buffer: None, answer: None };
        }
        let buffer = match operation {
            Operation::Read { range, .. } => {
                let start = range.start.byte() as usize;
                Some(Buffer::copy_of(&state.bytes[start..start + range.bytes() as usize]))
            }
            Operation::Write { start, data } => {
                let start = start.byte() as usize;
                state.bytes[start..start + data.len()].copy_from_slice(data.bytes());
                Some(data)
            }
            Operation::WriteZeroes { range, .. } | Operation::Discard { range } => {
                let start = range.start.byte() as usize;
                state.bytes[start..start + range.bytes() as usize].fill(0);
                None
            }
            _ => None,
        };
        Reply { id, result: Ok(()), buffer, answer: None }
    }
}

impl Submit for Disk {
    fn submit(&self, operation: Operation, fua: bool, completion: Completion) {
        let asked = match &operation {
            Operation::Read { range, .. } => Asked::Read(range.start.0),
            Operation::Write { start, .. } => Asked::Write(start.0, fua),
            Operation::WriteZeroes { range, .. } | Operation::Discard { range } => {
                Asked::Zeroes(range.start.0, range.blocks, fua)
            }
            Operation::Flush => Asked::Flush,
            other => panic!("not a request of a guest: {other:?}"),
        };
        let mut state = self.0.lock().unwrap();
        state.asked.push(asked);
        if state.is_holding {
            state.held.push((operation, completion));
            return;
        }
        drop(state);
        let reply = self.do_it(operation);
        completion(reply);
    }
}

/// A server on a disk, until it is dropped.
pub struct Running {
    pub path: PathBuf,
    pub disk: Disk,
    stop: StopHandle,
    pub trouble: Trouble,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

pub fn volume() -> Volume {
    Volume {
        uuid: Uuid([0xd1; 16]),
        blocks: DISK_BLOCKS,
        logical_block_size: 512,
        physical_block_size: 4096,
        read_only: false,
        trim: true,
    }
}

static SERVERS: AtomicUsize = AtomicUsize::new(0);

/// A new path for a socket.
pub fn socket_path() -> PathBuf {
    let number = SERVERS.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("dcd-vhost-user-{}-{number}", std::process::id()))
}

impl Running {
    pub fn start(disk: Disk, volume: Volume) -> Running {
        let path = socket_path();
        let _ = std::fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = Server::new(listener, volume, Arc::new(disk.clone()), true).unwrap();
        let (stop, trouble) = (server.stop_handle(), server.trouble());
        let thread = Some(std::thread::spawn(move || server.run()));
        Running { path, disk, stop, trouble, thread }
    }

    pub fn new() -> Running {
        Running::start(Disk::new(), volume())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends it in order.
    pub fn stop(mut self) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }

    /// Leaves it with requests that are never answered, as a killed daemon does. Its thread stays
    /// until the test ends.
    pub fn leave(mut self) {
        self.thread = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            self.stop.stop();
            self.disk.hold(false);
            self.disk.release();
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}
