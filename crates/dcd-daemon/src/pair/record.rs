//! What a host remembers of a pair: one file for each cache, as text. It is advice: a lost one
//! refuses nothing, and the superblock and the witnesses on the disks stay what counts.
//! `pair/book.rs` says when it is written and what follows from it.
//!
//! Two slots are written in turn, so that one is whole whenever the machine stops. Each begins with
//! a line that has the length and the checksum of what follows:
//!
//! ```text
//! dcd pair 1 213 9a0c11f2
//! written 7
//! cache 1b0e5f5c-...
//! generation 12
//! state closed dirty
//! cache-disk /srv/fast.img
//! changed 1764041234.5
//! data-disk /srv/slow.img
//! key file 5a01 131 1764040000000000000 0 18446744073709551615
//! earlier serial eui.0025385b 1000204886016
//! ```

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use dcd_engine::Uuid;
use dcd_engine::format::checksum::crc32c;

/// Room of a slot.
pub const SLOT_BYTES: usize = 32 << 10;
/// Longest name that is kept, as it is written; longer ones are left out.
const PATH_BYTES_MAX: usize = 600;
/// Longest serial number, and name of a start of the machine.
const WORD_BYTES_MAX: usize = 64;
/// Data-disks that are kept, and earlier ones.
const DISKS_MAX: usize = 32;
const EARLIER_MAX: usize = 8;
const TITLE: &str = "dcd pair 1";

/// A pair as it was last seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PairRecord {
    /// Counts the writings of this record.
    pub written: u64,
    /// The cache.
    pub cache: Uuid,
    /// Its superblock has at least this generation.
    pub generation: u64,
    /// What it was left as.
    pub state: PairState,
    /// Where the cache is.
    pub cache_disk: DiskState,
    /// The data-disk, or the members.
    pub data_disks: Vec<DiskState>,
    /// Disks that it was served with before.
    pub earlier: Vec<DiskKey>,
}

/// What a pair was left as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PairState {
    /// Parted: the data-disk stands on its own.
    Detached,
    /// Closed in order.
    Closed {
        /// The cache holds what the data-disk does not.
        is_dirty: bool,
    },
    /// In use, or its user died.
    Open,
    /// The data-disk went on without it, or with another cache: what it holds is older.
    GivenUp,
}

impl PairState {
    /// Whether the cache may hold what the data-disk does not.
    pub fn may_be_dirty(self) -> bool {
        matches!(self, PairState::Open | PairState::Closed { is_dirty: true })
    }

    fn words(self) -> &'static str {
        match self {
            PairState::Detached => "detached",
            PairState::Closed { is_dirty: false } => "closed clean",
            PairState::Closed { is_dirty: true } => "closed dirty",
            PairState::Open => "open",
            PairState::GivenUp => "given up",
        }
    }
}

/// A disk as it was last seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskState {
    /// Its name; empty: too long to be kept.
    pub path: PathBuf,
    /// What it is known by, if by anything.
    pub key: Option<DiskKey>,
    /// The directory it is in.
    pub directory: Option<DiskKey>,
    /// When a file was last written to, in nanoseconds since 1970, if it is one and was closed.
    pub changed: Option<i128>,
}

/// What a disk is known by on this host, whatever its name and whatever device is made of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiskKey {
    /// Bytes of a file.
    File {
        /// Its file system.
        file_system: u64,
        /// Its number.
        inode: u64,
        /// When it was made, in nanoseconds since 1970: numbers are given again.
        born: u64,
        /// Its first byte.
        start: u64,
        /// The byte behind its last; all ones: it is the whole file.
        end: u64,
    },
    /// A disk with a serial number.
    Serial {
        /// The number, and that of the partition.
        serial: String,
        /// Bytes.
        size: u64,
    },
    /// A disk without, which has its number until the machine is started again.
    Device {
        /// Device number.
        number: u64,
        /// Which start of the machine.
        boot: String,
        /// Bytes.
        size: u64,
    },
}

/// Whether two keys are of one disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Match {
    /// They are.
    Same,
    /// They are not.
    Other,
    /// They say nothing of each other.
    Unknown,
}

