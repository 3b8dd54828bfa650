//! A run as a list of steps. Each step has all that decides what it does, a small seed of its own
//! included, so any of them can be left out and the others do the same as before as far as they
//! can. That is what lets [`crate::minimise`] shrink a failing run.

use dcd_engine::{AckMode, DestagePolicyKind};

use dcd_engine::Mode;

use crate::copy_load::CopyLoad;
use crate::corpus;
use crate::faults::FaultKind;
use crate::legs::LegOptions;
use crate::options::Options;
use crate::random::Random;

/// What a step does. Where something cannot be done it does nothing, or ends an I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Submit a write of `blocks` blocks from `start` on.
    Write {
        /// First block.
        start: u64,
        /// How many.
        blocks: u64,
        /// Durable when answered.
        fua: bool,
    },
    /// Submit a read.
    Read {
        /// First block.
        start: u64,
        /// How many.
        blocks: u64,
    },
    /// Submit a write-zeroes.
    Zero {
        /// First block.
        start: u64,
        /// How many.
        blocks: u64,
        /// The space may be freed.
        may_unmap: bool,
        /// Durable when answered.
        fua: bool,
    },
    /// Submit a discard.
    Discard {
        /// First block.
        start: u64,
        /// How many.
        blocks: u64,
    },
    /// Submit a flush.
    Flush,
    /// Submit a drain.
    Drain,
    /// Cancel the oldest drain under way.
    CancelDrain,
    /// End one I/O; without one, let time pass.
    EndIo,
    /// End I/Os until none is left. Time stands still.
    Settle,
    /// Let so many microseconds pass.
    Pass(u64),
    /// Let time pass to the moment that the engine waits for.
    Wake,
    /// Answer everything, destage everything that idle time allows: until nothing is left to do.
    Idle,
    /// Inject a fault.
    Fault(FaultKind),
    /// Fail an I/O as [`crate::sweep`] does: number of the rule, and how many I/Os pass before.
    Sweep(u32, u32),
    /// A crash of a copy of both disks, recovered and checked; the run itself goes on.
    Probe {
        /// Power cut, or death of the process.
        power: bool,
    },
    /// A crash, recovered and checked; the run goes on from there.
    Crash {
        /// Power cut, or death of the process.
        power: bool,
    },
    /// Close in order, cut the power, open again.
    Shutdown,
    /// The same by way of a detach that is cancelled after some I/Os, or too late.
    CancelDetach,
    /// A detach; somebody writes to the data-disk; a start.
    ChangeDetached {
        /// First block.
        start: u64,
        /// How many.
        blocks: u64,
    },
    /// Store a sequence, as [`crate::copy_load::places`] says.
    Store {
        /// Its name.
        name: u8,
        /// Its first line.
        line: u64,
        /// How many.
        lines: u64,
        /// From one to the next.
        step: u64,
        /// It gives way to others.
        is_detected: bool,
    },
    /// Remove a sequence.
    Remove {
        /// Its name.
        name: u8,
    },
    /// Remove all sequences that are not pinned.
    Clear,
    /// Pin a sequence, or no longer.
    Pin {
        /// Its name.
        name: u8,
        /// Whether it is to stay.
        is_pinned: bool,
    },
    /// A crash, after which the data-disk has so many blocks more.
    Grow {
        /// How many.
        blocks: u64,
    },
    /// Other settings, or those of the start again, while everything goes on.
    Configure,
    /// Another mode is wanted, from here on and at starts.
    Mode(
        /// Which one.
        Mode,
    ),
    /// The log gets another size. The cache-disk is made larger before, if it has to be.
    Resize {
        /// Of what the cache-disk was made with, in eighths.
        eighths: u8,
        /// The cache-disk is cut behind what is in use, when the log has shrunk.
        cuts: bool,
    },
    /// The read area gets another size, and the log the rest.
    ResizeReadArea {
        /// Pages.
        pages: u8,
    },
    /// Nobody wants the log to have another size any more.
    CancelResize,
}

/// In half of the runs from this seed on, on one disk or on legs, the log grows and shrinks.
pub const RESIZED_FROM: u64 = 990_000_000;

