//! How changes become durable, and what a mount does after a crash.
//!
//! A commit ([`FileSystem::sync`]):
//!
//! 0. Flush, if one of these blocks was allocated since the last one: see `allocate.rs`.
//! 1. The contents of files go to their blocks. *A crash here: blocks that nothing durable points
//!    to, and new contents of blocks that were overwritten, as a program that did not ask for
//!    `fsync` has to expect.*
//! 2. Flush: these contents are durable, and so are the allocations of all blocks that the
//!    transaction names. *A crash here: the allocated blocks cannot be reached; the next mount lets
//!    the device collect them.*
//! 3. The transaction goes to the journal, with one checksum. *A crash here: it is whole, or it
//!    does not count.*
//! 4. Flush: the transaction is durable; `fsync` returns. *A crash after this: the mount replays
//!    it.*
//! 5. The device is told of the new pointers. *A crash here: the journal still has them, and tells
//!    again.*
//!
//! A checkpoint ([`FileSystem::checkpoint`]), when the journal is half full, when memory is short,
//! when blocks are to be freed, and at the end:
//!
//! 6. All blocks that are in the journal go to their places. *A crash here: they are replayed over
//!    whatever is there.*
//! 7. Flush; then the header says that no image is needed any more; flush. From here on no image of
//!    the journal can come back over a block, so blocks may be freed and used for something else.
//! 8. The device is told of the pointers that are gone, and frees what nothing points to. *A crash
//!    here: the journal still has them. No transaction names a block that was allocated meanwhile,
//!    so those that are told twice mean the same.* It says how many there are now: what is gone is
//!    room for others.
//! 9. Flush; then the header says that the journal is empty, which is durable before anything is
//!    written to the journal again (2).
//!
//! **Who waits for whom.** Each of the two is cut into steps that look at what is in memory, and
//! steps that only write what the ones before have put together ([`Commit::write`],
//! [`Checkpoint::write`], [`tell_pointers`]). Others may change the file system while the latter
//! run (`shared.rs`); one commit or checkpoint is under way at a time, and all that is written is
//! written by them. What changes meanwhile belongs to the next transaction:
//!
//! - contents and metadata are written as they were at one moment, 1 and 3, in copies that nobody
//!   changes;
//! - a checkpoint writes blocks as they are in the journal, not as they are now;
//! - a block that goes while its image is in the journal keeps its place until the transaction that
//!   lets it go is durable;
//! - blocks that 8 frees may be allocated at once. Nothing names them before the next transaction,
//!   which comes after 9: if 8 is told again after a crash, they are collected, named by nobody.
//!
//! A mount ([`FileSystem::recover`]) does 6 to 9 with what it finds in the journal, where of all
//! changes of one pointer only the last counts, and then lets the device collect what cannot be
//! reached.
//!
//! **A replay finds room.** Nothing above is given back before the header says durably that the
//! journal is empty, and no change is accepted for which there would be no room with everything
//! that comes before it (`pointers.rs`, `allocate.rs`). Where that was not so, by an older version
//! or another program, a mount refuses and changes nothing that a larger table of pointers would
//! not make good.

use std::collections::{BTreeMap, BTreeSet};

use dcd_client::{BlockDevice, DeviceError, PointerChange, PointerVerb, Usage, VolumeError};

use crate::error::{FsError, FsResult};
use crate::file_system::FileSystem;
use crate::format::transaction::Transaction;
use crate::journal::HeaderWrite;
use crate::metadata::Image;
use crate::mkfs::pointers_for;
use crate::pages::FrozenPage;
use crate::pointers::kept;
use crate::runs::write_blocks;

/// So many pointers to be deleted are told without waiting for another reason.
const DELETES_MAX: usize = 20_000;

/// What a commit writes.
pub(crate) struct Commit {
    pages: Vec<FrozenPage>,
    /// Places in the journal, and what goes there; `None` if there is no transaction.
    journal: Option<(Vec<u64>, Vec<u8>)>,
    changes: Vec<PointerChange>,
    /// Some of the blocks were allocated since the last flush.
    are_new: bool,
    /// Something was told to the device since the last flush.
    is_unflushed: bool,
    /// How many changes of the file system are in it, and in those before.
    pub(crate) changes_until: u64,
}

