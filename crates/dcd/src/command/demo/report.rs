//! The results: a table and words for people, JSON for programs.

use std::path::PathBuf;

use dcd_daemon::event_loop::request_counts::RequestCounts;
use dcd_daemon::units_text::{format_duration, format_size};
use serde::Serialize;

use super::bound::{Bound, ratio};
use super::kill_run::KillResult;
use super::phases::{CacheFigures, Phase};
use super::stand::MountKind;
use crate::output::{Align, Colour, Paint, Table};

/// One phase with and without dcd.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub phase: Phase,
    /// By how many.
    pub users: u32,
    /// On which mount.
    pub mount: MountKind,
    /// Seconds on the slow disk.
    pub raw_seconds: f64,
    /// Seconds with dcd.
    pub dcd_seconds: f64,
    /// How many times faster.
    pub ratio: f64,
    /// What dcd reached of the bound; more than 1 where it spared reads too.
    pub share: f64,
    /// How many times faster it could be.
    pub bound: Bound,
    /// What the slow disk was given without dcd.
    pub requests: RequestCounts,
    /// What dcd did.
    pub dcd: CacheFigures,
}

impl Row {
    /// `what` is phase, users and mount.
    pub fn new(
        what: (Phase, u32, MountKind),
        bound: Bound,
        requests: RequestCounts,
        dcd_seconds: f64,
        dcd: CacheFigures,
    ) -> Row {
        let (phase, users, mount) = what;
        let raw_seconds = bound.raw_seconds;
        let ratio = ratio(raw_seconds, dcd_seconds);
        let share = ratio / bound.bound;
        Row { phase, users, mount, raw_seconds, dcd_seconds, ratio, share, bound, requests, dcd }
    }
}

/// Everything.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Milliseconds of a read on the slow disk.
    pub slow_read_milliseconds: f64,
    /// Milliseconds of a write.
    pub slow_write_milliseconds: f64,
    /// Bytes of a segment, in the bound.
    pub segment_bytes: u64,
    /// Where the cache was.
    pub cache_disk: PathBuf,
    /// What was compared.
    pub rows: Vec<Row>,
    /// What was left after the kill.
    pub kill: KillResult,
    /// The picture.
    pub picture: PathBuf,
    /// How long all of it took.
    pub seconds: f64,
}

/// How many times faster the paper's driver was, in its Figures 7 to 9.
fn of_the_paper(phase: Phase) -> &'static str {
    match phase {
        Phase::Untar | Phase::Remove => "3-6",
        Phase::Copy => "2-3",
    }
}

impl Report {
    /// For people.
    pub fn text(&self, paint: Paint) -> String {
        let mut text = self.table(paint);
        text.push('\n');
        text += &self.legend();
        text.push('\n');
        text += &self.kill_text(paint);
        text + &format!("\npicture: {}\n", self.picture.display())
    }

    fn table(&self, paint: Paint) -> String {
        let right = |title| (title, Align::Right);
        let mut table = Table::new(&[
            ("phase", Align::Left),
            right("users"),
            ("mount", Align::Left),
            right("raw s"),
            right("dcd s"),
            right("faster"),
            right("paper"),
            right("stalls"),
            right("flushes"),
            right("waited s"),
        ]);
        for row in &self.rows {
            table.row(vec![
                row.phase.name().into(),
                row.users.to_string(),
                row.mount.options().into(),
                format!("{:.2}", row.raw_seconds),
                format!("{:.2}", row.dcd_seconds),
                format!("{:.1}x", row.ratio),
                format!("{}x", of_the_paper(row.phase)),
                row.dcd.stalled_writes.to_string(),
                row.dcd.flushes.to_string(),
                format!("{:.2}", row.dcd.flush_seconds),
            ]);
        }
        table.render(paint)
    }

    fn legend(&self) -> String {
        format!(
            "\
raw, dcd   wall time on a slow disk ({} ms a read, {} ms a write) without and with dcd; the cache
           is {}
faster     how many times less time it took with dcd
paper      the same in Figures 7 to 9 of the USENIX paper of 1999
stalls     writes that waited for room with dcd: all segment buffers on their way, or the cache full
flushes    what the file system has waited for, with dcd, and how long, on the cache-disk
--json     has also the paper's bound: how many times faster it could be, from these requests
",
            self.slow_read_milliseconds,
            self.slow_write_milliseconds,
            self.cache_disk.display(),
        )
    }

    fn kill_text(&self, paint: Paint) -> String {
        let kill = &self.kill;
        let verdict = |good: bool, text: &str| {
            paint.paint(if good { Colour::Good } else { Colour::Bad }, text)
        };
        let lost = match kill.files_lost {
            0 => verdict(true, "all are there and the same"),
            lost => verdict(false, &format!("{lost} are missing or different")),
        };
        let fsck = if kill.fsck_clean { "clean" } else { "NOT CLEAN" };
        format!(
            "kill -9 in the middle of the {}-user untar: mounted again after {}; of {} files synced \
             before\n({}) {lost}; e2fsck -fn: {}\n  {}\n",
            kill.users,
            format_duration(std::time::Duration::from_millis(
                (kill.seconds_to_mounted * 1e3) as u64
            )),
            kill.files_synced,
            format_size(kill.bytes_synced),
            verdict(kill.fsck_clean, fsck),
            kill.ready_line,
        )
    }
}
