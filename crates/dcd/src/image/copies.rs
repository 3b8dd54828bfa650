//! The copies that the newest checkpoint lists, compared with what is in their slots.

use dcd_engine::Superblock;
use dcd_engine::format::checkpoint::Checkpoint;
use dcd_engine::format::checksum::crc32c;
use dcd_engine::format::copy_page::{CopyPage, CopyState, PAGE_SIZE};
use dcd_engine::format::geometry::COPIES_PER_PAGE;
use dcd_engine::units::{CopySlot, LINE_SIZE};

use super::CacheImage;

/// How the copies are.
#[derive(Default)]
pub struct CopyCheck {
    /// Pages that are not as the checkpoint names them: their copies are gone.
    pub pages_lost: u64,
    /// Slots that hold what their page says.
    pub as_listed: u64,
    /// Slots that do not. They may have been filled since; whatever they hold, it is not believed.
    pub not_as_listed: u64,
}

impl CopyCheck {
    /// Reads everything that is listed.
    pub fn of(
        image: &CacheImage,
        superblock: &Superblock,
        checkpoint: &Checkpoint,
        progress: &mut dyn FnMut(u64, u64),
    ) -> CopyCheck {
        let geometry = &superblock.geometry;
        let slots_bytes = u64::from(COPIES_PER_PAGE) * LINE_SIZE;
        let total = checkpoint.copy_pages.len() as u64 * slots_bytes;
        let mut check = CopyCheck::default();
        for (done, named) in checkpoint.copy_pages.iter().enumerate() {
            progress(done as u64 * slots_bytes, total);
            let offset = geometry.copy_page_offset(named.page, named.generation);
            let bytes = image.read(offset, PAGE_SIZE).ok();
            let page = bytes
                .and_then(|bytes| CopyPage::decode(bytes.bytes(), superblock.uuid, named).ok());
            let Some(page) = page else {
                check.pages_lost += 1;
                continue;
            };
            let first = CopySlot(named.page.0 * COPIES_PER_PAGE);
            let slots = image.read(geometry.copy_slot_offset(first), slots_bytes as usize).ok();
            for (index, entry) in page.entries.iter().enumerate() {
                let Some(entry) = entry.filter(|entry| entry.state == CopyState::Valid) else {
                    continue;
                };
                let at = index * LINE_SIZE as usize;
                let bytes =
                    slots.as_ref().and_then(|it| it.bytes().get(at..at + LINE_SIZE as usize));
                match bytes {
                    Some(bytes) if crc32c(bytes) == entry.checksum => check.as_listed += 1,
                    _ => check.not_as_listed += 1,
                }
            }
        }
        if total > 0 {
            progress(total, total);
        }
        check
    }
}
