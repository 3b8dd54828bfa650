//! Proves that `dcd disk` lists, shows and validates models, as text and as JSON, and that what is
//! wrong with a profile or trace is one line that says where.

mod common;

use common::Folder;
use serde_json::Value;

const CLOSED: &str = "idx,op,cachelabel,blkno_512,bcount_512,measured_us,next_inter_us\n";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn all_profiles_are_listed_and_can_be_shown() {
    let folder = Folder::new();
    let listed = json(&folder.dcd("disk list --json").ok());
    let table = folder.dcd("disk list").ok();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|disk| disk["name"].as_str().unwrap()).collect();
    for wanted in [
        "hp-97560",
        "hp-2200a",
        "barracuda-4lp-2gb",
        "barracuda-4lp-4gb",
        "ibm-dtta-371010",
        "wd400bb",
        "hp-c2247a",
        "hp-c3323a",
        "dec-rz26",
        "wd-4tb",
        "ultrastar-hc310",
        "sata-ssd",
        "nvme-ssd",
        "qlc-ssd",
        "sd-card",
        "cloud-volume",
        "ebs-gp2",
        "ebs-st1",
        "azure-p10",
        "s3",
        "rbd",
        "archive-8tb",
        "hc620",
        "exos-x20",
        "emmc",
    ] {
        assert!(names.contains(&wanted), "{wanted}");
        assert!(table.contains(wanted), "{wanted}");
        // What is shown can be used as a profile of one's own.
        std::fs::write(folder.path("own.toml"), folder.dcd(&format!("disk show {wanted}")).ok())
            .unwrap();
        let shown = json(&folder.dcd("disk show own.toml --json").ok());
        assert_eq!(
            shown["capacity_bytes"],
            json(&folder.dcd(&format!("disk show {wanted} --json")).ok())["capacity_bytes"]
        );
    }
}

#[test]
fn a_trace_made_by_a_model_has_no_demerit_against_it() {
    let folder = Folder::new();
    // One request, measured at anything: the model's own time is its mean.
    std::fs::write(folder.path("one.csv"), format!("{CLOSED}0,R,Miss,4096,8,1,0\n")).unwrap();
    let line = "disk validate --disk hp-97560 --trace one.csv --json";
    let first = json(&folder.dcd(line).ok());
    let mean_us = first["mean_ms"].as_f64().unwrap() * 1000.0;
    std::fs::write(folder.path("one.csv"), format!("{CLOSED}0,R,Miss,4096,8,{mean_us},0\n"))
        .unwrap();
    let outcome = json(&folder.dcd(line).ok());
    assert_eq!(outcome["requests"], 1);
    assert!(outcome["demerit_ms"].as_f64().unwrap() < 1e-5, "{outcome}");
    assert!(outcome["demerit_percent"].as_f64().unwrap() < 1e-3, "{outcome}");
    assert!((outcome["measured_mean_ms"].as_f64().unwrap() * 1000.0 - mean_us).abs() < 0.01);
    assert!(folder.dcd("disk validate --disk hp-97560 --trace one.csv").ok().contains("demerit"));
}

