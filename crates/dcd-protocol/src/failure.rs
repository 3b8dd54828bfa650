//! Why a daemon says no: a code for programs beside the words for people.

use std::fmt;

use dcd_block::attributes::Attributes;
use dcd_block::errors::{
    LegError, NvramChangeError, RequestError, ResizeError, SequenceError, VolumeError,
};
use dcd_block::units::{Lba, MemberIndex};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// What kind of a refusal it is. Words once given are never used for something else.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $name,)*
            /// Of another version of dcd: the sentence beside it says what it means.
            Unknown(String),
        }

        impl Code {
            /// All that this version knows.
            pub const KNOWN: &[Code] = &[$(Code::$name,)*];

            /// Its word on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Code::$name => $word,)*
                    Code::Unknown(word) => word,
                }
            }
        }

        impl From<&str> for Code {
            fn from(word: &str) -> Code {
                match word {
                    $($word => Code::$name,)*
                    word => Code::Unknown(word.into()),
                }
            }
        }
    };
}

codes! {
    /// Nothing that can be asked.
    BadRequest = "bad-request",
    /// A line that is longer than [`LINE_BYTES_MAX`](crate::LINE_BYTES_MAX).
    TooLong = "too-long",
    /// More in one request, or of all clients together, than there is memory for.
    TooMuch = "too-much",
    /// What belongs to a request did not come in time.
    TooLate = "too-late",
    /// All places on the socket are taken.
    TooManyClients = "too-many-clients",
    /// Neither root nor the daemon's own user.
    NotAllowed = "not-allowed",
    /// The cache is being opened or closed, or there is none.
    NotRunning = "not-running",
    /// The daemon waits for its disks.
    Waiting = "waiting",
    /// Blocks that are not on the disk.
    OutOfRange = "out-of-range",
    /// Nothing of that kind is under way.
    NotUnderWay = "not-under-way",
    /// This kind of disk cannot do it.
    NotSupported = "not-supported",
    /// The object store below does not do it.
    Store = "store",
    /// Somebody uses the disk: `"users"` says who.
    InUse = "in-use",
    /// It was cancelled, here or elsewhere.
    Cancelled = "cancelled",
    /// Not all of it is on the data-disk: `"lost"` says what is damaged.
    Lost = "lost",
    /// Nothing more gets to the data-disk: `"stuck"` says what is left, and why.
    Stuck = "stuck",
    /// A disk has failed, or what was asked for is damaged.
    Io = "io",
    /// The cache stayed full, or the data-disk is full.
    NoSpace = "no-space",
    /// The daemon is ending.
    ShuttingDown = "shutting-down",
    /// The disk takes no writes.
    ReadOnly = "read-only",
    /// There is no setting of that name.
    NoSuchSetting = "no-such-setting",
    /// A setting cannot be that, or not beside the others.
    BadSetting = "bad-setting",
    /// A setting that only a start changes.
    NeedsRestart = "needs-restart",
    /// [`SequenceError::NoReadArea`].
    NoReadArea = "no-read-area",
    /// [`SequenceError::ReadAreaUnused`].
    ReadAreaUnused = "read-area-unused",
    /// [`SequenceError::NoSuchSequence`].
    NoSuchSequence = "no-such-sequence",
    /// [`SequenceError::BadSequence`].
    BadSequence = "bad-sequence",
    /// [`SequenceError::NoRoom`].
    NoSequenceRoom = "no-sequence-room",
    /// [`SequenceError::Busy`].
    SequenceBusy = "sequence-busy",
    /// [`LegError::NoLegs`].
    NoLegs = "no-legs",
    /// [`LegError::NoSuchLeg`].
    NoSuchLeg = "no-such-leg",
    /// [`LegError::LastLeg`].
    LastLeg = "last-leg",
    /// [`LegError::InUse`].
    LegInUse = "leg-in-use",
    /// A disk that cannot become a leg.
    BadLeg = "bad-leg",
    /// The disk cannot take the place of a member.
    BadMember = "bad-member",
    /// [`LegError::TooMany`].
    TooManyLegs = "too-many-legs",
    /// [`LegError::Newer`].
    NewerLeg = "newer-leg",
    /// [`LegError::Unknown`].
    UnknownLeg = "unknown-leg",
    /// [`LegError::Copy`].
    CopyOfLeg = "copy-of-leg",
    /// [`LegError::TakenOut`].
    LegTakenOut = "leg-taken-out",
    /// [`LegError::NoLabels`].
    NoLabels = "no-labels",
    /// [`NvramChangeError::NoMemory`].
    NoNvram = "no-nvram",
    /// [`NvramChangeError::InUse`].
    NvramInUse = "nvram-in-use",
    /// [`NvramChangeError::UnderWay`].
    NvramUnderWay = "nvram-under-way",
    /// What cannot be the memory in front of the log, or not with these settings.
    BadNvram = "bad-nvram",
    /// [`ResizeError::Same`], [`ResizeError::SameReadArea`].
    SameSize = "same-size",
    /// [`ResizeError::TooSmall`], [`ResizeError::ReadAreaTooSmall`], and
    /// [`ResizeError::ReadAreaTooLarge`]: the log would be.
    TooSmall = "too-small",
    /// [`ResizeError::BehindLog`], [`ResizeError::BehindReadArea`].
    BehindLog = "behind-log",
    /// [`ResizeError::Sequences`].
    SequencesKept = "sequences-kept",
    /// [`ResizeError::TooOften`].
    GrownTooOften = "grown-too-often",
    /// [`ResizeError::BeyondDisk`].
    BeyondDisk = "beyond-disk",
    /// A share of a cache-disk cannot have the room that is asked for.
    NoShareRoom = "no-share-room",
    /// A volume cannot grow so.
    CannotGrow = "cannot-grow",
    /// [`ResizeError::Memory`].
    MemoryMax = "memory-max",
    /// [`ResizeError::Index`].
    IndexMax = "index-max",
    /// [`ResizeError::UnderWay`].
    ResizeUnderWay = "resize-under-way",
    /// [`ResizeError::LegIsFilled`].
    LegIsFilled = "leg-is-filled",
    /// [`ResizeError::NotLogging`].
    NotLogging = "not-logging",
    /// [`VolumeError::NoVolume`].
    NoVolume = "no-volume",
    /// [`VolumeError::BadBlock`]: `"block"`.
    BadBlock = "bad-block",
    /// [`VolumeError::NotAllocated`]: `"block"`.
    NotAllocated = "not-allocated",
    /// [`VolumeError::NoPointer`]: from `"block"` to `"to"`.
    NoPointer = "no-pointer",
    /// [`VolumeError::PointerExists`]: from `"block"` to `"to"`.
    PointerExists = "pointer-exists",
    /// [`VolumeError::Contradiction`]: `"attributes"`.
    Contradiction = "contradiction",
    /// [`VolumeError::NoRoom`].
    NoRoom = "no-room",
    /// [`VolumeError::NoPointerRoom`].
    NoPointerRoom = "no-pointer-room",
    /// [`VolumeError::TooManyPointers`]: `"most"`.
    TooManyPointers = "too-many-pointers",
    /// [`VolumeError::NoMember`]: `"member"`.
    NoMember = "no-member",
    /// [`VolumeError::LastCopy`]: `"member"`.
    LastCopy = "last-copy",
    /// [`VolumeError::UpToDate`]: `"member"`.
    UpToDate = "up-to-date",
    /// [`VolumeError::Busy`].
    VolumeBusy = "volume-busy",
    /// [`VolumeError::Metadata`].
    Metadata = "metadata",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Code, D::Error> {
        Ok(Code::from(&*String::deserialize(from)?))
    }
}

