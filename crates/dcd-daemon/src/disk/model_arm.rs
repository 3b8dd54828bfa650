//! A disk model in real time: each job waits until the model has served it. Pure; the caller brings
//! the time and does the real I/O when told to.
//!
//! The real I/O comes after the model's time and is not part of it: it should be much faster. Write
//! zeroes count as writes. FUA is a write and a flush.

use std::collections::{HashMap, VecDeque};

use dcd_engine::Time;

use crate::disk::drive::{DriveWork, ModelledDrive};

/// What the model is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModelWork {
    /// A read of these bytes.
    Read(std::ops::Range<u64>),
    /// A write of these bytes.
    Write(std::ops::Range<u64>),
    /// A write that is to be safe before it is done.
    WriteFua(std::ops::Range<u64>),
    /// A flush.
    Flush,
}

/// A disk model with jobs of type `J`.
pub struct ModelArm<J> {
    drive: Box<dyn ModelledDrive>,
    jobs: HashMap<u64, J>,
    next_id: u64,
    due: VecDeque<J>,
    done: Vec<u64>,
}

impl<J> ModelArm<J> {
    /// An idle disk.
    pub fn new(drive: Box<dyn ModelledDrive>) -> ModelArm<J> {
        ModelArm { drive, jobs: HashMap::new(), next_id: 0, due: VecDeque::new(), done: Vec::new() }
    }

    /// Bytes that the model has.
    pub fn capacity_bytes(&self) -> u64 {
        self.drive.capacity_bytes()
    }

    /// Queues a job. What the model cannot have is due at once: the real disk says what is wrong.
    pub fn push(&mut self, now: Time, work: ModelWork, job: J) {
        self.advance(now);
        let (what, range, flush) = match work {
            ModelWork::Read(range) => (DriveWork::Read, range, false),
            ModelWork::Write(range) => (DriveWork::Write, range, false),
            ModelWork::WriteFua(range) => (DriveWork::Write, range, true),
            ModelWork::Flush => (DriveWork::Flush, 0..0, false),
        };
        let mut id = self.submit(now, what, range);
        if flush && id.is_some() {
            id = self.submit(now, DriveWork::Flush, 0..0);
        }
        match id {
            Some(id) => drop(self.jobs.insert(id, job)),
            None => self.due.push_back(job),
        }
    }

    /// A job whose real I/O is to be done now.
    pub fn take_due(&mut self, now: Time) -> Option<J> {
        self.advance(now);
        self.due.pop_front()
    }

    /// Jobs whose real I/O has not been done, in any order.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &J> {
        self.jobs.values().chain(&self.due)
    }

    /// When [`ModelArm::take_due`] will have something.
    pub fn next_due(&self) -> Option<Time> {
        if self.due.is_empty() { self.drive.next_event() } else { Some(Time::ZERO) }
    }

    fn submit(&mut self, now: Time, what: DriveWork, range: std::ops::Range<u64>) -> Option<u64> {
        self.next_id += 1;
        self.drive.submit(now, self.next_id, what, range).then_some(self.next_id)
    }

    fn advance(&mut self, now: Time) {
        self.drive.advance(now, &mut self.done);
        for done in self.done.drain(..) {
            // The write of a FUA write has no job: that waits for its flush.
            self.due.extend(self.jobs.remove(&done));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// One after the other: a read takes 3 ms; a write 1 ms and 8 more to the platters, for which a
    /// flush waits.
    #[derive(Default)]
    pub(crate) struct ToyDrive {
        free_at: u64,
        clean_at: u64,
        due: BTreeMap<u64, u64>,
    }

    impl ModelledDrive for ToyDrive {
        fn capacity_bytes(&self) -> u64 {
            1 << 30
        }

        fn sector_bytes(&self) -> u32 {
            512
        }

        fn submit(
            &mut self,
            now: Time,
            id: u64,
            work: DriveWork,
            bytes: std::ops::Range<u64>,
        ) -> bool {
            let start = self.free_at.max(now.0);
            self.free_at = match work {
                DriveWork::Read => start + 3_000_000,
                DriveWork::Write => start + 1_000_000,
                DriveWork::Flush => start.max(self.clean_at),
            };
            if work == DriveWork::Write {
                self.clean_at = self.free_at + 8_000_000;
            }
            let can_have = bytes.end <= self.capacity_bytes();
            if can_have {
                self.due.insert(id, self.free_at);
            }
            can_have
        }

        fn next_event(&self) -> Option<Time> {
            self.due.values().min().map(|at| Time(*at))
        }

        fn advance(&mut self, now: Time, done: &mut Vec<u64>) {
            done.extend(self.due.iter().filter(|(_, at)| **at <= now.0).map(|(id, _)| *id));
            self.due.retain(|_, at| *at > now.0);
        }
    }

    fn arm() -> ModelArm<char> {
        ModelArm::new(Box::new(ToyDrive::default()))
    }

    #[test]
    fn jobs_are_due_when_the_model_has_served_them() {
        let mut arm = arm();
        arm.push(Time(0), ModelWork::Read(1 << 20..(1 << 20) + 4096), 'a');
        arm.push(Time(0), ModelWork::Read(900 << 20..(900 << 20) + 4096), 'b');
        assert_eq!(arm.next_due(), Some(Time(3_000_000)));
        assert_eq!(arm.take_due(Time(2_999_999)), None);
        assert_eq!(arm.take_due(Time(3_000_000)), Some('a'));
        assert_eq!(arm.next_due(), Some(Time(6_000_000)));
        assert_eq!(arm.take_due(Time(6_000_000)), Some('b'));
        assert_eq!((arm.take_due(Time(1 << 40)), arm.next_due()), (None, None));
    }

    #[test]
    fn fua_is_not_reported_from_the_buffer() {
        let due = |work| {
            let mut arm = arm();
            arm.push(Time(0), work, 'a');
            let mut time = arm.next_due().unwrap();
            while arm.take_due(time).is_none() {
                time = arm.next_due().unwrap();
            }
            time.0
        };
        assert_eq!(due(ModelWork::Write(0..4096)), 1_000_000);
        assert_eq!(due(ModelWork::WriteFua(0..4096)), 9_000_000);
    }

    #[test]
    fn what_the_model_cannot_have_is_due_at_once() {
        let mut arm = arm();
        arm.push(Time(7), ModelWork::Read(1 << 50..(1 << 50) + 512), 'a');
        assert_eq!(arm.take_due(Time(7)), Some('a'));
    }
}
