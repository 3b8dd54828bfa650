//! The label of a data-disk (contract C29): compared when a pair is opened, and kept in step with
//! the superblock of the cache.
//!
//! The engine knows nothing of it. Whenever it writes a superblock, at the end of an opening, of a
//! shutdown or of a detach, that write is held back here for a moment, and its end, too:
//!
//! ```text
//! 1. The label, with FUA: epoch e, soon e + 1.
//!      Crash here: the superblock says e, which the label allows.
//!      It fails: so does the write of the superblock, which is not begun. The pair is what it was.
//! 2. The superblock, with FUA: epoch e + 1.        Crash here: the label allows that, too.
//!      It fails: whichever of the two it says, the label allows it.
//! 3. The label, with FUA: epoch e + 1 only.        Then the engine hears that its superblock is durable.
//!      It fails: that is told on stderr and is no harm, as after a crash.
//! ```
//!
//! So between two sessions, and while one runs, a label fits one superblock alone: a copy of either
//! disk from before is refused. A healthy pair never is, wherever it was interrupted. Copies of one
//! and the same session cannot be told apart.

use std::path::{Path, PathBuf};

use dcd_engine::format::data_label::{
    DATA_LABEL_BYTES, DATA_LABEL_OFFSETS, DataLabel, LabelFit, LabelState,
};
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::superblock::{CacheState, SUPERBLOCK_SIZE};
use dcd_engine::{
    Buffer, Device, FormatError, Io, IoData, IoDone, IoError, IoId, IoOperation, Superblock, Uuid,
};

use crate::device::device_file::{DeviceError, DeviceFile};

/// The I/O of a label: no engine counts so far.
const LABEL_IO: IoId = IoId(u64::MAX);

/// Why a data-disk does not belong to a cache, as its label tells it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LabelProblem {
    /// There is none.
    #[error("the data-disk {} has no label, and that of this cache has one: {problem}", path.display())]
    Missing {
        /// The data-disk.
        path: PathBuf,
        /// What is there.
        problem: FormatError,
    },
    /// That of another cache.
    #[error("{} is the data-disk of cache {found}, and this is cache {expected}", path.display())]
    OtherCache {
        /// The data-disk.
        path: PathBuf,
        /// The cache given.
        expected: Uuid,
        /// That of the label.
        found: Uuid,
    },
    /// The data-disk was put back.
    #[error(
        "the data-disk {} is an older copy: its label has epoch {found}, and the cache has gone on to {expected}",
        path.display()
    )]
    OlderDataDisk {
        /// The data-disk.
        path: PathBuf,
        /// Of its label.
        found: u64,
        /// Of the superblock.
        expected: u64,
    },
    /// The cache-disk was put back.
    #[error(
        "the cache-disk {} is an older copy: it has epoch {found}, and the label of the data-disk says {expected}",
        path.display()
    )]
    OlderCacheDisk {
        /// The cache-disk.
        path: PathBuf,
        /// Of its superblock.
        found: u64,
        /// Of the label.
        expected: u64,
    },
}

impl LabelProblem {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            LabelProblem::Missing { .. } => {
                "find the right disk: `dcd probe DISK` tells what a disk is; if only the beginning of this one was \
                 overwritten, --trust-disks goes on, and a start with it writes the label again"
                    .into()
            }
            LabelProblem::OtherCache { .. } => {
                "give the disks that belong together: `dcd probe DISK` tells what a disk is; --trust-disks takes this one all \
                 the same, and its own cache is refused from then on"
                    .into()
            }
            LabelProblem::OlderDataDisk { .. } => {
                "give the data-disk that was in use last; --trust-disks goes on with this one: what was moved to the other \
                 since is lost or mixed with what is old"
                    .into()
            }
            LabelProblem::OlderCacheDisk { .. } => {
                "give the cache-disk that was in use last; --trust-disks goes on with this one: what was written since is lost \
                 or mixed with what is old"
                    .into()
            }
        }
    }
}

