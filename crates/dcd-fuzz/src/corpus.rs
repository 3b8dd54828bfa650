//! Runs that find mistakes which random runs find rarely, each shrunk from the first random run
//! that did, or from a run that once found such a mistake in the engine. Random runs are now and
//! then variations of one of them ([`vary`]): what was needed once, two failures in the right
//! order, a full log, is needed again.
//!
//! Nothing says which run is for which mistake. Without a mistake none may find anything
//! (`tests/found.rs`).

use dcd_engine::{AckMode, Limits};

use crate::faults::FaultKind::*;
use crate::options::{Options, TINY};
use crate::random::Random;
use crate::script::Op::{self, *};
use crate::script::{Script, Step};

/// The last of the corpus, which are chosen otherwise.
const DRAWN_ASIDE: usize = 2;

/// A run of the corpus.
pub struct Shrunk {
    /// What it was that it found.
    pub name: &'static str,
    /// What happens.
    pub script: Script,
}

/// One of them, changed here and there: other numbers decide what ends first, steps are left out,
/// repeated or put in, ranges are moved.
pub fn vary(random: &mut Random) -> Script {
    let mut corpus = corpus();
    // Those of later are drawn aside: the variations of all seeds are what they were before them.
    let mut aside = Random::new(random.state() ^ 0x636f_7270_7573);
    let first = corpus.len() - DRAWN_ASIDE;
    let chosen = random.below(first as u64) as usize;
    let chosen = match aside.one_in(10) {
        true => first + aside.below(DRAWN_ASIDE as u64) as usize,
        false => chosen,
    };
    let mut script = corpus.swap_remove(chosen).script;
    if random.one_in(6) {
        return script;
    }
    if random.one_in(4) {
        script.options.ack = random.pick(&[AckMode::Memory, AckMode::Log, AckMode::Durable]);
    }
    if aside.one_in(2) {
        script.options.limits = Options::draw_reuse(&mut aside, script.options.limits);
    }
    let mut steps = Vec::new();
    let change_one_in = random.pick(&[3, 10, 30]);
    for Step(op, bits) in script.steps {
        let bits = if random.one_in(2) { random.bits() as u32 } else { bits };
        if !random.one_in(change_one_in) {
            steps.push(Step(op, bits));
            continue;
        }
        match random.below(4) {
            0 => {}
            1 => steps.extend([Step(op, bits), Step(op, random.bits() as u32)]),
            2 => steps.extend([Step(moved(op, random), bits)]),
            _ => {
                let other = random.pick(&[
                    EndIo,
                    EndIo,
                    Settle,
                    Wake,
                    Flush,
                    Probe { power: true },
                    Crash { power: false },
                ]);
                steps.extend([Step(op, bits), Step(other, random.bits() as u32)]);
            }
        }
    }
    steps.push(Step(Probe { power: true }, random.bits() as u32));
    Script { steps, ..script }
}

/// The same for other blocks.
fn moved(op: Op, random: &mut Random) -> Op {
    let by = 8 * random.below(8);
    match op {
        Write { start, blocks, fua } => Write { start: start + by, blocks, fua },
        Read { start, blocks } => Read { start: start + by, blocks },
        Discard { start, blocks } => Discard { start: start + by, blocks },
        other => other,
    }
}

