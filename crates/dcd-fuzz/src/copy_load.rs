//! The part of a load that uses the read area: sequences are stored, the disks rest until they are
//! copied, reads follow them, and changes come in between. Hot blocks need no more than that lines
//! are read again.

use std::collections::VecDeque;

use crate::options::Options;
use crate::random::Random;
use crate::script::Op;

/// Names of sequences.
const NAMES: u64 = 4;
/// Reads that may be asked for again.
const RECENT_MAX: usize = 8;

/// The ranges of a sequence in order, as blocks: each is a line, `step` lines behind the one
/// before, round and round.
pub fn places(
    line: u64,
    lines: u64,
    step: u64,
    data_blocks: u64,
) -> impl Iterator<Item = (u64, u64)> {
    let all = data_blocks.div_ceil(8);
    (0..lines.min(all)).map(move |place| {
        let start = (line + place * step) % all * 8;
        (start, (data_blocks - start).min(8))
    })
}

/// A sequence as it was stored last.
#[derive(Clone, Copy)]
struct Stored {
    name: u8,
    line: u64,
    lines: u64,
    step: u64,
}

/// How much of what, and what is to come next.
pub(crate) struct CopyLoad {
    is_on: bool,
    first_line: u64,
    lines: u64,
    sequence_one_in: u64,
    rest_one_in: u64,
    follow_one_in: u64,
    race_one_in: u64,
    again_one_in: u64,
    stored: Vec<Stored>,
    recent: VecDeque<(u64, u64)>,
    planned: VecDeque<Op>,
}

impl CopyLoad {
    /// Nothing without a read area.
    pub(crate) fn draw(
        random: &mut Random,
        options: &Options,
        home: u64,
        blocks_used: u64,
    ) -> CopyLoad {
        CopyLoad {
            is_on: options.copy_pages > 0,
            first_line: home / 8,
            lines: (blocks_used / 8).max(1),
            sequence_one_in: random.pick(&[15, 40, 200]),
            rest_one_in: random.pick(&[10, 25]),
            follow_one_in: random.pick(&[6, 20]),
            race_one_in: random.pick(&[12, 50]),
            again_one_in: random.pick(&[3, 10]),
            stored: Vec::new(),
            recent: VecDeque::new(),
            planned: VecDeque::new(),
        }
    }

    /// A step was drawn, here or elsewhere.
    pub(crate) fn note(&mut self, op: Op) {
        match op {
            Op::Read { start, blocks } => {
                self.recent.push_back((start, blocks));
                if self.recent.len() > RECENT_MAX {
                    self.recent.pop_front();
                }
            }
            Op::Store { name, line, lines, step, .. } => {
                self.stored.retain(|stored| stored.name != name);
                self.stored.push(Stored { name, line, lines, step });
            }
            _ => {}
        }
    }

    /// A step, or `None`: anything else.
    pub(crate) fn draw_op(&mut self, random: &mut Random, options: &Options) -> Option<Op> {
        if !self.is_on {
            return None;
        }
        // What is planned is not done in one go: changes, crashes and ends of I/Os get in between.
        if !self.planned.is_empty() && random.below(4) > 0 {
            return self.planned.pop_front();
        }
        if random.one_in(self.sequence_one_in) || self.stored.is_empty() && random.one_in(8) {
            return Some(self.draw_request(random));
        }
        if random.one_in(self.race_one_in) {
            self.plan_race(random, options);
        } else if random.one_in(self.rest_one_in) {
            self.plan_rest(random);
        } else if random.one_in(self.follow_one_in) {
            self.plan_reads(random, options);
        } else if random.one_in(self.again_one_in) && !self.recent.is_empty() {
            let (start, blocks) = self.recent[random.below(self.recent.len() as u64) as usize];
            return Some(Op::Read { start, blocks });
        }
        None
    }

