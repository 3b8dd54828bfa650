//! Extended attributes. One of them is the hint: what a file is, or what is made in a directory.

use dcd_client::{Attributes, BlockDevice};

use crate::error::{FsResult, refuse};
use crate::file_system::FileSystem;
use crate::format::inode::{Inode, extended_bytes_max};

/// The name under which the hint is set and read.
pub const HINT_NAME: &[u8] = b"user.dcd.hint";
/// The name under which it is read which blocks of the device a file or directory has; with `.N`
/// behind it, from block `N` of the file on. It is in no list.
pub const BLOCKS_NAME: &[u8] = b"user.dcd.blocks";
/// What is told at once.
const BLOCKS_BYTES_MAX: usize = 60_000;
/// All others of this kind are kept as they are.
const PREFIX: &[u8] = b"user.";

fn check_name(name: &[u8]) -> FsResult<()> {
    if !name.starts_with(PREFIX) {
        return refuse(libc::EOPNOTSUPP);
    }
    if name.len() > 255 { refuse(libc::ERANGE) } else { Ok(()) }
}

/// The number behind the name of the blocks; none is 0.
fn from_block(rest: &[u8]) -> Option<u64> {
    match rest {
        [] => Some(0),
        [b'.', digits @ ..] => str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

fn has_extended(inode: &Inode) -> bool {
    inode.is_file() || inode.is_directory()
}

impl<D: BlockDevice> FileSystem<D> {
    /// Reads one.
    pub fn extended(&mut self, file: u64, name: &[u8]) -> FsResult<Vec<u8>> {
        check_name(name)?;
        if let Some(from) = name.strip_prefix(BLOCKS_NAME) {
            return match from_block(from) {
                Some(from) => self.blocks_in_words(file, from),
                None => refuse(libc::ENODATA),
            };
        }
        let inode = self.inode(file)?;
        let found = if name == HINT_NAME {
            (!inode.hint.is_empty()).then(|| inode.hint.to_string().into_bytes())
        } else {
            inode.extended.get(name).cloned()
        };
        found.map_or_else(|| refuse(libc::ENODATA), Ok)
    }

    /// First the size and number of blocks of the device; then of each piece its place in the file,
    /// its first block, and how many blocks it has.
    fn blocks_in_words(&mut self, file: u64, from: u64) -> FsResult<Vec<u8>> {
        if !has_extended(self.inode(file)?) {
            return refuse(libc::ENODATA);
        }
        let mut text = format!("dhisfs {} {}\n", self.block_bytes(), self.blocks());
        let mut piece: Option<(u64, u64, u64)> = None;
        let words = |(index, block, count): (u64, u64, u64)| format!("{index} {block} {count}\n");
        self.walk(file, &mut |_, walked| {
            let is_wanted = walked.index + walked.span > from && text.len() < BLOCKS_BYTES_MAX;
            if !is_wanted || walked.level > 0 {
                return Ok(is_wanted);
            }
            match &mut piece {
                Some((index, block, count))
                    if *index + *count == walked.index && *block + *count == walked.block =>
                {
                    *count += 1;
                }
                _ => {
                    let next = (walked.index, walked.block, 1);
                    text.extend(piece.replace(next).map(words));
                }
            }
            Ok(true)
        })?;
        text.extend(piece.map(words));
        Ok(text.into_bytes())
    }

    /// Their names, each with a zero behind it.
    pub fn extended_names(&mut self, file: u64) -> FsResult<Vec<u8>> {
        let inode = self.inode(file)?;
        let mut names = Vec::new();
        let hint = (!inode.hint.is_empty()).then_some(HINT_NAME);
        for name in hint.into_iter().chain(inode.extended.keys().map(Vec::as_slice)) {
            names.extend_from_slice(name);
            names.push(0);
        }
        Ok(names)
    }

    /// Sets one. `flags` are those of `setxattr`.
    pub fn set_extended(
        &mut self,
        file: u64,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> FsResult<()> {
        check_name(name)?;
        if name.starts_with(BLOCKS_NAME) {
            return refuse(libc::EPERM);
        }
        self.change(|this| {
            let block_bytes = this.block_bytes();
            let inode = this.inode(file)?;
            if !has_extended(inode) {
                return refuse(libc::EPERM);
            }
            let old = inode.extended.get(name).map(Vec::len);
            let is_there = old.is_some() || name == HINT_NAME && !inode.hint.is_empty();
            if flags & libc::XATTR_CREATE != 0 && is_there {
                return refuse(libc::EEXIST);
            }
            if flags & libc::XATTR_REPLACE != 0 && !is_there {
                return refuse(libc::ENODATA);
            }
            if name == HINT_NAME {
                let words =
                    std::str::from_utf8(value).ok().map(|words| words.trim_end_matches('\0'));
                let hint: Option<Attributes> = words.and_then(|words| words.trim().parse().ok());
                // METADATA and ROOT are for the file system to say.
                let hint = hint.filter(|hint| hint.without(Attributes::INHERITED).is_empty());
                return match hint {
                    Some(hint) => this.set_hint(file, hint, true),
                    None => refuse(libc::EINVAL),
                };
            }
            let entry = |length| 3 + name.len() + length;
            let bytes = inode.extended_bytes() - old.map_or(0, entry) + entry(value.len());
            if bytes > extended_bytes_max(block_bytes) {
                return refuse(if value.len() > extended_bytes_max(block_bytes) {
                    libc::E2BIG
                } else {
                    libc::ENOSPC
                });
            }
            let now = this.now();
            let inode = this.change_inode(file)?;
            inode.extended.insert(name.to_vec(), value.to_vec());
            inode.changed = now;
            Ok(())
        })
    }

    /// Removes one.
    pub fn remove_extended(&mut self, file: u64, name: &[u8]) -> FsResult<()> {
        check_name(name)?;
        self.change(|this| {
            let inode = this.inode(file)?;
            if name == HINT_NAME {
                return match inode.hint.is_empty() {
                    true => refuse(libc::ENODATA),
                    false => this.set_hint(file, Attributes::NONE, false),
                };
            }
            if !inode.extended.contains_key(name) {
                return refuse(libc::ENODATA);
            }
            let now = this.now();
            let inode = this.change_inode(file)?;
            inode.extended.remove(name);
            inode.changed = now;
            Ok(())
        })
    }

    fn set_hint(&mut self, file: u64, hint: Attributes, is_chosen: bool) -> FsResult<()> {
        let inode = self.inode(file)?;
        let old = inode.hint;
        // A directory says it to what is made in it, not to all that is below it: the device is not
        // told.
        if inode.is_file() && hint != old {
            self.tell_hint(file, old, hint)?;
        }
        let now = self.now();
        let inode = self.change_inode(file)?;
        inode.hint = hint;
        inode.hint_is_chosen = is_chosen;
        inode.changed = now;
        Ok(())
    }
}
