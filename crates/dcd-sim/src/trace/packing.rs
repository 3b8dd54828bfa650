//! What a trace is wrapped in: compression (zstd, gzip, xz, bzip2, lz4) and tar, one in another,
//! told by the first bytes, unpacked as a stream in bounded memory.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Cursor, Error, ErrorKind, Read, Result};
use std::rc::Rc;

use lz4_flex::frame::FrameDecoder as Lz4Decoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError::SkipFrame};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::tar::{self, TarFile};

/// So many times as long as the file it may be when it is decompressed (traces: 4 to 40 times) ...
const RATIO_MAX: u64 = 128;
/// ... beyond the first bytes.
const RATIO_FREE_BYTES: u64 = 32 << 20;
/// A compressed trace in a compressed tar, and one to spare.
const LAYERS_MAX: usize = 4;
/// Memory of xz: `xz -9` takes 64 MiB and a little.
const XZ_MEMORY_KIB: u32 = 130 << 10;
const BUFFER_BYTES: usize = 256 << 10;

/// What a trace is wrapped in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Packing {
    Zstd,
    Gzip,
    Xz,
    Bzip2,
    Lz4,
    Tar,
}

impl Packing {
    /// Of bytes that begin so.
    fn of(beginning: &[u8]) -> Option<Packing> {
        const MAGICS: [(&[u8], Packing); 5] = [
            (&[0x28, 0xb5, 0x2f, 0xfd], Packing::Zstd),
            (&[0x1f, 0x8b], Packing::Gzip),
            (&[0xfd, b'7', b'z', b'X', b'Z', 0], Packing::Xz),
            (b"BZh", Packing::Bzip2),
            (&[0x04, 0x22, 0x4d, 0x18], Packing::Lz4),
        ];
        let found = MAGICS.iter().find(|(magic, _)| beginning.starts_with(magic));
        found.map(|(_, packing)| *packing).or(tar::is_beginning(beginning).then_some(Packing::Tar))
    }
}

/// `input`, unpacked; `read_bytes` is how much of the file was read.
pub(super) fn unpack(
    mut input: Box<dyn BufRead>,
    read_bytes: &Rc<Cell<u64>>,
) -> Result<Box<dyn BufRead>> {
    for layer in 0..=LAYERS_MAX {
        // A pipe gives little at a time.
        let mut beginning = Vec::new();
        input.by_ref().take(tar::BLOCK_BYTES as u64).read_to_end(&mut beginning)?;
        let packing = Packing::of(&beginning);
        let whole = Cursor::new(beginning).chain(input);
        let Some(packing) = packing else { return Ok(Box::new(whole)) };
        if layer == LAYERS_MAX {
            break;
        }
        let unpacked: Box<dyn Read> = match packing {
            Packing::Zstd => Box::new(ZstdFrames { input: whole, decoder: FrameDecoder::new() }),
            Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(whole)),
            Packing::Xz => Box::new(XzReader::new_mem_limit(whole, true, XZ_MEMORY_KIB)),
            Packing::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(whole)),
            Packing::Lz4 => Box::new(Lz4Frames::new(whole)),
            Packing::Tar => Box::new(TarFile::new(whole)),
        };
        let bounded = Bounded {
            inner: unpacked,
            given_bytes: 0,
            read_bytes: read_bytes.clone(),
            failed: false,
        };
        input = Box::new(BufReader::with_capacity(BUFFER_BYTES, bounded));
    }
    let problem = format!("it is packed more than {LAYERS_MAX} times: unpack it yourself");
    Err(Error::new(ErrorKind::InvalidData, problem))
}

/// What is unpacked, as long as it is in a believable relation to what it was made of.
struct Bounded {
    inner: Box<dyn Read>,
    given_bytes: u64,
    /// Of the compressed file.
    read_bytes: Rc<Cell<u64>>,
    /// No decoder is asked again after an error: they do not promise what they do then.
    failed: bool,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.failed {
            return Err(Error::new(ErrorKind::InvalidData, "nothing is read after an error"));
        }
        let read = self.inner.read(buffer).inspect_err(|_| self.failed = true)?;
        self.given_bytes += read as u64;
        let most = self.read_bytes.get().saturating_mul(RATIO_MAX).max(RATIO_FREE_BYTES);
        if self.given_bytes > most {
            self.failed = true;
            let problem = format!(
                "it becomes more than {RATIO_MAX} times as long when it is decompressed, which no trace does; \
                 if it is one, decompress it yourself"
            );
            return Err(Error::new(ErrorKind::InvalidData, problem));
        }
        Ok(read)
    }
}

