//! A target from a description of it.

use std::sync::Arc;

use dcd_engine::format::geometry::GeometryError;
use dcd_engine::nvram::{GroupMap, NvramConfig, Regions};
use dcd_engine::{DestagePolicyKind, EngineConfig, Geometry};

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
        if is_cached && self.disk.is_host_managed() || self.log.as_ref().is_some_and(has_zones) {
            return Err(SetupError::HostManaged);
        }
        if !self.disk.is_object_store() {
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
}
