//! The profiles that come with dcd.

/// Names and texts.
const PROFILES: &[(&str, &str)] = &[
    ("hp-2200a", include_str!("../../profiles/hp-2200a.toml")),
    ("hp-97560", include_str!("../../profiles/hp-97560.toml")),
    ("hp-c2247a", include_str!("../../profiles/hp-c2247a.toml")),
    ("dec-rz26", include_str!("../../profiles/dec-rz26.toml")),
    ("hp-c3323a", include_str!("../../profiles/hp-c3323a.toml")),
    ("barracuda-4lp-2gb", include_str!("../../profiles/barracuda-4lp-2gb.toml")),
    ("barracuda-4lp-4gb", include_str!("../../profiles/barracuda-4lp-4gb.toml")),
    ("ibm-dtta-371010", include_str!("../../profiles/ibm-dtta-371010.toml")),
    ("wd400bb", include_str!("../../profiles/wd400bb.toml")),
    ("wd-4tb", include_str!("../../profiles/wd-4tb.toml")),
    ("ultrastar-hc310", include_str!("../../profiles/ultrastar-hc310.toml")),
    ("archive-8tb", include_str!("../../profiles/archive-8tb.toml")),
    ("hc620", include_str!("../../profiles/hc620.toml")),
    ("exos-x20", include_str!("../../profiles/exos-x20.toml")),
    ("sata-ssd", include_str!("../../profiles/sata-ssd.toml")),
    ("nvme-ssd", include_str!("../../profiles/nvme-ssd.toml")),
    ("qlc-ssd", include_str!("../../profiles/qlc-ssd.toml")),
    ("emmc", include_str!("../../profiles/emmc.toml")),
    ("sd-card", include_str!("../../profiles/sd-card.toml")),
    ("cloud-volume", include_str!("../../profiles/cloud-volume.toml")),
    ("ebs-gp2", include_str!("../../profiles/ebs-gp2.toml")),
    ("ebs-st1", include_str!("../../profiles/ebs-st1.toml")),
    ("azure-p10", include_str!("../../profiles/azure-p10.toml")),
    ("rbd", include_str!("../../profiles/rbd.toml")),
    ("s3", include_str!("../../profiles/s3.toml")),
];

/// All of them, oldest drive first.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    PROFILES.iter().copied()
}

/// The one of that name; hyphens may be left out.
pub fn find(wanted: &str) -> Option<(&'static str, &'static str)> {
    all().find(|(name, _)| *name == wanted || name.replace('-', "") == wanted)
}

#[cfg(test)]
mod tests {
    use dcd_engine::Time;

    use super::super::model::{DiskModel, DiskOperation, DiskRequest};
    use super::super::profile::Profile;
    use super::super::summary::Summary;

    fn summary(name: &str) -> Summary {
        Summary::of(&Profile::load(name).unwrap())
    }

    #[test]
    fn every_profile_describes_a_disk() {
        for (name, _) in super::all() {
            let profile = Profile::load(name).unwrap_or_else(|error| panic!("{error}"));
            assert!(summary(name).capacity_bytes > 100_000_000, "{name}");
            assert!(profile.title.len() < 80, "{name}");
        }
    }

    /// Published: size in bytes, mean and full seek in milliseconds.
    #[test]
    fn sizes_and_seeks_are_near_the_published_ones() {
        for (name, size, mean, full) in [
            ("hp-97560", 1.355e9, 12.83, 23.69),
            ("hp-c3323a", 1.053e9, 9.5, 18.1),
            ("barracuda-4lp-2gb", 2.104e9, 9.2, 16.7),
            ("ibm-dtta-371010", 10.11e9, 9.5, 17.0),
            ("wd400bb", 40.02e9, 8.9, 21.0),
            // Of the source's table: 7.9 and 15.7, over 353,181 cylinders; here there are 310,194.
            ("wd-4tb", 3.956e12, 7.42, 14.2),
            ("ultrastar-hc310", 6.001e12, 7.4, 14.0),
            ("archive-8tb", 8.0016e12, 12.0, 22.7),
            ("hc620", 14.0005e12, 7.7, 14.6),
            ("exos-x20", 20.0006e12, 7.4, 14.0),
        ] {
            let summary = summary(name);
            let arm = summary.mechanical.unwrap();
            let near = |found: f64, published: f64, tolerance: f64| {
                assert!(
                    (found / published - 1.0).abs() < tolerance,
                    "{name}: {found} is not near {published}"
                );
            };
            near(summary.capacity_bytes as f64, size, 0.003);
            near(arm.mean_seek_ms, mean, 0.05);
            near(arm.full_seek_ms, full, 0.05);
        }
    }

    /// Published: what they sustain at most, which is outside, with the skews between tracks.
    #[test]
    fn sustained_rates_are_near_the_published_ones() {
        for (name, bytes_per_second) in
            [("archive-8tb", 190e6), ("hc620", 233e6), ("exos-x20", 285e6)]
        {
            let mut disk = DiskModel::new(&Profile::load(name).unwrap(), 0).unwrap();
            let (operation, size_bytes) = (DiskOperation::Read, 1 << 30);
            let request = DiskRequest { id: 0, operation, offset_bytes: 0, size_bytes };
            let seconds = disk.serve(Time::ZERO, request).unwrap().completed.0 as f64 / 1e9;
            let found = size_bytes as f64 / seconds;
            assert!((found / bytes_per_second - 1.0).abs() < 0.02, "{name}: {found}");
        }
    }
}
