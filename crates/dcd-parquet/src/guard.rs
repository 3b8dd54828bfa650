//! The `parquet` crate panics on some damaged files (a length of more bits than there are, for
//! example). Here that is an error like others, and nothing is printed.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use crate::Error;

thread_local! {
    /// Whether a panic of this thread is going to be caught.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `read`, which must leave nothing behind that is used after an error.
pub(crate) fn guarded<T>(read: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_GUARDED.get() {
                usual(panic);
            }
        }));
    });
    IS_GUARDED.set(true);
    let caught = catch_unwind(AssertUnwindSafe(read));
    IS_GUARDED.set(false);
    caught.unwrap_or_else(|_| Err(Error::File("the file is damaged".into())))
}
