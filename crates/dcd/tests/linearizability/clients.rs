//! Clients that all work on the same sectors at once, over NBD and FUSE, and note what they saw.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::harness::nbd::{Client, Failure};
use crate::harness::random::Random;
use crate::history::{Action, Op, SECTOR, Stamp, Tick, ZERO, sector_bytes, stamps_of};

/// Sectors of the volume, and of its parts that everybody wants.
pub const SECTORS: usize = 8192;
const HOT: usize = 192;
/// Longest request: shorter than what may be split or bypassed, if the caller says so.
const LENGTH_MAX: u64 = 96;

/// What the clients of one run share.
pub struct Shared {
    ticks: AtomicU64,
    stamps: AtomicU64,
    /// Requests done since the last crash.
    pub done: AtomicU64,
    /// From now on dcd may be gone, and after a power cut its disks before it.
    pub is_crashing: AtomicBool,
    /// Whether the disks go, too: then there may be errors as well as no answers.
    loses_disks: bool,
    /// In this ack mode each reply says that the change is durable.
    all_durable: bool,
}

impl Shared {
    pub fn new(all_durable: bool, loses_disks: bool) -> Arc<Shared> {
        Arc::new(Shared {
            ticks: AtomicU64::new(1),
            stamps: AtomicU64::new(ZERO + 1),
            done: AtomicU64::new(0),
            is_crashing: AtomicBool::new(false),
            loses_disks,
            all_durable,
        })
    }

    fn tick(&self) -> Tick {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }
}

/// What to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Read,
    Write,
    Zeroes,
    Trim,
    Flush,
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    verb: Verb,
    start: usize,
    sectors: usize,
    fua: bool,
    stamp: Stamp,
}

impl Wish {
    fn new(random: &mut Random, shared: &Shared) -> Wish {
        let verb = match random.below(100) {
            0..40 => Verb::Read,
            40..88 => Verb::Write,
            88..91 => Verb::Zeroes,
            91..94 => Verb::Trim,
            _ => Verb::Flush,
        };
        let most = if random.once_in(2) { 8 } else { LENGTH_MAX };
        let sectors = 1 + random.below(most) as usize;
        let hot = [0, SECTORS / 2 - 7, SECTORS - HOT][random.below(3) as usize];
        let (from, room) = if random.once_in(5) { (0, SECTORS) } else { (hot, HOT) };
        let start = from + random.below((room - sectors + 1) as u64) as usize;
        let fua = random.once_in(12);
        let stamp = match verb {
            Verb::Write => shared.stamps.fetch_add(1, Ordering::SeqCst),
            _ => ZERO,
        };
        Wish { verb, start, sectors, fua, stamp }
    }

    fn offset(&self) -> u64 {
        (self.start * SECTOR) as u64
    }

    fn length(&self) -> usize {
        self.sectors * SECTOR
    }

    fn data(&self) -> Vec<u8> {
        let sectors = self.start..self.start + self.sectors;
        sectors.flat_map(|sector| sector_bytes(self.stamp, sector)).collect()
    }

    /// As it is noted, without a reply. What a read shows is not known yet.
    fn op(&self, sent: Tick, shared: &Shared) -> Op {
        let action = match self.verb {
            Verb::Read => Action::Read(Vec::new()),
            Verb::Flush => Action::Flush,
            _ => Action::Write {
                stamp: self.stamp,
                sectors: self.sectors,
                durable: self.fua || shared.all_durable,
            },
        };
        Op { sent, replied: None, start: self.start, action }
    }
}

/// The end of a client: what it has noted, or what went wrong.
pub type Notes = Result<Vec<Op>, String>;

/// One NBD connection with up to four requests under way.
pub fn nbd_client(mut client: Client, mut random: Random, shared: &Shared) -> Notes {
    let mut notes = Vec::new();
    loop {
        let mut under_way: Vec<(u64, Wish, Op)> = Vec::new();
        let end = nbd_batch(&mut client, &mut random, shared, &mut under_way, &mut notes);
        if let Err(failure) = end {
            // Changes without a reply have happened or not; reads without one say nothing.
            let open = under_way.into_iter().map(|(_, _, op)| op);
            notes.extend(open.filter(|op| !matches!(op.action, Action::Read(_))));
            let is_gone = matches!(failure, Failure::Gone(_)) || shared.loses_disks;
            if is_gone && shared.is_crashing.load(Ordering::SeqCst) {
                return Ok(notes);
            }
            return Err(format!("NBD: {failure:?}"));
        }
    }
}

