//! Proves that `dcd advise` tells what `dcd simulate` tells, recommends a log where one helps and
//! none where none does, is honest about traces that the disk cannot follow, and overwrites nothing
//! but its own pages.

mod common;

use common::Folder;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// 2000 requests, one in `gap_us`; of ten, so many are reads.
fn folder_with_trace(gap_us: u64, reads_of_ten: u64, place: impl Fn(u64) -> u64) -> Folder {
    let folder = Folder::new();
    let mut trace = "t_us,op,off,len\n".to_owned();
    for number in 0..2000u64 {
        let op = if number % 10 < reads_of_ten { 'R' } else { 'W' };
        trace += &format!("{},{op},{},4096\n", number * gap_us, place(number) * 4096);
    }
    std::fs::write(folder.path("t.csv"), trace).unwrap();
    folder
}

fn scattered(number: u64) -> u64 {
    number * 7919 % 60_000
}

fn advise(folder: &Folder, flags: &str) -> Value {
    json(&folder.dcd(&format!("advise t.csv --disk hp-97560 --json {flags}")).ok())
}

fn verdict(advice: &Value) -> &str {
    advice["recommendation"]["verdict"].as_str().unwrap()
}

#[test]
fn scattered_writes_are_helped_and_the_numbers_are_those_of_simulate() {
    let folder = folder_with_trace(40_000, 1, scattered);
    let advice = advise(&folder, "");
    assert_eq!(verdict(&advice), "helps", "{advice}");
    let rows = advice["rows"].as_array().unwrap();
    let devices: Vec<_> =
        advice["curves"].as_array().unwrap().iter().map(|curve| curve["name"].clone()).collect();
    assert_eq!(devices, ["nvme-ssd", "sata-ssd", "hp-97560"]);
    assert!(rows.len().is_multiple_of(3) && rows.len() >= 9, "{advice}");

    let simulate = |flags: &str| {
        json(&folder.dcd(&format!("simulate --trace t.csv --disk hp-97560 --json {flags}")).ok())
    };
    let bare = simulate("");
    assert_eq!(advice["bare"]["write"]["mean_ms"], bare["write"]["response_ms"]["mean"]);
    assert_eq!(advice["bare"]["disk_writes"], bare["disk_writes"]);
    let row = &rows[1];
    assert_eq!(
        (&row["cache_device"], &row["cache_bytes"]),
        (&"nvme-ssd".into(), &(8 << 20).into())
    );
    let alone = simulate("--cache-disk 8M --cache-disk-profile nvme-ssd --segment 128k");
    assert_eq!(row["read"]["p99_ms"], alone["read"]["response_ms"]["p99"]);
    let sum = |part: &str, drained: &str| {
        alone.pointer(part).unwrap().as_u64().unwrap() + alone["drain"][drained].as_u64().unwrap()
    };
    assert!(alone["drain"]["disk_writes"].as_u64().unwrap() > 0, "{alone}");
    assert_eq!(row["disk_writes"], sum("/disk_writes", "disk_writes"));
    let written = sum("/log/cache_disk_write_bytes", "cache_disk_write_bytes");
    assert_eq!(row["log"]["cache_write_bytes"], written);
    // Every line is written to the disk in the end.
    assert_eq!(row["disk_write_bytes"], 1800 * 4096);
    let years = row["log"]["wear"]["years"].as_f64().unwrap();
    assert!(years > 1.0, "{row}");

    let page = std::fs::read_to_string(folder.path("advice.html")).unwrap();
    assert_eq!(advice["page"], "advice.html");
    let sentence = advice["recommendation"]["sentence"].as_str().unwrap();
    assert!(page.contains(sentence) && page.matches("<svg ").count() >= 5);
    assert!(!page.contains("<script"));
    let words = folder.dcd("advise t.csv --disk hp-97560 --jobs 1").ok();
    for wanted in [sentence, "\n* nvme-ssd", "advice.html", "none: hp-97560"] {
        assert!(words.contains(wanted), "{wanted}: {words}");
    }
    assert_eq!(
        page,
        std::fs::read_to_string(folder.path("advice.html")).unwrap(),
        "the same again"
    );
}

