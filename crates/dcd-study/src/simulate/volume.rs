//! `--volume` and what goes with it: a volume of several disks in place of one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use dcd_engine::LbaRange;
use dcd_engine::units::BLOCK_SIZE;
use dcd_engine::volume::attributes::Attributes;
use dcd_engine::volume::config::{MEMBERS_MAX, VolumeConfig};
use dcd_files::{small_file, volume_file};
use dcd_protocol::units_text::parse_size;
use dcd_sim::disk::model::DiskModel;
use dcd_sim::disk::profile::Profile;
use dcd_sim::new_cache::NEW_UUID;
use dcd_sim::target::setup::{Hint, VolumeSetup};
use dcd_sim::trace::{Operation, Request};

use crate::StudyError;

/// A volume in place of the disk.
#[derive(Args, Clone, Debug)]
pub struct VolumeArguments {
    /// Several disks in place of one: what `dcd create --volume` takes, see docs/volume.md. Its
    /// tables are on the cache-disk.
    #[arg(long, value_name = "FILE", requires_all = ["cache_disk", "members"])]
    #[arg(conflicts_with = "one_disk", help_heading = "Volume")]
    pub volume: Option<PathBuf>,
    /// The members: how many of --disk, or the profile of each, with commas.
    #[arg(long, value_name = "COUNT|PROFILES", requires = "volume", help_heading = "Volume")]
    pub members: Option<MembersArgument>,
    /// What lies where: START..END=ATTRIBUTES, for example 0..1G=important,random. May be given
    /// several times.
    #[arg(long, value_name = "WHERE=WHAT", requires = "volume", help_heading = "Volume")]
    pub hint: Vec<HintArgument>,
    /// A file of these, one in each line.
    #[arg(long, value_name = "FILE", requires = "volume", help_heading = "Volume")]
    pub hints: Option<PathBuf>,
    /// Nothing has been written to it before. Otherwise all that the load reads or writes has been.
    #[arg(long, requires = "volume", help_heading = "Volume")]
    pub empty: bool,
    /// The log is left unused: a volume as it is alone.
    #[arg(long, requires = "volume", help_heading = "Volume")]
    #[arg(conflicts_with_all = ["read_area", "destage", "ship_within", "ack", "log_bypass"])]
    pub no_log: bool,
}

/// `--members`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MembersArgument {
    /// So many of the disk.
    Alike(usize),
    /// These profiles.
    Each(Vec<String>),
}

impl FromStr for MembersArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<MembersArgument, String> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return match text.parse() {
                Ok(count @ 1..=MEMBERS_MAX) => Ok(MembersArgument::Alike(count)),
                _ => Err(format!("expected 1 to {MEMBERS_MAX} members")),
            };
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        match names.len() {
            1..=MEMBERS_MAX if names.iter().all(|name| !name.is_empty()) => {
                Ok(MembersArgument::Each(names))
            }
            _ => Err(format!("expected 1 to {MEMBERS_MAX} profiles with commas between them")),
        }
    }
}

/// `--hint`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HintArgument(Hint);

impl FromStr for HintArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<HintArgument, String> {
        let expected = "expected START..END=ATTRIBUTES, for example 0..1G=important,random";
        let (bytes, attributes) = text.split_once('=').ok_or(expected)?;
        let (start, end) = bytes.split_once("..").ok_or(expected)?;
        let size = |text: &str| parse_size(text.trim()).map_err(|error| error.to_string());
        let bytes = size(start)?..size(end)?;
        if bytes.is_empty() {
            return Err("expected an END behind the START".into());
        }
        let attributes = attributes.trim().parse::<Attributes>();
        let attributes = attributes.map_err(|error| error.to_string())?;
        Ok(HintArgument(Hint { bytes, attributes }))
    }
}

