//! Within a budget of memory (`index-max`): who may go on at once, and who first waits for a page
//! of the index.
//!
//! Memory then has only a part of the lookup table; the rest is as the newest durable checkpoint
//! lists it ([`crate::log::index_run`]). A request is *admitted* when all that it may look for is
//! known: the lines are pinned, until it is answered. Behind that gate nobody waits for the index,
//! and every path is as it is without a budget. The same for the lines of a segment that is to be
//! emptied ([`super::destage`]).
//!
//! ```text
//! request -> pin its lines -> all known: carried out          -> answered: unpinned
//!                          -> some are not: pages are read, taken into the table, pinned, ...
//!                          -> too much has changed: waits for the checkpoint that is due, or a
//!                             part of that under way
//! ```
//! Requests that wait here have not been answered, so they have no place in the order yet (C8).
//! What walks the whole index reads the run from its beginning to its end ([`RunScan`]).

mod scan;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

pub(super) use self::scan::{Next, RunScan, ScanPiece};
use super::gather::PART_EVERY;
use super::{Disk, Engine, Phase, Purpose};
use crate::buffer::Buffer;
use crate::config::{ConfigError, EngineConfig};
use crate::format::Geometry;
use crate::format::checkpoint::LiveSlot;
use crate::io::{IoError, Operation, Request, RequestError, RequestId};
use crate::log::index_run::{IndexPage, IndexRun};
use crate::log::lookup_table::{IndexBudget, Walker};
use crate::units::{
    BLOCK_SIZE, Duration, FRAGMENTS_PER_LINE, FragmentMask, LINE_SIZE, Lba, LbaRange, LegIndex,
    Line, SegmentIndex, SegmentSerial, SlotIndex, Time,
};

/// As short as an engine can say: others have their turn between.
const PAUSE: Duration = Duration::from_micros(1);
/// A page that cannot be read, or is not as it was written, is read so many times.
const TRIES_MAX: u32 = 3;

/// A read of one page of the run with this number.
#[derive(Clone, Copy)]
pub(super) struct PageRead {
    run: u64,
    page: IndexPage,
    tries: u32,
}

/// Segments whose lines are to be destaged.
pub(super) struct Victim {
    pub(super) segment: SegmentIndex,
    /// Those that are emptied with it.
    pub(super) others: Vec<SegmentIndex>,
    /// What was read of them, if it was.
    pub(super) images: Vec<Image>,
    /// Those of the first segment before all others.
    pub(super) lines: Vec<(Line, SlotIndex)>,
    /// So many are of the first.
    pub(super) lines_of_first: usize,
    /// Whether the records of the first tell all that it holds.
    pub(super) is_complete: bool,
}

/// A segment as it was read.
pub(super) struct Image {
    pub(super) segment: SegmentIndex,
    /// It may have been filled anew since.
    pub(super) serial: SegmentSerial,
    pub(super) bytes: Buffer,
    /// Who has read it.
    pub(super) reader: Option<LegIndex>,
}

impl Victim {
    pub(super) fn segments(&self) -> impl Iterator<Item = SegmentIndex> {
        std::iter::once(self.segment).chain(self.others.iter().copied())
    }
}

/// What goes on when its lines are pinned.
enum Then {
    CarryOut(Request),
    Empty(Victim),
    Replay,
}

/// Somebody who waits for pages.
struct Waiting {
    /// Lines that are not known, each with the pages that list it.
    missing: Vec<(Line, Range<IndexPage>)>,
    pinned: Vec<Line>,
    then: Then,
}

impl Waiting {
    fn is_read(&self) -> bool {
        matches!(&self.then, Then::CarryOut(Request { operation: Operation::Read { .. }, .. }))
    }
}

/// The gate.
#[derive(Default)]
pub(super) struct Index {
    /// Counts runs: what was read of an older one is of no use.
    run: u64,
    waiting: VecDeque<Waiting>,
    /// Pages that somebody waits for; none for those that are on their way.
    pages: BTreeMap<IndexPage, Option<Buffer>>,
    /// Requests that wait for a checkpoint, or a part of one.
    held_back: VecDeque<Request>,
    pinned: BTreeMap<RequestId, Vec<Line>>,
    scans: [Option<RunScan>; Walker::COUNT],
    scans_begun: u64,
    /// There is another run, and those who wait still wait for pages of the one before.
    has_another_run: bool,
    /// A part was evicted since the last input.
    has_paused: bool,
    /// The next is evicted then, if nobody waits for it.
    evict_at: Time,
}

