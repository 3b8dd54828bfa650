//! What is lost, told before anything is given up: some of it on stderr, all of it in a file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use dcd_daemon::report::lost::LostReport;
use dcd_daemon::units_text::format_size;

use crate::error::CommandError;
use crate::output::count;

/// So many ranges are told on stderr.
const TOLD_MAX: usize = 16;

/// Tells what is lost. With a file, it is durable there afterwards: one range a line, its first
/// byte and its bytes.
pub fn tell(lost: &LostReport, file: Option<&Path>) -> Result<(), CommandError> {
    if let Some(path) = file {
        let mut text = String::from("# first byte, bytes\n");
        for (start, bytes) in &lost.ranges {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{start} {bytes}");
        }
        let written = File::create(path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(CommandError::file("write", path))?;
    }
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
