//! Byte fuzzing: every parser that outsiders can reach, as a function of bytes that panics when
//! something is wrong.
//!
//! | file | targets | what must hold |
//! |---|---|---|
//! | `nbd_handshake.rs` | `nbd_handshake` | each option is answered, in order, by replies that parse |
//! | `nbd_transmission.rs` | `nbd_transmission` | each request is answered once, with the error or the data the protocol asks for |
//! | `nbd_disk.rs` | `nbd_disk` | what a server says to a network disk ends with facts or words; no request is answered twice, no read has bytes of somebody else |
//! | `nbd_tls.rs` | `nbd_tls` | before TLS nothing is granted, then everything is TLS, and requests are of a client with a certificate |
//! | `vhost_user.rs` | `vhost_user_message`, `vhost_user_queue`, `vhost_user_record` | what is accepted has what it needs; what the engine is asked for lies in the volume; nothing under way is done twice |
//! | `vhost_user_session.rs` | `vhost_user_session` | a refused message changes nothing; who does not flush has FUA; no request is forgotten; nobody touches the memory of a guest that has gone |
//! | `decoders.rs` | `superblock`, `share_directory`, `checkpoint`, `record`, `copy_page`, `volume_format` | what is accepted is written back the same |
//! | `recovery.rs` | `recovery`, `segment_memory` | a forged image ends in a running engine that works, or a typed error; few I/Os |
//! | `volume_recovery.rs` | `volume_recovery` | the same of a volume with its tables: pages, roots, journal, labels of members |
//! | `volume_import.rs` | `volume_import` | the twin of a volume's tables, and labels of members, at an import |
//! | `nvram.rs` | `nvram` | a forged memory in front of the log is refused, or read and emptied; what people are shown of it is the same |
//! | `clients.rs` | `control_client`, `nbd_client`, `device_client` | whatever a server says, each question ends, with what can be reckoned with or an error that may be shown |
//! | `simulation.rs` | `trace`, `trace_packed`, `disk_profile`, `workload` | requests are in order of time and survive a way through CSV; an accepted profile is a disk; errors are one line |
//! | `text.rs` | `control_request`, `http_request`, `recorded_batch`, `pair_record`, `units`, `config_file`, `device_spec`, `fault_rules`, `volume_file`, `hint_rules`, `static_metadata` | what is accepted can be shown and read again, or makes sense; errors are one line |
//!
//! The same functions run in three ways: under libFuzzer (`fuzz/`, `make fuzz-bytes`), over the
//! corpus in the repository, and over simple mutations of it (both in `tests/corpus.rs`, on any
//! toolchain). `corpus/TARGET/` holds meaningful inputs that [`seeds`] makes, and what fuzzing has
//! found.
//!
//! Except for decoders and text, inputs are small programs rather than raw bytes, so that nearly
//! every mutation says something that gets past the first check.

mod clients;
mod decoders;
mod image;
mod input;
mod nbd_disk;
mod nbd_handshake;
mod nbd_tls;
mod nbd_transmission;
pub(crate) mod nvram;
mod recovery;
pub mod seeds;
mod simulation;
mod text;
mod vhost_user;
mod vhost_user_session;
mod volume_import;
mod volume_recovery;

/// Something to fuzz.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: of the libFuzzer program and of the folder in the corpus.
    pub name: &'static str,
    /// Returns when all is well with these bytes, panics when not.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 37] = [
    Target { name: "nbd_handshake", run: nbd_handshake::run },
    Target { name: "nbd_transmission", run: nbd_transmission::run },
    Target { name: "nbd_disk", run: nbd_disk::run },
    Target { name: "nbd_tls", run: nbd_tls::run },
    Target { name: "vhost_user_message", run: vhost_user::message },
    Target { name: "vhost_user_queue", run: vhost_user::queue },
    Target { name: "vhost_user_record", run: vhost_user::record },
    Target { name: "vhost_user_session", run: vhost_user_session::run },
    Target { name: "superblock", run: decoders::superblock },
    Target { name: "share_directory", run: decoders::share_directory },
    Target { name: "checkpoint", run: decoders::checkpoint },
    Target { name: "record", run: decoders::record },
    Target { name: "copy_page", run: decoders::copy_page },
    Target { name: "volume_format", run: decoders::volume_format },
    Target { name: "recovery", run: recovery::recovery },
    Target { name: "segment_memory", run: recovery::segment_memory },
    Target { name: "volume_recovery", run: volume_recovery::run },
    Target { name: "volume_import", run: volume_import::run },
    Target { name: "nvram", run: nvram::run },
    Target { name: "control_client", run: clients::control_client },
    Target { name: "nbd_client", run: clients::nbd_client },
    Target { name: "device_client", run: clients::device_client },
    Target { name: "control_request", run: text::control_request },
    Target { name: "http_request", run: text::http_request },
    Target { name: "recorded_batch", run: text::recorded_batch },
    Target { name: "pair_record", run: text::pair_record },
    Target { name: "units", run: text::units },
    Target { name: "config_file", run: text::config_file },
    Target { name: "device_spec", run: text::device_spec },
    Target { name: "fault_rules", run: text::fault_rules },
    Target { name: "volume_file", run: text::volume_file },
    Target { name: "hint_rules", run: text::hint_rules },
    Target { name: "static_metadata", run: text::static_metadata },
    Target { name: "trace", run: simulation::trace },
    Target { name: "trace_packed", run: simulation::trace_packed },
    Target { name: "disk_profile", run: simulation::disk_profile },
    Target { name: "workload", run: simulation::workload },
];

/// The target of this name.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> Target {
    let found = TARGETS.into_iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("no byte fuzz target is called {name}"))
}
