//! The kinds of faults, and what the contract demands of each.
//!
//! A kind is injected by a step of the script ([`crate::script::Op::Fault`]), as an I/O error that
//! waits for the next I/O it fits ([`Trap`]) or at once. With the fault the checker learns what may
//! now be seen ([`Allowed`]): nothing else may. The table in `docs/fuzzing.md` says the same in
//! words; a test compares the two.

use std::collections::BTreeSet;
use std::str::FromStr;

use dcd_engine::Device;

/// How much of the contract holds for what reads show.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Level {
    /// All of it: C1, C2, C3, C4, C9, C14.
    #[default]
    Exact,
    /// A disk has broken its promises (a flush that was none, rot of the last record): what a block
    /// shows was once written there, or reading it fails.
    Ever,
    /// Somebody has forged valid metadata: no panic, and it ends.
    Anything,
}

/// What may be seen although it is not what was written last.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// How much holds.
    pub level: Level,
    /// Reads may fail.
    pub reads_fail: bool,
    /// Writes that go past the log may fail.
    pub bypasses_fail: bool,
    /// Requests may find no room: nothing can be destaged.
    pub no_space: bool,
    /// A start may be refused.
    pub refusal: bool,
    /// Blocks of the data-disk that were damaged there: the contract does not cover them.
    pub(crate) tainted: BTreeSet<u64>,
}

impl Allowed {
    /// Whether this block may show anything.
    pub fn is_tainted(&self, block: u64) -> bool {
        !self.tainted.is_empty() && self.tainted.contains(&block)
    }

    /// These blocks may show anything from now on.
    pub fn taint(&mut self, start: u64, blocks: u64) {
        self.tainted.extend(start..start + blocks);
    }

    /// Bytes of the data-disk that may be anything from now on.
    pub fn taint_bytes(&mut self, offset: u64, length: u64) {
        let first = offset / 512;
        self.taint(first, (offset + length).div_ceil(512) - first);
    }

    /// Whether anything is.
    pub fn has_tainted(&self) -> bool {
        !self.tainted.is_empty()
    }
}

/// What the contract demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demand {
    /// Nobody notices anything but waiting.
    Survive,
    /// Errors or a refused start are right; wrong data is not, and after a restart on healthy disks
    /// everything is as C9 says.
    LoudOrSurvive,
    /// A promise of the disk was broken. Never garbage and never what was not written there; a
    /// refused start, an error, or, where the contract says so openly, an older version.
    NeverForeign,
    /// Damage of the data-disk that dcd cannot see: those blocks are not judged, all others are.
    OthersRight,
    /// No panic, no endless loop.
    NoPanic,
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $number:literal, $demand:ident;)+) => {
        /// A kind of fault. The numbers are those of the list in `docs/fuzzing.md`.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum FaultKind { $($(#[doc = $doc])+ $variant,)+ }

        impl FaultKind {
            /// All.
            pub const ALL: &[FaultKind] = &[$(FaultKind::$variant,)+];

            /// As the command line and the documents name it.
            pub fn name(self) -> &'static str {
                match self { $(FaultKind::$variant => $name,)+ }
            }

            /// Its number in the list of kinds.
            pub fn number(self) -> u32 {
                match self { $(FaultKind::$variant => $number,)+ }
            }

            /// What the contract demands.
            pub fn demand(self) -> Demand {
                match self { $(FaultKind::$variant => Demand::$demand,)+ }
            }
        }
    };
}

