//! `dcd sequence`: the sequences that a running dcd keeps: recorded, made from a trace, listed,
//! looked at, removed.

#[cfg(feature = "lab")]
mod model;
mod record;
mod show;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use dcd_daemon::control::client::{ControlError, for_people};
use dcd_daemon::units_text::{format_size, parse_duration, parse_size};
use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE};
use dcd_protocol::sequences::{SequenceCommand, SequenceList, SequenceReport, TranslationReport};
#[cfg(feature = "lab")]
use dcd_sim::trace::{Operation, TraceError};
#[cfg(feature = "lab")]
use dcd_study::load::TraceInputArguments;
use serde::Deserialize;
use serde_json::{Value, json};

#[cfg(feature = "lab")]
use crate::command::trace::for_each_request;
use crate::daemons;
use crate::error::CommandError;
use crate::output::{Align, Paint, Table, count};
use crate::stdout::{print, print_done, print_json};

/// Keep what is read together in the order in which it is read.
///
/// The start of a program or of a system reads the same blocks in the same order each time,
/// scattered over the disk. A sequence is that order, with copies of the blocks in that order in
/// the read area of the cache-disk (`dcd create --read-area`). When reads begin to follow it, what
/// comes next is read ahead from there.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd sequence record --control /run/sdb.ctl --name gimp -- gimp -i -b '(gimp-quit 0)'
  dcd sequence record --control /run/sdb.ctl --name boot --until 60s
  dcd sequence add --control /run/sdb.ctl --name backup night.csv.zst
  dcd sequence list --control /run/sdb.ctl")]
pub struct SequenceArguments {
    /// What to do.
    #[command(subcommand)]
    what: SequenceWhat,
}

#[derive(Args, Debug)]
struct Control {
    /// The running cache: the name of its service, its UUID, the device that it serves, or its
    /// control socket.
    #[arg(long, value_name = "CACHE")]
    control: PathBuf,
}

