//! The thread that makes things durable: for who asks for it, after the interval, and when memory
//! becomes short. Who asks while it is at work is answered after the next time, all together.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dcd_client::BlockDevice;

use super::tell;
use crate::error::{FsError, FsResult};
use crate::shared::Shared;

/// Something that waits until everything that was done before is durable.
pub(super) type Waiting = Box<dyn FnOnce(&FsResult<()>) + Send>;

enum Ask {
    Sync(Waiting),
    MakeRoom,
    Stop,
}

/// How to ask the thread.
#[derive(Clone)]
pub(super) struct Asks {
    sender: Sender<Ask>,
    /// [`Ask::MakeRoom`] is on the way.
    wants_room: Arc<AtomicBool>,
}

impl Asks {
    /// Calls back when all that was done until now is durable, or cannot be.
    pub(super) fn when_durable(&self, waiting: Waiting) {
        if let Err(unsent) = self.sender.send(Ask::Sync(waiting))
            && let Ask::Sync(waiting) = unsent.0
        {
            waiting(&Err(FsError::Stopped));
        }
    }

    /// Memory becomes short.
    pub(super) fn make_room(&self) {
        if !self.wants_room.swap(true, Ordering::Relaxed) {
            // If there is no thread any more nothing is needed.
            let _ = self.sender.send(Ask::MakeRoom);
        }
    }
}

/// The thread.
pub(super) struct Committer {
    asks: Asks,
    thread: JoinHandle<()>,
}

impl Committer {
    pub(super) fn start<D: BlockDevice + 'static>(
        shared: Arc<Shared<D>>,
        interval: Duration,
    ) -> io::Result<Committer> {
        let (sender, asked) = channel();
        let thread = std::thread::Builder::new().name("dhisfs-durable".into());
        let asks = Asks { sender, wants_room: Arc::default() };
        let wants_room = Arc::clone(&asks.wants_room);
        let thread = thread.spawn(move || work(&shared, &asked, &wants_room, interval))?;
        Ok(Committer { asks, thread })
    }

    pub(super) fn asks(&self) -> Asks {
        self.asks.clone()
    }

    /// Ends it. What is not durable is the caller's.
    pub(super) fn stop(self) {
        let _ = self.asks.sender.send(Ask::Stop);
        let _ = self.thread.join();
    }
}

fn work<D: BlockDevice>(
    shared: &Shared<D>,
    asked: &Receiver<Ask>,
    wants_room: &AtomicBool,
    interval: Duration,
) {
    let mut next_tidy = Instant::now() + interval;
    loop {
        let mut waiting = Vec::new();
        let mut is_last = false;
        let first = asked.recv_timeout(next_tidy.saturating_duration_since(Instant::now()));
        let is_time = matches!(first, Err(RecvTimeoutError::Timeout));
        for ask in first.into_iter().chain(std::iter::from_fn(|| asked.try_recv().ok())) {
            match ask {
                Ask::Sync(one) => waiting.push(one),
                Ask::MakeRoom => {}
                Ask::Stop => is_last = true,
            }
        }
        let wants_room = wants_room.swap(false, Ordering::Relaxed);
        let result = if is_time || Instant::now() >= next_tidy {
            next_tidy = Instant::now() + interval;
            shared.tidy()
        } else if !waiting.is_empty() {
            shared.sync()
        } else if wants_room {
            shared.make_room()
        } else {
            Ok(())
        };
        if let Err(error) = &result
            && !matches!(error, FsError::Stopped)
        {
            tell(error);
        }
        waiting.into_iter().for_each(|waiting| waiting(&result));
        if is_last {
            return;
        }
    }
}
