//! A device from nothing, or from a dead server, to one that is served; and its end.
//!
//! ```text
//! new:        ADD_DEVICE, SET_PARAMETERS, open, the event loop fetches all tags and maps, START_DEVICE
//! taken over: START_RECOVERY (until the kernel has cleared up), open, tags fetched, then mapped,
//! END_RECOVERY
//! end:        flush what the kernel still has to write, STOP_DEVICE, event loop closes, DELETE_DEVICE
//! ```
//!
//! A device carries a mark of its cache (the first bytes of the UUID), so that a start takes over
//! its own devices only. It stays when its server dies, or ends while somebody uses it; then
//! requests wait for the next server. Which server answers which request is the driver's affair:
//! what was not answered is sent again.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::control::{Control, block_path, numbers, server_path};
use super::descriptors::ServerEnd;
use super::error::{DeviceKind, UblkError};
use super::uapi::{
    ATTRIBUTE_FUA, ATTRIBUTE_READ_ONLY, ATTRIBUTE_VOLATILE_CACHE, Basic, DeviceInfo, Discard,
    Parameters, STATE_DEAD, STATE_LIVE, TYPE_BASIC, TYPE_DISCARD,
};

/// Requests at a time. With the next one this is as much memory as one NBD client may take, 64 MiB.
pub const QUEUE_DEPTH: u16 = 64;
/// Longest read or write in bytes; the kernel splits what is longer. Not less than the default of
/// `bypass-threshold`: else no write of a ublk device would ever go past the log.
pub const IO_BYTES_MAX: u32 = 1 << 20;
/// Longest discard or write of zeroes: as many bytes as fit into the kernel's 32 bits.
const ZEROES_BLOCKS_MAX: u32 = u32::MAX >> 9;
/// How long a dead server's device may take to be ready for the next.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(30);
/// How long the files of a device may take to appear.
const FILE_PATIENCE: Duration = Duration::from_secs(10);
/// How long the event loop may take to close its end of a stopped device.
const CLOSE_PATIENCE: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(20);

/// What is served.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Says whose device it is.
    pub mark: u64,
    /// Size in blocks of 512 bytes.
    pub blocks: u64,
    /// Smallest request in bytes.
    pub logical_block_size: u32,
    /// What the data-disk writes at once, in bytes.
    pub physical_block_size: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether discards are offered: they give space back.
    pub trim: bool,
}

impl Volume {
    /// Limits as the kernel takes them.
    fn parameters(&self) -> Parameters {
        let physical = self.physical_block_size.max(self.logical_block_size);
        let shift = |bytes: u32| bytes.trailing_zeros() as u8;
        let read_only = if self.read_only { ATTRIBUTE_READ_ONLY } else { 0 };
        let unit = u64::from(self.logical_block_size) / 512;
        Parameters {
            length: size_of::<Parameters>() as u32,
            types: TYPE_BASIC | TYPE_DISCARD,
            basic: Basic {
                // Always a volatile cache: in each mode a flush promises more than a reply, or
                // costs nothing.
                attributes: ATTRIBUTE_VOLATILE_CACHE | ATTRIBUTE_FUA | read_only,
                logical_block_shift: shift(self.logical_block_size),
                physical_block_shift: shift(physical),
                // No size of requests is better than another: the log takes them as they come.
                io_best_shift: shift(physical),
                io_least_shift: shift(physical),
                blocks_max: IO_BYTES_MAX / 512,
                chunk_blocks: 0,
                device_blocks: self.blocks / unit * unit,
                virtual_boundary_mask: 0,
            },
            discard: Discard {
                alignment: 0,
                granularity: physical,
                discard_blocks_max: if self.trim { ZEROES_BLOCKS_MAX } else { 0 },
                zeroes_blocks_max: ZEROES_BLOCKS_MAX,
                segments_max: 1,
                reserved: 0,
            },
            rest: 0,
        }
    }
}

/// A device that is being served.
pub struct Device {
    control: Control,
    number: u32,
    server: Server,
}

/// What is to become of a device whose server ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It stays.
    Leave,
    /// It is removed, unless somebody uses it.
    RemoveUnused,
    /// It is removed.
    Remove,
}

/// How a device has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It is gone.
    Removed,
    /// It waits for the next server.
    Left,
}

impl Device {
    /// Makes a device, or takes over the one that an earlier server of the volume left. `serve`
    /// hands the server's end to the event loop, which begins to fetch.
    pub fn make(
        number: Option<u32>,
        volume: &Volume,
        serve: impl FnOnce(ServerEnd, u32),
    ) -> Result<Device, UblkError> {
        let mut control = Control::open()?;
        match find(&mut control, number, volume)? {
            Some(info) => Device::take_over(control, info, volume, serve),
            None => Device::make_new(control, number, volume, serve),
        }
    }

