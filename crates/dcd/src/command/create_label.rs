//! `dcd create --labelled`: a data-disk that begins with a label (contract C29), new, or with the
//! payload that an earlier cache has left.

use dcd_daemon::device::device_file::DeviceFile;
use dcd_daemon::pair::label_keeper::read_data_label;
use dcd_daemon::units_text::format_size;
use dcd_engine::format::data_label::{
    DATA_OFFSET_BYTES_DEFAULT, DATA_OFFSET_BYTES_MIN, DataLabel, LabelState, is_payload_offset,
};
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::{Buffer, DataDiskInfo, FormatError, Uuid};

use super::create::Stop;
use super::create_target::refuse_content;
use crate::command::create::CreateArguments;
use crate::error::CommandError;

/// A disk that gets a label, open and locked.
pub struct LabelledDisk {
    pub disk: DeviceFile,
    /// The label of an earlier cache, whose payload stays as it is.
    found: Option<DataLabel>,
    pub payload_offset_bytes: u64,
}

impl LabelledDisk {
    /// Takes a disk that is zero, or has the label of a cache which holds nothing for it; any other
    /// only with --force.
    pub fn of(
        disk: DeviceFile,
        arguments: &CreateArguments,
        stop: &Stop,
    ) -> Result<LabelledDisk, CommandError> {
        let path = || disk.path().to_owned();
        let asked = arguments.label_head;
        if let Some(found) = asked.filter(|asked| !is_payload_offset(*asked)) {
            return Err(CommandError::LabelHead { found });
        }
        let label = read_data_label(&disk)?;
        let found = label.as_ref().ok().copied();
        let usual = found.map_or(DATA_OFFSET_BYTES_DEFAULT, |found| found.payload_offset_bytes);
        let payload_offset_bytes = asked.unwrap_or(usual);
        if disk.size_bytes < payload_offset_bytes + DATA_OFFSET_BYTES_MIN {
            let found = disk.size_bytes;
            return Err(CommandError::NoPayload { path: path(), found, payload_offset_bytes });
        }
        match label {
            Ok(label) => {
                let offset = label.payload_offset_bytes;
                if let Some(asked) = asked.filter(|asked| *asked != offset) {
                    return Err(CommandError::OtherLabelHead {
                        path: path(),
                        found: offset,
                        asked,
                    });
                }
                let may_be_old = label.state == LabelState::Dirty;
                if may_be_old && !arguments.force {
                    return Err(CommandError::LabelDirty { path: path(), uuid: label.uuid });
                }
                if may_be_old && !arguments.json {
                    eprintln!(
                        "dcd: taking {} as it is: what cache {} holds for it, if anything, is given up",
                        disk.path().display(),
                        label.uuid
                    );
                }
            }
            Err(FormatError::Magic { .. } | FormatError::Short { .. }) => {
                refuse_content(&disk, arguments, stop)?;
            }
            // One that cannot be read: what is behind it stays, if the head has the size that it
            // had.
            Err(problem) if !arguments.force => {
                return Err(CommandError::LabelDamaged { path: path(), problem });
            }
            Err(_) => {}
        }
        Ok(LabelledDisk { disk, found, payload_offset_bytes })
    }

    /// What clients will see of it.
    pub fn info(&self) -> DataDiskInfo {
        let whole = self.disk.data_disk_info();
        DataDiskInfo { blocks: whole.blocks - self.payload_offset_bytes / BLOCK_SIZE, ..whole }
    }

    /// Crash behind it: the disk belongs to a cache that is none, and may be taken again.
    pub fn write(&self, uuid: Uuid) -> Result<(), CommandError> {
        let label = DataLabel {
            uuid,
            writing: self.found.map_or(0, |found| found.writing + 1),
            epoch: 0,
            epoch_max: 0,
            state: LabelState::Detached,
            payload_offset_bytes: self.payload_offset_bytes,
            payload_bytes: self.info().bytes(),
        };
        let bytes = label.encode();
        if self.found.is_some() {
            // The other copy stays until this one is whole.
            return Ok(self.disk.write_at(label.offset(), &bytes)?);
        }
        // Nothing of what was there shall be found.
        let mut head = Buffer::zeroed(self.payload_offset_bytes as usize);
        let at = label.offset() as usize;
        head.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes.bytes());
        Ok(self.disk.write_at(0, &head)?)
    }

    /// `/dev/sdb (1 TiB behind a label of 1 MiB)`.
    pub fn words(&self) -> String {
        let kept = if self.found.is_some() { ", with what it holds" } else { "" };
        format!(
            "{} ({} behind a label of {}{kept})",
            self.disk.path().display(),
            format_size(self.info().bytes()),
            format_size(self.payload_offset_bytes),
        )
    }
}

/// Without --labelled: a disk with a label is not taken for what it is not.
pub fn refuse_label(disk: &DeviceFile, arguments: &CreateArguments) -> Result<(), CommandError> {
    match read_data_label(disk)? {
        Ok(label) if !arguments.force => {
            let (path, uuid) = (disk.path().to_owned(), label.uuid);
            let is_dirty = label.state == LabelState::Dirty;
            Err(CommandError::IsLabelled { path, uuid, is_dirty })
        }
        _ => Ok(()),
    }
}
