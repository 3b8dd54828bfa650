//! `NAME,KEY=VALUE,...`: which workload, and what is said of it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::arrivals::{Arrivals, Shape};
use super::keys::{self, DURATION_NS_MAX, Key, Kind, Value};
use super::pattern::{Place, Placed, Scatter, Sizes};
use super::snake::Snake;
use super::users::{Task, Users, UsersSetup};
use super::zipf::Zipf;
use super::{Timed, Workload};
use crate::random::Random;

/// Requests if neither their number nor a duration is given.
const REQUESTS_DEFAULT: u64 = 100_000;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadKind {
    /// Bursts of small writes, as for the NT driver.
    Bursts,
    /// Anywhere, equally likely.
    Uniform,
    /// By Zipf's law.
    Zipf,
    /// Two populations.
    HotCold,
    /// One behind the other, with some anywhere.
    Sequential,
    /// Users that unpack, copy and remove trees of files.
    Users,
    /// A file server of 1992.
    Snake,
}

impl WorkloadKind {
    /// All of them.
    pub const ALL: [WorkloadKind; 7] = [
        WorkloadKind::Bursts,
        WorkloadKind::Uniform,
        WorkloadKind::Zipf,
        WorkloadKind::HotCold,
        WorkloadKind::Sequential,
        WorkloadKind::Users,
        WorkloadKind::Snake,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            WorkloadKind::Bursts => "bursts",
            WorkloadKind::Uniform => "uniform",
            WorkloadKind::Zipf => "zipf",
            WorkloadKind::HotCold => "hot-cold",
            WorkloadKind::Sequential => "sequential",
            WorkloadKind::Users => "users",
            WorkloadKind::Snake => "snake",
        }
    }

    /// What can be said of it.
    pub fn keys(self) -> &'static [Key] {
        match self {
            WorkloadKind::Bursts => keys::BURSTS,
            WorkloadKind::Uniform => keys::UNIFORM,
            WorkloadKind::Zipf => keys::ZIPF,
            WorkloadKind::HotCold => keys::HOT_COLD,
            WorkloadKind::Sequential => keys::SEQUENTIAL,
            WorkloadKind::Users => keys::USERS,
            WorkloadKind::Snake => keys::SNAKE,
        }
    }
}

/// What is wrong with a workload that was asked for; one line.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum WorkloadError {
    /// There is no such workload.
    #[error("no workload is called `{found}`; there are {}", names(WorkloadKind::ALL.iter().map(|kind| kind.name())))]
    Workload {
        /// The name.
        found: String,
    },
    /// It has no such key.
    #[error("{workload} has no key `{found}`; it has {}", names(keys.iter().map(|key| key.name)))]
    Key {
        /// Its name.
        workload: &'static str,
        /// The key.
        found: String,
        /// What there is.
        keys: &'static [Key],
    },
    /// A part is not `KEY=VALUE`.
    #[error("expected KEY=VALUE, found `{found}`")]
    Part {
        /// The part.
        found: String,
    },
    /// A key is there a second time.
    #[error("{key}: it is there twice")]
    Twice {
        /// Which.
        key: &'static str,
    },
    /// A value cannot be that.
    #[error("{key}: expected {expected}, found `{found}`")]
    Value {
        /// Of what.
        key: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        found: String,
    },
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// How sizes and times are written where the text comes from.
#[derive(Clone, Copy, Debug)]
pub struct UnitParsers {
    /// Bytes of `4k`; none if it is no size.
    pub size: fn(&str) -> Option<u64>,
    /// Nanoseconds of `5ms`; none if it is no time.
    pub time: fn(&str) -> Option<u64>,
}

/// What a workload should be like.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkloadSpec {
    kind: WorkloadKind,
    /// What was said.
    values: BTreeMap<&'static str, Value>,
}

impl WorkloadSpec {
    /// That workload, with nothing said of it.
    pub fn new(kind: WorkloadKind) -> WorkloadSpec {
        WorkloadSpec { kind, values: BTreeMap::new() }
    }

