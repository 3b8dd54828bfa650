//! What grows with the cache, and what must not: memory, opening, checkpoints, trims, starts after
//! a crash. The engine is the real one; its disks need no room ([`machine`]).

mod machine;

use std::time::Duration;

use dcd_engine::{DataDiskInfo, Geometry, Lba, LbaRange, Operation};

use self::machine::Machine;
pub use self::machine::{STEP_MAX, Steps};
use crate::random::Random;
use crate::target::log::LogError;
use crate::target::setup::SetupError;

const LINE_BYTES: u64 = 4096;
const SEGMENT_BYTES: u64 = 1 << 20;
const BLOCKS_PER_LINE: u64 = 8;
/// Requests that wait at a time.
const DEPTH: u64 = 32;
/// The data-disk is so many times as large as the cache.
const DATA_DISK_SIZES: u64 = 4;
/// Blocks of each piece of the first half of a trim, 1 GiB: file systems trim a large disk so.
const TRIM_BLOCKS: u64 = 1 << 21;

/// What is measured at one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Size of the cache-disk.
    pub cache_bytes: u64,
    /// So many lines are written, or as many as fit; then the cache is full and writes wait for
    /// room.
    pub lines: Option<u64>,
    /// Memory for the index, in bytes; 0: all of it is in memory.
    pub index_bytes_max: u64,
}

/// What costs what at one size. Times are the processor's but where they are called virtual.
#[derive(Clone, Debug, Default)]
pub struct ScaleFacts {
    /// Memory of an open cache with nothing in it.
    pub empty_memory_bytes: u64,
    /// Opening it.
    pub empty_open: Duration,
    /// Lines in the log when it was filled.
    pub lines: u64,
    /// Memory for each of them, without that of the empty cache.
    pub memory_bytes_per_line: f64,
    /// Writes per second of the processor while it was filled.
    pub fill_per_second: f64,
    /// The calls of the engine while it was filled.
    pub fill_steps: Steps,
    /// With a full cache; none if it was not filled.
    pub full: Option<FullFacts>,
    /// A start after the machine died.
    pub restart: RestartFacts,
    /// The calls while the whole data-disk was trimmed, half of it in many pieces.
    pub trim_steps: Steps,
    /// All calls of the engine.
    pub all_steps: Steps,
    /// Steps of a loop that only counts, among them: what is as long there is the machine's.
    pub counting: Steps,
}

/// Random writes while the cache is full.
#[derive(Clone, Debug, Default)]
pub struct FullFacts {
    /// Bytes written to the cache-disk for each byte of a line logged.
    pub bytes_per_byte_logged: f64,
    /// Checkpoints meanwhile.
    pub checkpoints: u64,
    /// Writes per second of virtual time.
    pub writes_per_second: f64,
    /// 99.9 % of the writes took at most so long, virtual.
    pub write_p999: Duration,
    /// The calls of the engine.
    pub steps: Steps,
}

/// A start after a death.
#[derive(Clone, Debug, Default)]
pub struct RestartFacts {
    /// Read from the cache-disk.
    pub read_bytes: u64,
    /// Virtual time.
    pub time: Duration,
    /// Dirty lines that it found.
    pub lines: u64,
    /// The calls of the engine.
    pub steps: Steps,
}

/// Whether there are caches of that size.
///
/// # Errors
/// If not.
pub fn check(cache_bytes: u64) -> Result<(), SetupError> {
    Ok(Geometry::fit(cache_bytes, SEGMENT_BYTES).map(|_| ())?)
}