impl DiskKey {
    /// Compares.
    pub fn compare(&self, other: &DiskKey) -> Match {
        let is = |same| if same { Match::Same } else { Match::Other };
        match (self, other) {
            (DiskKey::File { start: 1.., .. }, DiskKey::File { start: 1.., .. }) => {
                // A part of a file may have got another size since.
                let begin = |key: &DiskKey| match key {
                    DiskKey::File { file_system, inode, born, start, .. } => {
                        Some((*file_system, *inode, *born, *start))
                    }
                    _ => None,
                };
                is(begin(self) == begin(other))
            }
            (DiskKey::File { .. }, DiskKey::File { .. }) => is(self == other),
            // A disk that has grown is the same.
            (DiskKey::Serial { serial, .. }, DiskKey::Serial { serial: theirs, .. }) => {
                is(serial == theirs)
            }
            (
                DiskKey::Device { number, boot, .. },
                DiskKey::Device { number: other, boot: their_boot, .. },
            ) if boot == their_boot => is(number == other),
            _ => Match::Unknown,
        }
    }

    fn write(&self, text: &mut String) {
        let _ = match self {
            DiskKey::File { file_system, inode, born, start, end } => {
                write!(text, "file {file_system:x} {inode} {born} {start} {end}")
            }
            DiskKey::Serial { serial, size } => {
                write!(text, "serial {} {size}", escaped(serial.as_bytes()))
            }
            DiskKey::Device { number, boot, size } => {
                write!(text, "device {number} {} {size}", escaped(boot.as_bytes()))
            }
        };
    }

    fn parse(words: &str) -> Option<DiskKey> {
        let mut words = words.split(' ');
        let kind = words.next()?;
        let words: Vec<&str> = words.collect();
        let text = |word: &str| {
            let text = String::from_utf8(unescaped(word)?).ok()?;
            (text.len() <= WORD_BYTES_MAX).then_some(text)
        };
        Some(match (kind, words.as_slice()) {
            ("file", [file_system, inode, born, start, end]) => DiskKey::File {
                file_system: u64::from_str_radix(file_system, 16).ok()?,
                inode: inode.parse().ok()?,
                born: born.parse().ok()?,
                start: start.parse().ok()?,
                end: end.parse().ok()?,
            },
            ("serial", [serial, size]) => {
                DiskKey::Serial { serial: text(serial)?, size: size.parse().ok()? }
            }
            ("device", [number, boot, size]) => DiskKey::Device {
                number: number.parse().ok()?,
                boot: text(boot)?,
                size: size.parse().ok()?,
            },
            _ => return None,
        })
    }
}

/// Why bytes are no record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// It begins otherwise.
    #[error("expected `{TITLE}`, a length and a checksum in the first line")]
    Title,
    /// It is cut off, or was changed.
    #[error("the text does not have the checksum in its first line")]
    Checksum,
    /// A line that cannot be read, or a missing one.
    #[error("line {line} cannot be read")]
    Line {
        /// Its number, from 1.
        line: usize,
    },
    /// A line that is missing.
    #[error("there is no line `{name}`")]
    Missing {
        /// Which.
        name: &'static str,
    },
}

impl PairRecord {
    /// The bytes of a slot, no longer than [`SLOT_BYTES`].
    pub fn encode(&self) -> Vec<u8> {
        let mut body = String::new();
        let _ = writeln!(body, "written {}\ncache {}", self.written, self.cache);
        let _ = writeln!(body, "generation {}\nstate {}", self.generation, self.state.words());
        write_disk(&mut body, "cache-disk", &self.cache_disk);
        for disk in self.data_disks.iter().take(DISKS_MAX) {
            write_disk(&mut body, "data-disk", disk);
        }
        for key in self.earlier.iter().take(EARLIER_MAX) {
            write_key(&mut body, "earlier", key);
        }
        let title = format!("{TITLE} {} {:08x}\n", body.len(), crc32c(body.as_bytes()));
        (title + &body).into_bytes()
    }