    /// Reads `NAME` or `NAME,KEY=VALUE,...`.
    ///
    /// # Errors
    /// When there is no such workload or key, or a value cannot be that, alone or beside the
    /// others.
    pub fn parse(text: &str, units: UnitParsers) -> Result<WorkloadSpec, WorkloadError> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let kind = WorkloadKind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| WorkloadError::Workload { found: shortened(name) })?;
        let mut spec = WorkloadSpec::new(kind);
        for part in parts {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| WorkloadError::Part { found: shortened(part) })?;
            let key = spec.key(name)?;
            if spec.values.contains_key(key.name) {
                return Err(WorkloadError::Twice { key: key.name });
            }
            let parsed = parse_value(key.kind, value, units).filter(|value| key.takes(*value));
            let parsed = parsed.ok_or_else(|| WorkloadError::Value {
                key: key.name,
                expected: key.kind.to_string(),
                found: shortened(value),
            })?;
            spec.values.insert(key.name, parsed);
        }
        spec.workload()?;
        Ok(spec)
    }

    /// The same, with this said instead.
    ///
    /// # Errors
    /// When there is no such key, or it cannot be that.
    pub fn with(mut self, name: &str, value: Value) -> Result<WorkloadSpec, WorkloadError> {
        let key = self.key(name)?;
        if !key.takes(value) {
            let expected = key.kind.to_string();
            return Err(WorkloadError::Value { key: key.name, expected, found: shown(value) });
        }
        self.values.insert(key.name, value);
        Ok(self)
    }

    fn key(&self, name: &str) -> Result<Key, WorkloadError> {
        let keys = self.kind.keys();
        let found = keys.iter().find(|key| key.name == name).copied();
        found.ok_or_else(|| WorkloadError::Key {
            workload: self.kind.name(),
            found: shortened(name),
            keys,
        })
    }

    /// Which one it is.
    pub fn kind(&self) -> WorkloadKind {
        self.kind
    }

    /// Requests after which it ends; none if something else ends it.
    pub fn requests_max(&self) -> Option<u64> {
        match (self.given("requests"), self.given("duration"), self.kind) {
            (Some(Value::Whole(requests)), ..) => Some(requests),
            (None, None, WorkloadKind::Snake) => Some(self.snake().requests()),
            (None, _, WorkloadKind::Users) | (_, Some(_), _) => None,
            _ => Some(REQUESTS_DEFAULT),
        }
    }

    /// Its requests, from the first.
    ///
    /// # Errors
    /// When two values do not go together.
    pub fn workload(&self) -> Result<Workload, WorkloadError> {
        let source: Box<dyn Iterator<Item = crate::trace::Request>> = match self.kind {
            WorkloadKind::Users => Box::new(Users::new(self.users_setup()?)),
            WorkloadKind::Snake => {
                let snake = self.snake();
                let arrivals = snake.arrivals();
                self.timed(arrivals, snake)
            }
            _ => {
                let arrivals = self.arrivals()?;
                self.timed(arrivals, self.placed()?)
            }
        };
        Ok(self.limited(source))
    }

    /// The requests of each of the users by himself; of other workloads, all as one. `requests` and
    /// `duration` are of each.
    ///
    /// # Errors
    /// As [`WorkloadSpec::workload`].
    pub fn streams(&self) -> Result<Vec<Workload>, WorkloadError> {
        if self.kind != WorkloadKind::Users {
            return Ok(vec![self.workload()?]);
        }
        let setup = self.users_setup()?;
        let streams =
            (0..setup.users).map(|number| self.limited(Box::new(Users::only(setup, number))));
        Ok(streams.collect())
    }

    fn limited(&self, source: Box<dyn Iterator<Item = crate::trace::Request>>) -> Workload {
        let duration_ns = match self.given("duration") {
            Some(Value::Whole(duration_ns)) => duration_ns,
            _ => DURATION_NS_MAX,
        };
        let requests_max = self.requests_max().unwrap_or(u64::MAX);
        Workload { source, requests_max, duration_ns, given: 0 }
    }

    fn timed<P: super::Pattern + 'static>(
        &self,
        arrivals: Arrivals,
        pattern: P,
    ) -> Box<dyn Iterator<Item = crate::trace::Request>> {
        let random = Random::new(self.whole("seed"));
        Box::new(Timed { arrivals, pattern, random, time_ns: 0 })
    }

    fn arrivals(&self) -> Result<Arrivals, WorkloadError> {
        let rate = self.number("rate");
        if self.word("arrivals") == "poisson" {
            return Ok(Arrivals::poisson(rate));
        }
        let burst = self.whole("burst");
        let within_ns = self.whole("within");
        Arrivals::bursts(Shape::Uniform, rate, burst, within_ns).ok_or_else(|| {
            let most = burst as f64 * 1e3 / rate / (burst - 1) as f64;
            let expected = format!("at most {most:.6} ms with rate={rate},burst={burst}");
            self.refused("within", expected)
        })
    }

    fn placed(&self) -> Result<Placed, WorkloadError> {
        let read_share = self.number("reads") / 100.0;
        let unit_bytes = self.whole("size");
        if self.kind == WorkloadKind::HotCold {
            let sizes = Sizes { unit_bytes, count: 1 };
            let (hot, cold) = (self.whole("hot"), self.whole("cold"));
            let hot_weight = hot as f64 * self.number("ratio");
            let hot_share = hot_weight / (hot_weight + cold as f64);
            let place = Place::HotCold { hot, cold, hot_share, scatter: Scatter::new(hot + cold) };
            return Ok(Placed { read_share, sizes, place });
        }
        let max_bytes = match (self.given("size-max"), self.given("size")) {
            (Some(Value::Whole(bytes)), _) => bytes,
            // Who says one size means all.
            (_, Some(_)) => unit_bytes,
            _ => match self.value("size-max") {
                Some(Value::Whole(bytes)) => bytes,
                _ => unit_bytes,
            },
        };
        if max_bytes < unit_bytes || max_bytes % unit_bytes > 0 {
            let expected = format!("a multiple of size, which is {unit_bytes}");
            return Err(self.refused("size-max", expected));
        }
        let sizes = Sizes { unit_bytes, count: max_bytes / unit_bytes };
        let span_bytes = self.whole("span");
        if span_bytes < max_bytes {
            let expected = format!("room for a request of {max_bytes} bytes");
            return Err(self.refused("span", expected));
        }
        let place = match self.kind {
            WorkloadKind::Zipf => {
                let slots = span_bytes / max_bytes;
                let law = Zipf::new(slots, self.number("theta"));
                Place::Zipf { law, scatter: Scatter::new(slots) }
            }
            WorkloadKind::Sequential => {
                let streams = self.whole("streams");
                let part = span_bytes / streams / unit_bytes * unit_bytes;
                Place::Sequential {
                    next_bytes: (0..streams).map(|stream| stream * part).collect(),
                    span_bytes,
                    random_share: self.number("random") / 100.0,
                }
            }
            _ => Place::Uniform { units: span_bytes / unit_bytes },
        };
        Ok(Placed { read_share, sizes, place })
    }

    fn users_setup(&self) -> Result<UsersSetup, WorkloadError> {
        let setup = UsersSetup {
            seed: self.whole("seed"),
            users: self.whole("users"),
            task: match self.word("task") {
                "untar" => Task::Untar,
                "copy" => Task::Copy,
                "remove" => Task::Remove,
                _ => Task::All,
            },
            files: self.whole("files"),
            folders: self.whole("folders"),
            file_bytes: self.whole("file-size"),
            think_ns: self.whole("think"),
            span_bytes: self.whole("span"),
            is_cold: self.word("page-cache") == "cold",
            has_flushes: self.word("flushes") == "yes",
        };
        let needed = setup.span_bytes_needed();
        if setup.span_bytes < needed {
            let expected = format!("at least {needed} bytes for such users");
            return Err(self.refused("span", expected));
        }
        Ok(setup)
    }

    fn snake(&self) -> Snake {
        Snake::of_disk(if self.word("disk") == "6" { 6 } else { 5 })
    }

    fn refused(&self, key: &'static str, expected: String) -> WorkloadError {
        let found = self.value(key).map_or_else(String::new, shown);
        WorkloadError::Value { key, expected, found }
    }

    fn given(&self, name: &str) -> Option<Value> {
        self.values.get(name).copied()
    }

    /// What was said, or the default.
    fn value(&self, name: &str) -> Option<Value> {
        self.given(name).or_else(|| self.key(name).ok()?.default)
    }

    fn whole(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(Value::Whole(value)) => value,
            _ => unreachable!("{name} is a whole number with a default"),
        }
    }

    fn number(&self, name: &str) -> f64 {
        match self.value(name) {
            Some(Value::Number(value)) => value,
            _ => unreachable!("{name} is a number with a default"),
        }
    }

    fn word(&self, name: &str) -> &'static str {
        match self.key(name).map(|key| key.kind) {
            Ok(Kind::Word(words)) => words[self.whole(name) as usize],
            _ => unreachable!("{name} is a word with a default"),
        }
    }
}

