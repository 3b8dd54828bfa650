//! A run on a volume as a list of events that can be left out one by one.
//!
//! A run draws what it does from one generator as it goes. The state of that generator at the
//! beginning of an event decides all of the event, so events with these states are the run once
//! more, and with some of them left out the others do the same as before as far as they can. That
//! is what lets [`super::minimise`] shrink a failing run.

use super::VolumeKind;
use super::options::VolumeOptions;
use crate::random::Random;

/// A part of a run, with the state of the generator where it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A step of the load, of members, or a crash.
    Op(u64),
    /// The same; if it crashes, nothing happens to members meanwhile, and no start is interrupted.
    CalmOp(u64),
    /// A crash of a copy, recovered and checked.
    Probe(u64),
    /// The same; nothing happens to members meanwhile, and no start is interrupted.
    CalmProbe(u64),
    /// The end: all members are there again, rebuilt, scrubbed and compared.
    Finish(u64),
}

impl Event {
    /// The same without what can happen between a crash and the start after it; `None`: it is that
    /// already.
    pub fn calmed(self) -> Option<Event> {
        match self {
            Event::Op(state) => Some(Event::CalmOp(state)),
            Event::Probe(state) => Some(Event::CalmProbe(state)),
            Event::CalmOp(_) | Event::CalmProbe(_) | Event::Finish(_) => None,
        }
    }

    /// Whether nothing happens between a crash and the start after it.
    pub fn is_calm(self) -> bool {
        matches!(self, Event::CalmOp(_) | Event::CalmProbe(_))
    }

    /// The state of the generator.
    pub fn state(self) -> u64 {
        match self {
            Event::Op(state)
            | Event::CalmOp(state)
            | Event::Probe(state)
            | Event::CalmProbe(state)
            | Event::Finish(state) => state,
        }
    }
}

/// An option made plain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plain {
    /// Torn sectors are old or new, never garbage.
    Shears,
    /// Disks zero ranges.
    CannotZero,
    /// Writes do not go past the log.
    Bypass,
    /// Everything goes through the log.
    SelectiveCaching,
    /// Moves are not slowed down.
    MigrationRate,
    /// No region for temporary data.
    TemporaryRegion,
    /// Members do not fail.
    MembersFail,
    /// No more members fail than the level bears.
    TooManyFail,
    /// Nothing rots.
    Rots,
    /// No single I/O fails.
    IoErrors,
    /// No hints.
    Hints,
    /// None of the kinds of faults of [`super::options::MoreFaults`].
    MoreFaults,
    /// Of them, writes are not lost.
    LosesWrites,
    /// Disks are not as they were at an earlier start.
    OlderDisks,
    /// No member fails while a start is under way.
    FailsAtStart,
    /// No more rebuilds and scrubs than else.
    BusyMembers,
    /// No member leaves to come back.
    MembersReturn,
    /// Crashes of copies between steps only.
    Probes,
    /// Requests are as large as else.
    Large,
    /// The cache-disk does not fail.
    CacheDiskFails,
    /// No single I/O of it fails.
    CacheDiskStumbles,
    /// It does not rot.
    CacheDiskRots,
    /// There is memory for all checksums.
    SumPages,
    /// The volume stays as large as it is.
    GrowsVolume,
    /// Nothing happens again and again.
    Focus,
    /// The cache-disk is one disk.
    Legs,
}

impl Plain {
    /// All, those first that say most.
    pub const ALL: [Plain; 26] = [
        Plain::MoreFaults,
        Plain::LosesWrites,
        Plain::OlderDisks,
        Plain::FailsAtStart,
        Plain::BusyMembers,
        Plain::MembersReturn,
        Plain::Probes,
        Plain::Large,
        Plain::CacheDiskFails,
        Plain::CacheDiskStumbles,
        Plain::CacheDiskRots,
        Plain::SumPages,
        Plain::GrowsVolume,
        Plain::Focus,
        Plain::Legs,
        Plain::Hints,
        Plain::MembersFail,
        Plain::TooManyFail,
        Plain::Rots,
        Plain::IoErrors,
        Plain::Shears,
        Plain::CannotZero,
        Plain::Bypass,
        Plain::SelectiveCaching,
        Plain::MigrationRate,
        Plain::TemporaryRegion,
    ];

