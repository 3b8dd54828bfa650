//! Reads a trace of any format: tells the format by content, and puts requests into order of time.
//!
//! Traces are nearly sorted at best: several processors write them. A request may be recorded after
//! [`WINDOW`] later ones (Tencent's: [`WINDOW_TENCENT`]); more is an error, because sorting takes
//! memory.

use std::fmt;
use std::io::BufRead;
use std::path::Path;
use std::str::FromStr;

use super::blktrace::Blktrace;
use super::error::shortened;
use super::order::Order;
use super::row::Line;
use super::srt::Srt;
use super::{
    Request, TraceError, TraceInput, alibaba, biosnoop, blkparse, blktrace, csv, disksim, fio,
    fio_latency, fiu, msr, oracle_general, parquet, spc, srt, systor, tencent, tracefs, vscsi,
};

/// So many requests may be recorded before an earlier one.
pub const WINDOW: usize = 4096;
/// The same of Tencent's traces, which are published with rows that are late by 25,640.
pub const WINDOW_TENCENT: usize = 65_536;
/// Longest trace: a century. Times of a simulation then stay within 64 bits.
const DURATION_NS_MAX: u64 = 100 * 366 * 86_400 * 1_000_000_000;

/// A format of traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceFormat {
    /// The project's: a first line with the names of the columns.
    Csv,
    /// What `blkparse` prints.
    Blkparse,
    /// What `blktrace` writes, one processor's or merged by `blkparse -d`.
    Blktrace,
    /// Block tracepoints as tracefs or `trace-cmd report` shows them.
    Tracefs,
    /// fio's `write_iolog`, version 1, 2 or 3.
    Fio,
    /// Storage Performance Council; UMass repository.
    Spc,
    /// Microsoft Research Cambridge.
    Msr,
    /// Alibaba block traces of 2020.
    Alibaba,
    /// Tencent block storage traces.
    Tencent,
    /// HP Laboratories, on disks with sectors of 512 bytes.
    Srt,
    /// The same, with sectors of 256 bytes.
    Srt256,
    /// The project's columns in Parquet.
    Parquet,
    /// Fujitsu's of SYSTOR '17.
    Systor,
    /// Florida International University's.
    Fiu,
    /// DiskSim's format `ascii`.
    Disksim,
    /// What bcc's `biosnoop` prints.
    Biosnoop,
    /// fio's logs of latencies with offsets.
    FioLatency,
    /// CloudPhysics' vscsi.
    Vscsi,
    /// libCacheSim's oracleGeneral, as reads.
    OracleGeneral,
}

