//! What `dcd demo` is asked on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dcd_daemon::device::device_spec::SlowTimes;
use dcd_daemon::units_text::parse_duration;

/// Users at once, at most: each has a copy of the tree and runs a process.
const USERS_MAX: u32 = 64;
/// Users of the paper's Figures 7 to 9.
const USERS_OF_THE_PAPER: [u32; 3] = [1, 4, 8];

/// Show what dcd does for file operations on a slow disk.
///
/// Unpacks, copies and removes a source tree (508 files in 31 directories, 4.9 MB) as 1, 4 and 8
/// users, on a slow disk with and without dcd; kills dcd in the middle once and looks what is left.
/// Takes about a quarter of an hour, with --quick two minutes. Needs root: it mounts file systems.
/// Everything is made in new folders and goes away again; the picture stays.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  make demo
  dcd demo --quick
  dcd demo --users 1,16 --read 4ms --write 12ms --json
  dcd demo --cache-directory /dev/shm")]
pub struct DemoArguments {
    /// One user only.
    #[arg(long, conflicts_with = "users")]
    pub quick: bool,
    /// Where the picture goes, and what is needed meanwhile; made if it is missing.
    #[arg(long, value_name = "DIRECTORY", default_value = "target/demo")]
    pub directory: PathBuf,
    /// Where the cache file goes: how fast a flush is there decides much [default: --directory].
    #[arg(long, value_name = "DIRECTORY")]
    pub cache_directory: Option<PathBuf>,
    /// How many users at once, in turn [default: 1,4,8].
    #[arg(long, value_name = "COUNTS", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(USERS_MAX)))]
    pub users: Vec<u32>,
    /// Time of a read on the slow disk.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "8ms")]
    pub read: Duration,
    /// Time of a write on the slow disk.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "8ms")]
    pub write: Duration,
    /// Print the results as JSON.
    #[arg(long)]
    pub json: bool,
}

impl DemoArguments {
    /// The numbers of users, each once, in order.
    pub fn user_counts(&self) -> Vec<u32> {
        let mut counts = match (self.quick, self.users.is_empty()) {
            (true, _) => vec![1],
            (false, true) => USERS_OF_THE_PAPER.to_vec(),
            (false, false) => self.users.clone(),
        };
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// How slow the slow disk is. Its writes are durable when they are done, so a flush is free.
    pub fn slow_times(&self) -> SlowTimes {
        SlowTimes { read: self.read, write: self.write, flush: Duration::ZERO, sector_bytes: 512 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        demo: DemoArguments,
    }

    fn demo(line: &str) -> Result<DemoArguments, clap::Error> {
        Line::try_parse_from(format!("x {line}").split_whitespace()).map(|line| line.demo)
    }

    #[test]
    fn users_are_those_of_the_paper_unless_told() {
        assert_eq!(demo("").unwrap().user_counts(), [1, 4, 8]);
        assert_eq!(demo("--quick").unwrap().user_counts(), [1]);
        assert_eq!(demo("--users 4,2,4").unwrap().user_counts(), [2, 4]);
        assert!(demo("--users 0").is_err() && demo("--users 65").is_err());
        assert!(demo("--quick --users 2").is_err());
    }
}
