//! The verbs, one file each.

use crate::cli::Verb;
use crate::error::CommandError;

pub mod advise;
pub mod bench;
pub mod caretaker;
pub mod check;
pub mod completions;
pub mod create;
pub mod create_label;
pub mod create_room;
pub mod create_target;
pub mod demo;
pub mod detach;
pub mod dhisfs;
pub mod disk;
pub mod drain;
pub mod figures;
pub mod flush;
pub mod fuzz;
pub mod grow;
pub mod help_markdown;
pub mod hint;
pub mod inspect;
pub mod inspect_file;
pub mod list;
pub mod man;
pub mod metrics;
pub mod probe;
pub mod probe_all;
pub mod salvage;
pub mod seeded_bugs;
pub mod sequence;
pub mod serve;
pub mod simulate;
pub mod slow_disk;
pub mod status;
pub mod status_panel;
pub mod sweep;
pub mod top;
pub mod trace;
pub mod ublk;
pub mod volume;
pub mod wipe;
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
        Verb::Bench(arguments) => bench::run(&arguments),
        Verb::Demo(arguments) => demo::run(&arguments),
        Verb::Fuzz(arguments) => fuzz::run(&arguments),
        Verb::Disk(arguments) => disk::run(&arguments),
        Verb::Trace(arguments) => trace::run(&arguments),
        Verb::Advise(arguments) => advise::run(&arguments),
        Verb::Volume(arguments) => volume::run(&arguments),
        Verb::Hint(arguments) => hint::run(&arguments),
        Verb::Sequence(arguments) => sequence::run(&arguments),
        Verb::Simulate(arguments) => simulate::run(&arguments),
        Verb::Figures(arguments) => figures::run(&arguments),
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
