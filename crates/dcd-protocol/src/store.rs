//! Object stores: how one is named, and what the process that has one open is asked for.
//!
//! ```text
//! s3://BUCKET/PREFIX          a bucket that speaks S3; endpoint and credentials by the environment
//! s3+file:///DIRECTORY        the same objects as files of a directory, for trials and tests
//! ```
//!
//! dcd starts a process for each store that it opens, and asks it over a socket of packets. Each
//! packet is a [`Message`] as JSON and brings one descriptor along, a stream socket: on that the
//! answer comes as one line of JSON, an [`Answer`], or, for [`Ask::Connect`], the store is served
//! as a disk by NBD. Nothing is remembered between two messages but what the store itself says, so
//! a process that has died is replaced by another one.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest name of a bucket or prefix.
const NAME_MAX: usize = 512;
/// Longest message and answer.
pub const STORE_MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Where a store is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum StoreName {
    /// In a bucket.
    Bucket {
        /// Its name.
        bucket: String,
        /// What all names of objects begin with; never empty.
        prefix: String,
    },
    /// In a directory.
    Directory(PathBuf),
}

/// Why a name names no store.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreNameError {
    /// No bucket, or none that S3 allows.
    #[error("expected the name of a bucket behind s3://, found {found:?}")]
    Bucket {
        /// What stands there.
        found: String,
    },
    /// No prefix, or one that is more than a name.
    #[error(
        "expected a prefix of letters, digits and -._/=+ behind the bucket, at most {NAME_MAX} bytes, found {found:?}"
    )]
    Prefix {
        /// What stands there.
        found: String,
    },
    /// Not an absolute path.
    #[error("expected an absolute path behind s3+file://, found {found:?}")]
    Directory {
        /// What stands there.
        found: String,
    },
}

impl StoreNameError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        "a store is written s3://BUCKET/PREFIX, or s3+file:///DIRECTORY for a trial; each has a prefix of its own in a \
         bucket; the endpoint comes from AWS_ENDPOINT_URL"
            .into()
    }
}

fn is_name(text: &str, also: &[u8]) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || also.contains(&byte);
    !text.is_empty() && text.len() <= NAME_MAX && text.bytes().all(is_good)
}

impl FromStr for StoreName {
    type Err = StoreNameError;

