//! A line of a text trace and its fields: numbers, times and addresses, and errors that say in
//! which column what was expected and what was found.

use std::path::Path;

use super::error::{TraceError, shortened};
use super::{Operation, Request, SIZE_BYTES_MAX};

/// Most fields that are looked at.
pub(super) const FIELDS_MAX: usize = 32;

/// Longest time that a request takes, where its beginning is reckoned from its end.
const LATENCY_NS_MAX: u64 = 3600 * 1_000_000_000;

/// A line.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub path: &'a Path,
    pub number: u64,
    pub text: &'a str,
}

impl<'a> Line<'a> {
    /// Its fields between commas, without blanks around them.
    pub fn split_commas(self) -> Row<'a> {
        let mut row = Row { line: self, fields: [("", self.text.len()); FIELDS_MAX], count: 0 };
        let mut begin = 0;
        for field in self.text.split(',').take(FIELDS_MAX) {
            let blanks = field.len() - field.trim_start().len();
            row.push(field.trim(), begin + blanks);
            begin += field.len() + 1;
        }
        row
    }

    /// Its fields between blanks.
    pub fn split_blanks(self) -> Row<'a> {
        self.split_blanks_from(0)
    }

    /// The same, of what follows a byte.
    pub fn split_blanks_from(self, begin: usize) -> Row<'a> {
        let mut row = Row { line: self, fields: [("", self.text.len()); FIELDS_MAX], count: 0 };
        let rest = self.text.get(begin..).unwrap_or_default();
        for field in rest.split_ascii_whitespace().take(FIELDS_MAX) {
            row.push(field, field.as_ptr() as usize - self.text.as_ptr() as usize);
        }
        row
    }

    /// What is wrong at a byte of the line.
    pub fn problem(&self, byte: usize, name: &'static str, problem: String) -> TraceError {
        let column = self.column(byte);
        TraceError::Field { path: self.path.to_owned(), line: self.number, column, name, problem }
    }

    /// Character at a byte, from 1.
    fn column(&self, byte: usize) -> usize {
        let before = self.text.get(..byte).unwrap_or(self.text);
        before.chars().count() + 1
    }
}