fn nbd_batch(
    client: &mut Client,
    random: &mut Random,
    shared: &Shared,
    under_way: &mut Vec<(u64, Wish, Op)>,
    notes: &mut Vec<Op>,
) -> Result<(), Failure> {
    for _ in 0..1 + random.below(4) {
        let wish = Wish::new(random, shared);
        // Noted before it is sent: even one whose sending fails may have arrived.
        under_way.push((u64::MAX, wish, wish.op(shared.tick(), shared)));
        let (offset, length, fua) = (wish.offset(), wish.length(), wish.fua);
        let cookie = match wish.verb {
            Verb::Read => client.send_read(offset, length)?,
            Verb::Write => client.send_write(offset, &wish.data(), fua)?,
            Verb::Zeroes => client.send_zeroes(offset, length, fua)?,
            Verb::Trim => client.send_trim(offset, length, fua)?,
            Verb::Flush => client.send_flush()?,
        };
        under_way.last_mut().unwrap().0 = cookie;
    }
    while !under_way.is_empty() {
        let (cookie, result) = client.reply()?;
        let place = under_way.iter().position(|(known, _, _)| *known == cookie).unwrap();
        result.map_err(Failure::Errno)?;
        let data = match under_way[place].1.verb {
            Verb::Read => Some(client.data(under_way[place].1.length())?),
            _ => None,
        };
        let (_, wish, mut op) = under_way.swap_remove(place);
        op.replied = Some(shared.tick());
        if let Some(data) = data {
            op.action =
                Action::Read(stamps_of(&data, wish.start).unwrap_or_else(|e| panic!("{e}")));
        }
        notes.push(op);
        shared.done.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

/// One thread on the FUSE file, one request after the other.
pub struct FuseClient {
    file: File,
    /// Its writes have FUA.
    synced: File,
}

impl FuseClient {
    pub fn open(disk: &Path) -> FuseClient {
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(flags.bits() as i32).open(disk).unwrap()
        };
        FuseClient { file: open(OFlags::empty()), synced: open(OFlags::DSYNC) }
    }

    pub fn run(self, mut random: Random, shared: &Shared) -> Notes {
        let mut notes = Vec::new();
        loop {
            let mut wish = Wish::new(&mut random, shared);
            // fallocate has no FUA.
            wish.fua &= wish.verb == Verb::Write;
            let mut op = wish.op(shared.tick(), shared);
            match self.ask(&wish) {
                Ok(data) => {
                    op.replied = Some(shared.tick());
                    if let Some(data) = data {
                        op.action = Action::Read(stamps_of(&data, wish.start)?);
                    }
                    notes.push(op);
                    shared.done.fetch_add(1, Ordering::SeqCst);
                }
                Err(_) if shared.is_crashing.load(Ordering::SeqCst) => {
                    if wish.verb != Verb::Read {
                        notes.push(op);
                    }
                    return Ok(notes);
                }
                Err(error) => return Err(format!("FUSE: {wish:?}: {error}")),
            }
        }
    }

    fn ask(&self, wish: &Wish) -> std::io::Result<Option<Vec<u8>>> {
        let (offset, length) = (wish.offset(), wish.length() as u64);
        match wish.verb {
            Verb::Read => {
                let mut data = vec![0; wish.length()];
                self.file.read_exact_at(&mut data, offset)?;
                return Ok(Some(data));
            }
            Verb::Write if wish.fua => self.synced.write_all_at(&wish.data(), offset)?,
            Verb::Write => self.file.write_all_at(&wish.data(), offset)?,
            Verb::Zeroes => fallocate(&self.file, FallocateFlags::ZERO_RANGE, offset, length)?,
            Verb::Trim => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, hole, offset, length)?;
            }
            Verb::Flush => self.file.sync_data()?,
        }
        Ok(None)
    }
}
