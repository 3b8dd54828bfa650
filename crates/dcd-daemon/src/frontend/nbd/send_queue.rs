//! Bytes on their way to the client: small headers copied together, payloads by reference.
//!
//! The driver hands slices of this queue to the kernel and must find them unchanged and in place
//! until it calls [`SendQueue::transmitted`], while replies are appended. So headers are written
//! into arenas, boxed memory of fixed size that is filled once from front to back and never grows;
//! payloads stay in the [`Buffer`] they came in. Only [`SendQueue::transmitted`] frees anything.
//!
//! ```text
//! arenas    [hhhhhhhh|hhhhhh..]      positions count all header bytes of the connection
//! segments  H(0..28) P H(28..72) P   adjacent headers are one segment
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use dcd_engine::buffer::Buffer;

/// Bytes in an arena. Room for more than 128 simple replies.
const ARENA_SIZE: usize = 4096;

/// See the module.
#[derive(Default)]
pub(super) struct SendQueue {
    arenas: VecDeque<Box<[u8; ARENA_SIZE]>>,
    /// Position of the first byte of the first arena; a multiple of [`ARENA_SIZE`].
    arenas_start: u64,
    /// Position after the last header byte written.
    headers_end: u64,
    segments: VecDeque<Segment>,
    /// Header bytes not transmitted yet.
    header_bytes: usize,
    /// An arena no longer in use, for the next need.
    spare: Option<Box<[u8; ARENA_SIZE]>>,
}

enum Segment {
    /// Positions of header bytes, all in one arena.
    Header(Range<u64>),
    /// The rest, from `sent` on, of a payload.
    Payload { buffer: Buffer, sent: usize },
}

impl SendQueue {
    /// Appends a copy of `bytes`.
    pub(super) fn push_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let within = (self.headers_end % ARENA_SIZE as u64) as usize;
            if self.headers_end == self.arenas_end() {
                let arena = self.spare.take().unwrap_or_else(|| Box::new([0; ARENA_SIZE]));
                self.arenas.push_back(arena);
            }
            let arena = self.arenas.back_mut().expect("an arena has room");
            let count = bytes.len().min(ARENA_SIZE - within);
            let (now, later) = bytes.split_at(count);
            arena[within..within + count].copy_from_slice(now);
            bytes = later;

            let start = self.headers_end;
            let end = start + count as u64;
            match self.segments.back_mut() {
                // Two arenas are not adjacent in memory, so a segment ends where its arena does.
                Some(Segment::Header(last)) if within != 0 && last.end == start => last.end = end,
                _ => self.segments.push_back(Segment::Header(start..end)),
            }
            self.headers_end = end;
            self.header_bytes += count;
        }
    }

    /// Appends all of `buffer` without copying it.
    pub(super) fn push_payload(&mut self, buffer: Buffer) {
        if !buffer.is_empty() {
            self.segments.push_back(Segment::Payload { buffer, sent: 0 });
        }
    }

    /// What to send, in order.
    pub(super) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.segments.iter().map(|segment| match segment {
            Segment::Header(range) => self.header_slice(range),
            Segment::Payload { buffer, sent } => &buffer.bytes()[*sent..],
        })
    }

    /// Forgets the first `count` bytes, and gives each payload that is through to `payload_sent`.
    pub(super) fn transmitted(&mut self, mut count: usize, mut payload_sent: impl FnMut(Buffer)) {
        while count > 0 {
            let segment = self.segments.front_mut().expect("no more is sent than was queued");
            match segment {
                Segment::Header(range) => {
                    let now = (range.end - range.start).min(count as u64);
                    range.start += now;
                    count -= now as usize;
                    self.header_bytes -= now as usize;
                    if range.is_empty() {
                        self.segments.pop_front();
                    }
                }
                Segment::Payload { buffer, sent } => {
                    let now = (buffer.len() - *sent).min(count);
                    *sent += now;
                    count -= now;
                    if *sent == buffer.len()
                        && let Some(Segment::Payload { buffer, .. }) = self.segments.pop_front()
                    {
                        payload_sent(buffer);
                    }
                }
            }
        }
        self.free_arenas();
    }

    /// Whether everything was transmitted.
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Header bytes that wait; a measure for how far the client is behind with reading.
    pub(super) fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    fn header_slice(&self, range: &Range<u64>) -> &[u8] {
        let distance = (range.start - self.arenas_start) as usize;
        let within = distance % ARENA_SIZE;
        let length = (range.end - range.start) as usize;
        &self.arenas[distance / ARENA_SIZE][within..within + length]
    }

    fn arenas_end(&self) -> u64 {
        self.arenas_start + (self.arenas.len() * ARENA_SIZE) as u64
    }

    /// Frees the arenas of which every byte was written and transmitted.
    fn free_arenas(&mut self) {
        let first_needed = self.headers_end - self.header_bytes as u64;
        while first_needed >= self.arenas_start + ARENA_SIZE as u64 {
            self.arenas_start += ARENA_SIZE as u64;
            self.spare = self.arenas.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(queue: &SendQueue) -> Vec<u8> {
        queue.slices().flatten().copied().collect()
    }

    #[test]
    fn keeps_the_order_over_arenas_and_payloads() {
        let mut queue = SendQueue::default();
        let mut expected = Vec::new();
        let mut seen = Vec::new();
        let mut payloads = 0;
        for round in 0..200usize {
            let header = vec![round as u8; 1 + round * 37 % 500];
            queue.push_bytes(&header);
            expected.extend_from_slice(&header);
            if round % 3 == 0 {
                let payload = vec![!(round as u8); 1 + round * 91 % 6000];
                queue.push_payload(Buffer::copy_of(&payload));
                expected.extend_from_slice(&payload);
            }
            if round % 2 == 1 {
                let waiting = collect(&queue);
                let count = waiting.len() * (round % 5) / 4;
                seen.extend_from_slice(&waiting[..count]);
                queue.transmitted(count, |_| payloads += 1);
            }
        }
        let rest = collect(&queue);
        seen.extend_from_slice(&rest);
        queue.transmitted(rest.len(), |_| payloads += 1);
        assert_eq!(seen, expected);
        assert_eq!(payloads, 67);
        assert!(queue.is_empty() && queue.arenas.len() <= 1 && queue.header_bytes() == 0);
    }

    #[test]
    fn slices_stay_in_place_while_more_is_queued() {
        let mut queue = SendQueue::default();
        queue.push_bytes(&[1; 100]);
        queue.push_payload(Buffer::copy_of(&[2; 100]));
        let places: Vec<*const u8> = queue.slices().map(|slice| slice.as_ptr()).collect();
        for _ in 0..1000 {
            queue.push_bytes(&[3; 100]);
            queue.push_payload(Buffer::copy_of(&[4; 100]));
        }
        let later: Vec<*const u8> = queue.slices().take(2).map(|slice| slice.as_ptr()).collect();
        assert_eq!(places, later);
        assert!(queue.slices().take(2).all(|slice| slice.len() == 100));
    }
}
