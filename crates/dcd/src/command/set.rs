//! `dcd set`: the settings of a running dcd, and others for them.

use std::path::PathBuf;

use clap::Args;
use dcd_client::plain::plain;
use dcd_protocol::WantedSettings;
use dcd_protocol::settings::{SettingReport, SettingsAnswer};

use crate::daemons;
use crate::error::CommandError;
use crate::stdout::{print, print_json};

/// Show the settings of a running dcd, or change some.
///
/// Without KEY=VALUE it lists them all, with who has set each, and whether it takes a restart to
/// change it. Keys and values are those of `dcd serve` and of the configuration file. What is set
/// counts until dcd ends, before flags and file; KEY= takes that back. Either all is set, or
/// nothing. SIGHUP has dcd read its configuration file again.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd set --control /run/sdb.ctl
  dcd set --control /run/sdb.ctl bypass-threshold=64k destage-rate=20M
  dcd set --control /run/sdb.ctl destage-rate=
  dcd set --control sdb --json | jq '.settings[] | select(.origin == \"set\")'")]
pub struct SetArguments {
    /// What to set.
    #[arg(value_name = "KEY=VALUE", value_parser = parse_pair)]
    pub settings: Vec<(String, String)>,
    /// Control socket of the running dcd; of a service its name, or the device that it serves.
    #[arg(long, value_name = "SOCKET|DEVICE|NAME")]
    pub control: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.trim().is_empty())
        .ok_or("expected a setting and its value, like max-delay=20ms")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

pub fn run(arguments: &SetArguments) -> Result<(), CommandError> {
    let mut wanted = WantedSettings::new();
    for (key, value) in &arguments.settings {
        if wanted.insert(key.clone(), value.clone()).is_some() {
            return Err(CommandError::SetTwice { key: key.clone() });
        }
    }
    let is_list = wanted.is_empty();
    let answer = daemons::connect(&arguments.control)?.set(wanted)?;
    match (arguments.json, is_list) {
        (true, _) => print_json(&answer),
        (false, true) => print(&table(&answer.settings)),
        (false, false) => print(&changes(&answer)),
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
        let pair = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        assert_eq!(parse_pair("max-delay = 20ms"), pair("max-delay", "20ms"));
        assert_eq!(parse_pair("max-delay="), pair("max-delay", ""));
        assert!(parse_pair("max-delay").is_err() && parse_pair("=3").is_err());
    }
}
