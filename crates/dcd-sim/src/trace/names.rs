//! Disks that a trace calls by name, numbered in the order of their appearance.

use std::collections::HashMap;

use super::error::TraceError;
use super::row::Row;

/// Most disks of a trace.
const NAMES_MAX: usize = 65_536;
/// Longest name: Linux's are of at most 32 characters, those of files of 4096.
const NAME_BYTES_MAX: usize = 4096;

/// Names of disks.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<String, u32>,
}

impl Names {
    /// The number of the disk that a field names.
    pub fn number(&mut self, name: &str, row: &Row<'_>, field: usize) -> Result<u32, TraceError> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let number = self.numbers.len();
        if number == NAMES_MAX {
            return Err(row.problem(
                field,
                "file",
                format!("more than {NAMES_MAX} files or disks"),
            ));
        }
        if name.len() > NAME_BYTES_MAX {
            let problem = format!("a name of more than {NAME_BYTES_MAX} bytes");
            return Err(row.problem(field, "file", problem));
        }
        self.numbers.insert(name.to_owned(), number as u32);
        Ok(number as u32)
    }

    /// The name of a disk.
    pub fn name(&self, number: u32) -> Option<String> {
        let found = self.numbers.iter().find(|(_, other)| **other == number);
        found.map(|(name, _)| name.clone())
    }
}
