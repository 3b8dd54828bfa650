//! Runs on a volume of several members that fail, vanish, come back old, are replaced, and rot:
//! `dcd fuzz --volume`.
//!
//! ```text
//! run       the load, its answers and the faults             options   the volume and the cache, drawn from the seed
//! requests  about hints and members                          hints     what attributes and pointers must be
//! crash     cut, recover, check; and the end of a run        machine   engine, disks, clock
//! faults    members fail and rot                             placing  whether extents are on the level that is theirs
//! truth     what the members really hold               trouble   older copies of members, a cache-disk that fails
//! lost_cache_disk   it is destroyed, and the volume imported
//! growing   all disks become larger, and the volume with them
//! trips     a member leaves, little is changed, and it comes back
//! script    a run as events that can be left out             minimise  leaves them out
//! ```

pub mod crash;
mod faults;
mod growing;
pub mod hints;
mod lost_cache_disk;
pub mod machine;
pub mod minimise;
pub mod options;
mod placing;
mod requests;
mod rot;
pub mod run;
pub mod script;
mod trips;
mod trouble;
pub mod truth;

use std::str::FromStr;

use dcd_engine::volume::placement::{DeviceClass, RaidLevel, Tier};

/// What kind of volume is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeKind {
    /// One RAID 0 set.
    Raid0,
    /// One RAID 1 set, of two or three copies.
    Raid1,
    /// One RAID 5 set.
    Raid5,
    /// A set of each, and hints.
    Tiered,
    /// RAID 1 and 0 on devices of two classes each, and hints.
    Classes,
    /// RAID 5 on slow devices and RAID 0 on fast ones, with hints that ask for replicas.
    Replicas,
}

impl VolumeKind {
    /// All.
    pub const ALL: [VolumeKind; 6] = [
        VolumeKind::Raid0,
        VolumeKind::Raid1,
        VolumeKind::Raid5,
        VolumeKind::Tiered,
        VolumeKind::Classes,
        VolumeKind::Replicas,
    ];

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            VolumeKind::Raid0 => "raid0",
            VolumeKind::Raid1 => "raid1",
            VolumeKind::Raid5 => "raid5",
            VolumeKind::Tiered => "tiered",
            VolumeKind::Classes => "classes",
            VolumeKind::Replicas => "replicas",
        }
    }

    /// Those of its sets, in order.
    pub fn tiers(self) -> Vec<Tier> {
        use DeviceClass::{Fast, Slow};
        use RaidLevel::{Raid0, Raid1, Raid5};
        let tiers: &[(RaidLevel, DeviceClass)] = match self {
            VolumeKind::Raid0 => &[(Raid0, Slow)],
            VolumeKind::Raid1 => &[(Raid1, Slow)],
            VolumeKind::Raid5 => &[(Raid5, Slow)],
            VolumeKind::Tiered => &[(Raid1, Slow), (Raid5, Slow), (Raid0, Slow)],
            VolumeKind::Classes => &[(Raid1, Fast), (Raid0, Slow), (Raid1, Slow), (Raid0, Fast)],
            VolumeKind::Replicas => &[(Raid5, Slow), (Raid0, Fast)],
        };
        tiers.iter().map(|(level, class)| Tier { level: *level, class: *class }).collect()
    }

    /// Whether what is said of blocks decides where they are.
    pub fn has_tiers(self) -> bool {
        matches!(self, VolumeKind::Tiered | VolumeKind::Classes | VolumeKind::Replicas)
    }
}

impl FromStr for VolumeKind {
    type Err = String;

    fn from_str(text: &str) -> Result<VolumeKind, String> {
        let known = VolumeKind::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| format!("there is no kind of volume `{text}`"))
    }
}
