//! What happens to a leg when it is asked, and what somebody does about legs meanwhile.

use dcd_engine::format::leg_label::LEG_LABEL_OFFSETS;
use dcd_engine::io::LegError;
use dcd_engine::legs::status::LegStatus;
use dcd_engine::legs::witness::{WitnessParts, WitnessStatus};
use dcd_engine::units::{Duration, LegIndex, Uuid};
use dcd_engine::{Device, Input, Io, IoError, IoOperation, Operation, Phase, Request, RequestId};
use dcd_testkit::bytes_of;

use super::witness::WitnessCare;
use super::{Care, Legs, Trouble, counts, label_of};
use crate::disk::{Fate, FaultyDisk};
use crate::model::Violation;
use crate::random::Random;
use crate::running::{Running, UNHEARD};

/// The legs of a machine, the first disk among them, and who uses them.
pub(crate) struct LegsOf<'a> {
    pub(crate) running: &'a mut Running,
    pub(crate) first: &'a mut FaultyDisk,
    pub(crate) legs: &'a mut Legs,
}

fn care_request(number: u64, operation: Operation) -> Input {
    Input::Request(Request { id: RequestId(UNHEARD | number), operation, fua: false })
}

impl LegsOf<'_> {
    fn disk(&mut self, leg: LegIndex) -> &mut FaultyDisk {
        self.legs.disk_of(leg, self.first)
    }

    fn status(&self) -> Vec<LegStatus> {
        self.running.engine.iter().flat_map(|engine| engine.legs()).collect()
    }

    fn witness_status(&self) -> Option<WitnessStatus> {
        self.running.engine.as_ref().and_then(|engine| engine.leg_witness())
    }

    /// The same of the witness.
    pub(crate) fn strike_witness(&mut self, io: &Io, random: &mut Random) -> Option<IoError> {
        let status = self.witness_status();
        let error = self.legs.witness_fails(status)?;
        self.running.trace(|| format!("   the witness fails: {error}"));
        if let IoOperation::Write { offset, data, .. } = &io.operation {
            let bytes = bytes_of(data, &[]);
            let fate = Fate::draw(random);
            let witness = self.legs.witness.as_mut().expect("it is asked");
            witness.disk.land(*offset, bytes, fate, random);
        }
        Some(error)
    }

    /// Whether an I/O of the witness is to hang.
    pub(crate) fn witness_hangs(&mut self) -> bool {
        let status = self.witness_status();
        self.legs.witness_hangs(status)
    }

    /// What somebody does about the witness while a leg is asked.
    fn care_for_witness(&mut self) {
        let status = self.witness_status();
        let Some(engine) = self.running.engine.as_mut() else { return };
        if *engine.phase() != Phase::Running {
            return;
        }
        let ios = &self.running.ios;
        let is_asked = ios.iter().any(|flight| flight.io.device == Device::Witness);
        let legs = &mut *self.legs;
        let Some(care) = legs.draw_witness_care(status, is_asked) else { return };
        legs.asked += 1;
        let input = match care {
            WitnessCare::Remove(leg) => care_request(legs.asked, Operation::TakeOutLeg { leg }),
            WitnessCare::Try(leg) => care_request(legs.asked, Operation::FillLeg { leg }),
            WitnessCare::Add(uuid) => {
                let witness = legs.witness.as_mut().expect("somebody cares for it");
                let before = label_of(&witness.disk).ok();
                let look_ms = legs.options.witness_look_ms.unwrap_or_default();
                let parts = WitnessParts {
                    number: before.as_ref().map_or(0, |label| label.number),
                    look_every: Duration::from_millis(look_ms),
                    ..WitnessParts::blank(uuid)
                };
                match engine.add_witness(parts.clone(), before.as_ref()) {
                    Ok(()) => legs.done.witness_joined += 1,
                    // A person makes another file.
                    Err(LegError::Unknown) => {
                        let _ = engine.add_witness(parts, None);
                    }
                    Err(_) => {}
                }
                Input::Timeout
            }
        };
        engine.handle_input(self.running.now, input);
        self.running.trace(|| format!("   {care:?}"));
    }

    /// Lets happen to a leg what happens when it is asked; the error, if it fails.
    pub(crate) fn strike(
        &mut self,
        leg: LegIndex,
        io: &Io,
        random: &mut Random,
    ) -> Option<IoError> {
        self.care_for_witness();
        let error = match self.trouble_of(leg, &io.operation)? {
            Trouble::Dies(error) => error,
            Trouble::Fails => IoError::Failed,
            Trouble::BadSector | Trouble::Rots => return None,
        };
        self.fail(leg, io, random);
        Some(error)
    }

    /// What happens to a leg when it is asked.
    fn trouble_of(&mut self, asked: LegIndex, operation: &IoOperation) -> Option<Trouble> {
        let status = self.status();
        let witness_status = self.witness_status();
        let engine = self.running.engine.as_mut()?;
        let legs = &mut *self.legs;
        if let Some(witness) = &mut legs.witness {
            witness.note(witness_status);
        }
        let ios = &self.running.ios;
        let is_asked =
            |leg| leg == asked || ios.iter().any(|flight| flight.io.device == Device::Leg(leg));
        let care = match engine.phase() {
            Phase::Running => legs.draw_care(&status, self.first, is_asked),
            _ => None,
        };
        if let Some(care) = care {
            legs.asked += 1;
            let place = match care {
                Care::Join(place) => place,
                Care::Fill(leg) | Care::TakeOut(leg) => legs.place(leg),
            };
            let disk = if place == 0 { &mut *self.first } else { &mut legs.disk };
            let name = |leg: LegIndex| status[usize::from(leg.0)].uuid;
            let input = match care {
                Care::Join(_) => {
                    disk.failing = None;
                    let before = label_of(disk).ok();
                    // No witness has such a name.
                    let mut named = Uuid([0xb0 + (legs.asked % 64) as u8; 16]);
                    named.0[15] = 0;
                    let mut leg = engine.add_leg(named, before.as_ref());
                    // A person wipes it first.
                    if leg == Err(LegError::Unknown) && legs.is_long_ago(place, self.first) {
                        leg = engine.add_leg(named, None);
                    }
                    let leg = leg.unwrap_or_else(|error| panic!("{error}: {before:?}, {status:?}"));
                    legs.joined(place, leg);
                    Input::Timeout
                }
                Care::Fill(leg) => {
                    disk.failing = None;
                    care_request(legs.asked, Operation::FillLeg { leg: name(leg) })
                }
                Care::TakeOut(leg) => {
                    care_request(legs.asked, Operation::TakeOutLeg { leg: name(leg) })
                }
            };
            engine.handle_input(self.running.now, input);
            let status = self.status();
            self.running.trace(|| format!("   {care:?}: {status:?}"));
            return None;
        }
        let leg = asked;
        let other_has_bad = legs.other_has_bad(leg, self.first);
        let geometry = engine.superblock().geometry;
        // Of slots of the log each has a checksum that is looked at.
        let slots = geometry.segments_offset..geometry.read_area_offset();
        let may_rot = *engine.phase() == Phase::Running
            && matches!(operation, IoOperation::Read { offset, .. } if slots.contains(offset))
            && legs.may_rot(self.first)
            && !other_has_bad;
        let trouble = legs.draw_trouble(leg, operation, &status, other_has_bad, may_rot)?;
        self.running.trace(|| format!("   {trouble:?} strikes {leg:?}"));
        match trouble {
            Trouble::Dies(error) => self.disk(leg).failing = Some(error),
            Trouble::BadSector => {
                if let IoOperation::Read { offset, .. } = operation {
                    let offset = *offset as usize;
                    self.disk(leg).make_bad(offset);
                }
            }
            Trouble::Rots => {
                if let IoOperation::Read { offset, .. } = operation {
                    legs.rots = true;
                    legs.done.rotted += 1;
                    let offset = *offset as usize;
                    self.disk(leg).make_rotten(offset);
                }
            }
            Trouble::Fails => {}
        }
        Some(trouble)
    }

    /// Of a write that failed any part may have landed, and of what was not flushed any part may be
    /// gone when a flush failed.
    fn fail(&mut self, leg: LegIndex, io: &Io, random: &mut Random) {
        match &io.operation {
            IoOperation::Write { offset, data, .. } => {
                let engine = self.running.engine.take().expect("an engine runs");
                let bytes = bytes_of(data, engine.segment_memory());
                let fate = Fate::draw(random);
                self.disk(leg).land(*offset, bytes, fate, random);
                self.running.engine = Some(engine);
            }
            IoOperation::Flush => self.disk(leg).drop_unflushed(random),
            _ => {}
        }
    }

    /// A start has made the legs alike, and nothing has been written since.
    pub(crate) fn compare(&self, end: usize) -> Result<(), Violation> {
        let status = self.status();
        if status.len() < 2 || !status.iter().all(counts) {
            return Ok(());
        }
        for offset in (0..end).step_by(4096) {
            let [mut first, mut second] = [[0; 4096]; 2];
            self.first.peek(offset, &mut first);
            self.legs.disk.peek(offset, &mut second);
            if first != second && !LEG_LABEL_OFFSETS.contains(&(offset as u64)) {
                return Err(Violation(format!("the legs differ at byte {offset} behind a start")));
            }
        }
        Ok(())
    }

    /// Whether an I/O of a leg is to hang.
    pub(crate) fn hangs(&mut self, leg: LegIndex) -> bool {
        let status = self.status();
        let witness_status = self.witness_status();
        if let Some(witness) = &mut self.legs.witness {
            witness.note(witness_status);
        }
        let other_has_bad = self.legs.other_has_bad(leg, self.first);
        self.legs.draw_hang(leg, &status, other_has_bad)
    }
}
