//! What is told of a daemon and its cache, over the control socket, as metrics and in messages: the
//! whole picture (`status_report`), the volume in it, what is lost, and what does not get to the
//! data-disk.

pub(crate) mod legs;
pub mod lost;
pub mod network;
pub mod nvram;
pub mod status_report;
pub mod stuck;
pub mod trouble_words;
pub mod volumes;
