//! `dcd demo`: the paper's untar, copy and remove (section 4, Figures 7 to 9) on a slow disk with
//! and without dcd, and a `kill -9` in the middle.
//!
//! | file | what it is |
//! |---|---|
//! | `tree.rs` | the source tree, as a tar archive |
//! | `folders.rs`, `stand.rs` | the slow disk, served and mounted; and that nothing of it stays |
//! | `programs.rs` | running users side by side, and Ctrl-C |
//! | `guard.rs` | a second process, which cleans up if the first is killed |
//! | `phases.rs` | what is timed |
//! | `kill_run.rs` | what is left after `kill -9` |
//! | `bound.rs` | how fast it could be at best |
//! | `report.rs`, `picture.rs` | what is shown |

use std::cell::Cell;
use std::fs;
use std::time::{Duration, Instant};

mod arguments;
mod bound;
mod folders;
mod guard;
mod kill_run;
mod phases;
mod picture;
mod programs;
mod report;
mod stand;
mod tree;

pub use arguments::DemoArguments;
use bound::{Bound, Seconds};
use folders::Folders;
use kill_run::kill_run;
use phases::{Measured, Phase, make_homes, measure};
use programs::{Interrupt, check_programs};
use report::{Report, Row};
use stand::{DiskKind, MountKind, Stand};
use tree::Tree;

use crate::error::CommandError;
use crate::error::demo::DemoError;
use crate::output::{Paint, count};
use crate::stdout::{print, print_json};

/// Programs that are run, and the Debian packages they are in.
const PROGRAMS: [(&str, &str); 9] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("fusermount3", "fuse3"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("losetup", "mount"),
    ("tar", "tar"),
    ("cp", "coreutils"),
    ("rm", "coreutils"),
];
/// Segment of a cache of which we are not told: the unit in the bound.
const SEGMENT_BYTES_DEFAULT: u64 = 1 << 20;

pub fn run(arguments: &DemoArguments) -> Result<(), CommandError> {
    if !rustix::process::geteuid().is_root() {
        return Err(DemoError::NotRoot.into());
    }
    check_programs(&PROGRAMS)?;
    if !guard::is_worker() {
        match guard::run(arguments)? {}
    }
    let interrupt = Interrupt::install()?;
    let folders = Folders::new(arguments)?;
    let report = Demo::new(arguments, &folders, &interrupt).run()?;
    drop(folders);
    if arguments.json {
        print_json(&report)?;
    } else {
        print(&report.text(Paint::for_stdout()))?;
    }
    let kill = &report.kill;
    if kill.files_lost > 0 {
        let (lost, kept) = (kill.files_lost, kill.files_synced);
        return Err(DemoError::FilesLost { lost, kept }.into());
    }
    if !kill.fsck_clean {
        return Err(DemoError::NotClean.into());
    }
    Ok(())
}

struct Demo<'a> {
    arguments: &'a DemoArguments,
    folders: &'a Folders,
    interrupt: &'a Interrupt,
    started: Instant,
    /// What is still to do, in seconds as it should take; and what has been done.
    weight_left: f64,
    weight_done: f64,
    segment_bytes: u64,
    /// What was told last of the time that is left.
    told_left: Cell<f64>,
}

