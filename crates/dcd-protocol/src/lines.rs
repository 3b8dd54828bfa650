//! Lines, of bounded length, from somebody who may send anything.

use std::io::{self, BufRead, Read};

/// Longest line that a daemon reads.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Reads a line of at most `limit` bytes and its end. `None` when there is nothing more.
///
/// # Errors
/// Those of the reader; [`io::ErrorKind::InvalidData`] for a line that is longer.
pub fn read_line(from: &mut impl BufRead, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.take(limit as u64 + 1).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') && line.len() > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
    }
    Ok(Some(line))
}
