//! Which request the bytes of a server answer: simple replies, and structured ones in chunks, in
//! any order and cut anywhere.
//!
//! What was asked is known to the caller ([`Asks`]). A read has ended well only when each of its
//! bytes came exactly once: what a server leaves out would be what the buffer held before, which is
//! somebody else's.

use std::collections::HashMap;

use zerocopy::FromBytes;

use super::wire::{
    ChunkHeader, REPLY_FLAG_DONE, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, SimpleReply, chunk,
};

/// Chunks of a reply that are listened to.
const CHUNKS_MAX: usize = 4096;
/// Longest message of an error that is listened to, which nobody reads.
const ERROR_BYTES_MAX: u32 = 64 << 10;
/// A chunk with an error has this bit.
const IS_ERROR: u16 = 1 << 15;

/// What a request wants to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// These bytes of the export.
    Data {
        /// From where on.
        offset: u64,
        /// How many.
        length: u32,
    },
    /// To be done.
    Done,
}

/// The requests that wait for an answer.
pub trait Asks {
    /// What this one wants; `None`: there is no such request.
    fn asked(&self, cookie: u64) -> Option<Asked>;

    /// Bytes of a read, from this byte of the request on.
    fn data(&mut self, cookie: u64, at: usize, bytes: &[u8]);

    /// So many zeroes of a read.
    fn zeroes(&mut self, cookie: u64, at: usize, length: usize);

    /// It has ended; an error is a number of the protocol. Never asked for again.
    fn ended(&mut self, cookie: u64, result: Result<(), u32>);
}

/// Not what the protocol says: nothing that follows can be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplyError {
    /// No reply.
    #[error("the server answers with what is no reply ({found:#010x})")]
    Magic {
        /// What stands there.
        found: u32,
    },
    /// Nobody has asked.
    #[error("the server answers a request that does not wait for an answer ({cookie:#x})")]
    Cookie {
        /// Of the request.
        cookie: u64,
    },
    /// Something else.
    #[error("the server breaks the protocol: {0}")]
    Protocol(&'static str),
}

/// What of a structured reply has come.
#[derive(Default)]
struct Progress {
    /// Bytes of the request, in order, none twice.
    covered: Vec<(u32, u32)>,
    error: Option<u32>,
    chunks: usize,
}

impl Progress {
    /// Notes bytes. False: some have come already, or lie behind the end.
    fn cover(&mut self, at: u32, length: u32, all: u32) -> bool {
        let Some(end) = at.checked_add(length).filter(|end| *end <= all) else { return false };
        let place = self.covered.partition_point(|(start, _)| *start < at);
        let is_free = place == 0 || self.covered[place - 1].1 <= at;
        let is_free = is_free && self.covered.get(place).is_none_or(|(start, _)| end <= *start);
        if !is_free {
            return false;
        }
        // Most come in order: then it is one piece.
        match place.checked_sub(1).map(|place| &mut self.covered[place]) {
            Some(before) if before.1 == at => before.1 = end,
            _ => self.covered.insert(place, (at, end)),
        }
        true
    }

    fn is_whole(&self, all: u32) -> bool {
        self.covered.iter().map(|(start, end)| u64::from(end - start)).sum::<u64>()
            == u64::from(all)
    }
}

#[derive(Clone, Copy)]
enum State {
    /// A magic number, and what belongs to it.
    Header,
    /// Data of a read, from this byte of the request on. `ends`: then it has ended.
    Data { cookie: u64, at: u32, left: u32, ends: Option<bool> },
    /// What stands before the rest of a chunk.
    ChunkHead { cookie: u64, kind: u16, length: u32, done: bool },
    /// What nobody reads.
    Skip { cookie: u64, left: u32, done: bool },
}

/// See the module.
pub struct ReplyReader {
    structured: bool,
    state: State,
    head: [u8; 20],
    have: usize,
    under_way: HashMap<u64, Progress>,
}

impl ReplyReader {
    /// Of a connection on which this was agreed upon.
    pub fn new(structured: bool) -> ReplyReader {
        ReplyReader {
            structured,
            state: State::Header,
            head: [0; 20],
            have: 0,
            under_way: HashMap::new(),
        }
    }

