//! Names, keys and layouts. All numbers are big-endian, so that keys sort by number.
//!
//! ```text
//! PREFIX/volume                what it is (JSON); made once, by a conditional write
//! PREFIX/data/EPOCH-NUMBER     lines of 4 KiB, then for each its number and CRC-32C, then a trailer
//! PREFIX/map/...               SlateDB, with these rows:
//!   l LINE        -> object, index, CRC-32C          one line, as of the last window
//!   o OBJECT      -> lines, lines in use
//!   g OBJECT      -> when its last line was given up, and the newest snapshot of that time
//!   s NUMBER      -> zero ranges, then lines          what a flush has made durable since
//!   n NUMBER      -> a snapshot (JSON): its name, and SlateDB's checkpoint that has its rows
//!   b             -> owner: cache, epoch, last window, length of a lease (JSON)
//!   c             -> which opening of that cache has it, and until when (JSON)
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use dcd_block::checksum::crc32c;
use dcd_protocol::store::{LEASE_SECONDS, LEASE_SECONDS_MAX, LEASE_SECONDS_MIN, is_lease};
use serde::{Deserialize, Serialize};

/// Bytes of a line, the unit of the map.
pub const LINE_BYTES: usize = 4096;
/// Lines of an object at most: 8 MiB.
pub const OBJECT_LINES: usize = 2048;
/// Largest disk: 2^52 lines, as the engine has it.
pub const LINES_MAX: u64 = 1 << 40;
/// The format of `volume`.
pub const FORMAT: u32 = 2;

const TRAILER_MAGIC: &[u8; 8] = b"DCDDATA1";
const TRAILER_BYTES: usize = 32;
const TABLE_ENTRY_BYTES: usize = 12;
const PLACE_BYTES: usize = 20;

/// Something in a store that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}: expected {expected}, found {found}")]
pub struct FormatError {
    /// What was looked at.
    pub what: &'static str,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

fn wrong<T>(
    what: &'static str,
    expected: impl ToString,
    found: impl ToString,
) -> Result<T, FormatError> {
    Err(FormatError { what, expected: expected.to_string(), found: found.to_string() })
}

/// A data object. The epoch is its writer's, so that two writers never use one name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ObjectId {
    pub epoch: u32,
    pub number: u64,
}

impl ObjectId {
    pub fn name(self) -> String {
        format!("data/{:08x}-{:012x}", self.epoch, self.number)
    }

    /// The object of that name behind `data/`; none if somebody else has put it there.
    pub fn of_name(name: &str) -> Option<ObjectId> {
        let (epoch, number) = name.split_once('-')?;
        let epoch = u32::from_str_radix(epoch, 16).ok()?;
        let number = u64::from_str_radix(number, 16).ok()?;
        let id = ObjectId { epoch, number };
        (id.name().strip_prefix("data/") == Some(name)).then_some(id)
    }

    fn key(self, kind: u8) -> Bytes {
        let mut key = BytesMut::with_capacity(13);
        key.put_u8(kind);
        key.put_u32(self.epoch);
        key.put_u64(self.number);
        key.freeze()
    }

    pub fn counts_key(self) -> Bytes {
        self.key(b'o')
    }

    pub fn gone_key(self) -> Bytes {
        self.key(b'g')
    }

    pub fn of_key(key: &[u8]) -> Result<ObjectId, FormatError> {
        match key {
            [b'o' | b'g', rest @ ..] if rest.len() == 12 => {
                Ok(ObjectId { epoch: u32_at(rest, 0), number: u64_at(rest, 4) })
            }
            _ => wrong("the key of an object", "13 bytes", format!("{key:02x?}")),
        }
    }
}

/// Where a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub object: ObjectId,
    pub index: u32,
    pub crc: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight"))
}

impl Place {
    fn put(self, to: &mut BytesMut) {
        to.put_u32(self.object.epoch);
        to.put_u64(self.object.number);
        to.put_u32(self.index);
        to.put_u32(self.crc);
    }

    fn of(bytes: &[u8]) -> Result<Place, FormatError> {
        let object = ObjectId { epoch: u32_at(bytes, 0), number: u64_at(bytes, 4) };
        let (index, crc) = (u32_at(bytes, 12), u32_at(bytes, 16));
        match (index as usize) < OBJECT_LINES {
            true => Ok(Place { object, index, crc }),
            false => wrong("the place of a line", format!("an index below {OBJECT_LINES}"), index),
        }
    }

