//! The paths of a write, a read and a cleaning.
//!
//! ```text
//! write   1. behind an older one that waits? then it waits, too: writes keep their order.
//!         2. large: past the memory. No group that it touches is cleaned meanwhile, and its
//!            blocks leave the memory only when they have arrived below.
//!         3. room for the blocks that are not dirty yet? else it stalls, and groups are cleaned
//!            until there will be.
//!         4. into the memory; done.
//! read    all in memory: done. Else all of it from below; what the memory has of it is newer.
//! clean   above the high threshold, down to the low one, when the disk is idle.
//! ```
//!
//! What is written again while it is on its way to the disk stays dirty.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::directory::{Directory, GroupIndex};
use super::groups::{GroupMap, HeadPosition};
use super::hot_zone::HotZone;
use super::policy::{NvramPolicy, NvramPolicyKind};
use super::{
    BelowId, BelowIo, BelowPurpose, HotZoneSize, NvramConfig, NvramCounters, NvramInput,
    NvramOperation, NvramOutput, NvramReply, NvramRequest,
};
use crate::io::RequestId;
use crate::units::{Duration, Lba, LbaRange, Time};

/// Writes after which the size of the hot zone is looked at anew.
const HOT_ZONE_WRITES: u64 = 64;
/// Cleaning writes of which the disk's speed is the mean; twice as many at most.
const CLEANING_WRITES_REMEMBERED: u64 = 512;
/// Groups on their way to the disk, above which none is started because it is in somebody's way: so
/// much is done in one step.
const HURRIED_GROUPS_MAX: usize = 64;

/// The tier.
pub struct Nvram {
    config: NvramConfig,
    policy: Box<dyn NvramPolicy>,
    groups: Directory,
    hot_zone: Option<HotZone>,
    /// When the disk began to clean; none while it does not.
    cleaning_since: Option<Time>,
    /// How long it cleaned, and the writes that it did, of late.
    cleaning_time: Duration,
    cleaning_writes_done: u64,
    /// Writes that are not in memory yet, oldest first.
    waiting: VecDeque<Waiting>,
    below: BTreeMap<BelowId, BelowIo>,
    below_count: u64,
    /// Requests that the disk is working on.
    requests_below: u32,
    /// Since when the disk has had no request but for cleaning.
    quiet_since: Time,
    groups_being_cleaned: u32,
    /// The high threshold was passed, and the low one not reached yet.
    is_cleaning: bool,
    now: Time,
    outputs: VecDeque<NvramOutput>,
    counters: NvramCounters,
    runs: Vec<LbaRange>,
    in_the_way: Vec<GroupIndex>,
}

struct Waiting {
    request: NvramRequest,
    /// Past the memory, whatever its size.
    is_past: bool,
    /// Until something has left the memory, not for another request.
    waits_for_cleaning: bool,
    stalled_since: Option<Time>,
}

impl Waiting {
    fn new(request: NvramRequest, is_past: bool) -> Waiting {
        Waiting { request, is_past, waits_for_cleaning: false, stalled_since: None }
    }
}

impl Nvram {
    /// An empty memory.
    ///
    /// # Panics
    /// If it has no blocks, or the thresholds are not `low <= high <= 100`.
    pub fn new(config: NvramConfig, map: Arc<dyn GroupMap>) -> Nvram {
        assert!(config.capacity_blocks > 0 && config.groups_at_once > 0);
        assert!(config.low_percent <= config.high_percent && config.high_percent <= 100);
        let has_hot_zone = config.policy.hot_zone_blocks(0) != config.policy.hot_zone_blocks(1);
        let (hot_zone, hot_blocks) = match config.hot_zone {
            HotZoneSize::Percent(percent) => {
                (None, config.capacity_blocks * u64::from(percent.min(100)) / 100)
            }
            HotZoneSize::Found if has_hot_zone => {
                let mut hot_zone = HotZone::new(&config, map.clone());
                let best = hot_zone.best_blocks();
                (Some(hot_zone), best)
            }
            HotZoneSize::Found => (None, 0),
        };
        let mut groups = Directory::new(map);
        groups.set_hot_zone(config.policy.hot_zone_blocks(hot_blocks));
        if config.policy.wants_addresses() || config.past_waits {
            groups.keep_addresses();
        }
        if config.policy == NvramPolicyKind::Fifo {
            groups.keep_places();
        }
        Nvram {
            config,
            policy: config.policy.policy(),
            groups,
            hot_zone,
            cleaning_since: None,
            cleaning_time: Duration(0),
            cleaning_writes_done: 0,
            waiting: VecDeque::new(),
            below: BTreeMap::new(),
            below_count: 0,
            requests_below: 0,
            quiet_since: Time::ZERO,
            groups_being_cleaned: 0,
            is_cleaning: false,
            now: Time::ZERO,
            outputs: VecDeque::new(),
            counters: NvramCounters::default(),
            runs: Vec::new(),
            in_the_way: Vec::new(),
        }
    }

