//! Settings that change while the daemon serves: `{"set":...}` on the control socket, and SIGHUP.
//!
//! What a setting is called, and how its value is written, knows the command ([`SettingsBook`]);
//! what may change in a cache that is open knows the engine ([`dcd_engine::Engine::configure`]).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use dcd_engine::EngineConfig;
use dcd_protocol::settings::{SettingReport, SettingsAnswer, WantedSettings};
use dcd_protocol::{Code, Failure};
use serde_json::{Value, json};

use crate::control::answers::failure;
use crate::event_loop::submitter::Submitter;

/// Has the cache take over what may change. What is wrong otherwise.
pub type Apply<'a> = &'a mut dyn FnMut(EngineConfig) -> Result<(), Box<Failure>>;

/// Knows the settings of this daemon by name.
pub trait SettingsBook: Send {
    /// As they are now.
    fn list(&self) -> Vec<SettingReport>;
    /// Sets some. What has changed.
    ///
    /// # Errors
    /// If one does not exist, cannot be so, or takes a restart; then nothing is set.
    fn set(
        &mut self,
        wanted: &WantedSettings,
        apply: Apply<'_>,
    ) -> Result<Vec<String>, Box<Failure>>;
    /// Reads the configuration file again.
    ///
    /// # Errors
    /// If there is none, or it says what cannot be; then nothing is set.
    fn read_again(&mut self, apply: Apply<'_>) -> Result<ReadAgain, Box<Failure>>;
}

/// What has come of a configuration file that was read again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadAgain {
    /// Settings that have changed.
    pub changed: Vec<String>,
    /// Those that the next start will change.
    pub next_start: Vec<String>,
}

impl ReadAgain {
    /// For people.
    pub fn words(&self) -> String {
        let mut words = match self.changed.is_empty() {
            true => "nothing to change".to_owned(),
            false => format!("changed: {}", self.changed.join(", ")),
        };
        if !self.next_start.is_empty() {
            words += &format!("; from the next start on: {}", self.next_start.join(", "));
        }
        words
    }
}

/// The settings of a daemon, for all who ask for them.
#[derive(Clone)]
pub struct SharedSettings(Arc<Mutex<dyn SettingsBook>>);

impl fmt::Debug for SharedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSettings")
    }
}

impl SharedSettings {
    /// Shares them.
    pub fn new(book: impl SettingsBook + 'static) -> SharedSettings {
        SharedSettings(Arc::new(Mutex::new(book)))
    }

    /// Reads the configuration file again and tells on standard error what has come of it. Waits
    /// for the event loop: not to be called there.
    pub(crate) fn read_again(&self, submitter: &Submitter) {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match book.read_again(&mut |config| configure(submitter, config)) {
            Ok(read) => eprintln!("dcd: SIGHUP: {}", read.words()),
            Err(failure) => {
                eprintln!("dcd: SIGHUP: nothing has changed: {failure}");
                failure.hint.iter().for_each(|hint| eprintln!("dcd: hint: {hint}"));
            }
        }
    }
}

/// Lists settings, or sets some.
pub(crate) fn run(
    settings: Option<&SharedSettings>,
    submitter: &Submitter,
    wanted: &WantedSettings,
) -> Value {
    let Some(SharedSettings(book)) = settings else {
        return failure(
            Code::NotSupported,
            "nothing can be set here",
            "settings are those of a cache; here they were given to `dcd serve`",
        );
    };
    let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
    let changed = match wanted.is_empty() {
        true => Ok(Vec::new()),
        false => book.set(wanted, &mut |config| configure(submitter, config)),
    };
    match changed {
        Ok(changed) => {
            let answer = SettingsAnswer { settings: book.list(), changed };
            let mut value = json!(answer);
            value["ok"] = true.into();
            value
        }
        Err(failure) => failure.to_value(),
    }
}

fn configure(submitter: &Submitter, config: EngineConfig) -> Result<(), Box<Failure>> {
    match submitter.configure(config) {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => {
            let hint = "`dcd set` without more lists all settings";
            Err(Box::new(Failure::new(Code::BadSetting, error.to_string(), hint)))
        }
        None => Err(Box::new(Failure::new(
            Code::ShuttingDown,
            "the daemon is ending",
            "set it in the configuration file, for the next start",
        ))),
    }
}
