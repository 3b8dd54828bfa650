//! A trace of many disks, as one of each: what is simulated and advised on by itself.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use dcd_sim::trace::write_csv::CsvWriter;
use dcd_sim::trace::{Request, TraceError, is_standard};
use dcd_study::load::TraceInputArguments;
use serde_json::json;

use super::file::SignalGuard;
use super::for_each_request;
use crate::error::CommandError;
use crate::error::lab::LabError;
use crate::new_file::{make_part, part_is_whole, part_of};
use crate::output::{Align, Paint, Table, count};
use crate::stdout::{print, print_json};

/// Most files that are open at once: a cloud's trace has thousands of disks, and a process may
/// have 1,024 files.
const OPEN_MAX: usize = 256;

type OneDisk = CsvWriter<BufWriter<File>>;

/// A directory with a trace for each disk. It has its name only when all of them are whole, and goes
/// again if it does not come to its end.
struct Split {
    directory: PathBuf,
    open: BTreeMap<u32, OneDisk>,
    /// Requests of each disk.
    requests: BTreeMap<u32, u64>,
    is_whole: bool,
}

pub fn run(
    path: &Path,
    input: &TraceInputArguments,
    directory: &Path,
    as_json: bool,
) -> Result<(), CommandError> {
    if is_standard(directory) {
        return Err(CommandError::Lab(LabError::SplitToOutput));
    }
    let remove = |directory: &Path| drop(std::fs::remove_dir_all(part_of(directory)));
    let (mut split, _guard) = SignalGuard::over(directory, remove, || Split::create(directory))?;
    let reader = for_each_request(path, input, "splitting", |_, request| split.write(request))?;
    if split.requests.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned() }.into());
    }
    let requests = split.finish()?;
    let file = |device: &u32| file_name(*device);
    if as_json {
        let disks: Vec<_> = requests
            .iter()
            .map(|(device, requests)| {
                json!({
                    "device": device,
                    "name": reader.device_name(*device),
                    "file": directory.join(file(device)).display().to_string(),
                    "requests": requests,
                })
            })
            .collect();
        return print_json(
            &json!({ "directory": directory.display().to_string(), "disks": disks }),
        );
    }
    let columns = [("file", Align::Left), ("requests", Align::Right), ("disk", Align::Left)];
    let mut table = Table::new(&columns);
    for (device, requests) in &requests {
        let name = reader.device_name(*device).unwrap_or_default();
        table.row(vec![file(device), requests.to_string(), name]);
    }
    let rendered = table.render(Paint::for_stdout());
    let disks = count(requests.len() as u64, "disk");
    print(&format!("{rendered}{disks} in {}\n", directory.display()))
}

fn file_name(device: u32) -> String {
    format!("disk-{device}.csv")
}

impl Split {
    /// What is there is not overwritten, and what was made here can be taken away whole.
    fn create(directory: &Path) -> Result<Split, CommandError> {
        make_part(directory, |part| DirBuilder::new().create(part))?;
        let directory = directory.to_owned();
        Ok(Split { directory, open: BTreeMap::new(), requests: BTreeMap::new(), is_whole: false })
    }

    fn write(&mut self, request: &Request) -> Result<(), CommandError> {
        let device = request.device;
        if !self.open.contains_key(&device) {
            if self.open.len() == OPEN_MAX {
                self.close_all()?;
            }
            let writer = self.open(device)?;
            self.open.insert(device, writer);
        }
        *self.requests.entry(device).or_default() += 1;
        let writer = self.open.get_mut(&device).expect("it was opened above");
        writer.write(request).map_err(|error| self.failed(device, error))
    }

    /// New, or where it ended.
    fn open(&self, device: u32) -> Result<OneDisk, CommandError> {
        let path = part_of(&self.directory).join(file_name(device));
        let was_there = self.requests.contains_key(&device);
        let mut options = OpenOptions::new();
        match was_there {
            true => options.append(true),
            false => options.write(true).create_new(true),
        };
        let file = options.open(&path).map_err(CommandError::file("create", &path))?;
        let out = BufWriter::new(file);
        match was_there {
            true => Ok(CsvWriter::after(out)),
            false => CsvWriter::new(out).map_err(|error| self.failed(device, error)),
        }
    }

    fn close_all(&mut self) -> Result<(), CommandError> {
        for (device, writer) in std::mem::take(&mut self.open) {
            writer.finish().map_err(|error| self.failed(device, error))?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<BTreeMap<u32, u64>, CommandError> {
        self.close_all()?;
        part_is_whole(&self.directory)?;
        self.is_whole = true;
        Ok(std::mem::take(&mut self.requests))
    }

    fn failed(&self, device: u32, source: std::io::Error) -> CommandError {
        CommandError::file("write", &part_of(&self.directory).join(file_name(device)))(source)
    }
}

impl Drop for Split {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = std::fs::remove_dir_all(part_of(&self.directory));
        }
    }
}