    pub fn encode(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(PLACE_BYTES);
        self.put(&mut bytes);
        bytes.freeze()
    }

    pub fn decode(bytes: &[u8]) -> Result<Place, FormatError> {
        match bytes.len() {
            PLACE_BYTES => Place::of(bytes),
            found => wrong("the place of a line", format!("{PLACE_BYTES} bytes"), found),
        }
    }
}

pub fn line_key(line: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(b'l');
    key.put_u64(line);
    key.freeze()
}

pub fn line_of_key(key: &[u8], lines: u64) -> Result<u64, FormatError> {
    match key {
        [b'l', rest @ ..] if rest.len() == 8 && u64_at(rest, 0) < lines => Ok(u64_at(rest, 0)),
        _ => {
            let expected = format!("9 bytes, a line below {lines}");
            wrong("the key of a line", expected, format!("{key:02x?}"))
        }
    }
}

/// Lines of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub lines: u32,
    pub live: u32,
}

impl Counts {
    pub fn encode(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(8);
        bytes.put_u32(self.lines);
        bytes.put_u32(self.live);
        bytes.freeze()
    }

    pub fn decode(bytes: &[u8]) -> Result<Counts, FormatError> {
        if bytes.len() != 8 {
            return wrong("the counts of an object", "8 bytes", bytes.len());
        }
        let counts = Counts { lines: u32_at(bytes, 0), live: u32_at(bytes, 4) };
        match counts.live <= counts.lines && counts.lines as usize <= OBJECT_LINES {
            true => Ok(counts),
            false => {
                let expected = format!("live lines of at most {OBJECT_LINES}");
                wrong("the counts of an object", expected, format!("{counts:?}"))
            }
        }
    }
}

/// What a flush has made durable: zeroes first, then lines.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Staged {
    pub zeroes: Vec<(u64, u64)>,
    pub lines: Vec<(u64, Place)>,
}

pub const STAGED_FROM: [u8; 1] = [b's'];
pub const STAGED_TO: [u8; 1] = [b's' + 1];

fn numbered_key(kind: u8, number: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(kind);
    key.put_u64(number);
    key.freeze()
}

pub fn staged_key(number: u64) -> Bytes {
    numbered_key(b's', number)
}

pub fn number_of_staged_key(key: &[u8]) -> Result<u64, FormatError> {
    match key {
        [b's', rest @ ..] if rest.len() == 8 => Ok(u64_at(rest, 0)),
        _ => wrong("the key of what is staged", "9 bytes", format!("{key:02x?}")),
    }
}

pub fn snapshot_key(number: u64) -> Bytes {
    numbered_key(b'n', number)
}

pub fn number_of_snapshot_key(key: &[u8]) -> Result<u64, FormatError> {
    match key {
        [b'n', rest @ ..] if rest.len() == 8 => Ok(u64_at(rest, 0)),
        _ => wrong("the key of a snapshot", "9 bytes", format!("{key:02x?}")),
    }
}

/// The disk as it was at the end of a window.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    pub name: String,
    /// SlateDB's, a UUID: the rows as they were.
    pub checkpoint: String,
    pub window: Option<u64>,
    /// By the clock of whoever took it.
    pub taken_unix_seconds: u64,
    /// Objects from this one on were made later.
    pub objects_end: ObjectId,
}

impl Snapshot {
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text and numbers")
    }

    pub fn decode(bytes: &[u8]) -> Result<Snapshot, FormatError> {
        let decoded = serde_json::from_slice(bytes);
        decoded.or_else(|error| wrong("the row of a snapshot", "JSON", error))
    }
}

/// A data object without a line in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gone {
    /// In seconds since 1970.
    pub since: u64,
    /// The newest snapshot that there was then, by its number; 0: none. Later ones do not have it.
    pub newest_snapshot: u64,
}

impl Gone {
    pub fn encode(self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(16);
        bytes.put_u64(self.since);
        bytes.put_u64(self.newest_snapshot);
        bytes.freeze()
    }

    pub fn decode(bytes: &[u8]) -> Result<Gone, FormatError> {
        match bytes.len() {
            16 => Ok(Gone { since: u64_at(bytes, 0), newest_snapshot: u64_at(bytes, 8) }),
            found => wrong("an object without a line in use", "16 bytes", found),
        }
    }
}

