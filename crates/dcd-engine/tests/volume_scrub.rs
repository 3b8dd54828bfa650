//! Scrubs by time: begun when they are due, resumed where they were, set aside for what is more
//! urgent, and recorded.

#[path = "common/volume.rs"]
mod bench;

use bench::*;
use dcd_engine::units::MemberIndex;
use dcd_engine::volume::WorkKind;
use dcd_engine::volume::format::area::VolumeArea;
use dcd_engine::volume::format::page::{PAGE_CONTENT_BYTES, PageIndex};
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::{
    Buffer, Device, Duration, Input, IoError, Lba, LbaRange, Operation, VolumeRequest,
};

const EVERY: Duration = Duration::from_secs(1000);
const SETTLED: Duration = Duration::from_secs(10);
const TODAY: u64 = 1_700_000_000;

/// Something is in each stripe.
fn new_bench() -> Bench {
    let set = set(RaidLevel::Raid1, 4, 2, 0, 16 << 10);
    let mut bench = Bench::new(config(4, vec![set], 16 << 10));
    for line in (0..bench.lines()).step_by(4) {
        bench.write(line, 1);
    }
    bench.drain();
    bench.close();
    bench.scrub_every = EVERY;
    bench.calendar = Some(TODAY);
    bench.open(false);
    bench
}

/// A line of the first set is not what it was.
fn rot(bench: &mut Bench, stripe: u64) {
    let member = bench.members[1].as_mut().unwrap();
    let at = (MIB + stripe * (16 << 10)) as usize;
    member[at] ^= 1;
}

fn scrubs(bench: &Bench) -> dcd_engine::volume::status::ScrubsStatus {
    bench.volume().status().scrubs
}

fn ended(bench: &Bench) -> u64 {
    bench.volume().status().counters.scrubs_ended
}

/// Members answer no more until they are let go.
fn hold_members(bench: &mut Bench) {
    bench.held = Some(Vec::new());
}

/// What members have done up to now is told.
fn let_go_once(bench: &mut Bench) {
    for done in bench.held.replace(Vec::new()).unwrap() {
        bench.input(done);
    }
}

fn let_all_go(bench: &mut Bench) {
    for done in bench.held.take().unwrap() {
        bench.input(done);
    }
}

/// One is under way, and has read a part, for longer than is waited until that is recorded.
fn under_way() -> Bench {
    let mut bench = new_bench();
    bench.pass_in_steps(Duration::from_secs(990));
    hold_members(&mut bench);
    for _ in 0..9 {
        bench.pass(Duration::from_secs(9));
        let_go_once(&mut bench);
    }
    assert!(bench.volume().status().work.is_some_and(|work| work.is_by_time));
    let place = scrubs(&bench).record.unfinished.unwrap();
    assert!(place.set == 0 && place.stripe > 20, "{place:?}");
    bench
}

#[test]
fn one_begins_when_it_is_due_and_finds_what_has_rotted() {
    let mut bench = new_bench();
    assert_eq!(scrubs(&bench).due, Some(TODAY + 1000));
    rot(&mut bench, 2);
    bench.pass_in_steps(Duration::from_secs(990));
    assert_eq!((ended(&bench), scrubs(&bench).record.ended), (0, 0));
    bench.pass_in_steps(Duration::from_secs(20));
    bench.until_idle();
    assert_eq!(ended(&bench), 1);
    let last = bench.volume().status().last_work.unwrap();
    assert!(last.is_by_time && last.mismatches == 1 && !last.is_cut_short, "{last:?}");
    let record = scrubs(&bench).record;
    assert_eq!(record.found, 1);
    assert!((TODAY + 1000..TODAY + 1012).contains(&record.ended), "{record:?}");
    // What was found is known behind a crash, and the next is not due.
    bench.open(false);
    assert_eq!(scrubs(&bench).record, record);
    bench.pass_in_steps(Duration::from_secs(900));
    assert_eq!(ended(&bench), 0);
}

#[test]
fn without_the_time_or_a_wish_there_is_none() {
    let mut bench = new_bench();
    bench.calendar = None;
    bench.open(false);
    bench.pass_in_steps(Duration::from_secs(1500));
    assert_eq!((ended(&bench), scrubs(&bench).due), (0, None));
    (bench.calendar, bench.scrub_every) = (Some(TODAY + 100_000), Duration(0));
    bench.open(false);
    bench.pass_in_steps(Duration::from_secs(1500));
    assert_eq!((ended(&bench), scrubs(&bench).due), (0, None));
}

