//! A trace that is being written: a new file, which has its name only when it is whole, and goes
//! again if it does not come to its end; or the standard output.

#[cfg(feature = "parquet")]
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use dcd_daemon::process::signals::Signals;
use dcd_daemon::serve::ServeError;
use dcd_sim::trace::write_csv::CsvWriter;
#[cfg(feature = "parquet")]
use dcd_sim::trace::write_parquet::ParquetWriter;
use dcd_sim::trace::{Request, is_standard};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::new_file::{make_part_of_file, part_is_whole, part_of};
use crate::stdout::stdout_error;

/// A trace that is being written.
pub struct TraceFile {
    path: PathBuf,
    /// It is a file that was made here: it gets its name at its end, or is removed.
    is_part: bool,
    /// None when it has come to its end.
    writer: Option<Writer>,
}

/// See [`SignalGuard::over`].
pub struct SignalGuard {
    /// Its end is that of the thread.
    over: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    _signals: Signals,
}

impl SignalGuard {
    /// What `make` makes at `path`, and its guard: until that goes, Ctrl-C and SIGTERM end the
    /// process, and `remove` takes away what was made.
    pub fn over<T>(
        path: &Path,
        remove: fn(&Path),
        make: impl FnOnce() -> Result<T, CommandError>,
    ) -> Result<(T, SignalGuard), CommandError> {
        let failed = || ServeError::system("receive signals");
        // First: a signal that comes while it is being made waits until it is. What cannot be made
        // was there before, and stays.
        let signals = Signals::install().map_err(failed())?;
        let made = make()?;
        let guard = SignalGuard::start(signals, path.to_owned(), remove).map_err(failed())?;
        Ok((made, guard))
    }

    /// A thread waits for the signals, because the end of what is read from a pipe may never come.
    fn start(signals: Signals, path: PathBuf, remove: fn(&Path)) -> std::io::Result<SignalGuard> {
        let received = signals.as_fd().try_clone_to_owned()?;
        let (ours, theirs) = UnixStream::pair()?;
        let thread = std::thread::spawn(move || {
            let mut events =
                [PollFd::new(&received, PollFlags::IN), PollFd::new(&theirs, PollFlags::IN)];
            while poll(&mut events, None) == Err(Errno::INTR) {}
            if events[0].revents().contains(PollFlags::IN) {
                remove(&path);
                let error = CommandError::Lab(LabError::TraceCancelled { path });
                error.report();
                std::process::exit(error.exit_code().into());
            }
        });
        Ok(SignalGuard { over: Some(ours), thread: Some(thread), _signals: signals })
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        self.over = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

enum Writer {
    Csv(CsvWriter<BufWriter<Box<dyn Write>>>),
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetWriter<BufWriter<File>>>),
}

impl TraceFile {
    /// Makes the file: Parquet if its name ends so, else CSV. `-` is the standard output.
    pub fn create(path: &Path) -> Result<TraceFile, CommandError> {
        if is_standard(path) {
            let trace = TraceFile { path: path.to_owned(), is_part: false, writer: None };
            return trace.with_csv(Box::new(std::io::stdout()));
        }
        let is_parquet = path.extension().is_some_and(|extension| extension == "parquet");
        if is_parquet && !cfg!(feature = "parquet") {
            return Err(CommandError::Lab(LabError::NoParquet { path: path.to_owned() }));
        }
        // What is there is not overwritten: it may be the only copy of a recording.
        let file = make_part_of_file(path)?;
        // From here on the file goes when this does.
        let trace = TraceFile { path: path.to_owned(), is_part: true, writer: None };
        #[cfg(feature = "parquet")]
        if is_parquet {
            return trace.with_parquet(file);
        }
        trace.with_csv(Box::new(file))
    }

    fn with_csv(mut self, out: Box<dyn Write>) -> Result<TraceFile, CommandError> {
        let writer = CsvWriter::new(BufWriter::new(out)).map_err(|error| self.failed(error))?;
        self.writer = Some(Writer::Csv(writer));
        Ok(self)
    }

    #[cfg(feature = "parquet")]
    fn with_parquet(mut self, file: File) -> Result<TraceFile, CommandError> {
        let writer =
            ParquetWriter::new(BufWriter::new(file)).map_err(|error| self.parquet(&error))?;
        self.writer = Some(Writer::Parquet(Box::new(writer)));
        Ok(self)
    }

    /// What is said when it cannot be written.
    fn failed(&self, source: std::io::Error) -> CommandError {
        match is_standard(&self.path) {
            true => stdout_error(source),
            false => CommandError::file("write", &self.path)(source),
        }
    }

    /// The same; until the guard goes, Ctrl-C and SIGTERM end the process and take the file with
    /// them.
    pub fn create_guarded(path: &Path) -> Result<(TraceFile, SignalGuard), CommandError> {
        let remove = |path: &Path| {
            if !is_standard(path) {
                let _ = std::fs::remove_file(part_of(path));
            }
        };
        SignalGuard::over(path, remove, || TraceFile::create(path))
    }

    /// Writes a request.
    pub fn write(&mut self, request: &Request) -> Result<(), CommandError> {
        match self.writer.as_mut().expect("it has not come to its end") {
            Writer::Csv(writer) => {
                let written = writer.write(request);
                written.map_err(|error| self.failed(error))
            }
            #[cfg(feature = "parquet")]
            Writer::Parquet(writer) => {
                let written = writer.write(request);
                written.map_err(|error| self.parquet(&error))
            }
        }
    }

    /// Its end.
    pub fn finish(mut self) -> Result<(), CommandError> {
        let finished = match self.writer.take().expect("it has not come to its end") {
            Writer::Csv(writer) => writer.finish().map(drop).map_err(|error| self.failed(error)),
            #[cfg(feature = "parquet")]
            Writer::Parquet(writer) => {
                let out = writer.finish().map_err(|problem| self.parquet(&problem));
                let flushed =
                    |out: BufWriter<File>| out.into_inner().map_err(|full| full.into_error());
                out.and_then(|out| flushed(out).map(drop).map_err(|error| self.failed(error)))
            }
        };
        finished?;
        if self.is_part {
            part_is_whole(&self.path)?;
            self.is_part = false;
        }
        Ok(())
    }

    #[cfg(feature = "parquet")]
    fn parquet(&self, error: &dcd_parquet::Error) -> CommandError {
        CommandError::Lab(LabError::WriteParquet {
            path: self.path.clone(),
            problem: error.to_string(),
        })
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if self.is_part {
            let _ = std::fs::remove_file(part_of(&self.path));
        }
    }
}
