//! A grid of simulations of one load, or of several.
//!
//! ```text
//! arguments.rs   the settings
//! grid.rs        their combinations
//! fingerprint.rs what decides a row and is no column
//! results.rs     what comes of one, as columns of a row
//! ```

mod arguments;
mod fingerprint;
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
    /// There is no other, of another shard neither.
    is_one: bool,
    /// Parameters of each row, in the order of the grid.
    pub labels: Vec<Labels>,
}

impl Sweep {
    /// Of those settings, on those loads, which nobody has looked at yet; one shard of it.
    ///
    /// # Errors
    /// Of the settings, or if the shard has no row.
    pub fn new(
        grid: &GridArguments,
        loads: Vec<Load>,
        shard: Option<Shard>,
    ) -> Result<Sweep, StudyError> {
        let points = grid::points(grid)?;
        let is_one = loads.len() == 1;
        let mine = shard.map(|shard| shard.rows(loads.len() * points.len()));
        let mut row = 0..;
        let mut is_mine = || {
            let row = row.next().expect("without end");
            mine.as_ref().is_none_or(|mine| mine.contains(&row))
        };
        let mut mine_of =
            |load| (load, points.iter().filter(|_| is_mine()).cloned().collect::<Vec<_>>());
        let loads = loads.into_iter().map(&mut mine_of);
        let loads: Vec<(Load, Vec<Point>)> = loads.filter(|(_, mine)| !mine.is_empty()).collect();
        let of_load = |(load, points): &(Load, Vec<Point>)| -> Vec<Labels> {
            let name = load::name(load);
            points.iter().map(|point| labels(&name, point)).collect()
        };
        let labels: Vec<Labels> = loads.iter().flat_map(of_load).collect();
        match labels.is_empty() {
            true => Err(StudyError::EmptyShard),
            false => Ok(Sweep { loads, is_one, labels }),
        }
    }

    /// The loads that have rows.
    pub fn loads(&self) -> impl Iterator<Item = &Load> {
        self.loads.iter().map(|(load, _)| load)
    }

    /// Looks whether the load can be read again and again, and has requests. Where there are
    /// several, one that cannot keeps no other from being simulated: its rows say what is wrong.
    ///
    /// # Errors
    /// If it is not so.
    pub fn check(&self) -> Result<(), StudyError> {
        match self.is_one {
            true => self.loads().try_for_each(load::check),
            false => Ok(()),
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
        let points: Vec<(&Load, &Point)> = self
            .loads
            .iter()
            .flat_map(|(load, points)| points.iter().map(move |point| (load, point)))
            .collect();
        sweep::run(&points, first, jobs, &is_over, |index, outcome| {
            watcher.update((index + 1) as u64, self.labels.len() as u64);
            done(index, outcome)
        });
        go_on(&is_over)?;
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
