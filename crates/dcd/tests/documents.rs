//! Proves that `docs/cli.md` is what the command line says, that the generated helpers come out:
//! completions for each shell and a manual page for each verb; and that results of benchmarks have
//! the form that is promised, with history there and not in documents.

mod common;

use std::path::{Path, PathBuf};

use common::Folder;
use serde_json::Value;

#[test]
fn the_reference_page_is_up_to_date() {
    let folder = Folder::new();
    let made = folder.dcd("help-markdown").ok();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        made == found,
        "docs/cli.md is not what the command line says; make it again:\n  \
         cargo run --locked -q -p dcd-cache -- help-markdown > docs/cli.md"
    );
}

#[test]
fn the_reference_page_names_every_flag_of_every_verb() {
    let page = Folder::new().dcd("help-markdown").ok();
    for verb in ["create", "serve", "status", "flush", "drain", "detach", "check", "bench flush"]
        .into_iter()
        .chain([
            "inspect superblock",
            "inspect segment",
            "disk validate",
            "trace summary",
            "trace convert",
            "advise",
            "simulate",
            "slow-disk",
            "metrics",
            "top",
            "probe",
            "demo",
            "completions",
            "man",
        ])
    {
        assert!(page.contains(&format!("\n## dcd {verb}\n")), "{verb}");
    }
    for flag in ["--cache-disk", "--bypass-threshold", "--destage-iops", "--memory-directory"] {
        assert!(page.contains(&format!("      {flag}")), "{flag}");
    }
    assert!(!page.contains("help-markdown\n\n```"), "hidden verbs stay hidden");
}

#[test]
fn every_verb_has_examples_in_its_help() {
    let folder = Folder::new();
    for verb in ["create", "serve", "status", "flush", "drain", "detach", "check", "inspect"]
        .into_iter()
        .chain([
            "bench",
            "demo",
            "disk",
            "trace",
            "advise",
            "simulate",
            "slow-disk",
            "metrics",
            "top",
            "probe",
            "completions",
            "man",
        ])
    {
        let help = folder.dcd(&format!("{verb} --help")).ok();
        assert!(help.contains("Examples:\n"), "{verb}: {help}");
    }
    let help = folder.dcd("--help").ok();
    assert!(help.contains("Exit codes:") && help.contains("Examples:"), "{help}");
}

/// What a shell is offered for the last of these words.
fn offered(words: &[&str]) -> Vec<String> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_dcd"))
        .args(["--", "dcd"])
        .args(words)
        .env("DCD_COMPLETE", "bash")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn shells_are_offered_what_there_is() {
    let verbs = offered(&[""]);
    assert!(verbs.contains(&"serve".into()) && verbs.contains(&"detach".into()), "{verbs:?}");
    assert!(!verbs.contains(&"caretaker".into()), "{verbs:?}");
    assert_eq!(offered(&["set", "sdb", "max-del"]), ["max-delay="]);
    let flags = offered(&["serve", "--destage-"]);
    assert!(flags.contains(&"--destage-rate".into()), "{flags:?}");
    #[cfg(feature = "lab")]
    assert_eq!(offered(&["disk", "show", "wd-"]), ["wd-4tb"]);
    // A volume that is not there has no members.
    assert!(
        offered(&["volume", "fail", "--control", "gone", ""]).iter().all(|it| it.starts_with('-'))
    );
}

