//! The disks of a cache-disk on several legs, and their labels.

use std::io;
use std::path::{Path, PathBuf};

use dcd_engine::format::geometry::{CHECKPOINTS_OFFSET, SUPERBLOCK_OFFSETS};
use dcd_engine::format::leg_label::{LEG_LABEL_BYTES, LEG_LABEL_OFFSETS, LegLabel, Tag};
use dcd_engine::io::LegError;
use dcd_engine::legs::choose::choose;
use dcd_engine::units::{LegIndex, Uuid};
use dcd_engine::{Buffer, FormatError, Superblock};
use dcd_protocol::failure::leg_hint;

use crate::device::device_file::{DeviceError, DeviceFile};
use crate::device::device_spec::DeviceSpec;
use crate::device::foreign_content::Content;
use crate::device::share_room::ShareRoom;
use crate::device::shares::{DiskReader, holds_shares};
use crate::disk::Disk;
use crate::pair::book::{PairBook, PairProblem};
use crate::pair::members::{content, content_of};
use crate::process::random::random_bytes;

/// The disks below the log.
pub enum CacheSide {
    /// One.
    Disk(Box<Disk>),
    /// Several.
    Legs {
        /// In the places of their legs.
        legs: Vec<LegDisk>,
        /// That of their witness.
        witness: Option<Box<LegDisk>>,
    },
}

/// The disk of a leg.
pub struct LegDisk {
    /// What it is called.
    name: String,
    /// `None`: it was let go.
    pub(crate) disk: Option<Disk>,
}

impl From<Disk> for LegDisk {
    fn from(disk: Disk) -> LegDisk {
        LegDisk { name: disk.file().path().display().to_string(), disk: Some(disk) }
    }
}

/// A disk that becomes a leg while the others serve.
pub(crate) struct NewLeg {
    pub(crate) file: DeviceFile,
    /// How it was named, and how it behaves.
    pub(crate) spec: DeviceSpec,
    /// Its name as a leg.
    pub(crate) leg: Uuid,
    /// The label that it has, if it was a leg of this cache.
    pub(crate) before: Option<LegLabel>,
    /// It is to be no leg, but the witness.
    pub(crate) is_witness: bool,
}

/// Why a disk cannot become a leg.
#[derive(Debug, thiserror::Error)]
pub enum NewLegError {
    /// The engine does not want it.
    #[error(transparent)]
    Leg(#[from] LegError),
    /// The disk cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Something is on it.
    #[error("{} is to become {role}, and {content}", path.display())]
    InUse {
        /// The disk.
        path: PathBuf,
        /// What.
        content: String,
        /// A leg, or the witness.
        role: &'static str,
    },
    /// Caches share it.
    #[error("{} is shared by caches", path.display())]
    Shared {
        /// The disk.
        path: PathBuf,
    },
    /// It is the data-disk of a cache.
    #[error(transparent)]
    Pair(#[from] PairProblem),
    /// The cache has a share of the disk.
    #[error("the cache has a share of this disk already: {}", path.display())]
    SecondShare {
        /// The share.
        path: PathBuf,
    },
    /// It is too small.
    #[error("{} has {found} bytes, a leg of this cache needs {expected}", path.display())]
    Short {
        /// The disk.
        path: PathBuf,
        /// Bytes needed.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
}

impl NewLegError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            NewLegError::Leg(error) => leg_hint(*error).into(),
            NewLegError::Device(error) => return error.hint(),
            NewLegError::InUse { path, .. } => format!(
                "if nothing on it is needed: dd if=/dev/zero of={} bs=1M count=1 conv=notrunc; then try again",
                path.display()
            ),
            NewLegError::Pair(problem) => problem.hint_for_a_part(),
            NewLegError::Shared { path } => {
                format!("{} makes a share of it", path.join("NAME").display())
            }
            NewLegError::SecondShare { path } => format!(
                "two legs on one disk fail together; if it is none of its legs: dcd inspect leg --cache-disk {}",
                path.display()
            ),
            NewLegError::Short { .. } => "give a disk, or a partition, of that size".into(),
        })
    }
}

/// Nothing on a disk that becomes a leg is lost without a word.
pub(crate) fn check_blank(disk: &DeviceFile) -> Result<(), NewLegError> {
    PairBook::check_no_cache(disk, None)?;
    if holds_shares(disk)? {
        return Err(NewLegError::Shared { path: disk.path().to_owned() });
    }
    match content_of(disk)? {
        Some(content) => {
            let path = disk.path().to_owned();
            Err(NewLegError::InUse { path, content: content.to_string(), role: "a leg" })
        }
        None => Ok(()),
    }
}

