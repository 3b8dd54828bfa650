//! Ordered shipping ([`DestagePolicyKind::Ordered`]): the data-disk goes from one point of the
//! order of changes to a later one, and stands still there until somebody has kept it.
//!
//! ```text
//! 1. Cut: a *window* is all that is in the log now. What comes from here on is behind it.
//! 2. Wait until it is durable (C10).
//! 3. Ship it: lines as the log had them at the cut, in any order and batches like others. A line
//!    that changes meanwhile is *kept* as it was: its slots stay, dead as they are, until it is on
//!    the data-disk. What is zeroed meanwhile stays out of it.
//!      Crash here: the data-disk is between two points. The log has all of the window: the first
//!      window after a start, which is all that is in the log, ends at this point or behind it.
//! 4. All of it is on the data-disk, and that is flushed, with whatever else was written there: it
//!    shows exactly the changes up to the cut. Ask for it to be kept ([`Output::KeepWindow`]);
//!    write nothing until that has been done.
//!      Crash here: it is asked for again, by the first window after the start.
//! 5. It was kept: on to the next window, when one is due.
//! ```
//! A window may be cut anew at any time before step 4: it then ends at a later point, and what is
//! kept for it is needed no more. That is done when the log is logged again, or a slot of it
//! is found damaged.
//!
//! A window is cut as late as room and age allow, because a line that is written often goes once in
//! each: when half of the log is in use, when the rest would be full before it is shipped, when
//! somebody waits, or when its oldest change would become older than `ship_within` otherwise.

use std::collections::BTreeMap;

use super::Engine;
use crate::config::{DestagePolicyKind, EngineConfig};
use crate::io::Output;
use crate::log::lookup_table::Pieces;
use crate::stats::{WindowReport, WindowState};
use crate::units::{
    Duration, FragmentMask, Line, RecordNumber, SegmentIndex, SegmentSerial, SlotIndex, Time,
};
use crate::zero_ranges::{ZeroRange, ZeroRanges};

/// First wait until it is asked again for a window to be kept; doubles up to the longest.
const ASK_AGAIN_MIN: Duration = Duration::from_millis(250);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(30);
/// The first one is cut so long after a start.
const FIRST_AFTER: Duration = Duration::from_millis(1);
/// With so much of the log in use a window is cut: the other half is for what comes meanwhile.
const IN_USE_PERCENT: u64 = 50;
/// When room would run out is not asked before so much of the log was filled behind the last cut.
const FILLED_PART: u64 = 16;
/// A window is due at this part of `ship_within` at the latest, ...
const DUE_LATEST: u64 = 8;
/// ... and at this part at the earliest, if the last one took long.
const DUE_EARLIEST: u64 = 2;

/// Windows of a session.
pub(super) struct Windows {
    current: Option<Box<Window>>,
    /// The first change behind the last cut.
    changed_since: Option<Time>,
    /// The first change that is in no window that was kept.
    uncovered_since: Option<Time>,
    /// Nobody knows what the last session has had kept.
    is_first: bool,
    /// The newest segment in the last one that was cut.
    cut: SegmentSerial,
    /// Drains of segments up to this one need not wait for another window.
    ended: SegmentSerial,
    /// How long the last one took, from its cut to its end.
    took: Duration,
    last_kept: Option<(RecordNumber, Time)>,
    kept: u64,
    not_kept: u64,
    failures: u64,
}

struct Window {
    /// The newest record in it.
    number: RecordNumber,
    /// The newest segment in it.
    serial: SegmentSerial,
    cut_at: Time,
    oldest_change: Option<Time>,
    step: Step,
    /// Live slots in it, those included that are kept.
    slots_left: u64,
    /// Zeroes in it that are not on the data-disk.
    zeroes: ZeroRanges,
    /// What was zeroed behind it.
    zeroed_behind: ZeroRanges,
    /// Lines that have changed since, as they are in it.
    kept_lines: BTreeMap<Line, Pieces>,
    /// Their slots, and whether each is dead.
    kept_slots: BTreeMap<SlotIndex, bool>,
    /// Something of it is lost.
    is_damaged: bool,
}

