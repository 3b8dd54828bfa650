//! Settings of a daemon, which may change while it runs.
//!
//! ```text
//! {"set":{}}                      {"ok":true,"settings":[{"key":"max-delay","value":"100 ms",...},...]}
//! {"set":{"max-delay":"20ms"}}    the same, with "changed":["max-delay"]
//! {"set":{"max-delay":""}}        as the flag, the file or the default says again
//! ```
//! Either all that is wanted is set, or nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is to be set, as in the configuration file; nothing: settings are listed.
pub type WantedSettings = BTreeMap<String, String>;

/// Who has said what a setting is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingOrigin {
    /// Nobody.
    Default,
    /// The configuration file.
    File,
    /// A flag of `dcd serve`.
    Flag,
    /// Somebody, while the daemon ran: until it ends.
    Set,
}

impl SettingOrigin {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            SettingOrigin::Default => "default",
            SettingOrigin::File => "file",
            SettingOrigin::Flag => "flag",
            SettingOrigin::Set => "set",
        }
    }
}

/// A setting as it counts now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SettingReport {
    /// The flag without `--`, and the key of the configuration file.
    pub key: String,
    /// As it may be set; empty if nothing is said, and nothing is the default.
    pub value: String,
    /// The value when nobody says anything.
    pub default: String,
    /// Who says so.
    pub origin: SettingOrigin,
    /// It takes a restart to change it.
    pub needs_restart: bool,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SettingsAnswer {
    /// All of them, in the order of the help text.
    pub settings: Vec<SettingReport>,
    /// Those that have another value now.
    #[serde(default)]
    pub changed: Vec<String>,
}
