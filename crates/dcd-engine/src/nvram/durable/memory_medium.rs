//! A medium of plain bytes: a copy that is only looked at, and what tests run on.

use super::{MediumPersist, NvramMedium};

/// See the module.
pub struct MemoryMedium {
    bytes: Vec<u8>,
    persist: MediumPersist,
}

impl MemoryMedium {
    /// Of these bytes. What is stored is there at once, and said to be durable as `persist` says.
    pub fn new(bytes: Vec<u8>, persist: MediumPersist) -> MemoryMedium {
        MemoryMedium { bytes, persist }
    }
}

impl NvramMedium for MemoryMedium {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn store(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn store_word(&mut self, at: usize, word: u64) {
        self.store(at, &word.to_le_bytes());
    }

    fn persist(&self) -> MediumPersist {
        self.persist
    }

    fn fence(&mut self) {}
}
