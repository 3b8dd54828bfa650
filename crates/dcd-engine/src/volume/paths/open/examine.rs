//! An opening up to where it would begin to write: for those who want to know whether a start would
//! succeed.

use crate::buffer::Buffer;
use crate::error::VolumeOpenError;
use crate::io::{Device, IoDone, IoError, IoOperation};
use crate::units::{MemberIndex, Time};
use crate::volume::format::header::VolumeHeader;
use crate::volume::paths::open::Reads;
use crate::volume::status::VolumeStatus;
use crate::volume::{Volume, VolumeOutput, VolumeParts, VolumePhase};

impl Volume {
    /// Reads the tables of a volume as a start does: the roots, all pages and the journal behind
    /// them. What they say comes back; members count as missing. `read` fills a buffer from a byte
    /// address of the cache-disk, and nothing is written.
    ///
    /// # Errors
    ///
    /// Those of a start that concern the cache-disk.
    pub fn examine(
        header: VolumeHeader,
        area_offset: u64,
        mut read: impl FnMut(u64, &mut Buffer) -> Result<(), IoError>,
    ) -> Result<VolumeStatus, VolumeOpenError> {
        let members = vec![None; header.config.members];
        let parts = VolumeParts { header, members, others: Vec::new(), degraded: true };
        let mut volume = Volume::open(Time::ZERO, parts, area_offset)?;
        volume.opening().reads = Reads::All;
        volume.read_tables(&mut read)?;
        Ok(volume.status())
    }

    /// Whether the members went on with another cache-disk than this one: a member that has a label
    /// which this one cannot have given it, as the error of a start says it. `labels`: numbers of
    /// those that are there. What cannot be read tells nothing.
    pub fn left_behind(
        header: VolumeHeader,
        area_offset: u64,
        labels: &[(MemberIndex, u64)],
        mut read: impl FnMut(u64, &mut Buffer) -> Result<(), IoError>,
    ) -> Option<VolumeOpenError> {
        let members = vec![None; header.config.members];
        let parts = VolumeParts { header, members, others: Vec::new(), degraded: true };
        let mut volume = Volume::open(Time::ZERO, parts, area_offset).ok()?;
        volume.opening().reads = Reads::All;
        volume.read_tables(&mut read).ok()?;
        // Labels are written before the journal knows, one epoch at a time.
        let newest = volume.epoch + 1;
        let (member, label) = *labels.iter().find(|(_, label)| *label > newest)?;
        Some(VolumeOpenError::CacheDiskOlder { member, label, newest })
    }

    /// Goes on with an opening until the tables are known.
    pub(in crate::volume) fn read_tables(
        &mut self,
        read: &mut dyn FnMut(u64, &mut Buffer) -> Result<(), IoError>,
    ) -> Result<(), VolumeOpenError> {
        loop {
            self.advance(Time::ZERO);
            if let VolumePhase::Failed(error) = self.phase() {
                return Err(error.clone());
            }
            while let Some(output) = self.poll() {
                let VolumeOutput::Io(io) = output else { continue };
                let (Device::CacheDisk, IoOperation::Read { offset, mut buffer }) =
                    (io.device, io.operation)
                else {
                    // The first thing that is no read of them makes them durable.
                    return Ok(());
                };
                let result = read(offset, &mut buffer);
                self.io_done(Time::ZERO, IoDone { id: io.id, result, buffer: Some(buffer) });
            }
        }
    }
}
