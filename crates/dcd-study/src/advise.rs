//! What a log would do for a load: the settings, and the passes over the load. What is told of it
//! is made in `dcd_sim::advise`.

use clap::Args;
use dcd_engine::Geometry;
use dcd_protocol::units_text::parse_size;
use dcd_sim::advise::grid::{CacheDevice, Grid, cache_sizes};
use dcd_sim::advise::load::{LoadFacts, LoadMeter};
use dcd_sim::advise::overload::Overload;
use dcd_sim::advise::{Advice, PaceFacts, noise, sequences, trials};
use dcd_sim::disk::profile::Profile;
use dcd_sim::replay::{Replay, TOO_MUCH_MEMORY};
use dcd_sim::sweep::{self, Load, Outcome, Point};
use dcd_sim::target::setup::SetupError;

use crate::StudyError;
use crate::load::{empty, feed};
use crate::simulate::{AckArgument, DestageArgument, parse_stretch};
use crate::watch::{Counted, Watcher, go_on};

/// Where a log is tried if nothing is said; the disk's own model comes last.
const CACHE_PROFILES: [&str; 2] = ["nvme-ssd", "sata-ssd"];

/// Less memory than this no simulation has, if fewer of them at once have more.
const SHARE_BYTES_MIN: u64 = 256 << 20;

/// Which logs are tried, on what, and how the load comes.
#[derive(Args, Debug)]
pub struct AdviseSettings {
    /// The disk that you have: name of a profile (`dcd disk list`), or path of a TOML file.
    #[arg(long, value_name = "PROFILE")]
    pub disk: String,
    /// Sizes of the log [default: powers of two around what the load writes].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size)]
    pub cache_disk: Vec<u64>,
    /// Devices for the log, as for --disk [default: nvme-ssd, sata-ssd, and a second disk like the
    /// first].
    #[arg(long, value_name = "PROFILES", value_delimiter = ',')]
    pub cache_disk_profile: Vec<String>,
    /// Which segment is destaged first [default: fifo; ordered in front of an object store].
    #[arg(long, value_name = "POLICIES", value_delimiter = ',')]
    pub destage: Vec<DestageArgument>,
    /// When a write is acknowledged.
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "memory")]
    pub ack: Vec<AckArgument>,
    /// What may be written to the cache device in its life, in units of 10^12 bytes (TBW), as its
    /// data sheet says [default: that of the profile, if it has one].
    #[arg(long, value_name = "TBW", value_parser = parse_tbw)]
    pub endurance_tbw: Option<f64>,
    /// Each request comes when the one before is done [default: if the bare disk cannot keep up
    /// with the trace].
    #[arg(long)]
    pub closed_loop: bool,
    /// Multiply the times of the trace; 1 keeps them even if the disk cannot keep up.
    #[arg(long, value_name = "FACTOR", value_parser = parse_stretch, conflicts_with = "closed_loop")]
    pub stretch: Option<f64>,
    /// Simulate what is recommended with so many seeds, and recommend it only if it is worth it with
    /// each.
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: u32,
    /// Memory for the simulations, about; there are fewer at once than --jobs where each would have
    /// less than 256 MiB. A log that needs more than all of it is given up, and that is told.
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = parse_size)]
    pub memory_max: u64,
    /// As for `dcd simulate`; with further seeds, the first of them.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
}

fn parse_tbw(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(tbw) if (1e-3..=1e9).contains(&tbw) => Ok(tbw),
        _ => Err("expected a number from 0.001 to 1e9, in 10^12 bytes"),
    }
}

impl AdviseSettings {
    /// What is simulated; without sizes if none are given.
    ///
    /// # Errors
    /// If there is no such profile, or no log of such a size.
    pub fn grid(&self) -> Result<Grid, StudyError> {
        for &bytes in &self.cache_disk {
            let segment_bytes = Geometry::default_segment_size(bytes);
            Geometry::fit(bytes, segment_bytes).map_err(SetupError::from)?;
        }
        let disk = Profile::load(&self.disk)?;
        let mut names = self.cache_disk_profile.clone();
        if names.is_empty() {
            names = CACHE_PROFILES.map(str::to_owned).to_vec();
            // A bucket has no place for a log.
            names.extend((!disk.is_object_store()).then(|| self.disk.clone()));
        }
        let device = |name: String| {
            let profile = Profile::load(&name)?;
            Ok(CacheDevice::new(name, profile, self.endurance_tbw))
        };
        let destage = match self.destage.is_empty() {
            true => vec![DestageArgument::default_for(&disk)],
            false => self.destage.clone(),
        };
        if disk.is_host_managed() {
            return Err(SetupError::HostManaged.into());
        }
        Ok(Grid {
            disk_name: self.disk.clone(),
            devices: once(names).into_iter().map(device).collect::<Result<_, StudyError>>()?,
            sizes: sorted(&self.cache_disk),
            destage: once(destage.iter().map(|destage| destage.kind())),
            ack: once(self.ack.iter().map(|ack| ack.mode())),
            seed: self.seed,
            disk,
        })
    }

