//! Arm, heads and platters: when each sector of a transfer passes below the head.
//!
//! The platters turn for ever: their angle is the time since 0, plus the phase, modulo a turn. To
//! reach a track takes a seek or, in the same cylinder, a head switch; writing wants the head
//! settled better. Then the mechanism waits for the angle of the sector.

use super::divisor::Divisor;
use super::geometry::{Destination, Geometry, Run};
use super::seek::SeekCurve;

/// Waiting for nearly a whole turn means that the sector is just there: times are rounded to the
/// nanosecond, and a drive tells sectors apart no better than this.
const ANGLE_TOLERANCE_NS: u64 = 1_000;

/// Times of the mechanism besides seeking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MechanismTimes {
    /// From one head to another in the same cylinder.
    pub head_switch_ns: u64,
    /// After a seek, before reading or writing.
    pub settle_ns: u64,
    /// More of it before writing, after a seek or head switch.
    pub write_settle_ns: u64,
    /// Begin with whatever sector of the run comes first: reads, writes.
    pub zero_latency: [bool; 2],
}

/// Sectors that pass below the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// When the first begins.
    pub start_ns: u64,
    /// When the last has passed.
    pub end_ns: u64,
    /// How many.
    pub sectors: u64,
}

/// The moving parts of a drive.
#[derive(Clone, Debug)]
pub struct Mechanism {
    /// Where the sectors are.
    pub geometry: Geometry,
    seek: SeekCurve,
    times: MechanismTimes,
    phase_ns: u64,
    turn: Divisor,
    cylinder: u32,
    head: u32,
}

impl Mechanism {
    /// A mechanism with the arm over cylinder 0.
    pub fn new(
        geometry: Geometry,
        seek: SeekCurve,
        times: MechanismTimes,
        phase_ns: u64,
    ) -> Mechanism {
        let turn = Divisor::new(geometry.rotation_ns());
        Mechanism { geometry, seek, times, phase_ns, turn, cylinder: 0, head: 0 }
    }

    /// Where the arm is.
    pub fn cylinder(&self) -> u32 {
        self.cylinder
    }

    /// The seek times.
    pub fn seek(&self) -> &SeekCurve {
        &self.seek
    }

    /// Time to have the head over that track.
    fn positioning_ns(&self, to: &Destination, write: bool) -> u64 {
        let distance = to.cylinder.abs_diff(self.cylinder);
        let moved = if distance > 0 {
            (self.seek.time_ns(distance) + self.times.settle_ns).max(self.times.head_switch_ns)
        } else if to.head != self.head {
            self.times.head_switch_ns
        } else {
            return 0;
        };
        moved + if write { self.times.write_settle_ns } else { 0 }
    }

    /// Time from `at_ns` until `angle_ns`, less than a turn, comes.
    fn rotation_to(&self, at_ns: u64, angle_ns: u64) -> u64 {
        let turn = self.turn.get();
        let now = self.turn.remainder(at_ns + self.phase_ns);
        let wait = if angle_ns >= now { angle_ns - now } else { angle_ns + turn - now };
        if wait + ANGLE_TOLERANCE_NS > turn { 0 } else { wait }
    }

    /// When a sector could begin to pass, if the mechanism starts at `at_ns`, and its data (when
    /// writing) is there at `data_ns`.
    pub fn start_of(&self, at_ns: u64, to: &Destination, write: bool, data_ns: u64) -> u64 {
        let ready = (at_ns + self.positioning_ns(to, write)).max(data_ns);
        ready + self.rotation_to(ready, to.angle_ns)
    }

    /// Moves to `run` and lets it pass.
    pub fn transfer(&mut self, at_ns: u64, run: &Run, write: bool, data_ns: u64) -> Transfer {
        let to = self.geometry.destination(run.place);
        let ready_ns = (at_ns + self.positioning_ns(&to, write)).max(data_ns);
        (self.cylinder, self.head) = (to.cylinder, to.head);
        let wait = self.rotation_to(ready_ns, to.angle_ns);
        let duration = self.geometry.transfer_ns(run.place, run.sectors);
        let turn = self.geometry.rotation_ns();
        if self.times.zero_latency[usize::from(write)] && wait + duration > turn {
            // The head is over the run: what has passed already comes at the end, a turn later.
            let passed_ns = turn - wait;
            let sector = self.geometry.transfer_ns(run.place, 1).max(1);
            let passed = (passed_ns.div_ceil(sector)).min(run.sectors);
            let end_ns = ready_ns + wait + self.geometry.transfer_ns(run.place, passed);
            let start_ns = end_ns - self.geometry.transfer_ns(run.place, passed);
            return Transfer { start_ns, end_ns, sectors: run.sectors };
        }
        Transfer {
            start_ns: ready_ns + wait,
            end_ns: ready_ns + wait + duration,
            sectors: run.sectors,
        }
    }

    /// Moves the head to the track of `run` and no further: a transfer was given up there.
    pub fn hover(&mut self, run: &Run) {
        (self.cylinder, self.head) = (run.place.cylinder, run.place.head);
    }
}
