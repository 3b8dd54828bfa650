//! Starts of programs among noise, from seeds; and what must not be taken for one.

use std::collections::BTreeSet;

use super::detector::{
    DetectedId, DetectedSequence, Detector, DetectorEvent, DetectorSettings, Occurrence,
};
use crate::units::{Duration, LbaRange, Line, Time};
use proptest::prelude::*;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Lines of the disk on which programs are; noise is behind them.
const PROGRAMS: u64 = 1 << 24;

/// What a start reads: stretches of 1 to 16 lines all over the disk, each line once.
fn program(random: &mut Random, count: usize) -> Vec<Line> {
    let mut seen = BTreeSet::new();
    let mut lines = Vec::new();
    while lines.len() < count {
        let first = random.below(PROGRAMS);
        let fresh = (first..=first + random.below(16)).filter(|line| seen.insert(*line));
        lines.extend(fresh.map(Line));
    }
    lines.truncate(count);
    lines
}

/// How a start differs from the last one.
#[derive(Clone, Copy)]
struct Variation {
    /// Lines that are in the page cache still.
    missing_percent: u64,
    /// Lines that are overtaken by one of the next few.
    swapped_percent: u64,
    /// Reads of others for each hundred lines.
    noise_percent: u64,
}

const EXACT: Variation = Variation { missing_percent: 0, swapped_percent: 0, noise_percent: 0 };
const USUAL: Variation = Variation { missing_percent: 10, swapped_percent: 15, noise_percent: 30 };

/// A computer on whose disk the detector looks.
struct Computer {
    detector: Detector,
    random: Random,
    now: Time,
    events: Vec<DetectorEvent>,
}

impl Computer {
    fn new(seed: u64) -> Computer {
        Computer::with(seed, DetectorSettings::default())
    }

    fn with(seed: u64, settings: DetectorSettings) -> Computer {
        Computer {
            detector: Detector::new(settings),
            random: Random(seed),
            now: Time::ZERO,
            events: Vec::new(),
        }
    }

    fn program(&mut self, count: usize) -> Vec<Line> {
        program(&mut self.random, count)
    }

    fn read(&mut self, range: LbaRange) {
        self.now = self.now.after(Duration::from_micros(500));
        self.detector.read(self.now, range);
        self.events.extend(std::iter::from_fn(|| self.detector.poll_event()));
    }

    /// In requests of any size, not all of whole lines.
    fn start(&mut self, lines: &[Line], how: Variation) {
        let mut lines = lines.to_vec();
        lines.retain(|_| !self.random.percent(how.missing_percent));
        for index in 0..lines.len() {
            if self.random.percent(how.swapped_percent) {
                let other = (index + 1 + self.random.below(4) as usize).min(lines.len() - 1);
                lines.swap(index, other);
            }
        }
        let mut rest = &lines[..];
        while let Some(first) = rest.first() {
            let follow = rest.windows(2).take_while(|pair| pair[1].0 == pair[0].0 + 1).count();
            let count = 1 + self.random.below(follow as u64 + 1);
            let cut = self.random.below(8);
            self.read(LbaRange::new(first.lba().0 + cut, count * 8 - cut));
            for _ in 0..count {
                if self.random.percent(how.noise_percent) {
                    self.noise(1);
                }
            }
            rest = &rest[count as usize..];
        }
    }

    /// Reads of others, that do not come again.
    fn noise(&mut self, reads: u64) {
        for _ in 0..reads {
            let line = PROGRAMS + self.random.below(1 << 30);
            let blocks = 8 * (1 + self.random.below(4));
            self.read(LbaRange::new(line * 8, blocks));
        }
    }

    fn pause(&mut self) {
        self.now = self.now.after(Duration::from_secs(60));
        self.detector.quiet(self.now);
        self.events.extend(std::iter::from_fn(|| self.detector.poll_event()));
    }

    fn confirmed(&self) -> Vec<&DetectedSequence> {
        let confirmed = self.events.iter().filter_map(|event| match event {
            DetectorEvent::Confirmed(sequence) => Some(sequence),
            _ => None,
        });
        confirmed.collect()
    }

