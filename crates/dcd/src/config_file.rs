//! The configuration file of one device: TOML, the flags of `dcd serve` as keys.
//!
//! ```toml
//! cache-disk = "/dev/nvme0n1p4"
//! data-disk = "/dev/sdb"
//! nbd = ["unix:/run/sdb.sock"]
//! bypass-threshold = "64k"
//! ```
//!
//! Whatever is wrong is told, all of it at once, each in a line with file, line, column and key.
//! Values go through the same parsers as flags, so a size means the same in both.

use std::path::{Path, PathBuf};

use dcd_daemon::http::address::HttpAddress;
use dcd_daemon::serve::UblkNumber;
use dcd_daemon::units_text::{parse_duration, parse_size};
use toml::de::{DeTable, DeValue};

use crate::settings::{Settings, parse_busy_poll, parse_percent, parse_socket_address};
use dcd_files::toml_values::{
    Place, ValueProblem, boolean, choice, list, nearest, number, syntax_error, text, with,
};

/// Every key, in the order of the help text.
pub const KEYS: [&str; 71] = [
    "cache-disk",
    "share",
    "data-disk",
    "nbd",
    "tls-cert",
    "tls-key",
    "tls-ca",
    "tls-allow",
    "tls-read-only",
    "insecure-tcp",
    "tcp-ack",
    "connections-max",
    "fuse",
    "loop",
    "ublk",
    "vhost-user",
    "control",
    "http",
    "http-token",
    "metrics",
    "mode",
    "ack",
    "max-delay",
    "bypass-threshold",
    "destage-policy",
    "ship-within",
    "window-hook",
    "window-hook-timeout",
    "idle-max",
    "idle-min",
    "dirty-high",
    "dirty-low",
    "destage-rate",
    "fill-rate",
    "destage-iops",
    "one-disk",
    "no-verify-reads",
    "no-log",
    "suspect-after",
    "scrub-every",
    "spare-after",
    "volume-memory",
    "index-max",
    "full-timeout",
    "drain-timeout",
    "io-timeout",
    "member-timeout",
    "segment-buffers",
    "read-ahead",
    "sequence-share",
    "no-hot-blocks",
    "no-detect",
    "read-only",
    "witness",
    "memory-directory",
    "nvram",
    "nvram-survives",
    "nvram-policy",
    "nvram-high",
    "nvram-low",
    "nvram-idle",
    "nvram-wear-floor",
    "nvram-group",
    "nvram-bypass",
    "nvram-age-max",
    "cpu",
    "busy-poll",
    "wait",
    "stop-timeout",
    "lock-memory",
    "memory-max",
];

