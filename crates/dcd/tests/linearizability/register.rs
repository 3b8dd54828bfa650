//! Is there an order? Each sector is a register: requests on it seem to happen one at a time, each
//! at an instant between its sending and its reply, and a read shows the newest change before it
//! (C1, C8, C16, C33). Linearizability is local, so each sector is judged alone; what a crash may
//! leave of *several* sectors (C9, C14) is judged in `crash_state.rs`.
//!
//! The judge walks through sends and replies in their order and keeps every state that some order
//! allows: what the register holds, and which of the requests under way have happened. A reply
//! rules out the states in which its request has not. None left: no order explains what was seen.
//!
//! - A read that fits a state happens in it at once: it changes nothing, so waiting gains nothing.
//! - A change without a reply may happen until the crash, or not at all.
//! - *Remains* of a state: what the sector may hold if the power is cut now, that is, the value at
//!   any point of the order since all was last durable. A change adds to it. A durable one, when it
//!   happens, leaves only itself: its reply came before the cut (those without are not durable).
//!   A flush leaves only what the register holds when the flush is *sent*: earlier is never
//!   stricter. States that differ only in what remains are one, with both remains: a state goes
//!   on in the same way whatever remains.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Stamp, Tick};

/// A request as one sector sees it.
#[derive(Clone, Copy, Debug)]
pub struct SectorOp {
    pub sent: Tick,
    pub replied: Option<Tick>,
    pub what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    Read(Stamp),
    Write { stamp: Stamp, durable: bool },
}

/// Requests that may be under way on one sector at once.
const SLOTS: usize = 64;

/// What may be in a sector at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// After a kill, or with everybody done: every acknowledged change counts.
    pub held: BTreeSet<Stamp>,
    /// After a power cut.
    pub remains: BTreeSet<Stamp>,
}

/// Register and requests (a bit for each slot) that have happened though their reply has not come.
type State = (Stamp, u64);
type States = BTreeMap<State, BTreeSet<Stamp>>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Flush,
    Sent(usize),
    Replied(usize),
}

/// Judges one sector: `initial` is what it held, durably; `ops` are requests on it in any order;
/// `flushes` are the instants at which acknowledged flushes were sent. `Err` is the first reply
/// that no order explains.
pub fn judge(initial: Stamp, ops: &[SectorOp], flushes: &[Tick]) -> Result<Outcome, String> {
    let mut events: Vec<(Tick, Event)> = flushes.iter().map(|tick| (*tick, Event::Flush)).collect();
    for (index, op) in ops.iter().enumerate() {
        events.push((op.sent, Event::Sent(index)));
        events.extend(op.replied.map(|replied| (replied, Event::Replied(index))));
    }
    events.sort_unstable();
    let mut under_way: Vec<Option<usize>> = vec![None; SLOTS];
    let mut states = States::from([((initial, 0), BTreeSet::from([initial]))]);
    for (tick, event) in events {
        match event {
            Event::Flush => {
                // What a request under way might still do comes after it.
                for ((value, _), remains) in &mut states {
                    *remains = BTreeSet::from([*value]);
                }
            }
            Event::Sent(index) => {
                let free = under_way.iter().position(Option::is_none).expect("a free slot");
                under_way[free] = Some(index);
            }
            Event::Replied(index) => {
                let slot = under_way.iter().position(|op| *op == Some(index)).unwrap();
                let before: BTreeSet<Stamp> = states.keys().map(|(value, _)| *value).collect();
                states = with_all_that_may_happen(states, &under_way, ops);
                under_way[slot] = None;
                states = states
                    .into_iter()
                    .filter(|((_, happened), _)| happened & 1 << slot != 0)
                    .map(|((value, happened), remains)| ((value, happened & !(1 << slot)), remains))
                    .fold(States::new(), add);
                if states.is_empty() {
                    let open: Vec<_> = under_way.iter().flatten().map(|i| ops[*i]).collect();
                    return Err(format!(
                        "no order explains the reply at {tick} to {:?}; before it the sector held \
                         one of {before:x?}, under way were {open:?}",
                        ops[index]
                    ));
                }
            }
        }
    }
    let states = with_all_that_may_happen(states, &under_way, ops);
    Ok(Outcome {
        held: states.keys().map(|(value, _)| *value).collect(),
        remains: states.into_values().flatten().collect(),
    })
}

fn add(mut states: States, (state, remains): (State, BTreeSet<Stamp>)) -> States {
    states.entry(state).or_default().extend(remains);
    states
}

/// The states, and those that come of them when requests under way happen, in any order.
fn with_all_that_may_happen(
    states: States,
    under_way: &[Option<usize>],
    ops: &[SectorOp],
) -> States {
    let mut all = States::new();
    let mut open: Vec<(State, BTreeSet<Stamp>)> = states.into_iter().collect();
    while let Some(((value, mut happened), remains)) = open.pop() {
        let slots =
            || under_way.iter().enumerate().filter_map(|(slot, op)| Some((slot, ops[(*op)?])));
        for (slot, op) in slots() {
            if op.what == What::Read(value) {
                happened |= 1 << slot;
            }
        }
        let known = all.entry((value, happened)).or_default();
        let news = known.len();
        known.extend(&remains);
        if known.len() == news && news > 0 {
            continue; // nothing new goes on from here
        }
        let remains = known.clone();
        for (slot, op) in slots() {
            if let What::Write { stamp, durable } = op.what
                && happened & 1 << slot == 0
            {
                let mut then = if durable { BTreeSet::new() } else { remains.clone() };
                then.insert(stamp);
                open.push(((stamp, happened | 1 << slot), then));
            }
        }
    }
    all
}
