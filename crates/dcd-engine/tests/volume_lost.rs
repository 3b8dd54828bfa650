//! What is lost now is a state, not only an event; and whose errors it were is known.

#[path = "common/volume.rs"]
mod bench;

use bench::*;
use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::status::VolumeStatus;
use dcd_engine::{Lba, LbaRange, Operation, VolumeRequest};

fn status(bench: &Bench) -> VolumeStatus {
    bench.volume().status()
}

/// Bytes of this line of a member turn.
fn rot(bench: &mut Bench, member: MemberIndex, offset: u64) {
    let disk = bench.members[usize::from(member.0)].as_mut().unwrap();
    disk[offset as usize + 100] ^= 0xee;
}

fn unreadable(bench: &mut Bench) -> Vec<u64> {
    (0..bench.lines()).filter(|line| bench.try_read(*line).is_err()).collect()
}

/// A member fails, others have rotted, it is rebuilt: what nothing tells any more is lost.
fn with_lost_lines() -> (Bench, Vec<u64>) {
    let mut bench = Bench::new(raid5());
    let written = fill(&mut bench, 1);
    bench.drain();
    let missing = MemberIndex(0);
    assert_eq!(status(&bench).redundant_lines_lost, 0);
    assert_eq!(bench.volume_request(VolumeRequest::FailMember { member: missing }), Ok(None));
    // It misses all that is written now.
    fill(&mut bench, 1);
    bench.drain();
    let at = |bench: &Bench, line: u64| bench.volume().place(Lba(line * 8)).unwrap();
    let places: Vec<_> = written.iter().map(|(line, _)| at(&bench, *line)).collect();
    for at in places.iter().filter(|at| at.member != missing).step_by(20) {
        rot(&mut bench, at.member, at.offset);
    }
    assert_eq!(bench.volume_request(VolumeRequest::Rebuild { member: missing }), Ok(None));
    bench.until_idle();
    let lost = unreadable(&mut bench);
    assert!(lost.len() > 3, "{lost:?}");
    (bench, lost)
}

#[test]
fn lost_lines_are_a_state_until_they_are_written() {
    let (mut bench, lost) = with_lost_lines();
    let count = lost.len() as u64;
    assert_eq!(status(&bench).redundant_lines_lost, count);
    // A scrub finds nothing new, and hides nothing.
    assert_eq!(bench.volume_request(VolumeRequest::Scrub), Ok(None));
    bench.until_idle();
    assert_eq!(status(&bench).redundant_lines_lost, count);
    // Also after an end in order, and after a kill.
    bench.close();
    bench.open(false);
    assert_eq!(status(&bench).redundant_lines_lost, count);
    bench.open(false);
    assert_eq!(status(&bench).redundant_lines_lost, count);
    assert_eq!(unreadable(&mut bench), lost);
    // Written, one by one; the last one is discarded with all of its extent.
    let (last, others) = lost.split_last().unwrap();
    for (done, line) in (1..).zip(others) {
        bench.write(*line, 77);
        bench.drain();
        assert_eq!(status(&bench).redundant_lines_lost, count - done);
    }
    let lines = (16 << 10) / LINE_SIZE;
    let range = LbaRange::new(last / lines * lines * 8, lines * 8);
    assert_eq!(bench.ask(Operation::Discard { range }).0, Ok(()));
    bench.drain();
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    assert_eq!(status(&bench).redundant_lines_lost, 0);
    bench.close();
    bench.open(false);
    assert_eq!(status(&bench).redundant_lines_lost, 0);
    assert_eq!(unreadable(&mut bench), Vec::<u64>::new());
}

#[test]
fn rot_is_counted_for_the_member_that_rots() {
    let mut bench = Bench::new(raid5());
    let written = fill(&mut bench, 1);
    bench.drain();
    let rotten = MemberIndex(2);
    let at = |bench: &Bench, line: u64| bench.volume().place(Lba(line * 8)).unwrap();
    let places: Vec<_> = written.iter().map(|(line, _)| at(&bench, *line)).collect();
    let there: Vec<_> = places.iter().filter(|at| at.member == rotten).collect();
    // Fewer than make it suspect; mended by reads.
    for at in &there[..10] {
        rot(&mut bench, rotten, at.offset);
    }
    check(&mut bench, &written);
    let member = |bench: &Bench, index: usize| status(bench).members[index];
    let of = member(&bench, 2);
    assert_eq!((of.lines_rotten, of.lines_mended, of.errors), (10, 10, 0));
    assert!(!of.is_suspect && bench.volume().news().suspect == 0);
    // Mended by a scrub.
    for at in &there[10..20] {
        rot(&mut bench, rotten, at.offset);
    }
    assert_eq!(bench.volume_request(VolumeRequest::Scrub), Ok(None));
    bench.until_idle();
    let of = member(&bench, 2);
    assert_eq!((of.lines_rotten, of.lines_mended), (20, 20));
    assert!(of.is_suspect && bench.volume().news().suspect == 0b100);
    for other in [0, 1, 3] {
        let of = member(&bench, other);
        assert_eq!((of.lines_rotten, of.lines_mended, of.errors, of.is_suspect), (0, 0, 0, false));
    }
    check(&mut bench, &written);
}

#[test]
fn sectors_that_cannot_be_read_are_counted_as_errors_of_reads() {
    let mut bench = Bench::new(raid5());
    let written = fill(&mut bench, 1);
    bench.drain();
    let places: Vec<_> =
        written.iter().map(|(line, _)| bench.volume().place(Lba(line * 8)).unwrap()).collect();
    let at = places.iter().find(|at| at.member == MemberIndex(1)).unwrap();
    bench.bad.insert((1, at.offset));
    check(&mut bench, &written);
    let of = status(&bench).members[1];
    assert!(of.read_errors > 0 && of.read_errors == of.errors && of.lines_mended == 1, "{of:?}");
}
