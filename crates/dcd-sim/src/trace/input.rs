//! The bytes of a trace: opened, unpacked, and given out line by line or record by record. A file
//! may be larger than memory: only one line of it is held.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::error::TraceError;
use super::packing::unpack;
use super::row::Line;

/// Longest line: more is no row of a trace.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// So many lines in a row may be empty.
const BLANK_LINES_MAX: u64 = 1 << 20;
/// How much can be looked at before reading begins.
const BEGINNING_BYTES: u64 = 64 << 10;

/// The mark of UTF-8 at the beginning of a text, as programs of Windows write it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const BUFFER_BYTES: usize = 256 << 10;

/// Whether a name means the standard input, or output.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The bytes of a trace.
pub struct TraceInput {
    path: PathBuf,
    bytes: Box<dyn BufRead>,
    size_bytes: u64,
    read_bytes: Rc<Cell<u64>>,
    line: Vec<u8>,
    /// Of the line with bytes that are no text: the text without them.
    lossy: String,
    line_number: u64,
    /// Empty lines in a row.
    blank_lines: u64,
}

impl TraceInput {
    /// Opens a file; `-` is the standard input.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(path: &Path) -> Result<TraceInput, TraceError> {
        if is_standard(path) {
            return TraceInput::packed(path, Box::new(std::io::stdin()), 0);
        }
        let failed = |source| TraceError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let size_bytes = file.metadata().map_err(failed)?.len();
        TraceInput::packed(path, Box::new(file), size_bytes)
    }

    /// The trace in `file`, which came from `path` and may be packed.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn packed(
        path: &Path,
        file: Box<dyn Read>,
        size_bytes: u64,
    ) -> Result<TraceInput, TraceError> {
        let failed = |source| TraceError::Read { path: path.to_owned(), source };
        let read_bytes = Rc::new(Cell::new(0));
        let counted = Counted { file, read_bytes: read_bytes.clone() };
        let input = BufReader::with_capacity(BUFFER_BYTES, counted);
        let bytes = unpack(Box::new(input), &read_bytes).map_err(failed)?;
        Ok(TraceInput { size_bytes, read_bytes, ..TraceInput::new(path, bytes) })
    }

    /// The trace in `bytes`, which came from `path`.
    pub fn new(path: &Path, bytes: Box<dyn BufRead>) -> TraceInput {
        TraceInput {
            path: path.to_owned(),
            bytes,
            size_bytes: 0,
            read_bytes: Rc::default(),
            line: Vec::new(),
            lossy: String::new(),
            line_number: 0,
            blank_lines: 0,
        }
    }

    /// Where it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How much of the file has been read, and its size, as it is on disk.
    pub fn progress_bytes(&self) -> (u64, u64) {
        (self.read_bytes.get(), self.size_bytes)
    }

    /// The first bytes, which stay to be read; if it is a text, without its byte order mark, and
    /// where lines are empty up to there, those behind them. To be called before anything else.
    pub(super) fn beginning(&mut self, is_text: bool) -> Result<Vec<u8>, TraceError> {
        let mut beginning = Vec::new();
        if is_text {
            let mark = &mut self.bytes.by_ref().take(BYTE_ORDER_MARK.len() as u64);
            mark.read_to_end(&mut beginning).map_err(|source| self.failed(source))?;
            if beginning == BYTE_ORDER_MARK {
                beginning.clear();
            }
        }
        loop {
            let read = self.bytes.by_ref().take(BEGINNING_BYTES).read_to_end(&mut beginning);
            read.map_err(|source| self.failed(source))?;
            let is_blank = beginning.iter().all(u8::is_ascii_whitespace);
            if !is_text || !is_blank || (beginning.len() as u64) < BEGINNING_BYTES {
                break;
            }
            let lines = beginning.iter().filter(|byte| **byte == b'\n').count() as u64;
            if lines == 0 {
                return Err(self.is_too_long());
            }
            self.line_number += lines;
            self.count_blank_lines(lines)?;
            beginning.clear();
        }
        let rest = std::mem::replace(&mut self.bytes, Box::new(std::io::empty()));
        self.bytes = Box::new(Cursor::new(beginning.clone()).chain(rest));
        Ok(beginning)
    }

    /// Reads the next line; none at the end. Bytes that are no text become U+FFFD: names of
    /// programs may have them.
    pub(super) fn next_line(&mut self) -> Result<Option<Line<'_>>, TraceError> {
        self.line.clear();
        let limited = &mut self.bytes.by_ref().take(LINE_BYTES_MAX + 1);
        let read = limited.read_until(b'\n', &mut self.line);
        let read = read.map_err(|source| self.failed(source))?;
        self.line_number += 1;
        if read as u64 > LINE_BYTES_MAX {
            self.line_number -= 1;
            return Err(self.is_too_long());
        }
        if read == 0 {
            return Ok(None);
        }
        while matches!(self.line.last(), Some(b'\r' | b'\n')) {
            self.line.pop();
        }
        match self.line.iter().all(u8::is_ascii_whitespace) {
            true => self.count_blank_lines(1)?,
            false => self.blank_lines = 0,
        }
        let text = match std::str::from_utf8(&self.line) {
            Ok(text) => text,
            Err(_) => {
                self.lossy = String::from_utf8_lossy(&self.line).into_owned();
                &self.lossy
            }
        };
        Ok(Some(Line { path: &self.path, number: self.line_number, text }))
    }

    /// Fills `record`, and tells how much of it there was before the end.
    pub(super) fn next_record(&mut self, record: &mut [u8]) -> Result<usize, TraceError> {
        let mut filled = 0;
        while filled < record.len() {
            match self.bytes.read(&mut record[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(self.failed(source)),
            }
        }
        Ok(filled)
    }

    /// So many more lines were empty, up to the one that was read last.
    fn count_blank_lines(&mut self, lines: u64) -> Result<(), TraceError> {
        self.blank_lines += lines;
        if self.blank_lines <= BLANK_LINES_MAX {
            return Ok(());
        }
        let number = self.line_number;
        let message = format!("line {number}: more than {BLANK_LINES_MAX} empty lines in a row");
        Err(self.failed(std::io::Error::new(ErrorKind::InvalidData, message)))
    }

    /// What is to be said of the line behind the last.
    fn is_too_long(&self) -> TraceError {
        let message =
            format!("line {} is longer than {LINE_BYTES_MAX} bytes", self.line_number + 1);
        self.failed(std::io::Error::new(ErrorKind::InvalidData, message))
    }

    fn failed(&self, source: std::io::Error) -> TraceError {
        TraceError::Read { path: self.path.clone(), source }
    }
}