    fn from_str(text: &str) -> Result<StoreName, StoreNameError> {
        let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
        if scheme.eq_ignore_ascii_case("s3+file") {
            let has_odd_parts = rest.split('/').any(|part| part == "..");
            return match rest.starts_with('/') && rest.len() > 1 && !has_odd_parts {
                true => Ok(StoreName::Directory(rest.trim_end_matches('/').into())),
                false => Err(StoreNameError::Directory { found: rest.to_owned() }),
            };
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if !scheme.eq_ignore_ascii_case("s3") || !is_name(bucket, b"-._") {
            return Err(StoreNameError::Bucket { found: bucket.to_owned() });
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let are_parts = prefix.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !is_name(prefix, b"-._/=+") || !are_parts {
            return Err(StoreNameError::Prefix { found: prefix.to_owned() });
        }
        Ok(StoreName::Bucket { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreName::Bucket { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            StoreName::Directory(path) => write!(f, "s3+file://{}", path.display()),
        }
    }
}

/// Whether a text is meant to name a store, be it a good one.
pub fn looks_like_store(text: &[u8]) -> bool {
    let Some(end) = text.windows(3).position(|bytes| bytes == b"://") else { return false };
    matches!(&text[..end].to_ascii_lowercase()[..], b"s3" | b"s3+file")
}

/// Most snapshots of a store.
pub const SNAPSHOTS_MAX: usize = 64;
/// Longest name of one.
const SNAPSHOT_NAME_MAX: usize = 64;

/// What a snapshot is called.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName(String);

/// Why a text is no name of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected a name of letters, digits and -._ that begins with a letter or digit, at most {SNAPSHOT_NAME_MAX} bytes, \
     found {found:?}"
)]
pub struct SnapshotNameError {
    /// What stands there.
    found: String,
}

impl SnapshotName {
    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SnapshotName {
    type Err = SnapshotNameError;

    fn from_str(text: &str) -> Result<SnapshotName, SnapshotNameError> {
        let is_short = text.len() <= SNAPSHOT_NAME_MAX;
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        match is_short && begins && is_name(text, b"-._") {
            true => Ok(SnapshotName(text.to_owned())),
            false => Err(SnapshotNameError { found: text.to_owned() }),
        }
    }
}

impl TryFrom<String> for SnapshotName {
    type Error = SnapshotNameError;

    fn try_from(text: String) -> Result<SnapshotName, SnapshotNameError> {
        text.parse()
    }
}

impl From<SnapshotName> for String {
    fn from(name: SnapshotName) -> String {
        name.0
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A snapshot, as it is told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotFacts {
    /// Its name.
    pub name: String,
    /// The window at whose end it was taken.
    pub window: Option<u64>,
    /// When, in seconds since 1970, by the clock of whoever took it.
    pub taken_unix_seconds: u64,
}

/// What can be asked of a daemon about the store that it serves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreCommand {
    /// Keep the disk as it was at the end of the last window.
    Snapshot {
        /// What to call that.
        name: SnapshotName,
    },
    /// Keep it no more.
    RemoveSnapshot {
        /// What it is called.
        name: SnapshotName,
    },
}

/// What the process of a store is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Serve it as a disk on the descriptor.
    Connect,
    /// Tell what it is.
    Facts,
    /// Make a new one, unless there is one of this size that belongs to nobody.
    Create {
        /// Its size.
        size_bytes: u64,
    },
    /// It belongs to this cache from now on.
    Bind {
        /// Its UUID.
        cache: String,
        /// What if it belongs to another one.
        take_over: TakeOver,
        /// How long its leases are from now on, in seconds. `None`: as before.
        lease_seconds: Option<u64>,
    },
    /// It belongs to nobody from now on.
    Release,
    /// The lease begins anew.
    Renew,
    /// The lease is over: whoever had the store open wants no more of it.
    Rest,
    /// All that is durable becomes visible at once.
    Commit {
        /// Which window that is.
        window: u64,
    },
    /// Something about its snapshots.
    Snapshots(StoreCommand),
    /// Tell how the server takes what is asked of it, now and at each change: lines of JSON behind
    /// the answer, a [`StoreNews`] each.
    Watch,
}

/// How the server takes what is asked of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreNews {
    /// Nobody knows yet: the process has begun, and what was known before lasts.
    #[default]
    Unknown,
    /// It does what it is asked for, or does not answer.
    Well,
    /// It answers, and says no.
    Trouble(StoreTrouble),
}

/// What a server says against it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreTrouble {
    /// Which kind of no.
    pub kind: StoreTroubleKind,
    /// Which object, and what the answer said.
    pub problem: String,
}

/// Which kind of no.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreTroubleKind {
    /// There is no room, or a quota is used up.
    Full,
    /// It must not be done with this key.
    Refused,
}

impl StoreTroubleKind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            StoreTroubleKind::Full => "full",
            StoreTroubleKind::Refused => "refused",
        }
    }

    /// What to do about it.
    pub fn hint(self) -> &'static str {
        match self {
            StoreTroubleKind::Full => {
                "make room at the server, or raise the quota of the bucket: then it goes on by itself. Delete no object below \
                 the prefix: all are of this disk. Until then changes stay in the log, and are taken while that has room"
            }
            StoreTroubleKind::Refused => {
                "let the key get, put, list and delete below the prefix, and check the clock of this machine: then it goes on \
                 by itself (another key takes a restart of dcd). Until then changes stay in the log, and are taken while \
                 that has room"
            }
        }
    }
}

/// Whether a store is taken from the cache that it belongs to, whose changes since its last window
/// are given up then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TakeOver {
    /// No.
    #[default]
    No,
    /// If nobody has a lease on it.
    Lapsed,
    /// Whoever has one.
    Now,
}

/// Who opens a store to write, and what it knows of the one who had it open before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// UUID of the cache.
    pub cache: String,
    /// What the store said when this daemon had it opened last. `None`: the daemon begins.
    pub had: Option<String>,
    /// What the store is to say from now on, if it has to be opened: drawn anew for each opening.
    pub next: String,
    /// This boot of this machine and this cache-disk, which is locked: whoever else has had the
    /// store open with these is gone.
    pub place: String,
    /// The newest superblock on the cache-disk.
    pub generation: u64,
    /// At the beginning: even if the cache-disk is an older copy.
    pub trusts_disks: bool,
    /// At the beginning: even if somebody has a lease.
    pub is_now: bool,
    /// The name of this machine, for people.
    #[serde(default)]
    pub host: Option<String>,
}

