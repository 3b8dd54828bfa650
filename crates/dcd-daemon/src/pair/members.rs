//! The members of a volume: which of the disks given is which, by their labels, and which are
//! missing.
//!
//! Disks may be given in any order. One that is no member of this volume, or a member twice, is
//! refused: writing parity over somebody else's disk costs it. A disk that takes the place of a
//! lost member must look like nothing, and gets its label when the engine has opened.

use std::fmt;
use std::path::{Path, PathBuf};

use dcd_engine::format::data_label::{DATA_LABEL_BYTES, DATA_LABEL_OFFSETS, DataLabel};
use dcd_engine::format::nvram::{NVRAM_HEAD_BYTES, NVRAM_HEAD_OFFSETS, NvramHead};
use dcd_engine::format::share_directory::{self, DIRECTORY_OFFSETS};
use dcd_engine::format::superblock::SUPERBLOCK_SIZE;
use dcd_engine::units::MemberIndex;
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel, Standing};
use dcd_engine::volume::members::MemberInfo;
use dcd_engine::{Device, FormatError, Superblock, Uuid};

use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::device_spec::DeviceSpec;
use crate::device::foreign_content::{Content, look, recognise};
use crate::device::network::Mark;
use crate::disk::Disk;

/// A disk for a lost member must be empty so far.
pub(crate) const BLANK_BYTES: u64 = 1 << 20;

/// A disk that cannot be a member.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// It cannot be opened or read.
    #[error("member: {source}")]
    Device {
        /// Why not.
        source: DeviceError,
    },
    /// Two disks are one.
    #[error("the same disk is given twice: {}", path.display())]
    Twice {
        /// Which.
        path: PathBuf,
    },
    /// It has no label.
    #[error("{} is no member of this volume: {problem}", path.display())]
    NoLabel {
        /// Which disk.
        path: PathBuf,
        /// What is wrong with it.
        problem: FormatError,
    },
    /// It is a member of another.
    #[error("{} is a member of another volume: expected {expected}, found {found}", path.display())]
    OtherVolume {
        /// Which disk.
        path: PathBuf,
        /// This one.
        expected: Uuid,
        /// The other.
        found: Uuid,
    },
    /// A member that the volume does not have.
    #[error("there is no member {found}: the volume has {members}, numbered from 0")]
    NoSuchMember {
        /// The number.
        found: u8,
        /// How many there are.
        members: usize,
    },
    /// Two disks are, or are to be, the same member.
    #[error(
        "{} and {} are both member {member}: {}", first.display(), second.display(),
        which.words(first, second)
    )]
    SameMember {
        /// Which member.
        member: u8,
        /// One disk.
        first: PathBuf,
        /// The other.
        second: PathBuf,
        /// What their labels say.
        which: WhichCounts,
    },
    /// A disk for a lost member has something on it.
    #[error("{} is to take the place of member {member}, and is not blank: it {content}", path.display())]
    NotBlank {
        /// Which disk.
        path: PathBuf,
        /// Which member.
        member: u8,
        /// What is there.
        content: Content,
    },
}

/// Which of two disks that say that they are one member counts, as far as their labels tell. What
/// decides is the tables of the volume, which nobody reads before there is one disk for each member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhichCounts {
    /// One: the other was to take its place and has not got all.
    NotIncoming {
        /// It is the first.
        is_first: bool,
    },
    /// One is blank, and was named for the place of the other.
    NotBlank {
        /// The one that counts is the first.
        is_first: bool,
    },
    /// A replacement was cut off when the new disk had got all.
    Tables,
    /// Both were to take its place, and have not got all.
    Neither,
    /// They are copies. Numbers of their labels, of which the higher is newer.
    Copies(u64, u64),
}

