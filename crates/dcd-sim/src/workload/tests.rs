//! Proves that a workload is what was asked for: the same from the same seed, as many, as large and
//! as often as said; and that what cannot be is refused by the name of its key.

use std::collections::HashMap;

use super::*;
use crate::trace::{Flags, Operation};

/// Enough of the command line's for tests: `4k`, `2s`, `5ms`.
const UNITS: UnitParsers = UnitParsers {
    size: |text| match text.strip_suffix('k') {
        Some(number) => Some(number.parse::<u64>().ok()? << 10),
        None => text.parse().ok(),
    },
    time: |text| match text.strip_suffix("ms") {
        Some(number) => Some(number.parse::<u64>().ok()? * 1_000_000),
        None => match text.strip_suffix("ns") {
            Some(number) => number.parse().ok(),
            None => Some(text.strip_suffix('s')?.parse::<u64>().ok()? * keys::SECOND_NS),
        },
    },
};

fn spec(text: &str) -> WorkloadSpec {
    WorkloadSpec::parse(text, UNITS).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn requests(text: &str) -> Vec<Request> {
    spec(text).workload().unwrap().collect()
}

fn refused(text: &str) -> String {
    match WorkloadSpec::parse(text, UNITS) {
        Ok(_) => panic!("{text} is taken"),
        Err(error) => error.to_string(),
    }
}

fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().sum::<f64>() / values.count() as f64
}

fn sizes(requests: &[Request]) -> impl Iterator<Item = f64> + Clone {
    requests.iter().map(|request| request.size_bytes as f64)
}

fn read_percent(requests: &[Request]) -> f64 {
    let reads = requests.iter().filter(|request| request.operation == Operation::Read).count();
    100.0 * reads as f64 / requests.len() as f64
}

fn per_second(requests: &[Request]) -> f64 {
    requests.len() as f64 * 1e9 / requests.last().unwrap().time_ns as f64
}

#[test]
fn a_seed_says_everything() {
    for kind in WorkloadKind::ALL {
        let name = kind.name();
        let first = requests(&format!("{name},requests=3000,seed=5"));
        assert_eq!(first.len(), 3000, "{name}");
        assert_eq!(first, requests(&format!("{name},requests=3000,seed=5")), "{name}");
        assert_ne!(first, requests(&format!("{name},requests=3000,seed=6")), "{name}");
        // It begins at once, in order of time, and fewer are the first of more.
        assert_eq!(first[0].time_ns, 0, "{name}");
        assert!(first.is_sorted_by_key(|request| request.time_ns), "{name}");
        assert_eq!(first[..100], requests(&format!("{name},requests=100,seed=5")), "{name}");
        assert!(first.iter().map(|request| request.line).eq(1..=3000), "{name}");
    }
}

