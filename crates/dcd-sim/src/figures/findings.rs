//! The thesis' findings (Haining, chapters 7 and 8) as statements about our numbers.

use super::experiments::{CHAIN_LOW, ZONES};
use super::thesis::{SIZES_KB, ZONE_SIZES_KB, cleaning_chain};
use super::{Disk, Experiments, Finding, Scope, THESIS};

/// All of them.
pub fn findings(disk: &Disk, runs: &Experiments) -> Vec<Finding> {
    let finding = |(statement, holds, numbers)| {
        let disk = disk.name.to_owned();
        Finding { paper: THESIS, disk, statement, holds, numbers }
    };
    let mut all = match disk.scope {
        Scope::All => policies(disk, runs),
        Scope::HotZone => {
            let small = |policy| runs.get(&Experiments::dual(policy, 128, disk.low));
            vec![stack_model(STACK_MODEL, ["lru", "lst", "stack"].map(small))]
        }
    };
    all.push(knee(runs));
    all.push(before_and_behind_the_knee(disk, runs));
    if disk.scope == Scope::All {
        all.extend(chain(disk, runs));
        all.extend(idle_detection(disk, runs));
    }
    all.into_iter().map(finding).collect()
}

type Statement = (&'static str, bool, String);

const STACK_MODEL: &str = "the stack model matches the best of LRU and LST on writes and stalls at once \
                           (7.2, Table 7.3; 128 KB)";

/// Sections 7.1 and 7.2.
fn policies(disk: &Disk, runs: &Experiments) -> Vec<Statement> {
    let behind = |policy| runs.get(&Experiments::write_behind(policy, 256));
    let single = |policy| runs.get(&Experiments::single(policy, 90));
    let dual = |policy| runs.get(&Experiments::dual(policy, 256, disk.low));
    let [lru, stf, lst] = ["lru", "stf", "lst"].map(behind);
    let spared = |writes: u64| 100.0 - 100.0 * writes as f64 / lru.writes.max(1) as f64;
    let small = |policy| runs.get(&Experiments::dual(policy, 128, disk.low));
    let one = |policy| runs.get(&Experiments::one_at_a_time(policy, disk.low));
    let mut all = Vec::new();
    let mut add = |statement, holds, numbers| all.push((statement, holds, numbers));
    add(
        "write-behind LRU cuts disk writes most, by more than half (7.1.1, Table 7.2; 256 KB)",
        lru.disk_writes < stf.disk_writes.min(lst.disk_writes) && spared(lru.disk_writes) > 50.0,
        format!(
            "spared: LRU {:.0} %, STF {:.0} %, LST {:.0} % of {} writes",
            spared(lru.disk_writes),
            spared(stf.disk_writes),
            spared(lst.disk_writes),
            lru.writes
        ),
    );
    add(
        "write-behind LRU stalls far less than LST (7.1.1, Figure 7.1; 256 KB)",
        lru.stalled_writes * 3 < lst.stalled_writes * 2,
        format!("stalled: LRU {}, LST {}", lru.stalled_writes, lst.stalled_writes),
    );
    let (one_threshold, two) = (single("lst"), dual("lst"));
    add(
        "thresholds cure LST's stalls (7.1.2, Figures 7.2 and 7.3; 256 KB)",
        two.stalled_writes * 4 < lst.stalled_writes
            && one_threshold.stalled_writes < lst.stalled_writes,
        format!(
            "stalled: {} without, {} with one at 90 %, {} with two",
            lst.stalled_writes, one_threshold.stalled_writes, two.stalled_writes
        ),
    );
    all.push(stack_model(STACK_MODEL, ["lru", "lst", "stack"].map(small)));
    let one_by_one = "the same, cleaning one group at a time";
    all.push(stack_model(one_by_one, ["lru", "lst", "stack"].map(one)));
    all
}

fn stack_model(statement: &'static str, [lru, lst, stack]: [super::Run; 3]) -> Statement {
    let writes = lru.disk_writes.min(lst.disk_writes);
    let stalls = lru.stalled_writes.min(lst.stalled_writes);
    // Within a twentieth, and what chance does to small numbers.
    let chance = (stalls as f64).sqrt() * 3.0;
    let holds = stack.disk_writes as f64 <= writes as f64 * 1.05
        && stack.stalled_writes as f64 <= stalls as f64 * 1.05 + chance;
    let numbers = format!(
        "writes, stalled: LRU {}, {}; LST {}, {}; stack model {}, {}",
        lru.disk_writes,
        lru.stalled_writes,
        lst.disk_writes,
        lst.stalled_writes,
        stack.disk_writes,
        stack.stalled_writes
    );
    (statement, holds, numbers)
}

fn knee(runs: &Experiments) -> Statement {
    let largest = runs.hit_ratio.last().map_or((0, 0.0), |last| *last);
    let at_knee = runs.hit_ratio.iter().find(|(bytes, _)| *bytes >= runs.knee_bytes);
    let at_knee = at_knee.map_or(0.0, |(_, share)| *share);
    (
        "the hit ratio has a knee (4.1, Figure 4.1)",
        runs.knee_bytes * 3 < largest.0 && at_knee > largest.1 * 0.6,
        format!(
            "{:.0} % of writes found with {} KB, {:.0} % with {} KB",
            100.0 * at_knee,
            runs.knee_bytes >> 10,
            100.0 * largest.1,
            largest.0 >> 10
        ),
    )
}

/// Of each memory that has zones on both sides of the knee.
fn before_and_behind_the_knee(disk: &Disk, runs: &Experiments) -> Statement {
    let mut numbers = Vec::new();
    let mut holds = true;
    for kb in ZONE_SIZES_KB {
        let zone_kb = |percent: u8| kb as f64 * f64::from(percent) / 100.0;
        let knee_kb = runs.knee_bytes as f64 / 1024.0;
        let writes = |percent| runs.get(&Experiments::hot_zone(kb, percent, disk.low)).disk_writes;
        let falls = |from: u64, to: u64| 100.0 - 100.0 * to as f64 / from.max(1) as f64;
        let Some(at) = ZONES.iter().rposition(|percent| zone_kb(*percent) <= knee_kb) else {
            continue;
        };
        let before = falls(writes(ZONES[0]), writes(ZONES[at]));
        let Some(last) = ZONES.last().filter(|_| at + 1 < ZONES.len()) else {
            numbers.push(format!("{kb} KB: {before:.0} % before, all of it"));
            continue;
        };
        let behind = falls(writes(ZONES[at]), writes(*last));
        holds &= before > behind;
        numbers.push(format!("{kb} KB: {before:.0} % before, {behind:.0} % behind"));
    }
    (
        "a hot zone up to the knee spares disk writes, up to 25 %; one behind it less, 4 % (7.2, Figure 7.8)",
        holds,
        numbers.join("; "),
    )
}

/// The thesis says that it "models cache performance well"; a factor of two is our word.
fn chain(disk: &Disk, runs: &Experiments) -> Option<Statement> {
    let cold_blocks = disk.cold_blocks?;
    let mut holds = true;
    let numbers = SIZES_KB.map(|kb| {
        let run = runs.get(&Experiments::dual("lru", kb, CHAIN_LOW));
        let simulated = run.cleanings as f64 / run.writes.max(1) as f64;
        let modelled = cleaning_chain(kb, cold_blocks).p_clean();
        holds &= (0.5..=2.0).contains(&(simulated / modelled));
        format!("{kb} KB {simulated:.4}, {modelled:.4}")
    });
    Some((
        "the cleaning chain with a grouping factor of 8 predicts how often LRU is cleaned, to a factor of 2 \
         (7.3, Figure 7.12)",
        holds,
        format!("simulated, chain: {}", numbers.join("; ")),
    ))
}

/// Section 7.3.
fn idle_detection(disk: &Disk, runs: &Experiments) -> Vec<Statement> {
    let idle = |ms, at_once| runs.get(&Experiments::idle(ms, disk.low, at_once));
    let mut all = Vec::new();
    let mut add = |statement, holds, numbers| all.push((statement, holds, numbers));
    for at_once in ["all", "1"] {
        let (without, with) = (idle(0, at_once), idle(1000, at_once));
        let better = 100.0 - 100.0 * with.read_response_ms / without.read_response_ms.max(1e-9);
        let numbers = format!(
            "reads {:.2} to {:.2} ms, writes {:.3} to {:.3} ms, stalled {} to {}",
            without.read_response_ms,
            with.read_response_ms,
            without.write_response_ms,
            with.write_response_ms,
            without.stalled_writes,
            with.stalled_writes
        );
        let hurts = with.write_response_ms > without.write_response_ms
            && with.stalled_writes > without.stalled_writes;
        let statement = match at_once {
            "all" => {
                "idle detection of 1 s hardly helps reads (10 % at most) and hurts writes (7.3, Figure 7.13; 128 KB)"
            }
            _ => "the same, cleaning one group at a time",
        };
        add(statement, hurts && better <= 10.0, numbers);
    }
    let (all_at_once, one_by_one) = (idle(0, "all"), idle(0, "1"));
    add(
        "cleaning in small groups beats cleaning all at once on read response time (8.4, a conjecture)",
        one_by_one.read_response_ms < all_at_once.read_response_ms,
        format!(
            "reads {:.2} ms one group at a time, {:.2} ms all at once",
            one_by_one.read_response_ms, all_at_once.read_response_ms
        ),
    );
    all
}