#[derive(Subcommand, Debug)]
enum SequenceWhat {
    /// Record what is read while a command runs, or for a time, as a sequence
    ///
    /// Only what reaches the device counts: what its client still has in memory is not read. So a
    /// program is recorded at its first start after its file system was mounted; --drop-caches
    /// makes any start one.
    #[command(after_help = "\
Examples:
  dcd sequence record --control /run/sdb.ctl --name gimp -- gimp -i -b '(gimp-quit 0)'
  dcd sequence record --control /run/sdb.ctl --name boot --until 60s")]
    Record {
        #[command(flatten)]
        control: Control,
        /// The name of the sequence; one of the same name is replaced.
        #[arg(long, value_name = "NAME", value_parser = parse_name)]
        name: String,
        /// Record for so long; with a command, at most.
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        until: Option<Duration>,
        /// Have the kernel forget what it has of files before the command starts (needs root).
        #[arg(long, requires = "command")]
        drop_caches: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// What to run.
        #[arg(last = true, required_unless_present = "until", value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Make a sequence of the reads of a trace
    #[cfg(feature = "lab")]
    Add {
        #[command(flatten)]
        control: Control,
        /// The name of the sequence; one of the same name is replaced.
        #[arg(long, value_name = "NAME", value_parser = parse_name)]
        name: String,
        /// The trace.
        file: PathBuf,
        #[command(flatten)]
        input: TraceInputArguments,
    },
    /// Remove a sequence
    Remove {
        #[command(flatten)]
        control: Control,
        /// Its name.
        name: String,
    },
    /// Remove all sequences but the pinned ones
    Clear {
        #[command(flatten)]
        control: Control,
    },
    /// Keep a sequence whatever else wants its room
    Pin {
        #[command(flatten)]
        control: Control,
        /// Its name.
        name: String,
        /// No longer.
        #[arg(long)]
        off: bool,
    },
    /// List all sequences
    List {
        #[command(flatten)]
        control: Control,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    #[cfg_attr(
        feature = "lab",
        doc = "List the blocks of a sequence, in order, and what it saves on a modelled disk",
        doc = "",
        doc = "With --disk, the reads of the sequence are simulated in order, each when the one before is done: without it,",
        doc = "and from a copy, read ahead as the engine does it. The copy is on the first part of the same disk, or on the",
        doc = "disk of --cache-disk-profile."
    )]
    #[cfg_attr(not(feature = "lab"), doc = "List the blocks of a sequence, in order")]
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        control: Control,
        /// Its name.
        name: String,
        #[cfg(feature = "lab")]
        #[command(flatten)]
        model: model::ModelArguments,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Tell where copies of a block are
    Translate {
        #[command(flatten)]
        control: Control,
        /// Byte address on the volume.
        #[arg(value_name = "ADDRESS", value_parser = parse_size)]
        address: u64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write down which copies there are: a crash after it loses none of them
    Save {
        #[command(flatten)]
        control: Control,
    },
    /// Follow sequences and read them ahead (again); a daemon begins so
    Start {
        #[command(flatten)]
        control: Control,
    },
    /// Follow none, until `start` or the next start of the daemon
    Stop {
        #[command(flatten)]
        control: Control,
    },
}

/// A name that the cache-disk has room for.
fn parse_name(text: &str) -> Result<String, String> {
    match text.len() {
        1..=40 if !text.contains('\0') => Ok(text.to_owned()),
        0 => Err("a name has at least one character".into()),
        _ => Err("a name has at most 40 bytes".into()),
    }
}

#[cfg(feature = "lab")]
const SHOW_EXAMPLES: &str = "\
Examples:
  dcd sequence show --control /run/sdb.ctl gimp
  dcd sequence show --control /run/sdb.ctl boot --disk wd400bb --plot boot.html";
#[cfg(not(feature = "lab"))]
const SHOW_EXAMPLES: &str = "\
Examples:
  dcd sequence show --control /run/sdb.ctl gimp";

pub fn run(arguments: &SequenceArguments) -> Result<(), CommandError> {
    match &arguments.what {
        SequenceWhat::Record { control, name, until, drop_caches, json, command } => {
            let what = record::Record {
                control: &control.control,
                name,
                time: *until,
                drop_caches: *drop_caches,
                command,
            };
            let (requests, ranges) = what.run()?;
            store(&control.control, name, &ranges)?;
            told(name, requests, &ranges, *json)
        }
        #[cfg(feature = "lab")]
        SequenceWhat::Add { control, name, file, input } => {
            let mut ranges = Vec::new();
            for_each_request(file, input, "reading", |_, request| {
                if request.operation == Operation::Read {
                    push(&mut ranges, request.offset_bytes, request.size_bytes);
                }
                Ok(())
            })?;
            if ranges.is_empty() {
                return Err(TraceError::Empty { path: file.clone() }.into());
            }
            store(&control.control, name, &ranges)?;
            told(name, ranges.len() as u64, &ranges, false)
        }
        SequenceWhat::Remove { control, name } => {
            ask(control, SequenceCommand::Remove { name: name.clone() })?;
            print_done(&format!("removed {name}\n"))
        }
        SequenceWhat::Clear { control } => {
            ask(control, SequenceCommand::Clear)?;
            print_done("removed all that are not pinned\n")
        }
        SequenceWhat::Pin { control, name, off } => {
            ask(control, SequenceCommand::Pin { name: name.clone(), pinned: !off })?;
            print_done(&format!("{name} is {}pinned\n", if *off { "no longer " } else { "" }))
        }
        SequenceWhat::List { control, json } => list(control, *json),
        #[cfg(feature = "lab")]
        SequenceWhat::Show { control, name, model, json } => {
            model.check()?;
            let lines = show::lines(control, name)?;
            let saved = model.simulate(name, &lines)?;
            show::show(name, &lines, saved, *json)
        }
        #[cfg(not(feature = "lab"))]
        SequenceWhat::Show { control, name, json } => {
            show::show(name, &show::lines(control, name)?, None, *json)
        }
        SequenceWhat::Translate { control, address, json } => translate(control, *address, *json),
        SequenceWhat::Save { control } => {
            ask(control, SequenceCommand::Save)?;
            print_done("saved\n")
        }
        SequenceWhat::Start { control } => {
            ask(control, SequenceCommand::Serve { on: true })?;
            print_done("sequences are followed\n")
        }
        SequenceWhat::Stop { control } => {
            ask(control, SequenceCommand::Serve { on: false })?;
            print_done("sequences are not followed\n")
        }
    }
}

fn ask(control: &Control, command: SequenceCommand) -> Result<Value, CommandError> {
    Ok(daemons::connect(&control.control)?.sequence(&command, &[])?)
}

fn store(control: &Path, name: &str, ranges: &[(u64, u64)]) -> Result<(), CommandError> {
    let command = SequenceCommand::Store { name: name.to_owned() };
    daemons::connect(control)?.sequence(&command, ranges)?;
    Ok(())
}

/// Adds a read to the ranges of a sequence, in blocks; one that goes on with the last lengthens it.
fn push(ranges: &mut Vec<(u64, u64)>, offset_bytes: u64, size_bytes: u64) {
    let start = offset_bytes / BLOCK_SIZE;
    let blocks = (offset_bytes + size_bytes).div_ceil(BLOCK_SIZE) - start;
    match ranges.last_mut() {
        _ if size_bytes == 0 => {}
        Some((last, length)) if *last + *length == start => *length += blocks,
        _ => ranges.push((start, blocks)),
    }
}

fn told(
    name: &str,
    requests: u64,
    ranges: &[(u64, u64)],
    as_json: bool,
) -> Result<(), CommandError> {
    let bytes = ranges.iter().map(|(_, blocks)| blocks * BLOCK_SIZE).sum::<u64>();
    if as_json {
        return print_json(&json!({ "sequence": name, "reads": requests, "read_bytes": bytes }));
    }
    print(&format!(
        "{name}: {} of {}; copied when the disks have nothing else to do\n",
        count(requests, "read"),
        format_size(bytes),
    ))
}

/// What an answer holds, if it is that of this version.
fn parse<T: for<'a> Deserialize<'a>>(control: &Control, value: &Value) -> Result<T, CommandError> {
    let parsed = T::deserialize(value);
    parsed.map_err(|_| {
        let found = value.to_string().chars().take(80).collect();
        ControlError::Answer { path: control.control.clone(), found }.into()
    })
}

fn list(control: &Control, as_json: bool) -> Result<(), CommandError> {
    let list: SequenceList = parse(control, &ask(control, SequenceCommand::List)?)?;
    if as_json {
        return print_json(&list);
    }
    let mut table = Table::new(&[
        ("name", Align::Left),
        ("size", Align::Right),
        ("copied", Align::Right),
        ("runs", Align::Right),
        ("served", Align::Right),
        ("", Align::Left),
    ]);
    for sequence in &for_people(&list).sequences {
        let SequenceReport { name, lines, stale, runs, lines_served, .. } = sequence;
        table.row(vec![
            name.clone(),
            format_size(lines.saturating_mul(LINE_SIZE)),
            format!("{} %", lines.saturating_sub(*stale).saturating_mul(100) / (*lines).max(1)),
            runs.to_string(),
            format_size(lines_served.saturating_mul(LINE_SIZE)),
            notes(sequence),
        ]);
    }
    let serving = if list.serving { "" } else { ", not followed: `dcd sequence start`" };
    print(&format!(
        "{}{} in a read area of {}, {} of it copied{serving}\n",
        if list.sequences.is_empty() { String::new() } else { table.render(Paint::for_stdout()) },
        count(list.sequences.len() as u64, "sequence"),
        format_size(list.read_area_bytes),
        format_size(list.copied_bytes),
    ))
}

fn notes(sequence: &SequenceReport) -> String {
    let notes = [
        (sequence.pinned, "pinned"),
        (sequence.detected, "detected"),
        (sequence.off, "off: it did not pay"),
    ];
    let notes: Vec<&str> = notes.iter().filter(|(is, _)| *is).map(|(_, note)| *note).collect();
    notes.join(", ")
}

fn translate(control: &Control, address: u64, as_json: bool) -> Result<(), CommandError> {
    let answer = ask(control, SequenceCommand::Translate { line: address / LINE_SIZE })?;
    let found: Vec<TranslationReport> = parse(control, &answer["translations"])?;
    if as_json {
        return print_json(&found);
    }
    let mut text = String::new();
    for TranslationReport { offset, sequence, place, valid } in &found {
        let place = match (sequence, place) {
            (Some(name), Some(place)) => format!("place {place} of {name}"),
            _ => "hot block".to_owned(),
        };
        let valid = if *valid { "" } else { ", to be copied anew" };
        text.push_str(&format!("{offset} on the cache-disk: {place}{valid}\n"));
    }
    if found.is_empty() {
        text = "no copy: the block is read from the data-disk, or from the log\n".to_owned();
    }
    print(&text)
}
