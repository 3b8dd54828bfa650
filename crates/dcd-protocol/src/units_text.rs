//! Sizes, durations and shares as people write them: `4k`, `16m`, `1g`, `512`; `8ms`, `50us`, `1s`;
//! `80%`.
//!
//! The command, the laboratory and the device specs share these, so a size means the same
//! everywhere. Units of size are binary (1k = 1024 bytes); case does not matter and `KiB`, `kb`,
//! `K` are the same.

use std::time::Duration;

/// A size or duration that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnitError {
    /// Nothing there.
    #[error("expected {expected}, found nothing")]
    Empty {
        /// What should be there.
        expected: &'static str,
    },
    /// Does not start with a number.
    #[error("expected {expected}, found {found:?}")]
    Number {
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The unit is none of ours, or a duration has no unit.
    #[error("{} {text:?}, expected one of {expected}", unit_problem(found))]
    Unit {
        /// The units there are.
        expected: &'static str,
        /// The unit found.
        found: String,
        /// The whole text.
        text: String,
    },
    /// Larger than can be counted.
    #[error("{text:?} is too large")]
    TooLarge {
        /// The whole text.
        text: String,
    },
}

fn unit_problem(found: &str) -> String {
    match found {
        "" => "no unit in".into(),
        _ => format!("unknown unit {found:?} in"),
    }
}

impl UnitError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            UnitError::Unit { expected: DURATION_UNITS, found, text } if found.is_empty() => {
                Some(format!("a duration needs a unit: {text}ms or {text}s"))
            }
            _ => None,
        }
    }
}

const SIZE: &str = "a size such as 512, 4k, 16m, 1g or 1t";
const DURATION: &str = "a duration such as 50us, 8ms or 1s";
const SIZE_UNITS: &str = "b, k, m, g, t";
const DAY_NANOS: u64 = 86_400_000_000_000;
const DURATION_UNITS: &str = "ns, us, ms, s, m, h, d";

/// Bytes of a size.
///
/// ```
/// use dcd_protocol::units_text::parse_size;
/// assert_eq!(parse_size("4k"), Ok(4096));
/// assert_eq!(parse_size("1.5MiB"), Ok(1_572_864));
/// assert_eq!(parse_size("512"), Ok(512));
/// ```
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text, SIZE)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        "p" | "pb" | "pib" => 1 << 50,
        _ => return Err(unknown_unit(SIZE_UNITS, unit, text)),
    };
    scaled(number, factor, SIZE, text)
}

/// A duration; the unit must be there.
///
/// ```
/// use dcd_protocol::units_text::parse_duration;
/// use std::time::Duration;
/// assert_eq!(parse_duration("8ms"), Ok(Duration::from_millis(8)));
/// assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
/// assert!(parse_duration("8").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split(text, DURATION)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => DAY_NANOS,
        // Nothing is nothing in any unit.
        "" if number.bytes().all(|b| b == b'0') => 1,
        _ => return Err(unknown_unit(DURATION_UNITS, unit, text)),
    };
    scaled(number, factor, DURATION, text).map(Duration::from_nanos)
}

/// Splits a number (digits, at most one point) from its unit.
fn split<'t>(text: &'t str, expected: &'static str) -> Result<(&'t str, &'t str), UnitError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(UnitError::Empty { expected });
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let digits = number.bytes().any(|b| b.is_ascii_digit());
    let points = number.bytes().filter(|b| *b == b'.').count();
    if !digits || points > 1 {
        return Err(UnitError::Number { expected, found: text.to_owned() });
    }
    Ok((number, unit.trim_start()))
}

fn unknown_unit(expected: &'static str, unit: &str, text: &str) -> UnitError {
    UnitError::Unit { expected, found: unit.to_owned(), text: text.trim().to_owned() }
}

