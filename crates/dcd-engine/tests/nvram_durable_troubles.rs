//! The tier with bytes when something is wrong: a medium that is somebody else's, or damaged, or
//! not named any more, and a disk below that takes nothing. What crashes do is tried in `dcd-fuzz`.

#![allow(clippy::disallowed_types)] // what outlives a tier is shared with it, and a medium is Send

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use dcd_engine::format::nvram::{NVRAM_HEAD_OFFSETS, NvramIdentity, NvramLayout};
use dcd_engine::nvram::NvramConfig;
use dcd_engine::nvram::durable::{
    DurableConfig, DurableNvram, DurableOutput, MediumPersist, NvramMedium, NvramOpenError,
    NvramStart,
};
use dcd_engine::{
    Buffer, Duration, LbaRange, Operation, Reply, Request, RequestError, RequestId, Time, Uuid,
};

const BLOCKS: u64 = 1 << 16;
const SLOTS: u32 = 256;
const DEVICE: MediumPersist = MediumPersist::Io { sector_bytes: 512 };

/// What outlives the tier.
#[derive(Clone)]
struct Survivor(Arc<Mutex<Vec<u8>>>);

struct Medium {
    view: Vec<u8>,
    persist: MediumPersist,
    survivor: Survivor,
}

impl NvramMedium for Medium {
    fn bytes(&self) -> &[u8] {
        &self.view
    }

