//! The simulator's models of disks, as drives of the daemon.

use std::ops::Range;

use dcd_daemon::disk::drive::{DriveProblem, DriveWork, ModelledDrive};
use dcd_engine::Time;
use dcd_sim::disk::model::{DiskDone, DiskModel, DiskOperation, DiskRequest};
use dcd_sim::disk::profile::Profile;
use dcd_sim::target::setup::SetupError;

struct SimulatedDrive {
    model: DiskModel,
    done: Vec<DiskDone>,
}

/// The drive of a profile, for [`dcd_daemon::disk::drive::plug_in_drives`].
pub fn open(profile: &str) -> Result<Box<dyn ModelledDrive>, DriveProblem> {
    let profile = Profile::load(profile)
        .map_err(|error| DriveProblem { hint: error.hint(), error: error.to_string() })?;
    if profile.is_host_managed() {
        // What refuses a write out of order would look like one that takes no time.
        let error = SetupError::HostManaged;
        return Err(DriveProblem { hint: error.hint(), error: error.to_string() });
    }
    let model = DiskModel::new(&profile, 0).expect("the profile was checked");
    Ok(Box::new(SimulatedDrive { model, done: Vec::new() }))
}

impl ModelledDrive for SimulatedDrive {
    fn capacity_bytes(&self) -> u64 {
        self.model.capacity_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.model.sector_bytes()
    }

    fn submit(&mut self, now: Time, id: u64, work: DriveWork, bytes: Range<u64>) -> bool {
        let operation = match work {
            DriveWork::Read => DiskOperation::Read,
            DriveWork::Write => DiskOperation::Write,
            DriveWork::Flush => DiskOperation::Flush,
        };
        let size_bytes = bytes.end - bytes.start;
        let request = DiskRequest { id, operation, offset_bytes: bytes.start, size_bytes };
        self.model.submit(now, request).is_ok()
    }

    fn next_event(&self) -> Option<Time> {
        self.model.next_event()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<u64>) {
        self.model.advance(now, &mut self.done);
        done.extend(self.done.drain(..).map(|done| done.id));
    }
}
