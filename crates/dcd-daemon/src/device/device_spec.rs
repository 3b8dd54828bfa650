//! How a disk is named on the command line.
//!
//! ```text
//! /dev/sdb                                     a block device or a regular file
//! nbd://host/export                            an export of an NBD server (device/network)
//! nbd+unix:///export?socket=/run/nbd           the same at a unix socket
//! slow:disk.img,read=8ms,write=8ms,flush=0ms   a file behind one slow arm (also sector=512)
//! model:hp-97560:disk.img                      a file as slow as a modelled drive
//! faulty:SPEC,control=faults.txt               any of these, with faults on command
//! ```
//!
//! Settings are read from the right, so a file name may contain commas. A file whose name begins
//! with `slow:` is written `./slow:...`. The profile of a modelled drive is one of `dcd disk list`
//! or the path of a TOML file without a colon.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::device::network::{UriError, uri_of};
use crate::units_text::{UnitError, format_duration, parse_duration};

/// Times and sectors of a slow arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowTimes {
    /// Each read takes so long.
    pub read: Duration,
    /// Each write (and each write of zeroes) takes so long.
    pub write: Duration,
    /// Each flush takes so long.
    pub flush: Duration,
    /// Bytes of a physical sector: 512, as the disks of the papers, or 4096. A write of part of a
    /// sector takes a read more, as on a drive that has to read the rest first.
    pub sector_bytes: u32,
}

/// A disk, as the user names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceSpec {
    /// A regular file, block device, or network disk as it is. The name of that is a URI.
    Plain(PathBuf),
    /// The same behind one arm that serves one request at a time.
    Slow {
        /// Where the bytes are.
        path: PathBuf,
        /// How slow.
        times: SlowTimes,
    },
    /// The same in the times of a disk model.
    Model {
        /// Name or path of its profile.
        profile: String,
        /// Where the bytes are.
        path: PathBuf,
    },
    /// Another disk that fails when its control file says so; for drills and tests.
    Faulty {
        /// The disk.
        inner: Box<DeviceSpec>,
        /// The file that holds the rules; see [`crate::disk::fault_rules`].
        control: PathBuf,
    },
}

/// A device spec that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeviceSpecError {
    /// No path.
    #[error("expected {expected}, found nothing in {spec:?}")]
    NoPath {
        /// What should be there.
        expected: &'static str,
        /// The whole spec.
        spec: String,
    },
    /// A needed setting is missing.
    #[error("expected {expected} in {spec:?}, found none")]
    Missing {
        /// Which setting.
        expected: &'static str,
        /// The whole spec.
        spec: String,
    },
    /// A setting given twice.
    #[error("expected {key}= once in {spec:?}, found it twice")]
    Twice {
        /// Which setting.
        key: &'static str,
        /// The whole spec.
        spec: String,
    },
    /// A time that cannot be read.
    #[error("{key}= in {spec:?}: {source}")]
    Time {
        /// Which setting.
        key: &'static str,
        /// The whole spec.
        spec: String,
        /// What is wrong.
        source: UnitError,
    },
    /// A sector size that no disk has.
    #[error("sector= in {spec:?}: expected 512 or 4096, found {found:?}")]
    Sector {
        /// What stands there.
        found: String,
        /// The whole spec.
        spec: String,
    },
    /// It is meant to be a network disk.
    #[error("{spec:?}: {source}")]
    Uri {
        /// What is wrong.
        source: UriError,
        /// The whole spec.
        spec: String,
    },
    /// Faulty inside faulty, or something else in the place of a path.
    #[error("expected {expected} in {spec:?}, found {found:?}")]
    Nested {
        /// What may stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
        /// The whole spec.
        spec: String,
    },
}

impl DeviceSpecError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            DeviceSpecError::Time { source, .. } => {
                source.hint().unwrap_or_else(|| "times are written like 8ms, 50us or 1s".to_owned())
            }
            DeviceSpecError::Uri { source, .. } => source.hint(),
            DeviceSpecError::Missing { expected: "control=PATH", .. } => {
                "a faulty disk is written faulty:SPEC,control=PATH, for example \
                 faulty:/dev/sdb,control=/tmp/faults"
                    .to_owned()
            }
            DeviceSpecError::Nested { .. } => {
                "only slow:FILE,..., model:PROFILE:FILE or a path may stand inside faulty:".to_owned()
            }
            _ => "a disk is a path, or nbd://HOST/EXPORT, or slow:FILE,read=8ms,write=8ms[,flush=0ms][,sector=512], or \
                 model:PROFILE:FILE, or faulty:SPEC,control=PATH; a file whose name begins like that is written ./NAME"
                .to_owned(),
        }
    }
}

