//! Who asks for blocks: NBD clients, the FUSE file, the ublk device, a virtual machine.

pub(crate) mod device_frontends;

use dcd_engine::io::{Operation, Reply};

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
