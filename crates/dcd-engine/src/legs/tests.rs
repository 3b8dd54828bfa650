use super::choose::{Choice, Role};
use super::{Legs, LegsOutput, LegsParts};
use crate::buffer::Buffer;
use crate::format::leg_label::{LegLabel, LegState, Membership, Tag};
use crate::io::{Device, Io, IoDone, IoError, IoId, IoOperation, IoOwner};
use crate::units::{Duration, LegIndex, Time, Uuid};

const LEG_0: Device = Device::Leg(LegIndex(0));
const LEG_1: Device = Device::Leg(LegIndex(1));

/// Of the reads: behind the labels.
const OFFSET: u64 = 1 << 20;

/// Two legs in sync that serve, and what they have been asked for.
struct TwoLegs {
    legs: Legs,
    asked: Vec<Io>,
    done: Vec<IoDone>,
}

impl TwoLegs {
    fn serving() -> TwoLegs {
        TwoLegs::opened(&[], |_| ())
    }

    /// Behind a start that makes these regions alike; `asked` sees what it asks the legs for.
    fn opened(marks: &[u32], mut asked: impl FnMut(&Io)) -> TwoLegs {
        let uuids = vec![Uuid([1; 16]), Uuid([2; 16])];
        let membership =
            Membership { tag: Tag(1), past: Vec::new(), members: uuids.clone(), witness: None };
        let label = LegLabel {
            cache: Uuid([9; 16]),
            leg: uuids[0],
            number: 1,
            state: LegState::Member,
            membership,
            is_in_force: true,
            region_bytes: 1 << 20,
            marks: marks.to_vec(),
            witness_before: None,
        };
        let choice = Choice {
            roles: vec![Role::InSync; 2],
            primary: 0,
            label,
            missing: Vec::new(),
            witness: None,
            witness_missing: None,
            witness_knows: Vec::new(),
            stale_tags: Vec::new(),
        };
        let parts = LegsParts::new(choice, uuids, 1);
        let legs = Legs::open(Time(0), parts, 64 << 20, Duration::from_secs(30));
        let legs = legs.expect("regions of a size that there is");
        let mut it = TwoLegs { legs, asked: Vec::new(), done: Vec::new() };
        it.go_on();
        while it.legs.is_opening() {
            let io = it.asked.pop().expect("a start that is not over has something under way");
            asked(&io);
            it.answer(io, Ok(()));
        }
        it
    }

    fn go_on(&mut self) {
        self.legs.advance();
        while let Some(output) = self.legs.poll() {
            match output {
                LegsOutput::Io(io) => self.asked.push(io),
                LegsOutput::Done(done) => self.done.push(done),
            }
        }
    }

    /// Asks for this; the read of a leg that comes of it.
    fn read(&mut self, id: u64, offset: u64, length: usize) -> Io {
        let operation = IoOperation::Read { offset, buffer: Buffer::zeroed(length) };
        self.legs.submit(Io { id: read_id(id), device: Device::CacheDisk, operation });
        self.go_on();
        self.asked.pop().expect("a leg is asked")
    }

    fn answer(&mut self, io: Io, result: Result<(), IoError>) {
        let buffer = match io.operation {
            IoOperation::Read { buffer, .. } => Some(buffer),
            _ => None,
        };
        self.legs.io_done(IoDone { id: io.id, result, buffer });
        self.go_on();
    }

    fn is_done(&self, id: u64) -> Option<Result<(), IoError>> {
        self.done.iter().find(|done| done.id == read_id(id)).map(|done| done.result)
    }
}

fn read_id(number: u64) -> IoId {
    IoId::of(IoOwner::Cache, number)
}

/// Seed 990020049 of the fuzzer: it showed what its medium lost when a flush failed. The copy
/// became durable, and this did not.
#[test]
fn a_start_writes_what_is_marked_to_the_leg_that_it_reads_too() {
    let mut written: Vec<(Device, u64)> = Vec::new();
    TwoLegs::opened(&[3], |io| {
        if let IoOperation::Write { offset, fua: false, .. } = &io.operation {
            written.push((io.device, *offset));
        }
    });
    for leg in [LEG_0, LEG_1] {
        let pieces: Vec<u64> =
            written.iter().filter(|it| it.0 == leg).map(|it| it.1 >> 10).collect();
        assert_eq!(pieces, [3072, 3328, 3584, 3840], "{leg:?}");
    }
}

/// Two reads that failed on one leg, and are under way on the other.
fn failed_on_one() -> (TwoLegs, Io, Io) {
    let mut it = TwoLegs::serving();
    let mut on_the_other = Vec::new();
    for (id, length) in [(1, 4096), (2, 8192)] {
        let io = it.read(id, OFFSET, length);
        assert_eq!(io.device, LEG_0, "the other has more to do");
        it.answer(io, Err(IoError::Failed));
        let io = it.asked.pop().expect("the other leg is asked");
        assert_eq!(io.device, LEG_1);
        on_the_other.push(io);
    }
    let long = on_the_other.pop().expect("two were begun");
    (it, on_the_other.pop().expect("two were begun"), long)
}

/// What is asked of leg 0, but for the labels that say that leg 1 is gone.
fn take(it: &mut TwoLegs, is_wanted: fn(&IoOperation) -> bool) -> Option<Io> {
    let place = it.asked.iter().position(|io| io.device == LEG_0 && is_wanted(&io.operation))?;
    Some(it.asked.remove(place))
}

fn is_read(operation: &IoOperation) -> bool {
    matches!(operation, IoOperation::Read { .. })
}

fn is_mend(operation: &IoOperation) -> bool {
    matches!(operation, IoOperation::Write { offset: OFFSET, .. })
}

/// Seed 140001852 of the fuzzer: it failed, although leg 0 had the bytes again.
#[test]
fn a_read_whose_last_leg_goes_is_asked_of_one_that_was_mended_meanwhile() {
    let (mut it, short, long) = failed_on_one();
    it.answer(long, Ok(()));
    assert_eq!(it.is_done(2), Some(Ok(())));
    let mend = take(&mut it, is_mend).expect("what leg 0 could not read is written there");
    it.answer(mend, Ok(()));
    it.answer(short, Err(IoError::Gone));
    let again = take(&mut it, is_read).expect("leg 0 is asked again");
    it.answer(again, Ok(()));
    assert_eq!(it.is_done(1), Some(Ok(())));
}

#[test]
fn and_waits_for_the_mending() {
    for result in [Ok(()), Err(IoError::Gone)] {
        let (mut it, short, long) = failed_on_one();
        it.answer(long, Ok(()));
        it.answer(short, Err(IoError::Gone));
        assert_eq!(it.is_done(1), None);
        assert!(take(&mut it, is_read).is_none(), "it would meet the bad sector again");
        let mend = take(&mut it, is_mend).expect("what leg 0 could not read is written there");
        it.answer(mend, result);
        let again = take(&mut it, is_read).expect("leg 0 is asked again");
        it.answer(again, result);
        assert_eq!(it.is_done(1), Some(result));
    }
}

#[test]
fn what_no_leg_can_read_and_none_has_mended_fails_once() {
    let (mut it, short, long) = failed_on_one();
    it.answer(short, Err(IoError::Gone));
    assert_eq!(it.is_done(1), Some(Err(IoError::Gone)));
    it.answer(long, Err(IoError::Gone));
    assert_eq!(it.is_done(2), Some(Err(IoError::Gone)));
    assert!(take(&mut it, is_read).is_none());
}
