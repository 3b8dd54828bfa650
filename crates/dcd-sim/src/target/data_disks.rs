//! What lies below a log: a data-disk, or the members of a volume. Each is a model that counts.
//!
//! Data of clients are zero and nobody keeps them. Of a member there is more: its label, and the
//! twin of the tables behind the sets.

use std::ops::Range;

use dcd_engine::units::{LINE_SIZE, MemberIndex};
use dcd_engine::volume::config::{LABEL_BYTES, SetConfig, VolumeConfig};
use dcd_engine::volume::format::label::{LABEL_OFFSETS, MemberLabel};
use dcd_engine::volume::members::MemberInfo;
use dcd_engine::{Device, Lba, Time, Uuid};
use dcd_testkit::Bytes;

use super::disk::DiskTarget;
use super::pages::Pages;
use super::{Access, AccessFacts, MemberFacts, Target, TargetDone, TargetFacts};
use crate::disk::model::DiskModel;

/// The disks, in the order of the members.
pub(super) struct DataDisks {
    disks: Vec<DiskTarget>,
    /// What members keep besides data; none of a data-disk.
    kept: Vec<Pages>,
    /// Where data lie on each member.
    data_bytes: Range<u64>,
}

impl DataDisks {
    /// One disk, which belongs to nobody else.
    pub(super) fn one(disk: DiskModel) -> DataDisks {
        DataDisks { disks: vec![DiskTarget::new(disk)], kept: Vec::new(), data_bytes: 0..u64::MAX }
    }

    /// The members of a volume.
    pub(super) fn members(disks: Vec<DiskModel>, config: &VolumeConfig) -> DataDisks {
        let kept = disks.iter().map(|_| Pages::default()).collect();
        let end = config.sets.iter().map(SetConfig::end_bytes).max().unwrap_or(LABEL_BYTES);
        let disks = disks.into_iter().map(DiskTarget::new).collect();
        DataDisks { disks, kept, data_bytes: LABEL_BYTES..end }
    }

    /// New members of that volume: their labels.
    pub(super) fn write_labels(&mut self, volume: Uuid) -> Vec<MemberInfo> {
        let members = self.disks.iter().zip(&mut self.kept).enumerate();
        let infos = members.map(|(index, (disk, kept))| {
            // Fewer than 2^8 members.
            let label = MemberLabel::first(volume, MemberIndex(index as u8));
            for offset in LABEL_OFFSETS {
                kept.write(offset, label.encode().bytes());
            }
            MemberInfo { label: Some(label), bytes: disk.disk().capacity_bytes() }
        });
        infos.collect()
    }

    /// The data-disk, or the first member.
    pub(super) fn first(&self) -> &DiskTarget {
        &self.disks[0]
    }

    /// The data-disk, or the first member.
    pub(super) fn first_mut(&mut self) -> &mut DiskTarget {
        &mut self.disks[0]
    }

    /// The disk of that device.
    ///
    /// # Panics
    /// If it is none of these.
    pub(super) fn get_mut(&mut self, device: Device) -> &mut DiskTarget {
        &mut self.disks[place_of(device)]
    }