    fn changed(&self) -> Vec<&DetectedSequence> {
        let changed = self.events.iter().filter_map(|event| match event {
            DetectorEvent::Changed(sequence) => Some(sequence),
            _ => None,
        });
        changed.collect()
    }

    fn seen(&self) -> Vec<Occurrence> {
        let seen = self.events.iter().filter_map(|event| match event {
            DetectorEvent::Seen(occurrence) => Some(*occurrence),
            _ => None,
        });
        seen.collect()
    }
}

/// Of the true lines, the percentage that was found; of the found ones, that of foreign lines.
fn quality(sequence: &DetectedSequence, truth: &[Line]) -> (usize, usize) {
    let truth: BTreeSet<Line> = truth.iter().copied().collect();
    let found: BTreeSet<Line> = sequence.lines.iter().copied().collect();
    assert_eq!(found.len(), sequence.lines.len(), "a line is in the sequence twice");
    let right = found.intersection(&truth).count();
    (right * 100 / truth.len(), (found.len() - right) * 100 / found.len())
}

#[track_caller]
fn assert_good(sequence: &DetectedSequence, truth: &[Line]) {
    let (found, foreign) = quality(sequence, truth);
    assert!(found >= 90 && foreign <= 5, "{found} % found, {foreign} % foreign");
}

#[track_caller]
fn assert_one(computer: &Computer, truth: &[Line]) {
    let confirmed = computer.confirmed();
    let sizes: Vec<usize> = confirmed.iter().map(|one| one.lines.len()).collect();
    assert_eq!(sizes.len(), 1, "of {} lines: {sizes:?}", truth.len());
    assert_good(confirmed[0], truth);
}

#[test]
fn a_start_that_is_always_the_same_is_found_as_it_is() {
    let mut computer = Computer::new(1);
    let lines = computer.program(300);
    for start in 1..=3 {
        assert!(computer.confirmed().is_empty(), "before start {start}");
        computer.noise(500);
        computer.pause();
        computer.start(&lines, EXACT);
        computer.pause();
    }
    let confirmed = computer.confirmed();
    assert_eq!(confirmed.len(), 1);
    assert_eq!(confirmed[0].lines, lines);
    assert_eq!(confirmed[0].occurrences, 3);
    assert!((30..=60).contains(&confirmed[0].jumps), "{}", confirmed[0].jumps);
}

#[test]
fn starts_that_differ_are_found() {
    for count in [200, 1000, 5000] {
        for seed in 0..8 {
            let mut computer = Computer::new(seed);
            let lines = computer.program(count);
            for _ in 0..3 {
                computer.noise(2000);
                computer.pause();
                computer.start(&lines, USUAL);
                computer.pause();
            }
            assert_one(&computer, &lines);
        }
    }
}

#[test]
fn without_quiet_before_and_after() {
    for seed in 0..8 {
        let mut computer = Computer::new(seed);
        let lines = computer.program(800);
        for _ in 0..3 {
            computer.noise(5000);
            computer.start(&lines, Variation { noise_percent: 50, ..USUAL });
        }
        computer.noise(5000);
        assert_one(&computer, &lines);
    }
}

#[test]
fn with_as_many_reads_of_others_as_its_own() {
    let mut found = 0;
    for seed in 0..8 {
        let mut computer = Computer::new(seed);
        let lines = computer.program(1000);
        for _ in 0..4 {
            computer.start(&lines, Variation { noise_percent: 60, ..USUAL });
            computer.pause();
        }
        found += computer.confirmed().len();
        computer.confirmed().into_iter().for_each(|sequence| {
            assert_good(sequence, &lines);
        });
    }
    assert_eq!(found, 8);
}

#[test]
fn immediately_after_one_another() {
    for seed in 0..4 {
        let mut computer = Computer::new(seed);
        let lines = computer.program(600);
        for _ in 0..4 {
            computer.start(&lines, USUAL);
        }
        computer.pause();
        assert_one(&computer, &lines);
        assert!(computer.confirmed()[0].occurrences >= 3);
    }
}

