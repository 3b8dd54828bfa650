//! A disk below the engine: an open file or block device, and how it behaves: plain, slow,
//! as a modelled disk, faulty.
//!
//! ```text
//! start -> faults (fail, hang) -> slow arm or disk model (wait) -> ring -> completed -> IoDone
//!                                                              `-> a server (network/) -> IoDone
//! ```

pub mod drive;
pub mod fault_rules;
pub(crate) mod model_arm;
pub mod network;
pub mod slow_arm;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dcd_engine::format::share_directory::Windows;
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{
    Buffer, DataDiskInfo, Device, Io, IoData, IoDone, IoError, IoId, IoOperation, Time,
};
use rustix::io::Errno;

use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::device_spec::DeviceSpec;
use crate::disk::drive::{ModelledDrive, open_drive};
use crate::disk::fault_rules::{Fault, FaultFile, FaultTarget, LOOK_INTERVAL};
use crate::disk::model_arm::{ModelArm, ModelWork};
use crate::disk::network::{NetworkEvent, NetworkStanding, Session};
use crate::disk::slow_arm::{ArmWork, SlowArm};
use crate::memory::segment_memory::Mapping;
use crate::ring::{Completed, DiskError, Ring, WriteSource, ZeroMode};

/// Names a disk operation in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskKey {
    /// Which disk.
    pub device: Device,
    /// What of it.
    pub part: DiskPart,
}

/// What of a disk has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskPart {
    /// An I/O.
    Io(IoId),
    /// Something that a network disk waits for.
    Network(NetworkEvent),
}

/// An open disk and its behaviour.
pub struct Disk {
    device: Device,
    file: Rc<DeviceFile>,
    /// Where [`IoData::SegmentMemory`] points.
    segment_memory: Option<Arc<Mapping>>,
    arm: Option<SlowArm<Io>>,
    model: Option<ModelArm<Io>>,
    /// What is written at once, in bytes.
    sector_bytes: u32,
    /// Where the engine's byte 0 is: behind a label, if the disk has one.
    payload_offset_bytes: u64,
    faults: Option<FaultFile>,
    /// I/Os that hang, with how often the rules had changed when they were given.
    hung: Vec<(u64, Io)>,
    /// I/Os that ended without the ring.
    done: VecDeque<IoDone>,
    /// Ways to zero that have not been refused yet.
    can_punch: bool,
    can_zero_range: bool,
    /// Of a network disk: the server takes the place of the ring.
    session: Option<Box<Session>>,
}

impl Disk {
    /// Opens and locks a disk.
    pub fn open(device: Device, spec: &DeviceSpec) -> Result<Disk, DeviceError> {
        Disk::of(device, spec, DeviceFile::open(spec.path())?)
    }

    /// The same of a disk that is only read.
    pub fn open_read_only(device: Device, spec: &DeviceSpec) -> Result<Disk, DeviceError> {
        Disk::of(device, spec, DeviceFile::open_read_only(spec.path())?)
    }

    /// One that is open, which behaves as this says.
    pub(crate) fn of(
        device: Device,
        spec: &DeviceSpec,
        file: DeviceFile,
    ) -> Result<Disk, DeviceError> {
        let times = spec.slow_times();
        let sector_bytes = times.map_or(file.physical_sector_size, |times| {
            // What is read and written in larger blocks has no smaller sectors.
            times.sector_bytes.max(file.logical_block_size)
        });
        let model = spec.model_profile().map(|profile| model_of(profile, &file)).transpose()?;
        let sector_bytes = model.as_ref().map_or(sector_bytes, |model| {
            model.sector_bytes().clamp(512, 4096).max(file.logical_block_size)
        });
        let file = Rc::new(file);
        let session = Session::new(file.clone()).map_err(|source| DeviceError::Io {
            path: file.path().to_owned(),
            operation: "start a thread for",
            source,
        })?;
        Ok(Disk {
            device,
            can_punch: true,
            can_zero_range: true,
            session: session.map(Box::new),
            file,
            segment_memory: None,
            sector_bytes,
            payload_offset_bytes: 0,
            arm: times.map(SlowArm::new),
            model: model.map(ModelArm::new),
            faults: spec.fault_control().map(FaultFile::new),
            hung: Vec::new(),
            done: VecDeque::new(),
        })
    }

