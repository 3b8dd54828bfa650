//! Proves that a reader finds the format, sorts within its window and no further, and counts times
//! from the first request.

use std::fmt::Write as _;
use std::io::Cursor;
use std::path::Path;

use super::reader::WINDOW;
use super::{Request, TraceError, TraceFormat, TraceReader};

pub(super) fn read_bytes(
    bytes: Vec<u8>,
    format: Option<TraceFormat>,
) -> Result<(TraceFormat, Vec<Request>), TraceError> {
    let reader = TraceReader::new(Path::new("t"), Box::new(Cursor::new(bytes)), format)?;
    Ok((reader.format(), reader.collect::<Result<_, _>>()?))
}

#[track_caller]
pub(super) fn detected(text: &str) -> TraceFormat {
    read_bytes(text.as_bytes().to_vec(), None).unwrap_or_else(|error| panic!("{error}")).0
}

#[track_caller]
pub(super) fn read(text: &str, format: Option<TraceFormat>) -> Vec<Request> {
    read_bytes(text.as_bytes().to_vec(), format).unwrap_or_else(|error| panic!("{error}")).1
}

/// The error that `text` must be, one line.
#[track_caller]
pub(super) fn refused(text: &str, format: Option<TraceFormat>) -> String {
    let shown = read_bytes(text.as_bytes().to_vec(), format).unwrap_err().to_string();
    assert!(!shown.contains(char::is_control), "{shown:?}");
    shown
}

#[test]
fn what_looks_like_no_trace_is_refused() {
    assert_eq!(refused("", None), "t: the trace has no requests");
    assert!(refused("a,b\u{1b}[2J\n1,2\n", None).ends_with("it begins with `a,b\\u{1b}[2J`"));
    let hint = read_bytes(b"\0\0\0".to_vec(), None).unwrap_err().hint().unwrap();
    assert!(hint.contains("--format: csv, blkparse, blktrace"), "{hint}");
    for format in TraceFormat::ALL {
        assert_eq!(format.name().parse(), Ok(format));
        if format != TraceFormat::Parquet {
            assert!(read_bytes(Vec::new(), Some(format)).unwrap().1.is_empty());
        }
    }
    // What has its index at the end cannot come as a stream.
    let streamed = read_bytes(b"PAR1".to_vec(), None).unwrap_err().to_string();
    assert_eq!(streamed, "t: cannot read the Parquet trace: expected a file, found a stream");
    assert!("hp".parse::<TraceFormat>().is_err());
}

/// More empty lines than are looked at for the format: they are passed over, up to their bound.
#[test]
fn a_trace_may_begin_with_many_empty_lines() {
    for blank in ["\n", " \r\n"] {
        let rows = "t_us,op,off,len\n30,R,1,1\n40,R,2,x\n";
        let text = blank.repeat(150_000) + rows;
        let shown = refused(&text, None);
        assert!(shown.starts_with("t:150003:"), "{shown}");
        assert_eq!(read(&text[..text.len() - 9], None).len(), 1);
        let shown = refused(&(blank.repeat(3 << 20) + rows), None);
        assert!(shown.contains("empty lines in a row"), "{shown}");
    }
    let shown = refused(&" ".repeat(200_000), None);
    assert!(shown.contains("line 1 is longer than"), "{shown}");
}

#[test]
fn requests_come_in_order_of_time_and_equals_as_in_the_file() {
    let text = "t_us,op,off,len\n30,R,1,1\n10,R,2,1\n20,R,3,1\n10,R,4,1\n";
    let facts: Vec<_> = read(text, None).iter().map(|r| (r.time_ns, r.offset_bytes)).collect();
    assert_eq!(facts, [(0, 2), (0, 4), (10_000, 3), (20_000, 1)]);
}

#[test]
fn what_is_too_late_for_the_window_is_an_error() {
    let late_after = |rows: usize| {
        let mut text = "t_us,op,off,len\n".to_owned();
        for row in 0..rows {
            writeln!(text, "{},R,0,1", 100 + row).unwrap();
        }
        text + " 5,R,0,1\n"
    };
    assert_eq!(read(&late_after(WINDOW), None).len(), WINDOW + 1);
    let text = late_after(WINDOW + 1);
    let shown = refused(&text, None);
    let wanted = format!("t:{}:2: time: earlier than a request", WINDOW + 3);
    assert!(shown.starts_with(&wanted), "{shown}");
}

#[test]
fn a_century_is_the_longest_trace() {
    let far = format!("t_us,op,off,len\n0,R,0,1\n{},R,0,1\n", u64::MAX / 1000);
    assert!(refused(&far, None).contains("more than a century"), "{far}");
    // Late times are no matter if the trace is short.
    let late = format!("t_us,op,off,len\n{0},R,0,1\n{0},R,0,1\n", u64::MAX / 1000);
    assert_eq!(read(&late, None).len(), 2);
}

#[test]
fn nothing_comes_after_an_error() {
    let text = b"t_us,op,off,len\n1,R,0,1\nx,R,0,1\n2,R,0,1\n".to_vec();
    let mut reader = TraceReader::new(Path::new("t"), Box::new(Cursor::new(text)), None).unwrap();
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
}