/// At boot services start at the same time, each in order, the order between them different each
/// time.
#[test]
fn services_that_start_at_the_same_time() {
    for seed in 0..4 {
        let mut computer = Computer::new(seed);
        let services: Vec<Vec<Line>> = (0..3).map(|_| computer.program(1500)).collect();
        let all: Vec<Line> = services.concat();
        for _ in 0..3 {
            computer.noise(1000);
            computer.pause();
            let mut rest: Vec<&[Line]> = services.iter().map(|lines| &lines[..]).collect();
            while !rest.is_empty() {
                let service = computer.random.below(rest.len() as u64) as usize;
                let count = (1 + computer.random.below(40) as usize).min(rest[service].len());
                let (now, later) = rest[service].split_at(count);
                computer.start(now, Variation { missing_percent: 5, ..EXACT });
                rest[service] = later;
                rest.retain(|lines| !lines.is_empty());
            }
            computer.pause();
        }
        assert_one(&computer, &all);
    }
}

#[test]
fn later_starts_are_found_when_the_history_has_forgotten_the_first() {
    let mut computer = Computer::new(5);
    let lines = computer.program(400);
    for noise in [1000, 10_000, 150_000] {
        computer.noise(noise);
        computer.pause();
        computer.start(&lines, USUAL);
        computer.pause();
    }
    assert_one(&computer, &lines);

    // Between the first two only as much as the history holds.
    let mut computer = Computer::new(5);
    for noise in [1000, 150_000, 150_000] {
        computer.noise(noise);
        computer.pause();
        computer.start(&lines, USUAL);
        computer.pause();
    }
    assert!(computer.confirmed().is_empty());
}

#[test]
fn long_sequential_reads_do_not_fill_the_history() {
    let mut computer = Computer::new(6);
    let lines = computer.program(400);
    for scan in 0..3 {
        for request in 0..10_000 {
            computer.read(LbaRange::new((1 << 32) + (scan * 10_000 + request) * 256, 256));
        }
        computer.pause();
        computer.start(&lines, USUAL);
        computer.pause();
    }
    assert_one(&computer, &lines);
}

#[test]
fn sequential_reads_are_no_sequences() {
    let mut computer = Computer::new(7);
    for _ in 0..5 {
        // One file, and four at the same time, in requests of 4 and of 128 KiB.
        for line in 0..20_000 {
            computer.read(LbaRange::new(line * 8, 8));
        }
        computer.pause();
        for request in 0..500 {
            for file in 1..5 {
                computer.read(LbaRange::new((file << 24) + request * 256, 256));
            }
        }
        computer.pause();
    }
    assert_eq!(computer.events, []);
}

#[test]
fn random_reads_are_no_sequences() {
    for (seed, lines) in (0..).zip([80, 100, 200, 300, 500, 1000, 3000, 10_000, 1 << 20]) {
        let mut computer = Computer::new(seed);
        for read in 0..150_000 {
            let line = computer.random.below(lines) * 1000;
            computer.read(LbaRange::new(line * 8, 8));
            if read % 5000 == 0 {
                computer.pause();
            }
        }
        assert_eq!(computer.events, [], "of {lines} lines");
    }
}

/// A few lines most of the time, as an index of a database.
#[test]
fn skewed_random_reads_are_no_sequences() {
    for seed in 0..4 {
        let mut computer = Computer::new(seed);
        for _ in 0..200_000 {
            let magnitude = computer.random.below(16);
            let line = computer.random.below(1 << magnitude) * 1000;
            let blocks = 8 + computer.random.below(40);
            computer.read(LbaRange::new(line * 8, blocks));
        }
        computer.pause();
        assert_eq!(computer.events, []);
    }
}

#[test]
fn programs_that_share_libraries_are_two_sequences() {
    for seed in 0..8 {
        let mut computer = Computer::new(seed);
        let libraries = computer.program(200);
        let editor = [libraries.clone(), computer.program(400)].concat();
        let browser = [libraries, computer.program(600)].concat();
        for _ in 0..4 {
            for program in [&editor, &browser] {
                computer.noise(1000);
                computer.pause();
                computer.start(program, USUAL);
                computer.pause();
            }
        }
        let confirmed = computer.confirmed();
        let sizes: Vec<usize> = confirmed.iter().map(|one| one.lines.len()).collect();
        assert_eq!(sizes.len(), 2, "{sizes:?}");
        assert_good(confirmed[0], &editor);
        assert_good(confirmed[1], &browser);
    }
}

