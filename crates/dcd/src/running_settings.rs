//! The settings of a daemon that serves: what was said at the start, in the file, and since.
//!
//! What `dcd set` has said counts most, then the flags, then the file. Those in [`CHANGEABLE`] are
//! changed in the cache that runs; of the others a daemon knows what it was started with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dcd_daemon::control::settings::{Apply, ReadAgain, SettingsBook};
use dcd_daemon::ring::busy_poll::BusyPollMax;
use dcd_daemon::serve::UblkNumber;
use dcd_engine::{DestagePolicyKind, EngineConfig};
use dcd_protocol::settings::{SettingOrigin, SettingReport, WantedSettings};
use dcd_protocol::{Code, Failure};

use crate::config_file::{self, KEYS};
use crate::settings::{AckArgument, PolicyArgument, Settings};
use dcd_files::toml_values::nearest;

/// What may change while a cache is served; the same as in [`dcd_engine::Engine::configure`].
pub const CHANGEABLE: [&str; 23] = [
    "mode",
    "read-only",
    "ack",
    "max-delay",
    "bypass-threshold",
    "destage-policy",
    "ship-within",
    "idle-max",
    "idle-min",
    "dirty-high",
    "dirty-low",
    "destage-rate",
    "fill-rate",
    "destage-iops",
    "no-verify-reads",
    "suspect-after",
    "scrub-every",
    "spare-after",
    "volume-memory",
    "full-timeout",
    "drain-timeout",
    "io-timeout",
    "member-timeout",
];

/// The settings of one daemon.
pub struct RunningSettings {
    path: Option<PathBuf>,
    flags: Settings,
    /// The file as it was at the start.
    file_at_start: Settings,
    /// As it was read last.
    file: Settings,
    /// What was set since, as it was written.
    set: WantedSettings,
    /// How often the mode was set.
    mode_asked: u64,
    defaults: BTreeMap<String, String>,
}

impl RunningSettings {
    /// At the start.
    pub fn new(path: Option<PathBuf>, flags: Settings, file: Settings) -> RunningSettings {
        let (file_at_start, set) = (file.clone(), WantedSettings::new());
        RunningSettings {
            path,
            flags,
            file_at_start,
            file,
            set,
            mode_asked: 0,
            defaults: defaults(),
        }
    }

    /// What counts, with these two.
    fn all(&self, set: &WantedSettings, file: &Settings) -> Result<Settings, Box<Failure>> {
        let mut on_top = Settings::default();
        for (key, text) in set {
            let known = config_file::set_text(&mut on_top, key, text).map_err(|problem| {
                refusal(
                    Code::BadSetting,
                    format!("{key}: {problem}"),
                    format!("`dcd serve --help` tells what --{key} may be"),
                )
            })?;
            assert!(known, "looked up");
        }
        let mut all = on_top.over(self.flags.clone()).over(file.clone());
        if all.is_in_store() {
            // Of its kind the only one there is.
            all.destage_policy.get_or_insert(PolicyArgument::Ordered);
        }
        Ok(all)
    }

    /// Hands over what has changed, and tells what. A mode that is asked for again has not changed,
    /// but a switch to it may have been given up.
    fn take_over(
        &mut self,
        set: WantedSettings,
        file: Settings,
        asks_for_mode: bool,
        apply: Apply<'_>,
    ) -> Result<Vec<String>, Box<Failure>> {
        let before = self.all(&self.set, &self.file).expect("as it counts now");
        let wanted = self.all(&set, &file)?;
        let is_new = |key: &&str| self.value(&before, key) != self.value(&wanted, key);
        let changed: Vec<String> =
            CHANGEABLE.iter().filter(|key| is_new(key)).map(|key| (*key).to_owned()).collect();
        let mode_asked = self.mode_asked + u64::from(asks_for_mode);
        let is_remote = |settings: &Settings| settings.ack == Some(AckArgument::Remote);
        if is_remote(&before) != is_remote(&wanted) {
            let (error, hint) = match is_remote(&wanted) {
                true => ("ack=remote takes a restart", "start dcd again with it"),
                false => {
                    ("ack is remote, and another takes a restart", "start dcd again with that")
                }
            };
            return Err(refusal(Code::NeedsRestart, error, hint));
        }
        if is_remote(&wanted) && wanted.engine_config().destage_policy != DestagePolicyKind::Ordered
        {
            let error = "ack can only be remote with destage-policy ordered";
            return Err(refusal(Code::BadSetting, error, "leave destage-policy as it is"));
        }
        if !changed.is_empty() || asks_for_mode {
            let config = EngineConfig { mode_asked, ..wanted.engine_config() };
            config.validate().map_err(|error| {
                let hint = "`dcd set` without more lists all settings";
                refusal(Code::BadSetting, error.to_string(), hint)
            })?;
            apply(config)?;
        }
        (self.set, self.file, self.mode_asked) = (set, file, mode_asked);
        Ok(changed)
    }

