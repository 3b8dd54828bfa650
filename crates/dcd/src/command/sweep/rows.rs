//! Results of a sweep as rows, and the file of them, which is gone on with behind the last whole
//! row of an interrupted sweep. A row begins with the parameters of its point, so it can be told
//! whose it is.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dcd_sim::sweep::Outcome;
use dcd_study::sweep::{Labels, RESULTS, results, value};
use rustix::fs::OFlags;
use serde_json::{Map, Value};

use super::arguments::ResultFormat;
use crate::error::CommandError;
use crate::error::lab::LabError;

/// A field of CSV.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"").replace(['\n', '\r'], " ")),
        false => text.to_owned(),
    }
}

/// Fields of a line of CSV.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                field.push('"');
                characters.next();
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            _ => field.push(character),
        }
    }
    fields.push(field);
    fields
}

/// More than any row has.
pub(super) const LINE_BYTES_MAX: u64 = 64 << 10;

/// Opens a file. What has no end, or is waited for, is none.
pub(super) fn open_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // A pipe would be waited for.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => {
            let what = "expected a file, found a directory, a device, a pipe or a socket";
            Err(io::Error::new(ErrorKind::InvalidInput, what))
        }
    }
}

/// Reads a line, with its end; of one that is too long to be a row only the beginning, without.
/// Whether there was one.
pub(super) fn read_line(from: &mut impl BufRead, line: &mut String) -> io::Result<bool> {
    line.clear();
    Ok(from.take(LINE_BYTES_MAX + 1).read_line(line)? > 0)
}

/// The file of rows.
pub struct RowFile {
    path: PathBuf,
    file: File,
    format: ResultFormat,
    /// How many rows it has.
    pub rows: usize,
}

impl RowFile {
    /// Opens the file behind the last whole row. `labels` are those of all rows, in order.
    pub fn open(
        path: &Path,
        format: ResultFormat,
        labels: &[Labels],
    ) -> Result<RowFile, CommandError> {
        let error = |action| CommandError::file(action, path);
        let mut options = OpenOptions::new();
        let open = options.read(true).write(true).create(true).truncate(false);
        let file = open_file(open, path).map_err(error("open"))?;
        let mut rows = RowFile { path: path.to_owned(), file, format, rows: 0 };
        let header = rows.header(&labels[0]);
        let mut reader = BufReader::new(&rows.file);
        let (mut end, mut lines, mut line) = (0, 0, String::new());
        let header_lines = usize::from(header.is_some());
        while read_line(&mut reader, &mut line).map_err(error("read"))? && line.ends_with('\n') {
            let text = line.trim_end();
            let fits = match (&header, lines) {
                (Some(header), 0) => text == header,
                _ => labels
                    .get(lines - header_lines)
                    .is_some_and(|labels| text.starts_with(&rows.prefix(labels))),
            };
            if !fits {
                return Err(CommandError::Lab(LabError::OtherSweep {
                    path: path.to_owned(),
                    line: lines + 1,
                }));
            }
            lines += 1;
            end += line.len() as u64;
        }
        // Something else that has no end of line is not ours to cut off.
        if (lines == 0 && !line.is_empty()) || line.len() as u64 > LINE_BYTES_MAX {
            let line = lines + 1;
            return Err(CommandError::Lab(LabError::OtherSweep { path: path.to_owned(), line }));
        }
        rows.file.set_len(end).map_err(error("shorten"))?;
        rows.file.seek(SeekFrom::Start(end)).map_err(error("read"))?;
        rows.rows = lines.saturating_sub(header_lines);
        if lines == 0
            && let Some(header) = header
        {
            rows.file.write_all(format!("{header}\n").as_bytes()).map_err(error("write"))?;
        }
        Ok(rows)
    }

    /// The first line, which names the columns.
    pub(super) fn header(&self, labels: &Labels) -> Option<String> {
        let names: Vec<&str> = labels.iter().map(|(name, _)| *name).chain(RESULTS).collect();
        (self.format != ResultFormat::JsonLines).then(|| names.join(","))
    }

    /// How the row of a point begins.
    pub(super) fn prefix(&self, labels: &Labels) -> String {
        if self.format == ResultFormat::JsonLines {
            let object = object(labels.iter().map(|(name, text)| (*name, text.as_str())));
            let text = object.to_string();
            return text.trim_end_matches('}').to_owned() + ",";
        }
        labels.iter().map(|(_, text)| quoted(text) + ",").collect()
    }

    /// Writes the row of a point.
    pub fn write(&mut self, labels: &Labels, outcome: &Outcome) -> Result<(), CommandError> {
        let results = results(outcome);
        let mut row = self.prefix(labels);
        if self.format == ResultFormat::JsonLines {
            let object = object(RESULTS.into_iter().zip(results.iter().map(String::as_str)));
            row += object.to_string().trim_start_matches('{');
        } else {
            row += &results.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(",");
        }
        self.write_line(&row)
    }

    /// Writes a row as it is.
    pub(super) fn write_line(&mut self, row: &str) -> Result<(), CommandError> {
        self.rows += 1;
        let written = self.file.write_all(format!("{row}\n").as_bytes());
        written.map_err(CommandError::file("write", &self.path))
    }

    /// All rows of the file, each value by its name.
    pub fn read(&self) -> Result<Vec<Map<String, Value>>, CommandError> {
        let read = std::fs::read_to_string(&self.path);
        let text = read.map_err(CommandError::file("read", &self.path))?;
        if self.format == ResultFormat::JsonLines {
            return Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect());
        }
        let mut lines = text.lines();
        let names = fields(lines.next().unwrap_or_default());
        let row = |line: &str| {
            let values = names.iter().zip(fields(line));
            values.map(|(name, text)| (name.clone(), value(name, &text))).collect()
        };
        Ok(lines.map(row).collect())
    }
}

fn object<'a>(values: impl Iterator<Item = (&'static str, &'a str)>) -> Value {
    let values = values.map(|(name, text)| (name.to_owned(), value(name, text)));
    Value::Object(values.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_csv() {
        let texts = ["", "plain", "a,b", "\"", "say \"x\", y", "1.5"];
        let line = texts.map(quoted).join(",");
        assert_eq!(fields(&line), texts);
        assert_eq!(quoted("two\nlines"), "\"two lines\"");
    }
}