/// In the same, from these seeds on, on one disk or on legs, the read area does, too.
pub const READ_AREA_RESIZED: [u64; 2] = [1_020_000_000, 1_150_000_000];

fn resizes_read_area(seed: u64) -> bool {
    let [first, behind_budgets] = READ_AREA_RESIZED;
    (first..PAGED_FROM).contains(&seed) || seed >= behind_budgets
}

/// In runs from this seed on, on one disk or on legs, memory has only a part of the index.
pub const PAGED_FROM: u64 = 1_050_000_000;

/// In runs from this seed on on legs, those have a witness.
pub const WITNESS_FROM: u64 = 1_100_000_000;

/// In half of the runs from this seed on the mode is switched.
pub const MODES_FROM: u64 = 960_000_000;

/// In half of the runs from this seed on settings change. What came before are the runs that they
/// were.
pub const CONFIGURED_FROM: u64 = 800_000_000;

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step(
    /// What it does.
    pub Op,
    /// Decides what is left open: which I/O ends, what survives, where a fault strikes.
    pub u32,
);

/// A run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// Its options.
    pub options: Options,
    /// What happens, after the first start and before the final check.
    pub steps: Vec<Step>,
}

/// How much of what a load has.
struct Load {
    steps: u64,
    blocks_used: u64,
    /// Where most of them begin. At both ends of the volume lie witnesses, and nothing goes past
    /// the log there.
    home: u64,
    request_blocks_max: u64,
    flush_one_in: u64,
    zero_one_in: u64,
    large_one_in: u64,
    read_one_in: u64,
    fua_one_in: u64,
    drain_one_in: u64,
    crash_one_in: u64,
    fault_one_in: u64,
    again_one_in: u64,
    contest_one_in: u64,
    io_share: u64,
    pause_max_us: u64,
}

fn chance(random: &mut Random, n: u64) -> bool {
    n > 0 && random.one_in(n)
}

/// Seeds of [`Script::on_legs`] from this one on may have a limit for fills.
const FILL_RATES_FROM: u64 = 1_000;

impl Script {
    /// The run of a seed. Of eight runs one is a variation of the corpus, with the faults of that;
    /// the others have crashes, and some of them I/O errors.
    pub fn of_seed(seed: u64) -> Script {
        let mut random = Random::new(seed);
        if random.one_in(8) {
            return corpus::vary(&mut random);
        }
        // In some runs I/O errors, as they come in life; all kinds are for `with_faults`.
        let faults: &[FaultKind] = match random.below(6) {
            0 => &[FaultKind::WriteError, FaultKind::FlushErrorDropped],
            1 => &[FaultKind::ReadErrorOnce, FaultKind::Slow],
            2 => &[FaultKind::CacheVanishes],
            // Both disks.
            3 => random.pick(&[
                &[FaultKind::CacheVanishes, FaultKind::DataVanishes],
                &[FaultKind::CacheVanishes, FaultKind::FlushErrorDropped],
                &[FaultKind::CacheVanishes, FaultKind::WriteError],
                &[FaultKind::CacheVanishes, FaultKind::Hang],
            ]),
            _ => &[],
        };
        let mut script = Script::draw(&mut random, faults);
        if seed >= CONFIGURED_FROM && random.one_in(2) {
            script.put_in_settings(&mut random);
        }
        if seed >= MODES_FROM && random.one_in(2) {
            script.put_in_modes(&mut random);
        }
        if seed >= RESIZED_FROM && random.one_in(2) {
            script.put_in_resizes(&mut random, resizes_read_area(seed));
        }
        if seed >= PAGED_FROM && !resizes_read_area(seed) {
            script.put_in_budget(&mut random);
        }
        script
    }

