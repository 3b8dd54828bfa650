use super::super::format::header::tests::header;
use super::*;

/// The set of the header that is RAID 0, and a run of lines of it.
fn run(first: u64, lines: u64) -> LineRun {
    let set = header().config.sets.iter().position(|set| set.level == RaidLevel::Raid0);
    LineRun { set: set.expect("the header has one") as u8, first: SetLine(first), lines }
}

fn lost() -> LostLines {
    LostLines::new(&header().config)
}

fn lost_lines(lost: &LostLines) -> Vec<u64> {
    let set = run(0, 1).set;
    let lines = lost.lines[usize::from(set)];
    (0..lines).filter(|line| lost.is_lost(set, SetLine(*line))).collect()
}

/// What a start would have, of the pages alone.
fn loaded(lost: &LostLines) -> Vec<u64> {
    let set = usize::from(run(0, 1).set);
    let page = lost.page(set, 0..u64::MAX);
    let mut again = self::lost();
    for (word, bytes) in page.as_chunks::<8>().0.iter().enumerate() {
        again.load(set, word as u64, u64::from_le_bytes(*bytes));
    }
    lost_lines(&again)
}

#[test]
fn lines_are_lost_until_they_are_written() {
    let mut lost = lost();
    assert_eq!(lost_lines(&lost), []);
    lost.lose(run(62, 5));
    assert_eq!((lost_lines(&lost), lost.count()), (vec![62, 63, 64, 65, 66], 5));
    lost.written(run(63, 2));
    assert_eq!((lost_lines(&lost), lost.count()), (vec![62, 65, 66], 3));
    assert!(lost.has_found(run(64, 1)) && !lost.has_found(run(65, 9)));
}

#[test]
fn pages_have_them_until_the_journal_has_been_told() {
    let mut lost = lost();
    lost.lose(run(62, 5));
    lost.written(run(63, 2));
    assert_eq!(loaded(&lost), [62, 63, 64, 65, 66]);
    assert_eq!(lost.queue(run(0, 100)), [run(63, 2)]);
    assert_eq!(loaded(&lost), [62, 63, 64, 65, 66]);
    assert_eq!(lost.found(), []);
    lost.committed(run(63, 2));
    assert_eq!(loaded(&lost), [62, 65, 66]);
}

#[test]
fn what_the_journal_refused_is_told_again() {
    let mut lost = lost();
    lost.lose(run(1, 3));
    lost.written(run(2, 1));
    lost.queue(run(2, 1));
    lost.refused(run(2, 1));
    assert_eq!(lost.found(), [run(2, 1)]);
}

#[test]
fn a_failed_flush_takes_back_what_was_found_and_is_not_durable() {
    let mut lost = lost();
    lost.lose(run(0, 4));
    lost.written(run(0, 1));
    lost.queue(run(0, 1));
    lost.written(run(1, 2));
    lost.doubt(|_, line| line.0 < 2);
    assert_eq!(lost_lines(&lost), [1, 3]);
    assert_eq!(lost.found(), [run(2, 1)]);
}

#[test]
fn bits_behind_the_last_line_do_not_count() {
    let set = run(0, 1).set;
    let mut config = header().config;
    config.sets[usize::from(set)].member_bytes += config.sets[0].stripe_unit_bytes;
    let mut lost = LostLines::new(&config);
    let lines = lost.lines[usize::from(set)];
    assert_ne!(lines % 64, 0);
    lost.load(usize::from(set), lines / 64, u64::MAX);
    assert_eq!(lost.count(), lines % 64);
    assert!(lost.has(run(lines - 1, 1)) && !lost.has(run(lines, 1)));
    assert!(!lost.has(run(1, u64::MAX)) && !lost.has(run(0, 0)));
    assert!(!lost.has(LineRun { set: u8::MAX, ..run(0, 1) }));
}

#[test]
fn redundant_sets_have_none() {
    let raid0 = run(0, 1).set;
    for (set, config) in header().config.sets.iter().enumerate() {
        assert_eq!(lines_of(config) > 0, set == usize::from(raid0));
    }
}
