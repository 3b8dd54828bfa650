//! What the whole volume may hold after a crash. See `register.rs` for one sector.

use std::collections::{BTreeMap, HashMap};

use crate::history::{Action, Op, Stamp, Tick, ZERO};
use crate::register::{SectorOp, What, judge};

/// How a stretch of the history ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// kill -9, or in order: every acknowledged change is there (C4).
    Kill,
    /// A prefix of the order is there that covers all that was flushed (C2, C3, C9).
    PowerCut,
}

/// Judges a stretch between two crashes. `before` and `after` are what the sectors held at its
/// beginning and were seen to hold after its end. `is_whole`: changes are all or nothing (C14)
/// and the prefix has no exception (C11), because none went past the cache.
pub fn judge_stretch(
    before: &[Stamp],
    ops: &[Op],
    end: End,
    after: &[Stamp],
    is_whole: bool,
) -> Result<(), String> {
    let mut flushes: Vec<Tick> = ops.iter().filter(|op| is_flush(op)).map(|op| op.sent).collect();
    let mut by_sector: BTreeMap<usize, Vec<SectorOp>> = BTreeMap::new();
    for op in ops {
        for (place, sector) in op.sectors().enumerate() {
            let what = match &op.action {
                Action::Read(stamps) => What::Read(stamps[place]),
                // Never acknowledged, never durable.
                Action::Write { stamp, durable, .. } => {
                    What::Write { stamp: *stamp, durable: *durable && op.replied.is_some() }
                }
                Action::Flush => unreachable!("a flush has no sectors"),
            };
            by_sector.entry(sector).or_default().push(SectorOp {
                sent: op.sent,
                replied: op.replied,
                what,
            });
        }
    }
    let survivors = if is_whole { survivors(ops, after) } else { Vec::new() };
    // A change that is there: so is everything that was acknowledged before it was sent, as if
    // there had been a flush.
    flushes.extend(survivors.iter().map(|op| op.sent).max());
    for (sector, (before, after)) in before.iter().zip(after).enumerate() {
        let ops = by_sector.get(&sector).map_or(&[][..], Vec::as_slice);
        let outcome = judge(*before, ops, &flushes).map_err(|e| format!("sector {sector}: {e}"))?;
        let allowed = if end == End::Kill { outcome.held } else { outcome.remains };
        if !allowed.contains(after) {
            return Err(format!(
                "sector {sector} holds {after:x} after {end:?}, allowed is {allowed:x?}; it began \
                 with {before:x}; requests: {ops:x?}; flushes: {flushes:?}"
            ));
        }
    }
    survivors.iter().try_for_each(|op| is_entire(op, ops, before, after))
}

/// Whether it makes durable what was acknowledged before it was sent. FUA does, too (C3).
fn is_flush(op: &Op) -> bool {
    let makes_durable = matches!(op.action, Action::Flush | Action::Write { durable: true, .. });
    makes_durable && op.replied.is_some()
}

/// The writes of which at least one sector is to be seen.
fn survivors<'a>(ops: &'a [Op], after: &[Stamp]) -> Vec<&'a Op> {
    let is_seen = |op: &&Op| match op.action {
        Action::Write { stamp, .. } => stamp != ZERO && after[op.sectors()].contains(&stamp),
        _ => false,
    };
    ops.iter().filter(is_seen).collect()
}

/// All of `op` is there (C14): none of its sectors holds what was surely there before it.
fn is_entire(op: &Op, ops: &[Op], before: &[Stamp], after: &[Stamp]) -> Result<(), String> {
    let Action::Write { stamp, .. } = op.action else { return Ok(()) };
    let writers: HashMap<Stamp, &Op> = ops
        .iter()
        .filter_map(|op| match op.action {
            Action::Write { stamp, .. } => Some((stamp, op)),
            _ => None,
        })
        .collect();
    for sector in op.sectors() {
        let found = after[sector];
        // Zeroes may be anybody's, so nothing is known of their age.
        if found == stamp || found == ZERO {
            continue;
        }
        let is_older = match writers.get(&found) {
            Some(writer) => writer.is_before(op),
            None => found == before[sector],
        };
        if is_older {
            return Err(format!(
                "write {stamp:x} is only partly there: sector {sector} holds {found:x}, which is \
                 older; {op:?}"
            ));
        }
    }
    Ok(())
}