/// Reads both copies and takes the newer.
///
/// # Errors
/// If the disk cannot be read. The inner one is what is wrong with what was read.
pub fn read_data_label(disk: &DeviceFile) -> Result<Result<DataLabel, FormatError>, DeviceError> {
    let [first, second] = DATA_LABEL_OFFSETS.map(|offset| disk.read_at(offset, DATA_LABEL_BYTES));
    let (first, second) = (first?, second?);
    Ok(DataLabel::newest(first.bytes(), second.bytes()))
}

/// Whether the label on a data-disk is that of this cache, as it is now.
pub(crate) fn judge_label(
    superblock: &Superblock,
    cache_disk: &DeviceFile,
    data_disk: &Path,
    label: Result<DataLabel, FormatError>,
) -> Result<DataLabel, LabelProblem> {
    let path = data_disk.to_owned();
    let label = label.map_err(|problem| LabelProblem::Missing { path: path.clone(), problem })?;
    if label.uuid != superblock.uuid {
        let (expected, found) = (superblock.uuid, label.uuid);
        return Err(LabelProblem::OtherCache { path, expected, found });
    }
    if label.payload_offset_bytes != superblock.data_offset_bytes {
        let found = label.payload_offset_bytes;
        let problem = FormatError::Field {
            what: "the label of the data-disk",
            field: "payload_offset_bytes",
            found,
        };
        return Err(LabelProblem::Missing { path, problem });
    }
    let epoch = superblock.data_label_epoch;
    match label.fit(epoch) {
        LabelFit::Same => Ok(label),
        LabelFit::DataDiskOlder => {
            Err(LabelProblem::OlderDataDisk { path, found: label.epoch_max, expected: epoch })
        }
        // The newer copy of the superblock has gone bad, and the other one counts: that is told by
        // `dcd check`.
        LabelFit::CacheDiskOlder
            if label.fit(epoch + 1) == LabelFit::Same && has_lost_a_superblock(cache_disk) =>
        {
            Ok(label)
        }
        LabelFit::CacheDiskOlder => Err(LabelProblem::OlderCacheDisk {
            path: cache_disk.path().to_owned(),
            found: epoch,
            expected: label.epoch,
        }),
    }
}

pub(crate) fn has_lost_a_superblock(cache_disk: &DeviceFile) -> bool {
    SUPERBLOCK_OFFSETS.iter().any(|offset| {
        let bytes = cache_disk.read_at(*offset, SUPERBLOCK_SIZE);
        bytes.is_ok_and(|bytes| Superblock::decode(bytes.bytes()).is_err())
    })
}

/// Where the writing of a superblock stands.
enum Step {
    Idle,
    /// Step 1: the superblock waits.
    Announcing {
        superblock: Io,
        next: DataLabel,
    },
    /// Step 2.
    WritingSuperblock {
        id: IoId,
        next: DataLabel,
    },
    /// Step 3: the engine is not told yet.
    Settling {
        done: IoDone,
    },
}

/// What becomes of an I/O that has ended.
pub(crate) enum After {
    /// The engine is told.
    Give(IoDone),
    /// This one is started first, where the engine wanted it.
    Start(Io),
    /// This one, a label, in the head of the data-disk.
    StartInHead(Io),
}

/// Writes the labels of a session.
pub(crate) struct LabelKeeper {
    /// The newest; `writing` counts those that failed, too.
    label: DataLabel,
    step: Step,
}

impl LabelKeeper {
    /// For a data-disk that was found with this label, if it had one that counts.
    pub(crate) fn new(superblock: &Superblock, found: Option<DataLabel>) -> LabelKeeper {
        let label = DataLabel {
            uuid: superblock.uuid,
            writing: found.map_or(0, |found| found.writing),
            // That of the superblock, whose next is one more: the label before may have been ahead
            // of it or behind.
            epoch: superblock.data_label_epoch,
            epoch_max: superblock.data_label_epoch,
            state: LabelState::Dirty,
            payload_offset_bytes: superblock.data_offset_bytes,
            payload_bytes: superblock.data_disk.bytes(),
        };
        LabelKeeper { label, step: Step::Idle }
    }

