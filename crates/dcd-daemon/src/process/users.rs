//! Who uses a block device, or a mount: file systems mounted from it, devices made of it, processes
//! that have it open.
//!
//! What is looked at is what the kernel shows of other processes in `/proc` and `/sys`. Of what is
//! hidden from us (another user's processes, another container) at least the claim on a block
//! device is seen: opening it exclusively fails.
//!
//! **Threads.** Nothing in here may run on the thread of the event loop: opening and syncing a
//! device may need its answers.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::open_files::without_open_files;

/// So many are named; of more their number is told.
const NAMED_MAX: usize = 8;

/// Those who use it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Users {
    /// Each in words.
    pub(crate) names: Vec<String>,
    /// Where file systems are mounted from it.
    pub(crate) mounts: Vec<PathBuf>,
}

impl Users {
    /// Nobody.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All in a line.
    pub(crate) fn words(&self) -> String {
        let more = self.names.len().saturating_sub(NAMED_MAX);
        let mut words = self.names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join("; ");
        if more > 0 {
            words += &format!("; and {more} more");
        }
        words
    }

    /// Has what their file systems have cached written. May take as long as that does.
    pub(crate) fn sync(&self) {
        let mounts = self.mounts.clone();
        let _ = without_open_files(move || {
            for mount in mounts {
                match File::open(&mount) {
                    Ok(directory) => drop(rustix::fs::syncfs(&directory)),
                    // Who may not look there any more has everything written.
                    Err(_) => rustix::fs::sync(),
                }
            }
        });
    }
}

/// A block device, its partitions, and what is made of them.
#[derive(Default)]
struct Devices {
    paths: BTreeSet<PathBuf>,
    numbers: BTreeSet<String>,
    names: Vec<String>,
}

impl Devices {
    fn add(&mut self, path: &Path) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
        let directory = Path::new("/sys/class/block").join(name);
        let Ok(number) = std::fs::read_to_string(directory.join("dev")) else { return };
        if !self.numbers.insert(number.trim().to_owned()) {
            return;
        }
        self.paths.insert(path.to_owned());
        if let Ok(mapped) = std::fs::read_to_string(directory.join("dm/name")) {
            self.paths.insert(Path::new("/dev/mapper").join(mapped.trim()));
        }
        for holder in names_in(&directory.join("holders")) {
            let mapped =
                std::fs::read_to_string(directory.join("holders").join(&holder).join("dm/name"));
            let mapped = mapped.map_or(String::new(), |mapped| format!(" ({})", mapped.trim()));
            self.names.push(format!("{} is part of {holder}{mapped}", path.display()));
            self.add(&Path::new("/dev").join(holder));
        }
        for part in names_in(&directory).filter(|part| part.starts_with(name)) {
            self.add(&Path::new("/dev").join(part));
        }
    }
}

