//! The corpus in the repository through every target, and then simple mutations of it for some
//! seconds: what libFuzzer does in `make fuzz-bytes`, without its sense for new paths but on any
//! toolchain. `DCD_BYTE_FUZZ_SECONDS` is for each target; 1 unless it is set.
//!
//! An input that fails is written to the folder for temporary files, whose name is printed. Put it
//! into `corpus/TARGET/` together with the fix.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dcd_byte_fuzz::seeds::seeds;
use dcd_byte_fuzz::{TARGETS, Target, target};
use dcd_fuzz::random::Random;

/// What an input may take: far more than any does, also in a debug build on a busy machine.
const HANG: Duration = Duration::from_secs(20);
/// Longest input that mutation makes.
const INPUT_BYTES_MAX: usize = 16 << 10;
/// The whole corpus stays a small part of the repository.
const CORPUS_BYTES_MAX: u64 = 2 << 20;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder(target))
        .unwrap_or_else(|error| panic!("{}: {error}", folder(target).display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn run(target: Target, input: &[u8]) {
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    if result.is_ok() && start.elapsed() < HANG {
        return;
    }
    let file = std::env::temp_dir().join(format!("dcd-{}-{}", target.name, std::process::id()));
    std::fs::write(&file, input).unwrap();
    let what = if result.is_ok() { "took too long" } else { "failed" };
    panic!("{} {what}; the input is in {}", target.name, file.display());
}

/// A few changes of the kinds that find most.
fn mutate(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let one_of = |random: &mut Random| &corpus[random.below(corpus.len() as u64) as usize];
    let mut bytes = one_of(random).clone();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        let length = random.below(9) as usize;
        let end = (at + length).min(bytes.len());
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            2 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(random.bits() as u8),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let new: Vec<u8> = (0..length).map(|_| random.bits() as u8).collect();
                bytes.splice(at..at, new);
            }
            5 => {
                let repeated = bytes[at..end].to_vec();
                bytes.splice(at..at, repeated);
            }
            _ => {
                // The front of one and the back of another.
                let other = one_of(random);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len() as u64 + 1) as usize..]);
            }
        }
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn replay_and_mutate(name: &str) {
    let target = target(name);
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "{name} has a corpus");
    corpus.iter().for_each(|input| run(target, input));
    let seconds = std::env::var("DCD_BYTE_FUZZ_SECONDS").ok();
    let seconds = seconds.map_or(1, |text| text.parse().expect("a number of seconds"));
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut runs = 0;
    while Instant::now() < until {
        run(target, &mutate(&mut Random::new(runs), &corpus));
        runs += 1;
    }
    println!("{name}: {} of the corpus, {runs} mutations", corpus.len());
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { replay_and_mutate(stringify!($name)); })*

        /// A target that is not named here would not be run.
        #[test]
        fn every_target_is_run() {
            let named = [$(stringify!($name)),*];
            assert_eq!(named, TARGETS.map(|target| target.name));
        }
    };
}

targets!(
    nbd_handshake,
    nbd_transmission,
    nbd_disk,
    nbd_tls,
    vhost_user_message,
    vhost_user_queue,
    vhost_user_record,
    vhost_user_session,
    superblock,
    share_directory,
    checkpoint,
    record,
    copy_page,
    volume_format,
    recovery,
    segment_memory,
    volume_recovery,
    volume_import,
    nvram,
    control_client,
    nbd_client,
    device_client,
    control_request,
    http_request,
    recorded_batch,
    pair_record,
    units,
    config_file,
    device_spec,
    fault_rules,
    volume_file,
    hint_rules,
    static_metadata,
    trace,
    trace_packed,
    disk_profile,
    workload,
);

/// The corpus holds what `dcd-byte-fuzz seeds` writes, and is small.
#[test]
fn the_corpus_holds_the_seeds() {
    let mut size = 0;
    for target in TARGETS {
        let files = std::fs::read_dir(folder(target.name)).unwrap();
        size += files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>();
        for (name, bytes) in seeds(target.name) {
            let file = folder(target.name).join(name);
            let found = std::fs::read(&file).unwrap_or_default();
            assert!(found == bytes, "{}: run dcd-byte-fuzz seeds", file.display());
        }
    }
    assert!(size < CORPUS_BYTES_MAX, "the corpus has {size} bytes");
}
