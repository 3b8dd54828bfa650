//! A disk model, one request after the other.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use dcd_engine::Time;
use dcd_sim::disk::model::{DiskModel, DiskOperation, DiskRequest};
use dcd_sim::disk::profile::Profile;
use dcd_sim::disk::profiles;
use dcd_sim::trace::Operation;
use dcd_study::StudyError;
use pyo3::prelude::*;

use crate::columns::Requests;
use crate::errors::{SETTING, error, of_study};
use crate::watch::{self, guarded};

/// A century, in milliseconds: no simulation is as long.
const AT_MS_MAX: f64 = 3.2e12;

/// Facts of all profiles that come with dcd, as JSON.
#[pyfunction]
pub fn disks(py: Python<'_>) -> PyResult<String> {
    let facts = profiles::all().map(|(name, _)| {
        let profile = Profile::load(name)?;
        Ok(dcd_study::disk::facts(name, &profile))
    });
    let facts: Result<Vec<_>, StudyError> = facts.collect();
    Ok(serde_json::Value::from(facts.map_err(|problem| of_study(py, &problem))?).to_string())
}

/// A disk model.
#[pyclass(frozen, module = "dcd._dcd", subclass)]
pub struct Disk {
    name: String,
    profile: Profile,
    seed: u64,
    state: Mutex<State>,
}

struct State {
    model: DiskModel,
    /// When the last request was done.
    now_ns: u64,
}

fn state(profile: &Profile, seed: u64) -> State {
    State { model: DiskModel::new(profile, seed).expect("the profile was checked"), now_ns: 0 }
}

#[pymethods]
impl Disk {
    #[new]
    #[pyo3(signature = (profile, seed = 0))]
    fn new(py: Python<'_>, profile: &str, seed: u64) -> PyResult<Disk> {
        guarded(py, || {
            let name = profile.to_owned();
            let profile = Profile::load(&name).map_err(|problem| of_study(py, &problem.into()))?;
            let state = Mutex::new(state(&profile, seed));
            Ok(Disk { name, profile, seed, state })
        })
    }

    /// Name or path of the profile.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// What the disk is.
    #[getter]
    fn title(&self) -> &str {
        &self.profile.title
    }

    /// Size of the disk.
    #[getter]
    fn capacity_bytes(&self) -> u64 {
        self.locked().model.capacity_bytes()
    }

    fn _facts(&self) -> String {
        dcd_study::disk::facts(&self.name, &self.profile).to_string()
    }

    /// The next request comes to a disk that has done nothing yet.
    fn reset(&self) {
        *self.locked() = state(&self.profile, self.seed);
    }

    /// When the disk is free again, in milliseconds.
    #[getter]
    fn now_ms(&self) -> f64 {
        self.locked().now_ns as f64 / 1e6
    }

    /// How long a request takes, in milliseconds: by itself, when all before it are done.
    #[pyo3(signature = (operation, offset = 0, size = 4096, *, at_ms = None))]
    fn service_time(
        &self,
        py: Python<'_>,
        operation: &str,
        offset: u64,
        size: u64,
        at_ms: Option<f64>,
    ) -> PyResult<f64> {
        let setting = |text: String, hint| error(py, SETTING, &text, hint);
        let operation = match operation {
            "R" | "read" => DiskOperation::Read,
            "W" | "write" => DiskOperation::Write,
            "F" | "flush" => DiskOperation::Flush,
            other => {
                let text = format!("operation: expected read, write or flush, found {other:?}");
                return Err(setting(text, None));
            }
        };
        let mut state = self.locked();
        let at_ns = match at_ms {
            None => state.now_ns,
            Some(at_ms) if (0.0..=AT_MS_MAX).contains(&at_ms) => (at_ms * 1e6) as u64,
            Some(at_ms) => {
                return Err(setting(
                    format!("at_ms: expected 0 to {AT_MS_MAX:e}, found {at_ms}"),
                    None,
                ));
            }
        };
        if at_ns < state.now_ns {
            let text = format!("at_ms: the disk is busy until {} ms", state.now_ns as f64 / 1e6);
            return Err(setting(text, Some("reset() begins again; simulate() has queues")));
        }
        let request = DiskRequest { id: 0, operation, offset_bytes: offset, size_bytes: size };
        guarded(py, || {
            let done = state
                .model
                .serve(Time(at_ns), request)
                .map_err(|problem| error(py, "request", &problem.to_string(), None))?;
            state.now_ns = done.completed.0;
            Ok((done.completed.0 - at_ns) as f64 / 1e6)
        })
    }

    /// How long each request takes by itself: it comes when it does in the trace, or when the one
    /// before is done. Discards take no time.
    #[pyo3(signature = (requests, progress))]
    fn _service_times(
        &self,
        py: Python<'_>,
        requests: Bound<'_, Requests>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<f64>> {
        let requests = requests.get().0.clone();
        watch::run(py, progress.as_ref(), |watcher| {
            let mut state = state(&self.profile, self.seed);
            let mut times = Vec::with_capacity(requests.len());
            let load = dcd_sim::sweep::Load::Memory(requests);
            dcd_study::load::feed(&load, u64::MAX, "serving", watcher, &mut |request| {
                let operation = match request.operation {
                    Operation::Read => DiskOperation::Read,
                    Operation::Write => DiskOperation::Write,
                    Operation::Flush => DiskOperation::Flush,
                    Operation::Discard => {
                        times.push(0.0);
                        return Ok(());
                    }
                };
                let (offset_bytes, size_bytes) = (request.offset_bytes, request.size_bytes);
                let at_ns = request.time_ns.max(state.now_ns);
                let request = DiskRequest { id: 0, operation, offset_bytes, size_bytes };
                let done = state.model.serve(Time(at_ns), request)?;
                state.now_ns = done.completed.0;
                times.push((done.completed.0 - at_ns) as f64 / 1e6);
                Ok(())
            })?;
            Ok(times)
        })
    }

    /// How near the model is to a drive that was measured, as `dcd disk validate --json` tells it.
    #[pyo3(signature = (trace, progress))]
    fn _validate(
        &self,
        py: Python<'_>,
        trace: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        watch::run(py, progress.as_ref(), |watcher| {
            let demerit = dcd_study::disk::validate(&self.profile, &trace, self.seed, watcher)?;
            Ok(dcd_study::disk::validation_facts(&demerit, &self.name, &trace).to_string())
        })
    }

    fn __repr__(&self) -> String {
        format!("<dcd.Disk {:?}: {}>", self.name, self.profile.title)
    }
}

impl Disk {
    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
