//! Segment memory that is used again: getting fresh memory from the system costs more than a
//! recovery.

use std::cell::RefCell;

use dcd_engine::{Buffer, SegmentMemory};

/// Most buffers that wait to be used again.
const KEPT_MAX: usize = 8;

thread_local! {
    static POOL: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// Segment memory from the pool, to which it returns.
pub struct PooledMemory(Buffer);

impl PooledMemory {
    /// Zeroes, or what survived.
    pub fn new(size: usize, survived: Option<&[u8]>) -> PooledMemory {
        let pooled = POOL.with_borrow_mut(|pool| {
            let index = pool.iter().position(|buffer| buffer.len() == size)?;
            Some(pool.swap_remove(index))
        });
        let mut buffer = match pooled {
            Some(mut buffer) if survived.is_none() => {
                buffer.bytes_mut().fill(0);
                buffer
            }
            Some(buffer) => buffer,
            None => Buffer::zeroed(size),
        };
        if let Some(bytes) = survived {
            buffer.bytes_mut().copy_from_slice(bytes);
        }
        PooledMemory(buffer)
    }
}

impl SegmentMemory for PooledMemory {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl Drop for PooledMemory {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        POOL.with_borrow_mut(|pool| {
            if pool.len() < KEPT_MAX {
                pool.push(buffer);
            }
        });
    }
}