/// `number * factor` in whole numbers; a fraction must come out even enough (it is cut off).
fn scaled(number: &str, factor: u64, expected: &'static str, text: &str) -> Result<u64, UnitError> {
    let too_large = || UnitError::TooLarge { text: text.trim().to_owned() };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_large())? };
    // Nine digits are enough for nanoseconds in a second.
    let fraction = &fraction[..fraction.len().min(9)];
    let part = if fraction.is_empty() {
        0
    } else {
        let digits: u128 = fraction
            .parse()
            .map_err(|_| UnitError::Number { expected, found: text.trim().to_owned() })?;
        (digits * u128::from(factor) / 10u128.pow(fraction.len() as u32)) as u64
    };
    whole.checked_mul(factor).and_then(|n| n.checked_add(part)).ok_or_else(too_large)
}

/// A size for people: exact when a unit divides it, otherwise with one decimal.
///
/// ```
/// use dcd_protocol::units_text::format_size;
/// assert_eq!(format_size(4096), "4 KiB");
/// assert_eq!(format_size(1_572_864), "1.5 MiB");
/// ```
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let index = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let factor = 1u64 << (10 * index);
    if bytes.is_multiple_of(factor) {
        format!("{} {}", bytes / factor, UNITS[index])
    } else {
        format!("{:.1} {}", bytes as f64 / factor as f64, UNITS[index])
    }
}

/// A duration in the largest unit that leaves a number of at least 1, in a form that
/// [`parse_duration`] reads back; exact when a unit divides it.
///
/// ```
/// use dcd_protocol::units_text::format_duration;
/// use std::time::Duration;
/// assert_eq!(format_duration(Duration::from_millis(8)), "8ms");
/// assert_eq!(format_duration(Duration::from_micros(1500)), "1.5ms");
/// assert_eq!(format_duration(Duration::from_secs(30 * 86_400)), "30d");
/// assert_eq!(format_duration(Duration::ZERO), "0s");
/// ```
pub fn format_duration(duration: Duration) -> String {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let (factor, unit) = match nanos {
        0 => return "0s".to_owned(),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        days if days.is_multiple_of(DAY_NANOS) => (DAY_NANOS, "d"),
        _ => (1_000_000_000, "s"),
    };
    if nanos.is_multiple_of(factor) {
        return format!("{}{unit}", nanos / factor);
    }
    let text = format!("{:.3}", nanos as f64 / factor as f64);
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A share: `80` or `80%`.
///
/// ```
/// use dcd_protocol::units_text::parse_percent;
/// assert_eq!(parse_percent("80%").unwrap(), 80);
/// assert!(parse_percent("101").is_err());
/// ```
pub fn parse_percent(text: &str) -> Result<u8, PercentError> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<u8>() {
        Ok(percent) if percent <= 100 => Ok(percent),
        _ => Err(PercentError { found: text.to_owned() }),
    }
}

/// Text that is no share.
#[derive(Debug, thiserror::Error)]
#[error("`{}` is not a share from 0% to 100%", found.escape_debug())]
pub struct PercentError {
    found: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_every_spelling() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            (" 16m ", 16 << 20),
            ("0.5g", 512 << 20),
            ("1t", 1 << 40),
            ("64 KiB", 64 << 10),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn wrong_sizes_say_what_is_wrong() {
        assert!(matches!(parse_size(""), Err(UnitError::Empty { .. })));
        assert!(matches!(parse_size("k4"), Err(UnitError::Number { .. })));
        assert!(matches!(parse_size("-1"), Err(UnitError::Number { .. })));
        assert!(matches!(parse_size("1.2.3"), Err(UnitError::Number { .. })));
        assert!(matches!(parse_size("4x"), Err(UnitError::Unit { .. })));
        assert!(matches!(parse_size("99999999t"), Err(UnitError::TooLarge { .. })));
        assert!(matches!(parse_size("99999999999999999999"), Err(UnitError::TooLarge { .. })));
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse_duration("0.1s"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        let error = parse_duration("8").unwrap_err();
        assert_eq!(error.hint().unwrap(), "a duration needs a unit: 8ms or 8s");
        assert!(matches!(parse_duration("99999999999h"), Err(UnitError::TooLarge { .. })));
    }

    #[test]
    fn what_is_written_can_be_read() {
        for nanos in [1, 999, 1_000, 1_500, 8_000_000, 12_345_000, 1_000_000_000, 90_000_000_000] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
        for bytes in [0, 1, 512, 4096, 1 << 20, 3 << 30] {
            assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
    }
}
