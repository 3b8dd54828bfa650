//! A volume whose cache-disk is lost is found again by its twin.

#[path = "common/volume.rs"]
mod common;

use std::collections::BTreeSet;

use common::{Bench, CACHE_BYTES, MIB, UUID, check, config, fill, raid5, set, tiered};
use dcd_engine::create::{CreateOptions, create};
use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::config::VolumeConfig;
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel};
use dcd_engine::volume::import::{self, ImportDisks, ImportError, ImportReport};
use dcd_engine::volume::placement::RaidLevel;
use dcd_engine::volume::{GrowthEnd, Volume};
use dcd_engine::{Buffer, Duration, Geometry, IoError, LbaRange, Operation};

/// The members of a bench, and a new cache-disk.
struct Disks<'a> {
    members: &'a mut [Option<Vec<u8>>],
    cache_disk: Vec<u8>,
    /// So many writes are done, and then none.
    writes_left: u64,
}

impl Disks<'_> {
    fn take_write(&mut self) -> Result<(), IoError> {
        self.writes_left = self.writes_left.checked_sub(1).ok_or(IoError::Failed)?;
        Ok(())
    }
}

impl ImportDisks for Disks<'_> {
    fn read_member(
        &mut self,
        member: MemberIndex,
        offset: u64,
        buffer: &mut Buffer,
    ) -> Result<(), IoError> {
        let disk = self.members[usize::from(member.0)].as_ref().ok_or(IoError::Failed)?;
        let length = buffer.len();
        buffer.bytes_mut().copy_from_slice(&disk[offset as usize..][..length]);
        Ok(())
    }

    fn write_member(
        &mut self,
        member: MemberIndex,
        offset: u64,
        bytes: &Buffer,
    ) -> Result<(), IoError> {
        self.take_write()?;
        let disk = self.members[usize::from(member.0)].as_mut().ok_or(IoError::Failed)?;
        disk[offset as usize..][..bytes.len()].copy_from_slice(bytes.bytes());
        Ok(())
    }

    fn flush_member(&mut self, _: MemberIndex) -> Result<(), IoError> {
        Ok(())
    }

    fn write_cache_disk(&mut self, offset: u64, bytes: &Buffer) -> Result<(), IoError> {
        self.take_write()?;
        self.cache_disk[offset as usize..][..bytes.len()].copy_from_slice(bytes.bytes());
        Ok(())
    }

    fn flush_cache_disk(&mut self) -> Result<(), IoError> {
        Ok(())
    }

    fn progress(&mut self, done: u64, of: u64) {
        assert!(done <= of);
    }
}

fn labels(bench: &Bench) -> Vec<MemberLabel> {
    let copy = |disk: &Vec<u8>, place: usize| {
        disk[LABEL_OFFSETS[place] as usize..][..MEMBER_LABEL_BYTES].to_vec()
    };
    let members = bench.members.iter().flatten();
    members.filter_map(|disk| MemberLabel::newest(&copy(disk, 0), &copy(disk, 1))).collect()
}

/// The cache-disk is gone: a new one is made of what the members have.
fn try_import(
    bench: &mut Bench,
    degraded: bool,
    writes_left: u64,
) -> Result<ImportReport, ImportError> {
    bench.engine = None;
    let labels = labels(bench);
    let mut disks = Disks {
        members: &mut bench.members,
        cache_disk: vec![0xdd; bench.cache_disk.len().max(CACHE_BYTES as usize)],
        writes_left,
    };
    let found = import::find(&labels, degraded, &mut disks)?;
    let header = found.header.clone();
    let geometry = Geometry::fit(8 * MIB, 64 << 10).unwrap();
    let mut writes = create(CreateOptions {
        uuid: UUID,
        geometry,
        data_disk: Volume::data_disk_info(&header.config),
        data_disk_serial: String::new(),
        created_unix_seconds: 0,
        data_offset_bytes: 0,
        has_end_mark: false,
        has_legs: false,
        volume: Some(header),
    });
    let superblocks = writes.split_off(writes.len() - 2);
    for (offset, bytes) in &writes {
        disks
            .write_cache_disk(*offset, bytes)
            .map_err(|problem| ImportError::Unwritable { member: None, problem })?;
    }
    let report = found.write(geometry.end(), &mut disks)?;
    for (offset, bytes) in &superblocks {
        disks.write_cache_disk(*offset, bytes).unwrap();
    }
    bench.cache_disk = disks.cache_disk;
    Ok(report)
}

