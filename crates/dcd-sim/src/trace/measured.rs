//! Requests whose service times were measured on a real drive, to compare a model with.
//!
//! Two forms of CSV are read, told apart by their first line; either may be compressed (zstd, gzip):
//!
//! - `t_us,op,disk,off,len,fl,svc_start_us,svc_stop_us,...`: recorded in a driver that serves one
//!   request at a time. Start and stop of the service are relative to `t_us`; rows are in the order of
//!   `t_us` and come out in the order in which they were served.
//! - `idx,op,cachelabel,blkno_512,bcount_512,measured_us,next_inter_us,...`: one request outstanding,
//!   `next_inter_us` after each before the next.
//!
//! Both become the same: so much time after the one before had ended, this was asked for, and took
//! so long. A model that is replayed this way has its platters at the angle at which those of the
//! drive were. Rows are read one by one: a file may be larger than memory.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::disk::model::{DiskOperation, DiskRequestError};

/// A request that was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeasuredRequest {
    /// Line of the file, from 1.
    pub line: u64,
    /// Character of the line at which the address begins, from 1.
    pub column: u32,
    /// Read or write.
    pub operation: DiskOperation,
    /// Where it begins.
    pub offset_bytes: u64,
    /// How much.
    pub size_bytes: u64,
    /// Time from the end of the one before to its beginning.
    pub think_ns: u64,
    /// How long it took.
    pub service_ns: u64,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file itself.
    #[error("{}: cannot read the trace: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Neither form.
    #[error("{}:1:1: {problem}", path.display())]
    Header {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// No rows.
    #[error("{}: the trace has no requests", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
    /// A row.
    #[error("{}:{line}:{column}: {name}: {problem}", path.display())]
    Field {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Character of the line at which the field begins, from 1.
        column: usize,
        /// Name of the column.
        name: &'static str,
        /// What is wrong.
        problem: String,
    },
}

impl TraceError {
    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            TraceError::Read { source, .. } if source.kind() == ErrorKind::NotFound => {
                Some("check the name given with --trace".into())
            }
            TraceError::Header { .. } | TraceError::Empty { .. } => Some(
                "the first line must name the columns t_us,op,off,len,svc_start_us,svc_stop_us or \
                 op,blkno_512,bcount_512,measured_us,next_inter_us"
                    .into(),
            ),
            _ => None,
        }
    }
}

/// Longest line: more is no row of a trace.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Longest time that a row may have: three years. Sums of two fit into 64 bits of nanoseconds.
const TIME_US_MAX: f64 = 1e14;
/// Rows of the first form may be served so much later than others that came after them.
const REORDER_ROWS_MAX: usize = 1 << 20;

/// Reads a trace row by row.
pub struct MeasuredReader {
    path: PathBuf,
    input: Box<dyn BufRead>,
    size_bytes: u64,
    read_bytes: Rc<Cell<u64>>,
    line_number: u64,
    line: String,
    form: Form,
    /// Rows of the first form that are not yet known to be next: by start of service.
    reorder: BinaryHeap<Reverse<(u64, u64, Row)>>,
    ended: bool,
    enqueued_ns: u64,
    previous_end_ns: Option<u64>,
    next_think_ns: u64,
    ready: VecDeque<MeasuredRequest>,
}

/// Stop of the service, offset, size, is a write, line, column of the address.
type Row = (u64, u64, u64, bool, u64, u32);

/// Which columns are where.
#[derive(Clone, Copy, Debug)]
enum Form {
    Driver { t: usize, op: usize, off: usize, len: usize, start: usize, stop: usize },
    Closed { op: usize, block: usize, blocks: usize, measured: usize, think: usize },
}

impl MeasuredReader {
    /// Opens a trace.
    ///
    /// # Errors
    /// When it cannot be read, or has neither form.
    pub fn open(path: &Path) -> Result<MeasuredReader, TraceError> {
        let failed = |source| TraceError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let size_bytes = file.metadata().map_err(failed)?.len();
        let read_bytes = Rc::new(Cell::new(0));
        let counted = Counted { file, read_bytes: read_bytes.clone() };
        let input = decompress(counted).map_err(failed)?;
        let reader = MeasuredReader::new(path, input)?;
        Ok(MeasuredReader { size_bytes, read_bytes, ..reader })
    }

    /// How much of the file has been read, and its size, as it is on disk.
    pub fn progress_bytes(&self) -> (u64, u64) {
        (self.read_bytes.get(), self.size_bytes)
    }

