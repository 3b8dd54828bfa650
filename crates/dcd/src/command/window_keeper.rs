//! `dcd window-keeper`: started by `dcd serve --window-hook`, which may run no programs any more.

use std::io;

use clap::Args;

use crate::error::CommandError;

/// Run the window hook of a `dcd serve`. It is started by that, and by nobody else.
#[derive(Args, Debug)]
#[command(hide = true)]
pub struct WindowKeeperArguments {}

pub fn run() -> Result<(), CommandError> {
    match dcd_daemon::window_hook::run() {
        // It was killed while it was told something: nobody is left to whom that matters.
        Err(source) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        ended => ended.map_err(|source| CommandError::File {
            action: "hear the windows of",
            path: "dcd serve".into(),
            source,
        }),
    }
}