    /// The memory has held these blocks since before the start.
    pub fn restore(&mut self, now: Time, range: LbaRange) {
        self.now = now;
        self.groups.store(now, range);
    }

    /// Sends what is dirty on its way to the disk, hot or not, as far as that goes in one step: to
    /// be called until nothing is.
    pub fn clean_all(&mut self) {
        while (self.groups_being_cleaned as usize) < HURRIED_GROUPS_MAX {
            let Some(group) = self.groups.oldest() else { return };
            self.start_cleaning(group);
        }
    }

    /// The first in line, if it waits until something has been cleaned.
    pub fn waits_for_cleaning(&self) -> Option<RequestId> {
        let first = self.waiting.front().filter(|first| first.waits_for_cleaning);
        first.map(|first| first.request.id)
    }

    /// Whether a block is dirty.
    pub fn is_dirty(&self, block: Lba) -> bool {
        self.groups.dirty_in(LbaRange::new(block.0, 1)) > 0
    }

    /// What happened at `now`, which never goes back.
    ///
    /// # Panics
    /// If an I/O is told to be done that is not under way, or somebody leaves the line who is not
    /// its first.
    pub fn handle_input(&mut self, now: Time, input: NvramInput, head: &dyn HeadPosition) {
        self.now = now;
        match input {
            NvramInput::Request(request) => match request.operation {
                NvramOperation::Read => self.read(request),
                NvramOperation::Write => self.waiting.push_back(Waiting::new(request, false)),
            },
            NvramInput::Past(request) => {
                assert!(self.config.past_waits, "what it meets is cleaned first");
                self.waiting.push_back(Waiting::new(request, true));
            }
            NvramInput::BelowDone(id, ok) => self.below_done(id, ok),
            NvramInput::GiveUp(id) => {
                let first = self.waiting.pop_front();
                assert!(first.is_some_and(|first| first.request.id == id), "the first in line");
            }
            NvramInput::Timeout => {}
        }
        self.admit_writes(head);
        self.clean(head);
    }

    /// What is to be done because of the inputs so far.
    pub fn poll_output(&mut self) -> Option<NvramOutput> {
        self.outputs.pop_front()
    }

    /// When [`NvramInput::Timeout`] is wanted, if nothing else happens.
    pub fn wake_up(&self) -> Option<Time> {
        let waits_for_idle = self.is_cleaning
            && self.config.idle.0 > 0
            && self.requests_below == 0
            && !self.is_idle()
            && self.groups.staying_blocks() > self.low_blocks();
        waits_for_idle.then(|| self.quiet_since.after(self.config.idle))
    }

    /// What has happened.
    pub fn counters(&self) -> NvramCounters {
        self.counters
    }

    /// Blocks that the disk does not have yet.
    pub fn dirty_blocks(&self) -> u64 {
        self.groups.dirty_blocks()
    }

    /// Size of the hot zone, for the policy that has one.
    pub fn hot_zone_blocks(&self) -> u64 {
        self.groups.hot_zone_blocks()
    }

    /// The hit ratio by size, where the hot zone is looked for.
    pub fn hot_zone(&self) -> Option<&HotZone> {
        self.hot_zone.as_ref()
    }

