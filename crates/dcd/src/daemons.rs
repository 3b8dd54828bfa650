//! Which dcd is meant: by its control socket, by the name of its service, by its UUID, or by the
//! device that it serves.
//!
//! A service `dcd@NAME` has its control socket at `/run/dcd/NAME.ctl`, so names, UUIDs and
//! devices are looked for there.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use dcd_daemon::control::client::ControlClient;
use dcd_engine::Uuid;

use crate::error::CommandError;

/// Where services have their control sockets.
pub const DIRECTORY: &str = "/run/dcd";

/// Where all daemons are asked, each is waited for so long.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// How a verb that has no other words takes a running cache.
#[derive(Args, Debug)]
pub struct RunningCache {
    /// The running cache: the name of its service, its UUID, the device that it serves, or its
    /// control socket.
    #[arg(value_name = "CACHE", required_unless_present = "control", conflicts_with = "control")]
    cache: Option<PathBuf>,
    /// The same.
    #[arg(long, value_name = "CACHE")]
    control: Option<PathBuf>,
}

impl RunningCache {
    /// What was given.
    pub fn name(&self) -> &Path {
        let given = self.cache.as_deref().or(self.control.as_deref());
        given.expect("the command line requires one of them")
    }

    /// Connects to it.
    pub fn connect(&self) -> Result<ControlClient, CommandError> {
        connect(self.name())
    }
}

/// The control socket of the daemon that `named` means.
pub fn find(named: &Path, directory: &Path) -> Result<PathBuf, CommandError> {
    let found = std::fs::metadata(named).map(|it| it.file_type());
    if found.as_ref().is_ok_and(FileTypeExt::is_socket) {
        return Ok(named.to_owned());
    }
    let is_name = named.components().count() == 1 && !named.is_absolute();
    let of_name = directory.join(named).with_added_extension("ctl");
    if is_name && of_name.exists() {
        return Ok(of_name);
    }
    let uuid = named.to_str().and_then(|text| text.parse::<Uuid>().ok());
    if let Some(uuid) = uuid
        && let Some(socket) = all(directory).into_iter().find(|socket| has_uuid(socket, uuid))
    {
        return Ok(socket);
    }
    if let Ok(device) = named.canonicalize()
        && let Some(socket) = all(directory).into_iter().find(|socket| serves(socket, &device))
    {
        return Ok(socket);
    }
    // A socket that was there, or will be: connecting to it says best what is wrong.
    if found.is_err() && !is_name {
        return Ok(named.to_owned());
    }
    Err(CommandError::NoSuchDaemon { named: named.to_owned(), directory: directory.to_owned() })
}

/// Connects to the daemon that `named` means.
pub fn connect(named: &Path) -> Result<ControlClient, CommandError> {
    // Connecting to what is no daemon says what is wrong, with the exit status for that.
    let socket = find(named, Path::new(DIRECTORY)).unwrap_or_else(|_| named.to_owned());
    Ok(ControlClient::connect(&socket)?)
}

/// All control sockets of services, by name.
pub fn all(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut sockets: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ctl"))
        .collect();
    sockets.sort();
    sockets
}

/// The daemon of a service that has this data-disk, if one answers.
#[cfg(feature = "s3")]
pub fn with_data_disk(directory: &Path, data_disk: &str) -> Option<ControlClient> {
    all(directory).into_iter().find_map(|socket| {
        let mut client = ControlClient::connect_within(&socket, LOOK_PATIENCE).ok()?;
        let report = client.status().ok()?;
        // One that is asked for more has to be patient.
        (report.data_disk == data_disk).then(|| ControlClient::connect(&socket).ok())?
    })
}

fn has_uuid(socket: &Path, uuid: Uuid) -> bool {
    let status =
        ControlClient::connect_within(socket, LOOK_PATIENCE).and_then(|mut client| client.status());
    status.is_ok_and(|report| report.uuid == uuid.to_string())
}

/// Whether the daemon there serves this device, or file. One that does not answer does not.
fn serves(socket: &Path, device: &Path) -> bool {
    let Ok(report) =
        ControlClient::connect_within(socket, LOOK_PATIENCE).and_then(|mut client| client.status())
    else {
        return false;
    };
    let mut served = report.frontends.iter().map(Path::new);
    served.any(|path| path == device || path.canonicalize().is_ok_and(|path| path == device))
}