impl VolumeArguments {
    /// What they describe, of disks like `disk`, with a cache-disk of that size. None without
    /// `--volume`.
    pub(super) fn setup(
        &self,
        disk: &Profile,
        cache_bytes: u64,
    ) -> Result<Option<VolumeSetup>, StudyError> {
        let (Some(path), Some(members)) = (&self.volume, &self.members) else { return Ok(None) };
        if self.hints.as_ref().is_some_and(|hints| hints == path && path.as_os_str() == "-") {
            return Err(StudyError::FlagNeeds { flag: "--hints -", needs: "a --volume in a file" });
        }
        let file = volume_file::read(path).map_err(Box::new)?;
        let members = match members {
            MembersArgument::Alike(count) => vec![disk.clone(); *count],
            MembersArgument::Each(names) => {
                names.iter().map(|name| Profile::load(name)).collect::<Result<_, _>>()?
            }
        };
        let capacity = |member: &Profile| {
            DiskModel::new(member, 0).expect("the profile was checked").capacity_bytes()
        };
        let sizes: Vec<u64> = members.iter().map(capacity).collect();
        let header = file.header(NEW_UUID, file.plan(&sizes).map_err(Box::new)?, cache_bytes);
        let mut hints: Vec<Hint> = self.hint.iter().map(|hint| hint.0.clone()).collect();
        if let Some(path) = &self.hints {
            hints.extend(read_hints(path)?);
        }
        Ok(Some(VolumeSetup { header, members, hints, written: Vec::new() }))
    }
}

/// The extents of a volume that requests read or write, each once.
pub(super) struct Touched {
    extent_bytes: u64,
    volume_bytes: u64,
    extents: BTreeSet<u64>,
}

impl Touched {
    pub(super) fn new(config: &VolumeConfig) -> Touched {
        let VolumeConfig { extent_bytes, logical_bytes: volume_bytes, .. } = *config;
        Touched { extent_bytes, volume_bytes, extents: BTreeSet::new() }
    }

    pub(super) fn add(&mut self, request: &Request) {
        let Request { operation, offset_bytes, size_bytes, .. } = *request;
        if !matches!(operation, Operation::Read | Operation::Write) {
            return;
        }
        // What is beyond the end is refused when its turn comes.
        let end = offset_bytes.saturating_add(size_bytes).min(self.volume_bytes);
        if offset_bytes < end {
            self.extents.extend(offset_bytes / self.extent_bytes..end.div_ceil(self.extent_bytes));
        }
    }

    /// In order, neighbours together.
    pub(super) fn ranges(&self) -> Vec<LbaRange> {
        let blocks = self.extent_bytes / BLOCK_SIZE;
        let mut ranges: Vec<LbaRange> = Vec::new();
        for extent in &self.extents {
            let start = extent * blocks;
            match ranges.last_mut() {
                Some(last) if last.end() == start => last.blocks += blocks,
                _ => ranges.push(LbaRange::new(start, blocks)),
            }
        }
        ranges
    }
}

/// One in each line; what begins with `#` is none.
fn read_hints(path: &Path) -> Result<Vec<Hint>, StudyError> {
    let text = small_file::read_text(path)
        .map_err(|source| StudyError::HintFile { path: path.to_owned(), source })?;
    let lines = (1..).zip(text.lines().map(str::trim));
    let hints = lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#'));
    hints
        .map(|(line, text)| match text.parse::<HintArgument>() {
            Ok(HintArgument(hint)) => Ok(hint),
            Err(problem) => Err(StudyError::NoHint { path: path.to_owned(), line, problem }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_a_number_or_names() {
        assert_eq!("4".parse(), Ok(MembersArgument::Alike(4)));
        let names = ["nvme-ssd", "wd-4tb"].map(str::to_owned).to_vec();
        assert_eq!("nvme-ssd, wd-4tb".parse(), Ok(MembersArgument::Each(names)));
        for wrong in ["", "0", "33", "99999999999999999999", "a,,b", ","] {
            assert!(wrong.parse::<MembersArgument>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_hint_has_a_place_and_attributes() {
        let HintArgument(hint) = "4k..1M=important,random".parse().unwrap();
        assert_eq!(hint.bytes, 4096..1 << 20);
        assert_eq!(hint.attributes, "important,random".parse().unwrap());
        for wrong in ["", "1..2", "=hot", "2k..1k=hot", "0..=hot", "0..1k=warm", "0..1k=hot,cold"] {
            assert!(wrong.parse::<HintArgument>().is_err(), "{wrong}");
        }
    }
}
