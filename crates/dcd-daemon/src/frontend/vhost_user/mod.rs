//! The volume as a disk of a virtual machine, by vhost-user: QEMU and others hand the guest's
//! virtio-blk queues to this process.
//!
//! The *front-end* (the hypervisor) connects to a unix socket, shares the guest's memory, and says
//! where the queues are. From then on requests go between the guest and this process, without the
//! hypervisor.
//!
//! Rules:
//!
//! 1. Nothing that a guest or a front-end says ends or stalls the daemon. Whatever comes out of
//!    shared memory is copied once, and the copy is judged. A wrong request is answered with an
//!    error; where the answer would go is not known, the queue is stopped, with a message. A wrong
//!    message ends the connection.
//! 2. Each request is answered exactly once, also over the death of this process (`inflight.rs`).
//! 3. A guest that does not flush, or believes that there is no write cache, has durable writes
//!    (`session.rs`, C7).
//! 4. The guest's memory is not touched after its front-end has gone.
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` | messages of the protocol, from and to bytes |
//! | `socket.rs` | whole messages with their descriptors |
//! | `memory.rs` | memory shared with others; all `unsafe` |
//! | `chain.rs` | descriptors of a request: bounds, loops, indirect tables |
//! | `ring.rs` | a virtqueue: available, used, who wakes whom |
//! | `inflight.rs` | the record of requests under way that outlives this process |
//! | `config.rs` | features and configuration of the device |
//! | `block.rs` | a virtio-blk request and its answer |
//! | `queue.rs` | a queue, stopped or running |
//! | `device.rs` | the path of a request |
//! | `session.rs` | what the front-end says |
//! | `server.rs` | the thread's loop |
//! | `error.rs` | [`VhostUserError`] and its hints |
//!
//! Tests: at the end of the files, and `tests/vhost_user/` with a front-end of its own; with a
//! virtual machine, `make test-guest`. Why no library: decision 17.

pub(crate) mod thread;

pub mod block;
pub mod chain;
pub mod config;
pub mod device;
mod error;
pub mod inflight;
pub mod memory;
pub mod message;
pub mod queue;
pub mod ring;
mod server;
pub mod session;
mod socket;

use dcd_engine::buffer_pool::BufferPool;

pub use self::config::{IO_BYTES_MAX, Volume};
pub use self::error::VhostUserError;
pub use self::server::{Guest, Server, StopHandle, Trouble};

/// Queues that a device may have.
pub const QUEUES_MAX: u16 = 128;
/// Most memory that requests take, with what is kept for the next.
pub const BYTES_UNDER_WAY_MAX: u64 =
    device::BYTES_UNDER_WAY_MAX + IO_BYTES_MAX as u64 + BufferPool::BYTES_MAX as u64;