/// What a code is about, as far as it is about something.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Number of a block of 512 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// Of another, that it points to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Number of a member of a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<u8>,
    /// The most there can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Words of attributes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<String>,
}

/// A refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What kind; none: a daemon of before there were codes.
    pub code: Option<Code>,
    /// What the code is about.
    pub about: About,
    /// For people: what is wrong.
    pub error: String,
    /// For people: what to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// One of this kind.
    pub fn new(code: Code, error: impl Into<String>, hint: impl Into<String>) -> Failure {
        let (error, hint) = (error.into(), Some(hint.into()));
        Failure { code: Some(code), about: About::default(), error, hint }
    }

    /// The engine's reason, in its words.
    pub fn of(reason: RequestError, hint: impl Into<String>) -> Failure {
        let (code, about) = code_of(reason);
        Failure { about, ..Failure::new(code, reason.to_string(), hint) }
    }

    /// As it is answered.
    pub fn to_value(&self) -> Value {
        let mut value = json!({ "ok": false, "error": self.error });
        let mut set = |key: &str, part: Value| {
            if !part.is_null() {
                value[key] = part;
            }
        };
        set("code", json!(self.code));
        set("hint", json!(self.hint));
        set("block", json!(self.about.block));
        set("to", json!(self.about.to));
        set("member", json!(self.about.member));
        set("most", json!(self.about.most));
        set("attributes", json!(self.about.attributes));
        value
    }

    /// What an answer says that is no success. Whatever is not what it should be counts as not
    /// said.
    pub fn from_value(value: &Value) -> Failure {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Failure {
            code: value["code"].as_str().map(Code::from),
            about: About {
                block: value["block"].as_u64(),
                to: value["to"].as_u64(),
                member: value["member"].as_u64().and_then(|member| member.try_into().ok()),
                most: value["most"].as_u64().and_then(|most| most.try_into().ok()),
                attributes: text("attributes"),
            },
            error: text("error").unwrap_or_else(|| "the daemon refused".into()),
            hint: text("hint"),
        }
    }

    /// The reason of a volume, if it is one and all of it was said.
    pub fn volume_error(&self) -> Option<VolumeError> {
        let About { block, to, member, most, attributes } = &self.about;
        let block = || block.map(Lba);
        let pointer = || Some((block()?, to.map(Lba)?));
        let member = || member.map(MemberIndex);
        Some(match self.code.as_ref()? {
            Code::NoVolume => VolumeError::NoVolume,
            Code::BadBlock => VolumeError::BadBlock(block()?),
            Code::NotAllocated => VolumeError::NotAllocated(block()?),
            Code::NoPointer => {
                let (from, to) = pointer()?;
                VolumeError::NoPointer { from, to }
            }
            Code::PointerExists => {
                let (from, to) = pointer()?;
                VolumeError::PointerExists { from, to }
            }
            Code::Contradiction => {
                VolumeError::Contradiction(mask_of(attributes.as_deref()?).ok()?)
            }
            Code::NoRoom => VolumeError::NoRoom,
            Code::NoPointerRoom => VolumeError::NoPointerRoom,
            Code::TooManyPointers => VolumeError::TooManyPointers { most: (*most)? },
            Code::NoMember => VolumeError::NoMember(member()?),
            Code::LastCopy => VolumeError::LastCopy(member()?),
            Code::UpToDate => VolumeError::UpToDate(member()?),
            Code::VolumeBusy => VolumeError::Busy,
            Code::Metadata => VolumeError::Metadata,
            _ => return None,
        })
    }
}