enum Step {
    WaitDurable,
    Ship,
    /// Somebody keeps the data-disk as it is.
    Keep {
        since: Time,
        /// It has failed: it is asked for again then, ...
        retry_at: Option<Time>,
        /// ... after this wait.
        wait: Duration,
    },
}

impl Windows {
    pub(super) fn new() -> Windows {
        Windows {
            current: None,
            changed_since: None,
            uncovered_since: None,
            is_first: true,
            cut: SegmentSerial(0),
            ended: SegmentSerial(0),
            took: Duration(0),
            last_kept: None,
            kept: 0,
            not_kept: 0,
            failures: 0,
        }
    }

    /// The window that is being shipped, or about to be.
    fn unfinished(&self) -> Option<&Window> {
        self.current.as_deref().filter(|window| !matches!(window.step, Step::Keep { .. }))
    }

    fn unfinished_mut(&mut self) -> Option<&mut Window> {
        let current = self.current.as_deref_mut();
        current.filter(|window| !matches!(window.step, Step::Keep { .. }))
    }

    /// Somebody keeps the data-disk as it is, or is to.
    pub(super) fn is_keeping(&self) -> bool {
        self.current.as_deref().is_some_and(|window| matches!(window.step, Step::Keep { .. }))
    }

    /// A change is logged.
    fn changed(&mut self, now: Time) {
        self.changed_since.get_or_insert(now);
        self.uncovered_since.get_or_insert(now);
    }

    /// Whether the line has changed since the cut and is not on the data-disk as it was then.
    pub(super) fn keeps(&self, line: Line) -> bool {
        self.unfinished().is_some_and(|window| window.kept_lines.contains_key(&line))
    }

    /// The same, with exactly these pieces.
    pub(super) fn keeps_as(&self, line: Line, pieces: &Pieces) -> bool {
        self.unfinished().is_some_and(|window| window.kept_lines.get(&line) == Some(pieces))
    }

    /// Whether the line is kept, and this slot is one of those that it was in.
    pub(super) fn keeps_slot_of(&self, line: Line, slot: SlotIndex) -> bool {
        self.unfinished().is_some_and(|window| {
            let pieces = window.kept_lines.get(&line);
            pieces.is_some_and(|pieces| pieces.as_slice().iter().any(|(it, _)| *it == slot))
        })
    }

    /// Whether somebody keeps the data-disk, and has not failed.
    pub(super) fn is_hook_running(&self) -> bool {
        let current = self.current.as_deref();
        matches!(current, Some(Window { step: Step::Keep { retry_at: None, .. }, .. }))
    }

    /// Zero ranges that the next window has beside those of this one.
    pub(super) fn zeroed_behind_len(&self) -> usize {
        self.unfinished().map_or(0, |window| window.zeroed_behind.len())
    }

    /// Slots of a segment that only the window needs.
    pub(super) fn kept_slots_of(
        &self,
        is_in: impl Fn(SlotIndex) -> bool,
    ) -> Vec<(Line, SlotIndex)> {
        let Some(window) = self.unfinished() else { return Vec::new() };
        let slots = window.kept_lines.iter().flat_map(|(line, pieces)| {
            let slots = pieces.as_slice().iter().map(|(slot, _)| *slot);
            slots.map(move |slot| (*line, slot))
        });
        slots.filter(|(_, slot)| window.kept_slots[slot] && is_in(*slot)).collect()
    }

    /// Dead slots that are not to be filled, for the invariants.
    pub(super) fn dead_slots(&self) -> impl Iterator<Item = SlotIndex> {
        let slots = self.current.iter().flat_map(|window| &window.kept_slots);
        slots.filter(|(_, is_dead)| **is_dead).map(|(slot, _)| *slot)
    }

    /// A slot of a segment has lost its last fragment. Tells whether it is kept all the same.
    pub(super) fn keeps_slot(&mut self, slot: SlotIndex, serial: SegmentSerial) -> bool {
        let Some(window) = self.current.as_deref_mut() else { return false };
        if let Some(is_dead) = window.kept_slots.get_mut(&slot) {
            *is_dead = true;
            return true;
        }
        if serial <= window.serial {
            window.slots_left -= 1;
        }
        false
    }