impl Index {
    /// Something came.
    pub(super) fn go_on(&mut self) {
        self.has_paused = false;
    }
}

impl Engine {
    // ---- the gate -----------------------------------------------------------------------------

    /// Carries a request out, now or when its lines are known.
    pub(super) fn admit(&mut self, request: Request) {
        if !self.table.has_budget() {
            return self.carry_out(request);
        }
        let is_change = matches!(
            request.operation,
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Discard { .. }
        );
        // One behind the other: the last is not to wait for others that come later.
        let has_to_wait = self.must_wait_for_checkpoint() || !self.index.held_back.is_empty();
        match is_change && has_to_wait {
            true => self.index.held_back.push_back(request),
            false => self.admit_now(request),
        }
    }

    fn admit_now(&mut self, request: Request) {
        let range = match &request.operation {
            Operation::Read { range, .. }
            | Operation::WriteZeroes { range, .. }
            | Operation::Discard { range } => *range,
            Operation::Write { start, data } => {
                LbaRange { start: *start, blocks: data.len() as u64 / BLOCK_SIZE }
            }
            _ => return self.carry_out(request),
        };
        let is_zero =
            matches!(request.operation, Operation::WriteZeroes { .. } | Operation::Discard { .. });
        let lines = match is_zero && self.is_large_discard(range) {
            // Its lines leave the table by and by: only parts of lines are written.
            true => edges(range),
            false => range.lines().map(|(line, _)| line).collect(),
        };
        self.pin_for(lines, Then::CarryOut(request));
    }

    fn must_wait_for_checkpoint(&self) -> bool {
        self.table.is_over_budget() && !self.is_passing_by() && !self.log_is_given_up()
    }

    /// Whether a discard has more lines than are pinned for it.
    pub(super) fn is_large_discard(&self, range: LbaRange) -> bool {
        range.blocks / FRAGMENTS_PER_LINE > self.config.limits.discarded_lines as u64
    }

    /// The lines of a segment are known before anybody asks which of them are live.
    pub(super) fn admit_victim(&mut self, victim: Victim) {
        // Nobody fills it meanwhile.
        self.log.segments.add_reader(victim.segment);
        let mut lines: Vec<Line> = victim.lines.iter().map(|(line, _)| *line).collect();
        lines.sort_unstable();
        lines.dedup();
        self.pin_for(lines, Then::Empty(victim));
    }

    /// The lines of entries that are replayed next.
    pub(super) fn admit_replay(&mut self, lines: Vec<Line>) {
        self.pin_for(lines, Then::Replay);
    }

    fn pin_for(&mut self, lines: Vec<Line>, then: Then) {
        let waiting = self.pin_all(lines, Vec::new(), then);
        if waiting.missing.is_empty() {
            return self.go_on_with(waiting);
        }
        if self.health.cache_disk_failed() && !(waiting.is_read() && self.may_read_index()) {
            return self.turn_away(waiting, RequestError::Io);
        }
        self.wait_for_pages(waiting);
    }

    /// Whether pages may still be read: a cache-disk that takes no writes may tell what it has
    /// (C22).
    fn may_read_index(&self) -> bool {
        !matches!(self.health.cache_disk_error(), Some(IoError::Gone | IoError::TimedOut))
    }

    /// Pins what is known.
    fn pin_all(&mut self, lines: Vec<Line>, mut pinned: Vec<Line>, then: Then) -> Waiting {
        let mut missing = Vec::new();
        for line in lines {
            match self.table.pin(line) {
                Ok(()) => pinned.push(line),
                Err(pages) => missing.push((line, pages)),
            }
        }
        Waiting { missing, pinned, then }
    }

    fn wait_for_pages(&mut self, mut waiting: Waiting) {
        // Pages that are there for somebody who waits for others: nobody is told of them again.
        self.load_missing(&mut waiting, None);
        if waiting.missing.is_empty() {
            return self.go_on_with(waiting);
        }
        for (_, pages) in &waiting.missing {
            for page in (pages.start.0..pages.end.0).map(IndexPage) {
                if let Entry::Vacant(entry) = self.index.pages.entry(page) {
                    entry.insert(None);
                    self.read_index_page(PageRead { run: self.index.run, page, tries: 1 });
                }
            }
        }
        self.index.waiting.push_back(waiting);
    }

