//! Flushes of files that go through the page cache: one at a time.
//!
//! Writing back happens after the write has ended, and Linux tells of an error there once for each
//! open file (errseq). Of two flushes that overlap, one may be told of it and the other succeed,
//! although what that one was for is lost as well; so may one that is asked for before the first
//! has been heard.
//!
//! ```text
//! under way     1               those that share its outcome: nobody, or what had waited together
//! waiting       2 3 4           asked for since: the next flush is for all of them
//! 1 succeeds    2 is submitted, 3 and 4 end as it does
//! 1 fails       2, 3 and 4 fail as well: what they are for may be what was lost
//! ```

use std::rc::Rc;

use crate::device::device_file::DeviceFile;

/// All of a ring. Operations go by their places in its slab.
#[derive(Default)]
pub(super) struct Flushes(Vec<OfFile>);

struct OfFile {
    file: Rc<DeviceFile>,
    /// The first is the one that the kernel has.
    under_way: Vec<u32>,
    waiting: Vec<u32>,
}

/// What follows from the end of a flush.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Ended {
    /// These have ended in the same way.
    pub(super) alike: Vec<u32>,
    /// This one is to be submitted.
    pub(super) next: Option<u32>,
}

impl Flushes {
    /// Whether a new flush is to be submitted now. If not, [`Flushes::ended`] will say.
    pub(super) fn may_begin(&mut self, file: &Rc<DeviceFile>, index: u32) -> bool {
        if file.is_direct {
            return true;
        }
        match self.0.iter_mut().find(|known| Rc::ptr_eq(&known.file, file)) {
            Some(known) => {
                known.waiting.push(index);
                false
            }
            None => {
                let file = file.clone();
                self.0.push(OfFile { file, under_way: vec![index], waiting: Vec::new() });
                true
            }
        }
    }

    /// A flush that was submitted, or that ended like one, has come to its end.
    pub(super) fn ended(&mut self, index: u32, is_ok: bool) -> Ended {
        let is_leader = |known: &OfFile| known.under_way.first() == Some(&index);
        let Some(at) = self.0.iter().position(is_leader) else { return Ended::default() };
        let known = &mut self.0[at];
        let mut alike = known.under_way.split_off(1);
        if !is_ok {
            alike.append(&mut known.waiting);
        }
        if known.waiting.is_empty() {
            self.0.swap_remove(at);
            return Ended { alike, next: None };
        }
        known.under_way = std::mem::take(&mut known.waiting);
        Ended { alike, next: known.under_way.first().copied() }
    }

    /// At the end of the ring: those that the kernel has never seen.
    pub(super) fn give_up(&mut self) -> Vec<u32> {
        let files = self.0.drain(..);
        files.flat_map(|known| known.under_way.into_iter().skip(1).chain(known.waiting)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str) -> Rc<DeviceFile> {
        let path = std::env::temp_dir().join(format!("dcd-flushes-{name}-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(8192).unwrap();
        let mut file = DeviceFile::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.is_direct = name == "direct";
        Rc::new(file)
    }

    #[test]
    fn those_that_wait_share_the_next_one() {
        let (file, other, direct) = (disk("one"), disk("other"), disk("direct"));
        let mut flushes = Flushes::default();
        assert!(flushes.may_begin(&file, 1) && !flushes.may_begin(&file, 2));
        assert!(flushes.may_begin(&other, 3) && !flushes.may_begin(&file, 4));
        assert!(flushes.may_begin(&direct, 5) && flushes.may_begin(&direct, 6));
        assert_eq!(flushes.ended(1, true), Ended { alike: vec![], next: Some(2) });
        assert!(!flushes.may_begin(&file, 7));
        assert_eq!(flushes.ended(2, true), Ended { alike: vec![4], next: Some(7) });
        for index in [4, 3, 5, 6, 7] {
            assert_eq!(flushes.ended(index, true), Ended::default());
        }
        assert!(flushes.may_begin(&file, 8) && flushes.may_begin(&other, 9));
        assert!(!flushes.may_begin(&file, 10) && flushes.give_up() == [10]);
    }

    #[test]
    fn a_failure_is_that_of_all_who_asked_before_it_was_heard() {
        let file = disk("fails");
        let mut flushes = Flushes::default();
        assert!(flushes.may_begin(&file, 1) && !flushes.may_begin(&file, 2));
        assert_eq!(flushes.ended(1, true).next, Some(2));
        assert!(!flushes.may_begin(&file, 3) && !flushes.may_begin(&file, 4));
        assert_eq!(flushes.ended(2, false), Ended { alike: vec![3, 4], next: None });
        assert_eq!(flushes.ended(3, false), Ended::default());
        assert!(flushes.may_begin(&file, 5));
    }
}
