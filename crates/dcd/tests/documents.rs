//! Proves that `docs/cli.md` is what the command line says, and that the generated helpers come
//! out: completions for each shell and a manual page for each verb.

mod common;

use std::path::Path;

use common::Folder;

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