    /// Something that was acknowledged is lost.
    pub(super) fn found_damage(&mut self) {
        if let Some(window) = self.unfinished_mut() {
            window.is_damaged = true;
        }
    }

    /// These lines are zeroes on the data-disk.
    pub(super) fn zeroes_shipped(&mut self, done: &ZeroRanges) {
        if let Some(window) = self.unfinished_mut() {
            done.iter().for_each(|range| window.zeroes.remove(range.line, range.lines));
        }
    }

    /// What of these lines was zeroed again behind the window.
    pub(super) fn zeroed_behind(&self, range: &ZeroRange) -> Vec<ZeroRange> {
        let window = self.unfinished();
        window.map_or_else(Vec::new, |it| it.zeroed_behind.parts_within(range.line, range.lines))
    }
}

impl Engine {
    /// Whether the policy says so, or did when the window was cut that is being kept.
    pub(super) fn ships_in_order(&self) -> bool {
        self.config.destage_policy == DestagePolicyKind::Ordered || self.windows.is_keeping()
    }

    // ---- what changes meanwhile ----------------------------------------------------------------

    /// To be called before a change takes fragments of a line out of the table, or replaces them.
    pub(super) fn keep_for_window(&mut self, line: Line) {
        if !self.ships_in_order() {
            return;
        }
        self.windows.changed(self.now);
        let Some(window) = self.windows.unfinished_mut() else { return };
        if window.kept_lines.contains_key(&line) {
            return;
        }
        let pieces = self.table.find(line);
        let segments = &self.log.segments;
        let geometry = &self.superblock.geometry;
        let mut slots = pieces.as_slice().iter().map(|(slot, _)| *slot);
        if slots.any(|slot| segments.get(geometry.locate(slot).0).serial() <= window.serial) {
            window.kept_lines.insert(line, pieces);
            let slots = pieces.as_slice().iter().map(|(slot, _)| (*slot, false));
            window.kept_slots.extend(slots);
        }
    }

    /// These lines are zeroes from now on.
    pub(super) fn zeroed_behind_window(&mut self, range: ZeroRange) {
        if !self.ships_in_order() {
            return;
        }
        self.windows.changed(self.now);
        if let Some(window) = self.windows.unfinished_mut() {
            window.zeroed_behind.insert(range);
        }
    }

    // ---- what is to be shipped -----------------------------------------------------------------

    /// The fragments of a line that may go to the data-disk, as far as it is known where they are:
    /// the newest, or those of the window. What completes a line (C15) is logged behind the window
    /// and says what the data-disk has: it goes along.
    pub(super) fn pieces_to_ship(&self, line: Line) -> Pieces {
        if !self.ships_in_order() {
            return self.table.find_if_known(line);
        }
        let Some(window) = self.windows.unfinished() else { return Pieces::default() };
        if let Some(pieces) = window.kept_lines.get(&line) {
            return *pieces;
        }
        let pieces = self.table.find_if_known(line);
        let mut slots = pieces.as_slice().iter().map(|(slot, _)| *slot);
        match slots.any(|slot| self.serial_of(slot) <= window.serial) {
            true => pieces,
            false => Pieces::default(),
        }
    }

    /// Whether a slot of the record that is being filled belongs to the window under way: it
    /// completes a line of it, and is not to be filled with what comes behind.
    pub(super) fn is_of_window(&self, line: Line, slot: SlotIndex) -> bool {
        let Some(window) = self.windows.unfinished() else { return false };
        let has = |pieces: &Pieces| pieces.as_slice().iter().any(|(it, _)| *it == slot);
        window.kept_lines.get(&line).map_or_else(|| has(&self.pieces_to_ship(line)), has)
    }

    fn serial_of(&self, slot: SlotIndex) -> SegmentSerial {
        self.log.segments.get(self.superblock.geometry.locate(slot).0).serial()
    }

    /// Whether lines of this segment may go to the data-disk now.
    pub(super) fn may_ship_segment(&self, index: SegmentIndex) -> bool {
        !self.ships_in_order()
            || self
                .windows
                .unfinished()
                .is_some_and(|window| self.log.segments.get(index).serial() <= window.serial)
    }

