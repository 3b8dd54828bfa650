//! The bytes of a trace: opened, decompressed if they begin like zstd or gzip, and given out line
//! by line or record by record. A file may be larger than memory: only one line of it is held.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError::SkipFrame};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::error::TraceError;
use super::row::Line;

/// Longest line: more is no row of a trace.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// So many lines in a row may be empty.
const BLANK_LINES_MAX: u64 = 1 << 20;
/// So many times as long as the file it may be when it is decompressed (traces: 4 to 40 times) ...
const RATIO_MAX: u64 = 128;
/// ... beyond the first bytes.
const RATIO_FREE_BYTES: u64 = 32 << 20;
/// How much can be looked at before reading begins.
const BEGINNING_BYTES: u64 = 64 << 10;

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
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(path: &Path) -> Result<TraceInput, TraceError> {
        let failed = |source| TraceError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let size_bytes = file.metadata().map_err(failed)?.len();
        let read_bytes = Rc::new(Cell::new(0));
        let counted = Counted { file, read_bytes: read_bytes.clone() };
        let bytes = decompress(counted, &read_bytes).map_err(failed)?;
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

    /// The first bytes, which stay to be read; where lines are empty up to there, those behind
    /// them, if it is a text. To be called before anything else.
    pub(super) fn beginning(&mut self, is_text: bool) -> Result<Vec<u8>, TraceError> {
        let mut beginning = Vec::new();
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
    file: File,
    read_bytes: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read_bytes.set(self.read_bytes.get() + read as u64);
        Ok(read)
    }
}

/// What is decompressed, as long as it is in a believable relation to what it was made of.
struct Bounded {
    inner: Box<dyn Read>,
    given_bytes: u64,
    /// Of the compressed file.
    read_bytes: Rc<Cell<u64>>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.given_bytes += read as u64;
        let most = self.read_bytes.get().saturating_mul(RATIO_MAX).max(RATIO_FREE_BYTES);
        if self.given_bytes > most {
            let problem = format!(
                "it becomes more than {RATIO_MAX} times as long when it is decompressed, which no trace does; \
                 if it is one, decompress it yourself"
            );
            return Err(std::io::Error::new(ErrorKind::InvalidData, problem));
        }
        Ok(read)
    }
}

/// `file`, decompressed if its first bytes say that it is compressed.
fn decompress(file: Counted, read_bytes: &Rc<Cell<u64>>) -> std::io::Result<Box<dyn BufRead>> {
    let bounded = |inner| {
        let bounded = Bounded { inner, given_bytes: 0, read_bytes: read_bytes.clone() };
        Box::new(BufReader::with_capacity(256 << 10, bounded))
    };
    let mut input = BufReader::with_capacity(256 << 10, file);
    let magic = input.fill_buf()?;
    Ok(if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let frames = ZstdFrames { input, decoder: FrameDecoder::new() };
        bounded(Box::new(frames) as Box<dyn Read>)
    } else if magic.starts_with(&[0x1f, 0x8b]) {
        bounded(Box::new(flate2::bufread::MultiGzDecoder::new(input)))
    } else {
        Box::new(input)
    })
}

/// All frames of a zstd file: `cat a.zst b.zst` has two, what is compressed in parallel may have
/// many.
struct ZstdFrames<R> {
    input: R,
    /// Finished until the first frame begins.
    decoder: FrameDecoder,
}

impl<R: BufRead> ZstdFrames<R> {
    /// False at the end.
    fn begin_frame(&mut self) -> std::io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(SkipFrame { length, .. })) => {
                    let skipped = &mut self.input.by_ref().take(length.into());
                    std::io::copy(skipped, &mut std::io::sink())?;
                }
                Err(_) => return Err(damaged()),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            while !self.decoder.is_finished() && self.decoder.can_collect() < buffer.len() {
                let wanted = BlockDecodingStrategy::UptoBytes(buffer.len());
                self.decoder.decode_blocks(&mut self.input, wanted).map_err(|_| damaged())?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() || !self.begin_frame()? {
                return Ok(read);
            }
        }
    }
}

fn damaged() -> std::io::Error {
    let problem = "expected zstd data, found them damaged or cut off";
    std::io::Error::new(ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn open(bytes: &[u8]) -> Result<u64, TraceError> {
        let name = format!("dcd-input-{}-{}", std::process::id(), bytes.len());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        let mut input = TraceInput::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut lines = 0;
        while input.next_line()?.is_some() {
            lines += 1;
        }
        Ok(lines)
    }

    fn gzip(parts: &[&[u8]], times: usize) -> Vec<u8> {
        use std::io::Write;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        for _ in 0..times {
            parts.iter().for_each(|part| gzip.write_all(part).unwrap());
        }
        gzip.finish().unwrap()
    }

    /// What keeps the reader busy for nothing: much out of little, lines of nothing.
    #[test]
    fn a_bomb_is_refused_soon() {
        let lines = "1,2,w,3\n".repeat(1 << 13);
        let bomb = gzip(&[lines.as_bytes()], 2048);
        let error = open(&bomb).unwrap_err().to_string();
        assert!(error.contains("128 times as long"), "{error}");
        let bomb = frame(&lines.repeat(600).into_bytes());
        let error = open(&bomb).unwrap_err().to_string();
        assert!(error.contains("128 times as long"), "{error}");
        for blank in [b"\n".as_slice(), b"\r\n", b" \t\n"] {
            let error = open(&gzip(&[blank], 3 << 20)).unwrap_err().to_string();
            assert!(error.contains("empty lines in a row"), "{error}");
        }
        // Up to the free bytes everything is possible.
        assert_eq!(open(&gzip(&[lines.as_bytes()], 64)).unwrap(), 64 << 13);
    }

    fn frame(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    fn decompressed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut frames = ZstdFrames { input: bytes, decoder: FrameDecoder::new() };
        let mut out = Vec::new();
        frames.read_to_end(&mut out).map(|_| out)
    }

    /// A trace that ended with the first frame would be a shorter trace, and nobody would know.
    #[test]
    fn all_frames_of_a_zstd_file_are_read() {
        let (first, second) = (b"first\n".repeat(50_000), b"second\n".to_vec());
        let skippable = [&0x184d_2a50u32.to_le_bytes()[..], &3u32.to_le_bytes(), b"abc"].concat();
        let file = [frame(&first), frame(b""), skippable.clone(), frame(&second)].concat();
        assert_eq!(decompressed(&file).unwrap(), [first.clone(), second].concat());
        assert_eq!(decompressed(&[frame(&first), skippable].concat()).unwrap(), first);
        assert_eq!(decompressed(b"").unwrap(), b"");
        // What is cut off, and what is no zstd behind it, is an error.
        for cut in [file.len() - 1, file.len() - 9, frame(&first).len() - 1] {
            assert!(decompressed(&file[..cut]).is_err(), "{cut}");
        }
        let error = decompressed(&[frame(&first), b"more".to_vec()].concat()).unwrap_err();
        assert_eq!(error.to_string(), "expected zstd data, found them damaged or cut off");
    }
}