#[test]
fn loads_that_need_no_log_are_told_so() {
    let reads = folder_with_trace(40_000, 10, scattered);
    let hardly = folder_with_trace(40_000, 10, scattered);
    let mut trace = std::fs::read_to_string(hardly.path("t.csv")).unwrap();
    trace += "80000000,W,0,4096\n";
    std::fs::write(hardly.path("t.csv"), trace).unwrap();
    for (folder, reason) in [(reads, "no_writes"), (hardly, "hardly_any_writes")] {
        let advice = advise(&folder, "--cache-disk 8M --cache-disk-profile nvme-ssd");
        assert_eq!(verdict(&advice), "no_help", "{advice}");
        assert_eq!(advice["recommendation"]["reason"], reason, "{advice}");
        let words = folder.dcd("advise t.csv --disk hp-97560 --cache-disk 8M").ok();
        assert!(
            words.contains("dcd would not help this load") && !words.contains("\n* "),
            "{words}"
        );
        let page = std::fs::read_to_string(folder.path("advice.html")).unwrap();
        assert!(!page.contains("To have it"));
    }
}

#[test]
fn a_trace_of_a_faster_disk_is_replayed_in_a_closed_loop_and_that_is_told() {
    let folder = folder_with_trace(100, 1, scattered);
    let few = "--cache-disk 8M,16M --cache-disk-profile nvme-ssd";
    let advice = advise(&folder, few);
    let pace = &advice["pace"];
    assert_eq!((&pace["closed_loop"], &pace["is_chosen"]), (&true.into(), &false.into()));
    assert_eq!(pace["overload"]["kind"], "late", "{pace}");
    let limits = advice["recommendation"]["limits"].to_string();
    assert!(limits.contains("The trace is from a faster disk"), "{limits}");
    // Of another time than that of the trace.
    let details = advice["recommendation"]["details"].to_string();
    assert!(details.contains("each when the one before is done, day and night"), "{details}");
    let chosen = advise(&folder, &format!("{few} --closed-loop"));
    assert_eq!(chosen["rows"], advice["rows"]);
    assert!(chosen["pace"]["overload"].is_null());
    // Kept open on purpose: no prediction.
    let forced = advise(&folder, &format!("{few} --stretch 1"));
    assert_eq!(verdict(&forced), "overloaded", "{forced}");
    assert!(forced["recommendation"]["row"].is_null());
    let words = folder.dcd(&format!("advise t.csv --disk hp-97560 {few} --stretch 1")).ok();
    assert!(words.contains("Nothing is predicted"), "{words}");
    assert_eq!(verdict(&advise(&folder, &format!("{few} --stretch 400"))), "helps");
}