#[test]
fn a_program_that_has_changed_is_told_again() {
    for seed in 0..4 {
        let mut computer = Computer::new(seed);
        let before = computer.program(1000);
        let mut after = before.clone();
        let other = computer.program(1000);
        for index in 0..1000 {
            if index % 100 < 30 {
                after[index] = other[index];
            }
        }
        for version in [&before, &after] {
            for _ in 0..6 {
                computer.start(version, Variation { missing_percent: 5, ..USUAL });
                computer.pause();
            }
        }
        assert_one(&computer, &before);
        let changed = computer.changed();
        let last = changed.last().expect("it has changed");
        assert_eq!(last.id, computer.confirmed()[0].id);
        assert_good(last, &after);
        // The first of the new starts teaches nothing yet.
        let (found, _) = quality(changed[0], &after);
        assert!(found >= 90, "{found}");
        assert!(changed.len() <= 4, "{}", changed.len());
    }
}

#[test]
fn what_is_known_is_told_when_it_is_seen() {
    let mut computer = Computer::new(9);
    let lines = computer.program(500);
    for _ in 0..6 {
        computer.start(&lines, EXACT);
        computer.pause();
    }
    let id = computer.confirmed()[0].id;
    let seen = computer.seen();
    let occurrences: Vec<u32> = seen.iter().map(|one| one.occurrences).collect();
    assert_eq!(occurrences, [4, 5, 6]);
    assert!(seen.iter().all(|one| one.id == id && one.lines == 500 && one.lines_read >= 495));
    assert_eq!(computer.changed(), Vec::<&DetectedSequence>::new());
    let known = computer.detector.sequence(id).expect("it is known");
    assert_eq!(known.occurrences, 6);

    // A third of it is no occurrence.
    computer.start(&lines[..160], EXACT);
    computer.pause();
    assert_eq!(computer.seen().len(), 3);
}

#[test]
fn what_is_restored_is_known() {
    let mut computer = Computer::new(10);
    let lines = computer.program(500);
    // A copy that has a line twice.
    let copy = [&lines[..], &lines[..1]].concat();
    let id = computer.detector.restore(&copy, 7).expect("there is room");
    assert_eq!(computer.detector.sequence(id).expect("it is known").lines, lines);
    computer.start(&lines, USUAL);
    computer.pause();
    let seen = computer.seen();
    assert_eq!((seen.len(), seen[0].id, seen[0].occurrences), (1, id, 8));
    assert!(seen[0].lines_read >= 400);

    computer.detector.forget(id);
    assert_eq!(computer.detector.sequence(id), None);
    assert_eq!(computer.detector.sequences(), 0);
    assert_eq!(computer.detector.restore(&lines[..10], 7), None, "it is too short");
}

#[test]
fn a_sequence_that_a_larger_one_has_all_of_is_forgotten() {
    let mut computer = Computer::new(14);
    let lines = computer.program(800);
    let part = computer.detector.restore(&lines[..300], 3).expect("there is room");
    for _ in 0..3 {
        computer.start(&lines, EXACT);
        computer.pause();
    }
    assert_one(&computer, &lines);
    assert!(computer.events.contains(&DetectorEvent::Forgotten(part)), "{:?}", computer.seen());
    assert_eq!(computer.detector.sequences(), 1);
}

#[test]
fn what_comes_just_before_and_after_a_sequence_becomes_a_part_of_it() {
    let mut computer = Computer::new(15);
    let lines = computer.program(500);
    let id = computer.detector.restore(&lines[20..480], 3).expect("there is room");
    for _ in 0..2 {
        computer.noise(1000);
        computer.pause();
        computer.start(&lines, EXACT);
        computer.pause();
    }
    assert_eq!(computer.detector.sequence(id).expect("it is known").lines, lines);
}

