//! Mistakes made on purpose, of the engine, the driver and the disk in a store. Ordinary builds have none.
//!
//! What they are stands in the table of `dcd-mistakes`, which writes a copy of the sources with all
//! of them in it, each behind a switch. In that copy the list of this build is another.

mod in_this_build;

pub use in_this_build::{all, turn_on};

/// A mistake made on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// Its place in the table, from 0.
    pub number: u16,
    /// As the command line and the documents name it.
    pub name: &'static str,
    /// What is wrong.
    pub what: &'static str,
    /// The rule of `docs/durability.md`, or the property, that it breaks; empty for the driver's.
    pub rule: &'static str,
    /// The runs that look for it.
    pub runs: &'static [Runs],
    /// The run with which a search with seed 0 begins: one that is known to find it, where few
    /// others do. Behind it comes the search as ever, so a mistake is found, too, when something
    /// has changed what that run does. Searches with other seeds know nothing.
    pub first_run: Option<u64>,
    /// Whether it is looked for: no run was seen to find some (`docs/mistakes.md` says why).
    pub is_tried: bool,
}

/// What a mistake is looked for in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runs {
    /// A cache-disk and a data-disk.
    Pairs,
    /// Volumes.
    Volumes,
    /// Volumes where extents are moved, and hints matter.
    TieredVolumes,
    /// The same with tiers of devices.
    VolumesOfClasses,
    /// The same with replicas of what is hot and mostly read.
    VolumesWithReplicas,
    /// Volumes where one thing happens again and again: a chain of events which other runs hardly
    /// ever have.
    FocusedVolumes,
    /// Volumes with a cache-disk of which single I/Os fail.
    StumblingVolumes,
    /// Volumes that leave the log unused.
    UnloggedVolumes,
    /// Volumes with a cache-disk that rots, or of which single reads fail.
    RottingVolumes,
    /// Volumes with memory for few checksums.
    VolumesOfFewSums,
    /// Caches whose mode is switched.
    SwitchedModes,
    /// Caches on two legs.
    Legs,
    /// On two legs with a witness.
    Witness,
    /// Volumes with a twin of their tables, which lose their cache-disk.
    Twin,
    /// On volumes with members that other disks take the place of.
    Replacing,
    /// On volumes with spares.
    Sparing,
    /// On volumes that grow.
    Growing,
    /// On volumes whose members leave and come back.
    Returning,
    /// Caches whose log grows and shrinks, by turns on one disk and on two legs.
    Resizing,
    /// The same, and their read area with it.
    ResizingReadArea,
    /// Memory has only a part of the index.
    Paged,
    /// Ordered shipping.
    Ordered,
    /// The memory in front of the log, over a bare disk.
    Nvram,
    /// A data-disk in an object store, in builds that have it.
    Store,
    /// The driver under a simulated kernel: `dcd_daemon::serve::driver_runs`.
    Driver,
}

impl Mistake {
    /// The one with this name, if this build has it.
    pub fn named(name: &str) -> Option<&'static Mistake> {
        all().iter().find(|mistake| mistake.name == name)
    }

    /// The runs of this crate, as it is built, that look for it.
    pub fn engine_runs(&self) -> Option<Runs> {
        let has_store = cfg!(feature = "store");
        let is_here = |runs: &Runs| {
            !matches!(runs, Runs::Driver) && (has_store || !matches!(runs, Runs::Store))
        };
        let mut runs = self.runs.iter().copied().filter(is_here);
        runs.next().filter(|_| self.is_tried)
    }

    /// Whether runs of the driver look for it.
    pub fn is_for_driver_runs(&self) -> bool {
        self.is_tried && self.runs.contains(&Runs::Driver)
    }
}