fn import(bench: &mut Bench) -> ImportReport {
    let report = try_import(bench, false, u64::MAX).unwrap();
    bench.open(false);
    report
}

fn with_twin(config: VolumeConfig) -> Bench {
    let bench = Bench::new(VolumeConfig { twin_region_pages: 1, ..config });
    bench.volume().status().twin.expect("it has one");
    bench
}

/// While a volume grows, and its cache-disk is lost at any moment, one twin or the other tells all
/// that was there; behind that the larger one does.
#[test]
fn a_volume_that_grows_is_found_without_its_cache_disk() {
    for config in [raid5(), tiered()] {
        let mut bench = with_twin(config);
        let written = fill(&mut bench, 3);
        bench.drain();
        settle(&mut bench);
        let before = bench.lines();
        bench.enlarge(8 * MIB, 6 * MIB);
        let growth = bench.growth();
        bench.moments = Some(Vec::new());
        assert_eq!(bench.grow(&growth), Ok(GrowthEnd::Grown));
        let moments = bench.moments.take().unwrap();
        let after = bench.lines();
        let mut sizes = BTreeSet::new();
        for (cache_disk, members) in moments.into_iter().step_by(3) {
            (bench.cache_disk, bench.members) = (cache_disk, members);
            import(&mut bench);
            sizes.insert(bench.lines());
            check(&mut bench, &written);
        }
        assert!(sizes.is_subset(&BTreeSet::from([before, after])), "{sizes:?}");
        assert!(sizes.contains(&before));
        // The larger one, and what is where there was nothing before.
        bench.enlarge(0, 0);
        if bench.lines() == before {
            let growth = bench.growth();
            assert_eq!(bench.grow(&growth), Ok(GrowthEnd::Grown));
        }
        let again = fill(&mut bench, 9);
        bench.drain();
        settle(&mut bench);
        import(&mut bench);
        assert_eq!(bench.lines(), after);
        check(&mut bench, &again);
    }
}

/// Time for the twin to be built, and for its checksums to be written.
fn settle(bench: &mut Bench) {
    bench.pass_in_steps(Duration::from_secs(15));
    bench.until_idle();
    let twin = bench.volume().status().twin.unwrap();
    assert_eq!((twin.holders.0.count_ones(), twin.regions_marked, twin.is_built), (2, 0, false));
}

fn flush(bench: &mut Bench) {
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
}

#[test]
fn everything_is_there_after_a_drain() {
    for config in [
        tiered(),
        raid5(),
        common::config(2, vec![set(RaidLevel::Raid1, 2, 2, 0, 16 << 10)], 16 << 10),
    ] {
        let mut bench = with_twin(config);
        let written = fill(&mut bench, 1);
        bench.drain();
        settle(&mut bench);
        let report = import(&mut bench);
        assert_eq!((report.regions_believed, report.lines_lost, report.lines_mended), (0, 0, 0));
        check(&mut bench, &written);
        // And once more, by the twin of the new one.
        let again = fill(&mut bench, 2);
        bench.drain();
        let report = import(&mut bench);
        assert_eq!(report.lines_lost, 0);
        check(&mut bench, &again);
        assert_eq!(bench.volume().status().redundant_lines_lost, 0);
    }
}

