//! More room for pointers while a volume is used: `volume/paths/more_pointers.rs`.

#[path = "common/volume.rs"]
mod bench;

use bench::*;
use std::collections::BTreeSet;

use dcd_engine::{Lba, Operation, RequestError, VolumeError, VolumeRequest};

/// A table of pointers that is full becomes larger while the volume is used, at the cost of its
/// journal.
///
/// ```text
/// before    ... pages | journal ................... |
/// after     ... pages | pages of pointers | journal |
/// ```
#[test]
fn more_pointers_can_be_had_at_any_time() {
    let mut bench = Bench::with_journal(tiered(), 2 * MIB);
    fill(&mut bench, 3);
    bench.drain();
    let blocks: Vec<Lba> = (0..70).map(|_| bench.allocate(None)).collect();
    let pairs: Vec<(Lba, Lba)> =
        blocks.iter().flat_map(|from| blocks.iter().map(|to| (*from, *to))).collect();
    let point = |bench: &mut Bench, (from, to): (Lba, Lba)| {
        bench.volume_request(VolumeRequest::CreatePointer { from, to }).map(|_| ())
    };
    let set = |bench: &mut Bench, pointers| {
        bench.volume_request(VolumeRequest::SetPointers { pointers }).map(|_| ())
    };
    let count = |bench: &Bench| {
        let status = bench.volume().status();
        (status.pointers, status.pointers_max)
    };
    let full = Err(RequestError::Volume(VolumeError::NoPointerRoom));
    (0..1000).for_each(|i| assert_eq!(point(&mut bench, pairs[i]), Ok(())));
    assert_eq!(point(&mut bench, pairs[1000]), full);
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    // As much as there is changes nothing.
    assert_eq!(set(&mut bench, 1000), Ok(()));
    assert_eq!(count(&bench), (1000, 1000));
    // 256 lines of the journal are 128 pages.
    let most = (2 + 128) * 504;
    let refused = Err(RequestError::Volume(VolumeError::TooManyPointers { most }));
    assert_eq!(set(&mut bench, most + 1), refused);
    assert_eq!(set(&mut bench, u32::MAX), refused);

    // Some are not durable yet, and the members have something to do.
    let again = fill(&mut bench, 4);
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    let dropped = VolumeRequest::DeletePointer { from: pairs[7].0, to: pairs[7].1 };
    bench.volume_request(dropped).unwrap();
    bench.moments = Some(Vec::new());
    assert_eq!(set(&mut bench, 3000), Ok(()));
    let moments = bench.moments.take().unwrap();
    assert_eq!(count(&bench), (999, 6 * 504));
    for pair in &pairs[1000..3000] {
        assert_eq!(point(&mut bench, *pair), Ok(()));
    }
    check(&mut bench, &again);
    assert_eq!(bench.ask(Operation::Flush).0, Ok(()));
    bench.open(false);
    assert_eq!(count(&bench), (2999, 6 * 504));
    check(&mut bench, &again);
    // Once more, and in order.
    assert_eq!(set(&mut bench, 5000), Ok(()));
    for pair in &pairs[3000..4900] {
        assert_eq!(point(&mut bench, *pair), Ok(()));
    }
    let newest = fill(&mut bench, 5);
    bench.drain();
    assert_eq!(bench.ask(Operation::Shutdown).0, Ok(()));
    bench.open(false);
    assert_eq!(count(&bench), (4899, 10 * 504));
    check(&mut bench, &newest);

    // The power may go at any moment of it.
    assert!(moments.len() > 3, "{}", moments.len());
    let mut sizes = BTreeSet::new();
    for (cache_disk, members) in moments {
        (bench.cache_disk, bench.members) = (cache_disk, members);
        bench.open(false);
        let (pointers, most) = count(&bench);
        assert!((999..=1000).contains(&pointers), "{pointers}");
        sizes.insert(most);
        check(&mut bench, &again);
        fill(&mut bench, 6);
        bench.drain();
        assert_eq!(set(&mut bench, 3000), Ok(()));
        bench.open(false);
        assert_eq!(count(&bench).1, 6 * 504);
    }
    assert_eq!(sizes, BTreeSet::from([1000, 6 * 504]));
}

/// What cannot be brought to the end is refused, and everything goes on.
#[test]
fn more_pointers_are_refused_while_the_journal_cannot_be_emptied() {
    let mut bench = Bench::with_journal(raid5(), 2 * MIB);
    let written = fill(&mut bench, 1);
    // Two members cannot be flushed: the journal has to keep what they have.
    bench.unflushable[1] = true;
    bench.unflushable[2] = true;
    let asked = VolumeRequest::SetPointers { pointers: 5000 };
    let refused = bench.volume_request(asked.clone());
    assert!(
        matches!(refused, Err(RequestError::Volume(VolumeError::Metadata)) | Ok(_)),
        "{refused:?}"
    );
    bench.unflushable = vec![false; 4];
    check(&mut bench, &written);
    bench.drain();
    bench.until_idle();
    bench.open(true);
    check(&mut bench, &written);
}
