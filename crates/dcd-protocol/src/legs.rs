//! Requests about the legs of a cache-disk that is on several disks.
//!
//! ```text
//! {"legs":"status"}                    {"ok":true,"legs":[{"leg":"0b5c...","state":"in-sync"},...],
//!                                      "witness":{"witness":"91d0...","state":"votes",...}}, or null
//! {"legs":{"add":{"disk":"/dev/sdc"}}} {"ok":true,"send":"descriptors"}; the client sends a byte, and with it the
//!                                      disk, open and locked, and what else it holds of it (SCM_RIGHTS): who serves
//!                                      may have no right to open it. Then {"ok":true,"leg":"7f31..."}, at once
//! {"legs":{"add-witness":{"file":"/mnt/w"}}}  the same of a witness
//! {"legs":{"fill":{"leg":"0b5c..."}}}  {"ok":true}, at once: see the status
//! {"legs":{"take-out":{"leg":"0b5c..."}}}  {"ok":true}, when no start believes it any more
//! ```

use serde::{Deserialize, Serialize};

/// What can be asked about legs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LegCommand {
    /// All of them, as [`LegReport`]s.
    Status,
    /// Have a disk become one, which is filled.
    Add {
        /// The disk, as one names it.
        disk: String,
    },
    /// Have a file or device become the witness.
    AddWitness {
        /// As one names it.
        file: String,
    },
    /// Fill one that is out, and use it again; try a witness that has failed.
    Fill {
        /// Its name.
        leg: String,
    },
    /// Do without one from now on, or without the witness.
    TakeOut {
        /// Its name.
        leg: String,
    },
}

/// A leg.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LegReport {
    /// Its name.
    pub leg: String,
    /// The disk, as it was named; none: it is not there.
    pub disk: Option<String>,
    /// `in-sync`, `filling`, `stale` (to be filled), `failed`, `out` (left out at the start),
    /// `taken-out`, or `missing`.
    pub state: String,
    /// How it failed, if it did.
    pub error: Option<String>,
    /// Of one that is being filled: bytes that it has.
    pub filled_bytes: u64,
    /// Bytes in use on each leg.
    pub total_bytes: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// Reads that another leg answered and that were written there again.
    pub mended: u64,
}

/// The witness of the legs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WitnessReport {
    /// Its name.
    pub witness: String,
    /// The file, as it was named; none: it is not there.
    pub file: Option<String>,
    /// `votes`, `joining`, `failed`, `out` (left out at the start), `taken-out`, or `missing`.
    pub state: String,
    /// How it failed, if it did.
    pub error: Option<String>,
    /// I/Os that failed.
    pub errors: u64,
}

impl LegReport {
    /// Whether it counts.
    pub fn is_in_sync(&self) -> bool {
        self.state == "in-sync"
    }
}
