//! The profile of a drive: TOML, one file per drive, and what is wrong with one.
//!
//! `profiles/` holds those that come with dcd, each number with its source. Whatever is wrong with
//! a profile, syntax, a field that does not exist or a geometry that no drive can have, is told in
//! one line with file, line, column and field. The fields are described in `docs/disk-models.md`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use super::price::PriceProfile;
use super::queue::QueuePolicy;

/// A drive as the file describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    /// How it is named in `dcd disk list`, on one line.
    pub title: String,
    /// A drive with an arm.
    pub mechanical: Option<MechanicalProfile>,
    /// A device without.
    pub simple: Option<SimpleProfile>,
    /// What it costs, if that is known.
    pub price: Option<PriceProfile>,
}

/// A drive with an arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MechanicalProfile {
    /// Where the sectors are.
    pub geometry: GeometryProfile,
    /// How the arm moves.
    pub seek: SeekProfile,
    /// What the controller adds.
    #[serde(default)]
    pub controller: ControllerProfile,
    /// How data comes and goes.
    pub bus: BusProfile,
    /// The buffer.
    #[serde(default)]
    pub cache: CacheProfile,
    /// The queue in the drive.
    #[serde(default)]
    pub queue: QueueProfile,
    /// Tracks that overlap.
    pub shingles: Option<ShinglesProfile>,
}

/// Tracks that overlap, so that a band of them is written in order.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShinglesProfile {
    /// Who sees to that.
    pub managed_by: ShinglesManagedBy,
    /// Size of a band, or zone.
    pub band_bytes: u64,
    /// Of a drive that does: the outer part of it, beside what is shown, that takes writes first.
    pub media_cache_bytes: Option<u64>,
    /// How long it takes to clean a band.
    pub clean_band_ms: Option<f64>,
    /// Rest before that begins by itself.
    pub clean_idle_ms: Option<f64>,
    /// Of a drive that leaves it to the host: how much, at its begin, takes writes anywhere.
    pub conventional_bytes: Option<u64>,
}

/// Who sees to it that a band is written in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShinglesManagedBy {
    /// The drive, with a media cache.
    Drive,
    /// The host, with write pointers.
    Host,
}

/// Where the sectors are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeometryProfile {
    /// Size of a sector.
    pub sector_bytes: u32,
    /// Surfaces with data; so many heads.
    pub surfaces: u32,
    /// Turns in a minute.
    pub rpm: f64,
    /// Cylinders that the arm reaches; without it those of the zones.
    pub cylinders: Option<u32>,
    /// Sectors shown, if fewer than the zones hold.
    pub sectors: Option<u64>,
    /// From the outermost.
    pub zone: Vec<ZoneProfile>,
}

/// Cylinders with the same number of sectors in each track. Skews and angles are in sectors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneProfile {
    /// The outermost.
    pub first_cylinder: u32,
    /// The innermost.
    pub last_cylinder: u32,
    /// Spares among them.
    pub sectors_per_track: u32,
    /// From a track to the next of the cylinder.
    pub track_skew: u32,
    /// From the last track of a cylinder to the first of the next.
    pub cylinder_skew: u32,
    /// Angle of the first sector of the zone.
    #[serde(default)]
    pub first_angle: u32,
    /// At the begin of the zone, not shown.
    #[serde(default)]
    pub reserved_sectors: u32,
    /// At the end of each track.
    #[serde(default)]
    pub spares_per_track: u32,
    /// At the end of each group of cylinders.
    #[serde(default)]
    pub spares_per_group: u32,
    /// Cylinders of a group, 1 if not given.
    pub group_cylinders: Option<u32>,
    /// At the end of the zone.
    #[serde(default)]
    pub spare_tracks: u32,
    /// Defective sectors that are passed over, counted from the begin of the zone without spares.
    #[serde(default)]
    pub slips: Vec<u64>,
    /// Tracks that are passed over, counted from the begin of the zone.
    #[serde(default)]
    pub slipped_tracks: Vec<u64>,
}

/// How the arm moves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekProfile {
    /// For the distances that the table does not have.
    pub curve: Option<SeekCurveProfile>,
    /// Distance in cylinders and time; between them is interpolated.
    #[serde(default)]
    pub table_ms: Vec<(u32, f64)>,
    /// From one head to another.
    pub head_switch_ms: f64,
    /// After a seek.
    #[serde(default)]
    pub settle_ms: f64,
    /// More of it before writing.
    #[serde(default)]
    pub write_settle_ms: f64,
    /// A write begins with whatever sector of the track comes first.
    #[serde(default)]
    pub zero_latency_writes: bool,
    /// The same for a read.
    #[serde(default)]
    pub zero_latency_reads: bool,
}