impl Commit {
    /// Steps 0 to 4.
    pub(crate) fn write(&self, device: &mut impl BlockDevice) -> FsResult<()> {
        // 0.
        if self.are_new {
            device.flush()?;
        }
        // 1.
        write_pages(device, &self.pages)?;
        // 2.
        if self.is_unflushed || !self.pages.is_empty() {
            device.flush()?;
        }
        let Some((places, bytes)) = &self.journal else { return Ok(()) };
        // 3.
        let chunks = bytes.chunks(device.geometry().block_bytes);
        write_blocks(device, places.iter().copied().zip(chunks))?;
        // 4.
        Ok(device.flush()?)
    }
}

fn write_pages(device: &mut impl BlockDevice, pages: &[FrozenPage]) -> FsResult<()> {
    let blocks = pages.iter().map(|page| (page.block, &**page.data));
    Ok(write_blocks(device, blocks)?)
}

/// Contents of files that are written to have less in memory: steps 0 and 1 alone.
pub(crate) struct WriteBack {
    pages: Vec<FrozenPage>,
    are_new: bool,
}

impl WriteBack {
    pub(crate) fn write(&self, device: &mut impl BlockDevice) -> FsResult<()> {
        if self.are_new {
            device.flush()?;
        }
        write_pages(device, &self.pages)
    }
}

/// What a checkpoint writes.
pub(crate) struct Checkpoint {
    images: Vec<(u64, Image)>,
    images_are_home: HeaderWrite,
    deletes: Vec<PointerChange>,
    pointers_are_told: HeaderWrite,
}

impl Checkpoint {
    /// Steps 6 to 9. What the device has afterwards, where something was deleted.
    pub(crate) fn write(&self, device: &mut impl BlockDevice) -> FsResult<Option<Usage>> {
        self.bring_home(device)?;
        let usage = self.tell_deletes(device)?;
        self.empty(device)?;
        Ok(usage)
    }

    fn bring_home(&self, device: &mut impl BlockDevice) -> FsResult<()> {
        // 6.
        write_blocks(device, self.images.iter().map(|(block, image)| (*block, &**image)))?;
        // 7.
        device.flush()?;
        write_header(device, &self.images_are_home)
    }

    fn tell_deletes(&self, device: &mut impl BlockDevice) -> FsResult<Option<Usage>> {
        // 8.
        if self.deletes.is_empty() {
            return Ok(None);
        }
        device.flush()?;
        tell_pointers(device, &self.deletes)?;
        Ok(Some(device.usage()?))
    }

    fn empty(&self, device: &mut impl BlockDevice) -> FsResult<()> {
        // 9.
        device.flush()?;
        write_header(device, &self.pointers_are_told)
    }
}

fn write_header(device: &mut impl BlockDevice, header: &HeaderWrite) -> FsResult<()> {
    Ok(write_blocks(device, [(header.block, &header.bytes)].into_iter())?)
}

/// Tells of pointers that may have been told already.
pub(crate) fn tell_pointers(
    device: &mut impl BlockDevice,
    changes: &[PointerChange],
) -> FsResult<()> {
    match tell_while_there_is_room(device, changes)?.len() {
        0 => Ok(()),
        _ => Err(DeviceError::Volume(VolumeError::NoPointerRoom).into()),
    }
}

