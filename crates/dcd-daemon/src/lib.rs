//! Runs the dcd engine for real: one event loop per device on io_uring, with its frontends.
//!
//! | folder | who lives there |
//! |---|---|
//! | `event_loop/` | the loop: inputs to the core, outputs to disks and clients; its clock, its requests from other threads, what it counts |
//! | `ring/` | io_uring: who owns memory until the last completion; the kernel, real and simulated |
//! | `disk/` | disks: named, opened, locked, identified, slow, faulty, overwritten |
//! | `pair/` | a cache-disk and what it belongs to: opened together, labelled, remembered by the host, members of volumes |
//! | `memory/` | segment memory that outlives the process: the file, where it lies, which one, and that it stays |
//! | `frontend/` | who asks for blocks: NBD, FUSE, ublk, vhost-user, each with its server or thread |
//! | `control/` | being asked and told over the control socket, and the client of that |
//! | `metrics/` | what is exported, in which form, and over HTTP |
//! | `process/` | what a process is to its machine: signals, rights, a service manager, users of its disk |
//! | `serve/` | the verbs: open disks, run the loop, end in order |
//! | `units_text.rs` | sizes and times as people write them |

/// Messages for people. Nothing fails, and nothing panics, because nobody can read them: a full
/// disk, a pipe whose reader has gone, a terminal that was closed. Nothing in them is obeyed by a
/// terminal. In place of the macro of the standard library, for this whole crate.
macro_rules! eprintln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let words = format!("{}\n", format_args!($($words)*));
        let words = dcd_client::plain::plain_lines(&words, false);
        let _ = std::io::stderr().write_all(words.as_bytes());
    }};
}

pub mod caretaker;
pub mod control;
pub mod device;
pub mod disk;
pub mod event_loop;
pub mod frontend;
pub mod memory;
pub mod metrics;
pub mod pair;
pub mod process;
pub mod report;
pub mod ring;
pub mod serve;
pub mod units_text;
pub mod users;
