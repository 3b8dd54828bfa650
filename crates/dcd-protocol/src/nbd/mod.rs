//! The NBD protocol: its layouts, which the server in the daemon uses too, and the side of a
//! client, without I/O.
//!
//! | file | owns |
//! |---|---|
//! | `wire.rs` | numbers and layouts |
//! | `uri.rs` | how an export is named |
//! | `negotiation.rs` | agreeing on an export, from the greeting to the first request |
//! | `replies.rs` | which request the bytes of a server answer |
//!
//! A server is a stranger: each byte of it may be anything. The worst that can come of it is an
//! error that ends the connection.

pub mod negotiation;
pub mod replies;
pub mod uri;
pub mod wire;