    /// Gives it another name: a member is known when its label has been read. To be called before
    /// the first I/O.
    pub fn set_device(&mut self, device: Device) {
        self.device = device;
    }

    /// The open file or block device.
    pub fn file(&self) -> &DeviceFile {
        &self.file
    }

    /// How large it is now, in bytes; of one in the times of a model no more than that has.
    ///
    /// # Errors
    /// If it does not say.
    pub fn size_now(&self) -> std::io::Result<u64> {
        let size = self.file.size_now()?;
        let most = self.model.as_ref().map_or(u64::MAX, |model| model.capacity_bytes());
        Ok(size.min(most))
    }

    /// Whether a client's trim gives space back.
    pub fn can_give_back_space(&self) -> bool {
        self.file.can_give_back_space()
    }

    /// Leaves the beginning of the disk out of what the engine sees. To be called before the first
    /// I/O.
    pub fn set_payload_offset(&mut self, bytes: u64) {
        self.payload_offset_bytes = bytes;
    }

    /// The disk in the words of the engine.
    pub fn data_disk_info(&self) -> DataDiskInfo {
        DataDiskInfo {
            blocks: self.file.size_bytes.saturating_sub(self.payload_offset_bytes) / BLOCK_SIZE,
            logical_block_size: self.file.logical_block_size,
            physical_sector_size: self.sector_bytes,
        }
    }

    /// What takes long to let go of: the file, if nothing is under way on it, and the memory that
    /// its I/O is from and to.
    pub(crate) fn into_parts(self) -> (Option<DeviceFile>, Option<Arc<Mapping>>) {
        let Disk { file, segment_memory, session, .. } = self;
        drop(session);
        (Rc::try_unwrap(file).ok(), segment_memory)
    }

    /// Tells where the segment memory is.
    pub fn set_segment_memory(&mut self, mapping: Arc<Mapping>) {
        if let Some(session) = &mut self.session {
            session.set_segment_memory(mapping.clone());
        }
        self.segment_memory = Some(mapping);
    }

    /// Tells how long the engine waits for an I/O.
    pub fn set_io_timeout(&mut self, io_timeout: Duration) {
        if let Some(session) = &mut self.session {
            session.set_io_timeout(io_timeout);
        }
    }

    /// What it is to the engine.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Of a network disk: how its connections stand.
    pub fn network_standing(&self) -> Option<NetworkStanding> {
        self.session.as_ref().map(|session| session.standing())
    }

    /// Starts an I/O.
    pub fn start<K: Copy + From<DiskKey>>(&mut self, now: Time, mut io: Io, ring: &mut Ring<K>) {
        match &mut io.operation {
            IoOperation::Read { offset, .. }
            | IoOperation::Write { offset, .. }
            | IoOperation::WriteZeroes { offset, .. } => *offset += self.payload_offset_bytes,
            IoOperation::Flush => {}
        }
        self.start_in_head(now, io, ring);
    }

    /// Starts an I/O whose offset is that of the disk itself: of a label.
    pub fn start_in_head<K: Copy + From<DiskKey>>(
        &mut self,
        now: Time,
        io: Io,
        ring: &mut Ring<K>,
    ) {
        if let Some(faults) = &mut self.faults {
            let changes = faults.refresh();
            let (target, bytes) = fault_target(&io.operation);
            match faults.find(target, bytes) {
                None => {}
                Some(Fault::Hang) => {
                    self.hung.push((changes, io));
                    return;
                }
                Some(Fault::Eio) => return self.fail(io, IoError::Failed),
                Some(Fault::Enospc) => return self.fail(io, IoError::NoSpace),
                Some(Fault::Gone) => return self.fail(io, IoError::Gone),
            }
        }
        // What makes durable proves nothing on a file of which somebody has cut the end off: writes
        // would only make it longer again. Nor on one that has been deleted.
        let makes_durable =
            matches!(io.operation, IoOperation::Flush | IoOperation::Write { fua: true, .. });
        if makes_durable && self.file.is_cut_off() {
            return self.fail(io, IoError::Gone);
        }
        self.queue(now, io, ring);
    }