    fn go_on_with(&mut self, waiting: Waiting) {
        match waiting.then {
            Then::CarryOut(request) => {
                self.index.pinned.insert(request.id, waiting.pinned);
                self.carry_out(request);
            }
            Then::Empty(victim) => {
                self.log.segments.drop_reader(victim.segment);
                self.empty_pinned(victim, waiting.pinned);
            }
            Then::Replay => self.replay_pinned(waiting.pinned),
        }
    }

    fn turn_away(&mut self, waiting: Waiting, error: RequestError) {
        for line in waiting.pinned {
            self.table.unpin(line);
        }
        match waiting.then {
            Then::CarryOut(request) => {
                let buffer = match request.operation {
                    Operation::Write { data, .. } => Some(data),
                    _ => None,
                };
                self.reply(request.id, Err(error), buffer);
            }
            Then::Empty(victim) => {
                self.log.segments.drop_reader(victim.segment);
                self.put_images(victim.images);
                self.victim_was_turned_away();
            }
            // The start has failed.
            Then::Replay => {}
        }
    }

    /// A request has been answered.
    pub(super) fn unpin_lines_of(&mut self, id: RequestId) {
        if self.table.has_budget() {
            for line in self.index.pinned.remove(&id).unwrap_or_default() {
                self.table.unpin(line);
            }
        }
    }

    /// The cache-disk was given up while nothing on it was newer: no page is needed any more.
    pub(super) fn need_no_pages(&mut self) {
        self.index.pages.clear();
        self.index.has_another_run = true;
    }

    /// Nothing more is written to the cache-disk.
    pub(super) fn fail_unadmitted_changes(&mut self, error: RequestError) {
        let (reads, others): (VecDeque<Waiting>, _) = std::mem::take(&mut self.index.waiting)
            .into_iter()
            .partition(|waiting| waiting.is_read() && self.may_read_index());
        self.index.waiting = others;
        self.fail_unadmitted(error);
        self.index.waiting.extend(reads);
        self.drop_unwanted_pages();
    }

    /// Those who wait are told: there will be no more pages, or no more requests.
    pub(super) fn fail_unadmitted(&mut self, error: RequestError) {
        for request in std::mem::take(&mut self.index.held_back) {
            let then = Then::CarryOut(request);
            self.turn_away(Waiting { missing: Vec::new(), pinned: Vec::new(), then }, error);
        }
        let (requests, others): (VecDeque<Waiting>, _) = std::mem::take(&mut self.index.waiting)
            .into_iter()
            .partition(|waiting| matches!(waiting.then, Then::CarryOut(_)));
        self.index.waiting = others;
        for waiting in requests {
            self.turn_away(waiting, error);
        }
        if self.health.cache_disk_failed() {
            self.index.scans = Default::default();
            for waiting in std::mem::take(&mut self.index.waiting) {
                self.turn_away(waiting, error);
            }
        }
    }

    // ---- pages --------------------------------------------------------------------------------

    fn read_index_page(&mut self, read: PageRead) {
        let run = self.table.run().expect("with a budget");
        let offset = run.offset_of(read.page);
        self.counters.index_pages_read += 1;
        self.start_read(Disk::CacheDisk, offset, LINE_SIZE, Purpose::IndexPage(read));
    }

    pub(super) fn index_page_read(
        &mut self,
        read: PageRead,
        result: Result<(), IoError>,
        buffer: Option<Buffer>,
    ) {
        if read.run != self.index.run || !self.index.pages.contains_key(&read.page) {
            return self.buffers.put(buffer);
        }
        let is_right = |bytes: &Buffer| {
            self.table.run().is_some_and(|run| run.is_right(read.page, bytes.bytes()))
        };
        let bytes = buffer.filter(|bytes| result.is_ok() && is_right(bytes));
        let Some(bytes) = bytes else {
            if read.tries < TRIES_MAX && matches!(result, Ok(()) | Err(IoError::Failed)) {
                self.doubt_page(read.page);
                return self.read_index_page(PageRead { tries: read.tries + 1, ..read });
            }
            return self.index_is_lost(read.page, result.err().unwrap_or(IoError::Failed));
        };
        self.settle_page(read.page, bytes.bytes());
        self.index.pages.insert(read.page, Some(bytes));
        self.take_pages(read.page);
    }

