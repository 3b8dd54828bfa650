//! What each disk read of a load costs, with its sequence and without: the ODSC thesis' Figures 4.1
//! to 4.3.
//!
//! The load comes twice, in a closed loop, on the models of both disks: once without sequences, and
//! once when all of it is kept as one and copied. What is read ahead, and how much at a time, is
//! the engine's.

use dcd_engine::units::LINE_SIZE;
use dcd_engine::{Device, Time};
use serde::Serialize;

use crate::plot::svg::render_view;
use crate::plot::{Drawing, Plot, PlotError, Series, View};
use crate::replay::{Pace, Replay, ReplayError};
use crate::sequence_runs::{self, SequenceRunError};
use crate::target::Access;
use crate::target::setup::Setup;
use crate::trace::{Flags, Operation, Request};

/// Longest read that neighbouring lines become.
const READ_BYTES_MAX: u64 = 1 << 20;

/// The disk reads of a load.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Accesses(pub Vec<Access>);

/// Sums of them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct AccessTotals {
    /// How many.
    pub disk_reads: u64,
    /// Of them, those of the read area.
    pub copy_reads: u64,
    /// Blocks of 512 bytes that arms went.
    pub seek_distance: u64,
    /// Sum of their access times.
    pub access_ms: f64,
}

/// With its sequence, and without.
#[derive(Clone, PartialEq, Debug)]
pub struct SequencePictures {
    /// From the places of the lines.
    pub without: Accesses,
    /// From the copies, as far as the engine serves them.
    pub with: Accesses,
}

impl Accesses {
    /// Their sums.
    pub fn totals(&self) -> AccessTotals {
        let count = |reads: usize| reads as u64;
        AccessTotals {
            disk_reads: count(self.0.len()),
            copy_reads: count(self.0.iter().filter(|it| it.device == Device::CacheDisk).count()),
            seek_distance: self.0.iter().map(|it| it.seek_distance).sum(),
            access_ms: self.0.iter().map(|it| it.access_ms).sum(),
        }
    }

    fn points(&self, of: impl Fn(usize, &Access) -> (f64, f64)) -> Vec<(f64, f64)> {
        self.0.iter().enumerate().map(|(number, access)| of(number, access)).collect()
    }
}

/// The lines of a sequence as reads: neighbours together, up to what one read of the engine has.
pub fn reads_of(lines: impl IntoIterator<Item = u64>) -> Vec<Request> {
    let mut reads: Vec<Request> = Vec::new();
    for line in lines {
        let offset_bytes = line * LINE_SIZE;
        match reads.last_mut() {
            Some(last)
                if last.offset_bytes + last.size_bytes == offset_bytes
                    && last.size_bytes < READ_BYTES_MAX =>
            {
                last.size_bytes += LINE_SIZE;
            }
            _ => reads.push(Request {
                time_ns: 0,
                operation: Operation::Read,
                device: 0,
                offset_bytes,
                size_bytes: LINE_SIZE,
                flags: Flags::default(),
                latency_ns: None,
                line: reads.len() as u64 + 1,
                column: 1,
            }),
        }
    }
    reads
}

impl SequencePictures {
    /// Of those requests, in front of that disk, which has a log with a read area.
    ///
    /// # Errors
    /// As [`sequence_runs::run`].
    pub fn of(
        setup: &Setup,
        requests: &[Request],
    ) -> Result<SequencePictures, SequenceRunError<ReplayError>> {
        let feed =
            |replay: &mut Replay| requests.iter().try_for_each(|request| replay.add(request));
        let mut known = sequence_runs::Recorded::default();
        let mut target = sequence_runs::build(setup, false)?;
        let log = target.as_log().ok_or(SequenceRunError::NoReadArea)?;
        log.list_accesses();
        let mut replay = Replay::begin_at(target, Pace::Closed, Time::ZERO);
        requests.iter().for_each(|request| known.add(request));
        feed(&mut replay).map_err(SequenceRunError::Load)?;
        let (_, mut target, end) = replay.finish_pass();
        let log = target.as_log().ok_or(SequenceRunError::NoReadArea)?;
        let without = Accesses(log.take_accesses());
        let (start, _) = sequence_runs::keep(log, end, known)?;
        log.list_accesses();
        let mut replay = Replay::begin_at(target, Pace::Closed, start);
        feed(&mut replay).map_err(SequenceRunError::Load)?;
        let (_, mut target, _) = replay.finish_pass();
        let log = target.as_log().ok_or(SequenceRunError::NoReadArea)?;
        Ok(SequencePictures { without, with: Accesses(log.take_accesses()) })
    }

    /// Seek distance of each disk read, access time of each, and the one over the other. The points
    /// of the last are not to be joined.
    pub fn plots(&self, name: &str) -> [Plot; 3] {
        let number = |number: usize| number as f64 + 1.0;
        let [read, distance, time] =
            ["disk read", "seek distance, blocks of 512 bytes", "access time, ms"];
        [
            self.plot([&format!("{name}: seek distance"), read, distance], |at, access| {
                (number(at), access.seek_distance as f64)
            }),
            self.plot([&format!("{name}: access time"), read, time], |at, access| {
                (number(at), access.access_ms)
            }),
            self.plot([&format!("{name}: time over distance"), distance, time], |_, access| {
                (access.seek_distance as f64, access.access_ms)
            }),
        ]
    }

    /// The same, drawn.
    ///
    /// # Errors
    /// If there is nothing to draw.
    pub fn draw(&self, name: &str) -> Result<Vec<Drawing>, PlotError> {
        let draw = |(plot, as_points): (Plot, bool)| {
            let svg = render_view(&plot, &View { as_points, ..View::default() })?;
            Ok(Drawing { height: plot.height(), title: plot.title, svg })
        };
        self.plots(name).into_iter().zip([false, false, true]).map(draw).collect()
    }

    fn plot(
        &self,
        [title, x_axis, y_axis]: [&str; 3],
        of: impl Fn(usize, &Access) -> (f64, f64) + Copy,
    ) -> Plot {
        let series = |name: &str, accesses: &Accesses| Series {
            name: name.to_owned(),
            points: accesses.points(of),
        };
        Plot {
            title: title.to_owned(),
            x_axis: x_axis.to_owned(),
            y_axis: y_axis.to_owned(),
            log_y: false,
            series: vec![
                series("without the sequence", &self.without),
                series("with it", &self.with),
            ],
        }
    }
}
