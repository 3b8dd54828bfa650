//! The judge accepts what an order explains and rejects what none does.

use std::collections::BTreeSet;

use crate::crash_state::{End, judge_stretch};
use crate::harness::random::Random;
use crate::history::{Action, Op, SECTOR, Stamp, Tick, ZERO, sector_bytes, stamp_of};
use crate::register::{SectorOp, What, judge};

fn write(sent: Tick, replied: Tick, stamp: Stamp) -> SectorOp {
    SectorOp { sent, replied: Some(replied), what: What::Write { stamp, durable: false } }
}

fn fua(sent: Tick, replied: Tick, stamp: Stamp) -> SectorOp {
    SectorOp { sent, replied: Some(replied), what: What::Write { stamp, durable: true } }
}

fn open_write(sent: Tick, stamp: Stamp) -> SectorOp {
    SectorOp { sent, replied: None, what: What::Write { stamp, durable: false } }
}

fn read(sent: Tick, replied: Tick, stamp: Stamp) -> SectorOp {
    SectorOp { sent, replied: Some(replied), what: What::Read(stamp) }
}

fn held(ops: &[SectorOp]) -> Vec<Stamp> {
    judge(ZERO, ops, &[]).unwrap().held.into_iter().collect()
}

fn remains(ops: &[SectorOp], flushes: &[Tick]) -> Vec<Stamp> {
    judge(ZERO, ops, flushes).unwrap().remains.into_iter().collect()
}

#[test]
fn a_read_under_way_with_a_write_sees_old_or_new() {
    for seen in [ZERO, 5] {
        assert_eq!(held(&[write(1, 4, 5), read(2, 3, seen)]), [5]);
    }
}

#[test]
fn a_stale_read_is_rejected() {
    assert!(judge(ZERO, &[write(1, 2, 5), read(3, 4, ZERO)], &[]).is_err());
    // New, then old again: each alone could be, while the write is under way.
    let ops = [write(1, 9, 5), read(2, 3, 5), read(4, 5, ZERO)];
    assert!(judge(ZERO, &ops, &[]).is_err());
}

#[test]
fn a_value_that_was_not_written_yet_is_rejected() {
    assert!(judge(ZERO, &[read(1, 2, 5), write(3, 4, 5)], &[]).is_err());
}

#[test]
fn two_readers_that_see_two_orders_are_rejected() {
    let writes = [write(1, 3, 5), write(2, 4, 6)];
    let one = [read(5, 6, 5)];
    let other = [read(7, 8, 6)];
    assert_eq!(held(&[&writes[..], &one].concat()), [5]);
    assert_eq!(held(&[&writes[..], &other].concat()), [6]);
    assert!(judge(ZERO, &[&writes[..], &one, &other].concat(), &[]).is_err());
}

#[test]
fn zeroes_may_be_anybodys() {
    let ops = [write(1, 2, 5), write(3, 6, ZERO), read(4, 5, 5), write(7, 9, 6), read(8, 10, ZERO)];
    assert_eq!(held(&ops), [6]);
}

#[test]
fn a_kill_leaves_what_was_acknowledged_and_perhaps_what_was_not() {
    assert_eq!(held(&[write(1, 2, 5), open_write(3, 6)]), [5, 6]);
    // Once seen it has happened.
    assert_eq!(held(&[write(1, 2, 5), open_write(3, 6), read(4, 5, 6)]), [6]);
}

#[test]
fn a_power_cut_leaves_any_point_since_the_flush() {
    let ops = [write(1, 2, 5), write(3, 4, 6), write(6, 7, 7)];
    assert_eq!(remains(&ops, &[]), [ZERO, 5, 6, 7]);
    assert_eq!(remains(&ops, &[5]), [6, 7]);
    assert_eq!(remains(&ops, &[8]), [7]);
    // Not yet acknowledged when the flush is sent: the flush need not cover it.
    assert_eq!(remains(&[write(1, 2, 5), write(3, 9, 6)], &[4]), [5, 6]);
}

#[test]
fn a_write_with_fua_remains_when_it_was_acknowledged() {
    assert_eq!(remains(&[write(1, 2, 5), fua(3, 4, 6), write(5, 6, 7)], &[]), [6, 7]);
    let concurrent = [write(1, 6, 5), fua(2, 3, 6)];
    assert_eq!(remains(&concurrent, &[]), [5, 6], "5 may come after 6");
}

#[test]
fn torn_and_misplaced_sectors_are_rejected() {
    let (one, other) = (sector_bytes(5, 9), sector_bytes(6, 9));
    assert_eq!(stamp_of(&one, 9), Ok(5));
    assert!(stamp_of(&one, 8).is_err());
    for at in (8..SECTOR).step_by(8) {
        let torn = [&one[..at], &other[at..]].concat();
        assert!(stamp_of(&torn, 9).is_err());
        let torn = [&one[..at], &vec![0; SECTOR - at]].concat();
        assert!(stamp_of(&torn, 9).is_err());
    }
}