    /// A page is not as it was written: it is read again, from another leg if there is one.
    fn doubt_page(&mut self, page: IndexPage) {
        if let (Some(legs), Some(run)) = (&mut self.legs, self.table.run()) {
            let offset = run.offset_of(page);
            if let Some(reader) = legs.reader_of(offset, LINE_SIZE) {
                legs.doubt(offset, LINE_SIZE, reader);
            }
        }
    }

    /// It is, by now.
    fn settle_page(&mut self, page: IndexPage, right: &[u8]) {
        if let (Some(legs), Some(run)) = (&mut self.legs, self.table.run()) {
            legs.settle_doubt(run.offset_of(page), LINE_SIZE, Some(right));
        }
    }

    /// Nobody can tell any more where some lines of the log are: without the index nothing more is
    /// logged. Whoever waits for this page is told; others find theirs.
    fn index_is_lost(&mut self, page: IndexPage, error: IoError) {
        if self.phase == Phase::Opening {
            return self.fail_open_without_index(error);
        }
        self.health.note_cache_disk_error(error);
        self.fail_cache_disk();
        self.index.pages.remove(&page);
        let is_lost = !self.may_read_index();
        let waits = |waiting: &Waiting| {
            is_lost || waiting.missing.iter().any(|(_, pages)| pages.contains(&page))
        };
        let (lost, others): (VecDeque<Waiting>, _) =
            std::mem::take(&mut self.index.waiting).into_iter().partition(waits);
        self.index.waiting = others;
        for waiting in lost {
            self.turn_away(waiting, RequestError::Io);
        }
        self.drop_unwanted_pages();
    }

    /// Lines that waited for this page are loaded, and those go on who waited for nothing else.
    fn take_pages(&mut self, page: IndexPage) {
        let mut all = std::mem::take(&mut self.index.waiting);
        all.iter_mut().for_each(|waiting| self.load_missing(waiting, Some(page)));
        self.index.waiting = all;
        self.drop_unwanted_pages();
        self.go_on_with_the_ready();
    }

    /// Pins lines that somebody waits for and of which all pages are there; only those that this
    /// one may list, if one is given.
    fn load_missing(&mut self, waiting: &mut Waiting, page: Option<IndexPage>) {
        let Waiting { missing, pinned, .. } = waiting;
        missing.retain(|(line, pages)| {
            let is_asked = page.is_none_or(|page| pages.contains(&page));
            let is_known = is_asked && self.load_line(*line, pages);
            if is_known {
                self.table.pin(*line).expect("it has just been loaded");
                pinned.push(*line);
            }
            !is_known
        });
    }

    /// Loads a line if all its pages are there. Tells whether it is known now.
    fn load_line(&mut self, line: Line, pages: &Range<IndexPage>) -> bool {
        if self.table.is_known(line) {
            return true;
        }
        let mut listed = Vec::new();
        let run = self.table.run().expect("with a budget");
        for page in (pages.start.0..pages.end.0).map(IndexPage) {
            let Some(Some(bytes)) = self.index.pages.get(&page) else { return false };
            listed.extend(run.items_of(page, bytes.bytes()).filter(|live| live.line == line));
        }
        self.load_listed(line, &listed);
        if self.is_purged(line) {
            // What walks the run does not see it any more.
            self.forget(line, FragmentMask::FULL);
        }
        true
    }

    /// The line comes into memory as the run lists it.
    pub(super) fn load_listed(&mut self, line: Line, listed: &[LiveSlot]) {
        // Of a forged checkpoint more may be listed than the line has.
        let mask = self.line_mask(line);
        let listed = listed.iter().map(|live| LiveSlot { mask: live.mask.and(mask), ..*live });
        self.table.load(line, listed);
    }

    /// Pages that are there, and that nobody waits for.
    fn drop_unwanted_pages(&mut self) {
        let here = self.index.pages.iter().filter(|(_, bytes)| bytes.is_some());
        let here: Vec<IndexPage> = here.map(|(page, _)| *page).collect();
        for page in here {
            let mut missing = self.index.waiting.iter().flat_map(|waiting| &waiting.missing);
            if !missing.any(|(_, pages)| pages.contains(&page)) {
                self.buffers.put(self.index.pages.remove(&page).flatten());
            }
        }
    }