    /// What its bytes are.
    ///
    /// # Panics
    /// If it is none of these.
    pub(super) fn content(&mut self, device: Device) -> Content<'_> {
        let kept = self.kept.get_mut(place_of(device));
        Content { kept, data_bytes: self.data_bytes.clone() }
    }

    /// Where the arm of a single disk is; of several nobody can say.
    pub(super) fn block(&self) -> Lba {
        match self.disks.as_slice() {
            [one] => dcd_engine::nvram::HeadPosition::block(one),
            _ => Lba(0),
        }
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        self.disks.iter().filter_map(DiskTarget::next_event).min()
    }

    pub(super) fn advance(&mut self, now: Time, done: &mut Vec<TargetDone>) {
        for disk in &mut self.disks {
            disk.advance(now, done);
        }
    }

    pub(super) fn count_from(&mut self, now: Time) {
        for disk in &mut self.disks {
            disk.count_from(now);
        }
    }

    pub(super) fn list_accesses(&mut self) {
        for disk in &mut self.disks {
            disk.list_accesses();
        }
    }

    pub(super) fn take_listed(&mut self) -> Vec<Access> {
        self.disks.iter_mut().flat_map(DiskTarget::take_listed).collect()
    }

    /// What all of them read for clients in the name of that device.
    pub(super) fn served(&self, device: Device) -> AccessFacts {
        let served = self.disks.iter().map(|disk| disk.served(device));
        served.fold(AccessFacts::default(), AccessFacts::and)
    }

    /// Writes of all of them, and their bytes.
    pub(super) fn writes(&self) -> [u64; 2] {
        let counts = self.disks.iter().map(DiskTarget::counts);
        counts.fold([0; 2], |[writes, bytes], counts| {
            [writes + counts.write_sizes.count(), bytes + counts.write_bytes]
        })
    }

    /// All of them together, by the disk's names.
    pub(super) fn facts(&self, now: Time) -> TargetFacts {
        if !self.is_volume() {
            return self.first().facts();
        }
        let counts = || self.disks.iter().map(DiskTarget::counts);
        let mut sizes = crate::distribution::Distribution::default();
        counts().for_each(|counts| sizes.merge(&counts.write_sizes));
        let [disk_writes, disk_write_bytes] = self.writes();
        let busy: f64 = counts().map(|counts| counts.busy_percent(now)).sum();
        TargetFacts {
            disk_reads: counts().map(|counts| counts.reads).sum(),
            disk_writes,
            disk_write_bytes,
            disk_write_kib: sizes.percentiles(1024.0),
            disk_busy_percent: busy / self.disks.len() as f64,
            ..TargetFacts::default()
        }
    }

    /// Each of the members; none of a data-disk.
    pub(super) fn member_facts(&self, now: Time) -> Vec<MemberFacts> {
        let members = self.disks.iter().filter(|_| self.is_volume());
        let facts = members.map(|disk| {
            let counts = disk.counts();
            MemberFacts {
                reads: counts.reads,
                writes: counts.write_sizes.count(),
                write_bytes: counts.write_bytes,
                busy_percent: counts.busy_percent(now),
            }
        });
        facts.collect()
    }

    /// Memory of what members keep.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.kept.iter().map(Pages::memory_bytes).sum()
    }

    fn is_volume(&self) -> bool {
        !self.kept.is_empty()
    }
}

/// Which of the disks it is.
fn place_of(device: Device) -> usize {
    match device {
        Device::DataDisk => 0,
        Device::Member(member) => usize::from(member.0),
        Device::CacheDisk | Device::Leg(_) | Device::Witness | Device::Nvram => {
            unreachable!("none of these")
        }
    }
}

/// The bytes of a disk: data are zero, and a member keeps the rest.
pub(super) struct Content<'a> {
    kept: Option<&'a mut Pages>,
    data_bytes: Range<u64>,
}

impl Content<'_> {
    fn kept_at(&mut self, offset: u64) -> Option<&mut Pages> {
        let is_data = self.data_bytes.contains(&offset);
        self.kept.as_deref_mut().filter(|_| !is_data)
    }
}

impl Bytes for Content<'_> {
    fn read(&mut self, offset: u64, to: &mut [u8]) {
        match self.kept_at(offset) {
            Some(kept) => Pages::read(kept, offset, to),
            None => to.fill(0),
        }
    }

    fn write(&mut self, offset: u64, from: &[u8], _is_durable: bool) {
        if let Some(kept) = self.kept_at(offset) {
            Pages::write(kept, offset, from);
        }
    }

    fn write_zeroes(&mut self, offset: u64, length: u64) {
        let Some(kept) = self.kept_at(offset) else { return };
        for line in (offset..offset + length).step_by(LINE_SIZE as usize) {
            Pages::write(kept, line, &[0; LINE_SIZE as usize]);
        }
    }
}
