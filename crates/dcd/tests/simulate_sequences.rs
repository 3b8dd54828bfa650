//! Proves what sequences bring in simulations: `dcd simulate --sequences` runs the engine with a
//! load that it knows, recorded or found, and tells disk times and seeks beside those of before;
//! `dcd sweep`, `dcd advise` and `dcd figures` tell the same; `dcd sequence show` simulates and
//! draws what a running dcd keeps.

mod common;

use common::Folder;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// 400 reads of 8 KiB, each far from the one before, none twice; of ten requests, so many are
/// writes elsewhere.
fn folder_with_start(writes_of_ten: u64) -> Folder {
    let folder = Folder::new();
    let mut trace = "t_us,op,off,len\n".to_owned();
    for number in 0..400u64 {
        let is_write = number % 10 < writes_of_ten;
        let (op, base) = if is_write { ('W', 60_000) } else { ('R', 0) };
        let place = base + number * 7919 % 50_000 * 2;
        trace += &format!("{},{op},{},8192\n", number * 1000, place * 4096);
    }
    std::fs::write(folder.path("t.csv"), trace).unwrap();
    folder
}

const AREA: &str = "--cache-disk 64M --read-area 32M --closed-loop";

fn simulate(folder: &Folder, flags: &str) -> Value {
    json(&folder.dcd(&format!("simulate --trace t.csv --disk wd400bb --json {flags}")).ok())
}

fn ms(facts: &Value) -> f64 {
    facts["read_disk_time_ms"].as_f64().unwrap()
}

#[test]
fn a_recorded_sequence_saves_seeks_and_time() {
    let folder = folder_with_start(0);
    let flags = format!("{AREA} --sequences record-then-replay");
    for place in ["", "--one-disk", "--cache-disk-profile sata-ssd"] {
        let facts = simulate(&folder, &format!("{flags} {place}"));
        let run = &facts["sequences"];
        let before = &run["before"];
        assert_eq!(
            (&run["mode"], &run["passes_before"]),
            (&"record-then-replay".into(), &1.into())
        );
        assert!(ms(&facts) * 3.0 < ms(before), "{place}: {facts}");
        let seeks = |facts: &Value| facts["seek_distance"].as_u64().unwrap();
        assert!(seeks(&facts) * 4 < seeks(before), "{place}: {facts}");
        // The sums are those of their parts, and the mean is by read of the client.
        for facts in [&facts, before] {
            let part = |disk: &str, what: &str| facts[disk][what].as_f64().unwrap();
            let sum = part("data_disk_access", "time_ms") + part("cache_disk_access", "time_ms");
            assert!((ms(facts) - sum).abs() < 1e-6, "{facts}");
            let mean = facts["average_access_ms"].as_f64().unwrap();
            assert!((mean - ms(facts) / 400.0).abs() < 1e-9, "{facts}");
        }
        assert_eq!(before["data_disk_access"]["reads"], 400);
        assert_eq!(before["cache_disk_access"]["reads"], 0);
        let area = &facts["log"]["read_area"];
        assert_eq!((&area["read_copy_lines"], &area["copied_lines"]), (&800.into(), &800.into()));
        assert_eq!(area["sequences"][0]["name"], "recorded");
        // Response times are those of one time, not of both.
        assert_eq!((&facts["reads"], &before["reads"]), (&400.into(), &400.into()));
        let response = |facts: &Value| facts["read"]["response_ms"]["mean"].as_f64().unwrap();
        assert!(response(&facts) < response(before), "{facts}");
    }
    assert_eq!(simulate(&folder, &flags), simulate(&folder, &flags), "the same again");
    let words = folder.dcd(&format!("simulate --trace t.csv --disk wd400bb {flags}")).ok();
    for wanted in ["disk time of reads", ", before ", "seek distance", "recorded: 800 lines"] {
        assert!(words.contains(wanted), "{wanted}: {words}");
    }
}