/// A root and a line.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekCurveProfile {
    /// `a` and `b` of `a + b * sqrt(distance)`.
    pub short_ms: [f64; 2],
    /// `c` and `e` of `c + e * distance`.
    pub long_ms: [f64; 2],
    /// First distance of the line.
    pub long_from: u32,
}

/// What the controller adds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControllerProfile {
    /// Before a read that the buffer cannot answer.
    pub read_ms: f64,
    /// The same after a write, if it differs.
    pub read_after_write_ms: Option<f64>,
    /// Before a read that the buffer answers, `read_ms` if not given.
    pub read_hit_ms: Option<f64>,
    /// The same after a write.
    pub read_hit_after_write_ms: Option<f64>,
    /// Before a write.
    pub write_ms: f64,
    /// The same after a write.
    pub write_after_write_ms: Option<f64>,
    /// From the command to the first moment at which the head may read, whatever way it has to go.
    pub read_ready_ms: f64,
    /// The same for writing.
    pub write_ready_ms: f64,
    /// After the last byte was read.
    pub read_completion_ms: f64,
    /// After the last sector was written.
    pub write_completion_ms: f64,
}

/// How data comes and goes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusProfile {
    /// Speed.
    pub bytes_per_second: f64,
    /// To get the bus.
    #[serde(default)]
    pub acquisition_ms: f64,
    /// When data that is read from the platters begins to go out.
    #[serde(default)]
    pub read_start: ReadStart,
    /// For `fraction`: how much of the request must be there.
    #[serde(default)]
    pub read_fraction: f64,
}

/// When data that is read begins to go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadStart {
    /// With the first sector.
    #[default]
    FirstSector,
    /// When so much is there that the rest comes in time.
    Fraction,
    /// When the head leaves a track, or all has been read.
    Crossing,
    /// When all has been read.
    All,
}

/// The buffer of the drive.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheProfile {
    /// Parts that hold one stretch of sectors each; 0: nothing is kept.
    pub segments: u32,
    /// Size of each.
    pub segment_sectors: u32,
    /// How far reading goes on behind a request.
    pub read_ahead_sectors: u32,
    /// What ends reading ahead before that.
    pub read_ahead_end: ReadAheadEnd,
    /// Reading ahead begins after a hit too.
    pub read_ahead_on_hit: bool,
    /// What was written can be read from the buffer.
    pub keeps_writes: bool,
    /// Writes are reported when the buffer has them.
    pub immediate_report: bool,
    /// So many that are not on the platters yet.
    pub immediate_writes: u32,
}

/// What ends reading ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadAheadEnd {
    /// Nothing but its length.
    #[default]
    None,
    /// The end of the track that the request ends in.
    Track,
    /// The end of that cylinder.
    Cylinder,
}

/// The queue in the drive.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueProfile {
    /// Who is next.
    pub policy: QueuePolicy,
    /// How many the drive looks at.
    pub depth: u32,
    /// Age at which `weighted-satf` takes a request next whatever it costs.
    #[serde(default = "age_max_default")]
    pub age_max_ms: f64,
}

fn age_max_default() -> f64 {
    500.0
}

impl Default for QueueProfile {
    fn default() -> QueueProfile {
        QueueProfile { policy: QueuePolicy::Fcfs, depth: 1, age_max_ms: age_max_default() }
    }
}

/// A device without an arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimpleProfile {
    /// Size.
    pub capacity_bytes: u64,
    /// Requests at the same time.
    pub channels: u32,
    /// Median of a small read, and how much its slowest hundredth takes.
    pub read_us: LatencyProfile,
    /// The same for writes.
    pub write_us: LatencyProfile,
    /// Speed of reads, over all channels.
    pub read_bytes_per_second: f64,
    /// The same for writes.
    pub write_bytes_per_second: f64,
    /// Most of these that one request has.
    pub request_bytes_per_second: Option<f64>,
    /// Requests per second that are let through; without it, as fast as they can.
    pub iops_max: Option<f64>,
    /// So many above that, as long as there are credits: a new device has all, and what is not
    /// used of `iops_max` is saved up.
    #[serde(default)]
    pub iops_burst: f64,
    /// Requests per second while credits are spent; without it, as fast as they can.
    pub iops_burst_max: Option<f64>,
    /// Bytes per second that are let through, reads and writes together; without it, as fast as
    /// they can.
    pub bytes_per_second_max: Option<f64>,
    /// So many bytes above that, from credits.
    #[serde(default)]
    pub bytes_burst: f64,
    /// So many bytes are written at `write_bytes_per_second`, what is more at the speed of
    /// `write_bytes_per_second_beyond`: the part of flash that has one bit in each cell. It is
    /// emptied at that speed while nothing is written.
    pub write_cache_bytes: Option<f64>,
    /// See `write_cache_bytes`.
    pub write_bytes_per_second_beyond: Option<f64>,
    /// How much may be written in its life, in units of 10^12 bytes (TBW), as the data sheet says.
    pub endurance_tbw: Option<f64>,
    /// A bucket: what a log writes there is packed into objects, as `docs/s3.md` says. Without a
    /// log each write is a PUT, each read a GET.
    #[serde(default)]
    pub is_object_store: bool,
}

