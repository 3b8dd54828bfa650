//! The content of a simulated cache-disk: 4 KiB pages, of which those that are zero are not kept.
//! Simulated data is zero, so what is kept is headers, checkpoints and superblocks.

use std::collections::HashMap;

use dcd_testkit::Bytes;

const PAGE_BYTES: u64 = 4096;
/// Compared as a whole, which is far faster than byte by byte.
const ZEROES: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// Sparse bytes.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    pages: HashMap<u64, Box<[u8]>>,
}

impl Pages {
    /// Overwrites bytes from `offset` on. Both are multiples of 4 KiB, as everything the engine
    /// writes there.
    ///
    /// # Panics
    /// If they are not.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(
            offset.is_multiple_of(PAGE_BYTES) && (bytes.len() as u64).is_multiple_of(PAGE_BYTES)
        );
        for (page, bytes) in (offset / PAGE_BYTES..).zip(bytes.chunks(PAGE_BYTES as usize)) {
            if bytes == ZEROES {
                self.pages.remove(&page);
            } else {
                self.pages.insert(page, bytes.into());
            }
        }
    }

    /// Memory of what is kept, about.
    pub fn memory_bytes(&self) -> u64 {
        let place = size_of::<(u64, Box<[u8]>)>() + 1;
        self.pages.len() as u64 * PAGE_BYTES + (self.pages.capacity() * place) as u64
    }

    /// Fills `bytes` with what is from `offset` on.
    ///
    /// # Panics
    /// If they are not multiples of 4 KiB.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        assert!(
            offset.is_multiple_of(PAGE_BYTES) && (bytes.len() as u64).is_multiple_of(PAGE_BYTES)
        );
        for (page, bytes) in (offset / PAGE_BYTES..).zip(bytes.chunks_mut(PAGE_BYTES as usize)) {
            match self.pages.get(&page) {
                Some(kept) => bytes.copy_from_slice(kept),
                None => bytes.fill(0),
            }
        }
    }
}

impl Bytes for Pages {
    fn read(&mut self, offset: u64, to: &mut [u8]) {
        Pages::read(self, offset, to);
    }

    fn write(&mut self, offset: u64, from: &[u8], _is_durable: bool) {
        Pages::write(self, offset, from);
    }
}

/// A disk that keeps nothing: a simulated data-disk.
pub struct Zeroes;

impl Bytes for Zeroes {
    fn read(&mut self, _offset: u64, to: &mut [u8]) {
        to.fill(0);
    }

    fn write(&mut self, _offset: u64, _from: &[u8], _is_durable: bool) {}

    fn write_zeroes(&mut self, _offset: u64, _length: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_zeroes_cost_nothing() {
        let mut pages = Pages::default();
        let mut bytes = vec![7; 8192];
        bytes[4096..].fill(0);
        pages.write(4096, &bytes);
        assert_eq!(pages.pages.len(), 1);
        let mut read = vec![1; 12_288];
        pages.read(0, &mut read);
        assert!(read[..4096].iter().chain(&read[8192..]).all(|byte| *byte == 0));
        assert!(read[4096..8192].iter().all(|byte| *byte == 7));
        pages.write(4096, &[0; 4096]);
        assert!(pages.pages.is_empty());
    }
}
