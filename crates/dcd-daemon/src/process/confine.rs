//! Which files a serving process may still open: its first step, once disks and sockets are open,
//! is to give up all others (Landlock, Linux 5.13). What speaks to strangers, in a thread that was
//! started behind that, can then neither read a file of somebody else nor write one, nor run a
//! program, nor connect to anywhere by TCP.
//!
//! Signals to others, and connecting to sockets without a name, are given up as well, where the
//! kernel knows how (6.12).
//!
//! It costs an open file nothing: rights are looked at when something is opened.

use std::path::{Path, PathBuf};

use dcd_engine::Uuid;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};

/// What is restricted; an older kernel restricts what it knows of that.
const RIGHTS: ABI = ABI::V5;
const SCOPES: ABI = ABI::V6;

/// Directories, and files, that are still needed.
#[derive(Debug, Default)]
pub(crate) struct Reach(Vec<(PathBuf, BitFlags<AccessFs>)>);

impl Reach {
    /// What every process that serves needs: devices, and what the kernel tells of itself.
    pub(crate) fn new() -> Reach {
        let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
        let mut reach = Reach::default();
        // Its names, and devices that are nobody's.
        reach.add("/dev".into(), AccessFs::ReadDir.into());
        reach.add("/dev/null".into(), make_bitflags!(AccessFs::{ReadFile | WriteFile}));
        reach.add("/dev/urandom".into(), AccessFs::ReadFile.into());
        reach.add("/proc".into(), read);
        reach.add("/sys".into(), read);
        // For a panic to say where it was.
        reach.0.extend(std::env::current_exe().map(|path| (path, AccessFs::ReadFile.into())));
        reach
    }

    /// Devices that are made later, whose names are not known: of ublk.
    pub(crate) fn devices_to_be(&mut self) {
        let device = make_bitflags!(AccessFs::{ReadFile | WriteFile | ReadDir | IoctlDev});
        self.add("/dev".into(), device);
    }

    /// A file there is opened again, made anew if somebody removes it, and removed at the end. What
    /// took its name is moved aside, whatever it is: to rename takes the rights to make one and to
    /// remove one.
    pub(crate) fn memory_directory(&mut self, directory: &Path) {
        let rights = make_bitflags!(AccessFs::{
            ReadFile | WriteFile | MakeReg | RemoveFile | Truncate | MakeDir | RemoveDir | MakeFifo
                | MakeSym | MakeSock
        });
        self.add(directory.to_owned(), rights);
        // One that was made for this cache alone goes at the end as well, which takes a right above it.
        // Those of other caches that are in use are not empty, and stay.
        let name = directory.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.parse::<Uuid>().is_ok()) {
            self.add(directory_of(directory), AccessFs::RemoveDir.into());
        }
    }

    /// A socket that is removed at the end, where nobody else does that. It takes the right to
    /// remove any file beside it.
    pub(crate) fn socket(&mut self, path: &Path) {
        self.add(directory_of(path), AccessFs::RemoveFile.into());
    }

    /// It is opened again so that udev looks at it. What stands in for a failing disk reads its
    /// rules again.
    pub(crate) fn disk(&mut self, disk: &Path, fault_rules: Option<&Path>) {
        let device = make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev | Truncate});
        self.add(disk.to_owned(), device);
        fault_rules.into_iter().for_each(|path| self.watched_file(path));
    }

    /// It is read again, and may be another file then, in the same place.
    pub(crate) fn watched_file(&mut self, path: &Path) {
        let target = path.canonicalize().ok();
        for path in [Some(path), target.as_deref()].into_iter().flatten() {
            self.add(directory_of(path), make_bitflags!(AccessFs::{ReadFile | ReadDir}));
        }
    }

    fn add(&mut self, path: PathBuf, rights: BitFlags<AccessFs>) {
        self.0.push((path, rights));
    }

    /// Gives up everything else, for the calling thread and those that it starts later. Whether
    /// that is so: a kernel without Landlock, or a container that forbids it, is no reason not to
    /// serve.
    pub(crate) fn confine(self) -> bool {
        self.try_confine().is_ok_and(|status| status != RulesetStatus::NotEnforced)
    }

    fn try_confine(self) -> Result<RulesetStatus, RulesetError> {
        let mut rules = Ruleset::default()
            .handle_access(AccessFs::from_all(RIGHTS))?
            // All addresses are bound.
            .handle_access(AccessNet::ConnectTcp | AccessNet::BindTcp)?
            // Signals to others, and sockets of others that have no name in the file system (Linux
            // 6.12).
            .scope(Scope::from_all(SCOPES))?
            .create()?;
        for (path, rights) in self.0 {
            // What is not there cannot be opened anyway.
            let Ok(opened) = PathFd::new(&path) else { continue };
            rules = rules.add_rule(PathBeneath::new(opened, rights))?;
        }
        Ok(rules.restrict_self()?.ruleset)
    }
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => ".".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_is_needed_can_be_had_and_nothing_else() {
        let directory = std::env::temp_dir().join(format!("dcd-confine-{}", std::process::id()));
        let (ours, other) = (directory.join("ours"), directory.join("other"));
        for path in [&ours, &other] {
            std::fs::create_dir_all(path).unwrap();
            std::fs::write(path.join("key"), "").unwrap();
        }
        // A link, as certificates often are.
        let link = directory.join("key");
        std::os::unix::fs::symlink(ours.join("key"), &link).unwrap();
        let socket = ours.join("socket");
        drop(UnixListener::bind(&socket).unwrap());
        let address = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = (address.local_addr().unwrap(), address);

        let mut reach = Reach::new();
        reach.socket(&socket);
        reach.watched_file(&link);
        // The thread is confined, and not the test.
        let confined = std::thread::spawn(move || {
            let status = reach.try_confine().unwrap();
            if status == RulesetStatus::NotEnforced {
                return false;
            }
            std::fs::read(ours.join("key")).unwrap();
            std::fs::remove_file(&socket).unwrap();
            std::fs::read("/proc/self/status").unwrap();
            std::fs::File::options().write(true).open("/dev/null").unwrap();
            let denied = |result: std::io::Result<()>| {
                assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
            };
            denied(std::fs::write(other.join("key"), "x"));
            denied(std::fs::write(ours.join("new"), "x"));
            denied(std::fs::remove_file(other.join("key")));
            denied(std::fs::read("/etc/passwd").map(drop));
            denied(std::process::Command::new("/bin/true").status().map(drop));
            if status == RulesetStatus::FullyEnforced {
                denied(TcpStream::connect(address.0).map(drop));
            }
            true
        });
        let is_confined = confined.join().unwrap();
        TcpStream::connect(address.0).unwrap();
        std::fs::remove_dir_all(directory).unwrap();
        if !is_confined {
            println!("skipped: this kernel has no Landlock");
        }
    }
}
