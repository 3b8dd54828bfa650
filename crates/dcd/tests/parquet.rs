//! Proves, in builds with Parquet, that traces survive it and are read from it wherever traces are
//! read, that results of sweeps are written as it, and that files which end early are one line of
//! error.

mod common;

use common::Folder;
use serde_json::Value;

const CSV: &str = "t_us,op,dev,off,len,fl,lat_us
0,W,0,0,4096,1,500
10.25,W,3,4096,4096,3,500.5
200000,R,0,0,8192,0,300
5000100,F,0,0,0,0,
5000200,D,0,65536,5000000000,0,
";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn folder() -> Folder {
    let folder = Folder::new();
    std::fs::write(folder.path("t.csv"), CSV).unwrap();
    folder
}

#[test]
fn a_trace_survives_parquet_and_is_read_from_it_everywhere() {
    let folder = folder();
    folder.dcd("trace convert t.csv t.parquet").ok();
    folder.dcd("trace convert t.parquet again.csv").ok();
    assert_eq!(std::fs::read_to_string(folder.path("again.csv")).unwrap(), CSV);
    let summary = |trace: &str| {
        let mut facts = json(&folder.dcd(&format!("trace summary {trace} --json")).ok());
        facts["trace"] = Value::Null;
        let format = facts["format"].take();
        (format, facts)
    };
    let (format, facts) = summary("t.parquet");
    assert_eq!((format, &facts), ("parquet".into(), &summary("t.csv").1));
    folder.dcd("trace plot t.parquet --out t.svg").ok();
    let simulated = |trace: &str| {
        let line = format!("simulate --trace {trace} --device 0 --disk hp-97560 --json");
        json(&folder.dcd(&line).ok())["disk_busy_percent"].take()
    };
    assert_eq!(simulated("t.parquet"), simulated("t.csv"));
    folder.dcd("trace convert t.csv t.parquet").fails(1, "cannot create", "nothing is overwritten");

    folder.dcd("trace generate uniform,rate=1000,requests=200000 u.parquet").ok();
    assert_eq!(json(&folder.dcd("trace summary u.parquet --json").ok())["requests"], 200_000);
}

#[test]
fn what_is_wrong_is_one_line() {
    let folder = folder();
    folder.dcd("trace convert t.csv t.parquet").ok();
    let bytes = std::fs::read(folder.path("t.parquet")).unwrap();
    std::fs::write(folder.path("short"), &bytes[..bytes.len() - 9]).unwrap();
    folder.dcd("trace summary short").fails(1, "short: cannot read the Parquet trace", "columns");
    std::fs::write(folder.path("four"), "PAR1").unwrap();
    folder.dcd("trace summary four").fails(1, "four: cannot read the Parquet trace", "columns");
    // Data damaged, index whole.
    let mut damaged = bytes;
    damaged[4..60].fill(0xff);
    std::fs::write(folder.path("damaged"), damaged).unwrap();
    folder.dcd("trace summary damaged").fails(1, "damaged: cannot read the Parquet", "columns");
    folder.dcd("trace convert damaged d.parquet").fails(1, "damaged: ", "");
    assert!(!folder.path("d.parquet").exists(), "half a trace is left");
    // Results of a sweep are no trace.
    folder.dcd("sweep --workload uniform,requests=9 --disk hp-97560 --out r.parquet").ok();
    folder.dcd("trace summary r.parquet").fails(1, "load: expected only t_ns", "columns");
}

#[test]
fn a_sweep_is_gone_on_with_and_becomes_a_table() {
    let folder = folder();
    let line = "sweep --workload uniform,rate=50,requests=500 --disk hp-97560 --nvram none,64k \
                --stretch 1,2";
    folder.dcd(&format!("{line} --out s.csv")).ok();
    let all = std::fs::read_to_string(folder.path("s.csv")).unwrap();
    // Interrupted in the middle of a row.
    std::fs::write(folder.path("s.parquet.part.csv"), &all[..all.len() * 2 / 3]).unwrap();
    let rows = json(&folder.dcd(&format!("{line} --out s.parquet --json")).ok());
    assert_eq!(rows["rows"].as_array().unwrap().len(), 4);
    assert!(!folder.path("s.parquet.part.csv").exists());
    folder.dcd(&format!("{line} --out fresh.parquet")).ok();
    let read = |name: &str| std::fs::read(folder.path(name)).unwrap();
    let table = read("s.parquet");
    assert!(table.starts_with(b"PAR1") && table == read("fresh.parquet"));
    folder.dcd(&format!("{line} --out s.parquet")).fails(1, "s.parquet", "nothing is overwritten");
}
