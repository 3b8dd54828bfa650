//! What the event loop runs: a cache ([`TieredEngine`]), or a disk without one
//! ([`PassThrough`](crate::event_loop::pass_through::PassThrough)). Both speak the engine's
//! boundary.

use dcd_engine::config::ConfigError;
use dcd_engine::format::leg_label::LegLabel;
use dcd_engine::format::superblock::CacheState;
use dcd_engine::io::{LegError, NvramChangeError};
use dcd_engine::legs::witness::WitnessParts;
use dcd_engine::nvram::durable::{DurableNvram, NvramPresence, NvramStatus};
use dcd_engine::stats::{CacheDiskFailure, DestageTrouble, Status};
use dcd_engine::units::{LbaRange, LegIndex, MemberIndex};
use dcd_engine::volume::growth::Growth;
use dcd_engine::volume::{NewDisk, ReplaceError};
use dcd_engine::{
    DataDiskInfo, Engine, EngineConfig, GrowRefusal, Input, MemoryUse, NvramRefusal, Output, Phase,
    RequestError, RequestId, TieredEngine, Time, Uuid, VolumeError,
};

use crate::event_loop::request_counts::RequestCounts;

/// A state machine that answers requests with the help of disks. The rules are those of
/// [`dcd_engine::io`].
pub trait Core {
    /// Tells what has happened.
    fn handle_input(&mut self, now: Time, input: Input);
    /// What it wants next; to be called until there is nothing.
    fn next_output(&mut self) -> Option<Output>;
    /// Until when it waits then.
    fn next_wake_up(&self) -> Option<Time>;
    /// Where it stands.
    fn phase(&self) -> &Phase;
    /// The volume that is exported.
    fn data_disk(&self) -> DataDiskInfo;
    /// Whether a range lies within the volume and is made of whole logical blocks.
    fn check_range(&self, range: LbaRange) -> bool;
    /// Pieces of a range with their length in blocks, and whether they are known to be zero.
    fn block_status(&self, range: LbaRange, pieces_max: usize) -> Vec<(u64, bool)>;
    /// A picture of the cache, if there is one.
    fn status(&self) -> Option<Status>;
    /// A picture of the tier in front of the cache, if there is one.
    fn nvram_status(&self) -> Option<NvramStatus> {
        None
    }
    /// How that stands: whether requests go through it, and whether its medium has failed. Cheap.
    fn nvram_standing(&self) -> Option<(NvramPresence, bool)> {
        None
    }
    /// Whether the cache-disk was given up, if there is one.
    fn cache_disk_failure(&self) -> Option<CacheDiskFailure> {
        None
    }
    /// Why what is dirty does not get to the data-disk, if that is so.
    fn destage_trouble(&self) -> Option<DestageTrouble> {
        None
    }
    /// Whether what is being closed holds what its data-disk does not.
    fn holds_newer_data(&self) -> bool {
        false
    }
    /// Whether it is closed for good: its data-disk stands on its own.
    fn is_detached(&self) -> bool {
        false
    }
    /// Takes over what may change while it runs.
    ///
    /// # Errors
    /// If that cannot be.
    fn configure(&mut self, _config: &EngineConfig) -> Result<(), ConfigError> {
        Ok(())
    }
    /// A disk becomes a leg: [`Engine::add_leg`].
    ///
    /// # Errors
    /// If it cannot.
    fn add_leg(&mut self, _leg: Uuid, _before: Option<&LegLabel>) -> Result<LegIndex, LegError> {
        Err(LegError::NoLegs)
    }
    /// A file becomes the witness of the legs: [`Engine::add_witness`].
    ///
    /// # Errors
    /// If it cannot.
    fn add_witness(
        &mut self,
        _parts: WitnessParts,
        _before: Option<&LegLabel>,
    ) -> Result<(), LegError> {
        Err(LegError::NoLegs)
    }
    /// A disk takes the place of a member: [`Engine::replace_member`].
    ///
    /// # Errors
    /// If it cannot.
    fn replace_member(
        &mut self,
        _member: MemberIndex,
        _new: NewDisk,
    ) -> Result<MemberIndex, ReplaceError> {
        Err(VolumeError::NoVolume.into())
    }
    /// A disk becomes a spare: [`Engine::add_spare`].
    ///
    /// # Errors
    /// If it cannot.
    fn add_spare(&mut self, _new: NewDisk) -> Result<MemberIndex, ReplaceError> {
        Err(VolumeError::NoVolume.into())
    }
    /// The volume grows: [`Engine::grow_volume`].
    ///
    /// # Errors
    /// If it cannot.
    fn grow_volume(&mut self, _growth: &Growth) -> Result<(), GrowRefusal> {
        Err(RequestError::Volume(VolumeError::NoVolume).into())
    }
    /// A spare is to be none any more: [`Engine::remove_spare`].
    ///
    /// # Errors
    /// If it cannot.
    fn remove_spare(&mut self, _disk: MemberIndex) -> Result<(), VolumeError> {
        Err(VolumeError::NoVolume)
    }
    /// Whether a memory may come to be in front of the cache: [`TieredEngine::may_add_nvram`].
    ///
    /// # Errors
    /// If it may not.
    fn may_add_nvram(&self) -> Result<(), NvramRefusal> {
        Err(NvramRefusal::Request(RequestError::NvramChange(NvramChangeError::NoMemory)))
    }
    /// A memory comes to be in front of the cache: [`TieredEngine::add_nvram`].
    ///
    /// # Errors
    /// If it may not.
    fn add_nvram(
        &mut self,
        _now: Time,
        _id: RequestId,
        _nvram: DurableNvram,
    ) -> Result<(), NvramRefusal> {
        self.may_add_nvram()
    }
    /// Seconds since 1970: [`Engine::set_calendar`].
    fn set_calendar(&mut self, _now: Time, _seconds: u64) {}
    /// The cache, if this is one and it runs.
    fn engine(&self) -> Option<&Engine> {
        None
    }
    /// What the segment memory is to it, if it has one.
    fn memory_use(&self) -> MemoryUse {
        MemoryUse::NotBegun
    }
    /// What is lost: [`TieredEngine::lost`].
    fn lost(&self) -> Vec<LbaRange> {
        Vec::new()
    }
    /// Whether all that is lost lies within what somebody has accepted.
    fn all_lost_is_within(&self, _accepted: &[LbaRange]) -> bool {
        true
    }
    /// Requests so far, where they are counted: on a disk without a cache.
    fn request_counts(&self) -> Option<RequestCounts> {
        None
    }
}