    /// Takes what was received.
    ///
    /// # Errors
    /// If it makes no sense: then nothing that follows does.
    pub fn received(&mut self, mut bytes: &[u8], asks: &mut impl Asks) -> Result<(), ReplyError> {
        while !bytes.is_empty() {
            match self.state {
                State::Header => {
                    if self.gather(&mut bytes, 4) {
                        let magic = u32::from_be_bytes([
                            self.head[0],
                            self.head[1],
                            self.head[2],
                            self.head[3],
                        ]);
                        let whole = match magic {
                            SIMPLE_REPLY_MAGIC => size_of::<SimpleReply>(),
                            STRUCTURED_REPLY_MAGIC if self.structured => size_of::<ChunkHeader>(),
                            found => return Err(ReplyError::Magic { found }),
                        };
                        if self.gather(&mut bytes, whole) {
                            self.have = 0;
                            match magic {
                                SIMPLE_REPLY_MAGIC => self.simple(asks)?,
                                _ => self.chunk(asks)?,
                            }
                        }
                    }
                }
                State::Data { cookie, at, left, ends } => {
                    let count = bytes.len().min(left as usize);
                    asks.data(cookie, at as usize, &bytes[..count]);
                    bytes = &bytes[count..];
                    let (at, left) = (at + count as u32, left - count as u32);
                    self.state = State::Data { cookie, at, left, ends };
                    if left == 0 {
                        self.state = State::Header;
                        match ends {
                            // A simple reply: that was all.
                            None => asks.ended(cookie, Ok(())),
                            Some(done) => self.chunk_ended(cookie, done, asks)?,
                        }
                    }
                }
                State::ChunkHead { cookie, kind, length, done } => {
                    let whole = match kind {
                        chunk::OFFSET_DATA => 8,
                        chunk::OFFSET_HOLE => 12,
                        _ => 6,
                    };
                    if self.gather(&mut bytes, whole) {
                        self.have = 0;
                        self.chunk_head(cookie, kind, length, done, asks)?;
                    }
                }
                State::Skip { cookie, left, done } => {
                    let count = bytes.len().min(left as usize);
                    bytes = &bytes[count..];
                    self.skip(cookie, left - count as u32, done, asks)?;
                }
            }
        }
        Ok(())
    }

    /// Takes bytes until there are so many at the head. Whether there are.
    fn gather(&mut self, bytes: &mut &[u8], whole: usize) -> bool {
        let count = whole.saturating_sub(self.have).min(bytes.len());
        let (now, later) = bytes.split_at(count);
        self.head[self.have..self.have + count].copy_from_slice(now);
        self.have += count;
        *bytes = later;
        self.have >= whole
    }

    fn simple(&mut self, asks: &mut impl Asks) -> Result<(), ReplyError> {
        let (reply, _) = SimpleReply::read_from_prefix(&self.head).expect("it is all there");
        let cookie = reply.cookie.get();
        let asked = asks.asked(cookie).ok_or(ReplyError::Cookie { cookie })?;
        if self.under_way.contains_key(&cookie) {
            return Err(ReplyError::Protocol("a simple reply behind a chunk"));
        }
        match (reply.error.get(), asked) {
            (0, Asked::Data { .. }) if self.structured => {
                return Err(ReplyError::Protocol("a simple reply to a read"));
            }
            (0, Asked::Data { length, .. }) if length > 0 => {
                self.state = State::Data { cookie, at: 0, left: length, ends: None };
            }
            (0, _) => asks.ended(cookie, Ok(())),
            (error, _) => asks.ended(cookie, Err(error)),
        }
        Ok(())
    }

