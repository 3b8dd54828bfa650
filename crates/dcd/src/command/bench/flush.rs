//! `dcd bench flush`: what a 4 KiB write that must survive a power cut costs through dcd, against
//! what the same file gives to sequential 8 KiB writes with fdatasync: a record is a header and a
//! slot, so 8 KiB is the least that a log can write for it.
//!
//! The front half of the file is the cache, the back half takes the plain writes, in turns. dcd is
//! measured twice: in this process, without a frontend, which is what the log itself costs; and as
//! this program run again, asked over NBD as any client would.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use dcd_daemon::device::device_spec::DeviceSpec;
use dcd_daemon::device::network::TakeOver;
use dcd_daemon::pair::book::PairBook;
use dcd_daemon::pair::{DataDiskSize, PairOptions};
use dcd_daemon::serve::in_process::InProcess;
use dcd_engine::units::{BLOCK_SIZE, LINE_SIZE};
use dcd_engine::{Buffer, EngineConfig, Lba, Operation};
use serde_json::json;

use super::{Random, median};
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::output::{Align, Paint, Table};
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};
use dcd_client::nbd::NbdClient;

const CACHE_BYTES: u64 = 128 << 20;
const DATA_BYTES: u64 = 1 << 30;
/// A header and a slot.
const PLAIN_BYTES: usize = 8192;

pub fn run(file: &Path, writes: u64, rounds: u32, as_json: bool) -> Result<(), CommandError> {
    let bench = FlushBench::start(file)?;
    let asked = |source| CommandError::Lab(LabError::BenchDaemon { source });
    let mut client = NbdClient::connect(&bench.socket).map_err(asked)?;
    let mut inside = InProcess::open(&bench.inside.options())?;
    let mut progress = Progress::new("measuring", Unit::Rounds);
    let mut measured = Measured::default();
    for round in 0..rounds {
        progress.update(u64::from(round), u64::from(rounds));
        measured.inside.push(median_micros(writes, round, |offset, data| {
            let start = Lba(offset / BLOCK_SIZE);
            inside.ask(Operation::Write { start, data: Buffer::copy_of(data) })?;
            Ok(inside.ask(Operation::Flush)?)
        })?);
        measured.over_nbd.push(median_micros(writes, round, |offset, data| {
            client.write(offset, data).and_then(|()| client.flush()).map_err(asked)
        })?);
        measured.plain.push(bench.plain_micros(writes)?);
    }
    progress.finish();
    client.disconnect();
    inside.shut_down()?;
    show(measured, as_json)
}

/// Medians of the rounds, in microseconds.
#[derive(Default)]
struct Measured {
    inside: Vec<f64>,
    over_nbd: Vec<f64>,
    plain: Vec<f64>,
}

/// Median time of a write at a random place and its flush.
fn median_micros(
    writes: u64,
    round: u32,
    mut write_and_flush: impl FnMut(u64, &[u8]) -> Result<(), CommandError>,
) -> Result<f64, CommandError> {
    let mut random = Random(round.into());
    let data = [0x5a; LINE_SIZE as usize];
    let mut times = Vec::new();
    for _ in 0..writes {
        let offset = random.below(DATA_BYTES / LINE_SIZE) * LINE_SIZE;
        let started = Instant::now();
        write_and_flush(offset, &data)?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(times))
}

fn show(measured: Measured, as_json: bool) -> Result<(), CommandError> {
    let Measured { inside, over_nbd, plain } = measured;
    let plain_median = median(plain.clone());
    // Of speeds, so that more is better.
    let ratio = |rounds: &[f64]| plain_median / median(rounds.to_vec());
    let (inside_ratio, nbd_ratio) = (ratio(&inside), ratio(&over_nbd));
    let rows = [
        ("random 4 KiB write and flush in dcd", &inside, inside_ratio),
        ("the same over NBD", &over_nbd, nbd_ratio),
        ("sequential 8 KiB write and fdatasync", &plain, 1.0),
    ];
    if as_json {
        let of = |rounds: &Vec<f64>| json!({ "median": median(rounds.clone()), "rounds": rounds });
        return print_json(&json!({
            "write_and_flush_in_process_micros": of(&inside),
            "write_and_flush_micros": of(&over_nbd),
            "plain_write_and_fdatasync_micros": of(&plain),
            "speed_ratio_in_process": inside_ratio,
            "speed_ratio": nbd_ratio,
        }));
    }
    let mut table = Table::new(&[
        ("measured", Align::Left),
        ("median", Align::Right),
        ("per second", Align::Right),
        ("ratio", Align::Right),
    ]);
    for (name, rounds, ratio) in rows {
        let median = median(rounds.clone());
        let per_second = format!("{:.0}", 1e6 / median);
        table.row(vec![name.into(), format!("{median:.0} us"), per_second, format!("{ratio:.2}")]);
    }
    print(&table.render(Paint::for_stdout()))
}

/// A cache-disk and a data-disk, of files that go when this does.
struct Files {
    cache_disk: PathBuf,
    data_disk: PathBuf,
}