/// For people: the sentence, and the code where this version does not know it.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        match &self.code {
            Some(Code::Unknown(word)) => write!(f, " ({word})"),
            _ => Ok(()),
        }
    }
}

/// Words that may contradict each other.
pub(crate) fn mask_of(words: &str) -> Result<Attributes, String> {
    let mut mask = Attributes::NONE;
    for word in words.split([',', ' ']) {
        let one: Attributes = word.parse().map_err(|error| format!("{error}"))?;
        mask = mask.or(one);
    }
    Ok(mask)
}

fn code_of(reason: RequestError) -> (Code, About) {
    let none = About::default();
    match reason {
        RequestError::Io => (Code::Io, none),
        RequestError::NoSpace => (Code::NoSpace, none),
        RequestError::ShuttingDown => (Code::ShuttingDown, none),
        RequestError::ReadOnly => (Code::ReadOnly, none),
        RequestError::Cancelled => (Code::Cancelled, none),
        RequestError::Lost { .. } => (Code::Lost, none),
        RequestError::Stuck { .. } => (Code::Stuck, none),
        RequestError::Sequence(error) => (sequence_code(error), none),
        RequestError::Volume(error) => volume_code(error),
        RequestError::Leg(error) => (leg_code(error), none),
        RequestError::NvramChange(error) => (nvram_code(error), none),
        RequestError::Resize(error) => (resize_code(error), none),
    }
}

