//! Which lines a start may find in the log, although they are not there any more: what the newest
//! durable checkpoint lists, or a record behind it has. A line that is in none of them needs no
//! tombstone to stay away.
//!
//! A bit for each line by its hash, in three generations: what has come to or left the table since
//! the checkpoint under way was begun, what had between the durable one and that, and what had
//! between the one before and the durable one. For a start that cannot read the newest checkpoint
//! takes the one before, if no record tells of the newest, and without tombstones none may. With a
//! line that is still in the table that is all. Bits too many cost tombstones, no data.

use std::ops::Range;

use crate::units::Line;

/// 32 KiB for each generation: of the 16,000 lines of a log of 64 MiB one in sixteen is taken for
/// another.
const BITS: u64 = 1 << 18;

#[derive(Clone)]
struct Lines {
    words: Vec<u64>,
    /// Any may be.
    all: bool,
}

impl Lines {
    fn new(all: bool) -> Lines {
        Lines { words: vec![0; (BITS / 64) as usize], all }
    }
}

/// See the module.
pub(crate) struct SinceCheckpoint {
    older: Lines,
    before: Lines,
    since: Lines,
    /// No checkpoint of this session is durable. A start takes none of before, if there is one.
    is_first: bool,
}

fn bit_of(line: Line) -> (usize, u64) {
    let bit = line.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS.ilog2());
    ((bit / 64) as usize, 1 << (bit % 64))
}

impl SinceCheckpoint {
    /// Nothing is known before a checkpoint has been made.
    pub(crate) fn new() -> SinceCheckpoint {
        let none = || Lines::new(false);
        SinceCheckpoint { older: none(), before: Lines::new(true), since: none(), is_first: true }
    }

    /// The same, when there may be some.
    pub(crate) fn unknown() -> SinceCheckpoint {
        SinceCheckpoint { is_first: false, ..SinceCheckpoint::new() }
    }

    /// A line comes to the table, or leaves it.
    pub(crate) fn note(&mut self, line: Line) {
        let (word, bit) = bit_of(line);
        self.since.words[word] |= bit;
    }

    /// Something comes that is not told by the line.
    pub(crate) fn note_all(&mut self) {
        self.since.all = true;
    }

    /// A checkpoint is begun: it lists what is in the table from now on, and records behind it
    /// count.
    pub(crate) fn checkpoint_begun(&mut self) {
        let words = self.before.words.iter_mut().zip(&self.since.words);
        words.for_each(|(before, since)| *before |= since);
        self.before.all |= self.since.all;
        self.since = Lines::new(false);
    }

    /// The one that was begun last is durable: what was before the one before it counts no more.
    pub(crate) fn checkpoint_durable(&mut self) {
        let since = std::mem::replace(&mut self.since, Lines::new(false));
        self.older = std::mem::replace(&mut self.before, since);
        if std::mem::take(&mut self.is_first) {
            self.older = Lines::new(false);
        }
    }

    /// Whether a start may find any of these lines that are not in the table.
    pub(crate) fn may_have(&self, lines: Range<Line>) -> bool {
        let generations = [&self.older, &self.before, &self.since];
        generations.iter().any(|lines| lines.all)
            || (lines.start.0..lines.end.0).any(|line| {
                let (word, bit) = bit_of(Line(line));
                generations.iter().any(|lines| lines.words[word] & bit != 0)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(recent: &SinceCheckpoint, line: u64) -> bool {
        recent.may_have(Line(line)..Line(line + 1))
    }

    #[test]
    fn what_is_in_neither_checkpoint_is_forgotten() {
        let mut recent = SinceCheckpoint::new();
        assert!(has(&recent, 5), "nothing is known yet");
        recent.checkpoint_begun();
        assert!(has(&recent, 77), "it is not durable");
        recent.note(Line(5));
        recent.checkpoint_durable();
        assert!(has(&recent, 5) && !has(&recent, 77));
        assert!(recent.may_have(Line(0)..Line(6)) && !recent.may_have(Line(6)..Line(60)));
        // It comes to nothing, and another is begun.
        recent.checkpoint_begun();
        recent.note(Line(6));
        recent.checkpoint_begun();
        recent.note(Line(7));
        assert!([5, 6, 7].iter().all(|line| has(&recent, *line)));
        recent.checkpoint_durable();
        assert!([5, 6, 7].iter().all(|line| has(&recent, *line)), "of the one before");
        recent.checkpoint_begun();
        recent.checkpoint_durable();
        assert!(!has(&recent, 5) && !has(&recent, 6) && has(&recent, 7));
        recent.note_all();
        for _ in 0..2 {
            recent.checkpoint_begun();
            assert!(has(&recent, 1234));
            recent.checkpoint_durable();
        }
        assert!(!has(&recent, 1234));
        let mut unknown = SinceCheckpoint::unknown();
        unknown.checkpoint_begun();
        unknown.checkpoint_durable();
        assert!(has(&unknown, 77), "if it cannot be read, another may be found");
    }
}
