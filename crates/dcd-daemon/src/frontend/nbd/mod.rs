//! The NBD server, without I/O: bytes in, requests out; replies in, bytes out.
//!
//! A driver owns the socket and one [`Session`] for it, which is a [`Connection`] and, where it is
//! wanted, TLS below:
//!
//! 1. While [`Session::wants_input`], receive into [`Session::receive_space`] and report it with
//!    [`Session::received`].
//! 2. Compute what comes out of [`Session::take_handshake`], here or on another thread, and bring
//!    it to [`Session::handshake_done`].
//! 3. Take what comes out of [`Session::poll_event`]: requests for the engine, or the end.
//! 4. Bring the engine's replies to [`Session::complete`].
//! 5. Send [`Session::transmit`] and report it with [`Session::transmitted`].
//! 6. Close the socket when [`Session::is_finished`].
//!
//! The memory handed out by 1 stays in place until the report, whatever happens between, so that it
//! can be given to io_uring. What is handed out by 5 is to be sent before the next call.
//!
//! | file | owns |
//! |---|---|
//! | `dcd_protocol::nbd::wire` | numbers and layouts |
//! | `handshake.rs` | the negotiation |
//! | `transmission.rs` | what a request means, how a reply looks |
//! | `staging.rs` | where small requests are received |
//! | `send_queue.rs` | bytes on their way out |
//! | `budget.rs` | what all connections together may hold |
//! | `connection.rs` | joins them; limits; back-pressure |
//! | `tls/` | records to plaintext and back, handshakes |
//! | `session.rs` | a connection with TLS below it or without |
//!
//! Whatever the peer sends, the worst that can happen is that its own connection ends:
//! `tests/garbage.rs` throws bytes at it. `tests/interoperation.rs` has real clients talk to it.

pub(crate) mod doors;
pub mod listen;
pub(crate) mod places;
pub mod server;

mod budget;
mod connection;
mod handshake;
mod send_queue;
mod session;
mod staging;
#[cfg(test)]
mod tests;
pub mod tls;
mod transmission;

pub use dcd_protocol::nbd::wire as protocol;

pub use budget::{BYTES_TOTAL_MAX, Budget, REQUESTS_TOTAL_MAX};
pub use connection::{BYTES_IN_FLIGHT_MAX, Connection, Event, REQUESTS_IN_FLIGHT_MAX};
pub use session::Session;

/// What is exported.
#[derive(Clone, Debug)]
pub struct Export {
    /// Length in bytes. A rest that is smaller than the minimum block is not accessible.
    pub size_bytes: u64,
    /// Smallest unit of requests in bytes: 512 or 4096.
    pub minimum_block: u32,
    /// Best unit of requests in bytes; a power of two, no smaller than the minimum.
    pub preferred_block: u32,
    /// Longest read or write in bytes, at most 32 MiB.
    pub maximum_payload: u32,
    /// Whether writes fail.
    pub read_only: bool,
    /// Whether TRIM is offered.
    pub trim: bool,
    /// Words for a human.
    pub description: String,
}

/// How a peer broke the protocol. The connection ends; for the log.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ProtocolError {
    /// Flags of the client that were not offered.
    #[error("client flags {found:#x} contain unknown ones")]
    ClientFlags {
        /// What came.
        found: u32,
    },
    /// The client is older than options with replies.
    #[error("the client does not speak fixed newstyle")]
    NotFixedNewstyle,
    /// No option where one was expected.
    #[error("an option begins with {found:#018x}")]
    OptionMagic {
        /// What came.
        found: u64,
    },
    /// An option above the limit.
    #[error("option {option} is {length} bytes long")]
    OptionTooLong {
        /// Which.
        option: u32,
        /// As the client says.
        length: u32,
    },
    /// The client goes on and on negotiating.
    #[error("more than {} options", handshake::OPTIONS_MAX)]
    TooManyOptions,
    /// EXPORT_NAME with a name that is not exported; this option cannot fail in another way.
    #[error("the client wants an export that does not exist")]
    UnknownExport,
    /// EXPORT_NAME before STARTTLS, where TLS is required.
    #[error("the client does not use TLS")]
    TlsRequired,
    /// Something came right behind STARTTLS and is not protected by it.
    #[error("unprotected bytes came with STARTTLS")]
    BytesBehindStartTls,
    /// The TLS connection failed.
    #[error(transparent)]
    Tls(#[from] tls::TlsFailure),
    /// No request where one was expected.
    #[error("a request begins with {found:#010x}")]
    RequestMagic {
        /// What came.
        found: u32,
    },
    /// A write so long that not even its data is read to be dropped.
    #[error("a write is {length} bytes long")]
    WriteTooLong {
        /// As the client says.
        length: u32,
    },
}
