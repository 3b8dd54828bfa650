//! Commands about devices: each waits for the driver's answer, but not for ever.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::error::UblkError;
use super::uapi::{
    ADD_DEVICE, CONTROL_PATH, ControlCommand, DELETE_DEVICE, DeviceInfo, END_RECOVERY,
    FEATURE_IOCTL_ENCODE, FEATURE_RECOVERY, FEATURE_REISSUE, GET_DEVICE_INFO, GET_FEATURES,
    GET_PARAMETERS, Parameters, SET_PARAMETERS, START_DEVICE, START_RECOVERY, STOP_DEVICE,
};
use crate::ring::command_ring::{COMMAND_BYTES, CommandError, CommandRing};

/// How long a command may take. Some have the partition table read, or wait for the requests under
/// way.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// What each of our devices is made with.
const FEATURES: u64 = FEATURE_RECOVERY | FEATURE_REISSUE | FEATURE_IOCTL_ENCODE;

/// Kernels on which making a device ends in an oops: they have the queues' memory by NUMA node
/// without the reordering that it needs. By the beginning of their release, and what else is in it.
/// Linux 6.18.6 has both.
const BAD_KERNELS: [(&str, &str); 4] =
    [("6.18.4", ""), ("6.18.5", ""), ("6.17.0-", "-aws"), ("6.17.0-", "-azure")];
const WHY_BAD: &str = "it crashes when a device is made (in ublk_init_queues)";

/// Talks to the driver.
pub struct Control {
    file: File,
    ring: CommandRing,
}

