//! What is below the tier in these runs: a disk that keeps what was written with FUA, and of the rest
//! what it likes.

use std::collections::BTreeMap;

use dcd_engine::units::{BLOCK_SIZE, LbaRange};
use dcd_engine::{Buffer, Operation, Reply, Request, RequestError};

use crate::random::Random;

const BLOCK: usize = BLOCK_SIZE as usize;

/// What a block holds: the version that wrote it; 0: zeroes.
pub(super) type Version = u64;

/// The bytes of a version of a block.
pub(super) fn fill(block: u64, version: Version, bytes: &mut [u8]) {
    let word = if version == 0 { 0 } else { version << 16 | block };
    for to in bytes.chunks_exact_mut(8) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}

/// The version that these bytes are; an error if they are none, or of another block.
pub(super) fn version_of(block: u64, bytes: &[u8]) -> Result<Version, String> {
    let word = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    if bytes.chunks_exact(8).any(|other| other != word.to_le_bytes()) {
        return Err(format!("block {block} is torn"));
    }
    match word {
        0 => Ok(0),
        word if word & 0xffff == block => Ok(word >> 16),
        word => Err(format!("block {block} holds block {}", word & 0xffff)),
    }
}

/// A request under way.
struct UnderWay {
    request: Request,
    /// What a read saw when it began.
    seen: Vec<Version>,
    /// What was there when a flush began: no more is durable by it.
    covers: BTreeMap<u64, Version>,
}

/// The disk.
#[derive(Default)]
pub(super) struct Below {
    durable: Vec<Version>,
    /// It takes whole logical blocks of so many blocks.
    unit_blocks: u64,
    /// All changes fail with this from now on.
    broken: Option<RequestError>,
    cache: BTreeMap<u64, Version>,
    under_way: Vec<UnderWay>,
    /// Changes under way may overlap: not all of them come from a tier. They take place in order.
    may_overlap: bool,
}

fn changes(request: &Request) -> Option<(LbaRange, bool)> {
    match &request.operation {
        Operation::Write { start, data } => {
            let blocks = data.len() as u64 / BLOCK_SIZE;
            Some((LbaRange { start: *start, blocks }, true))
        }
        Operation::WriteZeroes { range, .. } | Operation::Discard { range } => {
            Some((*range, false))
        }
        _ => None,
    }
}

impl Below {
    pub(super) fn of_blocks(blocks: usize, unit_blocks: u64) -> Below {
        Below { durable: vec![0; blocks], unit_blocks, ..Below::default() }
    }

    /// It takes no change any more, until the next crash.
    pub(super) fn break_with(&mut self, error: RequestError) {
        self.broken = Some(error);
    }

    pub(super) fn may_overlap(&mut self) {
        self.may_overlap = true;
    }

    /// The requests under way.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.under_way.iter().map(|it| it.request.id.0)
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    pub(super) fn durable(&self, block: u64) -> Version {
        self.durable[block as usize]
    }

    fn now(&self, block: u64) -> Version {
        self.cache.get(&block).copied().unwrap_or(self.durable[block as usize])
    }

    pub(super) fn start(&mut self, request: Request) -> Result<(), String> {
        let read = match &request.operation {
            Operation::Read { range, .. } => Some(*range),
            _ => None,
        };
        if let Some(range) = changes(&request).map(|(range, _)| range).or(read)
            && ![range.start.0, range.blocks].iter().all(|it| it.is_multiple_of(self.unit_blocks))
        {
            return Err(format!("{range:?} is asked for below: not whole logical blocks"));
        }
        if let Some((range, _)) = changes(&request).filter(|_| !self.may_overlap) {
            let mut others = self.under_way.iter().filter_map(|other| changes(&other.request));
            if let Some((other, _)) = others.find(|(other, _)| other.overlaps(range)) {
                return Err(format!("changes of {range:?} and {other:?} are under way below"));
            }
        }
        let seen = match &request.operation {
            Operation::Read { range, .. } => {
                (range.start.0..range.end()).map(|block| self.now(block)).collect()
            }
            _ => Vec::new(),
        };
        let covers = match request.operation {
            Operation::Flush => self.cache.clone(),
            _ => BTreeMap::new(),
        };
        self.under_way.push(UnderWay { request, seen, covers });
        Ok(())
    }