    /// Reads a slot. Every byte may be anything.
    pub fn decode(bytes: &[u8]) -> Result<PairRecord, RecordError> {
        let bytes = &bytes[..bytes.len().min(SLOT_BYTES)];
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(RecordError::Title)?;
        let title = str::from_utf8(&bytes[..end]).map_err(|_| RecordError::Title)?;
        let rest = title.strip_prefix(TITLE).and_then(|rest| rest.strip_prefix(' '));
        let (length, checksum) =
            rest.and_then(|rest| rest.split_once(' ')).ok_or(RecordError::Title)?;
        let length: usize = length.parse().map_err(|_| RecordError::Title)?;
        let checksum = u32::from_str_radix(checksum, 16).map_err(|_| RecordError::Title)?;
        let body = bytes[end + 1..].get(..length).ok_or(RecordError::Checksum)?;
        if crc32c(body) != checksum {
            return Err(RecordError::Checksum);
        }
        let body = str::from_utf8(body).map_err(|_| RecordError::Checksum)?;
        let (mut written, mut cache, mut generation, mut state) = (None, None, None, None);
        let mut disks: Vec<(bool, DiskState)> = Vec::new();
        let mut earlier = Vec::new();
        for (index, line) in body.lines().enumerate() {
            let problem = RecordError::Line { line: index + 2 };
            let (name, value) = line.split_once(' ').ok_or(problem.clone())?;
            let read = (|| {
                match name {
                    "written" => written = Some(value.parse().ok()?),
                    "cache" => cache = Some(uuid_of(value)?),
                    "generation" => generation = Some(value.parse().ok()?),
                    "state" => state = Some(state_of(value)?),
                    "cache-disk" | "data-disk" if disks.len() <= DISKS_MAX => {
                        let path = std::ffi::OsString::from_vec(unescaped(value)?).into();
                        let disk = DiskState { path, ..DiskState::default() };
                        disks.push((name == "cache-disk", disk));
                    }
                    "key" => disks.last_mut()?.1.key = Some(DiskKey::parse(value)?),
                    "directory" => disks.last_mut()?.1.directory = Some(DiskKey::parse(value)?),
                    "changed" => disks.last_mut()?.1.changed = Some(value.parse().ok()?),
                    "earlier" if earlier.len() < EARLIER_MAX => {
                        earlier.push(DiskKey::parse(value)?);
                    }
                    _ => return None,
                }
                Some(())
            })();
            read.ok_or(problem)?;
        }
        let missing = |name| RecordError::Missing { name };
        let (caches, data_disks): (Vec<_>, Vec<_>) = disks.into_iter().partition(|disk| disk.0);
        let of = |disks: Vec<(bool, DiskState)>| disks.into_iter().map(|(_, disk)| disk);
        Ok(PairRecord {
            written: written.ok_or(missing("written"))?,
            cache: cache.ok_or(missing("cache"))?,
            generation: generation.ok_or(missing("generation"))?,
            state: state.ok_or(missing("state"))?,
            cache_disk: of(caches).next().ok_or(missing("cache-disk"))?,
            data_disks: of(data_disks).collect(),
            earlier,
        })
    }

    /// The one of two slots that was written last.
    pub fn newest(bytes: &[u8]) -> Result<PairRecord, RecordError> {
        let first = PairRecord::decode(bytes);
        let second = PairRecord::decode(bytes.get(SLOT_BYTES..).unwrap_or_default());
        match (first, second) {
            (Ok(first), Ok(second)) if second.written > first.written => Ok(second),
            (Ok(first), _) => Ok(first),
            (Err(_), Ok(second)) => Ok(second),
            (Err(first), Err(_)) => Err(first),
        }
    }

    /// Where it is written.
    pub fn slot(&self) -> u64 {
        self.written % 2 * SLOT_BYTES as u64
    }
}

pub(crate) fn uuid_of(text: &str) -> Option<Uuid> {
    let digits: String = text.chars().filter(|digit| *digit != '-').collect();
    let is_plain = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_plain.then(|| u128::from_str_radix(&digits, 16).ok())??;
    Some(Uuid(number.to_be_bytes()))
}

fn state_of(words: &str) -> Option<PairState> {
    let all = [
        PairState::Detached,
        PairState::Closed { is_dirty: false },
        PairState::Closed { is_dirty: true },
        PairState::Open,
        PairState::GivenUp,
    ];
    all.into_iter().find(|state| state.words() == words)
}

fn write_key(text: &mut String, name: &str, key: &DiskKey) {
    let _ = write!(text, "{name} ");
    key.write(text);
    text.push('\n');
}

fn write_disk(text: &mut String, name: &str, disk: &DiskState) {
    let path = escaped(disk.path.as_os_str().as_bytes());
    let path = if path.len() > PATH_BYTES_MAX { "" } else { &path };
    let _ = writeln!(text, "{name} {path}");
    if let Some(key) = &disk.key {
        write_key(text, "key", key);
    }
    if let Some(directory) = &disk.directory {
        write_key(text, "directory", directory);
    }
    if let Some(changed) = disk.changed {
        let _ = writeln!(text, "changed {changed}");
    }
}

/// Words without spaces: other bytes as `%20`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'!'..=b'~' if *byte != b'%' => text.push(char::from(*byte)),
            _ => drop(write!(text, "%{byte:02x}")),
        }
    }
    text
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'%' => {
                let digits = str::from_utf8(behind.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &behind[2..];
            }
            b'!'..=b'~' => bytes.push(*first),
            _ => return None,
        }
    }
    Some(bytes)
}

