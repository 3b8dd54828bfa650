//! What people and programs read: text and JSON on stdout.
//!
//! A reader that goes away (`dcd status | head -1`) is no error worth words: every print returns
//! [`CommandError::ReaderClosed`], which ends the command with its own exit code.

use std::io::{BufWriter, Error, ErrorKind, StdoutLock, Write};

use dcd_client::plain::{plain_json, plain_lines};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::CommandError;
use crate::output::{Paint, wants_json};

/// What a verb has done, in a sentence; as JSON an object with the same sentence as `done`.
pub fn print_done(text: &str) -> Result<(), CommandError> {
    print_done_with(text, json!({}))
}

/// The same with more about it, for JSON.
pub fn print_done_with(text: &str, mut about: Value) -> Result<(), CommandError> {
    if !wants_json() {
        return print(text);
    }
    about["done"] = text.trim_end().into();
    print_json_line(&about)
}

/// Writes `text` to stdout, at once: a script waits for the ready line. Whatever in it comes from
/// outside is obeyed by no terminal.
pub fn print(text: &str) -> Result<(), CommandError> {
    let text = plain_lines(text, Paint::for_stdout().has_colours());
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(stdout_error)
}

/// The same with lines that are made one by one.
pub fn print_lines(lines: impl Iterator<Item = String>) -> Result<(), CommandError> {
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    let colours = Paint::for_stdout().has_colours();
    for line in lines {
        let text = plain_lines(&line, colours);
        writeln!(stdout, "{text}").map_err(stdout_error)?;
    }
    stdout.flush().map_err(stdout_error)
}

/// Writes `value` as JSON to stdout, over several lines.
pub fn print_json<T: Serialize>(value: &T) -> Result<(), CommandError> {
    write_json(|stdout| serde_json::to_writer_pretty(stdout, value))
}

/// The same in one line.
pub fn print_json_line<T: Serialize>(value: &T) -> Result<(), CommandError> {
    write_json(|stdout| serde_json::to_writer(stdout, value))
}

/// The one way of JSON to stdout: no terminal obeys what is in it, either; and there is never all
/// of its text in memory.
fn write_json(
    write: impl FnOnce(&mut PlainJson<BufWriter<StdoutLock>>) -> serde_json::Result<()>,
) -> Result<(), CommandError> {
    let mut stdout = PlainJson(BufWriter::new(std::io::stdout().lock()));
    write(&mut stdout).map_err(|error| stdout_error(error.into()))?;
    stdout.0.write_all(b"\n").and_then(|()| stdout.0.flush()).map_err(stdout_error)
}

/// Takes JSON in pieces of whole characters, as whoever makes it writes it.
struct PlainJson<W>(W);

impl<W: Write> Write for PlainJson<W> {
    fn write(&mut self, json: &[u8]) -> std::io::Result<usize> {
        let text =
            std::str::from_utf8(json).map_err(|it| Error::new(ErrorKind::InvalidData, it))?;
        self.0.write_all(plain_json(text).as_bytes())?;
        Ok(json.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// What is said of a stdout that cannot be written to.
pub fn stdout_error(source: std::io::Error) -> CommandError {
    match source.kind() {
        ErrorKind::BrokenPipe => CommandError::ReaderClosed,
        _ => CommandError::Output { source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_is_written_in_pieces_is_obeyed_by_no_terminal() {
        let value = ["a\u{9b}31m\u{202e}\"\\ä\n", "\x1b[2J\x7f"];
        let mut plain = PlainJson(Vec::new());
        serde_json::to_writer_pretty(&mut plain, &value).unwrap();
        let whole = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(String::from_utf8(plain.0).unwrap(), plain_json(&whole));
        assert_ne!(plain_json(&whole), whole);
    }
}
