//! What only the copy has: the switch, and the list of mistakes in the fuzzer.

use std::fmt::Write;

use crate::table::{Change, Entry, Table};

/// The crate with the switch, on which all others with mistakes depend, ...
const SWITCH: &str = "crates/dcd-block/src/mistakes.rs";
/// ... and its root, which names it ...
pub(crate) const SWITCH_LIB: &str = "crates/dcd-block/src/lib.rs";
/// ... as does that of the engine, for those who know only that.
pub(crate) const ENGINE_LIB: &str = "crates/dcd-engine/src/lib.rs";
/// In the sources an empty list.
const LIST: &str = "crates/dcd-fuzz/src/mistakes/in_this_build.rs";

/// What stands for `MISTAKE` in a change.
pub(crate) fn condition(number: usize, entry: &Entry, change: &Change) -> String {
    let is_in = |name: &str| change.file.starts_with(&format!("crates/{name}/"));
    let switch = match () {
        () if is_in("dcd-engine") => "crate",
        () if is_in("dcd-store") => "dcd_block",
        () => "dcd_engine",
    };
    format!("{switch}::mistakes::is_on({number} /* {} */)", entry.name)
}

/// The files that come, or take the place of those of the sources: paths and texts.
pub(crate) fn files(
    table: &Table,
    switch_lib: &str,
    engine_lib: &str,
) -> [(&'static str, String); 4] {
    let switch_lib = format!("{switch_lib}\npub mod mistakes;\n");
    let engine_lib = format!("{engine_lib}\npub use dcd_block::mistakes;\n");
    [(SWITCH, switch()), (SWITCH_LIB, switch_lib), (ENGINE_LIB, engine_lib), (LIST, list(table))]
}

fn switch() -> String {
    r#"//! Which mistake made on purpose is on, in this thread.

use std::cell::Cell;

thread_local! {
    static ON: Cell<Option<u16>> = const { Cell::new(None) };
}

/// Turns one mistake on in this thread, and any other off.
pub fn turn_on(number: Option<u16>) {
    ON.set(number);
}

/// Whether this mistake is on.
pub fn is_on(number: u16) -> bool {
    ON.get() == Some(number)
}
"#
    .into()
}

fn list(table: &Table) -> String {
    let mut text = String::from(
        r#"//! The mistakes of this build.

use super::{Mistake, Runs};

/// All.
pub fn all() -> &'static [Mistake] {
    ALL
}

/// Turns one mistake on in this thread, and any other off.
pub fn turn_on(mistake: Option<&Mistake>) {
    dcd_engine::mistakes::turn_on(mistake.map(|mistake| mistake.number));
}

static ALL: &[Mistake] = &[
"#,
    );
    for (number, entry) in table.entries.iter().enumerate() {
        let Entry { name, what, breaks, first, untried, .. } = entry;
        let runs: Vec<&str> = entry.runs.iter().map(|runs| variant(runs)).collect();
        let (runs, is_tried) = (runs.join(", "), untried.is_none());
        let written = write!(
            text,
            "    Mistake {{\n        number: {number},\n        name: {name:?},\n        \
             what: {what:?},\n        rule: {breaks:?},\n        runs: &[{runs}],\n        \
             first_run: {first:?},\n        is_tried: {is_tried},\n    }},\n"
        );
        written.expect("a string takes everything");
    }
    text + "];\n"
}

fn variant(runs: &str) -> &'static str {
    match runs {
        "pairs" => "Runs::Pairs",
        "volumes" => "Runs::Volumes",
        "tiered" => "Runs::TieredVolumes",
        "focused" => "Runs::FocusedVolumes",
        "classes" => "Runs::VolumesOfClasses",
        "replicas" => "Runs::VolumesWithReplicas",
        "stumbling" => "Runs::StumblingVolumes",
        "unlogged" => "Runs::UnloggedVolumes",
        "rotting" => "Runs::RottingVolumes",
        "few-sums" => "Runs::VolumesOfFewSums",
        "modes" => "Runs::SwitchedModes",
        "legs" => "Runs::Legs",
        "witness" => "Runs::Witness",
        "twin" => "Runs::Twin",
        "replacing" => "Runs::Replacing",
        "sparing" => "Runs::Sparing",
        "returning" => "Runs::Returning",
        "growing" => "Runs::Growing",
        "resizing" => "Runs::Resizing",
        "resizing-read-area" => "Runs::ResizingReadArea",
        "paged" => "Runs::Paged",
        "ordered" => "Runs::Ordered",
        "nvram" => "Runs::Nvram",
        "store" => "Runs::Store",
        _ => "Runs::Driver",
    }
}