fn names_in(directory: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// On behalf of the daemon that started this process.
pub(crate) fn look_for_daemon(devices: &[PathBuf], fuse: Option<&Path>) -> Users {
    let daemon = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    look(devices, fuse, daemon)
}

/// Looks at these devices, and at a FUSE mount; what `daemon` has open does not count.
pub(crate) fn look(devices: &[PathBuf], fuse: Option<&Path>, daemon: Option<String>) -> Users {
    let mut found = Devices::default();
    devices.iter().for_each(|device| found.add(device));
    let fuse = fuse.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    let mut users = Users { names: found.names.clone(), mounts: Vec::new() };
    let mut name_spaces = BTreeSet::new();
    let mut mounted = BTreeSet::new();
    let mut processes = Vec::new();
    let own = std::process::id().to_string();
    // Our own mounts first: where they are told twice, ours is the name that can be used.
    let others =
        names_in(Path::new("/proc")).filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    for process in std::iter::once(own.clone()).chain(others) {
        let directory = Path::new("/proc").join(&process);
        let name_space = std::fs::read_link(directory.join("ns/mnt")).ok();
        // One that is hidden is looked at all the same.
        if name_space.is_none_or(|name_space| name_spaces.insert(name_space)) {
            let mounts = std::fs::read_to_string(directory.join("mountinfo")).unwrap_or_default();
            for Mount { place, kind, source } in mounts.lines().filter_map(|line| found.mount(line))
            {
                if !mounted.insert(format!("{place} {source}")) {
                    continue;
                }
                users.names.push(format!("{source} is mounted at {place} ({kind})"));
                if process == own {
                    users.mounts.push(place.into());
                }
            }
        }
        if process == own || Some(&process) == daemon.as_ref() {
            continue;
        }
        let files = names_in(&directory.join("fd")).map(|name| Path::new("fd").join(name));
        let links = ["cwd", "root", "exe"].map(PathBuf::from).into_iter().chain(files);
        let opened = links.filter_map(|link| std::fs::read_link(directory.join(link)).ok());
        let is_ours = |path: &PathBuf| {
            found.paths.contains(path) || fuse.as_ref().is_some_and(|fuse| path.starts_with(fuse))
        };
        if let Some(path) = opened.into_iter().find(is_ours) {
            let command = command_of(&process);
            // It looks at each new device, and is gone in a moment.
            if command.contains("udev") {
                continue;
            }
            processes.push(format!("process {process}{command} has {} open", path.display()));
        }
    }
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swaps = swaps.lines().filter_map(|line| line.split(' ').next());
    for swap in swaps.filter(|swap| found.paths.contains(Path::new(swap))) {
        users.names.push(format!("{swap} is swapped to"));
    }
    users.names.append(&mut processes);
    if users.names.is_empty() {
        let claimed = devices.iter().filter(|device| is_claimed(device));
        users.names.extend(claimed.map(|device| {
            format!("{} is in use, where it cannot be seen (another container)", device.display())
        }));
    }
    users
}

/// Who uses a block device, in words, and where it is mounted. Looks at open files of all.
pub(crate) fn users_of(device: &Path) -> (Vec<String>, Vec<PathBuf>) {
    let users = look(&[device.to_owned()], None, None);
    (users.names, users.mounts)
}

/// ` (bash)`, if that can be known.
pub(crate) fn command_of(process: &str) -> String {
    let command = std::fs::read_to_string(Path::new("/proc").join(process).join("comm"));
    command
        .map_or(String::new(), |command| format!(" ({})", dcd_client::plain::plain(command.trim())))
}

struct Mount<'a> {
    place: String,
    kind: &'a str,
    source: &'a str,
}

impl Devices {
    /// A line of mountinfo, if it is a mount of these devices: `36 35 98:0 /root /place options -
    /// kind source options`.
    fn mount<'a>(&self, line: &'a str) -> Option<Mount<'a>> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(2);
        let (number, place) = (mount.next()?, mount.nth(1)?);
        let mut file_system = file_system.split(' ');
        let (kind, source) = (file_system.next()?, file_system.next()?);
        // Some file systems have numbers of their own, and say only by name what they are on.
        let is_ours = self.numbers.contains(number) || self.paths.contains(Path::new(source));
        is_ours.then(|| Mount { place: unescaped(place), kind, source })
    }
}

/// Blanks and the like are octal numbers in mountinfo.
fn unescaped(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (code, character)| text.replace(code, character))
}

/// Whether somebody has the device for himself: a mount, a swap area, a device made of it.
fn is_claimed(device: &Path) -> bool {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK);
    let busy = |error: &std::io::Error| error.raw_os_error() == Some(libc::EBUSY);
    options.open(device).is_err_and(|error| busy(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_known_by_number_and_by_name() {
        let devices = Devices {
            paths: [PathBuf::from("/dev/loop7"), PathBuf::from("/dev/loop7p1")].into(),
            numbers: ["7:7".to_owned(), "259:3".to_owned()].into(),
            names: Vec::new(),
        };
        let place = |line: &str| devices.mount(line).map(|mount| mount.place);
        let mounted = "36 35 7:7 / /mnt/two\\040words rw,relatime shared:1 - ext4 /dev/loop7 rw";
        assert_eq!(place(mounted).as_deref(), Some("/mnt/two words"));
        let btrfs = "40 35 0:44 /sub /mnt rw - btrfs /dev/loop7p1 rw,subvol=/sub";
        assert_eq!(place(btrfs).as_deref(), Some("/mnt"));
        assert_eq!(place("40 35 7:8 / /mnt rw - ext4 /dev/loop8 rw"), None);
        for broken in ["", " - ", "1 2", "1 2 7:7 / - ext4", "1 2 7:7 - ext4 /dev/loop7"] {
            assert_eq!(place(broken), None, "{broken}");
        }
    }

    #[test]
    fn many_are_counted() {
        let names = (0..11).map(|number| format!("user {number}")).collect();
        let words = Users { names, mounts: Vec::new() }.words();
        assert!(words.starts_with("user 0; user 1; ") && words.ends_with("user 7; and 3 more"));
    }
}
