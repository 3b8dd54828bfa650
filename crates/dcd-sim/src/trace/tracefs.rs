//! Block tracepoints as text: `/sys/kernel/tracing/trace` or `trace_pipe`, `trace-cmd report`, and
//! `perf script`, where the name of an event has `block:` before it. What they print of a request is
//! the kernel's `TP_printk` (`include/trace/events/block.h`).
//!
//! ```text
//! task-pid [cpu] flags seconds: block_bio_queue: 8,0 WS 1234 + 8 [task]
//! task-pid [cpu] flags seconds: block_rq_issue: 8,0 WS 4096 () 1234 + 8 [task]
//! task-pid [cpu] flags seconds: block_rq_complete: 8,0 WS () 1234 + 8 [0]
//! task pid [cpu] seconds:       block:block_rq_issue: 8,0 WS 4096 () 1234 + 8 [task]
//! ```
//!
//! Only one kind counts: if the first 64 KiB have any, those queued, else those issued, else those
//! completed, as with `blkparse`. Comments and other events are passed over.

use super::blkparse;
use super::error::TraceError;
use super::reader::{LineParser, Parsed};
use super::row::{Line, Row};
use super::rwbs::{self, Rwbs};

/// Best first.
const EVENTS: [&str; 3] = ["block_bio_queue:", "block_rq_issue:", "block_rq_complete:"];

/// Whether there is such an event.
pub(super) fn is_beginning(text: &str) -> bool {
    let is_event = |line: &str| EVENTS.iter().any(|event| place(line, event).is_some());
    text.starts_with("# tracer:") || text.lines().any(is_event)
}

/// Bytes at which the time of an event ends, and at which begins what is told of it; none if the
/// line is not of this event.
fn place(line: &str, event: &str) -> Option<(usize, usize)> {
    let mut names = line.match_indices(event);
    names.find_map(|(at, _)| {
        let before = &line[..at];
        let before = before.strip_suffix("block:").unwrap_or(before);
        let time = before.trim_end().strip_suffix(':')?;
        (time.len() + 1 < before.len()).then_some((time.len(), at + event.len()))
    })
}

/// Reads such text.
pub(super) struct Tracefs {
    event: &'static str,
}

impl Tracefs {
    /// For text that begins so.
    pub fn new(beginning: &str) -> Tracefs {
        let has = |event: &&str| beginning.lines().any(|line| place(line, event).is_some());
        let found = EVENTS.into_iter().find(has);
        Tracefs { event: found.unwrap_or(EVENTS[0]) }
    }

    /// Where in the row `sector + sectors` begins.
    fn range_field(&self, row: &Row<'_>) -> Result<usize, TraceError> {
        if self.event == EVENTS[0] {
            return Ok(2);
        }
        let closing = (2..row.count).find(|field| row.text(*field).ends_with(')'));
        let problem = "expected () before the sector, found the end".to_owned();
        Ok(closing.ok_or_else(|| row.problem(row.count, "command", problem))? + 1)
    }
}