/// The name of the file of a cache.
pub fn file_name(cache: Uuid) -> String {
    format!("{cache}.pair")
}

/// Whether a file is such a record, by its name.
pub fn is_record(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("pair"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> PairRecord {
        let file = |inode| DiskKey::File {
            file_system: 0x5a01,
            inode,
            born: 1_764_040_000_000_000_000,
            start: 0,
            end: u64::MAX,
        };
        PairRecord {
            written: 7,
            cache: Uuid([3; 16]),
            generation: 12,
            state: PairState::Closed { is_dirty: true },
            cache_disk: DiskState {
                path: "/srv/fast 1%.img".into(),
                key: Some(DiskKey::Serial { serial: "WD 1".into(), size: 5 }),
                directory: Some(file(2)),
                changed: None,
            },
            data_disks: vec![
                DiskState { changed: Some(-5), key: Some(file(131)), ..DiskState::default() },
                DiskState { path: OsStr::from_bytes(b"/\xff\n").into(), ..DiskState::default() },
            ],
            earlier: vec![DiskKey::Device { number: 2049, boot: "b-1".into(), size: 9 }],
        }
    }

    #[test]
    fn comes_back_and_the_later_slot_counts() {
        let record = record();
        assert_eq!(PairRecord::decode(&record.encode()), Ok(record.clone()));
        let mut bytes = record.encode();
        bytes.resize(SLOT_BYTES, 0);
        assert_eq!(PairRecord::newest(&bytes), Ok(record.clone()));
        let later = PairRecord { written: 8, state: PairState::Open, ..record.clone() };
        bytes.extend(later.encode());
        assert_eq!(PairRecord::newest(&bytes), Ok(later));
        // Torn, the other one counts.
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert_eq!(PairRecord::newest(&bytes), Ok(record.clone()));
        let closed = PairState::Closed { is_dirty: false };
        for state in [PairState::Detached, closed, PairState::Open, PairState::GivenUp] {
            let record = PairRecord { state, ..record.clone() };
            assert_eq!(PairRecord::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn the_largest_has_room() {
        let path: PathBuf = format!("/{}", "\n".repeat(PATH_BYTES_MAX / 3 - 1)).into();
        let key = DiskKey::Serial { serial: "\u{1}".repeat(64), size: u64::MAX };
        let disk = DiskState {
            path: path.clone(),
            key: Some(key.clone()),
            directory: None,
            changed: Some(i128::from(i64::MIN)),
        };
        let record = PairRecord {
            written: u64::MAX,
            generation: u64::MAX,
            cache_disk: disk.clone(),
            data_disks: vec![disk; DISKS_MAX],
            earlier: vec![key; EARLIER_MAX],
            ..record()
        };
        assert!(record.encode().len() <= SLOT_BYTES, "{}", record.encode().len());
        assert_eq!(PairRecord::decode(&record.encode()), Ok(record.clone()));
        let long = DiskState { path: "/x".repeat(PATH_BYTES_MAX).into(), ..DiskState::default() };
        let long = PairRecord { cache_disk: long, ..record };
        let back = PairRecord::decode(&long.encode()).unwrap();
        assert_eq!(back.cache_disk.path, Path::new(""));
    }

    #[test]
    fn whatever_is_wrong_is_told() {
        let of = |body: &str| {
            let title = format!("{TITLE} {} {:08x}\n", body.len(), crc32c(body.as_bytes()));
            PairRecord::decode((title + body).as_bytes())
        };
        assert_eq!(PairRecord::decode(b""), Err(RecordError::Title));
        assert_eq!(PairRecord::decode(b"dcd pair 2 0 0\n"), Err(RecordError::Title));
        assert_eq!(PairRecord::decode(b"dcd pair 1 9 0\nx"), Err(RecordError::Checksum));
        assert_eq!(of(""), Err(RecordError::Missing { name: "written" }));
        for line in ["written x", "cache 1", "state open dirty", "key file 1", "other 1", "x"] {
            assert_eq!(of(line), Err(RecordError::Line { line: 2 }), "{line}");
        }
        let key = |number, boot: &str| DiskKey::Device { number, boot: boot.into(), size: 1 };
        assert_eq!(key(1, "a").compare(&key(1, "a")), Match::Same);
        assert_eq!(key(1, "a").compare(&key(2, "a")), Match::Other);
        assert_eq!(key(1, "a").compare(&key(1, "b")), Match::Unknown);
        let serial = DiskKey::Serial { serial: "a".into(), size: 1 };
        assert_eq!(serial.compare(&key(1, "a")), Match::Unknown);
    }
}
