//! Which space on the data-disk may be freed. A client that discards gives space back; one that
//! writes zeroes and wants to keep the space, keeps it; also when a crash lies between the request
//! and the data-disk.
//!
//! What came last where both were asked for is not looked at: a block for which only one of them
//! was ever asked must be treated so.

/// What was ever asked for each block.
#[derive(Clone, Default)]
pub struct Space {
    kept: Vec<bool>,
    freed: Vec<bool>,
}

impl Space {
    /// A client wants these blocks to be zero.
    pub fn asked(&mut self, start: u64, blocks: u64, may_unmap: bool) {
        let asked = if may_unmap { &mut self.freed } else { &mut self.kept };
        let end = (start + blocks) as usize;
        if asked.len() < end {
            asked.resize(end, false);
        }
        asked[start as usize..end].fill(true);
    }

    /// The data-disk is asked to zero these bytes.
    ///
    /// # Panics
    /// If the wrong thing is asked for some block.
    pub fn check(&self, offset: u64, length: u64, may_unmap: bool) {
        for block in offset / 512..(offset + length) / 512 {
            let was = |asked: &[bool]| asked.get(block as usize).copied().unwrap_or(false);
            assert!(
                !may_unmap || was(&self.freed),
                "block {block} is freed, and nobody asked for that"
            );
            assert!(
                may_unmap || was(&self.kept),
                "block {block} takes space, and was only ever discarded"
            );
        }
    }
}
