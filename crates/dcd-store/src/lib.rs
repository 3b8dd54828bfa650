//! A data-disk in an object store (S3). The process `dcd store-keeper` is built of this; the daemon
//! speaks with it by NBD, and knows nothing of objects.
//!
//! | file | owns |
//! |---|---|
//! | `format.rs` | names, keys and layouts, and the parsers of what comes from a store |
//! | `objects.rs` | the bucket: opening it, the probe of conditional writes, errors in words |
//! | `patience.rs` | how long a request may take, by its size |
//! | `standing.rs` | whether the server says that it is full, or refuses |
//! | `contradiction.rs` | a server that says of an object that it is there and that it is not |
//! | `claim.rs` | which opening of its cache may have it, and for how long |
//! | `layers.rs` | what was written, from memory to the last commit |
//! | `map.rs` | the map of lines in SlateDB: claiming it, staging, committing |
//! | `disk.rs` | reads, writes, flushes and commits of the disk in it |
//! | `collect.rs` | room of data objects that hold little that is in use |
//! | `snapshots.rs` | the disk as it was, kept |
//! | `cloning.rs` | another store with the same disk in it |
//! | `nbd.rs` | the disk on a socket |
//! | `keeper.rs` | the process: messages of a daemon, and what becomes of them |
//! | `files.rs` | objects that are files of somebody: traces |
//! | `offline.rs` | what is done with a store without a cache |
//! | `model/` | all of this against a server that fails, for tests and `dcd fuzz --store` |
//!
//! ```text
//! write   -> memory; what makes up an object of 8 MiB is uploaded
//! flush   -> 1. all of it is uploaded: data/EPOCH-NUMBER. Crash: objects that nobody knows of.
//!            2. one row of the map names their lines: *staged*. Durable; the flush is answered.
//! commit  -> 3. one batch moves what is staged to the map of lines, which anybody may read.
//!               This is the switch. Crash before it: the same cache finds it staged, another one
//!               drops it. Crash behind it: the window is there.
//!            4. objects without a line in use are deleted, a while later.
//! ```
//! So the map without what is staged is always the state at the end of a window, and the daemon
//! has an honest disk with flushes, whatever becomes of this process.

mod claim;
mod cloning;
mod collect;
mod contradiction;
mod disk;
pub mod files;
mod format;
pub mod keeper;
mod layers;
mod map;
#[cfg(any(test, feature = "model"))]
pub mod model;
mod nbd;
mod objects;
pub mod offline;
mod patience;
#[cfg(any(test, feature = "model"))]
mod simulated;
mod snapshots;
mod standing;
#[cfg(test)]
mod week_tests;

pub use disk::StoreDisk;
pub use map::Access;
pub use objects::Bucket;