/// The same. Those that found no room.
pub(crate) fn tell_while_there_is_room(
    device: &mut impl BlockDevice,
    changes: &[PointerChange],
) -> FsResult<Vec<PointerChange>> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let mut untold = Vec::new();
    for (change, told) in changes.iter().zip(device.change_pointers(changes)) {
        match told {
            Ok(()) => {}
            // Told before the crash; and what was freed by it points to nothing.
            Err(DeviceError::Volume(
                VolumeError::PointerExists { .. }
                | VolumeError::NoPointer { .. }
                | VolumeError::NotAllocated(_),
            )) => {}
            Err(DeviceError::Volume(VolumeError::NoPointerRoom)) => untold.push(*change),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(untold)
}

impl<D: BlockDevice> FileSystem<D> {
    /// Makes everything durable that was done before.
    pub fn sync(&mut self) -> FsResult<()> {
        self.sync_with(&mut |_| {})
    }

    /// The same; between its steps somebody else may do something, as with a mount that several
    /// programs use.
    pub fn sync_with(&mut self, between: &mut dyn FnMut(&mut Self)) -> FsResult<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.commit(between)?;
        if self.wants_checkpoint() { self.empty_journal(between) } else { Ok(()) }
    }

    /// What should be done now and then: what was done is made durable, and what is not needed any
    /// more is freed.
    pub fn tidy(&mut self) -> FsResult<()> {
        self.tidy_with(&mut |_| {})
    }

    /// The same, with something between its steps, as [`FileSystem::sync_with`].
    pub fn tidy_with(&mut self, between: &mut dyn FnMut(&mut Self)) -> FsResult<()> {
        self.sync_with(between)?;
        if self.pointers.to_delete() > 0 { self.empty_journal(between) } else { Ok(()) }
    }

    /// Brings everything that is durable to its place, and frees what is not needed any more.
    pub(crate) fn checkpoint(&mut self) -> FsResult<()> {
        self.commit(&mut |_| {})?;
        self.empty_journal(&mut |_| {})
    }

    /// Writes contents of files, to have less in memory.
    pub(crate) fn write_back(&mut self) -> FsResult<()> {
        self.guarded(|this| {
            let back = this.begin_write_back();
            back.write(&mut this.device)?;
            this.end_write_back(&back);
            Ok(())
        })
    }

    /// Puts together what has changed in files.
    pub(crate) fn begin_write_back(&mut self) -> WriteBack {
        let pages = self.pages.freeze();
        self.is_unflushed = true;
        WriteBack { pages, are_new: self.allocator.begin_flush() }
    }

    /// It is on the device.
    pub(crate) fn end_write_back(&mut self, back: &WriteBack) {
        self.pages.are_written(&back.pages);
        if back.are_new {
            self.allocator.end_flush();
        }
        self.shrink_caches();
    }

    /// After an error in here nobody knows what is on the device: nothing more is written.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> FsResult<T>) -> FsResult<T> {
        if self.is_stopped {
            return Err(FsError::Stopped);
        }
        let result = work(self);
        self.is_stopped |= result.is_err();
        self.is_committing = false;
        result
    }

    fn commit(&mut self, between: &mut dyn FnMut(&mut Self)) -> FsResult<()> {
        self.guarded(|this| {
            let commit = this.begin_commit();
            between(this);
            commit.write(&mut this.device)?;
            between(this);
            let creates = this.end_commit(commit);
            between(this);
            tell_pointers(&mut this.device, &creates)
        })
    }

    fn empty_journal(&mut self, between: &mut dyn FnMut(&mut Self)) -> FsResult<()> {
        self.guarded(|this| {
            let Some(checkpoint) = this.begin_checkpoint() else { return Ok(()) };
            between(this);
            let usage = checkpoint.write(&mut this.device)?;
            between(this);
            this.end_checkpoint(usage);
            Ok(())
        })
    }

    /// Puts together what is to become durable: all that was done until now.
    pub(crate) fn begin_commit(&mut self) -> Commit {
        self.is_committing = true;
        self.allocate_ahead();
        let are_new = self.allocator.begin_flush();
        let changes = self.pointers.freeze();
        let images = self.metadata.freeze();
        self.allocator.freeze();
        let mut commit = Commit {
            pages: self.pages.freeze(),
            journal: None,
            changes: Vec::new(),
            are_new,
            is_unflushed: std::mem::take(&mut self.is_unflushed),
            changes_until: self.changes,
        };
        if !images.is_empty() || !changes.is_empty() {
            assert!(
                self.journal.has_room(images.len(), changes.len()),
                "half of the journal is always free"
            );
            let sequence = self.journal.next_sequence();
            let transaction = Transaction { sequence, images, changes };
            commit.journal = Some(self.journal.append(&transaction));
            commit.changes = transaction.changes;
        }
        commit
    }

    /// It is durable. What the device has to be told now, which is step 5.
    pub(crate) fn end_commit(&mut self, commit: Commit) -> Vec<PointerChange> {
        self.pages.are_written(&commit.pages);
        self.allocator.end_flush();
        let creates = self.pointers.commit(commit.changes);
        self.is_unflushed |= !creates.is_empty();
        self.is_committing = !creates.is_empty();
        creates
    }

    /// Whether the journal, or memory, is so full that what is in the journal has to go to its
    /// place.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let (all, taken) = self.journal.fill();
        taken > all / 2 || self.pointers.to_delete() > DELETES_MAX
    }

    /// Puts together what brings everything that is in the journal to its place; nothing if there
    /// is nothing in it.
    pub(crate) fn begin_checkpoint(&mut self) -> Option<Checkpoint> {
        if self.journal.fill().1 == 0 {
            return None;
        }
        self.is_committing = true;
        let images = self.metadata.logged();
        Some(self.checkpoint_of(images))
    }

    fn checkpoint_of(&mut self, images: Vec<(u64, Image)>) -> Checkpoint {
        Checkpoint {
            images,
            images_are_home: self.journal.images_are_home(),
            deletes: self.pointers.take_deletes(),
            pointers_are_told: self.journal.pointers_are_told(),
        }
    }

    /// Everything is in its place, and told.
    pub(crate) fn end_checkpoint(&mut self, usage: Option<Usage>) {
        if let Some(Usage { pointers, pointers_max, .. }) = usage {
            self.pointers.measured(pointers, pointers_max);
        }
        self.metadata.logged_is_home();
        self.is_unflushed = true;
        self.is_committing = false;
    }

    /// What a mount finds that may change nothing: blocks as they would be in their places.
    pub(crate) fn recover_in_memory(&mut self) -> FsResult<()> {
        let transactions = self.journal.read_all(&mut self.device)?;
        let images_from = self.journal.images_from();
        let counts = transactions.into_iter().filter(|it| it.sequence >= images_from);
        self.replayed = counts.flat_map(|transaction| transaction.images).collect();
        self.measure()
    }

    /// Asks the device how many pointers it has and has room for, while nothing is being told.
    pub(crate) fn measure(&mut self) -> FsResult<()> {
        let Usage { pointers, pointers_max, .. } = self.device.usage()?;
        self.pointers.measured(pointers, pointers_max);
        Ok(())
    }

    /// Tells what found no room once more, after some was made: for as many as all blocks may take,
    /// or as there can be.
    fn tell_with_more_room(&mut self, untold: Vec<PointerChange>) -> FsResult<Vec<PointerChange>> {
        if untold.is_empty() || !self.options.make_pointer_room {
            return Ok(untold);
        }
        let missing = untold.len() as u64;
        let needed = self.device.usage()?.pointers_max + missing;
        let needed = needed + 2 * kept(needed);
        let wished = pointers_for(self.blocks()).max(needed);
        if self.device.make_pointer_room(wished).is_err() {
            self.device.make_pointer_room(needed)?;
        }
        tell_while_there_is_room(&mut self.device, &untold)
    }

    /// Brings the device to where it was durable last.
    pub(crate) fn recover(&mut self) -> FsResult<()> {
        let transactions = self.journal.read_all(&mut self.device)?;
        let images_from = self.journal.images_from();
        let mut images = BTreeMap::new();
        let mut changes = BTreeMap::new();
        for transaction in transactions {
            if transaction.sequence >= images_from {
                images.extend(transaction.images);
            }
            changes.extend(transaction.changes.iter().map(|it| ((it.from, it.to), it.verb)));
        }
        // 5, again: before anything is freed, because what is freed may be pointed to from
        // elsewhere now.
        let changes = changes.into_iter();
        let changes = changes.map(|((from, to), verb)| PointerChange { verb, from, to });
        let (creates, deletes): (Vec<_>, Vec<_>) =
            changes.partition(|change| change.verb == PointerVerb::Create);
        let untold = tell_while_there_is_room(&mut self.device, &moved_first(creates, &deletes))?;
        // 6 to 9.
        if self.journal.fill().1 > 0 {
            let checkpoint =
                Checkpoint { deletes, ..self.checkpoint_of(images.into_iter().collect()) };
            checkpoint.bring_home(&mut self.device)?;
            // What is deleted may free what only one of these keeps.
            let are_told_first = has_moved(&untold, &checkpoint.deletes);
            let mut untold = untold;
            if !are_told_first {
                checkpoint.tell_deletes(&mut self.device)?;
                untold = tell_while_there_is_room(&mut self.device, &untold)?;
            }
            let untold = self.tell_with_more_room(untold)?;
            if !untold.is_empty() {
                // The journal still has all of it; and nothing is collected, since what these lead
                // to is in use.
                let missing = untold.len() as u64;
                let room = self.device.usage()?.pointers_max;
                return Err(FsError::PointerRoom { missing, room });
            }
            if are_told_first {
                checkpoint.tell_deletes(&mut self.device)?;
            }
            checkpoint.empty(&mut self.device)?;
        }
        self.device.flush()?;
        self.device.collect()?;
        self.device.flush()?;
        self.measure()
    }
}

/// Those first that lead to something another pointer leads away from, as of a file that was moved.
fn moved_first(creates: Vec<PointerChange>, deletes: &[PointerChange]) -> Vec<PointerChange> {
    let left: BTreeSet<u64> = deletes.iter().map(|change| change.to).collect();
    let (mut first, rest): (Vec<_>, Vec<_>) =
        creates.into_iter().partition(|change| left.contains(&change.to));
    first.extend(rest);
    first
}

/// Whether one of these is such a pointer.
fn has_moved(creates: &[PointerChange], deletes: &[PointerChange]) -> bool {
    let left: BTreeSet<u64> = deletes.iter().map(|change| change.to).collect();
    creates.iter().any(|change| left.contains(&change.to))
}