    fn chunk(&mut self, asks: &mut impl Asks) -> Result<(), ReplyError> {
        let header = ChunkHeader::read_from_bytes(&self.head).expect("it is all there");
        let (cookie, kind, length) = (header.cookie.get(), header.kind.get(), header.length.get());
        let done = header.flags.get() & REPLY_FLAG_DONE != 0;
        asks.asked(cookie).ok_or(ReplyError::Cookie { cookie })?;
        let progress = self.under_way.entry(cookie).or_default();
        progress.chunks += 1;
        if progress.chunks > CHUNKS_MAX {
            return Err(ReplyError::Protocol("chunks without end"));
        }
        let is_right = match kind {
            chunk::NONE => length == 0 && done,
            chunk::OFFSET_DATA => length > 8,
            chunk::OFFSET_HOLE => length == 12,
            kind if kind & IS_ERROR != 0 => (6..=ERROR_BYTES_MAX).contains(&length),
            _ => false,
        };
        if !is_right {
            return Err(ReplyError::Protocol("a chunk of an unknown kind or a wrong length"));
        }
        match kind {
            chunk::NONE => self.chunk_ended(cookie, done, asks),
            _ => {
                self.state = State::ChunkHead { cookie, kind, length, done };
                Ok(())
            }
        }
    }

    fn chunk_head(
        &mut self,
        cookie: u64,
        kind: u16,
        length: u32,
        done: bool,
        asks: &mut impl Asks,
    ) -> Result<(), ReplyError> {
        let word = |at: usize| {
            u32::from_be_bytes([
                self.head[at],
                self.head[at + 1],
                self.head[at + 2],
                self.head[at + 3],
            ])
        };
        if kind & IS_ERROR != 0 {
            let error = word(0);
            if error == 0 {
                return Err(ReplyError::Protocol("an error without a number"));
            }
            self.under_way.entry(cookie).or_default().error.get_or_insert(error);
            return self.skip(cookie, length - 6, done, asks);
        }
        let Some(Asked::Data { offset, length: all }) = asks.asked(cookie) else {
            return Err(ReplyError::Protocol("data for a request that wants none"));
        };
        let from = u64::from(word(0)) << 32 | u64::from(word(4));
        let count = if kind == chunk::OFFSET_HOLE { word(8) } else { length - 8 };
        let outside = ReplyError::Protocol("data that was not asked for, or that came already");
        let at = from.checked_sub(offset).and_then(|at| u32::try_from(at).ok()).ok_or(outside)?;
        if count == 0 || !self.under_way.entry(cookie).or_default().cover(at, count, all) {
            return Err(outside);
        }
        if kind == chunk::OFFSET_HOLE {
            asks.zeroes(cookie, at as usize, count as usize);
            return self.chunk_ended(cookie, done, asks);
        }
        self.state = State::Data { cookie, at, left: count, ends: Some(done) };
        Ok(())
    }

    fn skip(
        &mut self,
        cookie: u64,
        left: u32,
        done: bool,
        asks: &mut impl Asks,
    ) -> Result<(), ReplyError> {
        if left > 0 {
            self.state = State::Skip { cookie, left, done };
            return Ok(());
        }
        self.chunk_ended(cookie, done, asks)
    }