    /// Zeroes that may go to the data-disk.
    pub(super) fn zeroes_to_ship(&self) -> &ZeroRanges {
        match self.windows.unfinished() {
            Some(window) if self.ships_in_order() => &window.zeroes,
            _ => &self.zeroes,
        }
    }

    /// Whether zeroes below the line must be on the data-disk before the line.
    pub(super) fn waits_for_zeroes(&self, line: Line) -> bool {
        self.zeroes_to_ship().contains(line) || self.zeroes_destaging.contains(line)
    }

    /// Whether zeroes that may go to the data-disk are durable in the log: all of a window are.
    pub(super) fn zeroes_to_ship_are_durable(&self) -> bool {
        match self.windows.unfinished() {
            Some(window) if self.ships_in_order() => matches!(window.step, Step::Ship),
            _ => self.destage.zeroes_are_durable(self.log.durable_record()),
        }
    }

    /// Whether the data-disk may be written to: always, or only for a window.
    pub(super) fn may_ship(&self) -> bool {
        match self.windows.current.as_deref() {
            Some(Window { step: Step::Ship, .. }) => true,
            Some(Window { step: Step::Keep { .. }, .. }) => false,
            Some(_) | None => !self.ships_in_order(),
        }
    }

    /// Fragments of a kept line of which a torn write of its sector leaves a copy in the log (C15):
    /// its own, and those that came behind the window. `None`: not yet.
    pub(super) fn covered_by_log(&self, line: Line, pieces: &Pieces) -> Option<FragmentMask> {
        if !self.windows.keeps(line) {
            return Some(pieces.mask());
        }
        // A start that finds the sector torn has these very pieces, or durably something newer.
        if self.fills_sectors(line, pieces.mask()) {
            return Some(pieces.mask());
        }
        if self.zeroes.contains(line) {
            return self
                .destage
                .zeroes_are_durable(self.log.durable_record())
                .then_some(FragmentMask::FULL);
        }
        let newest = self.table.find(line);
        let are_durable = newest.as_slice().iter().all(|(slot, _)| self.log.is_durable(*slot));
        are_durable.then(|| pieces.mask().or(newest.mask()))
    }

    /// A kept line is on the data-disk as it is in the window.
    pub(super) fn kept_line_shipped(&mut self, line: Line) {
        let window = self.windows.unfinished_mut().expect("it keeps the line");
        let pieces = window.kept_lines.remove(&line).expect("it keeps the line");
        let newest = self.table.find(line);
        let mut same = FragmentMask::NONE;
        for (slot, mask) in newest.as_slice() {
            if pieces.as_slice().iter().any(|(kept, _)| kept == slot) {
                same = same.or(*mask);
                if self.zeroes_rebuilt.may_be_found(line) {
                    let (segment, _) = self.superblock.geometry.locate(*slot);
                    self.log.segments.destaged_above_zeroes(segment);
                }
            }
        }
        // What has not changed behind the window is on the data-disk, too.
        if !same.is_empty() {
            self.leaves_table(line, same);
        }
        self.release_slots(&pieces);
    }

    fn release_slots(&mut self, pieces: &Pieces) {
        for (slot, _) in pieces.as_slice() {
            let window = self.windows.current.as_mut().expect("under way");
            if window.kept_slots.remove(slot) == Some(true) {
                let (segment, _) = self.superblock.geometry.locate(*slot);
                if self.log.segments.get(segment).serial() <= window.serial {
                    window.slots_left -= 1;
                }
                self.log.segments.drop_live(segment);
            }
        }
    }

    /// The window under way is no more: the next one ends behind it, and needs nothing that was
    /// kept for it.
    pub(super) fn cut_anew(&mut self) {
        let Some(window) = self.windows.unfinished_mut() else { return };
        let lines = std::mem::take(&mut window.kept_lines);
        let oldest_change = window.oldest_change;
        lines.values().for_each(|pieces| self.release_slots(pieces));
        self.windows.current = None;
        self.windows.changed_since = oldest_change.or(self.windows.changed_since);
        self.destage.something_changed();
    }

    // ---- what next -----------------------------------------------------------------------------