    fn make_new(
        mut control: Control,
        number: Option<u32>,
        volume: &Volume,
        serve: impl FnOnce(ServerEnd, u32),
    ) -> Result<Device, UblkError> {
        let info = control.add(number, QUEUE_DEPTH, IO_BYTES_MAX, volume.mark)?;
        let number = info.device;
        let made = control
            .set_parameters(number, &volume.parameters())
            .and_then(|()| Server::begin(&info, serve))
            .and_then(|server| {
                control.start(number)?;
                let path = block_path(number);
                wait_for(&path, || std::fs::metadata(&path)).map(|_| server)
            });
        match made {
            Ok(server) => Ok(Device { control, number, server }),
            Err(error) => {
                // If even that fails there is nothing more to be done.
                let _ = control.stop(number);
                let _ = control.delete(number);
                Err(error)
            }
        }
    }

    fn take_over(
        mut control: Control,
        info: DeviceInfo,
        volume: &Volume,
        serve: impl FnOnce(ServerEnd, u32),
    ) -> Result<Device, UblkError> {
        let number = info.device;
        let (found, expected) = (control.parameters(number)?.basic, volume.parameters().basic);
        if found.device_blocks != expected.device_blocks {
            let (expected, found) = (expected.device_blocks, found.device_blocks);
            return Err(UblkError::Size { number, expected, found });
        }
        // Its users believe what they were told when it was made.
        let (found, expected) = (DeviceKind::of(&found), DeviceKind::of(&expected));
        if found != expected {
            return Err(UblkError::Kind { number, expected, found });
        }
        let until = Instant::now() + RECOVERY_PATIENCE;
        loop {
            match control.start_recovery(number) {
                Ok(()) => break,
                // An earlier server has done this, and died before it fetched: Linux 6.12 does not
                // do it twice. What else may be wrong shows in the steps behind it.
                Err(UblkError::Command { errno: Errno::INVAL, .. }) => break,
                Err(UblkError::Command { errno: Errno::BUSY, .. }) if Instant::now() < until => {
                    std::thread::sleep(INTERVAL);
                }
                Err(error) => return Err(error),
            }
        }
        let server = Server::begin(&info, serve)?;
        control.end_recovery(number)?;
        Ok(Device { control, number, server })
    }

    /// The block device.
    pub fn path(&self) -> PathBuf {
        block_path(self.number)
    }

    /// Ends it. The event loop must still serve.
    pub fn end(mut self, end: End) -> Result<Ended, UblkError> {
        if end == End::Leave {
            return Ok(Ended::Left);
        }
        let path = self.path();
        // Exclusively: fails while it is mounted, or part of something.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = match rustix::fs::open(&path, flags | OFlags::EXCL, Mode::empty()) {
            Err(Errno::BUSY) if end == End::RemoveUnused => return Ok(Ended::Left),
            Err(Errno::BUSY) => rustix::fs::open(&path, flags, Mode::empty()),
            opened => opened,
        };
        let failed =
            |errno: Errno| UblkError::File { operation: "flush", path, source: errno.into() };
        let opened = match opened {
            Ok(opened) => opened,
            Err(errno) => return Err(failed(errno)),
        };
        // 1. What the kernel holds back is written and flushed. A crash here leaves the device to
        //    the next server.
        rustix::fs::fsync(&opened).map_err(failed)?;
        // 2. It goes from its users. What they still write fails, as it must with nobody to take
        //    it. Until then it is ours alone: nobody can mount it in between and lose it at once.
        self.control.stop(self.number)?;
        drop(opened);
        // 3. Its fetches end, and the event loop closes it. A crash here leaves a device that the
        //    next start removes.
        let _ = self.server.news.recv_timeout(CLOSE_PATIENCE);
        // 4. The number is free.
        self.control.delete(self.number)?;
        Ok(Ended::Removed)
    }
}

/// A device of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its number.
    pub number: u32,
    /// Size in blocks of 512 bytes.
    pub blocks: u64,
    /// Who serves it; `None`: it waits for a server.
    pub served_by: Option<i32>,
}

/// All devices, whoever made them.
pub fn list() -> Result<Vec<Listed>, UblkError> {
    let mut control = Control::open()?;
    let mut listed = Vec::new();
    for number in all_numbers()? {
        // One may go meanwhile.
        let Some(info) = control.device_info(number)? else { continue };
        let blocks = control.parameters(number)?.basic.device_blocks;
        let served_by = is_served(&info).then_some(info.server_pid);
        listed.push(Listed { number, blocks, served_by });
    }
    Ok(listed)
}

fn all_numbers() -> Result<Vec<u32>, UblkError> {
    numbers().map_err(|source| {
        let path = "/sys/class/ublk-char".into();
        UblkError::File { operation: "list", path, source }
    })
}

/// Whether this machine can have devices; to be asked before anything is done.
pub fn check() -> Result<(), UblkError> {
    Control::open().map(drop)
}

/// Removes a device that nobody serves: requests that wait in it fail.
pub fn remove(number: u32) -> Result<bool, UblkError> {
    let mut control = Control::open()?;
    let Some(info) = control.device_info(number)? else { return Ok(false) };
    if is_served(&info) {
        return Err(UblkError::Served { number, pid: info.server_pid });
    }
    control.stop(number)?;
    control.delete(number)?;
    Ok(true)
}