#[test]
fn a_load_that_comes_often_is_found() {
    let folder = folder_with_start(0);
    let detect = |flags: &str| simulate(&folder, &format!("{AREA} --sequences detect {flags}"));
    let facts = detect("");
    assert_eq!(facts["sequences"]["passes_before"], 3);
    assert!(ms(&facts) * 2.0 < ms(&facts["sequences"]["before"]), "{facts}");
    assert_eq!(facts["log"]["read_area"]["sequences"][0]["name"], "found-1");
    // Twice is not often enough, unless it is.
    let found = |facts: &Value| facts["log"]["read_area"]["sequences"].as_array().unwrap().len();
    assert_eq!(found(&detect("--passes 3 --confirmations 4")), 0);
    assert_eq!(found(&detect("--passes 3 --confirmations 2")), 1);
    // A history that is shorter than the load does not know it again.
    assert_eq!(found(&detect("--history 64")), 0);
    // Hot blocks are another thing, and only copied if somebody says so.
    let copies = |facts: &Value| facts["log"]["read_area"]["copied_lines"].as_u64().unwrap();
    assert_eq!(copies(&detect("--history 64")), 0);
    assert!(copies(&detect("--history 64 --hot-blocks on")) > 0);
}

#[test]
fn a_read_area_alone_copies_what_is_read() {
    let folder = folder_with_start(0);
    let copied = |flags: &str| {
        let facts = simulate(&folder, &format!("{AREA} {flags}"));
        assert!(facts["sequences"].is_null(), "{facts}");
        facts["log"]["read_area"]["copied_lines"].as_u64().unwrap()
    };
    assert!(copied("") > 0);
    assert_eq!(copied("--hot-blocks off"), 0);
    assert!(simulate(&folder, "--cache-disk 64M")["log"]["read_area"].is_null());
    let bare = simulate(&folder, "--closed-loop");
    assert!(ms(&bare) > 0.0 && bare["cache_disk_access"].is_null(), "{bare}");
}

#[test]
fn what_cannot_be_is_told() {
    let folder = folder_with_start(0);
    for (flags, code, problem, hint) in [
        ("--cache-disk 64M --sequences detect", 1, "--sequences is only for", "--read-area"),
        ("--sequences detect", 1, "--sequences is only for", "--read-area"),
        ("--read-area 8M", 2, "--cache-disk", ""),
        ("--cache-disk 64M --one-disk --cache-disk-profile nvme-ssd", 2, "--one-disk", ""),
        ("--cache-disk 64M --read-area 63M", 1, "needs at least", "--read-area"),
        (
            "--cache-disk 64M --read-area 2M --sequences record-then-replay",
            1,
            "no room",
            "--read-area",
        ),
        ("--cache-disk 64M --read-area 8M --nvram 1M --sequences detect", 2, "--nvram", ""),
        ("--cache-disk 64M --read-area 8M --sequences detect --passes 1", 2, "--passes", ""),
        ("--cache-disk 64M --confirmations 3", 2, "--read-area", ""),
    ] {
        let line = format!("simulate --trace t.csv --disk wd400bb --closed-loop {flags}");
        folder.dcd(&line).fails(code, problem, hint);
    }
}

#[test]
fn a_sweep_spans_read_areas_and_detectors() {
    let folder = folder_with_start(0);
    let line = "sweep --trace t.csv --disk wd400bb --cache-disk 64M --read-area none,32M --stretch 0 \
                --sequences record-then-replay,detect --confirmations 2,3,4 --passes 4 --out s.csv --json";
    let rows = json(&folder.dcd(line).ok());
    let rows = rows["rows"].as_array().unwrap();
    // Without an area; recorded, which has no detector; found, with three.
    assert_eq!(rows.len(), 1 + 1 + 3, "{rows:?}");
    assert!(rows[0]["sequences"].is_null() && rows[0]["before_read_disk_time_ms"].is_null());
    assert_eq!(rows[1]["sequences"], "record-then-replay");
    assert!(rows[1]["confirmations"].is_null());
    let alone = simulate(&folder, &format!("{AREA} --sequences detect"));
    assert_eq!(rows[3]["confirmations"], 3);
    assert_eq!(rows[3]["seek_distance"], alone["seek_distance"], "{rows:?}");
    assert_eq!(rows[4]["before_seek_distance"], alone["sequences"]["before"]["seek_distance"]);
    // Found at the fourth time, when there is no other.
    assert!(ms(&rows[4]) > ms(&rows[3]) * 2.0, "{rows:?}");
}

