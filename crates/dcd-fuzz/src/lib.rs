//! Runs the dcd engine on disks that lose what was not flushed, stops it at any instant, recovers,
//! and compares with a plain model.
//!
//! A run is a [`script::Script`]: options and steps, drawn from one seed. Everything follows from
//! it: the load, the order in which I/Os end, the moments of the crashes, what survives them, the
//! faults. [`run::replay`] of the same script repeats a run exactly.
//!
//! ```text
//! script     what happens: options, steps           host    engine, disks, clock, waiting faults
//! run        does the steps, checks the answers     crash   copy, cut, recover, check
//! running    an engine and its I/Os under way, on pairs and on volumes
//! minimise   the shortest run that fails      session many runs, on several threads
//! exhaustive all sequences of few operations  sweep   the n-th I/O fails, for every n
//! model      what reads may show                    faults  the kinds, and what each one allows
//! copy_load  what uses the read area           report  what was done
//! legs       a cache-disk on two disks, one of which fails, comes back old, or is left out
//! store      a data-disk in an object store that fails (feature `store`)
//! corpus     shrunk runs that once found something, and variations of them
//! ```

pub mod copy_load;
pub mod corpus;
pub mod crash;
pub mod disk;
pub mod exhaustive;
pub mod faults;
pub mod host;
pub mod legs;
mod memory;
pub mod minimise;
pub mod mistakes;
pub mod model;
pub mod nvram;
pub mod options;
pub mod order;
pub mod random;
pub mod report;
pub mod run;
pub mod running;
pub mod script;
pub mod seeded;
pub mod session;
pub mod space;
#[cfg(feature = "store")]
pub mod store;
pub mod sweep;
pub mod volume;
