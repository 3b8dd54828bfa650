//! A volume that grows: all disks become larger, what is new on them is anything, and it is asked
//! to take that; with a crash in the middle now and then.

use dcd_engine::units::LINE_SIZE;
use dcd_engine::volume::growth::{Growth, GrowthError};
use dcd_engine::{GrowRefusal, Input, Operation, VolumeRequest};

use super::machine::Machine;
use super::run::VolumeRun;
use super::truth::Sets;
use crate::disk::FaultyDisk;
use crate::model::Violation;
use crate::random::Random;

/// One in so many steps.
const EACH: u64 = 16;
/// Not larger than so many blocks: all of them are read behind some crashes.
const BLOCKS_MAX: u64 = 16_384;
/// What a twin takes, and some more.
const TWIN_ROOM: u64 = 3 << 20;

impl VolumeRun {
    /// Whether it was a crash.
    pub(super) fn grow_now_and_then(&mut self) -> Result<bool, Violation> {
        self.note_growth()?;
        if !self.options.more.grows_volume || !self.more.one_in(EACH) {
            return Ok(false);
        }
        let mut random = Random::new(self.more.bits());
        if self.machine.volume().is_growing() {
            if random.one_in(4) {
                self.say(|| "the growth is cancelled".into());
                self.machine.submit(Operation::Volume(VolumeRequest::CancelWork), false);
                // Its answer says nothing.
                self.machine.running.replies.pop();
            }
            return Ok(false);
        }
        if self.model.blocks() < BLOCKS_MAX {
            self.grow(&mut random)?;
        }
        if !self.machine.volume().is_growing() || !random.one_in(2) {
            return Ok(false);
        }
        for _ in 0..random.below(120) {
            self.machine.end_one_io(&mut random);
        }
        self.take_replies()?;
        self.crash(super::crash::Crash::real(random.one_in(2)), &mut random)?;
        Ok(true)
    }

    fn grow(&mut self, random: &mut Random) -> Result<(), Violation> {
        if random.one_in(2) {
            let more = (64 << 10) + random.below(16) * (32 << 10);
            let has_twin = self.options.config.twin_region_pages > 0;
            let more = more + if has_twin { TWIN_ROOM } else { 0 };
            self.machine.make_members_larger(more);
            for image in self.older.iter_mut().flatten() {
                image.resize(self.machine.state.members[0].disk.len());
            }
        }
        let config = self.machine.volume().config();
        let (extent, now) = (config.extent_bytes, config.logical_bytes);
        let set = match random.one_in(3) {
            true => Some(random.below(config.sets.len() as u64) as u8),
            false => None,
        };
        let wanted = (!random.one_in(8)).then(|| now + random.below(40) * extent);
        let mut growth = self.machine.growth(set, wanted);
        self.say(|| format!("set {set:?} grows to {wanted:?} bytes"));
        let is_allowed = loop {
            match self.machine.grow_volume(&growth) {
                Ok(()) => break true,
                Err(GrowRefusal::Growth(GrowthError::CacheDisk { needed, .. })) => {
                    self.machine.make_cache_disk_larger(needed);
                    growth.cache_disk_bytes = needed;
                }
                Err(GrowRefusal::Growth(GrowthError::TooLarge { most, .. })) => {
                    growth.logical_bytes = Some(most);
                }
                // All that is there is used already, or somebody is away, or something else is
                // under way.
                Err(
                    GrowRefusal::Log(_)
                    | GrowRefusal::Growth(
                        GrowthError::NoRoom { .. }
                        | GrowthError::Away(_)
                        | GrowthError::TooManySets { .. },
                    ),
                ) => break false,
                Err(error) => return Err(Violation(format!("the volume cannot grow: {error}"))),
            }
        };
        self.report.volume.growths += u64::from(is_allowed);
        self.take_replies()
    }

    /// The engine says what the volume is now. It never becomes smaller.
    pub(super) fn note_growth(&mut self) -> Result<(), Violation> {
        let blocks = self.machine.engine().data_disk().blocks;
        check_size(blocks, self.model.blocks())?;
        if blocks > self.model.blocks() {
            self.report.volume.growths_done += 1;
            self.say(|| format!("it has {blocks} blocks now"));
            self.model.grow(blocks);
            self.options.config = self.machine.volume().config().clone();
        }
        Ok(())
    }
}

/// It never has fewer blocks than it said to have.
pub(super) fn check_size(found: u64, expected: u64) -> Result<(), Violation> {
    match found < expected {
        true => Err(Violation(format!("the volume has {found} blocks, and had {expected}"))),
        false => Ok(()),
    }
}

impl Machine {
    /// What a driver finds, for such a growth.
    fn growth(&self, set: Option<u8>, wanted: Option<u64>) -> Growth {
        let members = self.state.members.iter();
        Growth {
            set,
            logical_bytes: wanted,
            member_bytes: members.map(|member| Some(member.disk.len() as u64)).collect(),
            cache_disk_bytes: self.state.cache_disk.len() as u64,
        }
    }

    fn grow_volume(&mut self, growth: &Growth) -> Result<(), GrowRefusal> {
        self.running.engine.as_mut().expect("an engine runs").grow_volume(growth)?;
        self.input(Input::Timeout);
        Ok(())
    }

    /// All disks that are, were or may be members.
    fn make_members_larger(&mut self, more: u64) {
        let state = &mut self.state;
        let members = state.members.iter_mut().map(|member| &mut member.disk);
        let others = state.others.iter_mut().map(|other| &mut other.disk);
        let length = members.chain(others).map(|disk| {
            enlarge(disk, disk.len() + more as usize, 0xdb);
            disk.len()
        });
        let length = length.max().unwrap_or(0);
        for member in &mut state.members {
            if let Some(replaced) = &mut member.replaced {
                replaced.resize(length);
            }
        }
    }

    fn make_cache_disk_larger(&mut self, bytes: u64) {
        let bytes = bytes.max(self.state.cache_disk.len() as u64) as usize;
        enlarge(&mut self.state.cache_disk, bytes, 0xbb);
    }

    /// The sets are as the volume has them, as soon as it has.
    pub(super) fn look_at_growth(&mut self) {
        let Some(volume) = self.engine().volume().filter(|volume| volume.is_open()) else { return };
        let capacity = volume.config().capacity_bytes();
        if capacity != self.capacity_bytes {
            let sets = Sets::new(volume.config());
            (self.sets, self.capacity_bytes) = (sets, capacity);
            self.state.is_imported = true;
        }
    }
}

/// What is there then may be anything.
fn enlarge(disk: &mut FaultyDisk, length: usize, byte: u8) {
    let before = disk.len();
    disk.resize(length);
    for offset in (before..length).step_by(LINE_SIZE as usize) {
        disk.rot(offset, &vec![byte; (length - offset).min(LINE_SIZE as usize)]);
    }
}
