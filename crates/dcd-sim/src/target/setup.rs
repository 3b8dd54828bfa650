//! A target from a description of it.

use std::ops::Range;
use std::sync::Arc;

use dcd_engine::format::geometry::GeometryError;
use dcd_engine::nvram::{GroupMap, NvramConfig, Regions};
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::volume::attributes::Attributes;
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::format::header::VolumeHeader;
use dcd_engine::{DestagePolicyKind, EngineConfig, Geometry, LbaRange, RequestError, Time};

use super::Target;
use super::disk::DiskTarget;
use super::log::{LogError, LogTarget};
use super::nvram::NvramTarget;
use super::tracks::Tracks;
use crate::bound::Bound;
use crate::disk::model::DiskModel;
use crate::disk::profile::Profile;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The disk that has the data.
    pub disk: Profile,
    /// Angle of the platters at the beginning, and whatever else is left to chance.
    pub seed: u64,
    /// Non-volatile memory in front of it all.
    pub nvram: Option<NvramSetup>,
    /// A log in front of the disk.
    pub log: Option<LogSetup>,
    /// A volume in place of the disk, behind the log: its tables are on the cache-disk.
    pub volume: Option<VolumeSetup>,
}

impl Setup {
    /// A bare disk.
    pub fn of(disk: Profile, seed: u64) -> Setup {
        Setup { disk, seed, nvram: None, log: None, volume: None }
    }
}

/// A volume of several disks.
#[derive(Clone, Debug)]
pub struct VolumeSetup {
    /// What it is made of, with the name [`NEW_UUID`](crate::new_cache::NEW_UUID).
    pub header: VolumeHeader,
    /// Its members, in order: as many as the header says.
    pub members: Vec<Profile>,
    /// What is known of what will lie where.
    pub hints: Vec<Hint>,
    /// What has been written before the first request, in blocks: to read the rest, or to write it
    /// for the first time, costs less.
    pub written: Vec<LbaRange>,
}

/// What lies somewhere on a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hint {
    /// Where, in bytes of the volume: each extent that this touches.
    pub bytes: Range<u64>,
    /// What it is.
    pub attributes: Attributes,
}

/// Non-volatile memory.
#[derive(Clone, Copy, Debug)]
pub struct NvramSetup {
    /// Its size and how it behaves.
    pub config: NvramConfig,
    /// What is cleaned together.
    pub groups: Groups,
    /// Who says where the head of the disk is.
    pub head: Head,
}

/// Who says where the head of the disk is, to policies that ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Head {
    /// The model of the disk.
    #[default]
    Model,
    /// Nobody: it is taken to be where the last request ended, as in front of a real disk.
    LastAddress,
}

/// What is cleaned together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Groups {
    /// Tracks of the drive; where there are none, or a log lies between, regions of 64 KiB.
    Tracks,
    /// Regions of so many blocks.
    Regions(u64),
}

/// A log.
#[derive(Clone, Debug)]
pub struct LogSetup {
    /// The disk that it is on. With [`EngineConfig::one_disk`] it is on the first part of the disk
    /// that has the data.
    pub cache_disk: Profile,
    /// Room for it there, superblocks and checkpoints included.
    pub cache_bytes: u64,
    /// How much of it is for copies of what is read: sequences and hot blocks.
    pub read_area_bytes: u64,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// How it behaves.
    pub config: EngineConfig,
}

