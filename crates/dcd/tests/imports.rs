//! The map of imports: which folders and files of a crate's root use which. Whoever looks for the
//! way of a request finds it if no two of them need each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Circles of files at the root of a crate are as those within a folder: so many files at most.
const FILES_MAX: usize = 6;

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.path() {
            path if path.is_dir() => sources(&path, found),
            path if path.extension().is_some_and(|it| it == "rs") => found.push(path),
            _ => {}
        }
    }
}

/// What a file says without comments, and without its tests.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned();
    text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// The same with paths that go up to the root as those that begin there; `within_sources`: the
/// file.
fn from_root(code: &str, within_sources: &Path) -> String {
    let names = within_sources.components().count();
    let depth = names - usize::from(within_sources.ends_with("mod.rs"));
    let (up, root) = ("super::".repeat(depth), "crate::");
    let further = format!("{up}super::");
    assert!(!code.contains(&further), "{}: above the root", within_sources.display());
    code.replace(&up, root)
}

/// First names of paths that begin at the root: `crate::a::b`, and of what `crate::{a, b::c}`
/// takes.
fn first_names(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            None => drop(names.insert(word(rest))),
            Some(list) => {
                let (mut depth, mut is_first) = (0, true);
                for (at, c) in list.char_indices() {
                    if is_first && depth == 0 && !c.is_whitespace() {
                        names.insert(word(&list[at..]));
                        is_first = false;
                    }
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => is_first = true,
                        _ => {}
                    }
                }
            }
        }
    }
    names
}

/// Folders and files of the root, and what each uses.
fn map(crate_sources: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    sources(crate_sources, &mut files);
    let room = |file: &Path| {
        let first = file.strip_prefix(crate_sources).unwrap().components().next().unwrap();
        first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned()
    };
    let rooms: BTreeSet<String> = files.iter().map(|file| room(file)).collect();
    let mut map: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.ends_with("lib.rs") && !file.ends_with("main.rs"))
    {
        let own = room(file);
        let within = file.strip_prefix(crate_sources).unwrap();
        let used = first_names(&from_root(&code(file), within)).into_iter();
        let used = used.filter(|name| rooms.contains(name) && *name != own);
        map.entry(own.clone()).or_default().extend(used);
    }
    map
}

fn reached(map: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let (mut found, mut left) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(room) = left.pop() {
        for next in map.get(&room).into_iter().flatten() {
            if found.insert(next.clone()) {
                left.push(next.clone());
            }
        }
    }
    found
}

#[test]
fn no_two_folders_need_each_other() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in fs::read_dir(crates).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_str().unwrap().to_owned();
        let sources = entry.path().join("src");
        let map = map(&sources);
        let mut circles = BTreeSet::new();
        for room in map.keys() {
            let others = reached(&map, room);
            if others.contains(room) {
                let back = others.into_iter().filter(|other| reached(&map, other).contains(room));
                circles.insert(back.collect::<Vec<String>>());
            }
        }
        let is_folder = |room: &String| sources.join(room).is_dir();
        circles.retain(|circle| circle.iter().any(is_folder) || circle.len() > FILES_MAX);
        assert!(circles.is_empty(), "{name}: {circles:?}");
    }
}

#[test]
fn lists_of_names_are_read() {
    let names = |code: &str| first_names(code).into_iter().collect::<Vec<String>>();
    assert_eq!(names("use crate::a::b;\ncrate::c()"), ["a", "c"]);
    assert_eq!(names("use crate::{a::{x, y}, b, c_d::e};"), ["a", "b", "c_d"]);
    let up =
        |file: &str| names(&from_root("use super::super::a::b;\nuse super::c;", Path::new(file)));
    assert_eq!(up("room/file.rs"), ["a"]);
    assert_eq!(up("room/inner/mod.rs"), ["a"]);
    assert_eq!(up("room/inner/file.rs"), Vec::<String>::new());
}