impl WhichCounts {
    /// By the labels of both, which say that they are one member; a blank one has none.
    pub fn of(first: Option<&MemberLabel>, second: Option<&MemberLabel>) -> WhichCounts {
        let (Some(first), Some(second)) = (first, second) else {
            return WhichCounts::NotBlank { is_first: first.is_some() };
        };
        let is_whole = |label: &MemberLabel| label.standing.is_member();
        match (is_whole(first), is_whole(second)) {
            (true, false) => WhichCounts::NotIncoming { is_first: true },
            (false, true) => WhichCounts::NotIncoming { is_first: false },
            _ if first.disk == second.disk => WhichCounts::Copies(first.epoch, second.epoch),
            (true, true) => WhichCounts::Tables,
            (false, false) => WhichCounts::Neither,
        }
    }

    fn words(self, first: &Path, second: &Path) -> String {
        let in_order = |is_first| match is_first {
            true => (first.display(), second.display()),
            false => (second.display(), first.display()),
        };
        match self {
            WhichCounts::NotIncoming { is_first } => {
                let (counts, other) = in_order(is_first);
                format!("{counts} counts, {other} was to take its place and has not got all")
            }
            WhichCounts::NotBlank { is_first } => {
                let (counts, other) = in_order(is_first);
                format!("{counts} counts as long as it is given, {other} is to take its place")
            }
            WhichCounts::Tables => {
                "a replacement was cut off at its end, and the tables of the volume know which counts"
                    .into()
            }
            WhichCounts::Neither => {
                "neither counts, both were to take its place and have not got all".into()
            }
            WhichCounts::Copies(one, other) if one == other => "one of them is a copy".into(),
            WhichCounts::Copies(one, other) => {
                let (newer, older) = in_order(one > other);
                let (high, low) = (one.max(other), one.min(other));
                format!(
                    "one of them is a copy, and {newer} is newer: its label is number {high}, that of {older} {low}"
                )
            }
        }
    }

    /// The one to be left out, if the labels tell.
    fn to_leave_out<'p>(self, first: &'p Path, second: &'p Path) -> Option<&'p Path> {
        let is_first = match self {
            WhichCounts::NotIncoming { is_first } | WhichCounts::NotBlank { is_first } => is_first,
            WhichCounts::Copies(one, other) if one != other => one > other,
            WhichCounts::Tables | WhichCounts::Neither | WhichCounts::Copies(..) => return None,
        };
        Some(if is_first { second } else { first })
    }
}

impl MemberError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            MemberError::Device { source } => return source.hint(),
            MemberError::Twice { .. } => "give each member once".into(),
            MemberError::NoLabel { path, .. } => format!(
                "check the name; a blank disk takes the place of a lost member with --replace-member NUMBER={}",
                path.display()
            ),
            MemberError::OtherVolume { .. } => {
                "`dcd inspect superblock` tells the UUID of the cache-disk; give the disks that belong to it".into()
            }
            MemberError::NoSuchMember { .. } => "`dcd inspect volume` lists the members".into(),
            MemberError::SameMember { first, second, which, .. } => {
                match (which, which.to_leave_out(first, second)) {
                    (_, Some(other)) => format!("leave {} out", other.display()),
                    (WhichCounts::Neither, _) => {
                        "give the disk that is this member, and neither of them".into()
                    }
                    (WhichCounts::Copies(..), _) => {
                        "leave the copy out: the disk itself is the one that was served last".into()
                    }
                    _ => "give one of them: a start with the one that does not count is refused, and writes nothing"
                        .into(),
                }
            }
            MemberError::NotBlank { path, .. } => format!(
                "if nothing on it is needed: dd if=/dev/zero of={0} bs=1M count=1 conv=notrunc",
                path.display()
            ),
        })
    }
}

/// What there is of a volume.
pub(crate) struct Members {
    /// In order; `None`: missing. Behind them the disks of which the engine finds out what they are:
    /// spares, and those that were one.
    pub(crate) disks: Vec<Option<Disk>>,
    /// Their labels; none on blank ones.
    pub(crate) labels: Vec<Option<MemberLabel>>,
    /// How many members there are.
    count: usize,
    /// What is wrong with disks that are not there, or as good as not.
    pub(crate) away: Vec<DeviceError>,
}

