//! A volume that grows while it is used: `volume/paths/grow.rs`.

#[path = "common/volume.rs"]
mod bench;

use std::collections::BTreeSet;

use bench::*;
use dcd_engine::units::MemberIndex;
use dcd_engine::volume::config::VolumeConfig;
use dcd_engine::volume::growth::GrowthError;
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::volume::{GrowthCutShort, GrowthEnd, GrowthStage};
use dcd_engine::{Device, Duration, GrowRefusal, Operation, VolumeRequest};

fn raid0() -> VolumeConfig {
    config(3, vec![set(RaidLevel::Raid0, 3, 1, 0, 16 << 10)], 16 << 10)
}

fn raid1() -> VolumeConfig {
    config(4, vec![set(RaidLevel::Raid1, 4, 2, 0, 16 << 10)], 16 << 10)
}

/// What was written stays, at any moment of it; then there is more, and it can be used.
#[test]
fn a_volume_grows_where_its_members_have_become_larger() {
    for config in [raid0(), raid1(), raid5(), tiered()] {
        let mut bench = Bench::new(config);
        fill(&mut bench, 3);
        bench.drain();
        let written = fill(&mut bench, 4);
        assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
        let before = bench.lines();
        bench.enlarge(8 * MIB, 5 * MIB);
        let growth = bench.growth();
        let expected = bench.engine().check_grow_volume(&growth).unwrap();
        bench.moments = Some(Vec::new());
        assert_eq!(bench.grow(&growth), Ok(GrowthEnd::Grown));
        let moments = bench.moments.take().unwrap();
        let after = bench.lines();
        assert_eq!(after * 4096, expected);
        assert!(after > before, "{after} lines after {before}");
        check(&mut bench, &written);
        // Over all of it, and it is there still behind a start, and a crash.
        let again = fill(&mut bench, 5);
        assert!(again.iter().any(|(line, _)| *line >= before));
        bench.drain();
        check(&mut bench, &again);
        bench.open(false);
        assert_eq!(bench.lines(), after);
        check(&mut bench, &again);
        bench.close();
        bench.open(false);
        check(&mut bench, &again);

        let mut sizes = BTreeSet::new();
        assert!(moments.len() > 20, "{}", moments.len());
        for (cache_disk, members) in moments {
            (bench.cache_disk, bench.members) = (cache_disk, members);
            bench.open(false);
            sizes.insert(bench.lines());
            check(&mut bench, &written);
            if bench.lines() == before {
                assert_eq!(bench.grow(&growth), Ok(GrowthEnd::Grown));
            }
            assert_eq!(bench.lines(), after);
            let newest = fill(&mut bench, 6);
            bench.drain();
            bench.open(false);
            check(&mut bench, &newest);
        }
        assert_eq!(sizes, BTreeSet::from([before, after]));
    }
}

/// Twice, and what is lost stays lost.
#[test]
fn a_volume_grows_again_and_keeps_what_it_knows_of_lost_lines() {
    let mut bench = Bench::new(tiered());
    let mut written = fill(&mut bench, 3);
    bench.drain();
    let before = bench.lines();
    for round in 0..3u8 {
        bench.enlarge(8 * MIB, 3 * MIB);
        let growth = bench.growth();
        assert_eq!(bench.grow(&growth), Ok(GrowthEnd::Grown));
        check(&mut bench, &written);
        written = fill(&mut bench, 4 + round);
        bench.drain();
        bench.open(false);
        check(&mut bench, &written);
    }
    assert!(bench.lines() > before);
    let mut degraded = bench.without(1);
    let lost: Vec<u64> = written
        .iter()
        .filter(|(line, _)| degraded.try_read(*line).is_err())
        .map(|(line, _)| *line)
        .collect();
    for (line, value) in &written {
        match degraded.try_read(*line) {
            Ok(found) => assert_eq!(found, *value),
            Err(_) => assert!(lost.contains(line)),
        }
    }
}

