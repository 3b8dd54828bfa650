use super::super::format::header::tests::header;
use super::*;

fn growth(bytes: u64) -> Growth {
    let member_bytes = vec![Some(bytes); 6];
    Growth { set: None, logical_bytes: None, member_bytes, cache_disk_bytes: 0 }
}

fn grown(growth: &Growth) -> Result<Grown, GrowthError> {
    let header = header();
    let area = VolumeArea::of(&header, 0).unwrap();
    growth.of(&header, &area, 1 << 30)
}

/// Whatever there is, the twin fits behind it, and not one stripe more would.
#[test]
fn all_that_there_is_is_taken() {
    let before = header().config;
    let twin_bytes = VolumeArea::of(&header(), 0).unwrap().twin_bytes();
    let twin_end = before.twin_offset_bytes().unwrap() + twin_bytes;
    for bytes in ((twin_end + (2 << 20))..(60 << 20)).step_by((1 << 20) + 4096) {
        let Grown { header, area } = grown(&growth(bytes)).unwrap();
        let needed = |config: &VolumeConfig, area: &VolumeArea| {
            (0..6).map(|member| bytes_needed(config, area, MemberIndex(member))).max().unwrap()
        };
        assert!(needed(&header.config, &area) <= bytes);
        assert_eq!(header.config.validate(), Ok(()));
        assert!(header.config.twin_offset_bytes().unwrap() >= twin_end);
        let mut more = header.clone();
        more.config.sets[2].member_bytes += 16 << 10;
        more.config.logical_bytes = more.config.capacity_bytes() - more.config.temporary_bytes;
        let area = VolumeArea::of(&more, 1 << 30).unwrap();
        assert!(needed(&more.config, &area) > bytes, "{bytes}");
        // What was there is where it was.
        assert_eq!(header.config.sets[..2], before.sets[..2]);
        assert_eq!(header.config.temporary_bytes, before.temporary_bytes);
    }
}

#[test]
fn a_set_before_others_gets_another_slice_as_long_as_there_may_be_more() {
    let mut header = header();
    for sets in 3..SETS_MAX {
        let area = VolumeArea::of(&header, 0).unwrap();
        let set = if sets % 2 == 0 { 0 } else { 1 };
        let bytes = header.config.sets.iter().map(SetConfig::end_bytes).max().unwrap();
        let growth = Growth { set: Some(set), ..growth(bytes + (12 << 20)) };
        header = growth.of(&header, &area, 0).unwrap().header;
        let (new, of) = (&header.config.sets[sets], &header.config.sets[usize::from(set)]);
        assert_eq!((new.level, new.copies, &new.members), (of.level, of.copies, &of.members));
    }
    let area = VolumeArea::of(&header, 0).unwrap();
    let growth = Growth { set: Some(0), ..growth(1 << 30) };
    let refused = growth.of(&header, &area, 0);
    assert_eq!(refused, Err(GrowthError::TooManySets { set: 0 }));
}

/// Users may be shown what the sets hold already.
#[test]
fn a_volume_may_be_smaller_than_its_sets() {
    let mut header = header();
    header.config.twin_region_pages = 0;
    let all = header.config.logical_bytes;
    header.config.logical_bytes -= 5 << 20;
    let area = VolumeArea::of(&header, 0).unwrap();
    let end = header.config.sets[2].end_bytes();
    let of = |wanted| Growth { logical_bytes: wanted, ..growth(end) }.of(&header, &area, 0);
    assert_eq!(of(None).unwrap().header.config.logical_bytes, all);
    assert_eq!(of(Some(all - (1 << 20))).unwrap().header.config.sets, header.config.sets);
    let refused = of(Some(all + (1 << 20)));
    assert_eq!(refused, Err(GrowthError::TooLarge { wanted: all + (1 << 20), most: all }));
}

/// Files may say that they have more than any disk, and a disk may have become smaller.
#[test]
fn any_size_of_a_disk_has_an_answer() {
    for bytes in [0, 1 << 20, 1 << 49, 1 << 50, 1 << 60, i64::MAX as u64, u64::MAX] {
        match grown(&growth(bytes)) {
            Ok(Grown { header, .. }) => assert_eq!(header.config.validate(), Ok(())),
            Err(GrowthError::NoRoom { found, .. }) => assert_eq!(found, bytes.min(1 << 20)),
            Err(error) => assert!(matches!(error, GrowthError::Config(_)), "{error}"),
        }
    }
}