    fn value(&self, settings: &Settings, key: &str) -> String {
        said(settings, key).unwrap_or_else(|| self.default_of(key))
    }

    fn default_of(&self, key: &str) -> String {
        self.defaults.get(key).cloned().unwrap_or_default()
    }
}

impl SettingsBook for RunningSettings {
    fn list(&self) -> Vec<SettingReport> {
        let now = self.all(&self.set, &self.file).expect("as it counts now");
        let at_start = self.flags.clone().over(self.file_at_start.clone());
        KEYS.iter()
            .map(|key| {
                let needs_restart = !CHANGEABLE.contains(key);
                let (settings, file) = match needs_restart {
                    true => (&at_start, &self.file_at_start),
                    false => (&now, &self.file),
                };
                let origin = match key {
                    key if self.set.contains_key(*key) => SettingOrigin::Set,
                    key if said(&self.flags, key).is_some() => SettingOrigin::Flag,
                    key if said(file, key).is_some() => SettingOrigin::File,
                    _ => SettingOrigin::Default,
                };
                SettingReport {
                    key: (*key).to_owned(),
                    value: self.value(settings, key),
                    default: self.default_of(key),
                    origin,
                    needs_restart,
                }
            })
            .collect()
    }

    fn set(
        &mut self,
        wanted: &WantedSettings,
        apply: Apply<'_>,
    ) -> Result<Vec<String>, Box<Failure>> {
        let mut set = self.set.clone();
        for (key, text) in wanted {
            if !KEYS.contains(&key.as_str()) {
                let error = format!("`{}` is not a setting", key.escape_debug());
                let hint = match nearest(key, &KEYS) {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => "`dcd set` without more lists them all".into(),
                };
                return Err(refusal(Code::NoSuchSetting, error, hint));
            }
            if !CHANGEABLE.contains(&key.as_str()) {
                let error = format!("{key} takes a restart to change");
                let hint = match &self.path {
                    Some(path) => format!("set it in {} and restart dcd", path.display()),
                    None => format!("start dcd again with --{key}"),
                };
                return Err(refusal(Code::NeedsRestart, error, hint));
            }
            match text.is_empty() {
                true => drop(set.remove(key)),
                false => drop(set.insert(key.clone(), text.clone())),
            }
        }
        self.take_over(set, self.file.clone(), wanted.contains_key("mode"), apply)
    }

    fn read_again(&mut self, apply: Apply<'_>) -> Result<ReadAgain, Box<Failure>> {
        let Some(path) = &self.path else {
            return Err(refusal(
                Code::NotSupported,
                "there is no --config file to read again",
                "`dcd set` changes settings; certificates are read again by themselves",
            ));
        };
        let file = config_file::read(path).map_err(|error| {
            let hint = error.hint().unwrap_or_else(|| "mend it and send SIGHUP again".into());
            refusal(Code::BadSetting, error.to_string(), hint)
        })?;
        let at_start = self.flags.clone().over(self.file_at_start.clone());
        let now = self.flags.clone().over(file.clone());
        // Cut short while somebody writes it: all else it does not say would be the default.
        let is_gone = |key: &&&str| said(&at_start, key).is_some() && said(&now, key).is_none();
        if let Some(key) = ["cache-disk", "data-disk"].iter().find(is_gone) {
            let error = format!("{} does not say `{key}` any more", path.display());
            return Err(refusal(Code::BadSetting, error, "write all of it and send SIGHUP again"));
        }
        let others: BTreeSet<&str> = KEYS.into_iter().collect();
        let others = others.iter().filter(|key| !CHANGEABLE.contains(key));
        let is_new = |key: &&&str| self.value(&at_start, key) != self.value(&now, key);
        let next_start = others.filter(is_new).map(|key| (*key).to_owned()).collect();
        let changed = self.take_over(self.set.clone(), file, false, apply)?;
        Ok(ReadAgain { changed, next_start })
    }
}

