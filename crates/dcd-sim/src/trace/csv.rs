//! The project's CSV: `t_us,op,dev,off,len,fl,lat_us`, in the order of its first line.
//!
//! `t_us`, `op` (R, W, D, F), `off` and `len` must be there. `dev` may be called `disk`; `fl` is
//! the sum of [`Flags`]; `lat_us` may be empty, or -1, where it is not known. Traces of hplajw have
//! `svc_stop_us`, which is the same, and columns that are passed over. A column of any other name
//! is an error: it may be a misspelt one.

use super::error::{TraceError, shortened};
use super::reader::{LineParser, Parsed};
use super::row::{FIELDS_MAX, Line, Range, Row};
use super::{Flags, Operation};

/// Of hplajw, not needed here.
const PASSED_OVER: [&str; 6] = ["svc_start_us", "cyl", "section", "qlen", "rawflags", "info"];

/// Whether it is the first line of such a trace.
pub(super) fn is_header(row: &Row<'_>) -> bool {
    (0..row.count).any(|index| row.text(index) == "t_us")
}

/// Which columns are where.
#[derive(Clone, Copy)]
struct Columns {
    time: usize,
    operation: usize,
    offset: usize,
    size: usize,
    device: Option<usize>,
    flags: Option<usize>,
    latency: Option<usize>,
}

impl Columns {
    fn of(header: &Row<'_>) -> Result<Columns, TraceError> {
        let [mut time, mut operation, mut offset, mut size] = [None; 4];
        let [mut device, mut flags, mut latency] = [None; 3];
        for index in 0..header.count {
            let column = match header.text(index) {
                "t_us" => &mut time,
                "op" => &mut operation,
                "off" => &mut offset,
                "len" => &mut size,
                "dev" | "disk" => &mut device,
                "fl" => &mut flags,
                "lat_us" | "svc_stop_us" => &mut latency,
                name if PASSED_OVER.contains(&name) => continue,
                _ => {
                    let what = "one of the columns t_us, op, off, len, dev, fl, lat_us";
                    return Err(header.expected(index, "header", what));
                }
            };
            if column.replace(index).is_some() {
                let problem = format!("a second column `{}`", shortened(header.text(index)));
                return Err(header.problem(index, "header", problem));
            }
        }
        let needed = |column: Option<usize>, name| {
            let problem = format!("expected a column {name}, found none");
            column.ok_or_else(|| header.problem(FIELDS_MAX, "header", problem))
        };
        Ok(Columns {
            time: needed(time, "t_us")?,
            operation: needed(operation, "op")?,
            offset: needed(offset, "off")?,
            size: needed(size, "len")?,
            device,
            flags,
            latency,
        })
    }
}

/// Reads the project's CSV.
#[derive(Default)]
pub(super) struct Csv {
    columns: Option<Columns>,
}

impl LineParser for Csv {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        let row = line.split_commas();
        let Some(columns) = self.columns else {
            self.columns = Some(Columns::of(&row)?);
            return Ok(None);
        };
        let time_ns = row.time(columns.time, "t_us", 1000)?;
        let operation = match row.get(columns.operation, "op")? {
            "R" => Operation::Read,
            "W" => Operation::Write,
            "D" => Operation::Discard,
            "F" => Operation::Flush,
            _ => return Err(row.expected(columns.operation, "op", "R, W, D or F")),
        };
        let range = Range {
            field: columns.offset,
            offset_bytes: row.number(columns.offset, "off")?,
            size_bytes: row.number(columns.size, "len")?,
        };
        let mut request = row.request(time_ns, operation, &range)?;
        if let Some(device) = columns.device {
            request.device = row.small(device, "dev")?;
        }
        if let Some(index) = columns.flags {
            let flags = row.small(index, "fl")?;
            if flags > u32::from(Flags::ALL.0) {
                return Err(row.expected(index, "fl", "a sum of 1, 2, 4, 8 and 16"));
            }
            request.flags = Flags(flags as u8);
        }
        if let Some(latency) = columns.latency
            && !matches!(row.text(latency), "" | "-1")
        {
            request.latency_ns = Some(row.time(latency, "lat_us", 1000)?);
        }
        Ok(Some(Parsed { request, time_byte: row.byte(columns.time) }))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Flags, Operation, TraceFormat};

    const CSV: Option<TraceFormat> = Some(TraceFormat::Csv);

    #[test]
    fn columns_are_found_by_name() {
        let text = "t_us,op,dev,off,len,fl,lat_us\n100,R,3,4096,512,8,17.5\n101.5,F,3,0,0,0,\r\n\n102,R,3,0,1,0,-1\n";
        assert_eq!(detected(text), TraceFormat::Csv);
        let requests = read(text, None);
        assert_eq!(requests[0].latency_ns, Some(17_500));
        assert_eq!((requests[0].device, requests[0].flags), (3, Flags::METADATA));
        assert_eq!((requests[0].offset_bytes, requests[0].size_bytes), (4096, 512));
        // Times count from the first.
        assert_eq!((requests[0].time_ns, requests[1].time_ns), (0, 1500));
        assert_eq!((requests[1].operation, requests[1].latency_ns), (Operation::Flush, None));
        assert_eq!(requests[2].latency_ns, None);
        let other = read("len,off,op,t_us\n512,1024,W,7\n", None);
        assert_eq!((other[0].offset_bytes, other[0].size_bytes), (1024, 512));
        let hp = "t_us,op,disk,off,len,fl,svc_start_us,svc_stop_us,cyl,section,qlen,rawflags,info\n\
                  35,R,0,3137536,2048,1,85,32924,13,15,1,0x1b,0x70000\n";
        assert_eq!(read(hp, None)[0].latency_ns, Some(32_924_000));
        assert_eq!(read("t_us,op,off,len\n", None), []);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let header = "t_us,op,off,len,fl\n";
        for (text, wanted) in [
            ("t_us,op,off,len,fll\n", "t:1:17: header: expected one of the columns"),
            ("t_us,op,len\n", "t:1:12: header: expected a column off"),
            ("t_us,op,off,len,op\n", "t:1:17: header: a second column `op`"),
            ("t_us,op,off,len,fl\n1,Q,0,1,0\n", "t:2:3: op: expected R, W, D or F, found `Q`"),
            ("t_us,op,off,len,fl\n1,R,0\n", "t:2:6: len: missing: the line ends before it"),
            ("t_us,op,off,len,fl\n1,R,,1,0\n", "t:2:5: off: missing: the field is empty"),
            ("t_us,op,off,len,fl\n-1,R,0,1,0\n", "t:2:1: t_us: expected a time in micro"),
            ("t_us,op,off,len,fl\n1,R,0,1,32\n", "t:2:9: fl: expected a sum"),
            ("t_us,op,off,len,fl\n1,R,18446744073709551615,1,0\n", "t:2:5: address: 1 bytes at"),
            ("t_us,op,off,len,fl\n1,R,0,9999999999,0\n", "t:2:5: size: expected at most 1 GiB"),
        ] {
            let shown = refused(text, CSV);
            assert!(shown.starts_with(wanted), "{shown}");
        }
        let huge = format!("{header}1,R,{},1,0\n", "9".repeat(60_000));
        let shown = refused(&huge, CSV);
        assert!(shown.starts_with("t:2:5: off: expected") && shown.len() < 200, "{shown}");
        let longer = format!("{header}{}", "9".repeat(70_000));
        assert!(refused(&longer, CSV).contains("line 2 is longer than"));
    }
}