// A cache that is started anew each day would never come to the end of one.
#[test]
fn one_goes_on_where_it_was_when_dcd_ended() {
    for is_in_order in [true, false] {
        let mut bench = under_way();
        let place = scrubs(&bench).record.unfinished.unwrap();
        if is_in_order {
            let id = bench.start(Operation::Shutdown);
            while !bench.replies.contains_key(&id) {
                bench.pass(Duration::from_millis(10));
                let_go_once(&mut bench);
            }
        }
        bench.held = None;
        // What was read is not read once more.
        rot(&mut bench, 1);
        rot(&mut bench, 200);
        bench.calendar = Some(TODAY + 1100);
        bench.open(false);
        let found = scrubs(&bench).record.unfinished.unwrap();
        assert!(found.stripe > 10 && found.stripe < 150, "{found:?} {place:?}");
        assert_eq!(found.began, place.began);
        bench.pass(SETTLED);
        bench.until_idle();
        let record = scrubs(&bench).record;
        assert_eq!((record.unfinished, record.found), (None, 1));
        assert_eq!(bench.volume().status().last_work.unwrap().mismatches, 1);
    }
}

#[test]
fn whatever_else_is_wanted_goes_first() {
    let mut bench = under_way();
    let member = MemberIndex(2);
    bench.start(Operation::Volume(VolumeRequest::FailMember { member }));
    bench.start(Operation::Volume(VolumeRequest::Rebuild { member }));
    let status = bench.volume().status();
    assert_eq!(status.work.map(|work| work.kind), Some(WorkKind::Rebuild(member)));
    assert!(status.scrubs.record.unfinished.is_some_and(|it| !it.is_put_off));
    let_all_go(&mut bench);
    bench.until_idle();
    assert_eq!(bench.volume().status().members[2].state, MemberState::UpToDate);
    // Then it goes on.
    assert_eq!((ended(&bench), scrubs(&bench).record.unfinished), (1, None));
}

// Somebody who begins one by hand wants all of it read, and is not told that one is under way
// which nobody has asked for.
#[test]
fn one_by_hand_takes_the_place_of_one_by_time() {
    for (request, stripes) in [(VolumeRequest::Scrub, 0..9), (VolumeRequest::ResumeScrub, 20..200)]
    {
        let mut bench = under_way();
        bench.start(Operation::Volume(request));
        let status = bench.volume().status();
        assert!(status.work.is_some_and(|work| !work.is_by_time));
        let place = status.scrubs.record.unfinished.unwrap();
        assert!(stripes.contains(&place.stripe), "{place:?}");
        let_all_go(&mut bench);
        bench.until_idle();
        assert_eq!(ended(&bench), 1);
        assert_eq!(scrubs(&bench).due, Some(scrubs(&bench).record.ended + 1000));
    }
}

#[test]
fn one_that_is_cancelled_goes_on_when_the_next_is_due() {
    let mut bench = under_way();
    bench.start(Operation::Volume(VolumeRequest::CancelWork));
    let_all_go(&mut bench);
    bench.until_idle();
    let place = scrubs(&bench).record.unfinished.unwrap();
    assert!(place.is_put_off && place.stripe > 20, "{place:?}");
    bench.close();
    bench.calendar = Some(TODAY + 1100);
    bench.open(false);
    assert_eq!(scrubs(&bench).record.unfinished, Some(place));
    bench.pass_in_steps(Duration::from_secs(900));
    assert_eq!((ended(&bench), scrubs(&bench).record.unfinished), (0, Some(place)));
    bench.pass_in_steps(Duration::from_secs(110));
    bench.until_idle();
    assert_eq!((ended(&bench), scrubs(&bench).record.unfinished), (1, None));
}

