//! The tier with bytes: a write is done when it is in memory that survives, before it is anywhere
//! else. [`Nvram`] decides what is where and what is cleaned; here are the bytes, and the order in
//! which they become durable.
//!
//! ```text
//! write  1. its blocks, with headers, into free slots;       persist
//!             Crash here: their sequence is above the commit word, so they never were.
//!        2. the commit word: the sequence of the batch;      persist
//!             Crash here: all of the batch is there, or nothing.
//!        3. reply
//!        4. the headers of the slots that it replaces are cleared; free when that is durable
//! clean  1. the newest committed bytes go below, and are durable there (FUA); where a part of a
//!           logical block of the disk is not in memory, with that part as it is below
//!        2. all that was cleared before is durable            persist, if there is something
//!             Else an older version could outlive the newest, and be shown over what is below.
//!        3. headers are cleared
//! past   large writes, zeroes, discards
//!        1. what they meet in memory is cleaned, and durably cleared
//!             Else a crash would show it over what is newer.
//!        2. below, durably; reply
//! read   the memory's blocks are copied when the read starts below, never when it ends: one that is
//!        cleaned meanwhile would come old from below
//! ```
//!
//! Everything below is asked for with FUA, so what left the memory is durable, and there is one
//! order: that of the commits (C9). The rules are those of the model that found them; each is a
//! mistake made on purpose in `dcd-mistakes`.
//!
//! - `slots`: which block is in which slot, and what is stored but not durable yet;
//! - `start`: whose memory it is, and what it holds;
//! - `requests`: the paths of requests, of batches and of cleaning;
//! - `presence`: a memory that comes, or goes, while requests are served;
//! - `end`: drains and the end;
//! - `picture`: what is on a medium, for people.
//!
//! What is below may not take what is cleaned. Then who waits for that is answered with its error,
//! and it is tried again; what has room in memory goes on.
//!
//! A medium that cannot be written any more takes no more changes: what it holds is read and
//! cleaned, and then nothing names it any more; changes wait for that, and go below.

mod end;
mod memory_medium;
mod picture;
mod presence;
mod requests;
mod slots;
mod start;

pub use memory_medium::MemoryMedium;
pub use picture::NvramPicture;
pub use presence::NvramPresence;
pub use start::{NvramOpenError, NvramStart};

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::groups::{LastAddress, Regions};
use super::{BelowId, BelowIo, ControlStatus, Nvram, NvramConfig, NvramCounters};
use crate::buffer::Buffer;
use crate::format::nvram::NvramIdentity;
use crate::io::{Operation, Reply, Request, RequestError, RequestId};
use crate::units::{Duration, LbaRange, Time, Uuid};
use end::{Closing, Draining};
use presence::Presence;
use slots::Slots;
use start::Opening;

/// Ids of requests of the tier's own have this bit; nobody else's may.
pub const OWN_REQUEST_BIT: u64 = 1 << 63;
/// So much of the room has to be taken before writes that are not worth it go past.
const TIGHT_PERCENT: u64 = 75;
/// A cleaning that failed is tried again after so long.
const RETRY_AFTER: Duration = Duration::from_millis(1000);

/// When a store is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediumPersist {
    /// At once, or with the fence that [`NvramMedium::fence`] makes.
    Now,
    /// When [`DurableOutput::Persist`] has been carried out, in whole sectors of so many bytes.
    Io {
        /// Size of a sector.
        sector_bytes: usize,
    },
}

/// The memory.
pub trait NvramMedium: Send {
    /// All of it.
    fn bytes(&self) -> &[u8];
    /// Stores bytes; a crash may tear them between words of 8 bytes.
    fn store(&mut self, at: usize, bytes: &[u8]);
    /// Stores 8 bytes, little-endian, at a multiple of 8, which no crash tears.
    fn store_word(&mut self, at: usize, word: u64);
    /// When a store is durable.
    fn persist(&self) -> MediumPersist;
    /// With [`MediumPersist::Now`], all stores until now are durable when this returns.
    fn fence(&mut self);
}

/// How the tier behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DurableConfig {
    /// Policy and thresholds. The capacity follows from the medium.
    pub nvram: NvramConfig,
    /// Blocks that are cleaned together.
    pub group_blocks: u64,
}

impl Default for DurableConfig {
    fn default() -> DurableConfig {
        DurableConfig { nvram: NvramConfig::default(), group_blocks: 128 }
    }
}