    /// The run of a seed with its cache-disk on two legs, of which one or the other has troubles.
    pub fn on_legs(seed: u64) -> Script {
        let mut random = Random::new(seed ^ 0x6c65_6773);
        let faults: &[FaultKind] = match random.below(6) {
            0 => &[FaultKind::TearWrites],
            1 => &[FaultKind::DropWrites],
            2 => &[FaultKind::ClockJump],
            _ => &[],
        };
        let mut script = Script::draw(&mut random, faults);
        if random.one_in(4) {
            script.put_in_settings(&mut random);
        }
        if random.one_in(4) {
            script.put_in_modes(&mut random);
        }
        let legs = LegOptions::draw(&mut random);
        let fill_rate =
            if seed < FILL_RATES_FROM { 0 } else { random.pick(&[0, 0, 1 << 18, 1 << 22]) };
        // Not so often that nothing else happens while a disk hangs.
        let mut looks = Random::new(seed ^ 0x7769_746e);
        let witness_look_ms = (seed >= WITNESS_FROM).then(|| looks.pick(&[100_000, 1_000_000]));
        // Else nothing would happen to it.
        let trouble_one_in = match witness_look_ms {
            Some(_) => looks.pick(&[20, 60, 200]),
            None => legs.trouble_one_in,
        };
        script.options.legs =
            Some(LegOptions { fill_rate, witness_look_ms, trouble_one_in, ..legs });
        // A leg that hangs is given up first.
        script.options.full_timeout_s = 20_000;
        // Of what has rotted on one leg only checksums can tell.
        script.options.verify_reads = true;
        if seed >= RESIZED_FROM && random.one_in(2) {
            script.put_in_resizes(&mut random, resizes_read_area(seed));
        }
        if (PAGED_FROM..WITNESS_FROM).contains(&seed) {
            script.put_in_budget(&mut random);
        }
        script
    }

    /// The run of a seed with ordered shipping: one of four on two legs.
    pub fn ordered(seed: u64) -> Script {
        let mut random = Random::new(seed ^ 0x006f_7264_6572);
        let faults: &[FaultKind] = match random.below(10) {
            0 => &[FaultKind::WriteError, FaultKind::FlushErrorDropped],
            1 => &[FaultKind::ReadErrorOnce, FaultKind::Slow],
            2 => &[FaultKind::WriteError, FaultKind::FlushErrorKept],
            3 => &[FaultKind::DataVanishes, FaultKind::Slow],
            4 => &[FaultKind::CacheVanishes, FaultKind::WriteError],
            5 => &[FaultKind::Hang, FaultKind::ShortWrite],
            _ => &[],
        };
        let mut script = match seed % 4 {
            3 => Script::on_legs(seed % FILL_RATES_FROM),
            _ => Script::draw(&mut random, faults),
        };
        // Of changes of the same blocks that are under way together nobody knows the order.
        script.options.overlaps = false;
        script.steps.retain(|step| !matches!(step, Step(Op::Mode(_), _)));
        script.options.policy = DestagePolicyKind::Ordered;
        script.options.ship_within_ms = random.pick(&[100, 100, 1_000, 1_000_000]);
        script.put_in_windows(&mut random);
        if random.one_in(4) {
            script.put_in_settings(&mut random);
        }
        if random.one_in(4) {
            script.put_in_resizes(&mut random, false);
        }
        script
    }

    /// The run of a seed from `PAGED_FROM` on: one of four on two legs.
    pub fn of_paged_seed(seed: u64) -> Script {
        match seed % 4 {
            3 => Script::on_legs(seed),
            _ => Script::of_seed(seed),
        }
    }

    /// Little memory for the index: hardly more than the lines of one request, in a log that is
    /// large enough for several pages of it.
    fn put_in_budget(&mut self, random: &mut Random) {
        let options = &mut self.options;
        options.copy_pages = 0;
        options.segments = random.pick(&[u64::from(options.segments), 40, 64]) as u32;
        // Sometimes enough for one that has grown, too.
        let slots = u64::from(options.geometry().slots());
        options.index_bytes = slots * random.pick(&[1, 2, 3, 8]);
    }

    fn put_in_settings(&mut self, random: &mut Random) {
        let steps = std::mem::take(&mut self.steps);
        let one_in = random.pick(&[3, 10, 30]);
        for step in steps {
            if random.one_in(one_in) {
                self.steps.push(Step(Op::Configure, random.bits() as u32));
            }
            self.steps.push(step);
        }
    }