#[test]
fn sequences_outlive_candidates_and_the_oldest_make_room() {
    let settings = DetectorSettings {
        candidates_max: 8,
        candidate_lines_max: 4000,
        ..DetectorSettings::default()
    };
    let mut computer = Computer::with(11, settings);
    let programs: Vec<Vec<Line>> = (0..12).map(|_| computer.program(200)).collect();
    let start = |computer: &mut Computer, program: &Vec<Line>, times: u32| {
        for _ in 0..times {
            computer.start(program, EXACT);
            computer.pause();
        }
    };
    start(&mut computer, &programs[0], 3);
    // Twice only: candidates.
    for program in &programs[1..12] {
        start(&mut computer, program, 2);
    }
    assert_eq!((computer.detector.sequences(), computer.detector.candidates()), (1, 7));
    let first = computer.confirmed()[0].id;
    assert!(computer.detector.sequence(first).is_some());
    // All of them sequences: the first one is the oldest.
    for program in &programs[1..12] {
        start(&mut computer, program, 4);
    }
    assert_eq!(computer.confirmed().len(), 12);
    let forgotten: Vec<DetectedId> = computer
        .events
        .iter()
        .filter_map(|event| match event {
            DetectorEvent::Forgotten(id) => Some(*id),
            _ => None,
        })
        .collect();
    assert_eq!(forgotten[0], first);
    assert_eq!(forgotten.len() + computer.detector.sequences(), 12);
}

#[test]
fn candidates_that_do_not_come_again_are_given_up() {
    for settings in [
        DetectorSettings { forget_after_lines: 10_000, ..DetectorSettings::default() },
        DetectorSettings { forget_after: Duration::from_secs(300), ..DetectorSettings::default() },
    ] {
        let mut computer = Computer::with(12, settings);
        let lines = computer.program(200);
        for _ in 0..2 {
            computer.start(&lines, EXACT);
            computer.pause();
        }
        assert_eq!(computer.detector.candidates(), 1);
        for _ in 0..6 {
            computer.noise(1000);
            computer.pause();
        }
        assert_eq!(computer.detector.candidates(), 0);
    }
}

#[test]
fn quiet_is_asked_for_only_when_something_waits() {
    let mut computer = Computer::new(13);
    assert_eq!(computer.detector.wake_up(), None);
    let lines = computer.program(200);
    computer.start(&lines, EXACT);
    assert_eq!(computer.detector.wake_up(), None);
    computer.start(&lines, EXACT);
    let wake_up = computer.now.after(DetectorSettings::default().gap);
    assert_eq!(computer.detector.wake_up(), Some(wake_up));
    computer.detector.quiet(wake_up);
    assert_eq!(computer.detector.wake_up(), None);
    assert_eq!(computer.detector.candidates(), 1);
}

/// What a client may do: anything.
#[derive(Clone, Debug)]
enum Act {
    /// One of ten programs, from a place on, with some lines missing.
    Start {
        program: usize,
        from: usize,
        missing: u64,
    },
    /// Lines so far apart, again and again.
    Stride {
        first: u64,
        step: u64,
        count: u64,
    },
    Random {
        among: u64,
        count: u64,
    },
    Extreme {
        start: u64,
        blocks: u64,
    },
    Pause,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..10usize, 0..300usize, 0..40u64)
            .prop_map(|(program, from, missing)| Act::Start { program, from, missing }),
        2 => (0..4u64, 0..4u64, 0..400u64)
            .prop_map(|(first, step, count)| Act::Stride { first, step: step * 131_072, count }),
        2 => (1..1000u64, 0..400u64).prop_map(|(among, count)| Act::Random { among, count }),
        1 => (any::<u64>(), any::<u64>()).prop_map(|(start, blocks)| Act::Extreme { start, blocks }),
        1 => Just(Act::Pause),
    ]
}

