//! A sequence: lines in the order in which they are asked for, on pages of the read area in that
//! order.

use super::SlotState;
use crate::format::copy_page::SequenceLabel;
use crate::format::geometry::COPIES_PER_PAGE;
use crate::units::{CopyPageIndex, CopySlot};

/// Of the lines that were read ahead one in so many must have been used, or it did not pay: on a
/// disk that turns, reading one for nothing costs about what one that is used saves.
const PAYS_ONE_IN: u64 = 2;
/// Lines read ahead after which that is judged.
const JUDGED_FROM_LINES: u64 = 64;
/// While it is switched off, each so-many-th start is tried all the same.
const TRIED_EVERY: u32 = 8;

/// A sequence.
#[derive(Clone, Debug)]
pub struct Sequence {
    label: SequenceLabel,
    /// Page of each ordinal; `None` only while loading.
    loading: Vec<Option<CopyPageIndex>>,
    pages: Vec<CopyPageIndex>,
    lines: u32,
    stale: u32,
    /// Lines that were read ahead in the last runs, and those of them that were used: each run
    /// counts three quarters of what the next counts.
    read_ahead_lately: u64,
    used_lately: u64,
    /// Starts that were passed over since it was switched off.
    passed_over: u32,
}

impl Sequence {
    /// A new one.
    pub(super) fn new(label: SequenceLabel, pages: Vec<CopyPageIndex>, lines: u32) -> Sequence {
        Sequence {
            label,
            loading: Vec::new(),
            pages,
            lines,
            stale: 0,
            read_ahead_lately: 0,
            used_lately: 0,
            passed_over: 0,
        }
    }

    /// One of which a first page was read.
    pub(super) fn loaded(label: SequenceLabel) -> Sequence {
        Sequence::new(label, Vec::new(), 0)
    }

    /// Notes the page of an ordinal. False if it cannot be: there are not as many pages, or two of
    /// them.
    pub(super) fn load_page(&mut self, ordinal: u32, page: CopyPageIndex) -> bool {
        let at = ordinal as usize;
        // Ordinals of a sequence without gaps are below the number of all pages; more were forged.
        if at >= 1 << 24 {
            return false;
        }
        if self.loading.len() <= at {
            self.loading.resize(at + 1, None);
        }
        let place = &mut self.loading[at];
        let is_new = place.is_none();
        if is_new {
            *place = Some(page);
        }
        is_new
    }

    /// Another page has the lines of this ordinal.
    pub(super) fn move_page(&mut self, ordinal: u32, page: CopyPageIndex) {
        self.pages[ordinal as usize] = page;
    }

    /// Everything is loaded. Tells whether ordinals have changed, because a page was missing.
    pub(super) fn close_gaps(&mut self) -> bool {
        let loading = std::mem::take(&mut self.loading);
        let had_gaps = loading.iter().any(Option::is_none);
        self.pages = loading.into_iter().flatten().collect();
        self.lines = self.pages.len() as u32 * COPIES_PER_PAGE;
        had_gaps
    }

    pub(super) fn state_changed(&mut self, old: SlotState, new: SlotState) {
        let is_stale = |state| matches!(state, SlotState::Stale | SlotState::Filling);
        self.stale += u32::from(is_stale(new));
        self.stale -= u32::from(is_stale(old));
    }

    /// What its pages say of it.
    pub fn label(&self) -> &SequenceLabel {
        &self.label
    }

    /// The same, to be changed.
    pub(crate) fn label_mut(&mut self) -> &mut SequenceLabel {
        &mut self.label
    }

    /// Whether it was recorded or pinned by somebody: it does not give way to others.
    pub(crate) fn is_kept(&self) -> bool {
        !self.label.is_detected || self.label.is_pinned
    }

    /// Its pages, in order.
    pub(crate) fn pages(&self) -> &[CopyPageIndex] {
        &self.pages
    }

    /// Places in it, those without a line at the end of the last page included after a start.
    pub fn places(&self) -> u32 {
        self.lines
    }

    /// Lines that wait to be copied (anew).
    pub fn stale(&self) -> u32 {
        self.stale
    }

    /// The slot of a place.
    pub(crate) fn slot(&self, place: u32) -> Option<CopySlot> {
        let page = self.pages.get((place / COPIES_PER_PAGE) as usize)?;
        (place < self.lines).then(|| CopySlot(page.0 * COPIES_PER_PAGE + place % COPIES_PER_PAGE))
    }

    /// Whether it is not read ahead any more, because that did not pay.
    pub fn is_off(&self) -> bool {
        self.read_ahead_lately >= JUDGED_FROM_LINES
            && self.used_lately * PAYS_ONE_IN < self.read_ahead_lately
    }

    /// It seems to begin: whether to read ahead.
    pub(crate) fn may_start(&mut self) -> bool {
        if !self.is_off() {
            return true;
        }
        self.passed_over += 1;
        self.passed_over.is_multiple_of(TRIED_EVERY)
    }

    /// A run has ended for which so many lines were read ahead, and so many of them used.
    pub(crate) fn run_ended(&mut self, read_ahead: u64, used: u64) {
        self.label.runs = self.label.runs.saturating_add(1);
        self.label.lines_served = self.label.lines_served.saturating_add(used);
        self.read_ahead_lately = self.read_ahead_lately * 3 / 4 + read_ahead;
        self.used_lately = self.used_lately * 3 / 4 + used;
    }

    /// Lines served for each page that it takes: what replacement compares.
    pub(crate) fn benefit(&self) -> u64 {
        self.label.lines_served / self.pages.len().max(1) as u64
    }
}
