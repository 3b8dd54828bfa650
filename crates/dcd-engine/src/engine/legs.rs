//! The cache-disk on several legs: what goes back and forth between them, the cache and the
//! volume.

use super::Engine;
use crate::format::leg_label::LegLabel;
use crate::io::{Device, Io, LegError, Output, RequestError, RequestId};
use crate::legs::status::LegStatus;
use crate::legs::witness::{WitnessParts, WitnessStatus};
use crate::legs::{Legs, LegsOutput};
use crate::units::{Duration, LINE_SIZE, LegIndex, SegmentIndex, SlotIndex, Time, Uuid};

impl Engine {
    /// The legs, if the cache-disk is on several disks.
    pub fn legs(&self) -> impl Iterator<Item = LegStatus> {
        self.legs.iter().flat_map(|legs| legs.status())
    }

    /// Whether a start has made the legs in sync alike: from then on they hold the same bytes, but
    /// for their labels and for what is being written.
    pub fn legs_are_alike(&self) -> bool {
        self.legs.as_ref().is_some_and(|legs| !legs.is_opening())
    }

    /// A disk becomes a leg while the others serve, and is filled: [`Device::Leg`] of this index,
    /// which a leg may have had that was taken out, is asked from the next input on. `before`: the
    /// newest label that it has, if it was a leg of this cache.
    ///
    /// # Errors
    /// If the cache-disk has no legs, or it cannot be one of them.
    pub fn add_leg(&mut self, leg: Uuid, before: Option<&LegLabel>) -> Result<LegIndex, LegError> {
        let legs = self.legs.as_mut().ok_or(LegError::NoLegs)?;
        legs.join(leg, before)
    }

    /// The witness of the legs, if they have one.
    pub fn leg_witness(&self) -> Option<WitnessStatus> {
        self.legs.as_ref().and_then(|legs| legs.witness())
    }

    /// A file becomes the witness of the legs while they serve: [`Device::Witness`] from the next
    /// input on. `before`: the newest label that it has, if it was one of this cache.
    ///
    /// # Errors
    /// If the cache-disk has no legs, or has a witness, or it cannot be theirs.
    pub fn add_witness(
        &mut self,
        parts: WitnessParts,
        before: Option<&LegLabel>,
    ) -> Result<(), LegError> {
        let legs = self.legs.as_mut().ok_or(LegError::NoLegs)?;
        legs.add_witness(parts, before)
    }

    pub(super) fn fill_leg(&mut self, id: RequestId, leg: Uuid) {
        let of_witness = self.legs.as_mut().and_then(|legs| legs.try_witness(leg));
        let of_leg = || self.of_leg(leg).and_then(|(legs, leg)| legs.add(leg));
        let result = of_witness.unwrap_or_else(of_leg);
        self.reply(id, result.map_err(RequestError::Leg), None);
    }

    pub(super) fn take_out_leg(&mut self, id: RequestId, leg: Uuid) {
        let of_witness = self.legs.as_mut().and_then(|legs| legs.remove_witness(leg));
        let of_leg = || self.of_leg(leg).and_then(|(legs, leg)| legs.remove(leg));
        match of_witness.unwrap_or_else(of_leg) {
            Ok(()) => self.behind_legs.push(id),
            Err(error) => self.reply(id, Err(RequestError::Leg(error)), None),
        }
    }

    fn of_leg(&mut self, leg: Uuid) -> Result<(&mut Legs, LegIndex), LegError> {
        let legs = self.legs.as_mut().ok_or(LegError::NoLegs)?;
        let leg = legs.index_of(leg).ok_or(LegError::NoSuchLeg)?;
        Ok((legs, leg))
    }

    /// A slot does not have the bytes it should: it is read again, from another leg if there is
    /// one.
    pub(super) fn doubt_slot(&mut self, slot: SlotIndex) {
        let offset = self.superblock.geometry.slot_offset(slot);
        let reader = self.legs.as_ref().and_then(|legs| legs.reader_of(offset, LINE_SIZE));
        self.doubt_slot_of(slot, reader);
    }

    /// The same of one that was read a while ago, by this leg: others may have read it since.
    pub(super) fn doubt_slot_of(&mut self, slot: SlotIndex, reader: Option<LegIndex>) {
        let offset = self.superblock.geometry.slot_offset(slot);
        if let (Some(legs), Some(leg)) = (&mut self.legs, reader) {
            legs.doubt(offset, LINE_SIZE, leg);
        }
    }

    /// The leg that has just read all of a segment.
    pub(super) fn reader_of_segment(&self, segment: SegmentIndex) -> Option<LegIndex> {
        let geometry = self.superblock.geometry;
        let (offset, length) = (geometry.segment_offset(segment), geometry.segment_size_bytes);
        self.legs.as_ref().and_then(|legs| legs.reader_of(offset, length))
    }

    /// What was read again has the right bytes, or has not (`None`).
    pub(super) fn settle_slot(&mut self, slot: SlotIndex, right: Option<&[u8]>) {
        let offset = self.superblock.geometry.slot_offset(slot);
        if let Some(legs) = &mut self.legs {
            legs.settle_doubt(offset, LINE_SIZE, right);
        }
    }

    /// Asks a disk, or the legs in its place.
    pub(super) fn send(&mut self, io: Io) {
        match &mut self.legs {
            Some(legs) if io.device == Device::CacheDisk => legs.submit(io),
            _ => self.outputs.push_back(Output::Io(io)),
        }
    }

    /// Lets the legs go on, and the cache and the volume with what they bring.
    pub(super) fn advance_legs(&mut self) {
        loop {
            let Some(legs) = &mut self.legs else { return };
            legs.advance();
            let mut has_brought = false;
            while let Some(output) = self.legs.as_mut().and_then(|legs| legs.poll()) {
                match output {
                    LegsOutput::Io(io) => self.outputs.push_back(Output::Io(io)),
                    LegsOutput::Done(done) => {
                        has_brought = true;
                        self.io_of_one_done(done);
                    }
                }
            }
            if !self.behind_legs.is_empty()
                && let Some(legs) = self.legs.as_ref().filter(|legs| legs.has_told_all())
            {
                let failure = legs.failure();
                for id in std::mem::take(&mut self.behind_legs) {
                    self.reply(id, failure.map_or(Ok(()), |_| Err(RequestError::Io)), None);
                }
            }
            if !has_brought {
                return;
            }
            self.advance();
            self.advance_volume();
        }
    }

    pub(super) fn configure_legs(&mut self) {
        if let Some(legs) = &mut self.legs {
            legs.configure(self.config.io_timeout, self.config.fill_bytes_per_second_max);
        }
        let timeout = self.cache_disk_timeout();
        if let Some(volume) = self.below.volume_mut() {
            volume.set_cache_disk_timeout(timeout);
        }
    }

    pub(super) fn legs_wake_up(&self) -> Option<Time> {
        self.legs.as_ref().and_then(|legs| legs.wake_up())
    }

    /// Whether what is asked for waits for something that has limits of its own.
    pub(super) fn is_opening_below(&self) -> bool {
        self.below.is_opening() || self.legs.as_ref().is_some_and(|legs| legs.is_opening())
    }

    /// How long the cache-disk may take. One leg after the other may be given up first, and then
    /// the labels of those that are left have to be written.
    pub(super) fn cache_disk_timeout(&self) -> Duration {
        let times = if self.legs.is_some() { 8 } else { 1 };
        Duration(self.config.io_timeout.0.saturating_mul(times))
    }
}