    /// The engine starts an I/O of the cache-disk. `holds_newer_data`: of a superblock that closes
    /// the cache.
    pub(crate) fn starts(&mut self, io: Io, holds_newer_data: impl FnOnce() -> bool) -> After {
        let Some(superblock) = superblock_in(&io) else { return After::Start(io) };
        let epoch = superblock.data_label_epoch;
        if epoch == self.label.epoch {
            return After::Start(io);
        }
        let next = DataLabel {
            epoch,
            epoch_max: epoch,
            state: match superblock.state {
                CacheState::Open => LabelState::Dirty,
                CacheState::Closed if holds_newer_data() => LabelState::Dirty,
                CacheState::Closed => LabelState::Clean,
                CacheState::Detached => LabelState::Detached,
            },
            payload_bytes: superblock.data_disk.bytes(),
            ..self.label
        };
        self.step = Step::Announcing { superblock: io, next };
        self.write(DataLabel { epoch_max: epoch, state: LabelState::Dirty, ..self.label })
    }

    fn write(&mut self, label: DataLabel) -> After {
        self.label = DataLabel { writing: self.label.writing + 1, ..label };
        let data = IoData::Owned(self.label.encode());
        let operation = IoOperation::Write { offset: self.label.offset(), data, fua: true };
        After::StartInHead(Io { id: LABEL_IO, device: Device::DataDisk, operation })
    }

    /// An I/O has ended.
    pub(crate) fn ended(&mut self, done: IoDone) -> After {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Announcing { superblock, next } if done.id == LABEL_IO => match done.result {
                Ok(()) => {
                    self.step = Step::WritingSuperblock { id: superblock.id, next };
                    After::Start(superblock)
                }
                Err(error) => {
                    tell(error, "the cache is not opened or closed by that");
                    let Io { id, operation, .. } = superblock;
                    let buffer = match operation {
                        IoOperation::Write { data: IoData::Owned(buffer), .. } => Some(buffer),
                        _ => None,
                    };
                    After::Give(IoDone { id, result: Err(error), buffer })
                }
            },
            Step::WritingSuperblock { id, next } if done.id == id => match done.result {
                Ok(()) => {
                    self.step = Step::Settling { done };
                    self.write(next)
                }
                // Whichever the superblock says now, the label allows it.
                Err(_) => After::Give(done),
            },
            Step::Settling { done: superblock } if done.id == LABEL_IO => {
                if let Err(error) = done.result {
                    tell(error, "the next start will write it");
                }
                After::Give(superblock)
            }
            step => {
                self.step = step;
                After::Give(done)
            }
        }
    }

    /// The label of a data-disk that was detached from a cache-disk which has failed: that one,
    /// should it come back, is an older copy. And where it goes.
    pub(crate) fn detached(&mut self) -> (u64, Buffer) {
        let epoch = self.label.epoch_max + 1;
        self.label = DataLabel {
            writing: self.label.writing + 1,
            epoch,
            epoch_max: epoch,
            state: LabelState::Detached,
            ..self.label
        };
        (self.label.offset(), self.label.encode())
    }
}

fn tell(error: IoError, what: &str) {
    eprintln!("dcd: the label of the data-disk cannot be written: {error}; {what}");
}

