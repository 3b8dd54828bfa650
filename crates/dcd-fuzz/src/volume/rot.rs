//! A cache-disk that has rotted while nothing ran, and one of which a read fails in a start. Both
//! are looked at with copies: the run goes on with the right disk.

use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE};
use dcd_engine::{Buffer, Lba, Operation};

use super::machine::{Machine, Wreck};
use super::run::VolumeRun;
use crate::disk::FaultyDisk;
use crate::faults::{Allowed, Level};
use crate::model::{Shown, Violation, fill_block};
use crate::random::Random;
use crate::running::NotOpen;

/// The cache-disk is looked at in pieces of so many bytes.
const SECTOR_BYTES: usize = 4096;
/// Tries to hit a piece that is in use.
const TRIES: u32 = 24;
/// Reads of the cache-disk in a start, of which one fails.
const READS_MAX: u64 = 60;
/// No run makes so many changes.
const NOT_OF_THE_MODEL: u64 = 0x4000_0000;

impl VolumeRun {
    /// What is read after a start from a rotten cache-disk was once written there, or cannot be
    /// read, or the start is refused; what is written then is there.
    pub(super) fn probe_rotten(&mut self, wreck: &Wreck) -> Result<(), Violation> {
        let mut random = Random::new(self.more.state() ^ 0x207);
        if !self.options.more.cache_disk_rots || self.is_calm || !random.one_in(2) {
            return Ok(());
        }
        let mut wreck = wreck.clone();
        wreck.fails_at = None;
        for _ in 0..random.pick(&[1, 1, 1, 4]) {
            self.rot_cache_disk(&mut wreck.cache_disk, &mut random);
        }
        self.report.volume.cache_disks_rotten += 1;
        let mut machine = Machine::new(wreck, &self.options, self.machine.running.is_traced);
        match machine.open(&self.options, None, &mut random) {
            Ok(()) => {}
            Err(NotOpen::Refused(_)) => {
                self.report.volume.rot_refused += 1;
                return Ok(());
            }
            Err(NotOpen::Violation(violation)) => return Err(violation),
            Err(NotOpen::Interrupted) => unreachable!("nothing interrupts it"),
        }
        let allowed = Allowed { level: Level::Ever, reads_fail: true, ..self.allowed.clone() };
        let blocks = self.blocks_to_check(random.one_in(8), &mut random);
        let shown = machine.read_blocks(&blocks, &mut random)?;
        self.model.check_after_crash(&shown, false, &allowed).map_err(of_rot)?;
        write_and_read(&mut machine, self.model.blocks(), &mut random).map_err(of_rot)
    }

    /// One read of the cache-disk fails in a start: refused, or all is there.
    pub(super) fn probe_unreadable(&mut self, wreck: &Wreck) -> Result<(), Violation> {
        let mut random = Random::new(self.more.state() ^ 0x4ead);
        if !self.options.more.cache_disk_rots || self.is_calm || !random.one_in(4) {
            return Ok(());
        }
        let memory_survived = wreck.memory.is_some();
        let mut wreck = wreck.clone();
        wreck.fails_at = None;
        let mut machine = Machine::new(wreck, &self.options, self.machine.running.is_traced);
        machine.failing_read = Some(random.below(READS_MAX));
        match machine.open(&self.options, None, &mut random) {
            Ok(()) => {}
            Err(NotOpen::Refused(_)) => return Ok(()),
            Err(NotOpen::Violation(violation)) => return Err(violation),
            Err(NotOpen::Interrupted) => unreachable!("nothing interrupts it"),
        }
        machine.failing_read = None;
        machine.note_losses();
        let blocks = self.blocks_to_check(false, &mut random);
        let shown = machine.read_blocks(&blocks, &mut random)?;
        machine.note_losses();
        let allowed = Allowed { reads_fail: true, ..self.allowed.clone() };
        if let Some((block, _)) =
            shown.iter().find(|(b, shown)| *shown == Shown::Error && !machine.may_be_lost(*b))
        {
            return Err(Violation(format!(
                "block {block} cannot be read after a start in which a read failed once"
            )));
        }
        let outcome = self.model.check_after_crash(&shown, memory_survived, &allowed);
        outcome.map(|_| ()).map_err(|Violation(what)| {
            Violation(format!("after a start in which a read failed: {what}"))
        })
    }

    /// Something in use is not what it was.
    fn rot_cache_disk(&mut self, disk: &mut FaultyDisk, random: &mut Random) {
        let pieces = (disk.len() / SECTOR_BYTES) as u64;
        let tables = (self.options.cache.geometry().end() as usize / SECTOR_BYTES) as u64;
        let mut bytes = vec![0; SECTOR_BYTES];
        let mut at = 0;
        // The tables of the volume have as much of it as all the rest.
        let from = if random.one_in(2) { tables } else { 0 };
        for _ in 0..TRIES {
            at = (from + random.below(pieces - from)) as usize * SECTOR_BYTES;
            disk.peek(at, &mut bytes);
            if bytes.iter().any(|byte| *byte != 0) {
                break;
            }
        }
        match random.below(4) {
            0 => {
                let bit = random.below(SECTOR_BYTES as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            1 => bytes.fill(0),
            2 => bytes.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
            // What is elsewhere.
            _ => disk.peek(random.below(pieces) as usize * SECTOR_BYTES, &mut bytes),
        }
        self.say(|| format!("on a copy, the cache-disk rots at {at}"));
        disk.rot(at, &bytes);
    }
}

fn of_rot(Violation(what): Violation) -> Violation {
    Violation(format!("from a rotten cache-disk: {what}"))
}

/// What a volume takes it keeps.
fn write_and_read(
    machine: &mut Machine,
    blocks: u64,
    random: &mut Random,
) -> Result<(), Violation> {
    let unit = LINE_SIZE / BLOCK_SIZE;
    let mut written = Vec::new();
    for number in NOT_OF_THE_MODEL..NOT_OF_THE_MODEL + 6 {
        let start = random.below(blocks / unit) * unit;
        let mut data = Buffer::zeroed(LINE_SIZE as usize);
        let parts = data.bytes_mut().chunks_exact_mut(BLOCK_SIZE as usize);
        (start..).zip(parts).for_each(|(block, bytes)| fill_block(bytes, number, block));
        written.retain(|(other, _)| *other != start);
        if machine.ask(Operation::Write { start: Lba(start), data }, random)?.is_ok() {
            written.push((start, number));
        }
    }
    // Perhaps not all can be destaged.
    let _ = machine.ask(Operation::Flush, random)?;
    machine.come_to_rest(2_000, random);
    for (start, number) in written {
        let range: Vec<u64> = (start..start + unit).collect();
        for (block, shown) in machine.read_blocks(&range, random)? {
            if shown != Shown::Change(number) && shown != Shown::Error {
                return Err(Violation(format!("block {block} was written, and shows {shown:?}")));
            }
        }
    }
    Ok(())
}