impl Staged {
    pub fn encode(&self) -> Bytes {
        let bytes = 8 + self.zeroes.len() * 16 + self.lines.len() * (8 + PLACE_BYTES);
        let mut to = BytesMut::with_capacity(bytes);
        to.put_u32(self.zeroes.len() as u32);
        to.put_u32(self.lines.len() as u32);
        for (line, count) in &self.zeroes {
            to.put_u64(*line);
            to.put_u64(*count);
        }
        for (line, place) in &self.lines {
            to.put_u64(*line);
            place.put(&mut to);
        }
        to.freeze()
    }

    /// `lines`: of the disk.
    pub fn decode(bytes: &[u8], lines: u64) -> Result<Staged, FormatError> {
        const WHAT: &str = "what is staged";
        if bytes.len() < 8 {
            return wrong(WHAT, "8 bytes and more", bytes.len());
        }
        let (zeroes, places) = (u32_at(bytes, 0) as usize, u32_at(bytes, 4) as usize);
        let expected = 8 + zeroes as u64 * 16 + places as u64 * (8 + PLACE_BYTES) as u64;
        if bytes.len() as u64 != expected {
            return wrong(WHAT, format!("{expected} bytes"), bytes.len());
        }
        let (first, second) = bytes[8..].split_at(zeroes * 16);
        let mut staged = Staged::default();
        for entry in first.chunks_exact(16) {
            let (line, count) = (u64_at(entry, 0), u64_at(entry, 8));
            match line.checked_add(count) {
                Some(end) if count > 0 && end <= lines => staged.zeroes.push((line, count)),
                _ => return wrong(WHAT, format!("lines below {lines}"), format!("{line}+{count}")),
            }
        }
        for entry in second.chunks_exact(8 + PLACE_BYTES) {
            let line = u64_at(entry, 0);
            if line >= lines {
                return wrong(WHAT, format!("lines below {lines}"), line);
            }
            staged.lines.push((line, Place::of(&entry[8..])?));
        }
        Ok(staged)
    }
}

/// Builds a data object.
pub fn encode_object(id: ObjectId, lines: &[(u64, Bytes)]) -> (Bytes, Vec<(u64, Place)>) {
    let size = lines.len() * (LINE_BYTES + TABLE_ENTRY_BYTES) + TRAILER_BYTES;
    let mut bytes = BytesMut::with_capacity(size);
    let mut table = BytesMut::with_capacity(lines.len() * TABLE_ENTRY_BYTES);
    let mut places = Vec::with_capacity(lines.len());
    for (index, (line, content)) in lines.iter().enumerate() {
        assert_eq!(content.len(), LINE_BYTES, "a whole line");
        let crc = crc32c(content);
        bytes.put_slice(content);
        table.put_u64(*line);
        table.put_u32(crc);
        places.push((*line, Place { object: id, index: index as u32, crc }));
    }
    let table_crc = crc32c(&table);
    bytes.put_slice(&table);
    let start = bytes.len();
    bytes.put_slice(TRAILER_MAGIC);
    bytes.put_u32(id.epoch);
    bytes.put_u64(id.number);
    bytes.put_u32(lines.len() as u32);
    bytes.put_u32(table_crc);
    let crc = crc32c(&bytes[start..]);
    bytes.put_u32(crc);
    (bytes.freeze(), places)
}

/// The lines of a data object, each with its place; their contents are looked at later.
pub fn decode_object(id: ObjectId, bytes: &[u8]) -> Result<Vec<(u64, Place)>, FormatError> {
    const WHAT: &str = "a data object";
    let Some(start) = bytes.len().checked_sub(TRAILER_BYTES) else {
        return wrong(WHAT, format!("{TRAILER_BYTES} bytes and more"), bytes.len());
    };
    let trailer = &bytes[start..];
    if &trailer[..8] != TRAILER_MAGIC || crc32c(&trailer[..28]) != u32_at(trailer, 28) {
        return wrong(WHAT, "a whole trailer", format!("{:02x?}", &trailer[..8]));
    }
    let found = ObjectId { epoch: u32_at(trailer, 8), number: u64_at(trailer, 12) };
    let count = u32_at(trailer, 20) as usize;
    if found != id {
        return wrong(WHAT, id.name(), found.name());
    }
    if count > OBJECT_LINES || start != count * (LINE_BYTES + TABLE_ENTRY_BYTES) {
        return wrong(WHAT, format!("{count} lines"), format!("{} bytes", bytes.len()));
    }
    let table = &bytes[count * LINE_BYTES..start];
    if crc32c(table) != u32_at(trailer, 24) {
        return wrong(WHAT, "a whole table of lines", "another checksum");
    }
    let place = |(index, entry): (usize, &[u8])| {
        let crc = u32_at(entry, 8);
        (u64_at(entry, 0), Place { object: id, index: index as u32, crc })
    };
    Ok(table.chunks_exact(TABLE_ENTRY_BYTES).enumerate().map(place).collect())
}