fn op(sent: Tick, replied: Option<Tick>, start: usize, sectors: usize, stamp: Stamp) -> Op {
    Op { sent, replied, start, action: Action::Write { stamp, sectors, durable: false } }
}

fn after_cut(ops: &[Op], after: &[Stamp]) -> Result<(), String> {
    judge_stretch(&vec![ZERO; after.len()], ops, End::PowerCut, after, true)
}

#[test]
fn a_power_cut_leaves_no_hole() {
    let ops = [op(1, Some(2), 0, 1, 5), op(3, Some(4), 1, 1, 6)];
    for allowed in [[ZERO, ZERO], [5, ZERO], [5, 6]] {
        after_cut(&ops, &allowed).unwrap();
    }
    after_cut(&ops, &[ZERO, 6]).unwrap_err();
    // Concurrent ones have no order.
    after_cut(&[op(1, Some(4), 0, 1, 5), op(3, Some(5), 1, 1, 6)], &[ZERO, 6]).unwrap();
}

#[test]
fn a_power_cut_loses_nothing_that_was_flushed() {
    let flush = Op { sent: 3, replied: Some(4), start: 0, action: Action::Flush };
    let unanswered = Op { replied: None, ..flush.clone() };
    after_cut(&[op(1, Some(2), 0, 1, 5), flush.clone()], &[ZERO]).unwrap_err();
    after_cut(&[op(1, Some(2), 0, 1, 5), unanswered], &[ZERO]).unwrap();
    after_cut(&[op(1, Some(5), 0, 1, 5), flush], &[ZERO]).unwrap();
    // FUA covers what was acknowledged before it, elsewhere too.
    let mut fua = op(3, Some(4), 1, 1, 6);
    fua.action = Action::Write { stamp: 6, sectors: 1, durable: true };
    after_cut(&[op(1, Some(2), 0, 1, 5), fua], &[ZERO, 6]).unwrap_err();
}

#[test]
fn a_crash_leaves_no_change_in_part() {
    let ops = [op(1, Some(2), 0, 2, 5), op(3, None, 0, 2, 6)];
    after_cut(&ops, &[6, 6]).unwrap();
    after_cut(&ops, &[6, 5]).unwrap_err();
    // The other one may have come later.
    after_cut(&[op(1, Some(4), 0, 1, 5), op(3, Some(5), 0, 2, 6)], &[5, 6]).unwrap();
}

#[test]
fn a_kill_that_loses_an_acknowledged_write_is_rejected() {
    let ops = [op(1, Some(2), 0, 2, 5)];
    judge_stretch(&[ZERO; 2], &ops, End::Kill, &[5, 5], true).unwrap();
    judge_stretch(&[ZERO; 2], &ops, End::Kill, &[ZERO, ZERO], true).unwrap_err();
    judge_stretch(&[ZERO; 2], &[], End::Kill, &[ZERO, 7], true).unwrap_err();
}

/// All orders of small histories, tried one by one: what may be held at the end.
fn by_trial(ops: &[SectorOp], done: &mut Vec<usize>, value: Stamp, found: &mut BTreeSet<Stamp>) {
    if (0..ops.len()).all(|i| done.contains(&i) || ops[i].replied.is_none()) {
        found.insert(value);
    }
    for next in 0..ops.len() {
        let others = (0..ops.len()).filter(|i| *i != next && !done.contains(i));
        let must_wait = |i: usize| ops[i].replied.is_some_and(|replied| replied < ops[next].sent);
        if done.contains(&next) || others.into_iter().any(must_wait) {
            continue;
        }
        let value = match ops[next].what {
            What::Read(seen) if seen != value => continue,
            What::Read(_) => value,
            What::Write { stamp, .. } => stamp,
        };
        done.push(next);
        by_trial(ops, done, value, found);
        done.pop();
    }
}

#[test]
fn the_judge_agrees_with_trying_all_orders() {
    let mut random = Random::new(42);
    let (mut accepted, mut rejected) = (0, 0);
    for _ in 0..4000 {
        let count = 2 + random.below(5);
        let mut ticks: Vec<Tick> = (1..=2 * count).collect();
        let ops: Vec<SectorOp> = (0..count)
            .map(|_| {
                let mut tick = || ticks.swap_remove(random.below(ticks.len() as u64) as usize);
                let (one, other) = (tick(), tick());
                let (sent, replied) = (one.min(other), one.max(other));
                let stamp = random.below(3);
                if random.once_in(2) {
                    return read(sent, replied, stamp);
                }
                let is_open = random.once_in(4);
                if is_open { open_write(sent, stamp) } else { write(sent, replied, stamp) }
            })
            .collect();
        let mut expected = BTreeSet::new();
        by_trial(&ops, &mut Vec::new(), ZERO, &mut expected);
        match judge(ZERO, &ops, &[]) {
            Ok(outcome) => {
                assert_eq!(outcome.held, expected, "{ops:?}");
                accepted += 1;
            }
            Err(_) => {
                assert!(expected.is_empty(), "{ops:?}: {expected:?}");
                rejected += 1;
            }
        }
    }
    assert!(accepted > 500 && rejected > 500, "{accepted} accepted, {rejected} rejected");
}
