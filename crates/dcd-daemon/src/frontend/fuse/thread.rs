//! The FUSE file and the loop device above it, on a thread of their own.
//!
//! Making and ending them can need answers of the event loop (the kernel reads a partition table,
//! or writes what it has cached), so the loop's thread must not wait for them. It is told of news
//! through a channel, and woken.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use crate::caretaker;
use crate::device::loop_device::{self, LoopDevice, LoopError, StaleLoop};
use crate::frontend::error::FrontendError;
use crate::frontend::fuse::{self, FuseMount, MountPoint};
use crate::frontend::{EventLoopHandle, Frontends, StopKind};

/// What to make.
pub(crate) struct FuseOptions {
    pub(crate) directory: PathBuf,
    pub(crate) size_bytes: u64,
    pub(crate) block_size: u32,
    pub(crate) read_only: bool,
    pub(crate) trim: bool,
    pub(crate) loop_device: bool,
    /// Made while that could be done.
    pub(crate) made: Option<MadeBefore>,
}

/// What takes rights that are given up before the thread begins.
pub(crate) struct MadeBefore {
    pub(crate) point: MountPoint,
    pub(crate) stale: Vec<StaleLoop>,
}

impl MadeBefore {
    pub(crate) fn make(directory: &Path, read_only: bool) -> Result<MadeBefore, FrontendError> {
        // Before the mount of a dead daemon is cleared away: afterwards its loop devices are not
        // found.
        let stale = loop_device::detach_stale(&directory.join(fuse::FILE_NAME)).unwrap_or_default();
        let point = MountPoint::make(directory, read_only);
        let point = point.map_err(|source| FrontendError::Fuse { source })?;
        Ok(MadeBefore { point, stale })
    }
}

/// The loop device, and who has made it.
enum Attached {
    Here(LoopDevice),
    Elsewhere(PathBuf),
}

impl Attached {
    fn path(&self) -> &Path {
        match self {
            Attached::Here(device) => device.path(),
            Attached::Elsewhere(path) => path,
        }
    }

    fn detach(self) -> Result<(), LoopError> {
        match self {
            Attached::Here(device) => device.detach(),
            Attached::Elsewhere(_) => caretaker::detach().unwrap_or(Ok(())),
        }
    }
}

/// What was made.
#[derive(Clone, Debug)]
pub struct FuseReady {
    /// The file that is the volume.
    pub file: PathBuf,
    /// The loop device on it, if one was asked for.
    pub loop_device: Option<PathBuf>,
    /// Loop devices of a daemon that died, which somebody still uses: dead.
    pub dead: Vec<StaleLoop>,
}

enum News {
    Ready(FuseReady),
    Failed(FrontendError),
    Stopped,
}

/// The thread, as the loop's thread sees it.
pub(crate) struct FuseThread {
    news: mpsc::Receiver<News>,
    /// Dropping it tells the thread to stop.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    ready: Option<FuseReady>,
    has_stopped: bool,
}

impl FuseThread {
    /// Begins to mount.
    pub(crate) fn start(
        options: FuseOptions,
        event_loop: Arc<dyn EventLoopHandle>,
    ) -> Result<Self, FrontendError> {
        let (news_sender, news) = mpsc::channel();
        let (stop, stop_receiver) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("dcd-fuse".into())
            .spawn(move || {
                let tell = |news| {
                    let _ = news_sender.send(news);
                    event_loop.wake();
                };
                match make(options, &event_loop) {
                    Err(error) => tell(News::Failed(error)),
                    Ok((mount, loop_device, stale)) => {
                        let path = loop_device.as_ref().map(|it| it.path().to_owned());
                        for one in &stale {
                            eprintln!("dcd: {}", one.words(path.as_deref()));
                        }
                        let dead = stale.into_iter().filter(|it| it.still_open).collect();
                        tell(News::Ready(FuseReady {
                            file: mount.file(),
                            loop_device: path,
                            dead,
                        }));
                        // Nothing is ever sent; the end of the channel is the message.
                        let _ = stop_receiver.recv();
                        end(mount, loop_device);
                        tell(News::Stopped);
                    }
                }
            })
            .map_err(FrontendError::system("start a thread"))?;
        Ok(FuseThread {
            news,
            stop: Some(stop),
            thread: Some(thread),
            ready: None,
            has_stopped: false,
        })
    }

    /// What was made, once.
    pub(crate) fn take_ready(&mut self) -> Option<FuseReady> {
        self.ready.take()
    }
}

fn make(
    options: FuseOptions,
    event_loop: &Arc<dyn EventLoopHandle>,
) -> Result<(FuseMount, Option<Attached>, Vec<StaleLoop>), FrontendError> {
    let made =
        options.made.map_or_else(|| MadeBefore::make(&options.directory, options.read_only), Ok);
    let MadeBefore { point, stale } = made?;
    let mount = fuse::serve(
        point,
        options.size_bytes,
        options.block_size,
        options.read_only,
        options.trim,
        event_loop.clone(),
    )
    .map_err(|source| FrontendError::Fuse { source })?;
    if !options.loop_device {
        return Ok((mount, None, stale));
    }
    let attached = match caretaker::attach() {
        Some(attached) => attached.map(Attached::Elsewhere),
        None => loop_device::attach(&mount.file(), options.block_size, options.read_only, &stale)
            .map(Attached::Here),
    };
    match attached {
        Ok(device) => Ok((mount, Some(device), stale)),
        Err(source) => {
            let _ = mount.unmount();
            Err(FrontendError::Loop { source })
        }
    }
}

fn end(mount: FuseMount, loop_device: Option<Attached>) {
    let complain = |error: &dyn std::error::Error, hint: Option<String>| {
        eprintln!("dcd: {error}");
        if let Some(hint) = hint {
            eprintln!("hint: {hint}");
        }
    };
    if let Some(Err(error)) = loop_device.map(Attached::detach) {
        complain(&error, error.hint());
    }
    if let Err(error) = mount.unmount() {
        complain(&error, error.hint());
    }
}

impl Frontends for FuseThread {
    fn turn(&mut self) -> Result<(), FrontendError> {
        match self.news.try_recv() {
            Ok(News::Ready(ready)) => self.ready = Some(ready),
            Ok(News::Stopped) => self.has_stopped = true,
            Ok(News::Failed(error)) => {
                self.has_stopped = true;
                return Err(error);
            }
            Err(mpsc::TryRecvError::Empty) => {}
            Err(mpsc::TryRecvError::Disconnected) => self.has_stopped = true,
        }
        Ok(())
    }

    fn begin_stop(&mut self, _kind: StopKind) {
        self.stop = None;
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
