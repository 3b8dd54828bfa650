//! `dcd caretaker`: started by `dcd serve`, for what that may not do any more.

use std::io;

use clap::Args;

use crate::error::CommandError;

/// Do for a `dcd serve` that has given up its rights what takes them. It is started by that, and by
/// nobody else.
#[derive(Args, Debug)]
#[command(hide = true)]
pub struct CaretakerArguments {}

pub fn run() -> Result<(), CommandError> {
    match dcd_daemon::caretaker::run() {
        // It was killed while it was told something: nobody is left to whom that matters.
        Err(source) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        ended => ended.map_err(|source| CommandError::File {
            action: "hear the orders of",
            path: "dcd serve".into(),
            source,
        }),
    }
}
