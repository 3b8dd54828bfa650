//! Which caches are simulated: devices, sizes, orders of destaging, acknowledgements. Everything
//! else is as `dcd create` and `dcd serve` choose it.

use dcd_engine::{AckMode, DestagePolicyKind, EngineConfig, Geometry};

use super::PaceFacts;
use super::words::size;
use crate::disk::model::DiskModel;
use crate::disk::profile::Profile;
use crate::sweep::Point;
use crate::target::setup::{LogSetup, Setup};

/// Sizes that are tried if none are named.
const SIZES: u32 = 7;
/// The smallest of them.
const SIZE_BYTES_MIN: u64 = 4 << 20;
/// The largest: its index takes 61 MiB of memory while it is simulated.
const SIZE_BYTES_MAX: u64 = 16 << 30;

/// Where a log could be.
#[derive(Clone, Debug)]
pub struct CacheDevice {
    /// Name of the profile.
    pub name: String,
    /// Its model.
    pub profile: Profile,
    /// Its size.
    pub capacity_bytes: u64,
    /// What may be written in its life, in 10^12 bytes.
    pub endurance_tbw: Option<f64>,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Name of the disk's profile.
    pub disk_name: String,
    /// The disk.
    pub disk: Profile,
    /// Where the log could be.
    pub devices: Vec<CacheDevice>,
    /// Sizes of the log.
    pub sizes: Vec<u64>,
    /// Orders of destaging.
    pub destage: Vec<DestagePolicyKind>,
    /// When writes are acknowledged.
    pub ack: Vec<AckMode>,
    /// As for `dcd simulate`.
    pub seed: u64,
}

/// A point of the grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// Which device of the grid.
    pub device: usize,
    /// Size of the log.
    pub cache_bytes: u64,
    /// Order of destaging.
    pub destage: DestagePolicyKind,
    /// When a write is acknowledged.
    pub ack: AckMode,
}

/// Sizes for a load that writes so many bytes of different lines: powers of two, up to at least
/// twice that, from 1/64 of the largest on.
pub fn cache_sizes(written_bytes: u64) -> Vec<u64> {
    // Headers and what waits to be reused take room too, so twice is what holds everything.
    let all = written_bytes.min(SIZE_BYTES_MAX) * 2;
    let largest = all.next_power_of_two().clamp(SIZE_BYTES_MIN << 2, SIZE_BYTES_MAX);
    let sizes = (0..SIZES).rev().map(|halvings| largest >> halvings);
    sizes.filter(|bytes| *bytes >= SIZE_BYTES_MIN).collect()
}

impl CacheDevice {
    /// Of that profile; the endurance given counts more than the profile's.
    ///
    /// # Panics
    /// If the profile has not been checked.
    pub fn new(name: String, mut profile: Profile, endurance_tbw: Option<f64>) -> CacheDevice {
        // Disks with an arm do not wear by writing.
        if let Some(simple) = &mut profile.simple {
            simple.endurance_tbw = endurance_tbw.or(simple.endurance_tbw);
        }
        let model = DiskModel::new(&profile, 0).expect("the profile was checked");
        CacheDevice {
            name,
            capacity_bytes: model.capacity_bytes(),
            endurance_tbw: model.endurance_tbw(),
            profile,
        }
    }
}

impl Variant {
    /// Size of its segments: that of `dcd create`.
    pub fn segment_bytes(&self) -> u64 {
        Geometry::default_segment_size(self.cache_bytes)
    }
}

impl Grid {
    /// All points: size by size of each device.
    pub fn variants(&self) -> Vec<Variant> {
        let mut variants = Vec::new();
        for device in 0..self.devices.len() {
            for &destage in &self.destage {
                for &ack in &self.ack {
                    let fitting = self.sizes.iter().filter(|bytes| self.fits(device, **bytes));
                    let of = |&cache_bytes| Variant { device, cache_bytes, destage, ack };
                    variants.extend(fitting.map(of));
                }
            }
        }
        variants
    }

    fn fits(&self, device: usize, bytes: u64) -> bool {
        bytes <= self.devices[device].capacity_bytes
    }

