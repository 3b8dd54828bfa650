//! The bytes of a disk in pages that copies share until one of them writes.
//!
//! A crash point copies both disks. With shared groups of pages that costs a reference count for
//! each, and only what recovery writes is copied at all.

use std::rc::Rc;

/// Bytes in a page.
const PAGE: usize = 4096;
/// Pages in a group.
const GROUP: usize = 64;

type Group = [Option<Rc<[u8; PAGE]>>; GROUP];

/// The bytes of a disk. Pages that were never written are zero and take no room.
#[derive(Clone)]
pub struct Pages {
    /// Groups of pages: a copy of a disk costs a reference for each group, also of a large disk.
    groups: Vec<Option<Rc<Group>>>,
    len: usize,
}

impl Pages {
    /// `len` zero bytes.
    pub fn new(len: usize) -> Pages {
        Pages { groups: vec![None; len.div_ceil(PAGE * GROUP)], len }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn page(&self, index: usize) -> Option<&[u8; PAGE]> {
        self.groups[index / GROUP].as_ref()?[index % GROUP].as_deref()
    }

    fn page_mut(&mut self, index: usize) -> &mut Option<Rc<[u8; PAGE]>> {
        let group = &mut self.groups[index / GROUP];
        let group = group.get_or_insert_with(|| Rc::new([const { None }; GROUP]));
        &mut Rc::make_mut(group)[index % GROUP]
    }

    /// Copies bytes from `offset` on into `to`.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= self.len, "a read within the disk");
        let mut at = offset;
        let mut rest = to;
        while !rest.is_empty() {
            let within = at % PAGE;
            let (head, tail) = rest.split_at_mut((PAGE - within).min(rest.len()));
            match self.page(at / PAGE) {
                Some(page) => head.copy_from_slice(&page[within..within + head.len()]),
                None => head.fill(0),
            }
            at += head.len();
            rest = tail;
        }
    }

    /// Replaces bytes from `offset` on.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "a write within the disk");
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % PAGE;
            let (head, tail) = rest.split_at((PAGE - within).min(rest.len()));
            let slot = self.page_mut(at / PAGE);
            if head.len() == PAGE {
                // Whole pages need not be copied before they are replaced.
                match slot.as_mut().and_then(Rc::get_mut) {
                    Some(page) => page.copy_from_slice(head),
                    None => *slot = Some(Rc::new(head.try_into().expect("a page"))),
                }
            } else {
                let page = slot.get_or_insert_with(|| Rc::new([0; PAGE]));
                Rc::make_mut(page)[within..within + head.len()].copy_from_slice(head);
            }
            at += head.len();
            rest = tail;
        }
    }

    /// Cuts or lengthens the disk.
    pub fn resize(&mut self, len: usize) {
        if len < self.len {
            self.cut(len);
        }
        self.groups.resize(len.div_ceil(PAGE * GROUP), None);
        self.len = len;
    }

    /// Forgets whole pages behind `len`.
    fn cut(&mut self, len: usize) {
        let first = len.div_ceil(PAGE);
        for index in first..first.next_multiple_of(GROUP).min(self.len.div_ceil(PAGE)) {
            if self.page(index).is_some() {
                *self.page_mut(index) = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_until_written() {
        let mut first = Pages::new(10_000);
        first.write(4000, &[1; 5000]);
        let mut second = first.clone();
        second.write(4096, &[2; 4096]);
        second.write(9999, &[3]);
        let mut bytes = [0; 2];
        first.read(4095, &mut bytes);
        assert_eq!(bytes, [1, 1]);
        second.read(4095, &mut bytes);
        assert_eq!(bytes, [1, 2]);
        first.read(9998, &mut bytes);
        assert_eq!(bytes, [0, 0]);
    }

    #[test]
    fn what_is_cut_off_does_not_come_back() {
        let mut pages = Pages::new(12_288);
        pages.write(0, &[1; 12_288]);
        pages.resize(4096);
        pages.resize(12_288);
        let mut bytes = [7; 2];
        pages.read(4095, &mut bytes);
        assert_eq!(bytes, [1, 0]);
    }
}
