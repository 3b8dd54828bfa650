//! A device in memory, for tests. It remembers everything that it was told, so that a test can look
//! at what a power cut leaves at any moment: [`MemoryDevice::after_power_cut`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dcd_block::attributes::{AttributeChange, Attributes};
use dcd_block::errors::VolumeError;
use dcd_block::units::Lba;

use crate::block_device::{
    Allocation, BlockDevice, Geometry, PointerChange, PointerVerb, Read, Usage, Write,
};
use crate::error::DeviceError;

/// Smallest part of a write that a power cut leaves whole.
const SECTOR_BYTES: usize = 512;

/// Something that was told.
#[derive(Clone, Debug)]
enum Event {
    Write { block: u64, data: Arc<[u8]> },
    Discard { block: u64 },
    Allocate { block: u64, attributes: Attributes },
    Pointer(PointerChange),
    Attributes { block: u64, change: AttributeChange },
    Collect,
    Flush,
}

/// What there is at some moment.
#[derive(Clone, Default, Debug)]
struct State {
    /// What was written; all else is zero.
    data: BTreeMap<u64, Arc<[u8]>>,
    /// Of what was allocated.
    allocated: BTreeMap<u64, Attributes>,
    /// Written, and not allocated, or not any more: they have room, and are nobody's to collect.
    unmanaged: BTreeSet<u64>,
    /// From, to.
    pointers: BTreeSet<(u64, u64)>,
    /// To, from.
    reversed: BTreeSet<(u64, u64)>,
}

impl State {
    fn write(&mut self, block: u64, data: Arc<[u8]>) {
        self.data.insert(block, data);
        if !self.allocated.contains_key(&block) {
            self.unmanaged.insert(block);
        }
    }

    /// All that have room from this one on, in order, as far as somebody looks.
    fn used_from(&self, first: u64) -> impl Iterator<Item = u64> {
        let mut allocated = self.allocated.range(first..).map(|(block, _)| *block).peekable();
        let mut unmanaged = self.unmanaged.range(first..).copied().peekable();
        std::iter::from_fn(move || match (allocated.peek(), unmanaged.peek()) {
            (Some(one), Some(other)) if one > other => unmanaged.next(),
            (Some(_), _) => allocated.next(),
            (None, _) => unmanaged.next(),
        })
    }
}

/// A device in memory.
pub struct MemoryDevice {
    geometry: Geometry,
    state: State,
    /// What was there when the recording began, and what came since.
    recorded: Option<(State, Vec<Event>)>,
    /// Writes and flushes fail from this many on.
    fails_after: Option<u64>,
    pointers_max: u64,
    is_read_only: bool,
}

impl MemoryDevice {
    /// With this many blocks of this size, all free.
    pub fn new(geometry: Geometry) -> MemoryDevice {
        assert!(geometry.block_bytes.is_multiple_of(SECTOR_BYTES));
        MemoryDevice {
            geometry,
            state: State::default(),
            recorded: None,
            fails_after: None,
            pointers_max: u64::from(u32::MAX),
            is_read_only: false,
        }
    }

    /// Whether it takes no changes from now on. One that comes all the same is a panic.
    pub fn set_read_only(&mut self, is_read_only: bool) {
        self.is_read_only = is_read_only;
    }

    /// There is room for this many pointers from now on.
    pub fn limit_pointers(&mut self, pointers_max: u64) {
        self.pointers_max = pointers_max;
    }

    /// From now on everything is remembered; what is there now survives power cuts.
    pub fn record(&mut self) {
        self.recorded = Some((self.state.clone(), Vec::new()));
    }

    /// How much was told since [`MemoryDevice::record`].
    pub fn recorded(&self) -> usize {
        self.recorded.as_ref().map_or(0, |(_, events)| events.len())
    }

    /// Every write and flush fails when this many have been done.
    pub fn fail_after(&mut self, writes: u64) {
        self.fails_after = Some(writes);
    }