/// A file that counts what is read from it.
struct Counted {
    file: Box<dyn Read>,
    read_bytes: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // Decoders would take an interruption for an error.
        let read = loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.read_bytes.set(self.read_bytes.get() + read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: Vec<u8>) -> Result<u64, TraceError> {
        let size_bytes = bytes.len() as u64;
        let mut input = TraceInput::packed("t".as_ref(), Box::new(Cursor::new(bytes)), size_bytes)?;
        let mut lines = 0;
        while input.next_line()?.is_some() {
            lines += 1;
        }
        assert_eq!(input.progress_bytes(), (size_bytes, size_bytes));
        Ok(lines)
    }

    fn gzip(part: &[u8], times: usize) -> Vec<u8> {
        use std::io::Write;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        (0..times).for_each(|_| gzip.write_all(part).unwrap());
        gzip.finish().unwrap()
    }

    /// What keeps the reader busy for nothing, or takes its memory: lines of nothing, and one that
    /// does not end.
    #[test]
    fn lines_of_nothing_and_lines_without_end_are_refused() {
        for blank in [b"\n".as_slice(), b"\r\n", b" \t\n"] {
            let error = lines(gzip(blank, 3 << 20)).unwrap_err().to_string();
            assert!(error.contains("empty lines in a row"), "{error}");
        }
        let error = lines(gzip(&[b'1'; 1 << 10], 1 << 14)).unwrap_err().to_string();
        assert!(error.contains("line 1 is longer than 65536 bytes"), "{error}");
        assert_eq!(lines(gzip(b"1,2,w,3\n", 64)).unwrap(), 64);
    }

    #[test]
    fn the_byte_order_mark_of_a_text_is_none_of_it() {
        let beginning = |bytes: &[u8], is_text| {
            let mut input = TraceInput::new("t".as_ref(), Box::new(Cursor::new(bytes.to_vec())));
            let beginning = input.beginning(is_text).unwrap();
            let line = input.next_line().unwrap().map(|line| line.text.to_owned());
            (beginning, line.unwrap_or_default())
        };
        assert_eq!(beginning(b"\xef\xbb\xbfa\nb", true), (b"a\nb".to_vec(), "a".to_owned()));
        assert_eq!(beginning(b"\xef\xbb\xbfa", false).0, b"\xef\xbb\xbfa");
        assert_eq!(beginning(b"a", true), (b"a".to_vec(), "a".to_owned()));
        assert_eq!(beginning(b"\xef\xbb\xbf", true).0, b"");
    }
}
