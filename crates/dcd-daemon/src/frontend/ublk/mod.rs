//! The volume as a block device of its own, `/dev/ublkbN`, by the kernel's ublk driver.
//!
//! The driver hands each request to a *server*, this process, and copies data to and from its
//! memory. Requests and answers go through the event loop's own ring, as commands that wait until
//! there is a request: one for each tag. What is done with a device as a whole (making, starting,
//! taking over, removing) blocks, may need answers of the event loop, and is done by a thread of
//! its own with a ring of its own.
//!
//! Rules:
//!
//! 1. Each request is answered exactly once, whatever becomes of it (`queue.rs`).
//! 2. Requests that the engine refuses because it ends are not answered: the driver sends them to
//!    the next server. A device has recovery and re-issue switched on always, and is taken over by
//!    the same `serve` line.
//! 3. A request may come twice, when a server dies after the engine took it and before the answer.
//!    Blocks are written again with the same bytes, flushes flush again (C34).
//! 4. A device that somebody uses is never taken away, except by a detach.
//!
//! | file | holds |
//! |---|---|
//! | `uapi.rs` | numbers and layouts of the driver |
//! | `queue.rs` | tags: requests in, answers out; without I/O |
//! | `descriptors.rs` | the memory shared with the driver |
//! | `control.rs` | commands about devices |
//! | `device.rs` | making, taking over, removing |
//! | `error.rs` | [`UblkError`] and its hints |
//!
//! Tests: at the end of the files; with a kernel, `make test-guest`. Why no library: decision 16.

pub(crate) mod server;
pub(crate) mod thread;

mod control;
mod descriptors;
mod device;
mod error;
pub mod queue;
pub mod uapi;

pub use self::control::block_path;
pub use self::descriptors::ServerEnd;
pub use self::device::{
    Device, End, Ended, IO_BYTES_MAX, Listed, QUEUE_DEPTH, Volume, check, list, remove,
};
pub use self::error::{DeviceKind, UblkError};