fn resize_code(error: ResizeError) -> Code {
    match error {
        ResizeError::Same { .. } => Code::SameSize,
        ResizeError::TooSmall { .. } => Code::TooSmall,
        ResizeError::BehindLog { .. } => Code::BehindLog,
        ResizeError::TooOften => Code::GrownTooOften,
        ResizeError::BeyondDisk { .. } => Code::BeyondDisk,
        ResizeError::Memory { .. } => Code::MemoryMax,
        ResizeError::Index { .. } => Code::IndexMax,
        ResizeError::UnderWay => Code::ResizeUnderWay,
        ResizeError::LegIsFilled => Code::LegIsFilled,
        ResizeError::NotLogging => Code::NotLogging,
        ResizeError::SameReadArea { .. } => Code::SameSize,
        ResizeError::ReadAreaTooSmall { .. } | ResizeError::ReadAreaTooLarge { .. } => {
            Code::TooSmall
        }
        ResizeError::BehindReadArea { .. } => Code::BehindLog,
        ResizeError::Sequences { .. } => Code::SequencesKept,
        ResizeError::ReadAreaBesideBudget => Code::IndexMax,
    }
}

/// What a person can do about it.
pub fn resize_hint(error: ResizeError) -> &'static str {
    match error {
        ResizeError::Same { .. } => {
            "there is nothing to do; to grow it, make the cache-disk larger first: each of its legs"
        }
        ResizeError::TooSmall { .. } => "give a larger size",
        ResizeError::BehindLog { .. } => {
            "give a larger size; the read area can be made smaller, with --read-area; or drain and detach, and create a smaller cache"
        }
        ResizeError::TooOften => {
            "shrink it to what it had before, and grow it by more at once; or drain and detach, and create a larger cache"
        }
        ResizeError::BeyondDisk { .. } => {
            "make the cache-disk larger first, each of its legs; without a SIZE all of it is used"
        }
        ResizeError::Memory { .. } => {
            "start it again with a larger memory-max, or with fewer connections"
        }
        ResizeError::Index { .. } => "start it again with a larger index-max",
        ResizeError::UnderWay => "wait until that has ended: `dcd status` shows how far it is",
        ResizeError::LegIsFilled => "wait until it is filled: `dcd cache-disk status` shows it",
        ResizeError::SameReadArea { .. } => {
            "there is nothing to do; a change must be one of a hundredth at least, and of 1,000 KiB"
        }
        ResizeError::ReadAreaTooSmall { .. } => {
            "give a larger size, with its unit: 20G; or 0 to do without one"
        }
        ResizeError::ReadAreaTooLarge { .. } => "give a smaller size",
        ResizeError::BehindReadArea { .. } => {
            "give the log its size again first: `dcd cache-disk resize` with these bytes, which the disk must have"
        }
        ResizeError::Sequences { .. } => {
            "remove or unpin some first (`dcd sequence list`), or start it again with a larger sequence-share"
        }
        ResizeError::ReadAreaBesideBudget => "start it without index-max for one",
        ResizeError::NotLogging => {
            "`dcd set mode=write-back` first, or where a disk has failed, which `dcd status` tells, a restart"
        }
    }
}

fn leg_code(error: LegError) -> Code {
    match error {
        LegError::NoLegs => Code::NoLegs,
        LegError::NoSuchLeg => Code::NoSuchLeg,
        LegError::LastLeg => Code::LastLeg,
        LegError::InUse => Code::LegInUse,
        LegError::TooMany => Code::TooManyLegs,
        LegError::Newer => Code::NewerLeg,
        LegError::Unknown => Code::UnknownLeg,
        LegError::Copy => Code::CopyOfLeg,
        LegError::TakenOut => Code::LegTakenOut,
        LegError::WitnessInUse => Code::LegInUse,
        LegError::WitnessNeeded => Code::LastLeg,
        LegError::NoLabels => Code::NoLabels,
    }
}