    /// Behind the faults: waits for the arm, if there is one.
    fn queue<K: Copy + From<DiskKey>>(&mut self, now: Time, io: Io, ring: &mut Ring<K>) {
        if let Some(model) = &mut self.model {
            model.push(now, model_work(&io.operation), io);
            return self.move_arm(now, ring);
        }
        match &mut self.arm {
            None => self.submit(now, io, ring),
            Some(arm) => {
                let is_part = fault_target(&io.operation)
                    .1
                    .is_some_and(|bytes| !is_whole(&bytes, self.sector_bytes));
                let work = match io.operation {
                    IoOperation::Read { .. } => ArmWork::Read,
                    IoOperation::Write { .. } | IoOperation::WriteZeroes { .. } if is_part => {
                        ArmWork::WritePart
                    }
                    IoOperation::Write { .. } | IoOperation::WriteZeroes { .. } => ArmWork::Write,
                    IoOperation::Flush => ArmWork::Flush,
                };
                arm.push(now, work, io);
                self.move_arm(now, ring);
            }
        }
    }

    fn move_arm<K: Copy + From<DiskKey>>(&mut self, now: Time, ring: &mut Ring<K>) {
        if let Some(io) = self.arm.as_mut().and_then(|arm| arm.take_due(now)) {
            self.submit(now, io, ring);
        }
        while let Some(io) = self.model.as_mut().and_then(|model| model.take_due(now)) {
            self.submit(now, io, ring);
        }
    }

    fn submit<K: Copy + From<DiskKey>>(&mut self, now: Time, io: Io, ring: &mut Ring<K>) {
        if let Some(session) = &mut self.session {
            return session.start(now, Io { device: self.device, ..io }, ring);
        }
        let key = K::from(DiskKey { device: self.device, part: DiskPart::Io(io.id) });
        match io.operation {
            IoOperation::Read { offset, buffer } => ring.read(key, &self.file, offset, buffer),
            IoOperation::Write { offset, data, fua } => {
                let source = match (data, &self.segment_memory) {
                    (IoData::Owned(buffer), _) => WriteSource::Owned(buffer),
                    (IoData::SegmentMemory(range), Some(mapping)) => {
                        WriteSource::Mapped(mapping.clone(), range)
                    }
                    // Only a core without segment memory gets a disk without a mapping.
                    (IoData::SegmentMemory(_), None) => unreachable!("no segment memory"),
                };
                ring.write(key, &self.file, offset, source, fua);
            }
            IoOperation::WriteZeroes { offset, length, may_unmap } => {
                self.zero(key, offset, length, may_unmap && self.can_punch, ring);
            }
            IoOperation::Flush => ring.flush(key, &self.file),
        }
    }

    /// Zeroes a range in the best way that has not been refused yet.
    fn zero<K: Copy>(&mut self, key: K, offset: u64, length: u64, punch: bool, ring: &mut Ring<K>) {
        if punch {
            ring.zero(key, &self.file, offset, length, ZeroMode::Punch);
        } else if self.can_zero_range {
            ring.zero(key, &self.file, offset, length, ZeroMode::ZeroRange);
        } else {
            ring.write(key, &self.file, offset, WriteSource::Zeroes(length), false);
        }
    }

