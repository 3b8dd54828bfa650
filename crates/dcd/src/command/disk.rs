//! `dcd disk`: the disk models, and how well they do against drives that were measured.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use dcd_sim::disk::profile::{self, Profile, ProfileError};
use dcd_sim::disk::profiles;
use dcd_sim::disk::summary::Summary;
use dcd_sim::fit::Fit;
use dcd_sim::trace::is_standard;
use dcd_sim::validate::Demerit;
use dcd_study::disk;
use serde_json::Value;

use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::new_file::not_there;
use crate::output::{Align, Paint, Table};
use crate::progress::ProgressWatcher;
use crate::stdout::{print, print_json};

/// Look at the disk models and compare them with real drives.
///
/// A model is a disk on virtual time: arm, platters, buffer and bus of a drive, or the times of an
/// SSD or cloud volume. Profiles of some drives come with dcd; your own is a TOML file, best begun
/// with `dcd disk show NAME > mine.toml`. docs/disk-models.md describes the fields.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd disk list
  dcd disk show hp-97560 > mine.toml
  dcd disk validate --disk hp-2200a --trace measured.csv.zst --json
  dcd disk fit --disk mine.toml --trace measured.csv --output fitted.toml")]
pub struct DiskArguments {
    /// What to do.
    #[command(subcommand)]
    pub what: DiskWhat,
}