    fn store(&mut self, at: usize, bytes: &[u8]) {
        self.view[at..at + bytes.len()].copy_from_slice(bytes);
        if self.persist == MediumPersist::Now {
            self.survivor.0.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn store_word(&mut self, at: usize, word: u64) {
        self.store(at, &word.to_le_bytes());
    }

    fn persist(&self) -> MediumPersist {
        self.persist
    }

    fn fence(&mut self) {}
}

struct Site {
    survivor: Survivor,
    persist: MediumPersist,
    partner: Option<NvramIdentity>,
    unit_blocks: u64,
    may_be_lost: bool,
    tier: Option<DurableNvram>,
    below: VecDeque<Request>,
    replies: Vec<Reply>,
    /// Ranges that were made durable since the start.
    persisted: Vec<Range<usize>>,
    /// A persist stays under way.
    is_slow: bool,
    /// The superblock is not told yet.
    is_told_late: bool,
    now: Time,
    ids: u8,
}

impl Site {
    fn new(persist: MediumPersist) -> Site {
        let bytes = vec![0; NvramLayout { slots: SLOTS }.bytes() as usize];
        Site {
            survivor: Survivor(Arc::new(Mutex::new(bytes))),
            persist,
            partner: None,
            unit_blocks: 1,
            may_be_lost: false,
            tier: None,
            below: VecDeque::new(),
            replies: Vec::new(),
            persisted: Vec::new(),
            is_slow: false,
            is_told_late: false,
            now: Time::ZERO,
            ids: 0,
        }
    }

    fn change(&self, at: usize, bytes: &[u8]) {
        self.survivor.0.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn image(&self) -> Vec<u8> {
        self.survivor.0.lock().unwrap().clone()
    }

    fn open(&mut self) -> Result<DurableNvram, NvramOpenError> {
        self.ids += 1;
        let start = NvramStart {
            cache: Uuid([1; 16]),
            expected: self.partner,
            new_id: Uuid([self.ids; 16]),
            volume_blocks: BLOCKS,
            unit_blocks: self.unit_blocks,
            may_be_lost: self.may_be_lost,
        };
        let medium =
            Medium { view: self.image(), persist: self.persist, survivor: self.survivor.clone() };
        let nvram = NvramConfig { bypass_blocks: 32, ..NvramConfig::default() };
        let config = DurableConfig { nvram, group_blocks: 16 };
        DurableNvram::open(Time::ZERO, config, Box::new(medium), &start)
    }

    fn refused(&mut self) -> NvramOpenError {
        let before = self.image();
        let error = self.open().map(|_| ()).expect_err("it is refused");
        assert!(self.image() == before, "it was written to");
        error
    }

    fn start(&mut self) {
        let mut tier = self.open().unwrap();
        self.persisted.clear();
        tier.begin();
        self.tier = Some(tier);
        self.go_on();
        assert!(self.tier().is_open());
        self.partner = Some(self.tier().identity());
    }

    fn tier(&mut self) -> &mut DurableNvram {
        self.tier.as_mut().unwrap()
    }

    /// The superblock is told at once.
    fn next_output(&mut self) -> Option<DurableOutput> {
        let output = self.tier().poll_output();
        let (None, Some(which)) = (&output, self.tier().to_name()) else { return output };
        if self.is_told_late {
            return output;
        }
        self.tier().begin_naming();
        self.partner = which;
        let now = self.now;
        self.tier().named(now, Ok(()));
        self.tier().poll_output()
    }

    /// Persists at once; what is below waits.
    fn go_on(&mut self) {
        while let Some(output) = self.next_output() {
            match output {
                DurableOutput::Reply(reply) => self.replies.push(reply),
                DurableOutput::Below(request) => self.below.push_back(request),
                DurableOutput::Persist(ranges) => {
                    if self.is_slow {
                        continue;
                    }
                    self.persisted.extend(ranges.iter().cloned());
                    for range in ranges {
                        let bytes = self.tier().medium()[range.clone()].to_vec();
                        self.change(range.start, &bytes);
                    }
                    let now = self.now;
                    self.tier().persist_done(now, true);
                }
            }
        }
    }

    fn ask(&mut self, id: u64, operation: Operation) {
        let now = self.now;
        self.tier().request(now, Request { id: RequestId(id), operation, fua: false });
        self.go_on();
    }

    fn write(&mut self, id: u64, start: u64, blocks: u64) {
        let data = Buffer::copy_of(&vec![id as u8; blocks as usize * 512]);
        self.ask(id, Operation::Write { start: LbaRange::new(start, blocks).start, data });
    }

    fn read(&mut self, id: u64, start: u64, blocks: u64) {
        let range = LbaRange::new(start, blocks);
        self.ask(id, Operation::Read { range, buffer: Buffer::default() });
    }

    fn end_below(&mut self, result: Result<(), RequestError>) {
        let Request { id, operation, .. } = self.below.pop_front().expect("it is asked");
        let buffer = match operation {
            Operation::Read { range, mut buffer } => {
                buffer.set_zeroes(range.bytes() as usize);
                Some(buffer)
            }
            Operation::Write { data, .. } => Some(data),
            _ => None,
        };
        let now = self.now;
        self.tier().below_done(now, Reply { id, result, buffer, answer: None });
        self.go_on();
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
        let now = self.now;
        self.tier().timeout(now);
        self.go_on();
    }

    /// What a request was answered with, if it was.
    fn answer(&mut self, id: u64) -> Option<Result<(), RequestError>> {
        let at = self.replies.iter().position(|reply| reply.id == RequestId(id))?;
        Some(self.replies.remove(at).result)
    }

    /// Eight blocks at block 8, in memory, and the tier is gone.
    fn with_eight_blocks(persist: MediumPersist) -> Site {
        let mut site = Site::new(persist);
        site.start();
        site.write(1, 8, 8);
        assert_eq!(site.answer(1), Some(Ok(())));
        site
    }
}

fn both(test: impl Fn(MediumPersist)) {
    [MediumPersist::Now, DEVICE].into_iter().for_each(test);
}

#[test]
fn what_is_not_blank_in_any_place_is_not_overwritten() {
    let bytes = NvramLayout { slots: SLOTS }.bytes() as usize;
    // File systems have their superblocks there; the rest is for raw data.
    for at in [64 << 10, 68 << 10, 136 << 10, 100_000, bytes - 1] {
        let mut site = Site::new(DEVICE);
        site.change(at, b"x");
        assert!(matches!(site.refused(), NvramOpenError::NotEmpty { expected: None, .. }), "{at}");
        site.may_be_lost = true;
        assert!(matches!(site.refused(), NvramOpenError::NotEmpty { .. }), "{at}: is not ours");
    }
}

/// Stopped in order it is anybody's, although its slots hold what was in them; but not with
/// something new behind its old heads.
#[test]
fn a_wiped_memory_is_blank_until_somebody_else_has_it() {
    both(|persist| {
        let mut site = Site::with_eight_blocks(persist);
        site.ask(2, Operation::Shutdown);
        while !site.below.is_empty() {
            site.end_below(Ok(()));
        }
        assert_eq!(site.answer(2), Some(Ok(())));
        site.partner = None;
        let image = site.image();
        assert!(image[64 << 10..].iter().any(|byte| *byte != 0));
        site.change(NvramLayout::header_at(200, 1), b"_BHRfS_M");
        assert!(matches!(site.refused(), NvramOpenError::NotEmpty { .. }));
        site.change(0, &image);
        site.start();
        assert_eq!(site.tier().blocks(), 0);
    });
}

/// An older superblock names no memory.
#[test]
fn a_memory_with_blocks_is_made_empty_only_if_they_may_be_lost() {
    both(|persist| {
        let mut site = Site::with_eight_blocks(persist);
        site.partner = None;
        let error = site.refused();
        assert_eq!(error, NvramOpenError::Unnamed { blocks: 8 });
        assert!(error.is_loss());
        site.may_be_lost = true;
        let before = site.image();
        let tier = site.open().unwrap();
        assert!(site.image() == before, "nothing is lost before all else has been looked at");
        drop(tier);
        site.start();
        assert_eq!(site.tier().blocks(), 0);
    });
}

#[test]
fn heads_without_magic_are_no_reason_to_wipe() {
    let mut site = Site::with_eight_blocks(DEVICE);
    NVRAM_HEAD_OFFSETS.iter().for_each(|at| site.change(*at as usize, b"damaged!"));
    let error = site.refused();
    assert!(matches!(error, NvramOpenError::NotEmpty { expected: Some(_), .. }), "{error}");
    assert!(!error.is_loss(), "what it is is not known");
}

#[test]
fn one_that_was_made_longer_or_shorter_says_its_size() {
    let mut site = Site::with_eight_blocks(DEVICE);
    let expected = NvramLayout { slots: SLOTS }.bytes();
    site.survivor.0.lock().unwrap().resize(1 << 20, 0);
    let error = site.refused();
    assert_eq!(error, NvramOpenError::Resized { expected, found: 1 << 20 });
    assert!(!error.is_loss());
    let half = NvramLayout { slots: SLOTS / 2 }.bytes();
    site.survivor.0.lock().unwrap().truncate(half as usize);
    let error = site.refused();
    assert_eq!(error, NvramOpenError::Resized { expected, found: half });
    assert!(error.is_loss());
}

#[test]
fn a_slot_without_a_header_refuses_the_memory_if_no_crash_explains_it() {
    both(|persist| {
        let mut site = Site::with_eight_blocks(persist);
        [0, 1].iter().for_each(|copy| site.change(NvramLayout::header_at(3, *copy) + 8, &[0xee]));
        let error = site.refused();
        assert_eq!(error, NvramOpenError::Damaged { slots: 1 }, "{persist:?}");
        site.may_be_lost = true;
        site.start();
        assert_eq!(site.tier().blocks(), 0);
    });
}

/// Of the batch under way: the sequence of a header is above the commit word.
#[test]
fn headers_that_a_crash_has_torn_are_of_nothing() {
    for (persist, is_taken) in [(MediumPersist::Now, true), (DEVICE, false)] {
        let mut site = Site::with_eight_blocks(persist);
        let torn = [&2u64.to_le_bytes()[..], &[0xee; 8]].concat();
        [0, 1].iter().for_each(|copy| site.change(NvramLayout::header_at(100, *copy), &torn));
        if !is_taken {
            // Sectors of a device are not torn.
            assert_eq!(site.refused(), NvramOpenError::Damaged { slots: 1 });
            continue;
        }
        site.start();
        assert_eq!((site.tier().blocks(), site.tier().status().uncommitted_slots), (8, 1));
    }
}

#[test]
fn the_last_start_that_can_be_counted_is_not_the_last() {
    let mut site = Site::with_eight_blocks(DEVICE);
    let NvramIdentity { id, .. } = site.partner.unwrap();
    let last = NvramIdentity { id, generation: (1 << 62) - 1 };
    let head =
        dcd_engine::format::nvram::NvramHead { cache: Uuid([1; 16]), identity: last, slots: SLOTS };
    NVRAM_HEAD_OFFSETS.iter().for_each(|at| site.change(*at as usize, head.encode().bytes()));
    site.partner = Some(last);
    for _ in 0..3 {
        site.start();
        assert_eq!(site.tier().blocks(), 8);
    }
}

/// What is below takes whole logical blocks only: one with a rotten part stays, as a whole.
#[test]
fn a_logical_block_rots_as_a_whole() {
    both(|persist| {
        for at_run_time in [false, true] {
            let mut site = Site::new(persist);
            site.unit_blocks = 8;
            site.start();
            site.write(1, 0, 24);
            if !at_run_time {
                site.change(NvramLayout::slot_at(10) + 5, &[0xee]);
                site.start();
                assert_eq!(site.tier().status().damaged_blocks, 8);
            }
            site.ask(2, Operation::Drain);
            let ranges: Vec<_> = site.below.iter().map(range_of).collect();
            let expected = match at_run_time {
                true => vec![LbaRange::new(0, 16), LbaRange::new(16, 8)],
                false => vec![LbaRange::new(0, 8), LbaRange::new(16, 8)],
            };
            assert_eq!(ranges, expected, "group by group");
        }
    });
}

fn range_of(request: &Request) -> LbaRange {
    match &request.operation {
        Operation::Write { start, data } => LbaRange::new(start.0, data.len() as u64 / 512),
        other => panic!("{other:?}"),
    }
}

/// Filled over a disk with blocks of 512 bytes, or a crash was in the middle of clearing: what is
/// missing of a logical block is as it is below.
#[test]
fn a_part_of_a_logical_block_is_cleaned_with_the_rest_of_it() {
    both(|persist| {
        let mut site = Site::new(persist);
        site.start();
        site.write(1, 8, 8);
        site.write(2, 17, 1);
        site.write(3, 22, 1);
        site.unit_blocks = 8;
        site.start();
        assert_eq!(site.tier().blocks(), 10);
        site.read(4, 16, 8);
        site.end_below(Ok(()));
        let read = site.replies.pop().unwrap();
        assert_eq!(read.id, RequestId(4));
        let expected = [0, 2, 0, 0, 0, 0, 3, 0].map(|byte| [byte; 512]).concat();
        assert!(read.buffer.unwrap().bytes() == expected, "what is below is zero");
        site.ask(5, Operation::Drain);
        let at = site.below.iter().position(|it| matches!(it.operation, Operation::Read { .. }));
        let read = site.below.remove(at.expect("the rest is read first")).unwrap();
        site.below.push_front(read);
        site.end_below(Ok(()));
        let written = site.below.back().unwrap();
        assert_eq!(range_of(written), LbaRange::new(16, 8));
        let Operation::Write { data, .. } = &written.operation else { unreachable!() };
        assert!(written.fua && data.bytes() == expected);
        site.end_below(Ok(()));
        site.end_below(Ok(()));
        assert_eq!(site.tier().blocks(), 0);
    });
}

/// A detach gives up what somebody has accepted, and nothing else.
#[test]
fn a_detach_gives_up_damaged_blocks_that_are_accepted() {
    for is_accepted in [false, true] {
        let mut site = Site::with_eight_blocks(DEVICE);
        site.change(NvramLayout::slot_at(2) + 5, &[0xee]);
        site.start();
        let lost = site.tier().lost();
        assert_eq!(lost, [LbaRange::new(10, 1)]);
        let lost = if is_accepted { lost } else { vec![LbaRange::new(11, 1)] };
        site.ask(2, Operation::DetachAccepting { lost });
        while site.below.len() > 1 {
            site.end_below(Ok(()));
        }
        while matches!(site.below[0].operation, Operation::Write { .. }) {
            site.end_below(Ok(()));
        }
        let is_detach = matches!(site.below[0].operation, Operation::DetachAccepting { .. });
        assert_eq!(is_detach, is_accepted);
        assert_eq!(site.tier().holds_data(), !is_accepted);
        site.end_below(Ok(()));
        let expected = if is_accepted { Ok(()) } else { Err(RequestError::Lost { lines: 1 }) };
        assert_eq!(site.answer(2), Some(expected));
    }
}

/// What has left the memory does not come back, though its heads stay.
#[test]
fn what_left_the_memory_is_durably_gone_before_the_end() {
    both(|persist| {
        let mut site = Site::with_eight_blocks(persist);
        site.tier().keep_heads();
        site.ask(2, Operation::Detach);
        site.end_below(Ok(()));
        assert!(matches!(site.below[0].operation, Operation::Detach));
        site.start();
        assert_eq!(site.tier().blocks(), 0, "as another dcd would find it now");
    });
}

/// What is read need not be durable, where a flush failed: also of slots that look free.
#[test]
fn a_start_on_a_device_writes_all_headers_again_that_were_in_use() {
    let mut site = Site::with_eight_blocks(DEVICE);
    site.write(2, 8, 8);
    site.start();
    let is_written = |at: usize| site.persisted.iter().any(|range| range.contains(&at));
    for copy in [0, 1] {
        for slot in [0, 7, 8, 15] {
            assert!(is_written(NvramLayout::header_at(slot, copy)), "slot {slot}, copy {copy}");
        }
        assert!(!is_written(NvramLayout::header_at(200, copy)), "it was never in use");
    }
}

/// C22: without the memory they would fail, too. What needs nothing of the disk goes on.
#[test]
fn who_waits_for_a_disk_that_takes_nothing_gets_its_error() {
    let mut site = Site::with_eight_blocks(DEVICE);
    // Past the memory, over what is in it.
    site.write(2, 0, 64);
    assert_eq!(site.answer(2), None, "what it meets is cleaned first");
    site.end_below(Err(RequestError::Io));
    assert_eq!(site.answer(2), Some(Err(RequestError::Io)));
    site.write(3, 100, 8);
    assert_eq!(site.answer(3), Some(Ok(())), "there is room");
    site.write(4, 0, 64);
    assert_eq!(site.answer(4), Some(Err(RequestError::Io)), "at once");
    // The next try is made all the same, and then all is well.
    site.pass(Duration::from_secs(1));
    site.end_below(Ok(()));
    site.write(5, 0, 64);
    site.end_below(Ok(()));
    assert_eq!(site.answer(5), Some(Ok(())));
}

/// C25: the disk has waited for room as long as it may, and with it who had come by then.
#[test]
fn who_waits_for_a_full_disk_waits_as_long_as_the_disk() {
    let mut site = Site::with_eight_blocks(DEVICE);
    site.write(2, 0, 64);
    site.write(3, 8, 64);
    site.end_below(Err(RequestError::NoSpace));
    assert_eq!(site.answer(2), Some(Err(RequestError::NoSpace)), "the cleaning began for it");
    assert_eq!(site.answer(3), None, "it came later");
    site.pass(Duration::from_secs(1));
    site.end_below(Err(RequestError::NoSpace));
    assert_eq!(site.answer(3), Some(Err(RequestError::NoSpace)));
}

/// A full memory over a disk that takes nothing.
#[test]
fn a_full_memory_is_no_place_to_wait_for_ever() {
    let mut site = Site::new(MediumPersist::Now);
    site.start();
    let mut full = 0;
    for id in 1..40 {
        site.write(id, id * 16, 16);
        while !site.below.is_empty() {
            site.end_below(Err(RequestError::Io));
        }
        full += u64::from(site.answer(id).expect("it is answered").is_err());
    }
    assert!(full > 0 && full < 39, "{full}");
    site.write(50, 16, 16);
    assert_eq!(site.answer(50), Some(Ok(())), "over what is in memory");
}

/// One place that cannot be written fails who has to get past it, and nobody else.
#[test]
fn one_bad_place_below_does_not_fail_who_waits_for_room() {
    let mut site = Site::new(MediumPersist::Now);
    site.start();
    let is_bad = |request: &Request| range_of(request).overlaps(LbaRange::new(16, 16));
    let mut waited = 0;
    for id in 1..100 {
        site.write(id, id * 16, 16);
        if site.answer(id).is_some_and(|result| result.is_ok()) {
            continue;
        }
        waited += 1;
        // The bad one first, which is the worst for who waits.
        while let Some(at) = site.below.iter().position(is_bad) {
            site.below.swap(0, at);
            site.end_below(Err(RequestError::Io));
        }
        while !site.below.is_empty() {
            site.end_below(Ok(()));
        }
        assert_eq!(site.answer(id), Some(Ok(())), "write {id}");
        site.pass(Duration::from_millis(300));
    }
    assert!(waited > 5, "it was full: {waited}");
    // Past the memory, over the bad place.
    site.write(100, 0, 64);
    while !site.below.is_empty() {
        let result = if is_bad(&site.below[0]) { Err(RequestError::Io) } else { Ok(()) };
        site.end_below(result);
    }
    assert_eq!(site.answer(100), None, "the bad place is tried again first");
    site.pass(Duration::from_secs(1));
    site.end_below(Err(RequestError::Io));
    assert_eq!(site.answer(100), Some(Err(RequestError::Io)));
}

/// A memory that has failed goes, and who waits for it waits for that; not for ever.
#[test]
fn who_waits_for_a_memory_that_has_failed_waits_until_it_is_gone() {
    let failing = || {
        let mut site = Site::with_eight_blocks(DEVICE);
        site.is_slow = true;
        site.write(2, 40, 8);
        site.write(3, 0, 64);
        let waits = (None, None);
        assert_eq!((site.answer(2), site.answer(3)), waits, "what it meets is cleaned first");
        let now = site.now;
        site.tier().persist_done(now, false);
        site.go_on();
        assert_eq!((site.answer(2), site.answer(3)), waits, "a start would believe the memory");
        assert!(site.tier().holds_changes() && site.partner.is_some());
        site.read(4, 8, 8);
        assert_eq!(site.answer(4), Some(Ok(())), "it is read as before");
        site
    };
    let mut site = failing();
    while !site.below.is_empty() {
        site.end_below(Ok(()));
    }
    assert_eq!((site.answer(2), site.answer(3)), (Some(Ok(())), Some(Ok(()))));
    assert!(site.partner.is_none() && site.tier().is_gone());

    let mut site = failing();
    let now = site.now;
    site.tier().fail_held(now);
    site.go_on();
    let failed = Some(Err(RequestError::Io));
    assert_eq!((site.answer(2), site.answer(3)), (failed, failed), "long enough");

    let mut site = failing();
    site.end_below(Err(RequestError::NoSpace));
    let failed = Some(Err(RequestError::NoSpace));
    assert_eq!((site.answer(2), site.answer(3)), (failed, failed), "below takes nothing either");
}

/// Its flush is answered to whoever has asked, and to nobody else: not to the next one that comes.
#[test]
fn one_that_is_wanted_no_more_is_not_gone_before_its_flush_has_ended() {
    let mut site = Site::new(DEVICE);
    let mut tier = site.open().unwrap();
    tier.begin_on_line(RequestId(1));
    site.tier = Some(tier);
    site.go_on();
    assert!(site.below.is_empty(), "others were asked for something before");
    let now = site.now;
    site.tier().earlier_have_ended(now);
    site.go_on();
    assert!(matches!(site.below[0].operation, Operation::Flush));
    site.ask(2, Operation::CancelNvramChange { change: RequestId(1) });
    assert_eq!(
        (site.answer(1), site.answer(2)),
        (Some(Err(RequestError::Cancelled)), Some(Ok(())))
    );
    assert!(!site.tier().is_gone(), "the flush is under way");
    site.write(3, 0, 8);
    site.end_below(Ok(()));
    assert!(site.tier().is_gone());
    site.end_below(Ok(()));
    assert_eq!(site.answer(3), Some(Ok(())), "it passes");
    assert!(site.partner.is_none());
}

/// Until the superblock is being told, whoever ends or cancels it does so at once.
#[test]
fn one_that_cannot_be_named_yet_can_be_given_up() {
    for is_cancelled in [true, false] {
        let mut site = Site::with_eight_blocks(DEVICE);
        site.is_told_late = true;
        site.ask(2, Operation::RemoveNvram);
        while !site.below.is_empty() {
            site.end_below(Ok(()));
        }
        assert_eq!(site.tier().to_name(), Some(None), "it is empty");
        if is_cancelled {
            site.ask(3, Operation::CancelNvramChange { change: RequestId(2) });
            assert_eq!(site.answer(2), Some(Err(RequestError::Cancelled)));
            site.write(4, 0, 8);
            assert_eq!(site.answer(4), Some(Ok(())), "it is used again");
            continue;
        }
        site.ask(3, Operation::Shutdown);
        assert_eq!(site.answer(2), Some(Err(RequestError::ShuttingDown)));
        site.end_below(Ok(()));
        assert_eq!(site.answer(3), Some(Ok(())));
    }
}