impl DeviceSpec {
    /// The file or block device that holds the bytes.
    pub fn path(&self) -> &Path {
        match self {
            DeviceSpec::Plain(path)
            | DeviceSpec::Slow { path, .. }
            | DeviceSpec::Model { path, .. } => path,
            DeviceSpec::Faulty { inner, .. } => inner.path(),
        }
    }

    /// The same with other bytes.
    pub fn with_path(&self, path: PathBuf) -> DeviceSpec {
        match self {
            DeviceSpec::Plain(_) => DeviceSpec::Plain(path),
            DeviceSpec::Slow { times, .. } => DeviceSpec::Slow { path, times: *times },
            DeviceSpec::Model { profile, .. } => {
                DeviceSpec::Model { profile: profile.clone(), path }
            }
            DeviceSpec::Faulty { inner, control } => DeviceSpec::Faulty {
                inner: Box::new(inner.with_path(path)),
                control: control.clone(),
            },
        }
    }

    /// The same for a process with another working directory.
    pub fn absolute(&self) -> DeviceSpec {
        // Only the empty path has no absolute form, and the working directory may be gone.
        let absolute = |path: &Path| match uri_of(path) {
            Some(Ok(uri)) => uri.absolute().to_string().into(),
            _ => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        };
        match self {
            DeviceSpec::Plain(path) => DeviceSpec::Plain(absolute(path)),
            DeviceSpec::Slow { path, times } => {
                DeviceSpec::Slow { path: absolute(path), times: *times }
            }
            DeviceSpec::Model { profile, path } => {
                DeviceSpec::Model { profile: profile.clone(), path: absolute(path) }
            }
            DeviceSpec::Faulty { inner, control } => {
                DeviceSpec::Faulty { inner: Box::new(inner.absolute()), control: absolute(control) }
            }
        }
    }

    /// How slow it is, if it is a slow disk.
    pub fn slow_times(&self) -> Option<SlowTimes> {
        match self {
            DeviceSpec::Plain(_) | DeviceSpec::Model { .. } => None,
            DeviceSpec::Slow { times, .. } => Some(*times),
            DeviceSpec::Faulty { inner, .. } => inner.slow_times(),
        }
    }

    /// Name or path of its profile, if it is a modelled disk.
    pub fn model_profile(&self) -> Option<&str> {
        match self {
            DeviceSpec::Plain(_) | DeviceSpec::Slow { .. } => None,
            DeviceSpec::Model { profile, .. } => Some(profile),
            DeviceSpec::Faulty { inner, .. } => inner.model_profile(),
        }
    }

    /// Whether it stands for a disk other than the one where its file lies.
    pub fn is_slowed(&self) -> bool {
        self.slow_times().is_some() || self.model_profile().is_some()
    }

    /// The control file, if it is a faulty disk.
    pub fn fault_control(&self) -> Option<&Path> {
        match self {
            DeviceSpec::Faulty { control, .. } => Some(control),
            _ => None,
        }
    }
}

/// A key and its value.
type Setting<'t> = (&'static str, &'t str);

/// Cuts `,key=value` off the end of `text` while the key is one of `keys`.
fn cut_settings<'t>(
    mut text: &'t str,
    keys: &[&'static str],
    spec: &str,
) -> Result<(&'t str, Vec<Setting<'t>>), DeviceSpecError> {
    let mut settings: Vec<Setting<'t>> = Vec::new();
    while let Some((rest, last)) = text.rsplit_once(',') {
        let Some((key, value)) = last.split_once('=') else { break };
        let Some(key) = keys.iter().find(|k| **k == key) else { break };
        if settings.iter().any(|(k, _)| k == key) {
            return Err(DeviceSpecError::Twice { key, spec: spec.to_owned() });
        }
        settings.push((key, value));
        text = rest;
    }
    Ok((text, settings))
}

