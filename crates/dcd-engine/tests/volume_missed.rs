//! A member that was away is brought up to date by what it has missed, and by nothing else; whole,
//! if it is not the disk that left, or not as it was left.

#[path = "common/volume.rs"]
mod bench;

use bench::*;
use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::config::{SetConfig, VolumeConfig};
use dcd_engine::volume::format::root::MemberState;
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::volume::status::MemberStatus;
use dcd_engine::{Buffer, Device, Duration, Lba, Operation, VolumeRequest};

const AWAY: usize = 1;

fn raid1() -> VolumeConfig {
    config(4, vec![set(RaidLevel::Raid1, 4, 2, 0, 16 << 10)], 16 << 10)
}

fn status(bench: &Bench) -> MemberStatus {
    bench.volume().status().members[AWAY]
}

/// Another value in some lines, one behind the other.
fn change(bench: &mut Bench, written: &mut [(u64, u8)], from: usize, count: usize) {
    for (line, value) in &mut written[from..from + count] {
        *value = value.wrapping_add(2);
        bench.write(*line, *value);
    }
}

/// Filled and destaged; then dcd ends, and starts again without the member. Its disk comes back.
fn leave(bench: &mut Bench, is_in_order: bool) -> Option<Vec<u8>> {
    if is_in_order {
        bench.close();
    }
    let disk = bench.members[AWAY].take();
    bench.open(true);
    assert_eq!(status(bench).state, MemberState::Stale);
    disk
}

fn come_back(bench: &mut Bench, disk: Option<Vec<u8>>) {
    bench.close();
    bench.members[AWAY] = disk;
    bench.writes[AWAY] = 0;
    bench.open(false);
}

/// What a member has alone tells every line, and nothing on it is rotten.
fn is_right_alone(bench: &mut Bench, written: &[(u64, u8)]) {
    assert_eq!(status(bench).state, MemberState::UpToDate);
    bench.volume_request(VolumeRequest::Scrub).unwrap();
    bench.until_idle();
    assert_eq!(bench.volume().status().last_work.unwrap().mismatches, 0);
    bench.drain();
    for other in (0..bench.members.len()).filter(|other| *other != AWAY) {
        let mut without = bench.without(other);
        check(&mut without, written);
        let counters = without.volume().status().counters;
        assert_eq!((counters.lines_bad, counters.lines_lost), (0, 0));
    }
}

#[test]
fn what_was_missed_is_brought_and_no_more() {
    for (config, is_in_order) in [(raid1(), true), (raid5(), true), (raid5(), false)] {
        let mut bench = Bench::new(config);
        let mut written = fill(&mut bench, 1);
        bench.drain();
        bench.until_idle();
        let whole = bench.volume().config().sets[0].member_bytes;
        let disk = leave(&mut bench, is_in_order);
        change(&mut bench, &mut written, 0, 3);
        bench.drain();
        let away = status(&bench);
        assert!(away.is_missed_known && away.bytes_to_rebuild > 0, "{away:?}");
        assert!(away.bytes_to_rebuild < whole / 4, "{away:?} of {whole}");
        come_back(&mut bench, disk);
        bench.until_idle();
        let work = bench.volume().status().last_work.unwrap();
        assert!(work.is_of_missed && !work.is_cut_short, "{work:?}");
        assert_eq!((work.stripes_done, work.bytes_done), (work.stripes_total, work.bytes_total));
        assert_eq!(bench.volume().status().counters.members_caught_up, 1);
        assert_eq!((status(&bench).bytes_to_rebuild, status(&bench).is_missed_known), (0, false));
        let brought = bench.writes[AWAY];
        assert!(brought > 0 && brought < whole / 4, "{brought} of {whole} bytes");
        is_right_alone(&mut bench, &written);
    }
}

// Whoever is asked to fail is not told to come back by a start: that is for whoever asked.
#[test]
fn who_was_called_failed_comes_back_when_asked_and_by_what_was_missed() {
    let mut bench = Bench::new(raid5());
    let mut written = fill(&mut bench, 1);
    bench.drain();
    let member = MemberIndex(AWAY as u8);
    bench.volume_request(VolumeRequest::FailMember { member }).unwrap();
    change(&mut bench, &mut written, 4, 2);
    bench.drain();
    bench.close();
    bench.open(false);
    bench.pass_in_steps(Duration::from_secs(2));
    assert_eq!(status(&bench).state, MemberState::Stale);
    bench.volume_request(VolumeRequest::Rebuild { member }).unwrap();
    bench.until_idle();
    assert!(bench.volume().status().last_work.unwrap().is_of_missed);
    is_right_alone(&mut bench, &written);
}

