//! Where the requests of a study come from.

use std::sync::Arc;

use dcd_sim::sweep::Load;
use dcd_sim::trace::Request;
use pyo3::prelude::*;

use crate::columns::Requests;
use crate::settings::LoadArguments;

impl LoadArguments {
    /// The load that they name.
    pub fn load(&self) -> Load {
        match (&self.trace, &self.workload) {
            (_, Some(workload)) => Load::Workload(workload.clone()),
            (Some(path), None) => Load::Trace(self.input.source(path)),
            (None, None) => unreachable!("one of them is required"),
        }
    }
}

/// Requests in memory take the place of a trace that is only named.
pub fn of_memory(requests: Option<&Bound<'_, Requests>>, device: Option<u32>) -> Option<Load> {
    let all = &requests?.get().0;
    let requests: Arc<[Request]> = match device {
        None => all.clone(),
        Some(device) => {
            let mut left: Vec<Request> =
                all.iter().filter(|request| request.device == device).copied().collect();
            for (number, request) in (1..).zip(&mut left) {
                request.line = number;
            }
            left.into()
        }
    };
    Some(Load::Memory(requests))
}