/// What the tier wants done.
#[derive(Debug)]
pub enum DurableOutput {
    /// Ask this of what is below. It is answered with [`DurableNvram::below_done`].
    Below(Request),
    /// A request has ended.
    Reply(Reply),
    /// Write these bytes of [`DurableNvram::medium`] to where they belong, and make them durable,
    /// and with them all that was written before. They do not change before
    /// [`DurableNvram::persist_done`].
    Persist(Vec<Range<usize>>),
}

/// What is known of the tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NvramStatus {
    /// Which medium, and how often it was started with.
    pub identity: NvramIdentity,
    /// Blocks that it may hold.
    pub capacity_blocks: u64,
    /// Blocks that it holds.
    pub blocks: u64,
    /// Those of them that are damaged.
    pub damaged_blocks: u64,
    /// Of the stack model.
    pub hot_zone_blocks: u64,
    /// What the policy has done.
    pub counters: NvramCounters,
    /// What is followed and why, if policy and thresholds follow the load.
    pub control: Option<ControlStatus>,
    /// Commits.
    pub commits: u64,
    /// Writes that were made durable by them.
    pub committed_writes: u64,
    /// Writes below that failed and are tried again.
    pub cleaning_failures: u64,
    /// Found and cleared by the start: of the batch that was under way.
    pub uncommitted_slots: u64,
    /// Found by the start with one bad copy of the header, and mended.
    pub mended_headers: u64,
    /// The medium takes no more writes.
    pub has_failed: bool,
    /// Whether requests go through it.
    pub presence: NvramPresence,
    /// Changes that wait until a medium that has failed is not named any more.
    pub held_changes: u64,
}

/// A write, from when [`Nvram`] has admitted it.
struct Write {
    id: RequestId,
    range: LbaRange,
    data: Buffer,
    /// How many changes had come when it did, with it.
    number: u64,
}

/// A request before it has been admitted, or while it is below.
enum Pending {
    /// With how many had come when it did, with it.
    Write {
        range: LbaRange,
        data: Buffer,
        number: u64,
    },
    Past {
        range: LbaRange,
        operation: Operation,
        number: u64,
    },
    Read {
        range: LbaRange,
        buffer: Buffer,
    },
}

/// A client's request below.
struct Asked {
    /// What [`Nvram`] calls it, if it knows of it.
    below: Option<BelowId>,
    range: LbaRange,
    kind: AskedKind,
}

enum AskedKind {
    /// The blocks that the memory had when it began, to be put over what comes.
    Read(Overlay),
    Past,
}

/// Blocks of the memory to be put over a read of what is below.
#[derive(Default)]
struct Overlay {
    /// Each, and whether it is good.
    blocks: Vec<(u64, bool)>,
    /// Of those that are.
    bytes: Vec<u8>,
}

/// A write of a cleaning.
struct Part {
    below: BelowId,
    run: LbaRange,
    /// What the memory has not of it is being read first.
    is_read: bool,
    /// What is below did not take it the last time.
    has_failed: bool,
    /// So many changes had come when it began.
    arrived: u64,
}

/// What is below did not take the last of what was cleaned.
#[derive(Clone, Copy)]
struct Trouble {
    error: RequestError,
    /// Changes up to this number have waited long enough for it.
    until: u64,
}

/// A cleaning under way.
struct Cleaning {
    io: BelowIo,
    parts_left: u32,
}

/// What waits for the persist under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Persisting {
    Nothing,
    Opening,
    /// What was cleared.
    Clears,
    /// The blocks of the batch.
    Data,
    /// Its commit word.
    Commit,
    /// That the heads are gone.
    Wipe,
}

/// The tier.
pub struct DurableNvram {
    nvram: Nvram,
    head: LastAddress,
    slots: Slots,
    identity: NvramIdentity,
    capacity_blocks: u64,
    batch_blocks_max: usize,
    now: Time,
    opening: Option<Opening>,
    /// The last sequence of the commit word.
    committed: u64,
    persisting: Persisting,
    /// The medium has failed.
    has_failed: bool,
    /// At the end, too, it is this cache's.
    keeps_heads: bool,
    presence: Presence,
    /// Requests that wait until a medium that has failed is not named any more, each with how many
    /// changes had come when it did.
    held: Vec<(u64, Request)>,
    /// What was asked of what is below before it came has ended.
    earlier_are_over: bool,
    /// The flush of one that comes, until it is answered, whatever has become of that.
    flush_to_join: Option<RequestId>,

