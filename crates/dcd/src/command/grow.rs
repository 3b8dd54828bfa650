//! `dcd grow`: records that the data-disk of a pair has grown.

use dcd_daemon::pair::book::PairBook;
use dcd_daemon::pair::grow::grow;
use dcd_daemon::pair::{DataDiskSize, PairOptions};
use dcd_daemon::serve::offline::Ended;
use dcd_daemon::units_text::format_size;
use dcd_engine::EngineConfig;
use serde_json::json;

use crate::cli::GrowArguments;
use crate::error::CommandError;
use crate::output::{print, print_json};
use crate::progress::{Progress, Unit};

pub fn run(arguments: &GrowArguments) -> Result<(), CommandError> {
    let engine = EngineConfig { accept_damage: arguments.accept_damage, ..EngineConfig::default() };
    let memory_directory = arguments.memory_directory.clone();
    let options = PairOptions {
        cache_disk: arguments.cache_disk.clone(),
        data_disks: arguments.data_disk.clone().into(),
        not_for_volumes: Some("grown"),
        engine,
        one_disk: None,
        memory_directory,
        memory_lost: arguments.memory_lost,
        size: DataDiskSize::Same,
        memory: None,
        pairs: PairBook::from_environment(arguments.trust_disks),
        quiet: true,
    };
    let mut progress = Progress::new("draining", Unit::Bytes);
    let report = grow(&options, &mut |so_far| progress.lines(so_far));
    progress.finish();
    let report = report?;
    match report.ended {
        Ended::Done => {}
        Ended::Cancelled => return Err(CommandError::GrowCancelled),
        Ended::AtOnce => return Err(CommandError::Aborted),
    }
    let (old, new) = (report.old_bytes, report.new_bytes);
    if arguments.json {
        return print_json(&json!({
            "uuid": report.uuid.to_string(),
            "data_disk": options.data_disks.to_string(),
            "old_bytes": old,
            "new_bytes": new,
        }));
    }
    let name = &options.data_disks;
    if old == new {
        return print(&format!("{name} has its recorded size, {}\n", format_size(new)));
    }
    print(&format!("grown: {name} from {} to {}\n", format_size(old), format_size(new)))
}
