//! Numbers as people read them: with a unit, and no more digits than mean something.

/// `64 MiB`, `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let index = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let factor = 1u64 << (10 * index);
    match bytes.is_multiple_of(factor) {
        true => format!("{} {}", bytes / factor, UNITS[index]),
        false => format!("{:.1} {}", bytes as f64 / factor as f64, UNITS[index]),
    }
}

/// A size as flags take it: `64M`; in bytes if no unit divides it.
pub fn size_flag(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "k")];
    let unit = units.into_iter().find(|(bits, _)| bytes > 0 && bytes.is_multiple_of(1 << bits));
    unit.map_or(bytes.to_string(), |(bits, unit)| format!("{}{unit}", bytes >> bits))
}

/// Milliseconds: `0.031 ms`, `4.21 ms`, `230 ms`, `12.5 s`.
pub fn ms(value: f64) -> String {
    match value {
        _ if value < 9999.5 => format!("{} ms", ms_number(value)),
        _ => duration(value / 1000.0),
    }
}

/// Milliseconds without the unit, for tables.
pub fn ms_number(value: f64) -> String {
    match value {
        _ if value < 5e-4 => "0".into(),
        _ if value < 0.1 => format!("{value:.3}"),
        _ if value < 9.995 => format!("{value:.2}"),
        _ if value < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Seconds: `0.4 s`, `56 s`, `12 min`, `3.9 h`, `4.2 days`, `31 years`.
pub fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        _ if seconds < 119.5 => (seconds, "s"),
        _ if seconds < 7170.0 => (seconds / 60.0, "min"),
        _ if seconds < 172_000.0 => (seconds / 3600.0, "h"),
        _ if seconds < 2.0 * YEAR_S => (seconds / 86_400.0, "days"),
        _ => (seconds / YEAR_S, "years"),
    };
    match value < 9.95 {
        true => format!("{value:.1} {unit}"),
        false => format!("{value:.0} {unit}"),
    }
}

/// Dollars: `0.021`, `3.40`, `1250`.
pub fn dollars(usd: f64) -> String {
    match usd {
        _ if usd < 0.0995 => format!("{usd:.3}"),
        _ if usd < 999.5 => format!("{usd:.2}"),
        _ => format!("{usd:.0}"),
    }
}

/// Of a year.
pub const YEAR_S: f64 = 365.25 * 86_400.0;

/// Years that something lasts; beyond a century nobody counts.
pub fn years(years: f64) -> String {
    match years > 100.0 {
        true => "over 100 years".into(),
        false => duration(years * YEAR_S),
    }
}

/// `7 %`, `0.3 %`, `99.8 %`.
pub fn percent(percent: f64) -> String {
    // -0 and what rounds to it.
    let percent = if percent.abs() < 0.005 { 0.0 } else { percent };
    let is_round = percent == 0.0 || percent == 100.0;
    match percent.abs() {
        _ if is_round => format!("{percent:.0} %"),
        // Not 100 when it is not all.
        0.0..0.1 => format!("{percent:.2} %"),
        0.1..9.95 => format!("{percent:.1} %"),
        99.0..100.0 => format!("{:.1} %", percent.signum() * percent.abs().min(99.9)),
        _ => format!("{percent:.0} %"),
    }
}

/// `25,902`.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 request`, `25,902 requests`.
pub fn count(count: u64, word: &str) -> String {
    format!("{} {word}{}", number(count), if count == 1 { "" } else { "s" })
}

/// `a`, `a or b`, `a, b or c`.
pub fn alternatives(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_unit_and_few_digits() {
        let times = [0.0, 0.03, 4.214, 47.26, 230.4, 12_500.0].map(ms);
        assert_eq!(times, ["0 ms", "0.030 ms", "4.21 ms", "47.3 ms", "230 ms", "12 s"]);
        let spans = [0.43, 56.0, 720.0, 14_040.0, 362_880.0, 1e9].map(duration);
        assert_eq!(spans, ["0.4 s", "56 s", "12 min", "3.9 h", "4.2 days", "32 years"]);
        assert_eq!((years(0.5), years(1e9)), ("183 days".into(), "over 100 years".to_owned()));
        let shares = [0.0, -0.001, 0.04, 7.25, 42.4, 99.97, 100.0, -250.0].map(percent);
        let expected = ["0 %", "0 %", "0.04 %", "7.2 %", "42 %", "99.9 %", "100 %", "-250 %"];
        assert_eq!(shares, expected);
        assert_eq!([0, 999, 25_902, 1_000_000].map(number), ["0", "999", "25,902", "1,000,000"]);
        assert_eq!((count(1, "write"), count(0, "write")), ("1 write".into(), "0 writes".into()));
        assert_eq!((size(3 << 19), size_flag(3 << 19)), ("1.5 MiB".into(), "1536k".to_owned()));
        assert_eq!((size_flag(64 << 20), size_flag(7)), ("64M".into(), "7".to_owned()));
        let words = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(
            (alternatives(&words), alternatives(&words[..1])),
            ("a, b or c".into(), "a".to_owned())
        );
    }
}