    /// The trace in `input`, which came from `path`.
    ///
    /// # Errors
    /// When it has neither form.
    pub fn new(path: &Path, input: Box<dyn BufRead>) -> Result<MeasuredReader, TraceError> {
        let mut reader = MeasuredReader {
            path: path.to_owned(),
            input,
            size_bytes: 0,
            read_bytes: Rc::default(),
            line_number: 0,
            line: String::new(),
            form: Form::Closed { op: 0, block: 0, blocks: 0, measured: 0, think: 0 },
            reorder: BinaryHeap::new(),
            ended: false,
            enqueued_ns: 0,
            previous_end_ns: None,
            next_think_ns: 0,
            ready: VecDeque::new(),
        };
        let header = |problem: String| TraceError::Header { path: path.to_owned(), problem };
        if !reader.read_line()? {
            return Err(header("the trace is empty".into()));
        }
        let names: Vec<&str> = reader.line.split(',').map(str::trim).collect();
        let find = |name: &str| {
            let missing = || header(format!("there is no column {name}"));
            names.iter().position(|found| *found == name).ok_or_else(missing)
        };
        let form = if names.contains(&"measured_us") {
            Form::Closed {
                op: find("op")?,
                block: find("blkno_512")?,
                blocks: find("bcount_512")?,
                measured: find("measured_us")?,
                think: find("next_inter_us")?,
            }
        } else if names.contains(&"svc_start_us") {
            Form::Driver {
                t: find("t_us")?,
                op: find("op")?,
                off: find("off")?,
                len: find("len")?,
                start: find("svc_start_us")?,
                stop: find("svc_stop_us")?,
            }
        } else {
            return Err(header("there is neither a column measured_us nor svc_start_us".into()));
        };
        reader.form = form;
        Ok(reader)
    }

    /// The next request; none at the end.
    ///
    /// # Errors
    /// When a row is not what it should be.
    pub fn next_request(&mut self) -> Result<Option<MeasuredRequest>, TraceError> {
        while self.ready.is_empty() && !self.ended {
            if self.read_line()? {
                let line = std::mem::take(&mut self.line);
                let parsed = self.take_row(line.trim_end_matches(['\r', '\n']));
                self.line = line;
                parsed?;
            } else {
                self.ended = true;
                self.release(u64::MAX);
            }
        }
        Ok(self.ready.pop_front())
    }

    /// What to say of a request that the disk cannot have.
    pub fn refused(&self, request: &MeasuredRequest, problem: &DiskRequestError) -> TraceError {
        TraceError::Field {
            path: self.path.clone(),
            line: request.line,
            column: request.column as usize,
            name: match self.form {
                Form::Closed { .. } => "blkno_512",
                Form::Driver { .. } => "off",
            },
            problem: problem.to_string(),
        }
    }

    fn take_row(&mut self, line: &str) -> Result<(), TraceError> {
        if line.is_empty() {
            return Ok(());
        }
        let fields = Fields { path: &self.path, line_number: self.line_number, line };
        match self.form {
            Form::Closed { op, block, blocks, measured, think } => {
                let operation = fields.operation(op)?;
                let offset_bytes = fields.bytes(block, "blkno_512", 512)?;
                let size_bytes = fields.bytes(blocks, "bcount_512", 512)?;
                let service_ns = fields.time(measured, "measured_us")?;
                let next_think_ns = fields.time(think, "next_inter_us")?;
                self.ready.push_back(MeasuredRequest {
                    line: self.line_number,
                    column: fields.column(block) as u32,
                    operation,
                    offset_bytes,
                    size_bytes,
                    think_ns: std::mem::replace(&mut self.next_think_ns, next_think_ns),
                    service_ns,
                });
            }
            Form::Driver { t, op, off, len, start, stop } => {
                let enqueued_ns = fields.time(t, "t_us")?;
                if enqueued_ns < self.enqueued_ns {
                    let problem = "earlier than the row before".to_owned();
                    return Err(fields.problem(t, "t_us", problem));
                }
                let operation = fields.operation(op)?;
                let offset = fields.bytes(off, "off", 1)?;
                let size = fields.bytes(len, "len", 1)?;
                let start_ns = enqueued_ns + fields.time(start, "svc_start_us")?;
                let stop_ns = enqueued_ns + fields.time(stop, "svc_stop_us")?;
                if stop_ns < start_ns {
                    let problem = "the service stops before it starts".to_owned();
                    return Err(fields.problem(stop, "svc_stop_us", problem));
                }
                if self.reorder.len() >= REORDER_ROWS_MAX {
                    let problem = format!("starts after {REORDER_ROWS_MAX} rows behind it");
                    return Err(fields.problem(start, "svc_start_us", problem));
                }
                self.enqueued_ns = enqueued_ns;
                let write = operation == DiskOperation::Write;
                let column = fields.column(off) as u32;
                let row = (stop_ns, offset, size, write, self.line_number, column);
                self.reorder.push(Reverse((start_ns, self.line_number, row)));
                // Whoever comes later cannot have started earlier.
                self.release(enqueued_ns);
            }
        }
        Ok(())
    }

