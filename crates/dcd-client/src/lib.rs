//! A client of the device that the DHIS paper describes: a disk that finds free blocks itself, is
//! told which block points to which and what blocks are, and frees what cannot be reached any more.
//!
//! | file | holds |
//! |---|---|
//! | `block_device.rs` | [`BlockDevice`]: what such a device does, for whoever keeps something on one |
//! | `device.rs` | [`Device`]: a volume that `dcd serve` serves |
//! | `control.rs` | its control socket, many requests on the way at once |
//! | `nbd.rs` | [`nbd::NbdClient`]: its blocks |
//! | `memory.rs` | [`MemoryDevice`]: one in memory, for tests, whose power can be cut |
//! | `plain.rs` | text from outside, for people |
//! | `server.rs` | whose a server is, and how long it is waited for |
//! | `error.rs` | [`DeviceError`] and its hints |
//!
//! ```no_run
//! use dcd_client::{Allocation, Attributes, BlockDevice, Device, PointerChange, Write};
//!
//! let mut device = Device::connect("/run/volume.ctl".as_ref(), "/run/volume.nbd".as_ref())?;
//! let attributes = Attributes::IMPORTANT.or(Attributes::RANDOM);
//! let root = Allocation { near: None, attributes: Attributes::ROOT };
//! let child = Allocation { near: None, attributes };
//! let blocks: Vec<u64> = device.allocate(&[root, child]).into_iter().collect::<Result<_, _>>()?;
//! let text = vec![b'x'; device.geometry().block_bytes];
//! device.write(&[Write { block: blocks[1], data: &text }])?;
//! device.change_pointers(&[PointerChange::create(blocks[0], blocks[1])]).remove(0)?;
//! device.flush()?;
//! # Ok::<(), dcd_client::DeviceError>(())
//! ```

mod block_device;
mod control;
mod device;
pub mod error;
pub mod memory;
pub mod nbd;
pub mod plain;
pub mod server;

pub use self::block_device::{
    Allocation, BlockDevice, Geometry, PointerChange, PointerVerb, Read, Usage, Write,
};
pub use self::device::Device;
pub use self::error::DeviceError;
pub use self::memory::MemoryDevice;
pub use dcd_block::attributes::{AttributeChange, AttributeError, Attributes};
pub use dcd_block::errors::VolumeError;