/// All frames of a zstd file: `cat a.zst b.zst` has two, what is compressed in parallel may have
/// many.
struct ZstdFrames<R> {
    input: R,
    /// Finished until the first frame begins.
    decoder: FrameDecoder,
}

impl<R: BufRead> ZstdFrames<R> {
    /// False at the end.
    fn begin_frame(&mut self) -> Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(SkipFrame { length, .. })) => {
                    let skipped = &mut self.input.by_ref().take(length.into());
                    std::io::copy(skipped, &mut std::io::sink())?;
                }
                Err(_) => return Err(damaged("zstd")),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            while !self.decoder.is_finished() && self.decoder.can_collect() < buffer.len() {
                let wanted = BlockDecodingStrategy::UptoBytes(buffer.len());
                let decoded = self.decoder.decode_blocks(&mut self.input, wanted);
                decoded.map_err(|_| damaged("zstd"))?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() || !self.begin_frame()? {
                return Ok(read);
            }
        }
    }
}

/// All frames of an lz4 file, each with a decoder of its own: one for all expects blocks of one
/// size. It takes a file that is cut off between two blocks for a whole one, so it is told from
/// outside: no whole frame asks for more than there is.
struct Lz4Frames<R: BufRead> {
    /// None after an error.
    decoder: Option<Lz4Decoder<EndSeen<R>>>,
    in_frame: bool,
}

impl<R: BufRead> Lz4Frames<R> {
    fn new(input: R) -> Lz4Frames<R> {
        let input = EndSeen { inner: input, seen: false };
        Lz4Frames { decoder: Some(Lz4Decoder::new(input)), in_frame: false }
    }
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        while let Some(mut decoder) = self.decoder.take() {
            if !self.in_frame && decoder.get_mut().inner.fill_buf()?.is_empty() {
                break;
            }
            self.in_frame = true;
            let read = decoder.read(buffer).map_err(|_| damaged("lz4"))?;
            if read > 0 || buffer.is_empty() {
                self.decoder = Some(decoder);
                return Ok(read);
            }
            let input = decoder.into_inner();
            if input.seen {
                return Err(damaged("lz4"));
            }
            self.decoder = Some(Lz4Decoder::new(input));
            self.in_frame = false;
        }
        Ok(0)
    }
}

/// Remembers that more was asked for than there is.
struct EndSeen<R> {
    inner: R,
    seen: bool,
}

impl<R: Read> Read for EndSeen<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.inner.read(buffer)?;
        self.seen |= read == 0 && !buffer.is_empty();
        Ok(read)
    }
}