    /// An operation of this disk has ended in the ring. `None`: it goes on in another way.
    pub fn completed<K: Copy + From<DiskKey>>(
        &mut self,
        now: Time,
        part: DiskPart,
        completed: Completed<K>,
        ring: &mut Ring<K>,
    ) -> Option<IoDone> {
        let id = match (part, &mut self.session) {
            (DiskPart::Io(id), _) => id,
            // What it leads to comes with `poll`.
            (DiskPart::Network(event), Some(session)) => {
                session.happened(now, self.device, event, ring);
                return None;
            }
            // Of a disk that was here before.
            (DiskPart::Network(_), None) => return None,
        };
        let (result, buffer) = match completed {
            Completed::Disk { result, buffer, .. } => (result, buffer),
            Completed::Zero { key, offset, length, mode, result } => {
                if result.is_err_and(is_refusal) {
                    match mode {
                        ZeroMode::Punch => self.can_punch = false,
                        ZeroMode::ZeroRange => self.can_zero_range = false,
                    }
                    self.zero(key, offset, length, false, ring);
                    return None;
                }
                (result, None)
            }
            Completed::Received { .. } | Completed::Command { .. } | Completed::Ready { .. } => {
                return None;
            }
        };
        if let Some(arm) = &mut self.arm {
            arm.finished(now);
            self.move_arm(now, ring);
        }
        Some(IoDone { id, result: result.map_err(io_error), buffer })
    }

    /// Does what is due, and gives out I/Os that ended without the ring, one at a time.
    pub fn poll<K: Copy + From<DiskKey>>(
        &mut self,
        now: Time,
        ring: &mut Ring<K>,
    ) -> Option<IoDone> {
        self.move_arm(now, ring);
        if !self.hung.is_empty() {
            let changes = self.faults.as_mut().map_or(0, FaultFile::refresh);
            // Those that hang by the new rules too come back here. A new request may have seen the
            // change first: those from before it are due all the same.
            let due = self.hung.extract_if(.., |(then, _)| *then != changes).collect::<Vec<_>>();
            for (_, io) in due {
                self.start_in_head(now, io, ring);
            }
        }
        if let Some(done) = self.session.as_mut().and_then(|session| session.next_done(now)) {
            if let Some(arm) = &mut self.arm {
                arm.finished(now);
                self.move_arm(now, ring);
            }
            return Some(done);
        }
        self.done.pop_front()
    }

    /// When [`Disk::poll`] is needed.
    pub fn next_due(&self, now: Time) -> Option<Time> {
        if !self.done.is_empty() {
            return Some(now);
        }
        let arm = self.arm.as_ref().and_then(SlowArm::next_due);
        let look = (!self.hung.is_empty()).then(|| now.after(LOOK_INTERVAL));
        let model = self.model.as_ref().and_then(ModelArm::next_due);
        let network = self.session.as_ref().and_then(|session| session.next_due(now));
        [arm, model, look, network].into_iter().flatten().min()
    }

    /// Whether the kernel has something of it.
    pub(crate) fn is_used<K: Copy>(&self, ring: &Ring<K>) -> bool {
        ring.uses(&self.file)
    }

    /// Of a share: it is this part of its disk from now on. False, and nothing has changed, if
    /// something is under way in what it would lose: it might end when that is somebody else's.
    pub(crate) fn set_windows<K: Copy>(&self, windows: Windows, ring: &Ring<K>) -> bool {
        let size_bytes = windows.size_bytes();
        let waiting = self.arm.iter().flat_map(SlowArm::jobs);
        let waiting = waiting
            .chain(self.model.iter().flat_map(ModelArm::jobs))
            .chain(self.hung.iter().map(|(_, io)| io));
        let ends = waiting.filter_map(|io| fault_target(&io.operation).1).map(|bytes| bytes.end);
        let reached = ends.chain(ring.reach_in(&self.file)).max();
        let is_free = reached.is_none_or(|end| end <= size_bytes);
        if is_free {
            self.file.set_windows(windows);
        }
        is_free
    }

