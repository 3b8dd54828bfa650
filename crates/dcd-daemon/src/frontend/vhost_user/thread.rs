//! The thread that serves a virtual machine over vhost-user.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

use crate::frontend::error::FrontendError;
use crate::frontend::nbd::listen::UnixSocket;
use crate::frontend::vhost_user::{Guest, Server, StopHandle, Trouble, Volume};
use crate::frontend::{EventLoopHandle, Frontends, StopKind};

/// The thread, as the loop's thread sees it.
pub(crate) struct VhostUserThread {
    stop: StopHandle,
    /// How it has ended, once.
    ended: mpsc::Receiver<std::io::Result<()>>,
    thread: Option<thread::JoinHandle<()>>,
    ready: Option<PathBuf>,
    has_stopped: bool,
    trouble: Trouble,
}

impl VhostUserThread {
    /// Begins to serve whoever connects. The socket's file is removed at the end.
    pub(crate) fn start(
        path: PathBuf,
        (listener, file): UnixSocket,
        volume: Volume,
        event_loop: Arc<dyn EventLoopHandle>,
        quiet: bool,
    ) -> Result<VhostUserThread, FrontendError> {
        let server = Server::new(listener, volume, event_loop.clone(), quiet)
            .map_err(FrontendError::system("serve vhost-user"))?;
        let (stop, trouble) = (server.stop_handle(), server.trouble());
        let (sender, ended) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("dcd-vhost-user".into())
            .spawn(move || {
                // A panic has told its own story; the guest waits until somebody serves it again,
                // so the daemon ends.
                let result = catch_unwind(AssertUnwindSafe(|| server.run()))
                    .unwrap_or_else(|_| Err(std::io::Error::other("its thread has panicked")));
                drop(file);
                // Sent before the loop is woken, which sleeps on if there is nothing yet.
                let _ = sender.send(result);
                event_loop.wake();
            })
            .map_err(FrontendError::system("start a thread"))?;
        Ok(VhostUserThread {
            stop,
            ended,
            thread: Some(thread),
            ready: Some(path),
            has_stopped: false,
            trouble,
        })
    }

    /// What is wrong with who uses it.
    pub(crate) fn trouble(&self) -> Trouble {
        self.trouble.clone()
    }

    /// Whether a virtual machine is connected.
    pub(crate) fn guest(&self) -> Guest {
        self.stop.guest()
    }

    /// The socket, once.
    pub(crate) fn take_ready(&mut self) -> Option<PathBuf> {
        self.ready.take()
    }
}

impl Frontends for VhostUserThread {
    fn turn(&mut self) -> Result<(), FrontendError> {
        match self.ended.try_recv() {
            Ok(result) => {
                self.has_stopped = true;
                result.map_err(FrontendError::system("serve vhost-user"))
            }
            Err(mpsc::TryRecvError::Empty) => Ok(()),
            // It has told its end before.
            Err(mpsc::TryRecvError::Disconnected) => Ok(()),
        }
    }

    fn begin_stop(&mut self, _kind: StopKind) {
        self.stop.stop();
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
