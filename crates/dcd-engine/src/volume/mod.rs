//! The data-disks as one address space: extents on RAID 0, 1 and 5 sets, placed by what they are (DHIS).

pub mod attributes;
pub mod config;
pub mod extents;
pub mod format;
mod free_map;
pub mod placement;
pub mod pointers;
pub mod raid;
