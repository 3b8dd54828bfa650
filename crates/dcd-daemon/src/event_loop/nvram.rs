//! The memory in front of the log while requests are served: one comes, goes, or has failed, and is
//! let go of.

use std::sync::Arc;

use dcd_engine::io::NvramChangeError;
use dcd_engine::{Device, Input, NvramRefusal, Operation, Reply, RequestError, RequestId, Time};

use crate::device::device_file::DeviceFile;
use crate::disk::Disk;
use crate::event_loop::core::Core;
use crate::event_loop::submitter::{Completion, DrainTicket};
use crate::event_loop::{EventLoop, Pending};
use crate::memory::segment_memory::Mapping;
use crate::pair::nvram::NewNvram;

/// How long one that comes waits for what is under way of the one before.
const PATIENCE: dcd_engine::Duration = dcd_engine::Duration::from_secs(10);
/// How often it is looked whether one that has gone is let go of.
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(10);

/// What becomes of it.
#[derive(Default)]
pub(super) struct NvramChanges {
    /// One that comes as soon as nothing is under way of the one before.
    waiting: Option<Waiting>,
    /// The one that has failed, until another one comes.
    failed: Option<String>,
}

struct Waiting {
    new: Box<NewNvram>,
    pending: Pending,
    /// What is under way does not end, if it has not by then.
    until: Time,
}

impl NvramChanges {
    /// When to look again.
    pub(super) fn due(&self) -> Option<Time> {
        self.waiting.as_ref().map(|waiting| waiting.until)
    }

    /// The name of one that has failed, and behind which none has come.
    pub(super) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }
}

impl<C: Core> EventLoop<C> {
    /// What the memory in front of the log is called.
    pub(crate) fn nvram_name(&self) -> Option<String> {
        Some(self.disks.nvram.as_ref()?.file().path().display().to_string())
    }

    /// One comes while requests are served; as soon as nothing is under way of one that has gone.
    pub(super) fn start_nvram(&mut self, new: Box<NewNvram>, pending: Pending) {
        if self.nvram_changes.waiting.is_some() {
            return self.refuse_nvram(pending, NvramChangeError::UnderWay.into());
        }
        let until = self.now.after(PATIENCE);
        self.go_on_with_nvram(Waiting { new, pending, until });
    }

    fn go_on_with_nvram(&mut self, waiting: Waiting) {
        let may_add = match self.core.may_add_nvram() {
            _ if self.is_closing => Err(RequestError::ShuttingDown),
            Ok(()) => Ok(self.disks.nvram.is_none()),
            Err(NvramRefusal::NotYet) => Ok(false),
            Err(NvramRefusal::Request(error)) => Err(error),
            // They were looked at before; somebody has changed them meanwhile.
            Err(NvramRefusal::Settings(_)) => Err(NvramChangeError::Settings.into()),
        };
        match may_add {
            Ok(true) => self.add_nvram(*waiting.new, waiting.pending),
            Ok(false) if waiting.until > self.now => self.nvram_changes.waiting = Some(waiting),
            Ok(false) => self.refuse_nvram(waiting.pending, NvramChangeError::Hangs.into()),
            Err(error) => self.refuse_nvram(waiting.pending, error),
        }
    }

    fn add_nvram(&mut self, new: NewNvram, pending: Pending) {
        let NewNvram { spec, file, mapping, tier } = new;
        let Ok(mut disk) = Disk::of(Device::Nvram, &spec, file) else {
            return self.refuse_nvram(pending, RequestError::Io);
        };
        disk.set_segment_memory(mapping);
        if let Some(engine) = self.core.engine() {
            disk.set_io_timeout(std::time::Duration::from_nanos(engine.config().io_timeout.0));
        }
        self.disks.nvram = Some(Box::new(disk));
        self.nvram_changes.failed = None;
        let id = RequestId(self.keep_pending(pending).into());
        self.core.add_nvram(self.now, id, tier).expect("it may, and nothing has changed since");
        self.take_outputs();
    }

    fn refuse_nvram(&mut self, pending: Pending, error: RequestError) {
        let (id, result) = (RequestId(0), Err(error));
        self.answer(pending, Reply { id, result, buffer: None, answer: None });
    }

    /// Somebody does not want another one any more, or none.
    pub(super) fn cancel_nvram_change(&mut self, ticket: DrainTicket) {
        let is_it = |waiting: &mut Waiting| waiting.pending.ticket == Some(ticket);
        if let Some(waiting) = self.nvram_changes.waiting.take_if(is_it) {
            return self.refuse_nvram(waiting.pending, RequestError::Cancelled);
        }
        if let Some(change) = self.request_of(ticket) {
            let nobody = Completion::new(|_| ());
            self.request(Operation::CancelNvramChange { change }, nobody);
        }
    }

    /// Lets go of one that has gone, so that others can use it; then who waits for that may come.
    pub(super) fn look_at_nvram(&mut self) {
        match self.core.nvram_standing() {
            Some((_, has_failed)) if has_failed => self.nvram_changes.failed = self.nvram_name(),
            Some(_) => {}
            // Who looks at the time has heard all before (C26).
            None if self.ring.has_seen_all() => self.let_go_of_nvram(),
            None => {}
        }
        if let Some(waiting) = self.nvram_changes.waiting.take() {
            self.go_on_with_nvram(waiting);
        }
    }

    fn let_go_of_nvram(&mut self) {
        let ring = &self.ring;
        if let Some(disk) = self.disks.nvram.take_if(|disk| !disk.is_used(ring)) {
            let (file, mapping) = disk.into_parts();
            let_go_elsewhere(file, mapping);
            // The tier lets go of it with the next input.
            self.give(Input::Timeout);
        }
    }
}

/// On a thread of its own: to unmap a large one takes long, and to close a file as long as its file
/// system likes.
fn let_go_elsewhere(file: Option<DeviceFile>, mapping: Option<Arc<Mapping>>) {
    let thread = std::thread::Builder::new().name("dcd-let-go".into());
    // Without a thread it is done here.
    let _ = thread.spawn(move || {
        drop(file);
        let mut left = mapping;
        // Whoever has it last unmaps it.
        while let Some(Err(mapping)) = left.take().map(Arc::try_unwrap) {
            left = Some(mapping);
            std::thread::sleep(LOOK_INTERVAL);
        }
    });
}