/// How long whoever has renewed a lease has it, in seconds, if nobody has chosen.
pub const LEASE_SECONDS: u64 = 30;
/// The shortest that can be chosen. Whoever has it ends it 2 s sooner, renews it each third, and
/// tries again a second behind a renewal that has failed: with less one slow answer ends it.
pub const LEASE_SECONDS_MIN: u64 = 10;
/// The longest: whoever is to go on elsewhere waits for that.
pub const LEASE_SECONDS_MAX: u64 = 600;
/// By how much the clocks of two machines may differ, in seconds: so much longer others leave the
/// store alone.
pub const CLOCKS_DIFFER_SECONDS: u64 = 10;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Message {
    /// Which store.
    pub store: String,
    /// As whom, if somebody is to write.
    pub claim: Option<Claim>,
    /// What is wanted.
    pub ask: Ask,
}

/// What a store is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoreFacts {
    /// Of the disk in it.
    pub size_bytes: u64,
    /// UUID of the cache that it belongs to.
    pub cache: Option<String>,
    /// How often it has changed its writer.
    pub epoch: u64,
    /// The last window that was committed, ...
    pub window: Option<u64>,
    /// ... and when, in seconds since 1970, by the clock of whoever did.
    pub committed_unix_seconds: Option<u64>,
    /// Data objects, ...
    pub objects: u64,
    /// ... their lines, ...
    pub lines: u64,
    /// ... and how many of these are in use.
    pub live_lines: u64,
    /// Lines that a flush has made durable behind the last window.
    pub staged_lines: u64,
    /// The opening that has it, or had it last.
    pub claim: Option<String>,
    /// In so many seconds its lease is over for everybody else, if it is not.
    pub lease_left_seconds: Option<u64>,
    /// How long a lease is.
    #[serde(default)]
    pub lease_seconds: Option<u64>,
    /// The machine of the opening that has it, or had it last, as it calls itself.
    #[serde(default)]
    pub host: Option<String>,
    /// The oldest first.
    #[serde(default)]
    pub snapshots: Vec<SnapshotFacts>,
    /// Data objects that only these need.
    #[serde(default)]
    pub kept_objects: u64,
}

/// How it went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Well.
    Done(StoreFacts),
    /// Not at all.
    Failed(StoreFailure),
}

/// Why a store cannot be used, in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{problem}")]
pub struct StoreFailure {
    /// What is wrong, with the object or bucket it is about.
    pub problem: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Nobody answers: later it may go well.
    pub is_silence: bool,
    /// Somebody else has it: for this daemon that is the end.
    #[serde(default)]
    pub is_lost: bool,
}

/// Whether a lease may be so long, in seconds.
pub fn is_lease(seconds: u64) -> bool {
    (LEASE_SECONDS_MIN..=LEASE_SECONDS_MAX).contains(&seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_snapshots_are_short_words() {
        for text in ["a", "before-upgrade", "2026-11-29_1.2"] {
            assert_eq!(text.parse::<SnapshotName>().unwrap().as_str(), text);
        }
        let long = "a".repeat(SNAPSHOT_NAME_MAX + 1);
        for text in ["", "-a", ".a", "a b", "a/b", "\u{e4}", long.as_str()] {
            assert!(text.parse::<SnapshotName>().is_err(), "{text}");
            let json = serde_json::to_string(text).unwrap();
            assert!(serde_json::from_str::<SnapshotName>(&json).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_read_and_written() {
        for (text, written) in [
            ("s3://bucket/a", "s3://bucket/a"),
            ("S3://my.bucket-1/a/b_c/", "s3://my.bucket-1/a/b_c"),
            ("s3://b/a=1", "s3://b/a=1"),
            ("s3+file:///tmp/x/", "s3+file:///tmp/x"),
        ] {
            assert_eq!(text.parse::<StoreName>().unwrap().to_string(), written);
            assert!(looks_like_store(text.as_bytes()));
        }
        for text in [
            "s3://",
            "s3://bucket",
            "s3://bucket/",
            "s3:///a",
            "s3://b/a//b",
            "s3://b/../a",
            "s3://b/a?x=1",
            "s3://u@b/a",
            "s3+file://x",
            "s3+file:///",
            "s3+file:///a/../b",
            "s3",
        ] {
            assert!(text.parse::<StoreName>().is_err(), "{text}");
        }
        assert!(!looks_like_store(b"./s3://x") && !looks_like_store(b"nbd://x"));
    }
}
