//! Contents and attributes of files.

use dcd_client::{Allocation, BlockDevice};

use crate::error::{FsResult, refuse};
use crate::file_system::FileSystem;
use crate::format::inode::{MODE_KIND, Timestamp};
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
        let inode = self.inode(file)?;
        if inode.is_directory() {
            return refuse(libc::EISDIR);
        }
        let end = offset.saturating_add(length as u64).min(inode.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let block_bytes = self.block_bytes() as u64;
        let indexes = offset / block_bytes..end.div_ceil(block_bytes);
        let mut blocks = self.blocks_at(file, indexes.clone())?;
        let mut data = vec![0; ((indexes.end - indexes.start) * block_bytes) as usize];
        // What is in memory is newer.
        for (index, block) in indexes.clone().zip(&mut blocks) {
            if self.pages.get(file, index).is_some() {
                *block = None;
            }
        }
        read_blocks(&mut self.device, &blocks, &mut data)?;
        for (index, place) in indexes.clone().zip(data.chunks_mut(block_bytes as usize)) {
            if let Some(page) = self.pages.get(file, index) {
                place.copy_from_slice(page);
            }
        }
        let first = (offset - indexes.start * block_bytes) as usize;
        data.truncate(first + (end - offset) as usize);
        data.drain(..first);
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
        let block_bytes = self.block_bytes() as u64;
        let mut written = 0;
        let mut blocks_max = WRITE_BLOCKS_MAX;
        while written < data.len() {
            let at = offset + written as u64;
            let piece = (at / block_bytes + blocks_max) * block_bytes - at;
            let piece = (data.len() - written).min(piece as usize);
            let rest = &data[written..written + piece];
            match self.change(|this| this.write_piece(file, at, rest)) {
                Ok(()) => written += piece,
                // What is left is filled block by block.
                Err(error) if error.errno() == libc::ENOSPC && blocks_max > 1 => blocks_max = 1,
                Err(error) if error.errno() == libc::ENOSPC && written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
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
        // What is changed in part, and the end of the file, which may show what was cut off once, is read first.
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
        let mut list_blocks = self.allocate(&wanted)?;
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
                let page = vec![0; block_bytes as usize].into_boxed_slice();
                self.pages.insert(file, index, block, page);
            }
            let page = self.pages.change(file, index).expect("it is there");
            page[within..within + part.len()].copy_from_slice(part);
        }
        let now = self.now();
        let inode = self.change_inode(file)?;
        inode.size = inode.size.max(end);
        (inode.modified, inode.changed) = (now, now);
        Ok(())
    }

    /// Brings a block of a file into memory, unless it is a hole.
    fn bring_page(&mut self, file: u64, index: u64, block: Option<u64>) -> FsResult<()> {
        let Some(block) = block else { return Ok(()) };
        if self.pages.get(file, index).is_none() {
            let mut data = vec![0; self.block_bytes()];
            read_blocks(&mut self.device, &[Some(block)], &mut data)?;
            self.pages.insert(file, index, block, data.into_boxed_slice());
        }
        Ok(())
    }

    /// Zeroes behind the end of a file that becomes longer: a shorter one keeps what was cut off in its last block. The
    /// page is in memory, or there is none.
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

    /// The first place from `offset` on that holds something, or does not: for `SEEK_DATA` and `SEEK_HOLE`.
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