impl Members {
    /// Sorts disks that were opened by the labels on them.
    pub(crate) fn of(disks: Vec<Disk>, uuid: Uuid, count: usize) -> Result<Members, MemberError> {
        let none = || std::iter::repeat_with(|| None).take(count);
        let (disks_there, labels) = (none().collect(), vec![None; count]);
        let mut members = Members { disks: disks_there, labels, count, away: Vec::new() };
        for disk in disks {
            let path = disk.file().path().to_owned();
            let label = match read_label_of(disk.file()) {
                Ok(label) => label,
                // As one that cannot be opened.
                Err(error) if error.is_away() => {
                    members.away.push(error);
                    continue;
                }
                Err(source) => return Err(MemberError::Device { source }),
            };
            let label =
                label.map_err(|problem| MemberError::NoLabel { path: path.clone(), problem })?;
            if label.uuid != uuid {
                let (expected, found) = (uuid, label.uuid);
                return Err(MemberError::OtherVolume { path, expected, found });
            }
            match label.standing.is_of_other() {
                true => members.put_other(disk, label)?,
                false => members.put(disk, label.member, Some(label))?,
            }
        }
        Ok(members)
    }

    /// Takes a blank disk for a lost member.
    pub(crate) fn replace(&mut self, member: u8, spec: &DeviceSpec) -> Result<(), MemberError> {
        let disk = open(spec)?;
        let path = disk.file().path().to_owned();
        if let Some(content) =
            content_of(disk.file()).map_err(|source| MemberError::Device { source })?
        {
            return Err(MemberError::NotBlank { path, member, content });
        }
        self.put(disk, MemberIndex(member), None)
    }

    fn put(
        &mut self,
        mut disk: Disk,
        member: MemberIndex,
        label: Option<MemberLabel>,
    ) -> Result<(), MemberError> {
        let (index, members) = (usize::from(member.0), self.count);
        let Some(place) = self.disks[..members].get_mut(index) else {
            return Err(MemberError::NoSuchMember { found: member.0, members });
        };
        if let Some(first) = place {
            let which = WhichCounts::of(self.labels[index].as_ref(), label.as_ref());
            let (first, second) = (first.file().path().to_owned(), disk.file().path().to_owned());
            return Err(MemberError::SameMember { member: member.0, first, second, which });
        }
        if let Some(label) = &label {
            disk.file().is_known_by(Mark::Member(label.uuid, member));
        }
        disk.set_device(Device::Member(member));
        *place = Some(disk);
        self.labels[index] = label;
        Ok(())
    }

    /// One that is no member by its label.
    fn put_other(&mut self, mut disk: Disk, label: MemberLabel) -> Result<(), MemberError> {
        let is_same = |other: &Option<MemberLabel>| {
            other.is_some_and(|other| other.disk == label.disk && other.standing == label.standing)
        };
        if let Some(index) = self.labels.iter().skip(self.count).position(is_same)
            && label.standing.is_spare()
            && let Some(first) = &self.disks[self.count + index]
        {
            let known = self.labels[self.count + index].as_ref();
            let which = WhichCounts::of(known, Some(&label));
            let (first, second) = (first.file().path().to_owned(), disk.file().path().to_owned());
            return Err(MemberError::SameMember { member: label.member.0, first, second, which });
        }
        disk.file().is_known_by(Mark::Spare(label.uuid, label.disk));
        disk.set_device(Device::Member(MemberIndex(self.disks.len() as u8)));
        self.disks.push(Some(disk));
        self.labels.push(Some(label));
        Ok(())
    }

    /// What an engine is told of them: members, and others.
    pub(crate) fn infos(&self) -> (Vec<Option<MemberInfo>>, Vec<MemberInfo>) {
        let info = |(disk, label): (&Option<Disk>, &Option<MemberLabel>)| {
            disk.as_ref().map(|disk| MemberInfo { label: *label, bytes: disk.file().size_bytes })
        };
        let infos: Vec<Option<MemberInfo>> =
            self.disks.iter().zip(&self.labels).map(info).collect();
        let (members, others) = infos.split_at(self.count);
        (members.to_vec(), others.iter().copied().flatten().collect())
    }