    pending: BTreeMap<RequestId, Pending>,
    /// Writes that are admitted, oldest first.
    gathering: VecDeque<Write>,
    /// Those being made durable, and their slots in the same order.
    batch: Vec<Write>,
    batch_slots: Vec<u32>,
    batch_sequence: u64,
    /// Writes that were admitted, and that are committed or failed.
    admitted: u64,
    settled: u64,
    /// Reads of what is in memory as soon as so many writes are settled.
    reads_waiting: Vec<(u64, RequestId, LbaRange, Buffer)>,
    /// Changes that have come.
    arrived: u64,

    /// Cleanings, each behind the writes that were admitted before it: what goes below is committed.
    cleanings_waiting: VecDeque<(u64, BelowIo)>,
    cleanings: BTreeMap<BelowId, Cleaning>,
    parts: BTreeMap<RequestId, Part>,
    retries: Vec<(Time, Part)>,
    trouble: Option<Trouble>,
    own_requests: u64,
    /// Blocks that are clean, and to be removed.
    cleaned: Vec<u64>,
    /// Numbers of blocks so far that were cleaned, removed, and removed durably.
    cleaned_so_far: u64,
    removed_so_far: u64,
    persisting_removed: u64,
    removed_durably: u64,
    /// Requests past the memory, each until so many blocks are removed durably.
    pasts_waiting: VecDeque<(u64, BelowId, RequestId)>,
    /// Replies of such that met damaged blocks.
    replies_waiting: Vec<(u64, BelowId, Reply)>,
    asked: BTreeMap<RequestId, Asked>,
    replies_held: BTreeMap<RequestId, Reply>,

    drains: Vec<Draining>,
    /// Those that the engine goes on with.
    passed_drains: Vec<RequestId>,
    closing: Option<Closing>,
    spare_buffers: Vec<Buffer>,
    outputs: VecDeque<DurableOutput>,
    commits: u64,
    committed_writes: u64,
    cleaning_failures: u64,
    uncommitted_slots: u64,
    mended_headers: u64,
}

impl DurableNvram {
    /// Whether it may be asked: before, it only mends what it has found.
    pub fn is_open(&self) -> bool {
        self.opening.is_none()
    }

    /// What the superblock of a cache that is in use has to say.
    pub fn identity(&self) -> NvramIdentity {
        self.identity
    }

    /// The memory that [`DurableOutput::Persist`] speaks of.
    pub fn medium(&self) -> &[u8] {
        self.slots.medium.bytes()
    }

    /// A request of a client.
    pub fn request(&mut self, now: Time, request: Request) {
        self.now = now;
        assert!(request.id.0 & OWN_REQUEST_BIT == 0, "that bit is the tier's");
        self.take_request(request);
        self.advance();
    }

    /// Whether a write that is not worth the room is better done below (DHIS section 3.3.2): little
    /// is left of it, and nothing of the range is here.
    pub fn leaves_to_the_disk(&self, range: LbaRange) -> bool {
        self.slots.blocks() * 100 >= self.capacity_blocks * TIGHT_PERCENT && !self.may_hold(range)
    }

    /// A write goes past the memory, whatever its size.
    ///
    /// # Panics
    /// As [`DurableNvram::request`]; or if it is no write.
    pub fn write_past(&mut self, now: Time, request: Request) {
        self.now = now;
        assert!(request.id.0 & OWN_REQUEST_BIT == 0, "that bit is the tier's");
        self.take_write_past(request);
        self.advance();
    }

    /// What was asked of what is below has ended.
    ///
    /// # Panics
    /// If it was not asked.
    pub fn below_done(&mut self, now: Time, reply: Reply) {
        self.now = now;
        self.take_below_done(reply);
        self.advance();
    }

    /// [`DurableOutput::Persist`] was carried out, or failed.
    pub fn persist_done(&mut self, now: Time, is_ok: bool) {
        self.now = now;
        match is_ok {
            true => self.persisted(),
            false => self.medium_failed(),
        }
        self.advance();
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Time) {
        self.now = now;
        self.nvram.handle_input(now, super::NvramInput::Timeout, &self.head);
        self.advance();
    }

    /// What is to be done because of the inputs so far.
    pub fn poll_output(&mut self) -> Option<DurableOutput> {
        self.outputs.pop_front()
    }

