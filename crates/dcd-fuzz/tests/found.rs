//! Runs that once failed, shrunk, as `dcd fuzz` prints them. Small tests in
//! `dcd-engine/tests/regressions.rs` explain them.

#![allow(unused_imports, reason = "what a printed test may name")]

use dcd_engine::Mode::*;
use dcd_engine::{AckMode, DestagePolicyKind, Limits};
use dcd_fuzz::corpus::corpus;
use dcd_fuzz::faults::FaultKind::{self, *};
use dcd_fuzz::legs::LegOptions;
use dcd_fuzz::options::Options;
use dcd_fuzz::run;
use dcd_fuzz::script::Op::*;
use dcd_fuzz::script::{Script, Step};

#[track_caller]
fn replay(script: Script) {
    if let Err(failure) = run::replay(&script, std::env::var_os("TRACE").is_some()) {
        panic!("step {}: {}", failure.step, failure.violation);
    }
}

// Copies that could not be written any more were given up twice: their line had changed meanwhile.
#[test]
fn found_by_seed_202486() {
    replay(Script {
        options: Options {
            copy_pages: 2,
            hot_blocks: true,
            ack: AckMode::Durable,
            ..Options::default()
        },
        steps: vec![
            Step(Write { start: 832, blocks: 1, fua: true }, 0),
            Step(Fault(Hang), 1468070812),
            Step(Settle, 0),
            Step(Read { start: 872, blocks: 8 }, 0),
            Step(Settle, 0),
            Step(Write { start: 872, blocks: 1, fua: false }, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
        ],
    });
}

// A start panicked: replay told the policy of a hot block that it had not taken over yet.
#[test]
fn found_by_seed_1008() {
    replay(Script {
        options: Options {
            data_blocks: 4096,
            copy_pages: 2,
            hot_blocks: true,
            ..Options::default()
        },
        steps: vec![
            Step(Write { start: 4088, blocks: 1, fua: false }, 0),
            Step(Read { start: 2312, blocks: 8 }, 0),
            Step(Idle, 0),
            Step(Write { start: 2312, blocks: 8, fua: false }, 0),
        ],
    });
}

// Half of a request was destaged: mod c14_half_a_request_is_destaged.
#[test]
fn found_by_seed_34() {
    replay(Script {
        options: Options { segments: 24, ..Options::default() },
        steps: vec![
            Step(Write { start: 56, blocks: 40, fua: false }, 0),
            Step(Write { start: 48, blocks: 56, fua: true }, 0),
            Step(Settle, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(Read { start: 112, blocks: 2 }, 0),
            Step(Write { start: 128, blocks: 64, fua: false }, 0),
            Step(Write { start: 72, blocks: 64, fua: false }, 0),
            Step(EndIo, 2740853610),
            Step(Write { start: 16, blocks: 40, fua: false }, 0),
            Step(EndIo, 0),
            Step(Write { start: 888, blocks: 104, fua: false }, 0),
            Step(EndIo, 102735671),
            Step(EndIo, 0),
            Step(Probe { power: true }, 242855017),
        ],
    });
}

// What cannot be read was taken for the end of the log:
// mod c19_an_unreadable_slot_is_not_the_end_of_the_log.
#[test]
fn found_by_sweep_104() {
    replay(Script {
        options: Options { ack: AckMode::Durable, ..Options::default() },
        steps: vec![
            Step(Sweep(8, 4), 0),
            Step(Write { start: 29, blocks: 4, fua: false }, 0),
            Step(Write { start: 616, blocks: 16, fua: false }, 0),
            Step(Write { start: 8, blocks: 16, fua: false }, 0),
            Step(Idle, 0),
            Step(Write { start: 40, blocks: 24, fua: false }, 0),
            Step(Idle, 0),
            Step(Write { start: 56, blocks: 16, fua: false }, 0),
            Step(Settle, 0),
            Step(Write { start: 22, blocks: 4, fua: false }, 0),
            Step(Flush, 0),
            Step(EndIo, 0),
            Step(Crash { power: true }, 0),
        ],
    });
}

// A checkpoint was written; a flush of the log failed and took it along; the checkpoint's own
// flush, started later, was believed (C22).
#[test]
fn found_by_sweep_452() {
    replay(Script {
        options: Options { ack: AckMode::Log, ..Options::default() },
        steps: vec![
            Step(Sweep(4, 2), 0),
            Step(Write { start: 24, blocks: 4, fua: false }, 0),
            Step(Write { start: 16, blocks: 2, fua: false }, 0),
            Step(Write { start: 32, blocks: 2, fua: false }, 0),
            Step(Idle, 0),
            Step(Write { start: 48, blocks: 88, fua: false }, 0),
            Step(Write { start: 16, blocks: 2, fua: false }, 0),
            Step(Idle, 0),
            Step(Write { start: 0, blocks: 8, fua: false }, 0),
            Step(Idle, 0),
            Step(Crash { power: true }, 0),
        ],
    });
}

// Two checkpoints in a row failed, and what the one before them lists as witnesses was forgotten: a
// write past the log changed one, and the next start took that for a change from outside.
#[test]
fn found_by_seed_9() {
    replay(Script {
        options: Options {
            segments: 17,
            physical_sector: 4096,
            bypass_bytes: 8192,
            idle_ms: 1000,
            one_disk: true,
            policy: DestagePolicyKind::LastWriteFirst,
            ..Options::default()
        },
        steps: vec![
            Step(Write { start: 984, blocks: 1, fua: false }, 0),
            Step(Write { start: 184, blocks: 68, fua: false }, 0),
            Step(Write { start: 768, blocks: 1, fua: false }, 0),
            Step(Write { start: 264, blocks: 1, fua: false }, 0),
            Step(Write { start: 200, blocks: 1, fua: false }, 0),
            Step(Idle, 0),
            Step(Write { start: 248, blocks: 1, fua: false }, 0),
            Step(EndIo, 0),
            Step(Write { start: 152, blocks: 1, fua: false }, 0),
            Step(Idle, 0),
            Step(Write { start: 32, blocks: 8, fua: false }, 0),
            Step(Discard { start: 210, blocks: 1 }, 0),
            Step(Idle, 0),
            Step(Fault(Swapped), 0),
            Step(Write { start: 984, blocks: 4, fua: false }, 0),
            Step(Fault(Swapped), 0),
            Step(Write { start: 8, blocks: 16, fua: false }, 0),
            Step(Write { start: 919, blocks: 19, fua: false }, 0),
            Step(EndIo, 0),
            Step(Write { start: 416, blocks: 1, fua: false }, 0),
            Step(Write { start: 488, blocks: 9, fua: false }, 0),
            Step(Write { start: 528, blocks: 8, fua: false }, 0),
            Step(Write { start: 384, blocks: 1, fua: false }, 0),
            Step(Discard { start: 360, blocks: 1 }, 0),
            Step(Settle, 0),
            Step(Write { start: 281, blocks: 8, fua: false }, 0),
            Step(Fault(Swapped), 0),
            Step(Write { start: 312, blocks: 144, fua: false }, 0),
            Step(Crash { power: false }, 0),
            Step(Write { start: 71, blocks: 2, fua: false }, 0),
            Step(Write { start: 628, blocks: 22, fua: false }, 0),
            Step(Write { start: 112, blocks: 64, fua: false }, 0),
            Step(Write { start: 128, blocks: 16, fua: false }, 0),
            Step(Fault(Swapped), 0),
            Step(Write { start: 553, blocks: 10, fua: false }, 0),
            Step(Crash { power: false }, 0),
            Step(Write { start: 690, blocks: 13, fua: false }, 0),
            Step(Write { start: 632, blocks: 2, fua: false }, 0),
            Step(Discard { start: 628, blocks: 1 }, 0),
            Step(EndIo, 0),
            Step(Settle, 0),
            Step(Write { start: 240, blocks: 16, fua: false }, 0),
            Step(Write { start: 707, blocks: 11, fua: false }, 0),
            Step(Write { start: 768, blocks: 8, fua: false }, 0),
            Step(Write { start: 496, blocks: 18, fua: false }, 0),
            Step(Discard { start: 663, blocks: 18 }, 0),
            Step(Fault(Swapped), 0),
            Step(Fault(Swapped), 2530465078),
            Step(Write { start: 952, blocks: 72, fua: false }, 0),
            Step(Idle, 0),
            Step(Write { start: 766, blocks: 12, fua: false }, 0),
            Step(EndIo, 0),
            Step(Read { start: 880, blocks: 8 }, 0),
            Step(EndIo, 0),
            Step(Write { start: 436, blocks: 23, fua: false }, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(Write { start: 400, blocks: 24, fua: false }, 0),
            Step(EndIo, 0),
            Step(Write { start: 496, blocks: 16, fua: false }, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(Fault(ShortWrite), 226251424),
            Step(EndIo, 0),
            Step(Write { start: 968, blocks: 2, fua: false }, 0),
            Step(EndIo, 2436812705),
            Step(EndIo, 0),
            Step(Write { start: 616, blocks: 24, fua: false }, 0),
            Step(EndIo, 0),
        ],
    });
}

// Seed 102308.
#[test]
fn a_kill_while_the_segment_buffers_are_written_through() {
    replay(Script {
        options: Options { ack: AckMode::Durable, ..Options::default() },
        steps: vec![
            Step(Write { start: 56, blocks: 1, fua: false }, 0),
            Step(Write { start: 1016, blocks: 2, fua: false }, 0),
            Step(Fault(CacheVanishes), 0),
            Step(Write { start: 992, blocks: 4, fua: false }, 0),
            Step(EndIo, 3134988263),
            Step(Write { start: 48, blocks: 16, fua: false }, 2461811291),
            Step(Probe { power: false }, 1303932217),
        ],
    });
}

#[test]
fn found_by_seed_920099() {
    replay(Script {
        options: Options { segments: 24, bypass_bytes: 8192, ..Options::default() },
        steps: vec![
            Step(Discard { start: 48, blocks: 8 }, 0),
            Step(Write { start: 112, blocks: 40, fua: false }, 0),
            Step(Fault(FlushErrorDropped), 0),
            Step(Write { start: 104, blocks: 88, fua: false }, 0),
            Step(Settle, 0),
            Step(EndIo, 0),
            Step(Write { start: 480, blocks: 16, fua: false }, 0),
            Step(EndIo, 0),
            Step(Write { start: 3632, blocks: 8, fua: false }, 0),
            Step(Write { start: 384, blocks: 24, fua: false }, 0),
            Step(EndIo, 273586550),
            Step(EndIo, 3684096142),
            Step(EndIo, 1573614824),
            Step(Write { start: 288, blocks: 104, fua: false }, 1336661877),
            Step(Read { start: 480, blocks: 8 }, 0),
            Step(EndIo, 4163936817),
            Step(EndIo, 3483091269),
            Step(Probe { power: true }, 0),
        ],
    });
}

// A start was refused because it could not flush the data-disk, which then held what dcd, without
// its cache-disk, had written and not flushed: the model was too strict.
#[test]
fn found_by_seed_910079() {
    replay(Script {
        options: Options::default(),
        steps: vec![
            Step(Fault(CacheVanishes), 0),
            Step(Write { start: 120, blocks: 1, fua: false }, 0),
            Step(Idle, 0),
            Step(Fault(FlushErrorDropped), 0),
            Step(Write { start: 424, blocks: 1, fua: false }, 0),
            Step(Idle, 3356825418),
            Step(Crash { power: false }, 0),
            Step(Write { start: 408, blocks: 24, fua: false }, 0),
            Step(Probe { power: true }, 0),
        ],
    });
}

#[test]
fn found_by_seed_910065() {
    replay(Script {
        options: Options::default(),
        steps: vec![
            Step(Write { start: 312, blocks: 96, fua: false }, 0),
            Step(Write { start: 735, blocks: 29, fua: false }, 0),
            Step(Write { start: 40, blocks: 8, fua: false }, 0),
            Step(Write { start: 848, blocks: 8, fua: false }, 0),
            Step(Idle, 0),
            Step(Fault(CacheVanishes), 0),
            Step(Write { start: 440, blocks: 2, fua: false }, 0),
            Step(Idle, 0),
            Step(Write { start: 184, blocks: 1, fua: false }, 0),
            Step(Idle, 518472249),
            Step(Write { start: 208, blocks: 16, fua: false }, 0),
            Step(Idle, 2965895388),
            Step(Fault(FlushErrorDropped), 0),
            Step(Flush, 0),
            Step(Idle, 3368875302),
            Step(Idle, 3774700280),
            Step(Write { start: 80, blocks: 48, fua: false }, 0),
            Step(Probe { power: true }, 753677579),
        ],
    });
}

// A read that was older than the log's copy returned what a bypass above that copy had written; the
// next read returned the copy (C8).
#[test]
fn found_by_seed_837() {
    replay(Script {
        options: Options { bypass_bytes: 8192, overlaps: true, ..Options::default() },
        steps: vec![
            Step(Write { start: 952, blocks: 1, fua: false }, 0),
            Step(Grow { blocks: 8 }, 0),
            Step(Write { start: 8, blocks: 2, fua: false }, 0),
            Step(Write { start: 392, blocks: 96, fua: false }, 0),
            Step(Write { start: 304, blocks: 22, fua: false }, 0),
            Step(EndIo, 0),
            Step(Write { start: 304, blocks: 88, fua: false }, 0),
            Step(Write { start: 776, blocks: 152, fua: false }, 0),
            Step(EndIo, 224083539),
            Step(Read { start: 944, blocks: 16 }, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(Read { start: 872, blocks: 8 }, 0),
            Step(EndIo, 3287544793),
            Step(Write { start: 872, blocks: 16, fua: false }, 0),
            Step(EndIo, 1585177450),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(EndIo, 2770634616),
            Step(Read { start: 872, blocks: 8 }, 0),
            Step(Idle, 0),
        ],
    });
}

// A start made room among the zero ranges after an orderly end, and lost power in the middle of a
// discard. What it left there looked like a change by somebody else.
#[test]
fn found_by_seed_70000526() {
    replay(Script {
        options: Options {
            data_blocks: 640,
            physical_sector: 4096,
            max_delay_ms: 2,
            idle_ms: 1,
            limits: Limits {
                zero_ranges: 8,
                poisoned_lines: 4,
                recent_witnesses: 1,
                checkpoint_write_bytes: 4096,
                checkpoint_lines: 512,
                discarded_lines: 2048,
                announced_ahead: usize::MAX,
                listed_free: usize::MAX,
                checkpoint_part: 8,
                checkpoint_log_bytes: Limits::MOST.checkpoint_log_bytes,
            },
            ..Options::default()
        },
        steps: vec![
            Step(Write { start: 24, blocks: 24, fua: false }, 0),
            Step(Idle, 0),
            Step(Zero { start: 440, blocks: 64, may_unmap: false, fua: false }, 0),
            Step(EndIo, 0),
            Step(Read { start: 456, blocks: 4 }, 0),
            Step(Settle, 0),
            Step(Discard { start: 456, blocks: 8 }, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(Crash { power: true }, 3106718541),
            Step(Fault(Slow), 0),
            Step(Read { start: 136, blocks: 8 }, 0),
            Step(Discard { start: 352, blocks: 64 }, 0),
            Step(Write { start: 600, blocks: 1, fua: false }, 0),
            Step(Discard { start: 632, blocks: 8 }, 0),
            Step(Discard { start: 496, blocks: 64 }, 0),
            Step(Discard { start: 480, blocks: 8 }, 0),
            Step(Wake, 0),
            Step(Settle, 0),
            Step(EndIo, 0),
            Step(Settle, 0),
            Step(EndIo, 0),
            Step(Settle, 0),
            Step(Write { start: 480, blocks: 4, fua: false }, 0),
            Step(Read { start: 208, blocks: 1 }, 0),
            Step(Drain, 0),
            Step(Fault(Slow), 0),
            Step(EndIo, 0),
            Step(Discard { start: 160, blocks: 24 }, 0),
            Step(EndIo, 2981622335),
            Step(Pass(1387999), 0),
            Step(EndIo, 191513084),
            Step(EndIo, 1290880378),
            Step(EndIo, 3213818304),
            Step(EndIo, 839778272),
            Step(EndIo, 308554623),
            Step(Probe { power: true }, 2591671578),
        ],
    });
}

// An open record that survived announced a segment in which a start with the older checkpoint
// begins. The newer one could not be read, the record did not follow from the older, and a start
// went on without what had been acknowledged in it.
#[test]
fn an_open_record_behind_a_checkpoint_that_is_not_found_is_missed() {
    replay(Script {
        options: Options {
            data_blocks: 4096,
            limits: Limits { listed_free: 5, announced_ahead: usize::MAX, ..Limits::MOST },
            ..Options::default()
        },
        steps: vec![
            Step(Sweep(0, 1), 0),
            Step(Write { start: 2504, blocks: 1, fua: false }, 0),
            Step(Write { start: 2064, blocks: 1, fua: false }, 0),
            Step(Idle, 0),
            Step(Write { start: 2072, blocks: 4, fua: false }, 0),
            Step(Write { start: 2144, blocks: 64, fua: false }, 0),
            Step(Write { start: 2488, blocks: 16, fua: false }, 0),
            Step(Idle, 0),
            Step(Write { start: 2496, blocks: 2, fua: false }, 0),
            Step(Write { start: 3928, blocks: 4, fua: false }, 0),
            Step(Crash { power: false }, 2),
        ],
    });
}

// The corpus has those that also find mistakes made on purpose: a start that believed what the
// kernel showed of records after a failed flush (tests/rewrite.rs of the engine), and one from an
// older checkpoint that missed records (C19).
#[test]
fn the_corpus_finds_nothing() {
    for shrunk in corpus() {
        if let Err(failure) = run::replay(&shrunk.script, false) {
            panic!("{}: step {}: {}", shrunk.name, failure.step, failure.violation);
        }
    }
}

/// The checkpoint of a detach could not be read once. The one before lists what was moved since,
/// which would be moved again over what others may have written to the data-disk on its own:
/// refused.
#[test]
fn found_by_seed_700004040() {
    replay(Script {
        options: Options {
            limits: Limits {
                zero_ranges: 8192,
                poisoned_lines: 8192,
                recent_witnesses: 16,
                checkpoint_write_bytes: 1048576,
                checkpoint_lines: 1,
                discarded_lines: 2048,
                announced_ahead: 2,
                listed_free: 5,
                checkpoint_part: 2,
                checkpoint_log_bytes: Limits::MOST.checkpoint_log_bytes,
            },
            ..Options::default()
        },
        steps: vec![
            Step(Write { start: 488, blocks: 4, fua: false }, 0),
            Step(Idle, 0),
            Step(Fault(ReadErrorOnce), 1207594228),
            Step(Discard { start: 520, blocks: 8 }, 0),
            Step(Write { start: 520, blocks: 2, fua: false }, 0),
            Step(Flush, 0),
            Step(CancelDetach, 0),
        ],
    });
}

/// Zeroes that were under way when a small index was gathered, in two parts because of the
/// segments, ended between them: a line that was destaged above them then was in no index, and the
/// listed zeroes hid it (C12).
#[test]
fn found_by_seed_700043400() {
    replay(Script {
        options: Options {
            physical_sector: 4096,
            shears: false,
            limits: Limits {
                zero_ranges: 8,
                poisoned_lines: 4,
                recent_witnesses: 1,
                checkpoint_write_bytes: 4096,
                checkpoint_lines: 1,
                discarded_lines: 2048,
                announced_ahead: 2,
                listed_free: 5,
                checkpoint_part: 1,
                checkpoint_log_bytes: Limits::MOST.checkpoint_log_bytes,
            },
            ..Options::default()
        },
        steps: vec![
            Step(Discard { start: 216, blocks: 8 }, 0),
            Step(Discard { start: 240, blocks: 8 }, 0),
            Step(Write { start: 243, blocks: 6, fua: false }, 0),
            Step(Discard { start: 600, blocks: 8 }, 0),
            Step(Crash { power: false }, 0),
            Step(Crash { power: true }, 0),
            Step(Discard { start: 274, blocks: 23 }, 0),
            Step(Fault(Slow), 0),
            Step(Settle, 0),
            Step(Wake, 0),
            Step(Drain, 0),
            Step(Settle, 0),
            Step(Fault(ReadErrorOnce), 2041593241),
            Step(CancelDetach, 4051011826),
        ],
    });
}

/// Lines were destaged above zeroes that the checkpoint lists, and their segments announced. The
/// start cut the zeroes around each of them: more ranges than were counted. Now such segments wait
/// for a checkpoint.
#[test]
fn found_by_seed_700041522() {
    replay(Script {
        options: Options {
            shears: false,
            limits: Limits {
                zero_ranges: 8,
                poisoned_lines: 1,
                recent_witnesses: 1,
                checkpoint_write_bytes: 4096,
                checkpoint_lines: 1,
                discarded_lines: 2048,
                announced_ahead: 18446744073709551615,
                listed_free: 5,
                checkpoint_part: 1,
                checkpoint_log_bytes: Limits::MOST.checkpoint_log_bytes,
            },
            ..Options::default()
        },
        steps: vec![
            Step(Discard { start: 16, blocks: 8 }, 0),
            Step(Discard { start: 592, blocks: 48 }, 0),
            Step(Zero { start: 24, blocks: 8, may_unmap: false, fua: false }, 0),
            Step(Discard { start: 232, blocks: 72 }, 0),
            Step(Settle, 0),
            Step(Zero { start: 240, blocks: 60, may_unmap: false, fua: false }, 0),
            Step(Write { start: 608, blocks: 2, fua: false }, 0),
            Step(Discard { start: 248, blocks: 2 }, 0),
            Step(Fault(CacheVanishes), 3426625672),
            Step(EndIo, 0),
            Step(Discard { start: 8, blocks: 1 }, 0),
            Step(Write { start: 8, blocks: 4, fua: false }, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(Discard { start: 280, blocks: 8 }, 0),
            Step(Write { start: 280, blocks: 4, fua: true }, 0),
            Step(Write { start: 56, blocks: 24, fua: true }, 0),
            Step(Discard { start: 280, blocks: 2 }, 0),
            Step(Discard { start: 56, blocks: 2 }, 0),
            Step(Discard { start: 248, blocks: 48 }, 0),
            Step(Write { start: 264, blocks: 144, fua: false }, 0),
            Step(Write { start: 272, blocks: 2, fua: false }, 0),
            Step(Write { start: 248, blocks: 48, fua: false }, 0),
            Step(Settle, 0),
        ],
    });
}

/// Seed 950001957: a read of the data-disk was under way when its lines were discarded, and the
/// write of the zeroes, which failed, left there what nobody had written.
#[test]
fn zeroes_that_fail_below_a_read_are_not_read() {
    replay(Script {
        options: Options {
            limits: Limits {
                zero_ranges: 8,
                poisoned_lines: 1,
                recent_witnesses: 1,
                checkpoint_write_bytes: 4096,
                checkpoint_lines: 3,
                discarded_lines: 2048,
                announced_ahead: 64,
                listed_free: usize::MAX,
                checkpoint_part: 8,
                checkpoint_log_bytes: Limits::MOST.checkpoint_log_bytes,
            },
            ..Options::default()
        },
        steps: vec![
            Step(Discard { start: 776, blocks: 8 }, 0),
            Step(Read { start: 360, blocks: 8 }, 0),
            Step(Flush, 0),
            Step(Fault(WriteError), 0),
            Step(Discard { start: 496, blocks: 8 }, 0),
            Step(EndIo, 0),
            Step(Flush, 0),
            Step(Discard { start: 288, blocks: 80 }, 0),
            Step(EndIo, 0),
            Step(Read { start: 480, blocks: 1 }, 0),
            Step(Discard { start: 632, blocks: 2 }, 0),
            Step(Idle, 256143056),
        ],
    });
}

// The newest checkpoint could not be read by a start behind pass-through, which went by the older:
// old data over new.
#[test]
fn found_by_seed_990008777() {
    replay(Script {
        options: Options { ack: AckMode::Durable, ..Options::default() },
        steps: vec![
            Step(Mode(PassThrough), 0),
            Step(Fault(Slow), 4254294261),
            Step(Write { start: 112, blocks: 24, fua: false }, 0),
            Step(Idle, 0),
            Step(Write { start: 128, blocks: 1, fua: false }, 0),
            Step(Fault(ReadErrorOnce), 2831754485),
            Step(Idle, 0),
            Step(Crash { power: true }, 3703563548),
        ],
    });
}

// A switch to pass-through was taken back before its checkpoint was durable: the one before listed
// copies that a write past the log did not name any more.
#[test]
fn found_by_seed_991002070() {
    replay(Script {
        options: Options { copy_pages: 3, hot_blocks: true, ..Options::default() },
        steps: vec![
            Step(Write { start: 48, blocks: 8, fua: false }, 0),
            Step(Mode(WriteAround), 0),
            Step(Write { start: 184, blocks: 8, fua: false }, 0),
            Step(Write { start: 416, blocks: 80, fua: false }, 0),
            Step(Mode(WriteThrough), 0),
            Step(Idle, 0),
            Step(Mode(WriteBack), 0),
            Step(Idle, 0),
            Step(Mode(PassThrough), 0),
            Step(Mode(WriteBack), 0),
            Step(Write { start: 152, blocks: 48, fua: false }, 0),
            Step(Probe { power: false }, 1361434169),
        ],
    });
}

// A read that the cache-disk answered late, and with an error, was asked of it again while changes
// went past the log: the cache-disk is left alone then, and the data-disk has the line.
#[test]
fn found_by_seed_993016207() {
    replay(Script {
        options: Options {
            max_delay_ms: 2,
            destage_writes_max: 50,
            limits: Limits {
                checkpoint_lines: 3,
                discarded_lines: 1,
                announced_ahead: 18446744073709551615,
                listed_free: 5,
                checkpoint_part: 2,
                ..Limits::MOST
            },
            ..Options::default()
        },
        steps: vec![
            Step(Write { start: 16, blocks: 4, fua: false }, 0),
            Step(EndIo, 0),
            Step(Settle, 0),
            Step(Mode(PassThrough), 0),
            Step(Write { start: 128, blocks: 2, fua: false }, 0),
            Step(Drain, 0),
            Step(Settle, 0),
            Step(Wake, 0),
            Step(Fault(Slow), 1811661390),
            Step(Read { start: 128, blocks: 1 }, 0),
            Step(Settle, 0),
            Step(Fault(ReadErrorOnce), 3748174569),
            Step(Idle, 0),
        ],
    });
}

// The data-disk failed on the way back from write-through, in an end in order: who waited for a
// checkpoint was never answered.
#[test]
fn found_by_seed_993028554() {
    replay(Script {
        options: Options {
            copy_pages: 2,
            limits: Limits {
                zero_ranges: 8,
                poisoned_lines: 1,
                recent_witnesses: 1,
                checkpoint_write_bytes: 4096,
                checkpoint_lines: 1,
                discarded_lines: 1,
                announced_ahead: 2,
                listed_free: 5,
                checkpoint_part: 1,
                ..Limits::MOST
            },
            ..Options::default()
        },
        steps: vec![
            Step(Read { start: 560, blocks: 2 }, 0),
            Step(Store { name: 2, line: 92, lines: 1, step: 1, is_detected: false }, 0),
            Step(Mode(WriteThrough), 0),
            Step(Settle, 0),
            Step(Pass(22943), 0),
            Step(Settle, 0),
            Step(Fault(FlushErrorDropped), 0),
            Step(Remove { name: 2 }, 0),
            Step(Shutdown, 0),
        ],
    });
}

// What a drain had found lost was written over in the same moment; only the judge was surprised.
#[test]
fn found_by_seed_994504053() {
    replay(Script {
        options: Options {
            limits: Limits { discarded_lines: 2, recent_witnesses: 16, ..Limits::MOST },
            policy: DestagePolicyKind::LastWriteFirst,
            ..Options::default()
        },
        steps: vec![
            Step(Write { start: 816, blocks: 4, fua: false }, 0),
            Step(Write { start: 352, blocks: 136, fua: false }, 0),
            Step(Mode(WriteAround), 0),
            Step(Crash { power: false }, 4038615420),
            Step(Fault(ReadErrorOnce), 4075214214),
            Step(Fault(ReadErrorOnce), 1750997728),
            Step(Fault(ReadErrorOnce), 2076902733),
            Step(Write { start: 808, blocks: 16, fua: false }, 0),
            Step(Drain, 0),
            Step(Idle, 0),
        ],
    });
}

// A write of copies had more regions than the labels of this run could mark, and waited without end.
// Real labels have room for eleven of the largest segments; that it is so is an assertion by now.
#[test]
fn found_by_seed_990002261() {
    replay(Script {
        options: Options {
            data_blocks: 4096,
            copy_pages: 2,
            limits: Limits {
                zero_ranges: 8192,
                poisoned_lines: 8192,
                recent_witnesses: 16,
                checkpoint_write_bytes: 1048576,
                checkpoint_lines: 3,
                discarded_lines: 2048,
                announced_ahead: 18446744073709551615,
                listed_free: 5,
                checkpoint_part: 2,
                checkpoint_log_bytes: 268435456,
            },
            legs: Some(LegOptions {
                region_bytes: 65536,
                marks_max: 16,
                trouble_one_in: 200,
                seed: 16389257458194359221,
                fill_rate: 262144,
                witness_look_ms: None,
            }),
            ..Options::default()
        },
        steps: vec![
            Step(Store { name: 2, line: 392, lines: 300, step: 1, is_detected: false }, 0),
            Step(Wake, 0),
            Step(Settle, 0),
            Step(Write { start: 3144, blocks: 104, fua: false }, 0),
            Step(Write { start: 56, blocks: 152, fua: false }, 0),
            Step(Idle, 0),
        ],
    });
}

// A write that was logged in part when the cache-disk failed was written to the data-disk whole: also
// what had been seen, and was overwritten since by a write past the log that was answered.
#[test]
fn found_by_seed_70007675() {
    replay(Script {
        options: Options {
            data_blocks: 4096,
            overlaps: true,
            limits: Limits {
                zero_ranges: 8,
                poisoned_lines: 4,
                recent_witnesses: 1,
                checkpoint_write_bytes: 4096,
                checkpoint_lines: 3,
                discarded_lines: 2,
                announced_ahead: usize::MAX,
                listed_free: 5,
                checkpoint_part: 1,
                checkpoint_log_bytes: 268_435_456,
            },
            ..Options::default()
        },
        steps: vec![
            Step(Fault(CacheVanishes), 0),
            Step(Write { start: 3416, blocks: 112, fua: false }, 0),
            Step(Write { start: 3384, blocks: 144, fua: false }, 0),
            Step(Read { start: 3272, blocks: 152 }, 0),
            Step(EndIo, 0),
            Step(Write { start: 3272, blocks: 152, fua: false }, 0),
            Step(Idle, 0),
        ],
    });
}

// A leg had read a segment wrongly; until it was emptied another leg had read of it, and was doubted
// in its place: the first one was asked again, and the line given up.
#[test]
fn found_by_seed_72000171() {
    replay(Script {
        options: Options {
            data_blocks: 1027,
            physical_sector: 4096,
            max_delay_ms: 2,
            dirty_high: 30,
            copy_pages: 1,
            hot_blocks: true,
            limits: Limits {
                zero_ranges: 8192,
                poisoned_lines: 8192,
                recent_witnesses: 16,
                checkpoint_write_bytes: 1048576,
                checkpoint_lines: 512,
                discarded_lines: 1,
                announced_ahead: 64,
                listed_free: 1024,
                checkpoint_part: 8,
                checkpoint_log_bytes: 268435456,
            },
            legs: Some(LegOptions {
                region_bytes: 1048576,
                marks_max: 16,
                trouble_one_in: 60,
                seed: 615266820022947998,
                fill_rate: 0,
                witness_look_ms: None,
            }),
            ship_within_ms: 1000,
            policy: DestagePolicyKind::Ordered,
            ..Options::default()
        },
        steps: vec![
            Step(Crash { power: true }, 2110791059),
            Step(Grow { blocks: 6 }, 2153122175),
            Step(EndIo, 0),
            Step(Crash { power: true }, 400804656),
            Step(Idle, 0),
            Step(Read { start: 336, blocks: 2 }, 0),
            Step(EndIo, 0),
            Step(Write { start: 336, blocks: 8, fua: false }, 0),
            Step(Crash { power: true }, 2330014293),
            Step(Configure, 89295013),
            Step(Write { start: 424, blocks: 8, fua: false }, 0),
            Step(Write { start: 424, blocks: 1, fua: false }, 0),
            Step(Configure, 0),
            Step(Settle, 0),
            Step(Write { start: 144, blocks: 8, fua: false }, 0),
            Step(Crash { power: true }, 937557069),
            Step(Settle, 0),
            Step(EndIo, 0),
            Step(Configure, 2911680569),
            Step(Settle, 0),
            Step(Write { start: 344, blocks: 1, fua: false }, 0),
            Step(Read { start: 296, blocks: 8 }, 0),
            Step(Configure, 2774787184),
            Step(Wake, 0),
            Step(Settle, 2918782505),
            Step(Configure, 0),
            Step(EndIo, 0),
            Step(Write { start: 424, blocks: 8, fua: false }, 0),
            Step(Read { start: 312, blocks: 1 }, 0),
            Step(EndIo, 378473820),
            Step(Read { start: 320, blocks: 8 }, 0),
            Step(EndIo, 0),
            Step(Read { start: 328, blocks: 8 }, 0),
            Step(EndIo, 0),
            Step(Read { start: 296, blocks: 1 }, 0),
            Step(Write { start: 376, blocks: 8, fua: false }, 0),
            Step(Read { start: 312, blocks: 8 }, 0),
            Step(Configure, 3271716970),
            Step(Read { start: 376, blocks: 64 }, 0),
            Step(Configure, 0),
            Step(Write { start: 312, blocks: 64, fua: false }, 0),
            Step(EndIo, 0),
            Step(Configure, 2640217216),
            Step(Write { start: 104, blocks: 88, fua: false }, 0),
            Step(Write { start: 104, blocks: 8, fua: true }, 0),
            Step(EndIo, 202882254),
            Step(EndIo, 2211041914),
            Step(Write { start: 344, blocks: 1, fua: false }, 0),
            Step(Write { start: 344, blocks: 8, fua: false }, 3227421674),
            Step(EndIo, 3691934331),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(Drain, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(Write { start: 320, blocks: 24, fua: false }, 0),
            Step(Write { start: 296, blocks: 1, fua: false }, 0),
            Step(Configure, 1921812873),
            Step(Idle, 237858278),
            Step(Drain, 0),
            Step(Configure, 3601485381),
            Step(Write { start: 424, blocks: 8, fua: false }, 0),
            Step(Read { start: 200, blocks: 8 }, 0),
            Step(Write { start: 72, blocks: 8, fua: false }, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(Drain, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(EndIo, 517918636),
            Step(Write { start: 200, blocks: 128, fua: false }, 0),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(EndIo, 3072787435),
            Step(EndIo, 3756293632),
            Step(EndIo, 3571423312),
            Step(Read { start: 304, blocks: 80 }, 0),
            Step(EndIo, 3768842527),
            Step(Write { start: 456, blocks: 76, fua: false }, 0),
            Step(Write { start: 392, blocks: 28, fua: false }, 0),
            Step(EndIo, 2596251865),
            Step(Drain, 0),
            Step(Write { start: 392, blocks: 4, fua: false }, 131740521),
            Step(EndIo, 0),
            Step(EndIo, 0),
            Step(Write { start: 392, blocks: 1, fua: false }, 802625792),
            Step(EndIo, 1583393979),
            Step(Write { start: 448, blocks: 8, fua: false }, 0),
            Step(EndIo, 71791192),
            Step(Write { start: 424, blocks: 2, fua: false }, 0),
            Step(EndIo, 0),
            Step(Write { start: 312, blocks: 2, fua: true }, 0),
            Step(EndIo, 1062966862),
        ],
    });
}

#[test]
fn found_by_seed_83000072() {
    replay(Script {
        options: Options {
            one_disk: true,
            limits: Limits {
                zero_ranges: 8192,
                poisoned_lines: 8192,
                recent_witnesses: 16,
                checkpoint_write_bytes: 1048576,
                checkpoint_lines: 3,
                discarded_lines: 1,
                announced_ahead: 18446744073709551615,
                listed_free: 5,
                checkpoint_part: 8,
                checkpoint_log_bytes: 268435456,
            },
            ship_within_ms: 1000000,
            policy: DestagePolicyKind::Ordered,
            ..Options::default()
        },
        steps: vec![
            Step(Fault(ReadErrorOnce), 3356437342),
            Step(Fault(ReadErrorOnce), 370973029),
            Step(Write { start: 480, blocks: 1, fua: false }, 0),
            Step(CancelDetach, 0),
            Step(Write { start: 320, blocks: 2, fua: false }, 0),
            Step(Crash { power: false }, 0),
            Step(Drain, 0),
            Step(CancelDetach, 0),
        ],
    });
}

// A write past the log failed, and left a part on the data-disk that nobody has flushed. Then the
// policy became ordered, and a window was kept in which a power cut could still change it.
#[test]
fn found_by_seed_84006958() {
    replay(Script {
        options: Options {
            bypass_bytes: 8192,
            limits: Limits {
                zero_ranges: 8192,
                poisoned_lines: 8192,
                recent_witnesses: 16,
                checkpoint_write_bytes: 1048576,
                checkpoint_lines: 3,
                discarded_lines: 2,
                announced_ahead: 18446744073709551615,
                listed_free: 5,
                checkpoint_part: 2,
                checkpoint_log_bytes: 268435456,
            },
            ship_within_ms: 100,
            policy: DestagePolicyKind::Ordered,
            ..Options::default()
        },
        steps: vec![
            Step(Fault(ShortWrite), 0),
            Step(Configure, 2148714483),
            Step(Write { start: 824, blocks: 16, fua: false }, 0),
            Step(Idle, 0),
            Step(Configure, 0),
        ],
    });
}