    /// Walks through everything.
    ///
    /// # Panics
    /// If something is wrong.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        self.groups.check_invariants();
        assert!(self.groups.dirty_blocks() <= self.config.capacity_blocks);
        let of_requests = |io: &&BelowIo| io.purpose != BelowPurpose::Cleaning;
        assert_eq!(self.below.values().filter(of_requests).count(), self.requests_below as usize);
        assert!(self.waiting.is_empty() || !self.below.is_empty(), "nothing will end the wait");
    }

    // ---- a write ------------------------------------------------------------------------------

    fn admit_writes(&mut self, head: &dyn HeadPosition) {
        while let Some(first) = self.waiting.front() {
            let range = first.request.range;
            let overlaps = |io: &BelowIo| {
                io.purpose != BelowPurpose::Cleaning
                    && io.operation == NvramOperation::Write
                    && io.range.overlaps(range)
            };
            if self.requests_below > 0 && self.below.values().any(overlaps) {
                self.waiting[0].waits_for_cleaning = false;
                return;
            }
            let is_large =
                range.blocks > self.config.bypass_blocks.min(self.config.capacity_blocks);
            let is_past = is_large || first.is_past;
            let is_admitted = if is_past { self.bypass() } else { self.store(head) };
            if !is_admitted {
                self.waiting[0].waits_for_cleaning = true;
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// Step 2, for the first that waits.
    fn bypass(&mut self) -> bool {
        let request = self.waiting[0].request;
        if self.config.past_waits {
            // Nothing new can get there meanwhile: it would overlap with this.
            if self.is_in_the_way_of(request.range) {
                return false;
            }
        } else {
            if self.groups.is_being_cleaned(request.range) {
                // Else the older data could arrive after it.
                return false;
            }
            self.groups.start_bypass(request.range);
        }
        self.counters.bypasses += 1;
        self.start_below(NvramOperation::Write, request.range, BelowPurpose::Request(request.id));
        true
    }

    /// Whether the memory holds some of the range; that is sent on its way then.
    fn is_in_the_way_of(&mut self, range: LbaRange) -> bool {
        let mut groups = std::mem::take(&mut self.in_the_way);
        self.groups.dirty_groups_in(range, HURRIED_GROUPS_MAX, &mut groups);
        let is_in_the_way = !groups.is_empty();
        for group in groups.drain(..) {
            if self.groups.may_be_cleaned(group) {
                self.start_cleaning(group);
            }
        }
        self.in_the_way = groups;
        is_in_the_way
    }

    /// Steps 3 and 4, for the first that waits.
    fn store(&mut self, head: &dyn HeadPosition) -> bool {
        let request = self.waiting[0].request;
        let range = request.range;
        let new = range.blocks - self.groups.dirty_in(range);
        let most_dirty = self.config.capacity_blocks - new;
        if self.groups.dirty_blocks() > most_dirty {
            if self.waiting[0].stalled_since.is_none() {
                self.waiting[0].stalled_since = Some(self.now);
                self.counters.stalled_writes += 1;
            }
            self.make_room(most_dirty, head);
            return false;
        }
        let stored = self.groups.store(self.now, range);
        let counters = &mut self.counters;
        counters.writes += 1;
        counters.write_blocks += range.blocks;
        counters.overwritten_blocks += stored.overwritten_blocks;
        counters.overwrites += u64::from(stored.overwritten_blocks == range.blocks);
        self.look_for_hot_zone(range);
        let stalled_since = self.waiting[0].stalled_since;
        self.reply(NvramReply { id: request.id, ok: true, stalled_since, from_memory: true });
        true
    }

    /// Cleans without regard to anything else until no more than so many blocks will be dirty.
    fn make_room(&mut self, most_dirty: u64, head: &dyn HeadPosition) {
        while self.groups.staying_blocks() > most_dirty {
            // Rather a hot group than none.
            let chosen = self.policy.choose(&mut self.groups, head, self.now);
            let Some(group) = chosen.or_else(|| self.groups.oldest()) else { return };
            self.start_cleaning(group);
        }
    }

    fn look_for_hot_zone(&mut self, range: LbaRange) {
        let Some(hot_zone) = &mut self.hot_zone else { return };
        let write_time = Duration(self.cleaning_time.0 / self.cleaning_writes_done.max(1));
        hot_zone.written(self.now, range, write_time);
        if self.counters.writes.is_multiple_of(HOT_ZONE_WRITES) {
            self.groups.set_hot_zone(hot_zone.best_blocks());
        }
    }

    // ---- a read -------------------------------------------------------------------------------

    fn read(&mut self, request: NvramRequest) {
        let NvramRequest { id, range, .. } = request;
        if self.groups.dirty_in(range) == range.blocks {
            self.counters.read_hits += 1;
            return self.reply(NvramReply { id, ok: true, stalled_since: None, from_memory: true });
        }
        self.counters.read_misses += 1;
        self.start_below(NvramOperation::Read, range, BelowPurpose::Request(id));
    }

    // ---- cleaning -----------------------------------------------------------------------------

    fn clean(&mut self, head: &dyn HeadPosition) {
        let high = self.config.capacity_blocks * u64::from(self.config.high_percent) / 100;
        if !self.is_cleaning && self.groups.staying_blocks() > high {
            self.is_cleaning = true;
            self.counters.cleanings += 1;
        }
        while self.is_cleaning {
            if self.groups.staying_blocks() <= self.low_blocks() {
                self.is_cleaning = false;
                return;
            }
            if !self.is_idle() || self.groups_being_cleaned >= self.config.groups_at_once {
                return;
            }
            let Some(group) = self.policy.choose(&mut self.groups, head, self.now) else {
                // Only what is hot is left.
                self.is_cleaning = false;
                return;
            };
            self.start_cleaning(group);
        }
    }

    fn low_blocks(&self) -> u64 {
        self.config.capacity_blocks * u64::from(self.config.low_percent) / 100
    }

    fn is_idle(&self) -> bool {
        self.config.idle.0 == 0
            || self.requests_below == 0 && self.now.since(self.quiet_since) >= self.config.idle
    }

    fn start_cleaning(&mut self, group: GroupIndex) {
        let mut runs = std::mem::take(&mut self.runs);
        self.groups.start_cleaning(group, &mut runs);
        self.groups_being_cleaned += 1;
        self.cleaning_since.get_or_insert(self.now);
        self.counters.cleaned_groups += 1;
        self.counters.cleaning_writes += runs.len() as u64;
        for run in runs.drain(..) {
            self.counters.cleaning_blocks += run.blocks;
            self.start_below(NvramOperation::Write, run, BelowPurpose::Cleaning);
        }
        self.runs = runs;
    }

    // ---- below --------------------------------------------------------------------------------

    fn start_below(&mut self, operation: NvramOperation, range: LbaRange, purpose: BelowPurpose) {
        self.below_count += 1;
        let io = BelowIo { id: BelowId(self.below_count), operation, range, purpose };
        self.requests_below += u32::from(purpose != BelowPurpose::Cleaning);
        self.below.insert(io.id, io);
        self.outputs.push_back(NvramOutput::Below(io));
    }

    fn below_done(&mut self, id: BelowId, ok: bool) {
        let io = self.below.remove(&id).expect("an I/O that was started");
        match io.purpose {
            BelowPurpose::Cleaning => {
                let was_last = self.groups.cleaned(io.range, ok);
                self.groups_being_cleaned -= u32::from(was_last);
                self.note_cleaning_time();
            }
            BelowPurpose::Request(id) => {
                self.requests_below -= 1;
                self.quiet_since = self.now;
                if io.operation == NvramOperation::Write && !self.config.past_waits {
                    self.groups.bypassed(io.range, ok);
                }
                self.reply(NvramReply { id, ok, stalled_since: None, from_memory: false });
            }
        }
    }

    /// How long the disk takes for a write, while it cleans.
    fn note_cleaning_time(&mut self) {
        let Some(since) = self.cleaning_since else { return };
        self.cleaning_writes_done += 1;
        self.cleaning_time.0 += self.now.since(since).0;
        self.cleaning_since = (self.groups_being_cleaned > 0).then_some(self.now);
        if self.cleaning_writes_done >= CLEANING_WRITES_REMEMBERED {
            self.cleaning_writes_done /= 2;
            self.cleaning_time.0 /= 2;
        }
    }

    fn reply(&mut self, reply: NvramReply) {
        self.outputs.push_back(NvramOutput::Reply(reply));
    }
}