/// A line in fields.
pub(super) struct Row<'a> {
    pub line: Line<'a>,
    /// Text, and the byte at which it begins.
    fields: [(&'a str, usize); FIELDS_MAX],
    pub count: usize,
}

/// Where a request is, and how much.
pub(super) struct Range {
    /// Field of the address.
    pub field: usize,
    pub offset_bytes: u64,
    pub size_bytes: u64,
}

impl<'a> Row<'a> {
    fn push(&mut self, text: &'a str, begin: usize) {
        self.fields[self.count] = (text, begin);
        self.count += 1;
    }

    /// A field; nothing if there is none.
    pub fn text(&self, index: usize) -> &'a str {
        self.fields.get(index).map_or("", |(text, _)| *text)
    }

    /// Byte at which a field begins, or the end of the line.
    pub fn byte(&self, index: usize) -> usize {
        self.fields.get(index).map_or(self.line.text.len(), |(_, byte)| *byte)
    }

    /// Character at which a field begins, from 1.
    pub fn column(&self, index: usize) -> usize {
        self.line.column(self.byte(index))
    }

    /// Whether its first fields are these names, in whatever case: a line that names columns.
    pub fn begins_with<const N: usize>(&self, names: [&str; N]) -> bool {
        let mut fields = (0..N).map(|index| self.text(index));
        names.iter().all(|name| fields.next().is_some_and(|it| it.eq_ignore_ascii_case(name)))
    }

    /// A field that must be there.
    pub fn get(&self, index: usize, name: &'static str) -> Result<&'a str, TraceError> {
        let text = self.text(index);
        if text.is_empty() {
            let problem = if index < self.count {
                "missing: the field is empty"
            } else {
                "missing: the line ends before it"
            };
            return Err(self.problem(index, name, problem.to_owned()));
        }
        Ok(text)
    }

    /// A number.
    pub fn number(&self, index: usize, name: &'static str) -> Result<u64, TraceError> {
        self.bytes(index, name, 1)
    }

    /// A number of units of so many bytes, in bytes.
    pub fn bytes(&self, index: usize, name: &'static str, unit: u64) -> Result<u64, TraceError> {
        let text = self.get(index, name)?;
        let number = text.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        number.ok_or_else(|| self.expected(index, name, "a whole number below 2^64 bytes"))
    }

    /// A small number: of a device, or flags.
    pub fn small(&self, index: usize, name: &'static str) -> Result<u32, TraceError> {
        let text = self.get(index, name)?;
        text.parse().map_err(|_| self.expected(index, name, "a whole number below 2^32"))
    }

    /// A time in units of so many nanoseconds, in nanoseconds.
    pub fn time(&self, index: usize, name: &'static str, unit: u64) -> Result<u64, TraceError> {
        let text = self.get(index, name)?;
        decimal(text, unit).ok_or_else(|| {
            let what = match unit {
                1_000_000_000 => "a time in seconds",
                1_000_000 => "a time in milliseconds",
                1_000 => "a time in microseconds",
                1 => "a time in nanoseconds",
                _ => "a time in units of 100 ns",
            };
            self.expected(index, name, what)
        })
    }

    /// When a request began that was done at `done_ns` and took `latency_ns`, which is in a field:
    /// later by an hour, so that it is not before the beginning. Times count from the first one.
    pub fn begun(&self, done_ns: u64, field: usize, latency_ns: u64) -> Result<u64, TraceError> {
        let later_ns = LATENCY_NS_MAX.checked_sub(latency_ns);
        let begun_ns = later_ns.and_then(|later_ns| done_ns.checked_add(later_ns));
        begun_ns.ok_or_else(|| self.expected(field, "latency", "less than an hour"))
    }

    /// A request at `time_ns`; its other facts are to be filled in.
    pub fn request(
        &self,
        time_ns: u64,
        operation: Operation,
        range: &Range,
    ) -> Result<Request, TraceError> {
        let Range { field, offset_bytes, size_bytes } = *range;
        if offset_bytes.checked_add(size_bytes).is_none() {
            let problem = format!("{size_bytes} bytes at {offset_bytes} end at or beyond 2^64");
            return Err(self.problem(field, "address", problem));
        }
        if size_bytes > SIZE_BYTES_MAX && operation != Operation::Discard {
            let problem = format!("expected at most 1 GiB in a request, found {size_bytes} bytes");
            return Err(self.problem(field, "size", problem));
        }
        Ok(Request {
            time_ns,
            operation,
            device: 0,
            offset_bytes,
            size_bytes,
            flags: Default::default(),
            latency_ns: None,
            line: self.line.number,
            column: self.column(field) as u32,
        })
    }

    /// What is wrong with a field.
    pub fn problem(&self, index: usize, name: &'static str, problem: String) -> TraceError {
        self.line.problem(self.byte(index), name, problem)
    }

    /// That a field should be something else.
    pub fn expected(&self, index: usize, name: &'static str, what: &str) -> TraceError {
        let problem = format!("expected {what}, found `{}`", shortened(self.text(index)));
        self.problem(index, name, problem)
    }
}

/// A decimal number of units, each so many (a power of ten), in ones; the first digit that is less
/// than one is rounded.
pub(super) fn decimal(text: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut sum = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes().map(|byte| u64::from(byte - b'0')) {
        if place < 10 {
            return sum.checked_add(u64::from(digit >= 5));
        }
        place /= 10;
        sum = sum.checked_add(digit * place)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn decimal_times_are_exact() {
        assert_eq!(decimal("12", 1000), Some(12_000));
        assert_eq!(decimal("12.3456", 1000), Some(12_346));
        assert_eq!(decimal("12.3454", 1000), Some(12_345));
        assert_eq!(decimal(".5", 1_000_000_000), Some(500_000_000));
        assert_eq!(decimal("5.", 100), Some(500));
        assert_eq!(decimal("18446744073.709551615", 1_000_000_000), Some(u64::MAX));
        for bad in ["", ".", "-1", "+1", "1e3", "nan", "1.2.3", " 1", "18446744073.709551616"] {
            assert_eq!(decimal(bad, 1_000_000_000), None, "{bad}");
        }
    }
}