/// What a seed gave once it gives for ever: recorded results name workloads, not traces.
#[test]
fn workloads_stay_what_they_are() {
    let sum_of = |kind: WorkloadKind| {
        WorkloadSpec::new(kind).workload().unwrap().take(2000).fold(0u64, |sum, request| {
            let Request { time_ns, operation, offset_bytes, size_bytes, .. } = request;
            [time_ns, operation as u64, offset_bytes, size_bytes]
                .into_iter()
                .fold(sum, |sum, part| {
                    (sum ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
                })
        })
    };
    let wanted = [
        8_977_138_854_104_058_558,
        15_469_036_624_351_260_494,
        14_641_713_576_775_278_310,
        8_197_939_843_268_927_764,
        17_067_377_223_577_343_341,
        9_693_804_226_875_332_576,
        15_057_914_549_962_771_511,
    ];
    assert_eq!(WorkloadKind::ALL.map(sum_of), wanted);
}

#[test]
fn moments_come_out_as_asked() {
    for arrivals in ["poisson", "bursts,burst=20,within=2ms"] {
        for name in ["uniform", "zipf,theta=1.2", "sequential,random=30,streams=4", "bursts"] {
            let text = format!(
                "{name},arrivals={arrivals},rate=40,reads=30,size=2k,size-max=16k,span=65536k"
            );
            let found = requests(&text);
            assert_eq!(found.len(), 100_000);
            assert!(
                (per_second(&found) / 40.0 - 1.0).abs() < 0.03,
                "{text}: {}",
                per_second(&found)
            );
            assert!((read_percent(&found) - 30.0).abs() < 1.0, "{text}: {}", read_percent(&found));
            let size = mean(sizes(&found)) / 1024.0;
            assert!((size - 9.0).abs() < 0.1, "{text}: {size}");
            let end = |request: &Request| request.offset_bytes + request.size_bytes;
            assert!(found.iter().all(|request| end(request) <= 65_536 << 10), "{text}");
            assert!(found.iter().map(end).max().unwrap() > 60_000 << 10, "{text}");
        }
    }
}

#[test]
fn a_poisson_stream_is_exponential_and_bursts_are_not() {
    let deviations = |text: &str| {
        let found = requests(text);
        let gaps = found.windows(2).map(|two| (two[1].time_ns - two[0].time_ns) as f64);
        let mean_gap = mean(gaps.clone());
        (mean(gaps.map(|gap| (gap - mean_gap).powi(2))).sqrt() / mean_gap, found)
    };
    let (poisson, _) = deviations("uniform");
    assert!((poisson - 1.0).abs() < 0.02, "{poisson}");
    let (bursts, found) = deviations("bursts,burst=30,within=1ms");
    assert!(bursts > 4.0, "{bursts}");
    // Lengths are from 1 to 59: a silence is longer than anything within a burst, nearly always.
    let (mut lengths, mut length) = (Vec::new(), 1.0);
    for two in found.windows(2) {
        if two[1].time_ns - two[0].time_ns > 2_000_000 {
            lengths.push(length);
            length = 0.0;
        }
        length += 1.0;
    }
    let mean_length = mean(lengths.iter().copied());
    assert!((mean_length - 30.0).abs() < 1.5, "{mean_length}");
    // Two bursts are one where the silence happens to be short.
    assert!(lengths.iter().filter(|length| **length > 59.0).count() < 10);
}

/// NT paper, section 4.1: writes of 1 to 4 KiB, nothing else.
#[test]
fn bursts_are_those_of_the_nt_paper() {
    let found = requests("bursts");
    assert!(found.iter().all(|request| request.operation == Operation::Write));
    for kib in 1..=4 {
        let count = found.iter().filter(|request| request.size_bytes == kib << 10).count();
        assert!(count.abs_diff(25_000) < 600, "{kib} KiB: {count}");
    }
    assert!(requests("bursts,size=2k").iter().all(|request| request.size_bytes == 2048));
}

#[test]
fn zipf_is_as_skewed_as_asked_and_scattered() {
    let mut counts = HashMap::<u64, u64>::new();
    for request in requests("zipf,theta=1.1,span=4096k") {
        *counts.entry(request.offset_bytes).or_default() += 1;
    }
    let weights: f64 = (1..=1024).map(|rank| f64::from(rank).powf(-1.1)).sum();
    let mut by_count: Vec<(u64, u64)> = counts.into_iter().map(|(at, count)| (count, at)).collect();
    by_count.sort_unstable_by(|a, b| b.cmp(a));
    for rank in [1usize, 2, 10, 100] {
        let wanted = 100_000.0 * (rank as f64).powf(-1.1) / weights;
        let found = by_count[rank - 1].0 as f64;
        assert!((found / wanted - 1.0).abs() < 0.15, "{rank}: {found}, {wanted}");
    }
    assert!(by_count[0].1.abs_diff(by_count[1].1) > 1 << 20, "the first two are neighbours");
}

/// Haining, section 3.1.1: a share a alpha / (a alpha + b) of the requests is for the hot ones.
#[test]
fn hot_and_cold_are_as_the_thesis_has_them() {
    let found = requests("hot-cold,hot=50,cold=10000,ratio=400");
    let mut counts = HashMap::<u64, u64>::new();
    found.iter().for_each(|request| *counts.entry(request.offset_bytes).or_default() += 1);
    let hot: Vec<u64> = counts.values().copied().filter(|count| *count > 200).collect();
    assert_eq!(hot.len(), 50);
    let share = hot.iter().sum::<u64>() as f64 / 1e5;
    assert!((share - 2.0 / 3.0).abs() < 0.01, "{share}");
    let evenly = share * 1e5 / 50.0;
    assert!(hot.iter().all(|count| (*count as f64 / evenly - 1.0).abs() < 0.15), "{hot:?}");
    assert!(found.iter().all(|request| request.offset_bytes < 10_050 * 4096));
}

#[test]
fn a_sequence_goes_on_where_it_was() {
    let follows = |found: &[Request]| {
        let is_next =
            |two: &[Request]| two[0].offset_bytes + two[0].size_bytes == two[1].offset_bytes;
        found.windows(2).filter(|two| is_next(two)).count() as f64 / found.len() as f64
    };
    assert!(follows(&requests("sequential,size=64k,requests=10000")) > 0.999);
    let mixed = follows(&requests("sequential,random=25"));
    assert!((mixed - 0.75).abs() < 0.01, "{mixed}");
    // Of two streams every other request goes on.
    let two = follows(&requests("sequential,streams=2"));
    assert!((two - 0.5).abs() < 0.01, "{two}");
}

#[test]
fn duration_and_number_end_it() {
    let found = requests("uniform,duration=100s,rate=100");
    assert!(found.len().abs_diff(10_000) < 500, "{}", found.len());
    assert!(found.last().unwrap().time_ns <= 100 * keys::SECOND_NS);
    assert_eq!(requests("uniform,duration=100s,rate=100,requests=10").len(), 10);
    assert_eq!(spec("uniform,duration=5s").requests_max(), None);
    assert_eq!(spec("zipf").requests_max(), Some(100_000));
}

/// Numbers of the captured traces of a tree of 508 files: docs/workloads.md.
#[test]
fn users_write_what_captured_ones_wrote() {
    let count = |text: &str, wanted: fn(&Request) -> bool| {
        requests(text).iter().filter(|request| wanted(request)).count() as f64
    };
    let is_write = |request: &Request| request.operation == Operation::Write;
    let is_data = |request: &Request| {
        request.operation == Operation::Write && !request.flags.contains(Flags::METADATA)
    };
    for (task, writes, data) in [("untar", 2542.0, 898.0), ("copy", 2197.0, 654.0)] {
        let text = format!("users,task={task}");
        assert!((count(&text, is_write) / writes - 1.0).abs() < 0.15, "{task}");
        assert!((count(&text, is_data) / data - 1.0).abs() < 0.15, "{task}");
    }
    assert!((count("users,task=remove", is_write) * 2.0 / 1173.0 - 1.0).abs() < 0.05);
    let one = count("users", is_write);
    assert!((one / 5912.0 - 1.0).abs() < 0.1, "{one}");
    let four = count("users,users=4", is_write);
    assert!((four / one - 4.0).abs() < 0.2, "{four}");
    // Reads only where the page cache is cold, flushes only where they are wanted: one after each
    // piece of data.
    let is_read = |request: &Request| request.operation == Operation::Read;
    let is_flush = |request: &Request| request.operation == Operation::Flush;
    assert!(count("users", is_read) >= 508.0);
    assert_eq!(count("users,page-cache=warm", is_read), 0.0);
    assert_eq!(count("users,flushes=yes", is_flush), count("users", is_data));
    assert_eq!(count("users", is_flush), 0.0);
}

#[test]
fn users_keep_to_their_parts_and_copy_what_they_wrote() {
    let found = requests("users,users=3,span=196608k,files=100,folders=7");
    let part = (196_608 << 10) / 3;
    let users: Vec<u64> = found.iter().map(|request| request.offset_bytes / part).collect();
    for user in 0..3 {
        assert!(users.iter().filter(|of| **of == user).count() > 400);
    }
    // Each read of data is of what was written to the same place, and the copy is as large.
    let mut written = HashMap::new();
    let (mut read_bytes, mut first_tree_bytes) = (0, 0);
    for request in requests("users,files=100,folders=7") {
        let is_data = !request.flags.contains(Flags::METADATA);
        let blocks =
            || (request.offset_bytes..request.offset_bytes + request.size_bytes).step_by(4096);
        match request.operation {
            Operation::Write if is_data => blocks().for_each(|block| {
                *written.entry(block).or_insert(0) += 1;
            }),
            Operation::Read if is_data => {
                assert!(blocks().all(|block| written.contains_key(&block)), "{request:?}");
                if read_bytes == 0 {
                    // All that is in the archive is there before the first file is copied.
                    first_tree_bytes = written.len() as u64 * 4096;
                }
                read_bytes += request.size_bytes;
            }
            _ => {}
        }
    }
    assert_eq!(read_bytes, first_tree_bytes);
    assert_eq!(written.len() as u64 * 4096, 2 * read_bytes);
    let mean_kb = mean(
        requests("users,task=copy,files=5000,span=1048576k")
            .iter()
            .filter_map(|request| {
                let is_data_read = request.operation == Operation::Read
                    && !request.flags.contains(Flags::METADATA);
                is_data_read.then_some(request.size_bytes as f64)
            })
            .collect::<Vec<_>>()
            .into_iter(),
    );
    assert!((8_000.0..14_000.0).contains(&mean_kb), "{mean_kb}");
}

#[test]
fn a_specification_can_be_read_again() {
    for text in [
        "uniform",
        "zipf,theta=1.25,seed=3",
        "users,task=copy,think=5ms,span=1048576k",
        "snake,disk=6",
    ] {
        let first = spec(text);
        assert_eq!(WorkloadSpec::parse(&first.to_string(), UNITS), Ok(first.clone()), "{first}");
    }
    assert_eq!(spec("bursts,within=2ms").to_string(), "bursts,within=2000000ns");
    let said = WorkloadSpec::new(WorkloadKind::Zipf).with("theta", Value::Number(1.5)).unwrap();
    assert_eq!(said, spec("zipf,theta=1.5"));
    assert!(said.with("theta", Value::Whole(1)).is_err());
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (text, wanted) in [
        (
            "",
            "no workload is called ``; there are bursts, uniform, zipf, hot-cold, sequential, users, snake",
        ),
        ("Zipf", "no workload is called `Zipf`"),
        ("zipf,thteta=1", "zipf has no key `thteta`; it has requests, duration, seed, rate, "),
        ("uniform,theta=1", "uniform has no key `theta`"),
        ("zipf,theta", "expected KEY=VALUE, found `theta`"),
        ("zipf,theta=1,theta=1", "theta: it is there twice"),
        ("zipf,theta=0", "theta: expected a number from 0.01 to 10, found `0`"),
        ("zipf,theta=NaN", "theta: expected a number from 0.01 to 10, found `NaN`"),
        ("zipf,reads=101", "reads: expected a number from 0 to 100, found `101`"),
        (
            "zipf,seed=-1",
            "seed: expected a whole number from 0 to 18446744073709551615, found `-1`",
        ),
        (
            "zipf,size=4000",
            "size: expected a multiple of 512 bytes from 512 to 1073741824, found `4000`",
        ),
        ("zipf,size=0", "size: expected a multiple of 512"),
        ("zipf,rate=0", "rate: expected a number from 0.001 to 1000000000, found `0`"),
        ("zipf,arrivals=often", "arrivals: expected poisson or bursts, found `often`"),
        ("zipf,within=5", "within: expected a time from 0 s to 86400 s, found `5`"),
        ("zipf,duration=0s", "duration: expected a time from 0.000000001 s to"),
        (
            "zipf,size=4k,size-max=6k",
            "size-max: expected a multiple of size, which is 4096, found `6144`",
        ),
        ("zipf,size=4k,size-max=2k", "size-max: expected a multiple of size"),
        ("zipf,size=4k,span=2k", "span: expected room for a request of 4096 bytes, found `2048`"),
        (
            "bursts,rate=1000,burst=10,within=2ms",
            "within: expected at most 1.111111 ms with rate=1000,burst=10, found `2000000`",
        ),
        ("users,users=1000,span=1024k", "span: expected at least"),
        ("users,users=0", "users: expected a whole number from 1 to 1000, found `0`"),
        ("snake,disk=7", "disk: expected 5 or 6, found `7`"),
    ] {
        let shown = refused(text);
        assert!(shown.starts_with(wanted), "{text}: {shown}");
        assert!(!shown.contains('\n'), "{shown}");
    }
    let long = refused(&format!("zipf,{}=1", "x\n".repeat(1000)));
    assert!(long.len() < 300 && !long.contains('\n'), "{long}");
}

/// The largest and the smallest that can be asked for.
#[test]
fn extremes_are_taken() {
    for text in [
        "zipf,span=1125899906842624,size=512,theta=0.01",
        "uniform,span=512,size=512",
        "uniform,rate=1000000000",
        "uniform,rate=0.001",
        "bursts,burst=1,within=86400s",
        "hot-cold,hot=4294967296,cold=4294967296,size=1048576k,ratio=1",
        "hot-cold,hot=1,cold=1,ratio=1000000000000",
        "sequential,streams=65536,span=512,size=512",
        "users,files=1,folders=1000000,span=1125899906842624",
        "users,files=10000000,folders=1,users=1000,span=1125899906842624,file-size=1048576k",
    ] {
        let found: Vec<Request> = spec(text).workload().unwrap().take(500).collect();
        assert!(!found.is_empty(), "{text}");
        assert!(found.iter().all(|r| r.offset_bytes.checked_add(r.size_bytes).is_some()), "{text}");
    }
}