    fn apply(self, options: &mut VolumeOptions) {
        match self {
            Plain::Shears => options.cache.shears = false,
            Plain::CannotZero => options.cache.cannot_zero = false,
            Plain::Bypass => options.cache.bypass_bytes = 1 << 30,
            Plain::SelectiveCaching => options.config.selective_caching = false,
            Plain::MigrationRate => options.config.migrate_bytes_per_second_max = 0,
            Plain::TemporaryRegion => options.config.temporary_bytes = 0,
            Plain::MembersFail => options.members_fail = false,
            Plain::TooManyFail => options.too_many_fail = false,
            Plain::Rots => options.rots = false,
            Plain::IoErrors => options.io_errors = false,
            Plain::Hints => options.hints = false,
            Plain::MoreFaults => options.more = Default::default(),
            Plain::LosesWrites => options.more.loses_writes = false,
            Plain::OlderDisks => options.more.older_disks = false,
            Plain::FailsAtStart => options.more.fails_at_start = false,
            Plain::BusyMembers => options.more.busy_members = false,
            Plain::MembersReturn => options.more.members_return = false,
            Plain::Probes => options.more.probes = false,
            Plain::Large => options.more.large = false,
            Plain::CacheDiskFails => options.more.cache_disk_fails = false,
            Plain::CacheDiskStumbles => options.more.cache_disk_stumbles = false,
            Plain::CacheDiskRots => options.more.cache_disk_rots = false,
            Plain::SumPages => options.more.sum_pages = None,
            Plain::GrowsVolume => options.more.grows_volume = false,
            Plain::Focus => options.more.focus = None,
            Plain::Legs => options.cache.legs = None,
        }
    }
}

/// A run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeScript {
    /// What kind of volume.
    pub kind: VolumeKind,
    /// The seed that options are drawn from.
    pub seed: u64,
    /// Options that are not as drawn.
    pub plain: Vec<Plain>,
    /// State of the generator for the first start.
    pub start: u64,
    /// What happens then.
    pub events: Vec<Event>,
}

impl VolumeScript {
    /// Its options.
    pub fn options(&self) -> VolumeOptions {
        let mut options = VolumeOptions::of_seed(&mut Random::new(self.seed), self.kind, self.seed);
        for plain in &self.plain {
            plain.apply(&mut options);
        }
        options
    }

    /// As a test that replays it. `told`: what each event does.
    pub fn to_test(&self, why: &str, told: &[Vec<String>]) -> String {
        let mut text = String::new();
        for line in why.lines() {
            text += &format!("// {line}\n");
        }
        let name = format!("{}_seed_{}", self.kind.name(), self.seed);
        text += &format!("#[test]\nfn {name}() {{\n    replay(VolumeScript {{\n");
        text +=
            &format!("        kind: VolumeKind::{:?},\n        seed: {},\n", self.kind, self.seed);
        let plain: Vec<String> =
            self.plain.iter().map(|plain| format!("Plain::{plain:?}")).collect();
        text += &format!(
            "        plain: vec![{}],\n        start: {:#x},\n",
            plain.join(", "),
            self.start
        );
        text += "        events: vec![\n";
        for (index, event) in self.events.iter().enumerate() {
            let name = match event {
                Event::Op(_) => "Op",
                Event::CalmOp(_) => "CalmOp",
                Event::Probe(_) => "Probe",
                Event::CalmProbe(_) => "CalmProbe",
                Event::Finish(_) => "Finish",
            };
            for line in told.get(index).into_iter().flatten() {
                text += &format!("            // {line}\n");
            }
            text += &format!("            {name}({:#x}),\n", event.state());
        }
        text += "        ],\n    });\n}\n";
        text
    }
}