/// The device that an earlier server of this volume has left: that of this number, or any.
fn find(
    control: &mut Control,
    number: Option<u32>,
    volume: &Volume,
) -> Result<Option<DeviceInfo>, UblkError> {
    let numbers = match number {
        Some(number) => vec![number],
        None => all_numbers()?,
    };
    for candidate in numbers {
        let Some(info) = control.device_info(candidate)? else { continue };
        let is_ours = info.owner_mark == volume.mark;
        match number {
            Some(number) if is_served(&info) => {
                return Err(UblkError::Served { number, pid: info.server_pid });
            }
            Some(number) if !is_ours => return Err(UblkError::Foreign { number }),
            None if !is_ours || is_served(&info) => continue,
            _ => {}
        }
        if info.state == STATE_DEAD {
            // Its server died before the start or after the stop: there is nothing in it.
            control.delete(candidate)?;
            continue;
        }
        return Ok(Some(info));
    }
    Ok(None)
}

/// Whether its server lives. A process that is being ended still has its number for a moment, but
/// no command line.
fn is_served(info: &DeviceInfo) -> bool {
    if info.state == STATE_DEAD && info.server_pid <= 0 {
        return false;
    }
    let command = std::fs::read(format!("/proc/{}/cmdline", info.server_pid));
    info.server_pid != rustix::process::getpid().as_raw_nonzero().get()
        && command.is_ok_and(|command| !command.is_empty())
        // Its number may be another's by now. Who may not look believes the driver.
        && has_open(info.server_pid, &server_path(info.device)).unwrap_or(info.state == STATE_LIVE)
}

/// Whether a process has a file open; `None`: that is hidden from us. A confined process sees it of
/// no other.
fn has_open(pid: i32, path: &Path) -> Option<bool> {
    let descriptors = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(descriptors) => descriptors,
        Err(error) => return (error.kind() != io::ErrorKind::PermissionDenied).then_some(false),
    };
    let mut is_hidden = false;
    for entry in descriptors.flatten() {
        match std::fs::read_link(entry.path()) {
            Ok(target) if target == path => return Some(true),
            Err(error) => is_hidden |= error.kind() == io::ErrorKind::PermissionDenied,
            Ok(_) => {}
        }
    }
    (!is_hidden).then_some(false)
}

/// The event loop's end of a device, as seen from here.
struct Server {
    /// First, whether the requests could be mapped; ends when the event loop has closed its end.
    news: mpsc::Receiver<Result<(), Errno>>,
}

impl Server {
    /// Opens the server's end, gives it to the event loop, and waits until all tags are being
    /// fetched.
    fn begin(info: &DeviceInfo, serve: impl FnOnce(ServerEnd, u32)) -> Result<Server, UblkError> {
        let path = server_path(info.device);
        let file = wait_for(&path, || File::options().read(true).write(true).open(&path))?;
        let (sender, news) = mpsc::channel();
        serve(ServerEnd::new(file, info.queue_depth, sender), info.io_bytes_max);
        // It ends without a word if the event loop has ended.
        news.recv().unwrap_or(Err(Errno::CANCELED)).map_err(|errno| UblkError::File {
            operation: "map",
            path,
            source: errno.into(),
        })?;
        Ok(Server { news })
    }
}

/// Tries until a file is there, udev has given it to our group, and nobody else has it.
fn wait_for<T>(path: &Path, mut open: impl FnMut() -> io::Result<T>) -> Result<T, UblkError> {
    let until = Instant::now() + FILE_PATIENCE;
    loop {
        match open() {
            Ok(opened) => return Ok(opened),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::PermissionDenied
                        | io::ErrorKind::ResourceBusy
                ) && Instant::now() < until =>
            {
                std::thread::sleep(INTERVAL);
            }
            Err(source) => {
                return Err(UblkError::File { operation: "open", path: path.to_owned(), source });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_data_disk() {
        let volume = Volume {
            mark: 1,
            blocks: 1003,
            logical_block_size: 512,
            physical_block_size: 4096,
            read_only: false,
            trim: true,
        };
        let basic = volume.parameters().basic;
        assert_eq!((basic.logical_block_shift, basic.physical_block_shift), (9, 12));
        assert_eq!(basic.device_blocks, 1003);
        assert_eq!(basic.attributes, ATTRIBUTE_VOLATILE_CACHE | ATTRIBUTE_FUA);
        let large = Volume { logical_block_size: 4096, physical_block_size: 512, ..volume };
        let parameters = Volume { read_only: true, ..large }.parameters();
        let basic = parameters.basic;
        assert_eq!((basic.logical_block_shift, basic.physical_block_shift), (12, 12));
        assert_eq!((basic.device_blocks, parameters.discard.granularity), (1000, 4096));
        assert_ne!(basic.attributes & ATTRIBUTE_READ_ONLY, 0);
    }
}
