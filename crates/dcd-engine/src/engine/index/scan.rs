//! The run from its beginning to its end, some pieces ahead: for what walks the whole index.

use std::collections::VecDeque;

use super::TRIES_MAX;
use crate::buffer::Buffer;
use crate::engine::{Disk, Engine, Purpose};
use crate::format::checkpoint::LiveSlot;
use crate::io::IoError;
use crate::log::index_run::{IndexPage, IndexRun};
use crate::log::lookup_table::{LookupTable, Walker};
use crate::units::LINE_SIZE;

/// Pieces that were read or are on their way, and not taken yet.
const PIECES_AT_ONCE: usize = 4;

/// A read of a piece.
#[derive(Clone, Copy)]
pub(in crate::engine) struct ScanPiece {
    walker: Walker,
    scan: u64,
    first: IndexPage,
    pages: u64,
    tries: u32,
}

/// How far it is.
pub(in crate::engine) struct RunScan {
    number: u64,
    /// Pages from this one on were not asked for.
    unasked: IndexPage,
    end: IndexPage,
    /// In order: the first page of each, and its bytes, if they are there.
    pieces: VecDeque<(IndexPage, Option<Buffer>)>,
    /// Pages of the first that were taken.
    taken: u64,
    /// Of the page that was taken last.
    items: VecDeque<LiveSlot>,
}

/// What comes next.
pub(in crate::engine) enum Next {
    Item(LiveSlot),
    /// It is on its way.
    Waits,
    /// There is no more.
    Over,
}

impl RunScan {
    /// The next item; it stays the next.
    pub(in crate::engine) fn peek(&mut self, run: Option<&IndexRun>) -> Next {
        while self.items.is_empty() {
            let Some((first, bytes)) = self.pieces.front() else {
                return match self.unasked < self.end {
                    true => Next::Waits,
                    false => Next::Over,
                };
            };
            let (Some(bytes), Some(run)) = (bytes, run) else { return Next::Waits };
            let at = (self.taken * LINE_SIZE) as usize;
            let page = &bytes.bytes()[at..at + LINE_SIZE as usize];
            self.items.extend(run.items_of(IndexPage(first.0 + self.taken), page));
            self.taken += 1;
            if self.taken * LINE_SIZE == bytes.len() as u64 {
                self.pieces.pop_front();
                self.taken = 0;
            }
        }
        self.items.front().map_or(Next::Over, |item| Next::Item(*item))
    }

    /// It was taken.
    pub(in crate::engine) fn pop(&mut self) {
        self.items.pop_front();
    }
}

impl Engine {
    pub(in crate::engine) fn begin_scan(&mut self, walker: Walker) {
        let pages = self.table.run().map_or(IndexPage(0)..IndexPage(0), IndexRun::pages);
        self.index.scans_begun += 1;
        self.index.scans[walker as usize] = Some(RunScan {
            number: self.index.scans_begun,
            unasked: pages.start,
            end: pages.end,
            pieces: VecDeque::new(),
            taken: 0,
            items: VecDeque::new(),
        });
        self.ask_for_pieces(walker);
    }

    pub(in crate::engine) fn end_scan(&mut self, walker: Walker) {
        self.index.scans[walker as usize] = None;
    }

    /// The next item of a walk, which stays the next until [`RunScan::pop`].
    pub(in crate::engine) fn next_listed(&mut self, walker: Walker) -> Next {
        self.ask_for_pieces(walker);
        let scan = self.index.scans[walker as usize].as_mut();
        scan.map_or(Next::Over, |scan| scan.peek(self.table.run()))
    }

    /// The next items of a walk, so many at most, are shown to `visit`. Tells whether there are
    /// more, and whether these are on their way.
    pub(in crate::engine) fn walk_listed(
        &mut self,
        walker: Walker,
        count: usize,
        mut visit: impl FnMut(&LookupTable, &LiveSlot),
    ) -> (bool, bool) {
        for _ in 0..count {
            match self.next_listed(walker) {
                Next::Item(item) => visit(&self.table, &item),
                Next::Waits => return (true, true),
                Next::Over => return (false, false),
            }
            self.pop_listed(walker);
        }
        (true, false)
    }