/// How long a small request takes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyProfile {
    /// Half of them take less.
    pub median: f64,
    /// One in a hundred takes longer.
    pub p99: f64,
}

/// A field that cannot be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldProblem {
    /// Which: `geometry.zone[2].last_cylinder`.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

impl FieldProblem {
    /// A problem of `field`.
    pub fn new(field: &str, message: String) -> FieldProblem {
        FieldProblem { field: field.to_owned(), message }
    }

    /// The same, seen from outside the table `outer`.
    pub fn inside(self, outer: &str) -> FieldProblem {
        FieldProblem { field: format!("{outer}.{}", self.field), ..self }
    }
}

/// What is wrong with a profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It cannot be read.
    #[error("{}: cannot read the disk profile: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML, or has other fields.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What the TOML parser says.
        message: String,
    },
    /// A field that cannot be.
    #[error("{}:{line}:{column}: {field}: {message}", path.display())]
    Field {
        /// Which file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// Which field.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// No profile of that name.
    #[error("there is no disk profile `{}`", name.escape_debug())]
    Unknown {
        /// The name.
        name: String,
    },
}

impl ProfileError {
    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            ProfileError::Unknown { .. } => {
                let names: Vec<&str> = super::profiles::all().map(|(name, _)| name).collect();
                let names = names.join(", ");
                Some(format!("one of `dcd disk list`: {names}; or the path of a .toml file"))
            }
            ProfileError::Read { .. } => {
                Some("check the name; `dcd disk list` lists the profiles that come with dcd".into())
            }
            ProfileError::Syntax { .. } | ProfileError::Field { .. } => {
                Some("docs/disk-models.md describes the fields".into())
            }
        }
    }
}

/// Most bytes of a profile: more is no profile.
const PROFILE_BYTES_MAX: u64 = 4 << 20;

impl Profile {
    /// Reads the profile of that name, or in that file.
    ///
    /// # Errors
    /// When there is none, or it describes no drive.
    pub fn load(name_or_path: &str) -> Result<Profile, ProfileError> {
        if let Some((_, text)) = super::profiles::find(name_or_path) {
            return Profile::parse(Path::new(name_or_path), text);
        }
        let path = Path::new(name_or_path);
        let is_path = name_or_path.ends_with(".toml") || name_or_path.contains('/');
        if !is_path && !path.exists() {
            return Err(ProfileError::Unknown { name: name_or_path.to_owned() });
        }
        Profile::parse(path, &read_text(path)?)
    }

    /// The profile in `text`, which came from `path`. It has been checked: a model can be made of
    /// it.
    ///
    /// # Errors
    /// When it describes no drive.
    pub fn parse(path: &Path, text: &str) -> Result<Profile, ProfileError> {
        let profile: Profile = toml::from_str(text).map_err(|error: toml::de::Error| {
            let (line, column) = position(text, error.span().map_or(0, |span| span.start));
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            ProfileError::Syntax { path: path.to_owned(), line, column, message }
        })?;
        profile.check().map_err(|problem| {
            let (line, column) = position(text, offset_of(text, &problem.field).unwrap_or(0));
            let FieldProblem { field, message } = problem;
            ProfileError::Field { path: path.to_owned(), line, column, field, message }
        })?;
        Ok(profile)
    }

    /// Whether it is a bucket.
    pub fn is_object_store(&self) -> bool {
        self.simple.as_ref().is_some_and(|simple| simple.is_object_store)
    }

    /// Whether it is a drive with shingles that takes writes in order only.
    pub fn is_host_managed(&self) -> bool {
        let shingles = self.mechanical.as_ref().and_then(|mechanical| mechanical.shingles);
        shingles.is_some_and(|it| it.managed_by == ShinglesManagedBy::Host)
    }

