//! A virtqueue of the split kind: what the guest has made available, what is done, and who wakes
//! whom.
//!
//! ```text
//! table      size descriptors of 16 bytes                                        written by the guest
//! available  flags u16, index u16, heads [u16; size], used event u16             written by the guest
//! used       flags u16, index u16, [head u32, length u32; size], available event u16       written here
//! ```
//!
//! Indices count without end, modulo 2^16. With events, each side says at which index it wants to
//! be woken.

use std::sync::atomic::{Ordering, fence};

use super::chain::{CHAIN_MAX, DESCRIPTOR_BYTES, Descriptor};
use super::memory::{Area, GuestMemory, OutsideMemory};
use super::message::RingAddresses;

const INDEX: usize = 2;
const HEADS: usize = 4;
const FLAG_NO_INTERRUPT: u16 = 1;

/// Why a ring cannot be used, or not any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RingError {
    /// Not a size that rings have.
    #[error("a ring of {size} descriptors (expected a power of two up to {CHAIN_MAX})")]
    Size {
        /// What it should have.
        size: u32,
    },
    /// Not aligned.
    #[error("the {part} of a ring at {address:#x}, which is no multiple of {alignment}")]
    Alignment {
        /// Which part.
        part: &'static str,
        /// Where.
        address: u64,
        /// What it should be a multiple of.
        alignment: u64,
    },
    /// Not in the guest's memory.
    #[error("the {part} of a ring: {source}")]
    Outside {
        /// Which part.
        part: &'static str,
        /// What is missing.
        source: OutsideMemory,
    },
    /// More than can be available.
    #[error("{found} chains are available at a time in a ring of {size}")]
    Available {
        /// How many it seems.
        found: u16,
        /// How many can be.
        size: u16,
    },
    /// A number that no descriptor has.
    #[error("descriptor {head} of {size} is available")]
    Head {
        /// The number.
        head: u16,
        /// How many there are.
        size: u16,
    },
}

/// A ring that requests are taken from.
#[derive(Debug)]
pub struct Ring {
    size: u16,
    table: Area,
    available: Area,
    used: Area,
    /// What is taken next.
    next_available: u16,
    /// What is done next.
    next_used: u16,
    /// Used index of the last time that the guest was or was not woken.
    signalled: u16,
    has_events: bool,
}

impl Ring {
    /// A number of descriptors that a ring can have.
    pub fn check_size(size: u32) -> Result<u16, RingError> {
        let fits =
            u16::try_from(size).ok().filter(|size| *size <= CHAIN_MAX && size.is_power_of_two());
        fits.ok_or(RingError::Size { size })
    }

    /// Whether nothing was ever written to it: neither a descriptor, nor that something is
    /// available.
    pub fn is_blank(&self) -> bool {
        let is_zero = |index: u16| {
            self.table.read::<DESCRIPTOR_BYTES>(usize::from(index) * DESCRIPTOR_BYTES)
                == [0; DESCRIPTOR_BYTES]
        };
        self.available.read::<4>(0) == [0; 4] && (0..self.size).all(is_zero)
    }

    /// A ring in the guest's memory. Goes on behind the last that is done.
    pub fn new(
        memory: &GuestMemory,
        size: u16,
        addresses: &RingAddresses,
        has_events: bool,
    ) -> Result<Ring, RingError> {
        let count = u64::from(size);
        let area = |part, address: u64, len, alignment| {
            if !address.is_multiple_of(alignment) {
                return Err(RingError::Alignment { part, address, alignment });
            }
            memory.at_user(address, len).map_err(|source| RingError::Outside { part, source })
        };
        // The events at the end are there if they are agreed on only.
        let event = if has_events { 2 } else { 0 };
        let table = area("table", addresses.descriptors, 16 * count, 16)?;
        let available = area("available part", addresses.available, 4 + 2 * count + event, 2)?;
        let used = area("used part", addresses.used, 4 + 8 * count + event, 4)?;
        let next_used = used.load(INDEX);
        Ok(Ring {
            size,
            table,
            available,
            used,
            next_available: next_used,
            next_used,
            signalled: next_used,
            has_events,
        })
    }

    /// The same ring at another place of this process: the guest's memory was announced again.
    pub fn moved(
        &self,
        memory: &GuestMemory,
        addresses: &RingAddresses,
    ) -> Result<Ring, RingError> {
        let Ring { next_available, next_used, signalled, .. } = *self;
        let moved = Ring::new(memory, self.size, addresses, self.has_events)?;
        Ok(Ring { next_available, next_used, signalled, ..moved })
    }

    /// How many descriptors there are.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// What will be taken next.
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Says what is to be taken next.
    pub fn go_on_from(&mut self, next_available: u16) {
        self.next_available = next_available;
    }

    /// How many are done, as the guest counts.
    pub fn used_index(&self) -> u16 {
        self.next_used
    }

    /// A copy of a descriptor of the ring's own table.
    pub fn descriptor(&self, index: u16) -> Descriptor {
        Descriptor::parse(&self.table.read(usize::from(index) * DESCRIPTOR_BYTES))
    }

    /// Takes the head of the next chain, if there is one.
    pub fn take(&mut self) -> Result<Option<u16>, RingError> {
        let found = self.available.load(INDEX).wrapping_sub(self.next_available);
        let size = self.size;
        if found > size {
            return Err(RingError::Available { found, size });
        }
        if found == 0 {
            return Ok(None);
        }
        let place = usize::from(self.next_available % size);
        let head = u16::from_le_bytes(self.available.read(HEADS + 2 * place));
        if head >= size {
            return Err(RingError::Head { head, size });
        }
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(head))
    }

    /// Asks to be woken by the next chain. Whether there is one already, which the guest may not
    /// wake for.
    pub fn wait(&mut self) -> bool {
        if self.has_events {
            self.used.store(HEADS + 8 * usize::from(self.size), self.next_available);
            // The guest writes the index, then reads this event; both must not miss the other's.
            fence(Ordering::SeqCst);
        }
        self.available.load(INDEX) != self.next_available
    }

    /// Writes down that a chain is done, which the guest does not see yet.
    pub fn put(&mut self, head: u16, len: u32) {
        let place = HEADS + 8 * usize::from(self.next_used % self.size);
        self.used.write(place, &u32::from(head).to_le_bytes());
        self.used.write(place + 4, &len.to_le_bytes());
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Shows the guest all that is done.
    pub fn publish(&mut self) {
        self.used.store(INDEX, self.next_used);
    }

    /// Whether the guest wants to be woken for what was published since it was asked last.
    pub fn wants_signal(&mut self) -> bool {
        // What is published comes before what the guest wants is read.
        fence(Ordering::SeqCst);
        let (new, old) = (self.next_used, std::mem::replace(&mut self.signalled, self.next_used));
        if new == old {
            return false;
        }
        if !self.has_events {
            return self.available.load(0) & FLAG_NO_INTERRUPT == 0;
        }
        let event = self.available.load(HEADS + 2 * usize::from(self.size));
        // Whether the event lies in what is new: old <= event < new.
        new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
    }
}