    /// I/Os that are held back by a rule.
    pub fn hung_operations(&self) -> usize {
        self.hung.len()
    }

    fn fail(&mut self, io: Io, error: IoError) {
        self.done.push_back(IoDone {
            id: io.id,
            result: Err(error),
            buffer: owned_buffer(io.operation),
        });
    }
}

/// The model in whose times a file is served.
fn model_of(profile: &str, file: &DeviceFile) -> Result<Box<dyn ModelledDrive>, DeviceError> {
    let model = open_drive(profile)?;
    let capacity = model.capacity_bytes();
    if file.size_bytes > capacity {
        let (path, profile) = (file.path().to_owned(), profile.to_owned());
        return Err(DeviceError::LargerThanModel {
            path,
            found: file.size_bytes,
            profile,
            capacity,
        });
    }
    Ok(model)
}

/// What a model is asked for.
fn model_work(operation: &IoOperation) -> ModelWork {
    let range = fault_target(operation).1.unwrap_or_default();
    match operation {
        IoOperation::Read { .. } => ModelWork::Read(range),
        IoOperation::Write { fua: true, .. } => ModelWork::WriteFua(range),
        IoOperation::Write { .. } | IoOperation::WriteZeroes { .. } => ModelWork::Write(range),
        IoOperation::Flush => ModelWork::Flush,
    }
}

/// Whether a way to zero is not known to the file system or disk.
fn is_refusal(error: DiskError) -> bool {
    let DiskError::Errno(errno) = error else { return false };
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL)
}

/// Whether these bytes are whole sectors.
fn is_whole(bytes: &std::ops::Range<u64>, sector_bytes: u32) -> bool {
    bytes.start.is_multiple_of(sector_bytes.into()) && bytes.end.is_multiple_of(sector_bytes.into())
}

fn owned_buffer(operation: IoOperation) -> Option<Buffer> {
    match operation {
        IoOperation::Read { buffer, .. }
        | IoOperation::Write { data: IoData::Owned(buffer), .. } => Some(buffer),
        _ => None,
    }
}

/// Kind and bytes of an I/O, as fault rules and the arm see it.
fn fault_target(operation: &IoOperation) -> (FaultTarget, Option<std::ops::Range<u64>>) {
    match operation {
        IoOperation::Read { offset, buffer } => {
            (FaultTarget::Read, Some(*offset..*offset + buffer.len() as u64))
        }
        IoOperation::Write { offset, data, .. } => {
            let length = match data {
                IoData::Owned(buffer) => buffer.len(),
                IoData::SegmentMemory(range) => range.len(),
            };
            (FaultTarget::Write, Some(*offset..*offset + length as u64))
        }
        IoOperation::WriteZeroes { offset, length, .. } => {
            (FaultTarget::Write, Some(*offset..*offset + *length))
        }
        IoOperation::Flush => (FaultTarget::Flush, None),
    }
}