impl Core for TieredEngine {
    fn handle_input(&mut self, now: Time, input: Input) {
        TieredEngine::handle_input(self, now, input);
    }

    fn next_output(&mut self) -> Option<Output> {
        TieredEngine::next_output(self)
    }

    fn next_wake_up(&self) -> Option<Time> {
        TieredEngine::next_wake_up(self)
    }

    fn phase(&self) -> &Phase {
        TieredEngine::phase(self)
    }

    fn data_disk(&self) -> DataDiskInfo {
        Engine::data_disk(self)
    }

    fn check_range(&self, range: LbaRange) -> bool {
        Engine::check_range(self, range)
    }

    fn block_status(&self, range: LbaRange, pieces_max: usize) -> Vec<(u64, bool)> {
        TieredEngine::block_status(self, range, pieces_max)
    }

    fn cache_disk_failure(&self) -> Option<CacheDiskFailure> {
        Engine::cache_disk_failure(self)
    }

    fn memory_use(&self) -> MemoryUse {
        Engine::memory_use(self)
    }

    fn destage_trouble(&self) -> Option<DestageTrouble> {
        Engine::destage_trouble(self)
    }

    fn lost(&self) -> Vec<LbaRange> {
        TieredEngine::lost(self)
    }

    fn all_lost_is_within(&self, accepted: &[LbaRange]) -> bool {
        TieredEngine::all_lost_is_within(self, accepted)
    }

    fn holds_newer_data(&self) -> bool {
        let status = Engine::status(self);
        let in_front = self.nvram_status().map_or(0, |nvram| nvram.blocks);
        in_front + status.dirty_lines + status.zero_ranges > 0
    }

    fn is_detached(&self) -> bool {
        *Core::phase(self) == Phase::Closed && self.superblock().state == CacheState::Detached
    }

    fn configure(&mut self, config: &EngineConfig) -> Result<(), ConfigError> {
        TieredEngine::configure(self, config)
    }

    fn add_leg(&mut self, leg: Uuid, before: Option<&LegLabel>) -> Result<LegIndex, LegError> {
        TieredEngine::add_leg(self, leg, before)
    }

    fn add_witness(
        &mut self,
        parts: WitnessParts,
        before: Option<&LegLabel>,
    ) -> Result<(), LegError> {
        TieredEngine::add_witness(self, parts, before)
    }

    fn replace_member(
        &mut self,
        member: MemberIndex,
        new: NewDisk,
    ) -> Result<MemberIndex, ReplaceError> {
        TieredEngine::replace_member(self, member, new)
    }

    fn add_spare(&mut self, new: NewDisk) -> Result<MemberIndex, ReplaceError> {
        TieredEngine::add_spare(self, new)
    }

    fn grow_volume(&mut self, growth: &Growth) -> Result<(), GrowRefusal> {
        TieredEngine::grow_volume(self, growth)
    }

    fn remove_spare(&mut self, disk: MemberIndex) -> Result<(), VolumeError> {
        TieredEngine::remove_spare(self, disk)
    }

    fn may_add_nvram(&self) -> Result<(), NvramRefusal> {
        TieredEngine::may_add_nvram(self)
    }

    fn add_nvram(
        &mut self,
        now: Time,
        id: RequestId,
        nvram: DurableNvram,
    ) -> Result<(), NvramRefusal> {
        TieredEngine::add_nvram(self, now, id, nvram)
    }

    fn set_calendar(&mut self, now: Time, seconds: u64) {
        TieredEngine::set_calendar(self, now, seconds);
    }

    fn engine(&self) -> Option<&Engine> {
        matches!(TieredEngine::phase(self), Phase::Running).then_some(&**self)
    }

    fn nvram_status(&self) -> Option<NvramStatus> {
        TieredEngine::nvram_status(self)
    }

    fn nvram_standing(&self) -> Option<(NvramPresence, bool)> {
        TieredEngine::nvram_standing(self)
    }

    fn status(&self) -> Option<Status> {
        // While it opens there is no picture yet.
        matches!(TieredEngine::phase(self), Phase::Running).then(|| Engine::status(self))
    }
}
