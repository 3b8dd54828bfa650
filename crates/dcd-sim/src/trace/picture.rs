//! A trace in pictures: what [`summary`](super::summary) tells in numbers, over time and address.
//! One pass, in memory that does not grow with the trace.

use super::heat_map::HeatMap;
use super::summary::{Summarizer, TraceSummary};
use super::time_bins::{Bin, TimeBins};
use super::{Operation, Request};
use crate::plot::bars::Bars;
use crate::plot::heat_map::{HeatMapPlot, Shade};
use crate::plot::{Drawing, Plot, PlotError, Series};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Upper bounds of the classes of time: 1 us, 3 us, 10 us and so on.
pub(super) const TIME_BOUNDS: [u64; TIME_CLASSES] = time_bounds();
const TIME_CLASSES: usize = 27;
/// Sizes of bursts that are told apart, as powers of two.
const BURST_CLASSES: u32 = 24;

/// Reads and writes in a bin of time.
#[derive(Default)]
struct Traffic {
    requests: [u64; 2],
    bytes: [u64; 2],
}

impl Bin for Traffic {
    fn join(&mut self, later: Traffic) {
        for direction in 0..2 {
            self.requests[direction] += later.requests[direction];
            self.bytes[direction] = self.bytes[direction].saturating_add(later.bytes[direction]);
        }
    }
}

/// How much had been touched at the end of a bin: all, read, written; none if nothing came in it.
#[derive(Default)]
struct Touched(Option<[u64; 3]>);

impl Bin for Touched {
    fn join(&mut self, later: Touched) {
        self.0 = later.0.or(self.0);
    }
}

/// Takes requests in order of time.
pub struct Pictures {
    summarizer: Summarizer,
    traffic: TimeBins<Traffic>,
    touched: TimeBins<Touched>,
    heat: HeatMap,
    duration_ns: u64,
}

impl Pictures {
    /// For bursts that end with so long a silence.
    pub fn new(burst_gap_ns: u64) -> Pictures {
        Pictures {
            summarizer: Summarizer::new(burst_gap_ns),
            traffic: TimeBins::default(),
            touched: TimeBins::default(),
            heat: HeatMap::default(),
            duration_ns: 0,
        }
    }