#[test]
fn a_profile_is_fitted_to_what_was_measured_and_says_how_near_it_is() {
    let folder = Folder::new();
    // All take 12 to 28 ms, wherever they are.
    let row = |index: u64| {
        let (block, time_us) = (index * 7_919 % 600_000, 12_000 + index * 104_729 % 16_000);
        format!("{index},R,Miss,{block},8,{time_us},900\n")
    };
    let rows: String = (0..400).map(row).collect();
    std::fs::write(folder.path("t.csv"), format!("{CLOSED}{rows}")).unwrap();
    let fit = "disk fit --disk sata-ssd --trace t.csv --output own.toml --json";
    let told = json(&folder.dcd(fit).ok());
    assert_eq!(told["after"]["held_out"]["requests"], 200, "{told}");
    let percent = |when: &str| told[when]["held_out"]["demerit_percent"].as_f64().unwrap();
    assert!(percent("after") < 30.0 && percent("before") > 90.0, "{told}");
    assert!(
        told["numbers"].as_array().unwrap().iter().any(|it| it["field"] == "simple.read_us.median")
    );
    // What was written is that profile.
    let line = "disk validate --disk own.toml --trace t.csv --json";
    let again = json(&folder.dcd(line).ok());
    assert!(again["demerit_percent"].as_f64().unwrap() < 30.0, "{again}");
    let own = std::fs::read_to_string(folder.path("own.toml")).unwrap();
    assert!(own.contains("# [fit]") && own.contains("# Sources:"), "{own}");
    let words = folder.dcd("disk fit --disk own.toml --trace t.csv --requests 50").ok();
    assert!(words.contains("second, held out"), "{words}");
    assert!(
        folder.dcd("disk fit --disk own.toml --trace t.csv --output -").ok().contains("[simple]")
    );
    folder.dcd("disk fit --disk none --trace t.csv").fails(
        1,
        "no disk profile `none`",
        "disk list",
    );
    folder.dcd("disk fit --disk hp-97560 --trace none.csv").fails(1, "none.csv", "--trace");
    std::fs::write(folder.path("one.csv"), format!("{CLOSED}0,R,Miss,4096,8,1,0\n")).unwrap();
    let one = folder.dcd("disk fit --disk hp-97560 --trace one.csv");
    one.fails(1, "one.csv: the trace has 1 request, and at least 2 are needed", "measure more");
    std::fs::write(folder.path("none.csv"), CLOSED).unwrap();
    let none = folder.dcd("disk fit --disk hp-97560 --trace none.csv");
    none.fails(1, "none.csv: the trace has no requests", "");
}

/// Not even the trace, if its name is given twice; told before anything is fitted.
#[test]
fn a_fitted_profile_takes_the_place_of_nothing() {
    let folder = Folder::new();
    std::fs::write(folder.path("t.csv"), "my notes").unwrap();
    std::os::unix::fs::symlink("nothing", folder.path("link.toml")).unwrap();
    for name in ["t.csv", "link.toml"] {
        let line = format!("disk fit --disk sata-ssd --trace t.csv --output {name}");
        let wanted = format!("cannot create {name}: File exists");
        folder.dcd(&line).fails(1, &wanted, "nothing is overwritten: choose another name");
    }
    assert_eq!(std::fs::read_to_string(folder.path("t.csv")).unwrap(), "my notes");
    assert!(!folder.path("nothing").exists());
}

#[test]
fn there_is_no_share_of_nothing() {
    let folder = Folder::new();
    let rows = "0,R,Miss,4096,8,0,0\n1,R,Miss,9096,8,0,0\n";
    std::fs::write(folder.path("t.csv"), format!("{CLOSED}{rows}")).unwrap();
    let told = folder.dcd("disk validate --disk hp-97560 --trace t.csv").ok();
    assert!(told.ends_with(" ms, - of the mean\n"), "{told}");
    let told = folder.dcd("disk fit --disk hp-97560 --trace t.csv").ok();
    assert!(!told.contains("inf"), "{told}");
}

