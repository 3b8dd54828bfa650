//! How large files become, by their names: what files of the same ending became is what a new one
//! will. Its blocks are allocated ahead, so that a file that grows by small pieces beside others (a
//! log, a mailbox, a download) lies in one piece all the same. The paper names it as future work
//! (DHIS section 8); its allocation is greedy (section 5.3).
//!
//! Nothing depends on what is thought here but where blocks lie. It is learnt anew with each mount.

use std::collections::{BTreeMap, VecDeque};

use crate::allocate::Growing;

/// Files of an ending that say something.
const FILES_MIN: usize = 4;
/// Of an ending the files that were closed last are known.
const FILES_MAX: usize = 32;
/// Endings that are known.
const ENDINGS_MAX: usize = 256;
const ENDING_BYTES_MAX: usize = 32;
/// Files that are known by name.
const NAMED_MAX: usize = 4096;
/// Smaller files are mostly written at once.
const BLOCKS_MIN: u64 = 8;

/// What is known.
#[derive(Default)]
pub(crate) struct Growth {
    endings: BTreeMap<Vec<u8>, Ending>,
    files: BTreeMap<u64, Named>,
    /// Counts what is done.
    clock: u64,
}

struct Ending {
    /// Files, and how many blocks they had when they were closed.
    files: VecDeque<(u64, u64)>,
    /// When one was closed last.
    used: u64,
}

struct Named {
    ending: Vec<u8>,
    /// Since it got that name.
    written_blocks: Option<u64>,
}

/// What is behind the last dot; all of a name that has none. Digits count as one: the number of a
/// log or of a part says nothing.
fn ending(name: &[u8]) -> Option<Vec<u8>> {
    let from = name.iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0);
    let behind = from.map_or(name, |at| &name[at + 1..]);
    let mut ending: Vec<u8> = behind.iter().map(|byte| byte.to_ascii_lowercase()).collect();
    ending.iter_mut().filter(|byte| byte.is_ascii_digit()).for_each(|byte| *byte = b'0');
    ending.dedup_by(|a, b| *a == b'0' && *b == b'0');
    (1..=ENDING_BYTES_MAX).contains(&ending.len()).then_some(ending)
}

impl Growth {
    /// The file is called so.
    pub(crate) fn named(&mut self, file: u64, name: &[u8]) {
        let Some(ending) = ending(name) else { return };
        if self.files.get(&file).is_some_and(|named| named.ending == ending) {
            return;
        }
        if self.files.len() >= NAMED_MAX {
            self.files.pop_first();
        }
        self.files.insert(file, Named { ending, written_blocks: None });
    }

    /// It was written to, and has so many blocks.
    pub(crate) fn written(&mut self, file: u64, blocks: u64) {
        if let Some(named) = self.files.get_mut(&file) {
            named.written_blocks = Some(blocks);
        }
    }

    /// Somebody is done with it.
    pub(crate) fn closed(&mut self, file: u64) {
        let Some(named) = self.files.get_mut(&file) else { return };
        let Some(blocks) = named.written_blocks.take() else { return };
        self.clock += 1;
        if !self.endings.contains_key(&named.ending) && self.endings.len() >= ENDINGS_MAX {
            let oldest = self.endings.iter().min_by_key(|(_, ending)| ending.used);
            let oldest = oldest.map(|(ending, _)| ending.clone()).expect("there are some");
            self.endings.remove(&oldest);
        }
        let known = self.endings.entry(named.ending.clone());
        let known = known.or_insert_with(|| Ending { files: VecDeque::new(), used: 0 });
        known.used = self.clock;
        known.files.retain(|(other, _)| *other != file);
        known.files.push_back((file, blocks));
        if known.files.len() > FILES_MAX {
            known.files.pop_front();
        }
    }

    /// It is gone. What it became counts.
    pub(crate) fn gone(&mut self, file: u64) {
        self.closed(file);
        self.files.remove(&file);
    }

    /// How many blocks more the file will have than these; the median of the others counts.
    pub(crate) fn growing(&self, file: u64, blocks: u64) -> Option<Growing> {
        let known = self.endings.get(&self.files.get(&file)?.ending)?;
        let others = known.files.iter().filter(|(other, _)| *other != file);
        let mut sizes: Vec<u64> = others.map(|(_, blocks)| *blocks).collect();
        if sizes.len() < FILES_MIN {
            return None;
        }
        sizes.sort_unstable();
        let median = sizes[(sizes.len() - 1) / 2];
        let more = median.saturating_sub(blocks);
        (median >= BLOCKS_MIN && more > 0).then_some(Growing { file, blocks: more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(growth: &mut Growth, file: u64, name: &str, blocks: u64) {
        growth.named(file, name.as_bytes());
        growth.written(file, blocks);
        growth.closed(file);
    }

    #[test]
    fn a_file_becomes_what_the_others_became() {
        let mut growth = Growth::default();
        for file in 1..=3 {
            closed(&mut growth, file, "a.log", 100);
        }
        growth.named(9, b"new.LOG");
        assert!(growth.growing(9, 0).is_none(), "three say nothing");
        closed(&mut growth, 4, "b.log", 2);
        let more = |growth: &Growth, blocks| growth.growing(9, blocks).map(|it| it.blocks);
        assert_eq!((more(&growth, 0), more(&growth, 60)), (Some(100), Some(40)));
        assert_eq!((more(&growth, 100), more(&growth, 500)), (None, None));
        // What is only read says nothing, and a file counts once, as it is now.
        growth.closed(1);
        for file in 1..=3 {
            closed(&mut growth, file, "a.log", 4);
        }
        assert_eq!(more(&growth, 0), None, "small");
        growth.named(9, b"new.txt");
        assert!(growth.growing(9, 0).is_none(), "another ending");
        growth.gone(9);
        assert!(growth.growing(9, 0).is_none());
    }

    #[test]
    fn endings() {
        let found = |name: &str| ending(name.as_bytes()).map(|it| String::from_utf8(it).unwrap());
        assert_eq!(found("mail.2026.log").as_deref(), Some("log"));
        assert_eq!((found("log.17"), found("log.3")), (Some("0".into()), Some("0".into())));
        assert_eq!(
            (found("Makefile"), found(".bashrc")),
            (Some("makefile".into()), Some(".bashrc".into()))
        );
        assert_eq!((found("a."), found(&"x".repeat(33))), (None, None));
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut growth = Growth::default();
        for file in 1..=20_000 {
            closed(&mut growth, file, &format!("f.{}", "abcdefghij".repeat(2) + &letters(file)), 9);
        }
        assert_eq!((growth.files.len(), growth.endings.len()), (NAMED_MAX, ENDINGS_MAX));
        for file in 1..=100 {
            closed(&mut growth, file, "f.same", 9);
        }
        assert_eq!(growth.endings[b"same".as_slice()].files.len(), FILES_MAX);
    }

    fn letters(number: u64) -> String {
        number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect()
    }
}
