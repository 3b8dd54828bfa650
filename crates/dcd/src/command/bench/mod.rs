//! `dcd bench`: measures this machine. Each figure is a median of alternating rounds, and stands
//! beside its yardstick.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dcd_daemon::units_text::parse_size;
use serde_json::{Value, json};

use crate::error::{CommandError, report_line};
use crate::output::{Align, Colour, Paint, Table};
use crate::stdout::{print, print_json};

mod disk;
mod engine;
mod flush;
mod scale;

/// Measure this machine.
///
/// Each measurement stands beside its own yardstick, taken in the same run; compare the ratios, not
/// the figures of two machines.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd bench engine --rounds 15
  dcd bench scale --cache-disk 4g,64g
  dcd bench flush --file /mnt/ssd/bench.img")]
pub struct BenchArguments {
    /// What to measure.
    #[command(subcommand)]
    pub what: BenchWhat,
}

/// What `bench` can measure.
#[derive(Subcommand, Debug)]
pub enum BenchWhat {
    /// The engine alone, on disks made of memory: random 4 KiB writes and lookups
    Engine {
        /// How many rounds; the median counts.
        #[arg(long, value_name = "COUNT", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// The model of a drive with an arm (hp-97560): requests per second of processor time
    Disk {
        /// How many rounds; the median counts.
        #[arg(long, value_name = "COUNT", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// What grows with the size of a cache: memory, opening, checkpoints, a start after a crash, a
    /// trim of everything
    ///
    /// The engine is the real one, on disks that keep nothing but what the engine itself writes,
    /// and on virtual time: the cache-disk answers in 80 us and moves 2 GB/s, the data-disk does
    /// 20,000 I/Os a second.
    Scale {
        /// Sizes of the cache-disk, each measured in a process of its own.
        #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size, default_value = "1g,4g,16g")]
        cache_disk: Vec<u64>,
        /// Write so many lines in place of filling the cache.
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
        lines: Option<u64>,
        /// Memory for the index; what has no room is read from the cache-disk.
        #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
        index_max: u64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// 4 KiB write and flush through dcd, against 8 KiB write and fdatasync on the same file
    Flush {
        /// File for the cache and for the yardstick; must not exist, is removed afterwards.
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Writes in a round.
        #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
        writes: u64,
        /// How many rounds; the median counts.
        #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(arguments: &BenchArguments) -> Result<(), CommandError> {
    if cfg!(debug_assertions) {
        let text =
            "this is a debug build, its figures mean nothing; use cargo build --locked --release";
        report_line("warning", Colour::Warning, text, Paint::for_stderr());
    }
    match &arguments.what {
        BenchWhat::Engine { rounds, json } => engine::run(*rounds, *json),
        BenchWhat::Disk { rounds, json } => disk::run(*rounds, *json),
        BenchWhat::Scale { cache_disk, lines, index_max, json } => {
            scale::run(cache_disk, *lines, *index_max, *json)
        }
        BenchWhat::Flush { file, writes, rounds, json } => {
            flush::run(file, *writes, *rounds, *json)
        }
    }
}

/// What was measured in rounds: its key in JSON, its name, how often in a second.
type Row = (&'static str, &'static str, Vec<f64>);

/// Prints the rows beside what else `value` tells; as a table with numbers as `show` has them, and
/// a line below it.
fn print_rows(
    rows: Vec<Row>,
    value: Option<Value>,
    show: impl Fn(f64) -> String,
    below: &str,
) -> Result<(), CommandError> {
    if let Some(mut value) = value {
        for (key, _, rounds) in rows {
            value[key] = json!({ "median": median(rounds.clone()), "rounds": rounds });
        }
        return print_json(&value);
    }
    let mut table = Table::new(&[
        ("measured", Align::Left),
        ("median per second", Align::Right),
        ("lowest", Align::Right),
        ("highest", Align::Right),
    ]);
    for (_, name, rounds) in rows {
        let lowest = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = rounds.iter().copied().fold(0.0, f64::max);
        table.row(vec![name.into(), show(median(rounds)), show(lowest), show(highest)]);
    }
    print(&(table.render(Paint::for_stdout()) + below))
}

/// The middle one; of an even number the lower of the two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// Numbers that look random and are the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.0);
        assert_eq!(median(vec![]), 0.0);
    }
}