    fn check(&self) -> Result<(), FieldProblem> {
        if let Some(price) = &self.price {
            price.check().map_err(|problem| problem.inside("price"))?;
        }
        match (&self.mechanical, &self.simple) {
            (Some(mechanical), None) => super::drive::Drive::new(mechanical, 0)
                .and_then(|drive| {
                    let geometry = &drive.mechanism().geometry;
                    let (sectors, size) = (geometry.sectors(), geometry.sector_bytes());
                    let shingles = mechanical.shingles.as_ref();
                    shingles.map_or(Ok(()), |it| {
                        let shingles = super::shingled::Shingles::new(it, sectors, size);
                        shingles.map(drop).map_err(|problem| problem.inside("shingles"))
                    })
                })
                .map_err(|problem| problem.inside("mechanical")),
            (None, Some(simple)) => super::simple::SimpleDevice::new(simple, 0)
                .map(drop)
                .map_err(|problem| problem.inside("simple")),
            _ => Err(FieldProblem::new(
                "title",
                "a profile has either [mechanical] or [simple]".to_owned(),
            )),
        }
    }
}

/// The text of the profile of that name, or in that file.
///
/// # Errors
/// When there is none.
pub fn text_of(name_or_path: &str) -> Result<String, ProfileError> {
    match super::profiles::find(name_or_path) {
        Some((_, text)) => Ok(text.to_owned()),
        None => read_text(Path::new(name_or_path)),
    }
}

/// The text of a profile with another number in a field, marked `[fit]`; the rest is as it was.
/// `None`: it is written in a way that this cannot change.
pub fn with_number(text: &str, field: &str, value: f64) -> Option<String> {
    let (table, key) = field.rsplit_once('.')?;
    if let Some(span) = span_of(text, field) {
        let end_of_line = text[span.end..].find('\n').map_or(text.len(), |at| span.end + at);
        // Marks behind other numbers of the line would not be true of this one.
        let rest = text[span.end..end_of_line].split('#').next().unwrap_or("").trim_end();
        let (before, after) = (&text[..span.start], &text[end_of_line..]);
        return Some(format!("{before}{value}{rest} # [fit]{after}"));
    }
    if span_of(text, table).is_none() {
        return Some(format!("{}\n\n[{table}]\n{key} = {value} # [fit]\n", text.trim_end()));
    }
    let header = format!("[{table}]");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = lines.iter().position(|line| line.split('#').next().unwrap_or("").trim() == header)?;
    lines.insert(at + 1, format!("{key} = {value} # [fit]"));
    Some(lines.join("\n") + "\n")
}

fn read_text(path: &Path) -> Result<String, ProfileError> {
    use std::io::Read;
    let failed = |source| ProfileError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        // A pipe would be waited for.
        return Err(failed(std::io::Error::other("expected a file, found something else")));
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(PROFILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > PROFILE_BYTES_MAX {
        let message = format!("longer than {PROFILE_BYTES_MAX} bytes");
        return Err(failed(std::io::Error::new(std::io::ErrorKind::InvalidData, message)));
    }
    Ok(text)
}

/// Line and column of a byte, from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

/// Where the value of a field is that is there.
fn span_of(text: &str, field: &str) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    let (first, rest) = field.split_once('.').unwrap_or((field, ""));
    let mut value = table.get_ref().get(first)?;
    for step in rest.split('.').filter(|step| !step.is_empty()) {
        value = value.get_ref().as_table()?.get(step)?;
    }
    Some(value.span())
}