    /// Pauses in which windows become due, and drains, which want one.
    fn put_in_windows(&mut self, random: &mut Random) {
        let steps = std::mem::take(&mut self.steps);
        let (pause_one_in, drain_one_in) = (random.pick(&[4, 10, 30]), random.pick(&[15, 60, 500]));
        for step in steps {
            if random.one_in(pause_one_in) {
                let pause = Op::Pass(random.below(120_000));
                self.steps.push(Step(pause, random.bits() as u32));
            }
            if random.one_in(drain_one_in) {
                self.steps.push(Step(Op::Drain, random.bits() as u32));
            }
            self.steps.push(step);
        }
    }

    /// Most switches are taken back later than they take; some are not.
    fn put_in_modes(&mut self, random: &mut Random) {
        let steps = std::mem::take(&mut self.steps);
        let one_in = random.pick(&[5, 20, 60]);
        for step in steps {
            if random.one_in(one_in) {
                let mode = random.pick(&[
                    Mode::WriteBack,
                    Mode::WriteBack,
                    Mode::WriteThrough,
                    Mode::WriteAround,
                    Mode::PassThrough,
                ]);
                self.steps.push(Step(Op::Mode(mode), random.bits() as u32));
            }
            self.steps.push(step);
        }
    }

    fn put_in_resizes(&mut self, random: &mut Random, read_area: bool) {
        let steps = std::mem::take(&mut self.steps);
        let segments = u64::from(self.options.segments);
        // Room for some pages.
        let most = if read_area { 72 } else { 24 };
        self.options.segments = random.pick(&[segments, most, 40]) as u32;
        let one_in = random.pick(&[5, 15, 40]);
        for step in steps {
            if random.one_in(one_in) {
                let op = match random.one_in(5) {
                    true => Op::CancelResize,
                    false if read_area && random.one_in(2) => {
                        Op::ResizeReadArea { pages: random.pick(&[0, 0, 1, 2, 3, 5, 40]) as u8 }
                    }
                    false => {
                        let eighths = random.pick(&[4, 6, 7, 8, 8, 9, 12, 16, 24]) as u8;
                        Op::Resize { eighths, cuts: random.one_in(2) }
                    }
                };
                self.steps.push(Step(op, random.bits() as u32));
            }
            self.steps.push(step);
        }
    }

    /// The run of a seed with these kinds of faults.
    pub fn with_faults(seed: u64, faults: &[FaultKind]) -> Script {
        Script::draw(&mut Random::new(seed), faults)
    }

