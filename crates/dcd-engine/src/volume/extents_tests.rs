//! Tests of the TTABLE: entries as numbers, order of fall-back, the region for temporary data, and
//! everything against plain sets.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::RaidLevel::{Raid0, Raid1, Raid5};
use super::*;
use crate::units::MemberIndex;
use crate::volume::config::{LABEL_BYTES, SetConfig};
use crate::volume::placement::{DeviceClass, PlacementRule};

const EXTENT: u64 = 16 << 10;

/// Sets of these levels and sizes in extents, one behind the other on four members.
fn config(sets: &[(RaidLevel, u64)], temporary: u64) -> VolumeConfig {
    let mut member_offset_bytes = LABEL_BYTES;
    let sets: Vec<SetConfig> = sets
        .iter()
        .map(|(level, extents)| {
            let mut set = SetConfig {
                level: *level,
                class: DeviceClass::Slow,
                members: (0..4).map(MemberIndex).collect(),
                stripe_unit_bytes: 4096,
                copies: if *level == Raid1 { 2 } else { 1 },
                member_offset_bytes,
                member_bytes: 4096,
            };
            set.member_bytes = (extents * EXTENT).div_ceil(set.capacity_bytes()) * 4096;
            member_offset_bytes += set.member_bytes;
            set
        })
        .collect();
    let mut config = VolumeConfig {
        members: 4,
        sets,
        extent_bytes: EXTENT,
        logical_bytes: 0,
        temporary_bytes: temporary * EXTENT,
        selective_caching: false,
        twin_region_pages: 0,
        migrate_bytes_per_second_max: 0,
        placement: Placement::default(),
    };
    config.logical_bytes = config.capacity_bytes() - config.temporary_bytes;
    config.validate().unwrap();
    config
}

fn attributes(words: &str) -> Attributes {
    words.parse().unwrap()
}

/// Takes places until there is none; how many of each set, in the order in which the sets were
/// used.
fn fill(extents: &mut Extents, words: &str) -> Vec<(u8, u64)> {
    let mut used: Vec<(u8, u64)> = Vec::new();
    while let Some(place) =
        extents.allocate(attributes(words), None, &Placement::default(), |_| true)
    {
        match used.last_mut() {
            Some((set, count)) if *set == place.set => *count += 1,
            _ => used.push((place.set, 1)),
        }
    }
    used
}

#[test]
fn an_entry_is_one_number() {
    let place = Some(Place { set: 7, extent: SET_EXTENTS_MAX - 1 });
    let attributes = attributes("important,root,metadata,write-most");
    for entry in [
        Entry::default(),
        Entry { place, attributes, is_managed: true, ..Entry::default() },
        Entry { place, attributes: Attributes::NONE, is_managed: false, ..Entry::default() },
        Entry { place: None, attributes, is_managed: false, ..Entry::default() },
        Entry { place: None, attributes: Attributes::NONE, is_managed: true, ..Entry::default() },
        Entry { place: Some(Place { set: 0, extent: 0 }), ..Entry::default() },
    ] {
        assert_eq!(Entry::unpack(entry.pack()), Some(entry));
    }
    assert_eq!(Entry::default().pack(), 0);
}

#[test]
fn refuses_numbers_that_are_no_entries() {
    let mut extents = Extents::new(&config(&[(Raid0, 10), (Raid1, 4)], 0));
    let extent = ExtentIndex(3);
    let hot_and_cold = 0b11000 << ATTRIBUTES_SHIFT;
    for packed in [1, 1 << SET_SHIFT, IS_MANAGED << 1, 1 << 63, hot_and_cold] {
        let error = Err(ExtentsError::Entry { extent, packed });
        assert_eq!(extents.set_packed(extent, packed), error, "{packed:#x}");
    }
    for place in [Place { set: 2, extent: 0 }, Place { set: 1, extent: 4 }] {
        let packed = Entry { place: Some(place), ..Entry::default() }.pack();
        let error = Err(ExtentsError::Place { extent, place });
        assert_eq!(extents.set_packed(extent, packed), error);
    }
    let behind = ExtentIndex(extents.extents());
    assert_eq!(extents.set_packed(behind, 0), Err(ExtentsError::Extent(behind)));
}

