//! Proves what documents and scripts of the project promise about the project itself.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below a directory of the project.
fn files(directory: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![root().join(directory)];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => directories.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    files
}

/// What is built is what was tested: no build takes other versions than `Cargo.lock` has.
#[test]
fn every_call_of_cargo_is_locked() {
    let mut places = vec![root().join("Makefile"), root().join(".ci/run")];
    places.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)));
    places.extend(files("scripts").into_iter().chain(files("docs")));
    let verbs =
        ["build", "run", "test", "install", "clippy", "doc", "llvm-cov run", "llvm-cov test"];
    let mut calls = 0;
    for place in places {
        let Ok(text) = std::fs::read_to_string(&place) else { continue };
        for (number, line) in text.replace("\\\n", "  ").lines().enumerate() {
            for (at, _) in line.match_indices("cargo ") {
                let call = line[at..].split(['`', ';', '|', '&', '"']).next().unwrap();
                let call = &call["cargo ".len()..];
                // A word without options is prose.
                let is_one = verbs.iter().any(|verb| call.starts_with(&format!("{verb} ")));
                if is_one && call.contains(" -") {
                    assert!(
                        call.contains("--locked"),
                        "{}:{}: cargo {call}",
                        place.display(),
                        number + 1
                    );
                    calls += 1;
                }
            }
        }
    }
    assert!(calls > 30, "only {calls} are known");
}

/// The libFuzzer programs are a workspace of their own, whose versions nobody else notices.
#[test]
fn versions_of_the_libfuzzer_programs_are_up_to_date() {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(root().join("fuzz/Cargo.toml"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !text.contains("--locked was passed"),
        "fuzz/Cargo.lock: cargo metadata --manifest-path fuzz/Cargo.toml --format-version 1 > /dev/null\n{text}"
    );
    if !output.status.success() {
        println!("skipped: crates of fuzz/Cargo.toml are not on this machine");
    }
}
