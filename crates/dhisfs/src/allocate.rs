//! Blocks from the device. Nothing here knows which blocks are free; some that were allocated and
//! are not used (yet, or any more) wait for the next file. What waits when the program ends is
//! collected by the next mount.
//!
//! Nothing may be written to a block before its allocation is durable: a crash could keep the write
//! and not the allocation, and then the block has room that nobody collects. So more are allocated
//! than are wanted, those that are left become durable with the next flush, whatever it is for, and
//! are used before others. If others are used as well, the contents of files wait for a flush more
//! (`commit.rs`, 0).
//!
//! What a change needs is had before it changes anything: blocks, and room for the pointers to them
//! (`pointers.rs`). Where something is removed and that takes a block on the way, it takes one of a
//! few that are kept for it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use dcd_client::{Allocation, Attributes, BlockDevice};

use crate::error::{FsError, FsResult, refuse};
use crate::file_system::FileSystem;
use crate::pointers::Need;

/// The device is asked for at least so many at once.
const BATCH: usize = 16;
/// Of each kind that the running transaction needed, so many wait when it is durable.
const READY: usize = 64;

/// Blocks that are kept for removing files, which then are listed in a directory of their own while
/// they are used.
const KEPT: usize = 8;

/// Blocks that are had for one file at once, at most (`growth.rs`).
const RESERVED: u64 = 64;
/// Files that blocks are had for.
const RESERVED_FILES: usize = 64;

/// What blocks were allocated as, and which file they are for; 0: any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Kind {
    attributes: u16,
    file: u64,
}

impl Kind {
    fn of(attributes: Attributes) -> Kind {
        Kind { attributes: attributes.bits(), file: 0 }
    }
}

/// Blocks, by what they were allocated as.
type ByKind = BTreeMap<Kind, Vec<u64>>;

/// A file that will want more blocks than it asks for now, which are to lie behind these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growing {
    pub(crate) file: u64,
    /// So many more.
    pub(crate) blocks: u64,
}

/// Blocks between device and files.
#[derive(Default)]
pub(crate) struct Allocator {
    /// Allocated, and not in any file.
    waiting: ByKind,
    /// The same, since the last flush.
    new: ByKind,
    /// The same, since the flush before that, which is under way.
    flushing: ByKind,
    /// Some that were allocated since the last flush are in files.
    are_new_used: bool,
    /// The same, for changes that remove something, when there are no others.
    kept: Vec<u64>,
    /// Given to files by the running transaction: the device knows no pointer to them.
    fresh: HashMap<u64, Attributes>,
    /// Files that blocks are kept for, who got some last at the end.
    growing: VecDeque<u64>,
    /// There was no room, and no file has gone since: nobody gets more than he asks for.
    is_tight: bool,
}

impl Allocator {
    /// The blocks that wait, or are kept.
    pub(crate) fn all_waiting(&self) -> impl Iterator<Item = u64> {
        let all = [&self.waiting, &self.new, &self.flushing];
        let all = all.into_iter().flat_map(BTreeMap::values).flatten();
        all.chain(&self.kept).copied()
    }

    /// How many blocks wait for any use.
    pub(crate) fn waiting(&self) -> usize {
        self.all_waiting().count() - self.kept.len()
    }

    /// What was fresh is part of a transaction that goes to the journal: the device will know a
    /// pointer to it.
    pub(crate) fn freeze(&mut self) {
        self.fresh.clear();
    }

    /// A flush begins, after which all that was allocated until now is durable. Whether there have
    /// to be two: one before anything is written.
    pub(crate) fn begin_flush(&mut self) -> bool {
        for (kind, blocks) in std::mem::take(&mut self.new) {
            self.flushing.entry(kind).or_default().extend(blocks);
        }
        std::mem::take(&mut self.are_new_used)
    }

    /// It has ended.
    pub(crate) fn end_flush(&mut self) {
        for (kind, blocks) in std::mem::take(&mut self.flushing) {
            let waiting = self.waiting.entry(kind).or_default();
            waiting.extend(blocks);
            // So that those that lie first are used first.
            waiting.sort_unstable_by(|a, b| b.cmp(a));
        }
    }

    /// A block of a file goes. If the device knows no pointer to it, it waits for another file.
    pub(crate) fn release(&mut self, block: u64) {
        if let Some(attributes) = self.fresh.remove(&block) {
            // If it is new itself, a flush more is due anyway.
            self.wait(attributes, block);
        }
    }

    /// A fresh block was given other attributes.
    pub(crate) fn set_attributes(&mut self, block: u64, attributes: Attributes) {
        if let Some(own) = self.fresh.get_mut(&block) {
            *own = attributes;
        }
    }

    fn wait(&mut self, attributes: Attributes, block: u64) {
        let waiting = self.waiting.entry(Kind::of(attributes)).or_default();
        let at = waiting.partition_point(|other| *other > block);
        waiting.insert(at, block);
    }

