//! The keys of a workload: names, what their values may be, and what they are if nothing is said.

use std::fmt;

/// What a value is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// Bytes: a multiple of 512, from one to the other.
    Size(u64, u64),
    /// Nanoseconds, from one to the other.
    Time(u64, u64),
    /// A whole number, from one to the other.
    Count(u64, u64),
    /// A number, from one to the other.
    Number(f64, f64),
    /// One of these words; the value is its place.
    Word(&'static [&'static str]),
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Kind::Size(least, most) => {
                write!(formatter, "a multiple of 512 bytes from {least} to {most}")
            }
            Kind::Time(least, most) => {
                let seconds = |ns: u64| ns as f64 / 1e9;
                write!(formatter, "a time from {} s to {} s", seconds(least), seconds(most))
            }
            Kind::Count(least, most) => write!(formatter, "a whole number from {least} to {most}"),
            Kind::Number(least, most) => write!(formatter, "a number from {least} to {most}"),
            Kind::Word(words) => write!(formatter, "{}", words.join(" or ")),
        }
    }
}

/// A value: whole, or a number for [`Kind::Number`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// Bytes, nanoseconds, a count, the place of a word.
    Whole(u64),
    /// A number.
    Number(f64),
}

/// What can be said about a workload.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is if nothing is said; none if that follows from others.
    pub default: Option<Value>,
}

impl Key {
    pub(super) const fn size(name: &'static str, default: u64) -> Key {
        let kind = Kind::Size(512, 1 << 50);
        Key { name, kind, default: Some(Value::Whole(default)) }
    }

    /// Of a request: no more than a trace may have.
    pub(super) const fn request_size(name: &'static str, default: Option<u64>) -> Key {
        let default = match default {
            Some(bytes) => Some(Value::Whole(bytes)),
            None => None,
        };
        Key { name, kind: Kind::Size(512, crate::trace::SIZE_BYTES_MAX), default }
    }

    pub(super) const fn time(name: &'static str, default_ns: u64) -> Key {
        let kind = Kind::Time(0, 86_400 * SECOND_NS);
        Key { name, kind, default: Some(Value::Whole(default_ns)) }
    }

    pub(super) const fn count(name: &'static str, least: u64, most: u64, default: u64) -> Key {
        Key { name, kind: Kind::Count(least, most), default: Some(Value::Whole(default)) }
    }

    pub(super) const fn number(name: &'static str, least: f64, most: f64, default: f64) -> Key {
        Key { name, kind: Kind::Number(least, most), default: Some(Value::Number(default)) }
    }

    pub(super) const fn word(name: &'static str, words: &'static [&'static str]) -> Key {
        Key { name, kind: Kind::Word(words), default: Some(Value::Whole(0)) }
    }

    /// Whether it may be that.
    pub fn takes(&self, value: Value) -> bool {
        match (self.kind, value) {
            (Kind::Size(least, most), Value::Whole(bytes)) => {
                (least..=most).contains(&bytes) && bytes.is_multiple_of(512)
            }
            (Kind::Time(least, most) | Kind::Count(least, most), Value::Whole(value)) => {
                (least..=most).contains(&value)
            }
            (Kind::Number(least, most), Value::Number(value)) => (least..=most).contains(&value),
            (Kind::Word(words), Value::Whole(place)) => place < words.len() as u64,
            _ => false,
        }
    }
}

pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// Traces are not longer: a century.
pub(super) const DURATION_NS_MAX: u64 = 100 * 366 * 86_400 * SECOND_NS;

/// Which requests come how often. `requests` is 100,000 unless there is a `duration`.
const REQUESTS: Key = Key { name: "requests", kind: Kind::Count(1, 1 << 40), default: None };
const DURATION: Key = Key { name: "duration", kind: Kind::Time(1, DURATION_NS_MAX), default: None };
const SEED: Key = Key::count("seed", 0, u64::MAX, 0);

const fn rate(default: f64) -> Key {
    Key::number("rate", 1e-3, 1e9, default)
}

const fn reads(default: f64) -> Key {
    Key::number("reads", 0.0, 100.0, default)
}

const BURST: Key = Key::count("burst", 1, 1_000_000, 50);
const WITHIN: Key = Key::time("within", 1_000_000);
const SIZE: Key = Key::request_size("size", Some(4096));
const SIZE_MAX: Key = Key::request_size("size-max", None);
const SPAN: Key = Key::size("span", 1 << 30);

/// NT paper, section 4.1: bursts of writes of 1 to 4 KiB, random lengths and intervals.
pub(super) const BURSTS: &[Key] = &[
    REQUESTS,
    DURATION,
    SEED,
    rate(10.0),
    Key::word("arrivals", &["bursts", "poisson"]),
    BURST,
    WITHIN,
    reads(0.0),
    Key::request_size("size", Some(1024)),
    Key::request_size("size-max", Some(4096)),
    SPAN,
];

const ARRIVALS: Key = Key::word("arrivals", &["poisson", "bursts"]);

pub(super) const UNIFORM: &[Key] = &[
    REQUESTS,
    DURATION,
    SEED,
    rate(50.0),
    ARRIVALS,
    BURST,
    WITHIN,
    reads(50.0),
    SIZE,
    SIZE_MAX,
    SPAN,
];

pub(super) const ZIPF: &[Key] = &[
    REQUESTS,
    DURATION,
    SEED,
    rate(50.0),
    ARRIVALS,
    BURST,
    WITHIN,
    reads(50.0),
    SIZE,
    SIZE_MAX,
    SPAN,
    Key::number("theta", 0.01, 10.0, 0.99),
];

/// Haining, section 3.1.1: populations of `hot` (a) and `cold` (b) blocks, a hot one written
/// `ratio` (alpha, kappa / lambda) times as often.
pub(super) const HOT_COLD: &[Key] = &[
    REQUESTS,
    DURATION,
    SEED,
    rate(50.0),
    ARRIVALS,
    BURST,
    WITHIN,
    reads(0.0),
    SIZE,
    Key::count("hot", 1, 1 << 32, 64),
    Key::count("cold", 1, 1 << 32, 100_000),
    Key::number("ratio", 1.0, 1e12, 1000.0),
];

pub(super) const SEQUENTIAL: &[Key] = &[
    REQUESTS,
    DURATION,
    SEED,
    rate(50.0),
    ARRIVALS,
    BURST,
    WITHIN,
    reads(50.0),
    SIZE,
    SIZE_MAX,
    SPAN,
    Key::count("streams", 1, 65_536, 1),
    Key::number("random", 0.0, 100.0, 0.0),
];

pub(super) const USERS: &[Key] = &[
    REQUESTS,
    DURATION,
    SEED,
    SPAN,
    Key::count("users", 1, 1000, 1),
    Key::word("task", &["all", "untar", "copy", "remove"]),
    Key::count("files", 1, 10_000_000, 508),
    Key::count("folders", 1, 1_000_000, 31),
    Key::request_size("file-size", Some(10_240)),
    Key::time("think", 1_000_000),
    Key::word("page-cache", &["cold", "warm"]),
    Key::word("flushes", &["no", "yes"]),
];

pub(super) const SNAKE: &[Key] = &[REQUESTS, DURATION, SEED, Key::word("disk", &["5", "6"])];
