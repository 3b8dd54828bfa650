//! Proves on real devices: `dcd trace record` writes down what a block device was asked for, and
//! `dcd trace replay` sends a trace to a disk behind NBD at its pace.

mod harness;

use std::fs;
use std::time::Instant;

use harness::{Site, Value};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn what_a_loop_device_is_asked_for_is_recorded() {
    const TEST: &str = "what_a_loop_device_is_asked_for_is_recorded";
    skip_without!(TEST, "root", "loop", "tracefs", "losetup", "dd");
    let site = Site::empty();
    site.folder.disk("l.img", 4 << 20);
    let device = site.run("losetup --show -f l.img").trim().to_owned();
    let recording = site.start_line(&format!("trace record {device} t.csv --for 60s --json"));
    // It records from some moment on: writes until one is seen.
    let write =
        || site.run(&format!("dd if=/dev/zero of={device} bs=4k seek=3 count=1 oflag=direct"));
    harness::until("the kernel records", || {
        write();
        let instances = fs::read_dir("/sys/kernel/tracing/instances").unwrap().flatten();
        let own = instances.filter(|entry| entry.file_name().to_string_lossy().contains("dcd-"));
        let is_on = |path: std::path::PathBuf| {
            let enable = path.join("events/block/block_bio_queue/enable");
            fs::read_to_string(enable).is_ok_and(|text| text.trim() == "1")
        };
        own.into_iter().any(|entry| is_on(entry.path())).then_some(())
    });
    for _ in 0..3 {
        write();
    }
    site.run(&format!("dd if={device} of=/dev/null bs=8k skip=1 count=1 iflag=direct"));
    recording.stop();
    site.run(&format!("losetup -d {device}"));
    let trace = fs::read_to_string(site.path("t.csv")).unwrap();
    let count = |wanted: &str| trace.lines().filter(|line| line.contains(wanted)).count();
    assert!(count(",W,0,12288,4096,") >= 3, "{trace}");
    assert_eq!(count(",R,0,8192,8192,"), 1, "{trace}");
    site.dcd("trace record /dev/null n.csv").fails(1, "no block device", "lsblk");
    site.dcd(&format!("trace record {device} t.csv")).fails(1, "File exists", "overwritten");
}

#[test]
fn a_trace_is_replayed_at_its_pace() {
    let site = Site::new("16M", 64 << 20);
    let mut trace = "t_us,op,off,len,fl\n".to_owned();
    for number in 0..40u64 {
        let op = ["W", "R", "F", "W"][number as usize % 4];
        let flag = if number % 8 == 0 { 2 } else { 0 };
        trace += &format!("{},{op},{},4096,{flag}\n", number * 10_000, number * 65_536);
    }
    trace += "400000,D,0,65536,0\n";
    fs::write(site.path("t.csv"), trace).unwrap();
    let _daemon = site.serve("--quiet");
    let socket = site.socket().display().to_string();
    for (flags, least_ms) in
        [("", 390), ("--stretch 0.5", 195), ("--closed-loop --requests 20", 190)]
    {
        let started = Instant::now();
        let line = format!("trace replay t.csv --nbd {socket} --overwrite --json {flags}");
        let facts = json(&site.dcd(&line).ok());
        assert!(started.elapsed().as_millis() >= least_ms, "{flags}");
        let all = if flags.contains("20") { 20 } else { 41 };
        assert_eq!(facts["requests"], all, "{facts}");
        assert_eq!(facts["writes"], all / 2, "{facts}");
        for what in ["read", "write", "flush"] {
            assert!(facts[what]["response_ms"]["mean"].as_f64().unwrap() > 0.0, "{facts}");
        }
    }
    let words = site.dcd(&format!("trace replay t.csv --nbd {socket} --overwrite")).ok();
    assert!(words.contains("1 discards left out") && words.contains("20 writes"), "{words}");
    site.dcd(&format!("trace replay t.csv --nbd {socket}")).fails(2, "--overwrite", "");
    site.dcd("trace replay t.csv --nbd none.sock --overwrite").fails(1, "none.sock", "");
    fs::write(site.path("far.csv"), "t_us,op,off,len\n0,W,999999995904,4096\n").unwrap();
    site.dcd(&format!("trace replay far.csv --nbd {socket} --overwrite")).fails(1, "error", "");
}