/// A setup that cannot be.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum SetupError {
    /// No log has such a geometry.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// In front of a bucket there is a log that ships in order, and nothing else.
    #[error("{what}, which dcd refuses in front of an object store")]
    ObjectStore {
        /// What there is.
        what: &'static str,
    },
    /// Neither engine nor memory write in order of places.
    #[error(
        "a shingled disk that is managed by the host takes writes at write pointers only: without a translation it is \
         no disk for dcd"
    )]
    HostManaged,
    /// A log needs a disk.
    #[error("a log needs a disk, and its cache-disk is an object store")]
    LogInStore,
    /// A volume has its tables on a cache-disk, which is no member.
    #[error("a volume needs a cache-disk of its own")]
    VolumeAlone,
    /// The cache-disk has no room for the tables of the volume.
    #[error("the tables of the volume need {needed_bytes} bytes of a cache-disk of {cache_bytes}")]
    VolumeTables {
        /// What they need.
        needed_bytes: u64,
        /// What there is.
        cache_bytes: u64,
    },
    /// No cache-disk has room for its tables.
    #[error("the volume has more tables than dcd takes")]
    VolumeTooLarge,
    /// A hint for what is not there.
    #[error("a hint reaches to byte {end_bytes} of a volume of {volume_bytes}")]
    HintBeyondEnd {
        /// Where it ends.
        end_bytes: u64,
        /// Where the volume does.
        volume_bytes: u64,
    },
    /// The volume does not take a hint, or cannot be written.
    #[error("the volume refuses {what}: {error}")]
    Refused {
        /// What.
        what: &'static str,
        /// Why.
        error: RequestError,
    },
    /// The log does not start.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl SetupError {
    /// The next step.
    pub fn hint(&self) -> Option<String> {
        match self {
            SetupError::Geometry(_) => {
                Some("choose another --cache-disk, --read-area or --segment size".into())
            }
            SetupError::ObjectStore { .. } => {
                Some("--destage ordered, without --nvram and --one-disk; see docs/s3.md".into())
            }
            SetupError::HostManaged => {
                Some("put a translation in front of it, as dm-zoned is; docs/disk-models.md".into())
            }
            SetupError::VolumeAlone => Some("give a --cache-disk, without --one-disk".into()),
            SetupError::VolumeTables { .. } => {
                Some("choose a larger --cache-disk, or a larger extent in the file".into())
            }
            SetupError::HintBeyondEnd { .. } => Some(
                "the file of the volume, and the size of its members, say how large it is".into(),
            ),
            SetupError::VolumeTooLarge => Some("choose a larger extent in the file".into()),
            SetupError::Refused { .. } => None,
            SetupError::LogInStore => Some("choose another --cache-disk-profile".into()),
            SetupError::Log(LogError::CacheDiskTooSmall { .. }) => {
                Some("choose a smaller --cache-disk, or a larger --cache-disk-profile".into())
            }
            SetupError::Log(LogError::Open(_)) => None,
        }
    }
}

/// Blocks of a region where there are no tracks.
const REGION_BLOCKS: u64 = 128;

impl Setup {
    fn group_map(&self, groups: Groups, disk: &DiskModel) -> Arc<dyn GroupMap> {
        match (groups, disk.geometry(), &self.log) {
            (Groups::Tracks, Some(geometry), None) => Arc::new(Tracks::new(geometry.clone())),
            (Groups::Tracks, ..) => Arc::new(Regions::new(REGION_BLOCKS)),
            (Groups::Regions(blocks), ..) => Arc::new(Regions::new(blocks)),
        }
    }

    /// How few writes to the disk the memory could do with; none without one, or with a log below
    /// it, which gathers them.
    ///
    /// # Panics
    /// If a profile was not checked.
    pub fn bound(&self) -> Option<Bound> {
        let nvram = self.nvram.filter(|_| self.log.is_none())?;
        let disk = DiskModel::new(&self.disk, self.seed).expect("the profile was checked");
        Some(Bound::new(&nvram.config, self.group_map(nvram.groups, &disk)))
    }

    /// What dcd itself refuses.
    fn check_disks(&self) -> Result<(), SetupError> {
        let in_store = |log: &LogSetup| log.cache_disk.is_object_store() && !log.config.one_disk;
        if self.log.as_ref().is_some_and(in_store) {
            return Err(SetupError::LogInStore);
        }
        let has_zones = |log: &LogSetup| log.cache_disk.is_host_managed() && !log.config.one_disk;
        let is_cached = self.nvram.is_some() || self.log.is_some();
        let members = || self.volume.iter().flat_map(|volume| &volume.members);
        let disk = [&self.disk].into_iter().filter(|_| self.volume.is_none());
        let has_zones_below = disk.chain(members()).any(Profile::is_host_managed);
        if is_cached && has_zones_below || self.log.as_ref().is_some_and(has_zones) {
            return Err(SetupError::HostManaged);
        }
        if members().any(Profile::is_object_store) {
            return Err(SetupError::ObjectStore { what: "a volume with a store for a member" });
        }
        if self.volume.is_some() || !self.disk.is_object_store() {
            return Ok(());
        }
        let what = match &self.log {
            _ if self.nvram.is_some() => "non-volatile memory",
            Some(log) if log.config.one_disk => "log and data on one disk",
            Some(log) if log.config.destage_policy != DestagePolicyKind::Ordered => {
                "another order of destaging than ordered"
            }
            _ => return Ok(()),
        };
        Err(SetupError::ObjectStore { what })
    }