#[test]
fn what_is_loaded_last_counts() {
    let config = config(&[(Raid0, 10)], 0);
    let mut extents = Extents::new(&config);
    let on = |extent| Entry { place: Some(Place { set: 0, extent }), ..Entry::default() };
    let (a, b) = (ExtentIndex(1), ExtentIndex(2));
    extents.set_packed(a, on(5).pack()).unwrap();
    extents.set_packed(b, on(5).pack()).unwrap();
    let place = Place { set: 0, extent: 5 };
    assert_eq!(extents.index_loaded(), Err(ExtentsError::Shared { extent: b, place }));
    // A redo record says that the first of them had left.
    extents.set_packed(a, on(6).pack()).unwrap();
    assert_eq!(extents.index_loaded(), Ok(()));
    extents.check_invariants();
    assert_eq!((extents.extents_mapped(), extents.set_status(0).used), (2, 2));
    assert!(extents.is_taken(place) && !extents.is_taken(Place { set: 0, extent: 4 }));
    assert_eq!(extents.find_unmapped(Some(a)), Some(ExtentIndex(3)));
}

#[test]
fn full_sets_in_the_order_of_table_1() {
    let sets = [(Raid1, 4), (Raid0, 10), (Raid5, 6)];
    for (words, expected) in [
        ("none", [(1, 10), (2, 6), (0, 4)]),
        ("important", [(2, 6), (0, 4), (1, 10)]),
        ("important,random", [(0, 4), (2, 6), (1, 10)]),
        ("metadata", [(0, 4), (2, 6), (1, 10)]),
    ] {
        assert_eq!(fill(&mut Extents::new(&config(&sets, 0)), words), expected, "{words}");
    }
}

#[test]
fn of_two_sets_the_emptier_one() {
    let mut extents = Extents::new(&config(&[(Raid0, 4), (Raid5, 6), (Raid0, 8)], 0));
    let filled = fill(&mut extents, "none");
    // The last four of the larger set and the four of the smaller one in turn.
    assert_eq!(filled[..3], [(2, 4), (0, 1), (2, 1)]);
    let count = |set| filled.iter().filter(|run| run.0 == set).map(|run| run.1).sum::<u64>();
    assert_eq!([count(0), count(1), count(2)], [4, 6, 8]);
    assert_eq!(filled.last(), Some(&(1, 6)));
}

#[test]
fn temporary_data_is_kept_apart() {
    // The region takes all of the last RAID 0 set and half of the first.
    let config = config(&[(Raid0, 8), (Raid5, 6), (Raid0, 4)], 8);
    let mut extents = Extents::new(&config);
    assert_eq!(extents.set_status(0).temporary, 4);
    assert_eq!(extents.set_status(1).temporary, 0);
    assert_eq!(extents.set_status(2).temporary, 4);
    // The rest keeps out of it, though there is no other room.
    let mut ordinary = extents.clone();
    assert_eq!(fill(&mut ordinary, "none"), [(0, 4), (1, 6)]);
    assert_eq!(ordinary.set_status(0).temporary_used, 0);
    // TEMPORARY goes there as long as it can, then to the rest of RAID 0, then as all others.
    let place = |set, extent| Place { set, extent };
    let mut places = Vec::new();
    while let Some(place) =
        extents.allocate(attributes("temporary"), None, &Placement::default(), |_| true)
    {
        places.push(place);
    }
    assert_eq!(places.len(), 18);
    assert!(places[..8].iter().all(|place| extents.is_temporary(*place)));
    assert!(places[8..].iter().all(|place| !extents.is_temporary(*place)));
    assert_eq!(places[8..12], [place(0, 0), place(0, 1), place(0, 2), place(0, 3)]);
    assert!(places[12..].iter().all(|place| place.set == 1));
    assert_eq!(extents.set_status(2).temporary_used, 4);
    // Where TEMPORARY is wanted on another level it has nothing to do with the region.
    let mut raid5 = Extents::new(&config);
    let got = raid5.allocate(attributes("temporary"), None, &always(Raid5), |_| true);
    assert_eq!(got, Some(place(1, 0)));
}

/// A table with one rule.
fn always(level: RaidLevel) -> Placement {
    let others = [Raid0, Raid1, Raid5].into_iter().filter(|other| *other != level);
    let levels: Vec<RaidLevel> = [level].into_iter().chain(others).collect();
    let none = Attributes::NONE;
    let levels = levels.try_into().unwrap();
    Placement::new(vec![PlacementRule { required: none, excluded: none, levels, class: None }])
        .unwrap()
}

#[test]
fn beside_a_neighbour() {
    let mut extents = Extents::new(&config(&[(Raid0, 8), (Raid0, 16)], 4));
    let placement = Placement::default();
    let near = |set, extent| Some(Place { set, extent });
    let mut allocate =
        |words, near| extents.allocate(attributes(words), near, &placement, |_| true);
    assert_eq!(allocate("none", near(0, 3)), near(0, 4));
    assert_eq!(allocate("none", near(0, 3)), near(0, 5));
    assert_eq!(allocate("none", near(0, 7)), near(0, 0));
    // Behind the last ordinary place there is the region, which is for others.
    assert_eq!(allocate("none", near(1, 11)), near(1, 0));
    assert_eq!(allocate("temporary", near(1, 11)), near(1, 12));
    // A neighbour on a set of another kind does not matter.
    assert_eq!(allocate("temporary", near(0, 3)), near(1, 13));
    assert_eq!(allocate("none", None), near(1, 1));
}

