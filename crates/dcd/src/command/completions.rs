//! `dcd completions`: a completion script for a shell. It asks dcd itself what may come next, with
//! `DCD_COMPLETE` in the environment, so it knows the caches, disk profiles and members that there
//! are.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use clap::{Args, Command};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};
use dcd_daemon::control::client::ControlClient;

use crate::command::{cache_word, cli};
use crate::error::CommandError;
use crate::stdout::print;
use crate::{config_file, daemons};

/// By this a shell asks.
const VARIABLE: &str = "DCD_COMPLETE";
/// Nobody waits longer for a daemon with a finger on the key.
const PATIENCE: Duration = Duration::from_millis(500);

/// Print a completion script for a shell.
///
/// What it offers comes from dcd itself whenever it is asked: verbs, flags, files, running caches,
/// settings, disk profiles, and members of a volume.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd completions bash > /usr/share/bash-completion/completions/dcd")]
pub struct CompletionsArguments {
    /// Which shell.
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

pub fn run(arguments: &CompletionsArguments) -> Result<(), CommandError> {
    let shells = Shells::builtins();
    let name = arguments.shell.to_string();
    let shell = shells.completer(&name).expect("each shell of the one list is in the other");
    // Made in memory first: what is written in part is worse than nothing.
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "dcd", "dcd", "dcd", &mut script)
        .map_err(|source| CommandError::Output { source })?;
    print(&String::from_utf8_lossy(&script))
}

/// Answers a shell that asks, and ends; else does nothing.
pub fn answer_a_shell() {
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(|| with_values(cli::command())).var(VARIABLE).complete();
    }
}

/// The command line, with values that only a look around tells.
fn with_values(command: Command) -> Command {
    let line: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").collect();
    let command = cache_word::with_word(command, &line);
    let command = command.mut_args(|argument| {
        let names = argument.get_value_names().unwrap_or_default();
        match names.first().map(|name| name.as_str()) {
            Some("CACHE") => argument.add(ArgValueCompleter::new(caches)),
            Some("CACHE|KEY=VALUE") => argument.add(ArgValueCompleter::new(caches_and_settings)),
            #[cfg(feature = "lab")]
            Some("PROFILE" | "PROFILES") => argument.add(ArgValueCompleter::new(profiles)),
            Some("MEMBER") => argument.add(ArgValueCompleter::new(members)),
            _ => argument,
        }
    });
    command.mut_subcommands(with_values)
}

fn beginning_with(current: &OsStr, all: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    all.filter(|one| one.starts_with(current)).map(CompletionCandidate::new).collect()
}

/// Names of services that run, and files: a control socket is one.
fn caches(current: &OsStr) -> Vec<CompletionCandidate> {
    let running = daemons::all(Path::new(daemons::DIRECTORY));
    let names = running.iter().filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let mut found = beginning_with(current, names);
    found.extend(PathCompleter::file().complete(current));
    found
}

fn caches_and_settings(current: &OsStr) -> Vec<CompletionCandidate> {
    let keys = config_file::KEYS.iter().map(|key| format!("{key}="));
    let mut found = caches(current);
    found.extend(beginning_with(current, keys));
    found
}

/// Those that dcd has, and files.
#[cfg(feature = "lab")]
fn profiles(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = dcd_sim::disk::profiles::all().map(|(name, _)| name.to_owned());
    let mut found = beginning_with(current, names);
    found.extend(PathCompleter::file().complete(current));
    found
}

/// Of the volume that the rest of the line names, with `--control` or before the member.
fn members(current: &OsStr) -> Vec<CompletionCandidate> {
    let count = members_of_the_line().unwrap_or(0);
    beginning_with(current, (0..count).map(|number| number.to_string()))
}

fn members_of_the_line() -> Option<usize> {
    let words: Vec<_> = std::env::args_os().collect();
    let found =
        |at: usize| daemons::find(Path::new(words.get(at)?), Path::new(daemons::DIRECTORY)).ok();
    let socket = match words.iter().position(|word| word == "--control") {
        Some(at) => found(at + 1)?,
        // The member is being typed: the last word, and the cache the one before.
        None => found(words.len().checked_sub(2)?)?,
    };
    let mut client = ControlClient::connect_within(&socket, PATIENCE).ok()?;
    Some(client.status().ok()?.volume?.members.len())
}