/// Reads the settings in a file.
pub fn read(path: &Path) -> Result<Settings, ConfigFileError> {
    let text = dcd_files::small_file::read_text(path)
        .map_err(|source| ConfigFileError::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// So many problems of a file are told: the file may be of somebody else, and anything.
const PROBLEMS_MAX: usize = 50;

/// The settings in `text`, which came from `path`.
pub fn parse(path: &Path, text: &str) -> Result<Settings, ConfigFileError> {
    let at = |span| Place::new(path, text, span);
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut problems: Vec<(usize, ConfigFileError)> = errors
        .iter()
        .map(|error| {
            let (place, message) = syntax_error(path, text, error);
            (error.span().unwrap_or(0..0).start, ConfigFileError::Syntax { place, message })
        })
        .collect();
    // What follows on a line from the first thing that cannot be read is no problem of its own.
    problems.sort_by_key(|(start, _)| *start);
    problems.dedup_by_key(|(start, _)| line_of(text, *start));
    problems.truncate(PROBLEMS_MAX);
    // What could not be read on a line says nothing about that line's key.
    let bad_lines: Vec<usize> = problems.iter().map(|(start, _)| line_of(text, *start)).collect();
    let mut settings = Settings::default();
    for (key, value) in table.get_ref() {
        if problems.len() >= PROBLEMS_MAX {
            break;
        }
        let name: &str = key.get_ref();
        let start = key.span().start;
        let problem = match set(&mut settings, name, value.get_ref()) {
            Ok(true) => continue,
            _ if bad_lines.contains(&line_of(text, start)) => continue,
            Ok(false) => ConfigFileError::UnknownKey {
                place: at(key.span()),
                key: name.to_owned(),
                nearest: nearest(name, &KEYS),
            },
            Err(problem) => {
                ConfigFileError::Value { place: at(value.span()), key: name.to_owned(), problem }
            }
        };
        problems.push((start, problem));
    }
    problems.sort_by_key(|(start, _)| *start);
    match problems.len() {
        0 => Ok(settings),
        1 => Err(problems.remove(0).1),
        _ => Err(ConfigFileError::Several(
            problems.into_iter().map(|(_, problem)| problem).collect(),
        )),
    }
}

fn line_of(text: &str, start: usize) -> usize {
    text.get(..start).unwrap_or(text).matches('\n').count()
}

/// Names of certificates. A list of nobody would let everybody in.
fn names(value: &DeValue<'_>) -> Result<Vec<String>, ValueProblem> {
    let names: Vec<String> = list(value)?;
    match names.is_empty() {
        true => Err(ValueProblem::Unreadable {
            message: "expected a name at least; without this key every certificate counts".into(),
        }),
        false => Ok(names),
    }
}

/// Sets one key to what somebody has written without the quotes of a file; false when there is no
/// such key.
pub fn set_text(settings: &mut Settings, key: &str, value: &str) -> Result<bool, ValueProblem> {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let value = match value {
        "true" => DeValue::Boolean(true),
        "false" => DeValue::Boolean(false),
        // One that is no number of TOML, such as 007, is as wrong as a word.
        number if is_number => DeValue::parse(number)
            .map_or_else(|_| DeValue::String(number.into()), |value| value.into_inner()),
        text => DeValue::String(text.into()),
    };
    set(settings, key, &value)
}

/// Sets one key; false when there is no such key.
fn set(settings: &mut Settings, key: &str, value: &DeValue<'_>) -> Result<bool, ValueProblem> {
    match key {
        "cache-disk" => settings.cache_disk = list(value)?,
        "share" => settings.share = Some(text(value)?),
        "data-disk" => settings.data_disk = list(value)?,
        "nbd" => settings.nbd = list(value)?,
        "tls-cert" => settings.tls_cert = Some(text(value)?),
        "tls-key" => settings.tls_key = Some(text(value)?),
        "tls-ca" => settings.tls_ca = Some(text(value)?),
        "tls-allow" => settings.tls_allow = names(value)?,
        "tls-read-only" => settings.tls_read_only = names(value)?,
        "insecure-tcp" => settings.insecure_tcp = Some(boolean(value)?),
        "tcp-ack" => settings.tcp_ack = Some(choice(value)?),
        "connections-max" => settings.connections_max = Some(number(value)?),
        "fuse" => settings.fuse = Some(text(value)?),
        "loop" => settings.loop_device = Some(boolean(value)?),
        "ublk" => settings.ublk = ublk(value)?,
        "vhost-user" => settings.vhost_user = Some(text(value)?),
        "control" => settings.control = Some(text(value)?),
        "http" => settings.http = Some(with(value, |text| text.parse::<HttpAddress>())?),
        "http-token" => settings.http_token = Some(text(value)?),
        "metrics" => settings.metrics = Some(with(value, parse_socket_address)?),
        "ack" => settings.ack = Some(choice(value)?),
        "max-delay" => settings.max_delay = Some(with(value, parse_duration)?),
        "bypass-threshold" => settings.bypass_threshold = Some(with(value, parse_size)?),
        "mode" => settings.mode = Some(choice(value)?),
        "destage-policy" => settings.destage_policy = Some(choice(value)?),
        "ship-within" => settings.ship_within = Some(with(value, parse_duration)?),
        "window-hook" => settings.window_hook = Some(text(value)?),
        "window-hook-timeout" => {
            settings.window_hook_timeout = Some(with(value, parse_duration)?);
        }
        "idle-max" => settings.idle_max = Some(with(value, parse_duration)?),
        "idle-min" => settings.idle_min = Some(with(value, parse_duration)?),
        "dirty-high" => settings.dirty_high = Some(with(value, parse_percent)?),
        "dirty-low" => settings.dirty_low = Some(with(value, parse_percent)?),
        "destage-rate" => settings.destage_rate = Some(with(value, parse_size)?),
        "fill-rate" => settings.fill_rate = Some(with(value, parse_size)?),
        "destage-iops" => settings.destage_iops = Some(number(value)?),
        "one-disk" => settings.one_disk = Some(choice(value)?),
        "no-verify-reads" => settings.no_verify_reads = Some(boolean(value)?),
        "no-log" => settings.no_log = Some(boolean(value)?),
        "suspect-after" => settings.suspect_after = Some(number(value)?),
        "scrub-every" => settings.scrub_every = Some(with(value, parse_duration)?),
        "spare-after" => settings.spare_after = Some(with(value, parse_duration)?),
        "index-max" => settings.index_max = Some(with(value, parse_size)?),
        "volume-memory" => settings.volume_memory = Some(with(value, parse_size)?),
        "drain-timeout" => settings.drain_timeout = Some(with(value, parse_duration)?),
        "full-timeout" => settings.full_timeout = Some(with(value, parse_duration)?),
        "io-timeout" => settings.io_timeout = Some(with(value, parse_duration)?),
        "member-timeout" => settings.member_timeout = Some(with(value, parse_duration)?),
        "segment-buffers" => settings.segment_buffers = Some(number(value)?),
        "read-ahead" => settings.read_ahead = Some(with(value, parse_size)?),
        "sequence-share" => settings.sequence_share = Some(with(value, parse_percent)?),
        "no-hot-blocks" => settings.no_hot_blocks = Some(boolean(value)?),
        "no-detect" => settings.no_detect = Some(boolean(value)?),
        "read-only" => settings.read_only = Some(boolean(value)?),
        "witness" => settings.witness = Some(text(value)?),
        "memory-directory" => settings.memory_directory = Some(text(value)?),
        "nvram" => settings.nvram = Some(text(value)?),
        "nvram-survives" => settings.nvram_survives = Some(choice(value)?),
        "nvram-policy" => settings.nvram_policy = Some(choice(value)?),
        "nvram-high" => settings.nvram_high = Some(with(value, parse_percent)?),
        "nvram-low" => settings.nvram_low = Some(with(value, parse_percent)?),
        "nvram-idle" => settings.nvram_idle = Some(with(value, parse_duration)?),
        "nvram-wear-floor" => settings.nvram_wear_floor = Some(with(value, parse_percent)?),
        "nvram-group" => settings.nvram_group = Some(with(value, parse_size)?),
        "nvram-bypass" => settings.nvram_bypass = Some(with(value, parse_size)?),
        "nvram-age-max" => settings.nvram_age_max = Some(with(value, parse_duration)?),
        "cpu" => settings.processor = Some(number(value)?),
        "busy-poll" => settings.busy_poll = Some(with(value, parse_busy_poll)?),
        "wait" => settings.wait = Some(boolean(value)?),
        "stop-timeout" => settings.stop_timeout = Some(with(value, parse_duration)?),
        "lock-memory" => settings.lock_memory = Some(boolean(value)?),
        "memory-max" => settings.memory_max = Some(with(value, parse_size)?),
        // In a file it would be said once and hold for every damage to come.
        "accept-damage" | "trust-disks" | "take-over" | "degraded" | "replace-member"
        | "new-leg" | "without-leg" | "nvram-lost" => {
            return Err(ValueProblem::OnlyOnTheCommandLine);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// `true` for any number, or a number; `false` for none.
fn ublk(value: &DeValue<'_>) -> Result<Option<UblkNumber>, ValueProblem> {
    Ok(match value {
        DeValue::Boolean(wanted) => wanted.then_some(UblkNumber::Any),
        number_or_text => Some(UblkNumber::Number(number(number_or_text)?)),
    })
}

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// It cannot be read.
    #[error("{path}: cannot read the configuration file: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML.
    #[error("{place}: {message}")]
    Syntax {
        /// Where.
        place: Place,
        /// What the TOML parser says.
        message: String,
    },
    /// A key that does not exist.
    #[error("{place}: `{}` is not a setting", key.escape_debug())]
    UnknownKey {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// What may have been meant.
        nearest: Option<&'static str>,
    },
    /// A value that cannot be.
    #[error("{place}: {key}: {problem}")]
    Value {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// What is wrong.
        problem: ValueProblem,
    },
    /// More than one of these, in the order of the file.
    #[error("{}", in_a_line(.0))]
    Several(Vec<ConfigFileError>),
}

fn in_a_line(problems: &[ConfigFileError]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl ConfigFileError {
    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            ConfigFileError::UnknownKey { nearest: Some(nearest), .. } => {
                Some(format!("did you mean `{nearest}`?"))
            }
            ConfigFileError::UnknownKey { .. } => {
                Some("the keys are the flags of `dcd serve --help` without `--`".into())
            }
            ConfigFileError::Value { problem: ValueProblem::Type { .. }, .. } => {
                Some("sizes, times and names stand in quotes: bypass-threshold = \"64k\"".into())
            }
            ConfigFileError::Read { .. } => Some("check the name given with --config".into()),
            ConfigFileError::Value { problem: ValueProblem::OnlyOnTheCommandLine, key, .. } => {
                Some(format!(
                    "take it out of the file, and say --{key} for the start that needs it"
                ))
            }
            ConfigFileError::Value { key, .. } => {
                Some(format!("`dcd serve --help` says under --{key} what it takes"))
            }
            ConfigFileError::Syntax { .. } => Some(
                "a line is KEY = VALUE, with strings in quotes: cache-disk = \"fast.img\"".into(),
            ),
            ConfigFileError::Several(problems) => problems.iter().find_map(ConfigFileError::hint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> (String, Option<String>) {
        let error = parse(Path::new("x.toml"), text).unwrap_err();
        (error.to_string(), error.hint())
    }

    #[test]
    fn every_key_is_known() {
        for key in KEYS {
            let value = DeValue::Boolean(true);
            assert!(!matches!(set(&mut Settings::default(), key, &value), Ok(false)), "{key}");
        }
    }

    #[test]
    fn values_are_read_like_flags() {
        let text = "bypass-threshold = \"64k\"\nidle-max = \"2s\"\nnbd = [\"unix:/a\", \"unix:/b\"]\n\
                    loop = true\nack = \"durable\"\ndirty-high = 70\nsegment-buffers = 8\n";
        let settings = parse(Path::new("x.toml"), text).unwrap();
        assert_eq!(settings.bypass_threshold, Some(64 << 10));
        assert_eq!(settings.idle_max, Some(std::time::Duration::from_secs(2)));
        assert_eq!((settings.nbd.len(), settings.loop_device), (2, Some(true)));
        assert_eq!((settings.dirty_high, settings.segment_buffers), (Some(70), Some(8)));
    }

    #[test]
    fn problems_name_place_and_key_and_help() {
        let (error, hint) = problem("ack = \"log\"\n  bypass_treshold = \"64k\"\n");
        assert_eq!(error, "x.toml:2:3: `bypass_treshold` is not a setting");
        assert_eq!(hint.unwrap(), "did you mean `bypass-threshold`?");
        let (error, _) = problem("bypass-threshold = \"64q\"");
        assert!(error.starts_with("x.toml:1:20: bypass-threshold: "), "{error}");
        let (error, _) = problem("ack = \"disk\"");
        assert!(error.ends_with("`disk` is none of: memory, log, durable, remote"), "{error}");
        let (error, _) = problem("ack = ");
        assert!(error.starts_with("x.toml:1:"), "{error}");
        assert!(!error.contains('\n'));
        let (error, _) = problem("accept-damage = true");
        assert!(error.contains("only for the command line"), "{error}");
        let (error, hint) = problem("fuse = 3");
        assert!(error.ends_with("expected a string, found integer"), "{error}");
        assert!(hint.is_some());
        // What a file says never steers the terminal that shows it.
        assert!(problem("ack = \"\\u001b[2J\"").0.contains("`\\u{1b}[2J` is none of"));
        assert!(problem("\"a\\nb\" = 1").0.contains("`a\\nb` is not a setting"));
        for unlike in ["zzz = 3", "foo = 3"] {
            assert!(!problem(unlike).1.unwrap().contains("did you mean"), "{unlike}");
        }
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let text = "ack = \"log\"\nbypass_threshold = \"64q\"\nmode = \nmax-delay = 5\nzzz = 3\nloop = true\n";
        let Err(ConfigFileError::Several(problems)) = parse(Path::new("x.toml"), text) else {
            panic!("several");
        };
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let lines: Vec<&str> = told.iter().map(|one| &one[..9]).collect();
        assert_eq!(lines, ["x.toml:2:", "x.toml:3:", "x.toml:4:", "x.toml:5:"], "{told:?}");
        assert!(problems.iter().all(|one| one.hint().is_some()), "{told:?}");
        let many: String = (0..1000).map(|n| format!("zzz{n} = 3\n")).collect();
        let Err(ConfigFileError::Several(problems)) = parse(Path::new("x.toml"), &many) else {
            panic!("several");
        };
        assert_eq!(problems.len(), PROBLEMS_MAX);
    }

    #[test]
    fn a_list_of_nobody_lets_nobody_in() {
        for key in ["tls-allow", "tls-read-only"] {
            let error = parse(Path::new("c.toml"), &format!("{key} = []\n")).unwrap_err();
            assert!(error.to_string().contains("a name at least"), "{error}");
            assert!(parse(Path::new("c.toml"), &format!("{key} = \"backup\"\n")).is_ok());
        }
    }
}
