//! Requests whose service times were measured on a real drive, to compare a model with.
//!
//! Two forms of CSV are read, told apart by their first line; either may be compressed (zstd,
//! gzip):
//!
//! - `t_us,op,disk,off,len,fl,svc_start_us,svc_stop_us,...`: recorded in a driver that serves one
//!   request at a time. Start and stop of the service are relative to `t_us`; rows are in the order
//!   of `t_us` and come out in the order in which they were served.
//! - `idx,op,cachelabel,blkno_512,bcount_512,measured_us,next_inter_us,...`: one request
//!   outstanding, `next_inter_us` after each before the next.
//!
//! Both become the same: so much time after the one before had ended, this was asked for, and took
//! so long. A model that is replayed this way has its platters at the angle at which those of the
//! drive were. Rows are read one by one: a file may be larger than memory.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::BufRead;
use std::path::Path;

use super::row::{FIELDS_MAX, Line, Row};
use super::{TraceError, TraceInput};
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

/// Longest time that a row may have: three years. Sums of two fit into 64 bits of nanoseconds.
const TIME_NS_MAX: u64 = 100_000_000_000_000_000;
/// Rows of the first form may be served so much later than others that came after them.
const REORDER_ROWS_MAX: usize = 1 << 20;

/// Reads a trace row by row.
pub struct MeasuredReader {
    input: TraceInput,
    rows: Rows,
    ended: bool,
}

/// What is known of the rows so far.
struct Rows {
    form: Form,
    /// Rows of the first form that are not yet known to be next: by start of service.
    reorder: BinaryHeap<Reverse<(u64, u64, Waiting)>>,
    enqueued_ns: u64,
    previous_end_ns: Option<u64>,
    next_think_ns: u64,
    ready: VecDeque<MeasuredRequest>,
}

/// Stop of the service, offset, size, is a write, line, column of the address.
type Waiting = (u64, u64, u64, bool, u64, u32);

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
        MeasuredReader::of(TraceInput::open(path)?)
    }

    /// The trace in `bytes`, which came from `path`.
    ///
    /// # Errors
    /// When it has neither form.
    pub fn new(path: &Path, bytes: Box<dyn BufRead>) -> Result<MeasuredReader, TraceError> {
        MeasuredReader::of(TraceInput::new(path, bytes))
    }

    fn of(mut input: TraceInput) -> Result<MeasuredReader, TraceError> {
        let path = input.path().to_owned();
        let header = |problem: String| TraceError::Header { path: path.clone(), problem };
        let Some(line) = input.next_line()? else {
            return Err(header("the trace is empty".into()));
        };
        let form = Form::of(&line.split_commas()).map_err(header)?;
        let rows = Rows {
            form,
            reorder: BinaryHeap::new(),
            enqueued_ns: 0,
            previous_end_ns: None,
            next_think_ns: 0,
            ready: VecDeque::new(),
        };
        Ok(MeasuredReader { input, rows, ended: false })
    }

    /// How much of the file has been read, and its size, as it is on disk.
    pub fn progress_bytes(&self) -> (u64, u64) {
        self.input.progress_bytes()
    }

    /// The next request; none at the end.
    ///
    /// # Errors
    /// When a row is not what it should be.
    pub fn next_request(&mut self) -> Result<Option<MeasuredRequest>, TraceError> {
        while self.rows.ready.is_empty() && !self.ended {
            match self.input.next_line()? {
                Some(line) if line.text.is_empty() => {}
                Some(line) => self.rows.take(&line)?,
                None => {
                    self.ended = true;
                    self.rows.release(u64::MAX);
                }
            }
        }
        Ok(self.rows.ready.pop_front())
    }

    /// What to say of a request that the disk cannot have.
    pub fn refused(&self, request: &MeasuredRequest, problem: &DiskRequestError) -> TraceError {
        TraceError::Field {
            path: self.input.path().to_owned(),
            line: request.line,
            column: request.column as usize,
            name: match self.rows.form {
                Form::Closed { .. } => "blkno_512",
                Form::Driver { .. } => "off",
            },
            problem: problem.to_string(),
        }
    }
}

