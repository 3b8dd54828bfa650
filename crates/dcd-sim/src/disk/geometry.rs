//! Where a sector is: zones of cylinders, spare sectors, slipped (defective) sectors, and skew.
//!
//! A sector number becomes a cylinder, a head and an angle. The angle of the first sector of each
//! track is turned against that of the track before it (*skew*), so that a transfer that goes on
//! there finds its next sector coming just after the head has been switched or moved. Spares lie
//! where the profile says: at the end of each track, of each group of cylinders, or of the zone,
//! and in cylinders that belong to no zone. Tested by taking sectors there and back.

use super::divisor::Divisor;
use super::profile::{FieldProblem, GeometryProfile, ZoneProfile};

/// Largest number of cylinders: keeps the table of seek times below 8 MB.
pub const CYLINDERS_MAX: u32 = 2_000_000;
/// Longest sector of a track, and the shortest time of one that is of any use, follow from these.
pub const SECTORS_PER_TRACK_MAX: u32 = 100_000;

/// A sector as the mechanism finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Number of the cylinder, the outermost is 0.
    pub cylinder: u32,
    /// Number of the head.
    pub head: u32,
    /// Sector of the track, before skew.
    pub sector: u32,
    /// Index of the zone.
    pub zone: u32,
}

/// What the mechanism has to know of a sector to reach it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Number of the cylinder.
    pub cylinder: u32,
    /// Number of the head.
    pub head: u32,
    /// When in a turn, that begins at 0, the start of the sector comes below the head.
    pub angle_ns: u64,
}

/// Sectors that pass below one head one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Where the first is.
    pub place: Place,
    /// How many.
    pub sectors: u64,
}

/// Where the sectors of a drive are.
#[derive(Clone, Debug)]
pub struct Geometry {
    sector_bytes: u32,
    surfaces: Divisor,
    cylinders: u32,
    rotation_ns: u64,
    sectors: u64,
    zones: Vec<Zone>,
    zone_index: ZoneIndex,
}

/// Where to begin to look for the zone of a sector.
#[derive(Clone, Debug)]
struct ZoneIndex {
    shift: u32,
    /// For each stretch of `1 << shift` sectors the zone of the first.
    zones: Vec<u32>,
}

/// Cylinders with the same number of sectors in each track.
#[derive(Clone, Debug)]
struct Zone {
    first_cylinder: u32,
    sectors_per_track: Divisor,
    /// Without the spares at the end of the track.
    usable_per_track: Divisor,
    group_cylinders: u32,
    /// Without the spares at the end of the group.
    usable_per_group: Divisor,
    track_skew: u32,
    /// Skew from a track to that below the same head in the next cylinder, less than a turn.
    whole_cylinder_skew: u32,
    first_angle: u32,
    reserved: u64,
    /// The n-th entry: so many sectors come before the slipped sector n, not counting slipped ones.
    slips: Vec<u64>,
    /// The same for slipped tracks.
    slipped_tracks: Vec<u64>,
    first_sector: u64,
    sectors: u64,
}

impl Geometry {
    /// The geometry that a profile describes.
    ///
    /// # Errors
    /// When no drive can be like that; the problem names the field.
    pub fn new(profile: &GeometryProfile) -> Result<Geometry, FieldProblem> {
        let problem = |field: &str, message: String| Err(FieldProblem::new(field, message));
        if ![256, 512, 520, 1024, 2048, 4096].contains(&profile.sector_bytes) {
            let found = profile.sector_bytes;
            return problem(
                "geometry.sector_bytes",
                format!("a sector has 256, 512, 1024, 2048 or 4096 bytes, not {found}"),
            );
        }
        if !(1..=256).contains(&profile.surfaces) {
            let found = profile.surfaces;
            return problem("geometry.surfaces", format!("{found} is not 1 to 256"));
        }
        if !(60.0..=100_000.0).contains(&profile.rpm) {
            let found = profile.rpm;
            return problem("geometry.rpm", format!("{found} is not 60 to 100000"));
        }
        if profile.zone.is_empty() {
            return problem("geometry", "there is no zone".into());
        }
        let mut zones = Vec::with_capacity(profile.zone.len());
        let (mut sectors, mut next_cylinder) = (0, 0);
        for (index, zone) in profile.zone.iter().enumerate() {
            let zone = Zone::new(zone, profile, next_cylinder, sectors)
                .map_err(|problem| problem.inside(&format!("geometry.zone[{index}]")))?;
            next_cylinder = profile.zone[index].last_cylinder + 1;
            sectors += zone.sectors;
            zones.push(zone);
        }
        let cylinders = profile.cylinders.unwrap_or(next_cylinder);
        if cylinders < next_cylinder || cylinders > CYLINDERS_MAX {
            return problem(
                "geometry.cylinders",
                format!("{cylinders} is not {next_cylinder} (the last zone) to {CYLINDERS_MAX}"),
            );
        }
        if let Some(wanted) = profile.sectors {
            if wanted == 0 || wanted > sectors {
                return problem(
                    "geometry.sectors",
                    format!("{wanted} is not 1 to {sectors}, which is what the zones hold"),
                );
            }
            sectors = wanted;
        }
        Ok(Geometry {
            sector_bytes: profile.sector_bytes,
            surfaces: Divisor::new(u64::from(profile.surfaces)),
            cylinders,
            rotation_ns: (60e9 / profile.rpm).round() as u64,
            sectors,
            zone_index: ZoneIndex::new(&zones, sectors),
            zones,
        })
    }

