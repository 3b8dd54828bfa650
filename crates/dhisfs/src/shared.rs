//! A file system that several threads use. What is in memory is behind one lock, which nobody holds
//! while it waits for a disk, but for what is said below.
//!
//! | who | does |
//! |---|---|
//! | a read | finds the blocks, lets go of the lock, reads them over a connection of its own, and looks whether they are still what they were |
//! | anything that needs blocks that are not in memory | is left before it changes anything, reads them as above, and is begun anew |
//! | a commit, a checkpoint | puts together what has to be written, lets go, and writes it (`commit.rs`) |
//! | a write, a change | happens in memory. It waits for a disk only if so much has not been written yet that there is no room for it |
//!
//! Locks are taken in this order: the writer, which is the right to write and the connection for
//! it; the file system.
//!
//! Everything else is done [alone](Shared::alone), with both: what finds no free block and has to
//! look for what can be freed, and what was begun anew again and again, because others were faster.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use dcd_client::BlockDevice;

use crate::commit::tell_pointers;
use crate::error::{FsError, FsResult};
use crate::file_system::{FileSystem, Room};
use crate::runs::read_blocks;

/// How often something is begun anew before it is done alone.
const ATTEMPTS: usize = 16;
/// The same for a read whose blocks change while it reads them.
const READ_ATTEMPTS: usize = 3;

/// More connections to the same device.
pub struct Connections<D> {
    /// For what is written.
    pub writer: D,
    /// For what is read, one reader each; one or more.
    pub readers: Vec<D>,
}

/// The file system, and connections for who waits.
pub(crate) struct Shared<D> {
    file_system: Mutex<Option<FileSystem<D>>>,
    writer: Mutex<D>,
    readers: Mutex<Vec<D>>,
    reader_is_free: Condvar,
    /// Until which change of the file system everything is durable.
    durable: Mutex<u64>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: BlockDevice> Shared<D> {
    pub(crate) fn new(file_system: FileSystem<D>, connections: Connections<D>) -> Shared<D> {
        assert!(!connections.readers.is_empty(), "somebody has to read");
        Shared {
            file_system: Mutex::new(Some(file_system)),
            writer: Mutex::new(connections.writer),
            readers: Mutex::new(connections.readers),
            reader_is_free: Condvar::new(),
            durable: Mutex::new(0),
        }
    }

    /// Whether nothing may be changed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.on(|fs| fs.is_read_only()).unwrap_or(true)
    }