/// A set that is not the last gets another slice of its own form.
#[test]
fn a_set_that_is_not_the_last_gets_another_slice() {
    let mut bench = Bench::new(tiered());
    let written = fill(&mut bench, 3);
    bench.drain();
    bench.enlarge(8 * MIB, 5 * MIB);
    let mut growth = bench.growth();
    growth.set = Some(1);
    assert_eq!(bench.grow(&growth), Ok(GrowthEnd::Grown));
    let sets = &bench.volume().config().sets;
    assert_eq!(sets.len(), 4);
    assert_eq!((sets[3].level, &sets[3].members), (RaidLevel::Raid5, &sets[1].members));
    check(&mut bench, &written);
    let again = fill(&mut bench, 4);
    bench.drain();
    check(&mut bench, &again);
    let mut without = bench.without(2);
    let redundant = again.iter().filter(|(line, _)| without.try_read(*line).is_ok()).count();
    assert!(redundant > 0);
    bench.open(false);
    check(&mut bench, &again);
}

/// What cannot be is refused, with nothing written.
#[test]
fn what_cannot_be_is_refused() {
    let mut bench = Bench::new(raid5());
    fill(&mut bench, 1);
    bench.drain();
    let before = (bench.cache_disk.clone(), bench.members.clone());
    let refused = |bench: &mut Bench, change: &dyn Fn(&mut dcd_engine::volume::growth::Growth)| {
        let mut growth = bench.growth();
        change(&mut growth);
        match bench.engine.as_mut().unwrap().grow_volume(&growth) {
            Err(GrowRefusal::Growth(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    // Members of 13 MiB have room behind their 4 MiB, and the cache-disk has none.
    let error = refused(&mut bench, &|growth| growth.cache_disk_bytes = 8 * MIB);
    assert!(matches!(error, GrowthError::CacheDisk { .. }), "{error}");
    let error = refused(&mut bench, &|growth| growth.member_bytes[2] = Some(5 * MIB));
    let (member, found) = (MemberIndex(2), 5 * MIB);
    let needed = 5 * MIB + (16 << 10);
    assert_eq!(error, GrowthError::NoRoom { member, needed, found });
    let error = refused(&mut bench, &|growth| growth.member_bytes[1] = None);
    assert_eq!(error, GrowthError::Away(MemberIndex(1)));
    let error = refused(&mut bench, &|growth| growth.set = Some(1));
    assert_eq!(error, GrowthError::NoSet { set: 1, sets: 1 });
    let now = bench.lines() * 4096;
    let error = refused(&mut bench, &|growth| growth.logical_bytes = Some(now - (16 << 10)));
    assert_eq!(error, GrowthError::Shrinks { now, wanted: now - (16 << 10) });
    let error = refused(&mut bench, &|growth| growth.logical_bytes = Some(1 << 40));
    assert!(matches!(error, GrowthError::TooLarge { .. }), "{error}");
    let error = refused(&mut bench, &|growth| growth.logical_bytes = Some(now + 1));
    assert!(matches!(error, GrowthError::Config(_)), "{error}");
    assert!(before == (bench.cache_disk.clone(), bench.members.clone()));
}

/// Who stops dcd meanwhile has the volume as it was, and a member that fails is told of at once.
#[test]
fn a_growth_is_cut_short_by_an_end_and_by_a_member_that_fails() {
    let mut bench = Bench::new(raid5());
    let written = fill(&mut bench, 1);
    bench.drain();
    let before = bench.lines();
    let growth = bench.growth();
    bench.engine.as_mut().unwrap().grow_volume(&growth).unwrap();
    bench.close();
    bench.open(false);
    check(&mut bench, &written);
    let lines = bench.lines();
    // A member that does not answer as it should, from the first change on.
    bench.engine.as_mut().unwrap().grow_volume(&growth).unwrap_or_default();
    bench.failing[1] = true;
    let again = fill(&mut bench, 2);
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    bench.drain();
    bench.pass_in_steps(dcd_engine::Duration::from_secs(2));
    let status = bench.volume().growth_status();
    if let Some(status) = status {
        let cut = GrowthEnd::CutShort(GrowthCutShort::Member);
        assert!([Err(GrowthEnd::Grown), Err(cut)].contains(&status.state), "{status:?}");
    }
    check(&mut bench, &again);
    assert!(lines >= before);
    bench.failing[1] = false;
    bench.open(false);
    check(&mut bench, &again);
}

/// What is held back of the cache-disk ends, bit by bit, until the growth has got so far.
fn until_stage(bench: &mut Bench, wanted: GrowthStage) {
    for _ in 0..100_000 {
        let state = bench.volume().growth_status().unwrap().state;
        if state == Ok(wanted) {
            return;
        }
        assert!(state.is_ok(), "{state:?}");
        let mut held = std::mem::take(bench.held.as_mut().unwrap());
        if held.is_empty() {
            bench.pass(Duration::from_millis(20));
            continue;
        }
        let first = held.remove(0);
        bench.held.as_mut().unwrap().extend(held);
        bench.input(first);
    }
    panic!("it is never at {wanted:?}");
}

fn let_everything_end(bench: &mut Bench) -> GrowthEnd {
    for _ in 0..10_000 {
        for input in std::mem::take(bench.held.as_mut().unwrap()) {
            bench.input(input);
        }
        bench.pass(Duration::from_millis(20));
        if let Err(end) = bench.volume().growth_status().unwrap().state {
            for input in bench.held.take().unwrap() {
                bench.input(input);
            }
            return end;
        }
    }
    panic!("it grows for ever: {:?}", bench.volume().growth_status());
}

fn with_twin_to_grow() -> (Bench, Vec<(u64, u8)>) {
    let mut bench = Bench::new(VolumeConfig { twin_region_pages: 1, ..raid5() });
    bench.pass_in_steps(Duration::from_secs(5));
    bench.until_idle();
    let written = fill(&mut bench, 3);
    bench.drain();
    bench.enlarge(8 * MIB, 6 * MIB);
    let members = bench.holds.clone();
    let growth = bench.growth();
    bench.engine.as_mut().unwrap().grow_volume(&growth).unwrap();
    bench.holds = vec![Device::CacheDisk];
    bench.held = Some(Vec::new());
    until_stage(&mut bench, GrowthStage::Tables);
    bench.holds.extend(members);
    (bench, written)
}

/// Checksums are due for the twin while the tables are copied: nothing is begun that would end in
/// another twin.
#[test]
fn a_twin_that_is_due_waits_for_the_larger_one() {
    let (mut bench, written) = with_twin_to_grow();
    assert!(bench.volume().status().twin.unwrap().regions_marked > 0);
    // The tables get no further, and all else of the cache-disk does.
    let of_tables = bench.held.replace(Vec::new()).unwrap();
    bench.holds.retain(|device| *device != Device::CacheDisk);
    bench.pass_in_steps(Duration::from_secs(5));
    assert_eq!(bench.held.as_ref().unwrap().len(), 0, "members are asked for something");
    bench.holds.clear();
    of_tables.into_iter().for_each(|input| bench.input(input));
    assert_eq!(let_everything_end(&mut bench), GrowthEnd::Grown);
    check(&mut bench, &written);
    bench.pass_in_steps(Duration::from_secs(5));
    bench.until_idle();
    bench.open(false);
    check(&mut bench, &written);
}

/// A member fails while the superblock is written: labels say once that nobody has the twin, it is
/// recorded who has failed, and everything goes on.
#[test]
fn a_member_that_fails_behind_the_tables_is_recorded() {
    let (mut bench, written) = with_twin_to_grow();
    until_stage(&mut bench, GrowthStage::Superblock);
    let member = MemberIndex(1);
    let asked = bench.start(Operation::Volume(VolumeRequest::FailMember { member }));
    assert_eq!(let_everything_end(&mut bench), GrowthEnd::Grown);
    bench.pass_in_steps(Duration::from_secs(5));
    assert_eq!(bench.replies.remove(&asked).map(|reply| reply.0), Some(Ok(())));
    bench.until_idle();
    check(&mut bench, &written);
    let again = fill(&mut bench, 4);
    bench.drain();
    bench.open(false);
    check(&mut bench, &again);
}
