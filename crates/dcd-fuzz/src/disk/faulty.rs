//! A disk with a volatile cache, as real ones have, and with what else can be wrong with one.
//!
//! A write that has ended is in the cache of the disk. A flush makes durable what had ended when
//! the flush was *started*; what ended since stays volatile. In a power cut each volatile write is
//! kept, dropped or torn on its own. A torn one leaves each physical sector it touches as it was,
//! as it should be, or, if the disk shears, as garbage.

use std::collections::BTreeSet;
use std::rc::Rc;

use dcd_engine::IoError;

use super::Pages;
use crate::random::Random;

/// The smallest part of a disk that fails on its own.
pub const SECTOR: usize = 512;

/// What a sector is full of that has rotted.
const ROTTEN_BYTE: u8 = 0xdb;

/// What a garbled sector is full of.
pub const TORN_BYTE: u8 = 0xa5;

/// What becomes of a write in a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It never was.
    Dropped,
    /// It is whole.
    Kept,
    /// Some of its sectors are there.
    Torn,
}

impl Fate {
    /// Any.
    pub fn draw(random: &mut Random) -> Fate {
        random.pick(&[Fate::Dropped, Fate::Kept, Fate::Torn])
    }
}

/// A write in the cache of the disk.
#[derive(Clone)]
struct Volatile {
    number: u64,
    offset: usize,
    bytes: Rc<[u8]>,
    /// It was durable at once (FUA). It stands here because an older volatile write of the same
    /// place may not come after it.
    is_certain: bool,
}

/// The disk.
#[derive(Clone)]
pub struct FaultyDisk {
    /// What a read returns.
    current: Pages,
    /// What is on the medium for certain.
    durable: Pages,
    /// Ended and not flushed, in order.
    volatile: Vec<Volatile>,
    /// Number of the write after the last of `volatile`.
    next_write: u64,
    /// Bytes that the medium writes at once.
    physical_sector: usize,
    /// A torn physical sector may be garbage, not only old or new.
    pub shears: bool,
    /// A physical sector that is written with what it certainly holds already is not garbled.
    /// Assumed of a cache-disk, not of a data-disk.
    pub keeps_same_bytes: bool,
    /// It takes no operation that zeroes a range.
    pub cannot_zero: bool,
    /// Sectors that cannot be read until they are written.
    bad: BTreeSet<usize>,
    /// Sectors that read as something else until they are written.
    rotten: BTreeSet<usize>,
    /// Every I/O ends like this.
    pub failing: Option<IoError>,
}

impl FaultyDisk {
    /// A disk of zeroes.
    pub fn new(len: usize, physical_sector: usize) -> FaultyDisk {
        FaultyDisk {
            current: Pages::new(len),
            durable: Pages::new(len),
            volatile: Vec::new(),
            next_write: 0,
            physical_sector,
            shears: false,
            keeps_same_bytes: false,
            cannot_zero: false,
            bad: BTreeSet::new(),
            rotten: BTreeSet::new(),
            failing: None,
        }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.current.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.current.is_empty()
    }

    /// What a read would return.
    pub fn peek(&self, offset: usize, to: &mut [u8]) {
        self.current.read(offset, to);
    }

    /// Everything that a read would return now, for [`FaultyDisk::restore`].
    pub fn snapshot(&self) -> Pages {
        self.current.clone()
    }

    /// Another image takes the place of this one, durably.
    pub fn restore(&mut self, image: Pages) {
        self.durable = image.clone();
        self.current = image;
        self.volatile.clear();
        self.bad.clear();
        self.rotten.clear();
    }

    /// Cuts or lengthens the disk.
    pub fn resize(&mut self, len: usize) {
        self.current.resize(len);
        self.durable.resize(len);
        // What is cut off never lands.
        self.volatile.retain(|write| write.offset + write.bytes.len() <= len);
    }

    /// How many writes are in the volatile cache.
    pub fn volatile_count(&self) -> usize {
        self.volatile.iter().filter(|write| !write.is_certain).count()
    }

    /// A flush that is started now covers every write up to this mark.
    pub fn flush_mark(&self) -> u64 {
        self.next_write
    }

    // ---- what the engine asks -----------------------------------------------------------------