    /// What a power cut leaves when it comes behind the first `events` of what was told. What comes
    /// before the last flush is there. Of what comes later `keep` decides: it is asked how many of
    /// so many (the first argument) sectors or changes stay, and gives a number below. Of writes
    /// any sectors may be lost, of the rest all from some moment on.
    pub fn after_power_cut(
        &self,
        events: usize,
        keep: &mut dyn FnMut(usize) -> usize,
    ) -> MemoryDevice {
        let (state, recorded) = self.recorded.as_ref().expect("a device that records");
        let mut device = MemoryDevice::new(self.geometry);
        device.state = state.clone();
        device.pointers_max = self.pointers_max;
        let recorded = &recorded[..events];
        let flushed = recorded.iter().rposition(|event| matches!(event, Event::Flush));
        let (durable, open) = recorded.split_at(flushed.map_or(0, |at| at + 1));
        for event in durable {
            device.apply(event);
        }
        let changes = open.iter().filter(|event| !matches!(event, Event::Write { .. })).count();
        let mut changes_left = keep(changes + 1);
        for event in open {
            if let Event::Write { block, data } = event {
                device.write_in_part(*block, data, keep);
            } else if changes_left > 0 {
                changes_left -= 1;
                device.apply(event);
            }
        }
        device
    }

    /// Whole, not at all, or torn.
    fn write_in_part(&mut self, block: u64, data: &[u8], keep: &mut dyn FnMut(usize) -> usize) {
        let mut torn = self
            .state
            .data
            .get(&block)
            .map_or_else(|| vec![0; self.geometry.block_bytes], |data| data.to_vec());
        match keep(4) {
            0 => return,
            1 => {
                let sectors = torn.chunks_mut(SECTOR_BYTES).zip(data.chunks(SECTOR_BYTES));
                for (old, new) in sectors {
                    if keep(2) == 0 {
                        old.copy_from_slice(new);
                    }
                }
            }
            _ => torn.copy_from_slice(data),
        }
        self.state.write(block, torn.into());
    }

    /// All pointers, from and to.
    pub fn all_pointers(&self) -> impl Iterator<Item = (u64, u64)> {
        self.state.pointers.iter().copied()
    }