impl Form {
    /// What the first line says, or what is wrong with it.
    fn of(header: &Row<'_>) -> Result<Form, String> {
        let has = |name: &str| (0..FIELDS_MAX).find(|index| header.text(*index) == name);
        let find = |name: &str| has(name).ok_or_else(|| format!("there is no column {name}"));
        if has("measured_us").is_some() {
            Ok(Form::Closed {
                op: find("op")?,
                block: find("blkno_512")?,
                blocks: find("bcount_512")?,
                measured: find("measured_us")?,
                think: find("next_inter_us")?,
            })
        } else if has("svc_start_us").is_some() {
            Ok(Form::Driver {
                t: find("t_us")?,
                op: find("op")?,
                off: find("off")?,
                len: find("len")?,
                start: find("svc_start_us")?,
                stop: find("svc_stop_us")?,
            })
        } else {
            Err("there is neither a column measured_us nor svc_start_us".into())
        }
    }
}

impl Rows {
    fn take(&mut self, line: &Line<'_>) -> Result<(), TraceError> {
        let row = line.split_commas();
        match self.form {
            Form::Closed { op, block, blocks, measured, think } => {
                let operation = operation(&row, op)?;
                let offset_bytes = row.bytes(block, "blkno_512", 512)?;
                let size_bytes = row.bytes(blocks, "bcount_512", 512)?;
                let service_ns = time(&row, measured, "measured_us")?;
                let next_think_ns = time(&row, think, "next_inter_us")?;
                self.ready.push_back(MeasuredRequest {
                    line: line.number,
                    column: row.column(block) as u32,
                    operation,
                    offset_bytes,
                    size_bytes,
                    think_ns: std::mem::replace(&mut self.next_think_ns, next_think_ns),
                    service_ns,
                });
            }
            Form::Driver { t, op, off, len, start, stop } => {
                let enqueued_ns = time(&row, t, "t_us")?;
                if enqueued_ns < self.enqueued_ns {
                    let problem = "earlier than the row before".to_owned();
                    return Err(row.problem(t, "t_us", problem));
                }
                let operation = operation(&row, op)?;
                let offset = row.number(off, "off")?;
                let size = row.number(len, "len")?;
                let start_ns = enqueued_ns + time(&row, start, "svc_start_us")?;
                let stop_ns = enqueued_ns + time(&row, stop, "svc_stop_us")?;
                if stop_ns < start_ns {
                    let problem = "the service stops before it starts".to_owned();
                    return Err(row.problem(stop, "svc_stop_us", problem));
                }
                if self.reorder.len() >= REORDER_ROWS_MAX {
                    let problem = format!("starts after {REORDER_ROWS_MAX} rows behind it");
                    return Err(row.problem(start, "svc_start_us", problem));
                }
                self.enqueued_ns = enqueued_ns;
                let write = operation == DiskOperation::Write;
                let waiting = (stop_ns, offset, size, write, line.number, row.column(off) as u32);
                self.reorder.push(Reverse((start_ns, line.number, waiting)));
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
}

fn operation(row: &Row<'_>, index: usize) -> Result<DiskOperation, TraceError> {
    match row.get(index, "op")? {
        "R" => Ok(DiskOperation::Read),
        "W" => Ok(DiskOperation::Write),
        _ => Err(row.expected(index, "op", "R or W")),
    }
}

fn time(row: &Row<'_>, index: usize, name: &'static str) -> Result<u64, TraceError> {
    let time_ns = row.time(index, name, 1000)?;
    if time_ns > TIME_NS_MAX {
        return Err(row.expected(index, name, "at most three years"));
    }
    Ok(time_ns)
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
        assert_eq!(shown, "t.csv:3:3: op: expected R or W, found `X`");
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
