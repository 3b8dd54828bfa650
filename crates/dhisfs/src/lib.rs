//! dhisfs: a file system for a device that allocates blocks itself, is told which block points to
//! which and what blocks are, and frees what nothing points to (the Ext2DHIS of the DHIS paper, for
//! a volume of dcd).
//!
//! | file | holds |
//! |---|---|
//! | `format/` | what is on the device |
//! | `journal.rs` | the ring of transactions; `pointers.rs`: what the device is told when |
//! | `commit.rs` | how changes become durable, and what a mount does after a crash |
//! | `metadata.rs`, `pages.rs` | blocks in memory; `runs.rs`: neighbours in one I/O |
//! | `allocate.rs` | blocks from the device |
//! | `file_system.rs` | [`FileSystem`]: all of these together, and what every change goes through |
//! | `tree.rs` | place in a file to block |
//! | `file.rs` | read, write, truncate |
//! | `directory.rs` | names in a directory |
//! | `namespace.rs` | create, link, unlink, rename |
//! | `growth.rs` | how large files become, by their names |
//! | `extended.rs`, `rules.rs` | extended attributes, hints, and hints by name |
//! | `mkfs.rs`, `fsck.rs`, `repair.rs` | make one, check one, mend one |
//! | `exclusive.rs` | one user at a time |
//! | `shared.rs`, `watched.rs` | several threads at once |
//! | `fuse/` | the kernel's requests |
//!
//! How it survives crashes: `commit.rs`, and `docs/dhisfs.md`.

/// Messages for people. Nothing fails, and nothing panics, because nobody can read them: a full
/// disk, a pipe whose reader has gone, a terminal that was closed. In place of the macro of the
/// standard library, for this whole crate.
macro_rules! eprintln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let words = format!("{}\n", format_args!($($words)*));
        let words = dcd_client::plain::plain_lines(&words, false);
        let _ = std::io::stderr().write_all(words.as_bytes());
    }};
}

mod allocate;
mod commit;
mod directory;
mod error;
mod exclusive;
mod extended;
mod file;
mod file_system;
pub mod format;
pub mod fsck;
pub mod fuse;
mod growth;
mod journal;
mod metadata;
mod mkfs;
mod namespace;
mod pages;
mod pointers;
mod repair;
mod rules;
mod runs;
mod shared;
mod tree;
mod watched;

pub use self::directory::Listed;
pub use self::error::{FsError, FsResult};
pub use self::exclusive::Exclusive;
pub use self::extended::HINT_NAME;
pub use self::file::AttributesChange;
pub use self::file_system::{FileSystem, Free, MountOptions};
pub use self::format::inode::{Inode, Timestamp};
pub use self::mkfs::{MakeOptions, make, pointers_for};
pub use self::namespace::{NewFile, RenameMode};
pub use self::repair::Repaired;
pub use self::rules::{Rules, RulesError};
