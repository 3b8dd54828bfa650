//! Keywords of Python as the settings of the command line: one parser for both.

use clap::builder::PossibleValue;
use clap::error::ErrorKind;
use clap::{ArgAction, Args, Command, CommandFactory, Parser, ValueEnum};
use dcd_sim::workload::{WorkloadError, WorkloadKind, WorkloadSpec};
use dcd_study::WORKLOAD_HINT;
use dcd_study::advise::AdviseSettings;
use dcd_study::load::{TraceInputArguments, parse_workload};
use dcd_study::shard::Shard;
use dcd_study::simulate::{AckArgument, DestageArgument, NvramPolicyArgument, SimulateArguments};
use dcd_study::sweep::GridArguments;
use pyo3::prelude::*;

use crate::errors::{SETTING, error};

/// `dcd.simulate()`.
#[derive(Parser)]
#[command(name = "simulate", disable_help_flag = true)]
pub struct Simulate {
    #[command(flatten)]
    pub settings: SimulateArguments,
}

/// `dcd.sweep()`.
#[derive(Parser)]
#[command(name = "sweep", disable_help_flag = true)]
pub struct Sweep {
    #[command(flatten)]
    pub grid: GridArguments,
    #[arg(long, value_name = "I/N|N")]
    pub shard: Option<Shard>,
    #[command(flatten)]
    pub threads: Threads,
}

/// `dcd.advise()`.
#[derive(Parser)]
#[command(name = "advise", disable_help_flag = true)]
pub struct Advise {
    #[command(flatten)]
    pub load: LoadArguments,
    #[command(flatten)]
    pub settings: AdviseSettings,
    #[command(flatten)]
    pub threads: Threads,
}

/// What only reads a load: `dcd.read_trace()`, `dcd.trace_summary()`, `dcd.stack_distances()`.
#[derive(Parser)]
#[command(name = "load", disable_help_flag = true)]
pub struct Read {
    #[command(flatten)]
    pub load: LoadArguments,
}

/// A trace, or a made-up load.
#[derive(Args)]
pub struct LoadArguments {
    #[arg(long, value_name = "FILE", required_unless_present = "workload")]
    pub trace: Option<std::path::PathBuf>,
    #[arg(long, value_name = "WORKLOAD", value_parser = parse_workload)]
    #[arg(conflicts_with_all = ["trace", "format", "device"])]
    pub workload: Option<WorkloadSpec>,
    #[command(flatten)]
    pub input: TraceInputArguments,
}

/// How many threads.
#[derive(Args)]
pub struct Threads {
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
}

/// Of the command line alone.
const NOT_OF_PYTHON: [&str; 1] = ["json"];

fn command_of(verb: &str) -> Option<Command> {
    Some(match verb {
        "simulate" => Simulate::command(),
        "sweep" => Sweep::command(),
        "advise" => Advise::command(),
        "load" => Read::command(),
        _ => return None,
    })
}

/// Settings of a verb: name, what it takes (`flag`, `value`, `values`, `repeated`), and what it is.
#[pyfunction]
pub fn settings(verb: &str) -> Vec<(String, &'static str, String)> {
    let Some(command) = command_of(verb) else { return Vec::new() };
    let wanted = command.get_arguments().filter(|argument| {
        let name = argument.get_id().as_str();
        !NOT_OF_PYTHON.contains(&name) && name != "help"
    });
    let of = |argument: &clap::Arg| {
        let kind = match argument.get_action() {
            ArgAction::SetTrue => "flag",
            ArgAction::Append if argument.get_value_delimiter().is_some() => "values",
            ArgAction::Append => "repeated",
            _ => "value",
        };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        (argument.get_id().as_str().to_owned(), kind, in_names(&help))
    };
    wanted.map(of).collect()
}

/// What may be chosen, with a line about each: `policy`, `destage`, `ack`, `workload`.
#[pyfunction]
pub fn choices(setting: &str) -> Vec<(String, String)> {
    fn all<T: ValueEnum>() -> Vec<(String, String)> {
        let of = |value: PossibleValue| {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            (value.get_name().to_owned(), in_names(&help))
        };
        T::value_variants().iter().filter_map(ValueEnum::to_possible_value).map(of).collect()
    }
    match setting {
        "policy" => all::<NvramPolicyArgument>(),
        "destage" => all::<DestageArgument>(),
        "ack" => all::<AckArgument>(),
        "workload" => {
            WorkloadKind::ALL.map(|kind| (kind.name().to_owned(), String::new())).to_vec()
        }
        _ => Vec::new(),
    }
}

/// Settings out of words of the command line.
pub fn parse<T: Parser>(py: Python<'_>, words: Vec<String>) -> PyResult<T> {
    let words = [String::new()].into_iter().chain(words);
    T::try_parse_from(words).map_err(|problem| of_command_line(py, &problem))
}

/// What is wrong with settings, in one line, and what to do.
fn of_command_line(py: Python<'_>, problem: &clap::Error) -> PyErr {
    use std::error::Error as _;
    let text = problem.render().to_string();
    // A blank line ends what is wrong; "tip: " begins what may help.
    let wrong = text.split("\n\n").next().unwrap_or(&text);
    let wrong = wrong.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let wrong = wrong.strip_prefix("error: ").unwrap_or(&wrong);
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let is_workload = problem.source().is_some_and(|source| source.is::<WorkloadError>());
    let hint = match problem.kind() {
        _ if is_workload => Some(WORKLOAD_HINT),
        ErrorKind::MissingRequiredArgument => Some("give it by its name"),
        ErrorKind::ArgumentConflict => Some("leave one of them out"),
        ErrorKind::ValueValidation => tip.or(Some(
            "sizes are numbers of bytes, or written like 4k, 16M, 1G; times like 50us, 8ms, 1s",
        )),
        _ => tip,
    };
    error(py, SETTING, wrong, hint)
}

/// Flags of the command line (`--closed-loop`) as names of Python (`closed_loop`).
pub fn in_names(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("--") {
        let (before, flag) = rest.split_at(at);
        let name = &flag[2..];
        let end = name.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(name.len());
        let is_flag = end > 0
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && !before.ends_with(|c: char| c.is_alphanumeric() || c == '-');
        out += before;
        out += &if is_flag { name[..end].replace('-', "_") } else { flag[..2 + end].to_owned() };
        rest = &name[end..];
        // What clap says of its value: `--policy <POLICY>`.
        if is_flag && let Some(value) = rest.strip_prefix(" <") {
            rest = value.split_once('>').map_or(rest, |(_, rest)| rest);
        }
    }
    out + rest
}