    /// Reads.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), IoError> {
        self.check_read(offset, to.len())?;
        let (first, end) = (offset as usize / SECTOR, (offset as usize + to.len()) / SECTOR);
        if !self.bad.is_empty() && self.bad.range(first..end).next().is_some() {
            return Err(IoError::Failed);
        }
        self.current.read(offset as usize, to);
        for sector in self.rotten.range(first..end) {
            to[(sector - first) * SECTOR..][..SECTOR].fill(ROTTEN_BYTE);
        }
        Ok(())
    }

    /// Writes; with `fua` the bytes are on the medium afterwards.
    pub fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), IoError> {
        self.check(offset, bytes.len())?;
        let at = offset as usize;
        self.heal_sectors(at, bytes.len());
        self.current.write(at, bytes);
        if fua && self.volatile.is_empty() {
            self.durable.write(at, bytes);
        } else {
            let number = self.next_write;
            self.volatile.push(Volatile {
                number,
                offset: at,
                bytes: bytes.into(),
                is_certain: fua,
            });
        }
        self.next_write += 1;
        Ok(())
    }

    /// What had ended when the flush was started becomes durable.
    pub fn flush(&mut self, mark: u64) -> Result<(), IoError> {
        self.check_read(0, 0)?;
        let covered = self.volatile.partition_point(|write| write.number < mark);
        if covered == 0 {
            return Ok(());
        }
        for write in self.volatile.drain(..covered) {
            self.durable.write(write.offset, &write.bytes);
        }
        Ok(())
    }

    /// A flush fails and the volatile writes are gone for good, although the system calls them
    /// written: reads still show them, and no later flush brings them to the medium.
    pub fn drop_unflushed(&mut self, random: &mut Random) {
        self.volatile.retain(|write| write.is_certain || random.one_in(2));
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), IoError> {
        if let Some(error) = self.failing {
            return Err(error);
        }
        let end = offset.checked_add(length as u64).ok_or(IoError::Gone)?;
        if end > self.current.len() as u64 { Err(IoError::Gone) } else { Ok(()) }
    }

    /// A disk that takes no writes can be read, and flushed.
    fn check_read(&self, offset: u64, length: usize) -> Result<(), IoError> {
        match self.failing {
            Some(IoError::ReadOnly) => Ok(()),
            _ => self.check(offset, length),
        }
    }

    fn heal_sectors(&mut self, at: usize, length: usize) {
        let (first, end) = (at / SECTOR, (at + length).div_ceil(SECTOR));
        for sectors in [&mut self.bad, &mut self.rotten] {
            sectors.retain(|sector| !(first..end).contains(sector));
        }
    }

    // ---- crashes ------------------------------------------------------------------------------

    /// A write that had not ended leaves its trace in the cache of the disk, as `fate` says.
    pub fn land(&mut self, offset: u64, bytes: &[u8], fate: Fate, random: &mut Random) {
        if self.check(offset, bytes.len()).is_err() {
            return;
        }
        match fate {
            Fate::Dropped => {}
            Fate::Kept => self.write(offset, bytes, false).expect("checked"),
            Fate::Torn => {
                let torn = self.torn(offset as usize, bytes, random);
                for (at, bytes) in torn {
                    // Torn once: it is not torn again by the cut.
                    self.write(at as u64, &bytes, true).expect("checked");
                }
            }
        }
    }

    /// The power fails; each volatile write meets the fate that `draw` says.
    pub fn power_cut(&mut self, random: &mut Random, mut draw: impl FnMut(&mut Random) -> Fate) {
        for write in std::mem::take(&mut self.volatile) {
            let fate = if write.is_certain { Fate::Kept } else { draw(random) };
            match fate {
                Fate::Dropped => {}
                Fate::Kept => self.durable.write(write.offset, &write.bytes),
                Fate::Torn => {
                    for (at, bytes) in self.torn(write.offset, &write.bytes, random) {
                        self.durable.write(at, &bytes);
                    }
                }
            }
        }
        self.current = self.durable.clone();
    }

    /// What a torn write leaves: places and bytes. A garbled physical sector is garbage as a whole,
    /// with the neighbours of what was written there.
    fn torn(&self, offset: usize, bytes: &[u8], random: &mut Random) -> Vec<(usize, Vec<u8>)> {
        let end = offset + bytes.len();
        let mut left = Vec::new();
        let mut at = offset;
        while at < end {
            let physical = at / self.physical_sector * self.physical_sector;
            let physical_end = (physical + self.physical_sector).min(self.len());
            let garbles = self.shears && random.one_in(3);
            if garbles && !(self.keeps_same_bytes && self.holds(at, &bytes[at - offset..])) {
                left.push((physical, vec![TORN_BYTE; physical_end - physical]));
                at = physical_end;
                continue;
            }
            let next = (at + SECTOR).min(end);
            if random.one_in(2) {
                left.push((at, bytes[at - offset..next - offset].to_vec()));
            }
            at = next;
        }
        left
    }

    /// Whether the physical sector at `at` is to become what the medium has for certain.
    fn holds(&self, at: usize, bytes: &[u8]) -> bool {
        let end = (at / self.physical_sector + 1) * self.physical_sector;
        let mut held = vec![0; bytes.len().min(end - at)];
        self.durable.read(at, &mut held);
        for write in self.volatile.iter().filter(|write| write.is_certain) {
            let (first, last) = (write.offset.max(at), write.offset + write.bytes.len());
            let last = last.min(at + held.len());
            if first < last {
                let from = &write.bytes[first - write.offset..last - write.offset];
                held[first - at..last - at].copy_from_slice(from);
            }
        }
        held == bytes[..held.len()]
    }

    // ---- rot ----------------------------------------------------------------------------------

    /// The medium changes behind everyone's back.
    pub fn rot(&mut self, offset: usize, bytes: &[u8]) {
        let length = bytes.len().min(self.len().saturating_sub(offset));
        self.current.write(offset, &bytes[..length]);
        self.durable.write(offset, &bytes[..length]);
    }

    /// A sector cannot be read until it is written.
    pub fn make_bad(&mut self, offset: usize) {
        self.bad.insert(offset / SECTOR);
    }

    /// A sector reads as something else until it is written. What is below it stays: what heals it
    /// behind everyone's back needs no bytes of anybody.
    pub fn make_rotten(&mut self, offset: usize) {
        self.rotten.insert(offset / SECTOR);
    }

    /// Whether there are sectors that were made rotten and not written since.
    pub fn has_rotten(&self) -> bool {
        !self.rotten.is_empty()
    }

    /// All sectors read as they were written.
    pub fn heal_rotten(&mut self) {
        self.rotten.clear();
    }

    /// Whether there are sectors that cannot be read.
    pub fn has_bad(&self) -> bool {
        !self.bad.is_empty()
    }

    /// The disk is as good as new; its bytes stay.
    pub fn heal(&mut self) {
        self.bad.clear();
        self.rotten.clear();
        self.failing = None;
    }

    /// The first byte that was changed last, if anything is volatile: where damage is likely to
    /// matter.
    pub fn newest_write(&self) -> Option<(usize, usize)> {
        self.volatile.last().map(|write| (write.offset, write.bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_byte(disk: &FaultyDisk) -> u8 {
        let mut byte = [0];
        disk.peek(0, &mut byte);
        byte[0]
    }

    #[test]
    fn a_flush_covers_what_had_ended_when_it_was_started() {
        let mut disk = FaultyDisk::new(8192, 512);
        disk.write(0, &[1; 512], false).unwrap();
        let mark = disk.flush_mark();
        disk.write(0, &[2; 512], false).unwrap();
        disk.flush(mark).unwrap();
        assert_eq!((first_byte(&disk), disk.volatile_count()), (2, 1));
        disk.power_cut(&mut Random::new(0), |_| Fate::Dropped);
        assert_eq!(first_byte(&disk), 1);
    }

    #[test]
    fn an_older_volatile_write_never_lands_over_a_durable_one() {
        let mut disk = FaultyDisk::new(8192, 512);
        disk.write(0, &[1; 512], false).unwrap();
        disk.write(0, &[2; 512], true).unwrap();
        disk.power_cut(&mut Random::new(0), |_| Fate::Kept);
        assert_eq!(first_byte(&disk), 2);
    }

    #[test]
    fn bad_sectors_fail_until_written() {
        let mut disk = FaultyDisk::new(8192, 512);
        disk.make_bad(600);
        let mut bytes = [0; 512];
        assert!(disk.read(0, &mut bytes).is_ok());
        assert_eq!(disk.read(512, &mut bytes), Err(IoError::Failed));
        disk.write(0, &[1; 1024], false).unwrap();
        assert!(disk.read(512, &mut bytes).is_ok());
    }

    #[test]
    fn rotten_sectors_are_wrong_until_written_or_healed() {
        let mut disk = FaultyDisk::new(8192, 512);
        disk.write(0, &[1; 8192], false).unwrap();
        disk.make_rotten(512);
        disk.make_rotten(1024);
        disk.write(512, &[2; 512], false).unwrap();
        let mut bytes = [0; 2048];
        disk.read(0, &mut bytes).unwrap();
        assert_eq!((bytes[0], bytes[512], bytes[1024], bytes[1536]), (1, 2, ROTTEN_BYTE, 1));
        disk.heal_rotten();
        disk.read(0, &mut bytes).unwrap();
        assert_eq!((bytes[1024], disk.has_rotten()), (1, false));
    }

    #[test]
    fn what_is_written_over_itself_is_not_sheared() {
        let mut random = Random::new(1);
        for is_flushed in [true, false] {
            let mut disk = FaultyDisk::new(8192, 4096);
            (disk.shears, disk.keeps_same_bytes) = (true, true);
            disk.write(4096, &[1; 512], false).unwrap();
            disk.write(0, &[2; 4096], true).unwrap();
            if is_flushed {
                disk.flush(disk.flush_mark()).unwrap();
            }
            for _ in 0..20 {
                disk.land(0, &[2; 4096], Fate::Torn, &mut random);
                disk.write(0, &[2; 4096], false).unwrap();
                let mut cut = disk.clone();
                cut.power_cut(&mut random, |_| Fate::Torn);
                assert_eq!(first_byte(&cut), 2);
            }
        }
    }

    #[test]
    fn a_sheared_sector_takes_its_neighbours_with_it() {
        let mut disk = FaultyDisk::new(8192, 4096);
        disk.shears = true;
        let mut random = Random::new(1);
        while first_byte(&disk) != 0xa5 {
            disk.write(1024, &[1; 512], false).unwrap();
            disk.power_cut(&mut random, |_| Fate::Torn);
        }
    }
}
