//! Traces of all formats, profiles of disks, and workloads.

use std::io::Cursor;
use std::path::Path;

use dcd_daemon::units_text::{parse_duration, parse_size};
use dcd_engine::{Duration, Time};
use dcd_sim::disk::model::{DiskModel, DiskOperation, DiskRequest};
use dcd_sim::disk::price::Usage;
use dcd_sim::disk::profile::Profile;
use dcd_sim::trace::measured::MeasuredReader;
use dcd_sim::trace::write_csv::CsvWriter;
use dcd_sim::trace::{Request, TraceError, TraceFormat, TraceInput, TraceReader};
use dcd_sim::workload::{UnitParsers, WorkloadSpec};

use crate::text::assert_shown_safely;

/// The first byte chooses the format: none of them, or one whatever the rest looks like; the last
/// is that of measured service times.
pub(crate) fn trace(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let choice = usize::from(*choice) % (TraceFormat::ALL.len() + 2);
    if choice > TraceFormat::ALL.len() {
        measured(bytes);
        return;
    }
    let format = choice.checked_sub(1).map(|index| TraceFormat::ALL[index]);
    match read(bytes, format) {
        Ok(requests) => check(&requests),
        Err(error) => check_error(&error),
    }
}

/// What is packed in some way, or in several.
pub(crate) fn trace_packed(bytes: &[u8]) {
    let file = Box::new(Cursor::new(bytes.to_vec()));
    let input = TraceInput::packed(Path::new("trace"), file, bytes.len() as u64);
    let requests = input
        .and_then(|input| TraceReader::from_input(input, None))
        .and_then(Iterator::collect::<Result<Vec<Request>, TraceError>>);
    match requests {
        Ok(requests) => check(&requests),
        Err(error) => check_error(&error),
    }
}

fn read(bytes: &[u8], format: Option<TraceFormat>) -> Result<Vec<Request>, TraceError> {
    let input = Box::new(Cursor::new(bytes.to_vec()));
    TraceReader::new(Path::new("trace"), input, format)?.collect()
}

/// Requests are in order of time from zero, and the same after a way through CSV.
fn check(requests: &[Request]) {
    assert!(requests.first().is_none_or(|first| first.time_ns == 0));
    assert!(requests.is_sorted_by_key(|request| request.time_ns));
    let mut writer = CsvWriter::new(Vec::new()).expect("memory has no errors");
    for request in requests {
        assert!(request.offset_bytes.checked_add(request.size_bytes).is_some());
        writer.write(request).expect("memory has no errors");
    }
    let csv = writer.finish().expect("memory has no errors");
    let again = read(&csv, None).unwrap_or_else(|error| panic!("{error}"));
    let placeless = |request: &Request| Request { line: 0, column: 0, ..*request };
    assert!(again.iter().map(placeless).eq(requests.iter().map(placeless)));
}

fn check_error(error: &TraceError) {
    let message = error.to_string();
    assert!(message.starts_with("trace:"), "{message}");
    assert!(message.len() < 1000, "{message}");
    assert_shown_safely(&message);
    let _ = error.hint().map(|hint| assert_shown_safely(&hint));
}

fn measured(bytes: &[u8]) {
    let input = Box::new(Cursor::new(bytes.to_vec()));
    let read = MeasuredReader::new(Path::new("trace"), input).and_then(|mut reader| {
        while reader.next_request()?.is_some() {}
        Ok(())
    });
    if let Err(error) = read {
        check_error(&error);
    }
}

/// A disk serves, or refuses what is not in order.
fn serve_some(profile: &Profile) {
    let mut disk = DiskModel::behind_log(profile, 1).expect("the profile was checked");
    let size_bytes = disk.capacity_bytes().min(4096);
    let mut now = Time::ZERO;
    for operation in [
        DiskOperation::Write,
        DiskOperation::Read,
        DiskOperation::Flush,
        DiskOperation::Write,
        DiskOperation::Read,
    ] {
        let request = DiskRequest { id: 0, operation, offset_bytes: 0, size_bytes };
        if let Ok(done) = disk.serve(now, request) {
            assert!(done.completed >= now);
            now = done.completed.after(Duration::from_secs(100));
        }
    }
    if let Some(price) = disk.price() {
        let usage = Usage {
            traffic: disk.traffic(),
            reads_per_second: 0.0,
            room_bytes: disk.capacity_bytes(),
            capacity_bytes: disk.capacity_bytes(),
            endurance_tbw: disk.endurance_tbw(),
        };
        assert!(price.month(&usage, now.0 as f64 / 1e9).is_none_or(|cost| cost.usd() >= 0.0));
    }
}

/// What is accepted as a profile is a disk.
pub(crate) fn disk_profile(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Profile::parse(Path::new("disk.toml"), text) {
        Ok(profile) => {
            let disk = DiskModel::new(&profile, 1).expect("the profile was checked");
            assert!(disk.capacity_bytes() > 0);
            serve_some(&profile);
        }
        Err(error) => {
            assert_shown_safely(&error.to_string());
            let _ = error.hint().map(|hint| assert_shown_safely(&hint));
        }
    }
}

/// Requests of a workload that are looked at.
const REQUESTS_SEEN: usize = 300;

/// What is accepted can be read again, and makes requests in order of time.
pub(crate) fn workload(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let units = UnitParsers {
        size: |text| parse_size(text).ok(),
        time: |text| u64::try_from(parse_duration(text).ok()?.as_nanos()).ok(),
    };
    let workload = WorkloadSpec::parse(text, units).and_then(|spec| {
        let requests = spec.workload()?;
        Ok(requests.take(REQUESTS_SEEN).collect::<Vec<_>>())
    });
    match workload {
        Ok(requests) => {
            assert!(requests.is_sorted_by_key(|request| request.time_ns));
            for request in requests {
                assert!(request.offset_bytes.checked_add(request.size_bytes).is_some());
            }
        }
        Err(error) => assert_shown_safely(&error.to_string()),
    }
}
