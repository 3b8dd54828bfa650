//! `dcd bench flush`: what a 4 KiB write that must survive a power cut costs through dcd, against
//! what the same file gives to sequential 8 KiB writes with fdatasync: a record is a header and a
//! slot, so 8 KiB is the least that a log can write for it.
//!
//! The front half of the file is the cache, the back half takes the plain writes, in turns. dcd is
//! this program run again, asked over NBD as any client would.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use dcd_engine::Buffer;
use dcd_engine::units::LINE_SIZE;
use serde_json::json;

use super::nbd_client::NbdClient;
use super::{Random, median};
use crate::error::CommandError;
use crate::output::{Align, Paint, Table, print, print_json};
use crate::progress::{Progress, Unit};

const CACHE_BYTES: u64 = 128 << 20;
const DATA_BYTES: u64 = 1 << 30;
/// A header and a slot.
const PLAIN_BYTES: usize = 8192;

pub fn run(file: &Path, writes: u64, rounds: u32, as_json: bool) -> Result<(), CommandError> {
    let bench = FlushBench::start(file)?;
    let mut client = NbdClient::connect(&bench.socket)?;
    let mut progress = Progress::new("measuring", Unit::Rounds);
    let (mut through_dcd, mut plain) = (Vec::new(), Vec::new());
    for round in 0..rounds.max(1) {
        progress.update(u64::from(round), u64::from(rounds));
        through_dcd.push(through_dcd_micros(&mut client, writes, round.into())?);
        plain.push(bench.plain_micros(writes)?);
    }
    progress.finish();
    client.disconnect();
    show(through_dcd, plain, as_json)
}

/// Median time of a write and flush through dcd.
fn through_dcd_micros(
    client: &mut NbdClient,
    writes: u64,
    round: u64,
) -> Result<f64, CommandError> {
    let mut random = Random(round);
    let data = [0x5a; LINE_SIZE as usize];
    let mut times = Vec::new();
    for _ in 0..writes {
        let offset = random.below(DATA_BYTES / LINE_SIZE) * LINE_SIZE;
        let started = Instant::now();
        client.write(offset, &data)?;
        client.flush()?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(times))
}

fn show(through_dcd: Vec<f64>, plain: Vec<f64>, as_json: bool) -> Result<(), CommandError> {
    let (dcd_median, plain_median) = (median(through_dcd.clone()), median(plain.clone()));
    // Of speeds, so that more is better.
    let ratio = plain_median / dcd_median;
    if as_json {
        return print_json(&json!({
            "write_and_flush_micros": { "median": dcd_median, "rounds": through_dcd },
            "plain_write_and_fdatasync_micros": { "median": plain_median, "rounds": plain },
            "speed_ratio": ratio,
        }));
    }
    let mut table = Table::new(&[
        ("measured", Align::Left),
        ("median", Align::Right),
        ("per second", Align::Right),
    ]);
    for (name, median) in [
        ("random 4 KiB write and flush through dcd", dcd_median),
        ("sequential 8 KiB write and fdatasync", plain_median),
    ] {
        let per_second = format!("{:.0}", 1e6 / median);
        table.row(vec![name.into(), format!("{median:.0} us"), per_second]);
    }
    print(&format!("{}ratio of speeds: {ratio:.2}\n", table.render(Paint::for_stdout())))
}

/// The file, and a dcd that serves from its front half. Everything goes when this does.
struct FlushBench {
    path: PathBuf,
    data_disk: PathBuf,
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
            path: path.to_owned(),
            data_disk: beside(".data"),
            socket: beside(".sock"),
            daemon: None,
        };
        bench.fill(&file)?;
        let data_disk = &bench.data_disk;
        File::create_new(data_disk)
            .and_then(|file| file.set_len(DATA_BYTES))
            .map_err(CommandError::file("create", data_disk))?;
        bench.serve()?;
        Ok(bench)
    }

    /// Writes every block once: the first write to a block of a new file costs the file system a
    /// commit of its own.
    fn fill(&self, file: &File) -> Result<(), CommandError> {
        let zeroes = Buffer::zeroed(1 << 20);
        for piece in 0..(2 * CACHE_BYTES) >> 20 {
            std::os::unix::fs::FileExt::write_all_at(file, zeroes.bytes(), piece << 20)
                .map_err(CommandError::file("write", &self.path))?;
        }
        file.sync_all().map_err(CommandError::file("flush", &self.path))
    }

    fn serve(&mut self) -> Result<(), CommandError> {
        let failed = |source| CommandError::BenchDaemon { source };
        let program = std::env::current_exe().map_err(failed)?;
        let dcd = |verb: &str| {
            let mut command = Command::new(&program);
            command.arg(verb).arg("--cache-disk").arg(&self.path);
            command.arg("--data-disk").arg(&self.data_disk);
            command
        };
        let status = dcd("create")
            .args(["--cache-size", &CACHE_BYTES.to_string()])
            .stdout(Stdio::null())
            .status()
            .map_err(failed)?;
        if !status.success() {
            return Err(CommandError::BenchDaemonEnded { status });
        }
        let mut address = std::ffi::OsString::from("unix:");
        address.push(&self.socket);
        let mut child = dcd("serve")
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
            (Some(child), false) => {
                Err(CommandError::BenchDaemonEnded { status: child.wait().map_err(failed)? })
            }
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
            .open(&self.path)
            .or_else(|_| options.custom_flags(0).open(&self.path))
            .map_err(CommandError::file("open", &self.path))?;
        let mut data = Buffer::zeroed(PLAIN_BYTES);
        data.bytes_mut().fill(0x5a);
        let places = CACHE_BYTES / PLAIN_BYTES as u64;
        let mut times = Vec::new();
        for number in 0..writes {
            let offset = CACHE_BYTES + number % places * PLAIN_BYTES as u64;
            let started = Instant::now();
            rustix::io::pwrite(file.as_fd(), data.bytes(), offset)
                .and_then(|_| rustix::fs::fdatasync(&file))
                .map_err(|errno| CommandError::file("write", &self.path)(errno.into()))?;
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
        for path in [&self.path, &self.data_disk, &self.socket] {
            let _ = fs::remove_file(path);
        }
    }
}
