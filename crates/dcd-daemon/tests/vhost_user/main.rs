//! The vhost-user server as a whole, with a front-end and a guest of its own (`client.rs`), on a
//! disk in memory (`disk.rs`) and on the real engine.
//!
//! | file | what is proved |
//! |---|---|
//! | `requests.rs` | reads, writes, flushes, zeroes, the serial number; limits; several queues; stopping a queue |
//! | `write_cache.rs` | durable writes where a guest does not flush (contract C7) |
//! | `restart.rs` | requests under way over the death of the server: none lost, none done twice; a real daemon, killed |
//! | `hostile.rs` | chains, rings and messages that cannot be: no other queue and no later front-end suffers |
//! | `racing.rs` | requests that change while they are read |

mod client;
mod disk;
mod hostile;
mod racing;
mod requests;
mod restart;
#[path = "../support/mod.rs"]
mod support;
mod write_cache;
