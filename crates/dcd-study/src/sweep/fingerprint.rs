//! What decides a row of a sweep and is no column of it, as one: so rows of another sweep, with
//! another seed or another disk of the same name, are not taken for rows of this one.

use dcd_sim::disk::profile::Profile;
use dcd_sim::sweep::Point;

use super::arguments::GridArguments;

/// The column `settings` of a point: 16 hexadecimal digits.
pub fn fingerprint(arguments: &GridArguments, point: &Point) -> String {
    let log = point.setup.log.as_ref();
    let text = [
        format!("seed {}", point.setup.seed),
        // Not those of the load: Python has traces in memory that the command line reads.
        format!("device {:?}", arguments.input.device),
        format!("format {:?}", arguments.input.format),
        // How often the load comes.
        format!("sequences {:?}", point.sequences),
        format!("disk {}", content(&point.setup.disk)),
        format!("cache-disk {:?}", log.map(|log| content(&log.cache_disk))),
    ];
    format!("{:016x}", fnv(text.join("\n").as_bytes()))
}

/// A profile as it was read, without what decides no row.
fn content(profile: &Profile) -> String {
    let Profile { title: _, mechanical, simple, price: _ } = profile;
    format!("{mechanical:?} {simple:?}")
}

/// FNV-1a: the same on each machine.
fn fnv(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::sweep::grid::points;

    #[derive(Parser)]
    struct Sweep {
        #[command(flatten)]
        grid: GridArguments,
    }

    /// The labels of the first row.
    fn row(words: &str) -> Vec<(&'static str, String)> {
        let line = format!("sweep --trace t.csv {words}");
        points(&Sweep::parse_from(line.split_whitespace()).grid).unwrap()[0].labels.clone()
    }

    #[test]
    fn it_is_fnv() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn all_that_decides_a_row_is_in_it() {
        let line = "--disk hp-97560 --cache-disk 8M --read-area 1M --sequences detect";
        let first = row(line);
        assert_eq!(first, row(line));
        let (name, settings) = first.last().unwrap();
        assert_eq!((*name, settings.len()), ("settings", 16));
        for other in ["--seed 1", "--device 0", "--format csv", "--passes 5"] {
            assert_ne!(first, row(&format!("{line} {other}")), "{other}");
        }
        // Other values of what is spanned are other rows, and not other settings.
        let wider = row(&format!("{line} --nvram none,1M --stretch 1,2"));
        assert_eq!(first, wider);
    }

    #[test]
    fn a_profile_is_known_by_its_content() {
        let path = std::env::temp_dir().join(format!("dcd-content-{}.toml", std::process::id()));
        let text = |name: &str| dcd_sim::disk::profile::text_of(name).unwrap();
        let row_of = |text: String| {
            std::fs::write(&path, text).unwrap();
            row(&format!("--disk {}", path.display()))
        };
        let (first, other) = (row_of(text("hp-97560")), row_of(text("hp-2200a")));
        assert_ne!(first, other);
        let words = text("hp-97560").replacen("title = \"", "title = \"my ", 1);
        assert_ne!(words, text("hp-97560"));
        assert_eq!(first, row_of(format!("# words\n{words}")));
        std::fs::remove_file(&path).unwrap();
    }
}
