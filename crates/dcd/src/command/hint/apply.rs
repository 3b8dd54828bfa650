//! Attributes of a file's extents: what is to be changed, so that a file that is told again changes
//! nothing.
//!
//! A file system allocates smaller pieces than an extent, so an extent may hold parts of several
//! files:
//!
//! ```text
//! extent      |    0    |    1    |    2    |
//! main.c      ........cccccccccccccc........
//! main.o      oooooooo..............oooooooo   shares 0 and 2 with main.c, which 1 belongs to alone
//! ```

use dcd_engine::volume::attributes::{AttributeChange, Attributes};

use crate::error::CommandError;
use crate::file_blocks::FileBlocks;
use crate::volume_client::VolumeClient;

/// What becomes of an extent that other files may share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// The same as of all others: somebody wants it so.
    Replace,
    /// It keeps what it is, and gets what the file is, unless that would make it less safe: files
    /// that share an extent do not take it from each other.
    Share,
}

/// Attributes that files are given and that are replaced.
const OF_FILES: Attributes = Attributes::INHERITED;
/// What is not to become temporary because a temporary file has a part in it.
const SAFE: [Attributes; 2] = [Attributes::IMPORTANT, Attributes::METADATA];

/// First block and number of blocks.
type BlockRange = (u64, u64);

/// What an extent is to become; `None`: it stays.
fn wanted(
    found: Attributes,
    said: Attributes,
    manner: Manner,
    is_shared: bool,
) -> Option<AttributeChange> {
    let change = match (manner, is_shared) {
        (Manner::Share, true) => {
            let is_safe = SAFE.iter().any(|safe| found.contains(*safe));
            if is_safe && said.contains(Attributes::TEMPORARY) {
                return None;
            }
            AttributeChange { set: said, clear: Attributes::NONE }
        }
        // What the structure of the file system put there stays, unless a person clears all.
        (Manner::Replace, _) if said.is_empty() => {
            AttributeChange { set: said, clear: OF_FILES.or(Attributes::METADATA) }
        }
        _ => AttributeChange { set: said, clear: OF_FILES.without(said) },
    };
    (found.changed(change) != found).then_some(change)
}

/// The extents that a range touches: those that it fills, and those at its ends that it does not.
fn cut(range: BlockRange, extent: u64) -> (Option<BlockRange>, Vec<BlockRange>) {
    let (start, end) = (range.0, range.0 + range.1);
    let (first, last) = (start.div_ceil(extent) * extent, end / extent * extent);
    if first >= last {
        // It fills none; it may lie on the border of two.
        return (None, vec![range]);
    }
    let head = (start < first).then(|| (start, first - start));
    let tail = (last < end).then(|| (last, end - last));
    (Some((first, last - first)), head.into_iter().chain(tail).collect())
}

/// What was said of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Said {
    /// Extents of it on the volume.
    pub extents: u64,
    /// Those that were something else before.
    pub changed: u64,
}

/// Gives the blocks of a file these attributes.
pub fn apply(
    volume: &mut VolumeClient,
    blocks: &FileBlocks,
    said: Attributes,
    manner: Manner,
) -> Result<Said, CommandError> {
    let extent = volume.extent_blocks();
    let (mut whole, mut shared) = (Vec::new(), Vec::new());
    for range in &blocks.ranges {
        let (filled, ends) = cut(*range, extent);
        whole.extend(filled);
        shared.extend(ends);
    }
    let mut changes: Vec<(AttributeChange, Vec<BlockRange>)> = Vec::new();
    let mut told = Said::default();
    for (ranges, is_shared) in [(whole, false), (shared, true)] {
        for place in volume.places(&ranges)? {
            told.extents += place.blocks.div_ceil(extent);
            let Some(change) = wanted(place.attributes, said, manner, is_shared) else { continue };
            let range = (place.block, place.blocks);
            match changes.iter_mut().find(|(known, _)| *known == change) {
                Some((_, ranges)) => ranges.push(range),
                None => changes.push((change, vec![range])),
            }
        }
    }
    for (change, ranges) in changes {
        told.changed += ranges.iter().map(|(_, blocks)| blocks.div_ceil(extent)).sum::<u64>();
        volume.set_attributes(&ranges, change.set, change.clear)?;
    }
    Ok(told)
}

/// The same without doing it, where somebody else does.
pub fn would_change(
    volume: &mut VolumeClient,
    blocks: &FileBlocks,
    said: Attributes,
) -> Result<Said, CommandError> {
    let extent = volume.extent_blocks();
    let mut told = Said::default();
    for place in volume.places(&blocks.ranges)? {
        let extents = place.blocks.div_ceil(extent);
        told.extents += extents;
        if wanted(place.attributes, said, Manner::Share, false).is_some() {
            told.changed += extents;
        }
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Attributes {
        words.parse().unwrap()
    }

    fn after(found: &str, said: &str, manner: Manner, is_shared: bool) -> String {
        let found = of(found);
        wanted(found, of(said), manner, is_shared)
            .map_or("same".into(), |change| found.changed(change).to_string())
    }

    #[test]
    fn an_extent_of_one_file_is_what_the_file_is() {
        use Manner::{Replace, Share};
        for manner in [Share, Replace] {
            assert_eq!(after("important,hot", "temporary", manner, false), "temporary");
            assert_eq!(after("temporary", "temporary", manner, false), "same");
        }
        assert_eq!(after("temporary", "none", Share, false), "none");
        assert_eq!(after("metadata,hot", "none", Share, false), "metadata", "not of files");
        assert_eq!(after("metadata,hot", "none", Replace, false), "none");
        assert_eq!(after("none", "none", Share, false), "same");
    }

    #[test]
    fn files_that_share_an_extent_do_not_take_it_from_each_other() {
        use Manner::{Replace, Share};
        assert_eq!(after("important", "temporary", Share, true), "same");
        assert_eq!(after("metadata", "temporary", Share, true), "same");
        assert_eq!(after("temporary", "important", Share, true), "important");
        assert_eq!(after("hot", "temporary", Share, true), "hot,temporary");
        assert_eq!(after("important", "none", Share, true), "same");
        assert_eq!(after("important", "temporary", Replace, true), "temporary");
    }

    #[test]
    fn ranges_are_cut_at_extents() {
        assert_eq!(cut((8, 16), 8), (Some((8, 16)), vec![]));
        assert_eq!(cut((6, 20), 8), (Some((8, 16)), vec![(6, 2), (24, 2)]));
        assert_eq!(cut((9, 6), 8), (None, vec![(9, 6)]));
        assert_eq!(cut((4, 8), 8), (None, vec![(4, 8)]));
    }
}
