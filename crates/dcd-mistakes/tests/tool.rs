//! The tool says what does not fit, puts lines where they belong, and touches nothing needlessly.

use std::path::{Path, PathBuf};

use dcd_mistakes::{Edited, Table, apply, copy};

const SOURCE: &str = "fn pay(all: &[u32]) -> u32 {\n    let mut sum = 0;\n\n    for one in all {\n        \
                      sum += one;\n    }\n    for one in all {\n        check(one);\n    }\n    sum\n}\n";

struct Workspace(PathBuf);

impl Workspace {
    fn new(name: &str) -> Workspace {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&root);
        let workspace = Workspace(root);
        workspace.write("crates/shop/src/pay.rs", SOURCE);
        workspace.write("crates/dcd-block/src/lib.rs", "//! Blocks.\n");
        workspace.write("crates/dcd-engine/src/lib.rs", "//! The engine.\n");
        workspace.write("crates/dcd-fuzz/src/mistakes/in_this_build.rs", "//! None.\n");
        workspace
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().expect("in a folder")).expect("it can be made");
        std::fs::write(path, text).expect("it can be written");
    }
}

fn table(entries: &str) -> Table {
    let (mut table, mut problems) = (Table::default(), Vec::new());
    let text = format!("under crates/shop/src\nruns pairs\n\n{entries}");
    table.add("shop.txt", &text, &mut problems);
    assert!(problems.is_empty(), "{problems:#?}");
    table
}

fn entry(name: &str, change: &str) -> String {
    format!("== {name}\nwhat It is wrong.\nin pay.rs\n{change}\n")
}

fn edited(workspace: &Workspace, entries: &str) -> Result<Edited, String> {
    let said = |problems: Vec<_>| {
        problems.iter().map(ToString::to_string).collect::<Vec<String>>().join("\n")
    };
    apply(&workspace.0, &table(entries)).map_err(said)
}

#[test]
fn lines_go_and_come_where_the_entry_says() {
    let workspace = Workspace::new("lines");
    let entries = [
        entry("twice", "- sum += one;\n+ sum += if MISTAKE { 2 * one } else { *one };"),
        // Another needs the line that goes, and puts lines before it.
        entry(
            "one-only",
            "  for one in all {\n+     if MISTAKE {\n+         break;\n+     }\n      sum += one;",
        ),
        // An empty line between them does not count.
        entry(
            "one-more",
            "- let mut sum = 0;\n+ let mut sum = u32::from(MISTAKE);\n  for one in all {",
        ),
    ];
    let edited = edited(&workspace, &entries.concat()).expect("they fit");
    let is_on =
        |number: u32, name: &str| format!("dcd_engine::mistakes::is_on({number} /* {name} */)");
    let expected = SOURCE
        .replace(
            "        sum += one;\n",
            &format!(
                "    if {} {{\n        break;\n    }}\nsum += if {} {{ 2 * one }} else {{ *one }};\n",
                is_on(1, "one-only"),
                is_on(0, "twice")
            ),
        )
        .replace("    let mut sum = 0;\n", &format!("let mut sum = u32::from({});\n", is_on(2, "one-more")));
    assert_eq!(edited["crates/shop/src/pay.rs"], expected);
}

#[test]
fn what_does_not_fit_is_named() {
    let workspace = Workspace::new("misfits");
    let came = "+ if MISTAKE { return 0; }\n";
    for (change, words) in [
        (format!("{came}  sum -= one;"), &["shop.txt:6: wrong", "wanted: sum -= one;"][..]),
        (
            format!("  for one in all {{\n{came}      sum -= one;"),
            &["are not in crates/shop/src/pay.rs", "wanted: sum -= one;", "line 5: sum += one;"],
        ),
        (format!("  for one in all {{\n{came}"), &["2 times", "lines 4, 7"]),
    ] {
        let said = edited(&workspace, &entry("wrong", &change)).expect_err("it does not fit");
        for word in words {
            assert!(said.contains(word), "{said}");
        }
    }
    let both = [
        entry("first", "- sum\n+ MISTAKE.into()\n  }"),
        entry("second", "- sum\n+ MISTAKE.into()\n  }"),
    ];
    let said = edited(&workspace, &both.concat()).expect_err("both take it away");
    assert!(said.contains("second: first takes line 10"), "{said}");
    workspace.write("crates/shop/src/till/cash.rs", SOURCE);
    let moved = "== moved\nwhat It is wrong.\nin cash.rs\n- sum\n+ MISTAKE.into()\n  }\n";
    let said = edited(&workspace, moved).expect_err("it is elsewhere");
    assert!(said.contains("was it moved? There is crates/shop/src/till/cash.rs"), "{said}");
}

