//! One simulation: a load on a disk model, with and without caches.

mod arguments;
mod volume;

pub use arguments::{
    AckArgument, CacheArguments, DestageArgument, NvramPolicyArgument, PASSES_DEFAULT,
    SequencesArgument, SimulateArguments, parse_groups_at_once, parse_hot_zone, parse_stretch,
};
pub use volume::{HintArgument, MembersArgument, VolumeArguments};

use dcd_sim::bound::Bound;
use dcd_sim::disk::profile::Profile;
use dcd_sim::replay::{Pace, Replay, ReplayError, ReplayFacts};
use dcd_sim::sequence_runs;
use dcd_sim::sweep::Load;
use dcd_sim::trace::Request;
use serde_json::{Value, json};

use self::volume::Touched;
use crate::StudyError;
use crate::load::{self, feed};
use crate::watch::Watcher;

impl SimulateArguments {
    /// The load that they name, and the other one of `--then`.
    ///
    /// # Panics
    /// If they name none, which the command line refuses.
    pub fn loads(&self) -> (Load, Option<Load>) {
        let trace = |path: &std::path::PathBuf| Load::Trace(self.input.source(path));
        let load = self.trace.as_ref().map(trace);
        let load = load.or_else(|| self.workload.clone().map(Load::Workload));
        (load.expect("a trace or a workload is required"), self.then.as_ref().map(trace))
    }

    /// Simulates a load; with `--sequences`, `then` comes the last time, if it is there.
    ///
    /// # Errors
    /// Of the settings, of the load, or because it is over.
    pub fn run(
        &self,
        load: &Load,
        then: Option<&Load>,
        watcher: &mut dyn Watcher,
    ) -> Result<ReplayFacts, StudyError> {
        let profile = Profile::load(&self.disk)?;
        let pace = match self.closed_loop {
            true => Pace::Closed,
            false => Pace::Open { stretch: self.stretch },
        };
        let facts = match self.sequences {
            Some(mode) => {
                // They are read several times, which a pipe cannot be.
                for load in [Some(load), then].into_iter().flatten() {
                    load::check(load)?;
                }
                let setup = self.caches.clone().with_sequences()?.setup(profile, self.seed)?;
                let mode = mode.mode(self.passes);
                sequence_runs::run(&setup, pace, mode, then.is_some(), |which, take| {
                    let other = then.filter(|_| which == sequence_runs::Load::Last);
                    self.feed(other.unwrap_or(load), watcher, take)
                })?
            }
            None => {
                let mut setup = self.caches.setup(profile, self.seed)?;
                let volume = setup.volume.as_ref().filter(|_| !self.caches.volume.empty);
                let touched = volume.map(|volume| Touched::new(&volume.header.config));
                if let Some(mut touched) = touched {
                    // It is read twice, which a pipe cannot be.
                    load::check(load)?;
                    // What cannot be is told before that.
                    setup.build()?;
                    let requests = self.requests.unwrap_or(u64::MAX);
                    feed(load, requests, "looking at the load", watcher, &mut |request| {
                        touched.add(request);
                        Ok(())
                    })?;
                    if let Some(volume) = &mut setup.volume {
                        volume.written = touched.ranges();
                    }
                }
                let mut replay = Replay::new(setup.build()?, pace);
                let mut bound = Ok(setup.bound().filter(|_| self.bound));
                self.feed(load, watcher, &mut |request| {
                    replay.add(request)?;
                    if let Ok(Some(found)) = &mut bound
                        && let Err(problem) = found.add(request)
                    {
                        bound = Err(problem);
                    }
                    Ok(())
                })?;
                let mut facts = replay.finish();
                facts.bound = bound?.map(Bound::finish);
                facts
            }
        };
        match (facts.requests, load) {
            (0, Load::Trace(_) | Load::Memory(_)) => Err(load::empty(load)),
            _ => Ok(facts),
        }
    }

    /// Gives all requests that are wanted to `take`.
    fn feed(
        &self,
        load: &Load,
        watcher: &mut dyn Watcher,
        take: &mut dyn FnMut(&Request) -> Result<(), ReplayError>,
    ) -> Result<(), StudyError> {
        feed(load, self.requests.unwrap_or(u64::MAX), "simulating", watcher, take)
    }

    /// Results for programs.
    pub fn facts(&self, facts: &ReplayFacts, load: &Load) -> Value {
        let mut json = json!(facts);
        json["disk"] = json!(self.disk);
        if let Some(MembersArgument::Each(members)) = &self.caches.volume.members {
            json["disk"] = json!(members);
        }
        let kind = if matches!(load, Load::Workload(_)) { "workload" } else { "trace" };
        json[kind] = json!(load::name(load));
        json
    }
}