    /// Looks at a load, simulates it on all of the grid, and tells.
    ///
    /// # Errors
    /// Of the load, or because it is over.
    pub fn advise(
        &self,
        mut grid: Grid,
        load: &Load,
        name: String,
        jobs: usize,
        watcher: &mut dyn Watcher,
    ) -> Result<Advice, StudyError> {
        let run = |points: &mut Vec<Point>, watcher: &mut dyn Watcher| {
            self.run_within_memory(load, points, jobs, watcher)
        };
        let (facts, pace, bare) = self.look(load, name, &grid, watcher)?;
        if grid.sizes.is_empty() {
            grid.sizes = cache_sizes(facts.summary.working_set.written_bytes);
        }
        let mut points: Vec<Point> =
            grid.variants().iter().map(|variant| grid.point(variant, &pace)).collect();
        if bare.is_none() {
            points.push(grid.bare(&pace));
        }
        let mut outcomes = run(&mut points, watcher)?;
        let bare = bare.or_else(|| outcomes.pop()).expect("it was simulated first or last");
        let mut advice = Advice::new(facts, &grid, pace, &bare, &outcomes);
        let mut points = noise::points(&advice, &grid, &advice.pace, self.seeds);
        if !points.is_empty() {
            let outcomes = run(&mut points, watcher)?;
            noise::weigh(&mut advice, &outcomes);
        }
        let mut points = sequences::points(&advice.load, &grid, &advice.pace);
        if !points.is_empty() {
            let outcomes = run(&mut points, watcher)?;
            advice.sequences = sequences::advice(&advice, &grid, &outcomes);
        }
        let tried = trials::points(&advice, &grid, &advice.pace);
        if !tried.is_empty() {
            let mut points: Vec<Point> = tried.iter().map(|(.., point)| point.clone()).collect();
            let outcomes = run(&mut points, watcher)?;
            advice.trials = trials::trials(&advice, tried, &outcomes);
        }
        advice.tell_memory(self.memory_max);
        Ok(advice)
    }

    /// Several at once, each with a share of the memory; those that need more again, alone and with
    /// all of it. What comes of a point does not depend on how many there were at once.
    fn run_within_memory(
        &self,
        load: &Load,
        points: &mut [Point],
        jobs: usize,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<Outcome>, StudyError> {
        let at_once = (jobs as u64).clamp(1, (self.memory_max / SHARE_BYTES_MIN).max(1));
        let share = self.memory_max / at_once;
        points.iter_mut().for_each(|point| point.memory_max = Some(share));
        let mut outcomes = run_points(load, points, at_once as usize, watcher)?;
        let wants_more = |outcome: &Outcome| {
            outcome.as_ref().is_err_and(|error| error.contains(TOO_MUCH_MEMORY))
        };
        for (point, outcome) in points.iter_mut().zip(&mut outcomes) {
            if at_once > 1 && wants_more(outcome) {
                point.memory_max = Some(self.memory_max);
                let alone = std::slice::from_ref(point);
                *outcome = run_points(load, alone, 1, watcher)?.pop().expect("one was simulated");
            }
        }
        Ok(outcomes)
    }

    /// The first pass: what the load is like, and whether the bare disk keeps up with it. The
    /// outcome of the bare disk, if it is what counts.
    fn look(
        &self,
        load: &Load,
        name: String,
        grid: &Grid,
        watcher: &mut dyn Watcher,
    ) -> Result<(LoadFacts, PaceFacts, Option<Outcome>), StudyError> {
        let mut pace = PaceFacts {
            closed_loop: self.closed_loop,
            stretch: (!self.closed_loop).then(|| self.stretch.unwrap_or(1.0)),
            is_chosen: self.closed_loop || self.stretch.is_some(),
            overload: None,
        };
        let target = grid.bare(&pace).setup.build()?;
        // None when it was given up.
        let mut replay = Some(Replay::new(target, pace.pace()));
        let mut meter = LoadMeter::default();
        let mut overload = None;
        let what = if matches!(load, Load::Workload(_)) { "making up" } else { "reading" };
        feed(load, u64::MAX, what, watcher, &mut |request| {
            meter.add(request);
            if let Some(bare) = &mut replay
                && let Err(error) = bare.add(request)
            {
                overload = Some(Overload::of_error(&error).ok_or(error)?);
                replay = None;
            }
            Ok(())
        })?;
        let facts = meter.finish(name).ok_or_else(|| empty(load))?;
        let bare = replay.map(Replay::finish);
        if let (Some(bare), Some(stretch)) = (&bare, pace.stretch) {
            overload = Overload::of(bare, facts.summary.duration_s * stretch);
        }
        pace.overload = overload;
        if pace.overload.is_some() && !pace.is_chosen {
            (pace.closed_loop, pace.stretch) = (true, None);
            return Ok((facts, pace, None));
        }
        Ok((facts, pace, bare.map(Ok)))
    }
}

/// The second pass, and a third: a simulation for each point.
fn run_points(
    load: &Load,
    points: &[Point],
    jobs: usize,
    watcher: &mut dyn Watcher,
) -> Result<Vec<Outcome>, StudyError> {
    let is_over = watcher.is_over();
    watcher.begin("simulating", Counted::Rounds);
    watcher.update(0, points.len() as u64);
    let mut outcomes = Vec::with_capacity(points.len());
    let on_load: Vec<_> = points.iter().map(|point| (load, point)).collect();
    sweep::run(&on_load, 0, jobs, &is_over, |index, outcome| {
        outcomes.push(outcome);
        watcher.update(index as u64 + 1, points.len() as u64);
        true
    });
    go_on(&is_over)?;
    watcher.end();
    Ok(outcomes)
}

/// Each once, in their order.
fn once<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

fn sorted(sizes: &[u64]) -> Vec<u64> {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}
