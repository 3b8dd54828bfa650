//! The curves of the thesis' Figures 3.1, 3.2, 5.5 and 5.7, with those that its corrected equations
//! give.
//!
//! Its text has no numbers of the curves, and not all parameters. What is chosen here is said at
//! each figure.

use super::AnalysisError;
use super::cleaning::CleaningChain;
use super::hot_cold::{HotColdCache, HotColdParameters};
use super::idle::{Detection, IdleParameters, ServiceTime};
use crate::plot::{Plot, Series};

/// n and m of Figures 3.1 and 3.2.
const BLOCKS: u64 = 1000;
const CACHE_BLOCKS: u64 = 10;
/// alpha in these figures; the thesis does not say which it has.
const RATIOS: [f64; 3] = [2.0, 10.0, 100.0];
/// Hot blocks in Figure 3.1; the thesis does not say how many.
const HOT_BLOCKS: u64 = 100;
/// Hot blocks in Figure 3.2: as many as the cache holds, to half of all.
const HOT_BLOCKS_SHOWN: std::ops::RangeInclusive<u64> = CACHE_BLOCKS..=500;
const HOT_BLOCKS_STEP: usize = 10;

/// Figure 5.5: "a cache of 52 blocks with an incremental hit probability of 0.000067".
const CHAIN_STATES: u64 = 52;
const CHAIN_INCREMENT: f64 = 0.000_067;
const CHAIN_WRITES: u64 = 500_000;
const CHAIN_EVERY: u64 = 1000;

/// Steps of t_idle in Figure 5.7.
const IDLE_STEP_MS: u32 = 2;

/// Figure 3.1: the probability of a state over the number of hot blocks in it.
pub fn figure_3_1() -> Result<Plot, AnalysisError> {
    let xs: Vec<u64> = (0..=CACHE_BLOCKS).collect();
    let series = state_series(&xs, |ratio, &held| Ok((hot_cold(HOT_BLOCKS, ratio)?, held as f64)))?;
    Ok(Plot {
        title: "Figure 3.1: probability of a state, 10 of 1000 blocks cached, 100 hot".into(),
        x_axis: "hot blocks in the cache".into(),
        y_axis: "stationary probability of the state".into(),
        log_y: true,
        series,
    })
}

/// Figure 3.2: the probability of a state with as many hot blocks as equation 4.1 has, over the
/// number of hot blocks.
pub fn figure_3_2() -> Result<Plot, AnalysisError> {
    let xs: Vec<u64> = HOT_BLOCKS_SHOWN.step_by(HOT_BLOCKS_STEP).collect();
    let series = state_series(&xs, |ratio, &hot| {
        let cache = hot_cold(hot, ratio)?;
        Ok((cache, cache.expected_hot_blocks_with_replacement()))
    })?;
    Ok(Plot {
        title: "Figure 3.2: probability of the expected state, 10 of 1000 blocks cached".into(),
        x_axis: "hot blocks on the disk".into(),
        y_axis: "stationary probability of the state".into(),
        log_y: true,
        series,
    })
}

/// Figure 5.5: p_clean of each thousandth write, and where it goes.
pub fn figure_5_5() -> Result<Plot, AnalysisError> {
    let chain = CleaningChain::with_increment(CHAIN_STATES, 0.0, CHAIN_INCREMENT)?;
    let after = chain.p_clean_after(CHAIN_WRITES, CHAIN_EVERY)?;
    let limit = chain.p_clean();
    Ok(Plot {
        title: "Figure 5.5: a write starts a cleaning, 52 blocks".into(),
        x_axis: "writes since a cleaning".into(),
        y_axis: "p_clean".into(),
        log_y: false,
        series: vec![
            Series {
                name: "each thousandth write".into(),
                points: after.into_iter().map(|(write, p)| (write as f64, p)).collect(),
            },
            Series {
                name: "in the long run".into(),
                points: vec![(0.0, limit), (CHAIN_WRITES as f64, limit)],
            },
        ],
    })
}

/// Figure 5.7: response times over the idle time, up to the longest that fits into a cleaning
/// cycle.
///
/// Table 5.1, with the second and third moment that belong to 15 ms and 8 ms (see
/// `ServiceTime::new`), and no read hits in the write cache.
pub fn figure_5_7() -> Result<Plot, AnalysisError> {
    let mut series = Vec::new();
    for (detection, how) in [(Detection::Windows, "windows"), (Detection::Gap, "gap")] {
        let mut reads = Vec::new();
        let mut reads_printed = Vec::new();
        let mut writes = Vec::new();
        for step in 0.. {
            let idle_ms = f64::from(step * IDLE_STEP_MS);
            let cycle = match table_5_1(idle_ms / 1e3, detection)?.cycle() {
                Err(AnalysisError::CycleTooShort { .. }) => break,
                cycle => cycle?,
            };
            reads.push((idle_ms, cycle.read_response_seconds * 1e3));
            reads_printed.push((idle_ms, cycle.read_response_printed_seconds * 1e3));
            writes.push((idle_ms, cycle.write_response_seconds * 1e3));
        }
        series.push(Series { name: format!("reads, {how}"), points: reads });
        series.push(Series { name: format!("writes, {how}"), points: writes });
        if detection == Detection::Windows {
            series.push(Series { name: "reads, 5.3 as printed".into(), points: reads_printed });
        }
    }
    Ok(Plot {
        title: "Figure 5.7: response times with idle detection".into(),
        x_axis: "idle time before a cleaning, ms".into(),
        y_axis: "mean response time, ms".into(),
        log_y: false,
        series,
    })
}

