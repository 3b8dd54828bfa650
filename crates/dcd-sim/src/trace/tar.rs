//! The one file in a tar archive, as a stream: whatever is in front of it that is no file (folders,
//! links, extended headers) is passed over; a second file is an error, because nobody could say
//! which is meant.
//!
//! ```text
//! blocks of 512 bytes: a header, then the file, filled up to whole blocks; an empty one at the end
//! byte 0 name   124 size, octal or 0x80 and big-endian   148 sum of the header's bytes   156 kind
//! ```
//!
//! Layout: POSIX.1-2001 (pax), "ustar Interchange Format"; sizes in base 256 are GNU's.

use std::io::{Error, ErrorKind, Read, Result};

use super::error::shortened;

/// Length of a block.
pub(super) const BLOCK_BYTES: usize = 512;
/// Longest extended header that is read.
const PAX_BYTES_MAX: u64 = 1 << 20;
/// So many entries that are no files may be passed over.
const PASSED_OVER_MAX: u32 = 1 << 20;

/// Whether bytes begin with the header of an entry.
pub(super) fn is_beginning(beginning: &[u8]) -> bool {
    beginning.first_chunk().is_some_and(|block| Header(block).has_its_sum())
}

struct Header<'a>(&'a [u8; BLOCK_BYTES]);

impl Header<'_> {
    fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    fn has_its_sum(&self) -> bool {
        let blank = |(at, byte): (usize, &u8)| {
            if (148..156).contains(&at) { u64::from(b' ') } else { u64::from(*byte) }
        };
        let sum: u64 = self.0.iter().enumerate().map(blank).sum();
        octal(&self.0[148..156]) == Some(sum)
    }

    fn size_bytes(&self) -> Option<u64> {
        let field = &self.0[124..136];
        if field[0] & 0x80 == 0 {
            return octal(field);
        }
        if field[0] != 0x80 || field[1..4] != [0; 3] {
            return None;
        }
        Some(u64::from_be_bytes(*field[4..].first_chunk()?))
    }

    fn kind(&self) -> u8 {
        self.0[156]
    }

    fn name(&self) -> String {
        let name = self.0[..100].split(|byte| *byte == 0).next().unwrap_or_default();
        shortened(&String::from_utf8_lossy(name))
    }
}

/// A number of octal digits with blanks around.
fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.trim_matches(['\0', ' ']);
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, 8).ok() }
}

/// Size of a file that an extended header tells: lines of `LENGTH KEY=VALUE`.
fn pax_size_bytes(mut records: &[u8]) -> Option<u64> {
    let mut found = None;
    while !records.is_empty() {
        let end = records.iter().position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&records[..end]).ok()?.parse().ok()?;
        let record = records.get(end + 1..length)?;
        if let Some(value) = record.strip_prefix(b"size=") {
            found = std::str::from_utf8(value).ok()?.trim_end().parse().ok();
        }
        records = &records[length..];
    }
    found
}

/// The one file of an archive.
pub(super) struct TarFile<R> {
    archive: R,
    /// Of the file, which has begun; then of what fills its last block.
    left_bytes: u64,
    filler_bytes: u64,
    /// Name of the file, once it has begun.
    name: Option<String>,
    ended: bool,
}

impl<R: Read> TarFile<R> {
    pub fn new(archive: R) -> TarFile<R> {
        TarFile { archive, left_bytes: 0, filler_bytes: 0, name: None, ended: false }
    }

    /// Goes on to the next file; false at the end of the archive.
    fn next_file(&mut self) -> Result<bool> {
        let mut pax_size = None;
        for _ in 0..PASSED_OVER_MAX {
            let mut block = [0; BLOCK_BYTES];
            let filled = fill(&mut self.archive, &mut block)?;
            let header = Header(&block);
            // Archives that are appended to, and those of some programs, have no empty block.
            if filled == 0 || (filled == BLOCK_BYTES && header.is_empty()) {
                return Ok(false);
            }
            if filled < BLOCK_BYTES {
                return Err(problem("the tar archive is cut off"));
            }
            if !header.has_its_sum() {
                return Err(problem(
                    "expected the header of a file in the tar archive, found none",
                ));
            }
            let size_bytes = header.size_bytes().ok_or_else(|| {
                problem(&format!("expected a size of `{}` in the tar archive", header.name()))
            })?;
            match header.kind() {
                0 | b'0' | b'7' => {
                    let size_bytes = pax_size.take().unwrap_or(size_bytes);
                    self.left_bytes = size_bytes;
                    self.filler_bytes = size_bytes.wrapping_neg() % BLOCK_BYTES as u64;
                    return self.begin(header.name());
                }
                b'S' => {
                    let name = header.name();
                    return Err(problem(&format!(
                        "`{name}` in the tar archive is sparse: unpack it"
                    )));
                }
                b'x' if size_bytes <= PAX_BYTES_MAX => {
                    let mut records = vec![0; size_bytes as usize];
                    if fill(&mut self.archive, &mut records)? < records.len() {
                        return Err(problem("the tar archive is cut off"));
                    }
                    pax_size = pax_size_bytes(&records);
                    self.pass_over(size_bytes.wrapping_neg() % BLOCK_BYTES as u64)?;
                }
                // Links, devices, folders and pipes have no data, whatever their size says.
                b'1'..=b'6' => pax_size = None,
                _ => {
                    let whole = size_bytes.checked_next_multiple_of(BLOCK_BYTES as u64);
                    self.pass_over(whole.ok_or_else(|| problem("a size in the tar archive"))?)?;
                }
            }
        }
        Err(problem(&format!("the tar archive has {PASSED_OVER_MAX} entries that are no files")))
    }

