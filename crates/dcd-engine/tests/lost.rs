//! What is lost is never called done (C21): a drain and a detach bring everything else home, say
//! what they could not, and the data-disk is parted from its cache only by somebody who was told of
//! all of it.

mod common;

use common::{Driver, LINE, never_idle};
use dcd_engine::{Device, IoError, LbaRange, Operation, RequestError};

/// Lines 100 to 114 are dirty, the data-disk has 7 there, and 103 is rotten, which nobody has seen
/// yet.
fn rotten() -> Driver {
    let mut d = Driver::with(never_idle);
    d.data_disk.rot(100 * LINE as u64, &[7; 15 * LINE]);
    d.write_durably(100..115, 1);
    let slot = d.slots_of(1)[3];
    d.cache_disk.flip(slot + 99);
    d
}

fn line_103() -> Vec<LbaRange> {
    vec![LbaRange::new(103 * 8, 8)]
}

fn content(d: &Driver) -> [u8; 3] {
    [102, 103, 104].map(|line| d.data_disk.line(line))
}

/// Rot that is found by reading, by a drain, by the detach itself, or at the start: the answer is
/// the same.
#[test]
fn nothing_that_is_lost_is_called_done() {
    for found_by in ["read", "drain", "detach", "start"] {
        let mut d = rotten();
        match found_by {
            "read" => drop(d.try_read(103 * 8, 8).unwrap_err()),
            "drain" => d.drain_with_loss(1),
            "start" => {
                // What comes next says that it was durable: it is no torn tail.
                d.write_durably([300], 3);
                d.power_cycle();
                assert_eq!(d.engine().lost(), line_103());
            }
            _ => assert_eq!(d.engine().lost(), [], "not yet"),
        }
        let detach = d.submit(Operation::Detach, false);
        assert_eq!(d.wait(detach), Err(RequestError::Lost { lines: 1 }), "{found_by}");
        assert_eq!(content(&d), [1, 7, 1], "{found_by}: all else is home");
        d.forget_engine();
        for _ in 0..2 {
            d.reopen();
            assert!(d.status().recovery.was_closed, "{found_by}: the pair is one");
            assert_eq!(d.try_read(103 * 8, 8), Err(RequestError::Io), "{found_by}");
            d.drain_with_loss(1);
            d.shut_down();
        }
        // Whole again.
        d.reopen();
        d.write_durably([103], 3);
        d.drain();
        d.detach();
        assert_eq!(content(&d), [1, 3, 1], "{found_by}");
    }
}

/// Only what somebody was told of is given up, and only all of it.
#[test]
fn a_detach_gives_up_what_was_accepted_and_no_more() {
    for accepted in [vec![LbaRange::new(0, 8)], vec![LbaRange::new(103 * 8, 7)], vec![]] {
        let mut d = rotten();
        let detach = d.submit(Operation::DetachAccepting { lost: accepted }, false);
        assert_eq!(d.wait(detach), Err(RequestError::Lost { lines: 1 }));
        d.forget_engine();
        d.reopen();
        assert_eq!(d.engine().lost(), line_103());
    }
    let mut d = rotten();
    // What was accepted may be more than is lost: some of it may have been written anew.
    let accepted = vec![LbaRange::new(0, 8), LbaRange::new(102 * 8, 3 * 8)];
    d.done(|d| d.submit(Operation::DetachAccepting { lost: accepted }, false));
    assert_eq!(content(&d), [1, 7, 1]);
    d.forget_engine();
    // The data-disk is what counts from then on.
    d.reopen();
    assert_eq!((d.read(103), d.read(104), d.status().poisoned_lines), (7, 1, 0));
}

/// A crash in the middle of a detach that gives something up: the pair is still one, and the stale
/// copy is not shown, whichever step had been reached.
#[test]
fn a_crash_while_something_is_given_up_shows_nothing_stale() {
    for ios in 0..30 {
        let mut d = rotten();
        d.drain_with_loss(1);
        let detach = d.submit(Operation::DetachAccepting { lost: line_103() }, false);
        for _ in 0..ios {
            d.finish_one();
        }
        let is_done = d.is_answered(detach);
        d.power_cycle();
        match is_done {
            true => return assert_eq!(d.read(103), 7),
            false => assert!(
                d.try_read(103 * 8, 8) == Err(RequestError::Io)
                    || d.read(103) == 7 && d.engine().lost().is_empty(),
                "after {ios} I/Os"
            ),
        }
    }
    panic!("the detach does not end");
}

/// A disk that has failed is another thing than a loss: the detach fails, and what was not lost is
/// not called so.
#[test]
fn an_error_is_no_loss() {
    let mut d = rotten();
    d.drain_with_loss(1);
    let heal = d.discard(103 * 8, 8);
    d.expect_ok(heal);
    assert_eq!(d.engine().lost(), []);
    d.fail_next(Device::CacheDisk, common::Kind::Read, IoError::Failed);
    d.drain();
}

/// More is damaged than a checkpoint lists: a drain does not wait for it, it is told as well, and
/// given up as well.
#[test]
fn damage_beyond_the_list_holds_up_nobody() {
    let mut d = Driver::never_idle(|options| options.engine.limits.poisoned_lines = 2);
    d.data_disk.rot(100 * LINE as u64, &[7; 30 * LINE]);
    d.write_durably(100..130, 1);
    for slot in d.slots_of(1).into_iter().step_by(2) {
        d.cache_disk.flip(slot + 99);
    }
    for _ in 0..2 {
        d.drain_with_loss(15);
        assert_eq!(d.engine().lost().len(), 15);
        assert_eq!(d.status().poisoned_lines, 15);
        let detach = d.submit(Operation::Detach, false);
        assert_eq!(d.wait(detach), Err(RequestError::Lost { lines: 15 }));
        d.forget_engine();
        d.reopen();
        assert_eq!(d.try_read(110 * 8, 8), Err(RequestError::Io));
    }
    // Some are whole again, and what comes meanwhile goes home.
    d.write_durably((100..120).step_by(2), 2);
    d.write_durably([200], 3);
    d.drain_with_loss(5);
    assert_eq!((d.data_disk.line(100), d.data_disk.line(119), d.data_disk.line(200)), (2, 1, 3));
    let lost = d.engine().lost();
    let detach = d.submit(Operation::DetachAccepting { lost: lost[1..].to_vec() }, false);
    assert_eq!(d.wait(detach), Err(RequestError::Lost { lines: 5 }));
    d.forget_engine();
    d.reopen();
    d.drain_with_loss(5);
    d.done(|d| d.submit(Operation::DetachAccepting { lost }, false));
    d.forget_engine();
    d.reopen();
    assert_eq!((d.read(122), d.read(123), d.status().dirty_lines), (7, 1, 0));
}
