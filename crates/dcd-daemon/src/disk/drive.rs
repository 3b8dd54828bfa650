//! Drives that are not there, for `model:` disks: whoever has models of them plugs them in. A
//! server needs none, and is not linked with them.

use std::ops::Range;
use std::sync::OnceLock;

use dcd_engine::Time;

pub use crate::device::device_file::DriveProblem;

/// What a drive is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriveWork {
    /// To read.
    Read,
    /// To write; it may be done while it is in a buffer of the drive.
    Write,
    /// To bring its buffer to the platters.
    Flush,
}

/// A model of a drive. Times are those of the caller.
pub trait ModelledDrive {
    /// Its size.
    fn capacity_bytes(&self) -> u64;

    /// What it reads and writes at once.
    fn sector_bytes(&self) -> u32;

    /// Asks for something, of these bytes. Whether it can have that.
    fn submit(&mut self, now: Time, id: u64, work: DriveWork, bytes: Range<u64>) -> bool;

    /// When something is done next.
    fn next_event(&self) -> Option<Time>;

    /// Adds the ids of what is done by now.
    fn advance(&mut self, now: Time, done: &mut Vec<u64>);
}

/// Makes a drive of the name or path of its profile.
pub type OpenDrive = fn(&str) -> Result<Box<dyn ModelledDrive>, DriveProblem>;

static DRIVES: OnceLock<OpenDrive> = OnceLock::new();

/// Says where modelled drives come from, for this process. The first one counts.
pub fn plug_in_drives(open: OpenDrive) {
    let _ = DRIVES.set(open);
}

/// Whether there is a drive of this profile, for whoever only names one.
///
/// # Errors
/// If there is none.
pub fn check_drive(profile: &str) -> Result<(), DriveProblem> {
    open_drive(profile).map(drop)
}

/// A drive of this profile.
pub(crate) fn open_drive(profile: &str) -> Result<Box<dyn ModelledDrive>, DriveProblem> {
    match DRIVES.get() {
        Some(open) => open(profile),
        None => Err(DriveProblem {
            error: "this dcd has no models of disks".into(),
            hint: Some(
                "it was built without the feature `lab`; Debian's package `dcd-lab` has it".into(),
            ),
        }),
    }
}
