//! The disk-caching disk (DCD) as a library: a write cache for a slow block device, kept as an
//! append-only log on a quick one, and its disk format.
//!
//! Small writes go to the log on the *cache-disk*, one behind the other, and are acknowledged.
//! Later, when it is quiet or the log is full, what has not been overwritten moves to its place on
//! the *data-disk* ("destaging"), sorted and merged. After a crash the log is read and the cache is
//! as it was: what was flushed is there, always; what was acknowledged and not flushed is there as
//! far as [`AckMode`] says. The idea is of Hu and Yang, "DCD - Disk Caching Disk" (ISCA 1996).
//!
//! [`Engine`] is a deterministic state machine: no I/O, no clock, no threads, no randomness. The
//! same inputs at the same times give the same outputs. Whoever runs it is a *driver*.
//!
//! # A whole driver
//!
//! `examples/in_memory.rs`, with byte arrays for disks:
//!
//! ```
#![doc = include_str!("../examples/in_memory.rs")]
//! ```
//!
//! # The contract of a driver
//!
//! **Inputs and outputs.** After each [`Engine::handle_input`] call [`Engine::poll_output`] until
//! it returns [`Output::Wait`], then start what was asked for. Each [`Io`] is answered by exactly
//! one [`IoDone`], in any order, and each [`Request`] gets exactly one [`Reply`], in any order.
//! Requests come when [`Engine::phase`] is [`Phase::Running`]; their ranges are checked before,
//! with [`Engine::check_range`].
//!
//! **Disks.** An I/O is done when the disk says so, and durable when a flush that was started after
//! that is done, or when it was a write with `fua`. I/Os that are under way at the same time may
//! reach the disk in any order; the engine waits where the order counts. A crash may tear a write
//! between physical sectors ([`DataDiskInfo::physical_sector_size`]), not within one.
//!
//! **Time.** [`Time`] is nanoseconds since an origin that the driver chooses, and never goes back.
//! [`Output::Wait`] says when to come back with [`Input::Timeout`] at the latest; coming too early
//! does no harm. Give each [`IoDone`] that is there already before a `Timeout`: what has not ended
//! by then may be given up, and then counts as [`IoError::TimedOut`]. Its `IoDone` may still come
//! later, and is needed: it brings the buffer back.
//!
//! **Memory.** A [`Buffer`] belongs to whoever holds it: it travels in a [`Request`] or an [`Io`],
//! and comes back with the [`Reply`] or [`IoDone`], after an error too. [`IoData::SegmentMemory`]
//! names bytes of [`Engine::segment_memory`] instead, which do not change until that I/O is done.
//! With memory that outlives the process ([`SegmentMemory`]), and [`MemoryWanted`] to find the
//! right one, what [`AckMode::Memory`] acknowledged survives the death of the process.
//!
//! **What it must never do:**
//! - report a flush that the disk has not done, or success for a part of an I/O;
//! - report an I/O as done, failed or not, that may still touch the disk or the buffer: one that
//!   hangs is not answered;
//! - run two engines on one cache-disk, or let anybody else write to either disk;
//! - open a cache with segment memory that is not the one that [`Superblock::memory_wanted`] names;
//! - choose a [`RequestId`] that is under way, or start the I/Os of an engine that was dropped on
//!   disks that a new one has.
//!
//! The engine panics on a driver's mistake that it sees, and on a broken rule of its own; never on
//! what a disk holds or a client asks for.
//!
//! # Units
//!
//! [`Lba`] and [`LbaRange`] count blocks of 512 bytes ([`units::BLOCK_SIZE`]), [`units::Line`]
//! counts cache lines of 4096 bytes ([`units::LINE_SIZE`]). `offset` and `length` of an
//! [`IoOperation`] are bytes, as is every name that ends in `_bytes`. [`Time`] and [`Duration`] are
//! nanoseconds. Numbers on disk are little-endian.
//!
//! # Errors
//!
//! - [`OpenError`]: why a cache cannot be opened, from [`Engine::open`] or in [`Phase::Failed`].
//! - [`FormatError`]: why bytes are not what they should be, with what was expected and found.
//! - [`IoError`]: what a driver says of an I/O.
//! - [`RequestError`]: what a client is told. A failed disk is lived with as far as that goes: with
//!   a failed cache-disk that was clean the engine goes on without it, with a dirty one it reads
//!   what it has ([`Engine::cache_disk_failure`], [`Engine::lost`]).
//!
//! # Modules
//!
//! | | |
//! |---|---|
//! | [`engine`] | [`Engine`]; inside, a file for each path: write, read, flush, destage, recover |
//! | [`io`] | the boundary: what goes in, what comes out |
//! | [`config`] | settings, checked once |
//! | [`units`], [`buffer`], [`buffer_pool`] | addresses, times, memory |
//! | [`error`], [`stats`] | what went wrong; counters and a picture of the engine |
//! | [`mod@format`], [`create`] | bytes on the cache-disk; those of a new one |
//! | [`log`], [`copies`] | what the paths work on: the write cache; clean copies for reads |
//! | [`legs`] | several disks as one cache-disk, below both ([`EngineConfig::legs`]) |
//! | [`volume`] | several data-disks as one, below the log ([`Engine::open_volume`]) |
//! | [`nvram`] | another, smaller state machine: a tier of non-volatile memory above |
//! | [`tiered`] | an engine with such a tier in front, or without: behind the engine's boundary |

pub mod buffer;
pub mod buffer_pool;
pub mod config;
pub mod copies;
pub mod create;
pub mod engine;
pub mod error;
pub mod format;
mod growing_table;
pub mod io;
pub mod legs;
pub mod line_hash;
mod line_map;
pub mod log;
mod memory_wanted;
pub mod nvram;
pub mod patience;
pub mod stats;
pub mod tiered;
mod used_places;
pub mod volume;
pub mod zero_ranges;

pub use dcd_block::units;

pub use buffer::{Buffer, SegmentMemory};
pub use config::{AckMode, DataDiskInfo, DestagePolicyKind, EngineConfig, Limits, Mode};
pub use engine::{Engine, GrowRefusal, MemoryUse, Phase};
pub use error::{FormatError, OpenError};
pub use format::superblock::MemoryIdentity;
pub use format::{Geometry, Superblock};
pub use io::{
    Device, Input, Io, IoData, IoDone, IoError, IoId, IoOperation, NewSequence, Operation, Output,
    Reply, Request, RequestError, RequestId, SequenceError, SequenceRequest, VolumeAnswer,
    VolumeError, VolumeRequest,
};
pub use memory_wanted::MemoryWanted;
pub use tiered::{NvramRefusal, TieredEngine};
pub use units::{Duration, Lba, LbaRange, Time, Uuid};