    /// Whether nothing is written any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.on(|fs| fs.is_stopped).unwrap_or(true)
    }

    /// The file system, at the end.
    pub(crate) fn take(&self) -> Option<FileSystem<D>> {
        locked(&self.file_system).take()
    }

    /// Does something with what is in memory. It must not do anything before the last call that may
    /// fail, or nothing that doing it again does not do as well.
    pub(crate) fn with<T>(
        &self,
        mut work: impl FnMut(&mut FileSystem<D>) -> FsResult<T>,
    ) -> FsResult<T> {
        let mut arrived = Vec::new();
        for _ in 0..ATTEMPTS {
            let mut guard = locked(&self.file_system);
            let Some(fs) = &mut *guard else { return Err(FsError::Stopped) };
            if let Some((ticket, bytes)) = arrived.pop() {
                Self::arrive(fs, ticket, bytes);
            }
            fs.may_begin_anew = true;
            let result = work(fs);
            fs.may_begin_anew = false;
            fs.arrived.clear();
            match result {
                Err(FsError::NotInMemory { blocks }) => {
                    let ticket = fs.reading.begin(blocks.iter().copied());
                    let block_bytes = fs.block_bytes();
                    drop(guard);
                    let mut bytes = vec![0; blocks.len() * block_bytes];
                    let places: Vec<_> = blocks.iter().copied().map(Some).collect();
                    let read = self.read_with(|reader| {
                        read_blocks(reader, &places, &mut bytes).map_err(FsError::from)
                    });
                    if let Err(error) = read {
                        if let Some(fs) = &mut *locked(&self.file_system) {
                            fs.reading.end(ticket);
                        }
                        return Err(error);
                    }
                    arrived.push((ticket, Blocks { blocks, bytes }));
                }
                Err(FsError::Later) => {
                    drop(guard);
                    self.make_room()?;
                }
                Err(FsError::Alone) => break,
                result => return result,
            }
        }
        if let Some((ticket, _)) = arrived.pop()
            && let Some(fs) = &mut *locked(&self.file_system)
        {
            fs.reading.end(ticket);
        }
        self.alone(work)
    }

    /// What has come and is still what it was is there for the next attempt.
    fn arrive(fs: &mut FileSystem<D>, ticket: crate::watched::Ticket, read: Blocks) {
        let counts = fs.reading.end(ticket);
        let chunks = read.bytes.chunks(read.bytes.len() / read.blocks.len());
        let arrived = read.blocks.iter().zip(chunks).zip(counts).filter(|(_, counts)| *counts);
        fs.arrived.extend(arrived.map(|((block, bytes), _)| (*block, bytes.to_vec())));
    }

    /// Does something while nobody else writes, and reads what it needs itself.
    fn alone<T>(&self, mut work: impl FnMut(&mut FileSystem<D>) -> FsResult<T>) -> FsResult<T> {
        let _writer = locked(&self.writer);
        match &mut *locked(&self.file_system) {
            Some(fs) => work(fs),
            None => Err(FsError::Stopped),
        }
    }

    /// Reads a part of a file.
    pub(crate) fn read(
        &self,
        file: impl Fn(&FileSystem<D>) -> u64,
        offset: u64,
        length: usize,
    ) -> FsResult<Vec<u8>> {
        for _ in 0..READ_ATTEMPTS {
            let planned = self.with(|fs| {
                let plan = fs.plan_read(file(fs), offset, length)?;
                if plan.missing().next().is_none() {
                    return fs.finish_read(plan).map(Planned::Done);
                }
                let ticket = fs.reading.begin(plan.missing());
                Ok(Planned::Reads(plan, ticket))
            });
            let (mut plan, ticket) = match planned? {
                Planned::Done(data) => return Ok(data),
                Planned::Reads(plan, ticket) => (plan, ticket),
            };
            let read = self.read_with(|reader| plan.read(reader));
            let mut guard = locked(&self.file_system);
            let Some(fs) = &mut *guard else { return Err(FsError::Stopped) };
            let counts = fs.reading.end(ticket);
            read?;
            if counts.into_iter().all(|counts| counts) {
                return fs.finish_read(plan);
            }
        }
        self.alone(|fs| fs.read(file(fs), offset, length))
    }

    /// Waits for a connection to read, and reads.
    fn read_with<T>(&self, read: impl FnOnce(&mut D) -> FsResult<T>) -> FsResult<T> {
        let mut readers = locked(&self.readers);
        let mut reader = loop {
            match readers.pop() {
                Some(reader) => break reader,
                None => {
                    readers =
                        self.reader_is_free.wait(readers).unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        drop(readers);
        let result = read(&mut reader);
        locked(&self.readers).push(reader);
        self.reader_is_free.notify_one();
        result
    }

    /// Makes everything durable that was done before.
    pub(crate) fn sync(&self) -> FsResult<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let wanted = self.on(|fs| fs.changes)?;
        let mut writer = locked(&self.writer);
        // Who had the writer meanwhile may have done it.
        if *locked(&self.durable) >= wanted && wanted > 0 {
            return Ok(());
        }
        self.sync_with(&mut writer)
    }

    /// The same, and frees what is not needed any more.
    pub(crate) fn tidy(&self) -> FsResult<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let mut writer = locked(&self.writer);
        self.sync_with(&mut writer)?;
        if self.on(|fs| fs.pointers.to_delete() > 0)? {
            self.checkpoint(&mut writer)
        } else {
            Ok(())
        }
    }

    /// Writes something, so that there is room for changes.
    pub(crate) fn make_room(&self) -> FsResult<()> {
        let mut writer = locked(&self.writer);
        match self.on(|fs| (fs.room(), fs.wants_commit()))? {
            // Somebody has done it.
            (Room::Enough, _) => Ok(()),
            (_, true) => self.sync_with(&mut writer),
            (_, false) => self.write_back(&mut writer),
        }
    }

    fn sync_with(&self, writer: &mut D) -> FsResult<()> {
        let commit = self.on_unless_stopped(|fs| fs.begin_commit())?;
        self.or_stop(commit.write(writer))?;
        let until = commit.changes_until;
        let creates = self.on(|fs| fs.end_commit(commit))?;
        self.or_stop(tell_pointers(writer, &creates))?;
        self.on(|fs| fs.is_committing = false)?;
        *locked(&self.durable) = until;
        let is_full = self.on(|fs| fs.wants_checkpoint() || fs.is_pinned_full())?;
        if is_full { self.checkpoint(writer) } else { Ok(()) }
    }

    fn checkpoint(&self, writer: &mut D) -> FsResult<()> {
        let Some(checkpoint) = self.on_unless_stopped(|fs| fs.begin_checkpoint())? else {
            return Ok(());
        };
        let usage = self.or_stop(checkpoint.write(writer))?;
        self.on(|fs| fs.end_checkpoint(usage))
    }

    fn write_back(&self, writer: &mut D) -> FsResult<()> {
        let back = self.on_unless_stopped(|fs| fs.begin_write_back())?;
        self.or_stop(back.write(writer))?;
        self.on(|fs| fs.end_write_back(&back))
    }

    fn on<T>(&self, work: impl FnOnce(&mut FileSystem<D>) -> T) -> FsResult<T> {
        locked(&self.file_system).as_mut().map(work).ok_or(FsError::Stopped)
    }

    fn on_unless_stopped<T>(&self, work: impl FnOnce(&mut FileSystem<D>) -> T) -> FsResult<T> {
        match &mut *locked(&self.file_system) {
            Some(fs) if !fs.is_stopped => Ok(work(fs)),
            _ => Err(FsError::Stopped),
        }
    }

    /// After an error nobody knows what is on the device: nothing more is written.
    fn or_stop<T>(&self, result: FsResult<T>) -> FsResult<T> {
        if result.is_err() {
            self.on(|fs| fs.is_stopped = true)?;
        }
        result
    }
}

/// What was read for something that is begun anew.
struct Blocks {
    blocks: Vec<u64>,
    bytes: Vec<u8>,
}

enum Planned {
    Done(Vec<u8>),
    Reads(crate::file::ReadPlan, crate::watched::Ticket),
}
