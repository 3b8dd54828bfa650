//! What follows from a profile, for lists.

use super::drive::Drive;
use super::model::DiskModel;
use super::profile::Profile;

/// Facts about a disk.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Size.
    pub capacity_bytes: u64,
    /// Of a drive with an arm.
    pub mechanical: Option<MechanicalSummary>,
}

/// Facts about a drive with an arm.
#[derive(Clone, Debug)]
pub struct MechanicalSummary {
    /// Turns in a minute.
    pub rpm: f64,
    /// How many the arm reaches.
    pub cylinders: u32,
    /// How many hold data.
    pub surfaces: u32,
    /// How many zones.
    pub zones: usize,
    /// Size of a sector.
    pub sector_bytes: u32,
    /// Of the outermost and the innermost zone.
    pub sectors_per_track: (u32, u32),
    /// Over pairs of cylinders, settling included.
    pub mean_seek_ms: f64,
    /// From the outermost to the innermost cylinder.
    pub full_seek_ms: f64,
    /// Of the outermost zone, without switching heads.
    pub media_bytes_per_second: f64,
}

impl Summary {
    /// Facts about the disk of that profile.
    ///
    /// # Panics
    /// If the profile has not been checked (by [`Profile::parse`] or [`Profile::load`]).
    pub fn of(profile: &Profile) -> Summary {
        let model = DiskModel::new(profile, 0).expect("the profile was checked");
        let mechanical = profile.mechanical.as_ref().map(|mechanical| {
            let drive = Drive::new(mechanical, 0).expect("the profile was checked");
            let (mechanism, settle_ms) = (drive.mechanism(), mechanical.seek.settle_ms);
            let geometry = &mechanism.geometry;
            let sectors_per_track = geometry.sectors_per_track();
            let track_bytes = f64::from(sectors_per_track.0) * f64::from(geometry.sector_bytes());
            MechanicalSummary {
                rpm: mechanical.geometry.rpm,
                cylinders: geometry.cylinders(),
                surfaces: geometry.surfaces(),
                zones: geometry.zones(),
                sector_bytes: geometry.sector_bytes(),
                sectors_per_track,
                mean_seek_ms: mechanism.seek().mean_ns() / 1e6 + settle_ms,
                full_seek_ms: mechanism.seek().full_ns() as f64 / 1e6 + settle_ms,
                media_bytes_per_second: track_bytes * 1e9 / geometry.rotation_ns() as f64,
            }
        });
        Summary { capacity_bytes: model.capacity_bytes(), mechanical }
    }
}