impl fmt::Display for WorkloadSpec {
    /// So that it can be read again, whatever units were used.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind.name())?;
        for key in self.kind.keys() {
            let Some(value) = self.given(key.name) else { continue };
            write!(formatter, ",{}=", key.name)?;
            match (key.kind, value) {
                (Kind::Word(words), Value::Whole(place)) => {
                    formatter.write_str(words[place as usize])?;
                }
                (Kind::Time(..), Value::Whole(time_ns)) => write!(formatter, "{time_ns}ns")?,
                (_, value) => formatter.write_str(&shown(value))?,
            }
        }
        Ok(())
    }
}

fn parse_value(kind: Kind, text: &str, units: UnitParsers) -> Option<Value> {
    match kind {
        Kind::Size(..) => (units.size)(text).map(Value::Whole),
        Kind::Time(..) => (units.time)(text).map(Value::Whole),
        Kind::Count(..) => u64::from_str(text).ok().map(Value::Whole),
        Kind::Number(..) => f64::from_str(text).ok().map(Value::Number),
        Kind::Word(words) => {
            let place = words.iter().position(|word| *word == text);
            place.map(|place| Value::Whole(place as u64))
        }
    }
}

fn shown(value: Value) -> String {
    match value {
        Value::Whole(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
    }
}

/// What somebody wrote, fit to be shown on one line.
fn shortened(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}
