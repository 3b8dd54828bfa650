//! `dcd caretaker`: started by `dcd serve`, for what that may not do any more.

use std::io;

use crate::error::CommandError;

pub fn run() -> Result<(), CommandError> {
    match dcd_daemon::process::caretaker::run() {
        // It was killed while it was told something: nobody is left to whom that matters.
        Err(source) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        ended => ended.map_err(|source| CommandError::File {
            action: "hear the orders of",
            path: "dcd serve".into(),
            source,
        }),
    }
}