    /// Size of a sector in bytes.
    pub fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    /// How many sectors the drive shows.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// How many cylinders the arm can reach.
    pub fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// How many surfaces hold data.
    pub fn surfaces(&self) -> u32 {
        self.surfaces.get() as u32
    }

    /// Time of a turn.
    pub fn rotation_ns(&self) -> u64 {
        self.rotation_ns
    }

    /// Sectors in a track of the outermost and of the innermost zone.
    pub fn sectors_per_track(&self) -> (u32, u32) {
        let (first, last) = (&self.zones[0], &self.zones[self.zones.len() - 1]);
        (first.sectors_per_track.get() as u32, last.sectors_per_track.get() as u32)
    }

    /// How many zones there are.
    pub fn zones(&self) -> usize {
        self.zones.len()
    }

    /// Where a sector is.
    ///
    /// # Panics
    /// If the drive has no such sector.
    pub fn place(&self, sector: u64) -> Place {
        self.run(sector, 1).place
    }

    /// The sectors from `sector` on, at most `count`, that the head reads without a gap.
    ///
    /// # Panics
    /// If the drive has no such sector.
    pub fn run(&self, sector: u64, count: u64) -> Run {
        assert!(sector < self.sectors, "sector {sector} of {}", self.sectors);
        let index = self.zone_index.zone_of(sector, &self.zones);
        let zone = &self.zones[index];
        let logical = sector - zone.first_sector + zone.reserved;
        let slipped = zone.slips.partition_point(|before| *before <= logical);
        let physical = logical + slipped as u64;
        let (group, in_group) = zone.usable_per_group.divide(physical);
        let group_tracks = u64::from(zone.group_cylinders) * self.surfaces.get();
        let (group_track, in_track) = zone.usable_per_track.divide(in_group);
        let track = group * group_tracks + group_track;
        let track = track + zone.slipped_tracks.partition_point(|before| *before <= track) as u64;
        let (cylinder, head) = self.surfaces.divide(track);
        let place = Place {
            cylinder: zone.first_cylinder + cylinder as u32,
            head: head as u32,
            sector: in_track as u32,
            zone: index as u32,
        };
        let to_slip = zone.slips.get(slipped).map_or(u64::MAX, |before| before - logical);
        let sectors = count
            .min(zone.usable_per_track.get() - in_track)
            .min(zone.usable_per_group.get() - in_group)
            .min(zone.first_sector + zone.sectors - sector)
            .min(to_slip);
        Run { place, sectors }
    }

    /// First sector of the track of `sector`, and the first behind it that is not in that track any
    /// more.
    ///
    /// # Panics
    /// If the drive has no such sector.
    pub fn track(&self, sector: u64) -> (u64, u64) {
        let Run { place, sectors } = self.run(sector, u64::MAX);
        let zone = &self.zones[place.zone as usize];
        let first = sector.saturating_sub(u64::from(place.sector));
        if zone.slips.is_empty() {
            // The first of a zone may be in the middle of a track.
            return (first.max(zone.first_sector), sector + sectors);
        }
        // Slipped sectors make tracks shorter than the number of a sector in it tells.
        let is_same = |other: u64| {
            let other = self.place(other);
            (other.cylinder, other.head) == (place.cylinder, place.head)
        };
        let first = (first..).find(|first| is_same(*first)).unwrap_or(sector);
        let mut end = sector + sectors;
        while end < self.sectors && is_same(end) {
            end += self.run(end, u64::MAX).sectors;
        }
        (first, end)
    }