/// The same of one that has the label of a leg of this cache: it may have been used for something
/// else since, which has left that, or one copy of it, alone. Looked at is what lies before
/// checkpoints, where all that is known has its mark, but for what is ours.
pub(crate) fn check_former_leg(disk: &DeviceFile, cache: Uuid) -> Result<(), NewLegError> {
    PairBook::check_no_cache(disk, None)?;
    let mut start = disk.read_at(0, CHECKPOINTS_OFFSET as usize)?;
    let is_superblock =
        |bytes: &[u8]| Superblock::decode(bytes).is_ok_and(|found| found.uuid == cache);
    let is_label = |bytes: &[u8]| LegLabel::decode(bytes).is_ok_and(|found| found.cache == cache);
    for offset in SUPERBLOCK_OFFSETS.into_iter().chain(LEG_LABEL_OFFSETS) {
        let range = offset as usize..offset as usize + LEG_LABEL_BYTES;
        // A disk may be shorter than a leg.
        let Some(block) = start.bytes_mut().get_mut(range) else { continue };
        if is_superblock(block) || is_label(block) {
            block.fill(0);
        }
    }
    match content(start.bytes()) {
        Some(what) => Err(NewLegError::InUse {
            path: disk.path().to_owned(),
            content: Content::Known(what).to_string(),
            role: "a leg",
        }),
        None => Ok(()),
    }
}

/// A leg holds all of the cache-disk.
pub(crate) fn check_size(disk: &DeviceFile, expected: u64) -> Result<(), NewLegError> {
    let found = disk.size_bytes;
    match found < expected {
        true => Err(NewLegError::Short { path: disk.path().to_owned(), expected, found }),
        false => Ok(()),
    }
}

impl CacheSide {
    /// What a leg is called.
    pub(crate) fn leg_name(&self, leg: usize) -> Option<String> {
        match self {
            CacheSide::Disk(_) => None,
            CacheSide::Legs { legs, .. } => legs.get(leg).map(|leg| leg.name.clone()),
        }
    }

    /// What the witness is called.
    pub(crate) fn witness_name(&self) -> Option<String> {
        match self {
            CacheSide::Disk(_) => None,
            CacheSide::Legs { witness, .. } => witness.as_ref().map(|witness| witness.name.clone()),
        }
    }

    /// That of the witness.
    pub(crate) fn witness(&self) -> Option<&Disk> {
        match self {
            CacheSide::Disk(_) => None,
            CacheSide::Legs { witness, .. } => witness.as_ref()?.disk.as_ref(),
        }
    }

    /// See [`CacheSide::witness`].
    pub(crate) fn witness_mut(&mut self) -> Option<&mut Disk> {
        match self {
            CacheSide::Disk(_) => None,
            CacheSide::Legs { witness, .. } => witness.as_mut()?.disk.as_mut(),
        }
    }

    /// Puts a disk into the place of the witness.
    pub(crate) fn put_witness(&mut self, disk: Disk) {
        let CacheSide::Legs { witness, .. } = self else {
            unreachable!("only where there are legs")
        };
        *witness = Some(Box::new(disk.into()));
    }

    /// Lets go of the disk of the witness.
    pub(crate) fn let_go_of_witness(&mut self) {
        if let CacheSide::Legs { witness: Some(witness), .. } = self {
            witness.disk = None;
        }
    }

    /// The one in this place.
    pub(crate) fn at(&self, place: usize) -> Option<&Disk> {
        match self {
            CacheSide::Disk(disk) => (place == 0).then_some(disk),
            CacheSide::Legs { legs, .. } => legs.get(place)?.disk.as_ref(),
        }
    }

    /// Those that are shares of a disk, and their places.
    ///
    /// # Errors
    /// If there are no more descriptors.
    pub(crate) fn rooms(&self) -> io::Result<Vec<(usize, ShareRoom)>> {
        let places = match self {
            CacheSide::Disk(_) => 1,
            CacheSide::Legs { legs, .. } => legs.len(),
        };
        let disks = (0..places).filter_map(|place| Some((place, self.at(place)?)));
        let rooms =
            disks.map(|(place, disk)| Ok(ShareRoom::of(disk.file())?.map(|it| (place, it))));
        rooms.filter_map(Result::transpose).collect()
    }

    /// All of them, without the witness.
    pub fn iter(&self) -> impl Iterator<Item = &Disk> {
        let (disk, legs) = match self {
            CacheSide::Disk(disk) => (Some(&**disk), &[][..]),
            CacheSide::Legs { legs, .. } => (None, &legs[..]),
        };
        disk.into_iter().chain(legs.iter().flat_map(|leg| &leg.disk))
    }

