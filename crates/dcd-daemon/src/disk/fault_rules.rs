//! Faults on command: what the control file of a `faulty:` disk may say.
//!
//! ```text
//! # one rule per line; the first that fits a request counts
//! write eio                 every write fails with EIO
//! read eio 4096-8192        reads that touch these bytes (the end is not included)
//! flush eio once            the next flush only
//! write enospc              ...with "no space left"
//! write hang                never answered while the rule stands
//! gone                      the disk is not there any more
//! ```
//!
//! `any` means read, write and flush. An empty or missing file means no fault. The file is looked
//! at for each request, so that rules are in force when the command that wrote them has ended, and
//! read again when its time, its size or its inode has changed.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use dcd_engine::Duration;

use crate::units_text::{UnitError, parse_size};

/// How often the control file is looked at for requests that hang.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// A control file is small; what is longer is not one.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// EIO.
    Eio,
    /// ENOSPC.
    Enospc,
    /// ENODEV.
    Gone,
    /// No answer while the rule stands.
    Hang,
}

/// Kind of a request, as rules name it. Writes of zeroes are writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultTarget {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// All of them.
    Any,
}

/// A line of the control file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultRule {
    target: FaultTarget,
    fault: Fault,
    /// Only requests that touch these bytes; a flush touches none.
    range: Option<Range<u64>>,
    once: bool,
    used: bool,
}

/// A line that is no rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FaultRuleError {
    /// A word that is not known in its place.
    #[error("line {line}: expected {expected}, found {found:?}")]
    Word {
        /// Line, from 1.
        line: usize,
        /// What may stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A range that cannot be read.
    #[error("line {line}: byte range {found:?}: {source}")]
    Range {
        /// Line, from 1.
        line: usize,
        /// The range.
        found: String,
        /// What is wrong.
        source: UnitError,
    },
}

impl FaultRuleError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        "a rule is `read|write|flush|any eio|enospc|hang|gone [FROM-TO] [once]`, or `gone`"
    }
}

/// Reads the rules of a control file.
pub fn parse_rules(text: &str) -> Result<Vec<FaultRule>, FaultRuleError> {
    let mut rules = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("");
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words.is_empty() {
            rules.push(parse_rule(index + 1, &words)?);
        }
    }
    Ok(rules)
}

fn parse_rule(line: usize, words: &[&str]) -> Result<FaultRule, FaultRuleError> {
    let word = |expected, found: Option<&&str>| FaultRuleError::Word {
        line,
        expected,
        found: found.map_or_else(String::new, |f| (*f).to_owned()),
    };
    let mut rest = words.iter();
    let target = match words[0] {
        "read" => FaultTarget::Read,
        "write" => FaultTarget::Write,
        "flush" => FaultTarget::Flush,
        "any" | "gone" => FaultTarget::Any,
        _ => return Err(word("read, write, flush, any or gone", words.first())),
    };
    // `gone` alone is `any gone`.
    if words[0] != "gone" {
        rest.next();
    }
    let found = rest.next();
    let fault = match found {
        Some(&"eio") => Fault::Eio,
        Some(&"enospc") => Fault::Enospc,
        Some(&"gone") => Fault::Gone,
        Some(&"hang") => Fault::Hang,
        _ => return Err(word("eio, enospc, hang or gone", found)),
    };
    let mut rule = FaultRule { target, fault, range: None, once: false, used: false };
    for next in rest {
        if *next == "once" {
            rule.once = true;
        } else if let Some((from, to)) = next.split_once('-') {
            let bytes = |text| {
                parse_size(text).map_err(|source| FaultRuleError::Range {
                    line,
                    found: (*next).to_owned(),
                    source,
                })
            };
            rule.range = Some(bytes(from)?..bytes(to)?);
        } else {
            return Err(word("a byte range such as 4096-8192, or once", Some(next)));
        }
    }
    Ok(rule)
}

/// The first rule that fits a request, if any. Uses up a rule that counts `once`.
pub fn find_fault(
    rules: &mut [FaultRule],
    target: FaultTarget,
    bytes: Option<Range<u64>>,
) -> Option<Fault> {
    let rule = rules.iter_mut().find(|rule| {
        let target_fits = rule.target == FaultTarget::Any || rule.target == target;
        let range_fits = match (&rule.range, &bytes) {
            (None, _) => true,
            (Some(rule), Some(bytes)) => rule.start < bytes.end && bytes.start < rule.end,
            (Some(_), None) => false,
        };
        !rule.used && target_fits && range_fits
    })?;
    rule.used = rule.once;
    Some(rule.fault)
}