/// All.
pub fn corpus() -> Vec<Shrunk> {
    vec![
        Shrunk {
            name: "older-bypass-flush-believed",
            script: Script {
                options: Options { data_blocks: 4096, shears: false, ..Options::default() },
                steps: vec![
                    Step(Write { start: 3504, blocks: 2, fua: true }, 0),
                    Step(Settle, 0),
                    Step(EndIo, 0),
                    Step(EndIo, 0),
                    Step(Write { start: 2664, blocks: 32, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(Fault(FlushErrorKept), 0),
                    Step(EndIo, 2505496391),
                    Step(Write { start: 2344, blocks: 32, fua: true }, 0),
                    Step(EndIo, 0),
                    Step(EndIo, 1018155043),
                    Step(EndIo, 0),
                    Step(Probe { power: true }, 0),
                ],
            },
        },
        Shrunk {
            name: "superblock-same-copy",
            script: Script {
                options: Options {
                    segments: 24,
                    bypass_bytes: 1073741824,
                    overlaps: true,
                    ack: AckMode::Durable,
                    ..Options::default()
                },
                steps: vec![
                    Step(Write { start: 488, blocks: 88, fua: false }, 0),
                    Step(Write { start: 144, blocks: 48, fua: false }, 0),
                    Step(Fault(Resized), 2404707798),
                    Step(Write { start: 360, blocks: 64, fua: false }, 0),
                    Step(Write { start: 192, blocks: 4, fua: false }, 0),
                    Step(Write { start: 80, blocks: 56, fua: false }, 0),
                    Step(Write { start: 200, blocks: 72, fua: false }, 0),
                    Step(Write { start: 448, blocks: 64, fua: false }, 0),
                    Step(Write { start: 544, blocks: 48, fua: false }, 0),
                    Step(Write { start: 352, blocks: 88, fua: false }, 0),
                    Step(Write { start: 864, blocks: 88, fua: false }, 0),
                    Step(Write { start: 864, blocks: 88, fua: false }, 0),
                    Step(Write { start: 88, blocks: 64, fua: false }, 0),
                    Step(Write { start: 88, blocks: 64, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 656, blocks: 96, fua: false }, 0),
                    Step(Crash { power: false }, 0),
                    Step(Write { start: 208, blocks: 8, fua: false }, 0),
                    Step(Fault(Resized), 558842304),
                    Step(Write { start: 912, blocks: 4, fua: false }, 0),
                    Step(Fault(Resized), 1833846746),
                    Step(Write { start: 400, blocks: 32, fua: false }, 0),
                    Step(Write { start: 568, blocks: 88, fua: false }, 0),
                    Step(Fault(Resized), 3187519267),
                    Step(Write { start: 800, blocks: 1, fua: false }, 0),
                    Step(Grow { blocks: 104 }, 0),
                    Step(Write { start: 464, blocks: 1, fua: false }, 0),
                    Step(Fault(Resized), 2676031303),
                    Step(Grow { blocks: 48 }, 0),
                    Step(Write { start: 560, blocks: 104, fua: false }, 0),
                    Step(Write { start: 560, blocks: 104, fua: false }, 0),
                    Step(Write { start: 456, blocks: 32, fua: false }, 0),
                    Step(EndIo, 3859295547),
                    Step(Write { start: 480, blocks: 48, fua: false }, 0),
                    Step(Write { start: 552, blocks: 8, fua: false }, 0),
                    Step(Probe { power: true }, 1616619277),
                ],
            },
        },
        Shrunk {
            name: "unreadable-is-the-end",
            script: Script {
                options: Options { segments: 24, ack: AckMode::Durable, ..Options::default() },
                steps: vec![
                    Step(Write { start: 280, blocks: 104, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(Write { start: 528, blocks: 16, fua: false }, 0),
                    Step(Write { start: 344, blocks: 4, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(Fault(BadSector), 3130631526),
                    Step(Probe { power: true }, 0),
                ],
            },
        },
        Shrunk {
            name: "checkpoint-omits-poison",
            script: Script {
                options: Options { physical_sector: 4096, ..Options::default() },
                steps: vec![
                    Step(Fault(ReadErrorOnce), 1869137537),
                    Step(Write { start: 288, blocks: 1, fua: true }, 0),
                    Step(Fault(ReadErrorOnce), 4270089723),
                    Step(Fault(ReadErrorOnce), 2749066083),
                    Step(Write { start: 352, blocks: 72, fua: false }, 0),
                    Step(Write { start: 248, blocks: 24, fua: true }, 0),
                    Step(Idle, 0),
                ],
            },
        },
        Shrunk {
            name: "lost-write-forgotten",
            script: Script {
                options: Options { ..Options::default() },
                steps: vec![
                    Step(Write { start: 32, blocks: 8, fua: false }, 0),
                    Step(Fault(Hang), 0),
                    Step(Idle, 0),
                    Step(Crash { power: true }, 0),
                ],
            },
        },
        Shrunk {
            name: "line-before-zeroes",
            script: Script {
                options: Options { ..Options::default() },
                steps: vec![
                    Step(Discard { start: 568, blocks: 72 }, 0),
                    Step(Write { start: 608, blocks: 1, fua: false }, 0),
                    Step(Write { start: 312, blocks: 144, fua: false }, 0),
                    Step(Discard { start: 240, blocks: 8 }, 0),
                    Step(Idle, 0),
                ],
            },
        },
        Shrunk {
            name: "damage-forgotten",
            script: Script {
                options: Options { physical_sector: 4096, ..Options::default() },
                steps: vec![
                    Step(Fault(ReadErrorOnce), 4269404937),
                    Step(Write { start: 424, blocks: 16, fua: false }, 0),
                    Step(Fault(ReadErrorOnce), 2749066083),
                    Step(Idle, 0),
                    Step(Write { start: 352, blocks: 65, fua: false }, 0),
                    Step(Idle, 4046260981),
                ],
            },
        },
        Shrunk {
            name: "stale-copy-shown",
            script: Script {
                options: Options { segments: 24, ack: AckMode::Durable, ..Options::default() },
                steps: vec![
                    Step(Write { start: 48, blocks: 2, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 464, blocks: 2, fua: false }, 0),
                    Step(Write { start: 280, blocks: 104, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(EndIo, 0),
                    Step(Fault(BadSector), 3130631526),
                    Step(Probe { power: true }, 0),
                ],
            },
        },
        Shrunk {
            name: "memory-not-voided",
            script: Script {
                options: Options { ..Options::default() },
                steps: vec![
                    Step(Fault(CacheVanishes), 0),
                    Step(Write { start: 24, blocks: 2, fua: false }, 0),
                    Step(Idle, 0),
                    Step(Write { start: 24, blocks: 8, fua: false }, 0),
                    Step(Idle, 3887597511),
                ],
            },
        },
        Shrunk {
            name: "change-overtakes-bypass",
            script: Script {
                options: Options { overlaps: true, ..Options::default() },
                steps: vec![
                    Step(Write { start: 912, blocks: 40, fua: false }, 0),
                    Step(Write { start: 912, blocks: 40, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(EndIo, 0),
                    Step(Read { start: 912, blocks: 1 }, 0),
                    Step(EndIo, 745080141),
                    Step(EndIo, 3604379807),
                    Step(Write { start: 888, blocks: 32, fua: false }, 0),
                    Step(Idle, 0),
                ],
            },
        },
        Shrunk {
            name: "probe-skipped",
            script: Script {
                options: Options { ack: AckMode::Durable, ..Options::default() },
                steps: vec![
                    Step(Write { start: 96, blocks: 1, fua: false }, 0),
                    Step(Fault(ClockJump), 0),
                    Step(Idle, 0),
                    Step(Write { start: 16, blocks: 1, fua: false }, 0),
                ],
            },
        },
        Shrunk {
            name: "lost-checkpoint-not-missed",
            script: Script {
                options: Options {
                    segment_buffers: 6,
                    bypass_bytes: 1073741824,
                    ack: AckMode::Log,
                    ..Options::default()
                },
                steps: vec![
                    Step(Write { start: 192, blocks: 80, fua: false }, 0),
                    Step(Write { start: 864, blocks: 56, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 120, blocks: 16, fua: false }, 0),
                    Step(Write { start: 48, blocks: 2, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Discard { start: 168, blocks: 1 }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 904, blocks: 80, fua: false }, 0),
                    Step(Write { start: 48, blocks: 1, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 168, blocks: 2, fua: false }, 0),
                    Step(Write { start: 944, blocks: 2, fua: false }, 0),
                    Step(Write { start: 96, blocks: 72, fua: false }, 0),
                    Step(Write { start: 192, blocks: 40, fua: false }, 0),
                    Step(Write { start: 192, blocks: 8, fua: true }, 0),
                    Step(Write { start: 32, blocks: 24, fua: false }, 0),
                    Step(Write { start: 32, blocks: 4, fua: true }, 0),
                    Step(Write { start: 72, blocks: 2, fua: true }, 0),
                    Step(Write { start: 104, blocks: 2, fua: false }, 0),
                    Step(Discard { start: 872, blocks: 1 }, 0),
                    Step(Discard { start: 872, blocks: 1 }, 0),
                    Step(Discard { start: 840, blocks: 1 }, 0),
                    Step(Settle, 0),
                    Step(Discard { start: 152, blocks: 32 }, 0),
                    Step(Discard { start: 912, blocks: 1 }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 8, blocks: 4, fua: false }, 0),
                    Step(Write { start: 152, blocks: 16, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 120, blocks: 2, fua: true }, 0),
                    Step(Write { start: 0, blocks: 24, fua: false }, 0),
                    Step(Write { start: 160, blocks: 96, fua: false }, 0),
                    Step(Write { start: 952, blocks: 32, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 32, blocks: 56, fua: false }, 0),
                    Step(Write { start: 984, blocks: 24, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 112, blocks: 2, fua: false }, 0),
                    Step(Write { start: 824, blocks: 2, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 992, blocks: 16, fua: false }, 0),
                    Step(Write { start: 992, blocks: 4, fua: false }, 0),
                    Step(Write { start: 112, blocks: 16, fua: false }, 0),
                    Step(Write { start: 112, blocks: 2, fua: false }, 0),
                    Step(Write { start: 80, blocks: 2, fua: false }, 0),
                    Step(Write { start: 0, blocks: 72, fua: false }, 0),
                    Step(Write { start: 192, blocks: 56, fua: false }, 0),
                    Step(Write { start: 976, blocks: 2, fua: false }, 0),
                    Step(Crash { power: false }, 0),
                    Step(Write { start: 904, blocks: 2, fua: true }, 0),
                    Step(Crash { power: false }, 0),
                    Step(Write { start: 136, blocks: 10, fua: false }, 0),
                    Step(Discard { start: 32, blocks: 1 }, 0),
                    Step(Settle, 0),
                    Step(EndIo, 0),
                    Step(Write { start: 168, blocks: 32, fua: false }, 0),
                    Step(Read { start: 952, blocks: 32 }, 0),
                    Step(Write { start: 48, blocks: 96, fua: false }, 0),
                    Step(Write { start: 1016, blocks: 2, fua: false }, 0),
                    Step(Write { start: 64, blocks: 2, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(EndIo, 0),
                    Step(Write { start: 64, blocks: 8, fua: false }, 0),
                    Step(Write { start: 184, blocks: 2, fua: false }, 0),
                    Step(Write { start: 136, blocks: 72, fua: false }, 0),
                    Step(Write { start: 40, blocks: 48, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(EndIo, 0),
                    Step(Write { start: 96, blocks: 32, fua: false }, 0),
                    Step(Write { start: 96, blocks: 1, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(EndIo, 0),
                    Step(Write { start: 176, blocks: 4, fua: true }, 0),
                    Step(Write { start: 96, blocks: 1, fua: true }, 0),
                    Step(EndIo, 0),
                    Step(EndIo, 0),
                    Step(Write { start: 24, blocks: 4, fua: false }, 0),
                    Step(Fault(BadSector), 3603206040),
                    Step(Fault(NoSpace), 447825386),
                    Step(Fault(NoSpace), 422865418),
                    Step(EndIo, 0),
                    Step(EndIo, 0),
                    Step(EndIo, 0),
                    Step(Write { start: 24, blocks: 4, fua: false }, 0),
                    Step(Probe { power: true }, 0),
                ],
            },
        },
        Shrunk {
            name: "shown-records-believed",
            script: Script {
                options: Options {
                    segments: 24,
                    data_blocks: 640,
                    physical_sector: 4096,
                    idle_ms: 1000,
                    ..Options::default()
                },
                steps: vec![
                    Step(Write { start: 151, blocks: 30, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(Write { start: 184, blocks: 27, fua: false }, 0),
                    Step(Write { start: 60, blocks: 22, fua: false }, 0),
                    Step(Settle, 0),
                    Step(EndIo, 0),
                    Step(EndIo, 0),
                    Step(Write { start: 88, blocks: 40, fua: false }, 0),
                    Step(Discard { start: 81, blocks: 28 }, 0),
                    Step(Write { start: 133, blocks: 36, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Fault(MemoryLost), 0),
                    Step(Write { start: 72, blocks: 40, fua: false }, 0),
                    Step(Write { start: 168, blocks: 24, fua: false }, 0),
                    Step(Write { start: 16, blocks: 88, fua: false }, 0),
                    Step(Fault(FlushErrorDropped), 2608612534),
                    Step(Write { start: 8, blocks: 40, fua: false }, 0),
                    Step(Write { start: 136, blocks: 56, fua: false }, 0),
                    Step(Zero { start: 184, blocks: 8, may_unmap: false, fua: false }, 3264573759),
                    Step(Wake, 0),
                    Step(Write { start: 560, blocks: 1, fua: false }, 0),
                    Step(Fault(MemoryLost), 4180996095),
                    Step(EndIo, 0),
                    Step(Probe { power: false }, 559885949),
                ],
            },
        },
        Shrunk {
            name: "shown-records-believed-2",
            script: Script {
                options: Options {
                    data_blocks: 1600,
                    verify_reads: false,
                    ack: AckMode::Log,
                    ..Options::default()
                },
                steps: vec![
                    Step(Write { start: 56, blocks: 8, fua: false }, 0),
                    Step(Wake, 0),
                    Step(Wake, 0),
                    Step(Settle, 0),
                    Step(Crash { power: true }, 0),
                    Step(Write { start: 1560, blocks: 2, fua: true }, 0),
                    Step(Settle, 0),
                    Step(Crash { power: true }, 0),
                    Step(Write { start: 40, blocks: 2, fua: false }, 0),
                    Step(Crash { power: false }, 0),
                    Step(Write { start: 8, blocks: 2, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Wake, 0),
                    Step(EndIo, 0),
                    Step(Crash { power: true }, 0),
                    Step(Write { start: 61, blocks: 1, fua: false }, 0),
                    Step(Crash { power: false }, 0),
                    Step(Write { start: 0, blocks: 2, fua: true }, 0),
                    Step(Shutdown, 0),
                    Step(Write { start: 1568, blocks: 8, fua: false }, 0),
                    Step(Shutdown, 0),
                    Step(Write { start: 1584, blocks: 2, fua: false }, 0),
                    Step(Write { start: 1544, blocks: 2, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 24, blocks: 2, fua: true }, 0),
                    Step(Fault(FlushErrorDropped), 345514487),
                    Step(Fault(MemoryLost), 1518177133),
                    Step(Write { start: 1552, blocks: 2, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Probe { power: true }, 237112871),
                ],
            },
        },
        Shrunk {
            name: "memory-written-at-once",
            script: Script {
                options: Options { overlaps: true, ack: AckMode::Log, ..Options::default() },
                steps: vec![
                    Step(Fault(CacheVanishes), 0),
                    Step(Write { start: 40, blocks: 2, fua: false }, 0),
                    Step(Write { start: 40, blocks: 32, fua: false }, 0),
                    Step(EndIo, 347763043),
                    Step(Probe { power: false }, 1494998925),
                ],
            },
        },
        Shrunk {
            name: "bypass-overtakes-read",
            script: Script {
                options: Options { ack: AckMode::Durable, ..Options::default() },
                steps: vec![
                    Step(Read { start: 672, blocks: 2 }, 0),
                    Step(Write { start: 656, blocks: 26, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(Write { start: 672, blocks: 1, fua: false }, 0),
                    Step(Write { start: 624, blocks: 56, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(EndIo, 1758561275),
                    Step(Read { start: 640, blocks: 40 }, 0),
                    Step(Idle, 0),
                ],
            },
        },
        Shrunk {
            name: "copy-of-changed-line",
            script: Script {
                options: Options {
                    early_reads: true,
                    copy_pages: 1,
                    hot_blocks: true,
                    ..Options::default()
                },
                steps: vec![
                    Step(Read { start: 176, blocks: 8 }, 0),
                    Step(Write { start: 176, blocks: 32, fua: false }, 0),
                    Step(EndIo, 0),
                    Step(Idle, 0),
                    Step(Read { start: 176, blocks: 4 }, 0),
                    Step(Idle, 0),
                ],
            },
        },
        // A segment with fragments that lie over zeroes is emptied by overwriting alone, and
        // announced.
        Shrunk {
            name: "zeroes-below-overwritten-go",
            script: Script {
                options: Options {
                    limits: Limits {
                        listed_free: TINY.listed_free,
                        announced_ahead: usize::MAX,
                        ..Limits::MOST
                    },
                    ..Options::default()
                },
                steps: vec![
                    Step(Write { start: 808, blocks: 8, fua: false }, 0),
                    Step(Drain, 0),
                    Step(Idle, 0),
                    Step(Discard { start: 800, blocks: 104 }, 0),
                    Step(Write { start: 0, blocks: 32, fua: false }, 0),
                    Step(Write { start: 808, blocks: 1, fua: false }, 0),
                    Step(Write { start: 0, blocks: 80, fua: false }, 0),
                    Step(Write { start: 0, blocks: 80, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 808, blocks: 1, fua: false }, 0),
                    Step(Write { start: 0, blocks: 40, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Probe { power: true }, 0),
                ],
            },
        },
        // Ten writes past the log are under way together, and each cuts the discard.
        Shrunk {
            name: "tombstones-not-reserved",
            script: Script {
                options: Options {
                    data_blocks: 4096,
                    bypass_bytes: 4096,
                    limits: TINY,
                    shears: false,
                    ..Options::default()
                },
                steps: vec![
                    Step(Discard { start: 1000, blocks: 400 }, 0),
                    Step(Settle, 0),
                    Step(Write { start: 1016, blocks: 8, fua: false }, 0),
                    Step(Write { start: 1032, blocks: 8, fua: false }, 0),
                    Step(Write { start: 1048, blocks: 8, fua: false }, 0),
                    Step(Write { start: 1064, blocks: 8, fua: false }, 0),
                    Step(Write { start: 1080, blocks: 8, fua: false }, 0),
                    Step(Write { start: 1096, blocks: 8, fua: false }, 0),
                    Step(Write { start: 1112, blocks: 8, fua: false }, 0),
                    Step(Write { start: 1128, blocks: 8, fua: false }, 0),
                    Step(Write { start: 1144, blocks: 8, fua: false }, 0),
                    Step(Write { start: 1160, blocks: 8, fua: false }, 0),
                    Step(Write { start: 1176, blocks: 8, fua: false }, 0),
                    Step(Settle, 0),
                    Step(Flush, 0),
                    Step(Settle, 0),
                    Step(Crash { power: true }, 0),
                ],
            },
        },
    ]
}
