//! `dcd set`: the settings of a running dcd, and others for them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dcd_client::plain::plain;
use dcd_daemon::control::client::ControlClient;
use dcd_engine::units::LINE_SIZE;
use dcd_protocol::WantedSettings;
use dcd_protocol::settings::{SettingReport, SettingsAnswer};

use crate::daemons;
use crate::error::CommandError;
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

/// Show the settings of a running dcd, or change some.
///
/// Without KEY=VALUE it lists them all, with who has set each, and whether it takes a restart to
/// change it. Keys and values are those of `dcd serve` and of the configuration file. What is set
/// counts until dcd ends, before flags and file; KEY= takes that back. Either all is set, or
/// nothing. SIGHUP has dcd read its configuration file again.
///
/// With mode=write-through, mode=write-around or mode=pass-through what is dirty is brought to the
/// data-disk first, while writes go on; this waits until the mode is reached. Ctrl-C ends only the
/// waiting: mode= takes it back. A switch that gets on no more, or finds something lost, is given
/// up by dcd, with exit code 8.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd set sdb
  dcd set --control /run/sdb.ctl
  dcd set --control /run/sdb.ctl bypass-threshold=64k destage-rate=20M
  dcd set --control /run/sdb.ctl destage-rate=
  dcd set --control /run/sdb.ctl mode=pass-through
  dcd set --control sdb --json | jq '.settings[] | select(.origin == \"set\")'")]
pub struct SetArguments {
    /// The running cache as the first word, or --control in place of it; then what to set.
    #[arg(value_name = "CACHE|KEY=VALUE", value_parser = parse_word)]
    pub words: Vec<Word>,
    /// The running cache: the name of its service, its UUID, the device that it serves, or its
    /// control socket.
    #[arg(long, value_name = "CACHE")]
    pub control: Option<PathBuf>,
    /// Do not wait until a mode is reached; `dcd status` tells how far it is.
    #[arg(long)]
    pub no_wait: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// How often it is looked how far a switch is.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A word of the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// Which cache.
    Cache(PathBuf),
    /// What to set.
    Pair(String, String),
}

fn parse_word(text: &str) -> Result<Word, String> {
    if !text.contains('=') {
        return Ok(Word::Cache(text.into()));
    }
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.trim().is_empty())
        .ok_or("expected a setting and its value, like max-delay=20ms")?;
    Ok(Word::Pair(key.trim().to_owned(), value.trim().to_owned()))
}

pub fn run(arguments: &SetArguments) -> Result<(), CommandError> {
    let mut wanted = WantedSettings::new();
    let mut cache = arguments.control.as_deref();
    for word in &arguments.words {
        let (key, value) = match word {
            Word::Pair(key, value) => (key, value),
            Word::Cache(name) if cache.is_none() => {
                cache = Some(name);
                continue;
            }
            Word::Cache(word) => {
                return Err(CommandError::NoPair { word: word.display().to_string() });
            }
        };
        if wanted.insert(key.clone(), value.clone()).is_some() {
            return Err(CommandError::SetTwice { key: key.clone() });
        }
    }
    let is_list = wanted.is_empty();
    let wants_mode = wanted.contains_key("mode") && !arguments.no_wait;
    let mut client = daemons::connect(cache.ok_or(CommandError::NoCacheNamed)?)?;
    let answer = client.set(wanted)?;
    if wants_mode && let Err(error) = wait_for_mode(&mut client) {
        // What was set with it is set.
        let mut others = answer;
        others.changed.retain(|key| key != "mode");
        if !(arguments.json || others.changed.is_empty()) {
            print(&changes(&others))?;
        }
        return Err(error);
    }
    match (arguments.json, is_list) {
        (true, _) => print_json(&answer),
        (false, true) => {
            let mode = client.status()?.mode;
            let wanted = answer.settings.iter().find(|it| it.key == "mode");
            let is_reached = wanted.is_none_or(|it| it.value == mode.mode);
            let note = match is_reached {
                true => String::new(),
                false => {
                    format!("The mode is {} as yet: `dcd status` says why\n", plain(&mode.mode))
                }
            };
            print(&(table(&answer.settings) + &note))
        }
        (false, false) => print(&changes(&answer)),
    }
}

/// Waits until the mode that was set is reached, or given up.
fn wait_for_mode(client: &mut ControlClient) -> Result<(), CommandError> {
    let mut progress = Progress::new("leaving the log", Unit::Bytes);
    let mut most = 0;
    loop {
        let mode = client.status()?.mode;
        match mode.switch.as_str() {
            "draining" | "holding" => {}
            "given-up" | "failed" => {
                progress.finish();
                let is_failed = mode.switch == "failed";
                let why = mode.error.unwrap_or_else(|| "the data-disk has failed".into());
                let mode = plain(&mode.mode).into();
                return Err(CommandError::ModeGivenUp { mode, why, is_failed });
            }
            _ => {
                progress.finish();
                return Ok(());
            }
        }
        most = most.max(mode.lines_left);
        let bytes = |lines: u64| lines.saturating_mul(LINE_SIZE);
        progress.update(bytes(most - mode.lines_left), bytes(most));
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn changes(answer: &SettingsAnswer) -> String {
    if answer.changed.is_empty() {
        return "as it was\n".into();
    }
    let changed = answer.settings.iter().filter(|it| answer.changed.contains(&it.key));
    changed.map(|it| format!("{} = {}\n", plain(&it.key), plain(&it.value))).collect()
}

/// First what may change, then the rest.
fn table(settings: &[SettingReport]) -> String {
    let (fixed, changeable): (Vec<_>, Vec<_>) = settings.iter().partition(|it| it.needs_restart);
    let width = |of: &dyn Fn(&SettingReport) -> usize| settings.iter().map(of).max().unwrap_or(0);
    let keys = width(&|it| it.key.chars().count()).min(24);
    let values = width(&|it| it.value.chars().count()).clamp(5, 24);
    let row = |it: &SettingReport| {
        let (key, value, default) = (plain(&it.key), plain(&it.value), plain(&it.default));
        let default = match it.origin.word() {
            "default" => String::new(),
            _ if default.is_empty() => "no default".into(),
            _ => format!("default {default}"),
        };
        let line = format!("  {key:keys$}  {value:values$}  {:8}{default}", it.origin.word());
        line.trim_end().to_owned() + "\n"
    };
    let mut text = String::from("may change while dcd runs:\n");
    changeable.into_iter().for_each(|it| text += &row(it));
    text += "take a restart:\n";
    fixed.into_iter().for_each(|it| text += &row(it));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read() {
        let pair = |key: &str, value: &str| Ok(Word::Pair(key.to_owned(), value.to_owned()));
        assert_eq!(parse_word("max-delay = 20ms"), pair("max-delay", "20ms"));
        assert_eq!(parse_word("max-delay="), pair("max-delay", ""));
        assert_eq!(parse_word("sdb"), Ok(Word::Cache("sdb".into())));
        assert!(parse_word("=3").is_err());
    }
}
