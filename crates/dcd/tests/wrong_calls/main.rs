//! Proves that wrong calls of `create`, `serve`, `detach` and `grow` do no harm: each ends with its
//! exit code, one line that says what is wrong and one with the next step; nothing was written to
//! any file, made, allocated, made longer or left behind; and the right call works afterwards.
//!
//! A kind of wrong calls is a file here with a function that gives a table of [`Call`]s, and a line
//! in [`KINDS`].

#[path = "../harness/mod.rs"]
mod harness;

mod aliases;
mod content;
mod labels;
mod pairs;
mod world;

use world::{Call, World};

/// A kind: its name, what it needs of the machine, its calls.
type Kind = (&'static str, &'static [&'static str], fn() -> Vec<Call>);

const KINDS: &[Kind] = &[
    ("links", &[], aliases::links),
    ("devices", &["root", "loop", "partx"], aliases::devices),
    ("mounted", &["root", "loop", "kernel-ext4", "mkfs.ext4"], aliases::mounted),
    ("served", &["root", "loop", "partx"], aliases::served),
    ("content", &[], content::files),
    ("members", &[], content::members),
    ("room", &["root"], content::room),
    ("pairs", &[], pairs::calls),
    ("labels", &[], labels::calls),
];

fn run(kind: &str) {
    let (name, needs, calls) = KINDS.iter().find(|(name, ..)| *name == kind).unwrap();
    for need in *needs {
        if let Some(reason) = harness::missing_rights(need) {
            return harness::skipped(name, &reason);
        }
    }
    for call in calls() {
        World::new().refuses(&call);
    }
}

#[test]
fn links_are_followed() {
    run("links");
}

#[test]
fn loop_devices_partitions_and_overlays_are_followed() {
    run("devices");
}

#[test]
fn a_disk_that_is_mounted_elsewhere_is_not_used() {
    run("mounted");
}

#[test]
fn a_disk_that_is_served_is_not_used_under_another_name() {
    run("served");
}

#[test]
fn nothing_that_is_somebodys_is_overwritten() {
    run("content");
}

#[test]
fn members_are_not_overwritten_either() {
    run("members");
}

#[test]
fn room_that_does_not_suffice_is_given_back() {
    run("room");
}

#[test]
fn disks_that_do_not_belong_together_are_not_used() {
    run("pairs");
}

#[test]
fn a_label_tells_whose_a_disk_is_and_how_old() {
    run("labels");
}

#[test]
fn a_healthy_pair_is_never_refused() {
    pairs::right_calls();
}

/// Together a hundred and more, each of its own.
#[test]
fn there_are_many() {
    let calls = KINDS.iter().flat_map(|(.., calls)| calls());
    let mut names: Vec<String> = calls.map(|call| call.name).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count >= 100, "{count}");
}