    /// Rows whose service started before `until_ns` are next.
    fn release(&mut self, until_ns: u64) {
        while let Some(Reverse((start_ns, _, row))) = self.reorder.peek().copied()
            && start_ns <= until_ns
        {
            self.reorder.pop();
            let (stop_ns, offset_bytes, size_bytes, write, line, column) = row;
            let previous_end_ns = self.previous_end_ns.unwrap_or(start_ns);
            self.previous_end_ns = Some(stop_ns.max(previous_end_ns));
            self.ready.push_back(MeasuredRequest {
                line,
                column,
                operation: if write { DiskOperation::Write } else { DiskOperation::Read },
                offset_bytes,
                size_bytes,
                think_ns: start_ns.saturating_sub(previous_end_ns),
                service_ns: stop_ns - start_ns,
            });
        }
    }

    /// Reads the next line; false at the end.
    fn read_line(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        let failed = |path: &Path, source| TraceError::Read { path: path.to_owned(), source };
        let limited = &mut self.input.by_ref().take(LINE_BYTES_MAX + 1);
        let read =
            limited.read_line(&mut self.line).map_err(|source| failed(&self.path, source))?;
        self.line_number += 1;
        if read as u64 > LINE_BYTES_MAX {
            let message =
                format!("line {} is longer than {LINE_BYTES_MAX} bytes", self.line_number);
            return Err(failed(&self.path, std::io::Error::new(ErrorKind::InvalidData, message)));
        }
        Ok(read > 0)
    }
}

/// One row.
struct Fields<'a> {
    path: &'a Path,
    line_number: u64,
    line: &'a str,
}

impl Fields<'_> {
    fn get(&self, index: usize, name: &'static str) -> Result<&str, TraceError> {
        let field = self.line.split(',').nth(index).map(str::trim);
        field
            .filter(|field| !field.is_empty())
            .ok_or_else(|| self.problem(index, name, "missing: the line ends before it".to_owned()))
    }

    fn operation(&self, index: usize) -> Result<DiskOperation, TraceError> {
        match self.get(index, "op")? {
            "R" => Ok(DiskOperation::Read),
            "W" => Ok(DiskOperation::Write),
            other => {
                let problem = format!("`{}` is neither R nor W", shortened(other));
                Err(self.problem(index, "op", problem))
            }
        }
    }

    fn bytes(&self, index: usize, name: &'static str, unit: u64) -> Result<u64, TraceError> {
        let text = self.get(index, name)?;
        let number = text.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        number.ok_or_else(|| {
            self.problem(index, name, format!("`{}` is no number of bytes", shortened(text)))
        })
    }

    fn time(&self, index: usize, name: &'static str) -> Result<u64, TraceError> {
        let text = self.get(index, name)?;
        match text.parse::<f64>() {
            Ok(us) if (0.0..=TIME_US_MAX).contains(&us) => Ok((us * 1e3).round() as u64),
            _ => {
                let problem = format!("`{}` is no time in microseconds", shortened(text));
                Err(self.problem(index, name, problem))
            }
        }
    }

    fn problem(&self, index: usize, name: &'static str, problem: String) -> TraceError {
        let column = self.column(index);
        let (path, line) = (self.path.to_owned(), self.line_number);
        TraceError::Field { path, line, column, name, problem }
    }

    /// Character at which a field begins, or the end of the line if it is not there.
    fn column(&self, index: usize) -> usize {
        let before: usize =
            self.line.split(',').take(index).map(|field| field.chars().count() + 1).sum();
        (before + 1).min(self.line.chars().count() + 1)
    }
}

/// What a file says, fit to be shown on one line.
fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().count() > 40 {
        shown.push_str("...");
    }
    shown
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

