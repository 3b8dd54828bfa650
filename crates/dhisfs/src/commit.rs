//! How changes become durable, and what a mount does after a crash.
//!
//! A commit ([`FileSystem::sync`]):
//!
//! 1. The contents of files go to their blocks. *A crash here: blocks that nothing durable points to, and new contents
//!    of blocks that were overwritten, as a program that did not ask for `fsync` has to expect.*
//! 2. Flush: these contents are durable, and so are the allocations of all blocks that the transaction names.
//!    *A crash here: the allocated blocks cannot be reached; the next mount lets the device collect them.*
//! 3. The transaction goes to the journal, with one checksum. *A crash here: it is whole, or it does not count.*
//! 4. Flush: the transaction is durable; `fsync` returns. *A crash after this: the mount replays it.*
//! 5. The device is told of the new pointers. *A crash here: the journal still has them, and tells again.*
//!
//! A checkpoint ([`FileSystem::checkpoint`]), when the journal is half full, when memory is short, when blocks are to be
//! freed, and at the end:
//!
//! 6. All blocks that are in the journal go to their places. *A crash here: they are replayed over whatever is there.*
//! 7. Flush; then the header says that no image is needed any more; flush. From here on no image of the journal can come
//!    back over a block, so blocks may be freed and used for something else.
//! 8. The device is told of the pointers that are gone, and frees what nothing points to. *A crash here: the journal
//!    still has them. No block has been allocated meanwhile, so those that are told twice mean the same.*
//! 9. Flush; then the header says that the journal is empty, which is durable before anything is written to the journal
//!    again (2).
//!
//! A mount ([`FileSystem::recover`]) does 6 to 9 with what it finds in the journal, where of all changes of one pointer
//! only the last counts, and then lets the device collect what cannot be reached.

use std::collections::BTreeMap;

use dcd_client::{BlockDevice, DeviceError, PointerChange, PointerVerb, VolumeError};

use crate::error::{FsError, FsResult};
use crate::file_system::FileSystem;
use crate::format::transaction::Transaction;
use crate::runs::write_blocks;

/// So many pointers to be deleted are told without waiting for another reason.
const DELETES_MAX: usize = 20_000;

impl<D: BlockDevice> FileSystem<D> {
    /// Makes everything durable that was done before.
    pub fn sync(&mut self) -> FsResult<()> {
        self.guarded(Self::commit)?;
        let (all, taken) = self.journal.fill();
        if taken > all / 2 || self.pointers.to_delete() > DELETES_MAX {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// What should be done now and then: what was done is made durable, and what is not needed any more is freed.
    pub fn tidy(&mut self) -> FsResult<()> {
        self.sync()?;
        if self.pointers.to_delete() > 0 { self.checkpoint() } else { Ok(()) }
    }

    /// Brings everything that is durable to its place, and frees what is not needed any more.
    pub(crate) fn checkpoint(&mut self) -> FsResult<()> {
        self.guarded(|this| {
            this.commit()?;
            this.empty_journal()
        })
    }

    /// Writes contents of files, to have less in memory.
    pub(crate) fn write_back(&mut self) -> FsResult<()> {
        self.guarded(|this| {
            this.is_unflushed = true;
            Ok(this.pages.write_back(&mut this.device)?)
        })
    }

    /// After an error in here nobody knows what is on the device: nothing more is written.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> FsResult<T>) -> FsResult<T> {
        if self.is_stopped {
            return Err(FsError::Stopped);
        }
        let result = work(self);
        self.is_stopped = result.is_err();
        result
    }

    fn commit(&mut self) -> FsResult<()> {
        // 1.
        if self.pages.dirty() > 0 {
            self.is_unflushed = true;
            self.pages.write_back(&mut self.device)?;
        }
        // 2.
        self.flush()?;
        let changes = self.pointers.running_changes();
        if self.metadata.running().is_empty() && changes.is_empty() {
            return Ok(());
        }
        // 3.
        let blocks = self.metadata.running().iter();
        let images: Vec<_> = blocks.map(|block| (*block, self.metadata.encode(*block))).collect();
        assert!(
            self.journal.has_room(images.len(), changes.len()),
            "half of the journal is always free"
        );
        let transaction = Transaction { sequence: self.journal.next_sequence(), images, changes };
        self.is_unflushed = true;
        self.journal.append(&mut self.device, &transaction)?;
        // 4.
        self.flush()?;
        self.metadata.running_is_logged();
        self.allocator.commit();
        // 5.
        let creates = self.pointers.commit();
        self.tell_pointers(&creates)
    }

    fn empty_journal(&mut self) -> FsResult<()> {
        // 6.
        let blocks = self.metadata.logged().iter();
        let images = blocks.map(|block| (*block, self.metadata.encode(*block)));
        write_blocks(&mut self.device, images)?;
        self.is_unflushed = true;
        let deletes = self.pointers.take_deletes();
        self.finish_emptying(&deletes)?;
        self.metadata.logged_is_home();
        Ok(())
    }

    /// Steps 7 to 9.
    fn finish_emptying(&mut self, deletes: &[PointerChange]) -> FsResult<()> {
        // 7.
        self.flush()?;
        if self.journal.fill().1 == 0 {
            return Ok(());
        }
        self.journal.images_are_home(&mut self.device)?;
        self.is_unflushed = true;
        // 8.
        if !deletes.is_empty() {
            self.flush()?;
            self.tell_pointers(deletes)?;
        }
        // 9.
        self.flush()?;
        self.is_unflushed = true;
        self.journal.pointers_are_told(&mut self.device)
    }

    pub(crate) fn flush(&mut self) -> FsResult<()> {
        if self.is_unflushed {
            self.device.flush()?;
            self.is_unflushed = false;
        }
        Ok(())
    }

    /// Tells of pointers that may have been told already.
    fn tell_pointers(&mut self, changes: &[PointerChange]) -> FsResult<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.is_unflushed = true;
        for told in self.device.change_pointers(changes) {
            match told {
                Ok(()) => {}
                // Told before the crash; and what was freed by it points to nothing.
                Err(DeviceError::Volume(
                    VolumeError::PointerExists { .. }
                    | VolumeError::NoPointer { .. }
                    | VolumeError::NotAllocated(_),
                )) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
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
        // 5, again: before anything is freed, because what is freed may be pointed to from elsewhere now.
        let changes = changes.into_iter();
        let changes = changes.map(|((from, to), verb)| PointerChange { verb, from, to });
        let (creates, deletes): (Vec<_>, Vec<_>) =
            changes.partition(|change| change.verb == PointerVerb::Create);
        self.tell_pointers(&creates)?;
        // 6 to 9.
        write_blocks(&mut self.device, images.into_iter())?;
        self.is_unflushed = true;
        self.finish_emptying(&deletes)?;
        self.flush()?;
        self.device.collect()?;
        self.is_unflushed = true;
        self.flush()
    }
}
