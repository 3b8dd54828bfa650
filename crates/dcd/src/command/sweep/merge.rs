//! The rows of all shards of a sweep together.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use dcd_study::sweep::Labels;

use super::rows::{LINE_BYTES_MAX, RowFile, open_file, read_line};
use crate::error::CommandError;
use crate::error::lab::LabError;

/// Puts the rows of all shards into a new file, as one sweep writes them. `labels` are those of all
/// rows, in order.
///
/// # Errors
/// If a row is missing, or there twice, or of another sweep: nothing is written then.
pub fn merge(parts: &[PathBuf], to: &mut RowFile, labels: &[Labels]) -> Result<(), CommandError> {
    let places: BTreeMap<String, usize> =
        labels.iter().enumerate().map(|(row, labels)| (to.prefix(labels), row)).collect();
    let mut found: Vec<Option<(String, &Path)>> = vec![None; labels.len()];
    for part in parts {
        let error = || CommandError::file("read", part);
        let file = open_file(OpenOptions::new().read(true), part).map_err(error())?;
        let (mut reader, mut line) = (BufReader::new(file), String::new());
        let header = to.header(&labels[0]);
        let mut number = 0;
        while read_line(&mut reader, &mut line).map_err(error())? {
            number += 1;
            let is_longer = line.len() as u64 > LINE_BYTES_MAX;
            // The last row of one that was interrupted.
            let Some(line) = line.strip_suffix('\n').or(is_longer.then_some(&line)) else { break };
            if number == 1 && header.as_deref() == Some(line) {
                continue;
            }
            // Of all that are not behind it in order only the last can be how it begins.
            let place = places.range(..=line.to_owned()).next_back();
            let place = place.filter(|(prefix, _)| line.starts_with(*prefix) && !is_longer);
            let Some((_, row)) = place else {
                let (path, line) = (part.clone(), number);
                return Err(CommandError::Lab(LabError::OtherSweep { path, line }));
            };
            if let Some((_, first)) = &found[*row] {
                return Err(CommandError::Lab(LabError::RowTwice {
                    row: described(&labels[*row]),
                    first: first.to_path_buf(),
                    second: part.clone(),
                }));
            }
            found[*row] = Some((line.to_owned(), part));
        }
    }
    let missing: Vec<usize> = (0..labels.len()).filter(|row| found[*row].is_none()).collect();
    if let Some(first) = missing.first() {
        return Err(CommandError::Lab(LabError::RowsMissing {
            missing: missing.len(),
            of: labels.len(),
            first: described(&labels[*first]),
        }));
    }
    found.into_iter().flatten().try_for_each(|(line, _)| to.write_line(&line))
}

fn described(labels: &Labels) -> String {
    let named = labels.iter().filter(|(_, value)| !value.is_empty());
    named.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}