    /// The sector at a place; none if that is spare, slipped, reserved or not there.
    pub fn sector_at(&self, place: Place) -> Option<u64> {
        let zone = self.zones.get(place.zone as usize)?;
        let cylinder = place.cylinder.checked_sub(zone.first_cylinder)?;
        if u64::from(place.head) >= self.surfaces.get()
            || u64::from(place.sector) >= zone.usable_per_track.get()
        {
            return None;
        }
        let track = u64::from(cylinder) * self.surfaces.get() + u64::from(place.head);
        let track = track - slipped_before(&zone.slipped_tracks, track)?;
        let group_tracks = u64::from(zone.group_cylinders) * self.surfaces.get();
        let (group, in_group) = (track / group_tracks, track % group_tracks);
        let in_group = in_group * zone.usable_per_track.get() + u64::from(place.sector);
        if in_group >= zone.usable_per_group.get() {
            return None;
        }
        let physical = group * zone.usable_per_group.get() + in_group;
        let slipped = slipped_before(&zone.slips, physical)?;
        let logical = (physical - slipped).checked_sub(zone.reserved)?;
        let sector = zone.first_sector + logical;
        (logical < zone.sectors && sector < self.sectors).then_some(sector)
    }

    /// The first sector in that cylinder or, where nothing is shown there, about there.
    pub fn first_sector_from(&self, cylinder: u32) -> u64 {
        let index = self.zones.partition_point(|zone| zone.first_cylinder <= cylinder);
        let index = index.saturating_sub(1);
        let zone = &self.zones[index];
        let in_zone = u64::from(cylinder.saturating_sub(zone.first_cylinder));
        let group = in_zone / u64::from(zone.group_cylinders);
        let tracks = in_zone % u64::from(zone.group_cylinders) * self.surfaces.get();
        let logical = group * zone.usable_per_group.get() + tracks * zone.usable_per_track.get();
        (zone.first_sector + logical.min(zone.sectors - 1)).min(self.sectors - 1)
    }

    /// When in a turn, that begins at 0, the start of the sector comes below the head.
    pub fn angle_ns(&self, place: Place) -> u64 {
        let zone = &self.zones[place.zone as usize];
        let turned = u64::from(zone.first_angle)
            + u64::from(place.cylinder - zone.first_cylinder) * u64::from(zone.whole_cylinder_skew)
            + u64::from(place.head) * u64::from(zone.track_skew)
            + u64::from(place.sector);
        let turn = zone.sectors_per_track;
        turn.divide(turn.remainder(turned) * self.rotation_ns).0
    }

    /// What the mechanism has to know of a place to reach it.
    pub fn destination(&self, place: Place) -> Destination {
        let Place { cylinder, head, .. } = place;
        Destination { cylinder, head, angle_ns: self.angle_ns(place) }
    }

    /// How long `count` sectors of that track take to pass.
    pub fn transfer_ns(&self, place: Place, count: u64) -> u64 {
        self.zones[place.zone as usize].sectors_per_track.divide(count * self.rotation_ns).0
    }
}

impl ZoneIndex {
    fn new(zones: &[Zone], sectors: u64) -> ZoneIndex {
        // So many stretches that few hold more than one border.
        let stretches = (zones.len() as u64 * 16).next_power_of_two();
        let shift = (sectors / stretches).checked_ilog2().map_or(0, |log| log + 1);
        let zone_of = |stretch: u64| {
            let sector = stretch << shift;
            zones.partition_point(|zone| zone.first_sector <= sector) as u32 - 1
        };
        ZoneIndex { shift, zones: (0..=(sectors - 1) >> shift).map(zone_of).collect() }
    }

    fn zone_of(&self, sector: u64, zones: &[Zone]) -> usize {
        let mut index = self.zones[(sector >> self.shift) as usize] as usize;
        while zones.get(index + 1).is_some_and(|next| next.first_sector <= sector) {
            index += 1;
        }
        index
    }
}

impl Zone {
    /// Each field alone.
    fn check(profile: &ZoneProfile, cylinder_min: u32) -> Result<(), FieldProblem> {
        let problem = |field: &str, message: String| Err(FieldProblem::new(field, message));
        let (first, last) = (profile.first_cylinder, profile.last_cylinder);
        if first < cylinder_min {
            return problem(
                "first_cylinder",
                format!("{first} is in the zone before, which ends at {}", cylinder_min - 1),
            );
        }
        if last < first || last >= CYLINDERS_MAX {
            return problem(
                "last_cylinder",
                format!("{last} is not {first} (the first) to {}", CYLINDERS_MAX - 1),
            );
        }
        let sectors_per_track = profile.sectors_per_track;
        if !(1..=SECTORS_PER_TRACK_MAX).contains(&sectors_per_track) {
            return problem(
                "sectors_per_track",
                format!("{sectors_per_track} is not 1 to {SECTORS_PER_TRACK_MAX}"),
            );
        }
        for (field, value) in [
            ("track_skew", profile.track_skew),
            ("cylinder_skew", profile.cylinder_skew),
            ("first_angle", profile.first_angle),
        ] {
            if value >= sectors_per_track {
                return problem(
                    field,
                    format!("{value} is a whole turn or more: a track has {sectors_per_track}"),
                );
            }
        }
        if profile.spares_per_track >= sectors_per_track {
            let spares = profile.spares_per_track;
            return problem(
                "spares_per_track",
                format!("{spares} of {sectors_per_track} leave nothing"),
            );
        }
        let group_cylinders = profile.group_cylinders.unwrap_or(1);
        if !(1..=CYLINDERS_MAX).contains(&group_cylinders) {
            return problem("group_cylinders", format!("{group_cylinders} is no size of a group"));
        }
        Ok(())
    }