#[test]
fn none_begins_while_a_member_is_away() {
    let mut bench = new_bench();
    bench.volume_request(VolumeRequest::FailMember { member: MemberIndex(2) }).unwrap();
    bench.pass_in_steps(Duration::from_secs(1200));
    assert!(scrubs(&bench).waits_for_members);
    assert!(bench.volume().status().work.is_none());
    bench.volume_request(VolumeRequest::Rebuild { member: MemberIndex(2) }).unwrap();
    bench.until_idle();
    bench.pass(Duration::from_millis(100));
    bench.until_idle();
    assert_eq!(ended(&bench), 1);
}

// It is wanted by itself until that is over; else it would begin again at once.
#[test]
fn one_that_is_cancelled_and_then_in_the_way_is_still_cancelled() {
    let mut bench = under_way();
    bench.start(Operation::Volume(VolumeRequest::CancelWork));
    bench.start(Operation::Volume(VolumeRequest::FailMember { member: MemberIndex(2) }));
    bench.start(Operation::Volume(VolumeRequest::Rebuild { member: MemberIndex(2) }));
    assert!(scrubs(&bench).record.unfinished.unwrap().is_put_off);
    let_all_go(&mut bench);
    bench.until_idle();
    assert_eq!(bench.volume().status().members[2].state, MemberState::UpToDate);
    bench.pass_in_steps(Duration::from_secs(100));
    assert!(scrubs(&bench).record.unfinished.unwrap().is_put_off);
    assert_eq!(ended(&bench), 0);
}

#[test]
fn what_has_no_checksums_any_more_is_passed_by_and_told() {
    for is_by_hand in [false, true] {
        let mut bench = new_bench();
        bench.close();
        let superblock = bench.superblock();
        let area = VolumeArea::of(&bench.header, superblock.volume_offset()).unwrap();
        // The first behind the map and the extents.
        let leaf = (0..).find(|page| area.children(PageIndex(*page)).is_empty()).unwrap();
        let extents = bench.header.config.extents().div_ceil(PAGE_CONTENT_BYTES as u64 / 8);
        for second in [false, true] {
            let page = PageIndex(leaf + extents as u32);
            bench.cache_disk[area.page_offset(page, second) as usize + 100] ^= 1;
        }
        bench.open(false);
        if is_by_hand {
            bench.volume_request(VolumeRequest::Scrub).unwrap();
        } else {
            bench.pass_in_steps(Duration::from_secs(1010));
        }
        bench.until_idle();
        let status = bench.volume().status();
        let last = status.last_work.unwrap();
        assert_eq!((ended(&bench), last.is_cut_short), (1, false), "{last:?}");
        assert!(status.counters.pages_unreadable > 0);
        let stripes = last.stripes_total;
        assert_eq!(last.stripes_done, stripes);
        // Those of one page, and not all.
        let lines = last.lines_not_compared;
        assert!(lines > 0 && lines < bench.lines(), "{lines}");
        assert_eq!(status.counters.scrubs_not_compared, lines);
    }
}

#[test]
fn one_that_could_compare_hardly_anything_is_begun_again() {
    let mut bench = new_bench();
    bench.close();
    // Checksums are read when they are wanted.
    bench.volume_memory_bytes = 4096;
    bench.open(false);
    bench.bad_cache = bench.superblock().volume_offset()..CACHE_BYTES;
    bench.pass_in_steps(Duration::from_secs(1010));
    bench.until_idle();
    let last = bench.volume().status().last_work.unwrap();
    assert!(last.is_cut_short && last.lines_not_compared > 0, "{last:?}");
    assert_eq!((ended(&bench), scrubs(&bench).record.ended), (0, 0));
    // The cache-disk is well again.
    bench.bad_cache = 0..0;
    bench.pass_in_steps(Duration::from_secs(7200));
    bench.until_idle();
    assert!(ended(&bench) > 0);
    assert_eq!(bench.volume().status().last_work.unwrap().lines_not_compared, 0);
}

// Members take 10 ms for each I/O. While something is read from them again and again, the scrub
// leaves them most of the time; without that it has them to itself.
#[test]
fn clients_come_first() {
    let stripes_in = |is_busy: bool| {
        let mut bench = new_bench();
        bench.pass_in_steps(Duration::from_secs(995));
        hold_members(&mut bench);
        bench.pass(Duration::from_secs(5));
        let mut stripes = 0;
        for turn in 0..200 {
            if is_busy {
                bench.start(Operation::Read { range: range(turn), buffer: Buffer::zeroed(4096) });
            }
            bench.pass(Duration::from_millis(10));
            let_go_once(&mut bench);
            stripes = scrubs(&bench).record.unfinished.map_or(u64::MAX, |it| it.stripe);
        }
        stripes
    };
    let (busy, alone) = (stripes_in(true), stripes_in(false));
    assert!((10..60).contains(&busy), "{busy}");
    assert_eq!(alone, u64::MAX, "all was read");
}