    /// The disk that was given for each member: of one that has none, a disk that was it once.
    pub(crate) fn given_for_each(&self) -> Vec<Option<String>> {
        let was_it = |member: usize| {
            let of_it = |label: &Option<MemberLabel>| {
                label.is_some_and(|label| usize::from(label.member.0) == member)
            };
            let mut others = self.disks.iter().zip(&self.labels).skip(self.count);
            others.find(|(_, label)| of_it(label)).and_then(|(disk, _)| disk.as_ref())
        };
        let name = |disk: &Disk| disk.file().path().display().to_string();
        let disk = |member: usize| self.disks[member].as_ref().or_else(|| was_it(member)).map(name);
        (0..self.count).map(disk).collect()
    }

    /// The numbers of the labels of those that are there.
    pub(crate) fn label_numbers(&self) -> Vec<(MemberIndex, u64)> {
        let members = (0..).map(MemberIndex).zip(&self.labels[..self.count]);
        members.filter_map(|(member, label)| Some((member, (*label)?.epoch))).collect()
    }

    /// Their names, in order.
    pub(crate) fn names(&self) -> Vec<Option<String>> {
        let name = |disk: &Disk| disk.file().path().display().to_string();
        self.disks.iter().map(|disk| disk.as_ref().map(name)).collect()
    }
}

/// Opens and locks a disk.
fn open(spec: &DeviceSpec) -> Result<Disk, MemberError> {
    Disk::open(Device::DataDisk, spec).map_err(|source| match source {
        ours if ours.is_our_own() => MemberError::Twice { path: spec.path().to_owned() },
        source => MemberError::Device { source },
    })
}

/// The label of a disk: the newer of its two copies; a disk that is too short for them has none.
///
/// # Errors
/// If it cannot be read. Inside: if there is none.
pub fn read_label_of(disk: &DeviceFile) -> Result<Result<MemberLabel, FormatError>, DeviceError> {
    let [first, second] = LABEL_OFFSETS.map(|offset| disk.read_at(offset, MEMBER_LABEL_BYTES));
    Ok(newest_label(first?.bytes(), second?.bytes()))
}

/// The newer of two copies. Of two that are none, one that says that it is a label tells why.
fn newest_label(first: &[u8], second: &[u8]) -> Result<MemberLabel, FormatError> {
    if let Some(label) = MemberLabel::newest(first, second) {
        return Ok(label);
    }
    match MemberLabel::decode(first) {
        Err(problem) if is_no_mark(&problem) => MemberLabel::decode(second)
            .map_err(|second| if is_no_mark(&second) { problem } else { second }),
        found => found,
    }
}

/// Of what a disk is a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberMark {
    /// Of this.
    Label(MemberLabel),
    /// It says that it is one, and no more.
    Unreadable(FormatError),
}

impl MemberMark {
    /// The cache that has the volume, if it can be told.
    pub fn cache(&self) -> Option<Uuid> {
        match self {
            MemberMark::Label(label) => Some(label.uuid),
            MemberMark::Unreadable(_) => None,
        }
    }
}

impl fmt::Display for MemberMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberMark::Label(MemberLabel {
                uuid,
                standing: Standing::Spare | Standing::SpareIncoming,
                ..
            }) => write!(f, "is a spare of the volume of cache {uuid}"),
            MemberMark::Label(MemberLabel { uuid, member, .. }) => {
                write!(f, "is member {} of the volume of cache {uuid}", member.0)
            }
            MemberMark::Unreadable(problem) => {
                write!(f, "is a member of a volume, by a label that cannot be read: {problem}")
            }
        }
    }
}

/// What a disk says, if it says that it is a member of a volume.
pub(crate) fn member_mark(disk: &DeviceFile) -> Result<Option<MemberMark>, DeviceError> {
    Ok(mark_of(read_label_of(disk)?))
}

/// The same by both copies of its label, as they were read.
pub fn member_mark_in(first: &[u8], second: &[u8]) -> Option<MemberMark> {
    mark_of(newest_label(first, second))
}