#[test]
fn the_grid_is_as_the_flags_say() {
    let folder = folder_with_trace(40_000, 1, scattered);
    let flags = "--cache-disk 16M,8M,8M --cache-disk-profile sata-ssd,hp-2200a,sata-ssd --destage \
                 fifo,lifo --ack memory,durable --endurance-tbw 150";
    let advice = advise(&folder, flags);
    let rows = advice["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 2 * 2);
    assert_eq!(rows[0]["cache_bytes"], 8 << 20);
    assert_eq!(advice["curves"][3]["name"], "sata-ssd, last-write-first, durable");
    assert!(rows[0]["log"]["wear"]["years"].as_f64().unwrap() > 0.0);
    assert!(rows[15]["log"]["wear"]["years"].is_null(), "{}", rows[15]);
    let advice = advise(&folder, "--cache-disk 8M,1G --cache-disk-profile hp-2200a");
    assert_eq!(advice["rows"].as_array().unwrap().len(), 1);
    assert!(advice["left_out"][0].as_str().unwrap().starts_with("1 GiB and more on hp-2200a"));
    let made_up = "advise --workload uniform,requests=500 --disk wd-4tb --cache-disk 8M --json";
    let made_up = json(&folder.dcd(made_up).ok());
    assert!(made_up["load"]["name"].as_str().unwrap().starts_with("uniform"), "{made_up}");
}

#[test]
fn what_cannot_be_advised_on_is_told_and_nothing_is_overwritten() {
    let folder = folder_with_trace(40_000, 1, scattered);
    std::fs::write(folder.path("empty.csv"), "t_us,op,off,len\n").unwrap();
    let far = "t_us,op,off,len\n0,W,0,4096\n1,W,9000000000,4096\n";
    std::fs::write(folder.path("far.csv"), far).unwrap();
    std::fs::write(folder.path("two.csv"), "t_us,op,dev,off,len\n0,W,0,0,512\n1,W,1,0,512\n")
        .unwrap();
    let bytes = std::fs::read(folder.path("t.csv")).unwrap();
    for (line, code, problem, hint) in [
        ("t.csv", 2, "--disk", ""),
        ("--disk hp-97560", 2, "TRACE", ""),
        ("t.csv --live /dev/sda --disk hp-97560", 2, "--live", ""),
        ("t.csv --for 1m --disk hp-97560", 2, "--for", ""),
        ("t.csv --keep u.csv --disk hp-97560", 2, "--keep", ""),
        ("t.csv --disk hp-97560 --closed-loop --stretch 2", 2, "--stretch", ""),
        ("t.csv --disk hp-97560 --endurance-tbw 0", 2, "10^12", ""),
        ("t.csv --disk none", 1, "no disk profile", "dcd disk list"),
        ("t.csv --disk hp-97560 --cache-disk-profile none", 1, "no disk profile", ""),
        ("t.csv --disk hp-97560 --cache-disk 64k", 1, "needs at least", ""),
        ("empty.csv --disk hp-97560", 1, "the trace has no requests", ""),
        ("none.csv --disk hp-97560", 1, "cannot read the trace", ""),
        ("far.csv --disk hp-97560", 1, "far.csv:3:5: address", "larger disks"),
        ("two.csv --disk hp-97560", 1, "expected requests for device 0 only", "--device"),
        ("t.csv --disk hp-97560 --out t.csv", 1, "not written by dcd advise", "another --out"),
        // Before anything is read or simulated.
        ("none.csv --disk hp-97560 --out no/a.html", 1, "cannot write no/a.html", "directory"),
        ("/dev/stdin --disk hp-97560", 1, "found a pipe or a device", "a file first"),
        ("--live t.csv --disk hp-97560", 1, "no block device", "lsblk"),
    ] {
        folder.dcd(&format!("advise {line}")).fails(code, problem, hint);
    }
    assert_eq!(std::fs::read(folder.path("t.csv")).unwrap(), bytes);
    assert!(!folder.path("advice.html").exists());
    advise(&folder, "--cache-disk 8M --out again.html");
    advise(&folder, "--cache-disk 8M --out again.html");
}

#[test]
fn names_from_outside_are_escaped() {
    let folder = folder_with_trace(40_000, 1, scattered);
    std::fs::rename(folder.path("t.csv"), folder.path("<img&src=x>.csv")).unwrap();
    folder.dcd("advise <img&src=x>.csv --disk hp-97560 --cache-disk 8M").ok();
    let page = std::fs::read_to_string(folder.path("advice.html")).unwrap();
    assert!(page.contains("&lt;img&amp;src=x&gt;.csv") && !page.contains("<img"), "{page}");
}

#[test]
fn a_log_in_front_of_a_bucket_is_told_in_requests_and_dollars() {
    // Without reads, beside which lines are written through one by one.
    let folder = folder_with_trace(50_000, 0, scattered);
    let line = "advise t.csv --disk s3 --cache-disk 8M --cache-disk-profile nvme-ssd --json";
    let advice = json(&folder.dcd(line).ok());
    assert_eq!(verdict(&advice), "helps", "{advice}");
    let usd = |facts: &Value, what: &str| facts["cost"]["disk"][what].as_f64().unwrap();
    let (bare, row) = (&advice["bare"], &advice["rows"][0]);
    // Each write is a PUT of its own: 100 s, 730 h a month.
    assert_eq!(bare["disk_writes"], 2000);
    let month = 730.0 * 3600.0 / advice["month_of_s"].as_f64().unwrap();
    let requests = 2000.0 * 0.005 / 1000.0 * month;
    assert!((usd(bare, "requests_usd") / requests - 1.0).abs() < 1e-9, "{bare}");
    assert!((usd(bare, "stored_usd") - 2.47).abs() < 1e-9);
    // Packed, in order of windows.
    assert_eq!(row["destage"], "ordered");
    let puts = row["store"]["puts"].as_u64().unwrap();
    assert!(puts < 400 && row["disk_writes"] == puts, "{row}");
    assert!(usd(row, "requests_usd") < usd(bare, "requests_usd") / 5.0, "{row}");
    let details = advice["recommendation"]["details"].to_string();
    assert!(details.contains("A month like this would cost"), "{details}");
    let words = folder.dcd(&line.replace(" --json", "")).ok();
    assert!(words.contains("USD/month"), "{words}");
    let page = std::fs::read_to_string(folder.path("advice.html")).unwrap();
    assert!(page.contains("<th>USD</th>") && page.contains("--data-disk s3://BUCKET/PREFIX"));

    let simulate = "simulate --trace t.csv --disk s3 --cache-disk 8M --cache-disk-profile nvme-ssd --segment 128k";
    let alone = json(&folder.dcd(&format!("{simulate} --json")).ok());
    assert_eq!((&alone["store"], &alone["cost"]), (&row["store"], &row["cost"]));
    let words = folder.dcd(simulate).ok();
    assert!(words.contains("a month like this") && words.contains("data objects"), "{words}");
    for (flags, what) in [
        ("--destage fifo", "another order of destaging than ordered"),
        ("--nvram 64k", "non-volatile memory"),
    ] {
        folder.dcd(&format!("{simulate} {flags}")).fails(1, what, "--destage ordered");
    }
    let turned = "simulate --trace t.csv --disk hp-97560 --cache-disk 16M --cache-disk-profile s3";
    folder.dcd(turned).fails(1, "its cache-disk is an object store", "--cache-disk-profile");
}

#[test]
fn a_shingled_disk_for_hosts_is_refused_and_one_that_cleans_is_advised_on() {
    let folder = folder_with_trace(40_000, 1, scattered);
    let hint = "dm-zoned";
    folder.dcd("advise t.csv --disk hc620").fails(1, "managed by the host", hint);
    let log = "simulate --trace t.csv --disk hc620 --cache-disk 16M --cache-disk-profile nvme-ssd";
    folder.dcd(log).fails(1, "managed by the host", hint);
    // Behind the conventional zones it takes what comes in order.
    let far = folder_with_trace(40_000, 0, |number| 600 * 65_536 + number);
    far.dcd("simulate --trace t.csv --disk hc620").ok();
    let scattered = folder_with_trace(40_000, 0, |number| 600 * 65_536 + scattered(number));
    let refused = scattered.dcd("simulate --trace t.csv --disk hc620");
    refused.fails(1, "zones would take one at", "in order");
    let advice =
        json(&folder.dcd("advise t.csv --disk archive-8tb --json --cache-disk 8M --seeds 2").ok());
    assert!(advice["rows"].as_array().unwrap().len() == 3, "{advice}");
}

#[test]
fn what_is_recommended_is_so_with_other_seeds_too() {
    let folder = folder_with_trace(40_000, 1, scattered);
    let few = "--cache-disk 8M --cache-disk-profile nvme-ssd";
    let advice = advise(&folder, few);
    let noise = &advice["noise"];
    assert_eq!(noise["seeds"], 3, "{noise}");
    let faster = |what: &str| noise["faster_percent"][what].as_f64().unwrap();
    assert!(faster("min") > 30.0 && faster("min") <= faster("mean"), "{noise}");
    assert!(faster("mean") <= faster("max") && faster("min") < faster("max"), "{noise}");
    assert!(advice["recommendation"]["details"].to_string().contains("With 3 seeds"), "{advice}");
    let one = advise(&folder, &format!("{few} --seeds 1"));
    assert!(one["noise"].is_null());
    assert_eq!(one["rows"], advice["rows"]);
}

#[test]
fn many_volumes_are_one_table() {
    let folder = folder_with_trace(40_000, 1, scattered);
    let trace = std::fs::read_to_string(folder.path("t.csv")).unwrap();
    let reads: String = trace.replace(",W,", ",R,");
    std::fs::write(folder.path("reads.csv"), reads).unwrap();
    std::fs::write(folder.path("bad.csv"), "t_us,op,off,len\n0,Q,0,512\n").unwrap();
    let line = "advise reads.csv bad.csv t.csv --disk hp-97560 --cache-disk 8M --cache-disk-profile nvme-ssd";
    let words = folder.dcd(line).ok();
    let row = |name: &str| words.lines().position(|line| line.starts_with(name)).unwrap();
    assert!(row("t.csv") < row("reads.csv") && row("reads.csv") < row("bad.csv "), "{words}");
    for wanted in
        ["helps", "1 of 3 volumes are worth a log", "bad.csv: bad.csv:2:", "advice-3.html"]
    {
        assert!(words.contains(wanted), "{wanted}: {words}");
    }
    let told = json(&folder.dcd(&format!("{line} --json")).ok());
    let volumes = told["volumes"].as_array().unwrap();
    let names: Vec<_> = volumes.iter().map(|volume| volume["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["reads.csv", "bad.csv", "t.csv"]);
    assert_eq!(verdict(&volumes[2]), "helps");
    assert!(volumes[1]["error"].as_str().unwrap().contains("bad.csv:2"));
    // As by itself.
    let alone = advise(&folder, "--cache-disk 8M --cache-disk-profile nvme-ssd");
    assert_eq!(volumes[2]["rows"], alone["rows"]);
    let page = |name: &str| std::fs::read_to_string(folder.path(name)).unwrap();
    assert_eq!(page("advice-3.html"), page("advice.html"));
    assert!(!folder.path("advice-2.html").exists());
    folder.dcd(&format!("{line} --out -")).fails(1, "only for one trace", "");
}

#[test]
fn memory_has_a_bound_that_is_told() {
    let folder = folder_with_trace(40_000, 1, scattered);
    let few = "--cache-disk 8M,64M --cache-disk-profile nvme-ssd";
    let limits = |advice: &Value| advice["recommendation"]["limits"].to_string();
    let advice = advise(&folder, few);
    assert!(limits(&advice).contains("had 2 GiB of memory (--memory-max); the largest log took"));
    let took = |row: &Value| row["memory_bytes"].as_u64().unwrap();
    let rows = advice["rows"].as_array().unwrap();
    assert!(took(&rows[0]) > 1 << 20 && took(&rows[1]) > took(&rows[0]), "{rows:?}");
    // Enough for the one, and not for the other, however many there are at once.
    let most = (took(&rows[0]) + took(&rows[1])) / 2;
    let small = advise(&folder, &format!("{few} --memory-max {most} --jobs 2"));
    assert_eq!(small["rows"][0], rows[0]);
    assert!(small["rows"][1]["error"].as_str().unwrap().contains("bytes of memory"), "{small}");
    assert!(limits(&small).contains("1 log could not be simulated"), "{small}");
    let alone = advise(&folder, &format!("{few} --memory-max {most} --jobs 1"));
    assert_eq!(alone["rows"], small["rows"]);
}

#[test]
fn flushes_have_columns_where_there_are_some_and_rows_tell_their_segments() {
    let folder = folder_with_trace(40_000, 1, scattered);
    let few =
        "advise t.csv --disk hp-97560 --cache-disk 8M --cache-disk-profile nvme-ssd --seeds 1";
    assert!(!folder.dcd(few).ok().contains("flushes"));
    let mut trace = std::fs::read_to_string(folder.path("t.csv")).unwrap();
    trace += "80000000,F,0,0\n";
    std::fs::write(folder.path("t.csv"), trace).unwrap();
    let words = folder.dcd(few).ok();
    assert!(words.lines().next().unwrap().contains("flushes"), "{words}");
    let advice = json(&folder.dcd(&format!("{few} --json")).ok());
    assert_eq!(advice["rows"][0]["segment_bytes"], 128 << 10, "{advice}");
    let page = std::fs::read_to_string(folder.path("advice.html")).unwrap();
    assert!(page.contains("<th>segments</th>") && page.contains("<td>128 KiB</td>"));
}

/// A read area, modes past the log and a memory in its place are simulated beside what is
/// recommended, as `dcd simulate` has them.
#[test]
fn what_else_could_be_done_is_tried() {
    // Reads of few places, in turn with writes all over the disk.
    let folder = folder_with_trace(20_000, 5, |number| {
        if number % 10 < 5 { number * 7919 % 300 } else { scattered(number) }
    });
    let flags = "--cache-disk 16M --cache-disk-profile nvme-ssd --stretch 1";
    let advice = advise(&folder, flags);
    let tried = advice["trials"]["tried"].as_array().unwrap();
    let kinds: Vec<&str> = tried.iter().map(|trial| trial["kind"].as_str().unwrap()).collect();
    let areas = ["read-area"; 3];
    assert_eq!(kinds[..3], areas);
    assert_eq!(kinds[3..], ["write-through", "write-around", "nvram", "nvram"]);
    let line = "simulate --trace t.csv --disk hp-97560 --json";
    let mean = |facts: &Value, what: &str| facts[what]["response_ms"]["mean"].as_f64().unwrap();
    let quarter = "--cache-disk 16M --cache-disk-profile nvme-ssd --segment 256k --read-area 4M";
    for (trial, more) in [(&tried[1], quarter), (&tried[6], "--nvram 16M --policy auto")] {
        let facts = json(&folder.dcd(&format!("{line} {more}")).ok());
        for what in ["read", "write"] {
            let told = trial[format!("{what}_mean_ms")].as_f64().unwrap();
            assert!((told - mean(&facts, what)).abs() < 1e-3, "{trial}: {facts}");
        }
    }
    let words = folder.dcd(&format!("advise t.csv --disk hp-97560 {flags}")).ok();
    for sentence in advice["trials"]["sentences"].as_array().unwrap() {
        assert!(words.contains(sentence.as_str().unwrap()), "{sentence}: {words}");
    }
    let page = std::fs::read_to_string(folder.path("advice.html")).unwrap();
    assert!(page.contains("Tried beside it") && page.contains("write-around, with a read area"));
    // Without reads there is nothing to copy.
    let writes = folder_with_trace(40_000, 0, scattered);
    let advice = advise(&writes, flags);
    let tried = advice["trials"]["tried"].as_array().unwrap();
    assert!(tried.iter().all(|trial| trial["kind"] == "nvram"), "{tried:?}");
}
