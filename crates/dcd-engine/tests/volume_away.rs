//! Members that are away: what belongs on them stays in the log, takes its share of it and no more,
//! and is told. What is on the others goes on.

#[path = "common/volume.rs"]
mod bench;

use bench::*;
use dcd_engine::stats::Obstacle;
use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::config::{SetConfig, VolumeConfig};
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::{Buffer, Duration, Lba, LbaRange, Operation, RequestError};

const AWAY: MemberIndex = MemberIndex(1);

fn raid0(extent_bytes: u64) -> VolumeConfig {
    let set = set(RaidLevel::Raid0, 4, 1, 0, 16 << 10);
    let mut config = config(4, vec![SetConfig { member_bytes: 1 << 20, ..set }], extent_bytes);
    config.logical_bytes += config.temporary_bytes;
    config.temporary_bytes = 0;
    config
}

fn try_write(bench: &mut Bench, line: u64, value: u8) -> Result<(), RequestError> {
    let data = Buffer::copy_of(&[value; LINE_SIZE as usize]);
    bench.ask(Operation::Write { start: Lba(line * 8), data }).0
}

/// Lines that lie on the member in question, and those that do not.
fn split(bench: &Bench, written: &[(u64, u8)]) -> (Vec<u64>, Vec<u64>) {
    let is_there = |line: &u64| bench.volume().place(Lba(line * 8)).unwrap().member == AWAY;
    written.iter().map(|(line, _)| *line).partition(is_there)
}

fn fill_whole(bench: &mut Bench) -> Vec<(u64, u8)> {
    let written: Vec<(u64, u8)> =
        (0..bench.lines()).map(|line| (line, (line * 7) as u8 | 1)).collect();
    written.iter().for_each(|(line, value)| bench.write(*line, *value));
    bench.drain();
    written
}

/// Lines of a lost member are written until they are refused; then everything else is written
/// several times over.
fn share_is_bounded(mut bench: Bench, written: Vec<(u64, u8)>, lose: impl Fn(&mut Bench)) {
    let (lost, healthy) = split(&bench, &written);
    lose(&mut bench);
    let mut expected: Vec<(u64, u8)> = written;
    let mut kept = 0;
    let mut refused = false;
    for line in lost.iter().cycle().take(6 * lost.len()) {
        if kept % 64 == 63 {
            // Idle: what can be destaged is, and a member that refuses is found out.
            bench.pass(Duration::from_secs(20));
        }
        // Something between them: a segment with one such line is held by it.
        let other = healthy[kept * 31 % healthy.len()];
        assert_eq!(try_write(&mut bench, other, 3), Ok(()));
        expected[other as usize].1 = 3;
        let before = bench.now;
        match try_write(&mut bench, *line, 5) {
            Ok(()) => expected[*line as usize].1 = 5,
            Err(error) => {
                assert_eq!(error, RequestError::Io);
                assert!(bench.now.since(before) < Duration::from_millis(100), "at once");
                refused = true;
                break;
            }
        }
        kept += 1;
    }
    assert!(refused && kept > 10, "{kept} of {} lines", lost.len());
    let share = bench.volume().status().log_share;
    assert!(share.changes_refused > 0 && share.segments > 0, "{share:?}");
    assert!(share.segments <= share.segments_max + 1, "{share:?}");
    for round in 0..3 {
        for line in &healthy {
            assert_eq!(try_write(&mut bench, *line, 20 + round), Ok(()), "line {line}");
            expected[*line as usize].1 = 20 + round;
        }
    }
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    for (line, value) in expected.iter().filter(|(line, _)| healthy.contains(line)) {
        assert_eq!(bench.try_read(*line), Ok(*value), "line {line}");
    }
    // It is back: what the log has held goes there.
    bench.failing = vec![false; 4];
    bench.pass(Duration::from_secs(60));
    if bench.members[1].is_some() {
        bench.drain();
        assert_eq!(bench.volume().status().log_share.segments, 0);
        check(&mut bench, &expected);
    }
}