fn perform(acts: &[Act], settings: DetectorSettings) -> (Vec<DetectorEvent>, usize) {
    let mut computer = Computer::with(0, settings);
    let programs: Vec<Vec<Line>> = (0..10).map(|n| computer.program(100 + 50 * n)).collect();
    let mut most = 0;
    for act in acts {
        match *act {
            Act::Start { program, from, missing } => {
                let program = &programs[program];
                let how = Variation { missing_percent: missing, ..USUAL };
                computer.start(&program[from.min(program.len())..], how);
            }
            Act::Stride { first, step, count } => {
                (0..count).for_each(|n| computer.read(LbaRange::new((first + n * step) * 8, 8)));
            }
            Act::Random { among, count } => {
                for _ in 0..count {
                    let line = computer.random.below(among);
                    computer.read(LbaRange::new(line * 8 * 97, 8));
                }
            }
            Act::Extreme { start, blocks } => computer.read(LbaRange::new(start, blocks)),
            Act::Pause => computer.pause(),
        }
        most = most.max(computer.detector.memory_bytes());
    }
    computer.pause();
    (computer.events, most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn anything_goes(acts in prop::collection::vec(act(), 1..120)) {
        let settings = DetectorSettings {
            history_lines: 1 << 12,
            candidates_max: 5,
            candidate_lines_max: 1000,
            lines_max: 400,
            ..DetectorSettings::default()
        };
        let (events, most) = perform(&acts, settings);
        // Ring and index of 8192 lines, index of the candidates, their lines, events and the
        // detector.
        let bound = 8192 * (8 + 2 * 8) + 2048 * 8 + 1000 * 16 + 1024 * 40 + 5 * 400 + 2048;
        prop_assert!(most <= bound, "{most} bytes, at most {bound}");
        for event in &events {
            if let DetectorEvent::Confirmed(sequence) | DetectorEvent::Changed(sequence) = event {
                let lines: BTreeSet<Line> = sequence.lines.iter().copied().collect();
                prop_assert_eq!(lines.len(), sequence.lines.len());
                prop_assert!(lines.len() <= 400);
            }
        }
        prop_assert_eq!(perform(&acts, settings).0, events, "the same reads, other sequences");
    }
}

/// Time that the processor has spent on this thread.
fn processor_ns() -> u64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    statistics.split(' ').next().and_then(|first| first.parse().ok()).expect("a number")
}

/// The cost of a line: `cargo test --release -p dcd-engine --lib -- --ignored --nocapture
/// nanoseconds`.
#[test]
#[ignore = "measures"]
fn nanoseconds_for_each_line() {
    let measure = |name: &str, read: &dyn Fn(&mut Computer) -> u64| {
        let mut computer = Computer::new(1);
        read(&mut computer);
        let began = processor_ns();
        let lines: u64 = (0..4).map(|_| read(&mut computer)).sum();
        let nanoseconds = (processor_ns() - began) / lines;
        let sequences = computer.detector.sequences();
        println!("{name}: {nanoseconds} ns a line, {sequences} sequences");
    };
    let random = |among: u64, lines: u64| {
        move |computer: &mut Computer| {
            for _ in 0..1 << 18 {
                let line = computer.random.below(among) * 1000;
                computer.read(LbaRange::new(line * 8, lines * 8));
            }
            lines << 18
        }
    };
    measure("random, 4 KiB", &random(1 << 30, 1));
    measure("random, 64 KiB", &random(1 << 30, 16));
    measure("random among 2000 lines", &random(2000, 1));
    measure("random among 60000 lines", &random(60_000, 1));
    measure("10 programs of 5000 lines, again and again", &|computer| {
        let mut random = Random(3);
        for _ in 0..10 {
            let lines = program(&mut random, 5000);
            computer.start(&lines, EXACT);
            computer.pause();
        }
        50_000
    });
    for count in [1000, 5000, 32_000] {
        let mut computer = Computer::new(2);
        let lines = computer.program(count);
        let mut took = 0;
        for _ in 0..50 {
            computer.start(&lines, USUAL);
            let began = processor_ns();
            computer.pause();
            took += processor_ns() - began;
        }
        println!("end of a start of {count} lines: {} us", took / 50 / 1000);
        println!("memory: {} bytes", computer.detector.memory_bytes());
    }
}

#[test]
fn what_is_read_three_times_in_the_same_order_is_a_sequence() {
    let mut detector = Detector::new(DetectorSettings::default());
    for start in 0..3 {
        for n in 0..100 {
            let time = Time(start * 60_000_000_000 + n * 5_000_000);
            detector.read(time, LbaRange::new(n * n % 101 * 80_000, 16));
        }
    }
    detector.quiet(Time(200_000_000_000));
    let Some(DetectorEvent::Confirmed(sequence)) = detector.poll_event() else { panic!() };
    assert_eq!(sequence.occurrences, 3);
}