/// Table 5.1.
fn table_5_1(idle_seconds: f64, detection: Detection) -> Result<IdleParameters, AnalysisError> {
    Ok(IdleParameters {
        service: ServiceTime::symmetric(0.015, 0.008)?,
        reads_per_second: 12.0,
        writes_per_second: 8.0,
        p_clean: 0.03,
        cleaning_writes: 52.0,
        idle_seconds,
        detection,
    })
}

fn hot_cold(hot_blocks: u64, ratio: f64) -> Result<HotColdCache, AnalysisError> {
    HotColdCache::new(HotColdParameters {
        hot_blocks,
        cold_blocks: BLOCKS - hot_blocks,
        hot_to_cold_ratio: ratio,
        cache_blocks: CACHE_BLOCKS,
    })
}

/// For each alpha the lower bound of LRU and the true FCFS; and the bounds that the thesis has for
/// FCFS with any.
fn state_series(
    xs: &[u64],
    state: impl Fn(f64, &u64) -> Result<(HotColdCache, f64), AnalysisError>,
) -> Result<Vec<Series>, AnalysisError> {
    let mut all = Vec::new();
    for ratio in RATIOS {
        let (mut lru, mut fcfs) = (Vec::new(), Vec::new());
        for x in xs {
            let (cache, held) = state(ratio, x)?;
            lru.push((*x as f64, cache.lru_state_bounds(held)?.lower.exp()));
            fcfs.push((*x as f64, cache.ln_fcfs_state(held)?.exp()));
        }
        all.push(Series { name: format!("LRU, lower bound, ratio {ratio}"), points: lru });
        all.push(Series { name: format!("FCFS, ratio {ratio}"), points: fcfs });
    }
    let bounds = hot_cold(HOT_BLOCKS, 1.0)?.uniform_state_bounds();
    for (name, bound) in [("lower", bounds.lower), ("upper", bounds.upper)] {
        let points = xs.iter().map(|x| (*x as f64, bound.exp())).collect();
        all.push(Series { name: format!("FCFS in the thesis, {name} bound"), points });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::svg;

    fn series<'a>(plot: &'a Plot, name: &str) -> &'a [(f64, f64)] {
        &plot.series.iter().find(|series| series.name == name).expect(name).points
    }

    /// Section 3.1.1: "States on the right side of the graph are several orders of magnitude more
    /// likely to occur for an LRU cache than the same states in an FCFS cache". True of its FCFS
    /// line, not of equation 3.4.
    #[test]
    fn figure_3_1_rises_for_lru_and_for_the_true_fcfs() {
        let plot = figure_3_1().unwrap();
        let thesis = series(&plot, "FCFS in the thesis, upper bound");
        assert!(thesis.iter().all(|point| point.1 == thesis[0].1), "flat");
        let lower = series(&plot, "FCFS in the thesis, lower bound");
        assert!(lower[0].1 < thesis[0].1 && lower[0].1 > 0.9999 * thesis[0].1);
        for ratio in ["10", "100"] {
            let lru = series(&plot, &format!("LRU, lower bound, ratio {ratio}"));
            let fcfs = series(&plot, &format!("FCFS, ratio {ratio}"));
            assert!(lru.windows(2).all(|pair| pair[0].1 < pair[1].1));
            assert!(lru[10].1 > 1e3 * thesis[10].1 && lru[0].1 < thesis[0].1);
            let most = lru.iter().zip(fcfs).map(|(lru, fcfs)| lru.1 / fcfs.1).fold(0.0, f64::max);
            assert!(most < 1.0, "the bound of LRU against the true FCFS: {most}");
        }
    }

    /// Section 3.1.1: "The higher values of pi(LRU)". True of the thesis' FCFS line.
    #[test]
    fn figure_3_2_has_lru_above_the_thesis_fcfs() {
        let plot = figure_3_2().unwrap();
        let thesis = series(&plot, "FCFS in the thesis, upper bound");
        for ratio in ["2", "10", "100"] {
            let lru = series(&plot, &format!("LRU, lower bound, ratio {ratio}"));
            for (lru, fcfs) in lru.iter().zip(thesis) {
                assert!(lru.1 > fcfs.1, "{ratio} {lru:?} {fcfs:?}");
            }
        }
    }

    #[test]
    fn figure_5_5_has_501_points_that_settle() {
        let plot = figure_5_5().unwrap();
        let (points, limit) = (&plot.series[0].points, plot.series[1].points[0].1);
        assert_eq!((points.len(), points[500].0), (501, 500_000.0));
        assert!((points[500].1 / limit - 1.0).abs() < 0.02);
    }

    /// Section 5.2: "idle detection may do little to improve read response time, and increase write
    /// response time".
    #[test]
    fn figure_5_7_has_flat_reads_and_rising_writes() {
        let plot = figure_5_7().unwrap();
        for how in ["windows", "gap"] {
            let reads = series(&plot, &format!("reads, {how}"));
            let writes = series(&plot, &format!("writes, {how}"));
            let last = reads.len() - 1;
            assert!(last > 90, "{how} fits up to {} ms", reads[last].0);
            assert!(reads.windows(2).all(|pair| pair[1].1 <= pair[0].1));
            assert!(reads[last].1 > 0.98 * reads[0].1);
            assert!(writes[last].1 > 1e3 * writes[0].1);
        }
    }

    #[test]
    fn all_can_be_drawn() {
        for plot in [figure_3_1(), figure_3_2(), figure_5_5(), figure_5_7()] {
            let svg = svg::render(&plot.unwrap()).unwrap();
            assert!(svg.starts_with("<svg") && svg.matches("<polyline").count() >= 2);
        }
    }
}
