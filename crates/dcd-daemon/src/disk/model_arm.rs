//! A disk model in real time: each job waits until the model has served it. Pure; the caller brings the
//! time and does the real I/O when told to.
//!
//! The real I/O comes after the model's time and is not part of it: it should be much faster. Write
//! zeroes count as writes. FUA is a write and a flush.

use std::collections::{HashMap, VecDeque};

use dcd_engine::Time;
use dcd_sim::disk::model::{DiskDone, DiskModel, DiskOperation, DiskRequest};

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
    model: DiskModel,
    jobs: HashMap<u64, J>,
    next_id: u64,
    due: VecDeque<J>,
    done: Vec<DiskDone>,
}

impl<J> ModelArm<J> {
    /// An idle disk.
    pub fn new(model: DiskModel) -> ModelArm<J> {
        ModelArm { model, jobs: HashMap::new(), next_id: 0, due: VecDeque::new(), done: Vec::new() }
    }

    /// Queues a job. What the model cannot have is due at once: the real disk says what is wrong.
    pub fn push(&mut self, now: Time, work: ModelWork, job: J) {
        self.advance(now);
        let (operation, range, flush) = match work {
            ModelWork::Read(range) => (DiskOperation::Read, range, false),
            ModelWork::Write(range) => (DiskOperation::Write, range, false),
            ModelWork::WriteFua(range) => (DiskOperation::Write, range, true),
            ModelWork::Flush => (DiskOperation::Flush, 0..0, false),
        };
        let mut id = self.submit(now, operation, range);
        if flush && id.is_some() {
            id = self.submit(now, DiskOperation::Flush, 0..0);
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

    /// When [`ModelArm::take_due`] will have something.
    pub fn next_due(&self) -> Option<Time> {
        if self.due.is_empty() { self.model.next_event() } else { Some(Time::ZERO) }
    }

    fn submit(
        &mut self,
        now: Time,
        operation: DiskOperation,
        range: std::ops::Range<u64>,
    ) -> Option<u64> {
        self.next_id += 1;
        let id = self.next_id;
        let size_bytes = range.end - range.start;
        let request = DiskRequest { id, operation, offset_bytes: range.start, size_bytes };
        self.model.submit(now, request).is_ok().then_some(id)
    }

    fn advance(&mut self, now: Time) {
        self.model.advance(now, &mut self.done);
        for done in self.done.drain(..) {
            // The write of a FUA write has no job: that waits for its flush.
            self.due.extend(self.jobs.remove(&done.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_sim::disk::profile::Profile;

    fn arm() -> ModelArm<char> {
        let profile = Profile::load("hp-97560").unwrap();
        ModelArm::new(DiskModel::new(&profile, 0).unwrap())
    }

    #[test]
    fn jobs_are_due_when_the_model_has_served_them() {
        let mut arm = arm();
        arm.push(Time(0), ModelWork::Read(1 << 20..(1 << 20) + 4096), 'a');
        arm.push(Time(0), ModelWork::Read(900 << 20..(900 << 20) + 4096), 'b');
        let first = arm.next_due().unwrap();
        assert!(first.0 > 2_200_000, "{first:?}: more than the overhead");
        assert_eq!(arm.take_due(Time(first.0 - 1)), None);
        assert_eq!(arm.take_due(first), Some('a'));
        let second = arm.next_due().unwrap();
        assert!(second.0 > first.0 + 10_000_000, "{second:?}: a long seek after {first:?}");
        assert_eq!(arm.take_due(second), Some('b'));
        assert_eq!((arm.take_due(Time(1 << 40)), arm.next_due()), (None, None));
    }

    #[test]
    fn fua_is_not_reported_from_the_buffer() {
        let range = 500 << 20..(500 << 20) + 4096;
        let due = |work| {
            let mut arm = arm();
            arm.push(Time(0), work, 'a');
            let mut time = arm.next_due().unwrap();
            loop {
                if arm.take_due(time).is_some() {
                    return time.0;
                }
                time = arm.next_due().unwrap();
            }
        };
        // The HP 97560 reports writes at once: overhead 2.2 ms and the bus.
        assert!(due(ModelWork::Write(range.clone())) < 3_000_000);
        assert!(due(ModelWork::WriteFua(range)) > 8_000_000);
    }

    #[test]
    fn what_the_model_cannot_have_is_due_at_once() {
        let mut arm = arm();
        arm.push(Time(7), ModelWork::Read(1 << 50..(1 << 50) + 512), 'a');
        assert_eq!(arm.take_due(Time(7)), Some('a'));
    }
}
