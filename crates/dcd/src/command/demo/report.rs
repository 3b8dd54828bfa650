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
        text += &self.formula();
        text += &self.sizes();
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
            right("bound"),
            right("share"),
            right("ceiling"),
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
                format!("{:.1}x", row.bound.bound),
                format!("{:.2}", row.share),
                format!("{:.1}x", row.bound.ceiling),
                format!("{}x", of_the_paper(row.phase)),
                row.dcd.stalled_writes.to_string(),
                row.dcd.flushes.to_string(),
                format!("{:.2}", row.dcd.flush_seconds),
            ]);
        }
        table.render(paint)
    }

    fn formula(&self) -> String {
        let segment = format_size(self.segment_bytes);
        let mut text = format!(
            "\
raw, dcd   wall time on a slow disk ({} ms a read, {} ms a write) without and with dcd; the cache
           is {}
bound      at most so many times faster: 1 / ((1 - w) + w / S), the paper's section 4.2.2
           w  part of the raw time in which the disk was writing
           S  time of these writes / time of the same bytes in writes of {segment} on that disk
share      faster / bound. Above 1 where dcd has spared what the bound leaves as slow as it was:
           reads, and time lost between one slow request and the next
ceiling    the bound if nothing but reads and segments took time: no processor, no flushes
stalls     writes that waited for room with dcd: all segment buffers on their way, or the cache full
flushes    what the file system has waited for, with dcd, and how long, on the cache-disk
",
            self.slow_read_milliseconds,
            self.slow_write_milliseconds,
            self.cache_disk.display(),
        );
        if let Some(row) = self.example() {
            let (bound, w) =
                (&row.bound, row.bound.write_seconds / row.bound.raw_seconds.max(1e-9));
            text += &format!(
                "for example {}-user {}, {}: {} writes took {:.2} s of {:.2} s (w = {w:.3}); {} \
                 segments would\n           take {:.2} s (S = {:.0}; by the paper's sum over size \
                 classes {:.0}); bound {:.1}x\n",
                row.users,
                row.phase.name(),
                row.mount.options(),
                row.requests.writes,
                bound.write_seconds,
                bound.raw_seconds,
                bound.segment_writes,
                bound.segment_seconds,
                bound.write_speed_up,
                bound.write_speed_up_of_the_paper,
                bound.bound,
            );
        }
        text
    }

    /// The one whose figures are told in full: the first with the most users.
    fn example(&self) -> Option<&Row> {
        let users = self.rows.iter().map(|row| row.users).max()?;
        self.rows.iter().find(|row| row.users == users)
    }

    fn sizes(&self) -> String {
        let Some(row) = self.example() else { return String::new() };
        let classes: Vec<String> = row
            .bound
            .classes
            .iter()
            .map(|class| {
                let size = format_size(class.size_bytes_max).replace(' ', "");
                let share = class.share * 100.0;
                format!("<= {size} {share:.1}% ({:.0}x)", class.speed_up)
            })
            .collect();
        format!("           its writes by size (speed-up in segments): {}\n", classes.join(", "))
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
