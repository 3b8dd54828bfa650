//! Whether a directory is fit to be mounted over. While we make the mount, nobody answers for what
//! is below it: who looks there waits for us, and we must not be the one who does, then or later.

use std::path::{Path, PathBuf};

use crate::device::device_spec::DeviceSpec;
use crate::device::shares::disk_of;
use crate::device::way::leads_through;
use crate::frontend::nbd::tls::files::TlsFiles;
use crate::memory::places;
use crate::process::service_manager;
use crate::serve::slow_disk::{self, SlowDiskOptions};
use crate::serve::{ServeError, ServeOptions, disks_of, sockets_of};

/// What a daemon opens, and its name.
type Opened = (&'static str, PathBuf);

/// Refuses a mount that would hide what is opened. `memory`: where the segment memory is, once that
/// is known.
pub(crate) fn check(options: &ServeOptions, memory: Option<&Path>) -> Result<(), ServeError> {
    let Some(directory) = &options.fuse else { return Ok(()) };
    let mut opened: Vec<Opened> = Vec::new();
    for (role, disk) in disks_of(options) {
        let role = if role == "cache-disk" { "the cache-disk" } else { "the data-disk" };
        add_disk(&mut opened, role, disk);
    }
    opened.extend(sockets_of(options).into_iter().map(|path| ("the socket", path)));
    let memory = memory.or(options.memory_directory.as_deref()).map(Path::to_owned);
    let memory = memory.map_or_else(places::bases, |directory| vec![directory]);
    opened.extend(memory.into_iter().map(|path| ("the segment memory in", path)));
    let records = options.pairs.directory.clone();
    opened.extend(records.map(|path| ("the records of pairs in", path)));
    opened.extend(options.settings_file.clone().map(|path| ("the settings", path)));
    let certificates = options.nbd_options.tls.iter().flat_map(TlsFiles::paths);
    opened.extend(certificates.map(|path| ("the certificate or key", path.to_owned())));
    let program = options.caretaker.as_ref().map(|caretaker| caretaker.program.clone());
    opened.extend(program.map(|path| ("the program", path)));
    check_all(directory, opened)
}

/// The same without a cache.
pub(crate) fn check_slow_disk(options: &SlowDiskOptions) -> Result<(), ServeError> {
    let Some(directory) = &options.fuse else { return Ok(()) };
    let mut opened: Vec<Opened> = Vec::new();
    add_disk(&mut opened, "the disk", &options.disk);
    let sockets = slow_disk::sockets_of(options).into_iter();
    opened.extend(sockets.map(|path| ("the socket", path)));
    let certificates = options.nbd_options.tls.iter().flat_map(TlsFiles::paths);
    opened.extend(certificates.map(|path| ("the certificate or key", path.to_owned())));
    check_all(directory, opened)
}

fn add_disk(opened: &mut Vec<Opened>, role: &'static str, disk: &DeviceSpec) {
    opened.push((role, disk_of(disk.path())));
    opened.extend(disk.fault_control().map(|path| ("the rules of faults", path.to_owned())));
}

fn check_all(directory: &Path, mut opened: Vec<Opened>) -> Result<(), ServeError> {
    opened
        .extend(service_manager::socket().map(|path| ("the socket of the service manager", path)));
    // Users are looked for there.
    opened.extend(["/proc", "/sys", "/dev"].map(|path| ("the system's files in", path.into())));
    match opened.into_iter().find(|(_, path)| leads_through(path, directory)) {
        Some((what, path)) => {
            Err(ServeError::MountHides { directory: directory.to_owned(), what, path })
        }
        None => Ok(()),
    }
}
