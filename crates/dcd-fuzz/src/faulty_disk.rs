//! A disk in memory with a volatile cache, as real ones have: until a flush, any part of what was
//! written may be lost in a power cut, in units of a sector, in any combination.

use dcd_engine::{Buffer, IoError};

use crate::random::Random;

/// Bytes that reach the medium as one.
const SECTOR: usize = 512;

/// The disk.
pub struct FaultyDisk {
    /// What a read returns.
    current: Vec<u8>,
    /// What is on the medium for certain.
    durable: Vec<u8>,
    /// Writes since the last flush, in order of completion: where, and how long.
    volatile: Vec<(usize, usize)>,
    /// Error of every I/O to come.
    pub failing: Option<IoError>,
    /// Writes and flushes that have ended well.
    pub writes: u64,
    /// See `writes`.
    pub flushes: u64,
}

impl FaultyDisk {
    /// A disk of zeroes.
    pub fn new(size: usize) -> FaultyDisk {
        FaultyDisk {
            current: vec![0; size],
            durable: vec![0; size],
            volatile: Vec::new(),
            failing: None,
            writes: 0,
            flushes: 0,
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

    /// What a read of it all would return.
    pub fn bytes(&self) -> &[u8] {
        &self.current
    }

    /// Changes bytes behind everyone's back: rot.
    pub fn bytes_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        (&mut self.current, &mut self.durable)
    }

    /// Reads into `buffer`.
    pub fn read(&self, offset: u64, buffer: &mut Buffer) -> Result<(), IoError> {
        self.check(offset, buffer.len())?;
        let at = offset as usize;
        let length = buffer.len();
        buffer.bytes_mut().copy_from_slice(&self.current[at..at + length]);
        Ok(())
    }

    /// Writes; with `fua` the bytes are on the medium afterwards.
    pub fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), IoError> {
        self.check(offset, bytes.len())?;
        self.writes += 1;
        let at = offset as usize;
        self.current[at..at + bytes.len()].copy_from_slice(bytes);
        if fua {
            self.durable[at..at + bytes.len()].copy_from_slice(bytes);
        } else {
            self.volatile.push((at, bytes.len()));
        }
        Ok(())
    }

    /// Everything written so far reaches the medium.
    pub fn flush(&mut self) -> Result<(), IoError> {
        self.check(0, 0)?;
        self.flushes += 1;
        for (at, length) in self.volatile.drain(..) {
            self.durable[at..at + length].copy_from_slice(&self.current[at..at + length]);
        }
        Ok(())
    }

    /// A flush fails. What was to be flushed may never reach the medium, although the system counts
    /// it as written: a later flush that succeeds does not bring it.
    pub fn fail_flush(&mut self, random: &mut Random) -> IoError {
        self.volatile.retain(|_| random.one_in(2));
        IoError::Failed
    }

    /// Part of a write that had not ended reaches the disk.
    pub fn tear_in(&mut self, offset: u64, bytes: &[u8], random: &mut Random) {
        for (i, sector) in bytes.chunks(SECTOR).enumerate() {
            if random.one_in(2) {
                let at = offset as usize + i * SECTOR;
                self.current[at..at + sector.len()].copy_from_slice(sector);
                self.volatile.push((at, sector.len()));
            }
        }
    }

    /// The power fails: of each write since the last flush, all, nothing or some sectors survive.
    pub fn power_cut(&mut self, random: &mut Random) {
        for (at, length) in std::mem::take(&mut self.volatile) {
            let fate = random.below(3);
            for start in (at..at + length).step_by(SECTOR) {
                let end = (start + SECTOR).min(at + length);
                let survives = match fate {
                    0 => false,
                    1 => true,
                    _ => random.one_in(2),
                };
                if survives {
                    self.durable[start..end].copy_from_slice(&self.current[start..end]);
                }
            }
        }
        self.current.copy_from_slice(&self.durable);
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), IoError> {
        if let Some(error) = self.failing {
            return Err(error);
        }
        let end = offset.checked_add(length as u64).ok_or(IoError::Gone)?;
        if end > self.current.len() as u64 { Err(IoError::Gone) } else { Ok(()) }
    }
}