fn refusal(code: Code, error: impl Into<String>, hint: impl Into<String>) -> Box<Failure> {
    Box::new(Failure::new(code, error, hint))
}

/// What the help texts call the defaults; `false` for what may be `true` or `false`.
fn defaults() -> BTreeMap<String, String> {
    let command = Settings::augment_args(clap::Command::new("settings"));
    let of = |arg: &clap::Arg| {
        let key = arg.get_long()?.to_owned();
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let is_flag = arg.get_value_names().is_some_and(|names| names[0] == "true|false");
        let default = match help.split_once("[default: ") {
            Some((_, behind)) => behind.split([']', ';']).next().unwrap_or_default().to_owned(),
            None if is_flag => "false".into(),
            None => String::new(),
        };
        Some((key, default))
    };
    command.get_arguments().filter_map(of).collect()
}

/// What was said of a setting, as it may be set.
///
/// # Panics
/// If there is no such setting.
fn said(settings: &Settings, key: &str) -> Option<String> {
    fn shown<T: ToString>(value: &Option<T>) -> Option<String> {
        value.as_ref().map(ToString::to_string)
    }
    fn path(value: &Option<PathBuf>) -> Option<String> {
        value.as_ref().map(|path| path.display().to_string())
    }
    fn choice<T: ValueEnum>(value: &Option<T>) -> Option<String> {
        Some(value.as_ref()?.to_possible_value()?.get_name().to_owned())
    }
    fn list<T: ToString>(values: &[T]) -> Option<String> {
        let words: Vec<String> = values.iter().map(ToString::to_string).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
    let percent = |value: &Option<u8>| value.map(|value| format!("{value}%"));
    let size = |value: &Option<u64>| value.map(size_text);
    let time = |value: &Option<Duration>| value.map(time_text);
    match key {
        "cache-disk" => list(&settings.cache_disk),
        "share" => settings.share.clone(),
        "data-disk" => list(&settings.data_disk),
        "nbd" => list(&settings.nbd),
        "tls-cert" => path(&settings.tls_cert),
        "tls-key" => path(&settings.tls_key),
        "tls-ca" => path(&settings.tls_ca),
        "tls-allow" => list(&settings.tls_allow),
        "tls-read-only" => list(&settings.tls_read_only),
        "insecure-tcp" => shown(&settings.insecure_tcp),
        "tcp-ack" => choice(&settings.tcp_ack),
        "connections-max" => shown(&settings.connections_max),
        "fuse" => path(&settings.fuse),
        "loop" => shown(&settings.loop_device),
        "ublk" => settings.ublk.map(|number| match number {
            UblkNumber::Any => "any".into(),
            UblkNumber::Number(number) => number.to_string(),
        }),
        "vhost-user" => path(&settings.vhost_user),
        "control" => path(&settings.control),
        "http" => shown(&settings.http),
        "http-token" => path(&settings.http_token),
        "metrics" => shown(&settings.metrics),
        "mode" => choice(&settings.mode),
        "ack" => choice(&settings.ack),
        "max-delay" => time(&settings.max_delay),
        "bypass-threshold" => size(&settings.bypass_threshold),
        "destage-policy" => choice(&settings.destage_policy),
        "ship-within" => time(&settings.ship_within),
        "window-hook" => shown(&settings.window_hook),
        "window-hook-timeout" => time(&settings.window_hook_timeout),
        "idle-max" => time(&settings.idle_max),
        "idle-min" => time(&settings.idle_min),
        "dirty-high" => percent(&settings.dirty_high),
        "dirty-low" => percent(&settings.dirty_low),
        "destage-rate" => size(&settings.destage_rate),
        "fill-rate" => size(&settings.fill_rate),
        "destage-iops" => shown(&settings.destage_iops),
        "one-disk" => choice(&settings.one_disk),
        "no-verify-reads" => shown(&settings.no_verify_reads),
        "no-log" => shown(&settings.no_log),
        "suspect-after" => shown(&settings.suspect_after),
        "scrub-every" => time(&settings.scrub_every),
        "spare-after" => time(&settings.spare_after),
        "volume-memory" => size(&settings.volume_memory),
        "index-max" => size(&settings.index_max),
        "full-timeout" => time(&settings.full_timeout),
        "drain-timeout" => time(&settings.drain_timeout),
        "io-timeout" => time(&settings.io_timeout),
        "member-timeout" => time(&settings.member_timeout),
        "segment-buffers" => shown(&settings.segment_buffers),
        "read-ahead" => size(&settings.read_ahead),
        "sequence-share" => percent(&settings.sequence_share),
        "no-hot-blocks" => shown(&settings.no_hot_blocks),
        "no-detect" => shown(&settings.no_detect),
        "read-only" => shown(&settings.read_only),
        "witness" => shown(&settings.witness),
        "memory-directory" => path(&settings.memory_directory),
        "nvram" => shown(&settings.nvram),
        "nvram-survives" => choice(&settings.nvram_survives),
        "nvram-policy" => choice(&settings.nvram_policy),
        "nvram-high" => percent(&settings.nvram_high),
        "nvram-low" => percent(&settings.nvram_low),
        "nvram-idle" => time(&settings.nvram_idle),
        "nvram-wear-floor" => percent(&settings.nvram_wear_floor),
        "nvram-group" => size(&settings.nvram_group),
        "nvram-bypass" => size(&settings.nvram_bypass),
        "nvram-age-max" => time(&settings.nvram_age_max),
        "cpu" => shown(&settings.processor),
        "busy-poll" => settings.busy_poll.map(|most| match most {
            BusyPollMax::Auto => "auto".into(),
            BusyPollMax::Time(time) => time_text(time),
        }),
        "wait" => shown(&settings.wait),
        "stop-timeout" => time(&settings.stop_timeout),
        "lock-memory" => shown(&settings.lock_memory),
        "memory-max" => size(&settings.memory_max),
        other => panic!("{other} is not a setting"),
    }
}

/// Exact, with the largest unit that is: `64k`, `1M`, `1000`.
fn size_text(bytes: u64) -> String {
    let units = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")];
    let fits = |(unit, _): &&(u64, &str)| bytes > 0 && bytes.is_multiple_of(*unit);
    match units.iter().find(fits) {
        Some((unit, word)) => format!("{}{word}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// The same of a time: `100ms`, `1s`, `30d`.
fn time_text(time: Duration) -> String {
    let nanos = time.as_nanos();
    let units = [(86_400_000_000_000, "d"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let fits = |(unit, _): &&(u128, &str)| nanos.is_multiple_of(*unit);
    if nanos == 0 {
        return "0s".into();
    }
    let (unit, word) = units.iter().find(fits).unwrap_or(&(1, "ns"));
    format!("{}{word}", nanos / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(words: &str) -> WantedSettings {
        let pairs = words.split_whitespace().map(|word| word.split_once('=').unwrap());
        pairs.map(|(key, text)| (key.to_owned(), text.to_owned())).collect()
    }

    fn flags(words: &str) -> Settings {
        let mut settings = Settings::default();
        for (key, text) in wanted(words) {
            assert!(config_file::set_text(&mut settings, &key, &text).unwrap());
        }
        settings
    }

    /// The value of each setting that has another one than at first.
    fn values(book: &RunningSettings, key: &str) -> (String, SettingOrigin) {
        let reports = book.list();
        let report = reports.iter().find(|report| report.key == key).unwrap();
        (report.value.clone(), report.origin)
    }

    /// One that is empty, or cut short, while it is written does not say that everything is as by
    /// default.
    #[test]
    fn a_file_that_lacks_the_disks_changes_nothing() {
        let path = std::env::temp_dir().join(format!("dcd-{}-x.toml", std::process::id()));
        let file = flags("cache-disk=c data-disk=d mode=pass-through");
        let mut book = RunningSettings::new(Some(path.clone()), Settings::default(), file);
        let mut apply = |_: EngineConfig| -> Result<(), Box<Failure>> { unreachable!("refused") };
        for text in ["", "mode = \"write-back\"\n", "cache-disk = \"c\"\n"] {
            std::fs::write(&path, text).unwrap();
            let refused = book.read_again(&mut apply).unwrap_err();
            assert_eq!(refused.code, Some(Code::BadSetting), "{text}");
            assert!(refused.error.contains("does not say `"), "{}", refused.error);
            assert_eq!(values(&book, "mode").0, "pass-through");
        }
        std::fs::remove_file(&path).unwrap();
    }

    /// What is listed may be set, and is the same then; what is not said is what the engine does
    /// without.
    #[test]
    fn what_is_listed_may_be_set() {
        let mut book = RunningSettings::new(None, Settings::default(), Settings::default());
        let defaults = book.list();
        assert_eq!(defaults.len(), KEYS.len());
        let all: WantedSettings = defaults
            .iter()
            .filter(|report| !report.needs_restart)
            .map(|report| (report.key.clone(), report.value.clone()))
            .collect();
        assert_eq!(all.len(), CHANGEABLE.len());
        assert!(all.values().all(|value| !value.is_empty()), "{all:?}");
        let mut configs = Vec::new();
        let changed = book.set(&all, &mut |config| {
            configs.push(config);
            Ok(())
        });
        assert_eq!(changed.unwrap(), [""; 0], "they were so");
        // But a switch to the mode may have been given up.
        let asked = EngineConfig { mode_asked: 1, ..EngineConfig::default() };
        assert_eq!(format!("{configs:?}"), format!("{:?}", [asked]));
        let without: WantedSettings =
            all.clone().into_iter().filter(|(key, _)| key != "mode").collect();
        let nothing = book.set(&without, &mut |config| panic!("not asked for: {config:?}"));
        assert_eq!(nothing.unwrap(), [""; 0]);
        let same = book.all(&all, &Settings::default()).unwrap().engine_config();
        assert_eq!(format!("{same:?}"), format!("{:?}", EngineConfig::default()));
        let values: Vec<String> = book.list().into_iter().map(|report| report.value).collect();
        assert_eq!(values, defaults.into_iter().map(|report| report.value).collect::<Vec<_>>());
    }

    /// Each of them does something: the engine is handed another configuration.
    #[test]
    fn what_may_change_changes_the_engine() {
        let others = "mode=pass-through read-only=true ack=durable max-delay=20ms \
            bypass-threshold=64k destage-policy=least-valid-first ship-within=3s idle-max=2s idle-min=2ms \
            dirty-high=90% dirty-low=50 destage-rate=1M fill-rate=1M destage-iops=7 no-verify-reads=true \
            suspect-after=3 scrub-every=5d spare-after=7m volume-memory=1M full-timeout=1s drain-timeout=2s io-timeout=3s member-timeout=4s";
        for (key, text) in wanted(others) {
            let mut book = RunningSettings::new(None, Settings::default(), Settings::default());
            let mut handed = None;
            let one = WantedSettings::from([(key.clone(), text)]);
            let changed = book.set(&one, &mut |config| {
                handed = Some(config);
                Ok(())
            });
            assert_eq!(changed.unwrap(), [key.as_str()]);
            let config = handed.expect("it is handed over");
            assert_ne!(format!("{config:?}"), format!("{:?}", EngineConfig::default()), "{key}");
        }
        assert_eq!(wanted(others).len(), CHANGEABLE.len());
    }

    #[test]
    fn what_was_set_counts_most_until_it_is_taken_back() {
        let flags = flags("max-delay=50ms");
        let file = self::flags("max-delay=70ms full-timeout=5s");
        let mut book = RunningSettings::new(None, flags, file);
        assert_eq!(values(&book, "max-delay"), ("50ms".into(), SettingOrigin::Flag));
        assert_eq!(values(&book, "full-timeout"), ("5s".into(), SettingOrigin::File));
        assert_eq!(values(&book, "idle-max"), ("1s".into(), SettingOrigin::Default));
        book.set(&wanted("max-delay=20ms full-timeout=1s"), &mut |_| Ok(())).unwrap();
        assert_eq!(values(&book, "max-delay"), ("20ms".into(), SettingOrigin::Set));
        book.set(&wanted("max-delay= full-timeout="), &mut |_| Ok(())).unwrap();
        assert_eq!(values(&book, "max-delay"), ("50ms".into(), SettingOrigin::Flag));
        assert_eq!(values(&book, "full-timeout"), ("5s".into(), SettingOrigin::File));
    }

    #[test]
    fn what_takes_a_restart_is_told_the_right_way_round() {
        let refused = |flags: &str, words| {
            let mut book = RunningSettings::new(None, self::flags(flags), Settings::default());
            let mut never = |_| panic!("nothing is handed over");
            let failure = book.set(&wanted(words), &mut never).unwrap_err();
            (failure.code.unwrap(), failure.error)
        };
        let told = refused("ack=remote destage-policy=ordered", "ack=memory");
        assert_eq!(told, (Code::NeedsRestart, "ack is remote, and another takes a restart".into()));
        let told = refused("destage-policy=ordered", "ack=remote");
        assert_eq!(told, (Code::NeedsRestart, "ack=remote takes a restart".into()));
    }

    #[test]
    fn all_is_set_or_nothing() {
        let mut book = RunningSettings::new(None, Settings::default(), Settings::default());
        let refused = |book: &mut RunningSettings, words| {
            let mut never = |_| panic!("nothing is handed over");
            let failure = book.set(&wanted(words), &mut never).unwrap_err();
            (failure.code.unwrap(), failure.error, failure.hint.unwrap())
        };
        let (code, error, hint) = refused(&mut book, "max-delay=20ms bypas-threshold=4k");
        assert_eq!(
            (code, error.as_str()),
            (Code::NoSuchSetting, "`bypas-threshold` is not a setting")
        );
        assert!(hint.contains("`bypass-threshold`"), "{hint}");
        let (code, error, _) = refused(&mut book, "max-delay=20ms segment-buffers=4");
        assert_eq!(
            (code, error.as_str()),
            (Code::NeedsRestart, "segment-buffers takes a restart to change")
        );
        let (code, error, _) = refused(&mut book, "max-delay=20ms full-timeout=soon");
        assert!(code == Code::BadSetting && error.starts_with("full-timeout: "), "{error}");
        let (code, error, _) = refused(&mut book, "dirty-low=90");
        assert_eq!(
            (code, error.as_str()),
            (Code::BadSetting, "dirty-low must not be above dirty-high")
        );
        let said_no = |_| Err(refusal(Code::BadSetting, "no", "why"));
        assert!(book.set(&wanted("max-delay=20ms"), &mut { said_no }).is_err());
        assert_eq!(values(&book, "max-delay"), ("100ms".into(), SettingOrigin::Default));
    }

    #[test]
    fn a_file_is_read_again() {
        let path = std::env::temp_dir().join(format!("dcd-settings-{}.toml", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("max-delay = \"70ms\"\nsegment-buffers = 8\n");
        let file = config_file::read(&path).unwrap();
        let mut book = RunningSettings::new(Some(path.clone()), flags("idle-max=3s"), file);
        write("max-delay = \"30ms\"\nidle-max = \"9s\"\nsegment-buffers = 9\n");
        let read = book.read_again(&mut |_| Ok(())).unwrap();
        assert_eq!(read.words(), "changed: max-delay; from the next start on: segment-buffers");
        assert_eq!(values(&book, "max-delay"), ("30ms".into(), SettingOrigin::File));
        assert_eq!(values(&book, "idle-max"), ("3s".into(), SettingOrigin::Flag));
        assert_eq!(values(&book, "segment-buffers"), ("8".into(), SettingOrigin::File));
        write("max-delay = \"30ms\"\nmax_dealy = 3\n");
        let failure = book.read_again(&mut |_| panic!("nothing is handed over")).unwrap_err();
        assert!(failure.error.ends_with(".toml:2:1: `max_dealy` is not a setting"), "{failure}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn texts_are_exact() {
        let sizes = [0, 1, 1000, 1024, 1536, 1 << 20, 3 << 40].map(size_text);
        assert_eq!(sizes, ["0", "1", "1000", "1k", "1536", "1M", "3T"]);
        let times = [0, 1, 1_500, 20_000_000, 60_000_000_000];
        let times = times.map(|nanos| time_text(Duration::from_nanos(nanos)));
        assert_eq!(times, ["0s", "1ns", "1500ns", "20ms", "60s"]);
    }
}