#[test]
fn what_is_wrong_is_told_where() {
    let folder = Folder::new();
    let validate = |disk: &str, trace: &str| {
        std::fs::write(folder.path("t.csv"), trace).unwrap();
        folder.dcd(&format!("disk validate --disk {disk} --trace t.csv"))
    };
    validate("hp-1", CLOSED).fails(1, "no disk profile `hp-1`", "dcd disk list");
    validate("hp-2200a", CLOSED).fails(1, "t.csv: the trace has no requests", "columns");
    validate("hp-2200a", "a,b\n").fails(1, "t.csv:1:1: there is neither", "columns");
    let torn = format!("{CLOSED}0,R,Hit,8");
    validate("hp-2200a", &torn).fails(1, "t.csv:2:10: bcount_512: missing", "");
    let beyond = format!("{CLOSED}0,R,Hit,655000000,8,1,1\n");
    validate("hp-2200a", &beyond).fails(1, "t.csv:2:9: blkno_512: 4096 bytes at", "");
    folder.dcd("disk validate --disk hp-2200a --trace none.csv").fails(1, "none.csv", "--trace");
    let own =
        folder.dcd("disk show hp-2200a").ok().replace("last_cylinder = 1448", "last_cylinder = -1");
    std::fs::write(folder.path("own.toml"), own).unwrap();
    folder.dcd("disk show own.toml").fails(1, "own.toml:", "docs/disk-models.md");
    folder.dcd("disk show none.toml").fails(
        1,
        "none.toml: cannot read the disk profile",
        "disk list",
    );
    folder.dcd("disk frobnicate").fails(2, "'frobnicate'", "usage");
}

#[test]
fn the_models_can_be_measured() {
    for what in ["disk", "engine", "flush --file f"] {
        Folder::new().dcd(&format!("bench {what} --rounds 0")).fails(2, "--rounds", "");
    }
    let measured = json(&Folder::new().dcd("bench disk --rounds 1 --json").ok());
    for key in ["random_per_second", "sequential_per_second", "queued_per_second"] {
        assert!(measured[key]["median"].as_f64().unwrap() > 0.0, "{measured}");
    }
}

#[test]
fn a_file_can_be_served_in_the_times_of_a_model() {
    let folder = Folder::new();
    folder.disk("d.img", 16 << 20);
    let served = folder.serve("slow-disk --model hp97560 --disk d.img --nbd unix:d.sock");
    assert!(served.ready.contains("size=16777216"), "{}", served.ready);
    drop(served);
    let slow = "slow-disk --model hp97560 --disk slow:d.img,read=1ms,write=1ms --nbd unix:d.sock";
    folder.dcd(slow).fails(1, "--model makes a plain file slow", "model:PROFILE:FILE");
    let unknown = "slow-disk --disk model:hp1:d.img --nbd unix:d.sock";
    folder.dcd(unknown).fails(1, "no disk profile `hp1`", "dcd disk list");
    for zoned in ["--model hc620 --disk d.img", "--disk model:hc620:d.img"] {
        let line = format!("slow-disk {zoned} --nbd unix:d.sock");
        folder.dcd(&line).fails(1, "managed by the host", "dm-zoned");
    }
}

/// What one size has left behind in memory is nothing to the next: each has a process of its own.
#[test]
fn sizes_of_caches_are_measured_apart() {
    let folder = Folder::new();
    let measured = json(&folder.dcd("bench scale --cache-disk 64m,64g --lines 1000 --json").ok());
    let of = |at: usize, part: &str, key: &str| measured[at][part][key].as_f64().unwrap();
    assert_eq!(measured.as_array().unwrap().len(), 2);
    assert_eq!(measured[1]["cache_bytes"], 64u64 << 30);
    for at in 0..2 {
        assert!(of(at, "fill", "lines") >= 1000.0);
        assert!(measured[at]["full"].is_null());
    }
    // Lines have a price, and memory that was there before does not hide it.
    assert!(of(1, "fill", "memory_bytes_per_line") > 16.0, "{measured}");
    assert!(of(1, "empty", "memory_bytes") < of(0, "empty", "memory_bytes") + (64 << 20) as f64);
    let table = folder.dcd("bench scale --cache-disk 64m,64g --lines 1000").ok();
    assert!(table.contains("64 MiB") && table.contains("64 GiB"), "{table}");
    assert!(table.contains("empty: opening") && !table.contains("full:"), "{table}");
    // Before anything is measured.
    let refused = folder.dcd("bench scale --cache-disk 64g,1k");
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("the cache-disk has 1024 bytes"), "{}", refused.stderr);
}