impl Files {
    fn create(&self) -> Result<(), CommandError> {
        let failed = |source| CommandError::Lab(LabError::BenchDaemon { source });
        let data_disk = &self.data_disk;
        File::create_new(data_disk)
            .and_then(|file| file.set_len(DATA_BYTES))
            .map_err(CommandError::file("create", data_disk))?;
        let program = std::env::current_exe().map_err(failed)?;
        let status = Command::new(program)
            .arg("create")
            .arg("--cache-disk")
            .arg(&self.cache_disk)
            .arg("--data-disk")
            .arg(data_disk)
            .args(["--cache-size", &CACHE_BYTES.to_string()])
            .stdout(Stdio::null())
            .status()
            .map_err(failed)?;
        match status.success() {
            true => Ok(()),
            false => Err(CommandError::Lab(LabError::BenchDaemonEnded { status })),
        }
    }

    fn options(&self) -> PairOptions {
        PairOptions {
            cache_disks: DeviceSpec::Plain(self.cache_disk.clone()).into(),
            data_disks: DeviceSpec::Plain(self.data_disk.clone()).into(),
            take_over: TakeOver::No,
            not_for_volumes: None,
            engine: EngineConfig::default(),
            one_disk: None,
            memory_directory: None,
            memory_lost: false,
            nvram: None,
            nvram_lost: false,
            size: DataDiskSize::Same,
            memory: None,
            pairs: PairBook::default(),
            quiet: true,
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.cache_disk, &self.data_disk] {
            let _ = fs::remove_file(path);
        }
    }
}

/// The file, and a dcd that serves from its front half; and the cache of this process.
struct FlushBench {
    file: Files,
    inside: Files,
    socket: PathBuf,
    daemon: Option<Child>,
}

impl FlushBench {
    fn start(path: &Path) -> Result<FlushBench, CommandError> {
        let beside = |ending: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(ending);
            PathBuf::from(name)
        };
        let file = File::options()
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(CommandError::file("create", path))?;
        let mut bench = FlushBench {
            file: Files { cache_disk: path.to_owned(), data_disk: beside(".data") },
            inside: Files { cache_disk: beside(".cache-2"), data_disk: beside(".data-2") },
            socket: beside(".sock"),
            daemon: None,
        };
        bench.fill(&file)?;
        bench.file.create()?;
        bench.inside.create()?;
        bench.serve()?;
        Ok(bench)
    }

    /// Writes every block once: the first write to a block of a new file costs the file system a
    /// commit of its own.
    fn fill(&self, file: &File) -> Result<(), CommandError> {
        let zeroes = Buffer::zeroed(1 << 20);
        for piece in 0..(2 * CACHE_BYTES) >> 20 {
            std::os::unix::fs::FileExt::write_all_at(file, zeroes.bytes(), piece << 20)
                .map_err(CommandError::file("write", &self.file.cache_disk))?;
        }
        file.sync_all().map_err(CommandError::file("flush", &self.file.cache_disk))
    }

    fn serve(&mut self) -> Result<(), CommandError> {
        let failed = |source| CommandError::Lab(LabError::BenchDaemon { source });
        let program = std::env::current_exe().map_err(failed)?;
        let mut address = std::ffi::OsString::from("unix:");
        address.push(&self.socket);
        let mut child = Command::new(program)
            .arg("serve")
            .arg("--cache-disk")
            .arg(&self.file.cache_disk)
            .arg("--data-disk")
            .arg(&self.file.data_disk)
            .arg("--nbd")
            .arg(address)
            .arg("--quiet")
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let stdout = child.stdout.take();
        self.daemon = Some(child);
        let mut ready = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut ready).map_err(failed)?;
        }
        match (&mut self.daemon, ready.starts_with("ready")) {
            (Some(child), false) => Err(CommandError::Lab(LabError::BenchDaemonEnded {
                status: child.wait().map_err(failed)?,
            })),
            _ => Ok(()),
        }
    }

    /// Median time of a plain write and fdatasync.
    fn plain_micros(&self, writes: u64) -> Result<f64, CommandError> {
        let mut options = File::options();
        options.read(true).write(true);
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let file = options
            .custom_flags(direct)
            .open(&self.file.cache_disk)
            .or_else(|_| options.custom_flags(0).open(&self.file.cache_disk))
            .map_err(CommandError::file("open", &self.file.cache_disk))?;
        let mut data = Buffer::zeroed(PLAIN_BYTES);
        data.bytes_mut().fill(0x5a);
        let places = CACHE_BYTES / PLAIN_BYTES as u64;
        let mut times = Vec::new();
        for number in 0..writes {
            let offset = CACHE_BYTES + number % places * PLAIN_BYTES as u64;
            let started = Instant::now();
            rustix::io::pwrite(file.as_fd(), data.bytes(), offset)
                .and_then(|_| rustix::fs::fdatasync(&file))
                .map_err(|errno| {
                    CommandError::file("write", &self.file.cache_disk)(errno.into())
                })?;
            times.push(started.elapsed().as_secs_f64() * 1e6);
        }
        Ok(median(times))
    }
}

impl Drop for FlushBench {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            if let Some(pid) = rustix::process::Pid::from_raw(daemon.id() as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let mut rest = Vec::new();
            if let Some(mut stdout) = daemon.stdout.take() {
                let _ = stdout.read_to_end(&mut rest);
            }
            let _ = daemon.wait();
        }
        let _ = fs::remove_file(&self.socket);
    }
}
