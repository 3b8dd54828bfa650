//! `dcd inspect nvram`: shows what is in a memory in front of the log. Writes nothing.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use dcd_engine::format::nvram::{NVRAM_BYTES_MAX, NVRAM_HEAD_OFFSETS};
use dcd_engine::nvram::durable::NvramPicture;
use dcd_engine::units::BLOCK_SIZE;
use serde_json::json;

use crate::error::CommandError;
use crate::output::{Colour, Paint, count};
use crate::stdout::{print, print_json};

/// Ranges that are listed in words.
const RANGES_LISTED_MAX: usize = 100;

/// Does it.
pub fn run(path: &Path, is_json: bool) -> Result<(), CommandError> {
    let failed =
        |action| move |source| CommandError::File { action, path: path.to_owned(), source };
    let file = File::open(path).map_err(failed("open"))?;
    let mut bytes = Vec::new();
    file.take(NVRAM_BYTES_MAX).read_to_end(&mut bytes).map_err(failed("read"))?;
    let picture = NvramPicture::of(&bytes)
        .map_err(|problem| CommandError::NoNvram { path: path.to_owned(), problem })?;
    let heads = picture.heads.iter().zip(NVRAM_HEAD_OFFSETS).map(|(head, offset)| match head {
        Ok(head) => json!({
            "offset": offset,
            "cache": head.cache.to_string(),
            "id": head.identity.id.to_string(),
            "generation": head.identity.generation,
            "slots": head.slots,
        }),
        Err(error) => json!({ "offset": offset, "error": error.to_string() }),
    });
    let heads: Vec<_> = heads.collect();
    let blocks: u64 = picture.ranges.iter().map(|range| range.blocks).sum();
    if is_json {
        let ranges = picture.ranges.iter().map(|range| [range.start.0, range.blocks]);
        return print_json(&json!({
            "heads": heads,
            "commit_words": picture.commits,
            "blocks": blocks,
            "ranges": ranges.collect::<Vec<_>>(),
            "damaged": picture.damaged.iter().map(|block| block.0).collect::<Vec<_>>(),
            "uncommitted_slots": picture.uncommitted_slots,
            "unnamed_slots": picture.unnamed_slots,
        }));
    }
    let paint = Paint::for_stdout();
    let mut text = String::new();
    for (number, head) in heads.iter().enumerate() {
        text += &format!("head {number}         {head}\n");
    }
    let commits = picture
        .commits
        .map(|commit| commit.map_or_else(|| "damaged".to_owned(), |sequence| sequence.to_string()));
    text += &format!("commit words   {}\n", commits.join(", "));
    text += &format!(
        "holds          {} of {BLOCK_SIZE} bytes, {} not committed, {} that cannot be read\n",
        count(blocks, "block"),
        picture.uncommitted_slots,
        picture.unnamed_slots
    );
    for block in &picture.damaged {
        text += &format!("{}        block {}\n", paint.paint(Colour::Bad, "damaged"), block.0);
    }
    for range in picture.ranges.iter().take(RANGES_LISTED_MAX) {
        text += &format!("  {} + {}\n", range.start.0, range.blocks);
    }
    if let Some(more) = picture.ranges.len().checked_sub(RANGES_LISTED_MAX).filter(|n| *n > 0) {
        text += &format!("  and {} (--json lists all)\n", count(more as u64, "range"));
    }
    print(&text)
}