fn parse_slow(rest: &str, spec: &str) -> Result<DeviceSpec, DeviceSpecError> {
    let (path, settings) = cut_settings(rest, &["read", "write", "flush", "sector"], spec)?;
    if path.is_empty() {
        return Err(DeviceSpecError::NoPath { expected: "slow:FILE", spec: spec.to_owned() });
    }
    let time = |key: &'static str| {
        let Some((_, value)) = settings.iter().find(|(k, _)| *k == key) else { return Ok(None) };
        parse_duration(value).map(Some).map_err(|source| DeviceSpecError::Time {
            key,
            spec: spec.to_owned(),
            source,
        })
    };
    let sector_bytes = match settings.iter().find(|(k, _)| *k == "sector") {
        None | Some((_, "512")) => 512,
        Some((_, "4096" | "4k")) => 4096,
        Some((_, found)) => {
            let found = (*found).to_owned();
            return Err(DeviceSpecError::Sector { found, spec: spec.to_owned() });
        }
    };
    let missing = |expected| DeviceSpecError::Missing { expected, spec: spec.to_owned() };
    let times = SlowTimes {
        read: time("read")?.ok_or_else(|| missing("read=TIME"))?,
        write: time("write")?.ok_or_else(|| missing("write=TIME"))?,
        flush: time("flush")?.unwrap_or(Duration::ZERO),
        sector_bytes,
    };
    Ok(DeviceSpec::Slow { path: disk_name(path, spec)?, times })
}

fn parse_model(rest: &str, spec: &str) -> Result<DeviceSpec, DeviceSpecError> {
    match rest.split_once(':') {
        Some((profile, path)) if !profile.is_empty() && !path.is_empty() => {
            Ok(DeviceSpec::Model { profile: profile.to_owned(), path: disk_name(path, spec)? })
        }
        _ => Err(DeviceSpecError::NoPath { expected: "model:PROFILE:FILE", spec: spec.to_owned() }),
    }
}

fn parse_faulty(rest: &str, spec: &str) -> Result<DeviceSpec, DeviceSpecError> {
    let (inner, settings) = cut_settings(rest, &["control"], spec)?;
    let control = match settings.first() {
        Some((_, control)) if !control.is_empty() => PathBuf::from(control),
        _ => {
            return Err(DeviceSpecError::Missing {
                expected: "control=PATH",
                spec: spec.to_owned(),
            });
        }
    };
    if inner.starts_with("faulty:") {
        return Err(DeviceSpecError::Nested {
            expected: "a path or slow:FILE,...",
            found: inner.to_owned(),
            spec: spec.to_owned(),
        });
    }
    Ok(DeviceSpec::Faulty { inner: Box::new(inner.parse()?), control })
}

impl FromStr for DeviceSpec {
    type Err = DeviceSpecError;

    fn from_str(spec: &str) -> Result<DeviceSpec, DeviceSpecError> {
        if spec.is_empty() {
            return Err(DeviceSpecError::NoPath {
                expected: "the path of a disk",
                spec: spec.to_owned(),
            });
        }
        if let Some(rest) = spec.strip_prefix("slow:") {
            return parse_slow(rest, spec);
        }
        if let Some(rest) = spec.strip_prefix("model:") {
            return parse_model(rest, spec);
        }
        if let Some(rest) = spec.strip_prefix("faulty:") {
            return parse_faulty(rest, spec);
        }
        Ok(DeviceSpec::Plain(disk_name(spec, spec)?))
    }
}

/// A path, or a URI as it is always written.
fn disk_name(name: &str, spec: &str) -> Result<PathBuf, DeviceSpecError> {
    match uri_of(Path::new(name)) {
        None => Ok(name.into()),
        Some(Ok(uri)) => Ok(uri.to_string().into()),
        Some(Err(source)) => Err(DeviceSpecError::Uri { source, spec: spec.to_owned() }),
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::Plain(path) => {
                // A path that begins like a spec is written so that it is read back as a path.
                let text = path.to_string_lossy();
                let prefix =
                    ["slow:", "model:", "faulty:"].iter().any(|kind| text.starts_with(kind));
                write!(f, "{}{text}", if prefix { "./" } else { "" })
            }
            DeviceSpec::Slow { path, times } => write!(
                f,
                "slow:{},read={},write={},flush={},sector={}",
                path.display(),
                exact_duration(times.read),
                exact_duration(times.write),
                exact_duration(times.flush),
                times.sector_bytes
            ),
            DeviceSpec::Model { profile, path } => write!(f, "model:{profile}:{}", path.display()),
            DeviceSpec::Faulty { inner, control } => {
                write!(f, "faulty:{inner},control={}", control.display())
            }
        }
    }
}

