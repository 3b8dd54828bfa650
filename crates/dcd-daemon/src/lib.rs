//! Runs the dcd engine for real: one event loop per device on io_uring, with its frontends.
//!
//! From low to high: each uses only those above it in this table.
//!
//! | folder | who lives there |
//! |---|---|
//! | `clock.rs` | the monotonic clock in the words of the engine |
//! | `process/` | what a process is to its machine: signals, rights, a service manager, what it sees of others |
//! | `memory/` | segment memory that outlives the process: the file, where it lies, which one, and that it stays |
//! | `device/` | files, block devices and mounts: named, opened, locked, identified, overwritten |
//! | `ring/` | io_uring: who owns memory until the last completion; the kernel, real and simulated |
//! | `disk/` | a disk below the engine: plain, slow, modelled, faulty |
//! | `pair/` | a cache-disk and what it belongs to: labelled, remembered by the host, members of volumes |
//! | `caretaker.rs` | the second process, which keeps the rights that the daemon gives up |
//! | `window_hook.rs` | a third one, which runs the hook of ordered shipping |
//! | `frontend/` | who asks for blocks: NBD, FUSE, ublk, vhost-user, each with its server or thread |
//! | `event_loop/` | the loop: inputs to the core, outputs to disks and clients; its requests from other threads, what it counts |
//! | `users.rs` | who would lose something if the disk went away |
//! | `report/` | what is told of a daemon and its cache, and in which words |
//! | `metrics/` | what is exported, and in which form |
//! | `control/` | being asked and told over the control socket, and the client of that |
//! | `http/` | the page, the same figures in JSON, and metrics, over HTTP |
//! | `serve/` | the verbs: open a pair, put frontends around its loop, run it, end in order |

/// Messages for people. Nothing fails, and nothing panics, because nobody can read them: a full
/// disk, a pipe whose reader has gone, a terminal that was closed. Nothing in them is obeyed by a
/// terminal. In place of the macro of the standard library, for this whole crate.
macro_rules! eprintln {
    ($($words:tt)*) => {
        $crate::process::log::say($crate::process::log::Level::Warning, "note", format_args!($($words)*))
    };
}

/// The same with how much it matters and a word for what has happened, by which it is found in the
/// journal of systemd: `told!(Error, "cache-disk-failed", "dcd: ...")`.
macro_rules! told {
    ($level:ident, $event:literal, $($words:tt)*) => {
        $crate::process::log::say($crate::process::log::Level::$level, $event, format_args!($($words)*))
    };
}

pub mod caretaker;
pub mod clock;
pub mod control;
pub mod device;
pub mod disk;
pub mod event_loop;
pub mod frontend;
pub mod http;
pub mod memory;
pub mod metrics;
pub mod pair;
pub mod process;
pub mod report;
pub mod ring;
pub mod serve;
pub mod users;
pub mod window_hook;

/// Sizes and times as people write them.
pub use dcd_protocol::units_text;
