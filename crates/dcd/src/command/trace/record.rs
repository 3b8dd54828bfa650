//! `dcd trace record`: what a block device is asked for, through the kernel's block tracepoints.
//!
//! Recorded is `block_bio_queue`: a request when somebody asks for it, before the kernel merges it
//! with others and sorts them. An instance of its own under tracefs is used, so no other user of
//! tracing is disturbed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use dcd_daemon::process::signals::Signals;
use dcd_daemon::serve::ServeError;
use dcd_sim::trace::{Request, TraceFormat, TraceReader, is_standard};
use serde_json::json;

use super::file::TraceFile;
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::output::count;
use crate::progress::{Progress, Unit};
use crate::stdout::{print, print_json};

const TRACEFS: &str = "/sys/kernel/tracing";
const EVENT: &str = "events/block/block_bio_queue";
/// Of each processor: a tenth of a million requests.
const BUFFER_KIB: &str = "8192";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What was recorded.
pub struct Recorded {
    /// Requests.
    pub requests: u64,
    /// Requests that the kernel, or the daemon, had no room for.
    pub lost: u64,
}

impl Recorded {
    /// Tells it.
    pub fn tell(&self, out: &Path, as_json: bool) -> Result<(), CommandError> {
        let Recorded { requests, lost } = *self;
        if is_standard(out) {
            // The trace is on stdout.
            eprintln!("dcd: {}, {lost} were lost", count(requests, "request"));
            return Ok(());
        }
        if as_json {
            let trace = out.display().to_string();
            return print_json(&json!({ "requests": requests, "lost": lost, "trace": trace }));
        }
        let lost = match lost {
            0 => String::new(),
            lost => format!("; {lost} were lost: there was no room for them"),
        };
        print(&format!("{} in {}{lost}\n", count(requests, "request"), out.display()))
    }
}

/// Records for that time, or until Ctrl-C.
pub fn record(device: &Path, out: &Path, time: Duration) -> Result<Recorded, CommandError> {
    let devices = Devices::of(device)?;
    let mut trace = TraceFile::create(out)?;
    let signals = Signals::install().map_err(ServeError::system("receive signals"))?;
    let instance = Rc::new(Instance::start(&devices)?);
    let path = instance.path("trace_pipe");
    let stream = Stream {
        pipe: instance.open("trace_pipe")?,
        instance: instance.clone(),
        end: Instant::now().checked_add(time),
        time,
        signals,
        progress: Some(Progress::new("recording", Unit::Seconds)),
    };
    let mut requests = 0;
    let bytes = Box::new(BufReader::new(stream));
    for request in TraceReader::new(&path, bytes, Some(TraceFormat::Tracefs))? {
        if let Some(request) = devices.request(request?) {
            trace.write(&request)?;
            requests += 1;
        }
    }
    trace.finish()?;
    Ok(Recorded { requests, lost: instance.lost() })
}

/// The disk that is recorded, as the kernel numbers it.
struct Devices {
    /// `major << 20 | minor` of the device, and of its partitions.
    numbers: Vec<u32>,
    /// Where a partition begins; addresses are those of its disk.
    start_bytes: u64,
}

impl Devices {
    fn of(path: &Path) -> Result<Devices, CommandError> {
        let metadata = fs::metadata(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => {
                CommandError::Lab(LabError::NoSuchDevice { path: path.to_owned() })
            }
            _ => CommandError::file("look at", path)(source),
        })?;
        if !metadata.file_type().is_block_device() {
            return Err(CommandError::Lab(LabError::NotABlockDevice { path: path.to_owned() }));
        }
        let number = metadata.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let mut numbers = vec![major << 20 | minor];
        let read = |path: PathBuf| fs::read_to_string(path).ok();
        let start = read(folder.join("start")).and_then(|text| text.trim().parse::<u64>().ok());
        if start.is_none() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let is_partition = entry.path().join("partition").exists();
                let text = is_partition.then(|| read(entry.path().join("dev"))).flatten();
                numbers.extend(text.as_deref().and_then(number_of));
            }
        }
        Ok(Devices { numbers, start_bytes: start.unwrap_or(0) * 512 })
    }

    /// What the kernel is to let through.
    fn filter(&self) -> String {
        let one = |number: &u32| format!("dev == {number}");
        self.numbers.iter().map(one).collect::<Vec<_>>().join(" || ")
    }

    /// A request with the address that it has on the device; none if it is for another one.
    fn request(&self, request: Request) -> Option<Request> {
        let offset_bytes = match request.size_bytes {
            0 => 0,
            _ => request.offset_bytes.checked_sub(self.start_bytes)?,
        };
        let is_ours = self.numbers.contains(&request.device);
        is_ours.then_some(Request { device: 0, offset_bytes, ..request })
    }
}

/// `8:16`.
fn number_of(text: &str) -> Option<u32> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

/// A place of our own under tracefs, that goes when this does.
struct Instance {
    folder: PathBuf,
}

impl Instance {
    fn start(devices: &Devices) -> Result<Instance, CommandError> {
        let folder = Path::new(TRACEFS).join(format!("instances/dcd-{}", std::process::id()));
        let made = fs::create_dir(&folder);
        made.map_err(|source| {
            CommandError::Lab(LabError::Tracing { path: folder.clone(), source })
        })?;
        let instance = Instance { folder };
        instance.write("buffer_size_kb", BUFFER_KIB)?;
        instance.write("trace_clock", "mono")?;
        instance.write(&format!("{EVENT}/filter"), &devices.filter())?;
        instance.write(&format!("{EVENT}/enable"), "1")?;
        Ok(instance)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), CommandError> {
        let path = self.path(name);
        let written = OpenOptions::new().write(true).open(&path);
        let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|source| CommandError::Lab(LabError::Tracing { path, source }))
    }

    fn open(&self, name: &str) -> Result<File, CommandError> {
        let path = self.path(name);
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        opened.map_err(|source| CommandError::Lab(LabError::Tracing { path, source }))
    }

    /// Requests that there was no room for.
    fn lost(&self) -> u64 {
        let processors = fs::read_dir(self.path("per_cpu")).into_iter().flatten().flatten();
        let of_one = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path().join("stats")).unwrap_or_default();
            let count = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
            };
            count("overrun:") + count("dropped events:")
        };
        processors.map(of_one).sum()
    }
}

impl Instance {
    /// Nothing is recorded any more; what was can still be read.
    fn stop(&self) {
        // If that fails there is nothing to be done, and the time ends it anyway.
        let _ = self.write(&format!("{EVENT}/enable"), "0");
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It cannot be taken away while it records; what remains after an error does no harm.
        self.stop();
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The text of the events, up to the end of the time or Ctrl-C.
struct Stream {
    pipe: File,
    instance: Rc<Instance>,
    /// None: too far away to ever come.
    end: Option<Instant>,
    time: Duration,
    signals: Signals,
    /// None when it is over; what is there is still read.
    progress: Option<Progress>,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let now = Instant::now();
            if (self.end.is_some_and(|end| now >= end) || self.signals.take().is_some())
                && let Some(progress) = self.progress.take()
            {
                progress.finish();
                self.instance.stop();
            }
            match self.pipe.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Some kernels say so of an empty pipe, too.
                Ok(0) => {}
                other => return other,
            }
            let Some(progress) = &mut self.progress else { return Ok(0) };
            let left = self.end.map_or(self.time, |end| end.saturating_duration_since(now));
            progress.update(self.time.saturating_sub(left).as_secs(), self.time.as_secs());
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
