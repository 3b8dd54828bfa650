//! Finds out what the disks are that were given as the cache-disk: one, or legs, of which the
//! labels say whom to believe; and blank disks that become legs.

use dcd_engine::format::leg_label::{LEGS_MAX, LegLabel};
use dcd_engine::legs::LegsParts;
use dcd_engine::legs::choose::{LegsError, Role, choose};
use dcd_engine::units::{LegIndex, Uuid};
use dcd_engine::{Device, Superblock};

use crate::disk::Disk;
use crate::pair::legs::{CacheSide, new_leg_uuid, new_tag, read_leg_label, write_leg_label};
use crate::pair::members::content_of;
use crate::pair::{CacheDisks, read_superblock};
use crate::process::random::random_bytes;
use crate::serve::error::ServeError;

/// What a start has found of its cache-disk.
pub(crate) struct FoundCache {
    pub(crate) side: CacheSide,
    pub(crate) superblock: Superblock,
    /// If it is on legs: for the engine.
    pub(crate) parts: Option<Box<LegsParts>>,
    /// The leg whose bytes count.
    pub(crate) primary: usize,
}

impl FoundCache {
    /// The disk whose bytes count.
    pub(crate) fn disk(&self) -> &Disk {
        self.side.iter().nth(self.primary).expect("a disk was given")
    }

    /// As much as all of them have.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.side.iter().map(|disk| disk.file().size_bytes).min().unwrap_or(0)
    }
}

/// Finds out what the disks are; `superblock_of` says what is wrong with one that holds no cache.
pub(crate) fn find_cache(
    mut disks: Vec<Disk>,
    named: &CacheDisks,
    superblock_of: impl Fn(&Disk) -> Result<Superblock, ServeError>,
) -> Result<FoundCache, ServeError> {
    let given = named.disks.len();
    let first = superblock_of(&disks[0])?;
    if !first.has_legs {
        if given > 1 {
            return Err(ServeError::NotLegs { path: disks[0].file().path().to_owned() });
        }
        if named.new_legs.is_empty() {
            if let Some(leg) = named.without.first() {
                return Err(ServeError::Legs {
                    disks: names(&disks),
                    error: LegsError::NoSuchLeg { leg: *leg },
                });
            }
            let side = CacheSide::Disk(Box::new(disks.remove(0)));
            return Ok(FoundCache { side, superblock: first, parts: None, primary: 0 });
        }
    }
    if disks.len() > LEGS_MAX {
        return Err(ServeError::TooManyLegs { most: LEGS_MAX });
    }
    // 1. Who they are. A cache on one disk has no label yet: it is its only leg. A new leg may have
    //    become one at an earlier start.
    let new_uuid = || new_leg_uuid().map_err(ServeError::system("get random numbers"));
    let tag = new_tag().map_err(ServeError::system("get random numbers"))?;
    let (mut legs, mut labels, mut blank) = (Vec::new(), Vec::new(), Vec::new());
    let all = names(&disks);
    let refuse = |error| ServeError::Legs { disks: all.clone(), error };
    for (place, disk) in disks.into_iter().enumerate() {
        let label = read_leg_label(disk.file()).map_err(ServeError::device("cache-disk"))?;
        let label = match label {
            _ if place == 0 && !first.has_legs => {
                LegLabel::of_new(first.uuid, &[new_uuid()?], 0, tag)
            }
            Ok(label) if place < given || label.cache == first.uuid => label,
            Err(error) if place < given => return Err(refuse(LegsError::Label { place, error })),
            _ => {
                blank.push(disk);
                continue;
            }
        };
        labels.push(label);
        legs.push(disk);
    }
    let mut choice = choose(&labels, &named.without).map_err(refuse)?;
    let mut uuids: Vec<Uuid> = labels.iter().map(|label| label.leg).collect();

    // 2. The newest superblock of those in sync.
    let mut superblock: Option<Superblock> = None;
    for (disk, role) in legs.iter().zip(&choice.roles) {
        if *role != Role::InSync {
            continue;
        }
        if let Ok(found) = read_superblock(disk.file())
            && superblock.as_ref().is_none_or(|known| known.generation < found.generation)
        {
            superblock = Some(found);
        }
    }
    let mut superblock = match superblock {
        Some(superblock) => superblock,
        None => superblock_of(&legs[choice.primary])?,
    };
    if superblock.uuid != choice.label.cache {
        let (place, expected, found) = (choice.primary, superblock.uuid, choice.label.cache);
        return Err(refuse(LegsError::OtherCache { place, expected, found }));
    }

    // 3. Disks that become legs: nothing on them is lost without a word.
    for disk in blank {
        let path = disk.file().path().to_owned();
        if let Some(content) = content_of(&disk)? {
            return Err(ServeError::LegInUse { path, content: content.to_string() });
        }
        uuids.push(new_uuid()?);
        choice.roles.push(Role::Stale);
        legs.push(disk);
    }
    let short = legs.iter().find(|disk| disk.file().size_bytes < superblock.end());
    if let Some(disk) = short {
        let (expected, found) = (superblock.end(), disk.file().size_bytes);
        return Err(ServeError::LegShort { path: disk.file().path().to_owned(), expected, found });
    }
    if !superblock.has_legs {
        // The label first. Crash behind it: the superblock does not speak of it.
        write_leg_label(legs[0].file(), &labels[0]).map_err(ServeError::device("cache-disk"))?;
        superblock.has_legs = true;
    }
    for (index, disk) in legs.iter_mut().enumerate() {
        disk.set_device(Device::Leg(LegIndex(index as u8)));
    }
    let primary = choice.primary;
    let seed =
        u64::from_le_bytes(random_bytes().map_err(ServeError::system("get random numbers"))?);
    let parts = Some(Box::new(LegsParts::new(choice, uuids, seed)));
    Ok(FoundCache { side: CacheSide::Legs(legs), superblock, parts, primary })
}

fn names(disks: &[Disk]) -> Vec<String> {
    disks.iter().map(|disk| disk.file().path().display().to_string()).collect()
}
