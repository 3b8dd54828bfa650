//! By what a disk is known again when its server comes back: what dcd itself has written there. A
//! transparent data-disk has nothing of the kind; then only its size tells.

use std::fmt;
use std::io;

use dcd_engine::format::data_label::{DATA_LABEL_BYTES, DATA_LABEL_OFFSETS, DataLabel};
use dcd_engine::format::geometry::SUPERBLOCK_OFFSETS;
use dcd_engine::format::leg_label::{LEG_LABEL_BYTES, LEG_LABEL_OFFSETS, LegLabel};
use dcd_engine::format::superblock::{SUPERBLOCK_SIZE, Superblock};
use dcd_engine::units::{MemberIndex, Uuid};
use dcd_engine::volume::format::label::{DiskTag, LABEL_OFFSETS, MEMBER_LABEL_BYTES, MemberLabel};

use super::Link;

/// What is on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// The label of a data-disk of this cache.
    DataLabel(Uuid),
    /// The label of this member of the volume of this cache.
    Member(Uuid, MemberIndex),
    /// The label of this disk, a spare of the volume of this cache or one that was.
    Spare(Uuid, DiskTag),
    /// The label of this leg.
    Leg(Uuid),
    /// The superblock of this cache.
    Cache(Uuid),
}

impl Mark {
    /// Whether it is on the disk at the other end.
    ///
    /// # Errors
    /// If that cannot be read.
    pub(crate) fn is_on(&self, link: &mut Link) -> io::Result<bool> {
        let mut read = |offsets: [u64; 2], length: usize| -> io::Result<[Vec<u8>; 2]> {
            let mut copies = [vec![0; length], vec![0; length]];
            for (copy, offset) in copies.iter_mut().zip(offsets) {
                if offset + length as u64 <= link.facts().size_bytes {
                    link.read(offset, copy)?;
                }
            }
            Ok(copies)
        };
        Ok(match *self {
            Mark::DataLabel(uuid) => {
                let [first, second] = read(DATA_LABEL_OFFSETS, DATA_LABEL_BYTES)?;
                DataLabel::newest(&first, &second).is_ok_and(|label| label.uuid == uuid)
            }
            Mark::Member(uuid, member) => {
                let [first, second] = read(LABEL_OFFSETS, MEMBER_LABEL_BYTES)?;
                MemberLabel::newest(&first, &second)
                    .is_some_and(|label| label.uuid == uuid && label.member == member)
            }
            Mark::Spare(uuid, disk) => {
                let [first, second] = read(LABEL_OFFSETS, MEMBER_LABEL_BYTES)?;
                MemberLabel::newest(&first, &second)
                    .is_some_and(|label| label.uuid == uuid && label.disk == disk)
            }
            Mark::Leg(uuid) => {
                let [first, second] = read(LEG_LABEL_OFFSETS, LEG_LABEL_BYTES)?;
                LegLabel::newest(&first, &second).is_ok_and(|label| label.leg == uuid)
            }
            Mark::Cache(uuid) => {
                let [first, second] = read(SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE)?;
                Superblock::newest(&first, &second).is_ok_and(|found| found.uuid == uuid)
            }
        })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mark::DataLabel(uuid) => write!(f, "the label of the data-disk of cache {uuid}"),
            Mark::Member(uuid, member) => {
                write!(f, "the label of member {} of cache {uuid}", member.0)
            }
            Mark::Spare(uuid, _) => write!(f, "the label of a spare of cache {uuid}"),
            Mark::Leg(uuid) => write!(f, "the label of leg {uuid}"),
            Mark::Cache(uuid) => write!(f, "the superblock of cache {uuid}"),
        }
    }
}
