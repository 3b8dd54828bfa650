//! Runs the dcd engine for real: one event loop per device on io_uring, with its frontends.
//!
//! | file | what it is |
//! |---|---|
//! | `serve.rs`, `slow_disk.rs`, `offline.rs` | open disks, run the loop, end in order |
//! | `event_loop.rs` | the loop: inputs to the core, outputs to disks and clients |
//! | `core.rs`, `pass_through.rs` | what the loop runs: the engine, or a disk without a cache |
//! | `uring.rs`, `kernel.rs` | the ring, and who owns memory until the last completion |
//! | `simulated_kernel.rs`, `driver_runs.rs` | runs of the loop under a kernel that does everything a kernel may |
//! | `disk.rs`, `device.rs`, `slow_arm.rs`, `fault_rules.rs` | disks: opening, locking, being slow or faulty |
//! | `identity.rs`, `claim.rs`, `mounts.rs` | which bytes a disk is under all its names, and that nobody else uses them |
//! | `pairs.rs`, `pair_record.rs` | what the host remembers of pairs, and which disks are refused by it |
//! | `segment_memory.rs`, `memory_search.rs`, `memory_watch.rs` | memory that outlives the process: the file, which one, and that it stays |
//! | `memory_files.rs` | which memories there are on this machine, for `dcd list` |
//! | `nbd_server.rs`, `listen.rs`, `nbd_doors.rs`, `frontend/` | who asks for blocks |
//! | `tls_files.rs`, `handshake_thread.rs` | certificates, and handshakes beside the loop |
//! | `fuse_thread.rs`, `ublk_thread.rs`, `device_frontends.rs` | making and removing what the kernel shows |
//! | `vhost_user_thread.rs` | the thread that serves a virtual machine |
//! | `ublk_server.rs`, `command_ring.rs` | a ublk device: its requests, commands about it |
//! | `busy_poll.rs` | looking for the next event before sleeping |
//! | `isolation.rs` | a processor of its own, a bound of memory, what the process is kept from |
//! | `confine.rs`, `privileges.rs` | files, capabilities and system calls that it gives up |
//! | `service_manager.rs`, `waiting.rs` | being a service: told, watched, started before its disks |
//! | `submitter.rs`, `bell.rs` | requests from other threads |
//! | `control.rs`, `control_client.rs`, `status_report.rs`, `response_times.rs`, `lost.rs` | being asked and told |
//! | `metrics.rs`, `open_metrics.rs`, `metrics_server.rs` | what is exported, in which form, and over HTTP |
//! | `fiemap.rs`, `file_watch.rs` | files of file systems that lie on the device |
//! | `wipe.rs` | overwriting what a cache-disk held |
//! | `users.rs` | who would lose the disk if dcd ended |
//! | `device_spec.rs`, `units_text.rs` | words of the command line |

/// Messages for people. Nothing fails, and nothing panics, because nobody can read them: a full disk, a pipe whose reader
/// has gone, a terminal that was closed. Nothing in them is obeyed by a terminal. In place of the macro of the standard library, for this whole crate.
macro_rules! eprintln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let words = format!("{}\n", format_args!($($words)*));
        let words = dcd_client::plain::plain_lines(&words, false);
        let _ = std::io::stderr().write_all(words.as_bytes());
    }};
}

mod bell;
pub mod busy_poll;
pub mod caretaker;
mod claim;
pub mod clock;
mod command_ring;
mod confine;
pub mod control;
pub mod control_client;
mod control_places;
pub mod core;
pub mod device;
mod device_frontends;
pub mod device_spec;
pub mod disk;
pub mod driver_runs;
pub mod event_loop;
pub mod fault_rules;
pub mod fiemap;
pub mod file_watch;
pub mod foreign_content;
pub mod frontend;
mod fuse_thread;
pub mod grow;
pub mod handshake_thread;
pub mod identity;
pub mod in_process;
pub mod isolation;
mod kernel;
pub mod label_keeper;
pub mod listen;
pub mod lost;
mod member_news;
pub mod members;
mod memory_error;
mod memory_fault;
pub mod memory_files;
pub mod memory_places;
pub mod memory_search;
pub mod memory_watch;
pub mod metrics;
pub mod metrics_server;
mod model_arm;
mod mounts;
mod nbd_doors;
mod nbd_places;
pub mod nbd_server;
pub mod offline;
pub mod open_metrics;
pub mod pair;
pub mod pair_record;
pub mod pairs;
pub mod pass_through;
mod privileges;
pub mod random;
pub mod recording;
pub mod request_counts;
pub mod request_ring;
pub mod response_times;
#[cfg(feature = "seeded-bugs")]
pub mod seeded_bugs;
#[cfg(not(feature = "seeded-bugs"))]
mod seeded_bugs;
pub mod segment_memory;
pub mod sequence_control;
pub mod serve;
pub mod serve_error;
pub mod service_manager;
pub mod signals;
mod simulated_kernel;
pub mod slow_arm;
pub mod slow_disk;
pub mod small_file;
pub mod status_report;
pub mod stuck;
pub mod submitter;
mod supervise;
pub mod tls_files;
pub mod trouble_words;
mod ublk_server;
mod ublk_thread;
pub mod units_text;
pub mod uring;
pub mod users;
mod vhost_user_thread;
pub mod volume_control;
mod volume_news;
mod waiting;
pub mod wipe;
