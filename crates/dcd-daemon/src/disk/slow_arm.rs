//! One slow arm: a queue, first come first served, one request at a time, each taking its
//! configured time. Pure; the caller brings the time and does the real I/O when told to.
//!
//! A request takes the longer of its configured time and the time of its real I/O: the next one
//! begins where this one should have ended, so that short real I/O does not add up.

use std::collections::VecDeque;

use dcd_engine::{Duration, Time};

use crate::device::device_spec::SlowTimes;

/// What the arm is asked for; each has its own time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArmWork {
    /// A read.
    Read,
    /// A write, or a write of zeroes, of whole sectors.
    Write,
    /// One that covers part of a physical sector: the drive reads the rest of it first.
    WritePart,
    /// A flush.
    Flush,
}

enum State<J> {
    /// Nothing to do.
    Idle,
    /// On its way; the real I/O of `job` is done at `due`.
    Moving { job: J, due: Time, takes: Duration },
    /// The job was handed out at `due`, its real I/O is under way.
    Transferring { due: Time, takes: Duration },
}

struct Waiting<J> {
    job: J,
    takes: Duration,
    arrived: Time,
}

/// The arm, with jobs of type `J`.
pub struct SlowArm<J> {
    read: Duration,
    write: Duration,
    flush: Duration,
    queue: VecDeque<Waiting<J>>,
    state: State<J>,
}

impl<J> SlowArm<J> {
    /// An idle arm.
    pub fn new(times: SlowTimes) -> SlowArm<J> {
        let nanos = |d: std::time::Duration| Duration(d.as_nanos().try_into().unwrap_or(u64::MAX));
        SlowArm {
            read: nanos(times.read),
            write: nanos(times.write),
            flush: nanos(times.flush),
            queue: VecDeque::new(),
            state: State::Idle,
        }
    }

    /// Queues a job.
    pub fn push(&mut self, now: Time, work: ArmWork, job: J) {
        let takes = match work {
            ArmWork::Read => self.read,
            ArmWork::Write => self.write,
            ArmWork::WritePart => Duration(self.read.0 + self.write.0),
            ArmWork::Flush => self.flush,
        };
        match self.state {
            State::Idle => self.state = State::Moving { job, due: now.after(takes), takes },
            _ => self.queue.push_back(Waiting { job, takes, arrived: now }),
        }
    }

    /// The job whose real I/O is to be done now, if its time has come. The arm is busy until
    /// [`SlowArm::finished`].
    pub fn take_due(&mut self, now: Time) -> Option<J> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Moving { job, due, takes } if due <= now => {
                self.state = State::Transferring { due, takes };
                Some(job)
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    /// The real I/O of the job that was handed out has ended.
    pub fn finished(&mut self, now: Time) {
        let State::Transferring { due, takes } = self.state else { return };
        // Where this one should have ended: on time, or as late as its real I/O took longer.
        let ended = Time(now.0.saturating_sub(takes.0)).max(due);
        self.state = match self.queue.pop_front() {
            None => State::Idle,
            Some(next) => State::Moving {
                due: ended.max(next.arrived).after(next.takes),
                job: next.job,
                takes: next.takes,
            },
        };
    }

    /// When [`SlowArm::take_due`] will have something.
    pub fn next_due(&self) -> Option<Time> {
        match self.state {
            State::Moving { due, .. } => Some(due),
            _ => None,
        }
    }

    /// Jobs whose real I/O has not been done.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &J> {
        let moving = match &self.state {
            State::Moving { job, .. } => Some(job),
            State::Idle | State::Transferring { .. } => None,
        };
        moving.into_iter().chain(self.queue.iter().map(|waiting| &waiting.job))
    }

    /// Jobs waiting or under way.
    pub fn depth(&self) -> usize {
        self.queue.len() + usize::from(!matches!(self.state, State::Idle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm() -> SlowArm<char> {
        let ms = std::time::Duration::from_millis;
        SlowArm::new(SlowTimes { read: ms(8), write: ms(10), flush: ms(0), sector_bytes: 4096 })
    }

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn serves_one_at_a_time_in_order() {
        // ms:  0         8          18
        //      |a read   |b write   |c flush
        let mut arm = arm();
        arm.push(at(0), ArmWork::Read, 'a');
        arm.push(at(1), ArmWork::Write, 'b');
        arm.push(at(1), ArmWork::Flush, 'c');
        assert_eq!(arm.depth(), 3);
        assert_eq!(arm.take_due(at(7)), None);
        assert_eq!(arm.next_due(), Some(at(8)));
        assert_eq!(arm.take_due(at(8)), Some('a'));
        assert_eq!(arm.next_due(), None, "busy until the real read is done");
        arm.finished(at(9));
        assert_eq!(arm.next_due(), Some(at(18)), "the read took its 8 ms, not 9");
        assert_eq!(arm.take_due(at(18)), Some('b'));
        arm.finished(at(18));
        assert_eq!(arm.take_due(at(18)), Some('c'));
        arm.finished(at(18));
        assert_eq!(arm.depth(), 0);
        assert_eq!(arm.next_due(), None);
    }

    #[test]
    fn part_of_a_sector_is_read_before_it_is_written() {
        let mut arm = arm();
        arm.push(at(0), ArmWork::WritePart, 'a');
        assert_eq!(arm.next_due(), Some(at(18)));
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut arm = arm();
        arm.push(at(0), ArmWork::Read, 'a');
        assert_eq!(arm.take_due(at(8)), Some('a'));
        arm.finished(at(8));
        arm.push(at(100), ArmWork::Read, 'b');
        assert_eq!(arm.next_due(), Some(at(108)));
    }

    #[test]
    fn real_io_that_takes_longer_counts() {
        // The real read takes 20 ms: the request took 20 ms in all, the next begins there.
        let mut arm = arm();
        arm.push(at(0), ArmWork::Read, 'a');
        arm.push(at(0), ArmWork::Read, 'b');
        assert_eq!(arm.take_due(at(8)), Some('a'));
        arm.finished(at(28));
        assert_eq!(arm.next_due(), Some(at(28)));
    }
}
