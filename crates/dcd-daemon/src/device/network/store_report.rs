//! What is told of an object store: whether it takes what it is given, and how long its lease is.

use dcd_protocol::store::{StoreFailure, StoreTrouble};
use serde::{Deserialize, Serialize};

/// How a data-disk in an object store stands.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreReport {
    /// `ready`, which it also is when it does not answer; `full` and `refused`, as its server says;
    /// `taken-over`, by another dcd, for good.
    pub state: String,
    /// What the server said, or who has it.
    pub problem: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// How long a lease is.
    pub lease_seconds: u64,
    /// `held`, or `over` while it could not be renewed in time, or `lost`.
    pub lease: String,
}

/// Names of what may be wrong.
pub const STORE_TROUBLES: [&str; 3] = ["full", "refused", "taken-over"];

impl StoreReport {
    pub(crate) fn of(
        lost: Option<&StoreFailure>,
        trouble: Option<&StoreTrouble>,
        lease_seconds: u64,
        is_alive: bool,
    ) -> StoreReport {
        let lease = match (lost, is_alive) {
            (Some(_), _) => "lost",
            (None, true) => "held",
            (None, false) => "over",
        };
        let (state, problem, hint) = match (lost, trouble) {
            (Some(why), _) => ("taken-over", Some(why.problem.clone()), why.hint.clone()),
            (None, Some(trouble)) => {
                let hint = Some(trouble.kind.hint().to_owned());
                (trouble.kind.name(), Some(trouble.problem.clone()), hint)
            }
            (None, None) => ("ready", None, None),
        };
        let (state, lease) = (state.to_owned(), lease.to_owned());
        StoreReport { state, problem, hint, lease_seconds, lease }
    }

    /// Whether another one has it, for good.
    pub fn is_lost(&self) -> bool {
        self.state == "taken-over"
    }
}
