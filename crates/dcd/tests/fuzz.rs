//! `dcd fuzz`: what it prints, and that a seed is a run.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn fuzz(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dcd"));
    command.arg("fuzz").args(arguments).output().expect("dcd runs")
}

fn json(arguments: &[&str]) -> Value {
    let output = fuzz(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

#[test]
fn the_last_line_of_json_tells_what_was_done() {
    let found = json(&["--runs", "2", "--seed", "3", "--faults", "write-error,slow"]);
    assert_eq!(
        (&found["seed"], &found["runs"], &found["violations"]),
        (&3.into(), &2.into(), &0.into())
    );
    assert!(found["crash_points"].as_u64() > Some(20));
    assert!(found["per_second"].as_f64() > Some(1.0));
}

#[test]
fn a_seed_is_one_run_and_always_the_same() {
    let runs = [&["--seed", "12"][..], &["--seed", "12", "--jobs", "1"]].map(json);
    assert_eq!(runs[0]["runs"], 1);
    for field in ["requests", "crash_points", "nested_crash_points", "refused_starts", "faults"] {
        assert_eq!(runs[0][field], runs[1][field], "{field}");
    }
}

#[test]
fn shards_share_the_runs() {
    let shards =
        ["0/3", "1/3", "2/3"].map(|shard| json(&["--seed", "5", "--runs", "4", "--shard", shard]));
    assert_eq!(shards.each_ref().map(|it| it["runs"].as_u64()), [Some(1), Some(1), Some(2)]);
    let seeds = shards.each_ref().map(|it| it["seed"].as_u64());
    assert_eq!(seeds, [Some(5), Some(6), Some(7)]);
    assert_eq!(json(&["--runs", "1", "--shard", "0/2"])["runs"], 0);
    for wrong in [
        &["--shard", "0/2"][..],
        &["--runs", "2", "--shard", "2/2"],
        &["--runs", "2", "--shard", "1/2", "--pairs"],
    ] {
        assert_eq!(fuzz(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_signal_ends_it_and_it_tells_what_was_done() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dcd"));
    command.args(["fuzz", "--for", "10m", "--json", "--jobs", "1"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("dcd runs");
    // Sent early, it ends the process, as it does any; so it is sent when it is waited for.
    let pid = child.id();
    let waits = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        blocked.is_some_and(|mask| {
            u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 2 != 0)
        })
    };
    while !waits() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Command::new("kill").args(["-INT", &pid.to_string()]).status().expect("kill");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.contains("stopped"), "{text}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["violations"], 0);
}

#[test]
fn an_ordinary_build_has_no_mistakes_and_says_how_to_get_one_that_has() {
    let output = fuzz(&["--seeded-bugs"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("make fuzz-seeded"), "{text}");
}

#[test]
fn runs_of_an_object_store_are_in_builds_that_have_them() {
    let output = fuzz(&["--store", "--runs", "2", "--shard", "1/2", "--json"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if cfg!(not(feature = "s3")) {
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("--features s3"), "{text}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&found["seed"], &found["runs"]), (&1.into(), &1.into()), "{found}");
    assert!(found["crash_points"].as_u64() > Some(0), "{found}");
    assert_eq!(found["violations"], serde_json::json!([]));
}

#[test]
fn bad_flags_are_explained() {
    for (flags, words) in [
        (&["--faults", "hange"][..], "there is no fault kind 'hange'"),
        (&["--for", "5"], "a duration needs a unit"),
        (&["--for", "5s", "--runs", "4"], "cannot be used with"),
        (&["--exhaustive", "9"], "9 is not in 1..=5"),
        (&["--runs", "0"], "0 is not in 1.."),
    ] {
        let output = fuzz(flags);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        assert!(text.contains(words), "{flags:?}: {text}");
    }
}