    pub(super) fn advance_windows(&mut self) -> bool {
        let is_wanted = self.config.destage_policy == DestagePolicyKind::Ordered;
        if !is_wanted {
            // Nobody takes note of what changes, and nobody asks again.
            self.windows.is_first = true;
            self.windows.changed_since = None;
            self.windows.uncovered_since.get_or_insert(self.now);
            if self.window_is_not_kept() {
                self.windows.current = None;
                self.destage.something_changed();
                return true;
            }
        }
        let Some(window) = self.windows.current.as_deref() else { return self.cut_if_wanted() };
        if !is_wanted || self.health.cache_disk_failed() || self.is_passing_by() {
            let is_unfinished = self.windows.unfinished().is_some();
            self.cut_anew();
            return is_unfinished;
        }
        match window.step {
            Step::WaitDurable if window.number <= self.log.durable_record() => {
                self.windows.current.as_mut().expect("looked at").step = Step::Ship;
                self.destage.something_changed();
                true
            }
            Step::WaitDurable => {
                self.want_durable(window.number);
                false
            }
            // What it has shipped is flushed. What was written before the policy became this, past
            // the log and with an error, need not be.
            Step::Ship if self.window_wants_flush() => self.flush_for_window(),
            Step::Ship if self.is_shipped() => {
                self.end_of_window();
                true
            }
            Step::Ship => false,
            Step::Keep { retry_at: Some(at), .. } if at <= self.now => {
                self.ask_to_keep(None);
                true
            }
            Step::Keep { .. } => false,
        }
    }

    /// Step 1.
    fn cut_if_wanted(&mut self) -> bool {
        if !self.ships_in_order() || !self.may_cut() || !self.window_is_wanted() {
            return false;
        }
        self.log.close_segment();
        let (number, serial) = (self.log.newest_record(), self.log.newest_serial());
        self.want_durable(number);
        let is_damaged = self.lost_lines() > 0;
        let windows = &mut self.windows;
        if std::mem::take(&mut windows.is_first) {
            // Nobody knows how old that is which was there before.
            windows.changed(self.now);
        }
        windows.cut = serial;
        windows.current = Some(Box::new(Window {
            number,
            serial,
            cut_at: self.now,
            oldest_change: windows.changed_since.take(),
            step: Step::WaitDurable,
            slots_left: self.log.segments.live_slots(),
            zeroes: self.zeroes.clone(),
            zeroed_behind: ZeroRanges::default(),
            kept_lines: BTreeMap::new(),
            kept_slots: BTreeMap::new(),
            is_damaged,
        }));
        true
    }

    fn may_cut(&self) -> bool {
        self.destage.is_between_works()
            && self.zeroes_destaging.is_empty()
            && !self.purge_holds_back_destaging()
            && !self.purge.is_under_way()
            && !self.has_bypasses()
            && !self.log_again.is_wanted()
            && !self.health.cache_disk_failed()
            && !self.is_passing_by()
            && !self.config.data_disk_read_only
            && !self.close_wants_no_destage()
    }

    fn window_is_wanted(&self) -> bool {
        let windows = &self.windows;
        windows.is_first
            || self.a_drain_waits_for_window()
            || self.close.is_some() && !self.windows_are_over()
            // Without a change behind the last one there is nothing to ship but what is lost.
            || windows.changed_since.is_some_and(|since| {
                self.window_is_due(since) || self.log_fills_up() || self.room_is_wanted()
            })
    }

    /// Half of it is in use, or at the pace of what came behind the last cut the rest is before a
    /// window is shipped that takes twice as long as the last one.
    fn log_fills_up(&self) -> bool {
        if self.utilisation_percent() >= IN_USE_PERCENT {
            return true;
        }
        let Some(since) = self.windows.changed_since else { return false };
        let filled = self.log.newest_serial().0.saturating_sub(self.windows.cut.0);
        let left = u64::from(self.log.segments.usable());
        let (elapsed, twice) = (self.now.since(since).0, self.windows.took.0.saturating_mul(2));
        filled * FILLED_PART >= u64::from(self.log.segments.limit())
            && u128::from(left) * u128::from(elapsed) <= u128::from(twice) * u128::from(filled)
    }

    /// Whether a window whose oldest change came then should be on its way.
    fn window_is_due(&self, since: Time) -> bool {
        self.window_due_at(since) <= self.now
    }

