//! `dcd caretaker`: started by `dcd serve`, for what that may not do any more.

use crate::error::CommandError;

pub fn run() -> Result<(), CommandError> {
    let ended = dcd_daemon::caretaker::run();
    ended.map_err(|source| CommandError::File {
        action: "hear the orders of",
        path: "dcd serve".into(),
        source,
    })
}
