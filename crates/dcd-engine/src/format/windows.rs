//! The bytes of a disk that a share of it has: windows, which it has one behind the other as if
//! they were one piece. Mostly there is one; a share that grew where another lies behind it has
//! more ([`super::share_directory`]).

/// A part of a cache-disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub size_bytes: u64,
}

impl Window {
    /// The byte behind its last.
    pub fn end(&self) -> u64 {
        self.offset_bytes + self.size_bytes
    }
}

/// Windows of a share, in its own order, which need not be that of the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Windows {
    first: Window,
    further: Vec<Window>,
}

impl From<Window> for Windows {
    fn from(first: Window) -> Windows {
        Windows { first, further: Vec::new() }
    }
}

impl Windows {
    /// The one that it was made with.
    pub fn first(&self) -> Window {
        self.first
    }

    /// What came later.
    pub fn further(&self) -> &[Window] {
        &self.further
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Window> {
        std::iter::once(&self.first).chain(&self.further)
    }

    /// Size of the share.
    pub fn size_bytes(&self) -> u64 {
        self.iter().map(|window| window.size_bytes).sum()
    }

    /// The byte of the disk behind all of them.
    pub fn end(&self) -> u64 {
        self.iter().map(Window::end).max().unwrap_or(0)
    }

    /// The byte of the disk behind the first so many bytes.
    pub fn end_of(&self, size_bytes: u64) -> u64 {
        let (mut before, mut end) = (0, 0);
        for window in self.iter() {
            let used = size_bytes.saturating_sub(before).min(window.size_bytes);
            if used > 0 {
                end = end.max(window.offset_bytes + used);
            }
            before += window.size_bytes;
        }
        end
    }

    /// Where a byte of the share is on the disk, and how many lie in one piece from there on.
    /// `None`: it has no such byte.
    pub fn locate(&self, offset: u64) -> Option<(u64, u64)> {
        let mut before = 0;
        for window in self.iter() {
            let within = offset.checked_sub(before)?;
            if within < window.size_bytes {
                return Some((window.offset_bytes + within, window.size_bytes - within));
            }
            before += window.size_bytes;
        }
        None
    }

    /// What it has from this byte of the share on.
    pub fn behind(&self, offset: u64) -> Vec<Window> {
        let mut before = 0;
        let mut rest = Vec::new();
        for window in self.iter() {
            let skipped = offset.saturating_sub(before).min(window.size_bytes);
            let size_bytes = window.size_bytes - skipped;
            if size_bytes > 0 {
                rest.push(Window { offset_bytes: window.offset_bytes + skipped, size_bytes });
            }
            before += window.size_bytes;
        }
        rest
    }

    /// Its first bytes.
    ///
    /// # Panics
    /// If they are none, or more than it has.
    pub fn cut(&self, size_bytes: u64) -> Windows {
        assert!(size_bytes > 0 && size_bytes <= self.size_bytes(), "{size_bytes} of {self:?}");
        let mut left = size_bytes;
        let mut part = |window: &Window| {
            let size_bytes = window.size_bytes.min(left);
            left -= size_bytes;
            (size_bytes > 0).then_some(Window { size_bytes, ..*window })
        };
        let first = part(&self.first).expect("it is not empty");
        Windows { first, further: self.further.iter().map_while(part).collect() }
    }

    /// Adds a window behind the others.
    pub fn add(&mut self, window: Window) {
        let last = self.further.last_mut().unwrap_or(&mut self.first);
        match last.end() == window.offset_bytes {
            true => last.size_bytes += window.size_bytes,
            false => self.further.push(window),
        }
    }

    /// Adds one as it is: what was written down is not put together anew.
    pub(crate) fn push(&mut self, window: Window) {
        self.further.push(window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(offset_bytes: u64, size_bytes: u64) -> Window {
        Window { offset_bytes, size_bytes }
    }

    #[test]
    fn bytes_are_found_in_the_order_of_the_share() {
        let mut it = Windows::from(window(50, 10));
        it.add(window(60, 5));
        assert_eq!(it, window(50, 15).into(), "it grew in place");
        it.add(window(10, 20));
        assert_eq!((it.size_bytes(), it.end(), it.iter().count()), (35, 65, 2));
        let places = [0, 14, 15, 34].map(|offset| it.locate(offset));
        assert_eq!(places, [Some((50, 15)), Some((64, 1)), Some((10, 20)), Some((29, 1))]);
        assert_eq!([35, u64::MAX].map(|offset| it.locate(offset)), [None; 2]);
        assert_eq!([0, 1, 16, 35].map(|size| it.end_of(size)), [0, 51, 65, 65]);
        assert_eq!(it.behind(0), [window(50, 15), window(10, 20)]);
        assert_eq!(it.behind(20), [window(15, 15)]);
        assert_eq!((it.behind(35), it.behind(u64::MAX)), (vec![], vec![]));
        assert_eq!(it.cut(35), it);
        assert_eq!(it.cut(15), window(50, 15).into());
        assert_eq!(it.cut(3), window(50, 3).into());
        let shorter = it.cut(16);
        assert_eq!(
            (shorter.further(), shorter.behind(15)),
            (&[window(10, 1)][..], vec![window(10, 1)])
        );
        assert_eq!(shorter.locate(16), None);
    }

    #[test]
    #[should_panic(expected = "0 of")]
    fn nothing_is_no_share() {
        let _ = Windows::from(window(50, 10)).cut(0);
    }
}
