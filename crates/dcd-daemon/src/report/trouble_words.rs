//! Telling that the data-disk does not take what is dirty: once when it begins, once when it ends.

use std::time::Duration;

use dcd_engine::IoError;
use dcd_engine::stats::{DestageTrouble, Status};
use dcd_engine::units::LINE_SIZE;

use crate::units_text::{format_duration, format_size};

/// What has been told.
#[derive(Default)]
pub(crate) struct TroubleTeller {
    told: Option<DestageTrouble>,
}

impl TroubleTeller {
    /// What is to be told now, if anything. `status` is asked for only then.
    pub(crate) fn news(
        &mut self,
        now: Option<DestageTrouble>,
        status: impl FnOnce() -> Option<Status>,
    ) -> Option<String> {
        match (self.told, now) {
            (None, None) => None,
            // Another bad place is no news; that nothing is taken is, and why.
            (Some(told), Some(now)) if told.is_whole == now.is_whole => {
                (now.is_whole && told.error != now.error).then_some(())?;
                self.begins(now, status()?)
            }
            (_, Some(now)) => self.begins(now, status()?),
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

    fn begins(&mut self, now: DestageTrouble, status: Status) -> Option<String> {
        self.told = Some(now);
        Some(match now.is_whole {
            true => format!(
                "the data-disk takes nothing: {}. {} in the cache; it is tried again, ever later. {}",
                now.error,
                to_go(&status),
                way_out(now.error)
            ),
            false => format!(
                "the data-disk does not take some lines of 4 KiB: {}. They stay in the cache and are tried again; the \
                 others go on",
                now.error
            ),
        })
    }
}

fn to_go(status: &Status) -> String {
    let dirty = format_size(status.dirty_lines * LINE_SIZE);
    match status.zero_ranges {
        0 => format!("{dirty} to go"),
        ranges => format!("{dirty}, and {ranges} ranges to be zeroed, to go"),
    }
}

/// What somebody can do.
pub(crate) fn way_out(error: IoError) -> &'static str {
    match error {
        IoError::NoSpace => "Free some space on the file system that it lies on",
        IoError::ReadOnly => "Make it writable again",
        IoError::Gone => "Bring it back, and start dcd again",
        IoError::Failed | IoError::TimedOut | IoError::Unsupported => "See dmesg",
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