/// What can be done with disk models.
#[derive(Subcommand, Debug)]
pub enum DiskWhat {
    /// The profiles that come with dcd
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// A profile: its TOML text, with the sources of its numbers, or as JSON what follows from it
    Show {
        /// Name of a profile, or path of a TOML file.
        #[arg(value_name = "PROFILE")]
        disk: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// How far the service times of a model are from those measured on a real drive
    ///
    /// The requests of the trace are replayed one at a time, each so long after the end of the one
    /// before as it was in reality. The demerit figure is the root mean square of the horizontal
    /// distance between the two distributions of service times.
    Validate {
        /// Name of a profile, or path of a TOML file.
        #[arg(long, value_name = "PROFILE")]
        disk: String,
        /// CSV, plain or compressed (zstd, gzip), with the columns t_us, op, off, len, svc_start_us
        /// and svc_stop_us, or op, blkno_512, bcount_512, measured_us and next_inter_us.
        #[arg(long, value_name = "FILE")]
        trace: PathBuf,
        /// Chooses the angle of the platters at the beginning, and the times of disks without an
        /// arm.
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        seed: u64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a profile nearer to a drive that was measured
    ///
    /// What a specification does not tell, the times that controller and arm add, or those of a
    /// device without an arm, is fitted to the first half of the trace; how near the profile is to
    /// the second half, which is only looked at, says whether to believe it.
    Fit(FitArguments),
}

/// Fitting a profile.
#[derive(Args, Debug)]
pub struct FitArguments {
    /// Name of a profile, or path of a TOML file, to begin with.
    #[arg(long, value_name = "PROFILE")]
    disk: String,
    /// CSV, as for `dcd disk validate`.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Write the profile with the numbers that were found there, to a file that must not exist; -
    /// for standard output, and nothing else.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Take so many requests of the trace.
    #[arg(long, value_name = "COUNT", default_value_t = 50_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    requests: u64,
    /// Chooses the angle of the platters at the beginning, and the times of disks without an arm.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &DiskArguments) -> Result<(), CommandError> {
    match &arguments.what {
        DiskWhat::List { json } => list(*json),
        DiskWhat::Show { disk, json } => show(disk, *json),
        DiskWhat::Validate { disk, trace, seed, json } => validate(disk, trace, *seed, *json),
        DiskWhat::Fit(arguments) => fit(arguments),
    }
}

fn list(as_json: bool) -> Result<(), CommandError> {
    let mut disks = Vec::new();
    for (name, _) in profiles::all() {
        disks.push((name, Profile::load(name)?));
    }
    if as_json {
        let disks: Vec<Value> =
            disks.iter().map(|(name, profile)| disk::facts(name, profile)).collect();
        return print_json(&disks);
    }
    let mut table = Table::new(&[
        ("name", Align::Left),
        ("size", Align::Right),
        ("rpm", Align::Right),
        ("mean seek", Align::Right),
        ("full seek", Align::Right),
        ("what", Align::Left),
    ]);
    for (name, profile) in &disks {
        let summary = Summary::of(profile);
        let arm = summary.mechanical.as_ref();
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        table.row(vec![
            (*name).into(),
            decimal_size(summary.capacity_bytes),
            or_dash(arm.map(|arm| format!("{:.0}", arm.rpm))),
            or_dash(arm.map(|arm| format!("{:.1} ms", arm.mean_seek_ms))),
            or_dash(arm.map(|arm| format!("{:.1} ms", arm.full_seek_ms))),
            profile.title.clone(),
        ]);
    }
    print(&table.render(Paint::for_stdout()))
}

fn show(name: &str, as_json: bool) -> Result<(), CommandError> {
    let profile = Profile::load(name)?;
    if as_json {
        return print_json(&disk::facts(name, &profile));
    }
    match profiles::find(name) {
        Some((_, text)) => print(text),
        None => {
            let path = Path::new(name);
            let text = dcd_files::small_file::read_text(path).map_err(|source| {
                CommandError::from(ProfileError::Read { path: path.to_owned(), source })
            })?;
            print(&text)
        }
    }
}

fn validate(name: &str, trace: &Path, seed: u64, as_json: bool) -> Result<(), CommandError> {
    let profile = Profile::load(name)?;
    let demerit = disk::validate(&profile, trace, seed, &mut ProgressWatcher::default())?;
    if as_json {
        return print_json(&disk::validation_facts(&demerit, name, trace));
    }
    print(&in_words(&demerit))
}

fn in_words(demerit: &Demerit) -> String {
    format!(
        "requests                {}\n\
         mean service time       {:.3} ms\n\
         of the real drive       {:.3} ms\n\
         demerit                 {:.3} ms, {} of the mean\n",
        demerit.requests,
        demerit.mean_ms,
        demerit.measured_mean_ms,
        demerit.demerit_ms,
        percent(demerit)
    )
}

/// Of a drive that takes no time at all there is no share.
fn percent(demerit: &Demerit) -> String {
    match demerit.percent() {
        percent if percent.is_finite() => format!("{percent:.2} %"),
        _ => "-".into(),
    }
}

fn fit(arguments: &FitArguments) -> Result<(), CommandError> {
    let FitArguments { disk: name, trace, output, requests, seed, json } = arguments;
    let mut profile = Profile::load(name)?;
    if let Some(output) = output.as_deref().filter(|output| !is_standard(output)) {
        not_there(output)?;
    }
    let fit = disk::fit(&mut profile, trace, *requests, *seed, &mut ProgressWatcher::default())?;
    if let Some(output) = output {
        let mut text = profile::text_of(name)?;
        for number in &fit.numbers {
            text = profile::with_number(&text, number.field, number.now)
                .ok_or(LabError::ProfileNotChanged { field: number.field })?;
        }
        // With all of them: a median alone may be more than what the slowest hundredth was.
        Profile::parse(output, &text)?;
        if is_standard(output) {
            return print(&text);
        }
        let mut file = File::create_new(output).map_err(CommandError::file("create", output))?;
        file.write_all(text.as_bytes()).map_err(|error| {
            // Half a profile may look like a whole one.
            let _ = std::fs::remove_file(output);
            CommandError::file("write", output)(error)
        })?;
    }
    match json {
        true => print_json(&disk::fit_facts(&fit, name, trace)),
        false => print(&fit_words(&fit)),
    }
}

fn fit_words(fit: &Fit) -> String {
    let mut numbers =
        Table::new(&[("number", Align::Left), ("was", Align::Right), ("fitted", Align::Right)]);
    for number in &fit.numbers {
        numbers.row(vec![number.field.into(), number.before.to_string(), number.now.to_string()]);
    }
    let mut halves = Table::new(&[
        ("half", Align::Left),
        ("requests", Align::Right),
        ("demerit before", Align::Right),
        ("fitted", Align::Right),
        ("mean of the model", Align::Right),
        ("of the drive", Align::Right),
    ]);
    for (name, before, after) in [
        ("first, fitted to", fit.before.fitted, fit.after.fitted),
        ("second, held out", fit.before.held_out, fit.after.held_out),
    ] {
        halves.row(vec![
            name.into(),
            after.requests.to_string(),
            percent(&before),
            percent(&after),
            format!("{:.3} ms", after.mean_ms),
            format!("{:.3} ms", after.measured_mean_ms),
        ]);
    }
    let paint = Paint::for_stdout();
    let found = match fit.numbers.is_empty() {
        true => "no number is better than what the profile has\n\n".into(),
        false => format!("{}\n", numbers.render(paint)),
    };
    let worse = match fit.after.held_out.demerit_ms > fit.before.held_out.demerit_ms {
        true => "\nthe second half has become worse: what was fitted is not true of it\n",
        false => "",
    };
    format!("{found}{}{worse}", halves.render(paint))
}

/// Sizes of disks are told in powers of 1000, as on their labels.
fn decimal_size(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if size < 999.5 {
            return format!("{size:.3} {unit}").replace(".000", "");
        }
        size /= 1000.0;
    }
    format!("{size:.2} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_on_labels() {
        assert_eq!(decimal_size(1_000_204_886_016), "1.00 TB");
        assert_eq!(decimal_size(335_557_632), "335.558 MB");
    }
}
