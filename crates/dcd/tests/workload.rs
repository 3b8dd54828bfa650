//! Proves that `dcd trace generate` writes what `dcd simulate --workload` simulates, that what is
//! wrong with a workload is one line, and that the page about workloads names all of them.

mod common;

use std::path::Path;

use common::Folder;
use dcd_sim::workload::WorkloadKind;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_workload_is_the_same_as_a_trace_and_at_once() {
    let folder = Folder::new();
    for workload in ["zipf,requests=2000,theta=1.1,span=64M", "users,files=60,folders=4,think=30ms"]
    {
        folder.dcd(&format!("trace generate {workload} t.csv")).ok();
        let mut traced = json(&folder.dcd("simulate --trace t.csv --disk hp-97560 --json").ok());
        let at_once = format!("simulate --workload {workload} --disk hp-97560 --json");
        let mut direct = json(&folder.dcd(&at_once).ok());
        let name = direct["workload"].as_str().unwrap().split(',').next();
        assert_eq!(name, workload.split(',').next());
        for facts in [&mut traced, &mut direct] {
            let facts = facts.as_object_mut().unwrap();
            facts.remove("trace");
            facts.remove("workload");
        }
        assert_eq!(traced, direct, "{workload}");
        std::fs::remove_file(folder.path("t.csv")).unwrap();
    }
}

#[test]
fn a_made_up_trace_has_what_was_asked_for() {
    let folder = Folder::new();
    folder.dcd("trace generate uniform,requests=5000,reads=20,size=8k,rate=100,span=1G t.csv").ok();
    let facts = json(&folder.dcd("trace summary t.csv --json").ok());
    assert_eq!((&facts["requests"], &facts["format"]), (&5000.into(), &"csv".into()));
    let reads = facts["reads"]["count"].as_u64().unwrap();
    assert!(reads.abs_diff(1000) < 100, "{facts}");
    assert_eq!(facts["reads"]["bytes"], reads * 8192);
    let seconds = facts["duration_s"].as_f64().unwrap();
    assert!((45.0..55.0).contains(&seconds), "{facts}");
    folder.dcd("trace generate uniform t.csv").fails(
        1,
        "cannot create t.csv",
        "nothing is overwritten",
    );
}

#[test]
fn what_is_wrong_is_one_line() {
    let folder = Folder::new();
    for (workload, wanted) in [
        ("zip", "no workload is called `zip`; there are bursts, uniform"),
        ("zipf,tetha=1", "zipf has no key `tetha`; it has requests, duration"),
        (
            "zipf,size=5x",
            "size: expected a multiple of 512 bytes from 512 to 1073741824, found `5x`",
        ),
        ("users,users=500,span=1M", "span: expected at least"),
    ] {
        folder.dcd(&format!("trace generate {workload} t.csv")).fails(2, wanted, "");
        folder.dcd(&format!("simulate --workload {workload} --disk hp-2200a")).fails(2, wanted, "");
        assert!(!folder.path("t.csv").exists());
    }
    folder.dcd("simulate --workload uniform,span=1T --disk hp-2200a").fails(
        1,
        "request 1 of the workload: address:",
        "smaller span=",
    );
    folder
        .dcd("simulate --workload uniform,span=64M,rate=1000000,requests=9000000 --disk hp-2200a")
        .fails(1, "of the workload: ", "--closed-loop");
    folder.dcd("simulate --workload zipf --trace t.csv --disk hp-2200a").fails(2, "--trace", "");
    folder.dcd("simulate --workload zipf --device 1 --disk hp-2200a").fails(2, "--device", "");
    folder.dcd("simulate --disk hp-2200a").fails(2, "--trace", "");
}

#[test]
fn the_page_names_every_workload_and_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/workloads.md");
    let page = std::fs::read_to_string(path).unwrap();
    for kind in WorkloadKind::ALL {
        assert!(page.contains(&format!("`{}`", kind.name())), "{}", kind.name());
        for key in kind.keys() {
            let named = page.contains(&format!("`{}`", key.name));
            assert!(named || page.contains(&format!("`{}=", key.name)), "{}", key.name);
        }
    }
}