/// Of a line that was destaged.
fn range(turn: u64) -> LbaRange {
    LbaRange::new(turn % 3 * 8, 8)
}

// A calendar that is wrong for a moment begins nothing, and one that was put back delays the next
// by one turn at most.
#[test]
fn a_calendar_may_jump() {
    let mut bench = new_bench();
    bench.calendar = Some(1000);
    bench.open(false);
    bench.pass_in_steps(Duration::from_secs(3500));
    assert_eq!(ended(&bench), 0);
    bench.pass_in_steps(Duration::from_secs(200));
    assert_eq!(ended(&bench), 0);
    assert!(scrubs(&bench).record.since < 10_000);
    bench.pass_in_steps(Duration::from_secs(1000));
    assert_eq!(ended(&bench), 1);
}

/// The begin of a scrub is recorded by a checkpoint. While that is on its way the log meets one
/// failure after the other, and bears them: the checkpoint writes its pages again each time, and is
/// not the one that is not taken.
#[test]
fn what_fails_of_the_log_does_not_end_a_checkpoint() {
    const OF_VOLUME: u64 = 1 << 63;
    let mut bench = new_bench();
    bench.holds = vec![Device::CacheDisk];
    hold_members(&mut bench);
    let checkpoints = bench.volume().status().counters.checkpoints;
    bench.start(Operation::Volume(VolumeRequest::Scrub));
    let mut failures = 0;
    for round in 0..24 {
        let data = Buffer::copy_of(&[round; 4096]);
        bench.start(Operation::Write { start: Lba(0), data });
        bench.start(Operation::Flush);
        let held = bench.held.replace(Vec::new()).unwrap();
        let of_volume = |input: &Input| matches!(input, Input::IoDone(it) if it.id.0 >= OF_VOLUME);
        let (of_volume, of_log): (Vec<Input>, Vec<Input>) = held.into_iter().partition(of_volume);
        assert!(!of_volume.is_empty());
        let fails = round % 4 == 0 && !of_log.is_empty();
        failures += u32::from(fails);
        for (index, input) in of_log.into_iter().enumerate() {
            let Input::IoDone(mut done) = input else { unreachable!("they are held") };
            if fails && index == 0 {
                done.result = Err(IoError::Failed);
            }
            bench.input(Input::IoDone(done));
        }
        if fails {
            of_volume.into_iter().for_each(|done| bench.input(done));
        } else {
            bench.held.as_mut().unwrap().extend(of_volume);
        }
    }
    // So often may a checkpoint fail itself.
    assert!(failures > 2, "{failures}");
    assert_eq!(bench.volume().status().counters.checkpoints, checkpoints);
    let_all_go(&mut bench);
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    bench.write(0, 100);
    assert!(!bench.volume().status().has_failed);
    assert!(bench.volume().status().counters.checkpoints > checkpoints);
    assert_eq!(bench.read(0), 100);
}

/// Of stripes in which nothing lies some are looked at behind each input, however many there are:
/// who asks for anything else has his turn between.
#[test]
fn stripes_in_which_nothing_lies_take_no_turn_of_others() {
    let set = set(RaidLevel::Raid1, 4, 2, 0, 4 << 10);
    let mut bench = Bench::new(config(4, vec![set], 16 << 10));
    bench.start(Operation::Volume(VolumeRequest::Scrub));
    let (mut turns, mut done) = (0, 0);
    while let Some(work) = bench.volume().status().work {
        // A turn is two inputs, and what they lead to.
        assert!(work.stripes_total > 900 && work.stripes_done <= done + 3 * 64, "{work:?}");
        done = work.stripes_done;
        assert_eq!(bench.read(turns), 0);
        turns += 1;
        bench.pass(Duration::from_micros(10));
    }
    assert!(turns > 4, "{turns}");
    bench.until_idle();
    assert_eq!(ended(&bench), 1);
}
