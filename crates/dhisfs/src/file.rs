//! Contents and attributes of files.

use dcd_client::{Allocation, BlockDevice};

use std::ops::Range;

use crate::error::{FsError, FsResult, refuse};
use crate::file_system::FileSystem;
use crate::format::inode::{MODE_KIND, Timestamp};
use crate::pointers::Need;
use crate::runs::read_blocks;

/// What a single change of the file system writes at most, in blocks.
const WRITE_BLOCKS_MAX: u64 = 64;

/// What `setattr` changes; `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttributesChange {
    /// Permissions.
    pub mode: Option<u32>,
    /// Who owns it.
    pub uid: Option<u32>,
    /// And which group.
    pub gid: Option<u32>,
    /// In bytes.
    pub size: Option<u64>,
    /// When it was read.
    pub accessed: Option<Timestamp>,
    /// When its contents changed.
    pub modified: Option<Timestamp>,
}

impl<D: BlockDevice> FileSystem<D> {
    /// Reads; less than asked for at the end of the file.
    pub fn read(&mut self, file: u64, offset: u64, length: usize) -> FsResult<Vec<u8>> {
        let mut plan = self.plan_read(file, offset, length)?;
        plan.read(&mut self.device)?;
        self.finish_read(plan)
    }

    /// What has to be read; what is in memory, and so newer, is there already.
    pub(crate) fn plan_read(
        &mut self,
        file: u64,
        offset: u64,
        length: usize,
    ) -> FsResult<ReadPlan> {
        let inode = self.inode(file)?;
        if inode.is_directory() {
            return refuse(libc::EISDIR);
        }
        let end = offset.saturating_add(length as u64).min(inode.size).max(offset);
        let block_bytes = self.block_bytes() as u64;
        let indexes = match offset == end {
            true => 0..0,
            false => offset / block_bytes..end.div_ceil(block_bytes),
        };
        let mut blocks = self.blocks_at(file, indexes.clone())?;
        let mut data = vec![0; ((indexes.end - indexes.start) * block_bytes) as usize];
        let places = data.chunks_mut(block_bytes as usize);
        for ((index, block), place) in indexes.clone().zip(&mut blocks).zip(places) {
            if let Some(page) = self.pages.get(file, index) {
                place.copy_from_slice(page);
                *block = None;
            }
        }
        let first = (offset - indexes.start * block_bytes) as usize;
        let part = first..first + (end - offset) as usize;
        Ok(ReadPlan { file, offset, blocks, data, part })
    }

    /// What was read, up to where the file ends now.
    pub(crate) fn finish_read(&mut self, plan: ReadPlan) -> FsResult<Vec<u8>> {
        let ReadPlan { file, offset, mut data, part, .. } = plan;
        let left = self.inode(file)?.size.saturating_sub(offset);
        let length = part.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        data.truncate(part.start + length);
        data.drain(..part.start.min(data.len()));
        self.shrink_caches();
        Ok(data)
    }