/// The rules of one control file, kept up to date.
pub struct FaultFile {
    path: PathBuf,
    rules: Vec<FaultRule>,
    /// Time, size and inode of the file when it was read; `None`: it was not there.
    version: Option<(SystemTime, u64, u64)>,
    changes: u64,
}

impl FaultFile {
    /// Rules from `path`, which need not exist yet.
    pub fn new(path: &Path) -> FaultFile {
        FaultFile { path: path.to_owned(), rules: Vec::new(), version: None, changes: 0 }
    }

    /// Looks at the file. How often the rules have changed until now.
    ///
    /// A file that cannot be read as rules leaves no rule in force and is complained about once.
    pub fn refresh(&mut self) -> u64 {
        let version = fs::metadata(&self.path)
            .ok()
            .filter(|m| m.is_file())
            .and_then(|m| Some((m.modified().ok()?, m.len(), m.ino())));
        if version == self.version {
            return self.changes;
        }
        self.version = version;
        let size = version.map_or(0, |(_, size, _)| size);
        let text = match version {
            Some(_) if size <= FILE_BYTES_MAX => dcd_files::small_file::read_text(&self.path),
            Some(_) => Err(std::io::Error::other("the file is longer than 64 KiB")),
            None => Ok(String::new()),
        };
        self.rules = match text.map(|text| parse_rules(&text)) {
            Ok(Ok(rules)) => rules,
            Ok(Err(error)) => {
                eprintln!("dcd: fault rules {}: {error}", self.path.display());
                eprintln!("hint: {}", error.hint());
                Vec::new()
            }
            Err(error) => {
                eprintln!("dcd: fault rules {}: {error}", self.path.display());
                Vec::new()
            }
        };
        self.changes += 1;
        self.changes
    }

    /// The fault of a request, if any; see [`find_fault`].
    pub fn find(&mut self, target: FaultTarget, bytes: Option<Range<u64>>) -> Option<Fault> {
        find_fault(&mut self.rules, target, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_counts() {
        let mut rules = parse_rules(
            "# drill\n\nread eio 4k-8k\nread enospc   # the rest\nwrite hang\nflush eio once\n",
        )
        .unwrap();
        let mut find = |target, bytes| find_fault(&mut rules, target, bytes);
        assert_eq!(find(FaultTarget::Read, Some(4096..4608)), Some(Fault::Eio));
        assert_eq!(find(FaultTarget::Read, Some(0..4097)), Some(Fault::Eio));
        assert_eq!(find(FaultTarget::Read, Some(0..4096)), Some(Fault::Enospc));
        assert_eq!(find(FaultTarget::Read, Some(8192..9000)), Some(Fault::Enospc));
        assert_eq!(find(FaultTarget::Write, Some(0..512)), Some(Fault::Hang));
        assert_eq!(find(FaultTarget::Flush, None), Some(Fault::Eio));
        assert_eq!(find(FaultTarget::Flush, None), None, "once");
    }

    #[test]
    fn gone_means_everything() {
        let mut rules = parse_rules("gone").unwrap();
        for target in [FaultTarget::Read, FaultTarget::Write, FaultTarget::Flush] {
            assert_eq!(find_fault(&mut rules, target, None), Some(Fault::Gone));
        }
        assert!(parse_rules("").unwrap().is_empty());
    }

    #[test]
    fn mistakes_name_their_line() {
        assert_eq!(
            parse_rules("write eio\nwrote eio").unwrap_err().to_string(),
            "line 2: expected read, write, flush, any or gone, found \"wrote\""
        );
        assert!(matches!(parse_rules("write"), Err(FaultRuleError::Word { line: 1, .. })));
        assert!(matches!(parse_rules("write eio twice"), Err(FaultRuleError::Word { .. })));
        assert!(matches!(parse_rules("write eio 1-x"), Err(FaultRuleError::Range { .. })));
    }

    #[test]
    fn the_file_is_read_again_when_it_changes() {
        let path = std::env::temp_dir().join(format!("dcd-fault-test-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let mut file = FaultFile::new(&path);
        assert_eq!(file.refresh(), 0);
        fs::write(&path, "write eio\n").unwrap();
        assert_eq!([file.refresh(), file.refresh()], [1, 1]);
        assert_eq!(file.find(FaultTarget::Write, Some(0..1)), Some(Fault::Eio));
        fs::remove_file(&path).unwrap();
        assert_eq!(file.refresh(), 2);
        assert_eq!(file.find(FaultTarget::Write, Some(0..1)), None);
    }
}
