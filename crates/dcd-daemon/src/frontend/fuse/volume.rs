//! Changes of the volume at any byte: what is not whole blocks is read, changed and written back,
//! while no other change is under way there ([`super::range_locks`]).

use std::collections::VecDeque;
use std::sync::Arc;

use dcd_engine::buffer::Buffer;
use dcd_engine::io::{Operation, RequestError};
use dcd_engine::units::{BLOCK_SIZE, Lba, LbaRange};

use super::range_locks::{Claim, RangeLocks};
use crate::frontend::Submit;

/// The volume as the file system sees it: bytes, of which only whole blocks can be asked for.
pub(super) struct Volume {
    pub(super) submitter: Arc<dyn Submit>,
    pub(super) locks: Arc<RangeLocks>,
    pub(super) block_size: u32,
    pub(super) size_bytes: u64,
}

/// A part of a change. The parts of one change are done one after the other.
#[derive(Debug)]
pub(super) enum Step {
    /// An operation on whole blocks.
    Submit(Operation),
    /// Read the block, put `bytes` at offset `at` in it, write it back.
    Patch { block: LbaRange, at: usize, bytes: Vec<u8> },
}

/// Bytes cut at the borders of blocks; each part may be missing.
#[derive(Debug, PartialEq, Eq)]
struct Cut {
    head: Option<(u64, u64)>,
    whole: Option<LbaRange>,
    tail: Option<(u64, u64)>,
}

/// Told the result of a change.
type Done = Box<dyn FnOnce(Result<(), RequestError>) + Send>;

impl Volume {
    /// The whole blocks that hold the bytes `from..to`.
    pub(super) fn blocks_around(&self, from: u64, to: u64) -> LbaRange {
        let block_size = u64::from(self.block_size);
        let start = from / block_size * block_size;
        let end = to.next_multiple_of(block_size);
        LbaRange::new(start / BLOCK_SIZE, (end - start) / BLOCK_SIZE)
    }

    /// Cuts the bytes `from..to` into a part of a block, whole blocks, and a part of a block.
    ///
    /// ```text
    /// block size 512:   from 500                      to 1600
    ///                   |12|        1 block          |64|
    ///                  500 512                     1536 1600
    /// ```
    fn cut(&self, from: u64, to: u64) -> Cut {
        let block_size = u64::from(self.block_size);
        let head_end = from.next_multiple_of(block_size).min(to);
        let tail_start = (to / block_size * block_size).max(head_end);
        let head = (from < head_end).then_some((from, head_end));
        let whole = (head_end < tail_start).then(|| self.blocks_around(head_end, tail_start));
        let tail = (tail_start < to).then_some((tail_start, to));
        Cut { head, whole, tail }
    }

    fn patch(&self, from: u64, bytes: Vec<u8>) -> Step {
        let block = self.blocks_around(from, from + bytes.len() as u64);
        Step::Patch { block, at: (from - block.start.byte()) as usize, bytes }
    }

    pub(super) fn write_steps(&self, offset: u64, data: &[u8]) -> VecDeque<Step> {
        let Cut { head, whole, tail } = self.cut(offset, offset + data.len() as u64);
        let part = |from: u64, to: u64| &data[(from - offset) as usize..(to - offset) as usize];
        let head = head.map(|(from, to)| self.patch(from, part(from, to).to_vec()));
        let whole = whole.map(|range| {
            let data = part(range.start.byte(), range.start.byte() + range.bytes());
            Step::Submit(Operation::Write { start: range.start, data: Buffer::copy_of(data) })
        });
        let tail = tail.map(|(from, to)| self.patch(from, part(from, to).to_vec()));
        [head, whole, tail].into_iter().flatten().collect()
    }

    pub(super) fn zero_steps(
        &self,
        from: u64,
        to: u64,
        whole_blocks: impl FnOnce(LbaRange) -> Operation,
    ) -> VecDeque<Step> {
        let Cut { head, whole, tail } = self.cut(from, to);
        let zeroes = |(from, to): (u64, u64)| self.patch(from, vec![0; (to - from) as usize]);
        let whole = whole.map(|range| Step::Submit(whole_blocks(range)));
        [head.map(zeroes), whole, tail.map(zeroes)].into_iter().flatten().collect()
    }

    /// Does the steps of a change of the bytes `from..to` and reports.
    ///
    /// Every change claims its blocks for as long as it lasts, one with a [`Step::Patch`] for
    /// itself alone: between its read and its write no other change may be under way in the block,
    /// or that one would be undone. Changes of whole blocks go on side by side, as on any disk.
    pub(super) fn change(
        self: &Arc<Self>,
        from: u64,
        to: u64,
        steps: VecDeque<Step>,
        fua: bool,
        done: impl FnOnce(Result<(), RequestError>) + Send + 'static,
    ) {
        let exclusive = steps.iter().any(|step| matches!(step, Step::Patch { .. }));
        let claim = Claim { range: self.blocks_around(from, to), exclusive };
        let volume = self.clone();
        self.locks.claim(
            claim,
            Box::new(move |held| {
                volume.run(
                    steps,
                    fua,
                    Box::new(move |result| {
                        // The client may send its next request as soon as it has the answer; it
                        // should not find its own claim in the way.
                        drop(held);
                        done(result);
                    }),
                );
            }),
        );
    }

    fn run(self: Arc<Self>, mut steps: VecDeque<Step>, fua: bool, done: Done) {
        let Some(step) = steps.pop_front() else { return done(Ok(())) };
        let submitter = self.submitter.clone();
        match step {
            Step::Submit(operation) => submitter.submit(
                operation,
                fua,
                Box::new(move |answer| match answer.result {
                    Ok(()) => self.run(steps, fua, done),
                    Err(error) => done(Err(error)),
                }),
            ),
            Step::Patch { block, at, bytes } => submitter.submit(
                Operation::read(block),
                false,
                Box::new(move |answer| {
                    if let Err(error) = answer.result {
                        return done(Err(error));
                    }
                    let mut data = answer.buffer.expect("the data of a read that succeeded");
                    data.bytes_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
                    let start: Lba = block.start;
                    steps.push_front(Step::Submit(Operation::Write { start, data }));
                    self.run(steps, fua, done);
                }),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl Submit for Nowhere {
        fn submit(&self, _: Operation, _: bool, _: Box<dyn FnOnce(dcd_engine::io::Reply) + Send>) {}
    }

    fn volume(block_size: u32) -> Volume {
        let submitter = Arc::new(Nowhere);
        Volume { submitter, locks: Arc::default(), block_size, size_bytes: 1 << 20 }
    }

    #[test]
    fn cuts_at_blocks() {
        let whole = |start, blocks| Some(LbaRange::new(start, blocks));
        let cut = |head, whole, tail| Cut { head, whole, tail };
        let small = volume(512);
        assert_eq!(small.cut(500, 1600), cut(Some((500, 512)), whole(1, 2), Some((1536, 1600))));
        assert_eq!(small.cut(512, 1536), cut(None, whole(1, 2), None));
        assert_eq!(small.cut(10, 20), cut(Some((10, 20)), None, None));
        assert_eq!(small.cut(510, 514), cut(Some((510, 512)), None, Some((512, 514))));
        assert_eq!(small.cut(512, 514), cut(None, None, Some((512, 514))));
        let large = volume(4096);
        assert_eq!(large.cut(512, 8192), cut(Some((512, 4096)), whole(8, 8), None));
        assert_eq!(large.blocks_around(4095, 4097), LbaRange::new(0, 16));
    }
}
