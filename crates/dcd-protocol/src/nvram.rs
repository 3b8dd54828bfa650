//! Requests about the memory in front of the log.
//!
//! ```text
//! {"nvram":{"add":{"memory":"/dev/pmem0","survives-power":false,"replaces":false}}}
//!                          {"ok":true,"send":"descriptors"}; the client sends a byte, and with it the memory, open
//!                          and locked (SCM_RIGHTS). Then progress, of what the old one holds, and {"ok":true} when
//!                          changes go into the new one
//! {"nvram":"remove"}       progress, and {"ok":true} when nothing names it any more
//! ```

use serde::{Deserialize, Serialize};

/// What can be asked about the memory in front of the log. What there is stands in the status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NvramCommand {
    /// Have a memory come to be in front of the log.
    #[serde(rename_all = "kebab-case")]
    Add {
        /// As one names it.
        memory: String,
        /// It is a file in memory, and survives the loss of power: a person says so.
        #[serde(default)]
        survives_power: bool,
        /// In the place of the one that is there, which goes before.
        #[serde(default)]
        replaces: bool,
    },
    /// Do without it from now on.
    Remove,
}
