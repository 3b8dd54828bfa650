//! The curves of the page.

use super::Advice;
use super::load::OverTime;
use super::recommendation::Verdict;
use super::row::{LogRow, Response, Row, RowFacts};
use super::words::size;
use crate::plot::{Mark, Plot, Series, View};

/// Times below this are drawn as this: a logarithm needs something.
const MS_MIN: f64 = 0.001;
/// Between the least and the most: beyond this, powers of ten are equally far apart.
const RATIO_OF_LOG: f64 = 20.0;

/// A plot, and what it shows in a sentence.
pub struct Picture {
    pub plot: Plot,
    pub view: View,
    pub caption: String,
}

/// All that there is something to draw for.
pub fn pictures(advice: &Advice) -> Vec<Picture> {
    let mean = |facts: &RowFacts| Some(facts.mean_ms);
    let p99 = |of: fn(&RowFacts) -> Option<Response>| {
        move |facts: &RowFacts| of(facts).map(|response| response.p99_ms)
    };
    let (reads, writes) = (p99(|facts| facts.read), p99(|facts| facts.write));
    let flushes = p99(|facts| facts.flush);
    let log =
        |of: fn(&LogRow) -> Option<f64>| move |facts: &RowFacts| facts.log.as_ref().and_then(of);
    let all = [
        times(advice, "Mean response of all requests", &mean),
        times(advice, "99 of 100 reads take at most", &reads),
        times(advice, "99 of 100 writes take at most", &writes),
        times(advice, "99 of 100 flushes take at most", &flushes),
        shares(
            advice,
            "Fewer writes to the disk",
            "%",
            "Against the bare disk, with those that empty the log at the end.",
            &|facts| Some(facts.fewer_disk_writes_percent),
        ),
        shares(
            advice,
            "Writes that wait for room",
            "% of writes",
            "The log is full, and the disk has to make room first.",
            &log(|log| Some(log.stalled_percent)),
        ),
        written_a_day(advice),
    ];
    all.into_iter().flatten().collect()
}

/// Response times against size, with the bare disk.
fn times(
    advice: &Advice,
    title: &str,
    value: &dyn Fn(&RowFacts) -> Option<f64>,
) -> Option<Picture> {
    let bare = value(advice.bare.facts.as_ref()?)?.max(MS_MIN);
    let mut series = curves(advice, &|facts| value(facts).map(|ms| ms.max(MS_MIN)));
    let (first, last) = ends(&series)?;
    let name = format!("{} alone", advice.disk);
    series.push(Series { name, points: vec![(first, bare), (last, bare)] });
    let values = || series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let (least, greatest) = (values().fold(bare, f64::min), values().fold(bare, f64::max));
    let log_y = greatest / least > RATIO_OF_LOG;
    let caption = match log_y && least <= MS_MIN {
        true => {
            "Powers of ten are equally far apart; what takes less than 0.001 ms is drawn there."
        }
        false if log_y => "Powers of ten are equally far apart.",
        false => "",
    };
    Some(Picture {
        plot: Plot {
            title: title.to_owned(),
            x_axis: "size of the log".into(),
            y_axis: "ms".into(),
            log_y,
            series,
        },
        view: size_view(advice),
        caption: caption.to_owned(),
    })
}

/// Something of the log against its size; nothing where it is 0 everywhere.
fn shares(
    advice: &Advice,
    title: &str,
    unit: &str,
    caption: &str,
    value: &dyn Fn(&RowFacts) -> Option<f64>,
) -> Option<Picture> {
    let series = curves(advice, value);
    let any = series.iter().flat_map(|series| &series.points).any(|point| point.1.abs() > 0.005);
    (any && ends(&series).is_some()).then(|| Picture {
        plot: Plot {
            title: title.to_owned(),
            x_axis: "size of the log".into(),
            y_axis: unit.to_owned(),
            log_y: false,
            series,
        },
        view: size_view(advice),
        caption: caption.to_owned(),
    })
}

/// In the unit that the largest needs.
fn written_a_day(advice: &Advice) -> Option<Picture> {
    let wear = |row: &Row| Some(row.log()?.wear?.bytes_per_day);
    let most = advice.rows.iter().filter_map(wear).fold(0.0, f64::max);
    let value = |bits: u32| {
        move |facts: &RowFacts| {
            let wear = facts.log.as_ref()?.wear?;
            Some(wear.bytes_per_day / (1u64 << bits) as f64)
        }
    };
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB")];
    let unit = units.into_iter().find(|(bits, _)| most >= (1u64 << bits) as f64);
    let (bits, unit) = unit.unwrap_or((10, "KiB"));
    let caption = "Records, checkpoints and superblocks, if the load goes on like this.";
    shares(advice, "Written to the cache device in a day", unit, caption, &value(bits))
}

/// A series for each curve that has points.
fn curves(advice: &Advice, value: &dyn Fn(&RowFacts) -> Option<f64>) -> Vec<Series> {
    let point = |row: &Row| {
        let y = value(row.facts.as_ref()?)?;
        Some(((row.cache_bytes? as f64).log2(), y))
    };
    let series = |curve: &super::Curve| Series {
        name: format!("log on {}", curve.name),
        points: curve.rows.iter().filter_map(|&index| point(&advice.rows[index])).collect(),
    };
    advice.curves.iter().map(series).filter(|series| !series.points.is_empty()).collect()
}

/// The smallest and the largest x.
fn ends(series: &[Series]) -> Option<(f64, f64)> {
    let xs = || series.iter().flat_map(|series| &series.points).map(|point| point.0);
    Some((xs().min_by(f64::total_cmp)?, xs().max_by(f64::total_cmp)?))
}

fn size_view(advice: &Advice) -> View {
    let recommendation = &advice.recommendation;
    let is_recommended = matches!(recommendation.verdict, Verdict::Helps | Verdict::FewerWrites);
    let row = recommendation.row.filter(|_| is_recommended).and_then(|row| advice.rows.get(row));
    let mark =
        |bytes: u64| Mark { x: (bytes as f64).log2(), label: format!("knee: {}", size(bytes)) };
    let marks = row.and_then(|row| row.cache_bytes).map(mark).into_iter().collect();
    View { x_is_log_of_bytes: true, y_from_zero: true, marks, ..View::default() }
}

/// Requests over the time of the trace.
pub fn over_time(load: &OverTime) -> Option<Picture> {
    let steps = load.reads_per_second.len();
    if steps < 2 {
        return None;
    }
    let total_s = load.step_s * steps as f64;
    let (unit, unit_s) = match total_s {
        _ if total_s < 300.0 => ("s", 1.0),
        _ if total_s < 4.0 * 3600.0 => ("min", 60.0),
        _ if total_s < 4.0 * 86_400.0 => ("h", 3600.0),
        _ => ("days", 86_400.0),
    };
    let series = |name: &str, rates: &[f64]| {
        let at = |step: usize| (step as f64 + 0.5) * load.step_s / unit_s;
        let points = rates.iter().enumerate().map(|(step, rate)| (at(step), *rate)).collect();
        Series { name: name.to_owned(), points }
    };
    let step = super::words::duration(load.step_s);
    Some(Picture {
        plot: Plot {
            title: "The load over time".into(),
            x_axis: format!("{unit} since the first request"),
            y_axis: "requests/s".into(),
            log_y: false,
            series: vec![
                series("writes", &load.writes_per_second),
                series("reads", &load.reads_per_second),
            ],
        },
        view: View { y_from_zero: true, ..View::default() },
        caption: format!("Means over {step}, at the times of the trace."),
    })
}