    fn go_on_with_the_ready(&mut self) {
        while let Some(index) =
            self.index.waiting.iter().position(|waiting| waiting.missing.is_empty())
        {
            let waiting = self.index.waiting.remove(index).expect("looked at");
            self.go_on_with(waiting);
        }
    }

    // ---- another run --------------------------------------------------------------------------

    /// The checkpoint that was gathered is durable: its run is the one that is read.
    pub(super) fn index_run_is(&mut self, run: IndexRun) {
        self.table.run_is(run);
        self.index.run += 1;
        self.index.pages.clear();
        self.index.has_another_run = true;
        // What looks for the lines of a segment along the run begins anew.
        if self.index.scans[Walker::Destage as usize].is_some() {
            self.begin_scan(Walker::Destage);
        }
    }

    /// Takes out of memory what need not be there, and lets in those who waited for that. Tells
    /// whether anything moved.
    pub(super) fn advance_index(&mut self) -> bool {
        let mut moved = std::mem::take(&mut self.index.has_another_run);
        if moved {
            // Their pages are others now.
            for Waiting { missing, pinned, then } in std::mem::take(&mut self.index.waiting) {
                let lines = missing.into_iter().map(|(line, _)| line).collect();
                let waiting = self.pin_all(lines, pinned, then);
                self.wait_for_pages(waiting);
            }
            self.go_on_with_the_ready();
        }
        if self.table.is_evicting()
            && !self.index.has_paused
            && (self.index.evict_at <= self.now || self.someone_waits_for_run())
        {
            self.index.has_paused = true;
            self.index.evict_at = self.now.after(PART_EVERY);
            self.table.evict_part(self.config.limits.checkpoint_lines);
            moved = true;
        }
        while !self.must_wait_for_checkpoint()
            && let Some(request) = self.index.held_back.pop_front()
        {
            self.admit_now(request);
            moved = true;
        }
        moved
    }

    pub(super) fn index_wake_up(&self) -> Option<Time> {
        let soon = self.now.after(PAUSE);
        let next_at = || match self.someone_waits_for_run() {
            true => soon,
            false => self.index.evict_at.max(soon),
        };
        self.table.is_evicting().then(next_at)
    }

    /// Whether somebody waits until the checkpoint under way is durable, or what it lists has left
    /// memory: it does not take its time then, nor at a start. Without a budget it never does.
    pub(super) fn someone_waits_for_run(&self) -> bool {
        self.table.has_budget()
            && (!self.is_running()
                || !self.index.held_back.is_empty()
                || self.checkpoint.is_waited_for()
                || self.checkpoint.tells_of_size()
                || self.close.is_some()
                || self.purge_waits_for_destaging()
                || self.someone_waits_for_zero_ranges()
                || self.log.segments.empty_in_use() > 0
                    && self.log.announced().len() == 0
                    && self.someone_waits_for_destaging()
                    && !self.can_announce())
    }

    /// Whether the table is as the newest checkpoint and memory say, and will be for a while: what
    /// counts along the run has to be done with one.
    pub(super) fn run_is_settled(&self) -> bool {
        !self.table.has_budget()
            || self.checkpoint.is_at_rest()
                && !self.table.is_evicting()
                && !self.table.is_full_of_void()
    }
}

/// The budget that the settings give.
pub(super) fn budget_of(
    config: &EngineConfig,
    geometry: &Geometry,
    is_volume: bool,
) -> Result<Option<IndexBudget>, ConfigError> {
    let bad = |why| Err(ConfigError { key: "index-max", why });
    if config.index_bytes_max == 0 || config.no_log {
        return Ok(None);
    }
    if is_volume {
        return bad("is for a cache of one data-disk; a volume has `volume-memory`");
    }
    if geometry.copy_pages > 0 {
        return bad("is not for a cache with a read area, whose copies are in memory, too");
    }
    match IndexBudget::new(config.index_bytes_max, geometry.slots()) {
        Some(budget) => Ok(Some(budget)),
        None => bad("must be at least a byte for each 4 KiB of the cache-disk: 256 MiB for 1 TiB"),
    }
}

/// Lines of which a range has only a part.
fn edges(range: LbaRange) -> Vec<Line> {
    let ends = [range.start, Lba(range.end())];
    let parts = ends.into_iter().filter(|end| !end.0.is_multiple_of(FRAGMENTS_PER_LINE));
    let mut edges: Vec<Line> = parts.map(|end| end.line()).collect();
    edges.dedup();
    edges
}