/// A mark and checksums cost writes of an arm on each holder, far from the data.
#[test]
fn what_is_changed_all_the_time_keeps_its_mark() {
    let mut bench = with_twin(raid5());
    fill(&mut bench, 1);
    bench.drain();
    settle(&mut bench);
    let before = bench.volume().counters().twin_checkpoints;
    let change_for = |bench: &mut Bench, seconds: u64| {
        for _ in 0..seconds {
            let data = Buffer::copy_of(&[7; LINE_SIZE as usize]);
            let start = dcd_engine::Lba(80);
            assert_eq!(bench.ask(Operation::Write { start, data }).0, Ok(()));
            bench.drain();
            bench.pass_in_steps(Duration::from_secs(1));
        }
    };
    change_for(&mut bench, 60);
    let twin = bench.volume().status().twin.unwrap();
    let checkpoints = bench.volume().counters().twin_checkpoints - before;
    assert_eq!((checkpoints, twin.regions_marked), (0, 1));
    // But not for ever.
    change_for(&mut bench, 600);
    let checkpoints = bench.volume().counters().twin_checkpoints - before;
    assert!((1..=3).contains(&checkpoints), "{checkpoints}");
    settle(&mut bench);
}

#[test]
fn what_was_flushed_is_there_at_any_moment() {
    for config in [tiered(), raid5()] {
        let mut bench = with_twin(config);
        // Past the log, each write is on the members when it is flushed.
        bench.close();
        bench.no_log = true;
        bench.open(false);
        for round in 1..=6 {
            let mut written = fill(&mut bench, round);
            flush(&mut bench);
            if round % 2 == 0 {
                bench.pass_in_steps(Duration::from_millis(400 * u64::from(round)));
            }
            let line = u64::from(round) * 97 % bench.lines();
            bench.write(line, round | 0x80);
            flush(&mut bench);
            written.retain(|(known, _)| *known != line);
            written.push((line, round | 0x80));
            // A copy of it loses the cache-disk.
            let mut lost = Bench {
                engine: None,
                cache_disk: Vec::new(),
                members: bench.members.clone(),
                failing: vec![false; bench.members.len()],
                unflushable: vec![false; bench.members.len()],
                bad: Default::default(),
                header: bench.header.clone(),
                now: bench.now,
                next: 0,
                replies: Default::default(),
                writes: vec![0; bench.members.len()],
                no_log: true,
                accept_damage: false,
                bypass_threshold_bytes: bench.bypass_threshold_bytes,
                scrub_every: Duration(0),
                spare_after: Duration(0),
                volume_memory_bytes: bench.volume_memory_bytes,
                zero_ranges_max: bench.zero_ranges_max,
                bad_cache: 0..0,
                calendar: None,
                held: None,
                moments: None,
                holds: Vec::new(),
            };
            let report = import(&mut lost);
            assert_eq!(report.lines_lost, 0, "round {round}");
            check(&mut lost, &written);
        }
    }
}

#[test]
fn a_member_may_be_missing_too() {
    for missing in 0..4 {
        let mut bench = with_twin(raid5());
        let written = fill(&mut bench, 1);
        bench.drain();
        settle(&mut bench);
        bench.members[missing] = None;
        let refused = try_import(&mut bench, false, u64::MAX);
        assert!(
            matches!(refused, Err(ImportError::MembersMissing { missing: found }) if found.0 == 1 << missing)
        );
        try_import(&mut bench, true, u64::MAX).unwrap();
        bench.open(true);
        check(&mut bench, &written);
    }
}

#[test]
fn one_that_fails_is_left_out_and_another_takes_its_place() {
    let mut bench = with_twin(raid5());
    fill(&mut bench, 1);
    bench.drain();
    settle(&mut bench);
    let before = bench.members[0].clone();
    bench.failing[0] = true;
    let written = fill(&mut bench, 2);
    bench.drain();
    bench.pass_in_steps(Duration::from_secs(15));
    let twin = bench.volume().status().twin.unwrap();
    assert_eq!(twin.holders.0, 0b110);
    // The one that was left out comes back as it was, with another that has it not: nobody is
    // believed.
    let mut lost = bench.members.clone();
    lost[0] = before;
    let mut others = with_twin(raid5());
    others.members = lost;
    others.members[1] = None;
    others.members[2] = None;
    let refused = try_import(&mut others, true, u64::MAX);
    assert!(matches!(refused, Err(ImportError::HoldersMissing { holders }) if holders.0 == 0b110));
    bench.members[0] = None;
    try_import(&mut bench, true, u64::MAX).unwrap();
    bench.failing[0] = false;
    bench.open(true);
    check(&mut bench, &written);
}