    /// A block of that kind: if a file grows one of its own, which lies behind the others.
    fn take(&mut self, attributes: Attributes, growing: Option<Growing>) -> Option<u64> {
        let file = growing.map_or(0, |growing| growing.file);
        let kind = Kind { file, ..Kind::of(attributes) };
        let durable = self.waiting.get_mut(&kind).and_then(Vec::pop);
        durable.or_else(|| {
            let new = self.new.get_mut(&kind).and_then(Vec::pop)?;
            self.are_new_used = true;
            Some(new)
        })
    }

    /// Kinds of which too few wait, and how many are missing.
    fn wanted(&self) -> Vec<(Attributes, usize)> {
        let mut used: Vec<Attributes> = self.fresh.values().copied().collect();
        used.sort_unstable_by_key(|attributes| attributes.bits());
        used.dedup();
        let missing = used.into_iter().map(|attributes| {
            let kind = Kind::of(attributes);
            let ready = [&self.waiting, &self.new, &self.flushing];
            let ready = ready.into_iter().filter_map(|by_kind| by_kind.get(&kind)).map(Vec::len);
            (attributes, READY.saturating_sub(ready.sum()))
        });
        missing.filter(|(_, missing)| *missing >= BATCH).collect()
    }

    /// The file gets more blocks of its own; who got some longest ago has had them.
    fn grows(&mut self, file: u64) {
        self.growing.retain(|other| *other != file);
        self.growing.push_back(file);
        if self.growing.len() > RESERVED_FILES
            && let Some(oldest) = self.growing.front().copied()
        {
            self.has_grown(oldest);
        }
    }

    /// A file is gone: what was had for it is for any, as is what it had.
    pub(crate) fn file_is_gone(&mut self, file: u64) {
        self.is_tight = false;
        self.has_grown(file);
    }

    /// What was had for the file is for any.
    fn has_grown(&mut self, file: u64) {
        let before = self.growing.len();
        self.growing.retain(|other| *other != file);
        if self.growing.len() == before {
            return;
        }
        for by_kind in [&mut self.waiting, &mut self.new, &mut self.flushing] {
            let own = by_kind.extract_if(.., |kind, _| kind.file == file);
            for (kind, blocks) in Vec::from_iter(own) {
                let any = by_kind.entry(Kind { file: 0, ..kind }).or_default();
                any.extend(blocks);
                // So that those that lie first are used first.
                any.sort_unstable_by(|a, b| b.cmp(a));
            }
        }
    }

    fn forget_waiting(&mut self) {
        self.kept.clear();
        self.growing.clear();
        (self.waiting, self.new, self.flushing) = Default::default();
    }
}

impl<D: BlockDevice> FileSystem<D> {
    /// A block for each of these, and room for so many pointers. All that a change needs is to be
    /// asked for at once, before it changes anything.
    pub(crate) fn allocate(
        &mut self,
        wanted: &[Allocation],
        pointers: usize,
        need: Need,
    ) -> FsResult<Vec<u64>> {
        self.allocate_for(wanted, pointers, need, None)
    }

    /// The same for a file that is to become larger: the last kind that is wanted is that of its
    /// contents.
    pub(crate) fn allocate_for(
        &mut self,
        wanted: &[Allocation],
        pointers: usize,
        need: Need,
        growing: Option<Growing>,
    ) -> FsResult<Vec<u64>> {
        debug_assert!(!self.has_changed, "what may not find room comes first");
        self.reserve_pointers(pointers as u64, need)?;
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        // What is allocated twice for one change would be lost: from here on it is not begun anew.
        let may_begin_anew = std::mem::replace(&mut self.may_begin_anew, false);
        match self.try_allocate(wanted, growing) {
            Err(error) if error.errno() == libc::ENOSPC => {
                if self.is_committing || may_begin_anew {
                    // Nothing was kept. What can be freed is freed when nobody else is at work.
                    self.may_begin_anew = may_begin_anew;
                    return Err(FsError::Alone);
                }
                let result = match self.reclaim()? {
                    true => self.try_allocate(wanted, growing),
                    false => Err(error),
                };
                match (result, need) {
                    (Err(error), Need::ToRemove) => self.take_kept(wanted).ok_or(error),
                    (result, _) => result,
                }
            }
            result => result,
        }
    }

    /// Whether all pointers that a change makes will find room on the device, now and in a replay.
    fn reserve_pointers(&mut self, pointers: u64, need: Need) -> FsResult<()> {
        if self.pointers.room(need) >= pointers {
            return Ok(());
        }
        if self.is_committing || self.may_begin_anew {
            return Err(FsError::Alone);
        }
        if self.pointers.may_become_fewer() {
            self.checkpoint()?;
        }
        // Nothing is being told, and somebody may have made room.
        self.measure()?;
        if self.pointers.room(need) >= pointers { Ok(()) } else { refuse(libc::ENOSPC) }
    }

