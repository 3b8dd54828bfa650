//! The tracks of a drive as groups of blocks.

use dcd_engine::nvram::GroupMap;
use dcd_engine::nvram::groups::GROUP_BLOCKS_MAX;
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{Lba, LbaRange};

use crate::disk::geometry::Geometry;

/// Each track is a group; long ones are several.
#[derive(Debug)]
pub struct Tracks {
    geometry: Geometry,
}

impl Tracks {
    /// Of a drive.
    pub fn new(geometry: Geometry) -> Tracks {
        Tracks { geometry }
    }

    fn sector(&self, block: u64) -> u64 {
        let sector = block * BLOCK_SIZE / u64::from(self.geometry.sector_bytes());
        sector.min(self.geometry.sectors() - 1)
    }

    /// The first block that begins in a sector or behind it.
    fn first_block(&self, sector: u64) -> u64 {
        (sector * u64::from(self.geometry.sector_bytes())).div_ceil(BLOCK_SIZE)
    }
}

impl GroupMap for Tracks {
    fn group_of(&self, block: Lba) -> LbaRange {
        let (first, end) = self.geometry.track(self.sector(block.0));
        // Sectors may be smaller than blocks: one that begins in this track belongs to it. With
        // larger ones, the blocks of a sector are together.
        let (start, end) = (self.first_block(first), self.first_block(end));
        let part = (block.0 - start) / GROUP_BLOCKS_MAX;
        let start = start + part * GROUP_BLOCKS_MAX;
        LbaRange::new(start, (end - start).min(GROUP_BLOCKS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::profile::Profile;

    /// On each drive: groups cover the disk without a gap, and each block's group is the same.
    #[test]
    fn tracks_cover_the_disk() {
        for name in ["hp-2200a", "hp-97560", "barracuda-4lp-4gb", "hp-c3323a", "wd-4tb"] {
            let profile = Profile::load(name).unwrap();
            let geometry = Geometry::new(&profile.mechanical.unwrap().geometry).unwrap();
            let blocks = geometry.sectors() * u64::from(geometry.sector_bytes()) / BLOCK_SIZE;
            let (shortest, _) = geometry.sectors_per_track();
            let tracks = Tracks::new(geometry);
            for start in [0, blocks / 3, blocks * 9 / 10] {
                let mut at = tracks.group_of(Lba(start)).start.0;
                for _ in 0..500 {
                    let group = tracks.group_of(Lba(at));
                    assert_eq!(group.start.0, at, "{name}");
                    assert!(group.blocks > 0 && group.blocks <= u64::from(shortest) * 8, "{name}");
                    for block in [at, at + group.blocks / 2, group.end() - 1] {
                        assert_eq!(tracks.group_of(Lba(block)), group, "{name}");
                    }
                    at = group.end();
                }
            }
            let last = tracks.group_of(Lba(blocks - 1));
            assert!(last.end() >= blocks, "{name}");
        }
    }
}
