//! Proves that many traces are taken by one name, a directory's or a list's: `dcd sweep` has their
//! rows as if each were swept by itself, also in shards, on several threads and interrupted; `dcd
//! advise` has one table of them, which shards make together; and that what is no such name is told
//! before anything is written.

mod common;

use std::fs;

use common::Folder;
use serde_json::Value;

fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("volumes/deeper")).unwrap();
    for (name, gap_us) in [("b.csv", 40_000), ("a.csv", 60_000), ("c.csv", 90_000)] {
        let mut trace = "t_us,op,off,len\n".to_owned();
        for number in 0..400u64 {
            let place = number * 7919 % 100_000;
            trace += &format!("{},W,{},4096\n", number * gap_us, place * 8192);
        }
        fs::write(folder.path(&format!("volumes/{name}")), trace).unwrap();
    }
    fs::write(folder.path("volumes/.hidden"), "no trace").unwrap();
    fs::write(folder.path("list"), "# two of them\nvolumes/c.csv\n\n  volumes/a.csv\n").unwrap();
    folder
}

const GRID: &str = "--disk hp-97560 --cache-disk none,8M";

fn read(folder: &Folder, name: &str) -> String {
    fs::read_to_string(folder.path(name)).unwrap()
}

#[test]
fn rows_are_those_of_each_trace() {
    let folder = folder();
    let mut expected = String::new();
    for name in ["a.csv", "b.csv", "c.csv"] {
        let out = format!("one-{name}");
        folder.dcd(&format!("sweep --trace volumes/{name} {GRID} --out {out}")).ok();
        let rows = read(&folder, &out);
        let (header, rows) = rows.split_once('\n').unwrap();
        if expected.is_empty() {
            expected = format!("{header}\n");
        }
        expected += rows;
    }
    let sweep = format!("sweep --traces volumes {GRID}");
    for jobs in [1, 3] {
        folder.dcd(&format!("{sweep} --jobs {jobs} --out all{jobs}.csv")).ok();
        assert_eq!(read(&folder, &format!("all{jobs}.csv")), expected);
    }
    // It is gone on with behind any row, also amid one.
    fs::write(folder.path("cut.csv"), &expected[..expected.len() * 2 / 3]).unwrap();
    folder.dcd(&format!("{sweep} --out cut.csv")).ok();
    assert_eq!(read(&folder, "cut.csv"), expected);

    let parts = ["0/4", "1/4", "2/4", "3/4"];
    for shard in parts {
        folder.dcd(&format!("{sweep} --shard {shard} --out part{}.csv", &shard[..1])).ok();
    }
    // Who puts them together needs their names and not the traces.
    fs::rename(folder.path("volumes"), folder.path("kept")).unwrap();
    fs::create_dir(folder.path("volumes")).unwrap();
    for name in ["a.csv", "b.csv", "c.csv"] {
        fs::write(folder.path(&format!("volumes/{name}")), "").unwrap();
    }
    let merge = "--merge part0.csv part1.csv part2.csv part3.csv --out merged.csv";
    folder.dcd(&format!("{sweep} {merge}")).ok();
    assert_eq!(read(&folder, "merged.csv"), expected);
}

/// One that cannot be read among hundreds keeps no other from being simulated.
#[test]
fn a_trace_that_is_none_has_rows_that_say_so() {
    let folder = folder();
    fs::write(folder.path("volumes/b.csv"), "what is\nthis?\n").unwrap();
    fs::write(folder.path("volumes/d.csv"), "").unwrap();
    let told = folder.dcd(&format!("sweep --traces volumes {GRID} --out rows.csv")).ok();
    assert_eq!(told, "8 rows in rows.csv; 4 not simulated: column `error` tells why\n");
    let rows = read(&folder, "rows.csv");
    for row in rows.lines().skip(1) {
        let is_bad = ["volumes/b.csv", "volumes/d.csv"].iter().any(|bad| row.starts_with(bad));
        assert_eq!(is_bad, !row.ends_with(','), "{row}");
    }
    // Nobody waits for who writes to a pipe.
    let made = std::process::Command::new("mkfifo").arg(folder.path("pipe")).status();
    assert!(made.is_ok_and(|made| made.success()));
    fs::write(folder.path("with-pipe"), "pipe\nvolumes/a.csv\n").unwrap();
    let told = folder.dcd(&format!("sweep --traces with-pipe {GRID} --out pipe.csv")).ok();
    assert!(told.contains("4 rows in pipe.csv; 2 not simulated"), "{told}");
    assert!(read(&folder, "pipe.csv").contains("a pipe"), "{}", read(&folder, "pipe.csv"));
    // A shard that has no other tells of them in its rows, too, for the whole.
    for shard in 0..4 {
        let line = format!("sweep --traces volumes {GRID} --shard {shard}/4 --out part{shard}.csv");
        let _ = folder.dcd(&line);
    }
    let parts = "part0.csv part1.csv part2.csv part3.csv";
    folder.dcd(&format!("sweep --traces volumes {GRID} --merge {parts} --out merged.csv")).ok();
    assert_eq!(read(&folder, "merged.csv"), rows);
}