#[test]
fn what_belongs_on_a_missing_member_takes_its_share_of_the_log() {
    let mut bench = Bench::new(raid0(32 << 10));
    let written = fill_whole(&mut bench);
    bench.close();
    share_is_bounded(bench, written, |bench| {
        bench.members[1] = None;
        bench.open(true);
    });
}

#[test]
fn what_belongs_on_a_member_that_dies_takes_its_share_of_the_log() {
    let mut bench = Bench::new(raid0(32 << 10));
    let written = fill_whole(&mut bench);
    share_is_bounded(bench, written, |bench| bench.failing[1] = true);
}

#[test]
fn new_extents_are_placed_where_they_can_be_written() {
    // An extent lies on one member.
    let mut bench = Bench::new(raid0(16 << 10));
    bench.close();
    bench.members[1] = None;
    bench.open(true);
    let written: Vec<(u64, u8)> = (0..bench.lines() / 2).map(|line| (line, 9)).collect();
    written.iter().for_each(|(line, value)| bench.write(*line, *value));
    bench.drain();
    check(&mut bench, &written);
    assert_eq!(bench.volume().status().log_share.changes_refused, 0);
}

#[test]
fn zeroes_for_a_missing_member_hold_up_nothing_else() {
    let mut bench = Bench::new(raid0(32 << 10));
    let written = fill_whole(&mut bench);
    let (lost, healthy) = split(&bench, &written);
    bench.close();
    bench.members[1] = None;
    bench.open(true);
    let zero = |bench: &mut Bench, line: u64| {
        let range = LbaRange::new(line * 8, 8);
        bench.ask(Operation::WriteZeroes { range, may_unmap: false }).0
    };
    assert_eq!(zero(&mut bench, lost[3]), Ok(()));
    assert_eq!(zero(&mut bench, healthy[3]), Ok(()));
    for round in 0..2 {
        for line in healthy.iter().skip(10) {
            assert_eq!(try_write(&mut bench, *line, 40 + round), Ok(()), "line {line}");
        }
    }
    for _ in 0..1000 {
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(bench.engine().status().dirty_lines, 0);
    assert_eq!(bench.engine().status().zero_ranges, 1, "that of the missing member alone");
    assert_eq!((bench.read(lost[3]), bench.read(healthy[3])), (0, 0));
}

/// What waits for a member that is away, lines or zeroes, ends a drain with a word, whatever is
/// destaged to the others meanwhile.
#[test]
fn a_drain_that_waits_for_a_missing_member_ends() {
    for zeroes in [false, true] {
        let mut bench = Bench::new(raid0(32 << 10));
        let written = fill_whole(&mut bench);
        let (lost, healthy) = split(&bench, &written);
        bench.close();
        bench.members[1] = None;
        bench.open(true);
        match zeroes {
            true => {
                let range = LbaRange::new(lost[3] * 8, 8);
                let zero = Operation::WriteZeroes { range, may_unmap: false };
                assert_eq!(bench.ask(zero).0, Ok(()));
            }
            false => assert_eq!(try_write(&mut bench, lost[3], 9), Ok(())),
        }
        bench.start_drain();
        let answered = |bench: &Bench| !bench.engine().status().draining;
        let mut rounds = 0;
        while !answered(&bench) {
            let other = healthy[rounds % healthy.len()];
            assert_eq!(try_write(&mut bench, other, rounds as u8), Ok(()));
            bench.pass_in_steps(Duration::from_secs(1));
            rounds += 1;
            assert!(rounds < 200, "it never ends");
        }
        assert!((7..=15).contains(&rounds), "an eighth of the limit: {rounds} s");
        let expected = Some(Obstacle::Members(1 << AWAY.0));
        assert_eq!(bench.engine().status().obstacle, expected, "zeroes: {zeroes}");
        let answer = bench.ask(Operation::Drain).0;
        assert!(matches!(answer, Err(RequestError::Stuck { .. })), "{answer:?}");
    }
}