fn mark_of(label: Result<MemberLabel, FormatError>) -> Option<MemberMark> {
    match label {
        Ok(label) => Some(MemberMark::Label(label)),
        Err(problem) if is_no_mark(&problem) => None,
        Err(problem) => Some(MemberMark::Unreadable(problem)),
    }
}

/// Whether something else is there, or nothing.
pub(crate) fn is_no_mark(problem: &FormatError) -> bool {
    matches!(problem, FormatError::Magic { .. } | FormatError::Short { .. })
}

/// What is at the beginning of a disk, where everything that is known has something: a file system,
/// a cache, a member. More is not asked for: whoever names a disk and the member whose place it
/// takes means it, and it may have been in use before.
pub(crate) fn content_of(disk: &DeviceFile) -> Result<Option<Content>, DeviceError> {
    let range = 0..disk.size_bytes.min(BLANK_BYTES);
    look(disk, range, &content, &mut |_, _| true)
}

/// What is on a disk that is to become a member. Of one with labels that need not stay, known marks
/// besides them: what else is in that place is of the time when it was a member.
pub(crate) fn content_besides(
    disk: &DeviceFile,
    is_free: impl Fn(&MemberLabel) -> bool,
) -> Result<Option<Content>, DeviceError> {
    let mut start = disk.read_at(0, BLANK_BYTES as usize)?;
    let mut has_free = false;
    for offset in LABEL_OFFSETS {
        let place = offset as usize..offset as usize + MEMBER_LABEL_BYTES;
        let Some(block) = start.bytes_mut().get_mut(place) else { continue };
        if MemberLabel::decode(block).is_ok_and(|label| is_free(&label)) {
            block.fill(0);
            has_free = true;
        }
    }
    match has_free {
        true => Ok(content(start.bytes()).map(Content::Known)),
        false => content_of(disk),
    }
}

