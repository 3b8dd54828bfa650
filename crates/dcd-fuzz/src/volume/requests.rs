//! Requests about hints and about members, each answered before the run goes on.

use dcd_engine::units::{BLOCK_SIZE, MemberIndex};
use dcd_engine::volume::attributes::{AttributeChange, Attributes};
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::volume::placement::DeviceClass;
use dcd_engine::{
    Lba, LbaRange, Operation, RequestError, VolumeAnswer, VolumeError, VolumeRequest,
};

use super::run::{VolumeRun, WAIT_MAX};
use crate::model::{Shown, Violation};
use crate::random::Random;

impl VolumeRun {
    fn extent_blocks(&self) -> u64 {
        self.options.config.extent_bytes / BLOCK_SIZE
    }

    fn request(
        &mut self,
        request: VolumeRequest,
        random: &mut Random,
    ) -> Result<Result<Option<VolumeAnswer>, VolumeError>, Violation> {
        let what = format!("{request:?}");
        let reply = self.do_now(Operation::Volume(request), random)?;
        match reply.result {
            Ok(()) => Ok(Ok(reply.answer)),
            Err(RequestError::Volume(error)) => Ok(Err(error)),
            Err(error) => Err(Violation(format!("{what} failed: {error}"))),
        }
    }

    // ---- hints --------------------------------------------------------------------------------

    /// Attributes that do not contradict each other.
    fn draw_attributes(&self, random: &mut Random) -> Attributes {
        let fast = self.options.config.sets.iter().filter(|set| set.class == DeviceClass::Fast);
        let has_fast = fast.clone().next().is_some();
        if has_fast && fast.clone().all(|set| !set.level.is_redundant()) && random.one_in(2) {
            return Attributes::IMPORTANT.or(Attributes::HOT).or(Attributes::READ_MOST);
        }
        let pick = |random: &mut Random, choices: [Attributes; 3]| random.pick(&choices);
        let none = Attributes::NONE;
        let kind = pick(random, [none, Attributes::IMPORTANT, Attributes::TEMPORARY]);
        let order = pick(random, [none, Attributes::RANDOM, Attributes::SEQUENTIAL]);
        let heat = pick(random, [none, Attributes::HOT, Attributes::COLD]);
        let use_ = pick(random, [none, Attributes::READ_MOST, Attributes::WRITE_MOST]);
        let metadata = if random.one_in(6) { Attributes::METADATA } else { none };
        kind.or(order).or(heat).or(use_).or(metadata)
    }

    /// Something about attributes, blocks or pointers.
    pub(super) fn hint(&mut self, random: &mut Random) -> Result<(), Violation> {
        if self.options.more.grows_pointers && self.more.one_in(6) {
            return self.grow_pointers(random);
        }
        match random.below(10) {
            0..5 => self.set_attributes(random),
            5 | 6 => self.allocate(random),
            7 | 8 if self.hints.is_known() => self.create_pointer(random),
            9 if self.hints.is_known() => match random.one_in(3) {
                true => self.collect(random),
                false => self.delete_pointer(random),
            },
            _ => Ok(()),
        }
    }

    /// Room for more pointers, with a crash in the middle now and then.
    fn grow_pointers(&mut self, random: &mut Random) -> Result<(), Violation> {
        let pointers = 504 * (1 + self.more.below(24)) as u32;
        let request = VolumeRequest::SetPointers { pointers };
        if self.more.one_in(3) {
            self.machine.submit(Operation::Volume(request), false);
            for _ in 0..self.more.below(4) {
                self.machine.end_one_io(random);
            }
            return self.crash(super::crash::Crash::real(random.one_in(2)), random);
        }
        match self.request(request, random)? {
            Ok(_) | Err(VolumeError::TooManyPointers { .. } | VolumeError::Metadata) => Ok(()),
            // The volume grows.
            Err(VolumeError::Busy) if self.options.more.grows_volume => Ok(()),
            Err(error) => Err(Violation(format!("no room for more pointers: {error}"))),
        }
    }

