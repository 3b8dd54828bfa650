//! No ordinary build has mistakes made on purpose in it, whatever else is built along with it.

use std::process::Command;

#[test]
fn no_build_has_seeded_bugs_unless_it_is_asked_for() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    // With development dependencies, as `cargo test` has them. {f}: the features that are on.
    cargo.args(["tree", "--workspace", "--edges", "all", "--offline", "--format", "{p} [{f}]"]);
    let output = cargo.output().expect("cargo runs");
    let tree = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let engine: Vec<&str> = tree.lines().filter(|line| line.contains("dcd-engine v")).collect();
    assert!(!engine.is_empty());
    for line in engine {
        assert!(!line.contains("seeded-bugs"), "{line}");
    }
}
