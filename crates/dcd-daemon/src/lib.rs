//! Runs the dcd engine for real: one event loop per device on io_uring, with its frontends.

pub mod frontend;