    fn set_attributes(&mut self, random: &mut Random) -> Result<(), Violation> {
        let extents = self.options.config.extents();
        let start = random.below(extents);
        let count = (1 + random.below(4)).min(extents - start);
        let set = self.draw_attributes(random);
        let clear = self.draw_attributes(random).without(set);
        let change = AttributeChange { set, clear };
        let blocks = self.extent_blocks();
        let ranges = vec![LbaRange::new(start * blocks, count * blocks)];
        let request = VolumeRequest::SetAttributes { ranges, change };
        if random.one_in(8) {
            // A crash before the answer.
            self.machine.submit(Operation::Volume(request), false);
            self.hints.attributes_unknown(start..start + count);
            return self.crash(super::crash::Crash::real(random.one_in(2)), random);
        }
        match self.request(request, random)? {
            Ok(_) => self.hints.attributes_changed(start..start + count, change),
            Err(error) => {
                self.note_losses();
                if !self.had_losses {
                    return Err(Violation(format!("attributes were refused: {error}")));
                }
                // A member that is needed cannot be flushed, and so the journal is full.
                self.hints.attributes_unknown(start..start + count);
            }
        }
        Ok(())
    }

    pub(super) fn allocate(&mut self, random: &mut Random) -> Result<(), Violation> {
        let blocks = self.extent_blocks();
        let near = random.below(self.options.config.extents()) * blocks;
        let near = random.one_in(2).then_some(Lba(near));
        let root = if random.one_in(4) { Attributes::ROOT } else { Attributes::NONE };
        let attributes = self.draw_attributes(random).or(root);
        let now = self.model.tick();
        self.hints.change_asked(now);
        let block = match self.request(VolumeRequest::Allocate { near, attributes }, random)? {
            Ok(Some(VolumeAnswer::Allocated(block))) => block,
            Ok(answer) => return Err(Violation(format!("allocating brought {answer:?}"))),
            Err(VolumeError::NoRoom) => return Ok(()),
            Err(error) => return Err(Violation(format!("allocating failed: {error}"))),
        };
        let extent = block.0 / blocks;
        if block.0 % blocks != 0 || extent >= self.options.config.extents() {
            return Err(Violation(format!("{block:?} was allocated, which is no extent")));
        }
        if self.hints.is_known() && self.hints.is_allocated(extent) {
            return Err(Violation(format!("{block:?} was allocated twice")));
        }
        self.hints.allocate(extent, attributes, self.model.tick());
        if self.model.overlaps_open(block.0, blocks) {
            return Ok(());
        }
        // It was nobody's: what is read from it is zero, and nothing that was written is gone.
        let all: Vec<u64> = (block.0..block.0 + blocks).collect();
        let shown = self.machine.read_blocks(&all, random)?;
        self.take_replies()?;
        for (block, shown) in shown {
            let may_be_lost = shown == Shown::Error && self.machine.may_be_lost(block);
            if shown != Shown::Change(0) && !may_be_lost || !self.model.may_show(block, 0) {
                let what = format!("block {block} shows {shown:?} after it was allocated");
                return Err(Violation(what));
            }
        }
        Ok(())
    }

    /// Two allocated blocks, if there are any.
    fn draw_two(&self, random: &mut Random) -> Option<(u64, u64)> {
        let allocated = self.hints.allocated();
        if allocated.is_empty() {
            return None;
        }
        Some((random.pick(&allocated), random.pick(&allocated)))
    }