    fn draw_request(&mut self, random: &mut Random) -> Op {
        let name = random.below(NAMES) as u8;
        match random.below(10) {
            0 => Op::Remove { name },
            1 if random.one_in(3) => Op::Clear,
            2 => Op::Pin { name, is_pinned: random.one_in(3) },
            _ => {
                if random.one_in(2) {
                    self.plan_rest(random);
                }
                Op::Store {
                    name,
                    line: self.first_line + random.below(self.lines),
                    lines: random.pick(&[2, 8, 24, 60, 300]),
                    // The last one is nearly the same as backwards.
                    step: random.pick(&[1, 3, 7, 39]),
                    is_detected: random.one_in(4),
                }
            }
        }
    }

    /// Time for copying: lines are destaged, and then the disks are quiet.
    fn plan_rest(&mut self, random: &mut Random) {
        if random.one_in(3) {
            return self.planned.push_back(Op::Idle);
        }
        for _ in 0..1 + random.below(3) {
            self.planned.push_back(Op::Settle);
            self.planned.push_back(Op::Pass(20_000 + random.below(20_000)));
            for _ in 0..random.below(4) {
                self.planned.push_back(Op::EndIo);
            }
        }
    }

    /// A change that goes past the log, or is destaged at once, where a copy is being made or was
    /// just given up.
    fn plan_race(&mut self, random: &mut Random, options: &Options) {
        let whole = (options.bypass_bytes / 512).next_multiple_of(8);
        let blocks = if whole <= 64 && random.below(3) > 0 { whole } else { 8 };
        let line = self.first_line + random.below(self.lines);
        let (start, blocks) = match self.stored.first().filter(|_| random.one_in(2)) {
            Some(stored) => {
                if random.one_in(2) {
                    self.planned.push_back(Op::Remove { name: stored.name });
                }
                (stored.line * 8, blocks)
            }
            None => (line * 8, blocks),
        };
        let start = start.min(options.data_blocks.saturating_sub(blocks) / 8 * 8);
        if random.one_in(2) {
            self.planned.push_back(Op::Read { start, blocks: 8 });
        }
        self.planned.push_back(Op::Write { start, blocks, fua: random.one_in(2) });
        if random.one_in(3) {
            self.planned.push_back(Op::Drain);
        }
        for _ in 0..1 + random.below(12) {
            self.planned.push_back(Op::EndIo);
        }
        if random.one_in(4) {
            self.planned.push_back(Op::Crash { power: random.one_in(2) });
        }
        for _ in 0..2 {
            self.planned.push_back(Op::Read { start, blocks: 8 });
            self.planned.push_back(Op::Settle);
        }
    }

    /// Reads that follow a sequence, and now and then change what is yet to be read.
    fn plan_reads(&mut self, random: &mut Random, options: &Options) {
        if self.stored.is_empty() {
            return;
        }
        let Stored { line, lines, step, .. } =
            self.stored[random.below(self.stored.len() as u64) as usize];
        let from = if random.one_in(2) { 0 } else { random.below(lines) };
        let count_max = random.pick(&[3, 12, 50]);
        let count = 1 + random.below(count_max);
        let changes = random.one_in(2);
        let order = places(line, lines, step, options.data_blocks);
        for (start, blocks) in order.skip(from as usize).take(count as usize) {
            self.planned.push_back(Op::Read { start, blocks });
            if changes && random.one_in(4) {
                let start = (start + 8 * step * random.below(6)) % options.data_blocks / 8 * 8;
                let blocks = (1 + random.below(8)).min(options.data_blocks - start);
                self.planned.push_back(Op::Write { start, blocks, fua: random.one_in(2) });
            }
            match random.below(4) {
                0 => self.planned.push_back(Op::Settle),
                1 | 2 => self.planned.push_back(Op::EndIo),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_on_the_volume() {
        let all: Vec<(u64, u64)> = places(3, 300, 7, 1027).collect();
        assert_eq!(all.len(), 129);
        assert!(all.iter().all(|(start, blocks)| start % 8 == 0 && start + blocks <= 1027));
        assert_eq!(all[..2], [(24, 8), (80, 8)]);
        assert!(all.contains(&(1024, 3)));
    }
}
