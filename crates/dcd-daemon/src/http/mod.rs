//! The door for browsers and for Prometheus: a page, figures in JSON and as metrics, and a stream of
//! what happens, over plain HTTP.
//!
//! | file | what it knows |
//! |---|---|
//! | `address.rs` | where to listen, and who is let in there |
//! | `request.rs` | what a client's bytes ask for; byte-fuzzed |
//! | `answer.rs` | what is sent back, with the headers that keep a browser to this page |
//! | `server.rs` | one thread for all clients: bounded, and nobody waits for anybody |
//! | `token.rs` | what those who may change something know |
//! | `history.rs` | what was counted in each second and minute |
//! | `news.rs` | what has happened, and why |
//! | `daemon.rs` | what is answered of one daemon |
//! | `page.rs` | the page, put together from `page/` |
//!
//! Whoever can connect may be hostile, and so may be a page of another site in the browser of
//! somebody who may: see `request.rs` and `answer.rs` for what keeps it out.

pub mod address;
pub mod answer;
pub mod daemon;
pub mod history;
pub mod news;
pub mod page;
pub mod request;
pub mod server;
pub mod token;