    /// All of it, new and empty.
    ///
    /// # Errors
    /// If the log does not fit, or its settings do not go together.
    ///
    /// # Panics
    /// If a profile was not checked, or as [`dcd_engine::nvram::Nvram::new`].
    pub fn build(&self) -> Result<Box<dyn Target>, SetupError> {
        self.check_disks()?;
        if let Some(volume) = &self.volume {
            return self.build_volume(volume);
        }
        let model = |profile| DiskModel::new(profile, self.seed).expect("the profile was checked");
        let disk = match &self.log {
            Some(_) => {
                DiskModel::behind_log(&self.disk, self.seed).expect("the profile was checked")
            }
            None => model(&self.disk),
        };
        let map = self.nvram.map(|nvram| self.group_map(nvram.groups, &disk));
        let nvram = self.nvram.zip(map);
        let Some(log) = &self.log else {
            let disk = DiskTarget::new(disk);
            return Ok(match nvram {
                Some((setup, map)) => Box::new(NvramTarget::of_setup(&setup, map, disk)),
                None => Box::new(disk),
            });
        };
        let copy_pages = Geometry::copy_pages_in(log.read_area_bytes);
        let geometry = Geometry::fit_with_copies(log.cache_bytes, log.segment_bytes, copy_pages)?;
        let log = LogTarget::new(geometry, log.config.clone(), model(&log.cache_disk), disk)?;
        Ok(match nvram {
            Some((setup, map)) => Box::new(NvramTarget::of_setup(&setup, map, log)),
            None => Box::new(log),
        })
    }

    /// A volume, whose log may be left unused.
    fn build_volume(&self, volume: &VolumeSetup) -> Result<Box<dyn Target>, SetupError> {
        let log = self.log.as_ref().filter(|log| !log.config.one_disk);
        let log = log.ok_or(SetupError::VolumeAlone)?;
        let model =
            |profile, seed| DiskModel::behind_log(profile, seed).expect("the profile was checked");
        let cache_bytes = log.cache_bytes;
        let area = VolumeArea::of(&volume.header, 0).ok_or(SetupError::VolumeTooLarge)?;
        let needed_bytes = area.bytes();
        if needed_bytes >= cache_bytes {
            return Err(SetupError::VolumeTables { needed_bytes, cache_bytes });
        }
        let copy_pages = Geometry::copy_pages_in(log.read_area_bytes);
        let log_bytes = cache_bytes - needed_bytes;
        let geometry = Geometry::fit_with_copies(log_bytes, log.segment_bytes, copy_pages)?;
        let cache_disk =
            DiskModel::new(&log.cache_disk, self.seed).expect("the profile was checked");
        // Their platters do not turn together.
        let seeds = (0..).map(|member| self.seed.wrapping_add(member));
        let members = volume.members.iter().zip(seeds).map(|(member, seed)| model(member, seed));
        let mut target = LogTarget::of_volume(
            geometry,
            log.config.clone(),
            cache_disk,
            &volume.header,
            members.collect(),
        )?;
        for Hint { bytes, attributes } in &volume.hints {
            let (end_bytes, volume_bytes) = (bytes.end, volume.header.config.logical_bytes);
            if end_bytes > volume_bytes {
                return Err(SetupError::HintBeyondEnd { end_bytes, volume_bytes });
            }
            let start = bytes.start / BLOCK_SIZE;
            let range = LbaRange::new(start, end_bytes.div_ceil(BLOCK_SIZE) - start);
            let refused = |error| SetupError::Refused { what: "a hint", error };
            target.hint(vec![range], *attributes).map_err(refused)?;
        }
        let refused = |error| SetupError::Refused { what: "what was written before", error };
        target.fill(volume.written.iter().copied()).map_err(refused)?;
        target.count_from(Time::ZERO);
        Ok(match &self.nvram {
            // Its drives have no tracks in common.
            Some(setup) => {
                let blocks = match setup.groups {
                    Groups::Tracks => REGION_BLOCKS,
                    Groups::Regions(blocks) => blocks,
                };
                Box::new(NvramTarget::of_setup(setup, Arc::new(Regions::new(blocks)), target))
            }
            None => Box::new(target),
        })
    }
}