impl TraceFormat {
    /// All of them.
    pub const ALL: [TraceFormat; 19] = [
        TraceFormat::Csv,
        TraceFormat::Blkparse,
        TraceFormat::Blktrace,
        TraceFormat::Tracefs,
        TraceFormat::Fio,
        TraceFormat::Spc,
        TraceFormat::Msr,
        TraceFormat::Alibaba,
        TraceFormat::Tencent,
        TraceFormat::Srt,
        TraceFormat::Srt256,
        TraceFormat::Parquet,
        TraceFormat::Systor,
        TraceFormat::Fiu,
        TraceFormat::Disksim,
        TraceFormat::Biosnoop,
        TraceFormat::FioLatency,
        TraceFormat::Vscsi,
        TraceFormat::OracleGeneral,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            TraceFormat::Csv => "csv",
            TraceFormat::Blkparse => "blkparse",
            TraceFormat::Blktrace => "blktrace",
            TraceFormat::Tracefs => "tracefs",
            TraceFormat::Fio => "fio",
            TraceFormat::Spc => "spc",
            TraceFormat::Msr => "msr",
            TraceFormat::Alibaba => "alibaba",
            TraceFormat::Tencent => "tencent",
            TraceFormat::Srt => "srt",
            TraceFormat::Srt256 => "srt-256",
            TraceFormat::Parquet => "parquet",
            TraceFormat::Systor => "systor",
            TraceFormat::Fiu => "fiu",
            TraceFormat::Disksim => "disksim",
            TraceFormat::Biosnoop => "biosnoop",
            TraceFormat::FioLatency => "fio-lat",
            TraceFormat::Vscsi => "vscsi",
            TraceFormat::OracleGeneral => "oracle-general",
        }
    }

    /// So many requests may be recorded before an earlier one.
    fn window(self) -> usize {
        match self {
            TraceFormat::Tencent => WINDOW_TENCENT,
            _ => WINDOW,
        }
    }

    /// Whether it is lines; else records.
    fn is_text(self) -> bool {
        !matches!(
            self,
            TraceFormat::Blktrace
                | TraceFormat::Srt
                | TraceFormat::Srt256
                | TraceFormat::Parquet
                | TraceFormat::Vscsi
                | TraceFormat::OracleGeneral
        )
    }

    /// The format of a trace that begins so.
    fn of(beginning: &[u8]) -> Option<TraceFormat> {
        if blktrace::is_magic(beginning) {
            return Some(TraceFormat::Blktrace);
        }
        if parquet::is_magic(beginning) {
            return Some(TraceFormat::Parquet);
        }
        if srt::is_beginning(beginning) {
            return Some(TraceFormat::Srt);
        }
        if vscsi::is_beginning(beginning) {
            return Some(TraceFormat::Vscsi);
        }
        if oracle_general::is_beginning(beginning) {
            return Some(TraceFormat::OracleGeneral);
        }
        let text = String::from_utf8_lossy(beginning);
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let first = lines.next()?;
        if fio::version(first).is_some() {
            return Some(TraceFormat::Fio);
        }
        if tracefs::is_beginning(&text) {
            return Some(TraceFormat::Tracefs);
        }
        if blkparse::is_beginning(&text) {
            return Some(TraceFormat::Blkparse);
        }
        let line = Line { path: Path::new(""), number: 1, text: first };
        let row = line.split_commas();
        let words = line.split_blanks();
        [
            (csv::is_header(&row), TraceFormat::Csv),
            (msr::is_row(&row), TraceFormat::Msr),
            (systor::is_row(&row), TraceFormat::Systor),
            (spc::is_row(&row), TraceFormat::Spc),
            (alibaba::is_row(&row), TraceFormat::Alibaba),
            (fio_latency::is_row(&row), TraceFormat::FioLatency),
            (tencent::is_row(&row), TraceFormat::Tencent),
            (fio::is_row(&row), TraceFormat::Fio),
            (biosnoop::is_header(&words), TraceFormat::Biosnoop),
            (fiu::is_row(&words), TraceFormat::Fiu),
            (disksim::is_row(&words), TraceFormat::Disksim),
        ]
        .into_iter()
        .find_map(|(is, format)| is.then_some(format))
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// No format is called so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no trace format is called `{}`", shortened(.0))]
pub struct UnknownFormat(String);

impl FromStr for TraceFormat {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<TraceFormat, UnknownFormat> {
        let found = TraceFormat::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

/// A request out of a line, and where in the line its time is.
pub(super) struct Parsed {
    pub request: Request,
    pub time_byte: usize,
}

/// Makes requests of lines.
pub(super) trait LineParser {
    /// The request in a line; none if the line tells something else.
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError>;

    /// What the trace calls a disk, where it has names and not numbers.
    fn device_name(&self, _device: u32) -> Option<String> {
        None
    }
}

/// Makes requests of records.
pub(super) trait RecordParser {
    /// The next request; none at the end.
    fn next(&mut self, input: &mut TraceInput) -> Result<Option<Request>, TraceError>;
}

enum Parser {
    Lines(Box<dyn LineParser>),
    Records(Box<dyn RecordParser>),
}

/// That Parquet, whose end is read first, cannot come as a stream.
pub(super) fn no_stream(path: &Path) -> TraceError {
    let problem = "expected a file, found a stream".to_owned();
    TraceError::Parquet { path: path.to_owned(), problem }
}

/// Reads a trace request by request, in order of time.
pub struct TraceReader {
    input: TraceInput,
    format: TraceFormat,
    parser: Parser,
    /// Read and not yet given out.
    window: Order,
    /// Times of the first and the last request that was given out, as in the file.
    given_ns: Option<(u64, u64)>,
    ended: bool,
}

impl TraceReader {
    /// Opens a trace, of that format or of the one that it looks like.
    ///
    /// # Errors
    /// When it cannot be read, or looks like no trace.
    pub fn open(path: &Path, format: Option<TraceFormat>) -> Result<TraceReader, TraceError> {
        TraceReader::of(TraceInput::open(path)?, format, parquet::open)
    }

    /// The trace in `bytes`, which came from `path`.
    ///
    /// # Errors
    /// When it cannot be read, or looks like no trace.
    pub fn new(
        path: &Path,
        bytes: Box<dyn BufRead>,
        format: Option<TraceFormat>,
    ) -> Result<TraceReader, TraceError> {
        TraceReader::from_input(TraceInput::new(path, bytes), format)
    }

    /// The trace in `input`.
    ///
    /// # Errors
    /// When it cannot be read, or looks like no trace.
    pub fn from_input(
        input: TraceInput,
        format: Option<TraceFormat>,
    ) -> Result<TraceReader, TraceError> {
        TraceReader::of(input, format, |path| Err(no_stream(path)))
    }

    fn of(
        mut input: TraceInput,
        format: Option<TraceFormat>,
        parquet: impl FnOnce(&Path) -> Result<Box<dyn RecordParser>, TraceError>,
    ) -> Result<TraceReader, TraceError> {
        // Whoever names a format of records has no lines that could be left out.
        let beginning = input.beginning(format.is_none_or(TraceFormat::is_text))?;
        let format = format.or_else(|| TraceFormat::of(&beginning)).ok_or_else(|| {
            let (path, text) = (input.path().to_owned(), String::from_utf8_lossy(&beginning));
            match text.lines().find(|line| !line.trim().is_empty()) {
                Some(line) => {
                    let problem = format!("it begins with `{}`", shortened(line));
                    TraceError::Format { path, problem }
                }
                None => TraceError::Empty { path },
            }
        })?;
        let text = || String::from_utf8_lossy(&beginning);
        let lines: Box<dyn LineParser> = match format {
            TraceFormat::Blktrace
            | TraceFormat::Srt
            | TraceFormat::Srt256
            | TraceFormat::Vscsi
            | TraceFormat::OracleGeneral
            | TraceFormat::Parquet => {
                let parser: Box<dyn RecordParser> = match format {
                    TraceFormat::Srt => Box::new(Srt::new(512)),
                    TraceFormat::Srt256 => Box::new(Srt::new(256)),
                    TraceFormat::Parquet => parquet(input.path())?,
                    TraceFormat::Vscsi => Box::new(vscsi::Vscsi::new(&beginning)),
                    TraceFormat::OracleGeneral => {
                        Box::new(oracle_general::OracleGeneral::new(&beginning))
                    }
                    _ => Box::new(Blktrace::new(&beginning)),
                };
                return Ok(TraceReader::with(input, format, Parser::Records(parser)));
            }
            TraceFormat::Csv => Box::new(csv::Csv::default()),
            TraceFormat::Blkparse => Box::new(blkparse::Blkparse::new(&text())),
            TraceFormat::Tracefs => Box::new(tracefs::Tracefs::new(&text())),
            TraceFormat::Fio => Box::new(fio::Fio::default()),
            TraceFormat::Spc => Box::new(spc::Spc),
            TraceFormat::Msr => Box::new(msr::Msr),
            TraceFormat::Alibaba => Box::new(alibaba::Alibaba),
            TraceFormat::Tencent => Box::new(tencent::Tencent),
            TraceFormat::Systor => Box::new(systor::Systor),
            TraceFormat::Fiu => Box::new(fiu::Fiu),
            TraceFormat::Disksim => Box::new(disksim::Disksim),
            TraceFormat::Biosnoop => Box::new(biosnoop::Biosnoop::default()),
            TraceFormat::FioLatency => Box::new(fio_latency::FioLatency::new(&text())),
        };
        Ok(TraceReader::with(input, format, Parser::Lines(lines)))
    }

    fn with(input: TraceInput, format: TraceFormat, parser: Parser) -> TraceReader {
        let window = Order::default();
        TraceReader { input, format, parser, window, given_ns: None, ended: false }
    }

    /// Which format it is.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    /// What people call a disk of the trace: the name that it has there, or Linux's two numbers;
    /// none if it has but a number.
    pub fn device_name(&self, device: u32) -> Option<String> {
        match (&self.parser, self.format) {
            (_, TraceFormat::Blkparse | TraceFormat::Blktrace | TraceFormat::Tracefs)
            | (_, TraceFormat::Fiu) => Some(format!("{},{}", device >> 20, device & 0xf_ffff)),
            (Parser::Lines(parser), _) => parser.device_name(device),
            (Parser::Records(_), _) => None,
        }
    }

    /// How much of the file has been read, and its size, as it is on disk.
    pub fn progress_bytes(&self) -> (u64, u64) {
        self.input.progress_bytes()
    }

    /// What to say of a request that its reader cannot use.
    pub fn refused(&self, request: &Request, name: &'static str, problem: String) -> TraceError {
        TraceError::Field {
            path: self.input.path().to_owned(),
            line: request.line,
            column: request.column as usize,
            name,
            problem,
        }
    }

    /// Reads one more request into the window; false at the end.
    fn read_one(&mut self) -> Result<bool, TraceError> {
        let last_ns = self.given_ns.map_or(0, |(_, last_ns)| last_ns);
        let window = self.format.window();
        let too_early =
            || format!("earlier than a request more than {window} before it: sort the trace");
        let request = match &mut self.parser {
            Parser::Records(parser) => {
                let Some(request) = parser.next(&mut self.input)? else { return Ok(false) };
                if request.time_ns < last_ns {
                    return Err(self.refused(&request, "time", too_early()));
                }
                request
            }
            Parser::Lines(parser) => loop {
                let Some(line) = self.input.next_line()? else { return Ok(false) };
                if line.text.trim().is_empty() {
                    continue;
                }
                let Some(parsed) = parser.parse(&line)? else { continue };
                if parsed.request.time_ns < last_ns {
                    return Err(line.problem(parsed.time_byte, "time", too_early()));
                }
                break parsed.request;
            },
        };
        self.window.push(request);
        Ok(true)
    }

    fn give(&mut self) -> Option<Result<Request, TraceError>> {
        let mut request = self.window.pop()?;
        let (first_ns, _) = self.given_ns.unwrap_or((request.time_ns, 0));
        self.given_ns = Some((first_ns, request.time_ns));
        request.time_ns -= first_ns;
        if request.time_ns > DURATION_NS_MAX {
            self.ended = true;
            self.window.clear();
            let problem = "more than a century after the first request".to_owned();
            return Some(Err(self.refused(&request, "time", problem)));
        }
        Some(Ok(request))
    }
}

impl Iterator for TraceReader {
    type Item = Result<Request, TraceError>;

    /// The next request. Nothing comes after an error.
    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended && self.window.len() <= self.format.window() {
            match self.read_one() {
                Ok(true) => {}
                Ok(false) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    self.window.clear();
                    return Some(Err(error));
                }
            }
        }
        self.give()
    }
}