impl<'a> Demo<'a> {
    fn new(
        arguments: &'a DemoArguments,
        folders: &'a Folders,
        interrupt: &'a Interrupt,
    ) -> Demo<'a> {
        let started = Instant::now();
        let (weight_left, weight_done, segment_bytes) = (0.0, 0.0, SEGMENT_BYTES_DEFAULT);
        let told_left = Cell::new(f64::INFINITY);
        Demo {
            arguments,
            folders,
            interrupt,
            started,
            weight_left,
            weight_done,
            segment_bytes,
            told_left,
        }
    }

    fn run(&mut self) -> Result<Report, DemoError> {
        let tree = Tree::new();
        let archive = self.folders.archive();
        fs::write(&archive, tree.archive()).map_err(DemoError::file("write", &archive))?;
        let counts = self.arguments.user_counts();
        let users_most = counts.last().copied().unwrap_or(1);
        let runs: Vec<(MountKind, u32)> = [MountKind::Sync, MountKind::Default]
            .into_iter()
            .flat_map(|mount| counts.iter().map(move |users| (mount, *users)))
            .collect();
        let disks = [DiskKind::Raw, DiskKind::Dcd];
        let of_run = |(mount, users): &(MountKind, u32)| -> f64 {
            disks.iter().map(|disk| self.weight(*disk, *mount, *users)).sum()
        };
        self.weight_left = runs.iter().map(of_run).sum::<f64>() + kill_weight(users_most);
        tell(&format!(
            "{} files in {} directories, {:.1} MB; slow disk {}, cache {}",
            tree::FILES,
            tree::DIRECTORIES,
            tree::BYTES as f64 / 1e6,
            self.folders.slow_disk().display(),
            self.folders.cache_disk().display(),
        ));
        let mut rows = Vec::new();
        for (mount, users) in runs {
            let raw = self.phases(DiskKind::Raw, mount, users)?;
            let dcd = self.phases(DiskKind::Dcd, mount, users)?;
            for ((phase, raw), dcd) in Phase::ALL.into_iter().zip(raw).zip(dcd) {
                rows.extend(self.row((phase, users, mount), raw, dcd));
            }
        }
        let times = self.arguments.slow_times();
        let users = count(users_most.into(), "user");
        self.tell_next(&format!("dcd, {users}, kill -9 in the middle of untar"));
        let kill = kill_run(self.folders, self.interrupt, times, &tree, users_most)?;
        let mut report = Report {
            slow_read_milliseconds: times.read.as_secs_f64() * 1e3,
            slow_write_milliseconds: times.write.as_secs_f64() * 1e3,
            segment_bytes: self.segment_bytes,
            cache_disk: self.folders.cache_disk(),
            rows,
            kill,
            picture: self.folders.picture().to_owned(),
            seconds: 0.0,
        };
        picture::draw(&report, self.folders.picture())?;
        report.seconds = self.started.elapsed().as_secs_f64();
        tell(&format!("done in {}", minutes(report.seconds)));
        Ok(report)
    }

    /// All phases on one new disk.
    fn phases(
        &mut self,
        disk: DiskKind,
        mount: MountKind,
        users: u32,
    ) -> Result<Vec<Measured>, DemoError> {
        let what = format!(
            "{}, {}, mount -o {}",
            disk.name(),
            count(users.into(), "user"),
            mount.options()
        );
        self.tell_next(&what);
        let times = self.arguments.slow_times();
        let stand = Stand::new(self.folders, self.interrupt, disk, times)?;
        make_homes(&stand, self.folders, users)?;
        if let Some(status) = stand.status()? {
            self.segment_bytes = status.segments.size_bytes;
        }
        let mut measured = Vec::new();
        for phase in Phase::ALL {
            let one = measure(&stand, self.folders, self.interrupt, mount, phase, users)?;
            tell(&format!("  {:<6} {:>8.2} s", phase.name(), one.seconds));
            measured.push(one);
        }
        stand.stop()?;
        let weight = self.weight(disk, mount, users);
        self.weight_left -= weight;
        self.weight_done += weight;
        Ok(measured)
    }

    fn row(&self, what: (Phase, u32, MountKind), raw: Measured, dcd: Measured) -> Option<Row> {
        let (requests, figures) = (raw.requests?, dcd.figures?);
        let (read, write) = (self.arguments.read.as_secs_f64(), self.arguments.write.as_secs_f64());
        let each = Seconds { read, write };
        let bound = Bound::of(raw.seconds, &requests, each, self.segment_bytes);
        Some(Row::new(what, bound, requests, dcd.seconds, figures))
    }

    /// Seconds that a run should take, as measured once with 8 ms; for the time that is left.
    fn weight(&self, disk: DiskKind, mount: MountKind, users: u32) -> f64 {
        let users = f64::from(users);
        let slowness = (self.arguments.read + self.arguments.write).as_secs_f64() / 0.016;
        match (disk, mount) {
            (DiskKind::Raw, MountKind::Sync) => (40.0 + 42.0 * users) * slowness,
            (DiskKind::Raw, MountKind::Default) => 7.0 * users * slowness,
            (DiskKind::Dcd, MountKind::Sync) => 8.0 + 4.0 * users,
            (DiskKind::Dcd, MountKind::Default) => 3.0 + users,
        }
    }

    /// Tells what comes next, and how long all may still take.
    fn tell_next(&self, what: &str) {
        // The pace so far counts as much as there has been of it.
        let elapsed = self.started.elapsed().as_secs_f64();
        let pace = (elapsed + 30.0) / (self.weight_done + 30.0);
        // It goes down: where this machine is slower than the one on which it was measured, what is
        // left is told as more than at first only by going down more slowly.
        let left = (self.weight_left * pace).min(self.told_left.get());
        self.told_left.set(left);
        tell(&format!("{what} (about {} left)", minutes(left)));
    }
}

fn kill_weight(users: u32) -> f64 {
    10.0 + 2.0 * f64::from(users)
}

/// A line on stderr. Nothing fails because nobody can read it.
fn tell(text: &str) {
    eprintln!("dcd: {text}");
}

fn minutes(seconds: f64) -> String {
    let seconds = Duration::from_secs_f64(seconds.max(0.0)).as_secs();
    if seconds < 90 { format!("{seconds} s") } else { format!("{} min", (seconds + 30) / 60) }
}