    fn chunk_ended(
        &mut self,
        cookie: u64,
        done: bool,
        asks: &mut impl Asks,
    ) -> Result<(), ReplyError> {
        self.state = State::Header;
        if !done {
            return Ok(());
        }
        let progress = self.under_way.remove(&cookie).unwrap_or_default();
        match (progress.error, asks.asked(cookie)) {
            (Some(error), _) => asks.ended(cookie, Err(error)),
            (None, Some(Asked::Data { length, .. })) if !progress.is_whole(length) => {
                return Err(ReplyError::Protocol("a read that ends before all of it has come"));
            }
            (None, _) => asks.ended(cookie, Ok(())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    /// Requests 1 (8 bytes from 100 on) and 2 (to be done).
    #[derive(Default)]
    struct Two {
        data: Vec<u8>,
        ended: Vec<(u64, Result<(), u32>)>,
    }

    impl Asks for Two {
        fn asked(&self, cookie: u64) -> Option<Asked> {
            let is_over = self.ended.iter().any(|(ended, _)| *ended == cookie);
            match cookie {
                1 if !is_over => Some(Asked::Data { offset: 100, length: 8 }),
                2 if !is_over => Some(Asked::Done),
                _ => None,
            }
        }
        fn data(&mut self, _: u64, at: usize, bytes: &[u8]) {
            self.data.resize(8, 0xee);
            self.data[at..at + bytes.len()].copy_from_slice(bytes);
        }
        fn zeroes(&mut self, cookie: u64, at: usize, length: usize) {
            self.data(cookie, at, &vec![0; length]);
        }
        fn ended(&mut self, cookie: u64, result: Result<(), u32>) {
            self.ended.push((cookie, result));
        }
    }

    fn simple(cookie: u64, error: u32) -> Vec<u8> {
        let reply = SimpleReply {
            magic: SIMPLE_REPLY_MAGIC.into(),
            error: error.into(),
            cookie: cookie.into(),
        };
        reply.as_bytes().to_vec()
    }

    fn chunk_of(cookie: u64, kind: u16, done: bool, payload: &[u8]) -> Vec<u8> {
        let header = ChunkHeader {
            magic: STRUCTURED_REPLY_MAGIC.into(),
            flags: u16::from(done).into(),
            kind: kind.into(),
            cookie: cookie.into(),
            length: (payload.len() as u32).into(),
        };
        [header.as_bytes(), payload].concat()
    }

    fn data(offset: u64, bytes: &[u8], done: bool) -> Vec<u8> {
        let payload = [&offset.to_be_bytes()[..], bytes].concat();
        chunk_of(1, chunk::OFFSET_DATA, done, &payload)
    }

    fn hole(offset: u64, length: u32, done: bool) -> Vec<u8> {
        let payload = [&offset.to_be_bytes()[..], &length.to_be_bytes()].concat();
        chunk_of(1, chunk::OFFSET_HOLE, done, &payload)
    }

    /// What comes of it, cut into pieces of this size.
    fn read(structured: bool, said: &[Vec<u8>], piece: usize) -> Result<Two, ReplyError> {
        let (mut reader, mut two) = (ReplyReader::new(structured), Two::default());
        for bytes in said.concat().chunks(piece) {
            reader.received(bytes, &mut two)?;
        }
        Ok(two)
    }

    #[test]
    fn replies_are_understood_wherever_they_are_cut() {
        for piece in 1..50 {
            let said = [simple(2, 5), simple(1, 0), b"abcdefgh".to_vec()];
            let two = read(false, &said, piece).unwrap();
            assert_eq!(
                (&two.data[..], &two.ended[..]),
                (&b"abcdefgh"[..], &[(2, Err(5)), (1, Ok(()))][..])
            );
            let said = [
                data(104, b"efgh", false),
                chunk_of(2, chunk::NONE, true, &[]),
                hole(102, 2, false),
                data(100, b"ab", true),
            ];
            let two = read(true, &said, piece).unwrap();
            assert_eq!(
                (&two.data[..], &two.ended[..]),
                (&b"ab\0\0efgh"[..], &[(2, Ok(())), (1, Ok(()))][..])
            );
            let error = chunk_of(1, chunk::ERROR, false, &[0, 0, 0, 28, 0, 2, b'n', b'o']);
            let said = [data(100, b"ab", false), error, chunk_of(1, chunk::NONE, true, &[])];
            assert_eq!(read(true, &said, piece).unwrap().ended, [(1, Err(28))]);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (structured, said) in [
            (false, vec![b"HTTP".to_vec()]),
            (false, vec![data(100, b"abcdefgh", true)]),
            (true, vec![simple(1, 0)]),
            (true, vec![simple(3, 0)]),
            (true, vec![simple(2, 0), simple(2, 0)]),
            (true, vec![data(100, b"abcdefg", true)]),
            (true, vec![data(100, b"abcd", false), data(103, b"defg", false)]),
            (true, vec![data(100, b"abcd", false), hole(100, 8, true)]),
            (true, vec![data(99, b"abcd", false)]),
            (true, vec![data(104, b"efghi", false)]),
            (true, vec![hole(u64::MAX, u32::MAX, false)]),
            (true, vec![chunk_of(2, chunk::OFFSET_DATA, true, &[0; 9])]),
            (true, vec![chunk_of(1, chunk::NONE, true, &[])]),
            (true, vec![chunk_of(1, chunk::NONE, false, &[])]),
            (true, vec![chunk_of(1, chunk::BLOCK_STATUS, true, &[0; 12])]),
            (true, vec![chunk_of(1, chunk::ERROR, true, &[0; 6])]),
            (true, vec![chunk_of(1, chunk::ERROR, true, &[0; 5])]),
        ] {
            assert!(read(structured, &said, 7).is_err(), "{said:?}");
        }
    }
}
