//! What is lost, told before anything is given up: some of it on stderr, all of it in a file. With
//! `--json` stderr has nothing but the object of the error, which then lists all of it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, Write as _};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use dcd_daemon::report::lost::LostReport;
use dcd_daemon::units_text::format_size;

use crate::error::CommandError;
use crate::output::{count, wants_json};

/// So many ranges are told on stderr.
const TOLD_MAX: usize = 16;

/// Where the whole list goes, if anywhere. Open before anything is done: a name that cannot be had
/// is told of then, and not when the list is needed.
pub struct LostList {
    place: Option<Place>,
}

struct Place {
    path: PathBuf,
    file: File,
    /// A file that was made for it, and holds nothing else.
    is_new: bool,
    /// It has the list, all of it.
    is_told: bool,
}

impl LostList {
    /// A new file, or something that only takes what is written: a pipe, a terminal, what stdout
    /// and stderr are. Never a file or disk that is there: it may be all that is left of something.
    /// Not stdout with `--json`, which has nothing but JSON there.
    pub fn open(path: Option<&Path>) -> Result<LostList, CommandError> {
        let Some(path) = path else { return Ok(LostList { place: None }) };
        let failed = CommandError::file("make the list", path);
        // Opened by its name, a file behind stdout would be written from its beginning.
        let already_open = match path.to_str() {
            Some("-" | "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1") if wants_json() => {
                return Err(CommandError::ListInJson);
            }
            Some("-" | "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1") => {
                Some(rustix::stdio::stdout().try_clone_to_owned())
            }
            Some("/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2") => {
                Some(rustix::stdio::stderr().try_clone_to_owned())
            }
            _ => None,
        };
        let only_takes = || {
            fs::metadata(path).is_ok_and(|found| {
                found.file_type().is_fifo() || found.file_type().is_char_device()
            })
        };
        let (file, is_new) = match already_open {
            Some(open) => (open.map(File::from), false),
            None if only_takes() => (File::options().write(true).open(path), false),
            None => (File::options().write(true).create_new(true).open(path), true),
        };
        let file = file.map_err(failed)?;
        let place = Place { path: path.to_owned(), file, is_new, is_told: false };
        Ok(LostList { place: Some(place) })
    }

    /// Tells what is lost. With a file, it is durable there afterwards: one range a line, its first
    /// byte and its bytes.
    pub fn tell(&mut self, lost: &LostReport) -> Result<(), CommandError> {
        if let Some(place) = &mut self.place {
            place.write(lost).map_err(CommandError::file("write", &place.path))?;
        }
        if wants_json() {
            return Ok(());
        }
        let file = self.place.as_ref().map(|place| &place.path);
        let mut text = String::new();
        for (start, bytes) in lost.ranges.iter().take(TOLD_MAX) {
            let _ = writeln!(text, "  lost: {:>10} at byte {start}", format_size(*bytes));
        }
        let more = lost.ranges.len().saturating_sub(TOLD_MAX) as u64;
        if more > 0 {
            let place = file.map_or("--lost-list FILE lists them all".into(), |path| {
                format!("all of them are in {}", path.display())
            });
            let _ = writeln!(text, "  and {}; {place}", count(more, "more range"));
        }
        if !text.is_empty() {
            eprintln!("{}", text.trim_end());
        }
        Ok(())
    }
}

impl Place {
    fn write(&mut self, lost: &LostReport) -> io::Result<()> {
        let mut text = String::from("# first byte, bytes\n");
        for (start, bytes) in &lost.ranges {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{start} {bytes}");
        }
        self.is_told = false;
        if self.is_new {
            // What was told before, while more was lost.
            self.file.set_len(0)?;
            self.file.rewind()?;
        }
        self.file.write_all(text.as_bytes())?;
        where_possible(self.file.sync_all())?;
        if self.is_new {
            // Its name, too.
            let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            where_possible(File::open(directory.unwrap_or(Path::new(".")))?.sync_all())?;
        }
        self.is_told = true;
        Ok(())
    }
}

impl Drop for Place {
    /// A file without the list would only be in the way of the next one.
    fn drop(&mut self) {
        if self.is_new && !self.is_told {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A pipe has nothing to flush.
fn where_possible(flushed: io::Result<()>) -> io::Result<()> {
    match flushed {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Ok(())
        }
        other => other,
    }
}