    /// Writes; less than asked for if there is no more room.
    pub fn write(&mut self, file: u64, offset: u64, data: &[u8]) -> FsResult<usize> {
        if !self.inode(file)?.is_file() {
            return refuse(libc::EISDIR);
        }
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > self.file_bytes_max()) {
            return refuse(libc::EFBIG);
        }
        let mut written = 0;
        while written < data.len() {
            match self.write_some(file, offset + written as u64, &data[written..]) {
                Ok(some) => written += some,
                Err(error) if error.errno() == libc::ENOSPC && written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Writes the first part, in one change of the file system.
    pub(crate) fn write_some(&mut self, file: u64, offset: u64, data: &[u8]) -> FsResult<usize> {
        let block_bytes = self.block_bytes() as u64;
        let end = offset.checked_add(data.len() as u64);
        if !self.inode(file)?.is_file() {
            return refuse(libc::EISDIR);
        }
        if end.is_none_or(|end| end > self.file_bytes_max()) {
            return refuse(libc::EFBIG);
        }
        let mut write = |blocks_max: u64| {
            let piece = (offset / block_bytes + blocks_max) * block_bytes - offset;
            let piece = data.len().min(piece as usize);
            self.change(|this| this.write_piece(file, offset, &data[..piece])).map(|()| piece)
        };
        match write(WRITE_BLOCKS_MAX) {
            // Where there is little room, block by block.
            Err(error) if error.errno() == libc::ENOSPC => write(1),
            result => result,
        }
    }

    fn write_piece(&mut self, file: u64, offset: u64, data: &[u8]) -> FsResult<()> {
        let block_bytes = self.block_bytes() as u64;
        let (size, hint) = {
            let inode = self.inode(file)?;
            (inode.size, inode.hint)
        };
        let end = offset + data.len() as u64;
        let indexes = offset / block_bytes..end.div_ceil(block_bytes);
        let mut blocks = self.blocks_at(file, indexes.clone())?;
        let holes: Vec<u64> = indexes
            .clone()
            .zip(&blocks)
            .filter(|(_, block)| block.is_none())
            .map(|(index, _)| index)
            .collect();
        let lists = self.missing_lists(file, holes.iter().copied())?;
        // Behind the block before, so that a file lies in one piece.
        let before = match indexes.start.checked_sub(1) {
            Some(index) => self.block_at(file, index)?,
            None => None,
        };
        let near = Some(before.unwrap_or(file));
        let mut wanted = vec![self.list_allocation(file, hint); lists];
        wanted.extend(holes.iter().map(|_| Allocation { near, attributes: hint }));
        // What is changed in part, and the end of the file, which may show what was cut off once,
        // is read first.
        let partial = |index: u64| {
            let start = index * block_bytes;
            start < offset || start + block_bytes > end
        };
        let edges = [indexes.start, indexes.end - 1];
        for index in edges.into_iter().filter(|index| partial(*index)) {
            let at = (index - indexes.start) as usize;
            self.bring_page(file, index, blocks[at])?;
        }
        let old_end = (size < offset && size % block_bytes != 0).then(|| size / block_bytes);
        if let Some(index) = old_end {
            let block = self.block_at(file, index)?;
            self.bring_page(file, index, block)?;
        }
        let growing = match self.options.project_growth && !holes.is_empty() {
            // It becomes larger by these first.
            true => self.growth.growing(file, end.div_ceil(block_bytes)),
            false => None,
        };
        let mut list_blocks = self.allocate_for(&wanted, wanted.len(), Need::More, growing)?;
        let data_blocks = list_blocks.split_off(lists);

        // From here on nothing fails but disks.
        for (index, block) in holes.into_iter().zip(data_blocks) {
            self.attach(file, index, block, &mut list_blocks)?;
            blocks[(index - indexes.start) as usize] = Some(block);
        }
        if end > size {
            self.clear_tail(file, size);
        }
        for (index, block) in indexes.zip(blocks) {
            let block = block.expect("no hole is left");
            let start = (index * block_bytes).max(offset);
            let stop = ((index + 1) * block_bytes).min(end);
            let part = &data[(start - offset) as usize..(stop - offset) as usize];
            let within = (start % block_bytes) as usize;
            if self.pages.get(file, index).is_none() {
                self.cache_page(file, index, block, vec![0; block_bytes as usize]);
            }
            let page = self.pages.change(file, index).expect("it is there");
            page[within..within + part.len()].copy_from_slice(part);
        }
        let now = self.now();
        let inode = self.change_inode(file)?;
        inode.size = inode.size.max(end);
        (inode.modified, inode.changed) = (now, now);
        let blocks = inode.size.div_ceil(block_bytes);
        self.growth.written(file, blocks);
        Ok(())
    }

    /// Brings a block of a file into memory, unless it is a hole.
    fn bring_page(&mut self, file: u64, index: u64, block: Option<u64>) -> FsResult<()> {
        let Some(block) = block else { return Ok(()) };
        if self.pages.get(file, index).is_none() {
            let data = self.fetch(block)?;
            self.cache_page(file, index, block, data);
        }
        Ok(())
    }

    /// Zeroes behind the end of a file that becomes longer: a shorter one keeps what was cut off in
    /// its last block. The page is in memory, or there is none.
    fn clear_tail(&mut self, file: u64, size: u64) {
        let block_bytes = self.block_bytes() as u64;
        let within = (size % block_bytes) as usize;
        if within > 0
            && let Some(page) = self.pages.change(file, size / block_bytes)
        {
            page[within..].fill(0);
        }
    }

    /// Changes what is known of a file, and its size.
    pub fn set_attributes(&mut self, file: u64, change: &AttributesChange) -> FsResult<()> {
        if let Some(size) = change.size {
            let inode = self.inode(file)?;
            match (inode.is_file(), inode.is_directory()) {
                (true, _) => {}
                (_, true) => return refuse(libc::EISDIR),
                _ => return refuse(libc::EINVAL),
            }
            if size > self.file_bytes_max() {
                return refuse(libc::EFBIG);
            }
        }
        self.change(|this| {
            if let Some(size) = change.size {
                this.set_size(file, size)?;
            }
            let now = this.now();
            let inode = this.change_inode(file)?;
            if let Some(mode) = change.mode {
                inode.mode = inode.mode & MODE_KIND | mode & !MODE_KIND;
            }
            inode.uid = change.uid.unwrap_or(inode.uid);
            inode.gid = change.gid.unwrap_or(inode.gid);
            inode.accessed = change.accessed.unwrap_or(inode.accessed);
            inode.modified = change.modified.unwrap_or(inode.modified);
            inode.changed = now;
            Ok(())
        })
    }

    fn set_size(&mut self, file: u64, size: u64) -> FsResult<()> {
        let block_bytes = self.block_bytes() as u64;
        let old = self.inode(file)?.size;
        if size > old && old % block_bytes != 0 {
            let block = self.block_at(file, old / block_bytes)?;
            self.bring_page(file, old / block_bytes, block)?;
            self.clear_tail(file, old);
        } else if size < old {
            let first = size.div_ceil(block_bytes);
            self.cut(file, first)?;
            self.pages.remove(file, first..u64::MAX);
        }
        let now = self.now();
        let inode = self.change_inode(file)?;
        inode.size = size;
        inode.modified = now;
        Ok(())
    }

    /// The first place from `offset` on that holds something, or does not: for `SEEK_DATA` and
    /// `SEEK_HOLE`.
    pub fn seek(&mut self, file: u64, offset: u64, data: bool) -> FsResult<u64> {
        let size = self.inode(file)?.size;
        if offset >= size {
            return refuse(libc::ENXIO);
        }
        let block_bytes = self.block_bytes() as u64;
        let from = offset / block_bytes;
        let mut next = from;
        if data {
            let mut first = None;
            self.walk(file, &mut |_, walked| {
                let is_behind = walked.index + walked.span > from;
                if first.is_none() && is_behind && walked.level == 0 {
                    first = Some(walked.index);
                }
                Ok(first.is_none() && is_behind)
            })?;
            let Some(first) = first else { return refuse(libc::ENXIO) };
            next = first;
        } else {
            while next * block_bytes < size && self.block_at(file, next)?.is_some() {
                next += 1;
            }
        }
        Ok((next * block_bytes).clamp(offset, size))
    }
}

/// A read that is under way.
pub(crate) struct ReadPlan {
    file: u64,
    offset: u64,
    /// Where the blocks are that are not in memory; `None` for the others, and for holes.
    blocks: Vec<Option<u64>>,
    data: Vec<u8>,
    /// What of it was asked for.
    part: Range<usize>,
}

impl ReadPlan {
    /// The blocks that have to be read.
    pub(crate) fn missing(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().flatten().copied()
    }

    pub(crate) fn read(&mut self, device: &mut impl BlockDevice) -> FsResult<()> {
        read_blocks(device, &self.blocks, &mut self.data).map_err(FsError::from)
    }
}