/// Measures one size. `clock` is the processor's time, `memory` that of this process; `progress` is
/// told how many of the lines that are to be written have been.
///
/// # Errors
/// If no cache has that size, or the engine does not start.
pub fn run(
    scale: Scale,
    clock: &dyn Fn() -> Duration,
    memory: &dyn Fn() -> u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ScaleFacts, SetupError> {
    let geometry = Geometry::fit(scale.cache_bytes, SEGMENT_BYTES)?;
    let slots = u64::from(geometry.data_slots_max());
    let data_disk_lines = (scale.cache_bytes * DATA_DISK_SIZES / LINE_BYTES).max(1);
    let data_disk = DataDiskInfo {
        blocks: data_disk_lines * BLOCKS_PER_LINE,
        logical_block_size: 512,
        physical_sector_size: 4096,
    };
    let mut facts = ScaleFacts::default();
    let before = memory();
    let mut machine =
        Machine::new(geometry, data_disk, scale.index_bytes_max, clock).map_err(LogError::from)?;
    let empty = memory();
    facts.empty_memory_bytes = empty.saturating_sub(before);
    facts.empty_open = machine.take_counts().0.total;

    let mut random = Random::new(scale.cache_bytes);
    let lines_max = scale.lines.unwrap_or(u64::MAX).min(slots);
    // Some lines are written twice, and some are destaged meanwhile.
    let writes_max = 2 * lines_max;
    let is_filled = |machine: &Machine<'_>| {
        let status = machine.engine().status();
        match scale.lines {
            Some(_) => status.counters.logged_lines >= lines_max,
            None => {
                let unused = status.segments.free + status.segments.empty;
                unused <= (status.segments_total / 64).max(8)
            }
        }
    };
    let full_writes = if scale.lines.is_none() { slots / 4 } else { 0 };
    let total = lines_max + full_writes;
    let mut written = 0;
    machine.ask(DEPTH, |machine| {
        let every = 1 << 14;
        if written % every == 0 {
            progress(written.min(lines_max), total);
        }
        // Looking costs: not at each write.
        if written >= writes_max || written % 64 == 0 && is_filled(machine) {
            return None;
        }
        written += 1;
        Some(write(machine, &mut random, data_disk_lines))
    });
    let (steps, _) = machine.take_counts();
    facts.lines = machine.engine().status().dirty_lines;
    facts.fill_per_second = written as f64 / steps.total.as_secs_f64();
    facts.fill_steps = steps;
    let used = memory().saturating_sub(empty).saturating_sub(machine.content_bytes());
    facts.memory_bytes_per_line = used as f64 / facts.lines.max(1) as f64;

    if full_writes > 0 {
        let mut full = FullFacts::default();
        let counters = machine.engine().status().counters;
        let started = machine.elapsed();
        let mut written = 0;
        let responses = machine.ask(DEPTH, |machine| {
            if written % (1 << 14) == 0 {
                progress(lines_max + written, total);
            }
            written += 1;
            (written <= full_writes).then(|| write(machine, &mut random, data_disk_lines))
        });
        let seconds = machine.elapsed().0.saturating_sub(started.0) as f64 / 1e9;
        let (steps, traffic) = machine.take_counts();
        let now = machine.engine().status().counters;
        let logged_bytes = (now.logged_lines - counters.logged_lines) * LINE_BYTES;
        full.bytes_per_byte_logged = traffic.written_bytes as f64 / logged_bytes as f64;
        full.checkpoints = now.checkpoints - counters.checkpoints;
        full.writes_per_second = full_writes as f64 / seconds;
        let p999 = responses.percentiles(1e9).map_or(0.0, |found| found.p999);
        full.write_p999 = Duration::from_secs_f64(p999);
        full.steps = steps;
        facts.full = Some(full);
    }

    facts.counting = machine.take_counting();
    let mut machine = machine.after_a_death(data_disk).map_err(LogError::from)?;
    let (steps, traffic) = machine.take_counts();
    facts.restart = RestartFacts {
        read_bytes: traffic.read_bytes,
        time: Duration::from_nanos(machine.elapsed().0),
        lines: machine.engine().status().dirty_lines,
        steps,
    };
    let half = data_disk.blocks / 2;
    let pieces = (0..half).step_by(TRIM_BLOCKS as usize);
    let pieces = pieces.map(|start| LbaRange::new(start, TRIM_BLOCKS.min(half - start)));
    let mut trims = pieces.chain([LbaRange::new(half, data_disk.blocks - half)]);
    machine.ask(1, |_| trims.next().map(|range| Operation::Discard { range }));
    // They are answered at once; a write of what they covered waits until they are carried out.
    let mut last = [Lba(half)].into_iter();
    machine.ask(1, |machine| {
        let start = last.next()?;
        Some(Operation::Write { start, data: machine.buffer(LINE_BYTES as usize) })
    });
    facts.trim_steps = machine.take_counts().0;
    facts.counting = facts.counting.and(&machine.take_counting());
    let others = [&facts.fill_steps, &facts.restart.steps, &facts.trim_steps];
    let full = facts.full.iter().map(|full| &full.steps);
    facts.all_steps =
        others.into_iter().chain(full).fold(Steps::default(), |all, steps| all.and(steps));
    Ok(facts)
}

/// A write of a random line.
fn write(machine: &mut Machine<'_>, random: &mut Random, lines: u64) -> Operation {
    let start = Lba(random.below(lines) * BLOCKS_PER_LINE);
    Operation::Write { start, data: machine.buffer(LINE_BYTES as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_cache_is_filled_killed_and_trimmed() {
        let ticks = std::cell::Cell::new(0);
        let clock = || {
            ticks.set(ticks.get() + 1);
            // Each call of the engine begins and ends with a look at it: one takes 5 ms.
            let late = if ticks.get() >= 5_000 { 5_000 } else { 0 };
            Duration::from_micros(ticks.get() + late)
        };
        let scale = Scale { cache_bytes: 64 << 20, lines: None, index_bytes_max: 0 };
        let facts = run(scale, &clock, &|| 0, &mut |_, _| {}).unwrap();
        let full = facts.full.clone().unwrap();
        assert_eq!(facts.fill_steps.longest, Duration::from_micros(5_001));
        assert_eq!((facts.fill_steps.too_long, full.steps.too_long), (1, 0));
        assert_eq!(facts.trim_steps.longest, Duration::from_micros(1));
        assert!(facts.lines > 12_000 && facts.restart.lines > 12_000, "{facts:?}");
        // The loop that counts takes a quarter of the time.
        assert_eq!((facts.all_steps.too_long, facts.counting.too_long), (1, 0));
        let part = facts.all_steps.total.div_duration_f64(facts.counting.total);
        assert!((3.0..6.0).contains(&part), "{facts:?}");
        assert!((1.0..1.5).contains(&full.bytes_per_byte_logged), "{full:?}");
        assert!(facts.restart.read_bytes > 0 && full.writes_per_second > 0.0);

        // With memory for a part of the index: a page of it for each line, and hundreds of pages.
        let in_part = Scale { index_bytes_max: 48 << 10, ..scale };
        let of_part = run(in_part, &clock, &|| 0, &mut |_, _| {}).unwrap();
        assert!(of_part.lines > 12_000 && of_part.restart.lines > 12_000, "{of_part:?}");
        let of_part = of_part.full.unwrap();
        assert!(of_part.bytes_per_byte_logged > full.bytes_per_byte_logged, "{of_part:?}");

        let scale = Scale { lines: Some(1_000), ..scale };
        let facts = run(scale, &clock, &|| 0, &mut |_, _| {}).unwrap();
        assert!(facts.full.is_none() && facts.lines > 900, "{facts:?}");
    }
}
