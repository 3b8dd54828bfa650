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

/// A second recipe would silently take the place of the first.
#[test]
fn every_target_of_make_has_one_recipe() {
    let output = std::process::Command::new("make")
        .args(["--dry-run", "lint"])
        .current_dir(root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("overriding"), "{said}");
}

/// The libFuzzer programs and the Python package are workspaces of their own, whose versions nobody
/// else notices.
#[test]
fn versions_of_other_workspaces_are_up_to_date() {
    for folder in ["fuzz", "python"] {
        let output = std::process::Command::new(env!("CARGO"))
            .args(["metadata", "--locked", "--offline", "--format-version", "1", "--manifest-path"])
            .arg(root().join(folder).join("Cargo.toml"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !text.contains("--locked was passed"),
            "{folder}/Cargo.lock: cargo metadata --manifest-path {folder}/Cargo.toml --format-version 1 > /dev/null\n{text}"
        );
        if !output.status.success() {
            println!("skipped: crates of {folder}/Cargo.toml are not on this machine");
        }
    }
}

/// Under a cargo and a libFuzzer that only note what they are asked for: turns follow each other
/// for as long as was asked, the corpus and the counts stay for the next run, and what fails is
/// told.
#[test]
fn byte_fuzzing_goes_on_where_it_was() {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-bytes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, script) in [
        ("rustup", "#!/bin/sh\nexit 0\n"),
        (
            "cargo",
            "#!/bin/sh\n[ \"$3\" = run ] || exit 0\necho \"$@\" >> \"$STUB/asked\"\n: > \"$9/kept-$$\"\n\
             echo '#9 DONE   cov: 77 ft: 80'\necho 'stat::number_of_executed_units: 9'\n\
             [ \"$9\" != \"$CORPUS/trace\" ] || exit 1\n",
        ),
    ] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(folder.join(name), script).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.join(name), executable).unwrap();
    }
    let corpus = folder.join("corpus");
    let run = |arguments: &[&str]| {
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let output = std::process::Command::new(root().join("scripts/fuzz-bytes.sh"))
            .args(arguments)
            .envs([("PATH", Path::new(&path)), ("STUB", &folder), ("CORPUS", &corpus)])
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for times in 1..3 {
        let (is_well, said) = run(&["7s", "units", "record"]);
        assert!(is_well && said.ends_with("2 passed, 0 failed, 0 skipped\n"), "{said}");
        let counts = std::fs::read_to_string(corpus.join("executions")).unwrap();
        assert_eq!(counts, format!("record {0} 77\nunits {0} 77\n", 9 * times));
        assert_eq!(std::fs::read_dir(corpus.join("units")).unwrap().count(), times);
    }
    let (is_well, said) = run(&["5s", "trace", "units"]);
    assert!(!is_well && said.ends_with("1 passed, 1 failed, 0 skipped\n"), "{said}");
    // Hours are for all together; when all have failed there is nothing left to do.
    let (is_well, said) = run(&["8h", "trace"]);
    assert!(!is_well && said.ends_with("0 passed, 1 failed, 0 skipped\n"), "{said}");
    let asked = std::fs::read_to_string(folder.join("asked")).unwrap();
    assert!(asked.lines().next().unwrap().contains("-max_total_time=7 "), "{asked}");
    assert!(asked.lines().last().unwrap().contains("-max_total_time=300 "), "{asked}");
    assert!(!run(&["soon"]).0);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What `package` is linked with, among our own crates.
fn linked(package: &str, features: &[&str]) -> Vec<String> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none"])
        .args(["--package", package])
        .args(features)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Who is linked with whom: a program that uses a volume needs no engine, a server no laboratory.
#[test]
fn nobody_is_linked_with_what_it_does_not_need() {
    let laboratory =
        ["dcd-sim", "dcd-study", "dcd-fuzz", "dcd-mistakes", "dcd-parquet", "plotters"];
    let server = [("dcd-daemon", &[][..]), ("dcd-cache", &["--no-default-features"])];
    for (package, features) in server {
        let linked = linked(package, features);
        assert!(linked.contains(&"dcd-engine".to_owned()), "{linked:?}");
        let found = linked.iter().find(|name| laboratory.contains(&name.as_str()));
        assert_eq!(found, None, "{package}");
    }
    for package in ["dcd-block", "dcd-protocol", "dcd-client", "dcd-client-c", "dhisfs"] {
        let linked = linked(package, &[]);
        assert!(linked.contains(&"dcd-block".to_owned()), "{linked:?}");
        let is_heavy = |name: &&String| {
            ["dcd-engine", "dcd-daemon"].contains(&name.as_str())
                || laboratory.contains(&name.as_str())
        };
        assert_eq!(linked.iter().find(is_heavy), None, "{package}");
    }
}

/// Each line of the threat model names the tests that hold it, and these are there.
#[test]
fn promises_of_the_threat_model_have_tests() {
    let text = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let model = text.split("## Threat model").nth(1).unwrap().split("\n## ").next().unwrap();
    let sources: Vec<(String, String)> = files("crates")
        .into_iter()
        .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    let (mut attackers, mut tests) = (0, 0);
    for section in model.split("\n### ").skip(1) {
        attackers += 1;
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).collect();
        // The first is the head of the table.
        assert!(rows.len() >= 3, "{section}");
        for row in &rows[1..] {
            let held_by = row.trim_end_matches('|').rsplit('|').next().unwrap();
            let names: Vec<&str> = held_by.split('`').skip(1).step_by(2).collect();
            let is_open = row.starts_with("| **not promised:**") && held_by.contains("no test: ");
            assert!(!names.is_empty() || is_open, "nothing holds: {row}");
            for name in names {
                tests += 1;
                if let Some(target) = name.strip_prefix("fuzz ") {
                    let corpus = root().join("crates/dcd-byte-fuzz/corpus").join(target);
                    assert!(corpus.is_dir(), "no target {target}: {row}");
                    continue;
                }
                let (file, test) = name.split_once("::").unwrap_or_else(|| panic!("{name}"));
                let is_it = |(path, source): &&(String, String)| {
                    let signature = format!("fn {test}() {{");
                    let tested = source.split(&signature).next().unwrap_or_default();
                    path.ends_with(&format!("/{file}"))
                        && source.contains(&signature)
                        && tested.trim_end().lines().last().is_some_and(|it| it.trim() == "#[test]")
                };
                let found = sources.iter().filter(is_it).count();
                assert_eq!(found, 1, "{found} tests are called {name}");
            }
        }
    }
    assert!(attackers >= 8 && tests >= 50, "{attackers} attackers, {tests} tests");
}

