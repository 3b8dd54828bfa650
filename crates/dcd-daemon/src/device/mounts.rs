//! What is mounted where, from `/proc/self/mountinfo`: which device a mount is of, and on which
//! file system a file lies.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of `mountinfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mount {
    /// Device number of the file system; one of its own where it has several devices (btrfs) or
    /// none.
    pub(crate) device: u64,
    /// What of the file system is mounted.
    pub(crate) root: PathBuf,
    /// Where.
    pub(crate) place: PathBuf,
    /// `ext4`, `overlay`, `fuse.dcd`.
    pub(crate) kind: String,
    /// What was mounted: a device, or a word.
    pub(crate) source: PathBuf,
    /// Options of the file system.
    pub(crate) options: String,
}

/// All mounts that this process sees, in their order; a later one hides what is below it.
pub(crate) fn mounts() -> Vec<Mount> {
    // Names are bytes, and need not be text.
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

/// `36 35 98:0 /root /place rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let (major, minor) = str::from_utf8(words.nth(2)?).ok()?.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let (root, place) = (unescape(words.next()?), unescape(words.next()?));
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = String::from_utf8_lossy(words.next()?).into_owned();
    let source = unescape(words.next()?);
    let options = unescape(words.next().unwrap_or_default());
    let options = options.to_string_lossy().into_owned();
    Some(Mount { device, root, place, kind, source, options })
}

/// Files and devices that the kernel swaps to, of `/proc/swaps`.
pub(crate) fn swaps() -> Vec<PathBuf> {
    let text = fs::read("/proc/swaps").unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').skip(1);
    let names = lines.filter_map(|line| line.split(u8::is_ascii_whitespace).next());
    names.filter(|name| !name.is_empty()).map(unescape).collect()
}

/// A space is written as `\040`, and others alike.
fn unescape(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// The mount that an absolute path lies on.
pub(crate) fn mount_of<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let around = mounts.iter().filter(|mount| path.starts_with(&mount.place));
    // Of equally long ones the last: it hides the others.
    around.max_by_key(|mount| mount.place.components().count())
}

/// Where one of these block devices is mounted.
pub(crate) fn mounted_at(mounts: &[Mount], is_it: impl Fn(u64) -> bool) -> Option<String> {
    let source_is_it = |mount: &Mount| {
        // A file system of several devices (btrfs) has a number of its own.
        mount.source.starts_with("/dev/")
            && rustix::fs::stat(&mount.source).is_ok_and(|stat| is_it(stat.st_rdev))
    };
    let mut found = mounts.iter().filter(|mount| is_it(mount.device) || source_is_it(mount));
    found.next().map(|mount| mount.place.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line =
            b"36 35 7:3 /sub /mnt/a\\040b rw,noatime master:1 - ext4 /dev/loop3 rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!(mount.device, rustix::fs::makedev(7, 3));
        assert_eq!(
            (mount.root.as_path(), mount.place.as_path()),
            ("/sub".as_ref(), "/mnt/a b".as_ref())
        );
        assert_eq!((mount.kind.as_str(), mount.source.as_path()), ("ext4", "/dev/loop3".as_ref()));
        for broken in [&b""[..], b"36 35", b"36 35 7:x / / rw - a b c", b"36 35 7:1 / /"] {
            assert_eq!(parse(broken), None);
        }
        let below = Mount { place: "/mnt".into(), ..mount.clone() };
        let all = [below.clone(), mount.clone()];
        assert_eq!(mount_of(&all, Path::new("/mnt/a b/c")), Some(&mount));
        assert_eq!(mount_of(&all, Path::new("/mnt/a bc")), Some(&below));
        assert_eq!(mount_of(&all, Path::new("/other")), None);
        let number = rustix::fs::makedev(7, 3);
        assert_eq!(mounted_at(&all[1..], |it| it == number), Some("/mnt/a b".into()));
        assert_eq!(mounted_at(&all, |it| it == 1), None);
        assert!(!mounts().is_empty());
    }
}