    /// All of them, without the witness.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Disk> {
        let (disk, legs) = match self {
            CacheSide::Disk(disk) => (Some(&mut **disk), &mut [][..]),
            CacheSide::Legs { legs, .. } => (None, &mut legs[..]),
        };
        disk.into_iter().chain(legs.iter_mut().flat_map(|leg| &mut leg.disk))
    }

    /// All of them, and the witness.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Disk> {
        let (disk, legs, witness) = match self {
            CacheSide::Disk(disk) => (Some(&mut **disk), &mut [][..], None),
            CacheSide::Legs { legs, witness } => (None, &mut legs[..], witness.as_mut()),
        };
        let witness = witness.and_then(|witness| witness.disk.as_mut());
        disk.into_iter().chain(legs.iter_mut().flat_map(|leg| &mut leg.disk)).chain(witness)
    }

    /// Puts a disk into the place of a leg: the next, or one whose disk was let go.
    pub(crate) fn put_leg(&mut self, leg: LegIndex, disk: Disk) {
        let CacheSide::Legs { legs, .. } = self else { unreachable!("only where there are legs") };
        let leg = usize::from(leg.0);
        match legs.get_mut(leg) {
            Some(place) => *place = disk.into(),
            None => legs.push(disk.into()),
        }
    }

    /// Lets go of the disks of these legs.
    pub(crate) fn let_go(&mut self, free: impl Iterator<Item = usize>) {
        if let CacheSide::Legs { legs, .. } = self {
            free.for_each(|place| legs[place].disk = None);
        }
    }
}

/// The newer of both copies of a leg's label. One that cannot be read is as one that is damaged.
///
/// # Errors
/// If neither can be read, or what is wrong with the label.
pub fn read_leg_label(disk: &DeviceFile) -> Result<Result<LegLabel, FormatError>, DeviceError> {
    let copies = LEG_LABEL_OFFSETS.map(|offset| disk.read_at(offset, LEG_LABEL_BYTES));
    let is_read = copies.iter().any(Result::is_ok);
    let [first, second] = copies.map(|copy| match copy {
        Err(_) if is_read => Ok(Buffer::zeroed(LEG_LABEL_BYTES)),
        copy => copy,
    });
    Ok(LegLabel::newest(first?.bytes(), second?.bytes()))
}

/// The newer of both copies of the label of a leg, of a disk that is not ours: nothing is locked.
pub fn label_at(disk: &Path) -> Option<LegLabel> {
    let disk = DiskReader::open(disk).ok()?;
    let mut copies = [[0; LEG_LABEL_BYTES]; LEG_LABEL_OFFSETS.len()];
    for (copy, offset) in copies.iter_mut().zip(LEG_LABEL_OFFSETS) {
        // A copy that cannot be read stays empty, which is no label.
        let _ = disk.read_exact_at(copy, offset);
    }
    LegLabel::newest(&copies[0], &copies[1]).ok()
}

/// Whether the legs among these disks can do without the others, as their labels and that of the
/// witness say.
pub(crate) fn can_do_without_others(
    disks: &[&Path],
    witness: Option<&Path>,
    without: &[Uuid],
) -> bool {
    let labels: Vec<LegLabel> = disks.iter().filter_map(|disk| label_at(disk)).collect();
    let is_named = |leg: &&Uuid| labels.iter().any(|label| label.membership.names(**leg));
    let without: Vec<Uuid> = without.iter().filter(is_named).copied().collect();
    let witness = witness.and_then(label_at);
    choose(&labels, witness.as_ref(), &without).is_ok()
}

/// Bytes of a witness: both copies of its label.
pub const WITNESS_BYTES: u64 = LEG_LABEL_OFFSETS[1] + LEG_LABEL_BYTES as u64;

/// A file or device that becomes a witness: nothing is on it. A file that is not there is made.
///
/// # Errors
/// If it cannot be opened, or is too small, or holds something.
pub fn new_witness(path: &Path) -> Result<DeviceFile, NewLegError> {
    if let Ok(file) = std::fs::OpenOptions::new().write(true).create_new(true).open(path) {
        let made = file.set_len(WITNESS_BYTES).and_then(|()| file.sync_all());
        made.map_err(|source| DeviceError::Io {
            path: path.to_owned(),
            operation: "make",
            source,
        })?;
    }
    let file = DeviceFile::open(path)?;
    check_size(&file, WITNESS_BYTES)?;
    check_blank(&file).map_err(|error| match error {
        NewLegError::InUse { path, content, .. } => {
            NewLegError::InUse { path, content, role: "the witness" }
        }
        other => other,
    })?;
    Ok(file)
}

/// Writes the first label of a leg, both copies, and makes them durable.
///
/// # Errors
/// If the disk cannot be written.
pub fn write_leg_label(disk: &DeviceFile, label: &LegLabel) -> Result<(), DeviceError> {
    for offset in LEG_LABEL_OFFSETS {
        disk.write_at(offset, &label.encode())?;
    }
    Ok(())
}

/// The name of a new leg.
///
/// # Errors
/// If there are no random numbers.
pub fn new_leg_uuid() -> io::Result<Uuid> {
    random_bytes().map(Uuid)
}

/// A random tag.
///
/// # Errors
/// If there are no random numbers.
pub fn new_tag() -> io::Result<Tag> {
    random_bytes().map(|bytes| Tag(u64::from_le_bytes(bytes) | 1))
}