/// The engine's word for a system error.
pub fn io_error(error: DiskError) -> IoError {
    match error {
        DiskError::EndOfDisk => IoError::Gone,
        DiskError::Errno(errno) => match errno {
            Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM | Errno::BADF => IoError::Gone,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => IoError::NoSpace,
            Errno::TIMEDOUT | Errno::TIME => IoError::TimedOut,
            Errno::ROFS | Errno::PERM | Errno::ACCESS => IoError::ReadOnly,
            Errno::OPNOTSUPP | Errno::NOSYS => IoError::Unsupported,
            _ => IoError::Failed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    fn image(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("dcd-disk-{name}-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        path
    }

    struct Run {
        disk: Disk,
        ring: Ring<DiskKey>,
        clock: Clock,
        next: u64,
    }

    impl Run {
        fn new(spec: &str) -> Run {
            let disk = Disk::open(Device::DataDisk, &spec.parse().unwrap()).unwrap();
            let clock = Clock::start();
            Run {
                disk,
                ring: Ring::new(crate::ring::kernel::linux().unwrap(), clock),
                clock,
                next: 0,
            }
        }

        fn now(&self) -> Time {
            self.clock.now()
        }

        fn start(&mut self, operation: IoOperation) {
            self.next += 1;
            let io = Io { id: IoId(self.next), device: Device::DataDisk, operation };
            self.disk.start(self.now(), io, &mut self.ring);
        }

        fn next_done(&mut self, patience: Duration) -> Option<IoDone> {
            let until = Instant::now() + patience;
            while Instant::now() < until {
                let now = self.ring.wait(Some(Duration::from_millis(1)), self.now()).unwrap();
                while let Some(completed) = self.ring.next_completed() {
                    let (Completed::Disk { key, .. } | Completed::Zero { key, .. }) = completed
                    else {
                        panic!("only disk operations are started here");
                    };
                    if let Some(done) =
                        self.disk.completed(now, key.part, completed, &mut self.ring)
                    {
                        return Some(done);
                    }
                }
                if let Some(done) = self.disk.poll(now, &mut self.ring) {
                    return Some(done);
                }
            }
            None
        }

        fn run(&mut self, operation: IoOperation) -> Result<(), IoError> {
            self.start(operation);
            self.next_done(Duration::from_secs(5)).expect("an answer").result
        }
    }

    fn write(offset: u64, byte: u8) -> IoOperation {
        let data = IoData::Owned(Buffer::copy_of(&[byte; 4096]));
        IoOperation::Write { offset, data, fua: false }
    }

    fn plug_in_toys() {
        super::drive::plug_in_drives(|profile| match profile {
            "toy" => Ok(Box::new(super::model_arm::tests::ToyDrive::default())),
            other => {
                let error = format!("no disk profile `{other}`");
                Err(super::drive::DriveProblem { error, hint: None })
            }
        });
    }

    /// Room of a share in which something is under way stays its own: held back by a rule, waiting
    /// for a slow arm, or with the kernel.
    #[test]
    fn room_is_kept_as_long_as_something_is_under_way_in_it() {
        use dcd_engine::format::share_directory::{NewShare, ShareState};
        use dcd_engine::units::Uuid;

        use crate::device::shares::{DirectoryChange, make_directory};
        const MIB: u64 = 1 << 20;
        let path = image("room");
        std::fs::File::options().write(true).open(&path).unwrap().set_len(4 * MIB).unwrap();
        make_directory(&DeviceFile::open(&path).unwrap(), Uuid([1; 16])).unwrap();
        let mut change = DirectoryChange::begin(&path).unwrap();
        let (name, cache, data_disk) = ("a".into(), Uuid([2; 16]), String::new());
        let new = NewShare { name, cache, size_bytes: 2 * MIB, data_disk };
        let large = Windows::from(change.directory.allocate(new).unwrap());
        change.directory.set_state(cache, ShareState::InUse).unwrap();
        change.write().unwrap();
        drop(change);
        let small = large.cut(MIB);
        let rules = path.with_extension("rules");
        let share = path.join("a").display().to_string();
        for (spec, waits) in [
            (format!("faulty:{share},control={}", rules.display()), "hung"),
            (format!("slow:{share},read=50ms,write=50ms"), "in the queue of the arm"),
            (share.clone(), "in the ring"),
        ] {
            std::fs::write(&rules, "write hang\n").unwrap();
            let mut run = Run::new(&spec);
            run.start(write(MIB - 4096, 1));
            run.start(write(MIB, 2));
            assert!(!run.disk.set_windows(small.clone(), &run.ring), "{waits}");
            assert_eq!(run.disk.size_now().unwrap(), 2 * MIB);
            std::fs::write(&rules, "").unwrap();
            for _ in 0..2 {
                run.next_done(Duration::from_secs(5)).expect("an answer").result.unwrap();
            }
            assert!(run.disk.set_windows(small.clone(), &run.ring), "{waits}");
            assert_eq!(run.disk.size_now().unwrap(), MIB);
            run.run(write(MIB - 4096, 3)).unwrap();
        }
        std::fs::remove_file(path).unwrap();
        std::fs::remove_file(rules).unwrap();
    }

    #[test]
    fn zeroes_are_written_in_every_way() {
        let path = image("zero");
        let mut run = Run::new(path.to_str().unwrap());
        for (can_punch, can_zero_range) in [(true, true), (false, true), (false, false)] {
            run.disk.can_punch = can_punch;
            run.disk.can_zero_range = can_zero_range;
            run.run(write(4096, 3)).unwrap();
            let zeroes = IoOperation::WriteZeroes { offset: 4096, length: 4096, may_unmap: true };
            run.run(zeroes).unwrap();
            let read = run.disk.file().read_at(4096, 4096).unwrap();
            assert!(read.bytes().iter().all(|b| *b == 0));
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_slow_disk_takes_its_time_for_each() {
        let path = image("slow");
        let mut run = Run::new(&format!("slow:{},read=1ms,write=10ms", path.display()));
        let start = Instant::now();
        for byte in 0..5 {
            run.start(write(0, byte));
        }
        for id in 1..=5 {
            let done = run.next_done(Duration::from_secs(5)).unwrap();
            assert_eq!((done.id, done.result), (IoId(id), Ok(())));
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(50), "{took:?}");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_modelled_disk_takes_its_time() {
        let path = image("model");
        plug_in_toys();
        let mut run = Run::new(&format!("model:toy:{}", path.display()));
        let start = Instant::now();
        for offset in [0, 512 << 10, 4096] {
            assert_eq!(run.run(write(offset, 1)), Ok(()));
        }
        assert_eq!(run.run(IoOperation::Flush), Ok(()));
        // Each takes 1 ms, and the flush waits for 8 more.
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(11), "{took:?}");
        assert_eq!(run.disk.file().read_at(4096, 512).unwrap().bytes()[0], 1);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_modelled_disk_is_not_larger_than_the_drive() {
        let path = image("larger");
        plug_in_toys();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let open = |profile: &str| {
            let spec = format!("model:{profile}:{}", path.display()).parse().unwrap();
            Disk::open(Device::DataDisk, &spec).err().map(|error| (error.to_string(), error.hint()))
        };
        let (text, hint) = open("toy").unwrap();
        assert!(text.contains("a toy has 1073741824"), "{text}");
        assert!(hint.unwrap().contains("dcd disk list"));
        assert!(open("none").unwrap().0.contains("no disk profile `none`"));
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
        assert!(open("toy").is_none());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_faulty_disk_does_as_it_is_told() {
        let path = image("faulty");
        let control = image("faulty-control");
        let set = |rules: &str| {
            std::fs::write(&control, rules).unwrap();
            std::thread::sleep(Duration::from_millis(60));
        };
        let mut run = Run::new(&format!("faulty:{},control={}", path.display(), control.display()));
        set("write eio 4096-8192\nflush enospc once\n");
        assert_eq!(run.run(write(0, 1)), Ok(()));
        assert_eq!(run.run(write(4096, 1)), Err(IoError::Failed));
        assert_eq!(run.run(IoOperation::Flush), Err(IoError::NoSpace));
        assert_eq!(run.run(IoOperation::Flush), Ok(()));
        set("write hang");
        run.start(write(0, 2));
        assert!(run.next_done(Duration::from_millis(150)).is_none());
        assert_eq!(run.disk.hung_operations(), 1);
        set("");
        assert_eq!(run.next_done(Duration::from_secs(5)).unwrap().result, Ok(()));
        set("gone");
        assert_eq!(run.run(write(0, 2)), Err(IoError::Gone));
        std::fs::remove_file(path).unwrap();
        std::fs::remove_file(control).unwrap();
    }
}