/// Where the value of `field` begins, or that of the innermost table around it that is there.
fn offset_of(text: &str, field: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let mut steps = field.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    let mut value = table.get_ref().get(steps.next()?)?;
    for step in steps {
        let inner = match value.get_ref() {
            DeValue::Table(table) => table.get(step),
            DeValue::Array(array) => step.parse::<usize>().ok().and_then(|index| array.get(index)),
            _ => None,
        };
        match inner {
            Some(inner) => value = inner,
            None => break,
        }
    }
    Some(value.span().start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
title = "small"
[mechanical.geometry]
sector_bytes = 512
surfaces = 2
rpm = 6000
[[mechanical.geometry.zone]]
first_cylinder = 0
last_cylinder = 99
sectors_per_track = 50
track_skew = 5
cylinder_skew = 9
[mechanical.seek]
curve = { short_ms = [1.0, 0.1], long_ms = [1.5, 0.01], long_from = 50 }
head_switch_ms = 0.5
[mechanical.bus]
bytes_per_second = 10e6
"#;

    fn refused(text: &str) -> String {
        let error = Profile::parse(Path::new("x.toml"), text).unwrap_err();
        assert!(error.hint().is_some());
        let shown = error.to_string();
        assert!(!shown.contains('\n'), "{shown}");
        shown
    }

    #[test]
    fn what_is_wrong_is_told_with_file_line_column_and_field() {
        assert!(Profile::parse(Path::new("x.toml"), SMALL).is_ok());
        let shown = refused(&SMALL.replace("last_cylinder = 99", "last_cylinder = 9999999"));
        assert!(
            shown.starts_with("x.toml:9:17: mechanical.geometry.zone[0].last_cylinder: 9999999"),
            "{shown}"
        );
        let shown = refused(&SMALL.replace("short_ms = [1.0, 0.1]", "short_ms = [-9.0, 0.1]"));
        assert!(shown.starts_with("x.toml:14:9: mechanical.seek.curve: "), "{shown}");
        let shown = refused(&SMALL.replace("surfaces", "surfacs"));
        assert!(shown.starts_with("x.toml:5:1: unknown field `surfacs`"), "{shown}");
        let shown = refused(&SMALL.replace("rpm = 6000", "rpm = \"fast\""));
        assert!(shown.starts_with("x.toml:6:7: "), "{shown}");
        let shown = refused(&SMALL.replace("10e6", "0"));
        assert!(shown.starts_with("x.toml:17:20: mechanical.bus.bytes_per_second"), "{shown}");
        assert!(refused("title = ").starts_with("x.toml:1:"));
        assert!(refused("title = \"neither\"").contains("either [mechanical] or [simple]"));
    }

    #[test]
    fn a_number_is_changed_and_nothing_else() {
        let changed = |text: &str, field: &str| {
            let changed = with_number(text, field, 3.25).unwrap();
            assert!(Profile::parse(Path::new("x.toml"), &changed).is_ok(), "{changed}");
            let is_new = |line: &&str| !text.lines().any(|old| old == *line);
            changed.lines().filter(is_new).collect::<Vec<_>>().join("|")
        };
        assert_eq!(
            changed(SMALL, "mechanical.seek.head_switch_ms"),
            "head_switch_ms = 3.25 # [fit]"
        );
        // Not there yet, in a table that is, and in one that is not.
        assert_eq!(changed(SMALL, "mechanical.seek.settle_ms"), "settle_ms = 3.25 # [fit]");
        assert_eq!(
            changed(SMALL, "mechanical.controller.read_ms"),
            "[mechanical.controller]|read_ms = 3.25 # [fit]"
        );
        let ssd = include_str!("../../profiles/sata-ssd.toml");
        let line = changed(ssd, "simple.read_us.median");
        assert!(line.starts_with("read_us = { median = 3.25, p99 = "), "{line}");
        assert!(line.ends_with("} # [fit]"), "{line}");
    }

    #[test]
    fn no_number_in_its_fields_makes_it_panic() {
        let numbers =
            ["0", "1", "-1", "4294967295", "1e300", "-1e300", "nan", "inf", "0.5", "65537"];
        let full = include_str!("../../profiles/hp-2200a.toml");
        for text in [SMALL, full] {
            for (index, _) in text.match_indices(" = ") {
                let end = index + text[index..].find('\n').unwrap();
                for number in numbers {
                    let changed = format!("{} = {number}{}", &text[..index], &text[end..]);
                    if let Ok(profile) = Profile::parse(Path::new("x.toml"), &changed) {
                        let mut model = super::super::model::DiskModel::new(&profile, 1).unwrap();
                        serve_some(&mut model);
                    }
                }
            }
        }
    }

    fn serve_some(model: &mut super::super::model::DiskModel) {
        use super::super::model::{DiskOperation, DiskRequest};
        let end = model.capacity_bytes();
        let mut now = dcd_engine::Time::ZERO;
        for (operation, offset_bytes) in [
            (DiskOperation::Write, end - 512),
            (DiskOperation::Read, 0),
            (DiskOperation::Read, 512),
        ] {
            let size_bytes = 512.min(end - offset_bytes);
            let request = DiskRequest { id: 0, operation, offset_bytes, size_bytes };
            now = model.serve(now, request).unwrap().completed;
        }
    }

    #[test]
    fn names_that_are_not_there_are_told_apart_from_files() {
        assert!(matches!(Profile::load("hp-9999"), Err(ProfileError::Unknown { .. })));
        assert!(matches!(Profile::load("./hp-9999.toml"), Err(ProfileError::Read { .. })));
    }
}
