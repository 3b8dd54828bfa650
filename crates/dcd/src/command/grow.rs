//! `dcd grow`: records that the data-disk of a pair has grown.

use std::path::PathBuf;

use clap::Args;
use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::network::TakeOver;
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::pair::{CacheDisks, DataDiskSize, PairOptions};
use dcd_daemon::serve::grow::grow;
use dcd_daemon::serve::offline::Ended;
use dcd_daemon::serve::share_choice::choose_shares;
use dcd_daemon::units_text::format_size;
use dcd_engine::EngineConfig;
use serde_json::json;

use crate::error::CommandError;
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

/// Record that the data-disk has grown.
///
/// Grow the disk first (lvextend, truncate -s), then run this while no dcd serves it. The cache
/// stays as it is; what the new part of the disk holds is shown as it is. May be interrupted at any
/// time and repeated. A disk cannot shrink below its cache.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  dcd grow --cache-disk fast.img --data-disk /dev/vg/slow")]
pub struct GrowArguments {
    /// The cache-disk; if it is on several disks, each of them.
    #[arg(long, value_name = "FILE|DEVICE", required = true)]
    pub cache_disk: Vec<DeviceSpec>,
    /// The share of the cache-disk, if several caches share it: its name, or the UUID of its cache
    /// [default: that of the data-disk].
    #[arg(long, value_name = "NAME|UUID")]
    pub share: Option<String>,
    /// Its data-disk.
    #[arg(long, value_name = "DISK")]
    pub data_disk: DeviceSpec,
    /// Where the memory that outlived a crash of dcd is, if not where its superblock says [default:
    /// where `dcd serve` has it].
    #[arg(long, value_name = "DIRECTORY")]
    pub memory_directory: Option<PathBuf>,
    /// Grow although the memory of the last session is not found, in which writes may be that were
    /// acknowledged and not flushed: as after a power cut. Without effect where it is found.
    #[arg(long)]
    pub memory_lost: bool,
    /// Grow although blocks are lost or the data-disk was changed behind the cache: say so only
    /// after reading what is lost.
    #[arg(long)]
    pub accept_damage: bool,
    /// Go on although the record of pairs of this host says that these disks do not belong
    /// together, or one is older than the other.
    #[arg(long)]
    pub trust_disks: bool,
    /// Print the sizes as JSON.
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &GrowArguments) -> Result<(), CommandError> {
    let engine = EngineConfig { accept_damage: arguments.accept_damage, ..EngineConfig::default() };
    let mut cache_disks = arguments.cache_disk.clone();
    let pairs = PairBook::from_environment(arguments.trust_disks);
    let data_disk = arguments.data_disk.path();
    choose_shares(&mut cache_disks, arguments.share.as_deref(), &[data_disk], &pairs)?;
    let memory_directory = arguments.memory_directory.clone();
    let options = PairOptions {
        cache_disks: CacheDisks::of(cache_disks),
        data_disks: arguments.data_disk.clone().into(),
        take_over: TakeOver::No,
        not_for_volumes: Some("grown"),
        engine,
        one_disk: None,
        memory_directory,
        memory_lost: arguments.memory_lost,
        nvram: None,
        nvram_lost: false,
        size: DataDiskSize::Same,
        memory: None,
        pairs,
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
