//! A seeded load of block requests, and what a disk may hold after it: the promises of the contract
//! (C2, C8, C9, C14) in a few lines.

use super::random::Random;

/// A request that changes the volume, or a flush.
#[derive(Clone, PartialEq, Eq)]
pub enum Op {
    Write { offset: u64, data: Vec<u8>, fua: bool },
    Trim { offset: u64, length: usize },
    Zeroes { offset: u64, length: usize },
    Flush,
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Op::Write { offset, data, fua } => {
                write!(f, "write {offset}+{} {}", data.len(), if *fua { "fua" } else { "" })
            }
            Op::Trim { offset, length } => write!(f, "trim {offset}+{length}"),
            Op::Zeroes { offset, length } => write!(f, "zeroes {offset}+{length}"),
            Op::Flush => write!(f, "flush"),
        }
    }
}

impl Op {
    /// The bytes it changes.
    pub fn range(&self) -> std::ops::Range<usize> {
        let (offset, length) = match self {
            Op::Write { offset, data, .. } => (*offset, data.len()),
            Op::Trim { offset, length } | Op::Zeroes { offset, length } => (*offset, *length),
            Op::Flush => (0, 0),
        };
        offset as usize..offset as usize + length
    }

    pub fn apply(&self, disk: &mut [u8]) {
        let range = self.range();
        match self {
            Op::Write { data, .. } => disk[range].copy_from_slice(data),
            // A discarded block reads as zeroes (C12): with NBD that is dcd's own promise.
            Op::Trim { .. } | Op::Zeroes { .. } => disk[range].fill(0),
            Op::Flush => {}
        }
    }

    fn overlaps(&self, other: &Op) -> bool {
        let (a, b) = (self.range(), other.range());
        a.start < b.end && b.start < a.end
    }
}

/// What a load is made of.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub volume: u64,
    /// Longest write in sectors of 512 bytes.
    pub sectors_max: u64,
    /// One in so many is a flush; 0: none.
    pub flush_every: u64,
    /// One write in so many has FUA; 0: none.
    pub fua_every: u64,
    /// One in so many is a trim or a write of zeroes; 0: none.
    pub zero_every: u64,
}

impl Mix {
    /// The next request.
    pub fn op(&self, random: &mut Random) -> Op {
        if self.flush_every > 0 && random.once_in(self.flush_every) {
            return Op::Flush;
        }
        // Half are aligned to 4 KiB and short, as file systems do; half are anything.
        let sectors = self.volume / 512;
        let (start, count) = if random.once_in(2) {
            let pages = self.sectors_max / 8;
            let count = 8 * (1 + random.below(pages.clamp(1, 4)));
            (8 * random.below((sectors - count) / 8), count)
        } else {
            let count = 1 + random.below(self.sectors_max);
            (random.below(sectors - count), count)
        };
        let (offset, length) = (start * 512, count as usize * 512);
        if self.zero_every > 0 && random.once_in(self.zero_every) {
            return match random.below(2) {
                0 => Op::Trim { offset, length },
                _ => Op::Zeroes { offset, length },
            };
        }
        let fua = self.fua_every > 0 && random.once_in(self.fua_every);
        Op::Write { offset, data: random.bytes(length), fua }
    }

    /// A request that touches none of `others`.
    pub fn op_apart(&self, random: &mut Random, others: &[Op]) -> Op {
        loop {
            let op = self.op(random);
            if !others.iter().any(|other| op.overlaps(other)) {
                return op;
            }
        }
    }
}

/// First difference between two volumes, in words.
pub fn difference(found: &[u8], expected: &[u8]) -> Option<String> {
    if found.len() != expected.len() {
        return Some(format!("size {} instead of {}", found.len(), expected.len()));
    }
    if found == expected {
        return None;
    }
    let sectors: Vec<usize> = (0..found.len() / 512)
        .filter(|i| found[i * 512..][..512] != expected[i * 512..][..512])
        .collect();
    let first = sectors.first()?;
    Some(format!(
        "{} sectors of 512 bytes differ, the first at {}: {:02x?} instead of {:02x?}; all: {:?}",
        sectors.len(),
        first * 512,
        &found[first * 512..][..16],
        &expected[first * 512..][..16],
        &sectors[..sectors.len().min(40)]
    ))
}

/// `found` must be `acked` with each of the `pending` requests (which do not overlap) done or not
/// done, as a whole. Returns what it is then.
pub fn settle(found: &[u8], mut acked: Vec<u8>, pending: &[Op]) -> Result<Vec<u8>, String> {
    for op in pending {
        let range = op.range();
        if found[range.clone()] != acked[range] {
            op.apply(&mut acked);
        }
    }
    match difference(found, &acked) {
        None => Ok(acked),
        Some(difference) => Err(format!("{difference}; in flight: {pending:?}")),
    }
}

/// `found` must be `flushed` with the first P of `later` done, for some P (C9). `later` are the
/// requests since the last flush, acknowledged or not, in order. Returns P.
pub fn find_prefix(found: &[u8], flushed: &[u8], later: &[Op]) -> Result<usize, String> {
    let mut state = flushed.to_vec();
    let mut nearest = (usize::MAX, String::new());
    for done in 0..=later.len() {
        if done > 0 {
            later[done - 1].apply(&mut state);
        }
        if state == found {
            return Ok(done);
        }
        let differing = (0..found.len() / 512)
            .filter(|i| found[i * 512..][..512] != state[i * 512..][..512])
            .count();
        if differing < nearest.0 {
            nearest = (
                differing,
                format!(
                    "after {done} of {}: {}",
                    later.len(),
                    difference(found, &state).unwrap_or_default()
                ),
            );
        }
    }
    Err(format!("no prefix fits; nearest {}; later: {later:?}", nearest.1))
}

/// Weaker, for writes past the cache: each sector is as flushed or as some later request left it.
pub fn check_sectors(found: &[u8], flushed: &[u8], later: &[Op]) -> Result<(), String> {
    for sector in 0..found.len() / 512 {
        let range = sector * 512..(sector + 1) * 512;
        let fits = found[range.clone()] == flushed[range.clone()]
            || later.iter().any(|op| {
                let bytes = op.range();
                if bytes.start > range.start || bytes.end < range.end {
                    return false;
                }
                let inside = range.start - bytes.start..range.end - bytes.start;
                match op {
                    Op::Write { data, .. } => data[inside] == found[range.clone()],
                    _ => found[range.clone()].iter().all(|b| *b == 0),
                }
            });
        if !fits {
            return Err(format!(
                "sector {sector} holds what was never there or is older than the flush"
            ));
        }
    }
    Ok(())
}