/// What a person can do about it.
pub fn leg_hint(error: LegError) -> &'static str {
    match error {
        LegError::NoLegs => "`dcd serve --new-leg DISK` makes a blank disk the second leg",
        LegError::NoSuchLeg => "`dcd cache-disk status` lists them",
        LegError::LastLeg => "fill another first: `dcd cache-disk status` lists them",
        LegError::InUse => "there is nothing to do",
        LegError::TooMany => {
            "`dcd cache-disk take-out` one first; where none is left, stop dcd and start it again"
        }
        LegError::Newer | LegError::Unknown => {
            "`dcd inspect leg` shows its label. If nothing on it is needed, overwrite its first MiB with zeroes"
        }
        LegError::Copy => "give a blank disk: a copy made with dd is no second leg",
        LegError::TakenOut => "`dcd cache-disk add DISK` brings it back",
        LegError::NoLabels => "the cache-disk has failed: see `dcd status`",
        LegError::WitnessInUse => {
            "`dcd cache-disk remove-witness` first; one that hangs can be replaced when it has answered, or at a start"
        }
        LegError::WitnessNeeded => "try again: `dcd cache-disk status` says how they are",
    }
}

fn nvram_code(error: NvramChangeError) -> Code {
    match error {
        NvramChangeError::NoMemory => Code::NoNvram,
        NvramChangeError::InUse => Code::NvramInUse,
        NvramChangeError::UnderWay => Code::NvramUnderWay,
        NvramChangeError::Hangs | NvramChangeError::Settings => Code::BadNvram,
    }
}

/// What a person can do about it.
pub fn nvram_hint(error: NvramChangeError) -> &'static str {
    match error {
        NvramChangeError::NoMemory => "`dcd nvram add` has one come",
        NvramChangeError::InUse => "`dcd nvram replace` puts another in its place",
        NvramChangeError::UnderWay => "wait until that has ended: `dcd status` shows it",
        NvramChangeError::Hangs => {
            "unplug the old one, or stop dcd and start it again: it serves without a memory until then"
        }
        NvramChangeError::Settings => "`dcd set` lists them, and changes most of them",
    }
}

fn sequence_code(error: SequenceError) -> Code {
    match error {
        SequenceError::NoReadArea => Code::NoReadArea,
        SequenceError::ReadAreaUnused => Code::ReadAreaUnused,
        SequenceError::NoSuchSequence => Code::NoSuchSequence,
        SequenceError::BadSequence => Code::BadSequence,
        SequenceError::NoRoom => Code::NoSequenceRoom,
        SequenceError::Busy => Code::SequenceBusy,
    }
}

fn volume_code(error: VolumeError) -> (Code, About) {
    let none = About::default();
    let block = |block: Lba| About { block: Some(block.0), ..About::default() };
    let pointer = |from: Lba, to: Lba| About { to: Some(to.0), ..block(from) };
    let member = |member: MemberIndex| About { member: Some(member.0), ..About::default() };
    match error {
        VolumeError::NoVolume => (Code::NoVolume, none),
        VolumeError::BadBlock(at) => (Code::BadBlock, block(at)),
        VolumeError::NotAllocated(at) => (Code::NotAllocated, block(at)),
        VolumeError::NoPointer { from, to } => (Code::NoPointer, pointer(from, to)),
        VolumeError::PointerExists { from, to } => (Code::PointerExists, pointer(from, to)),
        VolumeError::Contradiction(attributes) => {
            (Code::Contradiction, About { attributes: Some(attributes.to_string()), ..none })
        }
        VolumeError::NoRoom => (Code::NoRoom, none),
        VolumeError::NoPointerRoom => (Code::NoPointerRoom, none),
        VolumeError::TooManyPointers { most } => {
            (Code::TooManyPointers, About { most: Some(most), ..none })
        }
        VolumeError::NoMember(which) => (Code::NoMember, member(which)),
        VolumeError::LastCopy(which) => (Code::LastCopy, member(which)),
        VolumeError::UpToDate(which) => (Code::UpToDate, member(which)),
        VolumeError::Busy => (Code::VolumeBusy, none),
        VolumeError::Metadata => (Code::Metadata, none),
    }
}

