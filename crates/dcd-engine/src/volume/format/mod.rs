//! What a volume writes: its header, roots, pages and journal on the cache-disk, a label on each
//! member.
//!
//! ```text
//! cache-disk:  superblocks | checkpoints | segments | read area | volume area
//! volume area: header, header | root, root | page 0, page 0 | page 1, page 1 | ... | journal (a
//! ring)
//! member:      label | slices of the sets
//! ```

pub mod area;
pub mod header;
pub mod journal;
pub mod label;
pub mod page;
pub mod page_map;
pub mod root;
