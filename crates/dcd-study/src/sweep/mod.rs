//! A grid of simulations of one load, or of several.
//!
//! ```text
//! arguments.rs   the settings
//! grid.rs        their combinations
//! results.rs     what comes of one, as columns of a row
//! ```

mod arguments;
mod grid;
mod results;

pub use arguments::GridArguments;
use dcd_sim::sweep::{self, Load, Outcome, Point};
pub use results::{Labels, RESULTS, is_text, results, value};

use crate::StudyError;
use crate::load;
use crate::shard::Shard;
use crate::watch::{Counted, Watcher, go_on};

/// A grid, ready to be simulated: each load with its points.
pub struct Sweep {
    loads: Vec<(Load, Vec<Point>)>,
    /// Parameters of each row, in the order of the grid.
    pub labels: Vec<Labels>,
}

impl Sweep {
    /// Of those settings, on those loads; one shard of it.
    ///
    /// # Errors
    /// Of the settings, of a load, or if the shard has no row.
    pub fn new(
        grid: &GridArguments,
        loads: Vec<Load>,
        shard: Option<Shard>,
    ) -> Result<Sweep, StudyError> {
        let points = grid::points(grid)?;
        loads.iter().try_for_each(load::check)?;
        let mine = shard.map(|shard| shard.rows(loads.len() * points.len()));
        let mut row = 0..;
        let mut is_mine = || {
            let row = row.next().expect("without end");
            mine.as_ref().is_none_or(|mine| mine.contains(&row))
        };
        let mut mine_of =
            |load| (load, points.iter().filter(|_| is_mine()).cloned().collect::<Vec<_>>());
        let loads: Vec<(Load, Vec<Point>)> = loads.into_iter().map(&mut mine_of).collect();
        let of_load = |(load, points): &(Load, Vec<Point>)| -> Vec<Labels> {
            let name = load::name(load);
            points.iter().map(|point| labels(&name, point)).collect()
        };
        let labels: Vec<Labels> = loads.iter().flat_map(of_load).collect();
        match labels.is_empty() {
            true => Err(StudyError::EmptyShard),
            false => Ok(Sweep { loads, labels }),
        }
    }

    /// Simulates all rows from the `first` on; tells `done` of each, in their order, and is over
    /// when that says so.
    ///
    /// # Errors
    /// Because it is over.
    pub fn run(
        &self,
        first: usize,
        jobs: usize,
        watcher: &mut dyn Watcher,
        mut done: impl FnMut(usize, Outcome) -> bool + Send,
    ) -> Result<(), StudyError> {
        watcher.begin("sweeping", Counted::Rounds);
        let is_over = watcher.is_over();
        let mut next = 0;
        for (load, points) in &self.loads {
            let before = next;
            next += points.len();
            let skipped = first.saturating_sub(before);
            if skipped >= points.len() {
                continue;
            }
            sweep::run(load, points, skipped, jobs, &is_over, |index, outcome| {
                watcher.update((before + index + 1) as u64, self.labels.len() as u64);
                done(before + index, outcome)
            });
            go_on(&is_over)?;
        }
        watcher.end();
        Ok(())
    }
}

/// Threads, if nobody says how many.
pub fn jobs_default() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Parameters of a row.
fn labels(load: &str, point: &Point) -> Labels {
    [("load", load.to_owned())].into_iter().chain(point.labels.iter().cloned()).collect()
}