    /// Counts a request.
    ///
    /// # Panics
    /// If it is earlier than the one before.
    pub fn add(&mut self, request: &Request) {
        self.summarizer.add(request);
        self.duration_ns = request.time_ns;
        let direction = match request.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Discard | Operation::Flush => return,
        };
        self.heat.add(request);
        let traffic = self.traffic.at(request.time_ns);
        traffic.requests[direction] += 1;
        traffic.bytes[direction] = traffic.bytes[direction].saturating_add(request.size_bytes);
        let touched = self.summarizer.working_set().touched_bytes();
        self.touched.at(request.time_ns).0 = Some(touched);
    }

    /// The numbers, and the drawings: what can be drawn of these requests. None of no requests.
    ///
    /// # Errors
    /// Never with requests of a trace: their times and addresses are bounded.
    pub fn finish(mut self) -> Result<Option<(TraceSummary, Vec<Drawing>)>, PlotError> {
        self.summarizer.end_burst();
        let time = TimeUnit::of(self.duration_ns);
        let mut drawings = Vec::new();
        for (direction, title, shade) in [
            (0, "Reads: where and when", Shade::Reads),
            (1, "Writes: where and when", Shade::Writes),
        ] {
            drawings.extend(self.heat_map(direction, title, shade, time));
        }
        for plot in [self.rate(time), self.throughput(time), self.growth(time)] {
            if plot.series.iter().any(|series| !series.points.is_empty()) {
                drawings.push(plot.draw()?);
            }
        }
        let age_bars = self.overwrites();
        let arrival_bars = self.inter_arrival();
        let burst_bars = self.bursts();
        let Some(summary) = self.summarizer.finish() else { return Ok(None) };
        let size_bars = sizes(&summary);
        for bars in [size_bars, arrival_bars, burst_bars, age_bars] {
            drawings.extend(bars.draw());
        }
        Ok(Some((summary, drawings)))
    }

    fn heat_map(
        &self,
        direction: usize,
        title: &str,
        shade: Shade,
        time: TimeUnit,
    ) -> Option<Drawing> {
        let (first, last) = self.heat.rows_touched()?;
        let (columns, row_bytes) = (self.heat.columns(), self.heat.row_bytes());
        let column = |column: &super::heat_map::Column| {
            (first..=last).map(|row| column.touched(row)[direction]).collect()
        };
        let address = SizeUnit::of((last as u64 + 1).saturating_mul(row_bytes));
        let at = |row: usize| row as f64 * row_bytes as f64 / address.bytes;
        HeatMapPlot {
            title: title.to_owned(),
            x_axis: time.axis(),
            y_axis: format!("address, {}", address.name),
            what: "requests in a cell".to_owned(),
            x_end: columns.bins().len() as f64 * columns.bin_ns() as f64 / time.ns,
            y: (at(first), at(last + 1)),
            columns: columns.bins().iter().map(column).collect(),
            shade,
        }
        .draw()
    }

    fn rate(&self, time: TimeUnit) -> Plot {
        let per_second = 1e9 / self.traffic.bin_ns() as f64;
        let series = |name: &str, direction: usize| {
            let value = |bin: &Traffic| bin.requests[direction] as f64 * per_second;
            self.over_time(name, time, value)
        };
        Plot {
            title: format!("Requests per second, {}", self.step()),
            x_axis: time.axis(),
            y_axis: "requests/s".into(),
            log_y: false,
            series: vec![series("reads", 0), series("writes", 1)],
        }
    }

    fn throughput(&self, time: TimeUnit) -> Plot {
        let most = self.traffic.bins().iter().flat_map(|bin| bin.bytes).max().unwrap_or(0);
        let per_second = 1e9 / self.traffic.bin_ns() as f64;
        let unit = SizeUnit::of((most as f64 * per_second) as u64);
        let series = |name: &str, direction: usize| {
            let value = |bin: &Traffic| bin.bytes[direction] as f64 * per_second / unit.bytes;
            self.over_time(name, time, value)
        };
        Plot {
            title: format!("Throughput, {}", self.step()),
            x_axis: time.axis(),
            y_axis: format!("{}/s", unit.name),
            log_y: false,
            series: vec![series("read", 0), series("written", 1)],
        }
    }

    /// Peaks shorter than this are not to be seen.
    fn step(&self) -> String {
        let bin = TimeUnit::of(self.traffic.bin_ns());
        format!("means of {:.3} {}", self.traffic.bin_ns() as f64 / bin.ns, bin.name)
    }

    /// A point in the middle of each bin.
    fn over_time(&self, name: &str, time: TimeUnit, value: impl Fn(&Traffic) -> f64) -> Series {
        let width = self.traffic.bin_ns() as f64 / time.ns;
        let bins = self.traffic.bins().iter().enumerate();
        let points = bins.map(|(index, bin)| ((index as f64 + 0.5) * width, value(bin)));
        Series { name: name.to_owned(), points: points.collect() }
    }

    fn growth(&self, time: TimeUnit) -> Plot {
        let width = self.touched.bin_ns() as f64 / time.ns;
        let bins = || self.touched.bins().iter().enumerate();
        let most = bins().filter_map(|(_, touched)| touched.0).map(|all| all[0]).max();
        let unit = SizeUnit::of(most.unwrap_or(0));
        let series = |name: &str, which: usize| {
            let points = bins().filter_map(|(index, touched)| {
                Some(((index + 1) as f64 * width, touched.0?[which] as f64 / unit.bytes))
            });
            Series { name: name.to_owned(), points: points.collect() }
        };
        Plot {
            title: "Working set: different 4 KiB lines touched so far".into(),
            x_axis: time.axis(),
            y_axis: unit.name.to_owned(),
            log_y: false,
            series: vec![series("read or written", 0), series("read", 1), series("written", 2)],
        }
    }

    fn inter_arrival(&self) -> Bars {
        let counts = self.summarizer.inter_arrival().counts_up_to(&TIME_BOUNDS);
        let counts = counts.into_iter().map(|count| count as f64).collect();
        Bars::shares(
            "Time from request to request",
            "at most",
            "% of the requests",
            TIME_BOUNDS.map(time_label).to_vec(),
            vec![("requests".into(), counts)],
        )
    }

    fn overwrites(&self) -> Bars {
        let (ages, written) = self.summarizer.working_set().overwrites_by_age();
        let mut bars = Bars::shares(
            "Written sectors: time to the next write of the same sector",
            "at most",
            "% of the written sectors",
            TIME_BOUNDS.map(time_label).to_vec(),
            vec![("written again".into(), ages.to_vec())],
        );
        // Of all written sectors, not of those written again.
        bars.whole = written;
        bars
    }

    fn bursts(&self) -> Bars {
        let bounds: Vec<u64> = (0..BURST_CLASSES).map(|power| 1 << power).collect();
        let counts = self.summarizer.burst_requests().counts_up_to(&bounds);
        let counts = counts.into_iter().map(|count| count as f64).collect();
        Bars::shares(
            "Bursts: requests in each",
            "at most",
            "% of the bursts",
            bounds.iter().map(u64::to_string).collect(),
            vec![("bursts".into(), counts)],
        )
    }
}