    /// What [`Engine::next_listed`] has shown was taken.
    pub(in crate::engine) fn pop_listed(&mut self, walker: Walker) {
        if let Some(scan) = &mut self.index.scans[walker as usize] {
            scan.pop();
        }
    }

    fn ask_for_pieces(&mut self, walker: Walker) {
        let pages_max = self.config.limits.checkpoint_write_bytes as u64 / LINE_SIZE;
        while let Some(scan) = &mut self.index.scans[walker as usize]
            && scan.pieces.len() < PIECES_AT_ONCE
            && scan.unasked < scan.end
        {
            let first = scan.unasked;
            let pages = pages_max.min(scan.end.0 - first.0);
            scan.unasked.0 += pages;
            scan.pieces.push_back((first, None));
            let piece = ScanPiece { walker, scan: scan.number, first, pages, tries: 1 };
            self.read_piece(piece);
        }
    }

    fn read_piece(&mut self, piece: ScanPiece) {
        let offset = self.table.run().map_or(0, |run| run.offset_of(piece.first));
        self.counters.index_pages_read += piece.pages;
        let purpose = Purpose::IndexScan(piece);
        self.start_read(Disk::CacheDisk, offset, piece.pages * LINE_SIZE, purpose);
    }

    pub(in crate::engine) fn scan_piece_read(
        &mut self,
        piece: ScanPiece,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        let scan = self.index.scans[piece.walker as usize].as_mut();
        let Some(scan) = scan.filter(|scan| scan.number == piece.scan) else {
            return self.buffers.put(buffer);
        };
        let run = self.table.run().expect("with a budget");
        let pages = piece.first.0..piece.first.0 + piece.pages;
        let wrong: Vec<IndexPage> = match &buffer {
            Some(bytes) if result.is_ok() => {
                let pages = pages.map(IndexPage).zip(bytes.bytes().chunks(LINE_SIZE as usize));
                pages.filter(|(page, bytes)| !run.is_right(*page, bytes)).map(|it| it.0).collect()
            }
            _ => pages.map(IndexPage).collect(),
        };
        if !wrong.is_empty() {
            if piece.tries == TRIES_MAX || !matches!(result, Ok(()) | Err(IoError::Failed)) {
                let error = result.err().unwrap_or(IoError::Failed);
                return self.index_is_lost(wrong[0], error);
            }
            wrong.into_iter().for_each(|page| self.doubt_page(page));
            self.buffers.put(buffer);
            return self.read_piece(ScanPiece { tries: piece.tries + 1, ..piece });
        }
        let place = scan.pieces.iter_mut().find(|(first, _)| *first == piece.first);
        place.expect("it was asked for").1 = buffer;
        if piece.tries > 1 {
            self.settle_pages(&piece);
        }
        // Who has waited for it goes on, also if the input that brought it brought more.
        if piece.walker == Walker::Checkpoint {
            self.checkpoint.run_came();
        }
        self.purge.go_on();
        self.go_on_searching();
        self.index_was_read();
    }

    /// What was doubted of a piece is right by now.
    fn settle_pages(&mut self, piece: &ScanPiece) {
        let scan = self.index.scans[piece.walker as usize].as_ref();
        let mut pieces = scan.into_iter().flat_map(|scan| &scan.pieces);
        let Some((_, Some(bytes))) = pieces.find(|(first, _)| *first == piece.first) else {
            return;
        };
        let bytes = Buffer::copy_of(bytes.bytes());
        let pages = (piece.first.0..).map(IndexPage);
        for (page, bytes) in pages.zip(bytes.bytes().chunks(LINE_SIZE as usize)) {
            self.settle_page(page, bytes);
        }
    }
}