/// The map of the code leads somewhere: each file that it names is there, and each name in the four
/// paths is in the sources.
#[test]
fn places_that_the_architecture_names_exist() {
    let text = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let sources: Vec<(String, String)> = files("crates")
        .into_iter()
        .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    let paths = text.split("## The four paths").nth(1).unwrap().split("\n## ").next().unwrap();
    let in_code = |text: &str| -> Vec<String> {
        let prose = text.split("```").step_by(2).collect::<String>();
        prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let mut places = 0;
    for name in in_code(&text) {
        let file = name.ends_with(".rs") && !name.contains(' ');
        let folder = name.ends_with('/');
        if file || folder {
            places += 1;
            let place = format!("/{name}");
            let is_there = sources.iter().any(|(path, _)| match folder {
                true => path.contains(&place),
                false => path.ends_with(&place),
            });
            // Outside of the crates there is the folder of libFuzzer's programs.
            assert!(is_there || root().join(&name).is_dir(), "no {name}");
        }
    }
    let mut names = 0;
    for name in in_code(paths) {
        let last = name.rsplit("::").next().unwrap();
        if name.contains(['.', '/', '-']) || last.is_empty() {
            continue;
        }
        names += 1;
        let is_word = |source: &str| {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            source.match_indices(last).any(|(at, _)| {
                !source[..at].ends_with(is_part) && !source[at + last.len()..].starts_with(is_part)
            })
        };
        assert!(sources.iter().any(|(_, source)| is_word(source)), "no {name}");
    }
    assert!(places > 40 && names > 40, "{places} places, {names} names");
}

/// The anchor that a heading has on GitHub: small letters, no marks, hyphens for spaces.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|it| it.is_alphanumeric() || [' ', '-', '_'].contains(it));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

/// Links between documents lead to files and headings that are there.
#[test]
fn links_of_documents_lead_somewhere() {
    let mut documents: Vec<PathBuf> = files("docs")
        .into_iter()
        .filter(|it| it.extension().is_some_and(|it| it == "md"))
        .collect();
    let own = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
    documents.extend(own.map(|name| root().join(name)));
    let mut links = 0;
    for document in documents {
        let text = std::fs::read_to_string(&document).unwrap();
        // What stands in code is no link.
        let prose: String = text.split("```").step_by(2).collect();
        for part in prose.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            if target.contains("://") || target.contains(' ') {
                continue;
            }
            links += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let place = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            let from = document.display();
            assert!(place.exists(), "{from}: no {file}");
            if heading.is_empty() {
                continue;
            }
            let there = std::fs::read_to_string(&place).unwrap();
            let mut headings = there.lines().filter(|line| line.starts_with('#'));
            assert!(headings.any(|line| anchor(line) == heading), "{from}: no {target}");
        }
    }
    assert!(links > 100, "{links} links");
}