    fn take_kept(&mut self, wanted: &[Allocation]) -> Option<Vec<u64>> {
        let at = self.allocator.kept.len().checked_sub(wanted.len())?;
        let blocks = self.allocator.kept.split_off(at);
        let used = blocks.iter().zip(wanted).map(|(block, it)| (*block, it.attributes));
        self.allocator.fresh.extend(used);
        // They may be.
        self.allocator.are_new_used = true;
        Some(blocks)
    }

    /// Keeps some blocks for changes that remove something, as far as there are any.
    pub(crate) fn keep_some(&mut self) {
        let missing = KEPT.saturating_sub(self.allocator.kept.len());
        if missing > 0 {
            let wanted = Allocation { near: None, attributes: Attributes::METADATA };
            let blocks = self.device.allocate(&vec![wanted; missing]);
            self.is_unflushed = true;
            self.allocator.kept.extend(blocks.into_iter().flatten());
        }
    }

    fn try_allocate(
        &mut self,
        wanted: &[Allocation],
        growing: Option<Growing>,
    ) -> FsResult<Vec<u64>> {
        let growing = growing.filter(|_| !self.allocator.is_tight);
        let contents = wanted.last().map(|it| it.attributes);
        let growing_of = |it: &Allocation| growing.filter(|_| Some(it.attributes) == contents);
        let mut found: Vec<Option<u64>> =
            wanted.iter().map(|it| self.allocator.take(it.attributes, growing_of(it))).collect();
        let missing = found.iter().filter(|it| it.is_none()).count();
        let mut result = Ok(());
        if missing > 0 {
            let asked = wanted.iter().zip(&found).filter(|(_, it)| it.is_none());
            let mut asked: Vec<Allocation> = asked.map(|(wanted, _)| *wanted).collect();
            // The last kind is that of most blocks.
            let more = *asked.last().expect("something is missing");
            let growing = growing_of(&more);
            let ahead = match growing {
                Some(growing) => growing.blocks.min(RESERVED) as usize,
                None => BATCH.saturating_sub(missing),
            };
            asked.extend((0..ahead).map(|_| more));
            let file = growing.map_or(0, |growing| growing.file);
            if file > 0 {
                self.allocator.grows(file);
            }
            self.is_unflushed = true;
            let answers = self.device.allocate(&asked);
            let mut places = found.iter_mut().filter(|it| it.is_none());
            for (asked, answer) in asked.iter().zip(answers) {
                let place = places.next();
                match (answer, place) {
                    (Ok(block), Some(place)) => {
                        self.allocator.are_new_used = true;
                        *place = Some(block);
                    }
                    (Ok(block), None) => {
                        let kind = Kind { file, ..Kind::of(asked.attributes) };
                        let new = self.allocator.new.entry(kind).or_default();
                        // So that those that lie first are used first.
                        new.insert(new.partition_point(|other| *other > block), block);
                    }
                    (Err(error), Some(_)) if result.is_ok() => result = Err(error.into()),
                    // Nobody needs it now.
                    (Err(_), _) => {}
                }
            }
        }
        let found = found.into_iter().zip(wanted);
        let found = found.filter_map(|(block, wanted)| Some((block?, wanted.attributes)));
        if result.is_err() {
            for (block, attributes) in found {
                self.allocator.wait(attributes, block);
            }
            return result.map(|()| Vec::new());
        }
        let mut blocks = Vec::new();
        for (block, attributes) in found {
            self.allocator.fresh.insert(block, attributes);
            blocks.push(block);
        }
        Ok(blocks)
    }

    /// Has some blocks wait for the next files, of the kinds that were used last. If there are
    /// none, those files find out.
    pub(crate) fn allocate_ahead(&mut self) {
        self.keep_some();
        for (attributes, missing) in self.allocator.wanted() {
            let blocks =
                self.device.allocate(&vec![Allocation { near: None, attributes }; missing]);
            self.is_unflushed = true;
            let new = self.allocator.new.entry(Kind::of(attributes)).or_default();
            new.extend(blocks.into_iter().flatten());
        }
    }

    /// Frees all that can be freed. Whether there was anything.
    fn reclaim(&mut self) -> FsResult<bool> {
        self.allocator.is_tight = true;
        let has_waiting = self.allocator.waiting() > 0;
        if !has_waiting && self.pointers.to_delete() == 0 && self.pointers.running() == 0 {
            return Ok(false);
        }
        // Afterwards nothing is fresh: what is not reachable is nobody's.
        self.checkpoint()?;
        self.allocator.forget_waiting();
        self.device.collect()?;
        self.is_unflushed = true;
        self.device.settle()?;
        self.keep_some();
        Ok(true)
    }

    /// A block goes out of a file, and with it what only the running transaction hangs below it.
    /// What the device knows to be below it the device frees.
    pub(crate) fn forget(&mut self, block: u64) {
        let mut open = vec![block];
        while let Some(block) = open.pop() {
            open.extend(self.pointers.take_created_from(block));
            self.metadata.remove(block);
            self.allocator.release(block);
        }
    }
}
