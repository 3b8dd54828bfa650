//! Recorded requests.

pub mod measured;
