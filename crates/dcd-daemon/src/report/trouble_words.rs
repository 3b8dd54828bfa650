//! Telling that the data-disk does not take what is dirty: once when it begins, once when it ends.

use std::time::Duration;

use dcd_engine::IoError;
use dcd_engine::stats::{DestageTrouble, Status};
use dcd_engine::units::LINE_SIZE;

use crate::device::network::store_report::StoreReport;
use crate::units_text::{format_duration, format_size};

/// What has been told.
#[derive(Default)]
pub(crate) struct TroubleTeller {
    told: Option<DestageTrouble>,
}

impl TroubleTeller {
    /// What is to be told now, if anything. `status`, and how an object store stands, are asked for
    /// only then.
    pub(crate) fn news(
        &mut self,
        now: Option<DestageTrouble>,
        store: impl FnOnce() -> Option<StoreReport>,
        status: impl FnOnce() -> Option<Status>,
    ) -> Option<String> {
        match (self.told, now) {
            (None, None) => None,
            // Another bad place is no news; that nothing is taken is, and why.
            (Some(told), Some(now)) if told.is_whole == now.is_whole => {
                (now.is_whole && told.error != now.error).then_some(())?;
                self.begins(now, store(), status()?)
            }
            (_, Some(now)) => self.begins(now, store(), status()?),
            (Some(told), None) => {
                let status = status()?;
                self.told = None;
                let lasted = Duration::from_nanos(status.now.since(told.since).0);
                Some(format!(
                    "the data-disk takes writes again, after {}; {}",
                    format_duration(Duration::from_secs(lasted.as_secs())),
                    to_go(&status)
                ))
            }
        }
    }

    fn begins(
        &mut self,
        now: DestageTrouble,
        store: Option<StoreReport>,
        status: Status,
    ) -> Option<String> {
        self.told = Some(now);
        let is_lost = store.as_ref().is_some_and(StoreReport::is_lost);
        // What a store says counts for more than how long it took to say it.
        let (why, then) = match store.map(|store| store.problem) {
            Some(Some(problem)) if is_lost => (problem, "nothing of it will get there".into()),
            Some(Some(problem)) => (problem, "it is tried again, ever later".to_owned()),
            Some(None) => (now.error.to_string(), tried_again(LOOK_AT_SERVER)),
            None => (now.error.to_string(), tried_again(way_out(now.error))),
        };
        Some(match now.is_whole {
            true => format!(
                "the data-disk takes nothing: {why}. {} in the cache; {then}",
                to_go(&status)
            ),
            false => format!(
                "the data-disk does not take some lines of 4 KiB: {}. They stay in the cache and are tried again; the \
                 others go on",
                now.error
            ),
        })
    }
}

fn tried_again(hint: &str) -> String {
    format!("it is tried again, ever later. {hint}")
}

fn to_go(status: &Status) -> String {
    let dirty = format_size(status.dirty_lines * LINE_SIZE);
    match status.zero_ranges {
        0 => format!("{dirty} to go"),
        ranges => format!("{dirty}, and {ranges} ranges to be zeroed, to go"),
    }
}

/// What there is to be done about a disk of this machine.
pub(crate) const SEE_DMESG: &str = "See dmesg";

/// The same where the data-disk is in an object store, which has not said no.
pub(crate) const LOOK_AT_SERVER: &str = "Check that the server of the store answers";

/// What somebody can do.
pub(crate) fn way_out(error: IoError) -> &'static str {
    match error {
        IoError::NoSpace => "Free some space on the file system that it lies on",
        IoError::ReadOnly => "Make it writable again",
        IoError::Gone => "Bring it back, and start dcd again",
        IoError::Failed | IoError::TimedOut | IoError::Unsupported => SEE_DMESG,
    }
}

/// The same in a few words, for the first line of `dcd status`.
pub fn trouble_words(error: &str) -> &'static str {
    match error {
        "no-space" => "no space for it on the data-disk, free some",
        "read-only" => "the data-disk is read-only",
        "gone" => "the data-disk is gone",
        "no-answer" => "the data-disk does not answer",
        _ => "the data-disk has errors",
    }
}

/// Its name in reports.
pub fn trouble_name(error: IoError) -> &'static str {
    match error {
        IoError::NoSpace => "no-space",
        IoError::ReadOnly => "read-only",
        IoError::Gone => "gone",
        IoError::TimedOut => "no-answer",
        IoError::Failed | IoError::Unsupported => "error",
    }
}