#[test]
fn an_older_copy_of_a_holder_is_not_believed() {
    let pair = config(2, vec![set(RaidLevel::Raid1, 2, 2, 0, 16 << 10)], 16 << 10);
    let mut bench = with_twin(pair);
    fill(&mut bench, 1);
    bench.drain();
    settle(&mut bench);
    bench.close();
    let older = bench.members[0].clone();
    let mut written = Vec::new();
    for round in 2..5 {
        bench.open(false);
        written = fill(&mut bench, round);
        bench.drain();
        settle(&mut bench);
        bench.close();
    }
    bench.members[0] = older.clone();
    let mut alone = with_twin(bench.header.config.clone());
    import(&mut bench);
    check(&mut bench, &written);
    // The other one alone is a matter of whoever gives nothing else.
    alone.members = vec![None, bench.members[1].clone()];
    assert!(try_import(&mut alone, true, u64::MAX).is_ok());
}

#[test]
fn a_stop_comes_to_its_end_although_a_holder_fails() {
    for failing in 0..4 {
        let mut bench = with_twin(raid5());
        fill(&mut bench, 1);
        bench.drain();
        settle(&mut bench);
        bench.failing[failing] = true;
        bench.close();
        bench.failing[failing] = false;
        bench.open(false);
        bench.pass_in_steps(Duration::from_secs(3));
    }
}

#[test]
fn an_import_that_was_cut_off_is_done_again() {
    let mut bench = with_twin(tiered());
    let written = fill(&mut bench, 1);
    bench.drain();
    let mut writes_left = 0;
    loop {
        match try_import(&mut bench, false, writes_left) {
            Ok(_) => break,
            Err(ImportError::Unwritable { .. }) => writes_left += 7,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(writes_left > 20);
    bench.open(false);
    check(&mut bench, &written);
}

#[test]
fn mirrors_that_differ_are_made_alike() {
    let mut bench = with_twin(config(2, vec![set(RaidLevel::Raid1, 2, 2, 0, 16 << 10)], 16 << 10));
    bench.write(0, 1);
    bench.drain();
    bench.write(0, 2);
    bench.drain();
    // Marked: the second mirror has not got what the first has.
    let offset = MIB as usize;
    let other = bench.members[1].as_mut().unwrap();
    let place = other[offset..].chunks(LINE_SIZE as usize).position(|line| line[0] == 2).unwrap();
    other[offset + place * LINE_SIZE as usize..][..LINE_SIZE as usize].fill(3);
    let report = import(&mut bench);
    assert_eq!((report.lines_mended, report.lines_lost), (1, 0));
    assert!(report.regions_believed > 0 && report.lines_believed > 0);
    assert_eq!(bench.read(0), 2);
    assert_eq!(
        bench.members[0].as_ref().unwrap()[offset..][..4 << 20],
        bench.members[1].as_ref().unwrap()[offset..][..4 << 20]
    );
}

#[test]
fn what_was_discarded_stays_so() {
    let mut bench = with_twin(raid5());
    let written = fill(&mut bench, 1);
    bench.drain();
    settle(&mut bench);
    let all = LbaRange::new(0, bench.lines() * 8);
    let discard = Operation::Discard { range: LbaRange::new(0, all.blocks / 2) };
    assert_eq!(bench.ask(discard).0, Ok(()));
    flush(&mut bench);
    bench.drain();
    let values: Vec<(u64, u8)> = {
        let lines: Vec<u64> = written.iter().map(|(line, _)| *line).collect();
        lines.into_iter().map(|line| (line, bench.read(line))).collect()
    };
    assert_eq!(bench.read(0), 0);
    import(&mut bench);
    check(&mut bench, &values);
}
