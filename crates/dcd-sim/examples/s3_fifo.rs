//! The replacement policy of hot blocks alone, to compare and to time it.
//!
//! ```text
//! s3_fifo misses SLOTS < LINES     one number of a line in each row; prints misses, and those not taken in
//! s3_fifo time SLOTS READS         made-up reads; prints the time of one
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, stdin};
use std::time::Instant;

use dcd_engine::copies::s3_fifo::S3Fifo;
use dcd_engine::copies::scan_filter::{SCAN_BLOCKS_DEFAULT, ScanFilter};
use dcd_engine::line_hash::LineHash;
use dcd_engine::units::{CopySlot, LbaRange, Line};

/// The policy with the tables of an owner; lines are numbered from 0 without gaps.
struct Owner {
    policy: S3Fifo,
    line_of: Vec<Line>,
    slot_of: Vec<Option<CopySlot>>,
    misses: u64,
    /// Misses whose line was not taken in, because finding a slot would have taken too long.
    refused: u64,
}

impl Owner {
    fn new(slots: u32, lines: usize) -> Owner {
        let mut policy = S3Fifo::new(slots, LineHash::new(0));
        policy.add_slots(0..slots);
        Owner {
            policy,
            line_of: vec![Line(0); slots as usize],
            slot_of: vec![None; lines],
            misses: 0,
            refused: 0,
        }
    }

    fn read(&mut self, line: u64) {
        if let Some(slot) = self.slot_of[line as usize] {
            self.policy.hit(slot);
            return;
        }
        self.misses += 1;
        let line_of = |slot: CopySlot| self.line_of[slot.0 as usize];
        let Some(insertion) = self.policy.insert(Line(line), line_of, |_| false) else {
            self.refused += 1;
            return;
        };
        if let Some(departed) = insertion.departed {
            self.slot_of[departed.0 as usize] = None;
        }
        self.slot_of[line as usize] = Some(insertion.slot);
        self.line_of[insertion.slot.0 as usize] = Line(line);
    }
}

fn misses(slots: u32) -> Result<(), Box<dyn Error>> {
    let mut numbers = HashMap::new();
    let mut reads = Vec::new();
    for row in stdin().lock().lines() {
        let next = numbers.len() as u64;
        reads.push(*numbers.entry(row?.trim().parse::<u64>()?).or_insert(next));
    }
    let mut owner = Owner::new(slots, numbers.len());
    reads.iter().for_each(|&line| owner.read(line));
    println!("{} {}", owner.misses, owner.refused);
    Ok(())
}

fn time(slots: u32, reads: usize) {
    // Four lines for each slot, the first ones read most: the product of two even draws.
    let lines = 4 * u64::from(slots);
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    let reads: Vec<u64> =
        (0..reads).map(|_| draw() * draw() / (1 << 31) * lines / (1 << 31)).collect();
    let mut owner = Owner::new(slots, lines as usize);
    // Once to fill it, and once more for the clock.
    reads.iter().for_each(|&line| owner.read(line));
    owner.misses = 0;
    let begin = Instant::now();
    reads.iter().for_each(|&line| owner.read(line));
    let nanoseconds = begin.elapsed().as_nanos() as f64 / reads.len() as f64;
    let percent = 100.0 * owner.misses as f64 / reads.len() as f64;
    let bytes = owner.policy.memory_bytes() as f64 / f64::from(slots);
    println!("{nanoseconds:.0} ns for a read, {percent:.0} % missed; {bytes:.1} bytes for a slot");

    let mut filter = ScanFilter::new(SCAN_BLOCKS_DEFAULT);
    let begin = Instant::now();
    for &line in &reads {
        black_box(filter.is_scan(LbaRange::new(line * 8, 8)));
    }
    let nanoseconds = begin.elapsed().as_nanos() as f64 / reads.len() as f64;
    println!("{nanoseconds:.0} ns for a read in the scan filter");
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["misses", slots] => misses(slots.parse()?)?,
        ["time", slots, reads] => time(slots.parse()?, reads.parse()?),
        _ => return Err("usage: s3_fifo misses SLOTS < LINES, or s3_fifo time SLOTS READS".into()),
    }
    Ok(())
}