kinds! {
    /// In power cuts writes are only dropped or kept: a base line for the pairs.
    DropWrites = "drop-writes", 1, Survive;
    /// In power cuts every write under way is torn.
    TearWrites = "tear-writes", 2, Survive;
    /// A torn physical sector is garbage as a whole.
    Shear = "shear", 3, Survive;
    /// I/Os end newest first.
    Reorder = "reorder", 4, Survive;
    /// A write is reported as done and never was.
    LostWrite = "lost-write", 5, NeverForeign;
    /// A write lands elsewhere.
    MisdirectedWrite = "misdirected-write", 6, NeverForeign;
    /// A read brings what is elsewhere, once.
    MisdirectedRead = "misdirected-read", 7, NeverForeign;
    /// A bit flips on the medium.
    BitRot = "bit-rot", 8, NeverForeign;
    /// A sector becomes garbage.
    SectorRot = "sector-rot", 9, NeverForeign;
    /// A sector becomes zero.
    ZeroedSector = "zeroed-sector", 10, NeverForeign;
    /// A page is again what it was at an earlier start.
    OldVersion = "old-version", 11, NeverForeign;
    /// A read fails once.
    ReadErrorOnce = "read-error", 12, LoudOrSurvive;
    /// A sector cannot be read until it is written.
    BadSector = "bad-sector", 13, LoudOrSurvive;
    /// A write fails, wholly or in part done.
    WriteError = "write-error", 14, LoudOrSurvive;
    /// A flush fails; what it was for stays volatile.
    FlushErrorKept = "flush-error-kept", 15, LoudOrSurvive;
    /// A flush fails, and what it was for never becomes durable.
    FlushErrorDropped = "flush-error-dropped", 16, LoudOrSurvive;
    /// The first part of a write lands, then it fails.
    ShortWrite = "short-write", 17, LoudOrSurvive;
    /// A write finds no space on a sparse disk.
    NoSpace = "no-space", 19, LoudOrSurvive;
    /// An I/O takes a thousand times as long.
    Slow = "slow", 20, Survive;
    /// An I/O does not end before it is given up, and ends later.
    Hang = "hang", 21, LoudOrSurvive;
    /// The cache-disk is gone until a restart.
    CacheVanishes = "cache-vanishes", 22, LoudOrSurvive;
    /// The data-disk is gone for a while.
    DataVanishes = "data-vanishes", 23, LoudOrSurvive;
    /// After a crash the cache-disk is as it was at an earlier start.
    OlderCache = "older-cache", 24, NeverForeign;
    /// Somebody writes to the data-disk while dcd is down.
    ChangedOutside = "changed-outside", 25, OthersRight;
    /// A disk is shorter at the next start: refused, and then as before.
    Resized = "resized", 26, LoudOrSurvive;
    /// At the next start a disk of another pair is there: refused, and then as before.
    Swapped = "swapped", 27, LoudOrSurvive;
    /// The process dies and its segment memory with it.
    MemoryLost = "memory-lost", 30, Survive;
    /// An hour passes unnoticed: the process, or the machine, was stopped.
    ClockJump = "clock-jump", 31, Survive;
    /// To zero a range of the data-disk takes as long as it is: all of it longer than an answer may
    /// take.
    SlowZeroes = "slow-zeroes", 33, Survive;
    /// The data-disk takes no writes for a while; it can be read.
    ReadOnly = "read-only", 34, LoudOrSurvive;
    /// Metadata with a valid checksum says what cannot be.
    ForgedMetadata = "forged-metadata", 32, NoPanic;
}

impl FaultKind {
    /// Kinds that break what a disk promises: verified reads are needed to notice them.
    pub fn damages_bytes(self) -> bool {
        matches!(self.demand(), Demand::NeverForeign | Demand::OthersRight | Demand::NoPanic)
    }
}

/// A name that is no kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownKind(pub String);

impl std::fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no fault kind '{}'", self.0)
    }
}

impl std::error::Error for UnknownKind {}

impl FromStr for FaultKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<FaultKind, UnknownKind> {
        let found = FaultKind::ALL.iter().find(|kind| kind.name() == text);
        found.copied().ok_or_else(|| UnknownKind(text.into()))
    }
}

/// What an I/O does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IoKind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// Zeroes, perhaps by freeing space (discard).
    Discard,
}

/// A fault that waits for the next I/O it fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trap {
    /// What happens.
    pub kind: FaultKind,
    /// On which disk.
    pub device: Device,
}

impl Trap {
    /// Whether it fits this I/O.
    pub fn fits(&self, device: Device, io: IoKind) -> bool {
        use FaultKind::*;
        let fits_io = match self.kind {
            MisdirectedRead | ReadErrorOnce => io == IoKind::Read,
            LostWrite | MisdirectedWrite | ShortWrite => io == IoKind::Write,
            WriteError | NoSpace => matches!(io, IoKind::Write | IoKind::Discard),
            FlushErrorKept | FlushErrorDropped => io == IoKind::Flush,
            Slow | Hang => true,
            _ => false,
        };
        fits_io && self.device == device
    }
}

/// Fails the n-th I/O of a kind: one rule of the sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SweepRule {
    /// Of this disk.
    pub device: Device,
    /// Of this kind.
    pub io: IoKind,
    /// How many pass before.
    pub passes: u64,
    /// It, or it and all after it.
    pub is_sticky: bool,
}

/// Faults that wait for their I/O.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// Those that strike once.
    pub traps: Vec<Trap>,
    /// A rule that counts I/Os.
    pub sweep: Option<SweepRule>,
    /// Whether the rule has fired.
    pub has_swept: bool,
    /// How many have struck.
    pub struck: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_stands_in_the_document() {
        let document = include_str!("../../../docs/fuzzing.md");
        for kind in FaultKind::ALL {
            let row = format!("| {} | `{}` |", kind.number(), kind.name());
            let row = document.lines().find(|line| line.starts_with(&row));
            let row = row.unwrap_or_else(|| panic!("no row for {}", kind.name()));
            let demand = match kind.demand() {
                Demand::Survive => "survives",
                Demand::LoudOrSurvive => "loud",
                Demand::NeverForeign => "never foreign",
                Demand::OthersRight => "not covered",
                Demand::NoPanic => "no panic",
            };
            assert!(row.contains(demand), "{row}");
        }
    }

    #[test]
    fn names_come_back() {
        for kind in FaultKind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
        }
        assert!("tear".parse::<FaultKind>().is_err());
    }
}
