//! Where bytes from the client are received, many small requests at once.
//!
//! ```text
//! [....already parsed....|start  waiting  end|....space....]
//! ```
//!
//! Bytes move only in [`Staging::space`], which is called when no receive is under way.

/// See the module.
pub(super) struct Staging {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Staging {
    /// Room for `capacity` bytes. Memory that is never written to costs nothing.
    pub(super) fn new(capacity: usize) -> Staging {
        Staging { bytes: vec![0; capacity].into_boxed_slice(), start: 0, end: 0 }
    }

    /// What waits, but with room for `capacity` bytes in all.
    pub(super) fn enlarged(&self, capacity: usize) -> Staging {
        let mut larger = Staging::new(capacity.max(self.waiting().len()));
        larger.end = self.waiting().len();
        larger.bytes[..larger.end].copy_from_slice(self.waiting());
        larger
    }

    /// What was received and not consumed.
    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The same, to be decrypted in place.
    pub(super) fn waiting_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// Room in all.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing more fits behind what was received.
    pub(super) fn is_filled(&self) -> bool {
        self.end == self.bytes.len()
    }

    /// Forgets the first `count` bytes that wait.
    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start);
        self.start += count;
    }

    /// Where to receive; empty only when everything is full of waiting bytes.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.bytes.len() - self.end < self.bytes.len() / 4 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.bytes[self.end..]
    }

    /// `count` bytes were put at the front of the space.
    pub(super) fn received(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.end);
        self.end += count;
    }
}
