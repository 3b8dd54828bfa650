//! A medium of which a crash leaves what it likes of that which is not durable: words of 8 bytes of
//! memory, sectors of a device.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use dcd_engine::nvram::durable::{MediumPersist, NvramMedium};

use crate::random::Random;

/// What survives, and what may.
#[derive(Default)]
pub(super) struct Surviving {
    pub(super) stable: Vec<u8>,
    /// Stores of words since the last fence.
    words: Vec<(usize, u64)>,
    /// Sectors that the device has, and may lose with the power.
    cached: BTreeMap<usize, Vec<u8>>,
    /// Sectors that a flush that failed has dropped: they are read as they were written, and are not
    /// durable before they are written again.
    dropped: BTreeMap<usize, Vec<u8>>,
    /// After so many stores and fences nothing more survives: the crash is then.
    fuse: Option<u64>,
    has_blown: bool,
}

/// Shared by the medium of the tier under way and by who crashes it.
#[derive(Clone, Default)]
pub(super) struct Survivor(Arc<Mutex<Surviving>>);

impl Survivor {
    pub(super) fn of_bytes(bytes: usize) -> Survivor {
        let survivor = Survivor::default();
        survivor.get().stable = vec![0; bytes];
        survivor
    }

    pub(super) fn get(&self) -> MutexGuard<'_, Surviving> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What a start finds.
    pub(super) fn medium(&self, persist: MediumPersist) -> FaultyMedium {
        FaultyMedium { view: self.get().visible(), persist, survivor: self.clone() }
    }
}

impl Surviving {
    pub(super) fn visible(&self) -> Vec<u8> {
        let mut bytes = self.stable.clone();
        for (at, sector) in self.dropped.iter().chain(&self.cached) {
            bytes[*at..*at + sector.len()].copy_from_slice(sector);
        }
        bytes
    }

    pub(super) fn set_fuse(&mut self, fuse: Option<u64>) {
        (self.fuse, self.has_blown) = (fuse, false);
    }

    pub(super) fn has_blown(&self) -> bool {
        self.has_blown
    }

    fn burn(&mut self) -> bool {
        match &mut self.fuse {
            Some(0) => self.has_blown = true,
            Some(left) => *left -= 1,
            None => {}
        }
        !self.has_blown
    }

    pub(super) fn write_sector(&mut self, at: usize, bytes: &[u8]) {
        self.dropped.remove(&at);
        self.cached.insert(at, bytes.to_vec());
    }

    pub(super) fn flush(&mut self) {
        for (at, sector) in std::mem::take(&mut self.cached) {
            self.stable[at..at + sector.len()].copy_from_slice(&sector);
        }
    }

    /// The flush fails: of what was to be durable some is forgotten.
    pub(super) fn flush_fails(&mut self, random: &mut Random) {
        for (at, sector) in std::mem::take(&mut self.cached) {
            match random.one_in(2) {
                true => self.dropped.insert(at, sector),
                false => self.cached.insert(at, sector),
            };
        }
    }

    /// The power goes: of what is not durable, any part stays.
    pub(super) fn cut(&mut self, random: &mut Random) {
        let how = random.below(8);
        let stays = |random: &mut Random| match how {
            0 => true,
            1 => false,
            _ => random.one_in(2),
        };
        let mut values: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (at, word) in std::mem::take(&mut self.words) {
            values.entry(at).or_default().push(word);
        }
        for (at, words) in values {
            if stays(random) {
                let word = if how == 0 { words[words.len() - 1] } else { random.pick(&words) };
                self.stable[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
        self.dropped.clear();
        for (at, sector) in std::mem::take(&mut self.cached) {
            if stays(random) {
                self.stable[at..at + sector.len()].copy_from_slice(&sector);
            }
        }
    }

    /// The process dies: its stores are in the memory, what the device has it keeps.
    pub(super) fn kill(&mut self) {
        for (at, word) in std::mem::take(&mut self.words) {
            self.stable[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
    }

    pub(super) fn rot(&mut self, at: usize, bits: u8) {
        self.stable[at] ^= bits;
    }
}

pub(super) struct FaultyMedium {
    view: Vec<u8>,
    persist: MediumPersist,
    survivor: Survivor,
}

impl NvramMedium for FaultyMedium {
    fn bytes(&self) -> &[u8] {
        &self.view
    }

    fn store(&mut self, at: usize, bytes: &[u8]) {
        self.view[at..at + bytes.len()].copy_from_slice(bytes);
        if self.persist != MediumPersist::Now {
            return;
        }
        let Range { start, end } = at / 8 * 8..(at + bytes.len()).next_multiple_of(8);
        let mut survivor = self.survivor.get();
        for at in (start..end).step_by(8) {
            let word = self.view[at..at + 8].try_into().expect("eight bytes");
            if survivor.burn() {
                survivor.words.push((at, u64::from_le_bytes(word)));
            }
        }
    }

    fn store_word(&mut self, at: usize, word: u64) {
        assert!(at.is_multiple_of(8));
        self.store(at, &word.to_le_bytes());
    }

    fn persist(&self) -> MediumPersist {
        self.persist
    }

    fn fence(&mut self) {
        let mut survivor = self.survivor.get();
        if survivor.burn() {
            survivor.kill();
        }
    }
}