    /// In time if it takes twice as long as the last one.
    fn window_due_at(&self, since: Time) -> Time {
        let within = self.config.ship_within.0;
        let ahead = self.windows.took.0.saturating_mul(2);
        let ahead = ahead.clamp(within / DUE_LATEST, within / DUE_EARLIEST);
        since.after(Duration(within - ahead))
    }

    /// A window under way cannot wait until it is quiet.
    pub(super) fn window_is_urgent(&self) -> bool {
        let Some(window) = self.windows.unfinished() else { return false };
        // Or the one behind it.
        let oldest = window.oldest_change.or(self.windows.changed_since);
        oldest.is_some_and(|since| self.window_is_due(since)) || self.log_fills_up()
    }

    /// Nor can it wait for whoever reads.
    pub(super) fn window_is_late(&self) -> bool {
        let Some(window) = self.windows.unfinished() else { return false };
        let late = |since: Time| since.after(self.config.ship_within) <= self.now;
        window.oldest_change.is_some_and(late)
    }

    pub(super) fn window_wake_up(&self) -> Option<Time> {
        if !self.ships_in_order() {
            return None;
        }
        let at = match self.windows.current.as_deref() {
            None if self.windows.is_first && self.may_cut() => Some(self.now.after(FIRST_AFTER)),
            None => self.windows.changed_since.map(|since| self.window_due_at(since)),
            Some(Window { step: Step::Keep { retry_at, .. }, .. }) => *retry_at,
            Some(window) => {
                let oldest = window.oldest_change.or(self.windows.changed_since);
                oldest.map(|since| self.window_due_at(since))
            }
        };
        at.filter(|at| *at > self.now)
    }

    /// Step 3 is over.
    fn is_shipped(&self) -> bool {
        let Some(window) = self.windows.unfinished() else { return false };
        if !self.destage.is_between_works()
            || self.health.has_late_writes()
            || !window.zeroes.is_empty()
            || !self.zeroes_destaging.is_empty()
        {
            return false;
        }
        // What is lost is never shipped.
        window.slots_left == 0 || window.slots_left == self.lost_slots_within(window.serial)
    }

    /// It is, and something may be on the data-disk that no flush covers.
    pub(super) fn window_wants_flush(&self) -> bool {
        let current = self.windows.current.as_deref();
        matches!(current, Some(Window { step: Step::Ship, .. }))
            && !self.health.data_disk_is_flushed()
            && self.is_shipped()
    }

    fn lost_slots_within(&self, serial: SegmentSerial) -> u64 {
        let lost = self.stuck_slots().into_iter();
        let within = lost.filter(|(index, _)| self.log.segments.get(*index).serial() <= serial);
        within.map(|(_, slots)| u64::from(slots)).sum()
    }

    /// Step 4. A data-disk that lacks something is no point of the order, and not kept.
    fn end_of_window(&mut self) {
        let window = self.windows.unfinished().expect("it is shipped");
        if !window.is_damaged && self.lost_lines() == 0 {
            return self.ask_to_keep(Some(ASK_AGAIN_MIN));
        }
        self.cut_anew_behind(window.serial);
    }

    fn cut_anew_behind(&mut self, serial: SegmentSerial) {
        let changed_since = self.windows.changed_since;
        self.cut_anew();
        // What is lost makes the next one no better: it waits for something to change. What was
        // lost and is written again does: who waits has the next one cut.
        self.windows.changed_since = changed_since;
        if self.lost_lines() > 0 {
            self.windows.ended = serial;
        }
        self.windows.not_kept += 1;
    }

    /// For the first time, with the wait if that fails; or again.
    fn ask_to_keep(&mut self, first_wait: Option<Duration>) {
        let now = self.now;
        let window = self.windows.current.as_mut().expect("it is shipped");
        let (since, wait) = match window.step {
            Step::Keep { since, wait, .. } => (since, wait),
            _ => (now, ASK_AGAIN_MIN),
        };
        let wait = first_wait.unwrap_or(wait);
        window.step = Step::Keep { since, retry_at: None, wait };
        let window = window.number.0;
        self.outputs.push_back(Output::KeepWindow { window });
    }