#[test]
fn what_should_move_and_what_can() {
    let mut extents = Extents::new(&config(&[(Raid0, 8), (Raid1, 4), (Raid5, 6)], 4));
    let placement = Placement::default();
    let entry = |words, set, extent| Entry {
        place: Some(Place { set, extent }),
        attributes: attributes(words),
        is_managed: false,
        is_dying: false,
    };
    for (words, set, extent, expected) in [
        ("none", 0, 3, false),
        ("none", 0, 4, true),
        ("none", 1, 0, true),
        ("temporary", 0, 3, true),
        ("temporary", 0, 4, false),
        ("temporary", 2, 0, true),
        ("important", 2, 0, false),
        ("important,random", 2, 0, true),
        ("metadata", 1, 0, false),
        ("metadata", 0, 7, true),
    ] {
        let is_misplaced = extents.is_misplaced(entry(words, set, extent), &placement);
        assert_eq!(is_misplaced, expected, "{words} on {set} {extent}");
    }
    assert!(!extents.is_misplaced(Entry::default(), &placement));
    assert_eq!(extents.wanted_level(attributes("important"), &placement), Raid5);

    // From RAID 0, RAID 1 is better for metadata, RAID 5 too when that is full; from there nothing
    // is.
    let place = |set, extent| Place { set, extent };
    let mut better =
        |words, set, extent| extents.allocate_better(entry(words, set, extent), &placement);
    for extent in 0..4 {
        assert_eq!(better("metadata", 0, 3), Some(place(1, extent)));
    }
    assert_eq!(better("metadata", 2, 5), None);
    assert_eq!(better("metadata", 0, 3), Some(place(2, 0)));
    // What may not be in the region leaves it for anything.
    assert_eq!(better("none", 0, 7), Some(place(0, 0)));
    extents.free(place(1, 2));
    let better = extents.allocate_better(entry("metadata", 2, 5), &placement);
    assert_eq!(better, Some(place(1, 2)));
}

#[test]
fn classes_are_filled_and_left_as_levels_are() {
    // RAID 1 and 0 on slow devices, and on fast ones.
    let mut config = config(&[(Raid1, 4), (Raid0, 6), (Raid1, 2), (Raid0, 4)], 2);
    (config.sets[2].class, config.sets[3].class) = (DeviceClass::Fast, DeviceClass::Fast);
    for (words, expected) in [
        ("none", [(1, 6), (0, 4), (3, 2), (2, 2)]),
        ("hot", [(3, 2), (2, 2), (1, 6), (0, 4)]),
        ("important", [(0, 4), (2, 2), (1, 6), (3, 2)]),
        ("metadata", [(2, 2), (0, 4), (3, 2), (1, 6)]),
    ] {
        assert_eq!(fill(&mut Extents::new(&config), words), expected, "{words}");
    }
    // What has become hot is wanted elsewhere, and what has cooled down is not.
    let mut extents = Extents::new(&config);
    let placement = Placement::default();
    let place = |set, extent| Place { set, extent };
    let entry = |words, place| Entry {
        place: Some(place),
        attributes: attributes(words),
        ..Entry::default()
    };
    assert!(!extents.is_misplaced(entry("none", place(1, 0)), &placement));
    let better = extents.allocate_better(entry("hot", place(1, 0)), &placement);
    assert_eq!(better, Some(place(3, 0)));
    assert!(!extents.is_misplaced(entry("hot", place(3, 0)), &placement));
    let better = extents.allocate_better(entry("cold", place(3, 0)), &placement);
    assert_eq!(better, Some(place(1, 0)));
    // The region for temporary data is that, whatever its class.
    let mut temporary = |words| extents.allocate(attributes(words), None, &placement, |_| true);
    assert_eq!(temporary("temporary"), Some(place(3, 2)));
    assert_eq!(temporary("temporary,hot"), Some(place(3, 3)));
    assert_eq!(temporary("temporary"), Some(place(1, 1)));
}

#[test]
fn levels_that_the_volume_lacks_are_not_missed() {
    let extents = Extents::new(&config(&[(Raid5, 8)], 0));
    let placement = Placement::default();
    let place = Some(Place { set: 0, extent: 0 });
    for words in ["none", "metadata", "temporary", "important,random"] {
        let entry =
            Entry { place, attributes: attributes(words), is_managed: false, ..Entry::default() };
        assert!(!extents.is_misplaced(entry, &placement), "{words}");
        assert_eq!(extents.wanted_level(attributes(words), &placement), Raid5);
    }
}

