//! A detach that a client asks for: not under those who use the disk.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use dcd_engine::units::LbaRange;
use dcd_protocol::{Code, DetachAsked, LINE_BYTES_MAX, Progress, read_line};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};

use crate::control::answers::{failure, success, write_line};
use crate::control::long_jobs::{Long, PROGRESS_INTERVAL, with_progress};
use crate::control::shared::{Shared, UnderWay};
use crate::control::volumes;
use crate::event_loop::submitter::DetachTerms;
use crate::users::Purpose;

/// Users that are there for longer are users.
pub(super) const USER_PATIENCE: Duration = Duration::from_millis(500);

pub(super) fn detach(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    asked: DetachAsked,
    listed: &mut Vec<LbaRange>,
) -> io::Result<Value> {
    if volumes::is_served(&shared.submitter) {
        return Ok(failure(
            Code::NotSupported,
            "a volume cannot be detached: where its blocks lie only dcd knows",
            "copy what is on it to another disk, or drain it and stop dcd",
        ));
    }
    let accepted = if asked.accept_lost { std::mem::take(listed) } else { Vec::new() };
    // They are looked for before and after what takes long. Who comes in the moment after that is
    // too late.
    if let Some(refusal) = part_from_users(reader, shared, asked)? {
        return Ok(refusal);
    }
    let mut drained_before = None;
    if shared.facts.users.must_look(Purpose::Detach) && !asked.force {
        let ticket = shared.submitter.new_ticket();
        let drain = |done| shared.submitter.drain(ticket, done);
        let drained = with_progress(reader, shared, Long::Detaching(ticket), listed, drain)?;
        let is_accepted = drained["lost"].is_object() && asked.accept_lost && {
            let (known, accepted) = (listed.clone(), accepted.clone());
            known == accepted
        };
        if drained["ok"] != true && !is_accepted {
            return Ok(drained);
        }
        drained_before = Some(drained);
        if let Some(refusal) = part_from_users(reader, shared, asked)? {
            return Ok(refusal);
        }
    }
    let terms = DetachTerms { accepted };
    let mut detached = with_progress(reader, shared, Long::Detach, listed, |done| {
        shared.submitter.detach(terms, done);
    })?;
    for key in ["moved_bytes", "zeroed_bytes"] {
        let before = drained_before.as_ref().and_then(|drained| drained[key].as_u64());
        if let (Some(bytes), Some(before)) = (detached[key].as_u64(), before) {
            detached[key] = (bytes + before).into();
        }
    }
    Ok(detached)
}

/// Waits for those who use the disk, or says who they are.
pub(super) fn part_from_users(
    reader: &mut BufReader<&UnixStream>,
    shared: &Shared,
    asked: DetachAsked,
) -> io::Result<Option<Value>> {
    if asked.force {
        return Ok(None);
    }
    // Who has just closed it may not have been noticed.
    let patience = Instant::now() + USER_PATIENCE;
    let mut waiting = None;
    loop {
        let users = shared.facts.users.find(Purpose::Detach, &shared.submitter);
        if users.is_empty() {
            return Ok(None);
        }
        if !asked.wait && Instant::now() < patience {
            thread::sleep(USER_PATIENCE / 5);
            continue;
        }
        if !asked.wait {
            let error = format!("not detached: in use: {}", users.words());
            let hint = "unmount and disconnect them, or wait for them with --wait; --force takes the disk away from them: what \
                they have not written yet is lost";
            let mut value = failure(Code::InUse, &error, hint);
            value["users"] = json!(users.names);
            return Ok(Some(value));
        }
        let waiting = waiting.get_or_insert_with(|| WaitForUsers::begin(shared));
        // A sign of life, by which a client that has gone is noticed.
        write_line(
            *reader.get_ref(),
            &json!({ "waits_for": users.names, "progress": Progress::default() }),
        )?;
        let says_something = says_something_within(reader, PROGRESS_INTERVAL);
        if says_something {
            // To cancel is all that can be meant.
            let _ = read_line(reader, LINE_BYTES_MAX)?;
        }
        if says_something || waiting.is_cancelled() {
            let mut value = failure(
                Code::Cancelled,
                "the detach was cancelled",
                "the disk is served as before",
            );
            value["cancelled"] = true.into();
            return Ok(Some(value));
        }
    }
}

pub(super) fn says_something_within(reader: &BufReader<&UnixStream>, time: Duration) -> bool {
    let mut said = [PollFd::new(*reader.get_ref(), PollFlags::IN)];
    let time = rustix::event::Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    };
    let _ = poll(&mut said, Some(&time));
    !said[0].revents().is_empty() || !reader.buffer().is_empty()
}

/// A detach that waits for users, until it is dropped.
pub(super) struct WaitForUsers<'a> {
    shared: &'a Shared,
    cancelled_before: u64,
}

impl WaitForUsers<'_> {
    fn begin(shared: &Shared) -> WaitForUsers<'_> {
        let mut under_way = shared.under_way();
        under_way.waiting += 1;
        WaitForUsers { shared, cancelled_before: under_way.waits_cancelled }
    }

    fn is_cancelled(&self) -> bool {
        self.shared.under_way().waits_cancelled > self.cancelled_before
    }
}

impl Drop for WaitForUsers<'_> {
    fn drop(&mut self) {
        self.shared.under_way().waiting -= 1;
    }
}

/// Ends all detaches, whatever they wait for.
pub(super) fn cancel_detach(shared: &Shared) -> Value {
    let mut under_way = shared.under_way();
    let UnderWay { detaching, waiting, detaches, .. } = &*under_way;
    if detaching.is_empty() && *waiting == 0 && *detaches == 0 {
        return failure(
            Code::NotUnderWay,
            "no detach is under way",
            "`dcd status` shows what is dirty",
        );
    }
    detaching.iter().for_each(|ticket| shared.submitter.cancel_drain(*ticket));
    if *detaches > 0 {
        shared.submitter.cancel_detach();
    }
    under_way.waits_cancelled += 1;
    success()
}
