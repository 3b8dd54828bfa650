//! Sectors there and back, and angles of small drives.

use proptest::prelude::*;

use super::*;

fn zone(first_cylinder: u32, last_cylinder: u32, sectors_per_track: u32) -> ZoneProfile {
    ZoneProfile {
        first_cylinder,
        last_cylinder,
        sectors_per_track,
        track_skew: 0,
        cylinder_skew: 0,
        first_angle: 0,
        reserved_sectors: 0,
        spares_per_track: 0,
        spares_per_group: 0,
        group_cylinders: None,
        spare_tracks: 0,
        slips: Vec::new(),
        slipped_tracks: Vec::new(),
    }
}

fn drive(surfaces: u32, zone: Vec<ZoneProfile>) -> GeometryProfile {
    GeometryProfile {
        sector_bytes: 512,
        surfaces,
        rpm: 6000.0,
        cylinders: None,
        sectors: None,
        zone,
    }
}

prop_compose! {
    fn any_zone(first_cylinder: u32, surfaces: u32)(
        cylinders in 3u32..9,
        sectors_per_track in 6u32..20,
        grouped in any::<bool>(),
        track_skew in 0u32..6,
        cylinder_skew in 0u32..6,
        reserved_sectors in 0u32..8,
        spares in 0u32..3,
        slips in prop::collection::btree_set(0u64..60, 0..4),
        slipped_tracks in prop::collection::btree_set(0u64..u64::from(surfaces) * 3, 0..2),
    ) -> ZoneProfile {
        ZoneProfile {
            track_skew,
            cylinder_skew,
            reserved_sectors,
            spares_per_track: if grouped { 0 } else { spares },
            spares_per_group: if grouped { spares } else { 0 },
            group_cylinders: grouped.then_some(2),
            spare_tracks: if grouped { 0 } else { 1 },
            slips: slips.into_iter().collect(),
            slipped_tracks: if grouped && spares > 0 {
                Vec::new()
            } else {
                slipped_tracks.into_iter().collect()
            },
            ..zone(first_cylinder, first_cylinder + cylinders - 1, sectors_per_track)
        }
    }
}

proptest! {
    #[test]
    fn sectors_are_found_again_and_none_is_there_twice(
        (surfaces, zones) in (1u32..4).prop_flat_map(|surfaces| {
            (Just(surfaces), any_zone(0, surfaces), any_zone(12, surfaces))
                .prop_map(|(surfaces, outer, inner)| (surfaces, vec![outer, inner]))
        })
    ) {
        let Ok(geometry) = Geometry::new(&drive(surfaces, zones)) else { return Ok(()) };
        let mut places = std::collections::HashSet::new();
        for sector in 0..geometry.sectors() {
            let place = geometry.place(sector);
            prop_assert_eq!(geometry.sector_at(place), Some(sector));
            prop_assert!(place.cylinder < geometry.cylinders());
            prop_assert!(geometry.angle_ns(place) < geometry.rotation_ns());
            prop_assert!(places.insert((place.cylinder, place.head, place.sector)));
        }
        let track_of = |sector| {
            let Place { cylinder, head, .. } = geometry.place(sector);
            (cylinder, head)
        };
        let mut border = 0;
        for sector in 0..geometry.sectors() {
            let is_border = sector > 0 && track_of(sector - 1) != track_of(sector);
            border = if is_border { sector } else { border };
            let (first, end) = geometry.track(sector);
            prop_assert_eq!(first, border);
            prop_assert!(end > sector && track_of(end - 1) == track_of(sector));
            prop_assert!(end == geometry.sectors() || track_of(end) != track_of(sector));
        }
    }

    #[test]
    fn a_run_is_what_its_sectors_are_one_by_one(
        zone in any_zone(0, 2), sector in 0u64..60, count in 1u64..40,
    ) {
        let Ok(geometry) = Geometry::new(&drive(2, vec![zone])) else { return Ok(()) };
        prop_assume!(sector + count <= geometry.sectors());
        let run = geometry.run(sector, count);
        for offset in 0..run.sectors {
            let place = geometry.place(sector + offset);
            prop_assert_eq!(place, Place { sector: run.place.sector + offset as u32, ..run.place });
        }
        if run.sectors < count {
            let next = geometry.place(sector + run.sectors);
            let same_track = (next.cylinder, next.head) == (run.place.cylinder, run.place.head);
            prop_assert!(!same_track || next.sector > run.place.sector + run.sectors as u32);
        }
    }
}

/// ```text
/// two heads, ten sectors, track skew 3, cylinder skew 4
///                 head 0   head 1
/// cylinder 0         0        3
/// cylinder 1         7       10 = 0
/// ```
#[test]
fn skew_turns_each_track_against_the_one_before() {
    let zone = ZoneProfile { track_skew: 3, cylinder_skew: 4, ..zone(0, 1, 10) };
    let geometry = Geometry::new(&drive(2, vec![zone])).unwrap();
    let angles: Vec<u64> =
        (0..4).map(|track| geometry.angle_ns(geometry.place(track * 10))).collect();
    assert_eq!(angles, [0, 3_000_000, 7_000_000, 0]);
}

#[test]
fn what_no_drive_can_have_is_refused_by_field() {
    let refused = |zone: ZoneProfile| {
        Geometry::new(&drive(2, vec![zone])).expect_err("it is impossible").field
    };
    let good = || zone(5, 9, 10);
    assert_eq!(
        refused(ZoneProfile { last_cylinder: 4, ..good() }),
        "geometry.zone[0].last_cylinder"
    );
    assert_eq!(refused(ZoneProfile { track_skew: 10, ..good() }), "geometry.zone[0].track_skew");
    let no_sectors = ZoneProfile { sectors_per_track: 0, ..good() };
    assert_eq!(refused(no_sectors), "geometry.zone[0].sectors_per_track");
    let all_spare = ZoneProfile { spares_per_track: 10, ..good() };
    assert_eq!(refused(all_spare), "geometry.zone[0].spares_per_track");
    assert_eq!(
        refused(ZoneProfile { spare_tracks: 10, ..good() }),
        "geometry.zone[0].spare_tracks"
    );
    assert_eq!(refused(ZoneProfile { slips: vec![5, 5], ..good() }), "geometry.zone[0].slips[1]");
    let overlapping = drive(2, vec![zone(0, 9, 10), zone(9, 12, 10)]);
    assert_eq!(Geometry::new(&overlapping).unwrap_err().field, "geometry.zone[1].first_cylinder");
    let shown = GeometryProfile { sectors: Some(101), ..drive(2, vec![good()]) };
    assert_eq!(Geometry::new(&shown).unwrap_err().field, "geometry.sectors");
    let slow = GeometryProfile { rpm: f64::NAN, ..drive(2, vec![good()]) };
    assert_eq!(Geometry::new(&slow).unwrap_err().field, "geometry.rpm");
}
