//! A discard frees space on the data-disk, and zeroes that are to keep their space do not: also
//! when a restart comes between the request and the data-disk.

mod common;

use common::{Driver, Kind, LINE, never_idle};
use dcd_engine::{Device, LbaRange, Operation};

/// Requests that are in the log when the session ends: a discard, zeroes that may free, zeroes that
/// keep; and where they meet, the later one counts.
fn zeroes_in_the_log() -> Driver {
    let mut d = Driver::with(never_idle);
    let zeroes = |line: u64, lines: u64, may_unmap| Operation::WriteZeroes {
        range: LbaRange::new(line * 8, lines * 8),
        may_unmap,
    };
    let discard =
        |line: u64, lines: u64| Operation::Discard { range: LbaRange::new(line * 8, lines * 8) };
    for operation in [
        discard(100, 50),
        zeroes(200, 50, true),
        zeroes(300, 50, false),
        // Kept within freed, and freed within kept.
        discard(400, 50),
        zeroes(410, 10, false),
        zeroes(500, 50, false),
        discard(510, 10),
    ] {
        d.done(|d| d.submit(operation, false));
    }
    d
}

/// What was asked of the data-disk since: first line, lines, and whether it frees.
fn destaged_since(d: &Driver, mark: usize) -> Vec<(u64, u64, bool)> {
    let zeroes = d.started[mark..].iter().filter(|io| io.is(Device::DataDisk, Kind::WriteZeroes));
    let line = LINE as u64;
    let mut asked: Vec<_> =
        zeroes.map(|io| (io.offset / line, io.length / line, io.may_unmap)).collect();
    asked.sort_unstable();
    // Pieces of one range are one.
    let mut ranges: Vec<(u64, u64, bool)> = Vec::new();
    for (first, lines, frees) in asked {
        match ranges.last_mut() {
            Some((start, count, kind)) if *start + *count == first && *kind == frees => {
                *count += lines;
            }
            _ => ranges.push((first, lines, frees)),
        }
    }
    ranges
}

fn expected() -> Vec<(u64, u64, bool)> {
    vec![
        (100, 50, true),
        (200, 50, true),
        (300, 50, false),
        (400, 10, true),
        (410, 10, false),
        (420, 30, true),
        (500, 10, false),
        (510, 10, true),
        (520, 30, false),
    ]
}

#[test]
fn what_frees_space_does_so_without_a_restart() {
    let mut d = zeroes_in_the_log();
    let mark = d.started.len();
    d.drain();
    assert_eq!(destaged_since(&d, mark), expected());
}

#[test]
fn what_frees_space_does_so_after_a_restart() {
    type End = fn(&mut Driver);
    let ends: [(&str, End); 5] = [
        ("kill", |d| d.kill()),
        ("power cut", |d| {
            d.done(Driver::flush);
            d.power_cut();
        }),
        ("in order", |d| d.shut_down()),
        ("twice", |d| {
            d.kill_and_reopen();
            d.shut_down();
        }),
        ("checkpoint, then power cut", |d| {
            d.overwrite_segments(600, 12);
            d.power_cut();
        }),
    ];
    for (name, end) in ends {
        let mut d = zeroes_in_the_log();
        end(&mut d);
        d.reopen();
        let mark = d.started.len();
        d.drain();
        assert_eq!(destaged_since(&d, mark), expected(), "{name}");
    }
}

/// What could not be destaged is tried again as what it was; the others went on.
#[test]
fn a_failed_discard_stays_a_discard() {
    let mut d = zeroes_in_the_log();
    d.fail_next(Device::DataDisk, Kind::WriteZeroes, dcd_engine::IoError::Failed);
    let drain = d.submit(Operation::Drain, false);
    d.run_until(|d| d.status().counters.data_disk_errors > 0);
    d.finish_all();
    let mark = d.started.len();
    d.expect_ok(drain);
    assert_eq!(destaged_since(&d, mark), expected()[..1]);
}
