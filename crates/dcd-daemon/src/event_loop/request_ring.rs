//! Requests that were served, for whoever records them: a bounded ring between the event loop and a
//! reader on another thread. The loop neither waits nor allocates; what finds no room is lost, and
//! counted.
//!
//! One thread writes, one reads. A slot belongs to the writer from when the reader has passed it
//! until it is published, then to the reader. All of it is atomic words, so there is nothing
//! unsafe: the words of a slot are ordered by `written` and `read`, which are stored after them
//! (Release) and loaded before them (Acquire).
//!
//! [`crate::control`] drains it for `dcd trace record --control`.

use std::sync::atomic::{AtomicU64, Ordering};

use dcd_engine::units::LbaRange;
use dcd_engine::{Operation, Time};
use serde::{Deserialize, Serialize};

/// What a recorded request wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedOperation {
    /// Data from the volume.
    Read,
    /// Data to the volume.
    Write,
    /// Zeroes, without data.
    WriteZeroes,
    /// That what lies there may be forgotten.
    Discard,
    /// That everything acknowledged is durable.
    Flush,
}

impl RecordedOperation {
    const ALL: [RecordedOperation; 5] = [
        RecordedOperation::Read,
        RecordedOperation::Write,
        RecordedOperation::WriteZeroes,
        RecordedOperation::Discard,
        RecordedOperation::Flush,
    ];
}

/// What is known of a request when it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskedRequest {
    number: u64,
    operation: RecordedOperation,
    fua: bool,
    offset_bytes: u64,
    size_bytes: u64,
}

impl AskedRequest {
    /// Of an operation; none of those that are not requests of clients. `number` is one more with
    /// each that comes.
    pub fn of(operation: &Operation, fua: bool, number: u64) -> Option<AskedRequest> {
        let of = |operation, range: LbaRange| AskedRequest {
            number,
            operation,
            fua,
            offset_bytes: range.start.byte(),
            size_bytes: range.bytes(),
        };
        Some(match operation {
            Operation::Read { range, .. } => of(RecordedOperation::Read, *range),
            Operation::Write { start, data } => AskedRequest {
                number,
                operation: RecordedOperation::Write,
                fua,
                offset_bytes: start.byte(),
                size_bytes: data.len() as u64,
            },
            Operation::WriteZeroes { range, .. } => of(RecordedOperation::WriteZeroes, *range),
            Operation::Discard { range } => of(RecordedOperation::Discard, *range),
            Operation::Flush => AskedRequest {
                number,
                operation: RecordedOperation::Flush,
                fua,
                offset_bytes: 0,
                size_bytes: 0,
            },
            Operation::Drain
            | Operation::CancelDrain { .. }
            | Operation::Sequence(_)
            | Operation::Volume(_)
            | Operation::FillLeg { .. }
            | Operation::TakeOutLeg { .. }
            | Operation::Resize { .. }
            | Operation::ResizeReadArea { .. }
            | Operation::CancelResize { .. }
            | Operation::RemoveNvram
            | Operation::CancelNvramChange { .. }
            | Operation::Detach
            | Operation::DetachAccepting { .. }
            | Operation::CancelDetach
            | Operation::Shutdown => return None,
        })
    }
}

/// A request that was answered. As JSON a list of its fields, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "Fields", try_from = "Fields")]
pub struct RecordedRequest {
    /// When it came.
    pub received: Time,
    /// When its answer had been sent.
    pub answered: Time,
    /// What it wanted.
    pub operation: RecordedOperation,
    /// Whether it was to be durable.
    pub fua: bool,
    /// Where it began.
    pub offset_bytes: u64,
    /// How much; the sum of both fits into 64 bits.
    pub size_bytes: u64,
    /// Larger than that of all that came before it: those that are taken together came at the same
    /// time.
    pub number: u64,
}

type Fields = (u64, u64, RecordedOperation, bool, u64, u64, u64);

impl From<RecordedRequest> for Fields {
    fn from(request: RecordedRequest) -> Fields {
        let RecordedRequest { received, answered, operation, fua, .. } = request;
        let RecordedRequest { offset_bytes, size_bytes, number, .. } = request;
        (received.0, answered.0, operation, fua, offset_bytes, size_bytes, number)
    }
}

impl TryFrom<Fields> for RecordedRequest {
    type Error = &'static str;

    fn try_from(fields: Fields) -> Result<RecordedRequest, &'static str> {
        let (received, answered, operation, fua, offset_bytes, size_bytes, number) = fields;
        if offset_bytes.checked_add(size_bytes).is_none() {
            return Err("a request that ends beyond 2^64");
        }
        if answered < received {
            return Err("a request that was answered before it came");
        }
        let (received, answered) = (Time(received), Time(answered));
        Ok(RecordedRequest { received, answered, operation, fua, offset_bytes, size_bytes, number })
    }
}

impl RecordedRequest {
    /// A request that has been answered.
    pub fn new(asked: AskedRequest, received: Time, answered: Time) -> RecordedRequest {
        let AskedRequest { number, operation, fua, offset_bytes, size_bytes } = asked;
        RecordedRequest { received, answered, operation, fua, offset_bytes, size_bytes, number }
    }