impl LineParser for Tracefs {
    fn parse(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, TraceError> {
        if line.text.trim_start().starts_with('#') {
            return Ok(None);
        }
        let Some((end_of_time, begin)) = place(line.text, self.event) else { return Ok(None) };
        let before = &line.text[..end_of_time];
        let time_byte = before.rfind([' ', '\t']).map_or(0, |blank| blank + 1);
        let head = Line { text: before, ..*line }.split_blanks();
        let time_ns = head.time(head.count.saturating_sub(1), "time", 1_000_000_000)?;

        let row = line.split_blanks_from(begin);
        let device = blkparse::device(row.get(0, "device")?)
            .ok_or_else(|| row.expected(0, "device", "a device like 8,0"))?;
        let letters = row.get(1, "RWBS")?;
        let field = self.range_field(&row)?;
        row.get(field, "sector")?;
        let range = blkparse::range(&row, field)?;
        let meaning = rwbs::parse(letters, range.size_bytes > 0)
            .ok_or_else(|| row.expected(1, "RWBS", "letters like R, WS or FWFSM"))?;
        let Rwbs::Request(operation, flags) = meaning else { return Ok(None) };
        let mut request = row.request(time_ns, operation, &range)?;
        (request.device, request.flags) = (device, flags);
        Ok(Some(Parsed { request, time_byte }))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::reader_tests::{detected, read, refused};
    use crate::trace::{Flags, Operation, TraceFormat};

    const SAMPLE: &str = "# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
     kworker/u8:2-71      [001] d..1.  1234.500000: block_rq_issue: 8,0 WSM 4096 () 1234 + 8 be,0,4 [kworker/u8:2]
            a b c-1234    [000] d..1.  1234.500100: block_rq_issue: 8,0 FF 0 () 18446744073709551615 + 0 [a b c]
          <idle>-0        [000] ..s1.  1234.500200: block_rq_complete: 8,0 WSM () 1234 + 8 [0]
          <idle>-0        [000] ..s1.  1234.500300: sched_wakeup: comm=x pid=1
              dd-99       [000] d..1.  1234.500400: block_rq_issue: 8,0 R 512 (12 00 00) 0 + 1 [dd]
              dd-99       [000] d..1.  1234.500500: block_rq_issue: 8,0 N 36 (12 00 00) 0 + 0 [dd]
";

    #[test]
    fn issued_requests_are_read() {
        assert_eq!(detected(SAMPLE), TraceFormat::Tracefs);
        let requests = read(SAMPLE, None);
        let facts: Vec<_> =
            requests.iter().map(|r| (r.operation, r.offset_bytes, r.time_ns)).collect();
        let wanted = [
            (Operation::Write, 1234 * 512, 0),
            (Operation::Flush, 0, 100_000),
            (Operation::Read, 0, 400_000),
        ];
        assert_eq!(facts, wanted);
        assert_eq!(requests[0].flags, Flags::SYNC.with(Flags::METADATA));
    }

    #[test]
    fn queued_ones_come_first_and_completed_ones_last() {
        let queued =
            format!("{SAMPLE} dd-9 [000] d..1. 1234.6: block_bio_queue: 8,0 R 8 + 16 [dd]\n");
        let requests = read(&queued, None);
        assert_eq!((requests.len(), requests[0].size_bytes), (1, 16 * 512));
        let completed: String =
            SAMPLE.lines().filter(|l| !l.contains("issue")).map(|l| format!("{l}\n")).collect();
        assert_eq!(read(&completed, None)[0].offset_bytes, 1234 * 512);
    }

    #[test]
    fn what_perf_script_prints_is_read() {
        let text = "# ========
# captured on    : Mon Jan  5 10:00:00 2026
#
             fio  4242 [003]  5432.123456:      block:block_bio_queue: 259,0 WS 2048 + 8 [fio]
             fio  4242 [003]  5432.123460:       block:block_rq_issue: 259,0 WS 4096 () 2048 + 8 be,0,4 [fio]
        ffff8000 blk_mq_start_request ([kernel.kallsyms])

 kworker/u8:1-ev    71 [000]  5432.123500000: block:block_bio_queue: 8,16 FF 0 + 0 [kworker/u8:1]
         swapper     0 [003]  5432.123999:    block:block_rq_complete: 259,0 WS () 2048 + 8 [0]
";
        assert_eq!(detected(text), TraceFormat::Tracefs);
        let facts = |text: &str| -> Vec<_> {
            read(text, None).iter().map(|r| (r.operation, r.device, r.time_ns, r.line)).collect()
        };
        let write = (Operation::Write, 259 << 20, 0, 4);
        assert_eq!(facts(text), [write, (Operation::Flush, 8 << 20 | 16, 44_000, 8)]);
        let issued: String = text
            .lines()
            .filter(|line| !line.contains("bio_queue"))
            .map(|l| format!("{l}\n"))
            .collect();
        assert_eq!(facts(&issued), [(write.0, write.1, 0, 4)]);
        // A program may be called like an event.
        let text = "block_rq_issue: 1 [0] 1.5: block:block_rq_issue: 8,0 R 512 () 1 + 1 [x]\n";
        assert_eq!(facts(text).len(), 1);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let tracefs = Some(TraceFormat::Tracefs);
        let row =
            |rest: &str| refused(&format!("a-1 [0] . 1.5: block_rq_issue: {rest}\n"), tracefs);
        assert!(row("8,0 W 4096 () 12 +").starts_with("t:1:50: sectors: missing"));
        assert!(row("8,0 W 4096").starts_with("t:1:42: command: expected ()"));
        assert!(row("x W 4096 () 1 + 1").starts_with("t:1:32: device: expected a device"));
        assert!(row("8,0 Q 4096 () 1 + 1").starts_with("t:1:36: RWBS: expected letters"));
        let shown = refused("a-1 [0] . x: block_rq_issue: 8,0 R 512 () 1 + 1\n", tracefs);
        assert!(shown.starts_with("t:1:11: time: expected a time in seconds"), "{shown}");
    }
}