/// The superblock that an I/O writes, if it does.
pub(crate) fn superblock_in(io: &Io) -> Option<Superblock> {
    let IoOperation::Write { offset, data: IoData::Owned(bytes), .. } = &io.operation else {
        return None;
    };
    let is_its_place = io.device == Device::CacheDisk && SUPERBLOCK_OFFSETS.contains(offset);
    is_its_place.then(|| Superblock::decode(bytes.bytes()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_engine::DataDiskInfo;
    use dcd_engine::format::geometry::Geometry;

    fn superblock(epoch: u64, state: CacheState) -> Superblock {
        let options = dcd_engine::create::CreateOptions {
            uuid: Uuid([3; 16]),
            geometry: Geometry::fit(4 << 20, 64 << 10).unwrap(),
            data_disk: DataDiskInfo {
                blocks: 4096,
                logical_block_size: 512,
                physical_sector_size: 4096,
            },
            data_disk_serial: String::new(),
            created_unix_seconds: 0,
            volume: None,
            data_offset_bytes: 1 << 20,
            has_end_mark: false,
            has_legs: false,
        };
        let writes = dcd_engine::create::create(options);
        let (_, bytes) = writes.last().unwrap();
        let made = Superblock::decode(bytes.bytes()).unwrap();
        Superblock { data_label_epoch: epoch, generation: 1 + epoch, state, ..made }
    }

    fn write_of(superblock: &Superblock) -> Io {
        let data = IoData::Owned(superblock.encode());
        let operation = IoOperation::Write { offset: superblock.offset(), data, fua: true };
        Io { id: IoId(7), device: Device::CacheDisk, operation }
    }

    fn done(id: IoId, result: Result<(), IoError>) -> IoDone {
        IoDone { id, result, buffer: None }
    }

    fn label_in(after: After) -> DataLabel {
        let After::StartInHead(io) = after else { panic!("no label") };
        let IoOperation::Write { offset, data: IoData::Owned(bytes), fua: true } = io.operation
        else {
            panic!("no durable write")
        };
        let label = DataLabel::decode(bytes.bytes()).unwrap();
        assert_eq!((offset, io.device, io.id), (label.offset(), Device::DataDisk, LABEL_IO));
        label
    }

    /// What a crash would leave between any two steps fits, and nothing else does.
    #[test]
    fn every_moment_of_a_writing_fits() {
        let before = superblock(4, CacheState::Open);
        let mut keeper = LabelKeeper::new(&before, None);
        let closed = superblock(5, CacheState::Closed);
        let first = label_in(keeper.starts(write_of(&closed), || false));
        assert_eq!((first.epoch, first.epoch_max, first.state), (4, 5, LabelState::Dirty));
        // Others pass meanwhile.
        assert!(matches!(keeper.ended(done(IoId(3), Ok(()))), After::Give(_)));
        let After::Start(io) = keeper.ended(done(LABEL_IO, Ok(()))) else { panic!("held") };
        assert_eq!(superblock_in(&io), Some(closed.clone()));
        let last = label_in(keeper.ended(done(io.id, Ok(()))));
        assert_eq!((last.epoch, last.epoch_max, last.state), (5, 5, LabelState::Clean));
        assert_eq!(last.writing, first.writing + 1);
        let After::Give(told) = keeper.ended(done(LABEL_IO, Err(IoError::Failed))) else {
            panic!("not told")
        };
        assert_eq!((told.id, told.result), (IoId(7), Ok(())));
        assert_eq!([4, 5, 6].map(|epoch| first.fit(epoch) == LabelFit::Same), [true, true, false]);
        assert_eq!([4, 5, 6].map(|epoch| last.fit(epoch) == LabelFit::Same), [false, true, false]);
        // Newer data, a detach, a cache-disk that was lost.
        let closed = superblock(6, CacheState::Closed);
        drop(keeper.starts(write_of(&closed), || true));
        drop(keeper.ended(done(LABEL_IO, Ok(()))));
        assert_eq!(label_in(keeper.ended(done(IoId(7), Ok(())))).state, LabelState::Dirty);
        drop(keeper.ended(done(LABEL_IO, Ok(()))));
        let (_, bytes) = keeper.detached();
        let detached = DataLabel::decode(bytes.bytes()).unwrap();
        assert_eq!(
            (detached.state, detached.fit(6)),
            (LabelState::Detached, LabelFit::CacheDiskOlder)
        );
    }

    #[test]
    fn without_its_label_no_superblock_is_written() {
        let mut keeper = LabelKeeper::new(&superblock(4, CacheState::Open), None);
        drop(keeper.starts(write_of(&superblock(5, CacheState::Detached)), || false));
        let After::Give(told) = keeper.ended(done(LABEL_IO, Err(IoError::NoSpace))) else {
            panic!("not told")
        };
        assert_eq!((told.id, told.result), (IoId(7), Err(IoError::NoSpace)));
        assert!(told.buffer.is_some());
        // Nor is one held whose epoch stays, or what is no superblock.
        let mut keeper = LabelKeeper::new(&superblock(5, CacheState::Open), None);
        let same = keeper.starts(write_of(&superblock(5, CacheState::Closed)), || false);
        assert!(matches!(same, After::Start(_)));
        let flush = Io { id: IoId(1), device: Device::CacheDisk, operation: IoOperation::Flush };
        assert!(matches!(keeper.starts(flush, || false), After::Start(_)));
    }
}
