//! Proves that what is taken for the static metadata of ext2 to ext4 and XFS is what the tools of
//! those file systems say it is, for the shapes that mkfs makes, and that cut and overwritten ones
//! never lead beyond the disk.

mod harness;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;

use dcd_settings::static_metadata::{MetadataError, StaticMetadata, static_metadata};
use harness::Site;

/// The file system that a line makes in a file `fs` of so many MiB.
fn made(site: &Site, line: &str, mib: u64) -> File {
    let _ = fs::remove_file(site.path("fs"));
    site.folder.disk("fs", mib << 20);
    site.run(line);
    File::open(site.path("fs")).unwrap()
}

fn found(image: &File) -> StaticMetadata {
    static_metadata(&mut &*image).unwrap()
}

/// Numbers of blocks `a` and `a-b` in a text.
fn blocks(text: &str) -> Vec<u64> {
    let words = text.split(|letter: char| !letter.is_ascii_digit() && letter != '-');
    let ranges = words.filter_map(|word| match word.split_once('-') {
        Some((first, last)) => Some(first.parse::<u64>().ok()?..=last.parse().ok()?),
        None => word.parse().ok().map(|block| block..=block),
    });
    ranges.flatten().collect()
}

#[test]
fn what_dumpe2fs_lists_is_found_and_hardly_more() {
    skip_without!("static metadata of ext4", "mkfs.ext4", "dumpe2fs", "debugfs");
    let site = Site::empty();
    for (options, mib) in [
        ("-b 4096", 600),
        ("-b 1024 -O ^has_journal", 40),
        ("-b 4096 -O ^64bit,^flex_bg", 300),
        ("-b 4096 -O meta_bg,^resize_inode", 300),
        ("-b 1024 -O meta_bg,^resize_inode,^flex_bg", 100),
        ("-b 4096 -O sparse_super2", 600),
        ("-b 4096 -O bigalloc", 300),
        ("-b 1024 -I 128 -O ^extents,^64bit", 64),
        ("-t ext2 -b 2048", 128),
        ("-t ext3 -b 4096", 300),
    ] {
        let image = made(&site, &format!("mkfs.ext4 -q -F {options} fs"), mib);
        let StaticMetadata { kind, ranges } = found(&image);
        assert_eq!(kind, "ext4");
        let dump = site.run("dumpe2fs fs");
        let value = |name: &str| {
            let line = dump.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        let size = value("Block size:");
        let mut listed = BTreeSet::new();
        for line in dump.lines() {
            for what in [
                "superblock at ",
                "Group descriptors at ",
                "Group descriptor at ",
                "bitmap at ",
                "Inode table at ",
                "Reserved GDT blocks at ",
            ] {
                for part in line.split(what).skip(1) {
                    let number =
                        part.split(|letter: char| !letter.is_ascii_digit() && letter != '-');
                    listed.extend(blocks(number.into_iter().next().unwrap()));
                }
            }
        }
        let journal = site.tool("debugfs", &["-R", "blocks <8>", "fs"]).stdout;
        listed.extend(
            blocks(&String::from_utf8_lossy(&journal)).into_iter().filter(|block| *block > 0),
        );
        let here: BTreeSet<u64> =
            ranges.iter().flat_map(|range| range.start / size..range.end / size).collect();
        let missed: Vec<_> = listed.difference(&here).collect();
        assert!(missed.is_empty(), "{options}: {missed:?}");
        // The boot block, and what dumpe2fs counts otherwise.
        let more = here.difference(&listed).count();
        assert!(more <= 4 + listed.len() / 20, "{options}: {more} more than {}", listed.len());
    }
}

#[test]
fn headers_and_log_of_xfs() {
    skip_without!("static metadata of XFS", "mkfs.xfs", "xfs_db");
    let site = Site::empty();
    for (options, mib) in [("-b size=4096", 700), ("-b size=1024 -d agcount=7 -s size=512", 800)] {
        let image = made(&site, &format!("mkfs.xfs -q {options} fs"), mib);
        let StaticMetadata { kind, ranges } = found(&image);
        assert_eq!(kind, "XFS");
        let ask = |what: &str| {
            let output = site.tool("xfs_db", &["-r", "-c", what, "fs"]).stdout;
            blocks(&String::from_utf8_lossy(&output))
        };
        let fields = site.tool("xfs_db", &["-r", "-c", "sb 0", "-c", "p", "fs"]).stdout;
        let fields = String::from_utf8_lossy(&fields).into_owned();
        let value = |name: &str| {
            let line = fields.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
            line.unwrap().parse::<u64>().unwrap()
        };
        let bytes = *ask(&format!("convert fsblock {} byte", value("logstart"))).last().unwrap();
        let log = bytes..bytes + value("logblocks") * value("blocksize");
        assert!(ranges.iter().any(|range| range.start <= log.start && log.end <= range.end));
        for group in 0..value("agcount") {
            let start = group * value("agblocks") * value("blocksize");
            let end = start + 4 * value("sectsize");
            assert!(ranges.iter().any(|range| range.start <= start && end <= range.end));
        }
    }
}

#[test]
fn a_file_system_that_is_cut_or_overwritten_leads_nowhere() {
    skip_without!("damaged static metadata", "mkfs.ext4", "mkfs.xfs");
    let site = Site::empty();
    let mut random = harness::random::Random::new(harness::seed());
    for line in ["mkfs.ext4 -q -F -b 1024 fs", "mkfs.xfs -q -f fs"] {
        let mut image = vec![0; 1 << 20];
        made(&site, line, 320).read_exact(&mut image).unwrap();
        // What is behind the beginning is as made; the numbers at the beginning are not.
        for _ in 0..300 {
            let mut odd = image.clone();
            for _ in 0..1 + random.below(6) {
                let at = random.below(2048) as usize;
                odd[at] = [0, 1, 0x7f, 0xff][random.below(4) as usize];
            }
            match static_metadata(&mut &odd[..]) {
                Ok(found) => assert!(found.ranges.iter().all(|range| range.start < range.end)),
                Err(MetadataError::Read { offset, .. }) => assert!(offset > 0),
                Err(MetadataError::Unknown | MetadataError::Field { .. }) => {}
            }
        }
    }
}