    /// When [`DurableNvram::timeout`] is wanted, if nothing else happens.
    pub fn wake_up(&self) -> Option<Time> {
        let retry = self.retries.iter().map(|(at, _)| *at);
        retry.chain(self.nvram.wake_up()).min()
    }

    /// Whether some of the range is in memory, and so not zero for all that is known below. Bounded:
    /// of a large range it is said of any.
    pub fn may_hold(&self, range: LbaRange) -> bool {
        if self.is_out_of_use() {
            return false;
        }
        if range.blocks > self.slots.blocks() {
            return self.slots.blocks() > 0;
        }
        (range.start.0..range.end()).any(|block| self.slots.has(block))
    }

    /// Blocks that are nowhere else.
    pub fn blocks(&self) -> u64 {
        if self.is_out_of_use() { 0 } else { self.slots.blocks() }
    }

    /// What is known of it.
    pub fn status(&self) -> NvramStatus {
        NvramStatus {
            identity: self.identity,
            capacity_blocks: self.capacity_blocks,
            blocks: self.blocks(),
            damaged_blocks: self.slots.rotten().len() as u64,
            hot_zone_blocks: self.nvram.hot_zone_blocks(),
            counters: self.nvram.counters(),
            control: self.nvram.control(),
            commits: self.commits,
            committed_writes: self.committed_writes,
            cleaning_failures: self.cleaning_failures,
            uncommitted_slots: self.uncommitted_slots,
            mended_headers: self.mended_headers,
            has_failed: self.has_failed,
            presence: self.presence.word(),
            held_changes: self.held.len() as u64,
        }
    }

    fn with_slots(
        config: DurableConfig,
        slots: Slots,
        identity: NvramIdentity,
        batch_blocks_max: usize,
        damaged_slots: u64,
    ) -> DurableNvram {
        let left = slots.count() as u64 - batch_blocks_max as u64;
        let capacity_blocks = left.saturating_sub(damaged_slots).max(1);
        let nvram = NvramConfig { capacity_blocks, past_waits: true, ..config.nvram };
        DurableNvram {
            nvram: Nvram::new(nvram, Arc::new(Regions::new(config.group_blocks))),
            head: LastAddress::default(),
            slots,
            identity,
            capacity_blocks,
            batch_blocks_max,
            now: Time::ZERO,
            opening: None,
            committed: 0,
            persisting: Persisting::Nothing,
            has_failed: false,
            keeps_heads: false,
            presence: Presence::InUse,
            held: Vec::new(),
            earlier_are_over: true,
            flush_to_join: None,
            pending: BTreeMap::new(),
            gathering: VecDeque::new(),
            batch: Vec::new(),
            batch_slots: Vec::new(),
            batch_sequence: 0,
            admitted: 0,
            settled: 0,
            reads_waiting: Vec::new(),
            arrived: 0,
            cleanings_waiting: VecDeque::new(),
            cleanings: BTreeMap::new(),
            parts: BTreeMap::new(),
            retries: Vec::new(),
            trouble: None,
            own_requests: 0,
            cleaned: Vec::new(),
            cleaned_so_far: 0,
            removed_so_far: 0,
            persisting_removed: 0,
            removed_durably: 0,
            pasts_waiting: VecDeque::new(),
            replies_waiting: Vec::new(),
            asked: BTreeMap::new(),
            replies_held: BTreeMap::new(),
            drains: Vec::new(),
            passed_drains: Vec::new(),
            closing: None,
            spare_buffers: Vec::new(),
            outputs: VecDeque::new(),
            commits: 0,
            committed_writes: 0,
            cleaning_failures: 0,
            uncommitted_slots: 0,
            mended_headers: 0,
        }
    }

    fn reply(&mut self, id: RequestId, result: Result<(), RequestError>, buffer: Option<Buffer>) {
        let reply = Reply { id, result, buffer, answer: None };
        self.outputs.push_back(DurableOutput::Reply(reply));
    }
}

/// Most blocks of a batch, and so slots beyond the capacity; `None`: the medium is too small for
/// writes like these.
fn batch_blocks_max(slots: usize, bypass_blocks: u64) -> Option<usize> {
    let blocks = usize::try_from(bypass_blocks).ok()?.checked_mul(2)?;
    (blocks > 0 && blocks <= slots / 2).then_some(blocks)
}

/// A random id that is not 0.
fn is_id(id: Uuid) -> bool {
    id != Uuid([0; 16])
}