#[test]
fn advice_tells_what_a_sequence_would_bring_to_reads() {
    let sentence = |writes_of_ten| {
        let folder = folder_with_start(writes_of_ten);
        let line = "advise t.csv --disk wd400bb --cache-disk 16M --cache-disk-profile sata-ssd --closed-loop";
        let advice = json(&folder.dcd(&format!("{line} --json")).ok());
        let sentence = advice["sequences"]["sentence"].as_str().map(str::to_owned);
        let page = std::fs::read_to_string(folder.path("advice.html")).unwrap();
        let words = folder.dcd(line).ok();
        for text in [page, words] {
            assert_eq!(text.contains("Should it come again in this order"), sentence.is_some());
        }
        sentence
    };
    let all_reads = sentence(0).unwrap();
    for wanted in ["a read area on sata-ssd", "would cut the disk time of its reads from", "% less"]
    {
        assert!(all_reads.contains(wanted), "{all_reads}");
    }
    assert!(sentence(3).is_some());
    assert_eq!(sentence(6), None, "mostly writes");
    assert_eq!(sentence(10), None, "writes only");
}

#[test]
fn a_sequence_is_shown_with_what_it_saves() {
    let folder = folder_with_start(0);
    folder.disk("data.img", 1 << 30);
    folder.disk("cache.img", 64 << 20);
    folder.dcd("create --cache-disk cache.img --data-disk data.img --read-area 32M").ok();
    let served = folder.serve(
        "serve --cache-disk cache.img --data-disk data.img --nbd unix:d.sock --control d.ctl --memory-directory .",
    );
    folder.dcd("sequence add --control d.ctl --name start t.csv").ok();
    let show = "sequence show --control d.ctl start";
    let plain = json(&folder.dcd(&format!("{show} --json")).ok());
    assert!(plain["with"].is_null() && plain["lines"].as_array().unwrap().len() == 800);
    let facts = json(&folder.dcd(&format!("{show} --disk wd400bb --plot s.html --json")).ok());
    let of = |way: &str, what: &str| facts[way][what].as_f64().unwrap();
    assert_eq!((of("without", "disk_reads"), of("without", "copy_reads")), (400.0, 0.0));
    assert!(of("with", "access_ms") * 3.0 < of("without", "access_ms"), "{facts}");
    assert!(of("with", "seek_distance") * 4.0 < of("without", "seek_distance"), "{facts}");
    let page = std::fs::read_to_string(folder.path("s.html")).unwrap();
    assert_eq!(page.matches("<svg ").count(), 3);
    for wanted in ["start: seek distance", "start: access time", "without the sequence", "with it"]
    {
        assert!(page.contains(wanted), "{wanted}");
    }
    let words = folder
        .dcd(&format!("{show} --disk wd400bb --cache-disk-profile nvme-ssd --plot s.svg"))
        .ok();
    assert!(words.contains("seek distance, blocks") && words.contains("drawn in s.svg"), "{words}");
    folder.dcd(&format!("{show} --plot s.html")).fails(2, "--disk", "");
    folder.dcd(&format!("{show} --disk wd400bb --plot t.csv")).fails(2, ".html or .svg", "");
    std::fs::write(folder.path("mine.html"), "my notes").unwrap();
    folder.dcd(&format!("{show} --disk wd400bb --plot mine.html")).fails(1, "mine.html", "");
    folder.dcd(&format!("{show} --disk hp-2200a")).fails(
        1,
        "does not fit on hp-2200a",
        "larger disks",
    );
    drop(served);
}

#[test]
fn the_figures_of_the_sequence_cache_are_of_a_trace_that_is_given() {
    let folder = folder_with_start(0);
    let facts = json(&folder.dcd("figures --paper odsc --start t.csv --out f --json").ok());
    let names = facts["figures"].as_array().unwrap();
    assert_eq!(*names, ["odsc-figure-4.1", "odsc-figure-4.2", "odsc-figure-4.3"]);
    assert_eq!(facts["tables"].as_array().unwrap().len(), 6);
    assert_eq!(facts["findings"].as_array().unwrap().len(), 2);
    let points = std::fs::read_to_string(folder.path("f/odsc-figure-4.3.svg")).unwrap();
    assert!(points.matches("<circle").count() > 400 && !points.contains("<polyline"));
    let none = json(&folder.dcd("figures --paper odsc --out f --json").ok());
    assert!(none["figures"].as_array().unwrap().is_empty());
    assert!(none["left_out"][0].as_str().unwrap().contains("--start"), "{none}");
}