    fn words(&self) -> [u64; WORDS] {
        let kind = self.operation as u64 | u64::from(self.fua) << 8;
        [self.received.0, self.answered.0, kind, self.offset_bytes, self.size_bytes, self.number]
    }

    fn of_words(words: [u64; WORDS]) -> RecordedRequest {
        let [received, answered, kind, offset_bytes, size_bytes, number] = words;
        RecordedRequest {
            received: Time(received),
            answered: Time(answered),
            operation: RecordedOperation::ALL[(kind & 0xff) as usize],
            fua: kind & 0x100 != 0,
            offset_bytes,
            size_bytes,
            number,
        }
    }
}

const WORDS: usize = 6;

/// The ring. Counters only grow; a slot is their remainder.
pub struct RequestRing {
    slots: Box<[[AtomicU64; WORDS]]>,
    /// Requests put in.
    written: AtomicU64,
    /// Requests taken out.
    read: AtomicU64,
    lost: AtomicU64,
}

impl RequestRing {
    /// An empty ring for so many requests.
    pub fn new(capacity: usize) -> RequestRing {
        RequestRing {
            slots: (0..capacity).map(|_| Default::default()).collect(),
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    fn slot(&self, index: u64) -> &[AtomicU64; WORDS] {
        &self.slots[(index % self.slots.len() as u64) as usize]
    }

    /// Puts a request in, or counts it as lost. Only the writing thread may call it.
    pub fn push(&self, request: &RecordedRequest) {
        let written = self.written.load(Ordering::Relaxed);
        if written - self.read.load(Ordering::Acquire) >= self.slots.len() as u64 {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        for (word, value) in self.slot(written).iter().zip(request.words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.written.store(written + 1, Ordering::Release);
    }

    /// Takes the oldest request out. Only the reading thread may call it.
    pub fn pop(&self) -> Option<RecordedRequest> {
        let read = self.read.load(Ordering::Relaxed);
        if read == self.written.load(Ordering::Acquire) {
            return None;
        }
        let words = std::array::from_fn(|index| self.slot(read)[index].load(Ordering::Relaxed));
        self.read.store(read + 1, Ordering::Release);
        Some(RecordedRequest::of_words(words))
    }

    /// How many found no room so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dcd_engine::{Buffer, Lba};

    fn request(number: u64) -> RecordedRequest {
        let operation = RecordedOperation::ALL[(number % 5) as usize];
        let asked = AskedRequest {
            number,
            operation,
            fua: number.is_multiple_of(3),
            offset_bytes: number * 7,
            size_bytes: number * 11,
        };
        RecordedRequest::new(asked, Time(number), Time(number * 2))
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let ring = RequestRing::new(4);
        assert_eq!(ring.pop(), None);
        (0..6).for_each(|number| ring.push(&request(number)));
        assert_eq!(ring.lost(), 2);
        assert_eq!((ring.pop(), ring.pop()), (Some(request(0)), Some(request(1))));
        (6..9).for_each(|number| ring.push(&request(number)));
        let rest: Vec<_> = std::iter::from_fn(|| ring.pop()).collect();
        assert_eq!(rest, [2, 3, 6, 7].map(request));
        assert_eq!(ring.lost(), 3);
    }

    /// Each request comes out whole, once and in order, or is lost.
    #[test]
    fn two_threads_may_use_it_at_once() {
        let ring = RequestRing::new(16);
        let count = 200_000;
        let mut seen = 0;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (1..=count).for_each(|number| ring.push(&request(number))));
            let mut last = 0;
            loop {
                let is_over = writer.is_finished();
                while let Some(found) = ring.pop() {
                    assert!(found.received.0 > last);
                    last = found.received.0;
                    assert_eq!(found, request(last));
                    seen += 1;
                }
                if is_over {
                    break;
                }
            }
        });
        assert_eq!(seen + ring.lost(), count);
        assert!(seen > 0);
    }

    #[test]
    fn as_json_it_is_a_list_that_is_checked() {
        let write = Operation::Write { start: Lba(8), data: Buffer::zeroed(512) };
        let asked = AskedRequest::of(&write, true, 3).unwrap();
        let recorded = RecordedRequest::new(asked, Time(10), Time(15));
        let text = serde_json::to_string(&recorded).unwrap();
        assert_eq!(text, r#"[10,15,"write",true,4096,512,3]"#);
        assert_eq!(serde_json::from_str::<RecordedRequest>(&text).unwrap(), recorded);
        for bad in [
            r#"[10,9,"write",true,4096,512,1]"#,
            r#"[10,15,"write",true,18446744073709551615,1,1]"#,
            r#"[10,15,"paint",true,0,1,1]"#,
            "[10,15]",
        ] {
            assert!(serde_json::from_str::<RecordedRequest>(bad).is_err(), "{bad}");
        }
        assert_eq!(AskedRequest::of(&Operation::Drain, false, 1), None);
    }
}