/// A duration as it is shown to people, unless that is rounded: what is shown here is read again.
fn exact_duration(duration: Duration) -> String {
    let text = format_duration(duration);
    match parse_duration(&text) {
        Ok(same) if same == duration => text,
        _ => format!("{}ns", duration.as_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(path: &str, read: u64, write: u64, flush: u64) -> DeviceSpec {
        DeviceSpec::Slow {
            path: path.into(),
            times: SlowTimes {
                read: Duration::from_millis(read),
                write: Duration::from_millis(write),
                flush: Duration::from_millis(flush),
                sector_bytes: 512,
            },
        }
    }

    #[test]
    fn every_form_is_read_and_written_back() {
        let plain = DeviceSpec::Plain("/dev/sdb".into());
        let model = DeviceSpec::Model { profile: "hp-97560".into(), path: "d:1,x.img".into() };
        let faulty = |inner: &DeviceSpec| DeviceSpec::Faulty {
            inner: Box::new(inner.clone()),
            control: "/tmp/f".into(),
        };
        for (text, spec) in [
            ("/dev/sdb", plain.clone()),
            ("a,b.img", DeviceSpec::Plain("a,b.img".into())),
            ("slow:d.img,read=8ms,write=9ms", slow("d.img", 8, 9, 0)),
            ("slow:d,x=1.img,write=9ms,flush=2ms,read=8ms", slow("d,x=1.img", 8, 9, 2)),
            ("slow:d,sector=512,read=8ms,write=9ms", slow("d", 8, 9, 0)),
            ("faulty:/dev/sdb,control=/tmp/f", faulty(&plain)),
            ("model:hp-97560:d:1,x.img", model.clone()),
            ("faulty:model:hp-97560:d:1,x.img,control=/tmp/f", faulty(&model)),
            ("faulty:slow:d,read=1ms,write=2ms,control=/tmp/f", faulty(&slow("d", 1, 2, 0))),
        ] {
            assert_eq!(text.parse(), Ok(spec.clone()), "{text}");
            assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }

    #[test]
    fn times_are_written_back_exactly() {
        let spec: DeviceSpec = "slow:d,read=1.2345678ms,write=5ms".parse().unwrap();
        assert_eq!(spec.to_string(), "slow:d,read=1234567ns,write=5ms,flush=0s,sector=512");
        let spec: DeviceSpec = "slow:d,read=1.234567s,write=5ms".parse().unwrap();
        assert_eq!(spec.to_string().parse(), Ok(spec));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<DeviceSpec>().unwrap_err();
        assert!(matches!(error(""), DeviceSpecError::NoPath { .. }));
        assert!(matches!(error("slow:,read=1ms,write=1ms"), DeviceSpecError::NoPath { .. }));
        for text in ["model:", "model:hp-97560", "model:hp-97560:", "model::d"] {
            let expected = "model:PROFILE:FILE";
            let spec = text.to_owned();
            assert_eq!(error(text), DeviceSpecError::NoPath { expected, spec });
        }
        assert!(matches!(
            error("slow:d,read=1ms"),
            DeviceSpecError::Missing { expected: "write=TIME", .. }
        ));
        assert!(matches!(
            error("slow:d,read=1ms,read=2ms,write=1ms"),
            DeviceSpecError::Twice { key: "read", .. }
        ));
        let time = error("slow:d,read=8,write=1ms");
        assert!(matches!(time, DeviceSpecError::Time { key: "read", .. }));
        assert!(time.hint().contains("8ms"));
        assert!(matches!(
            error("slow:d,read=8ms,write=1ms,sector=520"),
            DeviceSpecError::Sector { .. }
        ));
        assert!(matches!(error("faulty:d"), DeviceSpecError::Missing { .. }));
        assert!(matches!(
            error("faulty:faulty:d,control=a,control=b"),
            DeviceSpecError::Twice { .. }
        ));
        assert!(matches!(error("faulty:faulty:d,control=a"), DeviceSpecError::Nested { .. }));
    }

    #[test]
    fn a_file_named_like_a_spec_can_be_meant() {
        let spec: DeviceSpec = "./slow:x".parse().unwrap();
        assert_eq!(spec, DeviceSpec::Plain("./slow:x".into()));
        assert_eq!(DeviceSpec::Plain("slow:x".into()).to_string(), "./slow:x");
    }
}
