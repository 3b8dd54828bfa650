//! `dcd sequence show`: the blocks of a sequence, in their order.

use dcd_daemon::units_text::format_size;
use dcd_engine::units::LINE_SIZE;
use dcd_protocol::sequences::SequenceCommand;
use serde_json::{Value, json};

use super::{Control, ask, parse};
use crate::error::CommandError;
use crate::stdout::{print, print_json};

/// What it saves on a modelled disk.
pub struct Saved {
    /// For people.
    pub text: String,
    /// Totals of the reads without it.
    pub without: Value,
    /// And with it.
    pub with: Value,
}

/// Its lines of 4 KiB, in order; 1: copied.
pub fn lines(control: &Control, name: &str) -> Result<Vec<(u64, u8)>, CommandError> {
    let answer = ask(control, SequenceCommand::Lines { name: name.to_owned() })?;
    parse(control, &answer["lines"])
}

/// Prints them.
pub fn show(
    name: &str,
    lines: &[(u64, u8)],
    saved: Option<Saved>,
    as_json: bool,
) -> Result<(), CommandError> {
    if as_json {
        let mut json = json!({ "sequence": name, "lines": lines });
        if let Some(Saved { without, with, .. }) = saved {
            json["without"] = without;
            json["with"] = with;
        }
        return print_json(&json);
    }
    let mut text = String::new();
    for run in lines
        .chunk_by(|(a, is_copied), (b, next)| a.checked_add(1) == Some(*b) && is_copied == next)
    {
        let (first, is_copied) = run[0];
        let note = if is_copied == 1 { "" } else { "  not copied" };
        let length = run.len() as u64 * LINE_SIZE;
        text.push_str(&format!(
            "{:>15} {:>7}{note}\n",
            first.saturating_mul(LINE_SIZE),
            format_size(length)
        ));
    }
    text.push_str(&saved.map_or(String::new(), |saved| saved.text));
    print(&text)
}