/// What the beginning of a disk looks like that is to become a member.
pub fn content(start: &[u8]) -> Option<&'static str> {
    let is_none = is_no_mark;
    for offset in LABEL_OFFSETS {
        let place = offset as usize..offset as usize + MEMBER_LABEL_BYTES;
        let label = start.get(place).map(MemberLabel::decode);
        if label.is_some_and(|label| !label.is_err_and(|problem| is_none(&problem))) {
            return Some("a member of a dcd volume");
        }
    }
    for offset in DATA_LABEL_OFFSETS {
        let place = offset as usize..offset as usize + DATA_LABEL_BYTES;
        let label = start.get(place).map(DataLabel::decode);
        if label.is_some_and(|label| !label.is_err_and(|problem| is_none(&problem))) {
            return Some("the labelled data-disk of a dcd cache");
        }
    }
    for offset in DIRECTORY_OFFSETS {
        let magic = start.get(offset as usize..).and_then(|bytes| bytes.first_chunk());
        if magic == Some(&share_directory::MAGIC.to_le_bytes()) {
            return Some("a dcd cache-disk that several caches share");
        }
    }
    for offset in NVRAM_HEAD_OFFSETS {
        let place = offset as usize..offset as usize + NVRAM_HEAD_BYTES;
        let head = start.get(place).map(NvramHead::decode);
        if head.is_some_and(|head| !head.is_err_and(|problem| is_none(&problem))) {
            return Some("the memory of a dcd cache");
        }
    }
    let superblock = start.get(..SUPERBLOCK_SIZE).map(Superblock::decode);
    if superblock.is_some_and(|superblock| !superblock.is_err_and(|problem| is_none(&problem))) {
        return Some("a dcd cache");
    }
    recognise(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_engine::Buffer;
    use dcd_engine::volume::format::label::DiskTag;

    const UUID: Uuid = Uuid([7; 16]);

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path =
                std::env::temp_dir().join(format!("dcd-members-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn disk(&self, name: &str, label: Option<(Uuid, u8)>) -> DeviceSpec {
            let path = self.0.join(name);
            std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
            let spec = DeviceSpec::Plain(path);
            if let Some((uuid, member)) = label {
                let label =
                    MemberLabel { epoch: 1, ..MemberLabel::first(uuid, MemberIndex(member)) };
                open(&spec).unwrap().file().write_at(0, &label.encode()).unwrap();
            }
            spec
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn members(specs: &[&DeviceSpec]) -> Result<Members, MemberError> {
        let disks = specs.iter().map(|spec| open(spec)).collect::<Result<_, _>>()?;
        Members::of(disks, UUID, 3)
    }

    fn problem(result: Result<Members, MemberError>) -> String {
        let error = result.err().unwrap();
        format!("{error}; {}", error.hint().unwrap())
    }

    #[test]
    fn disks_are_known_by_their_labels_in_any_order() {
        let folder = Folder::new("order");
        let (two, zero) = (folder.disk("a", Some((UUID, 2))), folder.disk("b", Some((UUID, 0))));
        let mut found = members(&[&two, &zero]).unwrap();
        let names = found.names();
        assert!(names[0].as_ref().unwrap().ends_with("/b") && names[1].is_none());
        assert!(names[2].as_ref().unwrap().ends_with("/a"));
        found.replace(1, &folder.disk("c", None)).unwrap();
        assert!(found.disks.iter().all(Option::is_some) && found.labels[1].is_none());
    }

    #[test]
    fn wrong_disks_are_refused_with_a_hint() {
        let folder = Folder::new("wrong");
        let first = folder.disk("first", Some((UUID, 0)));
        let blank = folder.disk("blank", None);
        assert!(problem(members(&[&first, &blank])).contains("blank is no member of this volume"));
        let other = folder.disk("other", Some((Uuid([8; 16]), 1)));
        assert!(problem(members(&[&other])).contains("a member of another volume"));
        let copy = folder.disk("copy", Some((UUID, 0)));
        assert!(
            problem(members(&[&first, &copy]))
                .contains("are both member 0: one of them is a copy;")
        );
        assert!(problem(members(&[&first, &first])).contains("given twice"));
        // The one that has the higher number is newer; one that has not got all does not count;
        // and where both say that they have, the tables decide.
        let with = |name: &str, change: fn(&mut MemberLabel)| {
            let spec = folder.disk(name, None);
            let mut label = MemberLabel { epoch: 1, ..MemberLabel::first(UUID, MemberIndex(0)) };
            change(&mut label);
            open(&spec).unwrap().file().write_at(0, &label.encode()).unwrap();
            spec
        };
        let newer = with("newer", |label| label.epoch = 7);
        let said = problem(members(&[&first, &newer]));
        assert!(said.contains("newer is newer: its label is number 7, that of"), "{said}");
        assert!(said.ends_with("/first out"), "{said}");
        let incoming = with("incoming", |label| {
            (label.disk, label.standing) = (DiskTag(9), Standing::Incoming);
        });
        for both in [[&first, &incoming], [&incoming, &first]] {
            let said = problem(members(&both));
            assert!(said.contains("/first counts, ") && said.contains("has not got all"), "{said}");
            assert!(said.ends_with("/incoming out"), "{said}");
        }
        let whole = with("whole", |label| label.disk = DiskTag(9));
        let said = problem(members(&[&first, &whole]));
        assert!(said.contains("the tables of the volume know which counts"), "{said}");
        let third = folder.disk("third", Some((UUID, 3)));
        assert!(problem(members(&[&third])).contains("there is no member 3: the volume has 3"));
        let replace = |member, spec: &DeviceSpec| {
            let mut found = members(&[&first]).unwrap();
            found.replace(member, spec).map(|()| found)
        };
        assert!(problem(replace(0, &blank)).contains("are both member 0"));
        assert!(problem(replace(9, &blank)).contains("there is no member 9"));
        assert!(
            problem(replace(1, &copy)).contains("looks like a member of a dcd volume; if nothing")
        );
        let bytes = Buffer::copy_of(&[&[0; 1080][..], &[0x53, 0xef], &[0; 3014]].concat());
        open(&blank).unwrap().file().write_at(0, &bytes).unwrap();
        assert!(problem(replace(1, &blank)).contains("an ext2, ext3 or ext4 file system"));
    }
}
