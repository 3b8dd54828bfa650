//! A disk that takes the place of a member of a volume that is served, or becomes a spare of it.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use dcd_engine::VolumeError;
use dcd_engine::units::{MemberIndex, Uuid};
use dcd_engine::volume::format::label::{DiskTag, MemberLabel, Standing};
use dcd_engine::volume::{NewDisk, ReplaceError};
use dcd_protocol::failure::volume_hint;

use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::device_spec::DeviceSpec;
use crate::device::foreign_content::Content;
use crate::pair::members::content_besides;
use crate::process::random::random_bytes;

/// The disks of members as they were named, by the numbers that the engine gives them: those of the
/// start, and those that have come since.
#[derive(Clone, Debug, Default)]
pub struct MemberNames(Arc<Mutex<Vec<Option<String>>>>);

impl MemberNames {
    /// Those of a start.
    pub fn new(names: Vec<Option<String>>) -> MemberNames {
        MemberNames(Arc::new(Mutex::new(names)))
    }

    /// What the engine calls a disk: the newest of this name.
    pub(crate) fn find(&self, name: &str) -> Vec<MemberIndex> {
        let names = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_it = |known: &Option<String>| known.as_deref() == Some(name);
        let found = (0..).map(MemberIndex).zip(names.iter()).filter(|(_, known)| is_it(known));
        found.map(|(disk, _)| disk).collect()
    }

    /// All that there ever were, with their names.
    pub(crate) fn all(&self) -> Vec<(MemberIndex, String)> {
        let names = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let all = (0..).map(MemberIndex).zip(names.iter().cloned());
        all.filter_map(|(disk, name)| Some((disk, name?))).collect()
    }

    /// What a disk is called.
    pub fn get(&self, disk: MemberIndex) -> Option<String> {
        let names = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        names.get(usize::from(disk.0)).cloned().flatten()
    }

    /// A disk has come.
    pub(crate) fn put(&self, disk: MemberIndex, name: String) {
        let mut names = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let index = usize::from(disk.0);
        if names.len() <= index {
            names.resize(index + 1, None);
        }
        names[index] = Some(name);
    }
}

/// A disk that was handed over.
pub(crate) struct NewMember {
    pub(crate) file: DeviceFile,
    /// How it was named, and how it behaves.
    pub(crate) spec: DeviceSpec,
    /// Whose place it takes; `None`: it becomes a spare.
    pub(crate) member: Option<MemberIndex>,
    pub(crate) new: NewDisk,
}

/// Why a disk cannot take the place of a member.
#[derive(Debug, thiserror::Error)]
pub enum NewMemberError {
    /// The engine does not want it.
    #[error(transparent)]
    Refused(#[from] ReplaceError),
    /// The disk cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Something is on it.
    #[error("{} is to {}, and is not blank: it {content}", path.display(), place_in_words(*member))]
    NotBlank {
        /// The disk.
        path: PathBuf,
        /// Which member; `None`: it is to become a spare.
        member: Option<u8>,
        /// What.
        content: Content,
    },
    /// There is no random number for it.
    #[error("no name for the disk: {0}")]
    Random(io::Error),
}

impl NewMemberError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            NewMemberError::Refused(ReplaceError::Volume(VolumeError::LastCopy(_))) => {
                "bring the member back, or rebuild the others first; if it is gone, --accept-damage gives up what it alone held"
                    .into()
            }
            NewMemberError::Refused(ReplaceError::Volume(error)) => volume_hint(*error).into(),
            NewMemberError::Refused(ReplaceError::TooSmall { .. }) => {
                "give a disk, or a partition, of that size".into()
            }
            NewMemberError::Refused(ReplaceError::WouldBeLost { .. }) => {
                "bring the member back; if it is gone, --accept-damage gives these lines up: they fail with I/O errors until \
                 they are written again"
                    .into()
            }
            NewMemberError::Device(error) => return error.hint(),
            NewMemberError::NotBlank { path, .. } => format!(
                "if nothing on it is needed: dd if=/dev/zero of={} bs=1M count=1 conv=notrunc; then try again",
                path.display()
            ),
            NewMemberError::Random(_) => return None,
        })
    }
}

fn place_in_words(member: Option<u8>) -> String {
    match member {
        Some(member) => format!("take the place of member {member}"),
        None => "become a spare".into(),
    }
}

/// What a disk is that is to take the place of a member of this cache's volume, or, without one, to
/// become a spare. Nothing is on it, or labels of this volume that do not count any more: it may
/// have been used for something else since, which has left one of them, so the rest is looked at.
pub(crate) fn look_at(
    file: DeviceFile,
    spec: DeviceSpec,
    cache: Uuid,
    member: Option<u8>,
    accept_damage: bool,
) -> Result<NewMember, NewMemberError> {
    let is_free_of_ours = |label: &MemberLabel| {
        let is_free = !matches!(label.standing, Standing::Member | Standing::SpareMember);
        label.uuid == cache && is_free
    };
    if let Some(content) = content_besides(&file, is_free_of_ours)? {
        let path = file.path().to_owned();
        return Err(NewMemberError::NotBlank { path, member, content });
    }
    let tag = random_bytes::<8>().map_err(NewMemberError::Random)?;
    let tag = DiskTag(u64::from_le_bytes(tag).max(1));
    let new = NewDisk { bytes: file.size_bytes, tag, accept_damage };
    Ok(NewMember { file, spec, member: member.map(MemberIndex), new })
}