#[test]
fn away_twice_is_brought_both() {
    let mut bench = Bench::new(raid5());
    let mut written = fill(&mut bench, 1);
    bench.drain();
    let disk = leave(&mut bench, true);
    change(&mut bench, &mut written, 0, 2);
    bench.drain();
    // It comes back, and goes before all is there.
    bench.close();
    bench.members[AWAY] = disk;
    bench.held = Some(Vec::new());
    assert_eq!(bench.try_open(false), dcd_engine::Phase::Opening);
    bench.held = None;
    let disk = bench.members[AWAY].take();
    bench.open(true);
    change(&mut bench, &mut written, 100, 2);
    bench.drain();
    come_back(&mut bench, disk);
    bench.until_idle();
    assert!(bench.volume().status().last_work.unwrap().is_of_missed);
    is_right_alone(&mut bench, &written);
}

#[test]
fn an_older_copy_or_a_blank_disk_is_rebuilt_whole() {
    for is_blank in [false, true] {
        let mut bench = Bench::new(raid5());
        let mut written = fill(&mut bench, 1);
        bench.drain();
        bench.close();
        let older = bench.members[AWAY].clone();
        bench.open(false);
        change(&mut bench, &mut written, 50, 3);
        bench.drain();
        leave(&mut bench, true);
        change(&mut bench, &mut written, 0, 3);
        bench.drain();
        let blank = vec![0xee; older.as_ref().unwrap().len()];
        come_back(&mut bench, if is_blank { Some(blank) } else { older });
        bench.until_idle();
        // Also behind the next start, when its label is as new as any.
        for _ in 0..2 {
            assert_eq!(status(&bench).state, MemberState::Stale);
            assert!(!status(&bench).is_missed_known);
            bench.close();
            bench.open(false);
        }
        let member = MemberIndex(AWAY as u8);
        bench.volume_request(VolumeRequest::Rebuild { member }).unwrap();
        bench.until_idle();
        assert!(!bench.volume().status().last_work.unwrap().is_of_missed);
        is_right_alone(&mut bench, &written);
    }
}

// While it is brought up to date, changes go on everywhere, and what was not marked is marked, or
// written there, whichever comes first.
#[test]
fn changes_meanwhile_are_there_too() {
    for config in [raid1(), raid5()] {
        let mut bench = Bench::new(config);
        let mut written = fill(&mut bench, 1);
        bench.drain();
        bench.close();
        bench.no_log = true;
        bench.open(false);
        let member = MemberIndex(AWAY as u8);
        bench.volume_request(VolumeRequest::FailMember { member }).unwrap();
        for at in [0, 40, 80] {
            change(&mut bench, &mut written, at, 1);
        }
        bench.holds = vec![Device::Member(member)];
        bench.held = Some(Vec::new());
        bench.start(Operation::Volume(VolumeRequest::Rebuild { member }));
        let (mut is_under_way, mut asked) = (0, Vec::new());
        for at in (0..written.len()).step_by(3) {
            let (line, value) = &mut written[at];
            *value = value.wrapping_add(2);
            let data = Buffer::copy_of(&[*value; LINE_SIZE as usize]);
            asked.push(bench.start(Operation::Write { start: Lba(*line * 8), data }));
            is_under_way += u32::from(bench.volume().status().work.is_some());
            if at % 2 == 0 {
                end_one(&mut bench);
            }
        }
        while end_one(&mut bench) || asked.iter().any(|id| !bench.replies.contains_key(id)) {
            bench.pass(Duration::from_millis(20));
        }
        bench.held = None;
        bench.until_idle();
        assert!(is_under_way > 10, "{is_under_way}");
        assert!(bench.volume().status().last_work.unwrap().is_of_missed);
        is_right_alone(&mut bench, &written);
    }
}

/// An I/O of the member that has been held back.
fn end_one(bench: &mut Bench) -> bool {
    let Some(done) =
        bench.held.as_mut().and_then(|held| (!held.is_empty()).then(|| held.remove(0)))
    else {
        return false;
    };
    bench.input(done);
    true
}