/// `volume`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Volume {
    pub format: u32,
    pub size_bytes: u64,
    /// Drawn when it was made: whose write it was, when an answer is lost.
    pub store: String,
    /// It is being made, as a clone of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished_clone_of: Option<String>,
}

impl Volume {
    pub fn decode(bytes: &[u8]) -> Result<Volume, FormatError> {
        const WHAT: &str = "the object `volume`";
        let volume: Volume = match serde_json::from_slice(bytes) {
            Ok(volume) => volume,
            Err(error) => return wrong(WHAT, "JSON with format, size_bytes and store", error),
        };
        if volume.format != FORMAT {
            return wrong(WHAT, format!("format {FORMAT}"), volume.format);
        }
        let is_whole = volume.size_bytes.is_multiple_of(LINE_BYTES as u64);
        match is_whole && (1..=LINES_MAX).contains(&(volume.size_bytes / LINE_BYTES as u64)) {
            true => Ok(volume),
            false => wrong(WHAT, "a size of whole lines", volume.size_bytes),
        }
    }
}

pub const OWNER_KEY: &[u8] = b"b";

/// Whose it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Owner {
    /// UUID.
    pub cache: Option<String>,
    pub epoch: u32,
    pub window: Option<u64>,
    pub committed_unix_seconds: Option<u64>,
    /// How long a lease is, if somebody has chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u64>,
}

/// A length that nobody can have chosen would shut everybody out, or nobody.
fn check_lease(what: &'static str, seconds: u64) -> Result<(), FormatError> {
    let expected = format!("a lease of {LEASE_SECONDS_MIN} to {LEASE_SECONDS_MAX} s");
    if is_lease(seconds) { Ok(()) } else { wrong(what, expected, seconds) }
}

impl Owner {
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text and numbers")
    }

    pub fn decode(bytes: &[u8]) -> Result<Owner, FormatError> {
        const WHAT: &str = "the row of the owner";
        let decoded = serde_json::from_slice(bytes);
        let owner: Owner = decoded.or_else(|error| wrong(WHAT, "JSON", error))?;
        owner.lease_seconds.map_or(Ok(()), |seconds| check_lease(WHAT, seconds))?;
        Ok(owner)
    }

    /// How long a lease is.
    pub fn lease(&self) -> u64 {
        self.lease_seconds.unwrap_or(LEASE_SECONDS)
    }
}

pub const CLAIM_KEY: &[u8] = b"c";

/// Which opening of its cache has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claimed {
    /// Random, and another one at each opening.
    pub claim: String,
    /// The boot of the machine and the cache-disk.
    pub place: String,
    /// The newest superblock of the cache-disk that is known to be durable.
    pub generation: u64,
    /// How long the lease is, ...
    pub lease_seconds: u64,
    /// ... from when on, by the clock of whoever has it.
    pub renewed_unix_seconds: u64,
    /// It was given up in order.
    pub is_over: bool,
    /// The machine, as it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Most characters of the name of a machine that are told.
const HOST_CHARS_MAX: usize = 64;