    /// What is not simulated, and why.
    pub fn left_out(&self) -> Vec<String> {
        let of = |(index, device): (usize, &CacheDevice)| {
            let too_large = self.sizes.iter().find(|bytes| !self.fits(index, **bytes))?;
            let (too_large, capacity) = (size(*too_large), size(device.capacity_bytes));
            Some(format!("{too_large} and more on {}, which has {capacity}", device.name))
        };
        self.devices.iter().enumerate().filter_map(of).collect()
    }

    /// The bare disk, at that pace.
    pub fn bare(&self, pace: &PaceFacts) -> Point {
        let setup = Setup::of(self.disk.clone(), self.seed);
        Point { labels: Vec::new(), setup, pace: pace.pace(), sequences: None, memory_max: None }
    }

    /// A simulation.
    pub fn point(&self, variant: &Variant, pace: &PaceFacts) -> Point {
        let mut point = self.bare(pace);
        point.setup.log = Some(LogSetup {
            cache_disk: self.devices[variant.device].profile.clone(),
            cache_bytes: variant.cache_bytes,
            read_area_bytes: 0,
            segment_bytes: variant.segment_bytes(),
            config: EngineConfig {
                ack: variant.ack,
                destage_policy: variant.destage,
                keeps_windows: true,
                ..EngineConfig::default()
            },
        });
        point
    }

    /// What tells a variant from those of the same size.
    pub fn name(&self, variant: &Variant) -> String {
        let mut name = self.devices[variant.device].name.clone();
        if self.destage.len() > 1 {
            name += &format!(", {}", destage_name(variant.destage));
        }
        if self.ack.len() > 1 {
            name += &format!(", {}", ack_name(variant.ack));
        }
        name
    }
}

/// As `dcd serve --destage-policy` takes it.
pub fn destage_name(destage: DestagePolicyKind) -> &'static str {
    match destage {
        DestagePolicyKind::FirstWriteFirst => "first-write-first",
        DestagePolicyKind::LastWriteFirst => "last-write-first",
        DestagePolicyKind::LeastValidFirst => "least-valid-first",
        DestagePolicyKind::Ordered => "ordered",
    }
}

/// As `dcd serve --ack` takes it.
pub fn ack_name(ack: AckMode) -> &'static str {
    match ack {
        AckMode::Memory => "memory",
        AckMode::Log => "log",
        AckMode::Durable => "durable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_from_a_small_part_to_beyond_all() {
        assert_eq!(cache_sizes(0), [4 << 20, 8 << 20, 16 << 20]);
        assert_eq!(cache_sizes(5 << 20), [4 << 20, 8 << 20, 16 << 20]);
        let sizes = cache_sizes(300 << 20);
        assert_eq!((sizes.len(), sizes[0], sizes[6]), (7, 16 << 20, 1 << 30));
        let sizes = cache_sizes(u64::MAX);
        assert_eq!((sizes.len(), sizes[6]), (7, SIZE_BYTES_MAX));
        for bytes in sizes.into_iter().chain(cache_sizes(0)) {
            assert!(Geometry::fit(bytes, Geometry::default_segment_size(bytes)).is_ok());
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_told() {
        let device =
            |name: &str, tbw| CacheDevice::new(name.into(), Profile::load(name).unwrap(), tbw);
        let grid = Grid {
            disk_name: "wd-4tb".into(),
            disk: Profile::load("wd-4tb").unwrap(),
            devices: vec![device("nvme-ssd", None), device("hp-2200a", Some(5.0))],
            sizes: vec![64 << 20, 512 << 20],
            destage: vec![DestagePolicyKind::FirstWriteFirst],
            ack: vec![AckMode::Memory, AckMode::Durable],
            seed: 0,
        };
        assert_eq!(grid.variants().len(), 2 * 2 + 2);
        let left_out = grid.left_out();
        assert!(left_out.len() == 1 && left_out[0].starts_with("512 MiB and more on hp-2200a"));
        assert_eq!(grid.devices[0].endurance_tbw, Some(1380.0));
        assert_eq!(grid.devices[1].endurance_tbw, None, "an arm does not wear by writing");
        let given = device("nvme-ssd", Some(5.0));
        assert_eq!(given.endurance_tbw, Some(5.0));
        // What is simulated has it too: its price follows from that.
        let model = DiskModel::new(&given.profile, 0).unwrap();
        assert_eq!(model.endurance_tbw(), Some(5.0));
        assert_eq!(grid.name(&grid.variants()[2]), "nvme-ssd, durable");
    }
}