#[test]
fn a_list_names_them_in_its_order() {
    let folder = folder();
    folder.dcd(&format!("sweep --traces list --traces volumes {GRID} --out rows.csv")).ok();
    let rows = read(&folder, "rows.csv");
    let loads: Vec<&str> =
        rows.lines().skip(1).step_by(2).map(|row| row.split(',').next().unwrap()).collect();
    let all = ["volumes/c.csv", "volumes/a.csv", "volumes/a.csv", "volumes/b.csv", "volumes/c.csv"];
    assert_eq!(loads, all);
}

#[test]
fn shards_of_advice_make_one_table() {
    let folder = folder();
    let line =
        "advise --traces volumes --disk hp-97560 --cache-disk 8M --cache-disk-profile nvme-ssd";
    let table = folder.dcd(line).ok();
    assert!(table.contains("of 3 volumes are worth a log"), "{table}");
    for name in ["a.csv", "b.csv", "c.csv"] {
        assert!(table.contains(name), "{table}");
    }
    let told: Value = serde_json::from_str(&folder.dcd(&format!("{line} --json")).ok()).unwrap();
    for shard in [0, 1] {
        let part = folder.dcd(&format!("{line} --shard {shard}/2 --json")).ok();
        fs::write(folder.path(&format!("part{shard}")), part).unwrap();
    }
    let merge = |parts: &str| folder.dcd(&format!("advise --disk hp-97560 --merge {parts}"));
    assert_eq!(merge("part1 part0").ok(), table);
    let merged: Value = serde_json::from_str(&merge("part0 part1 --json").ok()).unwrap();
    assert_eq!(merged, told);

    merge("part1").fails(1, "rows are missing, the first is volume", "all shards");
    merge("part0 part1 part0").fails(1, "is in part0 and in part0", "each part once");
    merge("part0 list").fails(1, "list is not what a shard", "--json");
    let few = folder.dcd(&format!("{} --shard 0/1 --json", line.replace("volumes", "list"))).ok();
    fs::write(folder.path("few"), few).unwrap();
    merge("part0 few").fails(1, "few is not what a shard", "the same volumes");
    folder.dcd(&format!("{line} --shard 3/9")).fails(1, "no row", "fewer");
}

#[test]
fn what_is_no_set_of_traces_is_told() {
    let folder = folder();
    fs::write(folder.path("other"), "volumes/a.csv\nvolumes/none.csv\n").unwrap();
    fs::write(folder.path("bytes"), b"\xff\xfe\0\x01").unwrap();
    fs::write(folder.path("empty"), "# none\n").unwrap();
    fs::write(folder.path("wrong"), "list\n").unwrap();
    for verb in ["sweep --out rows.csv", "advise"] {
        for (set, words, hint) in [
            ("nowhere", "cannot read nowhere", "check the name"),
            ("volumes/deeper", "no traces in volumes/deeper", "not looked at"),
            ("empty", "no traces in empty", ""),
            ("other", "other, line 2: volumes/none.csv does not exist", "one trace is --trace"),
            ("volumes/a.csv", "volumes/a.csv, line 1: ", "one trace is --trace"),
            ("bytes", "bytes, line 1: it is no text", ""),
        ] {
            let outcome = folder.dcd(&format!("{verb} --traces {set} --disk hp-97560"));
            outcome.fails(1, words, hint);
        }
        if !cfg!(feature = "s3") {
            folder.dcd(&format!("{verb} --traces s3://bucket/x --disk hp-97560")).fails(
                1,
                "without object stores",
                "--features s3",
            );
        }
    }
    folder.dcd("sweep --out rows.csv --traces wrong --disk hp-97560").fails(
        1,
        "the format of the trace is not known",
        "--format",
    );
    folder.dcd("sweep --out rows.csv --traces list --trace volumes/a.csv --disk hp-97560").fails(
        2,
        "cannot be used with",
        "",
    );
    assert!(!folder.path("rows.csv").exists());
}