    fn draw(random: &mut Random, faults: &[FaultKind]) -> Script {
        let options = Options::draw(random, faults);
        let blocks_used = random.pick(&[64, 200, 640, 4096]).min(options.data_blocks);
        let mut load = Load {
            steps: random.pick(&[40, 120, 250, 500]),
            blocks_used,
            home: random.below(options.data_blocks - blocks_used + 1) / 8 * 8,
            request_blocks_max: random.pick(&[1, 8, 24, 100]),
            flush_one_in: random.pick(&[0, 4, 20]),
            zero_one_in: random.pick(&[0, 6, 30]),
            large_one_in: random.pick(&[0, 2, 8, 30]),
            read_one_in: random.pick(&[2, 3, 8]),
            fua_one_in: random.pick(&[0, 5]),
            drain_one_in: random.pick(&[0, 60]),
            crash_one_in: random.pick(&[15, 60, 200]),
            fault_one_in: if faults.is_empty() { 0 } else { random.pick(&[8, 20, 60]) },
            again_one_in: random.pick(&[2, 3, 10]),
            contest_one_in: random.pick(&[0, 15, 50]),
            io_share: random.pick(&[15, 30, 45, 60]),
            pause_max_us: random.pick(&[1_000, 50_000, 2_000_000]),
        };
        if options.has_tiny_limits() {
            // What has limits is mostly zeroes, and single lines far from each other.
            let mut aside = Random::new(random.state() ^ 0x7a65_726f);
            load.zero_one_in = aside.pick(&[1, 2, 2, 4]);
            load.flush_one_in = aside.pick(&[4, 20]);
            if aside.one_in(2) {
                load.request_blocks_max = 8;
                load.again_one_in = 10;
            }
        }
        if options.reuses_early() {
            // Much is written and emptied, so that the log comes round.
            let mut aside = Random::new(random.state() ^ 0x0072_6575_7365);
            if aside.one_in(2) {
                load.steps = aside.pick(&[250, 500]);
                load.request_blocks_max = aside.pick(&[24, 100]);
                load.read_one_in = 8;
                load.drain_one_in = aside.pick(&[0, 10, 30]);
                load.crash_one_in = aside.pick(&[30, 100]);
                load.io_share = aside.pick(&[30, 45, 60]);
            }
        }
        let mut steps = Vec::new();
        let (mut last, mut now) = (None, options.clone());
        let mut contest = None;
        let mut copy_load = CopyLoad::draw(random, &options, load.home, blocks_used);
        for _ in 0..load.steps {
            if options.overlaps && chance(random, load.contest_one_in) {
                contest = Some((load.draw_range(random, &now, true), 4 + random.below(28)));
            }
            let op = match &mut contest {
                Some((range, left)) if *left > 0 => {
                    *left -= 1;
                    load.draw_contest_op(random, &now, *range)
                }
                _ => match copy_load.draw_op(random, &now) {
                    Some(op) => op,
                    None => load.draw_op(random, &now, &mut last),
                },
            };
            copy_load.note(op);
            if let Op::Grow { blocks } = op {
                now.data_blocks += blocks;
            }
            steps.push(Step(op, random.bits() as u32));
            if random.below(4) > 0 {
                steps.push(Step(Op::Probe { power: random.below(4) > 0 }, random.bits() as u32));
            }
        }
        Script { options, steps }
    }
}

impl Load {
    /// `last` is the range of the request before.
    fn draw_op(&self, random: &mut Random, options: &Options, last: &mut Option<(u64, u64)>) -> Op {
        if random.one_in(self.crash_one_in) {
            return match random.below(13) {
                0 | 1 => Op::Shutdown,
                12 => {
                    let (start, blocks) = self.draw_range(random, options, false);
                    Op::ChangeDetached { start, blocks }
                }
                2 => Op::CancelDetach,
                3 => {
                    let unit = u64::from(options.logical_block) / 512;
                    Op::Grow { blocks: unit * (1 + random.below(20)) }
                }
                n => Op::Crash { power: n > 6 },
            };
        }
        if chance(random, self.fault_one_in) {
            return Op::Fault(random.pick(&options.faults));
        }
        match random.below(100) {
            n if n < self.io_share => return Op::EndIo,
            n if n < self.io_share + 4 => return Op::Wake,
            n if n < self.io_share + 10 => return Op::Pass(1 + random.below(self.pause_max_us)),
            99 => return Op::Settle,
            98 if random.one_in(4) => return Op::Idle,
            _ => {}
        }
        if chance(random, self.flush_one_in) {
            return Op::Flush;
        }
        if chance(random, self.drain_one_in) {
            return if random.one_in(3) { Op::CancelDrain } else { Op::Drain };
        }
        let (start, blocks) = match *last {
            // Where requests may meet, they do.
            Some(last) if options.overlaps && random.one_in(self.again_one_in) => last,
            _ => {
                let is_large = chance(random, self.large_one_in);
                self.draw_range(random, options, is_large)
            }
        };
        *last = Some((start, blocks));
        if chance(random, self.read_one_in) {
            return Op::Read { start, blocks };
        }
        let fua = chance(random, self.fua_one_in);
        if !chance(random, self.zero_one_in) {
            return Op::Write { start, blocks, fua };
        }
        match random.below(2) {
            0 => Op::Discard { start, blocks },
            _ => Op::Zero { start, blocks, may_unmap: random.one_in(2), fua },
        }
    }