    /// Somebody may have mended what keeps windows.
    pub(super) fn ask_again_now(&mut self) {
        let now = self.now;
        if let Some(Window { step: Step::Keep { retry_at: Some(at), .. }, .. }) =
            self.windows.current.as_deref_mut()
        {
            *at = now;
        }
    }

    /// Step 5, or the same once more.
    pub(super) fn window_was_kept(&mut self, number: u64, is_kept: bool) {
        let now = self.now;
        let windows = &mut self.windows;
        // The engine may have been closed, or a driver may say it twice.
        let Some(window) = windows.current.as_mut().filter(|it| it.number.0 == number) else {
            return;
        };
        let Step::Keep { retry_at, wait, .. } = &mut window.step else { return };
        if !is_kept {
            windows.failures += 1;
            *retry_at = Some(now.after(*wait));
            *wait = Duration(wait.0 * 2).min(ASK_AGAIN_MAX);
            return;
        }
        let Window { number, serial, cut_at, .. } = **window;
        windows.current = None;
        windows.kept += 1;
        windows.failures = 0;
        windows.took = now.since(cut_at);
        windows.last_kept = Some((number, now));
        windows.ended = serial;
        windows.uncovered_since = windows.changed_since;
        self.destage.something_changed();
    }

    // ---- those who wait ------------------------------------------------------------------------

    /// All that was changed is in a window that was kept.
    pub(super) fn windows_are_over(&self) -> bool {
        let windows = &self.windows;
        !self.ships_in_order()
            || windows.current.is_none() && !windows.is_first && windows.changed_since.is_none()
    }

    /// Whether a drain that waits for these segments waits for a window, too.
    pub(super) fn waits_for_window(&self, serial: SegmentSerial) -> bool {
        self.ships_in_order() && self.windows.ended < serial
    }

    /// Whether it is waited for somebody who keeps the data-disk as it is, and has failed.
    pub(super) fn window_is_not_kept(&self) -> bool {
        let current = self.windows.current.as_deref();
        matches!(current, Some(Window { step: Step::Keep { retry_at: Some(_), .. }, .. }))
    }

    pub(super) fn window_report(&self) -> Option<WindowReport> {
        let windows = &self.windows;
        let current = windows.current.as_deref();
        let state = match current.map(|window| &window.step) {
            None => WindowState::Gathering,
            Some(Step::WaitDurable | Step::Ship) => WindowState::Shipping,
            Some(Step::Keep { since, retry_at, .. }) => {
                WindowState::Keeping { since: *since, retry_at: *retry_at }
            }
        };
        self.ships_in_order().then(|| WindowReport {
            state,
            window: current.map(|window| window.number.0),
            slots_left: current.map_or(0, |window| window.slots_left),
            kept_lines: current.map_or(0, |window| window.kept_lines.len() as u64),
            last_kept: windows.last_kept.map(|(number, at)| (number.0, at)),
            uncovered_since: windows.uncovered_since,
            kept: windows.kept,
            not_kept: windows.not_kept,
            failures: windows.failures,
        })
    }

    /// What must hold of the window; for tests and the fuzzer.
    ///
    /// # Panics
    /// If something does not hold.
    pub(super) fn check_window(&self) {
        let Some(window) = self.windows.current.as_deref() else { return };
        let slots = window.kept_lines.values().map(|pieces| pieces.as_slice().len());
        assert_eq!(slots.sum::<usize>(), window.kept_slots.len(), "kept slots are of kept lines");
        let segments = self.log.segments.iter();
        let within = segments.filter(|(_, segment)| segment.serial() <= window.serial);
        let left: u64 = within.map(|(_, segment)| u64::from(segment.live_slots)).sum();
        assert_eq!(window.slots_left, left, "slots that are left of the window");
    }
}

/// What does not go together with windows.
pub(super) fn why_not_in_order(config: &EngineConfig, is_volume: bool) -> Option<&'static str> {
    if config.destage_policy != DestagePolicyKind::Ordered {
        return None;
    }
    is_volume.then_some(
        "cannot be ordered on a volume: what its members hold means nothing without the tables on \
         the cache-disk",
    )
}
