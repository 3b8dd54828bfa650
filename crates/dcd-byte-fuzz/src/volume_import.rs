//! Imports of volumes. The twin that the engine has made of a volume's tables is changed, and the
//! labels of its members; checksums are put right, so that the changes are believed. An import must
//! do its work, or say why not.

use std::sync::OnceLock;

use dcd_engine::units::MemberIndex;
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::format::header::VolumeHeader;
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MemberLabel};
use dcd_engine::volume::import::{self, ImportDisks, ImportError, ImportReport};
use dcd_engine::{Buffer, IoError};

use crate::input::Input as Program;
use crate::volume_recovery::{VolumeImage, image_with_twin};

/// A volume with a twin, which lies where a cache-disk would have its area.
struct Found {
    image: VolumeImage,
    twin_offset: u64,
}

fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| {
        let (image, header): (VolumeImage, VolumeHeader) = image_with_twin();
        let twin_offset = header.config.twin_offset_bytes().expect("it has one");
        let area = VolumeArea::of(&header, 0).expect("it is small");
        let mut twin = image.members[0][twin_offset as usize..].to_vec();
        twin.resize(area.bytes() as usize, 0);
        Found { image: VolumeImage { cache_disk: twin, area, ..image }, twin_offset }
    })
}

/// All holders have the same twin. What is written is nowhere.
struct Disks<'a> {
    image: &'a VolumeImage,
    twin_offset: u64,
}

impl ImportDisks for Disks<'_> {
    fn read_member(
        &mut self,
        member: MemberIndex,
        offset: u64,
        buffer: &mut Buffer,
    ) -> Result<(), IoError> {
        let disk = self.image.members[usize::from(member.0)];
        let (disk, offset) = match offset.checked_sub(self.twin_offset) {
            Some(in_twin) => (self.image.cache_disk.as_slice(), in_twin),
            None => (disk, offset),
        };
        let end = offset.checked_add(buffer.len() as u64).ok_or(IoError::Failed)?;
        let bytes = disk.get(offset as usize..end as usize).ok_or(IoError::Failed)?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(())
    }

    fn write_member(&mut self, _: MemberIndex, _: u64, _: &Buffer) -> Result<(), IoError> {
        Ok(())
    }

    fn flush_member(&mut self, _: MemberIndex) -> Result<(), IoError> {
        Ok(())
    }

    fn write_cache_disk(&mut self, _: u64, _: &Buffer) -> Result<(), IoError> {
        Ok(())
    }

    fn flush_cache_disk(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn progress(&mut self, done: u64, of: u64) {
        assert!(done <= of);
    }
}

/// The first byte: whether a member is missing (bit 1), and may be (2). Then what
/// [`VolumeImage::change`] takes.
pub(crate) fn run(input: &[u8]) {
    let _ = import(input);
}

fn import(input: &[u8]) -> Result<ImportReport, ImportError> {
    let mut program = Program(input);
    let how = program.u8();
    let found = found();
    let mut image = found.image.clone();
    image.change(&mut program);
    let missing = how & 2 != 0;
    let labels = image.labels.iter().enumerate().filter(|(member, _)| !missing || *member != 2);
    let labels = labels.filter_map(|(_, head)| {
        let [first, second] = LABEL_OFFSETS.map(|at| head.get(at as usize..).unwrap_or(&[]));
        MemberLabel::newest(first, second)
    });
    let labels: Vec<MemberLabel> = labels.collect();
    let mut disks = Disks { image: &image, twin_offset: found.twin_offset };
    let said = |error: ImportError| {
        assert!(!error.to_string().is_empty());
        error
    };
    let volume = import::find(&labels, how & 4 != 0, &mut disks).map_err(said)?;
    volume.write(1 << 20, &mut disks).map_err(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::seeds;

    #[test]
    fn twins_are_reached() {
        let report = import(&[0]).expect("it is as the engine left it");
        assert!(report.extents_mapped > 0 && report.lines_lost == 0, "{report:?}");
        let ends: Vec<String> = seeds("volume_import")
            .iter()
            .filter_map(|(_, seed)| import(seed).err().map(|error| error.to_string()))
            .collect();
        assert!(ends.iter().any(|end| end.contains("cannot be used")), "{ends:?}");
    }
}
