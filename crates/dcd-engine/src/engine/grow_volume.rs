//! A volume grows while requests are served: what the cache has to do with it. The order, and what
//! a crash does, is in `volume/paths/grow.rs`.
//!
//! The tables of the larger volume lie behind all else on the cache-disk. The superblock that names
//! them is written as for a log that gets another size ([`super::resize`]): behind a checkpoint,
//! with an end mark behind the tables, both copies until they are durable.

use super::Engine;
use super::below::Below;
use crate::config::Mode;
use crate::format::end_mark::END_MARK_BYTES;
use crate::format::superblock::{DATA_DISK_BLOCKS_MAX, Superblock};
use crate::io::{RequestError, ResizeError, VolumeError};
use crate::units::FRAGMENTS_PER_LINE;
use crate::volume::growth::{Grown, Growth, GrowthError};
use crate::volume::{GrowthCutShort, Volume};

/// Why a volume does not grow.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GrowRefusal {
    /// It cannot be so.
    #[error(transparent)]
    Growth(#[from] GrowthError),
    /// The log cannot be told.
    #[error(transparent)]
    Log(#[from] RequestError),
}

/// The tables of a volume that grows, as the superblock is to name them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct VolumePlace {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Size of the volume.
    pub(super) blocks: u64,
}

impl Engine {
    /// The volume below the cache begins to grow while it serves; [`Volume::growth_status`] tells
    /// how far it is, and whether it has.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn grow_volume(&mut self, growth: &Growth) -> Result<(), GrowRefusal> {
        let to = self.grown(growth)?;
        let end = to.area.header_offsets()[0] + to.area.bytes() + END_MARK_BYTES as u64;
        if let Some(legs) = &mut self.legs {
            legs.extend_end(end);
        }
        let Below::Volume(volume) = &mut self.below else {
            unreachable!("it was looked at");
        };
        volume.grow(to);
        Ok(())
    }

    /// The size that it would have, in bytes; nothing is changed.
    ///
    /// # Errors
    /// Why it cannot grow so.
    pub fn check_grow_volume(&self, growth: &Growth) -> Result<u64, GrowRefusal> {
        self.grown(growth).map(|to| to.header.config.logical_bytes)
    }

    fn grown(&self, growth: &Growth) -> Result<Grown, GrowRefusal> {
        let Below::Volume(volume) = &self.below else {
            return Err(RequestError::Volume(VolumeError::NoVolume).into());
        };
        if !volume.is_open() || volume.is_too_busy_to_grow() || self.close.is_some() {
            return Err(RequestError::Volume(VolumeError::Busy).into());
        }
        if self.superblock.nvram.is_some() {
            return Err(GrowthError::HasMemory.into());
        }
        self.may_tell_size()?;
        if self.superblock.geometry.is_resized() {
            let made_with = self.superblock.made_end();
            return Err(GrowthError::LogIsResized { made_with }.into());
        }
        let to = volume.look_at_growth(growth, self.superblock.next_volume_offset())?;
        let end = to.area.header_offsets()[0] + to.area.bytes() + END_MARK_BYTES as u64;
        let found = growth.cache_disk_bytes;
        if end > found {
            return Err(GrowthError::CacheDisk { needed: end, found }.into());
        }
        if to.header.config.blocks() > DATA_DISK_BLOCKS_MAX {
            return Err(GrowthError::Tables.into());
        }
        // A superblock that no start takes must never be written.
        let mut superblock = self.superblock.clone();
        superblock.volume_moved_to = superblock.next_volume_offset();
        superblock.volume_bytes = to.area.bytes();
        superblock.data_disk.blocks = to.header.config.blocks();
        match Superblock::decode(superblock.encode().bytes()) {
            Ok(_) => Ok(to),
            Err(error) => Err(GrowthError::Superblock(error.to_string()).into()),
        }
    }

    /// A volume that is to grow begins when no zeroes are on their way: a checkpoint of the log may
    /// wait for them, the superblock waits for that, and their flush for records.
    pub(super) fn let_volume_grow(&mut self) {
        if !self.destage.zeroes_under_way()
            && let Some(volume) = self.below.volume_mut()
        {
            volume.let_growth_begin();
        }
    }

    /// Step 3: the tables are there.
    pub(super) fn tables_written(&mut self, bytes: u64, blocks: u64) {
        let place = VolumePlace { offset: self.superblock.next_volume_offset(), bytes, blocks };
        if self.may_tell_size().is_err() || self.close.is_some() {
            return self.volume_is_not_moved(GrowthCutShort::End);
        }
        self.list_volume(place);
    }

    /// Both copies of the superblock name them.
    pub(super) fn volume_is_moved(&mut self) {
        self.below.volume_mut().expect("it grows").tables_are_moved();
    }

    /// None does, and none will.
    pub(super) fn volume_is_not_moved(&mut self, why: GrowthCutShort) {
        self.below.volume_mut().expect("it grows").tables_are_not_moved(why);
    }

    /// Step 5.
    pub(super) fn volume_has_grown(&mut self, blocks: u64) {
        self.data_disk.blocks = blocks;
        self.table.set_disk_lines(blocks.div_ceil(FRAGMENTS_PER_LINE));
    }

    /// It is as it was, and what is behind that on the cache-disk is in nobody's use.
    pub(super) fn volume_has_not_grown(&mut self) {
        let end = self.superblock.end();
        // Without a log a superblock may name more, and nobody knows which one counts.
        let may_be_more = self.is_resizing() || self.log_is_given_up() || self.is_passing_by();
        if let (Some(legs), false) = (&mut self.legs, may_be_more) {
            legs.set_end(end);
        }
    }

    /// Whether the volume below grows.
    pub(super) fn is_volume_growing(&self) -> bool {
        self.below.volume().is_some_and(Volume::is_growing)
    }

    /// Whether a superblock can be written in the middle of the session.
    pub(super) fn may_tell_size(&self) -> Result<(), RequestError> {
        if self.config.read_only {
            return Err(RequestError::ReadOnly);
        }
        let logs = self.config.mode == Mode::WriteBack && !self.config.no_log;
        if !logs || self.is_passing_by() {
            return Err(ResizeError::NotLogging.into());
        }
        if self.log_is_given_up() {
            return Err(RequestError::Io);
        }
        if self.is_resizing() || self.is_naming_nvram() {
            return Err(ResizeError::UnderWay.into());
        }
        match self.is_leg_being_filled() {
            true => Err(ResizeError::LegIsFilled.into()),
            false => Ok(()),
        }
    }
}