fn sizes(summary: &TraceSummary) -> Bars {
    let bounds: Vec<u64> = (9..=30).map(|power| 1 << power).collect();
    let counts = |of: fn(&super::summary::SizeClass) -> u64| {
        let count = |bound: &u64| {
            let class = summary.sizes.iter().find(|class| class.up_to_bytes == *bound);
            class.map_or(0.0, |class| of(class) as f64)
        };
        bounds.iter().map(count).collect()
    };
    Bars::shares(
        "Sizes of requests",
        "at most",
        "% of the reads and writes",
        bounds.iter().map(|bytes| size_label(*bytes)).collect(),
        vec![
            ("reads".into(), counts(|class| class.reads)),
            ("writes".into(), counts(|class| class.writes)),
        ],
    )
}

const fn time_bounds() -> [u64; TIME_CLASSES] {
    let mut bounds = [0; TIME_CLASSES];
    let (mut index, mut decade) = (0, 1_000);
    while index < TIME_CLASSES {
        bounds[index] = if index.is_multiple_of(2) { decade } else { 3 * decade };
        decade *= if index.is_multiple_of(2) { 1 } else { 10 };
        index += 1;
    }
    bounds
}

fn time_label(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{} us", ns / 1_000),
        MS..SECOND => format!("{} ms", ns / MS),
        _ => format!("{} s", ns / SECOND),
    }
}

fn size_label(bytes: u64) -> String {
    let unit = SizeUnit::of(bytes);
    format!("{} {}", bytes as f64 / unit.bytes, unit.name)
}

/// In what a span of time is told.
#[derive(Clone, Copy)]
struct TimeUnit {
    ns: f64,
    name: &'static str,
}

impl TimeUnit {
    fn of(duration_ns: u64) -> TimeUnit {
        let (ns, name) = match duration_ns {
            0..1_000_000 => (1e3, "us"),
            MS..SECOND => (1e6, "ms"),
            _ if duration_ns < 300 * SECOND => (1e9, "s"),
            _ if duration_ns < 300 * 60 * SECOND => (60e9, "minutes"),
            _ if duration_ns < 96 * 3600 * SECOND => (3600e9, "hours"),
            _ => (86_400e9, "days"),
        };
        TimeUnit { ns, name }
    }

    fn axis(self) -> String {
        format!("time, {}", self.name)
    }
}

/// In what a size is told.
#[derive(Clone, Copy)]
struct SizeUnit {
    bytes: f64,
    name: &'static str,
}

impl SizeUnit {
    fn of(bytes: u64) -> SizeUnit {
        let names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let power = (bytes.max(1).ilog2() / 10) as usize;
        SizeUnit { bytes: 1024f64.powi(power as i32), name: names[power] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::reader_tests::read;

    fn pictures(text: &str) -> Option<(TraceSummary, Vec<Drawing>)> {
        let mut pictures = Pictures::new(100 * MS);
        let text = format!("t_us,op,off,len\n{text}");
        read(&text, None).iter().for_each(|request| pictures.add(request));
        pictures.finish().unwrap()
    }

    #[test]
    fn what_is_not_there_is_not_drawn() {
        assert!(pictures("").is_none());
        let titles = |text: &str| -> Vec<String> {
            let (_, drawings) = pictures(text).unwrap();
            drawings.iter().map(|drawing| drawing.title.clone()).collect()
        };
        // No addresses, no gaps.
        assert_eq!(titles("0,F,0,0\n"), ["Bursts: requests in each"]);
        let of_two = titles("0,W,0,4096\n50,W,0,4096\n");
        assert_eq!(of_two.len(), 8, "{of_two:?}");
        assert!(of_two[0].starts_with("Writes: where"), "{of_two:?}");
        assert!(of_two[7].starts_with("Written sectors"), "{of_two:?}");
    }

    #[test]
    fn classes_and_units_have_short_names() {
        let bounds = TIME_BOUNDS;
        assert!(bounds.is_sorted() && bounds.contains(&(30 * SECOND)));
        let labels = [0, 1, 6, 13, 18, 26].map(|index| time_label(bounds[index]));
        assert_eq!(labels, ["1 us", "3 us", "1 ms", "3 s", "1000 s", "10000000 s"]);
        assert_eq!([512, 4096, 1 << 30].map(size_label), ["512 B", "4 KiB", "1 GiB"]);
        assert_eq!(SizeUnit::of(u64::MAX).name, "EiB");
    }
}