    fn new(
        profile: &ZoneProfile,
        drive: &GeometryProfile,
        cylinder_min: u32,
        first_sector: u64,
    ) -> Result<Zone, FieldProblem> {
        Zone::check(profile, cylinder_min)?;
        let (first, last) = (profile.first_cylinder, profile.last_cylinder);
        let sectors_per_track = profile.sectors_per_track;
        let usable_per_track = sectors_per_track - profile.spares_per_track;
        let cylinders = last - first + 1;
        let group_cylinders = profile.group_cylinders.unwrap_or(1);
        let cylinder_sectors = u64::from(drive.surfaces) * u64::from(usable_per_track);
        let spares_per_group = u64::from(profile.spares_per_group);
        let usable_per_group = (u64::from(group_cylinders) * cylinder_sectors)
            .checked_sub(spares_per_group)
            .filter(|usable| *usable > 0)
            .ok_or_else(|| {
                FieldProblem::new("spares_per_group", format!("{spares_per_group} leave nothing"))
            })?;
        // A last group that is cut off has its spares too.
        let rest = u64::from(cylinders % group_cylinders) * cylinder_sectors;
        let physical = u64::from(cylinders / group_cylinders) * usable_per_group
            + rest.saturating_sub(spares_per_group);
        let spare_tracks = u64::from(profile.spare_tracks) * u64::from(usable_per_track);
        let reserved = u64::from(profile.reserved_sectors);
        let slipped_tracks = profile.slipped_tracks.len() as u64;
        let unusable = spare_tracks.max(slipped_tracks * u64::from(usable_per_track))
            + reserved
            + profile.slips.len() as u64;
        let sectors = physical.checked_sub(unusable).filter(|left| *left > 0).ok_or_else(|| {
            let message = format!("{unusable} of {physical} sectors are spare or reserved");
            FieldProblem::new("spare_tracks", message)
        })?;
        ascending("slips", &profile.slips, physical)?;
        let tracks = u64::from(cylinders) * u64::from(drive.surfaces);
        ascending("slipped_tracks", &profile.slipped_tracks, tracks)?;
        if slipped_tracks > 0 && spares_per_group > 0 {
            let message = "tracks are slipped only where groups have no spares".to_owned();
            return Err(FieldProblem::new("slipped_tracks", message));
        }
        let turn = u64::from(sectors_per_track);
        let whole_cylinder_skew = (u64::from(drive.surfaces - 1) * u64::from(profile.track_skew)
            + u64::from(profile.cylinder_skew))
            % turn;
        Ok(Zone {
            first_cylinder: first,
            sectors_per_track: Divisor::new(turn),
            usable_per_track: Divisor::new(u64::from(usable_per_track)),
            group_cylinders,
            usable_per_group: Divisor::new(usable_per_group),
            track_skew: profile.track_skew,
            whole_cylinder_skew: whole_cylinder_skew as u32,
            first_angle: profile.first_angle,
            reserved,
            slips: good_before(&profile.slips),
            slipped_tracks: good_before(&profile.slipped_tracks),
            first_sector,
            sectors,
        })
    }
}

/// For slipped sectors or tracks in ascending order: how many good ones come before each.
fn good_before(slips: &[u64]) -> Vec<u64> {
    (0..).zip(slips).map(|(index, slip)| slip - index).collect()
}

/// How many are slipped before the one at `physical`; none if that is slipped itself.
fn slipped_before(good_before: &[u64], physical: u64) -> Option<u64> {
    let mut slipped = 0;
    for (index, good) in (0..).zip(good_before) {
        // The n-th slipped one lies at `good_before[n] + n`.
        match (good + index).cmp(&physical) {
            std::cmp::Ordering::Less => slipped += 1,
            std::cmp::Ordering::Equal => return None,
            std::cmp::Ordering::Greater => break,
        }
    }
    Some(slipped)
}

fn ascending(field: &str, slips: &[u64], end: u64) -> Result<(), FieldProblem> {
    for (index, slip) in slips.iter().enumerate() {
        if *slip >= end || (index > 0 && *slip <= slips[index - 1]) {
            let message = format!("{slip} is not in ascending order below {end}");
            return Err(FieldProblem::new(&format!("{field}[{index}]"), message));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "geometry_tests.rs"]
mod tests;
