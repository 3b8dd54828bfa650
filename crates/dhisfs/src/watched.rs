//! Blocks that are read from the device while others change the file system. What was read counts
//! only if the block is still what it was when the read began.
//!
//! A block on the device changes only when something in memory was written to it, and before that
//! it came into memory: so it is enough to note which blocks came into memory, whether read or new,
//! since.

use std::collections::HashMap;

/// The blocks.
#[derive(Default)]
pub(crate) struct Watched {
    blocks: HashMap<u64, Read>,
}

#[derive(Default)]
struct Read {
    readers: u32,
    /// How often it came into memory since the first of them began.
    touches: u64,
}

/// What is being read.
pub(crate) struct Ticket(Vec<(u64, u64)>);

impl Watched {
    /// The read of these blocks begins.
    pub(crate) fn begin(&mut self, blocks: impl Iterator<Item = u64>) -> Ticket {
        let begun = blocks.map(|block| {
            let read = self.blocks.entry(block).or_default();
            read.readers += 1;
            (block, read.touches)
        });
        Ticket(begun.collect())
    }

    /// It has ended: of each block, in order, whether what was read counts.
    pub(crate) fn end(&mut self, ticket: Ticket) -> Vec<bool> {
        let ended = ticket.0.into_iter().map(|(block, touches)| {
            let read = self.blocks.get_mut(&block).expect("it is being read");
            let counts = read.touches == touches;
            read.readers -= 1;
            if read.readers == 0 {
                self.blocks.remove(&block);
            }
            counts
        });
        ended.collect()
    }

    /// A block comes into memory.
    pub(crate) fn touch(&mut self, block: u64) {
        if let Some(read) = self.blocks.get_mut(&block) {
            read.touches += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_touched_counts() {
        let mut watched = Watched::default();
        let first = watched.begin([1, 2].into_iter());
        watched.touch(1);
        watched.touch(3);
        let second = watched.begin([1, 3].into_iter());
        assert_eq!(watched.end(first), [false, true]);
        assert_eq!(watched.end(second), [true, true]);
        assert!(watched.blocks.is_empty());
    }
}
