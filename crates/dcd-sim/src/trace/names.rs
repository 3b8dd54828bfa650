//! Disks that a trace calls by name, numbered in the order of their appearance.

use std::collections::HashMap;
use std::rc::Rc;

use super::error::TraceError;
use super::row::Row;

/// Most disks of a trace.
const NAMES_MAX: usize = 65_536;
/// All their names together.
const BYTES_MAX: usize = 8 << 20;

/// Names of disks.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<Rc<str>, u32>,
    names: Vec<Rc<str>>,
    bytes: usize,
}

impl Names {
    /// The number of the disk that a field names.
    pub fn number(&mut self, name: &str, row: &Row<'_>, field: usize) -> Result<u32, TraceError> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        self.bytes += name.len();
        if self.names.len() == NAMES_MAX || self.bytes > BYTES_MAX {
            let problem = format!(
                "expected at most {NAMES_MAX} files or disks, with names of 8 MiB, found more"
            );
            return Err(row.problem(field, "file", problem));
        }
        let (number, name) = (self.names.len() as u32, Rc::from(name));
        self.numbers.insert(Rc::clone(&name), number);
        self.names.push(name);
        Ok(number)
    }

    /// The name of a disk.
    pub fn name(&self, number: u32) -> Option<String> {
        self.names.get(number as usize).map(|name| name.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use crate::trace::TraceFormat;
    use crate::trace::reader_tests::{read, refused};

    fn log(files: u32, name_bytes: usize) -> String {
        let mut text = "fio version 3 iolog\n".to_owned();
        for file in 0..files {
            writeln!(text, "{file} {}{file:05} read 0 512", "x".repeat(name_bytes - 5)).unwrap();
        }
        text
    }

    #[test]
    fn there_are_so_many_names_and_no_more() {
        let fio = Some(TraceFormat::Fio);
        assert_eq!(read(&log(65_536, 6), fio).last().unwrap().device, 65_535);
        assert!(refused(&log(65_537, 6), fio).contains("t:65538:7: file: expected at most 65536"));
        let long = refused(&log(200, 60_000), fio);
        assert!(long.contains("with names of 8 MiB") && long.len() < 200, "{long}");
    }
}