    /// A file begins: it must be the first.
    fn begin(&mut self, name: String) -> Result<bool> {
        if let Some(first) = &self.name {
            return Err(problem(&format!(
                "expected one file in the tar archive, found `{first}` and `{name}`: unpack it, or \
                 `tar -xOf ARCHIVE NAME | dcd trace summary -`"
            )));
        }
        self.name = Some(name);
        Ok(true)
    }

    fn pass_over(&mut self, bytes: u64) -> Result<()> {
        let passed = std::io::copy(&mut self.archive.by_ref().take(bytes), &mut std::io::sink())?;
        if passed < bytes { Err(problem("the tar archive is cut off")) } else { Ok(()) }
    }
}

impl<R: Read> Read for TarFile<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.left_bytes == 0 && !self.ended {
            let filler_bytes = std::mem::take(&mut self.filler_bytes);
            self.pass_over(filler_bytes)?;
            self.ended = !self.next_file()?;
        }
        if self.ended {
            return Ok(0);
        }
        let read = self.archive.by_ref().take(self.left_bytes).read(buffer)?;
        if read == 0 {
            return Err(problem("the tar archive is cut off"));
        }
        self.left_bytes -= read as u64;
        Ok(read)
    }
}

/// Fills `buffer`, and tells how much there was before the end.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn problem(text: &str) -> Error {
    Error::new(ErrorKind::InvalidData, text.to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An entry: name, kind, and what is in it, of which the header says `size`.
    fn entry(name: &str, kind: u8, size: u64, data: &[u8]) -> Vec<u8> {
        let mut block = [0; BLOCK_BYTES];
        block[..name.len()].copy_from_slice(name.as_bytes());
        if size < 1 << 33 {
            block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        } else {
            block[124] = 0x80;
            block[128..136].copy_from_slice(&size.to_be_bytes());
        }
        block[156] = kind;
        block[257..263].copy_from_slice(b"ustar\0");
        block[148..156].fill(b' ');
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut bytes = block.to_vec();
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }

    /// An archive of some files in a folder.
    pub(crate) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = entry("d/", b'5', 0, b"");
        for (name, data) in files {
            bytes.extend(entry(name, b'0', data.len() as u64, data));
        }
        bytes.resize(bytes.len() + 2 * BLOCK_BYTES, 0);
        bytes
    }

    fn file(bytes: &[u8]) -> Result<Vec<u8>> {
        assert!(is_beginning(bytes));
        let mut data = Vec::new();
        TarFile::new(bytes).read_to_end(&mut data).map(|_| data)
    }

    #[test]
    fn the_one_file_is_found() {
        let text = b"0,1,512,W,0.5\n".repeat(100);
        assert_eq!(file(&archive(&[("d/t.spc", &text)])).unwrap(), text);
        assert_eq!(file(&archive(&[("d/t.spc", b"")])).unwrap(), b"");
        assert_eq!(file(&archive(&[])).unwrap(), b"");
        // Without the end, with a long name, with a size from an extended header.
        let pax = entry("pax", b'x', 14, b"14 size=1400\n\n");
        let pax = [&pax[..], &entry("t", b'0', 0, &text)].concat();
        assert_eq!(file(&pax[..]).unwrap(), text);
        let long = [entry("././@LongLink", b'L', 600, &[b'n'; 600]), entry("n", 0, 3, b"abc")];
        assert_eq!(file(&long.concat()).unwrap(), b"abc");
    }

    #[test]
    fn what_is_not_one_whole_file_is_an_error() {
        let shown = |bytes: &[u8]| file(bytes).unwrap_err().to_string();
        let two = archive(&[("a.csv", b"x\n"), ("b\u{1b}.csv", b"y\n")]);
        let wanted = "expected one file in the tar archive, found `a.csv` and `b\\u{1b}.csv`";
        assert!(shown(&two).starts_with(wanted), "{}", shown(&two));
        let whole = entry("t", b'0', 600, &[b'x'; 600]);
        for cut in [1, 300, 600, 1000] {
            assert_eq!(shown(&whole[..whole.len() - cut]), "the tar archive is cut off");
        }
        let damaged = [whole.clone(), vec![b'x'; BLOCK_BYTES]].concat();
        assert!(shown(&damaged).starts_with("expected the header of a file"));
        assert!(shown(&entry("t", b'S', 0, b"")).contains("`t` in the tar archive is sparse"));
    }

    /// A file of a TiB, or of nearly all there is, takes no more memory than any other.
    #[test]
    fn sizes_are_believed_as_far_as_there_are_bytes() {
        for size in [1 << 40, u64::MAX - 5] {
            let bytes = entry("t", b'0', size, b"0,1,512,W,0.5\n");
            assert_eq!(file(&bytes).unwrap_err().to_string(), "the tar archive is cut off");
            let bytes = entry("t", b'g', size, b"x");
            assert!(file(&bytes).is_err());
        }
    }
}