#[test]
fn takes_memory_for_what_is_used_and_little_for_what_is_scattered() {
    let config = config(&[(Raid0, 1 << 20)], 0);
    let of = |step| {
        let mut extents = Extents::new(&config);
        let empty = extents.memory_bytes();
        assert!(empty < 8 << 10, "{empty} bytes for nothing");
        let entry = Entry { attributes: Attributes::HOT, ..Entry::default() };
        for extent in (0..1 << 20).step_by(step) {
            extents.set(ExtentIndex(extent), entry);
        }
        extents.memory_bytes() - empty
    };
    // Eight bytes for each near one that is used; 4 KiB and more would be a page of the system.
    let (near, scattered) = (of(60), of(10_000) / 105);
    assert!((8 << 20..9 << 20).contains(&near), "{near} bytes");
    assert!(scattered < 1200, "{scattered} bytes for each");
}

proptest! {
    /// Mapping, moving, freeing and loading again, against plain maps.
    #[test]
    fn agrees_with_plain_maps(
        temporary in 0..9u64,
        operations in prop::collection::vec((0u8..10, any::<u32>(), 0usize..6), 1..200),
    ) {
        let words = ["none", "temporary", "important", "metadata", "important,random", "cold"];
        let config = config(&[(Raid0, 6), (Raid1, 4), (Raid0, 6), (Raid5, 6)], temporary);
        let mut extents = Extents::new(&config);
        let placement = &config.placement;
        let mut entries: BTreeMap<u32, Entry> = BTreeMap::new();
        let mut taken: BTreeSet<Place> = BTreeSet::new();
        let mut left: Vec<Place> = Vec::new();
        for (kind, number, which) in operations {
            let extent = number % extents.extents();
            let attributes = attributes(words[which]);
            let old = entries.get(&extent).copied().unwrap_or_default();
            match kind {
                // Map, or move to a new place; the old one stays taken for a while.
                0..6 => {
                    let near = entries.get(&(number / 7 % extents.extents())).and_then(|e| e.place);
                    let is_temporary = attributes == Attributes::TEMPORARY;
                    let Some(place) = extents.allocate(attributes, near, placement, |_| true) else {
                        // All is taken that this extent may have.
                        let in_region = taken.iter().filter(|p| extents.is_temporary(**p)).count();
                        let kept_back = if is_temporary { 0 } else { temporary - in_region as u64 };
                        let all = config.capacity_bytes() / EXTENT;
                        prop_assert_eq!(taken.len() as u64, all - kept_back);
                        continue;
                    };
                    prop_assert!(taken.insert(place));
                    prop_assert!(is_temporary || !extents.is_temporary(place));
                    let entry = Entry { place: Some(place), attributes, is_managed: kind == 0, is_dying: false };
                    extents.set(ExtentIndex(extent), entry);
                    entries.insert(extent, entry);
                    left.extend(old.place);
                }
                6 => {
                    extents.set(ExtentIndex(extent), Entry::default());
                    entries.remove(&extent);
                    left.extend(old.place);
                }
                7 => {
                    let mut again = Extents::new(&config);
                    for extent in (0..extents.extents()).map(ExtentIndex) {
                        prop_assert_eq!(again.set_packed(extent, extents.packed(extent)), Ok(()));
                    }
                    prop_assert_eq!(again.index_loaded(), Ok(()));
                    left.drain(..).for_each(|place| { taken.remove(&place); });
                    extents = again;
                }
                _ => left.drain(..).for_each(|place| {
                    extents.free(place);
                    taken.remove(&place);
                }),
            }
            extents.check_invariants();
            prop_assert_eq!(extents.get(ExtentIndex(extent)), entries.get(&extent).copied().unwrap_or_default());
            prop_assert_eq!(extents.extents_mapped(), entries.values().filter(|e| e.place.is_some()).count() as u64);
            for set in 0..4 {
                let status = extents.set_status(set);
                let of_set = taken.iter().filter(|place| place.set == set);
                prop_assert_eq!(status.used, of_set.clone().count() as u64);
                let in_region = of_set.filter(|place| extents.is_temporary(**place));
                prop_assert_eq!(status.temporary_used, in_region.count() as u64);
            }
            let near = number / 3 % extents.extents();
            let mut candidates = (near + 1..extents.extents()).chain(0..=near);
            let expected = candidates.find(|extent| !entries.contains_key(extent));
            prop_assert_eq!(extents.find_unmapped(Some(ExtentIndex(near))), expected.map(ExtentIndex));
        }
    }
}
