//! Who watches a study: is told how far it is, and may end it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::StudyError;

/// What progress is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// Bytes of a trace, as it lies there.
    Bytes,
    /// Requests, or simulations.
    Rounds,
}

/// Who watches. Stages follow one another.
pub trait Watcher: Send {
    /// A stage begins: "simulating".
    fn begin(&mut self, what: &'static str, counted: Counted);

    /// So much of it is done.
    fn update(&mut self, done: u64, total: u64);

    /// It has ended.
    fn end(&mut self);

    /// Set, by whoever may, when the study is to end before its end.
    fn is_over(&self) -> Arc<AtomicBool>;
}

/// Goes on unless it is to end.
///
/// # Errors
/// [`StudyError::Cancelled`].
pub fn go_on(is_over: &AtomicBool) -> Result<(), StudyError> {
    match is_over.load(Ordering::Relaxed) {
        true => Err(StudyError::Cancelled),
        false => Ok(()),
    }
}
