//! Making and removing the ublk device, on a thread of its own: it may need answers of the event
//! loop (the kernel reads a partition table, or writes what it has cached), so the loop's thread
//! must not wait for it.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

use crate::frontend::error::FrontendError;
use crate::frontend::ublk::{Device, End, Ended, UblkError, Volume};
use crate::frontend::{EventLoopHandle, Frontends, StopKind};

enum News {
    Ready(PathBuf),
    Failed(UblkError),
    Stopped,
}

/// The thread, as the loop's thread sees it.
pub(crate) struct UblkThread {
    news: mpsc::Receiver<News>,
    /// Tells the thread to stop; dropping it, too.
    stop: Option<mpsc::Sender<StopKind>>,
    thread: Option<thread::JoinHandle<()>>,
    ready: Option<PathBuf>,
    has_stopped: bool,
}

impl UblkThread {
    /// Begins to make the device, with this number or any.
    pub(crate) fn start(
        number: Option<u32>,
        volume: Volume,
        event_loop: Arc<dyn EventLoopHandle>,
    ) -> Result<UblkThread, FrontendError> {
        let (news_sender, news) = mpsc::channel();
        let (stop, stop_receiver) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("dcd-ublk".into())
            .spawn(move || {
                let tell = |news| {
                    let _ = news_sender.send(news);
                    event_loop.wake();
                };
                let serve = |end, io_bytes_max| event_loop.serve_ublk(end, io_bytes_max);
                match Device::make(number, &volume, serve) {
                    Err(error) => tell(News::Failed(error)),
                    Ok(device) => {
                        tell(News::Ready(device.path()));
                        let kind = stop_receiver.recv().unwrap_or(StopKind::Shutdown);
                        end(device, kind);
                        tell(News::Stopped);
                    }
                }
            })
            .map_err(FrontendError::system("start a thread"))?;
        Ok(UblkThread {
            news,
            stop: Some(stop),
            thread: Some(thread),
            ready: None,
            has_stopped: false,
        })
    }

    /// The device, once.
    pub(crate) fn take_ready(&mut self) -> Option<PathBuf> {
        self.ready.take()
    }
}

fn end(device: Device, kind: StopKind) {
    let path = device.path();
    let end = match kind {
        StopKind::Shutdown => End::RemoveUnused,
        StopKind::Restart => End::Leave,
        StopKind::Detach => End::Remove,
    };
    match device.end(end) {
        Ok(Ended::Removed) => {}
        Ok(Ended::Left) if end == End::Leave => {
            eprintln!("dcd: {} stays for the next start of the same volume", path.display());
        }
        Ok(Ended::Left) => {
            let number = path.to_string_lossy().trim_start_matches("/dev/ublkb").to_owned();
            eprintln!(
                "dcd: {} is in use and stays: its users wait until the same volume is served again\n\
                 hint: serve it again with --ublk {number}; or unmount first, next time. `dcd ublk remove {number}` gives \
                 the device up: what its users have not flushed is lost",
                path.display()
            );
        }
        Err(error) => {
            eprintln!("dcd: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
        }
    }
}

impl Frontends for UblkThread {
    fn turn(&mut self) -> Result<(), FrontendError> {
        match self.news.try_recv() {
            Ok(News::Ready(path)) => self.ready = Some(path),
            Ok(News::Stopped) => self.has_stopped = true,
            Ok(News::Failed(source)) => {
                self.has_stopped = true;
                return Err(FrontendError::Ublk(source));
            }
            Err(mpsc::TryRecvError::Empty) => {}
            Err(mpsc::TryRecvError::Disconnected) => self.has_stopped = true,
        }
        Ok(())
    }

    fn begin_stop(&mut self, kind: StopKind) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(kind);
        }
    }

    fn have_stopped(&mut self) -> bool {
        if self.has_stopped
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
        self.has_stopped
    }
}