    fn create_pointer(&mut self, random: &mut Random) -> Result<(), Violation> {
        let blocks = self.extent_blocks();
        let Some((from, mut to)) = self.draw_two(random) else { return Ok(()) };
        if random.one_in(10) {
            to = random.below(self.options.config.extents());
        }
        if self.hints.is_root(to) {
            return Ok(());
        }
        let (is_there, is_allocated) = (self.hints.points(from, to), self.hints.is_allocated(to));
        let count = self.hints.pointers().len();
        let request =
            VolumeRequest::CreatePointer { from: Lba(from * blocks), to: Lba(to * blocks) };
        let now = self.model.tick();
        self.hints.change_asked(now);
        match self.request(request, random)? {
            Ok(_) if is_there || !is_allocated => {
                Err(Violation(format!("a pointer from {from} to {to} was made, wrongly")))
            }
            Ok(_) => {
                self.hints.point(from, to, self.model.tick());
                Ok(())
            }
            Err(VolumeError::PointerExists { .. }) if is_there => Ok(()),
            Err(VolumeError::NotAllocated(_)) if !is_allocated => Ok(()),
            Err(VolumeError::NoPointerRoom) if count >= self.options.pointers_max as usize => {
                Ok(())
            }
            Err(error) => Err(Violation(format!("no pointer from {from} to {to}: {error}"))),
        }
    }

    fn delete_pointer(&mut self, random: &mut Random) -> Result<(), Violation> {
        let blocks = self.extent_blocks();
        let pointers = self.hints.pointers();
        let drawn = (!pointers.is_empty()).then(|| random.pick(&pointers));
        let Some((from, to)) = drawn.or_else(|| self.draw_two(random)) else { return Ok(()) };
        let is_there = self.hints.points(from, to);
        self.finish_requests(random)?;
        let request =
            VolumeRequest::DeletePointer { from: Lba(from * blocks), to: Lba(to * blocks) };
        let now = self.model.tick();
        self.hints.change_asked(now);
        match self.request(request, random)? {
            Ok(_) if is_there => {
                let freed = self.hints.unpoint(from, to, self.model.tick());
                self.freed(&freed, random)
            }
            Err(VolumeError::NoPointer { .. }) if !is_there => Ok(()),
            other => Err(Violation(format!("pointer from {from} to {to}: {other:?}"))),
        }
    }

    pub(super) fn collect(&mut self, random: &mut Random) -> Result<(), Violation> {
        self.finish_requests(random)?;
        let now = self.model.tick();
        self.hints.change_asked(now);
        let answer = self.request(VolumeRequest::Collect, random)?;
        let freed = self.hints.collect(self.model.tick());
        match answer {
            Ok(Some(VolumeAnswer::Collected(count))) if count == freed.len() as u64 => {
                self.freed(&freed, random)
            }
            other => Err(Violation(format!("{other:?}, where {freed:?} cannot be reached"))),
        }
    }

    /// These blocks are nobody's any more: they read as zeroes. Before the next flush a crash may
    /// bring them back.
    fn freed(&mut self, extents: &[u64], random: &mut Random) -> Result<(), Violation> {
        let blocks = self.extent_blocks();
        let crashes = random.one_in(4);
        let changes: Vec<_> = extents
            .iter()
            .map(|extent| self.model.submit(extent * blocks, blocks, true, false))
            .collect();
        let is_durable = !crashes && self.flush_now(random)?;
        if !crashes && !is_durable && !extents.is_empty() {
            // What could not be discarded is not free.
            self.hints.lose();
        }
        for change in changes {
            self.model.acknowledge(change, is_durable);
            if is_durable {
                self.model.durable_change(change);
            }
        }
        match crashes {
            true => self.crash(super::crash::Crash::real(random.one_in(2)), random),
            false => Ok(()),
        }
    }

    /// The attributes are those that they must be.
    pub(super) fn check_hints(&self, machine: &super::machine::Machine) -> Result<(), Violation> {
        let volume = machine.volume();
        for extent in 0..self.options.config.extents() {
            let Some(expected) = self.hints.attributes(extent) else { continue };
            let found = volume.attributes(Lba(extent * self.extent_blocks()));
            if found != expected {
                let what = format!("extent {extent} has attributes {found}, not {expected}");
                return Err(Violation(what));
            }
        }
        Ok(())
    }

