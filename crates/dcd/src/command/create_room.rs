//! The room of a new cache-disk that is a file: taken at once, because a log that finds its disk
//! full has no good way on (unless somebody wants to try just that), and given back when the
//! creation fails or is stopped: what had no room before has none afterwards, either.
//!
//! ```text
//! 1. Is there room at all? A file system is not filled to its end to find that out.
//! 2. The file is made, or is made longer, and its holes are filled.
//! 3. Whatever happens before `keep`: the file is removed; or is as long as it was, with the holes
//!    that it had.
//!      Killed before that: the room stays taken, by zeroes. To create again goes on there.
//! ```

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::error::CommandError;

/// Taken at once; in between a signal is heard.
const PIECE_BYTES: u64 = 1 << 30;
/// Holes that are made anew; a file with more keeps the room of the others.
const HOLES_MAX: usize = 1 << 20;

/// Room that is given back unless it is kept.
pub struct Room {
    path: PathBuf,
    file: File,
    before: Option<Before>,
    is_kept: bool,
}

/// What a file was.
struct Before {
    length: u64,
    holes: Vec<Range<u64>>,
}

impl Room {
    /// Takes `size` bytes, in a new file if `is_missing`. Nothing is taken of a file system that
    /// has no such calls; then the file only gets its length.
    pub fn take(
        path: &Path,
        is_missing: bool,
        size: u64,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Room, CommandError> {
        let room = Room::none(path, is_missing)?;
        room.check_free(size)?;
        room.allocate(size, is_stopped)?;
        Ok(room)
    }

    /// Makes the file so long at least, and takes no room.
    pub fn lengthen(path: &Path, is_missing: bool, size: u64) -> Result<Room, CommandError> {
        let room = Room::none(path, is_missing)?;
        if room.before.as_ref().is_none_or(|before| before.length < size) {
            room.file.set_len(size).map_err(CommandError::file("make room in", path))?;
        }
        Ok(room)
    }

    fn none(path: &Path, is_missing: bool) -> Result<Room, CommandError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(is_missing).mode(0o600);
        let file = options.open(path).map_err(CommandError::file("create", path))?;
        Ok(Room {
            path: path.to_owned(),
            before: if is_missing { None } else { Some(Before::of(&file, path)?) },
            file,
            is_kept: false,
        })
    }

    /// The cache is made: it stays.
    pub fn keep(mut self) {
        self.is_kept = true;
    }

    /// Step 1.
    fn check_free(&self, size: u64) -> Result<(), CommandError> {
        let Ok(stat) = rustix::fs::fstatvfs(&self.file) else { return Ok(()) };
        let metadata = self.file.metadata().map_err(CommandError::file("look at", &self.path))?;
        // A quota or a reserve for root may be less; then step 2 finds it out. A file system
        // without a size has no end.
        let free = match rustix::process::geteuid().is_root() {
            true => stat.f_bfree,
            false => stat.f_bavail,
        };
        let free = free.saturating_mul(stat.f_frsize);
        let needed = size.saturating_sub(metadata.blocks() * 512);
        if stat.f_blocks > 0 && needed > free {
            return Err(CommandError::NoRoom { path: self.path.clone(), needed, free });
        }
        Ok(())
    }

    /// Step 2.
    fn allocate(&self, size: u64, is_stopped: &dyn Fn() -> bool) -> Result<(), CommandError> {
        let length = self.before.as_ref().map_or(0, |before| before.length);
        let failed = |errno: Errno| {
            CommandError::file("make room for the cache in", &self.path)(errno.into())
        };
        let mut start = 0;
        while start < size {
            if is_stopped() {
                return Err(CommandError::CreateCancelled);
            }
            let piece = PIECE_BYTES.min(size - start);
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), start, piece) {
                Ok(()) => start += piece,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) if size <= length => return Ok(()),
                Err(Errno::OPNOTSUPP) => {
                    return rustix::fs::ftruncate(&self.file, size).map_err(failed);
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }

    /// Step 3. A failure here has nobody to tell it to: the error that counts came before.
    fn give_back(&self) {
        let Some(before) = &self.before else {
            let _ = fs::remove_file(&self.path);
            return;
        };
        let _ = self.file.set_len(before.length);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for hole in &before.holes {
            let _ = rustix::fs::fallocate(&self.file, flags, hole.start, hole.end - hole.start);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !self.is_kept {
            self.give_back();
        }
    }
}

impl Before {
    fn of(file: &File, path: &Path) -> Result<Before, CommandError> {
        let metadata = file.metadata().map_err(CommandError::file("look at", path))?;
        let length = metadata.len();
        let mut before = Before { length, holes: Vec::new() };
        // Room that was reserved and never written to looks like a hole, and is none.
        if metadata.blocks() * 512 >= length {
            return Ok(before);
        }
        let mut at = 0;
        while at < length && before.holes.len() < HOLES_MAX {
            let Ok(start) = rustix::fs::seek(file, SeekFrom::Hole(at)) else { break };
            let end = rustix::fs::seek(file, SeekFrom::Data(start)).unwrap_or(length).min(length);
            if start >= end {
                break;
            }
            before.holes.push(start..end);
            at = end;
        }
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_not_kept_is_as_it_was() {
        let path = std::env::temp_dir().join(format!("dcd-room-{}", std::process::id()));
        let blocks = || fs::metadata(&path).unwrap().blocks();
        let no = || false;
        drop(Room::take(&path, true, 8 << 20, &no).unwrap());
        assert!(!path.exists());
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(4 << 20).unwrap();
        file.write_all_at(&[7; 8192], 1 << 20).unwrap();
        file.sync_all().unwrap();
        let before = blocks();
        let room = Room::take(&path, false, 8 << 20, &no).unwrap();
        assert!(blocks() >= (8 << 20) / 512);
        drop(room);
        assert_eq!((fs::metadata(&path).unwrap().len(), blocks()), (4 << 20, before));
        let mut page = [0; 8192];
        file.read_exact_at(&mut page, 1 << 20).unwrap();
        assert_eq!(page, [7; 8192]);
        // More than there is anywhere, and a signal.
        let large = Room::take(&path, false, 1 << 60, &no).err().unwrap();
        assert!(
            matches!(large, CommandError::NoRoom { .. } | CommandError::File { .. }),
            "{large}"
        );
        let stopped = Room::take(&path, false, 8 << 20, &|| true).err().unwrap();
        assert!(matches!(stopped, CommandError::CreateCancelled));
        assert_eq!((fs::metadata(&path).unwrap().len(), blocks()), (4 << 20, before));
        Room::take(&path, false, 8 << 20, &no).unwrap().keep();
        assert_eq!(fs::metadata(&path).unwrap().len(), 8 << 20);
        fs::remove_file(&path).unwrap();
    }
}