    /// One of several requests for the same blocks, or those behind them, while the disks are slow
    /// to answer and everything is being destaged.
    fn draw_contest_op(&self, random: &mut Random, options: &Options, range: (u64, u64)) -> Op {
        let (mut start, blocks) = range;
        if random.one_in(3) && start + 2 * blocks <= options.data_blocks {
            start += blocks;
        }
        match random.below(24) {
            0 if !options.faults.is_empty() => Op::Fault(random.pick(&options.faults)),
            0 | 1 => Op::Flush,
            2 => Op::Drain,
            3..=6 => Op::Write { start, blocks, fua: random.one_in(2) },
            7 => Op::Write { start, blocks: blocks.min(8), fua: chance(random, self.fua_one_in) },
            8..=12 => Op::Read { start, blocks },
            _ => Op::EndIo,
        }
    }

    fn draw_range(&self, random: &mut Random, options: &Options, is_large: bool) -> (u64, u64) {
        let (used, all) = (self.blocks_used, options.data_blocks);
        let unit = u64::from(options.logical_block) / 512;
        let base = match random.below(6) {
            0 => all - used,
            1 => 0,
            _ => self.home,
        };
        let (start, blocks) = if is_large {
            (base.next_multiple_of(8) + random.below(used) / 8 * 8, 8 * (1 + random.below(20)))
        } else {
            let blocks = 1 + random.below(self.request_blocks_max.min(used));
            let start = base + random.below(used);
            match random.one_in(2) {
                true => (start / 8 * 8, blocks.next_multiple_of(8)),
                false => (start, blocks),
            }
        };
        let start = start.min(all - unit) / unit * unit;
        (start, blocks.next_multiple_of(unit).min(all - start))
    }
}

impl Script {
    /// The source of a test that repeats this run: for `crates/dcd-fuzz/tests/found.rs`.
    pub fn to_test(&self, name: &str, why: &str) -> String {
        let mut text = String::new();
        for line in why.lines() {
            text += &format!("// {line}\n");
        }
        text += &format!("#[test]\nfn {name}() {{\n    replay(Script {{\n");
        text += &format!("        options: {},\n        steps: vec![\n", self.options.to_source());
        for step in &self.steps {
            text += &format!("            {step:?},\n");
        }
        text += "        ],\n    });\n}\n";
        text
    }
}

impl Options {
    /// Rust source of these options: only what differs from the default.
    fn to_source(&self) -> String {
        let plain = Options::default();
        let mut fields = Vec::new();
        macro_rules! differing {
            ($($field:ident),+) => {
                $(if self.$field != plain.$field {
                    fields.push(format!("{}: {:?}", stringify!($field), self.$field));
                })+
            };
        }
        differing!(segments, segment_buffers, data_blocks, physical_sector, logical_block);
        differing!(max_delay_ms, bypass_bytes, idle_ms, dirty_high, one_disk, verify_reads);
        differing!(destage_bytes_max, destage_writes_max, full_timeout_s, cannot_zero);
        differing!(shears, overlaps, early_reads, copy_pages, hot_blocks, read_ahead_bytes);
        differing!(sequence_percent, limits, legs, ship_within_ms);
        if self.ack != AckMode::Memory {
            fields.push(format!("ack: AckMode::{:?}", self.ack));
        }
        if self.policy != DestagePolicyKind::FirstWriteFirst {
            fields.push(format!("policy: DestagePolicyKind::{:?}", self.policy));
        }
        fields.push("..Options::default()".into());
        format!("Options {{ {} }}", fields.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_is_the_same_run() {
        assert_eq!(Script::of_seed(5), Script::of_seed(5));
        assert_ne!(Script::of_seed(5), Script::of_seed(6));
    }

    #[test]
    fn a_test_says_only_what_matters() {
        let script = Script {
            options: Options { one_disk: true, ..Options::default() },
            steps: vec![Step(Op::Write { start: 0, blocks: 8, fua: true }, 7), Step(Op::Flush, 0)],
        };
        let text = script.to_test("found_by_seed_1", "block 0 is lost");
        assert!(text.contains("options: Options { one_disk: true, ..Options::default() },"));
        assert!(text.contains("Step(Write { start: 0, blocks: 8, fua: true }, 7),"));
        assert!(text.starts_with("// block 0 is lost\n#[test]\nfn found_by_seed_1() {\n"));
    }
}
