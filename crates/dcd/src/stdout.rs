//! What people and programs read: text and JSON on stdout.
//!
//! A reader that goes away (`dcd status | head -1`) is no error worth words: every print returns
//! [`CommandError::ReaderClosed`], which ends the command with its own exit code.

use std::io::{ErrorKind, Write};

use dcd_client::plain::plain_lines;
use serde::Serialize;

use crate::error::CommandError;
use crate::output::Paint;

/// Writes `text` to stdout, at once: a script waits for the ready line. Whatever in it comes from
/// outside is obeyed by no terminal.
pub fn print(text: &str) -> Result<(), CommandError> {
    let text = plain_lines(text, Paint::for_stdout().has_colours());
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(stdout_error)
}

/// Writes `value` as JSON to stdout.
pub fn print_json<T: Serialize>(value: &T) -> Result<(), CommandError> {
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut stdout, value)
        .map_err(std::io::Error::from)
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush())
        .map_err(stdout_error)
}

fn stdout_error(source: std::io::Error) -> CommandError {
    match source.kind() {
        ErrorKind::BrokenPipe => CommandError::ReaderClosed,
        _ => CommandError::Output { source },
    }
}
