//! The table fits the sources as they are: whoever changes a line that a mistake needs learns it
//! here, and not only when somebody next looks whether the fuzzer finds it.

use dcd_mistakes::{Table, apply, workspace};

fn table() -> Table {
    let folder = workspace().join("crates/dcd-mistakes/mistakes");
    Table::read(&folder).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

#[test]
fn every_mistake_fits_the_sources_once() {
    let table = table();
    assert!(table.entries.len() > 200, "{} entries", table.entries.len());
    let problems = match apply(&workspace(), &table) {
        Ok(edited) => {
            assert!(edited.values().all(|text| text.contains("::mistakes::is_on(")));
            return;
        }
        Err(problems) => problems,
    };
    let said: Vec<String> = problems.iter().map(|problem| problem.to_string()).collect();
    panic!(
        "the sources have changed where a mistake is made on purpose:\n\n{}\n\nWrite each entry in \
         crates/dcd-mistakes/mistakes/ anew for the lines as they are now, in the same commit; \
         crates/dcd-mistakes/src/lib.rs says how.\n",
        said.join("\n\n")
    );
}

#[test]
fn every_mistake_stands_in_the_document() {
    let document =
        std::fs::read_to_string(workspace().join("docs/mistakes.md")).expect("it is there");
    for entry in table().entries {
        let row = match entry.breaks.as_str() {
            "" => format!("| `{}` | {} | ", entry.name, entry.what),
            rule => format!("| `{}` | {rule} | {} | ", entry.name, entry.what),
        };
        assert!(document.contains(&row), "docs/mistakes.md wants this row: {row}");
    }
}

#[test]
fn the_sources_know_nothing_of_mistakes() {
    let root = workspace();
    let mut folders: Vec<_> =
        ["crates/dcd-engine/src", "crates/dcd-daemon/src", "crates/dcd-store/src"]
            .map(|it| root.join(it))
            .into();
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(folder).expect("it is there") {
            let path = item.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("sources are text");
            for word in ["MISTAKE", "mistakes::", "seeded(", "seeded-bugs"] {
                assert!(!text.contains(word), "{word} in {}", path.display());
            }
            files += 1;
        }
    }
    assert!(files > 100, "{files} files");
}