    /// Which blocks are allocated, and how many pointers there are.
    pub(super) fn check_blocks(&self, machine: &super::machine::Machine) -> Result<(), Violation> {
        if !self.hints.is_known() {
            return Ok(());
        }
        let volume = machine.volume();
        for extent in 0..self.options.config.extents() {
            let is_allocated = volume.is_allocated(Lba(extent * self.extent_blocks()));
            if is_allocated != self.hints.is_allocated(extent) {
                let what = if is_allocated { "is" } else { "is not" };
                return Err(Violation(format!("extent {extent} {what} allocated")));
            }
        }
        let (found, expected) = (volume.status().pointers, self.hints.pointers().len());
        match found == expected as u64 {
            true => Ok(()),
            false => Err(Violation(format!("there are {found} pointers, not {expected}"))),
        }
    }

    // ---- members ------------------------------------------------------------------------------

    /// A rebuild, a scrub, an end of either, or a member that somebody calls failed.
    pub(super) fn member_request(&mut self, random: &mut Random) -> Result<(), Violation> {
        let members = self.options.config.members as u64;
        let not_current = (0..members as u8)
            .map(MemberIndex)
            .find(|member| self.machine.member_state(*member) != MemberState::UpToDate);
        match random.below(8) {
            0..5 => {
                let Some(member) = not_current else { return Ok(()) };
                self.rebuild(member, random)
            }
            5 => self.scrub(random).map(|_| ()),
            6 => match self.request(VolumeRequest::CancelWork, random)? {
                Ok(_) => Ok(()),
                Err(error) => Err(Violation(format!("work cannot be cancelled: {error}"))),
            },
            _ if self.may_fail(random) => {
                let member = MemberIndex(random.below(members) as u8);
                match self.request(VolumeRequest::FailMember { member }, random)? {
                    Ok(_) => {
                        self.machine.state.members[usize::from(member.0)].is_suspect = true;
                        self.report.volume.members_failed += 1;
                        self.note_losses();
                    }
                    Err(VolumeError::LastCopy(_)) => {}
                    Err(error) => return Err(Violation(format!("{member:?}: {error}"))),
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Begins a rebuild; now and then somebody puts a disk there first that works.
    pub(super) fn rebuild(
        &mut self,
        member: MemberIndex,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let disk = &mut self.machine.state.members[usize::from(member.0)];
        if disk.disk.failing.is_some() && random.one_in(2) {
            disk.disk.failing = None;
        }
        let works = disk.disk.failing.is_none()
            && self.machine.volume().status().members[usize::from(member.0)].is_present;
        match self.request(VolumeRequest::Rebuild { member }, random)? {
            Ok(_) => {
                self.machine.state.members[usize::from(member.0)].is_rebuilt = true;
                self.report.volume.rebuilds += 1;
            }
            Err(VolumeError::Busy | VolumeError::UpToDate(_)) => {}
            Err(_) if !works => {}
            Err(error) => return Err(Violation(format!("rebuild of {member:?}: {error}"))),
        }
        Ok(())
    }

    /// Begins a scrub. False if something else is being done.
    pub(super) fn scrub(&mut self, random: &mut Random) -> Result<bool, Violation> {
        match self.request(VolumeRequest::Scrub, random)? {
            Ok(_) => {
                self.report.volume.scrubs += 1;
                Ok(true)
            }
            Err(VolumeError::Busy) => Ok(false),
            Err(error) => Err(Violation(format!("scrub: {error}"))),
        }
    }

    /// Until a rebuild or scrub has come to its end.
    pub(super) fn finish_work(&mut self, random: &mut Random) -> Result<(), Violation> {
        for _ in 0..WAIT_MAX {
            if self.machine.volume().status().work.is_none() {
                return self.take_replies();
            }
            self.machine.end_one_io(random);
        }
        Err(Violation("a rebuild or scrub without end".into()))
    }
}