impl Claimed {
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text and numbers")
    }

    pub fn decode(bytes: &[u8]) -> Result<Claimed, FormatError> {
        const WHAT: &str = "the row of the claim";
        let decoded = serde_json::from_slice(bytes);
        let claimed: Claimed = decoded.or_else(|error| wrong(WHAT, "JSON", error))?;
        check_lease(WHAT, claimed.lease_seconds)?;
        Ok(claimed)
    }

    /// The machine, in words for people: ` on HOST`, or nothing.
    pub fn on_host(&self) -> String {
        let host = self.host.as_deref().unwrap_or_default();
        let clean = |c: &char| !c.is_control() && !c.is_whitespace();
        let host: String = host.chars().filter(clean).take(HOST_CHARS_MAX).collect();
        if host.is_empty() { host } else { format!(" on {host}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(byte: u8) -> Bytes {
        vec![byte; LINE_BYTES].into()
    }

    #[test]
    fn an_object_comes_back_and_damage_is_found() {
        let id = ObjectId { epoch: 3, number: 77 };
        let (bytes, places) = encode_object(id, &[(5, line(1)), (9, line(2))]);
        assert_eq!(decode_object(id, &bytes).unwrap(), places);
        assert_eq!(ObjectId::of_name(&id.name()["data/".len()..]), Some(id));
        assert!(decode_object(ObjectId { epoch: 4, ..id }, &bytes).is_err());
        for at in 2 * LINE_BYTES..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1;
            assert!(decode_object(id, &bad).is_err(), "byte {at}");
        }
        for length in 0..bytes.len() {
            assert!(decode_object(id, &bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_claim_comes_back_and_nonsense_is_refused() {
        let claimed = Claimed {
            claim: "a".into(),
            place: "b".into(),
            generation: 7,
            lease_seconds: 30,
            renewed_unix_seconds: u64::MAX,
            is_over: false,
            host: Some("two\n words".into()),
        };
        let bytes = claimed.encode();
        assert_eq!(Claimed::decode(&bytes).unwrap(), claimed);
        assert_eq!(claimed.on_host(), " on twowords");
        for length in 0..bytes.len() {
            assert!(Claimed::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(Claimed::decode(b"{\"claim\":1}").is_err());
        for (seconds, is_good) in [(0, false), (9, false), (10, true), (600, true), (601, false)] {
            let of = Claimed { lease_seconds: seconds, ..claimed.clone() };
            assert_eq!(Claimed::decode(&of.encode()).is_ok(), is_good, "{seconds}");
            let owner = Owner { lease_seconds: Some(seconds), ..Owner::default() };
            assert_eq!(Owner::decode(&owner.encode()).is_ok(), is_good, "{seconds}");
        }
        let of_before = br#"{"cache":null,"epoch":1,"window":null,"committed_unix_seconds":null}"#;
        assert_eq!(Owner::decode(of_before).unwrap().lease(), 30);
    }

    #[test]
    fn snapshots_and_what_is_gone_come_back_and_nonsense_is_refused() {
        let gone = Gone { since: 7, newest_snapshot: u64::MAX };
        assert_eq!(Gone::decode(&gone.encode()).unwrap(), gone);
        assert!(Gone::decode(&gone.encode()[..8]).is_err());
        let snapshot = Snapshot {
            name: "a".into(),
            checkpoint: "b".into(),
            window: None,
            taken_unix_seconds: 1,
            objects_end: ObjectId { epoch: 2, number: 3 },
        };
        let bytes = snapshot.encode();
        assert_eq!(Snapshot::decode(&bytes).unwrap(), snapshot);
        for length in 0..bytes.len() {
            assert!(Snapshot::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(number_of_snapshot_key(&snapshot_key(5)).unwrap(), 5);
        assert!(number_of_snapshot_key(&staged_key(5)).is_err());
    }

    #[test]
    fn what_is_staged_comes_back_and_nonsense_is_refused() {
        let place = Place { object: ObjectId { epoch: 1, number: 2 }, index: 3, crc: 4 };
        let staged = Staged { zeroes: vec![(1, 2)], lines: vec![(7, place)] };
        let bytes = staged.encode();
        assert_eq!(Staged::decode(&bytes, 8).unwrap(), staged);
        assert!(Staged::decode(&bytes, 7).is_err(), "a line beyond the end");
        for length in 0..bytes.len() {
            assert!(Staged::decode(&bytes[..length], 8).is_err());
        }
        assert!(Staged::decode(&[0xff; 8], 8).is_err(), "counts that overflow");
        assert_eq!(Place::decode(&place.encode()).unwrap(), place);
        assert!(Place::decode(&[0xff; 20]).is_err());
        assert!(Counts::decode(&Counts { lines: 1, live: 2 }.encode()).is_err());
        assert!(Volume::decode(br#"{"format":2,"size_bytes":4097,"store":"x"}"#).is_err());
        assert!(Volume::decode(br#"{"format":1,"size_bytes":4096,"store":"x"}"#).is_err());
        assert!(Volume::decode(br#"{"format":2,"size_bytes":4096,"store":"x"}"#).is_ok());
    }
}