impl Control {
    /// Opens it, if the driver is one that can be used.
    pub fn open() -> Result<Control, UblkError> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let release = release.trim().to_owned();
        if is_bad(&release) {
            return Err(UblkError::BadKernel { release, reason: WHY_BAD });
        }
        let file = File::options().read(true).write(true).open(CONTROL_PATH);
        let file = file.map_err(|source| UblkError::Control { source })?;
        let ring = CommandRing::new().map_err(|source| UblkError::Ring { source })?;
        let mut control = Control { file, ring };
        let missing = match control.features() {
            Ok(features) if features & FEATURES == FEATURES => return Ok(control),
            Ok(_) => "recovery by another server (UBLK_F_USER_RECOVERY_REISSUE)",
            // What it says depends on its age.
            Err(UblkError::Command {
                errno: Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV,
                ..
            }) => "a way to ask what it can do (GET_FEATURES, Linux 6.5)",
            Err(error) => return Err(error),
        };
        Err(UblkError::TooOld { release, missing })
    }

    fn features(&mut self) -> Result<u64, UblkError> {
        let bytes = self.get("use", GET_FEATURES, u32::MAX, [0; 8])?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// What a device is; `None`: there is none of this number.
    pub fn device_info(&mut self, number: u32) -> Result<Option<DeviceInfo>, UblkError> {
        let command = ControlCommand { device: number, ..Default::default() };
        let empty = DeviceInfo::default();
        match self.give("look at", GET_DEVICE_INFO, command, empty.as_bytes()) {
            Ok(bytes) => Ok(DeviceInfo::read_from_bytes(&bytes).ok()),
            Err(UblkError::Command { errno: Errno::NODEV, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a device, with the next free number or this one.
    pub fn add(
        &mut self,
        number: Option<u32>,
        queue_depth: u16,
        io_bytes_max: u32,
        owner_mark: u64,
    ) -> Result<DeviceInfo, UblkError> {
        let device = number.unwrap_or(u32::MAX);
        let info = DeviceInfo {
            queues: 1,
            queue_depth,
            io_bytes_max,
            device,
            server_pid: own_pid(),
            features: FEATURES,
            owner_mark,
            ..Default::default()
        };
        let command = ControlCommand { device, ..Default::default() };
        let bytes = self.give("make", ADD_DEVICE, command, info.as_bytes())?;
        Ok(DeviceInfo::read_from_bytes(&bytes).expect("as many bytes as went in"))
    }

    /// Sets size and limits.
    pub fn set_parameters(
        &mut self,
        number: u32,
        parameters: &Parameters,
    ) -> Result<(), UblkError> {
        let command = ControlCommand { device: number, ..Default::default() };
        self.give("set the size of", SET_PARAMETERS, command, parameters.as_bytes())?;
        Ok(())
    }

    /// Reads size and limits.
    pub fn parameters(&mut self, number: u32) -> Result<Parameters, UblkError> {
        let command = ControlCommand { device: number, ..Default::default() };
        let length = size_of::<Parameters>() as u32;
        let asked = Parameters { length, ..Default::default() };
        let bytes = self.give("look at", GET_PARAMETERS, command, asked.as_bytes())?;
        Ok(Parameters::read_from_bytes(&bytes).expect("as many bytes as went in"))
    }

    /// Shows a device whose tags are being fetched to everybody.
    pub fn start(&mut self, number: u32) -> Result<(), UblkError> {
        self.simple("start", START_DEVICE, number, own_pid() as u64)
    }

    /// Begins to take over from a dead server; `EBUSY` as long as the kernel has not cleared up
    /// after it.
    pub fn start_recovery(&mut self, number: u32) -> Result<(), UblkError> {
        self.simple("take over", START_RECOVERY, number, 0)
    }

    /// All tags are being fetched: requests come again.
    pub fn end_recovery(&mut self, number: u32) -> Result<(), UblkError> {
        self.simple("take over", END_RECOVERY, number, own_pid() as u64)
    }

    /// Takes it away from its users; what comes later fails.
    pub fn stop(&mut self, number: u32) -> Result<(), UblkError> {
        self.simple("stop", STOP_DEVICE, number, 0)
    }

    /// Removes it.
    pub fn delete(&mut self, number: u32) -> Result<(), UblkError> {
        self.simple("remove", DELETE_DEVICE, number, 0)
    }

    fn simple(
        &mut self,
        operation: &'static str,
        code: u32,
        device: u32,
        data: u64,
    ) -> Result<(), UblkError> {
        let command = ControlCommand { device, data, ..Default::default() };
        self.give(operation, code, command, &[]).map(|_| ())
    }

    fn get<const N: usize>(
        &mut self,
        operation: &'static str,
        code: u32,
        device: u32,
        bytes: [u8; N],
    ) -> Result<[u8; N], UblkError> {
        let command = ControlCommand { device, ..Default::default() };
        let bytes = self.give(operation, code, command, &bytes)?;
        Ok((*bytes).try_into().expect("as many bytes as went in"))
    }

    /// Gives a command with these bytes, and returns what the driver made of them.
    fn give(
        &mut self,
        operation: &'static str,
        code: u32,
        command: ControlCommand,
        bytes: &[u8],
    ) -> Result<Box<[u8]>, UblkError> {
        let number = Some(command.device).filter(|number| *number != u32::MAX);
        let length = u16::try_from(bytes.len()).expect("arguments are short");
        let fill = |address| {
            let address = if length == 0 { 0 } else { address };
            let command = ControlCommand { queue: u16::MAX, length, address, ..command };
            let mut filled = [0; COMMAND_BYTES];
            filled[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
            filled
        };
        match self.ring.command(&self.file, code, fill, bytes.into(), COMMAND_TIMEOUT) {
            Ok((_, bytes)) => Ok(bytes),
            Err(CommandError::Errno(errno)) => Err(UblkError::Command { operation, number, errno }),
            Err(CommandError::TimedOut) => {
                let seconds = COMMAND_TIMEOUT.as_secs();
                Err(UblkError::TimedOut { operation, number, seconds })
            }
        }
    }
}

/// Numbers of all devices that there are.
pub fn numbers() -> io::Result<Vec<u32>> {
    let entries = match std::fs::read_dir("/sys/class/ublk-char") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|n| n.strip_prefix("ublkc")?.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The block device of this number.
pub fn block_path(number: u32) -> PathBuf {
    format!("/dev/ublkb{number}").into()
}

/// Its server's end.
pub fn server_path(number: u32) -> PathBuf {
    format!("/dev/ublkc{number}").into()
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Whether a kernel is not to be used.
fn is_bad(release: &str) -> bool {
    BAD_KERNELS.iter().any(|(beginning, part)| {
        let Some(rest) = release.strip_prefix(beginning) else { return false };
        // 6.18.4 is not 6.18.40.
        let is_whole = beginning.ends_with('-') || !rest.starts_with(|c: char| c.is_ascii_digit());
        is_whole && rest.contains(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_kernels_are_told_from_their_neighbours() {
        for bad in ["6.18.4-arch1-1", "6.18.5", "6.17.0-1017-aws", "6.17.0-1015-azure"] {
            assert!(is_bad(bad), "{bad}");
        }
        for good in ["6.18.44", "6.18.6", "6.17.0-5-generic", "6.12.117+deb12-amd64", "6.1.0"] {
            assert!(!is_bad(good), "{good}");
        }
    }
}