    fn apply(&mut self, request: &Request, is_durable: bool) -> Result<(), String> {
        let Some((range, has_data)) = changes(request) else { return Ok(()) };
        for (at, block) in (range.start.0..range.end()).enumerate() {
            let version = match &request.operation {
                Operation::Write { data, .. } if has_data => {
                    version_of(block, &data.bytes()[at * BLOCK..(at + 1) * BLOCK])
                        .map_err(|error| format!("written below: {error}"))?
                }
                _ => 0,
            };
            if is_durable {
                self.durable[block as usize] = version;
                self.cache.remove(&block);
            } else {
                self.cache.insert(block, version);
            }
        }
        Ok(())
    }

    /// One of those under way ends. With the operation, if it ends the cache.
    pub(super) fn end_one(
        &mut self,
        random: &mut Random,
        may_fail: bool,
    ) -> Result<(Reply, Option<Operation>), String> {
        let index = random.below(self.under_way.len() as u64) as usize;
        let UnderWay { request, seen, covers } = match self.may_overlap {
            true => self.under_way.remove(self.first_of(index)),
            false => self.under_way.swap_remove(index),
        };
        let id = request.id;
        let is_unlucky = self.broken.is_some() || may_fail && random.one_in(30);
        let fails = is_unlucky && changes(&request).is_some();
        if !fails || random.one_in(2) {
            self.apply(&request, request.fua)?;
        }
        let error = self.broken.unwrap_or(RequestError::Io);
        let result = if fails { Err(error) } else { Ok(()) };
        let mut ended = None;
        let buffer = match request.operation {
            Operation::Read { range, mut buffer } => {
                buffer.set_any(range.bytes() as usize);
                let is_late = random.one_in(2);
                let blocks = (range.start.0..range.end()).zip(seen);
                for ((block, seen), to) in blocks.zip(buffer.bytes_mut().chunks_exact_mut(BLOCK)) {
                    fill(block, if is_late { self.now(block) } else { seen }, to);
                }
                Some(buffer)
            }
            Operation::Write { data, .. } => Some(data),
            Operation::Flush => {
                for (block, version) in covers {
                    if self.cache.get(&block) == Some(&version) {
                        self.cache.remove(&block);
                        self.durable[block as usize] = version;
                    }
                }
                None
            }
            Operation::Drain => {
                self.flush();
                None
            }
            operation @ (Operation::Shutdown
            | Operation::Detach
            | Operation::DetachAccepting { .. }) => {
                self.flush();
                ended = Some(operation);
                None
            }
            _ => None,
        };
        Ok((Reply { id, result, buffer, answer: None }, ended))
    }

    /// The oldest change that one of those under way has to wait for, or itself.
    fn first_of(&self, index: usize) -> usize {
        let Some((range, _)) = changes(&self.under_way[index].request) else { return index };
        let overlaps = |other: &UnderWay| {
            changes(&other.request).is_some_and(|(other, _)| other.overlaps(range))
        };
        match self.under_way[..index].iter().position(overlaps) {
            Some(older) => self.first_of(older),
            None => index,
        }
    }

    fn flush(&mut self) {
        for (block, version) in std::mem::take(&mut self.cache) {
            self.durable[block as usize] = version;
        }
    }

    /// What is under way arrives or does not; with the power goes what is not durable.
    pub(super) fn crash(&mut self, random: &mut Random, is_power_cut: bool) -> Result<(), String> {
        self.broken = None;
        self.may_overlap = false;
        // What is asked for with FUA is whole or not there: in front of a log it is a record.
        for UnderWay { request, .. } in std::mem::take(&mut self.under_way) {
            if random.one_in(2) {
                self.apply(&request, request.fua)?;
            }
        }
        if is_power_cut {
            for (block, version) in std::mem::take(&mut self.cache) {
                if random.one_in(2) {
                    self.durable[block as usize] = version;
                }
            }
        }
        // What a start of a log shows is durable before.
        self.flush();
        Ok(())
    }
}

/// A buffer with this version of a range.
pub(super) fn data_of(range: LbaRange, version: Version) -> Buffer {
    let mut data = Buffer::zeroed(range.bytes() as usize);
    for (block, to) in (range.start.0..).zip(data.bytes_mut().chunks_exact_mut(BLOCK)) {
        fill(block, version, to);
    }
    data
}