/// What a person can do about a reason of a volume.
pub fn volume_hint(error: VolumeError) -> &'static str {
    match error {
        VolumeError::NoVolume => "`dcd create --volume CONFIG.toml` makes a cache with one",
        VolumeError::BadBlock(_) => "blocks are named by the first 512-byte block of their extent",
        VolumeError::NotAllocated(_) => "allocate it first",
        VolumeError::NoPointer { .. } | VolumeError::PointerExists { .. } => "nothing was changed",
        VolumeError::Contradiction(_) => "say only one of them",
        VolumeError::NoRoom => "free blocks, or collect unreachable ones",
        VolumeError::NoPointerRoom => {
            "delete pointers, or make room for more: `dcd volume set --pointers N`"
        }
        VolumeError::TooManyPointers { .. } => {
            "make a volume with a larger `journal`, or with more `pointers`, and copy what is on this one"
        }
        VolumeError::NoMember(_) => "`dcd status` lists the members",
        VolumeError::LastCopy(_) => "rebuild the others first",
        VolumeError::UpToDate(_) => "there is nothing to rebuild",
        VolumeError::Busy => "wait for it, or cancel it; `dcd status` shows it",
        VolumeError::Metadata => "see `dcd status` and dmesg for errors of the cache-disk",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume_errors() -> Vec<VolumeError> {
        let (from, to) = (Lba(8), Lba(u64::MAX));
        vec![
            VolumeError::NoVolume,
            VolumeError::BadBlock(from),
            VolumeError::NotAllocated(to),
            VolumeError::NoPointer { from, to },
            VolumeError::PointerExists { from, to },
            VolumeError::Contradiction(mask_of("hot,cold").unwrap()),
            VolumeError::NoRoom,
            VolumeError::NoPointerRoom,
            VolumeError::TooManyPointers { most: 7 },
            VolumeError::NoMember(MemberIndex(9)),
            VolumeError::LastCopy(MemberIndex(0)),
            VolumeError::UpToDate(MemberIndex(1)),
            VolumeError::Busy,
            VolumeError::Metadata,
        ]
    }

    #[test]
    fn a_reason_of_a_volume_comes_back_as_it_was_said() {
        for error in volume_errors() {
            let said = Failure::of(error.into(), "a hint").to_value();
            assert_eq!(said["ok"], false);
            assert_eq!(said["error"], error.to_string());
            let heard = Failure::from_value(&said);
            assert_eq!(heard.volume_error(), Some(error), "{said}");
            // No sentence decides what it is.
            let mut reworded = said.clone();
            reworded["error"] = json!("no room in the volume");
            assert_eq!(Failure::from_value(&reworded).volume_error(), Some(error));
        }
    }

    #[test]
    fn each_code_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = Code::KNOWN.iter().map(Code::as_str).collect();
        assert_eq!(words.len(), Code::KNOWN.len());
        for code in Code::KNOWN {
            assert_eq!(Code::from(code.as_str()), *code);
        }
    }

    #[test]
    fn a_code_of_a_newer_daemon_is_shown_and_not_misread() {
        let said = json!({ "ok": false, "code": "leg-away", "error": "leg 1 is away", "block": 8 });
        let heard = Failure::from_value(&said);
        assert_eq!(heard.code, Some(Code::Unknown("leg-away".into())));
        assert_eq!(heard.volume_error(), None);
        assert_eq!(heard.to_string(), "leg 1 is away (leg-away)");
        assert_eq!(heard.to_value(), said);
    }

    #[test]
    fn without_a_code_or_what_belongs_to_it_nothing_is_guessed() {
        let old = json!({ "ok": false, "error": "no room in the volume" });
        assert_eq!(Failure::from_value(&old).volume_error(), None);
        for said in [
            json!({ "ok": false, "code": "not-allocated", "error": "block 8 is not allocated" }),
            json!({ "ok": false, "code": "no-member", "member": 256, "error": "" }),
            json!({ "ok": false, "code": "contradiction", "attributes": "no such word" }),
            json!({ "ok": false, "code": 7, "error": {}, "hint": [] }),
            json!([]),
        ] {
            assert_eq!(Failure::from_value(&said).volume_error(), None, "{said}");
        }
    }
}