    fn tell(&mut self, event: Event) {
        assert!(!self.is_read_only, "{event:?} for a device that takes no changes");
        self.apply(&event);
        if let Some((_, events)) = &mut self.recorded {
            events.push(event);
        }
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Write { block, data } => {
                self.state.write(*block, data.clone());
            }
            Event::Discard { block } => {
                self.free(*block);
                self.state.unmanaged.remove(block);
            }
            Event::Allocate { block, attributes } => {
                self.state.data.remove(block);
                self.state.unmanaged.remove(block);
                self.state.allocated.insert(*block, *attributes);
            }
            Event::Pointer(PointerChange { verb: PointerVerb::Create, from, to }) => {
                self.state.pointers.insert((*from, *to));
                self.state.reversed.insert((*to, *from));
                let inherited = self.state.allocated[from].and(Attributes::INHERITED);
                let change = AttributeChange { set: inherited, clear: Attributes::NONE };
                self.change_from(*to, change);
                let own = self.state.allocated.get_mut(from).expect("it is allocated");
                *own = own.or(Attributes::METADATA);
            }
            Event::Pointer(PointerChange { verb: PointerVerb::Delete, from, to }) => {
                self.state.pointers.remove(&(*from, *to));
                self.state.reversed.remove(&(*to, *from));
                self.free_unless_pointed_to(*to);
            }
            Event::Attributes { block, change } => self.change_from(*block, *change),
            Event::Collect => self.free_unreachable(),
            Event::Flush => {}
        }
    }

    /// Changes the attributes of a block and of all that can be reached from it.
    fn change_from(&mut self, block: u64, change: AttributeChange) {
        if let Some(own) = self.state.allocated.get_mut(&block) {
            *own = own.changed(change);
        }
        let inherited = AttributeChange {
            set: change.set.and(Attributes::INHERITED),
            clear: change.clear.and(Attributes::INHERITED),
        };
        let mut seen = BTreeSet::from([block]);
        let mut open = vec![block];
        while let Some(block) = open.pop() {
            for (_, to) in self.state.pointers.range((block, 0)..=(block, u64::MAX)) {
                if seen.insert(*to) {
                    let own = self.state.allocated.get_mut(to).expect("it is allocated");
                    *own = own.changed(inherited);
                    open.push(*to);
                }
            }
        }
    }

    fn free_unless_pointed_to(&mut self, block: u64) {
        let mut open = vec![block];
        while let Some(block) = open.pop() {
            let is_pointed_to =
                self.state.reversed.range((block, 0)..=(block, u64::MAX)).next().is_some();
            let is_root = self.state.allocated[&block].contains(Attributes::ROOT);
            if !is_pointed_to && !is_root {
                open.extend(self.free(block));
            }
        }
    }

    /// Frees a block, whoever points to it; those that it pointed to.
    fn free(&mut self, block: u64) -> Vec<u64> {
        let pointers = self.state.pointers.range((block, 0)..=(block, u64::MAX));
        let pointed_to: Vec<u64> = pointers.map(|(_, to)| *to).collect();
        for to in &pointed_to {
            self.state.pointers.remove(&(block, *to));
            self.state.reversed.remove(&(*to, block));
        }
        self.state.allocated.remove(&block);
        self.state.data.remove(&block);
        pointed_to
    }

    fn unreachable(&self) -> Vec<u64> {
        let roots = self.state.allocated.iter();
        let roots = roots.filter(|(_, own)| own.contains(Attributes::ROOT)).map(|(root, _)| *root);
        let mut open: Vec<u64> = roots.collect();
        let mut reached: BTreeSet<u64> = open.iter().copied().collect();
        while let Some(block) = open.pop() {
            for (_, to) in self.state.pointers.range((block, 0)..=(block, u64::MAX)) {
                if reached.insert(*to) {
                    open.push(*to);
                }
            }
        }
        self.state.allocated.keys().copied().filter(|block| !reached.contains(block)).collect()
    }

    fn free_unreachable(&mut self) {
        for block in self.unreachable() {
            self.free(block);
        }
    }

    fn check(&self, first: u64, bytes: usize) -> Result<(), DeviceError> {
        let Geometry { block_bytes, blocks } = self.geometry;
        let end = first.saturating_add((bytes / block_bytes) as u64);
        if bytes.is_multiple_of(block_bytes) && end <= blocks {
            return Ok(());
        }
        Err(DeviceError::Range { first, end, blocks })
    }

    fn count_write(&mut self) -> Result<(), DeviceError> {
        match &mut self.fails_after {
            None => Ok(()),
            Some(0) => {
                Err(DeviceError::Io { what: "write", source: std::io::ErrorKind::Other.into() })
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn allocate_one(&mut self, wanted: Allocation) -> Result<u64, DeviceError> {
        let near = wanted.near.unwrap_or(0).min(self.geometry.blocks);
        let mut expected = near;
        // The first number that is missing among those in use from `near` on, then from the
        // beginning.
        for used in self.state.used_from(near) {
            if used != expected {
                break;
            }
            expected += 1;
        }
        if expected == self.geometry.blocks {
            expected = 0;
            for used in self.state.used_from(0) {
                if used != expected {
                    break;
                }
                expected += 1;
            }
        }
        if expected == self.geometry.blocks {
            return Err(DeviceError::Volume(VolumeError::NoRoom));
        }
        self.tell(Event::Allocate { block: expected, attributes: wanted.attributes });
        Ok(expected)
    }

    fn change_pointer(&mut self, change: PointerChange) -> Result<(), DeviceError> {
        let PointerChange { verb, from, to } = change;
        let (lba_from, lba_to) = (Lba(from), Lba(to));
        for block in [from, to] {
            if !self.state.allocated.contains_key(&block) {
                return Err(DeviceError::Volume(VolumeError::NotAllocated(Lba(block))));
            }
        }
        let is_there = self.state.pointers.contains(&(from, to));
        match (verb, is_there) {
            (PointerVerb::Create, true) => {
                let error = VolumeError::PointerExists { from: lba_from, to: lba_to };
                return Err(DeviceError::Volume(error));
            }
            (PointerVerb::Delete, false) => {
                let error = VolumeError::NoPointer { from: lba_from, to: lba_to };
                return Err(DeviceError::Volume(error));
            }
            (PointerVerb::Create, false)
                if self.state.pointers.len() as u64 >= self.pointers_max =>
            {
                return Err(DeviceError::Volume(VolumeError::NoPointerRoom));
            }
            _ => {}
        }
        self.tell(Event::Pointer(change));
        Ok(())
    }
}

impl BlockDevice for MemoryDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn read(&mut self, reads: &mut [Read<'_>]) -> Result<(), DeviceError> {
        for read in reads {
            self.check(read.block, read.data.len())?;
            let blocks = read.data.chunks_mut(self.geometry.block_bytes);
            for (block, data) in (read.block..).zip(blocks) {
                match self.state.data.get(&block) {
                    Some(found) => data.copy_from_slice(found),
                    None => data.fill(0),
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), DeviceError> {
        for write in writes {
            self.check(write.block, write.data.len())?;
            for (block, data) in (write.block..).zip(write.data.chunks(self.geometry.block_bytes)) {
                self.count_write()?;
                self.tell(Event::Write { block, data: data.into() });
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.count_write()?;
        self.tell(Event::Flush);
        Ok(())
    }

    fn allocate(&mut self, wanted: &[Allocation]) -> Vec<Result<u64, DeviceError>> {
        wanted.iter().map(|wanted| self.allocate_one(*wanted)).collect()
    }

    fn change_pointers(&mut self, changes: &[PointerChange]) -> Vec<Result<(), DeviceError>> {
        changes.iter().map(|change| self.change_pointer(*change)).collect()
    }

    fn set_attributes(
        &mut self,
        blocks: &[u64],
        change: AttributeChange,
    ) -> Result<(), DeviceError> {
        for block in blocks {
            self.tell(Event::Attributes { block: *block, change });
        }
        Ok(())
    }

    fn discard(&mut self, blocks: &[Range<u64>]) -> Result<(), DeviceError> {
        for block in blocks.iter().cloned().flatten() {
            self.tell(Event::Discard { block });
        }
        Ok(())
    }

    fn attributes(&mut self, blocks: &[u64]) -> Result<Vec<Attributes>, DeviceError> {
        let own = |block| self.state.allocated.get(block).copied().unwrap_or_default();
        Ok(blocks.iter().map(own).collect())
    }

    fn collect(&mut self) -> Result<u64, DeviceError> {
        let freed = self.unreachable().len() as u64;
        self.tell(Event::Collect);
        Ok(freed)
    }

    fn mapped(&mut self, range: Range<u64>) -> Result<Vec<Range<u64>>, DeviceError> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for block in self.state.used_from(range.start).take_while(|block| *block < range.end) {
            match runs.last_mut() {
                Some(last) if last.end == block => last.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        Ok(runs)
    }

    fn settle(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn make_pointer_room(&mut self, pointers: u64) -> Result<(), DeviceError> {
        self.pointers_max = self.pointers_max.max(pointers);
        Ok(())
    }

    fn usage(&mut self) -> Result<Usage, DeviceError> {
        let State { allocated, unmanaged, pointers, .. } = &self.state;
        let mapped = (allocated.len() + unmanaged.len()) as u64;
        let pointers = pointers.len() as u64;
        Ok(Usage { mapped, pointers, pointers_max: self.pointers_max })
    }
}

fn locked(device: &Mutex<MemoryDevice>) -> MutexGuard<'_, MemoryDevice> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One that several have, as several connections to a volume.
impl BlockDevice for Arc<Mutex<MemoryDevice>> {
    fn geometry(&self) -> Geometry {
        locked(self).geometry()
    }

    fn is_read_only(&self) -> bool {
        locked(self).is_read_only()
    }

    fn read(&mut self, reads: &mut [Read<'_>]) -> Result<(), DeviceError> {
        locked(self).read(reads)
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), DeviceError> {
        locked(self).write(writes)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        locked(self).flush()
    }

    fn allocate(&mut self, wanted: &[Allocation]) -> Vec<Result<u64, DeviceError>> {
        locked(self).allocate(wanted)
    }

    fn change_pointers(&mut self, changes: &[PointerChange]) -> Vec<Result<(), DeviceError>> {
        locked(self).change_pointers(changes)
    }

    fn set_attributes(
        &mut self,
        blocks: &[u64],
        change: AttributeChange,
    ) -> Result<(), DeviceError> {
        locked(self).set_attributes(blocks, change)
    }

    fn discard(&mut self, blocks: &[Range<u64>]) -> Result<(), DeviceError> {
        locked(self).discard(blocks)
    }

    fn attributes(&mut self, blocks: &[u64]) -> Result<Vec<Attributes>, DeviceError> {
        locked(self).attributes(blocks)
    }

    fn collect(&mut self) -> Result<u64, DeviceError> {
        locked(self).collect()
    }

    fn mapped(&mut self, range: Range<u64>) -> Result<Vec<Range<u64>>, DeviceError> {
        locked(self).mapped(range)
    }

    fn settle(&mut self) -> Result<(), DeviceError> {
        locked(self).settle()
    }

    fn make_pointer_room(&mut self, pointers: u64) -> Result<(), DeviceError> {
        locked(self).make_pointer_room(pointers)
    }

    fn usage(&mut self) -> Result<Usage, DeviceError> {
        locked(self).usage()
    }
}