fn damaged(what: &str) -> Error {
    let problem = format!("expected {what} data, found them damaged or cut off");
    Error::new(ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;
    use crate::trace::tar::tests::archive;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        out.write_all(text).unwrap();
        out.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    fn xz(text: &[u8]) -> Vec<u8> {
        let options = lzma_rust2::XzOptions::with_preset(1);
        let mut out = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        out.write_all(text).unwrap();
        out.finish().unwrap()
    }

    fn bzip2(text: &[u8]) -> Vec<u8> {
        let mut out = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
        out.write_all(text).unwrap();
        out.finish().unwrap()
    }

    fn lz4(text: &[u8]) -> Vec<u8> {
        let mut out = lz4_flex::frame::FrameEncoder::new(Vec::new());
        out.write_all(text).unwrap();
        out.finish().unwrap()
    }

    fn unpacked(bytes: &[u8]) -> Result<Vec<u8>> {
        let read_bytes = Rc::new(Cell::new(bytes.len() as u64));
        let mut out = Vec::new();
        // Little by little, as from a pipe.
        let input = BufReader::with_capacity(61, Cursor::new(bytes.to_vec()));
        unpack(Box::new(input), &read_bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    /// Many lines that no compressor turns into next to nothing.
    fn lines() -> Vec<u8> {
        let mut state = 1u32;
        let mut line = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            format!("{state},R,{},512\n", state / 7)
        };
        (0..6_000).map(|_| line()).collect::<String>().into_bytes()
    }

    type Compressor = fn(&[u8]) -> Vec<u8>;
    const ALL: [(&str, Compressor); 5] =
        [("zstd", zstd), ("gzip", gzip), ("xz", xz), ("bzip2", bzip2), ("lz4", lz4)];

    /// A trace that ended with the first piece, or with what is left of a file, would be a shorter
    /// trace, and nobody would know.
    #[test]
    fn all_pieces_are_unpacked_and_what_is_cut_off_is_an_error() {
        let (first, second) = (lines(), b"second\n".to_vec());
        for (name, compress) in ALL {
            let pieces = [compress(&first), compress(b""), compress(&second)].concat();
            let whole = [first.clone(), second.clone()].concat();
            assert_eq!(unpacked(&pieces).unwrap(), whole, "{name}");
            let one = compress(&first);
            for cut in (1..20).chain([one.len() / 2, one.len() / 3]) {
                let cut_off = unpacked(&one[..one.len() - cut]);
                assert!(cut_off.is_err(), "{name}: {cut} bytes less");
            }
        }
        for compress in [gzip, xz, bzip2] {
            let mut damaged = compress(&first);
            let middle = damaged.len() / 2;
            damaged[middle] ^= 0x10;
            assert!(unpacked(&damaged).is_err());
        }
        let skippable = [&0x184d_2a50u32.to_le_bytes()[..], &3u32.to_le_bytes(), b"abc"].concat();
        assert_eq!(unpacked(&[zstd(&first), skippable].concat()).unwrap(), first);
        let error = unpacked(&[zstd(&first), b"more".to_vec()].concat()).unwrap_err();
        assert_eq!(error.to_string(), "expected zstd data, found them damaged or cut off");
    }

    /// lz4 between two blocks: the place that its decoder takes for the end.
    #[test]
    fn lz4_that_ends_after_a_block_is_cut_off() {
        let whole = lz4(&lines());
        // The end mark of four bytes is missing.
        let error = unpacked(&whole[..whole.len() - 4]).unwrap_err();
        assert_eq!(error.to_string(), "expected lz4 data, found them damaged or cut off");
    }

    #[test]
    fn one_packing_may_be_in_another() {
        let text = lines();
        for (name, compress) in ALL {
            let found = unpacked(&compress(&archive(&[("d/t.csv", &compress(&text))])));
            assert_eq!(found.unwrap(), text, "{name}");
        }
        let packed = |times| (0..times).fold(text.clone(), |inner, _| gzip(&inner));
        assert_eq!(unpacked(&packed(4)).unwrap(), text);
        assert!(unpacked(&packed(5)).unwrap_err().to_string().contains("more than 4 times"));
        assert_eq!(unpacked(b"").unwrap(), b"");
    }

    #[test]
    fn a_bomb_is_refused_soon() {
        let text = vec![b'x'; 33 << 20];
        for (name, compress) in ALL {
            let error = unpacked(&compress(&text)).unwrap_err().to_string();
            assert!(error.contains("128 times as long"), "{name}: {error}");
        }
        // Up to the free bytes everything is possible.
        let free = &text[..16 << 20];
        assert!(unpacked(&gzip(free)).unwrap() == free);
    }

    /// A dictionary of 4 GiB in the header of a few bytes.
    #[test]
    fn the_memory_of_xz_is_bounded() {
        let mut bytes = xz(b"0,1,512,W,0.5\n");
        // Block header: size, flags, filter 0x21, one byte of properties: the dictionary.
        assert_eq!(bytes[14..16], [0x21, 1]);
        bytes[16] = 40;
        let size = usize::from(bytes[12]) * 4;
        let checksum = crc32(&bytes[12..12 + size]);
        bytes[12 + size..16 + size].copy_from_slice(&checksum.to_le_bytes());
        let error = unpacked(&bytes).unwrap_err().to_string();
        assert!(error.contains("mem_limit"), "{error}");
    }

    fn crc32(bytes: &[u8]) -> u32 {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum()
    }
}