/// `file`, decompressed if its first bytes say that it is compressed.
fn decompress(file: Counted) -> std::io::Result<Box<dyn BufRead>> {
    let mut input = BufReader::with_capacity(256 << 10, file);
    let magic = input.fill_buf()?;
    Ok(if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(input)
            .map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error.to_string()))?;
        Box::new(BufReader::with_capacity(256 << 10, decoder))
    } else if magic.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::with_capacity(256 << 10, flate2::bufread::MultiGzDecoder::new(input)))
    } else {
        Box::new(input)
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use super::*;

    fn read_all(text: &str) -> Result<Vec<MeasuredRequest>, TraceError> {
        let input = Box::new(Cursor::new(text.to_owned().into_bytes()));
        let mut reader = MeasuredReader::new(Path::new("t.csv"), input)?;
        let mut requests = Vec::new();
        while let Some(request) = reader.next_request()? {
            requests.push(request);
        }
        Ok(requests)
    }

    const DRIVER: &str = "t_us,op,disk,off,len,fl,svc_start_us,svc_stop_us,cyl\n";
    const CLOSED: &str = "idx,op,cachelabel,blkno_512,bcount_512,measured_us,next_inter_us\n";

    #[test]
    fn the_think_time_after_one_is_that_before_the_next() {
        let requests =
            read_all(&format!("{CLOSED}0,R,Hit,8,2,1000.5,250\n1,W,Hit,16,1,70,9\n")).unwrap();
        let facts =
            requests.iter().map(|r| (r.offset_bytes, r.size_bytes, r.think_ns, r.service_ns));
        let facts: Vec<_> = facts.collect();
        assert_eq!(facts, [(4096, 1024, 0, 1_000_500), (8192, 512, 250_000, 70_000)]);
        assert_eq!(requests[1].operation, DiskOperation::Write);
    }

    /// ```text
    ///   enqueued       served
    ///   a  at 100      100 to 200
    ///   b  at 110      320 to 400, overtaken by c
    ///   c  at 120      205 to 310
    /// ```
    #[test]
    fn requests_come_in_the_order_of_their_service() {
        let rows =
            "100,W,0,0,512,0,0,100,1\n110,R,0,512,512,0,210,290,1\n120,R,0,1024,512,0,85,190,1\n";
        let requests = read_all(&format!("{DRIVER}{rows}")).unwrap();
        let facts: Vec<_> = requests.iter().map(|r| (r.line, r.think_ns, r.service_ns)).collect();
        assert_eq!(facts, [(2, 0, 100_000), (4, 5_000, 105_000), (3, 10_000, 80_000)]);
    }

    #[test]
    fn what_is_wrong_is_told_with_file_line_and_column() {
        let refused = |text: String| {
            let shown = read_all(&text).unwrap_err().to_string();
            assert!(!shown.contains('\n'), "{shown}");
            shown
        };
        assert!(refused(String::new()).contains("t.csv:1:1: the trace is empty"));
        assert!(refused("a,b\n1,2\n".into()).contains("neither a column"));
        assert!(refused("t_us,op,svc_start_us\n".into()).contains("no column off"));
        let shown = refused(format!("{CLOSED}0,R,Hit,8,2,1000,5\n1,X,Hit,8,2,1,1\n"));
        assert_eq!(shown, "t.csv:3:3: op: `X` is neither R nor W");
        let shown = refused(format!("{CLOSED}0,R,Hit,8"));
        assert_eq!(shown, "t.csv:2:10: bcount_512: missing: the line ends before it");
        let shown = refused(format!("{CLOSED}0,R,Hit,99999999999999999999,2,1,1\n"));
        assert!(shown.starts_with("t.csv:2:9: blkno_512: "), "{shown}");
        for time in ["-1", "nan", "inf", "1e30", "x\u{1b}[2J"] {
            let shown = refused(format!("{CLOSED}0,R,Hit,8,2,{time},1\n"));
            assert!(shown.starts_with("t.csv:2:13: measured_us: "), "{shown}");
            assert!(!shown.contains('\u{1b}'));
        }
        let shown = refused(format!("{DRIVER}9,R,0,0,512,0,0,1,1\n8,R,0,0,512,0,0,1,1\n"));
        assert_eq!(shown, "t.csv:3:1: t_us: earlier than the row before");
        let shown = refused(format!("{DRIVER}9,R,0,0,512,0,2,1,1\n"));
        assert!(shown.contains("svc_stop_us: the service stops before"), "{shown}");
        assert!(refused("x".repeat(100_000)).contains("longer than"));
    }

    #[test]
    fn compressed_traces_are_read_alike() {
        let text = format!("{CLOSED}0,R,Hit,8,2,1000,5\n1,W,Hit,8,2,1,1\n");
        let folder = std::env::temp_dir().join(format!("dcd-measured-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(
            text.as_bytes(),
            ruzstd::encoding::CompressionLevel::Uncompressed,
        );
        for (name, bytes) in [
            ("plain", text.clone().into_bytes()),
            ("gzip", gzip.finish().unwrap()),
            ("zstd", zstd.clone()),
        ] {
            let path = folder.join(name);
            std::fs::write(&path, bytes).unwrap();
            let mut reader = MeasuredReader::open(&path).unwrap();
            assert_eq!(reader.next_request().unwrap().unwrap().service_ns, 1_000_000, "{name}");
            assert_eq!(reader.next_request().unwrap().unwrap().line, 3, "{name}");
            assert_eq!(reader.next_request().unwrap(), None, "{name}");
        }
        // A torn one is an error, no panic.
        let path = folder.join("torn");
        std::fs::write(&path, &zstd[..zstd.len() - 30]).unwrap();
        let torn = MeasuredReader::open(&path).and_then(|mut reader| {
            while reader.next_request()?.is_some() {}
            Ok(())
        });
        assert!(torn.is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
