//! The verbs, one file each.

use crate::cli::Verb;
use crate::error::CommandError;

#[cfg(feature = "lab")]
pub mod advise;
#[cfg(feature = "lab")]
pub mod bench;
pub mod caretaker;
pub mod check;
pub mod completions;
pub mod create;
pub mod create_label;
pub mod create_room;
pub mod create_target;
#[cfg(feature = "lab")]
pub mod demo;
pub mod detach;
pub mod dhisfs;
#[cfg(feature = "lab")]
pub mod disk;
pub mod drain;
#[cfg(feature = "lab")]
pub mod figures;
pub mod flush;
#[cfg(feature = "lab")]
pub mod fuzz;
pub mod grow;
pub mod help_markdown;
pub mod hint;
pub mod inspect;
pub mod inspect_file;
#[cfg(feature = "lab")]
pub mod lab_error;
pub mod list;
pub mod man;
pub mod metrics;
pub mod probe;
pub mod probe_all;
pub mod salvage;
#[cfg(feature = "lab")]
pub mod seeded_bugs;
pub mod sequence;
pub mod serve;
#[cfg(feature = "lab")]
pub mod simulate;
pub mod slow_disk;
pub mod status;
pub mod status_panel;
#[cfg(feature = "lab")]
pub mod sweep;
pub mod top;
#[cfg(feature = "lab")]
pub mod trace;
pub mod ublk;
pub mod volume;
pub mod wipe;
#[cfg(feature = "lab")]
pub mod workload;

/// Does what the command line says.
pub fn run(verb: Verb) -> Result<(), CommandError> {
    match verb {
        Verb::Create(arguments) => create::run(&arguments),
        Verb::Serve(arguments) => serve::run(*arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Metrics(arguments) => metrics::run(&arguments),
        Verb::Top(arguments) => top::run(&arguments),
        Verb::List(arguments) => list::run(&arguments),
        Verb::Flush(arguments) => flush::run(&arguments),
        Verb::Drain(arguments) => drain::run(&arguments),
        Verb::Detach(arguments) => detach::run(&arguments),
        Verb::Dhisfs(arguments) => dhisfs::run(&arguments),
        Verb::Grow(arguments) => grow::run(&arguments),
        Verb::Check(arguments) => check::run(&arguments),
        Verb::Salvage(arguments) => salvage::run(&arguments),
        Verb::Inspect(arguments) => inspect::run(&arguments),
        #[cfg(feature = "lab")]
        Verb::Bench(arguments) => bench::run(&arguments),
        #[cfg(feature = "lab")]
        Verb::Demo(arguments) => demo::run(&arguments),
        #[cfg(feature = "lab")]
        Verb::Fuzz(arguments) => fuzz::run(&arguments),
        #[cfg(feature = "lab")]
        Verb::Disk(arguments) => disk::run(&arguments),
        #[cfg(feature = "lab")]
        Verb::Trace(arguments) => trace::run(&arguments),
        #[cfg(feature = "lab")]
        Verb::Advise(arguments) => advise::run(&arguments),
        Verb::Volume(arguments) => volume::run(&arguments),
        Verb::Hint(arguments) => hint::run(&arguments),
        Verb::Sequence(arguments) => sequence::run(&arguments),
        #[cfg(feature = "lab")]
        Verb::Simulate(arguments) => simulate::run(&arguments),
        #[cfg(feature = "lab")]
        Verb::Figures(arguments) => figures::run(&arguments),
        #[cfg(feature = "lab")]
        Verb::Sweep(arguments) => sweep::run(&arguments),
        Verb::SlowDisk(arguments) => slow_disk::run(&arguments),
        Verb::Ublk(arguments) => ublk::run(&arguments),
        Verb::Probe(arguments) => probe::run(&arguments),
        Verb::Completions(arguments) => completions::run(&arguments),
        Verb::Man(arguments) => man::run(&arguments),
        Verb::HelpMarkdown(_) => help_markdown::run(),
        Verb::Caretaker(_) => caretaker::run(),
    }
}