/// A member that was away while the others could not do without it counts as up to date all the
/// time, and one of its sets was changed without it: nobody knows where. When it is done without
/// later, it gets all.
#[test]
fn who_counted_as_up_to_date_while_it_was_away_gets_all() {
    let of = |members: [u8; 2], place| {
        let members = members.map(MemberIndex).to_vec();
        SetConfig { members, ..set(RaidLevel::Raid1, 2, 2, place, 16 << 10) }
    };
    let other = 2;
    let config = config(3, vec![of([0, 1], 0), of([1, 2], 1)], 16 << 10);
    let mut bench = Bench::with_journal(config, 2 << 20);
    let mut written = fill(&mut bench, 1);
    bench.drain();
    bench.close();
    // Of the second set nobody is there.
    let disks = [AWAY, other].map(|index| bench.members[index].take());
    bench.open(true);
    assert_eq!(status(&bench).state, MemberState::UpToDate);
    let set_of = |bench: &Bench, line: u64| bench.volume().place(Lba(line * 8)).unwrap().set;
    let mut changed = 0;
    for (line, value) in &mut written {
        if set_of(&bench, *line) == 0 && changed < 5 {
            *value = value.wrapping_add(2);
            bench.write(*line, *value);
            changed += 1;
        }
    }
    assert_eq!(changed, 5);
    bench.drain();
    // The journal, which the next start would do again, goes round.
    let checkpoints = bench.volume().status().counters.checkpoints;
    let first = written.iter().map(|(line, _)| *line).find(|line| set_of(&bench, *line) == 0);
    let first = first.expect("some are there");
    let value = written.iter().find(|(line, _)| *line == first).unwrap().1;
    for _ in 0..1200 {
        bench.write(first, value);
        bench.drain();
    }
    assert!(bench.volume().status().counters.checkpoints > checkpoints + 1);
    bench.close();
    let [disk, disk_of_other] = disks;
    bench.members[AWAY] = disk;
    bench.open(true);
    assert_eq!(status(&bench).state, MemberState::UpToDate);
    bench.close();
    bench.members[other] = disk_of_other;
    bench.open(false);
    bench.until_idle();
    // So that another can be done without.
    if bench.volume().status().members[other].state != MemberState::UpToDate {
        let member = MemberIndex(other as u8);
        bench.volume_request(VolumeRequest::Rebuild { member }).unwrap();
        bench.until_idle();
    }
    let member = MemberIndex(AWAY as u8);
    bench.volume_request(VolumeRequest::FailMember { member }).unwrap();
    bench.volume_request(VolumeRequest::Rebuild { member }).unwrap();
    bench.until_idle();
    assert_eq!(status(&bench).state, MemberState::UpToDate);
    bench.drain();
    for other in [0, other] {
        let mut without = bench.without(other);
        check(&mut without, &written);
    }
}

// Two come back at once, and dcd ends while the first is brought up to date: the second has a label
// of that start by then, and waits all the same.
#[test]
fn the_second_of_two_is_not_forgotten_by_a_start() {
    let set = SetConfig { copies: 3, ..set(RaidLevel::Raid1, 3, 3, 0, 16 << 10) };
    let mut bench = Bench::new(config(3, vec![set], 16 << 10));
    let mut written = fill(&mut bench, 1);
    bench.drain();
    bench.close();
    let disks = [1, 2].map(|index| bench.members[index].take());
    bench.open(true);
    change(&mut bench, &mut written, 0, 60);
    bench.drain();
    bench.close();
    let [first, second] = disks;
    (bench.members[1], bench.members[2]) = (first, second);
    bench.held = Some(Vec::new());
    bench.holds = vec![Device::Member(MemberIndex(0))];
    // Whatever is read from the one that has all is held back, until the labels are written.
    let mut is_running = bench.try_open(false) == dcd_engine::Phase::Running;
    for _ in 0..100 {
        if is_running {
            break;
        }
        for done in bench.held.replace(Vec::new()).unwrap() {
            bench.input(done);
        }
        is_running = *bench.engine().phase() == dcd_engine::Phase::Running;
    }
    assert!(is_running);
    let states = |bench: &Bench| {
        let status = bench.volume().status();
        status.members.iter().map(|member| member.is_whole()).collect::<Vec<_>>()
    };
    assert_eq!(states(&bench), [true, false, false]);
    bench.held = None;
    bench.open(false);
    bench.until_idle();
    bench.pass(Duration::from_millis(20));
    bench.until_idle();
    assert_eq!(states(&bench), [true, true, true]);
    assert_eq!(bench.volume().status().counters.members_caught_up, 2);
    check(&mut bench.without(0), &written);
}