#[test]
fn completions_and_manual_pages_come_out() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.dcd(&format!("completions {shell}")).ok();
        assert!(script.contains("DCD_COMPLETE") && script.contains("dcd"), "{shell}");
    }
    std::fs::create_dir(folder.path("man")).unwrap();
    folder.dcd("man man").ok();
    for page in ["dcd.1", "dcd-serve.1", "dcd-create.1", "dcd-inspect.1"] {
        let text = std::fs::read_to_string(folder.path("man").join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
    folder.dcd("man missing").fails(1, "cannot write manual pages to missing", "");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Seven to forty digits of base 16 with a letter and a number among them: a commit.
fn is_commit(word: &str) -> bool {
    (7..=40).contains(&word.len())
        && word.chars().all(|it| it.is_ascii_digit() || ('a'..='f').contains(&it))
        && word.contains(|it: char| it.is_ascii_digit())
        && word.contains(|it: char| it.is_ascii_lowercase())
}

/// A number or several; a word would hide what nobody can compare.
fn is_figure(value: &Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::Array(values) => !values.is_empty() && values.iter().all(Value::is_number),
        _ => false,
    }
}

/// `bench/results/README.md` says the form.
#[test]
fn results_of_benchmarks_have_their_form() {
    const UNITS: &[&str] = &[
        "per_second",
        "s",
        "ms",
        "us",
        "ratio",
        "percent",
        "count",
        "bytes",
        "kib",
        "mib",
        "mb",
        "gib",
        "million",
        "instructions",
        "per_gib",
    ];
    let is_in = |name: &str, unit: &str| {
        name.strip_suffix(unit).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
    };
    let mut runs = 0;
    for entry in std::fs::read_dir(root().join("bench/results")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let file: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let text_of = |value: &Value, field: &str| -> String {
            let text = value[field].as_str();
            text.unwrap_or_else(|| panic!("{path:?}: no {field}: {value}")).to_owned()
        };
        assert!(!text_of(&file, "title").is_empty() && !text_of(&file, "goal").is_empty());
        let mut last = String::new();
        for run in file["runs"].as_array().unwrap_or_else(|| panic!("{path:?}: no runs")) {
            runs += 1;
            let name = text_of(run, "name");
            let place = format!("{}: {name}", path.display());
            for field in ["name", "command", "machine"] {
                assert!(!text_of(run, field).is_empty(), "{place}: {field}");
            }
            text_of(run, "notes");
            let date = text_of(run, "date");
            let digits = date.bytes().filter(u8::is_ascii_digit).count();
            let has_form = date.len() == 10 && digits == 8 && &date[4..5] == "-";
            assert!(has_form, "{place}: {date}");
            assert!(last <= date, "{place}: {date} behind {last}");
            last = date;
            let is_hash = |it: &str| it.len() >= 7 && it.bytes().all(|it| it.is_ascii_hexdigit());
            // A commit cannot name itself.
            let is_known = !run["recorded_in"].is_null();
            assert!(!is_known || is_hash(&text_of(run, "recorded_in")), "{place}");
            let commit = &run["commit"];
            assert!(commit.is_null() || commit.as_str().is_some_and(is_hash), "{place}: {commit}");
            let figures = run["figures"].as_array().unwrap_or_else(|| panic!("{place}"));
            assert!(!figures.is_empty(), "{place}: no figures");
            for figure in figures {
                assert!(!text_of(figure, "of").is_empty(), "{place}: {figure}");
                let numbers = figure.as_object().unwrap().iter().filter(|(name, _)| *name != "of");
                assert!(numbers.clone().count() > 0, "{place}: {figure}");
                for (name, value) in numbers {
                    assert!(is_figure(value), "{place}: {name}: {value}");
                    assert!(UNITS.iter().any(|unit| is_in(name, unit)), "{place}: no unit: {name}");
                }
            }
        }
    }
    assert!(runs > 50, "{runs} runs");
}

/// Documents that have been put into order: what is so now, in lines that fit.
#[test]
fn documents_tell_no_history_in_long_lines() {
    let mut documents: Vec<PathBuf> =
        ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "bench/results/README.md"]
            .map(PathBuf::from)
            .into();
    // Decisions are history, and have the lines that they were written in.
    for directory in ["docs", "docs/uses"] {
        let entries = std::fs::read_dir(root().join(directory)).unwrap();
        let names = entries.map(|entry| Path::new(directory).join(entry.unwrap().file_name()));
        documents.extend(names.filter(|name| name.extension().is_some_and(|it| it == "md")));
    }
    assert!(documents.len() > 40, "{documents:?}");
    for document in documents {
        let text = std::fs::read_to_string(root().join(&document)).unwrap();
        let document = document.display();
        let mut is_code = false;
        for (number, line) in text.lines().enumerate() {
            let place = format!("{document}:{}", number + 1);
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            // In code there are UUIDs.
            let words = line.split(|it: char| !it.is_ascii_alphanumeric());
            for word in words.filter(|_| !is_code) {
                assert!(!is_commit(word), "{place}: a commit belongs into bench/results: {word}");
            }
            let is_table = line.trim_start().starts_with('|');
            let is_one_word = !line.trim().contains(' ');
            if !(is_table || is_code || is_fence || is_one_word) {
                let length = line.chars().count();
                assert!(length <= 120, "{place}: {length} characters");
            }
        }
    }
}

/// Of a version that nobody has yet nobody wants the diary.
#[test]
fn a_version_that_is_not_released_is_told_in_forty_lines() {
    let text = std::fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    for part in text.split("\n## ").skip(1) {
        let title = part.lines().next().unwrap();
        let lines = part.lines().count();
        assert!(!title.contains("not released") || lines <= 40, "{title}: {lines} lines");
    }
}
