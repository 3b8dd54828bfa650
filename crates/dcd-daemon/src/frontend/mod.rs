//! Who asks for blocks: NBD clients, the FUSE file, the ublk device, a virtual machine.

use dcd_engine::io::{Operation, Reply};

use crate::frontend::error::FrontendError;
use crate::frontend::ublk::ServerEnd;

pub mod error;
pub mod fuse;
pub mod nbd;
pub mod ublk;
pub mod vhost_user;

/// Where a frontend that has threads of its own hands its requests in: the event loop.
///
/// The operation must lie within the volume and be whole blocks of it. `completion` is called
/// exactly once, on the thread of the event loop; it may submit again, and it does not wait for
/// anything. If the event loop has ended, it is dropped instead (the FUSE client then gets `EIO`).
pub trait Submit: Send + Sync {
    /// Hands a request in and returns without waiting for its end.
    fn submit(&self, operation: Operation, fua: bool, completion: Box<dyn FnOnce(Reply) + Send>);
}

/// The event loop, as the threads of frontends need it besides.
pub(crate) trait EventLoopHandle: Submit {
    /// Makes it turn once, and look at its frontends.
    fn wake(&self);
    /// Has it answer the requests of a ublk device.
    fn serve_ublk(&self, end: ServerEnd, io_bytes_max: u32);
}

/// How the daemon is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopKind {
    /// Stop; dirty data stays in the cache.
    Shutdown,
    /// The same, but a ublk device stays for the next server of the volume, whether somebody uses
    /// it or not.
    Restart,
    /// Bring everything to the data-disk and let it stand on its own.
    Detach,
}

/// Frontends with threads of their own, as whoever turns the event loop needs them.
pub(crate) trait Frontends {
    /// Told at each turn that something may have changed.
    fn turn(&mut self) -> Result<(), FrontendError>;
    /// Begin to stop; may take a while, and may need the loop meanwhile.
    fn begin_stop(&mut self, kind: StopKind);
    /// Whether all have stopped.
    fn have_stopped(&mut self) -> bool;
}
