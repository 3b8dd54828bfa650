//! Proves that `dcd figures` does the thesis' experiments: every finding holds on the made-up disk, and each figure is
//! a picture and on the page.

mod common;

use common::Folder;
use serde_json::Value;

#[test]
fn the_findings_hold_on_the_made_up_disk() {
    let folder = Folder::new();
    let facts: Value = serde_json::from_str(&folder.dcd("figures --out f --json").ok()).unwrap();
    let findings = facts["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 9);
    for finding in findings {
        assert_eq!(finding["holds"], true, "{finding}");
    }
    // What the load was fitted to (Table 7.3, LRU) comes out; the rest of Table 7.2 is near.
    let tables = facts["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 18);
    let fitted = tables.iter().find(|row| row["table"] == "7.3").unwrap();
    let ratio = |row: &Value| row["ours"].as_f64().unwrap() / row["printed"].as_f64().unwrap();
    assert!((ratio(fitted) - 1.0).abs() < 0.01, "{fitted}");
    for row in tables.iter().filter(|row| row["table"] == "7.2") {
        assert!((0.7..1.4).contains(&ratio(row)), "{row}");
    }
    let page = std::fs::read_to_string(folder.path("f/index.html")).unwrap();
    let names = facts["figures"].as_array().unwrap();
    assert_eq!((names.len(), page.matches("<svg ").count()), (16, 16));
    for name in names {
        let path = folder.path(&format!("f/{}.svg", name.as_str().unwrap()));
        let picture = std::fs::read_to_string(path).unwrap();
        assert!(picture.starts_with("<svg ") && page.contains(&picture), "{name}");
    }
}

#[test]
fn what_is_wrong_is_told_before_anything_is_simulated() {
    let folder = Folder::new();
    folder.dcd("figures --hplajw none.csv --out f").fails(1, "none.csv", "");
    assert!(!folder.path("f").exists());
    std::fs::write(folder.path("file"), "").unwrap();
    folder.dcd("figures --out file").fails(1, "cannot make file", "");
}
