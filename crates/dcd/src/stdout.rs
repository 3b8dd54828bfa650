//! What people and programs read: text and JSON on stdout.
//!
//! A reader that goes away (`dcd status | head -1`) is no error worth words: every print returns
//! [`CommandError::ReaderClosed`], which ends the command with its own exit code.

use std::io::{ErrorKind, Write};

use dcd_client::plain::{plain_json, plain_lines};
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

/// Writes `value` as JSON to stdout, over several lines.
pub fn print_json<T: Serialize>(value: &T) -> Result<(), CommandError> {
    write_json(serde_json::to_string_pretty(value))
}

/// The same in one line.
pub fn print_json_line<T: Serialize>(value: &T) -> Result<(), CommandError> {
    write_json(serde_json::to_string(value))
}

/// The one way of JSON to stdout: no terminal obeys what is in it, either.
fn write_json(text: serde_json::Result<String>) -> Result<(), CommandError> {
    let text = text.map_err(|error| CommandError::Output { source: error.into() })?;
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(plain_json(&text).as_bytes());
    let written = written.and_then(|()| stdout.write_all(b"\n"));
    written.and_then(|()| stdout.flush()).map_err(stdout_error)
}

fn stdout_error(source: std::io::Error) -> CommandError {
    match source.kind() {
        ErrorKind::BrokenPipe => CommandError::ReaderClosed,
        _ => CommandError::Output { source },
    }
}