#[test]
fn entries_that_could_do_nothing_are_refused() {
    for (text, words) in [
        ("== a\nwhat W.\nin pay.rs\n- sum\n+ 0\n", "no line has MISTAKE"),
        ("== a\nwhat W.\nin pay.rs\n- sum\n+ NO_MISTAKE\n", "no line has MISTAKE"),
        ("== a\nwhat W.\nin pay.rs\n+ MISTAKE\n", "nothing says where"),
        ("== a\nin pay.rs\n- sum\n+ MISTAKE\n", "`what` is missing"),
        ("== a\nwhat W.\nruns ponds\nin pay.rs\n- sum\n+ MISTAKE\n", "`runs` wants"),
        ("== a\nwhat W.\n- sum\n+ MISTAKE\n", "before any `in`"),
        ("== a b\nwhat W.\nin pay.rs\n- sum\n+ MISTAKE\n", "small letters"),
        ("== a\nwhy W.\n", "`why` is no word"),
        ("what W.\n", "before all entries"),
        ("- sum\n", "before any `in`"),
    ] {
        let mut problems = Vec::new();
        Table::default().add("shop.txt", &format!("runs pairs\n{text}"), &mut problems);
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|said| said.contains(words)), "{text}{said:?}");
    }
}

#[test]
fn a_copy_is_renewed_where_something_changed() {
    let workspace = Workspace::new("copies");
    let target = workspace.0.join("target/seeded-src");
    let table = table(&entry("nothing", "- sum\n+ if MISTAKE { 0 } else { sum }\n  }"));
    let renew = || {
        let edited = apply(&workspace.0, &table).expect("it fits");
        copy(&workspace.0, &edited, &table, &target).expect("it can be written")
    };
    let first = renew();
    assert_eq!((first.written, first.removed), (first.files, 0));
    let pay = std::fs::read_to_string(target.join("crates/shop/src/pay.rs")).expect("it is there");
    assert!(pay.contains("is_on(0 /* nothing */)"), "{pay}");
    for (name, words) in
        [("block", "pub mod mistakes;"), ("engine", "pub use dcd_block::mistakes;")]
    {
        let lib = target.join(format!("crates/dcd-{name}/src/lib.rs"));
        let lib = std::fs::read_to_string(lib).expect("it is there");
        assert!(lib.contains(words), "{lib}");
    }
    assert_eq!(renew().written, 0);
    workspace.write("crates/shop/src/new.rs", "");
    assert_eq!((renew().written, renew().removed), (1, 0));
    std::fs::remove_file(workspace.0.join("crates/shop/src/new.rs")).expect("it can be removed");
    let last = renew();
    assert_eq!((last.written, last.removed, last.files), (0, 1, first.files));
}

#[test]
fn what_was_built_is_not_copied_and_a_module_called_target_is() {
    let workspace = Workspace::new("targets");
    workspace.write("target/debug/dcd", "");
    workspace.write("fuzz/target/CACHEDIR.TAG", "");
    workspace.write("fuzz/target/debug/pay", "");
    workspace.write(".git/HEAD", "");
    workspace.write("crates/shop/src/target/mod.rs", "");
    let to = workspace.0.join("target/seeded-src");
    let table = table(&entry("nothing", "- sum\n+ if MISTAKE { 0 } else { sum }\n  }"));
    let edited = apply(&workspace.0, &table).expect("it fits");
    copy(&workspace.0, &edited, &table, &to).expect("it can be written");
    assert!(to.join("crates/shop/src/target/mod.rs").exists());
    for path in ["target", "fuzz", ".git"] {
        assert!(!to.join(path).exists(), "{path}");
    }
}
