//! `dcd inspect --file`: where a file lies that is on a file system on the device of a running dcd.

use std::path::Path;

use dcd_daemon::units_text::format_size;
use dcd_engine::units::BLOCK_SIZE;
use serde_json::{Value, json};

use crate::command::hint::{Part, place_parts};
use crate::daemons;
use crate::error::CommandError;
use crate::file_blocks::{FileBlocks, blocks_of, file_system_start, open};
use crate::output::{Align, Paint, Table, count};
use crate::stdout::{print, print_json};
use crate::volume_client::VolumeClient;

pub fn run(
    path: &Path,
    control: &Path,
    offset: Option<u64>,
    as_json: bool,
) -> Result<(), CommandError> {
    let status = daemons::connect(control)?.status()?;
    let start = file_system_start(path, status.volume_bytes, offset)?;
    let file = open(path)?.ok_or_else(|| CommandError::NotAFile { path: path.to_owned() })?;
    let FileBlocks { ranges, is_delayed } = blocks_of(path, &file, &start, false)?;
    let mut volume = match status.volume {
        Some(_) => Some(VolumeClient::connect(control)?),
        None => None,
    };
    let mut pieces: Vec<(u64, u64, Option<Part>)> = Vec::new();
    for range in &ranges {
        match &mut volume {
            None => pieces.push((range.0, range.1, None)),
            Some(volume) => {
                for (block, part) in place_parts(volume, *range)? {
                    pieces.push((block, part.bytes / BLOCK_SIZE, Some(part)));
                }
            }
        }
    }
    let bytes: u64 = ranges.iter().map(|(_, blocks)| blocks * BLOCK_SIZE).sum();
    if as_json {
        let json = |(block, blocks, part): &(u64, u64, Option<Part>)| {
            let mut value = part.as_ref().map_or_else(|| json!({}), Part::json);
            value["block"] = json!(block);
            value["blocks"] = json!(blocks);
            value["bytes"] = json!(blocks * BLOCK_SIZE);
            value
        };
        return print_json(&json!({
            "file": path.display().to_string(),
            "bytes": bytes,
            "file_system_offset": start.offset_bytes,
            "found": start.way,
            "not_yet_allocated": is_delayed,
            "pieces": pieces.iter().map(json).collect::<Vec<Value>>(),
        }));
    }
    let mut table = Table::new(&[
        ("block", Align::Right),
        ("size", Align::Right),
        ("level", Align::Left),
        ("set", Align::Right),
        ("attributes", Align::Left),
    ]);
    for (block, blocks, part) in &pieces {
        let of = |word: fn(&Part) -> String| part.as_ref().map_or_else(String::new, word);
        table.row(vec![
            block.to_string(),
            format_size(blocks * BLOCK_SIZE),
            of(Part::level_words),
            of(|part| part.set.map_or_else(String::new, |set| set.to_string())),
            of(|part| part.attributes.to_string()),
        ]);
    }
    let later = if is_delayed { "; more is not written back yet and has no blocks" } else { "" };
    print(&format!(
        "{}{}: {} in {}{later}\nthe file system begins at byte {}: {}\n",
        table.render(Paint::for_stdout()),
        path.display(),
        format_size(bytes),
        count(ranges.len() as u64, "piece"),
        start.offset_bytes,
        start.way
    ))
}
